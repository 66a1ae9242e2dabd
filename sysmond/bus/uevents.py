# SPDX-License-Identifier: Apache-2.0
"""Devices that come, go and change: tells the lanes to look again, and the recording what happened.

Source: udev's events, or the kernel's own where no udev runs (udev_monitor_new_from_netlink(3)). Only the
subsystems that probes of the plan name are listened to. Changes are gathered: a thousand in a second cost one look.
"""

import asyncio
import errno
import os
from contextlib import suppress

import pyudev

from sysmond.base import clock
from sysmond.base.event_kinds import BUS
from sysmond.bus.part import BusPart
from sysmond.errors import Error
from sysmond.machine import control
from sysmond.plan import catalogue
from sysmond.ring.progress import ARCHIVER, LANES, WRITERS

# So long nothing more must come until the lanes are told, and no longer than that in all.
QUIET_S = 0.25
GATHER_MAX_S = 1.0
# More devices than these at once are recorded as their number.
DEVICES_LISTED_MAX = 8
# So many events are read in one go; between two the loop looks after its other business.
EVENTS_AT_ONCE_MAX = 64
# A storm that does not fit is lost by the kernel, and known by that; beyond its own limit only root gets it.
BUFFER_BYTES = 8 * 1024 * 1024
UDEV_SOCKET = "/run/udev/control"
_ACTIONS = {"add": "device added", "remove": "device removed"}


class Uevents:
    """Listens for as long as the part runs."""

    def __init__(self, part: BusPart) -> None:
        """Nothing is listened to before ``follow``."""
        self._part = part
        self._runtime = part.settings.folders.runtime
        self._subsystems: frozenset[str] = frozenset()
        self._monitor: pyudev.Monitor | None = None
        self._changed: set[str] = set()
        self._devices: list[tuple[str, str, str]] = []
        self._number = 0
        self._began_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        part.when_planned.append(self.follow)

    def follow(self) -> None:
        """Listen to what the plan's probes name now."""
        wanted = self._wanted()
        if wanted == self._subsystems:
            return
        self.end()
        self._subsystems = wanted
        if wanted:
            try:
                self._begin()
            except (OSError, ImportError) as refusal:
                self._part.say(f"no events of devices: {refusal}; devices are looked for every half minute")

    def end(self) -> None:
        """Listen no more."""
        if self._monitor is not None:
            asyncio.get_running_loop().remove_reader(self._monitor.fileno())
            self._monitor = None
        self._subsystems = frozenset()

    def _wanted(self) -> frozenset[str]:
        with suppress(OSError, Error):
            entries = catalogue.read(self._runtime).tables.values()
            return frozenset(name for entry in entries if entry.planned.enabled for name in entry.subsystems)
        return self._subsystems

    def _begin(self) -> None:
        source = "udev" if os.path.exists(UDEV_SOCKET) else "kernel"
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source=source)
        for name in sorted(self._subsystems):
            monitor.filter_by(name)
        with suppress(OSError):
            monitor.set_receive_buffer_size(BUFFER_BYTES)
        monitor.start()
        asyncio.get_running_loop().add_reader(monitor.fileno(), self._take)
        self._monitor = monitor

    def _take(self) -> None:
        """Take what has come; what is left wakes the loop again."""
        if self._monitor is None:
            return
        try:
            for _ in range(EVENTS_AT_ONCE_MAX):
                device = self._monitor.poll(timeout=0)
                if device is None:
                    break
                self._note(device.action or "", device.subsystem or "", device.sys_name)
        except OSError as failure:
            if failure.errno != errno.ENOBUFS:
                raise
            self._changed |= self._subsystems  # Some were lost: any of them may have been meant.
            self._number += 1
            self._gather()

    def _note(self, action: str, subsystem: str, name: str) -> None:
        self._changed.add(subsystem)
        self._number += 1
        if len(self._devices) <= DEVICES_LISTED_MAX and action in _ACTIONS:
            self._devices.append((action, subsystem, name))
        self._gather()

    def _gather(self) -> None:
        """Put off what is to be told by a moment of quiet, but not for ever."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if self._timer is None:
            self._began_s = now_s
        else:
            self._timer.cancel()
        self._timer = loop.call_at(min(now_s + QUIET_S, self._began_s + GATHER_MAX_S), self._tell)

    def _tell(self) -> None:
        changed, devices, number = sorted(self._changed), self._devices, self._number
        self._changed, self._devices, self._number, self._timer = set(), [], 0, None
        for writer in (WRITERS[lane] for lane in LANES):
            control.tell(f"{self._runtime}/{writer}", {"do": "look", "subsystems": changed})
        if len(devices) > DEVICES_LISTED_MAX:
            self._record("devices changed", " ".join(changed), f"{number} events")
            return
        for action, subsystem, name in devices:
            self._record(_ACTIONS[action], f"{subsystem}/{name}", "")

    def _record(self, kind: str, subject: str, text: str) -> None:
        order: control.Order = {"do": "event", "by": BUS, "kind": kind, "subject": subject, "text": text}
        order["boottime_ns"] = clock.boottime_ns()
        control.tell(f"{self._runtime}/{ARCHIVER}", order)
