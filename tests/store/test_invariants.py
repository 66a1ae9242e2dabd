# SPDX-License-Identifier: Apache-2.0
"""Files that somebody made up: none hangs its reader, fills its memory, shows another file or hides its neighbours."""

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.store import archive
from sysmond.store.archive import Name
from sysmond.store.coding.dense_coding import SERIES
from sysmond.store.files import dense_file, invariants
from sysmond.store.files.packed import fletcher32
from sysmond.store.of_ring import BootEvent, Hole, MemoryBlock, Recording, SeriesKey, Strand
from tests.support import longarchive, warm
from tests.support.longarchive import BOOT, Row, relation

# What no file may cost.
WAIT_S = 10
MEMORY_MIB = 300
TICKS = 60

LOAD = Table(
    "load",
    (
        Metric("up", "1", Semantics.COUNTER, "Grows."),
        Metric("high", "1", Semantics.GAUGE, "Moves.", 2),
        Metric("kind", "text", Semantics.STATE, "Says."),
    ),
    "thing",
    "Load.",
)
TASK = Table(
    "task",
    (
        Metric("ident", "1", Semantics.STATE, "Which."),
        Metric("start", "s", Semantics.STATE, "Since when.", 9),
        Metric("cpu", "s", Semantics.COUNTER, "CPU time.", 6),
        Metric("size", "B", Semantics.GAUGE, "Memory."),
        Metric("comm", "text", Semantics.STATE, "Its name."),
    ),
    "task",
    "Tasks.",
    Packing("<q q q q 16s", ("ident", "start")),
)

Craft = Callable[[h5py.File], object]


def wide_recording(number: int, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> Recording:
    """One of several neighbours: a minute each, one after the other."""
    ticks = (np.arange(TICKS, dtype=np.int64) + 1 + number * TICKS) * SECOND_NS
    keys = [SeriesKey("load", metric.name, f"t{thing}") for thing in range(5) for metric in LOAD.metrics]
    values = np.arange(len(keys) * TICKS, dtype=np.int64).reshape(len(keys), TICKS) % 97 + 100 * number
    values[2::3] = 7
    values[0::3] = np.arange(TICKS) ** 2 + 100 * number
    return Recording(
        sensitivity,
        {"load": LOAD},
        [MemoryBlock(Strand(BOOT, "sampler", SECOND_NS, SECOND_NS), ticks, keys, values)],
        {7: "seven"},
        {BOOT: [relation()]},
        [Hole(BOOT, "load", int(ticks[5]), int(ticks[6]), Cause.PROBE_FAILED, "no")],
        [BootEvent(BOOT, int(ticks[5]), "mark", "me", f"mark {number}")],
    )


def put_wide(folders: Folders, number: int) -> str:
    path = f"{archive.disk_folder(folders, Sensitivity.PUBLIC)}/{Name(BOOT, number, number).file}"
    Path(path).write_bytes(dense_file.encode(wide_recording(number), "a test"))
    return path


def put_long(folders: Folders, number: int) -> str:
    ticks_s = [1 + number * TICKS + each for each in range(TICKS)]
    rows: list[tuple[int, Row]] = [
        (
            each,
            {
                "ident": ident,
                "start": SECOND_NS,
                "cpu": 1000 * (each + number * TICKS),
                "size": ident * 4096 + each,
                "comm": f"c{ident}",
            },
        )
        for each in range(TICKS)
        for ident in range(1, 6)
    ]
    return longarchive.put(folders, longarchive.stretch(TASK, ticks_s, rows), number)


class Told(NamedTuple):
    """How a program ended, what it said, and what it cost."""

    code: int
    out: str
    err: str
    peak_mib: float


# Forks for each program: imports take longer than most of them.
READERS = """
import json, os, signal, sys, tempfile
from sysmond.commands import fsck
from sysmond.__main__ import main as sysmond
from sysmon_tools.extract import main as extract
programs, wait_s = json.loads(sys.argv[1])
told = []
for program, *arguments in programs:
    files = [tempfile.TemporaryFile() for _ in range(2)]
    child = os.fork()
    if not child:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), 1 + number)
        signal.setitimer(signal.ITIMER_REAL, wait_s)
        sys.exit({"sysmond": sysmond, "extract": extract}[program](arguments))
    _, status, usage = os.wait4(child, 0)
    said = [(file.seek(0), file.read().decode("utf-8", "replace"))[1] for file in files]
    told.append([os.waitstatus_to_exitcode(status), *said, usage.ru_maxrss / 1024])
print(json.dumps(told))
"""
FSCK = ("sysmond", "fsck")
EXTRACT = ("extract", "--utc", "--format", "csv")
WIDE = ("load", "--raw")
LONG = ("task", "--sample", "1s", "--from", "2025-03-01T11:00:00Z", "--to", "2025-03-01T11:05:00Z")


def run(folders: Folders, *programs: Sequence[str]) -> list[Told]:
    """Run programs over an archive; one that takes too long is ended."""
    places = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    asked = json.dumps([[[*program, *places] for program in programs], WAIT_S])
    return [Told(*each) for each in json.loads(warm.run(READERS, asked))]


def examined(folders: Folders, path: str) -> dict[str, Told]:
    """Let all that read an archive read it, and see that none is harmed; what each said."""
    wanted = LONG if "/task/" in path else WIDE
    programs = {
        "fsck": FSCK,
        "rows": (*EXTRACT, *wanted),
        "sample": (*EXTRACT, wanted[0], "--sample", "1min"),
        "list": (*EXTRACT, "--list"),
    }
    found = dict(zip(programs, run(folders, *programs.values()), strict=True))
    for name, told in found.items():
        assert "Traceback" not in told.err, f"{name}: {told.err[-2000:]}"
        assert told.code >= 0, f"{name}: ended by signal {-told.code}"
        assert told.peak_mib < MEMORY_MIB, f"{name}: {told.peak_mib:.0f} MiB"
    return found


def times_of(told: Told) -> list[str]:
    """The times of the rows that were given."""
    return sorted({line.split(",")[0] for line in told.out.splitlines() if line[:1].isdigit()})


class Neighbours(NamedTuple):
    """A file between two others of its kind."""

    folders: Folders
    path: str
    before: Told

    def craft(self, craft: Craft) -> None:
        with h5py.File(self.path, "r+", libver=("v110", "v110")) as file:
            craft(file)

    def check_refused(self, saying: str = "") -> None:
        """The crafted file is named by all, and its neighbours answer."""
        found = examined(self.folders, self.path)
        said = found["fsck"].out + found["fsck"].err
        assert "damaged" in said
        assert self.path in said
        assert saying in said
        assert found["fsck"].code
        whole = times_of(self.before)
        assert len(whole) == 3 * TICKS
        assert times_of(found["rows"]) == [*whole[:TICKS], *whole[2 * TICKS :]]
        assert Path(self.path).name in found["rows"].err + found["rows"].out or "damaged file" in found["rows"].out


def check_all_refused(folders: Folders, put: Callable[[Folders, int], str], crafts: dict[str, Craft]) -> None:
    """Of an archive of crafted files and two sound ones, these answer, and those are named."""
    put(folders, 1)
    put(folders, 3)
    names = {}
    for number, (name, craft) in enumerate(crafts.items(), 10):
        path = put(folders, number)
        names[path] = name
        with h5py.File(path, "r+", libver=("v110", "v110")) as file:
            craft(file)
    found = examined(folders, put(folders, 1))
    said = found["fsck"].out + found["fsck"].err
    assert [name for path, name in names.items() if path not in said] == []
    assert len(times_of(found["rows"])) == 2 * TICKS
    assert "damaged file" in found["rows"].out or any(path in found["rows"].err for path in names)


@pytest.fixture(scope="module")
def sound() -> dict[str, Told]:
    """What is answered before anything is crafted, by the kind of file: it is the same in each test."""
    return {}


@pytest.fixture
def wide(folders: Folders, sound: dict[str, Told]) -> Neighbours:
    """Three neighbouring segments; the middle one is to be crafted."""
    _, path, _ = (put_wide(folders, number) for number in (1, 2, 3))
    before = sound.get("wide") or sound.setdefault("wide", run(folders, (*EXTRACT, *WIDE))[0])
    return Neighbours(folders, path, before)


@pytest.fixture
def long(folders: Folders, sound: dict[str, Told]) -> Neighbours:
    """Three neighbouring files of a long table; the middle one is to be crafted."""
    _, path, _ = (put_long(folders, number) for number in (1, 2, 3))
    before = sound.get("long") or sound.setdefault("long", run(folders, (*EXTRACT, *LONG))[0])
    return Neighbours(folders, path, before)


def test_what_is_crafted_is_sound_before(wide: Neighbours, long: Neighbours) -> None:
    [fsck] = run(wide.folders, FSCK)
    assert fsck.code == 0, fsck.out
    for each in (wide, long):
        assert len(times_of(each.before)) == 3 * TICKS, each.before.err


# Links: where a file leads elsewhere, or names one thing often.


def linked(name: str, link: Callable[[h5py.File], object]) -> Craft:
    """Put a link in the place of a member."""

    def craft(file: h5py.File) -> None:
        file.move(name, "else")
        file[name] = link(file)

    return craft


@pytest.mark.parametrize("name", ["block", "block/0", "block/0/ticks", "block/0/i1", "texts", "gaps", "instances"])
def test_an_external_link_to_a_pipe_hangs_nobody(wide: Neighbours, tmp_path: Path, name: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    wide.craft(linked(name, lambda _: h5py.ExternalLink(str(pipe), "/x")))
    if name.endswith("/i1"):  # Read only where its values are wanted.
        found = examined(wide.folders, wide.path)
        assert "is a link to elsewhere" in found["fsck"].out + found["fsck"].err
    else:
        wide.check_refused("is a link to elsewhere")


def test_no_other_file_answers_in_place_of_one(wide: Neighbours) -> None:
    secret = f"{wide.folders.state}/secret.h5"
    made = wide_recording(5, Sensitivity.RESTRICTED)._replace(texts={7: "a secret"})
    Path(secret).write_bytes(dense_file.encode(made, "a test"))
    wide.craft(linked("texts", lambda _: h5py.ExternalLink(secret, "/texts")))
    wide.check_refused("is a link to elsewhere")


@pytest.mark.parametrize("name", ["readings", "keys", "rows", "texts", "keys/vectors", "rows/i1"])
def test_an_external_link_of_a_long_file_is_not_followed(long: Neighbours, tmp_path: Path, name: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    long.craft(linked(name, lambda _: h5py.ExternalLink(str(pipe), "/x")))
    long.check_refused("is a link to elsewhere")


def test_soft_links_are_not_followed_either(wide: Neighbours) -> None:
    wide.craft(linked("block/0", lambda _: h5py.SoftLink("/else")))
    wide.check_refused("is a link to elsewhere")


def test_one_block_of_a_hundred_names_is_refused(wide: Neighbours) -> None:
    def craft(file: h5py.File) -> None:
        for number in range(1, 100):
            file[f"block/{number}"] = file["block/0"]

    wide.craft(craft)
    wide.check_refused("100 names")


# Chunks: the library takes them for as long as their shape says, and reads on into its memory.


def of_chunk(name: str, stored: Callable[[h5py.Dataset], tuple[int, bytes]]) -> Craft:
    """Another mask and other bytes in the place of a dataset's first chunk, which is its only one."""

    def craft(file: h5py.File) -> None:
        mask, content = stored(file[name])
        file[name].id.write_direct_chunk((0,) * file[name].ndim, content, mask)

    return craft


def repacked(count: int) -> Callable[[h5py.Dataset], tuple[int, bytes]]:
    """So many elements, by all filters and with the right checksum."""

    def stored(dataset: h5py.Dataset) -> tuple[int, bytes]:
        elements = np.frombuffer(np.resize(dataset[()].ravel(), count).tobytes(), np.uint8)
        shuffled = elements.reshape(count, dataset.dtype.itemsize).T.tobytes()
        packed = zlib.compress(shuffled)
        return 0, packed + fletcher32(packed).to_bytes(4, "little")

    return stored


@pytest.mark.parametrize("name", ["ticks", "series", "clocks", "events"])
def test_a_chunk_that_is_not_of_its_shape_is_damage(folders: Folders, name: str) -> None:
    path = name if name in {"clocks", "events"} else f"block/0/{name}"
    crafts = {
        "skipped": of_chunk(path, lambda _: (0b111, b"\1\2\3\4\5")),
        "skipped, of its length": of_chunk(path, lambda dataset: (0b111, bytes(dataset.size * dataset.dtype.itemsize))),
        "without a checksum": of_chunk(path, lambda dataset: (0b100, repacked(dataset.size)(dataset)[1][:-4])),
        "long": of_chunk(path, lambda dataset: repacked(2 * max(8, dataset.size) * 3600)(dataset)),
        "empty": of_chunk(path, repacked(0)),
    }
    if name not in {"clocks", "events"}:  # Of which there is one.
        crafts["short"] = of_chunk(path, repacked(3))
    check_all_refused(folders, put_wide, crafts)


@pytest.mark.parametrize("count", [0, 3, 10**6])
def test_nor_are_values_read_beyond_the_end_of_a_chunk(wide: Neighbours, count: int) -> None:
    wide.craft(of_chunk("block/0/i1", repacked(count)))
    found = examined(wide.folders, wide.path)
    assert f"{wide.path}: damaged" in found["fsck"].out
    assert wide.path in found["rows"].err
    right = {line.split(",")[0]: line.split(",") for line in wide.before.out.splitlines() if line[:1].isdigit()}
    rows = [line.split(",") for line in found["rows"].out.splitlines() if line[:1].isdigit()]
    cells = [pair for row in rows for pair in zip(row, right[row[0]], strict=True)]
    assert [cell for cell, was in cells if cell not in {"", was}] == []
    assert len([row for row in rows if row == right[row[0]]]) >= 2 * TICKS


@pytest.mark.parametrize("name", ["readings/vectors", "keys/vectors", "rows/i1", "texts", "text_ends", "lives"])
def test_nor_in_a_long_file(folders: Folders, name: str) -> None:
    crafts = {
        "skipped": of_chunk(name, lambda _: (0b111, b"\1\2\3\4\5")),
        "long": of_chunk(name, lambda dataset: repacked(3 * dataset.size)(dataset)),
        "empty": of_chunk(name, repacked(0)),
    }
    check_all_refused(folders, put_long, crafts)


def test_other_filters_than_ours_are_damage(folders: Folders) -> None:
    def stored(**how: Any) -> Craft:
        def craft(file: h5py.File) -> None:
            ticks = file["block/0/ticks"][()]
            del file["block/0/ticks"]
            file.create_dataset("block/0/ticks", data=ticks, chunks=how.pop("chunks", ticks.shape), **how)

        return craft

    ours: dict[str, Any] = {"compression": "gzip", "shuffle": True, "fletcher32": True}
    crafts = {
        "none": stored(),
        "no checksum": stored(compression="gzip", shuffle=True),
        "not shuffled": stored(compression="gzip", fletcher32=True),
        "packed otherwise": stored(**{**ours, "compression": "lzf"}),
        "in many chunks": stored(**ours, chunks=(1,)),
    }
    check_all_refused(folders, put_wide, crafts)


# Claims: what costs its maker nothing, and its reader all.


def put_array(group: h5py.Group, name: str, values: npt.NDArray[Any]) -> None:
    """Another dataset in the place of one, with checksums as they should be."""
    del group[name]
    chunk = (max(1, min(len(values), 65536)),)
    filters: dict[str, Any] = {"compression": "gzip", "compression_opts": 9, "shuffle": True, "fletcher32": True}
    group.create_dataset(name, data=values, chunks=chunk, maxshape=(None,), **filters)


def of_ticks(count: int) -> Craft:
    """A block of one constant series at very many ticks."""

    def craft(file: h5py.File) -> None:
        block = file["block/0"]
        series = block["series"][:1]
        series["width"], series["stop"] = 0, count
        put_array(block, "series", series)
        put_array(block, "ticks", (np.arange(count, dtype=np.int64) + 1000) * SECOND_NS)

    return craft


def of_elements(name: str, count: int) -> Craft:
    """The first element of a dataset again and again."""
    return lambda file: put_array(file, name, np.repeat(file[name][:1], count))


def of_series(series: int, ticks: int) -> Craft:
    """Constant series without end."""

    def craft(file: h5py.File) -> None:
        block = file["block/0"]
        made = np.zeros(series, SERIES)
        made["instance"], made["stop"] = np.arange(series), ticks
        put_array(block, "series", made)
        put_array(block, "ticks", (np.arange(ticks, dtype=np.int64) + 1000) * SECOND_NS)
        put_array(file, "instances", np.char.mod("%d", np.arange(series)).astype("S"))

    return craft


def of_long_names(file: h5py.File) -> None:
    put_array(file, "instances", np.array([b"x" * 4_000_000] * 5))


def of_many_blocks(file: h5py.File) -> None:
    for number in range(1, invariants.BLOCKS_MAX + 1):
        file["block"].create_group(str(number))


def of_breaks(file: h5py.File) -> None:
    of_ticks(2 * invariants.BREAKS_MAX)(file)
    file["block/0"].attrs["interval_ns"] = np.int64(SECOND_NS // 2)


CLAIMS: dict[str, Craft] = {
    "8 million ticks": of_ticks(8_000_000),
    "one tick too many": of_ticks(invariants.TICKS_MAX + 1),
    "a million series": of_series(1_000_000, 60),
    "a billion values": of_series(10_000, 100_000),
    "64 million boots": of_elements("boots", 2_000_000),
    "millions of gaps": of_elements("gaps", 1_000_000),
    "millions of events": of_elements("events", 1_000_000),
    "millions of clocks": of_elements("clocks", 2_000_000),
    "a million texts": of_elements("texts", 1_000_000),
    "two million instances": of_elements("instances", 2_000_000),
    "instances with names of megabytes": of_long_names,
    "more blocks than there can be": of_many_blocks,
    "a gap after every tick": of_breaks,
}


def test_claims_beyond_all_that_is_recorded_are_refused(folders: Folders) -> None:
    check_all_refused(folders, put_wide, CLAIMS)


# Values that cannot be.


def of_attribute(name: str, value: object, place: str = "block/0") -> Craft:
    return lambda file: file[place].attrs.__setitem__(name, value)


def of_field(name: str, field: str, value: int, row: int = 0) -> Craft:
    """Another number in one record."""

    def craft(file: h5py.File) -> None:
        records = file[name][:]
        records[field][row] = value
        put_array(file, name, records)

    return craft


def of_values(name: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Craft:
    return lambda file: put_array(file, name, change(file[name][:]))


IMPOSSIBLE: dict[str, Craft] = {
    "interval 0": of_attribute("interval_ns", np.int64(0)),
    "interval -5": of_attribute("interval_ns", np.int64(-5)),
    "interval of a year": of_attribute("interval_ns", np.int64(365 * 86400 * SECOND_NS)),
    "interval of a fraction": of_attribute("interval_ns", 1e9),
    "started before the boot": of_attribute("started_ns", np.int64(-1)),
    "boot 0.5": of_attribute("boot", 0.5),
    "boot -1": of_attribute("boot", np.int64(-1)),
    "boot TRUE": of_attribute("boot", True),
    "closed 1": of_attribute("closed", np.int64(1)),
    "writer 5": of_attribute("writer", np.int64(5)),
    "version 1.0": of_attribute("version", 1.0, "/"),
    "version TRUE": of_attribute("version", True, "/"),
    "restricted among public ones": of_attribute("sensitivity", np.bytes_(b"restricted"), "/"),
    "wall clock in 2262": of_field("clocks", "realtime_ns", 2**63 - 1),
    "wall clock in 1969": of_field("clocks", "realtime_ns", -1),
    "boot time of a century": of_field("clocks", "boottime_ns", 2**62),
    "monotonic before the boot": of_field("clocks", "monotonic_ns", -(2**63)),
    "scale 255": of_field("metrics", "scale", 255),
    "ticks before the boot": of_values("block/0/ticks", lambda ticks: ticks - 100_000 * SECOND_NS),
    "ticks of a century": of_values("block/0/ticks", lambda ticks: ticks + 2**62),
    "ticks beyond 2^63": of_values("block/0/ticks", lambda ticks: ticks.astype("u8") + np.uint64(2**63)),
    "ticks of fractions": of_values("block/0/ticks", lambda ticks: ticks.astype("f8")),
    "ticks that stand": of_values("block/0/ticks", lambda ticks: np.repeat(ticks[::2], 2)),
    "ticks that run back": of_values("block/0/ticks", lambda ticks: ticks[::-1]),
    "a series twice": of_values("block/0/series", lambda series: np.repeat(series[:1], len(series))),
    "a first value that is none": of_field("block/0/series", "first", 2**63 - 1),
    "a metric that is not there": of_field("block/0/series", "metric", 99),
    "a path as the name of a table": of_values("tables", lambda tables: renamed(tables, "name", b"../../cpu")),
    "metrics of no table": of_values("metrics", lambda metrics: renamed(metrics, "table", b"cpu")),
    "a boot that is none": of_values("boots", lambda boots: np.array([b"../" + boots[0][3:]])),
    "a boot twice": of_values("boots", lambda boots: np.repeat(boots, 2)),
    "an instance twice": of_values("instances", lambda names: np.repeat(names[:1], len(names))),
    "a gap in another century": of_field("gaps", "end_ns", 2**63 - 1),
    "an event before the boot": of_field("events", "boottime_ns", -5),
    "texts with numbers for texts": of_values(
        "texts", lambda texts: np.zeros(len(texts), [("text", "i8"), ("id", "i8")])
    ),
}


def renamed(records: npt.NDArray[Any], field: str, name: bytes) -> npt.NDArray[Any]:
    """Records whose field says something else."""
    names = records.dtype.names or ()
    kinds = [(each, f"S{max(len(name), 8)}" if each == field else records.dtype[each]) for each in names]
    made = np.zeros(len(records), kinds)
    for each in names:
        made[each] = name if each == field else records[each]
    return made


def test_what_cannot_be_is_damage(folders: Folders) -> None:
    check_all_refused(folders, put_wide, IMPOSSIBLE)


def of_clock(years: int) -> Craft:
    """What the machine never read, and can be: the wall clock, set a while before the first tick."""

    def craft(file: h5py.File) -> None:
        clocks = np.repeat(file["clocks"][:1], 2)
        clocks["boottime_ns"][1] += 2 * TICKS * SECOND_NS
        clocks["realtime_ns"][1] += years * 365 * 86_400 * SECOND_NS
        put_array(file, "clocks", clocks)

    return craft


def check_neighbours_keep_their_time(crafted: Neighbours) -> None:
    """Rows of a file with another clock are elsewhere; those of its neighbours are where they were."""
    crafted.craft(of_clock(90))
    found = examined(crafted.folders, crafted.path)
    whole = times_of(crafted.before)
    assert set(times_of(found["rows"])) >= {*whole[:TICKS], *whole[2 * TICKS :]}


def test_a_clock_that_somebody_made_up_moves_no_row_of_another_file(wide: Neighbours) -> None:
    check_neighbours_keep_their_time(wide)


def test_nor_in_long_tables(long: Neighbours) -> None:
    check_neighbours_keep_their_time(long)


# The same of long tables.


def of_vectors(group: str, length: int, *moving: str) -> Craft:
    """Constant vectors of this length; of those of the roles ``moving`` each element is larger by one."""

    def craft(file: h5py.File) -> None:
        vectors = file[f"{group}/vectors"][:]
        for field in ("width", "row", "base", "summed"):
            vectors[field] = 0
        vectors["base"][vectors["role"] == b"count"] = 1
        is_moving = np.isin(vectors["role"], [role.encode() for role in moving])
        for field in ("width", "summed", "base"):
            vectors[field][is_moving] = 1
        vectors["factor"] = np.where(vectors["role"] == b"tick", SECOND_NS, 1)
        put_array(file, f"{group}/vectors", vectors)
        for width in set(file[group]) - {"vectors"}:
            del file[group][width]
        chunks = (1, min(length, 65536))
        codes = file.create_dataset(
            f"{group}/i1", (1, length), "i1", chunks=chunks, compression=9, shuffle=True, fletcher32=True
        )
        codes[:] = 1
        file[group].attrs["length"] = length

    return craft


def both(*crafts: Craft) -> Craft:
    return lambda file: [craft(file) for craft in crafts]


def of_vector(group: str, role: str, field: str, value: int) -> Craft:
    """Another number in what is said of a vector."""

    def craft(file: h5py.File) -> None:
        vectors = file[f"{group}/vectors"][:]
        vectors[field][np.flatnonzero(vectors["role"] == role.encode())[0]] = value
        put_array(file, f"{group}/vectors", vectors)

    return craft


def declared(*place: int, to: object) -> Craft:
    """Another value in the declaration."""

    def craft(file: h5py.File) -> None:
        declaration = at = json.loads(file["declaration"][:].tobytes())
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = to
        put_array(file, "declaration", np.frombuffer(json.dumps(declaration).encode(), np.uint8))

    return craft


def answering(text: str) -> Craft:
    """What the table is said to declare about answers."""
    return of_attribute("answers", np.bytes_(text.encode()), "/")


LONG_CRAFTS: dict[str, Craft] = {
    "4 million keys": both(of_vectors("keys", 1 << 22, "key"), of_vectors("rows", 1 << 22)),
    "8 million readings": of_vectors("readings", 1 << 23, "tick"),
    "8 million rows": of_vectors("rows", 1 << 23),
    "millions of lives": of_elements("lives", 2_000_000),
    "millions of clocks": of_elements("clocks", 2_000_000),
    "millions of gaps": lambda file: put_array(file, "gaps", np.zeros(1_000_000, file["gaps"].dtype)),
    "8 million texts": lambda file: put_array(file, "text_ends", np.repeat(file["text_ends"][-1:], 1 << 23)),
    "20,000 vectors": of_elements("rows/vectors", 20_000),
    "counts below 1": of_vector("keys", "count", "base", 5 - 2**63),
    "readings before the boot": of_vector("readings", "tick", "base", -(2**62)),
    "readings of a century": of_vector("readings", "tick", "base", 2**62),
    "readings that stand": of_vector("readings", "tick", "summed", 0),
    "a width that does not exist": of_vector("rows", "step", "width", 3),
    "a length of a fraction": of_attribute("length", 60.0, "readings"),
    "restricted among public ones": of_attribute("sensitivity", np.bytes_(b"restricted"), "/"),
    "a boot that is none": of_attribute("boot", np.bytes_(b"../../x"), "/"),
    "wall clock in 2262": of_field("clocks", "realtime_ns", 2**63 - 1),
    "a life before the boot": of_field("lives", "started_ns", -(2**63)),
    "interval 0": declared(0, to=0),
    "interval of 300 years": declared(0, to=2**63 - 1),
    "a path as its name": declared(1, to="../../x"),
    "another table": declared(1, to="process"),
    "a number as its name": declared(1, to=5),
    "a number as a unit": declared(4, 2, 1, to=5),
    "scale 255": declared(4, 2, 4, to=255),
    "records of gigabytes": declared(5, 0, to="<999999999s q q q"),
    "no key": declared(5, 1, to=[]),
    "a key twice": declared(5, 1, to=["ident", "ident"]),
    "nested deeply": lambda file: put_array(file, "declaration", np.frombuffer(b"[" * 200_000, np.uint8)),
    "answers that are no JSON": answering("{"),
    "answers that are a number": of_attribute("answers", 7, "/"),
    "answers that are a list": answering("[]"),
    "answers nested deeply": answering('{"top":' + "[" * 8000),
    "answers of 60 kB": answering(json.dumps({"by": "x" * 60_000})),
    "answers of another type": answering('{"show": "ident"}'),
    "answers with a column that is not there": answering('{"show": ["nothing"]}'),
    "answers from a table that is a path": answering(
        json.dumps({"joins": [["../../x", [["ident", "id"]], [["name", "name"]], False, False]]})
    ),
    "answers that end what never began": answering('{"ended_by": ["exits", [["ident", "pid"]], []]}'),
}


def test_long_files_that_claim_too_much_or_what_cannot_be_are_damage(folders: Folders) -> None:
    check_all_refused(folders, put_long, LONG_CRAFTS)


def test_a_declared_column_that_is_not_there_is_damage(long: Neighbours) -> None:
    """Each of two ways to read it asked the other, without end."""
    long.craft(declared(4, 3, 0, to="rss"))
    long.check_refused("has no column")


def test_bounds_are_above_all_that_is_recorded_honestly(repository: Path) -> None:
    """A day of 300 series each second is what the benchmark of capacity writes, and 600 that of queries."""
    day, most = 86_400, 600
    assert 3 * day < invariants.TICKS_MAX
    assert day * most < invariants.CELLS_MAX
    assert 100 * most < invariants.SERIES_MAX
    for path in sorted((repository / "tests/compat").glob("segment*.h5")):
        with dense_file.Segment(str(path)) as opened:
            claimed = sum(len(block.keys) * len(block.ticks) for block in opened.recording.blocks)
            assert claimed < invariants.CELLS_MAX / 10


def test_no_writer_makes_what_no_reader_takes() -> None:
    ticks = (np.arange(invariants.TICKS_MAX + 1, dtype=np.int64) + 1) * SECOND_NS
    block = MemoryBlock(Strand(BOOT, "sampler", 1, SECOND_NS), ticks, [SeriesKey("load", "up", "t")], ticks[None])
    made = wide_recording(1)
    with pytest.raises(Error, match=f"expected at most {invariants.TICKS_MAX}"):
        dense_file.encode(made._replace(blocks=[block]), "a test")
    gaps = [*made.holes] * (invariants.WIDE_ELEMENTS_MAX["gaps"] + 1)
    with pytest.raises(Error, match="gaps; expected at most"):
        dense_file.encode(made._replace(holes=gaps), "a test")
