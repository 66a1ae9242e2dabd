# SPDX-License-Identifier: Apache-2.0
"""Keeping: real files go, oldest first, before others are written; pinned ones stay, unrolled ones are rolled up."""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import synthetic
from sysmond.archiver import merge_job, retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.archiver.retention_job import Keeper
from sysmond.base import clock
from sysmond.base.clock import Relation
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.commands import fsck, upkeep
from sysmond.commands import pins as pinning
from sysmond.daemon.arguments import parser
from sysmond.errors import ConfigError, CorruptError, UsageError
from sysmond.machine import mounts
from sysmond.machine.folders import Folders
from sysmond.plan import plan, retention
from sysmond.plan import plan as plans
from sysmond.plan.retention import Limit
from sysmond.store import archive, dense, pins, tiers
from sysmond.store.archive import Name
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand
from sysmond.store.pins import Pin
from tests.faults import trial

SECOND = 10**9
UTC_NS = 1_700_000_000 * SECOND
TABLE = Table("load", (Metric("one", "1", Semantics.GAUGE, "Load.", 2), Metric("all", "1", Semantics.COUNTER, "All.")))
PIECE_S = 200


def put(folders: Folders, number: int, boot: str = "a" * 32, wall_ns: int = UTC_NS) -> int:
    """A segment of noise, which does not compress; gives its size."""
    random = np.random.default_rng(number)
    ticks = (np.arange(PIECE_S, dtype=np.int64) + number * PIECE_S) * SECOND
    values = np.array([random.integers(-(2**30), 2**30, PIECE_S), np.cumsum(random.integers(0, 2**30, PIECE_S))])
    keys = [SeriesKey("load", metric.name, "") for metric in TABLE.metrics]
    block = MemoryBlock(Strand(boot, "sampler", 1, SECOND), ticks, keys, values)
    made = Recording(Sensitivity.PUBLIC, {"load": TABLE}, [block], {}, {boot: [Relation(0, wall_ns, 0)]}, [])
    image = dense_file.encode(made, "a test")
    name = Name(boot, number, number).file
    archive.publish(archive.disk_folder(folders, Sensitivity.PUBLIC), name, image, 0o644)
    return len(image)


def there(folders: Folders, tier: str = "1s") -> list[str]:
    return archive.files(archive.disk_folder(folders, Sensitivity.PUBLIC, tier))


def numbers(folders: Folders) -> list[int]:
    return [name.first for name in archive.names(archive.disk_folder(folders, Sensitivity.PUBLIC))]


def keeper(folders: Folders, budget: int, pins_bytes: int = 0, age_ns: int = 0) -> Keeper:
    return Keeper(folders, dict.fromkeys(retention.TIERS_NS, Limit(budget, age_ns)), pins_bytes)


def test_the_oldest_go_before_more_comes(folders: Folders) -> None:
    size = max(put(folders, number) for number in range(1, 9))
    keep = keeper(folders, 8 * size)
    assert keep.make_room("1s", 0) == []
    keep.make_room("1s", 2 * size)
    assert numbers(folders) in ([3, 4, 5, 6, 7, 8], [4, 5, 6, 7, 8])


def test_what_waits_in_ram_counts(folders: Folders) -> None:
    size = max(put(folders, number) for number in range(1, 9))
    waiting = Path(archive.ram_folder(folders, Sensitivity.PUBLIC)) / Name("a" * 32, 9, 9).file
    waiting.write_bytes(bytes(3 * size))
    keeper(folders, 8 * size).make_room("1s", 0)
    assert len(numbers(folders)) <= 5


def test_room_is_kept_for_what_will_wait_in_ram_before_it_is_written(folders: Folders) -> None:
    size = max(put(folders, number) for number in range(1, 9))
    settings = plan.ArchiverSettings(size_1s_bytes=8 * size)
    limits, pins_bytes = retention.of_settings(settings)
    assert limits["1s"].ram_bytes == size
    assert limits["10s"].ram_bytes == 0
    assert 0 < settings.ram_full_bytes < size
    Keeper(folders, limits, pins_bytes).make_room("1s", 0)
    there_bytes = sum(
        os.stat(f"{archive.disk_folder(folders, Sensitivity.PUBLIC)}/{file}").st_size for file in there(folders)
    )
    assert 5 * size < there_bytes + limits["1s"].ram_bytes <= 8 * size


def test_age_and_damage(folders: Folders) -> None:
    now_ns = time.time_ns()
    for number in range(1, 5):
        put(folders, number, wall_ns=now_ns - 1000 * SECOND)
    for name in there(folders):
        os.utime(f"{archive.disk_folder(folders, Sensitivity.PUBLIC)}/{name}", (1, 1))
    broken = Path(archive.disk_folder(folders, Sensitivity.PUBLIC)) / Name("b" * 32, 1, 1).file
    broken.write_bytes(b"nothing")
    os.utime(broken, (1, 1))
    keeper(folders, 10**9, age_ns=500 * SECOND).make_room("1s", 0)
    assert numbers(folders) == [2, 3, 4]


def test_a_clock_that_jumps_ahead_costs_no_file(folders: Folders) -> None:
    for number in range(1, 5):
        put(folders, number)
    for name in there(folders):
        os.utime(f"{archive.disk_folder(folders, Sensitivity.PUBLIC)}/{name}", (1, 1))
    hour_ns, years_ns = 3600 * SECOND, 3650 * 86_400 * SECOND
    begin = Relation(hour_ns, UTC_NS + 1000 * SECOND, hour_ns)
    limits = dict.fromkeys(retention.TIERS_NS, Limit(10**9, 20 * 86_400 * SECOND))

    def look(hours: float, ahead_ns: int) -> list[int]:
        passed_ns = round(hours * hour_ns)
        now = Relation(begin.boottime_ns + passed_ns, begin.realtime_ns + passed_ns + ahead_ns, 0)
        Keeper(folders, limits, 0, relation=lambda: now).make_room("1s", 0)
        return numbers(folders)

    for hours, ahead_ns in ((0, years_ns), (1, years_ns), (2, 0), (3, years_ns), (20, years_ns), (21, 0), (400, 0)):
        assert look(hours, ahead_ns) == [1, 2, 3, 4]
    Path(folders.state, "clock.json").write_text("{}", encoding="utf-8")
    assert look(401, years_ns) == [1, 2, 3, 4]
    assert look(402, 0) == [1, 2, 3, 4]
    assert look(500, 0) == [], "three weeks have really passed"


def test_a_pin_keeps_rows_while_its_budget_lasts(folders: Folders) -> None:
    size = max(put(folders, number) for number in range(1, 9))
    pins.add(folders.state, [Pin(UTC_NS + 2 * PIECE_S * SECOND, UTC_NS + 3 * PIECE_S * SECOND, "spike", "me")])
    keeper(folders, 3 * size, 2 * size).make_room("1s", size)
    assert 2 in numbers(folders)
    assert 3 not in numbers(folders)
    pins.remove(folders.state, lambda pin: pin.by == "me")
    keeper(folders, 3 * size, 2 * size).make_room("1s", size)
    assert 2 not in numbers(folders)


def test_rows_are_rolled_up_before_they_go(folders: Folders) -> None:
    size = max(put(folders, number) for number in range(1, 9))
    limits = dict.fromkeys(retention.TIERS_NS, Limit())
    make_room = retention_job.keeper(folders).make_room
    keep = Keeper(
        folders, limits | {"1s": Limit(4 * size)}, 0, lambda _: rollup_job.roll_up(folders, DENSE, make_room, set())
    )
    keep.make_room("1s", size)
    assert len(numbers(folders)) <= 4
    for tier in tiers.COARSE:
        [file] = there(folders, tier)
        assert file == Name("a" * 32, 1, 8).file


def test_what_could_not_be_rolled_up_is_tried_again_before_it_goes(folders: Folders) -> None:
    for number in (1, 2):
        put(folders, number)
    path = f"{archive.disk_folder(folders, Sensitivity.PUBLIC)}/{Name('a' * 32, 1, 1).file}"
    # As a disk leaves it that failed for a moment while the first one was read.
    Path(folders.runtime, "archiver", merge_job.LEFT_ALONE_FILE).write_text(json.dumps([path]), encoding="utf-8")
    merge_job.merge(folders)
    assert there(folders, "10s") == [Name("a" * 32, 2, 2).file]
    usual = plans.builtin()
    plans.write(usual._replace(archiver=usual.archiver._replace(size_1s_bytes=1)), f"{folders.runtime}/plan.json")
    retention_job.keeper(folders).make_room("1s", 1)
    assert numbers(folders) == []
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, "10s")
    assert sum(_rows(f"{folder}/{file}") for file in there(folders, "10s")) == 2 * PIECE_S


@pytest.mark.long
def test_a_merge_takes_tiers_across_boots_into_one_file_and_nothing_twice(folders: Folders) -> None:
    boots = [letter * 32 for letter in "fbd"]
    for number, boot in enumerate(boots):
        for piece in range(1, 5):
            put(folders, piece, boot, UTC_NS + number * 10**6 * SECOND)
            merge_job.merge(folders)
    kept = {
        file: Path(archive.disk_folder(folders, Sensitivity.PUBLIC, "5min"), file).read_bytes()
        for file in there(folders, "5min")
    }
    for piece in range(5, 15):
        put(folders, piece, boots[2], UTC_NS + 2 * 10**6 * SECOND)
        merge_job.merge(folders)
    for tier in tiers.COARSE:
        folder = archive.disk_folder(folders, Sensitivity.PUBLIC, tier)
        listed, unreadable = tiers.listing(folder)
        assert not unreadable
        assert len(listed) < 10
        assert any(len({name.boot for name in file.covers}) == 3 for file in listed), tier
        assert sum(_rows(f"{folder}/{file.file}") for file in listed) == (4 + 4 + 14) * PIECE_S
    # A merge that was interrupted leaves its sources: they count no more, and go at the next one.
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, "5min")
    before = set(there(folders, "5min"))
    for file, content in kept.items():
        Path(folder, file).write_bytes(content)
    listed, _ = tiers.listing(folder)
    assert {file.file for file in tiers.counting(listed)} == before
    merge_job.merge(folders)
    assert sum(_rows(f"{folder}/{file}") for file in there(folders, "5min")) == (4 + 4 + 14) * PIECE_S
    assert not tiers.due(
        archive.disk_folder(folders, Sensitivity.PUBLIC),
        {tier: archive.disk_folder(folders, Sensitivity.PUBLIC, tier) for tier in tiers.COARSE},
        (),
        1,
        0,
    )
    assert archive.free_sequence(boots[2], folders) == 15


def _rows(path: str) -> int:
    with Segment(path) as opened:
        return sum(int(block.axis.rows.sum()) for block in opened.recording.tiers)


def test_pins_are_joined_and_released_and_wait_for_the_disk(folders: Folders) -> None:
    waiting = f"{folders.runtime}/archiver"
    pins.add(waiting, [Pin(5, 9, "oom", "sysmond"), Pin(8, 12, "oom", "sysmond"), Pin(8, 12, "mine", "me")])
    assert pins.read(waiting) == [Pin(5, 12, "oom", "sysmond"), Pin(8, 12, "mine", "me")]
    pins.collect(folders)
    assert pins.read(waiting) == []
    assert len(pins.read(folders.state)) == 2
    assert pins.remove(folders.state, lambda pin: pin.why == "oom") == [Pin(8, 12, "mine", "me")]


def test_a_pin_waits_for_a_state_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "later"), str(tmp_path / "early"))
    os.makedirs(pins.waiting(folders))
    options = parser().parse_args(["pin", "-1h", "now", "--why", "early boot"])
    assert pinning.pin(folders, options) == 0
    assert not os.path.exists(folders.state)
    assert [pin.why for pin in pins.read(pins.waiting(folders))] == ["early boot"]
    os.makedirs(folders.state)
    pins.collect(folders)
    assert [pin.why for pin in pins.read(folders.state)] == ["early boot"]
    assert pins.read(pins.waiting(folders)) == []
    with pytest.raises(UsageError, match=r"the range ends \('now'\) before it begins \('now'\)"):
        pinning.pin(folders, parser().parse_args(["pin", "now", "now"]))


@pytest.mark.parametrize("content", ["{", "[]", '{"pins": [], "crc32": 1}'])
def test_damaged_pins_keep_everything_as_far_as_their_budget_reaches(folders: Folders, content: str) -> None:
    size = max(put(folders, number) for number in range(1, 9))
    path = Path(folders.state, pins.FILE)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CorruptError, match=str(path)):
        pins.read(folders.state)
    keeper(folders, 2 * size, 3 * size).make_room("1s", size)
    assert numbers(folders) == [5, 6, 7, 8]  # One in its own budget beside what comes, three in that of the pins.
    # What is pinned meanwhile waits, and a merge goes on; nothing damaged is written over.
    waiting = f"{folders.runtime}/archiver"
    pins.add(waiting, [Pin(5, 9, "oom", "sysmond")])
    merge_job.merge(folders)
    assert path.read_text(encoding="utf-8") == content
    assert [finding.path for finding in fsck.check(folders)] == [str(path)]
    (step,) = fsck.repair(folders, fsck.check(folders))
    assert step.startswith(f"{path}: moved to ")
    merge_job.merge(folders)
    assert pins.read(folders.state) == [Pin(5, 9, "oom", "sysmond")]


SERIES, DAYS = 30, 12
# So that every tier is full after a bit more than a week.
BUDGETS = {"1s": 12_000_000, "10s": 5_250_000, "1min": 1_425_000, "5min": 400_000}
SEAL_S, HOUR_S, DAY_S = 600, 3600, 86_400


def said_days(
    folders: Folders, capsys: pytest.CaptureFixture[str], config: str | None = None
) -> dict[str, float | None]:
    """How many days each tier of wide tables keeps, as ``sysmond budget`` says."""
    assert upkeep.budget(folders, argparse.Namespace(json=True, config=config)) == 0
    told = json.loads(capsys.readouterr().out)
    return {tier: told[tier]["days"] for tier in retention.TIERS_NS}


def held_days(folders: Folders, tier: str) -> float:
    files, _ = tiers.listing(archive.disk_folder(folders, Sensitivity.PUBLIC, tier))
    assert sum(file.size_bytes for file in files) <= BUDGETS[tier]
    return (max(file.last_ns for file in files) - min(file.first_ns for file in files)) / 1e9 / DAY_S


@pytest.mark.long
def test_a_budget_is_foretold_within_15_percent_from_an_hour_on(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: dict[str, Any] = {f"size_{tier}_bytes": size for tier, size in BUDGETS.items()}
    plan.write(plan.Plan((), (), archiver=plan.ArchiverSettings(**sizes)), f"{folders.runtime}/plan.json")
    tables = synthetic.tables(synthetic.counters(SERIES))
    matrix, boot = synthetic.values(SERIES, DAYS * DAY_S), clock.boot_id()
    keep, folder = retention_job.keeper(folders), archive.disk_folder(folders, Sensitivity.PUBLIC)
    said: dict[int, dict[str, float | None]] = {}
    held: dict[str, list[float]] = {tier: [] for tier in BUDGETS}
    done_s = 0
    # As the archiver flushes at first, and then in larger pieces, as they become by merging.
    for length_s in [SEAL_S] * 6 + [HOUR_S] * 5 + [6 * HOUR_S] * 3 + [DAY_S] * (DAYS - 1):
        ticks = (1 + done_s + np.arange(length_s, dtype=np.int64)) * SECOND
        done_s += length_s
        strand = Strand(boot, "sampler", SECOND, SECOND)
        block = MemoryBlock(strand, ticks, synthetic.keys(tables), matrix[:, done_s - length_s : done_s])
        clocks = {boot: [Relation(0, UTC_NS // DAY_S // SECOND * DAY_S * SECOND, 0)]}
        made = Recording(Sensitivity.PUBLIC, {table.name: table for table in tables}, [block], {}, clocks, [])
        image = dense_file.encode(made, "a test")
        keep.make_room("1s", len(image))
        seals = Name(boot, (done_s - length_s) // SEAL_S + 1, done_s // SEAL_S)
        archive.publish(folder, seals.file, image, 0o644)
        merge_job.merge(folders)
        if done_s in {HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S}:
            said[done_s] = said_days(folders, capsys)
        if done_s > (DAYS - 3) * DAY_S:
            for tier, found in held.items():
                found.append(held_days(folders, tier))
    assert said[HOUR_S].pop("5min") is None, "a dozen buckets tell nothing"
    for days in said.values():
        for tier, foretold in days.items():
            assert foretold == pytest.approx(np.mean(held[tier]), rel=0.15), tier
    # Before a change is made: what twice the bytes would keep.
    file, before = tmp_path / "wanted.yaml", said_days(folders, capsys)
    wanted = ", ".join(f"{tier}: {{size: {2 * size}B}}" for tier, size in BUDGETS.items())
    file.write_text(f"tiers: {{{wanted}}}")
    for tier, foretold in said_days(folders, capsys, str(file)).items():
        assert foretold == pytest.approx(2 * (before[tier] or 0), rel=0.15), tier
    # What fewer digits would.
    file.write_text(f"archive: {{significant_bits: 6}}\ntiers: {{1s: {{size: {BUDGETS['1s']}B}}}}")
    whole = [f"{folder}/{name.file}" for name in archive.names(folder)[1:-1]]
    saved = sum(map(os.path.getsize, whole)) / sum(len(dense.merged([path], 6)) for path in whole)
    assert saved > 1.2
    assert said_days(folders, capsys, str(file))["1s"] == pytest.approx(saved * (before["1s"] or 0), rel=0.15)
    file.write_text("tiers: {5min: {size: 1B}}")
    with pytest.raises(ConfigError, match=r"tiers\.5min\.size: '1B' is out of bounds"):
        said_days(folders, capsys, str(file))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Folders]:
    """Folders in a file system of 32 MiB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    trial.command("mount", "-t", "tmpfs", "-o", "size=32m,mode=755", "sysmond-test", str(mounted))
    try:
        made = Folders(f"{mounted}/state", f"{tmp_path}/run")
        for sensitivity in Sensitivity:
            os.makedirs(archive.disk_folder(made, sensitivity))
        yield made
    finally:
        trial.command("umount", "--lazy", str(mounted))


@pytest.mark.skipif(bool(trial.cannot_mount()), reason="mounts a file system of its own")
class TestASmallFileSystem:
    def test_all_tiers_take_their_share_of_it(self, small_disk: Folders, capsys: pytest.CaptureFixture[str]) -> None:
        capacity = mounts.capacity_bytes(small_disk.state)
        assert capacity == 32 << 20
        settings = retention.fitted(plan.ArchiverSettings(share_percent=50), capacity)
        limits, pins_bytes = retention.of_settings(settings)
        budgets = [limit.budget_bytes for limit in [*limits.values(), *retention.of_records(settings).values()]]
        assert 15 << 20 < sum(budgets) + pins_bytes <= (16 << 20) + 2 * retention.BUDGET_BYTES_MIN
        assert upkeep.budget(small_disk, argparse.Namespace(json=True, config=None)) == 0
        told = json.loads(capsys.readouterr().out)
        assert sum(tier["budget_bytes"] for tier in told.values()) <= (32 << 20) / 10 + 8 * retention.BUDGET_BYTES_MIN

    def test_what_stays_free_is_not_written_to(self, small_disk: Folders) -> None:
        size = max(put(small_disk, number) for number in range(1, 9))
        keep = Keeper(small_disk, dict.fromkeys(retention.TIERS_NS, Limit(10**9)), 0, free_percent=15)
        assert keep.make_room("1s", 2 * size) == []
        # Somebody else fills the disk: nothing goes for that, but what comes takes the place of what is oldest.
        fill(small_disk, free_part=0.10)
        assert keep.make_room("1s", 0) == []
        assert keep.make_room("1s", 2 * size)
        assert numbers(small_disk) in ([3, 4, 5, 6, 7, 8], [4, 5, 6, 7, 8])
        os.unlink(f"{small_disk.state}/filler")
        left = len(numbers(small_disk))
        assert keep.make_room("1s", 2 * size) == []
        assert len(numbers(small_disk)) == left
        # So it is by default, whoever asks for room.
        fill(small_disk, free_part=0.14)
        assert retention_job.keeper(small_disk).make_room("1s", size)


def fill(folders: Folders, free_part: float) -> None:
    """Fill the file system up to so much of it."""
    there = os.statvfs(folders.state)
    size = int(there.f_bavail - there.f_blocks * free_part) * there.f_frsize
    with open(f"{folders.state}/filler", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
