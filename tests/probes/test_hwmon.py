# SPDX-License-Identifier: Apache-2.0
"""Sensors of hwmon chips: exact values, what sleeps stays asleep, and garbage costs one instance."""

import math
import os
from pathlib import Path

import pytest
from sysmond_probes import backlight, cooling, humidity, hwmon, light, temperature

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.plan import catalogue
from sysmond.plan.catalogue import Catalogue, Defaults, ProbeEntry
from sysmond.plan.plan import as_declared
from sysmond.probe import ABSENT, Absence, Cause, Host, Probe
from sysmond.sampler.source import Reading, Source
from sysmond.sources import hwmon as chips
from tests.support import sysfs
from tests.support.machine import NOON_NS, Machine
from tests.support.opened import opened

A = ABSENT
NVME0 = "/sys/devices/pci0000:00/0000:00:06.0/0000:02:00.0/nvme/nvme0/hwmon1"
SUPER_IO = "sys/devices/platform/nct6775.656/hwmon/hwmon2"


def probes() -> dict[str, Probe]:
    """The probes as a lane that has just started has them."""
    return {
        probe.table.name: probe
        for probe in (*temperature.sysmond_probes(), *hwmon.sysmond_probes(), *humidity.sysmond_probes())
    }


def read(root: Path, table: str) -> dict[str, object]:
    return dict(probes()[table].read(Host(str(root))))


def test_a_laptop(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "hwmon")
    found = read(tmp_path, "temperature")
    assert found["coretemp:Package id 0"] == (62_000, A, 100_000, A, 100_000, A, A)
    assert [name for name in found if name.startswith("coretemp:Core")] == []
    assert found["nvme-pci-0200:Composite"] == (41_850, -273_150, 83_850, A, 87_850, A, 0)
    assert found["nvme-pci-0400:Composite"] == (38_850, A, 81_850, A, 84_850, A, 0)
    assert found["thinkpad:temp3"] == (44_000, A, A, A, A, A, A)
    assert read(tmp_path, "fan")["thinkpad:fan1"] == (2711, A, A, A)
    assert read(tmp_path, "voltage")["amdgpu-pci-c400:vddgfx"] == (731, A, A, A, A, A)
    assert read(tmp_path, "power")["amdgpu-pci-c400:PPT"] == (7_123_000, A, A, A, A, A, A)
    assert read(tmp_path, "humidity") == read(tmp_path, "energy") == read(tmp_path, "current") == {}


def test_cores_are_read_only_where_that_is_asked_for(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "hwmon", "thermal")
    with opened() as files:
        read(tmp_path, "temperature")
    (value,) = {os.path.basename(file) for file in files if "coretemp" in file and file.endswith("_input")}
    assert value == "temp1_input"
    found = dict(probes()["temperature"].read(Host(str(tmp_path)), cores=True))
    assert found["coretemp:Core 12"] == (55_000, A, 100_000, A, 100_000, A, A)
    assert "x86_pkg_temp" in found


def test_a_chip_without_a_sensor_of_the_package_tells_one_core(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "hwmon")
    for label in tmp_path.glob("sys/devices/**/temp*_label"):
        if label.read_text().startswith("Package"):
            label.write_text("Core 0\n")
    assert len([name for name in read(tmp_path, "temperature") if name.startswith("coretemp")]) == 1


def test_a_server(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "hwmon")
    found = read(tmp_path, "temperature")
    assert found["coretemp-isa-0001:Package id 1"] == (48_000, A, 90_000, A, 100_000, A, A)
    assert found["jc42-i2c-0-19:temp1"] == (34_500, 0, 85_000, A, 95_000, A, 1)
    assert found["drivetemp-scsi-1-0:temp1"] == (32_000, 0, 60_000, -40_000, 70_000, A, A)
    assert found["nct6779:AUXTIN (temp3)"] == (-62_000, A, A, A, A, A, A)
    assert found["nct6779:AUXTIN (temp4)"] == (30_500, A, A, A, A, A, A)
    fault = Absence(Cause.NO_SOURCE, "the chip reports a fault: temp2_fault is 1")
    assert found["nct6779:CPUTIN"] == fault
    fans = read(tmp_path, "fan")
    assert fans["nct6779:fan2"] == (0, 700, A, 1)
    assert isinstance(fans["nct6779:fan3"], Absence)
    assert read(tmp_path, "voltage")["nct6779:in1"] == (1000, 0, 0, A, A, 1)
    assert read(tmp_path, "power") == {"power_meter:power1": (214_000_000, 650_000_000, A, A, A, A, 0)}
    assert read(tmp_path, "energy") == {
        "amd_energy:Ecore000": (81_723_461,),
        "amd_energy:Esocket0": (998_172_346_100,),
    }


def test_an_arm_board_and_a_machine_without_sensors(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "hwmon")
    assert read(tmp_path, "humidity") == {"sht3x:humidity1": (43_218, 20_000, 80_000, 0)}
    assert read(tmp_path, "current") == {"ina226:curr1": (612, A, A, A, A, A)}
    assert read(tmp_path, "fan") == {"pwmfan:fan1": (3540, A, A, A)}
    # The firmware tells of too low a voltage, and of nothing else.
    assert read(tmp_path, "voltage")["rpi_volt:in0"] == (A, A, A, A, A, 1)
    assert all(read(tmp_path / "nowhere", table) == {} for table in probes())


@pytest.mark.parametrize("machine", ["laptop", "server", "arm"])
def test_a_probe_is_read_where_it_has_rows_and_nowhere_else(machine: str, tmp_path: Path) -> None:
    """What a probe says that it needs is there exactly where it finds something."""
    sysfs.build(tmp_path, machine)
    for plugin in (temperature, hwmon, humidity, cooling, light, backlight):
        for probe in plugin.sysmond_probes():
            rows = list(probe.read(Host(str(tmp_path))))
            assert as_declared("", probe).is_possible(str(tmp_path)) == bool(rows), probe.table.name


def test_every_row_has_a_value_a_metric(tmp_path: Path) -> None:
    for machine in ("laptop", "server", "arm"):
        sysfs.build(tmp_path / machine, machine, "hwmon")
        for table, probe in probes().items():
            rows = [row for row in read(tmp_path / machine, table).values() if type(row) is tuple]
            assert {len(row) for row in rows} <= {len(probe.table.metrics)}


def test_what_sleeps_is_not_touched(tmp_path: Path) -> None:
    """Of a suspended GPU nothing is opened but what the kernel knows without it: names, and whether it sleeps."""
    sysfs.build(tmp_path, "laptop", "hwmon")
    host = Host(str(tmp_path))
    with opened() as files:
        for probe in probes().values():
            for _ in range(2):
                host.new_tick()
                rows = dict(probe.read(host))
                assert {row for name, row in rows.items() if "0300" in name} <= {Absence(Cause.ASLEEP)}
    gpu = tmp_path / "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0"
    touched = {os.path.basename(file) for file in files if file.startswith(str(gpu))}
    known = {"runtime_status", "power_state", "control", "autosuspend_delay_ms", "name"}
    assert touched & {"runtime_status", "power_state"}
    assert [name for name in touched - known if not name.endswith("_label")] == []


def test_a_drive_is_asked_every_half_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two readings the last one stands, and all tables ask at the same times."""
    sysfs.build(tmp_path, "laptop", "hwmon")
    host, probe = Host(str(tmp_path)), probes()["temperature"]
    seen = []
    for now_s in range(600, 700, 10):
        monkeypatch.setattr(clock, "boottime_ns", lambda now_s=now_s: now_s * SECOND_NS + 5_000)
        (tmp_path / NVME0[1:] / "temp1_input").write_text(f"{now_s}\n")
        (tmp_path / "sys/class/hwmon/hwmon3/temp1_input").write_text(f"{now_s}\n")
        host.new_tick()
        rows = dict(probe.read(host))
        seen.append((rows["coretemp:Package id 0"][0], rows["nvme-pci-0200:Composite"][0]))
    assert [each[0] for each in seen] == list(range(600, 700, 10))
    assert [each[1] for each in seen] == [600] * 3 + [630] * 3 + [660] * 3 + [690]


def test_a_device_has_the_time_to_fall_asleep(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "hwmon")
    host = Host(str(tmp_path))
    delay = tmp_path / "sys/bus/pci/devices/0000:c4:00.0/power/autosuspend_delay_ms"
    intervals_s = []
    for delay_ms in (5000, 9000, 15_000, 100_000, -1):
        delay.write_text(f"{delay_ms}\n")
        intervals_s.append(chips.Chip(host, "hwmon4").slots.length_s)
    assert intervals_s == [10, 10, 30, 300, 10]


def test_a_disk_that_nobody_uses_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs.build(tmp_path, "server", "hwmon")
    host, probe = Host(str(tmp_path)), probes()["temperature"]
    disk = tmp_path / "sys/class/block/sda"
    temp = os.path.realpath(disk / "device/hwmon/hwmon6/temp1_input")

    def at(now_s: int) -> object:
        monkeypatch.setattr(clock, "boottime_ns", lambda: now_s * SECOND_NS)
        host.new_tick()
        return dict(probe.read(host))["drivetemp-scsi-0-0:temp1"]

    with opened() as files:
        assert all(type(at(now_s)) is Absence for now_s in range(0, 60, 10))
        assert temp not in files
        (disk / "stat").write_text("101 0 808 60 20 0 160 30 0 90 90\n")
        assert type(at(60)) is Absence
        assert at(70) == (31_000, 0, 60_000, -40_000, 70_000, A, A)
        assert temp in files
    last = at(130)
    assert isinstance(last, Absence)
    assert last.cause is Cause.ASLEEP


def test_garbage_costs_one_instance(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "hwmon")
    folder = tmp_path / SUPER_IO
    (folder / "in0_input").write_text("N/A\n")
    (folder / "in1_input").write_text("")
    (folder / "in2_input").unlink()
    (folder / "in2_input").symlink_to("/proc/self/mem")  # Whose first byte cannot be read: EIO.
    (folder / "in3_min").write_text(f"{2**70}\n")
    (folder / "in3_alarm").write_text("7\n")
    found = read(tmp_path, "voltage")
    assert found["nct6779:in0"] == Absence(Cause.PROBE_FAILED, "in0_input is not a number")
    assert found["nct6779:in1"] == Absence(Cause.PROBE_FAILED, "in1_input is not a number")
    assert found["nct6779:in2"] == Absence(Cause.PROBE_FAILED, "in2_input: Input/output error")
    assert found["nct6779:in3"] == (3024, A, 3296, A, A, A)
    assert found["w83627thf:in8"] == (3280, A, A, A, A, A)


def test_labels_are_made_fit_to_be_printed(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "hwmon")
    folder = tmp_path / SUPER_IO
    (folder / "temp1_label").write_bytes(b"\x1b[31mhot\0 \xffspot\n")
    (folder / "temp3_label").write_bytes(b"\n")
    (folder / "temp4_label").write_text("x" * 300)
    found = read(tmp_path, "temperature")
    names = {name.removeprefix("nct6779:") for name in found if name.startswith("nct6779:")}
    assert names == {"[31mhot \ufffdspot", "CPUTIN", "temp3", "x" * 64}


def test_what_is_unplugged_in_mid_read_is_a_gap_and_then_gone(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "hwmon")
    host, probe = Host(str(tmp_path)), probes()["temperature"]
    name = "jc42-i2c-0-19:temp1"
    assert type(dict(probe.read(host))[name]) is tuple
    device = tmp_path / "sys/bus/i2c/devices/0-0019"
    os.unlink(device.resolve() / "hwmon/hwmon5/temp1_input")
    host.look_again()
    host.new_tick()
    gone = dict(probe.read(host))[name]
    assert isinstance(gone, Absence)
    assert gone.cause in {Cause.NO_SOURCE, Cause.PROBE_FAILED}
    os.unlink(tmp_path / "sys/class/hwmon/hwmon5")
    host.look_again()
    host.new_tick()
    left = dict(probe.read(host))
    assert name not in left
    assert left["jc42:temp1"] == (33_250, 0, 85_000, A, 95_000, A, 0)


def test_names_stay_when_numbers_change(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "hwmon")
    host, probe = Host(str(tmp_path)), probes()["temperature"]
    before = dict(probe.read(host))
    listed = tmp_path / "sys/class/hwmon"
    first, second = os.readlink(listed / "hwmon1"), os.readlink(listed / "hwmon2")
    for name, target in (("hwmon1", second), ("hwmon2", first)):
        os.unlink(listed / name)
        os.symlink(target, listed / name)
    host.new_tick()
    assert dict(probe.read(host)) == before


def test_old_drivers_have_their_attributes_in_the_device(tmp_path: Path) -> None:
    told = "P: /devices/platform/applesmc.768\nE: SUBSYSTEM=platform\nA: name=applesmc\nA: fan1_input=1998\n"
    chip = "P: /devices/platform/applesmc.768/hwmon/hwmon0\nE: SUBSYSTEM=hwmon\nL: device=../../../applesmc.768"
    sysfs.devices(tmp_path, f"{told}\n{chip}")
    assert read(tmp_path, "fan") == {"applesmc:fan1": (1998, A, A, A)}
    assert any(pattern.endswith("/device/fan*_input") for pattern in probes()["fan"].needs)


def test_from_a_chip_to_an_answer(tmp_path: Path) -> None:
    """Through the source, the ring and a file: values, how far the crit is, and why the GPU has none."""
    machine = Machine(tmp_path / "recorded")
    probe = probes()["temperature"]
    root = str(sysfs.build(tmp_path / "laptop", "laptop", "hwmon"))
    planned = as_declared("", probe)
    entry = ProbeEntry(probe.table, False, planned, Defaults(probe.lane, planned.interval_ns, probe.sensitivity))
    declared = catalogue.encode(Catalogue({"temperature": entry}))
    Path(machine.folders.runtime, catalogue.FILE).write_bytes(declared)
    source = Source(planned, probe, Host(root), 4.0)
    writer = machine.start(5, writer="background", interval_ns=10 * SECOND_NS, table=probe.table)
    for tick_ns in range(10 * SECOND_NS, 60 * SECOND_NS, 10 * SECOND_NS):
        source.host.new_tick()
        reading = source.read()
        assert isinstance(reading, Reading)
        writer.relation(tick_ns)
        for absence in reading.lacking:
            writer.ring.absence(0, tick_ns, *absence)
        writer.ring.rows(0, tick_ns, reading.names, [int(value) for value in reading.values])
    machine.seal()
    package, asleep = "coretemp:Package id 0", "amdgpu-pci-0300:edge"
    paths = [f"temperature/value@{package}", f"temperature/headroom@{package}", f"temperature/value@{asleep}"]
    found = machine.archive.select(*paths, start=NOON_NS + 10 * SECOND_NS, end=NOON_NS + 60 * SECOND_NS, step="10s")
    value, headroom, nothing = (column.values.tolist() for column in found.columns)
    assert value == [62.0] * 5
    assert headroom == [38.0] * 5
    assert all(map(math.isnan, nothing))
    assert {(gap.cause, gap.detail) for gap in found.gaps} == {(Cause.ASLEEP, f"temperature@{asleep}")}
