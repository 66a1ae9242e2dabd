# SPDX-License-Identifier: Apache-2.0
"""Statistics over buckets of time: of gauges as they are, of counters by their increments.

Pure: arrays in, arrays out. A counter's increment belongs to the row that ends it. Rules:

- A counter that falls by less than half was corrected by the kernel: it counts on from its highest value.
  One that falls by more was reset: that interval is unknown, and is reported.
- An interval longer than the table's own (a gap) counts in sums; in means only where it fits into a
  bucket; never in a maximum, minimum, first or last.
"""

from collections.abc import Callable
from itertools import pairwise
from math import ceil, log10
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sysmond.clock import SECOND_NS
from sysmond.model import ABSENT, Metric, Semantics, rate_unit
from sysmond.result import Float64Array, Int64Array

STATISTICS = ("mean", "min", "max", "first", "last", "sum", "count")

# An interval that is longer than the table's by this factor had a gap in it.
GAP_FACTOR = 1.5
# Float64 holds no more.
DECIMALS_MAX = 15

BoolArray = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """One series in one boot: ticks and values where it is present, and the bucket of each row.

    ``bucket``: int64[row], not decreasing except where the wall clock stepped back; -1 for a row
    that lies outside the range asked for but tells where a counter stood before.
    """

    ticks: Int64Array
    values: Int64Array
    bucket: Int64Array


class Increments(NamedTuple):
    """A counter's growth: by how much, within how long, in which bucket; ``resets``: rows that began anew."""

    amount: Int64Array
    length_ns: Int64Array
    bucket: Int64Array
    resets: Int64Array


class Statistic(NamedTuple):
    """A column: integers of a scale, or floats of so many decimals."""

    unit: str
    integers: Int64Array | None
    scale: int
    floats: Float64Array | None
    decimals: int


def increments(rows: Rows) -> Increments:
    """Turn a counter's values into increments; the first row has none."""
    if len(rows.values) <= 1:
        empty = np.zeros(0, np.int64)
        return Increments(empty, empty, empty, empty)
    before, after = rows.values[:-1], rows.values[1:]
    reset = after < before // 2
    held = rows.values
    if (after < before).any():
        held = held.copy()
        starts = np.concatenate([[0], np.flatnonzero(reset) + 1, [len(held)]])
        for start, stop in pairwise(starts.tolist()):
            np.maximum.accumulate(held[start:stop], out=held[start:stop])
    known = ~reset & (rows.bucket[1:] >= 0)
    return Increments(
        np.diff(held)[known],
        np.diff(rows.ticks)[known],
        rows.bucket[1:][known],
        np.flatnonzero(reset) + 1,
    )


def decimals_of(quantum_scale: int, divisor: float) -> int:
    """How many decimal places a number carries that is a multiple of 10**-scale divided by ``divisor``."""
    return min(DECIMALS_MAX, max(0, quantum_scale + ceil(log10(max(1.0, divisor)) - 1e-9)))


def of_counter(
    growth: list[Increments], metric: Metric, stat: str, interval_ns: int, step_ns: int, buckets: int
) -> Statistic:
    """One statistic of a counter: of its rate, except ``sum`` (of its increments) and ``count``."""
    amount, length_ns, bucket = (
        np.concatenate([getattr(each, field) for each in growth]) for field in ("amount", "length_ns", "bucket")
    )
    if stat == "sum":
        return Statistic(metric.unit, _sums(amount, bucket, buckets), metric.scale, None, 0)
    gap_ns = GAP_FACTOR * interval_ns
    whole = length_ns <= (max(gap_ns, step_ns) if stat in {"mean", "count"} else gap_ns)
    amount, length_ns, bucket = amount[whole], length_ns[whole], bucket[whole]
    if stat == "count":
        return _count(bucket, buckets)
    # Seconds per second are told in percent.
    percent = 2 if metric.unit == "s" else 0
    factor = 10.0 ** (percent - metric.scale) * SECOND_NS
    if stat == "mean":
        grown, lasted = _sums(amount, bucket, buckets), _sums(length_ns, bucket, buckets)
        rate = np.full(buckets, np.nan)
        there = (grown != ABSENT) & (lasted > 0)
        rate[there] = grown[there] * factor / lasted[there]
        longest_s = float(lasted[there].max()) / SECOND_NS if there.any() else 1.0
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = _reduce(amount * factor / length_ns, bucket, buckets, stat, np.nan)
        longest_s = interval_ns / SECOND_NS
    decimals = decimals_of(metric.scale - percent, longest_s)
    return Statistic(rate_unit(metric.unit), None, 0, np.round(rate, decimals), decimals)


def of_gauge(rows: list[Rows], metric: Metric, stat: str, buckets: int) -> Statistic:
    """One statistic of a gauge or state; a state has no mean or sum, its last value stands for them."""
    if metric.semantics is Semantics.STATE and stat in {"mean", "sum"}:
        stat = "last"
    values = np.concatenate([each.values for each in rows])
    bucket = np.concatenate([each.bucket for each in rows])
    inside = bucket >= 0
    values, bucket = values[inside], bucket[inside]
    if stat == "count":
        return _count(bucket, buckets)
    if stat in {"mean", "sum"}:
        sums = _sums(values, bucket, buckets)
        if stat == "sum":
            return Statistic(metric.unit, sums, metric.scale, None, 0)
        counts = np.bincount(bucket, minlength=buckets)
        if len(values) and counts.max() == 1:
            return Statistic(metric.unit, sums, metric.scale, None, 0)  # Each its own mean, to the last digit.
        mean = np.full(buckets, np.nan)
        there = counts > 0
        mean[there] = sums[there] / counts[there] / 10.0**metric.scale
        decimals = decimals_of(metric.scale, float(counts.max(initial=1)))
        return Statistic(metric.unit, None, 0, np.round(mean, decimals), decimals)
    return Statistic(metric.unit, _reduce(values, bucket, buckets, stat, ABSENT), metric.scale, None, 0)


def _count(bucket: Int64Array, buckets: int) -> Statistic:
    return Statistic("1", np.bincount(bucket, minlength=buckets).astype(np.int64), 0, None, 0)


def _sums(values: Int64Array, bucket: Int64Array, buckets: int) -> Int64Array:
    """Exact sums a bucket, ABSENT where it has none."""
    return _apply(np.add.reduceat, values, bucket, buckets, ABSENT)


def _reduce(values: npt.NDArray[np.generic], bucket: Int64Array, buckets: int, stat: str, absent: float) -> Int64Array:
    choose: dict[str, Callable[..., npt.NDArray[np.generic]]] = {
        "min": np.minimum.reduceat,
        "max": np.maximum.reduceat,
        "first": lambda ordered, starts: ordered[starts],
        "last": lambda ordered, starts: ordered[np.append(starts[1:], len(ordered)) - 1],
    }
    return _apply(choose[stat], values, bucket, buckets, absent)


def _apply(
    reduction: Callable[..., npt.NDArray[np.generic]],
    values: npt.NDArray[np.generic],
    bucket: Int64Array,
    buckets: int,
    absent: float,
) -> Int64Array:
    out = np.full(buckets, absent, values.dtype)
    if len(values):
        if (np.diff(bucket) < 0).any():  # The wall clock stepped back; rows stay in the order of boot time.
            order = np.argsort(bucket, kind="stable")
            values, bucket = values[order], bucket[order]
        starts = np.flatnonzero(np.diff(bucket, prepend=bucket[0] - 1))
        out[bucket[starts]] = reduction(values, starts)
    return out
