# SPDX-License-Identifier: Apache-2.0
"""Seams: where one file of a tier ends and the next one begins, often within a bucket. Pure.

A file that is made later has whole the bucket that the one before it has the beginning of: that one does not count.
"""

from collections.abc import Sequence

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.rollup.top import LENGTH, about_all, is_dictionary, last_rows
from sysmond.store.coding.integers import filled
from sysmond.store.stretches.chain import Chain, remembering
from sysmond.store.stretches.stretch import Dictionary, MemoryStretch, Readings, Stretch


def begin_ns(stretch: Stretch) -> int:
    """When the first bucket of a stretch begins: its first reading, in boot time."""
    first_ns = int(stretch.ticks[0])
    if is_dictionary(stretch.table):
        return first_ns
    # The row of one key of the first bucket says how long it is.
    keys = np.flatnonzero(stretch.first_tick() == 0)
    key = int(keys[0])
    return first_ns - int(stretch.column(LENGTH, slice(key, key + 1))[0])


def counting(stretches: Sequence[Stretch]) -> list[BoolArray]:
    """Which buckets of neighbouring stretches of a tier count, bool[reading] each: those that no later one replaces."""
    masks: list[BoolArray] = []
    next_ns = -ABSENT - 1
    for stretch in reversed(stretches):
        masks.append(stretch.ticks < next_ns)
        if len(stretch.ticks):
            next_ns = min(next_ns, begin_ns(stretch))
    return masks[::-1]


def merged(stretches: Sequence[Stretch]) -> MemoryStretch:
    """One stretch of the buckets of several neighbours, in order of time, that have a declaration in common."""
    about = about_all(stretches)
    if is_dictionary(about.table):
        return last_rows(Chain(stretches), about, 0)
    counts = counting(stretches)
    offsets = np.cumsum([0, *(int(mask.sum()) for mask in counts)])
    places = [
        np.where(mask, np.cumsum(mask) - 1 + offset, -1) for mask, offset in zip(counts, offsets.tolist(), strict=False)
    ]
    at = [place[stretch.tick_index()] for stretch, place in zip(stretches, places, strict=True)]
    rows_of = [np.flatnonzero(place >= 0) for place in at]
    words = Dictionary()
    recoded = [words.codes(stretch.texts) for stretch in stretches]
    texts = {metric.name for metric in about.table.metrics if metric.is_text}

    def column(name: str) -> Int64Array:
        parts = []
        for stretch, rows, code in zip(stretches, rows_of, recoded, strict=True):
            values = stretch.column(name)[rows]
            parts.append(code[filled(values, -1)] if name in texts else values)
        return np.concatenate(parts)

    def reading(name: str) -> Array:
        return np.concatenate([getattr(stretch, name)[mask] for stretch, mask in zip(stretches, counts, strict=True)])

    readings = Readings(reading("ticks"), reading("full"), reading("lost"), reading("walked"))
    rows_at = np.concatenate([place[rows] for place, rows in zip(at, rows_of, strict=True)])
    return MemoryStretch(about, readings, rows_at, remembering(column), words.texts)
