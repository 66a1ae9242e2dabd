# SPDX-License-Identifier: Apache-2.0
"""Pictures: what is asked for them, where the marks of their axes stand, and what is drawn, on paper and terminal."""

import base64
import hashlib
import html
import re
import shutil
import stat
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from sysmon_tools import axes, html_plot, picture, svg, sysmon, terminal_plot
from sysmon_tools.grid import length
from sysmon_tools.picture import Panel, Picture, Trace
from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.base.result import Event, Gap
from sysmond.base.timespec import Notation
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.support.browser import opened
from tests.support.longarchive import BOOTED_NS
from tests.support.stall import FIRST_S, SECONDS, stuck
from tests.support.usage import one_line

START_NS = BOOTED_NS + FIRST_S * SECOND_NS
END_NS = START_NS + SECONDS * SECOND_NS
HOSTILE = "\x1b]0;owned\x07</title><script>alert(1)</script>"
UTC_STYLE = Style(Notation.UTC, UTC)
NOON_NS = 1_700_049_600 * SECOND_NS
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), HOSTILE)


def drawn(*curves: Trace, unit: str = "%", gaps: Sequence[Gap] = (), events: Sequence[Event] = ()) -> Picture:
    count = len(curves[0].values)
    times_ns = NOON_NS + np.arange(count) * 60 * SECOND_NS
    end_ns = NOON_NS + count * 60 * SECOND_NS
    panel = Panel(unit, curves)
    return Picture(NOON_NS, end_ns, 60 * SECOND_NS, times_ns, (panel,), tuple(gaps), tuple(events))


def curve(path: str, values: Sequence[float]) -> Trace:
    return Trace(path, np.array(values, float))


def on_terminal(seen: Picture, columns: int = 60, lines: int = 20, *, is_ascii: bool = False) -> list[str]:
    return list(terminal_plot.draw(seen, UTC_STYLE, columns, lines, is_ascii=is_ascii))


# --- what is asked ---------------------------------------------------------------------------------


def test_series_of_a_unit_share_an_axis_and_have_the_range_of_each_bucket(folders: Folders) -> None:
    seen = picture.look(Archive(folders), ["cpu/user@total", "pressure/some_percent"], START_NS, END_NS, 100)
    (panel,) = seen.panels
    assert panel.unit == "%"
    assert {curve.path for curve in panel.curves} == {
        "cpu/user@total", "pressure/some_percent@cpu", "pressure/some_percent@io",
    }  # fmt: skip
    assert seen.step_ns == 30 * SECOND_NS
    waited = next(curve for curve in panel.curves if curve.path.endswith("@io"))
    assert waited.high is not None
    assert np.nanmax(waited.high) == pytest.approx(90, abs=1)


def test_what_happened_and_what_is_missing_are_there(folders: Folders) -> None:
    seen = picture.look(Archive(folders), ["disk/utilization"], START_NS - 100 * SECOND_NS, END_NS, 100)
    assert [event.kind for event in seen.events] == ["disk error"]
    assert seen.gaps == ()  # That it began to record is no hole.


def test_rows_of_long_tables_are_drawn_as_well(folders: Folders) -> None:
    seen = picture.look(Archive(folders), ["process/cpu@77"], START_NS, END_NS, 100)
    assert seen.panels[0].curves[0].path.startswith("process/cpu@77")


@pytest.mark.parametrize(
    ("paths", "said"),
    [(["cpu/nothing"], "cpu/nothing"), (["host/hostname"], "holds texts"), (["cpu", "memory"], "expected at most 24")],
)
def test_what_cannot_be_drawn_is_a_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], paths: Sequence[str], said: str
) -> None:
    assert run(folders, "plot", *paths, f"--from=@{START_NS // SECOND_NS}", f"--to=@{END_NS // SECOND_NS}") != 0
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


# --- axes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "unit", "texts"),
    [
        (0, 100, "%", ["0 %", "50 %", "100 %"]),
        (3, 97, "%", ["0 %", "50 %", "100 %"]),
        (90, 97, "%", ["90 %", "95 %", "100 %"]),
        (0, 0, "%", ["0 %", "0.50 %", "1 %"]),
        (0, 3 << 30, "B", ["0 B", "2.00 GiB", "4.00 GiB"]),
        (0, 1500, "B/s", ["0 B/s", "1.00 KiB/s", "2.00 KiB/s"]),
        (0, 0.02, "s", ["0 s", "10.0 ms", "20.0 ms"]),
        (-5, 30, "°C", ["-20 °C", "0 °C", "20 °C", "40 °C"]),
    ],
)
def test_marks_of_values_are_round_and_enclose_all(low: float, high: float, unit: str, texts: list[str]) -> None:
    marks = axes.value_marks(low, high, unit, 3)
    assert [text for _, text in marks] == texts
    assert marks[0][0] <= low
    assert marks[-1][0] >= high


@pytest.mark.parametrize(
    ("length_s", "texts"),
    [
        (60, ["12:00:00", "12:00:15", "12:00:30", "12:00:45", "12:01:00"]),
        (3600, ["12:00", "12:15", "12:30", "12:45", "13:00"]),
        (86400, ["12:00", "18:00", "Nov 16", "06:00", "12:00"]),
        (10 * 86400, ["Nov 17", "Nov 19", "Nov 21", "Nov 23", "Nov 25"]),
    ],
)
def test_marks_of_times_are_round_and_a_new_day_is_named(length_s: int, texts: list[str]) -> None:
    marks = axes.time_marks(NOON_NS, NOON_NS + length_s * SECOND_NS, 5, UTC)
    assert [text for _, text in marks] == texts
    assert all(NOON_NS <= time_ns <= NOON_NS + length_s * SECOND_NS for time_ns, _ in marks)


def test_marks_of_times_are_round_where_the_clock_is_ahead_by_half_an_hour() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    marks = axes.time_marks(NOON_NS, NOON_NS + 7200 * SECOND_NS, 5, zone)
    assert [text for _, text in marks] == ["17:30", "18:00", "18:30", "19:00", "19:30"]


def test_marks_go_on_where_the_clock_is_set_forward() -> None:
    before_ns = 1_711_843_200 * SECOND_NS  # 2024-03-31 00:00 UTC, an hour before summer begins in Berlin.
    marks = axes.time_marks(before_ns, before_ns + 3 * 3600 * SECOND_NS, 4, ZoneInfo("Europe/Berlin"))
    assert [text for _, text in marks] == ["01:00", "03:00", "04:00", "05:00"]


# --- on paper --------------------------------------------------------------------------------------


def test_a_file_is_well_formed_whatever_things_are_called() -> None:
    hostile = "disk/await@a<&\"'\x1b[31m\x00"
    event = Event(NOON_NS + SECOND_NS, "mark", "", HOSTILE)
    gap = Gap(NOON_NS, NOON_NS + SECOND_NS, "disk", Cause.PROBE_FAILED, HOSTILE)
    text = svg.draw(drawn(curve(hostile, [1, 2, 3]), gaps=[gap], events=[event]), HOSTILE, UTC_STYLE)
    root = ET.fromstring(text)  # noqa: S314  it is ours
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "<script" not in text
    assert "\x1b" not in text
    assert not re.search(r"(?:href|src|url)\s*[=(]", text)
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("probe failed" in title for title in titles)
    assert any("owned" in title for title in titles)


def test_a_hole_is_no_line() -> None:
    nan = float("nan")
    text = svg.draw(drawn(curve("cpu/user", [1, 2, nan, 3, 4, nan, 5])), "", UTC_STYLE)
    assert text.count("<polyline") == 2
    assert text.count("<circle") == 1
    assert svg.runs(np.array([nan, nan]), np.array([0, 1]), 1) == []


def test_buckets_that_were_left_out_are_a_hole_too() -> None:
    times_ns = np.array([0, 60, 120, 600, 660]) * SECOND_NS
    assert svg.runs(np.arange(5.0), times_ns, 60 * SECOND_NS) == [[0, 1, 2], [3, 4]]


def test_a_file_is_written_whole_and_says_what_it_is_of(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "disk.svg"
    assert run(folders, "plot", "disk/utilization", "--preset=cpu", *span(), "-o", str(file)) == 0
    assert capsys.readouterr().out.startswith(f"{file}: written; disk/utilization, cpu/user_percent@total, ")
    root = ET.parse(file).getroot()  # noqa: S314  it is ours
    text = "".join(root.itertext())
    assert "disk/utilization@sda" in text
    assert "cpu/user_percent@total" in text
    assert "mean" in text
    assert stat.S_IMODE(file.stat().st_mode) & 0o400


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_a_browser_draws_it(folders: Folders, tmp_path: Path) -> None:
    file, shot = tmp_path / "disk.svg", tmp_path / "disk.png"
    assert run(folders, "plot", "disk/utilization", *span(), "-o", str(file)) == 0
    where = [f"--screenshot={shot}", "--window-size=960,300", f"--user-data-dir={tmp_path}/profile"]
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", *where, file.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 3000


# --- in a browser ----------------------------------------------------------------------------------


def test_a_page_loads_nothing_and_runs_its_own_script_alone_whatever_things_are_called() -> None:
    event = Event(NOON_NS + SECOND_NS, "mark", "", HOSTILE)
    gap = Gap(NOON_NS, NOON_NS + SECOND_NS, "disk", Cause.PROBE_FAILED, HOSTILE)
    seen = drawn(curve("disk/await@</script><script>alert(1)</script>\x1b", [1, 2, 3]), gaps=[gap], events=[event])
    page = html_plot.draw([seen], HOSTILE, UTC_STYLE)
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert "\x1b" not in page
    assert "https://" not in page.replace("https://github.com/leeoniya/uPlot", "")
    policy = re.search(r'content="([^"]*)"', page)
    assert policy
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"sha256-{digest}" in html.unescape(policy[1])
    assert "unsafe" not in policy[1]


def test_a_day_of_one_series_is_no_more_than_300_kb() -> None:
    step_ns = 10 * SECOND_NS
    values = np.random.default_rng(1).uniform(0, 100, 8640)
    times_ns = NOON_NS + np.arange(8640) * step_ns
    fine = Picture(NOON_NS, NOON_NS + 8640 * step_ns, step_ns, times_ns,
                   (Panel("%", (Trace("cpu/busy", values, values - 1, values + 1),)),))  # fmt: skip
    assert len(html_plot.draw([fine], "a day", UTC_STYLE).encode()) <= 300_000


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_a_page_zooms_to_finer_values(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "disk.html"
    words = ["plot", "disk/utilization@sda", "--utc", *span(), "-o", str(file)]
    assert run(folders, *words) == 0
    begin_s = START_NS // SECOND_NS
    whole, closer = (in_browser(file.as_uri() + part, tmp_path) for part in ("", f"#{begin_s + 900}-{begin_s + 960}"))
    assert whole.count("<canvas") == closer.count("<canvas") == 1
    assert "a value each 5 s; finest: 1 s" in whole
    assert "a value each 1 s" in closer
    assert "disk error" in whole
    assert "disk/utilization@sda" in whole.partition("u-legend")[2]


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_fingers_move_a_page_and_zoom_it_to_finer_values(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "disk.html"
    assert run(folders, "plot", "disk/utilization@sda", "--utc", *span(), "-o", str(file)) == 0
    with opened(file.as_uri(), tmp_path) as page:
        assert "a value each 5 s" in page.ask("told.textContent")
        left, top, width = page.ask(
            "(r => [r.left, r.top + 20, r.width])(document.querySelector('.u-over').getBoundingClientRect())"
        )
        page.touch((left + width * 0.48, top), (left + width * 0.52, top))
        page.touch((left + width * 0.1, top), (left + width * 0.9, top))
        assert "a value each 1 s" in (closer := page.ask("told.textContent"))
        page.touch()
        page.touch((left + width * 0.9, top))
        page.touch((left + width * 0.1, top))
        assert "a value each 1 s" in (moved := page.ask("told.textContent"))
        assert moved != closer
        page.touch()


def in_browser(address: str, folder: Path) -> str:
    """The document as a browser has it once its script has run."""
    where = ["--dump-dom", "--virtual-time-budget=5000", f"--user-data-dir={folder}/profile"]
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", *where, address]
    return subprocess.run(command, check=True, capture_output=True, timeout=120, text=True).stdout


# --- on a terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_it_fits_the_terminal(folders: Folders, columns: int, *, is_ascii: bool) -> None:
    paths = ["cpu/user@total", "memory/available", "disk/utilization"]
    seen = picture.look(Archive(folders), paths, START_NS, END_NS, columns)
    lines = on_terminal(seen, columns, 40, is_ascii=is_ascii)
    assert max(map(length, lines)) <= columns
    assert len(lines) <= 40
    assert "\x1b" not in "".join(lines)
    assert not is_ascii or all(line.isascii() for line in lines)


def test_what_rises_rises_and_a_hole_is_empty() -> None:
    nan = float("nan")
    lines = on_terminal(drawn(curve("cpu/user", [0] * 10 + [nan] * 10 + [100] * 10)), 44, 12, is_ascii=True)
    rows = [line.partition("|")[2].ljust(36) for line in lines if "|" in line]
    assert rows[-1].startswith("*")
    assert rows[0].rstrip().endswith("*")
    assert not "".join(row[14:20] for row in rows).strip()
    assert lines[0].startswith("100 % |")
    assert "mean 50 %" in "".join(lines)


def test_several_curves_are_told_apart_in_letters() -> None:
    lines = on_terminal(drawn(curve("a/b", [0, 0]), curve("a/c", [9, 9])), is_ascii=True)
    assert any(line.strip().startswith("* a/b") for line in lines)
    assert any(line.strip().startswith("+ a/c") for line in lines)


def test_an_empty_range_is_no_picture(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.svg"
    assert run(folders, "plot", "disk/utilization", "--from=2001-01-01", "--to=2001-01-02", "-o", str(file)) == 1
    assert "nothing was recorded from 2001-01-01T" in one_line(capsys)
    assert not file.exists()
    assert run(folders, "plot", "disk/utilization", *span(), "-o", "/nowhere/a.svg") == 1
    assert one_line(capsys) == "sysmon: /nowhere/a.svg: No such file or directory\n"


def test_a_terminal_gets_what_a_pipe_gets(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "plot", "disk/utilization", *span()) == 0
    shown = capsys.readouterr().out
    assert "disk/utilization@sda" in shown
    assert "disk error" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plot"], "nothing to draw; expected a PATH"),
        (["plot", "cpu", "-o", "x.png"], "x.png: a picture is SVG or HTML"),
        (["plot", "cpu", "--from=now", "--to=-1h"], "before it begins"),
        (["plot", "cpu", "--sample=soon"], "soon"),
        (["plot", "--preset=everything"], "preset 'everything'"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)


def run(folders: Folders, *words: str) -> int:
    return sysmon.main([*words, "--state-dir", folders.state, "--runtime-dir", folders.runtime])


def span() -> tuple[str, str]:
    return f"--from=@{START_NS // SECOND_NS}", f"--to=@{END_NS // SECOND_NS}"
