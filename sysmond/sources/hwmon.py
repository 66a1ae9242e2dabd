# SPDX-License-Identifier: Apache-2.0
"""Chips of /sys/class/hwmon: which sensors of one kind there are, looked up at hot-plug, and what they measure now.

Source: the kernel's ``Documentation/hwmon/sysfs-interface.rst``. A chip is left alone while it, or anything that it
hangs on, sleeps, and it is not asked so often that it could not fall asleep.
"""

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import NamedTuple

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import FIRMWARE_S
from sysmond.probe import ABSENT, Absence, Cause, Host, Row, Table
from sysmond.sources.bus_address import address
from sysmond.sources.disk_use import DiskUse
from sysmond.sources.libsensors import Labels, library
from sysmond.sources.slots import Slots, SlowFirmware
from sysmond.sources.unread import printable, why

FOLDER = "/sys/class/hwmon"
INTERVAL_S = 10.0
CHIPS_MAX = 256
SENSORS_MAX = 512

# How often a chip is asked at most, by name: a drive answers by a command. Each is one of the lengths of slots.
_SLOT_S = {"nvme": 30, "drivetemp": 30}
# Chips that are firmware, by name: an embedded controller is slow and shared with the keyboard, a method of ACPI or WMI
# keeps a CPU busy. Beside them what is on these buses, or belongs to a battery.
_FIRMWARE = frozenset(
    (
        *("abituguru", "abituguru3", "acer", "acpi_fan", "applesmc", "asus", "asus_wmi_ec_sensors"),
        *("asus_wmi_sensors", "asusec", "atk0110", "cros_ec", "dell_ddv", "dell_smm", "eeepc", "gigabyte_wmi"),
        *("gpdfan", "hp", "hp_wmi_sensors", "ibmpex", "macsmc_hwmon", "msi_wmi_platform", "oxp_ec", "oxpec"),
        *("power_meter", "rpi_volt", "scmi_sensors", "scpi_sensors", "surface_fan", "surface_thermal"),
        *("system76_acpi", "thinkpad", "toshiba_acpi_sensors"),
    )
)
_FIRMWARE_BUSES = frozenset(("acpi", "power_supply", "wmi"))
# Each alarm of these would be one more read of a register of a CPU, which interrupts that; the limit tells the same.
_WITHOUT_ALARMS = ("coretemp",)
# Each sensor of these reads a register of a CPU of its own, which interrupts that: one, of the package, is enough.
_A_SENSOR_A_CPU = ("coretemp",)
_OF_PACKAGE = b"Package"
_ALARMS = ("alarm", "min_alarm", "max_alarm", "lcrit_alarm", "crit_alarm", "emergency_alarm", "cap_alarm")
_NUMBER_MAX = 2**63
_VALUE, _ALARM = "value", "alarm"


class Sensor(NamedTuple):
    """One sensor: its instance, and its attributes: the value, the flag of a fault, limits, each "" where it has none.

    ``alarms`` is None where the table has no such metric.
    """

    instance: str
    value: str
    fault: str
    limits: tuple[str, ...]
    alarms: tuple[str, ...] | None


class Chip:
    """A chip as one table sees it: its sensors, their limits once they are known, and its last rows.

    ``name``: that of its folder in ``/sys/class/hwmon``; ``folder``: where its attributes are. ``slots``: when it may
    be asked. ``spelled``: how its sensors begin. ``is_firmware``: whether it is asked more seldom where it answers
    slowly.
    """

    def __init__(self, host: Host, name: str) -> None:
        """Look what it is, without asking it for anything.

        :raises OSError: where it is gone.
        """
        self.name = name
        # By the way through its devices: under its number there may be another chip tomorrow.
        self.folder = os.path.normpath(f"{FOLDER}/{os.readlink(f'{host.root}{FOLDER}/{name}')}")
        try:
            driver = host.read_anew(f"{self.folder}/name")
        except FileNotFoundError:  # Old drivers have their attributes in the folder of the device.
            self.folder += "/device"
            driver = host.read_anew(f"{self.folder}/name")
        self.driver = self.spelled = printable(driver) or name
        self.sensors: list[Sensor] = []
        self.rows: list[Row] = []
        self._limits: dict[str, tuple[int, ...]] = {}
        self.is_firmware = self.driver in _FIRMWARE or _bus(host, name) in _FIRMWARE_BUSES
        least_s = FIRMWARE_S if self.is_firmware else _SLOT_S.get(self.driver, 0)
        self.slots = Slots(host.root, f"{FOLDER}/{name}", float(least_s))
        self._disk = _rotating_disk(host, self)

    def rest(self, host: Host) -> Absence | None:
        """Say why it is not to be asked now, where it is not."""
        if host.is_asleep(f"{FOLDER}/{self.name}"):
            return Absence(Cause.ASLEEP)
        if self._disk and not self._disk.is_used(host, clock.boottime_ns() / SECOND_NS):
            return Absence(Cause.ASLEEP, "nobody is using the disk; asking would keep it from spinning down")
        return None

    def ask(self, host: Host, digits: int) -> list[Row]:
        """Read all its sensors; one that cannot be read says why."""
        rows: list[Row] = [(sensor.instance, self._values(host, sensor, digits)) for sensor in self.sensors]
        if self._disk:
            with suppress(OSError):
                self._disk.asked(host)
        return rows

    def _values(self, host: Host, sensor: Sensor, digits: int) -> Absence | tuple[int, ...]:
        try:
            if sensor.fault and host.integer(f"{self.folder}/{sensor.fault}") == 1:
                return Absence(Cause.NO_SOURCE, f"the chip reports a fault: {sensor.fault} is 1")
            value = self._number(host, sensor.value, digits) if sensor.value else ABSENT
        except (OSError, ValueError, OverflowError) as problem:
            return why(sensor.value, problem)
        if sensor.instance not in self._limits:
            self._limits[sensor.instance] = tuple(self._limit(host, limit, digits) for limit in sensor.limits)
        if sensor.alarms is None:
            return value, *self._limits[sensor.instance]
        flags = [host.integer(f"{self.folder}/{alarm}") for alarm in sensor.alarms]
        return value, *self._limits[sensor.instance], max((flag for flag in flags if flag in {0, 1}), default=ABSENT)

    def _limit(self, host: Host, attribute: str, digits: int) -> int:
        try:
            return self._number(host, attribute, digits) if attribute else ABSENT
        except (OSError, ValueError, OverflowError):
            return ABSENT

    def _number(self, host: Host, attribute: str, digits: int) -> int:
        """Read an attribute as an integer of so many decimals; where there is libsensors, as that computes it."""
        known = None if host.root else library()
        try:
            computed = known.value(self.name, attribute) if known else None
        except ValueError:
            int(host.read(f"{self.folder}/{attribute}"))  # Which says why.
            raise
        number = (
            int(host.read(f"{self.folder}/{attribute}")) if computed is None else round(computed * float(10**digits))
        )
        if abs(number) >= _NUMBER_MAX:
            raise ValueError(f"{attribute} is {number}")
        return number


class Sensors:
    """Reads one table: the sensors of one kind, as ``temp``, of all chips.

    The metrics of the table are ``value``, limits by the names that their files end in, and ``alarm``; the kernel's
    integers have the decimals of the first. ``slow``: what of the table answers slowly.
    """

    def __init__(self, table: Table, kind: str, values: tuple[str, ...] = ("input",), without: str = "\0") -> None:
        """``values``: how the file with the value may end. ``without``: part of the path of what is left out."""
        self.slow = SlowFirmware(table.name)
        self._digits = table.metrics[0].scale
        self._has_alarm = any(metric.name == _ALARM for metric in table.metrics)
        self._limits = [metric.name for metric in table.metrics if metric.name not in {_VALUE, _ALARM}]
        # A sensor that only warns is one, too: a voltage regulator that tells of nothing but too low a voltage.
        self._order = (*values, *(_ALARMS if self._has_alarm else ()))
        self._value = re.compile(rf"({kind}\d+)_({'|'.join(self._order)})")
        self._values = values
        self._without = without
        self._host: Host | None = None
        self._seen: tuple[tuple[str, str], ...] | None = None
        self._chips: list[Chip] = []
        self._has_cores = False

    def read(self, host: Host, *, cores: bool = False) -> Iterator[Row]:
        """Give a row for every sensor that there is now. ``cores``: also for those of a single core of a CPU."""
        seen = _seen(host)
        self._has_cores = cores
        if host is not self._host or seen != self._seen:
            self._host, self._seen = host, seen
            self.slow.forget(host, [chip.spelled for chip in self._chips])
            self._chips = self._look(host, seen)
        for chip in self._chips:
            try:
                absence = chip.rest(host)
            except OSError as problem:
                absence = why(chip.driver, problem)
            if absence is None and (chip.slots.is_due() or not chip.rows):
                with self.slow.timed(host, chip.spelled, chip.slots) if chip.is_firmware else nullcontext():
                    chip.rows = chip.ask(host, self._digits)
            yield from chip.rows if absence is None else ((sensor.instance, absence) for sensor in chip.sensors)

    def _look(self, host: Host, seen: tuple[tuple[str, str], ...]) -> list[Chip]:
        """Look which chips there are, and which of their sensors are of this kind."""
        known = None if host.root else library()
        labels = known.labels(seen) if known else {}
        chips: list[Chip] = []
        for name, device in seen:
            if self._without not in device:
                with suppress(OSError):  # It is gone again.
                    chips.append(Chip(host, name))
        drivers = [chip.driver for chip in chips]
        left = SENSORS_MAX
        for chip in chips:
            if drivers.count(chip.driver) > 1:
                chip.spelled += f"-{address(host.root, f'{FOLDER}/{chip.name}')}"
            chip.sensors = self._sensors(host, chip, labels.get(chip.name))[:left]
            left -= len(chip.sensors)
        return _distinct([chip for chip in chips if chip.sensors])

    def _sensors(self, host: Host, chip: Chip, labels: Labels | None) -> list[Sensor]:
        files = set(host.names_anew(chip.folder))
        pairs = sorted(match.groups() for match in map(self._value.fullmatch, files) if match)
        best = {feature: min((end for f, end in pairs if f == feature), key=self._order.index) for feature, _ in pairs}
        sensors: list[Sensor] = []
        features: list[str] = []
        for feature in self._wanted(host, chip, sorted(best, key=_by_number)):
            if labels is not None and feature not in labels:
                continue  # The administrator has it ignored.
            label = _label(host, chip, feature) if labels is None else labels[feature]
            alarms = () if chip.driver in _WITHOUT_ALARMS else tuple(f"{feature}_{alarm}" for alarm in _ALARMS)
            fault, *limits = (
                attribute if attribute in files else ""
                for attribute in (f"{feature}_{end}" for end in ("fault", *self._limits))
            )
            instance = f"{chip.spelled}:{printable(label) or feature}"
            there = tuple(alarm for alarm in alarms if alarm in files) if self._has_alarm else None
            value = f"{feature}_{best[feature]}" if best[feature] in self._values else ""
            sensors.append(Sensor(instance, value, fault, tuple(limits), there))
            features.append(feature)
        names = [sensor.instance for sensor in sensors]
        return [
            sensor._replace(instance=f"{sensor.instance} ({feature})") if names.count(sensor.instance) > 1 else sensor
            for sensor, feature in zip(sensors, features, strict=True)
        ]

    def _wanted(self, host: Host, chip: Chip, features: list[str]) -> list[str]:
        """Leave out the sensors of single cores; one of them stands for a package that has no sensor itself."""
        if self._has_cores or chip.driver not in _A_SENSOR_A_CPU:
            return features
        return [each for each in features if _label(host, chip, each).startswith(_OF_PACKAGE)] or features[:1]


def needs(kind: str, *values: str) -> tuple[str, ...]:
    """Where sensors of a kind are, in patterns: of the chip, or of old drivers of the device."""
    ends = (*values, "alarm") if kind != "energy" else values
    return tuple(f"{FOLDER}/hwmon*/{place}{kind}*_{end}" for place in ("", "device/") for end in ends)


def _seen(host: Host) -> tuple[tuple[str, str], ...]:
    """Which chips there are, and where each of them leads: a name alone may be another chip's tomorrow."""
    seen = []
    for name in host.names(FOLDER)[:CHIPS_MAX]:
        with suppress(OSError):
            seen.append((name, os.readlink(f"{host.root}{FOLDER}/{name}")))
    return tuple(seen)


def _bus(host: Host, name: str) -> str:
    """The bus, or class, that a chip's device is of; "" where it has none."""
    try:
        return os.path.basename(os.readlink(f"{host.root}{FOLDER}/{name}/device/subsystem"))
    except OSError:
        return ""


def _distinct(chips: list[Chip]) -> list[Chip]:
    """Number sensors whose chips have one name and one address, too."""
    known: set[str] = set()
    for chip in chips:
        for index, sensor in enumerate(chip.sensors):
            instance, count = sensor.instance, 1
            while instance in known:
                count += 1
                instance = f"{sensor.instance} #{count}"
            known.add(instance)
            chip.sensors[index] = sensor._replace(instance=instance)
    return chips


def _by_number(feature: str) -> int:
    return int("".join(sign for sign in feature if sign.isdecimal()))


def _label(host: Host, chip: Chip, feature: str) -> bytes:
    try:
        return host.read_anew(f"{chip.folder}/{feature}_label")
    except OSError:
        return b""


def _rotating_disk(host: Host, chip: Chip) -> DiskUse | None:
    """The disk that a chip is in, where it is one that spins down."""
    block = f"{FOLDER}/{chip.name}/device/block"
    for disk in host.names_anew(block):
        if host.integer(f"{block}/{disk}/queue/rotational") == 1:
            return DiskUse(f"{block}/{disk}/stat")
    return None
