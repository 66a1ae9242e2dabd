# SPDX-License-Identifier: Apache-2.0
"""Rings of long tables become files: nothing is lost, nothing is there twice, whatever was interrupted where."""

import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.archiver import merge_job, seal_job
from sysmond.archiver.watch import RingWatch
from sysmond.base.model import Cause, Sensitivity
from sysmond.errors import CorruptError, Error
from sysmond.machine.folders import Folders
from sysmond.ring import skipped_rings
from sysmond.ring.frame import RING_BYTES_MIN, Layout
from sysmond.ring.leftovers import is_over
from sysmond.ring.progress import Progress
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store import archive
from sysmond.store.files import sparse_file
from sysmond.store.stretches.chain import Chain
from sysmond.store.stretches.sparse_of_ring import LongRing
from sysmond.store.stretches.stretch import Incarnation, Stretch
from tests.support.longs import BOOT, MOMENT, SECOND, TASK, RowsByKey, Stream, Tasks, rows_of

DEAD = 2**22 + 1  # No process has this number: it is beyond the largest that Linux gives.


def in_ram(folders: Folders, table: str = "task", sensitivity: Sensitivity = Sensitivity.PUBLIC) -> list[str]:
    folder = archive.ram_folder(folders, sensitivity, table)
    return [f"{folder}/{name.file}" for name in archive.names(folder)]


def sealed(folders: Folders, table: str = "task", sensitivity: Sensitivity = Sensitivity.PUBLIC) -> RowsByKey:
    """All rows in the files in RAM; none is there twice."""
    found: RowsByKey = {}
    for path in in_ram(folders, table, sensitivity):
        with sparse_file.open_file(path) as opened:
            rows = rows_of(opened)
            assert not rows.keys() & found.keys()
            found |= rows
    return found


def at_most(written: RowsByKey, tick: int) -> RowsByKey:
    return {key: row for key, row in written.items() if key[0] < tick * SECOND}


def test_a_ring_is_read_as_it_was_written(folders: Folders) -> None:
    stream = Stream(folders)
    stream.run(Tasks(60), range(100, 130))
    [stretch] = LongRing(snapshot(stream.path)).stretches()
    assert rows_of(stretch) == stream.written
    assert stretch.ticks.tolist() == [tick * SECOND for tick in range(100, 130)]
    assert np.flatnonzero(stretch.full).tolist() == [0, 10, 20]
    assert (stretch.boot, stretch.writer, stretch.sensitivity) == (BOOT, "sampler", Sensitivity.PUBLIC)
    assert list(stretch.lives) == [Incarnation(5, 100 * SECOND, closed=False)]


def test_a_lasting_table_is_sealed_up_to_its_last_full_reading(folders: Folders) -> None:
    stream = Stream(folders)
    tasks = Tasks(60)
    stream.run(tasks, range(100, 125))
    seal_job.seal(folders)
    assert sealed(folders) == at_most(stream.written, 120)
    seal_job.seal(folders)
    assert len(in_ram(folders)) == 1, "nothing is new"
    stream.run(tasks, range(125, 150))
    seal_job.seal(folders)
    assert sealed(folders) == at_most(stream.written, 145)
    for path in in_ram(folders):
        with sparse_file.open_file(path) as opened:
            assert opened.full[0], "every file begins with all there is"


def test_all_is_sealed_of_a_writer_that_ended(folders: Folders) -> None:
    stream = Stream(folders)
    stream.run(Tasks(60), range(100, 125))
    seal_job.seal(folders)
    assert not is_over(stream.path, Progress.read(folders).sealed[stream.path])
    stream.ring.close()
    seal_job.seal(folders)
    assert sealed(folders) == stream.written
    assert is_over(stream.path, Progress.read(folders).sealed[stream.path])
    with sparse_file.open_file(in_ram(folders)[-1]) as opened:
        assert [life.closed for life in opened.lives] == [True]


def test_all_is_sealed_of_a_writer_that_died(folders: Folders) -> None:
    stream = Stream(folders, pid=DEAD)
    stream.run(Tasks(60), range(100, 125))
    seal_job.seal(folders)
    assert sealed(folders) == stream.written
    with sparse_file.open_file(in_ram(folders)[-1]) as opened:
        assert [life.closed for life in opened.lives] == [False]
    assert is_over(stream.path, Progress.read(folders).sealed[stream.path])


def test_what_is_about_its_moment_is_sealed_at_once_and_its_end_is_news(folders: Folders) -> None:
    stream = Stream(folders, layouts=[Layout(MOMENT, SECOND)])
    stream.run(Tasks(60), range(100, 125))
    seal_job.seal(folders)
    assert sealed(folders, "moment") == stream.written
    stream.ring.close()
    seal_job.seal(folders)
    assert sealed(folders, "moment") == stream.written
    with sparse_file.open_file(in_ram(folders, "moment")[-1]) as opened:
        assert [(life.started_ns, life.closed) for life in opened.lives] == [(5, True)]
        assert len(opened.ticks) == 0


def test_a_reading_that_is_being_written_waits(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces become visible one by one: a writer that is killed between two leaves half a reading."""
    stream = Stream(folders, size=RING_BYTES_MIN, layouts=[Layout(MOMENT, SECOND)])
    tasks = Tasks(60)
    stream.run(tasks, range(100, 103))
    before = dict(stream.written)
    pieces: list[int] = []
    whole = stream.ring._append

    def append(*frame: Any) -> None:
        if not pieces:
            whole(*frame)
        pieces.append(1)

    monkeypatch.setattr(stream.ring, "_append", append)
    stream.write(103, list(Tasks(300).rows.values()), full=True)
    assert len(pieces) > 1
    [stretch] = LongRing(snapshot(stream.path)).stretches()
    assert rows_of(stretch) == before
    seal_job.seal(folders)
    assert sealed(folders, "moment") == before
    monkeypatch.undo()
    stream.ring.close()
    seal_job.seal(folders)
    assert sealed(folders, "moment") == before


def test_large_readings_in_pieces_come_back_whole(folders: Folders) -> None:
    stream = Stream(folders, size=4 * 1024 * 1024)
    tasks = Tasks(10_000)
    stream.run(tasks, range(100, 104))
    stream.ring.close()
    assert len(stream.written) > 10_000 + 3 * 2000 - 10
    seal_job.seal(folders)
    assert sealed(folders) == stream.written
    with sparse_file.open_file(in_ram(folders)[0]) as opened:
        assert opened.full.tolist() == [True, False, False, False]


def test_what_was_overwritten_is_a_hole_and_no_full_reading_is_made_up(folders: Folders) -> None:
    stream = Stream(folders, size=RING_BYTES_MIN)
    stream.run(Tasks(40), range(100, 400), full_every=20)
    stream.ring.close()
    seal_job.seal(folders)
    found = sealed(folders)
    first = min(found)[0]
    assert 100 * SECOND < first < 395 * SECOND
    assert found == {key: row for key, row in stream.written.items() if key[0] >= first}
    with sparse_file.open_file(in_ram(folders)[0]) as opened:
        assert not opened.full[0]
        [hole] = [hole for hole in opened.holes if hole.cause is Cause.DROPPED]
        assert (hole.table, hole.start_ns, hole.end_ns) == ("task", 5, first)
        assert "overwritten before they were sealed" in hole.detail


def test_a_reading_whose_first_pieces_may_be_gone_is_not_called_full(folders: Folders) -> None:
    stream = Stream(folders, size=RING_BYTES_MIN)
    tasks = Tasks(60)
    pieces: set[int] = set()
    for tick in range(100, 200):
        stream.write(tick, list(tasks.rows.values()), full=True)
        taken = snapshot(stream.path)
        first, *others = LongRing(taken).readings
        assert first.full == (not taken.lost)
        assert all(each.full for each in others)
        pieces.add(len(first.frames))
    assert len(pieces) > 1


def test_a_hole_begins_no_earlier_than_its_ring(folders: Folders) -> None:
    stream = Stream(folders, size=RING_BYTES_MIN)
    stream.run(Tasks(40), range(100, 102), full_every=1000)
    seal_job.seal(folders)  # What was begun is taken note of, and waits.
    stream.run(Tasks(40), range(102, 400), full_every=20)
    seal_job.seal(folders)
    with sparse_file.open_file(in_ram(folders)[0]) as opened:
        [hole] = [hole for hole in opened.holes if hole.cause is Cause.DROPPED]
    assert hole.start_ns == 5


def test_rows_that_follow_no_full_reading_are_sealed_before_they_are_overwritten(folders: Folders) -> None:
    stream = Stream(folders, size=RING_BYTES_MIN)
    tasks = Tasks(40)
    stream.run(tasks, range(100, 103), full_every=1000)
    seal_job.seal(folders)
    assert sealed(folders) == {}
    watch = RingWatch(folders, 0.0)
    for tick in range(103, 400):
        stream.write(tick, tasks.tick(tick))
        watch.look(float(tick))
        if watch.short:
            seal_job.seal(folders)
    stream.ring.close()
    seal_job.seal(folders)
    assert len(in_ram(folders)) > 1
    assert sealed(folders) == stream.written


def test_absences_are_holes_and_are_told_once(folders: Folders) -> None:
    stream = Stream(folders)
    tasks = Tasks(20)
    stream.run(tasks, range(100, 110))
    for tick in range(110, 115):
        stream.ring.absence(0, tick * SECOND, Cause.PROBE_FAILED, "OSError: no")
    stream.run(tasks, range(115, 140))
    stream.ring.absence(0, 140 * SECOND, Cause.PROBE_FAILED, "OSError: again")
    seal_job.seal(folders)
    stream.ring.close()
    seal_job.seal(folders)
    holes = []
    for path in in_ram(folders):
        with sparse_file.open_file(path) as opened:
            holes += [(hole.start_ns // SECOND, hole.end_ns // SECOND, hole.detail) for hole in opened.holes]
    assert holes == [(110, 115, "OSError: no"), (140, 141, "OSError: again")]
    assert sealed(folders) == stream.written


def test_a_table_that_only_ever_fails_leaves_its_reasons(folders: Folders) -> None:
    stream = Stream(folders)
    for tick in range(100, 105):
        stream.ring.absence(0, tick * SECOND, Cause.NO_PERMISSION, "bpf")
    seal_job.seal(folders)
    seal_job.seal(folders)
    [path] = in_ram(folders)
    with sparse_file.open_file(path) as opened:
        assert [(hole.start_ns, hole.end_ns) for hole in opened.holes] == [(100 * SECOND, 105 * SECOND)]
        assert len(opened.ticks) == 0


def test_several_writers_classes_and_lives_are_kept_apart(folders: Folders) -> None:
    streams = [
        Stream(folders, 5, pid=DEAD),
        Stream(folders, 700),
        Stream(folders, 6, writer="background"),
        Stream(folders, 7, sensitivity=Sensitivity.RESTRICTED),
    ]
    for number, stream in enumerate(streams):
        stream.run(Tasks(20, number), range(100 + 100 * number, 130 + 100 * number))
        if number:
            stream.ring.close()
    seal_job.seal(folders)
    public = streams[0].written | streams[1].written | streams[2].written
    assert sealed(folders) == public
    assert sealed(folders, sensitivity=Sensitivity.RESTRICTED) == streams[3].written
    [path] = in_ram(folders, sensitivity=Sensitivity.RESTRICTED)
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert os.stat(os.path.dirname(path)).st_mode & 0o7777 == 0o2750
    names = [archive.parse_name(os.path.basename(path)) for path in (*in_ram(folders), path)]
    assert sorted(name.first for name in names if name) == [1, 2, 3, 4]
    assert Progress.read(folders).sealed.keys() == {stream.path for stream in streams}


def test_a_declaration_that_changed_begins_a_file_of_its_own(folders: Folders) -> None:
    stream = Stream(folders)
    tasks = Tasks(20)
    stream.run(tasks, range(100, 110))
    number = stream.ring.add(Layout(TASK, 2 * SECOND))
    stream.ring.retire(0)
    for tick in range(110, 130, 2):
        stream.write(tick, list(tasks.rows.values()), full=tick == 110, layout=number)
        tasks.tick(tick)
    stream.ring.close()
    seal_job.seal(folders)
    intervals = []
    for path in in_ram(folders):
        with sparse_file.open_file(path) as opened:
            intervals.append(opened.interval_ns)
    assert intervals == [SECOND, 2 * SECOND]
    assert sealed(folders) == stream.written


def test_an_interval_that_held_for_a_while_loses_nothing_before_or_after_it(folders: Folders) -> None:
    stream = Stream(folders, layouts=[Layout(MOMENT, 2 * SECOND)])
    tasks = Tasks(5)
    shorter = stream.ring.add(Layout(MOMENT, SECOND))
    for tick in [100, 102, *range(103, 110), *range(110, 120, 2)]:
        stream.write(tick, list(tasks.rows.values()), full=True, layout=shorter if 103 <= tick < 110 else 0)
    stream.ring.close()
    seal_job.seal(folders)
    with ExitStack() as files:
        opened = [files.enter_context(sparse_file.open_file(path)) for path in in_ram(folders, "moment")]
        assert [each.interval_ns for each in opened] == [2 * SECOND, SECOND, 2 * SECOND]
        assert len(Chain(opened).rows_per_reading()) == 14
        assert sum(Chain(opened).rows_per_reading()) == len(stream.written)


def test_sealing_again_after_its_note_was_lost_seals_the_same_once_more(folders: Folders) -> None:
    stream = Stream(folders)
    stream.run(Tasks(20), range(100, 125))
    seal_job.seal(folders)
    os.unlink(f"{folders.runtime}/archiver/progress.json")
    seal_job.seal(folders)
    first, second = in_ram(folders)
    with sparse_file.open_file(first) as one, sparse_file.open_file(second) as other:
        assert rows_of(one) == rows_of(other)


def test_a_damaged_frame_costs_its_reading_and_is_told(folders: Folders) -> None:
    stream = Stream(folders)
    stream.run(Tasks(20), range(100, 130), full_every=5)
    stream.ring.close()
    taken = snapshot(stream.path)
    readings = LongRing(taken).readings
    assert sum(reading.full for reading in readings) == 6
    with open(stream.path, "r+b") as ring:  # The reading of the tick 110, a full one.
        ring.seek(4096 + readings[10].offset + 100)
        ring.write(b"\xff\xff\xff")
    seal_job.seal(folders)
    found = sealed(folders)
    assert found == {key: row for key, row in stream.written.items() if key[0] != 110 * SECOND}
    with sparse_file.open_file(in_ram(folders)[0]) as opened:
        assert opened.full.sum() == 5
        assert [hole.cause for hole in opened.holes] == [Cause.DAMAGED_FILE]
        assert opened.holes[0].start_ns <= 110 * SECOND < opened.holes[0].end_ns


def test_damage_in_a_ring_never_makes_a_row_up_and_what_is_called_full_is(folders: Folders) -> None:
    stream = Stream(folders, size=RING_BYTES_MIN)
    tasks = Tasks(12)
    fulls: dict[int, int] = {}
    for tick in range(100, 140):
        changed, is_full = tasks.tick(tick), tick % 5 == 0
        stream.write(tick, list(tasks.rows.values()) if is_full else changed, full=is_full)
        fulls |= {tick * SECOND: len(tasks.rows)} if is_full else {}
    stream.ring.close()
    whole = Path(stream.path).read_bytes()
    used = 4096 + snapshot(stream.path).end_offset
    rng, lost = random.Random(11), 0
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            content[rng.randrange(4096, used)] ^= rng.randrange(1, 256)
        Path(stream.path).write_bytes(content)
        try:
            found = list(LongRing(snapshot(stream.path)).stretches())
        except CorruptError:
            continue
        for stretch in found:
            rows = rows_of(stretch)
            assert rows.items() <= stream.written.items()
            lost += len(rows) < len(stream.written)
            for tick in stretch.ticks[stretch.full].tolist():
                assert sum(key[0] == tick for key in rows) == fulls[tick]
    assert lost > 50


def test_a_ring_that_cannot_be_sealed_is_set_aside(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = Stream(folders, 5, pid=DEAD), Stream(folders, 6)
    bad.run(Tasks(20), range(100, 110))
    good.run(Tasks(20), range(200, 230))
    good.ring.close()
    works = sparse_file.encode

    def encode(stretch: Stretch, created_by: str) -> bytes:
        if stretch.ticks[0] < 150 * SECOND:
            raise MemoryError
        return works(stretch, created_by)

    monkeypatch.setattr(sparse_file, "encode", encode)
    for _ in range(skipped_rings.TRIES):
        blamed: list[str] = []
        with pytest.raises(MemoryError):
            seal_job.seal(folders, lambda rings, blamed=blamed: blamed.extend(rings))  # type: ignore[misc]
        skipped_rings.blame(folders, blamed[-1:])
    seal_job.seal(folders)
    assert sealed(folders) == good.written
    assert Progress.read(folders).sealed[bad.path].offset == snapshot(bad.path).end_offset


def test_what_is_set_aside_is_a_hole_once_there_are_rows_again(folders: Folders) -> None:
    stream = Stream(folders)
    tasks = Tasks(20)
    stream.run(tasks, range(100, 110))
    for _ in range(skipped_rings.TRIES):
        skipped_rings.blame(folders, [stream.path])
    seal_job.seal(folders)
    assert in_ram(folders) == []
    stream.run(tasks, range(110, 130))
    seal_job.seal(folders)
    [path] = in_ram(folders)
    with sparse_file.open_file(path) as opened:
        assert opened.ticks[0] == 110 * SECOND
        [hole] = opened.holes
    assert (hole.start_ns, hole.end_ns, hole.cause) == (5, 110 * SECOND, Cause.DROPPED)
    assert "set aside" in hole.detail


def test_random_times_of_sealing_never_lose_or_double_a_row(folders: Folders) -> None:
    rng = random.Random(5)
    tasks, tick = Tasks(30), 100
    written: RowsByKey = {}
    for life in range(5):
        stream = Stream(folders, 1000 + life)
        for _ in range(rng.randrange(3, 9)):
            length = rng.randrange(1, 25)
            stream.run(tasks, range(tick, tick + length), full_every=rng.randrange(3, 30))
            tick += length
            if rng.random() < 0.6:
                seal_job.seal(folders)
        if rng.random() < 0.7:
            stream.ring.close()
        written |= stream.written
        seal_job.seal(folders)
        if not snapshot(stream.path).closed:
            _die(stream.ring)
    seal_job.seal(folders)
    assert sealed(folders) == written


def _die(ring: RingWriter) -> None:
    """Put the number of a process that is not there into the header."""
    content = Path(ring.path).read_bytes()[:4096]
    from sysmond.ring.frame import encode_header, read_header  # noqa: PLC0415

    identity, capacity = read_header(content, ring.path)
    header = encode_header(identity._replace(pid=DEAD), capacity)
    with open(ring.path, "r+b") as opened:
        opened.write(header)


def test_what_waits_in_ram_is_flushed_beside_the_segments(folders: Folders) -> None:
    stream = Stream(folders, sensitivity=Sensitivity.RESTRICTED)
    stream.run(Tasks(20), range(100, 110))
    stream.ring.close()
    seal_job.seal(folders)
    [path] = in_ram(folders, sensitivity=Sensitivity.RESTRICTED)
    rooms: list[tuple[str, int]] = []
    done = archive.flush(folders, make_long_room=lambda tier, size: rooms.append((tier, size)))
    assert done.files == 1
    assert rooms == [("1s", done.bytes)]
    assert in_ram(folders, sensitivity=Sensitivity.RESTRICTED) == []
    flushed = f"{archive.disk_folder(folders, Sensitivity.RESTRICTED, '1s', 'task')}/{os.path.basename(path)}"
    assert flushed == f"{folders.state}/restricted/task/1s/{os.path.basename(path)}"
    with sparse_file.open_file(flushed) as opened:
        assert rows_of(opened) == stream.written
    assert os.stat(os.path.dirname(flushed)).st_mode & 0o7777 == 0o2750
    assert archive.next_sequence(BOOT, Folders(folders.state, str(Path(folders.runtime) / "other")), "task") == 2


def test_something_else_in_the_place_of_a_table_stops_no_other(folders: Folders) -> None:
    for sensitivity in Sensitivity:
        stream = Stream(folders, sensitivity=sensitivity)
        stream.run(Tasks(20), range(100, 110))
        stream.ring.close()
    seal_job.seal(folders)
    Path(f"{folders.state}/public/task").write_text("a stranger's")
    with pytest.raises(Error, match=r"public/task: not a folder"):
        archive.flush(folders)
    assert len(in_ram(folders)) == 1
    assert in_ram(folders, sensitivity=Sensitivity.RESTRICTED) == []
    os.unlink(f"{folders.state}/public/task")
    assert archive.flush(folders).files == 1


def test_strangers_folders_are_no_long_tables(folders: Folders) -> None:
    for name in ("Backup", "lost+found", "1s", "notes", ".hidden", "x" * 60):
        os.makedirs(f"{folders.state}/public/{name}", exist_ok=True)
        os.makedirs(f"{folders.runtime}/archiver/public/{name}", exist_ok=True)
    os.makedirs(f"{folders.state}/public/elsewhere/1s")
    os.symlink(f"{folders.state}/public/elsewhere", f"{folders.state}/public/linked")
    assert [table for _, table in archive.disk_folders(folders)] == ["", "elsewhere", ""]
    Path(f"{folders.state}/public/elsewhere/1s/mine.h5").write_text("not ours")
    merge_job.merge(folders)
    assert os.path.exists(f"{folders.state}/public/elsewhere/1s/mine.h5")


WRITER = """
import os, sys, time
from sysmond.errors import CorruptError, Error
from sysmond.machine.folders import Folders
from tests.support.longs import Stream, Tasks
stream = Stream(Folders(*sys.argv[1:3]), int(sys.argv[3]), size=1024 * 1024)
tasks = Tasks(400, int(sys.argv[3]))
for number in range(10**9):
    changed = tasks.tick(number)
    is_full = number % 10 == 0
    stream.ring.hold()
    stream.write(number + int(sys.argv[4]), list(tasks.rows.values()) if is_full else changed, full=is_full)
    stream.ring.commit()
    time.sleep(0.001)
"""


def test_writers_that_are_killed_while_they_are_sealed_lose_nothing_whole(folders: Folders, repository: Path) -> None:
    """What a killed writer would have written is known: its tasks follow from a seed."""
    rng = random.Random(7)
    expected: RowsByKey = {}
    for life in range(4):
        first = 100 + 100_000 * life
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, folders.state, folders.runtime, str(life + 1), str(first)], cwd=repository
        )
        path = f"{folders.runtime}/sampler/public/task/{life + 1}.ring"
        try:
            while not os.path.exists(path):
                time.sleep(0.01)
            for _ in range(rng.randrange(3, 12)):
                seal_job.seal(folders)
                time.sleep(rng.random() * 0.05)
        finally:
            writer.kill()
            writer.wait()
        seal_job.seal(folders)
        assert is_over(path, Progress.read(folders).sealed[path])
        last = max(reading.tick_ns for reading in LongRing(snapshot(path)).readings if reading.ended) // SECOND
        tasks = Tasks(400, life + 1)
        for number in range(last - first + 1):
            changed = tasks.tick(number)
            rows = list(tasks.rows.values()) if number % 10 == 0 else changed
            expected |= {((number + first) * SECOND, row[1], row[0]): row for row in rows}
    found = sealed(folders)
    holes = []
    for each in in_ram(folders):
        with sparse_file.open_file(each) as opened:
            holes += [(hole.start_ns, hole.end_ns) for hole in opened.holes]
    missing = {key[0] for key in expected.keys() - found.keys()}
    assert all(any(start <= tick < end for start, end in holes) for tick in missing), "what was overwritten is told"
    assert found == {key: row for key, row in expected.items() if key[0] not in missing}
    assert len(found) > 1000
