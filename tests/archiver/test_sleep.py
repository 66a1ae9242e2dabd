# SPDX-License-Identifier: Apache-2.0
"""A machine that is about to sleep waits until what is in RAM is on the disk."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sysmond.history import Archive
from sysmond.sources.sd_bus import SONAMES
from tests.support import logind
from tests.support.onbus import Bus, Recorder, a_bus, a_recorder, answer, python
from tests.support.waiting import HANG_S


def has_library() -> bool:
    for soname in SONAMES:
        with suppress(OSError):
            return bool(ctypes.CDLL(soname))
    return False


pytestmark = [
    pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here"),
    pytest.mark.skipif(not has_library(), reason="no libsystemd here"),
]

# Sent to every connection of the bus by itself: no rule of whom to listen to keeps that from it.
FORGED = """
from jeepney import new_signal, HeaderFields
from jeepney.bus_messages import message_bus
logind = DBusAddress("/org/freedesktop/login1", "org.freedesktop.login1", "org.freedesktop.login1.Manager")
connection = connect()
(names,) = connection.send_and_get_reply(message_bus.ListNames()).body
for name in names:
    signal = new_signal(logind, "PrepareForSleep", "b", (True,))
    signal.header.fields[HeaderFields.destination] = name
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


def started(bus: Bus, logind: Logind) -> None:
    """Wait for the lock, and until the first flush is over: else that may take what is to be flushed for a suspend."""
    logind.hears("locked")
    answer(bus, "Flush", "a{sv}", "0")


def mark(bus: Bus) -> None:
    """See to it that there is something to flush."""
    answer(bus, "Mark", "sa{sv}", "here", "0")


def flushes(recorder: Recorder) -> list[str]:
    return [event.subject for event in Archive(recorder.folders).events() if event.kind == "flush"]


def test_a_suspend_waits_for_the_flush_and_the_next_one_does_too(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        started(bus, logind)
        for number in (1, 2):
            mark(bus)
            logind.suspend()
            logind.hears("asleep")
            assert flushes(recorder).count("suspend") == number
            logind.hears("awake")
            logind.hears("locked")


def test_nobody_else_can_tell_of_a_suspend(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        started(bus, logind)
        mark(bus)
        assert python(bus, FORGED) == "running"
        mark(bus)
        logind.suspend()
        logind.hears("asleep")
        assert flushes(recorder).count("suspend") == 1


def test_the_lock_ends_with_the_archiver(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        started(bus, logind)
        os.kill(recorder.pid("archiver"), signal.SIGSTOP)
        logind.suspend()
        os.kill(recorder.pid("archiver"), signal.SIGKILL)
        logind.hears("asleep")
        logind.hears("awake")
        logind.hears("locked")
        mark(bus)
        logind.suspend()
        logind.hears("asleep")
        assert flushes(recorder).count("suspend") == 1


def test_the_bus_part_is_not_needed_for_it(bus: Bus) -> None:
    with a_logind(bus) as logind, a_recorder(bus) as recorder:
        started(bus, logind)
        mark(bus)
        os.kill(recorder.pid(), signal.SIGSTOP)
        logind.suspend()
        logind.hears("asleep")
        assert flushes(recorder).count("suspend") == 1
        os.kill(recorder.pid(), signal.SIGCONT)


def test_a_logind_that_starts_anew_is_followed_and_a_bus(bus: Bus) -> None:
    with a_recorder(bus) as recorder:
        for number in (1, 2):
            with a_logind(bus) as logind:
                logind.hears("locked")
                mark(bus)
                logind.suspend()
                logind.hears("asleep")
                assert flushes(recorder).count("suspend") == number
        bus.kill()
        bus.start()
        with a_logind(bus) as logind:
            logind.hears("locked")
