# SPDX-License-Identifier: Apache-2.0
"""The tables runtime_pm, usb_power and wakeup: described devices, what is missing, garbage, and this machine."""

from pathlib import Path
from types import ModuleType

import pytest
from sysmond_probes import runtime_pm, usb_power, wakeup

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs

GPU = "sys/bus/pci/devices/0000:01:00.0"


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    root = sysfs.build(tmp_path, "laptop", "devices")
    (root / "sys/block").symlink_to("class/block")
    return root


def rows(probe: ModuleType, root: Path) -> dict[str, list[int | str] | Absence]:
    told = probe.read(Host(str(root)))
    return {name: values if isinstance(values, Absence) else list(values) for name, values in told}


@pytest.mark.parametrize("plugin", [runtime_pm, usb_power, wakeup])
def test_the_tables_are_sound(plugin: ModuleType) -> None:
    (probe,) = plugin.sysmond_probes()
    check_table(probe.table)
    assert all(metric.origin for metric in probe.table.metrics)
    assert probe.needs


@pytest.mark.parametrize("plugin", [runtime_pm, usb_power, wakeup])
def test_a_machine_without_such_devices_has_no_rows(plugin: ModuleType, tmp_path: Path) -> None:
    assert rows(plugin, tmp_path) == {}


def test_devices_that_may_sleep_say_how_long_they_did(laptop: Path) -> None:
    assert rows(runtime_pm, laptop) == {
        "pci:0000:00:14.0": [8_645_144, 0, "active", "on"],
        "pci:0000:01:00.0": [5021, 8_640_123, "suspended", "auto"],
        "usb:1-3": [1000, 8_644_144, "suspended", "auto"],
        "usb:usb1": [8_600_000, 45_144, "active", "auto"],
        "block:sda": [8_645_000, 0, "active", "on"],
    }


def test_nothing_but_what_the_kernel_remembers_is_read(laptop: Path) -> None:
    host = Host(str(laptop))
    list(runtime_pm.read(host))
    list(usb_power.read(host))
    asked = {path.rpartition("/")[2] for path, _ in host.note()}
    remembered = {"runtime_status", "runtime_active_time", "runtime_suspended_time", "control"}
    assert asked == {*remembered, "bMaxPower", "bmAttributes"}


def test_a_device_that_is_pulled_out_in_mid_read_has_no_row(laptop: Path) -> None:
    for name in ("runtime_status", "control"):
        (laptop / GPU / "power" / name).unlink()
    (laptop / "sys/bus/usb/devices/1-3/bmAttributes").unlink()
    assert "pci:0000:01:00.0" not in rows(runtime_pm, laptop)
    assert list(rows(usb_power, laptop)) == ["usb1"]


def test_garbage_of_one_device_costs_no_other(laptop: Path) -> None:
    (laptop / GPU / "power/runtime_active_time").write_text("")
    (laptop / GPU / "power/runtime_suspended_time").write_text("N/A\n")
    (laptop / GPU / "power/runtime_status").write_text("error\n")
    (laptop / "sys/bus/usb/devices/usb1/power/runtime_status").write_bytes(b"\xff\xfe")
    told = rows(runtime_pm, laptop)
    assert told["pci:0000:01:00.0"] == [ABSENT, ABSENT, "error", "auto"]
    bad = told["usb:usb1"]
    assert isinstance(bad, Absence)
    assert bad.cause is Cause.PROBE_FAILED
    assert told["block:sda"] == [8_645_000, 0, "active", "on"]


def test_usb_devices_say_what_they_may_draw(laptop: Path) -> None:
    assert rows(usb_power, laptop) == {"1-3": [98, 0], "usb1": [0, 1]}


@pytest.mark.parametrize(
    ("power", "attributes", "values"),
    [(b"500mA\n", b"80\n", (500, 0)), (b"896mA\n", b"c0\n", (896, 1)), (b"", b"\n", (ABSENT, ABSENT))],
)
def test_what_a_device_may_draw(power: bytes, attributes: bytes, values: tuple[int, int]) -> None:
    assert usb_power.parse(power, attributes) == values


@pytest.mark.parametrize(("power", "attributes"), [(b"500", b"80"), (b"lots mA", b"80"), (b"2mA", b"N/A")])
def test_garbage_of_a_usb_device_is_told(power: bytes, attributes: bytes, laptop: Path) -> None:
    (laptop / "sys/bus/usb/devices/1-3/bMaxPower").write_bytes(power)
    (laptop / "sys/bus/usb/devices/1-3/bmAttributes").write_bytes(attributes)
    told = rows(usb_power, laptop)
    assert isinstance(told["1-3"], Absence)
    assert told["usb1"] == [0, 1]


def test_what_ever_woke_the_machine_has_a_row_of_its_name(laptop: Path) -> None:
    assert rows(wakeup, laptop) == {
        "0000:00:14.0": [7, 9, 2, 7, 702, 0, 101],
        "PNP0C0D:00": [1, 1, 0, 0, 0, 3, 0],
        "PNP0C0D:00#2": [4, 4, 1, 0, 8, 0, 5],
    }


def test_a_source_without_a_name_has_its_number_and_kernels_may_count_less(laptop: Path) -> None:
    (laptop / "sys/class/wakeup/wakeup3/name").write_text("\n")
    (laptop / "sys/class/wakeup/wakeup3/prevent_suspend_time_ms").unlink()
    assert rows(wakeup, laptop)["wakeup3"] == [7, 9, 2, 7, 702, ABSENT, 101]


def test_rows_are_bounded(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_pm, "DEVICES_MAX", 2)
    monkeypatch.setattr(usb_power, "DEVICES_MAX", 1)
    monkeypatch.setattr(wakeup, "SOURCES_MAX", 1)
    assert [len(rows(plugin, laptop)) for plugin in (runtime_pm, usb_power, wakeup)] == [2, 1, 1]


def test_here_a_device_is_awake_or_asleep_as_time_passes() -> None:
    if not any(Path("/sys/bus/pci/devices").glob("*/power/runtime_status")):
        pytest.skip("this machine has no device that may be suspended")
    host = Host()
    before = dict(runtime_pm.read(host))
    host.new_tick()
    after = dict(runtime_pm.read(host))
    assert before.keys() == after.keys()
    assert all(later[at] >= before[name][at] for name, later in after.items() for at in (0, 1))  # type: ignore[operator]
