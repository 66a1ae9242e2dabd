# SPDX-License-Identifier: Apache-2.0
"""The sampler: every tick, read the due probes of one lane and put their rows into the ring.

The same program serves both lanes. On the real-time lane it may not block, allocate much or import
anything but the standard library and the probes of the plan.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from errno import ENODEV, ENOENT, ENXIO, EOPNOTSUPP
from time import perf_counter_ns

from sysmond import clock, control, realtime
from sysmond.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.model import Cause, Lane, Sensitivity
from sysmond.own import SELF, Cost, own_row, part_rows
from sysmond.plan import Plan, PlannedProbe, import_plugin, offered_probes
from sysmond.probe import Host, Probe
from sysmond.ring import FRAME_BYTES, RING_BYTES_MIN, SUFFIX, Identity, Layout, RingWriter, encode_layout
from sysmond.schedule import base_interval_ns, is_due, next_slot_ns, slot_at
from sysmond.settings import Settings

STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT))

# How long a ring holds what is not sealed yet; the archiver seals far more often than that.
RING_HOLDS_S = 900
# Rings of earlier incarnations that wait to be sealed; beyond it the oldest is given up, and counted.
OLD_RINGS_MAX = 8
# A tmpfs that is full now may have room later.
RING_RETRY_S = 10
# The other parts of sysmond are looked at less often than the sampler looks at itself.
BACKGROUND_SELF_INTERVAL_NS = 10 * SECOND_NS


class Source:
    """A probe of the plan with its place in a ring and its running costs."""

    def __init__(self, planned: PlannedProbe, probe: Probe, interval_ns: int) -> None:
        """Start counting at nothing."""
        self.planned = planned
        self.probe = probe
        self.layout = Layout(probe.table, interval_ns)
        self.interval_ns = interval_ns
        self.has_texts = any(metric.is_text for metric in probe.table.metrics)
        self.index = -1
        self.cost = Cost()


def load(planned: PlannedProbe) -> Probe:
    """Import the plugin of a planned probe and find the probe in it.

    :raises Error: where it cannot be imported or offers no such table.
    """
    try:
        for probe in offered_probes(import_plugin(planned.plugin)):
            if probe.table.name == planned.table:
                return probe
    except Exception as problem:
        raise Error(f"{planned.plugin}: {type(problem).__name__}: {problem}") from problem
    raise Error(f"{planned.plugin}: offers no table {planned.table!r}")


def why(problem: Exception) -> tuple[Cause, str]:
    """Say what an exception of a probe means for the reader of its gap."""
    detail = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, PermissionError):
        return Cause.NO_PERMISSION, detail
    if isinstance(problem, OSError) and problem.errno in {ENOENT, EOPNOTSUPP, ENODEV, ENXIO}:
        return Cause.NO_SOURCE, detail
    return Cause.PROBE_FAILED, detail


class Sampler:
    """One lane at work: its sources, its rings, its clock."""

    def __init__(self, settings: Settings, plan: Plan, lane: Lane, say: Callable[[str], None]) -> None:
        """Load the probes of the lane and open its rings."""
        self.name = "sampler" if lane is Lane.REALTIME else "background"
        self._lane = lane
        self._say = say
        self._settings = settings
        self._folder = os.path.join(settings.folders.runtime, self.name)
        self._boot = clock.boot_id()
        self._started_ns = clock.boottime_ns()
        self._host = Host(settings.root)
        self._sources = self._load(plan)
        self._rings: dict[Sensitivity, RingWriter] = {}
        self._ring_bytes_max = plan.sampler.ring_bytes
        self._ring_retry_ns = 0
        self.own = Cost()
        self._before_ns = -1
        self.base_ns = base_interval_ns(source.interval_ns for source in self._sources)
        for sensitivity in Sensitivity:
            self._number([source for source in self._sources if source.planned.sensitivity is sensitivity])
        self._give_up_old_rings()

    def _load(self, plan: Plan) -> list[Source]:
        sources = []
        for planned in plan.probes:
            if planned.lane is not self._lane and planned.table != SELF.name:
                continue
            interval_ns = planned.interval_ns
            if planned.table == SELF.name and self._lane is Lane.BACKGROUND:
                interval_ns = max(interval_ns, BACKGROUND_SELF_INTERVAL_NS)
            try:
                probe = load(planned)
            except Error as problem:
                self._say(f"probe {planned.table} is left out: {problem}")
                continue
            sources.append(Source(planned, probe, interval_ns))
        self._host.costs = self._costs
        return sources

    @staticmethod
    def _number(sources: list[Source]) -> None:
        for index, source in enumerate(sources):
            source.index = index

    def run(self, ticks: int | None = None) -> int:
        """Tick until told to stop (SIGTERM, SIGINT, the end of the parent), or ``ticks`` times."""
        parent = os.getppid()
        done = 0
        first = True
        deadline_ns = next_slot_ns(clock.boottime_ns(), min(self.base_ns, SECOND_NS))
        with control.listen(self._folder) as orders:
            while ticks is None or done < ticks:
                wait_s = (deadline_ns - clock.boottime_ns()) / SECOND_NS
                if wait_s > 0 and signal.sigtimedwait(STOP_SIGNALS, wait_s):
                    # Asked to end before it ever ticked, a lane that counts its ticks does so once.
                    if self._settings.ticks is None or not first:
                        break
                    ticks, deadline_ns = 1, clock.boottime_ns()
                now_ns = clock.boottime_ns()
                if now_ns < deadline_ns:
                    continue
                slot = slot_at(now_ns, deadline_ns, self.base_ns)
                self.own.lateness_ns = slot.lateness_ns
                self.own.missed += slot.missed
                self.tick(slot.tick_ns)
                done += 1
                orders.serve(self._obey)
                if first:
                    realtime.freeze()
                    first = False
                if os.getppid() != parent:
                    break
                deadline_ns = next_slot_ns(slot.tick_ns, self.base_ns)
        self.close()
        return 0

    def tick(self, tick_ns: int) -> None:
        """Read every due probe once and write its rows, or why there are none."""
        self._host.new_tick()
        due = [s for s in self._sources if is_due(tick_ns, self._before_ns, s.interval_ns)]
        self._before_ns = tick_ns
        for sensitivity in Sensitivity:
            mine = [source for source in due if source.planned.sensitivity is sensitivity]
            if not mine:
                continue
            ring = self._rings.get(sensitivity) or self._open_ring(sensitivity, tick_ns)
            if ring is None:
                self.own.dropped += len(mine)
                continue
            ring.clock(clock.relation())
            for source in mine:
                self._sample(source, ring, tick_ns)
            ring.unmark()

    def _sample(self, source: Source, ring: RingWriter, tick_ns: int) -> None:
        begin_ns = perf_counter_ns()
        ring.mark(source.index)
        try:
            names: list[str] = []
            values: list[int] = []
            for name, row in source.probe.read(self._host):
                names.append(name)
                values += row if not source.has_texts else _with_texts(row, ring)  # type: ignore[arg-type]
            self.own.dropped += ring.rows(source.index, tick_ns, tuple(names), values)
        except Exception as problem:  # noqa: BLE001  a probe may raise anything; the others go on
            source.cost.failures += 1
            ring.absence(source.index, tick_ns, *why(problem))
        source.cost.duration_ns += perf_counter_ns() - begin_ns

    def _costs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Rows of the ``self`` table: this part, on the background lane the other parts, and every probe."""
        yield self.name, own_row(self.own)
        if self._lane is Lane.BACKGROUND:
            yield from part_rows(self._settings.folders.runtime)
        for source in self._sources:
            if source.probe.table.name != SELF.name:
                yield f"probe:{source.probe.table.name}", source.cost.row()

    def _open_ring(self, sensitivity: Sensitivity, tick_ns: int) -> RingWriter | None:
        """Allocate the ring of a class, smaller where memory is short; None, and a later try, where there is none."""
        if tick_ns < self._ring_retry_ns:
            return None
        layouts = [source.layout for source in self._sources if source.planned.sensitivity is sensitivity]
        folder = os.path.join(self._folder, sensitivity)
        path = os.path.join(folder, f"{self._started_ns}{SUFFIX}")
        identity = Identity(self._boot, self.name, sensitivity, os.getpid(), self._started_ns)
        # What explains the rows is repeated four times a ring and must leave room for rows.
        size_min = RING_BYTES_MIN + 8 * sum(len(encode_layout(layout)) for layout in layouts)
        size = max(size_min, min(self._ring_bytes_max, size_min + self._bytes_needed(sensitivity)))
        problem: OSError | None = None
        while size >= size_min:
            try:
                ring = self._rings[sensitivity] = RingWriter(path, size, identity, layouts)
            except OSError as refusal:
                problem = refusal
                size //= 2
            else:
                if problem is not None:
                    self._say(f"{folder}: only room for a ring of {size} bytes: {problem.strerror}")
                return ring
        self._ring_retry_ns = tick_ns + RING_RETRY_S * SECOND_NS
        if problem is not None:
            self._say(f"{folder}: no room for a ring: {problem.strerror}; ticks are dropped and counted")
        return None

    def _bytes_needed(self, sensitivity: Sensitivity) -> int:
        """How large a ring must be to hold ``RING_HOLDS_S``, judged by what the probes give right now."""
        size_bytes = 0
        for source in self._sources:
            if source.planned.sensitivity is not sensitivity:
                continue
            try:
                count = sum(len(row) for _, row in source.probe.read(self._host))
            except Exception:  # noqa: BLE001  its absences will need room instead, and the tick reports it
                count = 32
            size_bytes += RING_HOLDS_S * SECOND_NS // source.interval_ns * (FRAME_BYTES + 8 * count)
        return size_bytes + size_bytes // 4  # Instances come and go.

    def _give_up_old_rings(self) -> None:
        for sensitivity in Sensitivity:
            folder = os.path.join(self._folder, sensitivity)
            rings = sorted((name for name in os.listdir(folder) if name.endswith(SUFFIX)), key=_started)
            for name in rings[: max(0, len(rings) - OLD_RINGS_MAX)]:
                os.unlink(os.path.join(folder, name))
                self.own.dropped += 1

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
        self._host.close()


def _started(name: str) -> int:
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits.isdigit() else 0


def _with_texts(row: Iterable[int | str], ring: RingWriter) -> list[int]:
    return [ring.text(value) if isinstance(value, str) else value for value in row]


def run(settings: Settings, plan: Plan, lane: Lane, say: Callable[[str], None]) -> int:
    """Be the sampler of a lane until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    sampler = Sampler(settings, plan, lane, say)
    if lane is Lane.REALTIME and plan.sampler.priority:
        for refusal in realtime.enter(plan.sampler.priority):
            say(refusal)
    return sampler.run(settings.ticks if lane is Lane.REALTIME else None)
