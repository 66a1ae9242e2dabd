# SPDX-License-Identifier: Apache-2.0
"""What a machine was doing around a moment: curves, who used most, what was waited for, what happened.

It has no engine of its own: everything is asked of ``sysmond.history``, as anybody can.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from math import isfinite
from typing import NamedTuple

import numpy as np

from sysmon_tools.curves import BUCKETS, Curve, CurveWindow
from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import is_minor
from sysmond.base.model import Cause
from sysmond.base.result import Column, Event, Gap, Result
from sysmond.errors import Error
from sysmond.history import Archive

# How long what is looked at is, and how long a bucket of the curves around it.
ZOOMS = (
    (10 * SECOND_NS, SECOND_NS),
    (60 * SECOND_NS, 10 * SECOND_NS),
    (600 * SECOND_NS, 60 * SECOND_NS),
    (3600 * SECOND_NS, 600 * SECOND_NS),
)
NOW_BACK_NS = 2 * SECOND_NS
# In which bucket of the curves now is, the last but one: the last tick may not be there yet.
NOW_NUMBER = BUCKETS - 2
ROWS_MAX = 60
# The state of who ended, and has not been waited for.
ZOMBIE = "Z"
EVENTS_MAX = 200


class ProcessShare(NamedTuple):
    """What a process used: ``cpu_percent`` of one CPU, bytes resident on average, bytes of the disk a second.

    ``state``: empty of one that has ended.
    """

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
    """What is looked at: which moment (UTC ns), how closely, and in which order processes come.

    ``number``: in which bucket of the curves the moment is.
    """

    at_ns: int
    zoom: int = 1
    order: str = "cpu"
    number: int = BUCKETS // 2

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
        """Where the curves begin."""
        return (self.at_ns // self.step_ns - self.number) * self.step_ns

    @property
    def end_ns(self) -> int:
        """Where they end, which may be in the future."""
        return self.start_ns + BUCKETS * self.step_ns

    @property
    def span(self) -> tuple[int, int]:
        """From when to when rows are asked for: whole buckets around the moment; of now, what is there already."""
        if self.number == NOW_NUMBER:
            end_ns = (self.at_ns // SECOND_NS + 1) * SECOND_NS
            return end_ns - self.span_ns, end_ns
        first_ns = (self.at_ns - self.span_ns // 2) // self.step_ns * self.step_ns
        return first_ns, first_ns + self.span_ns


def of_now(now_ns: int) -> View:
    """What is newest: the last ticks may not be there yet."""
    return View(now_ns - NOW_BACK_NS, 0, number=NOW_NUMBER)


def last_view(archive: Archive) -> View | None:
    """The last moment of a file, to which nothing more comes; None for an archive that may go on, or is empty."""
    if not archive.is_snapshot and not os.path.isfile(archive.place.state):
        return None
    last_ns = archive.last_ns()
    return None if last_ns is None else View(last_ns - NOW_BACK_NS)


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
    is_snapshot: bool = False


def look(
    archive: Archive,
    view: View,
    now_ns: int,
    window: CurveWindow | None = None,
    *,
    has_lists: bool = True,
    labels: Collection[str] | None = None,
) -> MomentScene:
    """Ask for all of a page; where nothing is recorded then, of the nearest moment where something is.

    ``window``: what is known of curves already. ``has_lists``: processes and waits are wanted, too. ``labels``: of the
    curves that are shown, where others may be late.

    :raises Error: where nothing is recorded at all.
    """
    window = window or CurveWindow(archive)
    curves = window.at(view.start_ns, view.step_ns, now_ns, labels)
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
            beside = look(archive, view._replace(at_ns=nearest_ns), now_ns, window, has_lists=has_lists)
            return beside._replace(asked_ns=view.at_ns)
    waits = _waits(archive, view) if has_lists else ()
    return MomentScene(
        view,
        now_ns,
        window.host_at(end_ns),
        curves,
        processes(archive, view) if has_lists else (),
        sorted(waits, key=lambda wait: (wait.state != "D", -wait.seen)),
        events,
        [
            gap
            for gap in window.gaps
            if gap.start_ns < min(end_ns, now_ns) and gap.end_ns > start_ns and gap.cause is not Cause.IN_THE_FUTURE
        ],
        list(dict.fromkeys(window.warnings)),
        is_snapshot=archive.is_snapshot,
    )


_COLUMNS = "pid,comm,username,cpu,rss,read_bytes,written_bytes,state,end"
_KEYS: dict[str, Callable[[ProcessShare], float | None]] = {
    "cpu": lambda share: share.cpu_percent,
    "memory": lambda share: share.resident_bytes,
    "disk": lambda share: share.disk_bytes_s,
}
_BY = {"cpu": ("cpu",), "memory": ("rss",), "disk": ("read_bytes", "written_bytes")}


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
    pids, comms, users, cpus, resident, reads, writes, states, ends = result.columns
    texts = [[text or "" for text in column.texts or ()] for column in (comms, users, states)]
    numbers = [_numbers(column) for column in (pids, cpus, resident, reads, writes, ends)]
    for (comm, user, state), (pid, cpu, rss, read, written, end) in zip(
        zip(*texts, strict=True), zip(*numbers, strict=True), strict=True
    ):
        moved = [value for value in (read, written) if value is not None]
        is_there = end is None or state == ZOMBIE
        yield ProcessShare(
            int(pid or 0), comm, user, cpu, rss, sum(moved) if moved else None, state if is_there else ""
        )


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
