# SPDX-License-Identifier: Apache-2.0
"""The ring: a bounded file on tmpfs into which one writer puts every tick, and that anybody may read.

``docs/format.md`` specifies the bytes. The rules that make it safe without a lock:

- The file is allocated whole before use: a full tmpfs is an error at creation, never a SIGBUS.
- A frame lies in one piece, carries its own logical offset and a CRC-32, and becomes visible when
  ``head`` moves past it. Before bytes are overwritten, ``tail`` moves past the frames they held.
- A reader copies, then reads ``tail`` again and drops what was overwritten meanwhile.
- A frame that explains rows (layout, instances, text, clock) stands twice from the first row on that it explains,
  before it and behind it: no single damage makes rows unreadable that it does not hit. So does the header.
- It is repeated every quarter of the ring, and layouts, instances and clocks once more when they stop being current.
  No frame is longer than an eighth and all that is current takes at most a quarter: from the start of one repetition
  to the end of the next are then at most seven eighths (1/4 and one frame with its padding, 1/4 and once padding). So
  every row in the ring is explained by a frame in it.

Standard library only: the real-time sampler writes here.
"""

import mmap
import os
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Sensitivity
from sysmond.errors import Error
from sysmond.machine import note
from sysmond.machine.folders import FILE_MODES, Folders, create, create_classes, create_stream
from sysmond.machine.note import TEMPORARY_SUFFIX
from sysmond.records import Records
from sysmond.ring.frame import (
    ABSENCE,
    CLOCK,
    CLOSED,
    CLOSED_MIRRORED,
    DETAIL_BYTES_MAX,
    DROPPED,
    EVENT,
    EXPLAINING,
    FRAME_BYTES,
    FULL,
    HEAD,
    HEADER_BYTES,
    I64,
    LAYOUT,
    MARK,
    MIRROR,
    MIRROR_BYTES,
    MORE,
    NAMES,
    PAD,
    RECORDS,
    RECORDS_HEAD,
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
    VALUE_MAX,
    Identity,
    Layout,
    cut,
    encode_event,
    encode_header,
    encode_instances,
    encode_layout,
    frame_bytes,
    text_id,
)

# The opening of this file says why these explain every row.
_REPEATS_PER_RING = 4
_FRAMES_PER_RING_MIN = 8
# Frames that are joined before they go into the ring are copied three times, in memory that the writer keeps: the
# bytes of a long reading that are joined at once.
_COPIED_BYTES_MAX = 128 * 1024
# Python has no name for it (madvise(2)).
MADV_POPULATE_WRITE = 23


class _Current(NamedTuple):
    """The explanation of a table's rows at present."""

    ident: int
    names: tuple[str, ...]
    rows: Struct
    payload: bytes


class RingWriter:
    """Writes one ring. The caller is the only writer; readers need no cooperation.

    ``wanted_bytes``: the capacity that rows without room would have needed; 0 where all had room.
    """

    def __init__(
        self, path: str, capacity: int, identity: Identity, layouts: Sequence[Layout], *, stays: bool = False
    ) -> None:
        """Allocate the file and explain every table that may come.

        ``stays``: have all of it in the memory of this process from now on, and never in swap where that is locked.

        :raises OSError: ENOSPC where the file system cannot hold ``capacity`` bytes.
        :raises Error: where the layouts alone would take more than an eighth of it.
        """
        self.path = path
        self.capacity = capacity = max(RING_BYTES_MIN, capacity & ~7)
        self.wanted_bytes = 0
        self._tables = [layout.table for layout in layouts]
        # None once retired: numbers are not used again.
        self._layouts: list[bytes | None] = [encode_layout(layout) for layout in layouts]
        self._frame_bytes_max = capacity // _FRAMES_PER_RING_MIN
        self._explain_every = capacity // _REPEATS_PER_RING
        self._explained_at = 0
        self._explaining = False
        self._layouts_bytes = sum(frame_bytes(len(encoded)) for encoded in self._layouts if encoded)
        self._explaining_bytes = frame_bytes(CLOCK.size) + self._layouts_bytes
        self._check_room(self._explaining_bytes)
        self._current: list[_Current | None] = [None] * len(layouts)
        self._idents: dict[str, int] = {}
        self._texts: dict[int, bytes] = {}
        self._text_used: dict[int, int] = {}
        self._next_instances = 1
        self._sensitivity = identity.sensitivity
        self._stays = stays
        with _allocate(path, HEADER_BYTES + capacity, identity.sensitivity, stays=stays) as (self._map, self._file):
            header = encode_header(identity, capacity)
            for at in (0, MIRROR_BYTES):
                self._map[at : at + len(header)] = header
        self._words = memoryview(self._map)[:HEADER_BYTES].cast("Q")
        self._bytes = memoryview(self._map)[HEADER_BYTES:]
        self._head = 0  # Behind the last frame, published or pending.
        self._published = 0
        self._tail = 0
        self._pending: list[bytes] | None = None
        self._written: list[tuple[int, bytes]] = [(0, b"")] * len(layouts)
        self._clock: Relation | None = None
        self._once: list[tuple[int, int, int, bytes]] = []  # Explaining frames that stand in one place only.
        for ident, layout in enumerate(self._layouts):
            if layout is not None:
                self._append(LAYOUT, ident, 0, layout)

    def add(self, layout: Layout) -> int:
        """Explain one more table from here on, and return its number; that of an equal layout where there is one.

        :raises Error: where the layouts would take more than an eighth of the ring, or all explanations more than
            a quarter; then nothing is changed.
        """
        encoded = encode_layout(layout)
        if encoded in self._layouts:
            return self._layouts.index(encoded)
        size = frame_bytes(len(encoded))
        self._check_room(self._layouts_bytes + size + frame_bytes(CLOCK.size))
        if self._explaining_bytes + size > self._explain_every:
            raise Error(f"{self.path}: no room for what explains {layout.table.name}; expected a larger ring")
        self._layouts_bytes += size
        self._explaining_bytes += size
        self._tables.append(layout.table)
        self._layouts.append(encoded)
        self._current.append(None)
        self._written.append((0, b""))
        number = len(self._layouts) - 1
        self._append(LAYOUT, number, 0, encoded)
        return number

    def retire(self, table: int) -> None:
        """Explain a table one last time: no more of its rows will be written."""
        layout, current = self._layouts[table], self._current[table]
        if layout is None:
            return
        self._write(LAYOUT, table, 0, layout)
        if current is not None:
            self._write(NAMES, current.ident, 0, current.payload)
            self._explaining_bytes -= frame_bytes(len(current.payload))
        self._layouts_bytes -= frame_bytes(len(layout))
        self._explaining_bytes -= frame_bytes(len(layout))
        self._layouts[table] = self._current[table] = None

    def retire_all_but(self, tables: Collection[int]) -> None:
        """Retire every table but these."""
        for number in range(len(self._layouts)):
            if number not in tables:
                self.retire(number)

    def _check_room(self, layouts_bytes: int) -> None:
        if layouts_bytes > self._frame_bytes_max:
            raise Error(f"{self.path}: {layouts_bytes} bytes of layouts; eight times that is the least capacity")

    def mark(self, table: int) -> None:
        """Say which table is being read (an index into the layouts), so that a dead writer's ring names the culprit."""
        self._words[MARK] = table + 1

    def unmark(self) -> None:
        """Say that no table is being read."""
        self._words[MARK] = 0

    def rows(self, table: int, tick_ns: int, names: tuple[str, ...], values: Sequence[int]) -> int:
        """Write one tick of a table: ``values`` holds the metrics of each of ``names`` in turn.

        A value that does not fit is stored as absent; rows that do not fit as an absence. Returns the
        number of values that were lost.
        :raises Error: where the number of values is not instances × metrics, or a name is there twice.
        :raises UnicodeEncodeError: where a name cannot be encoded.
        """
        if len(values) != len(names) * len(self._tables[table].metrics):
            raise Error(f"{len(values)} values for {len(names)} instances of {self._tables[table].name}")
        current = self._current[table]
        if current is None or current.names != names:
            current = self._new_instances(table, tick_ns, names)
            if current is None:
                self.absence(table, tick_ns, Cause.DROPPED, f"{len(names)} instances do not fit into the ring")
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
        self._written[table] = current.ident, payload
        return lost

    def room(self, offset: int) -> int:
        """How many bytes may be written before those from a logical offset on are overwritten."""
        return self.capacity - (self._head - offset)

    @property
    def written(self) -> int:
        """How many bytes were written to it so far."""
        return self._head

    def records(self, table: int, tick_ns: int, pieces: Sequence[Records], stride: int) -> int:
        """Write one reading of a long table, in as many frames as it takes; ``stride``: bytes of a record.

        Records beyond half of the ring, or without room in a frame beside the texts of their piece, are lost, and
        counted. Returns the number of records that were lost.
        """
        frames: list[tuple[memoryview, bytes]] = []
        left, dropped = self.capacity // 2 // stride, 0
        for piece in pieces:
            rows = memoryview(piece.rows).cast("B")
            count = len(rows) // stride
            room = max(0, self._frame_bytes_max - FRAME_BYTES - RECORDS_HEAD.size - 8 - len(piece.blob)) // stride
            fitting = min(count, left, room if piece.blob else count)
            step = max(1, room if piece.blob else min(room, _COPIED_BYTES_MAX // stride))
            frames += [
                (rows[at * stride : min(at + step, fitting) * stride], piece.blob) for at in range(0, fitting, step)
            ]
            left -= fitting
            dropped += count - fitting
        full = FULL if any(piece.full for piece in pieces) else 0
        lost, walked = dropped + sum(piece.lost for piece in pieces), max(piece.walked for piece in pieces)
        last = len(frames) - 1 if frames else 0
        for number, (rows, blob) in enumerate(frames or [(memoryview(b""), b"")]):
            is_last = number == last
            head = RECORDS_HEAD.pack(
                len(rows) // stride, full | (0 if is_last else MORE), lost if is_last else 0, walked
            )
            self._append(RECORDS, table, tick_ns, b"".join((head, rows, blob)))
        return dropped

    def repeat(self, table: int, tick_ns: int) -> None:
        """Write for this tick the rows that ``rows`` wrote last; they have no texts."""
        self._append(ROWS, self._written[table][0], tick_ns, self._written[table][1])

    def hold(self) -> None:
        """Collect the frames that follow until ``commit``: a tick in one piece costs less than in many."""
        self._pending = []

    def commit(self) -> None:
        """Publish the collected frames."""
        if self._pending is not None:
            self._publish(b"".join(self._pending))
            self._pending = None

    def absence(self, table: int, tick_ns: int, cause: Cause, detail: str) -> None:
        """Write why a table has no rows at this tick."""
        said = cut(detail.encode("utf-8", "replace"), DETAIL_BYTES_MAX)
        self._append(ABSENCE, table, tick_ns, cause.encode() + b"\0" + said)

    def text(self, string: str) -> int:
        """Return the id of a text, and write it where it is new; ABSENT where there are too many.

        :raises UnicodeEncodeError: where it cannot be encoded.
        """
        ident = self._idents.get(string)
        if ident is None:
            ident = self._new_text(string)
        if ident != ABSENT:
            self._text_used[ident] = self._head
        return ident

    def clock(self, relation: Relation) -> None:
        """Record the relation of the clocks, where it differs from the last one recorded."""
        if self._clock is None or relation.differs(self._clock):
            if self._clock is not None:  # The closing copy, as for instances.
                self._write(RELATION, 0, self._clock.boottime_ns, CLOCK.pack(*self._clock))
            self._clock = relation
            self._append(RELATION, 0, relation.boottime_ns, CLOCK.pack(*relation))

    def event(
        self,
        tick_ns: int,
        kind: str,
        subject: str,
        text: str,
        *,
        detail: str = "",
        happened_ns: int = ABSENT,
        known_from: str = "",
    ) -> None:
        """Record an event at a boot time. ``happened_ns``: UTC, of what happened earlier, as ``known_from`` tells.

        :raises Error: where one of them has a NUL.
        """
        if "\0" in kind + subject + text + detail + known_from:
            raise Error(f"an event of the kind {kind!r} about {subject!r}: expected no NUL")
        payload = encode_event(kind, subject, text, detail, happened_ns, known_from)
        self._append(EVENT, 0, tick_ns, payload)

    def is_gone(self) -> bool:
        """Whether its file was removed, or another has its name: readers would not find what is written from now on."""
        try:
            status = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # That it cannot be looked at now says nothing.
            return False
        return (status.st_dev, status.st_ino) != self._file

    def save(self) -> None:
        """Write its content into a new file of its name, and go on in that; the folder exists.

        :raises OSError: where there is no room for it; then nothing is changed.
        """
        self.commit()
        size = HEADER_BYTES + self.capacity
        with _allocate(self.path, size, self._sensitivity, stays=self._stays) as (copy, file):
            used_bytes = HEADER_BYTES + min(self._head, self.capacity)
            with memoryview(copy) as target, memoryview(self._map) as source:
                target[:used_bytes] = source[:used_bytes]
        self._release()
        self._map, self._file = copy, file
        self._words = memoryview(self._map)[:HEADER_BYTES].cast("Q")
        self._bytes = memoryview(self._map)[HEADER_BYTES:]

    def keep(self, folder: str, stream: str, say: Callable[[str], None]) -> None:
        """Make sure that its content can be sealed: where its file was removed, write it again.

        ``folder``: of the part that writes it, made anew where it is gone as well.
        """
        if not self.is_gone():
            return
        try:
            runtime = os.path.dirname(folder)
            create(Folders(runtime, runtime), os.geteuid())
            create_classes(folder)
            create_stream(folder, stream)
            self.save()
        except (OSError, Error) as refused:
            say(f"{self.path}: removed, and its content is lost: {refused}")

    def close(self, *, is_over: bool = True) -> None:
        """Close the file, which stays for the archiver; where it ``is_over``, mark that it ended in order."""
        self.commit()
        self._words[MARK] = 0
        if is_over:
            self._words[CLOSED] = 1
            self._words[CLOSED + MIRROR] = CLOSED_MIRRORED
        self._release()

    def _release(self) -> None:
        self._words.release()
        self._bytes.release()
        self._map.close()

    def drop(self, count: int) -> None:
        """Count values that could not be stored."""
        self._words[DROPPED] += count

    def _new_instances(self, table: int, tick_ns: int, names: tuple[str, ...]) -> _Current | None:
        """Explain the rows to come; None where they, or their explanation, would not fit."""
        if len(set(names)) != len(names) or any("\0" in name for name in names):
            raise Error(f"{self._tables[table].name}: an instance is named twice, or with a NUL in its name")
        payload = encode_instances(table, names)
        rows = Struct(f"={len(names) * len(self._tables[table].metrics)}q")
        before = self._current[table]
        size = frame_bytes(len(payload))
        grown = self._explaining_bytes + size - (frame_bytes(len(before.payload)) if before else 0)
        wanted = max(max(size, frame_bytes(rows.size)) * _FRAMES_PER_RING_MIN, grown * _REPEATS_PER_RING)
        if wanted > self.capacity:
            self.wanted_bytes = max(self.wanted_bytes, wanted + _REPEATS_PER_RING * FRAME_BYTES)
            return None
        if before is not None:
            # The closing copy: it outlives every row that it explains.
            self._write(NAMES, before.ident, tick_ns, before.payload)
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
        """Forget texts that no row in the ring can refer to: those not used for two rounds."""
        old = {ident for ident, used in self._text_used.items() if self._head - used > 2 * self.capacity}
        if old:
            self._idents = {string: ident for string, ident in self._idents.items() if ident not in old}
        for ident in old:
            self._explaining_bytes -= frame_bytes(len(self._texts.pop(ident)))
            del self._text_used[ident]

    def _explain(self) -> None:
        """Write everything that explains rows."""
        self._explained_at = self._head
        self._explaining = True
        self._forget_texts()
        for ident, layout in enumerate(self._layouts):
            if layout is not None:
                self._write(LAYOUT, ident, 0, layout)
        for current in self._current:
            if current is not None:
                self._write(NAMES, current.ident, 0, current.payload)
        for text in self._texts.values():
            self._write(TEXT, 0, 0, text)
        if self._clock is not None:
            self._write(RELATION, 0, self._clock.boottime_ns, CLOCK.pack(*self._clock))
        self._explaining = False

    def _append(self, kind: int, ident: int, tick_ns: int, payload: bytes) -> None:
        """Write a frame, and repeat explanations after the first frame that they explain."""
        self._write(kind, ident, tick_ns, payload)
        if kind in EXPLAINING:
            self._once.append((kind, ident, tick_ns, payload))
        elif self._once:
            for frame in self._once:
                self._write(*frame)
            self._once.clear()

    def _write(self, kind: int, ident: int, tick_ns: int, payload: bytes) -> None:
        """Write a frame; the callers keep it within ``_frame_bytes_max``."""
        length = frame_bytes(len(payload))
        to_end = self.capacity - self._head % self.capacity
        if length > to_end:
            self._put(PAD, 0, 0, bytes(max(0, to_end - FRAME_BYTES)), to_end)
        self._put(kind, ident, tick_ns, payload, length)
        if self._head - self._explained_at > self._explain_every and not self._explaining:
            self._explain()

    def _put(self, kind: int, ident: int, tick_ns: int, payload: bytes, length: int) -> None:
        if length < FRAME_BYTES:  # The end of the ring, too short for a header: readers skip it by its size.
            frame = bytes(length)
        else:
            padding = -len(payload) & 7
            rest = REST.pack(kind, -padding & 7, ident, self._head, tick_ns) + payload + bytes(padding)
            frame = START.pack(length, crc32(rest)) + rest
        self._head += length
        if self._pending is None:
            self._publish(frame)
            return
        self._pending.append(frame)
        if self._head - self._published > min(self._frame_bytes_max, _COPIED_BYTES_MAX):
            self.commit()
            self.hold()

    def _publish(self, frames: bytes) -> None:
        """Copy whole frames to where they belong, then move the head past them."""
        begin = self._published % self.capacity
        self._make_room(self._head - self.capacity)
        to_end = self.capacity - begin
        if len(frames) <= to_end:
            self._bytes[begin : begin + len(frames)] = frames
        else:  # The end of the ring is always the end of a frame.
            self._bytes[begin:] = frames[:to_end]
            self._bytes[: len(frames) - to_end] = frames[to_end:]
        self._published = self._words[HEAD] = self._words[HEAD + MIRROR] = self._head

    def _make_room(self, limit: int) -> None:
        """Give up the oldest frames that begin before ``limit``."""
        tail = self._tail
        if tail >= limit:
            return
        while tail < limit:
            place = tail % self.capacity
            to_end = self.capacity - place
            tail += to_end if to_end < FRAME_BYTES else U32.unpack_from(self._bytes, place)[0]
        self._tail = tail
        # Before the bytes change, so that a reader that looks again sees that they are gone.
        self._words[TAIL] = self._words[TAIL + MIRROR] = tail


@contextmanager
def _allocate(
    path: str, size: int, sensitivity: Sensitivity, *, stays: bool
) -> Iterator[tuple[mmap.mmap, tuple[int, int]]]:
    """Map a new file of full size, with its device and inode; when the block ends without error, it becomes ``path``.

    The file has its pages from the beginning, but one that nobody has touched yet is swapped out like any other, and
    who touches it waits. Where it ``stays`` all are touched; an older kernel leaves it at that (Linux before 5.14).

    :raises OSError: as the file system says; then nothing is left behind.
    """
    _remove_unfinished(os.path.dirname(path) or ".")
    with note.create(path, FILE_MODES[sensitivity]) as descriptor:
        os.posix_fallocate(descriptor, 0, size)
        status = os.fstat(descriptor)
        mapped = mmap.mmap(descriptor, size)
        with suppress(OSError):
            if stays:
                mapped.madvise(MADV_POPULATE_WRITE)
        yield mapped, (status.st_dev, status.st_ino)


def _remove_unfinished(folder: str) -> None:
    """Remove what a writer that was killed half way left, under any number."""
    for name in os.listdir(folder):
        if name.endswith(SUFFIX + TEMPORARY_SUFFIX):
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")
