# SPDX-License-Identifier: Apache-2.0
"""The end of a ring as it grows: every frame once, in order, without reading anything twice.

Who reads keeps its place: a look that finds nothing costs a read of five words. What was overwritten before it was
read is lost; reading then begins anew with what the ring holds. ``docs/format.md`` specifies the bytes; the
rule is that of ``sysmond.ring.snapshot``: copy, look again at where the oldest frame begins, drop what was overwritten.
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

# So much is copied at a time, or a frame of the largest size, where that is more.
_PIECE_BYTES = 256 * 1024
_FRAMES_PER_RING_MIN = 8
# How often a copy is made again that was overwritten meanwhile, or shows damage: the writer may be at work there.
_TRIES = 3
# head, tail, closed, mark, dropped: neighbours in the header.
_LIVE = Struct("=5Q")

_ALL = EXPLAINING | EXPLAINED

Take = Callable[[int, int, int, bytes], None]
"""Is given kind, id, tick and payload of each frame."""


class _OvertakenError(Exception):
    """The writer was there before us."""


class Tail:
    """One ring that is followed: an open file, what explains its rows, and how far it was read."""

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
        self._end = -1  # Behind the last frame that was taken; everything before it is explained.
        self.mark = 0
        self.layouts: dict[int, Layout] = {}
        self.instances: dict[int, tuple[int, tuple[str, ...]]] = {}

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)

    def read(self, take: Take) -> bool:
        """Give every whole frame since the last time to ``take``; whether there were any."""
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

    def _live(self) -> tuple[int, ...]:
        words = os.pread(self._file, _LIVE.size, HEAD * 8)
        return _LIVE.unpack(words) if len(words) == _LIVE.size else (self._end, 0, 0, 0, 0)

    def _begin(self, tail: int, head: int, take: Take) -> None:
        """Begin with what is held: what explains comes first, for a row may stand before it."""
        self.instances.clear()
        explained = self._walk(tail, head, take, EXPLAINING, explained=head)
        self._end = self._walk(tail, explained, take, EXPLAINED, explained=explained)

    def _walk(self, begin: int, head: int, take: Take, kinds: Collection[int], *, explained: int) -> int:
        """Take the frames of these kinds from ``begin`` to ``head`` piece by piece; give where the next begins.

        :raises _OvertakenError: where the writer overwrote what lies behind ``explained``.
        """
        tries = _TRIES
        while begin < head:
            until_round_end = self._capacity - begin % self._capacity
            if until_round_end < FRAME_BYTES:
                begin += until_round_end
                continue
            wanted = min(head - begin, until_round_end, self._piece_bytes)
            image = os.pread(self._file, wanted, HEADER_BYTES + begin % self._capacity)
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
                # A piece holds any frame whole: this one is damaged. Before that we may just not see all of it yet.
                end, tries = next_whole(image, begin, 8), _TRIES
            begin += end
        return begin
