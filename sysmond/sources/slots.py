# SPDX-License-Identifier: Apache-2.0
"""When a device may be asked: as seldom as it needs, and so that it may fall asleep between two readings.

Slots are lengths of time that ticks fall on, so all tables ask a device at the same tick. Firmware that takes long to
answer has longer ones. Source: the kernel's ``Documentation/ABI/testing/sysfs-devices-power``.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import EASED_MAX_S, FIRMWARE_S, EasedPace
from sysmond.probe import Host
from sysmond.sources.bus_address import DEVICES_ABOVE_MAX

LENGTHS_S = (10, 30, 60, 300)
# Firmware that takes longer is asked more seldom: it has keys and fans to look after.
COSTLY_S = 0.005
# So many devices are named that are asked more seldom.
NAMED_MAX = 8


class Slots:
    """The slots of one device."""

    def __init__(self, root: str, device: str, least_s: float = 0.0) -> None:
        """``device``: its folder in /sys, or that of something that hangs on it; ``least_s``: how long at least."""
        least_s = max(least_s, falls_asleep_s(root, device))
        self._planned_s = next((length_s for length_s in (0, *LENGTHS_S) if length_s >= least_s), LENGTHS_S[-1])
        self._pace = EasedPace()
        self._slot_s = -1

    @property
    def is_eased(self) -> bool:
        """Whether they are longer than planned, since the device answers slowly."""
        return self.length_s > self._planned_s

    @property
    def length_s(self) -> int:
        """How long they are now; 0 where it may be asked at any time."""
        if self._pace.factor == 1:
            return self._planned_s
        return min(max(self._planned_s, FIRMWARE_S) * self._pace.factor, EASED_MAX_S)

    def judge(self, took_s: float) -> bool:
        """Take in how long an answer took; gives whether the slots have another length from now on."""
        return self._pace.judge(is_long=took_s > COSTLY_S, interval_s=self.length_s)

    def is_due(self) -> bool:
        """Whether this slot is a new one; once told, it is none until the next."""
        now_s = clock.boottime_ns() // SECOND_NS
        # By where it begins, which stays comparable when slots become longer or shorter.
        slot_s = now_s - now_s % (self.length_s or 1)
        is_due = slot_s > self._slot_s or not self.length_s
        self._slot_s = max(slot_s, self._slot_s)
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


class SlowFirmware:
    """Which devices of a table are asked more seldom, since their firmware answers slowly; that is told the doctor."""

    def __init__(self, table: str) -> None:
        """Know of none."""
        self._table = table
        self._lengths_s: dict[str, int] = {}

    @contextmanager
    def timed(self, host: Host, device: str, slots: Slots) -> Iterator[None]:
        """Time a question to a device, by the clock on the wall: who calls firmware waits for it."""
        begun_s = monotonic()
        try:
            yield
        finally:
            if slots.judge(monotonic() - begun_s):
                self._lengths_s.pop(device, None)
                if slots.is_eased:
                    self._lengths_s[device] = slots.length_s
            host.tell_way(self._table, self._way())  # Each time: who read before may have told something else.

    def forget(self, host: Host, devices: Iterable[str]) -> None:
        """Forget what was known of devices: they are gone, or have new slots."""
        before = len(self._lengths_s)
        for device in devices:
            self._lengths_s.pop(device, None)
        if len(self._lengths_s) < before:
            host.tell_way(self._table, self._way())

    def _way(self) -> str:
        named = [f"{device} every {length_s} s" for device, length_s in sorted(self._lengths_s.items())]
        if len(named) > NAMED_MAX:
            named[NAMED_MAX:] = [f"{len(named) - NAMED_MAX} more"]
        return f"read less often, because they answer slowly: {', '.join(named)}" if named else ""
