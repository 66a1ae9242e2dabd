# SPDX-License-Identifier: Apache-2.0
"""The archiver: decides when rings are sealed and segments flushed, and has a child do it.

It waits at normal priority with the standard library alone. A job runs at idle priority, and once more
at normal priority where it does not come to its end in time or at shutdown. Jobs on rings and jobs on
the disk run side by side: a disk that hangs never stops sealing.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from sysmond import archive, control
from sysmond import plan as plans
from sysmond.errors import Error
from sysmond.folders import Folders, create_classes
from sysmond.lock import only_one
from sysmond.model import Sensitivity
from sysmond.plan import Plan
from sysmond.progress import Progress, ring_files
from sysmond.sampler import is_over
from sysmond.settings import Settings
from sysmond.snapshot import fill

# How often the archiver looks at the rings, oftener where they fill fast; it wakes for nothing else but orders.
LOOK_S = 60.0
LOOK_MIN_S = 1.0
LOOK_FIRST_S = 5.0
# A ring that is filling faster than planned is sealed at once when this much of it is not yet sealed.
UNSEALED_FRACTION_MAX = 0.5
# A job at idle priority that is not done by then is started again at normal priority.
IDLE_JOB_S = 60.0
# A job that does not end at all is killed: the disk hangs, or the library does. At shutdown there is less time.
JOB_S = 600.0
LAST_JOB_S = 90.0
# A killed job is gone by then, unless the kernel holds it.
KILLED_S = 5.0
SEAL_RETRY_S = 30.0
FLUSH_RETRY_S = 60.0
LOCK_WAIT_S = 30.0
FORGET_S = 2.0

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DISK_LOCK = "disk.lock"
REPORT_BYTES_MAX = 2000
PR_SET_PDEATHSIG = 1


def seal(folders: Folders) -> None:
    """Seal the rings; the imports are the child's."""
    from sysmond import jobs  # noqa: PLC0415

    jobs.seal(folders)


def flush(folders: Folders) -> None:
    """Prepare the folders on disk and copy what waits in RAM there; keep the plan as the last good one."""
    create_classes(folders.state, archive.FINEST_TIER)
    for sensitivity in Sensitivity:
        archive.remove_temporary(archive.disk_folder(folders, sensitivity))
    archive.flush(folders)
    with suppress(OSError, Error):
        current, kept = f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"
        if not os.path.exists(kept) or plans.read(current) != plans.first_valid([kept])[0]:
            plans.write(plans.read(current), kept)


def merge(folders: Folders) -> None:
    """Merge segments on disk; the imports are the child's."""
    from sysmond import jobs  # noqa: PLC0415

    jobs.merge(folders)


Job = Callable[[Folders], None]

# Jobs of one place follow each other.
PLACES: dict[Job, str] = {seal: "rings", flush: "disk", merge: "disk"}


class Running:
    """A job in a child: until when it may run, and what it has said went wrong."""

    __slots__ = ("child", "idle", "killed", "limit_s", "message", "report", "task")

    def __init__(self, job: Job, child: int, report: int, limit_s: float, *, idle: bool) -> None:
        """Nothing is said yet."""
        self.task = job
        self.child = child
        self.report = report
        self.limit_s = limit_s
        self.idle = idle
        self.killed = False
        self.message = b""

    def kill(self) -> None:
        """End it; the kernel may hold it for longer."""
        self.killed = True
        self.limit_s = time.monotonic()
        os.kill(self.child, signal.SIGKILL)

    def is_stuck(self, now_s: float) -> bool:
        """Whether it was killed and is there all the same."""
        return self.killed and now_s > self.limit_s + KILLED_S

    def problem(self) -> str:
        """Collect the child and give what went wrong, or nothing."""
        os.close(self.report)
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return self.message.decode("utf-8", "replace") or ("" if code == 0 else f"exit code {code}")


class Archiver:
    """Waits, decides, starts jobs."""

    def __init__(self, settings: Settings, plan: Plan, say: Callable[[str], None], lock: int) -> None:
        """Nothing is due yet; the state folder may come later. ``lock``: held, and by jobs on rings too."""
        self._folders = settings.folders
        self._settings = plan.archiver
        self._say = say
        self._lock = lock
        self._pid = os.getpid()
        self._folder = f"{self._folders.runtime}/archiver"
        self._now_s = time.monotonic()
        self._seal_due_s = self._now_s + self._settings.seal_interval_s
        self._flush_due_s = self._now_s + self._settings.flush_interval_s
        self._disk_rests_until_s = 0.0
        self._look_due_s = self._now_s + LOOK_FIRST_S
        self._looked_s = self._now_s
        self._heads: dict[str, int] = {}
        self._running: dict[str, Running] = {}
        self._problems: dict[Job, str] = {}
        self._stopping = False
        self._looked_at_disk = False
        self._ends = [] if settings.lifeline is None else [settings.lifeline]
        self._told_to_end = False

    def run(self) -> int:
        """Work until told to stop (SIGTERM, SIGINT, the end of the parent); then seal and flush everything.

        Gives 1 where something could not be flushed: it stays in RAM.
        """
        for sensitivity in Sensitivity:
            archive.remove_temporary(archive.ram_folder(self._folders, sensitivity))
        self._ends.append(control.wake_on(STOP_SIGNALS))
        with control.listen(self._folder) as orders:
            self._begin(seal)  # What earlier incarnations left behind.
            self._begin(flush)  # Says at once where the state folder cannot be written.
            while not self._told_to_end:
                if self._turn(orders.descriptors()):
                    orders.serve(self._obey)
                self._begin_what_is_due()
        self._stopping = True
        for running in self._running.values():
            if not running.killed:
                running.kill()  # Done again now, in less time and at normal priority.
        is_sealed = self._complete(seal)
        is_flushed = self._complete(flush)
        return 0 if is_sealed and is_flushed else 1

    def _turn(self, others: list[int]) -> bool:
        """Wait for whatever comes first, and look after the jobs; whether one of the other descriptors is ready."""
        limits = [running.limit_s + running.killed * KILLED_S for running in self._running.values()]
        due_s = min(self._seal_due_s, self._flush_due_s, self._look_due_s, *limits)
        reports = [running.report for running in self._running.values()]
        wait_s = max(0.0, due_s - time.monotonic())
        if any(running.is_stuck(time.monotonic()) for running in self._running.values()):
            wait_s = max(wait_s, LOOK_MIN_S)
        ready, _, _ = select.select([*self._ends, *reports, *others], [], [], wait_s)
        self._now_s = time.monotonic()
        if not set(self._ends).isdisjoint(ready):
            self._told_to_end, self._ends = True, []
        for place, running in list(self._running.items()):
            if running.report in ready:
                self._listen_to(place, running)
            elif self._now_s >= running.limit_s and not running.killed:
                running.kill()
        return not set(others).isdisjoint(ready)

    def _listen_to(self, place: str, running: Running) -> None:
        said = os.read(running.report, REPORT_BYTES_MAX)
        running.message += said
        if said:
            return
        del self._running[place]
        problem = running.problem()
        if running.killed and running.idle and not self._stopping:
            self._begin(running.task, idle=False)
        elif running.task is seal:
            self._sealed(problem)
        elif running.task is flush:
            self._flushed(problem)
        elif problem:
            self._tell(merge, problem, f"merging failed: {problem}; the segments stay as they are")
        else:
            self._problems.pop(merge, None)

    def _begin_what_is_due(self) -> None:
        is_short = self._now_s >= self._look_due_s and self._ring_time_runs_short()
        if is_short or self._now_s >= self._seal_due_s:
            self._begin(seal, idle=not is_short)
        if self._now_s >= self._flush_due_s or (self._now_s >= self._disk_rests_until_s and self._ram_is_full()):
            self._begin(flush)

    def _begin(self, job: Job, *, idle: bool = True) -> None:
        """Start a job in a child, unless its place is taken; then it is due again later."""
        idle = idle and not self._stopping
        if job is seal:
            self._seal_due_s = self._now_s + self._settings.seal_interval_s
        elif job is flush:
            self._flush_due_s = self._now_s + self._settings.flush_interval_s
            self._disk_rests_until_s = self._now_s + FLUSH_RETRY_S
        place = PLACES[job]
        if not self._has_work(job):
            self._problems.pop(job, None)
            return
        if place in self._running:
            if self._running[place].is_stuck(self._now_s):
                self._failed(job, "the last one hangs in the kernel")
            return
        reading, writing = os.pipe()
        try:
            child = os.fork()
        except OSError as refusal:
            os.close(reading)
            os.close(writing)
            self._failed(job, str(refusal))
            return
        if child == 0:
            self._be(job, writing, idle=idle)
        os.close(writing)
        limit_s = IDLE_JOB_S if idle else LAST_JOB_S if self._stopping else JOB_S
        self._running[place] = Running(job, child, reading, time.monotonic() + limit_s, idle=idle)

    def _has_work(self, job: Job) -> bool:
        if job is seal:
            return bool(ring_files(self._folders))
        return job is merge or not self._looked_at_disk or flush in self._problems or bool(self._ram_segments())

    def _failed(self, job: Job, problem: str) -> None:
        if job is seal:
            self._sealed(problem)
        else:
            self._flushed(problem)

    def _be(self, job: Job, report: int, *, idle: bool) -> None:
        """Do the job and end; never returns."""
        code = 0
        try:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # The archiver decides when a job is over.
            signal.set_wakeup_fd(-1)
            _die_with(self._pid)
            if idle:
                # Also puts its disk requests into the idle class, as long as none is set (ioprio_set(2)).
                with suppress(OSError):
                    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            if PLACES[job] == "disk":
                # The disk may hold this process for ever; that must not keep a new archiver from sealing.
                os.close(self._lock)
                with only_one(self._folder, name=DISK_LOCK, wait_s=KILLED_S):
                    job(self._folders)
            else:
                job(self._folders)
        except BaseException as failure:  # noqa: BLE001  whatever it was, the archiver hears of it and the child ends
            code = 1
            spelled = str(failure) if isinstance(failure, (Error, OSError)) else f"{type(failure).__name__}: {failure}"
            os.write(report, " ".join(spelled.split()).encode("utf-8", "replace")[:REPORT_BYTES_MAX])
        finally:
            os._exit(code)

    def _complete(self, job: Job) -> bool:
        """Do a job now, after what runs in its place, and wait for its end; whether it succeeded."""
        for step in (self._wait_for, self._begin, self._wait_for):
            step(job)
        return job not in self._problems and PLACES[job] not in self._running

    def _wait_for(self, job: Job) -> None:
        place = PLACES[job]
        while place in self._running and not self._running[place].is_stuck(time.monotonic()):
            self._turn([])

    def _obey(self, order: dict[str, object]) -> dict[str, object]:
        """Carry out an order from the control socket."""
        match order.get("do"):
            case "seal":
                return {"ok": self._complete(seal)}
            case "flush":
                return {"ok": self._complete(seal) and self._complete(flush)}
            case other:
                return {"error": f"{other!r} is not an order; 'seal' and 'flush' are"}

    def _tell(self, job: Job, problem: str, line: str) -> None:
        """Say a problem once; what comes of the next tries is worth a word only when it heals."""
        if job not in self._problems:
            self._say(line)
        self._problems[job] = problem

    def _sealed(self, problem: str) -> None:
        if problem:
            self._seal_due_s = min(self._seal_due_s, self._now_s + SEAL_RETRY_S)
            self._tell(seal, problem, f"sealing failed: {problem}; the ring keeps what it has, tried again later")
            return
        self._problems.pop(seal, None)
        if not self._stopping:
            self._forget_rings()

    def _flushed(self, problem: str) -> None:
        self._looked_at_disk = True
        if problem:
            self._flush_due_s = self._now_s + FLUSH_RETRY_S
            self._tell(
                flush,
                problem,
                f"not flushed to {self._folders.state}: {problem}; recording goes on in RAM, flushed when it can",
            )
            if self._stopping:
                self._say(f"{len(self._ram_segments())} segments stay in {self._folder}")
            self._make_room()
            return
        if self._problems.pop(flush, None):
            self._say(f"flushed to {self._folders.state} again")
        folders = [archive.disk_folder(self._folders, sensitivity) for sensitivity in Sensitivity]
        if not self._stopping and any(len(archive.names(folder)) >= archive.MERGE_FANOUT for folder in folders):
            self._begin(merge)

    def _ring_time_runs_short(self) -> bool:
        """Look how full the rings are, and when to look again."""
        elapsed_s = max(LOOK_MIN_S, self._now_s - self._looked_s)
        self._looked_s = self._now_s
        progress = Progress.read(self._folders)
        look_s, is_short, heads = LOOK_S, False, {}
        for path in ring_files(self._folders):
            with suppress(OSError, Error):
                heads[path], capacity = fill(path)
                allowed = capacity * UNSEALED_FRACTION_MAX
                done = progress.sealed[path].offset if path in progress.sealed else 0
                is_short = is_short or heads[path] - done > allowed
                growth = (heads[path] - self._heads.get(path, 0)) / elapsed_s
                look_s = min(look_s, allowed / 2 / max(growth, 1.0))
        self._heads = heads
        self._look_due_s = self._now_s + max(LOOK_MIN_S, look_s)
        return is_short

    def _ram_is_full(self) -> bool:
        return self._ram_bytes() > self._settings.ram_bytes

    def _ram_bytes(self) -> int:
        size_bytes = 0
        for path in self._ram_segments():
            with suppress(FileNotFoundError):  # A flush is just taking them.
                size_bytes += os.path.getsize(path)
        return size_bytes

    def _ram_segments(self) -> list[str]:
        folders = [archive.ram_folder(self._folders, sensitivity) for sensitivity in Sensitivity]
        return [f"{folder}/{name.file}" for folder in folders for name in archive.names(folder)]

    def _make_room(self) -> None:
        """Give up the oldest segments in RAM when the disk refuses for so long that they outgrow their budget."""
        dropped = 0
        while self._ram_is_full():
            os.unlink(min(self._ram_segments(), key=os.path.basename))
            dropped += 1
        if dropped:
            self._say(f"RAM for segments is full: {dropped} of the oldest given up")

    def _forget_rings(self) -> None:
        """Ask the writers to remove their predecessors' rings that are in segments as a whole."""
        for path, sealed in Progress.read(self._folders).sealed.items():
            if is_over(path, sealed):
                folder, sensitivity, ring = path.rsplit("/", 2)
                with suppress(Error):  # It is not there just now; the next seal asks again.
                    control.ask(folder, {"do": "forget", "ring": ring, "sensitivity": sensitivity}, FORGET_S)


def _die_with(parent: int) -> None:
    """Have the kernel kill this child when the archiver dies (prctl(2)): a new archiver does its job again."""
    import ctypes  # noqa: PLC0415  the child's

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run(settings: Settings, plan: Plan, say: Callable[[str], None]) -> int:
    """Be the archiver until told to stop."""
    with only_one(f"{settings.folders.runtime}/archiver", wait_s=LOCK_WAIT_S) as lock:
        return Archiver(settings, plan, say, lock).run()
