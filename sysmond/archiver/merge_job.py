# SPDX-License-Identifier: Apache-2.0
"""The job that merges: small files of every tier become larger ones, after what no tier has yet was rolled up.

It runs in a child of the archiver that lives for one job. What cannot be merged is left alone until the next boot.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np

from sysmond import CREATED_BY
from sysmond.archiver import rollup_job, sparse_rollup_job
from sysmond.archiver import sparse_merge_job as long_merge
from sysmond.archiver.retention_job import Keeper, keeper
from sysmond.base import significant
from sysmond.base.clock import Relation, boot_id
from sysmond.base.model import FILE_BYTES_MAX, FINEST_TIER, Semantics, Sensitivity
from sysmond.base.result import BoolArray, Int64Array
from sysmond.base.timespec import DAY_NS
from sysmond.base.wall_clock import course_of
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.machine import listing, note
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.machine.memory import BoundError, working_on
from sysmond.plan import plan as plans
from sysmond.plan import retention
from sysmond.store import archive, dense_file, invariants, pins, tiers
from sysmond.store.archive import Candidate, Name
from sysmond.store.of_ring import (
    BATCH_SERIES,
    Block,
    BlockPlan,
    Recording,
    join,
    plan_of,
    strands,
)
from sysmond.store.pins import Pin

# Which segments could not be merged; not tried again before the next boot.
LEFT_ALONE_FILE = "left_alone.json"


def merge(folders: Folders) -> None:
    """Roll up what no tier has yet, merge small files of every tier, and remove what a merged one contains.

    Where that is wanted rows of a merged file have fewer digits: but only what every tier has, and nothing pinned.
    """
    left_alone = _left_alone(folders)
    try:
        _merge_all(folders, left_alone)
    except BoundError as limit:
        left_alone.update(limit.paths)
        raise
    finally:
        _leave_alone(folders, left_alone)


def _merge_all(folders: Folders, left_alone: set[str]) -> None:
    keep = keeper(folders)
    with suppress(OSError, Error):
        pins.collect(folders)
    rollup_job.roll_up_rows(folders, keep.make_room, left_alone)
    for sensitivity in Sensitivity:
        folder = archive.disk_folder(folders, sensitivity)
        archive.remove_superseded(folder, _is_whole)
        largest_bytes = keep.file_bytes_max(FINEST_TIER)
        unrolled = {name for tier in tiers.COARSE for name in _unrolled(folders, sensitivity, tier)}
        candidates = [*_candidates(folder, left_alone), *archive.parting(folders)]
        for names in archive.plan_merges(candidates, boot_id(), largest_bytes):
            if not _has_room(keep, FINEST_TIER, [f"{folder}/{name.file}" for name in names]):
                continue
            bits, pinned = (0, []) if unrolled.intersection(names) else _shortening(folders)
            paths = [f"{folder}/{name.file}" for name in names]
            try:
                with working_on(*paths):
                    merge_files(folder, names, FILE_MODES[sensitivity], bits, pinned)
            except Error:  # They stay as they are; readers name what is damaged.
                left_alone.update([path for path in paths if not _is_whole(path)] or paths[-1:])
        for tier in tiers.COARSE:
            _merge_tier(folders, sensitivity, tier, keep, left_alone)
    _merge_long(folders, left_alone)
    for tier in retention.TIERS_NS:
        keep.make_room(tier, 0)


def _merge_long(folders: Folders, left_alone: set[str]) -> None:
    keep = keeper(folders, is_long=True)
    sparse_rollup_job.roll_up_tables(folders, keep.make_room, left_alone)
    largest_bytes = keep.file_bytes_max(FINEST_TIER)
    long_merge.merge(folders, boot_id(), largest_bytes, lambda paths: _has_room(keep, FINEST_TIER, paths), left_alone)
    may_grow = partial(_has_room, keep)
    sparse_rollup_job.merge_tiers(folders, boot_id(), keep.file_bytes_max, may_grow, left_alone)
    for tier in retention.TIERS_NS:
        keep.make_room(tier, 0)


def _shortening(folders: Folders) -> tuple[int, list[Pin]]:
    """To how many bits rows are shortened, and which spans are not; where nobody knows these, none are."""
    plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
    try:
        return plan.archiver.significant_bits, [*pins.read(folders.state), *pins.read(pins.waiting(folders))]
    except Error:
        return 0, []


def _has_room(keep: Keeper, tier: str, sources: Sequence[str]) -> bool:
    """Make room for what files become beside them; False where one of themselves had to go for it."""
    with suppress(FileNotFoundError, CorruptError):
        keep.make_room(tier, sum(listing.look(path).size_bytes for path in sources))
    return all(map(os.path.exists, sources))


def _merge_tier(folders: Folders, sensitivity: Sensitivity, tier: str, keep: Keeper, left_alone: set[str]) -> None:
    """Remove what an interrupted merge left, then merge by the plan until it has nothing more to do."""
    folder = archive.disk_folder(folders, sensitivity, tier)
    unrolled = _unrolled(folders, sensitivity, tier)
    while True:
        files, _ = tiers.listing(folder)
        counting = set(tiers.current({each.file: each.covers for each in files}))
        for each in files:
            if each.file not in counting and all(_is_whole(f"{folder}/{file}") for file in counting):
                os.unlink(f"{folder}/{each.file}")
        usable = [each for each in files if each.file in counting and f"{folder}/{each.file}" not in left_alone]
        groups = tiers.plan_merges(usable, keep.file_bytes_max(tier), unrolled)
        if not groups:
            return
        for group in groups:
            if not _has_room(keep, tier, [f"{folder}/{each.file}" for each in group]):
                return
            paths = [f"{folder}/{each.file}" for each in group]
            try:
                with working_on(*paths):
                    merge_tier_files(folder, group, FILE_MODES[sensitivity])
            except Error:
                left_alone.update([path for path in paths if not _is_whole(path)] or paths[-1:])


def _unrolled(folders: Folders, sensitivity: Sensitivity, tier: str) -> list[Name]:
    covers = tiers.covered(archive.disk_folder(folders, sensitivity, tier))
    rows = archive.names(archive.disk_folder(folders, sensitivity))
    return [name for name in rows if not tiers.hold(covers, name)]


def merge_tier_files(folder: str, group: Sequence[tiers.TierFile], mode: int) -> str:
    """Write one file of a tier that holds the buckets of several neighbours, then remove those.

    :raises Error: where one of them is damaged or declares a table differently; nothing is changed then.
    """
    image = merged_image([f"{folder}/{each.file}" for each in group], has_rows=False)
    merged = tiers.file_name(tiers.joined(name for each in group for name in each.covers))
    archive.replace(folder, [each.file for each in group], merged, image, mode)
    return merged


def _candidates(folder: str, left_alone: set[str]) -> Iterator[Candidate]:
    for name in archive.names(folder):
        path = f"{folder}/{name.file}"
        with suppress(FileNotFoundError):
            size_bytes, day, tables = 0, None, {}
            with suppress(CorruptError, ForeignError, NotPermittedError):
                size_bytes, _, written_ns = listing.look(path)
                if path not in left_alone and archive.is_fresh(written_ns):
                    with dense_file.Segment(path) as opened:
                        day, tables = first_day(opened.recording), opened.recording.tables
                        size_bytes = max(size_bytes, _weight(opened.recording))
            yield Candidate(name, size_bytes, day, tables)


def _weight(recording: Recording) -> int:
    """A file of few bytes may claim much, and no reader would take more: it counts by its share of that, in bytes."""
    lengths = [(len(block.ticks), len(block.keys)) for block in recording.blocks]
    shares = (
        sum(ticks for ticks, _ in lengths) / invariants.TICKS_MAX,
        sum(ticks * series for ticks, series in lengths) / invariants.CELLS_MAX,
        len(lengths) / invariants.BLOCKS_MAX,
        len(recording.holes) / invariants.WIDE_ELEMENTS_MAX["gaps"],
    )
    return round(FILE_BYTES_MAX * max(shares))


def _is_whole(path: str) -> bool:
    """Read all of a segment."""
    try:
        with dense_file.Segment(path) as opened:
            for block in opened.recording.blocks:
                for first in range(0, len(block.keys), BATCH_SERIES):
                    block.read(range(first, min(first + BATCH_SERIES, len(block.keys))))
            for tier in opened.recording.tiers:
                for row in range(len(tier.keys)):
                    tier.buckets([row])
    except (Error, OSError):
        return False
    return True


def _left_alone(folders: Folders) -> set[str]:
    try:
        paths = note.read(
            f"{folders.runtime}/archiver/{LEFT_ALONE_FILE}", lambda noted: set(map(note.text, note.array(noted)))
        )
    except (OSError, CorruptError):
        return set()
    return {path for path in map(str, paths) if os.path.exists(path)}


def _leave_alone(folders: Folders, paths: set[str]) -> None:
    path = f"{folders.runtime}/archiver/{LEFT_ALONE_FILE}"
    if paths != _left_alone(folders):
        note.write(path, sorted(paths))


def first_day(recording: Recording) -> int | None:
    """The UTC day of a recording's first tick, else of its first hole, in days since 1970; None where there is none."""
    starts = [
        int(block.ticks[0]) + _wall_offset_ns(recording.clocks.get(block.strand.boot, []), int(block.ticks[0]))
        for block in recording.blocks
        if len(block.ticks)
    ]
    starts = starts or [
        hole.start_ns + _wall_offset_ns(recording.clocks.get(hole.boot, []), hole.start_ns) for hole in recording.holes
    ]
    return min(starts) // DAY_NS if starts else None


def _wall_offset_ns(relations: Sequence[Relation], tick_ns: int) -> int:
    before = [relation for relation in relations if relation.boottime_ns <= tick_ns] or list(relations[:1])
    return before[-1].realtime_ns - before[-1].boottime_ns if before else 0


def merge_files(
    folder: str, names: Sequence[Name], mode: int, significant_bits: int = 0, pinned: Sequence[Pin] = ()
) -> Name:
    """Write one segment that holds the rows of several neighbours, then remove those; see ``merged_image``.

    :raises Error: where one of them is damaged or declares a table differently; nothing is changed then.
    """
    merged = Name(names[0].boot, names[0].first, names[-1].last)
    image = merged_image([f"{folder}/{name.file}" for name in names], significant_bits, pinned)
    archive.replace(folder, [name.file for name in names], merged.file, image, mode)
    return merged


def merged_image(
    paths: Sequence[str], significant_bits: int = 0, pinned: Sequence[Pin] = (), *, has_rows: bool = True
) -> bytes:
    """What files become when they are merged; of rows, or else of buckets.

    With ``significant_bits`` rows have so many, but for those that have fewer already, or lie in a pinned span.

    :raises Error: where one of them is damaged or declares a table differently.
    """
    with ExitStack() as stack:
        recordings = [stack.enter_context(dense_file.Segment(path)).recording for path in paths]
        if not has_rows:
            return rollup_job.merge_tier(recordings)
        joined = join(recordings)
        merging = [_merged(joined, members, significant_bits, pinned) for members in strands(joined.blocks)]
        return dense_file.encode_plans(joined, merging, CREATED_BY)


def _merged(recording: Recording, members: Sequence[Block], significant_bits: int, pinned: Sequence[Pin]) -> BlockPlan:
    """One block of all those of a strand."""
    plan = plan_of(members)
    free = np.full(len(plan.ticks), significant_bits > 0)
    for member in members:
        if member.significant_bits:
            free[np.searchsorted(plan.ticks, member.ticks)] = False
    utc_ns = course_of(recording.clocks.get(plan.strand.boot, []), plan.strand.interval_ns).utc_ns(plan.ticks)
    for pin in pinned:
        free &= (utc_ns < pin.start_ns) | (utc_ns >= pin.end_ns)
    if not free.any():
        return plan
    bits = min(significant_bits, plan.significant_bits or significant_bits)
    return plan._replace(batches=_shortened(recording, plan, significant_bits, free), significant_bits=bits)


def _shortened(recording: Recording, plan: BlockPlan, bits: int, free: BoolArray) -> Iterator[Int64Array]:
    """The batches of a plan with fewer digits at the ticks that are ``free``."""
    tables = recording.tables.values()
    metrics = {(table.name, metric.name): metric for table in tables for metric in table.metrics}
    kinds = [metrics[key.table, key.metric] for key in plan.keys]
    is_counter = np.array([metric.semantics is Semantics.COUNTER for metric in kinds], bool)
    is_gauge = np.array([metric.semantics is Semantics.GAUGE and not metric.is_text for metric in kinds], bool)
    start = 0
    for values in plan.batches:
        batch = slice(start, start + len(values))
        significant.shorten(values, bits, is_gauge=is_gauge[batch], is_counter=is_counter[batch], free=free)
        start += len(values)
        yield values
