# SPDX-License-Identifier: Apache-2.0
"""The archiver: decides when rings are sealed and segments flushed, and has a child do it.

It waits at normal priority with the standard library alone. A job runs at idle priority; at normal priority where
rings would run out before it ends, where somebody waits for it, and at shutdown. One child seals, flushes and merges
where all that is due; jobs on rings and jobs on the disk run side by side: a disk that hangs never stops sealing.
"""

import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from sysmond.archiver import children
from sysmond.archiver.children import KILLED_S, PLACES, STOP_SIGNALS, Done, Job, Jobs, Running, flush, merge, seal
from sysmond.archiver.disk_writes import Ledger
from sysmond.archiver.flushing import JOB_S, Reason
from sysmond.archiver.watch import LOOK_MIN_S, NEVER_S, DiskWatch, RingWatch
from sysmond.base import clock, event_kinds
from sysmond.base.allowance import Allowance
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Lane
from sysmond.errors import EXIT_AGAIN, BusyError, CorruptError, Error
from sysmond.machine import control, heap, listing, note
from sysmond.machine.lacking import LackingReport
from sysmond.machine.lock import only_one
from sysmond.machine.notify import ALIVE, READY, STOPPING, notify, watchdog_s
from sysmond.plan import plan as plans
from sysmond.plan.plan import Plan
from sysmond.plan.settings import Settings, plan_file
from sysmond.ring import skipped_rings
from sysmond.ring.leftovers import is_over, remove_sealed
from sysmond.ring.progress import ARCHIVER, LANES, WRITERS, Progress, Sealed, ring_files, stream_files
from sysmond.sampler.self_cost import PID_FILE
from sysmond.store import archive

if TYPE_CHECKING:
    from sysmond.sources.logind import SleepDelay
    from sysmond.store.pins import Pin

__all__ = ["Archiver", "flush", "merge", "run", "seal"]

LOOK_FIRST_S = 5.0
# A job is promoted when it was idle for so long, or for this part of the time that the rings still hold.
IDLE_JOB_S = 60.0
IDLE_FRACTION = 0.15
# At shutdown a job has less time.
LAST_JOB_S = 90.0
# Four tries, in which a ring that makes the job hang is found and set aside, last no longer than a ring does.
SEAL_JOB_S = 90.0
# As long as rows in RAM are given up, nobody is answered.
EMPTY_JOB_S = 20.0
PIN_JOB_S = 10.0
LOOK_S = 0.1
# Nobody says whether the lanes are to end as well: alone, the archiver waits in vain for so long.
LANES_END_S = 2.0
SEAL_RETRY_S = 30.0
LOCK_WAIT_S = 30.0
FORGET_S = 2.0
# An order to the parent: the state folder is not there, and what it has open of it is in the way of a repair.
LET_GO = "let_go"
LET_GO_S = 2.0

# Nobody keeps the disk asleep for ever by mistake.
HOLD_FLUSH_MAX_S = 24 * 3600.0
ORDERS = ("seal", "flush", "event", "plan", "hold_flush", "pin")

# What people mark.
MARKS = frozenset((event_kinds.MARK, event_kinds.INCIDENT))

# Orders may name these as the reason of a flush.
ORDERED = {Reason.REQUEST, Reason.SUSPEND, Reason.SHUTDOWN}
# Merging and rolling up looks into all folders, however little is new: it is done for several flushes together.
FLUSHES_PER_MERGE = 2
# After a flush the next seal is due so much later than its interval says: by then a flush is due again, and one child
# does both.
TOGETHER_PART = 0.1
# A flush seals what came since the last seal, unless that was but a moment ago.
SEALED_LATELY_S = 60.0


class Archiver:
    """Waits, decides, starts jobs."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        say: Callable[[str], None],
        lock: int,
        state: ExitStack | None = None,
    ) -> None:
        """Nothing is due yet; the state folder may come later.

        ``lock``: held, and by jobs on rings too. ``state``: what is held of the state folder.
        """
        self._folders = settings.folders
        self._plan_file = plan_file(settings)
        self._settings = plan.archiver
        self._say = say
        self._lock = lock
        self._folder = f"{self._folders.runtime}/{ARCHIVER}"
        self._now_s = time.monotonic()
        self._asleep_ns = _asleep_ns()
        self._seal_due_s = self._now_s + self._settings.seal_interval_s
        self._look_due_s = self._now_s + LOOK_FIRST_S
        self._rings = RingWatch(self._folders, self._now_s)
        self._disk = DiskWatch(self._settings.flush_interval_s, self._settings.ram_full_bytes, self._now_s)
        self._ledger = Ledger(self._folders, say)
        self._allowance = Allowance()
        self._is_restart = settings.again
        self._running: dict[str, Running] = {}
        self._problems: dict[Job, str] = {}
        self._lacking = LackingReport(self._folder)
        self._other = ""
        self._strange: set[str] = set()
        self._unread: set[str] = set()
        self._emptied: set[str] = set()
        # Why the next flush happens; whether it waits for a seal, or for its place.
        self._reason = Reason.FIRST
        self._seals_first = False
        self._flush_waits = False
        # How far the rings are on disk as of the last flush (None: unknown), and will be when the running one succeeds.
        self._on_disk: dict[str, Sealed] | None = None if settings.again else {}
        self._flushing: dict[str, Sealed] = {}
        self._stopping = False
        self._looked_at_disk = False
        self._sealed_s = float("-inf")
        # Whether the last seal that began was of some rings only.
        self._is_partial = False
        self._flushes = 0
        self._not_pinned = 0
        self._state = state or ExitStack()
        self._holds_state = settings.state_locked
        self._ends = [] if settings.lifeline is None else [settings.lifeline]
        self._lifeline = settings.lifeline
        self._is_over = False
        self._beat_s = watchdog_s() / 2 or NEVER_S
        self._sleep: SleepDelay | None = None
        if settings.bus == "system" or ":" in settings.bus:  # No logind is on the bus of a session.
            from sysmond.sources import logind  # noqa: PLC0415  it brings a library

            self._sleep = logind.SleepDelay(settings.bus, say)

    def run(self) -> int:
        """Work until told to stop (SIGTERM, SIGINT, the end of the parent); then seal and flush everything.

        Gives 1 where something could not be flushed: it stays in RAM; and where its folder was removed, at once, that
        it is to be started again.
        """
        for place in archive.ram_folders(self._folders):
            archive.remove_temporary(archive.ram_folder(self._folders, *place))
        stop = control.wake_on(STOP_SIGNALS)
        self._ends.append(stop)
        if not self._is_restart:
            self._ledger.event("start", "", "")
        with control.listen(self._folder) as orders:
            notify(READY)
            self._begin(seal)  # What earlier incarnations left behind.
            self._begin(flush)  # Says at once where the state folder cannot be written.
            if self._sleep is not None:
                self._sleep.connect()
            heap.settle()
            while not self._is_over:
                if self._turn(orders.descriptors()):
                    orders.serve(self._obey)
                if self._ledger.is_gone():
                    return self._leave_anew()
                self._begin_what_is_due()
                self._tell_lacking()
        return self._end(stop)

    def _end(self, stop: int) -> int:
        """Put all on the disk; gives the exit code."""
        self._stopping = True
        if self._sleep is not None:
            self._sleep.close()
        for running in self._running.values():
            running.limit_s = min(running.limit_s, time.monotonic() + LAST_JOB_S)
            if running.job is merge and not running.killed:
                running.kill()  # The next daemon merges.
            elif running.idle and not running.killed:
                self._hurry(running)
        notify(STOPPING)
        if self._lifeline is None:
            self._wait_for_lanes()
        is_orphaned = control.is_orphaned(stop, self._lifeline)
        self._ledger.event("stop", "", "the parent of all parts was killed" if is_orphaned else "")
        self._ledger.close(is_over=not is_orphaned)
        is_done = self._flush_now(Reason.SHUTDOWN)
        self._state.close()
        self._disk.close()
        return 0 if is_done else 1

    def _tell_lacking(self) -> None:
        """Say what goes wrong, for as long as it does."""
        problems = [f"{job.__name__}: {problem}" for job, problem in self._problems.items()]
        self._lacking.tell([*problems, *([self._other] if self._other else [])])

    def _wait_for_lanes(self) -> None:
        """Give lanes that were told to end, too, as at a shutdown, the time for their last tick: it is to be sealed."""
        until_s = time.monotonic() + LANES_END_S
        while time.monotonic() < until_s and any(map(self._runs, LANES)):
            time.sleep(LOOK_S)

    def _runs(self, lane: Lane) -> bool:
        """Whether a lane of the recorder runs, or ended otherwise than it was told to."""
        return os.path.exists(f"{self._folders.runtime}/{WRITERS[lane]}/{PID_FILE}")

    def _leave_anew(self) -> int:
        """End without a job, to be started again in a folder that was removed; jobs that run end with this process.

        Segments that waited in RAM may be gone with the folder: what is not on disk is sealed once more.
        """
        self._ledger.close(is_over=False)
        if (sealing := self._running.pop(PLACES[seal], None)) is not None:
            sealing.kill()
            sealing.end()  # It notes what is in segments, among them those that are gone.
        if self._on_disk is not None:
            with suppress(OSError):
                Progress(self._on_disk).write(self._folders)
        return EXIT_AGAIN

    def _turn(self, others: list[int], *, only_jobs: bool = False) -> bool:
        """Wait for whatever comes first, and look after the jobs; whether one of the other descriptors is ready."""
        if self._beat_s < NEVER_S:
            notify(ALIVE)
        reports = [running.report for running in self._running.values()]
        reading, writing = ([], []) if only_jobs or self._sleep is None else self._sleep.waits_for()
        watched = [*self._ends, *reports, *others, *reading]
        mounts = [] if only_jobs else self._disk.exceptional()
        ready, writable, exceptional = select.select(watched, writing, mounts, self._wait_s(only_jobs=only_jobs))
        self._now_s = time.monotonic()
        if exceptional:
            self._disk.mounts_changed(self._now_s)
        if not set(self._ends).isdisjoint(ready):
            self._is_over, self._ends = True, []
        for place, running in list(self._running.items()):
            if running.report in ready:
                self._listen(place, running)
            elif not running.killed:
                self._look_after(place, running)
        if self._sleep is not None and not {*ready, *writable}.isdisjoint(reading) and self._sleep.hear():
            if self._disk.may_flush_before_sleep(self._now_s):
                self._flush_now(Reason.SUSPEND)
            self._sleep.release()
        return not set(others).isdisjoint(ready)

    def _wait_s(self, *, only_jobs: bool) -> float:
        """How long nothing is due, or nothing that concerns jobs which run."""
        due_s = [] if only_jobs else [self._look_due_s, time.monotonic() + self._ledger.due_in_s()]
        if not only_jobs and not self._is_busy(seal):
            due_s.append(self._seal_due_s)
        if not only_jobs and not self._is_flushing():
            due_s.append(self._disk.due_s())
        for place, running in self._running.items():
            due_s.append(running.limit_s + running.killed * KILLED_S)
            if running.idle and not running.killed:
                due_s.append(running.began_s + self._idle_s(place))
        wait_s = min(self._beat_s, max(0.0, min(due_s, default=0.0) - time.monotonic()))
        if any(running.is_stuck(time.monotonic()) for running in self._running.values()):
            wait_s = max(wait_s, LOOK_MIN_S)
        return wait_s

    def _look_after(self, place: str, running: Running) -> None:
        """See to it that a job comes to its end."""
        if self._now_s >= running.limit_s:
            running.kill(is_late=True)
        elif running.idle and self._now_s >= running.began_s + self._idle_s(place):
            self._hurry(running)

    def _idle_s(self, place: str) -> float:
        """How long a job of a place may be idle: rings do not wait."""
        return min(IDLE_JOB_S, IDLE_FRACTION * self._rings.left_s) if place == PLACES[seal] else IDLE_JOB_S

    @staticmethod
    def _hurry(running: Running) -> None:
        """Let a job go on at normal priority; where we may not say so, start it again."""
        if not running.promote():
            running.kill()

    def _listen(self, place: str, running: Running) -> None:
        """Take what a child tells: which jobs it has done, and that it has ended."""
        is_over = running.listen()
        while (done := running.goes_on()) is not None:
            del self._running[place]
            place = PLACES[running.job]
            self._running[place] = running
            running.limit_s = running.limit_s if running.killed else running.began_s + self._limit_s(running.job)
            if running.job is flush:
                self._seals_first = False
                self._flushing = Progress.read(self._folders).sealed
            elif self._stopping and not running.killed:
                running.kill()  # The next daemon merges.
            self._done(done)
        if is_over:
            self._ended(place, running)

    def _ended(self, place: str, running: Running) -> None:
        del self._running[place]
        report = running.end()
        if report.get("is_gone") and running.job is flush:
            self._let_go()
        if running.job is merge and self._stopping:
            return
        if running.killed and running.idle:
            self._begin(running.job, idle=False)
        else:
            self._done(Done(running.job, report, self._now_s - running.began_s))

    def _done(self, done: Done) -> None:
        problem = str(done.report.get("problem", ""))
        if PLACES[done.job] == PLACES[flush]:
            self._disk.wrote(self._now_s)
        if done.job is seal:
            self._judge(done.report)
            self._say_unread(done.report)
            self._sealed(problem)
        elif done.job is flush:
            self._flushed(problem, done.report, done.duration_s)
        else:
            self._merged(problem, done.report, done.duration_s)

    def _begin_what_is_due(self) -> None:
        self._ledger.tick()
        if self._now_s >= self._look_due_s:
            self._look()
        is_waiting = seal in self._problems or self._now_s - self._sealed_s < LOOK_MIN_S
        is_due = self._now_s >= self._seal_due_s or (self._ledger.is_filling and not is_waiting)
        if (is_due or self._rings.short) and not self._is_busy(seal):
            self._begin(seal, idle=not self._rings.is_urgent, only=() if is_due else self._rings.short)
        if _asleep_ns() - self._asleep_ns > SECOND_NS // 2:
            self._asleep_ns = _asleep_ns()
            self._disk.resumed = True
        if not self._is_flushing() and (reason := self._disk.decide(self._now_s)):
            self._want(reason)
        if self._flush_waits and not self._is_busy(flush):
            self._begin(flush)

    def _look(self) -> None:
        if self._sleep is not None:
            self._sleep.connect()
        look_s = self._rings.look(self._now_s)
        self._disk.unsealed = self._rings.unsealed
        sealing = self._running.get(PLACES[seal])
        if sealing is not None and sealing.idle and not sealing.killed:
            look_s = LOOK_MIN_S
            if self._rings.is_urgent:
                self._hurry(sealing)
        self._look_due_s = self._now_s + min(look_s, max(LOOK_MIN_S, self._ledger.due_in_s()))

    def _is_flushing(self) -> bool:
        running = self._running.get(PLACES[flush])
        return self._seals_first or self._flush_waits or (running is not None and running.job is flush)

    def _is_busy(self, job: Job) -> bool:
        """Whether a job of its place runs that may still come to an end."""
        running = self._running.get(PLACES[job])
        return running is not None and not running.is_stuck(self._now_s)

    def _want(self, reason: Reason) -> None:
        """Flush, and seal before that: then a power cut costs what came after."""
        self._reason = reason
        lately = self._now_s - self._sealed_s < SEALED_LATELY_S and reason is Reason.DISK_IN_USE
        if lately or reason is Reason.FIRST:  # What is tried again and again would be many small segments.
            self._flush_waits = True
            return
        self._seals_first = True
        self._begin(seal)
        if PLACES[seal] not in self._running:
            self._seals_first, self._flush_waits = False, True

    def _begin(self, job: Job, *, idle: bool = True, only: Sequence[str] = ()) -> None:
        """Start a job in a child, unless its place is taken; then it is due again later. ``only``: rings to seal."""
        idle = idle and not self._stopping
        jobs = self._together(job, only)
        if job is seal and not only:
            later_s = TOGETHER_PART * self._settings.seal_interval_s if flush in jobs else 0.0
            self._seal_due_s = self._now_s + self._settings.seal_interval_s + later_s
        elif job is flush:
            self._flush_waits = False
            self._flushing = Progress.read(self._folders).sealed
        place = PLACES[job]
        if not self._has_work(job):
            self._problems.pop(job, None)
            return
        if place in self._running:
            if self._running[place].is_stuck(self._now_s):
                self._failed(job, "the last one hangs in the kernel")
            return
        if job is seal:
            self._is_partial = bool(only)
        try:
            self._running[place] = children.start(jobs, self._folders, self._limit_s(job), idle=idle, lock=self._lock)
        except OSError as refusal:
            self._failed(job, str(refusal))
            return
        if job is seal and idle:
            self._look_due_s = min(self._look_due_s, self._now_s + LOOK_MIN_S)

    def _together(self, job: Job, only: Sequence[str]) -> Jobs:
        """What a child does that begins with a job: all that is due after it, and finds its place free."""
        jobs: dict[Job, dict[str, object]] = {job: {"only": only} if job is seal else {}}
        if job is seal and self._seals_first and not only and PLACES[flush] not in self._running:
            jobs[flush] = {}
        if flush in jobs and self._stopping:
            jobs[flush] = {"owed": self._ledger.owed()}
        elif flush in jobs and self._flushes % FLUSHES_PER_MERGE == 0:
            jobs[merge] = {}
        return jobs

    def _limit_s(self, job: Job) -> float:
        """How long a job may take."""
        return LAST_JOB_S if self._stopping else SEAL_JOB_S if job is seal else JOB_S

    def _has_work(self, job: Job) -> bool:
        if job is seal:
            return bool(ring_files(self._folders) or stream_files(self._folders))
        return job is merge or not self._looked_at_disk or flush in self._problems or bool(self._ram_segments())

    def _failed(self, job: Job, problem: str) -> None:
        if job is seal:
            self._sealed(problem)
        else:
            self._flushed(problem, {}, 0.0)

    def _flush_now(self, reason: Reason) -> bool:
        """Seal and flush, and wait for the end of both; whether they succeeded."""
        self._wait_for(seal)
        if is_together := PLACES[flush] not in self._running:
            self._reason, self._seals_first = reason, True
        is_sealed = self._complete(seal)
        if not is_together or self._seals_first or self._flush_waits:
            self._seals_first = False
            self._wait_for(flush)
            self._reason = reason
            self._begin(flush)
        self._wait_for(flush, alone=True)
        return is_sealed and self._has_completed(flush)

    def _complete(self, job: Job) -> bool:
        """Do a job now, after what runs in its place, and wait for its end; whether it succeeded."""
        self._wait_for(job)
        self._begin(job)
        self._wait_for(job, alone=True)
        return self._has_completed(job)

    def _has_completed(self, job: Job) -> bool:
        """Whether a job went well the last time, and does not run."""
        running = self._running.get(PLACES[job])
        return job not in self._problems and (running is None or running.job is not job)

    def _wait_for(self, job: Job, *, alone: bool = False) -> None:
        """Wait until nothing runs in the place of a job, or ``alone`` not that job; what is waited for is not idle."""
        place = PLACES[job]
        while place in self._running and not self._running[place].is_stuck(time.monotonic()):
            if alone and self._running[place].job is not job:
                return  # A merge that a flush gave rise to.
            if self._running[place].idle and not self._running[place].killed:
                self._hurry(self._running[place])
            self._turn([], only_jobs=True)

    def _obey(self, order: dict[str, object]) -> dict[str, object]:
        """Carry out an order from the control socket."""
        match order:
            case {"do": "seal"}:
                return {"ok": self._complete(seal)}
            case {"do": "flush", "uid": int(uid)}:
                reason = order.get("reason", Reason.REQUEST)
                if reason not in ORDERED:
                    return {"error": f"{reason!r} is not a reason; expected {', '.join(sorted(ORDERED))}"}
                if reason == Reason.REQUEST:
                    self._allowance.take("flush", uid, time.monotonic())
                return {"ok": self._flush_now(Reason(str(reason)))} | self._problem()
            case {"do": "event", "kind": str(kind), "subject": str(subject), "text": str(text), "uid": int(uid)} if (
                kind in MARKS
            ):
                return {"ok": self._mark(kind, subject, text, uid)}
            case {"do": "event", "kind": str(kind), "subject": str(subject), "text": str(text)}:
                return {"ok": self._ledger.event(kind, subject, text, by=str(order.get("by", "")))}
            case _:
                return self._adjust(order)

    def _mark(self, kind: str, subject: str, text: str, uid: int) -> bool:
        """Record what somebody marked; whether there is room. Of an incident the real-time lane hears.

        :raises Error: where incidents are not pinned here, or too many are marked.
        """
        is_incident = kind == event_kinds.INCIDENT
        if is_incident and kind not in self._settings.pin_kinds:
            raise Error(f"not pinned: the setting incidents.pins does not include {kind!r}; add it there")
        is_written = self._ledger.mark(kind, subject, text, uid)
        if is_incident and is_written:
            control.tell(f"{self._folders.runtime}/{WRITERS[Lane.REALTIME]}", {"do": "burst", "kind": kind})
        return is_written

    def _adjust(self, order: dict[str, object]) -> dict[str, object]:
        """Carry out an order about what happens later."""
        match order:
            case {"do": "plan"}:
                self._follow(plans.read(self._plan_file))
                return {"ok": True}
            case {"do": "pin", "added": list(added), "released": list(released)}:
                problem = self._done_at_once(children.pin, PIN_JOB_S, added=_pins(added), released=_pins(released))
                return {"ok": True} if "problem" not in problem else {"error": str(problem["problem"])}
            case {"do": "hold_flush", "seconds": int() | float() as seconds} if 0 <= seconds <= HOLD_FLUSH_MAX_S:
                self._disk.hold(time.monotonic() + seconds)
                return {"ok": True}
            case {"do": "hold_flush"}:
                return {"error": f"hold_flush: {order.get('seconds')!r} seconds; expected 0 to {HOLD_FLUSH_MAX_S:.0f}"}
            case _:
                return {"error": f"{order.get('do')!r} is not an order; {', '.join(ORDERS)} are"}

    def _follow(self, plan: Plan) -> None:
        """Go on with the settings of a new plan; an interval that changes begins now."""
        if plan.archiver.seal_interval_s != self._settings.seal_interval_s:
            self._seal_due_s = time.monotonic() + plan.archiver.seal_interval_s
        self._settings = plan.archiver
        self._disk.follow(self._settings.flush_interval_s, self._settings.ram_full_bytes)

    def _problem(self) -> dict[str, object]:
        problems = [problem for job, problem in self._problems.items() if job is not merge]
        return {"problem": problems[0]} if problems else {}

    def _tell(self, job: Job, problem: str, line: str) -> None:
        """Say a problem once; what comes of the next tries is worth a word only when it heals."""
        if job not in self._problems:
            self._say(line)
        self._problems[job] = problem

    def _judge(self, report: dict[str, object]) -> None:
        """Set aside what makes the seal job fail again and again."""
        rings = report.get("rings")
        if "problem" not in report:
            skipped_rings.forgive(self._folders)
        elif report.get("is_outside") is False and isinstance(rings, list):
            with suppress(OSError, Error):
                if ring := skipped_rings.blame(self._folders, rings):
                    self._say(
                        f"{ring}: set aside after {skipped_rings.TRIES} tries: {report['problem']}; a gap from now on"
                    )
                    self._ledger.event("aside", ring, str(report["problem"]))

    def _say_unread(self, report: dict[str, object]) -> None:
        """Say, once a ring, what of it could not be read."""
        unread = report.get("unread")
        for ring, why in unread.items() if isinstance(unread, dict) else ():
            if ring not in self._unread:
                self._say(
                    f"{why}; what can be read of it is recorded, it or a copy of it stays in {self._folders.runtime}"
                )
                self._ledger.event("damaged ring", ring, why)
        if isinstance(unread, dict):
            self._unread = set(unread)

    def _sealed(self, problem: str) -> None:
        was_partial = self._is_partial
        if self._seals_first and was_partial and not problem:
            self._begin(seal)  # What is to be flushed is all that was recorded.
        if PLACES[seal] not in self._running and self._seals_first:
            self._seals_first, self._flush_waits = False, True
        self._disk.waiting_bytes = self._ram_bytes()
        self._rings.short, self._rings.is_urgent = (), False  # Until the next look.
        self._ledger.sealed(Progress.read(self._folders).sealed)
        if problem:
            self._seal_due_s = min(self._seal_due_s, self._now_s + SEAL_RETRY_S)
            self._tell(seal, problem, f"sealing failed: {problem}; the ring keeps what it has, tried again later")
            return
        self._problems.pop(seal, None)
        if not was_partial:
            self._sealed_s = self._now_s
        if flush in self._problems:
            self._make_room()
        if not self._stopping:
            self._forget_rings()

    def _flushed(self, problem: str, report: dict[str, object], duration_s: float) -> None:
        self._looked_at_disk = True
        self._disk.waiting_bytes = self._ram_bytes()
        files, size_bytes = _amount(report)
        if report.get("left"):
            self._ledger.left()
        elif files:
            self._ledger.flushed(self._reason, files, size_bytes, duration_s)
        if problem:
            self._disk.refused(self._now_s)
            self._tell(
                flush,
                problem,
                f"not flushed to {self._folders.state}: {problem}; recording goes on in RAM, flushed when it can",
            )
            if self._stopping:
                self._say(f"{len(self._ram_segments())} segments stay in {self._folder}")
            self._make_room()
            return
        self._disk.accepted()
        self._on_disk = self._flushing
        self._hear(report)
        if self._problems.pop(flush, None):
            self._say(f"flushed to {self._folders.state} again")
        if not self._holds_state:
            self._hold_state()
        self._flushes += bool(files)

    def _hear(self, report: dict[str, object]) -> None:
        """Take what a flush found: the disks, what the run before left, and what lies among segments and is none."""
        if isinstance(disks := report.get("disks"), list):
            self._disk.disks = tuple(map(str, disks))
        if not report.get("left"):
            self._ledger.carry(report.get("carried"))
        if isinstance(ended := report.get("boot_ended"), list):
            how, text = map(str, ended)
            self._ledger.event(event_kinds.BOOT_ENDED, how, text)
        strange = set(map(str, paths)) if isinstance(paths := report.get("strange"), list) else set()
        for path in sorted(strange - self._strange):
            self._say(f"{path}: called like a segment, but no file; left alone, and never flushed")
        self._strange |= strange

    def _merged(self, problem: str, report: dict[str, object], duration_s: float) -> None:
        self._tell_refused(report)
        files, size_bytes = _amount(report)
        if files:
            self._ledger.flushed(Reason.MERGE, files, size_bytes, duration_s)
        if problem:
            self._tell(merge, problem, f"merging failed: {problem}; the segments stay as they are")
        else:
            self._problems.pop(merge, None)

    def _tell_refused(self, report: dict[str, object]) -> None:
        """Tell of incidents that were not pinned: that it begins, and when others are pinned again, how many."""
        pinned, refused = (value if isinstance(value := report.get(n), int) else 0 for n in ("pinned", "not_pinned"))
        if refused:
            if not self._not_pinned:
                said = "no more incidents are pinned today: a tenth of tiers.pins.size is spent"
                self._say(said)
                self._ledger.event("not pinned", "", said)
            self._not_pinned += refused
        elif pinned and self._not_pinned:
            self._ledger.event("not pinned", "", f"{self._not_pinned} were not; they are pinned again")
            self._not_pinned = 0

    def _let_go(self) -> None:
        """Have nobody hold a file of the state folder: as long as that lasts it cannot be repaired and mounted anew."""
        if not self._holds_state:
            return
        self._state.close()
        if self._lifeline is not None:
            try:
                control.ask(f"{self._folders.runtime}/daemon", {"do": LET_GO}, LET_GO_S)
            except Error:
                return  # It does not listen just now; the next try tells it again.
        self._holds_state = False

    def _hold_state(self) -> None:
        """Lock the state folder, which was not there when the daemon started, or has been let go of."""
        try:
            self._state.enter_context(only_one(self._folders.state))
        except BusyError as other:
            if not self._other:
                self._say(f"{other}; both record there")
            self._other = f"{other}; both record there"
        except OSError:
            return
        else:
            self._other, self._holds_state = "", True

    def _ram_bytes(self) -> int:
        size_bytes = 0
        for path in self._ram_segments():
            with suppress(FileNotFoundError, CorruptError):  # A flush is just taking them.
                size_bytes += listing.look(path).size_bytes
        return size_bytes

    def _ram_segments(self) -> list[str]:
        folders = [archive.ram_folder(self._folders, *place) for place in archive.ram_folders(self._folders)]
        return [f"{folder}/{name.file}" for folder in folders for name in archive.names(folder)]

    def _make_room(self) -> None:
        """Give up the oldest segments in RAM when the disk refuses for so long that they outgrow their budget."""
        there = self._by_age()
        over_bytes = sum(size_bytes for _, _, size_bytes in there) - self._settings.ram_bytes
        going: list[str] = []
        # What was emptied before says where rows are missing: it goes last.
        for _, path, size_bytes in sorted(there, key=lambda segment: segment[1] in self._emptied):
            if over_bytes > 0:
                going.append(path)
                over_bytes -= size_bytes
        if not going:
            return
        emptied = self._emptied_of([path for path in going if path not in self._emptied])
        for path in going:
            if path not in emptied:
                with suppress(FileNotFoundError):
                    os.unlink(path)
        self._emptied = (self._emptied | emptied) & {path for _, path, _ in self._by_age()}
        said = f"RAM for segments is full: {len(going)} of the oldest given up"
        self._say(said)
        self._ledger.event("dropped", "", said)

    def _by_age(self) -> list[tuple[int, str, int]]:
        """The segments in RAM, oldest first: when written, path and size."""
        segments = []
        for path in self._ram_segments():
            with suppress(FileNotFoundError, CorruptError):  # A flush is just taking them.
                size_bytes, _, written_ns = listing.look(path)
                segments.append((written_ns, path, size_bytes))
        return sorted(segments)

    def _emptied_of(self, paths: list[str]) -> set[str]:
        """Have a child put in the place of files what tells of the hole; for which it came to that."""
        report = self._done_at_once(children.empty, EMPTY_JOB_S, paths=paths) if paths else {}
        return {path for path in paths if report.get(path)}

    def _done_at_once(self, job: Job, limit_s: float, **options: object) -> dict[str, object]:
        """Do a job beside all others and wait for it; gives what it told, a problem where it did not come to an end."""
        try:
            child = children.start({job: options}, self._folders, limit_s, idle=False, lock=self._lock)
        except OSError as refusal:
            return {"problem": str(refusal)}
        is_over = False
        while not is_over and not child.is_stuck(time.monotonic()):
            left_s = max(0.0, child.limit_s - time.monotonic())
            is_over = bool(select.select([child.report], [], [], left_s or LOOK_S)[0]) and child.listen()
            if not left_s and not child.killed:
                child.kill()
        return child.end() if is_over else {"problem": f"not done within {limit_s:.0f} s"}

    def _forget_rings(self) -> None:
        """Ask the writers to remove their predecessors' rings that are in segments as a whole."""
        remove_sealed(self._folders, ARCHIVER)
        for path, sealed in Progress.read(self._folders).sealed.items():
            if is_over(path, sealed):
                writer, _, ring = path.removeprefix(f"{self._folders.runtime}/").partition("/")
                with suppress(Error):  # It is not there just now; the next seal asks again.
                    control.ask(f"{self._folders.runtime}/{writer}", {"do": "forget", "ring": ring}, FORGET_S)


def _pins(rows: list[object]) -> "list[Pin]":
    """Pins of an order, each a list: start and end in UTC nanoseconds, why, by whom.

    :raises Error: where they are none.
    """
    from sysmond.base.timespec import TIME_MAX_NS  # noqa: PLC0415  what is pinned seldom need not stay in memory
    from sysmond.store.pins import Pin  # noqa: PLC0415  as above

    try:
        pins = [
            Pin(note.integer(start), note.integer(end), note.text(why), note.text(by))
            for start, end, why, by in map(note.array, rows)
        ]
    except (TypeError, ValueError, OverflowError) as wrong:
        raise Error(f"pin: {wrong}; expected start, end, why and by whom") from wrong
    for pin in pins:
        if not 0 <= pin.start_ns < pin.end_ns <= TIME_MAX_NS:
            raise Error(f"pin: {pin.start_ns} to {pin.end_ns} ns; expected an earlier start")
    return pins


def _amount(report: dict[str, object]) -> tuple[int, int]:
    """How many files a job wrote, and their bytes."""
    files, size_bytes = (value if isinstance(value := report.get(name), int) else 0 for name in ("files", "bytes"))
    return files, size_bytes


def _asleep_ns() -> int:
    """How long the machine was suspended since it started."""
    return clock.boottime_ns() - time.monotonic_ns()


def run(settings: Settings, plan: Plan, say: Callable[[str], None], state: ExitStack | None = None) -> int:
    """Be the archiver until told to stop. ``state``: what this process holds of the state folder."""
    with only_one(f"{settings.folders.runtime}/{ARCHIVER}", wait_s=LOCK_WAIT_S) as lock:
        return Archiver(settings, plan, say, lock, state).run()
