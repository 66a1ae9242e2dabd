# SPDX-License-Identifier: Apache-2.0
"""Sensors of Industrial I/O: exact values, nothing woken, nothing taken from who uses it; backlights."""

import os
from pathlib import Path

import pytest
from sysmond_probes import backlight, humidity, light, temperature

from sysmond.probe import ABSENT, Absence, Cause, Host, Sensitivity
from sysmond.sources import iio_orientation
from sysmond.sources.iio import exact
from tests.support import sysfs
from tests.support.opened import opened

A = ABSENT
DEVICES = "sys/bus/iio/devices"
PROBES = {
    probe.table.name: probe for plugin in (light, humidity, temperature, backlight) for probe in plugin.sysmond_probes()
}


def read(root: Path, table: str, **options: bool) -> dict[str, object]:
    return dict(PROBES[table].read(Host(str(root)), **options))


def test_a_laptop(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "iio")
    assert read(tmp_path, "light") == {"als": (342_570_000,)}
    assert read(tmp_path, "motion") == {
        "accel_3d": Absence(Cause.IN_USE, "another program is reading its buffer"),
        "gyro_3d": (A, A, A, -1222, 0, 3_490_640),
    }
    assert read(tmp_path, "proximity") == {"prox": Absence(Cause.ASLEEP)}
    assert read(tmp_path, "orientation") == {
        "accel_3d": Absence(Cause.IN_USE, "another program is reading its buffer"),
        "dev_rotation": (A, -12, 0, 707_107, -707_107),
    }
    assert read(tmp_path, "air_pressure") == {}


def test_an_arm_board(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "iio")
    assert read(tmp_path, "light") == {
        "veml6030": (342_560_000,),
        "ltr501:0": (500_000,),
        "ltr501:1": (6_000_000,),
    }
    assert read(tmp_path, "motion") == {"mpu6050": (-9_797_632, 76_544, 598, 12_777, -1065, 0)}
    assert read(tmp_path, "orientation") == {"mpu6050": (2, A, A, A, A)}
    assert read(tmp_path, "proximity") == {"ltr501": (2_049_000_000,)}
    assert read(tmp_path, "air_pressure") == {"bme280-i2c-1-76": (98_123_457,), "bme280-i2c-1-77": (98_101_000,)}
    assert read(tmp_path, "humidity") == {
        "bme280-i2c-1-76": (43_218, A, A, A),
        "bme280-i2c-1-77": (91_002, A, A, A),
    }
    found = read(tmp_path, "temperature")
    assert found["bme280-i2c-1-77"] == (-4120, A, A, A, A, A, A)
    assert found["mpu6050"] == (round((-3472 + 12_420) * 2.941176), A, A, A, A, A, A)


def test_a_machine_without_sensors(tmp_path: Path) -> None:
    assert all(read(tmp_path, table) == {} for table in PROBES)


def test_what_is_about_people_is_restricted() -> None:
    restricted = {table for table, probe in PROBES.items() if probe.sensitivity is Sensitivity.RESTRICTED}
    assert restricted == {"motion", "orientation", "proximity"}


def test_a_sensor_that_sleeps_or_is_in_use_is_not_touched(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "iio")
    with opened() as files:
        read(tmp_path, "motion")
        read(tmp_path, "proximity")
    names = {os.path.basename(file) for file in files}
    assert {name for name in names if name.startswith("in_")} == {
        "in_anglvel_scale",
        *(f"in_anglvel_{axis}_raw" for axis in "xyz"),
    }


def test_sensors_of_one_name_in_one_hub_are_told_apart(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "iio")
    (tmp_path / DEVICES / "iio:device2/name").write_text("accel_3d\n")
    assert read(tmp_path, "motion").keys() == {"accel_3d-isa-0000", "accel_3d-isa-0000 (iio:device2)"}


def test_who_asks_for_it_has_it_woken(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "iio")
    assert read(tmp_path, "proximity", wake=True) == {"prox": (1_000_000,)}
    assert isinstance(read(tmp_path, "motion", wake=True)["accel_3d"], Absence)


def test_a_scale_may_change_at_any_time(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "iio")
    host, probe = Host(str(tmp_path)), PROBES["light"]
    assert dict(probe.read(host)) == {"als": (342_570_000,)}
    (tmp_path / DEVICES / "iio:device0/in_illuminance_scale").write_text("0.1\n")
    (tmp_path / DEVICES / "iio:device0/in_illuminance_offset").write_text("-7.5\n")
    host.new_tick()
    assert dict(probe.read(host)) == {"als": (3_424_950_000,)}


@pytest.mark.parametrize("content", [b"", b"N/A\n", b"1e5\n", b"0x10\n", b"nan\n", b"1.2.3\n", b"9" * 19 + b"\n"])
def test_garbage_costs_one_instance(content: bytes, tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "iio")
    (tmp_path / DEVICES / "iio:device3/in_illuminance_input").write_bytes(content)
    (tmp_path / DEVICES / "iio:device2/in_accel_scale").write_bytes(content)
    lights = read(tmp_path, "light")
    assert lights["veml6030"] == Absence(Cause.PROBE_FAILED, "in_illuminance_input is not a number")
    assert lights["ltr501:0"] == (500_000,)
    assert isinstance(read(tmp_path, "motion")["mpu6050"], Absence)


def test_what_is_gone_in_mid_read_is_a_gap(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "iio")
    host, probe = Host(str(tmp_path)), PROBES["light"]
    list(probe.read(host))
    os.unlink(tmp_path / DEVICES / "iio:device3/in_illuminance_input")
    os.unlink(tmp_path / DEVICES / "iio:device4/name")
    host.new_tick()
    found = dict(probe.read(host))
    assert found["ltr501:0"] == (500_000,)  # Its files are open still.
    host.look_again()
    host.new_tick()
    assert dict(probe.read(host)).keys() == {"veml6030"}


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"1\n", 10**12), (b"-0.5\n", -(10**12) // 2), (b"0.000000001", 1000), (b"-12.25", -12_250_000_000_000)],
)
def test_decimals_are_exact(text: bytes, value: int) -> None:
    assert exact(text) == value


@pytest.mark.parametrize(
    ("vector", "is_up"),
    [
        ((0, -9.81, 0), iio_orientation.NORMAL),
        ((0, 9.81, 0), iio_orientation.BOTTOM_UP),
        ((9.81, 0, 0), iio_orientation.LEFT_UP),
        ((-9.81, 0, 0), iio_orientation.RIGHT_UP),
        ((0, 0, 9.81), iio_orientation.NEITHER),
        ((0, -5.5, 8.1), iio_orientation.NEITHER),  # 34 degrees: it lies on knees.
        ((0, -5.9, 7.8), iio_orientation.NORMAL),  # 37 degrees.
        ((-6.9, -6.9, 0), iio_orientation.NEITHER),  # Between two sides.
        ((0, 0, 0), iio_orientation.NEITHER),
    ],
)
def test_the_side_that_is_up(vector: tuple[float, ...], is_up: int) -> None:
    assert iio_orientation.side(vector) == is_up


def test_the_way_a_sensor_is_mounted_turns_what_it_says(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "iio")
    mounted = tmp_path / DEVICES / "iio:device2/in_mount_matrix"
    sides = []
    for content in ("1, 0, 0; 0, 1, 0; 0, 0, 1", "0, -1, 0; 1, 0, 0; 0, 0, 1", "-1.000000, 0, 0; 0, -1, 0; 0, 0, 1"):
        mounted.write_text(f"{content}\n")
        sides.append(read(tmp_path, "orientation")["mpu6050"])
    assert sides == [(side, A, A, A, A) for side in (4, 1, 3)]
    mounted.unlink()
    assert read(tmp_path, "orientation")["mpu6050"] == (4, A, A, A, A)


@pytest.mark.parametrize("content", ["1, 0; 0, 1", "0, 0, 0; 0, 1, 0; 0, 0, 1", "one", "1, 0, 0; 0, nan, 0; 0, 0, 1"])
def test_a_matrix_that_is_none_is_a_gap(content: str, tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "iio")
    (tmp_path / DEVICES / "iio:device2/in_mount_matrix").write_text(f"{content}\n")
    lacking = Absence(Cause.PROBE_FAILED, "in_mount_matrix is not a number")
    assert read(tmp_path, "orientation")["mpu6050"] == lacking


@pytest.mark.parametrize("content", ["", "1 2 3", "1 2 3 4 5", "1 2 3 x"])
def test_a_rotation_that_is_none_is_a_gap(content: str, tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "iio")
    (tmp_path / DEVICES / "iio:device4/in_rot_quaternion_raw").write_text(f"{content}\n")
    lacking = Absence(Cause.PROBE_FAILED, "in_rot_quaternion_raw is not a number")
    assert read(tmp_path, "orientation")["dev_rotation"] == lacking


def test_one_device_may_tell_both(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "arm", "iio")
    (tmp_path / DEVICES / "iio:device2/in_rot_quaternion_raw").write_text("0 0 0 1\n")
    assert read(tmp_path, "orientation") == {"mpu6050": (2, 0, 0, 0, 1_000_000)}


def test_backlights(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "laptop", "backlight")
    with opened() as files:
        assert read(tmp_path, "backlight") == {"intel_backlight": (48_000, 96_000), "tpacpi::kbd_backlight": (1, 2)}
    assert "actual_brightness" not in {os.path.basename(file) for file in files}
    (tmp_path / "sys/class/leds/tpacpi::kbd_backlight/brightness").write_text("\n")
    assert read(tmp_path, "backlight")["tpacpi::kbd_backlight"] == Absence(
        Cause.PROBE_FAILED, "brightness is not a number"
    )
