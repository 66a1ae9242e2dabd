# SPDX-License-Identifier: Apache-2.0
"""Locks: held by one, named for what they are, and by nobody whom the recorder does not trust."""

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from sysmond.errors import BusyError
from sysmond.machine import lock
from sysmond.machine.lock import LOCK_FILE, only_one
from sysmond.store import pins
from sysmond.store.pins import Pin

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@contextmanager
def locked(path: Path, mode: str = "r", *, uid: int = NOBODY, note: bool = False) -> Iterator[int]:
    """Have a process of another user lock a file; gives its number. ``note``: it writes that into the file."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _hold(path, mode, uid, writing, note=note)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"1", "it could not be locked"
        yield child
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _hold(path: Path, mode: str, uid: int, writing: int, *, note: bool) -> NoReturn:
    """Be the process that holds it."""
    try:
        if uid != os.getuid():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        with path.open(mode) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if note:
                os.pwrite(file.fileno(), b"%-31d\n" % os.getpid(), 0)
            os.write(writing, b"1")
            signal.pause()
    finally:
        os._exit(1)


@pytest.fixture
def folder(runtime: Path) -> Path:
    """One that everybody may look into, as those of the recorder are."""
    runtime.chmod(0o755)
    return runtime


def test_a_lock_file_is_for_its_owner_alone_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        with only_one(str(folder)):
            assert stat.S_IMODE((folder / LOCK_FILE).stat().st_mode) == 0o600
    finally:
        os.umask(before)


@needs_root
def test_a_stranger_cannot_hold_a_lock(folder: Path) -> None:
    with only_one(str(folder)):
        pass
    with pytest.raises(AssertionError), locked(folder / LOCK_FILE):
        pass


@needs_root
@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_a_stranger_who_holds_a_file_of_an_older_version_keeps_nobody_out(folder: Path, mode: int) -> None:
    path = folder / LOCK_FILE
    path.write_text("1\n")
    path.chmod(mode)
    with locked(path), only_one(str(folder)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@needs_root
def test_a_stranger_who_has_an_older_file_open_cannot_lock_it_later(folder: Path) -> None:
    path = folder / LOCK_FILE
    path.write_text("")
    path.chmod(0o644)
    with path.open() as opened_before, only_one(str(folder)), only_one_refused(folder):
        fcntl.flock(opened_before, fcntl.LOCK_EX | fcntl.LOCK_NB)  # It locks a file that nobody looks at.


@contextmanager
def only_one_refused(folder: Path) -> Iterator[None]:
    yield
    with pytest.raises(BusyError, match=f"held by process {os.getpid()}"), only_one(str(folder)):
        pass


@needs_root
def test_a_running_recorder_of_an_older_version_is_respected_and_named(folder: Path) -> None:
    path = folder / LOCK_FILE
    path.write_text("")
    path.chmod(0o644)
    with (
        locked(path, "r+", uid=0, note=True) as process,
        pytest.raises(BusyError, match=f"held by process {process};"),
        only_one(str(folder)),
    ):
        pass
    with only_one(str(folder)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_true_holder_is_named_and_not_who_held_it_before(folder: Path) -> None:
    (folder / LOCK_FILE).write_text(f"{1:<31}\n")
    (folder / LOCK_FILE).chmod(0o600)
    with (
        locked(folder / LOCK_FILE, uid=os.getuid()) as process,
        pytest.raises(BusyError, match=f"held by process {process};"),
        only_one(str(folder)),
    ):
        pass


def test_a_link_in_the_place_of_a_lock_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / LOCK_FILE).symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="Too many levels of symbolic links"), only_one(str(folder)):
        pass
    assert not (tmp_path / "made").exists()


def test_a_lock_whose_file_is_removed_is_lost_and_the_name_can_be_locked_anew(folder: Path) -> None:
    with only_one(str(folder)) as descriptor:
        assert not lock.is_lost(descriptor, str(folder))
        os.unlink(folder / LOCK_FILE)
        assert lock.is_lost(descriptor, str(folder))
        with only_one(str(folder)) as another:
            assert not lock.is_lost(another, str(folder))


def test_pins_wait_for_a_bounded_time_and_name_who_keeps_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "WAIT_S", 0.2)
    pins.add(str(folder), [Pin(1, 2, "why", "who")])
    with (
        locked(folder / pins.LOCK_FILE, uid=os.getuid()) as process,
        pytest.raises(BusyError, match=f"held by process {process};"),
    ):
        pins.add(str(folder), [Pin(3, 4, "why", "who")])
    assert len(pins.read(str(folder))) == 1
    assert len(pins.add(str(folder), [Pin(3, 4, "why", "who")])) == 2


def test_a_holder_that_dies_lets_go(folder: Path) -> None:
    with only_one(str(folder)):
        pass
    with locked(folder / LOCK_FILE, uid=os.getuid()) as process:
        os.kill(process, signal.SIGKILL)
        with only_one(str(folder), wait_s=10):
            pass
