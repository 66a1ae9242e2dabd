# SPDX-License-Identifier: Apache-2.0
"""The units of an installed service: what each may, by systemd's own measure, and that their names fit together."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sysmond.machine.control import OBEYED
from sysmond.plan.settings import ONESHOTS, PARTS
from tests.support.waiting import HANG_S

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ETC = REPOSITORY / "etc"
UNITS = sorted((ETC / "systemd/system").iterdir())
SERVICES = [unit.stem for unit in UNITS if unit.suffix == ".service"]

EXPOSURE_MAX = {
    "sysmond-sampler": 1.3,
    "sysmond-background": 2.8,
    "sysmond-archiver": 0.5,
    "sysmond-bus": 0.5,
    "sysmond-reader@": 0.5,
    "sysmond-smart": 1.1,
    "sysmond-bpf": 1.4,
    "sysmond-plan": 0.7,
    "sysmond-reload": 1.8,
}
"""What ``systemd-analyze security`` may say of each at most: from 0, nothing is exposed, to 10."""

# Systemd before 254 passes over these, and starts again after the first pause each time.
NEWER = ("RestartSteps", "RestartMaxDelaySec")

NEEDS_ANALYZE = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units as they are installed: with a program that is there."""
    folder = tmp_path_factory.mktemp("units")
    for unit in UNITS:
        text = unit.read_text().replace("@PYTHON@", sys.executable)
        assert not re.search(r"^[^#]*@[A-Z]+@", text, re.MULTILINE), unit
        (folder / unit.name).write_text(text)
    return folder


def analyze(folder: Path, *words: str) -> str:
    """What systemd-analyze says of units in a folder, whatever it thinks of them."""
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    return done.stdout + done.stderr


@NEEDS_ANALYZE
@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_exposes_no_more_than_it_needs(service: str, filled: Path) -> None:
    said = analyze(filled, "security", "--offline=true", f"{service}.service")
    level = re.search(r"exposure level for \S+: ([0-9.]+)", said)
    assert level is not None, said
    assert float(level[1]) <= EXPOSURE_MAX[service], said


@NEEDS_ANALYZE
def test_systemd_understands_the_units(filled: Path) -> None:
    said = analyze(filled, "verify", "--man=no", *(unit.name for unit in UNITS))
    ours = [line for line in said.splitlines() if "sysmond" in line and not any(f"'{key}'" in line for key in NEWER)]
    assert ours == []


def values(path: Path, key: str) -> list[str]:
    """What a unit says under a key, in words."""
    lines = path.read_text().splitlines()
    return [word for line in lines if line.startswith(f"{key}=") for word in line.partition("=")[2].split()]


def created(kind: str) -> set[str]:
    """The users, ``u``, or groups, ``g``, that sysusers makes."""
    lines = (ETC / "sysusers.d/sysmond.conf").read_text().splitlines()
    return {line.split()[1] for line in lines if line.startswith(f"{kind} ")}


def test_every_part_is_a_unit_with_a_user_and_a_folder_of_its_own() -> None:
    folders = {
        words[1]: words[2:5]
        for words in (line.split() for line in (ETC / "tmpfiles.d/sysmond.conf").read_text().splitlines())
        if words[0] == "d"
    }
    for part in (*PARTS, *ONESHOTS):
        unit = ETC / f"systemd/system/sysmond-{part}.service"
        user = f"sysmond-{part}"
        assert f"-m sysmond.daemon.part {part}\n" in unit.read_text()
        assert values(unit, "User") == [user]
        assert values(unit, "Group") == ["sysmond-parts"]
        assert values(unit, "RuntimeDirectory") == [f"sysmond/{part}"]
        # The set-gid bit says that it is shared by parts: see ``folders.is_shared``.
        assert values(unit, "RuntimeDirectoryMode") == ["2755"]
        assert folders[f"/run/sysmond/{part}"] == ["2755", user, "sysmond-parts"]
        assert user in created("u")
        if part != "bus":  # It records nothing.
            assert folders[f"/run/sysmond/{part}/restricted"] == ["2750", user, "sysmond"]
    assert created("g") == {"sysmond", "sysmond-parts"}
    assert {owner for _, owner, _ in folders.values()} <= {*created("u"), "root"}


def test_the_target_starts_every_unit_that_nothing_else_starts() -> None:
    wanted = set(values(ETC / "systemd/system/sysmond.target", "Wants"))
    by_others = {"sysmond.target", "run-sysmond-bpf.mount", "sysmond-bus.service"}
    by_others |= {"sysmond-reader@.service", "sysmond-reload.service", "sysmond-smart.service"}
    assert wanted == {unit.name for unit in UNITS} - by_others


def test_the_bus_part_reads_of_rows_what_everybody_may_read() -> None:
    unit = ETC / "systemd/system/sysmond-bus.service"
    assert values(unit, "SupplementaryGroups") == []
    members = (ETC / "sysusers.d/sysmond.conf").read_text()
    assert not re.search(r"^m sysmond-bus\b", members, re.MULTILINE)
    assert 'policy user="sysmond-bus"' in (REPOSITORY / "dbus/org.sysmond.SystemMonitor1.conf").read_text()


def test_whoever_is_obeyed_is_a_part() -> None:
    assert OBEYED.keys() == {"daemon", *PARTS}
    assert {other for others in OBEYED.values() for other in others} <= {*PARTS}
