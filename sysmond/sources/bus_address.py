# SPDX-License-Identifier: Apache-2.0
"""Where a device is, spelled as sensors(1) does: ``pci-0200``. It tells two chips of one name apart, on every boot."""

import os
import re
from collections.abc import Callable

DEVICES_ABOVE_MAX = 16
# How a device of a bus is called, the base of the numbers in that, and how they are spelled.
_BUSES: dict[str, tuple[str, int, Callable[..., str]]] = {
    "acpi": (r".*", 10, lambda: "acpi-0"),
    "hid": (r"(\w+):\w+:\w+\.(\w+)", 16, lambda bus, number: f"hid-{bus}-{number:x}"),
    "i2c": (r"(\d+)-(\w+)", 16, lambda bus, number: f"i2c-{bus:x}-{number:02x}"),
    "mdio_bus": (r"[^:]*:(\w+)", 16, lambda number: f"mdio-{number:x}"),
    "pci": (
        r"(\w+):(\w+):(\w+)\.(\w+)",
        16,
        lambda domain, bus, slot, function: f"pci-{(domain << 16) + (bus << 8) + (slot << 3) + function:04x}",
    ),
    "platform": (r"(?:[a-z0-9_]+\.(?=\d+$)|.*)(\d*)", 10, lambda number: f"isa-{number:04x}"),
    "scsi": (
        r"(\d+):(\d+):(\d+):(\d+)",
        10,
        lambda host, channel, target, unit: f"scsi-{host}-{(channel << 8) + (target << 4) + unit:x}",
    ),
    "spi": (r"spi(\d+)\.(\d+)", 10, lambda bus, number: f"spi-{bus}-{number:x}"),
}
_NO_BUS: tuple[str, int, Callable[..., str]] = ("(?!)", 10, str)


def address(root: str, device: str) -> str:
    """Spell the first device with a bus, of this one and those above it; ``virtual-0`` where there is none."""
    devices, folder = (os.path.realpath(root + path) for path in ("/sys/devices", device))
    for _ in range(DEVICES_ABOVE_MAX):
        if not folder.startswith(f"{devices}/"):
            break
        try:
            bus = os.path.basename(os.readlink(f"{folder}/subsystem"))
        except OSError:
            bus = ""
        pattern, base, spelled = _BUSES.get(bus, _NO_BUS)
        if found := re.fullmatch(pattern, os.path.basename(folder)):
            return spelled(*(int(word or "0", base) for word in found.groups()))
        folder = os.path.dirname(folder)
    return "virtual-0"
