# SPDX-License-Identifier: Apache-2.0
"""Two spans side by side: what a span is, what differs most, and that it is named."""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from sysmon_tools import compare, sysmon
from sysmon_tools.compare import Difference
from sysmond.base import clock, timespec
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.machine.folders import Folders
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOTED_NS, Row, put, stretch
from tests.support.machine import Machine
from tests.support.stall import FIRST_S, STALL, stuck
from tests.support.usage import one_line

CALM = f"@{(BOOTED_NS // SECOND_NS) + FIRST_S + 100}..@{(BOOTED_NS // SECOND_NS) + FIRST_S + 160}"
STUCK = f"@{(BOOTED_NS // SECOND_NS) + FIRST_S + STALL.start}..@{(BOOTED_NS // SECOND_NS) + FIRST_S + STALL.stop}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), "")


def run(folders: Folders, *words: str) -> int:
    return sysmon.main(["compare", "--state-dir", folders.state, "--runtime-dir", folders.runtime, *words])


def test_what_differs_most_comes_first(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, CALM, STUCK) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    what = [row["what"] for row in rows]
    assert what[0] == "program updatedb: written_bytes"
    assert {"disk/written_bytes@sda", "disk/utilization@sda", "pressure/some_percent@io"} <= set(what[:5])
    assert not any("calm" in name for name in what)  # It did the same all the time.
    waited = next(row for row in rows if row["what"] == "pressure/some_percent@io")
    assert (waited["unit"], float(waited["before"])) == ("%", 0)
    assert run(folders, CALM, STUCK, "--format=table") == 0
    shown = capsys.readouterr().out
    assert re.search(r"disk/utilization@sda +0 % +99 % +\+99 %", shown)


def test_programs_get_numbers(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, CALM, STUCK, "disk/utilization", "--format=json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["what"], row["unit"], row["before"]) == ("disk/utilization@sda", "%", 0.0)
    assert row["after"] == pytest.approx(99, abs=2)


def test_the_same_span_twice_differs_in_nothing(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, CALM, CALM) == 0
    assert capsys.readouterr().out == "what,unit,before,after\n"
    assert run(folders, CALM, CALM, "--all", "--top=3") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_span_without_anything_is_not_taken_for_zero(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "2001-01-01..2001-01-02", STUCK) == 1
    assert "nothing was recorded in that time" in one_line(capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [CALM],
            (
                "sysmon: missing: AFTER (the second span, such as 'today 14:00..15:00' or -1h..now);"
                " expected 'sysmon compare BEFORE AFTER'\n"
            ),
        ),
        ([CALM, "yesterday"], "'yesterday': not a span; expected FROM..TO"),
        ([CALM, "..now"], "'..now': not a span"),
        ([CALM, "now..-1h"], "before it begins"),
        ([CALM, STUCK, "lode"], "lode"),
        ([CALM, STUCK, "--top=0"], "--top 0: expected 1 or more"),
        ([CALM, STUCK, "--format=xml"], "--format 'xml'"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("yesterday 14:00..15:00", "yesterday 14:00", "yesterday 15:00"),
        ("2025-01-31 14:00..15:00:30", "2025-01-31 14:00", "2025-01-31 15:00:30"),
        ("-2h..-1h", "-2h", "-1h"),
        ("yesterday .. today", "yesterday", "today"),
    ],
)
def test_the_end_of_a_span_is_of_the_day_of_its_beginning(text: str, start: str, end: str) -> None:
    now = clock.relation()
    assert compare.read_span(text, now) == timespec.parse_span(start, end, now)


def test_what_nobody_would_notice_does_not_matter() -> None:
    assert Difference("a", "%", 10, 50).matters
    assert not Difference("a", "%", 0, 0.1).matters  # Little is done at all.
    assert not Difference("a", "B", 10 << 30, 10.5 * (1 << 30)).matters  # It differs by little.
    assert Difference("a", "B", 0, 0).share == 0


def test_of_more_processes_than_can_be_compared_programs_are_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Machine(tmp_path)
    rows: list[tuple[int, Row]] = [
        (second, {"pid": pid, "start": SECOND_NS, "comm": "x", "cpu": second * pid})
        for second in range(3)
        for pid in range(1, 1501)
    ]
    put(made.folders, stretch(PROCESS, range(10, 13), rows), 1)
    assert run(made.folders, "-100y..now", "-100y..now", "process/cpu") == UsageError.exit_code
    said = one_line(capsys)
    assert "series; expected at most 1000: name instances or metrics" in said
    assert said.endswith("; without PATH programs and units are compared, too\n")
