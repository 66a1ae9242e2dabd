# SPDX-License-Identifier: Apache-2.0
"""SQL over wide tables, their buckets and events: what DuckDB sees is what the library answers, and nothing else."""

import json
import os
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sysmond.answers.sql import of_wide, refusals
from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.errors import LISTED_MAX
from sysmond.store.timeline import Timeline
from tests.support import warm
from tests.support.longarchive import answer_by_sql, asked_by_sql
from tests.support.machine import NOON_NS, OLDER, Machine

if TYPE_CHECKING:
    from sysmond.base.result import Gap

pytestmark = pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")

DISKS = ("sda", "sdb")
LOAD = Table("load", (Metric("one", "1", Semantics.GAUGE, "Load.", 2),))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Two boots; a gap, a counter that falls a little and one that begins anew; a table of another interval."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.start(0.5, boot=OLDER, wall_ns=NOON_NS - 7200 * SECOND_NS).tick(range(1, 100), DISKS)
    made.seal()
    made.flush()
    made.reboot()
    writer = made.start(0.5)
    writer.tick(range(1, 300), DISKS)
    writer.offset = -3
    writer.tick(range(310, 330), DISKS)
    writer.offset = -3000
    writer.tick(range(330, 400), DISKS)
    loads = made.start(0.7, writer="background", interval_ns=10 * SECOND_NS, table=LOAD)
    for second in range(10, 400, 10):
        loads.relation(second * SECOND_NS)
        loads.ring.rows(0, second * SECOND_NS, ("",), [second])
    made.seal()
    made.flush()
    rollup_job.roll_up(made.folders, DENSE, retention_job.keeper(made.folders).make_room, set())
    writer.tick(range(400, 420), DISKS)
    return made


def test_rows_have_what_was_stored_and_what_it_grew_by(machine: Machine) -> None:
    found = asked_by_sql(machine.folders, "select epoch_ns(time), instance, read_bytes_total, queue, model from disk")
    stored = machine.archive.select("disk", raw=True)
    expected = []
    for name in DISKS:
        told, queue, model = (stored.column(f"disk/{metric}@{name}") for metric in ("read_bytes", "queue", "model"))
        every = zip(stored.times_ns.tolist(), told.values, queue.values, model.texts or (), strict=True)
        expected += [[time_ns, name, *values] for time_ns, *values in every]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("step", ["10s", "1min"])
def test_what_counters_grew_by_is_what_series_say(machine: Machine, step: str) -> None:
    """Over a gap once; not where one began anew; where it fell a little, as it is."""
    for table in ("disk", f"disk_{step}"):
        query = f"select instance, sum(read_bytes) from {table} where time >= '2023-11-15' group by 1 order by 1"
        sums = asked_by_sql(machine.folders, query)
        series = machine.archive.select("disk/read_bytes", stat="sum", step=step, boot=0)
        assert sums == [[name, np.nansum(series.column(f"disk/read_bytes@{name}").values)] for name in DISKS]


def test_buckets_have_the_statistics_of_series(machine: Machine) -> None:
    columns = ("read_bytes_rate", "read_bytes_max", "queue", "queue_min", "queue_max")
    query = f"select epoch_ns(time), {', '.join(columns)} from disk_10s where instance = 'sdb' order by 1"
    found = asked_by_sql(machine.folders, query)
    said = zip(columns, ("mean", "max", "mean", "min", "max"), strict=True)
    for place, (name, stat) in enumerate(said, 1):
        metric = "queue" if name.startswith("queue") else "read_bytes"
        series = machine.archive.select(f"disk/{metric}@sdb", stat=stat, step="10s")
        known = dict(zip(series.times_ns.tolist(), series.columns[0].values.tolist(), strict=True))
        for row in found:
            assert row[place] == (None if np.isnan(known[row[0]]) else known[row[0]]), name


def test_rates_are_by_the_time_between_readings(machine: Machine) -> None:
    query = "select max(read_bytes_rate), count(read_bytes), count(*) from disk where instance = 'sda'"
    [[most, known, every]] = asked_by_sql(machine.folders, query)
    # Of the first reading of each boot, and of that at which it began anew, nothing is known.
    assert (most, every - known) == (8.0, 3)


def test_tables_of_different_intervals_meet(machine: Machine) -> None:
    query = (
        "select count(*), max(abs(epoch(d.time) - epoch(l.time))), max(l.one) from disk d asof join load l"
        " on d.time >= l.time where l.one > 1 and d.instance = 'sda'"
    )
    [[joined, furthest_s, highest]] = asked_by_sql(machine.folders, query)
    # From the reading at 110 s on.
    assert joined == (300 - 110) + (420 - 310)
    assert furthest_s <= 30
    assert highest == 3.9


def test_events_are_a_relation(machine: Machine) -> None:
    found = asked_by_sql(
        machine.folders, "select epoch_ns(time), kind, coalesce(subject, ''), coalesce(text, '') from event"
    )
    assert [tuple(row) for row in found] == [tuple(event) for event in machine.archive.events()]


@pytest.mark.parametrize("table", ["disk", "disk_10s", "load"])
@pytest.mark.parametrize("asked", [{}, {"boot": -1}, {"start": NOON_NS - 60 * SECOND_NS}])
def test_gaps_and_events_are_those_of_series(machine: Machine, table: str, asked: dict[str, Any]) -> None:
    """Resets among them, and what lies before the first row and between boots."""
    name, _, step = table.partition("_")
    if name == "load" and asked.get("boot"):
        asked = {"boot": 0}
    end_ns = NOON_NS + 395 * SECOND_NS  # Later ones go on until now.
    series = machine.archive.select(name, step=step or "1s", end=end_ns, **asked)
    answer = answer_by_sql(machine.folders, f"select * from {table}", end=end_ns, **asked)
    assert answer.gaps == list(series.gaps)
    assert answer.events == list(series.events)
    assert answer.gaps or name == "load" or asked.get("boot")


def test_gaps_and_events_are_of_the_time_at_which_a_query_looks(machine: Machine) -> None:
    """A gap, and the end of recording, are known; neither is told where nobody looks, nor of other tables."""
    query = "select count(*) from disk where time between '2023-11-15 00:01:00' and '2023-11-15 00:02:00'"
    within = answer_by_sql(machine.folders, query)
    assert (within.gaps, within.events) == ([], [])
    both = answer_by_sql(machine.folders, f"{query} union all select count(*) from load", end=NOON_NS + 305 * SECOND_NS)
    assert {gap.table for gap in both.gaps} <= {"load"}


@pytest.mark.parametrize(
    ("where", "same"),
    [
        ("time >= '2023-11-15 00:01:00' and time < '2023-11-15 00:02:00'", True),
        ("'2023-11-15 00:01:00' <= time and queue > 5", True),
        ("time between timestamp '2023-11-15' and timestamp '2023-11-15' + interval 1 minute", True),
        ("time < now() - interval 1 hour and time < current_timestamp", True),
        ("queue > 5 or time > '2030-01-01'", False),
        ("not time > '2023-11-15 00:01:00'", False),
        ("time > (select max(time) - interval 1 minute from load)", False),
    ],
)
def test_what_is_asked_of_time_changes_no_answer(machine: Machine, where: str, same: bool) -> None:
    plain = asked_by_sql(machine.folders, f"select count(*), sum(queue), min(read_bytes_rate) from disk where {where}")
    hidden = (
        f"with every as (select * from disk) select count(*), sum(queue), min(read_bytes_rate) from every where {where}"
    )
    assert plain == asked_by_sql(machine.folders, hidden)
    assert plain[0][0]
    assert bool(named(f"select queue from disk where {where}")["spans"]["disk"] != [None, None]) is same


_NAMED = """
import json, sys
import duckdb
from sysmond.answers.sql import parsed
from sysmond.errors import Error
with duckdb.connect(":memory:") as opened:
    opened.execute("set timezone = 'UTC'").fetchall()
    try:
        found = parsed.read(opened, sys.argv[1])
    except Error as wrong:
        print(json.dumps(str(wrong)))
    else:
        said = {"tables": sorted(found.tables), "columns": sorted(found.columns), "whole": sorted(found.whole)}
        print(json.dumps({**said, "spans": found.spans}))
"""


def named(query: str) -> Any:
    return json.loads(warm.run(_NAMED, query))


@pytest.mark.parametrize(
    ("query", "tables", "columns", "whole"),
    [
        ("select user from cpu", ["cpu"], ["user"], []),
        ("select c.user, sum(d.queue) from cpu c join disk_10s d using (time) group by all", ["cpu", "disk_10s"],
         ["c", "d", "queue", "time", "user"], []),
        ("select count(*) from cpu", ["cpu"], [], []),
        ("select 'from disk' from cpu -- from memory", ["cpu"], [], []),
        ("from cpu", ["cpu"], [], ["cpu"]),
        ("select * exclude (user) from cpu", ["cpu"], [], ["cpu"]),
        ("select columns('u.*') from cpu", ["cpu"], [], ["cpu"]),
        ("select c from cpu c", ["cpu"], ["c"], ["cpu"]),
        ("select c.user from cpu c natural join disk", ["cpu", "disk"], ["c", "user"], ["cpu", "disk"]),
        ("select count(*), d.queue from disk d asof join (from cpu where user > 1) c on d.time >= c.time",
         ["cpu", "disk"], ["c", "d", "queue", "time", "user"], ["cpu"]),
        ("select * from (select user from cpu) c, disk", ["cpu", "disk"], ["user"], ["disk"]),
        ("select user from cpu where exists (select * from disk)", ["cpu", "disk"], ["user"], ["disk"]),
        ("select user from cpu order by (select count(d) from disk d)", ["cpu", "disk"], ["d", "user"],
         ["cpu", "disk"]),
        ("with x as (select user from CPU) select user from x", ["cpu", "x"], ["user"], []),
        ("with x as (from CPU) select user from x", ["cpu", "x"], ["user"], ["cpu"]),
        ("select (select max(queue) from disk) as most, user from main.cpu", ["cpu", "disk"], ["queue", "user"], []),
        ("select user from cpu union all select one from load", ["cpu", "load"], ["one", "user"], []),
        ("describe cpu", ["cpu"], [], ["cpu"]),
        ("summarize cpu", ["cpu"], [], ["cpu"]),
        ("select * from (pivot cpu on instance in ('a') using max(user))", ["cpu"], [], ["cpu"]),
        ("select lag(user) over (partition by instance order by time) from cpu", ["cpu"], ["instance", "time", "user"],
         []),
    ],
)  # fmt: skip
def test_the_parser_of_duckdb_says_what_a_query_names(
    query: str, tables: list[str], columns: list[str], whole: list[str]
) -> None:
    found = named(query)
    assert (found["tables"], found["whole"]) == (tables, whole)
    assert found["whole"] == tables or found["columns"] == columns


def test_a_span_is_pushed_down_only_where_every_mention_has_it() -> None:
    minute_ns = 60 * SECOND_NS
    said = "select queue from disk where time > make_timestamp(2023, 11, 15, 0, 1, 0)"
    since, until = named(said)["spans"]["disk"]
    assert (since, until) == (NOON_NS + minute_ns - SECOND_NS, None)
    assert named(f"{said} union all select queue from disk")["spans"]["disk"] == [None, None]
    assert (
        "disk"
        not in named("select d.queue from disk d join load l on true where d.time > '2023-11-15' or true")["spans"]
    )
    # A later bound of one side would change what an ASOF join finds on the other.
    assert (
        "load"
        not in named("select 1 from disk d asof join load l on d.time >= l.time where l.time < '2023-11-16'")["spans"]
    )


def test_what_is_restricted_is_not_there_for_others(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Machine(tmp_path_factory.mktemp("other"))
    other.start(0.5, sensitivity=Sensitivity.RESTRICTED).tick(range(1, 20))
    program = (
        "import sys\nfrom sysmond.base.model import Sensitivity\nfrom sysmond.history import Archive\n"
        "from sysmond.machine.folders import Folders\n"
        "archive = Archive(Folders(*sys.argv[1:3]), classes=[Sensitivity.PUBLIC])\n"
        "print(archive.sql('select count(*) from disk').rows)"
    )
    words = [sys.executable, "-c", program, *other.folders]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no table 'disk'" in done.stderr
    assert asked_by_sql(other.folders, "select count(*) from disk") == [[19]]


@pytest.mark.parametrize(
    "query",
    [
        "select * from disk, read_text('/etc/passwd')",
        "select * from disk, '/etc/passwd'",
        "select * from disk, read_csv('https://example.org/a.csv')",
        "install httpfs",
        "load httpfs",
        "attach '/tmp/other.db'",
        "copy disk to '/tmp/never.csv'",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "pragma database_list",
        "select getenv('HOME') from disk",
    ],
)
def test_duckdb_sees_nothing_of_the_machine(machine: Machine, query: str) -> None:
    words = [f"--sql={query}", f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}"]
    program = "import sys; from sysmon_tools.extract import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode in {1, 2}, done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr


def test_the_folder_of_a_query_is_private_and_goes_with_it(machine: Machine, tmp_path: Path) -> None:
    words = ["--sql=select current_setting('temp_directory') as at from disk limit 1", "--format=json"]
    words += [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}"]
    program = (
        "import os, stat, sys, tempfile\nfrom sysmon_tools.extract import main\nmade = tempfile.mkdtemp\n"
        "def told(*args, **said):\n    path = made(*args, **said)\n"
        "    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700\n    return path\n"
        "tempfile.mkdtemp = told\nsys.exit(main(sys.argv[1:]))"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, env=environ
    )
    assert json.loads(done.stdout)["rows"][0]["at"].startswith(f"{tmp_path}/sysmond-sql-")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chunk_s", [7, 60, 1000])
def test_what_is_read_in_pieces_is_what_is_read_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, chunk_s: int
) -> None:
    """Also where a piece begins in a gap, or has fewer readings than a table that is seldom read has pieces."""
    span = NOON_NS + 20 * SECOND_NS, NOON_NS + 415 * SECOND_NS
    for table in ("disk", "load"):
        with closing(Timeline(machine.folders)) as line:
            metrics = list(line.metrics(table).values())
            relation = of_wide.of_rows(table, metrics, None)
            found, gaps = [], []
            for length_ns in (of_wide.CHUNK_NS, chunk_s * SECOND_NS):
                monkeypatch.setattr(of_wide, "CHUNK_NS", length_ns)
                rows: list[tuple[Any, ...]] = []
                gaps_read: list[Gap] = []
                for piece in of_wide.rows(line, table, relation, span, None, gaps_read):
                    rows += zip(*(map(str, piece[name].tolist()) for name in relation.types), strict=True)
                found.append(sorted(rows))
                gaps.append({gap for gap in gaps_read if gap.cause is Cause.COUNTER_RESET})
            assert found[0] == found[1]
            assert gaps[0] == gaps[1]
            assert len(gaps[0]) == (len(DISKS) if table == "disk" else 0)
            assert len(found[0]) > 30


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select 1; select 2", "2 statements; expected a single SELECT"),
        (" ; ", "no statements; expected a single SELECT"),
        ("drop table disk", "DROP; expected a single SELECT"),
        ("insert into disk values (1)", "INSERT; expected a single SELECT"),
        ("select 1 from disk; drop table disk", "2 statements; expected a single SELECT"),
        ("copy disk to '/tmp/never.csv'", "COPY; expected a single SELECT"),
        ("explain select 1 from disk", "EXPLAIN; expected a single SELECT"),
        ("pivot disk on instance using max(queue)", "PIVOT without IN (...); expected a single SELECT"),
        ("show tables", "SHOW; expected a single SELECT; 'sysmon-extract --list' lists the tables"),
        ("from (show databases)", "SHOW; expected a single SELECT; 'sysmon-extract --list' lists the tables"),
    ],
)
def test_only_one_select_is_answered(machine: Machine, query: str, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        asked_by_sql(machine.folders, query)
    assert failure.value.stderr.rstrip().endswith(f"UsageError: query {query!r}: {said}")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select colour from load", "; load: there are time, instance, one"),
        ("select colour from event", "; event: there are time, kind, subject, text, detail, happened, known_from"),
        ("select wtime from disk", "; did you mean time?"),
    ],
)
def test_a_column_that_there_is_not_is_answered_by_the_nearest_else_by_those_that_there_are(
    machine: Machine, query: str, said: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        asked_by_sql(machine.folders, query)
    line = failure.value.stderr.rstrip().rpartition("\n")[2]
    assert said in line
    assert "Candidate bindings" not in line
    assert "recorded:" not in line


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selec * from disk", "Parser Error: syntax error"),
        ("select * from colour", "there is no table 'colour'"),
        ("select * from disk join colour using (time)", "Table with name colour does not exist"),
        ("select foo(queue) from disk", "Function with name foo does not exist"),
        ("select queue + 'a' from disk", "Conversion Error: Could not convert string 'a' to DOUBLE"),
        ("select * from disk, read_csv('/etc/passwd')", "file system operations are disabled"),
        ("select * from disk, 'https://example.org/a.parquet'", "file system operations are disabled"),
        (
            "select list(a.queue + b.queue + c.queue + d.queue) from disk a, disk b, disk c, disk d",
            "ask for a shorter range, fewer columns or fewer rows",
        ),
    ],
)
def test_whatever_duckdb_refuses_is_one_line_with_the_tables(machine: Machine, query: str, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        asked_by_sql(machine.folders, query)
    line = failure.value.stderr.rstrip().rpartition("\n")[2]
    assert said in line
    assert line.endswith("; recorded: disk, event, load")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from disc", "there is no table 'disc'; did you mean disk?"),
        ("select * from disk join disc using (time)", "Table with name disc does not exist; did you mean disk?"),
        (
            "select read_bytes_total from disk_10s",
            "disk_10s keeps how much a counter grew, not what it stood at; disk has read_bytes_total",
        ),
    ],
)
def test_where_something_else_was_meant_nothing_else_is_listed(machine: Machine, query: str, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        asked_by_sql(machine.folders, query)
    assert failure.value.stderr.rstrip().endswith(said)


@pytest.mark.parametrize("count", [1, LISTED_MAX, LISTED_MAX + 1])
def test_of_many_tables_only_what_lists_them_is_named(count: int) -> None:
    tables = [f"t{number}" for number in range(count)]
    listed = "'sysmon-extract --list' lists the tables" if count > LISTED_MAX else f"recorded: {', '.join(tables)}"
    assert refusals.without_table("there is no table 'xyz'", "xyz", tables) == f"there is no table 'xyz'; {listed}"


def test_of_many_columns_only_what_lists_them_is_named() -> None:
    columns = {"cpu": [f"c{number}" for number in range(LISTED_MAX + 1)], "load": ["time", "one"]}
    assert refusals.without_column("no column", "xyz", columns) == (
        """no column; cpu: "sysmon-extract --sql='describe cpu'" lists all 9; load: there are time, one"""
    )


@pytest.mark.parametrize("table", ["disk", "disk_10s"])
def test_columns_are_described_without_a_row(machine: Machine, table: str) -> None:
    described = asked_by_sql(machine.folders, f"select column_name, column_type from (describe {table})")
    assert ("queue", "DOUBLE") in [tuple(row) for row in described]
    size = f"select distinct estimated_size from duckdb_tables() where table_name = '{table}'"
    assert asked_by_sql(machine.folders, f"{size} and exists (describe {table})") == [[0]]
    # Beside a mention of which rows are wanted, they are there.
    [[rows]] = asked_by_sql(machine.folders, f"{size} and exists (describe {table}) and exists (from {table})")
    assert rows > 0
    assert asked_by_sql(machine.folders, f"select count(*) > 0 from (summarize {table}) where count > 0") == [[True]]
