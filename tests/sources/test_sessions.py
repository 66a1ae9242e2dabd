# SPDX-License-Identifier: Apache-2.0
"""Sessions: who logs in and out, locks and unlocks, is heard on a real bus."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sysmond_probes import session as probe

from sysmond.base.model import Lane, Sensitivity, check_table
from sysmond.probe import Host, HostEvent
from sysmond.sources import wtmp, wtmpdb
from sysmond.sources.sd_bus import LOGIND
from sysmond.sources.sessions import FOLDER, PATH, SESSION, Sessions, parse
from tests.support.onbus import a_bus, pytestmark
from tests.support.onsystemd import PROPERTIES, Systemd, speaking
from tests.support.waiting import wait_until

__all__ = ["pytestmark"]

OF_ANN = "UID=1000\nUSER=ann\nCLASS=user\nSEAT=seat0\nREMOTE=0\n"
OF_BOB = "UID=1001\nUSER=bob\nREMOTE=1\nREMOTE_HOST=192.0.2.7\n"
OF_GREETER = "UID=110\nUSER=gdm\nCLASS=greeter\n"


@pytest.fixture
def logind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    with a_bus() as bus, speaking(bus.address, LOGIND[0]) as made:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        yield made


class Doorkeeper:
    """A probe that hears, and the files of sessions."""

    def __init__(self, root: Path, logind: Systemd) -> None:
        self.folder = root / FOLDER.lstrip("/")
        self.folder.mkdir(parents=True)
        self.host = Host(str(root))
        self.logind = logind
        self.sessions = Sessions()
        self.events: list[HostEvent] = []

    def read(self) -> tuple[int, ...]:
        [(_, values)] = self.sessions.read(self.host)
        self.events += self.host.take_events()
        return tuple(map(int, values))

    def says(self, member: str, name: str) -> None:
        self.logind.tell("signal", LOGIND[0], LOGIND[1], LOGIND[2], member, "so", [name, f"{PATH}/_3{name}"])

    def locks(self, name: str, value: object) -> None:
        body = [SESSION, {"IdleHint": {"as": "b", "is": True}, "LockedHint": value}, []]
        self.logind.tell("signal", LOGIND[0], f"{PATH}/_3{name}", PROPERTIES, "PropertiesChanged", "sa{sv}as", body)

    def hears(self, count: int) -> list[tuple[str, str]]:
        def has() -> bool:
            if self.host.wakes is not None and self.host.wakes.poll(0.02):
                self.read()
            return len(self.events) >= count

        wait_until(has, lambda: str(self.events))
        return [event[1:3] for event in self.events]


@pytest.fixture
def keeper(tmp_path: Path, logind: Systemd) -> Iterator[Doorkeeper]:
    made = Doorkeeper(tmp_path, logind)
    with closing(made.host):
        yield made


def test_the_table_is_restricted_and_in_the_background() -> None:
    [offered] = probe.sysmond_probes()
    check_table(offered.table)
    assert (offered.lane, offered.sensitivity) == (Lane.BACKGROUND, Sensitivity.RESTRICTED)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (OF_ANN, ("ann", "seat0")),
        (OF_BOB, ("bob", "from 192.0.2.7")),
        (OF_GREETER, None),
        ("", None),
        ("\0=\xff", None),
    ],
)
def test_whose_a_session_is_is_read(content: str, expected: tuple[str, str] | None) -> None:
    assert parse(content) == expected


def test_who_comes_locks_unlocks_and_goes_is_told(keeper: Doorkeeper) -> None:
    (keeper.folder / "1").write_text(OF_BOB)
    keeper.read()
    (keeper.folder / "2").write_text(OF_ANN)
    (keeper.folder / "3").write_text(OF_GREETER)
    keeper.says("SessionNew", "3")
    keeper.says("SessionNew", "2")
    for value in (True, True, False):
        keeper.locks("2", {"as": "b", "is": value})
    keeper.hears(3)
    (keeper.folder / "2").unlink()
    keeper.says("SessionRemoved", "2")
    keeper.says("SessionRemoved", "3")
    keeper.says("SessionRemoved", "1")
    said = [("ann", "logged in (seat0)"), ("ann", "locked"), ("ann", "unlocked"), ("ann", "logged out")]
    assert keeper.hears(5) == [*said, ("bob", "logged out")]
    assert keeper.read() == (1, 2, 1, 1)


class Past:
    """A log of who came before, and readers that begin anew."""

    def __init__(self, root: Path) -> None:
        self.path = root / wtmp.PATH.lstrip("/")
        self.path.parent.mkdir(parents=True)
        self.root = root
        (root / "lane").mkdir()

    def write(self, *names: str, ago_s: float) -> None:
        second = int(time.time() - ago_s)
        with self.path.open("ab") as file:
            for name in names:
                line = f"pts/{name}".encode()
                file.write(wtmp.RECORD.pack(wtmp.LOGIN, line, name.encode(), b"192.0.2.7", second, 0))

    def host(self) -> Host:
        made = Host(str(self.root))
        made.folder = str(self.root / "lane")
        return made

    def begin(self) -> list[HostEvent]:
        """What a reader tells that begins anew, until it has told all."""
        host, sessions, events = self.host(), Sessions(), []
        with closing(host):
            host.is_wanted_soon = True
            while host.is_wanted_soon:
                host.is_wanted_soon = False
                list(sessions.read(host))
                events += host.take_events()
        return events


def test_who_came_before_is_told_once_in_this_boot(keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: 86_400 * 10**9)
    past = Past(Path(keeper.host.root))
    past.write("old", ago_s=2 * 86_400)
    past.write("ann", ago_s=3600)
    [event] = past.begin()
    assert event[:3] == ("session", "ann", "logged in (from 192.0.2.7)")
    assert event.known_from == "wtmp"
    assert 3590 <= (time.time_ns() - event.happened_ns) / 1e9 <= 3660
    past.write("late", ago_s=1800)  # It was not recorded in between, and is no news of later, either.
    assert past.begin() == []


def test_many_who_came_before_are_told_little_by_little_also_by_the_next_reader(
    keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: 86_400 * 10**9)
    past = Past(Path(keeper.host.root))
    for number in range(50):
        past.write(f"u{number}", ago_s=3600 - number)
    host = past.host()
    with closing(host):
        list(Sessions().read(host))
        first = host.take_events()
    rest = past.begin()
    assert [event.subject for event in [*first, *rest]] == [f"u{number}" for number in range(50)]
    assert 0 < len(first) < len(rest)


def test_a_database_of_before_is_read_and_the_log_beside_it_is_not(
    keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: 86_400 * 10**9)
    past = Past(Path(keeper.host.root))
    past.write("stale", ago_s=3600)
    path = past.root / wtmpdb.PATH.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff" * 100)
    host = past.host()
    with closing(host):
        list(Sessions().read(host))
        assert [event[1:2] + event[5:] for event in host.take_events()] == [("stale", "wtmp")]
    assert "not known by wtmpdb" in (past.root / "lane" / "session.way").read_text()
    (past.root / "lane" / "session.seen").unlink()
    path.unlink()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE wtmp (ID INTEGER PRIMARY KEY, Type, User, Login, Logout, TTY, RemoteHost)")
        at_us = (time.time_ns() - 1800 * 10**9) // 1000
        database.execute("INSERT INTO wtmp VALUES (1, 3, 'ann', ?, ?, 'tty2', NULL)", (at_us, at_us + 5))
    events = past.begin()
    assert [event[1:3] for event in events] == [("ann", "logged in (tty2)"), ("ann", "logged out")]
    assert {event.known_from for event in events} == {"wtmpdb"}
    assert past.begin() == []


def test_a_log_of_before_that_is_damaged_costs_nothing(keeper: Doorkeeper) -> None:
    past = Past(Path(keeper.host.root))
    past.path.write_bytes(b"\xff" * 5000)
    (past.root / "lane" / "session.seen").write_bytes(b"\xffx")
    assert past.begin() == []
    past.path.unlink()
    past.path.mkdir()
    (past.root / "lane" / "session.seen").unlink()
    assert past.begin() == []


def test_nonsense_is_no_news(keeper: Doorkeeper) -> None:
    keeper.read()
    keeper.locks("2", {"as": "b", "is": True})
    keeper.locks("2", {"as": "s", "is": "yes"})
    keeper.logind.tell("signal", LOGIND[0], LOGIND[1], LOGIND[2], "SessionNew", "u", [5])
    keeper.logind.tell("signal", LOGIND[0], LOGIND[1], LOGIND[2], "SessionNew", "so", ["../2", "/x"])
    (keeper.folder / "2").write_text(OF_ANN)
    keeper.says("SessionNew", "2")
    assert keeper.hears(1) == [("ann", "logged in (seat0)")]
