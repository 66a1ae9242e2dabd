# SPDX-License-Identifier: Apache-2.0
"""The table ``link``: exact values, links that are down, a sleeping device, one that goes in mid-read, this machine."""

import socket
from pathlib import Path

import pytest
from sysmond_probes import link

from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "net")


def rows(root: Path) -> dict[str, object]:
    return dict(link.read(Host(str(root))))


def test_a_link_that_is_up_has_a_speed_and_others_have_none(server: Path) -> None:
    assert rows(server) == {
        "eno1": (1, 10_000_000_000, 4, 9000, "up", "full"),
        "eno2": (0, ABSENT, 1, 1500, "down", ABSENT),
        "lo": (1, ABSENT, 0, 65536, "unknown", ABSENT),
    }


@pytest.mark.parametrize("unknown", ["-1", "4294967295"])
def test_a_speed_that_the_driver_does_not_know_is_absent(server: Path, unknown: str) -> None:
    (server / "sys/class/net/eno1/speed").write_text(unknown)
    assert rows(server)["eno1"] == (1, ABSENT, 4, 9000, "up", "full")


def test_a_driver_is_not_asked_about_a_device_that_sleeps(server: Path) -> None:
    power = server / "sys/devices/pci0000:00/0000:00:1c.0/0000:02:00.0/power"
    power.mkdir()
    (power / "runtime_status").write_text("suspended\n")
    assert rows(server)["eno1"] == (1, ABSENT, 4, 9000, "up", ABSENT)


def test_a_file_beside_the_interfaces_is_none(server: Path) -> None:
    (server / "sys/class/net/bonding_masters").write_text("bond0\n")
    assert sorted(rows(server)) == ["eno1", "eno2", "lo"]


def test_an_interface_that_goes_in_mid_read_has_no_row(server: Path) -> None:
    reading = link.read(Host(str(server)))
    assert next(reading)[0] == "eno1"
    (server / "sys/class/net/eno2").unlink()
    assert [name for name, _ in reading] == ["lo"]


def test_garbage_costs_its_own_row_alone(server: Path) -> None:
    (server / "sys/class/net/eno1/mtu").write_text("")
    found = rows(server)
    assert found["eno1"] == Absence(Cause.PROBE_FAILED, "ValueError: invalid literal for int() with base 10: b''")
    assert found["lo"] == (1, ABSENT, 0, 65536, "unknown", ABSENT)


def test_a_machine_without_network_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}


def test_interfaces_are_bounded(tmp_path: Path) -> None:
    for number in range(link.LINKS_MAX + 4):
        folder = tmp_path / f"sys/class/net/veth{number:04}"
        folder.mkdir(parents=True)
        (folder / "mtu").write_text("1500\n")
    assert len(rows(tmp_path)) == link.LINKS_MAX


def test_it_agrees_with_the_kernel_on_this_machine() -> None:
    assert sorted(rows(Path("/"))) == sorted(name for _, name in socket.if_nameindex())
