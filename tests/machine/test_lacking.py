# SPDX-License-Identifier: Apache-2.0
"""What a part lacks is known while it lacks it, to systemd and to whoever asks."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.machine import lacking
from sysmond.machine.lacking import FILE, LINE_LENGTH_MAX, LINES_MAX, LackingReport
from tests.support.waiting import HANG_S


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(HANG_S)
        yield listening


def test_it_is_told_once_and_gone_when_it_is_mended(tmp_path: Path, systemd: socket.socket) -> None:
    (tmp_path / "archiver").mkdir()
    (tmp_path / f"archiver/{FILE}").write_text('{"lines": ["of the one before"]}')
    part = LackingReport(str(tmp_path / "archiver"))
    assert lacking.read(str(tmp_path / "archiver")) == []
    part.tell(["flush: no\nroom", "seal: no"])
    part.tell(["flush: no\nroom", "seal: no"])
    assert lacking.read(str(tmp_path / "archiver")) == ["flush: no room", "seal: no"]
    part.tell([])
    assert lacking.read(str(tmp_path / "archiver")) == []
    assert [systemd.recv(1000) for _ in range(2)] == [b"STATUS=flush: no room; seal: no", b"STATUS="]
    systemd.settimeout(0)
    with pytest.raises(BlockingIOError):
        systemd.recv(1000)


def test_where_there_is_no_room_for_a_note_the_service_manager_knows(tmp_path: Path, systemd: socket.socket) -> None:
    LackingReport(str(tmp_path / "nowhere")).tell(["x" * 10_000] * 100)
    said = systemd.recv(10_000).decode().partition("=")[2].split("; ")
    assert said == ["x" * LINE_LENGTH_MAX] * LINES_MAX
    assert lacking.read(str(tmp_path / "nowhere")) == []


def test_a_note_of_another_form_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "archiver").mkdir()
    for content in ("", "[]", '{"lines": 1}', '{"lines": [1]}'):
        (tmp_path / f"archiver/{FILE}").write_text(content)
        assert lacking.read(str(tmp_path / "archiver")) == []
    os.unlink(tmp_path / f"archiver/{FILE}")
    os.mkfifo(tmp_path / f"archiver/{FILE}")
    assert lacking.read(str(tmp_path / "archiver")) == []
