# SPDX-License-Identifier: Apache-2.0
"""Time slots of devices: longer where firmware answers slowly, and back again."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from sysmond_probes import hwmon, temperature

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.probe import Host
from sysmond.sources import slots
from sysmond.sources.slots import COSTLY_S, NAMED_MAX, Slots, SlowFirmware
from tests.support import sysfs

REPOSITORY = Path(__file__).parent.parent.parent
NOT_PERMITTED = 77


class Clock:
    """The time of day in seconds, and how long an answer takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 600.0
        self.takes_s = 0.0
        monkeypatch.setattr(clock, "boottime_ns", lambda: int(self.now_s * SECOND_NS))
        monkeypatch.setattr(slots, "monotonic", lambda: self.now_s)

    def answer(self, host: Host, slow: SlowFirmware, slot: Slots, device: str = "ec") -> None:
        with slow.timed(host, device, slot):
            self.now_s += self.takes_s


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(str(tmp_path))
    host.folder = str(tmp_path)
    return host


def way(host: Host) -> str:
    """What the doctor is told, where it is."""
    told = Path(host.folder, "fan.way")
    return told.read_text().strip() if told.exists() else ""


def test_three_slow_answers_in_a_row_double_a_slot_and_quick_ones_halve_it(times: Clock, host: Host) -> None:
    slow, slot = SlowFirmware("fan"), Slots("", "/nowhere", 10)

    def lengths(*took_s: float) -> list[int]:
        found = []
        for times.takes_s in took_s:
            times.answer(host, slow, slot)
            found.append(slot.length_s)
        return found

    assert lengths(1, 1, COSTLY_S / 2, 1, 1) == [10] * 5
    assert way(host) == ""
    assert lengths(1, 1, 1, 1) == [20, 20, 20, 40]
    assert way(host) == "read less often, because they answer slowly: ec every 40 s"
    assert set(lengths(*[1] * 30)[-10:]) == {300}
    quick = lengths(*[0] * 200)
    assert sorted(set(quick), reverse=True) == [300, 160, 80, 40, 20, 10]
    assert quick == sorted(quick, reverse=True)
    assert way(host) == ""


def test_a_device_that_may_be_asked_at_any_time_is_asked_seldom_where_it_is_slow(times: Clock, host: Host) -> None:
    slow, slot = SlowFirmware("fan"), Slots("", "/nowhere")
    times.takes_s = 0.5
    for _ in range(3):
        assert slot.is_due()
        times.answer(host, slow, slot)
    assert (slot.length_s, slot.is_due()) == (20, False)
    times.now_s = 620
    assert (slot.is_due(), slot.is_due()) == (True, False)


def test_a_longer_slot_begins_with_the_question_that_made_it_longer(times: Clock) -> None:
    slot = Slots("", "/nowhere", 10)
    due = []
    for times.now_s in range(600, 700, 10):
        if slot.is_due():
            due.append(times.now_s)
            slot.judge(1.0)
    assert due == [600, 610, 620, 640, 660, 680]


def test_what_the_doctor_is_told_is_one_line_of_bounded_length(times: Clock, host: Host) -> None:
    slow = SlowFirmware("fan")
    times.takes_s = 1
    for number in range(NAMED_MAX + 3):
        slot = Slots("", "/nowhere", 10)
        for _ in range(3):
            times.answer(host, slow, slot, f"zone{number:02}")
    assert way(host).endswith("zone07 every 20 s, 3 more")
    slow.forget(host, [f"zone{number:02}" for number in range(1, 20)])
    assert way(host).endswith("slowly: zone00 every 20 s")
    slow.forget(host, ["zone00"])
    assert way(host) == ""


def test_what_was_told_before_a_restart_is_not_told_for_ever(times: Clock, host: Host) -> None:
    slow, slot = SlowFirmware("fan"), Slots("", "/nowhere", 10)
    times.takes_s = 1
    for _ in range(3):
        times.answer(host, slow, slot)
    assert way(host)
    again = Host(host.root)
    again.folder = host.folder
    times.takes_s = 0
    times.answer(again, SlowFirmware("fan"), Slots("", "/nowhere", 10))
    assert not Path(host.folder, "fan.way").exists()


def test_a_chip_that_is_no_firmware_keeps_its_pace(
    times: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take long to measure; nobody else waits for that."""
    sysfs.build(tmp_path, "server", "hwmon")
    (probe,) = temperature.sysmond_probes()
    host, seconds = Host(str(tmp_path)), count()
    monkeypatch.setattr(slots, "monotonic", lambda: float(next(seconds)))
    file = tmp_path / "sys/bus/i2c/devices/0-0019/hwmon/hwmon5/temp1_input"
    for number, times.now_s in enumerate(range(600, 700, 10)):
        file.write_text(f"{number}\n")
        host.new_tick()
        rows = dict(probe.read(host))
        assert rows["jc42-i2c-0-19:temp1"][0] == number


def test_two_chips_of_one_name_are_told_apart(times: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        fan = f"P: /devices/platform/oxp.{number}"
        chip = f"{fan}/hwmon/hwmon{number}\nE: SUBSYSTEM=hwmon\nL: device=../../../oxp.{number}"
        sysfs.devices(tmp_path, f"{fan}\nE: SUBSYSTEM=platform\n\n{chip}\nA: name=oxpec\nA: fan1_input=1998")
    fans = next(probe for probe in hwmon.sysmond_probes() if probe.table.name == "fan")
    host, seconds = Host(str(tmp_path)), count()
    host.folder = str(tmp_path)
    monkeypatch.setattr(slots, "monotonic", lambda: float(next(seconds)))
    for times.now_s in range(600, 640, 10):
        host.new_tick()
        assert len(dict(fans.read(host))) == 2
    said = "read less often, because they answer slowly"
    assert way(host) == f"{said}: oxpec-isa-0000 every 20 s, oxpec-isa-0001 every 20 s"


def test_real_firmware_that_answers_slowly_is_asked_more_seldom_and_the_doctor_is_told(tmp_path: Path) -> None:
    """As a file system whose server takes its time: an embedded controller, a thermal zone, a fan."""
    sysfs.build(tmp_path, "laptop", "hwmon", "thermal")
    finished = subprocess.run(
        [sys.executable, "-m", "tests.probes.slow_fuse", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    if finished.returncode == NOT_PERMITTED:
        pytest.skip("needs root and FUSE")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    seldom = [600, 610, 620, 640, 660, 680, 720, 760, 800, 880]
    assert found["asked_s"] == dict.fromkeys(("thinkpad", "acpitz", "Fan"), seldom)
    says = "read less often, because they answer slowly:"
    assert found["ways"] == {
        "cooling.way": f"{says} Fan every 80 s\n",
        "temperature.way": f"{says} acpitz every 80 s, thinkpad every 80 s\n",
    }
    assert found["values"] == [44_000, 62_000, 1]
