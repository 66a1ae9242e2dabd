# SPDX-License-Identifier: Apache-2.0
"""What is installed is what is locked, by its hash; and what is locked is what pyproject.toml asks for."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tools import locks

LOCKS = ("build", "dev", "older-dbus", "tools")


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    shutil.copy(repository / "pyproject.toml", tmp_path)
    shutil.copytree(repository / "locks", tmp_path / "locks")
    return tmp_path


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def pins(repository: Path, name: str) -> list[Requirement]:
    lines = locks.entries((repository / f"locks/{name}.txt").read_text())
    return [Requirement(line.partition(" --hash")[0]) for line in lines]


def test_the_locks_are_current(repository: Path) -> None:
    locks.check(repository)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ('"h5py>=3.13"', '"h5py>=3.14"', "dev"),
        ('    "rich>=13.9",\n', "", "dev"),
        ('"ruff>=0.9"', '"ruff>=0.10"', "dev"),
        ("setuptools>=77", "setuptools>=78", "build"),
        ("dbus-fast==2.44.1", "dbus-fast==2.44.2", "older-dbus"),
        ("pip-audit>=2.10", "pip-audit>=2.9", "tools"),
    ],
)
def test_a_lock_that_is_older_than_what_is_asked_for_is_named(before: str, after: str, name: str, copy: Path) -> None:
    change(copy / "pyproject.toml", before, after)
    with pytest.raises(locks.LockError, match=f"^locks/{name}.txt: older than pyproject.toml; 'make lock'"):
        locks.check(copy)


@pytest.mark.parametrize("name", LOCKS)
def test_what_has_no_hash_is_refused(name: str, copy: Path) -> None:
    path = copy / f"locks/{name}.txt"
    with path.open("a") as lock:
        lock.write("something==1.0\n")
    with pytest.raises(
        locks.LockError, match=f"^locks/{name}.txt: 'something==1.0': expected a version and its hashes"
    ):
        locks.check(copy)
    path.unlink()
    with pytest.raises(locks.LockError, match=f"^locks/{name}.txt: not there; 'make lock' writes it$"):
        locks.check(copy)


@pytest.mark.parametrize("name", LOCKS)
def test_what_is_pinned_is_what_is_asked_for_on_every_python(name: str, repository: Path) -> None:
    asked = [Requirement(line) for line in locks.read_wanted(repository)[name]]
    for python in locks.PYTHONS:
        machine = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
        here = [pin for pin in pins(repository, name) if pin.marker is None or pin.marker.evaluate(machine)]
        versions = {pin.name: str(pin.specifier).removeprefix("==") for pin in here}
        assert len(versions) == len(here)
        for requirement in asked:
            version = versions[re.sub(r"[-_.]+", "-", requirement.name).lower()]
            assert requirement.specifier.contains(version), (requirement.name, version)


def test_nobody_is_told_where_a_package_comes_from(repository: Path) -> None:
    for path in (repository / "locks").iterdir():
        assert not re.search("://|index|find-links", path.read_text()), path


def test_the_library_whose_private_modules_are_used_has_an_upper_bound(repository: Path) -> None:
    asked = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["dependencies"]
    (bounds,) = (Requirement(line).specifier for line in asked if line.startswith("dbus-fast"))
    assert not bounds.contains("6.0.0")
    assert bounds.contains("5.9.9")


def test_setup_installs_nothing_without_a_hash_but_the_project_itself(repository: Path) -> None:
    script = (repository / "tools/setup.sh").read_text().replace("\\\n", " ")
    calls = [line.strip() for line in script.splitlines() if re.search(r"\bpip_install (?!\()", line)]
    assert len(calls) == 3
    for call in calls:
        assert "--require-hashes" in call or re.search(r"--no-deps .*--editable \.", call), call
    installs = [line for line in script.splitlines() if re.search(r"-m pip .*\binstall\b", line)]
    assert len(installs) == 1  # That of the function itself.


def test_another_file_of_the_same_version_is_not_installed(tmp_path: Path) -> None:
    """Whoever serves the packages cannot put others in their place."""
    project = tmp_path / "innocent"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires=["setuptools"]\nbuild-backend="setuptools.build_meta"\n'
        '[project]\nname="innocent"\nversion="1.0"\n[tool.setuptools]\npy-modules=[]\n'
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path), str(project)]
    subprocess.run(built, check=True, capture_output=True)
    lock = tmp_path / "lock.txt"
    lock.write_text(f"innocent==1.0 --hash=sha256:{'0' * 64}\n")
    words = [*pip, "install", "--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "into")]
    words += ["--require-hashes", "--requirement", str(lock)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    told = subprocess.run(words, check=False, capture_output=True, text=True, env=clean)
    assert told.returncode != 0
    assert "DO NOT MATCH THE HASHES" in told.stderr
    assert not (tmp_path / "into").exists()


AUDITED = {"name": "h5py", "version": "3.16.0", "vulns": []}
UNKNOWN = {"name": "rich", "skip_reason": "Dependency not found: rich"}


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ([AUDITED, AUDITED], "audit: no advisory for 8 packages"),
        ([UNKNOWN, UNKNOWN], "audit: skipped: this registry has no advisories: Dependency not found: rich"),
        (None, "audit: skipped: no route to host"),
        ([AUDITED, UNKNOWN], "locks/build.txt: not audited: Dependency not found: rich"),
        (
            [{**AUDITED, "vulns": [{"id": "PYSEC-1"}]}, UNKNOWN],
            "locks/build.txt: h5py PYSEC-1; 'make lock ARGS=--upgrade'",
        ),
    ],
)
def test_an_audit_says_what_it_found_or_why_it_found_nothing(
    packages: list[dict[str, Any]] | None,
    said: str,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """pip-audit itself needs advisories, which not every registry has: a program that answers as it does."""
    answer = tmp_path / "pip-audit"
    body = (
        "echo no route to host >&2; exit 1" if packages is None else f"echo '{json.dumps({'dependencies': packages})}'"
    )
    answer.write_text(f"#!/bin/sh\n{body}\n")
    answer.chmod(0o755)
    monkeypatch.setattr(locks, "BIN", tmp_path)
    if said.startswith("audit: "):
        locks.audit(repository)
        assert capsys.readouterr().out == f"{said}\n"
    else:
        with pytest.raises(locks.LockError, match=f"^{re.escape(said)}"):
            locks.audit(repository)
