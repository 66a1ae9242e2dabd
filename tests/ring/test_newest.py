# SPDX-License-Identifier: Apache-2.0
"""The follower of the rings: whatever is written and however often it looks, what it has is right and newest."""

import os
import random
import signal
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.machine.folders import Folders
from sysmond.ring.frame import FRAME_BYTES, HEADER_BYTES, NAMES, RING_BYTES_MIN, ROWS, Identity, Layout
from sysmond.ring.newest import TEXTS_REMEMBERED, Follower, Happening, Recent
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from tests.support.order import examples

SECOND = 10**9
WIDE = Table("wide", tuple(Metric(f"m{i}", "1", Semantics.GAUGE, "A number.") for i in range(10)), "thing")
SOLE = Table("sole", (Metric("n", "1", Semantics.COUNTER, "A count."), Metric("s", "text", Semantics.STATE, "A text.")))
LAYOUTS = (Layout(WIDE, SECOND), Layout(SOLE, SECOND))
BOOT = "0123456789abcdef" * 2
KEPT = 5
LOOKS = 3000
FLIPS = 400


class Written(NamedTuple):
    tick_ns: int
    names: tuple[str, ...]
    values: tuple[int, ...]


class Source:
    """A writer with a memory."""

    def __init__(
        self, runtime: Path, started: int = 1, sensitivity: Sensitivity = Sensitivity.PUBLIC, writer: str = "sampler"
    ) -> None:
        folder = runtime / writer / sensitivity
        folder.mkdir(parents=True, exist_ok=True)
        self.path = str(folder / f"{started}.ring")
        self.ring = RingWriter(self.path, RING_BYTES_MIN, Identity(BOOT, writer, sensitivity, 1, started), LAYOUTS)
        self.log: dict[str, list[Written]] = {"wide": [], "sole": []}
        self.tick_ns = started * SECOND

    def tick(self, things: int, base: int, word: str) -> None:
        self.tick_ns += SECOND
        self.ring.clock(Relation(self.tick_ns, self.tick_ns + 77, self.tick_ns))
        names = tuple(f"thing{number}" for number in range(things))
        wide = tuple(base + number for number in range(things * len(WIDE.metrics)))
        self.ring.rows(0, self.tick_ns, names, wide)
        sole = (base, self.ring.text(word))
        self.ring.rows(1, self.tick_ns, ("",), sole)
        self.log["wide"].append(Written(self.tick_ns, names, wide))
        self.log["sole"].append(Written(self.tick_ns, ("",), sole))

    def held(self, table: int) -> set[int]:
        """The ticks of a table that the ring still holds, by the reader of whole rings."""
        taken = snapshot(self.path)
        frames = [taken.frame(place) for place in taken.frames]
        names = {ident: payload for kind, ident, _, payload in frames if kind == NAMES}
        return {
            tick_ns
            for kind, ident, tick_ns, _ in frames
            if kind == ROWS and int.from_bytes(names[ident][:4], "little") == table
        }


def follower(runtime: Path, *sensitivities: Sensitivity, ticks: int = KEPT) -> Follower:
    return Follower(Folders("/nowhere", str(runtime)), sensitivities=sensitivities or tuple(Sensitivity), ticks=ticks)


def rows(recent: Recent) -> list[Written]:
    return [Written(row.tick_ns, row.names, row.values) for row in recent.rows]


steps = st.lists(
    st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(0, 2**40), st.sampled_from(["a", "ä" * 40, "z"])),
    max_size=8,
)


@settings(max_examples=examples(60))
@given(plan=steps)
def test_every_row_is_seen_once_unless_it_was_overwritten(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, int, int, str]]
) -> None:
    runtime = tmp_path_factory.mktemp("run")
    source = Source(runtime)
    following = follower(runtime)
    seen: dict[str, list[Written]] = {"wide": [], "sole": []}
    looked_at, behind, said = 0, 0, ""
    for ticks, things, base, word in plan:
        for each in range(ticks):
            source.tick(things, base + each, word)
            said = word
        now = following.read()
        lapped = source.ring._tail > looked_at > 0
        looked_at = source.ring._head
        for table, name in enumerate(("wide", "sole")):
            new = source.log[name][behind:]
            held = source.held(table)
            seen[name] += [each for each in new if each.tick_ns in held] if lapped or not behind else new
            found = rows(now.tables[name][0]) if name in now.tables else []
            assert found == seen[name][-KEPT:]
        behind = len(source.log["sole"])
        if behind:
            last = source.log["sole"][-1]
            assert now.tick_ns == last.tick_ns
            assert now.value("sole", "n") == last.values[0]
            assert now.text("sole", "s") == said or last.values[1] == ABSENT
            assert now.wall_offset_ns == 77
    following.close()


def test_rows_that_are_overwritten_while_they_are_read_are_never_wrong(runtime: Path) -> None:
    """A writer at full speed on the smallest ring: every row that is taken follows from its tick."""
    source = Source(runtime)
    source.tick(3, 7, "a")
    pid = os.fork()
    if pid == 0:
        number = 0
        while True:
            number += 1
            source.ring.rows(0, number, tuple(f"t{i}" for i in range(1 + number % 3)), [number] * 10 * (1 + number % 3))
    following = follower(runtime, ticks=64)
    taken, last = 0, 0
    try:
        looks = 0
        while looks < LOOKS or taken < 2:
            looks += 1
            for row in following.read().tables["wide"][0].rows:
                assert row.tick_ns == 2 * SECOND or set(row.values) == {row.tick_ns}
                assert len(row.values) == 10 * len(row.names)
            newest = following.read().tables["wide"][0].rows[-1].tick_ns
            taken += newest not in {last, 2 * SECOND}
            last = newest
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_look_that_finds_nothing_gives_the_same_answer(runtime: Path) -> None:
    source = Source(runtime)
    source.tick(1, 1, "a")
    following = follower(runtime)
    assert following.read() is following.read()
    before = following.read()
    source.tick(1, 2, "a")
    assert following.read() is not before


def test_absences_events_and_marks_are_seen(runtime: Path) -> None:
    source = Source(runtime)
    following = follower(runtime)
    source.tick(1, 1, "a")
    source.ring.event(3 * SECOND, "mark", "disk", "here")
    source.ring.absence(0, 4 * SECOND, Cause.NO_SOURCE, "gone")
    source.ring.mark(1)
    now = following.read()
    assert now.absences == [("wide", Cause.NO_SOURCE, "gone")]
    assert following.marks == {"sampler": "sole"}
    assert following.events() == [Happening(3 * SECOND, "mark", "disk", "here", Sensitivity.PUBLIC)]
    assert following.events() == []
    source.ring.unmark()
    source.tick(1, 2, "a")
    assert following.read().absences == []
    assert following.marks == {}


def test_a_successor_is_found_and_the_rest_of_its_predecessor_read(runtime: Path) -> None:
    source = Source(runtime)
    source.tick(1, 1, "a")
    following = follower(runtime)
    following.read()
    source.tick(1, 2, "a")
    source.ring.close()
    successor = Source(runtime, started=9)
    successor.tick(1, 3, "b")
    assert rows(following.read().tables["wide"][0]) == [*source.log["wide"], *successor.log["wide"]]
    os.unlink(source.path)
    os.unlink(successor.path)
    assert rows(following.read().tables["wide"][0])[-1] == successor.log["wide"][-1], "what was known last stays"
    third = Source(runtime, started=20)
    third.tick(1, 4, "c")
    assert following.read().value("sole", "n") == 4


def test_a_ring_of_a_writer_that_comes_later_is_found(runtime: Path) -> None:
    following = follower(runtime)
    assert following.read().tick_ns is None
    Source(runtime, writer="background").tick(1, 1, "a")
    assert following.read().tick_ns == 2 * SECOND


def test_of_two_writers_of_a_table_the_newest_comes_first(runtime: Path) -> None:
    old, new = Source(runtime), Source(runtime, writer="background")
    old.tick(1, 1, "a")
    new.tick(1, 2, "a")
    new.tick(1, 3, "a")
    following = follower(runtime)
    assert following.read().value("sole", "n") == 3
    for base in (5, 6):
        old.tick(1, base, "a")
    assert following.read().value("sole", "n") == 6


def test_restricted_rings_are_seen_where_asked_for(runtime: Path) -> None:
    Source(runtime, sensitivity=Sensitivity.RESTRICTED).tick(1, 5, "secret")
    assert follower(runtime, Sensitivity.PUBLIC).read().tables == {}
    found = follower(runtime, *Sensitivity).read().tables["sole"]
    assert [each.sensitivity for each in found] == [Sensitivity.RESTRICTED]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_ring_that_we_may_not_read_is_left_out(runtime: Path) -> None:
    Source(runtime, sensitivity=Sensitivity.RESTRICTED).tick(1, 5, "secret")
    Source(runtime).tick(1, 6, "open")
    os.chmod(runtime, 0o755)  # noqa: S103  as the daemon's own folder has it
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        following = follower(runtime)
        os._exit([each.sensitivity for each in following.read().tables["sole"]] != [Sensitivity.PUBLIC])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_damage_costs_its_own_frame_only(runtime: Path) -> None:
    source = Source(runtime)
    source.tick(1, 1, "a")
    following = follower(runtime)
    following.read()
    end = source.ring._head
    source.tick(1, 2, "a")
    source.tick(1, 3, "a")
    with open(source.path, "r+b") as file:
        file.seek(HEADER_BYTES + end % source.ring.capacity + FRAME_BYTES)
        file.write(b"\xff")
    now = following.read()
    assert [row.tick_ns for row in now.tables["wide"][0].rows] == [2 * SECOND, 4 * SECOND]
    assert [row.tick_ns for row in now.tables["sole"][0].rows] == [2 * SECOND, 3 * SECOND, 4 * SECOND]


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(HEADER_BYTES)])
def test_what_is_no_ring_is_waited_out(runtime: Path, content: bytes) -> None:
    (runtime / "sampler/public").mkdir(parents=True)
    (runtime / "sampler/public/1.ring").write_bytes(content)
    following = follower(runtime)
    assert following.read().tick_ns is None
    Source(runtime, started=5).tick(1, 1, "a")
    assert following.read().tick_ns == 6 * SECOND


@pytest.mark.parametrize("left_bytes", [HEADER_BYTES, HEADER_BYTES + 100])
def test_a_ring_that_is_cut_short_while_it_is_followed_stops_nobody(runtime: Path, left_bytes: int) -> None:
    source = Source(runtime)
    source.tick(1, 1, "a")
    following = follower(runtime)
    assert following.read().tick_ns == 2 * SECOND
    source.tick(1, 2, "a")
    os.truncate(source.path, left_bytes)
    following.read()
    other = Source(runtime, started=5)
    other.tick(1, 1, "a")
    assert following.read().tick_ns == 6 * SECOND


def test_a_pipe_in_place_of_a_ring_stops_nobody(runtime: Path) -> None:
    (runtime / "sampler/public").mkdir(parents=True)
    os.mkfifo(runtime / "sampler/public/1.ring")
    assert follower(runtime).read().tick_ns is None


def test_names_and_texts_that_are_gone_take_no_room(runtime: Path) -> None:
    source = Source(runtime)
    following = follower(runtime)
    for number in range(TEXTS_REMEMBERED + 500):
        source.tick(number % 3, number, f"text {number}")
        if number % 7 == 0:
            following.read()
    now = following.read()
    assert len(following._texts) <= TEXTS_REMEMBERED
    place = following._places[0]
    assert place.ring is not None
    assert len(place.ring.instances) <= 4
    assert now.text("sole", "s") in {f"text {TEXTS_REMEMBERED + 499}", ""}


def test_an_interval_that_changes_and_comes_again_is_that_of_the_newest_row(runtime: Path) -> None:
    source = Source(runtime)
    following = follower(runtime)
    source.tick(1, 1, "a")
    faster = source.ring.add(Layout(SOLE, SECOND // 10))
    for number, (layout, interval_ns) in enumerate([(1, SECOND), (faster, SECOND // 10), (1, SECOND)], start=5):
        source.ring.rows(layout, number * SECOND, ("",), [number, ABSENT])
        [recent] = following.read().tables["sole"]
        assert recent.layout.interval_ns == interval_ns
        assert recent.rows[-1].values[0] == number


def test_no_flipped_bit_makes_a_wrong_row_or_stops_anybody(runtime: Path) -> None:
    source = Source(runtime)
    for number in range(40):
        source.tick(number % 5, number, "ab"[number % 2])
    right = {name: set(log) for name, log in source.log.items()}
    whole = Path(source.path).read_bytes()
    chance = random.Random(4)
    for _ in range(FLIPS):
        place = chance.choice([chance.randrange(HEADER_BYTES), chance.randrange(len(whole))])
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        Path(source.path).write_bytes(damaged)
        following = follower(runtime)
        for table, several in following.read().tables.items():
            assert {row for each in several for row in rows(each)} <= right[table]
        following.close()
