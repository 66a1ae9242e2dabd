# SPDX-License-Identifier: Apache-2.0
"""The table ``idle``: what logind tells on a real bus, and without it when the last event came."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import CLOCK_MONOTONIC, clock_gettime_ns

import pytest
from sysmond_probes import idle

from sysmond.base.model import ABSENT, Lane, Sensitivity, check_table
from sysmond.plan.plan import as_declared, builtin
from sysmond.probe import Host
from sysmond.sources import evdev, logind, sd_bus
from tests.support import logind as stand_in
from tests.support import onbus
from tests.support.inputs import DROPPED, REPORT, Inputs, pressed
from tests.support.onbus import a_bus

MINUTE_US = 60_000_000
pytestmark = onbus.pytestmark


def now_us() -> int:
    return clock_gettime_ns(CLOCK_MONOTONIC) // 1000


@contextmanager
def a_logind(monkeypatch: pytest.MonkeyPatch, *properties: str) -> Iterator["subprocess.Popen[str]"]:
    """A bus with a logind on it that tells these properties."""
    with a_bus() as bus:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        words = [sys.executable, stand_in.__file__, bus.address, *properties]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "there\n"
            yield process
            process.stdin.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / logind.FOLDER.lstrip("/")).mkdir(parents=True)
    (tmp_path / logind.FOLDER.lstrip("/") / "seat0").touch()
    return tmp_path


def read(root: Path, *, evdev: bool = False) -> tuple[int, int]:
    [(instance, (is_idle, time_s))] = idle.Idleness().read(Host(str(root)), evdev=evdev)
    assert instance == ""
    return int(is_idle), int(time_s)


def test_the_table_is_restricted_unless_the_configuration_says_otherwise() -> None:
    [probe] = idle.sysmond_probes()
    check_table(probe.table)
    assert (probe.lane, probe.sensitivity) == (Lane.BACKGROUND, Sensitivity.PUBLIC)
    assert as_declared("sysmond_probes.idle", probe).sensitivity is Sensitivity.RESTRICTED
    assert "idle" not in {planned.table for planned in builtin().probes}


def test_logind_says_since_when_the_machine_is_idle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    since_us = now_us() - 10 * MINUTE_US
    with a_logind(monkeypatch, "IdleHint b 1", f"IdleSinceHintMonotonic t {since_us}"):
        is_idle, time_s = read(root)
        assert (is_idle, time_s - 600) in {(1, late) for late in range((now_us() - since_us) // 1_000_000 - 600 + 1)}


@pytest.mark.parametrize(
    ("is_idle", "since_us", "told"),
    [(0, 5 * MINUTE_US, (0, 0)), (1, 0, (1, ABSENT)), (1, 1 << 62, (1, ABSENT))],
)
def test_a_time_that_cannot_be_is_absent_and_who_is_busy_has_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_idle: int, since_us: int, told: tuple[int, int]
) -> None:
    with a_logind(monkeypatch, f"IdleHint b {is_idle}", f"IdleSinceHintMonotonic t {since_us}"):
        assert read(root) == told


def test_no_connection_stays_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_logind(monkeypatch, "IdleHint b 0", "IdleSinceHintMonotonic t 0"):
        before = os.listdir("/proc/self/fd")
        read(root)
        assert os.listdir("/proc/self/fd") == before


def test_a_bus_without_logind_and_no_bus_at_all_are_failures(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bus() as bus:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        with pytest.raises(OSError, match="D-Bus: "):
            read(root)
    with pytest.raises(FileNotFoundError, match="D-Bus is not running"):
        read(root)


def test_a_logind_that_does_not_answer_is_not_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logind, "TIMEOUT_US", 100_000)
    with a_logind(monkeypatch, "IdleHint b 0", "IdleSinceHintMonotonic t 0") as process:
        process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(OSError, match="D-Bus: "):
                read(root)
        finally:
            process.send_signal(signal.SIGCONT)


def test_a_machine_without_the_library_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sd_bus, "SONAMES", ("libnowhere.so.0",))
    sd_bus.library.cache_clear()
    try:
        with pytest.raises(FileNotFoundError, match=r"no libnowhere\.so\.0"):
            read(root)
    finally:
        sd_bus.library.cache_clear()


def test_without_logind_it_is_absent_unless_devices_may_be_staying_open(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no logind, and the option evdev is off"):
        read(tmp_path)
    assert read(tmp_path, evdev=True) == (ABSENT, ABSENT)


def test_the_last_event_of_any_device_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evdev, "mask", lambda *_: None)
    monkeypatch.setattr(evdev, "by_monotonic", lambda _: None)
    inputs = Inputs(tmp_path)
    inputs.plug("event0", "keyboard")
    inputs.plug("event1", "mouse")
    inputs.plug("event2", "lid")
    host, last = Host(str(tmp_path)), evdev.LastInput()
    assert last.read(host) is None
    inputs.send("event0", *pressed(30, 31), at_us=7 * MINUTE_US)
    inputs.send("event1", *pressed(0x110), at_us=5 * MINUTE_US)
    assert last.read(host) == 7 * MINUTE_US
    assert bytes(last._buffer).strip(b"\0") == b""
    assert last.read(host) == 7 * MINUTE_US
    inputs.send("event1", DROPPED, REPORT, at_us=9 * MINUTE_US)  # More than the kernel keeps is also an input.
    assert last.read(host) == 9 * MINUTE_US
    inputs.unplug("event1")
    host.look_again()
    assert last.read(host) == 9 * MINUTE_US
    assert last._descriptors.keys() == {"event0"}
    host.close()
    assert not last._descriptors
    inputs.close()
