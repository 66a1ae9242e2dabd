# SPDX-License-Identifier: Apache-2.0
"""The table ``ext4``: exact values, an old kernel, garbage, machines without ext4, this machine."""

from pathlib import Path

import pytest
from sysmond_probes import ext4

from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def rows(root: Path) -> dict[str, object]:
    return dict(ext4.read(Host(str(root))))


def test_one_that_had_errors_and_one_that_never_had_on_a_kernel_that_counts_no_warnings(server: Path) -> None:
    assert rows(server) == {
        "sda2": (12, 3, 1763900000, 1763990000, 6348589 * 1024, "ext4_lookup"),
        "sdb3": (0, ABSENT, ABSENT, ABSENT, 77 * 1024, ABSENT),
    }


def test_garbage_costs_its_own_row_alone(server: Path) -> None:
    (server / "sys/fs/ext4/sda2/lifetime_write_kbytes").write_text("much\n")
    found = rows(server)
    why = "ValueError: invalid literal for int() with base 10: b'much\\n'"
    assert found["sda2"] == Absence(Cause.PROBE_FAILED, why)
    assert found["sdb3"] == (0, ABSENT, ABSENT, ABSENT, 77 * 1024, ABSENT)


def test_one_that_is_unmounted_in_mid_read_has_no_row(server: Path) -> None:
    reading = ext4.read(Host(str(server)))
    assert next(reading)[0] == "sda2"
    (server / "sys/fs/ext4/sdb3/lifetime_write_kbytes").unlink()
    assert list(reading) == []


def test_a_machine_without_ext4_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}


def test_this_machine_has_a_row_for_each_device_that_is_mounted_as_ext4() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    devices = {
        Path(device).resolve().name for device, _, kind, *_ in mounts if kind == "ext4" and device != "/dev/root"
    }
    assert devices <= set(rows(Path("/")))
