# SPDX-License-Identifier: Apache-2.0
"""The table ``numa``: exact values, a field that a kernel lacks, garbage, this machine."""

from pathlib import Path

import pytest
from sysmond_probes import numa

from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs

KIB = 1024
SIZES = [1270016 * KIB, 64393984 * KIB, 31081880 * KIB, 20847440 * KIB, 109280 * KIB, 4300760 * KIB, 1024 * KIB]


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def rows(root: Path) -> dict[str, object]:
    return dict(numa.Nodes().read(Host(str(root))))


def test_each_node_has_its_memory_and_where_it_was_allocated(server: Path) -> None:
    assert rows(server) == {
        f"node{node}": [(65664000 + node) * KIB, *SIZES, 209712780 + node, 42, 17, 1136, 20970000, 1320]
        for node in (0, 1)
    }


def test_what_a_kernel_lacks_is_absent(server: Path) -> None:
    meminfo = server / "sys/devices/system/node/node0/meminfo"
    meminfo.write_text(meminfo.read_text().replace("Shmem:", "Else:"))
    found = rows(server)["node0"]
    assert isinstance(found, list)
    assert [metric.name for metric, value in zip(numa.NUMA.metrics, found, strict=True) if value == ABSENT] == ["shmem"]


def test_garbage_costs_its_own_row_alone(server: Path) -> None:
    (server / "sys/devices/system/node/node1/numastat").write_text("numa_hit\n")
    found = rows(server)
    assert found["node1"] == Absence(
        Cause.PROBE_FAILED, "ValueError: /sys/devices/system/node/node1: expected pairs of name and number"
    )
    assert isinstance(found["node0"], list)


def test_a_kernel_without_nodes_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}


def test_nodes_of_this_machine_have_what_all_of_it_has() -> None:
    before = allocated()
    hits = [node[8] for node in rows(Path("/")).values() if isinstance(node, list)]
    if hits:
        assert before <= sum(hits) <= allocated()


def allocated() -> int:
    return int(dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines()).get("numa_hit", 0))
