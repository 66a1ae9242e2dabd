# SPDX-License-Identifier: Apache-2.0
"""What a boot knows of the one before: how it ended, and its settings, whatever became of the note."""

import json
from pathlib import Path

import pytest

from sysmond.archiver import disk_writes
from sysmond.archiver.boot_before import FILE, IN_ORDER, UNKNOWN, carry_on, was_cut_off
from sysmond.machine.folders import Folders
from sysmond.probe import Host
from sysmond.sources import settings
from sysmond.sources.settings import NOTE, NOTE_BEFORE, SINCE_BEFORE, KernelSettings

SHUTDOWN = {"shutdown": [1, 2, 3, 4]}


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this machine has just started."""
    monkeypatch.setattr(settings, "SETTLED_S", 0.0)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    for part in ("run/background", "run/archiver", "state", "root/proc/sys/vm"):
        (tmp_path / part).mkdir(parents=True)
    return Folders(str(tmp_path / "state"), str(tmp_path / "run"))


def reboot(folders: Folders) -> None:
    """What is in RAM is gone."""
    for file in Path(folders.runtime).glob("*/setting.*"):
        file.unlink()


def test_how_a_boot_ended_is_known_in_the_next_one_once(folders: Folders) -> None:
    assert carry_on(folders, {}, "a") is None
    assert carry_on(folders, SHUTDOWN, "a") is None
    assert carry_on(folders, SHUTDOWN, "b") == IN_ORDER
    assert carry_on(folders, {}, "b") is None
    assert carry_on(folders, {"request": [1, 2, 3, 4]}, "c") == UNKNOWN


def test_a_boot_that_ended_under_the_recorder_is_known_before_anything_is_written(folders: Folders) -> None:
    assert not was_cut_off(folders.state)
    carry_on(folders, {}, "a")
    assert was_cut_off(folders.state)
    disk_writes.leave(folders.state, SHUTDOWN)
    assert not was_cut_off(folders.state)
    disk_writes.forget(folders.state)
    carry_on(folders, {})
    assert not was_cut_off(folders.state)


@pytest.mark.parametrize("content", ["", "[]", '{"boot": 5, "settings": {}}', '{"boot": "a"}', "\xff", "{" * 99_999])
def test_of_a_damaged_note_nothing_is_known(folders: Folders, content: str) -> None:
    Path(folders.state, FILE).write_text(content)
    assert carry_on(folders, {}, "b") is None
    assert carry_on(folders, {}, "c") == UNKNOWN


def test_it_is_written_only_where_something_is_another(folders: Folders) -> None:
    path = Path(folders.state, FILE)
    carry_on(folders, {}, "a")
    path.chmod(0o600)  # Written anew it would have another mode.
    carry_on(folders, {}, "a")
    assert path.stat().st_mode & 0o777 == 0o600
    Path(folders.runtime, "background", NOTE).write_text('{"smt": "on"}')
    carry_on(folders, {}, "a")
    assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads(path.read_text()) == {"boot": "a", "settings": {"smt": "on"}}


def changes(folders: Folders, swappiness: int) -> list[tuple[str, str, str]]:
    """What a background lane tells that begins anew."""
    root = Path(folders.runtime).parent / "root"
    (root / "proc/sys/vm/swappiness").write_text(f"{swappiness}\n")
    host = Host(str(root))
    host.runtime, host.folder = folders.runtime, f"{folders.runtime}/background"
    list(KernelSettings().read(host))
    return [(event.subject, event.text, event.detail) for event in host.take_events()]


def test_a_setting_that_is_another_after_a_boot_is_told_once(folders: Folders) -> None:
    assert changes(folders, 60) == []
    carry_on(folders, {}, "a")
    reboot(folders)
    assert carry_on(folders, {}, "b") == UNKNOWN
    assert changes(folders, 10) == [("vm.swappiness", "60 → 10", SINCE_BEFORE)]
    assert changes(folders, 10) == []
    assert changes(folders, 20) == [("vm.swappiness", "10 → 20", "")]
    carry_on(folders, {}, "b")
    reboot(folders)
    carry_on(folders, {}, "c")
    assert changes(folders, 20) == []


def test_a_lane_that_is_quicker_than_the_archiver_compares_later_and_once(folders: Folders) -> None:
    changes(folders, 60)
    carry_on(folders, {}, "a")
    reboot(folders)
    assert changes(folders, 10) == []
    carry_on(folders, {}, "b")
    assert changes(folders, 20) == [("vm.swappiness", "60 → 10", SINCE_BEFORE), ("vm.swappiness", "10 → 20", "")]
    assert changes(folders, 20) == []
    reboot(folders)
    carry_on(folders, {}, "c")
    assert changes(folders, 20) == [("vm.swappiness", "10 → 20", SINCE_BEFORE)]


def test_settings_outlive_a_boot_in_which_nobody_read_them(folders: Folders) -> None:
    changes(folders, 60)
    for boot in "abc":
        carry_on(folders, {}, boot)
        reboot(folders)
    carry_on(folders, {}, "d")
    assert changes(folders, 10) == [("vm.swappiness", "60 → 10", SINCE_BEFORE)]


def test_what_the_lane_does_not_write_is_not_handed_on(folders: Folders) -> None:
    Path(folders.runtime, "background", NOTE).write_text('{"smt": ["on"]}')
    carry_on(folders, {}, "a")
    assert json.loads(Path(folders.state, FILE).read_text())["settings"] == {}
    reboot(folders)
    carry_on(folders, {}, "b")
    assert not Path(folders.runtime, "archiver", NOTE_BEFORE).exists()
