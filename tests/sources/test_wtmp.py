# SPDX-License-Identifier: Apache-2.0
"""Records of wtmp: who came and went, in which span, and whatever else may stand in such a file."""

import os
import random
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from sysmond.sources import wtmp
from sysmond.sources.wtmp import BOOT, LOGIN, LOGOUT, RECORD, PastLogin, parse, read

SECOND_NS = 10**9


def entry(kind: int, line: str, user: str, second: int, host: str = "", microsecond: int = 0) -> bytes:
    return RECORD.pack(kind, line.encode(), user.encode("utf-8", "surrogateescape"), host.encode(), second, microsecond)


def test_a_record_has_the_size_that_the_c_library_gives_it() -> None:
    assert RECORD.size == (400 if RECORD is wtmp._LONG else 384)
    assert (wtmp._SHORT.size, wtmp._LONG.size) == (384, 400)


@pytest.mark.skipif(shutil.which("utmpdump") is None, reason="no utmpdump here, which writes real records")
def test_records_are_those_that_another_program_writes() -> None:
    """By util-linux, from its own text form."""
    text = (
        "[7] [01234] [ts/0] [ann     ] [pts/0       ] [192.0.2.7           ] [192.0.2.7      ]"
        " [2026-01-02T03:04:05,678901+00:00]\n"
    )
    content = subprocess.run(["utmpdump", "-r"], input=text.encode(), capture_output=True, check=True).stdout
    at_ns = 1_767_323_045_678_901_000
    assert list(parse(content)) == [PastLogin(at_ns, "ann", "from 192.0.2.7", has_come=True)]


def test_who_came_and_went_is_read() -> None:
    content = b"".join((
        entry(BOOT, "~", "reboot", 100),
        entry(LOGIN, "tty2", "ann", 200, microsecond=5),
        entry(LOGIN, "pts/0", "bob", 300, "192.0.2.7"),
        entry(LOGOUT, "pts/0", "", 400),
        entry(LOGOUT, "pts/9", "", 410),
        entry(6, "tty3", "LOGIN", 420),
        entry(BOOT, "~", "reboot", 500),
        entry(LOGOUT, "tty2", "", 600),
    ))  # fmt: skip
    assert list(parse(content)) == [
        PastLogin(200 * SECOND_NS + 5000, "ann", "tty2", has_come=True),
        PastLogin(300 * SECOND_NS, "bob", "from 192.0.2.7", has_come=True),
        PastLogin(400 * SECOND_NS, "bob", "pts/0", has_come=False),
    ]


def test_only_a_span_of_the_last_records_is_given(tmp_path: Path) -> None:
    path = tmp_path / "wtmp"
    path.write_bytes(b"".join(entry(LOGIN, f"pts/{n}", f"u{n}", 1 + n) for n in range(wtmp.RECORDS_MAX + 50)) + b"cut")
    everybody = [login.user for login in read(str(path), 0, 10**18)]
    assert len(everybody) == wtmp.RECORDS_MAX
    assert everybody[0] == "u50"
    assert [login.user for login in read(str(path), 99 * SECOND_NS, 101 * SECOND_NS)] == ["u99", "u100"]


def test_what_is_no_such_file_has_nothing(tmp_path: Path) -> None:
    assert read(str(tmp_path / "none"), 0, 10**18) == []
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe"), 0, 10**18) == []
    (tmp_path / "empty").write_bytes(b"")
    assert read(str(tmp_path / "empty"), 0, 10**18) == []


@pytest.mark.parametrize(
    ("user", "host", "expected"),
    [
        ("\x1b[2J", "a\nb", ("[2J", "from a b")),
        ("\udcff", "", ("\ufffd", "pts/0")),
        ("x" * 32, "y" * 256, ("x" * 32, "from " + "y" * 64)),
    ],
)
def test_what_a_terminal_would_obey_is_not_in_it(user: str, host: str, expected: tuple[str, str]) -> None:
    [login] = parse(entry(LOGIN, "pts/0", user, 1, host))
    assert (login.user, login.place) == expected


@pytest.mark.parametrize(("second", "microsecond"), [(0, 0), (-5, 0), (5, -1), (5, 1_000_000), (-(2**31), 7)])
def test_a_time_that_there_is_not_is_none(second: int, microsecond: int) -> None:
    assert list(parse(entry(LOGIN, "pts/0", "ann", second, "", microsecond))) == []


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_passed_over(seed: int) -> None:
    content = random.Random(seed).randbytes(RECORD.size * 30 + seed)
    for login in parse(content + entry(LOGIN, "pts/0", "ann", 7)[: RECORD.size - seed % 2]):
        assert login.user.isprintable()
        assert login.place.isprintable()
        struct.pack("q", login.time_ns)


def test_what_this_machine_has_can_be_read() -> None:
    assert isinstance(read(wtmp.PATH, 0, time.time_ns()), list)
