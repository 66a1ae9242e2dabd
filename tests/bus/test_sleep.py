# SPDX-License-Identifier: Apache-2.0
"""A machine that is about to sleep waits until what is in RAM is on the disk."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sysmond.bus.sleep import LOCK
from sysmond.history import Archive
from tests.support import logind
from tests.support.onbus import Bus, Recorder, a_bus, a_recorder, answer, python
from tests.support.waiting import HANG_S, wait_until

pytestmark = [
    pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here"),
    pytest.mark.skipif(shutil.which(LOCK[0]) is None, reason="no systemd-inhibit here"),
]

FORGED = """
from jeepney import new_signal, HeaderFields
logind = DBusAddress("/org/freedesktop/login1", "org.freedesktop.login1", "org.freedesktop.login1.Manager")
connection = connect()
signal = new_signal(logind, "PrepareForSleep", "b", (True,))
signal.header.fields[HeaderFields.destination] = MANAGER.bus_name
connection.send(signal)
print(json.dumps(call(connection, "GetStatus", "a{sv}", {})[0]["state"][1]))
"""


class Logind:
    """The logind of a bus, told what to do on its standard input."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def hears(self, word: str) -> None:
        """Wait for its next word."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def suspend(self) -> None:
        """Have it tell of a suspend."""
        assert self._process.stdin is not None
        self._process.stdin.write("suspend\n")
        self._process.stdin.flush()


@contextmanager
def a_logind(bus: Bus) -> Iterator[Logind]:
    command = [sys.executable, str(Path(logind.__file__)), bus.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Logind(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(HANG_S)


@pytest.fixture
def bus() -> Iterator[Bus]:
    with a_bus() as bus:
        yield bus


def mark(bus: Bus) -> None:
    """See to it that there is something to flush."""
    answer(bus, "Mark", "sa{sv}", "here", "0")


def flushes(recorder: Recorder) -> list[str]:
    return [event.subject for event in Archive(recorder.folders).events() if event.kind == "flush"]


def test_a_suspend_waits_for_the_flush_and_the_next_one_does_too(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        logind.hears("locked")
        for number in (1, 2):
            mark(bus)
            logind.suspend()
            logind.hears("asleep")
            assert flushes(recorder).count("suspend") == number
            logind.hears("awake")
            logind.hears("locked")


def test_nobody_else_can_tell_of_a_suspend(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        logind.hears("locked")
        assert python(bus, FORGED) == "running"
        mark(bus)
        logind.suspend()
        logind.hears("asleep")
        assert flushes(recorder).count("suspend") == 1


def test_the_lock_ends_with_the_bus_part(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        logind.hears("locked")
        before = recorder.pid()
        subprocess.run(["kill", "-9", str(before)], check=True)
        wait_until(lambda: recorder.pid() != before, recorder.said)
        logind.hears("locked")
        logind.suspend()
        logind.hears("asleep")
