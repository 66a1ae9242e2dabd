# SPDX-License-Identifier: Apache-2.0
"""Which of rows and tiers answers: for every bucket asked for the coarsest that knows all of its ticks.

Pure. A step that divides the one asked for has no bucket that reaches over two of those: they are counted,
tick by tick, and the coarsest of those that know most answers. Where only a coarser one knows ticks, its
buckets stand at their own starts. So nothing counts twice and nothing is missed, whatever was rolled up,
merged or forgotten.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sysmond.result import Int64Array
from sysmond.rollup import Axis, BoolArray

ROWS_NS = 0


class Layer(NamedTuple):
    """Rows, or the buckets of one tier: UTC of their first and last ticks, and how many ticks each has."""

    first_utc_ns: Int64Array
    last_utc_ns: Int64Array
    axis: Axis


class Chosen(NamedTuple):
    """Which buckets of a layer answer, and to which bucket asked for each belongs."""

    mask: BoolArray
    number: Int64Array


def choose(layers: Mapping[int, Layer], asked_ns: int, start_ns: int, end_ns: int) -> dict[int, Chosen]:
    """Choose from layers by step (``ROWS_NS`` for rows) what answers for [start, end).

    ``layers`` should reach a bucket beyond the range where there is more: that tells where one is cut.
    """
    inside = {
        step_ns: (layer.first_utc_ns >= start_ns) & (layer.last_utc_ns < end_ns) for step_ns, layer in layers.items()
    }
    numbers = {step_ns: _start_ns(layer, step_ns) // asked_ns for step_ns, layer in layers.items()}
    if layers.keys() == {ROWS_NS}:
        return {ROWS_NS: Chosen(inside[ROWS_NS], numbers[ROWS_NS])}
    fine = sorted((step_ns for step_ns in layers if step_ns == ROWS_NS or asked_ns % step_ns == 0), reverse=True)
    asked = _distinct(np.concatenate(list(numbers.values())))
    known = {step_ns: _known(layers[step_ns], asked, number) for step_ns, number in numbers.items()}
    usable = np.zeros((len(fine), len(asked)), np.int64)
    for index, step_ns in enumerate(fine):
        usable[index] = known[step_ns]
        layer = layers[step_ns]
        cut = ~inside[step_ns] & (layer.first_utc_ns < end_ns) & (layer.last_utc_ns >= start_ns)
        if step_ns != ROWS_NS:  # A bucket of which only a part is asked for is the last resort.
            usable[index, np.searchsorted(asked, numbers[step_ns][cut])] = 0
    held = usable.max(axis=0, initial=0)
    winner = np.where(held > 0, np.argmax(usable, axis=0), -1) if fine else np.full(len(asked), -1)
    chosen: dict[int, Chosen] = {}
    for step_ns in sorted(layers.keys() - {ROWS_NS}):
        layer, number = layers[step_ns], numbers[step_ns]
        overlaps = (layer.first_utc_ns < end_ns) & (layer.last_utc_ns >= start_ns)
        low = np.searchsorted(asked, np.minimum(number, layer.first_utc_ns // asked_ns))
        high = np.searchsorted(asked, layer.last_utc_ns // asked_ns, side="right")
        upto = np.concatenate([[0], np.cumsum(held)])
        mask: BoolArray = overlaps & (layer.axis.rows > upto[np.maximum(high, low)] - upto[low])
        edges = np.zeros(len(asked) + 1, np.int64)
        np.add.at(edges, low[mask], 1)
        np.add.at(edges, high[mask], -1)
        covered = np.cumsum(edges)[:-1] > 0
        winner[covered], held[covered] = -1, 0
        place = np.searchsorted(asked, number[mask])
        held[place] = known[step_ns][place]
        for other_ns, other in chosen.items():  # Not what a finer one was to give in their place.
            dropped = other.mask & covered[np.searchsorted(asked, other.number)]
            chosen[other_ns] = other._replace(mask=other.mask & ~dropped)
        chosen[step_ns] = Chosen(mask, number)
    for index, step_ns in enumerate(fine):
        number = numbers[step_ns]
        mine = inside[step_ns] & (winner[np.searchsorted(asked, number)] == index)
        last_resort = chosen[step_ns].mask if step_ns in chosen else np.zeros_like(mine)
        chosen[step_ns] = Chosen(mine | last_resort, number)
    return chosen


def _known(layer: Layer, asked: Int64Array, number: Int64Array) -> Int64Array:
    return np.bincount(np.searchsorted(asked, number), layer.axis.rows, len(asked)).astype(np.int64)


def _start_ns(layer: Layer, step_ns: int) -> Int64Array:
    return layer.first_utc_ns // step_ns * step_ns if step_ns else layer.first_utc_ns


def _distinct(values: Int64Array) -> Int64Array:
    ordered = np.sort(values)
    new = np.ones(len(ordered), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]
