# SPDX-License-Identifier: Apache-2.0
"""Statistics over buckets of time: of gauges as they are, of counters by their increments.

Pure: arrays in, arrays out. All are made from ``rollup.Buckets``, so that rows and tiers answer alike:

- Where a counter began anew (``base.counters`` has the rule), the interval is unknown. A correction of the kernel's
  counts as it is; a rate is never below zero for it.
- An interval longer than the table's own (a gap) counts in sums; in means only where the gaps of a bucket
  fit into it; never in a maximum, minimum, first or last, which are of rates over single intervals.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from math import ceil, log10
from typing import Any, NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.counters import floor_of
from sysmond.base.model import ABSENT, Metric, Semantics, rate_unit
from sysmond.base.result import TIME_SCALE, TIME_UNIT, BoolArray, Float64Array, Int64Array, NDArray
from sysmond.base.statistic import percent_of
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Buckets, Stat

PERCENT_MAX = 100.0

# Float64 holds no more.
DECIMALS_MAX = 15
# Sums below it are exact in 64 bits; larger ones are made of two halves of the numbers.
SUM_MAX = 2**63
HALF_BITS = 32

# The number of no bucket.
OUTSIDE = -(2**63)
# Statistics that a state has none of.
_ADDING = frozenset(("mean", "sum"))
_NEVER = np.iinfo(np.int64).max


class RowStat(Enum):
    """What only rows tell: of a gauge its first value, of a counter its increments over one interval."""

    FIRST = "first"
    LAST = "last"
    MIN = "min"


BucketStats = dict[Stat | RowStat, NDArray[Any]]


class LineagePart(NamedTuple):
    """What one series has in one lineage: its buckets' places on the axis (increasing), and their statistics.

    ``stats``: as in ``store.coding.statistics.Buckets``, but TMAX is UTC. ``interval_ns``: of the lineage.
    """

    place: Int64Array
    stats: BucketStats
    interval_ns: int


class Statistic(NamedTuple):
    """A column: integers of a scale, or floats, which are shown with so many decimals and not rounded yet."""

    unit: str
    integers: Int64Array | None
    scale: int
    floats: Float64Array | None
    decimals: int


def needs_rows(metric: Metric, stat: str) -> bool:
    """Whether no bucket keeps a statistic, so that only rows have it."""
    if percent_of(stat) is not None:
        return metric.semantics is not Semantics.STATE
    if metric.semantics is Semantics.COUNTER:
        return stat in {"min", "first", "last"}
    return stat == "first"


def formula(metric: Metric, stat: str) -> str:
    """Say how a statistic is made of what the kernel told; ``raw`` is what it told."""
    if stat == "raw":
        return "as stored"
    if (percent := percent_of(stat)) is not None and metric.semantics is not Semantics.STATE:
        of = "increases from row to row ÷ interval" if metric.semantics is Semantics.COUNTER else "values"
        return f"{percent:g} % of {of} are at most this" + " × 100" * (
            metric.semantics is Semantics.COUNTER and metric.unit == "s"
        )
    if stat == "count":
        return "number of increases" if metric.semantics is Semantics.COUNTER else "number of values"
    if metric.semantics is Semantics.COUNTER:
        factor = " × 100" if metric.unit == "s" and stat not in {"sum", "tmax"} else ""
        return f"{_FORMULAS_OF_COUNTER[stat]}{factor}"
    if metric.is_text or (metric.semantics is Semantics.STATE and stat not in _FORMULAS_OF_STATE):
        return "first value" if stat == "first" else "nothing" if stat == "tmax" else "last value"
    return _FORMULAS_OF_GAUGE[stat]


_FORMULAS_OF_COUNTER = {
    "mean": "increase ÷ time it took",
    "sum": "increase",
    "tmax": "time of the first largest increase from row to row",
    **{
        stat: f"{which} increase from row to row ÷ interval"
        for stat, which in {"min": "smallest", "max": "largest", "first": "first", "last": "last"}.items()
    },
}
_FORMULAS_OF_GAUGE = {
    "mean": "sum of values ÷ their number",
    "sum": "sum of values",
    "min": "smallest value",
    "max": "largest value",
    "tmax": "time of the first largest value",
    "first": "first value",
    "last": "last value",
}


_FORMULAS_OF_STATE = frozenset(_FORMULAS_OF_GAUGE) - _ADDING


def parts_needed(metric: Metric, stat: str) -> tuple[Stat, ...]:
    """Which statistics of buckets are needed to know one of a column."""
    if metric.is_text:
        return (Stat.COUNT, Stat.LAST)
    if metric.semantics is Semantics.STATE and (stat in _ADDING or percent_of(stat) is not None):
        return (Stat.COUNT, Stat.LAST)
    if metric.semantics is Semantics.COUNTER:
        return _OF_COUNTER.get(stat, (Stat.COUNT,))
    return _OF_GAUGE.get(stat, (Stat.COUNT,))


_OF_COUNTER = {
    "mean": (Stat.COUNT, Stat.SUM, Stat.LEAP, Stat.LEAP_NS),
    "sum": (Stat.COUNT, Stat.SUM, Stat.LEAP_NS),
    "max": (Stat.COUNT, Stat.MAX, Stat.TMAX),  # They are joined together.
    "tmax": (Stat.COUNT, Stat.MAX, Stat.TMAX),
}
_OF_GAUGE = {
    "mean": (Stat.COUNT, Stat.SUM),
    "sum": (Stat.COUNT, Stat.SUM),
    "min": (Stat.COUNT, Stat.MIN),
    "max": (Stat.COUNT, Stat.MAX, Stat.TMAX),  # They are joined together.
    "tmax": (Stat.COUNT, Stat.MAX, Stat.TMAX),
    "last": (Stat.COUNT, Stat.LAST),
}


def of_rows(
    kind: tuple[Stat, ...],
    values: Int64Array,
    ticks: Int64Array,
    starts: Int64Array,
    interval_ns: int,
    *,
    in_full: bool,
) -> tuple[Buckets, BucketStats]:
    """Roll up rows, int64[series, tick], of one kind; ``in_full``: and what only rows tell."""
    made = statistics.of_rows(kind, values, ticks, starts, interval_ns)
    more: BucketStats = {}
    if Stat.SUM in kind and Stat.LEAP not in kind and not _fits(values):
        more[Stat.SUM] = _large_sums(values, starts)
    if in_full and Stat.LEAP in kind:
        every = statistics.of_rows(kind, values, ticks, np.arange(len(ticks)), interval_ns).stats[Stat.MAX]
        more[RowStat.FIRST] = _first(every, starts)
        more[RowStat.LAST] = _last(every, starts)
        more[RowStat.MIN] = _lowest(every, starts)
    elif in_full:
        more[RowStat.FIRST] = _first(values, starts)
    return made, more


def samples(kind: tuple[Stat, ...], values: Int64Array, ticks: Int64Array, interval_ns: int) -> Int64Array:
    """What percentiles are of, int64[series, tick]: values of gauges, of counters increases over one interval."""
    if Stat.LEAP not in kind:
        return values
    return statistics.of_rows(kind, values, ticks, np.arange(len(ticks)), interval_ns).stats[Stat.MAX]


class Samples(NamedTuple):
    """What one series has in one lineage: the places of its buckets on the axis, and ``samples``: [tick] both."""

    place: Int64Array
    values: Int64Array | Float64Array
    interval_ns: int


def of_samples(parts: Sequence[Samples], metric: Metric, percent: float, buckets: int) -> Statistic:
    """A percentile of each bucket, between two values in proportion; of a counter that of its rates."""
    is_rate = metric.semantics is Semantics.COUNTER
    shift = 2 if is_rate and metric.unit == "s" else 0
    factor = 10.0 ** (shift - metric.scale)
    places = np.concatenate([np.zeros(0, np.int64), *(part.place for part in parts)])
    values = np.concatenate(
        [np.zeros(0), *(part.values * factor * (SECOND_NS / part.interval_ns if is_rate else 1.0) for part in parts)]
    )
    order = np.lexsort((values, places))
    values = np.maximum(values[order], 0.0) if is_rate else values[order]
    number = np.bincount(places, minlength=buckets)
    begins = np.cumsum(number) - number
    there = number > 0
    at = begins[there] + (number[there] - 1) * (percent / PERCENT_MAX)
    low = np.floor(at).astype(np.int64)
    high = np.ceil(at).astype(np.int64)
    of_bucket = np.full(buckets, np.nan)
    of_bucket[there] = values[low] + (values[high] - values[low]) * (at - low)
    longest_s = max((part.interval_ns for part in parts), default=SECOND_NS) / SECOND_NS if is_rate else 1.0
    decimals = min(DECIMALS_MAX, decimals_of(metric.scale - shift, longest_s) + 3)
    return Statistic(rate_unit(metric.unit) if is_rate else metric.unit, None, 0, of_bucket, decimals)


def statistics_of(buckets: Buckets) -> BucketStats:
    """The statistics of buckets."""
    stats: BucketStats = {}
    stats.update(buckets.stats.items())
    return stats


def once(number: Int64Array, stats: BucketStats) -> tuple[Int64Array, BucketStats]:
    """Give each bucket once, int64[bucket], in order, without ``OUTSIDE``.

    Where the wall clock was set back, one comes twice.
    """
    inside = number != OUTSIDE
    if not inside.all():
        number, stats = number[inside], {stat: values[:, inside] for stat, values in stats.items()}
    if (number[1:] <= number[:-1]).any():
        order = np.argsort(number, kind="stable")
        number = number[order]
        starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        stats = _joined({stat: values[:, order] for stat, values in stats.items()}, starts)
        number = number[starts]
    return number, stats


def _joined(stats: BucketStats, starts: Int64Array) -> BucketStats:
    """Join each run of neighbouring buckets that begins at one of ``starts`` into one."""
    buckets = {stat: values for stat, values in stats.items() if isinstance(stat, Stat)}
    axis = statistics.axis_of_rows(np.arange(len(stats[Stat.COUNT][0])))
    joined = statistics_of(statistics.coarsen(Buckets(axis, buckets), starts))
    for row, values in stats.items():
        if row is RowStat.FIRST:
            joined[row] = _first(values, starts)
        elif row is RowStat.LAST:
            joined[row] = _last(values, starts)
        elif row is RowStat.MIN:
            joined[row] = _lowest(values, starts)
    return joined


def _lowest(values: Int64Array, starts: Int64Array) -> Int64Array:
    lowest = np.minimum.reduceat(np.where(values == ABSENT, _NEVER, values), starts, axis=1)
    return np.where(lowest == _NEVER, ABSENT, lowest)


def _ends(starts: Int64Array, length: int) -> Int64Array:
    return np.append(starts[1:], length) - 1


def _first(values: Int64Array, starts: Int64Array) -> Int64Array:
    """The first value of each run that is there."""
    length = values.shape[1]
    at = np.minimum.reduceat(np.where(values == ABSENT, length, np.arange(length)), starts, axis=1)
    first = np.take_along_axis(values, np.minimum(at, length - 1), axis=1)
    return np.where(at > _ends(starts, length), ABSENT, first)


def _last(values: Int64Array, starts: Int64Array) -> Int64Array:
    """The last value of each run that is there."""
    at = np.maximum.reduceat(np.where(values == ABSENT, -1, np.arange(values.shape[1])), starts, axis=1)
    return np.where(at < starts, ABSENT, np.take_along_axis(values, np.maximum(at, 0), axis=1))


def _fits(values: Int64Array) -> bool:
    """Whether the sum of all values of a series is sure to fit into 64 bits."""
    if not values.size:
        return True
    lowest = int(values.min())
    if lowest == ABSENT:
        lowest = int(values.min(where=values != ABSENT, initial=0))
    return max(int(values.max()), -lowest) * int(values.shape[-1]) < SUM_MAX


def _large_sums(values: Int64Array, starts: Int64Array) -> Float64Array:
    """Sums as float64: exact until the one rounding at the end."""
    there = np.where(values == ABSENT, 0, values)
    high, low = (np.add.reduceat(part, starts, axis=1) for part in (there >> HALF_BITS, there & (1 << HALF_BITS) - 1))
    return high.astype(np.float64) * (1 << HALF_BITS) + low


def resets(values: Int64Array) -> Int64Array:
    """Where a counter, int64[tick], began anew: pairs of indexes, the last row before and the first after."""
    there = np.flatnonzero(values != ABSENT)
    there_only = values[there]
    at = np.flatnonzero(there_only[1:] < floor_of(there_only[:-1]))
    return np.stack([there[at], there[at + 1]], axis=1)


def decimals_of(quantum_scale: int, divisor: float) -> int:
    """How many decimal places a number carries that is a multiple of 10**-scale divided by ``divisor``."""
    return min(DECIMALS_MAX, max(0, quantum_scale + ceil(log10(max(1.0, divisor)) - 1e-9)))


def of_counter(parts: Sequence[LineagePart], metric: Metric, stat: str, step_ns: int, buckets: int) -> Statistic:
    """One statistic of a counter: of its rate, except ``sum`` (of its increments), ``count`` and ``tmax``.

    A mean is the sum divided by the time it took: where a bucket's gaps fit into it, what was counted across
    them is part of the mean, and the mean may then exceed the maximum.
    """
    # Seconds per second are told in percent.
    percent = 2 if metric.unit == "s" else 0
    factor = 10.0 ** (percent - metric.scale) * SECOND_NS
    if stat == "count":
        return _count(parts, buckets)
    if stat == "sum":
        known = [_where(part, (part.stats[Stat.COUNT] > 0) | (part.stats[Stat.LEAP_NS] > 0)) for part in parts]
        return _summed(known, metric, buckets)
    if stat == "tmax":
        return _time_of_maximum(parts, buckets, lambda part: part.stats[Stat.MAX] / part.interval_ns)
    if stat == "mean":
        grown, lasted = (np.zeros(buckets) for _ in range(2))
        for part in parts:
            stats = part.stats
            fits = stats[Stat.LEAP_NS] <= step_ns
            grown[part.place] += stats[Stat.SUM] - np.where(fits, 0, stats[Stat.LEAP])
            lasted[part.place] += stats[Stat.COUNT] * part.interval_ns + np.where(fits, stats[Stat.LEAP_NS], 0)
        rate = np.full(buckets, np.nan)
        np.divide(grown * factor, lasted, out=rate, where=lasted > 0)
        longest_s = float(lasted.max(initial=SECOND_NS)) / SECOND_NS
    else:
        rate = np.full(buckets, np.nan)
        for part in parts:
            amount = part.stats.get(_PER_INTERVAL[stat])
            if amount is None:
                continue
            own = np.where(amount == ABSENT, np.nan, amount * factor / part.interval_ns)
            rate[part.place] = _CHOICES[stat](rate[part.place], own)
        longest_s = max((part.interval_ns for part in parts), default=SECOND_NS) / SECOND_NS
    decimals = decimals_of(metric.scale - percent, longest_s)
    return Statistic(rate_unit(metric.unit), None, 0, np.maximum(rate, 0.0), decimals)


_PER_INTERVAL: dict[str, Stat | RowStat] = {
    "max": Stat.MAX,
    "min": RowStat.MIN,
    "first": RowStat.FIRST,
    "last": RowStat.LAST,
}


def _earlier(known: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isnan(known), own, known)


def _later(known: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isnan(own), known, own)


_CHOICES: dict[str, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]] = {
    "max": np.fmax,
    "min": np.fmin,
    "first": _earlier,
    "last": _later,
}


_OF_VALUES: dict[str, Stat | RowStat] = {"min": Stat.MIN, "max": Stat.MAX, "first": RowStat.FIRST, "last": Stat.LAST}


def of_gauge(parts: Sequence[LineagePart], metric: Metric, stat: str, buckets: int) -> Statistic:
    """One statistic of a gauge or state; a state has no mean or sum, its last value stands for them.

    A text has no order either.
    """
    if metric.is_text and stat == "tmax":
        return Statistic(TIME_UNIT, np.full(buckets, ABSENT, np.int64), TIME_SCALE, None, 0)
    if metric.semantics is Semantics.STATE and (
        stat in ({"mean", "sum", "min", "max"} if metric.is_text else _ADDING) or percent_of(stat) is not None
    ):
        stat = "last"
    if stat == "count":
        return _count(parts, buckets)
    known = [_where(part, part.stats[Stat.COUNT] > 0) for part in parts]
    if stat == "tmax":
        return _time_of_maximum(known, buckets, lambda part: part.stats[Stat.MAX])
    if stat == "sum":
        return _summed(known, metric, buckets)
    if stat == "mean":
        return _mean(known, metric, buckets)
    out = np.full(buckets, ABSENT, np.int64)
    for part in known:
        own = part.stats.get(_OF_VALUES[stat])
        if own is not None:
            before = out[part.place]
            is_new = (before == ABSENT) | {
                "min": own < before, "max": own > before, "first": before == ABSENT, "last": own != ABSENT
            }[stat]  # fmt: skip
            out[part.place] = np.where(is_new & (own != ABSENT), own, before)
    return Statistic(metric.unit, out, metric.scale, None, 0)


def _where(part: LineagePart, chosen: BoolArray) -> LineagePart:
    if chosen.all():
        return part
    return part._replace(place=part.place[chosen], stats={stat: own[chosen] for stat, own in part.stats.items()})


def _count(parts: Iterable[LineagePart], buckets: int) -> Statistic:
    counts = np.zeros(buckets, np.int64)
    for part in parts:
        counts[part.place] += part.stats[Stat.COUNT]
    return Statistic("1", counts, 0, None, 0)


def _totals(parts: Sequence[LineagePart], buckets: int) -> tuple[NDArray[Any], BoolArray]:
    """Sums a bucket, and where there are any; as integers where they are sure to fit, else rounded once."""
    sums = [part.stats[Stat.SUM] for part in parts]
    large = any(own.dtype != np.int64 or not _fits(np.append(own, own.size and len(parts))) for own in sums)
    total = np.zeros(buckets, np.float64 if large else np.int64)
    there = np.zeros(buckets, bool)
    for part, own in zip(parts, sums, strict=True):
        total[part.place] += own
        there[part.place] = True
    return total, there


def _summed(parts: Sequence[LineagePart], metric: Metric, buckets: int) -> Statistic:
    """Exact sums, as integers where they fit; a week of large gauges does not."""
    total, there = _totals(parts, buckets)
    if total.dtype == np.int64:
        return Statistic(metric.unit, np.where(there, total, ABSENT), metric.scale, None, 0)
    floats: Float64Array = np.where(there, total / 10.0**metric.scale, np.nan)
    return Statistic(metric.unit, None, 0, floats, metric.scale)


def _mean(parts: Sequence[LineagePart], metric: Metric, buckets: int) -> Statistic:
    total, there = _totals(parts, buckets)
    counts = np.zeros(buckets, np.int64)
    for part in parts:
        counts[part.place] += part.stats[Stat.COUNT]
    most = int(counts.max(initial=1))
    if most == 1 and total.dtype == np.int64:  # Each its own mean, to the last digit.
        return Statistic(metric.unit, np.where(there, total, ABSENT), metric.scale, None, 0)
    mean: Float64Array = np.where(there, total / np.maximum(counts, 1) / 10.0**metric.scale, np.nan)
    decimals = decimals_of(metric.scale, float(most))
    return Statistic(metric.unit, None, 0, mean, decimals)


def _time_of_maximum(
    parts: Sequence[LineagePart], buckets: int, height: Callable[[LineagePart], NDArray[Any]]
) -> Statistic:
    """When the (first) maximum was, as UTC."""
    highest = np.full(buckets, -np.inf)
    times = np.full(buckets, ABSENT, np.int64)
    for part in parts:
        own = np.where(part.stats[Stat.COUNT] > 0, height(part), -np.inf)
        is_higher = own > highest[part.place]
        highest[part.place[is_higher]] = own[is_higher]
        times[part.place[is_higher]] = part.stats[Stat.TMAX][is_higher]
    return Statistic(TIME_UNIT, times, TIME_SCALE, None, 0)
