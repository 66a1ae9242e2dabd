# SPDX-License-Identifier: Apache-2.0
"""Pictures and pages for strangers: what was planted in names and texts is nowhere in them, however it is spelled."""

from pathlib import Path

import pytest

from sysmon_tools import sysmon
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.machine.folders import Folders
from tests.support import planted
from tests.support.longarchive import BOOTED_NS
from tests.support.planted import PLANTED, SECONDS, seen_in
from tests.support.usage import one_line

FROM_S, TO_S = (BOOTED_NS // SECOND_NS + second for second in (SECONDS[0], SECONDS[-1]))
SPAN = (f"--from=@{FROM_S}", f"--to=@{TO_S}")
AT = f"--at=@{(FROM_S + TO_S) // 2}"
# Whose instances are called by somebody, but for the table of processes.
PATHS = ("filesystem/n", "disk/n", "smart/n", "cgroup_owner/n", "cgroup_io/n", "setting/n", "gpu/n", "plugin/n",
         "device_mapper/n", "process/cpu@7")  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return planted.archive(tmp_path_factory.mktemp("planted"))


def run(folders: Folders, *words: str) -> int:
    return sysmon.main([*words, "--state-dir", folders.state, "--runtime-dir", folders.runtime])


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_picture_names_nobody(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    named, nameless = tmp_path / f"named.{suffix}", tmp_path / f"nameless.{suffix}"
    about = f"disk/n@{PLANTED[9]}"  # What is typed stands above a picture.
    assert run(folders, "plot", about, *PATHS, *SPAN, "-o", str(named)) == 0
    assert run(folders, "plot", about, *PATHS, *SPAN, "--anonymize", "-o", str(nameless)) == 0
    # Instances, and what happened, and why something is missing.
    assert {PLANTED[number] for number in (7, 9, 10, 13, 20, 21, 22, 24, 26, 28, 30, 32, 33)} <= set(
        seen_in(named.read_bytes())
    )
    assert seen_in(nameless.read_bytes()) == []
    assert PLANTED[9] not in capsys.readouterr().out.splitlines()[-1]
    shown = nameless.read_text()
    for path in ("disk/n@device-", "cgroup_io/n@cgroup-", "plugin/n@shelf-", "disk error thing-1", "process/cpu@7"):
        assert path in shown


def test_on_the_terminal_neither(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "plot", *PATHS, *SPAN, "--anonymize") == 0
    shown = capsys.readouterr().out
    assert "disk error thing-1" in shown
    assert seen_in(shown.encode()) == []


def test_a_page_names_nobody(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named, nameless = tmp_path / "named.html", tmp_path / "nameless.html"
    assert run(folders, "report", AT, "-o", str(named)) == 0
    assert capsys.readouterr().out.endswith("It names programs, users and devices.\n")
    assert run(folders, "report", AT, "--anonymize", "-o", str(nameless)) == 0
    assert capsys.readouterr().out.endswith("It names nobody.\n")
    shown = named.read_text()
    assert {PLANTED[number] for number in (0, 9, 30, 32, 33, 35)} <= set(seen_in(shown.encode()))
    assert "<td>root</td>" in shown
    shown = nameless.read_text()
    assert seen_in(shown.encode()) == []
    for text in (
        "<td>program-1</td><td>user-1</td>",
        "disk/read_bytes@device-1",
        "<td>disk error</td><td>thing-1</td>",
    ):
        assert text in shown
    assert "<td>root</td>" not in shown


def test_for_strangers_there_is_nothing_restricted(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "report", AT, "-o", "a.html", "--anonymize", "--restricted") == UsageError.exit_code
    assert "--anonymize and --restricted" in one_line(capsys)
