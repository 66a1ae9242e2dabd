# SPDX-License-Identifier: Apache-2.0
"""Every table is asked in both ways: how its columns came about, its rows as stored, and its things as series."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from sysmond.answers import long_series
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Semantics
from sysmond.base.result import Explanation, Result
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.rollup.top import roll_up
from sysmond.store.archive import Name
from sysmond.store.files.sparse_file import encode
from sysmond.tasks.tables import EXITS, PROCESS
from tests.support.longarchive import BOOT, BOOTED_NS, Row, put, stretch

US = 1_000_000


def at(second: float) -> int:
    return BOOTED_NS + round(second * SECOND_NS)


def process(pid: int, start_s: float = 1, **values: int | str | None) -> Row:
    return {"pid": pid, "start": round(start_s * SECOND_NS), "state": "S", **values}


@pytest.fixture
def archive(folders: Folders) -> Archive:
    """Two processes with one number, one after the other, and another one."""
    rows = [
        (0, process(5, 1, comm="old", cpu=0, rss_anon=100)),
        (0, process(7, 1, comm="pg", cpu=US, rss_anon=10)),
        (4, process(5, 1, comm="old", cpu=2 * US, rss_anon=100)),
        (6, process(5, 105.5, comm="new", cpu=US // 2, rss_anon=50)),
        (8, process(5, 105.5, comm="new", cpu=US, rss_anon=70)),
    ]
    put(folders, stretch(PROCESS, range(100, 110), rows, full=(0, 6)), 1)
    ended = process(5, 1, comm="old", cpu=2 * US)
    put(folders, stretch(EXITS, range(100, 110), [(5, {**ended, "end": 105 * SECOND_NS - 1})], full=()), 1)
    return Archive(folders)


def values(found: Result, path: str, stat: str | None = None) -> list[float | None]:
    numbers = found.column(path, stat).values.tolist()
    return [None if np.isnan(number) else number for number in numbers]


def test_a_thing_of_a_long_table_is_a_series(archive: Archive) -> None:
    found = archive.select("process/cpu@7", "process/rss_anon@7", start=at(100), end=at(110), step="5s")
    assert [column.path for column in found.columns] == ["process/cpu@7", "process/rss_anon@7"]
    assert (found.step_ns, found.table) == (5 * SECOND_NS, "")
    assert values(found, "process/rss_anon@7") == [10, 10]
    same = archive.records("process", where="pid = 7", columns="cpu,rss_anon", start=at(100), end=at(110), step="5s")
    assert values(found, "process/cpu@7") == values(same, "cpu")


def test_things_that_share_a_number_are_told_apart_by_their_starts(archive: Archive) -> None:
    found = archive.select("process/cpu@5", start=at(100), end=at(110), step="2s", stat="sum")
    old, new = (f"process/cpu@5/{at(start) / SECOND_NS:.15g}" for start in (1, 105.5))
    assert [column.path for column in found.columns] == [old, new]
    assert sum(value or 0 for value in values(found, old)) == 2
    assert sum(value or 0 for value in values(found, new)) == 1
    assert values(found, new)[0] is None
    alone = archive.select(new, start=at(100), end=at(110), step="2s", stat="sum")
    assert [column.path for column in alone.columns] == [new]


def test_patterns_statistics_and_both_kinds_of_tables(archive: Archive) -> None:
    total = archive.select("process/rss@7", start=at(100), end=at(110), step="10s")
    assert values(total, "process/rss@7") == [10]
    found = archive.select("process/rss*@7", start=at(100), end=at(110), step="10s", stat="mean,max")
    assert ("process/rss_anon@7", "max") in {(column.path, column.stat) for column in found.columns}
    every = archive.select("process/cpu", start=at(100), end=at(110), step="10s")
    assert len(every.columns) == 3
    ends = archive.select("exits/cpu", start=at(100), end=at(110))
    assert [(column.path, values(ends, column.path)) for column in ends.columns] == [("exits/cpu@5", [2.0])]
    states = archive.select("process/comm@7", start=at(100), end=at(110), step="10s")
    assert states.columns[0].texts == ("pg",)


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("process/cpus@5", "there is no metric 'process/cpus'; did you mean process/cpu"),
        ("process/cpu@6", "path 'process/cpu@6': no such instance in that range"),
    ],
)
def test_wrong_paths_of_long_tables_are_refused(archive: Archive, path: str, refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal):
        archive.select(path, start=at(100), end=at(110), step="10s")


def test_too_many_series_are_refused_in_a_line(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_series, "SERIES_MAX", 2)
    with pytest.raises(UsageError, match="3 series; expected at most 2: name instances or metrics") as refused:
        archive.select("process/cpu", start=at(100), end=at(110))
    assert "\n" not in str(refused.value)


def test_raw_rows_are_those_that_are_stored(archive: Archive) -> None:
    found = archive.records("process", raw=True, columns="pid,cpu,comm", start=at(100), end=at(107))
    rows = list(zip(*(found.records[name].tolist() for name in ("pid", "cpu", "comm")), strict=True))
    assert rows == [(5, 0, "old"), (7, 1, "pg"), (5, 2, "old"), (5, 0.5, "new")]
    assert found.times_ns.tolist() == [at(100), at(100), at(104), at(106)]
    chosen = archive.records("process", raw=True, columns="pid,cpu", where="cpu >= 2s")
    assert found.column("cpu").unit == "s"
    assert chosen.records["pid"].tolist() == [5]
    series = archive.select("process/cpu@7", raw=True)
    assert (values(series, "process/cpu@7"), series.columns[0].stat) == ([1], "raw")


@pytest.mark.parametrize("said", [{"step": "1s"}, {"by": "cpu"}, {"top": 3}, {"group_by": "comm"}, {"stat": "sum"}])
def test_raw_rows_are_neither_put_together_nor_ranked(archive: Archive, said: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--raw gives rows as they are stored; expected only one"):
        archive.records("process", raw=True, **said)


def explained(found: Result) -> dict[tuple[str, str], Explanation]:
    return {(each.path, each.stat): each for each in found.explanations}


def test_every_column_of_long_rows_is_explained(archive: Archive) -> None:
    columns = "pid,comm,cpu,cpu:sum,cpu:p95,rss,rss_anon:max,username,end,exit_code,state,read_bytes:last,start"
    found = archive.records("process", columns=columns, start=at(100), end=at(110), explain=True)
    told = explained(found)
    assert len(found.explanations) == len(found.columns)
    assert all(each.formula and each.origin for each in found.explanations)
    assert told["process/cpu", "mean"].formula == "increase ÷ time between the readings × 100"
    assert told["process/cpu", "sum"].formula == "increase"
    assert told["process/rss", "mean"].formula.endswith("of rss_anon + rss_file + rss_shmem")
    assert "began anew: that increase counts nowhere" in told["process/cpu", "sum"].resampling
    assert "began anew" not in told["process/rss", "mean"].resampling
    assert "table exits" in told["process/exit_code", "last"].origin
    (part,) = told["process/cpu", "mean"].answered
    assert (part.tier, part.step_ns, part.start_ns, part.end_ns) == ("rows", SECOND_NS, at(100), at(110))


def test_groups_and_percentiles_and_series_are_explained(archive: Archive) -> None:
    said: dict[str, Any] = {"start": at(100), "end": at(110), "explain": True}
    groups = explained(archive.records("process", group_by="comm", columns="comm,count,cpu,rss_anon:max", **said))
    assert groups["process/cpu", "mean"].formula.endswith("; the sum of all rows with the same comm")
    assert groups["process/rss_anon", "max"].formula.endswith("; the largest of all rows with the same comm")
    assert groups["process/count", "last"].formula == "number of rows that were put together"
    over = explained(archive.records("process", columns="pid,cpu", percentile=95, step="2s", **said))
    assert over["process/cpu", "mean"].formula.endswith("; 95 % of the steps have at most this")
    series = archive.select("process/cpu@7", step="5s", **said).explanations
    assert [(each.path, each.step_ns) for each in series] == [("process/cpu@7", 5 * SECOND_NS)]
    raw = explained(archive.records("process", columns="pid,cpu", raw=True, **said))
    assert raw["process/cpu", "last"].formula == "as stored"


@pytest.mark.parametrize("is_old", [True, False])
def test_tiers_say_by_which_rule(folders: Folders, *, is_old: bool) -> None:
    rows = [(0, process(5, cpu=0)), (15, process(5, cpu=US))]
    (made,) = roll_up([stretch(PROCESS, range(100, 140), rows)], [10 * SECOND_NS])
    folder = Path(f"{folders.state}/public/process/10s")
    folder.mkdir(parents=True)
    path = folder / Name(BOOT, 1, 1).file
    path.write_bytes(encode(made, "test"))
    if is_old:
        with h5py.File(path, "r+") as file:
            file.attrs["compatible"] = np.int64(0)
    found = Archive(folders).records("process", columns="pid,cpu:sum", start=at(100), end=at(140), explain=True)
    told = explained(found)["process/cpu", "sum"]
    assert [part.tier for part in told.answered] == ["10s"]
    assert ("are of before that rule: in them a counter that fell has not grown" in told.resampling) is is_old


def test_a_reset_is_told_of_its_column_alone(folders: Folders) -> None:
    rows = [(0, process(5, cpu=900, run_delay=1)), (2, process(5, cpu=1, run_delay=2))]
    put(folders, stretch(PROCESS, range(100, 110), rows), 1)
    said: dict[str, Any] = {"start": at(100), "end": at(110), "explain": True}
    told = explained(Archive(folders).records("process", columns="pid,cpu:sum,run_delay:sum", **said))
    assert [(str(gap.cause), gap.number) for gap in told["process/cpu", "sum"].gaps] == [("counter reset", 1)]
    assert told["process/run_delay", "sum"].gaps == ()
    series = Archive(folders).select("process/cpu@5", "process/run_delay@5", step="5s", stat="sum", **said)
    assert [[str(gap.cause) for gap in each.gaps] for each in series.explanations] == [["counter reset"], []]


def test_columns_know_what_they_are(archive: Archive) -> None:
    found = archive.select("process/cpu@7", start=at(90), end=at(110), step="10s")
    (column,) = found.columns
    assert (column.unit, column.semantics) == ("%", Semantics.COUNTER)
    assert ABSENT not in found.times_ns.tolist()


def test_what_is_derived_is_a_series_of_a_thing_too(archive: Archive) -> None:
    span = {"start": at(100), "end": at(110), "step": "5s"}
    found = archive.select("process/cpu_percent@5*", "process/cpu@5*", **span)  # type: ignore[arg-type]
    percent, cpu = (
        [column for column in found.columns if f"/{name}@" in column.path] for name in ("cpu_percent", "cpu")
    )
    assert [column.unit for column in percent] == ["%"] * len(cpu)
    for one, other in zip(percent, cpu, strict=True):
        np.testing.assert_allclose(one.values, other.values)
    (told, *_) = archive.select("process/cpu_percent@7", explain=True, **span).explanations  # type: ignore[arg-type]
    assert told.formula.startswith("cpu * 100")
    (_, told) = archive.records(
        "process", columns="cpu_percent", group_by="comm", explain=True, start=at(100), end=at(110)
    ).explanations
    assert told.formula == "cpu * 100, of their mean; the formula of sums of all rows with the same comm"
    assert "process/cpu_percent" not in {column.path.partition("@")[0] for column in archive.select("process").columns}


@pytest.mark.parametrize(
    ("path", "said", "wrong"),
    [
        ("process/cpu_percnt", {}, "there is no metric 'process/cpu_percnt'; did you mean process/cpu_percent"),
        (
            "process/cpu_percent",
            {"raw": True},
            "path 'process/cpu_percent': is derived, so rows as stored do not have it",
        ),
        ("process/cpu_percent", {"stat": "sum"}, "has no column 'cpu_percent:sum'"),
        ("process/memory_percent", {"stat": "max"}, "has no column 'memory_percent:max'"),
    ],
)
def test_what_a_derived_series_has_not_is_a_line(archive: Archive, path: str, said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError) as refused:
        archive.select(path, start=at(100), end=at(110), **said)
    assert wrong in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (
            {"columns": "pid,cpu_percent"},
            "column 'cpu_percent': is derived, .*; expected what it is computed from: cpu$",
        ),
        ({"columns": "pid", "where": "cpu_percent > 5"}, "column 'cpu_percent': is derived, .*: cpu$"),
        ({"columns": "memory_percent"}, "from: rss_anon, rss_file, rss_shmem, memory.total$"),
        ({"columns": "cpu_percent,nonsense"}, "table 'process' has no column 'nonsense'"),
        ({"columns": "cpu_percnt"}, "has no column 'cpu_percnt'; did you mean cpu_percent"),
    ],
)
def test_rows_as_stored_have_nothing_derived(archive: Archive, asked: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        archive.records("process", raw=True, start=at(100), end=at(110), **asked)
