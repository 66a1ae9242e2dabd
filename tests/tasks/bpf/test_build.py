# SPDX-License-Identifier: Apache-2.0
"""What is built of the BPF programs: one wheel has them for every architecture; without clang it is one without."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from sysmond import __version__
from sysmond.errors import Error
from sysmond.tasks.bpf.loader import ARCHITECTURES, PROGRAMS, objects_of
from tests.support.pinned import OBJECTS

SOURCES = ("bpf", "dbus", "etc", "probes", "sysmon_tools", "sysmond")
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
WANTED = {f"{each.object}.bpf.o" for each in PROGRAMS}
FOLDERS = set(ARCHITECTURES.values())
EM_BPF = 247  # elf(5)
# Where system calls are found differs, so a wheel with the same object twice would name wrong ones.
DIFFER = ("states.bpf.o", "tasks.bpf.o")

needs_clang = pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not there")


def sources(repository: Path, folder: Path) -> Path:
    """Copy the sources, without what was built of them here."""
    folder.mkdir()
    for name in SOURCES:
        shutil.copytree(repository / name, folder / name, ignore=shutil.ignore_patterns("*.bpf.o", "__pycache__"))
    for name in FILES:
        shutil.copy(repository / name, folder)
    return folder


def pip(*words: object, python: Path | str = sys.executable, **environment: str) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, words)]
    subprocess.run(command, check=True, env={**os.environ, **environment})


def built(tree: Path, path: str) -> Path:
    """Build a wheel with what is on ``path``."""
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", tree, tree, PATH=path)
    (wheel,) = tree.glob("*.whl")
    assert wheel.name == f"sysmond-{__version__}-py3-none-any.whl"
    return wheel


def objects(names: Sequence[str]) -> set[str]:
    assert "sysmond/tasks/bpf/loader.py" in names
    return {name.removeprefix("sysmond/tasks/bpf/") for name in names if name.endswith(".o")}


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(sources(repository, tmp_path_factory.mktemp("build") / "tree"), os.environ["PATH"])


@needs_clang
def test_one_wheel_has_the_programs_for_every_architecture(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert objects(archive.namelist()) == {f"{folder}/{name}" for folder in FOLDERS for name in WANTED}
        for name in sorted(WANTED):
            contents = [archive.read(f"sysmond/tasks/bpf/{folder}/{name}") for folder in FOLDERS]
            assert {(content[:6], content[18]) for content in contents} == {(b"\x7fELF\x02\x01", EM_BPF)}
            assert len(set(contents)) == (len(FOLDERS) if name in DIFFER else 1), name


def test_without_clang_it_is_a_wheel_without_them(repository: Path, tmp_path: Path) -> None:
    wheel = built(sources(repository, tmp_path / "tree"), str(tmp_path / "nothing"))
    assert objects(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.long
@needs_clang
def test_what_is_built_does_not_depend_on_where(wheel: Path, repository: Path, tmp_path: Path) -> None:
    another = built(sources(repository, tmp_path / "another folder"), os.environ["PATH"])
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(another) as other:
        assert one.namelist() == other.namelist()
        assert [name for name in one.namelist() if one.read(name) != other.read(name)] == []


def test_an_installed_wheel_runs_and_finds_its_programs(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, which sees other packages of this one, and no sources."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    # What is here by way of an editable install is not to be found: only the lines that are folders count.
    others = {path for path in sys.path if path.endswith("-packages")}
    (site / "others.pth").write_text("".join(f"{path}\n" for path in sorted(others)))
    pip(
        "--python",
        tmp_path / "env/bin/python",
        "install",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        "--ignore-installed",
        wheel,
    )
    for program in ("sysmond", "sysmon-extract", "sysmonctl"):
        command = [str(tmp_path / "env/bin" / program), "--version"]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
        assert told.stdout.split() == [program, __version__]
    program = "import os; from sysmond.tasks.bpf.loader import objects_of; print(objects_of(os.uname().machine))"
    command = [str(tmp_path / "env/bin/python"), "-I", "-c", program]
    folder = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    assert folder.is_relative_to(site)
    if shutil.which("clang"):
        assert {path.name for path in folder.iterdir()} == WANTED


@needs_clang
def test_where_this_runs_from_the_programs_are_found() -> None:
    """Both by a path into the sources and by that of the installation, which may be a link to them."""
    assert {path.name for path in OBJECTS.glob("*.bpf.o")} == WANTED
    program = "import os; from sysmond.tasks.bpf import loader; print(loader.objects_of(os.uname().machine))"
    installed = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True)
    assert set(os.listdir(installed.stdout.strip())) >= WANTED


def test_a_machine_that_there_are_no_programs_for_is_named() -> None:
    with pytest.raises(Error, match=r"^no BPF programs for riscv64; expected one of x86_64, i686, aarch64$"):
        objects_of("riscv64")


@needs_clang
@pytest.mark.parametrize("architecture", [*sorted(FOLDERS), "riscv64"])
def test_the_programs_compile_for_other_processors(repository: Path, tmp_path: Path, architecture: str) -> None:
    for source in (repository / "bpf").glob("*.bpf.c"):
        command = ["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Werror", "-Wall", "-Wno-unused-const-variable"]
        target = f"-D__TARGET_ARCH_{architecture}"
        subprocess.run([*command, "-Wno-unused-function", target, "-c", source, "-o", tmp_path / "o"], check=True)
