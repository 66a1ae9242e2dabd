# SPDX-License-Identifier: Apache-2.0
"""Keys in buckets: what each grew by, was and had at most in each bucket of a slab at which it was there. Pure.

A **pair** is a key and a bucket; who was there for a moment only has one pair, whatever the number of buckets.
"""

from collections.abc import Callable

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Array, Int64Array
from sysmond.store.coding.integers import filled, is_absent
from sysmond.store.stretches.chain import Slab

# Beyond this a sum may not fit into 64 bits, and is not known.
SUM_MAX = 2.0**62


class Pairs:
    """The pairs of a slab, by key and then bucket: int64[pair] each.

    ``key``: index into the keys of the slab. ``bucket``: which one. ``begin``, ``end`` (int32): the readings from
    which and before which the key is there in the bucket.
    """

    def __init__(self, slab: Slab, edges: Int64Array) -> None:
        """Find who is there between which ``edges``, readings of the slab, int64[bucket + 1]."""
        self.slab = slab
        self.edges = edges
        first = np.where(slab.has_base, 0, slab.at[slab.begins])
        low = np.searchsorted(edges, first, "right") - 1
        counts = np.searchsorted(edges, slab.stop, "left") - low
        ends = np.cumsum(counts)
        self.key: Int64Array = np.repeat(np.arange(len(counts)), counts)
        self.bucket: Int64Array = np.arange(len(self.key)) - (ends - counts - low)[self.key]
        self.begin: Array = np.maximum(edges[self.bucket], first[self.key])
        self.end: Array = np.minimum(edges[self.bucket + 1], slab.stop[self.key])
        span = slab.length + 2
        order = slab.key * span + slab.at + 1
        # The rows that hold at the first and at the last reading of each.
        self._from: Array = np.searchsorted(order, self.key * span + self.begin + 1, "right") - 1
        self._to: Array = np.searchsorted(order, self.key * span + self.end + 1, "left") - 1
        # The first row whose increase is of this pair.
        self._since: Array = np.append(0, self._to + 1)[: len(self._to)]
        opens = (ends - counts)[counts > 0]
        self._since[opens] = (slab.begins + slab.has_base)[counts > 0]
        self._since_at = np.maximum(slab.at, 0)
        until = np.append(slab.at[1:], 0)[: len(slab.at)]
        until[slab.ends - 1] = slab.stop
        self._weight: Int64Array = until - self._since_at
        # These are many, and small.
        self._from, self._to, self._since = (rows.astype(np.int32) for rows in (self._from, self._to, self._since))
        self.begin, self.end = self.begin.astype(np.int32), self.end.astype(np.int32)

    @property
    def lived(self) -> Int64Array:
        """At how many readings each was there."""
        return (self.end - self.begin).astype(np.int64)

    def last(self, values: Int64Array) -> Int64Array:
        """What each had at its last reading."""
        last: Int64Array = values[self._to]
        return last

    def grown(self, values: Int64Array, increments: Int64Array) -> Int64Array:
        """By how much a counter grew, of its increments; ABSENT where it was not known at any reading of the bucket."""
        total = np.append(0, np.cumsum(filled(increments)))
        grown: Int64Array = total[self._to + 1] - total[self._since]
        absent = is_absent(values)
        if absent.any():
            known = np.append(0, np.cumsum(~absent))
            grown[known[self._to + 1] == known[self._from]] = ABSENT
        return grown

    def summed(self, values: Int64Array) -> Int64Array:
        """The sum of a gauge over the readings at which it was there; ABSENT where it was not known at any."""
        absent = is_absent(values)
        hollow = bool(absent.any())
        heights: Int64Array = np.where(absent, 0, values) if hollow else values
        sums = self._integral(heights)
        if hollow:
            sums[self._integral((~absent).astype(np.int64)) == 0] = ABSENT
        return sums

    def _integral(self, heights: Int64Array) -> Int64Array:
        mass = heights * self._weight
        before = np.cumsum(mass) - mass
        to = before[self._to] + heights[self._to] * (self.end - self._since_at[self._to])
        since = before[self._from] + heights[self._from] * (self.begin - self._since_at[self._from])
        sums: Int64Array = to - since
        return sums

    def peak(self, values: Int64Array) -> Int64Array:
        """The largest value of each."""
        if not len(self._from):
            return np.zeros(0, np.int64)
        spans = np.stack([self._from, self._to + 1], axis=1).ravel()
        peaks: Int64Array = np.maximum.reduceat(np.append(values, ABSENT), spans)[::2]
        return peaks

    def rows_between(self, chosen: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The rows of some pairs after the one that holds at their first reading; of each row, its place in these."""
        counts = self._to[chosen] - self._from[chosen]
        of = np.repeat(np.arange(len(chosen)), counts)
        offset = np.arange(len(of)) - (np.cumsum(counts) - counts)[of]
        return self._from[chosen][of] + 1 + offset, of

    def opening(self, chosen: Int64Array) -> Array:
        """The rows that hold at the first reading of some pairs."""
        return self._from[chosen]

    def closing(self, chosen: Int64Array) -> Array:
        """The rows that hold at the last one."""
        return self._to[chosen]


def sums_of(cell: Int64Array, values: Int64Array) -> Int64Array:
    """The sum of each cell, of what is there; ABSENT where nothing is, or where it is too large. int64[cell]."""
    if not len(cell):
        return np.zeros(0, np.int64)
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    absent = is_absent(values)[order]
    there = np.where(absent, 0, values[order])
    sums = np.add.reduceat(there, starts)
    if absent.any():
        sums[np.logical_and.reduceat(absent, starts)] = ABSENT
    if float(there.max()) * len(there) > SUM_MAX:
        sums[np.add.reduceat(there.astype(np.float64), starts) > SUM_MAX] = ABSENT
    return sums


def peaks_of_sums(pairs: Pairs, chosen: Int64Array, cell: Int64Array) -> Callable[[Int64Array | None], Int64Array]:
    """Prepare the largest sum over some pairs, a cell each, at one reading.

    What is given takes the values of a gauge at the rows of the slab, or None to count, and gives int64[cell], of the
    cells that any pair is of, in order.

    Each row that begins to hold adds its value and takes away that of the row before it; a pair that ends before its
    bucket takes its last one away. Summed up in order of the readings, that is the sum at each of them, which counts
    once the last move of its reading is in. With A: 5 from reading 0, 2 from reading 3, and B: 4 from reading 1 until
    before reading 3, the moves are +5, +4, (-5 +2, -4): the sums are 5, 9, 2, and the largest is 9.
    """
    if not len(chosen):
        return lambda _: np.zeros(0, np.int64)
    slab = pairs.slab
    rows, of = pairs.rows_between(chosen)
    leaving = np.flatnonzero(pairs.end[chosen] < _ends_of(pairs, chosen))
    opening, closing = pairs.opening(chosen), pairs.closing(chosen)[leaving]
    none = len(slab.at)
    plus = np.concatenate([opening, rows, np.full(len(leaving), none)]).astype(np.int32)
    minus = np.concatenate([np.full(len(opening), none), rows - 1, closing]).astype(np.int32)
    reading = np.concatenate([pairs.begin[chosen], slab.at[rows], pairs.end[chosen][leaving]])
    of_cell = np.concatenate([cell, cell[of], cell[leaving]])
    order = np.argsort(of_cell * (slab.length + 1) + reading, kind="stable")
    plus, minus, reading, of_cell = plus[order], minus[order], reading[order], of_cell[order].astype(np.int32)
    del order
    starts = np.flatnonzero(np.diff(of_cell, prepend=-1))
    is_settled = np.ones(len(of_cell), np.bool_)
    is_settled[:-1] = (reading[1:] != reading[:-1]) | (of_cell[1:] != of_cell[:-1])
    settled = np.flatnonzero(is_settled)
    of_settled = np.flatnonzero(np.diff(of_cell[settled], prepend=-1))

    def peaks(values: Int64Array | None) -> Int64Array:
        heights = np.ones(none + 1, np.int64) if values is None else np.append(values, 0)
        absent = is_absent(heights)
        heights[none] = 0
        heights[absent] = 0
        moves = heights[plus] - heights[minus]
        total = np.cumsum(moves)
        total -= np.repeat(total[starts] - moves[starts], np.diff(np.append(starts, len(total))))
        largest: Int64Array = np.maximum.reduceat(total[settled], of_settled)
        if absent.any():
            known = np.logical_or.reduceat(~absent[plus] & (plus != none), starts)
            largest[~known] = ABSENT
        return largest

    return peaks


def _ends_of(pairs: Pairs, chosen: Int64Array) -> Int64Array:
    """Where the bucket of each pair ends."""
    return pairs.edges[pairs.bucket[chosen] + 1]
