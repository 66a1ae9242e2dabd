# SPDX-License-Identifier: Apache-2.0
"""The table vm against trees of three kernels and against this machine."""

import mmap
import re
import resource
from pathlib import Path

import pytest
from sysmond_probes import vm

from sysmond.base.model import Semantics, check_table
from sysmond.probe import ABSENT, Host


def read(root: Path) -> dict[str, int]:
    ((instance, values),) = vm.read(Host(str(root)))
    assert instance == ""
    return dict(zip((metric.name for metric in vm.METRICS), map(int, values), strict=True))


def test_the_table_is_sound() -> None:
    (probe,) = vm.sysmond_probes()
    check_table(probe.table)
    assert probe.table.doc
    for metric in vm.METRICS:
        assert metric.unit in {"page", "B", "1"}
        assert metric.origin == f"/proc/vmstat {metric.name}"
        assert re.fullmatch(r"[A-Z0-9].{6,}\.", metric.doc), f"{metric.name}: {metric.doc!r} is no sentence"
    assert len({metric.doc for metric in vm.METRICS}) >= len(vm.METRICS) - 4  # Renamed ones share theirs.


def test_what_counts_events_is_a_counter() -> None:
    semantics = {metric.name: metric.semantics for metric in vm.METRICS}
    counters_of_state = {
        "nr_vmscan_write",
        "nr_vmscan_immediate_reclaim",
        "nr_dirtied",
        "nr_written",
        "nr_throttled_written",
        "nr_foll_pin_acquired",
        "nr_foll_pin_released",
        "nr_tlb_remote_flush",
        "nr_tlb_remote_flush_received",
        "nr_tlb_local_flush_all",
        "nr_tlb_local_flush_one",
    }
    for name, kind in semantics.items():
        is_state = (name.startswith("nr_") or name == "workingset_nodes") and name not in counters_of_state
        assert kind is (Semantics.GAUGE if is_state else Semantics.COUNTER), name


def test_this_sample_is_complete(repository: Path) -> None:
    root = repository / "tests/fixtures/linux618"
    values = read(root)
    lines = [line.split() for line in (root / "proc/vmstat").read_text().splitlines()]
    kib = {"pgpgin", "pgpgout", "nr_kernel_stack"}
    assert len(lines) == 192
    assert {name: int(number) * (1024 if name in kib else 1) for name, number in lines} == {
        name: value for name, value in values.items() if value != ABSENT
    }
    assert values["nr_free_pages"] == 963565
    assert values["direct_map_level2_splits"] == 5


def test_kib_become_bytes_and_pages_stay_pages(repository: Path) -> None:
    values = read(repository / "tests/fixtures/linux510")
    assert values["pgpgin"] == 1000001 * 1024
    assert values["pgpgout"] == 2000002 * 1024
    assert values["nr_kernel_stack"] == 20000 * 1024
    assert values["nr_page_table_pages"] == 10000
    assert values["pgfault"] == 5000000000
    assert values["vmacache_find_hits"] == 10
    units = {metric.name: metric.unit for metric in vm.METRICS}
    assert {name for name, unit in units.items() if unit == "B"} == {
        "pgpgin",
        "pgpgout",
        "nr_kernel_stack",
        "nr_shadow_call_stack",
    }


def test_names_that_a_kernel_lacks_are_absent_and_unknown_ones_are_passed_over(repository: Path) -> None:
    server = read(repository / "tests/fixtures/linux510")
    assert server["nr_shadow_call_stack"] == ABSENT
    assert server["nr_free_pages_blocks"] == ABSENT
    assert "some_name_of_a_vendor" not in server
    assert server["nr_unstable"] == 0
    board = read(repository / "tests/fixtures/linux26")
    assert {name: value for name, value in board.items() if value != ABSENT} == {"nr_dirty": 12, "pgpgin": 5 * 1024}


@pytest.mark.parametrize(
    "content", [b"garbage\n", b"a 1\nb 2\n", b"pgfault many\n", b"pgfault\nnr_dirty 1\n", b"pgfault 1 2\n"]
)
def test_garbage_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        vm.parse(content)


def test_no_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path)


def test_this_machine_agrees() -> None:
    known = {metric.name for metric in vm.METRICS}
    names = {line.split()[0] for line in Path("/proc/vmstat").read_text().splitlines()}
    assert names - known == set()
    before = read(Path("/"))
    own_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with mmap.mmap(-1, 4096 * mmap.PAGESIZE) as pages:
        for page in range(4096):
            pages[page * mmap.PAGESIZE] = 1
    own_after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    after = read(Path("/"))
    # The kernel adds up its per-CPU counters in steps; a huge page would make a single fault of 512.
    assert after["pgfault"] - before["pgfault"] >= (own_after - own_before) * 0.9
    assert after["pgpgin"] >= before["pgpgin"]
