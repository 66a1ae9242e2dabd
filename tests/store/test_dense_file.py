# SPDX-License-Identifier: Apache-2.0
"""Segments: what is written comes back to the last digit, and damage is found or does no harm."""

import fcntl
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.ring.frame import VALUE_MAX
from sysmond.store.coding.dense_coding import CHUNK_SERIES, SERIES
from sysmond.store.files import hdf5
from sysmond.store.files.dense_file import CHUNK_TICKS, Segment, encode
from sysmond.store.files.invariants import UPTIME_MAX_NS
from sysmond.store.of_ring import BATCH_SERIES, Hole, MemoryBlock, Recording, SeriesKey, Strand
from tests.support.opened import open_objects
from tests.support.order import examples, rounds

SECOND = 10**9
BOOTS = ("a" * 32, "b" * 32)

METRICS = tuple(
    Metric(f"m{number}", "B", semantics, "A metric.", number % 10, "/proc/nothing 1")
    for number, semantics in enumerate([Semantics.COUNTER, Semantics.GAUGE, Semantics.STATE] * 2)
)
TABLES = {
    "disk": Table("disk", METRICS, "device", "Disks."),
    "host": Table("host", (Metric("name", "text", Semantics.STATE, "A name."),)),
}


def recording_of(*blocks: MemoryBlock, **changed: Any) -> Recording:
    made = Recording(Sensitivity.PUBLIC, TABLES, blocks, {}, {BOOTS[0]: [Relation(1, 2, 3)]}, [])
    return made._replace(**changed)


def block_of(matrix: npt.NDArray[np.int64], number: int = 0) -> MemoryBlock:
    """A block with these values: metrics of both kinds in turn."""
    keys = [SeriesKey("disk", METRICS[row % 6].name, f"d{row // 6}") for row in range(len(matrix))]
    ticks = (np.arange(matrix.shape[1], dtype=np.int64) + 5 + number) * SECOND
    return MemoryBlock(Strand(BOOTS[number % 2], "sampler", number, SECOND), ticks, keys, matrix, number % 2 == 1)


def contents(recording: Recording) -> Any:
    """Everything in a recording, in a form that compares."""
    return (
        recording.sensitivity,
        recording.tables,
        [
            (b.strand, b.closed, b.ticks.tolist(), list(b.keys), b.read(range(len(b.keys))).tolist())
            for b in recording.blocks
        ],
        recording.texts,
        recording.clocks,
        list(recording.holes),
    )


def there_and_back(recording: Recording, path: str) -> None:
    with open(path, "wb") as file:
        file.write(encode(recording, "a test"))
    with Segment(path) as opened:
        assert contents(opened.recording) == contents(recording)


@pytest.fixture
def path(runtime: Path) -> str:
    return str(runtime / "a.h5")


# --- there and back -------------------------------------------------------------------------------


@st.composite
def series(draw: st.DrawFn, ticks: int) -> npt.NDArray[np.int64]:
    """A series as they come: any values of a size, a growing counter, a reset, constants, nothing at all."""
    limit = draw(st.sampled_from([0, 1, 120, 127, 128, 32767, 32768, 2**31 - 1, 2**31, VALUE_MAX]))
    values = draw(npst.arrays(np.int64, ticks, elements=st.integers(-limit, limit)))
    if limit <= 2**31 and draw(st.booleans()):
        values = np.cumsum(np.abs(values))
    absent = draw(st.sampled_from(["none", "some", "all", "ends"]))
    if absent == "some":
        values[draw(npst.arrays(np.bool_, ticks))] = ABSENT
    elif absent == "all":
        values[:] = ABSENT
    elif absent == "ends" and ticks:
        values[[0, -1]] = ABSENT
    return values


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    blocks = []
    for number in range(draw(st.integers(0, 3))):
        ticks = draw(st.integers(0, 12))
        rows = [draw(series(ticks)) for _ in range(draw(st.integers(0, 9)))]
        blocks.append(block_of(np.array(rows, np.int64).reshape(len(rows), ticks), number))
    texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
    texts |= st.binary(max_size=9).map(lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
    moments = st.integers(0, UPTIME_MAX_NS)
    relations = st.lists(st.builds(Relation, moments, st.integers(0, TIME_MAX_NS - 1), moments), min_size=1, max_size=4)
    spans = st.tuples(moments, moments).map(sorted)
    holes = st.builds(
        lambda boot, table, span, cause, detail: Hole(boot, table, span[0], span[1], cause, detail),
        *(st.sampled_from(BOOTS), texts, spans, st.sampled_from(Cause), texts),
    )
    return recording_of(
        *blocks,
        sensitivity=draw(st.sampled_from(Sensitivity)),
        texts=draw(st.dictionaries(st.integers(0, VALUE_MAX), texts, max_size=5)),
        clocks=draw(st.dictionaries(st.sampled_from(BOOTS), relations)),
        holes=draw(
            st.lists(
                holes,
                max_size=4,
            )
        ),
    )


@settings(max_examples=examples(120))
@given(recordings())
def test_everything_comes_back_exactly(recording: Recording) -> None:
    path = f"/dev/shm/sysmond-segment-{os.getpid()}.h5"
    try:
        there_and_back(recording, path)
    finally:
        os.unlink(path)


@pytest.mark.parametrize(
    ("rows", "ticks"),
    [(3 * BATCH_SERIES + 5, 20), (CHUNK_SERIES + 1, 2 * CHUNK_TICKS + 7), (0, 5), (2, 0), (1, 1), (30, 40_000)],
)
def test_large_and_small_blocks_come_back(path: str, rows: int, ticks: int) -> None:
    chance = np.random.default_rng(rows)
    sizes = chance.choice([0, 1, 100, 10_000, 2**30, 2**60], (rows, 1))
    matrix = (chance.uniform(-1, 1, (rows, ticks)) * sizes).astype(np.int64)
    matrix[chance.random(matrix.shape) < 0.01] = ABSENT
    recording = recording_of(block_of(matrix))
    there_and_back(recording, path)
    with Segment(path) as opened:
        [block] = opened.recording.blocks
        some = chance.integers(0, rows, 12).tolist() if rows else []
        assert block.read(some).tolist() == matrix[some].tolist(), "in any order, and twice"


def test_strings_of_any_length_and_bytes_come_back(path: str) -> None:
    strings = ["", "x" * 4096, "\udcff\udc80\udce2", "ä€🙂", "tab\tnewline\n"]
    key = [SeriesKey("host", "name", string) for string in strings]
    block = MemoryBlock(
        Strand(BOOTS[0], "sämpler", 1, SECOND_NS),
        SECOND_NS * np.array([1, 2]),
        key,
        np.array([[1, 2]] * len(strings), np.int64),
    )
    there_and_back(recording_of(block, texts=dict(enumerate(strings))), path)


def test_values_out_of_range_are_absent(path: str) -> None:
    matrix = np.array([[VALUE_MAX + 1, 5, -VALUE_MAX - 1], [VALUE_MAX, -VALUE_MAX, 2**63 - 1]])
    Path(path).write_bytes(encode(recording_of(block_of(matrix)), ""))
    with Segment(path) as opened:
        found = opened.recording.blocks[0].read([0, 1]).tolist()
    assert found == [[ABSENT, 5, ABSENT], [VALUE_MAX, -VALUE_MAX, ABSENT]]


def rich() -> Recording:
    """A recording with everything in it, small enough to flip every part of its file."""
    chance = np.random.default_rng(7)
    matrix = np.cumsum(chance.integers(0, 50, (24, 60)) * np.array([1, 3000, 10**7, 10**14] * 6)[:, None], axis=1)
    matrix[3, 10:20] = matrix[5, 0] = matrix[6, -1] = ABSENT
    matrix[7], matrix[8], matrix[9, 30:] = 7, ABSENT, 2
    holes = [Hole(BOOTS[0], "disk", 5, 9, Cause.PROBE_FAILED, "OSError: it did not work")]
    return recording_of(
        block_of(matrix),
        block_of(matrix[:4, :9], 1),
        texts={5: "one", 6: "another"},
        clocks={boot: [Relation(1, 2, 3), Relation(4, 5, 6)] for boot in BOOTS},
        holes=holes,
    )


def test_the_same_recording_is_the_same_bytes() -> None:
    before = encode(rich(), "a test")
    time.sleep(1.1)  # HDF5 can store times, in seconds.
    assert encode(rich(), "a test") == before


def test_what_no_reader_would_accept_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "ARRAY_BYTES_MAX", 100)
    with pytest.raises(Error, match="at most 100"):
        encode(rich(), "")


# --- damage ---------------------------------------------------------------------------------------


def read_whole(path: str) -> Any:
    with Segment(path) as opened:
        return contents(opened.recording)


@rounds(200, 1000)
def test_a_flipped_bit_is_found_or_harmless(path: str, rounds: int) -> None:
    image, whole = encode(rich(), "a test"), contents(rich())
    chance = random.Random(5)
    found = harmless = 0
    for flip in range(rounds):
        place = chance.randrange(len(image)) if flip % 2 else (flip * len(image)) // rounds
        flipped = bytearray(image)
        flipped[place] ^= 1 << chance.randrange(8)
        Path(path).write_bytes(flipped)
        try:
            assert read_whole(path) == whole, f"byte {place} of {len(image)}"
            harmless += 1
        except (CorruptError, ForeignError):
            found += 1
    print(f"{found} found, {harmless} harmless")
    assert found > rounds // 4
    assert open_objects() == 0


def test_a_truncated_file_is_found(path: str) -> None:
    image = encode(rich(), "a test")
    for length in [0, 1, 7, 48, *range(100, len(image), 397), len(image) - 1]:
        Path(path).write_bytes(image[:length])
        with pytest.raises(CorruptError):
            read_whole(path)
    assert open_objects() == 0


def test_an_open_segment_locks_nothing_and_a_closed_one_holds_nothing(path: str) -> None:
    Path(path).write_bytes(encode(rich(), ""))
    opened = Segment(path)
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    block = opened.recording.blocks[0]
    opened.close()
    assert open_objects() == 0
    assert path not in {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
    with pytest.raises(CorruptError):
        block.read([0])


# --- crafted files --------------------------------------------------------------------------------

Change = Callable[[h5py.File], None]


def replaced(name: str, **new: Any) -> Change:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **new)

    return change


def altered(name: str, field: str, value: int) -> Change:
    def change(file: h5py.File) -> None:
        records = file[name][:]
        records[field][0] = value
        file[name][:] = records

    return change


def attribute(place: str, name: str, value: Any) -> Change:
    def change(file: h5py.File) -> None:
        file[place].attrs[name] = value

    return change


def removed(name: str) -> Change:
    def change(file: h5py.File) -> None:
        del file[name]

    return change


CRAFTED = {
    "huge ticks": replaced("block/0/ticks", shape=(2**40,), dtype="<i8", chunks=(100,)),
    "huge chunks": replaced("block/0/ticks", shape=(60,), maxshape=(None,), dtype="<i8", chunks=(2**28,)),
    "huge series": replaced("block/0/series", shape=(2**33,), dtype=SERIES, chunks=(100,)),
    "huge strings": replaced("instances", shape=(2**20,), dtype="S65536", chunks=(1,)),
    "huge matrix": replaced("block/0/i1", shape=(2**30, 2**30), dtype="i1", chunks=(8, 60)),
    "contiguous": replaced("block/0/ticks", data=np.arange(60)),
    "ticks that go back": replaced("block/0/ticks", data=np.arange(60)[::-1], chunks=(60,)),
    "ticks that are no numbers": replaced("block/0/ticks", data=np.array([b"a"] * 60), chunks=(60,)),
    "two dimensions": replaced("boots", data=np.zeros((2, 2), "S32"), chunks=(2, 2)),
    "variable strings": replaced("boots", data=["a", "b"], dtype=h5py.string_dtype(), chunks=(2,)),
    "no texts": removed("texts"),
    "no matrix": removed("block/0/i2"),
    "a matrix of floats": replaced("block/0/i1", data=np.zeros((60, 60)), chunks=(8, 60)),
    "a metric that is not there": altered("block/0/series", "metric", 99),
    "an instance that is not there": altered("block/0/series", "instance", 99),
    "a row that is not there": altered("block/0/series", "row", 99),
    "a width that is not there": altered("block/0/series", "width", 3),
    "a boot that is not there": altered("clocks", "boot", 9),
    "a negative boot": altered("clocks", "boot", -1),
    "no sensitivity": attribute("/", "sensitivity", "none"),
    "a number for a text": attribute("/", "sensitivity", 5),
    "a list for a number": attribute("block/0", "boot", [1, 2]),
    "a group for an array": lambda file: (removed("boots")(file), file.create_group("boots"))[0],
    "an array for a group": lambda file: (removed("block")(file), file.create_dataset("block", data=[1]))[0],
    "a block without a number": lambda file: file.move("block/0", "block/first"),
    "a link to nowhere": lambda file: file.__setitem__("block/7", h5py.SoftLink("/nowhere")),
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED.keys())
def test_a_crafted_file_is_refused_within_bounded_memory(path: str, change: Change) -> None:
    Path(path).write_bytes(encode(rich(), ""))
    with h5py.File(path, "r+") as file:
        change(file)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptError, match=path):
        read_whole(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000
    assert open_objects() == 0


def test_a_foreign_file_is_foreign(path: str) -> None:
    for attributes in ({}, {"format": "sysmond result"}, {"format": b"sysmond result"}, {"format": 5}):
        with h5py.File(path, "w") as file:
            file.attrs.update(attributes)
        with pytest.raises(ForeignError):
            Segment(path)
    Path(path).write_bytes(b"not HDF5 at all")
    with pytest.raises(CorruptError):
        Segment(path)
    with pytest.raises(FileNotFoundError):
        Segment(f"{path}.gone")
    with pytest.raises(CorruptError):
        Segment(os.path.dirname(path))
    assert open_objects() == 0


@pytest.fixture
def as_nobody() -> Iterator[None]:
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_no_permission_is_said(tmp_path: Path, as_nobody: None) -> None:
    os.seteuid(0)
    secret = tmp_path / "a.h5"
    secret.write_bytes(b"")
    secret.chmod(0)
    for folder in secret.parents:
        if folder.stat().st_uid == 0 and folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    os.seteuid(65534)
    with pytest.raises(NotPermittedError, match=r"a\.h5"):
        Segment(str(secret))
