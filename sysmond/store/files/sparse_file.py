# SPDX-License-Identifier: Apache-2.0
"""Files of long tables: a stretch as the bytes of an HDF5 file, and the stretch that such a file is.

``docs/format.md`` specifies the file. In short: readings, keys and rows are three groups of vectors; rows are sorted by
key, then time, and hold differences to the row before of their key; with what a key begins, ends, and what its gauges
were at most stands with the keys, so that many questions are answered without a row.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from sysmond.base import declared_answers
from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, METRICS_PER_TABLE_MAX, Cause, Metric, Semantics, Sensitivity, Table, check_table
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.errors import CorruptError, Error
from sysmond.records import record_bytes
from sysmond.ring.frame import Layout, decode_layout, encode_layout
from sysmond.store.coding import sparse_coding
from sysmond.store.coding.integers import WIDTHS, filled, grown, is_absent, summed
from sysmond.store.coding.sparse_coding import VECTOR, Coded
from sysmond.store.files import hdf5, invariants
from sysmond.store.files.hdf5 import Node, one_line
from sysmond.store.of_ring import Hole
from sysmond.store.stretches.stretch import (
    ALL,
    About,
    Incarnation,
    MemoryStretch,
    Readings,
    Resets,
    Stretch,
    key_of,
    largest,
    lasts,
    resets_of,
    rows_of,
)

# No incompatible flags exist yet.
FORMAT = hdf5.Format("sysmond long", 1, invariants.LONG_ELEMENTS_MAX)
# The compatible flag of a file that tells which counters began anew, or whose buckets grew by that rule.
BY_RULE = 1
ROWS_MAX = invariants.ROWS_MAX
# What a vector is of its column; that of the readings of rows and keys has no name.
STEP, VALUE, KEY, FIRST, LAST, PEAK, SEEN, COUNT = "step", "value", "key", "first", "last", "peak", "seen", "count"
_VECTORS_MAX = 4 * METRICS_PER_TABLE_MAX + 8
_BYTE, _INTEGER = np.dtype(np.uint8), np.dtype(np.int64)
# One process is asked for more often than all: texts are unpacked in pieces.
_LEVEL = 6

_Places = dict[tuple[str, str], Array]


def encode(stretch: Stretch, created_by: str) -> bytes:
    """Build the file image of a stretch: a column, and some keys of it, at a time.

    :raises Error: where it has more rows, keys or texts than one file may.
    """
    _check_bounds(stretch)
    image = hdf5.Image()
    with image.file as file:
        _describe(file, stretch, created_by)
        _write_texts(file, stretch.texts)
        readings = _Writer(file, "readings", len(stretch.ticks))
        readings.add("tick", "", sparse_coding.sums(stretch.ticks))
        for name in ("full", "lost", "walked"):
            readings.add(name, "", sparse_coding.levels(getattr(stretch, name).astype(np.int64)))
        readings.finish()
        _write_keys(file, stretch)
        resets = _write_rows(file, stretch)
        _write_resets(file, resets)
    return image.close()


def _check_bounds(stretch: Stretch) -> None:
    """Refuse what no reader would accept."""
    try:
        for name, length in (("readings", len(stretch.ticks)), ("keys", len(stretch.counts)), ("rows", stretch.rows)):
            invariants.check_length(name, length)
        invariants.check_length("rows", stretch.rows, len(stretch.table.metrics))
        invariants.Claims(0).add(stretch.ticks, 0, stretch.interval_ns)
        for name, items in (("lives", stretch.lives), ("clocks", stretch.relations), ("gaps", stretch.holes)):
            invariants.check_count(name, len(items), invariants.LONG_ELEMENTS_MAX[name])
        invariants.check_count("texts", len(stretch.texts), invariants.LONG_ELEMENTS_MAX["text_ends"])
    except ValueError as excess:
        raise Error(f"{stretch.table.name}: {excess} in one file") from excess


def _describe(file: hdf5.File, stretch: Stretch, created_by: str) -> None:
    hdf5.describe(
        file,
        format=FORMAT.name,
        version=FORMAT.version,
        incompatible=0,
        compatible=BY_RULE if lasts(stretch.table) or stretch.about.is_by_rule else 0,
        boot=stretch.boot,
        writer=stretch.writer,
        sensitivity=stretch.sensitivity,
        created_by=created_by,
    )
    if said := declared_answers.spell(stretch.table.answers):
        hdf5.describe(file, answers=said)
    declaration = encode_layout(Layout(stretch.table, stretch.interval_ns))
    hdf5.put(file, "declaration", np.frombuffer(declaration, np.uint8))
    lives = [(life.started_ns, life.first_ns, life.closed) for life in stretch.lives]
    hdf5.put(file, "lives", np.array(lives, [("started_ns", "<i8"), ("first_ns", "<i8"), ("closed", "u1")]))
    names = ("boottime_ns", "realtime_ns", "monotonic_ns")
    relations = [tuple(relation) for relation in stretch.relations]
    hdf5.put(file, "clocks", np.array(relations, [(name, "<i8") for name in names]))
    hdf5.put_records(
        file,
        "gaps",
        ("cause", "detail"),
        [(str(hole.cause), hole.detail) for hole in stretch.holes],
        start_ns=("<i8", [hole.start_ns for hole in stretch.holes]),
        end_ns=("<i8", [hole.end_ns for hole in stretch.holes]),
    )


def _write_texts(file: hdf5.File, texts: Sequence[str]) -> None:
    """Texts one after the other, and where each ends: the longest must not make all as long."""
    encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
    hdf5.put(file, "texts", np.frombuffer(b"".join(encoded), np.uint8))
    hdf5.put(file, "text_ends", np.cumsum([len(word) for word in encoded], dtype=np.int64))


class _Writer:
    """A group of vectors in the making."""

    def __init__(self, file: hdf5.File, name: str, length: int) -> None:
        self._group = file.create_group(name)
        self._store = hdf5.VectorStore(self._group, length, _LEVEL)
        self._records: list[tuple[bytes, bytes, bool, int, int, int, int]] = []
        hdf5.describe(self._group, length=length)

    def add(self, role: str, name: str, coded: Coded) -> None:
        row = 0 if coded.codes is None else self._store.add(coded.codes)
        self._records.append((name.encode(), role.encode(), coded.summed, coded.width, row, coded.base, coded.factor))

    def finish(self) -> None:
        hdf5.put(self._group, "vectors", np.array(self._records, VECTOR))


def _write_keys(file: hdf5.File, stretch: Stretch) -> None:
    keys = _Writer(file, "keys", len(stretch.counts))
    for name, column in stretch.keys.items():
        keys.add(KEY, name, sparse_coding.sums(column))
    first, last = stretch.first_tick(), stretch.last_tick()
    keys.add(COUNT, "", sparse_coding.levels(stretch.counts))
    keys.add(FIRST, "", sparse_coding.levels(first))
    keys.add(LAST, "", sparse_coding.levels(last - first))
    keys.add(SEEN, "", sparse_coding.levels(stretch.seen() - last))
    for metric in stretch.table.metrics:
        if metric.name in stretch.keys or _stands_alone(stretch.table, metric):
            continue
        first = stretch.first(metric.name)
        keys.add(FIRST, metric.name, sparse_coding.levels(first))
        if not lasts(stretch.table):
            continue
        last = stretch.last(metric.name)
        keys.add(LAST, metric.name, sparse_coding.levels(_less(last, first)))
        if metric.semantics is Semantics.GAUGE:
            keys.add(PEAK, metric.name, sparse_coding.levels(_less(stretch.peak(metric.name), last)))
    keys.finish()


def _write_resets(file: hdf5.File, resets: Mapping[str, Sequence[Resets]]) -> None:
    """Where counters began anew: who knows that needs to read no row."""
    known = [(name, *pair) for name, pieces in resets.items() for piece in pieces for pair in zip(*piece, strict=True)]
    if len(known) > invariants.LONG_ELEMENTS_MAX["resets"]:
        hdf5.describe(file, compatible=0)  # Readers look for them in the rows.
    elif known:
        names, keys, readings = zip(*known, strict=True)
        hdf5.put_records(
            file, "resets", ("metric",), [(name,) for name in names], key=("<u4", keys), reading=("<u4", readings)
        )


def _write_rows(file: hdf5.File, stretch: Stretch) -> dict[str, list[Resets]]:
    """Write the rows, and find where counters began anew, as they come by."""
    resets: dict[str, list[Resets]] = {}
    rows = _Writer(file, "rows", stretch.rows)
    rows.add(STEP, "", sparse_coding.steps(_grown(stretch, "")))
    for metric in stretch.table.metrics:
        if metric.name in stretch.keys:
            continue
        if _stands_alone(stretch.table, metric):
            pieces = (stretch.column(metric.name, keys) for keys in stretch.batches())
            rows.add(VALUE, metric.name, sparse_coding.steps(pieces))
        else:
            noted = resets.setdefault(metric.name, []) if metric.semantics is Semantics.COUNTER else None
            rows.add(STEP, metric.name, sparse_coding.steps(_grown(stretch, metric.name, noted)))
    rows.finish()
    return resets


def _stands_alone(table: Table, metric: Metric) -> bool:
    """Whether values are stored as they are: what grew at one moment says nothing about the next."""
    return metric.semantics is Semantics.COUNTER and not lasts(table)


def _grown(stretch: Stretch, name: str, noted: list[Resets] | None = None) -> Iterator[Int64Array]:
    """The differences of a column, some keys at a time; without a name, those of the readings.

    ``noted``: where it is a counter, takes where that began anew.
    """
    for keys in stretch.batches():
        begins = stretch.begins[keys]
        values = stretch.column(name, keys) if name else stretch.tick_index(keys)
        if noted is not None:
            noted.append(resets_of(stretch, keys, values))
        yield grown(values, begins - begins[0])


def _less(values: Int64Array, others: Int64Array) -> Int64Array:
    """How much values are more than others, of which those that are absent count as 0."""
    difference: Int64Array = values - filled(others)
    difference[is_absent(values)] = ABSENT
    return difference


def _more(difference: Int64Array, others: Int64Array) -> Int64Array:
    """The way back."""
    values: Int64Array = difference + filled(others)
    values[is_absent(difference)] = ABSENT
    return values


class _Group:
    """An open group of vectors."""

    def __init__(self, root: Node, name: str) -> None:
        group = root.member(name)
        self.length = group.attribute("length", int)
        invariants.check_length(name, self.length)
        records = group.array("vectors", VECTOR)
        if len(records) > _VECTORS_MAX or set(VECTOR.names or ()) - set(records.dtype.names or ()):
            raise ValueError(f"the vectors of {name} make no sense")
        self._places: _Places = {(record["role"].decode(), record["name"].decode()): record for record in records}
        if len(self._places) != len(records) or not np.isin(records["width"], (0, *WIDTHS)).all():
            raise ValueError(f"vectors of {name} that are there twice, or of a width that does not exist")
        self._vectors = group.vectors(self.length)

    def has(self, role: str, name: str) -> bool:
        """Whether there is such a vector."""
        return (role, name) in self._places

    def read(self, role: str, name: str = "", low: int = 0, high: int | None = None) -> Int64Array:
        """A vector, or of one that is not summed up a part."""
        stop = self.length if high is None else high
        record = self._places[role, name]
        return sparse_coding.decode(record, stop - low, lambda width, row: self._vectors.read(width, row, low, stop))


class FileStretch(hdf5.OpenFile, Stretch):
    """An open file as a stretch: columns are read when they are asked for."""

    def __init__(self, path: str) -> None:
        """Open a file and read all but rows and what keys begin and end with; see ``hdf5.OpenFile``."""
        super().__init__(path, FORMAT)

    def _read(self, root: Node) -> None:
        layout = decode_layout(root.array("declaration", _BYTE).tobytes())
        check_table(layout.table)
        key = key_of(layout.table)
        if not 0 < len(key) == len(set(key)) <= invariants.KEY_COLUMNS_MAX:
            raise ValueError(f"the key of {layout.table.name} makes no sense")
        record_bytes(layout.table)
        table = layout.table._replace(answers=declared_answers.read(root.attribute("answers", str, "")))
        declared_answers.check(table)
        boot = root.attribute("boot", str)
        sensitivity = Sensitivity(root.attribute("sensitivity", str))
        invariants.check_place(self.path, sensitivity, layout.table.name)
        about = About(
            table,
            boot,
            root.attribute("writer", str),
            sensitivity,
            layout.interval_ns,
            [
                Incarnation(started_ns, first_ns, bool(closed))
                for started_ns, first_ns, closed in root.columns("lives", started_ns=int, first_ns=int, closed=int)
            ],
            [
                Relation(*relation)
                for relation in root.columns("clocks", boottime_ns=int, realtime_ns=int, monotonic_ns=int)
            ],
            [
                Hole(boot, layout.table.name, start_ns, end_ns, Cause(cause), detail)
                for start_ns, end_ns, cause, detail in root.columns(
                    "gaps", start_ns=int, end_ns=int, cause=str, detail=str
                )
            ],
            self.path,
            bool(root.attribute("compatible", int) & BY_RULE),
        )
        _check_about(about)
        readings, self._keys, self._rows = (_Group(root, name) for name in ("readings", "keys", "rows"))
        ticks, full, lost, walked = (_once(readings.read(name)) for name in ("tick", "full", "lost", "walked"))
        invariants.check_ticks("readings", ticks)
        invariants.Claims(0).add(ticks, 0, layout.interval_ns)
        if ((full != 0) & (full != 1)).any() or (lost < 0).any():
            raise ValueError("readings that make no sense")
        invariants.check_length("rows", self._rows.length, len(layout.table.metrics))
        counts = self._keys.read(COUNT)
        if (counts < 1).any() or (counts > self._rows.length).any() or int(counts.sum()) != self._rows.length:
            raise ValueError("counts of rows that make no sense")
        keys = {name: self._keys.read(KEY, name) for name in key_of(layout.table)}
        _check_sorted(list(keys.values()))
        Stretch.__init__(self, about, Readings(ticks, full.astype(np.bool_), lost, walked), keys, counts)
        if about.is_by_rule:
            self._resets = _read_resets(root, layout.table, len(counts), len(ticks))

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts, by code.

        :raises CorruptError: where they are damaged; so do all others.
        """
        try:
            blob = self._root.array("texts", _BYTE).tobytes()
            ends = self._root.array("text_ends", _INTEGER).tolist()
            if ends != sorted(ends) or (ends and not 0 <= ends[0] <= ends[-1] == len(blob)):
                raise ValueError("texts that make no sense")
            begins = [0, *ends]
            return [blob[low:high].decode("utf-8", "surrogateescape") for low, high in zip(begins, ends, strict=False)]
        except Exception as damage:  # the library raises many kinds
            raise self._corrupt(damage) from damage

    def tick_index(self, keys: slice = ALL) -> Int64Array:
        """Of each row of these keys the reading that it is of."""
        index = self._summed("", keys, self.first_tick()[keys])
        if len(index) and not 0 <= index.min() <= index.max() < len(self.ticks):
            raise CorruptError(f"{self.path}: rows of readings that there are not")
        return index

    def column(self, name: str, keys: slice = ALL) -> Int64Array:
        """The values of a metric, of these keys."""
        if name in self.keys:
            return np.repeat(self.keys[name][keys], self.counts[keys])
        if self._rows.has(VALUE, name):
            return self._read_rows(VALUE, name, rows_of(self, keys))
        if not self._rows.has(STEP, name):
            raise CorruptError(f"{self.path}: it has no column {name}")
        return self._checked(name, self._summed(name, keys, self.first(name)[keys]))

    def first(self, name: str) -> Int64Array:
        """With what each key begins."""
        if name in self.keys:
            return self.keys[name]
        if not self._keys.has(FIRST, name):
            firsts: Int64Array = self.column(name)[self.begins]
            return firsts
        return self._checked(name, self._of_keys(FIRST, name))

    def last(self, name: str) -> Int64Array:
        """With what each key ends."""
        if name in self.keys:
            return self.keys[name]
        if not self._keys.has(LAST, name):
            lasts: Int64Array = self.column(name)[self.begins + self.counts - 1]
            return lasts
        return self._checked(name, _more(self._of_keys(LAST, name), self.first(name)))

    def peak(self, name: str) -> Int64Array:
        """The largest value of a gauge at each key."""
        if not self._keys.has(PEAK, name):
            return largest(self.column(name), self.begins)
        return _more(self._of_keys(PEAK, name), self.last(name))

    def first_tick(self) -> Int64Array:
        """The reading of each key's first row."""
        return self._of_reading(self._of_keys(FIRST))

    def last_tick(self) -> Int64Array:
        """The reading of each key's last row."""
        return self._of_reading(self._of_keys(LAST) + self._of_keys(FIRST))

    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there."""
        return self._of_reading(self._of_keys(SEEN) + self.last_tick())

    def _of_keys(self, role: str, name: str = "") -> Int64Array:
        try:
            return self._keys.read(role, name)
        except Exception as damage:  # the library raises many kinds
            raise self._corrupt(damage) from damage

    def _summed(self, name: str, keys: slice, first: Int64Array) -> Int64Array:
        rows = rows_of(self, keys)
        if not len(first):
            return np.zeros(0, np.int64)
        return summed(self._read_rows(STEP, name, rows), first, self.begins[keys] - rows.start)

    def _read_rows(self, role: str, name: str, rows: slice) -> Int64Array:
        try:
            return self._rows.read(role, name, rows.start, rows.stop)
        except Exception as damage:  # the library raises many kinds
            raise self._corrupt(damage) from damage

    def _of_reading(self, readings: Int64Array) -> Int64Array:
        if len(readings) and not 0 <= readings.min() <= readings.max() < len(self.ticks):
            raise CorruptError(f"{self.path}: keys of readings that there are not")
        return readings

    def _checked(self, name: str, values: Int64Array) -> Int64Array:
        """Codes of texts must be of texts that there are."""
        if name not in self._is_text:
            raise CorruptError(f"{self.path}: it has no column {name}")
        if self._is_text[name] and len(values):
            wrong: BoolArray = ((values < 0) | (values >= len(self.texts))) & ~is_absent(values)
            if wrong.any():
                raise CorruptError(f"{self.path}: {name} refers to texts that there are not")
        return values

    @cached_property
    def _is_text(self) -> dict[str, bool]:
        return {metric.name: metric.is_text for metric in self.table.metrics}

    def _corrupt(self, damage: Exception) -> CorruptError:
        return CorruptError(f"{self.path}: {one_line(damage)}")


class ReopenedStretch(Stretch):
    """A file of a long table that may have been closed meanwhile."""

    def __init__(self, again: Callable[[], FileStretch]) -> None:
        """Follow a file; ``again``: gives it, open.

        :raises Error: as ``FileStretch`` does. :raises FileNotFoundError: where it is gone; so does whatever reads it.
        """
        there = again()
        readings = Readings(there.ticks, there.full, there.lost, there.walked)
        super().__init__(there.about, readings, there.keys, there.counts)
        self._again = again

    @property
    def _file(self) -> FileStretch:
        return self._again()

    @property
    def surroundings(self) -> MemoryStretch | None:
        """What was cut out of the file last."""
        return self._file.surroundings

    @surroundings.setter
    def surroundings(self, cut: MemoryStretch | None) -> None:
        self._file.surroundings = cut

    @property
    def texts(self) -> Sequence[str]:
        """The texts, by code."""
        return self._file.texts

    def tick_index(self, keys: slice = ALL) -> Int64Array:
        """Of each row of these keys the reading that it is of."""
        return self._file.tick_index(keys)

    def column(self, name: str, keys: slice = ALL) -> Int64Array:
        """The values of a metric, of these keys."""
        return self._file.column(name, keys)

    def first(self, name: str) -> Int64Array:
        """With what each key begins."""
        return self._file.first(name)

    def last(self, name: str) -> Int64Array:
        """With what each key ends."""
        return self._file.last(name)

    def peak(self, name: str) -> Int64Array:
        """The largest value of a gauge at each key."""
        return self._file.peak(name)

    def first_tick(self) -> Int64Array:
        """The reading of each key's first row."""
        return self._file.first_tick()

    def last_tick(self) -> Int64Array:
        """The reading of each key's last row."""
        return self._file.last_tick()

    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there."""
        return self._file.seen()

    def _find_resets(self, name: str) -> Resets:
        return self._file.resets(name)


def _once(values: Int64Array) -> Int64Array:
    """The same; where all are one number, as of readings most often, that number takes no memory but once."""
    if len(values) and (values == values[0]).all():
        return np.broadcast_to(values[0], values.shape)
    return values


def _read_resets(root: Node, table: Table, keys: int, readings: int) -> dict[str, Resets]:
    """Where counters began anew, as a file has it."""
    pairs_of: dict[str, list[tuple[int, int]]] = {
        metric.name: [] for metric in table.metrics if metric.semantics is Semantics.COUNTER
    }
    for name, key, reading in root.columns("resets", metric=str, key=int, reading=int) if root.has("resets") else ():
        if name not in pairs_of or not (0 <= key < keys and 0 <= reading < readings):
            raise ValueError("counters that began anew, and are not there")
        pairs_of[name].append((key, reading))
    return {name: Resets(*np.array(pairs, np.int64).reshape(-1, 2).T) for name, pairs in pairs_of.items()}


def _check_about(about: About) -> None:
    invariants.check_boots([about.boot])
    invariants.check_interval("an interval", about.interval_ns)
    invariants.check_relations(about.relations)
    for life in about.lives:
        invariants.check_moments("a life", life.started_ns, life.first_ns)
    for hole in about.holes:
        invariants.check_span("a gap", hole.start_ns, hole.end_ns)


def open_file(path: str) -> FileStretch:
    """Open a file of a long table; see ``FileStretch``."""
    return FileStretch(path)


def declares(stretch: Stretch) -> str:
    """What files must have in common to become one: declaration, interval and writer."""
    return json.dumps([stretch.writer, encode_layout(Layout(stretch.table, stretch.interval_ns)).decode()])


def _check_sorted(keys: Sequence[Int64Array]) -> None:
    """Keys must be sorted, and each be there once."""
    is_equal = np.ones(max(0, len(keys[0]) - 1), np.bool_)
    for column in keys:
        if (is_equal & (column[1:] < column[:-1])).any():
            raise ValueError("keys that are not sorted")
        is_equal &= column[1:] == column[:-1]
    if is_equal.any():
        raise ValueError("a key that is there twice")
