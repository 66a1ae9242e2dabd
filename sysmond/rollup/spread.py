# SPDX-License-Identifier: Apache-2.0
"""How the values of a lasting table are spread over time: percentiles, the smallest and the largest. Pure.

A value of a gauge counts for as long as it held. What a counter grew by between two readings counts as a rate for the
time between them, in the bucket of the later one; where no row was recorded it grew by nothing. What it grew by over a
gap, or as it began anew, is no rate; what is told of the end of a key alone is none either.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.counters import floor_of
from sysmond.base.model import ABSENT
from sysmond.base.result import BoolArray, Float64Array, Int64Array
from sysmond.rollup.portion import Portion
from sysmond.store.stretches.stretch import GAP_INTERVALS

PERCENT_MAX = 100
ROUNDING = 1e-12


class Spread(NamedTuple):
    """Values, for how long they held (nanoseconds), and in which cell: key times buckets plus bucket; a row a piece.

    ``values``: float64[piece], in the unit as stored; of counters in a second.
    """

    cell: Int64Array
    values: Float64Array
    held_ns: Int64Array


class _Runs(NamedTuple):
    """Values that hold from a place (included) to another (excluded), of these keys: int64[run] each."""

    key: Int64Array
    start: Int64Array
    end: Int64Array
    values: Float64Array


def of_gauge(portions: Sequence[Portion], edges: Int64Array, name: str, died_ns: Int64Array) -> Spread:
    """The values of a gauge. ``edges``: of the buckets, int64[bucket + 1]; ``died_ns``: of the keys, int64[key]."""
    pieces: list[Spread] = []
    carried = np.full(len(died_ns), ABSENT, np.int64)
    for portion in portions:
        key, reading, ends, values = _rows(portion, name)
        ticks = portion.ticks[reading]
        end_ns = np.where(ends, portion.valid_until_ns, np.append(ticks[1:], 0))
        runs = _with_lead(portion, carried, ticks, portion.begin_ns, _Runs(key, ticks, end_ns, values.astype(float)))
        absent = np.append(values == ABSENT, np.zeros(len(runs.key) - len(values), bool))
        runs = runs._replace(end=np.where(absent, runs.start, np.minimum(runs.end, died_ns[runs.key])))
        run, bucket, low, high = _cut(runs, edges)
        held_ns = portion.watch.since_ns(high) - portion.watch.since_ns(low)
        pieces.append(Spread(runs.key[run] * (len(edges) - 1) + bucket, runs.values[run], held_ns))
        _carry(portion, name, carried)
    return _joined(pieces)


def of_counter(
    portions: Sequence[Portion], edges: Int64Array, name: str, died_ns: Int64Array, newborn: BoolArray
) -> Spread:
    """The rates of a counter. ``newborn``: which keys count from 0, bool[key]; the rest as of a gauge."""
    pieces: list[Spread] = []
    carried = np.full(len(died_ns), ABSENT, np.int64)
    before_ns: int | None = None
    for portion in portions:
        ticks = portion.ticks[: int(np.searchsorted(portion.ticks, portion.end_ns))]
        apart_ns = np.diff(ticks, prepend=ticks[:1] if before_ns is None else before_ns)
        is_gap = (apart_ns > GAP_INTERVALS * portion.stretch.interval_ns) | (apart_ns <= 0)
        known_ns = np.append(0, np.cumsum(np.where(is_gap, 0, apart_ns)))
        readings = _Readings(ticks, np.where(is_gap, 0, apart_ns), known_ns)
        pieces += _rates(portion, name, edges, readings, _Keys(carried, died_ns, newborn))
        _carry(portion, name, carried)
        before_ns = int(ticks[-1]) if len(ticks) else before_ns
    return _joined(pieces)


class _Readings(NamedTuple):
    """Readings: their times, how long each is after the one before (0 over a gap), and the sums of that."""

    ticks: Int64Array
    apart_ns: Int64Array
    known_ns: Int64Array


class _Keys(NamedTuple):
    """Of each key what it had in the portion before, when it died, and whether it counts from 0."""

    carried: Int64Array
    died_ns: Int64Array
    newborn: BoolArray


def _rates(portion: Portion, name: str, edges: Int64Array, readings: _Readings, keys: _Keys) -> Iterator[Spread]:
    """What one portion tells: at its rows a rate, between them nothing."""
    ticks, apart_ns, known_ns = readings
    carried = keys.carried
    buckets, number = len(edges) - 1, len(ticks)
    key, reading, ends, values = _rows(portion, name)
    begins = np.append(True, ends[:-1])[: len(ends)]
    first = np.where((carried == ABSENT) & keys.newborn, 0, carried)
    before = np.where(begins, first[key], np.append(ABSENT, values[:-1])[: len(values)])
    known = (before != ABSENT) & (values != ABSENT) & (values >= floor_of(before)) & (reading < number)
    at = reading[known]
    bucket = np.searchsorted(edges, ticks[at], "right") - 1
    grown, took_ns = np.maximum(0, values[known] - before[known]), apart_ns[at]
    inside = (bucket >= 0) & (bucket < buckets) & (took_ns > 0)
    rates = grown[inside] * float(SECOND_NS) / took_ns[inside]
    yield Spread(key[known][inside] * buckets + bucket[inside], rates, took_ns[inside])
    last = np.searchsorted(ticks, keys.died_ns[key])
    end = np.where(ends, last, np.minimum(np.append(reading[1:], 0), last))
    runs = _with_lead(portion, carried, reading, 0, _Runs(key, reading + 1, end, np.zeros(len(key))))
    runs = runs._replace(values=np.zeros(len(runs.key)))
    run, bucket, low, high = _cut(runs, np.searchsorted(ticks, edges))
    yield Spread(runs.key[run] * buckets + bucket, runs.values[run], known_ns[high] - known_ns[low])


def _rows(portion: Portion, name: str) -> tuple[Int64Array, Int64Array, BoolArray, Int64Array]:
    """The rows of a portion: key, reading, whether it is the last of its key, value."""
    reading, begins = portion.rows()
    counts = np.diff(np.append(begins, len(reading)))
    ends = np.zeros(len(reading), bool)
    ends[(begins + counts - 1)[counts > 0]] = True
    return np.repeat(portion.where, counts), reading, ends, portion.column(name)


def _with_lead(portion: Portion, carried: Int64Array, starts: Int64Array, begin: int, runs: _Runs) -> _Runs:
    """With what keys had before their first row here. ``starts``: where each row begins, ``begin``: the portion."""
    _, begins = portion.rows()
    has_rows = np.diff(np.append(begins, len(starts))) > 0
    where = portion.where[has_rows]
    lead = carried[where] != ABSENT
    first = starts[begins[has_rows][lead]]
    key = where[lead]
    added = _Runs(key, np.full(len(key), begin, np.int64), first, carried[key].astype(float))
    return _Runs(*(np.concatenate(pair) for pair in zip(runs, added, strict=True)))


def _carry(portion: Portion, name: str, carried: Int64Array) -> None:
    """Take what each key has at the end of a portion over to the next."""
    if len(portion.local):
        ends = portion.at(name, np.array([portion.end_ns]))[:, 0]
        carried[portion.where] = np.where(ends == ABSENT, carried[portion.where], ends)


def _cut(runs: _Runs, edges: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Runs cut at the edges of buckets: of each piece its run, its bucket, its start and its end, int64[piece]."""
    start, end = np.maximum(runs.start, edges[0]), np.minimum(runs.end, edges[-1])
    there = np.flatnonzero(start < end)
    first = np.searchsorted(edges, start[there], "right") - 1
    number = np.searchsorted(edges, end[there], "left") - first
    run = np.repeat(there, number)
    bucket = np.repeat(first - (np.cumsum(number) - number), number) + np.arange(len(run))
    return run, bucket, np.maximum(start[run], edges[bucket]), np.minimum(end[run], edges[bucket + 1])


def _joined(pieces: Sequence[Spread]) -> Spread:
    held_ns = np.concatenate([np.zeros(0, np.int64), *(piece.held_ns for piece in pieces)])
    cell = np.concatenate([np.zeros(0, np.int64), *(piece.cell for piece in pieces)])
    values = np.concatenate([np.zeros(0), *(piece.values for piece in pieces)])
    return Spread(cell[held_ns > 0], values[held_ns > 0], held_ns[held_ns > 0])


def percentile(spread: Spread, percent: float, cells: int) -> Float64Array:
    """The smallest value at or below which so many percent of the time were spent: float64[cell], NaN for none.

    Of 0 it is the smallest, of 100 the largest.
    """
    order = np.lexsort((spread.values, spread.cell))
    cell, held_ns = spread.cell[order], spread.held_ns[order]
    found = np.full(cells, np.nan)
    if not len(cell):
        return found
    begins = np.flatnonzero(np.append(True, cell[1:] != cell[:-1]))
    until_ns = np.cumsum(held_ns)
    total_ns = np.add.reduceat(held_ns, begins)
    # A float may be a little too large: 7 % of 100 s are 7 s.
    share = percent / PERCENT_MAX * (1 - ROUNDING)
    sought_ns = np.maximum(1, np.ceil(total_ns * share).astype(np.int64))
    before_ns = until_ns[begins] - held_ns[begins]
    found[cell[begins]] = spread.values[order][np.searchsorted(until_ns, before_ns + np.minimum(sought_ns, total_ns))]
    return found
