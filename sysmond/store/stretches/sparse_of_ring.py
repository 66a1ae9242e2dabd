# SPDX-License-Identifier: Apache-2.0
"""A ring of a long table as stretches: its frames of records become arrays, a text at a time only where it is new.

A stretch is of readings that follow each other and are of one declaration: an interval that changes begins another
one, and so does the one from before that comes again.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, Table
from sysmond.base.result import Array, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.records import REFERENCE, codes
from sysmond.ring.frame import FRAME_BYTES, FULL, MORE, RECORDS, RECORDS_HEAD
from sysmond.ring.snapshot import Snapshot
from sysmond.ring.walk import frame_at
from sysmond.store.coding.integers import is_beyond
from sysmond.store.of_ring import ExplainedRing, sense_of
from sysmond.store.stretches.stretch import About, Incarnation, MemoryStretch, Readings, lasts

_TOKEN = re.compile(r"(\d*)([xbBhHiIqQs])")
_REFERENCE_LENGTH_BITS = 32


class RingReading(NamedTuple):
    """One reading in a ring: where it is, and what its frames say.

    ``offset``: logical offset of its first frame. ``ended``: its last piece is there; else its writer is at it, or
    died.
    """

    layout: int
    offset: int
    tick_ns: int
    full: bool
    lost: int
    walked: int
    ended: bool
    frames: tuple[int, ...]


def record_type(table: Table) -> np.dtype[Any]:
    """The type of a record, a field a metric.

    :raises UsageError: where the packing is none that is supported.
    """
    codes(table)
    form = table.packing.format if table.packing else ""
    formats, offsets, at = [], [], 0
    for count, code in _TOKEN.findall(form):
        size = struct.calcsize(f"<{code}")
        if code in "xs":
            if code == "s":
                formats.append(f"S{count or 1}")
                offsets.append(at)
            at += int(count or 1)
            continue
        for _ in range(int(count or 1)):
            formats.append(f"<{'i' if code.islower() else 'u'}{size}")
            offsets.append(at)
            at += size
    names = [metric.name for metric in table.metrics]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at})


class LongRing:
    """A copy of the ring of a long table, decoded once.

    ``readings``: all there are, in order; one whose first pieces may be gone is not called full.
    ``damage``: what cannot be read, in words. ``is_lasting``: whether the rows of its table last.
    """

    def __init__(self, snapshot: Snapshot, since_ns: int = -ALWAYS_NS) -> None:
        """Decode it; ``since_ns``: from which moment (UTC) on rows are wanted.

        :raises CorruptError: where whole frames make no sense, or nobody can say any more what or when rows were.
        """
        self._snapshot = snapshot
        with sense_of(snapshot):
            ring = ExplainedRing(snapshot, since_ns)
            self._recording = ring.recording()
            self._layouts = {
                ident: declared for ident, declared in ring.layouts.items() if declared.table.packing is not None
            }
            self.readings = _readings(snapshot, ring.places(RECORDS))
        self.damage = self._recording.damage
        self.is_lasting = any(lasts(layout.table) for layout in self._layouts.values())

    def stretches(
        self, chosen: list[RingReading] | None = None, *, is_empty_too: bool = False
    ) -> Iterator[MemoryStretch]:
        """The stretches of these readings, else of all that ended, in order of time.

        ``is_empty_too``: also those of which there is nothing.

        :raises CorruptError: where whole frames make no sense.
        """
        if chosen is None:
            chosen = [reading for reading in self.readings if reading.ended]
        runs = [(ident, list(run)) for ident, run in groupby(chosen, attrgetter("layout")) if ident in self._layouts]
        there = {ident for ident, _ in runs}
        runs += [(ident, []) for ident in self._layouts if ident not in there]
        identity, clocks = self._snapshot.identity, self._recording.clocks
        for ident, mine in runs:
            layout = self._layouts[ident]
            holes = [hole for hole in self._recording.holes if hole.table == layout.table.name]
            if not mine and not holes and not is_empty_too:
                continue
            first_ns = mine[0].tick_ns if mine else min((hole.start_ns for hole in holes), default=0)
            about = About(
                layout.table,
                identity.boot,
                identity.writer,
                identity.sensitivity,
                layout.interval_ns,
                [Incarnation(identity.started_ns, first_ns, self._snapshot.closed)],
                clocks.get(identity.boot, []),
                holes,
                self._snapshot.path,
            )
            with sense_of(self._snapshot):
                made = _stretch(self._snapshot, about, mine)
            yield made


def _readings(snapshot: Snapshot, places: Iterable[int]) -> list[RingReading]:
    pieces: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for place in places:
        _, stop, _, ident, tick_ns = frame_at(snapshot.image, place)
        if stop < place + FRAME_BYTES + RECORDS_HEAD.size:
            raise ValueError("records without a head")
        _, flags, lost, walked = RECORDS_HEAD.unpack_from(snapshot.image, place + FRAME_BYTES)
        pieces.setdefault((tick_ns, ident), []).append((place, flags, lost, walked))
    readings: list[RingReading] = []
    before = -1  # Where the last frame of the reading before begins.
    for (tick_ns, ident), frames in sorted(pieces.items(), key=lambda piece: piece[1][0][0]):
        begins = tuple(frame[0] for frame in frames)
        ended = not frames[-1][1] & MORE
        is_whole = ended and not any(before < damaged < begins[-1] for damaged, _ in snapshot.damages)
        has_all = is_whole and bool(readings or not snapshot.lost)
        full = bool(frames[0][1] & FULL) and has_all
        lost, walked = sum(frame[2] for frame in frames), frames[-1][3]
        offset = snapshot.begin_offset + begins[0]
        readings.append(RingReading(ident, offset, tick_ns, full, lost, walked, ended, begins))
        before = begins[-1]
    return readings


def _stretch(snapshot: Snapshot, about: About, readings_of: list[RingReading]) -> MemoryStretch:
    kind = record_type(about.table)
    plain = np.dtype((np.void, kind.itemsize))  # Copied as they are, and not field by field.
    pieces, blobs, at = [np.empty(0, plain)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, reading in enumerate(readings_of):
        for place in reading.frames:
            _, stop, *_ = frame_at(snapshot.image, place)
            (count, *_) = RECORDS_HEAD.unpack_from(snapshot.image, place + FRAME_BYTES)
            begin = place + FRAME_BYTES + RECORDS_HEAD.size
            blob = begin + count * kind.itemsize
            if blob > stop:
                raise ValueError(f"{count} records of {about.table.name} in {stop - place - FRAME_BYTES} bytes")
            pieces.append(np.frombuffer(snapshot.image, plain, count, begin))
            blobs.append(np.full(count, blob, np.int64))
            at.append(np.full(count, number, np.int64))
    rows = np.concatenate(pieces).view(kind)
    ticks = np.array([reading.tick_ns for reading in readings_of], np.int64)
    axis = Readings(
        ticks,
        np.array([reading.full for reading in readings_of], np.bool_),
        np.array([reading.lost for reading in readings_of], np.int64),
        np.array([reading.walked for reading in readings_of], np.int64),
    )
    records = _records(about.table, rows, snapshot.image, np.concatenate(blobs))
    return MemoryStretch(about, axis, np.concatenate(at), records.column, records.texts)


class RecordColumns(NamedTuple):
    """Records as columns: how many there are, what gives a column (int64[row]), and the texts that codes mean."""

    rows: int
    column: Callable[[str], Int64Array]
    texts: Sequence[str]


def _records(table: Table, rows: Array, image: bytes, of_blob: Int64Array) -> RecordColumns:
    """``of_blob``: where in an image the texts of each row begin, int64[row]."""
    dictionary: dict[str, int] = {}
    text_columns: dict[str, Int64Array] = {}
    for metric, code in zip(table.metrics, codes(table), strict=True):
        if metric.is_text:
            column = rows[metric.name]
            text_columns[metric.name] = (
                _references(image, column, of_blob, dictionary) if code == REFERENCE else _in_place(column, dictionary)
            )

    def column_of(name: str) -> Int64Array:
        return text_columns[name] if name in text_columns else _numbers(rows[name])

    return RecordColumns(len(rows), column_of, list(dictionary))


def records_of_frames(table: Table, payloads: Sequence[bytes]) -> RecordColumns:
    """The records of one reading, by the payloads of its frames.

    :raises ValueError: where they make no sense.
    """
    kind, image = record_type(table), b"".join(payloads)
    pieces, blobs, begin = [np.empty(0, kind)], [np.empty(0, np.int64)], 0
    for payload in payloads:
        (count, *_) = RECORDS_HEAD.unpack_from(payload)
        blob = RECORDS_HEAD.size + count * kind.itemsize
        if blob > len(payload):
            raise ValueError(f"{count} records of {table.name} in {len(payload)} bytes")
        pieces.append(np.frombuffer(payload, kind, count, RECORDS_HEAD.size))
        blobs.append(np.full(count, begin + blob, np.int64))
        begin += len(payload)
    return _records(table, np.concatenate(pieces), image, np.concatenate(blobs))


def _numbers(column: Array) -> Int64Array:
    """Values of a field; all ones of an unsigned one are absent, and so is what is too large."""
    values = column.astype(np.int64)
    if column.dtype.kind == "u":
        values[column == np.iinfo(column.dtype).max] = ABSENT
    if column.dtype.itemsize == np.dtype(np.int64).itemsize:
        values[is_beyond(values)] = ABSENT
    return values


def _in_place(column: Array, dictionary: dict[str, int]) -> Int64Array:
    """Codes of texts that stand in the records."""
    distinct, where = np.unique(column, return_inverse=True)
    return _coded(distinct.tolist(), dictionary)[where]


def _references(image: bytes, column: Array, blobs: Int64Array, dictionary: dict[str, int]) -> Int64Array:
    """Codes of texts that stand behind the records of their frame."""
    absent = column == np.iinfo(column.dtype).max
    length = (column >> np.uint64(_REFERENCE_LENGTH_BITS)).astype(np.int64)
    begin = blobs + (column & np.uint64(2**_REFERENCE_LENGTH_BITS - 1)).astype(np.int64)
    length[absent] = 0
    if ((begin + length)[~absent] > len(image)).any():
        raise ValueError("a text that lies outside the ring")
    order = np.lexsort((length, begin))
    begin, length = begin[order], length[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (begin[1:] != begin[:-1]) | (length[1:] != length[:-1])
    said = [image[low : low + size] for low, size in zip(begin[is_new].tolist(), length[is_new].tolist(), strict=True)]
    values = np.empty(len(order), np.int64)
    values[order] = _coded(said, dictionary)[np.cumsum(is_new) - 1]
    values[absent] = ABSENT
    return values


def _coded(said: list[bytes], dictionary: dict[str, int]) -> Int64Array:
    """Codes of distinct texts; what follows a NUL is not theirs."""
    texts = (word.partition(b"\0")[0].decode("utf-8", "surrogateescape") for word in said)
    return np.array([dictionary.setdefault(text, len(dictionary)) for text in texts], np.int64)
