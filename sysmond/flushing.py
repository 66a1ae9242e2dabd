# SPDX-License-Identifier: Apache-2.0
"""When segments go from RAM to disk: when the disk is awake anyway, or when they must. Pure.

The kernel's counters of completed requests are the only sign of a disk's activity that does not disturb it
(/proc/diskstats, Documentation/admin-guide/iostats.rst). What we wrote ourselves, and what the journal
writes for us a little later, must not count as somebody else's.
"""

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Why a flush happens; the instances of the ``flush`` table."""

    DISK_IN_USE = "disk in use"
    RAM_FULL = "ram full"
    SHUTDOWN = "shutdown"
    SUSPEND = "suspend"
    REQUEST = "request"
    FIRST = "state folder appeared"
    AGE = "age"


# The journal commits 5 s after a write, the write-back ends within 30 s (Documentation/admin-guide/sysctl/vm.rst).
QUIET_AFTER_OWN_WRITE_S = 35.0
# Every flush costs a few metadata writes: not more often than this, however busy the disk.
FLUSHES_APART_S = 300.0


class Disk(NamedTuple):
    """Requests that a disk has completed since boot."""

    reads: int
    writes: int


class Situation(NamedTuple):
    """What the decision depends on. Times are seconds of the monotonic clock."""

    now_s: float
    waiting_bytes: int
    budget_bytes: int
    disk: Disk | None
    refused_until_s: float = 0.0


class Watch(NamedTuple):
    """What was seen of the disk before, and when we last wrote ourselves."""

    disk: Disk | None = None
    last_flush_s: float = float("-inf")

    def flushed(self, now_s: float) -> "Watch":
        """Remember that we wrote: what the disk does next is our own."""
        return Watch(None, now_s)


def decide(watch: Watch, now: Situation) -> tuple[Reason | None, Watch]:
    """Say whether to flush now and why, and what to remember for the next time."""
    if now.now_s - watch.last_flush_s < QUIET_AFTER_OWN_WRITE_S:
        return _must(now), watch._replace(disk=None)
    seen = watch._replace(disk=now.disk)
    if reason := _must(now):
        return reason, seen
    if not now.waiting_bytes or now.now_s < now.refused_until_s:
        return None, seen
    used = watch.disk is not None and now.disk is not None and now.disk != watch.disk
    if used and now.now_s - watch.last_flush_s >= FLUSHES_APART_S:
        return Reason.DISK_IN_USE, seen
    return None, seen


def _must(now: Situation) -> Reason | None:
    full = now.waiting_bytes > now.budget_bytes and now.now_s >= now.refused_until_s
    return Reason.RAM_FULL if full else None


def read_disk(diskstats: bytes, major: int, minor: int) -> Disk | None:
    """Find what a block device has completed: of /proc/diskstats, fields 4 and 8 of its line."""
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) > 7 and (int(fields[0]), int(fields[1])) == (major, minor):  # noqa: PLR2004  the fields needed
            return Disk(int(fields[3]), int(fields[7]))
    return None
