# SPDX-License-Identifier: Apache-2.0
"""The table ``gpu``: each driver's attributes, what sleeps, what falls off the bus, garbage, and this machine."""

import os
import shutil
from collections.abc import Callable, Sequence
from errno import ENODEV
from pathlib import Path

import pytest
from sysmond_probes import gpu

from sysmond.base import clock, formula
from sysmond.base.clock import SECOND_NS
from sysmond.plan.plugins import check_probe
from sysmond.probe import ABSENT, Absence, Cause, Host
from sysmond.sources import drm, nvml
from tests.support import sysfs
from tests.support.nvidia import StandIn
from tests.support.opened import opened

MHZ = 1_000_000
METRICS = [metric.name for metric in gpu.GPU.metrics]
ASLEEP = Absence(Cause.ASLEEP)
CARD = "sys/class/drm/card1/device"  # Of the laptop, the one that is awake.
AWAKE, SUSPENDED = "amdgpu-pci-c400", "amdgpu-pci-0300"


class Told(dict[str, object]):
    """What each card tells, by metric, without what is absent; or its absence."""

    def __init__(self, rows: dict[str, Sequence[int | str] | Absence]) -> None:
        super().__init__((name, row if isinstance(row, Absence) else self._known(row)) for name, row in rows.items())

    @staticmethod
    def _known(row: Sequence[int | str]) -> dict[str, int | str]:
        return {metric: value for metric, value in zip(METRICS, row, strict=True) if value != ABSENT}


def read(root: Path) -> Told:
    (probe,) = gpu.sysmond_probes()
    return Told(dict(probe.read(Host(str(root)))))


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "laptop", "gpu")


def test_the_table_is_sound() -> None:
    (probe,) = gpu.sysmond_probes()
    check_probe(probe)
    assert all(metric.origin for metric in probe.table.metrics)
    assert {*drm.ATTRIBUTES} <= {*METRICS}


def test_one_card_of_amdgpu_works_and_the_other_sleeps(laptop: Path) -> None:
    awake = {
        "driver": "amdgpu",
        "address": "0000:c4:00.0",
        "busy": 37,
        "frequency": 1100 * MHZ,
        "frequency_max": 2700 * MHZ,
        "memory_busy": 4,
        "memory_frequency": 2800 * MHZ,
        "memory_used": 498_073_600,
        "memory_total": 536_870_912,
        "shared_used": 912_261_120,
        "shared_total": 14_553_456_640,
    }
    assert read(laptop) == {AWAKE: awake, SUSPENDED: ASLEEP}


def test_i915_xe_and_a_driver_that_tells_nothing_here(tmp_path: Path) -> None:
    assert read(sysfs.build(tmp_path, "desktop")) == {
        "i915": {
            "driver": "i915",
            "address": "0000:00:02.0",
            "idle_time": 7_719_001,
            "frequency": 350 * MHZ,
            "frequency_asked": 400 * MHZ,
            "frequency_max": 1400 * MHZ,
        },
        "xe": {
            "driver": "xe",
            "address": "0000:03:00.0",
            "idle_time": 61_532,
            "frequency": 0,
            "frequency_asked": 600 * MHZ,
            "frequency_max": 2400 * MHZ,
        },
        "nvidia-pci-0100": {"driver": "nvidia", "address": "0000:01:00.0"},
        "nvidia-pci-0200": {"driver": "nvidia", "address": "0000:02:00.0"},
    }


def test_how_busy_a_card_is_follows_from_how_long_it_was_idle() -> None:
    assert gpu.GPU.answers
    (column,) = (column for column in gpu.GPU.answers.derived if column.name == "busy_percent")
    read = formula.parse(column.formula)
    assert read.operands == (formula.Operand("", "idle_time"),)
    # A counter is its rate in a formula: of each second it was idle 0.75 s.
    assert read.evaluate({formula.Operand("", "idle_time"): 0.75}, formula.FLOATS) == 25


def test_i915_before_it_had_folders_of_engines(tmp_path: Path) -> None:
    root = sysfs.build(tmp_path, "desktop")
    before = read(root)
    shutil.rmtree(root / "sys/class/drm/card0/gt")
    assert read(root) == before


def test_graphics_of_boards(tmp_path: Path) -> None:
    assert read(sysfs.build(tmp_path, "arm", "gpu")) == {
        "panfrost": {
            "driver": "panfrost",
            "address": "ff9a0000.gpu",
            "busy": 12,
            "frequency": 200 * MHZ,
            "frequency_asked": 300 * MHZ,
            "frequency_max": 800 * MHZ,
        },
        "rockchip-drm": {"driver": "rockchip-drm", "address": "display-subsystem"},
        "v3d": {"driver": "v3d", "address": "fec00000.v3d", "busy_time": 27_284_814_161},
    }


def test_a_machine_without_cards_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path) == {}


def test_a_card_that_sleeps_is_not_touched(laptop: Path) -> None:
    """Of a suspended card nothing is opened but what the kernel knows without it."""
    (probe,) = gpu.sysmond_probes()
    host = Host(str(laptop))
    with opened() as files:
        for _ in range(3):
            host.new_tick()
            assert dict(probe.read(host))[SUSPENDED] == ASLEEP
    folder = str(laptop / "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0")
    touched = {os.path.basename(file) for file in files if file.startswith(folder)}
    assert {"runtime_status"} <= touched <= {"runtime_status", "power_state", "control", "autosuspend_delay_ms"}


def test_a_card_that_wakes_is_read_and_one_that_falls_asleep_is_not(laptop: Path) -> None:
    (probe,) = gpu.sysmond_probes()
    host = Host(str(laptop))
    list(probe.read(host))
    for card, word in (("card0", "active"), ("card1", "suspended")):
        (laptop / f"sys/class/drm/{card}/device/power/runtime_status").write_text(f"{word}\n")
    (laptop / "sys/class/drm/card0/device/power_state").write_text("D0\n")
    host.new_tick()
    told = Told(dict(probe.read(host)))
    assert told[AWAKE] == ASLEEP
    woken = told[SUSPENDED]
    assert isinstance(woken, dict)
    assert woken["frequency"] == 19 * MHZ


@pytest.mark.parametrize(("usage", "seen"), [("0", [0] * 2 + [10] * 2 + [20]), ("2", [0, 5, 10, 15, 20])])
def test_a_card_has_the_time_to_fall_asleep_unless_it_is_in_use(
    usage: str, seen: list[int], laptop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a delay of 5 s it is asked every 10 s; while somebody has it awake, each time."""
    (probe,) = gpu.sysmond_probes()
    host = Host(str(laptop))
    (laptop / CARD / "power/runtime_usage").write_text(f"{usage}\n")
    told = []
    for now_s in range(0, 25, 5):
        monkeypatch.setattr(clock, "boottime_ns", lambda now_s=now_s: (600 + now_s) * SECOND_NS + 5000)
        (laptop / CARD / "gpu_busy_percent").write_text(f"{now_s}\n")
        host.new_tick()
        told.append(Told(dict(probe.read(host)))[AWAKE])
    assert [row["busy"] for row in told if isinstance(row, dict)] == seen


@pytest.mark.parametrize(
    "content",
    [b"", b"N/A\n", b"\xff\n", b"-1\n", b"65535\n", b"4294967295\n", b"18446744073709551615\n", b"9" * 5000],
)
def test_garbage_is_absent_and_costs_nothing_else(content: bytes, laptop: Path) -> None:
    attributes = [path for path, _ in (places[0] for places in drm.ATTRIBUTES.values()) if path.startswith("device/")]
    there = [laptop / "sys/class/drm/card1" / path for path in [*attributes, "device/pp_dpm_sclk"]]
    there = [path for path in there if path.is_file() and path.name != "mem_info_gtt_total"]
    assert len(there) == 7
    for path in there:
        path.write_bytes(content)
    left = {"driver": "amdgpu", "address": "0000:c4:00.0", "shared_total": 14_553_456_640}
    assert read(laptop)[AWAKE] == left


def test_a_card_that_fell_off_the_bus_is_a_gap(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are there until the driver lets go of it; reading them fails, or gives all ones."""
    for path in (laptop / CARD).iterdir():
        if path.name.startswith(("gpu_", "mem_", "pp_")):
            path.write_text("4294967295\n" if path.name.startswith("mem_info") else "65535\n")
    for path in (laptop / CARD).glob("mem_info*"):
        path.write_text("18446744073709551615\n")
    assert read(laptop)[AWAKE] == Absence(Cause.PROBE_FAILED, f"{AWAKE} is not a number")
    before = Host.read

    def gone(host: Host, path: str) -> bytes:
        if path.startswith("/sys/class/drm/card1/device/") and "/power/" not in path:
            raise OSError(ENODEV, os.strerror(ENODEV))
        return before(host, path)

    monkeypatch.setattr(Host, "read", gone)
    assert read(laptop)[AWAKE] == Absence(Cause.NO_SOURCE, f"{AWAKE}: No such device")


def test_a_card_that_is_pulled_out_has_no_row_any_more(laptop: Path) -> None:
    (probe,) = gpu.sysmond_probes()
    host = Host(str(laptop))
    assert dict(probe.read(host)).keys() == {AWAKE, SUSPENDED}
    shutil.rmtree(laptop / "sys/devices/pci0000:00/0000:00:01.1")
    (laptop / "sys/class/drm/card0").unlink()
    host.look_again()
    host.new_tick()
    assert dict(probe.read(host)).keys() == {"amdgpu"}


def test_names_with_control_characters_and_cards_without_end(tmp_path: Path) -> None:
    for number in range(drm.CARDS_MAX + 10):
        sysfs.devices(tmp_path, f"P: /devices/x/d{number}\nE: SUBSYSTEM=pci\nL: driver=../a\x1b[31m\x7fb")
        sysfs.devices(tmp_path, f"P: /devices/x/d{number}/drm/card{number}\nE: SUBSYSTEM=drm\nL: device=../..")
    sysfs.devices(tmp_path, "P: /devices/virtual/drm/card900\nE: SUBSYSTEM=drm")
    (tmp_path / "sys/class/drm/version").write_text("drm 1.1.0 20060810\n")
    told = read(tmp_path)
    assert len(told) == drm.CARDS_MAX
    assert all(name.isprintable() for name in told)
    assert all(isinstance(row, dict) and str(row["driver"]) == "a [31m b" for row in told.values())


def test_a_card_without_a_device_is_called_by_its_folder(tmp_path: Path) -> None:
    sysfs.devices(tmp_path, "P: /devices/virtual/drm/card0\nE: SUBSYSTEM=drm")
    assert read(tmp_path) == {"card0": {"driver": "card0", "address": "card0"}}


def test_this_machine() -> None:
    """What the kernel says of its cards, where it has any, is what their files say."""
    (probe,) = gpu.sysmond_probes()
    there = [path for path in Path("/sys/class/drm").glob("card*") if path.name[4:].isdecimal()]
    assert len(dict(probe.read(Host()))) >= len({os.path.realpath(path / "device") for path in there})


NVIDIA = ("nvidia-pci-0100", "nvidia-pci-0200")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr(nvml, "SHARED_S", 0.0)
    monkeypatch.setattr(nvml, "SHARE_MAX", 1e9)
    return StandIn(tmp_path)


@pytest.fixture
def desktop(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path / "desktop", "desktop")


def nvidia(root: Path, library: StandIn) -> Callable[[], list[object]]:
    """Read again and again, and give the rows of the two cards of NVIDIA."""
    cards, host = drm.Cards(tuple(METRICS), nvml.Nvml(library.path)), Host(str(root))

    def rows() -> list[object]:
        host.new_tick()
        told = Told(dict(cards.read(host)))
        return [told[name] for name in NVIDIA]

    return rows


def test_cards_of_nvidia_are_told_of_by_nvml(desktop: Path, library: StandIn) -> None:
    first, second = nvidia(desktop, library)()
    assert first == {
        "driver": "nvidia",
        "address": "0000:01:00.0",
        "busy": 73,
        "frequency": 1830 * MHZ,
        "frequency_max": 2100 * MHZ,
        "memory_busy": 12,
        "memory_frequency": 7000 * MHZ,
        "memory_used": 2 << 30,
        "memory_total": 8 << 30,
        "temperature": 61,
        "power": 115_250,
        "throttle": 0x24,
    }
    assert isinstance(second, dict)
    assert second["address"] == "0000:02:00.0"


def test_nvml_is_not_asked_while_a_card_of_nvidia_sleeps(desktop: Path, library: StandIn) -> None:
    """Looking for one it may wake another."""
    status = desktop / "sys/bus/pci/devices/0000:02:00.0/power/runtime_status"
    status.write_text("suspended\n")
    rows = nvidia(desktop, library)
    for _ in range(3):
        first, second = rows()
        assert second == ASLEEP
        assert isinstance(first, Absence)
        assert first.cause is Cause.ASLEEP
    assert library.calls() == []
    status.write_text("active\n")
    assert [type(row) for row in rows()] == [dict, dict]
    assert library.calls() == ["init", "shutdown"]


def test_a_card_of_nvidia_that_may_sleep_has_a_minute_to_do_so(
    desktop: Path, library: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desktop / "sys/bus/pci/devices/0000:02:00.0/power/control").write_text("auto\n")
    rows = nvidia(desktop, library)
    for now_s in range(600, 720, 5):
        monkeypatch.setattr(clock, "boottime_ns", lambda now_s=now_s: now_s * SECOND_NS + 5000)
        assert [type(row) for row in rows()] == [dict, dict]
    assert library.calls() == ["init", "shutdown"] * 2


def test_a_card_of_nvidia_that_is_lost_costs_no_other(desktop: Path, library: StandIn) -> None:
    library.behaves("lost")
    rows = nvidia(desktop, library)
    first, second = rows()
    lost = "the card is lost; it fell off the bus"
    assert isinstance(first, Absence)
    assert (first.cause, first.detail.endswith(lost)) == (Cause.NO_SOURCE, True)
    assert isinstance(second, dict)
    library.behaves("refused")
    assert rows() == [Absence(Cause.NO_SOURCE, "nvmlInit_v2: the driver is not loaded")] * 2
