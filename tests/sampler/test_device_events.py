# SPDX-License-Identifier: Apache-2.0
"""Hot-plug without udev and without a bus: the background lane hears the events of the kernel itself, and of links."""

import ctypes
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.probe import LINKS
from sysmond.sampler import device_events
from sysmond.sampler.device_events import DeviceEvents, Losses, device_of
from sysmond.sampler.device_groups import Announced
from sysmond.sampler.sources import ALL
from tests.support.devices import Devices, a_machine
from tests.support.waiting import wait_until
from tests.support.whole import Recorder, a_recorder, within

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


def test_an_event_names_its_device() -> None:
    message = b"add@/devices/platform/x\0ACTION=%s\0DEVPATH=/devices/platform/a!x\0SUBSYSTEM=hwmon\0SEQNUM=7\0"
    path = "/devices/platform/a!x"
    assert device_of(message % b"add") == Announced("hwmon", "device added", "a/x", 7, path)
    assert device_of(message % b"remove") == Announced("hwmon", "device removed", "a/x", 7, path)
    assert device_of(message % b"change") == Announced("hwmon", "", "a/x", 7, path)
    assert device_of(b"libudev\0\xfe\xed\xca\xfe") == Announced("")
    assert device_of(b"") == Announced("")
    assert device_of(b"add@/x\0SEQNUM=-1\0").number == device_of(b"add@/x\0SEQNUM=\xb2\0").number == 0


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


def test_what_comes_and_goes_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Announced] = []
    monkeypatch.setattr(device_events, "GATHER_S", 0.0)
    monkeypatch.setattr(device_events, "_heard", lambda _, group: iter(waiting if group.of == "devices" else ()))
    devices = DeviceEvents(lambda _: None)

    def heard(*announced: Announced) -> set[str]:
        waiting[:] = announced
        devices.hear()
        return devices.changed()

    def told(*subsystems: str) -> list[tuple[str, str, str]]:
        devices.take_in({*subsystems})
        assert devices.over() == [], "more may come"
        assert devices.wait_s(60.0) <= 60.0
        return [event[1:] for event in devices.rest()]

    one, changed = Announced("block", "device added", "sda", path="/devices/sda"), Announced("hwmon", "", "hwmon0")
    assert heard(one, changed, Announced("misc", "device removed", "x")) == {"block", "hwmon", "misc"}
    assert told("block", "hwmon") == [("device added", "block/sda", "")]
    hub = [
        Announced("usb", "device added", path.rpartition("/")[2], path=f"/devices/pci0000:00/{path}")
        for path in ("usb1/1-4/1-4.1", "usb1/1-4", "usb1/1-4/1-4:1.0", "usb1/1-40", "usb1/1-4/1-4.1/1-4.1:1.0")
    ]
    gone = Announced("block", "device removed", "sdb", path="/devices/sdb")
    assert heard(*hub, gone) == {"usb", "block"}
    assert told("usb", "block") == [
        ("device added", "usb/1-4", "with usb/1-4.1, usb/1-4:1.0, usb/1-4.1:1.0"),
        ("device added", "usb/1-40", ""),
        ("device removed", "block/sdb", ""),
    ]
    parts = [hub[1]._replace(name=f"{number}", path=f"{hub[1].path}/{number}") for number in range(10)]
    assert heard(hub[1], *parts) == {"usb"}
    ((_, subject, text),) = told("usb")
    assert (subject, text[-20:]) == ("usb/1-4", "usb/6, usb/7, 2 more")
    devices.close()


def test_what_was_lost_is_counted_by_the_numbers_of_what_was_heard() -> None:
    def numbered(*numbers: int) -> list[Announced]:
        return [Announced("block", "device added", "sda", number) for number in numbers]

    overrun, losses = Announced(ALL), Losses()
    losses.look(numbered(5, 6, 9))  # Two that were announced elsewhere.
    assert losses.take() == 0
    losses.look([overrun, *numbered(10, 11)])  # What was waiting then was heard.
    assert losses.take() == 0
    losses.look([Announced(LINKS)])
    losses.look([])
    losses.look([overrun, *numbered(20, 21, 30)])
    assert losses.take() == 8 + 8
    losses.look(numbered(41, 42))
    assert losses.take() == 10
    losses.look(numbered(60))
    assert losses.take() == 0


@pytest.mark.skipif(not os.access(NULL, os.W_OK), reason="only root may have the kernel announce a device")
def test_a_storm_of_the_kernel_is_counted_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_events, "ROOM_BYTES", 16 * 1024)
    monkeypatch.setattr(device_events, "GATHER_S", 0.0)
    devices, texts = DeviceEvents(lambda _: None), []
    try:
        for pieces in (1, 500, 1):
            for _ in range(pieces):
                NULL.write_text("add")
            devices.hear()
            assert "mem" in devices.changed()
            devices.take_in({"mem"})
            texts += [change.text for change in devices.over()]
    finally:
        devices.close()
    counted = [int(number) for text in texts for number in re.findall(r"\d+", text)]
    assert sum(counted) >= 501, texts  # The machine may announce others.
    assert any("were lost" in text for text in texts), texts


@pytest.fixture
def machine() -> Iterator[Devices]:
    with a_machine() as devices:
        yield devices


@pytest.fixture
def recorder(machine: Devices, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    machine.add("hwmon", "hwmon0", {"name": "first", "temp1_input": "42000"})
    # Not in /dev/shm: whatever lies below /dev is a device to umockdev.
    # What was killed may write a last time while its folder is removed.
    with tempfile.TemporaryDirectory(prefix="sysmond-", dir="/tmp", ignore_cleanup_errors=True) as folder:
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


@pytest.mark.skipif(shutil.which("umockdev-wrapper") is None, reason="no umockdev to plug devices in")
def test_what_is_plugged_in_and_pulled_out_is_one_event_with_its_parts(machine: Devices, recorder: Recorder) -> None:
    wait_until(lambda: "sensor/temp@hwmon0" in series(recorder), recorder.said)

    def happened(kind: str) -> list[tuple[str, str]]:
        return [(event.subject, event.text) for event in Archive(recorder.folders).events(kind=kind)]

    whole = machine.add("hwmon", "hwmon1", {"name": "whole"})
    part = machine.add("hwmon", "hwmon2", {"name": "part"}, whole)
    wait_until(lambda: happened("device added"), recorder.said)
    machine.remove(part)
    machine.remove(whole)
    wait_until(lambda: happened("device removed"), recorder.said)
    assert happened("device added") == happened("device removed") == [("hwmon/hwmon1", "with hwmon/hwmon2")]


# --- Links


CLONE_NEWNET = 0x40000000
CABLE = ("ip link add one type veth peer two", "ip link set one up", "ip link set two up")
WITHIN = within("mount -t sysfs sysfs /sys", *CABLE, network=True)
needs_network = pytest.mark.skipif(
    shutil.which("ip") is None or subprocess.run([*WITHIN, "true"], capture_output=True, check=False).returncode != 0,
    reason="no ip, or none may make a network of his own with a cable in it here",
)


@needs_network
def test_a_flood_of_changes_of_links_is_one_look() -> None:
    with ThreadPoolExecutor(1) as apart:  # A network belongs to a thread, and to the programs that it starts.
        assert apart.submit(lambda: ctypes.CDLL(None).unshare(CLONE_NEWNET)).result() == 0
        apart.submit(flood).result()


def flood() -> None:
    """Change a link a hundred times between two looks."""
    said: list[str] = []
    devices = DeviceEvents(said.append)
    try:
        subprocess.run(CABLE[0].split(), check=True)
        assert select.select(devices.descriptors(), [], [], 60.0)[0]
        devices.hear()
        changes = "".join(f"link set one mtu {1200 + number}\n" for number in range(100))
        subprocess.run(["ip", "-batch", "-"], input=changes, text=True, check=True)
        assert devices.descriptors() == [], "what follows wakes nobody"
        seen: set[str] = set()

        def has_looked() -> bool:
            seen.update(devices.changed())
            return bool(devices.descriptors())

        wait_until(has_looked)
        assert LINKS in seen
        assert not select.select(devices.descriptors(), [], [], 0.0)[0], "all of them are over"
    finally:
        devices.close()
    assert said == []


def carriers(recorder: Recorder) -> list[str]:
    """Every reading of the carrier of one end, in their order."""
    found = recorder.extract("link/carrier@one", "--from=-10min", "--raw", "--format=csv")
    return [value for row in found.rows for name, value in row.items() if name.startswith("link/carrier")]


@needs_network
def test_what_becomes_of_a_link_is_recorded_long_before_its_interval() -> None:
    with a_recorder() as recorder:
        recorder.config.write_text("probes: {link: {interval: 1h}}\n")
        recorder.prefix = WITHIN
        inside = ["nsenter", "--net", f"--target={recorder.start().pid}", "ip", "link", "set", "two"]
        wait_until(lambda: carriers(recorder)[-1:] == ["1"], recorder.said)
        subprocess.run([*inside, "down"], check=True)
        wait_until(lambda: carriers(recorder)[-1:] == ["0"], recorder.said)
        subprocess.run([*inside, "up"], check=True)
        wait_until(lambda: carriers(recorder)[-1:] == ["1"], recorder.said)
