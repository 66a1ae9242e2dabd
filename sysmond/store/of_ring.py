# SPDX-License-Identifier: Apache-2.0
"""What a ring or a file holds, in one shape: blocks of series over a time axis, texts, clocks and gaps.

A **block** is one boot, one writer, one interval: ``ticks`` (int64[time], CLOCK_BOOTTIME nanoseconds)
and any number of series. Values are absolute integers, ``ABSENT`` where there are none.
"""

import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.eased_pace import BACK_MAX_S
from sysmond.base.model import ABSENT, Cause, Sensitivity, Table
from sysmond.base.result import Int64Array, NDArray
from sysmond.base.wall_clock import ALWAYS_NS, Course, course_of
from sysmond.errors import CorruptError, Error
from sysmond.ring.frame import (
    ABSENCE,
    EVENT,
    EXPLAINED,
    FRAME_BYTES,
    FULL,
    LAYOUT,
    MORE,
    NAMES,
    OPENING,
    OPENING_FIELDS,
    RECORDS,
    RECORDS_HEAD,
    RELATION,
    ROWS,
    TEXT,
    VALUE_MAX,
    decode_absence,
    decode_clock,
    decode_event,
    decode_instances,
    decode_layout,
    decode_text,
)
from sysmond.ring.snapshot import Snapshot
from sysmond.store.archive import Name
from sysmond.store.coding.dense_coding import CHUNK_SERIES
from sysmond.store.coding.integers import is_beyond
from sysmond.store.coding.statistics import Axis, Buckets, Stat, distinct

# How much is decoded and encoded at once.
BATCH_SERIES = 64
BATCH_VALUES = 512 * 1024
# Of series since a moment so many rows before it are wanted, too.
READINGS_BEFORE = 2
# Of rows that do not last, those of so long before: whose ends they tell of may be in a reading of all rows, of which
# there is one every five minutes.
PASSING_NS = 360 * SECOND_NS
# Of so many instances series have their names ready.
SERIES_MADE_MAX = 4096
# A hole of rows that were there, where nobody knows any more of which table.
ANY_TABLE = ""


class SeriesKey(NamedTuple):
    """Which series: table, metric and instance by name."""

    table: str
    metric: str
    instance: str


class Strand(NamedTuple):
    """Who put ticks on one time axis: boot, writing part, its start (boot time), interval.

    ``step_ns``: how long a bucket of it is, 0 for rows as they were recorded.
    """

    boot: str
    writer: str
    started_ns: int
    interval_ns: int
    step_ns: int = 0


class Hole(NamedTuple):
    """A recorded absence of a table, or of ``ANY_TABLE``, half-open, in boot time of ``boot``."""

    boot: str
    table: str
    start_ns: int
    end_ns: int
    cause: Cause
    detail: str

    def up_to_reading(self, begun_ns: Iterable[int]) -> "Hole":
        """The same; where a table was held back, up to where it is read at another interval again, if that is sooner.

        ``begun_ns``: when reading it at an interval began.
        """
        if self.cause is not Cause.HOLD_BACK:
            return self
        since_ns = max(self.start_ns, self.end_ns - BACK_MAX_S * SECOND_NS)
        return self._replace(end_ns=min([self.end_ns, *(at_ns for at_ns in begun_ns if at_ns > since_ns)]))


class BootEvent(NamedTuple):
    """Something that happened, at a boot time of ``boot``: a kind (``mark``, ``pin``), what it is about, and a text.

    ``detail``, ``happened_ns``, ``known_from``: as of ``result.Event``; the boot time is when it was recorded.
    """

    boot: str
    boottime_ns: int
    kind: str
    subject: str
    text: str
    detail: str = ""
    happened_ns: int = ABSENT
    known_from: str = ""


class Block(Protocol):
    """Series over one time axis; where the values come from is its own affair."""

    @property
    def strand(self) -> Strand:
        """Who wrote it."""

    @property
    def ticks(self) -> Int64Array:
        """The time axis, int64[tick] nanoseconds of boot time, strictly increasing."""

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series, one a row."""

    @property
    def closed(self) -> bool:
        """Whether the writer ended in good order after the last tick."""

    @property
    def significant_bits(self) -> int:
        """To how many bits numbers are shortened, see ``sysmond.base.significant``; 0 where they are as recorded."""

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""


class TierBlock(Protocol):
    """Buckets of series over one time axis: what a tier keeps of the rows of one strand."""

    @property
    def strand(self) -> Strand:
        """Who wrote the rows, and the step."""

    @property
    def axis(self) -> Axis:
        """First and last tick and rows of every bucket, in order."""

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series."""

    @property
    def stats(self) -> Sequence[tuple[Stat, ...]]:
        """What is kept of each series: by this a counter, a gauge and a text are told apart."""

    @property
    def closed(self) -> bool:
        """Whether the writer ended in good order after the last tick."""

    def buckets(self, rows: Sequence[int], wanted: Iterable[Stat] | None = None, part: slice = slice(None)) -> Buckets:
        """The wanted statistics (all where not told) of the chosen series, which must be of one kind.

        ``part``: which buckets; edges are those of all.
        """


class MemoryBlock(NamedTuple):
    """A block whose values are in memory, int64[series, time]."""

    strand: Strand
    ticks: Int64Array
    keys: Sequence[SeriesKey]
    matrix: Int64Array
    closed: bool = False
    significant_bits: int = 0

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""
        return self.matrix[list(rows)]


class Recording(NamedTuple):
    """Everything that one ring or file holds. ``clocks``: by boot, in order of time.

    ``covers``: of which segments of rows a file of a tier was made. ``damage``: which ring is damaged, and what of it
    cannot be read; empty where all can.
    """

    sensitivity: Sensitivity
    tables: dict[str, Table]
    blocks: Sequence[Block]
    texts: dict[int, str]
    clocks: dict[str, list[Relation]]
    holes: Sequence[Hole]
    events: Sequence[BootEvent] = ()
    tiers: Sequence[TierBlock] = ()
    covers: Sequence[Name] = ()
    damage: str = ""


class BlockPlan(NamedTuple):
    """A block to be written: its place, its time axis, its series, and their values a batch at a time."""

    strand: Strand
    ticks: Int64Array
    keys: Sequence[SeriesKey]
    closed: bool
    batches: Iterable[Int64Array]
    significant_bits: int = 0


def strands(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """The blocks of each strand: those with all digits in order of time, then the others; so the former count."""
    blocks_of: dict[Strand, list[Block]] = {}
    for block in blocks:
        if len(block.ticks):
            blocks_of.setdefault(block.strand, []).append(block)
    for _, members in sorted(blocks_of.items()):
        yield sorted(members, key=lambda block: (block.significant_bits > 0, int(block.ticks[0])))


def plan_of(blocks: Sequence[Block]) -> BlockPlan:
    """Put blocks of one strand on one time axis; where several know a value, it is the same.

    A tick may be in two blocks, each with the tables that were written by the time it was sealed.
    """
    keys = list(dict.fromkeys(key for block in blocks for key in block.keys))
    ticks, _ = distinct(np.concatenate([block.ticks for block in blocks]))
    closed = any(block.closed for block in blocks)
    bits = min((block.significant_bits for block in blocks if block.significant_bits), default=0)
    return BlockPlan(blocks[0].strand, ticks, keys, closed, _batches(blocks, keys, ticks), bits)


def _batches(blocks: Sequence[Block], keys: Sequence[SeriesKey], ticks: Int64Array) -> Iterator[Int64Array]:
    """Values a few series at a time, whole chunks of them: bounds memory whatever the size of the file."""
    step = min(BATCH_SERIES, BATCH_VALUES // max(1, len(ticks))) // CHUNK_SERIES * CHUNK_SERIES or CHUNK_SERIES
    if len(blocks) == 1:
        for first in range(0, len(keys), step):
            yield blocks[0].read(range(first, min(first + step, len(keys))))
        return
    places = [{key: row for row, key in enumerate(block.keys)} for block in blocks]
    columns = [np.searchsorted(ticks, block.ticks) for block in blocks]
    for first in range(0, len(keys), step):
        batch = keys[first : first + step]
        values = np.full((len(batch), len(ticks)), ABSENT, np.int64)
        reached = 0
        for block, at, place in zip(blocks, columns, places, strict=True):
            mine = [row for row, key in enumerate(batch) if key in place]
            if not mine or not len(at):
                continue
            read = block.read([place[batch[row]] for row in mine])
            begin, after = int(at[0]), int(at[-1]) + 1
            if begin >= reached and after - begin == len(at) and len(mine) == len(batch):
                values[:, begin:after] = read  # The usual case: one block after the other.
            else:
                where = np.array(mine)[:, None], at
                values[where] = np.where(read == ABSENT, values[where], read)
            reached = max(reached, after)
        yield values
        del values  # Before there are others.


class _Part(NamedTuple):
    """The rows of one set of instances: which series, at which ticks, and the word where each row begins."""

    series: Int64Array
    columns: Int64Array
    starts: Int64Array


class RingBlock:
    """A block whose values still lie in the image of a ring; only those that are read are taken out.

    ``ticks``: int64[tick]. ``words``: the image, int64[word].
    """

    significant_bits = 0

    def __init__(
        self,
        strand: Strand,
        ticks: Int64Array,
        keys: Sequence[SeriesKey],
        words: Int64Array,
        parts: Sequence[_Part],
        *,
        closed: bool,
    ) -> None:
        self.strand = strand
        self.ticks = ticks
        self.keys = keys
        self.closed = closed
        self._words = words
        self._parts = parts

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""
        asked = np.asarray(rows, np.int64)
        wanted, _ = distinct(asked)
        values = np.full((len(wanted), len(self.ticks)), ABSENT, np.int64)
        place = np.full(len(self.keys), -1, np.int64)
        place[wanted] = np.arange(len(wanted))
        for part in self._parts:
            target = place[part.series]
            cells = np.flatnonzero(target >= 0)
            if len(cells):
                read = self._words[cells[:, None] + part.starts]
                read[is_beyond(read)] = ABSENT
                values[target[cells][:, None], part.columns] = read
        return values if np.array_equal(asked, wanted) else values[np.searchsorted(wanted, asked)]


def of_snapshot(snapshot: Snapshot, since_ns: int = -ALWAYS_NS) -> Recording:
    """Give the contents of a ring, a block an interval; of rows those since a moment (UTC), and what is just before.

    :raises CorruptError: where whole frames make no sense, or nobody can say any more what or when rows were.
    """
    with sense_of(snapshot):
        return ExplainedRing(snapshot, since_ns).recording()


@contextmanager
def sense_of(snapshot: Snapshot) -> Iterator[None]:
    """Whole frames that make no sense are damage, too.

    :raises CorruptError: naming the ring.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, struct.error) as nonsense:
        raise CorruptError(f"{snapshot.path}: {nonsense}") from nonsense


_OPENING = np.dtype(list(zip(OPENING_FIELDS, OPENING.format[1:], strict=True)))
_HEAD_FIELDS = ("records", "flags", "lost", "walked")
_RECORDS_HEAD = np.dtype(list(zip(_HEAD_FIELDS, RECORDS_HEAD.format[1:], strict=True)))


class RecordFrames(NamedTuple):
    """The frames of records of a copy, in order, each int64[frame].

    ``place``, ``stop``: where in the image each begins, and where its payload ends. ``records``, ``flags``, ``lost``,
    ``walked``: what its head says.
    """

    place: Int64Array
    stop: Int64Array
    layout: Int64Array
    tick_ns: Int64Array
    records: Int64Array
    flags: Int64Array
    lost: Int64Array
    walked: Int64Array


class ExplainedRing:
    """The frames of a copy of a ring, and what they mean: ``layouts`` and instances by their ids."""

    def __init__(self, snapshot: Snapshot, since_ns: int = -ALWAYS_NS) -> None:
        """Decode what explains; ``since_ns``: from which moment (UTC) on rows are wanted.

        :raises ValueError, KeyError, struct.error: where that makes no sense.
        """
        self._snapshot = snapshot
        self._words = np.frombuffer(snapshot.image, np.int64)
        self._places = np.array(snapshot.frames, np.int64)
        at = (self._places // 8)[:, None] + np.arange(FRAME_BYTES // 8)
        self._frames = self._words[at].view(_OPENING)[:, 0]
        self._kinds = self._frames["kind"]
        # Explanations are repeated: one of each id is as good as any.
        self.layouts = {ident: decode_layout(payload) for ident, payload in self._explaining(LAYOUT).items()}
        self._instances = {
            ident: explained
            for ident, payload in self._explaining(NAMES).items()
            if (explained := decode_instances(payload))[0] in self.layouts
        }
        decode = cache(decode_absence)  # Most say the same.
        self._absences = [
            (ident, tick_ns, *decode(payload))
            for ident, tick_ns, payload in self._payloads(ABSENCE)
            if ident in self.layouts
        ]
        self._relations = sorted(map(decode_clock, {payload for _, _, payload in self._payloads(RELATION)}))
        self._since_ns, _ = self.course.window(since_ns, ALWAYS_NS)
        if self._since_ns != -ALWAYS_NS:
            self._leave_out_earlier()

    @property
    def course(self) -> Course:
        """How the other clocks stood to boot time."""
        return course_of(self._relations, SECOND_NS)

    def _low_ns(self, interval_ns: int) -> int:
        """From which boot time on rows of an interval are wanted: of counters the one before tells what they were."""
        return self._since_ns - READINGS_BEFORE * interval_ns

    def _leave_out_earlier(self) -> None:
        """Forget rows that are not wanted."""
        is_wanted = np.ones(len(self._kinds), np.bool_)
        is_wanted[self._earlier_rows()] = False
        records = np.flatnonzero(self._kinds == RECORDS)
        is_wanted[records[: self._earlier_records(records, self._frames["tick_ns"][records])]] = False
        self._places, self._frames = self._places[is_wanted], self._frames[is_wanted]
        self._kinds = self._frames["kind"]

    def _earlier_rows(self) -> Int64Array:
        """Rows of series that are not wanted; the last one of each instance is, as it says that there was one."""
        low_ns = {ident: self._low_ns(self.layouts[of].interval_ns) for ident, (of, _) in self._instances.items()}
        rows = np.flatnonzero((self._kinds == ROWS) & np.isin(self._frames["ident"], list(low_ns)))
        idents, from_end, of_row = np.unique(self._frames["ident"][rows][::-1], return_index=True, return_inverse=True)
        lows = np.array([low_ns[ident] for ident in idents.tolist()], np.int64)[of_row[::-1]]
        is_earlier = self._frames["tick_ns"][rows] < lows
        last = len(rows) - 1 - from_end
        seen: dict[int, set[str]] = {}
        for at in np.argsort(-last).tolist():
            table, names = self._instances[int(idents[at])]
            known = seen.setdefault(table, set())
            if not known.issuperset(names):
                is_earlier[last[at]] = False
                known.update(names)
        earlier: Int64Array = rows[is_earlier]
        return earlier

    def _earlier_records(self, records: Int64Array, ticks: Int64Array) -> int:
        """How many of the frames of records are not wanted; where rows last, those before a reading of all of them.

        ``records``: which frames these are; ``ticks``: of when. Both int64[frame].
        """
        if not any(layout.table.packing and layout.table.packing.lasting for layout in self.layouts.values()):
            return int(np.searchsorted(ticks, self._since_ns - PASSING_NS))
        end = int(np.searchsorted(ticks, self._since_ns))
        while end:
            begin = int(np.searchsorted(ticks, ticks[end - 1]))
            _, flags, lost, _ = RECORDS_HEAD.unpack_from(self._snapshot.image, self._payload_at(records[end - 1]))
            if flags & FULL and not flags & MORE and not lost:
                # Of the first reading of what went round nobody knows whether it begins there.
                return max(0, begin - 1) if self._snapshot.lost else begin
            end = begin
        return 0

    def _payload_at(self, frame: int) -> int:
        return int(self._places[frame]) + FRAME_BYTES

    def wanted(self, tail: int) -> Snapshot:
        """A copy of what is wanted of what is still in the ring, which begins at the logical offset ``tail`` by now."""
        is_there = self._frames["offset"] >= tail
        # Of what is repeated the last one; of sets of instances those of which there are rows, or which may get some.
        current = {table: ident for ident, (table, _) in sorted(self._instances.items())}
        used = {*self._frames["ident"][is_there & (self._kinds == ROWS)].tolist(), *current.values()}
        for kind in (LAYOUT, NAMES):
            explaining = np.flatnonzero(self._kinds == kind)[::-1]
            is_there[explaining] = False
            idents, last = np.unique(self._frames["ident"][explaining], return_index=True)
            is_there[explaining[last]] = np.isin(idents, [*used]) if kind == NAMES else True
        copied = self._snapshot
        frames = (copied.frame(place) for place in copied.frames if copied.offset_at(place) >= tail)
        first_ns = next((tick_ns for kind, _, tick_ns, _ in frames if kind in EXPLAINED), 0)
        return copied.only(self._places[is_there].tolist())._replace(first_ns=first_ns)

    def recording(self) -> Recording:
        """All of it.

        :raises CorruptError: where damage took all that says what its rows are, or when they were.
        """
        identity, damage = self._snapshot.identity, self._damage
        if damage and self._is_of_tick().any() and not (self.layouts and (self._kinds == RELATION).any()):
            raise CorruptError(damage)
        texts = {payload for _, _, payload in self._payloads(TEXT)}
        return Recording(
            identity.sensitivity,
            {layout.table.name: layout.table for layout in self.layouts.values()},
            list(self._blocks()),
            dict(sorted(map(decode_text, texts))),
            {identity.boot: self._relations},
            coalesce([*self._holes(), *self._damages()]),
            [
                BootEvent(identity.boot, tick_ns, *decode_event(payload))
                for _, tick_ns, payload in self._payloads(EVENT)
            ],
            damage=damage,
        )

    @cached_property
    def _damage(self) -> str:
        """What cannot be read, in words."""
        unexplained = len(self._unexplained)
        count = len(self._snapshot.damages)
        said = [f"damaged in {count} place{'s' * (count > 1)}"] if count else []
        said += [f"what explains {unexplained} frames of rows is damaged"] if unexplained else []
        is_expected = bool(said or self._snapshot.since_ns)  # A writer that died at once may have written none.
        said += ["its clock is damaged"] if is_expected and not (self._kinds == RELATION).any() else []
        return f"{self._snapshot.path}: {'; '.join(said)}" if said else ""

    def _is_of_tick(self) -> NDArray[np.bool_]:
        return np.isin(self._kinds, (ROWS, ABSENCE, RECORDS))

    @cached_property
    def _unexplained(self) -> Int64Array:
        """The frames of rows whose table nobody can name any more."""
        idents = self._frames["ident"]
        is_lost = (self._kinds == ROWS) & ~np.isin(idents, list(self._instances))
        is_lost |= ((self._kinds == ABSENCE) | (self._kinds == RECORDS)) & ~np.isin(idents, list(self.layouts))
        return np.flatnonzero(is_lost)

    def records(self) -> RecordFrames:
        """The frames of records.

        :raises ValueError: where one has no head, or one that nobody wrote.
        """
        at = np.flatnonzero(self._kinds == RECORDS)
        frames, place = self._frames[at], self._places[at]
        stop = place + frames["length"] - (-frames["remainder"].astype(np.int64) & 7)
        if (stop < place + FRAME_BYTES + RECORDS_HEAD.size).any():
            raise ValueError("records without a head")
        words = (place + FRAME_BYTES)[:, None] // 8 + np.arange(RECORDS_HEAD.size // 8)
        head = self._words[words].view(_RECORDS_HEAD)[:, 0]
        if (np.maximum(head["lost"], head["walked"]) > VALUE_MAX).any():
            raise ValueError("records that are more than any machine has")
        said = (frames["ident"], frames["tick_ns"], *(head[name] for name in _HEAD_FIELDS))
        return RecordFrames(place, stop, *(column.astype(np.int64) for column in said))

    def _payloads(self, kind: int) -> Iterator[tuple[int, int, bytes]]:
        """Id, tick and payload of every frame of a kind."""
        places: list[int] = self._places[self._kinds == kind].tolist()
        for place in places:
            yield self._snapshot.frame(place)[1:]

    def _explaining(self, kind: int) -> dict[int, bytes]:
        return {ident: payload for ident, _, payload in self._payloads(kind)}

    def _blocks(self) -> Iterator[RingBlock]:
        rows: dict[int, list[tuple[int, Int64Array]]] = {}
        for ident, indexes in self._rows():
            if ident in self._instances:
                interval_ns = self.layouts[self._instances[ident][0]].interval_ns
                rows.setdefault(interval_ns, []).append((ident, indexes))
        idle: dict[int, list[int]] = {}
        for table, tick_ns, cause, _ in self._absences:
            interval_ns = self.layouts[table].interval_ns
            # Who left was not read: that may be said between two ticks.
            if cause is not Cause.DISABLED and tick_ns >= self._low_ns(interval_ns):
                idle.setdefault(interval_ns, []).append(tick_ns)
        identity = self._snapshot.identity
        for interval_ns in sorted(rows.keys() | idle.keys()):
            strand = Strand(identity.boot, identity.writer, identity.started_ns, interval_ns)
            ticks, keys, parts = self._axes(rows.get(interval_ns, []), idle.get(interval_ns, []))
            yield RingBlock(strand, ticks, keys, self._words, parts, closed=self._snapshot.closed)

    def _rows(self) -> Iterator[tuple[int, Int64Array]]:
        """The rows frames of each set of instances, as indexes, in order of their first."""
        frames = np.flatnonzero(self._kinds == ROWS)
        idents = self._frames["ident"][frames]
        order = np.argsort(idents, kind="stable")
        edges = np.flatnonzero(np.diff(idents[order])) + 1
        for group in (
            sorted(np.split(frames[order], edges), key=lambda frames_of_one: int(frames_of_one[0]))
            if len(frames)
            else ()
        ):
            yield int(self._frames["ident"][group[0]]), group

    def _axes(
        self, rows: list[tuple[int, Int64Array]], idle: list[int]
    ) -> tuple[Int64Array, Sequence[SeriesKey], list[_Part]]:
        """Put the rows of all tables on one time axis; a table that had none at a tick is absent there."""
        times = [self._frames["tick_ns"][indexes] for _, indexes in rows]
        ticks, _ = distinct(np.concatenate([*times, np.array(idle, np.int64)]))
        position: dict[SeriesKey, int] = {}
        # Of a table and an instance: sets of instances that come and go have most of them in common.
        of_instance: dict[tuple[int, str], list[int]] = {}
        parts = []
        for (ident, indexes), at in zip(rows, times, strict=True):
            table_id, names = self._instances[ident]
            table = self.layouts[table_id].table
            metrics = tuple(metric.name for metric in table.metrics)
            for name in names:
                if (table_id, name) not in of_instance:
                    keys = _series_of(table.name, metrics, name)
                    of_instance[table_id, name] = [position.setdefault(key, len(position)) for key in keys]
            series = list(chain.from_iterable(of_instance[table_id, name] for name in names))
            if (self._frames["length"][indexes] != FRAME_BYTES + 8 * len(series)).any():
                raise ValueError(f"rows of {table.name} that do not have {len(series)} values")
            starts = (self._places[indexes] + FRAME_BYTES) // 8
            parts.append(_Part(np.array(series, np.int64), np.searchsorted(ticks, at), starts))
        return ticks, tuple(position), parts

    def _holes(self) -> Iterator[Hole]:
        boot = self._snapshot.identity.boot
        readings_ns = cache(self._readings_ns)
        for ident, tick_ns, cause, detail in self._absences:
            table, interval_ns = self.layouts[ident].table.name, self.layouts[ident].interval_ns
            hole = Hole(boot, table, tick_ns, tick_ns + interval_ns, cause, detail)
            yield hole.up_to_reading(readings_ns(table)) if cause is Cause.HOLD_BACK else hole

    def _readings_ns(self, table: str) -> list[int]:
        """The ticks at which a table was read, whatever came of it."""
        layouts = [ident for ident, layout in self.layouts.items() if layout.table.name == table]
        instances = [ident for ident, (layout, _) in self._instances.items() if layout in layouts]
        idents = self._frames["ident"]
        is_rows = (self._kinds == ROWS) & np.isin(idents, instances)
        is_other = np.isin(self._kinds, (RECORDS, ABSENCE)) & np.isin(idents, layouts)
        ticks_ns: list[int] = self._frames["tick_ns"][is_rows | is_other].tolist()
        return ticks_ns

    def _damages(self) -> Iterator[Hole]:
        """Say where damage took rows that nobody can name any more: any table may have had some there."""
        spans = list(self._damaged_spans())
        if not spans and not len(self._unexplained):
            return
        tables = [(layout.table.name, layout.interval_ns) for layout in self.layouts.values()]
        unexplained = self._frames["tick_ns"][self._unexplained]
        if len(unexplained):
            spans.append((int(unexplained.min()), int(unexplained.max())))
            tables.append((ANY_TABLE, SECOND_NS))
        boot, said = self._snapshot.identity.boot, self._damage
        for table, interval_ns in tables:
            for first_ns, last_ns in spans:
                yield Hole(boot, table, first_ns, last_ns + interval_ns, Cause.DAMAGED_FILE, said)

    def _damaged_spans(self) -> Iterator[tuple[int, int]]:
        """The first and the last tick of which each damaged place may have had rows."""
        if not self._snapshot.damages:
            return
        copied, of_tick = self._snapshot, self._is_of_tick()
        places, ticks = self._places[of_tick].tolist(), self._frames["tick_ns"][of_tick].tolist()
        # Ticks lie on whole seconds: the first may be of the second that the writer began in.
        started_ns = copied.identity.started_ns // SECOND_NS * SECOND_NS
        shortest_ns = min((layout.interval_ns for layout in self.layouts.values()), default=0)
        for begin, end in copied.damages:
            index = bisect_left(places, begin)
            filled = places[-1] - places[0] if places else 0
            # Where nothing says how long that took: as long as other frames of that length, a tick at least.
            long_ns = max(shortest_ns, (end - begin) * (ticks[-1] - ticks[0]) // filled if filled else 0)
            if index:
                first_ns = ticks[index - 1]
            elif copied.lost and ticks:  # What was before it is overwritten.
                first_ns = ticks[0] - long_ns
            else:
                first_ns = copied.since_ns or started_ns
            last_ns = ticks[index] if index < len(ticks) else first_ns + long_ns
            yield max(started_ns, min(first_ns, last_ns)), max(started_ns, last_ns)


@lru_cache(SERIES_MADE_MAX)
def _series_of(table: str, metrics: tuple[str, ...], instance: str) -> list[SeriesKey]:
    """The series of an instance: made once by a program that asks again and again."""
    return [SeriesKey(table, metric, instance) for metric in metrics]


_DIGITS = re.compile(r"[0-9]+")


def coalesce(holes: Iterable[Hole]) -> list[Hole]:
    """Join the absences of a table that touch and have one cause: not one record a tick.

    Details that differ in their numbers only (a process, an address) count as one, except those of instances; the
    first is kept.
    """
    last: dict[tuple[str, str, Cause, str], int] = {}
    joined: list[Hole] = []
    for hole in sorted(holes):
        is_of_instance = hole.detail.startswith(f"{hole.table}@")
        kind = (hole.boot, hole.table, hole.cause, hole.detail if is_of_instance else _DIGITS.sub("0", hole.detail))
        index = last.get(kind, -1)
        if index >= 0 and hole.start_ns <= joined[index].end_ns:
            joined[index] = joined[index]._replace(end_ns=max(joined[index].end_ns, hole.end_ns))
        else:
            last[kind] = len(joined)
            joined.append(hole)
    return joined


def join(recordings: Sequence[Recording]) -> Recording:
    """Put recordings of one class side by side.

    :raises Error: where two of them declare a table differently.
    """
    tables: dict[str, Table] = {}
    texts: dict[int, str] = {}
    clocks: dict[str, set[Relation]] = {}
    for recording in recordings:
        for name, table in recording.tables.items():
            if tables.setdefault(name, table) != table:
                raise Error(f"table {name} is declared in two ways")
        texts.update(recording.texts)
        for boot, relations in recording.clocks.items():
            clocks.setdefault(boot, set()).update(relations)
    return Recording(
        recordings[0].sensitivity,
        tables,
        [block for recording in recordings for block in recording.blocks],
        texts,
        {boot: sorted(relations) for boot, relations in clocks.items()},
        coalesce(hole for recording in recordings for hole in recording.holes),
        sorted({event for recording in recordings for event in recording.events}),
    )
