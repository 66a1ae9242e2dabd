# SPDX-License-Identifier: Apache-2.0
"""Sensors of Industrial I/O: light, motion, pressure, read one value at a time.

Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-iio``. A value is either computed by the driver (``_input``)
or raw, to be moved by an offset and multiplied by a scale; that is done here in whole numbers, so it is rounded once.
While somebody reads a device through its buffer, as a desktop does that turns with the screen, it is left to him.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from sysmond.probe import ABSENT, Absence, Cause, Host, Option, Row
from sysmond.sources.bus_address import address
from sysmond.sources.unread import printable, why

FOLDER = "/sys/bus/iio/devices"
INTERVAL_S = 10.0
DEVICES_MAX = 64
ROWS_MAX = 256
WAKE = Option("wake", default=False, doc="Whether a sensor that sleeps between readings is woken to be read.")
# Decimals of offsets and scales: more than any driver gives.
_DIGITS = 12
_ONE = 10**_DIGITS
_DECIMAL = re.compile(rb"(-?)(\d{1,19})(?:\.(\d{1,12}))?\s*")


class Channel(NamedTuple):
    """A value: its file, how many decimals of it are kept, and where a raw one has its offset and scale, or ""."""

    path: str
    digits: int
    offset: str = ""
    scale: str = ""


class IioSensor(NamedTuple):
    """One row: a channel for each column, None where the device has none. ``folder``: in /sys."""

    instance: str
    folder: str
    channels: tuple[Channel | None, ...]


class IioSensors:
    """Reads the devices that have any of some channels.

    ``columns``: channels as ``accel_x``, and how many decimals of the unit that IIO has for it are kept. A device
    that has a channel several times, by number, has a row for each.
    """

    def __init__(self, *columns: tuple[str, int]) -> None:
        """Know which channels to look for."""
        self._columns = columns

    def read(self, host: Host, *, wake: bool = False) -> Iterator[Row]:
        """Give a row for each, a value a column. ``wake``: also of those that sleep."""
        for sensor in self.sensors(host):
            yield sensor.instance, values(host, sensor, wake=wake)

    def sensors(self, host: Host) -> Iterator[IioSensor]:
        """Name the sensors, without asking them for anything."""
        known: set[str] = set()
        names = called(host)
        for device, name in names.items():
            folder = f"{FOLDER}/{device}"
            is_alone = list(names.values()).count(name) == 1
            spelled = name if is_alone else f"{name}-{address(host.root, folder)}"
            for number, channels in self._channels(host, folder).items():
                instance = f"{spelled}:{number}" if number else spelled
                if instance in known:  # Sensors of one hub have no addresses.
                    instance += f" ({device})"
                if len(known) < ROWS_MAX:
                    known.add(instance)
                    yield IioSensor(instance, folder, tuple(channels))

    def _channels(self, host: Host, folder: str) -> dict[str, list[Channel | None]]:
        """Give the channels of a device, by their number, which is mostly none."""
        files = set(host.names(folder))
        by_number: dict[str, list[Channel | None]] = {}
        for column, (channel, digits) in enumerate(self._columns):
            kind, _, axis = channel.partition("_")
            axis = f"_{axis}" if axis else ""
            pattern = re.compile(rf"in_{kind}(\d*){axis}_(?:raw|input)")
            for number in sorted({match[1] for match in map(pattern.fullmatch, files) if match}):
                row = by_number.setdefault(number, [None] * len(self._columns))
                row[column] = _channel(
                    files, folder, (f"in_{kind}{number}{axis}", f"in_{kind}{axis}", f"in_{kind}"), digits
                )
        return by_number


def called(host: Host) -> dict[str, str]:
    """How each device, as ``iio:device0``, calls itself."""
    names = {}
    for device in [name for name in host.names(FOLDER) if name.startswith("iio:")][:DEVICES_MAX]:
        with suppress(OSError):  # It is gone.
            names[device] = printable(host.read(f"{FOLDER}/{device}/name")) or device
    return names


def resting(host: Host, folder: str, *, wake: bool) -> Absence | None:
    """Why a device is not to be asked now, where it is not. ``wake``: also where it sleeps."""
    if not wake and host.is_asleep(folder):
        return Absence(Cause.ASLEEP)
    if any(host.integer(f"{folder}/{buffer}/enable") == 1 for buffer in ("buffer", "buffer0")):
        return Absence(Cause.IN_USE, "another program is reading its buffer")
    return None


def exact(text: bytes) -> int:
    """A decimal number as the kernel writes it, as an integer of 12 decimals.

    :raises ValueError: where it is none.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r}; expected a decimal number")
    sign, whole, part = match.groups(b"")
    return int(sign + whole + part.ljust(_DIGITS, b"0"))


def _channel(files: set[str], folder: str, spellings: tuple[str, ...], digits: int) -> Channel:
    """Find its files: offset and scale may be of this channel, of its axis, or of all of its kind."""
    if f"{spellings[0]}_input" in files:
        return Channel(f"{folder}/{spellings[0]}_input", digits)
    offset, scale = (
        next((f"{folder}/{spelling}_{end}" for spelling in spellings if f"{spelling}_{end}" in files), "")
        for end in ("offset", "scale")
    )
    return Channel(f"{folder}/{spellings[0]}_raw", digits, offset, scale)


def values(host: Host, sensor: IioSensor, *, wake: bool) -> Absence | tuple[int, ...]:
    """Read a sensor, ABSENT where it has no such channel."""
    if absence := resting(host, sensor.folder, wake=wake):
        return absence
    found: list[int] = []
    for channel in sensor.channels:
        try:
            found.append(ABSENT if channel is None else _value(host, channel))
        except (OSError, ValueError) as problem:
            return why(os.path.basename(channel.path) if channel else "", problem)
    return tuple(found)


def _value(host: Host, channel: Channel) -> int:
    """Read a channel: (raw + offset) × scale, all of which may change at any time."""
    value = exact(host.read(channel.path))
    offset = exact(host.read(channel.offset)) if channel.offset else 0
    scale = exact(host.read(channel.scale)) if channel.scale else _ONE
    one = _ONE * _ONE
    scaled: int = ((value + offset) * scale * 10**channel.digits * 2 + one) // (2 * one)
    if not ABSENT < scaled < -ABSENT:
        raise ValueError(f"{channel.path}: {scaled} is too large")
    return scaled
