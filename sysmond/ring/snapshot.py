# SPDX-License-Identifier: Apache-2.0
"""Consistent copies of a ring, made while its writer goes on.

A reader copies, then reads again where the oldest frame begins, and drops what was overwritten meanwhile; offsets and
checksums of the frames show any other damage. ``docs/format.md`` specifies the bytes.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from sysmond.base import clock
from sysmond.errors import CorruptError
from sysmond.machine import listing
from sysmond.ring.frame import (
    CLOSED,
    CLOSED_MIRRORED,
    DROPPED,
    EXPLAINED,
    EXPLAINING,
    FRAME_BYTES,
    HEAD,
    HEADER_BYTES,
    MARK,
    MIRROR,
    OPENING,
    TAIL,
    Identity,
    is_mirrored,
    read_header,
)
from sysmond.ring.walk import end_of, frame_at, next_whole, offsets, whole_frames, whole_places

# How often the header, and a copy that shows damage, is read again: the writer may be writing there.
HEADER_TRIES = 8
COPY_TRIES = 3


class Snapshot(NamedTuple):
    """A consistent copy of the ring at ``path``.

    ``begin_offset``: where the image begins. ``frames``: where each whole frame begins in it, without frames before
    the requested offset that explain nothing. ``damages``: begin and end of each damaged part of the image after that
    offset. ``end_offset``: behind the last whole frame. ``lost``: bytes that were overwritten since the requested
    offset. ``since_ns``: the last tick before that offset, 0 where the ring has none. ``passed``: where the last frame
    of each kind and id before that offset begins, unchecked. ``closed``: the writer ended in order. ``mark``: the
    layout being read. ``first_ns``: in a copy of some frames, the first tick of all.
    """

    path: str
    identity: Identity
    image: bytes
    begin_offset: int
    frames: list[int]
    damages: list[tuple[int, int]]
    end_offset: int
    lost: int
    since_ns: int
    passed: dict[tuple[int, int], int]
    closed: bool
    mark: int
    dropped: int
    first_ns: int = 0

    @property
    def begins_ns(self) -> int:
        """From which boot time on a copy that was made from the beginning has all that was written."""
        if not self.lost:
            return self.identity.started_ns
        if self.first_ns:
            return self.first_ns
        frames = (frame_at(self.image, place) for place in self.frames)
        return next((tick_ns for _, _, kind, _, tick_ns in frames if kind in EXPLAINED), self.identity.started_ns)

    def frame(self, place: int) -> tuple[int, int, int, bytes]:
        """Kind, id, tick and payload of the frame that begins there."""
        _, stop, kind, ident, tick_ns = frame_at(self.image, place)
        return kind, ident, tick_ns, self.image[place + FRAME_BYTES : stop]

    def offset_at(self, place: int) -> int:
        """The logical offset of the frame that begins there."""
        *_, offset, _ = OPENING.unpack_from(self.image, place)
        return int(offset)

    def only(self, places: Sequence[int]) -> "Snapshot":
        """A copy of these frames alone, from which ``snapshot`` can go on; before its end, offsets mean nothing."""
        frames, pieces, at = [], [], 0
        for place in places:
            length, *_ = OPENING.unpack_from(self.image, place)
            frames.append(at)
            pieces.append(self.image[place : place + length])
            at += length
        return self._replace(image=b"".join(pieces), begin_offset=self.end_offset - at, frames=frames)

    def before(self) -> "Snapshot":
        """Of what lies before the offset asked for: explanations, and the last frame of each other kind and id."""
        explaining = [place for place in self.frames if self.frame(place)[0] in EXPLAINING]
        last = [place for place in self.passed.values() if any(whole_frames(self.image, self.begin_offset, place))]
        return self._replace(frames=sorted([*explaining, *last]), damages=[])


def snapshot(path: str, since: int = 0, known: Snapshot | None = None) -> Snapshot:
    """Copy the content of a ring from logical offset ``since`` on, and the explanations before it.

    ``known``: an earlier, undamaged copy of all of it, or of some frames of that. This one goes on from there, unless
    the ring is another one by now, or what comes next was overwritten.

    :raises FileNotFoundError: where it is gone. :raises PermissionError: where we may not read it.
    :raises ForeignError: where it is no ring of this version. :raises CorruptError: where its header is damaged, or
        it is overwritten faster than it can be read.
    """
    listing.look(path)
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        identity, capacity = read_header(os.pread(descriptor, HEADER_BYTES, 0), path)
        if os.fstat(descriptor).st_size != HEADER_BYTES + capacity:
            raise CorruptError(f"{path}: truncated; expected {HEADER_BYTES + capacity} bytes")
        if known is not None and (continued := _continued(known, descriptor, identity, capacity)) is not None:
            return continued
        copy = None
        for _ in range(COPY_TRIES):
            copy = _take(descriptor, identity, capacity, since, path) or copy
            if copy is not None and not copy.damages:
                break  # Else the writer overtook us, or a store is not visible yet; if that stays so, it is damage.
    if copy is None:
        raise CorruptError(f"{path}: overwritten faster than it can be read")
    return copy


def _take(descriptor: int, identity: Identity, capacity: int, since: int, path: str) -> Snapshot | None:
    """Copy once, and look again; None where all of it was overwritten meanwhile."""
    bounds = _bounds(descriptor, capacity)
    head, tail = bounds or _recovered(descriptor, capacity, path)
    image = copy_of(descriptor, capacity, tail, head)
    words = _words(descriptor)
    if len(image) != head - tail:
        raise CorruptError(f"{path}: truncated while it was read")
    valid_from = max(tail, words[TAIL]) if bounds else tail
    if valid_from > head:
        return None
    frames, damages, end, since_ns, passed = _walk(image, tail, capacity, valid_from, since)
    return Snapshot(
        path,
        identity,
        image,
        tail,
        frames,
        damages,
        min(end, head),
        max(0, valid_from - since),
        since_ns,
        passed,
        _is_closed(words) and (not bounds or words[HEAD] == head),
        words[MARK],
        words[DROPPED],
    )


def _continued(known: Snapshot, descriptor: int, identity: Identity, capacity: int) -> Snapshot | None:
    """A copy with what was written since it was made; None where it must be made anew."""
    bounds = _bounds(descriptor, capacity)
    begin = known.end_offset
    if bounds is None or known.identity != identity or not bounds[1] <= begin <= bounds[0]:
        return None
    head, _ = bounds
    new = copy_of(descriptor, capacity, begin, head)
    words = _words(descriptor)
    if len(new) != head - begin or words[TAIL] > begin:
        return None
    is_closed = _is_closed(words) and words[HEAD] == head
    if not new and (is_closed, words[MARK], words[DROPPED]) == (known.closed, known.mark, known.dropped):
        return known
    image = known.image[: begin - known.begin_offset] + new
    frames, damages, end, _, _ = _walk(image, head - len(image), capacity, begin, 0)
    if damages:
        return None
    return known._replace(
        image=image,
        begin_offset=head - len(image),
        frames=known.frames + frames,
        end_offset=min(end, head),
        closed=is_closed,
        mark=words[MARK],
        dropped=words[DROPPED],
    )


def _words(descriptor: int) -> memoryview:
    return memoryview(os.pread(descriptor, HEADER_BYTES, 0)).cast("Q")


def _bounds(descriptor: int, capacity: int) -> tuple[int, int] | None:
    """Head and tail; None where they are damaged in the header."""
    for _ in range(HEADER_TRIES):
        words = _words(descriptor)
        head, tail = words[HEAD], words[TAIL]
        is_said_twice = (head, tail) == (words[HEAD + MIRROR], words[TAIL + MIRROR])
        if (is_said_twice or not is_mirrored(words.tobytes())) and _belong_together(head, tail, capacity):
            return head, tail
        # Else the writer moved on between the words.
    return None


def _belong_together(head: int, tail: int, capacity: int) -> bool:
    return 0 <= head - tail <= capacity and not (head | tail) & 7


def _recovered(descriptor: int, capacity: int, path: str) -> tuple[int, int]:
    """Head and tail by the frames themselves, each of which has its own logical offset.

    :raises CorruptError: where there is no frame.
    """
    image = os.pread(descriptor, capacity, HEADER_BYTES)
    words = offsets(image)
    begins: list[int] = []
    head = place = 0
    while place <= len(image) - FRAME_BYTES:
        end = place
        if words[place >> 3] % capacity == place:
            begin = words[place >> 3] - place
            for start, stop, *_ in whole_frames(image, begin, place):
                begins.append(begin + start)
                end = end_of(stop)
                head = max(head, begin + end)
        place = max(place + 8, end)
    if not begins:
        raise CorruptError(f"{path}: its head and tail do not belong together")
    return head, min(offset for offset in begins if offset >= head - capacity)


def _is_closed(words: memoryview) -> bool:
    """Whether the writer ended in order: by the copy of the word, which no single flipped bit can produce."""
    said = words[CLOSED + MIRROR]
    return bool(
        said == CLOSED_MIRRORED if said in {0, CLOSED_MIRRORED} and is_mirrored(words.tobytes()) else words[CLOSED]
    )


def copy_of(descriptor: int, capacity: int, tail: int, head: int) -> bytes:
    """Copy the bytes from tail to head into one contiguous piece."""
    first = tail % capacity
    until_end = min(head - tail, capacity - first)
    image = os.pread(descriptor, until_end, HEADER_BYTES + first)
    if until_end < head - tail:
        image += os.pread(descriptor, head - tail - until_end, HEADER_BYTES)
    return image


def _walk(
    image: bytes, base: int, capacity: int, begin: int, since: int
) -> tuple[list[int], list[tuple[int, int]], int, int, dict[tuple[int, int], int]]:
    """Find the whole frames, the damaged parts, the offset behind the last frame, ``since_ns`` and ``passed``."""
    frames: list[int] = []
    passed: dict[tuple[int, int], int] = {}
    damages: list[tuple[int, int]] = []
    at = end = stop = begin - base
    checked, since_ns = since - base, 0
    while at <= len(image) - FRAME_BYTES:
        if checked <= at:
            places, stop = whole_places(image, base, at)
            frames += places
        else:
            # Frames before the requested offset, where one begins, are passed over unchecked.
            for place, stop, kind, ident, tick_ns in whole_frames(image, base, at, since):
                if stop > checked or kind in EXPLAINING:
                    frames.append(place)
                else:
                    since_ns = tick_ns or since_ns
                    passed[kind, ident] = place
        if stop > at:
            at = end = end_of(stop)
        if (to_round_end := capacity - (base + at) % capacity) < FRAME_BYTES:
            at += to_round_end
        elif at <= len(image) - FRAME_BYTES:
            place, at = at, next_whole(image, base, at + 8)
            if at > checked:
                damages.append((place, at))
    return frames, damages, base + end, since_ns, passed


def fill(path: str) -> tuple[int, int]:
    """How many bytes were written to a ring so far, and its capacity in bytes.

    :raises OSError: where it cannot be read. :raises ForeignError: where it is no ring.
    :raises CorruptError: where its header is damaged.
    """
    header = _header(path)
    _, capacity = read_header(header, path)
    return memoryview(header).cast("Q")[HEAD], capacity


def reach_ns(path: str) -> int:
    """About how far back a ring of this boot goes: as far as its writer needs to fill it, on the mean; as ``fill``."""
    identity, _ = identify(path)
    written, capacity = fill(path)
    return (clock.boottime_ns() - identity.started_ns) * min(written, capacity) // max(written, 1)


def identify(path: str) -> tuple[Identity, int]:
    """Who writes a ring, and its capacity in bytes; raises as ``fill``."""
    return read_header(_header(path), path)


def _header(path: str) -> bytes:
    listing.look(path)
    with open(path, "rb", buffering=0) as file:
        return os.pread(file.fileno(), HEADER_BYTES, 0)
