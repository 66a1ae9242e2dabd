# SPDX-License-Identifier: Apache-2.0
"""What no single probe is about: drivers that fail, talk nonsense or vanish, on every machine; counters of 32 bits."""

import os
import pkgutil
from errno import EBUSY, EIO, ENODATA, ENODEV
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import sysmond_probes
from sysmond_probes import softnet, temperature

from sysmond.answers.series import rates
from sysmond.base.model import Absence, Cause
from sysmond.plan import plan as plans
from sysmond.probe import Host
from sysmond.sampler.source import Pieces, Reading, Source, with_options
from tests.support import sysfs
from tests.support.refused import refused

PLUGINS = sorted(module.name for module in pkgutil.iter_modules(sysmond_probes.__path__))
CAUSES = {ENODATA: Cause.NO_SOURCE, ENODEV: Cause.NO_SOURCE, EBUSY: Cause.IN_USE, EIO: Cause.PROBE_FAILED}
# What the kernel tells of each device without its driver.
TOLD = ("name", "type", "uevent", "label", "/power/")


def is_measured(path: str) -> bool:
    """Whether a file is one of a driver's, with a number in it."""
    if (
        "/sys/devices/" not in path
        or any(path.endswith(name) or name in path for name in TOLD[:-1])
        or TOLD[-1] in path
    ):
        return False
    try:
        int(Path(path).read_text())
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("machine", ["laptop", "server", "arm", "desktop"])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_driver_that_refuses_costs_more_than_its_own_values(
    plugin: str, machine: str, machines: dict[str, Path]
) -> None:
    name = f"{plans.BUILTIN_PACKAGE}.{plugin}"
    for errno, cause in CAUSES.items():
        host = Host(str(machines[machine]))
        try:
            for probe in plans.offered_probes(plans.import_plugin(name)):
                planned = plans.as_declared(name, probe)
                source = Source(planned, with_options(probe, planned), host, 1.0)
                with refused(errno, is_measured):
                    reading = source.read()
                if isinstance(reading, Absence):
                    assert reading.cause in {Cause.NO_SOURCE, cause}, source.table
                elif isinstance(reading, Reading):
                    causes = {absence.cause for absence in reading.lacking}
                    assert causes <= {cause, Cause.ASLEEP, Cause.IN_USE, Cause.NO_SOURCE}, source.table
        finally:
            host.close()


@pytest.mark.parametrize("errno", CAUSES)
def test_one_sensor_without_a_value_is_a_gap_that_says_why(errno: int, tmp_path: Path) -> None:
    sysfs.build(tmp_path, "server", "hwmon")
    host = Host(str(tmp_path))
    (probe,) = temperature.sysmond_probes()
    others = dict(probe.read(host))
    host.new_tick()
    (probe,) = temperature.sysmond_probes()
    with refused(errno, lambda path: path.endswith("/temp1_input") and "/0-0019/" in path) as said:
        rows = dict(probe.read(host))
    assert len(said) == 1
    gap = rows.pop("jc42-i2c-0-19:temp1")
    assert isinstance(gap, Absence)
    assert gap == Absence(CAUSES[errno], f"temp1_input: {os.strerror(errno)}")
    others.pop("jc42-i2c-0-19:temp1")
    assert rows == others


def test_a_counter_of_32_bits_that_wraps_is_a_reset_and_no_spike(tmp_path: Path) -> None:
    file = tmp_path / "proc/net/softnet_stat"
    file.parent.mkdir(parents=True)
    host, packets = Host(str(tmp_path)), []
    for count in (0xFFFF_FF00, 0xFFFF_FFFF, 0x0000_0010, 0x0000_0030):
        words = (count, *(0,) * 11, 3, *(0,) * 2)  # The thirteenth is the number of the CPU.
        file.write_text(" ".join(f"{word:08x}" for word in words) + "\n")
        host.new_tick()
        (row,) = softnet.read(host)
        assert row[0] == "cpu3"
        packets.append(int(row[1][0]))
    assert packets == [0xFFFF_FF00, 0xFFFF_FFFF, 0x10, 0x30]  # As the kernel says it: nothing is made up.
    assert rates.resets(np.array(packets, np.int64)).tolist() == [[1, 2]]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tree of each machine that has devices."""
    names = ("laptop", "server", "arm", "desktop")
    return {name: sysfs.build(tmp_path_factory.mktemp(name), name) for name in names}


def read_all(root: Path) -> dict[str, Reading | Pieces | Absence]:
    """What every table of a machine reads, by name."""
    host, found = Host(str(root)), {}
    try:
        for plugin in PLUGINS:
            name = f"{plans.BUILTIN_PACKAGE}.{plugin}"
            for probe in plans.offered_probes(plans.import_plugin(name)):
                planned = plans.as_declared(name, probe)
                found[probe.table.name] = Source(planned, with_options(probe, planned), host, 1.0).read()
    finally:
        host.close()
    return found


def is_broken(reading: Reading | Pieces | Absence) -> bool:
    """Whether a whole table is missing since its probe failed."""
    return isinstance(reading, Absence) and reading.cause is Cause.PROBE_FAILED


@pytest.fixture(params=["laptop", "server", "arm", "desktop"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The tree of a machine, to be spoilt."""
    return sysfs.build(tmp_path, request.param)


@pytest.mark.parametrize("content", [b"", b"N/A\n", b"-1\n", b"%d\n" % (2**64 - 1), b"\0\x1b[2J\xff\n", b"7 7\n"])
def test_no_driver_that_talks_nonsense_costs_a_table(content: bytes, machine: Path) -> None:
    """Numbers of drivers, and names and labels of devices. What 64 bits do not hold the ring drops."""
    before = {table for table, reading in read_all(machine).items() if isinstance(reading, Reading) and reading.names}
    devices = [file for file in machine.glob("sys/devices/**/*") if file.is_file() and not file.is_symlink()]
    for file in devices:
        if is_measured(str(file)) or file.name.endswith(("_label", "/label", "model_name")):
            file.write_bytes(content)
    found = read_all(machine)
    assert {table for table, reading in found.items() if is_broken(reading)} == set()
    assert before <= found.keys()
    readings = [reading for reading in found.values() if isinstance(reading, Reading)]
    words = [word for reading in readings for word in (*reading.names, *reading.values) if isinstance(word, str)]
    assert [word for word in words if not word.isprintable()] == []


class Vanishing:
    """Reads files until so many of devices were read: then the folder of the last one is gone, with all in it."""

    def __init__(self, number: int) -> None:
        self.folder: Path | None = None
        self._left = number
        self._pread = os.pread

    def __call__(self, descriptor: int, length: int, offset: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.folder is None and "/sys/devices/" in path:
            self._left -= 1
            if not self._left:
                self.folder = Path(path).parent
                self.folder.rename(f"{self.folder}.gone")
        if self.folder and path.startswith(str(self.folder)):
            raise OSError(ENODEV, os.strerror(ENODEV))
        return self._pread(descriptor, length, offset)

    def undo(self) -> None:
        if self.folder:
            Path(f"{self.folder}.gone").rename(self.folder)


@pytest.mark.parametrize("number", [1, 3, 10])
def test_a_directory_that_vanishes_in_mid_read_costs_no_table(number: int, machine: Path) -> None:
    """Of each table, at its so-manieth file of a device."""
    failed, vanished = set(), 0
    for plugin in PLUGINS:
        name = f"{plans.BUILTIN_PACKAGE}.{plugin}"
        for probe in plans.offered_probes(plans.import_plugin(name)):
            planned = plans.as_declared(name, probe)
            source = Source(planned, with_options(probe, planned), Host(str(machine)), 1.0)
            vanishing = Vanishing(number)
            with patch.object(os, "pread", vanishing):
                reading = source.read()
            vanishing.undo()
            source.host.close()
            vanished += vanishing.folder is not None
            failed |= {source.table} if is_broken(reading) else set()
    assert failed == set()
    assert vanished
