# SPDX-License-Identifier: Apache-2.0
"""Chains: neighbouring stretches of one table and boot as one line of readings, and slabs: the rows of a part of it.

Of what two stretches have in common the earlier one counts. Pure: what is in a file is read when it is asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, END, START
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.store.coding.integers import filled, is_absent
from sysmond.store.stretches.ends import GRAIN_NS, ends_of
from sysmond.store.stretches.increments import at_end
from sysmond.store.stretches.stretch import ALL, Dictionary, Stretch, key_of, numbered, rows_of


class Ends(NamedTuple):
    """What is known to have ended: int64[end, metric of the key], and when, in boot time, int64[end].

    ``totals``: reads what counters had come to, int64[end], by name; ``groups``: the same of the metrics by which
    others are put together.
    """

    keys: Int64Array
    end_ns: Int64Array
    totals: Mapping[str, Callable[[], Int64Array]] = MappingProxyType({})
    groups: Mapping[str, Callable[[], Int64Array]] = MappingProxyType({})


class Late(NamedTuple):
    """What counters grew by after the last reading of what ended, or without one: at the first reading after the end.

    ``reading``: int64[row], one a reading and group; ``columns``: of counters and the groups, int64[row] each.
    """

    reading: Int64Array
    columns: Mapping[str, Int64Array]


def remembering(column: Callable[[str], Int64Array]) -> Callable[[str], Int64Array]:
    """Give the column, int64[row], that was asked for last once more without making it again."""
    latest: dict[str, Int64Array] = {}

    def of(name: str) -> Int64Array:
        if name not in latest:
            latest.clear()
            latest[name] = column(name)
        return latest[name]

    return of


class Chain:
    """Neighbouring stretches, in order of time.

    ``ticks``, ``full``, ``lost``, ``walked``: as of a stretch, of all readings. ``keys``: int64[key] each metric of
    the key. ``first``: the first reading of each key; ``gone``: the one at which it was not there any more, or how
    many there are; ``newborn``: whether it started since the chain begins. ``texts``: by code.
    """

    def __init__(self, stretches: Sequence[Stretch], ended: Ends | None = None) -> None:
        """Join the readings and the keys; nothing is known to have ended where ``ended`` is not given."""
        self.stretches = stretches
        # The newest knows best what is to be made of all.
        self.table = stretches[-1].table
        fresh: list[BoolArray] = []
        reached_ns = ABSENT
        for stretch in stretches:
            fresh.append(stretch.ticks > reached_ns)
            reached_ns = max([reached_ns, *stretch.ticks[-1:].tolist()])

        def joined(name: str) -> Array:
            return np.concatenate([getattr(stretch, name)[new] for stretch, new in zip(stretches, fresh, strict=True)])

        self.ticks: Int64Array = joined("ticks")
        self.full: BoolArray = joined("full")
        self.lost: Int64Array = joined("lost")
        self.walked: Int64Array = joined("walked")
        # Of each stretch: its readings by their number here, and those that an earlier one has, -1.
        self.places = [
            np.where(new, np.searchsorted(self.ticks, s.ticks), -1) for s, new in zip(stretches, fresh, strict=True)
        ]
        self._metrics = {metric.name: metric for metric in self.table.metrics}
        self._reported: dict[int, BoolArray] = {}
        self._join_texts()
        self._join_keys()
        self._find_lives(ended)

    def _join_texts(self) -> None:
        words = Dictionary()
        self.codes = [words.codes(stretch.texts) for stretch in self.stretches]
        self.texts = words.texts

    def _join_keys(self) -> None:
        names = key_of(self.table)
        columns = [np.concatenate([s.keys[name] for s in self.stretches]) for name in names]
        number, at = numbered(columns)
        self.keys = {name: column[at] for name, column in zip(names, columns, strict=True)}
        ends = np.cumsum([len(stretch.counts) for stretch in self.stretches])
        # Of each stretch the numbers that its keys have here.
        self.of = np.split(number, ends[:-1])

    def _find_lives(self, ended: Ends | None) -> None:
        count, readings = len(next(iter(self.keys.values()))), len(self.ticks)
        self.first = np.full(count, readings, np.int64)
        seen = np.full(count, -1, np.int64)
        for stretch, mine in zip(self.stretches, self.of, strict=True):
            first, last = (
                np.searchsorted(self.ticks, stretch.ticks[at]) for at in (stretch.first_tick(), stretch.seen())
            )
            self.first[mine] = np.minimum(self.first[mine], first)
            seen[mine] = np.maximum(seen[mine], last)
        whole = np.append(np.flatnonzero(self.full & (self.lost == 0)), readings)
        self.late: Late | None = None
        self.gone: Int64Array = whole[np.searchsorted(whole, seen, "right").clip(max=len(whole) - 1)]
        if ended is not None and START in self.keys:
            known = np.stack(list(self.keys.values()), axis=1)
            row = ends_of(known, ended.keys, ended.end_ns, list(self.keys).index(START))
            end_ns = np.full(count, -ABSENT - 1, np.int64)
            np.minimum.at(end_ns, row[row >= 0], ended.end_ns[row >= 0])
            after = np.searchsorted(self.ticks, end_ns)
            self.gone = np.minimum(self.gone, np.maximum(after, seen + 1))
            if ended.totals:
                self.late = self._late(ended, row)
        self.newborn: BoolArray = np.zeros(count, np.bool_)
        if START in self.keys and readings:
            self.newborn = self.keys[START] >= self.ticks[0] - self.stretches[0].interval_ns - GRAIN_NS

    def _late(self, ended: Ends, row: Int64Array) -> Late:
        """Add up what is told; ``row``: of each end, the key that it is of, -1 for one that no reading saw."""
        _, once = numbered([*ended.keys.T, ended.end_ns])
        reading = np.searchsorted(self.ticks, ended.end_ns[once])
        once, reading = once[reading < len(self.ticks)], reading[reading < len(self.ticks)]
        row = row[once]
        start_ns = ended.keys[once, list(self.keys).index(START)]
        base = np.where(start_ns >= self.ticks[:1] - self.stretches[0].interval_ns - GRAIN_NS, 0, ABSENT)
        by = {name: values()[once] for name, values in ended.groups.items()}
        cell, where = numbered([reading, *by.values()])
        columns = {name: values[where] for name, values in by.items()}
        any_grew = np.zeros(len(where), np.bool_)
        for name, totals in ended.totals.items():
            values = totals()[once]
            before = np.append(self.last(name), ABSENT)[row]
            hollow = np.flatnonzero((row >= 0) & is_absent(before) & ~is_absent(values))
            if len(hollow):
                before[hollow] = self.stood(name, row[hollow], len(self.ticks))
            before = np.where(is_absent(before), base, before)
            known = ~is_absent(values) & ~is_absent(before)
            grown = at_end(before, values) - before
            sums, is_known = np.zeros(len(where), np.int64), np.zeros(len(where), np.bool_)
            np.add.at(sums, cell[known], grown[known])
            is_known[cell[known]] = True
            any_grew |= sums != 0
            columns[name] = np.where(is_known, sums, ABSENT)
        return Late(reading[where][any_grew], {name: values[any_grew] for name, values in columns.items()})

    def last(self, name: str) -> Int64Array:
        """What each key was last, int64[key]: the latest stretch that has it says so."""
        if name in self.keys:
            return self.keys[name]
        values = np.full(len(self.first), ABSENT, np.int64)
        for number, (stretch, of) in enumerate(zip(self.stretches, self.of, strict=True)):
            values[of] = self.remapped(number, name, stretch.last(name))
        return values

    def stood(self, name: str, keys: Int64Array, reading: int) -> Int64Array:
        """What a metric of these keys was, int64[key], the last time that it was there before a reading."""
        values = np.full(len(self.first), ABSENT, np.int64)
        wanted = np.zeros(len(self.first), np.bool_)
        wanted[keys] = True
        for number, (stretch, place, of) in enumerate(zip(self.stretches, self.places, self.of, strict=True)):
            for some in stretch.batches() if wanted[of].any() and (place[:1] < reading).any() else ():
                key, at = np.repeat(of[some], stretch.counts[some]), place[stretch.tick_index(some)]
                there = self.remapped(number, name, stretch.column(name, some))
                # Of several the last one of a key counts, which is the latest.
                counts = wanted[key] & (at >= 0) & (at < reading) & ~is_absent(there)
                values[key[counts]] = there[counts]
        return values[keys]

    def reported_before(self, number: int) -> BoolArray | None:
        """Which rows of one of the stretches tell of an end that was told of; None where rows tell of none."""
        if END not in self._metrics:
            return None
        if number not in self._reported:
            earlier = [stretch for stretch in self.stretches[:number] if stretch.rows]
            self._reported[number] = reported_before(self.stretches[number], earlier[-1] if earlier else None)
        return self._reported[number]

    def rows_per_reading(self) -> Int64Array:
        """How many rows each reading has."""
        rows = np.zeros(len(self.ticks) + 1, np.int64)
        for stretch, place in zip(self.stretches, self.places, strict=True):
            for keys in stretch.batches():
                # Those of readings that do not count go behind the last.
                rows += np.bincount(place[stretch.tick_index(keys)] % len(rows), minlength=len(rows))
        return rows[:-1]

    def remapped(self, number: int, name: str, values: Int64Array) -> Int64Array:
        """Values of a metric of one of the stretches; texts by their codes here."""
        if not self._metrics[name].is_text:
            return values
        return self.codes[number][filled(values, -1)]


class _Piece(NamedTuple):
    """Rows of one stretch: of some keys, which of their rows; or, without keys, what these keys end with."""

    number: int
    keys: slice | None
    rows: Array

    def values(self, stretch: Stretch, name: str) -> Int64Array:
        whole = stretch.last(name) if self.keys is None else stretch.column(name, self.keys)
        return whole[self.rows]


class Slab:
    """The rows of some readings of a chain, and before them the last row of each key that goes on: sorted.

    ``keys``: int64[key], numbers of those that are there, in order. ``key``: int64[row], indexes into these. ``at``:
    int64[row], the reading, from 0; -1 in a row from before. ``begins``, ``ends``: int64[key], where its rows are.
    ``has_base``: whether the first of them is from before. ``stop``: the reading before which the key is there.
    ``low``: the reading that is 0 here.
    """

    def __init__(self, chain: Chain, low: int, high: int, *, lasting: bool = True) -> None:
        """Take the readings from ``low`` to before ``high``; where rows do not last, none from before."""
        self.chain = chain
        self.length = high - low
        self.low = low
        self._pieces: list[_Piece] = []
        keys, at = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for piece, of_key, of_reading in self._take(low, high, lasting=lasting):
            self._pieces.append(piece)
            keys.append(of_key)
            at.append(of_reading)
        key, reading = np.concatenate(keys), np.concatenate(at)
        order: Int64Array = np.lexsort((reading, key))
        key, reading = key[order], reading[order]
        if lasting:
            # Of rows from before only the last of its key, which is the one next to others.
            inside = (reading >= low) | np.append((key[1:] != key[:-1]) | (reading[1:] >= low), np.True_)[: len(key)]
            order, key, reading = order[inside], key[inside], reading[inside]
        self._order = order
        self.at: Int64Array = np.maximum(reading - low, -1)
        differs = np.ones(len(key), np.bool_)
        differs[1:] = key[1:] != key[:-1]
        self.begins: Int64Array = np.flatnonzero(differs)
        self.ends: Int64Array = np.append(self.begins[1:], len(key))[: len(self.begins)]
        self.keys: Int64Array = key[self.begins]
        self.key: Int64Array = np.cumsum(differs) - 1
        self.has_base: BoolArray = self.at[self.begins] < 0
        last = self.at[self.ends - 1]
        self.stop: Int64Array = np.minimum(np.maximum(chain.gone[self.keys] - low, last + 1), self.length)

    def _take(self, low: int, high: int, *, lasting: bool) -> Iterator[tuple[_Piece, Int64Array, Int64Array]]:
        chain = self.chain
        for number, (stretch, place, of) in enumerate(zip(chain.stretches, chain.places, chain.of, strict=True)):
            there = place[place >= 0]
            if not len(there) or there[0] >= high or (there[-1] < low and not lasting):
                continue
            if there[-1] < low:
                last = place[stretch.last_tick()]
                rows = np.flatnonzero((last >= 0) & (chain.gone[of] > low))
                yield _Piece(number, None, rows), of[rows], last[rows]
                continue
            for keys in stretch.batches():
                counts = stretch.counts[keys]
                key, reading = np.repeat(of[keys], counts), place[stretch.tick_index(keys)]
                inside = (reading >= low) & (reading < high)
                if lasting:
                    follows = np.append((key[1:] == key[:-1]) & (reading[1:] < low), np.False_)[: len(key)]
                    inside |= (reading >= 0) & (reading < low) & ~follows & (chain.gone[key] > low)
                elif (repeated := chain.reported_before(number)) is not None:
                    inside &= ~repeated[rows_of(stretch, keys)]
                rows = np.flatnonzero(inside)
                if len(rows):
                    yield _Piece(number, ALL if len(counts) == len(of) else keys, rows), key[rows], reading[rows]

    def late(self) -> Late:
        """What ended at these readings, from 0, beside what they have of it."""
        late = self.chain.late
        if late is None:
            return Late(np.zeros(0, np.int64), {})
        mine = (late.reading >= self.low) & (late.reading < self.low + self.length)
        return Late(late.reading[mine] - self.low, {name: values[mine] for name, values in late.columns.items()})

    def values(self, name: str) -> Int64Array:
        """A column at these rows; texts by their codes in the chain."""
        if name in self.chain.keys:
            return self.chain.keys[name][self.keys][self.key]
        pieces = [np.zeros(0, np.int64)]
        for piece in self._pieces:
            values = piece.values(self.chain.stretches[piece.number], name)
            pieces.append(self.chain.remapped(piece.number, name, values))
        return np.concatenate(pieces)[self._order]


def reported_before(stretch: Stretch, before: Stretch | None) -> BoolArray:
    """Which rows tell of an end that was told of, in the same stretch or the one before: bool[row].

    A sampler that was killed left it in its ring and in the kernel's.
    """
    end_ns = stretch.column(END)
    is_repeated = np.zeros(len(end_ns), np.bool_)
    maybe = np.repeat(stretch.counts > 1, stretch.counts)
    late = np.zeros(0, np.bool_)
    if before is not None and before.rows and len(end_ns):
        earlier_ns = before.column(END)
        maybe |= end_ns <= earlier_ns.max()
        late = earlier_ns >= end_ns.min()
    rows = np.flatnonzero(maybe)
    if not len(rows):
        return is_repeated
    names = (*key_of(stretch.table), END)
    mine = [stretch.column(name)[rows] for name in names]
    if before is not None and late.any():
        mine = [np.concatenate([before.column(name)[late], own]) for name, own in zip(names, mine, strict=True)]
    order = np.lexsort(mine[::-1])  # A stable order: those before come first.
    same = np.logical_and.reduce([column[order[1:]] == column[order[:-1]] for column in mine])
    repeated = np.zeros(len(order), np.bool_)
    repeated[order[1:]] = same
    is_repeated[rows] = repeated[-len(rows) :]
    return is_repeated
