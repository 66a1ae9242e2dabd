# SPDX-License-Identifier: Apache-2.0
"""Compressed RAM disks: how much they hold and what that takes, from ``/sys/class/block/zram*``.

Source: the kernel's ``Documentation/admin-guide/blockdev/zram.rst``.
"""

import re
from collections.abc import Iterator

from sysmond.probe import ABSENT, Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl, rows_of, text

FOLDER = "/sys/class/block"
INTERVAL_S = 10.0
DEVICES_MAX = 64
PAGE_BYTES = 4096  # What bd_stat counts in, whatever the size of pages.


def _mm(name: str, word: int, doc: str, unit: str = "B") -> Metric:
    return gauge(name, unit, doc, origin=f"{FOLDER}/zram*/mm_stat {word}")


def _io(name: str, word: int, doc: str) -> Metric:
    return counter(name, "1", doc, origin=f"{FOLDER}/zram*/io_stat {word}")


ZRAM = Table(
    "zram",
    per="device",
    doc="Compressed RAM disks, which are often used for swap; one that is not set up has no row."
    " Reads and writes are in the table disk. The compression ratio is stored divided by"
    " compressed.",
    metrics=(
        gauge("size", "B", "Size of the disk.", origin=f"{FOLDER}/zram*/disksize"),
        _mm("stored", 1, "What is stored, at its original size, without pages filled with one value."),
        _mm("compressed", 2, "What is stored, at its compressed size."),
        _mm("used", 3, "Memory taken, including what is lost to fragmentation."),
        _mm("used_max", 5, "The most memory taken so far."),
        _mm("limit", 4, "How much memory it may take; 0 means no limit."),
        _mm("same_pages", 6, "Pages filled with one value, which take no memory.", "page"),
        _mm("incompressible_pages", 8, "Pages stored as they are; since Linux 4.19.", "page"),
        counter("compacted_pages", "page", "Pages freed by compaction.", origin=f"{FOLDER}/zram*/mm_stat 7"),
        _io("failed_reads", 1, "Reads that failed."),
        _io("failed_writes", 2, "Writes that failed, for instance because memory ran out."),
        gauge("backing", "B", "Data written to its backing device.", origin=f"{FOLDER}/zram*/bd_stat 1 × {PAGE_BYTES}"),
        counter(
            "backing_read",
            "B",
            "Data read from its backing device so far.",
            origin=f"{FOLDER}/zram*/bd_stat 2 × {PAGE_BYTES}",
        ),
        counter(
            "backing_written",
            "B",
            "Data written to its backing device so far.",
            origin=f"{FOLDER}/zram*/bd_stat 3 × {PAGE_BYTES}",
        ),
        text("algorithm", "Compression algorithm.", f"{FOLDER}/zram*/comp_algorithm"),
    ),
)
_WITHOUT_MM, _MM_WORDS = 7, 9
_CHOSEN = re.compile(r"\[(\S+)\]")


def read(host: Host) -> Iterator[Row]:
    """Give a row for each device that is set up."""

    def values(name: str) -> tuple[int | str, ...] | None:
        folder = f"{FOLDER}/{name}"
        size = int(host.read(f"{folder}/disksize"))
        if not size:
            return None
        mm = [int(word) for word in host.read(f"{folder}/mm_stat").split()]
        if len(mm) < _WITHOUT_MM:
            raise ValueError(f"{folder}/mm_stat: {len(mm)} numbers; expected at least {_WITHOUT_MM}")
        stored, compressed, used, limit, used_max, same, compacted, *incompressible = mm
        failed_reads, failed_writes, *_ = map(int, host.read(f"{folder}/io_stat").split())
        numbers = stored, compressed, used, used_max, limit, same, (incompressible or [ABSENT])[0], compacted
        algorithm = _CHOSEN.search(str(host.word(f"{folder}/comp_algorithm")))
        return (
            size,
            *numbers,
            failed_reads,
            failed_writes,
            *_backing(host, folder),
            algorithm[1] if algorithm else ABSENT,
        )

    return rows_of([name for name in host.names(FOLDER) if name.startswith("zram")][:DEVICES_MAX], values)


def _backing(host: Host, folder: str) -> tuple[int, int, int]:
    """Read what lies on the backing device; kernels without one have no such file."""
    try:
        held, read, written = (int(word) * PAGE_BYTES for word in host.read(f"{folder}/bd_stat").split())
    except FileNotFoundError:
        return ABSENT, ABSENT, ABSENT
    return held, read, written


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``zram``."""
    needs = (f"{FOLDER}/zram*/mm_stat",)
    return [Probe(ZRAM, read, INTERVAL_S, Lane.BACKGROUND, subsystems=("block",), needs=needs)]
