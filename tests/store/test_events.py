# SPDX-License-Identifier: Apache-2.0
"""What happened is told once, in order, wherever it lies by then: rings, RAM, rows on disk, the tier of events."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from sysmond.archiver import merge_job, retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, EVENTS, TIERS_NS, Sensitivity
from sysmond.base.result import BoolArray, Event, Int64Array
from sysmond.errors import Error, UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.plan.retention import Limit
from sysmond.ring.frame import EVENT, EVENT_BYTES_MAX, FRAME_BYTES, REST, START, Identity, Layout, encode_event
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store import archive, pins, ring_events, tiers
from sysmond.store.files.dense_file import EventsOfFile
from sysmond.store.of_ring import of_snapshot
from sysmond.store.pins import Pin
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOTED_NS, Row, put, stretch
from tests.support.machine import BOOT, NOON_NS, OLDER, TABLE, Machine, Writer

DAY_NS = 86_400 * SECOND_NS
OPEN_FILE = "sysmond.store.files.opening.events"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without anything."""
    return Machine(tmp_path)


def mark(writer: Writer, second: int, text: str = "here", **more: str | int) -> Event:
    """Let something happen at a second of boot time; as answers have it."""
    writer.ring.event(second * SECOND_NS, "mark", "", text, **more)  # type: ignore[arg-type]
    time_ns = more.get("happened_ns", second * SECOND_NS + writer.wall_ns)
    return Event(int(time_ns), "mark", "", text, **more)  # type: ignore[arg-type]


def folder(machine: Machine, tier: str = EVENTS, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> Path:
    """Where files of a tier lie."""
    return Path(archive.disk_folder(machine.folders, sensitivity, tier))


def forget_rows(machine: Machine) -> None:
    """Remove everything but what happened."""
    for sensitivity in Sensitivity:
        for tier in TIERS_NS:
            shutil.rmtree(folder(machine, tier, sensitivity), ignore_errors=True)


def moves_of(machine: Machine) -> list[Callable[[], None]]:
    """What becomes of rows: they are sealed, flushed, then rolled up and merged."""

    def merge() -> None:
        merge_job.merge(machine.folders)

    return [machine.seal, machine.flush, merge]


def test_an_event_is_told_once_wherever_it_lies(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 121))
    here = mark(writer, 105)
    assert machine.archive.events() == [here]
    machine.seal(forget_progress=True)
    assert machine.archive.events() == [here]
    machine.seal()
    machine.flush(keep_ram=True)
    assert machine.archive.events() == [here]
    for _ in range(2):
        merge_job.merge(machine.folders)
        assert machine.archive.events() == [here]
    machine.reboot()
    forget_rows(machine)
    assert len(list(folder(machine).glob("*.h5"))) == 1
    assert machine.archive.events() == [here]


def test_of_what_the_tier_has_no_other_file_is_opened(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = machine.start(99)
    for begin in range(100, 200, 20):
        writer.tick(range(begin, begin + 20))
        mark(writer, begin + 5)
        machine.seal()
        machine.flush()
    opened: list[str] = []

    def noting(path: str, *choose: Callable[[Int64Array], BoolArray]) -> EventsOfFile:
        opened.append(os.path.basename(os.path.dirname(path)))
        return EventsOfFile(path, *choose)

    monkeypatch.setattr(OPEN_FILE, noting)
    assert len(machine.archive.events()) == 5
    assert opened == ["1s"] * 5
    opened.clear()
    rollup_job.roll_up(machine.folders, DENSE, lambda *_: None, set())
    assert len(machine.archive.events()) == 5
    assert opened == [EVENTS]


def test_files_written_long_before_a_range_are_not_opened(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 120))
    here = mark(writer, 105)
    machine.seal()
    machine.flush()
    (path,) = machine.files()
    os.utime(path, ns=(NOON_NS + 130 * SECOND_NS,) * 2)
    assert machine.archive.events(here.time_ns) == [here]
    monkeypatch.setattr(OPEN_FILE, None)
    assert machine.archive.events(NOON_NS + 2 * DAY_NS) == []


def test_order_is_that_of_boots_and_boot_time_whatever_the_clock_says(machine: Machine) -> None:
    older = machine.start(9, boot=OLDER, wall_ns=NOON_NS - DAY_NS)
    older.tick(range(10, 20))
    first = mark(older, 15, "older")
    machine.seal()
    writer = machine.start(99)
    writer.tick(range(100, 110))
    second = mark(writer, 105, "before")
    writer.wall_ns -= 3600 * SECOND_NS
    writer.tick(range(110, 120))
    third = mark(writer, 115, "after")
    step = Event(NOON_NS - 3490 * SECOND_NS, "clock step", "", "-3600.000000 s")
    expected = [first, second, step, third]
    assert third.time_ns < second.time_ns
    for move in moves_of(machine):
        assert machine.archive.events() == expected
        assert list(machine.archive.select("disk/queue").events) == expected
        move()
    assert machine.archive.events() == expected
    assert machine.archive.events(boot=-1) == machine.archive.events(boot=OLDER) == [first]
    assert machine.archive.events(boot=0) == expected[1:]
    assert machine.archive.events(NOON_NS, boot=OLDER) == []
    assert machine.archive.events(NOON_NS, boot=BOOT) == [second]
    with pytest.raises(UsageError, match="no such boot"):
        machine.archive.events(boot="f" * 32)


def test_what_was_known_later_stands_where_it_happened(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 120))
    early, late = mark(writer, 104, "early"), mark(writer, 110, "late")
    at_ns = NOON_NS + 107 * SECOND_NS
    told = mark(writer, 111, "a login", detail="from afar\nat night", happened_ns=at_ns, known_from="wtmp")
    before = mark(writer, 112, "long ago", happened_ns=NOON_NS - DAY_NS, known_from="wtmp")
    for move in moves_of(machine):
        assert machine.archive.events() == [before, early, told, late]
        move()
    machine.reboot()
    forget_rows(machine)
    assert machine.archive.events() == [before, early, told, late]
    assert (told.detail, told.known_from, early.happened_ns) == ("from afar\nat night", "wtmp", ABSENT)
    assert machine.archive.events(at_ns, at_ns + 1) == [told]


def test_they_are_found_by_kind_and_subject(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 120))
    for kind, subject in (("mark", ""), ("died", "sampler"), ("died", "bus"), ("stuck", "sampler")):
        writer.ring.event(110 * SECOND_NS, kind, subject, "")
    found = machine.archive
    assert [event.subject for event in found.events(kind="died")] == ["bus", "sampler"]
    assert {event.kind for event in found.events(subject="s*r")} == {"died", "stuck"}
    assert found.events(kind="d") == []


@pytest.mark.parametrize("moves", range(4))
def test_a_restricted_event_reaches_nobody_else(machine: Machine, moves: int) -> None:
    open_ring, secret = machine.start(99), machine.start(98, sensitivity=Sensitivity.RESTRICTED)
    for writer in (open_ring, secret):
        writer.tick(range(100, 120))
    here, hidden = mark(open_ring, 105), mark(secret, 106, "hidden")
    for move in moves_of(machine)[:moves]:
        move()
    public = Archive(machine.folders, classes=(Sensitivity.PUBLIC,))
    assert public.events() == [here]
    assert list(public.select("disk/queue").events) == [here]
    assert machine.archive.events() == [here, hidden]


def test_rows_of_long_tables_have_them(machine: Machine) -> None:
    rows: list[tuple[int, Row]] = [
        (0, {"pid": 1, "start": 0, "comm": "init"}),
        (1, {"pid": 1, "start": 0, "comm": "init", "cpu": 9}),
    ]
    put(machine.folders, stretch(PROCESS, (100, 130), rows), 1)
    writer, secret = (
        machine.start(99, wall_ns=BOOTED_NS),
        machine.start(98, wall_ns=BOOTED_NS, sensitivity=Sensitivity.RESTRICTED),
    )
    for ring in (writer, secret):
        ring.tick(range(100, 120))
    here, _ = mark(writer, 105), mark(secret, 106)
    for start_s, expected in ((100, (here,)), (106, ())):
        told = machine.archive.records(
            "process", start=BOOTED_NS + start_s * SECOND_NS, end=BOOTED_NS + 200 * SECOND_NS
        )
        assert told.events == expected
        assert told.sensitivity is Sensitivity.PUBLIC
        assert len(told.times_ns)


def boots_of_days(machine: Machine, number: int, marks: int = 1) -> list[Event]:
    """So many boots, a day each, with events; as rows on disk, rolled up one by one."""
    made = []
    for day in range(number):
        writer = machine.start(9, boot=f"{day:032x}", wall_ns=NOON_NS + day * DAY_NS)
        writer.tick(range(10, 30))
        made += [mark(writer, 12 + at % 8, f"{day} {at}" + os.urandom(8).hex()) for at in range(marks)]
        machine.seal()
        machine.flush()
        rollup_job.roll_up(machine.folders, DENSE, lambda *_: None, set())
        machine.reboot()
    return made


def test_files_of_many_boots_become_few(machine: Machine) -> None:
    made = boots_of_days(machine, 20)
    assert len(list(folder(machine).glob("*.h5"))) == 20
    merge_job.merge(machine.folders)
    assert len(list(folder(machine).glob("*.h5"))) < 10
    assert machine.archive.events() == made
    forget_rows(machine)
    assert machine.archive.events() == made
    assert machine.archive.events(boot=-3) == [made[-4]]


def keeper(machine: Machine, limit: Limit, pins_bytes: int = 0, now_ns: int = NOON_NS + 30 * DAY_NS) -> list[str]:
    """Make room in the tier of events."""
    keep = retention_job.Keeper(
        machine.folders, {EVENTS: limit}, pins_bytes, relation=lambda: Relation(now_ns, now_ns, now_ns)
    )
    return keep.make_room(EVENTS, 0)


def test_the_oldest_go_where_the_budget_is_used_up(machine: Machine) -> None:
    made = boots_of_days(machine, 6)
    sizes = [path.stat().st_size for path in folder(machine).glob("*.h5")]
    forget_rows(machine)
    assert keeper(machine, Limit(sum(sizes))) == []
    assert len(keeper(machine, Limit(sum(sizes) - 1))) == 1
    assert machine.archive.events() == made[1:]


def test_the_oldest_go_where_they_are_too_old_and_stay_where_they_are_pinned(machine: Machine) -> None:
    made = boots_of_days(machine, 6)
    forget_rows(machine)
    for day, path in enumerate(sorted(folder(machine).glob("*.h5"))):
        os.utime(path, ns=(NOON_NS + day * DAY_NS + 60 * SECOND_NS,) * 2)
    pins.add(machine.folders.state, [Pin(NOON_NS + DAY_NS, NOON_NS + DAY_NS + 3600 * SECOND_NS, "why", "me")])
    now_ns = NOON_NS + 8 * DAY_NS
    assert len(keeper(machine, Limit(10**6, 5 * DAY_NS // 2), 10**6, now_ns)) == 2
    assert machine.archive.events() == [made[1], *made[3:]]
    assert keeper(machine, Limit(10**6, 60 * 365 * DAY_NS), 10**6, now_ns) == []


def test_rows_go_only_when_their_events_are_kept(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 120))
    here = mark(writer, 105)
    machine.seal()
    machine.flush()
    machine.reboot()
    Path(machine.folders.runtime, "plan.json").write_text("{}")
    keep = retention_job.keeper(machine.folders)
    keep._limits = {**keep._limits, "1s": Limit(1)}
    assert len(keep.make_room("1s", 0)) == 1
    assert machine.archive.events() == [here]


def test_an_archive_of_before_tells_by_its_tiers_and_keeps_that(machine: Machine) -> None:
    made = boots_of_days(machine, 3)
    shutil.rmtree(folder(machine))
    for path in machine.files():
        path.unlink()
    assert machine.archive.events() == made
    merge_job.merge(machine.folders)
    (path,) = folder(machine).glob("*.h5")
    assert tiers.is_name(path.name)
    forget_rows(machine)
    assert machine.archive.events() == made


def test_a_damaged_file_of_events_is_named_and_rows_tell_instead(machine: Machine) -> None:
    made = boots_of_days(machine, 3)
    path = sorted(folder(machine).glob("*.h5"))[1]
    path.write_bytes(path.read_bytes()[:-100])
    found = machine.archive
    assert found.events() == made
    assert [str(path) in said for said in found.warnings] == [True]
    forget_rows(machine)
    assert machine.archive.events() == [made[0], made[2]]


def test_texts_are_cut_and_odd_ones_kept(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 120))
    odd = mark(writer, 105, "\x1b[31m\x07 caf\udce9 \n end")
    long = mark(writer, 106, "ä" * 4000)
    cut = long._replace(text="ä" * (EVENT_BYTES_MAX // 2))
    with pytest.raises(Error, match="expected no NUL"):
        mark(writer, 107, "a\0b")
    for move in moves_of(machine):
        assert machine.archive.events() == [odd, cut]
        move()
    assert machine.archive.events() == [odd, cut]


def test_a_text_that_looks_like_a_frame_is_no_event(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 110))
    ring = writer.ring
    real = mark(writer, 105, "real")
    # The text is a frame, with the offset and the checksum of the place where it is going to stand.
    place = snapshot(ring.path).end_offset + FRAME_BYTES + 8
    payload = encode_event("died", "sampler", "forged".ljust(11))
    assert not len(payload) % 8
    rest = REST.pack(EVENT, 0, 0, place, SECOND_NS) + payload
    ring._append(EVENT, 0, 106 * SECOND_NS, b"mark\0\0xx" + START.pack(len(rest) + 8, crc32(rest)) + rest)
    assert ring_events._picked(ring.path, 0) is None
    assert [event.kind for event in machine.archive.events()] == ["mark", "mark"]
    assert machine.archive.events()[0] == real


@pytest.mark.parametrize("seed", range(6))
def test_events_that_are_picked_out_are_those_that_a_walk_finds(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, SECOND_NS)
    ring = RingWriter(f"{tmp_path}/1.ring", 1 << 16, identity, [Layout(TABLE, SECOND_NS)])
    for second in range(1, 3000):
        ring.clock(Relation(second * SECOND_NS, second * SECOND_NS + second // 900 * DAY_NS, second * SECOND_NS))
        ring.rows(0, second * SECOND_NS, ("sda",), [second, chance.randrange(9), ring.text("one")])
        if chance.random() < 0.1:
            ring.event(second * SECOND_NS, "mark", "", "x" * chance.randrange(300))
        if not second % 500:
            since = chance.choice([0, snapshot(ring.path).end_offset])
            expected = of_snapshot(snapshot(ring.path, since))
            found = ring_events._picked(ring.path, since)
            assert found is not None
            assert list(found.events) == list(expected.events)
            assert set(found.relations) <= set(expected.clocks[BOOT])
            assert found.relations[-1] == expected.clocks[BOOT][-1]


def test_a_damaged_ring_gives_what_can_be_read(tmp_path: Path) -> None:
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, SECOND_NS)
    ring = RingWriter(f"{tmp_path}/1.ring", 1 << 16, identity, [Layout(TABLE, SECOND_NS)])
    ring.clock(Relation(SECOND_NS, NOON_NS, SECOND_NS))
    for second in range(1, 100):
        ring.rows(0, second * SECOND_NS, ("sda",), [second, 1, ABSENT])
        ring.event(second * SECOND_NS, "mark", "", str(second))
    content = bytearray(Path(ring.path).read_bytes())
    content[content.index(b"mark\0\x0050")] ^= 1
    Path(ring.path).write_bytes(content)
    found = ring_events.read(ring.path)
    assert [event.text for event in found.events] == [str(second) for second in range(1, 100) if second != 50]
    assert "damaged in 1 place" in found.damage


def test_there_is_nothing_where_nothing_was_recorded(tmp_path: Path) -> None:
    assert Archive(Folders(f"{tmp_path}/state", f"{tmp_path}/run")).events() == []
