# SPDX-License-Identifier: Apache-2.0
"""A machine that has little memory for a while: pages of two megabytes take the rest (hugetlbpage.rst).

They belong to nobody, so nobody is killed for them. Meanwhile the machine is of no use, and programs on it may be
killed: nothing else should run there. As root.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import confined

RESERVED = "/proc/sys/vm/nr_hugepages"
PAGE_BYTES = 2 * 1024 * 1024
# The kernel finds some of them only after others have moved.
TRIES_MAX = 20


class Machine(NamedTuple):
    """The machine as a place whose memory runs out; what ``confined.Group`` is for a control group."""

    limit_bytes: int
    members_file: str = "/dev/null"  # Everybody is a member.
    mark: str = "global_oom"

    def kills(self) -> int:
        """How often the kernel has killed a process for want of memory."""
        with open("/proc/vmstat", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))


def why_not() -> str:
    """Why its memory cannot be taken; empty where it can."""
    if os.geteuid():
        return "only root can take memory from all, and add swap"
    if not os.path.exists(RESERVED):
        return f"{RESERVED}: not there; the kernel has no huge pages"
    return confined.lacking()


@contextmanager
def memory(left_bytes: int) -> Iterator[Machine]:
    """Take memory until about so much is available to all; it goes back with the block.

    :raises RuntimeError: where some has been taken by others.
    """
    if _number():
        raise RuntimeError(f"{RESERVED}: {_number()}; expected 0, since what is there is somebody's")
    try:
        before = -1
        for _ in range(TRIES_MAX):
            more = (_available_bytes() - left_bytes) // PAGE_BYTES
            if more <= 0 or _number() == before:
                break
            before = _number()
            _put("/proc/sys/vm/drop_caches", 3)
            _put("/proc/sys/vm/compact_memory", 1)
            _put(RESERVED, before + more)
        yield Machine(_available_bytes())
    finally:
        _put(RESERVED, 0)


def _number() -> int:
    with open(RESERVED, encoding="ascii") as file:
        return int(file.read())


def _put(path: str, number: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(number))


def _available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
