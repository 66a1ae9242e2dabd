# SPDX-License-Identifier: Apache-2.0
"""When a device may be asked: as seldom as it needs, and so that it may fall asleep between two readings.

Slots are lengths of time that ticks fall on, so all tables ask a device at the same tick. Source: the kernel's
``Documentation/ABI/testing/sysfs-devices-power``.
"""

import os
from contextlib import suppress

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.sources.bus_address import DEVICES_ABOVE_MAX

LENGTHS_S = (10, 30, 60, 300)


class Slots:
    """The slots of one device. ``length_s``: 0 where it may be asked at any time."""

    def __init__(self, root: str, device: str, least_s: float = 0.0) -> None:
        """``device``: its folder in /sys, or that of something that hangs on it; ``least_s``: how long at least."""
        least_s = max(least_s, falls_asleep_s(root, device))
        self.length_s = next((length_s for length_s in (0, *LENGTHS_S) if length_s >= least_s), LENGTHS_S[-1])
        self._slot = -1

    def is_due(self) -> bool:
        """Whether this slot is a new one; once told, it is none until the next."""
        if not self.length_s:
            return True
        slot = clock.boottime_ns() // (self.length_s * SECOND_NS)
        is_due, self._slot = slot != self._slot, slot
        return is_due


def falls_asleep_s(root: str, device: str) -> float:
    """How long nobody may ask for a device and all that it hangs on to fall asleep; 0.0 where none of them does."""
    longest_s = 0.0
    folder = os.path.realpath(root + device)
    for _ in range(DEVICES_ABOVE_MAX):
        with suppress(OSError, ValueError):
            with open(f"{folder}/power/control", "rb") as file:
                is_managed = file.read().strip() == b"auto"
            with open(f"{folder}/power/autosuspend_delay_ms", "rb") as file:
                longest_s = max(longest_s, int(file.read()) / 1000 + 1) if is_managed else longest_s
        folder = os.path.dirname(folder)
    return longest_s
