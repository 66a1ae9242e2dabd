# SPDX-License-Identifier: Apache-2.0
"""What happened, from a ring: its events are few among many frames, so they are picked out and not walked to.

A frame says its own logical offset, so all places where one may begin are found by one comparison of the whole ring.
Where these do not follow each other without a hole the ring is damaged, was overwritten meanwhile, or has a text that
looks like a frame: then it is read with all care, frame by frame (``ring.snapshot``).
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import Relation
from sysmond.base.result import Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.errors import CorruptError
from sysmond.machine import listing
from sysmond.ring.frame import (
    EVENT,
    EXPLAINED,
    FRAME_BYTES,
    HEAD,
    HEADER_BYTES,
    RELATION,
    TAIL,
    Identity,
    decode_clock,
    decode_event,
    read_header,
)
from sysmond.ring.snapshot import Snapshot, copy_of, snapshot
from sysmond.ring.walk import Frame, whole_frames
from sysmond.store.of_ring import BootEvent, Recording, of_snapshot
from sysmond.store.ring_reach import RingBegin

_WORD_BYTES = 8
# Where a frame has its length in units of 32 bits, its kind in units of 16 bits, its logical offset in words.
_LENGTHS_PER_WORD, _KINDS_PER_WORD = 2, 4
_KIND_AT, _OFFSET_AT = 4, 2


class RingEvents(NamedTuple):
    """What a ring tells of events: since when, which, and how its clocks stood. ``damage``: in words."""

    begin: RingBegin
    events: Sequence[BootEvent]
    relations: Sequence[Relation]
    damage: str = ""


def read(path: str, since: int = 0) -> RingEvents:
    """What happened, by a ring, from the logical offset ``since`` on; its clocks are those of all of it.

    :raises FileNotFoundError: where it is gone. :raises PermissionError: where we may not read it.
    :raises ForeignError: where it is no ring of this version. :raises CorruptError: where it is damaged, so that nobody
        can say what it has, or overwritten faster than it can be read.
    """
    picked = _picked(path, since)
    if picked is not None:
        return picked
    copied = snapshot(path, since)
    return of_copy(copied, of_snapshot(copied))


def of_copy(copied: Snapshot, recording: Recording) -> RingEvents:
    """What happened, by a copy of a ring, and by what that means."""
    (relations,) = recording.clocks.values()
    return RingEvents(
        _begin(copied.identity, copied.begins_ns, bool(copied.lost)), recording.events, relations, recording.damage
    )


def _begin(identity: Identity, begins_ns: int, went_round: bool) -> RingBegin:  # noqa: FBT001  as its fields are
    return RingBegin(identity.writer, identity.sensitivity, identity.boot, begins_ns, went_round)


def _picked(path: str, since: int) -> RingEvents | None:
    """The same without care; None where that does not do."""
    listing.look(path)
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        try:
            identity, capacity = read_header(os.pread(descriptor, HEADER_BYTES, 0), path)
        except CorruptError:
            return None
        head, tail = _ends(descriptor)
        if not 0 <= head - tail <= capacity or (head | tail) % _WORD_BYTES:
            return None
        image = copy_of(descriptor, capacity, tail, head)
        begin = max(tail, _ends(descriptor)[1])  # What lies before it may have been overwritten meanwhile.
    places = _places(image, tail, begin, capacity) if begin <= head and len(image) == head - tail else None
    if places is None:
        return None
    frames = _frames(image, tail, places)
    begins_ns = _first_tick_ns(image, tail, places) if begin else identity.started_ns
    return None if frames is None else _decoded(_begin(identity, begins_ns, begin > 0), image, (tail, since), frames)


def _ends(descriptor: int) -> tuple[int, int]:
    words = memoryview(os.pread(descriptor, HEADER_BYTES, 0)).cast("Q")
    return words[HEAD], words[TAIL]


def _decoded(
    begin: RingBegin, image: bytes, tail_and_since: tuple[int, int], frames: Sequence[Frame]
) -> RingEvents | None:
    tail, since = tail_and_since
    events, relations = [], set()
    try:
        for place, stop, kind, _, tick_ns in frames:
            payload = image[place + FRAME_BYTES : stop]
            if kind == RELATION:
                relations.add(decode_clock(payload))
            elif tail + place >= since:
                events.append(BootEvent(begin.boot, tick_ns, *decode_event(payload)))
    except ValueError:
        return None
    return RingEvents(begin, events, sorted(relations))


def _places(image: bytes, tail: int, begin: int, capacity: int) -> Int64Array | None:
    """Where frames begin from the logical offset ``begin`` on, int64[frame]; None where not all of it is whole.

    ``image`` begins at the logical offset ``tail``.
    """
    words = np.frombuffer(image, np.int64)[_OFFSET_AT:]
    places = np.flatnonzero(words == np.arange(tail, tail + len(words) * _WORD_BYTES, _WORD_BYTES))
    places = places[(places * _WORD_BYTES >= begin - tail) & (places * _WORD_BYTES <= len(image) - FRAME_BYTES)]
    starts = places * _WORD_BYTES
    ends = starts + np.frombuffer(image, np.uint32)[places * _LENGTHS_PER_WORD]
    expected = _beyond_round_end(np.append(begin - tail, ends), tail, capacity)
    if not np.array_equal(np.append(starts, _beyond_round_end(np.array([len(image)]), tail, capacity)), expected):
        return None
    return starts


def _frames(image: bytes, tail: int, places: Int64Array) -> list[Frame] | None:
    """The frames of events and clocks among these; None where one is not whole."""
    kinds = np.frombuffer(image, np.uint16)[places // _WORD_BYTES * _KINDS_PER_WORD + _KIND_AT]
    frames: list[Frame] = []
    for place in places[(kinds == EVENT) | (kinds == RELATION)].tolist():
        frame = next(whole_frames(image, tail, place), None)
        if frame is None:
            return None
        frames.append(frame)
    return frames


def _first_tick_ns(image: bytes, tail: int, places: Int64Array) -> int:
    """The first tick of which anything is there; the end of time where nothing is."""
    frames = (next(whole_frames(image, tail, place), None) for place in places.tolist())
    return next((frame[-1] for frame in frames if frame and frame[2] in EXPLAINED), ALWAYS_NS)


def _beyond_round_end(places: Int64Array, tail: int, capacity: int) -> Int64Array:
    """Where frames begin that follow each other, int64[frame]: none where less than an opening of the round is left."""
    left = capacity - (places + tail) % capacity
    return places + np.where(left < FRAME_BYTES, left, 0)
