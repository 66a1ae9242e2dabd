# SPDX-License-Identifier: Apache-2.0
"""What ran in the first minutes of a boot: its phases, units and processes, as ``sysmon bootchart`` draws them.

All times are seconds since the kernel began, which firmware and loader precede. It has no engine of its own: everything
is asked of ``sysmond.history``, as anybody can.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from sysmon_tools import boots
from sysmon_tools.boots import ListedBoot
from sysmon_tools.quantities import duration
from sysmon_tools.startups import PHASES, MeasuredBoot
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Sensitivity
from sysmond.base.result import Event, Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.store.timeline import Timeline

# How much of a boot is shown where nobody says it: so long after it was over, and at least a minute.
AFTER_S, LEAST_S, UNKNOWN_S = 15.0, 60.0, 120.0
# So many pieces a bar has; no piece is shorter.
PIECES_MAX, SHORTEST_S, RATE_S = 240, 0.001, 0.5
# What used less of both is counted; so many rows may be read, and in a whole list browsers still scroll.
SMALL_CPU_S, SMALL_BYTES = 0.01, 1 << 20
# Of what lived shorter, and begot nobody, all of a name and a parent are one row.
SHORT_S = 1.0
ROWS_MAX, ALL_MAX, UNITS_MAX = 300, 4000, 400
# So many bytes weigh as much as a second of a processor, where only the largest have room.
_BYTES_A_SECOND = 100e6
_USE = "cpu,read_bytes,written_bytes"
_STARTED, _STOPPED, _FAILED, _RESTARTED = "unit started", "unit stopped", "unit failed", "unit restarted"
_Key = tuple[int, int]


class PhaseSpan(NamedTuple):
    """A phase of a boot; before the kernel times are negative."""

    name: str
    begin_s: float
    end_s: float


class UseSpan(NamedTuple):
    """What a process used in a piece of its life: ``cpu`` in processors, ``moved`` in bytes of storage a second."""

    begin_s: float
    end_s: float
    cpu: float
    moved: float


class BootProcess(NamedTuple):
    """A process: from when to when it was there, and what it used; ``end_s`` None: it outlived what is shown.

    ``members``: of a row that stands for several, short ones of a name and a parent, all of them.
    """

    pid: int
    parent: int
    comm: str
    unit: str
    begin_s: float
    end_s: float | None
    cpu_s: float
    moved_bytes: float
    depth: int = 0
    uses: Sequence[UseSpan] = ()
    members: Sequence["BootProcess"] = ()

    @property
    def number(self) -> int:
        """For how many processes it stands."""
        return len(self.members) or 1

    @property
    def is_short(self) -> bool:
        """Whether it ended soon."""
        return self.end_s is not None and self.end_s - self.begin_s < SHORT_S

    @property
    def weight_s(self) -> float:
        """How much it used in all."""
        return self.cpu_s + self.moved_bytes / _BYTES_A_SECOND

    @property
    def is_small(self) -> bool:
        """Whether it used next to nothing."""
        return self.cpu_s < SMALL_CPU_S and self.moved_bytes < SMALL_BYTES


class BootUnit(NamedTuple):
    """A unit: when it began to start, was active, and ended or failed; None where that is not known, or did not happen.

    ``length_s``: how long it took to start. ``trouble``: why it failed. ``is_critical``: the boot waited for it.
    """

    name: str
    begin_s: float | None = None
    active_s: float | None = None
    end_s: float | None = None
    length_s: float | None = None
    trouble: str = ""
    is_critical: bool = False


class LeftOut(NamedTuple):
    """How many processes are only counted, and the most that one row of them used."""

    number: int = 0
    cpu_s: float = 0.0
    moved_bytes: float = 0.0


class BootScene(NamedTuple):
    """All that a chart shows, from ``start_s`` to ``end_s``. ``first_s``: when recording began.

    ``moved_max``: the most that a process moved in a second.
    """

    listed: ListedBoot
    host: str
    start_s: float
    end_s: float
    first_s: float
    phases: Sequence[PhaseSpan]
    units: Sequence[BootUnit]
    processes: Sequence[BootProcess]
    left_out: LeftOut
    moved_max: float
    warnings: Sequence[str] = ()


def look(archive: Archive, boot: str | int, length_s: float | None, *, has_all: bool, is_by_start: bool) -> BootScene:
    """Ask for all of a chart: of the first ``length_s`` of a boot, or as long as it took; only what everybody may read.

    ``has_all``: also what used next to nothing. ``is_by_start``: in order of their begin, not children below parents.

    :raises UsageError: for a boot that is not recorded. :raises Error: where there are no processes of that time.
    """
    archive = Archive(archive.place, classes=(Sensitivity.PUBLIC,))
    listed = boots.boots(archive)
    one = boots.find(listed, boot)
    wanted = one.boot.boot
    with closing(Timeline(archive.place, (Sensitivity.PUBLIC,))) as line:
        zero_ns = line.moment_ns(wanted, 0)
    phases = phases_of(one.startup)
    if length_s is None:
        length_s = max(LEAST_S, phases[-1].end_s + AFTER_S) if phases else UNKNOWN_S
    last_s = (one.boot.end_ns - zero_ns) / SECOND_NS
    first_s = (one.boot.start_ns - zero_ns) / SECOND_NS
    early = f"boot {one.number}: no processes are recorded for its first {duration(length_s)}"
    if first_s >= length_s:
        raise Error(f"{early}; recording began {duration(first_s)} after it did")
    end_s = min(length_s, last_s + 1)
    table = _ProcessTable(archive, wanted, zero_ns, end_s)
    everything = table.processes()
    if not everything:
        raise Error(early)
    shown, left_out = chosen(coalesced(everything), ALL_MAX if has_all else ROWS_MAX, has_small=has_all)
    ordered = sorted(shown, key=lambda one: (one.begin_s, one.pid)) if is_by_start else in_tree(shown)
    ordered = [process._replace(uses=table.uses(process)) for process in ordered]
    happened = archive.events(zero_ns, zero_ns + round(end_s * SECOND_NS), boot=wanted, kind="unit *")
    return BootScene(
        one,
        boots.texts(archive, [one.boot], "host/hostname")[0],
        min([0.0, *(phase.begin_s for phase in phases)]),
        end_s,
        table.first_s,
        phases,
        units_of(happened, one.startup, zero_ns, end_s)[:UNITS_MAX],
        ordered,
        left_out,
        most_moved(ordered),
        [*table.warnings, *archive.warnings],
    )


def phases_of(startup: MeasuredBoot | None) -> list[PhaseSpan]:
    """When each phase was; none where nobody recorded that."""
    lengths_s = dict(zip(PHASES, startup.phases_s, strict=True)) if startup else {}
    at_s = -lengths_s.get("firmware", 0.0) - lengths_s.get("loader", 0.0)
    spans = []
    for name, length_s in lengths_s.items():
        if length_s:
            spans.append(PhaseSpan(name, at_s, at_s + length_s))
        at_s += length_s
    return spans


def units_of(events: Iterable[Event], startup: MeasuredBoot | None, zero_ns: int, end_s: float) -> list[BootUnit]:
    """What became of each unit, those first that began first; last those of which only the length is known."""
    units: dict[str, BootUnit] = {}
    for event in events:
        then_ns = event.time_ns if event.happened_ns == ABSENT else event.happened_ns
        at_s = (then_ns - zero_ns) / SECOND_NS
        # Of many at once the detail has the names; a snapshot for strangers has none.
        for name in filter(None, [event.subject] if event.subject else event.detail.split(", ")):
            seen = units.get(name, BootUnit(name))
            if event.kind == _STARTED:
                active_s = at_s if seen.active_s is None else seen.active_s
                units[name] = seen._replace(active_s=active_s, end_s=None)
            elif event.kind in {_STOPPED, _FAILED, _RESTARTED}:
                trouble = "" if event.kind == _STOPPED else event.text or event.kind
                units[name] = seen._replace(end_s=at_s, trouble=trouble or seen.trouble)
    for said in _lengths(startup):
        seen = units.get(said.name, BootUnit(said.name))
        reached_s = said.active_s if seen.active_s is None else seen.active_s
        begin_s = said.begin_s
        if begin_s is None and reached_s is not None:
            begin_s = max(0.0, reached_s - (said.length_s or 0.0))
        units[said.name] = seen._replace(
            begin_s=begin_s, active_s=reached_s, length_s=said.length_s, is_critical=said.is_critical
        )
    return sorted((unit for unit in units.values() if _first_s(unit) <= end_s or _first_s(unit) == inf), key=_first_s)


def _lengths(startup: MeasuredBoot | None) -> list[BootUnit]:
    """What the record of a boot says of its slowest units, and of those of its critical chain."""
    if startup is None:
        return []
    begins_s = {**startup.begins_s, **{one.unit: one.begin_s for one in startup.chain}}
    lengths_s = {**startup.units_s, **{one.unit: one.length_s for one in startup.chain}}
    critical = {one.unit for one in startup.chain}
    units = []
    for name, length_s in lengths_s.items():
        begin_s = begins_s.get(name)
        active_s = None if begin_s is None else begin_s + length_s
        units.append(BootUnit(name, begin_s, active_s, length_s=length_s, is_critical=name in critical))
    return units


def _first_s(unit: BootUnit) -> float:
    return min((time_s for time_s in (unit.begin_s, unit.active_s, unit.end_s) if time_s is not None), default=inf)


def coalesced(everything: Sequence[BootProcess]) -> list[BootProcess]:
    """Put short ones of a name and a parent together: a script begins hundreds, of which each used next to nothing."""
    parents = _parents(everything)
    begetters = {_key(parent) for parent in parents.values()}
    rows: list[BootProcess] = []
    short: dict[tuple[_Key | None, str, str], list[BootProcess]] = defaultdict(list)
    for process in everything:
        parent = parents.get(_key(process))
        if process.is_short and _key(process) not in begetters:
            short[_key(parent) if parent else None, process.comm, process.unit].append(process)
        else:
            rows.append(process)
    for alike in short.values():
        members = sorted(alike, key=lambda one: (one.begin_s, one.pid))
        together = members[0]._replace(
            end_s=max(one.end_s or 0.0 for one in members),
            cpu_s=sum(one.cpu_s for one in members),
            moved_bytes=sum(one.moved_bytes for one in members),
            members=members,
        )
        rows.append(together if len(members) > 1 else members[0])
    return rows


def chosen(everything: Sequence[BootProcess], most: int, *, has_small: bool) -> tuple[list[BootProcess], LeftOut]:
    """Those that used most, with their ancestors, and the count of all others."""
    large = [process for process in everything if has_small or not process.is_small]
    large = sorted(large, key=lambda process: -process.weight_s)[:most]
    parents = _parents(everything)
    shown: set[_Key] = set()
    for process in large:
        at: BootProcess | None = process
        while at is not None and _key(at) not in shown:
            shown.add(_key(at))
            at = parents.get(_key(at))
    others = [process for process in everything if _key(process) not in shown]
    most_cpu_s = max((process.cpu_s for process in others), default=0.0)
    most_bytes = max((process.moved_bytes for process in others), default=0.0)
    return [one for one in everything if _key(one) in shown], LeftOut(
        sum(one.number for one in others), most_cpu_s, most_bytes
    )


def in_tree(processes: Sequence[BootProcess]) -> list[BootProcess]:
    """Children below their parents, those first that began first; with how deep each is."""
    parents = _parents(processes)
    children: dict[_Key | None, list[BootProcess]] = defaultdict(list)
    for process in sorted(processes, key=lambda one: (one.begin_s, one.pid)):
        parent = parents.get(_key(process))
        children[_key(parent) if parent else None].append(process)
    ordered: list[BootProcess] = []
    waiting = [(root, 0) for root in reversed(children[None])]
    while waiting:
        process, depth = waiting.pop()
        ordered.append(process._replace(depth=depth))
        waiting += [(child, depth + 1) for child in reversed(children[_key(process)])]
    return ordered


def most_moved(processes: Sequence[BootProcess]) -> float:
    """The most that one of them moved in a second, of pieces long enough to speak of a rate, where there are any."""
    spans = [use for process in processes for use in process.uses if use.moved]
    long = [use for use in spans if use.end_s - use.begin_s >= RATE_S]
    return max((use.moved for use in long or spans), default=0.0)


def _key(process: BootProcess) -> _Key:
    return process.pid, round(process.begin_s * SECOND_NS)


def _parents(processes: Sequence[BootProcess]) -> Mapping[_Key, BootProcess]:
    """The parent of each that has one: the last of that number that began before it, so that nobody is their own."""
    by_pid: dict[int, list[BootProcess]] = defaultdict(list)
    for process in processes:
        by_pid[process.pid].append(process)
    parents: dict[_Key, BootProcess] = {}
    for process in processes:
        before = [one for one in by_pid[process.parent] if (one.begin_s, one.pid) < (process.begin_s, process.pid)]
        if before:
            parents[_key(process)] = max(before, key=lambda one: one.begin_s)
    return parents


class _ProcessTable:
    """The processes of a span of a boot, and what each used between two readings."""

    def __init__(self, archive: Archive, boot: str, zero_ns: int, end_s: float) -> None:
        self._archive, self._boot, self._zero_ns, self._end_s = archive, boot, zero_ns, end_s
        self.first_s = 0.0
        self.warnings: list[str] = []
        # Of those that ended, and of those that were read: what each had used by when.
        self._totals: dict[_Key, tuple[float, float]] = {}
        self._readings: dict[_Key, list[tuple[float, float, float]]] = defaultdict(list)
        self._edges_s: list[float] = []

    def processes(self) -> list[BootProcess]:
        """Ask; none where nothing is recorded."""
        self._read()
        whole = self._ask("process", f"pid,ppid,comm,unit,start,end,{_USE.replace(',', ':sum,')}:sum")
        if whole is None:
            return []
        pids, parents = (whole.column(name).values.tolist() for name in ("pid", "ppid"))
        comms, units = (whole.column(name).texts or () for name in ("comm", "unit"))
        ends, sums, keys = self._times(whole, "end"), _use(whole, ":sum"), self._keys(whole)
        return [
            BootProcess(
                key[0],
                int(parents[at]) if isfinite(parents[at]) else 0,
                comms[at] or "",
                units[at] or "",
                key[1] / SECOND_NS,
                ends[at],
                *self._total(key, sums[at]),
            )
            for at, key in enumerate(keys)
            if isfinite(pids[at])
        ]

    def uses(self, process: BootProcess) -> list[UseSpan]:
        """What a process used, within its life: of each piece between two edges that it used anything in."""
        if process.members:
            return [use for member in process.members for use in self.uses(member)]
        key, at_s = _key(process), process.begin_s
        end_s = self._end_s if process.end_s is None else min(process.end_s, self._end_s)
        rows = [row for row in self._readings.get(key, ()) if row[0] < end_s or process.end_s is None]
        rows += [(end_s, *self._totals[key])] if key in self._totals else []
        spans: list[UseSpan] = []
        cpu_s = moved = 0.0
        for number, (then_s, cpu_then_s, moved_then) in enumerate(rows):
            place = bisect_left(self._edges_s, then_s)
            if number + 1 < len(rows) and bisect_left(self._edges_s, rows[number + 1][0]) == place:
                continue  # What follows in the same piece has it all.
            edge_s = self._edges_s[place] if place < len(self._edges_s) else end_s
            # The first reading has all since the begin.
            since_s = max(at_s, self._edges_s[place - 1]) if place and spans else at_s
            until_s = min(edge_s, end_s)
            length_s = max(until_s - since_s, SHORTEST_S)
            grown = max(0.0, cpu_then_s - cpu_s), max(0.0, moved_then - moved)
            if any(grown):
                spans.append(UseSpan(since_s, since_s + length_s, grown[0] / length_s, grown[1] / length_s))
            cpu_s, moved, at_s = cpu_then_s, moved_then, until_s
        return spans

    def _read(self) -> None:
        """What is stored: each reading of what changed, and the ends."""
        exits = self._ask("exits", f"pid,start,{_USE}", raw=True)
        if exits is not None:
            self._totals = dict(zip(self._keys(exits), _use(exits), strict=True))
        stored = self._ask("process", f"pid,start,{_USE}", raw=True)
        if stored is None:
            return
        times_s = [self._since_s(time_ns) for time_ns in stored.times_ns.tolist()]
        for key, time_s, use in sorted(zip(self._keys(stored), times_s, _use(stored), strict=True)):
            self._readings[key].append((time_s, *use))
        readings_s = sorted(set(times_s))
        self.first_s = readings_s[0]
        step = -(-len(readings_s) // PIECES_MAX)
        self._edges_s = [self.first_s, *readings_s[step::step]]

    def _total(self, key: _Key, summed: tuple[float, float]) -> tuple[float, float]:
        """What it used in all, as its end has it, or the last reading; where neither is stored, what answers add up."""
        if key in self._totals:
            return self._totals[key]
        return self._readings[key][-1][1:] if key in self._readings else summed

    def _ask(self, table: str, columns: str, *, raw: bool = False) -> Result | None:
        """Ask for the span; None where nothing is recorded."""
        end_ns = self._zero_ns + round(self._end_s * SECOND_NS)
        try:
            result = self._archive.records(
                table, start=self._zero_ns, end=end_ns, boot=self._boot, columns=columns, raw=raw
            )
        except Error:
            return None
        self.warnings += result.warnings
        return result if len(result.times_ns) else None

    def _since_s(self, time_ns: int) -> float:
        return (time_ns - self._zero_ns) / SECOND_NS

    def _keys(self, result: Result) -> list[_Key]:
        pids = np.nan_to_num(result.column("pid").values).tolist()
        starts = (max(0.0, start_s or 0.0) for start_s in self._times(result, "start"))
        return [(int(pid), round(start_s * SECOND_NS)) for pid, start_s in zip(pids, starts, strict=True)]

    def _times(self, result: Result, name: str) -> list[float | None]:
        times_ns = result.column(name).integers
        assert times_ns is not None  # noqa: S101  points in time are integers
        return [None if time_ns == ABSENT else self._since_s(time_ns) for time_ns in times_ns.tolist()]


def _use(result: Result, statistic: str = "") -> list[tuple[float, float]]:
    """Of each row the processor time, and the bytes from and to storage; what is unknown is nothing."""
    cpu, read, written = (np.nan_to_num(result.column(f"{name}{statistic}").values) for name in _USE.split(","))
    return list(zip(cpu.tolist(), (read + written).tolist(), strict=True))
