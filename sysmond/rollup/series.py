# SPDX-License-Identifier: Apache-2.0
"""Tiers of wide tables: rows of series become buckets of every tier, and files of a tier larger ones.

All tiers are made from one reading of the rows, each from the one before it. Memory is bounded by the batches of
series in which rows are read and buckets written.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.model import ABSENT, EVENTS
from sysmond.base.result import Int64Array
from sysmond.base.wall_clock import Course, course_of
from sysmond.errors import Error
from sysmond.plan.retention import TIERS_NS
from sysmond.store import events, tiers
from sysmond.store.archive import Name
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Buckets, Edges, Stat, stats_of
from sysmond.store.files.dense_file import Segment, TierWriter, Writer
from sysmond.store.of_ring import (
    BATCH_SERIES,
    BATCH_VALUES,
    Block,
    BlockPlan,
    Recording,
    SeriesKey,
    Strand,
    TierBlock,
    join,
    plan_of,
    strands,
)
from sysmond.store.tiers import Beside, Due, nothing_beside

# So many sealed files (a day and a half) are rolled up at once: bounds memory, whatever was left undone.
SEALS_AT_ONCE = 288
# How many rows' values are rolled up at once: their intermediate results stay in the processor's cache.
PIECE_VALUES = 384 * 1024


_Kind = tuple[Stat, ...]
"""What is kept of a series."""


def roll_up_files(rows_folder: str, run: Due, _: Beside = nothing_beside) -> dict[str, bytes]:
    """Make the files of the tiers that lack these, by tier.

    :raises Error: where one is damaged, or they declare a table differently.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(Segment(f"{rows_folder}/{name.file}")).recording for name in run.names]
        joined = join(opened)
        known: list[Block] = []
        for name in run.before[-1:]:
            # What one that is damaged had in common with the others, if anything, is counted twice.
            with suppress(Error, FileNotFoundError):
                known = list(stack.enter_context(Segment(f"{rows_folder}/{name.file}")).recording.blocks)
        covers = [Name(run.names[0].boot, run.names[0].first, run.names[-1].last)]
        images = {EVENTS: events.of_rows(joined, covers)} if EVENTS in run.tiers else {}
        wanted = [tier for tier in run.tiers if tier != EVENTS]
        if not wanted:
            return images
        plans = [plan for strand in strands(joined.blocks) if (plan := _without(plan_of(strand), known)) is not None]
        return {**roll_up(joined._replace(covers=covers), plans, wanted), **images}


def _without(plan: BlockPlan, known: Iterable[Block]) -> BlockPlan | None:
    """Leave out what was rolled up before: a segment may begin with rows that the one before it ends with.

    Of the last common tick either may have tables that the other has not.
    """
    shared = [b for b in known if b.strand == plan.strand and len(b.ticks) and b.ticks[-1] >= plan.ticks[0]]
    if not shared:
        return plan
    reached = max(int(block.ticks[-1]) for block in shared)
    first = int(np.searchsorted(plan.ticks, reached))
    if first == len(plan.ticks):
        return None
    holders = [block for block in shared if int(block.ticks[-1]) == reached] if plan.ticks[first] == reached else []
    return plan._replace(ticks=plan.ticks[first:], batches=_unknown(plan, first, holders))


def _unknown(plan: BlockPlan, first: int, holders: Sequence[Block]) -> Iterator[Int64Array]:
    places = [{key: row for row, key in enumerate(block.keys)} for block in holders]
    start = 0
    for values in plan.batches:
        kept = values[:, first:].copy()
        for block, place in zip(holders, places, strict=True):
            batch = plan.keys[start : start + len(values)]
            mine = [row for row, key in enumerate(batch) if key in place]
            if mine:
                there = block.read([place[batch[row]] for row in mine])[:, -1] != ABSENT
                kept[np.array(mine)[there], 0] = ABSENT
        start += len(values)
        yield kept


class _Level(NamedTuple):
    """A tier in the making: where its buckets begin in the level below, and the file's block."""

    starts: Int64Array
    block: TierWriter


def roll_up(recording: Recording, plans: Sequence[BlockPlan], wanted: Sequence[str]) -> dict[str, bytes]:
    """Make a file of each of the wanted tiers from the rows of ``plans`` and all else of a recording."""
    keys = [key for plan in plans for key in plan.keys]
    boots = {plan.strand.boot for plan in plans}
    with ExitStack() as stack:
        # What is made here is merged soon, and then compressed with more care.
        made = (Writer(recording, keys, boots, CREATED_BY, hasty=True) for _ in wanted)
        writers = {tier: stack.enter_context(writer) for tier, writer in zip(wanted, made, strict=True)}
        for plan in plans:
            _roll_up_plan(recording, plan, writers)
        return {tier: writer.image() for tier, writer in writers.items()}


def _roll_up_plan(recording: Recording, plan: BlockPlan, writers: dict[str, Writer]) -> None:
    """Roll up a strand, a batch of series at a time, into all tiers."""
    course = course_of(recording.clocks.get(plan.strand.boot, []), plan.strand.interval_ns)
    axis = statistics.axis_of_rows(plan.ticks)
    levels = []
    for tier, writer in writers.items():
        starts = statistics.cut_axis(axis, course, TIERS_NS[tier])
        axis = statistics.join_axis(axis, starts)
        block = writer.tier(plan.strand._replace(step_ns=TIERS_NS[tier]), axis, closed=plan.closed)
        levels.append(_Level(starts, block))
    interval_ns = plan.strand.interval_ns
    steady: dict[_Kind, dict[SeriesKey, int]] = {}
    for stats, keys, values in _pieces(recording, plan, steady):
        buckets = statistics.of_rows(stats, values, plan.ticks, levels[0].starts, interval_ns)
        for level, coarser in _levels(levels, buckets):
            level.block.add(keys, coarser)
    for stats, stood in steady.items():
        still = np.zeros((1, len(plan.ticks)), np.int64)
        buckets = statistics.of_rows(stats, still, plan.ticks, levels[0].starts, interval_ns)
        for level, coarser in _levels(levels, buckets):
            level.block.add_steady(list(stood), list(stood.values()), coarser)
    for level in levels:
        level.block.finish()


def _pieces(
    recording: Recording, plan: BlockPlan, steady: dict[_Kind, dict[SeriesKey, int]]
) -> Iterator[tuple[_Kind, list[SeriesKey], Int64Array]]:
    """The rows of a strand, so many series of a kind at once; those that never move go into ``steady``, by value.

    What is given is overwritten by what is given next.
    """
    kinds = {
        (table.name, metric.name): stats_of(metric) for table in recording.tables.values() for metric in table.metrics
    }
    shape = min(len(plan.keys), max(1, PIECE_VALUES // len(plan.ticks))), len(plan.ticks)
    gathered: dict[_Kind, tuple[list[SeriesKey], Int64Array]] = {}
    keys = iter(plan.keys)
    for values in plan.batches:
        for row, rests, key in zip(values, statistics.steady(values).tolist(), keys, strict=False):
            kind = kinds[key.table, key.metric]
            if rests:
                steady.setdefault(kind, {})[key] = int(row[0])
                continue
            if kind not in gathered:
                gathered[kind] = [], np.empty(shape, np.int64)
            held, space = gathered[kind]
            space[len(held)] = row
            held.append(key)
            if len(held) == len(space):
                yield kind, held, space
                gathered[kind] = [], space
        del values, row  # Before there are others.
    for kind, (held, space) in gathered.items():
        if held:
            yield kind, held, space[: len(held)]


def _levels(levels: Sequence[_Level], buckets: Buckets) -> Iterator[tuple[_Level, Buckets]]:
    """The buckets of every tier, each from those of the one before it."""
    yield levels[0], buckets
    for level in levels[1:]:
        buckets = statistics.coarsen(buckets, level.starts)
        yield level, buckets


def merged(paths: Sequence[str]) -> bytes:
    """What files of a tier become when they are merged.

    :raises Error: as ``merge_tier``.
    """
    if os.path.basename(os.path.dirname(paths[0])) == EVENTS:
        return events.merged(paths)
    with ExitStack() as stack:
        return merge_tier([stack.enter_context(Segment(path)).recording for path in paths])


def merge_tier(recordings: Sequence[Recording]) -> bytes:
    """Make one file of several of a tier, in order of time; buckets that a seam cut in two become one.

    :raises Error: where one is damaged, or they declare a table differently, or have rows in common.
    """
    joined = join(recordings)._replace(covers=tiers.joined(name for each in recordings for name in each.covers))
    strands: dict[Strand, list[TierBlock]] = {}
    for block in (block for each in recordings for block in each.tiers if len(block.axis.first)):
        strands.setdefault(block.strand, []).append(block)
    keys = {key for members in strands.values() for block in members for key in block.keys}
    boots = {strand.boot for strand in strands}
    with Writer(joined, keys, boots, CREATED_BY) as writer:
        for strand, members in sorted(strands.items()):
            course = course_of(joined.clocks.get(strand.boot, []), strand.interval_ns)
            _merge_strand(writer, course, sorted(members, key=lambda block: int(block.axis.first[0])))
        return writer.image()


def _merge_strand(writer: Writer, course: Course, members: Sequence[TierBlock]) -> None:
    strand = members[0].strand
    if any(after.axis.first[0] < before.axis.last[-1] for before, after in pairwise(members)):
        raise Error(f"two files have rows of {strand.writer} since {strand.started_ns} in common")
    axis = members[0].axis
    for member in members[1:]:
        axis = statistics.join_axes(axis, member.axis)
    starts = statistics.cut_axis(axis, course, strand.step_ns)
    block = writer.tier(strand, statistics.join_axis(axis, starts), closed=any(member.closed for member in members))
    places = [{key: row for row, key in enumerate(member.keys)} for member in members]
    kinds: dict[tuple[Stat, ...], dict[SeriesKey, None]] = {}
    for member in members:
        for key, stats in zip(member.keys, member.stats, strict=True):
            kinds.setdefault(stats, {})[key] = None
    at_once = max(1, min(BATCH_SERIES, BATCH_VALUES // len(axis.first)))
    for stats, of_kind in kinds.items():
        keys = list(of_kind)
        for first in range(0, len(keys), at_once):
            batch = keys[first : first + at_once]
            whole: Buckets | None = None
            for member, place in zip(members, places, strict=True):
                part = _buckets(member, stats, [place.get(key, -1) for key in batch])
                whole = part if whole is None else statistics.concatenate(whole, part, strand.interval_ns)
            if whole is not None:
                block.add(batch, statistics.coarsen(whole, starts))
    block.finish()


def _buckets(member: TierBlock, stats: tuple[Stat, ...], rows: Sequence[int]) -> Buckets:
    """The buckets of some series, empty ones of those that the block has not (-1)."""
    there = [index for index, row in enumerate(rows) if row >= 0]
    if len(there) == len(rows):
        return member.buckets(rows)
    shape = len(rows), len(member.axis.first)
    empty = {Stat.COUNT: 0, Stat.SUM: 0, Stat.LEAP: 0, Stat.LEAP_NS: 0}
    made = {stat: np.full(shape, empty.get(stat, ABSENT), np.int64) for stat in stats}
    edges = Edges(*(np.full(len(rows), ABSENT, np.int64) for _ in Edges._fields)) if Stat.LEAP in stats else None
    if there:
        found = member.buckets([rows[index] for index in there])
        for stat, array in found.stats.items():
            made[stat][there] = array
        if edges and found.edges:
            for mine, theirs in zip(edges, found.edges, strict=True):
                mine[there] = theirs
    return Buckets(member.axis, made, edges)
