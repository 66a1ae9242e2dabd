# SPDX-License-Identifier: Apache-2.0
"""Cache and memory bandwidth by group, where somebody mounted resctrl.

Source: the kernel's ``Documentation/filesystems/resctrl.rst``. The kernel asks a CPU of each cache for its numbers, and
that may have been idle: it is read every 30 s, and nothing is mounted for it.
"""

import os
from collections.abc import Iterator

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, counter, gauge, hookimpl, rows_of

FOLDER = "/sys/fs/resctrl"
INTERVAL_S = 30.0
DOMAINS_MAX = 256
_BESIDE = ("info", "mon_data", "mon_groups")

RESCTRL = Table(
    "resctrl",
    per="group:domain",
    doc="Last-level cache and memory bandwidth used by resctrl groups: an instance is a cache (L3_00)"
    " for tasks in no group, GROUP:L3_00, or GROUP/MONITORED:L3_00. What the processor cannot"
    " measure is absent.",
    metrics=(
        gauge("cache", "B", "Cache in use.", origin=f"{FOLDER}/mon_data/*/llc_occupancy"),
        counter("memory_bytes", "B", "Bytes between cache and memory.", 0, f"{FOLDER}/mon_data/*/mbm_total_bytes"),
        counter(
            "local_bytes", "B", "Part of that to memory of the same node.", 0, f"{FOLDER}/mon_data/*/mbm_local_bytes"
        ),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each cache of each group."""
    folders = {
        f"{group}:{domain.removeprefix('mon_')}".lstrip(":"): f"{folder}/mon_data/{domain}"
        for group, folder in _groups(host)
        for domain in _folders(host, f"{folder}/mon_data")
    }

    def values(name: str) -> list[int]:
        files = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
        return [_number(host, f"{folders[name]}/{file}") for file in files]

    return rows_of(list(folders)[:DOMAINS_MAX], values)


def _number(host: Host, path: str) -> int:
    """Read a number without keeping its file open: it would keep resctrl from being unmounted."""
    try:
        number = int(host.read_anew(path))
    except (OSError, ValueError):  # "Unavailable", or the processor does not count it.
        return ABSENT
    return number if 0 <= number < -ABSENT else ABSENT


def _groups(host: Host) -> Iterator[tuple[str, str]]:
    """Yield the groups: of all tasks, of control, and those monitored in either; each with its folder."""
    controlled = [name for name in _folders(host, FOLDER) if name not in _BESIDE]
    for name, folder in [("", FOLDER), *((name, f"{FOLDER}/{name}") for name in controlled)]:
        yield name, folder
        for monitored in _folders(host, f"{folder}/mon_groups"):
            yield f"{name}/{monitored}", f"{folder}/mon_groups/{monitored}"


def _folders(host: Host, path: str) -> list[str]:
    """List a folder; a file, as there are beside groups, has nothing below it."""
    return [name for name in host.names_anew(path) if os.path.isdir(f"{host.root}{path}/{name}")]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``resctrl``."""
    return [Probe(RESCTRL, read, INTERVAL_S, Lane.BACKGROUND, needs=(f"{FOLDER}/mon_data/*",))]
