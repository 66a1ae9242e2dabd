# SPDX-License-Identifier: Apache-2.0
"""The archiver: decides when rings are sealed and segments flushed, and has a child do it.

It waits at normal priority with the standard library alone. A job runs at idle priority, and once more
at normal priority where it does not come to its end in time or at shutdown.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sysmond import archive, control, own
from sysmond.errors import Error
from sysmond.folders import Folders, create_classes
from sysmond.lock import only_one
from sysmond.model import Sensitivity
from sysmond.plan import Plan
from sysmond.progress import Progress, ring_files
from sysmond.ring import fill
from sysmond.settings import Settings

# How often the archiver looks at the rings; it wakes for nothing else but orders.
LOOK_S = 60.0
# A ring that is filling faster than planned is sealed at once when this much of it is not yet sealed.
UNSEALED_FRACTION_MAX = 0.5
# A job at idle priority that is not done by then is started again at normal priority.
IDLE_JOB_S = 60.0
# A job that does not end at all is killed: the disk hangs, or the library does.
JOB_S = 600.0
FLUSH_RETRY_S = 60.0
LOCK_WAIT_S = 30.0

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Job = Callable[[Folders], Any]


def seal(folders: Folders) -> None:
    """Seal the rings; the imports are the child's."""
    from sysmond import jobs  # noqa: PLC0415

    jobs.seal(folders)


def merge(folders: Folders) -> None:
    """Merge segments on disk; the imports are the child's."""
    from sysmond import jobs  # noqa: PLC0415

    jobs.merge(folders)


class Archiver:
    """Waits, decides, starts jobs."""

    def __init__(self, settings: Settings, plan: Plan, say: Callable[[str], None]) -> None:
        """Prepare the folders in RAM; the state folder may come later."""
        self._folders = settings.folders
        self._settings = plan.archiver
        self._say = say
        self._folder = f"{self._folders.runtime}/archiver"
        now_s = time.monotonic()
        self._seal_due_s = now_s + self._settings.seal_interval_s
        self._flush_due_s = now_s + self._settings.flush_interval_s
        self._said = ""
        self._stopping = False
        self._lifeline = [] if settings.lifeline is None else [settings.lifeline]

    def run(self) -> int:
        """Work until told to stop (SIGTERM, SIGINT, the end of the parent); then seal and flush everything."""
        for sensitivity in Sensitivity:
            archive.remove_temporary(archive.ram_folder(self._folders, sensitivity))
        woken = _wake_on(STOP_SIGNALS)
        self._seal()  # What earlier incarnations left behind.
        with control.listen(self._folder) as orders:
            while True:
                wait_s = min(self._seal_due_s, self._flush_due_s, time.monotonic() + LOOK_S) - time.monotonic()
                ready, _, _ = select.select([woken, *self._lifeline, *orders.descriptors()], [], [], max(0.0, wait_s))
                if woken in ready or not set(self._lifeline).isdisjoint(ready):
                    break
                orders.serve(self._obey)
                now_s = time.monotonic()
                if now_s >= self._seal_due_s or self._ring_time_runs_short():
                    self._seal()
                if now_s >= self._flush_due_s or self._ram_is_full():
                    self._flush()
        self._stopping = True
        self._seal()
        self._flush()
        return 0

    def _obey(self, order: dict[str, object]) -> dict[str, object]:
        """Carry out an order from the control socket."""
        match order.get("do"):
            case "seal":
                return {"ok": self._seal()}
            case "flush":
                return {"ok": self._seal() and self._flush()}
            case other:
                return {"error": f"{other!r} is not an order; 'seal' and 'flush' are"}

    def _ring_time_runs_short(self) -> bool:
        progress = Progress.read(self._folders)
        for path in ring_files(self._folders):
            with suppress(OSError, Error):
                head, capacity = fill(path)
                done = progress.sealed[path].offset if path in progress.sealed else 0
                if head - done > capacity * UNSEALED_FRACTION_MAX:
                    return True
        return False

    def _ram_is_full(self) -> bool:
        if time.monotonic() < self._flush_due_s - self._settings.flush_interval_s + FLUSH_RETRY_S:
            return False  # The disk refused a moment ago.
        return self._ram_bytes() > self._settings.ram_bytes

    def _ram_bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self._ram_segments())

    def _ram_segments(self) -> list[str]:
        return [
            f"{folder}/{name.file}"
            for sensitivity in Sensitivity
            for folder in [archive.ram_folder(self._folders, sensitivity)]
            for name in archive.names(folder)
        ]

    def _seal(self) -> bool:
        self._seal_due_s = time.monotonic() + self._settings.seal_interval_s
        if not ring_files(self._folders):
            return True
        problem = self._job(seal)
        if problem:
            self._say(f"sealing failed: {problem}; the ring keeps what it has, tried again later")
            return False
        self._forget_rings()
        return True

    def _forget_rings(self) -> None:
        """Ask the writers to remove their predecessors' rings that are in segments as a whole."""
        for path, sealed in Progress.read(self._folders).sealed.items():
            folder, sensitivity, ring = path.rsplit("/", 2)
            try:
                head, _ = fill(path)
            except (OSError, Error):
                continue
            if head == sealed.offset and path != max(
                p for p in ring_files(self._folders) if p.startswith(f"{folder}/{sensitivity}/")
            ):
                with suppress(Error):  # It is not there just now; the next seal asks again.
                    control.ask(folder, {"do": "forget", "ring": ring, "sensitivity": sensitivity}, timeout_s=2.0)

    def _flush(self) -> bool:
        now_s = time.monotonic()
        self._flush_due_s = now_s + self._settings.flush_interval_s
        if not self._ram_segments():
            return True
        try:
            create_classes(self._folders.state, archive.FINEST_TIER)
        except Error as failure:
            problem = str(failure)
        else:
            problem = self._job(archive.flush)
        if problem:
            self._flush_due_s = now_s + FLUSH_RETRY_S
            if problem != self._said:
                self._say(
                    f"not flushed to {self._folders.state}: {problem}; recording goes on in RAM, flushed when it can"
                )
            self._said = problem
            self._make_room()
            return False
        if self._said:
            self._say(f"flushed to {self._folders.state} again")
        self._said = ""
        if (
            any(
                len(archive.names(archive.disk_folder(self._folders, sensitivity))) >= archive.MERGE_FANOUT
                for sensitivity in Sensitivity
            )
            and not self._stopping
        ):
            failed = self._job(merge)
            if failed:
                self._say(f"merging failed: {failed}; the segments stay as they are")
        return True

    def _make_room(self) -> None:
        """Give up the oldest segments in RAM when the disk refuses for so long that they outgrow their budget."""
        dropped = 0
        while self._ram_bytes() > self._settings.ram_bytes:
            os.unlink(min(self._ram_segments(), key=os.path.basename))
            dropped += 1
        if dropped:
            self._say(f"RAM for segments is full: {dropped} of the oldest given up")

    def _job(self, job: Job) -> str:
        """Run a job in a child; give what went wrong, or nothing."""
        if not self._stopping:
            problem = self._attempt(job, IDLE_JOB_S, idle=True)
            if problem is not None:
                return problem
        problem = self._attempt(job, JOB_S, idle=False)
        return f"it did not end within {JOB_S:.0f} s" if problem is None else problem

    def _attempt(self, job: Job, limit_s: float, *, idle: bool) -> str | None:
        """Run a job in a child for at most ``limit_s``; None when it had to be killed."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_the_job(job, self._folders, writing, idle=idle)
        os.close(writing)
        try:
            ready, _, _ = select.select([reading], [], [], limit_s)
            message = os.read(reading, 4096).decode("utf-8", "replace") if ready else ""
        finally:
            os.close(reading)
        if not ready:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not ready:
            return None
        if os.WIFSIGNALED(status):
            return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return message or ("" if status == 0 else f"exit code {os.waitstatus_to_exitcode(status)}")


def _be_the_job(job: Job, folders: Folders, report: int, *, idle: bool) -> None:
    """Do the job and end; never returns."""
    code = 0
    try:
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # The archiver decides when a job is over.
        if idle:
            # Also puts its disk requests into the idle class, as long as none is set (ioprio_set(2)).
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        job(folders)
    except BaseException as failure:  # noqa: BLE001  whatever it was, the archiver hears of it and the child ends
        code = 1
        line = " ".join(f"{type(failure).__name__}: {failure}".split())
        os.write(report, line.encode("utf-8", "replace")[:2000])
    finally:
        os._exit(code)


def _wake_on(signals: tuple[signal.Signals, ...]) -> int:
    """Make signals readable on a descriptor."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    return reading


def run(settings: Settings, plan: Plan, say: Callable[[str], None]) -> int:
    """Be the archiver until told to stop."""
    folder = f"{settings.folders.runtime}/archiver"
    create_classes(folder)
    with only_one(folder, LOCK_WAIT_S):
        own.write_pid(folder)
        return Archiver(settings, plan, say).run()
