# SPDX-License-Identifier: Apache-2.0
"""Long tables on a lane: their records in rings of their own, full readings when due, and what goes wrong."""

import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sysmond.base.model import Lane, Packing, Sensitivity
from sysmond.probe import Host, Probe, Records, Table, counter, state
from sysmond.records import reference
from sysmond.ring.frame import FULL, MORE, RECORDS, RECORDS_HEAD
from sysmond.ring.leftovers import culprits
from sysmond.ring.progress import ring_files, stream_files
from sysmond.ring.snapshot import snapshot
from sysmond.sampler.rings import LASTING_BYTES_MIN
from sysmond.sampler.source import FULL_S
from tests.support.bench import SECOND, Bench, Many, steady

THINGS = Table(
    "things",
    (state("number", "Which."), counter("used", "B", "How much.")),
    "thing",
    "Things.",
    Packing("<I 4x q", ("number",)),
)
STRIDE = struct.calcsize(THINGS.packing.format if THINGS.packing else "")


class Frame(NamedTuple):
    tick_ns: int
    number: int
    flags: int
    lost: int
    walked: int
    rows: bytes


def frames(path: str, stride: int = STRIDE) -> list[Frame]:
    taken, found = snapshot(path), []
    for kind, _, tick_ns, payload in map(taken.frame, taken.frames):
        if kind == RECORDS:
            number, flags, lost, walked = RECORDS_HEAD.unpack_from(payload)
            found.append(Frame(tick_ns, number, flags, lost, walked, payload[RECORDS_HEAD.size :]))
            assert len(found[-1].rows) >= stride * number
    return found


class Things:
    """So many things, of which some change at every reading."""

    def __init__(self, number: int, changing: int = 1) -> None:
        self.number, self.changing, self.asked = number, changing, list[bool]()

    def records(self, host: Host, full: bool) -> Records:
        self.asked.append(full)
        some = range(self.number if full else self.changing)
        rows = b"".join(struct.pack("<I4xq", each, len(self.asked)) for each in some)
        return Records(rows, full, 0, self.number)

    def probe(self, **fields: Any) -> Probe:
        return Probe(THINGS, records=self.records)._replace(**fields)


def stream(bench: Bench, writer: str = "sampler", name: str = "public/things") -> list[str]:
    folder = bench.runtime / writer / name
    return sorted(str(path) for path in folder.glob("*.ring"))


def test_a_long_table_has_a_ring_of_its_own_that_begins_with_all_rows(bench: Bench) -> None:
    things = Things(20)
    bench.offer("good", steady)
    bench.take(things.probe())
    sampler = bench.sampler()
    for tick in range(1, 5):
        sampler.tick(tick * SECOND)
    (ring,) = stream(bench)
    found = frames(ring)
    assert [(frame.tick_ns // SECOND, frame.number, frame.flags, frame.walked) for frame in found] == [
        (1, 20, FULL, 20),
        (2, 1, 0, 20),
        (3, 1, 0, 20),
        (4, 1, 0, 20),
    ]
    assert struct.unpack("<I4xq", found[2].rows) == (0, 3)
    assert frames(bench.rings()[0]) == []
    folders = sampler._settings.folders
    assert stream_files(folders) == [ring]
    assert ring not in ring_files(folders)
    sampler.close()


def test_all_rows_are_read_again_in_time_and_where_the_ring_fills(bench: Bench) -> None:
    things = Things(100, 10)
    bench.take(things.probe())
    sampler = bench.sampler()
    for tick in range(1, FULL_S + 3):
        sampler.tick(tick * SECOND)
    assert [at for at, full in enumerate(things.asked) if full] == [0, FULL_S]
    things.changing, before = 100, len(things.asked)
    per_tick = 100 * STRIDE
    ticks = LASTING_BYTES_MIN // per_tick
    for tick in range(FULL_S + 3, FULL_S + 3 + ticks):
        sampler.tick(tick * SECOND)
    again = [at for at, full in enumerate(things.asked[before:]) if full]
    assert len(again) == 2  # Each time three eighths of it were written.
    assert again[0] < ticks * 0.45
    sampler.close()


def test_a_ring_that_is_outgrown_is_followed_by_a_larger_one(bench: Bench) -> None:
    things = Things(10)
    bench.take(things.probe())
    sampler = bench.sampler(ring_bytes=16 << 20)
    sampler.tick(SECOND)
    things.number = 20_000
    for tick in range(2, 6):
        sampler.tick((FULL_S + tick) * SECOND)
    first, second = stream(bench)
    assert sum(frame.number for frame in frames(first)) == 11
    assert sum(frame.number for frame in frames(second)) == 20_002
    assert snapshot(first).closed
    assert os.path.getsize(second) > 4 * 20_000 * STRIDE
    pieces = [frame for frame in frames(second) if frame.tick_ns == (FULL_S + 3) * SECOND]
    assert [bool(frame.flags & MORE) for frame in pieces] == [True] * (len(pieces) - 1) + [False]
    assert max(len(frame.rows) for frame in pieces) <= 128 * 1024  # What is copied stays in the memory of the lane.
    sampler.close()


def test_a_burst_of_what_is_new_goes_into_a_larger_ring_with_all_the_rest(bench: Bench) -> None:
    things = Things(10)
    bench.take(things.probe())
    sampler = bench.sampler(ring_bytes=16 << 20)
    for tick in (1, 2):
        sampler.tick(tick * SECOND)
    things.number = things.changing = 40_000  # More than the ring has bytes for.
    sampler.tick(3 * SECOND)
    things.changing = 1
    sampler.tick(4 * SECOND)
    first, second = stream(bench)
    assert [(frame.tick_ns // SECOND, frame.number) for frame in frames(first)] == [(1, 10), (2, 1)]
    assert snapshot(first).closed
    found = frames(second)
    assert {frame.tick_ns // SECOND for frame in found} == {3, 4}
    assert found[0].flags & FULL
    assert sum(frame.number for frame in found) == 40_001
    assert things.asked == [True, False, False, True, False]
    assert sampler.own.dropped == 0
    sampler.close()


def test_a_larger_ring_makes_no_reading_come_early(bench: Bench) -> None:
    things = Things(10)
    bench.offer("good", steady)
    bench.take(things.probe(interval_s=5.0))
    sampler = bench.sampler(ring_bytes=16 << 20)
    for tick in range(1, 17):
        things.number = things.changing = 10 if tick < 10 else 40_000
        sampler.tick(tick * SECOND)
    first, second = stream(bench)
    ticks = {frame.tick_ns // SECOND for ring in (first, second) for frame in frames(ring)}
    assert sorted(ticks) == [1, 5, 10, 15]
    assert {frame.tick_ns // SECOND for frame in frames(second)} == {10, 15}
    sampler.close()


def test_a_pace_that_a_ring_does_not_hold_for_a_minute_is_given_a_larger_one(bench: Bench) -> None:
    things = Things(100)
    bench.take(things.probe())
    sampler = bench.sampler(ring_bytes=16 << 20)
    sampler.tick(SECOND)
    (first,) = stream(bench)
    things.changing = os.path.getsize(first) // STRIDE // 20  # Overwritten in 20 s.
    for tick in range(2, 40):
        sampler.tick(tick * SECOND)
    _, second = stream(bench)
    rows = [frame for ring in stream(bench) for frame in frames(ring)]
    assert sorted({frame.tick_ns // SECOND for frame in rows}) == list(range(1, 40))
    assert snapshot(first).lost == 0
    assert os.path.getsize(second) > 2 * os.path.getsize(first)
    sampler.close()


def test_a_ring_that_would_not_last_until_the_next_seal_is_followed_once_by_one_that_does(bench: Bench) -> None:
    things = Things(100)
    bench.take(things.probe())
    sampler = bench.sampler(ring_bytes=16 << 20)
    sampler.tick(SECOND)
    (first,) = stream(bench)
    things.changing = os.path.getsize(first) // STRIDE // 300  # Half full in 150 s.
    for tick in range(2, 400):
        sampler.tick(tick * SECOND)
    _, second = stream(bench)
    assert 1.2 < os.path.getsize(second) / (1200 * things.changing * STRIDE) < 2
    rows = [frame for ring in stream(bench) for frame in frames(ring)]
    assert {frame.tick_ns // SECOND for frame in rows} >= set(range(200, 400))
    sampler.close()


def test_what_is_about_its_moment_goes_over_into_the_larger_ring_as_it_is(bench: Bench) -> None:
    taken: list[int] = []

    def records(_host: Host, full: bool) -> Records:
        taken.append(len(taken))
        return Records(struct.pack("<I4xq", len(taken), 0) * 60_000, full, 0, 60_000)

    passing = THINGS._replace(packing=THINGS.packing and THINGS.packing._replace(lasting=False))
    bench.take(Probe(passing, records=records))
    sampler = bench.sampler(ring_bytes=16 << 20)
    for tick in range(1, 9):
        sampler.tick(tick * SECOND)
    first, second = stream(bench)
    found = [*frames(first), *frames(second)]
    assert len(taken) == 8  # What was taken is not taken again.
    assert sum(frame.number for frame in found) == 8 * 60_000
    assert [snapshot(ring).lost for ring in (first, second)] == [0, 0]
    sampler.close()


def test_what_is_more_than_a_ring_may_hold_is_lost_and_counted(bench: Bench) -> None:
    things = Things(100_000)
    bench.take(things.probe())
    sampler = bench.sampler(ring_bytes=1 << 20)
    for tick in range(1, 4):
        sampler.tick(tick * SECOND)
    rings = stream(bench)
    assert len(rings) == 1
    found = [frame for frame in frames(rings[0]) if frame.tick_ns == SECOND]
    count = sum(frame.number for frame in found)
    assert count + sum(frame.lost for frame in found) == 100_000
    assert sampler.own.dropped == 100_000 - count > 0
    sampler.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Records(b"x"), "1 bytes; expected records of 16 bytes"),
        ([], "no records; expected one piece without rows"),
    ],
)
def test_what_is_no_reading_is_an_absence(bench: Bench, given: Records | Sequence[Records], said: str) -> None:
    bench.take(Things(1).probe(records=lambda _host, full: given))
    sampler = bench.sampler()
    sampler.tick(SECOND)
    (ring,) = stream(bench)
    assert said.encode() in snapshot(ring).image
    assert next(source for source in sampler._roster.sources).cost.failures == 1
    sampler.close()


def test_texts_come_with_the_frame_that_refers_to_them(bench: Bench) -> None:
    table = Table(
        "said",
        (state("number", "Which."), state("text", "What.")._replace(unit="text")),
        "thing",
        "Texts.",
        Packing("<q Q", ("number",)),
    )
    long = b"y" * 4000

    def pieces(first: int) -> Records:
        rows = b"".join(struct.pack("<qQ", first + each, reference(each * 4000, 4000)) for each in range(10))
        return Records(rows, True, 0, 20, long * 10)

    bench.take(Probe(table, records=lambda _host, full: [pieces(0), pieces(10)]))
    sampler = bench.sampler()
    sampler.tick(SECOND)
    (ring,) = stream(bench, name="public/said")
    found = frames(ring)
    assert [(frame.number, frame.flags) for frame in found] == [(10, FULL | MORE), (10, FULL)]
    for frame in found:
        blob = frame.rows[10 * 16 :]
        _, at = struct.unpack_from("<qQ", frame.rows, 9 * 16)
        assert blob[at & 0xFFFFFFFF :][: at >> 32] == long
    sampler.close()


def test_the_table_that_kills_its_lane_is_named(bench: Bench) -> None:
    def dies(host: Host, full: bool) -> Records:
        raise KeyboardInterrupt

    things = Things(5)
    bench.take(things.probe())
    sampler = bench.sampler()
    sampler.tick(SECOND)
    sampler._roster.sources[0].probe = things.probe(records=dies)
    with pytest.raises(KeyboardInterrupt):
        sampler.tick(2 * SECOND)
    assert culprits(str(bench.runtime / "sampler"), 0) == {"things"}


def test_in_the_background_and_restricted(bench: Bench) -> None:
    things = Things(7)
    bench.take(things.probe(lane=Lane.BACKGROUND, sensitivity=Sensitivity.RESTRICTED, interval_s=5.0))
    sampler = bench.sampler(Lane.BACKGROUND)
    sampler.tick(5 * SECOND)
    sampler.tick(10 * SECOND)
    (ring,) = stream(bench, "background", "restricted/things")
    assert [frame.number for frame in frames(ring)] == [7, 1]
    assert os.stat(ring).st_mode & 0o007 == 0
    assert os.stat(os.path.dirname(ring)).st_mode & 0o7777 == os.stat(Path(ring).parent.parent).st_mode & 0o7777
    sampler.close()


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(runtime, monkeypatch)


def test_a_source_keeps_what_it_gave_until_that_is_in_the_ring(bench: Bench) -> None:
    kept: list[int] = []

    def release() -> None:
        (ring,) = stream(bench)
        kept.append(sum(frame.number for frame in frames(ring)))

    def records(host: Host, full: bool) -> Records:
        return Records(struct.pack("<I4xq", 1, 2), release=release)

    bench.take(Things(1).probe(records=records))
    sampler = bench.sampler()
    for tick in range(1, 4):
        sampler.tick(tick * SECOND)
    assert kept == [1, 2, 3]
    sampler.close()


def test_a_ring_has_a_name_of_its_own_though_the_first_is_sealed_and_gone(bench: Bench) -> None:
    things = Things(10)
    bench.take(things.probe(deadline_s=60.0))
    sampler = bench.sampler(ring_bytes=64 << 20)
    sampler.tick(SECOND)
    (first,) = stream(bench)
    names = [first]
    for tick, number in ((2, 20_000), (3, 300_000)):
        things.number = things.changing = number
        sampler.tick(tick * SECOND)
        (name,) = set(stream(bench)) - {names[-1]}
        names.append(name)
        os.unlink(names[-2])
    started = [snapshot(names[-1]).identity.started_ns, *(int(Path(name).stem) for name in reversed(names))]
    assert started[0] == started[1] > started[2] > started[3]
    sampler.close()


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A sampler whose tmpfs has room for few rings."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0755", "none", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    yield Bench(tmp_path, monkeypatch)
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_instances_that_become_ever_more_have_no_smaller_ring_follow(short: Bench) -> None:
    many = Many(10)
    short.offer("many", many)
    sampler = short.sampler(ring_bytes=16 << 20)
    for tick in range(1, 12):
        sampler.tick(tick * SECOND)
        many.count = 40_000 + tick
    sizes = [os.path.getsize(ring) for ring in short.rings()]
    assert len(sizes) == 2
    assert sizes == sorted(sizes)
    sampler.close()


def test_what_outgrows_a_ring_again_and_again_has_no_smaller_one_follow(short: Bench) -> None:
    things = Things(10)
    short.take(things.probe(deadline_s=60.0))
    sampler = short.sampler(ring_bytes=16 << 20)
    for tick in range(1, 5):
        sampler.tick(tick * SECOND)
        things.number = things.changing = 10_000 * 3**tick
    (ring,) = stream(short)
    assert [frame.tick_ns // SECOND for frame in frames(ring)][-1] == 4
    sampler.close()
