# SPDX-License-Identifier: Apache-2.0
"""Codes: the small integers that stand for values in a segment, and the way there and back. Pure.

A counter becomes its increments, a gauge its difference from its first value; both are narrowed to the
fewest bytes that hold them. The smallest value of a type is "absent". ``docs/format.md`` has the rules.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sysmond.frame import VALUE_MAX
from sysmond.model import ABSENT
from sysmond.result import Int64Array

WIDTHS = (1, 2, 4, 8)
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

Array = np.ndarray[Any, Any]
Bools = npt.NDArray[np.bool_]


def sentinel(width: int) -> int:
    """The value of a type of ``width`` bytes that says absent: its smallest."""
    return -(1 << (8 * width - 1))


def encode(values: Int64Array, is_counter: Bools, series: Array) -> Iterator[tuple[int, int, Array]]:
    """Turn absolute values, int64[series, time], into codes: gives index, width and codes of each series with any.

    Fills in everything of ``series`` but what is given and the row, which is for the caller to choose.
    """
    if not values.size:
        return
    absent = _absent(values)
    hollow: Bools = np.asarray(absent.any(axis=1))
    empty: Bools = np.asarray(absent.all(axis=1))
    start = np.argmin(absent, axis=1)
    first = values[np.arange(len(values)), start]
    held = values
    if hollow.any():
        held = values.copy()
        for row in np.flatnonzero(hollow).tolist():
            _hold(held[row], absent[row])
    codes = held - first[:, None]
    codes[is_counter, 1:] = np.diff(held[is_counter], axis=1)
    codes[is_counter, 0] = 0
    low, high = codes.min(axis=1), codes.max(axis=1)
    width = np.full(len(values), WIDTHS[-1])
    for narrower in reversed(WIDTHS[:-1]):
        width[np.logical_and(sentinel(narrower) < low, high < -sentinel(narrower))] = narrower
    # A constant that is always there: its first value says it all.
    width[empty | (~hollow & (low == 0) & (high == 0))] = 0
    series["width"] = width
    series["first"] = np.where(empty, ABSENT, first)
    series["start"] = np.where(empty, 0, start)
    series["stop"] = np.where(empty, 0, values.shape[1] - np.argmin(absent[:, ::-1], axis=1))
    for row in np.flatnonzero(width).tolist():
        narrow = codes[row].astype(f"<i{width[row]}")
        if hollow[row]:
            narrow[absent[row]] = sentinel(int(width[row]))
        yield row, int(width[row]), narrow


def _absent(values: Int64Array) -> Bools:
    found: Bools = (values < -VALUE_MAX) | (values > VALUE_MAX)
    return found


def _hold(row: Int64Array, absent: Bools) -> None:
    """Fill absences with the value before them, those at the start with the first value."""
    index = np.where(absent, 0, np.arange(len(row)))
    np.maximum.accumulate(index, out=index)
    row[:] = row[index]
    present = np.flatnonzero(~absent)
    if len(present):
        row[: present[0]] = row[present[0]]


def decode(series: Array, is_counter: Bools, ticks: int, codes_of: Callable[[int, Array], Array]) -> Int64Array:
    """Give the absolute values of series, int64[series, time]; ``codes_of`` reads rows of a width."""
    values = np.zeros((len(series), ticks), np.int64)
    for width in WIDTHS:
        mine = np.flatnonzero(series["width"] == width)
        if not len(mine):
            continue
        codes = codes_of(width, series["row"][mine])
        absent = codes == sentinel(width)
        steps = codes.astype(np.int64)
        steps[absent] = 0
        counting = is_counter[mine]
        steps[counting] = np.cumsum(steps[counting], axis=1)
        steps += series["first"][mine][:, None]
        steps[absent] = ABSENT
        values[mine] = steps
    constant = series["width"] == 0
    values[constant] = series["first"][constant][:, None]
    values[series["first"] == ABSENT] = ABSENT
    return values
