# SPDX-License-Identifier: Apache-2.0
"""A snapshot: one file of what was recorded in a span, which every program reads, with no more than it may."""

import argparse
import asyncio
import os
import re
import shutil
import stat
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from sysmon_tools import ctl, extract, sysmon
from sysmon_tools.moment import last_view
from sysmon_tools.screen.app import SysmonApp
from sysmon_tools.screen.look import Look
from sysmond import history
from sysmond.__main__ import main as sysmond_main
from sysmond.base.clock import SECOND_NS
from sysmond.errors import EXIT_PARTIAL
from sysmond.machine import snapshot_file
from sysmond.machine.folders import Folders
from tests.support import screens
from tests.support.stall import STALL_NS, stuck
from tests.support.usage import one_line

FROM, TO = f"--from=@{STALL_NS // SECOND_NS - 60}", f"--to=@{STALL_NS // SECOND_NS + 60}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), "calm")


def run(folders: Folders, *words: str) -> int:
    return sysmon.main(["snapshot", "--state-dir", folders.state, "--runtime-dir", folders.runtime, *words])


def test_it_tells_what_is_in_it_and_every_program_reads_it(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "incident.sysmon")
    assert run(folders, FROM, TO, "-o", file) == 0
    said = capsys.readouterr().out
    assert said.startswith("from ")
    assert "all other tables" in said
    assert "process" in said
    assert said.endswith("It names programs, users and devices.\n")
    assert stat.S_IMODE(Path(file).stat().st_mode) & 0o044
    assert (
        extract.main(["process", "--top=1", "--by=written_bytes", "--columns=comm", "--state-dir", file, FROM, TO]) == 0
    )
    assert "updatedb" in capsys.readouterr().out
    assert sysmon.main(["--plain", "--state-dir", file, f"--at=@{STALL_NS // SECOND_NS}"]) == 0
    assert "updatedb" in capsys.readouterr().out


def test_what_is_restricted_is_for_its_owner_alone(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "incident.sysmon"
    assert run(folders, FROM, TO, "--restricted", "-o", str(file)) == 0
    assert "(restricted)" in capsys.readouterr().out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_it_may_only_be_looked_at(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, FROM, TO, "--list", "-o", str(tmp_path / "none.sysmon")) == 0
    assert "process" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_one_for_strangers_names_nobody(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "incident.sysmon")
    assert run(folders, FROM, TO, "--anonymize", "-o", file) == 0
    assert capsys.readouterr().out.endswith("It names nobody.\n")
    assert extract.main(["process", "--columns=comm,username", "--format=csv", "--state-dir", file, FROM, TO]) == 0
    said = capsys.readouterr().out
    assert "program-" in said
    assert "updatedb" not in said
    assert ",0\n" in said  # Of users there are ids, to which this machine may have names.
    assert "root" not in said


@pytest.mark.parametrize("more", [(), ("--anonymize",)])
def test_it_does_not_say_how_a_boot_ended_that_went_on(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    file = str(tmp_path / "incident.sysmon")
    assert run(folders, FROM, TO, *more, "-o", file) == 0
    capsys.readouterr()
    assert sysmon.main(["boots", "--state-dir", file]) == 0
    assert ",not known: a snapshot ends before the boot did," in capsys.readouterr().out
    assert sysmon.main(["boots", "--state-dir", folders.state, "--runtime-dir", folders.runtime]) == 0
    assert "unknown: power loss" in capsys.readouterr().out


def test_it_names_its_file_itself_and_writes_over_none(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(folders, FROM, TO) == 0
    [file] = tmp_path.iterdir()
    assert re.fullmatch(r"sysmon-20250301-\d\d19\.sysmon", file.name)
    assert f"{file.name}: written" in capsys.readouterr().out
    file.write_text("precious")
    assert run(folders, FROM, TO) == 2
    assert "--force" in one_line(capsys)
    assert file.read_text() == "precious"
    assert run(folders, FROM, TO, "--force") == 0
    assert snapshot_file.is_one(str(file))


@pytest.fixture(scope="module", params=[(), ("--anonymize",)], ids=["plain", "anonymous"])
def cut(request: pytest.FixtureRequest, folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A snapshot that ends while the recorder goes on."""
    file = str(tmp_path_factory.mktemp("cut") / "incident.sysmon")
    assert run(folders, FROM, TO, *request.param, "-o", file) == 0
    return file


def test_after_its_end_nothing_is_missing_and_now_is_its_end(cut: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["cpu/user@total", "--state-dir", cut, "--from=-10s"]) == 0
    said = capsys.readouterr().out
    assert "# gap" not in said
    assert said.count("\n") == len(["unit", "names"]) + 10
    assert extract.main(["process", "--state-dir", cut, "--from=-10s"]) == 0
    gaps = [line.split()[5:] for line in capsys.readouterr().out.splitlines() if line.startswith("# gap")]
    assert all(cause == ["late", "tick"] for cause in gaps)  # It is read every other second.


def test_it_opens_at_its_last_moment(cut: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sysmon.main(["--plain", "--state-dir", cut]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    head, *lines = shown.out.splitlines()
    assert "SNAPSHOT" in head
    assert " ago" not in head
    assert not any(line.startswith("missing") for line in lines)
    assert next(line for line in lines if line.startswith("CPU ")).endswith("%")


def test_space_stays_at_its_last_moment(cut: str) -> None:
    archive = history.open(state_dir=cut)
    last = last_view(archive)
    assert last is not None

    async def inside() -> None:
        app = SysmonApp(archive, Look(last), argparse.Namespace(), now=lambda: archive.now().realtime_ns)
        async with app.run_test(size=(120, 30)) as pilot:
            await screens.settled(pilot)
            for key in ("left", "space"):
                await pilot.press(key)
                await screens.settled(pilot)
            shown = screens.seen(app)
        assert "SNAPSHOT" in shown
        assert "LIVE" not in shown
        assert "nothing is known of what came after" in shown
        assert "goes to its end" in shown

    asyncio.run(inside())


def test_of_an_archive_that_nobody_goes_on_with_the_last_hour_is_drawn(
    cut: str, folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sysmon.main(["plot", "cpu/busy@total", "--state-dir", cut]) == 0
    copied = tmp_path / "copied"
    shutil.copytree(folders.runtime, copied)
    assert sysmon.main(["plot", "cpu/busy@total", "--state-dir", str(copied)]) == 0
    assert sysmon.main(["snapshot", "--state-dir", cut, "-o", str(tmp_path / "again.sysmon")]) == 0
    capsys.readouterr()
    assert (
        sysmon.main(["snapshot", "--state-dir", cut, "--from=-3d", "--to=-2d", "-o", str(tmp_path / "b.sysmon")]) == 1
    )
    assert capsys.readouterr().err.startswith(f"sysmon: {cut}: no rows or events in that range")


def test_what_was_left_out_as_restricted_is_told(cut: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["thread_state", "--state-dir", cut]) == 1
    assert "sysmon snapshot --restricted" in one_line(capsys)
    assert extract.main(["process", "--columns=pid,command", "--state-dir", cut]) == EXIT_PARTIAL
    assert "command is left empty: this snapshot has only what everybody may read" in capsys.readouterr().err
    assert extract.main(["process", "--columns=pid,exit_code", "--state-dir", cut]) == 0


@pytest.mark.parametrize(("word", "said"), [("fsck", "2 files read, none damaged"), ("pins", "nothing is pinned")])
def test_commands_that_only_read_read_it(cut: str, word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sysmond_main([word, "--state-dir", cut]) == 0
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.parametrize("words", [["fsck", "--repair"], ["budget"], ["unpin", "--all"]])
def test_others_say_that_it_is_one(cut: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert sysmond_main([*words, "--state-dir", cut]) == 1
    assert f"{cut}: a snapshot, which can only be read" in one_line(capsys)


def test_sysmonctl_tells_what_happened_in_it_and_nothing_else(cut: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["events", "--state-dir", cut]) == 0
    assert "disk error" in capsys.readouterr().out
    for words in (["status"], ["events", "--follow"]):
        assert ctl.main([*words, "--state-dir", cut]) == 1
        assert f"{cut}: nothing new happens in a snapshot" in one_line(capsys)


def test_a_report_of_one_for_strangers_names_nobody(
    cut: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sysmon.main(["report", "--state-dir", cut, "--at=now", "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.endswith("It names nobody.\n") == ("anonymous" in request.node.name)


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "x.sysmon", "--anonymize", "--restricted"),
        ("-o", "incident.tar"),
        ("-o", "x.sysmon", "--from=nonsense"),
    ],
)
def test_wrong_usage_is_one_line(folders: Folders, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert run(folders, *words) == 2
    one_line(capsys)


def test_a_damaged_one_is_one_line(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "incident.sysmon"
    assert run(folders, FROM, TO, "-o", str(file)) == 0
    capsys.readouterr()
    image = bytearray(file.read_bytes())
    image[len(image) // 2] ^= 1
    file.write_bytes(image)
    assert extract.main(["cpu/user@total", "--state-dir", str(file)]) == 1
    assert "does not match the manifest; the file is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["sysmon-extract", "sysmon"])
def test_nothing_of_it_stays_where_it_was_unpacked(folders: Folders, tmp_path: Path, program: str) -> None:
    file, unpacked = tmp_path / "incident.sysmon", tmp_path / "unpacked"
    unpacked.mkdir()
    assert run(folders, FROM, TO, "-o", str(file)) == 0
    words = {"sysmon-extract": ["cpu/user@total", FROM, TO], "sysmon": ["--plain"]}[program]
    started = entry_points(group="console_scripts", name=program)[program].value.replace(":", " import ")
    script = f"import sys; sys.argv[0] = {program!r}; from {started} as main; sys.exit(main())"
    command = [sys.executable, "-c", script, *words, "--state-dir", str(file)]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(unpacked)}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(unpacked.iterdir()) == []
