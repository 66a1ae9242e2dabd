# SPDX-License-Identifier: Apache-2.0
"""What wakes this machine, or keeps it from being suspended: wakeup sources.

Source: ``Documentation/ABI/testing/sysfs-class-wakeup``; since Linux 5.4.
"""

from collections.abc import Iterator
from itertools import islice

from sysmond.probe import Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl

FOLDER = "/sys/class/wakeup"
SOURCES_MAX = 256


def _count(name: str, doc: str, file: str) -> Metric:
    return counter(name, "1", doc, origin=f"{FOLDER}/*/{file}")


WAKEUP = Table(
    "wakeup",
    per="source",
    doc="Wakeup sources that were ever active, by the kernel's names; a second one of the same name is NAME#2. At most"
    f" {SOURCES_MAX}.",
    metrics=(
        _count("activations", "How often it became active.", "active_count"),
        _count("events", "Events that it signalled.", "event_count"),
        _count("wakeups", "How often it may have ended a suspend, or prevented one.", "wakeup_count"),
        _count("expirations", "How often it became inactive because of its timeout.", "expire_count"),
        counter("active_time", "s", "How long it was active.", 3, f"{FOLDER}/*/total_time_ms"),
        counter(
            "preventing_time", "s", "How long it kept the machine awake.", 3, f"{FOLDER}/*/prevent_suspend_time_ms"
        ),
        gauge("longest", "s", "The longest time that it was active.", 3, f"{FOLDER}/*/max_time_ms"),
    ),
)
FILES = [metric.origin.rpartition("/")[2] for metric in WAKEUP.metrics]


def sources(host: Host) -> Iterator[Row]:
    """Give a row for each source that was ever active; the numbers of their folders are by age."""
    names: dict[str, int] = {}
    folders = (name for name in host.names(FOLDER) if name.removeprefix("wakeup").isdecimal())
    for folder in sorted(folders, key=lambda name: int(name.removeprefix("wakeup"))):
        name = host.word(f"{FOLDER}/{folder}/name")
        name = name if isinstance(name, str) else folder
        names[name] = names.get(name, 0) + 1
        if host.integer(f"{FOLDER}/{folder}/{FILES[0]}") > 0:
            values = [host.integer(f"{FOLDER}/{folder}/{file}") for file in FILES]
            yield name if names[name] == 1 else f"{name}#{names[name]}", values


def read(host: Host) -> Iterator[Row]:
    """Give these rows, as many as there may be."""
    return islice(sources(host), SOURCES_MAX)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``wakeup``: counters, which miss nothing between two readings."""
    needs = (f"{FOLDER}/*/active_count",)
    return [Probe(WAKEUP, read, 60.0, Lane.BACKGROUND, subsystems=("wakeup",), needs=needs)]
