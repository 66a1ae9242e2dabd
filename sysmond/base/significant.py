# SPDX-License-Identifier: Apache-2.0
"""Fewer digits: values of so many significant bits, for whoever wants days rather than digits. Pure.

A gauge is rounded to the nearest number of so many bits: off by at most 2^-bits of itself. Of a counter the
increments are rounded, and what that takes from one, the next of its size gives back: each is off by at most
2^(1-bits) of itself, and the counter by less than the last kept place of its largest increment. It never falls, is
exact at its first and last value and on both sides of a reset, and rests where it rested. What is absent stays so.

Only increments of one size share a remainder: a small one would else have to bear what is left of a large one.
"""

from collections.abc import Iterator

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import BoolArray, Int64Array

BITS_MIN, BITS_MAX = 4, 52
"""Fewer would tell little; more are more than a float has."""

# What is larger stays as it is: a sum of two would overflow.
_LARGEST = 2**61
# An increment is shorter than so many bits.
_SIZES_BITS = 6


def shorten(values: Int64Array, bits: int, *, is_gauge: BoolArray, is_counter: BoolArray, free: BoolArray) -> None:
    """Round values in place, int64[series, time]: gauges and counters, at the ticks that are ``free``.

    A counter is exact at the ends of each run of these.
    """
    for begin, end in _runs(free):
        for kind, rounded in ((is_gauge, gauges), (is_counter, counters)):
            # One at a time: what that takes in between is several times as large.
            for row in np.flatnonzero(kind).tolist():
                part = values[row : row + 1, begin:end]
                part[:] = rounded(part, bits)


def _runs(free: BoolArray) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def gauges(values: Int64Array, bits: int) -> Int64Array:
    """Gauges of so many bits, int64[series, time]."""
    size = np.abs(np.where(values == ABSENT, 0, values))
    shift = np.where(size < _LARGEST, _surplus(size, bits), 0)
    rounded = (size + ((1 << shift) >> 1)) >> shift << shift
    return np.where(values == ABSENT, ABSENT, np.where(values < 0, -rounded, rounded))


def counters(values: Int64Array, bits: int) -> Int64Array:
    """Counters, int64[series, time] of absolute values, whose increments have so many bits."""
    rounded = values.copy()
    for row in rounded:
        there = np.flatnonzero(row != ABSENT)
        if len(there) > 1 and np.abs(row[there]).max() < _LARGEST:
            row[there] = _counter(row[there], bits)
    return rounded


def _counter(values: Int64Array, bits: int) -> Int64Array:
    grown = np.diff(values)
    shift = _surplus(np.maximum(grown, 0), bits)
    if not shift.any():
        return values
    # What is of one size, between two resets, comes together and in order.
    lives = np.cumsum(grown < 0)
    kind = (lives << _SIZES_BITS) + shift if lives[-1] else shift.astype(np.int8)
    order = np.argsort(kind, kind="stable")
    starts = np.flatnonzero(np.diff(kind[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    sums = np.cumsum(grown[order])
    sums -= np.repeat(sums[starts] - grown[order[starts]], sizes)
    unit = shift[order]
    rounded_sums = (sums + ((1 << unit) >> 1)) >> unit << unit
    ends = starts + sizes - 1
    rounded_sums[ends] = sums[ends]
    steps = np.diff(rounded_sums, prepend=0)
    steps[starts] = rounded_sums[starts]
    grown[order] = steps
    rounded: Int64Array = values[0] + np.append(0, np.cumsum(grown))
    return rounded


def _surplus(size: Int64Array, bits: int) -> Int64Array:
    """By how many bits numbers are longer than so many."""
    length: Int64Array = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    return np.maximum(length - bits, 0)
