# SPDX-License-Identifier: Apache-2.0
"""The archiver as a process of its own, beside a ring that the test writes: disks that hang, refuse and come back."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sysmond.archiver import children as work
from sysmond.archiver.flushing import Reason
from sysmond.archiver.main import FLUSHES_PER_MERGE, Archiver
from sysmond.archiver.watch import LOOK_MIN_S, LOOK_S, RingWatch
from sysmond.base import clock
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.control import ask, listen
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan import plan
from sysmond.plan.plan import ArchiverSettings, Plan
from sysmond.plan.settings import Settings
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.progress import Progress, Sealed
from sysmond.ring.writer import RingWriter
from sysmond.store import archive, pins
from sysmond.store.files.invariants import WIDE_ELEMENTS_MAX
from sysmond.store.pins import Pin
from tests.support.waiting import HANG_S, wait_until

SECOND = 1_000_000_000
Started = list["subprocess.Popen[bytes]"]
TABLES_MAX = WIDE_ELEMENTS_MAX["tables"]
LAYOUT_BYTES_MAX = 1024
TABLE = Table("thing", (Metric("count", "1", Semantics.COUNTER, "A number."),))


class Station:
    """A runtime folder with a ring in it, and an archiver that looks after it."""

    def __init__(self, runtime: Path, tmp_path: Path) -> None:
        self.folders = Folders(str(tmp_path / "state"), str(runtime))
        create_classes(f"{runtime}/sampler")
        plan.write(Plan((), (), archiver=ArchiverSettings(3600.0, 3600.0)), f"{runtime}/plan.json")
        self.log = tmp_path / "log"
        self._ticks = 0
        self.ring = self.new_ring(1)

    def new_ring(self, started_ns: int, *, tables: int = 0) -> RingWriter:
        """Begin a ring; besides the table ``thing`` it has so many others, which are never read."""
        identity = Identity(clock.boot_id(), "sampler", Sensitivity.PUBLIC, os.getpid(), started_ns)
        path = f"{self.folders.runtime}/sampler/public/{started_ns}.ring"
        others = [Layout(TABLE._replace(name=f"thing_{started_ns}_{number}"), SECOND) for number in range(tables)]
        return RingWriter(path, 65536 + tables * LAYOUT_BYTES_MAX, identity, [Layout(TABLE, SECOND), *others])

    def tick(self) -> None:
        self._ticks += 1
        self.ring.clock(clock.relation())
        self.ring.rows(0, self._ticks * SECOND, ("",), [self._ticks])

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "sysmond", "--part", "archiver"]
        command += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: process.poll() is not None or self.answers())
        return process

    def answers(self) -> bool:
        try:
            return "error" in ask(f"{self.folders.runtime}/archiver", {"do": "nothing"}, HANG_S)
        except Error:
            return False

    def order(self, what: str) -> object:
        return ask(f"{self.folders.runtime}/archiver", {"do": what}, HANG_S)["ok"]

    def said(self, words: str) -> int:
        return sum(words in line for line in self.log.read_text().splitlines())

    def on_disk(self) -> int:
        return len(archive.names(archive.disk_folder(self.folders, Sensitivity.PUBLIC)))

    def in_ram(self) -> int:
        return len(archive.names(archive.ram_folder(self.folders, Sensitivity.PUBLIC)))


@pytest.fixture
def station(runtime: Path, tmp_path: Path) -> Station:
    return Station(runtime, tmp_path)


@pytest.fixture
def end() -> Iterator[Started]:
    processes: Started = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def has_begun(process: "subprocess.Popen[bytes]") -> None:
    """Wait until an archiver has done what it begins with, which would take along what comes next."""
    wait_until(lambda: not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def stop(process: "subprocess.Popen[bytes]") -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(HANG_S)


def test_what_is_there_is_sealed_on_order_and_flushed_at_the_end(station: Station, end: Started) -> None:
    station.tick()
    process = station.start()
    end.append(process)
    station.tick()
    assert station.order("seal") is True
    station.tick()
    assert station.in_ram() + station.on_disk() >= 1  # The first flush may take it along.
    assert stop(process) == 0
    assert (station.in_ram(), station.said("archiver")) == (0, 0)
    result = Archive(station.folders).select("thing/count", raw=True)
    assert result.columns[0].values.tolist() == [1, 2, 3]
    assert (
        Path(station.folders.state, "plan.json").read_bytes() == Path(station.folders.runtime, "plan.json").read_bytes()
    )


def test_it_tells_a_service_manager_that_it_goes_on(
    station: Station, end: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{station.folders.runtime}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(HANG_S)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        process = station.start()
        end.append(process)
        assert manager.recv(100) == b"READY=1"
        has_begun(process)
        for _ in range(16):  # Nothing is due in all that time.
            assert manager.recv(100) == b"WATCHDOG=1"
        process.send_signal(signal.SIGTERM)
        while manager.recv(100) != b"STOPPING=1":
            pass
        assert process.wait(HANG_S) == 0


def test_a_new_plan_is_followed_and_holds_are_checked(station: Station, end: Started) -> None:
    end.append(station.start())
    has_begun(end[0])
    station.tick()
    settings = ArchiverSettings(1.0, 3600.0)
    plan.write(Plan((), (), archiver=settings), f"{station.folders.runtime}/plan.json")
    before = station.in_ram()  # That it began is sealed, and flushed or not.
    assert station.order("plan") is True
    wait_until(lambda: station.in_ram() > before)  # Sealed after a second now, not after an hour.
    Path(station.folders.runtime, "plan.json").write_text("{")
    folder = f"{station.folders.runtime}/archiver"
    assert "plan: not JSON" in str(ask(folder, {"do": "plan"}, HANG_S)["error"])
    assert ask(folder, {"do": "hold_flush", "seconds": 60}, HANG_S) == {"ok": True}
    for seconds in (-1, 1e9, "long", None):
        answer = ask(folder, {"do": "hold_flush", "seconds": seconds}, HANG_S)
        assert answer["error"] == f"hold_flush: {seconds!r} seconds; expected 0 to 86400"
    assert station.order("flush") is True  # On request, whatever is held.
    assert station.on_disk() >= 1
    assert stop(end[0]) == 0


def test_what_is_recorded_is_told_to_the_bus_part(station: Station, end: Started) -> None:
    bus = Path(station.folders.runtime, "bus")
    bus.mkdir()
    heard: list[dict[str, object]] = []
    with listen(str(bus)) as listener:
        end.append(station.start())
        order: dict[str, object] = {"do": "event", "kind": "mark", "subject": "", "text": "here"}
        assert ask(f"{station.folders.runtime}/archiver", order, HANG_S) == {"ok": True}

        def hear(told: dict[str, object]) -> dict[str, object]:
            heard.append(told)
            return {}

        listener.serve(hear)
        listener.serve(hear)
    assert [told["kind"] for told in heard] == ["start", "mark"]
    assert heard[1] == {**order, "uid": os.geteuid(), "boottime_ns": heard[1]["boottime_ns"], "sensitivity": "public"}


def test_a_disk_that_hangs_does_not_stop_sealing(station: Station, end: Started) -> None:
    os.makedirs(station.folders.state)
    os.mkfifo(f"{station.folders.state}/plan.json")  # Whoever opens it waits, as for a disk that is gone.
    station.tick()
    process = station.start()
    end.append(process)
    for _ in range(3):
        station.tick()
        assert station.order("seal") is True
    # Where the machine is busy, the flush comes to what hangs only after some of these: it has taken them along.
    assert station.in_ram() + station.on_disk() >= 2
    with open(f"{station.folders.state}/plan.json", "wb"):
        pass  # The disk is there again.
    wait_until(lambda: os.path.isfile(f"{station.folders.state}/plan.json"))
    assert station.order("flush") is True
    assert station.in_ram() == 0
    assert stop(process) == 0


def test_a_disk_that_refuses_is_said_once_and_what_waits_is_flushed_when_it_can(station: Station, end: Started) -> None:
    Path(station.folders.state).write_bytes(b"in the way")
    process = station.start()
    end.append(process)
    wait_until(lambda: station.said("recording goes on in RAM, flushed when it can"))
    for _ in range(3):
        station.tick()
        assert station.order("flush") is False
    waiting = station.in_ram()
    assert waiting >= 3  # The ledger has a row every ten seconds, too.
    assert station.said("recording goes on in RAM, flushed when it can") == 1
    os.unlink(station.folders.state)
    assert station.order("flush") is True
    assert station.in_ram() == 0
    assert station.on_disk() >= waiting
    assert station.said("flushed to") == 2
    assert stop(process) == 0


def test_a_folder_called_like_a_segment_is_said_once_and_stops_nothing(station: Station, end: Started) -> None:
    process = station.start()
    end.append(process)
    ram = archive.ram_folder(station.folders, Sensitivity.PUBLIC)
    os.mkdir(f"{ram}/{archive.Name('0' * 32, 1, 1).file}")
    os.mkfifo(f"{station.folders.runtime}/sampler/public/7.ring")
    for flushed in range(1, 4):
        station.tick()
        assert station.order("flush") is True
        assert station.in_ram() == 0
        assert station.on_disk() >= flushed
    assert station.said("called like a segment, but no file; left alone, and never flushed") == 1
    assert stop(process) == 0


def test_what_cannot_be_flushed_at_the_end_stays_in_ram_and_the_exit_code_says_so(
    station: Station, end: Started
) -> None:
    Path(station.folders.state).write_bytes(b"in the way")
    process = station.start()
    end.append(process)
    station.tick()
    assert stop(process) == 1
    assert station.in_ram() == 1
    assert station.said("1 segments stay in") == 1
    os.unlink(station.folders.state)
    successor = station.start()
    end.append(successor)
    assert stop(successor) == 0
    assert station.in_ram() == 0
    assert station.on_disk() >= 1


def test_a_job_that_is_killed_is_done_again(station: Station, end: Started) -> None:
    os.makedirs(station.folders.state)
    os.mkfifo(f"{station.folders.state}/plan.json")
    process = station.start()
    end.append(process)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    wait_until(lambda: Path(children).read_text())
    for child in Path(children).read_text().split():
        os.kill(int(child), signal.SIGKILL)
    wait_until(lambda: station.said("killed by SIGKILL"))
    os.unlink(f"{station.folders.state}/plan.json")
    station.tick()
    assert station.order("flush") is True
    assert stop(process) == 0


def test_jobs_die_with_their_archiver_and_a_successor_starts_at_once(station: Station, end: Started) -> None:
    os.makedirs(station.folders.state)
    os.mkfifo(f"{station.folders.state}/plan.json")
    process = station.start()
    end.append(process)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    wait_until(lambda: Path(children).read_text())
    orphans = [int(child) for child in Path(children).read_text().split()]
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{orphan}").exists() for orphan in orphans))
    os.unlink(f"{station.folders.state}/plan.json")
    station.tick()
    successor = station.start()
    end.append(successor)
    assert stop(successor) == 0
    assert station.on_disk() >= 1


WATCHED = """
import os, sys, time
from sysmond.archiver import children, main, seal_job
from sysmond.archiver.flushing import Reason
from sysmond.archiver.watch import DiskWatch
from sysmond.daemon import runner
real, real_seal, folder = children.start, seal_job.seal, sys.argv[2]

def seal(*arguments):
    if os.path.exists(folder + "/fails"):
        raise OSError("as wanted")
    real_seal(*arguments)

def start(jobs, *rest, **options):
    child = real(jobs, *rest, **options)
    with open(folder + "/started", "a") as file:  # Whoever reads it finds the child, or what it did.
        print(*(job.__name__ for job in jobs), file=file)
    return child

def decide(watch, now_s):
    try:
        os.unlink(folder + "/in_use")
    except FileNotFoundError:
        return None
    return Reason.DISK_IN_USE

children.start, DiskWatch.decide, DiskWatch.due_s = start, decide, lambda _: time.monotonic() + 0.1
main.SEALED_LATELY_S, seal_job.seal = 0.0, seal
sys.exit(runner.main([sys.argv[1]]))
"""


class Watched:
    """An archiver that flushes when the test says that the disk is in use, and writes down what its children do."""

    def __init__(self, station: Station, folder: Path, end: Started) -> None:
        self._folder = folder
        settings = json.dumps({"folders": station.folders, "part": "archiver"})
        with station.log.open("ab") as log:
            command = [sys.executable, "-P", "-c", WATCHED, settings, str(folder)]
            self.process = subprocess.Popen(command, stderr=log)
        end.append(self.process)
        wait_until(station.answers)
        has_begun(self.process)
        self._begun = len(self.started())

    def started(self) -> list[str]:
        return (self._folder / "started").read_text().splitlines()

    def later(self) -> list[str]:
        """What children have done since the archiver was through with what it begins with."""
        return self.started()[self._begun :]

    def use_disk(self) -> None:
        (self._folder / "in_use").touch()


def test_one_child_seals_flushes_and_merges(station: Station, end: Started, tmp_path: Path) -> None:
    station.tick()
    archiver = Watched(station, tmp_path, end)
    for number in range(1, FLUSHES_PER_MERGE + 1):
        station.tick()
        if number % 2:
            archiver.use_disk()
            wait_until(lambda number=number: len(archiver.later()) == number)  # type: ignore[misc]
        else:
            assert station.order("flush") is True
        has_begun(archiver.process)  # A merge, too: while it is in its place, seals are by themselves.
        assert station.in_ram() == 0
    together = archiver.later()
    assert len(together) == FLUSHES_PER_MERGE
    assert set(together) == {"seal flush", "seal flush merge"}
    assert together.count("seal flush merge") == 1
    assert stop(archiver.process) == 0
    result = Archive(station.folders).select("thing/count", raw=True)
    assert result.columns[0].values.tolist() == [*range(1, FLUSHES_PER_MERGE + 2)]


def test_a_child_that_hangs_in_its_flush_does_not_stop_the_next_seal(
    station: Station, end: Started, tmp_path: Path
) -> None:
    archiver = Watched(station, tmp_path, end)
    os.unlink(f"{station.folders.state}/plan.json")
    os.mkfifo(f"{station.folders.state}/plan.json")
    station.tick()
    before = station.on_disk()
    archiver.use_disk()
    wait_until(lambda: station.on_disk() > before and not station.in_ram())
    assert archiver.later()[0].startswith("seal flush")
    for number in range(1, 4):
        station.tick()
        assert station.order("seal") is True
        assert station.in_ram() == number
    archiver.process.kill()  # The child is killed with it, in the middle of its flush.
    archiver.process.wait()
    os.unlink(f"{station.folders.state}/plan.json")
    successor = station.start()
    end.append(successor)
    assert stop(successor) == 0
    assert station.in_ram() == 0
    result = Archive(station.folders).select("thing/count", raw=True)
    assert result.columns[0].values.tolist() == [1, 2, 3, 4]


def test_a_flush_is_done_where_the_seal_before_it_fails(station: Station, end: Started, tmp_path: Path) -> None:
    archiver = Watched(station, tmp_path, end)
    station.tick()
    assert station.order("seal") is True
    assert station.in_ram() >= 1
    (tmp_path / "fails").touch()
    archiver.use_disk()
    wait_until(lambda: station.said("sealing failed: as wanted"))
    wait_until(lambda: not station.in_ram())
    assert archiver.later()[:2] in (["seal", "seal flush"], ["seal", "seal flush merge"])
    assert archiver.later()[2].startswith("flush")
    (tmp_path / "fails").unlink()
    station.tick()
    assert stop(archiver.process) == 0
    result = Archive(station.folders).select("thing/count", raw=True)
    assert result.columns[0].values.tolist() == [1, 2]


FAILING = """
import os, sys, time
from sysmond.archiver import children
from sysmond.archiver import main as archiver
from sysmond.daemon import runner
from sysmond.store import dense
real = dense.of_snapshot
# On a busy machine a right job ends in time, and a wrong one has its share.
archiver.SEAL_JOB_S, children.SPINS_FRACTION, os.SCHED_IDLE = 5.0, 0.05, os.SCHED_OTHER

def of_snapshot(taken):
    if taken.identity.started_ns == 2 and any(block.ticks.max() < 4 * 10**9 for block in real(taken).blocks):
        {}  # As a library would.
    return real(taken)

dense.of_snapshot = of_snapshot
sys.exit(runner.main([sys.argv[1]]))
"""


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("os.abort()", "killed by SIGABRT"),
        ("time.sleep(1e6)", r"did not end in \d+ s"),
        pytest.param("while True: pass", r"did not end in \d+ s", marks=pytest.mark.long),
    ],
)
def test_data_that_fails_the_job_is_set_aside_and_becomes_a_gap(
    station: Station, end: Started, failure: str, said: str
) -> None:
    settings = json.dumps({"folders": station.folders, "part": "archiver"})
    culprit = station.new_ring(2)
    for second in range(1, 4):
        culprit.clock(clock.relation())
        culprit.rows(0, second * SECOND, ("",), [second])
    station.tick()
    with station.log.open("ab") as log:
        process = subprocess.Popen([sys.executable, "-P", "-c", FAILING.format(failure), settings], stderr=log)
    end.append(process)
    wait_until(station.answers)
    wait_until(lambda: station.order("seal") and station.said("set aside"))
    aside = rf"archiver: {culprit.path}: set aside after 3 tries: {said}; a gap from now on"
    [line] = [line for line in station.log.read_text().splitlines() if culprit.path in line]
    assert re.fullmatch(aside, line)
    culprit.rows(0, 4 * SECOND, ("",), [4])
    culprit.rows(0, 5 * SECOND, ("",), [5])
    wait_until(lambda: station.order("seal") is True)  # Five seconds may be too few for what is right, too.
    assert os.listdir(f"{station.folders.runtime}/archiver/aside") == ["sampler-public-2.ring"]
    assert stop(process) == 0
    for ring in (culprit, station.ring):
        os.unlink(ring.path)
    result = Archive(station.folders).select("thing/count", raw=True)
    assert [int(value) for value in result.columns[0].values] == [1, 4, 5]
    assert any(gap.cause is Cause.DROPPED and "set aside" in gap.detail for gap in result.gaps)


def test_what_no_file_may_hold_is_set_aside_and_becomes_a_gap(station: Station, end: Started) -> None:
    culprit = station.new_ring(2, tables=TABLES_MAX)
    culprit.clock(clock.relation())
    culprit.rows(0, 1 * SECOND, ("",), [100])
    for _ in range(3):
        station.tick()
    process = station.start()
    end.append(process)
    wait_until(lambda: station.order("seal") and station.said("set aside"))
    excess = f"one file: {TABLES_MAX + 1} tables; expected at most {TABLES_MAX}"
    assert station.said(f"{culprit.path}: set aside after 3 tries: {excess}; a gap from now on") == 1
    assert stop(process) == 0
    os.unlink(station.ring.path)
    result = Archive(station.folders).select("thing/count", raw=True)
    assert result.columns[0].values.tolist() == [1, 2, 3]
    assert [event.subject for event in result.events if event.kind == "aside"] == [culprit.path]


def test_what_one_file_of_two_rings_may_not_hold_becomes_two(station: Station, end: Started) -> None:
    rings = [station.new_ring(number, tables=TABLES_MAX // 2) for number in (2, 3)]
    for number, ring in enumerate(rings):
        ring.clock(clock.relation())
        ring.rows(0, (1 + number) * SECOND, ("",), [100 + number])
    process = station.start()
    end.append(process)
    wait_until(lambda: station.order("seal"))
    assert stop(process) == 0
    assert station.said("set aside") == 0
    for ring in rings:
        os.unlink(ring.path)
    result = Archive(station.folders).select("thing/count", raw=True)
    assert result.columns[0].values.tolist() == [100, 101]


def test_a_job_that_nobody_lets_run_is_late_and_not_to_blame(station: Station) -> None:
    running = work.start({sleep: {}}, station.folders, HANG_S, idle=False, lock=-1)
    os.kill(running.child, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{running.child}/stat").read_text().split()[2] == "T")
    running.kill(is_late=True)
    assert running.end() == {"is_outside": True, "problem": "killed by SIGKILL"}


def sleep(folders: Folders, tell: work.Tell) -> bool:
    """A job that does nothing."""
    time.sleep(HANG_S)
    return True


work.PLACES[sleep] = "rings"


def test_two_archivers_of_one_state_folder_are_one_too_many(station: Station, tmp_path: Path, end: Started) -> None:
    process = station.start()
    end.append(process)
    other = Station(Path(station.folders.runtime) / "other", tmp_path)
    second = other.start()
    assert second.wait(HANG_S) == 1
    assert other.said(f"held by process {process.pid}") == 1
    assert stop(process) == 0


def flushes(station: Station, reason: Reason) -> list[int]:
    """What the ledger says of a reason, oldest first; the first row is written some time after the start."""
    try:
        answer = Archive(station.folders).select(f"flush/flushes@{reason}", start=0, end=TIME_MAX_NS - 1, raw=True)
    except Error:
        return []
    integers = answer.columns[0].integers
    return [] if integers is None else [int(value) for value in integers]


CLOCKED = """
import os, sys
from sysmond.archiver import disk_writes
from sysmond.base import clock
from sysmond.daemon import runner
disk_writes.INTERVAL_NS = 10**8
boottime_ns, relation = clock.boottime_ns, clock.relation

def asleep_ns():
    with open(sys.argv[2]) as file:
        return int(file.read())

def shifted():
    now = relation()
    return now._replace(boottime_ns=now.boottime_ns + asleep_ns(), realtime_ns=now.realtime_ns + asleep_ns())

clock.boottime_ns, clock.relation = lambda: boottime_ns() + asleep_ns(), shifted
sys.exit(runner.main([sys.argv[1]]))
"""


def start_clocked(station: Station, asleep: Path) -> "subprocess.Popen[bytes]":
    """An archiver whose clock is ahead by what a file says, as after a suspend; its ledger has ten rows a second."""
    settings = json.dumps({"folders": station.folders, "part": "archiver"})
    with station.log.open("ab") as log:
        process = subprocess.Popen([sys.executable, "-P", "-c", CLOCKED, settings, str(asleep)], stderr=log)
    wait_until(lambda: process.poll() is not None or station.answers())
    assert process.poll() is None, station.log.read_text()
    has_begun(process)
    return process


def test_every_write_stands_in_the_ledger_that_at_shutdown_too(station: Station, end: Started, tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    asleep.write_text("0")
    process = start_clocked(station, asleep)
    end.append(process)
    ordered = FLUSHES_PER_MERGE + 1  # With the last one there is enough to roll up.
    for count in range(1, ordered + 1):
        station.tick()
        assert station.order("flush") is True
        wait_until(lambda count=count: max(flushes(station, Reason.REQUEST), default=0) == count)  # type: ignore[misc]
    assert flushes(station, Reason.REQUEST)[0] == 0
    wait_until(lambda: max(flushes(station, Reason.MERGE), default=0) >= 1)
    assert stop(process) == 0
    assert max(flushes(station, Reason.SHUTDOWN)) == 0
    note = Path(station.folders.state, "ledger.json")
    owed = json.loads(note.read_text())["counts"]["shutdown"]
    assert owed[0] == 1
    assert owed[1] >= 1
    successor = start_clocked(station, asleep)
    end.append(successor)
    wait_until(lambda: flushes(station, Reason.SHUTDOWN)[-1:] == [1])
    assert not note.exists()
    assert flushes(station, Reason.REQUEST)[-1] == ordered
    result = Archive(station.folders).select("flush/*@shutdown", raw=True)
    said = [int(column.integers[-1]) for column in result.columns if column.integers is not None]
    assert sorted(said) == sorted(owed)
    assert any(event.text.startswith("by the run before") for event in result.events)
    assert stop(successor) == 0
    assert json.loads(note.read_text())["counts"]["shutdown"][0] == 1


def test_a_boot_that_nobody_ended_is_told_of_in_the_next(station: Station, end: Started) -> None:
    Path(station.folders.state).mkdir()
    Path(station.folders.state, "boot.json").write_text(json.dumps({"boot": "f" * 32, "settings": {}}))
    process = station.start()
    end.append(process)
    wait_until(lambda: any(event.kind == "boot ended" for event in Archive(station.folders).events()))
    [event] = [event for event in Archive(station.folders).events() if event.kind == "boot ended"]
    assert (event.subject, event.text.partition(":")[0]) == ("unknown", "power loss, hang or reset")
    assert stop(process) == 0
    assert json.loads(Path(station.folders.state, "boot.json").read_text())["boot"] == clock.boot_id()


def counts_to(station: Station, count: int) -> bool:
    return flushes(station, Reason.REQUEST)[-1:] == [count]


def test_the_ledger_of_an_archiver_that_dies_is_continued(station: Station, end: Started, tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    asleep.write_text("0")
    for count in (1, 2):
        process = start_clocked(station, asleep)
        end.append(process)
        station.tick()
        # Where the machine is busy, what the one before was at may hold the disk for a moment.
        wait_until(lambda: station.order("flush") is True)
        wait_until(partial(counts_to, station, count))
        process.kill()
        process.wait()


def test_a_resume_is_noticed_and_what_is_there_goes_to_the_disk(station: Station, end: Started, tmp_path: Path) -> None:
    asleep_ns = 3600 * SECOND
    asleep = tmp_path / "asleep"
    asleep.write_text("0")
    process = start_clocked(station, asleep)
    end.append(process)
    first_ns = clock.boottime_ns() // SECOND * SECOND
    for second in range(3):
        station.ring.clock(clock.relation())
        station.ring.rows(0, first_ns + second * SECOND, ("",), [second])
    assert flushes(station, Reason.SUSPEND)[-1] == 0
    asleep.with_suffix(".new").write_text(str(asleep_ns))
    asleep.with_suffix(".new").rename(asleep)
    now = clock.relation()
    station.ring.clock(now._replace(boottime_ns=now.boottime_ns + asleep_ns, realtime_ns=now.realtime_ns + asleep_ns))
    for second in range(3, 6):
        station.ring.rows(0, first_ns + asleep_ns + second * SECOND, ("",), [second])
    wait_until(lambda: flushes(station, Reason.SUSPEND)[-1:] == [1])
    assert station.on_disk() >= 1
    result = Archive(station.folders).select("*/*", start=0, end=TIME_MAX_NS - 1, raw=True)
    assert {gap.table for gap in result.gaps if gap.cause is Cause.SUSPENDED} == {"thing", "flush"}
    [gap] = [gap for gap in result.gaps if gap.table == "thing" and gap.cause is Cause.SUSPENDED]
    # Each relation of the clocks is of its own reading, microseconds apart.
    assert abs(gap.end_ns - gap.start_ns - asleep_ns) < SECOND
    assert stop(process) == 0


def test_spans_are_pinned_and_released_for_whoever_may_not_write_there(station: Station) -> None:
    process = station.start()

    def asked(added: list[object], released: list[object]) -> dict[str, object]:
        order: dict[str, object] = {"do": "pin", "added": added, "released": released}
        return ask(f"{station.folders.runtime}/archiver", order, HANG_S)

    one, other = Pin(10, 20, "why", "user"), Pin(30, 40, "", "user")
    assert asked([one, other], []) == {"ok": True}
    assert pins.read(station.folders.state) == [one, other]
    assert asked([], [one]) == {"ok": True}
    assert pins.read(station.folders.state) == [other]
    for wrong in (
        [20, 10, "", ""],
        [-1, 10, "", ""],
        [0, 2**63 - 1, "", ""],
        [1.5, 2, "", ""],
        [1, 2, 3, ""],
        [1, 2],
        5,
    ):
        assert "pin: " in str(asked([wrong], [])["error"]), wrong
    assert pins.read(station.folders.state) == [other]
    assert stop(process) == 0


def archiver(station: Station, *, ram_bytes: int = 1 << 20) -> tuple[Archiver, list[str]]:
    said: list[str] = []
    create_classes(f"{station.folders.runtime}/archiver")
    made = Archiver(
        Settings(station.folders), Plan((), archiver=ArchiverSettings(ram_bytes=ram_bytes)), said.append, -1
    )
    return made, said


def test_segments_in_ram_are_bounded_and_the_oldest_goes_first(station: Station) -> None:
    made, said = archiver(station, ram_bytes=2500)
    folder = archive.ram_folder(station.folders, Sensitivity.PUBLIC)
    for number in range(1, 5):
        Path(folder, archive.Name("0" * 32, number, number).file).write_bytes(bytes(1000))
    made._flushed("the disk is full", {}, 0.0)
    assert [name.first for name in archive.names(folder)] == [3, 4]
    assert any("2 of the oldest given up" in line for line in said)


def test_a_ring_that_fills_fast_is_looked_at_often(station: Station) -> None:
    now_s = 1000.0
    rings = RingWatch(station.folders, now_s)
    rings.look(now_s + 10.0)
    assert not rings.short
    assert rings.unsealed
    assert rings.look(now_s + 20.0) == pytest.approx(LOOK_S)
    for _ in range(400):
        station.tick()
    assert LOOK_MIN_S <= rings.look(now_s + 21.0) < 3.0
    assert not rings.short
    assert 0.0 < rings.left_s < 6.0
    for _ in range(500):
        station.tick()
    rings.look(now_s + 22.0)
    assert rings.short == (station.ring.path,)


def test_a_ring_is_sealed_at_idle_priority_unless_it_runs_out(station: Station) -> None:
    """Half a ring to be sealed is routine. What counts is the time until the rest is full, too."""
    made, said = archiver(station)

    def policy() -> int:
        """How the kernel had scheduled the job that is due when it ended: it keeps that until the job is waited for."""
        made._begin_what_is_due()
        sealing = made._running["rings"]
        while not sealing.listen():
            pass
        policy = os.sched_getscheduler(sealing.child)
        made._ended("rings", sealing)
        return policy

    for _ in range(900):
        station.tick()
    made._look_due_s = 0.0
    assert policy() == os.SCHED_IDLE
    assert Progress.read(station.folders).sealed
    for _ in range(900):
        station.tick()
    made._look()
    assert made._rings.is_urgent  # What was written within this moment fills the rest in another.
    assert policy() == os.SCHED_OTHER
    assert not said


def test_only_rings_that_run_short_are_sealed_before_all_are_due(station: Station) -> None:
    """One that fills in a minute has the others sealed in their own time, and before a flush."""
    made, _ = archiver(station)
    calm = station.new_ring(2)
    calm.clock(clock.relation())
    calm.rows(0, SECOND, ("calm",), [1])
    due_s = made._seal_due_s

    def sealed() -> dict[str, Sealed]:
        sealing = made._running["rings"]
        while not sealing.listen():
            pass
        made._ended("rings", sealing)
        return Progress.read(station.folders).sealed

    for _ in range(900):
        station.tick()
    made._look_due_s = 0.0
    made._begin_what_is_due()
    there = sealed()
    assert there[station.ring.path].offset
    assert not there[calm.path].offset
    assert made._seal_due_s == due_s
    for _ in range(900):
        station.tick()
    made._look_due_s = 0.0
    made._begin_what_is_due()
    made._want(Reason.REQUEST)  # While some are being sealed.
    assert not sealed()[calm.path].offset
    assert sealed()[calm.path].offset
    assert made._flush_waits


def test_the_first_row_of_the_ledger_is_from_when_it_began(runtime: Path, tmp_path: Path, end: Started) -> None:
    """The first boot that is listed began with it, not with the minute before."""
    began_s = time.time()
    station = Station(runtime, tmp_path)
    process = station.start()
    end.append(process)
    assert stop(process) == 0
    rows = Archive(station.folders).select("flush", raw=True)
    assert began_s - 1.0 <= rows.times_ns[0] / SECOND <= time.time()


def test_only_rings_that_nobody_writes_are_to_be_forgotten(station: Station, end: Started) -> None:
    station.tick()
    process = station.start()
    end.append(process)
    station.order("seal")
    assert Progress.read(station.folders).sealed
    assert stop(process) == 0
    assert os.path.exists(station.ring.path)  # This process, who wrote it, is alive.
