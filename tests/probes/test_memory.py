# SPDX-License-Identifier: Apache-2.0
"""The table memory against trees of three kernels and against this machine."""

import os
from pathlib import Path

import pytest
from sysmond_probes import memory

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host


def read(root: Path) -> dict[str, int | str]:
    ((instance, values),) = memory.read(Host(str(root)))
    assert instance == ""
    return dict(zip((metric.name for metric in memory.MEMORY.metrics), values, strict=True))


def test_the_table_is_sound() -> None:
    (probe,) = memory.sysmond_probes()
    check_table(probe.table)
    assert probe.table.doc
    assert probe.table.metrics[2].origin == "/proc/meminfo MemAvailable"


def test_sizes_are_bytes_and_huge_pages_are_a_number(repository: Path) -> None:
    values = read(repository / "tests/fixtures/linux510")
    expected = {
        "total": 65536000 * 1024,
        "free": 1000000 * 1024,
        "available": 40000000 * 1024,
        "active_anon": 2000000 * 1024,
        "swap_total": 8388604 * 1024,
        "swap_free": 8000000 * 1024,
        "dirty": 1204 * 1024,
        "slab_unreclaimable": 1000000 * 1024,
        "committed": 9000000 * 1024,
        "vmalloc_total": 34359738367 * 1024,
        "hardware_corrupted": 4 * 1024,
        "cma_free": 60000 * 1024,
        "huge_pages_total": 16,
        "huge_pages_free": 12,
        "huge_pages_reserved": 3,
        "huge_pages_surplus": 1,
        "huge_page_size": 2048 * 1024,
        "hugetlb": 32768 * 1024,
        "direct_map_1g": 46000000 * 1024,
    }
    assert {name: values[name] for name in expected} == expected
    units = {metric.name: metric.unit for metric in memory.MEMORY.metrics}
    assert {name for name, unit in units.items() if unit != "B"} == {
        "huge_pages_total",
        "huge_pages_free",
        "huge_pages_reserved",
        "huge_pages_surplus",
    }


def test_fields_that_a_kernel_lacks_are_absent(repository: Path) -> None:
    server = read(repository / "tests/fixtures/linux510")
    assert {name for name in ("zswap", "balloon", "gpu_active", "high_total") if server[name] != ABSENT} == set()
    board = read(repository / "tests/fixtures/linux26")
    assert board["available"] == ABSENT
    assert board["huge_page_size"] == ABSENT
    assert board["low_free"] == 2000 * 1024
    assert board["swap_total"] == 0


def test_one_reader_follows_from_kernel_to_kernel(repository: Path) -> None:
    totals = [read(repository / "tests/fixtures" / kernel)["total"] for kernel in ("linux618", "linux26", "linux618")]
    assert totals == [24684092 * 1024, 61000 * 1024, 24684092 * 1024]


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\n",
        b"Some: 1 kB\nOther: 2 kB\n",
        b"MemTotal: many kB\n",
        b"MemTotal: 5 kB\nMemFree: kB\n",
        b"MemTotal: 5 kB\nMem Free: 6 kB\n",
    ],
)
def test_garbage_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        memory.parse(content)


def test_no_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path)


def test_this_machine_agrees() -> None:
    values = read(Path("/"))
    assert values["total"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(int(values["free"]) - free) < 512 * 2**20  # Other programs come and go.
    for line in Path("/proc/meminfo").read_text().splitlines():
        field = line.partition(":")[0]
        assert field in {name for name, _, _ in memory.SIZES + memory.COUNTS}, "a field that the table lacks"
