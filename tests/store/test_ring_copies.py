# SPDX-License-Identifier: Apache-2.0
"""Copies of rings that stay from one question to the next: they say what copies made anew say, whatever is written."""

import random
from pathlib import Path
from typing import Any

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Table
from sysmond.machine.folders import Folders
from sysmond.ring.frame import FRAME_BYTES, HEADER_BYTES, Layout
from sysmond.ring.snapshot import snapshot
from sysmond.store import holdings
from sysmond.store.of_ring import Recording, SeriesKey, of_snapshot
from sysmond.store.ring_copies import RingCopies
from sysmond.store.stretches.sparse_of_ring import LongRing
from tests.support.longs import MOMENT, SECOND, TASK, UTC_NS, Stream, Tasks
from tests.support.machine import NOON_NS, Machine, Writer
from tests.support.order import first

ROUNDS = 100
RING_BYTES = 256 * 1024


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small copies are made smaller, too, and rows that do not last are wanted for less long."""
    monkeypatch.setattr("sysmond.store.ring_copies.SMALL_BYTES", 0)
    monkeypatch.setattr("sysmond.store.of_ring.PASSING_NS", 30 * SECOND_NS)


def series_of(recording: Recording, since_ns: int) -> dict[tuple[SeriesKey, int], int]:
    """What each series has from a boot time on."""
    return {
        (key, tick): value
        for block in recording.blocks
        for key, row in zip(block.keys, block.read(range(len(block.keys))).tolist(), strict=True)
        for tick, value in zip(block.ticks.tolist(), row, strict=True)
        if tick >= since_ns and value != ABSENT
    }


def keys_of(recording: Recording) -> set[SeriesKey]:
    return {key for block in recording.blocks for key in block.keys}


def check(mine: Recording, whole: Recording, since_ns: int) -> None:
    """Compare what two copies mean, of what is not before a boot time; one may know more of what was before."""
    assert series_of(mine, since_ns) == series_of(whole, since_ns)
    assert keys_of(mine) >= keys_of(whole)
    assert mine.tables == whole.tables
    assert mine.texts.items() >= whole.texts.items()
    assert mine.clocks == whole.clocks
    assert mine.damage == whole.damage == ""
    assert set(mine.events) >= set(whole.events)
    assert {hole for hole in mine.holes if hole.start_ns >= since_ns} == {
        hole for hole in whole.holes if hole.start_ns >= since_ns
    }


@pytest.mark.parametrize("seed", first(1, range(12)))
def test_series_of_a_copy_that_goes_on_are_those_of_a_new_one(seed: int, tmp_path: Path) -> None:
    """A ring that goes round, with devices that come and go, texts, absences and events; asked for now and earlier."""
    chance = random.Random(seed)
    machine = Machine(tmp_path)
    machine.ring_bytes = RING_BYTES
    writer, second, since_ns = machine.start(0.5), 1, 0
    (path,) = map(str, (tmp_path / "run").rglob("*.ring"))
    smaller = 0
    with holdings.staying_open():
        for _ in range(ROUNDS):
            until = second + chance.choice((1, 1, 2, 20, 100))
            write(writer, chance, range(second, until))
            second = until
            since_ns = max(1, second - chance.choice((2, 5, 5, 20, 60))) * SECOND_NS
            copied, anew = RingCopies.copy(path, NOON_NS + since_ns), snapshot(path)
            check(RingCopies.recording(copied, NOON_NS + since_ns), of_snapshot(anew), since_ns)
            assert (copied.closed, copied.mark, copied.dropped) == (anew.closed, anew.mark, anew.dropped)
            assert copied.end_offset == anew.end_offset
            assert copied.begins_ns <= max(anew.begins_ns, since_ns)
            smaller += len(copied.image) < len(anew.image) * 3 // 4
            assert len(copied.image) <= 2 * RING_BYTES
        assert smaller
        assert RingCopies.copy(path, NOON_NS + since_ns) is RingCopies.copy(path, NOON_NS + since_ns)
        writer.ring.close()
        assert RingCopies.copy(path, NOON_NS + since_ns).closed


def write(writer: Writer, chance: random.Random, seconds: range) -> None:
    devices = ("sda", "sdb", f"usb{seconds[0] // 50}")[: chance.choice((1, 2, 2, 3))]
    for second in seconds:
        if chance.random() < 0.1:
            writer.ring.absence(0, second * SECOND_NS, Cause.NO_SOURCE, "gone")
            continue
        writer.tick([second], devices)
        if chance.random() < 0.1:
            writer.ring.event(second * SECOND_NS, "mark", "", f"at {second}")


@pytest.mark.parametrize("table", [TASK, MOMENT])
@pytest.mark.parametrize("seed", first(1, range(12)))
def test_records_of_a_copy_that_goes_on_are_those_of_a_new_one(seed: int, table: Table, tmp_path: Path) -> None:
    """Where rows last, what each key had is known from a full reading before the moment on."""
    chance = random.Random(seed)
    stream = Stream(Folders(f"{tmp_path}/state", f"{tmp_path}/run"), layouts=[Layout(table, SECOND)], size=RING_BYTES)
    tasks, second, smaller = Tasks(12, seed), 1, 0
    with holdings.staying_open():
        for _ in range(ROUNDS):
            until = second + chance.choice((1, 1, 2, 20, 100))
            for at in range(second, until):
                changed = tasks.tick(at)
                is_full = chance.random() < 0.1 or at == 1
                stream.write(at, list(tasks.rows.values()) if is_full else changed, full=is_full)
            second = until
            since_ns = max(1, second - chance.choice((2, 5, 5, 20))) * SECOND_NS
            copied, anew = RingCopies.copy(stream.path, UTC_NS - 1 + since_ns), snapshot(stream.path)
            mine, whole = LongRing(copied, UTC_NS - 1 + since_ns), LongRing(anew)
            if table is MOMENT:
                assert rows_since(mine, since_ns) == rows_since(whole, since_ns)
            elif any(reading.full and reading.tick_ns < since_ns for reading in whole.readings):
                assert any(reading.full and reading.tick_ns < since_ns for reading in mine.readings)
                assert stood(mine, since_ns) == stood(whole, since_ns)
                assert rows_since(mine, since_ns) == rows_since(whole, since_ns)
            smaller += len(copied.image) < len(anew.image) * 3 // 4
    assert smaller


def rows_since(ring: LongRing, since_ns: int) -> set[tuple[Any, ...]]:
    """The rows of readings from a boot time on."""
    return {row for row in rows_of(ring) if row[0] >= since_ns}


def stood(ring: LongRing, at_ns: int) -> dict[tuple[int, int], tuple[Any, ...]]:
    """What each key that is there had before a boot time."""
    full_ns = max(reading.tick_ns for reading in ring.readings if reading.full and reading.tick_ns < at_ns)
    before = sorted(row for row in rows_of(ring) if full_ns <= row[0] < at_ns)
    return {(row[1], row[2]): row[3:] for row in before}


def rows_of(ring: LongRing) -> list[tuple[Any, ...]]:
    """Every row: its tick, its key, and its values."""
    (stretch,) = ring.stretches()
    columns = [stretch.ticks[stretch.tick_index()].tolist()]
    for metric in stretch.table.metrics:
        values = stretch.column(metric.name).tolist()
        texts = [*stretch.texts, None]
        columns.append([texts[-1 if value == ABSENT else value] for value in values] if metric.is_text else values)
    return list(zip(*columns, strict=True))


def test_a_ring_that_is_begun_anew_or_gone_is_another_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    writer = machine.start(0.5)
    (path,) = (tmp_path / "run").rglob("*.ring")
    with holdings.staying_open():
        writer.tick(range(1, 9))
        assert len(RingCopies.copy(str(path), NOON_NS).frames) > 8
        writer.ring.close()
        path.unlink()
        with pytest.raises(FileNotFoundError):
            RingCopies.copy(str(path), NOON_NS)
        machine.start(0.5, boot="c" * 32).tick([1])
        assert of_snapshot(RingCopies.copy(str(path), NOON_NS)).blocks[0].ticks.tolist() == [SECOND_NS]
    assert RingCopies.copy(str(path), NOON_NS) is not RingCopies.copy(str(path), NOON_NS)


def test_a_damaged_ring_is_copied_anew(tmp_path: Path) -> None:
    writer = Machine(tmp_path).start(0.5)
    (path,) = (tmp_path / "run").rglob("*.ring")
    with holdings.staying_open():
        writer.tick(range(1, 9))
        known = RingCopies.copy(str(path), NOON_NS)
        begin = HEADER_BYTES + known.end_offset
        writer.tick([9, 10])
        with path.open("r+b") as file:
            file.seek(begin + FRAME_BYTES)
            file.write(b"\xff" * 8)
        assert RingCopies.copy(str(path), NOON_NS).damages
        assert RingCopies.copy(str(path), NOON_NS).damages
