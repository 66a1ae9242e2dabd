# SPDX-License-Identifier: Apache-2.0
"""How much current USB devices may draw, by what they told when they were configured.

Source: ``Documentation/ABI/stable/sysfs-bus-usb``. The kernel remembers it: reading wakes no device.
"""

from collections.abc import Iterable

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, gauge, hookimpl, rows_of, state

FOLDER = "/sys/bus/usb/devices"
DEVICES_MAX = 128
FILES = ("bMaxPower", "bmAttributes")
SELF_POWERED = 0x40

USB_POWER = Table(
    "usb_power",
    per="device",
    doc=f"USB devices by their place, such as 1-3.2: bus, port, port of the hub there. At most {DEVICES_MAX}.",
    metrics=(
        gauge("current_max", "A", "The most current it may draw from its port.", 3, f"{FOLDER}/*/bMaxPower"),
        state("self_powered", "1 if it has its own power supply.", f"{FOLDER}/*/bmAttributes"),
    ),
)


def read(host: Host) -> Iterable[Row]:
    """Give a row for each device; their interfaces, whose names have a colon, are none."""
    devices = [name for name in host.names(FOLDER) if ":" not in name][:DEVICES_MAX]
    return rows_of(devices, lambda device: parse(*(host.read(f"{FOLDER}/{device}/{file}") for file in FILES)))


def parse(power: bytes, attributes: bytes) -> tuple[int, int]:
    """Read ``500mA`` and ``a0``; both are empty where a device is not configured.

    :raises ValueError: where they are something else.
    """
    milliamperes, attributes = power.strip(), attributes.strip()
    if milliamperes and not milliamperes.endswith(b"mA"):
        raise ValueError(f"bMaxPower {milliamperes[:16]!r}; expected 500mA")
    return (
        int(milliamperes[:-2]) if milliamperes else ABSENT,
        int(bool(int(attributes, 16) & SELF_POWERED)) if attributes else ABSENT,
    )


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``usb_power``."""
    needs = (f"{FOLDER}/*/bMaxPower",)
    return [Probe(USB_POWER, read, 60.0, Lane.BACKGROUND, subsystems=("usb",), needs=needs)]
