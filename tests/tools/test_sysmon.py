# SPDX-License-Identifier: Apache-2.0
"""What ``sysmon`` shows: a page of a moment, keys that lead to another, and the program on a real terminal (tmux)."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from sysmon_tools import moment, moment_page, sysmon
from sysmon_tools.curves import BUCKETS, Curve
from sysmon_tools.moment import MomentScene, View
from sysmon_tools.screen.look import Look
from sysmon_tools.signs import ASCII_SIGNS
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.base.result import Event, Gap
from sysmond.errors import Error, UsageError
from sysmond.history import Archive
from sysmond.machine import recorders
from sysmond.machine.folders import Folders, link_state
from sysmond.machine.lock import only_one
from tests.support.longarchive import BOOTED_NS
from tests.support.screens import PICTURE, each_after, picture
from tests.support.stall import FIRST_S, SECONDS, STALL_NS, stuck
from tests.support.terminal import Terminal, has_ended, needs_tmux
from tests.support.usage import one_line
from tests.support.waiting import HANG_S, wait_until

BIN = Path(sys.executable).parent
GUIDE_SIZE = (90, 24)
HOSTILE = "\x1b]0;owned\x07<script>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Half an hour of a calm machine, with a minute in which the disk is stuck."""
    return stuck(tmp_path_factory.mktemp("stall"), HOSTILE)


@pytest.fixture
def shown(folders: Folders) -> MomentScene:
    return moment.look(Archive(folders), View(STALL_NS), STALL_NS + 600 * SECOND_NS)


def text(made: MomentScene, width: int = 100, height: int = 45) -> str:
    return "\n".join(line.plain.rstrip() for line in moment_page.page(made, width, height))


def test_a_page_says_who_it_was_and_what_was_waited_for(shown: MomentScene) -> None:
    page = text(shown)
    assert page.startswith("laptop  REPLAY")
    assert "10 min ago" in page
    assert "I/O error, dev sda \\x1b]0;owned\\x07<script>" in page
    assert [share.comm for share in shown.processes] == ["calm", "updatedb"]
    assert {(wait.comm, wait.place) for wait in shown.waits} == {
        ("updatedb", "jbd2_log_wait"), (HOSTILE[:15], "jbd2_log_wait"),
    }  # fmt: skip
    assert "waiting for a device or a lock, in jbd2_log_wait" in page
    [stalled] = [curve for curve in shown.curves if curve.label == "Disk wait"]
    assert stalled.values[BUCKETS // 2] == pytest.approx(90.0, abs=1)
    assert "lid" not in [event.kind for event in shown.events]


def test_by_disk_comes_first_who_wrote(folders: Folders) -> None:
    made = moment.look(Archive(folders), View(STALL_NS, order="disk"), STALL_NS)
    assert made.processes[0].comm == "updatedb"
    assert made.processes[0].disk_bytes_s == pytest.approx(50e6, rel=0.1)
    assert "Processes by disk" in text(made)


def test_where_nothing_is_recorded_the_nearest_moment_is_shown_and_said(folders: Folders) -> None:
    made = moment.look(Archive(folders), View(STALL_NS + 86_400 * SECOND_NS), STALL_NS)
    assert made.asked_ns == STALL_NS + 86_400 * SECOND_NS
    assert abs(made.view.at_ns - (BOOTED_NS + (FIRST_S + SECONDS) * SECOND_NS)) < 60 * SECOND_NS
    assert "showing the nearest moment" in text(made)


@pytest.mark.parametrize(
    ("view", "later_s", "begun_s", "word", "span_s"),
    [
        (View(STALL_NS), 100, None, "REPLAY", (-30, 30)),
        (View(STALL_NS), 5, None, "REPLAY", (-30, 5)),  # What is not there yet is no part of it.
        (moment.of_now(STALL_NS), 0, None, "LIVE", (-11, -1)),
        (moment.of_now(STALL_NS), 0, -8, "LIVE", (-8, -1)),
        (View(STALL_NS), 100, 60, "REPLAY", (-30, 30)),  # Nothing of it is recorded.
    ],
)
def test_the_first_line_says_of_which_time_the_figures_are(
    view: View, later_s: int, begun_s: int | None, word: str, span_s: tuple[int, int]
) -> None:
    gaps = () if begun_s is None else (Gap(0, STALL_NS + begun_s * SECOND_NS, "cpu", Cause.BEFORE_RECORDING),)
    made = MomentScene(view, STALL_NS + later_s * SECOND_NS, gaps=gaps)
    head = moment_page.page(made, 100, 45, is_live=word == "LIVE")[0].plain
    begin, end = (moment_page.local(STALL_NS + edge_s * SECOND_NS, "%H:%M:%S") for edge_s in span_s)
    assert head.split()[1] == word
    assert head.endswith(f" · showing {begin} to {end}")


def test_pages_of_now_are_live_and_of_the_ten_seconds_before(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_ns = STALL_NS + 10 * SECOND_NS
    monkeypatch.setattr(recorders, "is_recording", lambda place: True)
    monkeypatch.setattr(Archive, "now", lambda self: clock.Relation(0, now_ns, 0))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert run(folders, "--plain", "--frames", "2") == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("laptop")]
    assert len(heads) == 2
    begin, end = (moment_page.local(now_ns + away * SECOND_NS, "%H:%M:%S") for away in (-11, -1))
    assert all(line.startswith("laptop  LIVE") and line.endswith(f"showing {begin} to {end}") for line in heads)


def test_an_empty_archive_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Error, match="nothing has been recorded"):
        moment.look(Archive(Folders(str(tmp_path), str(tmp_path))), View(STALL_NS), STALL_NS)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (200, 60), (20, 3), (100, 1)])
def test_a_page_fits_any_terminal(shown: MomentScene, width: int, height: int) -> None:
    lines = moment_page.page(shown, width, height)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    assert all(line.plain.isprintable() for line in lines)


def test_a_page_in_ascii(shown: MomentScene) -> None:
    lines = moment_page.page(shown, 80, 24, ASCII_SIGNS)
    drawn = [line.plain for line in lines if line.plain.startswith("CPU")]
    assert drawn
    assert drawn[0].isascii()


def test_what_is_missing_is_said_with_its_cause() -> None:
    gaps = (Gap(0, 10, "cpu", Cause.SUSPENDED, "for an hour"), Gap(0, 5, "disk", Cause.SUSPENDED, "for an hour"))
    made = MomentScene(View(5), 10, gaps=gaps, warnings=("a file is damaged",))
    assert "missing: suspended (for an hour)" in text(made)
    assert "warning: a file is damaged" in text(made)


@pytest.mark.parametrize("unit", ["%", "Cel"])
def test_values_below_zero_and_beyond_all_measure_are_drawn_as_nothing_and_as_all(unit: str) -> None:
    values = np.array([-1e308, -300.0, 0.0, *[100.0] * (BUCKETS - 3)] if unit == "%" else [*[-5.0] * 59, 20.0])
    [_, line] = moment_page.curve_lines(MomentScene(View(STALL_NS), STALL_NS, curves=[Curve("x", unit, values)]), 200)
    drawn = line.plain[12 : 12 + BUCKETS]
    assert drawn == ("▁▁▁" if unit == "%" else "▁" * 59).ljust(BUCKETS, "█")


def test_values_are_spelled_for_people() -> None:
    values = ((90.04, "%"), (51.0, "Cel"), (1536.0, "B"), (0.0, "B/s"), (None, "%"))
    spelled = [moment_page.spelled(value, unit) for value, unit in values]
    assert spelled == ["90.0 %", "51.0 °C", "1.50 KiB", "0 B/s", "–"]


def test_the_guide_finds_the_stall_with_the_keys_that_it_names(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone who knows only that it was about eleven; what the guide shows is what is shown."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        guide = (repository / "docs/sysmon.md").read_text(encoding="utf-8")
        archive, begin = Archive(stuck(tmp_path, "")), Look(View(BOOTED_NS + 300 * SECOND_NS))
        names = {"]": "right_square_bracket", "Enter": "enter", "+": "plus"}
        walked = re.findall(r"^\| `(\S+)`", guide.partition("## Views")[0], re.MULTILINE)
        assert 0 < len(walked) <= 10
        shown = each_after(archive, begin, [names.get(key, key) for key in walked], GUIDE_SIZE)
        assert any("updatedb" in lines for lines in shown)
        for block, after in ((3, walked.index("D") + 1), (5, len(walked))):
            lines = [line for line in shown[after].splitlines() if line]
            assert guide.split("```\n")[block] == "\n".join([*lines, ""])
    finally:
        monkeypatch.undo()
        time.tzset()


def texts(svg: str) -> list[str]:
    """What can be read in a picture, without the space around it."""
    return [line.strip() for line in re.findall(r">([^<>]+)</text>", svg) if line.strip()]


def test_the_picture_of_the_screen_is_what_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its colours and places are the library's; its texts are compared. Draw it: python -m tests.support.screens."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        drawn = picture(tmp_path)
    finally:
        monkeypatch.undo()
        time.tzset()
    shown = PICTURE.read_text(encoding="utf-8")
    assert texts(shown) == texts(drawn)
    assert not re.search(r"https?://(?!www\.w3\.org)", shown.replace("https://www.textualize.io", ""))


# --- the program -----------------------------------------------------------------------------------


def run(folders: Folders, *words: str) -> int:
    return sysmon.main(["--state-dir", folders.state, "--runtime-dir", folders.runtime, *words])


def test_a_pipe_gets_a_page(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    moment_ns = f"@{STALL_NS // SECOND_NS}"
    assert run(folders, "--at", moment_ns) == 0
    page = capsys.readouterr().out
    assert "updatedb" in page
    assert "\x1b" not in page
    assert run(folders, "replay", moment_ns) == 0
    assert capsys.readouterr().out.splitlines()[1:] == page.splitlines()[1:]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "there is no command 'x'; expected replay, plot"),
        (["replay"], "missing: T (the moment to show); expected 'sysmon replay T'"),
        (["report"], "; expected 'sysmon report --at T --output-file F.html'"),
        (["--nix"], "unknown option '--nix'; 'sysmon --help' lists the options"),
        (["plot", "--nix"], "unknown option '--nix'; 'sysmon plot --help' lists the options"),
        (["plot", "--from"], "--from/--since: has no value; expected --from=T"),
        (["--frames", "0"], "--frames 0: expected 1 to"),
        (["--at", "nonsense"], "nonsense"),
        (["--att", "now"], "--at"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)


def test_where_no_recorder_runs_it_opens_at_the_last_moment_and_says_so(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folders, "--plain") == 0
    said = capsys.readouterr()
    assert said.err == "sysmon: no recorder runs: this is the last that was recorded; 'sysmond' starts one\n"
    cpu = next(line for line in said.out.splitlines() if line.startswith("CPU "))
    assert "%" in cpu


def test_a_recorder_with_a_runtime_folder_of_its_own_is_named(
    folders: Folders, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runtime / "archiver").mkdir()
    (runtime / "empty").mkdir()
    named = f"process {os.getpid()} records there and holds the rest in RAM: expected --runtime-dir={runtime}, too"
    for (state, other), code, said in (
        ((f"{runtime}/empty", f"{runtime}/empty"), Error.exit_code, f"{runtime}/empty: nothing recorded yet; {named}"),
        (folders, 0, named),  # What is there is shown.
    ):
        link_state(Folders(state, str(runtime)))
        with only_one(state), only_one(str(runtime)):
            assert sysmon.main(["--plain", "--state-dir", state, "--runtime-dir", other]) == code
            printed = capsys.readouterr()
            assert printed.err == f"sysmon: {said}\n"
            assert bool(printed.out) == (code == 0)


def test_what_says_nothing_of_unicode_gets_ascii(folders: Folders) -> None:
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    page = subprocess.run(
        [f"{BIN}/sysmon", *where, "--at", f"@{STALL_NS // SECOND_NS}"], capture_output=True, check=True, env=environ
    )
    assert b"updatedb" in page.stdout
    assert page.stdout.isascii()


@pytest.fixture
def terminal(folders: Folders) -> Iterator[Terminal]:
    at = STALL_NS // SECOND_NS
    made = Terminal(f"{BIN}/sysmon --state-dir {folders.state} --runtime-dir {folders.runtime} --at @{at}")
    yield made
    made.close()


@needs_tmux
def test_keys_change_what_is_shown_and_q_ends_it(terminal: Terminal) -> None:
    terminal.until(lambda screen: "REPLAY" in screen and "Processes by CPU" in screen)
    terminal.keys("D")
    terminal.until(lambda screen: "Processes by disk" in screen)
    terminal.keys("?")
    terminal.until(lambda screen: "earlier" in screen)
    terminal.resize(50, 12)
    terminal.until(lambda screen: "REPLAY" in screen and max(map(len, screen.splitlines())) <= 50)
    terminal.keys("Left")
    terminal.until(lambda screen: "Processes" in screen or "CPU" in screen)
    terminal.keys("q")
    assert "exit code 0\n1\n" in terminal.until(has_ended)


@needs_tmux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(
    folders: Folders, tmp_path: Path, number: signal.Signals
) -> None:
    pid = tmp_path / "pid"
    at = STALL_NS // SECOND_NS
    words = f"{BIN}/sysmon --state-dir {folders.state} --runtime-dir {folders.runtime} --at @{at}"
    made = Terminal(f"sh -c 'echo $$ > {pid}; exec {words}'")
    try:
        made.until(lambda screen: "REPLAY" in screen)
        os.kill(int(pid.read_text()), number)
        assert "exit code 0\n1\n" in made.until(has_ended)
    finally:
        made.close()


@needs_tmux
def test_live_and_replay_by_turns_also_when_the_recorder_has_gone(runtime: Path, tmp_path: Path) -> None:
    where = ["--state-dir", str(tmp_path / "state"), "--runtime-dir", str(runtime)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    recorder = subprocess.Popen([f"{BIN}/sysmond", "--bus=none", *where], **quiet)  # type: ignore[call-overload]
    try:
        wait_until(lambda: list(runtime.glob("sampler/public/*.ring")))
        made = Terminal(f"{BIN}/sysmon {' '.join(where)}")
        try:
            made.until(lambda screen: "LIVE" in screen and "Memory" in screen)
            made.keys("T")
            made.until(lambda screen: "REPLAY" in screen)
            made.keys("Space", "p")
            made.until(lambda screen: "LIVE" in screen and "general" in screen)
            made.keys("m", "h", "i", "Enter")
            made.until(lambda screen: "marked 'hi'" in screen)
            recorder.terminate()
            assert recorder.wait(HANG_S) == 0
            made.until(lambda screen: "missing" in screen or "showing the nearest moment" in screen)
            made.keys("q")
            assert "exit code 0\n1\n" in made.until(has_ended)
        finally:
            made.close()
    finally:
        recorder.kill()
        recorder.wait()


def test_an_event_far_away_is_told_after_one_that_is_near() -> None:
    events = (Event(0, "distant", "", ""), Event(100 * SECOND_NS, "near", "", ""))
    page = text(MomentScene(View(100 * SECOND_NS), 0, events=events))
    assert page.index("near") < page.index("distant")
