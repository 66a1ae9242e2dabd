# SPDX-License-Identifier: Apache-2.0
"""What ended, as another table tells it: what is added to that which readings saw."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, END
from sysmond.base.result import BoolArray, Int64Array
from sysmond.rollup.condition import Words
from sysmond.store.census import Line
from sysmond.store.stretches.chain import reported_before
from sysmond.store.stretches.exit_codes import without_killed
from sysmond.store.stretches.stretch import Stretch


class KeyEnds(NamedTuple):
    """What ended, one a row: key (int64[row, metric of the key]) and end (boot time), in order of the ends.

    ``column``: what else the table that tells it has, by name; None for what it has not.
    """

    keys: Int64Array
    end_ns: Int64Array
    column: Callable[[str], Int64Array | Words | None]


def between(ended: KeyEnds, low_ns: int, high_ns: int) -> KeyEnds:
    """Those that ended between two boot times."""
    low, high = np.searchsorted(ended.end_ns, [low_ns, high_ns]).tolist()

    def column(name: str) -> Int64Array | Words | None:
        values = ended.column(name)
        if isinstance(values, Words):
            return values._replace(codes=values.codes[low:high])
        return None if values is None else values[low:high]

    return KeyEnds(ended.keys[low:high], ended.end_ns[low:high], column)


def ended_of(line: Line, names: Sequence[str]) -> KeyEnds | None:
    """What the table that tells of ends has of one boot; None where it lacks a column.

    ``names``: the metrics there that are the key of what ended, in its order.
    """
    befores = [None, *(part.stretch for part in line.parts)]
    for part in line.parts:
        if not {metric.name for metric in part.stretch.table.metrics if not metric.is_text}.issuperset([END, *names]):
            return None
    stretches = [
        (each, (each.ticks[each.tick_index()] < end_ns) & ~reported_before(each, before))
        for (each, end_ns, *_), before in zip(line.parts, befores, strict=False)
    ]
    end_ns = np.concatenate([np.zeros(0, np.int64), *(stretch.column(END)[mine] for stretch, mine in stretches)])
    keys = [np.zeros((0, len(names)), np.int64)]
    keys += [np.array([stretch.column(name)[mine] for name in names]).T for stretch, mine in stretches]
    order = np.argsort(end_ns, kind="stable")
    cache: dict[str, Int64Array | Words | None] = {}

    def column(name: str) -> Int64Array | Words | None:
        if name not in cache:
            cache[name] = _column_of(stretches, name, order)
        return cache[name]

    return KeyEnds(np.concatenate(keys)[order], end_ns[order], column)


def _column_of(
    stretches: Sequence[tuple[Stretch, BoolArray]], name: str, order: Int64Array
) -> Int64Array | Words | None:
    """A column of all stretches, of the chosen rows of each; None where they do not have it."""
    pieces: list[Int64Array] = [np.zeros(0, np.int64)]
    texts: list[str] = []
    is_text = False
    for stretch, mine in stretches:
        metrics = {metric.name: metric for metric in stretch.table.metrics}
        if name not in metrics:
            return None
        values = without_killed(stretch.table, name, stretch.column)[mine]
        is_text = metrics[name].is_text
        if is_text:
            values = np.where(values == ABSENT, -1, values + len(texts))
            texts += stretch.texts
        pieces.append(values)
    joined = np.concatenate(pieces)[order]
    return Words(joined, texts) if is_text else joined
