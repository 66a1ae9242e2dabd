# SPDX-License-Identifier: Apache-2.0
"""The table ``zram``: exact values, a device that is not set up, old kernels, garbage, a real device."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sysmond_probes import zram

from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs

MIB = 2**20


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "zram")


def rows(root: Path) -> dict[str, object]:
    return dict(zram.read(Host(str(root))))


def test_one_that_is_set_up_has_a_row_and_an_old_kernel_lacks_some_of_it(server: Path) -> None:
    memory = (1024 * MIB, 256 * MIB, 272 * MIB, 288 * MIB, 4096 * MIB, 5120, 210, 77)
    assert rows(server) == {
        "zram0": (8192 * MIB, *memory, 1, 2, 16 * 4096, 3 * 4096, 20 * 4096, "zstd"),
        "zram2": (4096000, 4096, 74, 12288, 12288, 0, 0, ABSENT, 0, 0, 0, ABSENT, ABSENT, ABSENT, "lzo"),
    }


@pytest.mark.parametrize(("file", "content"), [("mm_stat", "1 2 3\n"), ("mm_stat", ""), ("io_stat", "x y\n")])
def test_garbage_costs_its_own_row_alone(server: Path, file: str, content: str) -> None:
    (server / "sys/class/block/zram0" / file).write_text(content)
    found = rows(server)
    failure = found["zram0"]
    assert isinstance(failure, Absence)
    assert failure.cause is Cause.PROBE_FAILED
    assert "zram2" in found


def test_one_that_goes_in_mid_read_has_no_row(server: Path) -> None:
    reading = zram.read(Host(str(server)))
    assert next(reading)[0] == "zram0"
    (server / "sys/class/block/zram2").unlink()
    assert list(reading) == []


def test_a_machine_without_zram_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}


@pytest.fixture
def device() -> Iterator[str]:
    """A device of this machine with 8 MiB of numbers in it, made for the test."""
    control = Path("/sys/class/zram-control")
    if os.geteuid() or not control.is_dir():
        pytest.skip("needs root, and a kernel with zram")
    number = (control / "hot_add").read_text().strip()
    folder = Path(f"/sys/block/zram{number}")
    try:
        (folder / "disksize").write_text(str(16 * MIB))
        with open(f"/dev/zram{number}", "r+b", buffering=0) as disk:
            disk.write(b"".join(number.to_bytes(8, "big") for number in range(MIB)))
            os.fsync(disk.fileno())
        yield folder.name
    finally:
        (folder / "reset").write_text("1")
        (control / "hot_remove").write_text(number)


def test_it_agrees_with_zramctl_on_this_machine(device: str) -> None:
    columns = "--output=DISKSIZE,DATA,COMPR,TOTAL,ALGORITHM"
    command = ["zramctl", "--bytes", "--raw", "--noheadings", columns, f"/dev/{device}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    values = rows(Path("/"))[device]
    assert isinstance(values, tuple)
    assert [*map(str, values[:4]), values[-1]] == told
    assert values[1] >= 8 * MIB - 4096
