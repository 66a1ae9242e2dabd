# SPDX-License-Identifier: Apache-2.0
"""The clients in docs/dbus.md are run as they stand there, with a real bus, a real recorder and a laptop's files."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import sysfs
from tests.support.clients import Client, RefusedError, a_client
from tests.support.onbus import Bus, a_bus, a_recorder, pytestmark
from tests.support.waiting import wait_until

__all__ = ["pytestmark"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "dbus.md"
PROGRAM = re.compile(r"^```python (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SERIES = 20


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    page = PAGE.read_text(encoding="utf-8")
    there = dict(PROGRAM.findall(page))
    assert page.count("```python") == len(there), "each has a name, and is run here"
    return there


@contextmanager
def running(bus: Bus, program: str, folder: Path) -> Iterator[Path]:
    """Run a program on this bus, in place of the system's; gives the file with what it prints."""
    output = folder / "output"
    environ = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program], stdout=file, stderr=file, env=environ
        )
    try:
        yield output
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sysfs.build(tmp_path_factory.mktemp("laptop"), "laptop", "battery", "mains")


@pytest.fixture(scope="module")
def bus(laptop: Path) -> Iterator[Bus]:
    with a_bus() as made, a_recorder(made, root=str(laptop)):
        with a_client(made) as client:
            wait_until(lambda: has_series(client, "battery/capacity") and has_series(client, "mains/online"))
        yield made


def has_series(client: Client, path: str) -> bool:
    try:
        rows = client.call("ListMetrics", "asa{sv}", [path], {})
    except RefusedError:  # There is none yet. All at once may be too many.
        return False
    return bool(rows)


def test_the_applet_shows_what_is_left(bus: Bus, programs: dict[str, str], tmp_path: Path) -> None:
    with running(bus, programs["battery.py"], tmp_path) as output:
        wait_until(lambda: "BAT0: " in output.read_text(), output.read_text)
        assert re.search(r"^BAT0: \d+ % left$", output.read_text(), re.MULTILINE)


def test_the_power_manager_follows_the_mains(bus: Bus, programs: dict[str, str], laptop: Path, tmp_path: Path) -> None:
    [adapter] = [path for path in (laptop / "sys/class/power_supply").iterdir() if path.name.startswith("AC")]
    uevent = adapter / "uevent"
    online = uevent.read_text()
    assert "ONLINE=1" in online
    with running(bus, programs["power.py"], tmp_path) as output, a_client(bus) as client:
        wait_until(lambda: output.read_text().endswith("as planned\n"), output.read_text)
        wait_until(lambda: client.property("Holds") == [])
        uevent.write_text(online.replace("ONLINE=1", "ONLINE=0"))
        wait_until(lambda: output.read_text().endswith("held back\n"), output.read_text)
        [hold] = client.property("Holds")
        assert (hold[0], hold[2:5]) == ("back", (30 * 10**9, "power manager", "on battery"))
        assert {"battery", "mains"} <= set(hold[1])
    with a_client(bus) as client:
        wait_until(lambda: client.property("Holds") == [])  # It died, and its hold with it.
    uevent.write_text(online)


def test_the_monitor_shows_twenty_series(programs: dict[str, str], tmp_path: Path) -> None:
    with a_bus() as bus, a_recorder(bus), a_client(bus) as client:
        wait_until(lambda: has_series(client, "network/received_bytes@lo") and has_series(client, "vm/pgfault"))
        with running(bus, programs["monitor.py"], tmp_path) as output:
            wait_until(lambda: output.read_text().count("\n\n") >= 3, output.read_text)
    last = output.read_text().split("\n\n")[-2].splitlines()
    assert len(last) == SERIES
    values = {path: (float(value), unit) for path, value, unit in map(str.split, last)}
    assert values["network/received_bytes@lo"][1] == "B/s"
    assert 0 < values["memory/used_percent"][0] < 100
    assert values["memory/total"][0] > 2**20
