# SPDX-License-Identifier: Apache-2.0
"""One segment by itself answers like an archive that has nothing else; what is none is refused in one line."""

import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from sysmon_tools import extract
from sysmond import history
from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Sensitivity
from sysmond.errors import CorruptError, Error, ForeignError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOTED_NS, put, stretch
from tests.support.machine import NOON_NS, Machine, Writer

QUEUE = "disk/queue@sda"
MINUTE_NS = 60 * SECOND_NS


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two files of rows and a tier, of which a ring has more."""
    made = Machine(tmp_path)
    writer: Writer = made.start(0.5)
    for first in (10, 310):
        writer.tick(range(first, first + 300))
        made.seal()
        made.flush()
    rollup_job.roll_up(made.folders, DENSE, retention_job.keeper(made.folders).make_room, set())
    writer.tick(range(610, 620))
    return made


@pytest.mark.parametrize("name", ["", "copy.h5", "what I want"])
def test_a_file_of_rows_answers_alone_whatever_its_name(machine: Machine, tmp_path: Path, name: str) -> None:
    first, _ = machine.files()
    place = Path(shutil.copy(first, tmp_path / name)) if name else first
    asked = history.open(state_dir=str(place))
    found = asked.select(QUEUE, raw=True)
    whole = machine.archive.select(QUEUE, raw=True, end=NOON_NS + 310 * SECOND_NS)
    assert len(whole.times_ns) == 300
    assert found.times_ns.tolist() == whole.times_ns.tolist()
    assert found.column(QUEUE).values.tolist() == whole.column(QUEUE).values.tolist()
    # A range that goes on behind it: what other files have is not there.
    later = asked.select(QUEUE, raw=True, start=NOON_NS + 300 * SECOND_NS, end=NOON_NS + 400 * SECOND_NS)
    assert len(later.times_ns) == 10
    assert asked.warnings == []
    assert [entry.path for entry in asked.catalogue("disk/queue")] == [QUEUE]
    assert len(asked.boots()) == 1


def test_a_file_of_a_tier_answers_alone(machine: Machine) -> None:
    (tier,) = Path(machine.folders.state, "public", "1min").glob("*.h5")
    said: dict[str, Any] = {"start": NOON_NS + MINUTE_NS, "end": NOON_NS + 5 * MINUTE_NS, "step": "1min"}
    found = history.open(state_dir=str(tier)).select(QUEUE, **said)
    assert found.column(QUEUE).values.tolist() == machine.archive.select(QUEUE, **said).column(QUEUE).values.tolist()
    assert len(found.times_ns) == 4


def long_files(folders: Folders) -> list[str]:
    def rows(cpu: int) -> list[tuple[int, dict[str, int | str | None]]]:
        return [(at, {"pid": 1, "start": 0, "comm": "a", "cpu": cpu + at * 1000}) for at in range(10)]

    return [put(folders, stretch(PROCESS, range(at, at + 10), rows(at * 1000)), at) for at in (100, 110)]


def test_a_file_of_a_long_table_answers_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, second = long_files(Folders(f"{tmp_path}/state", f"{tmp_path}/run"))
    place = str(shutil.copy(second, tmp_path / "one.h5"))
    asked = history.open(state_dir=place)
    found = asked.records("process", columns="pid,cpu:sum", start=BOOTED_NS, end=BOOTED_NS + 120 * SECOND_NS)
    assert found.records["pid"].tolist() == [1]
    assert found.gaps[0][1:] == (BOOTED_NS + 110 * SECOND_NS, "process", Cause.BEFORE_RECORDING, "")
    assert [entry.path for entry in asked.long_tables()] == ["process"]
    with pytest.raises(Error, match="no series, only long tables: process"):
        asked.select("*")
    assert extract.main(["process", f"--state-dir={place}", "--columns=pid", "--format=csv"]) == 0
    assert extract.main(["--list", f"--state-dir={place}", "--format=csv"]) == 0
    assert "process," in capfd.readouterr().out
    # Who may look at other classes only finds nothing.
    with pytest.raises(Error, match="nothing is recorded"):
        Archive(Folders(place, place), classes=[Sensitivity.RESTRICTED]).records("process")


def test_what_is_no_segment_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, other = tmp_path / "a.txt", tmp_path / "b.h5"
    text.write_text("no HDF5\n")
    with h5py.File(other, "w") as file:
        file["values"] = np.arange(3)
        file.attrs["format"] = "another"
    for place, kind, said in (
        (text, CorruptError, "not a readable HDF5 file"),
        (other, ForeignError, "not a file of sysmond"),
    ):
        with pytest.raises(kind, match=said):
            history.open(state_dir=str(place)).select("*")
        for words in (["cpu"], ["process"], ["--list"]):
            assert extract.main([*words, f"--state-dir={place}"]) == 1
            said_to = capfd.readouterr().err
            assert said_to.startswith(f"sysmon-extract: {place}: {said}")
            assert said_to.endswith(
                "expected a sysmond state folder, a segment from one, or an answer that was saved as HDF5\n"
            )
            assert said_to.count("\n") == 1


def test_a_damaged_segment_is_named(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "cut.h5"
    place.write_bytes(machine.files()[0].read_bytes()[:2000])
    with pytest.raises(CorruptError, match="cut.h5"):
        history.open(state_dir=str(place)).select("*")
    os.unlink(place)
    with pytest.raises(Error, match="No such file or directory; expected a sysmond state folder"):
        history.open(state_dir=str(place))
