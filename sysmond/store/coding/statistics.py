# SPDX-License-Identifier: Apache-2.0
"""Rolling up: rows become buckets, buckets longer buckets, and neighbours one, without any loss of exactness.

Pure: arrays in, arrays out. A **bucket** is a run of neighbouring rows of one strand whose wall-clock time
lies between two multiples of the step; a step of the clock or a suspend cuts it short. What a bucket
keeps is chosen so that joining is exact: tier n+1 made from tier n equals tier n+1 made from rows.

========  ==========================================  ====================================================
stat      of a gauge                                  of a counter
========  ==========================================  ====================================================
COUNT     values                                      increments over one interval of the table
SUM       their sum                                   the sum of all increments, those over gaps included
MIN, MAX  smallest and largest                        MAX: the largest increment over one interval
LAST      the last value
TMAX      tick of the (first) maximum                 the same
LEAP                                                  what of SUM grew over gaps
LEAP_NS                                               how long those gaps were
========  ==========================================  ====================================================

An increment belongs to the row that ends it. Where a counter began anew (``base.counters`` has the rule), the
interval is unknown and counts nowhere.
Of a text there are COUNT and LAST only: ids have no order.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sysmond.base.counters import floor_of
from sysmond.base.model import ABSENT, Metric, Semantics
from sysmond.base.result import BoolArray, Int64Array
from sysmond.base.wall_clock import Course
from sysmond.store.coding.integers import last_there

# An interval that is longer than the table's own by this factor had a gap in it.
GAP_FACTOR = 1.5
# Below this a value and a position fit into one integer, which finds a maximum and its place in one pass.
_PACKABLE = 2**40
_POSITIONS_MAX = 2**20
# A series that moves is mostly found to by a look at every so manieth row.
_GLANCE_ROWS = 487


class Stat(IntEnum):
    """What of a bucket a row of a file holds; VALUE: the row is no statistic but the series itself."""

    VALUE = 0
    COUNT = 1
    SUM = 2
    MIN = 3
    MAX = 4
    LAST = 5
    TMAX = 6
    LEAP = 7
    LEAP_NS = 8


GAUGE_STATS = (Stat.COUNT, Stat.SUM, Stat.MIN, Stat.MAX, Stat.LAST, Stat.TMAX)
COUNTER_STATS = (Stat.COUNT, Stat.SUM, Stat.MAX, Stat.TMAX, Stat.LEAP, Stat.LEAP_NS)
TEXT_STATS = (Stat.COUNT, Stat.LAST)


def stats_of(metric: Metric) -> tuple[Stat, ...]:
    """What a bucket keeps of a metric."""
    if metric.semantics is Semantics.COUNTER:
        return COUNTER_STATS
    return TEXT_STATS if metric.is_text else GAUGE_STATS


class Axis(NamedTuple):
    """The time axis of buckets: int64[bucket] each. ``first``, ``last``: ticks of the outermost rows."""

    first: Int64Array
    last: Int64Array
    rows: Int64Array


class Edges(NamedTuple):
    """Where counters stood at both ends: int64[series] each, ABSENT where a series has no value."""

    first_value: Int64Array
    first_tick: Int64Array
    last_value: Int64Array
    last_tick: Int64Array


class Buckets(NamedTuple):
    """Statistics of series over an axis: int64[series, bucket] by stat, ABSENT where a bucket has no value.

    SUM of a counter is 0, not ABSENT, where nothing is known to have grown but a row is there.
    """

    axis: Axis
    stats: dict[Stat, Int64Array]
    edges: Edges | None = None


def distinct(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Each value of int64[n] once, in order, and the index where it stood first: int64[value] both.

    As ``np.unique`` has it, which imports numpy.ma: a tenth of a cold start.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.ones(len(values), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new], order[new]


def axis_of_rows(ticks: Int64Array) -> Axis:
    """Each row as a bucket of its own; ``ticks``: int64[row]."""
    return Axis(ticks, ticks, np.ones(len(ticks), np.int64))


def cut(first_utc_ns: Int64Array, step_ns: int, breaks: BoolArray) -> Int64Array:
    """Where new buckets begin: at another multiple of the step, and wherever ``breaks`` says so.

    ``first_utc_ns``, ``breaks``: of each row or finer bucket. Gives indexes, int64[bucket].
    """
    number = first_utc_ns // step_ns
    begins = breaks.copy()
    begins[1:] |= number[1:] != number[:-1]
    if len(begins):
        begins[0] = True
    return np.flatnonzero(begins)


def join_axis(axis: Axis, starts: Int64Array) -> Axis:
    """The axis of the longer buckets that begin at ``starts``, int64[bucket], indexes into the axis."""
    ends = np.append(starts[1:], len(axis.first)) - 1
    return Axis(axis.first[starts], axis.last[ends], np.add.reduceat(axis.rows, starts))


def _axis(ticks: Int64Array, starts: Int64Array) -> Axis:
    """The axis of buckets of rows that begin at ``starts``."""
    ends = np.append(starts[1:], len(ticks))
    return Axis(ticks[starts], ticks[ends - 1], ends - starts)


def join_axes(before: Axis, after: Axis) -> Axis:
    """The axes of neighbours end to end. A tick that is in both, each with other series, is one row."""
    axis = Axis(*(np.concatenate(pair) for pair in zip(before, after, strict=True)))
    if len(before.last) and len(after.first) and before.last[-1] == after.first[0]:
        axis.rows[len(before.rows)] -= 1
    return axis


def cut_axis(axis: Axis, course: Course, step_ns: int) -> Int64Array:
    """Where the buckets of a step begin, int64[bucket]: at its multiples in UTC, after a step and a suspend."""
    breaks = np.zeros(len(axis.first), bool)
    era = course.era(axis.first)
    breaks[1:] = era[1:] != era[:-1]
    return cut(course.utc_ns(axis.first), step_ns, breaks)


def steady(values: Int64Array) -> BoolArray:
    """Which series, int64[series, row], are there at every row and never move: bool[series]."""
    first = values[:, :1]
    is_steady: BoolArray = np.asarray(((values[:, ::_GLANCE_ROWS] == first) & (first != ABSENT)).all(axis=1))
    for row in np.flatnonzero(is_steady).tolist():
        is_steady[row] = bool((values[row] == first[row]).all())
    return is_steady


def of_gauges(values: Int64Array, ticks: Int64Array, starts: Int64Array) -> Buckets:
    """Roll up rows of gauges: int64[series, row]."""
    axis = _axis(ticks, starts)
    lowest = int(values.min(initial=0))
    if lowest != ABSENT:
        count = np.broadcast_to(axis.rows, (len(values), len(starts)))
        peak, place = _peaks(values, starts, lowest)
        return Buckets(
            axis,
            {
                Stat.COUNT: count,
                Stat.SUM: np.add.reduceat(values, starts, axis=1),
                Stat.MIN: np.minimum.reduceat(values, starts, axis=1),
                Stat.MAX: peak,
                Stat.LAST: values[:, np.append(starts[1:], len(ticks)) - 1],
                Stat.TMAX: ticks[place],
            },
        )
    absent = values == ABSENT
    stats = {
        Stat.COUNT: (~absent).astype(np.int64),
        Stat.SUM: np.where(absent, 0, values),
        Stat.MIN: values,
        Stat.MAX: values,
        Stat.LAST: values,
        Stat.TMAX: np.where(absent, ABSENT, ticks),
    }
    return Buckets(axis, _join_stats(stats, starts))


def of_texts(values: Int64Array, ticks: Int64Array, starts: Int64Array) -> Buckets:
    """Roll up rows of texts: int64[series, row], ids."""
    stats = {Stat.COUNT: (values != ABSENT).astype(np.int64), Stat.LAST: values}
    return Buckets(_axis(ticks, starts), _join_stats(stats, starts))


def of_rows(
    stats: tuple[Stat, ...], values: Int64Array, ticks: Int64Array, starts: Int64Array, interval_ns: int
) -> Buckets:
    """Roll up rows of series, int64[series, row], of which buckets keep ``stats``."""
    if stats == COUNTER_STATS:
        return of_counters(values, ticks, starts, interval_ns)
    return of_texts(values, ticks, starts) if stats == TEXT_STATS else of_gauges(values, ticks, starts)


def of_counters(values: Int64Array, ticks: Int64Array, starts: Int64Array, interval_ns: int) -> Buckets:
    """Roll up rows of counters: int64[series, row], absolute values."""
    axis = _axis(ticks, starts)
    lengths = np.diff(ticks, prepend=ticks[:1])
    if values.min(initial=0) == ABSENT:
        absent = values == ABSENT
        grown, since, known = _increments_of_hollow(values, ticks, absent)
        edges = _edges(values, ticks, absent)
        return Buckets(axis, _counter_stats(grown, since, known, ticks, starts, interval_ns), edges)
    edges = Edges(
        values[:, 0], np.full(len(values), ticks[0]), values[:, -1], np.full(len(values), ticks[-1], np.int64)
    )
    grown = np.empty_like(values)
    grown[:, 0] = 0
    np.subtract(values[:, 1:], values[:, :-1], out=grown[:, 1:])
    if grown.min(initial=0) >= 0 and lengths.max() <= GAP_FACTOR * interval_ns:
        return Buckets(axis, _uninterrupted_stats(values, grown, ticks, starts), edges)
    known = np.ones(values.shape, bool)
    known[:, 0] = False
    known[:, 1:] &= values[:, 1:] >= floor_of(values[:, :-1])
    since = np.broadcast_to(lengths, values.shape)
    return Buckets(axis, _counter_stats(grown, since, known, ticks, starts, interval_ns), edges)


def _uninterrupted_stats(
    values: Int64Array, grown: Int64Array, ticks: Int64Array, starts: Int64Array
) -> dict[Stat, Int64Array]:
    """The usual case: every row but the very first ends an increment over one interval. Changes ``grown``."""
    shape = (len(grown), len(starts))
    ends = np.append(starts[1:], len(ticks))
    count = np.broadcast_to(ends - starts, shape).copy()
    count[:, 0] -= 1
    total = np.diff(values[:, ends - 1], prepend=values[:, :1], axis=1)
    grown[:, 0] = -1  # Below any increment: never the largest but where there is no other.
    peak, place = _peaks(grown, starts, lowest=-1)
    reached = ticks[place]
    if not count[:, 0].all():
        peak[:, 0] = reached[:, 0] = ABSENT
    none = np.zeros(shape, np.int64)
    return {
        Stat.COUNT: count,
        Stat.SUM: total,
        Stat.MAX: peak,
        Stat.TMAX: reached,
        Stat.LEAP: none,
        Stat.LEAP_NS: none,
    }


def _counter_stats(
    grown: Int64Array, since: Int64Array, known: BoolArray, ticks: Int64Array, starts: Int64Array, interval_ns: int
) -> dict[Stat, Int64Array]:
    """``grown``: by how much, ``since``: in which time, of what is ``known``; int64[series, row] each."""
    whole = known & (since <= GAP_FACTOR * interval_ns)
    over = known & ~whole
    count = np.add.reduceat(whole.astype(np.int64), starts, axis=1)
    peak, place = _peaks(np.where(whole, grown, ABSENT), starts)
    empty = count == 0
    return {
        Stat.COUNT: count,
        Stat.SUM: np.add.reduceat(np.where(known, grown, 0), starts, axis=1),
        Stat.MAX: np.where(empty, ABSENT, peak),
        Stat.TMAX: np.where(empty, ABSENT, ticks[place]),
        Stat.LEAP: np.add.reduceat(np.where(over, grown, 0), starts, axis=1),
        Stat.LEAP_NS: np.add.reduceat(np.where(over, since, 0), starts, axis=1),
    }


def _increments_of_hollow(
    values: Int64Array, ticks: Int64Array, absent: BoolArray
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Increments since the last present value: amounts, lengths, and where there is one at all."""
    before = np.full(values.shape, -1, np.int64)
    before[:, 1:] = last_there(absent)[:, :-1]
    known = ~absent & (before >= 0)
    source = np.maximum(before, 0)
    previous = np.take_along_axis(values, source, axis=1)
    known &= values >= floor_of(previous)
    grown = np.where(known, values - np.where(known, previous, 0), 0)
    return grown, np.where(known, ticks - ticks[source], 0), known


def _edges(values: Int64Array, ticks: Int64Array, absent: BoolArray) -> Edges:
    first = np.argmin(absent, axis=1)
    last = values.shape[1] - 1 - np.argmin(absent[:, ::-1], axis=1)
    rows = np.arange(len(values))
    none = absent.all(axis=1)
    return Edges(
        values[rows, first],
        np.where(none, ABSENT, ticks[first]),
        values[rows, last],
        np.where(none, ABSENT, ticks[last]),
    )


def _peaks(values: Int64Array, starts: Int64Array, lowest: int | None = None) -> tuple[Int64Array, Int64Array]:
    """The largest value of each run and the index of its first occurrence; whatever of a run without any.

    ``lowest``: of all values, where it is known.
    """
    length = values.shape[1]
    runs = np.diff(np.append(starts, length))
    longest = int(runs.max(initial=1))
    lowest = int(values.min(initial=0)) if lowest is None else lowest
    if lowest == ABSENT:
        lowest = int(np.where(values == ABSENT, 0, values).min())
        if lowest > -_PACKABLE:
            values = np.maximum(values, -_PACKABLE)  # Below all that is there.
    if longest < _POSITIONS_MAX and lowest > -_PACKABLE and values.max(initial=0) < _PACKABLE:
        bits = (longest - 1).bit_length()
        behind = np.repeat(starts, runs) - np.arange(length) + ((1 << bits) - 1)
        packed = values << bits
        packed += behind
        packed = np.maximum.reduceat(packed, starts, axis=1)
        return packed >> bits, starts + ((1 << bits) - 1 - (packed & ((1 << bits) - 1)))
    peak = np.maximum.reduceat(values, starts, axis=1)
    reached = values == np.repeat(peak, runs, axis=1)
    place = np.minimum.reduceat(np.where(reached, np.arange(length), length), starts, axis=1)
    return peak, np.minimum(place, length - 1)


def coarsen(buckets: Buckets, starts: Int64Array) -> Buckets:
    """Join each run of neighbouring buckets that begins at one of ``starts``, int64[bucket], into one."""
    return Buckets(join_axis(buckets.axis, starts), _join_stats(buckets.stats, starts), buckets.edges)


def _join_stats(stats: dict[Stat, Int64Array], starts: Int64Array) -> dict[Stat, Int64Array]:
    joined: dict[Stat, Int64Array] = {
        stat: np.add.reduceat(stats[stat], starts, axis=1)
        for stat in (Stat.COUNT, Stat.SUM, Stat.LEAP, Stat.LEAP_NS)
        if stat in stats
    }
    hollow = (stats[Stat.COUNT] == 0).any()
    if Stat.MIN in stats:
        lowest = stats[Stat.MIN]
        if hollow:
            lowest = np.where(lowest == ABSENT, np.iinfo(np.int64).max, lowest)
        joined[Stat.MIN] = np.minimum.reduceat(lowest, starts, axis=1)
    if Stat.MAX in stats:
        joined[Stat.MAX], place = _peaks(stats[Stat.MAX], starts)
        joined[Stat.TMAX] = np.take_along_axis(stats[Stat.TMAX], place, axis=1)
    if Stat.LAST in stats:
        length = stats[Stat.LAST].shape[1]
        if hollow:
            index = np.where(stats[Stat.LAST] == ABSENT, -1, np.arange(length))
            at = np.maximum.reduceat(index, starts, axis=1)
            joined[Stat.LAST] = np.take_along_axis(stats[Stat.LAST], np.maximum(at, 0), axis=1)
        else:
            joined[Stat.LAST] = stats[Stat.LAST][:, np.append(starts[1:], length) - 1]
    if hollow and (empty := joined[Stat.COUNT] == 0).any():
        for stat in (Stat.MIN, Stat.MAX, Stat.TMAX, Stat.LAST):
            if stat in joined:
                joined[stat] = np.where(empty, ABSENT, joined[stat])
    return joined


def concatenate(before: Buckets, after: Buckets, interval_ns: int) -> Buckets:
    """Put neighbours of one strand end to end; what counters grew in between belongs to the later one.

    Buckets that the seam cut in two stay two: ``coarsen`` joins them.
    """
    axis = join_axes(before.axis, after.axis)
    seam = len(before.axis.first)
    stats = {stat: np.concatenate([before.stats[stat], after.stats[stat]], axis=1) for stat in before.stats}
    if before.edges is None or after.edges is None:
        return Buckets(axis, stats)
    _stitch(stats, axis, seam, before.edges, after.edges, interval_ns)
    gone = before.edges.last_tick == ABSENT
    new = after.edges.last_tick == ABSENT
    edges = Edges(
        np.where(before.edges.first_tick == ABSENT, after.edges.first_value, before.edges.first_value),
        np.where(before.edges.first_tick == ABSENT, after.edges.first_tick, before.edges.first_tick),
        np.where(new, before.edges.last_value, after.edges.last_value),
        np.where(new & ~gone, before.edges.last_tick, after.edges.last_tick),
    )
    return Buckets(axis, stats, edges)


def _stitch(
    stats: dict[Stat, Int64Array], axis: Axis, seam: int, before: Edges, after: Edges, interval_ns: int
) -> None:
    """Add the increment from the last value before the seam to the first one after it."""
    both = (before.last_tick != ABSENT) & (after.first_tick != ABSENT)
    rows = np.flatnonzero(both & (after.first_value >= floor_of(before.last_value)))
    if not len(rows):
        return
    grown = after.first_value[rows] - before.last_value[rows]
    lasted = after.first_tick[rows] - before.last_tick[rows]
    at = seam + np.searchsorted(axis.last[seam:], after.first_tick[rows])
    whole = lasted <= GAP_FACTOR * interval_ns
    stats[Stat.SUM][rows, at] += grown
    stats[Stat.LEAP][rows[~whole], at[~whole]] += grown[~whole]
    stats[Stat.LEAP_NS][rows[~whole], at[~whole]] += lasted[~whole]
    rows, at, grown = rows[whole], at[whole], grown[whole]
    stats[Stat.COUNT][rows, at] += 1
    if Stat.MAX not in stats:
        return
    # The increment ends at the first row: where it ties with a later one, it came first.
    higher = (stats[Stat.MAX][rows, at] == ABSENT) | (grown >= stats[Stat.MAX][rows, at])
    stats[Stat.MAX][rows[higher], at[higher]] = grown[higher]
    stats[Stat.TMAX][rows[higher], at[higher]] = after.first_tick[rows[higher]]


# A stored statistic is a difference from others of the same bucket: what it needs to be read.
_NEEDS_OF_GAUGE = {Stat.SUM: (Stat.LAST,), Stat.MIN: (Stat.LAST,), Stat.MAX: (Stat.LAST,)}
_NEEDS_OF_COUNTER = {Stat.MAX: (Stat.SUM,)}


def needed(stored: tuple[Stat, ...], wanted: Iterable[Stat]) -> tuple[Stat, ...]:
    """Which of the kept statistics must be read to know the wanted ones; COUNT always."""
    needs = _NEEDS_OF_COUNTER if Stat.LEAP in stored else _NEEDS_OF_GAUGE
    asked = set(wanted)
    required = {Stat.COUNT, *asked, *(other for stat in asked for other in needs.get(stat, ()))}
    return tuple(stat for stat in stored if stat in required)


def stored(buckets: Buckets, interval_ns: int) -> dict[Stat, Int64Array]:
    """The small numbers that a file keeps for statistics, int64[series, bucket]; ``natural`` is the way back.

    A constant costs nothing in a file, and neighbours that are alike cost little.
    """
    axis, stats = buckets.axis, buckets.stats
    count = stats[Stat.COUNT]
    small = {Stat.COUNT: axis.rows - count}
    differences: dict[Stat, Int64Array] = {}
    if Stat.LEAP in stats:
        small |= {stat: stats[stat] for stat in (Stat.SUM, Stat.LEAP, Stat.LEAP_NS)}
        differences[Stat.MAX] = stats[Stat.MAX] - stats[Stat.SUM] // np.maximum(count, 1)
    else:
        last = small[Stat.LAST] = stats[Stat.LAST]
        if Stat.SUM in stats:
            differences[Stat.SUM] = stats[Stat.SUM] - count * last
            differences[Stat.MIN] = last - stats[Stat.MIN]
            differences[Stat.MAX] = stats[Stat.MAX] - last
    if Stat.TMAX in stats:
        differences[Stat.TMAX] = (stats[Stat.TMAX] - axis.first) // interval_ns
    if (empty := count == 0).any():
        differences = {stat: np.where(empty, ABSENT, values) for stat, values in differences.items()}
    return small | differences


def natural(
    axis: Axis, small: dict[Stat, Int64Array], interval_ns: int, *, counter: bool, edges: Edges | None = None
) -> Buckets:
    """The statistics of which a file keeps ``small``, int64[series, bucket].

    Any that are there with those that they need.
    """
    count = axis.rows - small[Stat.COUNT]
    empty = count == 0
    stats = {Stat.COUNT: count}
    for stat in (Stat.LAST, Stat.LEAP, Stat.LEAP_NS):
        if stat in small:
            stats[stat] = small[stat]
    if counter:
        if Stat.SUM in small:
            stats[Stat.SUM] = small[Stat.SUM]
        if Stat.MAX in small:
            stats[Stat.MAX] = np.where(empty, ABSENT, small[Stat.MAX] + small[Stat.SUM] // np.maximum(count, 1))
    else:
        if Stat.SUM in small:
            stats[Stat.SUM] = np.where(empty, 0, small[Stat.SUM] + count * small[Stat.LAST])
        if Stat.MIN in small:
            stats[Stat.MIN] = np.where(empty, ABSENT, small[Stat.LAST] - small[Stat.MIN])
        if Stat.MAX in small:
            stats[Stat.MAX] = np.where(empty, ABSENT, small[Stat.LAST] + small[Stat.MAX])
    if Stat.TMAX in small:
        stats[Stat.TMAX] = np.where(empty, ABSENT, axis.first + small[Stat.TMAX] * interval_ns)
    return Buckets(axis, stats, edges)
