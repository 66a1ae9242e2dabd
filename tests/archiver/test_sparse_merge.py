# SPDX-License-Identifier: Apache-2.0
"""Files of long tables are merged: what a merged file says is what its parts said, in less memory than they take."""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.archiver import merge_job, retention_job, seal_job
from sysmond.archiver.coding import SPARSE
from sysmond.base.clock import boot_id
from sysmond.base.model import ABSENT, EVENTS, TIERS_NS, Cause, Packing, Sensitivity
from sysmond.commands import fsck, upkeep
from sysmond.errors import Error
from sysmond.machine import mounts
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.plan import retention
from sysmond.plan.plan import ArchiverSettings
from sysmond.plan.retention import Limit
from sysmond.ring.frame import Layout
from sysmond.store import archive, pins, sparse
from sysmond.store.archive import Candidate, Name
from sysmond.store.files import sparse_file
from sysmond.store.stretches import joined as joined_stretch
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.stretch import About, MemoryStretch, Readings, Stretch
from sysmond.tasks.tables import PROCESS
from tests.store.test_sparse_file import contents, made_of
from tests.support.longarchive import memory_stretch
from tests.support.longs import BOOT, MOMENT, SECOND, TASK, UTC_NS, RowsByKey, Stream, Tasks, rows_of

PUBLIC = Sensitivity.PUBLIC


def on_disk(folders: Folders, table: str = "task") -> list[str]:
    folder = archive.disk_folder(folders, PUBLIC, "1s", table)
    return [f"{folder}/{each}" for each in archive.files(folder)]


def recorded(folders: Folders, count: int, boot: str, tasks: Tasks | None = None, **how: Any) -> Stream:
    """So many files on disk, a seal each."""
    stream = Stream(folders, boot=boot, **how)
    tasks = tasks or Tasks(30)
    for number in range(count):
        stream.run(tasks, range(100 + 20 * number, 120 + 20 * number))
        seal_job.seal(folders)
        archive.flush(folders)
    stream.ring.close()
    seal_job.seal(folders)
    archive.flush(folders)
    return stream


def parts(stretch: Stretch, edges: Sequence[int]) -> list[MemoryStretch]:
    """A stretch cut at these readings."""
    columns = {metric.name: stretch.column(metric.name) for metric in stretch.table.metrics}
    at = stretch.tick_index()
    found = []
    for low, high in zip([0, *edges], [*edges, len(stretch.ticks)], strict=True):
        mine = (at >= low) & (at < high)
        axis: Any = [each[low:high] for each in (stretch.ticks, stretch.full, stretch.lost, stretch.walked)]
        cut = {name: column[mine] for name, column in columns.items()}
        found.append(memory_stretch(stretch.about, Readings(*axis), at[mine] - low, cut, stretch.texts))
    return found


def as_said(stretch: Stretch) -> object:
    """The contents, with texts instead of codes."""
    *_, columns, _ = contents(stretch)
    coded = [metric.name for metric in stretch.table.metrics if metric.is_text]
    said = {
        name: [[None if code == ABSENT else stretch.texts[code] for code in each] for each in columns.pop(name)]
        for name in coded
    }
    return contents(stretch)[3:7], columns, said, [stretch.peak("size").tolist()]


@pytest.mark.parametrize("edges", [[5], [1, 2, 3], [4, 9, 15, 19], [0, 20]])
def test_parts_joined_are_the_whole(monkeypatch: pytest.MonkeyPatch, edges: list[int]) -> None:
    monkeypatch.setattr(joined_stretch, "BATCH_ROWS", 50)
    whole = made_of(random.Random(1), 40, 20)
    passing = whole.with_about(whole.about._replace(table=whole.table._replace(packing=_passing(whole))))
    joined = Joined(parts(passing, edges))
    assert len(list(joined.batches())) > 1
    assert as_said(joined) == as_said(passing)
    for keys in (slice(3, 17), slice(0, 0), slice(30, 40), slice(5, None)):
        assert np.array_equal(joined.column("work", keys), whole.column("work", keys))
        assert np.array_equal(joined.tick_index(keys), whole.tick_index(keys))


def _passing(stretch: Stretch) -> Packing:
    assert stretch.table.packing is not None
    return stretch.table.packing._replace(lasting=False)


def test_readings_that_several_have_are_there_once() -> None:
    whole = made_of(random.Random(2), 40, 20)
    passing = whole.with_about(whole.about._replace(table=whole.table._replace(packing=_passing(whole))))
    first, second, third = parts(passing, [5, 12])
    again, last = parts(passing, [12])
    for members in ([first, again, last], [first, second, again, third], [second, first, third], [third, passing]):
        assert as_said(Joined(members)) == as_said(passing)


def test_rows_in_which_nothing_changed_go_and_what_they_said_stays(folders: Folders) -> None:
    tasks = Tasks(30)
    stream = recorded(folders, 4, boot_id(), tasks)
    paths = on_disk(folders)
    names = [archive.parse_name(os.path.basename(path)) for path in paths]
    merged = merge_job.merge_files(
        SPARSE, os.path.dirname(paths[0]), [name for name in names if name], FILE_MODES[PUBLIC]
    )
    assert [os.path.basename(path) for path in on_disk(folders)] == [merged.file]
    with sparse_file.open_file(on_disk(folders)[0]) as opened:
        found, fulls = rows_of(opened), np.flatnonzero(opened.full).tolist()
        assert len(opened.ticks) == 80
        assert found.items() <= stream.written.items()
        assert found == _changes(stream.written)
        assert len(found) < len(stream.written)
        _check_seen(opened, stream.written, fulls)


def _changes(written: RowsByKey) -> RowsByKey:
    """The rows that differ from the one before of their key."""
    before: dict[tuple[int, int], object] = {}
    found: RowsByKey = {}
    for key, row in sorted(written.items()):
        if before.get(key[1:]) != row:
            found[key] = row
        before[key[1:]] = row
    return found


def _check_seen(opened: Stretch, written: RowsByKey, fulls: list[int]) -> None:
    """A key was seen when a row of it was written last, and was gone by the next reading that has all."""
    last = {key[1:]: key[0] for key in sorted(written)}
    seen = {
        (int(pid), int(start)): int(tick)
        for pid, start, tick in zip(opened.keys["pid"], opened.keys["start"], opened.ticks[opened.seen()], strict=True)
    }
    assert seen == last
    gone = [key for key, tick in seen.items() if tick < opened.ticks[fulls[-1]]]
    assert gone, "some tasks ended"
    assert min(key[0] for key in seen if key not in gone) > max(key[0] for key in gone) - 30


def test_what_is_about_its_moment_stays_though_it_is_as_before(folders: Folders) -> None:
    stream = Stream(folders, layouts=[Layout(MOMENT, SECOND)])
    rows = list(Tasks(5).rows.values())
    for tick in range(100, 110):
        stream.write(tick, rows)
        seal_job.seal(folders)
    archive.flush(folders)
    paths = on_disk(folders, "moment")
    assert len(paths) == 10
    names = [name for path in paths if (name := archive.parse_name(os.path.basename(path)))]
    merge_job.merge_files(SPARSE, os.path.dirname(paths[0]), names, FILE_MODES[PUBLIC])
    with sparse_file.open_file(on_disk(folders, "moment")[0]) as opened:
        assert rows_of(opened) == stream.written


def test_the_job_merges_small_files_and_answers_stay_the_same(folders: Folders) -> None:
    stream = recorded(folders, 8, boot_id())
    before = on_disk(folders)
    assert len(before) == 9
    merge_job.merge(folders)
    after = on_disk(folders)
    assert [os.path.basename(path).split("-")[1:] for path in after] == [["00000001", "00000009.h5"]]
    found: RowsByKey = {}
    for path in after:
        with sparse_file.open_file(path) as opened:
            found |= rows_of(opened)
            assert len(opened.lives) == 1
    assert _changes(stream.written).items() <= found.items() <= stream.written.items()


def test_an_interrupted_merge_is_cleaned_up_once_the_merged_file_proves_whole(folders: Folders) -> None:
    recorded(folders, 7, boot_id())
    paths = on_disk(folders)
    kept = {path: Path(path).read_bytes() for path in paths}
    folder = os.path.dirname(paths[0])
    names = [name for path in paths if (name := archive.parse_name(os.path.basename(path)))]
    merged = merge_job.merge_files(SPARSE, folder, names, FILE_MODES[PUBLIC])
    for path, content in kept.items():
        Path(path).write_bytes(content)
    whole = Path(f"{folder}/{merged.file}").read_bytes()
    Path(f"{folder}/{merged.file}").write_bytes(whole[: len(whole) // 2])
    merge_job.merge(folders)
    assert len(on_disk(folders)) == len(paths) + 1, "the merged one is damaged: nothing goes"
    Path(f"{folder}/{merged.file}").write_bytes(whole)
    merge_job.merge(folders)
    assert on_disk(folders) == [f"{folder}/{merged.file}"]


def test_a_damaged_file_is_left_alone_and_the_others_are_merged(folders: Folders) -> None:
    recorded(folders, 20, boot_id())
    paths = on_disk(folders)
    Path(paths[3]).write_bytes(Path(paths[3]).read_bytes()[:-5000] + bytes(5000))
    merge_job.merge(folders)
    merge_job.merge(folders)
    left = [os.path.basename(path).split("-")[1:] for path in on_disk(folders)]
    assert [os.path.basename(paths[3]).split("-")[1], os.path.basename(paths[3]).split("-")[2]] in left
    assert len(left) < len(paths) - 6
    [found] = [each for each in fsck.check(folders) if each.kind == "damaged"]
    assert found.path == paths[3]


def test_reasons_alone_are_merged_and_kept_like_rows(folders: Folders) -> None:
    stream = Stream(folders, boot=boot_id())
    for number in range(8):
        stream.ring.absence(0, (100 + number) * SECOND, Cause.NO_PERMISSION, "bpf")
        seal_job.seal(folders)
    archive.flush(folders)
    assert len(on_disk(folders)) == 8
    assert {each.first_ns // SECOND for each in retention_job.stored(folders, "1s", is_long=True)} == {
        UTC_NS // SECOND + tick for tick in range(100, 108)
    }
    merge_job.merge(folders)
    [path] = on_disk(folders)
    with sparse_file.open_file(path) as opened:
        assert [(hole.start_ns, hole.end_ns) for hole in opened.holes] == [(100 * SECOND, 108 * SECOND)]
        assert (len(opened.ticks), opened.rows) == (0, 0)


def candidates(folders: Folders, path: str) -> list[Candidate]:
    """The files beside one as the plan of merges sees them."""
    keep = retention_job.keeper(folders, is_long=True)
    return list(merge_job.MergeJob(folders, SPARSE, keep, set(), boot_id()).candidates(os.path.dirname(path)))


def test_two_declarations_do_not_become_one(folders: Folders) -> None:
    for number, layout in enumerate([Layout(TASK, SECOND), Layout(TASK, 2 * SECOND)]):
        stream = Stream(folders, 5 + number, layouts=[layout], boot=boot_id())
        stream.run(Tasks(5), range(100, 110))
        stream.ring.close()
    seal_job.seal(folders)
    archive.flush(folders)
    paths = on_disk(folders)
    names = [name for path in paths if (name := archive.parse_name(os.path.basename(path)))]
    with pytest.raises(Error, match="two declarations"):
        merge_job.merge_files(SPARSE, os.path.dirname(paths[0]), names, FILE_MODES[PUBLIC])
    found = candidates(folders, paths[0])
    assert archive.plan_merges([each._replace(day=1) for each in found], "another boot") == []


def test_texts_and_rows_count_where_bytes_are_few(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(folders, 1, boot_id())
    path = on_disk(folders)[0]
    [candidate, *_] = candidates(folders, path)
    assert candidate.size_bytes == os.path.getsize(path) >= candidate.weight_bytes
    monkeypatch.setattr(sparse, "ROW_BYTES_MIN", 10**6)
    [candidate, *_] = candidates(folders, path)
    assert candidate.weight_bytes > 10**7
    assert (
        archive.plan_merges(
            [candidate, candidate._replace(name=candidate.name._replace(first=2, last=2))], "another boot"
        )
        == []
    )


def test_budgets_hold_over_all_tables_and_classes_and_the_oldest_go(folders: Folders) -> None:
    recorded(folders, 3, boot_id())
    recorded(folders, 3, boot_id(), layouts=[Layout(MOMENT, SECOND)], sensitivity=Sensitivity.RESTRICTED)
    stranger = f"{folders.state}/public/elsewhere/1s"
    os.makedirs(stranger)
    Path(f"{stranger}/notes.txt").write_text("not ours, and not counted")
    paths = list(retention_job.paths(folders, "1s", is_long=True))
    assert len({os.path.dirname(path) for path in paths}) == 2
    sizes = {path: os.path.getsize(path) for path in paths}
    spans = {each.path: each.last_ns for each in retention_job.stored(folders, "1s", is_long=True)}
    going = sorted(paths, key=lambda path: (spans[path], path))[:3]
    budget = sum(size for path, size in sizes.items() if path not in going)
    limits = {"1s": Limit(budget)}
    assert retention_job.Keeper(folders, limits, 0, is_long=True).make_room("1s", 0) == going
    assert sorted(retention_job.paths(folders, "1s", is_long=True)) == sorted(set(paths) - set(going))
    assert os.path.exists(f"{stranger}/notes.txt")
    retention_job.Keeper(folders, limits, 0, is_long=True).make_room("1s", budget)
    assert list(retention_job.paths(folders, "1s", is_long=True)) == []


def test_what_is_pinned_stays_as_far_as_the_pins_budget_reaches(folders: Folders) -> None:
    recorded(folders, 3, boot_id())
    oldest = on_disk(folders)[0]
    first_ns = next(each.first_ns for each in retention_job.stored(folders, "1s", is_long=True) if each.path == oldest)
    pins.add(folders.state, [pins.Pin(first_ns, first_ns + SECOND, "why", "who")])
    for pins_bytes, is_kept in ((10**6, True), (0, False)):
        retention_job.Keeper(folders, {"1s": Limit(1)}, pins_bytes, is_long=True).make_room("1s", 0)
        assert os.path.exists(oldest) == is_kept
    assert on_disk(folders) == []


def test_a_budget_is_foretold_by_what_a_day_adds(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(folders, 20, boot_id())
    size = sum(os.path.getsize(path) for path in on_disk(folders))
    assert upkeep.budget(folders, argparse.Namespace(json=True, config=None)) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {*TIERS_NS, EVENTS, *(f"records.{tier}" for tier in TIERS_NS)}
    found = told["records.1s"]
    limit = retention.of_records(retention.fitted(ArchiverSettings(), mounts.capacity_bytes(folders.state)))["1s"]
    assert found["budget_bytes"] == limit.budget_bytes
    assert found["used_bytes"] == size
    # 400 readings in 20 files and a rest: between two files a second is in neither.
    assert found["bytes_per_day"] == pytest.approx(size / 400 * 86400, rel=0.1)
    assert found["days"] == pytest.approx(
        (found["budget_bytes"] - limit.ram_bytes - 8.4e6) / found["bytes_per_day"], rel=0.05
    )
    assert told["records.10s"]["days"] is None


def test_fsck_reads_long_files_and_puts_the_damaged_aside(folders: Folders) -> None:
    recorded(folders, 2, boot_id())
    assert fsck.check(folders) == []
    damaged, strange = on_disk(folders)[0], on_disk(folders)[1]
    content = bytearray(Path(damaged).read_bytes())
    for place in range(len(content) // 3, len(content), 97):
        content[place] ^= 0x55
    Path(damaged).write_bytes(content)
    Path(strange).write_bytes(b"another thing")
    Path(f"{os.path.dirname(strange)}/notes.txt").write_text("a stranger's")
    Path(f"{damaged}.new").write_bytes(b"half")
    found = {(os.path.basename(each.path), each.kind) for each in fsck.check(folders)}
    assert found == {
        (os.path.basename(damaged), "damaged"),
        (os.path.basename(strange), "damaged"),
        ("notes.txt", "unknown"),
        (f"{os.path.basename(damaged)}.new", "left over"),
    }
    said = list(fsck.repair(folders, fsck.check(folders)))
    assert len(said) == 2
    assert not os.path.exists(damaged)
    assert len(os.listdir(f"{folders.state}/damaged")) == 2


MEASURE = """
import os, resource, sys
from sysmond.archiver import merge_job
from sysmond.archiver.coding import SPARSE
from sysmond.store import archive
folder = sys.argv[1]
names = archive.names(folder)
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
merge_job.merge_files(SPARSE, folder, names, 0o644)
print(peak(), resource.getrusage(resource.RUSAGE_SELF).ru_utime)
"""


def _noisy(number: int) -> MemoryStretch:
    """Half a million rows of processes, with as many bytes in each as on a busy machine."""
    random = np.random.default_rng(number)
    keys, each, readings = 1500, 350, 1300
    rows = keys * each
    columns = {metric.name: np.zeros(rows, np.int64) for metric in PROCESS.metrics}
    columns["pid"] = np.repeat(np.arange(keys), each)
    columns["cpu"] = np.cumsum(random.integers(0, 3000, rows))
    columns["run_delay"] = np.cumsum(random.integers(0, 1000, rows))
    columns["voluntary_switches"] = np.cumsum(random.integers(0, 30, rows))
    columns["read_chars"] = np.cumsum(random.integers(0, 255, rows) * (random.random(rows) < 0.3))
    columns["rss_anon"] = random.integers(0, 100, rows) * (random.random(rows) < 0.1) * 4096
    at = np.sort(np.argsort(random.random((keys, readings)), axis=1)[:, :each], axis=1).ravel()
    ticks = (np.arange(readings) + number * readings) * SECOND
    axis = Readings(ticks, np.arange(readings) % 300 == 0, np.zeros(readings, np.int64), np.full(readings, keys))
    return memory_stretch(About(PROCESS, BOOT, "sampler", PUBLIC, SECOND), axis, at, columns, [""])


@pytest.mark.long
def test_merging_a_full_file_takes_a_bounded_memory(tmp_path: Path) -> None:
    """16 MiB of a busy machine: four million rows, whose columns would take 32 MB each."""
    folder = str(tmp_path)
    size = number = 0
    while size < 14_500_000:
        image = sparse_file.encode(_noisy(number), "test")
        archive.publish(folder, Name(BOOT, number + 1, number + 1).file, image, FILE_MODES[PUBLIC])
        size += len(image)
        number += 1
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, folder], capture_output=True, text=True, check=True, env=os.environ
    )
    assert int(ran.stdout.split()[0]) < 120_000, "KiB"
    [merged] = archive.names(folder)
    assert (merged.first, merged.last) == (1, number)
