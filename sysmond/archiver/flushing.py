# SPDX-License-Identifier: Apache-2.0
"""When segments go from RAM to disk: when the disk is awake anyway, or when they must. Pure.

The kernel's counters of sectors are the only sign of a disk's activity that does not disturb it (/proc/diskstats,
Documentation/admin-guide/iostats.rst): not those of requests, since sync(2) of whatever program sends every disk an
empty one, which a disk with nothing to write sleeps through. What we wrote ourselves, and what the journal
writes for us a little later, must not count as somebody else's.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Why the disk is written to; the instances of the ``flush`` table."""

    DISK_IN_USE = "disk in use"
    RAM_FULL = "ram full"
    SHUTDOWN = "shutdown"
    SUSPEND = "suspend"
    REQUEST = "request"
    FIRST = "state folder appeared"
    MERGE = "merge"


# The journal commits 5 s after a write, the write-back ends within 30 s (Documentation/admin-guide/sysctl/vm.rst).
QUIET_AFTER_OWN_WRITE_S = 35.0
# Every flush costs a few metadata writes: not more often than this, however busy the disk.
FLUSHES_APART_S = 300.0
# A job that does not end at all is killed: the disk hangs, or the library does.
JOB_S = 600.0
# What the disk did longer ago than this does not say that it is still awake.
SEEN_S = 20.0
# Not disks that spin or sleep: memory, loops and what stands on other disks, which are counted themselves.
_NO_DISK = re.compile(r"(ram|zram|loop|sr|fd|dm-|md|nbd)\d")


class SectorCounts(NamedTuple):
    """Sectors that a disk has read and written since boot."""

    reads: int
    writes: int


class Situation(NamedTuple):
    """What the decision depends on. Times are seconds of the monotonic clock.

    ``waiting_bytes``: of segments in RAM; ``unsealed``: whether there is more in the rings. ``is_resumed``: the
    machine was just suspended, and its disk woken with it; on a battery that is no reason to write.
    """

    now_s: float
    waiting_bytes: int
    budget_bytes: int
    disk: SectorCounts | None
    refused_until_s: float = 0.0
    unsealed: bool = False
    apart_s: float = FLUSHES_APART_S
    is_resumed: bool = False
    is_on_battery: bool = False


class Watch(NamedTuple):
    """What was seen of the disk before, and when we last wrote ourselves."""

    disk: SectorCounts | None = None
    last_flush_s: float = float("-inf")
    seen_s: float = float("-inf")

    def flushed(self, now_s: float) -> "Watch":
        """Remember that we wrote: what the disk does next is our own."""
        return Watch(None, now_s)

    def is_due(self, now: Situation) -> bool:
        """Whether there is any reason to look at the disk."""
        waits = bool(now.waiting_bytes) or now.unsealed
        apart_s = max(now.apart_s, QUIET_AFTER_OWN_WRITE_S)
        return waits and now.now_s >= now.refused_until_s and now.now_s - self.last_flush_s >= apart_s


def decide(watch: Watch, now: Situation) -> tuple[Reason | None, Watch]:
    """Say whether to flush now and why, and what to remember for the next time."""
    if now.now_s - watch.last_flush_s < QUIET_AFTER_OWN_WRITE_S:
        return _must(now), watch._replace(disk=None)
    seen = watch._replace(disk=now.disk, seen_s=now.now_s)
    if reason := _must(now):
        return reason, seen
    is_fresh = watch.disk is not None and now.now_s - watch.seen_s <= SEEN_S
    used = is_fresh and now.disk is not None and now.disk != watch.disk
    return Reason.DISK_IN_USE if used and watch.is_due(now) else None, seen


def _must(now: Situation) -> Reason | None:
    if now.waiting_bytes > now.budget_bytes and now.now_s >= now.refused_until_s:
        return Reason.RAM_FULL
    return Reason.SUSPEND if now.is_resumed and not now.is_on_battery else None


def read_disks(diskstats: bytes, names: Collection[str]) -> SectorCounts | None:
    """Add up what these block devices have moved, or where none is named all real disks.

    Fields 6 and 10 of the lines of /proc/diskstats. None where there is none of them.
    """
    lines = []
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) > 9:  # noqa: PLR2004  the fields needed
            name = fields[2].decode("utf-8", "replace")
            if name in names or (not names and not _NO_DISK.match(name)):
                lines.append((int(fields[5]), int(fields[9])))
    return SectorCounts(*map(sum, zip(*lines, strict=True))) if lines else None
