# SPDX-License-Identifier: Apache-2.0
"""What threads are doing at this moment, by /proc: rows of ``thread_state`` where BPF is unavailable.

Only processes that used a CPU since the reading before, or were busy then, are looked at: a thread that neither ran
meanwhile nor waited uninterruptibly before does so now only if it has been woken and waits for a CPU.

Looking ends when its time is up: the threads left are counted, and come first at the next reading.
"""

import os
from collections.abc import Generator
from contextlib import suppress
from itertools import islice
from struct import Struct
from time import CLOCK_BOOTTIME, clock_gettime_ns, perf_counter_ns
from typing import Final, NamedTuple

from sysmond.base.model import ABSENT
from sysmond.records import Records
from sysmond.tasks.pass_result import TASKS_MAX
from sysmond.tasks.proc import text
from sysmond.tasks.proc.cgroups import CgroupNumbers
from sysmond.tasks.proc.files import CGROUP, STACK, STAT, STATUS, SYSCALL, WCHAN, Task, TaskFiles
from sysmond.tasks.proc.ids import NewPids, clock_of
from sysmond.tasks.tables import ABSENT_U32, THREAD_STATE

# How long a reading may look at threads; listing /proc, seldom done, comes on top.
LOOK_NS = 20_000_000
# How often user and cgroup of a busy process are read.
OWNER_NS = 5_000_000_000
# ``syscall`` and ``stack`` wait while a process executes a program: they are left alone in its first second.
YOUNG_NS = 1_000_000_000
# Running, or waiting uninterruptibly; the rest only where all are wanted.
BUSY = frozenset((b"R", b"D"))
# Reading a clock takes about a microsecond: the time is checked after so many processes.
_CLOCKS = 64
# A prime number; what is beyond 2**62 is not recorded.
_STACKS = (1 << 61) - 1
_RECORD = Struct(THREAD_STATE.packing.format if THREAD_STATE.packing else "")


class _Process(Task):
    """A process as it was last seen. ``pulse``: its CPU time then."""

    __slots__ = ("cgroup", "clock", "is_busy", "owner_ns", "pid", "pulse", "start_ns", "uid")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pid: Final = int(name)
        self.clock: Final = clock_of(self.pid)
        self.pulse = -1
        self.is_busy = True  # As far as is known.
        self.uid, self.cgroup = ABSENT_U32, ABSENT
        self.start_ns, self.owner_ns = -1, -OWNER_NS


class _Unfinished(NamedTuple):
    """A process with more threads than there was time for. ``names``: of the threads left."""

    process: _Process
    names: Generator[str]


class Looks:
    """Looks at the threads of the machine below a root."""

    def __init__(self, root: str = "/", look_ns: int = LOOK_NS) -> None:
        """Look for at most so long a reading.

        :raises OSError: where there is no /proc.
        """
        root = root.rstrip("/")
        self._files = TaskFiles(f"{root}/proc", 0)
        self._numbers = NewPids(self._files.top)
        self._cgroups = CgroupNumbers(root)
        self._look_ns = look_ns
        self._known: dict[str, _Process] = {}
        self._unfinished: _Unfinished | None = None
        self._now_ns = self._until_ns = 0
        self._rows: list[bytes] = []
        self._stacks: dict[int, str] = {}
        self._walked = 0

    def close(self) -> None:
        """Close every file."""
        self._finish()
        self._numbers.close()
        self._files.close()

    def take(self, *, full: bool, every: bool = False) -> tuple[Records, dict[int, str]]:
        """Look at threads: rows of those that run or wait uninterruptibly, or of ``every``; and stacks by number.

        Stacks are those of threads that wait uninterruptibly, where they may be read: the functions, innermost first, a
        line each. ``full``: as by BPF; /proc gives every stack at every reading. ``lost``: threads not looked at;
        a process that was not reached counts as one.

        :raises OSError: where /proc cannot be listed.
        """
        if full:
            self._cgroups.look_again()
        self._cgroups.new_reading()
        known = self._known
        names = self._numbers.candidates(len(known), is_full=len(known) >= TASKS_MAX)
        new = [name for name in names if name not in known]
        room = TASKS_MAX - len(known)
        known.update((name, _Process(name)) for name in new[:room])
        self._now_ns = clock_gettime_ns(CLOCK_BOOTTIME)
        self._until_ns = perf_counter_ns() + self._look_ns
        self._rows, self._stacks, self._walked = [], {}, 0
        lost = self._look(every=every) + len(new[room:])
        rows = self._rows[:TASKS_MAX]
        lost += len(self._rows) - len(rows)
        return Records(b"".join(rows), full=True, lost=lost, walked=self._walked + lost), self._stacks

    def _look(self, *, every: bool) -> int:
        """Look at processes that may be busy, until time is up; return how many were not looked at."""
        known = self._known
        gone: list[str] = []
        lost = number = 0
        for number, process in enumerate(known.values(), 1):
            looked = False
            try:
                looked = self._may_be_busy(process) or every
                if looked:
                    lost += self._process(process, every=every)
            except (FileNotFoundError, ProcessLookupError):
                gone.append(process.folder)
                if self._unfinished is not None and self._unfinished.process is process:
                    self._finish()
            except ValueError:  # Not the stat of a known kernel.
                lost += 1
            if (looked or number % _CLOCKS == 0) and perf_counter_ns() >= self._until_ns:
                break
        if number < len(known) or self._unfinished is not None:  # The next reading begins where this one ends.
            lost += len(known) - number
            for name in list(islice(known, number - (self._unfinished is not None))):
                known[name] = known.pop(name)
        for name in gone:
            del known[name]
        return lost

    def _may_be_busy(self, process: _Process) -> bool:
        if not self._numbers.is_ours:
            return True  # Clocks are those of other processes.
        try:
            pulse = clock_gettime_ns(process.clock)
        except OSError:
            raise ProcessLookupError from None
        moved, process.pulse = pulse != process.pulse, pulse
        is_unfinished = self._unfinished is not None and self._unfinished.process is process
        return moved or process.is_busy or is_unfinished

    def _process(self, process: _Process, *, every: bool) -> int:
        """Look at the threads of a process; return how many there was no time for.

        :raises OSError: where it is gone. :raises ValueError: where its stat cannot be parsed.
        """
        stat = text.stat(self._files.read(process, STAT))
        if stat.start_ns != process.start_ns:  # Another process has its number.
            process.start_ns, process.owner_ns = stat.start_ns, -OWNER_NS
        if stat.threads > 1:
            return self._threads(process, stat.threads, every=every)
        process.is_busy = self._thread(process, process, stat, every=every)
        return 0

    def _threads(self, process: _Process, threads: int, *, every: bool) -> int:
        """Look at the threads of a process, or go on where the reading before had no more time."""
        is_whole = self._unfinished is None or self._unfinished.process is not process
        if self._unfinished is None or is_whole:
            self._finish()
            self._unfinished = _Unfinished(process, _listed(self._files.top, f"{process.folder}/task"))
            process.is_busy = False
        looked = 0
        for name in self._unfinished.names:
            with suppress(FileNotFoundError, ProcessLookupError):
                thread = Task(f"{process.folder}/task/{name}")
                stat = text.stat(self._files.read(thread, STAT))
                process.is_busy |= self._thread(process, thread, stat, every=every)
            looked += 1
            if looked < threads and perf_counter_ns() >= self._until_ns:
                break
        else:
            self._finish()
            if is_whole:  # Threads that it had when its stat was read may have ended.
                return 0
        return max(0, threads - looked)

    def _finish(self) -> None:
        if self._unfinished is not None:
            self._unfinished.names.close()
            self._unfinished = None

    def _thread(self, process: _Process, thread: Task, stat: text.TaskStat, *, every: bool) -> bool:
        """Record what a thread is doing; return whether it is busy.

        :raises OSError: where it is gone.
        """
        self._walked += 1
        if not every and stat.state not in BUSY:
            return False
        files = self._files
        if self._now_ns - process.owner_ns >= OWNER_NS:
            process.owner_ns = self._now_ns
            process.uid = text.status(files.read(process, STATUS)).uid
            process.cgroup = self._cgroups.number(files.read(process, CGROUP), process.cgroup)
        syscall, wait, stack = -1, b"", ABSENT
        if stat.state != b"R":
            wait = text.wait(files.read_if_allowed(thread, WCHAN))
            is_young = self._now_ns - stat.start_ns < YOUNG_NS
            if stat.virtual and not is_young:
                syscall = text.syscall(files.read_if_allowed(thread, SYSCALL))
            if stat.state == b"D" and not is_young:
                stack = self._stack(text.stack(files.read_if_allowed(thread, STACK)))
        tid = int(thread.folder.rpartition("/")[2])
        owner = process.uid, syscall, process.cgroup
        self._rows.append(_RECORD.pack(stat.start_ns, process.pid, tid, *owner, stat.comm, stat.state, wait, stack))
        return True

    def _stack(self, functions: str) -> int:
        """Give the number of a stack, which follows from its text."""
        if not functions:
            return ABSENT
        number = int.from_bytes(functions.encode(), "big") % _STACKS
        self._stacks[number] = functions
        return number


def _listed(top: int, folder: str) -> Generator[str]:
    """List a folder little by little: to list ten thousand threads takes as long as to look at a thousand.

    :raises OSError: where it is gone.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
    try:
        entries = os.scandir(descriptor)
    finally:
        os.close(descriptor)
    with entries:
        for entry in entries:
            yield entry.name
