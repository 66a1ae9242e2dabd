# SPDX-License-Identifier: Apache-2.0
"""The dense coding as jobs see it: what of a ring becomes a file, what files weigh, which become one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from sysmond import CREATED_BY
from sysmond.base import significant
from sysmond.base.declared_answers import within
from sysmond.base.model import FILE_BYTES_MAX, Answers, Cause, Semantics, Sensitivity, Table
from sysmond.base.result import BoolArray, Int64Array
from sysmond.base.timespec import DAY_NS
from sysmond.base.wall_clock import course_of
from sysmond.ring.progress import Sealed
from sysmond.ring.snapshot import snapshot
from sysmond.store import archive, of_ring, tiers
from sysmond.store.archive import Candidate, Name
from sysmond.store.files import dense_file, invariants
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import (
    BATCH_SERIES,
    Block,
    BlockPlan,
    Hole,
    MemoryBlock,
    Recording,
    coalesce,
    of_snapshot,
    plan_of,
    strands,
)
from sysmond.store.pins import Pin
from sysmond.store.tiers import TierFile
from sysmond.store.unsealed import FilePart, Unsealed, dropped, has_ended_since

# Of a tier fewer stay as they are: two that become one, and the newest.
_FILES_MIN = 3


def unsealed(path: str, before: Sealed, skipped: int, answers: Mapping[str, Answers]) -> Unsealed:
    """What a ring has beyond what was sealed ``before`` and the offset up to which it is ``skipped``.

    ``answers``: what tables declare about them, by name.

    :raises FileNotFoundError: where it is gone. :raises PermissionError: where we may not read it.
    :raises Error: where it is no ring of ours, or so damaged that nobody can say what or when rows were.
    """
    is_skipped = skipped > before.offset
    copied = snapshot(path, max(before.offset, skipped))
    recording = of_snapshot(copied)
    recording = recording._replace(tables={name: declared(table, answers) for name, table in recording.tables.items()})
    blocks = [block for block in recording.blocks if len(block.ticks)]
    last_ns = max([before.last_tick_ns, *(int(block.ticks[-1]) for block in blocks)])
    reached = Sealed(copied.end_offset, last_ns, int(copied.closed))
    how = "overwritten before it was sealed"
    lost = dropped(copied.identity, copied.lost, before, _firsts_ns(blocks), is_skipped=is_skipped, how=how)
    if has_ended_since(before, closed=copied.closed, is_skipped=is_skipped):
        there = {block.strand for block in blocks}
        blocks += [block for block in _last_ticks(of_snapshot(copied.before())) if block.strand not in there]
    is_damaged = any(hole.cause is Cause.DAMAGED_FILE for hole in recording.holes)
    if not blocks and not recording.events and not (is_damaged and reached.offset > before.offset):
        # The gap of what is skipped is told with the first row after it; the ring may be gone before there is one,
        # and with it all that tells of what is damaged.
        return Unsealed([], before if is_skipped and not copied.closed else reached, recording.damage)
    whole = recording._replace(blocks=blocks, holes=[*recording.holes, *lost])
    part = FilePart(copied.identity.boot, recording.sensitivity, "", whole, recording.tables)
    return Unsealed([part], reached, recording.damage)


def declared(table: Table, answers: Mapping[str, Answers]) -> Table:
    """A table with what it declares, as far as it has the columns."""
    said = within(answers[table.name], table) if table.name in answers else None
    return table._replace(answers=said) if said and said.derived else table


def _firsts_ns(blocks: Sequence[Block]) -> dict[str, int]:
    """The first tick of each table: blocks of other intervals begin at other ticks."""
    firsts_ns: dict[str, int] = {}
    for block in blocks:
        for table in {key.table for key in block.keys}:
            firsts_ns[table] = min(firsts_ns.get(table, int(block.ticks[0])), int(block.ticks[0]))
    return firsts_ns


def _last_ticks(recording: Recording) -> Iterator[Block]:
    """The last tick of each block once more: a place for the news that it was the last."""
    for block in recording.blocks:
        if len(block.ticks):
            values = block.read(range(len(block.keys)))[:, -1:]
            yield MemoryBlock(block.strand, block.ticks[-1:], block.keys, values, block.closed)


def encode(contents: Sequence[Recording]) -> bytes:
    """The image of a file of all of these.

    :raises Error: where two declare a table differently, or there is more than a file may have.
    """
    return dense_file.encode(of_ring.join(contents), CREATED_BY)


def emptied(path: str, why: str) -> tuple[Sensitivity, bytes]:
    """The class of a file, and one that has of it all but its rows, and in their place their absence.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        recording = opened.recording
        holes = [
            Hole(boot, table, int(block.ticks[0]), int(block.ticks[-1]) + interval_ns, Cause.DROPPED, why)
            for block in recording.blocks
            if len(block.ticks)
            for boot, interval_ns in [(block.strand.boot, block.strand.interval_ns)]
            for table in sorted({key.table for key in block.keys})
        ]
        empty = recording._replace(blocks=(), texts={}, holes=coalesce([*recording.holes, *holes]))
        return recording.sensitivity, dense_file.encode(empty, CREATED_BY)


def check(path: str) -> None:
    """Read all of a file.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        for block in opened.recording.blocks:
            for first in range(0, len(block.keys), BATCH_SERIES):
                block.read(range(first, min(first + BATCH_SERIES, len(block.keys))))
        for tier in opened.recording.tiers:
            for row in range(len(tier.keys)):
                tier.buckets([row])


def weighed(path: str, candidate: Candidate) -> Candidate:
    """What a merge of rows must know of a file: the day of its first, what it declares, as how many bytes it counts.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        size_bytes = max(candidate.size_bytes, _weight(opened.recording))
        tables = opened.recording.tables
        return candidate._replace(day=first_day(opened.recording), tables=tables, size_bytes=size_bytes)


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


def first_day(recording: Recording) -> int | None:
    """The UTC day of a recording's first tick, else of its first hole, in days since 1970; None where there is none."""
    is_empty = not recording.holes and not any(len(block.ticks) for block in recording.blocks)
    return None if is_empty else tiers.span_ns(recording)[0] // DAY_NS


def merged(paths: Sequence[str], significant_bits: int = 0, pinned: Sequence[Pin] = ()) -> bytes:
    """What files of rows become when they are merged.

    With ``significant_bits`` rows have so many, but for those that have fewer already, or lie in a pinned span.

    :raises Error: where one of them is damaged or declares a table differently.
    """
    with ExitStack() as stack:
        joined = of_ring.join([stack.enter_context(Segment(path)).recording for path in paths])
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


def plan_tier(
    folder: str, _boot: str, largest_bytes: int, unrolled: Sequence[Name], left_alone: set[str]
) -> list[list[TierFile]]:
    """Which small files of a tier become one: neighbours, of whatever boots; see ``tiers.plan_merges``.

    The newest stays by itself: from what two files differ in is foretold how long a budget lasts.
    """
    if len(archive.files(folder)) < _FILES_MIN:
        return []  # Most often there is nothing to do, which their number tells already.
    files, _ = tiers.listing(folder)
    usable = [file for file in tiers.counting(files) if f"{folder}/{file.file}" not in left_alone]
    return tiers.plan_merges(usable[:-1], largest_bytes, unrolled)


def span_ns(path: str) -> tuple[int, int]:
    """UTC of the outermost rows of a file, in nanoseconds; where it has none, of what else it tells.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        return tiers.span_ns(opened.recording)
