# SPDX-License-Identifier: Apache-2.0
"""Thermal zones and cooling devices of /sys/class/thermal, by their types, which stay when numbers change.

Behind most of them is firmware: methods of ACPI, or a wireless card. One that answers slowly is read less often.
Source: the kernel's ``Documentation/driver-api/thermal/sysfs-api.rst`` and ``ABI/testing/sysfs-class-thermal``.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from sysmond.base.eased_pace import FIRMWARE_S
from sysmond.probe import ABSENT, Absence, Cause, Host, Row
from sysmond.sources.slots import Slots, SlowFirmware
from sysmond.sources.unread import printable, why

FOLDER = "/sys/class/thermal"
ACPI = "/sys/firmware/acpi"
ZONE, COOLING = "thermal_zone", "cooling_device"
DEVICES_MAX = 512
TRIPS_MAX = 16
# What a driver says that has no temperature (THERMAL_TEMP_INVALID).
ABSOLUTE_ZERO = -273_150
# No trip point that anybody has set is so cold; the kernel does not believe firmware either (drivers/acpi/thermal.c).
FREEZING = 0


def devices(host: Host, prefix: str) -> dict[str, str]:
    """The folders of the devices that are called so, by instance: the type, and where several have it, which device.

    That is what it belongs to in hardware, as ``LNXCPU:03``, else its number.
    """
    typed: list[tuple[str, str]] = []
    names = [name for name in host.names(FOLDER) if name.startswith(prefix)]
    for name in sorted(names, key=lambda name: (len(name), name))[:DEVICES_MAX]:
        with suppress(OSError):  # It is gone.
            typed.append((printable(host.read(f"{FOLDER}/{name}/type")) or name, name))
    types = [spelled for spelled, _ in typed]
    folders: dict[str, str] = {}
    for spelled, name in typed:
        which = _belongs(host, name) or name.removeprefix(prefix)
        instance = f"{spelled}-{which}" if types.count(spelled) > 1 else spelled
        folders[instance if instance not in folders else f"{instance}-{name.removeprefix(prefix)}"] = f"{FOLDER}/{name}"
    return folders


class Devices:
    """Reads devices, each on the first tick of its time slots; between them the row says what was read last."""

    def __init__(self, slow: SlowFirmware, values: Callable[[Host, str, str], Absence | Sequence[int]]) -> None:
        """``values``: reads one, by instance and folder. ``slow``: is told which of them answer slowly."""
        self._slow = slow
        self._values = values
        self._host: Host | None = None
        self._known: dict[tuple[str, str], tuple[Slots, Row]] = {}

    def read(self, host: Host, folders: dict[str, str]) -> Iterator[Row]:
        """Give a row for each of these devices, by instance, that there are now."""
        if host is not self._host:
            self._host, self._known = host, {}
        gone = self._known.keys() - folders.items()
        self._slow.forget(host, [instance for instance, _ in gone])
        for device in gone:
            del self._known[device]
        for device in folders.items():
            instance, folder = device
            if host.is_asleep(f"{folder}/device"):
                yield instance, Absence(Cause.ASLEEP)
                continue
            slots, row = self._known.get(device) or (Slots(host.root, f"{folder}/device", _least_s(host)), None)
            if slots.is_due() or row is None:
                with self._slow.timed(host, instance, slots):
                    row = instance, self._values(host, instance, folder)
                self._known[device] = slots, row
            yield row


class Zones:
    """Reads the temperature of every zone; its trip points are read when it appears."""

    def __init__(self, slow: SlowFirmware) -> None:
        """Know none yet. ``slow``: is told which of them answer slowly."""
        self._devices = Devices(slow, self._values)
        self._host: Host | None = None
        self._limits: dict[tuple[str, str], tuple[int, int]] = {}

    def read(self, host: Host, without: str = "\0") -> Iterator[Row]:
        """Give rows of the table ``temperature``: value, min, max, lcrit, crit, emergency, alarm.

        ``without``: how the types begin that are not read.
        """
        folders = {name: folder for name, folder in devices(host, ZONE).items() if not name.startswith(without)}
        if host is not self._host:
            self._host, self._limits = host, {}
        self._limits = {zone: limits for zone, limits in self._limits.items() if folders.get(zone[0]) == zone[1]}
        return self._devices.read(host, folders)

    def _values(self, host: Host, instance: str, folder: str) -> Absence | tuple[int, ...]:
        try:
            value = int(host.read(f"{folder}/temp"))
        except (OSError, ValueError) as problem:
            return why("temp", problem)
        if not ABSOLUTE_ZERO <= value < -ABSENT:
            return Absence(Cause.NO_SOURCE, f"temp is {value}")
        if (instance, folder) not in self._limits:
            self._limits[instance, folder] = _limits(host, folder)
        passive, critical = self._limits[instance, folder]
        return value, ABSENT, passive, ABSENT, critical, ABSENT, ABSENT


def _least_s(host: Host) -> float:
    """How often a device may be asked at most: on a machine with ACPI, whose methods most of them are, seldom."""
    return FIRMWARE_S if os.path.isdir(host.root + ACPI) else 0.0


def _belongs(host: Host, name: str) -> str:
    try:
        return os.path.basename(os.readlink(f"{host.root}{FOLDER}/{name}/device"))
    except OSError:
        return ""


def _limits(host: Host, folder: str) -> tuple[int, int]:
    """From where on the kernel slows down what heats it, and where it switches the machine off."""
    at: dict[bytes, int] = {}
    for trip in range(TRIPS_MAX):
        try:
            kind = host.read_anew(f"{folder}/trip_point_{trip}_type").strip()
            value = int(host.read_anew(f"{folder}/trip_point_{trip}_temp"))
        except (OSError, ValueError):
            continue
        if FREEZING < value < -ABSENT:
            at[kind] = min(value, at.get(kind, value))
    return at.get(b"passive", ABSENT), at.get(b"critical", ABSENT)
