# SPDX-License-Identifier: Apache-2.0
"""Groups of columns: each has columns that its table has, and stands for these wherever columns are named."""

from pathlib import Path

import pytest

from docs import generate
from sysmon_tools import extract
from sysmond.answers import wide_rows
from sysmond.answers.rows import columns
from sysmond.base import derived_columns
from sysmond.base.column_groups import COLUMN_GROUPS
from sysmond.base.timespec import Notation, format_time
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import Row, put, stretch
from tests.support.machine import Machine
from tests.support.opened import open_objects

IO = ["read_bytes", "written_bytes", "read_chars", "written_chars"]
READINGS: list[tuple[int, Row]] = [
    (0, {"pid": 7, "start": 10**9, "comm": "pg", "state": "S", "read_bytes": 0, "written_bytes": 0}),
    (9, {"pid": 7, "start": 10**9, "comm": "pg", "state": "S", "read_bytes": 900, "written_bytes": 90}),
]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    machine = Machine(tmp_path)
    machine.start(0).tick(range(100, 110))
    put(machine.folders, stretch(PROCESS, range(100, 110), READINGS, full=(0, 9)), 1)
    return machine.archive


@pytest.mark.parametrize("name", COLUMN_GROUPS)
def test_a_group_has_what_its_table_has_and_is_called_as_nothing_else(name: str) -> None:
    table = next(probe.table for probe in generate.catalogue() if probe.table.name == name)
    offer = columns.offer(table) if table.packing is not None else wide_rows.offer(table)
    for group, members in COLUMN_GROUPS[name].items():
        assert group not in {*offer.specs, *derived_columns.of_table(table)}
        assert set(members) <= set(offer.specs), group
        assert len(members) > 1


def test_a_group_stands_for_its_columns_in_their_order(archive: Archive) -> None:
    answer = archive.records("process", columns="pid,io,cpu,io")
    assert [column.path for column in answer.columns] == ["pid", *IO, "cpu"]
    sums = archive.records("process", columns="io:sum")
    assert [column.path for column in sums.columns] == ["pid", "comm", *(f"{c}:sum" for c in IO)]
    assert answer.column("read_bytes").values[0] > 0
    stored = archive.records("process", columns="pid,memory", raw=True)
    assert [column.path for column in stored.columns][:3] == ["pid", "rss", "rss_anon"]
    both = archive.records("process", columns="faults", stat="sum")
    assert [column.path for column in both.columns] == ["pid", "comm", "minor_faults:sum", "major_faults:sum"]
    together = archive.records("process", columns="faults", group_by="user")
    assert [column.path for column in together.columns] == ["user", "minor_faults", "major_faults"]


def test_a_column_is_meant_before_a_group(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMN_GROUPS, "process", {"cpu": ("pid", "comm")})
    assert [column.path for column in archive.records("process", columns="cpu").columns] == ["cpu"]


def test_what_was_recorded_before_a_column_came_has_the_others(archive: Archive) -> None:
    """The machine of the tests has a disk with ``read_bytes``, and no other column of the group."""
    answer = archive.records("disk", columns="instance,reading")
    assert [column.path for column in answer.columns] == ["instance", "read_bytes"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("oi", "table 'process' has no column 'oi'; did you mean io?"),
        ("whom", "table 'process' has no column 'whom'; did you mean who"),
        ("who:sum", "table 'process' has no column 'who:sum'"),
        ("qqqqqq", "; groups who, times, memory, io, faults, switches, scheduling"),
    ],
)
def test_a_wrong_word_is_told_what_there_is(archive: Archive, asked: str, says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        archive.records("process", columns=asked)
    assert says in str(refusal.value)
    # Though the refusal is still there, and with it all that it came through.
    assert open_objects() == 0
    with pytest.raises(UsageError, match="has no column 'io'"):
        archive.records("process", by="io")


def test_groups_are_listed_and_stand_in_trees(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"--state-dir={archive.place.state}", f"--runtime-dir={archive.place.runtime}"
    assert extract.main(["process", "--list", "--format=csv", *where]) == 0
    assert 'io,"","Together: read_bytes, written_bytes, read_chars, written_chars."' in capsys.readouterr().out
    at = format_time(int(archive.records("process").times_ns[0]) + 5 * 10**9, Notation.UTC)
    assert extract.main(["process", "--tree", f"--at={at}", "--columns=comm,io", "--format=csv", *where]) == 0
    assert f"time,comm,{','.join(IO)},depth" in capsys.readouterr().out
