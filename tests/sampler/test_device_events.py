# SPDX-License-Identifier: Apache-2.0
"""Hot-plug without udev and without a bus: the background lane hears the kernel's events of devices itself."""

import os
import select
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.sampler.device_events import DeviceEvents, subsystem_of
from tests.support.devices import Devices, a_machine
from tests.support.waiting import wait_until
from tests.support.whole import Recorder

NULL = Path("/sys/class/mem/null/uevent")
# Its own interval is an hour: only an event brings a reading within the time that a test waits.
PROBE = '''
"""The temperature of every sensor, once an hour."""

from sysmond.probe import Lane, Probe, Table, gauge, hookimpl

SENSOR = Table("sensor", per="chip", metrics=(gauge("temp", "°C", "Its temperature.", scale=3),))
BASE = "/sys/class/hwmon"


def read(host):
    for chip in host.names(BASE):
        yield chip, (host.integer(f"{BASE}/{chip}/temp1_input"),)


@hookimpl
def sysmond_probes():
    return [Probe(SENSOR, read, 3600.0, Lane.BACKGROUND, subsystems=("hwmon",))]
'''


def test_an_event_names_its_subsystem() -> None:
    message = b"add@/devices/platform/x\0ACTION=add\0DEVPATH=/devices/platform/x\0SUBSYSTEM=hwmon\0SEQNUM=7\0"
    assert subsystem_of(message) == "hwmon"
    assert subsystem_of(b"libudev\0\xfe\xed\xca\xfe") == ""
    assert subsystem_of(b"") == ""


@pytest.mark.skipif(not os.access(NULL, os.W_OK), reason="only root may have the kernel announce a device")
def test_what_the_kernel_announces_is_heard_once_the_rest_has_come() -> None:
    said: list[str] = []
    devices = DeviceEvents(said.append)
    try:
        assert devices.changed() == set()
        NULL.write_text("change")
        NULL.write_text("change")
        assert select.select(devices.descriptors(), [], [], 60.0)[0]
        devices.hear()
        assert devices.descriptors() == [], "what follows wakes nobody"
        seen: set[str] = set()

        def has_looked() -> bool:
            seen.update(devices.changed())
            return bool(devices.descriptors())

        wait_until(has_looked)
        assert "mem" in seen
        assert devices.changed() == set()
    finally:
        devices.close()
    assert said == []


@pytest.fixture
def machine() -> Iterator[Devices]:
    with a_machine() as devices:
        yield devices


@pytest.fixture
def recorder(machine: Devices, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    machine.add("hwmon", "hwmon0", {"name": "first", "temp1_input": "42000"})
    # Not in /dev/shm: whatever lies below /dev is a device to umockdev.
    with tempfile.TemporaryDirectory(prefix="sysmond-", dir="/tmp") as folder:
        recorder = Recorder(Path(folder))
        plugins = recorder.base / "config/sysmond/probes"
        plugins.mkdir(parents=True, mode=0o755)
        (plugins / "sensor.py").write_text(PROBE)
        recorder.config.write_text("probes: {sensor: {sensitivity: public}}\n")
        with monkeypatch.context() as environ:
            for name, value in {**machine.environ, "XDG_CONFIG_HOME": f"{recorder.base}/config"}.items():
                environ.setenv(name, value)
            recorder.start("--user")
        yield recorder
        recorder.kill()


def series(recorder: Recorder) -> set[str]:
    try:
        return {entry.path for entry in Archive(recorder.folders).catalogue()}
    except Error:  # Nothing is recorded yet.
        return set()


@pytest.mark.skipif(shutil.which("umockdev-wrapper") is None, reason="no umockdev to plug devices in")
def test_what_is_plugged_in_has_its_series_long_before_its_interval(machine: Devices, recorder: Recorder) -> None:
    wait_until(lambda: "sensor/temp@hwmon0" in series(recorder), recorder.said)
    machine.add("hwmon", "hwmon1", {"name": "second", "temp1_input": "55000"})
    wait_until(lambda: "sensor/temp@hwmon1" in series(recorder), recorder.said)
