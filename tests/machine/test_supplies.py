# SPDX-License-Identifier: Apache-2.0
"""What feeds a machine, by what its power supplies say."""

from pathlib import Path

import pytest

from sysmond.machine.supplies import Supply, is_nearly_empty, is_on_battery

MAINS_ON, MAINS_OFF = Supply("Mains", "1"), Supply("Mains", "0")
USB_ON, USB_OFF = Supply("USB", "1", scope="System"), Supply("USB", "0")
MOUSE = Supply("Battery", "", "Discharging", "Device")


@pytest.mark.parametrize(
    ("supplies", "right"),
    [
        ([], False),
        ([MAINS_ON], False),
        ([MAINS_OFF, Supply("Battery", "", "Discharging", "System")], True),
        ([MAINS_OFF, Supply("Battery", "", "Unknown")], True),
        ([MAINS_ON, Supply("Battery", "", "Discharging")], False),
        ([MAINS_OFF, USB_ON, Supply("Battery", "", "Charging")], False),
        ([MAINS_OFF, USB_OFF, Supply("Battery", "", "Not charging")], True),
        ([Supply("Battery", "", "Discharging")], True),
        ([Supply("Battery", "", "Full")], False),
        ([Supply("UPS", "1", "Discharging")], True),
        ([MOUSE], False),
        ([MAINS_ON, MOUSE], False),
        ([MAINS_OFF], False),
    ],
)
def test_what_feeds_a_machine(supplies: list[Supply], right: bool) -> None:
    assert is_on_battery(supplies) is right


@pytest.mark.parametrize(
    ("status", "capacity", "expected"),
    [("Discharging", "5", True), ("Discharging", "20", False), ("Charging", "5", False), ("Discharging", "", False)],
)
def test_a_battery_that_may_not_last_is_known(tmp_path: Path, status: str, capacity: str, *, expected: bool) -> None:
    battery = tmp_path / "BAT0"
    battery.mkdir()
    for name, text in (("type", "Battery"), ("status", status), ("capacity", capacity)):
        (battery / name).write_text(f"{text}\n")
    assert is_nearly_empty(str(tmp_path)) is expected
    assert not is_nearly_empty(str(tmp_path / "none"))


def test_the_battery_of_a_mouse_is_not_the_machines(tmp_path: Path) -> None:
    for name, texts in {
        "BAT0": {"type": "Battery", "status": "Discharging", "capacity": "80"},
        "mouse": {"type": "Battery", "status": "Discharging", "capacity": "3", "scope": "Device"},
    }.items():
        (tmp_path / name).mkdir()
        for file, text in texts.items():
            (tmp_path / name / file).write_text(f"{text}\n")
    assert not is_nearly_empty(str(tmp_path))
