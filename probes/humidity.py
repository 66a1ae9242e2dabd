# SPDX-License-Identifier: Apache-2.0
"""Humidity of air, of chips in /sys/class/hwmon and sensors of Industrial I/O.

Source: the kernel's ``Documentation/hwmon/sysfs-interface.rst`` and ``ABI/testing/sysfs-bus-iio``.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Absence, Host, Lane, Probe, Row, Table, gauge, hookimpl, state
from sysmond.sources import hwmon, iio

HUMIDITY = Table(
    "humidity",
    per="sensor",
    doc="Relative humidity, by chip and label as sensors(1) prints them, or by sensor.",
    metrics=(
        gauge("value", "%", "The humidity.", 3, "hwmon humidityN_input, in_humidityrelative_input"),
        gauge("min", "%", "Below this it is too dry.", 3, "hwmon humidityN_min"),
        gauge("max", "%", "Above this it is too humid.", 3, "hwmon humidityN_max"),
        state(
            "alarm",
            "1 if the chip reports that a limit is exceeded.",
            "hwmon humidityN_alarm, humidityN_*_alarm",
        ),
    ),
)


class Humidities:
    """Reads chips, and other sensors."""

    def __init__(self) -> None:
        """Know none yet."""
        self._chips = hwmon.Sensors(HUMIDITY, "humidity")
        self._others = iio.IioSensors(("humidityrelative", 0))

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for every sensor there is."""
        yield from self._chips.read(host)
        for name, row in self._others.read(host):
            yield name, row if type(row) is Absence else (*row, ABSENT, ABSENT, ABSENT)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``humidity``."""
    needs = (*hwmon.needs("humidity", "input"), f"{iio.FOLDER}/iio:*/in_humidityrelative*")
    return [
        Probe(HUMIDITY, Humidities().read, hwmon.INTERVAL_S, Lane.BACKGROUND, subsystems=("hwmon", "iio"), needs=needs)
    ]
