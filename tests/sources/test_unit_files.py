# SPDX-License-Identifier: Apache-2.0
"""Unit files: what becomes of them is told once it is over, by whom nobody is woken, and once."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sysmond_probes import unit_file as probe

from sysmond.base.model import ABSENT, Lane, Sensitivity, check_table
from sysmond.probe import Host, HostEvent
from sysmond.sources import unit_files
from sysmond.sources.inotify import FolderWatch
from sysmond.sources.unit_files import FOLDERS, KIND, NOTE, TABLE, UnitFiles

ETC, RUN, LOCAL, USR = FOLDERS
NAMES = [metric.name for metric in probe.UNIT_FILE.metrics]


class Admin:
    """Somebody at work below a root, and a reader of what they do."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.later_ns = 0
        real_ns = time.monotonic_ns
        monkeypatch.setattr(time, "monotonic_ns", lambda: real_ns() + self.later_ns)
        for folder in (ETC, RUN, USR):
            self.at(folder).mkdir(parents=True)
        (root / "lane").mkdir()
        self.begin()

    def begin(self) -> None:
        """Read anew, as a lane that was started again."""
        self.host = Host(str(self.root))
        self.host.folder = str(self.root / "lane")
        self.files = UnitFiles()

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def writes(self, path: str, content: str = "[Unit]\n") -> None:
        self.at(path).parent.mkdir(exist_ok=True)
        self.at(path).write_text(content)

    def read(self) -> dict[str, int]:
        [(_, row)] = self.files.read(self.host)
        return dict(zip(NAMES, map(int, row), strict=True))

    def hears(self) -> list[HostEvent]:
        """What is told once nothing has happened for long enough."""
        for _ in range(2):
            self.read()
            self.later_ns += unit_files.OVER_NS
        self.read()
        return self.host.take_events()


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    made = Admin(tmp_path, monkeypatch)
    yield made
    made.host.close()


def test_the_table_is_for_everybody_and_in_the_background() -> None:
    [offered] = probe.sysmond_probes()
    check_table(offered.table)
    assert (offered.lane, offered.sensitivity) == (Lane.BACKGROUND, Sensitivity.PUBLIC)


def test_what_was_there_is_no_news_and_what_is_edited_is_told_with_its_time(admin: Admin) -> None:
    admin.writes(f"{USR}/ssh.service")
    assert admin.hears() == []
    admin.writes(f"{USR}/ssh.service", "[Unit]\nDescription=another\n")
    admin.read()
    assert admin.host.take_events() == [], "it may not be over"
    assert admin.host.wakes is None, "nobody is woken"
    [event] = admin.hears()
    assert event[:4] == (KIND, "ssh.service", f"edited in {USR}", "")
    assert event.known_from == "file time"
    assert event.happened_ns == admin.at(f"{USR}/ssh.service").stat().st_ctime_ns
    assert admin.read() == {"added": 0, "edited": 1, "removed": 0, "files": 1, "left_out": 0}
    assert admin.hears() == []


def test_a_run_is_one_event_and_its_temporary_files_are_none(admin: Admin) -> None:
    for name in ("old", "kept"):
        admin.writes(f"{USR}/{name}.service")
    admin.read()
    for number in range(5):
        admin.writes(f"{USR}/new{number}.service.dpkg-new")
        admin.read()
        admin.at(f"{USR}/new{number}.service.dpkg-new").rename(admin.at(f"{USR}/new{number}.service"))
    admin.at(f"{USR}/old.service").unlink()
    admin.writes(f"{ETC}/.new.service.swp")
    admin.at(f"{ETC}/multi-user.target.wants").mkdir()
    admin.at(f"{ETC}/multi-user.target.wants/kept.service").symlink_to(f"{USR}/kept.service")
    admin.writes(f"{USR}/README")
    [event] = admin.hears()
    added = "added multi-user.target.wants/kept.service, new0.service, new1.service and 3 more"
    assert event[:3] == (KIND, "", f"{added}; removed old.service")
    assert event.detail.startswith(f"added: {ETC}/multi-user.target.wants/kept.service, {USR}/new0.service, ")
    assert event.detail.endswith(f"; removed: {USR}/old.service")


def test_what_is_added_beside_a_unit_is_seen_in_a_folder_that_is_new(admin: Admin) -> None:
    admin.read()
    admin.writes(f"{ETC}/ssh.service.d/override.conf")
    [event] = admin.hears()
    assert event[1:3] == ("ssh.service.d/override.conf", f"added in {ETC}")
    admin.writes(f"{ETC}/ssh.service.d/override.conf", "[Service]\n")
    [event] = admin.hears()
    assert event[1:3] == ("ssh.service.d/override.conf", f"edited in {ETC}")


def test_a_folder_that_was_missing_is_watched_when_it_comes(admin: Admin) -> None:
    admin.read()
    admin.at(LOCAL).mkdir(parents=True)
    admin.writes(f"{LOCAL}/mine.service")
    [event] = admin.hears()
    assert event[1:3] == ("mine.service", f"added in {LOCAL}")


def test_what_changed_while_nobody_looked_is_told_once_in_this_boot(admin: Admin) -> None:
    admin.writes(f"{USR}/a.service")
    admin.read()
    admin.host.close()
    admin.writes(f"{USR}/b.service")
    admin.begin()
    admin.read()
    [event] = admin.host.take_events()
    assert event[1:3] == ("b.service", f"added in {USR}")
    admin.host.close()
    admin.begin()
    assert admin.hears() == []


@pytest.mark.parametrize("content", ["", "[]", '{"/etc/passwd": 1}', '{"/etc/systemd/system/a.service": "x"}', "{"])
def test_a_damaged_note_is_none(admin: Admin, content: str) -> None:
    (admin.root / "lane" / NOTE).write_text(content)
    admin.writes(f"{USR}/a.service")
    assert admin.hears() == []
    admin.writes(f"{USR}/b.service")
    assert len(admin.hears()) == 1


def test_where_folders_cannot_be_watched_they_are_listed_and_that_is_said(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: FolderWatch) -> None:
        raise OSError(24, "Too many open files", "inotify")

    monkeypatch.setattr(FolderWatch, "__init__", refused)
    admin.begin()
    admin.read()
    assert "inotify" in (admin.root / "lane" / f"{TABLE}.way").read_text()
    admin.writes(f"{ETC}/a.service")
    assert admin.hears() == []
    admin.later_ns += unit_files.LISTING_NS
    [event] = admin.hears()
    assert event.subject == "a.service"


def test_a_watch_that_is_refused_is_said(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: FolderWatch, folder: str) -> None:
        raise OSError(28, "No space left on device", folder)

    monkeypatch.setattr(FolderWatch, "add", refused)
    admin.read()
    assert "No space left" in (admin.root / "lane" / f"{TABLE}.way").read_text()


def test_names_are_bounded_and_fit_to_be_printed(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_files, "FILES_MAX", 2)
    admin.read()
    admin.writes(f"{ETC}/\x1b[2J.service")
    (admin.at(ETC) / os.fsdecode(b"\xff.service")).write_text("")
    admin.writes(f"{USR}/z.service")
    [event] = admin.hears()
    assert event.text == "added [2J.service, \ufffd.service"
    assert event.detail.isprintable()
    assert (admin.read()["files"], admin.read()["left_out"]) == (2, 1)


def test_a_time_to_come_is_none(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.read()
    admin.writes(f"{ETC}/a.service")
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    [event] = admin.hears()
    assert (event.happened_ns, event.known_from) == (ABSENT, "")


def test_a_machine_is_read_without_leaving_a_descriptor(tmp_path: Path) -> None:
    """In a process of its own, whose descriptors nobody else opens."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    script = (
        "import os\nfrom sysmond.probe import Host\nfrom sysmond.sources.unit_files import UnitFiles\n"
        f"before = os.listdir('/proc/self/fd')\nhost = Host({str(tmp_path)!r})\n"
        "for _ in range(3):\n    list(UnitFiles().read(host))\n"
        "host.close()\nassert os.listdir('/proc/self/fd') == before"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
