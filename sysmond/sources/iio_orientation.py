# SPDX-License-Identifier: Apache-2.0
"""Which side of a machine is up, by its accelerometer; how it is turned, by what a sensor hub makes of all sensors.

Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-iio`` (``in_mount_matrix``, ``in_rot_quaternion_raw``). Sides
are called as iio-sensor-proxy calls them, by the same angles.
"""

from collections.abc import Iterable
from math import atan2, degrees, hypot

from sysmond.probe import ABSENT, Absence, Host, Row
from sysmond.sources import iio
from sysmond.sources.unread import why

NEITHER, NORMAL, BOTTOM_UP, LEFT_UP, RIGHT_UP = range(5)
# An axis is up or down where it is steeper than this.
STEEP_DEGREES = 35
ENTRIES = 3
_DIGITS = 6
_MATRICES = ("in_accel_mount_matrix", "in_mount_matrix", "mount_matrix")
_QUATERNION = "in_rot_quaternion_raw"
Vector = tuple[float, ...]
NO_ROTATION = (ABSENT,) * 4


def matrix(content: bytes) -> list[Vector]:
    """Read a mount matrix, as ``0, 1, 0; -1, 0, 0; 0, 0, 1``: how axes of the sensor are turned into the machine's.

    :raises ValueError: where it is none, or has a row without any number but 0.
    """
    rows = [
        tuple(iio.exact(number.strip()) / 10**12 for number in row.split(b",")) for row in content.strip().split(b";")
    ]
    if len(rows) != ENTRIES or any(len(row) != ENTRIES or not any(row) for row in rows):
        raise ValueError(f"{content[:80]!r}; expected three rows of three numbers")
    return rows


def turned(rows: list[Vector], vector: Vector) -> Vector:
    """What a sensor measures, by the axes of the machine."""
    return tuple(sum(factor * part for factor, part in zip(row, vector, strict=True)) for row in rows)


def side(vector: Vector) -> int:
    """Which side is up, of an acceleration at rest; ``NEITHER`` where it lies flat, or between two sides."""
    x, y, z = vector
    across, along = degrees(atan2(x, hypot(y, z))), degrees(atan2(y, hypot(x, z)))
    is_across, is_along = abs(round(across)) > STEEP_DEGREES, abs(round(along)) > STEEP_DEGREES
    if is_across == is_along:
        return NEITHER
    if is_across:
        return LEFT_UP if across > 0 else RIGHT_UP
    return BOTTOM_UP if along > 0 else NORMAL


class Orientations:
    """Reads the accelerometers, and the sensors that tell a rotation."""

    def __init__(self) -> None:
        """Know the channels."""
        self._accelerometers = iio.IioSensors(*((f"accel_{axis}", _DIGITS) for axis in "xyz"))
        self._rotations = iio.IioSensors(("rot_quaternion", _DIGITS))

    def read(self, host: Host, *, wake: bool = False) -> Iterable[Row]:
        """Give a row for each: the side that is up, and four parts of a rotation, ABSENT what it does not tell."""
        rows: dict[str, Absence | tuple[int, ...]] = {}
        for sensor in self._accelerometers.sensors(host):
            row = iio.values(host, sensor, wake=wake)
            rows[sensor.instance] = row if isinstance(row, Absence) else _side(host, sensor.folder, row)
        for sensor in self._rotations.sensors(host):
            row = iio.resting(host, sensor.folder, wake=wake) or _rotation(host, sensor)
            before = rows.get(sensor.instance, row)
            if not isinstance(before, Absence) and not isinstance(row, Absence):
                row = before[0], *row[1:]  # One device has both.
            rows[sensor.instance] = row
        return rows.items()


def _side(host: Host, folder: str, row: tuple[int, ...]) -> Absence | tuple[int, ...]:
    if ABSENT in row:  # Two axes do not say which side is up.
        return ABSENT, *NO_ROTATION
    content = next((told for name in _MATRICES if (told := host.word(f"{folder}/{name}")) != ABSENT), None)
    try:
        vector = row if content is None else turned(matrix(str(content).encode()), row)
    except ValueError as problem:
        return why("in_mount_matrix", problem)
    return side(vector), *NO_ROTATION


def _rotation(host: Host, sensor: iio.IioSensor) -> Absence | tuple[int, ...]:
    """Read the parts of a quaternion, each raw and to be multiplied by the scale."""
    (channel,) = sensor.channels
    if channel is None:
        return ABSENT, *NO_ROTATION
    try:
        parts = [iio.exact(part) for part in host.read(channel.path).split()]
        scale = iio.exact(host.read(channel.scale)) if channel.scale else 10**12
        if len(parts) != len(NO_ROTATION):
            raise ValueError(f"{len(parts)} numbers")
    except (OSError, ValueError) as problem:
        return why(_QUATERNION, problem)
    one = 10 ** (24 - _DIGITS)
    scaled = [(part * scale * 2 + one) // (2 * one) for part in parts]
    return ABSENT, *(part if ABSENT < part < -ABSENT else ABSENT for part in scaled)
