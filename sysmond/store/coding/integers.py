# SPDX-License-Identifier: Apache-2.0
"""Numbers in the fewest bytes, and back; what is absent among them; their differences, and the sums of those. Pure.

Numbers are int64, ``ABSENT`` where there is none. Codes are the same in 1, 2, 4 or 8 bytes, the smallest of a type in
the place of ``ABSENT``. Arithmetic is modulo 2⁶⁴. ``docs/format.md`` has the rules.
"""

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.ring.frame import VALUE_MAX

WIDTHS = (1, 2, 4, 8)


def sentinel(width: int) -> int:
    """The code of ``width`` bytes that says absent: the smallest."""
    return -(1 << (8 * width - 1))


# From which size on numbers need the next width.
_LIMITS = np.array([-sentinel(width) for width in WIDTHS[:-1]])


def is_absent(numbers: Int64Array) -> BoolArray:
    """Where there is no number: bool, shaped as they are."""
    absent: BoolArray = numbers == ABSENT
    return absent


def is_beyond(numbers: Int64Array) -> BoolArray:
    """Where a number is larger than any that is stored, or absent: bool, shaped as they are."""
    beyond: BoolArray = (numbers < -VALUE_MAX) | (numbers > VALUE_MAX)
    return beyond


def filled(numbers: Int64Array, by: int = 0) -> Int64Array:
    """The numbers, with another in the place of those that are absent: int64, shaped as they are."""
    return np.where(numbers == ABSENT, by, numbers)


def widths(low: Int64Array, high: Int64Array) -> Int64Array:
    """The fewest bytes that hold numbers from ``low`` to ``high`` and a sentinel: int64, shaped as these.

    No number is smaller than -2⁶³ + 1, which is what a sentinel of 8 bytes leaves.
    """
    fewest: Int64Array = 1 << np.searchsorted(_LIMITS, np.maximum(-low, high), "right")
    return fewest


def width(low: int, high: int) -> int:
    """The same of one range."""
    return next(size for size in WIDTHS if sentinel(size) < low and high < -sentinel(size))


def narrow(numbers: Int64Array, width: int, absent: BoolArray | None = None) -> Array:
    """The codes of numbers, little-endian, shaped as they are. ``absent``: where they are; None where nowhere."""
    codes: Array = numbers.astype(f"<i{width}")
    if absent is not None:
        codes[absent] = sentinel(width)
    return codes


def narrowest(numbers: Int64Array) -> Array:
    """The codes of numbers, int64[n], in the fewest bytes."""
    absent = is_absent(numbers)
    there = numbers[~absent] if absent.any() else numbers
    return narrow(numbers, width(int(there.min(initial=0)), int(there.max(initial=0))), absent)


def widen(codes: Array) -> tuple[Int64Array, BoolArray | None]:
    """The numbers of codes, 0 where they are absent; and where that is, None where nowhere. Both shaped as they are."""
    numbers: Int64Array = codes.astype(np.int64)
    absent: BoolArray = codes == sentinel(codes.itemsize)
    if not absent.any():
        return numbers, None
    numbers[absent] = 0
    return numbers, absent


def numbers_of(codes: Array) -> Int64Array:
    """The numbers of codes, shaped as they are; ABSENT where they are absent."""
    numbers: Int64Array = codes.astype(np.int64)
    numbers[codes == sentinel(codes.itemsize)] = ABSENT
    return numbers


def last_there(absent: BoolArray) -> Int64Array:
    """Of each place, bool[…, n], the last one up to it that is not absent: int64[…, n], -1 where there is none."""
    index: Int64Array = np.maximum.accumulate(np.where(absent, -1, np.arange(absent.shape[-1])), axis=-1)
    return index


def grown(numbers: Int64Array, begins: Int64Array) -> Int64Array:
    """The differences of each number, int64[n], to the one before of its key; ABSENT where it is absent.

    ``begins``: int64[key], where the numbers of each key begin, in order, the first at 0. The first of a key differs
    by 0. What comes after an absence differs from the last number that was there, and from 0 where there was none.
    """
    absent = is_absent(numbers)
    filled_in = numbers
    if hollow := bool(absent.any()):
        skipped = absent.copy()
        skipped[begins] = False
        filled_in = filled(numbers[last_there(skipped)])
    differences: Int64Array = np.diff(filled_in, prepend=filled_in[:1])
    differences[begins] = 0
    if hollow:
        differences[absent] = ABSENT
    return differences


def summed(differences: Int64Array, first: Int64Array, begins: Int64Array) -> Int64Array:
    """The way back: int64[n]; the differences are used up. ``first``: int64[key], with what each key begins."""
    absent = is_absent(differences)
    hollow = bool(absent.any())
    numbers: Int64Array = np.where(absent, 0, differences) if hollow else differences
    numbers[begins] = 0
    begun = filled(first)
    ended = begun + np.add.reduceat(numbers, begins)
    # A key begins with the step to it from the end of the one before, so that all are summed up at once.
    numbers[begins] = begun - np.append(0, ended)[: len(begun)]
    np.cumsum(numbers, out=numbers)
    if hollow:
        numbers[absent] = ABSENT
    numbers[begins] = first
    return numbers
