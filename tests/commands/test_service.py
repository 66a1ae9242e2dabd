# SPDX-License-Identifier: Apache-2.0
"""The service of who installed by pip: what is refused before anything is written, and that removing is exact."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sysmond.commands import service
from sysmond.commands.service import CONFIGURATION, NOTE, Python, check, install, uninstall
from sysmond.errors import BusyError, CorruptError, Error, NotPermittedError, UsageError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that are root's")
SOMEBODY = 12345
PACKAGES = "opt/venv/lib/python3/site-packages"


def given(path: Path) -> None:
    os.lchown(path, SOMEBODY, 0)


def shared(path: Path) -> None:
    os.chown(path, 0, SOMEBODY)
    path.chmod(0o775)


def moded(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


@pytest.fixture
def environment(tmp_path: Path) -> Python:
    """An interpreter in a virtual environment of root's, as pip makes it."""
    tmp_path.chmod(0o755)
    packages = tmp_path / PACKAGES / "sysmond"
    programs = tmp_path / "opt/venv/bin"
    base = tmp_path / "usr/bin"
    for folder in (packages, programs, base):
        folder.mkdir(parents=True)
    (packages / "__init__.py").write_text("")
    (base / "python3.11").write_text("#!")
    (base / "python3.11").chmod(0o755)
    (programs / "python3").symlink_to("python3.11")
    (programs / "python3.11").symlink_to(base / "python3.11")
    (tmp_path / "opt/venv/lib64").symlink_to("lib")
    for path in tmp_path.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        elif path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o111 | 0o644)
    return Python(str(programs / "python3"), (str(tmp_path / "opt/venv"), str(packages.parent)))


@pytest.fixture(scope="module")
def templates() -> str:
    """The files of the service where an installed sysmond has them; tests import it from its sources."""
    script = "from sysmond.commands import service; print(service.TEMPLATES)"
    return subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@as_root
def test_what_is_installed_names_this_interpreter_and_is_removed_exactly(
    tmp_path: Path, environment: Python, templates: str
) -> None:
    before = content(tmp_path)
    written = install(environment, str(tmp_path), templates)
    units = tmp_path / "etc/systemd/system"
    assert f"ExecStart={environment.interpreter} -I -m sysmond" in (units / "sysmond-sampler.service").read_text()
    texts = content(tmp_path)
    assert not [name for name, text in texts.items() if b"@PYTHON@" in text or b"@BINDIR@" in text]
    assert set(texts) - set(before) == {*(path.lstrip("/") for path in written), NOTE.lstrip("/")}
    assert {"/etc/sysusers.d/sysmond.conf", "/etc/tmpfiles.d/sysmond.conf", CONFIGURATION} <= set(written)
    assert all((tmp_path / path.lstrip("/")).stat().st_mode & 0o777 == 0o644 for path in written)
    assert uninstall(str(tmp_path)) == (sorted(written), [])
    assert content(tmp_path) == before
    assert not (tmp_path / "etc/sysmond").exists()


@as_root
def test_every_file_of_the_service_is_in_the_package(
    tmp_path: Path, environment: Python, templates: str, repository: Path
) -> None:
    written = {os.path.basename(path) for path in install(environment, str(tmp_path), templates)}
    there = {
        path.name
        for folder in ("systemd", "sysusers.d", "tmpfiles.d")
        for path in (repository / "etc" / folder).rglob("*.*")
    }
    there |= {path.name for path in (repository / "dbus").iterdir() if path.suffix != ".xml"}
    assert there <= written


@as_root
def test_what_was_changed_since_stays(tmp_path: Path, environment: Python, templates: str) -> None:
    install(environment, str(tmp_path), templates)
    mine = ("etc/systemd/system/sysmond-bus.service", CONFIGURATION.lstrip("/"))
    for name in mine:
        with (tmp_path / name).open("a") as file:
            file.write("# Mine.\n")
    assert uninstall(str(tmp_path))[1] == [f"/{mine[0]}"]
    assert all((tmp_path / name).read_text().endswith("# Mine.\n") for name in mine)


@as_root
def test_installing_again_follows_and_keeps_the_configuration(
    tmp_path: Path, environment: Python, templates: str
) -> None:
    install(environment, str(tmp_path), templates)
    (tmp_path / CONFIGURATION.lstrip("/")).write_text("sampler: {priority: 0}\n")
    note, of_before = tmp_path / NOTE.lstrip("/"), "/etc/systemd/system/sysmond-of-before.service"
    (tmp_path / of_before.lstrip("/")).write_text("[Unit]\n")
    files = json.loads(note.read_text())["files"]
    note.write_text(json.dumps({"files": {**files, of_before: "x"}}))
    assert CONFIGURATION not in install(environment, str(tmp_path), templates)
    assert not (tmp_path / of_before.lstrip("/")).exists()
    uninstall(str(tmp_path))
    assert (tmp_path / CONFIGURATION.lstrip("/")).read_text() == "sampler: {priority: 0}\n"
    assert list(content(tmp_path / "etc")) == ["sysmond/sysmond.yaml"]


@as_root
@pytest.mark.parametrize(
    "place", ["etc/systemd/system/sysmond-sampler.service", "usr/lib/systemd/system/sysmond.target"]
)
def test_what_is_there_already_is_not_written_over(
    tmp_path: Path, environment: Python, templates: str, place: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text("theirs")
    before = content(tmp_path)
    with pytest.raises(BusyError, match="expected|remove the package first"):
        install(environment, str(tmp_path), templates)
    assert content(tmp_path) == before


@as_root
@pytest.mark.parametrize(
    ("place", "change", "line"),
    [
        ("opt", given, "opt: belongs to uid 12345; expected root"),
        ("opt", moded(0o1777), "opt: mode 1777 lets others write"),
        ("opt/venv", moded(0o700), "venv: mode 0700: the users of the service cannot enter"),
        ("opt/venv/bin/python3", given, "python3: a link of uid 12345"),
        ("usr/bin", given, "usr/bin: belongs to uid 12345"),
        ("usr/bin/python3.11", moded(0o757), "python3.11: mode 0757 lets others write"),
        ("usr/bin/python3.11", moded(0o700), "python3.11: mode 0700: the users of the service cannot read"),
        (f"{PACKAGES}/sysmond/__init__.py", given, "__init__.py: belongs to uid 12345"),
        (f"{PACKAGES}/sysmond/__init__.py", moded(0o600), "__init__.py: mode 0600: the users"),
        (PACKAGES, shared, "site-packages: mode 0775 lets others write"),
    ],
)
def test_what_others_could_change_or_cannot_read_is_refused(
    tmp_path: Path, environment: Python, templates: str, place: str, change: Callable[[Path], object], line: str
) -> None:
    change(tmp_path / place)
    before = content(tmp_path)
    with pytest.raises(NotPermittedError, match=line) as refused:
        install(environment, str(tmp_path), templates)
    assert "\n" not in str(refused.value)
    assert content(tmp_path) == before


@as_root
def test_a_link_out_of_the_environment_is_followed(tmp_path: Path, environment: Python) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "module.py").write_text("")
    (tmp_path / "opt/venv/lib/python3/site-packages/extra").symlink_to(theirs)
    check(environment, str(tmp_path))
    os.chown(theirs / "module.py", SOMEBODY, 0)
    with pytest.raises(NotPermittedError, match=r"theirs/module.py: belongs"):
        check(environment, str(tmp_path))


@pytest.mark.parametrize(
    ("interpreter", "kind"),
    [
        ("/root/venv/bin/python3", NotPermittedError),
        ("/home/x/venv/bin/python3", NotPermittedError),
        ("/opt/my venv/bin/python3", UsageError),
        ("/opt/%h/bin/python3", UsageError),
    ],
)
def test_a_path_that_no_unit_can_start_is_refused(interpreter: str, kind: type[Error]) -> None:
    with pytest.raises(kind, match="expected"):
        check(Python(interpreter, ()))


@as_root
@pytest.mark.parametrize(
    "noted", ["{", '{"files": {"/etc/shadow": "x"}}', '{"files": {"/etc/sysmond/../shadow": "x"}}']
)
def test_a_note_that_is_none_removes_nothing(tmp_path: Path, noted: str) -> None:
    (tmp_path / "etc/sysmond").mkdir(parents=True)
    (tmp_path / NOTE.lstrip("/")).write_text(noted)
    (tmp_path / "etc/shadow").write_text("")
    with pytest.raises(CorruptError):
        uninstall(str(tmp_path))
    assert (tmp_path / "etc/shadow").exists()


def test_where_nothing_was_installed_nothing_is_removed(tmp_path: Path) -> None:
    with pytest.raises(Error, match="expected a service"):
        uninstall(str(tmp_path))


def test_an_installation_without_these_files_is_a_distributions(tmp_path: Path, environment: Python) -> None:
    if os.geteuid():
        pytest.skip("only root has files that are root's")
    with pytest.raises(Error, match="from a distribution"):
        install(environment, str(tmp_path), templates=str(tmp_path / "none"))


def test_this_interpreter_tells_what_it_imports_from() -> None:
    here = service.this_python()
    assert here.interpreter == sys.executable
    assert sys.prefix in here.folders


@pytest.mark.parametrize("words", [("install", "--user"), ("remove",), ()])
def test_what_is_wrong_is_one_line(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-P", "-m", "sysmond", "service", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
