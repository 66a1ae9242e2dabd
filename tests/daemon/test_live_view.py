# SPDX-License-Identifier: Apache-2.0
"""The live view: what a frame shows and fits into, and the whole program on a real terminal (tmux)."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sysmond_probes.battery import BATTERY
from sysmond_probes.cpu_throttle import CPU_THROTTLE
from sysmond_probes.hwmon import FAN
from sysmond_probes.temperature import TEMPERATURE

from docs import generate
from sysmon_tools.busiest import Busiest, Busy
from sysmon_tools.live import StoredFolders, last_lines
from sysmon_tools.panel import Scene, Storage, frame
from sysmon_tools.quantities import duration, number, size
from sysmon_tools.signs import ASCII_SIGNS, SIGNS, Signs
from sysmond.base.clock import Relation
from sysmond.base.derived_columns import of_table
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.records import Records, codes, record_bytes
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.newest import Follower, Now
from sysmond.ring.writer import RingWriter
from sysmond.sampler.self_cost import SELF
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import pack
from tests.support.terminal import Terminal, has_ended, needs_tmux
from tests.support.waiting import HANG_S, wait_until

SECOND = 10**9
BOOT = "0" * 32
CPU_METRICS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def counters(*names: str, unit: str = "1", scale: int = 0) -> tuple[Metric, ...]:
    return tuple(Metric(name, unit, Semantics.COUNTER, "Counts.", scale) for name in names)


def gauges(*names: str, unit: str = "1", scale: int = 0) -> tuple[Metric, ...]:
    return tuple(Metric(name, unit, Semantics.GAUGE, "Goes up and down.", scale) for name in names)


TABLES = (
    Table("cpu", counters(*CPU_METRICS, unit="s", scale=2), "cpu"),
    Table("memory", gauges("total", "available", "cached", "swap_total", "swap_free", unit="B")),
    Table("load", gauges("average_1min", "average_5min", "average_15min", scale=2) + gauges("tasks", "tasks_runnable")),
    Table("pressure", counters("some_total", "full_total", unit="s", scale=6), "resource"),
    Table("disk", counters("reads", "writes", "read_bytes", "written_bytes"), "device"),
    Table("network", counters("received_bytes", "sent_bytes"), "interface"),
    SELF,
    Table("host", (Metric("hostname", "text", Semantics.STATE, "Name."),)),
    Table("socket", gauges("used")),
)
CPU, MEMORY, LOAD, PRESSURE, DISK, NETWORK, OWN, HOST, SOCKET = range(len(TABLES))
GIB = 2**30


class Machine:
    """Writes a ring as the sampler of a small, busy machine would."""

    def __init__(self, runtime: Path, started_s: int = 1, cpus: int = 2) -> None:
        folder = runtime / "sampler/public"
        folder.mkdir(parents=True, exist_ok=True)
        identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, started_s * SECOND)
        layouts = [Layout(table, SECOND) for table in TABLES]
        self.ring = RingWriter(str(folder / f"{started_s * SECOND}.ring"), 2**20, identity, layouts)
        self._cpus = [f"cpu{number}" for number in range(cpus)]

    def tick(self, tick: int) -> None:
        """CPU 0 half busy, 1 GiB of 4 in use, the disk reads 1 MiB/s, the network carries 1.5 kB/s."""
        ring, at = self.ring, tick * SECOND
        ring.clock(Relation(at, (1_700_000_000 + tick) * SECOND, at))
        busy, idle = (tick * 40, 0, tick * 10, tick * 50, 0, 0, 0, 0), (0, 0, 0, tick * 100, 0, 0, 0, 0)
        shares = [busy, *[idle] * (len(self._cpus) - 1)]
        total = tuple(map(sum, zip(*shares, strict=True)))
        ring.rows(CPU, at, (*self._cpus, "total"), [value for row in (*shares, total) for value in row])
        ring.rows(MEMORY, at, ("",), [4 * GIB, 3 * GIB, GIB // 2, 0, 0])
        ring.rows(LOAD, at, ("",), [125, 50, 7, 321, 2])
        ring.rows(PRESSURE, at, ("cpu", "io"), [tick * 123000, 0, 0, 0])
        ring.rows(DISK, at, ("sda", "sr0"), [tick * 8, tick, tick * 2**20, tick * 4096, 0, 0, 0, 0])
        ring.rows(NETWORK, at, ("lo", "eth0"), [tick, tick, tick * 1500, tick * 300])
        own = (tick * 700, 11 * 2**20, 90, 3, 4, ABSENT, ABSENT)
        probe = (*[ABSENT] * 5, tick * 400_000, 0)
        ring.rows(OWN, at, ("sampler", "probe:cpu"), [*own, *probe])
        ring.rows(HOST, at, ("",), [ring.text("earth")])
        ring.absence(SOCKET, at, Cause.NO_SOURCE, "FileNotFoundError: /proc/net/sockstat")


@pytest.fixture
def machine(runtime: Path) -> Machine:
    made = Machine(runtime)
    for tick in range(100, 130):
        made.tick(tick)
    return made


def in_background(runtime: Path) -> Path:
    folder = runtime / "background/public"
    folder.mkdir(parents=True)
    return folder


def follower(runtime: Path) -> Follower:
    return Follower(Folders("/nowhere", str(runtime)))


def scene(now: Now, tick: int = 129, messages: tuple[str, ...] = ()) -> Scene:
    return Scene(now, Storage(2, 3 * 2**20, 5, 7 * 2**20, 1000.0, "/state"), tick * SECOND, 1300.0, messages)


def text(shown: Scene, width: int = 80, height: int = 24, signs: Signs = SIGNS) -> str:
    return "\n".join(line.plain.rstrip() for line in frame(shown, width, height, signs))


# --- values ---------------------------------------------------------------------------------------


def test_rates_and_values_are_exact(runtime: Path, machine: Machine) -> None:
    now = follower(runtime).read()
    assert now.tick_ns == 129 * SECOND
    assert now.rate("cpu", "user", "cpu0") == pytest.approx(0.4)
    assert now.rate("disk", "read_bytes", "sda") == 2**20
    assert now.value("load", "average_1min") == pytest.approx(1.25)
    assert now.text("host", "hostname") == "earth"
    assert now.course("cpu", "busy", "total", 5) == pytest.approx([25.0] * 5)
    assert now.absences == [("socket", Cause.NO_SOURCE, "FileNotFoundError: /proc/net/sockstat")]
    assert now.value("cpu", "user", "cpu7") is None
    assert now.rate("weather", "rain") is None


def test_what_is_shown_can_be_asked_for_under_the_same_name(runtime: Path, machine: Machine) -> None:
    now = follower(runtime).read()
    shown = {
        "cpu/busy@cpu0": 50.0,
        "cpu/busy@total": 25.0,
        "cpu/user_percent@total": 20.0,
        "memory/used": float(GIB),
        "memory/used_percent": 25.0,
        "pressure/some_percent@cpu": 12.3,
        "disk/transfers@sda": 9.0,
    }
    archive = Archive(Folders(str(runtime / "none"), str(runtime)))
    for path, value in shown.items():
        name, _, instance = path.partition("@")
        table, _, column = name.partition("/")
        assert now.derived(table, column, instance) == pytest.approx(value), path
        (series,) = archive.select(path, step="1s").columns
        assert series.values[-1] == pytest.approx(value), path
    for nothing in (
        ("memory", "swap_used_percent", ""),
        ("cpu", "busy", "cpu7"),
        ("cpu", "bussy", "cpu0"),
        ("a", "b", ""),
    ):
        assert now.derived(*nothing) is None


def test_a_late_tick_a_reset_and_a_correction_make_no_spike(runtime: Path, machine: Machine) -> None:
    following = follower(runtime)
    following.read()
    machine.tick(134)
    assert following.read().rate("disk", "read_bytes", "sda") == 2**20
    machine.ring.rows(DISK, 135 * SECOND, ("sda", "sr0"), [1, 1, 1, 134 * 4096 - 8, 0, 0, 0, 0])
    now = following.read()
    assert now.rate("disk", "read_bytes", "sda") is None
    assert now.rate("disk", "written_bytes", "sda") == 0


def test_a_new_sampler_is_followed(runtime: Path, machine: Machine) -> None:
    following = follower(runtime)
    following.read()
    successor = Machine(runtime, started_s=131)
    for tick in (132, 133):
        successor.tick(tick)
    now = following.read()
    assert now.tick_ns == 133 * SECOND
    assert now.rate("cpu", "user", "cpu0") == pytest.approx(0.4)


def test_no_ring_and_a_foreign_one_are_waited_out(runtime: Path) -> None:
    following = follower(runtime)
    assert following.read().tick_ns is None
    (runtime / "sampler/public").mkdir(parents=True)
    (runtime / "sampler/public/1.ring").write_bytes(b"nonsense")
    assert following.read().tick_ns is None
    assert "waiting for the sampler" in text(scene(following.read()))


# --- layout ---------------------------------------------------------------------------------------


def test_a_frame_of_80_by_24_has_everything(runtime: Path, machine: Machine) -> None:
    shown = text(scene(follower(runtime).read()))
    assert len(shown.splitlines()) == 24
    for expected in (
        "earth",
        "recording",
        "CPU       25.0 %",
        "user 20.0 %",
        "cpu0     ██",
        " 50.0 % cpu1",
        "25.0 %  1.00 GiB of 4.00 GiB",
        "1.25  0.50  0.07  tasks 321, 2 runnable",
        "cpu 12.3 %",
        "sda          1.00 MiB/s    4.00 KiB/s",
        "eth0             1.46 KiB/s",
        "CPU 0.70 ms/s · probes 0.40 ms/s · RSS 11.0 MiB",
        "58 series · late 0.09 ms · 3 missed · 4 dropped",
        "in RAM 2 files, 3.00 MiB · on disk 5 files, 7.00 MiB · 5 min ago",
        "socket: no source",
        "q ends",
    ):
        assert expected in shown, f"{expected!r} is not in\n{shown}"
    assert "sr0" not in shown, "a drive that was never used has no line"


def test_nobody_waits_for_more_than_all_of_the_time(runtime: Path, machine: Machine) -> None:
    machine.ring.rows(PRESSURE, 130 * SECOND, ("cpu", "io"), [129 * 123000 + 1_040_000, 1_039_999, 0, 0])
    shown = text(scene(follower(runtime).read(), tick=130))
    assert "cpu 100.0 %, all 100.0 %" in shown, shown


def test_what_a_heading_says_can_be_asked_for(runtime: Path, machine: Machine) -> None:
    lines = text(scene(follower(runtime).read()), width=120, height=40).splitlines()
    own = {probe.table.name: probe.table for probe in generate.own_probes()}
    for title, table in (("Disk", own["disk"]), ("Network", own["network"])):
        (heading,) = [line for line in lines if line.startswith(f"{title}  ")]
        names = heading.split()[1:]
        assert len(names) >= 6
        assert {*names} <= {*(metric.name for metric in table.metrics), *of_table(table)}


def test_heat_and_batteries_are_shown_where_they_are(runtime: Path, machine: Machine) -> None:
    laptop = RingWriter(
        str(in_background(runtime) / "1.ring"),
        2**20,
        Identity(BOOT, "background", Sensitivity.PUBLIC, 2, 1 * SECOND),
        [Layout(table, 5 * SECOND) for table in (TEMPERATURE, CPU_THROTTLE, FAN, BATTERY)],
    )

    def rows(number: int, table: Table, tick: int, **instances: dict[str, int | str]) -> None:
        values = [values.get(metric.name, ABSENT) for values in instances.values() for metric in table.metrics]
        stored = [laptop.text(value) if isinstance(value, str) else value for value in values]
        laptop.rows(number, tick * SECOND, tuple(instances), stored)

    for tick in (120, 125):
        at = tick * SECOND
        laptop.clock(Relation(at, (1_700_000_000 + tick) * SECOND, at))
        rows(0, TEMPERATURE, tick, acpitz={"value": 54_000}, package={"value": 91_500, "crit": 100_000})
        rows(1, CPU_THROTTLE, tick, cpu0={"throttled_time": 0}, package0={"throttled_time": (tick - 120) * 100})
        rows(2, FAN, tick, left={"value": 0}, right={"value": 4100})
        used: dict[str, int | str] = {
            "capacity": 62,
            "status": "Discharging",
            "energy": 30_000_000,
            "power": -15_000_000,
            "discharging": 1,
            "scope": "System",
        }
        rows(3, BATTERY, tick, BAT0=used, BAT1={"capacity": 100, "status": "Full"}, mouse={"scope": "Device"})
    declared = {table.name: table.answers for table in (BATTERY, CPU_THROTTLE) if table.answers}
    following = Follower(Folders("/nowhere", str(runtime)), declared=lambda: declared)
    shown = text(scene(following.read()), width=120, height=40)
    assert "Heat     package 91.5 °C · slowed down 10.0 % · acpitz 54.0 °C · fan 4100 rpm" in shown
    assert "Battery  BAT0 62 % discharging, 15.0 W, 2 h left · BAT1 100 % full\n" in shown
    assert "Heat" not in text(scene(follower(runtime / "elsewhere").read()), height=40)


@pytest.mark.parametrize(
    ("value", "limits", "style"),
    [
        (91.5, {"crit": 100}, "red"),
        (80, {"crit": 100}, "yellow"),
        (60, {"crit": 100, "max": 61}, "green"),  # crit counts.
        (60, {"max": 61}, "red"),
        (-1, {"crit": 0, "max": 90}, "red"),  # A freezer: 0 is a limit.
        (-20, {"crit": 0}, "yellow"),
        (-40, {"crit": -5}, "green"),
        (120, {}, ""),
    ],
)
def test_heat_is_coloured_by_how_far_it_is_from_its_limit(
    value: float, limits: dict[str, int], style: str, runtime: Path
) -> None:
    ring = RingWriter(
        str(in_background(runtime) / "1.ring"),
        2**20,
        Identity(BOOT, "background", Sensitivity.PUBLIC, 2, 1 * SECOND),
        [Layout(TEMPERATURE, 5 * SECOND)],
    )
    ring.clock(Relation(120 * SECOND, 1_700_000_120 * SECOND, 120 * SECOND))
    told = {"value": round(value * 1000), **{name: limit * 1000 for name, limit in limits.items()}}
    ring.rows(0, 120 * SECOND, ("zone",), [told.get(metric.name, ABSENT) for metric in TEMPERATURE.metrics])
    lines = frame(scene(follower(runtime).read(), 121), 120, 40)
    (heat,) = (line for line in lines if line.plain.startswith("Heat"))
    at = heat.plain.index(f"{value:.1f}")
    assert {str(span.style) for span in heat.spans if span.start == at} == ({style} if style else set())


@pytest.mark.parametrize("cpus", [1, 2, 64])
@pytest.mark.parametrize("width", [20, 40, 79, 80, 132, 300])
@pytest.mark.parametrize("height", [1, 2, 8, 16, 24, 60])
def test_a_frame_fits_any_terminal(runtime: Path, cpus: int, width: int, height: int) -> None:
    machine = Machine(runtime, cpus=cpus)
    for tick in range(100, 103):
        machine.tick(tick)
    lines = frame(scene(follower(runtime).read(), 102, ("sampler: no priority",)), width, height)
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width


def test_the_last_values_stay_when_the_sampler_is_gone(runtime: Path, machine: Machine) -> None:
    shown = text(scene(follower(runtime).read(), tick=160))
    assert "waiting for the sampler: no tick for 31 s" in shown
    assert "recording" not in shown
    assert "1.00 GiB of 4.00 GiB" in shown


def test_messages_are_shown_and_harmless(runtime: Path, machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "messages"
    log.write_bytes(b"sampler: \x1b[2Jboo\n" * 20)
    lines = last_lines(str(log))
    assert lines == ["sampler: \x1b[2Jboo"] * 5
    assert "sampler: \\x1b[2Jboo" in text(scene(follower(runtime).read(), messages=tuple(lines)))
    assert last_lines(str(tmp_path / "absent")) == []


def test_a_terminal_without_unicode_gets_ascii(runtime: Path, machine: Machine) -> None:
    assert text(scene(follower(runtime).read()), signs=ASCII_SIGNS).isascii()


def test_numbers_have_three_digits() -> None:
    assert [size(each) for each in (0, 999, 1000, 2**20, 10 * 2**30)] == [
        "0 B",
        "999 B",
        "0.98 KiB",
        "1.00 MiB",
        "10.0 GiB",
    ]
    assert [number(each) for each in (0.4, 999, 1000, 12_345_678)] == ["0", "999", "1.00 k", "12.3 M"]
    assert [duration(each) for each in (0.9, 59, 61, 3600, 200_000)] == ["0 s", "59 s", "1 min 1 s", "1 h", "2 d 7 h"]


def test_the_shelf_counts_what_lies_there(tmp_path: Path) -> None:
    disk = tmp_path / "state/public/1s"
    disk.mkdir(parents=True)
    shelf = StoredFolders(Folders(str(tmp_path / "state"), str(tmp_path / "runtime")))
    assert shelf.look()._replace(state_dir="") == Storage()
    (disk / f"{BOOT}-00000001-00000001.h5").write_bytes(b"12345")
    (disk / f"{BOOT}-00000002-00000002.h5.new").write_bytes(b"67")
    seen = shelf.look()
    assert (seen.disk_files, seen.disk_bytes, seen.ram_files) == (1, 5, 0)
    assert seen.flushed_s == pytest.approx(time.time(), abs=60)
    for folder, length in (("state/public/process/1s", 7), ("runtime/archiver/restricted/command", 11)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{BOOT}-00000003-00000003.h5").write_bytes(b"x" * length)
    (tmp_path / "state/public/process/10s").mkdir()  # A tier, as public/10s is: rows are counted.
    seen = shelf.look()
    assert (seen.disk_files, seen.disk_bytes, seen.ram_files, seen.ram_bytes) == (2, 12, 1, 11)


def test_an_idle_disk_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "state/public/process/1s"
    folder.mkdir(parents=True)
    (folder / f"{BOOT}-00000001-00000001.h5").write_bytes(b"12345")
    shelf = StoredFolders(Folders(str(tmp_path / "state"), str(tmp_path / "runtime")))
    seen = shelf.look()

    def listed(path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.setattr(os, "listdir", listed)
    assert shelf.look() == seen
    assert seen.disk_files == 1


# --- who is busy ----------------------------------------------------------------------------------


def busy(following: Follower, busiest: Busiest) -> list[tuple[str, int, float]]:
    following.read()
    return [(each.comm, each.pid, round(each.cpus, 3)) for each in busiest.first(2)]


def test_the_busiest_are_those_whose_cpu_time_grew_most(runtime: Path) -> None:
    place = Folders("/nowhere", str(runtime))
    folder = runtime / "sampler/public/process"
    folder.mkdir(parents=True)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, 100 * SECOND)
    ring = RingWriter(str(folder / "1.ring"), 2**20, identity, [Layout(PROCESS, SECOND)])
    kinds = list(zip(PROCESS.metrics, codes(PROCESS), strict=True))

    def reading(tick: int, *rows: tuple[int, int, str, int | None], full: bool = False) -> None:
        found = [{"start": start, "pid": pid, "comm": comm, "cpu": cpu} for start, pid, comm, cpu in rows]
        packed, blob = pack(PROCESS, kinds, found)
        ring.records(0, tick * SECOND, [Records(packed, full, 0, len(rows), blob)], record_bytes(PROCESS))

    busiest = Busiest()
    following = Follower(place, streams={"process": busiest.take})
    assert busy(following, busiest) == []
    reading(100, (5, 1, "init", 70_000_000), (6, 7, "gzip", 1_000_000), full=True)
    assert busy(following, busiest) == [], "nobody knows how long that took"
    reading(101, (6, 7, "gzip", 1_900_000), (100 * SECOND + 5, 9, "new\n", 250_000), (4, 8, "old", 5_000_000))
    assert busy(following, busiest) == [("gzip", 7, 0.9), ("new\n", 9, 0.25)]
    reading(103, (6, 7, "gzip", None), (4, 8, "old", 5_500_000))
    assert busy(following, busiest) == [("old", 8, 0.25)], "two seconds"
    reading(104, (6, 7, "gzip", 2_000_000), (4, 8, "old", 5_500_000), (101 * SECOND, 1, "init", 1), full=True)
    assert busy(following, busiest) == [("gzip", 7, 0.1)], "another process of the same number began before"
    other = follower(runtime)
    other.attend(["process"])
    assert other.read().absences == []
    ring.absence(0, 105 * SECOND, Cause.NO_PERMISSION, "bpf")
    assert [table for table, *_ in other.read().absences] == ["process"]
    assert [table for table, *_ in following.read().absences] == ["process"]


def test_the_busiest_have_a_line(runtime: Path, machine: Machine) -> None:
    following = follower(runtime)
    some = (Busy("gzip", 7, 0.9), Busy("an-old-relation", 8, 0.25), Busy("x" * 15, 1234567, 0.001))
    shown = text(scene(following.read())._replace(busiest=some), 80, 40)
    assert "Busiest  gzip 7 90.0 % · an-old-relation 8 25.0 %" in shown
    assert "Busiest" not in text(scene(following.read()), 80, 40)


# --- on a terminal --------------------------------------------------------------------------------

BIN = Path(sys.executable).parent


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def recording(runtime: Path, state: Path) -> Iterator[Terminal]:
    """A terminal in which sysmond records."""
    terminal = Terminal(f"{BIN}/sysmond --state-dir {state} --runtime-dir {runtime}")
    yield terminal
    pid = runtime / "daemon/pid"
    with suppress(FileNotFoundError, ProcessLookupError):
        if "sysmond.daemon.runner" in cmdline(daemon := int(pid.read_text())):
            os.kill(daemon, signal.SIGTERM)
    terminal.close()


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def view_of(runtime: Path) -> int:
    """The process id of the view that the daemon of this folder started."""
    daemon = (runtime / "daemon/pid").read_text().strip()
    [child] = [
        int(child)
        for child in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
        if "sysmon_tools.live" in cmdline(int(child))
    ]
    return child


def shows_values(screen: str) -> bool:
    return bool("recording" in screen and re.search(r"CPU +\d+\.\d %", screen) and re.search(r"\d+ series", screen))


def assert_ended_in_order(screen: str, state: Path, code: int = 0) -> None:
    assert f"exit code {code}\n1\n" in screen
    assert "sysmond: flushed to" in screen
    assert list((state / "public/1s").glob("*.h5"))


@needs_tmux
def test_values_appear_soon_follow_the_size_and_q_ends_all(recording: Terminal, runtime: Path, state: Path) -> None:
    recording.until(shows_values)
    recording.resize(132, 40)
    wide = recording.until(lambda screen: shows_values(screen) and len(screen.splitlines()[0]) > 120)
    assert len(wide.splitlines()) == 40
    recording.resize(50, 10)
    recording.until(lambda screen: "CPU" in screen and max(map(len, screen.splitlines())) <= 50)
    recording.resize(80, 24)
    recording.keys("q")
    assert_ended_in_order(recording.until(has_ended), state)


@needs_tmux
def test_an_interrupt_ends_all_in_order(recording: Terminal, state: Path) -> None:
    recording.until(shows_values)
    recording.keys("C-c")
    assert_ended_in_order(recording.until(has_ended), state)


@needs_tmux
def test_the_death_of_the_view_ends_nothing(recording: Terminal, runtime: Path, state: Path) -> None:
    recording.until(shows_values)
    os.kill(view_of(runtime), signal.SIGKILL)
    recording.until(lambda screen: "the live view ended (SIGKILL); recording goes on" in screen)
    tick_ns = follower(runtime).read().tick_ns
    wait_until(lambda: follower(runtime).read().tick_ns != tick_ns)
    recording.keys("C-c")
    assert_ended_in_order(recording.until(has_ended), state)


@needs_tmux
def test_the_view_ends_with_the_daemon_and_says_what_the_parts_said(
    recording: Terminal, runtime: Path, state: Path
) -> None:
    recording.until(shows_values)
    sampler = int((runtime / "sampler/pid").read_text())
    os.kill(sampler, signal.SIGKILL)
    recording.until(lambda screen: "sampler ended (SIGKILL)" in screen)
    os.kill(int((runtime / "daemon/pid").read_text()), signal.SIGTERM)
    shown = recording.until(has_ended)
    assert "sysmond: sampler ended (SIGKILL)" in shown
    assert_ended_in_order(shown, state)


@needs_tmux
def test_a_view_of_its_own_outlives_the_daemon(runtime: Path, state: Path) -> None:
    daemon = [f"{BIN}/sysmond", "--state-dir", str(state), "--runtime-dir", str(runtime)]
    recorder = subprocess.Popen(daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    terminal = Terminal(f"{sys.executable} -P -m sysmon_tools.live --state-dir {state} --runtime-dir {runtime}")
    try:
        terminal.until(shows_values)
        recorder.terminate()
        assert recorder.wait(HANG_S) == 0
        terminal.until(lambda screen: "waiting for the sampler: no tick for" in screen)
        recorder = subprocess.Popen(
            daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        terminal.until(shows_values)
        terminal.keys("q")
        assert "exit code 0" in terminal.until(has_ended)
        assert recorder.poll() is None, "recording goes on"
    finally:
        terminal.close()
        recorder.terminate()
        recorder.wait(HANG_S)


def test_without_a_terminal_one_line_is_said(runtime: Path, state: Path) -> None:
    daemon = subprocess.Popen(
        [f"{BIN}/sysmond", "--state-dir", str(state), "--runtime-dir", str(runtime)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: follower(runtime).read().tick_ns is not None)
    finally:
        daemon.terminate()
        said, _ = daemon.communicate(timeout=HANG_S)
    assert daemon.returncode == 0
    assert said == f"sysmond: recording to {state}, the newest in {runtime}\n"
