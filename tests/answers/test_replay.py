# SPDX-License-Identifier: Apache-2.0
"""Answers about processes beside a replay: whatever the files, and with gaps between and within them.

The replay keeps what every process was at every reading, and works out answers from that alone, one process and one
reading after the other: none of what answers are made of is used by it.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sysmond.answers.records import answer
from sysmond.answers.rows.question import Request
from sysmond.archiver import rollup_job
from sysmond.archiver.coding import SPARSE
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity, Table
from sysmond.base.result import Result
from sysmond.machine.folders import Folders
from sysmond.rollup import top
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.stretch import Stretch
from sysmond.tasks.tables import CGROUP_NAME, EXITS, PROCESS
from tests.support.longarchive import BOOTED_NS, Row, asked_by_sql, put, stretch
from tests.support.order import first

US = 1_000_000
# 11:10 of the clock on the wall: buckets of all tiers begin there.
BEGIN_S = 600
PATHS = ("/a.slice/x.service", "/b", "/a.slice/y.service")
USERS = {0: "root", 4242: "4242"}
GAP_S = 1.5
SEEDS = first(2, range(6))  # Every second one has gaps between readings.
Key = tuple[int, int]


class Life:
    """A process: what it was at each reading that saw it, by second, and what it had used when it ended."""

    def __init__(self, dice: random.Random, pid: int, start_ns: int, end_ns: int | None) -> None:
        self.key: Key = pid, start_ns
        self.end_ns = end_ns
        self.fixed: Row = {
            "pid": pid,
            "start": start_ns,
            "comm": dice.choice(["pg", "sh", "nginx", "a b"]),
            "uid": dice.choice(list(USERS)),
            "cgroup": dice.randrange(len(PATHS)),
            "state": "S",
        }
        self.now = {"cpu": 0, "read_bytes": 0, "rss_anon": dice.randrange(10**8)}
        if start_ns < BEGIN_S * SECOND_NS:
            self.now |= {"cpu": dice.randrange(50 * US), "read_bytes": dice.randrange(10**6)}
        self.is_idle = dice.random() < 0.4
        self.seen: dict[int, dict[str, int]] = {}
        self.total: dict[str, int] = {}

    def work(self, dice: random.Random) -> None:
        """Let the time between two readings pass."""
        if not self.is_idle or dice.random() < 0.05:
            self.now["cpu"] += dice.randrange(US)
            self.now["read_bytes"] += dice.choice([0, dice.randrange(5000)])
            self.now["rss_anon"] = max(0, self.now["rss_anon"] + dice.randrange(-(10**6), 10**6))

    def value(self, name: str, edge_s: int) -> int | None:
        """What it had before a second, by readings and by what is told of its end."""
        there = [row[name] for second, row in self.seen.items() if second < edge_s]
        if self.end_ns is not None and self.end_ns < edge_s * SECOND_NS:
            there.append(max([self.total[name], *there]))
        return there[-1] if there else None


class Told(NamedTuple):
    """What the replay says of a process and a range; ``mass``: the integral of its memory, byte seconds."""

    life: Life
    cpu_s: float | None
    read_bytes: int | None
    mean: float | None
    most: int | None
    mass: float


class Replay:
    """A machine of which everything is known, and files of it."""

    def __init__(self, seed: int, length: int = 150, *, count: int = 14) -> None:
        self.dice = dice = random.Random(seed)
        self.seconds = [BEGIN_S]
        while len(self.seconds) < length:
            self.seconds.append(self.seconds[-1] + (dice.randrange(3, 40) if dice.random() < 0.02 * (seed % 2) else 1))
        self.cuts = sorted({0, *dice.sample(range(1, length), 4)})
        self.fulls = {*self.cuts, *dice.sample(range(length), 3)}
        last_ns = self.seconds[-1] * SECOND_NS
        self.lives = list(self._lives(count, last_ns))
        self.rows: list[tuple[int, Row]] = []
        self.ends: list[tuple[int, Row]] = []
        for number, second in enumerate(self.seconds):
            self._read(number, second)

    def _lives(self, count: int, last_ns: int) -> Iterator[Life]:
        dice, begin_ns = self.dice, BEGIN_S * SECOND_NS
        for pid in range(101, 101 + count):
            start_ns = dice.randrange(1, begin_ns) if pid % 2 else dice.randrange(begin_ns, last_ns)
            length_ns = dice.choice([SECOND_NS // 2, 60 * SECOND_NS, 200 * SECOND_NS])
            end_ns = start_ns + dice.randrange(1, length_ns)
            is_over = dice.random() < 0.5 and begin_ns < end_ns <= last_ns
            yield Life(dice, pid - dice.choice([0, 0, 0, 1]), start_ns, end_ns if is_over else None)

    def _read(self, number: int, second: int) -> None:
        for life in self.lives:
            if life.key[1] > second * SECOND_NS:
                continue
            life.work(self.dice)
            if life.end_ns is None or life.end_ns > second * SECOND_NS:
                before = next(reversed(life.seen.values()), None)
                life.seen[second] = dict(life.now)
                if number in self.fulls or before != life.now:
                    self.rows.append((number, {**life.fixed, **life.now}))
            elif not life.total:
                life.total = dict(life.now)
                end: Row = {"end": life.end_ns, "exit_code": life.key[0] % 7}
                used = {name: life.now[name] for name in ("cpu", "read_bytes")}
                self.ends.append((number, {**life.fixed, **used, **end}))

    def files(self, table: Table, rows: Sequence[tuple[int, Row]], fulls: set[int]) -> list[Stretch]:
        """Files that are cut as they are, each of which begins with all there is."""
        return [
            stretch(
                table,
                self.seconds[low:high],
                [(number - low, row) for number, row in rows if low <= number < high],
                full={number - low for number in fulls if low <= number < high},
            )
            for low, high in pairwise([*self.cuts, len(self.seconds)])
        ]

    def put(self, folders: Folders, *, is_merged: bool = False) -> "Replay":
        """Write the files, or merged ones."""
        tables = [self.files(PROCESS, self.rows, self.fulls), self.files(EXITS, self.ends, set())]
        for parts in tables:
            for number, part in enumerate([Joined(parts)] if is_merged else parts, 1):
                put(folders, part, number, len(parts) if is_merged else number)
        paths: list[tuple[int, Row]] = [(0, {"id": number, "path": path}) for number, path in enumerate(PATHS)]
        put(folders, stretch(CGROUP_NAME, [BEGIN_S, self.seconds[-1]], paths), 1)
        return self

    def begin_s(self, low_s: int, high_s: int, *, is_merged: bool = False) -> int:
        """Where what answers a range begins: with the file before it."""
        begins = [self.seconds[cut] for cut in self.cuts[: 1 if is_merged else None]]
        ends = [*begins[1:], 10**9]
        first = [number for number, end in enumerate(ends) if begins[number] < high_s and end > low_s]
        return begins[max(0, first[0] - 1)]

    def watched(self, low_s: int, high_s: int) -> Iterator[tuple[int, float, float]]:
        """The readings that hold within a range, and from when to when."""
        for second, after in pairwise([*self.seconds, self.seconds[-1] + 100]):
            until = after if after - second < GAP_S else second + 1
            if min(until, high_s) > max(second, low_s):
                yield second, max(second, low_s), min(until, high_s)

    def told(self, low_s: int, high_s: int, begin_s: int) -> dict[Key, Told]:
        """What a range has of each process that was there; ``begin_s``: where what answers it begins."""
        if not list(self.watched(low_s, high_s)):
            return {}
        found = {}
        for life in self.lives:
            at_end = life.value("cpu", high_s)
            if at_end is None or (life.end_ns is not None and life.end_ns <= low_s * SECOND_NS):
                continue
            held = [
                (life.seen[second]["rss_anon"], _until(life, until) - since)
                for second, since, until in self.watched(low_s, high_s)
                if second in life.seen and _until(life, until) > since
            ]
            time_s, mass = sum(length for _, length in held), sum(value * length for value, length in held)
            last = [row["rss_anon"] for second, row in life.seen.items() if second < low_s][-1:]
            inside = [row["rss_anon"] for second, row in life.seen.items() if low_s <= second < high_s]
            cpu, read_bytes = (self._grown(life, name, low_s, high_s, begin_s) for name in ("cpu", "read_bytes"))
            found[life.key] = Told(
                life,
                None if cpu is None else cpu / US,
                read_bytes,
                mass / time_s if time_s else None,
                max([*last, *inside], default=None),
                mass,
            )
        return found

    def _grown(self, life: Life, name: str, low_s: int, high_s: int, begin_s: int) -> int | None:
        before, after = (life.value(name, edge_s) for edge_s in (low_s, high_s))
        if before is None:
            first = next(iter(life.seen.items()), None)
            is_new = life.key[1] >= begin_s * SECOND_NS or bool(first and first[0] > begin_s)
            before = 0 if is_new else first[1][name] if first else None
        return None if before is None or after is None else max(0, after - before)

    def range(self) -> tuple[int, int]:
        """Any range that has readings."""
        low_s = self.dice.randrange(BEGIN_S, self.seconds[-1] - 20)
        return low_s, self.dice.randrange(low_s + 5, self.seconds[-1] + 20)


def _until(life: Life, until_s: float) -> float:
    return until_s if life.end_ns is None else min(until_s, life.end_ns / SECOND_NS)


def ask(folders: Folders, low_s: int, high_s: int, table: str = "process", **said: Any) -> Result:
    start, end = (BOOTED_NS + second * SECOND_NS for second in (low_s, high_s))
    return answer(folders, tuple(Sensitivity), Request(table, start=start, end=end)._replace(**said))


def key(row: Any) -> Key:
    return int(row["pid"]), int(row["start"].astype(np.int64)) - BOOTED_NS


def same(one: float, other: float | None) -> bool:
    """Whether numbers agree to a part in a million; what is absent is NaN in an answer."""
    return bool(np.isnan(one)) if other is None else bool(one == pytest.approx(other, rel=1e-6))


COLUMNS = ("cpu:sum", "read_bytes:sum", "rss_anon", "rss_anon:max")


def check(found: Result, right: dict[tuple[Any, ...], Told], of: Callable[[Any], tuple[Any, ...]]) -> None:
    """Compare rows with those of the replay, by what ``of`` says that they are about."""
    told = {of(row): row for row in found.records}
    assert set(told) == set(right)
    for about, its in right.items():
        values = its.cpu_s, its.read_bytes, its.mean, its.most
        for name, value in zip(COLUMNS, values, strict=True):
            assert same(float(told[about][name]), value), (about, name)


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_range(folders: Folders, seed: int, *, is_merged: bool) -> None:
    replay = Replay(seed).put(folders, is_merged=is_merged)
    for _ in range(5):
        low_s, high_s = replay.range()
        found = ask(folders, low_s, high_s, columns=["pid", "start", *COLUMNS])
        check(found, replay.told(low_s, high_s, replay.begin_s(low_s, high_s, is_merged=is_merged)), key)


@pytest.mark.parametrize("step_s", [7, 60])
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_and_percentiles_over_them(folders: Folders, seed: int, step_s: int) -> None:
    replay = Replay(seed).put(folders)
    low_s, high_s = replay.range()
    booted_s = BOOTED_NS // SECOND_NS
    edges = [low_s, *(each for each in range(low_s + 1, high_s) if (booted_s + each) % step_s == 0), high_s]
    right: dict[tuple[Any, ...], Told] = {}
    for low, high in pairwise(edges):
        stamp = low - (booted_s + low) % step_s
        told = replay.told(low, high, replay.begin_s(low_s, high_s))
        right |= {(stamp, *about): its for about, its in told.items()}
    asked: dict[str, Any] = {"columns": ["pid", "start", *COLUMNS], "step": f"{step_s}s"}
    check(ask(folders, low_s, high_s, **asked), right, lambda row: (_second(row), *key(row)))
    series: dict[Key, list[float]] = defaultdict(list)
    for (_, *about), its in right.items():
        series[about[0], about[1]] += [] if its.cpu_s is None else [its.cpu_s]
    found = ask(folders, low_s, high_s, **asked, percentile=75)
    for row in found.records:
        assert same(float(row["cpu:sum"]), _percentile(sorted(series.pop(key(row))), 0.75))
    assert not series


def _second(row: Any) -> int:
    return (int(row["time"].astype(np.int64)) - BOOTED_NS) // SECOND_NS


def _percentile(values: Sequence[float], part: float) -> float | None:
    if not values:
        return None
    low, rest = divmod((len(values) - 1) * part, 1)
    at = int(low)
    return values[at] + (values[min(at + 1, len(values) - 1)] - values[at]) * rest


GROUPS: dict[str, Callable[[Row], str | None]] = {
    "comm": lambda row: str(row["comm"]),
    "user": lambda row: USERS[int(row["uid"] or 0)],
    "cgroup": lambda row: PATHS[int(row["cgroup"] or 0)],
    "slice": lambda row: "a.slice" if row["cgroup"] != 1 else None,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_conditions_and_the_first(folders: Folders, seed: int) -> None:
    replay = Replay(seed).put(folders)
    low_s, high_s = replay.range()
    right = replay.told(low_s, high_s, replay.begin_s(low_s, high_s))
    watched_s = sum(until - since for _, since, until in replay.watched(low_s, high_s))
    for name, of in GROUPS.items():
        groups: dict[str | None, list[Told]] = defaultdict(list)
        for its in right.values():
            groups[of(its.life.fixed)].append(its)
        found = ask(folders, low_s, high_s, group_by=name, columns=f"{name},count,cpu:sum,rss_anon").records
        assert {row[name]: row["count"] for row in found} == {name: len(mine) for name, mine in groups.items()}
        for row in found:
            assert np.nan_to_num(row["cpu:sum"]) == pytest.approx(sum(its.cpu_s or 0 for its in groups[row[name]]))
            mass = sum(its.mass for its in groups[row[name]])
            assert np.nan_to_num(row["rss_anon"]) == pytest.approx(mass / watched_s)
    where = "comm ~ ^(pg|sh)$ and cpu:sum > 2s or not user = root and rss_anon:max > 50MB"
    chosen = {
        about
        for about, its in right.items()
        if (re.search("^(pg|sh)$", str(its.life.fixed["comm"])) and (its.cpu_s or 0) > 2)
        or (its.life.fixed["uid"] != 0 and (its.most or 0) > 50e6)
    }
    assert {key(row) for row in ask(folders, low_s, high_s, columns="pid,start", where=where).records} == chosen
    first = ask(folders, low_s, high_s, columns="cpu:sum", by="cpu:sum", top=3).records["cpu:sum"]
    assert first.tolist() == pytest.approx(sorted((its.cpu_s or 0 for its in right.values()), reverse=True)[:3])


@pytest.mark.parametrize("seed", SEEDS)
def test_each_end_is_told_once(folders: Folders, seed: int) -> None:
    replay = Replay(seed).put(folders)
    low_s, high_s = replay.range()
    found = ask(folders, low_s, high_s, "exits", columns="pid,start,exit_code,cpu").records
    assert {(*key(row), int(row["exit_code"]), round(row["cpu"] * US)) for row in found} == {
        (*life.key, life.key[0] % 7, life.total["cpu"])
        for life in replay.lives
        if life.end_ns is not None and low_s * SECOND_NS <= life.end_ns < high_s * SECOND_NS
    }


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_as_they_are_stored_are_each_there_once(folders: Folders, seed: int, *, is_merged: bool) -> None:
    replay = Replay(seed).put(folders, is_merged=is_merged)
    low_s, high_s = replay.range()
    found = ask(folders, low_s, high_s, raw=True, columns="pid,start,comm,cpu,read_bytes,rss_anon").records
    told = [(_second(row), *key(row), row["comm"], round(row["cpu"] * US), *row.tolist()[-2:]) for row in found]
    names = ("pid", "start", "comm", "cpu", "read_bytes", "rss_anon")
    right, changed, before = [], [], dict[Any, Row]()
    for number, row in replay.rows:
        if low_s <= replay.seconds[number] < high_s:
            right.append((replay.seconds[number], *(row[name] for name in names)))
            changed += right[-1:] if before.get((row["pid"], row["start"])) != row else []
        before[row["pid"], row["start"]] = row
    if is_merged:  # Files that follow it need no longer begin with what did not change.
        assert set(changed) <= set(told) <= set(right)
        assert len(set(told)) == len(told)
    else:
        assert sorted(told) == sorted(right)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_summary_leaving_out_and_what_is_derived(folders: Folders, seed: int) -> None:
    replay = Replay(seed).put(folders)
    low_s, high_s = replay.range()
    right = replay.told(low_s, high_s, replay.begin_s(low_s, high_s))
    summary = ask(folders, low_s, high_s, columns="pid,start,rss_anon", by="pid", summary=True).records
    assert {key(row) for row in summary} == set(right)
    for row in summary:
        its = right[key(row)]
        assert same(float(row["rss_anon:mean"]), its.mean)
        assert same(float(row["rss_anon:max"]), its.most)
        if its.mean is not None and its.most is not None:
            assert row["rss_anon:min"] <= its.mean * (1 + 1e-9)
            assert row["rss_anon:min"] <= row["rss_anon:p95"] <= its.most
    asked: dict[str, Any] = {"columns": "pid,start,cpu_percent,cpu:sum,read_bytes:sum", "by": "cpu:sum"}
    whole = ask(folders, low_s, high_s, **asked).records
    # All are measured over the same time.
    shares = {round(row["cpu_percent"] / row["cpu:sum"], 2) for row in whole if row["cpu:sum"] > 1}
    assert len(shares) <= 1
    watched_s = sum(until - since for _, since, until in replay.watched(low_s, high_s))
    assert all(share * watched_s == pytest.approx(100, rel=0.1) for share in shares) or seed % 2  # Odd ones have gaps.
    left = ask(folders, low_s, high_s, drop=["read_bytes", "process/start"], **asked)
    assert [column.path for column in left.columns] == ["pid", "cpu_percent", "cpu:sum"]
    assert left.records["cpu:sum"].tolist() == pytest.approx(whole["cpu:sum"].tolist(), nan_ok=True)


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
@pytest.mark.parametrize("seed", SEEDS)
def test_sql_sees_the_rows_and_what_grew_between_them(folders: Folders, seed: int) -> None:
    replay = Replay(seed).put(folders)
    query = "select pid, epoch_ns(start), count(*), sum(cpu), max(cpu_total), avg(rss_anon) from process group by 1, 2"
    told = {(row[0], row[1] - BOOTED_NS): row[2:] for row in asked_by_sql(folders, query)}
    rows: dict[Key, list[Row]] = defaultdict(list)
    for _, row in replay.rows:
        rows[int(row["pid"] or 0), int(row["start"] or 0)].append(row)
    assert set(told) == set(rows)
    for about, mine in rows.items():
        cpu, memory = ([int(row[name] or 0) for row in mine] for name in ("cpu", "rss_anon"))
        base = cpu[0] if about[1] < BEGIN_S * SECOND_NS else 0
        right = [len(mine), (cpu[-1] - base) / US, cpu[-1] / US, sum(memory) / len(memory)]
        assert [cell or 0 for cell in told[about]] == pytest.approx(right)


@pytest.mark.parametrize("tier", first(1, ["1min", "10s", "5min"]))
@pytest.mark.parametrize("seed", first(1, range(2)))
def test_tiers_have_the_totals_of_all_rows_and_ends(
    tmp_path: Path, seed: int, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "FIRST", 3)
    folders = [Folders(str(tmp_path / name), str(tmp_path / "runtime")) for name in ("whole", "aged")]
    replay = Replay(seed, 900, count=30)
    for each in folders:
        replay.put(each)
    rollup_job.roll_up(folders[1], SPARSE, lambda _tier, _bytes: None, set())
    place = tmp_path / "aged/public/process"
    for other in {"10s", "1min", "5min"} - {tier}:
        (place / other).rename(tmp_path / other)
    for path in sorted((place / "1s").iterdir())[:3]:
        path.unlink()
    last_s = replay.seconds[-1] + 1
    for low_s, high_s in ((BEGIN_S, last_s), (BEGIN_S + 300, last_s), (BEGIN_S, BEGIN_S + 600)):
        asked: dict[str, Any] = {"group_by": "cgroup", "columns": "cgroup,cpu:sum,read_bytes:sum,cpu"}
        right, told = (
            {row["cgroup"]: list(row)[2:] for row in ask(each, low_s, high_s, **asked).records} for each in folders
        )
        assert set(told) == set(right)
        for cgroup, values in right.items():
            assert told[cgroup] == pytest.approx(values, rel=1e-6)
