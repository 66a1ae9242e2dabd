# SPDX-License-Identifier: Apache-2.0
"""Writes an answer for people who see it on a terminal: a row an instance, numbers short, times without what is clear.

What programs read is written by ``sysmon_tools.formats``. Pure: lines come out one after the other, as they are wanted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmon_tools import daily
from sysmon_tools.formats import Remarks, labels
from sysmon_tools.grid import Display, Field, clipped, lay_out
from sysmon_tools.quantities import heading, spelled, with_unit
from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, EVENTS, Cause
from sysmond.base.result import Column, Event, Gap, Int64Array, Result
from sysmond.base.terminal import printable
from sysmond.base.timespec import Notation

INSTANCE = "instance"
# What happened is a line; where more is known of it, --all-columns shows that.
_OF_EVENTS = ("kind", "subject", "text")
_MILLISECOND_NS = 1_000_000
_DIGITS = ".0123456789"


class Arrangement(NamedTuple):
    """How an answer is meant: ``first`` is the column that rows are in order of, ``has_time`` that rows have their own.

    ``is_chosen``: somebody named the columns, so all are shown, in that order. ``unit_column``: of a summary, the
    column that has the unit of the numbers beside it.
    """

    first: str = ""
    has_time: bool = True
    is_chosen: bool = False
    unit_column: str = ""


def write(result: Result, style: Style, screen: Display, asked: Arrangement) -> Iterator[bytes]:
    """Write an answer: a table for each table that it is of, then what happened meanwhile, and what is missing."""
    clock = _Clock(result.times_ns, style)
    blocks = (
        [_rows(result, screen, clock, asked)]
        if result.table or asked.unit_column
        else _series(result, screen, clock, asked)
    )
    number = 0
    for number, block in enumerate(blocks):
        title = "  ".join(filter(None, [block.title, clock.day if asked.has_time else ""]))
        yield from _lines([*([""] if number else []), *([title] if title else [])])
        fields = block.fields
        if asked.has_time:
            fields = [clock.field(block.at), *fields]
        if block.rows:
            yield from _lines(lay_out(fields, block.rows, screen, keeps_empty=asked.is_chosen))
        else:
            yield from _lines(["(no rows in that range)"])
    yield from _lines(_remarks(result, style, clock, screen))


def as_fields(result: Result, style: Style, screen: Display) -> list[Field]:
    """The columns of rows, spelled as for a terminal: first the time of each row, then as they are in the answer."""
    clock = _Clock(result.times_ns, style)
    named = zip(labels(result.columns), result.columns, strict=True)
    return [clock.field(lambda row: row), *(_field(name, [column], screen, clock) for name, column in named)]


def write_remarks(remarks: Remarks, style: Style, screen: Display) -> Iterator[bytes]:
    """Write what happened meanwhile, and what is missing, beside rows that have no time axis."""
    return _lines(_remarks(remarks, style, _Clock(np.zeros(0, np.int64), style), screen))


def write_rows(names: Sequence[str], rows: Iterable[Sequence[object]], screen: Display) -> Iterator[bytes]:
    """Write rows that have no time axis, such as a list, or what SQL found; numbers as they are."""
    listed = list(rows)

    def field(at: int, name: str) -> Field:
        is_text = not _are_numbers(row[at] for row in listed)
        return Field(name, lambda row: _plain(listed[row][at]), is_text=is_text, stays=not at)

    return _lines(lay_out([field(at, name) for at, name in enumerate(names)], len(listed), screen, keeps_empty=True))


def _plain(cell: object) -> str | None:
    if isinstance(cell, float):
        return None if np.isnan(cell) else f"{cell:.12g}"
    return None if cell is None else str(cell)


def _are_numbers(cells: Iterable[object]) -> bool:
    return all(cell is None or isinstance(cell, int | float) for cell in cells)


def _lines(lines: Iterable[str]) -> Iterator[bytes]:
    for line in lines:
        yield f"{line}\n".encode()


class _Block(NamedTuple):
    """Rows of one table. ``at``: the place of a row's moment on the time axis."""

    title: str
    fields: list[Field]
    rows: int
    at: Callable[[int], int]


class _Clock:
    """Times as short as they can be: day and zone stand above the table where one of each serves all its rows."""

    def __init__(self, times_ns: Int64Array, style: Style) -> None:
        """Look what the times of an answer have in common."""
        self._style = style
        self._times_ns = times_ns
        self._is_epoch = style.notation is Notation.EPOCH
        self._is_fine = bool((times_ns % SECOND_NS // _MILLISECOND_NS).any())
        ends = [style.time(int(end)) for end in (times_ns[[0, -1]] if len(times_ns) else ())]
        days, zones = {end[:10] for end in ends}, {_zone(end) for end in ends}
        self._is_one_day, self._is_one_zone = len(days) == 1, len(zones) == 1
        zone = zones.pop() if self._is_one_zone else ""
        said = [days.pop() if self._is_one_day else "", "UTC" if zone == "Z" else f"UTC{zone}" if zone else ""]
        self.day = "" if self._is_epoch else "  ".join(filter(None, said))

    def field(self, at: Callable[[int], int]) -> Field:
        """The column of times; ``at``: where on the axis a row is."""
        return Field("time", lambda row: self.spelled(int(self._times_ns[at(row)])), is_text=True, stays=True)

    def spelled(self, time_ns: int) -> str:
        """Spell any time; of another day, with that day."""
        text = self._style.time(time_ns)
        if self._is_epoch:
            return text
        clock = text[11:19]
        if self._is_fine:
            clock += text[19:23] if text[19:20] == "." else ".000"
        if not self._is_one_zone:
            clock += _zone(text)
        return clock if self._is_one_day and self.day.startswith(text[:10]) else f"{text[:10]} {clock}"


def _zone(text: str) -> str:
    return text[19:].lstrip(_DIGITS)


def _rows(result: Result, screen: Display, clock: _Clock, asked: Arrangement) -> _Block:
    """The rows of a table as they are, but that the column by which they are in order follows their names."""
    named = list(zip(labels(result.columns), result.columns, strict=True))
    units = next((column.texts for _, column in named if asked.unit_column and column.path == asked.unit_column), None)
    named = [pair for pair in named if units is None or pair[1].path != asked.unit_column]
    if result.table == EVENTS and screen.columns is not None and not asked.is_chosen:
        named = [pair for pair in named if pair[0] in _OF_EVENTS]
    begin = next((at for at, (_, column) in enumerate(named) if _is_amount(column)), len(named))
    first = asked.first.partition(":")[0]
    wanted = [name for name, column in named[begin:] if first and column.path.partition(":")[0] == first]
    names = [name for name, _ in named[:begin]] + wanted
    ordered = (
        named
        if asked.is_chosen
        else [*(pair for pair in named if pair[0] in names), *(pair for pair in named if pair[0] not in names)]
    )
    fields = [
        _field(name, [column], screen, clock, units)._replace(
            stays=not number, rank=0 if name in wanted else daily.rank(result.table, name)
        )
        for number, (name, column) in enumerate(ordered)
    ]
    return _Block(result.table, fields, len(result.times_ns), lambda row: row)


def _is_amount(column: Column) -> bool:
    return column.texts is None and not _is_number_of(column) and not column.is_time


def _is_number_of(column: Column) -> bool:
    """Whether it numbers things, as ``pid``; what has a unit is an amount, also where it is the last there was."""
    return column.tells_apart and column.unit == "1"


def _series(result: Result, screen: Display, clock: _Clock, asked: Arrangement) -> Iterator[_Block]:
    """For each table a row an instance and moment, and a column a metric."""
    several = len({column.path for column in result.columns}) < len(result.columns)
    tables: dict[str, dict[str, dict[str, Column]]] = {}
    for column in result.columns:
        path, _, instance = column.path.partition("@")
        table, _, metric = path.partition("/")
        name = f"{metric}:{column.stat}" if several else metric
        tables.setdefault(table, {}).setdefault(name, {})[instance] = column
    for table, metrics in tables.items():
        instances = list(dict.fromkeys(name for columns in metrics.values() for name in columns))
        fields = [
            _field(name, [columns.get(instance) for instance in instances], screen, clock)._replace(
                rank=daily.rank(table, name)
            )
            for name, columns in metrics.items()
        ]
        if not asked.is_chosen:
            fields.sort(key=lambda field: field.rank)
        if instances != [""]:
            fields.insert(0, _instances(instances))
        yield _Block(table, fields, len(result.times_ns) * len(instances), _divided(len(instances)))


def _instances(names: Sequence[str]) -> Field:
    return Field(INSTANCE, lambda row: names[row % len(names)] or None, is_text=True, stays=True)


def _divided(count: int) -> Callable[[int], int]:
    return lambda row: row // count


def _field(
    name: str,
    columns: Sequence[Column | None],
    screen: Display,
    clock: _Clock,
    units: Sequence[str | None] | None = None,
) -> Field:
    """One column of the screen, whose rows go round these columns of an answer. ``units``: of each row, its own."""
    there = [column for column in columns if column is not None]
    spellers = [None if column is None else _speller(column, screen, clock, units) for column in columns]
    count = len(columns)

    def cell(row: int) -> str | None:
        spell = spellers[row % count]
        return None if spell is None else spell(row // count)

    unit = there[0].unit
    above = (unit if unit not in {"1", "text", "time"} else "") if screen.is_exact else heading(unit)
    is_text = there[0].texts is not None or there[0].is_time
    return Field(name, cell, above, is_text=is_text, is_empty=all(map(_is_empty, there)))


def _is_empty(column: Column) -> bool:
    if column.texts is not None:
        return not any(column.texts)
    return bool((column.integers == ABSENT).all() if column.integers is not None else np.isnan(column.values).all())


def _speller(
    column: Column, screen: Display, clock: _Clock, units: Sequence[str | None] | None
) -> Callable[[int], str | None]:
    texts, integers, floats = column.texts, column.integers, column.floats
    if texts is not None:
        return lambda row: texts[row] or None
    if column.is_time and integers is not None:
        return lambda row: None if integers[row] == ABSENT else clock.spelled(int(integers[row]))
    if integers is not None and (screen.is_exact or _is_number_of(column)):
        scale = column.scale
        return lambda row: None if integers[row] == ABSENT else _exact(integers[row] / 10.0**scale, scale)
    values = column.values if floats is None else floats

    def spell(row: int) -> str | None:
        value = float(values[row])
        if np.isnan(value):
            return None
        if screen.is_exact:
            return _exact(value, column.decimals)
        if units is None:
            return spelled(value, column.unit, is_ascii=screen.is_ascii)
        return with_unit(value, units[row] or "1", is_ascii=screen.is_ascii)

    return spell


def _exact(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _remarks(remarks: Remarks, style: Style, clock: _Clock, screen: Display) -> Iterator[str]:
    """What happened meanwhile, and why rows are missing; when recording began is a note of its own."""
    gaps = [gap for gap in remarks.gaps if gap.cause is not Cause.BEFORE_RECORDING]
    said = [*((gap.start_ns, _of_gap(gap, clock)) for gap in gaps),
            *((event.time_ns, _of_event(event, clock)) for event in style.shown(remarks.events))]  # fmt: skip
    for number, (_, remark) in enumerate(sorted(said)):
        if not number:
            yield ""
        line = printable(remark)
        yield line if screen.columns is None else clipped(line, screen.columns, is_ascii=screen.is_ascii)


def _of_gap(gap: Gap, clock: _Clock) -> str:
    why = f"{gap.cause} ({gap.detail})" if gap.detail else str(gap.cause)
    return f"{clock.spelled(gap.start_ns)} to {clock.spelled(gap.end_ns)}  no {gap.table}: {why}"


def _of_event(event: Event, clock: _Clock) -> str:
    return "  ".join(filter(None, [clock.spelled(event.time_ns), event.kind, event.subject, event.text]))
