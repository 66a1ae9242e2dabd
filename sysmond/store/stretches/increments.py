# SPDX-License-Identifier: Apache-2.0
"""By how much counters grew from row to row of long tables, by the rule of ``base.counters``. Pure."""

from typing import NamedTuple

import numpy as np

from sysmond.base.counters import floor_of
from sysmond.base.model import ABSENT
from sysmond.base.result import BoolArray, Int64Array
from sysmond.store.coding.integers import is_absent, last_there


def at_end(last: Int64Array, final: Int64Array) -> Int64Array:
    """What counters ended with: int64[...], ABSENT where nobody knows.

    ``last``: what each was at its last reading; ``final``: what is told of its end. Of the same shape, as stored.
    """
    return np.maximum(last, final)  # ABSENT is the smallest integer.


class Increments(NamedTuple):
    """Of each row of a counter.

    ``grown``: int64[row], by how much it grew since the last value of its key that was there, as stored; ABSENT where
    that is not known. ``source``: int64[row], the row of that value, -1 where it was there before all rows of the key.
    ``began_anew``: bool[row].
    """

    grown: Int64Array
    source: Int64Array
    began_anew: BoolArray

    def last(self, values: Int64Array, begins: Int64Array) -> Int64Array:
        """The row of the last value of each key that was there, int64[key]; -1 where that was before all of them.

        ``values``, ``begins``: as of ``increments``.
        """
        ends = np.append(begins[1:], len(values)) - 1
        ends = ends[: len(begins)]
        return np.where(is_absent(values[ends]), self.source[ends], ends)


def increments(values: Int64Array, begins: Int64Array, base: Int64Array) -> Increments:
    """Compare each row of a counter with the one before it.

    ``values``: int64[row], by key and then time, ABSENT where there is none. ``begins``: int64[key], where the rows of
    each key begin. ``base``: int64[key], what each was before its rows, 0 of what is new; ABSENT where nobody knows.
    """
    absent = is_absent(values)
    if absent.any():
        counts = np.diff(begins, append=len(values))
        source: Int64Array = np.append(-1, last_there(absent)[:-1])
        source[source < np.repeat(begins, counts)] = -1
        before = np.where(source < 0, np.repeat(base, counts), values[source])
    else:
        source = np.arange(-1, len(values) - 1)
        source[begins] = -1
        before = values[source]
        before[begins] = base
    unknown = absent | is_absent(before)
    grown: Int64Array = np.where(unknown, 0, values) - np.where(unknown, 0, before)
    began_anew = np.zeros(len(values), np.bool_)
    if grown.min(initial=0) < 0:  # Most never fall.
        began_anew = ~unknown & (values < floor_of(before))
    grown[unknown | began_anew] = ABSENT
    return Increments(grown, source, began_anew)
