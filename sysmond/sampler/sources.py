# SPDX-License-Identifier: Apache-2.0
"""The roster of a lane: which sources it reads, and how often, by the plan, the holds and the conduct together.

What stays the same goes on as it is; what is new or changed is loaded; what is gone is told. Standard library only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import FIRMWARE_S
from sysmond.base.model import Absence, Cause, Lane, Sensitivity
from sysmond.errors import Error
from sysmond.machine.asleep import SleepStates
from sysmond.plan.plan import Plan, PlannedProbe
from sysmond.probe import Host, Probe, Row, Wakes
from sysmond.ring.progress import WRITERS
from sysmond.sampler import bursts
from sysmond.sampler.quarantine import NEVER_NS, Conduct, Judge
from sysmond.sampler.self_cost import SELF
from sysmond.sampler.source import Source, is_foreign, load

if TYPE_CHECKING:
    from sysmond.sampler.blocking_readers import Process, Reader
    from sysmond.sampler.easing import Easing
    from sysmond.sampler.turns import ReadingTurns

PUBLIC = Sensitivity.PUBLIC
# In place of the name of a subsystem: any of them may be meant.
ALL = "*"
# How long a reading of the real-time lane may take, where its probe says nothing.
DEADLINE_S = 0.05
# The other parts of sysmond are looked at less often than the sampler looks at itself.
BACKGROUND_SELF_INTERVAL_NS = 30 * SECOND_NS
# Nothing may be held below these, and what overran its deadline is not read more often again.
HOLD_MIN_NS = {Lane.REALTIME: SECOND_NS // 100, Lane.BACKGROUND: SECOND_NS}
HOLD_MAX_S = 3600
# So long the lane waits for worker processes that load their probes, and so long each may take meanwhile: what its
# plugin imports may be large, and the machine busy. After that it is retried like one that hangs.
LOAD_WAIT_S = 1.0
LOAD_MAX_NS = 30 * SECOND_NS
# Hardware that no event announced is looked for so often.
LOOK_NS = 60 * SECOND_NS
# Each worker process costs some megabytes.
WORKERS_MAX = 64


class TableHold(NamedTuple):
    """A table is wanted more or less often for a while: every ``interval_ns`` at least, else only every ``back_ns``.

    0: nobody says so. ``why`` it is wanted less often.
    """

    interval_ns: int
    until_ns: int
    back_ns: int = 0
    why: str = ""

    def hold_back(self, interval_ns: int) -> tuple[int, Absence | None]:
        """Make an interval longer, where that is wanted; also gives what is missing then, and why."""
        longer_ns = max(interval_ns, self.back_ns)
        if self.interval_ns:
            longer_ns = max(interval_ns, min(longer_ns, self.interval_ns))
        if longer_ns == interval_ns:
            return interval_ns, None
        return longer_ns, Absence(Cause.HOLD_BACK, f"read every {longer_ns / SECOND_NS:g} s for {self.why}")


class Loading(NamedTuple):
    """A worker process that has not said yet what its probe declares."""

    planned: PlannedProbe
    process: "Process"
    since_ns: int


class Roster:
    """The sources of one lane.

    ``groups``: them by stream. ``leaving``: sources that are gone, and the absence that is their last word.
    ``burst_until_ns``: how long threads are looked at more often (``bursts``). ``review_ns``: when that, a hold or a
    quarantine ends by itself. ``readers``: of the background lane.
    """

    def __init__(
        self,
        lane: Lane,
        root: str,
        conduct: Conduct,
        judge: Judge,
        costs: Callable[[], Iterable[Row]],
        say: Callable[[str], None],
        runtime: str = "",
    ) -> None:
        """Have no sources yet. ``costs``: the rows of the table ``self``. ``runtime``: the folder hosts tell of."""
        self._lane = lane
        self._root = root
        self._conduct = conduct
        self._judge = judge
        self._say = say
        self._costs = costs
        self._runtime = runtime
        self.sources: list[Source] = []
        self.groups: list[tuple[str, list[Source]]] = []
        self.leaving: list[tuple[Source, Absence]] = []
        self.readers: dict[Source, Reader] = {}
        self.hosts: list[Host] = []
        self.holds: dict[str, TableHold] = {}
        self.burst_until_ns = 0
        self._is_bursting = False
        self._slowed: dict[str, Absence] = {}
        self.review_ns = NEVER_NS
        self._was_on_battery = False
        self._easing = None if lane is Lane.REALTIME else self._begin_easing()
        self._turns: ReadingTurns | None = None
        self._sleep_states = SleepStates(root.rstrip("/"))
        self._failed: list[PlannedProbe] = []
        self._absent: list[PlannedProbe] = []
        self._loading: dict[str, Loading] = {}
        self._ending: list[Process] = []

    @property
    def intervals_ns(self) -> set[int]:
        """At which intervals there is something to do."""
        intervals_ns = {source.interval_ns for source in self.sources} or {SECOND_NS}
        return {*intervals_ns, SECOND_NS} if self._loading else intervals_ns

    def follow(self, plan: Plan, moved: Collection[str], now_ns: int, *, again: bool = False) -> None:
        """Make the sources those that are wanted. ``moved``: to the background lane. ``again``: try what failed."""
        if again:
            self._failed.clear()
        self._ending = [process for process in self._ending if not process.is_gone()]
        self.holds = {table: hold for table, hold in self.holds.items() if hold.until_ns > now_ns}
        self._is_bursting = now_ns < self.burst_until_ns
        before = {source.table: source for source in self.sources}
        wanted = list(self._wanted(plan, moved))
        for loading in [wish for wish in self._loading.values() if wish.planned not in wanted]:
            loading.process.kill("not wanted any more")
            self._ending.append(loading.process)
            del self._loading[loading.planned.table]
        staying: dict[str, Source] = {}
        for planned in wanted:
            old = before.get(planned.table)
            is_same = old is not None and old.planned._replace(interval_ns=planned.interval_ns) == planned
            if old is not None and is_same and not self.may_return(old, now_ns):
                staying[planned.table] = old if old.planned == planned else self._regraded(old, planned)
        loaded = {**staying, **self._loaded([wish for wish in wanted if wish.table not in staying], now_ns)}
        for table, source in before.items():
            if table not in staying:
                self._part_with(source, plan, loaded.get(table))
        self.sources = [loaded[planned.table] for planned in wanted if planned.table in loaded]
        streams = dict.fromkeys([*Sensitivity, *(source.stream for source in self.sources)])
        self.groups = [
            (str(stream), group)
            for stream in streams
            if (group := [source for source in self.sources if source.stream == stream])
        ]
        for source in self.sources:
            source.barred = self._conduct.barred(source.table, now_ns)
            source.slowed = self._slowed.get(source.table)
        self.plan_review(now_ns)

    def _begin_easing(self) -> "Easing":
        from sysmond.sampler.easing import Easing  # noqa: PLC0415  the real-time lane does without

        def review() -> None:
            self.review_ns = 0

        easing = Easing(self._root, review)
        easing.ask()
        return easing

    def judge_cost(self, source: Source, took_s: float) -> str:
        """Judge how long a reading took where that matters; gives what is said of it, before another interval holds."""
        if not source.probe.costly_s or self._easing is None:
            return ""
        said = self._easing.judge(source.table, source.interval_ns, source.probe.costly_s, took_s)
        if said:
            self.review_ns = 0
        return said

    def may_return(self, source: Source, now_ns: int) -> bool:
        """Whether a source that is read in a process of its own need not be any longer."""
        reader = self.readers.get(source)
        return reader is not None and reader.process is not None and not self._is_apart(source.planned, now_ns)

    def plan_review(self, now_ns: int) -> None:
        """Find out when something ends by itself."""
        tables = [source.table for source in self.sources] + [planned.table for planned in self._failed]
        ends = [hold.until_ns for hold in self.holds.values()]
        ends += [self.burst_until_ns] if self._is_bursting else []
        ends += [now_ns + SECOND_NS] if self._loading else []
        ends += [now_ns + LOOK_NS] if self._absent or self._ending else []
        if self._easing and self._easing.is_on_battery is not self._was_on_battery:
            ends.append(now_ns)  # It was found meanwhile, by another thread.
        self.review_ns = min([self._conduct.ends_ns(tables, now_ns), *ends])

    def find(self, table: str) -> Source | None:
        """The source of a table, if it is read here."""
        return next((source for source in self.sources if source.table == table), None)

    def is_read(self, table: str) -> bool:
        """Whether a table is read here, and the last reading gave rows: what its probe has to tell, it does."""
        source = self.find(table)
        return source is not None and source.is_well and source.barred is None

    def look(self, subsystems: set[str]) -> list[str]:
        """Devices of these subsystems (``ALL``: of any) changed: look for instances anew, at once; gives the tables.

        What the machine lacked until now is loaded when the sources are reviewed, before the next reading.
        """
        appeared = [planned.table for planned in self._absent if planned.is_possible(self._root)]
        if appeared:
            self.review_ns = 0
        if self._easing and not subsystems.isdisjoint({ALL, "power_supply"}):
            self._easing.ask()
        concerned = [
            source
            for source in self.sources
            if (ALL in subsystems and source.probe.subsystems)
            or not set(source.probe.subsystems).isdisjoint(subsystems)
        ]
        self._sleep_states.look_again()
        for host in {id(source.host): source.host for source in concerned}.values():
            host.look_again()
        for source in concerned:
            source.due_ns = 0
            if (reader := self.readers.get(source)) and reader.process:
                reader.process.ask("look")
        return [*appeared, *(source.table for source in concerned)]

    def read_in_turn(self, readers: Iterable["Reader"], mark: Callable[[Source], None]) -> None:
        """Have a thread read those of these that are read in none of their own processes; waits for it."""
        from sysmond.sampler.turns import ReadingTurns  # noqa: PLC0415  the real-time lane does without

        self._turns = self._turns or ReadingTurns()
        self._turns.read([asked for reader in readers if (asked := reader.in_thread)], mark)

    def workers(self) -> list[tuple[str, int]]:
        """The tables that are read in processes of their own, and those."""
        workers = [(source.table, reader.process) for source, reader in list(self.readers.items())]
        return [(table, process.pid) for table, process in workers if process and process.pid]

    def descriptors(self) -> list[int]:
        """What the processes of readers speak on."""
        return [
            descriptor
            for reader in self.readers.values()
            if reader.process
            for descriptor in reader.process.descriptors()
        ]

    def wakes(self) -> dict[int, tuple[Wakes, Source]]:
        """What becomes readable when a source should not wait for its interval; none of those read in processes."""
        sources = [reader.source for reader in self.readers.values() if not reader.process]
        return {wakes.fileno(): (wakes, source) for source in sources if (wakes := source.host.wakes) is not None}

    def hear(self) -> None:
        """Take in what the processes of readers have said."""
        for reader in self.readers.values():
            if reader.process:
                reader.process.hear()

    def close(self) -> None:
        """Let everything go."""
        if self._lane is Lane.REALTIME:
            for host in self.hosts:
                host.close()
            return
        from sysmond.sampler.blocking_readers import bury  # noqa: PLC0415  the real-time lane does without

        if self._turns:
            self._turns.close()
        for reader in self.readers.values():
            reader.close()
        for loading in self._loading.values():
            loading.process.kill("the lane ends")
        bury([reader.process for reader in self.readers.values() if reader.process])
        bury([*self._ending, *(loading.process for loading in self._loading.values())])

    def _wanted(self, plan: Plan, moved: Collection[str]) -> Iterator[PlannedProbe]:
        """The probes of this lane of whose sources this machine has any, each with the interval that holds now.

        What was there once stays: its rows say when it is gone.
        """
        known = {source.table for source in self.sources} | self._loading.keys()
        self._absent, self._slowed = [], {}
        factor = plan.sampler.battery_factor
        self._was_on_battery = self._easing is not None and self._easing.is_on_battery
        for planned in plan.probes:
            is_self = planned.table == SELF.name
            lane = Lane.BACKGROUND if planned.table in moved else planned.lane
            if not planned.enabled or (lane is not self._lane and not is_self):
                continue
            if planned.table not in known and not planned.is_possible(self._root):
                self._absent.append(planned)
                continue
            interval_ns = self._easing.interval_ns(planned, factor) if self._easing else planned.interval_ns
            if is_self and self._lane is Lane.BACKGROUND:
                interval_ns = max(interval_ns, BACKGROUND_SELF_INTERVAL_NS)
            elif planned.table in moved:
                interval_ns = max(interval_ns, HOLD_MIN_NS[Lane.BACKGROUND])
            interval_ns = self._asked_ns(planned.table, interval_ns)
            if self._easing:
                interval_ns = self._easing.eased_ns(planned.table, interval_ns)
            yield planned._replace(interval_ns=interval_ns)

    def _asked_ns(self, table: str, interval_ns: int) -> int:
        """The interval of a table as holds and a burst have it; notes of one that is held back what is missing."""
        if self._is_bursting and table == bursts.TABLE:
            interval_ns = min(interval_ns, bursts.INTERVAL_NS)
        if hold := self.holds.get(table):
            interval_ns, slowed = hold.hold_back(interval_ns)
            if slowed is not None:
                self._slowed[table] = slowed
            if hold.interval_ns:
                interval_ns = min(interval_ns, max(hold.interval_ns, self._least_ns(table)))
        return interval_ns

    def _least_ns(self, table: str) -> int:
        """Below which interval nobody may have a table read: that which is asked of firmware."""
        source = self.find(table)
        return FIRMWARE_S * SECOND_NS if source and source.probe.costly_s else 0

    def _regraded(self, old: Source, planned: PlannedProbe) -> Source:
        """The same source with another interval: all but its layout goes on."""
        source = Source(planned, old.probe, old.host, DEADLINE_S, old.cost)
        source.deadline_ns, source.is_well, source.changes = old.deadline_ns, old.is_well, old.changes
        if reader := self.readers.pop(old, None):
            reader.goes_on(source)
            self.readers[source] = reader
        return source

    def _part_with(self, source: Source, plan: Plan, successor: Source | None) -> None:
        """Let a source go; its last word is an absence, unless its table goes on where the same readers look."""
        if (reader := self.readers.pop(source, None)) is not None:
            reader.close()
            if reader.process:
                self._ending.append(reader.process)
            self.hosts.remove(source.host)
        goes_on = successor is not None or any(
            planned.table == source.table and planned.enabled for planned in plan.probes
        )
        if not goes_on:
            self.leaving.append((source, Absence(Cause.DISABLED, "")))
        elif successor is not None and successor.planned.sensitivity is not source.planned.sensitivity is PUBLIC:
            self.leaving.append((source, Absence(Cause.DISABLED, "restricted from now on")))

    def _loaded(self, wanted: list[PlannedProbe], now_ns: int) -> dict[str, Source]:
        """Load probes; one that cannot be loaded is left out, which is said once."""
        wanted = [wish for wish in wanted if wish not in self._failed or self._was_released(wish, now_ns)]
        apart = [wish for wish in wanted if self._is_apart(wish, now_ns)]
        loaded = self._loaded_apart(apart, now_ns) if apart else {}
        for planned in wanted:
            if planned in apart:
                continue
            try:
                probe = load(planned)
            except Error as problem:
                self._say(f"probe {planned.table} is left out: {problem}")
                self._failed.append(planned)
                continue
            loaded[planned.table] = self._source(planned, probe)
        return loaded

    def _loaded_apart(self, wanted: list[PlannedProbe], now_ns: int) -> dict[str, Source]:
        """Start worker processes, all at once, and wait a moment for what they declare."""
        from sysmond.sampler import blocking_readers as workers  # noqa: PLC0415  the real-time lane does without

        free = [wish for wish in wanted if self._conduct.barred(wish.table, now_ns) is None]
        self._failed += [wish for wish in wanted if wish not in free]
        fresh = [wish for wish in free if wish.table not in self._loading]
        room = max(
            0, WORKERS_MAX - len(self._loading) - sum(wish.process is not None for wish in self.readers.values())
        )
        for planned in fresh[room:]:
            self._say(f"probe {planned.table} is left out: {WORKERS_MAX} others are read in processes of their own")
            self._failed.append(planned)
            free.remove(planned)
        del fresh[room:]
        for planned in fresh:
            self._loading[planned.table] = Loading(planned, workers.Process(planned, self._root), now_ns)
        loading = [self._loading[planned.table] for planned in free]
        workers.declared([wish.process for wish in loading], LOAD_WAIT_S if fresh else 0.0)
        loaded = {}
        for planned, process, since_ns in loading:
            if process.hello is None and not process.end and now_ns - since_ns < LOAD_MAX_NS:
                continue  # It is looked at again every second.
            del self._loading[planned.table]
            try:
                if process.hello is None:
                    process.kill(f"not loaded within {LOAD_MAX_NS // SECOND_NS} s")
                    raise ValueError(process.end)
                loaded[planned.table] = self._source(planned, workers.probe_of(process), process)
            except ValueError as problem:
                process.kill("")
                workers.bury([process])
                self._say(f"probe {planned.table} is left out: {problem}")
                self._failed.append(planned)
                self._judge.fails_to_load(planned, str(problem))
        return loaded

    def _was_released(self, planned: PlannedProbe, now_ns: int) -> bool:
        """Whether a probe that failed is to be tried again: its quarantine is over."""
        record = self._conduct.records.get(planned.table)
        if record is None or not 0 < record.until_ns <= now_ns:
            return False
        self._failed.remove(planned)
        return True

    def _is_apart(self, planned: PlannedProbe, now_ns: int) -> bool:
        is_background = self._lane is Lane.BACKGROUND and planned.table != SELF.name
        return is_background and (is_foreign(planned) or self._conduct.is_apart(planned.table, now_ns))

    def _source(self, planned: PlannedProbe, probe: Probe, process: "Process | None" = None) -> Source:
        if self._lane is Lane.REALTIME:
            if not self.hosts:
                self.hosts.append(self._new_host())
            return Source(planned, probe, self.hosts[0], DEADLINE_S)
        from sysmond.sampler.blocking_readers import ANSWER_S, Reader  # noqa: PLC0415  the real-time lane does without

        # A thread that hangs has its files to itself.
        host = self._new_host()
        self.hosts.append(host)
        source = Source(planned, probe, host, ANSWER_S)
        self.readers[source] = Reader(source, self._root, self._judge, process)
        return source

    def _new_host(self) -> Host:
        host = Host(self._root)
        host.sleep_states = self._sleep_states
        host.costs = self._costs
        host.is_read = self.is_read
        host.runtime = self._runtime
        host.folder = f"{self._runtime}/{WRITERS[self._lane]}" if self._runtime else ""
        return host
