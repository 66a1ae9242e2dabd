# SPDX-License-Identifier: Apache-2.0
"""The tables ``nfs`` and ``nfs_mount``: exact values, an old kernel, garbage, machines without."""

from pathlib import Path

import pytest
from sysmond_probes import nfs

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs

NAMES = [metric.name for metric in nfs.NFS_MOUNT.metrics]


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def rows(root: Path) -> dict[str, object]:
    return dict(nfs.read_mounts(Host(str(root))))


def test_the_tables_are_well_formed() -> None:
    for probe in nfs.sysmond_probes():
        check_table(probe.table)


def test_the_client_as_a_whole(server: Path) -> None:
    assert list(nfs.read(Host(str(server)))) == [("", (5123, 17, 5140))]


def test_each_mount_has_its_bytes_and_its_times_and_other_file_systems_have_none(server: Path) -> None:
    found = rows(server)
    assert list(found) == ["/srv/data", "/mnt/with blank"]
    values = found["/srv/data"]
    assert isinstance(values, list)
    assert dict(zip(NAMES, values, strict=True)) == {
        "read_bytes": 4096 + 512,
        "written_bytes": 8192 + 256,
        "server_read_bytes": 3000,
        "server_written_bytes": 8500,
        "requests": 10 + 20 + 5,
        "transmissions": 11 + 21 + 5,
        "timeouts": 1,
        "queue_time": 3 + 4 + 0,
        "server_time": 50 + 90 + 2,
        "request_time": 60 + 99 + 3,
        "errors": 2,
        "reads": 10,
        "read_time": 60,
        "writes": 20,
        "write_time": 99,
    }


def test_a_kernel_before_5_3_counts_no_errors_and_another_version_has_no_reads(server: Path) -> None:
    values = rows(server)["/mnt/with blank"]
    assert isinstance(values, list)
    row = dict(zip(NAMES, values, strict=True))
    assert (row["errors"], row["reads"], row["write_time"], row["requests"]) == (ABSENT, ABSENT, ABSENT, 7)


def test_garbage_costs_its_own_row_alone(server: Path) -> None:
    path = server / "proc/self/mountstats"
    path.write_text(path.read_text().replace("bytes:\t4096 8192", "bytes:\t4096\n"))
    found = rows(server)
    failure = found["/srv/data"]
    assert isinstance(failure, Absence)
    assert failure.cause is Cause.PROBE_FAILED
    assert "expected 6 numbers" in failure.detail
    assert isinstance(found["/mnt/with blank"], list)


def test_a_file_without_the_line_of_rpc_is_refused(server: Path) -> None:
    (server / "proc/net/rpc/nfs").write_text("net 0 0 0 0\n")
    with pytest.raises(ValueError, match="expected a line 'rpc'"):
        list(nfs.read(Host(str(server))))


def test_mounts_are_bounded(server: Path) -> None:
    path = server / "proc/self/mountstats"
    one = path.read_text().split("device ")[2]
    path.write_text("".join(f"device {one}".replace("/srv/data", f"/srv/{number}") for number in range(100)))
    assert len(rows(server)) == nfs.MOUNTS_MAX


def test_without_nfs_there_is_no_source_and_no_mount(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(nfs.read(Host(str(tmp_path))))
    assert "/proc" not in nfs.mounts(Path("/proc/self/mountstats").read_text().splitlines())
