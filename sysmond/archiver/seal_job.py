# SPDX-License-Identifier: Apache-2.0
"""The archiver's jobs that need numpy and h5py: seal rings into segments, merge segments of a day.

Each runs in a child of the archiver that lives for one job, so their memory and their crashes are its own.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np

from sysmond import CREATED_BY
from sysmond.archiver import auto_pins, rollup_job, sparse_rollup_job
from sysmond.archiver import sparse_merge_job as long_merge
from sysmond.archiver.retention_job import Keeper, keeper, long_keeper
from sysmond.archiver.sparse_seal_job import empty as empty_long
from sysmond.archiver.sparse_seal_job import seal as seal_long
from sysmond.base import significant
from sysmond.base.clock import Relation, boot_id
from sysmond.base.model import FILE_BYTES_MAX, Cause, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.base.timespec import DAY_NS
from sysmond.base.wall_clock import course_of
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.machine import listing, note
from sysmond.machine.folders import FILE_MODES, Folders, create_classes
from sysmond.machine.memory import BoundError, working_on
from sysmond.plan import plan as plans
from sysmond.plan import retention
from sysmond.ring.progress import Progress, Sealed, ring_files, stream_files
from sysmond.ring.skipped_rings import Aside
from sysmond.ring.skipped_rings import keep as keep_copy
from sysmond.ring.snapshot import Snapshot, snapshot
from sysmond.store import archive, dense_file, invariants, pins, tiers
from sysmond.store.archive import Candidate, Name
from sysmond.store.of_ring import (
    BATCH_SERIES,
    Block,
    Hole,
    MemoryBlock,
    Plan,
    Recording,
    coalesce,
    join,
    of_snapshot,
    plan_of,
    strands,
)
from sysmond.store.pins import Pin

# What a hole says that was given up for want of room.
GIVEN_UP = "RAM for segments was full"
# Which segments could not be merged; not tried again before the next boot.
LEFT_ALONE_FILE = "left_alone.json"

# Of one file: the tables of all of them agree. With each recording the ring it is from.
_Group = list[tuple[str, Recording]]


def seal(
    folders: Folders,
    works_on: Callable[[Sequence[str]], None] = lambda _: None,
    unread: Callable[[str, str], None] = lambda _, __: None,
) -> None:
    """Turn what the rings hold and no segment has yet into segments in RAM, and note how far.

    One a class; more only where rings of several boots, or tables that are declared in two ways, meet; and where
    a seal failed before. ``works_on`` hears which rings that would be the fault of, ``unread`` of a ring what of it
    could not be read.
    """
    progress, aside = Progress.read(folders), Aside.read(folders)
    noted = {path: progress.sealed[path] for path in stream_files(folders) if path in progress.sealed}
    reached: dict[str, Sealed] = {}
    found: dict[tuple[Sensitivity, str], list[_Group]] = {}
    for path in ring_files(folders):
        before = progress.sealed.get(path, Sealed(0, 0, 0))
        noted[path] = before
        works_on([path])
        skipped = aside.skipped.get(path, 0)
        try:
            is_skipped = skipped > before.offset
            with working_on(path):
                taken = snapshot(path, max(before.offset, skipped))
                recording = _unsealed(path, taken, before, is_skipped=is_skipped)
        except FileNotFoundError:
            del noted[path]
            continue
        except (ForeignError, CorruptError, PermissionError) as refusal:
            unread(path, str(refusal))
            continue  # It stays; readers meet it as well, and name it.
        if recording.damage:
            with suppress(OSError):
                keep_copy(folders, path)
            unread(path, recording.damage)
        reached[path] = Sealed(taken.end_offset, _last_tick(recording, before.last_tick_ns), int(taken.closed))
        if recording.events or any(len(block.ticks) for block in recording.blocks):
            groups = found.setdefault((recording.sensitivity, taken.identity.boot), [])
            if aside.blamed:
                groups.append([(path, recording)])
            else:
                _place(groups, path, recording)
        elif taken.closed or not is_skipped:  # Else the gap is told with the first row after it.
            noted[path] = reached[path]
    try:
        for (sensitivity, boot), groups in found.items():
            for group in groups:
                works_on([path for path, _ in group])
                name = Name(boot, sequence := archive.next_sequence(boot, folders), sequence)
                joined = join([recording for _, recording in group])
                with working_on(*(path for path, _ in group)):
                    image = dense_file.encode(joined, CREATED_BY)
                archive.publish(archive.ram_folder(folders, sensitivity), name.file, image, FILE_MODES[sensitivity])
                noted.update((path, reached[path]) for path, _ in group)
                with suppress(OSError, Error):
                    auto_pins.pin(folders, joined)
    finally:
        Progress(noted).write(folders)
    seal_long(folders, works_on, unread)


def _unsealed(path: str, taken: Snapshot, before: Sealed, *, is_skipped: bool) -> Recording:
    """What a snapshot adds to what was sealed, and that its writer ended, where that is new."""
    recording = of_snapshot(taken)
    blocks = [block for block in recording.blocks if len(block.ticks)]
    holes = [*recording.holes, *_lost(taken, before, blocks, is_skipped=is_skipped)]
    if taken.closed and before.offset and not before.closed and not is_skipped:
        there = {block.strand for block in blocks}
        blocks += [block for block in _last_ticks(of_snapshot(snapshot(path))) if block.strand not in there]
    return recording._replace(blocks=blocks, holes=holes)


def _last_ticks(recording: Recording) -> Iterator[Block]:
    """The last tick of each block once more: a place for the news that it was the last."""
    for block in recording.blocks:
        if len(block.ticks):
            values = block.read(range(len(block.keys)))[:, -1:]
            yield MemoryBlock(block.strand, block.ticks[-1:], block.keys, values, block.closed)


def _place(groups: list[_Group], path: str, recording: Recording) -> None:
    """Put a recording to those that declare their tables alike: after an upgrade two declarations may meet."""
    for group in groups:
        if all(_agree(each.tables, recording.tables) for _, each in group):
            group.append((path, recording))
            return
    groups.append([(path, recording)])


def _agree(one: dict[str, Table], other: dict[str, Table]) -> bool:
    return all(one.get(name, table) == table for name, table in other.items())


def _last_tick(recording: Recording, before_ns: int) -> int:
    return max([before_ns, *(int(block.ticks[-1]) for block in recording.blocks)])


def _lost(taken: Snapshot, before: Sealed, blocks: Sequence[Block], *, is_skipped: bool) -> Iterator[Hole]:
    """Say what the ring overwrote before it could be sealed, and what was set aside."""
    if not (taken.lost or is_skipped) or not blocks:
        return
    detail = "set aside: sealing failed on it" if is_skipped else "overwritten before it was sealed"
    start_ns = max(before.last_tick_ns + 1, taken.identity.started_ns)  # Perhaps no tick of it was sealed.
    ends_ns: dict[str, int] = {}  # Blocks of other intervals begin again at other ticks.
    for block in blocks:
        for table in {key.table for key in block.keys}:
            ends_ns[table] = min(ends_ns.get(table, int(block.ticks[0])), int(block.ticks[0]))
    for table, end_ns in sorted(ends_ns.items()):
        yield Hole(taken.identity.boot, table, start_ns, end_ns, Cause.DROPPED, detail)


def empty(paths: Iterable[str]) -> Iterator[str]:
    """Give up the rows of files in RAM: in the place of each comes one that tells of the hole; gives each that has."""
    for path in paths:
        with suppress(Error, OSError):
            folder, file = os.path.split(path)
            is_wide = os.path.basename(folder) in set(Sensitivity)
            sensitivity, image = _emptied(path) if is_wide else empty_long(path, GIVEN_UP)
            if file in archive.files(folder):  # Else a flush has just saved it.
                note.put(path, image, mode=FILE_MODES[sensitivity])
                yield path


def _emptied(path: str) -> tuple[Sensitivity, bytes]:
    """A segment that has of another one all but its rows, and in their place their absence."""
    with dense_file.Segment(path) as opened:
        recording = opened.recording
        holes = [
            Hole(boot, table, int(block.ticks[0]), int(block.ticks[-1]) + interval_ns, Cause.DROPPED, GIVEN_UP)
            for block in recording.blocks
            if len(block.ticks)
            for boot, interval_ns in [(block.strand.boot, block.strand.interval_ns)]
            for table in sorted({key.table for key in block.keys})
        ]
        told = recording._replace(blocks=(), texts={}, holes=coalesce([*recording.holes, *holes]))
        return recording.sensitivity, dense_file.encode(told, CREATED_BY)


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
    roll_up(folders, keep, left_alone)
    for sensitivity in Sensitivity:
        folder = archive.disk_folder(folders, sensitivity)
        archive.remove_superseded(folder, _is_whole)
        largest_bytes = keep.file_bytes_max(archive.FINEST_TIER)
        unrolled = {name for tier in tiers.COARSE for name in _unrolled(folders, sensitivity, tier)}
        candidates = [*_candidates(folder, left_alone), *archive.parting(folders)]
        for names in archive.plan_merges(candidates, boot_id(), largest_bytes):
            if not _has_room(keep, archive.FINEST_TIER, [f"{folder}/{name.file}" for name in names]):
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
    keep = long_keeper(folders)
    sparse_rollup_job.roll_up_tables(folders, keep.make_room, left_alone)
    largest_bytes = keep.file_bytes_max(archive.FINEST_TIER)
    long_merge.merge(
        folders, boot_id(), largest_bytes, lambda paths: _has_room(keep, archive.FINEST_TIER, paths), left_alone
    )
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


def roll_up(folders: Folders, keep: Keeper | None = None, left_alone: set[str] | None = None) -> None:
    """Make the files of the tiers of segments that are on disk and in no tier yet; names those that are damaged."""
    keep = keep or keeper(folders)
    left_alone = _left_alone(folders) if left_alone is None else left_alone
    create_classes(folders.state, *tiers.COARSE)
    for sensitivity in Sensitivity:
        rows = archive.disk_folder(folders, sensitivity)
        places = {tier: archive.disk_folder(folders, sensitivity, tier) for tier in tiers.COARSE}
        for place in places.values():
            archive.remove_temporary(place)
        for run in rollup_job.due(rows, places, left_alone):
            for name, images in _rolled_up(rows, run, left_alone):
                for tier, image in images.items():
                    keep.make_room(tier, len(image))
                    archive.publish(places[tier], name.file, image, FILE_MODES[sensitivity])


def _rolled_up(rows: str, run: rollup_job.Due, left_alone: set[str]) -> Iterator[tuple[Name, dict[str, bytes]]]:
    """Roll up a run; where that fails each of its segments by itself, so that one alone is left out."""
    whole = Name(run.names[0].boot, run.names[0].first, run.names[-1].last)
    try:
        with working_on(*(f"{rows}/{name.file}" for name in run.names)):
            images = rollup_job.roll_up_files(rows, run)
        yield whole, images
    except FileNotFoundError:
        return
    except (Error, BoundError) as failure:
        if len(run.names) == 1:
            left_alone.add(f"{rows}/{whole.file}")
            if isinstance(failure, BoundError):
                raise
            return
        for before, name in zip([run.before, *run.names], run.names, strict=False):
            yield from _rolled_up(rows, rollup_job.Due([name], run.tiers, before), left_alone)


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


def _merged(recording: Recording, members: Sequence[Block], significant_bits: int, pinned: Sequence[Pin]) -> Plan:
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


def _shortened(recording: Recording, plan: Plan, bits: int, free: significant.Bools) -> Iterator[Int64Array]:
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
