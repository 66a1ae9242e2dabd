# SPDX-License-Identifier: Apache-2.0
"""The commands beside recording: what they ask of a daemon, what they say, how they fail."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import pytest

from sysmond import history
from sysmond.__main__ import COMMANDS, main
from sysmond.base.model import Cause, Sensitivity
from sysmond.commands import selftest
from sysmond.daemon.arguments import parser
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import control, mounts
from sysmond.machine.commandline import subparsers
from sysmond.machine.folders import Folders
from sysmond.machine.lock import only_one
from sysmond.plan import retention
from sysmond.plan.plan import ArchiverSettings
from sysmond.ring.frame import EVENT_BYTES_MAX
from sysmond.ring.snapshot import snapshot
from sysmond.store import archive
from sysmond.store.of_ring import BootEvent, of_snapshot
from tests.support.waiting import HANG_S, wait_until

NOBODY = 65534


@pytest.fixture
def folders(runtime: Path, tmp_path: Path) -> Folders:
    (runtime / "run").mkdir()
    return Folders(str(tmp_path / "state"), str(runtime / "run"))


def command(folders: Folders, *words: str) -> int:
    name, *others = words
    return main([name, "--state-dir", folders.state, "--runtime-dir", folders.runtime, *others])


@pytest.fixture
def daemon(folders: Folders, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with recording(folders, tmp_path, "--runtime-dir", folders.runtime) as process:
        yield process


@contextmanager
def recording(folders: Folders, place: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A daemon; ``words`` lead it to its runtime folder."""
    (place / "sysmond.yaml").write_text("{}\n")
    line = [sys.executable, "-P", "-m", "sysmond", "--user", "--config", str(place / "sysmond.yaml")]
    line += ["--state-dir", folders.state, *words]
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(f"{folders.runtime}/archiver/control") and events(folders))
        yield process
    finally:
        process.kill()
        process.wait()


def events(folders: Folders) -> list[BootEvent]:
    """What the ring of the archiver has."""
    rings = sorted(Path(folders.runtime, "archiver", "public").glob("*.ring"))
    return [event for ring in rings for event in of_snapshot(snapshot(str(ring))).events]


def said(captured: pytest.CaptureFixture[str]) -> str:
    lines = captured.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0].removeprefix("sysmond: ")


def has_recorded(folders: Folders) -> bool:
    try:
        return Archive(folders).select("memory/total", raw=True).times_ns.size > 0
    except Error:
        return False


def test_a_marker_and_a_flush_are_events_and_the_end_is_one_too(
    daemon: "subprocess.Popen[bytes]", folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_until(lambda: has_recorded(folders))
    assert command(folders, "mark", "deploy  12", "of\nthe\tday") == 0
    assert command(folders, "flush") == 0
    assert capsys.readouterr().out == f"marked 'deploy 12 of the day'\nflushed to {folders.state}\n"
    assert len(archive.names(archive.disk_folder(folders, Sensitivity.PUBLIC))) >= 1
    happened = [(event.kind, event.subject, event.text) for event in events(folders)]
    assert happened[0] == ("start", "", "")
    assert ("mark", "", "deploy 12 of the day") in happened

    def is_said_to_be_asked_for() -> bool:
        return any(event.kind == "flush" and event.subject == "request" for event in events(folders))

    # One that was due just then may have written what was asked for: there is nothing left for the request.
    for _ in range(3):
        if is_said_to_be_asked_for():
            break
        size = Archive(folders).select("memory/total", raw=True).times_ns.size
        wait_until(lambda: Archive(folders).select("memory/total", raw=True).times_ns.size > size)  # noqa: B023
        assert command(folders, "flush") == 0
        capsys.readouterr()
    assert is_said_to_be_asked_for()
    assert command(folders, "budget") == 0
    assert "1s" in capsys.readouterr().out
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(HANG_S) == 0
    assert Archive(folders).select("memory/total", raw=True).times_ns.size


def test_a_reload_is_done_or_says_what_is_wrong(
    daemon: "subprocess.Popen[bytes]", folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(folders, "reload") == 0
    assert capsys.readouterr().out == "reloaded\n"
    (tmp_path / "sysmond.yaml").write_text("sampler: {priority: x}")
    assert command(folders, "reload") == 2
    assert said(capsys) == f"{tmp_path}/sysmond.yaml:1: sampler.priority: 'x' is wrong; expected a whole number"
    assert daemon.poll() is None


def test_a_part_that_does_not_follow_makes_it_a_partial_success(
    folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ask", lambda *_: {"ok": True, "behind": {"background": "no answer within 15 s"}})
    assert command(folders, "reload") == 3
    assert said(capsys) == "background has not applied it yet: no answer within 15 s"


def test_a_copy_of_an_archive_has_nothing_to_do_with_the_recorder(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who names the folder that the recorder writes to, however it is spelled, sees what that has in RAM."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folders = Folders(str(tmp_path / "state"), str(runtime / "sysmond"))

    def marks(state: Path | str) -> list[str]:
        try:
            found = history.open(state_dir=str(state), user=True).events()
        except Error:
            return []
        return [event.text for event in found if event.kind == "mark"]

    with recording(folders, tmp_path):
        assert main(["mark", "--user", "--state-dir", folders.state, "before"]) == 0
        wait_until(lambda: marks(folders.state) == ["before"])
        assert command(folders, "flush") == 0
        shutil.copytree(folders.state, tmp_path / "copy", symlinks=True)
        (tmp_path / "link").symlink_to(folders.state)
        assert main(["mark", "--user", "--state-dir", f"{tmp_path}/link/", "behind"]) == 0
        wait_until(lambda: marks(tmp_path / "link") == ["before", "behind"])
        assert marks(tmp_path / "copy") == ["before"]
        capsys.readouterr()
        assert main(["mark", "--user", "--state-dir", str(tmp_path / "copy"), "elsewhere"]) == 1
        assert said(capsys) == f"{tmp_path}/copy/archiver: no answer: sysmond is not running there"
        assert marks(folders.state) == ["before", "behind"]


def test_a_recorder_with_a_runtime_folder_of_its_own_is_named_where_only_its_state_folder_is(
    daemon: "subprocess.Popen[bytes]", folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_until(lambda: has_recorded(folders))
    assert command(folders, "flush") == 0
    capsys.readouterr()
    expected = f"process {daemon.pid} records there and holds the rest in RAM: expected --runtime-dir={folders.runtime}"
    for words in (["mark", "text"], ["flush"], ["reload"]):
        assert main([*words, "--state-dir", folders.state]) == 1
        assert said(capsys).partition("sysmond is not running there; ")[2] == f"{expected}, too"
    alone = history.open(state_dir=folders.state)
    wait_until(lambda: alone.select("memory/total", raw=True).gaps != ())
    last = alone.select("memory/total", raw=True).gaps[-1]
    assert (last.cause, last.detail) == (Cause.NO_SOURCE, f"{expected}, too")


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"selftest", "service"}))
def test_a_folder_that_is_none_is_an_error_of_every_command(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    words = {"mark": ["text"], "pin": ["-1h", "now"], "unpin": ["--all"], "probe": ["load"]}.get(name, [])
    for where in (["--state-dir", folders.state], ["--state-dir", folders.state, "--runtime-dir", folders.runtime]):
        assert main([name, *where, *words]) == 1
        assert said(capsys) == f"{folders.state}: No such file or directory; expected a sysmond state folder"
    (tmp_path / "state").touch()
    assert main([name, "--state-dir", folders.state, *words]) == 1
    assert said(capsys) == f"{folders.state}: not a folder; expected a sysmond state folder"


def test_a_file_in_place_of_the_archive_is_named_rather_than_a_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").touch()
    with only_one(str(tmp_path)):
        assert main(["--state-dir", f"{tmp_path}/state", "--runtime-dir", str(tmp_path), "--ticks", "1"]) == 1
    assert said(capsys) == f"{tmp_path}/state: not a folder; expected a sysmond state folder"


def test_without_a_daemon_an_order_says_so(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("mark", "text"), ("flush",), ("reload",)):
        assert command(folders, *words) == 1
        assert "no answer: sysmond is not running there" in said(capsys)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["mrak", "x"], "there is no command 'mrak'; did you mean mark"),
        (["mark"], "missing: TEXT (a line that says what happened); expected 'sysmond mark TEXT'"),
        (["pin", "-5min"], "missing: TO (end of the span, such as now; not included); expected 'sysmond pin FROM TO'"),
        (["flush", "--qqq"], "unknown option '--qqq'; 'sysmond flush --help' lists the options"),
        (["mark", " "], f"TEXT of 0 bytes; expected 1 to {EVENT_BYTES_MAX}"),
        (["mark", "x" * 2000], f"TEXT of 2000 bytes; expected 1 to {EVENT_BYTES_MAX}"),
        (["selftest", "--kill", "none"], "--kill: 'none' is not a number of kills; expected 1 to 10000"),
        (["pin", "2025-02-02", "2025-02-01"], "the range ends ('2025-02-01') before it begins ('2025-02-02')"),
        (["pin", "-1h", "-2h"], "the range ends ('-2h') before it begins ('-1h')"),
        (["pin", "now", "now"], "the range ends ('now') before it begins ('now')"),
        (["status"], "there is no command 'status'; expected flush"),
        (["--stat-dir", "/tmp", "fsck"], "unknown option '--stat-dir'; did you mean --state-dir?"),
        (["unpin"], "expected either a time T or --all"),
        (["pin", "10", "minutes", "ago", "now"], "'ago': a time of several words needs quotes"),
        (["flush", "now"], "'now': one argument too many; 'sysmond flush --help' says what is expected"),
        (["budget", "--jsno"], "unknown option '--jsno'"),
        (["--state-dir", "", "budget"], "--state-dir: '' is not a path; expected the path of a folder"),
    ],
)
def test_a_wrong_line_is_one_line(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str], runtime: Path
) -> None:
    assert main(["--runtime-dir", str(runtime), *words]) == 2
    assert said(capsys).startswith(problem)


def test_options_of_folders_count_before_and_behind_a_command() -> None:
    before = parser().parse_args(["--user", "--state-dir", "/a", "mark", "x"])
    behind = parser().parse_args(["mark", "--user", "--state-dir", "/a", "x"])
    assert vars(before) == vars(behind)
    assert not parser().parse_args(["mark", "x"]).user


def test_every_command_has_a_place_where_it_is_carried_out() -> None:
    assert {name for name, _ in subparsers(parser())} == set(COMMANDS)


def test_an_archive_that_is_empty_has_no_forecast_yet(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folders, "budget", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    settings = retention.fitted(ArchiverSettings(), mounts.capacity_bytes(folders.state))
    records = {f"records.{tier}": limit for tier, limit in retention.of_records(settings).items()}
    expected = {name: limit.budget_bytes for name, limit in {**retention.of_settings(settings)[0], **records}.items()}
    assert set(answer) == set(expected)
    for name, tier in answer.items():
        assert tier["budget_bytes"] == expected[name]
        assert (tier["used_bytes"], tier["bytes_per_day"], tier["days"]) == (0, None, None)


def test_a_forecast_refuses_what_a_daemon_would(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "planned.yaml").write_text("tiers: {pins: {size: 1MB}}\n", encoding="utf-8")
    assert command(folders, "budget", "--config", str(tmp_path / "planned.yaml")) == 2
    assert "16777216B is the smallest that works" in said(capsys)


def test_a_span_is_pinned_listed_and_released(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    os.makedirs(folders.state)
    assert command(folders, "pin", "2025-01-31 14:30", "2025-01-31 15:00", "--why", "it  stood still") == 0
    assert command(folders, "pin", "2025-02-01", "2025-02-02") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["pinned", "pinned"]
    assert command(folders, "pins", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["why"], first["end_ns"] - first["start_ns"]) == ("it stood still", 1800 * 10**9)
    assert command(folders, "unpin", "2025-02-01 12:00") == 0
    assert capsys.readouterr().out == "released 1 span\n"
    assert command(folders, "pins") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("it stood still")
    assert command(folders, "unpin", "2025-02-01 12:00") == 1
    assert "nothing is pinned at that time" in said(capsys)
    assert command(folders, "unpin", "--all") == 0
    assert capsys.readouterr().out == "released 1 span\n"
    assert command(folders, "pins") == 0
    assert capsys.readouterr().out == "nothing is pinned\n"
    assert second["why"] == ""


def test_what_is_about_to_happen_is_pinned_before_anything_was_recorded(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    (tmp_path / "run").mkdir(mode=0o700)

    def sysmond(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "sysmond", *words, "--user"]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout

    sysmond("pin", "2040-01-01", "2040-01-02", "--why", "the first night")
    assert sysmond("pins").endswith("the first night\n")


def test_a_disk_that_takes_no_pin_is_named(
    folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(folders.state)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # As fsync(2) and write(2): they name no file.

    monkeypatch.setattr(os, "fsync", full)
    assert command(folders, "pin", "2025-02-01", "2025-02-02") == 1
    right = "expected a sysmond state folder that can be written"
    assert said(capsys) == f"{folders.state}/pins.json: No space left on device; {right}"


def test_a_damaged_file_is_named_and_moved_aside_on_request(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(archive.disk_folder(folders, Sensitivity.PUBLIC))
    folder.mkdir(parents=True)
    assert command(folders, "fsck") == 0
    assert capsys.readouterr().out == "0 files read, none damaged\n"
    (folder / archive.Name("a" * 32, 1, 1).file).write_bytes(
        (Path(__file__).parent.parent / "compat" / "segment-1-rows.h5").read_bytes()
    )
    assert command(folders, "fsck") == 0
    assert capsys.readouterr().out == "1 file read, none damaged\n"
    file = folder / archive.Name("b" * 32, 1, 1).file
    file.write_bytes(b"no segment at all")
    assert command(folders, "fsck") in {0, 3}
    assert capsys.readouterr().out.startswith(f"{file}: ")
    with only_one(folders.state):
        assert command(folders, "fsck", "--repair") == 1
    assert f"held by process {os.getpid()}" in said(capsys)
    assert command(folders, "fsck", "--repair", "--json") in {0, 3}
    answer = json.loads(capsys.readouterr().out)
    assert [finding["path"] for finding in answer["findings"]] == [str(file)]
    assert answer["files"] == 2


def test_a_finding_says_what_can_be_salvaged(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(archive.disk_folder(folders, Sensitivity.PUBLIC))
    folder.mkdir(parents=True)
    image = (Path(__file__).parent.parent / "compat" / "segment-1-rows.h5").read_bytes()
    half, flipped = (folder / archive.Name("b" * 32, number, number).file for number in (1, 2))
    half.write_bytes(image[: len(image) // 2])
    flipped.write_bytes(image)
    with h5py.File(flipped) as opened:
        widths = [data for name, data in opened["block/0"].items() if name.startswith("i")]
        place = widths[0].id.get_chunk_info(0).byte_offset
    flipped.write_bytes(image[:place] + bytes([image[place] ^ 1]) + image[place + 1 :])
    assert command(folders, "fsck") == 3
    first, second, last = capsys.readouterr().out.splitlines()
    assert last == "2 files read, 2 damaged or unreadable"
    assert first.startswith(f"{half}: damaged: not a readable HDF5 file")
    assert first.endswith("; none of it can be read")
    assert re.search(r": damaged: [^/].*; \d+ of \d+ series can be read$", second)


def test_no_archive_is_no_sound_archive(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("fsck",), ("fsck", "--repair")):
        assert command(folders, *words) == 1
        assert said(capsys) == f"{folders.state}: no such folder; nothing was recorded there"


def test_who_may_not_see_or_write_an_archive_is_told_in_one_line(as_other: Callable[..., tuple[int, str]]) -> None:
    code, problem = as_other("budget")
    assert code == 77
    assert re.fullmatch(r"sysmond: .*/restricted/1s: Permission denied; root, .* may\n", problem)
    code, problem = as_other("fsck", "--repair")
    assert code == 77
    assert re.fullmatch(r"sysmond: .*/lock: Permission denied; nothing is lost, .*\n", problem)


@pytest.fixture
def as_other() -> Iterator[Callable[..., tuple[int, str]]]:
    """Carry out a command on somebody else's archive; its exit code, and what it says on standard error."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others.
        os.chmod(place, 0o755)  # noqa: S103  they are to get there
        there = Folders(f"{place}/state", f"{place}/run")
        for sensitivity in Sensitivity:
            os.makedirs(archive.disk_folder(there, sensitivity))
        os.chmod(f"{there.state}/restricted/1s", 0o700)

        def run(*words: str) -> tuple[int, str]:
            says = f"{place}/says"
            child = os.fork()
            if child == 0:
                code = 1
                with suppress(BaseException):  # Nothing may escape into a second pytest.
                    sys.stderr = open(says, "w", encoding="utf-8", buffering=1)  # noqa: SIM115  the process ends
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                    code = command(there, *words)
                os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return code, Path(says).read_text(encoding="utf-8")

        yield run


@pytest.fixture
def same_handlers() -> Iterator[None]:
    """As a program that ends when its command does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("same_handlers")
@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_a_selftest_says_what_it_found(
    ok: bool, code: int, monkeypatch: pytest.MonkeyPatch, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "run", lambda kills: {"ok": ok, "kills": kills})
    monkeypatch.setattr(selftest, "line", lambda result: f"{result['kills']} kills")
    assert command(folders, "selftest", "--kill", "3") == code
    assert command(folders, "selftest", "--kill", "3", "--json") == code
    line, answer = capsys.readouterr().out.splitlines()
    assert line == "3 kills"
    assert json.loads(answer) == {"ok": ok, "kills": 3}
