# SPDX-License-Identifier: Apache-2.0
"""Disks of a machine, asked by the real smartctl: what is recorded is what it prints, and nobody is woken.

For the lab: a disk of SATA (``sda`` or another), of NVMe, which is plugged in. What QEMU's disks cannot do, such as
standby, wear and self-tests, has fixtures.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sysmond.archiver.seal_job import seal
from sysmond.base.model import ABSENT
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create, create_classes
from sysmond.probe import Host
from sysmond.sources import smart_disks, smartctl
from tests.lab.outside import PORT, Outside
from tests.support.waiting import wait_until

SECTOR_BYTES = 512


class Recording:
    """Folders of a recorder of which only the part ``smart`` runs."""

    def __init__(self, base: Path) -> None:
        self.folders = Folders(str(base / "state"), str(base / "run"))
        create(self.folders, os.geteuid())
        create_classes(f"{self.folders.runtime}/archiver")

    def start(self, part: str) -> None:
        words = [sys.executable, "-P", "-m", "sysmond", "--part", part]
        words += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime]
        subprocess.run(words, check=True, timeout=600)

    def values(self, table: str) -> dict[tuple[str, str], int]:
        """The newest value of each series, by instance and metric."""
        result = Archive(self.folders).select(f"{table}/*", start=0, end=TIME_MAX_NS - 1, raw=True)
        newest = {
            column.path.partition("/")[2].partition("@"): int(column.integers[-1])
            for column in result.columns
            if column.integers is not None and len(column.integers)
        }
        return {(instance, metric): value for (metric, _, instance), value in newest.items() if value != ABSENT}


def told(disk: str) -> Any:
    words = ["smartctl", "--json", "-a", f"/dev/{disk}"]
    return json.loads(subprocess.run(words, check=False, stdout=subprocess.PIPE).stdout)


@contextmanager
def used(disk: str) -> Iterator[None]:
    """Somebody reads a disk, past the cache, now and then."""
    over = threading.Event()

    def read() -> None:
        with open(f"/dev/{disk}", "rb", buffering=0) as file:
            while not over.wait(2.0):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(file.fileno(), SECTOR_BYTES, 0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


def of(prefix: str) -> list[smart_disks.Disk]:
    return [disk for disk in smart_disks.disks(Host()) if disk.name.startswith(prefix)]


def sata() -> str:
    """A disk of SATA that nothing is mounted from."""
    for disk in of("sd"):
        if told(disk.name).get("device", {}).get("protocol") == "ATA":
            return disk.name
    pytest.skip("this machine has no disk of SATA")


@pytest.fixture(scope="module")
def nvme() -> Iterator[None]:
    """A disk of NVMe, in the machine of the lab."""
    if not os.path.exists(PORT):
        yield
        return
    outside = Outside()
    outside.monitor("device_add nvme,id=disk,serial=LABNVME,drive=nvme,bus=socket")
    wait_until(Path("/sys/block/nvme0n1").exists)
    yield
    outside.monitor("device_del disk")
    wait_until(lambda: not os.path.exists("/sys/block/nvme0n1"))
    outside.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, nvme: None) -> Recording:
    if not any(map(os.path.exists, smartctl.PROGRAMS)):
        pytest.skip("smartmontools is not installed")
    made = Recording(tmp_path_factory.mktemp("smart"))
    made.start("resolver")
    return made


def test_a_disk_in_use_is_recorded_as_smartctl_prints_it(recording: Recording) -> None:
    disk = sata()
    with used(disk):
        recording.start("smart")
    printed, found = told(disk), recording.values("smart")
    assert found[disk, "healthy"] == printed["smart_status"]["passed"]
    assert found[disk, "temperature"] == printed["temperature"]["current"]
    assert found[disk, "power_on"] == printed["power_on_time"]["hours"] * 3600
    attributes = recording.values("smart_attribute")
    for entry in printed["ata_smart_attributes"]["table"]:
        name = f"{disk}:{entry['id']} {entry['name']}"
        assert (attributes[name, "raw"], attributes[name, "threshold"]) == (entry["raw"]["value"], entry["thresh"])


def test_what_was_recorded_is_the_same_when_it_is_sealed(recording: Recording) -> None:
    before = recording.values("smart")
    assert before
    seal(recording.folders)
    assert recording.values("smart") == before


def test_a_disk_of_nvme_is_recorded_as_smartctl_prints_it(recording: Recording) -> None:
    disks = of("nvme")
    if not disks:
        pytest.skip("this machine has no disk of NVMe")
    found = recording.values("smart")
    for disk in disks:
        log = told(disk.name)["nvme_smart_health_information_log"]
        assert found[disk.name, "temperature"] == log["temperature"]
        assert found[disk.name, "percent_used"] == log["percentage_used"]
        assert found[disk.name, "power_on"] == log["power_on_hours"] * 3600
        assert found[disk.name, "unsafe_shutdowns"] == log["unsafe_shutdowns"]


def test_started_again_it_asks_nobody_and_repeats_what_was_told(recording: Recording) -> None:
    note = Path(recording.folders.runtime, "smart", smart_disks.NOTE)
    before, values, asked_ns = json.loads(note.read_text()), recording.values("smart"), note.stat().st_mtime_ns
    if int(time.clock_gettime(time.CLOCK_BOOTTIME)) % 1800 > 1500:
        pytest.skip("a half hour is about to end")
    recording.start("smart")
    assert json.loads(note.read_text()) == before
    assert note.stat().st_mtime_ns == asked_ns
    assert recording.values("smart") == values


def test_no_serial_number_is_in_what_is_left(recording: Recording) -> None:
    serials = {told(disk.name).get("serial_number", "").encode() for disk in of("")} - {b""}
    assert serials
    for folder, _, names in os.walk(recording.folders.runtime):
        for name in names:
            content = Path(folder, name).read_bytes() if not Path(folder, name).is_socket() else b""
            assert not any(serial in content for serial in serials if len(serial) > 5), name


def test_a_rotating_disk_that_nobody_uses_is_not_touched(tmp_path: Path, recording: Recording) -> None:
    disk = sata()
    rotating = next(each for each in of(disk) if each.name == disk)
    if not rotating.rotates:
        pytest.skip(f"{disk} does not rotate")
    fresh = Recording(tmp_path)
    fresh.start("resolver")
    before = Path(f"/sys/block/{disk}/device/iorequest_cnt").read_text()
    fresh.start("smart")
    assert Path(f"/sys/block/{disk}/device/iorequest_cnt").read_text() == before
    assert (disk, "temperature") not in fresh.values("smart")
