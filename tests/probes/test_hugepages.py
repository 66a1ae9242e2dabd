# SPDX-License-Identifier: Apache-2.0
"""The table ``hugepages``: exact values, garbage, kernels without, this machine."""

from pathlib import Path

from sysmond_probes import hugepages

from sysmond.probe import Absence, Cause, Host
from tests.support import sysfs


def rows(root: Path) -> dict[str, object]:
    return dict(hugepages.read(Host(str(root))))


def test_each_size_has_its_pool(tmp_path: Path) -> None:
    assert rows(sysfs.build(tmp_path, "server", "md")) == {"2048kB": [512, 500, 7, 2, 16], "1048576kB": [4, 4, 0, 0, 0]}


def test_garbage_costs_its_own_row_alone(tmp_path: Path) -> None:
    server = sysfs.build(tmp_path, "server", "md")
    (server / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").write_text("\n")
    found = rows(server)
    assert found["2048kB"] == Absence(Cause.PROBE_FAILED, "ValueError: invalid literal for int() with base 10: b'\\n'")
    assert found["1048576kB"] == [4, 4, 0, 0, 0]


def test_a_kernel_without_huge_pages_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}


def test_it_agrees_with_meminfo_on_this_machine() -> None:
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if "Hugepagesize" in meminfo:
        pool = rows(Path("/"))[meminfo["Hugepagesize"].replace(" ", "")]
        assert isinstance(pool, list)
        assert pool[0] == int(meminfo["HugePages_Total"])
