# SPDX-License-Identifier: Apache-2.0
"""docs/format.md is true: what the code writes is read here by that document alone.

``read_segment`` knows h5py and numpy, ``read_ring`` the standard library; neither uses anything of sysmond.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.errors import ForeignError
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store.files import dense_file
from sysmond.store.of_ring import Hole, MemoryBlock, Recording, SeriesKey, Strand, of_snapshot

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs/format.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
BOOT = "0123456789abcdef0123456789abcdef"
SECOND = 10**9

Series = dict[tuple[str, str, str, str], npt.NDArray[Any]]


# --- reading by the document ----------------------------------------------------------------------


def read_segment(path: str) -> dict[str, Any]:
    """Read a segment as docs/format.md says, with h5py and numpy alone."""
    absent = -(2**63)
    with h5py.File(path) as file:
        if file.attrs["format"] != b"sysmond segment" or file.attrs["version"] != 1 or file.attrs["incompatible"]:
            raise ValueError("not a segment that the document describes")
        metrics = [(m["table"].decode(), m["name"].decode(), m["semantics"]) for m in file["metrics"][:]]
        boots = [boot.decode() for boot in file["boots"][:]]
        instances = [name.decode() for name in file["instances"][:]]
        clocks = {
            boot: sorted(
                (int(c["boottime_ns"]), int(c["realtime_ns"])) for c in file["clocks"][:] if c["boot"] == index
            )
            for index, boot in enumerate(boots)
        }
        blocks = []
        for number in sorted(file["block"], key=int):
            group = file["block"][number]
            ticks = group["ticks"][:]
            series: dict[tuple[str, str, str], npt.NDArray[Any]] = {}
            for entry in group["series"][:]:
                table, metric, semantics = metrics[entry["metric"]]
                if entry["first"] == absent:
                    values = np.full(len(ticks), absent, np.int64)
                elif entry["width"] == 0:
                    values = np.full(len(ticks), entry["first"], np.int64)
                else:
                    row = group[f"i{entry['width']}"][entry["row"]]
                    missing = row == np.iinfo(row.dtype).min
                    codes = np.where(missing, 0, row.astype(np.int64))
                    values = entry["first"] + (np.cumsum(codes) if semantics == b"counter" else codes)
                    values[missing] = absent
                    outside = np.ones(len(ticks), bool)
                    outside[entry["start"] : entry["stop"]] = False
                    assert missing[outside].all()
                series[table, metric, instances[entry["instance"]]] = values
            boot = boots[group.attrs["boot"]]
            utc = []
            for tick in ticks.tolist():
                known = [clock for clock in clocks[boot] if clock[0] <= tick] or clocks[boot][:1]
                utc.append(tick + known[-1][1] - known[-1][0])
            blocks.append(
                {
                    **group.attrs,
                    "writer": group.attrs["writer"].decode(),
                    "boot": boot,
                    "ticks": ticks,
                    "series": series,
                    "utc": utc,
                }
            )
        return {
            "blocks": blocks,
            "texts": {int(t["id"]): t["text"].decode() for t in file["texts"][:]},
            "gaps": [
                (g["table"].decode(), g["cause"].decode(), g["detail"].decode(), int(g["start_ns"]), int(g["end_ns"]))
                for g in file["gaps"][:]
            ],
        }


def read_ring(path: str, writing: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Read a ring as docs/format.md says; ``writing`` is what the writer does during the copy."""
    with open(path, "rb", buffering=0) as file:
        header = os.pread(file.fileno(), 4096, 0)
        magic, version, header_bytes, capacity = struct.unpack_from("=8sIIQ", header)
        boot, writer, sensitivity, _, started = struct.unpack_from("=32s16s16sqq", header, 24)
        assert (magic, version, header_bytes) == (b"SYSMRING", 1, 4096)
        head, tail, closed, mark, _ = struct.unpack_from("=5Q", header, 256)
        assert head - tail <= capacity
        content = os.pread(file.fileno(), capacity, 4096)
        writing()
        (second_tail,) = struct.unpack("=Q", os.pread(file.fileno(), 8, 264))
    frames: list[tuple[int, int, int, bytes]] = []
    offset = tail
    while offset < head:
        place = offset % capacity
        if capacity - place < 32:
            offset += capacity - place
            continue
        length, crc, kind, remainder, ident, said, tick = struct.unpack_from("=IIHHIQq", content, place)
        whole = said == offset and 32 <= length <= capacity - place
        whole = whole and zlib.crc32(content[place + 8 : place + length]) == crc
        if offset < second_tail:
            offset = offset + length if whole else second_tail
            continue
        if not whole:
            break
        frames.append((kind, ident, tick, content[place + 32 : place + length - -remainder % 8]))
        offset += length
    identity = (*(field.rstrip(b"\0").decode() for field in (boot, writer, sensitivity)), started)
    return {"identity": identity, "closed": closed, "mark": mark, **explained(frames)}


def explained(frames: list[tuple[int, int, int, bytes]]) -> dict[str, Any]:
    """Give rows, texts, absences and clocks their meaning: explanations first."""
    layouts = {ident: json.loads(payload) for kind, ident, _, payload in frames if kind == 1}
    instances: dict[int, tuple[int, list[str]]] = {}
    for kind, ident, _, payload in frames:
        if kind == 2:
            layout, count = struct.unpack_from("=II", payload)
            instances[ident] = (layout, payload[8:].decode().split("\0")[:count])
    rows: dict[tuple[str, str, str], dict[int, int]] = {}
    gaps = []
    for kind, ident, tick, payload in frames:
        if kind == 3:
            layout, names = instances[ident]
            _, table, _, _, metrics = layouts[layout]
            values = iter(struct.unpack(f"={len(payload) // 8}q", payload))
            for name in names:
                for metric, *_ in metrics:
                    rows.setdefault((table, metric, name), {})[tick] = next(values)
        elif kind == 4:
            cause, _, detail = payload.partition(b"\0")
            gaps.append((layouts[ident][1], cause.decode(), detail.decode(), tick))
    texts = {struct.unpack_from("=q", p)[0]: p[8:].decode() for kind, _, _, p in frames if kind == 5}
    return {"rows": rows, "gaps": gaps, "texts": texts, "clocks": {p for kind, _, _, p in frames if kind == 6}}


# --- what is written ------------------------------------------------------------------------------

DISK = Table(
    "disk",
    (
        Metric("read_bytes", "B", Semantics.COUNTER, "Bytes read.", 0, "/proc/diskstats 3"),
        Metric("busy", "s", Semantics.COUNTER, "Time busy.", 3, "/proc/diskstats 10"),
        Metric("in_flight", "1", Semantics.GAUGE, "Requests under way.", 0, "/proc/diskstats 9"),
    ),
    "device",
    "Block devices.",
)
HOST = Table("host", (Metric("kernel", "text", Semantics.STATE, "Its release.", 0, "uname"),), "", "The machine.")
LAYOUTS = (Layout(DISK, SECOND), Layout(HOST, 2 * SECOND))
CLOCKS = (Relation(90 * SECOND, 1_700_000_090 * SECOND, 90 * SECOND), Relation(104 * SECOND, 1_700_000_204 * SECOND, 0))


def disk_rows(tick: int) -> dict[str, tuple[int, int, int]]:
    """What the kernel said at a tick: sda always, sdb for a while; a reset, an absence, large numbers."""
    read = 10**12 + tick * 4096 if tick < 107 else tick
    rows = {"sda": (read, tick * 7, ABSENT if tick in {101, 105} else tick % 3)}
    if 102 <= tick < 106:
        rows["sdb"] = (tick**6 * 1000, 5, 0)
    return rows


def write_ring(path: str, ticks: range = range(100, 110), capacity: int = 65536) -> RingWriter:
    """Write a ring as the sampler does."""
    writer = RingWriter(path, capacity, Identity(BOOT, "sampler", Sensitivity.PUBLIC, 4711, 99 * SECOND), LAYOUTS)
    for tick in ticks:
        write_tick(writer, tick)
    return writer


def write_tick(writer: RingWriter, tick: int) -> None:
    writer.clock(CLOCKS[tick >= 104])
    if tick == 103:
        writer.absence(0, tick * SECOND, Cause.NO_SOURCE, "FileNotFoundError: /proc/diskstats")
    else:
        rows = disk_rows(tick)
        writer.rows(0, tick * SECOND, tuple(rows), [value for row in rows.values() for value in row])
    if tick % 2 == 0:
        writer.rows(1, tick * SECOND, ("",), [writer.text("6.12.0-\xe4" if tick < 106 else "6.13.0")])


def expected(ticks: range = range(100, 110)) -> dict[tuple[str, str, str], dict[int, int]]:
    """What was written of the disks, by series and tick, without what is absent."""
    found: dict[tuple[str, str, str], dict[int, int]] = {}
    for tick in ticks:
        for name, row in disk_rows(tick).items() if tick != 103 else ():
            for metric, value in zip(DISK.metrics, row, strict=True):
                if value != ABSENT:
                    found.setdefault(("disk", metric.name, name), {})[tick * SECOND] = value
    return found


def without_absent(rows: dict[tuple[str, str, str], dict[int, int]]) -> dict[tuple[str, str, str], dict[int, int]]:
    return {
        key: {tick: value for tick, value in each.items() if value != ABSENT}
        for key, each in rows.items()
        if key[0] == "disk"
    }


@pytest.fixture(scope="module")
def ring_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("ring") / "99000000000.ring")
    write_ring(path).close()
    return path


@pytest.fixture(scope="module")
def segment_file(ring_file: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("segment") / f"{BOOT}-00000001-00000001.h5"
    path.write_bytes(dense_file.encode(of_snapshot(snapshot(ring_file)), "test"))
    return str(path)


# --- rings ----------------------------------------------------------------------------------------


def test_a_ring_is_read_by_the_document(ring_file: str) -> None:
    found = read_ring(ring_file)
    assert found["identity"] == (BOOT, "sampler", "public", 99 * SECOND)
    assert (found["closed"], found["mark"]) == (1, 0)
    assert without_absent(found["rows"]) == expected()
    assert found["gaps"] == [("disk", "no source", "FileNotFoundError: /proc/diskstats", 103 * SECOND)]
    assert found["clocks"] == {struct.pack("=qqq", *clock) for clock in CLOCKS}
    kernels = [found["texts"][ident] for ident in found["rows"]["host", "kernel", ""].values()]
    assert kernels == ["6.12.0-ä"] * 3 + ["6.13.0"] * 2


def test_a_ring_that_went_round_many_times_is_read_by_the_document(tmp_path: Path) -> None:
    path = str(tmp_path / "1.ring")
    write_ring(path, range(100, 5000))
    found = without_absent(read_ring(path)["rows"])
    ticks = sorted(found["disk", "busy", "sda"])
    assert ticks == list(range(ticks[0], 5000 * SECOND, SECOND)), "no tick is missing"
    assert len(ticks) > 300
    assert found == expected(range(ticks[0] // SECOND, 5000))


def test_what_is_overwritten_during_the_copy_is_dropped(tmp_path: Path) -> None:
    path = str(tmp_path / "1.ring")
    writer = write_ring(path, range(110, 3000))

    def overtake() -> None:
        for tick in range(3000, 3100):
            write_tick(writer, tick)

    before = read_ring(path)["rows"]["disk", "busy", "sda"]
    during = read_ring(path, overtake)["rows"]["disk", "busy", "sda"]
    assert 0 < len(before) - len(during) <= 110
    assert during.items() <= before.items()


# --- segments -------------------------------------------------------------------------------------


def test_a_segment_is_read_by_the_document(segment_file: str) -> None:
    found = read_segment(segment_file)
    fast, slow = found["blocks"]
    assert (fast["boot"], fast["writer"], fast["started_ns"], fast["closed"]) == (BOOT, "sampler", 99 * SECOND, True)
    assert (fast["interval_ns"], slow["interval_ns"]) == (SECOND, 2 * SECOND)
    series = {key: dict(zip(fast["ticks"].tolist(), row.tolist(), strict=True)) for key, row in fast["series"].items()}
    assert without_absent(series) == expected()
    offsets = [(utc - tick) // SECOND for utc, tick in zip(fast["utc"], fast["ticks"].tolist(), strict=True)]
    assert offsets == [1_700_000_000] * 4 + [1_700_000_100] * 6
    assert [found["texts"][ident] for ident in slow["series"]["host", "kernel", ""].tolist()][-1] == "6.13.0"
    assert found["gaps"] == [("disk", "no source", "FileNotFoundError: /proc/diskstats", 103 * SECOND, 104 * SECOND)]


def test_the_ten_lines_of_the_document_read_a_series(segment_file: str) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"h5py": h5py, "numpy": np}
    exec(code, names)  # noqa: S102  the document is ours
    for (table, metric, instance), values in expected().items():
        scale = 3 if metric == "busy" else 0
        [(ticks, numbers)] = names["read"](segment_file, table, metric, instance)
        assert ticks.tolist() == [tick / SECOND for tick in values]
        assert numbers.tolist() == [value / 10**scale for value in values.values()]


def wide_values() -> st.SearchStrategy[npt.NDArray[np.int64]]:
    """Series as they come: constant, small, large, with absences."""
    limit = 2**62 - 1
    elements = st.one_of(st.just(ABSENT), st.integers(-3, 3), st.integers(-40000, 40000), st.integers(-limit, limit))
    return npst.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 12)), elements=elements)


@given(wide_values(), wide_values())
def test_every_value_comes_back_by_the_document(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> None:
    path = f"/dev/shm/sysmond-format-{os.getpid()}.h5"
    blocks = []
    for number, matrix in enumerate((one, other)):
        keys = [SeriesKey("disk", DISK.metrics[row % 3].name, f"d{row // 3}") for row in range(len(matrix))]
        ticks = np.arange(matrix.shape[1], dtype=np.int64) * SECOND + number
        blocks.append(MemoryBlock(Strand(BOOT, "sampler", number, SECOND), ticks, keys, matrix))
    recording = Recording(Sensitivity.PUBLIC, {"disk": DISK}, blocks, {}, {BOOT: [CLOCKS[0]]}, ())
    with open(path, "wb") as file:
        file.write(dense_file.encode(recording, "test"))
    try:
        found = read_segment(path)
    finally:
        os.unlink(path)
    for block, read in zip(blocks, found["blocks"], strict=True):
        for key, row in zip(block.keys, block.matrix, strict=True):
            assert read["series"][key].tolist() == row.tolist()


# --- the document itself --------------------------------------------------------------------------


def section(title: str) -> str:
    """The text below a heading, up to the next."""
    return re.split(r"^#+ ", TEXT.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> Iterator[tuple[list[str], str]]:
    """The names in the first cell of each row of a section's tables, and the rest of the row."""
    for line in text.splitlines():
        cells = line.strip("| ").split(" | ", 1)
        if line.startswith("| `"):
            yield re.findall(r"`([^`]+)`", cells[0]), cells[1]


def test_the_document_names_everything_in_a_file(segment_file: str) -> None:
    said = [(name, rest) for names, rest in first_cells(section("File")) for name in names]
    block = {name for names, _ in first_cells(section("Block")) for name in names}
    with h5py.File(segment_file) as file:
        assert {name for name, _ in said} == {*file.attrs, *file} - {"block"}
        for name, rest in said:
            if name in file and (fields := file[name].dtype.names):
                always = rest.split(" | ")[0].partition("; and where any")[0]
                assert set(re.findall(r"`(\w+)`", always)) == set(fields), name
        every = {name for group in file["block"].values() for name in (*group, *group.attrs)}
        every |= set(file["block/0/series"].dtype.names)
        assert block - {"i1", "i2", "i4", "i8"} == every - {"i1", "i2", "i4", "i8"}


def test_every_dataset_is_chunked_and_checksummed(segment_file: str) -> None:
    unprotected = []

    def look(name: str, found: h5py.HLObject) -> None:
        if isinstance(found, h5py.Dataset) and not (found.chunks and found.fletcher32 and found.shuffle):
            unprotected.append(name)

    with h5py.File(segment_file) as file:
        file.visititems(look)
    assert unprotected == []


def test_the_document_names_every_cause() -> None:
    gaps = " ".join(section("Gaps").split())
    assert [cause for cause in Cause if f"`{cause}`" not in gaps] == []


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump is not installed (package hdf5-tools)")
def test_h5dump_reads_a_file(segment_file: str) -> None:
    run = subprocess.run(["h5dump", segment_file], capture_output=True, text=True, check=False, timeout=30)
    assert run.returncode == 0, run.stderr
    assert not run.stderr
    assert 'GROUP "block"' in run.stdout


@pytest.mark.parametrize(("attribute", "value"), [("version", 2), ("incompatible", 1)])
def test_a_version_or_flag_from_the_future_is_refused(
    segment_file: str, tmp_path: Path, attribute: str, value: int
) -> None:
    path = shutil.copy(segment_file, tmp_path / "future.h5")
    with h5py.File(path, "r+") as file:
        file.attrs[attribute] = value
    with pytest.raises(ForeignError, match="version"):
        dense_file.Segment(str(path))


def test_unknown_compatible_bits_and_additions_are_ignored(segment_file: str, tmp_path: Path) -> None:
    path = shutil.copy(segment_file, tmp_path / "later.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["compatible"] = 6
        file.attrs["weather"] = "fine"
        file["block/0"].attrs["weather"] = "fine"
        file["block/0"]["i16"] = [1]
        file.create_group("more")
    with dense_file.Segment(str(path)) as opened:
        assert len(opened.recording.blocks) == 2


def test_holes_are_written_with_their_boot(tmp_path: Path) -> None:
    hole = Hole(BOOT, "disk", 1, 5, Cause.DROPPED, "overwritten before it was sealed")
    recording = Recording(Sensitivity.PUBLIC, {"disk": DISK}, (), {}, {BOOT: [CLOCKS[0]]}, (hole,))
    path = tmp_path / "holes.h5"
    path.write_bytes(dense_file.encode(recording, "test"))
    with h5py.File(path) as file:
        [gap] = file["gaps"][:]
        assert file["boots"][gap["boot"]].decode() == BOOT
        assert (gap["start_ns"], gap["end_ns"], gap["cause"]) == (1, 5, b"dropped")
