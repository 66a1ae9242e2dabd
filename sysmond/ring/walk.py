# SPDX-License-Identifier: Apache-2.0
"""The walk over the frames of a ring, in a copy of some of its bytes: which are whole, and where the next one begins.

A frame has its own logical offset, so its place in a copy is that minus the offset at which the copy begins. The caller
knows why a walk ends: at the end of a round, at a store that is not visible yet, or at damage.
"""

from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from sysmond.ring.frame import CRC_START, EXPLAINING, FRAME_BYTES, OPENING

Frame = tuple[int, int, int, int, int]
"""Where a frame begins in a copy, where its payload ends (it begins after the opening), kind, id and tick."""

# Where a frame has its logical offset, in words.
_OFFSET_WORD = 2
# Of an opening its length, checksum and logical offset.
_PLACED = Struct(f"=II{8 * _OFFSET_WORD - CRC_START}xQ")


def whole_frames(image: bytes, begin: int, place: int = 0, since: int = 0) -> Iterator[Frame]:
    """The frames that follow each other from ``place`` on, a multiple of 8, up to the first that is not whole.

    ``image`` begins at the logical offset ``begin``. A frame that ends before the logical offset ``since`` is not
    checked, unless it explains others.
    """
    unpack, size = OPENING.unpack_from, len(image)
    last, since = size - FRAME_BYTES, since - begin
    while place <= last:
        length, crc, kind, remainder, ident, offset, tick_ns = unpack(image, place)
        end = place + length
        if offset != begin + place or length < FRAME_BYTES or length & 7 or end > size:
            return
        if (end > since or kind in EXPLAINING) and crc32(image[place + CRC_START : end]) != crc:
            return
        yield place, end - (-remainder & 7), kind, ident, tick_ns
        place = end


def whole_places(image: bytes, begin: int, place: int) -> tuple[list[int], int]:
    """Where each frame begins that ``whole_frames`` gives, in less time, and where the first that is not whole does."""
    unpack, last, size = _PLACED.unpack_from, len(image) - FRAME_BYTES, len(image)
    places: list[int] = []
    while place <= last:
        length, crc, offset = unpack(image, place)
        end = place + length
        if offset != begin + place or length < FRAME_BYTES or length & 7 or end > size:
            break
        if crc32(image[place + CRC_START : end]) != crc:
            break
        places.append(place)
        place = end
    return places, place


def frame_at(image: bytes, place: int) -> Frame:
    """A frame that was found whole before."""
    length, _, kind, remainder, ident, _, tick_ns = OPENING.unpack_from(image, place)
    return place, place + length - (-remainder & 7), kind, ident, tick_ns


def next_whole(image: bytes, begin: int, place: int) -> int:
    """Where the first whole frame from ``place`` on begins, trying every word; the end of the copy if none does."""
    words = offsets(image)
    for at in range(place, len(image) - FRAME_BYTES + 1, 8):
        if words[at >> 3] == begin + at and any(whole_frames(image, begin, at)):
            return at
    return len(image)


def offsets(image: bytes) -> memoryview:
    """For every word at which a frame might begin, the logical offset that it would have."""
    return memoryview(image)[: len(image) & ~7].cast("Q")[_OFFSET_WORD:]


def end_of(stop: int) -> int:
    """Where a frame ends whose payload ends at ``stop``: the next one begins at a whole word."""
    return (stop + 7) & ~7
