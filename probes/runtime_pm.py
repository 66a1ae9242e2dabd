# SPDX-License-Identifier: Apache-2.0
"""How long PCI, USB and block devices were awake, and asleep: runtime power management.

Source: ``Documentation/ABI/testing/sysfs-devices-power``. The kernel keeps these times: reading them wakes nothing.
"""

from collections.abc import Iterable
from itertools import islice

from sysmond.probe import Host, Lane, Probe, Row, Table, counter, hookimpl, rows_of, text

# Where devices of a kind are listed, and where in such a folder the device is that sleeps: a disk's is below it.
PLACES = (("pci", "/sys/bus/pci/devices", ""), ("usb", "/sys/bus/usb/devices", ""), ("block", "/sys/block", "/device"))
DEVICES_MAX = 256
UNSUPPORTED = "unsupported"

RUNTIME_PM = Table(
    "runtime_pm",
    per="device",
    doc="Devices that may be suspended while the machine runs, by the number of their place: pci:0000:00:14.0, usb:1-3,"
    f" block:sda. At most {DEVICES_MAX}.",
    metrics=(
        counter("active_time", "s", "How long it was awake.", 3, "power/runtime_active_time"),
        counter("suspended_time", "s", "How long it was asleep.", 3, "power/runtime_suspended_time"),
        text("status", "active, suspended, or on the way: resuming, suspending; error.", "power/runtime_status"),
        text("control", "auto if it may be suspended, on if it is kept awake.", "power/control"),
    ),
)


def read(host: Host) -> Iterable[Row]:
    """Give a row for each device that can be suspended."""
    devices = {
        f"{kind}:{name}": f"{folder}/{name}{below}/"
        for kind, folder, below in PLACES
        for name in host.names(folder)
        if kind != "usb" or ":" not in name  # An interface sleeps with its device.
    }

    def values(device: str) -> tuple[int | str, ...] | None:
        active, suspended, status, control = (devices[device] + metric.origin for metric in RUNTIME_PM.metrics)
        told = host.read(status).strip().decode()
        return (
            None if told == UNSUPPORTED else (host.integer(active), host.integer(suspended), told, host.word(control))
        )

    return islice(rows_of(devices, values), DEVICES_MAX)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``runtime_pm``: counters, which miss nothing between two readings."""
    needs = tuple(f"{folder}/*{below}/power/runtime_status" for _, folder, below in PLACES)
    return [Probe(RUNTIME_PM, read, 60.0, Lane.BACKGROUND, subsystems=("pci", "usb", "block"), needs=needs)]
