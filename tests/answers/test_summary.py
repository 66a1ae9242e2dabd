# SPDX-License-Identifier: Apache-2.0
"""The summary of a range: of series, of rows of wide and lasting tables, and of what ended."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from sysmon_tools import extract
from sysmond.answers.rows.summary import STATISTICS
from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE, SPARSE
from sysmond.base.clock import SECOND_NS
from sysmond.errors import EXIT_PARTIAL, UsageError
from sysmond.tasks.tables import EXITS, PROCESS
from tests.support.longarchive import BOOTED_NS, Row, put, stretch
from tests.support.machine import NOON_NS, Machine

SPAN: dict[str, Any] = {"start": NOON_NS, "end": NOON_NS + 600 * SECOND_NS}
US = 1_000_000
NO_AVERAGE = "summary: without average, and left out: "


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Disks for five minutes, two processes for a minute, and three that ended."""
    made = Machine(tmp_path)
    made.start(0.5).tick(range(1, 300), ("sda", "sdb"))
    rows: list[tuple[int, Row]] = []
    for second in range(60):
        rows.append((second, process(1, cpu=second * US, rss_anon=second // 10)))
        if second % 30 == 0:
            rows.append((second, process(2, cpu=second * US, rss_anon=4)))
    put(made.folders, stretch(PROCESS, range(100, 160), rows), 1)
    ends: list[tuple[int, Row]] = [
        (at, {**process(10 + at, cpu=cpu * US, peak_rss=at), "end": (100 + at) * SECOND_NS})
        for at, cpu in enumerate([8, 1, 3])
    ]
    put(made.folders, stretch(EXITS, range(100, 160), ends, full=()), 1)
    return made


def process(pid: int, **values: int) -> Row:
    return {"pid": pid, "start": SECOND_NS, "comm": f"p{pid}", **values}


def run(machine: Machine, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    folders = [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}"]
    code = extract.main([*words, *folders])
    said = capfd.readouterr()
    return code, said.out, said.err


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@pytest.mark.parametrize("path", ["disk/read_bytes", "disk/queue", "disk"])
def test_it_is_the_statistics_of_the_whole_range(machine: Machine, path: str) -> None:
    found = machine.archive.select(path, summary=True, **SPAN)
    bucket = machine.archive.select(path, stat=STATISTICS, step="10min", **SPAN)
    numbers = [column for column in bucket.columns if column.texts is None]
    assert [(column.path, column.stat, column.unit, column.values.tolist()) for column in found.columns] == [
        (column.path, column.stat, column.unit, column.values.tolist()) for column in numbers
    ]
    assert len(found.times_ns) == 1


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (["disk"], "disk/model"),
        (["exits", "--columns=pid,cpu,comm"], "pid, comm"),
        (["disk/read_bytes"], None),
        (["disk", "--records"], None),
        (["exits", "--columns=cpu"], None),
        (["process"], None),
    ],
)
def test_what_has_no_average_is_named(
    machine: Machine, capfd: pytest.CaptureFixture[str], words: list[str], left_out: str | None
) -> None:
    code, _, err = run(machine, capfd, *words, "--summary")
    said = [line for line in err.splitlines() if "recording begins" not in line]
    assert code == 0
    assert said == [f"sysmon-extract: {NO_AVERAGE}{left_out}"] * (left_out is not None)


def test_rows_have_it_of_each_column(machine: Machine) -> None:
    rows = machine.archive.records("disk", summary=True, **SPAN)
    labels = [f"{metric}:{stat}" for metric in ("read_bytes", "queue") for stat in STATISTICS]
    assert [column.path for column in rows.columns] == ["instance", *labels, "model"]
    same = machine.archive.records("disk", columns=["instance", *labels, "model"], **SPAN)
    assert rows.records.tolist() == same.records.tolist()
    found = machine.archive.records("process", columns="pid,cpu,rss_anon", by="cpu", summary=True)
    assert found.records.tolist()[0][2:] == pytest.approx((98.3, 100, 100, 100, 2.5, 0, 5, 5), rel=0.02)
    lazy = found.records.tolist()[1]
    assert lazy[3:6] == (0, 3000, 0)


def test_what_was_used_before_recording_began_counts_nowhere(tmp_path: Path) -> None:
    """However early the range begins: what a counter had at its first reading is no increase, but of what is new."""
    made = Machine(tmp_path)
    rows: list[tuple[int, Row]] = []
    for second in range(60):
        rows.append((second, process(1, cpu=5000 * US)))
        rows.append((second, process(2, cpu=7000 * US + second * US // 2)))
        if second >= 30:
            rows.append((second, {**process(3, cpu=(second - 29) * US), "start": 130 * SECOND_NS - SECOND_NS}))
    put(made.folders, stretch(PROCESS, range(100, 160), rows), 1)
    # It ended without a reading that saw it, and began long before the first.
    ended: Row = {**process(4, cpu=900 * US), "end": 101 * SECOND_NS}
    put(made.folders, stretch(EXITS, range(100, 160), [(2, ended)], full=()), 1)
    early: dict[str, Any] = {"start": BOOTED_NS - 3600 * SECOND_NS, "end": BOOTED_NS + 3600 * SECOND_NS}
    found = made.archive.records("process", columns="pid,cpu", by="cpu", summary=True, **early)
    of_pid = {row[1]: row[2:5] for row in found.records.tolist()}
    assert of_pid[1] == (0, 0, 0)
    assert of_pid[2] == pytest.approx((50, 50, 50), rel=0.02)
    assert of_pid[3] == pytest.approx((100 * 30 / 59, 100, 100), rel=0.05)
    for row in of_pid.values():
        assert not row[0] > row[2] * 1.001, "a mean above the largest"
    top = made.archive.records("process", columns="pid,cpu:sum", by="cpu:sum", **early)
    assert {row[1]: row[2] for row in top.records.tolist()} == pytest.approx(
        {1: 0, 2: 29.5, 3: 30, 4: float("nan")}, nan_ok=True
    )
    assert [row[1] for row in top.records.tolist()][:2] == [3, 2]
    whole = made.archive.records("process", columns="cpu:sum", group_by="uid", **early)
    assert [row[-1] for row in whole.records.tolist()] == [59.5]


def test_of_what_ended_it_is_one_row_for_all(machine: Machine) -> None:
    found = machine.archive.records("exits", columns="comm,cpu,peak_rss", summary=True)
    assert [column.path for column in found.columns] == [
        f"{name}:{stat}" for name in ("cpu", "peak_rss") for stat in STATISTICS
    ]
    assert found.records.tolist()[0][1:] == (4, 1, 8, 8, 1, 0, 2, 2)
    some = machine.archive.records("exits", columns="cpu", where="cpu < 5s", summary=True)
    assert some.records.tolist()[0][1:] == (2, 1, 3, 3)
    none = machine.archive.records("exits", columns="cpu", where="cpu > 50s", summary=True)
    assert len(none.times_ns) == 0
    with pytest.raises(UsageError, match="summary: none of the chosen columns of 'exits' has an average"):
        machine.archive.records("exits", columns="comm", summary=True)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "kv", "table", "json"])
def test_every_format_has_it(machine: Machine, capfd: pytest.CaptureFixture[str], form: str) -> None:
    code, out, _ = run(machine, capfd, "disk/queue", "--summary", f"--format={form}")
    assert code == 0
    asked = machine.archive.select("disk/queue@sda", stat=STATISTICS, step="1h")
    mean, low, high, p95 = (float(column.values[0]) for column in asked.columns)
    if form == "json":
        said = json.loads(out)
        assert [series["stat"] for series in said["series"]] == [*STATISTICS] * 2
        assert [values[0] for values in said["values"]][:4] == pytest.approx([mean, low, high, p95])
    elif form == "jsonl":
        first = json.loads(out.splitlines()[0])
        assert (first["series"], first["unit"], first["mean"]) == ("disk/queue@sda", "1", pytest.approx(mean))
    elif form == "table":
        assert out.splitlines()[-4].split() == ["series", "unit", *STATISTICS]
        assert out.splitlines()[-2].split()[:2] == ["disk/queue@sda", "1"]
    elif form == "kv":
        first = dict(word.split("=") for word in out.splitlines()[0].split())
        assert (first["series"], first["unit"]) == ("disk/queue@sda", "1")
        assert float(first["mean"]) == pytest.approx(mean)
    else:
        row = lines(out.replace("\t", ","))[0]
        assert [float(row[stat]) for stat in STATISTICS] == pytest.approx([mean, low, high, p95])
        assert (row["series"], row["unit"]) == ("disk/queue@sda", "1")


def test_a_line_has_a_row_and_a_column(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(machine, capfd, "disk", "--records", "--summary", "--drop=model", "--top=1", "--format=csv")
    assert [(row["instance"], row["column"], row["unit"]) for row in lines(out)] == [
        ("sda", "read_bytes", "B/s"), ("sda", "queue", "1"),
    ]  # fmt: skip
    _, out, _ = run(machine, capfd, "process", "--summary", "--columns=comm,cpu", "--format=csv")
    assert [(row["comm"], row["column"], row["max"]) for row in lines(out)] == [
        ("p1", "cpu", "100"), ("p2", "cpu", "3000"),
    ]  # fmt: skip


def test_what_is_shown_by_default_is_summed_up_once_and_beside_the_units_of_systemd(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(machine, capfd, "process", "--summary", "--top=1", "--format=csv")
    header, *lines = [line.split(",") for line in out.splitlines() if not line.startswith("#")]
    assert header[-7:] == ["unit", "column", "measured_in", "mean", "min", "max", "p95"]
    columns = [line[-6] for line in lines]
    assert len(columns) == len(set(columns))
    assert {"cpu", "rss_anon"} <= set(columns)
    assert not any(":" in column for column in columns)


def test_what_is_saved_is_asked_again(machine: Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(machine, capfd, "disk/queue", "--summary", f"--output-file={tmp_path}/saved.h5")[0] == 0
    assert extract.main([f"--state-dir={tmp_path}/saved.h5", "--format=json"]) == 0
    assert [series["stat"] for series in json.loads(capfd.readouterr().out)["series"]] == [*STATISTICS] * 2


def test_where_only_buckets_are_left_the_rest_is_given(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.seal()
    machine.flush()
    for coding in (DENSE, SPARSE):
        rollup_job.roll_up(machine.folders, coding, retention_job.keeper(machine.folders).make_room, set())
    machine.reboot()
    for path in [*machine.files(), *Path(machine.folders.state).glob("public/*/1s/*.h5")]:
        path.unlink()
    code, out, err = run(machine, capfd, "disk", "--summary", "--format=csv")
    assert code == EXIT_PARTIAL
    assert err.splitlines() == [
        f"sysmon-extract: {NO_AVERAGE}disk/model",
        "sysmon-extract: warning: table 'disk': of a part of the range only buckets are left, which keep no min, p95",
    ]
    known = {row["series"]: [stat for stat in STATISTICS if row[stat]] for row in lines(out)}
    assert known["disk/queue@sda"] == ["mean", "min", "max"]
    assert known["disk/read_bytes@sda"] == ["mean", "max"]
    code, out, err = run(machine, capfd, "process", "--summary", "--columns=pid,cpu,rss_anon", "--format=csv")
    assert code == EXIT_PARTIAL
    assert "'process': of a part of the range only buckets are left, which keep no max, min, p95" in err
    known = {row["column"]: [stat for stat in STATISTICS if row[stat]] for row in lines(out)}
    assert known == {"cpu": ["mean"], "rss_anon": ["mean", "max"]}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"step": "1min"},
            "summary and step: a summary has mean, min, max, p95 of all of the range; expected only one",
        ),
        ({"stat": "max"}, "summary and stat"),
        ({"raw": True}, "summary and raw"),
        ({"explain": True}, "summary and explain"),
    ],
)
def test_what_means_nothing_with_it_is_one_line(
    machine: Machine, asked: dict[str, Any], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=why):
        machine.archive.select("disk", summary=True, **asked)
    with pytest.raises(UsageError, match="summary: none of the chosen series has an average"):
        machine.archive.select("disk/model", summary=True)
    for option in ("--sample=1s", "--stat=max", "--raw", "--explain", "--list", "--group-by=model", "--percentile=5"):
        code, _, err = run(machine, capfd, "disk", "--summary", option)
        assert (code, len(err.splitlines())) == (UsageError.exit_code, 1), err
        assert "--summary" in err


def test_of_rows_it_takes_no_groups(machine: Machine) -> None:
    for asked in ({"group_by": "comm"}, {"step": "1s"}, {"percentile": 50.0}, {"stat": "max"}):
        with pytest.raises(UsageError, match=f"summary and {next(iter(asked))}"):
            machine.archive.records("process", summary=True, **asked)
