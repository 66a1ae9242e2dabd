# SPDX-License-Identifier: Apache-2.0
"""sysmon-extract on long tables, as people call it: what it prints, what it says and how it ends."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyarrow import feather, parquet

from sysmon_tools import extract
from sysmond.answers.sql.run import SqlAnswer, SqlTime
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Metric, Packing, Semantics, Sensitivity, Table
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import COMMAND, EXITS, PROCESS, THREAD_STATE
from tests.support.longarchive import BOOT, Row, put, relation, stretch
from tests.support.order import first
from tests.support.waiting import let_ticks_pass
from tests.support.whole import a_recorder

US = 1_000_000
FROM, TO = "--from=2025-03-01T11:01:42Z", "--to=2025-03-01T11:01:58Z"
DISK = Layout(Table("disk", (Metric("read_bytes", "B", Semantics.COUNTER, "Read."),), "device"), SECOND_NS)
ODD = "new\n\x1b[31m"


def process(pid: int, start_s: float = 1, **values: int | str | None) -> Row:
    return {"pid": pid, "start": round(start_s * SECOND_NS), "state": "S", **values}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(str(tmp_path / "state"), str(tmp_path / "runtime"))
    seen = [
        (0, process(1, 0.5, comm="init", cpu=5 * US, rss_anon=1000)),
        (0, process(7, ppid=1, comm="pg", cpu=0, rss_anon=10)),
        (5, process(7, ppid=1, comm="pg", cpu=5 * US // 2, rss_anon=20)),
        (8, process(9, 107.5, ppid=7, comm=ODD, cpu=7 * US // 10, rss_anon=5)),
        (10, process(1, 0.5, comm="init", cpu=6 * US, rss_anon=2000)),
        (19, process(1, 0.5, comm="init", cpu=6 * US, rss_anon=2000)),
        (19, process(7, ppid=1, comm="pg", cpu=5 * US // 2, rss_anon=20)),
    ]
    put(made, stretch(PROCESS, range(100, 120), seen, full=(0, 19)), 1)
    ends = [
        (9, {**process(9, 107.5, comm=ODD, cpu=9 * US // 10), "end": round(108.7 * SECOND_NS), "exit_code": 3}),
        (4, {**process(50, 103.1, comm="short", cpu=US // 3), "end": round(103.9 * SECOND_NS), "signal": 9}),
    ]
    put(made, stretch(EXITS, range(100, 120), ends, full=()), 1)
    programs = [(0, process(7, exe="/usr/bin/pg", command="pg -d"))]
    put(made, stretch(COMMAND, range(100, 120), programs, sensitivity=Sensitivity.RESTRICTED), 1)
    return made


class CompletedRun:
    """What a run said, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def rows(self) -> list[dict[str, str]]:
        lines = [line for line in self.out.splitlines() if not line.startswith("#")]
        return list(csv.DictReader(lines))


@pytest.fixture
def run(folders: Folders, capfdbinary: pytest.CaptureFixture[bytes]) -> "Run":
    return Run(folders, capfdbinary)


class Run:
    """Runs sysmon-extract on the archive of this test."""

    def __init__(self, folders: Folders, captured: "pytest.CaptureFixture[bytes]") -> None:
        self.folders = folders
        self._captured = captured

    def __call__(self, *words: str) -> CompletedRun:
        code = extract.main(
            [*words, "--utc", f"--state-dir={self.folders.state}", f"--runtime-dir={self.folders.runtime}"]
        )
        out, err = self._captured.readouterr()
        return CompletedRun(code, out.decode(), err.decode())


def test_the_first_processes_of_a_range(run: Run) -> None:
    done = run("process", FROM, TO, "--top=2", "--by=cpu", "--columns=pid,comm,cpu,cpu:sum", "--format=csv")
    assert done.out.splitlines() == [
        "# unit,1,text,%,s",
        "time,pid,comm,cpu,cpu:sum",
        "2025-03-01T11:01:42Z,7,pg,15.625,2.5",
        "2025-03-01T11:01:42Z,1,init,6.25,1",
    ]
    assert (done.code, done.err) == (0, "")


def test_the_column_that_orders_rows_is_shown(run: Run) -> None:
    done = run("process", FROM, TO, "--top=2", "--by=rss", "--format=csv", "--no-comments")
    assert done.out.splitlines()[0].startswith("time,pid,comm,username,rss,cpu,cpu:sum,rss:last,")
    amounts = [float(row["rss"]) for row in done.rows]
    assert amounts == sorted(amounts, reverse=True)
    # What is shown anyway stays where it is, and whoever names columns gets those.
    for words in (("--by=cpu:sum",), ("--by=rss", "--columns=pid,cpu,cpu:sum")):
        assert "pid,cpu,cpu:sum" in run("process", FROM, TO, *words, "--format=csv").out.replace(",comm,username", "")
    grouped = run("process", FROM, TO, "--group-by=comm", "--by=threads", "--format=csv", "--no-comments")
    assert grouped.out.startswith("time,comm,")
    assert ",threads," in grouped.out.splitlines()[0]


def test_a_table_for_people_has_no_time_where_there_is_but_one(run: Run) -> None:
    done = run("process", FROM, TO, "--columns=pid,comm,cpu", "--format=table")
    assert done.out.splitlines() == [
        "pid  comm              cpu",
        "  1                      %",
        "  7  pg             15.625",
        "  1  init            6.25",
        r"  9  new\n\x1b[31m   5.625",
        " 50  short           2.083",
    ]
    assert "\x1b" not in done.out


def test_what_is_of_its_own_moment_keeps_it_where_it_is_one(run: Run) -> None:
    words = ("exits", FROM, TO, "--where=pid = 9", "--columns=pid", "--format=table")
    assert [line.split() for line in run(*words).out.splitlines()] == [
        ["time", "pid"],
        ["1"],
        ["2025-03-01T11:01:48.700Z", "9"],
    ]
    assert run(*words, "--group-by=pid").out.split() == ["pid", "1", "9"]
    raw = run("process", FROM, TO, "--where=pid = 9", "--raw", "--columns=pid", "--format=table")
    assert raw.out.startswith("time")


def test_a_range_before_the_first_reading_says_when_recording_begins(run: Run) -> None:
    begin = "--from=2025-03-01T11:00Z"
    said = run("process", begin, "--to=2025-03-01T11:01:50Z", "--format=csv")
    assert said.code == 0
    assert "# gap 2025-03-01T11:00:00Z 2025-03-01T11:01:40Z process before recording\n" in said.out
    assert said.err == "sysmon-extract: recording begins at 2025-03-01T11:01:40Z\n"
    said = run("process", begin, "--to=2025-03-01T11:01Z", "--format=csv")
    assert (said.code, said.rows, said.err) == (0, [], "sysmon-extract: recording begins at 2025-03-01T11:01:40Z\n")
    said = run("process", "--to=2025-03-01T11:01Z", "--format=csv")
    assert (said.code, said.rows, said.err) == (0, [], "sysmon-extract: recording begins at 2025-03-01T11:01:40Z\n")
    assert "# gap 2025-03-01T11:00:59Z 2025-03-01T11:01:40Z process before recording\n" in said.out
    for words in ([FROM, TO], [TO], []):
        assert run("process", *words, "--format=csv").err == ""


def test_steps_have_a_row_each(run: Run) -> None:
    done = run("process", FROM, TO, "--sample=5s", "--top=1", "--columns=pid,cpu:sum", "--format=csv")
    assert [(row["time"][17:19], row["pid"], row["cpu:sum"]) for row in done.rows] == [
        ("40", "50", "0.333333"),
        ("45", "7", "2.5"),
        ("50", "1", "1"),
        ("55", "1", "0"),
    ]


def test_exits_begin_with_what_everybody_asks_for(run: Run) -> None:
    done = run("exits", FROM, TO, "--format=csv", "--no-comments")
    assert done.out.startswith("time,pid,comm,exe,start,end,signal_name,exit_code,signal,")
    assert [(row["pid"], row["exit_code"], row["signal_name"], row["end"]) for row in done.rows] == [
        ("50", "", "SIGKILL", "2025-03-01T11:01:43.900Z"),
        ("9", "3", "", "2025-03-01T11:01:48.700Z"),
    ]
    # One line a process, whatever it calls itself, and no escape of a terminal.
    assert len(done.out.splitlines()) == 3
    assert "\x1b" not in done.out


def test_json_has_names_as_they_are(run: Run) -> None:
    done = run("exits", "--format=jsonl", FROM, TO)
    assert [json.loads(line)["comm"] for line in done.out.splitlines()] == ["short", ODD]
    whole = json.loads(run("exits", "--format=json", FROM, TO).out)
    assert [series["path"] for series in whole["series"]][:3] == ["pid", "comm", "exe"]


def test_the_tree_of_a_moment(run: Run) -> None:
    done = run("process", "--tree", "--at=2025-03-01T11:01:48Z", "--format=csv", "--columns=pid,comm")
    assert [(row["pid"], row["depth"]) for row in done.rows] == [("1", "0"), ("7", "1"), ("9", "2")]
    shown = run("process", "--tree", "--at=2025-03-01T11:01:48Z", "--format=table", "--columns=pid,comm").out
    assert [line.rstrip() for line in shown.splitlines()] == [
        "pid  comm",
        "  1",
        "  1  init",
        "  7    pg",
        r"  9      new\n\x1b[31m",
    ]
    later = run("process", "--tree", "--at=2025-03-01T11:01:50Z", "--format=csv", "--columns=pid")
    assert [row["pid"] for row in later.rows] == ["1", "7"]
    assert run("process", "--tree", "--at=2025-03-02").err.count("nothing recorded at 2025-03-02T00:00:00") == 1


def test_a_circle_of_parents_ends() -> None:
    from sysmon_tools.tasks import _in_order  # noqa: PLC0415  beside its one use

    order, depths = _in_order([4, 5, 6], [5, 4, 1])
    assert sorted(order) == [0, 1, 2]
    assert depths == [0, 0, 1]


def test_one_process_over_its_life(run: Run) -> None:
    done = run("process", "--pid=9", "--format=csv", "--columns=comm,cpu:sum")
    begun, ended = (line for line in done.out.splitlines() if line.startswith("# event"))
    assert begun == "# event 2025-03-01T11:01:47.500Z start 9 new\\n\\x1b[31m"
    assert ended.startswith("# event 2025-03-01T11:01:48.700Z exit 9 exit_code=3 signal=0 core_dumped=0 cpu=0.9")
    assert [(row["time"][17:19], row["cpu:sum"]) for row in done.rows] == [("48", "0.9")]
    same = run("process", "--pid=9", "--start=2025-03-01T11:01:48Z", "--format=csv", "--columns=comm,cpu:sum")
    assert same.out == done.out
    program = run("process", "--pid=7", FROM, TO, "--format=csv")
    assert "exec 7 exe=/usr/bin/pg command=pg -d" in program.out
    killed = run("process", "--pid=50", FROM, TO, "--format=csv").out
    assert "exit 50 signal=9 core_dumped=0 cpu=0.333333" in killed  # A signal leaves no exit code.
    assert run("process", "--pid=7", "--start=2020-01-01").err.endswith(
        "process 7: nothing is recorded in that range; ask for a longer range, or another process\n"
    )


def test_a_process_starts_before_it_executes_a_program_and_ends_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """/proc, from which programs are known, tells in ticks of 10 ms when a process started."""
    made = Folders(str(tmp_path / "state"), str(tmp_path / "runtime"))
    began = 107.508
    put(made, stretch(PROCESS, range(100, 120), [(0, process(1)), (8, process(9, began, comm="new"))], full=(0,)), 1)
    ends = [(9, {**process(9, began, comm="new"), "end": round(108.7 * SECOND_NS)})]
    put(made, stretch(EXITS, range(100, 120), ends, full=()), 1)
    programs = [(8, process(9, 107.5, exe="/usr/bin/new", command="new"))]
    put(made, stretch(COMMAND, range(100, 120), programs, sensitivity=Sensitivity.RESTRICTED), 1)
    assert extract.main([f"--state-dir={made.state}", f"--runtime-dir={made.runtime}", "process", "--pid=9"]) == 0
    told = [line.split()[2:4] for line in capsys.readouterr().out.splitlines() if line.startswith("# event")]
    assert [kind for _, kind in told] == ["start", "exec", "exit"]
    assert told[0][0] == told[1][0]


def test_a_life_behind_a_gap_of_a_moment_ago() -> None:
    with a_recorder() as recorder:
        daemon = recorder.start()
        recorder.wait_for("process", f"pid = {daemon.pid}", "pid")
        recorder.end()
        let_ticks_pass(2)
        daemon = recorder.start()
        recorder.wait_for("process", f"pid = {daemon.pid}", "pid")
        done = recorder.extract("process", f"--pid={daemon.pid}", "--sample=1s", "--format=csv")
    assert "clean shutdown" in done.out.decode()
    assert "in the future" not in done.out.decode()
    assert done.rows


def test_samples_of_thread_states(run: Run) -> None:
    at: Row = {"state": "D", "wchan": "folio_wait"}
    seen = [(number % 3, {**process(number), **at, "tid": number}) for number in range(6)]
    put(run.folders, stretch(THREAD_STATE, range(100, 103), seen, full=range(3), sensitivity=Sensitivity.RESTRICTED), 1)
    done = run(
        "thread_state",
        "--group-by=state,wchan",
        "--format=csv",
        "--from=2025-03-01T11:01:40Z",
        "--to=2025-03-01T11:01:43Z",
    )
    assert done.rows == [{"time": "2025-03-01T11:01:40Z", "state": "D", "wchan": "folio_wait", "count": "6"}]


def test_a_table_that_does_not_come_with_sysmond_is_asked_for_like_any_other(run: Run) -> None:
    metrics = (
        Metric("pid", "1", Semantics.STATE, "Who has it."),
        Metric("inode", "1", Semantics.STATE, "Of which file."),
    )
    locks = Table("locks", metrics, "lock", "Locks.", Packing("<i 4x q", ("pid", "inode"), lasting=False))
    put(run.folders, stretch(locks, range(100, 102), [(0, {"pid": 5, "inode": 7}), (1, {"pid": 6, "inode": 7})]), 1)
    done = run("locks", "--group-by=inode", "--columns=count", "--format=csv")
    assert done.out.splitlines()[-1].endswith(",7,2")
    assert "inode,1,Of which file." in run("locks", "--list", "--format=csv").out.splitlines()
    wrong = run("lockz", "--top=1")
    assert (wrong.code, wrong.err) == (
        2,
        "sysmon-extract: there is no table 'lockz'; did you mean locks?\n",
    )


def test_signals_are_asked_for_by_name(run: Run) -> None:
    done = run("exits", "--where=signal = SIGKILL", "--columns=pid,signal,signal_name", "--format=csv")
    assert done.out.splitlines()[-1].endswith(",50,9,SIGKILL")
    by_number = run("exits", "--where=signal = 9", "--columns=pid,signal,signal_name", "--format=csv")
    assert by_number.rows == done.rows
    grouped = run("exits", "--group-by=signal", "--columns=count", "--format=csv").out.splitlines()
    assert any(line.endswith(",SIGKILL,1") for line in grouped)


def test_rows_as_stored_how_columns_come_about_and_series(run: Run) -> None:
    stored = run("process", FROM, TO, "--raw", "--columns=pid,cpu", "--format=csv")
    assert stored.code == 0
    assert {row["pid"]: row["cpu"] for row in stored.rows} == {"7": "2.5", "9": "0.7", "1": "6"}
    told = run("process", FROM, TO, "--columns=pid,cpu", "--explain")
    assert told.code == 0
    assert "process/cpu mean [%]" in told.out
    assert "increase ÷ time between the readings × 100" in told.out
    pid = stored.rows[0]["pid"]
    series = run(f"process/cpu@{pid}", FROM, TO, "--sample=5s", "--format=csv")
    assert series.code == 0
    assert any(f"process/cpu@{pid}" in name for name in series.rows[0])


def test_columns_are_listed(run: Run) -> None:
    done = run("process", "--list", "--format=csv")
    listed = {row["column"]: row for row in done.rows}
    assert {"cpu", "cpu:sum", "rss:max", "unit", "container", "exe", "end"} <= set(listed)
    assert listed["cpu"]["unit"] == "%"


def test_a_list_has_whatever_is_named(run: Run) -> None:
    listed = run("--list", "process*", "exits", "--format=csv")
    assert (listed.code, [row["path"] for row in listed.rows]) == (0, ["exits", "process"])
    wrong = run("--list", "process", "cpus")
    assert (wrong.code, wrong.out) != (0, "")


def test_the_time_may_be_named_among_columns(run: Run) -> None:
    done = run("process", FROM, TO, "--columns=time,pid", "--format=csv")
    assert list(done.rows[0]) == ["time", "pid"]


def test_an_export_of_restricted_rows_is_its_owners(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    assert run("exits", FROM, TO, f"--output-file={target}").code == 0
    assert target.stat().st_mode & 0o077 == 0
    public = tmp_path / "public.h5"
    assert run("process", FROM, TO, f"--output-file={public}").code == 0
    assert public.stat().st_mode & 0o004


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cpu/user", "--top=5"], "--top with cpu/user: rows come from one table; expected one table as PATH"),
        (
            ["disk/written_bytes@vda", "--where=written_bytes > 1MB/s"],
            "rows come from one table; expected disk --where='written_bytes > 1MB/s and instance = vda'",
        ),
        (["disk/writes@vda", "--where=a or b"], "expected disk --where='(a or b) and instance = vda'"),
        (["disk/writes", "--where=a"], "expected disk --where=a"),
        (["--tree"], "--tree with no PATH: expected process as PATH"),
        (["process", "--top=x"], "--top/--limit 'x': expected a whole number"),
        (["--by=cpu"], "--by with no PATH: rows come from one table; expected one table as PATH"),
        (["process", "exits"], "process exits: rows come from one table at a time"),
        (["process", "cpu"], "process cpu: rows come from one table at a time"),
        (["process", "--stat=first"], "no statistic 'first'; expected mean, min, max, sum, last, p0 to p100"),
        (["process", "--raw", "--top=3"], "--raw gives rows as they are stored; expected only one of them"),
        (["process", "--tree", "--explain"], "--explain has no meaning with --tree"),
        (["process", "--explain", "--format=csv"], "--explain cannot be written as 'csv'"),
        (["process/cpus@5"], "there is no metric 'process/cpus'; did you mean process/cpu"),
        (["process", "--top=0"], "--top 0: expected 1 or more"),
        (["process", "--at=now"], "--at: expected --tree, too"),
        (["process", "--start=now"], "--start: expected --pid, too"),
        (["process", "--tree", "--pid=1"], "--tree and --pid: expected only one of them"),
        (["--sql=select 1 from process", "--where=pid = 1"], "--where has no meaning with --sql; the query says that"),
        (["process", "--tree", "--from=-1h"], "--from has no meaning with --tree; --at says when"),
        (
            ["process", "--pid=1", "--group-by=comm"],
            "--group-by has no meaning with --pid; it has one row for each step",
        ),
        (["process", "--list", "--top=3"], "--top has no meaning with --list"),
        (["--list", "--top=0"], "--top with no PATH: rows come from one table; expected one table as PATH"),
        (["disk", "--top=0"], "--top 0: expected 1 or more"),
        (["--list", "--sql=select 1"], "--list and --sql: expected only one of them"),
        (["exits", "--tree"], "--tree exits: expected 'process'"),
        (["process", "--sql=select 1"], "--sql and process: the query names its tables"),
        (["process", "--format=openmetrics"], "rows cannot be written as 'openmetrics'"),
        (["process", "--where=cmm = 5"], "there is no column 'cmm'; did you mean comm"),
        (["process", "--columns=cpv"], "table 'process' has no column 'cpv'; did you mean cpu"),
        (["process", "--from=never"], "time 'never'"),
        (["process", "--tree", "--at=never"], "time 'never'"),
    ],
)
def test_a_wrong_command_line_is_one_line(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert said in done.err
    assert done.err.count("\n") == 1
    assert (done.code, done.out) == (2, "")


def test_a_table_without_rows_is_said(run: Run) -> None:
    done = run("thread")
    assert (done.code, done.err) == (1, "sysmon-extract: table 'thread': nothing is recorded yet\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
def test_who_may_not_read_programs_is_told_once_and_gets_the_rest(folders: Folders) -> None:
    with tempfile.TemporaryDirectory() as place:  # That of pytest is only for who runs it.
        Path(place).chmod(0o755)
        shutil.copytree(folders.state, f"{place}/state")
        Path(place, "state/restricted").chmod(0o750)
        program = (
            "import os, sys, pwd, numpy, h5py; from sysmon_tools import extract, formats; from sysmond import history;"
            "from sysmond.answers import records as answer; from sysmond.base import calendar_times;"
            "from sysmond.tasks import tables; os.setgroups([]); os.setgid(65534); os.setuid(65534);"
            "sys.exit(extract.main(sys.argv[1:]))"
        )
        words = [
            "exits",
            FROM,
            TO,
            "--format=csv",
            "--no-comments",
            f"--state-dir={place}/state",
            f"--runtime-dir={place}/runtime",
        ]
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert [row["exe"] for row in csv.DictReader(done.stdout.splitlines())] == ["", ""]
    refused = [line.partition(f"{place}/state/restricted/")[2] for line in done.stderr.splitlines()]
    assert refused == [
        "command/1s: no permission to read it; exe is left empty",
        "cgroup_name/1s: no permission to read it; cgroup_path is left empty",
    ]


needs_duckdb = pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")


def apart(run: Run, *words: str, span: Sequence[str] = (FROM, TO)) -> CompletedRun:
    """Run in a process of its own: pytest keeps what would be DuckDB's last, and that complains of it at the end."""
    program = "import sys; from sysmon_tools.extract import main; sys.exit(main(sys.argv[1:]))"
    folders = [f"--state-dir={run.folders.state}", f"--runtime-dir={run.folders.runtime}"]
    command = [sys.executable, "-c", program, *words, *span, "--utc", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return CompletedRun(done.returncode, done.stdout, done.stderr)


@needs_duckdb
def test_sql_sees_what_counters_grew_by(run: Run) -> None:
    query = "select comm, sum(cpu) as used, max(cpu_total) as total from process group by 1 order by 2 desc"
    done = apart(run, f"--sql={query}", "--format=csv")
    assert done.out.splitlines() == ["comm,used,total", "pg,2.5,2.5", "init,1,6", r"new\n\x1b[31m,0.7,0.7"]
    joined = 'select e.pid, e."end" - e.start as lived, time from exits e where e.signal = 9'
    assert apart(run, f"--sql={joined}", "--format=jsonl").out == (
        '{"pid": 50, "lived": "0:00:00.800000", "time": "2025-03-01T11:01:43.900Z"}\n'
    )
    everything = apart(run, "--sql=select * from process where pid = 9", "--format=csv").rows
    assert everything[0]["rss_anon"] == "5"
    assert apart(run, "--sql=select count(*) as n from process", "--format=json").out == (
        '{"rows": [{"n": 3}],\n"gaps": [],\n"events": []}\n'
    )
    nothing = "select null as none, '' as empty, 'a,b\n' as lines, 0.1::double as part from process limit 1"
    assert apart(run, f"--sql={nothing}", "--format=csv").out == 'none,empty,lines,part\n,"","a,b\\n",0.1\n'
    table = apart(run, f"--sql={nothing}", "--format=table")
    assert table.out == "none  empty  lines  part\n   -         a,b\\n   0.1\n"


@needs_duckdb
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_what_sql_finds_is_kept_with_its_types(run: Run, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"answer.{suffix}"
    query = (
        "select comm, pid, cpu_total, time, null as nothing, pid = 9 as is_nine from process where cpu_total > 0"
        " order by cpu_total desc, time limit 3"
    )
    assert apart(run, f"--sql={query}", f"--output-file={file}").out == ""
    table = parquet.read_table(file) if suffix == "parquet" else feather.read_table(file)
    assert table.column_names == ["comm", "pid", "cpu_total", "time", "nothing", "is_nine"]
    assert str(table.schema.field("time").type) == "timestamp[ns, tz=UTC]"
    assert str(table.schema.field("pid").type) == "int64"
    rows = apart(run, f"--sql={query}", "--format=jsonl").out.splitlines()
    assert [row["cpu_total"] for row in table.to_pylist()] == [json.loads(row)["cpu_total"] for row in rows]
    assert table.to_pylist()[0]["nothing"] is None
    assert apart(run, f"--sql={query}", f"--output-file={tmp_path}/answer.h5").code == 2


@needs_duckdb
def test_what_sql_finds_is_a_frame() -> None:
    times = (SqlTime(1_700_000_000_000_000_001), None)
    answer = SqlAnswer(("time", "n", "name"), ((times[0], 1, "a"), (times[1], None, None)), (), Sensitivity.PUBLIC)
    assert answer.to_polars()["n"].to_list() == [1, None]
    frame = answer.to_pandas()
    assert list(frame.columns) == ["time", "n", "name"]
    assert frame["time"][0].value == times[0].time_ns
    assert frame["time"].isna().tolist() == [False, True]
    assert str(frame["n"].dtype) == "Int64"
    assert frame["name"].isna().tolist() == [False, True]
    assert list(SqlAnswer(("a",), (), (), Sensitivity.PUBLIC).to_pandas().columns) == ["a"]
    assert SqlAnswer(("a",), (), (), Sensitivity.PUBLIC).to_arrow().num_rows == 0


@needs_duckdb
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selec process", "Parser Error: syntax error"),
        (
            "select pid from process where signal = 'SIGKILL'",
            "expected a number, or signal_name = 'SIGKILL'; recorded: ",
        ),
        ("select nix from process", "Binder Error"),
        ("select 1", "no table is named; recorded: command, event, exits, process"),
        ("select * from process, read_csv('/etc/passwd')", "file system operations are disabled"),
        ("copy process to '/tmp/never.csv'", "COPY; expected a single SELECT"),
        ("select nix from process_1min", "process_1min: \"sysmon-extract --sql='describe process_1min'\" lists all "),
    ],
)
def test_a_wrong_query_is_one_line(run: Run, query: str, said: str) -> None:
    done = apart(run, f"--sql={query}")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert (done.code, done.out) == (2, "")


@needs_duckdb
def test_rows_of_processes_have_how_they_ended_in_sql(run: Run) -> None:
    """As those of ``exits`` have it: where it is named."""
    query = 'select distinct pid, exit_code, exit_name, signal_name, "end" is null as lives from process order by 1'
    done = run(f"--sql={query}", "--format=csv")
    assert [(row["pid"], row["exit_code"], row["lives"]) for row in done.rows] == [
        ("1", "", "True"), ("7", "", "True"), ("9", "3", "False")
    ]  # fmt: skip
    whole = run("--sql=select * from process limit 1", "--format=csv").rows
    assert "exit_code" not in whole[0]
    ended = run("--sql=select pid, exit_code, exit_name, signal from exits order by 1", "--format=csv").rows
    assert [tuple(row.values()) for row in ended] == [("9", "3", "3", "0"), ("50", "", "", "9")]


@needs_duckdb
@pytest.mark.parametrize("table", first(2, ["process", "disk_10s", "process_1min", "disk"]))
def test_a_query_over_a_range_without_rows_has_a_gap_there(run: Run, table: str) -> None:
    place = f"{run.folders.runtime}/sampler/public"
    Path(place).mkdir(parents=True)
    made = RingWriter(f"{place}/1.ring", 1 << 20, Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, 1), [DISK])
    made.clock(relation(100 * SECOND_NS))
    for second in range(100, 120):
        made.rows(0, second * SECOND_NS, ("sda",), [second])
    made.close()

    def ask(*span: str) -> tuple[int, str, str]:
        done = apart(run, f"--sql=select count(*) as n from {table}", "--format=csv", span=span)
        return done.code, done.out, done.err

    name = table.partition("_")[0]
    before = f"2025-03-01T11:01:40Z {name} before recording\n"
    begins = "sysmon-extract: recording begins at 2025-03-01T11:01:40Z\n"
    said = f"# gap 2019-01-01T00:00:00Z {before}n\n0\n"
    assert ask("--from=2019-01-01", "--to=2019-01-02") == (0, said, begins)
    said = f"# gap 2019-01-01T23:59:59Z {before}n\n0\n"
    assert ask("--to=2019-01-02") == (0, said, begins)
    code, later, told = ask("--from=+1h", "--to=+2h")
    assert (code, told) == (0, "")
    assert re.fullmatch(rf"# gap 2[-0-9]+T[:0-9.]+Z 2[-0-9]+T[:0-9.]+Z {name} in the future\nn\n0\n", later)
    assert ask(FROM, TO)[2] == ""


def test_without_duckdb_one_line_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = run("--sql=select 1 from process")
    cure = "'pip install duckdb' in sysmond's environment adds it"
    assert done.err == f"sysmon-extract: DuckDB is not installed; {cure}\n"
    assert done.code == 1
