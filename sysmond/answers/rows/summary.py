# SPDX-License-Identifier: Apache-2.0
"""The summary of a range: average, smallest, largest and 95th percentile of what has one.

Of series and of rows that last it is nothing but these statistics over the whole range. Rows of their own moment have
one value each: their summary is over the rows, in one row.
"""

from collections.abc import Sequence

from sysmond.base.model import Semantics
from sysmond.base.result import Result
from sysmond.errors import UsageError

# So many states are named of those that are left out.
_NAMED_MAX = 100
STATISTICS = ("mean", "min", "max", "p95")


def check(**others: object) -> None:
    """Refuse what means nothing with a summary.

    :raises UsageError: naming it.
    """
    for name, value in others.items():
        if not (value is None or value is False or value in ("", (), [])):
            said = f"a summary has {', '.join(STATISTICS)} of all of the range"
            raise UsageError(f"summary and {name}: {said}; expected only one of them")


def of_series(result: Result) -> Result:
    """Without the series that have no average, and with a note that names them.

    :raises UsageError: where there are no others.
    """
    columns = tuple(column for column in result.columns if column.semantics is not Semantics.STATE)
    if not columns:
        raise UsageError("summary: none of the chosen series has an average; expected counters or gauges")
    states = [column.path.partition("@")[0] for column in result.columns if column.semantics is Semantics.STATE]
    return result._replace(columns=columns, notes=(*result.notes, *left_out(states)))


def left_out(names: Sequence[str]) -> tuple[str, ...]:
    """Say what has no average, in one line; nothing where everything has one."""
    if not names:
        return ()
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _NAMED_MAX} more" if len(distinct) > _NAMED_MAX else ""
    return (f"summary: without average, and left out: {', '.join(distinct[:_NAMED_MAX])}{more}",)
