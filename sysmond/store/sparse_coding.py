# SPDX-License-Identifier: Apache-2.0
"""Vectors: long columns of integers as few bytes, and back. Pure; ``docs/format.md`` has the rules.

A value is ``base + factor × code``, or ``base`` plus the sum of all ``factor × code`` so far. Codes are narrowed to the
fewest bytes that hold them, the smallest number of a type being "absent". All arithmetic is modulo 2⁶⁴.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, NAME_LENGTH_MAX
from sysmond.base.result import Int64Array
from sysmond.store.dense_coding import WIDTHS, Array, Bools, sentinel
from sysmond.store.stretch import is_absent

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
    """Code numbers that lie near each other."""
    absent = is_absent(values)
    there = values[~absent] if absent.any() else values
    if not len(there):
        return Coded(ABSENT if len(values) else 0)
    low, high = int(there.min()), int(there.max())
    if low == high and len(there) == len(values):
        return Coded(low)
    factor = _common(there - low) if high - low < -ABSENT else 1
    width = _width(0, -(-(high - low) // factor // 2))
    # The smallest number becomes the smallest code: the whole range of a type is used.
    lowest = 0 if width == WIDTHS[-1] else sentinel(width) + 1
    codes = (_divided(values - low, factor) + lowest).astype(f"<i{width}")
    codes[absent] = sentinel(width)
    return Coded((low - factor * lowest - ABSENT) % _WRAP + ABSENT, codes, factor)


def sums(values: Int64Array) -> Coded:
    """Code numbers that grow."""
    if is_absent(values).any() or not len(values):
        return levels(values)
    grown = np.diff(values, prepend=values[:1])
    return steps([grown])._replace(base=int(values[0]), summed=True)


def steps(pieces: Iterable[Int64Array]) -> Coded:
    """Code differences, most of which are 0; each piece is let go of once it is narrowed."""
    narrowed = [_narrowed(piece) for piece in pieces]
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
    width = _width(low // factor, high // factor)
    codes = np.zeros(sum(map(len, narrowed)), f"<i{width}")
    at = 0
    for number, piece in enumerate(narrowed):
        if piece.itemsize:
            part = codes[at : at + len(piece)]
            part[:] = _divided(piece.astype(np.int64), factor)
            part[piece == sentinel(piece.itemsize)] = sentinel(width)
        at += len(piece)
        narrowed[number] = piece[:0]
    return Coded(0, codes, factor)


def _narrowed(values: Int64Array) -> Array:
    """Differences in the fewest bytes; an array of bytes without length a element where all are 0."""
    absent = is_absent(values)
    hollow = bool(absent.any())
    there = values[~absent] if hollow else values
    low, high = (int(there.min()), int(there.max())) if len(there) else (0, 0)
    if not hollow and not low and not high:
        return np.zeros(len(values), "V0")
    width = _width(low, high)
    narrow = values.astype(f"<i{width}")
    if hollow:
        narrow[absent] = sentinel(width)
    return narrow


def _width(low: int, high: int) -> int:
    """The fewest bytes that hold these and a sentinel."""
    return next(width for width in WIDTHS if sentinel(width) < low and high < -sentinel(width))


def _common(values: Array) -> int:
    """The greatest number that divides all; 1 where they are all 0."""
    moving = np.flatnonzero(values[: _SAMPLE * 64])[:_SAMPLE]
    factor = int(np.gcd.reduce(values[moving].astype(np.int64))) if len(moving) else 0
    return (int(np.gcd.reduce(values.astype(np.int64))) if factor != 1 else 1) or 1


def _divided(values: Int64Array, factor: int) -> Int64Array:
    return values if factor == 1 else values // factor


def decode(record: Array, length: int, codes_of: Callable[[int, int], Array]) -> Int64Array:
    """Give the values of a vector, or of a part of it; ``codes_of`` gives those of a width and row."""
    base, width = record["base"], int(record["width"])
    if not width:
        return np.full(length, base, np.int64)
    codes = codes_of(width, int(record["row"]))
    values = codes.astype(np.int64)
    absent: Bools = codes == sentinel(width)
    if hollow := bool(absent.any()):
        values[absent] = 0
    if record["factor"] != 1:
        values *= record["factor"]
    if record["summed"]:
        np.cumsum(values, out=values)
    values += base
    if hollow:
        values[absent] = ABSENT
    return values


def grown(values: Int64Array, begins: Int64Array) -> Int64Array:
    """The differences of each row to the one before of its key; of the first of a key 0, and absent where it is.

    What comes after an absence differs from the last value that was there, and from 0 where there was none.
    """
    absent = is_absent(values)
    held = values
    if hollow := bool(absent.any()):
        is_first = np.zeros(len(values), np.bool_)
        is_first[begins] = True
        place = np.where(absent & ~is_first, 0, np.arange(len(values)))
        held = values[np.maximum.accumulate(place)]
        held[is_absent(held)] = 0
    differences: Int64Array = np.diff(held, prepend=held[:1])
    differences[begins] = 0
    if hollow:
        differences[absent] = ABSENT
    return differences


def summed(differences: Int64Array, first: Int64Array, begins: Int64Array, counts: Int64Array) -> Int64Array:
    """The way back: ``first`` has what each key begins with."""
    absent = is_absent(differences)
    hollow = bool(absent.any())
    values: Int64Array = np.where(absent, 0, differences) if hollow else differences.copy()
    np.cumsum(values, out=values)
    values += np.repeat(np.where(is_absent(first), 0, first) - values[begins], counts)
    if hollow:
        values[absent] = ABSENT
    values[begins] = first
    return values
