# SPDX-License-Identifier: Apache-2.0
"""Chunks as they lie in a file: unpacked to just the bytes that their shape has, or refused.

Pure. The library unpacks what it finds and takes the result for as long as the shape says: a chunk that says of
itself that it skipped its filters, or that is packed by all of them and too short, is read on into whatever memory
follows. So the three filters that sysmond writes (shuffle, deflate, fletcher32) are undone here, and lengths compared.
"""

import sys
import zlib
from itertools import accumulate
from typing import TypeAlias

import numpy as np

# What the checksum adds to a chunk.
CHECKSUM_BYTES = 4
# How much deflate adds to what it cannot make smaller, of all libraries at most; and to whatever it is given.
GROWTH_SHARE, GROWTH_BYTES = 8, 64
# Words that are summed up at once: bounds the memory, and keeps sums exact.
_WORDS = 1 << 15
# For so few, numpy is slower.
_FEW_BYTES = 256
_WEIGHTS = np.arange(_WORDS, 0, -1, dtype=np.float64)
# From so many elements of so few bytes on, a byte of all at once is several times quicker.
_MANY, _FEW = 1024, 8

Buffer: TypeAlias = bytes | memoryview


def stored_max(size: int, chunks: int) -> int:
    """How many bytes so many chunks may be stored in, that are so many bytes together."""
    return size + size // GROWTH_SHARE + chunks * GROWTH_BYTES


def unpack(stored: bytes, size: int, count: int) -> Buffer:
    """The bytes of a chunk: of elements of this size, and just so many of them.

    :raises ValueError: where it has others, or is damaged.
    """
    body = stored[:-CHECKSUM_BYTES]
    if fletcher32(body).to_bytes(CHECKSUM_BYTES, "little") != stored[-CHECKSUM_BYTES:]:
        raise ValueError("a chunk whose checksum is wrong")
    right = size * count
    inflating = zlib.decompressobj()
    try:
        shuffled = inflating.decompress(body, right + 1)
    except zlib.error as damage:
        raise ValueError(f"a chunk that cannot be unpacked: {damage}") from damage
    if len(shuffled) != right or not inflating.eof:
        raise ValueError(f"a chunk that is not of {right} bytes")
    return shuffled if size == 1 else _unshuffled(shuffled, size, count)


def fletcher32(content: bytes) -> int:
    """The checksum as HDF5 makes it: over words of two bytes, the larger first, the last one filled up with zero."""
    # Modulo 2**16 - 1 a word whose bytes are exchanged is as much as 256 times that word.
    whole = content + b"\0" if len(content) % 2 else content
    if len(whole) <= _FEW_BYTES and sys.byteorder == "little":
        words = memoryview(whole).cast("H")
        return _folded(256 * sum(accumulate(words))) << 16 | _folded(256 * sum(words))
    first = second = 0
    of_all = np.frombuffer(whole, "<u2")
    for start in range(0, len(of_all), _WORDS):
        # Numbers that are exact up to 2**53 are the quickest. (A dot product would be of many threads.)
        piece = of_all[start : start + _WORDS].astype(np.float64)
        second += len(piece) * first + int((piece * _WEIGHTS[_WORDS - len(piece) :]).sum())
        first += int(piece.sum())
    return _folded(256 * second) << 16 | _folded(256 * first)


def _folded(total: int) -> int:
    """A sum in one's complement: of the two ways to write 0, the one of ones where anything was added."""
    return (total - 1) % 0xFFFF + 1 if total else 0


def _unshuffled(shuffled: bytes, size: int, count: int) -> Buffer:
    """Put the bytes of each element together, of which first all firsts are stored, then all seconds."""
    planes = np.ndarray((size, count), np.uint8, shuffled)
    if count < _MANY or size > _FEW:
        return planes.T.tobytes()
    elements = np.empty((count, size), np.uint8)
    for number, plane in enumerate(planes):
        elements[:, number] = plane
    return elements.data
