# SPDX-License-Identifier: Apache-2.0
"""Processes and threads by /proc: where BPF is unavailable, and for users without privileges.

For most processes one number is read, which shows whether they used a CPU. Where sysmond lives in the pid
namespace that /proc shows, that is the clock of the process (``clock_getcpuclockid``): the CPU time of all its threads,
those that ended included, in ns, readable by everybody, at half the cost of reading an open descriptor. Elsewhere it is
``schedstat``, which counts the first thread only; for a process with several, ``stat``.

What changes without the process running (its cgroup, memory taken from it) is seen when its turn comes.

``cpu`` never falls. By the clock it is exact; without, it is that of ``schedstat`` for as long as there is one thread,
then the whole ticks that ``stat`` counts for all. What the kernel counts by thread alone (``run_delay``,
``block_delay``, switches) is absent for a process with several, unless threads are read; whose bytes are its own
``moved`` finds out. ``io`` is left alone in the
first second of a process: it would wait while that executes a program and takes down its old memory.
"""

import errno
import os
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic_ns, sleep
from typing import Final, NamedTuple

from sysmond.base.model import ABSENT
from sysmond.records import Records
from sysmond.tasks.pass_result import TASKS_MAX, PassResult
from sysmond.tasks.proc import text
from sysmond.tasks.proc.cgroups import CgroupNumbers
from sysmond.tasks.proc.files import CGROUP, IO, SCHEDSTAT, STAT, STATUS, SYSCALL, WCHAN, Task, TaskFiles
from sysmond.tasks.proc.ids import NewPids, clock_of
from sysmond.tasks.proc.moved import UNKNOWN_MOVES, IoContext, OwnBytes, ThreadBudget
from sysmond.tasks.proc.rows import (
    UNKNOWN,
    Private,
    ThreadCounts,
    Whose,
    measures,
    private_record,
    process_record,
    thread_record,
)
from sysmond.tasks.proc.text import TaskStat, TaskStatus
from sysmond.tasks.proc.threads import Circumstances, Threads, counted

# Each takes about 5 kB in the kernel.
DESCRIPTORS = 1024
# After so many readings a process is read again though it did not move; not all at the same reading.
REFRESH_EVERY = 150
# One that moved within so many readings is likely to move again: its files are kept open.
KEEP_READINGS = 10
YOUNG_NS = 1_000_000_000
# The first reading is long: naps let others run, and keep it below the limit of real-time CPU on a slow machine.
NAP_AFTER_NS = 20_000_000
NAP_S = 0.001
DESCRIPTORS_LISTED_MAX = 1024

_DELAY_ACCOUNTING = "sys/kernel/task_delayacct"
_SHORT = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_WAITS = frozenset((b"S", b"D", b"T", b"t"))


class _Process(Task):
    """A process as it was last read. ``pulse``: changes when it runs; ``several``: it has, or had, threads."""

    __slots__ = (
        *(
            "cgroup",
            "clock",
            "comm",
            "cpu_us",
            "descriptors",
            "moved_at",
            "own_bytes",
            "namespace",
            "pid",
            "ppid",
            "private",
        ),
        *("pulse", "record", "several", "start_ns", "thread", "threads", "turn", "uid"),
    )

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pid: Final = int(name)
        self.clock: Final = clock_of(self.pid)
        self.turn: Final = self.pid % REFRESH_EVERY
        self.pulse: int | bytes = -1
        self.start_ns = self.ppid = self.uid = -1
        self.moved_at = -KEEP_READINGS - 1
        self.own_bytes: Final = OwnBytes(name)
        self.comm = b""
        self.cgroup = ABSENT
        self.cpu_us = 0
        self.namespace = self.descriptors = -1
        self.several = False
        self.record = self.private = self.thread = b""
        self.threads: Threads | None = None


class _Rows(NamedTuple):
    process: list[bytes]
    thread: list[bytes]
    private: list[bytes]


class Proc:
    """Goes over all tasks of the machine below a root."""

    def __init__(self, root: str = "/", descriptors: int = DESCRIPTORS) -> None:
        """Keep at most so many descriptors.

        :raises OSError: where there is no /proc.
        """
        root = root.rstrip("/")
        files = TaskFiles(f"{root}/proc", descriptors)
        self._numbers = NewPids(files.top)
        self._around = Circumstances(files, CgroupNumbers(root), accounts_delays=True)
        self._known: dict[str, _Process] = {}
        self._young: set[str] = set()
        self._readings = -1
        self._with_threads = False
        self._rows = _Rows([], [], [])
        self._room = ThreadBudget()
        self._lost = self._threads = 0
        self._now_ns = self._rested_ns = 0

    def close(self) -> None:
        """Close every file."""
        for name in list(self._known):
            self._drop(name)
        self._numbers.close()
        self._around.files.close()

    def take(self, *, full: bool, threads: bool) -> PassResult:
        """Read the processes that ran; give the records that changed, or all.

        :raises OSError: where /proc cannot be listed.
        """
        self._readings += 1
        full = full or self._readings == 0
        self._begin(look_again=full)
        every = threads is not self._with_threads
        self._with_threads = threads
        names = self._numbers.candidates(len(self._known), is_full=len(self._known) >= TASKS_MAX)
        moved, gone = self._moved()
        for name in gone:
            self._drop(name)
        due = self._due({int(name) for name in gone}, every=every)
        for process in due.values():
            self._visit(process, whole=True)
        for process in moved:
            if process.folder not in due:
                self._visit(process, whole=False)
            process.moved_at = self._readings
        for name in names:
            if name not in self._known:
                self._meet(name)
        return self._result(full=full)

    def _begin(self, *, look_again: bool) -> None:
        if look_again:
            self._around.cgroups.look_again()
            self._around = self._around._replace(accounts_delays=self._accounts_delays())
        self._around.cgroups.new_reading()
        self._now_ns = clock_gettime_ns(CLOCK_BOOTTIME)
        self._rows = _Rows([], [], [])
        self._lost = 0
        self._rested_ns = monotonic_ns()
        if self._readings:
            self._room.new_pass()

    def _result(self, *, full: bool) -> PassResult:
        processes, rows = self._known.values(), self._rows
        with_several = [process.threads for process in processes if process.threads is not None]
        if full:
            rows = _Rows(
                [process.record for process in processes],
                [process.thread for process in processes if process.threads is None],
                [process.private for process in processes],
            )
            for threads in with_several:
                rows.thread.extend(threads.records())
        lost, walked = self._lost, len(processes) + self._lost
        thread = None
        if self._with_threads:
            threads_lost = lost + sum(threads.lost for threads in with_several)
            known = len(processes) - len(with_several) + sum(map(len, with_several))
            self._threads = known
            thread = Records(b"".join(rows.thread), full, threads_lost, known + threads_lost)
        return PassResult(
            Records(b"".join(rows.process), full, lost, walked),
            thread,
            Records(b"".join(rows.private), full, lost, walked),
        )

    def _moved(self) -> tuple[list[_Process], list[str]]:
        """Find the processes that used a CPU, and those that are gone."""
        moved: list[_Process] = []
        gone: list[str] = []
        clock = clock_gettime_ns
        if not self._numbers.is_ours:
            for process in self._known.values():
                try:
                    pulse = self._pulse(process)
                except OSError:
                    gone.append(process.folder)
                else:
                    if pulse != process.pulse:
                        process.pulse = pulse
                        moved.append(process)
            return moved, gone
        for process in self._known.values():
            try:
                now = clock(process.clock)
            except OSError:
                gone.append(process.folder)
            else:
                if now != process.pulse:
                    process.pulse = now
                    moved.append(process)
        return moved, gone

    def _pulse(self, process: _Process) -> int | bytes:
        if self._numbers.is_ours:
            return clock_gettime_ns(process.clock)
        files = self._around.files
        pulse = files.read_if_allowed(process, SCHEDSTAT, keep=True)
        if process.several or not text.is_counted(pulse):
            pulse += files.read(process, STAT, keep=True)
        return pulse

    def _due(self, gone: set[int], *, every: bool) -> dict[str, _Process]:
        """Choose the processes of which all files are read again."""
        known = self._known
        if every:
            due = dict(known)
        else:
            turn = self._readings % REFRESH_EVERY
            due = {name: known[name] for name in self._young if name in known}
            due.update(
                (process.folder, process) for process in known.values() if process.turn == turn or process.ppid in gone
            )
        self._young.clear()
        return due

    def _visit(self, process: _Process, *, whole: bool) -> None:
        """Read a known process, or the one that has its number now."""
        try:
            self._read(process, whole=whole)
        except OSError:
            self._drop(process.folder)
            self._meet(process.folder)
        except ValueError:
            self._drop(process.folder)
            self._lost += 1

    def _meet(self, name: str) -> None:
        """Read a new process; skip it where it has ended meanwhile, or is hidden."""
        if len(self._known) >= TASKS_MAX:
            self._lost += 1
            return
        process = _Process(name)
        try:
            process.pulse = self._pulse(process)
            self._read(process, whole=True)
            self._known[name] = process
        except OSError as failure:
            self._shut(process)
            self._lost += failure.errno in _SHORT
        except ValueError:
            self._shut(process)
            self._lost += 1

    def _drop(self, name: str) -> None:
        self._shut(self._known.pop(name))

    def _shut(self, process: _Process) -> None:
        self._around.files.shut(process)
        process.own_bytes.close(self._around.files)
        if process.threads is not None:
            process.threads.close(self._around.files)

    def _read(self, process: _Process, *, whole: bool) -> None:
        """Read the files of a process; note the records that changed.

        :raises OSError: where it is gone, or another has its number. :raises ValueError: where a file cannot be parsed.
        """
        files = self._around.files
        keep = self._readings - process.moved_at <= KEEP_READINGS
        if whole:
            self._nap()
            if not keep:
                files.shut(process)
                process.own_bytes.close(files)
        several = process.several or not self._numbers.is_ours  # By files nobody knows.
        before = None  # A child that it has waited for by then is in what stat says later.
        if not several and process.start_ns >= 0 and self._now_ns - process.start_ns >= YOUNG_NS:
            before = text.io(files.read_if_allowed(process, IO, keep=keep))
        stat = text.stat(files.read(process, STAT, keep=keep))
        if process.start_ns not in {-1, stat.start_ns}:
            raise ProcessLookupError(errno.ESRCH, "another process has its number")
        process.start_ns = stat.start_ns
        status = text.status(files.read(process, STATUS, keep=keep))
        is_young = self._now_ns - stat.start_ns < YOUNG_NS
        if is_young:
            self._young.add(process.folder)
        if whole or stat.comm != process.comm:  # It executed another program: it may have been put elsewhere.
            process.cgroup = self._around.cgroups.number(files.read(process, CGROUP), process.cgroup)
        process.ppid, process.comm, process.uid = stat.ppid, stat.comm, status.uid
        whose = Whose(stat.start_ns, process.pid, stat.ppid, status.uid, process.cgroup)
        alone = self._count(process, stat, status, whose, whole=whole, keep=keep)
        moved = UNKNOWN_MOVES
        if not is_young:
            context = IoContext(several or process.several, keep, before, lambda: self._pulse(process) != process.pulse)
            moved = process.own_bytes.read(process, stat, files, self._room, context)
        measured = measures(stat, status, moved.own, process.cpu_us, alone)
        rows = self._rows
        process.record = _noted(rows.process, process.record, process_record(whose, measured, moved))
        if self._with_threads and process.threads is None:
            process.thread = _noted(rows.thread, process.thread, thread_record(whose, process.pid, measured))
        if whole:
            process.namespace = files.pid_namespace(process)
            process.descriptors = files.count_descriptors(process, DESCRIPTORS_LISTED_MAX)
        syscall, wait = self._waits(process, stat, keep=keep) if not is_young else (-1, b"")
        private = Private(status.namespace_pid, process.namespace, process.descriptors, syscall, wait)
        process.private = _noted(rows.private, process.private, private_record(whose, private))

    def _count(
        self, process: _Process, stat: TaskStat, status: TaskStatus, whose: Whose, *, whole: bool, keep: bool
    ) -> ThreadCounts:
        """Bring the CPU time up to date; give what the kernel counts by thread only."""
        scheduled = self._around.files.read_if_allowed(process, SCHEDSTAT, keep=keep)
        run_us, alone = counted(scheduled, stat, status, self._around)
        pulse_us = process.pulse // 1000 if isinstance(process.pulse, int) else ABSENT
        # The clock, read before, shows more than its one thread used: there were others.
        process.several |= stat.threads > 1 or (pulse_us > run_us and text.is_counted(scheduled))
        if process.threads is not None and not self._with_threads:
            process.threads.close(self._around.files)
            process.threads = None
        if process.several:
            run_us, alone = stat.user_us + stat.system_us, UNKNOWN
            if self._with_threads:
                alone = self._read_threads(process, stat, whose, whole=whole)
        process.cpu_us = max(process.cpu_us, run_us if pulse_us == ABSENT else pulse_us)
        return alone

    def _read_threads(self, process: _Process, stat: TaskStat, whose: Whose, *, whole: bool) -> ThreadCounts:
        if process.threads is None:
            process.threads, process.thread = Threads(process), b""
        before = len(process.threads)
        room = TASKS_MAX - self._threads + before
        alone = process.threads.read(whose, stat.threads, room, self._around, whole=whole)
        self._threads += len(process.threads) - before
        self._rows.thread.extend(process.threads.changed())
        return alone

    def _waits(self, process: _Process, stat: TaskStat, *, keep: bool) -> tuple[int, bytes]:
        """Give the system call that its first thread is in, and where in the kernel that waits."""
        if stat.state not in _WAITS:
            return -1, b""
        files = self._around.files
        wait = text.wait(files.read_if_allowed(process, WCHAN, keep=keep))
        if not wait:  # It is hidden from us, and would be the next time.
            process.refused |= 1 << WCHAN
        if not stat.virtual:  # The kernel's own.
            return -1, wait
        return text.syscall(files.read_if_allowed(process, SYSCALL, keep=keep)), wait

    def _nap(self) -> None:
        if monotonic_ns() - self._rested_ns >= NAP_AFTER_NS:
            sleep(NAP_S)
            self._rested_ns = monotonic_ns()

    def _accounts_delays(self) -> bool:
        """Whether the kernel counts waits for block I/O; before Linux 5.14 it always did, and had no such file."""
        try:
            descriptor = os.open(_DELAY_ACCOUNTING, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._around.files.top)
        except OSError:
            return True
        try:
            return os.read(descriptor, 16).strip() != b"0"
        finally:
            os.close(descriptor)


def _noted(rows: list[bytes], before: bytes, record: bytes) -> bytes:
    """Add a record where it differs from the one before."""
    if record == before:
        return before
    rows.append(record)
    return record
