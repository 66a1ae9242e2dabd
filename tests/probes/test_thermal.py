# SPDX-License-Identifier: Apache-2.0
"""Thermal zones are temperatures, each once; cooling devices have levels."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from sysmond_probes import cooling, temperature

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs
from tests.support.opened import opened

A = ABSENT
ZONES = "sys/class/thermal"


def temperatures(root: Path) -> dict[str, object]:
    (probe,) = temperature.sysmond_probes()
    return dict(probe.read(Host(str(root))))


def levels(root: Path) -> dict[str, object]:
    (probe,) = cooling.sysmond_probes()
    return dict(probe.read(Host(str(root))))


def test_a_zone_that_hwmon_shows_again_comes_once(tmp_path: Path) -> None:
    found = temperatures(sysfs.build(tmp_path, "laptop", "hwmon", "thermal"))
    assert found["acpitz"] == (62_000, A, 97_000, A, 128_000, A, A)
    assert found["iwlwifi_1"] == (49_000, A, A, A, A, A, A)
    assert found["coretemp:Package id 0"] == (62_000, A, 100_000, A, 100_000, A, A)
    assert [name for name in found if name.startswith(("acpitz:", "iwlwifi_1:", "x86_pkg_temp"))] == []


def test_trip_points_that_are_not_set_are_no_limits(tmp_path: Path) -> None:
    found = temperatures(sysfs.build(tmp_path, "laptop", "thermal"))
    assert found["x86_pkg_temp"] == (62_000, A, A, A, A, A, A)
    assert found["TCPU"] == (61_000, A, A, A, A, A, A)
    assert found["INT3400 Thermal"] == (20_000, A, A, A, A, A, A)


def test_two_zones_of_one_type_and_one_without_a_temperature(tmp_path: Path) -> None:
    found = temperatures(sysfs.build(tmp_path, "arm", "thermal"))
    assert found == {
        "cpu_thermal": (48_312, A, A, A, 110_000, A, A),
        "gpu-1": (47_001, A, 80_000, A, 95_000, A, A),
        "gpu-2": Absence(Cause.NO_SOURCE, "temp is -274000"),
    }


def test_levels_of_cooling(tmp_path: Path) -> None:
    assert levels(sysfs.build(tmp_path, "laptop", "thermal")) == {
        "Processor-LNXCPU:00": (0, 10),
        "Processor-LNXCPU:01": (3, 10),
        "Fan": (1, 7),
        "intel_powerclamp": (-1, 100),
    }


def test_a_machine_without_either_has_no_rows(tmp_path: Path) -> None:
    assert temperatures(tmp_path) == levels(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"N/A\n", b"\xff\n", b"99999999999999999999\n"])
def test_garbage_costs_one_instance(content: bytes, tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "thermal")
    (tmp_path / ZONES / "thermal_zone0/temp").write_bytes(content)
    (tmp_path / ZONES / "thermal_zone2/trip_point_0_temp").write_bytes(content)
    (tmp_path / ZONES / "cooling_device0/cur_state").write_bytes(content)
    (tmp_path / ZONES / "cooling_device1/max_state").write_bytes(content[:4])
    found, cooled = temperatures(tmp_path), levels(tmp_path)
    assert isinstance(found["acpitz"], Absence)
    assert found["TCPU"] == (61_000, A, A, A, A, A, A)
    assert isinstance(cooled["Processor-LNXCPU:00"], Absence) or cooled["Processor-LNXCPU:00"] == (A, 10)
    assert cooled["Fan"] == (1, 7)


def test_what_is_gone_in_mid_read_is_a_gap_of_its_own(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "thermal")
    os.unlink(tmp_path / ZONES / "thermal_zone1/temp")
    os.unlink(tmp_path / ZONES / "cooling_device2/cur_state")
    found = temperatures(tmp_path)
    assert found["INT3400 Thermal"] == Absence(Cause.NO_SOURCE, "temp: No such file or directory")
    assert levels(tmp_path)["Fan"] == Absence(Cause.NO_SOURCE, "cur_state: No such file or directory")
    os.unlink(tmp_path / ZONES / "thermal_zone1/type")
    assert found.keys() - temperatures(tmp_path).keys() == {"INT3400 Thermal"}


def test_numbers_may_change_and_names_stay(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "thermal")
    (probe,) = temperature.sysmond_probes()
    host = Host(str(tmp_path))
    before = dict(probe.read(host))
    folder = tmp_path / ZONES
    zones = os.readlink(folder / "thermal_zone0"), os.readlink(folder / "thermal_zone3")
    for name, target in (("thermal_zone3", zones[0]), ("thermal_zone0", zones[1])):
        os.unlink(folder / name)
        os.symlink(target, folder / name)
    host.look_again()
    host.new_tick()
    assert dict(probe.read(host)) == before


def test_firmware_of_acpi_is_asked_every_ten_seconds_however_often_somebody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine, zone, intervals in (("laptop", "acpitz", {10}), ("arm", "cpu_thermal", {1})):
        root = sysfs.build(tmp_path / machine, machine, "thermal")
        (probe,) = temperature.sysmond_probes()
        host, asked_s = Host(str(root)), list[int]()
        for now_s in range(600, 640):
            monkeypatch.setattr(clock, "boottime_ns", lambda now_s=now_s: now_s * SECOND_NS)
            (root / ZONES / "thermal_zone0/temp").write_text(f"{now_s}\n")
            host.new_tick()
            asked_s.append(int(dict(probe.read(host))[zone][0]))
        found = sorted(set(asked_s))
        assert {later - earlier for earlier, later in pairwise(found)} == intervals


def test_a_zone_of_a_device_that_sleeps_is_left_alone(tmp_path: Path) -> None:
    sysfs.devices(tmp_path, "P: /devices/pci0/gpu\nE: SUBSYSTEM=pci\nA: power/runtime_status=suspended")
    zone = "P: /devices/virtual/thermal/{0}0\nE: SUBSYSTEM=thermal\nL: device=../../../pci0/gpu\nA: type=gpu\nA: {1}=4"
    for words in (("thermal_zone", "temp"), ("cooling_device", "cur_state")):
        sysfs.devices(tmp_path, zone.format(*words))
    with opened() as files:
        assert temperatures(tmp_path) == levels(tmp_path) == {"gpu": Absence(Cause.ASLEEP)}
    assert {os.path.basename(file) for file in files} <= {"type", "runtime_status", "power_state"}
