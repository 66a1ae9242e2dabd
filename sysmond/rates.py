# SPDX-License-Identifier: Apache-2.0
"""Statistics over buckets of time: of gauges as they are, of counters by their increments.

Pure: arrays in, arrays out. A counter's increment belongs to the row that ends it. Rules:

- A counter that falls by less than half was corrected by the kernel: it counts on from its highest value.
  One that falls by more was reset: that interval is unknown, and is reported.
- An interval longer than the table's own (a gap) counts in sums; in means only where it fits into a
  bucket; never in a maximum, minimum, first or last, which are of rates over single intervals.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, log10
from typing import Any, NamedTuple

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
# Sums below it are exact in 64 bits; larger ones are made of two halves of the numbers.
SUM_MAX = 2**63
HALF_BITS = 32

BoolArray = npt.NDArray[np.bool_]

_PER_INCREMENT = ("amount", "length_ns", "bucket", "is_gap")
# Statistics that a state has none of.
_ADDING = frozenset(("mean", "sum"))


class Rows(NamedTuple):
    """One series in one boot: ticks and values where it is present, and the bucket of each row.

    ``bucket``: int64[row], not decreasing except where the wall clock stepped back; -1 for a row
    that lies outside the range asked for but tells where a counter stood before.
    ``interval_ns``: at what distance rows were due, of all or of each (int64[row]).
    """

    ticks: Int64Array
    values: Int64Array
    bucket: Int64Array
    interval_ns: int | Int64Array


class Increments(NamedTuple):
    """A counter's growth: by how much, within how long, in which bucket, and whether over a gap.

    ``resets``: indexes of the rows that began anew.
    """

    amount: Int64Array
    length_ns: Int64Array
    bucket: Int64Array
    is_gap: BoolArray
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
        return Increments(empty, empty, empty, np.zeros(0, bool), empty)
    before, after = rows.values[:-1], rows.values[1:]
    held = rows.values
    reset = np.zeros(len(after), bool)
    if (after < before).any():
        reset = after < before // 2
        held = held.copy()
        starts = np.concatenate([[0], np.flatnonzero(reset) + 1, [len(held)]])
        for start, stop in pairwise(starts.tolist()):
            np.maximum.accumulate(held[start:stop], out=held[start:stop])
    length_ns = np.diff(rows.ticks)
    interval_ns = rows.interval_ns if isinstance(rows.interval_ns, int) else rows.interval_ns[1:]
    made = Increments(
        np.diff(held), length_ns, rows.bucket[1:], length_ns > GAP_FACTOR * interval_ns, np.flatnonzero(reset) + 1
    )
    known = ~reset & (made.bucket >= 0)
    return made if known.all() else made._replace(**{name: getattr(made, name)[known] for name in _PER_INCREMENT})


def decimals_of(quantum_scale: int, divisor: float) -> int:
    """How many decimal places a number carries that is a multiple of 10**-scale divided by ``divisor``."""
    return min(DECIMALS_MAX, max(0, quantum_scale + ceil(log10(max(1.0, divisor)) - 1e-9)))


def of_counter(growth: Sequence[Increments], metric: Metric, stat: str, step_ns: int, buckets: int) -> Statistic:
    """One statistic of a counter: of its rate, except ``sum`` (of its increments) and ``count``.

    A mean is the sum divided by the time it took: where a gap fits into a bucket, what was counted across it
    is part of the mean, and the mean may then exceed the maximum.
    """
    amount, length_ns, bucket, is_gap = (_joined([getattr(each, name) for each in growth]) for name in _PER_INCREMENT)
    if stat == "sum":
        return _summed(metric.unit, amount, bucket, buckets, metric.scale)
    whole = ~is_gap
    if stat in {"mean", "count"}:
        whole |= length_ns <= step_ns
    if not whole.all():
        amount, length_ns, bucket = amount[whole], length_ns[whole], bucket[whole]
    if stat == "count":
        return _count(bucket, buckets)
    # Seconds per second are told in percent.
    percent = 2 if metric.unit == "s" else 0
    factor = 10.0 ** (percent - metric.scale) * SECOND_NS
    if stat == "mean":
        grown, lasted = _totals(amount, bucket, buckets), _totals(length_ns, bucket, buckets)
        with np.errstate(invalid="ignore"):
            rate = grown * factor / lasted
        longest_s = float(np.nanmax(lasted, initial=SECOND_NS)) / SECOND_NS
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = _reduce(amount * factor / length_ns, bucket, buckets, stat, np.nan).astype(np.float64)
        longest_s = float(length_ns.max(initial=SECOND_NS)) / SECOND_NS
    decimals = decimals_of(metric.scale - percent, longest_s)
    return Statistic(rate_unit(metric.unit), None, 0, np.round(rate, decimals), decimals)


def of_gauge(rows: Sequence[Rows], metric: Metric, stat: str, buckets: int) -> Statistic:
    """One statistic of a gauge or state; a state has no mean or sum, its last value stands for them.

    A text has no order either.
    """
    if metric.semantics is Semantics.STATE and stat in ({"mean", "sum", "min", "max"} if metric.is_text else _ADDING):
        stat = "last"
    values, bucket = _joined([each.values for each in rows]), _joined([each.bucket for each in rows])
    inside = bucket >= 0
    if not inside.all():
        values, bucket = values[inside], bucket[inside]
    if stat == "count":
        return _count(bucket, buckets)
    if stat == "sum":
        return _summed(metric.unit, values, bucket, buckets, metric.scale)
    if stat == "mean":
        counts = np.bincount(bucket, minlength=buckets)
        if not len(values) or counts.max() == 1:  # Each its own mean, to the last digit.
            return Statistic(metric.unit, _sums(values, bucket, buckets), metric.scale, None, 0)
        with np.errstate(invalid="ignore"):
            mean = _totals(values, bucket, buckets) / counts / 10.0**metric.scale
        decimals = decimals_of(metric.scale, float(counts.max()))
        return Statistic(metric.unit, None, 0, np.round(mean, decimals), decimals)
    return Statistic(metric.unit, _reduce(values, bucket, buckets, stat, ABSENT), metric.scale, None, 0)


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _count(bucket: Int64Array, buckets: int) -> Statistic:
    return Statistic("1", np.bincount(bucket, minlength=buckets).astype(np.int64), 0, None, 0)


def _summed(unit: str, values: Int64Array, bucket: Int64Array, buckets: int, scale: int) -> Statistic:
    """Exact sums, as integers where they fit; a week of large gauges does not."""
    if _fits(values):
        return Statistic(unit, _sums(values, bucket, buckets), scale, None, 0)
    return Statistic(unit, None, 0, np.round(_totals(values, bucket, buckets) / 10.0**scale, scale), scale)


def _fits(values: Int64Array) -> bool:
    """Whether the sum of all values is sure to fit into 64 bits."""
    return len(values) == 0 or max(int(values.max()), -int(values.min())) * len(values) < SUM_MAX


def _sums(values: Int64Array, bucket: Int64Array, buckets: int) -> Int64Array:
    """Exact sums a bucket, ABSENT where it has none."""
    return _apply(np.add.reduceat, values, bucket, buckets, ABSENT)


def _totals(values: Int64Array, bucket: Int64Array, buckets: int) -> Float64Array:
    """Sums a bucket as float64, NaN where it has none: exact until the one rounding at the end."""
    if _fits(values):
        sums = _sums(values, bucket, buckets)
        totals = sums.astype(np.float64)
        totals[sums == ABSENT] = np.nan
        return totals
    high, low = (_sums(part, bucket, buckets) for part in (values >> HALF_BITS, values & (1 << HALF_BITS) - 1))
    totals = high.astype(np.float64) * (1 << HALF_BITS) + low
    totals[high == ABSENT] = np.nan
    return totals


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
