# SPDX-License-Identifier: Apache-2.0
"""The ring: whatever is written, every row still held comes back, and a row that comes back is right."""

import os
import random
import signal
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.errors import CorruptError, Error, ForeignError
from sysmond.ring import writer as ring_module
from sysmond.ring.frame import (
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    RING_BYTES_MIN,
    ROWS,
    TEXT_BYTES_MAX,
    TEXTS_MAX,
    VALUE_MAX,
    Identity,
    Layout,
    read_header,
)
from sysmond.ring.snapshot import fill, snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store.of_ring import Hole, Recording, SeriesKey, of_snapshot
from tests.faults.upgrade import of_later_version
from tests.support.order import rounds

SECOND = 10**9
WIDE = Table("wide", tuple(Metric(f"m{i}", "1", Semantics.GAUGE, "A number.") for i in range(20)), "thing")
SOLE = Table("sole", (Metric("n", "1", Semantics.COUNTER, "A count."), Metric("s", "text", Semantics.STATE, "A text.")))
LAYOUTS = (Layout(WIDE, SECOND), Layout(SOLE, SECOND))
IDENTITY = Identity("0123456789abcdef" * 2, "sampler", Sensitivity.PUBLIC, 42, 5)
FLIPS = 1000
KILLS = 30

Found = dict[tuple[SeriesKey, int], int]


@pytest.fixture
def path(runtime: Path) -> str:
    return str(runtime / "5.ring")


def make(path: str, capacity: int = RING_BYTES_MIN, *, stays: bool = False) -> RingWriter:
    if os.path.exists(path):
        os.unlink(path)
    return RingWriter(path, capacity, IDENTITY, LAYOUTS, stays=stays)


def values_of(recording: Recording) -> Found:
    """Every value by series and tick."""
    found = {}
    for block in recording.blocks:
        matrix = block.read(range(len(block.keys)))
        for key, row in zip(block.keys, matrix.tolist(), strict=True):
            found.update({(key, tick): value for tick, value in zip(block.ticks.tolist(), row, strict=True)})
    return {at: value for at, value in found.items() if value != ABSENT}


class Model:
    """What was put into a ring, to compare with what comes out."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.writer = make(path)
        self.tick = 0
        self.log: list[tuple[str, int, Found]] = []
        self.strings: dict[int, str] = {}
        self.wall_ns = 0

    def rows(self, things: int, base: int, word: str) -> None:
        """A tick of both tables."""
        self.tick += SECOND
        self.writer.clock(Relation(self.tick, self.tick + self.wall_ns, self.tick))
        names = tuple(f"thing{i}" for i in range(things))
        values = [base + i for i in range(20 * things)]
        self.writer.rows(0, self.tick, names, values)
        cells = [(SeriesKey("wide", metric.name, name), self.tick) for name in names for metric in WIDE.metrics]
        self.log.append(("wide", self.tick, dict(zip(cells, values, strict=True))))
        ident = self.writer.text(word)
        self.writer.rows(1, self.tick, ("",), [base, ident])
        row = {(SeriesKey("sole", "n", ""), self.tick): base, (SeriesKey("sole", "s", ""), self.tick): ident}
        self.log.append(("sole", self.tick, {at: value for at, value in row.items() if value != ABSENT}))
        self.strings[self.tick] = word

    def absence(self, detail: str) -> None:
        self.tick += SECOND
        self.writer.absence(0, self.tick, Cause.PROBE_FAILED, detail)

    def check(self) -> None:
        """What is held is exactly the newest of what was written, and all of it is explained."""
        taken = snapshot(self.path)
        assert taken.end_offset == self.writer._head
        assert not taken.damages
        recording = of_snapshot(taken)
        ring = recording_parts(recording)
        count = sum(taken.image[place + 8] == ROWS for place in taken.frames)
        held = self.log[len(self.log) - count :]
        assert ring == {at: value for _, _, row in held for at, value in row.items()}
        for table, tick, row in held:
            if table == "sole" and (ident := row.get((SeriesKey("sole", "s", ""), tick))) is not None:
                assert recording.texts[ident] == self.strings[tick]
        [relations] = recording.clocks.values()
        if held:
            assert relations[0].boottime_ns <= held[0][1], "the clock of the oldest row is known"


def recording_parts(recording: Recording) -> Found:
    assert all((np.diff(block.ticks) > 0).all() for block in recording.blocks)
    return values_of(recording)


class Step(NamedTuple):
    """Some ticks of one kind."""

    ticks: int
    things: int
    base: int
    word: str
    clock_step_ns: int
    absence: str | None


steps = st.lists(
    st.builds(
        Step,
        st.integers(1, 60),
        st.integers(0, 45),
        st.sampled_from([0, 7, -VALUE_MAX, VALUE_MAX - 2000]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
        st.sampled_from([0, 0, 5 * SECOND]),
        st.none() | st.text(st.characters(exclude_characters="\0"), max_size=300),
    ),
    min_size=1,
    max_size=12,
)


@rounds(12, 60)
def test_every_row_still_held_is_explained_and_right(rounds: int) -> None:
    path = f"/dev/shm/sysmond-test-{os.getpid()}.ring"

    @settings(max_examples=rounds)
    @given(steps)
    def holds(todo: list[Step]) -> None:
        model = Model(path)
        try:
            for step in todo:
                model.wall_ns += step.clock_step_ns
                for tick in range(step.ticks):
                    model.rows(step.things, step.base, f"{step.word}{tick % 3}")
                if step.absence is not None:
                    model.absence(step.absence)
                model.check()
        finally:
            os.unlink(path)

    holds()


def test_a_ring_keeps_its_promise_at_every_single_frame(path: str) -> None:
    model = Model(path)
    chance = random.Random(1)
    for tick in range(700):
        model.rows(chance.choice([0, 1, 3, 40]), tick, f"word{chance.randrange(400)}")
        if tick > 200 and tick % 5 == 0:
            model.check()
    assert model.writer._head > 10 * model.writer.capacity


def test_since_gives_each_row_once(path: str) -> None:
    model = Model(path)
    seen: Found = {}
    since = 0
    for tick in range(400):
        model.rows(2, tick, "x")
        if tick % 7 == 0:
            taken = snapshot(path, since)
            assert taken.lost == 0
            found = values_of(of_snapshot(taken))
            assert not found.keys() & seen.keys()
            seen.update(found)
            since = taken.end_offset
    seen.update(values_of(of_snapshot(snapshot(path, since))))
    assert seen == {at: value for _, _, row in model.log for at, value in row.items()}


def test_what_was_overwritten_since_is_counted(path: str) -> None:
    model = Model(path)
    model.rows(1, 0, "")
    since = snapshot(path).end_offset
    for tick in range(500):
        model.rows(2, tick, "")
    taken = snapshot(path, since)
    assert taken.lost > 0
    assert taken.lost + len(taken.image) == taken.end_offset - since


def test_a_text_that_nobody_uses_makes_room_for_others(path: str) -> None:
    model = Model(path)
    for tick in range(TEXTS_MAX + 900):
        model.rows(3, tick, f"text number {tick}")
    model.check()
    assert snapshot(path).dropped == 0


def test_too_many_texts_are_absent_and_counted(path: str) -> None:
    writer = make(path, 1 << 20)
    idents = [writer.text(str(number)) for number in range(TEXTS_MAX + 3)]
    assert idents.count(ABSENT) == 3
    assert writer.text("7") == idents[7]
    assert snapshot(path).dropped == 3


def test_long_texts_take_at_most_a_quarter_of_the_ring(path: str) -> None:
    writer = make(path)
    idents = [writer.text(f"{number:04}" + "x" * 5000) for number in range(20)]
    held = of_snapshot(snapshot(path)).texts
    assert 1 < len(held) < 5
    assert {ident for ident in idents if ident != ABSENT} == set(held)


def test_a_text_is_cut_between_characters_and_loses_closing_nuls(path: str) -> None:
    writer = make(path, 1 << 20)
    strings = {"a" + "€" * 2000: "a" + "€" * 1365, "a\0b\0\0": "a\0b", "\udcff\udc80": "\udcff\udc80", "": ""}
    idents = {string: writer.text(string) for string in strings}
    held = of_snapshot(snapshot(path)).texts
    assert {string: held[idents[string]] for string in strings} == strings
    assert all(len(held[ident].encode("utf-8", "surrogateescape")) <= TEXT_BYTES_MAX for ident in idents.values())


def test_two_texts_with_one_hash_have_two_ids(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "text_id", lambda encoded: VALUE_MAX)
    writer = make(path)
    one, other = writer.text("one"), writer.text("other")
    assert (one, other, writer.text("one")) == (VALUE_MAX, 0, VALUE_MAX)
    assert of_snapshot(snapshot(path)).texts == {one: "one", other: "other"}


def test_values_that_do_not_fit_are_absent_and_counted(path: str) -> None:
    writer = make(path)
    values = [2**64 - 1, -(2**63) - 1, 2**63 - 1, VALUE_MAX, -VALUE_MAX, ABSENT, *range(14)]
    assert writer.rows(0, SECOND, ("a",), values) == 3
    assert writer.rows(0, 2 * SECOND, ("a",), [VALUE_MAX + 1, -VALUE_MAX - 1, *values[3:], 1]) == 0
    [block] = of_snapshot(snapshot(path)).blocks
    expected = [[ABSENT, ABSENT, ABSENT, *values[3:]], [ABSENT, ABSENT, *values[3:], 1]]
    assert block.read(range(20)).T.tolist() == expected


def test_rows_too_many_for_the_ring_are_an_absence(path: str) -> None:
    writer = make(path)
    writer.rows(0, SECOND, ("a",), list(range(20)))
    many = tuple(f"{number:04}" for number in range(100))
    long = tuple(f"{number:0500}" for number in range(30))
    assert writer.rows(0, 2 * SECOND, many, [0] * 2000) == 2000
    assert writer.rows(0, 3 * SECOND, long, [0] * 600) == 600
    for tick in range(4, 400):
        writer.rows(0, tick * SECOND, ("a",), list(range(20)))
        writer.rows(0, tick * SECOND + 1, many, [0] * 2000)
    recording = of_snapshot(snapshot(path))
    assert {hole.cause for hole in recording.holes} == {Cause.DROPPED}
    assert {value for (key, _), value in values_of(recording).items() if key.metric == "m7"} == {7}
    assert snapshot(path).dropped == 2600 + 396 * 2000


def resident_bytes(path: str) -> int:
    """How much of a mapped file this process would wait for no more (/proc/self/smaps)."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(f" {path}" in line for line in lines)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def test_a_ring_that_stays_has_all_its_pages_from_the_beginning(path: str) -> None:
    capacity = 16 * RING_BYTES_MIN
    usual = make(path, capacity)
    assert resident_bytes(path) < capacity // 2
    usual.close()
    ring = make(path, capacity, stays=True)
    assert resident_bytes(path) >= capacity
    Path(path).unlink()
    ring.save()
    assert resident_bytes(path) >= capacity
    ring.close()


@pytest.mark.parametrize("names", [("a", "a"), ("a\0", "b"), ("\ud800", "b")])
def test_impossible_names_are_refused_and_harm_nothing(path: str, names: tuple[str, ...]) -> None:
    writer = make(path)
    for tick in (1, 2):
        with pytest.raises((Error, UnicodeEncodeError)):
            writer.rows(0, tick * SECOND, names, [1] * 40)
    with pytest.raises(Error, match="39 values for 2 instances"):
        writer.rows(0, SECOND, ("a", "b"), [1] * 39)
    writer.rows(0, 3 * SECOND, ("a", "b"), [1] * 40)
    assert {tick for _, tick in values_of(of_snapshot(snapshot(path)))} == {3 * SECOND}


def test_layouts_that_leave_no_room_for_rows_are_refused(path: str) -> None:
    table = Table("t", tuple(Metric(f"m{i}", "1", Semantics.GAUGE, "x" * 400) for i in range(30)))
    with pytest.raises(Error, match="layouts"):
        RingWriter(path, RING_BYTES_MIN, IDENTITY, [Layout(table, SECOND)])
    assert os.listdir(os.path.dirname(path)) == []


def numbered(number: int) -> Layout:
    return Layout(Table(f"table{number}", (Metric("n", "1", Semantics.COUNTER, "A count."),)), SECOND)


@pytest.mark.parametrize("interval_ns", [0, -1])
def test_a_layout_without_an_interval_is_damage_and_nothing_worse(path: str, interval_ns: int) -> None:
    ring = RingWriter(path, RING_BYTES_MIN, IDENTITY, [numbered(1)._replace(interval_ns=interval_ns)])
    ring.rows(0, 10**9, ("",), [1])
    with pytest.raises(CorruptError, match=f"an interval of {interval_ns} ns"):
        of_snapshot(snapshot(path))


def test_a_layout_that_comes_later_is_explained_for_as_long_as_its_rows_are_held(path: str) -> None:
    writer = make(path)
    writer.rows(0, SECOND, ("a",), list(range(20)))
    number = writer.add(numbered(7))
    assert (number, writer.add(numbered(7)), writer.add(LAYOUTS[1])) == (2, 2, 1)
    for tick in range(2, 3000):  # Far more than the ring holds.
        writer.rows(number, tick * SECOND, ("",), [tick])
        writer.rows(0, tick * SECOND, ("a",), list(range(20)))
    found = values_of(of_snapshot(snapshot(path)))
    ticks = [tick for key, tick in found if key == SeriesKey("table7", "n", "")]
    assert len(ticks) > 100
    assert all(found[SeriesKey("table7", "n", ""), tick] == tick // SECOND for tick in ticks)


def test_a_layout_that_is_retired_explains_its_rows_until_they_are_gone_and_gives_its_room_back(path: str) -> None:
    writer = make(path)
    room = writer._explaining_bytes, writer._layouts_bytes
    number, tick = -1, 0
    held: set[int] = set()
    for round_ in range(400):  # Of layouts alone the ring would have been full long ago.
        number = writer.add(numbered(round_))
        assert number == round_ + len(LAYOUTS)
        for _ in range(5):
            tick += 1
            writer.rows(number, tick * SECOND, (f"thing{round_}",), [tick])
        writer.retire(number)
        writer.retire(number)
        assert (writer._explaining_bytes, writer._layouts_bytes) == room
        if round_ % 20:
            continue
        held = {at // SECOND for _, at in values_of(of_snapshot(snapshot(path)))}
        assert held == set(range(min(held), tick + 1)), "every row held is explained"
    assert len(held) < tick


def test_layouts_that_outgrow_the_ring_are_refused_and_nothing_changes(path: str) -> None:
    writer = make(path)
    numbers = iter(range(10_000))
    with pytest.raises(Error, match="of layouts"):
        all(writer.add(numbered(number)) for number in numbers)
    assert next(numbers) > 10
    before = writer._head
    with pytest.raises(Error, match="of layouts"):
        writer.add(numbered(10_001))
    assert writer._head == before
    writer.retire(len(LAYOUTS))
    assert writer.add(numbered(10_001)) > len(LAYOUTS)


def test_a_layout_has_no_room_where_names_have_taken_it(path: str) -> None:
    writer = make(path)
    writer.rows(0, SECOND, ("x" * 8000,), list(range(20)))
    room = writer.capacity // 4 - writer._explaining_bytes
    writer.rows(1, SECOND, ("y" * (room - 100),), [1, 2])
    with pytest.raises(Error, match="no room for what explains table0"):
        writer.add(numbered(0))
    writer.rows(0, 2 * SECOND, ("a",), list(range(20)))
    assert writer.add(numbered(0)) == len(LAYOUTS)


def test_closing_is_seen_only_with_the_last_frame(path: str) -> None:
    writer = make(path)
    writer.mark(1)
    assert (snapshot(path).mark, snapshot(path).closed) == (2, False)
    writer.rows(1, SECOND, ("",), [1, 2])
    writer.close()
    assert (snapshot(path).mark, snapshot(path).closed) == (0, True)


# --- many at once, and sudden ends ----------------------------------------------------------------


def test_what_is_held_back_appears_in_one_piece_wherever_the_ring_ends(path: str) -> None:
    writer = make(path)
    shadow = make(f"{path}2.ring")
    for tick in range(1, 3000):
        seen = snapshot(path).end_offset
        writer.hold()
        for each in (writer, shadow):
            each.rows(0, tick, ("a", "b")[: 1 + tick % 2], [tick] * (1 + tick % 2) * len(LAYOUTS[0].table.metrics))
            each.absence(1, tick, Cause.PROBE_FAILED, "x" * (tick % 40))
        assert snapshot(path).end_offset == seen
        writer.commit()
    assert snapshot(path).image == snapshot(f"{path}2.ring").image


def test_rows_are_repeated_as_they_were_written_last(path: str) -> None:
    writer = make(path)
    width = len(LAYOUTS[0].table.metrics)
    writer.rows(0, 1, ("a",), list(range(width)))
    writer.repeat(0, 2)
    block = of_snapshot(snapshot(path)).blocks[0]
    assert block.ticks.tolist() == [1, 2]
    assert block.read(range(width)).tolist() == [[value, value] for value in range(width)]


def self_checking(tick: int) -> tuple[tuple[str, ...], list[int]]:
    """Rows whose every value follows from the tick."""
    things = 1 + tick // 50 % 5
    return tuple(f"thing{i}" for i in range(things)), [tick * 1_000_003 + i for i in range(20 * things)]


def check_rows(recording: Recording) -> list[int]:
    """Every row is whole and right; gives the ticks."""
    ticks = set()
    for block in recording.blocks:
        matrix = block.read(range(len(block.keys)))
        for column, tick_ns in enumerate(block.ticks.tolist()):
            names, values = self_checking(tick_ns)
            cells = {SeriesKey("wide", m.name, name): 0 for name in names for m in WIDE.metrics}
            expected = dict(zip(cells, values, strict=True))
            found = dict(zip(block.keys, matrix[:, column].tolist(), strict=True))
            assert {key: value for key, value in found.items() if value != ABSENT} == expected
            ticks.add(tick_ns)
    return sorted(ticks)


def write_for_ever(writer: RingWriter, report: int) -> None:
    tick = 0
    while True:
        tick += 1
        writer.rows(0, tick, *self_checking(tick))
        if report >= 0:
            os.write(report, struct.pack("q", tick))


def started_writer(path: str, report: int = -1) -> int:
    writer = make(path)
    child = os.fork()
    if child == 0:
        try:
            write_for_ever(writer, report)
        finally:
            os._exit(1)
    return child


def test_a_reader_that_is_lapped_never_sees_a_wrong_row(path: str) -> None:
    child = started_writer(path)
    try:
        rows = snapshots = last = 0
        reasons = set()
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            try:
                taken = snapshot(path)
            except CorruptError as overtaken:
                reasons.add(str(overtaken).rpartition(": ")[2])
                continue
            assert not taken.damages
            ticks = check_rows(of_snapshot(taken))
            if ticks:
                assert ticks == list(range(ticks[0], ticks[-1] + 1))
                assert ticks[-1] >= last
                last = ticks[-1]
            rows += len(ticks)
            snapshots += 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(f"{snapshots} snapshots, {rows} rows, while {last} were written")
    assert reasons <= {"overwritten faster than it can be read", "its head and tail do not belong together"}
    assert rows > 1000
    assert last > 1000


def test_a_writer_that_is_killed_leaves_every_row_it_finished(path: str) -> None:
    chance = random.Random(2)
    for _ in range(KILLS):
        reading, writing = os.pipe()
        child = started_writer(path, writing)
        os.close(writing)
        said = b""
        end_s = time.monotonic() + chance.uniform(0.002, 0.04)
        while time.monotonic() < end_s:
            said = (said + os.read(reading, 65536))[-8:] if len(said) % 8 == 0 else said
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(reading, 65536):
            said = (said + more)[-8:]
        os.close(reading)
        committed = struct.unpack("q", said)[0]
        ticks = check_rows(of_snapshot(snapshot(path)))
        assert ticks[-1] in {committed, committed + 1}
        assert ticks == list(range(ticks[0], ticks[-1] + 1))


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def damaged(path: str) -> tuple[str, bytes, Found]:
    """A ring that went round, its bytes, and what it holds."""
    writer = RingWriter(path, RING_BYTES_MIN, IDENTITY, [Layout(WIDE, 1), Layout(SOLE, 1)])
    for tick in range(1, 400):
        writer.rows(0, tick, *self_checking(tick))
        writer.rows(1, tick, ("",), [tick, writer.text(f"word {tick % 5}")])
        writer.clock(Relation(tick, tick, tick))
    content = Path(path).read_bytes()
    return path, content, values_of(of_snapshot(snapshot(path)))


@rounds(FLIPS // 50, FLIPS)
def test_a_flipped_bit_is_never_a_wrong_row(damaged: tuple[str, bytes, Found], rounds: int) -> None:
    path, content, whole = damaged
    chance = random.Random(3)
    outcomes = {"refused": 0, "less": 0, "same": 0}
    places = [*range(HEADER.size + 4), *range(256, 296)] * 2
    places += [chance.randrange(HEADER_BYTES, len(content)) for _ in range(rounds)]
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        Path(path).write_bytes(flipped)
        try:
            recording = of_snapshot(snapshot(path))
        except (CorruptError, ForeignError):
            outcomes["refused"] += 1
            continue
        found = values_of(recording)
        assert found.items() <= whole.items(), f"byte {place}"
        assert set(recording.texts.values()) <= {f"word {number}" for number in range(5)}
        assert found == whole or place >= HEADER_BYTES, f"byte {place} of the header"
        if found != whole:
            missing = {tick for _, tick in whole.keys() - found.keys()}
            covered = [hole for hole in recording.holes if hole.cause is Cause.DAMAGED_FILE]
            last = max(tick for _, tick in whole)
            assert recording.damage
            assert all(any(h.start_ns <= tick < h.end_ns for h in covered) or tick == last for tick in missing)
        outcomes["same" if found == whole else "less"] += 1
    assert outcomes["less"], outcomes
    assert outcomes["same"], outcomes
    assert not outcomes["refused"], "a header stands twice"


def damaged_hole(path: str, table: str, number: int, since: int = 0) -> Hole:
    """What is told of a table when a frame of the ring, counted among those of rows, is damaged."""
    taken = snapshot(path)
    rows = [place for place in taken.frames if taken.image[place + 8] == ROWS]
    content = bytearray(Path(path).read_bytes())
    content[HEADER_BYTES + rows[number] + FRAME_BYTES] ^= 1
    Path(path).write_bytes(content)
    [hole] = [each for each in of_snapshot(snapshot(path, since)).holes if each.table == table]
    return hole


def test_what_is_damaged_at_the_end_is_a_hole_from_its_own_tick_on_and_names_the_ring(path: str) -> None:
    writer = RingWriter(path, RING_BYTES_MIN, IDENTITY, [Layout(WIDE, SECOND), Layout(SOLE, 60 * SECOND)])
    writer.clock(Relation(1, 1, 1))
    for tick in range(1, 9):
        writer.rows(0, tick * SECOND, *self_checking(tick))
    writer.rows(1, 8 * SECOND, ("",), [1, ABSENT])
    hole = damaged_hole(path, "sole", -1)
    assert hole.start_ns <= 8 * SECOND < hole.end_ns
    assert (hole.cause, hole.detail) == (Cause.DAMAGED_FILE, f"{path}: damaged in 1 place")


def test_what_is_damaged_first_after_a_seal_is_a_hole_since_the_tick_before(path: str) -> None:
    writer = RingWriter(path, RING_BYTES_MIN, IDENTITY, [Layout(WIDE, SECOND)])
    writer.clock(Relation(1, 1, 1))
    for tick in range(10, 19):
        writer.rows(0, tick * SECOND, *self_checking(1))
    since = writer.written
    writer.rows(0, 19 * SECOND, *self_checking(1))
    hole = damaged_hole(path, "wide", -1, since)
    assert (hole.start_ns, hole.end_ns) == (18 * SECOND, 20 * SECOND)


def test_damage_before_the_offset_asked_for_hides_nothing_behind_it(path: str) -> None:
    writer = RingWriter(path, RING_BYTES_MIN, IDENTITY, [Layout(WIDE, SECOND)])
    writer.clock(Relation(1, 1, 1))
    for tick in range(1, 9):
        writer.rows(0, tick * SECOND, *self_checking(tick))
    since = snapshot(path).end_offset
    writer.rows(0, 9 * SECOND, *self_checking(9))
    whole = snapshot(path, since)
    content = Path(path).read_bytes()
    for place in snapshot(path).frames[:-1]:
        if place < since:
            damaged = bytearray(content)
            at = HEADER_BYTES + place
            damaged[at + 2 : at + 10] = b"\xff" * 8  # Its length, checksum and kind.
            Path(path).write_bytes(damaged)
            taken = snapshot(path, since)
            assert (taken.end_offset, taken.damages) == (whole.end_offset, []), place
            assert of_snapshot(taken).blocks[0].ticks.tolist() == [9 * SECOND], place


def test_rows_after_damage_are_sealed_and_damage_at_the_end_is_read_again(damaged: tuple[str, bytes, Found]) -> None:
    path, content, _ = damaged
    taken = snapshot(path)
    last = taken.frames[-1]
    head = taken.end_offset
    place = HEADER_BYTES + (head - (len(taken.image) - last)) % (len(content) - HEADER_BYTES)
    flipped = bytearray(content)
    flipped[place + FRAME_BYTES] ^= 1
    Path(path).write_bytes(flipped)
    assert snapshot(path).end_offset == head - (len(taken.image) - last)


@pytest.mark.parametrize("length", [0, 7, 100, HEADER_BYTES, HEADER_BYTES + 5000, -1])
def test_a_truncated_ring_is_refused(damaged: tuple[str, bytes, Found], length: int) -> None:
    path, content, _ = damaged
    Path(path).write_bytes(content[:length])
    with pytest.raises((CorruptError, ForeignError)):
        snapshot(path)


def test_a_foreign_file_and_another_version_are_refused(damaged: tuple[str, bytes, Found]) -> None:
    path, content, _ = damaged
    for bad in (b"x" * 9000, of_later_version(content)):
        Path(path).write_bytes(bad)
        with pytest.raises(ForeignError):
            snapshot(path)
        with pytest.raises(ForeignError):
            fill(path)


@pytest.mark.parametrize("capacity", [0, 8, 1 << 60, 2**64 - 8, RING_BYTES_MIN + 4, RING_BYTES_MIN * 2])
def test_an_impossible_capacity_is_refused(damaged: tuple[str, bytes, Found], capacity: int) -> None:
    path, content, _ = damaged
    header = bytearray(content[: HEADER.size])
    header[16:24] = capacity.to_bytes(8, "little")
    header += zlib.crc32(header).to_bytes(4, "little")
    Path(path).write_bytes(bytes(header) + content[len(header) :])
    with pytest.raises(CorruptError):
        snapshot(path)


@pytest.mark.parametrize(
    ("head", "tail"), [(2**63, 0), (0, 8), (2**63, 2**63 - 65536), (24, 0), (2**64 - 8, 2**64 - 16)]
)
def test_with_impossible_live_words_the_frames_tell_where_they_are(
    damaged: tuple[str, bytes, Found], head: int, tail: int
) -> None:
    path, content, whole = damaged
    Path(path).write_bytes(content[:256] + struct.pack("=QQ", head, tail) + content[272:])
    assert values_of(of_snapshot(snapshot(path))) == whole


def test_a_whole_frame_of_nonsense_is_said_to_be_corrupt(path: str) -> None:
    for kind, payload in [
        (1, b"[]"),
        (2, b"\0"),
        (2, struct.pack("=II", 0, 7) + b"a"),
        (4, b"whim\0"),
        (6, b"1"),
        (5, b""),
    ]:
        writer = make(path)
        writer._append(kind, 9 if kind != 4 else 0, 1, payload)
        with pytest.raises(CorruptError):
            of_snapshot(snapshot(path))


def test_rows_of_a_wrong_length_are_said_to_be_corrupt(path: str) -> None:
    writer = make(path)
    writer.rows(0, SECOND, ("a",), [0] * 20)
    writer._append(ROWS, 1, 2 * SECOND, bytes(8))
    with pytest.raises(CorruptError):
        of_snapshot(snapshot(path))


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077])
@pytest.mark.parametrize(("sensitivity", "mode"), [(Sensitivity.PUBLIC, 0o644), (Sensitivity.RESTRICTED, 0o640)])
def test_modes_are_those_of_the_class_whatever_the_umask(
    path: str, umask: int, sensitivity: Sensitivity, mode: int
) -> None:
    before = os.umask(umask)
    try:
        RingWriter(path, RING_BYTES_MIN, IDENTITY._replace(sensitivity=sensitivity), LAYOUTS)
    finally:
        os.umask(before)
    assert os.stat(path).st_mode & 0o7777 == mode
    identity, capacity = read_header(Path(path).read_bytes(), path)
    assert (identity.sensitivity, capacity) == (sensitivity, RING_BYTES_MIN)


def test_what_a_killed_writer_left_unfinished_is_removed(path: str) -> None:
    Path(f"{os.path.dirname(path)}/4.ring.new").write_bytes(b"half")
    make(path)
    assert os.listdir(os.path.dirname(path)) == ["5.ring"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of one mebibyte."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_tmpfs_is_an_error_at_once_and_leaves_nothing(small: Path) -> None:
    path = str(small / "5.ring")
    with pytest.raises(OSError, match="No space left"):
        RingWriter(path, 2 << 20, IDENTITY, LAYOUTS)
    assert list(small.iterdir()) == []
    model = Model(path)
    (small / "rest").write_bytes(bytes((1 << 20) - RING_BYTES_MIN - 8192))
    with pytest.raises(OSError, match="No space left"), open(small / "more", "wb") as file:
        file.write(bytes(65536))
    for tick in range(500):  # The ring has its room; a sparse file would now be a SIGBUS.
        model.rows(3, tick, "")
    model.check()
