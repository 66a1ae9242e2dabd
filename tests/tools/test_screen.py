# SPDX-License-Identifier: Apache-2.0
"""The screen of ``sysmon``: what keys lead to, rows in order and as trees, and what is seen, of any size."""

import argparse
import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmon_tools.curves import BUCKETS, Curve
from sysmon_tools.grid import Field
from sysmon_tools.moment import NOW_BACK_NS, ZOOMS, View
from sysmon_tools.screen import acting, keys, look, subjects, trees
from sysmon_tools.screen.app import SysmonApp
from sysmon_tools.screen.look import Around, Look
from sysmon_tools.screen.question import Questions, SheetRows
from sysmon_tools.screen.subjects import ProcessRow
from sysmon_tools.screen.views import BY_KEY, BY_NAME, EVENTS_VIEW, VIEWS, SheetColumns
from sysmon_tools.targets import GroupTarget
from sysmond import history
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Boot, Event
from sysmond.errors import Error, UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.tasks import syscalls
from tests.support import screens
from tests.support.longarchive import BOOT, BOOTED_NS
from tests.support.order import first
from tests.support.screens import after, each_after
from tests.support.stall import FIRST_S, STALL, STALL_NS, stuck
from tests.support.waiting import HANG_S, wait_until

HOSTILE = "\x1b]0;owned\x07<script>"
NOTHING = Around((), ())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Half an hour of a calm machine, with a minute in which the disk is stuck."""
    return stuck(tmp_path_factory.mktemp("stall"), HOSTILE)


@pytest.fixture
def archive(folders: Folders) -> Archive:
    return Archive(folders)


STALLED = Look(View(STALL_NS))


# --- where keys lead ------------------------------------------------------------------------------------


def test_no_key_means_two_things() -> None:
    named = [key for _, group in keys.GROUPS for one in group for key in one.keys]
    assert [key for key, count in Counter([*named, *BY_KEY]).items() if count > 1] == []
    assert set(keys.SEARCHING) - set(BY_KEY) - {"N"} == set()
    spoken = "\n".join(keys.help_lines(keys.mapped({})))
    assert all(one.says in spoken for _, group in keys.GROUPS for one in group if one.shown)


@pytest.mark.parametrize(("width", "shows"), [(160, "networks"), (90, "netw"), (80, "net"), (50, "")])
def test_the_line_of_views_names_all_of_them_as_there_is_room(width: int, shows: str) -> None:
    line = keys.view_line(keys.mapped({}), "processes", width)
    assert [name for name, *_ in line] == [view.name for view in VIEWS]
    assert {text for name, _, text in line if name in {"processes", "networks"}} == {"processes", shows}
    assert sum(len(f" {key} {text}") for _, key, text in line) <= width


def test_later_and_earlier_go_by_what_is_shown_and_never_beyond_now() -> None:
    now_ns = STALL_NS + 3600 * SECOND_NS
    span_ns = STALLED.moment.span_ns
    assert look.moved(STALLED, "later", NOTHING, now_ns).moment.at_ns == STALL_NS + span_ns
    assert look.moved(STALLED, "earlier", NOTHING, now_ns).moment.at_ns == STALL_NS - span_ns
    assert look.moved(STALLED, "later", NOTHING, STALL_NS).moment.at_ns == STALL_NS
    assert look.moved(STALLED, "closer", NOTHING, now_ns).moment.zoom == 0
    assert look.moved(STALLED, "wider", NOTHING, now_ns).moment.zoom == 2
    widest = STALLED._replace(moment=View(STALL_NS, len(ZOOMS) - 1))
    assert look.moved(widest, "wider", NOTHING, now_ns) == widest


def test_space_stops_at_a_moment_and_goes_on_with_now() -> None:
    live = look.live(STALL_NS)
    assert live.moment.at_ns == STALL_NS - NOW_BACK_NS
    later = look.renewed(live, STALL_NS + SECOND_NS)
    assert later.moment.at_ns == live.moment.at_ns + SECOND_NS
    stopped = look.moved(later, "pause", NOTHING, STALL_NS + SECOND_NS)
    assert not stopped.is_live
    assert look.renewed(stopped, STALL_NS + 99 * SECOND_NS) == stopped
    assert look.moved(stopped, "pause", NOTHING, STALL_NS + 99 * SECOND_NS).moment.at_ns > stopped.moment.at_ns
    assert not look.moved(live, "earlier", NOTHING, STALL_NS).is_live


def test_spikes_and_events_are_gone_to_from_where_one_is() -> None:
    values = np.full(BUCKETS, 5.0)
    values[[10, 11, 40, 41, 50]] = 80.0
    around = Around(
        (Curve("CPU", "%", values), Curve("none", "%", np.full(BUCKETS, np.nan))),
        (Event(STALL_NS - 7, "before", "", ""), Event(STALL_NS, "here", "", ""), Event(STALL_NS + 9, "after", "", "")),
    )
    now_ns, step_ns = STALL_NS + 3600 * SECOND_NS, STALLED.moment.step_ns
    assert look.moved(STALLED, "next spike", around, now_ns).moment.at_ns == STALL_NS + 10 * step_ns
    assert look.moved(STALLED, "previous spike", around, now_ns).moment.at_ns == STALL_NS - 20 * step_ns
    assert look.moved(STALLED, "next spike", NOTHING, now_ns).moment.at_ns == STALL_NS + BUCKETS // 2 * step_ns
    assert look.moved(STALLED, "next event", around, now_ns).moment.at_ns == STALL_NS + 9
    assert look.moved(STALLED, "previous event", around, now_ns).moment.at_ns == STALL_NS - 7
    assert look.moved(STALLED, "next event", NOTHING, now_ns) == STALLED
    assert look.bucket(STALLED, BUCKETS // 2 + 3, now_ns).moment.at_ns // step_ns == STALL_NS // step_ns + 3


def test_enter_goes_in_with_a_condition_and_escape_comes_back_to_the_moment_shown() -> None:
    at = look.opened(STALLED, "cgroups")
    inside = look.inward(at, {"instance": '/user\'s "own"', "cpu_percent": "5"})
    assert inside.view == "processes"
    assert inside.condition == "(cgroup_path ~ '^/user.s\\ \"own\"$')"
    waits = look.inward(inside, {"pid": "77"})
    assert (waits.view, waits.condition) == ("waits", f"{inside.condition} and (pid = 77)")
    moved = look.moved(waits, "later", NOTHING, STALL_NS + 3600 * SECOND_NS)
    back = look.outward(moved)
    assert (back.view, back.moment) == ("processes", moved.moment)
    assert look.outward(look.outward(back)).view == "cgroups"
    assert look.inward(look.opened(STALLED, "disks"), {"instance": "sda"}).view == "disks"


def test_waits_are_put_together_by_columns_that_somebody_names() -> None:
    waits = look.opened(STALLED, "waits")._replace(group_by=("exe", "wchan"))
    assert waits.asked is not None
    assert waits.asked.group_by == ("exe", "wchan")
    assert waits.asked.columns == ("count", "exe", "wchan")


def test_a_spike_is_told_with_its_curves_how_high_they_get_and_what_is_usual(archive: Archive) -> None:
    early = Look(View(STALL_NS - 120 * SECOND_NS))
    shown = after(archive, early, ["right_square_bracket"], (120, 30))
    assert (
        "a spike: Disk wait 90.0 % (usually 0.0 %), Disk busy 99.0 % (usually 0.0 %), Disk 47.7 MiB/s (usually" in shown
    )
    assert "no spike in sight; went on by 5 min" in after(archive, early, ["left_square_bracket"], (120, 30))
    assert "a spike" not in after(archive, early, ["right_square_bracket", "t"], (120, 30))


# --- trees ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_a_tree_has_each_row_once_below_its_parent_whatever_the_parents(parents: Sequence[int]) -> None:
    names = list(range(len(parents)))
    order, before = trees.below(names, names, parents)
    assert sorted(order) == names
    depth = {row: len(line) for row, line in zip(order, before, strict=True)}
    for row in names:
        if depth[row]:
            assert order.index(parents[row]) < order.index(row)
            assert depth[row] == depth[parents[row]] + 2


def test_a_tree_is_drawn_with_its_branches() -> None:
    order, before = trees.below([0, 1, 2, 3], [1, 5, 6, 9], [0, 1, 5, 1])
    assert order == [0, 1, 2, 3]
    assert before == ["", "├─", "│ └─", "└─"]
    assert trees.below([0, 1], [1, 5], [0, 1], is_ascii=True)[1] == ["", "`-"]
    assert [trees.parent_path(path) for path in ("/a/b", "/a", "/", "")] == ["/a", "/", None, None]


# --- what is asked --------------------------------------------------------------------------------------


def test_every_view_asks_for_columns_that_its_table_may_have(repository: Path) -> None:
    """A column that is in no table of that name would never be shown."""
    documented = (repository / "docs/metrics.md").read_text(encoding="utf-8")
    derived = (
        "instance count username unit user_unit container cgroup_path exe command syscall_name signal_name exit_name"
        " functions"
    )
    known = {*documented.split("`"), *derived.split(), "kind", "subject", "text", "start"}
    asked = {column for view in VIEWS for sheet in view.sheets for column in sheet.columns}
    assert asked - known == set()


def test_a_process_that_a_signal_ended_does_not_look_like_a_success() -> None:
    """Its exit code is 0: the name of the signal stands before it, where a narrow terminal has it, too."""
    (sheet,) = BY_NAME["ended"].sheets
    assert sheet.columns[:6] == ("end", "pid", "username", "comm", "signal_name", "exit_name")


@pytest.mark.parametrize("chosen", [(), ("comm", "end")])
def test_when_a_process_ended_is_shown_to_who_chose_that(archive: Archive, chosen: tuple[str, ...]) -> None:
    """It is asked for in any case, since it tells who has ended."""
    columns = {"processes/general": SheetColumns(chosen)} if chosen else {}
    asked = look.opened(Look(View(STALL_NS)), "processes")
    rows = Questions(archive, chosen=columns).page(asked, screens.NOW_NS).rows
    assert "end" in {field.name for field in rows.every}
    assert ("end" in {field.name for field in rows.fields}) is bool(chosen)


@pytest.mark.parametrize("size", first(1, [(80, 12), (60, 15), (140, 40)]))
@pytest.mark.parametrize("keys", [(), ("p",), ("p", "end"), ("question_mark",)])
def test_a_terminal_that_was_resized_shows_what_one_of_that_size_does(
    archive: Archive, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    """Also where nothing comes anew: at a moment that is over, and while it is paused."""

    async def run(first: tuple[int, int], awaited: str = "") -> str:
        app = SysmonApp(archive, Look(View(STALL_NS)), argparse.Namespace(), now=lambda: screens.NOW_NS)
        async with app.run_test(size=first) as pilot:
            await screens.settled(pilot)
            for key in keys:
                await pilot.press(key)
                await screens.settled(pilot)
            await pilot.resize_terminal(*size)
            await pilot.pause(screens.STEP_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(HANG_S):
                    while awaited and screens.seen(app) != awaited:
                        await pilot.pause(screens.STEP_S)
            return screens.seen(app)

    expected = asyncio.run(run(size))
    assert asyncio.run(run((120, 30), expected)) == expected


def test_rows_come_from_the_largest_and_turned_round_from_the_smallest(archive: Archive) -> None:
    asked = look.opened(STALLED, "processes")._replace(by="written_bytes")
    rows = Questions(archive).page(asked, STALL_NS).rows
    assert [rows.cells(at)["comm"] for at in range(len(rows.order))] == ["updatedb", "calm"]
    turned = Questions(archive).page(asked._replace(is_reversed=True, by="pid"), STALL_NS).rows
    assert [turned.cells(at)["pid"] for at in range(len(turned.order))] == ["7", "77"]
    assert rows.started_ns(0) == BOOTED_NS + SECOND_NS


def test_the_text_of_an_event_that_is_cut_is_whole_at_the_foot(archive: Archive) -> None:
    told = ["short", "upgraded " + ", ".join(f"package-{number}" for number in range(30))]

    async def run() -> list[str]:
        app = SysmonApp(archive, look.opened(STALLED, EVENTS_VIEW), argparse.Namespace(), now=lambda: screens.NOW_NS)
        async with app.run_test(size=(80, 40)) as pilot:
            await screens.settled(pilot)
            app._page = None  # What is shown is these rows.
            app._rows.draw(
                SheetRows([Field("kind", lambda _: "packages"), Field("text", lambda at: told[at])], range(2))
            )
            shown = []
            for key in ("up", "down"):
                await pilot.press(key)
                await pilot.pause()
                shown.append(screens.seen(app))
            return shown

    short, whole = asyncio.run(run())
    assert "package-11" not in short
    for number in range(30):
        assert f"package-{number}" in whole


def test_where_no_event_is_shown_a_longer_time_is_offered(archive: Archive) -> None:
    quiet_ns = STALL_NS - 120 * SECOND_NS
    asked = look.opened(STALLED, EVENTS_VIEW)
    assert (
        Questions(archive).page(asked._replace(moment=View(quiet_ns, 0)), STALL_NS).says
        == "(no events in that time; '-' shows a longer one)"
    )


def test_curves_that_are_moved_are_those_that_are_asked_anew(archive: Archive) -> None:
    known, now_ns = Questions(archive), STALL_NS + 3600 * SECOND_NS
    for away_s in (0, 70, -300):
        asked = Look(View(STALL_NS + away_s * SECOND_NS))
        moved, anew = known.page(asked, now_ns).scene, Questions(archive).page(asked, now_ns).scene
        assert [curve.label for curve in moved.curves] == [curve.label for curve in anew.curves]
        for one, other in zip(moved.curves, anew.curves, strict=True):
            np.testing.assert_allclose(one.values, other.values, equal_nan=True)


# --- what is done ---------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that sleeps, and when it began in UTC."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield sleeper, clock.relation().realtime_ns
    sleeper.kill()
    sleeper.wait()


def test_a_signal_reaches_the_process_of_the_row_and_no_other(child: tuple[subprocess.Popen[bytes], int]) -> None:
    sleeper, began_ns = child
    with pytest.raises(Error, match=f"process {sleeper.pid}: has ended"):
        acting.send(sleeper.pid, began_ns - 3600 * SECOND_NS, signal.SIGTERM)
    assert sleeper.poll() is None
    assert acting.send(sleeper.pid, began_ns, signal.SIGTERM) == f"sent SIGTERM to process {sleeper.pid}"
    assert sleeper.wait() == -signal.SIGTERM
    with pytest.raises(Error, match="has ended"):
        acting.send(sleeper.pid, began_ns, signal.SIGTERM)


@pytest.fixture
def threads() -> Iterator[tuple[int, int, list[int]]]:
    """A process with two threads: its number, its start in UTC nanoseconds, its threads."""
    script = "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        began_ns = clock.relation().realtime_ns
        wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 2)
        yield process.pid, began_ns, [int(name) for name in os.listdir(f"/proc/{process.pid}/task")]
        process.kill()


def test_all_threads_of_a_process_become_nicer(threads: tuple[int, int, list[int]]) -> None:
    pid, began_ns, tids = threads
    acting.renice(pid, began_ns, 3)
    assert {os.getpriority(os.PRIO_PROCESS, tid) - os.getpriority(os.PRIO_PROCESS, 0) for tid in tids} == {3}


@pytest.mark.parametrize(("text", "value"), [("idle", 3 << 13), ("7", (2 << 13) + 7), ("best-effort 0", 2 << 13)])
def test_all_threads_of_a_process_have_another_turn_at_the_disk(
    threads: tuple[int, int, list[int]], text: str, value: int
) -> None:
    pid, began_ns, tids = threads
    with pytest.raises(Error, match="has ended"):
        acting.ionice(pid, began_ns - 3600 * SECOND_NS, text)
    assert acting.ionice(pid, began_ns, text) == f"process {pid} has the I/O priority {text}"
    number = syscalls.number("ioprio_get")
    assert {ctypes.CDLL(None).syscall(number, 1, tid) for tid in tids} == {value}


@pytest.mark.parametrize("text", ["", "8", "-1", "idle 3", "realtime", "real time 4", "²"])
def test_what_is_no_turn_at_the_disk_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected idle"):
        acting.io_priority_of(text)


def test_a_process_becomes_nicer(child: tuple[subprocess.Popen[bytes], int]) -> None:
    sleeper, began_ns = child
    before = os.getpriority(os.PRIO_PROCESS, sleeper.pid)
    assert acting.renice(sleeper.pid, began_ns, 1).endswith(f"the nice value {before + 1}")
    assert os.getpriority(os.PRIO_PROCESS, sleeper.pid) == before + 1


@pytest.mark.parametrize(
    ("text", "meant"), [("term", signal.SIGTERM), ("SIGKILL", signal.SIGKILL), ("1", signal.SIGHUP)]
)
def test_signals_have_names_and_numbers(text: str, meant: signal.Signals) -> None:
    assert acting.signal_of(text) == meant


@pytest.mark.parametrize("text", ["", "nonsense", "0", "4711"])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a name or a number"):
        acting.signal_of(text)


LIVE = look.live(STALL_NS)


@pytest.mark.parametrize(
    ("action", "view", "cells", "meant"),
    [
        ("signal", "processes", {"pid": "7", "comm": "sh"}, ProcessRow(7, 5, "sh")),
        ("ionice", "processes", {"pid": "7", "comm": None}, ProcessRow(7, 5, "")),
        ("signal", "cgroups", {"instance": "/a.slice/b.service"}, GroupTarget("b.service", "/a.slice/b.service")),
        ("freeze", "cgroups", {"instance": "/docker/0123"}, GroupTarget("", "/docker/0123")),
        ("thaw", "units", {"unit": "b.service"}, GroupTarget("b.service")),
        ("freeze", "units", {"user_unit": "c.scope", "username": "root"}, GroupTarget("c.scope", "", 0)),
        ("freeze", "units", {"user_unit": "c.scope", "username": "4711"}, GroupTarget("c.scope", "", 4711)),
    ],
)
def test_a_row_stands_for_what_it_shows(
    action: str, view: str, cells: dict[str, str | None], meant: subjects.Subject
) -> None:
    assert subjects.subject(action, look.opened(LIVE, view), cells, 5) == meant
    with pytest.raises(Error, match="this is the past"):
        subjects.subject(action, look.opened(STALLED, view), cells, 5)


@pytest.mark.parametrize(
    ("action", "view", "cells", "expected"),
    [
        ("freeze", "processes", {"pid": "7"}, "'c' cgroups or 'u' units"),
        ("ionice", "units", {"unit": "b.service"}, "'p' processes, and"),
        ("signal", "units", {"unit": None, "container": "x"}, "'p' processes or 'c' cgroups or 'u' units"),
        ("signal", "processes", {}, "'p' processes or"),
        ("nice", "disks", {"instance": "sda"}, "'p' processes, and"),
    ],
)
def test_to_other_rows_nothing_is_done(action: str, view: str, cells: dict[str, str | None], expected: str) -> None:
    with pytest.raises(UsageError, match=f"expected {expected}"):
        subjects.subject(action, look.opened(LIVE, view), cells, 5)


def test_a_unit_of_a_user_whom_nobody_knows_is_not_taken_for_one_of_our_own() -> None:
    cells: dict[str, str | None] = {"user_unit": "c.scope", "username": "nobody-of-that-name"}
    with pytest.raises(Error, match="there is no user 'nobody-of-that-name' here"):
        subjects.subject("freeze", look.opened(LIVE, "units"), cells, 5)


OWN = """
import os, signal, sys
from sysmon_tools.screen.own_recorder import OwnRecorder
with OwnRecorder() as own:
    print(own.place.runtime, flush=True)
    sys.stdin.readline() or os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_recorder_of_its_own_goes_with_the_screen(is_killed: bool) -> None:
    words = [sys.executable, "-c", OWN]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as screen:
        assert screen.stdout is not None
        assert screen.stdin is not None
        runtime = Path(screen.stdout.readline().strip())
        wait_until(lambda: list(runtime.glob("sampler/public/*.ring")))
        if not is_killed:
            screen.stdin.write("\n")
        screen.stdin.close()
    wait_until(lambda: not runtime.parent.exists())


# --- what is seen ---------------------------------------------------------------------------------------


def test_the_overview_says_what_it_was(archive: Archive) -> None:
    shown = after(archive, STALLED, ["D"])
    assert "laptop  REPLAY" in shown
    assert "Processes by disk" in shown
    assert "updatedb" in shown
    assert "in jbd2_log_wait" in shown
    assert "\\x1b]0;owned\\x07<script>" in shown
    assert "\x1b" not in shown


def test_how_long_ago_it_was_goes_on_while_nothing_is_asked(archive: Archive) -> None:
    async def run() -> None:
        now_ns = [screens.NOW_NS]
        app = SysmonApp(archive, STALLED, argparse.Namespace(), now=lambda: now_ns[0])
        async with app.run_test(size=(100, 30)) as pilot:
            await screens.settled(pilot)
            assert "10 min ago" in screens.seen(app)
            now_ns[0] += 300 * SECOND_NS
            while "15 min ago" not in screens.seen(app):
                await pilot.pause(screens.STEP_S)

    asyncio.run(asyncio.wait_for(run(), HANG_S))


@pytest.mark.parametrize("size", [(40, 10), (200, 60), (20, 4)])
def test_every_view_fits_every_terminal(archive: Archive, size: tuple[int, int]) -> None:
    for shown in each_after(archive, STALLED, [view.key for view in VIEWS], size):
        assert len(shown.splitlines()) <= size[1]
        assert all(line.isprintable() for line in shown.splitlines())


def test_from_a_process_to_what_its_threads_waited_for_and_back(archive: Archive) -> None:
    shown = after(archive, STALLED, ["p", "D", "enter"])
    assert "in 77" in shown
    assert "jbd2_log_wait" in shown
    assert "calm" not in shown
    assert "calm" in after(archive, STALLED, ["p", "D", "enter", "escape"])


def test_rows_are_filtered_by_a_condition_and_a_wrong_one_is_told(archive: Archive) -> None:
    shown = after(archive, STALLED, ["p", "f", " comm ~ upd"])
    assert "updatedb" in shown
    assert "calm" not in shown
    assert "where comm ~ upd" in shown
    wrong = after(archive, STALLED, ["p", "f", " com > 5"])
    assert "column 'com'" in wrong
    assert "calm" in after(archive, STALLED, ["p", "f", " com > 5", "escape"])


def test_a_search_goes_to_a_row_and_keeps_all(archive: Archive) -> None:
    shown = after(archive, STALLED, ["p", "slash", " calm", "K"])
    assert "updatedb" in shown
    assert "this is the past" in shown
    assert "this is the past" in after(archive, STALLED, ["m"])
    assert "this is the past" in after(archive, STALLED, ["u", "F"])
    assert "not in these rows" in after(archive, STALLED, ["p", "slash", " nobody"])


def test_a_jump_leads_to_a_time_or_by_a_length(archive: Archive) -> None:
    span_s = STALLED.moment.span_ns // SECOND_NS
    later = after(archive, STALLED, ["t"]).splitlines()[0]
    assert after(archive, STALLED, ["j", f" +{span_s}s"]).splitlines()[0].split("·")[1] == later.split("·")[1]
    first = after(archive, STALLED, ["j", f" @{BOOTED_NS // SECOND_NS + FIRST_S + STALL.start}"]).splitlines()[0]
    assert first.split("·")[1] != later.split("·")[1]
    assert "nonsense" in after(archive, STALLED, ["j", " nonsense"])


def test_columns_order_rows_and_sheets_have_others(archive: Archive) -> None:
    assert "wait_percent" in after(archive, STALLED, ["p", "tab"], (160, 30))
    assert "rss_anon" in after(archive, STALLED, ["p", "tab", "tab"], (160, 30))
    assert "general" in after(archive, STALLED, ["p", "tab", "shift+tab"])
    by_written = after(archive, STALLED, ["p", *["full_stop"] * 4])
    assert by_written.index("updatedb") < by_written.index("calm")
    by_memory = after(archive, STALLED, ["p", "full_stop"])
    assert by_memory.index("calm") < by_memory.index("updatedb")


def test_rows_without_the_column_of_an_order_say_so(archive: Archive) -> None:
    missing = "these rows have no written_bytes; , and . sort by the columns that they have"
    assert missing not in after(archive, STALLED, ["p", "D"], (120, 24))
    assert missing in after(archive, STALLED, ["w", "D"], (120, 24))


def test_help_names_every_key_and_goes_away(archive: Archive) -> None:
    assert "go to the next spike" in after(archive, STALLED, ["question_mark"], (100, 70))
    assert "go to the next spike" not in after(archive, STALLED, ["question_mark", "question_mark"], (100, 70))


def test_help_has_two_columns_where_one_is_too_long_and_loses_nothing(archive: Archive) -> None:
    shown = after(archive, STALLED, ["question_mark"], (120, 40))
    for line in keys.help_lines(keys.mapped({})):
        assert all(word in shown for word in line.replace(keys.JOINED, " ").split())


def test_help_that_does_not_fit_is_scrolled(archive: Archive) -> None:
    assert "F10" not in after(archive, STALLED, ["question_mark"], (80, 24))
    assert "F10" in after(archive, STALLED, ["question_mark", *["pagedown"] * 5], (80, 24))


def test_escape_drops_the_search_and_then_goes_back(archive: Archive) -> None:
    into = ["p", "D", "enter", "slash", " jbd2", "escape"]
    assert "in 77" in after(archive, STALLED, into)
    assert "in 77" not in after(archive, STALLED, [*into, "escape"])


def test_what_is_not_recorded_is_told_in_place_of_rows(archive: Archive) -> None:
    assert "table 'temperature'" in after(archive, STALLED, ["h"])
    far = Look(View(STALL_NS + 86_400 * SECOND_NS))
    assert "showing the nearest moment" in after(archive, far, [])


def test_a_restricted_table_is_told_to_who_may_not_read_it(folders: Folders) -> None:
    from sysmond.base.model import Sensitivity  # noqa: PLC0415  one test

    public = Archive(folders, classes=[Sensitivity.PUBLIC])
    shown = after(public, STALLED, ["w"])
    assert "jbd2_log_wait" not in shown
    assert "thread_state" in shown


def test_what_the_curves_show_is_written_into_a_file(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def written() -> str:
        app = SysmonApp(archive, STALLED, argparse.Namespace(), now=lambda: screens.NOW_NS)
        async with app.run_test(size=(120, 30)) as pilot:
            await screens.settled(pilot)
            await pilot.press("W", "enter")
            async with asyncio.timeout(HANG_S):
                while ": written" not in screens.seen(app):
                    await pilot.pause(0.05)
            return screens.seen(app)

    shown = asyncio.run(written())
    [file] = tmp_path.glob("sysmon-2025*.sysmon")
    assert f"{file.name}: written" in shown
    view = STALLED.moment
    assert history.open(state_dir=str(file)).boots() == [Boot(BOOT, view.start_ns - SECOND_NS, view.end_ns - SECOND_NS)]


def test_a_row_is_copied_as_text(archive: Archive) -> None:
    async def copied() -> str:
        app = SysmonApp(archive, STALLED, argparse.Namespace(), now=lambda: screens.NOW_NS)
        async with app.run_test(size=(120, 30)) as pilot:
            await screens.settled(pilot)
            await pilot.press("p", "D")
            await screens.settled(pilot)
            await pilot.press("y")
            return app.clipboard

    assert "comm=updatedb" in asyncio.run(copied())
