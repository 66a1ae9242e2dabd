# SPDX-License-Identifier: Apache-2.0
"""The grid of ticks: multiples of intervals in boot time; a missed slot is skipped, never made up for."""

from collections.abc import Collection
from typing import NamedTuple


class Slot(NamedTuple):
    """The slot to serve now, by how much it is late, and how many were missed before it."""

    tick_ns: int
    lateness_ns: int
    missed: int


def next_slot_ns(now_ns: int, intervals_ns: Collection[int]) -> int:
    """The first multiple of any of the intervals after ``now_ns``."""
    return min(now_ns - now_ns % interval_ns + interval_ns for interval_ns in intervals_ns)


def slot_at(now_ns: int, deadline_ns: int, intervals_ns: Collection[int]) -> Slot:
    """Which slot a wake-up at ``now_ns`` serves, having waited for the slot ``deadline_ns`` (not after now).

    Missed are those of the interval that lost most.
    """
    tick_ns = max(deadline_ns, *(now_ns - now_ns % interval_ns for interval_ns in intervals_ns))
    passed = max(now_ns // interval_ns - (deadline_ns - 1) // interval_ns for interval_ns in intervals_ns)
    return Slot(tick_ns, now_ns - tick_ns, max(0, passed - 1))
