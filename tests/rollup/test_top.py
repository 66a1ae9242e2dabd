# SPDX-License-Identifier: Apache-2.0
"""Rolling up long tables: the rows of a bucket add up to what a replay of all readings gives, whatever is rolled up."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Metric, Packing, Semantics, Sensitivity, Table, check_table
from sysmond.errors import UsageError
from sysmond.records import codes
from sysmond.rollup import top
from sysmond.rollup.top import derived, is_dictionary, roll_up, selection
from sysmond.store.files.sparse_file import encode, open_file
from sysmond.store.stretches.chain import Chain, Ends
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.stretch import About, MemoryStretch, Readings, Stretch
from sysmond.tasks import tables
from tests.support.longarchive import memory_stretch

SECOND = 10**9
BOOT = "b" * 32
START_UTC = 1_700_000_003 * SECOND
STEPS = [10 * SECOND, 60 * SECOND, 300 * SECOND]
COUNTERS, GAUGES = ("cpu", "bytes"), ("size", "open")
LONG = Table(
    "things",
    (
        Metric("start", "s", Semantics.STATE, "Since when.", 9),
        Metric("pid", "1", Semantics.STATE, "Which."),
        Metric("cgroup", "1", Semantics.STATE, "Where."),
        Metric("comm", "text", Semantics.STATE, "Its name."),
        Metric("cpu", "s", Semantics.COUNTER, "Work done.", 6),
        Metric("bytes", "B", Semantics.COUNTER, "Moved."),
        Metric("size", "B", Semantics.GAUGE, "How large."),
        Metric("open", "1", Semantics.GAUGE, "How many."),
    ),
    "thing",
    "Things.",
    Packing("<q q q 16s q q q q", ("pid", "start")),
)
NAMES = [metric.name for metric in LONG.metrics]
Row = dict[str, int]
Key = tuple[int, int]


class Reading:
    """Of one reading: when it was, whether it has all there was, and its rows by key."""

    def __init__(self, tick_ns: int, *, full: bool, rows: dict[Key, Row]) -> None:
        self.tick_ns = tick_ns
        self.full = full
        self.rows = rows


def about(table: Table, relations: Sequence[Relation] = ()) -> About:
    return About(table, BOOT, "sampler", Sensitivity.PUBLIC, SECOND, relations=relations or [Relation(0, START_UTC, 0)])


def history(seed: int, length: int, keys: int, absent: float = 0.1) -> tuple[list[Reading], dict[Key, int]]:
    """Things that come, change now and then, and go; and when those ended of which that is told.

    ``absent``: how often a number is.
    """
    dice = random.Random(seed)
    there: dict[Key, Row] = {}
    readings: list[Reading] = []
    ended: dict[Key, int] = {}
    tick_ns = dice.randrange(100) * SECOND
    for number in range(length):
        tick_ns += SECOND * (1 if dice.random() < 0.9 else dice.randrange(2, 40))
        before_ns = readings[-1].tick_ns if readings else tick_ns - SECOND
        changed: set[Key] = set()
        for key in list(there):
            if dice.random() < 0.05:
                del there[key]
                if dice.random() < 0.5:
                    ended[key] = dice.randrange(before_ns + 1, tick_ns + 1)
            elif dice.random() < 0.4:
                changed.add(key)
                _change(dice, there[key], absent)
        while len(there) < keys and (dice.random() < 0.3 or not number):
            start = dice.randrange(before_ns, tick_ns) if number else max(0, before_ns - dice.randrange(50) * SECOND)
            key = (dice.randrange(1, 10**6), start)
            there[key] = {"start": start, "pid": key[0], "cgroup": dice.randrange(2), "comm": dice.randrange(3)}
            there[key] |= {name: dice.randrange(50) for name in (*COUNTERS, *GAUGES)}
            changed.add(key)
        full = not number or dice.random() < 0.08
        readings.append(
            Reading(tick_ns, full=full, rows={key: dict(there[key]) for key in (there if full else changed)})
        )
    return readings, ended


def _change(dice: random.Random, row: Row, absent: float) -> None:
    for name in COUNTERS:
        if dice.random() < 0.6:
            fallen = dice.random() < 0.1
            row[name] = (
                ABSENT if dice.random() < absent else 0 if fallen else max(0, row[name]) + dice.randrange(-3, 90)
            )
    for name in GAUGES:
        if dice.random() < 0.6:
            row[name] = ABSENT if dice.random() < absent else dice.randrange(1000)
    if dice.random() < 0.1:
        row["cgroup"] = dice.randrange(3)
    if dice.random() < 0.2:
        row["comm"] = dice.randrange(3)


def stretch_of(readings: Sequence[Reading], table: Table = LONG, relations: Sequence[Relation] = ()) -> MemoryStretch:
    at = [number for number, reading in enumerate(readings) for _ in reading.rows]
    rows = [row for reading in readings for row in reading.rows.values()]
    axis = Readings(
        np.array([reading.tick_ns for reading in readings], np.int64),
        np.array([reading.full for reading in readings], np.bool_),
        np.zeros(len(readings), np.int64),
        np.full(len(readings), 7, np.int64),
    )
    columns = {name: np.array([row[name] for row in rows], np.int64) for name in NAMES}
    return memory_stretch(about(table, relations), axis, np.array(at, np.int64), columns, ["a", "b", "c"])


class Cell:
    """What a key, or others together, did in a bucket."""

    def __init__(self) -> None:
        self.grown: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.lived = 0
        self.last: Row = {}

    def see(self, row: Row, stood: Row) -> None:
        """Take one reading of one key; ``stood``: what its counters were when they were last there."""
        self.lived += 1
        self.last = dict(row)
        for name in (name for name in GAUGES if row[name] != ABSENT):
            self.add(name, row[name])
            self.most[name] = max(self.most.get(name, row[name]), row[name])
        for name in (name for name in COUNTERS if row[name] != ABSENT):
            before = stood.get(name, row[name])
            self.add(name, 0 if row[name] < before // 2 else row[name] - before)
            stood[name] = row[name]

    def add(self, name: str, more: int) -> None:
        into = self.grown if name in COUNTERS else self.held
        into[name] = into.get(name, 0) + more


def replay(
    readings: Sequence[Reading], ended: dict[Key, int], step_ns: int, offset_ns: int = START_UTC
) -> Iterator[tuple[list[Reading], dict[Key, Cell], list[dict[Key, Row]]]]:
    """Go through the readings one by one; gives of each bucket its readings, its cells, and who was there at each."""
    state: dict[Key, Row] = {}
    stood: dict[Key, Row] = {}
    buckets: dict[int, tuple[list[Reading], dict[Key, Cell], list[dict[Key, Row]]]] = {}
    last_row = {key: reading.tick_ns for reading in readings for key in reading.rows}
    for reading in readings:
        if reading.full:
            state = {key: row for key, row in state.items() if key in reading.rows}
        for key in list(state):
            if key in ended and ended[key] <= reading.tick_ns and last_row[key] < reading.tick_ns:
                del state[key]
        mine = buckets.setdefault((reading.tick_ns + offset_ns) // step_ns, ([], defaultdict(Cell), []))
        state |= reading.rows
        for key, row in state.items():
            newborn = key[1] >= readings[0].tick_ns - SECOND - 10**7
            mine[1][key].see(row, stood.setdefault(key, dict.fromkeys(COUNTERS, 0) if newborn else {}))
        mine[0].append(reading)
        mine[2].append({key: dict(row) for key, row in state.items()})
    yield from buckets.values()


def rows_of(stretch: Stretch) -> dict[int, list[dict[str, Any]]]:
    """The rows of a stretch, by tick."""
    found: dict[int, list[dict[str, Any]]] = {int(tick): [] for tick in stretch.ticks}
    columns = {metric.name: stretch.column(metric.name).tolist() for metric in stretch.table.metrics}
    for number, at in enumerate(stretch.tick_index().tolist()):
        row = {name: values[number] for name, values in columns.items()}
        for metric in stretch.table.metrics:
            if metric.is_text and row[metric.name] != ABSENT:
                row[metric.name] = stretch.texts[row[metric.name]]
        found[int(stretch.ticks[at])].append(row)
    return found


def leading(cells: dict[Key, Cell], first: int) -> set[Key]:
    """The first by each number, as a table has it that nobody told of."""
    found: set[Key] = set()
    for name in (*COUNTERS, *GAUGES):
        amounts = {key: (cell.grown if name in COUNTERS else cell.held).get(name, 0) for key, cell in cells.items()}
        ranked = sorted((key for key in amounts if amounts[key] > 0), key=lambda key: (-amounts[key], key))
        found |= set(ranked[:first])
    return found


def check(made: Stretch, expected: Iterator[tuple[list[Reading], dict[Key, Cell], list[dict[Key, Row]]]]) -> int:
    """Compare what was rolled up with a replay, number by number; gives how many buckets there were."""
    rows = rows_of(made)
    count = 0
    for readings, cells, moments in expected:
        count += 1
        mine = rows.pop(readings[-1].tick_ns)
        alone = {(row["pid"], row["start"]): row for row in mine if row["pid"]}
        others = {row["cgroup"]: row for row in mine if not row["pid"]}
        assert len(alone) + len(others) == len(mine)
        assert set(alone) == leading(cells, top.FIRST)
        for row in mine:
            assert row["readings"] == len(readings)
            assert row["length"] == readings[-1].tick_ns - readings[0].tick_ns
        for key, row in alone.items():
            check_row(row, [key], cells, moments)
            assert row["cgroup"] == cells[key].last["cgroup"]
            assert row["comm"] == "abc"[cells[key].last["comm"]]
        rest: dict[int, list[Key]] = defaultdict(list)
        for key in cells.keys() - alone.keys():
            rest[cells[key].last["cgroup"]].append(key)
        assert set(rest) == set(others) - {ABSENT}
        for cgroup, keys in rest.items():
            check_row(others[cgroup], keys, cells, moments)
            assert others[cgroup]["comm"] == ABSENT
    assert not rows
    return count


def check_row(row: dict[str, Any], keys: Sequence[Key], cells: dict[Key, Cell], moments: list[dict[Key, Row]]) -> None:
    assert row["lived"] == sum(cells[key].lived for key in keys)
    assert row["most"] == max(sum(key in moment for key in keys) for moment in moments)
    for name in (*COUNTERS, *GAUGES):
        parts = [(cells[key].grown if name in COUNTERS else cells[key].held).get(name) for key in keys]
        there = [part for part in parts if part is not None]
        assert row[name] == (sum(there) if there else ABSENT), name
    for name in GAUGES:
        known = [
            moment[key][name] for moment in moments for key in keys if key in moment and moment[key][name] != ABSENT
        ]
        sums = [sum(max(0, moment[key][name]) for key in keys if key in moment) for moment in moments]
        assert row[name + "_max"] == (max(sums) if known else ABSENT)


def parts_of(readings: Sequence[Reading], cuts: int, dice: random.Random) -> list[list[Reading]]:
    """Cut at full readings, as files are."""
    places = [number for number, reading in enumerate(readings) if reading.full and number]
    chosen = sorted(dice.sample(places, min(cuts, len(places))))
    edges = [0, *chosen, len(readings)]
    return [list(readings[low:high]) for low, high in pairwise(edges)]


@given(st.integers(0, 10**6), st.integers(1, 120), st.integers(1, 9), st.integers(0, 3), st.sampled_from([3, 10**6]))
def test_buckets_add_up_to_a_replay_of_all_readings(seed: int, length: int, keys: int, cuts: int, at_once: int) -> None:
    readings, ended = history(seed, length, keys)
    stretches = [stretch_of(part) for part in parts_of(readings, cuts, random.Random(seed))]
    told = Ends(np.array(list(ended), np.int64).reshape(-1, 2), np.array(list(ended.values()), np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top, "CELLS_AT_ONCE", at_once)
        patch.setattr(top, "FIRST", 2)
        for step_ns, made in zip(STEPS, roll_up(stretches, STEPS, chain=Chain(stretches, told)), strict=True):
            check(made, replay(readings, ended, step_ns))
            assert made.interval_ns == step_ns


@given(st.integers(0, 10**6))
def test_what_is_rolled_up_later_has_whole_the_bucket_that_was_begun(seed: int) -> None:
    readings, _ = history(seed, 150, 6)
    parts = parts_of(readings, 2, random.Random(seed))
    stretches = [stretch_of(part) for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top, "FIRST", 2)
        lately = roll_up(stretches, STEPS, since=len(stretches) - 1)
        for whole, late in zip(roll_up(stretches, STEPS), lately, strict=True):
            expected = rows_of(whole)
            first_ns = parts[-1][0].tick_ns
            for tick, rows in rows_of(late).items():
                assert rows == expected.pop(tick)
            assert all(tick < first_ns for tick in expected)


def test_an_end_is_found_where_proc_told_the_start_to_a_clock_tick() -> None:
    end_ns = 2000 * SECOND + 9 * SECOND // 2
    row = {"start": 2000 * SECOND + 20_000_000, "pid": 5, "cgroup": 1, "comm": 0}
    row |= dict.fromkeys((*COUNTERS, *GAUGES), 7)
    readings = [Reading((2000 + second) * SECOND, full=not second, rows={}) for second in range(60)]
    readings[1].rows[5, row["start"]] = row
    for start_ns in (row["start"], row["start"] + 3_000_000, ABSENT):
        stretches = [stretch_of(readings)]
        told = Ends(np.array([[5, start_ns]], np.int64), np.array([end_ns], np.int64))
        made, *_ = roll_up(stretches, STEPS, chain=Chain(stretches, told))
        lived = sum(each["lived"] for mine in rows_of(made).values() for each in mine)
        assert lived == 4, start_ns


def test_an_unknown_gauge_is_of_its_own_group_beside_those_of_which_only_ends_are_told() -> None:
    begin_s = 2000
    row = {"start": 5 * SECOND, "pid": 5, "cgroup": 2, "comm": 0} | dict.fromkeys((*COUNTERS, *GAUGES), 0)
    rows = {
        (5, 5 * SECOND): row | {"size": ABSENT},
        (6, 5 * SECOND): row | {"pid": 6, "cgroup": 4, "size": 40},
    }
    readings = [
        Reading((begin_s + second) * SECOND, full=not second, rows={} if second else rows) for second in range(9)
    ]
    stretches = [stretch_of(readings)]
    keys = np.array([[7, (begin_s + 2) * SECOND], [8, (begin_s + 2) * SECOND]], np.int64)
    ends_ns = np.array([begin_s + 3, begin_s + 3], np.int64) * SECOND
    used, cgroups = np.array([30, 50], np.int64), np.array([1, 3], np.int64)
    told = Ends(keys, ends_ns, {"cpu": lambda: used}, {"cgroup": lambda: cgroups})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top, "FIRST", 0)
        made, *_ = roll_up(stretches, STEPS[-1:], chain=Chain(stretches, told))
    (rows_of_bucket,) = rows_of(made).values()
    found = {each["cgroup"]: tuple(each[name] for name in ("cpu", "lived", "size_max")) for each in rows_of_bucket}
    assert found == {1: (30, 0, 0), 2: (0, 9, ABSENT), 3: (50, 0, 0), 4: (0, 9, 40)}


def test_a_step_of_the_clock_and_a_suspend_cut_a_bucket_short() -> None:
    readings, _ = history(4, 60, 3)
    tick_ns = readings[30].tick_ns
    relations = [Relation(0, START_UTC, 0), Relation(tick_ns, tick_ns + START_UTC + 1000 * SECOND, 0)]
    (made,) = roll_up([stretch_of(readings, relations=relations)], [300 * SECOND])
    before = [number for number, tick in enumerate(made.ticks.tolist()) if tick < tick_ns]
    assert made.ticks[before[-1]] == readings[29].tick_ns
    assert sum(row[0]["readings"] for row in rows_of(made).values()) == 60


def test_what_two_stretches_have_in_common_counts_once() -> None:
    readings, _ = history(9, 80, 5)
    full = [number for number, reading in enumerate(readings) if reading.full]
    cut = full[len(full) // 2]
    whole = roll_up([stretch_of(readings)], STEPS)
    twice = roll_up([stretch_of(readings[: cut + 3]), stretch_of(readings[cut:])], STEPS)
    for one, other in zip(whole, twice, strict=True):
        assert rows_of(one) == rows_of(other)


def test_a_bucket_of_nothing_has_one_row_that_says_so() -> None:
    start = 10**6 * SECOND
    readings = [Reading(start + number * SECOND, full=True, rows={}) for number in range(25)]
    first, *_ = roll_up([stretch_of(readings)], STEPS)
    for rows in rows_of(first).values():
        (row,) = rows
        assert (row["pid"], row["lived"], row["most"], row["cpu"], row["size"]) == (0, 0, 0, 0, 0)
        assert (row["cgroup"], row["comm"]) == (ABSENT, ABSENT)
    assert sum(rows[0]["readings"] for rows in rows_of(first).values()) == 25


def moments(
    table: Table, ticks: int, rows: Sequence[tuple[int, Row]], texts: Sequence[str], begin: int = 1
) -> MemoryStretch:
    axis = Readings(
        np.arange(begin, begin + ticks, dtype=np.int64) * SECOND,
        np.zeros(ticks, np.bool_),
        np.zeros(ticks, np.int64),
        np.zeros(ticks, np.int64),
    )
    columns = {m.name: np.array([row.get(m.name, 0) for _, row in rows], np.int64) for m in table.metrics}
    return memory_stretch(about(table), axis, np.array([at for at, _ in rows], np.int64), columns, texts)


@given(st.integers(0, 10**6), st.integers(0, 200), st.sampled_from([7, 10**6]))
def test_processes_that_ended_are_kept_or_counted(seed: int, count: int, at_once: int) -> None:
    dice = random.Random(seed)
    sums = selection(tables.EXITS).sums
    rows = []
    for number in range(count):
        row = {"pid": number + 1, "start": dice.randrange(10**9), "end": 5, "comm": dice.randrange(3)}
        row |= {"cgroup": dice.randrange(2), "peak_rss": dice.randrange(9), "exit_code": dice.randrange(3)}
        row |= {name: dice.choice([0, 0, ABSENT, dice.randrange(1000)]) for name in sums}
        rows.append((dice.randrange(100), row))
    stretch = moments(tables.EXITS, 100, rows, ["x", "y", "z"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top, "FIRST", 3)
        patch.setattr(top, "CELLS_AT_ONCE", at_once)
        for step_ns, made in zip(STEPS, roll_up([stretch], STEPS), strict=True):
            expected: dict[int, list[dict[str, Any]]] = defaultdict(list)
            for at, row in rows:
                expected[((at + 1) * SECOND + START_UTC) // step_ns].append(row)
            found = {(tick + START_UTC) // step_ns: mine for tick, mine in rows_of(made).items()}
            assert set(expected) <= set(found)
            for slot, mine in found.items():
                check_ended(mine, expected[slot])


def check_ended(mine: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    alone = {(row["pid"], row["start"]): row for row in mine if row["pid"]}
    by_cpu = sorted((row for row in expected if row["cpu"] > 0), key=lambda row: -row["cpu"])[:3]
    if len({row["cpu"] for row in expected}) == len(expected):
        assert {row["pid"] for row in by_cpu} <= {pid for pid, _ in alone}
    assert sum(row["count"] for row in mine) == len(expected)
    for row in expected:
        if kept_row := alone.get((row["pid"], row["start"])):
            assert kept_row["count"] == 1
            assert all(kept_row[name] == value for name, value in row.items() if name != "comm")
            assert kept_row["comm"] == "xyz"[row["comm"]]
    for row in (row for row in mine if not row["pid"] and row["count"]):
        others = [each for each in expected if (each["pid"], each["start"]) not in alone]
        others = [each for each in others if each["cgroup"] == row["cgroup"] and "xyz"[each["comm"]] == row["comm"]]
        assert row["count"] == len(others)
        assert row["peak_rss"] == max(each["peak_rss"] for each in others)
        for name in selection(tables.EXITS).sums:
            there = [each[name] for each in others if each[name] != ABSENT]
            assert row[name] == (sum(there) if there else ABSENT)
        assert row["end"] == ABSENT


@given(st.integers(0, 10**6), st.sampled_from([5, 10**6]), st.booleans())
def test_ends_that_a_killed_sampler_left_twice_count_once(seed: int, at_once: int, is_merged: bool) -> None:
    dice = random.Random(seed)
    ends: list[tuple[int, Row]] = []
    for number in range(40):
        row = {"pid": dice.randrange(1, 9), "start": dice.randrange(3), "end": number // 2, "comm": 0}
        ends.append((dice.randrange(30), row | {"cpu": dice.randrange(50), "cgroup": dice.randrange(2)}))
    twice = [(0, row) for at, row in ends if at == 29 or dice.random() < 0.2]
    later = [(dice.randrange(20), row | {"end": 100 + row["end"]}) for _, row in ends[:9]]
    is_new: dict[tuple[int, ...], int] = {}
    for at, row in (*ends, *((40 + at, row) for at, row in (*twice, *later))):
        key = (row["pid"], row["start"], row["end"])
        is_new[key] = min(at, is_new.get(key, at))
    parts = [moments(tables.EXITS, 30, ends, ["x"]), moments(tables.EXITS, 20, [*twice, *later], ["x"], 41)]
    stretches: list[Stretch] = [Joined(parts)] if is_merged else [*parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top, "FIRST", 2)
        patch.setattr(top, "CELLS_AT_ONCE", at_once)
        for step_ns, made in zip(STEPS, roll_up(stretches, STEPS), strict=True):
            counts = {(tick + START_UTC) // step_ns: sum(row["count"] for row in mine)
                      for tick, mine in rows_of(made).items()}  # fmt: skip
            expected = Counter(((at + 1) * SECOND + START_UTC) // step_ns for at in is_new.values())
            assert counts == {slot: expected[slot] for slot in counts}
            assert sum(counts.values()) == len(is_new)
        if not is_merged:
            late, *_ = roll_up(stretches, STEPS, since=1)
            told = sum(row["count"] for mine in rows_of(late).values() for row in mine)
            assert told == sum(at >= 40 for at in is_new.values())


@given(st.integers(0, 10**6))
def test_states_of_threads_are_counted(seed: int) -> None:
    dice = random.Random(seed)
    names = selection(tables.THREAD_STATE).by
    rows = [(dice.randrange(60), {"tid": n, **{name: dice.randrange(3) for name in names}}) for n in range(150)]
    made, *_ = roll_up([moments(tables.THREAD_STATE, 60, rows, ["D", "R", "w"])], STEPS)
    expected: dict[tuple[Any, ...], int] = defaultdict(int)
    for at, row in rows:
        slot = ((at + 1) * SECOND + START_UTC) // STEPS[0]
        expected[slot, row["cgroup"], row["syscall"], "DRw"[row["state"]], "DRw"[row["wchan"]]] += 1
    found = {
        ((tick + START_UTC) // STEPS[0], *(row[name] for name in names)): row["count"]
        for tick, mine in rows_of(made).items()
        for row in mine
        if row["count"]
    }
    assert found == expected
    assert all(row["readings"] == 10 for mine in list(rows_of(made).values())[1:-1] for row in mine)


def test_a_dictionary_keeps_what_each_key_was_last() -> None:
    table = tables.CGROUP_NAME
    axis = Readings(np.array([1, 2, 3]) * SECOND, np.array([True, False, False]), *[np.zeros(3, np.int64)] * 2)
    columns = {"id": np.array([5, 6, 5]), "path": np.array([0, 1, 2])}
    stretch = memory_stretch(about(table), axis, np.array([0, 1, 2]), columns, ["/old", "/other", "/new"])
    axis = Readings(np.array([4, 5]) * SECOND, np.array([True, False]), *[np.zeros(2, np.int64)] * 2)
    columns = {"id": np.array([5, 7]), "path": np.array([0, 1])}
    after = memory_stretch(about(table), axis, np.array([0, 1]), columns, ["/newest", "/more"])
    for made in roll_up([stretch, after], STEPS):
        assert made.table == table
        texts = dict(zip(made.keys["id"].tolist(), (made.texts[code] for code in made.last("path")), strict=True))
        assert texts == {5: "/newest", 6: "/other", 7: "/more"}
        assert made.ticks.tolist() == [SECOND, 5 * SECOND]
    late, *_ = roll_up([stretch, after], STEPS, since=1)
    assert late.keys["id"].tolist() == [5, 7]
    assert late.ticks.tolist() == [4 * SECOND, 5 * SECOND]


LONG_TABLES = [each for name in tables.__all__ if isinstance(each := getattr(tables, name), Table)]


@pytest.mark.parametrize("table", [*LONG_TABLES, LONG], ids=lambda table: table.name)
def test_tables_of_buckets_are_declared_well(table: Table) -> None:
    made = derived(table)
    check_table(made)
    codes(made)
    assert (made == table) == is_dictionary(table)
    names = {metric.name for metric in table.metrics}
    how = selection(table)
    assert {name for rank in how.ranks for name in rank} <= names
    assert names >= {*how.sums, *how.peaks, *(name for name in how.by if table is not tables.PROCESS_PRIVATE)}


def test_what_nobody_declared_is_refused() -> None:
    with pytest.raises(UsageError):
        codes(LONG._replace(packing=None))


def test_buckets_come_back_from_a_file_to_the_last_digit(tmp_path: Any) -> None:
    readings, _ = history(3, 200, 60)
    for number, made in enumerate(roll_up([stretch_of(readings)], STEPS)):
        path = tmp_path / f"{number}.h5"
        path.write_bytes(encode(made, "test"))
        with open_file(str(path)) as opened:
            assert rows_of(opened) == rows_of(made)
            assert opened.table == derived(LONG)
            for metric in made.table.metrics:
                for kind in ("first", "last", "peak"):
                    assert getattr(opened, kind)(metric.name).tolist() == getattr(made, kind)(metric.name).tolist()
