# SPDX-License-Identifier: Apache-2.0
"""A short round of most fault programs, which ``make check-all`` runs for longer; docs/durability.md has them all."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sysmond.commands import selftest, tamper
from sysmond.errors import Error
from sysmond.machine import note
from sysmond.store import archive
from tests.faults import crash_matrix, damage, trial

# As many rounds as end within seconds.
QUICK = {
    "clocks": 0,
    "crash_matrix": 0,
    "crowd": 100,
    "damage": 30,
    "power_cut": 2,
    "upgrade": 1,
}
HANG_S = 300.0  # Only against hanging for ever.


def run(repository: Path, program: str, rounds: int) -> dict[str, Any]:
    path = repository / "tests" / "faults" / f"{program}.py"
    command = [sys.executable, "-P", str(path), "--rounds", str(rounds), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.stdout.count("\n") == 1, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0, found["problems"]
    return found


@pytest.mark.parametrize("program", QUICK)
def test_a_fault_leaves_nothing_broken_and_nothing_lost(repository: Path, program: str) -> None:
    found = run(repository, program, QUICK[program])
    assert found["problems"] == []
    if reasons := found.get("skipped"):
        print("\n".join(reasons))
        if set(found) <= {"problems", "skipped", "seconds"}:
            pytest.skip("; ".join(reasons))


def test_every_fault_program_is_run_by_make_and_tried_here(repository: Path) -> None:
    shared = {"trial", "test_faults"}
    programs = {path.stem for path in (repository / "tests" / "faults").glob("*.py")} - shared
    # The daemon's own tests run some rounds of the kill loop; disks in trouble, and all that is hostile, take minutes.
    assert programs == {*QUICK, "kill_loop", "disk_trouble", "hostile"}
    makefile = (repository / "Makefile").read_text()
    documented = (repository / "docs" / "durability.md").read_text()
    for program in programs:
        assert program in makefile
        assert f"tests/faults/{program}.py" in documented


@pytest.mark.long
def test_the_self_test_counts_what_it_promises() -> None:
    result = selftest.run(3, seed=3)
    assert result["ok"], result["problems"]
    assert result.keys() >= {"kills", "ticks", "lost", "bound", "broken_files", "silently_wrong"}
    assert result["kills"] >= 2
    assert 0 <= result["lost"] <= result["bound"]
    assert result["damaged_copies"] > 100
    assert selftest.line(result).startswith("passed: ")
    json.dumps(result)


def test_as_many_are_killed_as_asked_for() -> None:
    result = selftest.run(2, seed=1, pause_s=0.1, damage=False)
    assert (result["kills"], result["problems"]) == (2, [])


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_self_test_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path, stop: signal.Signals) -> None:
    command = [sys.executable, "-P", "-m", "sysmond", "selftest", "--kill", "1000"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE) as process:
        assert trial.wait_until(lambda: "the newest in" in log(tmp_path), HANG_S)
        ((state, runtime),) = re.findall("recording to (.*), the newest in (.*)", log(tmp_path))
        process.send_signal(stop)
        assert process.wait(HANG_S) == 128 + stop
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []
    assert not os.path.exists(os.path.dirname(runtime))
    assert state.startswith(str(tmp_path))
    assert trial.wait_until(lambda: not of_folder(runtime), HANG_S)


def log(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*/log"))


def of_folder(folder: str) -> list[str]:
    """The processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has just ended.
            found += [str(path)] if folder.encode() in path.read_bytes() else []
    return found


def test_a_self_test_whose_owner_is_killed_ends_its_daemon(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "sysmond", "selftest", "--kill", "1000"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
        assert trial.wait_until(lambda: "recording to" in log(tmp_path), HANG_S)
        process.kill()
    folders = re.findall("the newest in (.*)/run", log(tmp_path))
    assert trial.wait_until(lambda: not of_folder(folders[0]), HANG_S)
    shutil.rmtree(folders[0])


def test_a_self_test_without_a_place_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(Error, match="no temporary folder: No such file or directory; expected a TMPDIR"):
        selftest.run(1)


def test_a_damaged_copy_that_reads_as_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of the checks: without its own checksums, damage to the file must show."""
    (tmp_path / "machine").mkdir()
    path = dict(damage.kinds(str(tmp_path)))["segment"]
    true = tamper.contents(path)
    block = true.recording.blocks[0]
    other = true.values[0].copy()
    other[0, 0] += 1
    assert true.same(tamper.contents(path))
    assert not true.same(true._replace(values=[other]))
    assert not true.same(true._replace(recording=true.recording._replace(blocks=[])))
    assert len(true.rows()) <= len(block.keys) * len(block.ticks)


@pytest.mark.long
def test_the_matrix_finds_a_job_that_does_not_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (archive, note):
        monkeypatch.setattr(module, "sync_folder", lambda folder: None)
    crash_matrix.prepare(tmp_path / "tried")
    shutil.copytree(tmp_path / "tried", tmp_path / "template")

    def problems(at: int) -> list[str]:
        return crash_matrix.attempt(str(tmp_path / "template"), str(tmp_path / "tried"), "flush", at, "crash")[1]

    assert any(problem.startswith("power cut 0") for at in range(1, 30) for problem in problems(at))
