# SPDX-License-Identifier: Apache-2.0
"""The list of boots: when each was, which kernel ran, and how it ended."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from sysmond_probes.host import HOST
from sysmond_probes.init import INIT

from sysmon_tools import boots, rows, sysmon
from sysmon_tools.grid import Display
from sysmon_tools.signs import ASCII_SIGNS, SIGNS
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from tests.support.earlyboot import CHAIN, booted
from tests.support.longarchive import relation
from tests.support.usage import one_line

FIRST_S, SECONDS = 10, 600
HOUR_S = 3600
BEFORE_NS = clock.relation().realtime_ns - 5 * HOUR_S * SECOND_NS


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    (tmp_path / "state").mkdir()
    return made


def record(
    folders: Folders,
    boot: str,
    booted_ns: int,
    kernel: str,
    *happened: tuple[int, str],
    ended: Sequence[tuple[int, str, str]] = (),
    startups: Sequence[tuple[int, str]] = (),
    init: str = "",
) -> None:
    """Ten minutes of a boot; ``happened``: seconds after its first row, and the kind of an event.

    ``startups``: seconds likewise, and what was told of how it started; ``init``: its first process.

    ``ended``: what it says of the boot before: when that was, where it is known, else 0; how it ended, and a text.
    """
    folder = Path(folders.runtime, "sampler/public")
    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity(boot, "sampler", Sensitivity.PUBLIC, 1, FIRST_S * SECOND_NS)
    layouts = [Layout(table, 10 * SECOND_NS) for table in ((HOST, INIT) if init else (HOST,))]
    writer = RingWriter(str(folder / f"{booted_ns}.ring"), 1 << 18, identity, layouts)
    writer.clock(relation(FIRST_S * SECOND_NS, booted_ns))
    for second in range(0, SECONDS, 10):
        values = [
            writer.text(kernel if metric.name == "kernel" else "") if metric.is_text else 0 for metric in HOST.metrics
        ]
        writer.rows(0, (FIRST_S + second) * SECOND_NS, ("",), values)
    if init:
        writer.rows(1, (FIRST_S + SECONDS - 10) * SECOND_NS, ("",), [writer.text(init)])
    for second, text in startups:
        writer.event((FIRST_S + second) * SECOND_NS, "startup", "", text)
    for second, kind in happened:
        writer.event((FIRST_S + second) * SECOND_NS, kind, "", "")
    for then_ns, how, text in ended:
        known = {"happened_ns": then_ns, "known_from": "pstore"} if then_ns else {}
        writer.event((FIRST_S + 1) * SECOND_NS, "boot ended", how, text, **known)  # type: ignore[arg-type]
    writer.close(is_over=False)


def listed(folders: Folders, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert sysmon.main(["boots", *where, *words]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_each_boot_says_its_kernel_and_how_it_ended(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    now_ns = clock.relation().realtime_ns
    record(folders, "a" * 32, now_ns - 5 * HOUR_S * SECOND_NS, "6.1", (SECONDS, "stop"))
    record(folders, "b" * 32, now_ns - 3 * HOUR_S * SECOND_NS, "6.2", (100, "stop"), (SECONDS - 20, "lockup"))
    record(folders, clock.boot_id(), now_ns - (FIRST_S + SECONDS) * SECOND_NS, "6.3")
    rows = listed(folders, capsys)
    assert [(row["boot"], row["kernel"], row["ended"]) for row in rows] == [
        ("-2", "6.1", "in order"),
        ("-1", "6.2", "unknown: power loss, hang or reset; lockup before it"),
        ("0", "6.3", "running"),
    ]
    assert rows[0]["id"] == "a" * 32
    assert float(rows[0]["lasted_s"]) == SECONDS - 10


@pytest.mark.parametrize(("ago_s", "happened"), [(0, ((SECONDS, "stop"),)), (300, ())])
def test_the_boot_that_runs_says_whether_it_is_recorded(
    folders: Folders, capsys: pytest.CaptureFixture[str], ago_s: int, happened: tuple[tuple[int, str], ...]
) -> None:
    now_ns = clock.relation().realtime_ns - ago_s * SECOND_NS
    record(folders, clock.boot_id(), now_ns - (FIRST_S + SECONDS) * SECOND_NS, "6.3", *happened)
    assert [row["ended"] for row in listed(folders, capsys)] == ["running, not recorded any more"]


def test_a_recorder_that_was_started_again_goes_on(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    now_ns = clock.relation().realtime_ns
    record(folders, clock.boot_id(), now_ns - (FIRST_S + SECONDS) * SECOND_NS, "6.3", (SECONDS - 60, "stop"))
    assert [row["ended"] for row in listed(folders, capsys)] == ["running"]


def test_a_boot_that_nobody_ended_says_so(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    record(folders, "c" * 32, clock.relation().realtime_ns - 5 * HOUR_S * SECOND_NS, "6.1\x1b[2J")
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert sysmon.main(["boots", *where, "--format=table"]) == 0
    shown = capsys.readouterr().out
    assert "unknown: power loss, hang or reset" in shown
    assert "9 min 50 s" in shown
    assert "\x1b" not in shown
    assert sysmon.main(["boots", *where, "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["kernel"] == "6.1\x1b[2J"


def test_what_the_next_boot_finds_says_how_one_ended(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    now_ns = clock.relation().realtime_ns
    starts_ns = [now_ns - hours * HOUR_S * SECOND_NS for hours in (9, 8, 7, 6)]
    late_ns = starts_ns[1] - 600 * SECOND_NS  # What was recorded shortly before it is lost.
    ends = (
        (),
        ((late_ns, "panic", "Kernel panic - not syncing: x"), (0, "unknown", "power loss, hang or reset")),
        ((0, "unknown", "power loss, hang or reset"), (0, "watchdog", "watchdog0 (dog): nobody fed it")),
        ((0, "in order", "the recorder was told to stop"),),
    )
    for boot, start_ns, told in zip("abcd", starts_ns, ends, strict=True):
        record(folders, boot * 32, start_ns, "6.1", ended=told)
    assert [row["ended"] for row in listed(folders, capsys)] == [
        "panic: Kernel panic - not syncing: x",
        "watchdog: watchdog0 (dog): nobody fed it",
        "in order",
        "unknown: power loss, hang or reset",
    ]


def test_how_long_a_shutdown_took_is_said(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    record(folders, "a" * 32, BEFORE_NS, "6.1", (SECONDS - 30, "shutdown"), (SECONDS - 10, "stop"))
    assert [row["ended"] for row in listed(folders, capsys)] == ["in order, 20 s after it was requested"]


def test_a_boot_that_never_finished_or_has_no_systemd_says_so(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    late, over = "unfinished after 600 s", "26.500 s: kernel 2.500 s, userspace 24.000 s"
    stops = SECONDS, "stop"
    record(folders, "a" * 32, BEFORE_NS, "6.1", stops, startups=((500, late),), init="systemd")
    record(folders, "b" * 32, BEFORE_NS + HOUR_S * SECOND_NS, "6.1", stops, init="runit\x1b[2J")
    both = (400, late), (500, over)
    record(folders, "c" * 32, BEFORE_NS + 2 * HOUR_S * SECOND_NS, "6.1", stops, startups=both, init="systemd")
    record(folders, "d" * 32, BEFORE_NS + 3 * HOUR_S * SECOND_NS, "6.1", stops)
    rows = listed(folders, capsys)
    assert [(row["startup"], row["startup_s"], row["userspace_s"]) for row in rows] == [
        ("unfinished", "", ""), ("no systemd", "", ""), ("finished", "26.5", "24"), ("", "", ""),
    ]  # fmt: skip
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert sysmon.main(["boots", *where, "--format=table"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("unfinished", "no systemd", "26.5 s"))
    assert sysmon.main(["boots", *where, "--explain"]) == 0
    said = capsys.readouterr().err
    assert said.strip().endswith("there are 1; left out as their length is not known: 3 (1 no systemd, 1 unfinished)")


def test_how_long_each_phase_took_is_a_curve_over_the_boots(
    folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = (
        "20.000 s: firmware 4.000 s, kernel 2.000 s, userspace 14.000 s",
        "unfinished after 600 s",
        "40.000 s: firmware 4.000 s, kernel 2.000 s, userspace 34.000 s",
    )
    for number, text in enumerate(told):
        start_ns = BEFORE_NS + number * HOUR_S * SECOND_NS
        record(folders, "abc"[number] * 32, start_ns, "6.1", (SECONDS, "stop"), startups=((500, text),), init="systemd")
    listed = boots.boots(Archive(folders))
    assert boots.trends(listed, 80, SIGNS)[2:] == [
        "in all     ▅ █  40.0 s, from 20.0 s to 40.0 s",
        "firmware   █ █  4.0 s",
        "kernel     █ █  2.0 s",
        "userspace  ▄ █  34.0 s, from 14.0 s to 34.0 s",
    ]
    assert boots.trends(listed[:2], 80, SIGNS) == []
    monkeypatch.setattr(rows, "display", lambda: Display(80, has_pager=False))
    assert sysmon.main(["boots", "--state-dir", folders.state, "--runtime-dir", folders.runtime]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == boots.trends(listed, 80, SIGNS)[1:]
    narrow = boots.trends([*listed, *listed], 50, ASCII_SIGNS)  # There is room for three boots.
    assert narrow[2] == "in all     = #  40.0 s, from 20.0 s to 40.0 s"
    assert all(line.isascii() and len(line) <= 50 for line in narrow)


def test_wrong_usage_is_one_line(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert sysmon.main(["boots", *where, "--format=xml"]) == UsageError.exit_code
    assert "--format 'xml'" in capsys.readouterr().err


def test_the_chain_of_a_boot_is_listed_the_last_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = booted(tmp_path, detail=f"cups.service 6.000 s @10.000 s; chain: {CHAIN}")
    assert listed(folders, capsys, "--chain") == [
        {"unit": "multi-user.target", "began_s": "20", "took_s": ""},
        {"unit": "cups.service", "began_s": "10", "took_s": "6"},
        {"unit": "dev-sda1.device", "began_s": "0.5", "took_s": "3"},
    ]
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert sysmon.main(["boots", *where, "--chain", "-1"]) == UsageError.exit_code
    assert "boot '-1': only one boot is recorded" in one_line(capsys)
    assert sysmon.main(["boots", *where, "--chain", "--explain"]) == UsageError.exit_code
    assert "expected only one of them" in one_line(capsys)


def test_a_boot_without_a_chain_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = booted(tmp_path)
    assert sysmon.main(["boots", "--state-dir", folders.state, "--runtime-dir", folders.runtime, "--chain"]) == 1
    assert "boot 0: what it waited for is not recorded" in one_line(capsys)
