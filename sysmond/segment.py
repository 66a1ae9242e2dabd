# SPDX-License-Identifier: Apache-2.0
"""Segments: HDF5 files of recordings. The one module that speaks h5py.

``docs/format.md`` specifies the file and is tested by decoding one with nothing but h5py. In short:
a block is a matrix a width (``i1``, ``i2``, ``i4``, ``i8``), one row a series; a counter is stored as its
increments, a gauge as its difference from its first value, both narrowed; the smallest value of a type
is "absent". Everything is chunked and checksummed, and built in memory: the caller publishes the bytes.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Self

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5s, h5t

from sysmond import codes
from sysmond.clock import Relation
from sysmond.codes import CHUNK_SERIES, SERIES, WIDTHS
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.recording import Hole, Key, Keys, Plan, Recording, Strand, plan_of
from sysmond.result import Int64Array, Result

FORMAT = "sysmond segment"
VERSION = 1
# Incompatible flags this program understands: none exist yet.
INCOMPATIBLE_KNOWN = 0

CHUNK_TICKS = 3600
ARRAY_CHUNK = 65536
DEFLATE_LEVEL = 4
# How much waits to be written: bounds memory whatever the size of the file.
PENDING_BYTES = 1024 * 1024
# By how much the image grows: each time it may be copied, and leave a hole in the heap.
IMAGE_STEP_BYTES = 1024 * 1024
# How many values become codes at once: their intermediate results stay in the processor's cache.
CODE_VALUES = 64 * 1024
# No array but the matrices is larger, once unpacked: a crafted file cannot make a reader take more.
ARRAY_BYTES_MAX = 64 * 1024 * 1024

_FILTERS: dict[str, Any] = {
    "compression": "gzip",
    "compression_opts": DEFLATE_LEVEL,
    "shuffle": True,
    "fletcher32": True,
}


def encode(recording: Recording, created_by: str) -> bytes:
    """Build the file image of a recording."""
    return encode_plans(recording, [plan_of([block]) for block in recording.blocks], created_by)


def encode_plans(recording: Recording, plans: Sequence[Plan], created_by: str) -> bytes:
    """Build a file image from the recording's tables, texts, clocks and holes, and the blocks of ``plans``."""
    metrics = [(table.name, metric) for table in recording.tables.values() for metric in table.metrics]
    metric_index = {(table, metric.name): index for index, (table, metric) in enumerate(metrics)}
    instances = sorted({key.instance for plan in plans for key in plan.keys})
    boots = sorted({plan.strand.boot for plan in plans} | {*recording.clocks} | {hole.boot for hole in recording.holes})
    with h5py.File(
        "segment", "w", driver="core", backing_store=False, block_size=IMAGE_STEP_BYTES, libver=("v110", "v110")
    ) as file:
        _describe(
            file,
            format=FORMAT,
            version=VERSION,
            incompatible=0,
            compatible=0,
            sensitivity=recording.sensitivity,
            created_by=created_by,
        )
        _write_tables(file, recording, metrics)
        _write_strings(file, "instances", instances)
        _write_strings(file, "boots", boots)
        _write_clocks(file, recording.clocks, boots)
        _write_texts(file, recording.texts)
        _write_holes(file, recording.holes, boots)
        place = {name: index for index, name in enumerate(instances)}
        for number, plan in enumerate(plans):
            group = file.create_group(f"block/{number}")
            _describe(
                group,
                boot=boots.index(plan.strand.boot),
                writer=plan.strand.writer,
                started_ns=plan.strand.started_ns,
                interval_ns=plan.strand.interval_ns,
                closed=plan.closed,
            )
            _write_block(group, plan, metrics, metric_index, place)
        file.flush()  # Without it the image would be corrupt.
        return bytes(file.id.get_file_image())


def _describe(group: h5py.Group, **attributes: str | int) -> None:
    """Set attributes; strings of fixed length: the heap of variable ones has no checksum."""
    for name, value in attributes.items():
        group.attrs[name] = np.bytes_(_bytes(value) or b"\0") if isinstance(value, str) else value


def _write_block(
    group: h5py.Group,
    plan: Plan,
    metrics: Sequence[tuple[str, Metric]],
    metric_index: dict[tuple[str, str], int],
    place: dict[str, int],
) -> None:
    """Write a block's time axis, its rows by width, and the table of its series."""
    _put(group, "ticks", plan.ticks)
    series = np.zeros(len(plan.keys), SERIES)
    is_counter = np.zeros(len(plan.keys), bool)
    for row, key in enumerate(plan.keys):
        metric = metric_index[key.table, key.metric]
        series[row]["metric"], series[row]["instance"] = metric, place[key.instance]
        is_counter[row] = metrics[metric][1].semantics is Semantics.COUNTER
    stores = {width: _RowStore(group, width, len(plan.ticks)) for width in WIDTHS}
    start = 0
    at_once = max(1, CODE_VALUES // max(1, len(plan.ticks)))
    for values in plan.batches:
        for piece in (values[first : first + at_once] for first in range(0, len(values), at_once)):
            stop = start + len(piece)
            for row, width, narrow in codes.encode(piece, is_counter[start:stop], series[start:stop]):
                series["row"][start + row] = stores[width].add(narrow)
            start = stop
    for store in stores.values():
        store.finish()
    _put(group, "series", series)


class _RowStore:
    """Collects the rows of one width and writes them in whole chunks."""

    def __init__(self, group: h5py.Group, width: int, ticks: int) -> None:
        self._group = group
        self._width = width
        self._ticks = ticks
        self._pending: list[np.ndarray[Any, Any]] = []
        self._dataset: h5py.Dataset | None = None
        self.rows = 0

    def add(self, narrow: np.ndarray[Any, Any]) -> int:
        self._pending.append(narrow)
        self.rows += 1
        waiting = len(self._pending)
        if waiting % CHUNK_SERIES == 0 and waiting * narrow.nbytes >= PENDING_BYTES:
            self._write()
        return self.rows - 1

    def finish(self) -> None:
        if self._pending:
            self._write()

    def _write(self) -> None:
        if self._dataset is None:
            self._dataset = self._group.create_dataset(
                f"i{self._width}",
                shape=(len(self._pending), self._ticks),
                maxshape=(None, self._ticks),
                dtype=f"<i{self._width}",
                chunks=(CHUNK_SERIES, min(self._ticks, CHUNK_TICKS)),
                **_FILTERS,
            )
        else:
            self._dataset.resize(self.rows, axis=0)
        self._dataset[self.rows - len(self._pending) :] = np.array(self._pending)
        self._pending.clear()


def _write_tables(file: h5py.File, recording: Recording, metrics: Sequence[tuple[str, Metric]]) -> None:
    tables = recording.tables.values()
    _write_records(file, "tables", ("name", "per", "doc"), [(t.name, t.per, t.doc) for t in tables])
    _write_records(
        file,
        "metrics",
        ("table", "name", "unit", "semantics", "doc", "origin"),
        [(table, m.name, m.unit, str(m.semantics), m.doc, m.origin) for table, m in metrics],
        scale=("u1", [metric.scale for _, metric in metrics]),
    )


def _write_clocks(file: h5py.File, clocks: dict[str, list[Relation]], boots: Sequence[str]) -> None:
    rows = [(boots.index(boot), *relation) for boot, relations in sorted(clocks.items()) for relation in relations]
    names = ("boot", "boottime_ns", "realtime_ns", "monotonic_ns")
    records = np.array(rows, [(name, "<i8") for name in names])
    _put(file, "clocks", records)


def _write_texts(file: h5py.File, texts: dict[int, str]) -> None:
    _write_records(file, "texts", ("text",), [(text,) for text in texts.values()], id=("<i8", list(texts)))


def _write_holes(file: h5py.File, holes: Sequence[Hole], boots: Sequence[str]) -> None:
    _write_records(
        file,
        "gaps",
        ("table", "cause", "detail"),
        [(hole.table, str(hole.cause), hole.detail) for hole in holes],
        boot=("<u4", [boots.index(hole.boot) for hole in holes]),
        start_ns=("<i8", [hole.start_ns for hole in holes]),
        end_ns=("<i8", [hole.end_ns for hole in holes]),
    )


def _write_strings(file: h5py.File, name: str, strings: Sequence[str]) -> None:
    encoded = [_bytes(string) for string in strings]
    array = np.array(encoded, f"S{max(map(len, encoded), default=1) or 1}")
    _put(file, name, array)


def _write_records(
    file: h5py.File,
    name: str,
    texts: Sequence[str],
    rows: Sequence[Sequence[str]],
    **numbers: tuple[str, Sequence[int]],
) -> None:
    """Write a table of fixed-length strings (never variable-length: their heap is not compressed) and integers."""
    encoded = [[_bytes(cell) for cell in row] for row in rows]
    widths = [max((len(row[column]) for row in encoded), default=1) or 1 for column in range(len(texts))]
    fields = [(text, f"S{width}") for text, width in zip(texts, widths, strict=True)]
    records = np.zeros(len(rows), fields + [(column, dtype) for column, (dtype, _) in numbers.items()])
    for index, text in enumerate(texts):
        records[text] = [row[index] for row in encoded]
    for column, (_, values) in numbers.items():
        records[column] = values
    _put(file, name, records)


def _put(group: h5py.Group, name: str, array: np.ndarray[Any, Any]) -> h5py.Dataset:
    """Store a one-dimensional array: chunked even when it is empty, since only chunks have a checksum.

    :raises Error: where no reader would accept it.
    """
    if array.nbytes > ARRAY_BYTES_MAX:
        raise Error(f"{name}: {array.nbytes} bytes; at most {ARRAY_BYTES_MAX} are right in one file")
    if len(array):
        return group.create_dataset(name, data=array, chunks=(min(len(array), ARRAY_CHUNK),), **_FILTERS)
    return group.create_dataset(name, shape=(0,), maxshape=(None,), dtype=array.dtype, chunks=(1,), **_FILTERS)


def _bytes(string: str) -> bytes:
    return string.encode("utf-8", "surrogateescape")


def _string(cell: bytes) -> str:
    return cell.decode("utf-8", "surrogateescape")


def _open_array(group: h5g.GroupID, name: str) -> tuple[h5d.DatasetID, h5t.TypeID, np.dtype[Any]]:
    """Open a dataset by the low-level interface, which is several times quicker for small ones.

    :raises ValueError: where it is not what we write, or its chunks are absurd.
    """
    dataset = h5d.open(group, name.encode())
    kind = dataset.get_type()
    dtype = _dtype(kind.encode())
    creation = dataset.get_create_plist()
    if dtype.hasobject or creation.get_layout() != h5d.CHUNKED:
        raise ValueError(f"{name} is not chunked, or has no fixed size")
    if math.prod(creation.get_chunk()) * dtype.itemsize > ARRAY_BYTES_MAX:
        raise ValueError(f"{name} has chunks of more than {ARRAY_BYTES_MAX} bytes")
    return dataset, kind, dtype


def _array(group: h5g.GroupID, name: str) -> np.ndarray[Any, Any]:
    """Read a one-dimensional dataset."""
    dataset, kind, dtype = _open_array(group, name)
    shape = dataset.shape
    if len(shape) != 1 or shape[0] * dtype.itemsize > ARRAY_BYTES_MAX:
        raise ValueError(f"{name} has the shape {shape}; at most {ARRAY_BYTES_MAX} bytes in one dimension are right")
    array = np.empty(shape, dtype)
    if array.size:
        dataset.read(h5s.ALL, h5s.ALL, array, kind)
    return array


def _columns(group: h5g.GroupID, name: str, *fields: str) -> Iterator[tuple[Any, ...]]:
    """Read records: the given fields of each, whatever others there are; bytes as text."""
    array = _array(group, name)
    columns = [array[field].tolist() for field in fields]
    return zip(
        *(
            [_string(cell) for cell in column] if column and isinstance(column[0], bytes) else column
            for column in columns
        ),
        strict=True,
    )


def _attribute(group: h5g.GroupID, name: str) -> Any:  # noqa: ANN401  a number, a truth value or a text
    attribute = h5a.open(group, name.encode())
    dtype = _dtype(attribute.get_type().encode())
    if dtype.hasobject or attribute.shape != ():
        raise ValueError(f"attribute {name} is not one value of fixed size")
    value = np.empty((), dtype)
    attribute.read(value)
    item = value.item()
    return _string(item) if isinstance(item, bytes) else item


@lru_cache(maxsize=256)
def _dtype(encoded: bytes) -> np.dtype[Any]:
    """Translate a type; the library takes longer for it than for reading, and files are alike."""
    dtype: np.dtype[Any] = h5t.decode(encoded).dtype
    return dtype


class _FileBlock:
    """A block of an open segment; values are decoded when they are read."""

    def __init__(self, path: str, group: h5g.GroupID, boots: Sequence[str], keys_of: "Keys") -> None:
        self.strand = Strand(
            boots[_index(_attribute(group, "boot"))],
            str(_attribute(group, "writer")),
            int(_attribute(group, "started_ns")),
            int(_attribute(group, "interval_ns")),
        )
        self.closed = bool(_attribute(group, "closed"))
        self.ticks: Int64Array = _array(group, "ticks").astype(np.int64, copy=False)
        if (self.ticks[1:] <= self.ticks[:-1]).any():
            raise ValueError("ticks that do not increase")
        self._path = path
        self._group = group
        self._series = _array(group, "series")
        self._keys_of = keys_of
        self._keys: Sequence[Key] | None = None
        keys_of.check(self._series)

    @property
    def keys(self) -> Sequence[Key]:
        """The series, one a row."""
        if self._keys is None:
            self._keys = self._keys_of(self._series)
        return self._keys

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time].

        :raises CorruptError: where a chunk is damaged.
        """
        chosen = self._series[np.asarray(rows, np.int64)]
        try:
            return codes.decode(chosen, self._keys_of.is_counter[chosen["metric"]], len(self.ticks), self._codes)
        except Exception as damage:  # the library raises many kinds
            raise CorruptError(f"{self._path}: {_one_line(damage)}") from damage

    def _codes(self, width: int, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Read rows of a matrix, each chunk once: rows whose chunks touch are read as one range."""
        dataset, kind, dtype = _open_array(self._group, f"i{width}")
        wanted = rows.astype(np.int64)
        if dtype != np.dtype(f"<i{width}") or dataset.shape != (dataset.shape[0], len(self.ticks)):
            raise ValueError(f"i{width} is no matrix of this block")
        if wanted.max() >= dataset.shape[0]:
            raise ValueError(f"i{width} has no row {wanted.max()}")
        order = np.argsort(wanted, kind="stable")
        result = np.empty((len(wanted), len(self.ticks)), dtype)
        for group in np.split(order, np.flatnonzero(np.diff(wanted[order] // CHUNK_SERIES) > 1) + 1):
            low, high = int(wanted[group[0]]), int(wanted[group[-1]])
            found = np.empty((high + 1 - low, len(self.ticks)), dtype)
            if found.size:
                space = dataset.get_space()
                space.select_hyperslab((low, 0), found.shape)
                dataset.read(h5s.create_simple(found.shape), space, found, kind)
            result[group] = found[wanted[group] - low]
        return result


def _index(number: int) -> int:
    if number < 0:
        raise ValueError(f"a reference of {number}")
    return int(number)


class Segment:
    """An open segment file, as a recording; close it, or use it in a ``with``."""

    def __init__(self, path: str) -> None:
        """Open a segment and read everything but the values.

        :raises ForeignError: where it is not a segment of a version we know.
        :raises CorruptError: where it is damaged. :raises NotPermittedError: where we may not read it.
        :raises FileNotFoundError: where it is gone.
        """
        self.path = path
        try:
            self._file = h5py.File(path, "r", locking=False)
        except FileNotFoundError:
            raise
        except PermissionError as refusal:
            raise NotPermittedError(f"{path}: {refusal.strerror or 'no permission to read it'}") from refusal
        except OSError as damage:
            raise CorruptError(f"{path}: not a readable HDF5 file ({_one_line(damage)})") from damage
        try:
            self._root = h5g.open(self._file.id, b"/")
            self._check_format()
            self.recording = self._read()
        except ForeignError:
            self.close()
            raise
        except Exception as damage:  # the library raises many kinds
            self.close()
            raise CorruptError(f"{path}: {_one_line(damage)}") from damage

    def __enter__(self) -> Self:
        """Use the open file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file; its blocks cannot be read any more."""
        self._file.close()

    def _check_format(self) -> None:
        try:
            said = _attribute(self._root, "format")
        except (KeyError, ValueError):
            said = None
        if said != FORMAT:
            raise ForeignError(f"{self.path}: not a sysmond segment")
        version, flags = _attribute(self._root, "version"), _attribute(self._root, "incompatible")
        if version != VERSION or flags & ~INCOMPATIBLE_KNOWN:
            raise ForeignError(f"{self.path}: version {version}, flags {flags}; this program reads version {VERSION}")

    def _read(self) -> Recording:
        root = self._root
        metrics = [
            (table, Metric(name, unit, Semantics(semantics), doc, scale, origin))
            for table, name, unit, semantics, doc, scale, origin in _columns(
                root, "metrics", "table", "name", "unit", "semantics", "doc", "scale", "origin"
            )
        ]
        metrics_of: dict[str, list[Metric]] = {}
        for table, metric in metrics:
            metrics_of.setdefault(table, []).append(metric)
        tables = {
            name: Table(name, tuple(metrics_of.get(name, ())), per, doc)
            for name, per, doc in _columns(root, "tables", "name", "per", "doc")
        }
        boots = list(map(_string, _array(root, "boots").tolist()))
        keys_of = Keys(metrics, list(map(_string, _array(root, "instances").tolist())))
        clocks: dict[str, list[Relation]] = {}
        for boot, *relation in _columns(root, "clocks", "boot", "boottime_ns", "realtime_ns", "monotonic_ns"):
            clocks.setdefault(boots[_index(boot)], []).append(Relation(*relation))
        holes = [
            Hole(boots[_index(boot)], table, start_ns, end_ns, Cause(cause), detail)
            for boot, table, start_ns, end_ns, cause, detail in _columns(
                root, "gaps", "boot", "table", "start_ns", "end_ns", "cause", "detail"
            )
        ]
        return Recording(
            Sensitivity(_attribute(root, "sensitivity")),
            tables,
            list(self._blocks(boots, keys_of)),
            dict(_columns(root, "texts", "id", "text")),
            clocks,
            holes,
        )

    def _blocks(self, boots: Sequence[str], keys_of: Keys) -> Iterator[_FileBlock]:
        if b"block" in self._root:
            groups = h5g.open(self._root, b"block")
            for number in sorted(groups, key=int):
                yield _FileBlock(self.path, h5g.open(groups, number), boots, keys_of)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def write_result(result: Result, path: str) -> None:
    """Write a query's answer as an HDF5 file: ``time``, one dataset a column with attributes, ``gaps``."""
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs["format"] = "sysmond result"
        file.attrs["version"] = 1
        file.attrs["step_ns"] = result.step_ns
        _put(file, "time", result.times_ns).attrs["unit"] = "ns since 1970-01-01T00:00:00Z"
        for number, column in enumerate(result.columns):
            if column.texts is None:
                content = column.values
            else:
                encoded = [_bytes(text or "") for text in column.texts]
                content = np.array(encoded, f"S{max(map(len, encoded), default=1) or 1}")
            dataset = _put(file, f"column/{number}", content)
            for name in ("path", "unit", "semantics", "stat"):
                dataset.attrs[name] = str(getattr(column, name))
        _write_records(
            file,
            "gaps",
            ("table", "cause", "detail"),
            [(gap.table, str(gap.cause), gap.detail) for gap in result.gaps],
            start_ns=("<i8", [gap.start_ns for gap in result.gaps]),
            end_ns=("<i8", [gap.end_ns for gap in result.gaps]),
        )
