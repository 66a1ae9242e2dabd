# SPDX-License-Identifier: Apache-2.0
"""What feeds a machine, by what its power supplies say."""

import pytest

from sysmond.machine.supplies import Supply, is_on_battery

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
