# SPDX-License-Identifier: Apache-2.0
"""Writes a summary: a line a series, or a line a row and column, with its statistics beside each other.

Where a format names each column with its unit and statistic, as JSON does, it is an answer like any other.
"""

from collections.abc import Iterator

import numpy as np

from sysmon_tools.formats import WRITERS, without_time
from sysmon_tools.style import Style
from sysmon_tools.terminal_answer import Arrangement, write
from sysmond.answers.rows.summary import STATISTICS
from sysmond.base.model import Semantics
from sysmond.base.result import Column, Result

_TURNED = frozenset({"csv", "tsv", "jsonl", "kv", "table"})


def written(result: Result, chosen: str, style: Style) -> Iterator[bytes]:
    """Write a summary in a format."""
    if chosen not in _TURNED:
        return WRITERS[chosen](result, style)
    lines = turned(result)
    if style.screen is not None:
        named = [column.path for column in lines.columns]
        asked = Arrangement(has_time=False, unit_column="measured_in" if "measured_in" in named else "unit")
        return write(lines, style, style.screen, asked)
    pieces = WRITERS[chosen](lines, style)
    if chosen == "table" and len(lines.times_ns):
        return without_time(pieces, len(style.time(int(lines.times_ns[0]))))
    return pieces


def turned(result: Result) -> Result:
    """The same with a line for each series, or for each row and column, that has any statistic."""
    named: dict[str, dict[str, Column]] = {}
    identity: list[Column] = []
    for column in result.columns:
        name, _, stat = column.path.rpartition(":") if result.table else (column.path, "", column.stat)
        if name and stat in STATISTICS and column.texts is None:
            named.setdefault(name, {})[stat] = column
        else:
            identity.append(column)
    rows, names = len(result.times_ns), list(named)
    shape = rows, len(names)
    numbers = {stat: np.full(shape, np.nan) for stat in STATISTICS}
    for at, of_name in enumerate(named.values()):
        for stat, column in of_name.items():
            # As many digits as it is written with elsewhere.
            numbers[stat][:, at] = np.round(column.values, _decimals(column))
    known = np.flatnonzero(np.logical_or.reduce([~np.isnan(values.ravel()) for values in numbers.values()]))
    row, which = known // max(1, len(names)), known % max(1, len(names))
    units = [next(iter(of_name.values())).unit for of_name in named.values()]
    columns = [column.at(row) for column in identity]
    # Beside processes stands what systemd calls a unit.
    unit = "measured_in" if any(column.path == "unit" for column in identity) else "unit"
    columns += [
        Column(label, "", Semantics.STATE, "last", texts=tuple(texts[at] for at in which.tolist()))
        for label, texts in (("column" if result.table else "series", names), (unit, units))
    ]
    decimals = max((_decimals(column) for of_name in named.values() for column in of_name.values()), default=0)
    columns += [
        Column(stat, "", Semantics.GAUGE, stat, floats=values.ravel()[known], decimals=decimals)
        for stat, values in numbers.items()
    ]
    return result._replace(times_ns=result.times_ns[row], columns=tuple(columns))


def _decimals(column: Column) -> int:
    return column.decimals if column.floats is not None else column.scale
