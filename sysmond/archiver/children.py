# SPDX-License-Identifier: Apache-2.0
"""Work: the jobs that the archiver has children do, and how a child is started, listened to and hurried.

One child does what is due together, job by job, since half of what a small job costs is the start of Python's
libraries. It tells when it goes on to the next: from then on it is in that job's place, and who waits for the one
before need not wait for a disk. A job begins at idle priority, where it disturbs nobody. Beside programs that want
every processor it would then never end: the archiver promotes it in time.
"""

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sysmond.archiver import disk_writes
from sysmond.archiver.flushing import Reason
from sysmond.base.model import EVENTS, FINEST_TIER, TIERS_NS
from sysmond.errors import CorruptError, Error, refusal
from sysmond.machine import listing, memory, mounts, note
from sysmond.machine.folders import Folders, create_classes
from sysmond.machine.lock import only_one
from sysmond.machine.mounts import Location
from sysmond.plan import plan as plans
from sysmond.store import archive

if TYPE_CHECKING:
    from sysmond.store.pins import Pin

# A killed job is gone by then, unless the kernel holds it.
KILLED_S = 5.0
# A job that has had so much of a processor and is late spins; with less it may just have been in nobody's favour.
SPINS_FRACTION = 0.25
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DISK_LOCK = "disk.lock"
PLACE_FILE = "place.json"
REPORT_BYTES_MAX = 4000
# What a child writes between what it tells of two jobs.
GOES_ON = b"\n--\n"
PR_SET_PDEATHSIG = 1
# Who dies of these was ended by somebody; whoever dies of another was at fault.
OUTSIDE_SIGNALS = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
# The file system that a job wrote to is gone, or will not be written to before somebody has mounted it anew.
GONE = frozenset((errno.EIO, errno.EROFS, errno.ESHUTDOWN, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN))

Tell = Callable[[str, object], None]
"""With this a child tells the archiver what it finds, as it goes: a name and a value."""

Job = Callable[..., bool]
"""What is done in a child, given the folders and a ``Tell``, and its options, by name: whether the next has work."""

Jobs = Mapping[Job, Mapping[str, object]]
"""What one child does, in this order, each with its options."""


def _unheard(name: str, value: object) -> None:
    """Tell nobody."""


def seal(folders: Folders, tell: Tell = _unheard, only: Sequence[str] = ()) -> bool:
    """Seal the rings, or ``only`` these; the imports are the child's."""
    from sysmond.archiver import seal_job  # noqa: PLC0415

    unread: dict[str, str] = {}
    try:
        seal_job.seal(folders, lambda rings: tell("rings", rings), unread.__setitem__, only)
    finally:
        tell("unread", unread)
    return True


def flush(folders: Folders, tell: Tell = _unheard, owed: disk_writes.Counts | None = None) -> bool:
    """Prepare the folders on disk and copy what waits in RAM there; keep the plan as the last good one.

    Gives whether anything came to the disk.

    ``owed``: given at the last flush of an archiver, what no row of its ledger has.
    """
    began_s = time.monotonic()
    before = known_place(folders)
    _demand_mounted(folders, before)
    create_classes(folders.state, FINEST_TIER)
    place = mounts.place(folders.state)
    tell("disks", place.disks)
    carried = disk_writes.take(folders.state)
    tell("carried", carried)
    for sensitivity, table in archive.disk_folders(folders):
        archive.remove_temporary(archive.disk_folder(folders, sensitivity, FINEST_TIER, table))
    from sysmond.archiver import boot_before, retention_job  # noqa: PLC0415  as above

    done = archive.flush(
        folders, *(retention_job.keeper(folders, is_long=is_long).make_room for is_long in (False, True))
    )
    tell("files", done.files)
    tell("bytes", done.bytes)
    ram = [archive.ram_folder(folders, *place) for place in archive.ram_folders(folders)]
    strange = [f"{folder}/{name}" for folder in ram for name in archive.strangers(folder)]
    left = [f"{folder}/{name}" for folder in ram for name in archive.files(folder)]
    tell("strange", [*strange, *filter(archive.is_refused, left)])
    with suppress(OSError, Error):
        plans.keep(f"{folders.runtime}/plan.json", f"{folders.state}/plan.json")
    with suppress(OSError):
        tell("boot_ended", boot_before.carry_on(folders, carried))
    if place != before:
        with suppress(OSError):
            _remember(folders, place)
    if owed is not None:
        last = disk_writes.counted(done.files, done.bytes, time.monotonic() - began_s)
        disk_writes.leave(folders.state, owed, carried, {Reason.SHUTDOWN: last})
        tell("left", True)  # noqa: FBT003  a value, not an option
    elif carried:
        disk_writes.forget(folders.state)
    return done.files > 0


def merge(folders: Folders, tell: Tell = _unheard) -> bool:
    """Merge segments on disk; the imports are the child's."""
    _demand_mounted(folders, known_place(folders))
    from sysmond.archiver import merge_job  # noqa: PLC0415

    def pinned(made: int, refused: int) -> None:
        tell("pinned", made)
        tell("not_pinned", refused)

    before = _on_disk(folders)
    try:
        merge_job.merge(folders, pinned)
    finally:
        made = _on_disk(folders).items() - before.items()
        tell("files", len(made))
        tell("bytes", sum(size_bytes for _, size_bytes in made))
    return True


def _demand_mounted(folders: Folders, known: Location) -> None:
    if point := mounts.awaited(folders.state, known.point):
        raise Error(f"{point} is not mounted") from OSError(errno.ENODEV, "")


def _on_disk(folders: Folders) -> dict[str, int]:
    """Every file of the archive on disk, and its size."""
    sizes = {}
    places = [
        (sensitivity, tier, table)
        for sensitivity, table in archive.disk_folders(folders)
        for tier in (*TIERS_NS, EVENTS)
    ]
    for folder in (archive.disk_folder(folders, *place) for place in places):
        for file in archive.files(folder):
            with suppress(FileNotFoundError, CorruptError):
                sizes[f"{folder}/{file}"] = listing.look(f"{folder}/{file}").size_bytes
    return sizes


def empty(folders: Folders, tell: Tell = _unheard, paths: Sequence[str] = ()) -> bool:  # noqa: ARG001  as all jobs
    """Give up the rows of files in RAM, and tell of which in their place something says so."""
    from sysmond.archiver import seal_job  # noqa: PLC0415  as above

    for path in seal_job.empty(paths):
        tell(path, True)  # noqa: FBT003  a value, not an option
    return True


def pin(
    folders: Folders,
    tell: Tell = _unheard,  # noqa: ARG001  as all jobs
    added: "Sequence[Pin]" = (),
    released: "Sequence[Pin]" = (),
) -> bool:
    """Pin spans, and release others, for a user who may not write there: with the disk, which may hang."""
    from sysmond.store import pins  # noqa: PLC0415  as above

    for folder in (folders.state, pins.waiting(folders)) if released else ():
        if os.path.isdir(folder):
            pins.remove(folder, lambda there: there in released)
    if added:
        pins.add(folders.state if os.path.isdir(folders.state) else pins.waiting(folders), added)
    return True


# Jobs of one place follow each other.
PLACES: dict[Job, str] = {seal: "rings", flush: "disk", merge: "disk", empty: "rings", pin: "pins"}


def known_place(folders: Folders) -> Location:
    """Where the state folder lay when it was last written in this boot."""
    try:
        return note.read(f"{folders.runtime}/archiver/{PLACE_FILE}", _place)
    except (OSError, CorruptError):
        return Location("")


def _place(noted: dict[str, Any]) -> Location:
    return Location(note.text(noted["point"]), tuple(map(note.text, note.array(noted["disks"]))))


def _remember(folders: Folders, place: Location) -> None:
    note.write(f"{folders.runtime}/archiver/{PLACE_FILE}", place._asdict())


class Done(NamedTuple):
    """A job that came to its end, and what was said of it: see ``Running.end``."""

    job: Job
    report: dict[str, object]
    duration_s: float


class Running:
    """A child: which job it does now, since when, until when it may, what it has said, and what follows."""

    __slots__ = ("began_s", "begins_idle", "child", "idle", "is_late", "jobs", "killed", "limit_s", "message", "report")

    def __init__(self, jobs: Sequence[Job], child: int, report: int, limit_s: float, *, idle: bool) -> None:
        """Nothing is told yet."""
        self.jobs = list(jobs)
        self.child = child
        self.report = report
        self.began_s = time.monotonic()
        self.limit_s = self.began_s + limit_s
        self.begins_idle = self.idle = idle
        self.killed = False
        self.is_late = False
        self.message = b""

    @property
    def job(self) -> Job:
        """What it does now."""
        return self.jobs[0]

    def kill(self, *, is_late: bool = False) -> None:
        """End it; the kernel may hold it for longer. ``is_late``: because it does not come to an end."""
        self.killed = True
        self.is_late = is_late and self._hangs()
        self.limit_s = time.monotonic()
        os.kill(self.child, signal.SIGKILL)
        with suppress(OSError):  # Even dying takes processor time, which an idle process may wait for for long.
            os.sched_setscheduler(self.child, os.SCHED_OTHER, os.sched_param(0))

    def _hangs(self) -> bool:
        """Whether it waits for something or spins, rather than for a processor, for memory or for the disk."""
        try:
            with open(f"/proc/{self.child}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return False
        spent_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime (proc(5))
        return fields[0] == "S" or spent_s > SPINS_FRACTION * (time.monotonic() - self.began_s)

    def promote(self) -> bool:
        """Let it go on at normal priority, as far as the kernel lets us; whether it does."""
        try:
            os.sched_setscheduler(self.child, os.SCHED_OTHER, os.sched_param(0))
        except OSError:
            return False
        self.idle = False
        return True

    def is_stuck(self, now_s: float) -> bool:
        """Whether it was killed and is there all the same."""
        return self.killed and now_s > self.limit_s + KILLED_S

    def listen(self) -> bool:
        """Take what it tells; whether that was all."""
        content = os.read(self.report, REPORT_BYTES_MAX)
        self.message += content
        return not content

    def goes_on(self) -> Done | None:
        """Where it has told that it is at the next job: what it has done before that. Else None."""
        said, line, rest = self.message.partition(GOES_ON)
        if not line:
            return None
        now_s = time.monotonic()
        done = Done(self.jobs.pop(0), _parsed(said), now_s - self.began_s)
        self.message, self.began_s = rest, now_s
        if not self.killed:
            self.idle = self.begins_idle
        return done

    def end(self) -> dict[str, object]:
        """Collect the child and give what it told; ``problem`` is what went wrong, if anything did.

        ``is_outside``: and whether that had nothing to do with the data: no room, no memory, a signal from somebody.
        ``is_gone``: and whether the file system is not there to be written to.
        """
        os.close(self.report)
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        report = _parsed(self.message)
        if code < 0:
            report["is_outside"] = -code in OUTSIDE_SIGNALS
            report["problem"] = f"killed by {signal.Signals(-code).name}"
            if self.is_late:
                report |= {"is_outside": False, "problem": f"did not end in {time.monotonic() - self.began_s:.0f} s"}
        elif code:
            report.setdefault("problem", f"exit code {code}")
        return report


def _parsed(message: bytes) -> dict[str, object]:
    report: dict[str, object] = {}
    for line in message.splitlines():
        with suppress(CorruptError):  # A child that is killed may leave half a line.
            report.update(note.parse(line, note.fields))
    return report


def start(jobs: Jobs, folders: Folders, limit_s: float, *, idle: bool, lock: int) -> Running:
    """Do jobs in a child. ``limit_s``: how long the first may take. ``lock``: held here, and by jobs on rings, too.

    :raises OSError: where there can be no child now.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child == 0:
        _be(jobs, folders, writing, parent, lock, idle=idle)
    os.close(writing)
    return Running(list(jobs), child, reading, limit_s, idle=idle)


def _be(jobs: Jobs, folders: Folders, report: int, parent: int, lock: int, *, idle: bool) -> None:
    """Do the jobs and end; never returns. Where one fails, or leaves nothing to do, those after it are not done."""
    code = 0

    def tell(name: str, value: object) -> None:
        os.write(report, json.dumps({name: value}).encode("utf-8", "replace") + b"\n")

    try:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # The archiver decides when a job is over.
        signal.set_wakeup_fd(-1)
        _die_with(parent)
        with ExitStack() as locks:
            before = ""
            for job, options in jobs.items():
                if before:
                    os.write(report, GOES_ON)
                if before != PLACES[job]:
                    _enter(PLACES[job], folders, lock, locks)
                before = PLACES[job]
                if idle:
                    # Also puts its disk requests into the idle class, as long as none is set (ioprio_set(2)).
                    with suppress(OSError):
                        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                with memory.bounded():
                    if not job(folders, tell, **options):
                        break
    except BaseException as failure:  # noqa: BLE001  whatever it was, the archiver hears of it and the child ends
        code = 1
        is_bound = isinstance(failure, memory.BoundError)
        tell("is_outside", isinstance(failure, (OSError, MemoryError)) and not is_bound)
        reason = failure if isinstance(failure, OSError) else failure.__cause__
        tell("is_gone", isinstance(reason, OSError) and reason.errno in GONE)
        spelled = f"{type(failure).__name__}: {failure}"
        if isinstance(failure, (Error, OSError)) or is_bound:
            spelled = refusal(failure) if isinstance(failure, OSError) else str(failure)
        tell("problem", " ".join(spelled.split())[: REPORT_BYTES_MAX // 2])
    finally:
        os._exit(code)


def _enter(place: str, folders: Folders, lock: int, locks: ExitStack) -> None:
    """Be a job of a place, and of none before it."""
    if place != "rings":
        # The disk may hold this process for ever; that must not keep a new archiver from sealing.
        os.close(lock)
    if place == "disk":
        locks.enter_context(only_one(f"{folders.runtime}/archiver", name=DISK_LOCK, wait_s=KILLED_S))


def _die_with(parent: int) -> None:
    """Have the kernel kill this child when the archiver dies (prctl(2)): a new archiver does its job again."""
    import ctypes  # noqa: PLC0415  the child's

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
