# SPDX-License-Identifier: Apache-2.0
"""docs/format.md is true of long tables: files and rings are read here by that document alone.

``read_file`` knows h5py and numpy, ``read_records`` the standard library; neither uses anything of sysmond.
"""

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.records import Records, reference
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store.files import sparse_file as long_file
from sysmond.store.stretches.sparse_of_ring import LongRing
from sysmond.store.stretches.stretch import About, Readings
from tests.support.longarchive import memory_stretch

BOOT = "0123456789abcdef0123456789abcdef"
SECOND = 10**9

Row = dict[str, Any]


# --- reading by the document ----------------------------------------------------------------------


def read_file(path: str) -> dict[str, Any]:
    """Read a file of a long table as docs/format.md says, with h5py and numpy alone."""
    absent = -(2**63)
    with h5py.File(path) as file:
        if file.attrs["format"] != b"sysmond long" or file.attrs["version"] != 1 or file.attrs["incompatible"]:
            raise ValueError("not a file that the document describes")
        interval, table, _, _, metrics, (_, key, lasting) = json.loads(file["declaration"][:].tobytes())
        ends = [0, *file["text_ends"][:].tolist()]
        blob = file["texts"][:].tobytes()
        texts = [blob[low:high].decode() for low, high in pairwise(ends)]
        found: dict[tuple[str, str, str], npt.NDArray[np.int64]] = {}
        for name in ("readings", "keys", "rows"):
            group = file[name]
            for vector in group["vectors"][:]:
                width = int(vector["width"])
                codes = group[f"i{width}"][vector["row"]] if width else np.zeros(group.attrs["length"], "i1")
                missing = codes == np.iinfo(codes.dtype).min
                steps = np.where(missing, 0, codes.astype(np.int64)) * vector["factor"]
                values = vector["base"] + (np.cumsum(steps) if vector["summed"] else steps)
                values[missing] = absent
                found[name, vector["role"].decode(), vector["name"].decode()] = values
        lives = [tuple(life) for life in file["lives"][:].tolist()]
        gaps = [(g["cause"].decode(), g["detail"].decode(), int(g["start_ns"])) for g in file["gaps"][:]]
        clocks = [tuple(clock) for clock in file["clocks"][:].tolist()]
    rows = _rows_of(found, metrics)
    for row in rows:
        for name, unit, *_ in metrics:
            if unit == "text":
                row[name] = texts[row[name]] if row[name] != absent else None
    readings = list(
        zip(*(found["readings", role, ""].tolist() for role in ("tick", "full", "lost", "walked")), strict=True)
    )
    what = (table, interval, key, lasting)
    return {"what": what, "rows": rows, "readings": readings, "lives": lives, "gaps": gaps, "clocks": clocks}


def _rows_of(found: dict[tuple[str, str, str], npt.NDArray[np.int64]], metrics: list[list[Any]]) -> list[Row]:
    """Put the rows together; what stands with the keys is checked on the way."""
    absent = -(2**63)
    rows: list[Row] = []
    keys = {name: values for (_, role, name), values in found.items() if role == "key"}
    at = 0
    for number, count in enumerate(found["keys", "count", ""].tolist()):
        reading = int(found["keys", "first", ""][number])
        held = {name: int(found["keys", "first", name][number]) for name, *_ in metrics if name not in keys}
        shown = dict(held)
        for row in range(at, at + count):
            reading += int(found["rows", "step", ""][row])
            for name in held if row > at else ():
                step = int(found["rows", "step", name][row])
                shown[name] = absent if step == absent else (0 if held[name] == absent else held[name]) + step
                held[name] = held[name] if step == absent else shown[name]
            tick = int(found["readings", "tick", ""][reading])
            rows.append({"tick": tick, **{name: int(values[number]) for name, values in keys.items()}, **shown})
        less = {name: 0 if shown[name] == absent else shown[name] for name in shown}
        for name, value in shown.items():
            first = int(found["keys", "first", name][number])
            last = int(found["keys", "last", name][number])
            assert value == (absent if last == absent else last + (0 if first == absent else first))
            if ("keys", "peak", name) in found:
                peak = int(found["keys", "peak", name][number])
                assert max(r[name] for r in rows[-count:]) == (absent if peak == absent else peak + less[name])
        at += count
    return rows


def read_records(path: str) -> tuple[list[Row], list[tuple[int, int, int, int]]]:
    """Read the records of a ring that never went round, with the standard library alone."""
    content = Path(path).read_bytes()
    head = struct.unpack_from("=Q", content, 256)[0]
    at = 4096
    layouts: dict[int, Any] = {}
    rows: list[Row] = []
    readings: list[tuple[int, int, int, int]] = []
    while at < 4096 + head:
        length, _, kind, remainder, ident, _, tick = struct.unpack_from("=IIHHIQq", content, at)
        payload = content[at + 32 : at + length - -remainder % 8]
        at += length
        if kind == 1:
            layouts[ident] = json.loads(payload)
        if kind != 8:
            continue
        count, flags, lost, walked = struct.unpack_from("=IIQQ", payload)
        *_, metrics, (form, _, _) = layouts[ident]
        size = struct.calcsize(form)
        blob = payload[24 + count * size :]
        for number in range(count):
            values = struct.unpack_from(form, payload, 24 + number * size)
            row: Row = {"tick": tick}
            for (name, unit, *_), value in zip(metrics, values, strict=True):
                row[name] = value
                if unit == "text" and isinstance(value, bytes):
                    row[name] = value.rstrip(b"\0").decode()
                elif unit == "text":
                    low, size_bytes = value & 0xFFFFFFFF, value >> 32
                    row[name] = None if value == 2**64 - 1 else blob[low : low + size_bytes].decode()
            rows.append(row)
        if not flags & 2:
            readings.append((tick, flags & 1, lost, walked))
    return rows, readings


def read_resets(path: str) -> list[tuple[str, int, int]]:
    """Which counters began anew as the document says: metric, index of the key, tick; checked against the rows."""
    with h5py.File(path) as file:
        assert file.attrs["compatible"] & 1
        told = file["resets"][:] if "resets" in file else []
    read = read_file(path)
    ticks = [reading[0] for reading in read["readings"]]
    return [(each["metric"].decode(), int(each["key"]), ticks[each["reading"]]) for each in told]


# --- what is written ------------------------------------------------------------------------------

TABLE = Table(
    "jobs",
    (
        Metric("start", "s", Semantics.STATE, "When it started.", 9),
        Metric("id", "1", Semantics.STATE, "Which."),
        Metric("work", "s", Semantics.COUNTER, "Work done.", 6),
        Metric("size", "B", Semantics.GAUGE, "How large."),
        Metric("user", "1", Semantics.STATE, "Whose."),
        Metric("name", "text", Semantics.STATE, "Its name."),
        Metric("command", "text", Semantics.STATE, "What was called."),
    ),
    "job",
    "Jobs.",
    Packing("<q I 4x q q I 4x 12s 4x Q", ("id", "start")),
)


def test_a_file_says_which_counters_began_anew(tmp_path: Path) -> None:
    work = {1: [900, 899, 400, 450], 2: [7, 9, 9, 9]}
    rows = [(at, key, value) for key, values in work.items() for at, value in enumerate(values)]
    columns = {name: np.zeros(len(rows), np.int64) for name in ("start", "size", "user", "name", "command")}
    columns |= {"id": np.array([key for _, key, _ in rows]), "work": np.array([value for *_, value in rows])}
    at = np.array([reading for reading, *_ in rows])
    ticks = np.arange(100, 104, dtype=np.int64) * SECOND
    axis = Readings(ticks, np.arange(4) == 0, np.zeros(4, np.int64), np.zeros(4, np.int64))
    about = About(TABLE, BOOT, "sampler", Sensitivity.PUBLIC, SECOND)
    path = tmp_path / "jobs.h5"
    path.write_bytes(long_file.encode(memory_stretch(about, axis, at, columns, ["a"]), "test"))
    assert read_resets(str(path)) == [("work", 0, 102 * SECOND)]
    path.write_bytes(long_file.encode(memory_stretch(about, axis, at, columns | {"work": at}, ["a"]), "test"))
    assert read_resets(str(path)) == []


def rows_at(tick: int) -> list[Row]:
    """What there is to say at a tick: all at the first, then what changed."""
    return [
        {
            "tick": tick * SECOND,
            "start": 10**10 + number % 7,
            "id": 1000 - number,
            "work": 10**12 + tick * (number + 1) ** 3,
            "size": ABSENT if (tick, number % 4) == (104, 1) else 4096 * ((tick * number) % 11),
            "user": 1000 + number % 2,
            "name": f"job-{number}-ä",
            "command": None if number == 5 else f"run --number={number}\n\x1b[31m" * (number % 3),
        }
        for number in range(30)
        if tick == 100 or (tick + number) % 3 == 0
    ]


def packed(rows: list[Row], *, full: bool) -> Records:
    blob, lines = b"", []
    assert TABLE.packing is not None
    for row in rows:
        said = None if row["command"] is None else row["command"].encode()
        place = 2**64 - 1 if said is None else reference(len(blob), len(said))
        blob += said or b""
        values = [row[name] for name in ("start", "id", "work", "size", "user")]
        lines.append(struct.pack(TABLE.packing.format, *values, row["name"].encode(), place))
    return Records(b"".join(lines), full, 1 if full else 0, 30, blob)


@pytest.fixture(scope="module")
def ring_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("ring") / "99000000000.ring")
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 4711, 99 * SECOND)
    ring = RingWriter(path, 256 * 1024, identity, [Layout(TABLE, SECOND)])
    ring.clock(Relation(1, 2, 3))
    assert TABLE.packing is not None
    for tick in range(100, 110):
        records = packed(rows_at(tick), full=tick == 100)
        ring.records(0, tick * SECOND, [records], struct.calcsize(TABLE.packing.format))
    ring.absence(0, 110 * SECOND, Cause.NO_SOURCE, "FileNotFoundError: /proc")
    ring.close()
    return path


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["id"], row["start"], row["tick"]))


EXPECTED = in_order([row for tick in range(100, 110) for row in rows_at(tick)])
READINGS = [(tick * SECOND, int(tick == 100), int(tick == 100), 30) for tick in range(100, 110)]


def test_records_are_read_by_the_document(ring_file: str) -> None:
    rows, readings = read_records(ring_file)
    assert in_order(rows) == EXPECTED
    assert readings == READINGS


def test_a_file_is_read_by_the_document(ring_file: str, tmp_path: Path) -> None:
    [stretch] = LongRing(snapshot(ring_file)).stretches()
    path = tmp_path / "1.h5"
    path.write_bytes(long_file.encode(stretch, "test"))
    found = read_file(str(path))
    assert found["what"] == ("jobs", SECOND, ["id", "start"], True)
    assert found["rows"] == EXPECTED
    assert found["readings"] == READINGS
    assert found["lives"] == [(99 * SECOND, 100 * SECOND, 1)]
    assert found["gaps"] == [("no source", "FileNotFoundError: /proc", 110 * SECOND)]
    assert found["clocks"] == [(1, 2, 3)]


def test_absences_in_every_place_are_read_by_the_document(ring_file: str, tmp_path: Path) -> None:
    [stretch] = LongRing(snapshot(ring_file)).stretches()
    rng = np.random.default_rng(1)
    columns = {metric.name: stretch.column(metric.name) for metric in TABLE.metrics}
    for name in ("work", "size", "name"):
        columns[name][rng.random(len(columns[name])) < 0.5] = ABSENT
    readings = Readings(stretch.ticks, stretch.full, stretch.lost, stretch.walked)
    made = memory_stretch(stretch.about, readings, stretch.tick_index(), columns, stretch.texts)
    path = tmp_path / "1.h5"
    path.write_bytes(long_file.encode(made, "test"))
    for name in ("work", "size"):
        assert [row[name] for row in read_file(str(path))["rows"]] == columns[name].tolist()
    names = [None if code == ABSENT else stretch.texts[code] for code in columns["name"].tolist()]
    assert [row["name"] for row in read_file(str(path))["rows"]] == names
