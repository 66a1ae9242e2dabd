# SPDX-License-Identifier: Apache-2.0
"""Reads values: the rows or the buckets of a track over a range of time, from whatever files hold them."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, Cause
from sysmond.base.result import BoolArray, Int64Array
from sysmond.errors import CorruptError
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import COUNTER_STATS, Axis, Buckets, Edges, Stat
from sysmond.store.holdings import Damage
from sysmond.store.of_ring import Hole, SeriesKey, Strand
from sysmond.store.timeline import Timeline
from sysmond.store.tracks import Member, OpenedFile, Run, TierPiece, Track, chosen_rows

# So many rows of a block are decoded at once: memory is bounded by what is asked for, not by the block.
BATCH_SERIES = 64
# What a bucket without values has of a statistic, where that is not ABSENT; and which are in the metric's unit.
EMPTY = {Stat.COUNT: 0, Stat.SUM: 0, Stat.LEAP: 0, Stat.LEAP_NS: 0}
_SCALED = frozenset((Stat.SUM, Stat.MIN, Stat.MAX, Stat.LAST, Stat.LEAP))


class TrackView(NamedTuple):
    """A part of the time axis of a track: rows (``step_ns`` 0), or buckets of one of its tiers.

    ``times_ns``: UTC of the first tick of each. ``inside``: what belongs to the range asked for, or is chosen of
    that; the first of all may lie before it: there counters stood.
    """

    track: Track
    step_ns: int
    axis: Axis
    times_ns: Int64Array
    inside: BoolArray
    pieces: list[tuple[Run | TierPiece, int, int]]

    def chosen(self, inside: BoolArray) -> "TrackView | None":
        """As little of it as has what is chosen, bool[row of the axis], and one before; None where nothing is."""
        at = np.flatnonzero(inside)
        if not len(at):
            return None
        low, high = max(0, int(at[0]) - 1), int(at[-1]) + 1
        pieces: list[tuple[Run | TierPiece, int, int]] = []
        start = 0
        for piece, first, after in self.pieces:
            begin, end = max(first, first + low - start), min(after, first + high - start)
            if begin < end:
                pieces.append((piece, begin, end))
            start += after - first
        axis = Axis(*(column[low:high] for column in self.axis))
        return TrackView(self.track, self.step_ns, axis, self.times_ns[low:high], inside[low:high], pieces)


class AnswerSource(NamedTuple):
    """What answers of one track, for these series: rows, or buckets of a tier; ``number``: of the buckets asked for.

    ``missing``: by table, where none of the series has a value.
    """

    view: TrackView
    number: Int64Array
    keys: list[SeriesKey]
    missing: dict[str, BoolArray]


class TimelineReader:
    """Reads from an open time line; what cannot be read is added to its ``damages`` and ``unread``."""

    def __init__(self, line: Timeline) -> None:
        self._line = line

    def view(self, track: Track, step_ns: int, start_ns: int, end_ns: int) -> TrackView | None:
        """Look at a track over a range of wall-clock time: at its rows, or at its buckets of a step.

        None where it has none there.
        """
        course = self._line.course(track.lineage.boot)
        low_ns, high_ns = course.window(start_ns, end_ns)
        pieces: list[tuple[Run | TierPiece, int, int]] = []
        axes: list[Axis] = []
        wholes: list[tuple[Run | TierPiece, Axis, int]] = (
            [(piece, piece.block.axis, piece.low) for piece in track.tiers[step_ns].pieces]
            if step_ns
            else [(run, Axis(run.ticks, run.ticks, _ones(len(run.ticks))), 0) for run in track.runs]
        )
        for piece, axis, least in wholes:
            low = max(least, int(np.searchsorted(axis.last, low_ns)))
            high = int(np.searchsorted(axis.first, high_ns))
            if low < high:
                low = low if pieces else max(least, low - 1)
                pieces.append((piece, low, high))
                axes.append(Axis(*(column[low:high] for column in axis)))
        if not pieces:
            return None
        axis = axes[0] if len(axes) == 1 else Axis(*(np.concatenate(column) for column in zip(*axes, strict=True)))
        times_ns = course.utc_ns(axis.first)
        last_ns = course.utc_ns(axis.last) if step_ns else times_ns
        return TrackView(track, step_ns, axis, times_ns, (times_ns < end_ns) & (last_ns >= start_ns), pieces)

    def rows(self, view: TrackView, keys: Sequence[SeriesKey]) -> Int64Array:
        """Read series of a view of rows, int64[series, tick].

        A row whose values are damaged is left out and kept in ``unread``.
        """
        runs = [(run, low, high) for run, low, high in view.pieces if isinstance(run, Run)]
        chosen = chosen_rows([member for run, _, _ in runs for member in run.members], set(keys))
        matrix = np.full((len(keys), len(view.times_ns)), ABSENT, np.int64)
        place = {key: index for index, key in enumerate(keys)}
        start = 0
        for run, low, high in runs:
            part = matrix[:, start : start + high - low]
            start += high - low
            if len(run.members) == 1:
                self._fill_alone(part, low, run.members[0], place, chosen[id(run.members[0].block)])
                continue
            for member in run.members:
                self._fill(part, run.ticks[low:high], member, place, chosen[id(member.block)])
        return matrix

    def buckets(
        self, view: TrackView, keys: Sequence[SeriesKey], kind: tuple[Stat, ...], wanted: Sequence[Stat]
    ) -> Buckets:
        """Read series of a kind of a view of buckets; what counters grew by between files is in them."""
        joined: Buckets | None = None
        for piece, low, high in view.pieces:
            if isinstance(piece, TierPiece):
                made = self._piece(piece, low, high, keys, kind, wanted)
                joined = (
                    made if joined is None else statistics.concatenate(joined, made, view.track.lineage.interval_ns)
                )
        if joined is None:
            raise ValueError("a view of nothing")
        return joined

    def _piece(
        self,
        piece: TierPiece,
        low: int,
        high: int,
        keys: Sequence[SeriesKey],
        kind: tuple[Stat, ...],
        wanted: Sequence[Stat],
    ) -> Buckets:
        """Buckets of one block; a series that it has not is empty."""
        block = piece.block
        place = {key: row for row, key in enumerate(block.keys)}
        stats = {stat: np.full((len(keys), high - low), EMPTY.get(stat, ABSENT), np.int64) for stat in wanted}
        edges = Edges(*(np.full(len(keys), ABSENT, np.int64) for _ in Edges._fields))
        mine = [(at, place[key], self._line.factor(piece.source, key)) for at, key in enumerate(keys) if key in place]
        mine = [member for member in mine if member[2]]
        for some, read in self._read_piece(piece, mine, wanted, slice(low, high)):
            at = [member[0] for member in some]
            factor = np.array([[member[2]] for member in some], np.int64)
            rescaled = bool((factor != 1).any())
            for stat in wanted:
                values = read.stats[stat]
                if rescaled and stat in _SCALED:
                    values = np.where(values == ABSENT, ABSENT, values * factor)
                stats[stat][at] = values
            if read.edges is not None:
                for name, own in zip(Edges._fields, read.edges, strict=True):
                    scaled = own * factor[:, 0] if name.endswith("value") else own
                    getattr(edges, name)[at] = np.where(own == ABSENT, ABSENT, scaled)
        if low:  # Within a block every bucket knows what came before it: 0 is long ago, ABSENT nothing to join to.
            earlier = (edges.first_tick != ABSENT) & (edges.first_tick < block.axis.first[min(low, high - 1)])
            edges.first_tick[earlier] = ABSENT if low == piece.low else 0
        if high < len(block.axis.first):
            edges.first_tick[edges.first_tick > block.axis.last[max(0, high - 1)]] = ABSENT
            edges.last_tick[:] = ABSENT
        axis = Axis(*(member[low:high] for member in block.axis))
        return Buckets(axis, stats, edges if Stat.LEAP in kind else None)

    def _read_piece(
        self, piece: TierPiece, mine: list[tuple[int, int, int]], wanted: Sequence[Stat], part: slice
    ) -> Iterator[tuple[list[tuple[int, int, int]], Buckets]]:
        """Read a part of rows of a block; where one is damaged, the others each by itself."""
        try:
            if mine:
                yield mine, piece.buckets([row for _, row, _ in mine], wanted, part)
        except CorruptError as damage:
            if len(mine) == 1:
                axis, key = piece.block.axis, piece.block.keys[mine[0][1]]
                ends = int(axis.first[0]), int(axis.last[-1])
                self._note_unread(piece.source, piece.block.strand, ends, key, str(damage))
                return
            for member in mine:
                yield from self._read_piece(piece, [member], wanted, part)

    def _rows(self, member: Member, rows: dict[SeriesKey, int]) -> Iterator[tuple[SeriesKey, Int64Array]]:
        """The values of a block's rows in the scale of the newest; a few rows are decoded at a time."""
        wanted = [(key, row, factor) for key, row in rows.items() if (factor := self._line.factor(member.source, key))]
        for start in range(0, len(wanted), BATCH_SERIES):
            batch = wanted[start : start + BATCH_SERIES]
            for (key, _, factor), values in zip(batch, self._values(member, [row for _, row, _ in batch]), strict=True):
                yield key, values if factor == 1 else np.where(values == ABSENT, ABSENT, values * factor)

    def _fill_alone(
        self, part: Int64Array, low: int, member: Member, place: dict[SeriesKey, int], rows: dict[SeriesKey, int]
    ) -> None:
        """Put the values of the only block of a run where its ticks are, from its tick ``low`` on."""
        for key, values in self._rows(member, rows):
            part[place[key]] = values[low : low + part.shape[1]]

    def _fill(
        self,
        part: Int64Array,
        ticks: Int64Array,
        member: Member,
        place: dict[SeriesKey, int],
        rows: dict[SeriesKey, int],
    ) -> None:
        """Put a block's values where its ticks are; what another block gave already stays where this one has none."""
        block = member.block
        low, high = map(int, np.searchsorted(block.ticks, (ticks[0], ticks[-1] + 1)))
        columns = np.searchsorted(ticks, block.ticks[low:high])
        for key, values in self._rows(member, rows if low < high else {}):
            there = values[low:high] != ABSENT
            part[place[key], columns[there]] = values[low:high][there]

    def _values(self, member: Member, rows: list[int]) -> Int64Array:
        """Read rows of a block; where one is damaged, the others each by itself."""
        try:
            return member.read(rows)
        except CorruptError as damage:
            if len(rows) == 1:
                block = member.block
                ends = int(block.ticks[0]), int(block.ticks[-1])
                self._note_unread(member.source, block.strand, ends, block.keys[rows[0]], str(damage))
                return np.full((1, len(block.ticks)), ABSENT, np.int64)
        return np.concatenate([self._values(member, [row]) for row in rows])

    def _note_unread(
        self, source: OpenedFile, strand: Strand, ends: tuple[int, int], key: SeriesKey, reason: str
    ) -> None:
        noted = Damage(source.name, source.recording.sensitivity, reason)
        if noted not in self._line.damages:
            self._line.damages.append(noted)
        first_ns, last_ns = ends
        hole = Hole(strand.boot, key.table, first_ns, last_ns + strand.interval_ns, Cause.DAMAGED_FILE, reason)
        self._line.unread.setdefault(hole, set()).add(key)

    def stands_before(
        self, track: Track, keys: Collection[SeriesKey], before_ns: int
    ) -> dict[SeriesKey, tuple[int, int]]:
        """The last value that each counter had before a tick, as that value's tick and the value."""
        standing: dict[SeriesKey, tuple[int, int]] = {}
        for run in reversed(track.runs):
            missing = [key for key in keys if key not in standing]
            if not missing:
                return standing
            if run.ticks[0] < before_ns:
                for member in run.members:
                    for key, stand in self._stands(member, missing, before_ns):
                        standing[key] = max(stand, standing.get(key, stand))
        for tier in track.tiers.values():
            whole = [piece for piece in tier.pieces if piece.block.axis.last[-1] < before_ns]
            for key in keys if whole else ():
                if stood := self._stood(whole[-1], key):
                    standing[key] = max(stood, standing.get(key, stood))
        return standing

    def _stood(self, piece: TierPiece, key: SeriesKey) -> tuple[int, int] | None:
        """Where a counter stood at the end of a block of buckets."""
        high = len(piece.block.axis.first)
        edges = self._piece(piece, high, high, [key], COUNTER_STATS, COUNTER_STATS).edges
        if edges is None or edges.last_tick[0] == ABSENT:
            return None
        return int(edges.last_tick[0]), int(edges.last_value[0])

    def _stands(
        self, member: Member, keys: Collection[SeriesKey], before_ns: int
    ) -> Iterator[tuple[SeriesKey, tuple[int, int]]]:
        ticks = member.block.ticks
        stop = int(np.searchsorted(ticks, before_ns))
        for key, values in self._rows(member, chosen_rows([member], keys)[id(member.block)] if stop else {}):
            there = np.flatnonzero(values[:stop] != ABSENT)
            if len(there):
                yield key, (int(ticks[there[-1]]), int(values[there[-1]]))


def _ones(count: int) -> Int64Array:
    return np.broadcast_to(np.int64(1), count)
