# SPDX-License-Identifier: Apache-2.0
"""Links of network interfaces: carrier, speed, state, from ``/sys/class/net``.

Source: the kernel's ``Documentation/ABI/testing/sysfs-class-net``. They are read when the kernel tells that one has
changed, and once a minute. A driver is asked for speed and duplex, so that is done only where there is a carrier, and
never of a device that sleeps.
"""

from collections.abc import Iterator

from sysmond.probe import (
    ABSENT,
    LINKS,
    Host,
    Lane,
    Probe,
    Row,
    Table,
    Tells,
    counter,
    gauge,
    hookimpl,
    rows_of,
    state,
    text,
)

FOLDER = "/sys/class/net"
INTERVAL_S = 60.0
LINKS_MAX = 256
MBIT = 1_000_000
_NO_SPEED = (-1, 0xFFFFFFFF, ABSENT)  # Unknown, as kernels of today and of before 3.17 write it; not to be had.

LINK = Table(
    "link",
    per="interface",
    doc=f"Links of network interfaces, whose traffic is in the table network: the first {LINKS_MAX} by name."
    " Speed and duplex are absent without a carrier, or if the driver does not know them, as with virtual interfaces.",
    metrics=(
        state("carrier", "1 if connected, 0 if not; absent while the interface is turned off.", f"{FOLDER}/*/carrier"),
        gauge("speed", "bit/s", "Speed of the link.", origin=f"{FOLDER}/*/speed × {MBIT}"),
        counter(
            "carrier_changes", "1", "Times the carrier came up or went down.", origin=f"{FOLDER}/*/carrier_changes"
        ),
        gauge("mtu", "B", "Size of the largest packet (MTU).", origin=f"{FOLDER}/*/mtu"),
        text(
            "state",
            "unknown, notpresent, down, lowerlayerdown, testing, dormant or up (RFC 2863).",
            f"{FOLDER}/*/operstate",
        ),
        text("duplex", "full or half.", f"{FOLDER}/*/duplex"),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each interface; files among them, as bonding_masters, are none."""

    def values(name: str) -> tuple[int | str, ...]:
        folder = f"{FOLDER}/{name}"
        mtu, carrier = int(host.read(f"{folder}/mtu")), host.integer(f"{folder}/carrier")
        is_told = carrier == 1 and not host.is_asleep(f"{folder}/device")
        mbit = host.integer(f"{folder}/speed") if is_told else ABSENT
        duplex = host.word(f"{folder}/duplex") if is_told else ABSENT
        return (
            carrier,
            ABSENT if mbit in _NO_SPEED else mbit * MBIT,
            host.integer(f"{folder}/carrier_changes"),
            mtu,
            host.word(f"{folder}/operstate"),
            ABSENT if duplex == "unknown" else duplex,
        )

    return rows_of(host.names(FOLDER)[:LINKS_MAX], values)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``link``."""
    tells = (Tells("link", "state"), Tells("link", gone="link", words={1: "is there", 0: "is gone"}))
    return [Probe(LINK, read, INTERVAL_S, Lane.BACKGROUND, subsystems=("net", LINKS), tells=tells)]
