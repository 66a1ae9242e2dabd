# SPDX-License-Identifier: Apache-2.0
"""The sampler: every tick, read the due sources of one lane and put their rows into the ring.

The same program serves both lanes. On the real-time lane it may not block, allocate much or import
anything but the standard library and the probes of the plan. On the background lane one thread reads source after
source, and what hung once has a process of its own: it costs itself and, once, the others' wait for it.
"""

import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from time import monotonic, monotonic_ns, perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING

from sysmond.base import clock, event_kinds
from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import BACK_MAX_S
from sysmond.base.model import ABSENT, Absence, Lane, Sensitivity
from sysmond.errors import EXIT_AGAIN, Error, UsageError
from sysmond.machine import control, heap, realtime
from sysmond.machine.notify import ALIVE, READY, STOPPING, notify, watchdog_s
from sysmond.plan import plan as plans
from sysmond.plan.plan import Plan, PlannedProbe
from sysmond.plan.settings import Settings, plan_file
from sysmond.probe import HostEvent, Wakes
from sysmond.ring.frame import EVENT_BYTES_MAX
from sysmond.ring.leftovers import culprits, remove_sealed
from sysmond.ring.progress import WRITERS
from sysmond.ring.writer import RingWriter
from sysmond.sampler import bursts, self_cost
from sysmond.sampler.grid import next_slot_ns, slot_at
from sysmond.sampler.quarantine import OVERRUNS_MAX, Conduct, Record, duration
from sysmond.sampler.rings import Rings
from sysmond.sampler.self_cost import SELF, Cost, own_row, part_rows, process_row
from sysmond.sampler.source import Pieces, Reading, Source, size_of
from sysmond.sampler.sources import ALL, HOLD_MAX_S, HOLD_MIN_NS, Roster, TableHold
from sysmond.sampler.time_limit import OverrunError, TimeLimit

if TYPE_CHECKING:
    from sysmond.sampler.device_events import DeviceEvents
    from sysmond.sampler.device_groups import DeviceChange
    from sysmond.sampler.last_rows import LastRows

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# The wait is by the clock that stops in suspend; after a long night a slot is not missed by more than this.
WAIT_MAX_S = 60.0
# The real-time lane answers orders before its tick only where so much time is left, and once between two ticks.
ORDERS_ROOM_S = 0.1
# In so many ticks each ring is looked after once, whether its file is still there.
LOOK_TICKS = 2
# Events wait for the ring of their class.
WAITING_EVENTS_MAX = 256


class Sampler:
    """One lane at work: its sources, its rings, its clock."""

    def __init__(self, settings: Settings, plan: Plan, lane: Lane, say: Callable[[str], None]) -> None:
        """Load the probes of the lane, judge what earlier incarnations died of, and tidy up after them."""
        self.name = WRITERS[lane]
        self._lane = lane
        self._say = say
        self._settings = settings
        self._plan = plan
        self._folder = f"{settings.folders.runtime}/{self.name}"
        self._boot = clock.boot_id()
        self._now_ns = started_ns = clock.boottime_ns()
        self._asleep_ns = started_ns - monotonic_ns()
        self._memory = self_cost.open_memory()
        self.own = Cost()
        self._events: list[tuple[Sensitivity, int, HostEvent]] = []
        self._has_ticked = False
        self._is_asked = self._has_served = self._is_new = self._is_hurried = self._is_signalled = False
        self._deadline_ns = 0
        self._beat_s = min(WAIT_MAX_S, watchdog_s() / 2)
        self._conduct = Conduct(self._folder, self._boot)
        self._bursts = bursts.Bursts(self._folder, self._boot)
        self._asked_burst_ns = 0
        self._limit = TimeLimit()
        self._devices: DeviceEvents | None = None
        if lane is Lane.BACKGROUND:
            from sysmond.sampler import device_events  # noqa: PLC0415  the real-time lane does without

            self._devices = device_events.DeviceEvents(say)
        self._judge_earlier(started_ns)
        stay = lane is Lane.REALTIME and plan.sampler.priority > 0
        self._rings = Rings(self._folder, self._boot, self.name, started_ns, say, stay=stay)
        self._roster = Roster(lane, settings.root, self._conduct, self, self._costs, say, settings.folders.runtime)
        self._roster.follow(plan, self._moved(), started_ns)
        self._earlier = self._read_earlier() if lane is Lane.BACKGROUND else {}
        remove_sealed(settings.folders, self.name)
        self.own.dropped += self._rings.give_up_old()

    def run(self, ticks: int | None = None) -> int:
        """Tick until told to stop (SIGTERM, SIGINT, the end of the parent), or ``ticks`` times; give the exit code.

        That says where the rings were removed: what they held lies there again, and this part is to be started again.
        """
        stop = control.wake_on(STOP_SIGNALS)
        ends = [stop] if self._settings.lifeline is None else [stop, self._settings.lifeline]
        done = 0
        self._deadline_ns = next_slot_ns(clock.boottime_ns(), {*self._roster.intervals_ns, SECOND_NS})
        with control.listen(self._folder) as orders:
            while (ticks is None or done < ticks) and not self._rings.are_gone(done % LOOK_TICKS, LOOK_TICKS):
                if self._has_to_end(ends, orders):
                    # Asked to end before it ever ticked, a lane that counts its ticks does so once.
                    if done or self._settings.ticks is None:
                        break
                    ticks, ends = 1, []
                now_ns = clock.boottime_ns()
                if now_ns < self._deadline_ns:
                    continue
                slot = slot_at(now_ns, self._deadline_ns, self._roster.intervals_ns)
                self._note_lateness(slot.lateness_ns, slot.missed, now_ns)
                self._has_served = self._is_hurried = False
                with self._limit if self._lane is Lane.REALTIME else nullcontext():
                    self.tick(slot.tick_ns)
                done += 1
                self._deadline_ns = next_slot_ns(slot.tick_ns, self._intervals_ns())
                if self._is_asked:
                    orders.serve(self._obey)
                if done == 1:
                    notify(READY)
                    if self._lane is Lane.REALTIME:
                        realtime.freeze()
                    else:
                        heap.settle()
        notify(STOPPING)
        are_gone = self._rings.are_gone()
        # Whose parent was killed was not told to end: what follows is nobody's good order.
        is_orphaned = not self._is_signalled and control.is_orphaned(stop, self._settings.lifeline)
        self.close(is_over=not are_gone and not is_orphaned)
        return EXIT_AGAIN if are_gone else 0

    def _has_to_end(self, ends: list[int], orders: control.Listener) -> bool:
        """Wait for the deadline, and answer orders meanwhile where there is time for that."""
        self._is_asked = False
        asking = orders.descriptors()
        while True:
            if self._beat_s:
                notify(ALIVE)
            left_s = max(0.0, (self._deadline_ns - clock.boottime_ns()) / SECOND_NS)
            devices = self._devices.descriptors() if self._devices else []
            speaking = self._roster.descriptors() + devices
            waking = {} if self._is_hurried else self._roster.wakes()
            wait_s = min(self._beat_s or WAIT_MAX_S, left_s)
            wait_s = self._devices.wait_s(wait_s) if self._devices else wait_s
            ready, _, _ = select.select(ends + asking + speaking + list(waking), [], [], wait_s)
            if not set(ready).isdisjoint(ends):
                self._is_signalled = not control.received(ends[0]).isdisjoint(STOP_SIGNALS)
                if self._is_signalled or not set(ready).isdisjoint(ends[1:]):
                    return True
                continue  # It was a signal that interrupted a reading.
            if self._has_heard(waking, ready):
                continue
            if self._devices and self._has_changed(self._devices, is_ready=not set(ready).isdisjoint(devices)):
                continue
            if not ready:
                return False
            self._roster.hear()
            if set(ready).isdisjoint(asking):
                continue
            if self._lane is Lane.BACKGROUND or (left_s >= ORDERS_ROOM_S and not self._has_served):
                orders.serve(self._obey)  # Who has just called has perhaps not spoken yet.
                return False
            self._is_asked, asking = True, []  # After the tick.

    def _has_heard(self, waking: dict[int, tuple[Wakes, Source]], ready: list[int]) -> bool:
        """Have sources read at the next second that something wakes; whether there are any."""
        for descriptor in waking.keys() & ready:
            wakes, source = waking[descriptor]
            wakes.poll(0)
            source.due_ns = 0
            self._hurry()
        return not waking.keys().isdisjoint(ready)

    def _has_changed(self, devices: "DeviceEvents", *, is_ready: bool) -> bool:
        """Take in events of devices, and when it is time look for what they mean; whether there were any."""
        if is_ready:
            devices.hear()
        changed = devices.changed()
        if changed:
            self._look(changed)
            self._take_in_devices(devices, changed)
        self._tell_of_devices(devices.over())
        return bool(is_ready or changed)

    def _take_in_devices(self, devices: "DeviceEvents", changed: set[str]) -> None:
        """Have what came and went of what probes read become events, and the other lane look for it, too."""
        wanted: dict[Lane, set[str]] = {lane: set() for lane in Lane}
        for planned in self._plan.probes:
            if planned.enabled:
                wanted[planned.lane].update(planned.subsystems)
        devices.take_in(set().union(*wanted.values()))
        if ALL in changed or not wanted[Lane.REALTIME].isdisjoint(changed):
            order: control.Order = {"do": "look", "subsystems": sorted(changed)}
            control.tell(f"{self._settings.folders.runtime}/{WRITERS[Lane.REALTIME]}", order)

    def _tell_of_devices(self, changes: "list[DeviceChange]") -> None:
        """Record them, each at its own time: two that read alike would else be one and the same."""
        for change in changes:
            self._record(Sensitivity.PUBLIC, HostEvent(*change[1:]), change.at_ns)
            self._hurry()

    def _intervals_ns(self) -> set[int]:
        """At which multiples to tick next; what is new does not wait for its own interval."""
        intervals_ns = self._roster.intervals_ns
        return {*intervals_ns, SECOND_NS} if self._is_new or self._is_hurried else intervals_ns

    def _note_lateness(self, lateness_ns: int, missed: int, now_ns: int) -> None:
        self.own.lateness_ns = lateness_ns
        asleep_ns = now_ns - monotonic_ns()
        slept_ns, self._asleep_ns = asleep_ns - self._asleep_ns, asleep_ns
        if slept_ns < SECOND_NS // 2:
            self.own.missed += missed
        elif self._lane is Lane.BACKGROUND:  # What a suspended machine slept through was not missed.
            from sysmond.machine.asleep import woken_by  # noqa: PLC0415  the real-time lane does without

            self._now_ns = now_ns
            said = f"for {duration(slept_ns)}{woken_by(self._settings.root)}"
            self._record(Sensitivity.PUBLIC, HostEvent(event_kinds.SUSPENDED, "", said))

    def tick(self, tick_ns: int) -> None:
        """Read every due source once and write its rows, or why there are none."""
        self._prepare(tick_ns)
        # On its own grid, or on that of the seconds: a tick of another table's, between two seconds, would put a row on
        # an axis on which all others of its interval have none. The first one is of all.
        past_ns = tick_ns % SECOND_NS if self._has_ticked else 0
        self._has_ticked = True
        groups = [
            (name, [s for s in group if tick_ns >= s.due_ns and not (past_ns and tick_ns % s.interval_ns)])
            for name, group in self._roster.groups
        ]
        is_apart = self._lane is Lane.BACKGROUND
        early = self._gathered(tick_ns, [source for _, due in groups for source in due]) if is_apart else {}
        for stream, due in groups:
            for source in due:
                source.due_ns = tick_ns - tick_ns % source.interval_ns + source.interval_ns
            ring = self._rings.open.get(stream)
            if ring is None:
                if due:
                    self._first_tick(stream, due, early, tick_ns)
                continue
            ring.hold()
            ring.clock(clock.relation())
            if early:
                for source in due:
                    self._write(ring, source, tick_ns, early[source])
            else:
                self._read_all(ring, due, tick_ns)
            if self._rings.settle(stream, self._plan.sampler.ring_bytes):
                self._begin_anew(stream)
        for source in (source for _, due in groups for source in due if source.host.is_wanted_soon):
            source.host.is_wanted_soon, source.due_ns = False, 0
            self._is_hurried = True
        if self._events:
            self._write_events(tick_ns)

    def _prepare(self, tick_ns: int) -> None:
        self._now_ns = tick_ns
        if self._bursts.is_on(tick_ns) and (said := self._bursts.judge(tick_ns, process_time_ns())):
            self._record_burst(said)
        if tick_ns >= self._roster.review_ns:
            self._review()
        if self._is_new:
            self._rearrange(tick_ns)
        for host in self._roster.hosts:
            host.new_tick()

    def _read_all(self, ring: RingWriter, due: list[Source], tick_ns: int) -> None:
        """Read sources of the real-time lane, one after the other, and judge how long each takes."""
        begin_ns = perf_counter_ns()
        for source in due:
            ring.mark(source.index)
            self._write(ring, source, tick_ns, self._read(source))
            if source.host.has_events:  # All sources here have one host: it is this one that told of it.
                self._tell_events(source, source.host.take_events())
            end_ns = perf_counter_ns()
            source.cost.duration_ns += end_ns - begin_ns
            if end_ns - begin_ns > source.deadline_ns:
                self._overran(source, end_ns - begin_ns)
            elif source.lateness:
                source.lateness = 0
            begin_ns = end_ns

    def _read(self, source: Source) -> Reading | Pieces | Absence:
        """Read a source of the real-time lane; where that had to be interrupted, its table is read elsewhere now."""
        try:
            with self._limit.reading():
                return source.read()
        except OverrunError as overrun:
            source.failed(overrun)
            self._move(source.planned, overrun.absence.detail)
            self._roster.review_ns = 0
            return overrun.absence

    def _gathered(self, tick_ns: int, due: list[Source]) -> dict[Source, Reading | Pieces | Absence]:
        """Read sources of the background lane: in turn in a thread, those that have processes meanwhile."""
        readings: dict[Source, Reading | Pieces | Absence] = {}
        if not due:
            return readings
        from sysmond.sampler.blocking_readers import wait_for  # noqa: PLC0415  the real-time lane does without

        begun_s = monotonic()
        readers = [self._roster.readers[source] for source in due]
        begun = []
        for reader in readers:
            reading = reader.begin(tick_ns)
            if reading is None:
                begun.append(reader)
            else:
                readings[reader.source] = reading
        self._roster.read_in_turn(begun, self._rings.mark)
        self._rings.unmark()
        wait_for(begun, begun_s)
        readings |= {reader.source: reader.finish() for reader in begun}
        for reader in readers:
            if reader.source.probe.costly_s and (said := self._roster.judge_cost(reader.source, reader.took_s)):
                self._tell(reader.source.planned.sensitivity, "eased", reader.source.table, said)
            self._tell_of(reader.source, readings[reader.source])
        return readings

    def _read_earlier(self) -> dict[str, "LastRows"]:
        """What the lane before this one read last of tables whose changes are events."""
        from sysmond.sampler.last_rows import last_rows  # noqa: PLC0415  the real-time lane does without

        tables = {source.table for source in self._roster.sources if source.probe.tells}
        return last_rows(self._folder, self._boot, tables)

    def _tell_of(self, source: Source, reading: Reading | Pieces | Absence) -> None:
        """Record what a reading says that happened, and what its probe tells by itself."""
        probe, events = source.probe, source.host.take_events()
        if probe.tells and isinstance(reading, Reading):
            from sysmond.sampler.changes import RowChanges  # noqa: PLC0415  the real-time lane does without

            detail = ""
            try:
                if source.changes is None:
                    columns = tuple(metric.name for metric in probe.table.metrics)
                    source.changes = RowChanges(columns, probe.tells)
                    earlier = self._earlier.pop(source.table, None)
                    if earlier is not None and earlier.columns == columns:
                        source.changes.of(earlier)
                        detail = f"in the {duration(self._now_ns - earlier.tick_ns)} before, while nothing was recorded"
                changes = source.changes.of(reading)
                events += [HostEvent(*change)._replace(detail=change.detail or detail) for change in changes]
            except Exception as problem:  # noqa: BLE001  rows with too few values, or what a probe compares by itself
                source.failed(problem)
        self._tell_events(source, events)

    def _tell_events(self, source: Source, events: list[HostEvent]) -> None:
        for event in events:
            try:
                self._record(source.planned.sensitivity, event)
            except UsageError as wrong:  # The kind of another, or of nobody.
                source.failed(wrong)

    def _first_tick(
        self, stream: str, due: list[Source], early: dict[Source, Reading | Pieces | Absence], tick_ns: int
    ) -> None:
        """Open the ring of a stream, as large as what is read now asks for."""
        if not self._rings.may_open(stream, tick_ns):
            self._drop(due)
            return
        readings: dict[Source, Reading | Pieces | Absence] = dict(early)
        for source in (item for item in due if item not in early):
            self._rings.mark(source)
            readings[source] = self._read(source)
        self._rings.unmark()
        of_stream = [source for name, group in self._roster.groups if name == stream for source in group]
        sizes = {source: size_of(readings.get(source)) for source in of_stream}
        if not self._rings.begin(stream, sizes, self._plan.sampler.ring_bytes, tick_ns):
            self._drop(due)
            return
        ring = self._rings.open[stream]
        ring.clock(clock.relation())
        for source in due:
            self._write(ring, source, tick_ns, readings[source])

    def _write(self, ring: RingWriter, source: Source, tick_ns: int, reading: Reading | Pieces | Absence) -> None:
        if source.slowed is not None:  # Until the next reading, others are missing.
            ring.absence(source.index, tick_ns, *source.slowed)
        if isinstance(reading, Pieces):
            self._write_records(ring, source, tick_ns, reading)
            return
        if lost := source.write(ring, tick_ns, reading):
            self._drop([source], lost)

    def _write_records(self, ring: RingWriter, source: Source, tick_ns: int, reading: Pieces) -> None:
        """Write a reading of a long table; where it outgrows its ring, into a larger one that follows."""
        bytes_max = self._plan.sampler.ring_bytes
        is_outgrown = source.outgrows(reading, ring, tick_ns, bytes_max, self._rings.room_bytes)
        has_all = reading.is_full or not source.is_lasting
        if is_outgrown and (has_all or self._lane is Lane.REALTIME):
            self._begin_anew(source.stream, source.due_ns)
            # A ring of what lasts begins with all rows: those are read at once, and what is new is among them.
            self._first_tick(source.stream, [source], {source: reading} if has_all else {}, tick_ns)
            return
        if lost := reading.lost + ring.records(source.index, tick_ns, reading.records, source.stride):
            self._drop([source], lost)
        source.wrote(reading, ring, tick_ns)
        if is_outgrown:  # A worker is not asked twice a tick.
            self._begin_anew(source.stream)

    def _drop(self, sources: Sequence[Source], lost: int = 1) -> None:
        """Count what these sources had, and could not be kept."""
        self.own.dropped += len(sources) * lost
        for source in sources:
            source.cost.dropped += lost

    def _costs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Rows of the table ``self``: this part and every probe; in the background also other parts and workers."""
        yield self.name, own_row(self.own, self._memory)
        if self._lane is Lane.BACKGROUND:
            yield from part_rows(self._settings.folders.runtime)
            for table, pid in self._roster.workers():
                if row := process_row(pid):
                    yield f"worker:{table}", row
        for source in self._roster.sources:
            if source.table != SELF.name:
                yield f"probe:{source.table}", source.cost.row()

    # --- What changes while it runs

    def _follow(self, *, again: bool = False) -> None:
        """Make sources, rings and deadline those of the plan, the holds and the conduct."""
        self._roster.follow(self._plan, self._moved(), self._now_ns, again=again)
        self._is_new = True
        if self._deadline_ns:
            self._deadline_ns = min(self._deadline_ns, next_slot_ns(clock.boottime_ns(), self._intervals_ns()))
            if self._lane is Lane.REALTIME:
                realtime.freeze()

    def _rearrange(self, tick_ns: int) -> None:
        """Write the last words of who left, and explain who is new; where a ring has no room, begin another."""
        self._is_new = False
        self._write_last_words(tick_ns)
        for stream, group in self._roster.groups:
            if stream in self._rings.open and not self._rings.add(stream, group):
                self._begin_anew(stream)

    def _write_last_words(self, tick_ns: int) -> None:
        for source, absence in self._roster.leaving:
            ring = self._rings.open.get(source.stream)
            if ring is not None and source.index >= 0:
                ring.absence(source.index, tick_ns, *absence)
        self._roster.leaving.clear()

    def _begin_anew(self, stream: str, due_ns: int = 0) -> None:
        """Close the ring of a stream; the next tick opens another, or that from which on its sources are due."""
        self._rings.close(stream)
        self.own.dropped += self._rings.give_up_old()
        for source in self._roster.sources:
            if source.stream == stream:
                source.index, source.written, source.due_ns, source.is_full_due = -1, None, due_ns, True

    def _review(self) -> None:
        """End what is over: holds, quarantines, the time in a process of its own."""
        for source in self._roster.sources:
            if source.barred is not None and self._conduct.barred(source.table, self._now_ns) is None:
                self._tell(source.planned.sensitivity, "released", source.table, "its quarantine is over")
            if self._roster.may_return(source, self._now_ns):
                self._tell(source.planned.sensitivity, "released", source.table, "read with the others again")
        self._follow()

    # --- What becomes of probes that misbehave

    def hangs(self, source: Source, reason: str) -> None:
        """Read a source that does not answer in a process of its own for a while."""
        self._conduct.set_apart(source.table, self._now_ns, reason)
        self._roster.plan_review(self._now_ns)
        self._tell(source.planned.sensitivity, "stuck", source.table, f"{reason}; read in a process of its own")

    def offends(self, source: Source, reason: str) -> None:
        """Judge a source that killed or wedged its process."""
        self._blame(source.table, source.planned.sensitivity, reason)
        source.barred = self._conduct.barred(source.table, self._now_ns)
        self._roster.plan_review(self._now_ns)

    def fails_to_load(self, planned: PlannedProbe, reason: str) -> None:
        """Judge a probe that could not be loaded in its process: it is tried again later."""
        self._blame(planned.table, planned.sensitivity, reason, at_once=True)

    def _overran(self, source: Source, took_ns: int) -> None:
        source.lateness += 1
        if source.lateness < OVERRUNS_MAX or source.table == SELF.name or self._conduct.is_moved(source.table):
            return
        deadline = f"{source.deadline_ns / SECOND_NS:g} s"
        said = f"{OVERRUNS_MAX} readings in a row took longer than {deadline}, the last {took_ns / SECOND_NS:.3f} s"
        self._move(source.planned, said)
        self._roster.review_ns = 0

    def _move(self, planned: PlannedProbe, reason: str) -> None:
        """Leave a table to the background lane: this one lets go of it when it next reviews its sources."""
        self._conduct.move(planned.table, reason)
        self._tell(planned.sensitivity, "moved", planned.table, f"{reason}; read in the background from now on")
        control.tell(f"{self._settings.folders.runtime}/{WRITERS[Lane.BACKGROUND]}", {"do": "plan"})

    def _blame(self, table: str, sensitivity: Sensitivity, reason: str, *, at_once: bool = False) -> None:
        if self._conduct.offend(table, self._now_ns, reason, at_once=at_once):
            length = duration(self._conduct.records[table].until_ns - self._now_ns)
            self._tell(sensitivity, "quarantine", table, f"{reason}; not read for {length}")
        else:
            self._tell(sensitivity, "stuck", table, reason)

    def _judge_earlier(self, now_ns: int) -> None:
        """Take over what is held against probes, and judge what the incarnation before died of.

        Where the daemon itself begins, nothing is held against anybody.
        """
        is_daemon_new = self._settings.lifeline is not None and not self._settings.again
        if not is_daemon_new:
            self._conduct.read()
        guilty = culprits(self._folder, self._conduct.judged_ns)
        self._conduct.judged_ns = now_ns
        for table in () if is_daemon_new else sorted(guilty):
            planned = next((probe for probe in self._plan.probes if probe.table == table), None)
            if planned is None:
                continue
            if self._settings.stuck:
                self._move(planned, f"{self.name} did not come to an end reading it")
                continue
            self._blame(table, planned.sensitivity, f"{self.name} died reading it")
            if self._lane is Lane.BACKGROUND:
                self._conduct.set_apart(table, now_ns, self._conduct.records[table].reason)
        self._conduct.write()

    def _moved(self) -> set[str]:
        """The tables that the background lane reads instead of the real-time lane."""
        if self._lane is Lane.REALTIME:
            return self._conduct.moved()
        if self._settings.lifeline is not None and not self._settings.again and not self._deadline_ns:
            return set()  # The real-time lane begins anew, too: what lies there is older.
        theirs = Conduct(f"{self._settings.folders.runtime}/{WRITERS[Lane.REALTIME]}", self._boot)
        theirs.read()
        return theirs.moved()

    def _tell(self, sensitivity: Sensitivity, kind: str, subject: str, text: str) -> None:
        """Say and record what became of a probe."""
        self._say(f"probe {subject}: {kind}: {text}")
        self._record(sensitivity, HostEvent(kind, subject, text))

    def _record(self, sensitivity: Sensitivity, event: HostEvent, at_ns: int = 0) -> None:
        """Record that something happened, now or at a time, and let the bus part know."""
        at_ns = at_ns or self._now_ns
        event_kinds.check(event.kind, WRITERS[self._lane])
        texts = ("kind", "subject", "text", "detail", "known_from")
        event = event._replace(**{name: getattr(event, name).replace("\0", " ") for name in texts})
        del self._events[: max(0, len(self._events) + 1 - WAITING_EVENTS_MAX)]
        self._events.append((sensitivity, at_ns, event))
        said = {"kind": event.kind, "subject": event.subject, "text": event.text[:EVENT_BYTES_MAX]}
        order: control.Order = {"do": "event", "boottime_ns": at_ns, **said, "sensitivity": sensitivity}
        control.tell(f"{self._settings.folders.runtime}/bus", order)
        # What was read of in a log of before is over.
        if event.kind in self._plan.sampler.burst_kinds and event.happened_ns == ABSENT:
            self._want_burst(event.kind)

    def _write_events(self, tick_ns: int) -> None:
        waiting, self._events = self._events, []
        for event in waiting:
            ring = self._rings.open.get(event[0]) or self._ring_of_events(event[0], tick_ns)
            if ring is None:
                self._events.append(event)
            else:
                _, at_ns, (kind, subject, text, detail, happened_ns, known_from) = event
                more = {"detail": detail, "known_from": known_from}
                ring.event(at_ns, kind, subject, text, happened_ns=happened_ns, **more)

    def _ring_of_events(self, sensitivity: Sensitivity, tick_ns: int) -> RingWriter | None:
        """Open the ring of a class of which this lane reads no table, as when the last was moved away."""
        is_read = any(stream == sensitivity for stream, _ in self._roster.groups)
        if is_read or not self._rings.may_open(sensitivity, tick_ns):
            return None
        if not self._rings.begin(sensitivity, {}, self._plan.sampler.ring_bytes, tick_ns):
            return None
        ring = self._rings.open[sensitivity]
        ring.clock(clock.relation())
        return ring

    # --- Orders

    def _obey(self, order: control.Order) -> control.Order:
        """Carry out an order from the control socket.

        :raises Error: where it asks for what cannot be.
        """
        self._has_served = True
        self._now_ns = max(self._now_ns, clock.boottime_ns()) if self._deadline_ns else self._now_ns
        match order:
            case {"do": "forget"}:
                return self._rings.forget(str(order.get("ring")))
            case {"do": "plan"}:
                return self._take_plan()
            case {"do": "hold", "tables": list(tables), "interval_ns": int(interval_ns), "seconds": int(seconds)}:
                return self._hold(list(map(str, tables)), interval_ns, seconds, order)
            case {"do": "look", "subsystems": list(subsystems)}:
                return {"ok": True, "tables": self._look(set(map(str, subsystems)))}
            case _:
                return self._adjust(order)

    def _adjust(self, order: control.Order) -> control.Order:
        """Carry out an order about one table, or about threads."""
        match order:
            case {"do": "forgive", "table": str(table)}:
                return {"ok": self._forgive(table)}
            case {"do": "burst", "kind": str(kind)} if self._lane is Lane.REALTIME:
                return {"ok": kind in self._plan.sampler.burst_kinds and self._begin_burst(kind)}
            case _:
                known = "'forget', 'plan', 'hold', 'look', 'forgive' and 'burst', each with what it needs, are"
                return {"error": f"{order.get('do')!r} is not an order as it should be; {known}"}

    def _look(self, subsystems: set[str]) -> list[str]:
        """Read at the next second what devices of these subsystems concern; gives the tables."""
        concerned = self._roster.look(subsystems)
        if concerned:
            self._hurry()
        return concerned

    def _hurry(self) -> None:
        """Tick at the next second, whatever is due by its interval."""
        self._is_hurried = True
        if self._deadline_ns:
            soon_ns = next_slot_ns(clock.boottime_ns(), self._intervals_ns())
            self._deadline_ns = min(self._deadline_ns, soon_ns)

    def _take_plan(self) -> control.Order:
        try:
            plan = plans.read(plan_file(self._settings))
        except OSError as failure:
            raise Error(f"plan: {plan_file(self._settings)}: {failure.strerror}") from failure
        before, self._plan = self._plan.sampler, plan
        self._follow(again=True)
        if plan.sampler.ring_bytes != before.ring_bytes:
            for stream in list(self._rings.open):
                self._begin_anew(stream)
        if plan.sampler.priority != before.priority and self._lane is Lane.REALTIME:
            for refusal in realtime.schedule(plan.sampler.priority):
                self._say(refusal)
        return {"ok": True}

    def _hold(self, tables: list[str], interval_ns: int, seconds: int, order: control.Order) -> control.Order:
        """Sample tables more often, or at most every ``back_ns``, for a while; where both are 0, as planned."""
        back_ns, why = order.get("back_ns", 0), str(order.get("why", ""))
        if not isinstance(back_ns, int) or not 0 <= back_ns <= BACK_MAX_S * SECOND_NS:
            raise Error(f"hold: back_ns {back_ns!r}; expected 0 to {BACK_MAX_S * SECOND_NS}")
        low_ns = HOLD_MIN_NS[self._lane]
        if interval_ns and interval_ns < low_ns:
            raise Error(f"hold: interval_ns {interval_ns}; expected {low_ns} or more, or 0 to end it")
        if not 0 < seconds <= HOLD_MAX_S and (interval_ns or back_ns):
            raise Error(f"hold: seconds {seconds}; expected 1 to {HOLD_MAX_S}")
        mine = [table for table in tables if table != SELF.name and self._roster.find(table)]
        for table in mine:
            self._roster.holds.pop(table, None)
            if interval_ns or back_ns:
                until_ns = self._now_ns + seconds * SECOND_NS
                self._roster.holds[table] = TableHold(interval_ns, until_ns, back_ns, why)
        if mine:
            self._follow()
        return {"ok": True, "tables": mine}

    def _want_burst(self, kind: str) -> None:
        """Have threads looked at more often, since something happened; asked for once a tick."""
        if self._lane is Lane.REALTIME:
            self._begin_burst(kind)
        elif self._asked_burst_ns != self._now_ns:
            self._asked_burst_ns = self._now_ns
            order: control.Order = {"do": "burst", "kind": kind}
            control.tell(f"{self._settings.folders.runtime}/{WRITERS[Lane.REALTIME]}", order)

    def _begin_burst(self, kind: str) -> bool:
        """Look at threads more often from the next tick on, where they are read here and nobody holds them back."""
        source, hold = self._roster.find(bursts.TABLE), self._roster.holds.get(bursts.TABLE)
        if source is None or not source.is_well or source.barred is not None or (hold is not None and hold.back_ns):
            return False
        if not self._bursts.begin(self._now_ns, process_time_ns()):
            return False
        self._record_burst(f"read every {bursts.INTERVAL_NS / SECOND_NS:g} s for {duration(bursts.LASTS_NS)}: {kind}")
        return True

    def _record_burst(self, said: str) -> None:
        """Record that a burst begins or ends, and have the roster follow at the next tick."""
        source = self._roster.find(bursts.TABLE)
        sensitivity = source.planned.sensitivity if source else Sensitivity.RESTRICTED
        self._roster.burst_until_ns, self._roster.review_ns = self._bursts.until_ns, 0
        self._record(sensitivity, HostEvent(event_kinds.BURST, bursts.TABLE, said))

    def _forgive(self, table: str) -> bool:
        record = self._conduct.records.get(table, Record())
        if not self._conduct.forgive(table):
            return False
        planned = next((probe for probe in self._plan.probes if probe.table == table), None)
        if planned is not None:
            self._tell(planned.sensitivity, "released", table, "forgiven")
            self._write_events(self._now_ns)
        self._follow(again=True)
        if record.moved:
            control.tell(f"{self._settings.folders.runtime}/{WRITERS[Lane.BACKGROUND]}", {"do": "plan"})
        return True

    def close(self, *, is_over: bool = True) -> None:
        """Leave the rings for the archiver; where it ``is_over``, in good order."""
        if self._devices and self._rings.open:
            self._tell_of_devices(self._devices.rest())
            self._write_events(self._now_ns)
        self._write_last_words(self._now_ns)  # Of who left since the last tick: the next lane knows nothing of them.
        for stream in list(self._rings.open):
            self._rings.close(stream, is_over=is_over)
        self._roster.close()
        if self._devices:
            self._devices.close()
        os.close(self._memory)


def run(settings: Settings, plan: Plan, lane: Lane, say: Callable[[str], None]) -> int:
    """Be the sampler of a lane until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    if lane is Lane.BACKGROUND:
        heap.share()
    sampler = Sampler(settings, plan, lane, say)
    if lane is Lane.REALTIME and plan.sampler.priority:
        heap.trim()  # As long as it can be: locked memory stays.
        for refusal in realtime.enter(plan.sampler.priority):
            say(refusal)
    return sampler.run(settings.ticks if lane is Lane.REALTIME else None)
