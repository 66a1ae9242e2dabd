# SPDX-License-Identifier: Apache-2.0
"""Clocks: boot time orders everything, wall-clock time is a relation to it that changes.

Source: clock_gettime(2); CLOCK_BOOTTIME counts suspended time, CLOCK_MONOTONIC does not.
All quantities are integer nanoseconds.
"""

import time
from functools import cache
from typing import NamedTuple

SECOND_NS = 1_000_000_000

CLOCK_BOOTTIME = time.CLOCK_BOOTTIME
CLOCK_MONOTONIC = time.CLOCK_MONOTONIC
CLOCK_REALTIME = time.CLOCK_REALTIME

# A relation is recorded anew when wall clock or suspended time moved by more than this against boot time.
RELATION_TOLERANCE_NS = 1_000_000
# Reading three clocks takes a microsecond; one that took longer was preempted, and is tried again so often.
RELATION_READ_NS = 20_000
RELATION_TRIES = 5


class Relation(NamedTuple):
    """The three clocks, read together."""

    boottime_ns: int
    realtime_ns: int
    monotonic_ns: int

    def differs(self, other: "Relation") -> bool:
        """Say whether the wall clock or the suspended time moved between two readings."""
        wall_ns = (self.realtime_ns - self.boottime_ns) - (other.realtime_ns - other.boottime_ns)
        awake_ns = (self.monotonic_ns - self.boottime_ns) - (other.monotonic_ns - other.boottime_ns)
        return abs(wall_ns) > RELATION_TOLERANCE_NS or abs(awake_ns) > RELATION_TOLERANCE_NS


def boottime_ns() -> int:
    """Nanoseconds since boot, suspended time included."""
    return time.clock_gettime_ns(CLOCK_BOOTTIME)


def relation() -> Relation:
    """Read the three clocks within microseconds of each other.

    Boot time is read on both sides of the others: a reader that was preempted in between tries again, and
    what it gives is the closest of its readings.
    """
    best_ns, best = -1, Relation(0, 0, 0)
    for _ in range(RELATION_TRIES):
        before_ns = time.clock_gettime_ns(CLOCK_BOOTTIME)
        realtime_ns = time.clock_gettime_ns(CLOCK_REALTIME)
        monotonic_ns = time.clock_gettime_ns(CLOCK_MONOTONIC)
        took_ns = time.clock_gettime_ns(CLOCK_BOOTTIME) - before_ns
        if best_ns < 0 or took_ns < best_ns:
            best_ns, best = took_ns, Relation(before_ns + took_ns // 2, realtime_ns, monotonic_ns)
        if took_ns <= RELATION_READ_NS:
            break
    return best


def boot_id() -> str:
    """The kernel's id of this boot as 32 hexadecimal digits (/proc/sys/kernel/random/boot_id)."""
    return _boot_id()


@cache
def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip().replace("-", "")
