# SPDX-License-Identifier: Apache-2.0
"""Tests that fail run once more, by themselves: those that pass then are named, others fail."""

import subprocess
import sys
from pathlib import Path

import pytest

FAILS_ONCE = """
from pathlib import Path

def test_first():
    seen = Path("seen")
    there = seen.exists()
    seen.touch()
    assert there

def test_other():
    assert True
"""
FAILS = "def test_always():\n    assert False\n"


def run(folder: Path, repository: Path, content: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(content)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    long: takes long\n")
    program = [sys.executable, "-P", str(repository / "tools/unsteady.py"), "--quiet", "-m", "not long"]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)


def test_what_passes_by_itself_is_named_and_stops_nobody(tmp_path: Path, repository: Path) -> None:
    done = run(tmp_path, repository, FAILS_ONCE)
    assert done.returncode == 0
    assert "unsteady: test_it.py::test_first: failed beside others, passed by itself" in done.stdout


def test_what_fails_by_itself_has_failed(tmp_path: Path, repository: Path) -> None:
    done = run(tmp_path, repository, FAILS + FAILS_ONCE)
    assert done.returncode == 1
    assert "passed by itself" not in done.stdout


def test_where_many_fail_none_is_run_again(tmp_path: Path, repository: Path) -> None:
    done = run(tmp_path, repository, "\n".join(FAILS.replace("always", str(number)) for number in range(6)))
    assert done.returncode == 1
    assert "unsteady" not in done.stdout


@pytest.mark.parametrize("content", ["def test_it():\n    assert True\n", "import nothing_of_the_kind\n"])
def test_what_passes_or_cannot_begin_is_as_pytest_says(tmp_path: Path, repository: Path, content: str) -> None:
    done = run(tmp_path, repository, content)
    assert done.returncode == (0 if "True" in content else 2)
    assert "unsteady" not in done.stdout
