# SPDX-License-Identifier: Apache-2.0
"""Fans, voltages, currents, power and energy, of chips in /sys/class/hwmon.

Source: the kernel's ``Documentation/hwmon/sysfs-interface.rst``.
"""

from sysmond.probe import Lane, Metric, Probe, Sensitivity, Table, counter, gauge, hookimpl, state
from sysmond.sources import hwmon

_WHERE = "by chip and label as sensors(1) prints them"


def _limits(unit: str, digits: int, attribute: str, **limits: str) -> tuple[Metric, ...]:
    """The limits of a kind of sensor, by the names that their files end in, and the alarm."""
    return (
        *(gauge(name, unit, doc, digits, f"hwmon {attribute}_{name}") for name, doc in limits.items()),
        state(
            "alarm",
            "1 if the chip reports that a limit is exceeded.",
            f"hwmon {attribute}_alarm, {attribute}_*_alarm",
        ),
    )


_LOW_AND_HIGH = {
    "min": "Below this it is too low.",
    "max": "Above this it is too high.",
    "lcrit": "Below this there may be damage.",
    "crit": "Above this there may be damage.",
}
FAN = Table(
    "fan",
    per="sensor",
    doc=f"Fans, {_WHERE}.",
    metrics=(
        gauge("value", "rpm", "Revolutions per minute.", origin="hwmon fanN_input"),
        *_limits("rpm", 0, "fanN", min="Below this it is too slow.", max="Above this it is too fast."),
    ),
)
VOLTAGE = Table(
    "voltage",
    per="sensor",
    doc=f"Voltages, {_WHERE}. Many boards divide a voltage before the chip; /etc/sensors3.conf knows what it was.",
    metrics=(gauge("value", "V", "The voltage.", 3, "hwmon inN_input"), *_limits("V", 3, "inN", **_LOW_AND_HIGH)),
)
CURRENT = Table(
    "current",
    per="sensor",
    doc=f"Electric currents, {_WHERE}.",
    metrics=(gauge("value", "A", "The current.", 3, "hwmon currN_input"), *_limits("A", 3, "currN", **_LOW_AND_HIGH)),
)
POWER = Table(
    "power",
    per="sensor",
    doc=f"Electric power, {_WHERE}.",
    metrics=(
        gauge(
            "value",
            "W",
            "The power: the current value, otherwise the chip's average.",
            6,
            "hwmon powerN_input, powerN_average",
        ),
        *_limits("W", 6, "powerN", cap="The limit it is kept below.", **_LOW_AND_HIGH),
    ),
)
ENERGY = Table(
    "energy",
    per="sensor",
    doc=f"Electric energy, {_WHERE}. The energy of a processor reveals what it computes, so this is restricted.",
    metrics=(counter("value", "J", "Energy used since the chip started counting.", 6, "hwmon energyN_input"),),
)
# Table, how the files of its sensors begin, and how that with the value may end.
KINDS = (
    (FAN, "fan", ("input",)),
    (VOLTAGE, "in", ("input",)),
    (CURRENT, "curr", ("input",)),
    (POWER, "power", ("input", "average")),
    (ENERGY, "energy", ("input",)),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer a table for each kind of sensor."""
    return [
        Probe(
            table,
            hwmon.Sensors(table, kind, values).read,
            hwmon.INTERVAL_S,
            Lane.BACKGROUND,
            Sensitivity.RESTRICTED if table is ENERGY else Sensitivity.PUBLIC,
            subsystems=("hwmon",),
            needs=hwmon.needs(kind, *values),
            privilege="CAP_DAC_READ_SEARCH, with some drivers" if table is ENERGY else "",
        )
        for table, kind, values in KINDS
    ]
