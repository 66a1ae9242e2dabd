# SPDX-License-Identifier: Apache-2.0
"""The sampler: every tick, read the due probes of one lane and put their rows into the ring.

The same program serves both lanes. On the real-time lane it may not block, allocate much or import
anything but the standard library and the probes of the plan. On the background lane each reading is a
thread's: what hangs costs itself and, once, the others' wait for it.
"""

import os
import select
import signal
from collections.abc import Callable, Iterator
from errno import ENODEV, ENOENT, ENXIO, EOPNOTSUPP
from itertools import islice
from time import monotonic_ns, perf_counter_ns
from typing import NamedTuple

from sysmond import clock, control, own, realtime
from sysmond.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.folders import Folders
from sysmond.frame import (
    FRAME_BYTES,
    HEADER_BYTES,
    RING_BYTES_MIN,
    SUFFIX,
    Identity,
    Layout,
    encode_layout,
    read_header,
)
from sysmond.model import Cause, Lane, Sensitivity
from sysmond.own import SELF, Cost, own_row, part_rows
from sysmond.plan import Plan, PlannedProbe, import_plugin, offered_probes
from sysmond.probe import Host, Probe
from sysmond.progress import WRITERS, Progress, Sealed, ring_files
from sysmond.ring import RingWriter
from sysmond.schedule import next_slot_ns, slot_at
from sysmond.settings import Settings
from sysmond.snapshot import fill

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# How long a ring holds what is not sealed yet; the archiver seals far more often than that.
RING_HOLDS_S = 1200
# Rings of earlier incarnations that wait to be sealed; beyond it the oldest is given up, and counted.
OLD_RINGS_MAX = 8
# A tmpfs that is full now may have room later.
RING_RETRY_S = 10
# More rows than this are a mistake of the probe, not a machine.
INSTANCES_MAX = 65536
# For what a table that could not be read at first may need in the ring later.
VALUES_UNKNOWN = 32
# The other parts of sysmond are looked at less often than the sampler looks at itself.
BACKGROUND_SELF_INTERVAL_NS = 30 * SECOND_NS
# A probe of the background lane that has not answered by then is left to its thread; the others go on.
ANSWER_S = 4.0
# The wait is by the clock that stops in suspend; after a long night a slot is not missed by more than this.
WAIT_MAX_S = 60.0


Reading = tuple[tuple[str, ...], list[int | str]]
"""What a probe read: its instances, and the metrics of each in turn."""


class Absence(NamedTuple):
    """Why there is no reading."""

    cause: Cause
    detail: str


class Source:
    """A probe of the plan with its place in a ring, its next tick and its running costs."""

    def __init__(self, planned: PlannedProbe, probe: Probe, interval_ns: int, host: Host) -> None:
        """Start counting at nothing."""
        self.planned = planned
        self.probe = probe
        self.host = host
        self.layout = Layout(probe.table, interval_ns)
        self.interval_ns = interval_ns
        self.due_ns = 0
        self.has_texts = any(metric.is_text for metric in probe.table.metrics)
        self.index = -1
        self.cost = Cost()
        self.written: Reading | Absence | None = None
        self._names: tuple[str, ...] = ()
        self._reading: Reading | None = None
        self._files: list[tuple[str, bytes]] = []

    def read(self) -> Reading | Absence:
        """Read the probe; whatever it does wrong becomes an absence."""
        try:
            if self._reading is not None and self.host.is_unchanged(self._files):
                return self._reading
            self.host.note()
            names: list[str] = []
            values: list[int | str] = []
            for name, row in islice(self.probe.read(self.host), INSTANCES_MAX + 1):
                names.append(name)
                values += row
            found = tuple(names)
            if found != self._names:
                _check_names(found)
                self._names = found
        except (Exception, SystemExit) as problem:  # noqa: BLE001  a probe may raise anything; the others go on
            self._reading = None
            return self.failed(problem)
        reading = self._names, values
        if self.probe.pure:
            self._reading, self._files = reading, self.host.note()
        return reading

    def failed(self, problem: BaseException) -> Absence:
        """Count a failure and say what it means."""
        self.cost.failures += 1
        problem.__traceback__ = problem.__context__ = None  # One that is raised again and again would grow.
        return why(problem)


class Worker:
    """Reads a source that may hang in a thread of its own, one at a time."""

    def __init__(self, source: Source) -> None:
        """Nothing is being read yet."""
        from threading import Thread  # noqa: PLC0415  the real-time lane does without

        self._thread_class = Thread
        self._thread: Thread | None = None
        self._source = source

    def read(self) -> Reading | Absence:
        """Give the reading, or an absence where it takes too long; then nothing more is asked before it is done."""
        if self._thread is not None and self._thread.is_alive():
            return self._hangs()
        answers: list[Reading | Absence] = []  # Its own: a late answer is nobody's.
        self._thread = self._thread_class(target=lambda: answers.append(self._source.read()), daemon=True)
        self._thread.start()
        self._thread.join(ANSWER_S)
        return answers[0] if answers else self._hangs()

    def _hangs(self) -> Absence:
        self._source.cost.failures += 1
        return Absence(Cause.PROBE_FAILED, f"no answer within {ANSWER_S:.0f} s")


def _check_names(names: tuple[str, ...]) -> None:
    """:raises ValueError: where rows cannot be told apart by these names."""
    if len(names) > INSTANCES_MAX:
        raise ValueError(f"more than {INSTANCES_MAX} rows")
    for name in names:
        if type(name) is not str or "\0" in name:
            raise ValueError(f"instance {name!r}; a text is right")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"instance {twice!r} comes twice")


def load(planned: PlannedProbe) -> Probe:
    """Import the plugin of a planned probe and find the probe in it.

    :raises Error: where it cannot be imported or offers no such table.
    """
    try:
        for probe in offered_probes(import_plugin(planned.plugin)):
            if probe.table.name == planned.table:
                return probe
    except (Exception, SystemExit) as problem:
        raise Error(f"{planned.plugin}: {_spelled(problem)}") from problem
    raise Error(f"{planned.plugin}: offers no table {planned.table!r}")


def why(problem: BaseException) -> Absence:
    """Say what an exception of a probe means for the reader of its gap."""
    detail = _spelled(problem)
    if isinstance(problem, PermissionError):
        return Absence(Cause.NO_PERMISSION, detail)
    if isinstance(problem, OSError) and problem.errno in {ENOENT, EOPNOTSUPP, ENODEV, ENXIO}:
        return Absence(Cause.NO_SOURCE, detail)
    return Absence(Cause.PROBE_FAILED, detail)


def _spelled(problem: BaseException) -> str:
    try:
        return f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001  its own __str__ may be at fault, too
        return type(problem).__name__


class Sampler:
    """One lane at work: its sources, its rings, its clock."""

    def __init__(self, settings: Settings, plan: Plan, lane: Lane, say: Callable[[str], None]) -> None:
        """Load the probes of the lane and tidy up after earlier incarnations."""
        self.name = WRITERS[lane]
        self._lane = lane
        self._say = say
        self._settings = settings
        self._folder = os.path.join(settings.folders.runtime, self.name)
        self._boot = clock.boot_id()
        self._started_ns = clock.boottime_ns()
        self._asleep_ns = self._started_ns - monotonic_ns()
        self._memory = own.open_memory()
        self._host = self._new_host()
        self._hosts = [self._host]
        self._sources = self._load(plan)
        self._workers = {source: Worker(source) for source in self._sources} if lane is Lane.BACKGROUND else {}
        self._groups = [
            (sensitivity, group)
            for sensitivity in Sensitivity
            if (group := [source for source in self._sources if source.planned.sensitivity is sensitivity])
        ]
        for _, group in self._groups:
            for index, source in enumerate(group):
                source.index = index
        self._rings: dict[Sensitivity, RingWriter] = {}
        self._ring_retry_ns: dict[Sensitivity, int] = {}
        self._ring_bytes_max = plan.sampler.ring_bytes
        self._intervals_ns = {source.interval_ns for source in self._sources} or {SECOND_NS}
        self.own = Cost()
        self._is_asked = False
        remove_sealed(settings.folders, self.name)
        self._give_up_old_rings()

    def _new_host(self) -> Host:
        host = Host(self._settings.root)
        host.costs = self._costs
        return host

    def _load(self, plan: Plan) -> list[Source]:
        sources = []
        for planned in plan.probes:
            if not planned.enabled or (planned.lane is not self._lane and planned.table != SELF.name):
                continue
            interval_ns = planned.interval_ns
            if planned.table == SELF.name and self._lane is Lane.BACKGROUND:
                interval_ns = max(interval_ns, BACKGROUND_SELF_INTERVAL_NS)
            try:
                probe = load(planned)
            except Error as problem:
                self._say(f"probe {planned.table} is left out: {problem}")
                continue
            host = self._host
            if self._lane is Lane.BACKGROUND:  # A thread that hangs has its files to itself.
                host = self._new_host()
                self._hosts.append(host)
            sources.append(Source(planned, probe, interval_ns, host))
        return sources

    def run(self, ticks: int | None = None) -> int:
        """Tick until told to stop (SIGTERM, SIGINT, the end of the parent), or ``ticks`` times."""
        ends = [control.wake_on(STOP_SIGNALS)]
        if self._settings.lifeline is not None:
            ends.append(self._settings.lifeline)
        done = 0
        deadline_ns = next_slot_ns(clock.boottime_ns(), {*self._intervals_ns, SECOND_NS})
        with control.listen(self._folder) as orders:
            while ticks is None or done < ticks:
                if self._is_told_to_end(deadline_ns, ends, orders):
                    # Asked to end before it ever ticked, a lane that counts its ticks does so once.
                    if done or self._settings.ticks is None:
                        break
                    ticks, ends = 1, []
                now_ns = clock.boottime_ns()
                if now_ns < deadline_ns:
                    continue
                slot = slot_at(now_ns, deadline_ns, self._intervals_ns)
                self._note(slot.lateness_ns, slot.missed, now_ns)
                self.tick(slot.tick_ns)
                done += 1
                if self._is_asked:
                    orders.serve(self._obey)
                if done == 1 and self._lane is Lane.REALTIME:
                    realtime.freeze()
                deadline_ns = next_slot_ns(slot.tick_ns, self._intervals_ns)
        self.close()
        return 0

    def _is_told_to_end(self, deadline_ns: int, ends: list[int], orders: control.Listener) -> bool:
        """Wait for the deadline. Only the background lane answers orders meanwhile: it has time, and waits long."""
        self._is_asked = False
        asking = orders.descriptors()
        while True:
            wait_s = min(WAIT_MAX_S, max(0.0, (deadline_ns - clock.boottime_ns()) / SECOND_NS))
            ready, _, _ = select.select(ends + asking, [], [], wait_s)
            if not ready or not set(ready).isdisjoint(ends):
                return bool(ready)
            if self._lane is Lane.BACKGROUND:
                orders.serve(self._obey)
                return False
            self._is_asked, asking = True, []  # To be answered after the tick.

    def _note(self, lateness_ns: int, missed: int, now_ns: int) -> None:
        self.own.lateness_ns = lateness_ns
        if not missed:
            return
        asleep_ns = now_ns - monotonic_ns()
        if asleep_ns - self._asleep_ns < SECOND_NS // 2:  # What a suspended machine slept through was not missed.
            self.own.missed += missed
        self._asleep_ns = asleep_ns

    def tick(self, tick_ns: int) -> None:
        """Read every due probe once and write its rows, or why there are none."""
        for host in self._hosts:
            host.new_tick()
        for sensitivity, group in self._groups:
            due = [source for source in group if tick_ns >= source.due_ns]
            if not due:
                continue
            for source in due:
                source.due_ns = tick_ns - tick_ns % source.interval_ns + source.interval_ns
            ring = self._rings.get(sensitivity)
            if ring is None:
                self._first_tick(sensitivity, due, tick_ns)
                continue
            ring.hold()
            ring.clock(clock.relation())
            begin_ns = perf_counter_ns()
            for source in due:
                ring.mark(source.index)
                self._write(ring, source, tick_ns, self._read(source))
                end_ns = perf_counter_ns()
                source.cost.duration_ns += end_ns - begin_ns
                begin_ns = end_ns
            ring.commit()
            ring.unmark()

    def _first_tick(self, sensitivity: Sensitivity, due: list[Source], tick_ns: int) -> None:
        """Open the ring of a class, as large as what is read now asks for."""
        if tick_ns >= self._ring_retry_ns.get(sensitivity, 0):
            readings = [self._read(source) for source in due]
            ring = self._open_ring(sensitivity, dict(zip(due, readings, strict=True)))
            if ring is not None:
                ring.clock(clock.relation())
                for source, reading in zip(due, readings, strict=True):
                    self._write(ring, source, tick_ns, reading)
                return
            self._ring_retry_ns[sensitivity] = tick_ns + RING_RETRY_S * SECOND_NS
        self.own.dropped += len(due)

    def _read(self, source: Source) -> Reading | Absence:
        return self._workers[source].read() if self._workers else source.read()

    def _write(self, ring: RingWriter, source: Source, tick_ns: int, reading: Reading | Absence) -> None:
        if reading is source.written:
            ring.repeat(source.index, tick_ns)
            return
        if not isinstance(reading, Absence):
            try:
                names, values = reading
                if source.has_texts:
                    values = [ring.text(value) if isinstance(value, str) else value for value in values]
                # What is no integer is found where it is packed.
                lost = ring.rows(source.index, tick_ns, names, values)  # type: ignore[arg-type]
            except Exception as problem:  # noqa: BLE001  too few values, or what is no integer
                reading = source.failed(problem)
            else:
                self.own.dropped += lost
                source.written = None if source.has_texts or lost else reading
                return
        source.written = None
        ring.absence(source.index, tick_ns, *reading)

    def _costs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Rows of the ``self`` table: this part, on the background lane the other parts, and every probe."""
        yield self.name, own_row(self.own, self._memory)
        if self._lane is Lane.BACKGROUND:
            yield from part_rows(self._settings.folders.runtime)
        for source in self._sources:
            if source.probe.table.name != SELF.name:
                yield f"probe:{source.probe.table.name}", source.cost.row()

    def _open_ring(self, sensitivity: Sensitivity, readings: dict[Source, Reading | Absence]) -> RingWriter | None:
        """Allocate the ring of a class, smaller where memory is short; None where there is none."""
        sources = [source for source in self._sources if source.planned.sensitivity is sensitivity]
        layouts = [source.layout for source in sources]
        folder = os.path.join(self._folder, sensitivity)
        path = os.path.join(folder, f"{self._started_ns}{SUFFIX}")
        identity = Identity(self._boot, self.name, sensitivity, os.getpid(), self._started_ns)
        # What explains the rows is repeated four times a ring and must leave room for rows.
        size_min = RING_BYTES_MIN + 8 * sum(len(encode_layout(layout)) for layout in layouts)
        needed = sum(_bytes_needed(source, readings.get(source)) for source in sources)
        size = max(size_min, min(self._ring_bytes_max, size_min + needed))
        problem: OSError | None = None
        while True:
            try:
                ring = self._rings[sensitivity] = RingWriter(path, size, identity, layouts)
            except OSError as refusal:
                problem = refusal
                if size == size_min:
                    break
                size = max(size_min, size // 2)
            else:
                if problem is not None:
                    self._say(f"{folder}: only room for a ring of {size} bytes: {problem.strerror}")
                elif sensitivity in self._ring_retry_ns:
                    self._say(f"{folder}: there is room for a ring again")
                return ring
        if sensitivity not in self._ring_retry_ns:
            self._say(f"{folder}: no room for a ring: {problem.strerror}; ticks are dropped and counted until there is")
        return None

    def _give_up_old_rings(self) -> None:
        for sensitivity in Sensitivity:
            folder = os.path.join(self._folder, sensitivity)
            names = os.listdir(folder)
            rings = sorted((name for name in names if name.endswith(SUFFIX)), key=_started)
            unfinished = [name for name in names if name.endswith(f"{SUFFIX}.new")]
            for name in [*rings[: max(0, len(rings) - OLD_RINGS_MAX)], *unfinished]:
                os.unlink(os.path.join(folder, name))
                self.own.dropped += name not in unfinished

    def _obey(self, order: dict[str, object]) -> dict[str, object]:
        """Carry out an order from the control socket: forget a ring that has been sealed."""
        if order.get("do") != "forget":
            return {"error": f"{order.get('do')!r} is not an order; 'forget' is"}
        name = os.path.basename(str(order.get("ring")))
        sensitivity = str(order.get("sensitivity"))
        if not name.endswith(SUFFIX) or sensitivity not in set(Sensitivity):
            return {"error": f"{name!r} of class {sensitivity!r} is not a ring"}
        path = os.path.join(self._folder, sensitivity, name)
        if path in {ring.path for ring in self._rings.values()}:
            return {"error": f"{name}: is being written"}
        try:
            os.unlink(path)
        except FileNotFoundError:
            return {"ok": "already gone"}
        return {"ok": "gone"}

    def close(self) -> None:
        """Leave the rings in good order for the archiver."""
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        if not self._workers:  # A thread that hangs may still hold what it reads.
            self._host.close()
        os.close(self._memory)


def _bytes_needed(source: Source, reading: Reading | Absence | None) -> int:
    """How large a ring must be to hold ``RING_HOLDS_S`` of a source, judged by what it gave now."""
    values = VALUES_UNKNOWN if reading is None or isinstance(reading, Absence) else len(reading[1])
    size_bytes = RING_HOLDS_S * SECOND_NS // source.interval_ns * (FRAME_BYTES + 8 * values)
    return size_bytes + size_bytes // 4  # Instances come and go.


def _started(name: str) -> int:
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits.isdigit() else 0


def is_over(path: str, sealed: Sealed) -> bool:
    """Whether a ring is in segments as a whole, and nobody writes it any more."""
    try:
        with open(path, "rb", buffering=0) as file:
            identity, _ = read_header(file.read(HEADER_BYTES), path)
        return fill(path)[0] == sealed.offset and (bool(sealed.closed) or not _is_alive(identity.pid))
    except (OSError, Error):
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove_sealed(folders: Folders, writer: str) -> None:
    """Give back the memory of a writer's rings that are over; only the writer or its parent may."""
    progress = Progress.read(folders)
    for path in ring_files(folders):
        sealed = progress.sealed.get(path)
        if sealed is not None and path.startswith(f"{folders.runtime}/{writer}/") and is_over(path, sealed):
            os.unlink(path)


def run(settings: Settings, plan: Plan, lane: Lane, say: Callable[[str], None]) -> int:
    """Be the sampler of a lane until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    sampler = Sampler(settings, plan, lane, say)
    if lane is Lane.REALTIME and plan.sampler.priority:
        for refusal in realtime.enter(plan.sampler.priority):
            say(refusal)
    return sampler.run(settings.ticks if lane is Lane.REALTIME else None)
