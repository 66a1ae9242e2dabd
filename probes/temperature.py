# SPDX-License-Identifier: Apache-2.0
"""Temperatures, of chips in /sys/class/hwmon.

Source: the kernel's ``Documentation/hwmon/sysfs-interface.rst``.
"""

from sysmond.probe import Lane, Probe, Table, gauge, hookimpl, state
from sysmond.sources import hwmon

TEMPERATURE = Table(
    "temperature",
    per="sensor",
    doc="Temperatures, by chip and label as sensors(1) prints them; where two chips have one name, with the address of"
    " each on its bus. An NVMe drive is asked every 30 s at most, a rotating disk while somebody else uses it; between"
    " two readings the last one stands. Limits are read when a sensor appears.",
    metrics=(
        gauge("value", "°C", "The temperature.", 3, "hwmon tempN_input"),
        gauge("min", "°C", "Below this it is too cold.", 3, "hwmon tempN_min"),
        gauge("max", "°C", "Above this it is too hot.", 3, "hwmon tempN_max"),
        gauge("lcrit", "°C", "Below this there may be damage.", 3, "hwmon tempN_lcrit"),
        gauge(
            "crit",
            "°C",
            "Above this there may be damage: hardware slows down or is switched off.",
            3,
            "hwmon tempN_crit",
        ),
        gauge(
            "emergency",
            "°C",
            "Above this it is switched off, where there is more than crit.",
            3,
            "hwmon tempN_emergency",
        ),
        state("alarm", "1 where the chip says that a limit is passed; 0 none is.", "hwmon tempN_alarm, tempN_*_alarm"),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``temperature``."""
    return [
        Probe(
            TEMPERATURE,
            hwmon.Sensors(TEMPERATURE, "temp").read,
            hwmon.INTERVAL_S,
            Lane.BACKGROUND,
            subsystems=("hwmon",),
            needs=hwmon.needs("temp", "input"),
        )
    ]
