# SPDX-License-Identifier: Apache-2.0
"""Devices that come and go while sysmond records: their series, their gaps, and what a storm of them costs."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.base.model import Cause
from sysmond.history import Archive
from tests.support.devices import Devices, a_machine
from tests.support.onbus import Recorder, a_bus, a_recorder
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here"),
    pytest.mark.skipif(shutil.which("umockdev-wrapper") is None, reason="no umockdev to plug devices in"),
]

# A look a second while the storm lasts, one at its end, and one by the clock.
LOOKS_MAX = 3
PROBE = '''
"""The temperature of every sensor, and how often its listing was read."""

import os

from sysmond.probe import Host, Probe, Table, counter, gauge, hookimpl

TEMP = gauge("temp", "°C", "Its temperature.", scale=3)
LOOKS = counter("looks", "1", "How often the folder was read.")
SENSOR = Table("sensor", per="chip", metrics=(TEMP, LOOKS))
BASE = "/sys/class/hwmon"
looks = []
listdir = os.listdir


def counted(path):
    looks.append(path)
    return listdir(path)


os.listdir = counted


def read(host):
    for chip in host.names(BASE):
        yield chip, (host.integer(f"{BASE}/{chip}/temp1_input"), len(looks))


@hookimpl
def sysmond_probes():
    return [Probe(SENSOR, read, subsystems=("hwmon",))]
'''


@pytest.fixture
def machine() -> Iterator[Devices]:
    with a_machine() as devices:
        yield devices


@pytest.fixture
def recorder(machine: Devices) -> Iterator[Recorder]:
    machine.add("hwmon", "hwmon0", {"name": "first", "temp1_input": "42000"})
    # Not in /dev/shm: whatever lies below /dev is a device to umockdev.
    with a_bus() as bus, a_recorder(bus, starts=False, place="/tmp") as recorder:
        folder = Path(recorder.folder, "config", "sysmond", "probes")
        folder.mkdir(parents=True, mode=0o755)
        (folder / "sensor.py").write_text(PROBE)
        recorder.configuration.write_text("probes: {sensor: {sensitivity: public, interval: 1s}}\n")
        recorder.environ = machine.environ
        recorder.start()
        wait_until(lambda: "sensor/temp@hwmon0" in series(recorder), recorder.said)
        yield recorder


def series(recorder: Recorder) -> set[str]:
    return {entry.path for entry in Archive(recorder.folders).catalogue()}


def looks(recorder: Recorder) -> int:
    values = Archive(recorder.folders).select("sensor/looks@hwmon0", raw=True).columns[0].values
    return int(values[-1])


def events(recorder: Recorder) -> set[tuple[str, str]]:
    result = Archive(recorder.folders).select("load")
    return {(event.kind, event.subject) for event in result.events}


def test_a_device_that_comes_has_its_series_and_one_that_goes_a_gap(machine: Devices, recorder: Recorder) -> None:
    path = machine.add("hwmon", "hwmon1", {"name": "second", "temp1_input": "55000"})
    wait_until(lambda: "sensor/temp@hwmon1" in series(recorder), recorder.said)
    machine.remove(path)
    wait_until(lambda: ("device removed", "hwmon/hwmon1") in events(recorder), recorder.said)
    assert ("device added", "hwmon/hwmon1") in events(recorder)

    def is_missed() -> bool:
        result = Archive(recorder.folders).select("sensor/temp@hwmon1", start="-1min")
        return any(gap.cause is Cause.NO_SOURCE for gap in result.gaps)

    wait_until(is_missed, recorder.said)


@pytest.mark.long
def test_a_storm_costs_one_look(machine: Devices, recorder: Recorder) -> None:
    path = machine.add("hwmon", "hwmon2", {"name": "third", "temp1_input": "1000"})
    wait_until(lambda: "sensor/temp@hwmon2" in series(recorder), recorder.said)
    before, begin_s = looks(recorder), time.monotonic()
    machine.change(path, times=1000)
    machine.add("hwmon", "hwmon3", {"name": "fourth", "temp1_input": "1000"})
    wait_until(lambda: "sensor/temp@hwmon3" in series(recorder), recorder.said)
    assert looks(recorder) - before <= LOOKS_MAX + time.monotonic() - begin_s
