# SPDX-License-Identifier: Apache-2.0
"""Tiers on disk: whatever way rows came into files and files were merged, buckets are those of the rows themselves."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysmond.archiver import rollup_job
from sysmond.archiver.coding import DENSE, SPARSE, Coding
from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.base.wall_clock import course_of
from sysmond.plan.retention import TIERS_NS
from sysmond.rollup import series
from sysmond.store import tiers
from sysmond.store.archive import Name
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Stat
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import BootEvent, MemoryBlock, Recording, SeriesKey, Strand
from sysmond.store.tiers import Due
from tests.support.order import examples

BOOT = "d" * 32
SECOND = 10**9
UTC_NS = 1_700_000_000 * SECOND
TABLE = Table(
    "disk",
    (
        Metric("read", "B", Semantics.COUNTER, "Read."),
        Metric("queue", "1", Semantics.GAUGE, "Waiting.", 2),
        Metric("model", "text", Semantics.STATE, "Made by."),
    ),
    "device",
)
KEYS = [SeriesKey("disk", metric.name, f"sd{number}") for number in range(2) for metric in TABLE.metrics]


class Story:
    """A boot as it may have been: ticks of several lives of the sampler, values, and the course of the clocks."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        tick_s = int(random.integers(5, 500))
        wall_ns, asleep_ns = UTC_NS, 0
        self.relations = [Relation(tick_s * SECOND, tick_s * SECOND + wall_ns, tick_s * SECOND)]
        self.lives: list[tuple[Strand, Int64Array, Int64Array]] = []
        for _ in range(int(random.integers(1, 4))):
            ticks = []
            for _ in range(int(random.integers(1, 900))):
                luck = random.random()
                tick_s += 1 if luck < 0.97 else int(random.integers(1, 40))
                if luck > 0.995:
                    wall_ns += int(random.choice([-70, 3, 1000])) * SECOND
                elif luck > 0.99:
                    asleep_ns += 5 * SECOND
                    tick_s += 5
                now_ns = tick_s * SECOND + 300_000
                relation = Relation(now_ns, now_ns + wall_ns, now_ns - asleep_ns)
                if relation.differs(self.relations[-1]):
                    self.relations.append(relation)
                ticks.append(tick_s * SECOND)
            values = np.cumsum(random.integers(0, 50, (len(KEYS), len(ticks))), axis=1)
            values[1::3] = random.integers(-100, 100, values[1::3].shape)
            values[2::3] = values[2::3] // 400
            if random.random() < 0.5:  # A counter was reset.
                at = int(random.integers(0, len(ticks)))
                values[0, at:] -= values[0, at]
            values[random.random(values.shape) < random.choice([0, 0.02, 0.5])] = ABSENT
            if random.random() < 0.3:
                values[3:, : len(ticks) // 2] = ABSENT  # A device that came later.
            if random.random() < 0.4:
                values[: int(random.integers(1, 7))] = random.integers(0, 9)  # Nothing ever happened.
            strand = Strand(BOOT, "sampler", ticks[0] - 1, SECOND)
            self.lives.append((strand, np.array(ticks, np.int64), values))
            tick_s += int(random.integers(1, 100))
        self.random = random

    def recording(self, first_ns: int, end_ns: int, late: int = 0) -> Recording:
        """What a segment has of the rows in [first, end); of its last tick it lacks the series from ``late`` on."""
        blocks = []
        for strand, ticks, values in self.lives:
            inside = slice(*np.searchsorted(ticks, [first_ns, end_ns]))
            if len(ticks[inside]):
                part = values[:, inside].copy()
                if late and ticks[inside][-1] == end_ns - 1:
                    part[late:, -1] = ABSENT
                blocks.append(MemoryBlock(strand, ticks[inside], KEYS, part))
        known = [relation for relation in self.relations if relation.boottime_ns < end_ns + SECOND]
        past = [relation for relation in known if relation.boottime_ns < first_ns]
        clocks = {BOOT: known[max(0, len(past) - 1) :]}
        events = [BootEvent(BOOT, first_ns, "mark", "", f"at {first_ns}")]
        return Recording(Sensitivity.PUBLIC, {"disk": TABLE}, blocks, {}, clocks, [], events)

    def every_tick(self) -> Int64Array:
        return np.concatenate([ticks for _, ticks, _ in self.lives])


def write(folder: Path, story: Story, cuts: list[int]) -> list[Name]:
    """Write segments of rows; some overlap in their last tick, some in more."""
    folder.mkdir(parents=True)
    ticks = story.every_tick()
    names = []
    edges = [0, *cuts, len(ticks)]
    late = 0
    for number, (first, end) in enumerate(pairwise(edges), 1):
        begin = first - 1 if late else first
        if first > 3 and story.random.random() < 0.2:
            begin = max(edges[number - 2], first - 3) if number > 1 else first  # The archiver died, and did it again.
        late = int(story.random.choice([0, 0, 3])) if end < len(ticks) else 0
        part = story.recording(int(ticks[begin]), int(ticks[end - 1]) + 1, late)
        names.append(Name(BOOT, number, number))
        (folder / names[-1].file).write_bytes(dense_file.encode(part, "a test"))
    return names


def contents(path: Path) -> dict[tuple[Strand, SeriesKey], Any]:
    """Everything in a file of a tier that does not depend on how it was made."""
    found: dict[tuple[Strand, SeriesKey], Any] = {}
    with Segment(str(path)) as opened:
        for block in opened.recording.tiers:
            for row, key in enumerate(block.keys):
                buckets = block.buckets([row])
                if all((array[0] == (0 if stat in ZERO else ABSENT)).all() for stat, array in buckets.stats.items()):
                    continue
                found[block.strand, key] = (
                    [column.tolist() for column in block.axis],
                    {stat: array[0].tolist() for stat, array in buckets.stats.items()},
                )
    return found


ZERO = {Stat.COUNT, Stat.SUM, Stat.LEAP, Stat.LEAP_NS}


def directly(story: Story, tier: str) -> dict[tuple[Strand, SeriesKey], Any]:
    """The same from rows that were never in any file, without a finer tier in between."""
    found = {}
    for strand, ticks, values in story.lives:
        starts = statistics.cut_axis(statistics.axis_of_rows(ticks), course_of(story.relations, SECOND), TIERS_NS[tier])
        for row, key in enumerate(KEYS):
            metric = next(metric for metric in TABLE.metrics if metric.name == key.metric)
            made = statistics.of_rows(statistics.stats_of(metric), values[row : row + 1], ticks, starts, SECOND)
            stats = {stat: array[0].tolist() for stat, array in made.stats.items()}
            if any(value != (0 if stat in ZERO else ABSENT) for stat, array in stats.items() for value in array):
                axis = [column.tolist() for column in made.axis]
                found[strand._replace(step_ns=TIERS_NS[tier]), key] = (axis, stats)
    return found


def roll(folder: Path, story: Story, names: list[Name]) -> dict[str, list[Path]]:
    """Roll the segments up in runs of any length."""
    made: dict[str, list[Path]] = {tier: [] for tier in tiers.COARSE}
    at = 0
    while at < len(names):
        end = at + int(story.random.integers(1, 4))
        run = Due(names[at:end], tiers.COARSE, names[max(0, at - 1) : at])
        for tier, image in series.roll_up_files(str(folder), run).items():
            path = folder / tier / f"{at:03}.h5"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(image)
            made[tier].append(path)
        at = end
    return made


def merge(paths: list[Path], story: Story) -> Path:
    """Merge neighbours in any order until one file is left."""
    paths = list(paths)
    while len(paths) > 1:
        at = int(story.random.integers(0, len(paths) - 1))
        end = at + int(story.random.integers(2, 5))
        opened = [Segment(str(path)) for path in paths[at:end]]
        image = series.merge_tier([each.recording for each in opened])
        for each in opened:
            each.close()
        paths[at].write_bytes(image)
        del paths[at + 1 : end]
    return paths[0]


@settings(max_examples=examples(10))
@given(st.integers(0, 2**32))
def test_every_way_into_a_tier_gives_the_buckets_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    story = Story(seed)
    length = len(story.every_tick())
    cuts = sorted({int(cut) for cut in story.random.integers(1, max(2, length), 8) if cut < length})
    folder = tmp_path_factory.mktemp("rows") / "1s"
    names = write(folder, story, cuts)
    for tier, paths in roll(folder, story, names).items():
        path = merge(paths, story)
        assert contents(path) == directly(story, tier), tier
        with Segment(str(path)) as opened:
            assert opened.recording.covers in ([Name(BOOT, 1, len(names))], [])
            assert len(opened.recording.events) == len(set(opened.recording.events)) >= len(names) // 2


def run_of(first: int, last: int, boot: str = BOOT) -> Due:
    return Due([Name(boot, first, first), Name(boot, first + 1, last)], ("10s",), [])


def test_wide_tables_of_a_young_boot_are_rolled_up_sooner_and_all_of_one_that_is_over(tmp_path: Path) -> None:
    def is_ripe(coding: Coding, first: int, last: int, boot: str = BOOT) -> bool:
        return rollup_job.is_ripe(coding, BOOT, str(tmp_path), run_of(first, last, boot))

    ripe = [[is_ripe(DENSE, first, first + seals - 1) for seals in (2, 3, 4, 23, 24)] for first in (1, 7, 9, 100)]
    assert ripe == [
        [False, True, True, True, True],
        [False, True, True, True, True],
        [False, False, True, True, True],
        [False, False, False, False, True],
    ]
    assert [is_ripe(SPARSE, 1, last) for last in (4, 23, 24)] == [False, False, True]
    assert is_ripe(DENSE, 1, 2, "e" * 32)
    assert not is_ripe(SPARSE, 1, 2, "e" * 32)
    # However few, where they are large.
    Path(tmp_path, Name(BOOT, 101, 102).file).write_bytes(bytes(SPARSE.ripe_bytes))
    assert is_ripe(SPARSE, 100, 102)
    assert not is_ripe(DENSE, 100, 102)
    Path(tmp_path, Name(BOOT, 101, 102).file).write_bytes(bytes(DENSE.ripe_bytes))
    assert is_ripe(DENSE, 100, 102)
