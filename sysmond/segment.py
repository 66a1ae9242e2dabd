# SPDX-License-Identifier: Apache-2.0
"""Segments: HDF5 files of recordings. The one module that speaks h5py.

``docs/format.md`` specifies the file and is tested by decoding one with nothing but h5py. In short:
a block is a matrix a width (``i1``, ``i2``, ``i4``, ``i8``), one row a series; a counter is stored as its
increments, a gauge as its difference from its first value, both narrowed; the smallest value of a type
is "absent". Everything is chunked and checksummed, and built in memory: the caller publishes the bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import h5py
import numpy as np

from sysmond.clock import Relation
from sysmond.errors import CorruptError, ForeignError, NotPermittedError
from sysmond.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.recording import Block, Hole, Key, Recording, Strand
from sysmond.result import Int64Array, Result

FORMAT = "sysmond segment"
VERSION = 1
# Incompatible flags this program understands: none exist yet.
INCOMPATIBLE_KNOWN = 0

WIDTHS = (1, 2, 4, 8)
# Eight neighbouring series share a chunk: similar rows compress together, and reading one costs little.
CHUNK_SERIES = 8
CHUNK_TICKS = 3600
ARRAY_CHUNK = 65536
DEFLATE_LEVEL = 6
# How many rows are decoded and encoded at once: bounds memory whatever the size of the file.
BATCH_SERIES = 64

_FILTERS: dict[str, Any] = {
    "compression": "gzip",
    "compression_opts": DEFLATE_LEVEL,
    "shuffle": True,
    "fletcher32": True,
}


class Plan(NamedTuple):
    """A block to be written: its place, its time axis, its series, and their values a batch at a time."""

    strand: Strand
    ticks: Int64Array
    keys: Sequence[Key]
    closed: bool
    batches: Iterable[Int64Array]


def encode(recording: Recording, created_by: str) -> bytes:
    """Build the file image of a recording."""
    plans = [Plan(block.strand, block.ticks, block.keys, block.closed, _batches(block)) for block in recording.blocks]
    return encode_plans(recording, plans, created_by)


def _batches(block: Block) -> Iterator[Int64Array]:
    for start in range(0, len(block.keys), BATCH_SERIES):
        yield block.read(range(start, min(start + BATCH_SERIES, len(block.keys))))


def encode_plans(recording: Recording, plans: Sequence[Plan], created_by: str) -> bytes:
    """Build a file image from the recording's tables, texts, clocks and holes, and the blocks of ``plans``."""
    metrics = [(table.name, metric) for table in recording.tables.values() for metric in table.metrics]
    metric_index = {(table, metric.name): index for index, (table, metric) in enumerate(metrics)}
    instances = sorted({key.instance for plan in plans for key in plan.keys})
    boots = sorted({plan.strand.boot for plan in plans} | set(recording.clocks))
    with h5py.File("segment", "w", driver="core", backing_store=False, libver=("v110", "v110")) as file:
        file.attrs["format"] = FORMAT
        file.attrs["version"] = VERSION
        file.attrs["incompatible"] = 0
        file.attrs["compatible"] = 0
        file.attrs["sensitivity"] = str(recording.sensitivity)
        file.attrs["created_by"] = created_by
        _write_tables(file, recording, metrics)
        _write_strings(file, "instances", instances)
        _write_strings(file, "boots", boots)
        _write_clocks(file, recording.clocks, boots)
        _write_texts(file, recording.texts)
        _write_holes(file, recording.holes, boots)
        place = {name: index for index, name in enumerate(instances)}
        for number, plan in enumerate(plans):
            group = file.create_group(f"block/{number}")
            group.attrs["boot"] = boots.index(plan.strand.boot)
            group.attrs["writer"] = plan.strand.writer
            group.attrs["started_ns"] = plan.strand.started_ns
            group.attrs["interval_ns"] = plan.strand.interval_ns
            group.attrs["closed"] = plan.closed
            _write_block(group, plan, metrics, metric_index, place)
        file.flush()  # Without it the image would be corrupt.
        return bytes(file.id.get_file_image())


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
    for values in plan.batches:
        stop = start + len(values)
        _encode_batch(values, is_counter[start:stop], series[start:stop], stores)
        start = stop
    for store in stores.values():
        store.finish()
    _put(group, "series", series)


SERIES = np.dtype(
    [
        ("metric", "<u4"),
        ("instance", "<u4"),
        ("width", "u1"),
        ("row", "<u4"),
        ("first", "<i8"),
        ("start", "<u4"),
        ("stop", "<u4"),
    ]
)


class _RowStore:
    """Collects the rows of one width and writes them in whole chunks."""

    def __init__(self, group: h5py.Group, width: int, ticks: int) -> None:
        self._group = group
        self._width = width
        self._ticks = ticks
        self._pending: list[np.ndarray[Any, Any]] = []
        self._dataset: h5py.Dataset | None = None
        self.rows = 0

    def add(self, row: Int64Array, absent: np.ndarray[Any, Any] | None) -> int:
        narrow = row.astype(f"<i{self._width}")
        if absent is not None:
            narrow[absent] = sentinel(self._width)
        self._pending.append(narrow)
        self.rows += 1
        if len(self._pending) == BATCH_SERIES:
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


def sentinel(width: int) -> int:
    """The value of a type of ``width`` bytes that says absent: its smallest."""
    return -(1 << (8 * width - 1))


def _encode_batch(
    values: Int64Array, is_counter: np.ndarray[Any, Any], series: np.ndarray[Any, Any], stores: dict[int, _RowStore]
) -> None:
    """Turn absolute values into codes, choose each row's width, and note where it went."""
    if not values.size:
        return
    absent = values == ABSENT
    has_absent = absent.any(axis=1)
    first_at = np.argmin(absent, axis=1)
    stops = values.shape[1] - np.argmin(absent[:, ::-1], axis=1)
    rows = np.arange(len(values))
    first = values[rows, first_at]
    held = values
    if has_absent.any():
        held = values.copy()
        for row in np.flatnonzero(has_absent).tolist():
            _hold(held[row], absent[row])
    codes = held - first[:, None]
    increments = np.diff(held, axis=1, prepend=held[:, :1])
    codes[is_counter] = increments[is_counter]
    low, high = codes.min(axis=1), codes.max(axis=1)
    empty = absent.all(axis=1)
    for row in range(len(values)):
        entry = series[row]
        if empty[row]:
            entry["first"] = ABSENT
            continue
        entry["first"], entry["start"], entry["stop"] = first[row], first_at[row], stops[row]
        hollow = bool(has_absent[row])
        if not hollow and low[row] == high[row] == 0:
            continue  # A constant: its first value says it all.
        width = next(w for w in WIDTHS if sentinel(w) < low[row] and high[row] < -sentinel(w))
        entry["width"] = width
        entry["row"] = stores[width].add(codes[row], absent[row] if hollow else None)


def _hold(row: Int64Array, absent: np.ndarray[Any, Any]) -> None:
    """Fill absences with the value before them, those at the start with the first value."""
    index = np.where(absent, 0, np.arange(len(row)))
    np.maximum.accumulate(index, out=index)
    row[:] = row[index]
    present = np.flatnonzero(~absent)
    if len(present):
        row[: present[0]] = row[present[0]]


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
    """Store a one-dimensional array: chunked even when it is empty, since only chunks have a checksum."""
    if len(array):
        return group.create_dataset(name, data=array, chunks=(min(len(array), ARRAY_CHUNK),), **_FILTERS)
    return group.create_dataset(name, shape=(0,), maxshape=(None,), dtype=array.dtype, chunks=(1,), **_FILTERS)


def _bytes(string: str) -> bytes:
    return string.encode("utf-8", "surrogateescape")


def _string(cell: bytes) -> str:
    return cell.decode("utf-8", "surrogateescape")


class _FileBlock:
    """A block of an open segment; values are decoded when they are read."""

    def __init__(self, group: h5py.Group, boots: Sequence[str], metrics: Sequence[Metric], keys_of: "_Keys") -> None:
        attributes = group.attrs
        self.strand = Strand(
            boots[int(attributes["boot"])],
            str(attributes["writer"]),
            int(attributes["started_ns"]),
            int(attributes["interval_ns"]),
        )
        self.closed = bool(attributes["closed"])
        self.ticks: Int64Array = group["ticks"][:]
        self._group = group
        self._series = group["series"][:]
        self._metrics = metrics
        self._keys_of = keys_of
        self._keys: Sequence[Key] | None = None

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
        values = np.zeros((len(chosen), len(self.ticks)), np.int64)
        absent = np.zeros(values.shape, bool)
        try:
            for width in WIDTHS:
                (mine,) = np.nonzero(chosen["width"] == width)
                if len(mine):
                    codes = _rows(self._group[f"i{width}"], chosen["row"][mine])
                    values[mine] = codes
                    absent[mine] = codes == sentinel(width)
        except (OSError, KeyError, ValueError, RuntimeError) as damage:
            raise CorruptError(f"{self._group.file.filename}: {_one_line(damage)}") from damage
        counters = np.array([self._metrics[index].semantics is Semantics.COUNTER for index in chosen["metric"]], bool)
        values[absent] = 0
        values[counters] = np.cumsum(values[counters], axis=1)
        values += chosen["first"][:, None]
        values[absent] = ABSENT
        values[chosen["first"] == ABSENT] = ABSENT
        return values


class _Keys:
    """Spells the series of a block by name."""

    def __init__(self, metrics: Sequence[tuple[str, str]], instances: Sequence[str]) -> None:
        self._metrics: Sequence[tuple[str, str]] = metrics
        self._instances = instances

    def __call__(self, series: np.ndarray[Any, Any]) -> Sequence[Key]:
        chosen = zip(series["metric"].tolist(), series["instance"].tolist(), strict=True)
        return [Key(*self._metrics[metric], self._instances[instance]) for metric, instance in chosen]


def _rows(dataset: h5py.Dataset, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Read rows, each chunk once: neighbours share chunks, so they are read as whole ranges."""
    wanted = np.asarray(rows, np.int64)
    order = np.argsort(wanted)
    out = np.empty((len(wanted), dataset.shape[1]), dataset.dtype)
    start = 0
    while start < len(order):
        chunk = wanted[order[start]] // CHUNK_SERIES
        stop = start
        while stop < len(order) and wanted[order[stop]] // CHUNK_SERIES == chunk:
            stop += 1
        low, high = wanted[order[start]], wanted[order[stop - 1]]
        out[order[start:stop]] = dataset[low : high + 1][wanted[order[start:stop]] - low]
        start = stop
    return out


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
            self._check_format()
            self.recording = self._read()
        except (OSError, KeyError, ValueError, IndexError, RuntimeError, TypeError) as damage:
            self._file.close()
            raise CorruptError(f"{path}: {_one_line(damage)}") from damage
        except ForeignError:
            self._file.close()
            raise

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
        attributes = self._file.attrs
        said = attributes.get("format")
        if said != FORMAT:
            raise ForeignError(f"{self.path}: not a sysmond segment")
        if int(attributes["version"]) != VERSION or int(attributes["incompatible"]) & ~INCOMPATIBLE_KNOWN:
            raise ForeignError(
                f"{self.path}: version {attributes['version']}, flags {attributes['incompatible']}; "
                f"this program reads version {VERSION}"
            )

    def _read(self) -> Recording:
        file = self._file
        metrics_of: dict[str, list[Metric]] = {}
        names: list[tuple[str, str]] = []
        metrics: list[Metric] = []
        for record in file["metrics"][:].tolist():
            table, name, unit, semantics, doc, origin = map(_string, record[:6])
            metric = Metric(name, unit, Semantics(semantics), doc, record[6], origin)
            metrics_of.setdefault(table, []).append(metric)
            names.append((table, name))
            metrics.append(metric)
        tables = {
            name: Table(name, tuple(metrics_of.get(name, ())), per, doc)
            for name, per, doc in (map(_string, record) for record in file["tables"][:].tolist())
        }
        boots = [_string(boot) for boot in file["boots"][:].tolist()]
        keys_of = _Keys(names, [_string(instance) for instance in file["instances"][:].tolist()])
        groups = file.get("block", {})
        blocks = [_FileBlock(groups[number], boots, metrics, keys_of) for number in sorted(groups, key=int)]
        clocks: dict[str, list[Relation]] = {}
        for boot, *relation in file["clocks"][:].tolist():
            clocks.setdefault(boots[boot], []).append(Relation(*relation))
        texts = {ident: _string(text) for text, ident in file["texts"][:].tolist()}
        holes = [
            Hole(boots[boot], _string(table), start_ns, end_ns, Cause(_string(cause)), _string(detail))
            for table, cause, detail, boot, start_ns, end_ns in file["gaps"][:].tolist()
        ]
        return Recording(Sensitivity(file.attrs["sensitivity"]), tables, blocks, texts, clocks, holes)


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
