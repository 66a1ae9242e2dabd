# SPDX-License-Identifier: Apache-2.0
"""The end of a ring as it grows: every frame once, in order, without reading anything twice.

A reader keeps its place: a look without new frames costs a read of five words. Frames that were overwritten before
they were read are lost; reading then begins anew with the content of the ring. ``docs/format.md`` specifies the bytes;
the rule is that of ``sysmond.ring.snapshot``: copy, look again where the oldest frame begins, drop overwritten ones.
"""

import os
from collections.abc import Callable, Collection
from struct import Struct

from sysmond.errors import CorruptError
from sysmond.ring.frame import (
    EXPLAINED,
    EXPLAINING,
    FRAME_BYTES,
    HEAD,
    HEADER_BYTES,
    Layout,
    read_header,
)
from sysmond.ring.walk import end_of, next_whole, whole_frames

# Bytes copied at a time; more where the largest possible frame is longer.
_PIECE_BYTES = 256 * 1024
_FRAMES_PER_RING_MIN = 8
# How often a copy that was overwritten, or shows damage, is made again: the writer may be writing there.
_TRIES = 3
# head, tail, closed, mark, dropped: neighbours in the header.
_LIVE = Struct("=5Q")

_ALL = EXPLAINING | EXPLAINED

Take = Callable[[int, int, int, bytes], None]
"""Receives kind, id, tick and payload of each frame."""


class _OvertakenError(Exception):
    """The writer overwrote what was being read."""


class Tail:
    """One ring that is followed: an open file, the explanations of its rows, and how far it was read."""

    def __init__(self, path: str) -> None:
        """Open it.

        :raises OSError: where it cannot be read. :raises Error: where it is no ring.
        """
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.identity, self._capacity = read_header(os.pread(self._file, HEADER_BYTES, 0), path)
            if os.fstat(self._file).st_size != HEADER_BYTES + self._capacity:
                raise CorruptError(f"{path}: truncated; expected {HEADER_BYTES + self._capacity} bytes")
        except BaseException:
            os.close(self._file)
            raise
        self._piece_bytes = max(_PIECE_BYTES, self._capacity // _FRAMES_PER_RING_MIN)
        self._end = -1  # Behind the last frame that was given; every row before it is explained.
        self.mark = 0
        self.layouts: dict[int, Layout] = {}
        self.instances: dict[int, tuple[int, tuple[str, ...]]] = {}

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def read(self, take: Take) -> bool:
        """Give every whole frame since the last time to ``take``; return whether there were any.

        :raises OSError: where it cannot be read any more. :raises ValueError: where it was cut short meanwhile.
        """
        head, tail, _, self.mark, _ = self._live()
        if head == self._end:
            return False
        for _ in range(_TRIES):
            try:
                if self._end < tail:
                    self._begin(tail, head, take)
                else:
                    self._end = self._walk(self._end, head, take, _ALL, explained=self._end)
            except _OvertakenError:
                self._end = -1
                head, tail, *_ = self._live()
            else:
                return True
        return True

    def explain(self, take: Take) -> None:
        """Give the explanations that are in the ring now to ``take``, but for those that are overwritten meanwhile.

        :raises OSError: as ``read``. :raises ValueError: as ``read``.
        """
        head, tail, *_ = self._live()
        self._walk(tail, head, take, EXPLAINING, explained=head)

    def _live(self) -> tuple[int, ...]:
        words = os.pread(self._file, _LIVE.size, HEAD * 8)
        return _LIVE.unpack(words) if len(words) == _LIVE.size else (self._end, 0, 0, 0, 0)

    def _begin(self, tail: int, head: int, take: Take) -> None:
        """Begin with the content of the ring: first explanations, since a row may stand before its own."""
        self.instances.clear()
        explained = self._walk(tail, head, take, EXPLAINING, explained=head)
        self._end = self._walk(tail, explained, take, EXPLAINED, explained=explained)

    def _walk(self, begin: int, head: int, take: Take, kinds: Collection[int], *, explained: int) -> int:
        """Give the frames of these kinds from ``begin`` to ``head`` to ``take``; return where the next begins.

        :raises _OvertakenError: where the writer overwrote frames after ``explained``.
        """
        tries = _TRIES
        while begin < head:
            until_round_end = self._capacity - begin % self._capacity
            if until_round_end < FRAME_BYTES:
                begin += until_round_end
                continue
            wanted = min(head - begin, until_round_end, self._piece_bytes)
            image = os.pread(self._file, wanted, HEADER_BYTES + begin % self._capacity)
            if len(image) < wanted:
                raise ValueError(f"truncated: {len(image)} of {wanted} bytes")
            tail = self._live()[1]
            if tail > begin:
                if tail > explained:
                    raise _OvertakenError
                begin = tail
                continue
            end = 0
            for place, end, kind, ident, tick_ns in whole_frames(image, begin):
                if kind in kinds:
                    take(kind, ident, tick_ns, image[place + FRAME_BYTES : end])
            if end:
                end, tries = end_of(end), _TRIES
            elif (tries := tries - 1) == 0:
                # A piece holds any frame whole, so this one is damaged; at first, stores may just not be visible yet.
                end, tries = next_whole(image, begin, 8), _TRIES
            begin += end
        return begin
