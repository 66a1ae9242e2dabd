# SPDX-License-Identifier: Apache-2.0
"""What the devices of the device mapper (LVM, LUKS, multipath) are called, from ``/sys/class/block/dm-*``.

Source: the kernel's ``Documentation/ABI/testing/sysfs-block-dm``.
"""

from collections.abc import Iterator

from sysmond.probe import Host, Lane, Probe, Row, Table, hookimpl, rows_of, state, text

FOLDER = "/sys/class/block"
INTERVAL_S = 60.0
DEVICES_MAX = 256

DEVICE_MAPPER = Table(
    "device_mapper",
    per="device",
    doc="Device-mapper devices, such as LVM and LUKS volumes: an instance has the same name as in the table disk.",
    metrics=(
        state("suspended", "1 if its requests are held back (suspended).", f"{FOLDER}/dm-*/dm/suspended"),
        text("name", "Its name, as in /dev/mapper.", f"{FOLDER}/dm-*/dm/name"),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each device."""

    def values(device: str) -> tuple[int | str, ...]:
        folder = f"{FOLDER}/{device}/dm"
        name = host.read(f"{folder}/name").decode("utf-8", "surrogateescape").strip()
        if not name:
            raise ValueError(f"{folder}/name: empty; expected a name")
        return host.integer(f"{folder}/suspended"), name

    return rows_of([name for name in host.names(FOLDER) if name.startswith("dm-")][:DEVICES_MAX], values)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``device_mapper``."""
    needs = (f"{FOLDER}/dm-*",)
    return [Probe(DEVICE_MAPPER, read, INTERVAL_S, Lane.BACKGROUND, subsystems=("block",), needs=needs)]
