# SPDX-License-Identifier: Apache-2.0
"""Which interfaces are wireless and may be asked, and what the kernel's older interface tells of them.

Source: the kernel's ``Documentation/ABI/testing/sysfs-class-net``, and ``net/wireless/wext-proc.c`` for
``/proc/net/wireless``. ``sysmond.sources.nl80211`` asks in the newer way.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from sysmond.probe import ABSENT, Absence, Cause, Host, Row, rows_of
from sysmond.sources.nl80211 import Station

FOLDER = "/sys/class/net"
PROC = "/proc/net/wireless"
INTERFACES_MAX = 16
IFF_UP = 1
UNKNOWN_DBM = -256
HEADER_LINES, PROC_WORDS = 2, 10


def names(host: Host) -> list[str]:
    """Name the wireless interfaces; one whose driver knows the older interface alone has no phy80211."""
    marks = ("phy80211", "wireless")
    wireless = (
        name
        for name in host.names(FOLDER)
        if any(os.path.isdir(f"{host.root}{FOLDER}/{name}/{mark}") for mark in marks)
    )
    return list(islice(wireless, INTERFACES_MAX))


def rows(host: Host, values: Callable[[int], Sequence[int | str] | None]) -> Iterator[Row]:
    """Give a row for each wireless interface, by its number; one that sleeps or is turned off is not asked."""

    def asked(name: str) -> Sequence[int | str] | None:
        if host.is_asleep(f"{FOLDER}/{name}/device"):
            return Absence(Cause.ASLEEP)
        if not int(host.read(f"{FOLDER}/{name}/flags"), 16) & IFF_UP:
            return Absence(Cause.NO_SOURCE, "it is turned off")
        return values(int(host.read(f"{FOLDER}/{name}/ifindex")))

    return rows_of(names(host), asked)


def older(host: Host, values: Callable[[Station, int], Sequence[int | str]]) -> Iterable[Row]:
    """Give a row for each by ``/proc/net/wireless``. All drivers are asked for it: not while one of them sleeps.

    ``values``: of what is known of the access point, and the noise in dBm.

    :raises FileNotFoundError: where there is no such file.
    """
    interfaces = names(host)
    if any(host.is_asleep(f"{FOLDER}/{name}/device") for name in interfaces):
        return [(name, Absence(Cause.ASLEEP)) for name in interfaces]
    lines = (line.rpartition(b":") for line in host.read(PROC).splitlines()[HEADER_LINES:])
    told = {name.strip().decode("utf-8", "surrogateescape"): numbers for name, _, numbers in lines}
    return rows_of((name for name in interfaces if name in told), lambda name: values(*parse(told[name])))


def parse(numbers: bytes) -> tuple[Station, int]:
    """Read the numbers of an interface: of its access point, and the noise in dBm; levels in dBm are less than zero.

    :raises ValueError: where they are fewer than ten, or none.
    """
    words = numbers.replace(b".", b" ").split()
    level, noise, _, _, _, failures, drops, losses = map(int, words[2:PROC_WORDS])
    signal_dbm, noise_dbm = (each if UNKNOWN_DBM < each < 0 else ABSENT for each in (level, noise))
    return Station("", signal_dbm, failures=failures, receive_drops=drops, beacon_losses=losses), noise_dbm
