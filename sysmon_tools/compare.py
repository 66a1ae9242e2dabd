# SPDX-License-Identifier: Apache-2.0
"""Puts two spans of time side by side, the largest differences first: ``sysmon compare``.

It has no engine of its own: of both spans the mean of each series, of each program and of each control group is asked
for. What differs by little, or where little is done at all, explains nothing and is left out.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from sysmon_tools import presets
from sysmon_tools.output import add_format
from sysmon_tools.quantities import with_unit
from sysmond.base import timespec
from sysmond.errors import Error, TooManySeriesError, UsageError

if TYPE_CHECKING:
    from sysmond.base.clock import Relation
    from sysmond.history import Archive

BETWEEN = ".."
NAMES = ("what", "unit", "before", "after")
NAMES_FOR_PEOPLE = ("what", "before", "after", "difference")
LARGEST = 20
# What is much, by unit: by how much of it two spans differ puts the differences in order.
MUCH = {"%": 20.0, "B": 1 << 28, "B/s": 1 << 23, "s": 0.02, "1/s": 2000.0, "page/s": 2000.0, "page": 1 << 16, "1": 20.0}
# Below this share of it a difference is nothing that anybody would notice.
LEAST_OF_MUCH = 0.02
# Below this share of the larger of both, as well.
LEAST_SHARE = 0.1
_CLOCK = re.compile(r"\d{1,2}(:\d{2}){1,2}")
# Table, what its rows are put together by, and the columns that are compared, with their units.
_GROUPS = (("process", "comm", "program"), ("process", "unit", "unit"))
_COLUMNS = (("cpu", "%"), ("rss", "B"), ("read_bytes", "B/s"), ("written_bytes", "B/s"))


class Difference(NamedTuple):
    """What, in which unit, and its mean over both spans."""

    what: str
    unit: str
    before: float
    after: float

    @property
    def share(self) -> float:
        """How large the difference is beside the larger of both: from 0 to 1."""
        most = max(abs(self.before), abs(self.after))
        return abs(self.after - self.before) / most if most else 0.0

    @property
    def weight(self) -> float:
        """How much of what is much in this unit the difference is."""
        return abs(self.after - self.before) / MUCH.get(self.unit, 1.0)

    @property
    def matters(self) -> bool:
        """Whether anybody would notice it."""
        return self.weight >= LEAST_OF_MUCH and self.share >= LEAST_SHARE


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("before", metavar="BEFORE", help="the first span, FROM..TO, such as 'yesterday 14:00..15:00' or -2h..-1h")
    add("after", metavar="AFTER", help="the second span, such as 'today 14:00..15:00' or -1h..now")
    # With a default argparse does not count it among what is missing.
    why = "series to compare (default: those of all presets, programs, units)"
    add("paths", nargs="*", default=[], metavar="PATH", help=why)
    add("--top", "--limit", type=int, default=LARGEST, metavar="N", help="number of differences (default: %(default)s)")
    add("--all", action="store_true", help="include negligible differences")
    add_format(made)


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Compare, and give the warnings.

    :raises UsageError: for a span, a path or a format that is wrong.
    """
    from sysmon_tools.rows import RowTable, send_rows  # noqa: PLC0415  numpy: --help needs none of it

    if options.top < 1:
        raise UsageError(f"--top {options.top}: expected 1 or more")
    now = archive.now()
    before, after = read_span(options.before, now), read_span(options.after, now)
    found = [*_series(archive, options.paths, before, after)]
    if not options.paths:
        found += _rows(archive, before, after)
    chosen = sorted((one for one in found if options.all or one.matters), key=lambda one: -one.weight)[: options.top]
    for_people = RowTable(NAMES_FOR_PEOPLE, [_spelled(one) for one in chosen])
    nothing = "nothing differs that anybody would notice"
    send_rows(options.format, RowTable(NAMES, chosen), for_people, nothing=nothing)
    return list(dict.fromkeys(archive.warnings))


def read_span(text: str, now: "Relation") -> tuple[int, int]:
    """Read ``T..T`` to UTC ns; an end that is a clock time alone is of the day of the beginning.

    :raises UsageError: naming what is wrong.
    """
    start, between, end = text.partition(BETWEEN)
    if not between or not start.strip() or not end.strip():
        raise UsageError(f"{text!r}: not a span; expected FROM..TO, such as 'yesterday 14:00..15:00' or -2h..-1h")
    day = start.strip().rpartition(" ")[0]
    if day and _CLOCK.fullmatch(end.strip()):
        end = f"{day} {end.strip()}"
    return timespec.parse_span(start.strip(), end.strip(), now)


def _series(
    archive: "Archive", paths: Sequence[str], before: tuple[int, int], after: tuple[int, int]
) -> Iterator[Difference]:
    """The series of paths; where nobody names any, of all presets that are recorded here.

    :raises Error: where one of the spans has nothing, which is not the same as zero.
    """
    one, other = (_means(archive, paths, *span) for span in (before, after))
    for means, (start_ns, end_ns) in ((one, before), (other, after)):
        if not means:
            span = f"{timespec.format_time(start_ns)} to {timespec.format_time(end_ns)}"
            raise Error(f"{span}: nothing was recorded in that time, so there is nothing to compare")
    for path, (unit, mean) in one.items():
        if path in other:
            yield Difference(path, unit, mean, other[path][1])


def _means(archive: "Archive", paths: Sequence[str], start_ns: int, end_ns: int) -> dict[str, tuple[str, float]]:
    """The unit and the mean of each series that has a value.

    :raises UsageError: for a path that somebody named and that there is not, or that means too many series.
    """
    wanted = list(paths)
    if not wanted:
        there = {entry.path.partition("/")[0] for entry in archive.catalogue()}
        wanted = [path for path in presets.paths([*presets.PRESETS]) if path.partition("/")[0] in there]
    try:
        result = archive.select(*wanted, start=start_ns, end=end_ns, summary=True)
    except TooManySeriesError as refused:
        raise UsageError(f"{refused}; without PATH programs and units are compared, too") from refused
    means = {
        column.path: (column.unit, float(column.values[0]))
        for column in result.columns
        if column.stat == "mean" and column.texts is None and len(column.values)
    }
    return {path: mean for path, mean in means.items() if not isnan(mean[1])}


def _rows(archive: "Archive", before: tuple[int, int], after: tuple[int, int]) -> Iterator[Difference]:
    """Programs and units: who was not there used nothing."""
    for table, key, called in _GROUPS:
        one, other = (_used(archive, table, key, *span) for span in (before, after))
        for name in {**one, **other}:
            for column, unit in _COLUMNS:
                was, now = (used.get(name, {}).get(column, 0.0) for used in (one, other))
                yield Difference(f"{called} {name}: {column}", unit, was, now)


def _used(archive: "Archive", table: str, key: str, start_ns: int, end_ns: int) -> dict[str, dict[str, float]]:
    """What each name used on average over a span; nothing where that may not be read."""
    columns = [name for name, _ in _COLUMNS]
    try:
        result = archive.records(
            table, start=start_ns, end=end_ns, step=end_ns - start_ns, group_by=key, columns=",".join([key, *columns])
        )
    except Error:
        return {}
    names = result.column(key).texts or ()
    used: dict[str, dict[str, float]] = {}
    for column in columns:
        for name, value in zip(names, _values(result.column(column).values), strict=True):
            if name:
                of_name = used.setdefault(name, {})
                of_name[column] = of_name.get(column, 0.0) + value
    return used


def _values(values: Iterable[float]) -> list[float]:
    return [0.0 if isnan(value) else float(value) for value in values]


def _spelled(one: Difference) -> tuple[str, ...]:
    before, after, difference = (
        with_unit(value, one.unit) for value in (one.before, one.after, one.after - one.before)
    )
    return one.what, before, after, difference if difference.startswith("-") else f"+{difference}"
