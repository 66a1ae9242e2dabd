# SPDX-License-Identifier: Apache-2.0
"""The table ``package``: runs of dpkg become events, once, whatever becomes of its log."""

import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sysmond_probes import package

from sysmond.base.model import ABSENT, check_table
from sysmond.probe import Host, HostEvent
from sysmond.sources import dpkg_log

DAY = "2100-01-02"


class Machine:
    """A log, and a reader of it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.log = root / "var/log/dpkg.log"
        self.log.parent.mkdir(parents=True)
        (root / "lane").mkdir()
        self.log.write_text("")
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic_ns", lambda: round(self.now_s * 1e9))
        self.begin()

    def begin(self) -> None:
        self.host = Host(str(self.root))
        self.host.folder = str(self.root / "lane")
        self.packages = dpkg_log.PackageRuns()

    def writes(self, *lines: str) -> None:
        with self.log.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{DAY} {line}\n" for line in lines)

    def told(self, later_s: float = 0.0) -> list[HostEvent]:
        self.now_s += later_s
        [(_, self.row)] = self.packages.read(self.host)
        return self.host.take_events()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_table_is_well_formed() -> None:
    [probe] = package.sysmond_probes()
    check_table(probe.table)


def test_a_run_is_one_event_when_it_is_over(machine: Machine) -> None:
    machine.writes("10:00:00 startup archives unpack", "10:00:01 upgrade bash:amd64 5.1 5.2", "10:00:02 status x y z")
    assert machine.told() == []
    machine.writes("10:00:05 install htop:amd64 <none> 3.2", "10:00:06 remove nano:amd64 7.2 <none>")
    assert machine.told(15.0) == []
    [event] = machine.told(60.0)
    assert (event.kind, event.text) == (
        "packages",
        "installed htop:amd64 3.2; upgraded bash:amd64 5.1 → 5.2; removed nano:amd64 7.2",
    )
    assert list(machine.row) == [1, 1, 1]
    assert machine.told(60.0) == []


def test_many_packages_are_listed_in_the_detail(machine: Machine) -> None:
    machine.writes(*(f"10:00:00 upgrade p{number}:all 1 2" for number in range(20)))
    machine.told()
    [event] = machine.told(60.0)
    assert event.text == "upgraded p0:all 1 → 2, p1:all 1 → 2, p2:all 1 → 2 and 17 more"
    assert event.detail.endswith("p19:all 1 → 2")


def test_runs_that_are_apart_are_two_events(machine: Machine) -> None:
    machine.writes("10:00:00 upgrade a:all 1 2", "11:00:00 upgrade b:all 1 2")
    [first] = machine.told()
    [second] = machine.told(60.0)
    assert ["a:all" in first.text, "b:all" in second.text] == [True, True]


def test_a_log_that_is_rotated_or_emptied_loses_nothing(machine: Machine) -> None:
    machine.writes("10:00:00 upgrade a:all 1 2")
    machine.told()
    machine.writes("10:00:01 upgrade b:all 1 2")
    machine.log.rename(f"{machine.log}.1")
    machine.writes("10:00:02 upgrade c:all 1 2")
    machine.told()
    os.truncate(machine.log, 0)
    machine.told()
    machine.writes("10:00:03 upgrade d:all 1 2")
    machine.told()
    [event] = machine.told(60.0)
    assert event.detail == "upgraded: a:all 1 → 2, b:all 1 → 2, c:all 1 → 2, d:all 1 → 2"


def test_a_reader_that_is_started_again_tells_once_also_of_a_run_amid_which_it_ended(machine: Machine) -> None:
    machine.writes("10:00:00 upgrade a:all 1 2")
    machine.told()
    assert len(machine.told(60.0)) == 1
    machine.told(1.0)
    machine.writes("12:00:00 upgrade b:all 1 2")
    machine.told()  # Ends before the run is over.
    machine.begin()
    assert machine.told() == []
    [event] = machine.told(60.0)
    assert event.text == "upgraded b:all 1 → 2"


def test_what_is_older_than_the_boot_is_not_told(machine: Machine) -> None:
    machine.log.write_text("2001-01-02 10:00:00 upgrade a:all 1 2\n")
    machine.told()
    assert machine.told(60.0) == []


def test_a_run_of_this_boot_before_the_recorder_has_its_own_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: 86_400 * 10**9)
    then_s = int(time.time()) - 3600
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then_s))
    machine.log.write_text(f"{local} upgrade a:all 1 2\n")
    machine.told()
    [event] = machine.told(60.0)
    assert event.known_from == "dpkg's log"
    assert event.happened_ns == then_s * 10**9 != ABSENT


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "2026-13-45 10:00:00 upgrade a 1 2",
        "upgrade upgrade upgrade a 1 2",
        f"{DAY} 10:00:00 upgrade a 1",
        "\0",
    ],
)
def test_what_is_no_action_is_passed_over(line: str) -> None:
    assert dpkg_log.parse(line) is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Dublin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"])
def test_times_are_those_of_the_time_zone_also_where_clocks_change(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for step in range(
            548 * 24 * 2
        ):  # Each half hour of a year and a half, also those left out and those that come twice.
            when = datetime(2010, 7, 1) + step * timedelta(minutes=30)  # noqa: DTZ001  of the machine's zone
            action = dpkg_log.parse(f"{when} install bash:amd64 <none> 5.2-1")
            assert action is not None
            assert action.time_ns == int(when.timestamp()) * 10**9, when
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "when", ["2026-02-29 10:00:00", "2026-13-01 10:00:00", "2026-11-24 24:00:00", "2026-11 10:00:00"]
)
def test_a_time_that_there_is_not_is_passed_over(when: str) -> None:
    assert dpkg_log.parse(f"{when} install bash:amd64 <none> 5.2-1") is None


def test_half_a_line_is_not_lost_when_a_reader_is_started_again(machine: Machine) -> None:
    with machine.log.open("a") as file:
        file.write(f"{DAY} 10:00:00 upgrade a:all 1")
    machine.told()
    machine.begin()
    with machine.log.open("a") as file:
        file.write(" 2\n")
    machine.told()
    [event] = machine.told(60.0)
    assert event.text == "upgraded a:all 1 → 2"


def test_half_a_line_waits_for_its_rest(machine: Machine) -> None:
    with machine.log.open("a") as file:
        file.write(f"{DAY} 10:00:00 upgrade a:all 1")
    machine.told()
    with machine.log.open("a") as file:
        file.write(" 2\n")
    machine.told()
    [event] = machine.told(60.0)
    assert event.text == "upgraded a:all 1 → 2"


def test_bytes_that_are_no_text_are_escaped(machine: Machine) -> None:
    machine.writes("10:00:00 upgrade a\udcff:all 1 2")
    machine.told()
    [event] = machine.told(60.0)
    assert event.text == "upgraded a\\xff:all 1 → 2"


def test_a_machine_without_a_log_has_no_row(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(dpkg_log.PackageRuns().read(Host(str(tmp_path))))
