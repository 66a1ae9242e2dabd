# SPDX-License-Identifier: Apache-2.0
"""The archiver's eyes: how long the rings still hold, and whether this is a moment to write to the disk."""

import os
from contextlib import suppress

from sysmond.archiver import flushing
from sysmond.archiver.flushing import Reason, Situation, Watch
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.machine import mounts, supplies
from sysmond.machine.folders import Folders
from sysmond.ring.leftovers import started_ns
from sysmond.ring.progress import Progress, ring_files, stream_files
from sysmond.ring.snapshot import fill

# How often the archiver looks at the rings, more often where they fill fast.
LOOK_S = 10.0
LOOK_MIN_S = 1.0
# A ring that is filling faster than planned is sealed at once when this much of it is not yet sealed.
UNSEALED_FRACTION_MAX = 0.5
# What has so much of that is sealed with it: it would have its turn soon.
BESIDE_FRACTION = 0.5
# If the rest of it is full within this time, the job may not wait for a processor that nobody else wants: beside forty
# programs that want one, what takes a second takes half a minute at normal priority.
URGENT_S = 120.0

# How often the counters of the disk are read while something waits for it and might be flushed.
POLL_S = 5.0
# A disk that refuses is tried again, ever more seldom; a change of the mount table is worth a try by itself.
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 60.0
AFTER_MOUNT_S = 0.2
NEVER_S = float("inf")
BLOCK_DEVICES = "/sys/class/block"


def _rotates(disk: str) -> bool:
    """Whether a disk, or that of a partition, has to be started before it writes; in doubt not.

    Source: the kernel's Documentation/ABI/stable/sysfs-block, queue/rotational.
    """
    for place in ("queue", "../queue"):
        with suppress(OSError), open(f"{BLOCK_DEVICES}/{disk}/{place}/rotational", "rb") as file:
            return file.read(1) == b"1"
    return False


class RingWatch:
    """How full the rings are.

    ``left_s``: until the first of them overwrites what is not sealed. ``short``: those to be sealed now, nothing where
    there is time; ``is_urgent``: one of them lasts for a short time only. ``unsealed``: whether there is anything to
    seal.
    """

    def __init__(self, folders: Folders, now_s: float) -> None:
        """Nothing is known yet."""
        self._folders = folders
        self._looked_s = now_s
        self._heads: dict[str, int] = {}
        self.left_s = NEVER_S
        self.short: tuple[str, ...] = ()
        self.is_urgent = self.unsealed = False

    def look(self, now_s: float) -> float:
        """Look, and say in how many seconds to look again."""
        elapsed_s = max(LOOK_MIN_S, now_s - self._looked_s)
        self._looked_s = now_s
        sealed = Progress.read(self._folders).sealed
        look_s, left_s, heads = LOOK_S, NEVER_S, {}
        self.is_urgent = self.unsealed = False
        filled: dict[str, float] = {}
        for path in (*ring_files(self._folders), *stream_files(self._folders)):
            with suppress(OSError, Error):
                heads[path], capacity = fill(path)
                allowed = capacity * UNSEALED_FRACTION_MAX
                unsealed = heads[path] - (sealed[path].offset if path in sealed else 0)
                known_s = elapsed_s if path in self._heads else _age_s(path)
                growth = max(1.0, (heads[path] - self._heads.get(path, 0)) / known_s)
                self.unsealed = self.unsealed or unsealed > 0
                lasts_s = max(0.0, capacity - unsealed) / growth
                filled[path] = unsealed / allowed
                self.is_urgent = self.is_urgent or (unsealed > allowed and lasts_s < URGENT_S)
                look_s = min(look_s, allowed / 2 / growth)
                left_s = min(left_s, lasts_s)
        self._heads, self.left_s = heads, left_s
        is_short = max(filled.values(), default=0.0) > 1
        self.short = tuple(path for path, part in filled.items() if is_short and part > BESIDE_FRACTION)
        return max(LOOK_MIN_S, look_s)


def _age_s(ring: str) -> float:
    """For how long a ring has been written to."""
    age_ns = clock.boottime_ns() - started_ns(os.path.basename(ring))
    return max(LOOK_MIN_S, age_ns / SECOND_NS)


class DiskWatch:
    """When to write to the disk, and when to try again one that refused. The disk itself is never touched here."""

    def __init__(self, apart_s: float, budget_bytes: int, now_s: float) -> None:
        """The archiver begins with a flush."""
        self._apart_s = apart_s
        self._budget_bytes = budget_bytes
        self._watch = Watch().flushed(now_s)
        self._polled_s = -NEVER_S
        self._pause_s = 0.0
        self._retry_s = NEVER_S
        self._resting_until_s = -NEVER_S
        self._mounts: int | None = None
        with suppress(OSError):
            self._mounts = os.open(mounts.MOUNTINFO, os.O_RDONLY | os.O_CLOEXEC)
        self.disks: tuple[str, ...] = ()
        self.waiting_bytes = 0
        self.unsealed = False
        self.resumed = False

    def close(self) -> None:
        """Let go of the mount table."""
        if self._mounts is not None:
            os.close(self._mounts)
            self._mounts = None

    def exceptional(self) -> list[int]:
        """What becomes exceptional for select(2) when the mount table changes; watched only while that may help."""
        return [] if self._mounts is None or self._retry_s == NEVER_S else [self._mounts]

    def follow(self, apart_s: float, budget_bytes: int) -> None:
        """Go on with other settings."""
        self._apart_s, self._budget_bytes = apart_s, budget_bytes

    def hold(self, until_s: float) -> None:
        """Leave the disk alone until then, unless more waits than may."""
        self._resting_until_s = until_s

    def due_s(self) -> float:
        """When to ask ``decide`` next; never, where nothing waits."""
        due_s = self._due_s()
        return due_s if self.waiting_bytes > self._budget_bytes else max(due_s, self._resting_until_s)

    def _due_s(self) -> float:
        now = self._situation(self._polled_s, None)
        if self._retry_s < NEVER_S:
            return self._retry_s
        if self.waiting_bytes > self._budget_bytes:
            return self._polled_s
        if not (now.waiting_bytes or now.unsealed):
            return NEVER_S
        apart_s = max(self._apart_s, flushing.QUIET_AFTER_OWN_WRITE_S)
        return max(self._polled_s + POLL_S, self._watch.last_flush_s + apart_s)

    def decide(self, now_s: float) -> Reason | None:
        """Say whether to flush now, and why."""
        if now_s < self._resting_until_s and self.waiting_bytes <= self._budget_bytes:
            self.resumed = False
            return None
        if self._retry_s < NEVER_S:
            return Reason.FIRST if now_s >= self._retry_s else None
        if now_s < self.due_s() and not self.resumed:
            return None
        self._polled_s = now_s
        situation = self._situation(now_s, None)
        if self.resumed:  # Asking a battery may take tens of milliseconds.
            is_on_battery = supplies.is_on_battery(supplies.read_supplies(supplies.POWER_SUPPLIES))
            situation = situation._replace(is_resumed=True, is_on_battery=is_on_battery)
            self.resumed = False
        if self._watch.is_due(situation):
            situation = situation._replace(disk=self._read())
        reason, self._watch = flushing.decide(self._watch, situation)
        return reason

    def may_flush_before_sleep(self, now_s: float) -> bool:
        """Whether a machine that is about to sleep should wait until what is in RAM is on the disk.

        Not where that would start a disk that rotates and was at rest: RAM keeps it over the sleep, unless the battery
        is nearly empty. Whoever used the disk since our last flush had us flush, so it rests since then.
        """
        if now_s - self._watch.last_flush_s < max(self._apart_s, flushing.QUIET_AFTER_OWN_WRITE_S):
            return True
        return not any(map(_rotates, self.disks)) or supplies.is_nearly_empty(supplies.POWER_SUPPLIES)

    def mounts_changed(self, now_s: float) -> None:
        """Try again soon: several file systems are often mounted in a row."""
        self._retry_s = min(self._retry_s, now_s + AFTER_MOUNT_S)

    def wrote(self, now_s: float) -> None:
        """What the disk does next is our own."""
        self._watch = self._watch.flushed(now_s)

    def refused(self, now_s: float) -> None:
        """Try again later."""
        self._pause_s = min(RETRY_MAX_S, max(RETRY_FIRST_S, self._pause_s * 2))
        self._retry_s = now_s + self._pause_s

    def accepted(self) -> None:
        """There is nothing to try again."""
        self._pause_s, self._retry_s = 0.0, NEVER_S

    def _situation(self, now_s: float, disk: flushing.SectorCounts | None) -> Situation:
        return Situation(
            now_s, self.waiting_bytes, self._budget_bytes, disk, unsealed=self.unsealed, apart_s=self._apart_s
        )

    def _read(self) -> flushing.SectorCounts | None:
        try:
            with open("/proc/diskstats", "rb", buffering=0) as file:
                content = b""
                while more := file.read(65536):
                    content += more
        except OSError:
            return None
        return flushing.read_disks(content, self.disks)
