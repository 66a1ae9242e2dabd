# SPDX-License-Identifier: Apache-2.0
"""Several stretches of a long table as one.

Memory is bounded: of all rows only their order is kept, values are read a column and some keys at a time. Of a table
whose rows last those go in which nothing changed: what a full reading inside a file says is that the key was there.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.errors import Error
from sysmond.store.coding.integers import filled
from sysmond.store.coding.statistics import distinct
from sysmond.store.of_ring import coalesce
from sysmond.store.stretches.stretch import (
    ALL,
    About,
    Dictionary,
    Incarnation,
    Readings,
    Stretch,
    key_of,
    largest,
    lasts,
    numbered,
)

# How many rows are put in order at once.
BATCH_ROWS = 128 * 1024


class _Batch(NamedTuple):
    """Some keys: of each stretch which of its keys, and which of all their rows are taken, in order."""

    keys: Sequence[slice]
    rows: Array
    begins: Int64Array


class Joined(Stretch):
    """Several stretches of one table, boot, writer and interval as one, in order of their names.

    A reading that several have is taken from the first.
    """

    def __init__(self, members: Sequence[Stretch]) -> None:
        self._members = members
        self._metrics = {metric.name: metric for metric in members[0].table.metrics}
        words = Dictionary()
        self._codes = [words.codes(member.texts) for member in members]
        self._texts = words.texts
        readings, self._readings_of, self._is_plain = _readings(members)
        names = key_of(members[0].table)
        stacked = {name: np.concatenate([member.keys[name] for member in members]) for name in names}
        numbers, first = numbered([*stacked.values()])
        # Of each key of each member, which one it is of all.
        self._numbers = np.split(numbers, np.cumsum([len(member.counts) for member in members])[:-1])
        keys = {name: column[first] for name, column in stacked.items()}
        self._batches, self._edges = self._ordered(len(first), len(readings.ticks))
        if lasts(members[0].table):
            self._leave_out_what_stayed()
        super().__init__(_about(members), readings, keys, self._count(len(first)))
        self._first_tick, self._last_tick = self._ends_of_keys()

    @property
    def texts(self) -> Sequence[str]:
        """The texts, by code."""
        return self._texts

    def batches(self) -> Iterator[slice]:
        """The keys, some at a time."""
        yield from (slice(low, high) for low, high in pairwise(self._edges))

    def tick_index(self, keys: slice = ALL) -> Int64Array:
        """Of each row of these keys the reading that it is of."""
        return self._cut(keys, self._ticks_of)

    def column(self, name: str, keys: slice = ALL) -> Int64Array:
        """The values of a metric, of these keys."""
        return self._cut(keys, lambda batch: self._values_of(name, batch))

    def first(self, name: str) -> Int64Array:
        """With what each key begins."""
        if not self._is_plain:
            return self._of_rows(name, lambda values, begins: values[begins])
        firsts = np.empty(len(self.counts), np.int64)
        for number in reversed(range(len(self._members))):
            firsts[self._numbers[number]] = self._translated(name, number, self._members[number].first(name))
        return firsts

    def last(self, name: str) -> Int64Array:
        """With what each key ends."""
        if not self._is_plain:
            return self._of_rows(name, lambda values, begins: values[np.append(begins[1:], len(values)) - 1])
        lasts = np.empty(len(self.counts), np.int64)
        for number, member in enumerate(self._members):
            lasts[self._numbers[number]] = self._translated(name, number, member.last(name))
        return lasts

    def peak(self, name: str) -> Int64Array:
        """The largest value of a gauge at each key."""
        if not self._is_plain:
            return self._of_rows(name, largest)
        peaks = np.full(len(self.counts), ABSENT)
        for numbers, member in zip(self._numbers, self._members, strict=True):
            peaks[numbers] = np.maximum(peaks[numbers], member.peak(name))
        return peaks

    def first_tick(self) -> Int64Array:
        """The reading of each key's first row."""
        return self._first_tick

    def last_tick(self) -> Int64Array:
        """The reading of each key's last row."""
        return self._last_tick

    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there."""
        last_seen = self._last_tick.copy()
        for numbers, member in zip(self._numbers, self._members, strict=True):
            seen = np.searchsorted(self.ticks, member.ticks[member.seen()])
            last_seen[numbers] = np.maximum(last_seen[numbers], seen)
        return last_seen

    def _ordered(self, keys: int, readings: int) -> tuple[list[_Batch], list[int]]:
        """Put the rows in order, some keys at a time; and between which keys that is."""
        counts = np.zeros(keys, np.int64)
        for numbers, member in zip(self._numbers, self._members, strict=True):
            counts[numbers] += member.counts
        ends = np.cumsum(counts)
        batches: list[_Batch] = []
        edges = [0]
        while edges[-1] < keys:
            low = edges[-1]
            before = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, before + BATCH_ROWS, "right")))
            batches.append(self._batch(low, high, readings))
            edges.append(high)
        return batches, edges

    def _batch(self, low: int, high: int, readings: int) -> _Batch:
        keys, numbered, at = [], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for numbers, member, of in zip(self._numbers, self._members, self._readings_of, strict=True):
            mine = slice(*np.searchsorted(numbers, (low, high)).tolist())
            keys.append(mine)
            numbered.append(np.repeat(numbers[mine] - low, member.counts[mine]))
            at.append(of[member.tick_index(mine)])
        number, reading = np.concatenate(numbered), np.concatenate(at)
        fresh = np.flatnonzero(reading >= 0)
        rows = fresh[np.argsort(number[fresh] * readings + reading[fresh], kind="stable")].astype(np.int32)
        begins = np.searchsorted(number[rows], np.arange(high - low))
        return _Batch(keys, rows, begins)

    def _leave_out_what_stayed(self) -> None:
        """Leave out the rows that are as the one before of their key in all columns."""
        same = []
        for batch in self._batches:
            stays = np.ones(len(batch.rows), np.bool_)
            stays[batch.begins[batch.begins < len(stays)]] = False
            same.append(stays)
        for name in self._metrics:
            if name in key_of(self._members[0].table):
                continue
            for batch, stays in zip(self._batches, same, strict=True):
                if stays.any():
                    values = self._values_of(name, batch)
                    stays[1:] &= values[1:] == values[:-1]
        for number, (batch, stays) in enumerate(zip(self._batches, same, strict=True)):
            before = np.append(0, np.cumsum(~stays))
            self._batches[number] = batch._replace(rows=batch.rows[~stays], begins=before[batch.begins])

    def _count(self, keys: int) -> Int64Array:
        counts = [np.diff(batch.begins, append=len(batch.rows)) for batch in self._batches]
        all_counts = np.concatenate([*counts, np.zeros(0, np.int64)]).astype(np.int64)
        if len(all_counts) != keys or (all_counts < 1).any():
            raise Error(f"{self._members[0].path}: keys without a row")
        return all_counts

    def _ends_of_keys(self) -> tuple[Int64Array, Int64Array]:
        first, last = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for batch in self._batches:
            ticks = self._ticks_of(batch)
            first.append(ticks[batch.begins])
            last.append(ticks[np.append(batch.begins[1:], len(ticks)) - 1])
        return np.concatenate(first), np.concatenate(last)

    def _ticks_of(self, batch: _Batch) -> Int64Array:
        parts = zip(self._members, batch.keys, self._readings_of, strict=True)
        whole: Int64Array = np.concatenate([of[member.tick_index(keys)] for member, keys, of in parts])
        return whole[batch.rows]

    def _values_of(self, name: str, batch: _Batch) -> Int64Array:
        parts = enumerate(zip(self._members, batch.keys, strict=True))
        whole: Int64Array = np.concatenate(
            [self._translated(name, number, member.column(name, keys)) for number, (member, keys) in parts]
        )
        return whole[batch.rows]

    def _translated(self, name: str, number: int, values: Int64Array) -> Int64Array:
        """The codes of texts as all have them."""
        if not self._metrics[name].is_text:
            return values
        return self._codes[number][filled(values, -1)]

    def _of_rows(self, name: str, of: Callable[[Int64Array, Int64Array], Int64Array]) -> Int64Array:
        parts = [of(self._values_of(name, batch), batch.begins) for batch in self._batches]
        return np.concatenate([*parts, np.empty(0, np.int64)])

    def _cut(self, keys: slice, of: Callable[[_Batch], Int64Array]) -> Int64Array:
        """What these keys have of the batches that they are in."""
        start, stop, _ = keys.indices(len(self.counts))
        parts: list[Int64Array] = []
        for batch, (low, high) in zip(self._batches, pairwise(self._edges), strict=True):
            if low >= stop or high <= start:
                continue
            ends = np.append(batch.begins, len(batch.rows))
            parts.append(of(batch)[ends[max(start, low) - low] : ends[min(stop, high) - low]])
        if not parts:
            return np.empty(0, np.int64)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _about(members: Sequence[Stretch]) -> About:
    lives: dict[int, Incarnation] = {}
    for life in (life for member in members for life in member.lives):
        other = lives.get(life.started_ns, life)
        lives[life.started_ns] = Incarnation(
            life.started_ns, min(life.first_ns, other.first_ns), life.closed or other.closed
        )
    relations = {relation for member in members for relation in member.relations}
    return members[0].about._replace(
        table=members[-1].table,
        lives=sorted(lives.values(), key=lambda life: life.first_ns),
        relations=sorted(relations),
        holes=coalesce(hole for member in members for hole in member.holes),
        path="",
    )


def _readings(members: Sequence[Stretch]) -> tuple[Readings, list[Int64Array], bool]:
    """The readings of all; of each member which they are there, −1 where they are taken from another; whether none is.

    Also that is said where they are not in order.
    """
    ticks, _ = distinct(np.concatenate([member.ticks for member in members]))
    is_new = np.zeros(len(ticks), np.bool_)
    full, lost, walked = np.zeros(len(ticks), np.bool_), np.zeros(len(ticks), np.int64), np.zeros(len(ticks), np.int64)
    places: list[Int64Array] = []
    reached, is_plain = -1, True
    for member in members:
        place = np.searchsorted(ticks, member.ticks)
        fresh: BoolArray = ~is_new[place]
        is_plain = is_plain and bool(fresh.all()) and (not len(place) or int(place[0]) > reached)
        for whole, part in ((full, member.full), (lost, member.lost), (walked, member.walked)):
            whole[place[fresh]] = part[fresh]
        is_new[place] = True
        reached = max(reached, int(place[-1])) if len(place) else reached
        places.append(np.where(fresh, place, -1))
    return Readings(ticks, full, lost, walked), places, is_plain
