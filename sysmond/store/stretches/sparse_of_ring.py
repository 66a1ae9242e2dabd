# SPDX-License-Identifier: Apache-2.0
"""A ring of a long table as stretches: its frames of records become arrays, a text at a time only where it is new.

A stretch is of readings that follow each other and are of one declaration: an interval that changes begins another
one, and so does the one from before that comes again.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, Table
from sysmond.base.result import Array, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.records import REFERENCE, codes
from sysmond.ring.frame import FRAME_BYTES, FULL, MORE, RECORDS_HEAD
from sysmond.ring.snapshot import Snapshot
from sysmond.store.coding.integers import is_beyond
from sysmond.store.of_ring import ExplainedRing, RecordFrames, sense_of
from sysmond.store.stretches.stretch import About, Incarnation, MemoryStretch, Readings, lasts

_TOKEN = re.compile(r"(\d*)([xbBhHiIqQs])")
_REFERENCE_LENGTH_BITS = 32


class RingReading(NamedTuple):
    """One reading in a ring: where it is, and what its frames say.

    ``offset``: logical offset of its first frame. ``ended``: its last piece is there; else its writer is at it, or
    died. ``frames``: the numbers of its frames.
    """

    layout: int
    offset: int
    tick_ns: int
    full: bool
    lost: int
    walked: int
    ended: bool
    frames: range


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
            self._frames = ring.records()
        self.readings = _readings(snapshot, self._frames)
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
                made = _stretch(self._snapshot.image, self._frames, about, mine)
            yield made


def _readings(snapshot: Snapshot, frames: RecordFrames) -> list[RingReading]:
    """Frames of one layout and tick that follow each other are one reading."""
    if not len(frames.place):
        return []
    first = 1 + np.flatnonzero(np.diff(frames.tick_ns) | np.diff(frames.layout))
    first, stop = np.r_[0, first], np.r_[first, len(frames.place)]
    ended = frames.flags[stop - 1] & MORE == 0
    has_all = ended.copy()
    before, last = np.r_[-1, frames.place[stop - 1][:-1]], frames.place[stop - 1]
    for damaged, _ in snapshot.damages:
        has_all &= (damaged <= before) | (damaged >= last)
    has_all[0] &= not snapshot.lost
    columns = (
        frames.layout[first],
        snapshot.begin_offset + frames.place[first],
        frames.tick_ns[first],
        (frames.flags[first] & FULL != 0) & has_all,
        np.add.reduceat(frames.lost, first),
        frames.walked[stop - 1],
        ended,
    )
    return list(map(RingReading, *(column.tolist() for column in columns), map(range, first.tolist(), stop.tolist())))


def _stretch(image: bytes, frames: RecordFrames, about: About, readings_of: list[RingReading]) -> MemoryStretch:
    kind = record_type(about.table)
    at = np.fromiter(chain.from_iterable(reading.frames for reading in readings_of), np.int64)
    counts, begin = frames.records[at], frames.place[at] + FRAME_BYTES + RECORDS_HEAD.size
    blob = begin + counts * kind.itemsize
    if (blob > frames.stop[at]).any():
        raise ValueError(f"more records of {about.table.name} than bytes")
    rows = np.frombuffer(b"".join(map(image.__getitem__, map(slice, begin.tolist(), blob.tolist()))), kind)
    axis = Readings(
        np.array([reading.tick_ns for reading in readings_of], np.int64),
        np.array([reading.full for reading in readings_of], np.bool_),
        np.array([reading.lost for reading in readings_of], np.int64),
        np.array([reading.walked for reading in readings_of], np.int64),
    )
    of_frame = np.repeat(np.arange(len(readings_of)), [len(reading.frames) for reading in readings_of])
    records = _records(about.table, rows, image, np.repeat(blob, counts))
    return MemoryStretch(about, axis, np.repeat(of_frame, counts), records.column, records.texts)


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
    said = column.tolist()
    distinct = sorted(set(said))
    codes_of = dict(zip(distinct, _coded(distinct, dictionary).tolist(), strict=True))
    return np.fromiter(map(codes_of.__getitem__, said), np.int64, len(said))


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
