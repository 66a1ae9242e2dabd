# SPDX-License-Identifier: Apache-2.0
"""SQL, summaries, leaving out, what is stored, and tables of moments: against a naive reading of the raw rows.

``test_every_option`` does the same of rows with columns, conditions, groups and steps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.answers.rows.summary import STATISTICS
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from tests.support.known import (
    AT,
    DISKS,
    END_S,
    ENDED,
    MARKS,
    PIDS,
    RAW,
    US,
    Archives,
    changes,
    of_buckets,
    of_ends,
    of_rows,
)
from tests.support.longarchive import answer_by_sql
from tests.support.machine import NOON_NS, Machine

Span = tuple[int, int]
Row = Mapping[str, Any]
METRICS = ("read_bytes", "queue", "model")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    return [make(tmp_path_factory.mktemp(make.__name__)) for make in (of_rows, of_buckets, of_ends)]


@pytest.fixture(scope="module")
def archives(machines: Sequence[Machine]) -> Archives:
    return Archives(*(machine.archive for machine in machines))


spans = st.tuples(st.integers(2, END_S - 60), st.integers(20, 300)).map(lambda of: (of[0], min(END_S, of[0] + of[1])))


def asked(span: Span) -> dict[str, Any]:
    return {"start": at(span[0]), "end": at(span[1])}


def at(second: float) -> int:
    return NOON_NS + round(second * SECOND_NS)


def disk(name: str, span: Span) -> dict[str, list[float]]:
    """What a disk has in a range: by metric what it grew by in each second, and its values."""
    readings = RAW["disk"][name]
    there = [second for second in range(*span) if second in readings]
    grown = [second for second in there if second - 1 in readings]
    return {
        "read_bytes": [float(readings[second][0] - readings[second - 1][0]) for second in grown],
        "queue": [readings[second][1] / 100 for second in there],
    }


def statistics(values: Sequence[float], *, is_of_rows: bool = False) -> list[float]:
    """Mean, least, most and 95th percentile; of rows that is one of them, of readings between two."""
    percentile = np.percentile(values, 95, method="inverted_cdf" if is_of_rows else "linear")
    return [float(np.mean(values)), min(values), max(values), float(percentile)]


@given(spans)
def test_a_summary_is_of_all_values(archives: Archives, span: Span) -> None:
    found = archives.rows.select("disk", summary=True, **asked(span))
    told = {column.label: float(column.values[0]) for column in found.columns}
    rows = archives.rows.records("disk", summary=True, **asked(span))
    by_name = {row["instance"]: row for row in rows.records}
    for name in DISKS:
        for metric, values in disk(name, span).items():
            if not values:
                assert name not in by_name or len(disk(name, span)["queue"]) == 1
                continue
            for stat, right in zip(STATISTICS, statistics(values), strict=True):
                about = pytest.approx(right, rel=1e-6, abs=0.06)  # As many digits as are known.
                assert told[f"disk/{metric}@{name}:{stat}"] == about, (metric, name, stat)
                assert float(by_name[name][f"{metric}:{stat}"]) == about, (metric, name, stat)


@given(spans)
def test_a_summary_of_processes_is_over_the_time_that_they_were_there(archives: Archives, span: Span) -> None:
    """Each second of a process has a value: that of its last reading."""
    found = archives.rows.records("process", summary=True, columns="pid,rss_anon", by="pid", **asked(span))
    rows = {int(row["pid"]): row for row in found.records}
    for pid in PIDS:
        held = [RAW["process"][pid][second][1] for second in range(*span) if second in RAW["process"][pid]]
        assert (pid in rows) is bool(held)
        if held:
            assert float(rows[pid]["rss_anon:mean"]) == pytest.approx(np.mean(held), abs=0.5)
            assert float(rows[pid]["rss_anon:min"]) == min(held)
            # What held as the range began counts as well.
            assert float(rows[pid]["rss_anon:max"]) in {max(held), RAW["process"][pid].get(span[0] - 1, (0, 0))[1]}


@given(spans)
def test_a_summary_of_what_ended_is_over_its_rows(archives: Archives, span: Span) -> None:
    cpu = [float(used) for second, _, _, used in ENDED if span[0] <= second < span[1]]
    found = archives.ends.records("exits", summary=True, columns="cpu", **asked(span))
    told = [float(found.column(f"cpu:{stat}").values[0]) for stat in STATISTICS]
    assert told == pytest.approx(statistics(cpu, is_of_rows=True), abs=1e-6)


@given(
    st.lists(
        st.one_of(
            st.builds("{}@{}".format, st.sampled_from(["disk/*", "disk", "*", "read_*", "queue"]),
                      st.sampled_from(["sda", "sd?", "nvme*", "*b"])),
            st.sampled_from(["model", "disk/queue", "read_bytes"]),
        ),
        min_size=1, max_size=3,
    ),
    spans,
)  # fmt: skip
def test_what_is_dropped_is_as_if_it_had_not_been_recorded(archives: Archives, drop: list[str], span: Span) -> None:
    def is_left(metric: str, name: str) -> bool:
        for pattern in drop:
            path, _, instance = pattern.partition("@")
            meant = {"disk": "*", "*": "*"}.get(path, path.removeprefix("disk/"))
            if fnmatchcase(metric, meant) and fnmatchcase(name, instance or "*"):
                return False
        return True

    left = {(metric, name) for metric in METRICS for name in DISKS if is_left(metric, name)}
    every = {column.path: column for column in archives.rows.select("disk", raw=True, **asked(span)).columns}
    if not left:
        with pytest.raises(UsageError, match="drops the whole answer"):
            archives.rows.select("disk", raw=True, drop=drop, **asked(span))
        return
    found = archives.rows.select("disk", raw=True, drop=drop, **asked(span))
    assert {column.path for column in found.columns} == {f"disk/{metric}@{name}" for metric, name in left}
    for column in found.columns:
        if column.integers is not None:
            assert column.integers.tolist() == np.asarray(every[column.path].integers).tolist()


@given(spans)
def test_rows_as_they_are_stored(archives: Archives, span: Span) -> None:
    """Of a wide table an instance and reading each, of a lasting one what changed, of moments all there is."""
    found = archives.rows.records("disk", raw=True, columns="instance,read_bytes,queue,model", **asked(span))
    assert sorted(found.records[["time", "instance", "read_bytes", "queue", "model"]].tolist()) == sorted(
        (at(second), name, counter, gauge / 100, f"made by {name}")
        for name in DISKS
        for second, (counter, gauge) in RAW["disk"][name].items()
        if span[0] <= second < span[1]
    )
    found = archives.rows.records("process", raw=True, columns="pid,comm,cpu,rss_anon", **asked(span))
    assert sorted(found.records.tolist()) == sorted(
        (at(number + 1), row["pid"], row["comm"], int(row["cpu"] or 0) / US, row["rss_anon"])
        for number, row in changes()
        if span[0] <= number + 1 < span[1]
    )
    found = archives.ends.records("exits", raw=True, columns="pid,comm,cpu", **asked(span))
    assert sorted(found.records.tolist()) == sorted(
        (at(second), pid, comm, cpu) for second, pid, comm, cpu in ENDED if span[0] <= second < span[1]
    )


@given(spans, st.sampled_from(["R", "S", "D"]), st.integers(1, 3))
def test_moments_of_threads_are_counted_and_put_together(archives: Archives, span: Span, state: str, most: int) -> None:
    there = [(tid, letter, wchan) for second, tid, letter, wchan in AT if span[0] <= second < span[1]]
    word = {"R": "running", "S": "sleeping", "D": "'disk sleep'"}[state]
    for said in (state, word):
        found = archives.ends.records("thread_state", where=f"state = {said}", columns="tid,wchan", **asked(span))
        right = [(tid, wchan) for tid, letter, wchan in there if letter == state]
        assert sorted(found.records[["tid", "wchan"]].tolist()) == sorted(right)
    groups = Counter((letter, wchan) for _, letter, wchan in there)
    question: dict[str, Any] = {"group_by": "state,wchan", "columns": "state,wchan,count", **asked(span)}
    found = archives.ends.records("thread_state", **question)
    assert {(row["state"], row["wchan"]): row["count"] for row in found.records} == groups
    first = archives.ends.records("thread_state", by="count", top=most, **question)
    assert first.records["count"].tolist() == sorted(groups.values(), reverse=True)[:most]
    left = archives.ends.records("thread_state", drop="wchan", columns="tid,wchan", **asked(span))
    assert [column.path for column in left.columns] == ["tid"]


@given(spans, st.sampled_from("abc"))
def test_events_are_rows_like_others(archives: Archives, span: Span, subject: str) -> None:
    there = [(at(second), mark, f"at {second}") for second, mark in MARKS if span[0] <= second < span[1]]
    found = archives.rows.records("event", columns="subject,text", where=f"subject = {subject}", **asked(span))
    assert found.records.tolist() == [row for row in there if row[1] == subject]
    groups = Counter(mark for _, mark, _ in there)
    found = archives.rows.records("event", group_by="subject", columns="subject,count", **asked(span))
    assert {row["subject"]: row["count"] for row in found.records} == groups
    # Beside every other answer they stand, too.
    for other in (archives.rows.select("disk/queue", **asked(span)), archives.rows.records("process", **asked(span))):
        assert [(event.time_ns, event.subject, event.text) for event in other.events] == there


QUERIES = {
    "disk": "select instance, count(*), sum(read_bytes), max(read_bytes_rate), avg(queue), max(read_bytes_total)"
    " from disk group by 1 order by 1",
    "process": "select pid, count(*), sum(cpu), max(cpu_total), avg(rss_anon), sum(cpu_percent * 0) from process"
    " group by 1 order by 1",
    "exits": "select comm, count(*), sum(cpu), max(pid) from exits group by 1 order by 1",
    "thread_state": "select state, wchan, count(*), max(tid) from thread_state group by 1, 2 order by 1, 2",
    "event": "select subject, count(*), min(text) from event group by 1 order by 1",
}


def by_hand(table: str, span: Span) -> list[list[Any]]:
    """What such a query should find."""
    low, high = span
    if table == "disk":
        return [
            [name, len(of["queue"]), sum(of["read_bytes"]), max(of["read_bytes"]), float(np.mean(of["queue"])), most]
            for name in DISKS
            if (of := disk(name, span))["queue"]
            for most in [max(value for second, (value, _) in RAW["disk"][name].items() if low <= second < high)]
        ]
    if table == "process":
        rows = [(number + 1, row) for number, row in changes() if low <= number + 1 < high]
        found: list[list[Any]] = []
        for pid in PIDS:
            mine = [row for _, row in rows if row["pid"] == pid]
            if not mine:
                continue
            last = int(mine[-1]["cpu"] or 0) // US
            # All of it is one file, so that what was before the range is known.
            before = [value for second, (value, _) in RAW["process"][pid].items() if second < low]
            grown = last - before[-1] if before else last - (0 if pid == 3 else RAW["process"][pid][1][0])
            found.append([pid, len(mine), grown, last, float(np.mean([row["rss_anon"] for row in mine])), 0.0])
        return found
    if table == "exits":
        ends = [(comm, cpu, pid) for second, pid, comm, cpu in ENDED if low <= second < high]
        names = sorted({comm for comm, _, _ in ends})
        of_name = {name: [end for end in ends if end[0] == name] for name in names}
        return [
            [name, len(mine), sum(cpu for _, cpu, _ in mine), max(pid for *_, pid in mine)]
            for name, mine in of_name.items()
        ]
    if table == "thread_state":
        there = [(letter, wchan, tid) for second, tid, letter, wchan in AT if low <= second < high]
        counted = Counter(row[:2] for row in there)
        return [
            [*key, number, max(tid for *of, tid in there if tuple(of) == key)]
            for key, number in sorted(counted.items())
        ]
    marks = [(subject, f"at {second}") for second, subject in MARKS if low <= second < high]
    return [
        [name, sum(subject == name for subject, _ in marks), min(text for subject, text in marks if subject == name)]
        for name in sorted({subject for subject, _ in marks})
    ]


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
@pytest.mark.parametrize("span", [(120, 330), (410, 590)])
@pytest.mark.parametrize("table", QUERIES)
def test_sql_finds_what_a_naive_reading_does(machines: Sequence[Machine], table: str, span: Span) -> None:
    machine = machines[2 if table in {"exits", "thread_state"} else 0]
    found = answer_by_sql(machine.folders, QUERIES[table], **asked(span)).rows
    right = by_hand(table, span)
    assert len(found) == len(right)
    for row, other in zip(found, right, strict=True):
        assert [cell for cell in row if isinstance(cell, str)] == [cell for cell in other if isinstance(cell, str)]
        numbers = [[cell or 0 for cell in each if not isinstance(cell, str)] for each in (row, other)]
        assert numbers[0] == pytest.approx(numbers[1])


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("step_s", [10, 60])
def test_sql_of_buckets_finds_what_rows_grew_by(machines: Sequence[Machine], step_s: int, *, is_old: bool) -> None:
    """Also of processes, and where only buckets are left."""
    folders = machines[1 if is_old else 0].folders
    tier, span = {10: "10s", 60: "1min"}[step_s], (180, 540)
    query = f"select instance, count(*), sum(read_bytes), max(queue_max), min(queue_min) from disk_{tier} group by 1"
    rows = {row[0]: row[1:] for row in answer_by_sql(folders, query, **asked(span)).rows}
    assert set(rows) == set(DISKS)
    for name, (count, grown, most, least) in rows.items():
        of = disk(name, span)
        assert count == sum(
            any(second in RAW["disk"][name] for second in range(low, low + step_s)) for low in range(*span, step_s)
        )
        assert [grown, most, least] == pytest.approx([sum(of["read_bytes"]), max(of["queue"]), min(of["queue"])])
    query = f"select pid, sum(cpu) from process_{tier} group by 1"
    found = {row[0]: row[1] for row in answer_by_sql(folders, query, **asked(span)).rows}
    for pid in PIDS:
        readings = RAW["process"][pid]
        assert found[pid] == pytest.approx(readings[span[1] - 1][0] - readings.get(span[0] - 1, (0, 0))[0])
