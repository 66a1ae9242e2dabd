# SPDX-License-Identifier: Apache-2.0
"""Devices that come or go together are one: a hub with what hangs on it, a keyboard with its light-emitting diodes.

The kernel announces the whole before its parts when it comes, which drivers find one after the other, and after them
when it goes. On a slow machine seconds lie between them, so what comes is put together by its place below /sys, and is
told once no device was announced for a while. Pure, but for whether something is there. Standard library only.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS

ADDED, REMOVED, STORM = "device added", "device removed", "devices changed"
_OTHER = {ADDED: REMOVED, REMOVED: ADDED}
# More devices than these at once are recorded as their number; nor are more parts named.
DEVICES_LISTED_MAX = 8
# So many wait for their parts. More is a storm.
WAITING_MAX = 64
# A device is told when none was announced for so long, whatever it is a part of: of what hangs on a hub one goes after
# the other. Of one that went longer, where what it was a part of is gone as well, which is not announced yet; and after
# so long whatever comes.
QUIET_NS, GONE_QUIET_NS, HOLD_NS = 2 * SECOND_NS, 5 * SECOND_NS, 10 * SECOND_NS


class Announced(NamedTuple):
    """What a message is about. ``kind`` of event, and ``name`` of the device, where one came or went; else empty.

    ``number``: how many the kernel had announced with it, of all devices; 0 where it does not say. ``path``: of the
    device below /sys, whose parts have longer ones.
    """

    subsystem: str
    kind: str = ""
    name: str = ""
    number: int = 0
    path: str = ""


class DeviceChange(NamedTuple):
    """An event: when it began (boot time), its kind, subject and text."""

    at_ns: int
    kind: str
    subject: str
    text: str


class DeviceGroup:
    """A device, and its parts as far as they were announced with it."""

    def __init__(self, about: Announced, at_ns: int) -> None:
        """Begin with what was announced at a time."""
        self.about = about
        self.first_ns = at_ns
        self.count = 1
        self.parts: list[str] = []
        self.is_over = False

    def take_in(self, parts: Iterable[str], count: int = 1) -> None:
        """Have so many parts more, of which these are the names."""
        self.count += count
        self.parts += [*parts][: DEVICES_LISTED_MAX - len(self.parts)]

    def change(self) -> DeviceChange:
        """The event that it is."""
        unnamed = self.count - 1 - len(self.parts)
        names = [*self.parts, *([f"{unnamed} more"] if unnamed else [])]
        return DeviceChange(
            self.first_ns, self.about.kind, _called(self.about), f"with {', '.join(names)}" if names else ""
        )


def is_in_sys(path: str) -> bool:
    """Whether there is such a device, or folder of devices."""
    return os.path.exists(f"/sys{path}")


class DeviceGroups:
    """Those that are not told yet."""

    def __init__(self, is_there: Callable[[str], bool] = is_in_sys) -> None:
        """``is_there``: whether a device is, by its path."""
        self._is_there = is_there
        self._groups: list[DeviceGroup] = []
        # The newest by kind and path, as far as parts of it may come.
        self._open: dict[tuple[str, str], DeviceGroup] = {}
        self._last_ns = 0
        # Those for which there was no room.
        self._unheld: list[Announced] = []

    def add(self, devices: Iterable[Announced], at_ns: int) -> None:
        """Take in what came and went, in its order; at the same time, but that no two are one."""
        for later_ns, about in enumerate(devices):
            self._last_ns = at_ns + later_ns
            self._add(about, at_ns + later_ns)

    def due_ns(self) -> int:
        """When the next is to be told; 0 where none waits."""
        return min((self._due_ns(group) for group in self._groups), default=0)

    def over(self, now_ns: int, lost: int = 0) -> list[DeviceChange]:
        """Those that are to be told now, in order; a storm, which it is also where some were ``lost``, is one."""
        if not self._unheld and not lost:
            due = [group for group in self._groups if self._due_ns(group) <= now_ns]
            if len(due) <= DEVICES_LISTED_MAX:
                return self._let_go(due)
        else:
            due = self._groups
        said = f"{sum(group.count for group in due) + len(self._unheld)} events"
        if lost:
            said += f"; {lost} more, of whatever devices, were lost"
        subsystems = {about.subsystem for about in (*self._unheld, *(group.about for group in due))}
        first_ns = min((group.first_ns for group in due), default=now_ns)
        self._unheld.clear()
        self._let_go(due)
        return [DeviceChange(first_ns, STORM, " ".join(sorted(subsystems)), said)]

    def rest(self) -> list[DeviceChange]:
        """All that there are, whatever is to come."""
        return self._let_go(self._groups)

    def _let_go(self, groups: list[DeviceGroup]) -> list[DeviceChange]:
        """Give some as events, and know of them no more."""
        for group in groups:
            group.is_over = True
        self._groups = [group for group in self._groups if not group.is_over]
        self._open = {key: group for key, group in self._open.items() if not group.is_over}
        return [group.change() for group in sorted(groups, key=lambda group: group.first_ns)]

    def _add(self, about: Announced, at_ns: int) -> None:
        for kind in (about.kind, _OTHER[about.kind]):
            # What came goes, or comes once more: that is another event.
            if earlier := self._open.pop((kind, about.path), None):
                earlier.is_over = True
        for path in _above(about.path):
            if whole := self._open.get((about.kind, path)):
                whole.take_in([_called(about)])
                return
        if len(self._groups) >= WAITING_MAX:
            self._unheld.append(about)
            return
        group = DeviceGroup(about, at_ns)
        below = f"{about.path}/"
        for key in [key for key in self._open if key[0] == about.kind and key[1].startswith(below)]:
            part = self._open.pop(key)
            self._groups.remove(part)
            group.take_in([_called(part.about), *part.parts], part.count)
            group.first_ns = min(group.first_ns, part.first_ns)
        self._groups.append(group)
        self._open[about.kind, about.path] = group

    def _due_ns(self, group: DeviceGroup) -> int:
        if group.is_over:
            return group.first_ns
        is_part = group.about.kind == REMOVED and not self._is_there(_whole_of(group.about))
        return min(self._last_ns + (GONE_QUIET_NS if is_part else QUIET_NS), group.first_ns + HOLD_NS)


def _called(about: Announced) -> str:
    return f"{about.subsystem}/{about.name}"


def _above(path: str) -> Iterator[str]:
    """The paths of all that a device may be a part of, the whole first."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _whole_of(about: Announced) -> str:
    """What a device is a part of: not the folder of its kind (``…/input/input5``), which goes with the last in it."""
    above, _, name = about.path.rpartition("/")[0].rpartition("/")
    return above if name == about.subsystem else f"{above}/{name}"
