# SPDX-License-Identifier: Apache-2.0
"""Swap by device, from ``/proc/swaps``.

Source: proc(5), swapon(2) and ``swap_show`` in the kernel's ``mm/swapfile.c``.
"""

import re
from collections.abc import Iterator

from sysmond.probe import Host, Lane, Probe, Row, Table, Tells, gauge, hookimpl, state, text

PATH = "/proc/swaps"
INTERVAL_S = 10.0
DEVICES_MAX = 32  # More than the kernel allows (MAX_SWAPFILES).
KIB = 1024

SWAP = Table(
    "swap",
    per="device",
    doc="Swap areas by device or file. The table memory has their sum, vm the pages swapped in and out.",
    metrics=(
        gauge("size", "B", "Room for pages.", origin=f"{PATH} Size"),
        gauge("used", "B", "How much of it is in use.", origin=f"{PATH} Used"),
        state(
            "priority",
            "Priority: the kernel fills areas with a higher number first, and those with the same number in turn.",
            f"{PATH} Priority",
        ),
        text("type", "partition (any block device) or file.", f"{PATH} Type"),
    ),
)

_ESCAPE = re.compile(r"\\([0-7]{3})")


def parse(line: str) -> Row:
    """Read one device's line.

    :raises ValueError: where it has not five words, numbers the last three.
    """
    name, kind, size, used, priority = line.split()
    values = int(size) * KIB, int(used) * KIB, int(priority), kind
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name), values


def read(host: Host) -> Iterator[Row]:
    """Give a row for each device; the first line is a heading."""
    heading, *devices = host.lines(PATH)
    if not heading.startswith("Filename"):
        raise ValueError(f"{PATH}: {heading[:80]!r}; its heading is missing")
    yield from map(parse, devices[:DEVICES_MAX])


_TELLS = (Tells("swap", gone="swap", shows="type", words={1: "on", 0: "off"}),)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``swap``."""
    return [Probe(SWAP, read, INTERVAL_S, Lane.BACKGROUND, tells=_TELLS)]
