# SPDX-License-Identifier: Apache-2.0
"""What is built of the BPF programs: with clang a package has them, and without it is a package all the same."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sysmond.tasks.bpf.loader import PROGRAMS
from tests.support.pinned import OBJECTS

SOURCES = ("bpf", "probes", "sysmon_tools", "sysmond")
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
WANTED = {f"{each.object}.bpf.o" for each in PROGRAMS}


@pytest.fixture
def tree(repository: Path, tmp_path: Path) -> Path:
    """The sources, without what was built of them here."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in SOURCES:
        shutil.copytree(repository / name, folder / name, ignore=shutil.ignore_patterns("*.bpf.o", "__pycache__"))
    for name in FILES:
        shutil.copy(repository / name, folder)
    return folder


def built(tree: Path, path: str) -> set[str]:
    """Build a wheel with what is on ``path``: which objects are in it."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-build-isolation"]
    environment = {**os.environ, "PATH": path}
    subprocess.run([*command, "--no-deps", "--wheel-dir", tree, tree], check=True, env=environment)
    (wheel,) = tree.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "sysmond/tasks/bpf/loader.py" in names
    return {name.removeprefix("sysmond/tasks/bpf/") for name in names if name.endswith(".o")}


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not there")
def test_a_package_has_the_programs(tree: Path) -> None:
    assert built(tree, os.environ["PATH"]) == WANTED


def test_without_clang_it_is_a_package_without_them(tree: Path, tmp_path: Path) -> None:
    assert built(tree, str(tmp_path / "nothing")) == set()


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not there")
def test_where_this_runs_from_the_programs_are_found(repository: Path) -> None:
    """Both by a path into the sources and by that of the installation, which may be a link to them."""
    assert {path.name for path in OBJECTS.glob("*.bpf.o")} == WANTED
    program = "from sysmond.tasks.bpf import loader; print(loader.LoadRequest('').objects)"
    installed = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True)
    assert set(os.listdir(installed.stdout.strip())) >= WANTED


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not there")
@pytest.mark.parametrize("architecture", ["x86", "arm64", "riscv64"])
def test_the_programs_compile_for_other_processors(repository: Path, tmp_path: Path, architecture: str) -> None:
    for source in (repository / "bpf").glob("*.bpf.c"):
        command = ["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Werror", "-Wall", "-Wno-unused-const-variable"]
        target = f"-D__TARGET_ARCH_{architecture}"
        subprocess.run([*command, "-Wno-unused-function", target, "-c", source, "-o", tmp_path / "o"], check=True)
