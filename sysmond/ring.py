# SPDX-License-Identifier: Apache-2.0
"""The ring: a bounded file on tmpfs into which one writer puts every tick, and that anybody may read.

``docs/format.md`` specifies the bytes. The rules that make it safe without a lock:

- The file is allocated whole before use: a full tmpfs is an error at creation, never a SIGBUS.
- A frame lies in one piece, carries its own logical offset and a CRC-32, and becomes visible when
  ``head`` moves past it. Before bytes are overwritten, ``tail`` moves past the frames they held.
- A reader copies, then reads ``tail`` again and drops what was overwritten meanwhile.
- A frame that explains rows (layout, instances, text) is repeated every quarter of the ring, and once
  more when it stops being current: every row still held is explained by a frame still held.

Standard library only: the real-time sampler writes here.
"""

import json
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from sysmond.clock import Relation
from sysmond.errors import CorruptError, Error, ForeignError
from sysmond.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table

MAGIC = b"SYSMRING"
VERSION = 1
HEADER_BYTES = 4096
RING_BYTES_MIN = 64 * 1024
SUFFIX = ".ring"

# magic, version, header bytes, capacity, boot, writer, sensitivity, pid, start
_HEADER = Struct("=8sIIQ32s16s16sqq")
# Live words of the header, as indexes of 8-byte words; each is stored in one machine instruction.
_HEAD, _TAIL, _CLOSED, _MARK, _DROPPED = range(32, 37)

# length, crc, kind, unused, id, logical offset, tick
_FRAME = Struct("=IIHHIQq")
FRAME_BYTES = _FRAME.size
_CRC_START = 8
_CLOCK = Struct("=qqq")
_U32 = Struct("=I")
_INSTANCES = Struct("=II")
_I64 = Struct("=q")

# A quarter: any row still held then has its explanation within the ring, with room to spare.
_REPEATS_PER_RING = 4
DETAIL_BYTES_MAX = 200
TEXT_BYTES_MAX = 4096
TEXTS_MAX = 1024
HEADER_TRIES = 8
INT64_MAX = 2**63 - 1
# Half of 64 bits, so that the difference of any two values fits as well; what is beyond is a kernel's "no limit".
VALUE_MAX = 2**62 - 1


class Kind(IntEnum):
    """What a frame holds."""

    PAD = 0
    LAYOUT = 1
    INSTANCES = 2
    ROWS = 3
    ABSENCE = 4
    TEXT = 5
    CLOCK = 6


_EXPLAINING = frozenset((Kind.LAYOUT, Kind.INSTANCES, Kind.TEXT, Kind.CLOCK))


class Layout(NamedTuple):
    """A table as a ring or file carries it: its columns and how often it is read."""

    table: Table
    interval_ns: int


class Frame(NamedTuple):
    """One frame. ``ident``: id of the layout or the instances it defines or refers to."""

    kind: int
    ident: int
    offset: int
    tick_ns: int
    payload: memoryview


class Identity(NamedTuple):
    """Who wrote a ring: boot, part, class, process, and when it started."""

    boot: str
    writer: str
    sensitivity: Sensitivity
    pid: int
    started_ns: int


class Snapshot(NamedTuple):
    """A consistent copy of a ring. ``closed``: the writer ended in good order. ``mark``: layout being read."""

    identity: Identity
    frames: list[Frame]
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


class RingWriter:
    """Writes one ring. The caller is the only writer; readers need no cooperation."""

    def __init__(self, path: str, capacity: int, identity: Identity, layouts: Sequence[Layout]) -> None:
        """Allocate the file and explain every table that may come.

        :raises OSError: ENOSPC where the file system cannot hold ``capacity`` bytes.
        """
        self.path = path
        self.capacity = capacity = max(RING_BYTES_MIN, capacity & ~7)
        self._layouts = tuple(layouts)
        self._explain_every = capacity // _REPEATS_PER_RING
        self._explained_at = 0
        self._explaining = False
        self._current: list[_Current | None] = [None] * len(layouts)
        self._texts: dict[int, str] = {}
        self._next_instances = 1
        mode = 0o644 if identity.sensitivity is Sensitivity.PUBLIC else 0o640
        temporary = f"{path}.new"
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)  # The mode is a promise, whatever the umask.
            os.posix_fallocate(descriptor, 0, HEADER_BYTES + capacity)
            self._map = mmap.mmap(descriptor, HEADER_BYTES + capacity)
        except OSError:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        _HEADER.pack_into(
            self._map,
            0,
            MAGIC,
            VERSION,
            HEADER_BYTES,
            capacity,
            identity.boot.encode(),
            identity.writer.encode(),
            identity.sensitivity.encode(),
            identity.pid,
            identity.started_ns,
        )
        self._words = memoryview(self._map)[:HEADER_BYTES].cast("Q")
        self._bytes = memoryview(self._map)[HEADER_BYTES:]
        self._head = 0
        self._tail = 0
        self._clock: Relation | None = None
        os.rename(temporary, path)
        self._explain()

    def mark(self, table: int) -> None:
        """Say which table is being read (an index into the layouts), so that a dead writer names its culprit."""
        self._words[_MARK] = table + 1

    def unmark(self) -> None:
        """Say that no table is being read."""
        self._words[_MARK] = 0

    def rows(self, table: int, tick_ns: int, names: tuple[str, ...], values: Sequence[int]) -> int:
        """Write one tick of a table: ``values`` holds the metrics of each of ``names`` in turn.

        A value that does not fit is stored as absent. Gives the number of such values.
        :raises Error: where the number of values is not instances × metrics.
        """
        current = self._current[table]
        if current is None or current.names != names:
            current = self._new_instances(table, tick_ns, names)
        packing = current.rows
        if len(values) * 8 != packing.size:
            raise Error(f"{len(values)} values for {len(names)} instances of {self._layouts[table].table.name}")
        lost = 0
        try:
            payload = packing.pack(*values)
        except struct.error:
            fitting = [value if -VALUE_MAX <= value <= VALUE_MAX else ABSENT for value in values]
            lost = sum(a is not b for a, b in zip(fitting, values, strict=True))
            payload = packing.pack(*fitting)
        self._append(Kind.ROWS, current.ident, tick_ns, payload)
        return lost

    def absence(self, table: int, tick_ns: int, cause: Cause, detail: str) -> None:
        """Write why a table has no rows at this tick."""
        said = detail.encode("utf-8", "replace")[:DETAIL_BYTES_MAX]
        self._append(Kind.ABSENCE, table, tick_ns, cause.encode() + b"\0" + said)

    def text(self, string: str) -> int:
        """Give the id of a text, having written it where it is new; ABSENT where there are too many."""
        encoded = string.encode("utf-8", "surrogateescape")[:TEXT_BYTES_MAX]
        ident = text_id(encoded)
        while (known := self._texts.get(ident)) is not None and known != string:
            ident = (ident + 1) & INT64_MAX  # Two texts with one hash: the next id is free or ours.
        if known is None:
            if len(self._texts) >= TEXTS_MAX:
                self.drop(1)
                return ABSENT
            self._texts[ident] = string
            self._append(Kind.TEXT, 0, 0, _I64.pack(ident) + encoded)
        return ident

    def clock(self, relation: Relation) -> None:
        """Record how the clocks stand to each other, where that differs from what was last recorded."""
        if self._clock is None or relation.differs(self._clock):
            if self._clock is not None:  # The closing copy, as for instances.
                self._append(Kind.CLOCK, 0, self._clock.boottime_ns, _CLOCK.pack(*self._clock))
            self._clock = relation
            self._append(Kind.CLOCK, 0, relation.boottime_ns, _CLOCK.pack(*relation))

    def close(self) -> None:
        """Say that the writer ends in good order; the file stays for the archiver."""
        self._words[_MARK] = 0
        self._words[_CLOSED] = 1
        self._words.release()
        self._bytes.release()
        self._map.close()

    def drop(self, count: int) -> None:
        """Count values that could not be kept."""
        self._words[_DROPPED] += count

    def _new_instances(self, table: int, tick_ns: int, names: tuple[str, ...]) -> _Current:
        before = self._current[table]
        if before is not None:
            # The closing copy: it outlives every row that it explains.
            self._append(Kind.INSTANCES, before.ident, tick_ns, _instances(table, before.names))
        count = len(names) * len(self._layouts[table].table.metrics)
        current = _Current(self._next_instances, names, Struct(f"={count}q"))
        self._next_instances += 1
        self._current[table] = current
        self._append(Kind.INSTANCES, current.ident, tick_ns, _instances(table, names))
        return current

    def _explain(self) -> None:
        """Write everything that rows are explained by."""
        self._explained_at = self._head
        self._explaining = True
        for ident, layout in enumerate(self._layouts):
            self._append(Kind.LAYOUT, ident, 0, encode_layout(layout))
        for table, current in enumerate(self._current):
            if current is not None:
                self._append(Kind.INSTANCES, current.ident, 0, _instances(table, current.names))
        for ident, string in self._texts.items():
            self._append(Kind.TEXT, 0, 0, _I64.pack(ident) + string.encode("utf-8", "surrogateescape"))
        if self._clock is not None:
            self._append(Kind.CLOCK, 0, self._clock.boottime_ns, _CLOCK.pack(*self._clock))
        self._explaining = False

    def _append(self, kind: Kind, ident: int, tick_ns: int, payload: bytes) -> None:
        length = (FRAME_BYTES + len(payload) + 7) & ~7
        if length > self.capacity // 8:
            self.drop(1)
            return
        to_end = self.capacity - self._head % self.capacity
        if length > to_end:
            self._put(Kind.PAD, 0, 0, bytes(to_end - FRAME_BYTES) if to_end > FRAME_BYTES else b"", to_end)
        self._put(kind, ident, tick_ns, payload, length)
        if self._head - self._explained_at > self._explain_every and not self._explaining:
            self._explain()

    def _put(self, kind: Kind, ident: int, tick_ns: int, payload: bytes, length: int) -> None:
        head = self._head
        place = head % self.capacity
        target = self._bytes
        self._make_room(length)
        if length < FRAME_BYTES:  # The end of the ring, too short for a header: readers skip it by its size.
            target[place : place + length] = bytes(length)
        else:
            start = place + FRAME_BYTES
            end = place + length
            target[start : start + len(payload)] = payload
            for padding in range(start + len(payload), end):
                target[padding] = 0
            _FRAME.pack_into(target, place, length, 0, kind, len(payload) & 7, ident, head, tick_ns)
            _U32.pack_into(target, place + 4, crc32(target[place + _CRC_START : end]))
        self._head = head + length
        self._words[_HEAD] = self._head

    def _make_room(self, length: int) -> None:
        limit = self._head + length - self.capacity
        tail = self._tail
        if tail >= limit:
            return
        while tail < limit:
            place = tail % self.capacity
            to_end = self.capacity - place
            tail += to_end if to_end < FRAME_BYTES else _U32.unpack_from(self._bytes, place)[0]
        self._tail = tail
        self._words[_TAIL] = tail  # Before the bytes change: a reader that looks again sees they are gone.


def snapshot(path: str, since: int = 0) -> Snapshot:
    """Copy what a ring holds from logical offset ``since`` on, and the explanations before it.

    ``lost`` counts the bytes between ``since`` and the oldest frame still held.
    :raises OSError: where the file cannot be read. :raises ForeignError: where it is no ring of this version.
    :raises CorruptError: where its header makes no sense.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        identity, capacity = read_header(os.pread(descriptor, HEADER_BYTES, 0), path)
        for _ in range(HEADER_TRIES):
            words = _words(descriptor)
            head, tail = words[_HEAD], words[_TAIL]
            if 0 <= head - tail <= capacity:
                break  # Else the writer moved on between the two words.
        else:
            raise CorruptError(f"{path}: its head and tail do not belong together")
        image = _copy(descriptor, capacity, tail, head)
        words = _words(descriptor)
    held_from = max(tail, words[_TAIL])
    frames = list(_frames(image, capacity, tail, head, held_from, since))
    return Snapshot(
        identity, frames, head, max(0, held_from - since), bool(words[_CLOSED]), words[_MARK], words[_DROPPED]
    )


def _words(descriptor: int) -> memoryview:
    return memoryview(os.pread(descriptor, HEADER_BYTES, 0)).cast("Q")


def read_header(header: bytes, path: str) -> tuple[Identity, int]:
    """Read who wrote a ring, and its capacity.

    :raises ForeignError: where it is no ring of this version.
    """
    if len(header) < HEADER_BYTES or header[: len(MAGIC)] != MAGIC:
        raise ForeignError(f"{path}: not a ring")
    _, version, header_bytes, capacity, boot, writer, sensitivity, pid, started_ns = _HEADER.unpack_from(header)
    if version != VERSION or header_bytes != HEADER_BYTES:
        raise ForeignError(f"{path}: a ring of version {version}; this program reads {VERSION}")
    identity = Identity(
        boot.rstrip(b"\0").decode("ascii", "replace"),
        writer.rstrip(b"\0").decode("ascii", "replace"),
        Sensitivity(sensitivity.rstrip(b"\0").decode("ascii", "replace")),
        pid,
        started_ns,
    )
    return identity, capacity


def _copy(descriptor: int, capacity: int, tail: int, head: int) -> memoryview:
    """Copy the bytes from tail to head into one straight piece."""
    first = tail % capacity
    length = head - tail
    until_end = min(length, capacity - first)
    image = bytearray(length)
    os.preadv(descriptor, [memoryview(image)[:until_end]], HEADER_BYTES + first)
    if until_end < length:
        os.preadv(descriptor, [memoryview(image)[until_end:]], HEADER_BYTES)
    return memoryview(image).toreadonly()


def _frames(image: memoryview, capacity: int, tail: int, head: int, held_from: int, since: int) -> Iterator[Frame]:
    offset = tail
    while offset < head:
        to_end = capacity - offset % capacity
        if to_end < FRAME_BYTES:
            offset += to_end
            continue
        place = offset - tail
        if len(image) - place < FRAME_BYTES:
            return
        length, crc, kind, remainder, ident, said_offset, tick_ns = _FRAME.unpack_from(image, place)
        whole = said_offset == offset and FRAME_BYTES <= length <= len(image) - place
        if offset < held_from:
            # May have been overwritten while it was copied: then go on where the writer says frames are whole.
            offset = offset + length if whole else held_from
            continue
        explains = kind in _EXPLAINING
        if explains or offset >= since:
            if not whole or crc32(image[place + _CRC_START : place + length]) != crc:
                return  # A store that this processor does not see yet, or damage: what follows is unknown.
            if kind != Kind.PAD:
                end = place + length - (-remainder & 7)
                yield Frame(kind, ident, offset, tick_ns, image[place + FRAME_BYTES : end])
        elif not whole:
            return
        offset += length


def text_id(encoded: bytes) -> int:
    """FNV-1a over 64 bits, less the sign: hashlib would cost the sampler megabytes of locked memory."""
    value = 0xCBF29CE484222325
    for byte in encoded:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value & INT64_MAX


def encode_layout(layout: Layout) -> bytes:
    """Spell a layout as the JSON of a layout frame."""
    table = layout.table
    return json.dumps(
        [layout.interval_ns, table.name, table.per, table.doc, [list(metric) for metric in table.metrics]],
        separators=(",", ":"),
    ).encode()


def decode_layout(payload: bytes | memoryview) -> Layout:
    """Read the payload of a layout frame."""
    interval_ns, name, per, doc, metrics = json.loads(bytes(payload))
    columns = tuple(
        Metric(column, unit, Semantics(semantics), said, scale, origin)
        for column, unit, semantics, said, scale, origin in metrics
    )
    return Layout(Table(name, columns, per, doc), interval_ns)


def _instances(table: int, names: tuple[str, ...]) -> bytes:
    return _INSTANCES.pack(table, len(names)) + "\0".join(names).encode("utf-8", "surrogateescape")


def decode_instances(payload: memoryview) -> tuple[int, tuple[str, ...]]:
    """Read the payload of an instances frame: the layout they belong to, and their names."""
    table, count = _INSTANCES.unpack_from(payload)
    names = bytes(payload[_INSTANCES.size :]).decode("utf-8", "surrogateescape").split("\0")
    return table, tuple(names[:count])


def decode_absence(payload: memoryview) -> tuple[Cause, str]:
    """Read the payload of an absence frame."""
    cause, _, detail = bytes(payload).partition(b"\0")
    return Cause(cause.decode()), detail.decode("utf-8", "replace")


def decode_text(payload: memoryview) -> tuple[int, str]:
    """Read the payload of a text frame: its id and the text."""
    return _I64.unpack_from(payload)[0], bytes(payload[8:]).decode("utf-8", "surrogateescape")


def decode_clock(payload: memoryview) -> Relation:
    """Read the payload of a clock frame."""
    return Relation(*_CLOCK.unpack_from(payload))


def fill(path: str) -> tuple[int, int]:
    """How many bytes a ring has been given so far, and how many it holds.

    :raises OSError: where it cannot be read. :raises ForeignError: where it is no ring.
    """
    with open(path, "rb", buffering=0) as file:
        header = os.pread(file.fileno(), HEADER_BYTES, 0)
    _, capacity = read_header(header, path)
    return memoryview(header).cast("Q")[_HEAD], capacity
