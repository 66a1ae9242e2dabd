# SPDX-License-Identifier: Apache-2.0
"""Files of long tables: what is written comes back to the last digit, and damage is found or does no harm."""

import random
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import tasks_synthetic
from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Answers, Cause, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.ring.frame import VALUE_MAX
from sysmond.store.coding import sparse_coding
from sysmond.store.files import invariants
from sysmond.store.files import sparse_file as long_file
from sysmond.store.of_ring import Hole
from sysmond.store.stretches import stretch as stretches
from sysmond.store.stretches.stretch import About, Incarnation, MemoryStretch, Readings, Stretch
from tests.support.longarchive import memory_stretch
from tests.support.order import rounds

SECOND = 10**9
BOOT = "a" * 32

TABLE = Table(
    "things",
    (
        Metric("id", "1", Semantics.STATE, "Which."),
        Metric("born", "s", Semantics.STATE, "Since when.", 9),
        Metric("work", "s", Semantics.COUNTER, "Work done.", 6),
        Metric("size", "B", Semantics.GAUGE, "How large."),
        Metric("name", "text", Semantics.STATE, "Its name."),
    ),
    "thing",
    "Things.",
    Packing("<q q q q 16s", ("id", "born")),
)
TEXTS = ["", "one", "two\nlines", "caf\udce9", "x" * 5000]
HOLES = [Hole(BOOT, "things", 5, 7, Cause.DROPPED, "too many of them"), Hole(BOOT, "things", 8, 9, Cause.OFF, "")]
ABOUT = About(
    TABLE,
    BOOT,
    "sampler",
    Sensitivity.RESTRICTED,
    SECOND,
    [Incarnation(3, 4 * SECOND, False), Incarnation(5, 7 * SECOND, True)],
    [Relation(1, 2, 3), Relation(4, 5, 6)],
    HOLES,
)

VALUES = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**9), 10**9),
    st.sampled_from([ABSENT, VALUE_MAX, -VALUE_MAX, 2**31, -(2**31), 127, -128, 4096 * 7]),
)


def readings_of(count: int) -> Readings:
    return Readings(
        (np.arange(count, dtype=np.int64) ** 2 + 4) * SECOND,
        np.arange(count) % 3 == 0,
        np.arange(count, dtype=np.int64) % 2,
        np.full(count, 1000, np.int64),
    )


def stretch_of(rows: list[tuple[int, ...]], count: int) -> MemoryStretch:
    """A stretch of rows: reading, id, born, work, size, name."""
    table = np.array(rows, np.int64).reshape(-1, 6)
    columns = {metric.name: table[:, place + 1] for place, metric in enumerate(TABLE.metrics)}
    return memory_stretch(ABOUT, readings_of(count), table[:, 0], columns, TEXTS)


def contents(stretch: Stretch) -> Any:
    """Everything in a stretch, in a form that compares."""
    names = [metric.name for metric in stretch.table.metrics]
    gauges = [metric.name for metric in stretch.table.metrics if metric.semantics is Semantics.GAUGE]
    return (
        stretch.table,
        (stretch.boot, stretch.writer, stretch.sensitivity, stretch.interval_ns),
        (list(stretch.lives), list(stretch.relations), list(stretch.holes), list(stretch.texts)),
        [each.tolist() for each in (stretch.ticks, stretch.full, stretch.lost, stretch.walked)],
        {name: column.tolist() for name, column in stretch.keys.items()},
        [each.tolist() for each in (stretch.begins, stretch.counts, stretch.tick_index())],
        [each.tolist() for each in (stretch.first_tick(), stretch.last_tick(), stretch.seen())],
        {name: [read(name).tolist() for read in (stretch.column, stretch.first, stretch.last)] for name in names},
        {name: stretch.peak(name).tolist() for name in gauges},
    )


def made_of(rng: random.Random, keys: int, count: int) -> MemoryStretch:
    rows: list[tuple[int, ...]] = []
    for key in range(keys):
        work, size = rng.randrange(10**12), rng.randrange(10**9)
        for reading in sorted(rng.sample(range(count), rng.randrange(1, count))):
            work += rng.randrange(300)
            size += rng.choice([0, 0, 4096, -4096])
            rows.append((reading, key // 2, key % 2, work, size if rng.random() < 0.9 else ABSENT, key % len(TEXTS)))
    rng.shuffle(rows)
    return stretch_of(rows, count)


def written(folder: Path, stretch: Stretch) -> str:
    path = str(folder / "one.h5")
    Path(path).write_bytes(long_file.encode(stretch, "test"))
    return path


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8),
            st.integers(-2, 2),
            st.sampled_from([0, 1, ABSENT, VALUE_MAX]),
            VALUES,
            VALUES,
            st.sampled_from([*range(len(TEXTS)), ABSENT]),
        ),
        max_size=40,
    )
)
def test_every_digit_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, ...]]) -> None:
    made = stretch_of(rows, 9)
    path = written(tmp_path_factory.mktemp("long"), made)
    with long_file.open_file(path) as opened:
        assert contents(opened) == contents(made)


@pytest.mark.parametrize("rows_at_once", [1, 7, 100])
def test_it_does_not_matter_how_much_is_worked_on_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    made = made_of(random.Random(3), 30, 20)
    monkeypatch.setattr(stretches, "BATCH_ROWS", rows_at_once)
    path = written(tmp_path, made)
    with long_file.open_file(path) as opened:
        assert contents(opened) == contents(made)
        assert len(list(opened.batches())) > 1
        for name in ("id", "work", "size", "name"):
            parts = [opened.column(name, keys) for keys in opened.batches()]
            assert np.array_equal(np.concatenate(parts), made.column(name))
        parts = [opened.tick_index(keys) for keys in opened.batches()]
        assert np.array_equal(np.concatenate(parts), made.tick_index())


def test_parts_of_a_column_are_read_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.store.files.hdf5.VECTOR_CHUNK", 64)
    made = made_of(random.Random(4), 40, 20)
    with long_file.open_file(written(tmp_path, made)) as opened:
        rng = random.Random(5)
        for _ in range(200):
            low = rng.randrange(len(made.counts))
            keys = slice(low, rng.randrange(low, len(made.counts) + 1))
            name = rng.choice(["work", "size", "name", "id"])
            assert np.array_equal(opened.column(name, keys), made.column(name, keys))


def test_what_a_table_declares_about_answers_comes_back(tmp_path: Path) -> None:
    made = made_of(random.Random(3), 5, 4)
    answers = Answers(top=(("work",),), show=("name", "work:sum"))
    for said in (answers, Answers(), None):
        told = made.with_about(made.about._replace(table=made.table._replace(answers=said)))
        with long_file.open_file(written(tmp_path, told)) as opened:
            assert opened.table.answers == said


def test_a_stretch_without_rows_keeps_its_readings_and_holes(tmp_path: Path) -> None:
    for count in (0, 5):
        made = stretch_of([], count)
        with long_file.open_file(written(tmp_path, made)) as opened:
            assert contents(opened) == contents(made)
            assert len(opened.ticks) == count


def _same(codes: Any, _width: int, _row: int) -> Any:
    return codes


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 2**60],
        [-VALUE_MAX, VALUE_MAX],
        [ABSENT, ABSENT],
        [ABSENT, 7],
        [4096, 8192, -4096],
        [5] * 9,
        [],
        [2**61, 2**61 + 254],
        [2**61, 2**61 + 255],
    ],
)
def test_vectors_come_back(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    for coded in (
        sparse_coding.levels(values),
        sparse_coding.sums(values),
        sparse_coding.steps([values[:1], values[1:]]),
    ):
        record = np.zeros(1, sparse_coding.VECTOR)[0]
        record["base"], record["factor"], record["width"] = coded.base, coded.factor, coded.width
        record["summed"] = coded.summed
        assert sparse_coding.decode(record, len(values), partial(_same, coded.codes)).tolist() == numbers


@pytest.mark.parametrize(
    ("load", "limit"), [(tasks_synthetic.QUIET, 0.3), pytest.param(tasks_synthetic.BUSY, 2.0, marks=pytest.mark.long)]
)
def test_what_a_quiet_and_a_busy_machine_take(load: tasks_synthetic.Load, limit: float) -> None:
    """What a process-sample takes in an hour's file; a day's is a little better."""
    made = tasks_synthetic.stretch(1000, load, 3600)
    assert abs(made.rows / 3600 / 1000 - load.changing) < 0.02
    assert len(long_file.encode(made, "test")) / (1000 * 3600) <= limit


def test_one_process_is_read_without_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.store.files.hdf5.VECTOR_CHUNK", 64)
    made = made_of(random.Random(6), 200, 20)
    path = written(tmp_path, made)
    content = bytearray(Path(path).read_bytes())
    with h5py.File(path) as file:
        chunks = file["rows/i2"].id
        last = chunks.get_chunk_info(chunks.get_num_chunks() - 1)
    content[last.byte_offset + last.size // 2] ^= 0xFF
    Path(path).write_bytes(content)
    with long_file.open_file(path) as opened:
        for name in ("work", "size"):
            assert np.array_equal(opened.column(name, slice(0, 5)), made.column(name, slice(0, 5)))
        with pytest.raises(CorruptError, match=path):
            contents(opened)


@rounds(120, 600)
def test_a_flipped_byte_is_found_or_does_no_harm(tmp_path: Path, rounds: int) -> None:
    made = made_of(random.Random(7), 20, 12)
    path = written(tmp_path, made)
    right = contents(made)
    whole = Path(path).read_bytes()
    rng = random.Random(8)
    found: list[str] = []
    for _ in range(rounds):
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
        Path(path).write_bytes(content)
        try:
            with long_file.open_file(path) as opened:
                assert contents(opened) == right
        except (CorruptError, ForeignError) as refusal:
            found.append(str(refusal))
    assert len(found) > rounds / 4
    assert all(path in said for said in found)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, made_of(random.Random(9), 20, 12))
    whole = Path(path).read_bytes()
    for length in (0, 1, 7, 100, len(whole) // 2, len(whole) - 1):
        Path(path).write_bytes(whole[:length])
        with pytest.raises(CorruptError, match=path):
            long_file.open_file(path)


def test_who_may_not_read_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        long_file.open_file(str(tmp_path / "nothing.h5"))
    assert issubclass(NotPermittedError, Error)


@pytest.mark.parametrize(("name", "value"), [("format", "sysmond segment"), ("version", 2), ("incompatible", 1)])
def test_other_files_are_foreign(tmp_path: Path, name: str, value: Any) -> None:
    path = written(tmp_path, stretch_of([], 2))
    with h5py.File(path, "r+") as file:
        file.attrs[name] = np.bytes_(value) if isinstance(value, str) else value
    with pytest.raises(ForeignError, match=path):
        long_file.open_file(path)


def _replace(group: Any, name: str, value: Any) -> None:
    del group[name]
    group.create_dataset(name, data=value, chunks=(max(1, len(value)),))


def _vector(file: Any, group: str, role: str, name: str = "", **changed: int) -> None:
    records = file[group]["vectors"][:]
    where = (records["role"] == role.encode()) & (records["name"] == name.encode())
    assert where.sum() == 1
    for field, value in changed.items():
        records[field][where] = value
    _replace(file[group], "vectors", records)


def _long_rows(file: Any) -> None:
    """Rows of which nobody has so many: the library would make them up of nothing."""
    del file["rows/i1"]
    length = 2**40
    file["rows"].create_dataset("i1", shape=(9, length), chunks=(1, 65536), dtype="i1", compression="gzip")
    file["rows"].attrs["length"] = length


def _equal_keys(file: Any) -> None:
    for name in ("id", "born"):
        _vector(file, "keys", "key", name, factor=0)


CRAFTED: dict[str, Callable[[Any], None]] = {
    "a negative length": lambda file: file["rows"].attrs.__setitem__("length", -1),
    "more rows than there are": lambda file: file["rows"].attrs.__setitem__("length", 2**22),
    "rows of nothing": _long_rows,
    "counts below one": lambda file: _vector(file, "keys", "count", base=-5),
    "counts beyond all": lambda file: _vector(file, "keys", "count", base=2**62),
    "a width that is none": lambda file: _vector(file, "rows", "step", "work", width=3),
    "a row that is not there": lambda file: _vector(file, "rows", "step", "work", row=77, width=2),
    "readings before the first": lambda file: _vector(file, "keys", "first", base=-500),
    "readings behind the last": lambda file: _vector(file, "keys", "last", base=500),
    "texts that are not there": lambda file: _vector(file, "keys", "first", "name", base=500),
    "ends beyond the texts": lambda file: _replace(file, "text_ends", np.array([1, 2**40])),
    "ends that fall": lambda file: _replace(file, "text_ends", np.array([9, 3])),
    "no declaration": lambda file: _replace(file, "declaration", np.frombuffer(b"[]", np.uint8)),
    "a deep declaration": lambda file: _replace(file, "declaration", np.frombuffer(b"[" * 10**5, np.uint8)),
    "no vectors": lambda file: file["keys"].__delitem__("vectors"),
    "no rows": lambda file: file.__delitem__("rows"),
    "keys that are equal": _equal_keys,
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED)
def test_a_crafted_file_takes_neither_memory_nor_makes_numbers_up(tmp_path: Path, craft: Callable[[Any], None]) -> None:
    path = written(tmp_path, made_of(random.Random(10), 20, 12))
    with h5py.File(path, "r+") as file:
        craft(file)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((CorruptError, ForeignError), match=path), long_file.open_file(path) as opened:
        contents(opened)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 * 1024


def test_too_many_rows_are_refused_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(invariants.LENGTHS_MAX, "rows", 10)
    with pytest.raises(Error, match="at most 10"):
        long_file.encode(made_of(random.Random(11), 20, 12), "test")
