# SPDX-License-Identifier: Apache-2.0
"""Memory by NUMA node, and where it was allocated, from ``/sys/devices/system/node``.

Source: the kernel's ``Documentation/admin-guide/numastat.rst`` and ``Documentation/ABI/stable/sysfs-devices-node``.
"""

from collections.abc import Iterator

from sysmond.probe import Fields, Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl, rows_of

FOLDER = "/sys/devices/system/node"
INTERVAL_S = 15.0
NODES_MAX = 256
KIB = 1024


def _size(name: str, field: str, doc: str) -> Metric:
    return gauge(name, "B", doc, origin=f"{FOLDER}/node*/meminfo {field}:")


def _pages(name: str, field: str, doc: str) -> Metric:
    return counter(name, "page", doc, origin=f"{FOLDER}/node*/numastat {field}")


NUMA = Table(
    "numa",
    per="node",
    doc="Memory by NUMA node, on machines with more than one; memory and vm have the sums.",
    metrics=(
        _size("total", "MemTotal", "Memory of the node."),
        _size("free", "MemFree", "Memory that is not used at all."),
        _size("used", "MemUsed", "All the rest."),
        _size("file", "FilePages", "Page cache."),
        _size("anon", "AnonPages", "Anonymous memory mapped by processes."),
        _size("shmem", "Shmem", "Shared memory and tmpfs."),
        _size("slab", "Slab", "Memory of the kernel's object caches."),
        _size("dirty", "Dirty", "Memory waiting to be written to disk."),
        _pages("hit", "numa_hit", "Pages allocated here as intended."),
        _pages("miss", "numa_miss", "Pages allocated here though another node was wanted."),
        _pages("foreign", "numa_foreign", "Pages wanted here but allocated on another node."),
        _pages("interleave", "interleave_hit", "Pages allocated here by interleaving."),
        _pages("local", "local_node", "Pages allocated here for a CPU of this node."),
        _pages("other", "other_node", "Pages allocated here for a CPU of another node."),
    ),
)


class Nodes:
    """Reads both files of each node."""

    def __init__(self) -> None:
        """Know no layout yet."""
        factors = [KIB if metric.unit == "B" else 1 for metric in NUMA.metrics]
        self._fields = Fields((metric.origin.split()[1].encode() for metric in NUMA.metrics), factors)

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each node online."""

        def values(node: str) -> list[int]:
            memory = [line.split()[2:4] for line in host.read(f"{FOLDER}/{node}/meminfo").splitlines()]
            counted = [line.split() for line in host.read(f"{FOLDER}/{node}/numastat").splitlines()]
            if any(len(pair) != 2 for pair in memory + counted):  # noqa: PLR2004  a name and a number
                raise ValueError(f"{FOLDER}/{node}: expected pairs of name and number")
            names, numbers = zip(*memory, *counted, strict=True)
            return self._fields.pick(list(names), list(numbers))

        nodes = [name for name in host.names(FOLDER) if name.removeprefix("node").isdecimal()]
        return rows_of(nodes[:NODES_MAX], values)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``numa``; a machine of one node has its numbers in ``memory`` and ``vm``."""
    others = tuple(f"{FOLDER}/node{number}" for number in (1, 2, 4, 8, 16))  # POWER leaves numbers out.
    return [Probe(NUMA, Nodes().read, INTERVAL_S, Lane.BACKGROUND, needs=others)]
