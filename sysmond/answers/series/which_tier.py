# SPDX-License-Identifier: Apache-2.0
"""Which of rows and tiers answers: for every bucket asked for the coarsest that knows all of its ticks.

Pure. A step that divides the one asked for has no bucket that reaches over two of those: ticks are counted,
and the coarsest of the layers that know most answers; what only another knows beside it is added. Where
only a coarser one knows ticks, its buckets stand at their own starts. So nothing counts twice and nothing is
missed, whatever was rolled up, merged or forgotten.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sysmond.base.result import BoolArray, Int64Array
from sysmond.store.coding.statistics import Axis, distinct

ROWS_NS = 0
# Asked for where all of the range is one bucket, whose number is 0.
WHOLE_NS = 0


class Layer(NamedTuple):
    """Rows, or the buckets of one tier: UTC of their first and last ticks, and how many ticks each has."""

    first_utc_ns: Int64Array
    last_utc_ns: Int64Array
    axis: Axis


class Chosen(NamedTuple):
    """Which buckets of a layer answer, and to which bucket asked for each belongs."""

    mask: BoolArray
    number: Int64Array


def choose(
    layers: Mapping[int, Layer], asked_ns: int, start_ns: int, end_ns: int, *, rows_first: bool = False
) -> dict[int, Chosen]:
    """Choose from layers by step (``ROWS_NS`` for rows) what answers for [start, end) in buckets of ``asked_ns``.

    ``layers`` should reach a bucket beyond the range where there is more: that tells where one is cut.
    ``rows_first``: something is asked for that no bucket keeps.
    """
    inside = {
        step_ns: (layer.first_utc_ns >= start_ns) & (layer.last_utc_ns < end_ns) for step_ns, layer in layers.items()
    }
    overlaps = {
        step_ns: (layer.first_utc_ns < end_ns) & (layer.last_utc_ns >= start_ns) for step_ns, layer in layers.items()
    }
    numbers = {
        step_ns: _start_ns(layer, step_ns) // asked_ns if asked_ns else np.zeros(len(layer.first_utc_ns), np.int64)
        for step_ns, layer in layers.items()
    }
    if len(layers) == 1:
        return {step_ns: Chosen(overlaps[step_ns], numbers[step_ns]) for step_ns in layers}
    fine = sorted((step_ns for step_ns in layers if step_ns == ROWS_NS or asked_ns % step_ns == 0), reverse=True)
    if rows_first and fine[-1:] == [ROWS_NS]:
        fine = [ROWS_NS, *fine[:-1]]
    masks = _most(layers, fine, numbers, inside)
    for step_ns in fine:  # Ticks that only another knows, before or after a seam within a bucket.
        masks[step_ns] |= inside[step_ns] & (_rows_chosen(layers, masks, layers[step_ns].axis) == 0)
    for step_ns in sorted(layers.keys() - {ROWS_NS}):
        layer = layers[step_ns]
        rows_there = _rows_chosen(layers, masks, layer.axis)
        for finer_ns in layers:  # What a finer one knows beyond the range counts too: there this bucket is cut.
            if finer_ns < step_ns:
                rows_there = np.maximum(rows_there, _rows_within(layers[finer_ns].axis, None, layer.axis))
        has_more = overlaps[step_ns] & ~masks[step_ns] & (layer.axis.rows > rows_there)
        if has_more.any():
            instead = Axis(*(column[has_more] for column in layer.axis))
            for other_ns, other in layers.items():
                masks[other_ns] &= _rows_within(instead, None, other.axis) == 0
            masks[step_ns] |= has_more
    return {step_ns: Chosen(mask, numbers[step_ns]) for step_ns, mask in masks.items()}


def _most(
    layers: Mapping[int, Layer], fine: list[int], numbers: Mapping[int, Int64Array], inside: Mapping[int, BoolArray]
) -> dict[int, BoolArray]:
    """For every bucket asked for, the first of those layers that know most of its ticks."""
    masks = {step_ns: np.zeros(len(layer.axis.first), bool) for step_ns, layer in layers.items()}
    if fine:
        asked, _ = distinct(np.concatenate([numbers[step_ns] for step_ns in fine]))
        places = [np.searchsorted(asked, numbers[step_ns]) for step_ns in fine]
        known = np.array(
            [
                np.bincount(place, np.where(inside[step_ns], layers[step_ns].axis.rows, 0), len(asked))
                for step_ns, place in zip(fine, places, strict=True)
            ]
        )
        winner = np.argmax(known, axis=0)
        for index, (step_ns, place) in enumerate(zip(fine, places, strict=True)):
            masks[step_ns] = inside[step_ns] & (winner[place] == index)
    return masks


def _rows_chosen(layers: Mapping[int, Layer], masks: Mapping[int, BoolArray], axis: Axis) -> Int64Array:
    """How many of the ticks that were chosen lie within each of some buckets."""
    rows = np.zeros(len(axis.first), np.int64)
    for step_ns, mask in masks.items():
        if mask.any():
            rows += _rows_within(layers[step_ns].axis, mask, axis)
    return rows


def _rows_within(of: Axis, mask: BoolArray | None, axis: Axis) -> Int64Array:
    """How many ticks the buckets of one axis have (where ``mask`` is) that touch each of another."""
    upto = np.zeros(len(of.first) + 1, np.int64)
    np.cumsum(of.rows if mask is None else np.where(mask, of.rows, 0), out=upto[1:])
    low = np.searchsorted(of.last, axis.first)
    high = np.searchsorted(of.first, axis.last, side="right")
    return upto[np.maximum(high, low)] - upto[low]


def _start_ns(layer: Layer, step_ns: int) -> Int64Array:
    return layer.first_utc_ns // step_ns * step_ns if step_ns else layer.first_utc_ns
