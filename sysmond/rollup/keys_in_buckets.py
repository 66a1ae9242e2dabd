# SPDX-License-Identifier: Apache-2.0
"""What the keys of a lasting table had, grew by and were, in buckets of boot time: computed over stretches.

A stretch begins with all there was, so what lies wholly within a bucket is answered from what each key began and ended
with; rows are read only of stretches in which a bucket begins or ends, and for averages.

The rules, of an edge between two buckets: what holds there is the last row of an earlier reading, so an increase
belongs to the later of its two readings. A process that started after the reading before it was first seen counts from
0; of any other that was not seen before, what it had at first does not count. What ``exits`` says of a process that
ended is one more row of it, at its end, that takes nothing back. Counters grow by the rule of ``base.counters``: of the
few keys whose counters began anew, or were absent, all rows are looked at.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.counters import floor_of
from sysmond.base.model import ABSENT, START, Semantics
from sysmond.base.result import BoolArray, Float64Array, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.rollup import spread
from sysmond.rollup.condition import Words
from sysmond.rollup.ended import KeyEnds
from sysmond.rollup.portion import KnownFor, Portion, integrals, owned_edges, parts_of, summed
from sysmond.store.coding.integers import filled
from sysmond.store.stretches.ends import GRAIN_NS, ends_of
from sysmond.store.stretches.increments import at_end, increments
from sysmond.store.stretches.stretch import Dictionary, StretchPart, numbered
from sysmond.store.stretches.undeclared import answers_of

# What is still listed so long after its end remains, as a zombie does, until a reading of all there is lists it no
# more. What is listed shortly after was on its way out. Where rows say what remains, and until when, this is not asked.
LEFT_OVER_NS = 1_000_000_000
# So many times at which counters began anew are told apart.
RESETS_MAX = 1000


class Reset(NamedTuple):
    """A counter that began anew: of which key (a number each of its metrics), and between which boot times."""

    metric: str
    key: tuple[int, ...]
    start_ns: int
    end_ns: int


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


class _CounterRows(NamedTuple):
    """Rows of a counter, by key: where each begins, int64[key], and which it is, ``where``.

    Of each row its time, that of the reading before it, and what the counter was; int64[row].
    """

    where: Int64Array
    begins: Int64Array
    ticks: Int64Array
    since: Int64Array
    values: Int64Array


class _OfKeys(NamedTuple):
    """What is known of each key, a row each.

    ``first``: the number of the first part that has it, int64[key]. ``newborn``: whether it started after the reading
    before that, bool[key]. ``end_row``: its row among the ends, int64[key], -1 for none. ``end_ns``: when that says
    that it ended; ``died_ns``: when it was gone at the latest (boot time, int64[key], ALWAYS_NS where it did not end).
    ``had``: whether a row of it is known at an edge, bool[key, edge]. ``alive``: whether it was there in a bucket,
    bool[key, bucket].
    """

    first: Int64Array
    newborn: BoolArray
    end_row: Int64Array
    end_ns: Int64Array
    died_ns: Int64Array
    had: BoolArray
    alive: BoolArray

    def chosen(self, keys: Int64Array) -> "_OfKeys":
        """Only those of some keys."""
        first, newborn, end_row = self.first[keys], self.newborn[keys], self.end_row[keys]
        return _OfKeys(first, newborn, end_row, self.end_ns[keys], self.died_ns[keys], self.had[keys], self.alive[keys])


class KeysInBuckets(NamedTuple):
    """Keys and buckets. ``keys``: by metric of the key, int64[key]. ``edges``: of the buckets, int64[bucket + 1].

    ``words``: the texts of all parts, by their codes. ``portions``: of each part its keys, by number. ``resets``: where
    counters that were asked for began anew; so far, and not more than ``RESETS_MAX``.
    """

    edges: Int64Array
    words: Dictionary
    keys: dict[str, Int64Array]
    portions: Sequence[Portion]
    of_keys: _OfKeys
    ends: KeyEnds | None
    resets: set[Reset]

    @classmethod
    def of(
        cls, parts: Sequence[StretchPart], edges: Int64Array, ends: KeyEnds | None, key: tuple[str, ...]
    ) -> "KeysInBuckets":
        """Look at parts in order of time: those that answer between the edges, and the one before them."""
        words = Dictionary()
        of_part = [np.stack([part.stretch.keys[name] for name in key], axis=1) for part in parts]
        keys, numbers = _numbered(np.concatenate([np.zeros((0, len(key)), np.int64), *of_part]))
        places = np.split(numbers, np.cumsum([len(rows) for rows in of_part[:-1]], dtype=np.int64))
        portions = [
            Portion(part, np.arange(len(place)), place, words.codes(part.stretch.texts))
            for part, place in zip(parts, places, strict=False)
        ]
        starts = keys[:, key.index(START)] if START in key else None
        first, newborn = _first_seen(portions, starts, len(keys))
        end_row = np.full(len(keys), -1, np.int64)
        if starts is None:
            ends = None
        if ends is not None:
            # Some ended that no reading saw.
            end_row, unseen = _ended(keys, ends, edges, key.index(START))
            keys = np.concatenate([keys, ends.keys[unseen]])
            since_ns = portions[0].begin_ns - portions[0].stretch.interval_ns if portions else int(edges[0])
            newborn = np.append(newborn, ends.keys[unseen, key.index(START)] >= since_ns - GRAIN_NS)
            first = np.append(first, np.full(len(unseen), len(parts)))
            end_row = np.append(end_row, unseen)
        end_ns = np.full(len(keys), ALWAYS_NS, np.int64)
        if ends is not None and len(ends.end_ns):
            end_ns = np.where(end_row >= 0, ends.end_ns[end_row], ALWAYS_NS)
        gone_ns, remains = _gone_and_remains(portions, words, end_ns)
        died_ns = np.where(remains, gone_ns, np.minimum(end_ns, gone_ns))
        had = _had(portions, edges, len(keys)) | (edges[None, :] > end_ns[:, None])
        alive = had[:, 1:] & (died_ns[:, None] > edges[None, :-1])
        of_keys = _OfKeys(first, newborn, end_row, end_ns, died_ns, had, alive)
        return cls(edges, words, dict(zip(key, keys.T, strict=True)), portions, of_keys, ends, set())

    def narrow(self, chosen: Int64Array) -> "KeysInBuckets":
        """Only these keys, by number: what is asked for then costs less."""
        number = np.full(len(self.of_keys.first), -1, np.int64)
        number[chosen] = np.arange(len(chosen))
        return self._replace(
            keys={name: column[chosen] for name, column in self.keys.items()},
            portions=[portion.narrowed(number) for portion in self.portions],
            of_keys=self.of_keys.chosen(chosen),
        )

    def took_s(self, span_s: Float64Array) -> Float64Array:
        """How long it took the counters of each key to grow: float64[key, bucket], of readings that span this.

        Longer for who started within the interval before the first reading of all, as it counts from 0.
        """
        took = np.broadcast_to(span_s, self.of_keys.alive.shape).copy()
        if self.portions and START in self.keys:
            begin_ns = self.portions[0].begin_ns
            bucket = int(np.searchsorted(self.edges, begin_ns, "right")) - 1
            if bucket >= 0:
                took[:, bucket] += np.where(self.of_keys.newborn, np.maximum(0, begin_ns - self.keys[START]), 0) / 1e9
        return took

    def at(self, name: str) -> Int64Array:
        """What each key had at each edge: int64[key, edge], as stored; texts by their codes in ``words``."""
        values = np.full((len(self.of_keys.newborn), len(self.edges)), ABSENT, np.int64)
        carried = np.full(len(values), ABSENT, np.int64)
        for portion in self.portions:
            owned = owned_edges(portion.part, self.edges)
            if portion is self.portions[-1] and owned.start == owned.stop:
                continue
            edges = np.append(self.edges[owned], portion.end_ns)
            mine = portion.at(name, edges)
            mine = np.where(portion.seen(edges), mine, carried[portion.where][:, None])
            values[:, owned] = carried[:, None]
            values[portion.where, owned] = mine[:, :-1]
            carried[portion.where] = mine[:, -1]
        return self._with_ended(name, values, carried)

    def _with_ended(self, name: str, values: Int64Array, last: Int64Array) -> Int64Array:
        """Add what is told of those that ended, from the ends on; ``last``: at their last readings, int64[key]."""
        totals = self.ended(name)
        if totals is None:
            return values
        late = self.edges[None, :] > self.of_keys.end_ns[:, None]
        if self._is_counter(name):
            totals = at_end(last, totals)
        else:
            late &= values == ABSENT
        return np.where(late, totals[:, None], values)

    def ended(self, name: str) -> Int64Array | None:
        """What is told of each key that ended, ABSENT of those that did not; None where that is not told."""
        column = self.ends.column(name) if self.ends is not None else None
        if column is None:
            return None
        if isinstance(column, Words):
            column = self.words.codes(column.texts)[column.codes]
        return np.append(column, ABSENT)[self.of_keys.end_row]

    def _is_counter(self, name: str) -> bool:
        tables = [portion.stretch.table for portion in self.portions[:1]]
        metrics = [metric for table in tables for metric in table.metrics if metric.name == name]
        return all(metric.semantics is Semantics.COUNTER for metric in metrics)

    def grown(self, name: str) -> Int64Array:
        """By how much a counter grew: int64[key, bucket], as stored; ABSENT where that is not known."""
        parts = parts_of(self.portions[0].stretch.table, name) if self.portions else (name,)
        if len(parts) > 1:
            return summed([self.grown(part) for part in parts])
        values = self.at(name)
        before, after = values[:, :-1], values[:, 1:]
        base = np.where(self.of_keys.newborn, 0, self._summary("first", name))
        before = np.where(self.of_keys.had[:, :-1], before, base[:, None])
        unknown = (before == ABSENT) | (after == ABSENT)
        grown: Int64Array = np.where(unknown, ABSENT, after - np.where(unknown, 0, before))
        odd = self._odd(name) | ((values == ABSENT) & self.of_keys.had).any(axis=1)
        odd &= self.of_keys.first < len(self.portions)
        if len(keys := np.flatnonzero(odd)):
            grown[keys] = self._grown_by_rows(name, keys, values[keys, :-1] != ABSENT)
        return grown

    def _odd(self, name: str) -> BoolArray:
        """Of which keys a counter began anew, or is absent where a portion begins or ends: bool[key]."""
        odd = np.zeros(len(self.of_keys.newborn), np.bool_)
        stood = np.full(len(odd), ABSENT, np.int64)
        for portion in self.portions:
            before, first = stood[portion.where], portion.summary("first", name)
            odd[portion.where] |= (first == ABSENT) | ((before != ABSENT) & (first < floor_of(before)))
            odd[portion.where[portion.began_anew(name)]] = True
            stood[portion.where] = portion.at(name, np.array([portion.end_ns]))[:, 0]
            odd[portion.where] |= stood[portion.where] == ABSENT
        return odd

    def _grown_by_rows(self, name: str, keys: Int64Array, is_there: BoolArray) -> Int64Array:
        """The same of some keys, int64[key, bucket], row by row; ``is_there``: at the beginning of a bucket."""
        number = np.full(len(self.of_keys.newborn), -1, np.int64)
        number[keys] = np.arange(len(keys))
        grown, known = np.zeros(is_there.shape, np.int64), is_there.copy()
        stood, stood_ns = np.where(self.of_keys.newborn[keys], 0, ABSENT), np.zeros(len(keys), np.int64)
        for rows in self._rows_of(name, keys, number, stood):
            made = increments(rows.values, rows.begins, stood[rows.where])
            counts = np.diff(rows.begins, append=len(rows.values))
            key = np.repeat(rows.where, counts)
            # What is read after an end was used before it.
            used_ns = np.minimum(rows.ticks, self.of_keys.end_ns[keys][key])
            bucket = np.searchsorted(self.edges, used_ns, "right") - 1
            inside = (bucket >= 0) & (bucket < len(self.edges) - 1)
            np.add.at(grown, (key[inside], bucket[inside]), filled(made.grown)[inside])
            present = inside & (rows.values != ABSENT)
            known[key[present], bucket[present]] = True
            for row in np.flatnonzero(made.began_anew & inside)[: RESETS_MAX - len(self.resets)].tolist():
                of = tuple(int(column[keys[key[row]]]) for column in self.keys.values())
                before_ns = int(rows.ticks[made.source[row]] if made.source[row] >= 0 else stood_ns[key[row]])
                self.resets.add(Reset(name, of, max(int(rows.since[row]), before_ns), int(rows.ticks[row])))
            last = made.last(rows.values, rows.begins)
            there, last = rows.where[last >= 0], last[last >= 0]
            stood[there], stood_ns[there] = rows.values[last], rows.ticks[last]
        return np.where(known, grown, ABSENT)

    def _rows_of(self, name: str, keys: Int64Array, number: Int64Array, stood: Int64Array) -> Iterator[_CounterRows]:
        """The rows of some keys, a portion at a time; then what is told of those that ended, as a row each.

        ``stood``: what each was at the rows given so far, int64[key], which the caller keeps up to date.
        """
        before_ns = 0
        for portion in (portion.narrowed(number) for portion in self.portions):
            reading, begins = portion.rows()
            ticks, since = portion.ticks[reading], np.append(before_ns, portion.ticks)[reading]
            # What the next one has as well is its.
            values = np.where(ticks < portion.end_ns, portion.column(name), ABSENT)
            yield _CounterRows(portion.where, begins, ticks, since, values)
            before_ns = int(max([before_ns, *portion.ticks[portion.ticks < portion.end_ns][-1:].tolist()]))
        totals = self.ended(name)
        if totals is not None:
            ended = np.flatnonzero(totals[keys] != ABSENT)
            end_ns, begins = self.of_keys.end_ns[keys][ended], np.arange(len(ended))
            values = at_end(stood[ended], totals[keys][ended])
            yield _CounterRows(ended, begins, end_ns, np.zeros(len(ended), np.int64), values)

    def _summary(self, kind: str, name: str) -> Int64Array:
        """What each key began with, where it was first seen."""
        firsts = np.full(len(self.of_keys.newborn), ABSENT, np.int64)
        for number, portion in enumerate(self.portions):
            first_here = self.of_keys.first[portion.where] == number
            if first_here.any():
                firsts[portion.where[first_here]] = portion.summary(kind, name)[first_here]
        return firsts

    def integral(self, name: str) -> tuple[Float64Array, Float64Array]:
        """The integral of a gauge over time (as stored, times seconds), and over how long: float64[key, bucket]."""
        mass = np.zeros(self.of_keys.alive.shape)
        time_s = np.zeros(self.of_keys.alive.shape)
        carried = np.full(len(mass), ABSENT, np.int64)
        for portion in self.portions:
            inside = self.edges[(self.edges > portion.begin_ns) & (self.edges < portion.valid_until_ns)]
            cuts = np.concatenate([[portion.begin_ns], inside, [portion.valid_until_ns]])
            bucket = np.searchsorted(self.edges, cuts[:-1], "right") - 1
            valid = (bucket >= 0) & (bucket < len(self.edges) - 1)
            if valid.any() and len(portion.local):
                of_mass, of_time = integrals(
                    portion, name, cuts, carried[portion.where], self.of_keys.died_ns[portion.where]
                )
                for number in np.flatnonzero(valid).tolist():
                    mass[portion.where, bucket[number]] += of_mass[:, number]
                    time_s[portion.where, bucket[number]] += of_time[:, number]
            if portion is not self.portions[-1] and len(portion.local):
                ends = portion.at(name, np.array([portion.end_ns]))[:, 0]
                carried[portion.where] = np.where(ends == ABSENT, carried[portion.where], ends)
        return mass, time_s

    def spread(self, name: str, *, is_counter: bool) -> spread.Spread:
        """How the values of a gauge, or the rates of a counter, are spread over each key and bucket."""
        of_keys = self.of_keys
        if is_counter:
            return spread.of_counter(self.portions, self.edges, name, of_keys.died_ns, of_keys.newborn)
        return spread.of_gauge(self.portions, self.edges, name, of_keys.died_ns)

    def peak(self, name: str) -> Int64Array:
        """The largest that a gauge was: int64[key, bucket], as stored."""
        values = self.at(name)[:, :-1]
        there = self.of_keys.had[:, :-1] & (self.of_keys.died_ns[:, None] > self.edges[None, :-1])
        peaks = np.where(there, values, ABSENT)
        buckets = len(self.edges) - 1
        is_total = any(len(parts_of(portion.stretch.table, name)) > 1 for portion in self.portions[:1])
        for portion in self.portions:
            owned = owned_edges(portion.part, self.edges)
            bucket = owned.start - 1
            last_ns = int(portion.ticks[-1])
            whole = bucket >= 0 and last_ns < portion.end_ns and last_ns < int(self.edges[min(owned.start, buckets)])
            if whole and bucket < buckets and not is_total:
                peaks[portion.where, bucket] = np.maximum(peaks[portion.where, bucket], portion.summary("peak", name))
            elif not whole and len(portion.local):
                reading, begins = portion.rows()
                ticks = portion.ticks[reading]
                of_row = np.searchsorted(self.edges, ticks, "right") - 1
                counts = np.diff(np.append(begins, len(reading)))
                key = np.repeat(portion.where, counts)
                valid = (of_row >= 0) & (of_row < buckets) & (ticks < portion.end_ns)
                np.maximum.at(peaks, (key[valid], of_row[valid]), portion.column(name)[valid])
            elif whole and 0 <= bucket < buckets:
                np.maximum.at(peaks, (portion.where[self._row_keys(portion)], bucket), portion.column(name))
        return peaks

    def _row_keys(self, portion: Portion) -> Int64Array:
        return np.repeat(np.arange(len(portion.local)), portion.stretch.counts[portion.local])


def _first_seen(portions: Sequence[Portion], starts: Int64Array | None, count: int) -> tuple[Int64Array, BoolArray]:
    """The number of the first portion of each key, and whether it had not started at the reading before."""
    first = np.full(count, len(portions), np.int64)
    newborn = np.zeros(count, bool)
    for number, portion in enumerate(portions):
        new = portion.where[first[portion.where] > number]
        first[new] = number
        if starts is not None:
            # Before the first reading of all nobody looked: what started within an interval of it is new there.
            first_ns = portion.begin_ns - portion.stretch.interval_ns
            before_ns = int(portions[number - 1].ticks[-1]) if number else first_ns
            newborn[new] = starts[new] >= min(portion.begin_ns, before_ns) - GRAIN_NS
    return first, newborn


def _ended(keys: Int64Array, ends: KeyEnds, edges: Int64Array, start: int) -> tuple[Int64Array, Int64Array]:
    """The row in ``ends`` of each key, int64[key], -1 for none; and the rows of others that ended between the edges.

    ``start``: which metric of the key says when it started.
    """
    key = ends_of(keys, ends.keys, ends.end_ns, start)
    end_row = np.full(len(keys), -1, np.int64)
    end_row[key[key >= 0]] = np.flatnonzero(key >= 0)
    return end_row, np.flatnonzero((key < 0) & (ends.end_ns >= edges[0]) & (ends.end_ns < edges[-1]))


def _gone_and_remains(
    portions: Sequence[Portion], words: Dictionary, end_ns: Int64Array
) -> tuple[Int64Array, BoolArray]:
    """When each key was gone by what readings say, int64[key], boot time; which remain after their ends, bool[key]."""
    gone_ns, remains = np.full(len(end_ns), ALWAYS_NS, np.int64), np.zeros(len(end_ns), bool)
    was_seen = np.zeros(len(end_ns), bool)
    for portion in portions:
        here = np.zeros(len(end_ns), bool)
        here[portion.where] = True
        if portion.stretch.full[0]:
            gone_ns[was_seen & ~here & (gone_ns == ALWAYS_NS)] = portion.begin_ns
        gone_ns[portion.where] = portion.gone_ns()
        ending = answers_of(portion.stretch.table).ended_by
        if ending is not None and ending.remains:
            name, *values = ending.remains
            remaining, gone, _ = words.codes(values).tolist()
            last = portion.summary("last", name)
            remains[portion.where] = (last == remaining) | (last == gone)
            is_last = last == gone
            gone_ns[portion.where[is_last]] = portion.ticks[portion.stretch.last_tick()[portion.local]][is_last]
        else:
            seen_ns = portion.ticks[portion.stretch.seen()[portion.local]]
            remains[portion.where] = seen_ns > end_ns[portion.where] + LEFT_OVER_NS
        was_seen |= here
    return gone_ns, remains


def _had(portions: Sequence[Portion], edges: Int64Array, count: int) -> BoolArray:
    """Whether a reading before an edge had a row of a key: bool[key, edge]."""
    had = np.zeros((count, len(edges)), bool)
    before = np.zeros(count, bool)
    for portion in portions:
        owned = owned_edges(portion.part, edges)
        had[:, owned] = before[:, None]
        had[portion.where, owned] |= portion.seen(edges[owned])
        before[portion.where] = True
    return had


def _numbered(keys: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The keys that there are, in the order in which they first come, and of each that is given its number."""
    where, first = numbered([*keys.T])
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return keys[np.sort(first)], number[where]
