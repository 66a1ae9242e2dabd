# SPDX-License-Identifier: Apache-2.0
"""The database of wtmpdb: who came and went, in which span, read by a child that ends, and whatever else lies there."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sysmond.sources import wtmpdb
from sysmond.sources.wtmp import PastLogin
from sysmond.sources.wtmpdb import is_there, read
from tests.support.leftovers import present

# As wtmpdb 0.13 makes it.
SCHEMA = (
    "CREATE TABLE wtmp (ID INTEGER PRIMARY KEY, Type INTEGER, User TEXT NOT NULL, Login INTEGER, Logout INTEGER,"
    " TTY TEXT, RemoteHost TEXT, Service TEXT)"
)
BOOT, USER = 1, 3
SECOND_US = 1_000_000
EVER_NS = 2**62


def database(path: Path, *rows: Sequence[object], schema: str = SCHEMA) -> str:
    with closing(sqlite3.connect(path)) as made, made:
        made.execute(schema)
        made.executemany(
            "INSERT INTO wtmp (Type, User, Login, Logout, TTY, RemoteHost) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
    return str(path)


def test_who_came_and_went_is_read_in_order(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a b%?#.db",
        (BOOT, "reboot", 100 * SECOND_US, None, "~", "6.12"),
        (USER, "ann", 200 * SECOND_US + 5, 600 * SECOND_US, "tty2", None),
        (USER, "bob", 300 * SECOND_US, None, "pts/0", "192.0.2.7"),
    )
    assert read(path, 0, EVER_NS) == [
        PastLogin(200_000_005_000, "ann", "tty2", has_come=True),
        PastLogin(300_000_000_000, "bob", "from 192.0.2.7", has_come=True),
        PastLogin(600_000_000_000, "ann", "tty2", has_come=False),
    ]
    assert [login.user for login in read(path, 250 * 10**9, 400 * 10**9)] == ["bob"]
    assert [login.has_come for login in read(path, 400 * 10**9, EVER_NS)] == [False]


def test_it_is_read_while_others_write_and_nothing_is_written(tmp_path: Path) -> None:
    path = database(tmp_path / "wtmp.db", (USER, "ann", SECOND_US, None, "tty2", None))
    os.chmod(path, 0o444)
    before = os.stat(path).st_mtime_ns
    assert [login.user for login in read(path, 0, EVER_NS)] == ["ann"]
    assert os.stat(path).st_mtime_ns == before
    assert os.listdir(tmp_path) == ["wtmp.db"]


@pytest.mark.parametrize(
    "row",
    [
        (USER, "", SECOND_US, None, "", None),
        (USER, "ann", -5, None, "", None),
        (USER, "ann", None, None, "", None),
        (USER, "ann", 0, 0, None, None),
    ],
)
def test_what_is_no_login_is_passed_over(tmp_path: Path, row: Sequence[object]) -> None:
    assert read(database(tmp_path / "wtmp.db", row), 0, EVER_NS) == []


def test_what_a_terminal_would_obey_is_not_in_it(tmp_path: Path) -> None:
    path = database(tmp_path / "wtmp.db", (USER, "\x1b[2J" + "x" * 500, SECOND_US, None, "", "a\nb"))
    [login] = read(path, 0, EVER_NS)
    assert login.user == ("[2J" + "x" * 500)[: len(login.user)]
    assert len(login.user) < 70
    assert login.place == "from a b"


@pytest.mark.parametrize(
    "row",
    [
        (USER, "ann", b"\xff", None, "", None),
        (USER, "ann", "soon", None, "", None),
        (USER, "ann", 1.5, None, "", None),
        (USER, b"\xff\xfe", SECOND_US, None, "", None),
        (USER, "ann", 2**62, None, "", None),
    ],
)
def test_what_has_another_type_is_refused_and_said(tmp_path: Path, row: Sequence[object]) -> None:
    with pytest.raises(OSError, match=r"wtmp\.db"):
        read(database(tmp_path / "wtmp.db", row, schema=SCHEMA.replace(" INTEGER,", ",")), 0, EVER_NS)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"\xff" * 500, b"no database at all"])
def test_what_is_no_such_database_is_refused_and_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "wtmp.db").write_bytes(content)
    with pytest.raises(OSError, match="sqlite: "):
        read(str(tmp_path / "wtmp.db"), 0, EVER_NS)


def test_only_a_file_is_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_there(str(tmp_path / "pipe"))
    assert not is_there(str(tmp_path / "none"))
    assert is_there(database(tmp_path / "wtmp.db"))


def test_a_child_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wtmpdb, "DEADLINE_S", 0.0)
    before = present()
    with pytest.raises(TimeoutError):
        read(database(tmp_path / "wtmp.db"), 0, EVER_NS)
    assert not present() - before


def test_the_library_is_not_in_who_asks(tmp_path: Path) -> None:
    path = database(tmp_path / "wtmp.db", (USER, "ann", SECOND_US, None, "tty2", None))
    script = (
        "import sys\nfrom sysmond.sources.wtmpdb import read\n"
        f"assert read({path!r}, 0, {time.time_ns()})\nassert 'sqlite3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
