# SPDX-License-Identifier: Apache-2.0
"""Packets that CPUs took from their queues, from ``/proc/net/softnet_stat``.

Source: ``softnet_seq_show`` in the kernel's ``net/core/net-procfs.c`` and
``Documentation/admin-guide/sysctl/net.rst``, whose netdev_budget and netdev_max_backlog are the limits counted here.
"""

from collections.abc import Iterator

from sysmond.probe import Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl

PATH = "/proc/net/softnet_stat"
INTERVAL_S = 5.0
CPUS_MAX = 1024
_HEX = 16
_CPU = 12  # The column with the number of the CPU: only those online have lines. Since Linux 5.10.


def _times(name: str, column: int, doc: str) -> Metric:
    return counter(name, "1", doc, origin=f"{PATH} {column + 1}")


SOFTNET = Table(
    "softnet",
    per="CPU",
    doc="Received packets by the CPU that handled them. The kernel's counters have 32 bits: a wrap is a counter reset.",
    metrics=(
        _times("packets", 0, "Packets (frames) handled."),
        _times("drops", 1, "Packets dropped because the CPU's queue was full: net.core.netdev_max_backlog."),
        _times(
            "squeezed",
            2,
            "Times the CPU left packets for later, because net.core.netdev_budget or its time was used up.",
        ),
        _times("steered", 9, "Times another CPU woke this one to handle packets (RPS)."),
        _times("flow_limited", 10, "Packets dropped because one flow had more than its share of the queue."),
        gauge("queued", "1", "Packets that wait for the CPU now; since Linux 5.10.", origin=f"{PATH} 12"),
    ),
)
_COLUMNS = (0, 1, 2, 9, 10, 11)


def parse(line: bytes) -> Row:
    """Read one CPU's line of hexadecimal numbers.

    :raises ValueError: where it is none, or does not say whose line it is.
    """
    numbers = [int(word, _HEX) for word in line.split()]
    if len(numbers) <= _CPU:
        raise ValueError(f"{PATH}: {len(numbers)} columns; at least {_CPU + 1} are expected, as since Linux 5.10")
    return f"cpu{numbers[_CPU]}", [numbers[column] for column in _COLUMNS]


def read(host: Host) -> Iterator[Row]:
    """Give a row for each CPU online."""
    return map(parse, host.read(PATH).splitlines()[:CPUS_MAX])


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``softnet``."""
    return [Probe(SOFTNET, read, INTERVAL_S, Lane.BACKGROUND)]
