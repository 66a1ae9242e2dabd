# SPDX-License-Identifier: Apache-2.0
"""Temperatures, of chips in /sys/class/hwmon, thermal zones and sensors of Industrial I/O.

Source: the kernel's ``Documentation/hwmon/sysfs-interface.rst``, ``driver-api/thermal/sysfs-api.rst`` and
``ABI/testing/sysfs-bus-iio``.
"""

from collections.abc import Iterator
from itertools import chain

from sysmond.probe import (
    ABSENT,
    Absence,
    Answers,
    Derived,
    Host,
    Lane,
    Option,
    Probe,
    Row,
    Table,
    gauge,
    hookimpl,
    state,
)
from sysmond.sources import hwmon, iio, thermal

TEMPERATURE = Table(
    "temperature",
    per="sensor",
    doc="Temperatures, by chip and label as sensors(1) prints them; if two chips have the same name,"
    " with the address of each on its bus. Thermal zones are named by their type, including those"
    " that hwmon shows as well. An NVMe drive is read every 30 s at most, firmware every 10 s"
    " (less often if it answers slowly), a rotating disk only while somebody else uses it; in"
    " between, the last reading stands. Limits are read when a sensor appears. Intel processors"
    " are read by package; the option cores adds their cores, each of which is interrupted for"
    " that, idle or not.",
    metrics=(
        gauge("value", "°C", "The temperature.", 3, "hwmon tempN_input, zone temp, in_temp_input"),
        gauge("min", "°C", "Below this it is too cold.", 3, "hwmon tempN_min"),
        gauge("max", "°C", "Above this it is too hot.", 3, "hwmon tempN_max, zone: lowest passive trip point"),
        gauge("lcrit", "°C", "Below this there may be damage.", 3, "hwmon tempN_lcrit"),
        gauge(
            "crit",
            "°C",
            "Above this there may be damage: hardware slows down or is switched off.",
            3,
            "hwmon tempN_crit, zone: critical trip point",
        ),
        gauge(
            "emergency",
            "°C",
            "Above this it is switched off; a second limit beyond crit.",
            3,
            "hwmon tempN_emergency",
        ),
        state("alarm", "1 if the chip reports that a limit is exceeded.", "hwmon tempN_alarm, tempN_*_alarm"),
    ),
    answers=Answers(
        derived=(
            Derived(
                "headroom",
                "°C",
                "min(crit, emergency) - value",
                "How far it is below the temperature at which there may be damage.",
            ),
        )
    ),
)


CORES = Option(
    "cores",
    default=False,
    doc="Whether each core of an Intel processor is read as well (coretemp), which interrupts it, and"
    " the zone x86_pkg_temp besides the package's sensor. AMD processors have no sensors for"
    " single cores.",
)
# The zone that reads the same register as coretemp does for its package.
_PACKAGE = "x86_pkg_temp"


class Temperatures:
    """Reads chips, but those that thermal zones have in hwmon again, zones, and other sensors."""

    def __init__(self) -> None:
        """Know none yet."""
        self._chips = hwmon.Sensors(TEMPERATURE, "temp", without=f"/{thermal.ZONE}")
        self._zones = thermal.Zones(self._chips.slow)
        self._others = iio.IioSensors(("temp", 0))

    def read(self, host: Host, *, cores: bool = False) -> Iterator[Row]:
        """Give a row for every temperature there is. ``cores``: also where each reading interrupts a core of a CPU."""
        chips = list(self._chips.read(host, cores=cores))
        is_twice = not cores and any(name.startswith("coretemp") for name, _ in chips)
        zones = self._zones.read(host, _PACKAGE if is_twice else "\0")
        known: set[str] = set()
        without_limits = (ABSENT,) * (len(TEMPERATURE.metrics) - 1)
        others = (
            (name, row if type(row) is Absence else (*row, *without_limits)) for name, row in self._others.read(host)
        )
        for name, row in chain(chips, zones, others):
            if name not in known:  # Of two that are called the same the first counts.
                known.add(name)
                yield name, row


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``temperature``."""
    return [
        Probe(
            TEMPERATURE,
            Temperatures().read,
            hwmon.INTERVAL_S,
            Lane.BACKGROUND,
            subsystems=("hwmon", "iio", "thermal"),
            options=(CORES,),
            needs=(*hwmon.needs("temp", "input"), f"{thermal.FOLDER}/{thermal.ZONE}*", f"{iio.FOLDER}/iio:*/in_temp*"),
        )
    ]
