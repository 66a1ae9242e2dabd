# SPDX-License-Identifier: Apache-2.0
"""The grid of ticks: multiples of an interval in boot time; a missed slot is skipped, never made up for."""

from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

from sysmond.clock import SECOND_NS


class Slot(NamedTuple):
    """The slot to serve now, by how much it is late, and how many were missed before it."""

    tick_ns: int
    lateness_ns: int
    missed: int


def base_interval_ns(intervals_ns: Iterable[int]) -> int:
    """The longest interval whose multiples contain those of all the others; a second where there are none."""
    return gcd(*intervals_ns) or SECOND_NS


def next_slot_ns(now_ns: int, base_ns: int) -> int:
    """The first slot after ``now_ns``."""
    return now_ns - now_ns % base_ns + base_ns


def slot_at(now_ns: int, deadline_ns: int, base_ns: int) -> Slot:
    """Which slot a wake-up at ``now_ns`` serves, having waited for ``deadline_ns`` (not after now)."""
    missed = (now_ns - deadline_ns) // base_ns
    tick_ns = deadline_ns + missed * base_ns
    return Slot(tick_ns, now_ns - tick_ns, missed)


def is_due(tick_ns: int, before_ns: int, interval_ns: int) -> bool:
    """Whether a multiple of ``interval_ns`` lies after the last tick ``before_ns`` and not after this one.

    True for a first tick (``before_ns`` negative). A multiple that fell on a missed slot is served late.
    """
    return before_ns < 0 or tick_ns // interval_ns > before_ns // interval_ns
