# SPDX-License-Identifier: Apache-2.0
"""The archiver beside real file systems: an idle disk is left alone, a missing one is waited for."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sysmond.archiver.flushing import Reason
from sysmond.archiver.watch import RETRY_FIRST_S, RETRY_MAX_S, DiskWatch
from sysmond.base import clock
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.control import ask
from sysmond.machine.folders import Folders, create_classes
from sysmond.machine.supplies import Supply, read_supplies
from sysmond.plan import plan
from sysmond.plan.plan import ArchiverSettings, Plan
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store import archive
from tests.support.waiting import HANG_S, wait_until

SECOND = 1_000_000_000
IDLE_S = 8.0
# After this time the journal writes what it was told (ext4's option commit=).
COMMIT_S = 5.0
TABLE = Table("thing", (Metric("count", "1", Semantics.COUNTER, "A number."),))

# The archiver as it is, but for how long it waits after what it wrote itself: half a minute, and here for longer than
# the journal keeps that to itself. Its jobs
# are not idle: on a busy machine they would come to what was decided long before.
PROGRAM = """
import os, sys
from sysmond.archiver import flushing
from sysmond.archiver import watch
from sysmond.daemon import runner
from sysmond.machine import mounts
flushing.QUIET_AFTER_OWN_WRITE_S, flushing.SEEN_S, watch.POLL_S, mounts.FSTAB = 8.0, 2.0, 0.5, sys.argv[2]
os.SCHED_IDLE = os.SCHED_OTHER
watch.RETRY_FIRST_S, watch.RETRY_MAX_S = float(sys.argv[3]), max(watch.RETRY_MAX_S, float(sys.argv[3]))
sys.exit(runner.main([sys.argv[1]]))
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


class Disk(NamedTuple):
    """A loop device with a file system, and where it is mounted."""

    device: str
    point: Path

    def mount(self) -> None:
        subprocess.run(["mount", self.device, self.point], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.point], check=True)

    def sectors(self) -> tuple[int, int]:
        """What was read from it and written to it."""
        stat = Path("/sys/block", os.path.basename(self.device), "stat").read_text().split()
        return int(stat[2]), int(stat[6])

    def sync(self) -> None:
        subprocess.run(["sync", "-f", self.point], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    image, point = tmp_path / "image", tmp_path / "mounted"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * 1024 * 1024)
    lazy_not = "lazy_itable_init=0,lazy_journal_init=0"  # Else the kernel goes on formatting for a while.
    subprocess.run(["mkfs.ext4", "-q", "-E", lazy_not, image], check=True)
    answer = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip(f"no loop device here: {answer.stderr.strip()}")
    made = Disk(answer.stdout.strip(), point)
    try:
        made.mount()
        yield made
    finally:
        subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["losetup", "--detach", made.device], check=True)


class Station:
    """A ring that grows, and an archiver that looks after it."""

    def __init__(self, runtime: Path, state: Path, log: Path) -> None:
        self.folders = Folders(str(state), str(runtime))
        self.log = log
        create_classes(f"{runtime}/sampler")
        plan.write(Plan((), (), archiver=ArchiverSettings(1.0, 1.0)), f"{runtime}/plan.json")
        identity = Identity(clock.boot_id(), "sampler", Sensitivity.PUBLIC, os.getpid(), 1)
        self.ring = RingWriter(f"{runtime}/sampler/public/1.ring", 65536, identity, [Layout(TABLE, SECOND)])
        self.ticks = 0

    def start(self, fstab: str = "/dev/null", *, retry_s: float = RETRY_FIRST_S) -> "subprocess.Popen[bytes]":
        settings = json.dumps({"folders": self.folders, "part": "archiver"})
        with self.log.open("ab") as log:
            process = subprocess.Popen([sys.executable, "-P", "-c", PROGRAM, settings, fstab, str(retry_s)], stderr=log)
        wait_until(lambda: process.poll() is not None or self.answers())
        return process

    def answers(self) -> bool:
        try:
            return "error" in ask(f"{self.folders.runtime}/archiver", {"do": "nothing"}, HANG_S)
        except Error:
            return False

    def order(self, **order: str) -> dict[str, object]:
        return ask(f"{self.folders.runtime}/archiver", {**order}, HANG_S)

    def tick(self) -> None:
        self.ticks += 1
        self.ring.clock(clock.relation())
        self.ring.rows(0, self.ticks * SECOND, ("",), [self.ticks])

    def record(self, seconds: float) -> None:
        limit_s = time.monotonic() + seconds
        while time.monotonic() < limit_s:
            self.tick()
            time.sleep(0.1)

    def on_disk(self) -> int:
        return len(archive.names(archive.disk_folder(self.folders, Sensitivity.PUBLIC)))

    def in_ram(self) -> int:
        return len(archive.names(archive.ram_folder(self.folders, Sensitivity.PUBLIC)))

    def said(self, words: str) -> int:
        return sum(words in line for line in self.log.read_text().splitlines())

    def values(self) -> list[int]:
        integers = Archive(self.folders).select("thing/count", raw=True).columns[0].integers
        assert integers is not None
        return [int(value) for value in integers]


Stations = Callable[[Path], Station]


@pytest.fixture
def station_at(runtime: Path, tmp_path: Path) -> Stations:
    return lambda state: Station(runtime, state, tmp_path / "log")


@needs_root
def test_an_idle_disk_is_not_touched_and_one_in_use_is_used_within_seconds(disk: Disk, station_at: Stations) -> None:
    station = station_at(disk.point / "state")
    station.tick()
    process = station.start()
    try:
        wait_until(lambda: os.path.exists(f"{station.folders.state}/plan.json"))
        wait_until(lambda: not children(process.pid))  # The first flush began a merge.
        wait_until(lambda: stays_quiet(station, disk))

        def is_touched() -> bool:
            """Whether anything is written while it is recorded, what the merge before left to the kernel included."""
            before = disk.sectors()
            for _ in range(2):
                station.record(IDLE_S / 2)
                disk.sync()  # With nothing to write, this is no use of the disk.
            return disk.sectors() != before

        assert not all(is_touched() for _ in range(3))
        flushed = station.on_disk()
        assert station.in_ram() > 1

        def is_used() -> bool:
            """Somebody else writes; whether the archiver does, too."""
            subprocess.run(["sh", "-c", f"echo >> {disk.point}/file; sync {disk.point}/file"], check=True)
            return station.on_disk() > flushed

        wait_until(is_used)
        process.terminate()
        assert process.wait(HANG_S) == 0
        assert station.values() == list(range(1, station.ticks + 1))
        assert station.said("archiver") == 0
    finally:
        process.kill()
        process.wait()


def stays_quiet(station: Station, disk: Disk) -> bool:
    """Record for longer than the journal keeps to itself what was just written; whether nothing came of that."""
    disk.sync()
    before = disk.sectors()
    station.record(COMMIT_S + 1.0)
    return disk.sectors() == before


@needs_root
def test_a_disk_that_vanishes_is_waited_for_and_gets_everything_once(disk: Disk, station_at: Stations) -> None:
    station = station_at(disk.point / "state")
    station.tick()
    process = station.start(retry_s=3600)  # Only the mount table can tell it to try again.
    try:
        assert station.order(do="flush") == {"ok": True}
        wait_until(lambda: not children(process.pid))  # The flush began a merge.
        disk.unmount()
        for _ in range(3):
            station.tick()
            assert station.order(do="flush", reason="suspend")["problem"] == f"{disk.point} is not mounted"
        assert os.listdir(disk.point) == []
        assert station.said("recording goes on in RAM") == 1
        disk.mount()
        wait_until(lambda: not station.in_ram())
        process.terminate()
        assert process.wait(HANG_S) == 0
        assert station.values() == list(range(1, station.ticks + 1))
        assert station.said("archiver") == 2, station.log.read_text()
    finally:
        process.kill()
        process.wait()


@needs_root
def test_a_file_system_that_fstab_promises_is_waited_for(disk: Disk, station_at: Stations, tmp_path: Path) -> None:
    disk.unmount()
    fstab = tmp_path / "fstab"
    fstab.write_text(f"# <file system> <mount point>\n{disk.device} {disk.point} ext4 defaults 0 2\n")
    station = station_at(disk.point / "state")
    station.tick()
    process = station.start(str(fstab))
    try:
        wait_until(lambda: station.said(f"{disk.point} is not mounted"))
        assert station.order(do="seal") == {"ok": True}
        assert os.listdir(disk.point) == []
        disk.mount()
        wait_until(lambda: station.on_disk() and not station.in_ram())
        wait_until(lambda: os.path.exists(f"{station.folders.state}/lock"))
        process.terminate()
        assert process.wait(HANG_S) == 0
        assert station.values() == [1]
    finally:
        process.kill()
        process.wait()


@needs_root
def test_a_folder_that_refuses_is_tried_again_without_any_sign(disk: Disk, station_at: Stations) -> None:
    station = station_at(disk.point / "state")
    process = station.start()
    try:
        assert station.order(do="flush") == {"ok": True}
        folder = archive.disk_folder(station.folders, Sensitivity.PUBLIC)
        subprocess.run(["chattr", "+i", folder], check=True)
        station.tick()
        assert station.order(do="flush")["ok"] is False
        assert station.said("Operation not permitted") == 1
        subprocess.run(["chattr", "-i", folder], check=True)
        wait_until(lambda: station.on_disk() and not station.in_ram())
        process.terminate()
        assert process.wait(HANG_S) == 0
        assert station.values() == [1]
    finally:
        process.kill()
        process.wait()


def test_without_anything_waiting_there_is_nothing_to_look_at() -> None:
    disk = DiskWatch(300.0, 1000, 0.0)
    assert disk.due_s() == float("inf")
    disk.unsealed = True
    assert disk.due_s() == 300.0
    assert disk.decide(299.0) is None
    disk.waiting_bytes = 1001
    assert disk.decide(1.0) is Reason.RAM_FULL


def test_a_hold_leaves_the_disk_alone_unless_ram_is_full() -> None:
    disk = DiskWatch(300.0, 1000, 0.0)
    disk.waiting_bytes = 10
    disk.hold(1000.0)
    assert disk.due_s() == 1000.0
    disk.resumed = True
    assert disk.decide(400.0) is None
    disk.refused(400.0)
    assert disk.decide(900.0) is None
    assert disk.decide(1000.0) is Reason.FIRST  # It comes to an end by itself.
    disk.accepted()
    disk.hold(2000.0)
    disk.waiting_bytes = 1001
    assert disk.decide(1500.0) is Reason.RAM_FULL
    disk.waiting_bytes = 10
    disk.hold(0.0)
    assert disk.due_s() < 2000.0
    disk.follow(50.0, 5)
    assert disk.decide(1600.0) is Reason.RAM_FULL


@pytest.mark.parametrize(("online", "reason"), [("1", Reason.SUSPEND), ("0", None)])
def test_a_resume_on_battery_waits_for_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: str, reason: Reason | None
) -> None:
    for name, files in {"AC": {"type": "Mains", "online": online}, "BAT0": {"type": "Battery"}}.items():
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_text(f"{content}\n")
    assert sorted(read_supplies(str(tmp_path))) == [Supply("Battery"), Supply("Mains", online)]
    assert read_supplies(f"{tmp_path}/none") == []
    monkeypatch.setattr("sysmond.machine.supplies.POWER_SUPPLIES", str(tmp_path))
    disk = DiskWatch(300.0, 1000, 0.0)
    assert disk.decide(1.0) is None
    disk.resumed = True
    assert disk.decide(1.0) is reason
    assert disk.decide(1.0) is None


def test_a_disk_that_refuses_is_tried_ever_more_seldom_but_heals_within_a_minute() -> None:
    disk = DiskWatch(300.0, 1000, 0.0)
    disk.waiting_bytes = 5000
    now_s, pauses = 0.0, []
    for _ in range(8):
        disk.refused(now_s)
        assert disk.decide(now_s) is None
        pauses.append(disk.due_s() - now_s)
        now_s = disk.due_s()
        assert disk.decide(now_s) is Reason.FIRST
    assert pauses[0] == RETRY_FIRST_S
    assert pauses[-1] == RETRY_MAX_S == max(pauses) == 60.0
    disk.accepted()
    assert disk.decide(now_s) is Reason.RAM_FULL


@pytest.fixture
def block_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk that rotates, with a partition, and one that does not."""
    devices, classes = tmp_path / "devices", tmp_path / "block"
    for name, rotates in (("sda", "1"), ("nvme0n1", "0")):
        (devices / name / "queue").mkdir(parents=True)
        (devices / name / "queue" / "rotational").write_text(f"{rotates}\n")
        (devices / name / f"{name}1").mkdir()
    classes.mkdir()
    for target in ("sda", "sda/sda1", "nvme0n1", "nvme0n1/nvme0n11"):
        (classes / Path(target).name).symlink_to(devices / target)
    monkeypatch.setattr("sysmond.archiver.watch.BLOCK_DEVICES", str(classes))
    monkeypatch.setattr("sysmond.machine.supplies.POWER_SUPPLIES", str(tmp_path / "supplies"))
    return tmp_path


@pytest.mark.parametrize(
    ("disks", "since_s", "expected"),
    [
        (("sda",), 100, True),  # We wrote to it a moment ago.
        (("sda",), 1000, False),
        (("sda1",), 1000, False),
        (("nvme0n1",), 1000, True),
        (("nvme0n11",), 1000, True),
        (("nvme0n1", "sda1"), 1000, False),
        ((), 1000, True),  # Nobody knows where the archive is.
        (("gone",), 1000, True),
    ],
)
def test_a_disk_at_rest_is_not_started_for_a_sleep(
    block_devices: Path, disks: tuple[str, ...], since_s: float, *, expected: bool
) -> None:
    assert block_devices.is_dir()
    disk = DiskWatch(300.0, 1000, 0.0)
    disk.disks = disks
    assert disk.may_flush_before_sleep(since_s) is expected
    disk.wrote(since_s)
    assert disk.may_flush_before_sleep(since_s + 10)
    disk.close()


def test_a_disk_at_rest_is_started_where_the_battery_may_not_last(block_devices: Path) -> None:
    battery = block_devices / "supplies" / "BAT0"
    battery.mkdir(parents=True)
    for name, text in (("type", "Battery"), ("status", "Discharging"), ("capacity", "19")):
        (battery / name).write_text(f"{text}\n")
    disk = DiskWatch(300.0, 1000, 0.0)
    disk.disks = ("sda",)
    assert disk.may_flush_before_sleep(1000)
    (battery / "capacity").write_text("20\n")
    assert not disk.may_flush_before_sleep(1000)
    disk.close()
