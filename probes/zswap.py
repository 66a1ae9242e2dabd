# SPDX-License-Identifier: Apache-2.0
"""Why the compressed cache of swap (zswap) refused pages, and its settings.

Source: the kernel's ``Documentation/admin-guide/mm/zswap.rst`` and ``mm/zswap.c``. What it counts is in debugfs, which
only root may read, and not everywhere is mounted.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl, state, text

SETTINGS = "/sys/module/zswap/parameters"
COUNTS = "/sys/kernel/debug/zswap"
INTERVAL_S = 60.0


def _times(name: str, file: str, doc: str) -> Metric:
    return counter(name, "1", doc, origin=f"{COUNTS}/{file}")


ZSWAP = Table(
    "zswap",
    doc="The compressed cache in front of swap: its settings, and what it refused, which is absent"
    " where debugfs may not be read. Its size is memory/zswap and memory/zswapped, pages in and"
    " out are vm/zswpin, zswpout, zswpwb.",
    metrics=(
        state("enabled", "1 if it accepts pages.", f"{SETTINGS}/enabled"),
        gauge("pool_max", "%", "Share of memory that it may take.", origin=f"{SETTINGS}/max_pool_percent"),
        _times("pool_limit_hits", "pool_limit_hit", "Times it was full."),
        _times("alloc_refusals", "reject_alloc_fail", "Pages refused because memory for them could not be allocated."),
        _times("compress_refusals", "reject_compress_fail", "Pages refused because they could not be compressed."),
        _times("poor_refusals", "reject_compress_poor", "Pages refused because they compress poorly."),
        _times(
            "reclaim_refusals",
            "reject_reclaim_fail",
            "Pages refused because it was full and nothing could be written back.",
        ),
        text("compressor", "Compression algorithm.", f"{SETTINGS}/compressor"),
    ),
)
_ENABLED = {b"Y": 1, b"N": 0}


def read(host: Host) -> Iterator[Row]:
    """Give the one row.

    :raises ValueError: where it is neither on nor off.
    """
    switch, pool_max, *refused, compressor = (metric.origin for metric in ZSWAP.metrics)
    enabled = _ENABLED.get(host.read(switch).strip())
    if enabled is None:
        raise ValueError(f"{switch}: {host.read(switch)[:16]!r}; expected Y or N")
    yield "", [enabled, host.integer(pool_max), *(_number(host, path) for path in refused), host.word(compressor)]


def _number(host: Host, path: str) -> int:
    """Read a number without keeping its file open: it would keep debugfs from being unmounted."""
    try:
        return int(host.read_anew(path))
    except (OSError, ValueError):
        return ABSENT


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``zswap``."""
    privilege = "CAP_DAC_READ_SEARCH, for what it refused"
    return [Probe(ZSWAP, read, INTERVAL_S, Lane.BACKGROUND, needs=(f"{SETTINGS}/enabled",), privilege=privilege)]
