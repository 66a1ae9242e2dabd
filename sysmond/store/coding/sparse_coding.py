# SPDX-License-Identifier: Apache-2.0
"""Vectors: long columns of integers as few bytes, and back. Pure; ``docs/format.md`` has the rules.

A value is ``base + factor × code``, or ``base`` plus the sum of all ``factor × code`` so far. Codes are narrowed to the
fewest bytes that hold them, the smallest number of a type being "absent". All arithmetic is modulo 2⁶⁴.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, NAME_LENGTH_MAX
from sysmond.base.result import Array, Int64Array
from sysmond.store.coding.integers import WIDTHS, is_absent, narrow, narrowest, sentinel, widen, width

# One a vector: what it is, where its codes are, and what they mean.
VECTOR = np.dtype(
    [
        ("name", f"S{NAME_LENGTH_MAX}"),
        ("role", "S8"),
        ("summed", "u1"),
        ("width", "u1"),
        ("row", "<u4"),
        ("base", "<i8"),
        ("factor", "<i8"),
    ]
)
# A common factor of so many numbers is usually that of all, and where they have none, all have none.
_SAMPLE = 1000
_WRAP = 2**64


class Coded(NamedTuple):
    """A vector as it is stored. ``codes``: None where all are 0, and ``base`` says it all."""

    base: int
    codes: Array | None = None
    factor: int = 1
    summed: bool = False

    @property
    def width(self) -> int:
        """Bytes of a code; 0 where there are none."""
        return 0 if self.codes is None else self.codes.dtype.itemsize


def levels(values: Int64Array) -> Coded:
    """Code numbers, int64[n], that lie near each other."""
    absent = is_absent(values)
    there = values[~absent] if absent.any() else values
    if not len(there):
        return Coded(ABSENT if len(values) else 0)
    low, high = int(there.min()), int(there.max())
    if low == high and len(there) == len(values):
        return Coded(low)
    factor = _common(there - low) if high - low < -ABSENT else 1
    fewest = width(0, -(-(high - low) // factor // 2))
    # The smallest number becomes the smallest code: the whole range of a type is used.
    lowest = 0 if fewest == WIDTHS[-1] else sentinel(fewest) + 1
    codes = narrow(_divided(values - low, factor) + lowest, fewest, absent)
    return Coded((low - factor * lowest - ABSENT) % _WRAP + ABSENT, codes, factor)


def sums(values: Int64Array) -> Coded:
    """Code numbers, int64[n], that grow."""
    if is_absent(values).any() or not len(values):
        return levels(values)
    return steps([np.diff(values, prepend=values[:1])])._replace(base=int(values[0]), summed=True)


def steps(pieces: Iterable[Int64Array]) -> Coded:
    """Code differences, int64[n] a piece, most of which are 0; each piece is let go of once it is narrowed."""
    # Where all are 0, an array of elements without bytes.
    narrowed = [narrowest(piece) if piece.any() else np.zeros(len(piece), "V0") for piece in pieces]
    moving = [piece for piece in narrowed if piece.itemsize]
    if not moving:
        return Coded(0)
    factor = 0
    low = high = 0
    for piece in moving:
        there = piece[piece != sentinel(piece.itemsize)]
        if len(there):
            factor = int(np.gcd(factor, _common(there))) if factor != 1 else 1
            low, high = min(low, int(there.min())), max(high, int(there.max()))
    factor = factor or 1
    fewest = width(low // factor, high // factor)
    codes = np.zeros(sum(map(len, narrowed)), f"<i{fewest}")
    at = 0
    for number, piece in enumerate(narrowed):
        if piece.itemsize:
            numbers, absent = widen(piece)
            codes[at : at + len(piece)] = narrow(_divided(numbers, factor), fewest, absent)
        at += len(piece)
        narrowed[number] = piece[:0]
    return Coded(0, codes, factor)


def _common(values: Array) -> int:
    """The greatest number that divides all; 1 where they are all 0."""
    moving = np.flatnonzero(values[: _SAMPLE * 64])[:_SAMPLE]
    factor = int(np.gcd.reduce(values[moving].astype(np.int64))) if len(moving) else 0
    return (int(np.gcd.reduce(values.astype(np.int64))) if factor != 1 else 1) or 1


def _divided(values: Int64Array, factor: int) -> Int64Array:
    return values if factor == 1 else values // factor


def decode(record: Array, length: int, codes_of: Callable[[int, int], Array]) -> Int64Array:
    """Give the values of a vector, or of a part of it, int64[n]; ``codes_of`` gives the codes of a width and row."""
    base = record["base"]
    if not record["width"]:
        return np.full(length, base, np.int64)
    values, absent = widen(codes_of(int(record["width"]), int(record["row"])))
    if record["factor"] != 1:
        values *= record["factor"]
    if record["summed"]:
        np.cumsum(values, out=values)
    values += base
    if absent is not None:
        values[absent] = ABSENT
    return values
