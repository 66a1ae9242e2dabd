# SPDX-License-Identifier: Apache-2.0
"""Sealing and merging: nothing is lost, nothing is changed, whatever was interrupted where."""

import os
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysmond.archiver import merge_job, retention_job, rollup_job, seal_job
from sysmond.archiver.coding import DENSE, Coding
from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.timespec import DAY_NS
from sysmond.errors import CorruptError, Error
from sysmond.machine.folders import Folders, create, create_classes
from sysmond.ring.frame import FRAME_BYTES, HEADER_BYTES, RING_BYTES_MIN, ROWS, Identity, Layout
from sysmond.ring.progress import Progress, Sealed, ring_files
from sysmond.ring.snapshot import Snapshot, snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store import archive, dense, tiers
from sysmond.store.archive import Name
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment, encode
from sysmond.store.of_ring import Hole, MemoryBlock, Recording, SeriesKey, Strand, coalesce, of_snapshot
from tests.support.order import examples

SECOND = 10**9
BOOT = "a" * 32
CPU = Table("cpu", (Metric("user", "s", Semantics.COUNTER, "Time."), Metric("mhz", "Hz", Semantics.GAUGE, "Speed.")))
DISK = Table("disk", (Metric("read", "B", Semantics.COUNTER, "Bytes."),), "device")
LAYOUTS = (Layout(CPU, SECOND), Layout(DISK, SECOND), Layout(Table("slow", DISK.metrics), 10 * SECOND))
UTC_NS = 20_000 * DAY_NS

Found = dict[tuple[str, SeriesKey, int], int]


class Part:
    """A writer of rings, and what it wrote."""

    def __init__(self, folders: Folders, started: int = 5, **how: Any) -> None:
        writer, sensitivity = how.get("writer", "sampler"), how.get("sensitivity", Sensitivity.PUBLIC)
        self.boot = how.get("boot", BOOT)
        identity = Identity(self.boot, writer, sensitivity, 1, started)
        path = f"{folders.runtime}/{writer}/{sensitivity}/{started}.ring"
        self.ring = RingWriter(path, RING_BYTES_MIN, identity, how.get("layouts", LAYOUTS))
        self.written: Found = {}

    def tick(self, tick: int) -> None:
        self.cpu(tick)
        self.disk(tick)
        if tick % 10 == 0:
            self._rows(2, tick, ("",), [tick])

    def cpu(self, tick: int) -> None:
        self.ring.clock(Relation(tick * SECOND, UTC_NS + tick * SECOND, tick * SECOND))
        if tick % 17 == 3:
            self.ring.absence(0, tick * SECOND, Cause.PROBE_FAILED, f"OSError: process {tick} is gone")
        else:
            self._rows(0, tick, ("cpu0", "cpu1"), [tick * 7, 2000 - tick, tick * 9 % 1000, ABSENT])

    def disk(self, tick: int) -> None:
        names = ("sda", "sdb") if tick // 20 % 2 else ("sda",)
        self._rows(1, tick, names, [tick**3 + i for i in range(len(names))])

    def _rows(self, table: int, tick: int, names: tuple[str, ...], values: list[int]) -> None:
        self.ring.rows(table, tick * SECOND, names, values)
        columns = LAYOUTS[table].table
        keys = [SeriesKey(columns.name, metric.name, name) for name in names for metric in columns.metrics]
        for key, value in zip(keys, values, strict=True):
            if value != ABSENT:
                self.written[self.boot, key, tick * SECOND] = value


def values_of(recording: Recording) -> Found:
    found: Found = {}
    for block in recording.blocks:
        for key, row in zip(block.keys, block.read(range(len(block.keys))).tolist(), strict=True):
            for tick, value in zip(block.ticks.tolist(), row, strict=True):
                at = (block.strand.boot, key, tick)
                if value != ABSENT:
                    assert found.get(at, value) == value
                    found[at] = value
    return found


def recordings(folder: str) -> list[Recording]:
    """Every current segment of a folder, read to memory."""
    found = []
    for name in archive.names(folder):
        with Segment(f"{folder}/{name.file}") as opened:
            blocks = [
                MemoryBlock(b.strand, b.ticks, b.keys, b.read(range(len(b.keys))), b.closed)
                for b in opened.recording.blocks
            ]
            found.append(opened.recording._replace(blocks=blocks))
    return found


def stored(folder: str) -> Found:
    found: Found = {}
    for recording in recordings(folder):
        found.update(values_of(recording))
    return found


def ram(folders: Folders, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> str:
    return archive.ram_folder(folders, sensitivity)


def disk(folders: Folders, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> str:
    return archive.disk_folder(folders, sensitivity)


# --- sealing --------------------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(st.lists(st.sampled_from(["cpu", "disk", "both", "seal", "seal and die", "restart", "end"]), max_size=40))
def test_whatever_is_interrupted_every_row_is_sealed_once_or_more(todo: list[str]) -> None:
    folder = Path(f"/dev/shm/sysmond-jobs-{os.getpid()}")
    made = Folders(str(folder / "state"), str(folder / "run"))
    create(made, os.geteuid())
    for part in ("archiver", "sampler"):
        create_classes(f"{made.runtime}/{part}")
    try:
        parts = [Part(made)]
        for tick, step in enumerate([*todo, "seal"], 10):
            match step:
                case "cpu":
                    parts[-1].cpu(tick)
                case "disk":
                    parts[-1].disk(tick)
                case "both":
                    parts[-1].tick(tick)
                case "restart":
                    parts.append(Part(made, tick * SECOND))
                case "end":
                    parts[-1].ring.close()
                    parts.append(Part(made, tick * SECOND))
                case "seal":
                    seal_job.seal(made)
                case _:
                    before = Progress.read(made)
                    seal_job.seal(made)
                    before.write(made)  # As if it had died before it could note how far it was.
        assert stored(ram(made)) == {at: value for part in parts for at, value in part.written.items()}
    finally:
        shutil.rmtree(folder)


def test_a_seal_takes_only_what_is_new(folders: Folders) -> None:
    part = Part(folders)
    for tick in range(100):
        part.tick(tick)
        if tick % 20 == 10:
            seal_job.seal(folders)
            seal_job.seal(folders)
    seal_job.seal(folders)
    spans = [(b.ticks[0], b.ticks[-1]) for r in recordings(ram(folders)) for b in r.blocks if len(b.keys) > 1]
    assert len(spans) == 6, "nothing new gives no file"
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    assert stored(ram(folders)) == part.written


def test_an_instance_that_is_gone_is_in_no_file_after_the_one_in_which_it_went(folders: Folders) -> None:
    part = Part(folders)
    for tick in range(60):
        part.tick(tick)  # sdb is there from 20 to 39.
        if tick in {29, 49, 59}:
            seal_job.seal(folders)
    found = [
        {key.instance for block in one.blocks for key in block.keys if key.table == "disk"}
        for one in recordings(ram(folders))
    ]
    assert found == [{"sda", "sdb"}, {"sda", "sdb"}, {"sda"}]
    assert stored(ram(folders)) == part.written


def test_a_tick_that_is_half_written_when_it_is_sealed_is_whole_after_merging(folders: Folders) -> None:
    part = Part(folders)
    for tick in range(12):
        part.cpu(tick)
        seal_job.seal(folders)
        part.disk(tick)
    seal_job.seal(folders)
    archive.flush(folders)
    names = archive.names(disk(folders))
    merge_job.merge_files(DENSE, disk(folders), names, 0o644)
    assert len(archive.files(disk(folders))) == 1
    assert stored(disk(folders)) == part.written


def test_classes_and_boots_never_share_a_file(folders: Folders) -> None:
    parts = [Part(folders, sensitivity=sensitivity) for sensitivity in Sensitivity]
    parts.append(Part(folders, 7, boot="b" * 32, writer="background"))
    for part in parts:
        part.tick(10)
    seal_job.seal(folders)
    assert {name.boot for name in archive.names(ram(folders))} == {BOOT, "b" * 32}
    assert stored(ram(folders)) == {**parts[0].written, **parts[2].written}
    assert stored(ram(folders, Sensitivity.RESTRICTED)) == parts[1].written
    sequences = [name.first for s in Sensitivity for name in archive.names(ram(folders, s)) if name.boot == BOOT]
    assert sorted(sequences) == [1, 2]


def test_a_table_that_changed_with_an_upgrade_does_not_stop_sealing_or_merging(folders: Folders) -> None:
    old = Part(folders)
    old.tick(10)
    changed = CPU._replace(metrics=(CPU.metrics[0]._replace(unit="B"), *CPU.metrics[1:]))
    new = Part(folders, 11 * SECOND, layouts=(Layout(changed, SECOND), *LAYOUTS[1:]))
    new.tick(12)
    seal_job.seal(folders)
    assert len(archive.names(ram(folders))) == 2
    for tick in range(13, 25):
        new.tick(tick)
        seal_job.seal(folders)
    archive.flush(folders)
    merge_job.merge(folders)
    assert len(archive.names(disk(folders))) < 8
    assert stored(disk(folders)) == {**old.written, **new.written}


def test_a_writer_that_ended_after_the_last_seal_is_known_to_have_ended(folders: Folders) -> None:
    part = Part(folders)
    for tick in range(9, 15):
        part.tick(tick)
    seal_job.seal(folders)
    assert not any(block.closed for recording in recordings(ram(folders)) for block in recording.blocks)
    part.ring.close()
    seal_job.seal(folders)
    seal_job.seal(folders)
    assert len(archive.names(ram(folders))) == 2
    ended = recordings(ram(folders))[-1].blocks
    assert [(block.strand.interval_ns, block.ticks.tolist(), block.closed) for block in ended] == [
        (SECOND, [14 * SECOND], True),
        (10 * SECOND, [10 * SECOND], True),
    ]
    assert stored(ram(folders)) == part.written


def test_a_ring_is_copied_and_checked_once_a_seal(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    def noted(path: str, since: int = 0) -> Snapshot:
        copied.append(path)
        return snapshot(path, since)

    monkeypatch.setattr(dense, "snapshot", noted)
    part = Part(folders)
    for tick in range(9, 15):
        part.tick(tick)
    seal_job.seal(folders)
    part.ring.close()
    seal_job.seal(folders)
    assert any(block.closed for block in recordings(ram(folders))[-1].blocks)
    assert copied == [part.ring.path] * 2


@pytest.mark.parametrize("cut", [slice(0, 0), slice(-1, None)])
def test_the_end_of_a_writer_is_told_of_each_interval_once(folders: Folders, cut: slice) -> None:
    """Of those that had more rows since they were sealed with these, of the others with their last tick."""
    part = Part(folders)
    for tick in range(9, 22):
        part.tick(tick)
    seal_job.seal(folders)
    later = [22, 23][cut]
    for tick in later:
        part.tick(tick)
    part.ring.close()
    seal_job.seal(folders)
    ended = recordings(ram(folders))[-1]
    assert [(block.strand.interval_ns, block.ticks.tolist(), block.closed) for block in ended.blocks] == [
        (SECOND, [tick * SECOND for tick in later or [21]], True),
        (10 * SECOND, [20 * SECOND], True),
    ]
    assert stored(ram(folders)) == part.written


@pytest.mark.parametrize("sealed_before", [True, False])
def test_what_was_overwritten_before_it_was_sealed_is_a_gap(folders: Folders, *, sealed_before: bool) -> None:
    part = Part(folders, SECOND)
    part.tick(10)
    if sealed_before:
        seal_job.seal(folders)
    for tick in range(11, 900):
        part.tick(tick)
    first = min(tick for _, _, tick in values_of(of_snapshot(snapshot(part.ring.path))))
    seal_job.seal(folders)
    holes = [hole for hole in recordings(ram(folders))[-1].holes if hole.cause is Cause.DROPPED]
    start = 10 * SECOND + 1 if sealed_before else SECOND
    assert {hole.table for hole in holes} == {"cpu", "disk", "slow"}
    assert {hole.start_ns for hole in holes} == {start}
    assert min(hole.end_ns for hole in holes) == first
    assert max(hole.end_ns for hole in holes) < first + 10 * SECOND, (
        "one of a longer interval begins again a little later"
    )


def test_a_ring_that_cannot_be_read_does_not_stop_the_others(folders: Folders) -> None:
    part, broken = Part(folders), Part(folders, 6)
    part.tick(10)
    with open(broken.ring.path, "r+b") as file:
        file.write(b"SYSMRING and then nonsense")
    Path(f"{folders.runtime}/sampler/public/7.ring").write_bytes(b"not a ring")
    seal_job.seal(folders)
    assert stored(ram(folders)) == part.written


def test_damage_is_told_by_a_file_although_it_left_no_row(folders: Folders) -> None:
    part = Part(folders)
    part.disk(10)
    (place,) = [place for place in snapshot(part.ring.path).frames if snapshot(part.ring.path).frame(place)[0] == ROWS]
    with open(part.ring.path, "r+b") as file:
        file.seek(HEADER_BYTES + place + FRAME_BYTES)
        file.write(b"\xff" * 8)
    seal_job.seal(folders)
    (sealed,) = recordings(ram(folders))
    assert not sealed.blocks
    assert {hole.cause for hole in sealed.holes} == {Cause.DAMAGED_FILE}
    assert all(part.ring.path in hole.detail for hole in sealed.holes)
    seal_job.seal(folders)
    assert len(recordings(ram(folders))) == 1, "told once"


def test_a_full_tmpfs_keeps_the_progress_of_what_was_published(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [Part(folders, sensitivity=sensitivity) for sensitivity in Sensitivity]
    for part in parts:
        part.tick(10)
    publish = archive.publish

    def refuse(folder: str, *rest: Any) -> None:
        if folder.endswith("restricted"):
            raise OSError(28, "No space left on device")
        publish(folder, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(archive, "publish", refuse)
        with pytest.raises(OSError, match="No space"):
            seal_job.seal(folders)
    assert sorted(sealed.offset > 0 for sealed in Progress.read(folders).sealed.values()) == [False, True]
    seal_job.seal(folders)
    assert len(archive.names(ram(folders))) == 1
    assert stored(ram(folders, Sensitivity.RESTRICTED)) == parts[1].written


def test_progress_is_read_back_and_nonsense_is_nothing(folders: Folders) -> None:
    progress = Progress({"/a.ring": Sealed(1, 2, 0)})
    progress.write(folders)
    assert Progress.read(folders) == progress
    for nonsense in (b"", b"[]", b'{"a": 1}', b'{"a": [1]}', b"\xff"):
        Path(f"{folders.runtime}/archiver/progress.json").write_bytes(nonsense)
        assert Progress.read(folders) == Progress({})


def test_rings_are_listed_by_age(folders: Folders) -> None:
    starts = [9_500_000_000, 10_500_000_000, 200]
    for started in starts:
        Part(folders, started)
    assert [os.path.basename(path) for path in ring_files(folders)] == [f"{start}.ring" for start in sorted(starts)]


# --- merging --------------------------------------------------------------------------------------


def day_of(ticks: int, seed: int, cuts: list[int], overlap: int) -> tuple[Recording, list[Recording]]:
    """A recording, and the same in pieces that may overlap."""
    chance = np.random.default_rng(seed)
    keys = [SeriesKey("cpu", metric, f"cpu{i}") for i in range(6) for metric in ("user", "mhz")]
    matrix = np.cumsum(chance.integers(-3, 50, (12, ticks)) * 10 ** chance.integers(0, 12, (12, 1)), axis=1)
    matrix[chance.random(matrix.shape) < 0.1] = ABSENT
    matrix[-1] = ABSENT
    axis = (np.arange(ticks) * 2 + 50) * SECOND
    holes = [Hole(BOOT, "cpu", int(t), int(t) + 2 * SECOND, Cause.NO_SOURCE, f"number {t}") for t in axis[: ticks // 2]]
    strand = Strand(BOOT, "sampler", 5, SECOND)

    def piece(first: int, last: int) -> Recording:
        block = MemoryBlock(strand, axis[first:last], keys, matrix[:, first:last], last == ticks)
        inside = [hole for hole in holes if axis[first] <= hole.start_ns <= axis[last - 1]]
        clocks = {BOOT: [Relation(t, UTC_NS + t, t) for t in axis[first:last:7].tolist()]}
        return Recording(Sensitivity.PUBLIC, {"cpu": CPU}, [block], {first: str(first)}, clocks, coalesce(inside))

    edges = sorted({0, *(1 + cut % (ticks - 1) for cut in cuts), ticks})
    pieces = [piece(max(0, first - overlap), last) for first, last in pairwise(edges)]
    return piece(0, ticks), pieces


def put(folder: str, pieces: list[Recording]) -> list[Name]:
    names = [Name(BOOT, number, number) for number in range(1, len(pieces) + 1)]
    for name, recording in zip(names, pieces, strict=True):
        Path(folder, name.file).write_bytes(encode(recording, ""))
    return names


@settings(max_examples=examples(40))
@given(st.integers(2, 60), st.integers(0, 99), st.lists(st.integers(1, 99), min_size=1, max_size=9), st.integers(0, 5))
def test_pieces_merged_are_the_whole(ticks: int, seed: int, cuts: list[int], overlap: int) -> None:
    folder = f"/dev/shm/sysmond-merge-{os.getpid()}"
    os.mkdir(folder)
    try:
        whole, pieces = day_of(ticks, seed, cuts, overlap)
        name = merge_job.merge_files(DENSE, folder, put(folder, pieces), 0o644)
        [found] = recordings(folder)
        assert name == Name(BOOT, 1, len(pieces))
        assert os.listdir(folder) == [name.file]
        [block], [expected] = found.blocks, whole.blocks
        assert (block.strand, block.closed, list(block.keys)) == (expected.strand, True, list(expected.keys))
        assert block.ticks.tolist() == expected.ticks.tolist()
        assert block.read(range(12)).tolist() == expected.read(range(12)).tolist()
        assert found.clocks[BOOT] == sorted({relation for each in pieces for relation in each.clocks[BOOT]})
        assert list(found.holes) == list(whole.holes)
        assert len(found.holes) <= 1
    finally:
        shutil.rmtree(folder)


def test_series_that_come_and_go_are_absent_in_between(folders: Folders) -> None:
    part = Part(folders)
    for tick in range(10, 150):
        part.tick(tick)
        if tick % 9 == 0:
            seal_job.seal(folders)
    seal_job.seal(folders)
    archive.flush(folders)
    merge_job.merge_files(DENSE, disk(folders), archive.names(disk(folders)), 0o644)
    assert stored(disk(folders)) == part.written
    [merged] = recordings(disk(folders))
    assert len(merged.blocks) == 2
    assert len([hole for hole in merged.holes if hole.cause is Cause.PROBE_FAILED]) == 8


def test_a_merge_that_was_interrupted_is_finished_by_the_next(folders: Folders) -> None:
    whole, pieces = day_of(60, 1, [10, 20, 30, 40, 50], 0)
    names = put(disk(folders), pieces)
    kept = {name: Path(disk(folders), name.file).read_bytes() for name in names}
    merged = merge_job.merge_files(DENSE, disk(folders), names, 0o644)
    for name in names[2:]:  # As if it had died before these were removed.
        Path(disk(folders), name.file).write_bytes(kept[name])
    assert stored(disk(folders)) == values_of(whole)
    merge_job.merge(folders)
    assert archive.files(disk(folders)) == [merged.file]
    assert stored(disk(folders)) == values_of(whole)


def test_what_a_damaged_file_seems_to_replace_is_kept(folders: Folders) -> None:
    whole, pieces = day_of(60, 2, [10, 20, 30], 0)
    names = put(disk(folders), pieces)
    Path(disk(folders), Name(BOOT, 1, 4).file).write_bytes(encode(whole, "")[:-100])
    merge_job.merge(folders)
    assert set(archive.files(disk(folders))) >= {name.file for name in names}


@pytest.mark.parametrize("damage", ["open", "values"])
def test_a_damaged_segment_is_left_alone_and_the_rest_is_merged(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(merge_job, "boot_id", lambda: BOOT)
    monkeypatch.setattr(rollup_job, "RIPE_SEALS", 1)
    whole, pieces = day_of(60, 3, list(range(3, 60, 3)), 0)
    names = put(disk(folders), pieces)
    path = Path(disk(folders), names[3].file)
    content = bytearray(path.read_bytes())
    if damage == "open":
        content[len(content) // 2 :] = b""
    else:
        content = damaged_values(path)
    path.write_bytes(content)
    merging: list[list[Name]] = []
    merge_files = merge_job.merge_files

    def noted(coding: Coding, folder: str, names: list[Name], *rest: Any) -> Name:
        merging.append(names)
        return merge_files(coding, folder, names, *rest)

    monkeypatch.setattr(merge_job, "merge_files", noted)
    for _ in range(4):
        merge_job.merge(folders)
    assert path.read_bytes() == bytes(content)
    assert not any(names[3] in group for group in merging), "what could not be rolled up is not merged"
    left = archive.names(disk(folders))
    assert names[3] in left
    assert len(left) < len(names) - 7
    path.unlink()
    lost = values_of(pieces[3])
    assert stored(disk(folders)) == {at: value for at, value in values_of(whole).items() if at not in lost}


def damaged_values(path: Path) -> bytearray:
    """Flip a bit that only reading the values finds."""
    content = path.read_bytes()
    chance = random.Random(4)
    for _ in range(10_000):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1
        path.write_bytes(flipped)
        try:
            with Segment(str(path)) as opened:
                for block in opened.recording.blocks:
                    block.read(range(len(block.keys)))
        except CorruptError:
            try:
                Segment(str(path)).close()
            except CorruptError:
                continue
            return flipped
    raise AssertionError("every flip was found at once")


def test_a_file_that_would_be_refused_is_not_made_and_not_tried_for_ever(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pieces = day_of(60, 4, [10, 20, 30], 0)
    put(disk(folders), pieces)
    tried: list[int] = []

    def refuse(*_: Any) -> bytes:
        tried.append(1)
        raise Error("too large")

    monkeypatch.setattr(dense_file, "encode_plans", refuse)
    for _ in range(6):
        merge_job.merge(folders)
    assert len(archive.names(disk(folders))) == 4
    assert len(tried) <= 4


@pytest.mark.parametrize("is_old", [True, False])
def test_old_files_are_not_opened_again(folders: Folders, monkeypatch: pytest.MonkeyPatch, *, is_old: bool) -> None:
    _, pieces = day_of(60, 5, [10, 20, 30], 0)
    for name in put(disk(folders), pieces):
        if is_old:
            os.utime(f"{disk(folders)}/{name.file}", (1e9, 1e9))
    opened: list[str] = []

    def note(path: str) -> dense_file.Segment:
        opened.append(path)
        return dense_file.Segment(path)

    monkeypatch.setattr(dense, "Segment", note)
    monkeypatch.setattr(merge_job, "roll_up", lambda *_: None)
    merge_job.merge(folders)
    assert bool(opened) is not is_old
    assert len(archive.names(disk(folders))) == (4 if is_old else 1)


def test_the_day_of_a_recording_is_that_of_its_first_tick() -> None:
    whole, _ = day_of(10, 1, [], 0)
    assert dense.first_day(whole) == 20_000
    assert dense.first_day(whole._replace(clocks={})) == 0
    assert dense.first_day(whole._replace(blocks=[])) == 20_000, "by what it says is absent"
    assert dense.first_day(whole._replace(blocks=[], holes=[])) is None


def test_holes_that_touch_are_one() -> None:
    holes = [Hole(BOOT, "cpu", t, t + 10, Cause.NO_SOURCE, f"process {t}") for t in range(0, 1000, 10)]
    holes += [Hole(BOOT, "disk", 0, 10, Cause.NO_SOURCE, "x"), Hole(BOOT, "cpu", 500, 510, Cause.DROPPED, "x")]
    holes += [Hole(BOOT, "cpu", 1500, 1510, Cause.NO_SOURCE, "process 9")]
    random.Random(1).shuffle(holes)
    assert coalesce(holes) == [
        Hole(BOOT, "cpu", 0, 1000, Cause.NO_SOURCE, "process 0"),
        Hole(BOOT, "cpu", 500, 510, Cause.DROPPED, "x"),
        Hole(BOOT, "cpu", 1500, 1510, Cause.NO_SOURCE, "process 9"),
        Hole(BOOT, "disk", 0, 10, Cause.NO_SOURCE, "x"),
    ]
    assert coalesce(coalesce(holes)) == coalesce(holes)


def test_a_file_is_rolled_up_although_the_one_before_it_is_damaged(folders: Folders) -> None:
    """It is looked at for rows that both have: these are then counted twice, and nothing else is lost."""
    _, pieces = day_of(60, 3, [30], 2)
    first, second = put(disk(folders), pieces)
    held = Path(disk(folders), second.file)
    content = held.read_bytes()
    held.unlink()
    left_alone: set[str] = set()
    rollup_job.roll_up(folders, DENSE, lambda _tier, _bytes: None, left_alone)
    damaged_values(Path(disk(folders), first.file))
    held.write_bytes(content)
    rollup_job.roll_up(folders, DENSE, lambda _tier, _bytes: None, left_alone)
    assert left_alone == set()
    for tier in tiers.COARSE:
        assert archive.names(archive.disk_folder(folders, Sensitivity.PUBLIC, tier)) == [first, second]


def test_a_file_that_tells_of_holes_alone_is_from_when_these_are(folders: Folders) -> None:
    whole, _ = day_of(60, 3, [], 0)
    put(disk(folders), [whole._replace(blocks=[])])
    [stored_file] = retention_job.stored(folders, "1s", is_long=False)
    assert stored_file.first_ns // DAY_NS == stored_file.last_ns // DAY_NS == 20_000
