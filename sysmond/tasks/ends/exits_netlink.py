# SPDX-License-Identifier: Apache-2.0
"""Processes that ended, by netlink: by the proc connector, by taskstats, or by both.

The connector reports that a process ended, and when; taskstats what it used. One reports an end even where the other
lost a message, so only ends that both lost are missing. A beginning is exact to 0.1 ms where sysmond listened at the
time; for a process that ran before, it is the end less its elapsed time, late by as long as it took to free its memory.
Threads that ended before sysmond listened count in the CPU time only.
"""

import os
from threading import Thread, get_native_id
from time import monotonic, sleep
from typing import TYPE_CHECKING

from sysmond.base import clock
from sysmond.base.model import ABSENT
from sysmond.errors import Error
from sysmond.records import Records
from sysmond.tasks.ends.connector import Connector, Lives, ProcessEnd
from sysmond.tasks.ends.names import Names, ProcessName
from sysmond.tasks.ends.netlink import BUFFER_BYTES
from sysmond.tasks.ends.starts import Starts
from sysmond.tasks.ends.taskstats import READINGS_MAX, VERSION_NAMING, ExitStats, Sums, Taskstats
from sysmond.tasks.proc import text
from sysmond.tasks.proc.cgroups import CgroupNumbers
from sysmond.tasks.proc.content import content
from sysmond.tasks.tables import ABSENT_U32, EXITS_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Container

# Of how many processes a tick /proc is read, at most three files each: of those that ended last, since hardly anything
# is left of those that ended earlier in the tick.
PROC_MAX = 256
# For how long a cgroup of one path is taken to be the same.
CGROUPS_ANEW_S = 1.0
# How long to wait, once, for a first message of taskstats.
TRIAL_S = 0.25

_CODE_SIGNAL, _CODE_CORE = 0x7F, 0x80
_TICK_NS = clock.SECOND_NS // os.sysconf("SC_CLK_TCK")
_TICK_US = _TICK_NS // 1000
# In stat, from the state on: faults, and faults and times of children that were waited for.
_FAULTS, _OF_CHILDREN = (7, 9), (8, 10, 13, 14)
_NOTHING = (ABSENT,) * 10
_NO_SENDER = (ABSENT, ABSENT_U32, b"")


class Paired:
    """By the proc connector, which has who ended and when, and taskstats, which has what they used."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Listen to both.

        :raises Error: where one of them is unavailable.
        """
        self._connector = Connector(buffer_bytes)
        try:
            self._taskstats = Taskstats(buffer_bytes)
        except Error:
            self._connector.close()
            raise
        self._lives = Lives()
        self._lives.is_naming = True  # Until the version is known.
        self._sums = Sums()
        self._alone: dict[int, int] = {}  # Processes over by taskstats only, and for how many readings.

    def take(self) -> Records:
        """Give the processes that ended."""
        now = clock.relation()
        lives, sums = self._lives, self._sums
        # The connector first: taskstats sends its message of an end before the connector does.
        connector_lost = self._connector.receive(lives, now)
        taskstats_lost = self._taskstats.receive(sums)
        lives.is_naming = sums.version < VERSION_NAMING
        if lives.is_naming:
            sums.name(lives.groups)
        if lives.unsure:
            lives.settle(_asker(sums.over))
        lives.groups.clear()
        to_boot_ns, pop = now.boottime_ns - now.monotonic_ns, lives.names.pop
        rows = [record(ended, sums.pop(ended.pid), pop(ended.pid, ended.end_ns - to_boot_ns)) for ended in lives.take()]
        lives.names.end_reading()
        if sums.over or self._alone:
            rows += self._overdue(now)
        return Records(b"".join(rows), lost=min(connector_lost, taskstats_lost))

    @property
    def names(self) -> Names:
        """Where processes belong: taskstats has their names."""
        return self._lives.names

    def _overdue(self, now: clock.Relation) -> list[bytes]:
        """Records of ends that the connector never reported, a while after taskstats did."""
        self._alone = {pid: self._alone.get(pid, 0) + 1 for pid in self._sums.over}
        rows: list[bytes] = []
        for pid, readings in list(self._alone.items()):
            if readings > READINGS_MAX:
                del self._alone[pid]
                rows += [timed(life, 0, now) for life in self._sums.over.pop(pid)]
        return rows

    def close(self) -> None:
        """Close both."""
        self._connector.close()
        self._taskstats.close()


class Heard:
    """By the proc connector alone: what processes are called is read when they start, and when all are gone over.

    While nobody has waited for a process, /proc still has what it used.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Listen to it.

        :raises Error: where it is unavailable.
        """
        self._lives = Lives()
        self._connector = Connector(buffer_bytes)
        try:
            self._starts = Starts(NameReader().read)
        except Error:
            self._connector.close()
            raise

    @property
    def names(self) -> Names:
        """What processes are called."""
        return self._lives.names

    def take(self) -> Records:
        """Give the processes that ended."""
        names = self.names
        started, unread = self._starts.take()
        names.unread += unread
        for start in started:
            names.learn(start.pid, ProcessName(start.since_ns, start.until_ns, *start.reading))
        now = clock.relation()
        lost = self._connector.receive(self._lives, now)
        if self._lives.unsure:
            self._lives.settle(_asker({}))
        to_boot_ns = now.boottime_ns - now.monotonic_ns
        ended = [(end, names.pop(end.pid, end.end_ns - to_boot_ns)) for end in self._lives.take()]
        names.end_reading()
        hardly, maybe = ended[:-PROC_MAX], ended[-PROC_MAX:]
        rows = [record(end, None, name) for end, name in hardly] + [_remains(end, name) for end, name in maybe]
        return Records(b"".join(rows), lost=lost)

    def close(self) -> None:
        """Close it."""
        self._starts.close()
        self._connector.close()


class NameReader:
    """Reads what a process is called: its start, parent, user, cgroup and name. None of its files makes one wait."""

    def __init__(self) -> None:
        """Look for the hierarchies of cgroups."""
        self._cgroups = CgroupNumbers("")
        self._anew_s = 0.0

    def read(self, pid: int) -> tuple[int, int, int, int, bytes] | None:
        """Read it; None where it is gone."""
        now_s = monotonic()
        if now_s >= self._anew_s:
            self._cgroups.new_reading()
            self._anew_s = now_s + CGROUPS_ANEW_S
        folder = f"/proc/{pid}"
        try:
            stat = text.stat(content(f"{folder}/stat"))
            uid = text.status(content(f"{folder}/status")).uid
            cgroup = self._cgroups.number(content(f"{folder}/cgroup"), ABSENT)
        except (OSError, ValueError):
            return None
        return stat.start_ns, stat.ppid, uid, cgroup, stat.comm


class TaskstatsExits:
    """By taskstats alone."""

    names = None

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Listen to it, where it reports ends to this process.

        :raises Error: where it is unavailable, reports none, or names no process.
        """
        self._taskstats = Taskstats(buffer_bytes)
        self._sums = Sums()
        self._before_ns = clock.boottime_ns()
        problem = self._tried()
        if problem:
            self._taskstats.close()
            raise Error(problem)

    def _tried(self) -> str:
        """Let a thread end, and wait for its message: outside the initial network namespace none comes."""
        trial = Sums()
        numbers: list[int] = []
        thread = Thread(target=lambda: numbers.append(get_native_id()))
        thread.start()
        thread.join()
        until_s = monotonic() + TRIAL_S
        while not trial.version and monotonic() < until_s:
            self._taskstats.receive(trial)
            sleep(TRIAL_S / 100)
        if not trial.version:
            return "taskstats: reports no end; expected to run in the initial network namespace"
        if trial.version < VERSION_NAMING:
            return f"taskstats: version {trial.version} names no process of a thread; expected Linux 5.19"
        return ""

    def take(self) -> Records:
        """Give the processes that ended."""
        now = clock.relation()
        lost = self._taskstats.receive(self._sums)
        over, self._sums.over = self._sums.over, {}
        rows = [timed(life, self._before_ns, now) for lives in over.values() for life in lives]
        self._before_ns = now.boottime_ns
        return Records(b"".join(rows), lost=lost)

    def close(self) -> None:
        """Close it."""
        self._taskstats.close()


def record(ended: ProcessEnd, life: ExitStats | None, name: ProcessName | None) -> bytes:
    """Pack a record: times and code by the connector, the rest by taskstats and by ``name``, as far as there is any."""
    pid, start_ns, end_ns, code, ppid = ended
    signal, core = code & _CODE_SIGNAL, (code & _CODE_CORE) >> 7
    uid, cgroup, comm = (ABSENT_U32, ABSENT, b"") if name is None else (name.uid, name.cgroup, name.comm)
    if life is not None:
        uid, comm = life.uid, life.comm
        start_ns = start_ns or end_ns - life.lasted_us * 1000
        ppid = ppid or life.ppid
    elif name is not None:
        start_ns = start_ns or name.start_ns
        ppid = ppid or name.ppid
    # From cpu_us on, in the order of the table.
    used = (*(_NOTHING if life is None else life[7:17]), *_NO_SENDER)
    status = code >> 8 & 0xFF
    return EXITS_RECORD.pack(start_ns or ABSENT, end_ns, pid, ppid, uid, status, signal, core, cgroup, comm, *used)


def timed(life: ExitStats, before_ns: int, now: clock.Relation) -> bytes:
    """Pack an end that only taskstats reported: within one second of the wall clock, and between two readings."""
    second_ns = life.ended_s * clock.SECOND_NS - now.realtime_ns + now.boottime_ns
    first_ns = min(max(before_ns, second_ns), now.boottime_ns)
    last_ns = max(first_ns, min(now.boottime_ns, second_ns + clock.SECOND_NS))
    end_ns = (first_ns + last_ns) // 2
    return record(ProcessEnd(life.pid, 0, end_ns, life.code, life.ppid), life, None)


def _asker(known: "Container[int]") -> "Callable[[ProcessEnd], bool | None]":
    """Make a function that says whether a process is over: by ``known``, else by /proc, for at most ``PROC_MAX``."""
    left = PROC_MAX

    def ask(last: ProcessEnd) -> bool | None:
        nonlocal left
        if last.pid in known:
            return True
        left -= 1
        return is_over(last) if left >= 0 else None

    return ask


def is_over(last: ProcessEnd) -> bool:
    """Whether no thread is left of a process whose first thread ended, by /proc."""
    try:
        fields = _stat(f"/proc/{last.pid}")[1]
        if int(fields[19]) * _TICK_NS > last.end_ns:
            return True  # Another process has its number.
        # Where it lives, another thread called execve(2) and took the place of the first.
        return fields[0] == b"Z" and int(fields[17]) <= 1
    except (OSError, ValueError, IndexError):
        return True


def _stat(folder: str) -> tuple[bytes, list[bytes]]:
    """The name of a task, by its folder, and the fields after it in stat: state, parent, and so on."""
    with open(f"{folder}/stat", "rb", buffering=0) as file:
        before, _, behind = file.read(4096).rpartition(b") ")
    return before.partition(b" (")[2], behind.split()


def _remains(ended: ProcessEnd, name: ProcessName | None) -> bytes:
    """Pack a record with what /proc still has of a process that nobody has waited for yet."""
    minimal = record(ended, None, name)
    try:
        comm, fields = _stat(f"/proc/{ended.pid}")
        start_ns = int(fields[19]) * _TICK_NS
        if fields[0] != b"Z" or start_ns > ended.end_ns:  # Another process has its number.
            return minimal
        with open(f"/proc/{ended.pid}/status", "rb", buffering=0) as file:
            uid = int(file.read(4096).partition(b"\nUid:")[2].split(None, 1)[0])
        user_us, system_us = int(fields[11]) * _TICK_US, int(fields[12]) * _TICK_US
        life = ExitStats(
            ended.pid,
            int(fields[1]),
            uid,
            comm[:15],
            ended.code,
            0,
            (ended.end_ns - start_ns) // 1000,
            user_us + system_us,
            user_us,
            system_us,
            ABSENT,
            int(fields[7]),
            int(fields[9]),
            *_bytes(ended.pid, fields),
        )
    except (OSError, ValueError, IndexError):
        return minimal
    return record(ended, life, name)


def _bytes(pid: int, fields: list[bytes]) -> tuple[int, int, int, int]:
    """Bytes that a dead process read from and sent towards storage, by itself and with waited-for children.

    Absent where they are hidden; by itself also where both threads that ended and children are in the sum. ``fields``:
    of stat, from the state on.
    """
    both = _io(f"/proc/{pid}")
    if not any(int(fields[number]) for number in _OF_CHILDREN):
        return *both, *both
    alone = f"/proc/{pid}/task/{pid}"
    try:
        first = _stat(alone)[1]
    except (OSError, ValueError, IndexError):
        first = []
    # A thread has at least the fault of its first step on its stack, so without others the first one has had all.
    has_others = not first or [first[number] for number in _FAULTS] != [fields[number] for number in _FAULTS]
    return *((ABSENT, ABSENT) if has_others else _io(alone)), *both


def _io(folder: str) -> tuple[int, int]:
    try:
        with open(f"{folder}/io", "rb", buffering=0) as file:
            words = file.read(4096).split()
        return int(words[9]), int(words[11])
    except (OSError, ValueError, IndexError):
        return ABSENT, ABSENT
