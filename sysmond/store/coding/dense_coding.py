# SPDX-License-Identifier: Apache-2.0
"""Codes: the small integers that stand for values in a segment, and the way there and back. Pure.

A counter becomes its increments, a gauge its difference from its first value; both are narrowed to the
fewest bytes that hold them. The smallest value of a type is "absent". ``docs/format.md`` has the rules.
"""

from collections.abc import Callable, Iterator

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.ring.frame import VALUE_MAX
from sysmond.store.coding.integers import WIDTHS, is_beyond, last_there, narrow, sentinel, widths

# Eight neighbouring series share a chunk: similar rows compress together, and reading one costs little.
CHUNK_SERIES = 8
# One a series: what it is, where its codes are, its first value, and between which ticks it lived.
SERIES = np.dtype(
    [
        ("metric", "<u4"),
        ("instance", "<u4"),
        ("width", "u1"),
        ("row", "<u4"),
        ("first", "<i8"),
        ("start", "<u4"),
        ("stop", "<u4"),
    ]
)
# In a tier each series has several rows, one a statistic.
TIER_SERIES = np.dtype([*SERIES.descr, ("stat", "u1")])
# Where the counters of a tier stood at the ends of a block.
EDGES = np.dtype(
    [
        ("metric", "<u4"),
        ("instance", "<u4"),
        ("first_value", "<i8"),
        ("first_ns", "<i8"),
        ("last_value", "<i8"),
        ("last_ns", "<i8"),
    ]
)


def encode(values: Int64Array, is_counter: BoolArray, series: Array) -> Iterator[tuple[Int64Array, int, Array]]:
    """Turn absolute values, int64[series, time], into codes: gives indexes, width and codes of those with any.

    Fills in everything of ``series`` but what is given and the row, which is for the caller to choose. Series
    of one width come together, in order.
    """
    if not values.size:
        return
    low, high = values.min(axis=1), values.max(axis=1)
    whole: BoolArray = (low >= -VALUE_MAX) & (high <= VALUE_MAX)
    series["first"], series["start"], series["stop"] = values[:, 0], 0, values.shape[1]
    # A constant that is always there: its first value says it all.
    series["width"] = 0
    moving: BoolArray = whole & (low != high)
    gauges, counters = np.flatnonzero(moving & ~is_counter), np.flatnonzero(moving & is_counter)
    if len(gauges):
        part = values if len(gauges) == len(values) else values[gauges]
        yield from _narrowed(gauges, part - part[:, :1], series)
    if len(counters):
        grown = np.zeros((len(counters), values.shape[1]), np.int64)
        np.subtract(values[counters, 1:], values[counters, :-1], out=grown[:, 1:])
        yield from _narrowed(counters, grown, series)
    if len(hollow := np.flatnonzero(~whole)):
        absent = is_beyond(values[hollow])
        steps = _of_hollow(values[hollow], absent, is_counter[hollow], series, hollow)
        yield from _narrowed(hollow, steps, series, absent)


def _narrowed(
    rows: Int64Array, steps: Int64Array, series: Array, absent: BoolArray | None = None
) -> Iterator[tuple[Int64Array, int, Array]]:
    """Put the steps of some rows into the fewest bytes that hold them and a sentinel.

    ``absent``: where there are none, bool[row, time]. What never has any needs no codes.
    """
    width = widths(steps.min(axis=1), steps.max(axis=1))
    width[series["stop"][rows] == 0] = 0
    series["width"][rows] = width
    for size in WIDTHS:
        mine = np.flatnonzero(width == size)
        if len(mine):
            yield rows[mine], size, narrow(steps[mine], size, None if absent is None else absent[mine])


def _of_hollow(
    values: Int64Array, absent: BoolArray, is_counter: BoolArray, series: Array, rows: Int64Array
) -> Int64Array:
    """The steps of series with absences, int64[row, time], each since the last value; fills in their records."""
    start = np.argmin(absent, axis=1)
    is_empty = absent[np.arange(len(rows)), start]
    carried = np.take_along_axis(values, np.maximum(last_there(absent), start[:, None]), axis=1)
    series["first"][rows] = np.where(is_empty, ABSENT, carried[:, 0])
    series["start"][rows] = start
    series["stop"][rows] = np.where(is_empty, 0, absent.shape[1] - np.argmin(absent[:, ::-1], axis=1))
    steps: Int64Array = np.where(
        is_counter[:, None], np.diff(carried, prepend=carried[:, :1]), carried - carried[:, :1]
    )
    steps[is_empty] = 0
    return steps


def decode(series: Array, is_counter: BoolArray, ticks: int, codes_of: Callable[[int, Array], Array]) -> Int64Array:
    """Give the absolute values of series, int64[series, time]; ``codes_of`` reads rows of a width."""
    values = np.empty((len(series), ticks), np.int64)
    for width in WIDTHS:
        mine = np.flatnonzero(series["width"] == width)
        if not len(mine):
            continue
        codes = codes_of(width, series["row"][mine])
        hollow = (codes == sentinel(width)).any(axis=1)
        for index, row in enumerate(mine.tolist()):
            steps, first = codes[index], series["first"][row]
            absent = steps == sentinel(width) if hollow[index] else None
            if absent is not None:
                steps = np.where(absent, 0, steps)
            if is_counter[row]:
                np.cumsum(steps, dtype=np.int64, out=values[row])
                values[row] += first
            else:
                np.add(steps, first, out=values[row], dtype=np.int64)
            if absent is not None:
                values[row, absent] = ABSENT
    for row in np.flatnonzero((series["width"] == 0) | (series["first"] == ABSENT)).tolist():
        values[row] = series["first"][row]
    return values
