# SPDX-License-Identifier: Apache-2.0
"""The whole daemon as real processes: starts, ends, deaths, refusals, and numbers that agree with /proc."""

import itertools
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sysmon_tools import ctl
from sysmond.base import clock
from sysmond.base.model import ABSENT, Cause, Sensitivity
from sysmond.base.result import Result
from sysmond.daemon.runner import WAS_KILLED
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import control
from sysmond.machine.folders import Folders
from sysmond.plan import plan
from sysmond.store import archive
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import run_as

SECOND = 1_000_000_000
PARTS = ("sampler", "background", "archiver")

SPINNING = '''
"""A probe that, once asked to, never gives the processor back; and one that waits for ever."""
import os, time
from sysmond.probe import Lane, Probe, Table, counter, hookimpl

def spin(host):
    if os.path.exists(TRIGGER):
        os.unlink(TRIGGER)
        while True:
            pass
    yield "", (1,)

def wait(host):
    time.sleep(3600)
    yield "", (1,)

@hookimpl
def sysmond_probes():
    metrics = (counter("count", "1", "A number."),)
    return [Probe(Table("spinning", metrics), spin), Probe(Table("waiting", metrics), wait, lane=Lane.BACKGROUND)]
'''


class Place:
    """Folders to record in, and the daemons that do."""

    def __init__(self, runtime: Path, tmp_path: Path) -> None:
        self.folders = Folders(str(tmp_path / "state"), str(runtime / "run"))
        self.log = tmp_path / "log"
        self.configuration = tmp_path / "sysmond.yaml"
        self.configuration.write_text("probes: {memory: {interval: 100ms}, filesystem: {interval: 1s}}\n")
        self.drop_in = tmp_path / "sysmond.yaml.d/90-sysmonctl.yaml"
        self.environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, prepare: Callable[[], object] | None = None) -> "subprocess.Popen[bytes]":
        """Start the program; ``prepare`` is called in its process before."""
        command = [sys.executable, "-P", "-m", "sysmond", "--user", "--config", str(self.configuration)]
        command += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime, *arguments]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environ,
                start_new_session=True,  # Whatever terminal the tests have, the daemon has none.
                preexec_fn=prepare,  # noqa: PLW1509  no thread runs here
            )
        self.processes.append(process)
        return process

    def select(self, *paths: str) -> Result | None:
        try:
            return Archive(self.folders).select(*paths, raw=True)
        except Error:
            return None

    def ticks(self, path: str) -> int:
        result = self.select(path)
        return 0 if result is None else len(result.times_ns)

    def values(self, path: str) -> int:
        """How often it was read and something was there."""
        result = self.select(path)
        values = None if result is None else result.columns[0].integers
        return 0 if values is None else int((values != ABSENT).sum())

    def wait_for_ticks(self, path: str = "memory/total", more: int = 1) -> None:
        enough = self.ticks(path) + more
        wait_until(lambda: self.ticks(path) >= enough or self.processes[-1].poll() is not None)

    def pid(self, part: str) -> int:
        """The process of a part; 0 where it has ended as it was told to."""
        noted = Path(self.folders.runtime, part, "pid")
        return int(noted.read_text()) if noted.exists() else 0

    def kill(self, part: str) -> None:
        """Kill a part and wait for the next one."""
        before = self.pid(part)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.pid(part) != before)

    def order(self, **order: object) -> control.Order:
        """Give the daemon an order, and its answer."""
        with self.call(**order) as caller:
            answer: control.Order = json.loads(caller.recv(control.MESSAGE_BYTES_MAX))
            return answer

    def call(self, **order: object) -> socket.socket:
        """Give the daemon an order as soon as it listens; the answer can be waited for."""
        limit_s = time.monotonic() + HANG_S
        while (caller := control.call(f"{self.folders.runtime}/daemon", order)) is None:
            assert time.monotonic() < limit_s
            time.sleep(0.01)
        caller.settimeout(HANG_S)
        return caller

    def said(self) -> list[str]:
        return self.log.read_text().splitlines()

    def alive(self) -> list[int]:
        """The processes that carry these folders in their command line."""
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and os.fsencode(self.folders.runtime) in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
        return found

    def seals(self) -> bool:
        """Have it sealed, and say whether it was."""
        with suppress(Error):
            return bool(control.ask(f"{self.folders.runtime}/archiver", {"do": "seal"}, HANG_S)["ok"])
        return False

    def segments(self, folder: Callable[[Folders, Sensitivity], str]) -> int:
        return sum(len(archive.names(folder(self.folders, sensitivity))) for sensitivity in Sensitivity)

    def rings(self) -> list[Path]:
        return list(Path(self.folders.runtime).rglob("*.ring"))

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        wait_until(lambda: not self.alive())


@pytest.fixture
def place(runtime: Path, tmp_path: Path) -> Iterator[Place]:
    made = Place(runtime, tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_one_tick_is_recorded_sealed_and_flushed(place: Place) -> None:
    assert place.start("--ticks", "1").wait(HANG_S) == 0
    assert place.ticks("memory/total") == 1
    assert place.ticks("filesystem/size") >= 1  # The background lane has sampled, too.
    assert place.segments(archive.ram_folder) == 0
    assert place.segments(archive.disk_folder) >= 1
    assert place.rings() == []  # Their memory is given back.
    assert place.alive() == []
    assert len(place.said()) == 1
    assert Path(place.folders.state, "plan.json").exists()


def cpu_seconds() -> dict[str, int]:
    """What /proc/stat says now, per field, summed over all processors, in ticks of the kernel."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return {"user": int(fields[1]) - int(fields[9]), "nice": int(fields[2]) - int(fields[10]), "system": int(fields[3])}


def test_sums_agree_with_an_independent_reading_of_proc(place: Place) -> None:
    """By order alone: a reading taken before a tick is at most, one taken after it at least, what the tick has."""
    paths = [f"cpu/{name}@total" for name in ("user", "nice", "system")]
    place.start()
    wait_until(lambda: Path(place.folders.runtime, "plan.json").exists())
    outer_first = cpu_seconds()
    place.wait_for_ticks("cpu/user@total", 2)
    inner_first = cpu_seconds()
    begin_ns = clock.boottime_ns()
    while clock.boottime_ns() - begin_ns < 5 * SECOND:
        sum(range(100_000))
    inner_last = cpu_seconds()
    place.wait_for_ticks("cpu/user@total", 2)
    result = place.select(*paths)
    outer_last = cpu_seconds()
    assert result is not None
    hertz = os.sysconf("SC_CLK_TCK")
    for path in paths:
        column = result.column(path)
        assert column.integers is not None
        recorded = [value * hertz // 10**column.scale for value in column.integers.tolist()]
        name = path.removeprefix("cpu/").removesuffix("@total")
        assert outer_first[name] <= recorded[0]
        assert recorded[0] <= inner_first[name] <= inner_last[name] <= recorded[-1] <= outer_last[name]
    summed = Archive(place.folders).select(*paths, step="1min", stat="sum")
    for path in paths:
        raw, total = result.column(path), summed.column(path)
        assert raw.integers is not None
        assert total.integers is not None
        grown = (int(raw.integers[-1]) - int(raw.integers[0])) * 10 ** (total.scale - raw.scale)
        assert sum(int(value) for value in total.integers if value >= 0) >= grown
    assert recorded_burn(result) >= 1.0


def recorded_burn(result: Result) -> float:
    """Seconds of processor time that the recording saw spent in programs."""
    column = result.column("cpu/user@total")
    assert column.integers is not None
    grown: float = (column.integers[-1] - column.integers[0]) / 10**column.scale
    return grown


def test_ticks_below_a_second_and_memory_within_bounds(place: Place) -> None:
    place.configuration.write_text("probes: {cpu: {interval: 100ms}, filesystem: {interval: 1s}}\n")
    place.start()
    place.wait_for_ticks("cpu/user@total", 30)
    place.wait_for_ticks("filesystem/size")
    result = place.select("cpu/user@total")
    assert result is not None
    steps = {int(after) - int(before) for before, after in zip(result.times_ns, result.times_ns[1:], strict=False)}
    assert min(steps) == SECOND // 10
    # The figures to reach are the benchmark's business; this keeps a stray import from going unnoticed.
    for part in PARTS:
        resident = int(Path(f"/proc/{place.pid(part)}/statm").read_text().split()[1]) * resource.getpagesize()
        assert resident < 24 * 1024 * 1024 + sum(path.stat().st_size for path in place.rings())


@pytest.mark.parametrize("delay_s", [0.0, 0.15, 0.3, 0.45, 0.6])
def test_told_to_stop_while_it_starts_it_ends_in_order(place: Place, delay_s: float) -> None:
    process = place.start()
    if delay_s:
        time.sleep(delay_s)
    else:
        wait_until(place.said)
    process.send_signal(signal.SIGTERM)
    code = process.wait(HANG_S)
    assert code == 0 or (code == -signal.SIGTERM and not place.said())  # Python itself was still starting.
    wait_until(lambda: not place.alive())
    assert not [line for line in place.said() if "recording to" not in line]
    assert place.segments(archive.ram_folder) == 0


def test_the_death_of_the_parent_ends_all_and_a_successor_starts_at_once(place: Place) -> None:
    first = place.start()
    place.wait_for_ticks()
    place.wait_for_ticks("filesystem/size", 0)
    orphans = set(place.alive()) - {first.pid}
    assert len(orphans) >= len(PARTS)
    first.kill()
    first.wait()
    second = place.start()
    place.wait_for_ticks("memory/total", 2)
    wait_until(lambda: orphans.isdisjoint(place.alive()))
    # What the first one left is removed once it is sealed; at the end nobody waits for that. The archiver began to
    # listen when that of the first one had ended.
    wait_until(place.seals)
    second.send_signal(signal.SIGTERM)
    assert second.wait(HANG_S) == 0
    result = place.select("memory/total")
    assert result is not None
    for before_ns, after_ns in zip(result.times_ns, result.times_ns[1:], strict=False):
        if after_ns - before_ns > SECOND * 3 // 2:
            assert any(gap.start_ns <= before_ns + SECOND < gap.end_ns for gap in result.gaps)
    assert place.rings() == []


def test_the_death_of_the_parent_is_no_good_order(place: Place) -> None:
    first = place.start()
    place.wait_for_ticks()
    first.kill()
    first.wait()
    wait_until(lambda: not place.alive())
    time.sleep(3)  # A hole that is longer than a tick.
    second = place.start()
    place.wait_for_ticks("memory/total", 2)
    second.send_signal(signal.SIGTERM)
    assert second.wait(HANG_S) == 0
    wide, long = place.select("memory/total"), Archive(place.folders).records("process", end="now")
    assert wide is not None
    for result in (wide, long):
        holes = (gap for gap in result.gaps if gap.cause is not Cause.CLEAN_SHUTDOWN)
        longest = max(holes, key=lambda gap: gap.end_ns - gap.start_ns)
        assert longest.cause is Cause.DAEMON_DOWN, result.gaps
        assert longest.end_ns - longest.start_ns > 2 * SECOND
    stops = [event.text for event in wide.events if event.kind == "stop"]
    assert stops == ["the parent of all parts was killed", ""]


def test_of_a_run_that_was_killed_the_next_start_speaks_and_no_other(place: Place) -> None:
    first = place.start()
    place.wait_for_ticks()
    for pid in [place.pid(part) for part in ("daemon", *PARTS)]:
        os.kill(pid, signal.SIGKILL)
    first.wait(HANG_S)
    for _ in range(2):
        process = place.start()
        place.wait_for_ticks()
        process.terminate()
        assert process.wait(HANG_S) == 0
    assert [line for line in place.said() if "last run" in line] == [f"sysmond: {WAS_KILLED}"]
    result = place.select("memory/total")
    assert result is not None
    assert [(event.kind, event.subject) for event in result.events if event.text == WAS_KILLED] == [("died", "sysmond")]


def test_a_part_that_is_killed_is_started_again(place: Place) -> None:
    process = place.start()
    place.wait_for_ticks("memory/total", 2)
    for part in PARTS:
        place.kill(part)
    place.wait_for_ticks("memory/total", 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 0
    assert sum("ended (SIGKILL)" in line for line in place.said()) == len(PARTS)
    died = [event for event in Archive(place.folders).select("memory/total", raw=True).events if event.kind == "died"]
    assert sorted(event.subject for event in died) == sorted(PARTS)
    assert all(event.text.startswith("SIGKILL; started again") for event in died)


def test_a_bus_part_is_a_part_like_any_other(place: Place, runtime: Path) -> None:
    assert place.start("--part", "bus").wait(HANG_S) == 2
    assert place.said() == ["sysmond: --part bus: needs a bus; expected --bus system, session or an address"]
    process = place.start("--bus", f"unix:path={runtime}/nowhere")
    place.wait_for_ticks()
    wait_until(lambda: os.path.exists(f"{place.folders.runtime}/bus/pid"))
    place.kill("bus")
    place.wait_for_ticks("memory/total", 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    assert sum("bus ended (SIGKILL)" in line for line in place.said()) == 1


def test_a_second_daemon_learns_at_once_who_holds_the_folders(place: Place, runtime: Path) -> None:
    first = place.start()
    place.wait_for_ticks()
    inode = os.stat(f"{place.folders.runtime}/plan.json").st_ino
    assert place.start().wait(HANG_S) == 1
    assert f"held by process {first.pid}" in place.said()[-1]
    assert os.stat(f"{place.folders.runtime}/plan.json").st_ino == inode  # The first one's is left alone.
    other = Place(runtime / "other", place.log.parent)
    (runtime / "other").mkdir()
    assert other.start().wait(HANG_S) == 1
    assert f"{place.folders.state}: held by process {first.pid}" in place.said()[-1]
    assert first.poll() is None


def test_a_wrong_configuration_is_one_line_and_nothing_starts(place: Place) -> None:
    place.configuration.write_text("archive:\n  seal_intervall: 5\n")
    assert place.start().wait(HANG_S) == 2
    (line,) = place.said()
    assert f"{place.configuration}:2" in line
    assert "seal_intervall" in line


def test_a_wrong_configuration_keeps_the_plan_and_says_why_once(place: Place) -> None:
    process = place.start()
    place.wait_for_ticks()
    current = Path(place.folders.runtime, "plan.json")
    before = current.read_bytes(), current.stat().st_mtime_ns
    place.configuration.write_text("probes:\n  cpu:\n    intervall: 2s\n")
    problem = f"{place.configuration}:3: probes.cpu.intervall: no such key; did you mean interval?"
    assert place.order(do="reload") == {"error": problem}
    assert [line for line in place.said() if "cpu" in line] == [f"sysmond: not reloaded: {problem}"]
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: sum(problem in line for line in place.said()) == 2)
    assert (current.read_bytes(), current.stat().st_mtime_ns) == before
    place.wait_for_ticks("cpu/user@total", 2)
    for order, wrong in (
        ({"do": "sing"}, "'sing' is not an order"),
        ({"do": "set", "key": 1}, "expected 'key' and 'value'"),
    ):
        assert wrong in str(place.order(**order)["error"])


def test_changes_while_it_runs_lose_no_tick_and_outlive_it(place: Place) -> None:
    place.configuration.write_text("{}\n")
    first = place.start()
    place.wait_for_ticks("memory/total", 2)
    before = place.pid("sampler")
    assert place.order(do="set", key="probes.load.enabled", value=False) == {"ok": True}
    assert place.order(do="set", key="probes.cpu.interval", value="2s") == {"ok": True}
    assert "is out of bounds" in str(place.order(do="set", key="probes.cpu.interval", value="1us")["error"])
    for interval_s in (2, 3, 4):
        place.configuration.write_text(f"probes: {{vm: {{interval: {interval_s}s}}}}\n")
        assert place.order(do="reload") == {"ok": True}
    disabled_at = place.values("load/tasks")
    place.wait_for_ticks("memory/total", 3)
    assert place.values("load/tasks") == disabled_at
    assert place.pid("sampler") == before
    first.send_signal(signal.SIGTERM)
    assert first.wait(HANG_S) == 0
    result = Archive(place.folders).select("memory/total", "self/missed@sampler", raw=True)
    lost = sum((after - then) // SECOND - 1 for then, after in itertools.pairwise(result.times_ns.tolist()))
    missed = result.column("self/missed@sampler").integers
    assert missed is not None
    assert lost == missed[-1] - missed[0]  # None for any other reason than that the machine was short of time.
    causes = {gap.cause for gap in Archive(place.folders).select("load/tasks", raw=True).gaps}
    assert Cause.DISABLED in causes
    second = place.start()
    place.wait_for_ticks("memory/total", 2)
    assert place.values("load/tasks") == disabled_at
    assert place.order(do="set", key="probes.load.enabled", value=None) == {"ok": True}
    wait_until(lambda: place.values("load/tasks") > disabled_at)
    assert place.drop_in.read_text().endswith("probes:\n  cpu:\n    interval: 2s\n")
    assert second.poll() is None


@pytest.mark.parametrize("stride", first(1, [3, 1]))
def test_whatever_moment_the_daemon_is_killed_at_a_change_is_made_or_not(place: Place, stride: int) -> None:
    """The resolver is killed with its parent gone, or writes nothing: drop-in and plan never disagree for long."""
    for delay_s in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)[::stride]:
        process = place.start()
        was = place.drop_in.read_text() if place.drop_in.exists() else ""
        interval = f"{10 + round(delay_s * 10)}s"
        caller = place.call(do="set", key="probes.load.interval", value=interval)
        time.sleep(delay_s)
        process.kill()
        process.wait()
        caller.close()
        wait_until(lambda: not place.alive())
        now = place.drop_in.read_text() if place.drop_in.exists() else ""
        assert now == was or now.endswith(f"probes:\n  load:\n    interval: {interval}\n")
    process = place.start()  # A slow machine has made none of them by then.
    assert place.order(do="set", key="probes.load.interval", value="18s")["ok"]
    process.kill()
    process.wait()
    wait_until(lambda: not place.alive())
    place.start("--part", "resolver").wait(HANG_S)
    (load,) = [probe for probe in plan.read(f"{place.folders.runtime}/plan.json").probes if probe.table == "load"]
    assert f"interval: {load.interval_ns // SECOND}s\n" in place.drop_in.read_text()


def test_a_hang_up_of_its_terminal_ends_it_and_one_that_is_ignored_is_nothing(place: Place) -> None:
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    process = place.start(prepare=lambda: os.close(os.open(name, os.O_RDWR)))  # A session's first terminal is its own.
    place.wait_for_ticks()
    os.close(theirs)
    os.close(ours)  # The kernel sends it SIGHUP.
    assert process.wait(HANG_S) == 0
    assert place.segments(archive.ram_folder) == 0
    ignoring = place.start(prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    place.wait_for_ticks()
    plan_made_ns = os.stat(f"{place.folders.runtime}/plan.json").st_mtime_ns
    ignoring.send_signal(signal.SIGHUP)
    place.wait_for_ticks("memory/total", 2)
    assert os.stat(f"{place.folders.runtime}/plan.json").st_mtime_ns == plan_made_ns
    assert ignoring.poll() is None


def test_many_who_ask_at_once_are_all_answered_and_parts_that_die_meanwhile_come_back(place: Place) -> None:
    place.start()
    place.wait_for_ticks()
    held = f"/proc/{place.processes[0].pid}/fd"
    assert place.order(do="reload") == {"ok": True}
    before = len(os.listdir(held))
    callers = [place.call(do="reload") for _ in range(8)]
    place.kill("background")
    for caller in callers:
        assert json.loads(caller.recv(control.MESSAGE_BYTES_MAX))["ok"] is True
        caller.close()
    place.order(do="reload")  # Only then it has noticed that they left.
    assert len(os.listdir(held)) <= before + 1


def test_a_service_manager_is_told_how_it_fares(place: Place, runtime: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(runtime / "notify"))
        listening.settimeout(HANG_S)
        place.environ["NOTIFY_SOCKET"] = str(runtime / "notify")
        process = place.start()
        assert listening.recv(1000) == b"READY=1\nSTATUS=recording"
        assert "error" not in place.order(do="reload")
        assert listening.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert listening.recv(1000) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert listening.recv(1000).startswith(b"STOPPING=1\n")
        assert process.wait(HANG_S) == 0


def test_a_watchdog_hears_the_daemon_and_none_of_its_parts(place: Place, runtime: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(runtime / "notify"))
        listening.settimeout(HANG_S)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        place.environ |= {"NOTIFY_SOCKET": str(runtime / "notify"), "WATCHDOG_USEC": "400000"}
        process = place.start()
        senders: set[int] = set()
        heard: list[bytes] = []
        while heard.count(b"WATCHDOG=1") < 4:
            message, ancillary, _, _ = listening.recvmsg(1000, 100)
            heard.append(message)
            senders |= {struct.unpack("iII", content)[0] for _, _, content in ancillary}
        assert heard[0].startswith(b"READY=1")
        assert senders == {process.pid}


def test_a_state_folder_that_cannot_be_is_said_once_and_the_exit_code_tells(place: Place) -> None:
    Path(place.folders.state).write_bytes(b"in the way")
    assert place.start("--ticks", "2").wait(HANG_S) == 1
    assert sum("recording goes on in RAM" in line for line in place.said()) == 1
    assert place.segments(archive.ram_folder) >= 1
    os.unlink(place.folders.state)
    assert place.start("--ticks", "1").wait(HANG_S) == 0
    assert place.segments(archive.ram_folder) == 0
    assert place.ticks("memory/total") == 3


def test_parts_started_by_hand_meet_and_end_in_any_order(place: Place) -> None:
    assert place.start("--part", "resolver").wait(HANG_S) == 0
    parts = {part: place.start("--part", part) for part in PARTS}
    place.wait_for_ticks("memory/total", 2)
    place.wait_for_ticks("filesystem/size", 0)
    for part in ("archiver", "sampler", "background"):
        parts[part].send_signal(signal.SIGTERM)
        assert parts[part].wait(HANG_S) == 0
    ticks = place.ticks("memory/total")
    assert ticks >= 2
    again = place.start("--part", "archiver")  # What the lanes left after it is the next one's.
    wait_until(lambda: place.pid("archiver") == again.pid)
    again.send_signal(signal.SIGTERM)
    assert again.wait(HANG_S) == 0
    assert place.ticks("memory/total") >= ticks


def test_a_lane_that_does_not_tick_any_more_is_killed_and_starts_again(place: Place) -> None:
    process = place.start()
    place.wait_for_ticks()
    before = place.pid("sampler")
    os.kill(before, signal.SIGSTOP)
    wait_until(lambda: place.pid("sampler") != before)
    place.wait_for_ticks("memory/total", 2)
    assert sum("sampler: no tick for" in line for line in place.said()) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    events = Archive(place.folders).select("memory/total", raw=True).events
    assert [event.subject for event in events if event.kind == "stuck"] == ["sampler"]


def test_probes_that_spin_and_hang_cost_themselves_only(place: Place, tmp_path: Path) -> None:
    trigger = tmp_path / "trigger"
    folder = tmp_path / "config/sysmond/probes"
    folder.mkdir(parents=True)
    (folder / "spinning.py").write_text(SPINNING.replace("TRIGGER", repr(str(trigger))))
    place.configuration.write_text("probes: {filesystem: {interval: 1s}, spinning: {lane: realtime}}\n")
    process = place.start()
    place.wait_for_ticks("spinning/count")
    trigger.touch()
    wait_until(lambda: any("probe spinning: moved: " in line for line in place.said()))
    place.wait_for_ticks("memory/total", 2)
    place.wait_for_ticks("filesystem/size")
    wait_until(lambda: any("probe waiting: stuck: no answer within" in line for line in place.said()))
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    assert not any("sampler ended" in line for line in place.said())
    assert place.select("waiting/count") is None
    assert place.ticks("memory/total") >= 2
    assert place.ticks("filesystem/size") >= 1


@contextmanager
def small_tmpfs(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "sysmond-test", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_disk_is_waited_for_in_ram(place: Place) -> None:
    state = Path(place.folders.state)
    with small_tmpfs(state, "64k"):
        (state / "full").write_bytes(bytes(64 * 1024 - 4096))
        assert place.start("--ticks", "2").wait(HANG_S) == 1
        assert sum("No space left" in line for line in place.said()) == 1
        assert place.segments(archive.ram_folder) >= 1
        assert subprocess.run(["mount", "-o", "remount,size=4m", state], check=False).returncode == 0
        assert place.start("--ticks", "1").wait(HANG_S) == 0
        assert place.segments(archive.ram_folder) == 0
        assert place.ticks("memory/total") == 3
        place.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_runtime_folder_drops_counts_and_heals(place: Place) -> None:
    runtime = Path(place.folders.runtime)
    with small_tmpfs(runtime, "4m"):
        assert place.start("--part", "resolver").wait(HANG_S) == 0
        room = os.statvfs(runtime)
        (runtime / "full").write_bytes(bytes(room.f_bavail * room.f_frsize - 32 * 1024))
        process = place.start()
        full = "no room for a ring"
        wait_until(lambda: {"sampler", "background"} <= {line.split(":")[0] for line in place.said() if full in line})
        os.unlink(runtime / "full")
        place.wait_for_ticks("self/dropped@sampler")
        result = place.select("self/dropped@sampler")
        assert result is not None
        assert result.columns[0].integers is not None
        assert result.columns[0].integers[-1] > 0
        where = [f"--state-dir={place.folders.state}", f"--runtime-dir={place.folders.runtime}"]
        wait_until(lambda: b"dropped  memory: " in run_as(None, lambda: ctl.main(["status", *where])).out)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0
        assert not [line for line in place.said() if "SIGBUS" in line]
        place.end()


def test_kill_dash_nine_of_anybody_costs_at_most_the_tick_in_flight(repository: Path) -> None:
    """Some rounds of what ``make check-all`` does for longer."""
    program = repository / "tests/faults/kill_loop.py"
    command = [sys.executable, "-P", str(program), "--rounds", "3", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10 * HANG_S)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert json.loads(answer.stdout)["problems"] == []
