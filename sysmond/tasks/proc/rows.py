# SPDX-License-Identifier: Apache-2.0
"""Records of tasks, packed from what the files of /proc say."""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from sysmond.base.model import ABSENT, Table
from sysmond.tasks.proc.text import Io, TaskStat, TaskStatus
from sysmond.tasks.tables import ABSENT_U32, PROCESS, PROCESS_PRIVATE, THREAD


class Alone(NamedTuple):
    """What the kernel counts a thread alone, in µs and times; of a process, that of all its threads."""

    delay_us: int
    block_us: int
    voluntary: int
    involuntary: int


UNKNOWN = Alone(ABSENT, ABSENT, ABSENT, ABSENT)
NOTHING = Alone(0, 0, 0, 0)


class Whose(NamedTuple):
    """Whom a record is about."""

    start_ns: int
    pid: int
    ppid: int
    uid: int
    cgroup: int


def total(parts: Iterable[Alone]) -> Alone:
    """Add up; what one of them does not know is not known."""
    return Alone(*[ABSENT if ABSENT in each else sum(each) for each in zip(*parts, strict=True)])


def measures(told: TaskStat, held: TaskStatus, moved: Io, cpu_us: int, alone: Alone) -> tuple[int | bytes, ...]:
    """Give the part that the records of a process and of a thread have alike."""
    return (
        told.comm,
        cpu_us,
        told.user_us,
        told.system_us,
        *alone,
        told.minor,
        told.major,
        *moved,
        held.rss_anon,
        held.rss_file,
        held.rss_shmem,
        held.swap,
        told.virtual,
        told.threads,
        told.last_cpu,
        told.priority,
        told.nice,
        told.policy,
        told.state,
    )


def process_record(whose: Whose, measured: tuple[int | bytes, ...]) -> bytes:
    """Pack a record of the table ``process``."""
    return _PROCESS.pack(*whose, *measured)


def thread_record(whose: Whose, tid: int, measured: tuple[int | bytes, ...]) -> bytes:
    """Pack a record of the table ``thread``."""
    return _THREAD.pack(whose.start_ns, whose.pid, tid, *whose[2:], *measured)


class Private(NamedTuple):
    """What the table ``process_private`` has and /proc can tell: namespaces and descriptors are -1 where hidden."""

    namespace_pid: int
    namespace: int
    descriptors: int
    syscall: int
    wait: bytes


def private_record(whose: Whose, private: Private) -> bytes:
    """Pack a record of the table ``process_private``; what went over the network is not to be had here."""
    numbers = private.namespace_pid & ABSENT_U32, private.namespace & ABSENT_U32, private.descriptors
    return _PRIVATE.pack(whose.start_ns, whose.pid, *numbers, *[ABSENT] * 4, private.syscall, private.wait)


def _struct(table: Table) -> Struct:
    return Struct(table.packing.format if table.packing else "")


_PROCESS, _THREAD, _PRIVATE = map(_struct, (PROCESS, THREAD, PROCESS_PRIVATE))
PROCESS_BYTES, THREAD_BYTES, PRIVATE_BYTES = _PROCESS.size, _THREAD.size, _PRIVATE.size
