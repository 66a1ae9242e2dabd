# SPDX-License-Identifier: Apache-2.0
"""What drivers of network interfaces count of trouble, by queue where they do, as ``ethtool -S`` shows it.

Source: ethtool(8) and the kernel by ioctl (``sysmond.sources.ethtool``). A request wakes a device: one that sleeps is
not asked.
"""

import os
import re
from collections.abc import Iterator
from errno import ENOENT
from itertools import islice

from sysmond.probe import (
    ABSENT,
    GONE,
    Absence,
    Cause,
    Host,
    Lane,
    Option,
    Probe,
    Row,
    Table,
    absence_of,
    counter,
    hookimpl,
)
from sysmond.sources.ethtool import statistics

FOLDER = "/sys/class/net"
INTERVAL_S = 30.0
INTERFACES_MAX = 32
STATISTICS_MAX = 128
TROUBLE = "drop|discard|err|miss|timeout|no_buf|nobuf|alloc_fail|fifo|crc|collision|pause|full|stopped|reset"
INT64_MAX = 2**63 - 1

ETHTOOL = Table(
    "ethtool",
    per="interface:statistic",
    doc="What drivers of real network interfaces count, under their own names, which include a queue's number where"
    f" they count by queue. For each interface the first {STATISTICS_MAX} that report trouble: drops, errors.",
    metrics=(counter("value", "1", "What the driver counts.", 0, "ETHTOOL_GSTATS"),),
)


class Drivers:
    """Asks them, and remembers what each has, for as long as it sleeps."""

    def __init__(self) -> None:
        """Know no driver yet."""
        self._names: dict[str, list[str]] = {}

    def read(self, host: Host, *, pattern: str = TROUBLE) -> Iterator[Row]:
        """Give a row for each statistic whose name has the pattern in it.

        :raises FileNotFoundError: for a copied tree, of which nobody can be asked.
        """
        if host.root:
            raise FileNotFoundError(ENOENT, f"ethtool: only the running machine can be asked, not {host.root}")
        wanted = re.compile(pattern)
        for name in _real(host):
            if host.is_asleep(f"{FOLDER}/{name}/device"):
                yield from self._lacking(name, Absence(Cause.ASLEEP))
                continue
            try:
                told = statistics(name)
            except (OSError, ValueError) as failure:  # A driver that refuses costs no other interface.
                if isinstance(failure, OSError) and failure.errno in GONE:
                    self._names.pop(name, None)
                yield from self._lacking(name, absence_of(failure))
                continue
            chosen = [key for key in told if wanted.search(key)][:STATISTICS_MAX]
            self._names[name] = [f"{name}:{key}" for key in chosen]
            # A number beyond 63 bits is a driver's error code.
            yield from ((f"{name}:{key}", (told[key] if told[key] <= INT64_MAX else ABSENT,)) for key in chosen)

    def _lacking(self, name: str, why: Absence) -> Iterator[Row]:
        return ((instance, why) for instance in self._names.get(name, []))


def _real(host: Host) -> list[str]:
    """Name the interfaces behind which there is a device."""
    names = (name for name in host.names(FOLDER) if os.path.exists(f"{host.root}{FOLDER}/{name}/device"))
    return list(islice(names, INTERFACES_MAX))


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``ethtool``."""
    options = (Option("pattern", TROUBLE, "Which statistics: a regular expression that matches part of their names."),)
    probe = Probe(ETHTOOL, Drivers().read, INTERVAL_S, Lane.BACKGROUND, subsystems=("net",))
    return [probe._replace(options=options, needs=(f"{FOLDER}/*/device",))]
