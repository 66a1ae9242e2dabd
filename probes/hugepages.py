# SPDX-License-Identifier: Apache-2.0
"""Pools of huge pages by size, from ``/sys/kernel/mm/hugepages``.

Source: the kernel's ``Documentation/admin-guide/mm/hugetlbpage.rst``.
"""

from collections.abc import Iterator

from sysmond.probe import Answers, Derived, Host, Lane, Metric, Probe, Row, Table, gauge, hookimpl, rows_of

FOLDER = "/sys/kernel/mm/hugepages"
INTERVAL_S = 60.0
SIZES_MAX = 16
_PREFIX = "hugepages-"
_FILES = (
    ("total", "nr_hugepages", "Pages in the pool."),
    ("free", "free_hugepages", "Pages that are not allocated yet."),
    ("reserved", "resv_hugepages", "Pages promised but not allocated yet."),
    ("surplus", "surplus_hugepages", "Pages beyond the configured size of the pool."),
    ("surplus_max", "nr_overcommit_hugepages", "Upper limit of pages beyond that size."),
)


def _pages(name: str, file: str, doc: str) -> Metric:
    return gauge(name, "page", doc, origin=f"{FOLDER}/{_PREFIX}*/{file}")


HUGEPAGES = Table(
    "hugepages",
    per="size",
    doc="Pools of huge pages (hugetlbfs) by page size, such as 2048kB. Transparent huge pages are in memory and vm.",
    metrics=tuple(_pages(*file) for file in _FILES),
    answers=Answers(
        derived=(Derived("used_percent", "%", "(total - free) / total * 100", "Share of the pool that is allocated."),),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each size that the processor has."""
    sizes = [name.removeprefix(_PREFIX) for name in host.names(FOLDER) if name.startswith(_PREFIX)]
    return rows_of(
        sizes[:SIZES_MAX],
        lambda size: [int(host.read(f"{FOLDER}/{_PREFIX}{size}/{file}")) for _, file, _ in _FILES],
    )


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``hugepages``."""
    return [Probe(HUGEPAGES, read, INTERVAL_S, Lane.BACKGROUND, needs=(f"{FOLDER}/*",))]
