# SPDX-License-Identifier: Apache-2.0
"""Where the bus has it started by the first call, the bus part ends by itself when nobody needs it any more."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sysmond.bus.holds import Hold, Holds
from sysmond.bus.wire.names import BUS_NAME
from sysmond.machine.folders import Folders
from sysmond.plan.plan import Plan
from tests.support.clients import a_client
from tests.support.onbus import Bus, a_bus, busctl
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")

PART = """
import sys
from sysmond.bus import loop, main
from sysmond.machine.folders import Folders
from sysmond.plan.plan import Plan
from sysmond.plan.settings import Settings
loop.IDLE_S, loop.IDLE_LOOK_S = 3.0, 0.1
folder, address = sys.argv[1:]
settings = Settings(Folders(folder, folder), bus=address, user=True, on_demand=True)
sys.exit(main.run(settings, Plan(()), print))
"""


@contextmanager
def a_part(bus: Bus, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (folder / "bus").mkdir()
    process = subprocess.Popen([sys.executable, "-P", "-c", PART, str(folder), bus.address])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_there(bus: Bus) -> bool:
    return busctl(bus, "status", BUS_NAME).returncode == 0


def test_it_ends_when_its_last_caller_has_gone(tmp_path: Path) -> None:
    with a_bus() as bus, a_part(bus, tmp_path) as process:
        wait_until(lambda: is_there(bus))
        with a_client(bus) as client:
            client.call("GetStatus", "a{sv}", {})
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(4.0)
            assert is_there(bus)
        assert process.wait(HANG_S) == 0


def test_without_a_bus_it_ends_too(tmp_path: Path) -> None:
    with a_bus() as bus, a_part(bus, tmp_path) as process:
        wait_until(lambda: is_there(bus))
        process.send_signal(signal.SIGSTOP)  # So that it sees nothing but that the bus is gone.
        bus.kill()
        process.send_signal(signal.SIGCONT)
        assert process.wait(HANG_S) == 0


def test_a_hold_keeps_it() -> None:
    holds = Holds(Folders("", ""), lambda: Plan(()), lambda *_: None, set)
    assert not holds.are_there()
    holds._there[1] = Hold(1, "flush", (), 0, "who", "why", 0, 1, -1)
    assert holds.are_there()
