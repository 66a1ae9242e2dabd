# SPDX-License-Identifier: Apache-2.0
"""Units: what becomes of them is heard on a real bus, once, from nobody but systemd; a storm is let go by."""

import math
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sysmond_probes import unit as probe

from sysmond.base.model import Lane, Sensitivity, check_table
from sysmond.probe import Host, HostEvent
from sysmond.sources import startup, units
from sysmond.sources.sd_bus import LOGIND
from sysmond.sources.unit_states import COUNTED, FAILED, SYSTEMD, UNIT, UNITS_MAX, UnitChange, UnitStates
from sysmond.sources.units import MACHINED, OOMD, Units, name_of
from tests.support.onbus import a_bus, pytestmark
from tests.support.onsystemd import PATH, PROPERTIES, Systemd, now_us, speaking, typed, unit_values
from tests.support.waiting import wait_until

__all__ = ["pytestmark"]

EARLIER_US = 1_000_000


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with a_bus() as bus:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        yield bus.address


@pytest.fixture
def systemd(address: str) -> Iterator[Systemd]:
    with speaking(address, SYSTEMD, MACHINED, OOMD, LOGIND[0]) as made:
        yield made


class Ear:
    """A probe that hears."""

    def __init__(self, folder: str = "") -> None:
        self.host = Host()
        self.host.folder = folder
        self.units = Units()
        self.events: list[HostEvent] = []
        self.counts: dict[str, int] = {}
        self.hear()

    def hear(self) -> None:
        [(_, values)] = self.units.read(self.host)
        self.counts = dict(zip((*COUNTED.values(), "overruns"), map(int, values), strict=True))
        self.events += self.host.take_events()

    def hears_of(self, kind: str) -> bool:
        """Hear what wakes it; whether there was an event of that kind."""
        if self.host.wakes is not None and self.host.wakes.poll(0.02):
            self.hear()
        return any(event.kind == kind for event in self.events)

    def hears(self, count: int) -> list[tuple[str, str, str]]:
        """Wait for so many events: what wakes the lane has to become readable for each reading."""

        def has() -> bool:
            self.hears_of("")
            return len(self.events) >= count

        wait_until(has, lambda: str(self.events))
        assert len(self.events) == count
        return [event[:3] for event in self.events]


@pytest.fixture
def ear(systemd: Systemd) -> Iterator[Ear]:
    made = Ear()
    wait_until(lambda: "ListUnitsFiltered" in systemd.tell("called"))
    with closing(made.host):
        yield made


def test_the_table_is_for_everybody_and_in_the_background() -> None:
    [offered] = probe.sysmond_probes()
    check_table(offered.table)
    assert (offered.lane, offered.sensitivity) == (Lane.BACKGROUND, Sensitivity.PUBLIC)
    assert [metric.name for metric in offered.table.metrics] == [*COUNTED.values(), "overruns"]


def test_a_service_that_fails_is_told_with_how_it_ended_and_once(ear: Ear, systemd: Systemd) -> None:
    failed_us = now_us()
    for _ in range(3):  # Systemd says the same again when something else about the unit changes.
        systemd.service("exit-code", 1, 203)
        systemd.state("failed", "failed", failed_us)
    systemd.state("failed", "failed", failed_us + 1)
    systemd.state("active", "running", now_us())
    wait_until(lambda: ear.hears_of("unit started"), lambda: str(ear.events))
    assert ear.counts["failed"] == 2
    assert {event[:2] for event in ear.events if event.kind == FAILED} == {(FAILED, "backup.service")}
    assert all(event.text.endswith("exit-code, status 203") for event in ear.events if event.kind == FAILED)


def test_that_the_machine_is_to_be_turned_off_is_told(ear: Ear, systemd: Systemd) -> None:
    for value in (False, True):
        body = [value]
        systemd.tell("signal", *LOGIND, "PrepareForShutdown", "b", body)
    assert ear.hears(1) == [("shutdown", "", "requested")]


def test_a_service_is_started_and_stopped(ear: Ear, systemd: Systemd) -> None:
    systemd.service("success", 1, 0)
    systemd.state("activating", "start", 0)
    systemd.state("active", "running", now_us())
    assert ear.hears(1) == [("unit started", "backup.service", "")]
    systemd.state("inactive", "dead", now_us())
    assert ear.hears(2)[1:] == [("unit stopped", "backup.service", "")]


def test_what_began_before_anybody_listened_is_no_news(ear: Ear, systemd: Systemd) -> None:
    systemd.state("active", "running", EARLIER_US)
    systemd.state("inactive", "dead", EARLIER_US, path="/org/freedesktop/systemd1/unit/b_2eservice")
    systemd.state("active", "running", now_us(), path="/org/freedesktop/systemd1/unit/user_401000_2eservice")
    systemd.state("active", "running", now_us(), path="/org/freedesktop/systemd1/unit/a_2etimer")
    systemd.state("active", "running", now_us(), path="/org/freedesktop/systemd1/unit/last_2eservice")
    assert ear.hears(1) == [("unit started", "last.service", "")]


def test_a_restart_is_one_event_and_a_failure_or_a_start_is_none_beside_it(ear: Ear, systemd: Systemd) -> None:
    """In the order in which systemd 252 says it."""
    systemd.service("exit-code", 1, 3, restarts=4)
    systemd.state("failed", "failed", now_us())
    systemd.state("activating", "auto-restart", 0)
    systemd.service("exit-code", 1, 3, restarts=5)
    systemd.state("activating", "auto-restart", 0)
    systemd.service("success", 0, 0, restarts=5)
    systemd.state("inactive", "dead", now_us())
    systemd.state("active", "running", now_us())
    systemd.service("core-dump", 3, 6, restarts=8)  # What is between was too short to be said.
    systemd.state("active", "running", now_us())
    systemd.state("inactive", "dead", now_us())
    wait_until(lambda: ear.hears_of("unit stopped"), lambda: str(ear.events))
    texts = [event.text for event in ear.events if event.kind == "unit restarted"]
    assert texts[-1].endswith("3 times; core-dump, core dumped, signal 6")
    assert "unit started" not in {event.kind for event in ear.events}


def test_a_service_that_may_not_start_again_has_failed_at_the_moment_at_which_it_was_inactive() -> None:
    states = UnitStates(0, 0)
    assert not list(states.unit("a.service", {"ActiveState": "activating", "SubState": "auto-restart"}))[1:]
    said = [("inactive", "dead"), ("failed", "failed"), ("failed", "failed")]
    changes = [change for state, sub in said for change in states.unit("a.service", unit_values(state, sub, 5))]
    assert [change.kind for change in changes] == [FAILED]


@pytest.mark.parametrize("has_queue", [False, True])
def test_restarts_are_counted_once_whatever_systemd_says_of_them(*, has_queue: bool) -> None:
    states = UnitStates(0, 0)
    said = [("auto-restart", 0), ("auto-restart", 1), *[("auto-restart-queued", 1)] * has_queue, ("start", 1)]
    said += [("running", 1), ("auto-restart", 1), ("start", 2), ("running", 4), ("running", 0)]
    changes: list[UnitChange] = []
    for sub, counted in said:
        states.service("a.service", {"NRestarts": counted, "Result": "timeout"})
        changes += states.unit("a.service", {"ActiveState": "activating", "SubState": sub})
    assert [change.text for change in changes] == ["timeout", "timeout", "2 times; timeout"]


def test_a_job_that_came_to_nothing_is_a_failure(ear: Ear, systemd: Systemd) -> None:
    manager = ("signal", SYSTEMD, "/org/freedesktop/systemd1", f"{SYSTEMD}.Manager", "JobRemoved", "uoss")
    for result in ("done", "canceled", "dependency"):
        systemd.tell(*manager, [5, "/org/freedesktop/systemd1/job/5", f"{result}.mount", result])
    assert ear.hears(1) == [(FAILED, "dependency.mount", "not started: a unit that it needs was not started")]


def test_machines_and_whom_oomd_killed_are_told(ear: Ear, systemd: Systemd) -> None:
    where = "/org/freedesktop/machine1"
    systemd.tell("signal", MACHINED, where, f"{MACHINED}.Manager", "MachineNew", "so", ["web", "/m/web"])
    systemd.tell("signal", MACHINED, where, f"{MACHINED}.Manager", "MachineRemoved", "so", ["db", "/m/db"])
    killed = ["/user.slice/app-\x1b[2J.scope", "memory-pressure"]
    systemd.tell("signal", OOMD, "/org/freedesktop/oom1", f"{OOMD}.Manager", "Killed", "ss", killed)
    assert sorted(ear.hears(3)) == [
        ("machine", "db", "ended"),
        ("machine", "web", "started"),
        ("oom kill", "app- [2J.scope", "by systemd-oomd, of /user.slice/app- [2J.scope: memory-pressure"),
    ]


def test_nobody_else_can_tell_of_units(ear: Ear, systemd: Systemd, address: str) -> None:
    with speaking(address, "org.example.Stranger") as stranger:
        stranger.tell("to all")
        stranger.state("failed", "failed", now_us())
    systemd.state("active", "running", now_us())
    assert ear.hears(1) == [("unit started", "backup.service", "")]


def test_nonsense_is_no_news_and_what_follows_is_heard(ear: Ear, systemd: Systemd) -> None:
    systemd.changed(UNIT, {"ActiveState": 5, "SubState": "failed"})
    systemd.tell("signal", SYSTEMD, PATH, PROPERTIES, "PropertiesChanged", "su", [UNIT, 7])
    systemd.state("active", "running", now_us())
    assert ear.hears(1) == [("unit started", "backup.service", "")]


ANALYZED = {
    "FinishTimestamp": 1_700_000_000_000_000,
    "FirmwareTimestampMonotonic": 6_500_000,
    "LoaderTimestampMonotonic": 1_500_000,
    "InitRDTimestampMonotonic": 2_000_000,
    "UserspaceTimestampMonotonic": 5_000_000,
    "FinishTimestampMonotonic": 20_000_001,
}


def listed_unit(name: str, state: str = "active", path: str = PATH) -> dict[str, object]:
    return {"of": [name, name, "loaded", state, "running", "", path, 0, "", "/"]}


@pytest.mark.parametrize("late_s", [0.0, math.inf])
def test_a_boot_is_told_once_when_it_is_over_with_the_units_that_began_slowly(
    systemd: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """As ``systemd-analyze time`` and ``blame`` of such a boot print it; that it is not over yet comes before."""
    monkeypatch.setattr(startup, "LATE_BOOT_S", late_s)
    systemd.tell("answer", "GetAll", "a{sv}", [typed({**ANALYZED, "FinishTimestampMonotonic": 0})])
    there = [listed_unit(name) for name in ("a.service", "b.mount", "c.timer")]
    there.append(listed_unit("slow.service", "activating"))
    systemd.tell("answer", "ListUnits", "a(ssssssouso)", [[*there, listed_unit("d.service", "failed")]])
    ear = Ear(str(tmp_path))
    with closing(ear.host):
        wait_until(lambda: ear.hears_of("startup" if not late_s else "") or "GetAll" in systemd.tell("called"))
        if not late_s:
            wait_until(lambda: ear.hears_of("startup"))
            ear.hear()
        begun = {"InactiveExitTimestampMonotonic": 6_000_000, "ActiveEnterTimestampMonotonic": 9_500_000}
        systemd.tell("answer", "GetAll", "a{sv}", [typed({**ANALYZED, **begun})])
        finished = f"{SYSTEMD}.Manager", "StartupFinished", "t", [1]
        systemd.tell("signal", SYSTEMD, "/org/freedesktop/systemd1", *finished)
        wait_until(lambda: ear.hears_of("") or any("26.500 s" in event.text for event in ear.events))
        systemd.tell("signal", SYSTEMD, "/org/freedesktop/systemd1", *finished)
        systemd.state("active", "running", now_us())
        wait_until(lambda: ear.hears_of("unit started"))
    *unfinished, over = [event for event in ear.events if event.kind == "startup"]
    assert [event.detail for event in unfinished] == ([] if late_s else ["slow.service"])
    assert all(re.fullmatch(r"unfinished after \d+ s", event.text) for event in unfinished)
    assert over.text == "26.500 s: firmware 5.000 s, loader 1.500 s, kernel 2.000 s, initrd 3.000 s, userspace 15.000 s"
    assert over.detail == "a.service 3.500 s @6.000 s, b.mount 3.500 s @6.000 s"
    assert over.happened_ns == 1_700_000_000_000_000_000
    asked = systemd.tell("called").count("GetAll")
    again = Ear(str(tmp_path))
    with closing(again.host):
        wait_until(lambda: again.hears_of("") or systemd.tell("called").count("ListUnitsFiltered") == 2)
        systemd.state("inactive", "dead", now_us())
        wait_until(lambda: again.hears_of("unit stopped"))
    assert [event for event in again.events if event.kind == "startup"] == []
    assert systemd.tell("called").count("GetAll") == asked


def test_a_boot_tells_what_it_waited_for_and_asks_of_devices_only_those(systemd: Systemd, tmp_path: Path) -> None:
    """As ``systemd-analyze critical-chain`` of such a boot, whose times count from the userspace, prints it."""
    begun: dict[str, tuple[float, float, list[str]]] = {
        "multi-user.target": (19, 19, ["web.service", "basic.target", "quick.service"]),
        "basic.target": (9, 9, ["data.mount", "-.slice"]),
        "web.service": (10, 19, ["basic.target", "net.socket", "unknown.service"]),
        "quick.service": (9, 9.5, ["basic.target"]),
        "net.socket": (8.5, 8.5, []),
        "data.mount": (8, 9, ["dev-sda1.device"]),
        "dev-sda1.device": (0.5, 7.75, []),
        "dev-sdb.device": (0.5, 8.75, []),
    }
    paths = {name: f"{PATH}{number}" for number, name in enumerate(begun)}
    systemd.tell("answer", "GetAll", "a{sv}", [typed(ANALYZED)])
    systemd.tell("answer", "ListUnits", "a(ssssssouso)", [[listed_unit(name, path=paths[name]) for name in begun]])
    for name, (begin_s, active_s, after) in begun.items():
        times = {"InactiveExitTimestampMonotonic": begin_s, "ActiveEnterTimestampMonotonic": active_s}
        values = {key: round(time_s * 1_000_000) for key, time_s in times.items()}
        systemd.tell("answer", f"GetAll {paths[name]}", "a{sv}", [typed({**values, "After": after})])
    ear = Ear(str(tmp_path))
    with closing(ear.host):
        wait_until(lambda: ear.hears_of("startup"))
    [over] = [event for event in ear.events if event.kind == "startup"]
    assert over.detail == (
        "web.service 9.000 s @10.000 s, data.mount 1.000 s @8.000 s, quick.service 0.500 s @9.000 s; chain:"
        " multi-user.target @19.000 s, web.service @10.000 s +9.000 s, basic.target @9.000 s,"
        " data.mount @8.000 s +1.000 s, dev-sda1.device @0.500 s +7.250 s"
    )
    # The manager, and all but the other device.
    assert systemd.tell("called").split().count("GetAll") == len(begun)


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [
        (("Firmware", "Loader", "InitRD"), "20.000 s: kernel 5.000 s, userspace 15.000 s"),
        (("Firmware",), "21.500 s: loader 1.500 s, kernel 2.000 s, initrd 3.000 s, userspace 15.000 s"),
    ],
)
def test_a_phase_that_there_was_not_is_left_out(lacking: tuple[str, ...], expected: str) -> None:
    values = {name: value for name, value in ANALYZED.items() if not name.startswith(lacking)}
    assert [change.text for change in startup.startup(values)] == [expected]
    assert list(startup.startup({})) == list(startup.startup({"FinishTimestampMonotonic": 0})) == []
    [late] = startup.startup({"FinishTimestampMonotonic": 0}, 600.4)
    assert (late.kind, late.text) == ("startup", "unfinished after 600 s")
    assert [change.text for change in startup.startup(values, 600.4)] == [expected]


def failed_before(systemd: Systemd, time_us: int) -> None:
    listed = ["backup.service", "Backup", "loaded", "failed", "failed", "", PATH, 0, "", "/"]
    systemd.tell("answer", "ListUnitsFiltered", "a(ssssssouso)", [[{"of": listed}]])
    values = {"Result": "exit-code", "ExecMainCode": 1, "ExecMainStatus": 2, "NRestarts": 0}
    systemd.tell("answer", "GetAll", "a{sv}", [typed({**values, **unit_values("failed", "failed", time_us)})])


def test_what_failed_before_is_told_with_its_time_and_once(systemd: Systemd, tmp_path: Path) -> None:
    failed_before(systemd, EARLIER_US)
    first = Ear(str(tmp_path))
    with closing(first.host):
        assert first.hears(1) == [(FAILED, "backup.service", "exit-code, status 2")]
    assert first.events[0][4:] == ((5_000_000 + EARLIER_US) * 1000, "systemd")
    failed_us = EARLIER_US + 1
    second = Ear(str(tmp_path))
    with closing(second.host):
        wait_until(lambda: systemd.tell("called").count("GetAll") >= 5)
        systemd.state("failed", "failed", failed_us, path="/org/freedesktop/systemd1/unit/b_2eservice")
        assert [event[1] for event in second.hears(1)] == ["b.service"]


def test_a_systemd_that_begins_anew_is_heard_and_a_bus(address: str) -> None:
    with speaking(address, SYSTEMD) as systemd:
        ear = Ear()
        systemd.state("active", "running", now_us())
        ear.hears(1)
    with speaking(address, SYSTEMD) as systemd:

        def asks() -> bool:
            ear.hear()
            return "Subscribe" in systemd.tell("called")

        wait_until(asks)
        systemd.state("inactive", "dead", now_us())
        ear.hears(2)
    ear.host.close()


def test_a_bus_that_dies_is_connected_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bus() as bus:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        ear = Ear()
        bus.kill()
        ear.hear()
        assert ear.host.wakes is None
        with pytest.raises(OSError, match="D-Bus is not running"):
            ear.hear()
        bus.start()
        with speaking(bus.address, SYSTEMD) as systemd:
            ear.hear()
            wait_until(lambda: "Subscribe" in systemd.tell("called"))
            systemd.state("failed", "failed", now_us())
            ear.hears(1)
        ear.host.close()


def test_a_storm_is_counted_and_let_go_by(ear: Ear, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MESSAGES_MAX", 50)
    for number in range(60):
        systemd.state("failed", "failed", now_us(), path=f"/org/freedesktop/systemd1/unit/u{number}_2eservice")
    ear.hear()
    [event] = ear.events
    assert event[:3] == (FAILED, "", f"{ear.counts['failed']} at once")
    assert event.detail.startswith("u0.service, u1.service, ")
    assert (ear.counts["overruns"], ear.host.wakes) == (1, None)
    ear.hear()
    wait_until(lambda: systemd.tell("called").count("Subscribe") == 2)


def test_a_name_that_a_path_spells_is_read() -> None:
    assert name_of("/org/freedesktop/systemd1/unit/dev_2dsda_2edevice") == "dev-sda.device"
    assert name_of("/org/freedesktop/systemd1/unit/_ff_zz") == "\\xff_zz"
    assert name_of("") == ""


def test_what_is_remembered_is_bounded() -> None:
    states = UnitStates(0, 0)
    for number in range(UNITS_MAX + 10):
        states.service(f"{number}.service", {"NRestarts": 1})
        changes = states.unit(f"{number}.service", {"ActiveState": "active", "ActiveEnterTimestampMonotonic": 1})
        assert len(list(changes)) == 1
    assert len(states._services) == len(states._seen_us) == len(states._restarts) == UNITS_MAX


def test_without_a_bus_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
    with pytest.raises(FileNotFoundError, match="D-Bus is not running"):
        Ear()
