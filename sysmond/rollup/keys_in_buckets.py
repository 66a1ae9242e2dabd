# SPDX-License-Identifier: Apache-2.0
"""What the keys of a lasting table had, grew by and were, in buckets of boot time: computed over stretches.

A stretch begins with all there was, so what lies wholly within a bucket is answered from what each key began and ended
with; rows are read only of stretches in which a bucket begins or ends, and for averages.

The rules, of an edge between two buckets: what holds there is the last row of an earlier reading, so an increase
belongs to the later of its two readings. A process that started after the reading before it was first seen counts from
0; of any other that was not seen before, what it had at first does not count. What ``exits`` says of a process that
ended is one more row of it, at its end. A counter that fell has not grown.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, START, Semantics
from sysmond.base.result import BoolArray, Float64Array, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.rollup.condition import Words
from sysmond.rollup.portion import KnownFor, Portion, integrals, owned_edges, parts_of
from sysmond.store.ends import GRAIN_NS, ends_of
from sysmond.store.stretch import StretchPart


class KeyEnds(NamedTuple):
    """What ended, one a row: key (int64[row, metric of the key]) and end (boot time), in order of the ends.

    ``column``: what else the table that tells it has, by name; None for what it has not.
    """

    keys: Int64Array
    end_ns: Int64Array
    column: Callable[[str], Int64Array | Words | None]


def spans(parts: Sequence[StretchPart], edges: Int64Array) -> tuple[Float64Array, Float64Array]:
    """How far apart the readings are between which increases lie, and how long values are known: float64[bucket]."""
    last = np.full(len(edges), ABSENT, np.int64)
    watched = np.zeros(len(edges) - 1)
    for part in parts:
        ticks = part.stretch.ticks
        owned = owned_edges(part, edges)
        last[owned] = ticks[np.searchsorted(ticks, edges[owned], "left") - 1]
        watched += np.diff(KnownFor(part).since_ns(edges)) / 1e9
    before, after = last[:-1], last[1:]
    if parts:
        before = np.where(before == ABSENT, parts[0].stretch.ticks[0], before)
    return np.where(after == ABSENT, 0, np.maximum(0, after - before)) / 1e9, watched


class Dictionary:
    """Texts by code, joined over stretches, each of which has codes of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def codes(self, texts: Iterable[str]) -> Int64Array:
        """The code of each text; ABSENT goes behind the last, where index -1 finds it."""
        found = [self._codes.setdefault(text, len(self._codes)) for text in texts]
        self.texts += list(self._codes)[len(self.texts) :]
        return np.array([*found, ABSENT], np.int64)


class KeysInBuckets:
    """Keys and buckets. ``keys``: by metric of the key, int64[key]. ``edges``: of the buckets, int64[bucket + 1].

    ``alive``: whether a key was there in a bucket, bool[key, bucket]. ``died_ns``: when it ended (boot time),
    ALWAYS_NS where it did not.
    """

    def __init__(
        self, parts: Sequence[StretchPart], edges: Int64Array, ended: KeyEnds | None, key: tuple[str, ...]
    ) -> None:
        """Look at parts in order of time: those that answer between the edges, and the one before them."""
        self.edges = edges
        self.words = Dictionary()
        self._ended = ended
        keys = [np.stack([part.stretch.keys[name] for name in key], axis=1) for part in parts]
        self._known, where = _numbered(np.concatenate([np.zeros((0, len(key)), np.int64), *keys]))
        self._first = np.full(len(self._known), len(parts), np.int64)
        self._newborn = np.zeros(len(self._known), bool)
        self._portions: list[Portion] = []
        at = 0
        for number, (part, before) in enumerate(zip(parts, [None, *parts], strict=False)):
            mine = where[at : at + len(keys[number])]
            at += len(mine)
            self._portions.append(Portion(part, np.arange(len(mine)), mine, self.words.codes(part.stretch.texts)))
            new = mine[self._first[mine] > number]
            self._first[new] = number
            if START in key:
                self._newborn[new] = self._known[new, key.index(START)] >= self._since_ns(part, before) - GRAIN_NS
        self._end_row = np.full(len(self._known), -1, np.int64)
        self._take_ended(parts, key)
        self._finish(key)

    def _since_ns(self, part: StretchPart, before: StretchPart | None) -> int:
        """Who started since then, was not there before."""
        first_ns = int(part.stretch.ticks[0])
        return min(first_ns, self._opening_ns(first_ns) if before is None else int(before.stretch.ticks[-1]))

    def _opening_ns(self, first_ns: int) -> int:
        """Where the bucket begins in which the first reading is."""
        return int(self.edges[max(0, int(np.searchsorted(self.edges, first_ns, "right")) - 1)])

    def _take_ended(self, parts: Sequence[StretchPart], key: tuple[str, ...]) -> None:
        """Give numbers to those that no reading saw, and note by number who ended."""
        ended = self._ended
        if ended is None or START not in key:
            self._ended = None
            return
        since_ns = int(self.edges[0])
        if parts:
            since_ns = min(since_ns, int(parts[0].stretch.ticks[0]))
        known = self._known
        row = ends_of(known, ended.keys, ended.end_ns, key.index(START))
        self._end_row[row[row >= 0]] = np.flatnonzero(row >= 0)
        new = np.flatnonzero((row < 0) & (ended.end_ns >= self.edges[0]) & (ended.end_ns < self.edges[-1]))
        self._known = np.concatenate([known, ended.keys[new]])
        self._newborn = np.append(self._newborn, ended.keys[new, key.index(START)] >= since_ns - GRAIN_NS)
        self._end_row = np.append(self._end_row, new)
        self._first = np.append(self._first, np.full(len(new), len(parts)))

    def _finish(self, key: tuple[str, ...]) -> None:
        self.keys = dict(zip(key, self._known.T, strict=True))
        count = len(self._known)
        self._end_ns = np.full(count, ALWAYS_NS, np.int64)
        if self._ended is not None and len(self._ended.end_ns):
            known = self._end_row >= 0
            self._end_ns[known] = self._ended.end_ns[self._end_row[known]]
        self.died_ns = np.minimum(self._end_ns, self._gone())
        present = self._present()
        self._had = present
        self.alive = present[:, 1:] & (self.died_ns[:, None] > self.edges[None, :-1])

    def narrow(self, chosen: Int64Array) -> "KeysInBuckets":
        """Only these keys, by number: what is asked for then costs less."""
        new = np.full(len(self._newborn), -1, np.int64)
        new[chosen] = np.arange(len(chosen))
        made = copy(self)
        made.__dict__["_portions"] = [portion.narrowed(new) for portion in self._portions]
        for name in ("_first", "_newborn", "_end_row", "_end_ns", "died_ns", "_had", "alive"):
            setattr(made, name, getattr(self, name)[chosen])
        made.keys = {name: column[chosen] for name, column in self.keys.items()}
        return made

    def _gone(self) -> Int64Array:
        """When a reading of all there was had no row of a key any more."""
        gone = np.full(len(self._newborn), ALWAYS_NS, np.int64)
        known = np.zeros(len(gone), bool)
        for portion in self._portions:
            here = np.zeros(len(gone), bool)
            here[portion.where] = True
            if portion.stretch.full[0]:
                missed = known & ~here & (gone == ALWAYS_NS)
                gone[missed] = portion.begin_ns
            gone[portion.where] = portion.gone_ns()
            known |= here
        return gone

    def _present(self) -> BoolArray:
        present = np.zeros((len(self._newborn), len(self.edges)), bool)
        before = np.zeros(len(present), bool)
        for portion in self._portions:
            owned = owned_edges(portion.part, self.edges)
            present[:, owned] = before[:, None]
            present[portion.where, owned] |= portion.seen(self.edges[owned])
            before[portion.where] = True
        return present | (self.edges[None, :] > self._end_ns[:, None])

    def took_s(self, span_s: Float64Array) -> Float64Array:
        """How long it took the counters of each key to grow: float64[key, bucket], of readings that span this.

        Longer for who started before the first reading of all, as it counts from 0.
        """
        took = np.broadcast_to(span_s, self.alive.shape).copy()
        if self._portions and START in self.keys:
            begin_ns = self._portions[0].begin_ns
            bucket = int(np.searchsorted(self.edges, begin_ns, "right")) - 1
            if bucket >= 0:
                took[:, bucket] += np.where(self._newborn, np.maximum(0, begin_ns - self.keys[START]), 0) / 1e9
        return took

    def at(self, name: str) -> Int64Array:
        """What each key had at each edge: int64[key, edge], as stored; texts by their codes in ``words``."""
        found = np.full((len(self._newborn), len(self.edges)), ABSENT, np.int64)
        carried = np.full(len(found), ABSENT, np.int64)
        for portion in self._portions:
            owned = owned_edges(portion.part, self.edges)
            if portion is self._portions[-1] and owned.start == owned.stop:
                continue
            edges = np.append(self.edges[owned], portion.end_ns)
            mine = portion.at(name, edges)
            mine = np.where(portion.seen(edges), mine, carried[portion.where][:, None])
            found[:, owned] = carried[:, None]
            found[portion.where, owned] = mine[:, :-1]
            carried[portion.where] = mine[:, -1]
        return self._with_ended(name, found)

    def _with_ended(self, name: str, found: Int64Array) -> Int64Array:
        """Add what is told of those that ended, from the ends on."""
        totals = self.ended(name)
        if totals is None:
            return found
        late = self.edges[None, :] > self._end_ns[:, None]
        if self._is_counter(name):
            return np.where(late, np.maximum(found, totals[:, None]), found)
        return np.where(late & (found == ABSENT), totals[:, None], found)

    def ended(self, name: str) -> Int64Array | None:
        """What is told of each key that ended, ABSENT of those that did not; None where that is not told."""
        column = self._ended.column(name) if self._ended is not None else None
        if column is None:
            return None
        if isinstance(column, Words):
            column = self.words.codes(column.texts)[column.codes]
        return np.append(column, ABSENT)[self._end_row]

    def _is_counter(self, name: str) -> bool:
        tables = [portion.stretch.table for portion in self._portions[:1]]
        metrics = [metric for table in tables for metric in table.metrics if metric.name == name]
        return all(metric.semantics is Semantics.COUNTER for metric in metrics)

    def grown(self, name: str) -> Int64Array:
        """By how much a counter grew: int64[key, bucket], as stored; ABSENT where that is not known."""
        values = self.at(name)
        before, after = values[:, :-1], values[:, 1:]
        base = np.where(self._newborn, 0, self._summary("first", name))
        before = np.where(self._had[:, :-1], before, base[:, None])
        unknown = (before == ABSENT) | (after == ABSENT)
        return np.where(unknown, ABSENT, np.maximum(0, np.where(unknown, 0, after) - np.where(unknown, 0, before)))

    def _summary(self, kind: str, name: str) -> Int64Array:
        """What each key began with, where it was first seen."""
        found = np.full(len(self._newborn), ABSENT, np.int64)
        for number, portion in enumerate(self._portions):
            first_here = self._first[portion.where] == number
            if first_here.any():
                found[portion.where[first_here]] = portion.summary(kind, name)[first_here]
        return found

    def held(self, name: str) -> tuple[Float64Array, Float64Array]:
        """The integral of a gauge over time (as stored, times seconds), and over how long: float64[key, bucket]."""
        mass = np.zeros(self.alive.shape)
        time_s = np.zeros(self.alive.shape)
        carried = np.full(len(mass), ABSENT, np.int64)
        for portion in self._portions:
            inside = self.edges[(self.edges > portion.begin_ns) & (self.edges < portion.held_ns)]
            cuts = np.concatenate([[portion.begin_ns], inside, [portion.held_ns]])
            bucket = np.searchsorted(self.edges, cuts[:-1], "right") - 1
            valid = (bucket >= 0) & (bucket < len(self.edges) - 1)
            if valid.any() and len(portion.local):
                of_mass, of_time = integrals(portion, name, cuts, carried[portion.where], self.died_ns[portion.where])
                for number in np.flatnonzero(valid).tolist():
                    mass[portion.where, bucket[number]] += of_mass[:, number]
                    time_s[portion.where, bucket[number]] += of_time[:, number]
            if portion is not self._portions[-1] and len(portion.local):
                ends = portion.at(name, np.array([portion.end_ns]))[:, 0]
                carried[portion.where] = np.where(ends == ABSENT, carried[portion.where], ends)
        return mass, time_s

    def peak(self, name: str) -> Int64Array:
        """The largest that a gauge was: int64[key, bucket], as stored."""
        values = self.at(name)[:, :-1]
        there = self._had[:, :-1] & (self.died_ns[:, None] > self.edges[None, :-1])
        found = np.where(there, values, ABSENT)
        buckets = len(self.edges) - 1
        is_total = any(len(parts_of(portion.stretch.table, name)) > 1 for portion in self._portions[:1])
        for portion in self._portions:
            owned = owned_edges(portion.part, self.edges)
            bucket = owned.start - 1
            last_ns = int(portion.ticks[-1])
            whole = bucket >= 0 and last_ns < portion.end_ns and last_ns < int(self.edges[min(owned.start, buckets)])
            if whole and bucket < buckets and not is_total:
                found[portion.where, bucket] = np.maximum(found[portion.where, bucket], portion.summary("peak", name))
            elif not whole and len(portion.local):
                reading, begins = portion.rows()
                ticks = portion.ticks[reading]
                of_row = np.searchsorted(self.edges, ticks, "right") - 1
                counts = np.diff(np.append(begins, len(reading)))
                key = np.repeat(portion.where, counts)
                valid = (of_row >= 0) & (of_row < buckets) & (ticks < portion.end_ns)
                np.maximum.at(found, (key[valid], of_row[valid]), portion.column(name)[valid])
            elif whole and 0 <= bucket < buckets:
                np.maximum.at(found, (portion.where[self._row_keys(portion)], bucket), portion.column(name))
        return found

    def _row_keys(self, portion: Portion) -> Int64Array:
        return np.repeat(np.arange(len(portion.local)), portion.stretch.counts[portion.local])


def _numbered(keys: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The keys that there are, in the order in which they first come, and of each that is given its number."""
    order = np.lexsort(keys.T[::-1])
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    # Of equal ones the order is that in which they come.
    first = order[begins]
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    where = np.empty(len(order), np.int64)
    where[order] = number[np.cumsum(begins) - 1]
    return keys[np.sort(first)], where
