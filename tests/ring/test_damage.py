# SPDX-License-Identifier: Apache-2.0
"""What is damaged in a ring costs what it hit and no more; what is lost is named by answers and by sealing."""

import os
from pathlib import Path

import pytest

from sysmond.archiver import seal_job
from sysmond.base import clock
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.ring import skipped_rings
from sysmond.ring.frame import (
    EXPLAINING,
    HEAD,
    HEADER,
    HEADER_BYTES,
    LAYOUT,
    MIRROR_BYTES,
    NAMES,
    RELATION,
    ROWS,
    Identity,
    Layout,
    frame_bytes,
)
from sysmond.ring.leftovers import remove_sealed
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import PROCESS
from tests.hostile import rings
from tests.support.longarchive import BOOTED_NS, Row, ring
from tests.support.order import rounds

SECONDS = 30


def process(pid: int) -> Row:
    return {"pid": pid, "start": 10**9, "state": "S", "comm": f"p{pid}"}


@pytest.fixture
def path(folders: Folders) -> str:
    """The ring of a long table whose writer was killed."""
    create_classes(f"{folders.runtime}/archiver")
    readings = [(100 + second, second % 10 == 0, [process(5), process(6)]) for second in range(SECONDS)]
    made = ring(folders, PROCESS, readings)
    content = bytearray(Path(made).read_bytes())
    for at in (0, MIRROR_BYTES):
        content[at + (HEAD + 2) * 8 : at + (HEAD + 3) * 8] = bytes(8)  # As if it had not been closed.
    Path(made).write_bytes(content)
    return made


def answered(folders: Folders) -> int:
    start_ns = BOOTED_NS + 100 * 10**9
    return len(Archive(folders).records("process", start=start_ns, end=start_ns + SECONDS * 10**9, step="1s").records)


def frames(path: str, *kinds: int) -> list[tuple[int, int]]:
    """Where in the file frames of these kinds begin, and how long they are."""
    taken = snapshot(path)
    found = []
    for place in taken.frames:
        kind, _, _, payload = taken.frame(place)
        if kind in kinds:
            found.append((HEADER_BYTES + place, frame_bytes(len(payload))))
    return found


def flip(path: str, *places: int) -> None:
    content = bytearray(Path(path).read_bytes())
    for place in places:
        content[place] ^= 1
    Path(path).write_bytes(content)


def test_what_explains_and_the_header_survive_a_flipped_bit(folders: Folders, path: str) -> None:
    whole = answered(folders)
    assert whole
    places = [begin + at for begin, length in frames(path, *EXPLAINING) for at in (0, 4, 8, 12, 16, 24, length - 8)]
    places += [*range(0, HEADER.size + 4, 5), *range(HEAD * 8, HEAD * 8 + 24)]
    for place in places:
        flip(path, place)
        assert answered(folders) == whole, f"byte {place}"
        flip(path, place)


@pytest.mark.parametrize("kind", [LAYOUT, RELATION])
def test_what_explains_and_is_damaged_twice_is_named(folders: Folders, path: str, kind: int) -> None:
    flip(path, *(begin + 16 for begin, _ in frames(path, kind)))
    with pytest.raises(Error, match=rf"{path}: .*damaged"):
        answered(folders)
    told: dict[str, str] = {}
    seal_job.seal(folders, unread=told.__setitem__)
    assert path in told[path]
    remove_sealed(folders, "sampler")
    with pytest.raises(Error, match=rf"{path}: .*damaged"):
        answered(folders)


def test_a_ring_of_a_long_table_that_cannot_be_read_is_a_gap_behind_its_files(folders: Folders, path: str) -> None:
    seal_job.seal(folders)
    os.unlink(path)
    later = ring(folders, PROCESS, [(100 + SECONDS + second, not second, [process(7)]) for second in range(9)])
    os.truncate(later, 10_000)
    start_ns = BOOTED_NS + 100 * 10**9
    result = Archive(folders).records("process", start=start_ns, end=start_ns + 60 * 10**9)
    assert any(later in said for said in result.warnings)
    [gap] = [gap for gap in result.gaps if gap.cause is Cause.DAMAGED_FILE]
    assert gap.end_ns > start_ns + (SECONDS + 9) * 10**9
    assert later in gap.detail


@pytest.fixture
def wide(folders: Folders) -> str:
    """The ring of two wide tables whose writer was killed just now."""
    create_classes(f"{folders.runtime}/sampler")
    create_classes(f"{folders.runtime}/background")
    now_ns = clock.boottime_ns() // 10**9 * 10**9
    started_ns = now_ns - SECONDS * 10**9
    layouts = [Layout(Table(name, (Metric("n", "1", Semantics.GAUGE, "A number."),)), 10**9) for name in ("a", "b")]
    paths = {part: f"{folders.runtime}/{part}/public/{started_ns}.ring" for part in ("sampler", "background")}
    for part, tables in (("sampler", layouts), ("background", layouts[:1])):
        identity = Identity(clock.boot_id(), part, Sensitivity.PUBLIC, 1, started_ns)
        writer = RingWriter(paths[part], 2**17, identity, tables)
        writer.clock(clock.relation())
        for tick_ns in range(started_ns, now_ns, 10**9):
            for number in range(len(tables)):
                writer.rows(number, tick_ns, ("x",) if part == "sampler" else ("y",), [tick_ns])
        writer.close(is_over=False)
    return paths["sampler"]


def test_one_table_that_is_damaged_costs_the_others_no_answer(folders: Folders, wide: str) -> None:
    flip(wide, *(begin + 40 for begin, _ in frames(wide, NAMES)[-2:]))  # Both of the second table.
    result = Archive(folders).select("a", "b", raw=True)
    assert [column.path for column in result.columns] == ["a/n@x", "a/n@y"]
    assert len(result.times_ns) == SECONDS
    assert any(wide in said for said in result.warnings)
    [gap] = [gap for gap in result.gaps if gap.table == "b"]
    assert gap.cause is Cause.DAMAGED_FILE
    assert wide in gap.detail
    assert gap.start_ns <= result.times_ns[0] < result.times_ns[-1] < gap.end_ns
    with pytest.raises(Error, match=wide):
        Archive(folders).select("b", raw=True)


def test_a_ring_that_cannot_be_read_at_all_is_a_gap_of_its_tables(folders: Folders, wide: str) -> None:
    os.truncate(wide, 10_000)
    result = Archive(folders).select("*", "b", raw=True)
    assert [column.path for column in result.columns] == ["a/n@y"]
    assert any(wide in said for said in result.warnings)
    told = {gap.table: gap for gap in result.gaps if gap.cause is Cause.DAMAGED_FILE and wide in gap.detail}
    assert told.keys() == {"a", "b"}
    assert all(gap.start_ns <= result.times_ns[0] < result.times_ns[-1] < gap.end_ns for gap in told.values())


def test_rows_that_are_damaged_are_a_gap_and_sealing_keeps_a_copy(folders: Folders, path: str) -> None:
    middle = frames(path, 8)[SECONDS // 2][0]
    flip(path, middle + 40)
    start_ns = BOOTED_NS + 100 * 10**9
    for _ in ("in the ring", "sealed"):
        result = Archive(folders).records("process", start=start_ns, end=start_ns + SECONDS * 10**9)
        assert [gap.cause for gap in result.gaps if gap.cause is Cause.DAMAGED_FILE]
        told: dict[str, str] = {}
        seal_job.seal(folders, unread=told.__setitem__)
    [kept] = os.listdir(f"{folders.runtime}/archiver/{skipped_rings.FOLDER}")
    assert Path(f"{folders.runtime}/archiver/{skipped_rings.FOLDER}/{kept}").read_bytes() == Path(path).read_bytes()


def test_the_first_rows_of_a_writer_are_missing_from_the_second_it_began_in(folders: Folders) -> None:
    """The archiver's first rows are of the whole second before it began to write."""
    create_classes(f"{folders.runtime}/archiver")
    now_ns = clock.boottime_ns() // 10**9 * 10**9
    first_ns = now_ns - SECONDS * 10**9
    layout = Layout(Table("a", (Metric("n", "1", Semantics.GAUGE, "A number."),)), 10**9)
    path = f"{folders.runtime}/archiver/public/{first_ns + 826_718_974}.ring"
    identity = Identity(clock.boot_id(), "archiver", Sensitivity.PUBLIC, 1, first_ns + 826_718_974)
    writer = RingWriter(path, 2**16, identity, [layout])
    writer.clock(clock.relation())
    for tick_ns in (first_ns, now_ns):
        writer.rows(0, tick_ns, ("x",), [tick_ns])
    writer.close(is_over=False)
    [whole] = Archive(folders).select("a", raw=True).times_ns[:1]
    flip(path, frames(path, ROWS)[0][0] + 36)
    result = Archive(folders).select("a", raw=True, start=int(whole) - 10**9, end=int(whole) + 120 * 10**9)
    assert int(whole) not in result.times_ns
    assert [gap for gap in result.gaps if gap.cause is Cause.DAMAGED_FILE and gap.start_ns <= whole < gap.end_ns]


@rounds(6, 20)
def test_rings_of_a_killed_daemon_tell_the_truth_or_name_what_is_missing(tmp_path: Path, rounds: int) -> None:
    found = rings.run(rounds, 7)
    assert found["problems"] == []
    assert found["damages"] == rounds
    assert found["named"]
