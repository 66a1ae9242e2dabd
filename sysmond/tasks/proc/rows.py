# SPDX-License-Identifier: Apache-2.0
"""Records of tasks, packed from the values in the files of /proc."""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from sysmond.base.model import ABSENT, Table
from sysmond.tasks.proc.moved import Moved
from sysmond.tasks.proc.text import Io, TaskStat, TaskStatus
from sysmond.tasks.tables import ABSENT_U32, PROCESS, PROCESS_PRIVATE, THREAD


class ThreadCounts(NamedTuple):
    """What the kernel counts by thread only, in µs and times; for a process, the sum of its threads."""

    delay_us: int
    block_us: int
    voluntary: int
    involuntary: int


UNKNOWN = ThreadCounts(ABSENT, ABSENT, ABSENT, ABSENT)
NOTHING = ThreadCounts(0, 0, 0, 0)


class Whose(NamedTuple):
    """The task that a record is about."""

    start_ns: int
    pid: int
    ppid: int
    uid: int
    cgroup: int


def total(parts: Iterable[ThreadCounts]) -> ThreadCounts:
    """Add up each count; absent where one part lacks it."""
    return ThreadCounts(*[ABSENT if ABSENT in column else sum(column) for column in zip(*parts, strict=True)])


def measures(stat: TaskStat, status: TaskStatus, own: Io, cpu_us: int, alone: ThreadCounts) -> tuple[int | bytes, ...]:
    """Give the fields that records of processes and of threads share."""
    return (
        stat.comm,
        cpu_us,
        stat.user_us,
        stat.system_us,
        *alone,
        stat.minor,
        stat.major,
        *own,
        status.rss_anon,
        status.rss_file,
        status.rss_shmem,
        status.swap,
        stat.virtual,
        stat.threads,
        stat.last_cpu,
        stat.priority,
        stat.nice,
        stat.policy,
        stat.state,
    )


def process_record(whose: Whose, measured: tuple[int | bytes, ...], moved: Moved) -> bytes:
    """Pack a record of the table ``process``."""
    return _PROCESS.pack(*whose, *measured, moved.unseen, moved.all.read, moved.all.written)


def thread_record(whose: Whose, tid: int, measured: tuple[int | bytes, ...]) -> bytes:
    """Pack a record of the table ``thread``."""
    return _THREAD.pack(whose.start_ns, whose.pid, tid, *whose[2:], *measured)


class Private(NamedTuple):
    """What /proc has for the table ``process_private``: namespaces and descriptors are -1 where hidden."""

    namespace_pid: int
    namespace: int
    descriptors: int
    syscall: int
    wait: bytes


def private_record(whose: Whose, private: Private) -> bytes:
    """Pack a record of the table ``process_private``; /proc has no traffic of processes."""
    numbers = private.namespace_pid & ABSENT_U32, private.namespace & ABSENT_U32, private.descriptors
    return _PRIVATE.pack(whose.start_ns, whose.pid, *numbers, *[ABSENT] * 4, private.syscall, private.wait)


def _struct(table: Table) -> Struct:
    return Struct(table.packing.format if table.packing else "")


_PROCESS, _THREAD, _PRIVATE = map(_struct, (PROCESS, THREAD, PROCESS_PRIVATE))
PROCESS_BYTES, THREAD_BYTES, PRIVATE_BYTES = _PROCESS.size, _THREAD.size, _PRIVATE.size
