# SPDX-License-Identifier: Apache-2.0
"""Leaving out: series, instances and columns that patterns mean, of every kind of table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmon_tools import extract
from sysmond import history
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import Row, put, stretch
from tests.support.machine import NOON_NS, Machine

DISKS = ("nvme0n1", "sda", "sdb")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.start(0.5).tick(range(1, 60), DISKS)
    rows: list[tuple[int, Row]] = [
        (second, {"pid": 7, "start": SECOND_NS, "comm": "pg", "cpu": second}) for second in range(20)
    ]
    put(made.folders, stretch(PROCESS, range(20), rows), 1)
    return made


@pytest.fixture
def archive(machine: Machine) -> Archive:
    return machine.archive


def named(archive: Archive, *patterns: str, **asked: Any) -> set[str]:
    return {column.path.removeprefix("disk/") for column in archive.select(*patterns, **asked).columns}


@pytest.mark.parametrize(
    ("drop", "left"),
    [
        ("disk/read_bytes@sda", {"read_bytes@nvme0n1", "read_bytes@sdb"}),
        ("disk@sd*", {"read_bytes@nvme0n1"}),
        ("*@sd?", {"read_bytes@nvme0n1"}),
        ("@sd?", {"read_bytes@nvme0n1"}),
        ("read_bytes@sda", {"read_bytes@nvme0n1", "read_bytes@sdb"}),
        (["disk/*@sda", "disk/read_*@nvme*"], {"read_bytes@sdb"}),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_series_that_a_pattern_means_are_left_out(archive: Archive, drop: Any, left: set[str], *, raw: bool) -> None:
    assert named(archive, "disk/read_bytes", drop=drop, raw=raw) == left


def test_a_name_without_a_slash_is_that_of_a_table_or_of_a_metric(archive: Archive) -> None:
    every = named(archive, "disk")
    assert named(archive, "disk", drop="queue") == {path for path in every if not path.startswith("queue@")}
    with pytest.raises(UsageError, match="drop 'disk': drops the whole answer"):
        archive.select("disk", drop="disk")
    # With a slash a name is that of a table: no metric is meant.
    assert named(archive, "disk", drop="queue/*") == every


def test_instances_count_in_nothing_of_rows(archive: Archive) -> None:
    span: dict[str, Any] = {"start": NOON_NS, "end": NOON_NS + 60 * SECOND_NS}
    rows = archive.records("disk", drop="*@sd*", **span)
    assert rows.column("instance").texts == ("nvme0n1",)
    every = archive.records("disk", columns="read_bytes:sum", **span).column("read_bytes:sum").values
    groups = archive.records("disk", group_by="model", columns="read_bytes:sum", drop="disk@sda", **span)
    assert groups.column("read_bytes:sum").values.sum() == every.sum() * 2 / 3
    # One series of it: the others of that instance are still there.
    part = archive.records("disk", columns="instance,read_bytes:sum,queue", drop="read_bytes@sda", **span)
    assert np.isnan(part.column("read_bytes:sum").values).tolist() == [False, True, False]
    assert not np.isnan(part.column("queue").values).any()


def test_columns_are_not_shown_and_conditions_still_see_them(archive: Archive) -> None:
    shown = [column.path for column in archive.records("disk", drop="q*").columns]
    assert shown == ["instance", "read_bytes", "model"]
    rows = archive.records("disk", step="1s", columns="instance,queue:max", drop=["queue"], where="queue > 9.5")
    assert [column.path for column in rows.columns] == ["instance"]
    assert 0 < len(rows.times_ns) < 59 * 3
    found = archive.records("process", columns="pid,comm,cpu:sum", drop="process/cpu")
    assert [column.path for column in found.columns] == ["pid", "comm"]


@pytest.mark.parametrize("table", ["disk", "process"])
def test_what_drops_nothing_is_a_line_and_what_drops_all_an_error(archive: Archive, table: str) -> None:
    found = archive.records(table, drop="nix")
    assert found.notes == ("drop 'nix': nothing in the answer has that name",)
    assert not found.warnings
    with pytest.raises(UsageError, match="drop '[*]': drops the whole answer; expected"):
        archive.records(table, drop="*")
    with pytest.raises(UsageError, match="path 'disk/': not the path of a series"):
        archive.records(table, drop="disk/")


def test_the_name_of_an_instance_alone_is_told_how_to_be_written(archive: Archive) -> None:
    said = ("drop 'sda': nothing in the answer has that name; expected '*@sda'",)
    assert archive.select("disk", drop="sda").notes == said
    assert archive.records("disk", drop="sda").notes == said
    left = archive.records("disk", drop="@sda", step="1min").column("instance").texts
    assert set(left or ()) == {"nvme0n1", "sdb"}


@pytest.mark.parametrize("drop", ["@{}", "*@{}", "process@{}", "process/*@{}", "@{}/*"])
@pytest.mark.parametrize("asked", [{}, {"raw": True}, {"step": "10s", "top": 1, "by": "cpu"}, {"where": "cpu >= 0"}])
def test_rows_of_a_long_table_are_left_out_by_their_instance(
    archive: Archive, drop: str, asked: dict[str, Any]
) -> None:
    pids = set(archive.records("process", raw=True, columns="pid").column("pid").values.tolist())
    for gone in pids:
        found = archive.records("process", columns="pid,cpu", drop=drop.format(int(gone)), **asked)
        left = set(found.column("pid").values.tolist())
        assert left == pids - {gone}
        assert gone not in left
        assert not found.notes
        every = archive.records("process", group_by="comm", columns="count", drop=drop.format(int(gone)))
        assert every.column("count").values.sum() == len(pids) - 1


def test_a_pattern_of_no_row_or_a_part_of_one_is_a_line(archive: Archive) -> None:
    assert archive.records("process", drop="*@sda").notes == ("drop '*@sda': nothing in the answer has that name",)
    with pytest.raises(UsageError, match="drop 'cpu@1': means a part of a row; expected '@1', or a column"):
        archive.records("process", drop="cpu@1")


def test_series_of_a_long_table_are_left_out_before_they_are_counted(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    rows: list[tuple[int, Row]] = [
        (second, {"pid": pid, "start": SECOND_NS, "comm": "x", "cpu": second * pid, "rss_anon": pid})
        for second in range(3)
        for pid in range(1, 1501)
    ]
    put(made.folders, stretch(PROCESS, range(10, 13), rows), 1)
    archive = made.archive
    with pytest.raises(UsageError, match="path 'process/cpu@[*]': 1500 series; expected at most 1000"):
        archive.select("process/cpu@*", step="1s")
    paths = {f"process/cpu@{pid}" for pid in range(1, 1501) if not str(pid).startswith("1")}
    for drop in ("process@1*", "*@1*", ["cpu@1?", "cpu@1??", "cpu@1???", "cpu@1"]):
        found = archive.select("process/cpu@*", step="1s", drop=drop)
        assert {column.path for column in found.columns} == paths
    # Of several columns of each, fewer things may be left.
    every = {column.path.partition("@")[0] for column in archive.select("process/*@7", step="1s").columns}
    others = [path for path in every if path not in {"process/cpu", "process/rss_anon"}]
    found = archive.select("process/*", step="1s", drop=[*others, *(f"*@{digit}*" for digit in range(1, 6))])
    assert len(found.columns) == 2 * 4 * 111
    with pytest.raises(UsageError, match="process/[*]': 3000 series; expected at most 1000"):
        archive.select("process/*", step="1s", drop=others)


def test_the_command_line_says_so_too(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    folders = [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}", "--format=csv"]
    assert extract.main(["disk/queue", "--drop", "*@sd*", "--drop=nix", *folders]) == 0
    said = capfd.readouterr()
    assert "time,disk/queue@nvme0n1\n" in said.out
    assert said.err == "sysmon-extract: drop 'nix': nothing in the answer has that name\n"
    assert extract.main(["disk", "--records", "--drop=queue", "--columns=queue,instance", *folders]) == 0
    assert "time,instance\n" in capfd.readouterr().out
    for words in (["disk", "--drop=*"], ["process", "--drop=*"], ["--list", "--drop=cpu"]):
        assert extract.main([*words, *folders]) == UsageError.exit_code
        assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_saved_answer_leaves_out_series(machine: Machine, tmp_path: Path) -> None:
    folders = [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}"]
    assert extract.main(["disk", f"--output-file={tmp_path}/saved.h5", *folders]) == 0
    saved = history.open(state_dir=f"{tmp_path}/saved.h5")
    assert named(saved, "*/queue", drop="disk@sda") == {"queue@nvme0n1", "queue@sdb"}
    assert saved.select("disk", drop="nix").notes
