# SPDX-License-Identifier: Apache-2.0
"""Tiers of long tables on disk: every file of rows gets into each of them once, whatever happens meanwhile."""

import os
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from benchmarks import tasks_synthetic
from sysmon_tools import extract
from sysmond.answers.records import answer
from sysmond.answers.rows.question import Request
from sysmond.archiver import merge_job, retention_job, rollup_job
from sysmond.archiver.coding import SPARSE, Coding
from sysmond.base.clock import Relation
from sysmond.base.model import TIERS_NS, Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine.folders import FILE_MODES, Folders, create_stream
from sysmond.plan import retention
from sysmond.plan.retention import Limit
from sysmond.rollup import file_edges, top
from sysmond.rollup.top import derived
from sysmond.store import archive, tiers
from sysmond.store.archive import Name
from sysmond.store.files import sparse_file
from sysmond.store.stretches.stretch import MemoryStretch, Stretch
from sysmond.store.tiers import COARSE
from sysmond.tasks import tables
from tests.rollup.test_top import BOOT, LONG, SECOND, Reading, check, history, moments, parts_of, replay, stretch_of
from tests.support.order import first

PUBLIC = Sensitivity.PUBLIC


@pytest.fixture(autouse=True)
def _first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "FIRST", 2)


def folder_of(folders: Folders, tier: str = "1s", table: Table = LONG) -> str:
    return archive.disk_folder(folders, PUBLIC, tier, table.name)


def put(folders: Folders, first: int, stretches: Sequence[Stretch]) -> None:
    """Put stretches on disk as files of rows, as a flush does."""
    for number, stretch in enumerate(stretches, first):
        table = stretch.table
        create_stream(folders.state, f"{PUBLIC}/{table.name}")
        create_stream(folders.state, f"{PUBLIC}/{table.name}/1s")
        name = Name(stretch.boot, number, number)
        image = sparse_file.encode(stretch, "test")
        archive.publish(folder_of(folders, table=table), name.file, image, FILE_MODES[PUBLIC])


def no_room_needed(_tier: str, _bytes: int) -> None:
    """There is room."""


def roll_up(folders: Folders, left_alone: set[str] | None = None, coding: Coding = SPARSE) -> None:
    rollup_job.roll_up(folders, coding, no_room_needed, set() if left_alone is None else left_alone)


class Roomy(retention_job.Keeper):
    """Has room for everything, in files of a size."""

    def __init__(self, folders: Folders, largest_bytes: int) -> None:
        super().__init__(folders, dict.fromkeys(TIERS_NS, Limit(10**12)), 0, is_long=True)
        self._largest_bytes = largest_bytes

    def file_bytes_max(self, _: str) -> int:
        return self._largest_bytes


def merge_tiers(
    folders: Folders, boot: str = BOOT, left_alone: set[str] | None = None, largest_bytes: int = 1 << 24
) -> None:
    alone = set() if left_alone is None else left_alone
    merge_job.MergeJob(folders, SPARSE, Roomy(folders, largest_bytes), alone, boot).merge_tiers()


def merge(folders: Folders, largest_bytes: int = 1 << 24) -> None:
    merge_tiers(folders, largest_bytes=largest_bytes)


def merged(folders: Folders, tier: str, table: Table = LONG) -> MemoryStretch:
    """All of a tier."""
    folder = folder_of(folders, tier, table)
    with ExitStack() as stack:
        paths = [f"{folder}/{name.file}" for name in archive.names(folder)]
        found = file_edges.merged([stack.enter_context(sparse_file.open_file(path)) for path in paths])
        # Read while they are open.
        columns = {metric.name: found.column(metric.name) for metric in found.table.metrics}
        return MemoryStretch(found.about, found._readings, found.tick_index(), columns.__getitem__, found.texts)


def check_all(folders: Folders, readings: Sequence[Reading], these: Sequence[str] = COARSE) -> None:
    for tier in these:
        check(merged(folders, tier), replay(readings, {}, TIERS_NS[tier]))


def files_of(folders: Folders) -> dict[str, int]:
    """Every file of every tier and when it was written."""
    places = [folder_of(folders, tier) for tier in COARSE]
    paths = [f"{place}/{each}" for place in places if os.path.isdir(place) for each in os.listdir(place)]
    return {path: os.stat(path).st_mtime_ns for path in sorted(paths)}


@pytest.mark.parametrize("seed", first(1, range(8)))
def test_files_that_come_one_by_one_give_the_buckets_of_all(folders: Folders, seed: int) -> None:
    readings, _ = history(seed, 900, 7)
    parts = parts_of(readings, 24, random.Random(seed))
    dice = random.Random(seed)
    done = 0
    while done < len(parts):
        more = dice.randrange(1, 6)
        put(folders, done + 1, [stretch_of(part) for part in parts[done : done + more]])
        done = min(len(parts), done + more)
        roll_up(folders)
        if dice.random() < 0.5:
            merge(folders)
        check_all(folders, [reading for part in parts[:done] for reading in part])
    before = files_of(folders)
    roll_up(folders)
    assert files_of(folders) == before
    merge(folders, 1 << 14)
    check_all(folders, readings)


def test_runs_are_bounded(folders: Folders) -> None:
    # What was absent for longer than the file before a run is not known to have grown meanwhile.
    readings, _ = history(5, 600, 6, absent=0)
    parts = parts_of(readings, 12, random.Random(5))
    put(folders, 1, [stretch_of(part) for part in parts])
    roll_up(folders, coding=SPARSE._replace(seals_at_once=3))
    assert len(archive.names(folder_of(folders, "10s"))) == -(-len(parts) // 3)
    check_all(folders, readings)
    for tier in COARSE:
        shutil.rmtree(folder_of(folders, tier))
    roll_up(folders, coding=SPARSE._replace(bytes_at_once=1))
    assert len(archive.names(folder_of(folders, "10s"))) == len(parts)
    check_all(folders, readings)


def test_tiers_that_lack_different_files_get_each_once(folders: Folders) -> None:
    readings, _ = history(6, 300, 4)
    parts = parts_of(readings, 4, random.Random(6))
    for number, part in enumerate(parts, 1):
        put(folders, number, [stretch_of(part)])
        roll_up(folders)
    for number, tier in ((1, "1min"), (2, "5min")):
        folder = folder_of(folders, tier)
        os.unlink(f"{folder}/{archive.names(folder)[number].file}")
    before = files_of(folders)
    roll_up(folders)
    assert len(files_of(folders)) == len(before) + 2
    check_all(folders, readings)


def test_small_files_become_one(folders: Folders) -> None:
    readings, _ = history(8, 700, 6)
    parts = parts_of(readings, 14, random.Random(8))
    for number, part in enumerate(parts, 1):
        put(folders, number, [stretch_of(part)])
        roll_up(folders)
    assert len(archive.names(folder_of(folders, "1min"))) == len(parts) > 8
    merge(folders)
    assert len(archive.names(folder_of(folders, "1min"))) < 8
    check_all(folders, readings)


def test_files_of_a_boot_that_is_over_become_one(folders: Folders) -> None:
    readings, _ = history(8, 300, 6)
    parts = parts_of(readings, 4, random.Random(8))
    for number, part in enumerate(parts, 1):
        put(folders, number, [stretch_of(part)])
        roll_up(folders)
    assert len(archive.names(folder_of(folders, "10s"))) == len(parts)
    merge_tiers(folders, "c" * 32)
    assert archive.names(folder_of(folders, "10s")) == [Name(BOOT, 1, len(parts))]
    check_all(folders, readings)


class KilledError(BaseException):
    """Stands for a signal: nothing in the program catches it."""


def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die at one of the calls that change what is on disk, before or after it is done."""
    left = [steps]

    def dying(name: str, module: object) -> None:
        real = getattr(module, name)

        def call(*args: object, **more: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise KilledError
            found = real(*args, **more)
            left[0] -= 1
            if left[0] == 0:
                raise KilledError
            return found

        monkeypatch.setattr(module, name, call)

    for name in ("rename", "unlink", "fsync"):
        dying(name, os)


@pytest.mark.parametrize("stride", first(1, [37, 1]))  # What is odd is now before a call, now after it.
def test_whoever_is_killed_leaves_what_the_next_one_completes(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    monkeypatch.setattr(tiers, "COARSE", ("1min",))
    readings, _ = history(2, 250, 3)
    parts = parts_of(readings, 9, random.Random(2))
    for number, part in enumerate(parts[:-1], 1):
        put(folders, number, [stretch_of(part)])
        roll_up(folders)
    put(folders, len(parts), [stretch_of(parts[-1])])
    kept = str(tmp_path / "kept")
    shutil.copytree(folders.state, kept)
    deaths = 0
    for steps in range(1, 200, stride):
        shutil.rmtree(folders.state)
        shutil.copytree(kept, folders.state)
        with pytest.MonkeyPatch.context() as patch:
            killed_after(steps, patch)
            try:
                roll_up(folders)
                merge(folders)
            except KilledError:
                deaths += 1
            else:
                break
        roll_up(folders)
        check_readings(folders, readings, ["1min"])
        merge(folders)
        check_all(folders, readings, ["1min"])
        assert not [path for path in files_of(folders) if path.endswith(".new")]
        assert len(archive.names(folder_of(folders))) == len(parts)
    assert deaths > 30 // stride


def test_a_damaged_file_is_left_out_alone(folders: Folders) -> None:
    readings, _ = history(6, 400, 5)
    parts = parts_of(readings, 5, random.Random(6))
    put(folders, 1, [stretch_of(part) for part in parts])
    path = f"{folder_of(folders)}/{Name(BOOT, 3, 3).file}"
    with open(path, "r+b") as damaged:
        damaged.seek(2000)
        damaged.write(bytes(os.path.getsize(path) - 4000))
    alone: set[str] = set()
    roll_up(folders, alone)
    assert alone == {path}
    for tier in COARSE:
        ranges = archive.names(folder_of(folders, tier))
        assert not any(name.first <= 3 <= name.last for name in ranges)
        assert {number for name in ranges for number in range(name.first, name.last + 1)} == {
            number for number in range(1, len(parts) + 1) if number != 3
        }
        whole = merged(folders, tier)
        assert whole.column("readings")[whole.keys["pid"].repeat(whole.counts) == 0].size
    merge(folders, 1 << 24)
    assert not any(name.first <= 3 <= name.last for name in archive.names(folder_of(folders, "10s")))
    put_again = stretch_of(parts[2])
    os.unlink(path)
    put(folders, 3, [put_again])
    roll_up(folders)
    check_readings(folders, readings)


def check_readings(folders: Folders, readings: Sequence[Reading], these: Sequence[str] = COARSE) -> None:
    """Every reading is in one bucket."""
    for tier in these:
        whole = merged(folders, tier)
        at, where = np.unique(whole.tick_index(), return_index=True)
        assert len(at) == len(whole.ticks)
        assert int(whole.column("readings")[where].sum()) == len(readings)


def test_rows_go_only_when_their_buckets_are_there(folders: Folders) -> None:
    readings, _ = history(3, 400, 6)
    parts = parts_of(readings, 6, random.Random(3))
    put(folders, 1, [stretch_of(part) for part in parts])
    sizes = sum(os.path.getsize(f"{folder_of(folders)}/{each}") for each in os.listdir(folder_of(folders)))
    limits = {tier: Limit(sizes // 2 if tier == "1s" else 10**9) for tier in TIERS_NS}
    keep = retention_job.Keeper(folders, limits, 0, lambda _: roll_up(folders), is_long=True)
    assert keep.make_room("1s", 0)
    assert 0 < len(os.listdir(folder_of(folders))) < len(parts)
    check_all(folders, readings)


def test_little_is_rolled_up_when_its_rows_go_and_not_before(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    readings, _ = history(3, 400, 6)
    parts = [stretch_of(part) for part in parts_of(readings, 6, random.Random(3))]
    put(folders, 1, parts)
    other = "f" * 32  # Of a later boot, which keeps its rows.
    put(folders, 1, [part.with_about(part.about._replace(boot=other)) for part in parts])
    rows = folder_of(folders)
    sizes = sum(os.path.getsize(f"{rows}/{each}") for each in os.listdir(rows))
    merge_job.merge(folders)
    assert all(os.listdir(folder_of(folders, tier)) == [] for tier in COARSE)
    limits = {tier: Limit(sizes if tier == "1s" else 10**9) for tier in TIERS_NS}
    monkeypatch.setattr(retention, "of_records", lambda _: limits)
    keep = retention_job.keeper(folders, is_long=True)
    before = os.listdir(rows)
    keep.make_room("1s", sizes - sum(os.path.getsize(f"{rows}/{each}") for each in before) + 1)
    gone = set(before) - set(os.listdir(rows))
    assert {name[:32] for name in gone} == {BOOT}
    assert all({name[:32] for name in os.listdir(folder_of(folders, tier))} == {BOOT} for tier in COARSE)
    check_all(folders, readings)


def test_where_processes_ended_is_known_they_count_until_then(folders: Folders) -> None:
    readings, ended = history(12, 600, 6)
    parts = parts_of(readings, 6, random.Random(12))
    put(folders, 1, [stretch_of(part) for part in parts])
    rows = [
        ((end_ns - 1) // SECOND, {"pid": pid, "start": start, "end": end_ns}) for (pid, start), end_ns in ended.items()
    ]
    last_s = max(at for at, _ in rows)
    half = last_s // 2
    early = moments(tables.EXITS, half, [(at, row) for at, row in rows if at < half], ["x"])
    late = moments(tables.EXITS, last_s + 1, [(at, row) for at, row in rows if at >= half], ["x"])
    put(folders, 1, [early, late])
    roll_up(folders)
    for tier in COARSE:
        check(merged(folders, tier), replay(readings, ended, TIERS_NS[tier]))


def test_after_a_change_of_declaration_files_stay_apart(folders: Folders) -> None:
    readings, _ = history(1, 300, 5)
    parts = parts_of(readings, 3, random.Random(1))
    stretches = [stretch_of(part) for part in parts]
    other = LONG._replace(doc="Other things.")
    stretches[-1] = stretches[-1].with_about(stretches[-1].about._replace(table=other))
    put(folders, 1, stretches)
    roll_up(folders)
    merge(folders)
    found = {}
    for name in archive.names(folder_of(folders, "1min")):
        with sparse_file.open_file(f"{folder_of(folders, '1min')}/{name.file}") as opened:
            found[name.first] = opened.table
    assert found[len(parts)] == derived(other)
    assert found[1] == derived(LONG)


def test_a_file_of_nothing_but_news_is_done_with(folders: Folders) -> None:
    empty = stretch_of([])
    put(folders, 1, [empty])
    roll_up(folders)
    assert [name.first for name in archive.names(folder_of(folders, "5min"))] == [1]
    readings, _ = history(1, 100, 5)
    put(folders, 2, [stretch_of(readings)])
    roll_up(folders)
    check_all(folders, readings)


def test_a_merge_job_does_all_of_it(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup_job, "RIPE_SEALS", 1)
    readings, _ = history(21, 500, 6)
    parts = parts_of(readings, 9, random.Random(21))
    put(folders, 1, [stretch_of(part) for part in parts])
    names = tables.CGROUP_NAME
    put(folders, 1, [moments(names, 5, [(0, {"id": 3, "path": 0}), (2, {"id": 3, "path": 1})], ["/a", "/b"])])
    merge_job.merge(folders)
    check_all(folders, readings)
    for tier in COARSE:
        with sparse_file.open_file(f"{folder_of(folders, tier, names)}/{Name(BOOT, 1, 1).file}") as opened:
            assert [opened.texts[code] for code in opened.last("path").tolist()] == ["/b"]
            assert opened.table == names
    assert oct(os.stat(folder_of(folders, "10s")).st_mode & 0o7777) == "0o755"


def several(folder: str) -> Iterator[str]:
    yield from (f"{folder}/{each}" for each in sorted(os.listdir(folder)))


@pytest.mark.parametrize("where", first(1, [0.5, 0.1]))
def test_a_damaged_file_of_a_tier_is_not_merged(folders: Folders, where: float) -> None:
    readings, _ = history(8, 700, 6)
    parts = parts_of(readings, 14, random.Random(8))
    for number, part in enumerate(parts, 1):
        put(folders, number, [stretch_of(part)])
        roll_up(folders)
    place = folder_of(folders, "1min")
    path = list(several(place))[2]
    with open(path, "r+b") as damaged:
        damaged.seek(int(os.path.getsize(path) * where))
        damaged.write(bytes(500))
    with pytest.raises(Error):
        SPARSE.check(path)
    before = os.listdir(place)
    alone: set[str] = set()
    for _ in range(2):
        merge_tiers(folders, left_alone=alone)
    assert alone <= {path}
    assert os.path.basename(path) in os.listdir(place)
    assert len(os.listdir(place)) < len(before)
    names = archive.names(place)
    assert [name for name in names if name.first <= 3 <= name.last] == [Name(BOOT, 3, 3)]


def lived(hours: int) -> list[MemoryStretch]:
    """Processes that were recorded until just now, in files of ten minutes."""
    length_s, count = hours * 3600, 100
    booted_ns = time.time_ns() // SECOND * SECOND - (length_s + 1000) * SECOND
    seconds = tasks_synthetic.seconds(count, tasks_synthetic.BUSY, length_s)
    made = []
    for number in range(length_s // 600):
        part = tasks_synthetic.of_parts([next(seconds) for _ in range(600)], count, 1000 + 600 * number)
        made.append(part.with_about(part.about._replace(relations=[Relation(0, booted_ns, 0)])))
    return made


@pytest.mark.parametrize("merges", first(1, [True, False]))
def test_questions_are_answered_when_the_rows_are_gone(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, merges: bool
) -> None:
    monkeypatch.setattr(top, "FIRST", 20)
    stretches = lived(1)
    for number, stretch in enumerate(stretches, 1):
        put(folders, number, [stretch])
        roll_up(folders)
    if merges:
        merge_job.merge(folders)

    def asked() -> dict[int, float]:
        # Of whom was there when recording began, what was used before is not known.
        begin_ns = stretches[0].relations[0].realtime_ns + 1000 * SECOND
        request = Request("process", start=begin_ns, columns="pid,cpu:sum", by="cpu:sum")
        records = answer(folders, tuple(Sensitivity), request).records
        used: dict[int, float] = defaultdict(float)
        for pid, amount in zip(records["pid"].tolist(), records["cpu:sum"].tolist(), strict=True):
            used[pid] += amount
        return used

    exact = asked()
    gone = archive.names(folder_of(folders, table=tables.PROCESS))
    for name in gone if merges else gone[:-2]:
        os.unlink(f"{folder_of(folders, table=tables.PROCESS)}/{name.file}")
    shutil.rmtree(folder_of(folders, "10s", tables.PROCESS))
    found = asked()
    assert sum(found.values()) == pytest.approx(sum(exact.values()), rel=1e-9)
    ranked = sorted(exact, key=lambda pid: -exact[pid])
    for pid in ranked[:5]:
        assert 0.9 * exact[pid] < found[pid] <= exact[pid]
    words = ["process", "--from=-30d", "--top", "10", "--format=csv", f"--state-dir={folders.state}"]
    assert extract.main([*words, f"--runtime-dir={folders.runtime}"]) == 0
    header, *lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert header.startswith("time,pid,comm")
    assert len(lines) == 10
    assert str(ranked[0]) in {line.split(",")[1] for line in lines}
