# SPDX-License-Identifier: Apache-2.0
"""Questions to long tables, over real files and rings, beside an answer that looks at every row by itself."""

import math
import os
import time
from datetime import timedelta
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysmond.answers.records import answer
from sysmond.answers.rows.joins import Joins
from sysmond.answers.rows.question import Request
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Cause, Join, Sensitivity
from sysmond.base.result import Result
from sysmond.errors import Error, UsageError
from sysmond.machine.folders import Folders
from sysmond.machine.lock import only_one
from sysmond.ring.progress import Progress, Sealed
from sysmond.ring.snapshot import snapshot
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.sparse_of_ring import LongRing
from sysmond.store.stretches.stretch import Incarnation
from sysmond.tasks import signals, syscalls
from sysmond.tasks.tables import CGROUP_NAME, COMMAND, EXITS, PROCESS, THREAD, THREAD_STATE
from tests.support.longarchive import BOOT, BOOTED_NS, Row, asked_by_sql, put, relation, ring, stretch
from tests.support.machine import NOON_NS, Machine
from tests.support.order import examples

US = 1_000_000  # CPU time is stored in microseconds.
ALL = tuple(Sensitivity)


def at(second: float) -> int:
    """The UTC nanoseconds of a second of boot time."""
    return BOOTED_NS + round(second * SECOND_NS)


def process(pid: int, start_s: float = 1, **values: int | str | None) -> Row:
    return {"pid": pid, "start": round(start_s * SECOND_NS), "state": "S", **values}


def ask(folders: Folders, table: str = "process", *, classes: tuple[Sensitivity, ...] = ALL, **said: Any) -> Result:
    start, end = said.pop("start", None), said.pop("end", None)
    request = Request(
        table,
        start=at(start) if isinstance(start, int | float) else start,
        end=at(end) if isinstance(end, int | float) else end,
    )
    return answer(folders, classes, request._replace(**said))


def rows(found: Result, *names: str) -> list[tuple[Any, ...]]:
    """Columns of an answer, a tuple a row."""
    return [tuple(row) for row in found.records[list(names)].tolist()]


def simple(folders: Folders) -> None:
    """Twenty readings from 100 s on: one that was there before, one that works, one that begins and ends."""
    seen = [
        (0, process(1, comm="init", cpu=5 * US, rss_anon=1000, uid=0)),
        (0, process(7, comm="pg", cpu=0, rss_anon=10)),
        (5, process(7, comm="pg", cpu=5 * US // 2, rss_anon=20)),
        (8, process(9, 107.5, comm="new", cpu=7 * US // 10, rss_anon=5)),
        (10, process(1, comm="init", cpu=6 * US, rss_anon=2000)),
        (19, process(1, comm="init", cpu=6 * US, rss_anon=2000)),
        (19, process(7, comm="pg", cpu=5 * US // 2, rss_anon=20)),
    ]
    put(folders, stretch(PROCESS, range(100, 120), seen), 1)


def test_counters_grow_over_a_range_and_gauges_are_averaged_over_time(folders: Folders) -> None:
    simple(folders)
    found = ask(folders, start=102, end=118, columns="pid,comm,cpu,cpu:sum,rss_anon,rss_anon:max,rss_anon:last")
    # Increases lie between the readings at 101 and at 117: 16 s.
    assert rows(found, "pid", "comm", "cpu", "cpu:sum", "rss_anon:max", "rss_anon:last") == [
        (7, "pg", 100 * 2.5 / 16, 2.5, 20, 20),
        (1, "init", 100 * 1 / 16, 1, 2000, 2000),
        (9, "new", 100 * 0.7 / 16, 0.7, 5, 5),
    ]
    averages = dict(rows(found, "pid", "rss_anon"))
    assert averages == {7: (3 * 10 + 13 * 20) / 16, 1: (8 * 1000 + 8 * 2000) / 16, 9: 5}
    assert (found.column("cpu").unit, found.column("cpu:sum").unit) == ("%", "s")


def test_a_row_a_step_and_the_first_of_each(folders: Folders) -> None:
    simple(folders)
    found = ask(folders, start=100, end=115, step="5s", columns="pid,cpu:sum", top=1)
    assert [(str(time)[17:19], *row) for time, row in zip(found.times, rows(found, "pid", "cpu:sum"), strict=True)] == [
        ("40", 1, 0),
        ("45", 7, 2.5),
        ("50", 1, 1),
    ]


def test_what_ended_counts_up_to_its_end_and_what_no_reading_saw_counts_too(folders: Folders) -> None:
    simple(folders)
    ends = [
        (9, dict(process(9, 107.5, comm="new", cpu=9 * US // 10), end=round(108.7 * SECOND_NS), exit_code=3)),
        (4, dict(process(50, 103.1, comm="short", cpu=US // 3), end=round(103.9 * SECOND_NS), signal=9)),
        (1, dict(process(60, 20, comm="unknown", cpu=US), end=round(100.5 * SECOND_NS))),
    ]
    put(folders, stretch(EXITS, range(100, 120), ends, full=()), 1)
    found = ask(folders, start=100, end=118, columns="pid,comm,cpu:sum,end,exit_code,signal")
    told = {row[0]: row[1:] for row in rows(found, "pid", "comm", "cpu:sum", "exit_code", "signal")}
    assert told[9] == ("new", 0.9, 3, 0)
    assert told[50] == ("short", 0.333333, ABSENT, 9)
    assert told[60][0] == "unknown"
    assert math.isnan(told[60][1])  # What it had before is not known.
    assert told[1][-1] == ABSENT
    ended = dict(zip(found.column("pid").integers, found.column("end").times, strict=True))  # type: ignore[arg-type]
    assert np.isnat(ended[1])
    assert ended[9] == np.datetime64(at(108.7), "ns")
    named = ask(folders, start=100, end=118, where="signal = SIGKILL", columns="pid,signal,signal_name,exit_name")
    assert rows(named, "pid", "signal", "signal_name", "exit_name") == [(50, 9, "SIGKILL", None)]
    by_code = ask(folders, start=100, end=118, group_by="exit_code", columns="exit_code,count,cpu:sum")
    assert dict(rows(by_code, "exit_code", "count"))[3] == 1
    by_signal = ask(folders, start=100, end=118, group_by="signal", columns="signal,cpu:sum")
    assert ("SIGKILL", 0.333333) in rows(by_signal, "signal", "cpu:sum")
    # Over steps the same comes together, and who ended is not there after it.
    steps = ask(folders, start=100, end=118, step="2s", columns="pid,cpu:sum")
    mine = [value for pid, value in rows(steps, "pid", "cpu:sum") if pid == 9]
    assert mine == [0.9]


@pytest.mark.parametrize(
    "parts",
    [[range(100, 120)], [range(100, 109), range(109, 120)], [range(100, 107), range(107, 113), range(113, 120)]],
)
def test_a_zombie_is_listed_until_its_parent_has_waited_for_it(folders: Folders, parts: list[range]) -> None:
    """Whichever file its end is in, and wherever a range begins or ends."""
    # The states of each by the reading from which on it has them; the kernel lists it before the last one of them.
    states = {8: {100: "S", 106: "Z", 112: "X"}, 9: {100: "S", 110: "R", 111: ""}}
    ends_s = {8: 105.5, 9: 109.9}
    for number, ticks in enumerate(parts, 1):
        listed: list[tuple[int, Row]] = []
        for pid, of_pid in states.items():
            before = [state for at, state in of_pid.items() if at <= ticks[0]][-1]
            begun = {ticks[0]: before} if before and before != "X" else {}
            for at, state in {**begun, **{at: state for at, state in of_pid.items() if at in ticks}}.items():
                if state:
                    listed.append((at - ticks[0], process(pid, 50, comm="x", cpu=US, state=state)))
        put(folders, stretch(PROCESS, ticks, sorted(listed, key=lambda row: row[0]), full=(0,)), number)
        ends = [
            (int(end_s) - ticks[0], dict(process(pid, 50, comm="x", cpu=US), end=round(end_s * SECOND_NS)))
            for pid, end_s in ends_s.items()
            if int(end_s) in ticks
        ]
        put(folders, stretch(EXITS, ticks, ends, full=()), number)
    for start, end, there in (
        (100, 104, {8: "S", 9: "S"}),
        (107, 109, {8: "Z", 9: "S"}),
        (111, 112, {8: "Z"}),
        (113, 114, {}),
        (116, 119, {}),
        (100, 119, {8: "X", 9: "R"}),
    ):
        found = ask(folders, start=start, end=end, columns="pid,state")
        assert dict(rows(found, "pid", "state")) == there, start
    zombies = ask(folders, start=107, end=111, where="state = zombie", columns="pid")
    assert rows(zombies, "pid") == [(8,)]


@pytest.mark.parametrize("parts", [[range(100, 120)], [range(100, 110), range(110, 120)]])
def test_of_files_whose_rows_do_not_say_it_a_zombie_is_what_is_listed_long_after_its_end(
    folders: Folders, parts: list[range]
) -> None:
    """A zombie ended and is listed all the same; whichever file its end is in."""
    assert PROCESS.answers is not None
    assert PROCESS.answers.ended_by is not None
    ending = PROCESS.answers.ended_by._replace(remains=())
    silent = PROCESS._replace(answers=PROCESS.answers._replace(ended_by=ending))
    seen = [
        (100, process(8, 50, comm="left", cpu=US, state="S")),
        (100, process(9, 60, comm="quick", cpu=US, state="S")),
        (106, process(8, 50, comm="left", cpu=2 * US, state="Z")),
        # A reading of all that there is lists who is on its way out.
        (110, process(8, 50, comm="left", cpu=2 * US, state="Z")),
        (110, process(9, 60, comm="quick", cpu=US, state="Z")),
    ]
    for number, ticks in enumerate(parts, 1):
        rows_of_part = [(at - ticks[0], row) for at, row in seen if at in ticks]
        put(folders, stretch(silent, ticks, rows_of_part, full=(0, 110 - ticks[0], 115 - ticks[0])), number)
        ends = [
            (end_s - ticks[0], dict(process(pid, start, comm=comm, cpu=cpu * US), end=round(end_s * SECOND_NS)))
            for pid, start, comm, cpu, end_s in ((8, 50, "left", 2, 104), (9, 60, "quick", 1, 109.6))
            if int(end_s) in ticks
        ]
        rows_of_ends = [(int(at), row) for at, row in ends]
        put(folders, stretch(EXITS, ticks, rows_of_ends, full=()), number)
    for start, end, there in (
        (100, 104, {8: "S", 9: "S"}),
        (107, 109, {8: "Z", 9: "S"}),
        (111, 114, {8: "Z"}),
        (116, 119, {}),
    ):
        found = ask(folders, start=start, end=end, columns="pid,state")
        assert dict(rows(found, "pid", "state")) == there, start
    assert rows(ask(folders, start=111, end=114, where="state = zombie", columns="pid,end"), "pid") == [(8,)]


@pytest.mark.parametrize(
    ("where", "pids"),
    [
        ("start >= 2025-03-01T11:01:47Z", [9, 50]),
        ("start < '2025-03-01 11:01:43Z'", [1, 7]),
        ("start = 1740826907.5", [9]),
        ("start < 1740826907.500000001 and start >= 1740826907.5", [9]),
        ("end > 2025-03-01T11:01:48.6Z", [9]),
        ("end < 2025-03-01T11:01:48.6Z", [50]),
        ("not end > 2025-03-01T11:01:40Z", [1, 7]),
    ],
)
def test_points_in_time_are_compared_with_points_in_time(folders: Folders, where: str, pids: list[int]) -> None:
    simple(folders)
    ends = [
        (9, dict(process(9, 107.5, comm="new"), end=round(108.7 * SECOND_NS))),
        (4, dict(process(50, 107.1, comm="short"), end=round(107.9 * SECOND_NS))),
    ]
    put(folders, stretch(EXITS, range(100, 120), ends, full=()), 1)
    found = ask(folders, start=100, end=118, columns="pid", where=where)
    assert sorted(pid for (pid,) in rows(found, "pid")) == pids


def test_a_pid_that_is_used_again_is_another_process(folders: Folders) -> None:
    seen = [
        (0, process(5, 1, comm="old", cpu=100 * US)),
        (3, process(5, 102.5, comm="young", cpu=2 * US)),
        (4, process(5, 102.5, comm="young", cpu=3 * US)),
    ]
    put(folders, stretch(PROCESS, range(100, 106), seen), 1)
    found = ask(folders, start=100, end=106, columns="pid,comm,cpu:sum,start")
    assert rows(found, "comm", "cpu:sum") == [("young", 3), ("old", 0)]


def test_a_counter_that_began_anew_has_not_grown_meanwhile(folders: Folders) -> None:
    put(folders, stretch(PROCESS, range(100, 103), [(0, process(5, cpu=9)), (2, process(5, cpu=1))]), 1)
    assert rows(ask(folders, start=100, end=103, columns="cpu:sum"), "cpu:sum") == [(0,)]


def test_what_cannot_be_read_is_absent_and_not_nothing(folders: Folders) -> None:
    put(
        folders,
        stretch(PROCESS, range(100, 103), [(0, process(5, read_bytes=None)), (2, process(5, read_bytes=None))]),
        1,
    )
    ((read,),) = rows(ask(folders, start=100, end=103, columns="read_bytes:sum"), "read_bytes:sum")
    assert math.isnan(read)


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_gap_within_a_boot_counts_in_sums_and_is_told(folders: Folders, *, is_merged: bool) -> None:
    one = stretch(PROCESS, range(100, 110), [(0, process(5, cpu=0, rss_anon=10))])
    other = stretch(PROCESS, range(200, 210), [(0, process(5, cpu=50 * US, rss_anon=30))])
    lives = [Incarnation(number, int(part.ticks[0]), closed=False) for number, part in enumerate((one, other))]
    parts = [part.with_about(part.about._replace(lives=[life])) for part, life in zip((one, other), lives, strict=True)]
    for number, part in enumerate([Joined(parts)] if is_merged else parts, 1):
        put(folders, part, number)
    found = ask(folders, start=100, end=210, columns="pid,cpu,cpu:sum,rss_anon")
    assert rows(found, "cpu:sum", "rss_anon") == [(50, 20)]
    assert rows(found, "cpu") == [(100 * 50 / 109,)]
    assert [(gap.start_ns, gap.end_ns, gap.cause) for gap in found.gaps] == [(at(110), at(200), Cause.DAEMON_DOWN)]
    steps = ask(folders, start=100, end=210, step="10s", columns="cpu:sum")
    # 11:01:40 is the second 100: nothing is said about the time between.
    assert [int(time - np.datetime64(at(0), "ns")) // SECOND_NS for time in steps.times] == [100, 200]
    assert rows(steps, "cpu:sum") == [(0,), (50,)]


def test_two_boots_are_told_apart(folders: Folders) -> None:
    put(folders, stretch(PROCESS, range(100, 110), [(0, process(5, cpu=0)), (9, process(5, cpu=US))]), 1)
    later = relation(0, BOOTED_NS + 1000 * SECOND_NS)
    put(
        folders,
        stretch(
            PROCESS,
            range(10, 20),
            [(0, process(5, cpu=0)), (9, process(5, cpu=2 * US))],
            boot="c" * 32,
            relations=[later],
        ),
        1,
    )
    found = ask(folders, start=100, end=1100, columns="pid,cpu:sum")
    assert rows(found, "pid", "cpu:sum") == [(5, 2), (5, 1)]
    assert [gap.cause for gap in found.gaps] == [Cause.OFF, Cause.DAEMON_DOWN]
    assert rows(ask(folders, start=100, end=1100, columns="cpu:sum", group_by="pid"), "cpu:sum") == [(3,)]
    assert rows(ask(folders, columns="cpu:sum", boot=-1), "cpu:sum") == [(1,)]
    with pytest.raises(UsageError, match="only 2 boots are recorded"):
        ask(folders, boot=-2)


def test_boots_are_counted_in_all_of_the_archive(machine: Machine) -> None:
    """Not only near the range; and those of which there are only rows of other tables are boots, too."""
    ends = {}
    for number, boot in enumerate("abcde"):
        wall_ns = NOON_NS + number * 86_400 * SECOND_NS
        if boot != "c":
            seen: list[tuple[int, Row]] = [(0, process(5, cpu=0)), (9, process(5, cpu=(number + 1) * US))]
            clocks = [relation(0, wall_ns)]
            put(machine.folders, stretch(PROCESS, range(100, 110), seen, boot=boot * 32, relations=clocks), 1)
        if boot != "b":
            machine.start(0.5, boot=boot * 32, wall_ns=wall_ns).tick(range(100, 110))
            machine.seal()
            machine.flush()
            machine.reboot()
        ends[boot] = wall_ns + 200 * SECOND_NS
    archive = machine.archive
    for back, boot in enumerate("edcba"):
        span: dict[str, Any] = {"start": ends[boot] - 150 * SECOND_NS, "end": ends[boot], "boot": -back}
        if boot == "c":
            with pytest.raises(Error, match="table 'process': nothing is recorded in that range"):
                archive.records("process", columns="cpu:sum", **span)
        else:
            found = archive.records("process", columns="cpu:sum", **span)
            assert found.column("cpu:sum").values.tolist() == [1 + "abcde".index(boot)]
            raw = archive.records("process", columns="cpu", raw=True, **span)
            assert len(raw.times_ns) == 2
    with pytest.raises(UsageError, match="boot -5: only 5 boots are recorded; expected 0 to -4"):
        archive.records("process", boot=-5, start=ends["a"] - 150 * SECOND_NS, end=ends["a"])


def test_a_machine_is_off_until_its_clock_was_set_where_that_was_late(folders: Folders) -> None:
    put(folders, stretch(PROCESS, range(100, 110), [(0, process(5))]), 1)
    corrected = Relation(15 * SECOND_NS, at(1000), 15 * SECOND_NS)
    since_1970 = [relation(0, 20 * SECOND_NS), corrected]
    put(folders, stretch(PROCESS, range(10, 20), [(0, process(5))], boot="c" * 32, relations=since_1970), 1)
    off = [gap for gap in ask(folders, start=100, end=1005).gaps if gap.cause is Cause.OFF]
    assert [(gap.start_ns, gap.end_ns) for gap in off] == [(at(110), at(1000))]


def test_lost_records_are_said(folders: Folders) -> None:
    put(folders, stretch(PROCESS, range(100, 110), [(0, process(5))], lost={3: 17}), 1)
    assert ask(folders, start=100, end=110).warnings == ("process: 17 records were lost while it was recorded",)
    assert ask(folders, start=105, end=110).warnings == ()


def test_a_ring_goes_on_where_its_file_ends(folders: Folders) -> None:
    put(folders, stretch(PROCESS, range(100, 105), [(0, process(5, cpu=0)), (4, process(5, cpu=US))]), 1, ram=True)
    ring(
        folders,
        PROCESS,
        [
            (105, True, [process(5, cpu=2 * US, comm="a")]),
            (106, False, []),
            (107, False, [process(5, cpu=4 * US, comm="b")]),
        ],
    )
    found = ask(folders, start=102, end=108, columns="pid,comm,cpu:sum")
    assert rows(found, "pid", "comm", "cpu:sum") == [(5, "b", 4)]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_ring_still_holds_of_a_file_counts_once(folders: Folders, is_known: bool) -> None:
    made = stretch(PROCESS, range(100, 105), [(0, process(5, cpu=0, rss_anon=7)), (4, process(5, cpu=US, rss_anon=7))])
    put(folders, made, 1, ram=True)
    path = ring(
        folders,
        PROCESS,
        [
            (100, True, [process(5, cpu=0, rss_anon=7)]),
            *((second, False, []) for second in range(101, 104)),
            (104, False, [process(5, cpu=US, rss_anon=7)]),
            (105, False, []),
            (106, False, [process(5, cpu=3 * US, rss_anon=9)]),
        ],
    )
    if is_known:
        taken = snapshot(path)
        offset = next(each.offset for each in LongRing(taken).readings if each.tick_ns == 105 * SECOND_NS)
        Progress({path: Sealed(offset, 104 * SECOND_NS, 0)}).write(folders)
    found = ask(folders, start=102, end=107, columns="pid,cpu:sum,rss_anon,rss_anon:max")
    assert rows(found, "pid", "cpu:sum", "rss_anon", "rss_anon:max") == [(5, 3, (4 * 7 + 9) / 5, 9)]
    assert found.gaps[:-1] == ()


def test_steps_end_with_the_recording(folders: Folders) -> None:
    simple(folders)
    found = ask(folders, start=100, step="1s", columns="pid", where="pid = 1")
    assert len(found.records) == 20


def test_a_range_without_rows_says_why(folders: Folders) -> None:
    simple(folders)
    found = ask(folders, start=150, end=160)
    assert len(found.records) == 0
    assert [gap.cause for gap in found.gaps] == [Cause.DAEMON_DOWN]


def outside(found: Result) -> list[tuple[float, float, Cause]]:
    return [((gap.start_ns - at(0)) / SECOND_NS, (gap.end_ns - at(0)) / SECOND_NS, gap.cause) for gap in found.gaps]


def test_before_the_first_reading_and_after_now_is_nothing_and_said(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple(folders)
    before = ask(folders, start=10, end=20, columns="pid,cpu:sum")
    assert len(before.records) == 0
    assert outside(before) == [(10, 100, Cause.BEFORE_RECORDING)]
    assert outside(ask(folders, start=90, end=110)) == [(90, 100, Cause.BEFORE_RECORDING)]
    assert outside(ask(folders, start=100, end=110)) == []
    monkeypatch.setattr(time, "time_ns", lambda: at(130))
    later = outside(ask(folders, start=110, end=150))
    assert later == [(120, 130, Cause.DAEMON_DOWN), (130, 150, Cause.IN_THE_FUTURE)]
    assert outside(ask(folders, start=140, end=150)) == [(140, 150, Cause.IN_THE_FUTURE)]


@pytest.mark.parametrize("where", ["file", "ring", "both"])
@pytest.mark.parametrize("is_raw", [False, True])
def test_a_range_that_ends_before_recording_has_a_gap_and_no_rows(
    folders: Folders, where: str, *, is_raw: bool
) -> None:
    if where != "ring":
        simple(folders)
    if where != "file":
        ring(folders, PROCESS, [(second, second == 150, [process(5)]) for second in range(150, 155)])
    begin = 150 if where == "ring" else 100
    ends_early = ask(folders, end=20, raw=is_raw)
    assert len(ends_early.times_ns) == 0
    assert outside(ends_early) == [(19, begin, Cause.BEFORE_RECORDING)]
    assert outside(ask(folders, end=0.5, raw=is_raw)) == [(-0.5, begin, Cause.BEFORE_RECORDING)]
    assert outside(ask(folders, start=10, end=20, raw=is_raw)) == [(10, begin, Cause.BEFORE_RECORDING)]
    if where != "file":
        assert outside(ask(folders, end=20, raw=is_raw, boot=BOOT)) == [(19, begin, Cause.BEFORE_RECORDING)]
    assert len(ask(folders, end=begin + 1, raw=is_raw).times_ns) > 0
    assert outside(ask(folders, end=begin + 1, raw=is_raw)) == []


def test_nobody_says_that_recording_ended_where_a_recorder_holds_the_folder(folders: Folders) -> None:
    simple(folders)
    archiver = Path(folders.runtime, "archiver")
    archiver.mkdir(parents=True, exist_ok=True)
    (archiver / "state").symlink_to(folders.state)
    alone = Folders(folders.state, folders.state)

    def ends() -> list[tuple[Cause, str]]:
        asked = [ask(place, start=110, end=end) for place in (alone, folders) for end in (None, 150)]
        return [(found.gaps[-1].cause, found.gaps[-1].detail) for found in asked]

    assert ends() == [(Cause.DAEMON_DOWN, "")] * 4
    with only_one(folders.state), only_one(folders.runtime):
        said = f"process {os.getpid()} records there and holds the rest in RAM: expected --runtime-dir="
        assert ends() == [(Cause.NO_SOURCE, f"{said}{folders.runtime}, too")] * 2 + [(Cause.DAEMON_DOWN, "")] * 2


def test_what_is_in_two_places_counts_once(folders: Folders) -> None:
    made = stretch(PROCESS, range(100, 105), [(0, process(5, cpu=0, rss_anon=7)), (4, process(5, cpu=US, rss_anon=7))])
    put(folders, made, 1, ram=True)
    put(folders, made, 1)
    put(
        folders,
        stretch(PROCESS, range(100, 110), [(0, process(5, cpu=0, rss_anon=7)), (4, process(5, cpu=US, rss_anon=7))]),
        1,
        2,
    )
    found = ask(folders, start=100, end=110, columns="cpu:sum", group_by="pid")
    assert rows(found, "cpu:sum") == [(1,)]
    assert rows(ask(folders, start=100, end=110, columns="rss_anon", group_by="pid"), "rss_anon") == [(7,)]


def test_a_damaged_file_is_named_and_the_rest_is_there(folders: Folders) -> None:
    simple(folders)
    path = put(folders, stretch(PROCESS, range(120, 130), [(0, process(5, cpu=0))]), 2)
    Path(path).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    found = ask(folders, start=100, end=130, columns="pid")
    assert {pid for (pid,) in rows(found, "pid")} == {1, 7, 9}
    assert len(found.warnings) == 1
    assert path in found.warnings[0]


def test_what_is_in_no_unit_is_one_group_whether_its_control_group_is_known_or_not(folders: Folders) -> None:
    seen = [(at, process(pid, comm="pg", cpu=0, cgroup=38 + pid)) for at in (0, 9) for pid in range(2, 5)]
    put(folders, stretch(PROCESS, range(100, 110), seen), 1)
    paths: list[tuple[int, Row]] = [(0, {"id": 40, "path": "/a"}), (0, {"id": 41, "path": "/system.slice/pg.service"})]
    put(folders, stretch(CGROUP_NAME, [100, 105], paths), 1)
    counted = ask(folders, start=100, end=110, group_by="unit", columns="unit,count")
    assert sorted(rows(counted, "unit", "count"), key=str) == [("pg.service", 1), (None, 2)]


def test_groups_add_up(folders: Folders) -> None:
    seen = [(0, process(pid, comm="pg", cpu=0, rss_anon=100, uid=pid % 2, cgroup=40 + pid % 2)) for pid in range(2, 6)]
    seen += [
        (9, process(pid, comm="pg", cpu=US, rss_anon=300, uid=pid % 2, cgroup=40 + pid % 2)) for pid in range(2, 6)
    ]
    put(folders, stretch(PROCESS, range(100, 110), seen), 1)
    paths: list[tuple[int, Row]] = [
        (0, {"id": 40, "path": "/system.slice/pg.service"}),
        (0, {"id": 41, "path": "/user.slice/user-1.slice/session-3.scope"}),
    ]
    put(folders, stretch(CGROUP_NAME, [100, 105], paths), 1)
    found = ask(folders, start=100, end=110, group_by="unit", columns="unit,count,cpu:sum,rss_anon,rss_anon:max")
    assert rows(found, "unit", "count", "cpu:sum", "rss_anon", "rss_anon:max") == [
        ("pg.service", 2, 2, 2 * (9 * 100 + 300) / 10, 300),
        ("session-3.scope", 2, 2, 2 * (9 * 100 + 300) / 10, 300),
    ]
    assert rows(ask(folders, start=100, end=110, group_by="user,session"), "user", "session") == [
        ("root", None),
        ("daemon", "3"),
    ]
    named = ask(folders, start=100, end=110, group_by="user", columns="user,cpu:sum,user:sum", by="user")
    assert [column.path for column in named.columns] == ["user", "cpu:sum", "user:sum"]
    assert rows(named, "user", "cpu:sum") == [("daemon", 2), ("root", 2)]
    assert rows(ask(folders, start=100, end=110, group_by="cgroup"), "cgroup")[0] == ("/system.slice/pg.service",)
    cgroups = ask(folders, "cgroup_name", start=100, end=110)
    assert rows(cgroups, "id", "path", "unit", "session") == [
        (40, "/system.slice/pg.service", "pg.service", ""),
        (41, "/user.slice/user-1.slice/session-3.scope", "session-3.scope", "3"),
    ]
    chosen = ask(folders, start=100, end=110, where="slice ~ system and user = root", columns="pid,slice")
    assert rows(chosen, "slice") == [("system.slice",)] * 2


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
def test_sql_counts_from_0_what_began_between_two_files(folders: Folders) -> None:
    for number, (second, pids) in enumerate(((100, [4]), (110, [4, 5])), 1):
        seen = [(0, process(pid, 1 if pid == 4 else 109.5, cpu=2 * US)) for pid in pids]
        put(folders, stretch(PROCESS, range(second, second + 10), seen), number)
    query = "select pid, sum(cpu) from process group by 1 order by 1"
    assert asked_by_sql(folders, query) == [[4, 0], [5, 2]]


def test_percentiles_are_over_the_steps(folders: Folders) -> None:
    seen = [(second, process(5, cpu=second * second * US // 100)) for second in range(10)]
    put(folders, stretch(PROCESS, range(100, 110), seen), 1)
    found = ask(folders, start=101, end=110, step="1s", columns="pid,cpu", percentile=50)
    assert rows(found, "pid", "cpu") == [(5, pytest.approx(9.0))]
    with pytest.raises(UsageError, match="a percentile is taken over steps"):
        ask(folders, start=100, end=110, percentile=50)
    with pytest.raises(UsageError, match="percentile 101: expected 0 to 100"):
        ask(folders, start=100, end=110, step="1s", percentile=101)


def test_an_exit_code_without_a_signal_beside_it_has_its_name() -> None:
    """A table of somebody else may have the one and not the other."""
    joins = Joins((Join(":exit", (("code", "number"),), (("code_name", "name"),)),))
    words = joins.words("code_name", {"code": np.array([0, 64])}.__getitem__)
    assert [words.texts[code] for code in words.codes] == ["EX_OK", "EX_USAGE"]


def test_before_its_end_a_process_has_no_exit_code_and_after_a_signal_none(folders: Folders) -> None:
    simple(folders)
    ends = [
        (9, dict(process(9, 107.5, comm="new"), end=round(110.7 * SECOND_NS), exit_code=64)),
        (9, dict(process(7, 50, comm="pg"), end=round(112.5 * SECOND_NS), signal=15)),
    ]
    put(folders, stretch(EXITS, range(100, 120), ends, full=()), 1)
    names = ("pid", "exit_code", "exit_name", "signal", "signal_name")
    steps = ask(folders, start=106, end=114, step="2s", where="pid != 1", columns=names)
    of_step = {
        (str(time)[17:19], pid): rest for time, (pid, *rest) in zip(steps.times, rows(steps, *names), strict=True)
    }
    alive = [ABSENT, None, ABSENT, None]
    assert of_step == {
        ("46", 7): alive, ("48", 7): alive, ("50", 7): alive, ("52", 7): [ABSENT, None, 15, "SIGTERM"],
        ("48", 9): alive, ("50", 9): [64, "EX_USAGE", 0, None],
    }  # fmt: skip
    [early] = rows(ask(folders, start=106, end=109, where="pid = 9", columns=names), *names)
    assert early == (9, *alive)


def test_what_a_signal_ended_has_no_exit_code(folders: Folders) -> None:
    told = ((1, 0, 0), (2, 3, 0), (3, os.EX_USAGE, 0), (4, 0, 11))
    ends = [
        (2, dict(process(pid, 100.2), end=round(101.5 * SECOND_NS), exit_code=code, signal=signal))
        for pid, code, signal in told
    ]
    put(folders, stretch(EXITS, range(100, 110), ends, full=()), 1)
    found = ask(folders, "exits", start=100, end=110, columns="pid,exit_code,exit_name,signal_name")
    assert sorted(rows(found, "pid", "exit_code", "exit_name", "signal_name")) == [
        (1, 0, "EX_OK", None),
        (2, 3, "3", None),
        (3, 64, "EX_USAGE", None),
        (4, ABSENT, None, "SIGSEGV"),
    ]
    well = ask(folders, "exits", start=100, end=110, columns="pid", where="exit_code = EX_OK")
    assert rows(well, "pid") == [(1,)]


def test_programs_are_joined_where_they_may_be_read(folders: Folders) -> None:
    ends = [(2, dict(process(9, 100.2, comm="new"), end=round(101.5 * SECOND_NS), exit_code=3))]
    put(folders, stretch(EXITS, range(100, 110), ends, full=()), 1)
    programs = [(1, process(9, 100.2, exe="/usr/bin/new", command="new --fast")), (0, process(9, 50, exe="/bin/older"))]
    put(folders, stretch(COMMAND, range(100, 110), programs, sensitivity=Sensitivity.RESTRICTED), 1)
    found = ask(folders, "exits", start=100, end=110)
    assert [column.path for column in found.columns][:8] == [
        "pid",
        "comm",
        "exe",
        "start",
        "end",
        "signal_name",
        "exit_code",
        "signal",
    ]
    assert rows(found, "exe", "exit_code") == [("/usr/bin/new", 3)]
    assert found.sensitivity is Sensitivity.RESTRICTED
    public = ask(folders, "exits", start=100, end=110, classes=(Sensitivity.PUBLIC,))
    assert rows(public, "exe") == [(None,)]
    assert public.sensitivity is Sensitivity.PUBLIC


def test_threads_are_of_programs_too(folders: Folders) -> None:
    seen = [(0, dict(process(9, 60), tid=9)), (0, dict(process(9, 70), tid=10))]
    put(folders, stretch(THREAD, range(100, 110), seen), 1)
    put(folders, stretch(COMMAND, range(100, 110), [(0, process(9, 60, exe="/usr/bin/new"))]), 1)
    assert rows(ask(folders, "thread", start=100, end=110, columns="tid,exe"), "tid", "exe") == [
        (9, "/usr/bin/new"),
        (10, "/usr/bin/new"),
    ]


def test_samples_of_thread_states_are_counted(folders: Folders) -> None:
    seen = [
        (number % 5, dict(process(number), tid=number, state="D", syscall=number % 2, wchan="folio_wait"))
        for number in range(10)
    ]
    put(folders, stretch(THREAD_STATE, range(100, 105), seen, full=range(5)), 1)
    found = ask(folders, "thread_state", start=100, end=105, group_by="state,syscall,wchan")
    named = [("D", syscalls.name(number), "folio_wait", 5) for number in (0, 1)]
    assert rows(found, "state", "syscall", "wchan", "count") == named
    assert [column.path for column in found.columns] == ["state", "syscall", "wchan", "count"]
    steps = ask(folders, "thread_state", start=100, end=105, group_by="state", step="2s", columns="count")
    assert rows(steps, "count") == [(4,), (4,), (2,)]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"columns": "pid,rss_annon"}, "table 'process' has no column 'rss_annon'; did you mean rss_anon"),
        ({"where": "comn = a"}, "there is no column 'comn'; did you mean comm"),
        ({"by": "cpuu"}, "has no column 'cpuu'"),
        ({"group_by": "cpu"}, "group by 'cpu': its values change all the time"),
        ({"group_by": "uid", "columns": "uid,comm"}, "column 'comm': differs within a group by uid"),
        ({"start": 110, "end": 100}, "before it begins"),
        ({"step": -5}, "expected a length of time"),
        ({"top": -1}, "expected 1 or more"),
        ({"step": timedelta(microseconds=10)}, "steps in that range; expected at most"),
    ],
)
def test_a_wrong_question_is_one_clear_line(folders: Folders, said: dict[str, Any], told: str) -> None:
    simple(folders)
    with pytest.raises(UsageError) as refused:
        ask(folders, **{"start": 100, "end": 120, **said})
    assert told in str(refused.value)


def test_a_table_that_was_never_recorded_is_said(folders: Folders) -> None:
    simple(folders)
    with pytest.raises(Error, match="table 'thread': nothing is recorded yet"):
        ask(folders, "thread")
    with pytest.raises(UsageError, match="there is no table 'threads'; there are process"):
        ask(folders, "threads")


def test_odd_names_come_through(folders: Folders) -> None:
    names = ["a\nb", "\x1b[31mred", "caf\udce9", "", "'quoted\"", "a,b;c"]
    ring(folders, PROCESS, [(100, True, [process(number + 2, comm=name) for number, name in enumerate(names)])])
    found = ask(folders, start=100, end=101, columns="pid,comm")
    assert dict(rows(found, "pid", "comm")) == {number + 2: name for number, name in enumerate(names)}
    assert rows(ask(folders, start=100, end=101, where="comm ~ '\x1b'", columns="pid"), "pid") == [(3,)]


# Beside an answer that looks at every row by itself.

SECONDS = 40


class History(NamedTuple):
    """What one process does: when it starts and is gone, and its rows by reading: CPU time, memory."""

    pid: int
    start_s: float
    gone: int
    rows: dict[int, tuple[int, int]]


@st.composite
def histories(draw: st.DrawFn) -> list[History]:
    found = []
    for pid in range(1, draw(st.integers(1, 4)) + 1):
        born = draw(st.integers(-20, SECONDS - 2))
        gone = draw(st.integers(max(born, 0) + 1, SECONDS))
        cpu, rss, mine = draw(st.integers(0, 5)), draw(st.integers(0, 9)), {}
        for reading in range(max(born, 0), gone):
            if reading == max(born, 0) or draw(st.booleans()):
                cpu, rss = cpu + draw(st.integers(0, 9)), draw(st.integers(0, 9))
            mine[reading] = (cpu, rss)
        found.append(History(pid, 100 + born - 0.5, gone, mine))
    return found


def archived(folders: Folders, lives: list[History], cuts: list[int], fulls: set[int]) -> None:
    """Files of these readings, cut there; rows where something changed, and all at full readings."""
    edges = [0, *cuts, SECONDS]
    for number, (low, high) in enumerate(pairwise(edges), 1):
        full = {reading - low for reading in fulls | {low} if low <= reading < high}
        seen = [
            (reading - low, process(life.pid, life.start_s, cpu=life.rows[reading][0], rss_anon=life.rows[reading][1]))
            for reading in range(low, high)
            for life in lives
            if reading in life.rows and (reading - low in full or life.rows.get(reading - 1) != life.rows[reading])
        ]
        put(folders, stretch(PROCESS, range(100 + low, 100 + high), seen, full=full), number)


def expected(life: History, low: int, high: int) -> tuple[int, int | None]:
    """By how much its CPU time grew between two seconds, and its largest memory."""
    before = [values for reading, values in life.rows.items() if reading < low]
    after = [values for reading, values in life.rows.items() if reading < high]
    base = (
        before[-1][0]
        if before
        else 0
        if life.start_s >= 99  # An interval before the first reading.
        else life.rows[min(life.rows)][0]
    )
    inside = [values[1] for reading, values in life.rows.items() if low - 1 <= reading < high]
    return after[-1][0] - base, max(inside, default=None)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lives=histories(),
    cuts=st.lists(st.integers(1, SECONDS - 1), unique=True, max_size=4).map(sorted),
    fulls=st.sets(st.integers(0, SECONDS - 1), max_size=4),
    low=st.integers(0, SECONDS - 1),
    length=st.integers(1, SECONDS),
)
def test_summaries_and_rows_say_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[History],
    cuts: list[int],
    fulls: set[int],
    low: int,
    length: int,
) -> None:
    high = min(SECONDS, low + length)
    place = tmp_path_factory.mktemp("archive")
    folders = Folders(str(place / "state"), str(place / "runtime"))
    archived(folders, lives, cuts, fulls)
    if not any(reading < high for life in lives for reading in life.rows):
        return
    found = ask(folders, start=100 + low, end=100 + high, columns="pid,cpu:last,cpu:sum,rss_anon:max")
    told = {pid: (grown, most) for pid, grown, most in rows(found, "pid", "cpu:sum", "rss_anon:max")}
    there = [life for life in lives if life.gone > low and any(reading < high for reading in life.rows)]
    for life in there:
        grown, most = expected(life, low, high)
        assert told[life.pid] == (grown / US, most), life
    # So do groups.
    together = ask(folders, start=100 + low, end=100 + high, group_by="policy", columns="count,cpu:sum")
    total = sum(grown for grown, _ in told.values())
    assert rows(together, "count", "cpu:sum") == ([(len(told), pytest.approx(total))] if told else [])
    # Steps of a second add up to the whole.
    steps = ask(folders, start=100 + low, end=100 + high, step="1s", columns="pid,cpu:sum,rss_anon:max")
    summed: dict[int, float] = {}
    for pid, grown, _ in rows(steps, "pid", "cpu:sum", "rss_anon:max"):
        summed[pid] = summed.get(pid, 0) + grown
    for life in there:
        assert summed[life.pid] == pytest.approx(expected(life, low, high)[0] / US)


def test_the_boot_of_the_tests_is_one() -> None:
    assert len(BOOT) == 32


@pytest.mark.parametrize(
    ("number", "name"), [(0, ""), (9, "SIGKILL"), (34, "SIGRTMIN"), (40, "SIGRTMIN+6"), (64, "SIGRTMAX"), (99, "99")]
)
def test_signals_have_their_names(number: int, name: str) -> None:
    assert signals.name(number) == name
