# SPDX-License-Identifier: Apache-2.0
"""Whose archive is meant where nobody says it: tried as an ordinary user, beside a machine's archive."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import h5py
import pytest

from sysmond import __main__ as sysmond
from sysmond.errors import NotPermittedError, UsageError
from sysmond.machine import folders, recorders
from sysmond.machine.folders import Folders
from sysmond.machine.lock import only_one
from sysmond.store.files import hdf5

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Folders]:
    """An archive of the machine that everybody may read, and a home for an ordinary user beside it."""
    with tempfile.TemporaryDirectory(prefix="recorders-") as root:
        Path(root).chmod(0o755)
        place = Folders(f"{root}/state", f"{root}/run")
        Path(place.state, "public").mkdir(parents=True)
        for name in ("home", "session"):
            Path(root, name).mkdir()
            os.chown(f"{root}/{name}", NOBODY, NOBODY)
        monkeypatch.setattr(folders, "SYSTEM_STATE", place.state)
        monkeypatch.setattr(folders, "SYSTEM_RUNTIME", place.runtime)
        monkeypatch.setenv("XDG_STATE_HOME", f"{root}/home")
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{root}/session")
        yield place


def as_nobody(what: Callable[[], None]) -> None:
    """Do it in a process of an ordinary user, and fail if it fails."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            what()
        except BaseException as failure:  # noqa: BLE001  nothing may escape into a second pytest
            sys.stderr.write(f"{failure!r}\n")
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def meant(*, user: bool = False, system: bool = False) -> Folders:
    return recorders.asked(user=user, system=system, state_dir=None, runtime_dir=None)


def own(machine: Folders) -> Folders:
    root = os.path.dirname(machine.state)
    return Folders(f"{root}/home/sysmond", f"{root}/session/sysmond")


@needs_root
def test_the_machine_answers_who_records_nothing(machine: Folders) -> None:
    def asks() -> None:
        assert meant() == machine
        assert meant(user=True) == own(machine)
        assert recorders.introduction(meant(), system=False).startswith(f"from the machine's archive, {machine.state}")
        assert not recorders.introduction(meant(), system=True)
        assert not recorders.introduction(meant(user=True), system=False)

    as_nobody(asks)


@needs_root
def test_who_has_no_archive_makes_none_beside_the_machines(machine: Folders) -> None:
    mine = own(machine)

    def asks() -> None:
        for command, said in (("pin", "archive"), ("unpin", "archive"), ("mark", "recorder"), ("flush", "recorder")):
            words = {"pin": ["-1min", "now"], "unpin": ["--all"], "mark": ["x"], "flush": []}[command]
            with redirect_stderr(StringIO()) as lines:
                assert sysmond.main([command, *words]) == 1
            assert said in lines.getvalue()
            right = f"the machine's recorder writes to {machine.state}: use 'sysmonctl {command}'"
            assert lines.getvalue().rstrip().endswith(f" of your own{' is running' * (said == 'recorder')}; {right}")
        assert not os.path.exists(mine.state)
        os.mkdir(mine.state)
        with redirect_stdout(StringIO()):
            assert sysmond.main(["pin", "-1min", "now"]) == 0

    as_nobody(asks)


@needs_root
def test_a_file_that_one_may_not_read_is_one_plain_line(machine: Folders) -> None:
    path = f"{os.path.dirname(machine.state)}/there.h5"
    with h5py.File(path, "w"):
        os.chmod(path, 0o600)

    def asks() -> None:
        with pytest.raises(NotPermittedError, match=f"^{path}: no permission to read it$"):
            hdf5.open_file(path)

    as_nobody(asks)


@needs_root
def test_ones_own_recorder_answers_while_it_runs(machine: Folders) -> None:
    def asks() -> None:
        runtime = Path(own(machine).runtime)
        runtime.mkdir()
        with only_one(str(runtime)):
            assert meant() == own(machine)
            assert meant(system=True) == machine
        assert meant() == machine

    as_nobody(asks)


@needs_root
def test_what_nobody_may_read_leaves_ones_own(machine: Folders) -> None:
    Path(machine.state, "public").chmod(0o700)

    def asks() -> None:
        assert meant() == own(machine)
        # Asked for by name it is meant, and whoever opens it says what is wrong.
        assert meant(system=True) == machine

    as_nobody(asks)


@needs_root
def test_a_recorder_that_has_written_nothing_yet_is_meant(machine: Folders) -> None:
    Path(machine.state, "public").rmdir()
    Path(machine.runtime).mkdir()
    Path(machine.runtime, "plan.json").write_text("{}", encoding="utf-8")

    def asks() -> None:
        assert meant() == machine

    as_nobody(asks)


@needs_root
def test_without_a_home_there_is_no_recorder_of_ones_own(machine: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name)
    nameless = 64321

    def asks() -> None:
        assert meant() == machine

    monkeypatch.setattr(sys.modules[__name__], "NOBODY", nameless)
    as_nobody(asks)


@needs_root
def test_root_means_the_machine(machine: Folders) -> None:
    assert meant() == machine
    assert not recorders.introduction(machine, system=False)


def test_a_folder_that_is_named_is_meant(machine: Folders, tmp_path: Path) -> None:
    assert recorders.asked(
        user=False, system=False, state_dir=str(tmp_path), runtime_dir=None
    ) == Folders(str(tmp_path), str(tmp_path))  # fmt: skip


def test_both_are_refused() -> None:
    with pytest.raises(UsageError, match="--user and --system: expected only one of them"):
        meant(user=True, system=True)
