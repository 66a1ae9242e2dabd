# SPDX-License-Identifier: Apache-2.0
"""Pages of equal content that the kernel merges (KSM), from ``/sys/kernel/mm/ksm``.

Source: the kernel's ``Documentation/admin-guide/mm/ksm.rst``.
"""

from collections.abc import Iterator

from sysmond.probe import Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl, state

FOLDER = "/sys/kernel/mm/ksm"
INTERVAL_S = 60.0


def _pages(name: str, file: str, doc: str) -> Metric:
    return gauge(name, "page", doc, origin=f"{FOLDER}/{file}")


KSM = Table(
    "ksm",
    doc="Identical pages that the kernel merges, mostly those of virtual machines.",
    metrics=(
        state(
            "run",
            "0 stopped, merged pages stay merged; 1 running; 2 stopped, and all pages were split again.",
            f"{FOLDER}/run",
        ),
        _pages("shared", "pages_shared", "Shared pages in use, each instead of several."),
        _pages("sharing", "pages_sharing", "Pages saved by sharing."),
        _pages("unshared", "pages_unshared", "Pages without an identical one, checked repeatedly."),
        _pages("volatile", "pages_volatile", "Pages that change too fast to be merged."),
        _pages("zero", "ksm_zero_pages", "Empty pages merged with the kernel's own; since Linux 6.6."),
        counter("scanned", "page", "Pages looked at; since Linux 6.6.", origin=f"{FOLDER}/pages_scanned"),
        counter("skipped", "page", "Pages not looked at, by smart_scan; since 6.7.", origin=f"{FOLDER}/pages_skipped"),
        counter("full_scans", "1", "Times that all pages were scanned.", origin=f"{FOLDER}/full_scans"),
        gauge(
            "profit",
            "B",
            "Memory saved, less the memory that merging itself takes; since Linux 6.4.",
            origin=f"{FOLDER}/general_profit",
        ),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give the one row; what a kernel lacks is absent."""
    running, *others = (metric.origin for metric in KSM.metrics)
    yield "", [int(host.read(running)), *map(host.integer, others)]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``ksm``."""
    return [Probe(KSM, read, INTERVAL_S, Lane.BACKGROUND, needs=(f"{FOLDER}/run",))]
