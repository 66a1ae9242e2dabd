# SPDX-License-Identifier: Apache-2.0
"""Power supplies: whether a battery feeds the machine, by ``read_supplies`` and ``is_on_battery``; how much is left.

Source: the kernel's ``Documentation/ABI/testing/sysfs-class-power``. Standard library only.
"""

import os
from collections.abc import Collection
from typing import NamedTuple

POWER_SUPPLIES = "/sys/class/power_supply"
NEARLY_EMPTY_PERCENT = 20


class Supply(NamedTuple):
    """A power supply: each as the file of this name has it, empty where there is none."""

    type: str
    online: str = ""
    status: str = ""
    scope: str = ""


def is_on_battery(supplies: Collection[Supply]) -> bool:
    """Whether a battery of the machine itself feeds it: a mouse's is not meant. In doubt it is not so."""
    own = [supply for supply in supplies if supply.scope != "Device"]
    stores = [supply for supply in own if supply.type in {"Battery", "UPS"}]
    feeds = [supply for supply in own if supply.type not in {"Battery", "UPS"} and supply.online]
    if any(supply.online != "0" for supply in feeds):
        return False
    return any(supply.status == "Discharging" or feeds for supply in stores)


def is_nearly_empty(folder: str) -> bool:
    """Whether a battery feeds the machine that may not last until somebody charges it."""
    if not is_on_battery(read_supplies(folder)):
        return False
    for name in os.listdir(folder):
        left = _first_line(f"{folder}/{name}/capacity")
        is_own = _first_line(f"{folder}/{name}/scope") != "Device"
        if is_own and left.isdecimal() and int(left) < NEARLY_EMPTY_PERCENT:
            return True
    return False


def read_supplies(folder: str) -> list[Supply]:
    """Read every power supply of the machine; none, where the kernel tells of none.

    To ask a battery may take its embedded controller tens of milliseconds.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [Supply(*(_first_line(f"{folder}/{name}/{field}") for field in Supply._fields)) for name in names]


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
