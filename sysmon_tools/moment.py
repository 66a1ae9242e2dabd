# SPDX-License-Identifier: Apache-2.0
"""What a machine was doing around a moment: curves, who used most, what was waited for, what happened.

It has no engine of its own: everything is asked of ``sysmond.history``, as anybody can.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import isfinite
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import is_minor
from sysmond.base.result import Column, Event, Float64Array, Gap, Result
from sysmond.errors import Error
from sysmond.history import Archive

# How long what is looked at is, and how long a bucket of the curves around it.
ZOOMS = (
    (10 * SECOND_NS, SECOND_NS),
    (60 * SECOND_NS, 10 * SECOND_NS),
    (600 * SECOND_NS, 60 * SECOND_NS),
    (3600 * SECOND_NS, 600 * SECOND_NS),
)
BUCKETS = 60
NOW_BACK_NS = 2 * SECOND_NS
ROWS_MAX = 60
EVENTS_MAX = 200
# How far beyond the usual a bucket is that the cursor jumps to, in deviations from the median.
SPIKE = 4.0


class Curve(NamedTuple):
    """How one thing went: its name, unit, and a value a bucket, float64[bucket], NaN where there is none."""

    label: str
    unit: str
    values: Float64Array


class ProcessShare(NamedTuple):
    """What a process used: ``cpu_percent`` of one CPU, bytes resident and a second of the disk; None if unknown."""

    pid: int
    comm: str
    user: str
    cpu_percent: float | None
    resident_bytes: float | None
    disk_bytes_s: float | None
    state: str


class WaitShare(NamedTuple):
    """For what threads of a name waited, and how often that was seen."""

    comm: str
    state: str
    place: str
    seen: int


class View(NamedTuple):
    """What is looked at: which moment (UTC ns), how closely, and in which order processes come."""

    at_ns: int
    zoom: int = 1
    order: str = "cpu"

    @property
    def span_ns(self) -> int:
        """How long what is looked at is."""
        return ZOOMS[self.zoom][0]

    @property
    def step_ns(self) -> int:
        """How long a bucket of the curves is."""
        return ZOOMS[self.zoom][1]

    @property
    def start_ns(self) -> int:
        """Where the curves begin: the moment lies amid them."""
        return (self.at_ns // self.step_ns - BUCKETS // 2) * self.step_ns

    @property
    def span(self) -> tuple[int, int]:
        """From when to when rows are asked for: whole buckets around the moment."""
        first_ns = (self.at_ns - self.span_ns // 2) // self.step_ns * self.step_ns
        return first_ns, first_ns + self.span_ns


def of_now(now_ns: int) -> View:
    """What is newest: the last ticks may not be there yet."""
    return View(now_ns - NOW_BACK_NS, 0)


class MomentScene(NamedTuple):
    """All that a page shows. ``asked_ns``: at which moment nothing is recorded; this is the nearest one."""

    view: View
    now_ns: int
    host: str = ""
    curves: Sequence[Curve] = ()
    processes: Sequence[ProcessShare] = ()
    waits: Sequence[WaitShare] = ()
    events: Sequence[Event] = ()
    gaps: Sequence[Gap] = ()
    warnings: Sequence[str] = ()
    asked_ns: int | None = None


# Label, unit, patterns, and how several columns become one.
_CURVES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("CPU", "%", ("cpu/busy@total",), "max"),
    ("Memory", "%", ("memory/used_percent",), "max"),
    ("CPU wait", "%", ("pressure/some_percent@cpu",), "max"),
    ("Memory wait", "%", ("pressure/some_percent@memory",), "max"),
    ("Disk wait", "%", ("pressure/some_percent@io",), "max"),
    ("Disk busy", "%", ("disk/utilization",), "max"),
    ("Disk", "B/s", ("disk/read_bytes", "disk/written_bytes"), "sum"),
    ("Network", "B/s", ("network/received_bytes", "network/sent_bytes"), "sum"),
    ("Hottest", "Cel", ("temperature/value",), "max"),
)
# Devices whose bytes are those of other devices, or of memory.
_COUNTED_ELSEWHERE = ("dm-", "loop", "md", "ram", "zram")
_GROUPS = (range(5), range(5, 7), range(7, 8), range(8, 9))


def look(archive: Archive, view: View, now_ns: int) -> MomentScene:
    """Ask for all of a page; where nothing is recorded then, of the nearest moment where something is.

    :raises Error: where nothing is recorded at all.
    """
    warnings: list[str] = []
    gaps: list[Gap] = []
    curves = [curve for group in _GROUPS for curve in _curves(archive, view, group, gaps, warnings)]
    start_ns, end_ns = view.span
    events = []
    with suppress(Error):
        until_ns = view.start_ns + BUCKETS * view.step_ns
        happened = archive.events(view.start_ns, until_ns)
        events = [event for event in happened if not is_minor(event.kind)][-EVENTS_MAX:]
    if not any(np.isfinite(curve.values).any() for curve in curves):
        nearest_ns = nearest(archive, view.at_ns)
        if nearest_ns is None:
            raise Error(f"{archive.state_dir}: nothing has been recorded there; 'sysmond' starts recording")
        if nearest_ns != view.at_ns:
            return look(archive, view._replace(at_ns=nearest_ns), now_ns)._replace(asked_ns=view.at_ns)
    return MomentScene(
        view,
        now_ns,
        _host(archive, end_ns),
        curves,
        processes(archive, view),
        sorted(_waits(archive, view), key=lambda wait: (wait.state != "D", -wait.seen)),
        events,
        [gap for gap in gaps if gap.start_ns < min(end_ns, now_ns) and gap.end_ns > start_ns],
        list(dict.fromkeys(warnings)),
    )


def _curves(archive: Archive, view: View, group: range, gaps: list[Gap], warnings: list[str]) -> Iterator[Curve]:
    """The curves that one question answers; none where the machine has nothing of the kind."""
    patterns = [pattern for number in group for pattern in _CURVES[number][2]]
    end_ns = view.start_ns + BUCKETS * view.step_ns
    try:
        result = archive.select(*patterns, start=view.start_ns, end=end_ns, step=view.step_ns)
    except Error:
        if len(group) > 1:  # One that is not there hides the others.
            for number in group:
                yield from _curves(archive, view, range(number, number + 1), gaps, warnings)
        return
    gaps += result.gaps
    warnings += result.warnings
    at = (result.times_ns - view.start_ns) // view.step_ns
    inside = (at >= 0) & (at < BUCKETS)
    for number in group:
        label, unit, wanted, how = _CURVES[number]
        columns = [column for column in result.columns if _is_meant(column, wanted)]
        values = np.full(BUCKETS, np.nan)
        values[at[inside]] = _together([column.values for column in columns], how, len(result.times_ns))[inside]
        if columns:
            yield Curve(label, unit, values)


def _is_meant(column: Column, wanted: Sequence[str]) -> bool:
    path, _, instance = column.path.partition("@")
    return (
        (path in wanted or column.path in wanted) and not instance.startswith(_COUNTED_ELSEWHERE) and instance != "lo"
    )


def _together(columns: Sequence[Float64Array], how: str, count: int) -> Float64Array:
    """One value a time, float64[time], of several columns; NaN where none has any."""
    if not columns:
        return np.full(count, np.nan)
    stacked = np.stack(columns)
    known = np.isfinite(stacked)
    filled = np.where(known, stacked, 0.0 if how == "sum" else -np.inf)
    made: Float64Array = filled.sum(axis=0) if how == "sum" else filled.max(axis=0)
    return np.where(known.any(axis=0), made, np.nan)


def _host(archive: Archive, end_ns: int) -> str:
    with suppress(Error):
        result = archive.select("host/hostname", start=end_ns - 600 * SECOND_NS, end=end_ns)
        said = [text for column in result.columns for text in (column.texts or ()) if text]
        return str(said[-1]) if said else ""
    return ""


_COLUMNS = "pid,comm,username,cpu,rss:last,read_bytes,written_bytes,state"
_KEYS: dict[str, Callable[[ProcessShare], float | None]] = {
    "cpu": lambda share: share.cpu_percent,
    "memory": lambda share: share.resident_bytes,
    "disk": lambda share: share.disk_bytes_s,
}
_BY = {"cpu": ("cpu",), "memory": ("rss:last",), "disk": ("read_bytes", "written_bytes")}


def processes(archive: Archive, view: View) -> list[ProcessShare]:
    """Who used most in the span, in the order of the view."""
    start_ns, end_ns = view.span
    shares: dict[tuple[int, str], ProcessShare] = {}
    for by in _BY[view.order]:
        with suppress(Error):
            result = archive.records("process", start=start_ns, end=end_ns, columns=_COLUMNS, top=ROWS_MAX, by=by)
            shares |= {(share.pid, share.comm): share for share in _shares(result)}
    key = _KEYS[view.order]
    used = [share for share in shares.values() if key(share)]
    return sorted(used, key=lambda share: -(key(share) or 0.0))[:ROWS_MAX]


def _shares(result: Result) -> Iterator[ProcessShare]:
    pids, comms, users, cpus, resident, reads, writes, states = result.columns
    texts = [[text or "" for text in column.texts or ()] for column in (comms, users, states)]
    numbers = [_numbers(column) for column in (pids, cpus, resident, reads, writes)]
    for (comm, user, state), (pid, cpu, rss, read, written) in zip(
        zip(*texts, strict=True), zip(*numbers, strict=True), strict=True
    ):
        moved = [value for value in (read, written) if value is not None]
        yield ProcessShare(int(pid or 0), comm, user, cpu, rss, sum(moved) if moved else None, state)


def _numbers(column: Column) -> list[float | None]:
    values: list[float] = column.values.tolist()
    return [value if isfinite(value) else None for value in values]


def _waits(archive: Archive, view: View) -> Iterator[WaitShare]:
    """What threads waited for most often; nothing where that may not be read, or is not recorded."""
    start_ns, end_ns = view.span
    with suppress(Error):
        result = archive.records(
            "thread_state",
            start=start_ns,
            end=end_ns,
            columns="comm,state,wchan,count",
            group_by="comm,state,wchan",
            by="count",
            top=ROWS_MAX,
        )
        comms, states, places, counts = result.columns
        texts = [[text or "" for text in column.texts or ()] for column in (comms, states, places)]
        for (comm, state, place), seen in zip(zip(*texts, strict=True), _numbers(counts), strict=True):
            if state != "S":  # Who sleeps waits for nobody but its next work.
                yield WaitShare(comm, state, place, int(seen or 0))


def nearest(archive: Archive, at_ns: int) -> int | None:
    """The moment nearest to one at which something is recorded; None where nothing is."""
    edges = [edge for boot in archive.boots() for edge in _within(boot.start_ns, boot.end_ns, at_ns)]
    return min(edges, key=lambda edge_ns: abs(edge_ns - at_ns), default=None)


def _within(start_ns: int, end_ns: int, at_ns: int) -> tuple[int, ...]:
    return (at_ns,) if start_ns <= at_ns <= end_ns else (start_ns, end_ns)


def spike(curves: Sequence[Curve], forward: Callable[[int], bool]) -> int | None:
    """Where a curve rises far above its median: the bucket nearest to the middle, of those that ``forward`` takes."""
    far: set[int] = set()
    for curve in curves:
        known = curve.values[np.isfinite(curve.values)]
        if len(known) < BUCKETS // 4:
            continue
        median = float(np.median(known))
        usual = max(float(np.median(np.abs(known - median))), abs(median) / 20, 1e-9)
        with np.errstate(invalid="ignore"):
            far.update(np.flatnonzero(curve.values > median + SPIKE * usual).tolist())
    middle = BUCKETS // 2
    begins = far - {number + 1 for number in far}
    return min((number for number in begins if forward(number)), key=lambda number: abs(number - middle), default=None)
