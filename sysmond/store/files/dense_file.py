# SPDX-License-Identifier: Apache-2.0
"""Segments: HDF5 files of recordings, of rows and of tiers.

``docs/format.md`` specifies the file and is tested by decoding one with nothing but h5py. In short:
a block is a matrix a width (``i1``, ``i2``, ``i4``, ``i8``), one row a series; a counter is stored as its
increments, a gauge as its difference from its first value, both narrowed; the smallest value of a type
is "absent". Everything is chunked and checksummed, and built in memory: the caller publishes the bytes.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from functools import partial
from typing import Any, Self

import numpy as np

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.base.wall_clock import course_of
from sysmond.errors import CorruptError, Error
from sysmond.store.archive import Name
from sysmond.store.coding import dense_coding, statistics
from sysmond.store.coding.dense_coding import EDGES, SERIES, TIER_SERIES
from sysmond.store.coding.integers import WIDTHS
from sysmond.store.coding.statistics import Axis, Buckets, Edges, Stat
from sysmond.store.files import declarations, event_records, hdf5, invariants
from sysmond.store.files.declarations import Keys, identity
from sysmond.store.files.hdf5 import CHUNK_TICKS, Node, one_line
from sysmond.store.files.invariants import Claims
from sysmond.store.of_ring import BlockPlan, BootEvent, Hole, Recording, SeriesKey, Strand, plan_of

__all__ = ["CHUNK_TICKS", "EventsOfFile", "Segment", "Writer", "encode", "encode_plans"]

# No incompatible flags exist yet.
FORMAT = hdf5.Format("sysmond segment", 1, invariants.WIDE_ELEMENTS_MAX)
# The compatible flag of a file with blocks of fewer digits than were recorded.
SHORTENED = 1
_INTEGER = np.dtype(np.int64)
# Of the attribute: readers take no longer string. And what a table takes of it beside what it says.
ANSWERS_BYTES_MAX = 8192
_ENTRY_BYTES = 4
# How many values become codes at once: their intermediate results stay in the processor's cache.
CODE_VALUES = 128 * 1024


def encode(recording: Recording, created_by: str) -> bytes:
    """Build the file image of a recording of rows."""
    return encode_plans(recording, [plan_of([block]) for block in recording.blocks], created_by)


def encode_plans(recording: Recording, plans: Sequence[BlockPlan], created_by: str) -> bytes:
    """Build a file image from all of the recording but its blocks, and the blocks of ``plans``."""
    keys = (key for plan in plans for key in plan.keys)
    with Writer(recording, keys, {plan.strand.boot for plan in plans}, created_by) as writer:
        for plan in plans:
            writer.rows(plan)
        return writer.image()


class Writer:
    """A file image in the making: first what is known of the whole, then its blocks; use it in a ``with``."""

    def __init__(
        self,
        recording: Recording,
        keys: Iterable[SeriesKey],
        boots: Collection[str],
        created_by: str,
        *,
        hasty: bool = False,
    ) -> None:
        """Write all of a recording but its blocks; ``keys``, ``boots``: what those will refer to.

        ``hasty``: spend less time on compression.

        :raises Error: where no reader would accept it.
        """
        metrics = [(table.name, metric) for table in recording.tables.values() for metric in table.metrics]
        instances = sorted({key.instance for key in keys})
        self._boots = sorted(
            {*boots, *recording.clocks}
            | {hole.boot for hole in recording.holes}
            | {event.boot for event in recording.events}
            | {name.boot for name in recording.covers}
        )
        self._metrics = [metric for _, metric in metrics]
        self._metric_index = {(table, metric.name): index for index, (table, metric) in enumerate(metrics)}
        self._instance_index = {name: index for index, name in enumerate(instances)}
        self._blocks = self._tiers = 0
        self._claims, self._tier_claims = _claims()
        self._hasty = hasty
        _check_counts(
            tables=recording.tables,
            metrics=metrics,
            instances=instances,
            boots=self._boots,
            clocks=[relation for relations in recording.clocks.values() for relation in relations],
            texts=recording.texts,
            gaps=recording.holes,
            events=recording.events,
            covers=recording.covers,
        )
        self._image = hdf5.Image()
        self._file = file = self._image.file
        hdf5.describe(
            file,
            format=FORMAT.name,
            version=FORMAT.version,
            incompatible=0,
            compatible=0,
            sensitivity=recording.sensitivity,
            created_by=created_by,
        )
        _write_tables(file, recording, metrics)
        _write_answers(file, recording.tables.values())
        hdf5.put_strings(file, "instances", instances)
        hdf5.put_strings(file, "boots", self._boots)
        _write_clocks(file, recording.clocks, self._boots)
        hdf5.put_records(
            file, "texts", ("text",), [(text,) for text in recording.texts.values()], id=("<i8", list(recording.texts))
        )
        _write_holes(file, recording.holes, self._boots)
        _write_events(file, recording.events, self._boots)
        _write_covers(file, recording.covers, self._boots)

    def __enter__(self) -> Self:
        """Use the image."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        self._file.close()

    def image(self) -> bytes:
        """The bytes of the file; nothing can be written to it any more."""
        return self._image.close()

    def rows(self, plan: BlockPlan) -> None:
        """Write a block of rows.

        :raises Error: where no reader would accept it.
        """
        _claim(self._claims, plan.ticks, len(plan.keys), plan.strand.interval_ns)
        group = self._group(f"block/{self._blocks}", plan.strand, closed=plan.closed)
        self._blocks += 1
        if plan.significant_bits:
            hdf5.describe(group, significant_bits=plan.significant_bits)
            hdf5.describe(self._file, compatible=SHORTENED)
        hdf5.put(group, "ticks", plan.ticks)
        series = self._series(plan.keys, SERIES)
        is_counter = np.array([self._metrics[at].semantics is Semantics.COUNTER for at in series["metric"]], bool)
        store = _CodeStore(group, len(plan.ticks), hasty=self._hasty)
        start = 0
        for values in plan.batches:
            store.add(values, is_counter[start : start + len(values)], series[start : start + len(values)])
            start += len(values)
        store.finish()
        hdf5.put(group, "series", series)

    def tier(self, strand: Strand, axis: Axis, *, closed: bool) -> "TierWriter":
        """Begin a block of buckets; several may be open at once."""
        group = self._group(f"tier/{self._tiers}", strand, closed=closed)
        hdf5.describe(group, step_ns=strand.step_ns)
        self._tiers += 1
        claim = partial(_claim, self._tier_claims, axis.first, interval_ns=strand.step_ns)
        return TierWriter(group, strand.interval_ns, axis, self._series, claim, hasty=self._hasty)

    def _group(self, name: str, strand: Strand, *, closed: bool) -> hdf5.Group:
        group = self._file.create_group(name)
        hdf5.describe(
            group,
            boot=self._boots.index(strand.boot),
            writer=strand.writer,
            started_ns=strand.started_ns,
            interval_ns=strand.interval_ns,
            closed=closed,
        )
        return group

    def _series(self, keys: Sequence[SeriesKey], kind: "np.dtype[Any]") -> Array:
        series = np.zeros(len(keys), kind)
        series["metric"] = [self._metric_index[key.table, key.metric] for key in keys]
        series["instance"] = [self._instance_index[key.instance] for key in keys]
        return series


def _claim(claims: Claims, ticks: Int64Array, series: int, interval_ns: int) -> None:
    try:
        claims.add(ticks, series, interval_ns)
    except ValueError as excess:
        raise Error(f"one file: {excess}") from excess


def _check_counts(**elements: Sized) -> None:
    for name, elements_of_kind in elements.items():
        if len(elements_of_kind) > (most := invariants.WIDE_ELEMENTS_MAX[name]):
            raise Error(f"one file: {len(elements_of_kind)} {name}; expected at most {most}")


class TierWriter:
    """A block of buckets in the making. ``series_of`` gives the records [series] of keys, of a type."""

    def __init__(
        self,
        group: hdf5.Group,
        interval_ns: int,
        axis: Axis,
        series_of: Callable[[Sequence[SeriesKey], "np.dtype[Any]"], Array],
        claim: Callable[[int], None],
        *,
        hasty: bool,
    ) -> None:
        self._group = group
        self._interval_ns = interval_ns
        self._series_of = series_of
        self._claim = claim
        self._store = _CodeStore(group, len(axis.first), hasty=hasty)
        self._series = [np.zeros(0, TIER_SERIES)]
        self._edges = [np.zeros(0, EDGES)]
        for name, column in (("ticks", axis.first), ("last", axis.last), ("rows", axis.rows)):
            hdf5.put(group, name, column)

    def add(self, keys: Sequence[SeriesKey], buckets: Buckets) -> None:
        """Write the statistics of some series, all of one kind."""
        small = statistics.stored(buckets, self._interval_ns)
        series = np.tile(self._series_of(keys, TIER_SERIES), len(small))
        series["stat"] = np.repeat(np.array(list(small), np.uint8), len(keys))
        self._store.add(np.concatenate(list(small.values())), np.zeros(len(series), bool), series)
        self._series.append(series)
        self._add_edges(keys, buckets.edges)

    def add_steady(self, keys: Sequence[SeriesKey], values: Sequence[int], buckets: Buckets) -> None:
        """Write the statistics of series that never move, of one kind; ``buckets``: of one that is always 0.

        They share their rows: these differ in nothing but the value.
        """
        small = statistics.stored(buckets, self._interval_ns)
        shared = np.zeros(len(small), TIER_SERIES)
        shared["stat"] = list(small)
        self._store.add(np.concatenate(list(small.values())), np.zeros(len(shared), bool), shared)
        series = np.repeat(shared, len(keys))
        for name in ("metric", "instance"):
            series[name] = np.tile(self._series_of(keys, TIER_SERIES)[name], len(small))
        if Stat.LAST in small:
            series["first"][series["stat"] == Stat.LAST] = values
        self._series.append(series)
        if edges := buckets.edges:
            stood = np.array(values, np.int64)
            ends = (np.repeat(ticks, len(keys)) for ticks in (edges.first_tick, edges.last_tick))
            self._add_edges(keys, Edges(stood, next(ends), stood, next(ends)))

    def _add_edges(self, keys: Sequence[SeriesKey], edges: Edges | None) -> None:
        if edges:
            records = self._series_of(keys, EDGES)
            for name, column in zip((EDGES.names or ())[2:], edges, strict=True):
                records[name] = column
            self._edges.append(records)

    def finish(self) -> None:
        """Write what is left.

        :raises Error: where no reader would accept it.
        """
        self._store.finish()
        self._claim(sum(map(len, self._series)))
        hdf5.put(self._group, "series", np.concatenate(self._series))
        hdf5.put(self._group, "edges", np.concatenate(self._edges))


class _CodeStore:
    """Turns values into codes, and keeps these by width."""

    def __init__(self, group: hdf5.Group, length: int, *, hasty: bool) -> None:
        self._stores = {width: hdf5.RowStore(group, width, length, hasty=hasty) for width in WIDTHS}
        self._at_once = max(1, CODE_VALUES // max(1, length))

    def add(self, values: Int64Array, is_counter: BoolArray, series: Array) -> None:
        """Take rows; fills in their records."""
        for start in range(0, len(values), self._at_once):
            piece = slice(start, start + self._at_once)
            for rows, width, narrow in dense_coding.encode(values[piece], is_counter[piece], series[piece]):
                first = self._stores[width].add(narrow)
                series["row"][start + rows] = np.arange(first, first + len(rows))

    def finish(self) -> None:
        """Write what is left."""
        for store in self._stores.values():
            store.finish()


def _write_tables(file: hdf5.File, recording: Recording, metrics: Sequence[tuple[str, Metric]]) -> None:
    tables = recording.tables.values()
    hdf5.put_records(file, "tables", ("name", "per", "doc"), [(t.name, t.per, t.doc) for t in tables])
    hdf5.put_records(
        file,
        "metrics",
        ("table", "name", "unit", "semantics", "doc", "origin"),
        [(table, m.name, m.unit, str(m.semantics), m.doc, m.origin) for table, m in metrics],
        scale=("u1", [metric.scale for _, metric in metrics]),
    )


def _write_answers(file: hdf5.File, tables: Iterable[Table]) -> None:
    """Say what tables declare about answers, as far as there is room: those that say least first."""
    declaring = [table for table in tables if table.answers is not None]
    if not declaring:
        return
    from sysmond.base import declared_answers  # noqa: PLC0415  only strangers' tables declare any

    said: dict[str, Any] = {}
    room = ANSWERS_BYTES_MAX - len("{}")
    spelled_of = {table.name: declared_answers.spell(table.answers) for table in declaring}
    for name, spelled in sorted(spelled_of.items(), key=lambda entry: (len(entry[1]), entry[0])):
        room -= len(spelled) + len(name) + _ENTRY_BYTES
        if room >= 0:
            said[name] = json.loads(spelled)
    if said:
        hdf5.describe(file, answers=json.dumps(said, separators=(",", ":")))


def _with_answers(tables: dict[str, Table], spelled: str) -> dict[str, Table]:
    """Tables with what a file says that they declare.

    :raises ValueError: where that makes no sense. :raises UsageError: where it breaks a rule.
    """
    if not spelled:
        return tables
    from sysmond.base import declared_answers  # noqa: PLC0415  as above

    said = json.loads(spelled) if len(spelled) <= ANSWERS_BYTES_MAX else None
    if type(said) is not dict:
        raise ValueError(f"answers that are not an object of at most {ANSWERS_BYTES_MAX} characters")
    made = {
        name: table._replace(answers=declared_answers.parse(said[name])) if name in said else table
        for name, table in tables.items()
    }
    for table in made.values():
        declared_answers.check(table)
    return made


def _write_clocks(file: hdf5.File, clocks: dict[str, list[Relation]], boots: Sequence[str]) -> None:
    rows = [(boots.index(boot), *relation) for boot, relations in sorted(clocks.items()) for relation in relations]
    names = ("boot", "boottime_ns", "realtime_ns", "monotonic_ns")
    hdf5.put(file, "clocks", np.array(rows, [(name, "<i8") for name in names]))


def _write_holes(file: hdf5.File, holes: Sequence[Hole], boots: Sequence[str]) -> None:
    hdf5.put_records(
        file,
        "gaps",
        ("table", "cause", "detail"),
        [(hole.table, str(hole.cause), hole.detail) for hole in holes],
        boot=("<u4", [boots.index(hole.boot) for hole in holes]),
        start_ns=("<i8", [hole.start_ns for hole in holes]),
        end_ns=("<i8", [hole.end_ns for hole in holes]),
    )


def _write_events(file: hdf5.File, events: Sequence[BootEvent], boots: Sequence[str]) -> None:
    event_records.write(
        file,
        events,
        boot=("<u4", [boots.index(event.boot) for event in events]),
        boottime_ns=("<i8", [event.boottime_ns for event in events]),
    )


def _write_covers(file: hdf5.File, covers: Sequence[Name], boots: Sequence[str]) -> None:
    rows = [(boots.index(name.boot), name.first, name.last) for name in covers]
    hdf5.put(file, "covers", np.array(rows, [("boot", "<u4"), ("first", "<u4"), ("last", "<u4")]))


def _check_lives(series: Array, ticks: int) -> None:
    if len(series) and int(series["stop"].max()) > ticks:
        raise ValueError(f"a series that ends at tick {series['stop'].max()} of {ticks}")


def _claims() -> tuple[Claims, Claims]:
    return Claims(invariants.SERIES_MAX), Claims(invariants.TIER_ROWS_MAX)


def _strand(group: Node, boots: Sequence[str], *, is_tier: bool = False) -> Strand:
    strand = Strand(
        boots[_index(group.attribute("boot", int))],
        group.attribute("writer", str),
        group.attribute("started_ns", int),
        group.attribute("interval_ns", int),
        group.attribute("step_ns", int) if is_tier else 0,
    )
    invariants.check_interval("an interval", strand.interval_ns)
    invariants.check_moments("the start of a writer", strand.started_ns)
    if is_tier:
        invariants.check_interval("a step", strand.step_ns)
    return strand


def _ticks(group: Node, name: str = "ticks") -> Int64Array:
    ticks: Int64Array = group.array(name, _INTEGER).astype(np.int64, copy=False)
    invariants.check_ticks(name, ticks)
    return ticks


class _FileBlock:
    """A block of an open segment; values are decoded when they are read."""

    def __init__(self, path: str, group: Node, boots: Sequence[str], keys_of: Keys, claims: Claims) -> None:
        self.strand = _strand(group, boots)
        self.closed = group.attribute("closed", bool)
        self.significant_bits = _index(group.attribute("significant_bits", int, 0))
        self.ticks = _ticks(group)
        self._path = path
        self._group = group
        self._matrices: dict[int, hdf5.Matrix] = {}
        self._series = group.array("series", SERIES)
        self._keys_of = keys_of
        claims.add(self.ticks, len(self._series), self.strand.interval_ns)
        keys_of.check(self._series)
        _check_lives(self._series, len(self.ticks))

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series, one a row."""
        return self._keys_of(self._series)

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time].

        :raises CorruptError: where a chunk is damaged.
        """
        chosen = self._series[np.asarray(rows, np.int64)]
        try:
            return dense_coding.decode(chosen, self._keys_of.is_counter[chosen["metric"]], len(self.ticks), self._codes)
        except Exception as damage:  # the library raises many kinds
            raise CorruptError(f"{self._path}: {one_line(damage)}") from damage

    def _codes(self, width: int, rows: Array) -> Array:
        if width not in self._matrices:
            self._matrices[width] = self._group.matrix(width, len(self.ticks), len(self._series))
        return self._matrices[width].rows(rows)


class _FileTier:
    """A block of buckets of an open segment; statistics are decoded when they are read."""

    def __init__(self, path: str, group: Node, boots: Sequence[str], keys_of: Keys, claims: Claims) -> None:
        self.strand = _strand(group, boots, is_tier=True)
        self.closed = group.attribute("closed", bool)
        first, last, rows = _ticks(group), _ticks(group, "last"), group.array("rows", _INTEGER).astype(np.int64)
        if not len(first) == len(last) == len(rows) or (last < first).any() or (first[1:] <= last[:-1]).any():
            raise ValueError("buckets that make no sense")
        if len(rows) and not 1 <= rows.min() <= rows.max() <= invariants.TICKS_MAX:
            raise ValueError("buckets of no or too many ticks")
        self.axis = Axis(first, last, rows)
        self._path = path
        self._group = group
        self._matrices: dict[int, hdf5.Matrix] = {}
        self._series = group.array("series", TIER_SERIES)
        claims.add(first, len(self._series), self.strand.step_ns)
        keys_of.check(self._series, TIER_SERIES)
        _check_lives(self._series, len(first))
        self._of = keys_of.tier(self._series)

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series."""
        return self._of.keys

    @property
    def stats(self) -> Sequence[tuple[Stat, ...]]:
        """What is kept of each series."""
        return self._of.stats

    def buckets(self, rows: Sequence[int], wanted: Iterable[Stat] | None = None, part: slice = slice(None)) -> Buckets:
        """The wanted statistics (all where not told) of the chosen series, which must be of one kind.

        ``part``: which buckets. :raises CorruptError: where a chunk is damaged.
        """
        chosen = np.asarray(rows, np.int64)
        kinds = {self._of.stats[row] for row in chosen.tolist()}
        if len(kinds) != 1:
            raise ValueError("expected one kind of series at a time")
        stats = kinds.pop()
        read = stats if wanted is None else statistics.needed(stats, wanted)
        try:
            at = self._of.place[chosen][:, list(read)].T.ravel()
            if (at < 0).any():
                raise ValueError("a series lacks a statistic")
            series = self._series[at]
            axis = Axis(*(member[part] for member in self.axis))
            # No bucket is the sum of those before it, so that a part is decoded by itself.
            values = dense_coding.decode(
                series, np.zeros(len(series), bool), len(axis.first), lambda width, at: self._codes(width, at, part)
            )
            small = dict(zip(read, values.reshape(len(read), len(chosen), -1), strict=True))
            counter = Stat.LEAP in stats
            edges = self._edges(self._series[self._of.heads[chosen]]) if counter else None
            return statistics.natural(axis, small, self.strand.interval_ns, counter=counter, edges=edges)
        except Exception as damage:  # the library raises many kinds
            raise CorruptError(f"{self._path}: {one_line(damage)}") from damage

    def _codes(self, width: int, rows: Array, part: slice) -> Array:
        if width not in self._matrices:
            self._matrices[width] = self._group.matrix(width, len(self.axis.first), len(self._series))
        return self._matrices[width].rows(rows, part)

    def _edges(self, series: Array) -> Edges:
        records = self._group.array("edges", EDGES)
        order = np.argsort(identity(records))
        sought = identity(series)
        at = order[np.minimum(np.searchsorted(identity(records), sought, sorter=order), len(records) - 1)]
        if (identity(records)[at] != sought).any():
            raise ValueError("a counter has no edges")
        return Edges(*(records[name][at] for name in (EDGES.names or ())[2:]))


def _index(number: int) -> int:
    if number < 0:
        raise ValueError(f"a reference of {number}")
    return int(number)


class Segment(hdf5.OpenFile):
    """An open segment file, as a recording; its blocks can be read until it is closed."""

    recording: Recording

    def __init__(self, path: str) -> None:
        """Open a segment and read everything but the values; see ``hdf5.OpenFile``."""
        super().__init__(path, FORMAT)

    def _read(self, root: Node) -> None:
        sensitivity = Sensitivity(root.attribute("sensitivity", str))
        invariants.check_place(self.path, sensitivity)
        tables, keys_of = declarations.read(*(root.array(name) for name in ("tables", "metrics", "instances")))
        boots = root.strings("boots")
        invariants.check_boots(boots)
        rows, buckets = _claims()
        blocks = [_FileBlock(self.path, group, boots, keys_of, rows) for group in root.numbered("block")]
        tiers = [_FileTier(self.path, group, boots, keys_of, buckets) for group in root.numbered("tier")]
        self.recording = Recording(
            sensitivity,
            _with_answers(tables, root.attribute("answers", str, "")),
            blocks,
            dict(root.columns("texts", id=int, text=str)),
            _clocks(root, boots),
            list(_holes(root, boots)),
            list(_events(root, boots)),
            tiers,
            _covers(root, boots),
        )


def _clocks(root: Node, boots: Sequence[str]) -> dict[str, list[Relation]]:
    clocks: dict[str, list[Relation]] = {}
    for boot, *relation in root.columns("clocks", boot=int, boottime_ns=int, realtime_ns=int, monotonic_ns=int):
        clocks.setdefault(boots[_index(boot)], []).append(Relation(*relation))
    for relations in clocks.values():
        invariants.check_relations(relations)
    return clocks


def _holes(root: Node, boots: Sequence[str]) -> Iterator[Hole]:
    for boot, table, start_ns, end_ns, cause, detail in root.columns(
        "gaps", boot=int, table=str, start_ns=int, end_ns=int, cause=str, detail=str
    ):
        invariants.check_span("a gap", start_ns, end_ns)
        yield Hole(boots[_index(boot)], table, start_ns, end_ns, Cause(cause), detail)


def _events(root: Node, boots: Sequence[str], only: Callable[[Array], BoolArray] | None = None) -> Iterator[BootEvent]:
    for boot, at_ns, *said in event_records.read(root, "boot", "boottime_ns", only=only):
        invariants.check_moments("an event", at_ns)
        yield BootEvent(boots[_index(boot)], at_ns, *said)


def _covers(root: Node, boots: Sequence[str]) -> list[Name]:
    return [Name(boots[_index(boot)], *reach) for boot, *reach in root.columns("covers", boot=int, first=int, last=int)]


class EventsOfFile(hdf5.OpenFile):
    """An open segment of which only that is read which tells what happened: the rest may be damaged.

    ``sensitivity``, ``clocks``, ``events``, ``covers``: as of its ``Recording``.
    """

    def __init__(self, path: str, choose: Callable[[Int64Array], BoolArray] | None = None) -> None:
        """Open a segment and read these; see ``hdf5.OpenFile``.

        ``choose``: says of which events, bool[event], by when they happened, int64[event] UTC, as this file knows it.
        """
        self._choose = choose
        super().__init__(path, FORMAT)

    def _read(self, root: Node) -> None:
        self.sensitivity = Sensitivity(root.attribute("sensitivity", str))
        invariants.check_place(self.path, self.sensitivity)
        boots = root.strings("boots")
        invariants.check_boots(boots)
        self.clocks = _clocks(root, boots)
        self._boots = boots
        choose = self._choose
        self.events = list(_events(root, boots, choose and (lambda records: choose(self._times_ns(records)))))
        self.covers = _covers(root, boots)

    def _times_ns(self, records: Array) -> Int64Array:
        times_ns = records["boottime_ns"].astype(np.int64)
        for number, boot in enumerate(self._boots):
            mine = records["boot"] == number
            times_ns[mine] = course_of(self.clocks.get(boot, ()), SECOND_NS).utc_ns(times_ns[mine])
        return event_records.happened_ns(records, times_ns)
