# SPDX-License-Identifier: Apache-2.0
"""Batteries and what charges them, as the kernel's power supplies tell: laptops, UPS, mice, mains adapters, USB-PD.

Source: ``Documentation/ABI/testing/sysfs-class-power``. One read of ``uevent`` has all properties but those of
which the driver knows nothing now (-ENODATA). Serial numbers are among them, and are left there.
"""

import re
from collections.abc import Callable, Iterable

from sysmond.probe import (
    ABSENT,
    Absence,
    Answers,
    Cause,
    Derived,
    Host,
    Lane,
    Metric,
    Probe,
    Row,
    Table,
    Tells,
    gauge,
    hookimpl,
    rows_of,
    state,
    text,
)
from sysmond.sources.slots import COSTLY_S

FOLDER = "/sys/class/power_supply"
PREFIX = "POWER_SUPPLY_"
SUPPLIES_MAX = 64
TEXT_LENGTH_MAX = 64
MICRO = 6
# What may be less than zero: some drivers tell by the sign whether a battery is discharged; frost.
SIGNED = frozenset(("CURRENT_NOW", "POWER_NOW", "TEMP"))
_DISCHARGING = {"Discharging": 1, "Charging": 0, "Not charging": 0, "Full": 0}
STORES = ("Battery", "UPS")
# In names of devices: addresses and serial numbers, as in hid-f0:5c:77:aa:bb:cc-battery. Their ends tell two apart.
NUMBERED = re.compile(r"(?=[A-Za-z:.]*\d)[\dA-Za-z:.]{10,}")


def _gauge(name: str, unit: str, doc: str, scale: int, field: str) -> Metric:
    return gauge(name, unit, doc, scale, PREFIX + field)


BATTERY = Table(
    "battery",
    per="battery",
    doc="Batteries of this machine, of a UPS and of mice and similar devices, as their own"
    " electronics report them. Most have either energy or charge. Long numbers in names"
    " (addresses, serial numbers) are cut to their last four characters.",
    metrics=(
        text("status", "Charging, Discharging, Not charging, Full or Unknown.", f"{PREFIX}STATUS"),
        _gauge(
            "capacity",
            "%",
            "Charge left, as a share of a full charge; some firmware reports more than 100.",
            0,
            "CAPACITY",
        ),
        _gauge("energy", "Wh", "Energy left.", MICRO, "ENERGY_NOW"),
        _gauge("energy_full", "Wh", "Energy when full, as last learnt.", MICRO, "ENERGY_FULL"),
        _gauge("energy_design", "Wh", "Energy when full, as designed.", MICRO, "ENERGY_FULL_DESIGN"),
        _gauge("charge", "Ah", "Charge left.", MICRO, "CHARGE_NOW"),
        _gauge("charge_full", "Ah", "Charge when full, as last learnt.", MICRO, "CHARGE_FULL"),
        _gauge("charge_design", "Ah", "Charge when full, as designed.", MICRO, "CHARGE_FULL_DESIGN"),
        _gauge("power", "W", "Power into or out of it; its sign, if any, is the driver's.", MICRO, "POWER_NOW"),
        _gauge("current", "A", "Current into or out of it; its sign, if any, is the driver's.", MICRO, "CURRENT_NOW"),
        _gauge("voltage", "V", "Voltage at its terminals.", MICRO, "VOLTAGE_NOW"),
        _gauge("voltage_design", "V", "Lowest voltage at its terminals, as designed.", MICRO, "VOLTAGE_MIN_DESIGN"),
        _gauge("temperature", "°C", "Its temperature.", 1, "TEMP"),
        _gauge("cycles", "1", "Charge cycles so far; absent if it does not count them.", 0, "CYCLE_COUNT"),
        _gauge("time_to_empty", "s", "Time until it is empty, by its own estimate.", 0, "TIME_TO_EMPTY_NOW"),
        _gauge("time_to_full", "s", "Time until it is full, by its own estimate.", 0, "TIME_TO_FULL_NOW"),
        _gauge(
            "charge_start", "%", "Charging starts below this level, as configured.", 0, "CHARGE_CONTROL_START_THRESHOLD"
        ),
        _gauge("charge_end", "%", "Charging stops at this level, as configured.", 0, "CHARGE_CONTROL_END_THRESHOLD"),
        state("present", "1 if a battery is inserted.", f"{PREFIX}PRESENT"),
        state("discharging", "1 while it discharges, otherwise 0; absent if unknown.", f"{PREFIX}STATUS"),
        text("level", "Critical, Low, Normal, High or Full; some report only this.", f"{PREFIX}CAPACITY_LEVEL"),
        text("condition", "Its condition as judged by its electronics: Good, Overheat, Dead …", f"{PREFIX}HEALTH"),
        text("technology", "Chemistry, such as Li-ion.", f"{PREFIX}TECHNOLOGY"),
        text("type", "Battery or UPS.", f"{PREFIX}TYPE"),
        text(
            "scope", "System if it powers this machine, Device if it powers another, such as a mouse.", f"{PREFIX}SCOPE"
        ),
        text("model", "Name of the model.", f"{PREFIX}MODEL_NAME"),
    ),
    answers=Answers(
        derived=(
            Derived(
                "health",
                "%",
                "min(energy_full / energy_design, charge_full / charge_design) * 100",
                "Health: energy (or charge) when full, as a share of what was designed.",
            ),
            Derived(
                "time_left",
                "s",
                "min(energy / max(power, -power), charge / max(current, -current)) / discharging * 3600",
                "How long it will last at this power, or current; only while it discharges.",
            ),
            Derived("power_by_current", "W", "voltage * current", "Power, for a battery that does not measure it."),
        )
    ),
)
MAINS = Table(
    "mains",
    per="supply",
    doc="What powers this machine besides batteries: mains adapters, USB and USB-PD, wireless"
    " chargers. With USB-PD, voltage and current are the negotiated ones.",
    metrics=(
        state("online", "1 if power comes from it; 2 if at a programmable voltage.", f"{PREFIX}ONLINE"),
        _gauge("voltage", "V", "Voltage now.", MICRO, "VOLTAGE_NOW"),
        _gauge("voltage_min", "V", "Lowest voltage it can give.", MICRO, "VOLTAGE_MIN"),
        _gauge("voltage_max", "V", "Highest voltage it can give.", MICRO, "VOLTAGE_MAX"),
        _gauge("current", "A", "Current now.", MICRO, "CURRENT_NOW"),
        _gauge("current_max", "A", "Highest current it can give.", MICRO, "CURRENT_MAX"),
        _gauge("current_limit", "A", "Upper limit of the current drawn from it.", MICRO, "INPUT_CURRENT_LIMIT"),
        text(
            "usb_type",
            "Kinds of USB power it offers, the one in use in brackets, such as C [PD] PD_PPS.",
            f"{PREFIX}USB_TYPE",
        ),
        text("type", "Mains, USB, Wireless …", f"{PREFIX}TYPE"),
    ),
)


def parse(uevent: bytes, metrics: Iterable[Metric]) -> list[int | str]:
    """Pick the values of metrics out of a supply's properties; ABSENT for what is not there or cannot be true."""
    lines = (line.partition("=") for line in uevent.decode("utf-8", "replace").splitlines())
    properties = {name: value for name, _, value in lines}
    return [_value(metric, properties.get(metric.origin, "")) for metric in metrics]


def _value(metric: Metric, spelled: str) -> int | str:
    if metric.is_text:
        return "".join(sign for sign in spelled if sign.isprintable())[:TEXT_LENGTH_MAX].strip() or ABSENT
    if metric.name == "discharging":
        return _DISCHARGING.get(spelled, ABSENT)
    try:
        number = int(spelled)
    except ValueError:
        return ABSENT
    return number if number >= 0 or metric.origin.removeprefix(PREFIX) in SIGNED else ABSENT


def _reader(table: Table, is_one: Callable[[object], bool]) -> Callable[[Host], Iterable[Row]]:
    """Read the supplies whose type is one of the table's; what hangs on a device that sleeps is left asleep."""

    def read(host: Host) -> Iterable[Row]:
        supplies = [
            supply for supply in host.names(FOLDER)[:SUPPLIES_MAX] if is_one(host.word(f"{FOLDER}/{supply}/type"))
        ]

        def values(supply: str) -> Absence | list[int | str]:
            folder = f"{FOLDER}/{supply}"
            return (
                Absence(Cause.ASLEEP) if host.is_asleep(folder) else parse(host.read(f"{folder}/uevent"), table.metrics)
            )

        return rows_of(supplies, values)

    return read


def read_batteries(host: Host) -> Iterable[Row]:
    """Give a row for each battery."""
    names: set[str] = set()
    for supply, values in _reader(BATTERY, STORES.__contains__)(host):
        name = NUMBERED.sub(lambda number: number[0].replace(":", "")[-4:], supply)
        yield name if name not in names else f"{name}#{len(names)}", values
        names.add(name)


read_mains = _reader(MAINS, lambda kind: kind not in {*STORES, "BMS", ABSENT})


_CHARGED = (Tells("battery", "status"),)
_ONLINE = (Tells("mains", "online", {0: "off", 1: "on", 2: "on"}),)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``battery`` and ``mains``: asked of embedded controllers, so seldom, and in the background.

    A battery is of interest while it feeds the machine. Each change of status is an event, and read at once.
    """
    battery = Probe(BATTERY, read_batteries, 60.0, Lane.BACKGROUND, subsystems=("power_supply",), on_battery_s=15.0)
    mains = Probe(MAINS, read_mains, 60.0, Lane.BACKGROUND, subsystems=("power_supply",), on_battery_s=60.0)
    return [
        battery._replace(needs=(f"{FOLDER}/*/status", f"{FOLDER}/*/capacity_level"), costly_s=COSTLY_S, tells=_CHARGED),
        mains._replace(needs=(f"{FOLDER}/*/online",), costly_s=COSTLY_S, tells=_ONLINE),
    ]
