# SPDX-License-Identifier: Apache-2.0
"""Parsers of the files of /proc/PID: they take bytes, and open no file.

Sources: ``Documentation/filesystems/proc.rst``, ``fs/proc/array.c``, ``fs/proc/base.c``.
"""

import os
import re
from operator import itemgetter
from typing import NamedTuple

from sysmond.base.model import ABSENT
from sysmond.tasks.tables import ABSENT_U32

MICRO = 1_000_000
_USER_HZ = os.sysconf("SC_CLK_TCK")
TICK_US = MICRO // _USER_HZ
TICK_NS = 1000 * TICK_US
# States of what has ended, and has no memory any more.
ENDED = frozenset((b"Z", b"X"))
_COMM_BYTES_MAX = 15
_KTHREADD = 2
# As by BPF, so that both ways give the same text of a stack.
_FRAMES_MAX, _FUNCTION_CHARACTERS_MAX = 16, 31
_STAT_FIELDS_MIN = 40
# From the state on, which is field 3 of proc(5).
_PICK = itemgetter(7, 9, 11, 12, 15, 16, 17, 19, 20, 36, 38, 39)
_PICK_WAITED = itemgetter(8, 10, 13, 14)


class TaskStat(NamedTuple):
    """The used fields of stat. ``start_ns``: since boot; ``user_us``, ``system_us``, ``block_us``: in whole ticks.

    ``waited``: grows with each child that the process waits for; 0 where it has waited for none.
    """

    comm: bytes
    state: bytes
    ppid: int
    minor: int
    major: int
    user_us: int
    system_us: int
    priority: int
    nice: int
    threads: int
    start_ns: int
    virtual: int
    last_cpu: int
    policy: int
    block_us: int
    waited: int


def stat(content: bytes) -> TaskStat:
    """Parse stat, of a process or a thread. A name may hold any byte: the last parenthesis ends it.

    :raises ValueError: where this is no stat.
    """
    begin, end = content.find(b"("), content.rfind(b")")
    fields = content[end + 1 :].split()
    if begin < 0 or len(fields) < _STAT_FIELDS_MIN:
        raise ValueError(f"stat: {content[:80]!r}; expected a name in parentheses and {_STAT_FIELDS_MIN} fields")
    state, ppid = fields[0], int(fields[1])
    minor, major, user, system, priority, nice, threads, start, virtual, last_cpu, policy, block = map(
        int, _PICK(fields)
    )
    return TaskStat(
        _own_name(content[begin + 1 : end], ppid),
        state,
        ppid,
        minor,
        major,
        user * TICK_US,
        system * TICK_US,
        priority,
        nice,
        threads,
        start * TICK_NS,
        virtual,
        last_cpu,
        policy,
        block * TICK_US,
        sum(map(int, _PICK_WAITED(fields))),
    )


def _own_name(name: bytes, ppid: int) -> bytes:
    """Leave out the work item that the kernel adds to the names of its workers."""
    if ppid == _KTHREADD and name.startswith(b"kworker/") and name[8:10] != b"R-":
        name = name.partition(b"-")[0].partition(b"+")[0]
    return name[:_COMM_BYTES_MAX]


class TaskStatus(NamedTuple):
    """The used fields of status: bytes, and counts of this one thread; a task without memory has 0 bytes."""

    uid: int
    namespace_pid: int
    rss_anon: int
    rss_file: int
    rss_shmem: int
    swap: int
    voluntary: int
    involuntary: int


_MEMORY = re.compile(rb"\nRssAnon:\s*(\d+) kB\nRssFile:\s*(\d+) kB\nRssShmem:\s*(\d+) kB\n")
_SWITCHES = re.compile(rb"voluntary_ctxt_switches:\t(\d+)\nnonvoluntary_ctxt_switches:\t(\d+)\n")


def status(content: bytes) -> TaskStatus:
    """Parse status. The name in it is escaped, so no line can begin within it.

    :raises ValueError: where a number cannot be parsed.
    """
    uids = _line(content, b"\nUid:").split(None, 1)
    spaces = _line(content, b"\nNSpid:")
    memory = _MEMORY.search(content)
    if memory is not None:
        anon, file, shmem = memory.groups()
        sizes = int(anon) << 10, int(file) << 10, int(shmem) << 10, int(_line(content, b"\nVmSwap:")[:-3] or 0) << 10
    else:  # A task without memory has no such lines; an old kernel has VmSize, but not these.
        sizes = (ABSENT,) * 4 if b"\nVmSize:" in content else (0,) * 4
    switches = _SWITCHES.search(content, max(0, content.rfind(b"\nvoluntary_")))
    voluntary, involuntary = map(int, switches.groups()) if switches else (ABSENT, ABSENT)
    return TaskStatus(
        int(uids[0]) if uids else ABSENT_U32,
        int(spaces.rpartition(b"\t")[2]) if spaces else ABSENT_U32,
        *sizes,
        voluntary,
        involuntary,
    )


def _line(content: bytes, key: bytes) -> bytes:
    at = content.find(key)
    return b"" if at < 0 else content[at + len(key) : content.find(b"\n", at + 1)]


class Io(NamedTuple):
    """The used fields of io, in bytes."""

    read: int
    written: int
    read_chars: int
    written_chars: int


# rchar wchar syscr syscw read_bytes write_bytes, each with its number; the order never changed.
_IO_WORDS = 12
NO_IO = Io(ABSENT, ABSENT, ABSENT, ABSENT)


def io(content: bytes) -> Io:
    """Parse io; without storage accounting the kernel counts characters only.

    :raises ValueError: where a number cannot be parsed.
    """
    words = content.split()
    if len(words) < _IO_WORDS:
        return NO_IO._replace(read_chars=int(words[1]), written_chars=int(words[3])) if words else NO_IO
    return Io(int(words[9]), int(words[11]), int(words[1]), int(words[3]))


def is_counted(content: bytes) -> bool:
    """Whether a schedstat has values: it is empty or zero where the kernel does not count."""
    return content not in {b"", b"0 0 0\n"}


def schedstat(content: bytes) -> tuple[int, int]:
    """Give CPU time and the time it waited for a CPU, in ns; absent where the kernel does not count them.

    :raises ValueError: where a number cannot be parsed.
    """
    if not is_counted(content):
        return ABSENT, ABSENT
    run_ns, delay_ns, _ = content.split()
    return int(run_ns), int(delay_ns)


def syscall(content: bytes) -> int:
    """Give the number of the system call that a task is in; -1 for none."""
    word = content.partition(b" ")[0]
    return int(word) if word.isdigit() else -1


def wait(content: bytes) -> bytes:
    """Give the kernel function that a task waits in; empty where it does not wait, or that is hidden."""
    return b"" if content == b"0" else content[:_FUNCTION_CHARACTERS_MAX].rstrip(b"\n")


def stack(content: bytes) -> str:
    """Give the functions of a kernel stack, innermost first, a line each; empty for none, or where hidden."""
    lines = content.decode("utf-8", "replace").splitlines()[:_FRAMES_MAX]
    return "\n".join(line.partition("] ")[2].partition("+")[0][:_FUNCTION_CHARACTERS_MAX] for line in lines)


def last_pid(loadavg: bytes) -> int:
    """Give the newest pid.

    :raises ValueError: where there is none.
    """
    return int(loadavg.rpartition(b" ")[2])
