# SPDX-License-Identifier: Apache-2.0
"""The threads of a process that has, or had, several, by /proc: their numbers and counts."""

from contextlib import suppress
from typing import Final, NamedTuple

from sysmond.base.model import ABSENT
from sysmond.tasks.proc import text
from sysmond.tasks.proc.cgroups import CgroupNumbers
from sysmond.tasks.proc.files import CGROUP, IO, SCHEDSTAT, STAT, STATUS, Task, TaskFiles
from sysmond.tasks.proc.rows import NOTHING, ThreadCounts, Whose, measures, thread_record, total
from sysmond.tasks.proc.text import TaskStat, TaskStatus

# How the kernel says that a task has ended.
GONE = (FileNotFoundError, ProcessLookupError)


class Circumstances(NamedTuple):
    """What stays the same in a reading. ``accounts_delays``: the kernel counts how long tasks wait for block I/O."""

    files: TaskFiles
    cgroups: CgroupNumbers
    accounts_delays: bool


class _Thread(Task):
    """A thread as it was last read."""

    __slots__ = ("alone", "cgroup", "pulse", "record", "start_ns", "tid")

    def __init__(self, folder: str, tid: int) -> None:
        super().__init__(folder)
        self.tid: Final = tid
        self.pulse = b""
        self.start_ns = -1
        self.cgroup = ABSENT
        self.alone = NOTHING
        self.record = b""


class Threads:
    """The threads of one process. ``lost``: how many there was no room for."""

    def __init__(self, process: Task) -> None:
        """Know no thread yet of a process."""
        self.lost = 0
        self._process = process
        self._threads: dict[str, _Thread] = {}
        self._gone = NOTHING  # The counts of threads that ended, as last seen.
        self._changed: list[bytes] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self._threads)

    def read(self, whose: Whose, count: int, room: int, around: Circumstances, *, whole: bool) -> ThreadCounts:
        """Read the threads that ran, or all; give the sum of their counts.

        ``whose``: the process; ``count``: how many threads the kernel says it has; ``room``: how many may be known.
        """
        has_ended = False
        self._changed, self.lost = [], 0
        for name, thread in list(self._threads.items()):
            try:
                self._refresh(thread, whose, around, whole=whole)
            except GONE:
                around.files.shut(self._threads.pop(name))
                self._gone = total((self._gone, thread.alone))
                has_ended = True
        if has_ended or len(self._threads) != count:
            for name in around.files.threads_of(self._process):
                if name not in self._threads and len(self._threads) < room:
                    thread = _Thread(f"{self._process.folder}/task/{name}", int(name))
                    with suppress(*GONE):
                        self._refresh(thread, whose, around, whole=True)
                        self._threads[name] = thread
                elif name not in self._threads:
                    self.lost += 1
        return total([self._gone, *[thread.alone for thread in self._threads.values()]])

    def changed(self) -> list[bytes]:
        """Give the records that changed at the last reading."""
        return self._changed

    def records(self) -> list[bytes]:
        """Give all records."""
        return [thread.record for thread in self._threads.values()]

    def close(self, files: TaskFiles) -> None:
        """Close their files."""
        for thread in self._threads.values():
            files.shut(thread)
        self._threads.clear()

    def _refresh(self, thread: _Thread, whose: Whose, around: Circumstances, *, whole: bool) -> None:
        files = around.files
        pulse = scheduled = files.read_if_allowed(thread, SCHEDSTAT, keep=True)
        if not text.is_counted(scheduled):
            pulse = files.read(thread, STAT, keep=True)
        if pulse == thread.pulse and not whole:
            return
        stat = text.stat(files.read(thread, STAT))
        status = text.status(files.read(thread, STATUS))
        if thread.start_ns not in {-1, stat.start_ns}:
            raise ProcessLookupError  # Another thread has its number.
        own = text.io(files.read_if_allowed(thread, IO))
        if whole:
            thread.cgroup = around.cgroups.number(files.read(thread, CGROUP), thread.cgroup)
        run_us, thread.alone = counted(scheduled, stat, status, around)
        measured = measures(stat, status, own, run_us, thread.alone)
        about = Whose(stat.start_ns, whose.pid, stat.ppid, status.uid, thread.cgroup)
        record = thread_record(about, thread.tid, measured)
        if record != thread.record:
            self._changed.append(record)
        thread.start_ns, thread.pulse, thread.record = stat.start_ns, pulse, record


def counted(scheduled: bytes, stat: TaskStat, status: TaskStatus, around: Circumstances) -> tuple[int, ThreadCounts]:
    """Give the CPU time of one thread in µs, and what the kernel counts by thread only."""
    run_ns, delay_ns = text.schedstat(scheduled)
    run_us = stat.user_us + stat.system_us if run_ns == ABSENT else run_ns // 1000
    delay_us = ABSENT if delay_ns == ABSENT else delay_ns // 1000
    block_us = stat.block_us if around.accounts_delays else ABSENT
    return run_us, ThreadCounts(delay_us, block_us, status.voluntary, status.involuntary)
