# SPDX-License-Identifier: Apache-2.0
"""The tables battery and mains: exact values of described machines, what sleeps, what is missing, and garbage."""

from math import isnan, nan
from pathlib import Path

import pytest
from sysmond_probes import battery

from sysmond.base import declared_answers, formula
from sysmond.base.formula import Operand
from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Absence, Cause, Host, Table
from sysmond.sources.slots import COSTLY_S
from tests.support import sysfs


def rows(table: Table, root: Path) -> dict[str, dict[str, int | str] | Absence]:
    """What a machine has to say, by instance: the metrics that are there, or why there are none."""
    (probe,) = [probe for probe in battery.sysmond_probes() if probe.table is table]
    names = [metric.name for metric in table.metrics]
    return {
        instance: values
        if isinstance(values, Absence)
        else {name: value for name, value in zip(names, values, strict=True) if value != ABSENT}
        for instance, values in probe.read(Host(str(root)))
    }


def supply(root: Path, name: str, *properties: str, kind: str = "Battery") -> Path:
    told = [f"E: POWER_SUPPLY_{told}" for told in (f"TYPE={kind}", *properties)]
    lines = [f"P: /devices/platform/{name}/power_supply/{name}", "E: SUBSYSTEM=power_supply", *told, f"A: type={kind}"]
    sysfs.devices(root, "\n".join(lines))
    return root / f"sys/devices/platform/{name}"


def derived(row: dict[str, int | str] | Absence) -> dict[str, float]:
    """What the formulas of batteries give for a row, where that is known."""
    assert isinstance(row, dict)
    assert battery.BATTERY.answers
    scales = {metric.name: metric.scale for metric in battery.BATTERY.metrics}
    values = {Operand("", name): value / 10 ** scales[name] for name, value in row.items() if isinstance(value, int)}
    formulas = {column.name: formula.parse(column.formula) for column in battery.BATTERY.answers.derived}
    made = {
        name: round(read.evaluate(dict.fromkeys(read.operands, nan) | values, formula.FLOATS), 3)
        for name, read in formulas.items()
    }
    return {name: value for name, value in made.items() if not isnan(value)}


def test_the_tables_are_sound() -> None:
    for probe in battery.sysmond_probes():
        check_table(probe.table)
        declared_answers.check(probe.table)
        assert all(metric.origin for metric in probe.table.metrics)


def test_both_batteries_of_a_laptop_tell_what_they_measure(tmp_path: Path) -> None:
    told = rows(battery.BATTERY, sysfs.build(tmp_path, "laptop", "battery", "mains", "usb_pd"))
    assert told["BAT0"] == {
        "status": "Discharging",
        "capacity": 80,
        "energy": 41_230_000,
        "energy_full": 51_230_000,
        "energy_design": 57_000_000,
        "power": 6_418_000,
        "voltage": 11_910_000,
        "voltage_design": 11_520_000,
        "cycles": 143,
        "charge_start": 75,
        "charge_end": 80,
        "present": 1,
        "discharging": 1,
        "level": "Normal",
        "technology": "Li-poly",
        "type": "Battery",
        "model": "01AV494",
    }


def test_what_the_kernel_says_stays_where_it_may_be_true(tmp_path: Path) -> None:
    # Charge above full, more than 100 %, a sign; no power is made of current and voltage.
    told = rows(battery.BATTERY, sysfs.build(tmp_path, "laptop", "battery"))["BAT1"]
    assert isinstance(told, dict)
    wanted = {"capacity": 101, "charge": 2_067_000, "charge_full": 2_050_000, "current": -1000, "temperature": 304}
    assert wanted.items() <= told.items()
    assert "power" not in told


def test_energy_above_full_is_what_the_kernel_says(tmp_path: Path) -> None:
    """What is full was not learnt anew: it holds more than that, and health is of what is said to be full."""
    supply(tmp_path, "BAT0", "ENERGY_NOW=52000000", "ENERGY_FULL=50000000", "ENERGY_FULL_DESIGN=40000000")
    told = rows(battery.BATTERY, tmp_path)["BAT0"]
    assert told == {"energy": 52_000_000, "energy_full": 50_000_000, "energy_design": 40_000_000, "type": "Battery"}
    assert derived(told)["health"] == 125


def test_health_and_time_left_follow_from_what_is_told(tmp_path: Path) -> None:
    told = rows(battery.BATTERY, sysfs.build(tmp_path, "laptop", "battery"))
    assert isinstance(told["BAT0"], dict)
    assert isinstance(told["BAT1"], dict)
    assert derived(told["BAT0"]) == {"health": 89.877, "time_left": 23126.831}
    assert derived(told["BAT1"]) == {"health": 97.619, "power_by_current": -0.013}  # It does not discharge.
    assert derived(told["BAT0"] | {"power": -6_418_000})["time_left"] == 23126.831  # A sign is the driver's.
    assert derived(told["BAT1"] | {"discharging": 1, "current": -1_000_000})["time_left"] == 7441.2
    assert "time_left" not in derived(told["BAT0"] | {"discharging": 0})
    assert "time_left" not in derived({name: value for name, value in told["BAT0"].items() if name != "discharging"})


def test_devices_have_batteries_whose_names_tell_no_address_and_no_serial_number(tmp_path: Path) -> None:
    told = rows(battery.BATTERY, sysfs.build(tmp_path, "laptop", "battery"))
    assert list(told) == ["BAT0", "BAT1", "hid-bbcc-battery", "hidpp_battery_0"]
    assert told["hid-bbcc-battery"] == {
        "status": "Discharging",
        "capacity": 47,
        "present": 1,
        "discharging": 1,
        "type": "Battery",
        "scope": "Device",
        "model": "Keyboard",
    }
    assert "1234" not in repr(told)


def test_two_numbers_with_one_end_are_two_batteries(tmp_path: Path) -> None:
    for begin in ("f0", "f1"):
        supply(tmp_path, f"hid-{begin}:5c:77:aa:bb:cc-battery")
    assert list(rows(battery.BATTERY, tmp_path)) == ["hid-bbcc-battery", "hid-bbcc-battery#1"]


def test_a_battery_is_asked_oftener_while_it_feeds_the_machine() -> None:
    probes = {probe.table.name: probe for probe in battery.sysmond_probes()}
    assert (probes["battery"].interval_s, probes["battery"].on_battery_s) == (60.0, 15.0)
    assert all(probe.costly_s == COSTLY_S for probe in probes.values())


def test_a_ups_is_a_battery(tmp_path: Path) -> None:
    told = rows(battery.BATTERY, sysfs.build(tmp_path, "server", "ups"))
    assert told == {
        "hid-0001-battery": {
            "status": "Charging",
            "capacity": 100,
            "time_to_empty": 2760,
            "discharging": 0,
            "type": "UPS",
            "scope": "System",
        }
    }


def test_mains_and_a_usb_charger_feed_the_machine(tmp_path: Path) -> None:
    told = rows(battery.MAINS, sysfs.build(tmp_path, "laptop", "battery", "mains", "usb_pd"))
    assert told == {
        "AC": {"online": 1, "type": "Mains"},
        "ucsi-source-psy-USBC000:001": {
            "online": 1,
            "voltage": 20_000_000,
            "voltage_min": 5_000_000,
            "voltage_max": 20_000_000,
            "current": 3_000_000,
            "current_max": 3_250_000,
            "usb_type": "C [PD] PD_PPS",
            "type": "USB",
        },
    }


def test_a_machine_without_power_supplies_has_no_rows(tmp_path: Path) -> None:
    assert rows(battery.BATTERY, tmp_path) == rows(battery.MAINS, tmp_path) == {}


def test_a_device_that_sleeps_is_not_asked(tmp_path: Path) -> None:
    root = sysfs.build(tmp_path, "laptop", "battery")
    mouse = root / "sys/devices/pci0000:00/0000:00:14.0/usb1/1-3"
    (mouse / "power").mkdir()
    (mouse / "power/runtime_status").write_text("suspended\n")
    asked = root / "sys/class/power_supply/hidpp_battery_0/uevent"
    asked.unlink()
    asked.mkdir()  # To read it would raise.
    told = rows(battery.BATTERY, root)
    assert told["hidpp_battery_0"] == Absence(Cause.ASLEEP)
    assert isinstance(told["BAT0"], dict)


def test_a_bad_battery_costs_no_other(tmp_path: Path) -> None:
    root = sysfs.build(tmp_path, "laptop", "battery")
    broken = root / "sys/class/power_supply/BAT0/uevent"
    broken.unlink()
    broken.mkdir()
    told = rows(battery.BATTERY, root)
    assert isinstance(told["BAT0"], Absence)
    assert told["BAT0"].cause is Cause.PROBE_FAILED
    assert isinstance(told["BAT1"], dict)


def test_a_battery_that_goes_in_mid_read_has_no_row(tmp_path: Path) -> None:
    root = sysfs.build(tmp_path, "laptop", "battery")
    (root / "sys/class/power_supply/BAT0/uevent").unlink()
    assert list(rows(battery.BATTERY, root)) == ["BAT1", "hid-bbcc-battery", "hidpp_battery_0"]


@pytest.mark.parametrize(
    "told",
    [
        "CAPACITY=-61",
        "CAPACITY=N/A",
        "ENERGY_NOW=-1",
        "ENERGY_NOW=",
        "CYCLE_COUNT=lots",
        "VOLTAGE_NOW=0x1",
    ],
)
def test_garbage_is_absent(tmp_path: Path, told: str) -> None:
    supply(tmp_path, "BAT0", told)
    assert rows(battery.BATTERY, tmp_path) == {"BAT0": {"type": "Battery"}}


def test_texts_are_short_and_printable(tmp_path: Path) -> None:
    supply(tmp_path, "BAT0", f"MODEL_NAME=\x1b[31m{'x' * 100}", "STATUS=\x07")
    assert rows(battery.BATTERY, tmp_path) == {"BAT0": {"type": "Battery", "model": "[31m" + "x" * 60}}


def test_an_empty_uevent_is_a_battery_that_says_nothing(tmp_path: Path) -> None:
    (supply(tmp_path, "BAT0") / "power_supply/BAT0/uevent").write_bytes(b"")
    assert rows(battery.BATTERY, tmp_path) == {"BAT0": {}}


def test_a_fuel_gauge_behind_a_battery_is_neither(tmp_path: Path) -> None:
    supply(tmp_path, "bms", "CAPACITY=50", kind="BMS")
    assert rows(battery.BATTERY, tmp_path) == rows(battery.MAINS, tmp_path) == {}


def test_there_are_so_many_supplies_at_most(tmp_path: Path) -> None:
    for number in range(battery.SUPPLIES_MAX + 3):
        supply(tmp_path, f"BAT{number:03}", "CAPACITY=1")
    assert len(rows(battery.BATTERY, tmp_path)) == battery.SUPPLIES_MAX
