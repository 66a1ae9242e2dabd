# SPDX-License-Identifier: Apache-2.0
"""How a machine as a whole went over a stretch of time: CPU, memory, who had to wait, disks, networks, heat.

Everything is asked of ``sysmond.history``, as anybody can; what is known of a bucket already is not asked again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.paths import not_recorded
from sysmond.base.result import Column, Float64Array, Gap, Result
from sysmond.errors import Error
from sysmond.history import Archive

BUCKETS = 60
# So many more are asked for to the side to which somebody goes: a bucket costs hardly less than a dozen.
_BEYOND = 15
_SIZE = _BEYOND + BUCKETS + _BEYOND
# The last ticks may come late; until then a bucket is asked for again.
SETTLED_NS = 5 * SECOND_NS
# So late curves may be that are not shown.
LATE_NS = 10 * SECOND_NS
HOST_BACK_NS = 600 * SECOND_NS
# How far beyond the usual a bucket is that the cursor jumps to, in deviations from the median.
SPIKE = 4.0
# What a unit has to differ by for anybody to notice.
_NOTICED = {"%": 1.0, "B/s": 64 * 1024.0, "Cel": 1.0}


class Curve(NamedTuple):
    """How one thing went: its name, unit, and a value a bucket, float64[bucket], NaN where there is none."""

    label: str
    unit: str
    values: Float64Array


class _Wanted(NamedTuple):
    """A curve: what it is made of, and how several columns become one."""

    label: str
    unit: str
    patterns: tuple[str, ...]
    how: str = "max"

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(pattern.partition("/")[0] for pattern in self.patterns)


_WANTED = (
    _Wanted("CPU", "%", ("cpu/busy@total",)),
    _Wanted("Memory", "%", ("memory/used_percent",)),
    _Wanted("CPU wait", "%", ("pressure/some_percent@cpu",)),
    _Wanted("Memory wait", "%", ("pressure/some_percent@memory",)),
    _Wanted("Disk wait", "%", ("pressure/some_percent@io",)),
    _Wanted("Disk busy", "%", ("disk/utilization",)),
    _Wanted("Disk", "B/s", ("disk/read_bytes", "disk/written_bytes"), "sum"),
    _Wanted("Network", "B/s", ("network/received_bytes", "network/sent_bytes"), "sum"),
    _Wanted("Hottest", "Cel", ("temperature/value",)),
)
_NOT_THERE = {not_recorded(table) for wanted in _WANTED for table in wanted.tables}
# Devices whose bytes are those of other devices, or of memory.
_COUNTED_ELSEWHERE = ("dm-", "loop", "md", "ram", "zram")


class CurveWindow:
    """The curves of an archive over ``BUCKETS`` buckets, wherever that window is moved."""

    def __init__(self, archive: Archive) -> None:
        """Know nothing yet."""
        self._archive = archive
        # Of the window, and of what lies beyond it to either side.
        self._start_ns = self._step_ns = 0
        self._values: dict[_Wanted, Float64Array] = {}
        self._is_known = np.zeros(_SIZE, np.bool_)
        # When all curves were asked for last.
        self._all_ns = 0
        self.gaps: list[Gap] = []
        """What is missing in the window, and why."""
        self.warnings: list[str] = []
        self._host = ""

    def host_at(self, end_ns: int) -> str:
        """The name of the machine before a moment; it is asked for until it is known."""
        # It is recorded once a minute: mostly in the window, of which all is open already.
        for start_ns in (self._start_ns, end_ns - HOST_BACK_NS):
            if not self._host:
                with suppress(Error):
                    result = self._archive.select("host/hostname", start=start_ns, end=end_ns)
                    names = [text for column in result.columns for text in (column.texts or ()) if text]
                    self._host = str(names[-1]) if names else ""
        return self._host

    def at(self, start_ns: int, step_ns: int, now_ns: int, labels: Collection[str] | None = None) -> list[Curve]:
        """The curves over [start, start + BUCKETS × step), of those that the machine has.

        ``labels``: those that are shown; others may lack the last ten seconds.
        """
        self._move(start_ns - _BEYOND * step_ns, step_ns)
        shown = slice(_BEYOND, _BEYOND + BUCKETS)
        is_settled = self._start_ns + np.arange(1, _SIZE + 1) * step_ns <= now_ns - SETTLED_NS
        asked = _BEYOND + np.flatnonzero(~self._is_known[shown])
        if len(asked):
            first, last = int(asked[0]), int(asked[-1]) + 1
            first = 0 if first == shown.start else first
            last = max(last, int(is_settled.sum())) if last == shown.stop else last
            self.warnings = []
            # Where nothing is new of what was there, all are asked for: some may have come.
            known = [one for one in _WANTED if one in self._values]
            are_all_due = labels is None or not 0 <= now_ns - self._all_ns < LATE_NS
            asked_for = [one for one in known if are_all_due or one.label in (labels or ())]
            is_answered = bool(asked_for) and last - first < BUCKETS and self._ask(asked_for, first, last)
            if not is_answered:
                self._ask_for_all(first, last)
            if are_all_due or not is_answered:
                self._is_known[first:last] = True
                self._all_ns = now_ns
        self._is_known &= is_settled
        return [Curve(one.label, one.unit, self._values[one][shown].copy()) for one in _WANTED if one in self._values]

    def _move(self, start_ns: int, step_ns: int) -> None:
        """Forget what is far from the window now."""
        moved = (start_ns - self._start_ns) // step_ns
        if step_ns != self._step_ns or abs(moved) >= _SIZE:
            self._values, self._is_known = {}, np.zeros(_SIZE, np.bool_)
        elif moved:
            self._values = {one: _shifted(values, moved, np.nan) for one, values in self._values.items()}
            self._is_known = _shifted(self._is_known.astype(np.float64), moved, 0.0) > 0
        self._start_ns, self._step_ns = start_ns, step_ns
        end_ns = start_ns + _SIZE * step_ns
        self.gaps = [gap for gap in self.gaps if gap.end_ns > start_ns and gap.start_ns < end_ns]

    def _ask_for_all(self, first: int, last: int) -> None:
        """Ask for all curves; now, of those tables that rings have: that one is nowhere, only all files can tell."""
        tables = self._archive.recent_tables(self._start_ns + (first - 2) * self._step_ns)
        wanted = [one for one in _WANTED if tables is None or tables & one.tables]
        # A machine without any sensor is the most frequent one that lacks something.
        if not (wanted and self._ask(wanted, first, last)) and not self._ask(_WANTED[:-1], first, last):
            self._ask_apart(_WANTED, first, last)

    def _ask_apart(self, wanted: Sequence[_Wanted], first: int, last: int) -> None:
        """Ask for curves together; where one that is not there hides the others, for halves of them."""
        if not self._ask(wanted, first, last) and len(wanted) > 1:
            half = len(wanted) // 2
            self._ask_apart(wanted[:half], first, last)
            self._ask_apart(wanted[half:], first, last)

    def _ask(self, wanted: Sequence[_Wanted], first: int, last: int) -> bool:
        """Ask for buckets of some curves; whether they were answered."""
        start_ns, end_ns = (self._start_ns + number * self._step_ns for number in (first, last))
        patterns = [pattern for one in wanted for pattern in one.patterns]
        try:
            result = self._archive.select(*patterns, start=start_ns, end=end_ns, step=self._step_ns)
        except Error:
            return False
        self.gaps = list(dict.fromkeys([*self.gaps, *result.gaps]))
        # That a machine has no sensors, nobody asked.
        self.warnings += [said for said in result.warnings if said not in _NOT_THERE]
        at = (result.times_ns - self._start_ns) // self._step_ns
        inside = (at >= first) & (at < last)
        for one in wanted:
            columns = [column.values for column in _meant(result, one)]
            if columns:
                values = self._values.setdefault(one, np.full(_SIZE, np.nan))
                values[first:last] = np.nan
                values[at[inside]] = _together(columns, one.how)[inside]
        return True


def _shifted(values: Float64Array, count: int, filler: float) -> Float64Array:
    """Move float64[bucket] to the left, with ``filler`` where nothing is known."""
    made = np.full(_SIZE, filler)
    if count > 0:
        made[:-count] = values[count:]
    else:
        made[-count:] = values[:count]
    return made


def _meant(result: Result, wanted: _Wanted) -> Iterable[Column]:
    for column in result.columns:
        path, _, instance = column.path.partition("@")
        is_wanted = path in wanted.patterns or column.path in wanted.patterns
        if is_wanted and instance != "lo" and not instance.startswith(_COUNTED_ELSEWHERE):
            yield column


def _together(columns: Sequence[Float64Array], how: str) -> Float64Array:
    """One value a time, float64[time], of several columns; NaN where none has any."""
    stacked = np.stack(columns)
    known = np.isfinite(stacked)
    filled = np.where(known, stacked, 0.0 if how == "sum" else -np.inf)
    made: Float64Array = filled.sum(axis=0) if how == "sum" else filled.max(axis=0)
    return np.where(known.any(axis=0), made, np.nan)


class Spike(NamedTuple):
    """Where curves rise: the bucket, and of each of them how high it gets there, and what is usual (its median)."""

    number: int
    peaks: Sequence[tuple[Curve, float, float]]


def spike(curves: Sequence[Curve], forward: Callable[[int], bool], number: int = BUCKETS // 2) -> Spike | None:
    """Where curves rise far above their medians: the bucket nearest to one, of those that ``forward`` takes."""
    usual: dict[int, float] = {}
    far: dict[int, set[int]] = {}
    for at, curve in enumerate(curves):
        known = curve.values[np.isfinite(curve.values)]
        if len(known) < BUCKETS // 4:
            continue
        usual[at] = median = float(np.median(known))
        deviation = max(float(np.median(np.abs(known - median))), abs(median) / 20, 1e-9)
        high_from = median + max(SPIKE * deviation, _NOTICED.get(curve.unit, 0.0))
        with np.errstate(invalid="ignore"):
            far[at] = set(np.flatnonzero(curve.values > high_from).tolist())
    high = set().union(*far.values())
    begins = high - {bucket + 1 for bucket in high}
    begin = min(filter(forward, begins), key=lambda begin: abs(begin - number), default=None)
    if begin is None:
        return None
    end = next(bucket for bucket in range(begin, BUCKETS + 1) if bucket not in high)
    rising = [at for at, buckets in far.items() if not buckets.isdisjoint(range(begin, end))]
    return Spike(begin, [(curves[at], float(np.nanmax(curves[at].values[begin:end])), usual[at]) for at in rising])
