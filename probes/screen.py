# SPDX-License-Identifier: Apache-2.0
"""Which screens are connected, and whether they are on, as the kernel's graphics drivers remember it.

Source: ``status_show`` and ``dpms_show`` in the kernel's ``drivers/gpu/drm/drm_sysfs.c``, which ask no hardware.
"""

import re
from collections.abc import Iterator

from sysmond.probe import (
    ABSENT,
    Absence,
    Cause,
    Host,
    Lane,
    Probe,
    Row,
    Sensitivity,
    Table,
    Tells,
    hookimpl,
    rows_of,
    state,
)
from sysmond.sources.bus_address import address
from sysmond.sources.unread import printable

FOLDER = "/sys/class/drm"
CONNECTOR = re.compile(r"card\d+-(.+)")
CONNECTORS_MAX = 64

SCREEN = Table(
    "screen",
    per="connector",
    doc="Connectors for screens, such as eDP-1; if several cards have one of that name, with the"
    " address of the card. A sleeping card is not asked. Screens are off when people are away, so"
    " this is restricted, unless the configuration makes it public.",
    metrics=(
        state("connected", "1 if a screen is connected, 0 if not; absent if unknown.", f"{FOLDER}/*/status"),
        state("on", "1 if it shows a picture, 0 if it is off or saves power.", f"{FOLDER}/*/dpms"),
    ),
)
STATUS = {"connected": 1, "disconnected": 0}
DPMS = {"On": 1, "Standby": 0, "Suspend": 0, "Off": 0}


def connectors(host: Host, names: list[str]) -> dict[str, str]:
    """By instance the folders of those among the names that are connectors."""
    found = [match for name in names if (match := CONNECTOR.fullmatch(name))][:CONNECTORS_MAX]
    sockets = [match[1] for match in found]
    folders: dict[str, str] = {}
    for match in found:
        folder = f"{FOLDER}/{match[0]}"
        name = match[1] if sockets.count(match[1]) == 1 else f"{match[1]}-{address(host.root, folder)}"
        folders.setdefault(printable(name.encode("utf-8", "surrogateescape")), folder)
    return folders


def screen(host: Host, folder: str) -> Absence | tuple[int, int]:
    """Read one connector.

    :raises OSError: as the kernel says.
    :raises ValueError: where it is neither on nor off.
    """
    if host.is_asleep(folder):
        return Absence(Cause.ASLEEP)
    status, dpms = (host.read(f"{folder}/{file}").decode("ascii", "replace").strip() for file in ("status", "dpms"))
    if dpms not in DPMS:
        raise ValueError(f"dpms {dpms[:16]!r}; expected On, Standby, Suspend or Off")
    return STATUS.get(status, ABSENT), DPMS[dpms]


class Screens:
    """Reads all connectors; how they are called is found out when some come or go."""

    def __init__(self) -> None:
        """Know of none."""
        self._names: list[str] = []
        self._folders: dict[str, str] = {}

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each."""
        if (names := host.names(FOLDER)) != self._names:
            self._names, self._folders = names, connectors(host, names)
        return rows_of(self._folders, lambda instance: screen(host, self._folders[instance]))


_TELLS = (
    Tells("screen", "connected", {0: "disconnected", 1: "connected"}),
    Tells("screen", "on", {0: "off", 1: "on"}),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``screen``. A screen that is plugged in is an event; one that is switched off is none."""
    probe = Probe(SCREEN, Screens().read, 10.0, Lane.BACKGROUND, Sensitivity.PUBLIC, subsystems=("drm",))
    return [probe._replace(needs=(f"{FOLDER}/*/dpms",), public_by_choice=True, tells=_TELLS)]
