# SPDX-License-Identifier: Apache-2.0
"""Derived columns of rows, and in SQL: processes, their groups, and what is divided by what another table has."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Answers, Derived, Sensitivity, Table
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.probe import counter, gauge
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store import archive as files
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOT, BOOTED_NS, Row, asked_by_sql, put, relation, ring, stretch
from tests.support.longs import TASK

GIB = 1 << 30
MEMORY = Table("memory", (gauge("total", "B", "All."),))
START = {"start": BOOTED_NS, "end": BOOTED_NS + 41 * SECOND_NS}


def process(pid: int, comm: str, second: int, cpu_ms: int, rss: int) -> Row:
    start = SECOND_NS
    return {"pid": pid, "start": start, "comm": comm, "cpu": cpu_ms * second * 1000, "rss_anon": rss, "state": "R"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("machine")
    made = Folders(f"{root}/state", f"{root}/run")
    for sensitivity in Sensitivity:
        Path(files.ram_folder(made, sensitivity)).mkdir(parents=True)
        Path(files.disk_folder(made, sensitivity)).mkdir(parents=True)
    ticks = []
    for second in range(1, 41):
        rows = [
            process(7, "one", second, 500, GIB),
            process(8, "two", second, 100, 2 * GIB),
            process(9, "two", second, 50, GIB),
        ]
        ticks.append((float(second), True, rows))
    ring(made, PROCESS, ticks)
    folder = f"{made.runtime}/background/public"
    Path(folder).mkdir(parents=True)
    identity = Identity(BOOT, "background", Sensitivity.PUBLIC, 1, 0)
    writer = RingWriter(f"{folder}/0.ring", 1 << 20, identity, [Layout(MEMORY, 10 * SECOND_NS)])
    for second in range(0, 41, 10):
        writer.clock(relation(second * SECOND_NS))
        writer.rows(0, second * SECOND_NS, ("",), [8 * GIB])
    writer.close()
    return made


def asked(folders: Folders, **said: Any) -> list[tuple[Any, ...]]:
    found = Archive(folders).records("process", **{**START, **said})
    return [tuple(row)[1:] for row in found.records.tolist()]


def test_a_process_has_shares_of_cpu_and_memory(folders: Folders) -> None:
    rows = asked(folders, columns="pid,cpu_percent,memory_percent", by="memory_percent")
    by_pid = {pid: values for pid, *values in rows}
    assert rows[0][0] == 8
    assert by_pid[7] == pytest.approx([50, 12.5], rel=0.05)
    assert by_pid[8] == pytest.approx([10, 25], rel=0.05)
    cpu = dict(asked(folders, columns="pid,cpu"))
    assert {pid: values[0] for pid, values in by_pid.items()} == pytest.approx(cpu)


def test_conditions_look_at_them(folders: Folders) -> None:
    assert asked(folders, columns="pid", where="memory_percent > 20 and cpu_percent < 20%") == [(8,)]
    assert [pid for pid, _ in asked(folders, columns="pid,cpu_percent", by="cpu_percent", top=1)] == [7]


def test_groups_have_the_formula_of_their_sums(folders: Folders) -> None:
    rows = asked(folders, columns="cpu_percent,memory_percent", group_by="comm", by="memory_percent", step="10s", top=1)
    assert [name for name, *_ in rows] == ["two"] * len(rows)
    assert rows[1][1:] == pytest.approx((15, 37.5), rel=0.01)
    assert len(rows) == 5


def test_what_is_in_proportion_has_the_largest_and_percentiles(folders: Folders) -> None:
    labels = "pid,cpu_percent:max,cpu:max,cpu_percent:p95,cpu:p95"
    for _, *values in asked(folders, columns=labels):
        assert values[0] == pytest.approx(values[1])
        assert values[2] == pytest.approx(values[3])


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"columns": "cpu_percent:sum"}, "has no column 'cpu_percent:sum'"),
        ({"columns": "memory_percent:max"}, "has no column 'memory_percent:max'"),
        ({"columns": "memory_percent:p95"}, "has no column 'memory_percent:p95'"),
        ({"columns": "cpu_percent", "stat": "sum"}, "column 'cpu_percent': no statistic 'sum'; expected mean"),
        ({"columns": "cpu_percnt"}, "has no column 'cpu_percnt'; did you mean cpu_percent"),
        ({"group_by": "cpu_percent"}, "group by 'cpu_percent': its values change all the time"),
    ],
)
def test_wrong_use_is_a_line(folders: Folders, said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(folders, **said)
    assert wrong in str(refused.value)
    assert "\n" not in str(refused.value)


def test_who_names_none_gets_none(folders: Folders) -> None:
    found = Archive(folders).records("process", **START)  # type: ignore[arg-type]
    assert "cpu_percent" not in {column.path for column in found.columns}
    named = {name: (unit, doc) for name, unit, doc in Archive(folders).columns("process")}
    assert named["cpu_percent"] == ("%", "CPU time, as a percentage of one CPU. Derived: cpu * 100")


def test_a_strangers_table_of_tasks_has_its_own(tmp_path: Path) -> None:
    """Its file says so, wherever that is read."""
    folders = Folders(f"{tmp_path}/state", f"{tmp_path}/run")
    kib = Derived("kib_per_s", "1/s", "rss / 1024 / (cpu + 1)", "Made up.")
    table = TASK._replace(answers=Answers(derived=(kib,)))
    rows: list[tuple[int, Row]] = [
        (at, {"pid": 1, "start": SECOND_NS, "cpu": at * 500_000, "rss": 3072, "comm": "x"}) for at in range(20)
    ]
    put(folders, stretch(table, range(1, 21), rows, full=range(20)), 1)
    found = Archive(folders).records("task", columns="kib_per_s,cpu,rss", start=BOOTED_NS)
    (row,) = found.records
    assert row["kib_per_s"] == pytest.approx(row["rss"] / 1024 / (row["cpu"] / 100 + 1))


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
def test_sql_has_them_where_they_are_named(folders: Folders) -> None:
    query = "select pid, avg(cpu_percent), min(memory_percent) from process group by 1 order by 1"
    found = asked_by_sql(folders, query)
    assert [row[0] for row in found] == [7, 8, 9]
    assert np.array(found)[:, 1:].tolist() == [
        pytest.approx([50, 12.5]), pytest.approx([10, 25]), pytest.approx([5, 12.5]),
    ]  # fmt: skip
    plain = asked_by_sql(folders, "select column_name from (describe select * from process)")
    assert plain
    size = "select estimated_size from duckdb_tables() where table_name = 'process'"
    assert asked_by_sql(folders, f"{size} and exists (describe process)") == [[0]]
    assert not [name for (name,) in plain if name.endswith("_percent")]


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
def test_sql_of_a_wide_table_has_the_value_for_each_reading(tmp_path: Path) -> None:
    from tests.support.machine import NOON_NS, Machine  # noqa: PLC0415  it has boots of its own

    machine = Machine(tmp_path)
    table = Table("disk", (counter("reads", "1", "Reads."), counter("read_time", "s", "Time.", 3)), "device")
    writer = machine.start(0.5, table=table)
    for second in range(1, 40):
        writer.relation(second * SECOND_NS)
        writer.ring.rows(0, second * SECOND_NS, ("sda",), [second // 2, second * second])
    query = "select (epoch_ns(time) - {}) // 1000000000, read_await from disk order by 1"
    found = asked_by_sql(machine.folders, query.format(NOON_NS))
    assert len(found) == 39
    for second, value in found:
        grown = second // 2 - (second - 1) // 2
        expected = (second**2 - (second - 1) ** 2) / 1000 / grown if grown and second > 1 else None
        assert value is None if expected is None else value == pytest.approx(expected)
    (row,) = asked_by_sql(machine.folders, "select max(read_await) from disk_1min where read_await is not null")
    assert row[0] == pytest.approx((39**2 - 1) / 1000 / 19)


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
def test_two_columns_of_one_counter_have_what_each_has_alone(tmp_path: Path) -> None:
    folders = Folders(f"{tmp_path}/state", f"{tmp_path}/run")
    twice = tuple(Derived(name, "1/s", f"cpu * {factor}", "Made up.") for name, factor in (("one", 1), ("two", 2)))
    table = TASK._replace(answers=Answers(derived=twice))
    for begin in (1, 11):
        rows: list[tuple[int, Row]] = [
            (at, {"pid": 1, "start": SECOND_NS, "cpu": (begin + at) * 500_000, "rss": 1, "comm": "x"})
            for at in range(10)
        ]
        put(folders, stretch(table, range(begin, begin + 10), rows, full=range(10)), begin)
    together = asked_by_sql(folders, "select one, two from task order by time")
    assert [row[:1] for row in together] == asked_by_sql(folders, "select one from task order by time")
    assert [two for _, two in together] == [one and 2 * one for one, _ in together]
    assert len(together) == 20
