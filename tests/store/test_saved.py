# SPDX-License-Identifier: Apache-2.0
"""An answer that was saved as HDF5 gives itself back, whole or in part; what only an archive knows is one line."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from sysmon_tools import extract
from sysmond import history
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Semantics, Sensitivity
from sysmond.base.result import Column, Event, Gap, Result
from sysmond.errors import CorruptError, Error, ForeignError, UsageError
from sysmond.history import Archive
from sysmond.store.files import saved

NOON_NS = 1_740_830_400 * SECOND_NS
TIMES_NS = NOON_NS + 10 * SECOND_NS * np.arange(4)
SERIES = Result(
    TIMES_NS,
    (
        Column("cpu/user@total", "s", Semantics.COUNTER, "mean", floats=np.array([1.5, np.nan, 2.25, 3.0]), decimals=2),
        Column(
            "cpu/user@total",
            "time",
            Semantics.GAUGE,
            "tmax",
            integers=np.where(TIMES_NS % 3, TIMES_NS, ABSENT),
            scale=9,
        ),
        Column("load/one", "1", Semantics.GAUGE, "mean", integers=np.array([123, ABSENT, -7, 0]), scale=2),
        Column("host/kernel", "1", Semantics.STATE, "last", texts=("6.1 \udcff", None, "#1 SMP", "ä")),
    ),
    (Gap(NOON_NS, NOON_NS + 5, "cpu", Cause.SUSPENDED, "lid"),),
    10 * SECOND_NS,
    events=(Event(NOON_NS + 25 * SECOND_NS, "mark", "", "deploy"),),
    sensitivity=Sensitivity.RESTRICTED,
)
ROWS = Result(
    TIMES_NS,
    (
        Column("comm", "1", Semantics.STATE, "last", texts=("a", "b", None, "c")),
        Column("pid", "1", Semantics.STATE, "last", integers=np.array([1, 2, 3, ABSENT])),
    ),
    (),
    0,
    table="process",
)


def written(result: Result, folder: Path) -> Archive:
    saved.write(result, f"{folder}/answer.h5")
    return history.open(state_dir=f"{folder}/answer.h5")


def as_lists(result: Result) -> list[Any]:
    columns = [
        (each.path, each.unit, each.semantics, each.stat, each.texts, each.scale, each.decimals,
         None if each.integers is None else each.integers.tolist(),
         None if each.floats is None else each.floats.astype(str).tolist())
        for each in result.columns
    ]  # fmt: skip
    return [result.times_ns.tolist(), columns, *result[2:]]


@pytest.mark.parametrize("result", [SERIES, ROWS])
def test_an_answer_gives_itself_back_whole(result: Result, tmp_path: Path) -> None:
    assert as_lists(written(result, tmp_path).select()) == as_lists(result)


def test_xarray_opens_it_with_times_and_a_variable_a_column(tmp_path: Path) -> None:
    saved.write(SERIES, f"{tmp_path}/answer.h5")
    with xr.open_dataset(f"{tmp_path}/answer.h5") as there:
        assert set(there.data_vars) == {
            "cpu.user@total:mean", "cpu.user@total:tmax", "load.one:mean", "host.kernel:last"
        }  # fmt: skip
        assert there["time"].to_numpy().tolist() == TIMES_NS.tolist()
        mean, maximum = there["cpu.user@total:mean"], there["cpu.user@total:tmax"]
        assert (mean.dims, mean.attrs["units"], mean.attrs["long_name"]) == (("time",), "s", "cpu/user@total:mean")
        assert mean.to_numpy().astype(str).tolist() == ["1.5", "nan", "2.25", "3.0"]
        whole = SERIES.column("cpu/user@total", "tmax").times
        assert maximum.to_numpy().astype(str).tolist() == whole.astype(str).tolist()
        assert there["gaps"].to_numpy()["cause"].tolist() == [b"suspended"]


def test_xarray_opens_what_has_nothing_beside_its_rows_and_names_that_are_taken(tmp_path: Path) -> None:
    columns = [SERIES.columns[0]._replace(path=path) for path in ("a/b@/c", "a.b@/c", "gaps")]
    saved.write(SERIES._replace(columns=tuple(columns), gaps=(), events=()), f"{tmp_path}/answer.h5")
    with xr.open_dataset(f"{tmp_path}/answer.h5") as there:
        assert set(there.data_vars) == {"a.b@.c", "a.b@.c#2", "gaps#2"}
    saved.write(ROWS._replace(times_ns=TIMES_NS[:0], columns=()), f"{tmp_path}/empty.h5")
    with xr.open_dataset(f"{tmp_path}/empty.h5") as there:
        assert there.sizes["time"] == 0


def test_what_xarray_and_polars_are_given_is_the_same() -> None:
    made = SERIES.to_xarray()
    assert made["time"].to_numpy().tolist() == TIMES_NS.tolist()
    assert made["host/kernel:last"].isnull().to_numpy().tolist() == [False, True, False, False]
    assert made["host/kernel:last"].to_numpy()[[0, 2, 3]].tolist() == ["6.1 \\udcff", "#1 SMP", "ä"]
    assert made["cpu/user@total:mean"].attrs["unit"] == "s"
    assert made["load/one:mean"].to_numpy().astype(str).tolist() == ["1.23", "nan", "-0.07", "0.0"]
    assert made.attrs["gaps"] == [(NOON_NS, NOON_NS + 5, "cpu", "suspended", "lid")]
    frame = SERIES.to_polars()
    assert frame.columns == ["time", "cpu/user@total:mean", "cpu/user@total:tmax", "load/one:mean", "host/kernel:last"]
    assert frame["load/one:mean"].to_list() == [1.23, None, -0.07, 0.0]
    assert frame["time"].to_physical().to_list() == TIMES_NS.tolist()
    assert ROWS.to_polars()["pid"].to_list() == [1, 2, 3, None]


@pytest.mark.parametrize("library", ["polars", "xarray", "pandas"])
def test_a_library_that_is_missing_is_named_with_the_cure(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    cure = f"'pip install {library}' in sysmond's environment adds it"
    with pytest.raises(Error, match=f"^{library} is not installed; {cure}$"):
        getattr(SERIES, f"to_{library}")()


def test_a_part_is_chosen_by_path_statistic_and_time(tmp_path: Path) -> None:
    archive = written(SERIES, tmp_path)
    part = archive.select("cpu/*", stat="mean", start=int(TIMES_NS[2]), step="10s")
    assert [column.path for column in part.columns] == ["cpu/user@total"]
    assert part.columns[0].values.tolist() == [2.25, 3.0]
    assert (part.gaps, len(part.events)) == ((), 1)
    assert [entry.path for entry in archive.catalogue()] == ["cpu/user@total", "host/kernel", "load/one"]
    assert (len(archive.events()), archive.boots(), archive.long_tables()) == (1, [], [])


def test_rows_are_chosen_by_column_and_time(tmp_path: Path) -> None:
    archive = written(ROWS, tmp_path)
    rows = archive.records("process", columns="pid", end=int(TIMES_NS[3])).records
    assert rows.dtype.names == ("time", "pid")
    assert rows["pid"].tolist() == [1, 2, 3]
    assert [entry.path for entry in archive.long_tables()] == ["process"]


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        (lambda archive: archive.select(step="1min"), "expected the step that it was saved with, 10s"),
        (lambda archive: archive.select(stat="max"), "'max': not saved with this answer; expected mean, tmax"),
        (lambda archive: archive.select(raw=True), "cannot be used for 'raw'; expected an archive"),
        (lambda archive: archive.select(boot=0), "cannot be used for 'boot'; expected an archive"),
        (lambda archive: archive.select(explain=True), "cannot be used for 'explain'"),
        (lambda archive: archive.select("disk"), "there is no table"),
        (lambda archive: archive.sql("select 1"), "cannot be used for 'sql'"),
        (lambda archive: archive.records("process"), "'process': not saved with this answer; expected series"),
    ],
)  # fmt: skip
def test_what_only_an_archive_knows_is_one_line(asking: Callable[[Archive], object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        asking(written(SERIES, tmp_path))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_program_writes_what_it_reads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, result in enumerate((SERIES, ROWS)):
        saved.write(result, f"{tmp_path}/{number}.h5")
        assert extract.main([f"--state-dir={tmp_path}/{number}.h5", f"--output-file={tmp_path}/again.h5"]) == 0
        assert as_lists(saved.read(f"{tmp_path}/again.h5")) == as_lists(result)
    assert extract.main(["process", f"--state-dir={tmp_path}/1.h5", "--columns=pid", "--epoch", "--format=tsv"]) == 0
    assert capfd.readouterr().out.splitlines()[:3] == ["# unit\t1", "time\tpid", f"{NOON_NS // SECOND_NS}\t1"]


def _with_floats_as_columns(file: h5py.File) -> None:
    del file["columns"]
    file.create_dataset("columns", data=np.zeros(4), chunks=(4,), compression="gzip", shuffle=True, fletcher32=True)


def _longer(file: h5py.File) -> None:
    del file["column/0"]
    kept = {"chunks": (5,), "compression": "gzip", "shuffle": True, "fletcher32": True}
    file["column"].create_dataset("0", data=np.zeros(5), **kept)


def _outside(file: h5py.File) -> None:
    del file["column/3"]
    file["column/3"] = h5py.ExternalLink("/etc/passwd", "/")


def _as_attribute(name: str, value: object) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.__setitem__(name, value)


@pytest.mark.parametrize(
    "spoil",
    [
        _with_floats_as_columns,
        _longer,
        _outside,
        _as_attribute("sensitivity", np.bytes_("secret")),
        _as_attribute("step_ns", -1),
        lambda file: file["time"].write_direct(np.array([2**63 - 1] * 4)),
        lambda file: file["column/2"].write_direct(np.array([1e300] * 4)),
        lambda file: file.__delitem__("gaps"),
    ],
)
def test_a_crafted_answer_is_damaged(spoil: Callable[[h5py.File], None], tmp_path: Path) -> None:
    written(SERIES, tmp_path)
    with h5py.File(f"{tmp_path}/answer.h5", "r+") as file:
        spoil(file)
    with pytest.raises(CorruptError, match="answer.h5"):
        history.open(state_dir=f"{tmp_path}/answer.h5")


def test_an_answer_of_another_version_is_foreign(tmp_path: Path) -> None:
    written(SERIES, tmp_path)
    with h5py.File(f"{tmp_path}/answer.h5", "r+") as file:
        file.attrs["version"] = 1
    with pytest.raises(ForeignError, match="this program reads version 2"):
        history.open(state_dir=f"{tmp_path}/answer.h5")


def test_a_flipped_byte_is_damage_or_nothing(tmp_path: Path) -> None:
    """Values have checksums; what is not read of a file does not matter."""
    written(SERIES, tmp_path)
    whole = Path(f"{tmp_path}/answer.h5").read_bytes()
    expected = as_lists(SERIES)
    draw = np.random.default_rng(3)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[int(draw.integers(len(whole)))] ^= 1 << int(draw.integers(8))
        Path(f"{tmp_path}/answer.h5").write_bytes(damaged)
        try:
            found = saved.read(f"{tmp_path}/answer.h5")
        except Error:
            continue
        assert as_lists(found)[0] == expected[0]
    assert os.listdir(tmp_path) == ["answer.h5"]
