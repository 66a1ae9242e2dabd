# SPDX-License-Identifier: Apache-2.0
"""What ``sysmon-extract --list`` lists: tables, the metrics of one, their series, and instances where asked for."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from sysmon_tools import extract
from sysmond.errors import UsageError
from sysmond.probe import Table, gauge
from tests.support.machine import Machine

MEMORY = Table("memory", (gauge("available", "B", "Left."),))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Two disks, of which one was there only for the first ten seconds, and memory."""
    machine = Machine(tmp_path)
    machine.start(0).tick(range(1, 11), ("sda", "sdb"))
    machine.start(10.5).tick(range(11, 21), ("sda",))
    memory = machine.start(0.5, table=MEMORY)
    for second in range(1, 21):
        memory.relation(second * 10**9)
        memory.ring.rows(0, second * 10**9, ("",), [second])
    where = f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}", "--utc"

    def asked(*words: str) -> tuple[int, str, str]:
        code = extract.main([*words, *where])
        said = capsys.readouterr()
        return code, said.out, said.err

    return asked


def rows(said: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(said)))


def test_of_a_table_people_are_listed_metrics_and_programs_series(run: Run) -> None:
    code, said, _ = run("--list", "disk", "memory", "--format=table")
    assert code == 0
    assert [line.split() for line in said.splitlines()][:3] == [
        ["path", "unit", "semantics", "every", "instances", "meaning"],
        ["disk/model", "text", "state", "1s", "2", "Who", "made", "it."],
        ["disk/queue", "1", "gauge", "1s", "2", "Waiting."],
    ]
    assert said.splitlines()[-1].split() == ["memory/available", "B", "gauge", "1s", "-", "Left."]
    series = [row["path"] for row in rows(run("--list", "disk/queue", "--format=csv")[1])]
    assert series == ["disk/queue@sda", "disk/queue@sdb"]
    assert len(rows(run("--list", "disk", "--format=csv")[1])) == 6


def test_a_path_with_a_metric_or_an_instance_lists_series_to_all(run: Run) -> None:
    for path in ("disk/queue", "disk@sdb", "disk/*"):
        assert "@sdb" in run("--list", path, "--format=table")[1], path


def test_instances_are_listed_where_asked_for_as_they_were_in_a_range(run: Run) -> None:
    listed = rows(run("--list", "disk", "--instances", "--format=csv")[1])
    assert [(row["table"], row["instance"], row["per"], row["series"]) for row in listed] == [
        ("disk", "sda", "device", "3"),
        ("disk", "sdb", "device", "3"),
    ]
    assert listed[0]["to"] > listed[1]["to"]
    later = rows(run("--list", "disk", "--instances", "--from=2023-11-15T00:00:15Z", "--format=csv")[1])
    assert [row["instance"] for row in later] == ["sda"]
    everything = rows(run("--list", "--instances", "--format=csv")[1])
    assert [row["instance"] for row in everything] == ["sda", "sdb"]
    assert run("--list", "disk/queue", "--instances", "--format=table")[1].splitlines()[1].split()[:4] == [
        "disk",
        "sda",
        "device",
        "1",
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["disk", "--instances"], UsageError.exit_code, "--instances: expected --list, too"),
        (["--list", "memory", "--instances"], 1, "no instances: such tables have one row for the whole system"),
        (["--list", "process", "--instances"], UsageError.exit_code, "--instances of process: its rows come and go"),
        (["--list", "disc", "--instances"], UsageError.exit_code, "there is no table 'disc'; did you mean disk"),
    ],
)
def test_what_has_no_instances_is_said_in_a_line(run: Run, words: list[str], code: int, says: str) -> None:
    assert run(*words)[0] == code
    said = run(*words)[2]
    assert said.startswith(f"sysmon-extract: {says}")
    assert said.count("\n") == 1
