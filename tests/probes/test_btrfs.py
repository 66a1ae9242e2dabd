# SPDX-License-Identifier: Apache-2.0
"""The tables ``btrfs`` and ``btrfs_device``: exact values, an old kernel, garbage, a real file system."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sysmond_probes import btrfs

from sysmond.base.model import check_table
from sysmond.probe import Absence, Cause, Host, Row
from tests.support import sysfs

UUID = "6f1a2c52-0000-4000-8000-000000000001"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def rows(read: Callable[[Host], Iterator[Row]], root: Path) -> dict[str, object]:
    return dict(read(Host(str(root))))


def test_the_tables_are_well_formed() -> None:
    for probe in btrfs.sysmond_probes():
        check_table(probe.table)


def test_space_is_told_by_what_it_is_for(server: Path) -> None:
    assert rows(btrfs.read, server) == {
        "sdd1:data": [1073741824, 4096, 0, 8192, 16384, 2147483648, 8192],
        "sdd1:metadata": [268435456, 147456, 65536, 3407872, 0, 536870912, 294912],
    }


def test_devices_have_their_errors(server: Path) -> None:
    assert rows(btrfs.read_devices, server) == {"sdd1:1": [0, 0, 0, 0, 0, 0], "sdd1:2": [12, 3, 1, 40, 2, 1]}


def test_a_kernel_before_5_14_has_no_devices(server: Path) -> None:
    shutil.rmtree(server / "sys/fs/btrfs" / UUID / "devinfo")
    assert rows(btrfs.read_devices, server) == {}
    assert len(rows(btrfs.read, server)) == 2


def test_garbage_costs_its_own_row_alone(server: Path) -> None:
    (server / "sys/fs/btrfs" / UUID / "allocation/data/bytes_used").write_text("")
    (server / "sys/fs/btrfs" / UUID / "devinfo/2/error_stats").write_text("write_errs 1\n")
    of_data, of_device = rows(btrfs.read, server)["sdd1:data"], rows(btrfs.read_devices, server)["sdd1:2"]
    assert isinstance(of_data, Absence)
    assert isinstance(of_device, Absence)
    assert of_data.cause is of_device.cause is Cause.PROBE_FAILED
    assert "no read_errs, flush_errs" in of_device.detail
    assert isinstance(rows(btrfs.read, server)["sdd1:metadata"], list)
    assert isinstance(rows(btrfs.read_devices, server)["sdd1:1"], list)


def test_a_machine_without_btrfs_has_no_rows(tmp_path: Path) -> None:
    assert rows(btrfs.read, tmp_path) == rows(btrfs.read_devices, tmp_path) == {}


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of btrfs in a file."""
    if os.geteuid() or not shutil.which("mkfs.btrfs") or "\tbtrfs\n" not in Path("/proc/filesystems").read_text():
        pytest.skip("needs root, mkfs.btrfs and a kernel with btrfs")
    image, point = tmp_path / "image", tmp_path / "point"
    with image.open("wb") as file:
        file.truncate(256 * 2**20)
    point.mkdir()
    subprocess.run(["mkfs.btrfs", "--quiet", image], check=True, timeout=60)
    if subprocess.run(["mount", "-o", "loop", image, point], check=False, capture_output=True, timeout=60).returncode:
        pytest.skip("may not mount here")
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True, timeout=60)


def test_it_agrees_with_btrfs_on_this_machine(mounted: Path) -> None:
    device = Path(mounted_from(mounted)).name
    command = ["btrfs", "filesystem", "df", "--raw", str(mounted)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    shown = {line.partition(",")[0].lower(): line.split("total=")[1] for line in told.splitlines()}
    found = {name: values for name, values in rows(btrfs.read, Path("/")).items() if name.startswith(f"{device}:")}
    for kind in ("data", "metadata", "system"):
        values = found[f"{device}:{kind}"]
        assert isinstance(values, list)
        assert f"{values[0]}, used={values[1]}" == shown[kind]
    assert rows(btrfs.read_devices, Path("/"))[f"{device}:1"] == [0] * 6


def mounted_from(point: Path) -> str:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next(device for device, where, *_ in mounts if where == str(point))
