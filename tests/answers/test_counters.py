# SPDX-License-Identifier: Apache-2.0
"""One rule of counters: what is asked as series, rows, buckets or SQL grew by the same, and a reset has a cause."""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sysmond.answers.records import answer
from sysmond.answers.rows.question import Request
from sysmond.answers.rows.record_gaps import RESETS_LISTED_MAX
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Sensitivity
from sysmond.base.result import Result
from sysmond.machine.folders import Folders
from sysmond.rollup import file_edges
from sysmond.rollup.top import roll_up
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Stat
from sysmond.store.files.sparse_file import FileStretch, open_file
from sysmond.store.stretches.chain import Chain, Ends
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.stretch import MemoryStretch
from sysmond.tasks.tables import EXITS, PROCESS
from tests.support.longarchive import BOOTED_NS, Row, answer_by_sql, asked_by_sql, put, relation, stretch
from tests.support.order import examples

FIRST, READINGS = 100, 48
US = 1_000_000
Walk = list[int | None]


def at(second: float) -> int:
    return BOOTED_NS + round(second * SECOND_NS)


def walk(dice: random.Random) -> Walk:
    """What a counter was at each reading: it grows, rests, is corrected, begins anew, and is absent."""
    values: Walk = []
    value = dice.randrange(2000)
    for _ in range(READINGS):
        draw = dice.random()
        if draw < 0.5:
            value += dice.randrange(500)
        elif draw < 0.6:
            value -= min(value, dice.randrange(4))
        elif draw < 0.66:
            value //= dice.randrange(2, 9)
        values.append(None if dice.random() < 0.15 else value)
    return values


def process(pid: int, start_s: float, cpu: int | None) -> Row:
    return {"pid": pid, "start": round(start_s * SECOND_NS), "state": "S", "comm": "x", "cpu": cpu}


def wide_sum(walked: Walk, *, is_new: bool) -> int:
    """What a series of these values grew by, as wide tables have it; what is new was 0 before."""
    values = [0, *walked] if is_new else walked
    row = np.array([[ABSENT if value is None else value for value in values]], np.int64)
    ticks = np.arange(len(values), dtype=np.int64) * SECOND_NS
    buckets = statistics.of_counters(row, ticks, np.zeros(1, np.int64), SECOND_NS)
    return int(buckets.stats[Stat.SUM].sum())


class Machine:
    """Some processes, of which all but the last were there before; and their counters."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.walks = [walk(dice) for _ in range(4)]
        self.starts = [1.0, 2.0, 3.0, FIRST - 0.5]
        self.cuts = [0, *sorted(dice.sample(range(1, READINGS), dice.randrange(3))), READINGS]
        # Of most the end is told, with less than the last reading has, or more; readings may go on for a while.
        self.told = {pid: dice.randrange(3000) for pid in range(1, 5) if dice.random() < 0.7}
        self.ends = {pid: FIRST + dice.randrange(READINGS - 5, READINGS) - 0.5 for pid in self.told}

    def sums(self, *, with_ends: bool = True) -> dict[int, int]:
        """What each grew by; what its end tells takes nothing back."""
        sums = {number + 1: wide_sum(each, is_new=number == 3) for number, each in enumerate(self.walks)}
        for pid, total in self.told.items() if with_ends else ():
            there = [value for value in ([0] if pid == 4 else []) + self.walks[pid - 1] if value is not None]
            sums[pid] += max(0, total - there[-1]) if there else 0
        return sums

    def exits(self) -> MemoryStretch:
        """The table that tells of ends."""
        rows: list[tuple[int, Row]] = []
        for pid, total in self.told.items():
            row = process(pid, self.starts[pid - 1], total)
            rows.append((math.ceil(self.ends[pid]) - FIRST, {**row, "end": round(self.ends[pid] * SECOND_NS)}))
        return stretch(EXITS, range(FIRST, FIRST + READINGS), rows, full=())

    def told_ends(self) -> Ends:
        """The same, as buckets are made with it."""
        pids, totals = np.array([*self.told], np.int64), np.array([*self.told.values()], np.int64)
        starts = np.array([round(self.starts[pid - 1] * SECOND_NS) for pid in self.told], np.int64)
        ends = np.array([round(self.ends[pid] * SECOND_NS) for pid in self.told], np.int64)
        assert PROCESS.packing
        keys = np.stack([{"pid": pids, "start": starts}[name] for name in PROCESS.packing.key], axis=1)
        return Ends(keys, ends, {"cpu": lambda: totals})

    def parts(self) -> list[MemoryStretch]:
        """Files: each begins with all there is, after that come changes."""
        made = []
        for low, high in zip(self.cuts, self.cuts[1:], strict=False):
            rows: list[tuple[int, Row]] = []
            for number, values in enumerate(self.walks):
                rows += [
                    (place - low, process(number + 1, self.starts[number], values[place]))
                    for place in range(low, high)
                    if place == low or values[place] != values[place - 1]
                ]
            made.append(stretch(PROCESS, range(FIRST + low, FIRST + high), rows))
        return made


def asked(folders: Folders, step: str | None = None, columns: str = "pid,cpu:sum") -> Result:
    request = Request("process", at(FIRST - 1), at(FIRST + READINGS), step, columns)
    return answer(folders, tuple(Sensitivity), request)


def added(found: Result) -> dict[int, int]:
    sums: dict[int, int] = {}
    for pid, grown in zip(found.column("pid").values, found.column("cpu:sum").values, strict=True):
        sums[int(pid)] = sums.get(int(pid), 0) + (0 if np.isnan(grown) else round(grown * US))
    return sums


@contextmanager
def opened(paths: Sequence[str]) -> Iterator[list[FileStretch]]:
    with ExitStack() as stack:
        yield [stack.enter_context(open_file(path)) for path in paths]


def forget_the_rule(path: str) -> None:
    """Make a file as they were before they told which counters began anew."""
    with h5py.File(path, "r+") as file:
        file.attrs["compatible"] = np.int64(0)
        if "resets" in file:
            del file["resets"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["files", "joined", "old"]))
@example(7526, "files")
def test_rows_and_steps_grow_by_what_series_do(tmp_path_factory: pytest.TempPathFactory, seed: int, how: str) -> None:
    machine, place = Machine(seed), tmp_path_factory.mktemp("counters")
    folders = Folders(f"{place}/state", f"{place}/run")
    parts = machine.parts()
    paths = [put(folders, part, number) for number, part in enumerate(parts, 1)]
    if how == "joined":
        with opened(paths) as members:
            joined = Joined(members)
            whole = put(folders, joined, 1, len(parts))
            with open_file(whole) as made:
                assert made.resets("cpu").key.tolist() == joined.resets("cpu").key.tolist()
        for path in set(paths) - {whole}:
            Path(path).unlink()
    if how == "old":
        for path in paths:
            forget_the_rule(path)
    put(folders, machine.exits(), 1)
    expected = machine.sums()
    for step in (None, "1s", "7s", "20s"):
        found = asked(folders, step)
        assert added(found) == expected, step
        assert [gap for gap in found.gaps if gap.start_ns > gap.end_ns] == []


@given(st.integers(0, 10**6))
def test_buckets_grow_by_what_series_do(seed: int) -> None:
    machine = Machine(seed)
    parts = machine.parts()
    chain = Chain(parts, machine.told_ends())
    for made in roll_up(parts, [10 * SECOND_NS, 60 * SECOND_NS, 300 * SECOND_NS], chain=chain):
        grown = made.column("cpu")
        assert int(grown[grown != ABSENT].sum()) == sum(machine.sums().values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sql_grows_by_what_series_do(folders: Folders, seed: int) -> None:
    machine = Machine(seed)
    for number, part in enumerate(machine.parts(), 1):
        put(folders, part, number)
    put(folders, machine.exits(), 1)
    found = asked_by_sql(folders, "select pid, sum(cpu) from process group by 1")
    assert {pid: round((grown or 0) * US) for pid, grown in found} == machine.sums(with_ends=False)


def test_a_reset_has_a_cause_and_a_correction_has_none(folders: Folders) -> None:
    seen = [(0, process(5, 1, 900)), (1, process(5, 1, 899)), (4, process(5, 1, 10)), (6, process(5, 1, 30))]
    put(folders, stretch(PROCESS, range(100, 110), seen), 1)
    put(folders, stretch(PROCESS, range(110, 120), [(0, process(5, 1, 2))]), 2)
    request = Request("process", at(100), at(120), columns="pid,cpu:sum,read_bytes:sum")
    found = answer(folders, tuple(Sensitivity), request)
    assert added(found) == {5: -1 + 20}
    resets = [(gap.start_ns, gap.end_ns, gap.detail) for gap in found.gaps if gap.cause is Cause.COUNTER_RESET]
    assert resets == [(at(103), at(104), "process/cpu@5"), (at(109), at(110), "process/cpu@5")]
    for column in ("cpu", "cpu_rate") if find_spec("duckdb") else ():
        by_sql = answer_by_sql(folders, f"select sum({column}) from process", start=at(100), end=at(120))
        assert (by_sql.gaps, by_sql.events) == ([*found.gaps], [*found.events])
    derived = answer(folders, tuple(Sensitivity), request._replace(columns="pid,cpu_percent", by="pid"))
    assert derived.gaps == found.gaps
    without = answer(folders, tuple(Sensitivity), request._replace(columns="pid,read_bytes:sum", by="pid"))
    assert not [gap for gap in without.gaps if gap.cause is Cause.COUNTER_RESET]
    later = answer(folders, tuple(Sensitivity), request._replace(start=at(105)))
    assert [gap.detail for gap in later.gaps if gap.cause is Cause.COUNTER_RESET] == ["process/cpu@5"]


@pytest.mark.parametrize("step", [None, "1s", "20s"])
def test_what_an_end_tells_takes_nothing_back(folders: Folders, step: str | None) -> None:
    pids = (5, 6, 7, 8)
    rows = [(0, process(pid, 1, 100)) for pid in pids] + [(4, process(pid, 1, 900)) for pid in pids]
    # One is read once more after its end.
    put(folders, stretch(PROCESS, range(100, 110), [*rows, (6, process(8, 1, 950))]), 1)
    told = {5: 3, 6: 898, 7: 907, 8: 910}
    ends = [(5, {**process(pid, 1, total), "end": 105 * SECOND_NS - SECOND_NS // 2}) for pid, total in told.items()]
    put(folders, stretch(EXITS, range(100, 110), ends, full=()), 1)
    found = asked(folders, step)
    assert added(found) == {5: 800, 6: 800, 7: 807, 8: 850}
    assert not [gap for gap in found.gaps if gap.cause is Cause.COUNTER_RESET]
    last = asked(folders, step, "pid,cpu:last")
    totals = dict(zip(last.column("pid").values.tolist(), last.column("cpu:last").values.tolist(), strict=True))
    assert {pid: round(total * US) for pid, total in totals.items()} == {5: 900, 6: 900, 7: 907, 8: 950}


def test_a_reset_before_an_end_is_told_and_the_end_is_none(folders: Folders) -> None:
    seen = [(0, process(5, 1, 900)), (4, process(5, 1, 10)), (6, process(5, 1, 30))]
    put(folders, stretch(PROCESS, range(100, 110), seen), 1)
    # Told with less than the last reading has, which is later than the end.
    ends = [(6, {**process(5, 1, 12), "end": 105 * SECOND_NS + SECOND_NS // 2})]
    put(folders, stretch(EXITS, range(100, 110), ends, full=()), 1)
    for step in (None, "1s", "20s"):
        found = asked(folders, step)
        assert added(found) == {5: 20}
        resets = [(gap.start_ns, gap.end_ns) for gap in found.gaps if gap.cause is Cause.COUNTER_RESET]
        assert resets == [(at(103), at(104))]


def test_a_clock_that_is_set_back_turns_no_reset_round(folders: Folders) -> None:
    relations = [relation(), relation(104 * SECOND_NS, BOOTED_NS - 60 * SECOND_NS)]
    seen = [(0, process(5, 1, 900)), (4, process(5, 1, 10))]
    put(folders, stretch(PROCESS, range(100, 110), seen, relations=relations), 1)
    request = Request("process", at(0), at(FIRST + READINGS), None, "pid,cpu:sum")
    found = answer(folders, tuple(Sensitivity), request)
    resets = [(gap.start_ns, gap.end_ns) for gap in found.gaps if gap.cause is Cause.COUNTER_RESET]
    assert resets == [(at(44), at(44))]


def test_a_gap_counts_once(folders: Folders) -> None:
    put(folders, stretch(PROCESS, range(100, 110), [(0, process(5, 1, 0))]), 1)
    put(folders, stretch(PROCESS, range(130, 140), [(0, process(5, 1, 50))]), 2)
    for step in (None, "1s", "20s"):
        found = answer(folders, tuple(Sensitivity), Request("process", at(100), at(140), step, "pid,cpu:sum"))
        assert added(found) == {5: 50}


def test_buckets_say_by_which_rule_and_keep_it_when_they_are_merged(folders: Folders) -> None:
    (made,) = roll_up(
        [stretch(PROCESS, range(100, 110), [(0, process(5, 1, 9)), (3, process(5, 1, 1))])], [10 * SECOND_NS]
    )
    (later,) = roll_up([stretch(PROCESS, range(120, 130), [(0, process(5, 1, 2))])], [10 * SECOND_NS])
    paths = [put(folders, each, number) for number, each in enumerate((made, later), 1)]
    with opened(paths) as both:
        assert [each.about.is_by_rule for each in (*both, file_edges.merged(both))] == [True, True, True]
    forget_the_rule(paths[0])
    with opened(paths) as both:
        whole = put(folders, file_edges.merged(both), 3)
    with opened([*paths, whole]) as all_three:
        assert [each.about.is_by_rule for each in all_three] == [False, True, False]


def test_many_resets_are_told_together(folders: Folders) -> None:
    rows = [(place, process(5, 1, 900 if place % 2 else 1)) for place in range(100)]
    put(folders, stretch(PROCESS, range(100, 200), rows), 1)
    found = answer(folders, tuple(Sensitivity), Request("process", at(100), at(200), columns="pid,cpu:sum"))
    assert added(found) == {5: 50 * 899}
    details = [gap.detail for gap in found.gaps if gap.cause is Cause.COUNTER_RESET]
    assert len(details) == RESETS_LISTED_MAX + 1
    assert f"process/cpu: {49 - RESETS_LISTED_MAX} more" in details
