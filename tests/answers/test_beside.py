# SPDX-License-Identifier: Apache-2.0
"""Columns of processes that another long table has: by key and bucket, grains of clocks, gaps, and what lacks."""

import math
from pathlib import Path

import pytest
from sysmond_probes.gpu_process import GPU_PROCESS

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOTED_NS, Row, asked_by_sql, ring

EXACT_NS = 1_234_567  # What BPF knows of a start beyond the tick of the kernel's clock.
ATS = range(100, 121, 5)
NOTHING = {metric.name: "" if metric.is_text else 0 for metric in PROCESS.metrics}
UNUSED = {metric.name: "" if metric.is_text else 0 for metric in GPU_PROCESS.metrics}


def process(pid: int, start_s: int, cpu_us: int = 0, exact_ns: int = EXACT_NS) -> Row:
    return NOTHING | {"pid": pid, "start": start_s * SECOND_NS + exact_ns, "comm": f"p{pid}", "cpu": cpu_us}


def used(pid: int, start_s: int, time_s: float, memory: int) -> Row:
    ran = {"gpu_time": round(time_s * SECOND_NS), "gpu_memory": memory}
    return UNUSED | {"pid": pid, "start": start_s * SECOND_NS, "comm": f"p{pid}"} | ran


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Of 7 and 8 a card knows, of 8 as it was before its number was given anew; of 9 nothing."""
    made = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    seconds = [(float(at), at == 100, [process(7, 50), process(8, 60), process(9, 60)]) for at in range(100, 121)]
    ring(made, PROCESS, seconds)
    readings = [
        (float(at), at == 100, [used(7, 50, (at - 100) / 4, 1000 + at), used(8, 40, at, 5)])
        for at in range(100, 121, 5)
    ]
    ring(made, GPU_PROCESS, readings, writer="background")
    return made


def told(folders: Folders, columns: str, **how: object) -> list[tuple[object, ...]]:
    start_ns = BOOTED_NS + 100 * SECOND_NS + 1
    asked = {"start": start_ns, "end": start_ns + 20 * SECOND_NS, "columns": columns, **how}
    found = Archive(folders).records("process", **asked)  # type: ignore[arg-type]
    cells = [column.texts or column.values.tolist() for column in found.columns]
    return sorted((tuple(row) for row in zip(*cells, strict=True)), key=str)


def nothing(row: tuple[object, ...]) -> bool:
    return all(isinstance(value, float) and math.isnan(value) for value in row[1:])


def test_processes_have_what_their_cards_know(folders: Folders) -> None:
    seven, eight, nine = told(folders, "comm,gpu_percent,gpu_memory")
    assert seven[0] == "p7"
    assert seven[1] == pytest.approx(25.0)
    assert 1100 <= seven[2] <= 1120  # type: ignore[operator]
    assert nothing(eight)  # Another process that had the number before.
    assert nothing(nine)


def test_who_uses_cards_most_comes_first(folders: Folders) -> None:
    assert [row[0] for row in told(folders, "comm", top=1, by="gpu_percent")] == ["p7"]
    assert [row[0] for row in told(folders, "comm", where="gpu_percent > 20%")] == ["p7"]


def test_each_step_has_its_own(folders: Folders) -> None:
    rows = told(folders, "comm,gpu_memory", step="10s", where="pid = 7")
    values = [float(str(row[1])) for row in rows]
    assert len(values) >= 2
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_a_group_has_none_by_itself(folders: Folders) -> None:
    with pytest.raises(UsageError, match="only single instances have it"):
        told(folders, "gpu_memory", group_by="username")


def test_where_the_other_table_lacks_the_column_is_empty_and_it_is_said(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    ring(folders, PROCESS, [(float(at), at == 100, [process(7, 50)]) for at in range(100, 121)])
    start_ns = BOOTED_NS + 100 * SECOND_NS + 1
    found = Archive(folders).records(
        "process", start=start_ns, end=start_ns + 20 * SECOND_NS, columns="comm,gpu_memory"
    )
    assert math.isnan(found.columns[1].values[0])
    assert [text for text in found.warnings if "gpu_process" in text and text.endswith("; gpu_memory is left empty")]


def test_what_is_made_of_what_is_restricted_is_restricted(folders: Folders, tmp_path: Path) -> None:
    found = Archive(folders).records("process", columns="comm,gpu_memory")
    assert found.sensitivity is Sensitivity.PUBLIC
    hidden = Folders(str(tmp_path / "other/state"), str(tmp_path / "other/run"))
    ring(hidden, PROCESS, [(100.0, True, [process(7, 50)]), (101.0, False, [])])
    ring(
        hidden,
        GPU_PROCESS,
        [(100.0, True, [used(7, 50, 1, 1)])],
        writer="background",
        sensitivity=Sensitivity.RESTRICTED,
    )
    assert Archive(hidden).records("process", columns="comm,gpu_memory").sensitivity is Sensitivity.RESTRICTED


def test_sql_has_them_too(folders: Folders) -> None:
    rows = asked_by_sql(folders, "select distinct comm from process where gpu_memory > 1000")
    assert rows == [["p7"]]
