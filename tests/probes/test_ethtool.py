# SPDX-License-Identifier: Apache-2.0
"""The table ``ethtool``: what is chosen, what sleeps, drivers that refuse, this machine."""

import os
from errno import EIO, ENODEV
from pathlib import Path

import pytest
from sysmond_probes import ethtool

from sysmond.probe import ABSENT, Absence, Cause, Host


class Machine(Host):
    """This machine's files below a root that the probe does not see: its drivers are stand-ins, by name."""

    asleep = False

    def names(self, path: str) -> list[str]:
        return ["eth0", "eth1"]

    def is_asleep(self, device: str) -> bool:
        return self.asleep and device == "/sys/class/net/eth0/device"


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    """What drivers count; one that counts nothing is broken."""
    drivers = {"eth0": {"rx0_drops": 5, "rx0_packets": 9, "tx0_timeouts": 2**64 - 1}, "eth1": {"rx_missed": 1}}

    def statistics(name: str) -> dict[str, int]:
        if not drivers[name]:
            raise OSError(EIO, "Input/output error")
        return drivers[name]

    monkeypatch.setattr(ethtool, "statistics", statistics)
    monkeypatch.setattr(os.path, "exists", lambda path: str(path).endswith("/device"))
    return drivers


def test_what_tells_of_trouble_is_chosen(drivers: dict[str, dict[str, int]]) -> None:
    assert dict(ethtool.Drivers().read(Machine())) == {
        "eth0:rx0_drops": (5,),
        "eth0:tx0_timeouts": (ABSENT,),
        "eth1:rx_missed": (1,),
    }


def test_an_administrator_may_choose_others(drivers: dict[str, dict[str, int]]) -> None:
    assert dict(ethtool.Drivers().read(Machine(), pattern="packets$")) == {"eth0:rx0_packets": (9,)}


def test_a_driver_is_not_asked_about_a_device_that_sleeps(drivers: dict[str, dict[str, int]]) -> None:
    read, machine = ethtool.Drivers().read, Machine()
    list(read(machine))
    machine.asleep, drivers["eth0"] = True, {"rx0_drops": 99}
    asleep = Absence(Cause.ASLEEP)
    assert dict(read(machine)) == {"eth0:rx0_drops": asleep, "eth0:tx0_timeouts": asleep, "eth1:rx_missed": (1,)}


def test_a_driver_that_refuses_costs_its_own_rows_alone(drivers: dict[str, dict[str, int]]) -> None:
    read = ethtool.Drivers().read
    drivers["eth1"] = {}
    assert list(dict(read(Machine()))) == ["eth0:rx0_drops", "eth0:tx0_timeouts"]  # Nobody knows what it has.
    drivers["eth1"], drivers["eth0"] = drivers["eth0"], {"rx_missed": 1}
    list(read(Machine()))
    drivers["eth0"] = {}
    failure = Absence(Cause.PROBE_FAILED, "Input/output error")
    assert dict(read(Machine()))["eth0:rx_missed"] == failure


def test_one_that_is_pulled_out_in_mid_read_has_no_rows(
    drivers: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ethtool.Drivers().read
    assert len(list(read(Machine()))) == 3

    def statistics(name: str) -> dict[str, int]:
        if name == "eth0":
            raise OSError(ENODEV, os.strerror(ENODEV))
        return drivers[name]

    monkeypatch.setattr(ethtool, "statistics", statistics)
    assert dict(read(Machine())) == {"eth1:rx_missed": (1,)}
    monkeypatch.setattr(Machine, "asleep", True)  # Nobody remembers what it had.
    assert dict(read(Machine())) == {"eth1:rx_missed": (1,)}


def test_statistics_are_bounded(drivers: dict[str, dict[str, int]]) -> None:
    drivers["eth0"] = {f"rx{number}_drops": number for number in range(1000)}
    assert len(list(ethtool.Drivers().read(Machine()))) == ethtool.STATISTICS_MAX + 1


def test_a_copied_tree_has_no_drivers(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="only the running machine"):
        list(ethtool.Drivers().read(Host(str(tmp_path))))


def test_this_machine_can_be_asked() -> None:
    real = {path.parent.name for path in Path("/sys/class/net").glob("*/device")}
    assert {name.partition(":")[0] for name, _ in ethtool.Drivers().read(Host())} <= real
