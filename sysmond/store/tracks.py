# SPDX-License-Identifier: Apache-2.0
"""Tracks: the blocks of one writer in one boot, in order of time, over all files and incarnations.

Pure. Blocks that overlap (sealed but still in the ring, flushed but still in RAM, merged but its sources not
removed yet) form one run; ticks are joined within it. What is kept as buckets is one ``Tier`` a step.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from sysmond.base.model import Sensitivity
from sysmond.base.result import Int64Array
from sysmond.store.archive import Name
from sysmond.store.coding.statistics import GAP_FACTOR, Axis, Buckets, Stat, distinct
from sysmond.store.of_ring import Block, Recording, SeriesKey, TierBlock


class Lineage(NamedTuple):
    """What shares a sequence of ticks: boot, writing part, class and interval, over restarts of the part."""

    boot: str
    writer: str
    sensitivity: Sensitivity
    interval_ns: int


class OpenedFile(NamedTuple):
    """A ring (which has no name) or a segment, opened.

    ``path``: where it lies. ``again``: gives the recording with its file open: it may have been closed meanwhile.
    """

    name: Name | None
    recording: Recording
    path: str
    again: Callable[[], Recording]


class Member(NamedTuple):
    """A block of a lineage, and where it came from: its ``number`` there."""

    source: OpenedFile
    block: Block
    number: int

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time].

        :raises CorruptError: where a chunk is damaged. :raises FileNotFoundError: where the file is gone.
        """
        return self.source.again().blocks[self.number].read(rows)


class Run(NamedTuple):
    """Ticks in order, from blocks that overlap each other; ``incarnation``: int64[tick], who wrote it, by its start."""

    ticks: Int64Array
    incarnation: Int64Array
    members: list[Member]


class TierPiece(NamedTuple):
    """Buckets ``low`` to ``high`` of a block of a tier, its ``number``, and where in their tier they begin."""

    source: OpenedFile
    block: TierBlock
    number: int
    low: int
    high: int
    start: int

    def buckets(self, rows: Sequence[int], wanted: Iterable[Stat] | None, part: slice) -> Buckets:
        """The wanted statistics of the chosen series, as a block gives them; as ``Member.read``."""
        return self.source.again().tiers[self.number].buckets(rows, wanted, part)


class Tier(NamedTuple):
    """The buckets of a lineage of one step, each tick in one; ``incarnation`` as in ``Run``."""

    axis: Axis
    incarnation: Int64Array
    pieces: list[TierPiece]


class TickRun(NamedTuple):
    """Ticks without a hole between them: the outermost, and which incarnations wrote those."""

    first_ns: int
    last_ns: int
    first_writer: int
    last_writer: int


class Track(NamedTuple):
    """All that one lineage has: its runs in order of time, its tiers by step, and the stretches all of them cover.

    ``thin``: buckets of tiers that lack ticks somewhere, where there are no rows to tell where: first and last
    tick and how many. ``tables``: those of its ``keys``. ``closed``: which incarnations ended in good order.
    """

    lineage: Lineage
    runs: list[Run]
    tiers: Mapping[int, Tier]
    stretches: list[TickRun]
    thin: list[tuple[int, int, int]]
    keys: frozenset[SeriesKey]
    tables: frozenset[str]
    closed: frozenset[int]

    @property
    def first_ns(self) -> int:
        """The first tick."""
        return self.stretches[0].first_ns

    @property
    def last_ns(self) -> int:
        """The last tick."""
        return self.stretches[-1].last_ns

    @property
    def ended_well(self) -> bool:
        """Whether the writer of the last tick ended in good order."""
        return self.stretches[-1].last_writer in self.closed

    def axes(self) -> Iterator[tuple[Int64Array, Int64Array]]:
        """First and last ticks of everything it has, int64[n]: of rows, and of the buckets of each tier."""
        yield from ((run.ticks, run.ticks) for run in self.runs)
        yield from ((tier.axis.first, tier.axis.last) for tier in self.tiers.values())

    def neighbours(self, at_ns: int) -> tuple[int | None, int | None]:
        """The ticks next to a boot time: the last before it, and the first from it on."""
        befores: list[int] = []
        afters: list[int] = []
        for first, last in self.axes():
            begin, end = int(np.searchsorted(first, at_ns)), int(np.searchsorted(last, at_ns))
            if end:
                befores.append(int(last[end - 1]))
            if begin < len(first):
                afters.append(int(first[begin]))
        return max(befores, default=None), min(afters, default=None)

    def extents(self) -> Iterator[tuple[Sequence[SeriesKey], int, int, int]]:
        """Of every block its series, its first and last tick, and how far apart its values are."""
        for run in self.runs:
            for member in run.members:
                ticks = member.block.ticks
                yield member.block.keys, int(ticks[0]), int(ticks[-1]), self.lineage.interval_ns
        for step_ns, tier in self.tiers.items():
            for piece in tier.pieces:
                yield piece.block.keys, int(piece.block.axis.first[0]), int(piece.block.axis.last[-1]), step_ns

    def last_keys(self) -> Sequence[SeriesKey]:
        """The series of the newest block."""
        blocks: list[Block | TierBlock] = [member.block for run in self.runs[-1:] for member in run.members]
        blocks += [piece.block for tier in self.tiers.values() for piece in tier.pieces[-1:]] if not blocks else []
        return [key for block in blocks for key in block.keys]


def join(lineage: Lineage, members: list[Member], tiers: Mapping[int, list[tuple[OpenedFile, int]]]) -> Track:
    """Put the blocks of a lineage in order; those that overlap become one run."""
    groups: list[list[Member]] = []
    until_ns = 0
    for member in sorted(members, key=lambda member: int(member.block.ticks[0])):
        if not groups or int(member.block.ticks[0]) > until_ns:
            groups.append([])
        groups[-1].append(member)
        until_ns = max(until_ns, int(member.block.ticks[-1]))
    runs = [_run(group) for group in groups]
    joined = {step_ns: _tier(tiers[step_ns]) for step_ns in sorted(tiers)}
    blocks: list[Block | TierBlock] = [member.block for member in members]
    blocks += [source.recording.tiers[number] for tier in tiers.values() for source, number in tier]
    keys: frozenset[SeriesKey] = frozenset().union(*(block.keys for block in blocks))
    closed = frozenset(block.strand.started_ns for block in blocks if block.closed)
    stretches, thin = _cover(lineage.interval_ns, runs, list(joined.values()))
    tables = frozenset(map(attrgetter("table"), keys))
    return Track(lineage, runs, joined, stretches, thin, keys, tables, closed)


def _tier(blocks: Iterable[tuple[OpenedFile, int]]) -> Tier:
    """Put blocks of buckets in order; of two that hold the same ticks, the one that begins first."""
    pieces: list[TierPiece] = []
    until_ns, start = -1, 0
    found = [(source.recording.tiers[number], source, number) for source, number in blocks]
    found.sort(key=lambda of: (int(of[0].axis.first[0]), -int(of[0].axis.last[-1])))
    for block, source, number in found:
        low, high = int(np.searchsorted(block.axis.first, until_ns, side="right")), len(block.axis.first)
        if low < high:
            pieces.append(TierPiece(source, block, number, low, high, start))
            start += high - low
            until_ns = int(block.axis.last[-1])
    if len(pieces) == 1:
        axis = Axis(*(piece[pieces[0].low :] for piece in pieces[0].block.axis))
        return Tier(axis, np.broadcast_to(np.int64(pieces[0].block.strand.started_ns), len(axis.first)), pieces)
    axis = Axis(
        *(np.concatenate([getattr(piece.block.axis, name)[piece.low :] for piece in pieces]) for name in Axis._fields)
    )
    incarnation = np.concatenate([np.full(piece.high - piece.low, piece.block.strand.started_ns) for piece in pieces])
    return Tier(axis, incarnation, pieces)


def _cover(
    interval_ns: int, runs: Iterable[Run], tiers: Iterable[Tier]
) -> tuple[list[TickRun], list[tuple[int, int, int]]]:
    """What rows and, where there are none, tiers from the finest on cover; and the buckets that lack ticks."""
    runs_of_ticks = [stretch for run in runs for stretch in _split(run.ticks, run.ticks, run.incarnation, interval_ns)]
    extents = _merged([(int(run.ticks[0]), int(run.ticks[-1])) for run in runs], interval_ns)
    thin: list[tuple[int, int, int]] = []
    for tier in tiers:
        first, last, rows, incarnation = *tier.axis, tier.incarnation
        if extents:
            first, last = first.copy(), last.copy()
            for begin_ns, end_ns in extents:  # A bucket at the edge of what is known better is cut there.
                first[(first >= begin_ns) & (first <= end_ns)] = end_ns + interval_ns
                last[(last >= begin_ns) & (last <= end_ns)] = begin_ns - interval_ns
                last[(first < begin_ns) & (last > end_ns)] = begin_ns - interval_ns
            between = (first > tier.axis.first) & (last < tier.axis.last)  # Nothing but a hole is left of it.
            left = np.flatnonzero((first <= last) & ~between)
            first, last, rows, incarnation = first[left], last[left], rows[left], incarnation[left]
        missing = (last - first) // interval_ns + 1 - rows
        thin += [(int(first[at]), int(last[at]), int(missing[at])) for at in np.flatnonzero(missing > 0)]
        mine = list(_split(first, last, incarnation, interval_ns))
        runs_of_ticks += mine
        extents = _merged([*extents, *((tick_run.first_ns, tick_run.last_ns) for tick_run in mine)], interval_ns)
    return list(_joined(sorted(runs_of_ticks), interval_ns)), sorted(thin)


def _split(first: Int64Array, last: Int64Array, incarnation: Int64Array, interval_ns: int) -> Iterator[TickRun]:
    """Cut a time axis where there is a hole in it."""
    if not len(first):
        return
    holes = np.flatnonzero(first[1:] - last[:-1] > interval_ns * GAP_FACTOR)
    starts, ends = [0, *(holes + 1).tolist()], [*holes.tolist(), len(first) - 1]
    for start, end in zip(starts, ends, strict=True):
        yield TickRun(int(first[start]), int(last[end]), int(incarnation[start]), int(incarnation[end]))


def _joined(stretches: Iterable[TickRun], interval_ns: int) -> Iterator[TickRun]:
    whole: TickRun | None = None
    for ticks in stretches:
        if whole is None:
            whole = ticks
        elif ticks.first_ns - whole.last_ns > interval_ns * GAP_FACTOR:
            yield whole
            whole = ticks
        elif ticks.last_ns > whole.last_ns:
            whole = whole._replace(last_ns=ticks.last_ns, last_writer=ticks.last_writer)
    if whole is not None:
        yield whole


def _merged(extents: Iterable[tuple[int, int]], interval_ns: int) -> list[tuple[int, int]]:
    joined = _joined((TickRun(*extent, 0, 0) for extent in sorted(extents)), interval_ns)
    return [(run.first_ns, run.last_ns) for run in joined]


def _run(members: list[Member]) -> Run:
    blocks = [member.block for member in members]
    if len(blocks) == 1:
        ticks = blocks[0].ticks
        return Run(ticks, np.broadcast_to(np.int64(blocks[0].strand.started_ns), len(ticks)), members)
    ticks, first = distinct(np.concatenate([block.ticks for block in blocks]))
    started = np.concatenate([np.full(len(block.ticks), block.strand.started_ns) for block in blocks])
    return Run(ticks, started[first], members)


def chosen_rows(members: Iterable[Member], wanted: Collection[SeriesKey]) -> dict[int, dict[SeriesKey, int]]:
    """Which rows of each block are wanted, by the block's id."""
    return {
        id(member.block): {key: row for row, key in enumerate(member.block.keys) if key in wanted} for member in members
    }
