# SPDX-License-Identifier: Apache-2.0
"""A quick selection of ``make faults``: every fault program, briefly. ``docs/durability.md`` says what each tests."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysmond import selftest
from tests.faults import crash_matrix, damage

# As many rounds as end within seconds.
QUICK = {
    "clocks": 0,
    "crash_matrix": 0,
    "crowd": 300,
    "damage": 100,
    "power_cut": 3,
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
    shared = {"trial"}
    programs = {path.stem for path in (repository / "tests" / "faults").glob("*.py")} - shared
    # The daemon's own tests run some rounds of the kill loop; disks in trouble take minutes.
    assert programs == {*QUICK, "kill_loop", "disk_trouble"}
    makefile = (repository / "Makefile").read_text()
    documented = (repository / "docs" / "durability.md").read_text()
    for program in programs:
        assert program in makefile
        assert f"tests/faults/{program}.py" in documented


def test_the_self_test_counts_what_it_promises() -> None:
    result = selftest.run(5, seed=3)
    assert result["ok"], result["problems"]
    assert result.keys() >= {"kills", "ticks", "lost", "bound", "broken_files", "silently_wrong"}
    assert result["kills"] >= 4
    assert 0 <= result["lost"] <= result["bound"]
    assert result["damaged_copies"] > 100
    assert selftest.line(result).startswith("passed: ")
    json.dumps(result)


def test_a_damaged_copy_that_reads_as_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of the checks: without its own checksums, damage to the file must show."""
    (tmp_path / "machine").mkdir()
    path = dict(damage.kinds(str(tmp_path)))["segment"]
    true = selftest.contents(path)
    block = true.recording.blocks[0]
    other = true.values[0].copy()
    other[0, 0] += 1
    assert true.same(selftest.contents(path))
    assert not true.same(true._replace(values=[other]))
    assert not true.same(true._replace(recording=true.recording._replace(blocks=[])))
    assert len(true.rows()) <= len(block.keys) * len(block.ticks)


def test_the_matrix_finds_a_job_that_does_not_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.archive.sync_folder", lambda folder: None)
    crash_matrix.prepare(tmp_path / "tried")
    shutil.copytree(tmp_path / "tried", tmp_path / "template")
    found = []
    for at in range(1, 30):
        found += crash_matrix.attempt(str(tmp_path / "template"), str(tmp_path / "tried"), "flush", at, "crash")[1]
    assert any(problem.startswith("power cut 0") for problem in found)
