# SPDX-License-Identifier: Apache-2.0
"""The table ``login``: exact values, pipes, garbage, machines without logind."""

import os
from pathlib import Path

import pytest
from sysmond_probes import login

from sysmond.probe import Host

SESSIONS = {
    "2": "# This is private data. Do not parse.\nUID=1000\nUSER=ada\nACTIVE=1\nSTATE=active\nREMOTE=0\nCLASS=user\n",
    "5": "UID=1000\nUSER=ada\nSTATE=online\nREMOTE=1\nCLASS=user\n",
    "7": "UID=0\nUSER=root\nSTATE=online\nREMOTE=1\nCLASS=user-early\n",
    "8": "UID=1001\nUSER=eve\nSTATE=closing\nREMOTE=1\nCLASS=user\n",
    "c1": "UID=117\nUSER=gdm\nSTATE=active\nREMOTE=0\nCLASS=greeter\n",
    "c2": "UID=1000\nUSER=ada\nSTATE=active\nREMOTE=0\nCLASS=manager\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run/systemd/sessions"
    folder.mkdir(parents=True)
    for name, content in SESSIONS.items():
        (folder / name).write_text(content)
    return folder


def test_sessions_of_people_are_counted_and_pipes_are_not_opened(tmp_path: Path, folder: Path) -> None:
    os.mkfifo(folder / "2.ref")
    assert list(login.read(Host(str(tmp_path)))) == [("", (3, 2, 2))]


@pytest.mark.parametrize("content", ["", "garbage\n", "CLASS=user\n", "UID\n"])
def test_what_is_no_session_does_not_count(tmp_path: Path, folder: Path, content: str) -> None:
    (folder / "9").write_text(content)
    assert list(login.read(Host(str(tmp_path)))) == [("", (3, 2, 2))]


def test_bytes_that_are_no_text_do_not_count_either(tmp_path: Path, folder: Path) -> None:
    (folder / "9").write_bytes(b"UID=\xff\nCLASS=\xfe\n")
    assert list(login.read(Host(str(tmp_path)))) == [("", (3, 2, 2))]


def test_a_session_that_ends_in_mid_read_does_not_count(tmp_path: Path, folder: Path) -> None:
    (folder / "9").symlink_to("gone")
    assert list(login.read(Host(str(tmp_path)))) == [("", (3, 2, 2))]


def test_nobody_is_logged_in_where_nobody_ever_was(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/sessions").mkdir(parents=True)
    assert list(login.read(Host(str(tmp_path)))) == [("", (0, 0, 0))]


def test_who_is_logged_in_is_not_known_without_logind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(login.read(Host(str(tmp_path))))
