# SPDX-License-Identifier: Apache-2.0
"""The ring: a bounded file on tmpfs into which one writer puts every tick, and that anybody may read.

``docs/format.md`` specifies the bytes. The rules that make it safe without a lock:

- The file is allocated whole before use: a full tmpfs is an error at creation, never a SIGBUS.
- A frame lies in one piece, carries its own logical offset and a CRC-32, and becomes visible when
  ``head`` moves past it. Before bytes are overwritten, ``tail`` moves past the frames they held.
- A reader copies, then reads ``tail`` again and drops what was overwritten meanwhile.
- A frame that explains rows (layout, instances, text, clock) is repeated every quarter of the ring, and
  instances and clocks once more when they stop being current. No frame is longer than an eighth and all
  that is current takes at most a quarter: from the start of one repetition to the end of the next are
  then at most seven eighths (1/4 and one frame with its padding, 1/4 and once padding). So every row
  still held is explained by a frame still held.

Standard library only: the real-time sampler writes here.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from sysmond.clock import Relation
from sysmond.errors import CorruptError, Error
from sysmond.frame import (
    ABSENCE,
    CLOCK,
    CLOSED,
    CRC_START,
    DETAIL_BYTES_MAX,
    DROPPED,
    FRAME_BYTES,
    HEAD,
    HEADER_BYTES,
    I64,
    LAYOUT,
    MARK,
    NAMES,
    PAD,
    RELATION,
    REST,
    RING_BYTES_MIN,
    ROWS,
    START,
    SUFFIX,
    TAIL,
    TEXT,
    TEXT_BYTES_MAX,
    TEXTS_MAX,
    U32,
    UNFINISHED,
    VALUE_MAX,
    Identity,
    Layout,
    cut,
    encode_header,
    encode_instances,
    encode_layout,
    frame_bytes,
    read_header,
    text_id,
)
from sysmond.model import ABSENT, Cause, Sensitivity

__all__ = [
    "FRAME_BYTES",
    "RING_BYTES_MIN",
    "SUFFIX",
    "Identity",
    "Layout",
    "RingWriter",
    "Snapshot",
    "encode_layout",
    "fill",
    "snapshot",
]

# See above why these make every row explained.
_REPEATS_PER_RING = 4
_FRAMES_PER_RING_MIN = 8
# How often the header, and a copy that shows damage, is read again: the writer may be at work there.
HEADER_TRIES = 8
COPY_TRIES = 3
# Where a frame says its own offset, in words, and its kind, in half-words.
_OFFSET_WORD, _KIND_HALFWORD = 2, 4
_EXPLAINING = frozenset((LAYOUT, NAMES, TEXT, RELATION))


class Snapshot(NamedTuple):
    """A consistent copy of a ring.

    ``frames``: where in the image each whole frame begins; those that explain nothing and lie before the
    offset asked for are left out. ``damages``: from where to where the image is damaged.
    ``end_offset``: behind the last whole frame. ``lost``: bytes that were overwritten since the offset
    asked for. ``closed``: the writer ended in good order. ``mark``: layout being read.
    """

    identity: Identity
    image: bytes
    frames: list[int]
    damages: list[tuple[int, int]]
    end_offset: int
    lost: int
    closed: bool
    mark: int
    dropped: int


class _Current(NamedTuple):
    """What explains the rows of a table at present."""

    ident: int
    names: tuple[str, ...]
    rows: Struct
    payload: bytes


class RingWriter:
    """Writes one ring. The caller is the only writer; readers need no cooperation."""

    def __init__(self, path: str, capacity: int, identity: Identity, layouts: Sequence[Layout]) -> None:
        """Allocate the file and explain every table that may come.

        :raises OSError: ENOSPC where the file system cannot hold ``capacity`` bytes.
        :raises Error: where the layouts alone would take more than an eighth of it.
        """
        self.path = path
        self.capacity = capacity = max(RING_BYTES_MIN, capacity & ~7)
        self._tables = tuple(layout.table for layout in layouts)
        self._layouts = [encode_layout(layout) for layout in layouts]
        self._frame_bytes_max = capacity // _FRAMES_PER_RING_MIN
        self._explain_every = capacity // _REPEATS_PER_RING
        self._explained_at = 0
        self._explaining = False
        self._explaining_bytes = frame_bytes(CLOCK.size) + sum(frame_bytes(len(each)) for each in self._layouts)
        if self._explaining_bytes > self._frame_bytes_max:
            raise Error(f"{path}: {self._explaining_bytes} bytes of layouts; eight times that is the least capacity")
        self._current: list[_Current | None] = [None] * len(layouts)
        self._idents: dict[str, int] = {}
        self._texts: dict[int, bytes] = {}
        self._text_used: dict[int, int] = {}
        self._next_instances = 1
        self._map = _allocate(path, HEADER_BYTES + capacity, identity.sensitivity)
        header = encode_header(identity, capacity)
        self._map[: len(header)] = header
        self._words = memoryview(self._map)[:HEADER_BYTES].cast("Q")
        self._bytes = memoryview(self._map)[HEADER_BYTES:]
        self._head = 0
        self._tail = 0
        self._clock: Relation | None = None
        os.rename(path + UNFINISHED, path)
        self._explain()

    def mark(self, table: int) -> None:
        """Say which table is being read (an index into the layouts), so that a dead writer names its culprit."""
        self._words[MARK] = table + 1

    def unmark(self) -> None:
        """Say that no table is being read."""
        self._words[MARK] = 0

    def rows(self, table: int, tick_ns: int, names: tuple[str, ...], values: Sequence[int]) -> int:
        """Write one tick of a table: ``values`` holds the metrics of each of ``names`` in turn.

        A value that does not fit is stored as absent; rows that do not fit as an absence. Gives the number of
        values that were lost so.
        :raises Error: where the number of values is not instances × metrics, or a name is there twice.
        :raises UnicodeEncodeError: where a name is no text.
        """
        if len(values) != len(names) * len(self._tables[table].metrics):
            raise Error(f"{len(values)} values for {len(names)} instances of {self._tables[table].name}")
        current = self._current[table]
        if current is None or current.names != names:
            current = self._new_instances(table, tick_ns, names)
            if current is None:
                self.absence(table, tick_ns, Cause.DROPPED, f"{len(names)} instances are too many for the ring")
                self.drop(len(values))
                return len(values)
        lost = 0
        try:
            payload = current.rows.pack(*values)
        except struct.error:
            fitting = [value if -VALUE_MAX <= value <= VALUE_MAX else ABSENT for value in values]
            lost = sum(a != b for a, b in zip(fitting, values, strict=True))
            payload = current.rows.pack(*fitting)
        self._append(ROWS, current.ident, tick_ns, payload)
        return lost

    def absence(self, table: int, tick_ns: int, cause: Cause, detail: str) -> None:
        """Write why a table has no rows at this tick."""
        said = cut(detail.encode("utf-8", "replace"), DETAIL_BYTES_MAX)
        self._append(ABSENCE, table, tick_ns, cause.encode() + b"\0" + said)

    def text(self, string: str) -> int:
        """Give the id of a text, having written it where it is new; ABSENT where there are too many.

        :raises UnicodeEncodeError: where it is no text.
        """
        ident = self._idents.get(string)
        if ident is None:
            ident = self._new_text(string)
        if ident != ABSENT:
            self._text_used[ident] = self._head
        return ident

    def clock(self, relation: Relation) -> None:
        """Record how the clocks stand to each other, where that differs from what was last recorded."""
        if self._clock is None or relation.differs(self._clock):
            if self._clock is not None:  # The closing copy, as for instances.
                self._append(RELATION, 0, self._clock.boottime_ns, CLOCK.pack(*self._clock))
            self._clock = relation
            self._append(RELATION, 0, relation.boottime_ns, CLOCK.pack(*relation))

    def close(self) -> None:
        """Say that the writer ends in good order; the file stays for the archiver."""
        self._words[MARK] = 0
        self._words[CLOSED] = 1
        self._words.release()
        self._bytes.release()
        self._map.close()

    def drop(self, count: int) -> None:
        """Count values that could not be kept."""
        self._words[DROPPED] += count

    def _new_instances(self, table: int, tick_ns: int, names: tuple[str, ...]) -> _Current | None:
        """Explain the rows to come; None where they, or what explains them, would not fit."""
        if len(set(names)) != len(names) or any("\0" in name for name in names):
            raise Error(f"{self._tables[table].name}: an instance is named twice, or with a NUL in its name")
        payload = encode_instances(table, names)
        rows = Struct(f"={len(names) * len(self._tables[table].metrics)}q")
        before = self._current[table]
        size = frame_bytes(len(payload))
        grown = self._explaining_bytes + size - (frame_bytes(len(before.payload)) if before else 0)
        if max(size, frame_bytes(rows.size)) > self._frame_bytes_max or grown > self._explain_every:
            return None
        if before is not None:
            # The closing copy: it outlives every row that it explains.
            self._append(NAMES, before.ident, tick_ns, before.payload)
        self._explaining_bytes = grown
        current = _Current(self._next_instances, names, rows, payload)
        self._next_instances += 1
        self._current[table] = current
        self._append(NAMES, current.ident, tick_ns, payload)
        return current

    def _new_text(self, string: str) -> int:
        encoded = cut(string.encode("utf-8", "surrogateescape"), TEXT_BYTES_MAX)
        ident = text_id(encoded)
        while (known := self._texts.get(ident)) is not None and known[I64.size :] != encoded:
            ident = (ident + 1) & VALUE_MAX  # Two texts with one hash: the next id is free or ours.
        if known is None:
            payload = I64.pack(ident) + encoded
            grown = self._explaining_bytes + frame_bytes(len(payload))
            if len(self._idents) >= TEXTS_MAX or grown > self._explain_every:
                self.drop(1)
                return ABSENT
            self._explaining_bytes = grown
            self._texts[ident] = payload
            self._append(TEXT, 0, 0, payload)
        if len(self._idents) < TEXTS_MAX:
            self._idents[string] = ident
        return ident

    def _forget_texts(self) -> None:
        """Let go of texts that no row still held can mean: those not used for two rounds."""
        old = {ident for ident, used in self._text_used.items() if self._head - used > 2 * self.capacity}
        if old:
            self._idents = {string: ident for string, ident in self._idents.items() if ident not in old}
        for ident in old:
            self._explaining_bytes -= frame_bytes(len(self._texts.pop(ident)))
            del self._text_used[ident]

    def _explain(self) -> None:
        """Write everything that rows are explained by."""
        self._explained_at = self._head
        self._explaining = True
        self._forget_texts()
        for ident, layout in enumerate(self._layouts):
            self._append(LAYOUT, ident, 0, layout)
        for current in self._current:
            if current is not None:
                self._append(NAMES, current.ident, 0, current.payload)
        for text in self._texts.values():
            self._append(TEXT, 0, 0, text)
        if self._clock is not None:
            self._append(RELATION, 0, self._clock.boottime_ns, CLOCK.pack(*self._clock))
        self._explaining = False

    def _append(self, kind: int, ident: int, tick_ns: int, payload: bytes) -> None:
        """Write a frame; the callers keep it within ``_frame_bytes_max``."""
        length = frame_bytes(len(payload))
        to_end = self.capacity - self._head % self.capacity
        if length > to_end:
            self._put(PAD, 0, 0, bytes(max(0, to_end - FRAME_BYTES)), to_end)
        self._put(kind, ident, tick_ns, payload, length)
        if self._head - self._explained_at > self._explain_every and not self._explaining:
            self._explain()

    def _put(self, kind: int, ident: int, tick_ns: int, payload: bytes, length: int) -> None:
        head = self._head
        place = head % self.capacity
        self._make_room(length)
        if length < FRAME_BYTES:  # The end of the ring, too short for a header: readers skip it by its size.
            self._bytes[place : place + length] = bytes(length)
        else:
            rest = REST.pack(kind, len(payload) & 7, ident, head, tick_ns) + payload + bytes(-len(payload) & 7)
            self._bytes[place : place + length] = START.pack(length, crc32(rest)) + rest
        self._head = head + length
        self._words[HEAD] = self._head

    def _make_room(self, length: int) -> None:
        limit = self._head + length - self.capacity
        tail = self._tail
        if tail >= limit:
            return
        while tail < limit:
            place = tail % self.capacity
            to_end = self.capacity - place
            tail += to_end if to_end < FRAME_BYTES else U32.unpack_from(self._bytes, place)[0]
        self._tail = tail
        self._words[TAIL] = tail  # Before the bytes change: a reader that looks again sees they are gone.


def _allocate(path: str, size: int, sensitivity: Sensitivity) -> mmap.mmap:
    """Make a file of its full size under a temporary name, and map it.

    :raises OSError: as the file system says; nothing is left behind then.
    """
    folder = os.path.dirname(path) or "."
    for name in os.listdir(folder):
        if name.endswith(SUFFIX + UNFINISHED):  # A writer that was killed half-way: nobody else would remove it.
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")
    mode = 0o644 if sensitivity is Sensitivity.PUBLIC else 0o640
    temporary = path + UNFINISHED
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)  # The mode is a promise, whatever the umask.
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def snapshot(path: str, since: int = 0) -> Snapshot:
    """Copy what a ring holds from logical offset ``since`` on, and the explanations before it.

    :raises OSError: where the file cannot be read. :raises ForeignError: where it is no ring of this version.
    :raises CorruptError: where its header makes no sense, or it is overwritten faster than it can be read.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        identity, capacity = read_header(os.pread(descriptor, HEADER_BYTES, 0), path)
        if os.fstat(descriptor).st_size != HEADER_BYTES + capacity:
            raise CorruptError(f"{path}: truncated; {HEADER_BYTES + capacity} bytes are right")
        taken = None
        for _ in range(COPY_TRIES):
            taken = _take(descriptor, identity, capacity, since, path) or taken
            if taken is not None and not taken.damages:
                break  # Else we were overtaken, or do not see a store yet; if it stays so, it is damage.
    if taken is None:
        raise CorruptError(f"{path}: overwritten faster than it can be read")
    return taken


def _take(descriptor: int, identity: Identity, capacity: int, since: int, path: str) -> Snapshot | None:
    """Copy once, and look again; None where all of it was overwritten meanwhile."""
    head, tail = _bounds(descriptor, capacity, path)
    image = _copy(descriptor, capacity, tail, head)
    words = _words(descriptor)
    if len(image) != head - tail:
        raise CorruptError(f"{path}: truncated while it was read")
    held_from = max(tail, words[TAIL])
    if held_from > head:
        return None
    frames, damages, end = _walk(image, tail, capacity, held_from, since)
    return Snapshot(
        identity,
        image,
        frames,
        damages,
        min(end, head),
        max(0, held_from - since),
        bool(words[CLOSED]) and words[HEAD] == head,
        words[MARK],
        words[DROPPED],
    )


def _words(descriptor: int) -> memoryview:
    return memoryview(os.pread(descriptor, HEADER_BYTES, 0)).cast("Q")


def _bounds(descriptor: int, capacity: int, path: str) -> tuple[int, int]:
    for _ in range(HEADER_TRIES):
        words = _words(descriptor)
        head, tail = words[HEAD], words[TAIL]
        if 0 <= head - tail <= capacity and not (head | tail) & 7:
            return head, tail
        # Else the writer moved on between the two words.
    raise CorruptError(f"{path}: its head and tail do not belong together")


def _copy(descriptor: int, capacity: int, tail: int, head: int) -> bytes:
    """Copy the bytes from tail to head into one straight piece."""
    first = tail % capacity
    until_end = min(head - tail, capacity - first)
    image = os.pread(descriptor, until_end, HEADER_BYTES + first)
    if until_end < head - tail:
        image += os.pread(descriptor, head - tail - until_end, HEADER_BYTES)
    return image


def _walk(
    image: bytes, base: int, capacity: int, begin: int, since: int
) -> tuple[list[int], list[tuple[int, int]], int]:
    """Find the whole frames of a copy, the damaged stretches, and the logical offset behind the last frame."""
    view = memoryview(image)
    words, sizes, kinds = view.cast("Q"), view.cast("I"), view.cast("H")
    frames: list[int] = []
    damages: list[tuple[int, int]] = []
    stop = base + len(image) - FRAME_BYTES
    offset = end = begin
    round_end = offset - offset % capacity + capacity
    while offset <= stop:
        if round_end - offset < FRAME_BYTES:
            offset = round_end
            round_end += capacity
            continue
        place = offset - base
        length = sizes[place >> 2]
        if words[(place >> 3) + _OFFSET_WORD] == offset and length >= FRAME_BYTES:
            if offset < since and kinds[(place >> 1) + _KIND_HALFWORD] not in _EXPLAINING:
                offset = end = offset + (length & ~7)
                continue
            if crc32(image[place + CRC_START : place + length]) == sizes[(place >> 2) + 1]:
                frames.append(place)
                offset = end = offset + length
                continue
        offset = _next_whole(image, base, offset + 8)
        damages.append((place, offset - base))
        round_end = offset - offset % capacity + capacity
    return frames, damages, end


def _next_whole(image: bytes, base: int, offset: int) -> int:
    """Find the first whole frame from ``offset`` on, by looking everywhere; the end of the image if none."""
    words = memoryview(image).cast("Q")
    for place in range(offset - base, len(image) - FRAME_BYTES + 1, 8):
        if words[(place >> 3) + _OFFSET_WORD] == base + place:
            length, crc = START.unpack_from(image, place)
            if length >= FRAME_BYTES and crc32(image[place + CRC_START : place + length]) == crc:
                return base + place
    return base + len(image)


def fill(path: str) -> tuple[int, int]:
    """How many bytes a ring has been given so far, and how many it holds.

    :raises OSError: where it cannot be read. :raises ForeignError: where it is no ring.
    :raises CorruptError: where its header is damaged.
    """
    with open(path, "rb", buffering=0) as file:
        header = os.pread(file.fileno(), HEADER_BYTES, 0)
    _, capacity = read_header(header, path)
    return memoryview(header).cast("Q")[HEAD], capacity
