# SPDX-License-Identifier: Apache-2.0
"""The table ``device_mapper``: exact values, garbage, a device that goes, machines without."""

from pathlib import Path

import pytest
from sysmond_probes import device_mapper

from sysmond.probe import Absence, Cause, Host
from tests.support import sysfs


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "device_mapper")


def rows(root: Path) -> dict[str, object]:
    return dict(device_mapper.read(Host(str(root))))


def test_devices_have_the_names_that_people_gave_them(server: Path) -> None:
    assert rows(server) == {"dm-0": (0, "vg0-root"), "dm-1": (1, "luks home")}


def test_garbage_costs_its_own_row_alone(server: Path) -> None:
    (server / "sys/class/block/dm-0/dm/name").write_text("\n")
    why = "ValueError: /sys/class/block/dm-0/dm/name: empty; expected a name"
    assert rows(server) == {"dm-0": Absence(Cause.PROBE_FAILED, why), "dm-1": (1, "luks home")}


def test_a_device_that_goes_in_mid_read_has_no_row(server: Path) -> None:
    reading = device_mapper.read(Host(str(server)))
    assert next(reading)[0] == "dm-0"
    (server / "sys/class/block/dm-1").unlink()
    assert list(reading) == []


def test_a_machine_without_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}
