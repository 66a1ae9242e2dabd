# SPDX-License-Identifier: Apache-2.0
"""HDF5 as sysmond uses it: checked arrays, records and matrices of codes. The one module that speaks h5py.

What they mean is for ``sysmond.store.files.dense_file`` to say. Everything is chunked and checksummed, and built in
memory: the caller publishes the bytes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from io import BytesIO
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5p, h5s, h5t, h5z

from sysmond.base.result import Array, BoolArray
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.store.coding.dense_coding import CHUNK_SERIES
from sysmond.store.files import invariants, packed
from sysmond.store.files.invariants import STRING_BYTES_MAX

CHUNK_TICKS = 3600
ARRAY_CHUNK = 65536
# A vector has chunks of its own: who reads one, or a part of it, unpacks no other.
VECTOR_CHUNK = 65536
DEFLATE_LEVEL = 4
# For what is written anew before long: two thirds of the time, 7 % more bytes.
HASTY_DEFLATE_LEVEL = 1
# How much waits to be written: bounds memory whatever the size of the file.
PENDING_BYTES = 256 * 1024
# Chunks are read and written whole and once: the library need not keep any, of each open array by itself.
CACHE_BYTES = 0
# No array but the matrices is larger, once unpacked: a crafted file cannot make a reader take more.
ARRAY_BYTES_MAX = 64 * 1024 * 1024

# How many filters a chunk goes through: shuffle, deflate, Fletcher-32.
_FILTERS = 3
# Names of datasets may lead through groups that are made on the way.
_WITH_GROUPS = h5p.create(h5p.LINK_CREATE)
_WITH_GROUPS.set_create_intermediate_group(True)
# Three filters, the first of which shuffles: what it is, how it is meant, the size of an element, its name.
_NO_FILTER = 0, 0, (), b""

File: TypeAlias = h5py.File
Group: TypeAlias = h5py.Group
# What numpy calls the types of attributes and fields.
_KINDS = {int: "iu", bool: "b", str: "S"}
_TEXT = np.dtype("S")
_T = TypeVar("_T", int, bool, str)
_Opened = TypeVar("_Opened", h5g.GroupID, h5d.DatasetID)


class Image:
    """A file in memory: written by way of ``file``, then closed for its bytes."""

    def __init__(self) -> None:
        self._memory = BytesIO()
        self.file = h5py.File(self._memory, "w", libver=("v110", "v110"), rdcc_nbytes=CACHE_BYTES)

    def close(self) -> bytes:
        """End writing; gives the bytes of the file, which only now are whole."""
        self.file.close()
        return self._memory.getvalue()


def new_file(path: str) -> AbstractContextManager[File]:
    """A file on disk, to be written."""
    made: AbstractContextManager[File] = h5py.File(path, "w", libver=("v110", "v110"))
    return made


def describe(group: Group, **attributes: str | int) -> None:
    """Set attributes; strings of fixed length: the heap of variable ones has no checksum."""
    for name, value in attributes.items():
        content = np.asarray((_bytes(value) or b"\0") if isinstance(value, str) else value)
        place = name.encode()
        if h5a.exists(group.id, place):
            h5a.delete(group.id, place)
        kind = h5t.py_create(content.dtype, logical=True)
        h5a.create(group.id, place, kind, h5s.create_simple(())).write(content)


class _Created:
    """A dataset in the making, which grows by rows: chunked, shuffled, packed, checksummed.

    The low-level interface is several times quicker than the usual one for small ones. ``shape``: which it begins
    with; where it ``grows``, rows that are appended beyond that find room.
    """

    def __init__(
        self,
        group: Group,
        name: str,
        dtype: "np.dtype[Any]",
        shape: tuple[int, ...],
        chunk: tuple[int, ...],
        *,
        level: int = DEFLATE_LEVEL,
        grows: bool = True,
    ) -> None:
        self._row_shape = shape[1:]
        extent = h5s.create_simple(shape, (h5s.UNLIMITED if grows else shape[0], *self._row_shape))
        how = _stored_in(chunk, level)
        self.ident = h5d.create(group.id, name.encode(), _type_of(dtype), extent, how, _WITH_GROUPS)
        self._room = shape[0]
        self.rows = 0

    def append(self, rows: Array) -> int:
        """Write rows; gives the number of the first."""
        first, self.rows = self.rows, self.rows + len(rows)
        if self.rows > self._room:
            self._room = self.rows
            self.ident.set_extent((self.rows, *self._row_shape))
        if not first and self.rows == self._room:  # All of it at once: no part has to be chosen.
            self.ident.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(rows))
            return first
        where = self.ident.get_space()
        where.select_hyperslab((first, *(0 for _ in self._row_shape)), rows.shape)
        self.ident.write(h5s.create_simple(rows.shape), where, np.ascontiguousarray(rows))
        return first


@lru_cache(maxsize=256)
def _stored_in(chunk: tuple[int, ...], level: int) -> h5p.PropDCID:
    """How a dataset is stored: most have chunks as others have."""
    how = h5p.create(h5p.DATASET_CREATE)
    how.set_chunk(chunk)
    how.set_shuffle()
    how.set_deflate(level)
    how.set_fletcher32()
    how.set_obj_track_times(False)
    return how


@lru_cache(maxsize=256)
def _type_of(dtype: "np.dtype[Any]") -> h5t.TypeID:
    """A type as the library has it."""
    return h5t.py_create(dtype, logical=True)


class RowStore:
    """Collects the rows of one width and writes them in whole chunks."""

    def __init__(self, group: Group, width: int, length: int, *, hasty: bool = False) -> None:
        self._group = group
        self._level = HASTY_DEFLATE_LEVEL if hasty else DEFLATE_LEVEL
        # The library fills up the last chunk: chunks of one length are packed sooner, longer ones smaller.
        chunks = -(-length // CHUNK_TICKS)
        self._chunk_ticks = -(-length // chunks) if hasty and chunks else min(length, CHUNK_TICKS)
        self._width = width
        self._length = length
        self._pending: list[Array] = []
        self._waiting = 0
        self._dataset: _Created | None = None
        self.rows = 0

    def add(self, narrow: Array) -> int:
        """Take rows, codes[row, time]; gives the number of the first of them."""
        self._pending.append(narrow)
        self.rows += len(narrow)
        self._waiting += len(narrow)
        if self._waiting >= CHUNK_SERIES and self._waiting * self._length * self._width >= PENDING_BYTES:
            self._write(self._waiting // CHUNK_SERIES * CHUNK_SERIES)
        return self.rows - len(narrow)

    def finish(self) -> None:
        """Write what is left."""
        if self._waiting:
            self._write(self._waiting)

    def _write(self, rows: int) -> None:
        """Write the first so many of the rows that wait."""
        whole = np.concatenate(self._pending)
        if self._dataset is None:
            self._dataset = _Created(
                self._group,
                f"i{self._width}",
                np.dtype(f"<i{self._width}"),
                (rows, self._length),
                (CHUNK_SERIES, self._chunk_ticks),
                level=self._level,
            )
        self._dataset.append(whole[:rows])
        self._waiting -= rows
        self._pending = [whole[rows:].copy()] if self._waiting else []


class VectorStore:
    """Writes vectors of one length, each a row of ``i1`` … ``i8``."""

    def __init__(self, group: Group, length: int, level: int = DEFLATE_LEVEL) -> None:
        self._group = group
        self._length = length
        self._level = level
        self._datasets: dict[int, _Created] = {}

    def add(self, codes: Array) -> int:
        """Write the codes of one, i1[n] to i8[n]; gives the number of its row."""
        width = codes.dtype.itemsize
        if width not in self._datasets:
            chunk = (1, min(self._length, VECTOR_CHUNK))
            name, kind = f"i{width}", np.dtype(f"<i{width}")
            self._datasets[width] = _Created(self._group, name, kind, (0, self._length), chunk, level=self._level)
        return self._datasets[width].append(codes[np.newaxis])


def put_strings(file: File, name: str, strings: Sequence[str]) -> None:
    """Store texts, all as long as the longest."""
    encoded = [_bytes(string) for string in strings]
    put(file, name, np.array(encoded, f"S{max(map(len, encoded), default=1) or 1}"))


def put_records(
    file: File,
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
    put(file, name, records)


def make_axis(file: File, name: str) -> None:
    """Let other programs take a dataset [n] for an axis, its own and that of others: a dimension scale."""
    file[name].make_scale(name)


def put_along(file: File, axis: str, dataset: h5py.Dataset, name: str) -> None:
    """Give a dataset [n] an axis, and a link at the root: without slashes, which would be groups there.

    We ourselves follow no link, and open nothing that has two names.
    """
    dataset.dims[0].attach_scale(file[axis])
    plain = free = name.replace("/", ".")
    number = 1
    while _bytes(free) in file:
        number += 1
        free = f"{plain}#{number}"
    file[_bytes(free)] = h5py.SoftLink(dataset.name)


def put(group: Group, name: str, array: Array) -> h5py.Dataset:
    """Store an array [n] of any type: chunked even when it is empty, since only chunks have a checksum.

    :raises Error: where no reader would accept it.
    """
    if array.nbytes > ARRAY_BYTES_MAX:
        raise Error(f"{name}: {array.nbytes} bytes; expected at most {ARRAY_BYTES_MAX} in one file")
    count = len(array)
    chunk = (min(count, ARRAY_CHUNK) or 1,)
    made = _Created(group, name, array.dtype, (count,), chunk, grows=not count)
    if count:
        made.append(array)
    return h5py.Dataset(made.ident)


def _bytes(string: str) -> bytes:
    return string.encode("utf-8", "surrogateescape")


def _string(cell: bytes) -> str:
    return cell.decode("utf-8", "surrogateescape")


def open_file(path: str) -> File:
    """Open a file for reading.

    :raises CorruptError: where it is no HDF5 file. :raises NotPermittedError: where we may not read it.
    :raises FileNotFoundError: where it is gone.
    """
    try:
        return h5py.File(path, "r", locking=False, rdcc_nbytes=CACHE_BYTES)
    except FileNotFoundError:
        raise
    except PermissionError as refusal:
        raise NotPermittedError(f"{path}: no permission to read it") from refusal
    except OSError as damage:
        raise CorruptError(f"{path}: not a readable HDF5 file ({one_line(damage)})") from damage


class Format(NamedTuple):
    """What a file says it is: name and version.

    ``elements_max``: how many elements its datasets may have, by name. ``known``: the incompatible flags that are
    understood. ``opening_bytes_max``: how much is read of it when it is opened, once unpacked.
    """

    name: str
    version: int
    elements_max: Mapping[str, int]
    known: int = 0
    opening_bytes_max: int = invariants.OPENING_BYTES_MAX

    def check(self, root: "Node", path: str) -> None:
        """Take a file for one of this format.

        :raises ForeignError: where it is none.
        """
        try:
            name = root.attribute("format", str)
        except (KeyError, ValueError):
            name = None
        if name != self.name:
            raise ForeignError(f"{path}: not a {self.name} file")
        version, flags = root.attribute("version", int), root.attribute("incompatible", int)
        if version != self.version or flags & ~self.known:
            raise ForeignError(f"{path}: version {version}, flags {flags}; this program reads version {self.version}")


def format_of(path: str) -> str:
    """The format that a file says it is of; empty where it says none.

    :raises CorruptError: where it is no HDF5 file. :raises NotPermittedError: where we may not read it.
    :raises FileNotFoundError: where it is gone.
    """
    with open_file(path) as file:
        try:
            return Node(h5g.open(file.id, b"/"), invariants.Room({})).attribute("format", str)
        except (KeyError, ValueError):
            return ""
        except Exception as damage:  # the library raises many kinds
            raise CorruptError(f"{path}: {one_line(damage)}") from damage


class OpenFile(ABC):
    """A file of a format, open for reading; close it, or use it in a ``with``."""

    def __init__(self, path: str, form: Format) -> None:
        """Open a file, and read of it what ``_read`` does.

        :raises ForeignError: where it is none of this format, or of a version we do not know.
        :raises CorruptError: where it is damaged. :raises NotPermittedError: where we may not read it.
        :raises FileNotFoundError: where it is gone.
        """
        self.path = path
        self._file = open_file(path)
        try:
            room = invariants.Room(form.elements_max, form.opening_bytes_max)
            self._root = Node(h5g.open(self._file.id, b"/"), room)
            form.check(self._root, path)
            self._read(self._root)
            room.is_opening = False
        except ForeignError:
            self.close()
            raise
        except Exception as damage:  # the library raises many kinds
            self.close()
            raise CorruptError(f"{path}: {one_line(damage)}") from damage

    def __enter__(self) -> Self:
        """Use the open file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file; nothing can be read of it any more."""
        self._file.close()

    @abstractmethod
    def _read(self, root: "Node") -> None:
        """Read what is wanted at once; any error of this says that the file is damaged."""


def _linked(group: h5g.GroupID, name: str) -> bytes:
    """The name of a member that is opened next, as the library wants it.

    Soft and external links lead elsewhere: to what the file says is another thing, to a file that its reader may not
    show, to a pipe that nobody writes. Whatever opens or looks for a member asks here first.

    :raises KeyError: where there is none. :raises ValueError: where it is such a link.
    """
    place = name.encode()
    if group.links.get_info(place).type != h5l.TYPE_HARD:
        raise ValueError(f"{name} is a link to elsewhere; expected only members of the file itself")
    return place


def _alone(opened: _Opened, name: str) -> _Opened:
    """The same member, which must have no other name: a small file could name a large one a million times.

    :raises ValueError: where it has.
    """
    if (names := h5g.get_objinfo(opened).nlink) != 1:
        raise ValueError(f"{name} is one thing of {names} names; expected one")
    return opened


class Dataset:
    """An open dataset, whose type, shape and way of storing are such as we write.

    The low-level interface is several times quicker than the usual one for small ones. Chunks are taken as they are
    stored and unpacked by ``sysmond.store.files.packed``: the library would believe what they say of their length.
    """

    def __init__(self, group: h5g.GroupID, name: str, chunk: Sequence[int] = ()) -> None:
        """Open it. ``chunk``: the longest that its chunks may be, where other lengths than any would be absurd.

        :raises ValueError: where it is of another type, or stored otherwise than we store.
        """
        self._ident = _alone(h5d.open(group, _linked(group, name)), name)
        self._name = name
        self.dtype = _dtype(self._ident.get_type().encode())
        self.shape: tuple[int, ...] = self._ident.shape
        self._chunk: tuple[int, ...] = self.shape
        if self.bytes:
            self._chunk = self._chunked(chunk)

    @property
    def bytes(self) -> int:
        """How many it has once unpacked."""
        return math.prod(self.shape) * self.dtype.itemsize

    def _chunked(self, most: Sequence[int]) -> tuple[int, ...]:
        """The shape of its chunks."""
        creation, name = self._ident.get_create_plist(), self._name
        if creation.get_layout() != h5d.CHUNKED:
            raise ValueError(f"{name} is not chunked")
        shape: tuple[int, ...] = creation.get_chunk()
        size = math.prod(shape) * self.dtype.itemsize
        if size > ARRAY_BYTES_MAX:
            raise ValueError(f"{name} has chunks of more than {ARRAY_BYTES_MAX} bytes")
        if most and (len(shape) != len(most) or any(map(int.__gt__, shape, most))):
            raise ValueError(f"{name} has chunks of the shape {shape}; expected at most {tuple(most)}")
        usual = most or (ARRAY_CHUNK,) * len(shape)
        # A chunk costs the same however short it is: so there are not many more than have to be.
        if any(2 * step < min(length, right) for step, length, right in zip(shape, self.shape, usual, strict=True)):
            raise ValueError(f"{name} has chunks of the shape {shape}; expected {tuple(usual)}")
        # Whatever else the others are, no chunk of theirs can be unpacked; whether bytes were shuffled it does not say.
        first, _, values, _ = creation.get_filter(0) if creation.get_nfilters() == _FILTERS else _NO_FILTER
        if first != h5z.FILTER_SHUFFLE or values[:1] != (self.dtype.itemsize,):
            raise ValueError(f"{name} is stored with other filters than shuffle, deflate and fletcher32")
        chunks = math.prod(-(-length // step) for length, step in zip(self.shape, shape, strict=True))
        # Where there is no chunk at all, the library takes whatever for the length of the one that is asked for.
        if not 0 < (stored := self._ident.get_storage_size()) <= packed.stored_max(chunks * size, chunks):
            raise ValueError(f"{name} is stored in {stored} bytes, {chunks * size} in chunks of {size} once unpacked")
        return shape

    def read(self, low: tuple[int, ...], high: tuple[int, ...]) -> Array:
        """What lies between two corners: an array [high - low], int64 or whatever the dataset is of.

        :raises ValueError: where a chunk lacks, or is damaged.
        """
        if high == self._chunk and not any(low):
            return self._unpacked(low)
        values = np.empty([end - begin for begin, end in zip(low, high, strict=True)], self.dtype)
        steps = zip(low, high, self._chunk, strict=True)
        for corner in product(*(range(begin - begin % step, end, step) for begin, end, step in steps)):
            to, of = [], []
            for begin, end, at, step in zip(low, high, corner, self._chunk, strict=True):
                first, last = max(begin, at), min(end, at + step)
                to.append(slice(first - begin, last - begin))
                of.append(slice(first - at, last - at))
            values[tuple(to)] = self._unpacked(corner)[tuple(of)]
        return values

    def _unpacked(self, corner: tuple[int, ...]) -> Array:
        """The chunk that begins there, whole."""
        mask, stored = self._ident.read_direct_chunk(corner)
        if mask:
            raise ValueError(f"{self._name} has a chunk that skipped filters")
        content = packed.unpack(stored, self.dtype.itemsize, math.prod(self._chunk))
        return np.ndarray(self._chunk, self.dtype, content)


class Node:
    """A group of an open file, and what is below it: every member is checked before anything is made of it.

    ``room``: how much may be read of the file.
    """

    def __init__(self, group: h5g.GroupID, room: invariants.Room) -> None:
        self._group = group
        self._room = room

    def has(self, name: str) -> bool:
        """Whether there is such a member.

        :raises ValueError: where it is a link to elsewhere.
        """
        return bool(self._group.links.exists(name.encode()) and _linked(self._group, name))

    def member(self, name: str) -> "Node":
        """The group of this name."""
        return Node(_alone(h5g.open(self._group, _linked(self._group, name)), name), self._room)

    def numbered(self, name: str) -> Iterator["Node"]:
        """The groups ``name/0``, ``name/1`` …, as far as there are any."""
        if self.has(name):
            groups = self.member(name)
            count = len(groups._group)  # noqa: SLF001  another of this class
            invariants.check_count(f"members of {name}", count, invariants.BLOCKS_MAX)
            for number in range(count):
                yield groups.member(str(number))

    def array(self, name: str, expected: "np.dtype[Any] | None" = None, *, bound: str = "") -> Array:
        """Read a one-dimensional dataset: an array [n].

        ``expected``: what its numbers fit into, field by field where it has any; only where it says so may they be
        floats. ``bound``: under which name the format says how many there may be, where not under its own.

        :raises ValueError: where there are more than may be, or of another type.
        """
        return self._read(Dataset(self._group, name), bound or name, expected)

    def _read(self, dataset: Dataset, name: str, expected: "np.dtype[Any] | None" = None) -> Array:
        if len(dataset.shape) != 1:
            raise ValueError(f"{name} has the shape {dataset.shape}; expected one dimension")
        if expected is not None and dataset.dtype != expected:
            invariants.check_type(name, dataset.dtype, expected)
        if expected is None and dataset.dtype.kind == "f":
            raise ValueError(f"{name} has numbers with decimals; expected integers or texts")
        if dataset.bytes > ARRAY_BYTES_MAX:
            raise ValueError(f"{name} has {dataset.bytes} bytes; expected at most {ARRAY_BYTES_MAX}")
        self._room.take(name, dataset.shape[0], dataset.bytes)
        return dataset.read((0,), dataset.shape) if dataset.bytes else np.empty(dataset.shape, dataset.dtype)

    def strings(self, name: str) -> list[str]:
        """Read a one-dimensional dataset of texts."""
        return texts(self.array(name, _TEXT))

    def columns(
        self,
        name: str,
        lacking: Mapping[str, object] = MappingProxyType({}),
        only: Callable[[Array], BoolArray] | None = None,
        **expected: type,
    ) -> Iterator[tuple[Any, ...]]:
        """Read records: the given fields of each, ``int`` or ``str``, whatever others there are.

        ``lacking``: the value of a field in files that have none of its name. ``only``: which of them, bool[record].
        """
        dataset = Dataset(self._group, name)
        if not dataset.bytes:  # Most files have no gaps, no events and no texts: that is found out at once.
            return iter(())
        records = self._read(dataset, name)
        return fields(records if only is None else records[only(records)], lacking, **expected)

    def attribute(self, name: str, expected: type[_T], default: _T | None = None) -> _T:
        """Read an attribute, an ``int``, a ``bool`` or a ``str``; the default, if there is one, where there is none.

        :raises ValueError: where it is something else.
        """
        if default is not None and not h5a.exists(self._group, name.encode()):
            return default
        stored = h5a.open(self._group, name.encode())
        kind = stored.get_type()
        dtype = _dtype(kind.encode())
        if stored.get_storage_size() != dtype.itemsize or dtype.kind not in _KINDS[expected]:
            raise ValueError(f"attribute {name} is not of type {expected.__name__}")
        value = np.empty((), dtype)
        stored.read(value, kind)
        item = value.item()
        return _string(item) if isinstance(item, bytes) else item  # type: ignore[return-value]

    def matrix(self, width: int, length: int, rows: int) -> "Matrix":
        """The codes of a width, of so many ticks and at most so many rows."""
        return Matrix(self._group, width, length, rows)

    def vectors(self, length: int) -> "Vectors":
        """The vectors below it, each of this length."""
        return Vectors(self._group, length)


def texts(strings: Array) -> list[str]:
    """Bytes, S[n], as texts."""
    return list(map(_string, strings.tolist()))


def fields(
    records: Array, lacking: Mapping[str, object] = MappingProxyType({}), **expected: type
) -> Iterator[tuple[Any, ...]]:
    """The given fields of records [row], ``int`` or ``str``; of one that there is not, what it is where it is lacking.

    :raises ValueError: where one of them is something else.
    """
    lists: list[list[object]] = []
    for name, kind in expected.items():
        if name in lacking and name not in (records.dtype.names or ()):
            lists.append([lacking[name]] * len(records))
            continue
        if name not in (records.dtype.names or ()) or records.dtype[name].kind not in _KINDS[kind]:
            raise ValueError(f"records without a field {name}, or of another type than {kind.__name__}")
        column = records[name].tolist()
        lists.append([_string(cell) for cell in column] if kind is str else column)
    return zip(*lists, strict=True)


@lru_cache(maxsize=256)
def _dtype(encoded: bytes) -> np.dtype[Any]:
    """Translate a type; the library takes longer for it than for reading, and files are alike.

    :raises ValueError: where it is neither of numbers and texts of fixed size, nor of records of such.
    """
    dtype: np.dtype[Any] = h5t.decode(encoded).dtype
    if dtype == np.float64:
        return dtype
    for element in [dtype[name] for name in dtype.names] if dtype.names else [dtype]:
        # Numbers of 64 bits without a sign would be others once they are signed.
        if (
            (element.kind, element.itemsize) == ("u", 8)
            or element.kind not in "iubS"
            or element.itemsize > STRING_BYTES_MAX
        ):
            raise ValueError(f"a type {str(dtype)[:80]}; expected integers and texts of fixed size")
    return dtype


class Matrix:
    """The codes of one width. Who reads its rows in order unpacks each chunk once, wherever his batches end."""

    def __init__(self, group: h5g.GroupID, width: int, length: int, rows: int) -> None:
        """Open it.

        :raises ValueError: where it does not have rows of this width and length, at most so many.
        """
        dataset = Dataset(group, f"i{width}", (CHUNK_SERIES, CHUNK_TICKS))
        self._dataset, self._dtype = dataset, dataset.dtype
        self._rows, *lengths = dataset.shape
        if self._dtype != np.dtype(f"<i{width}") or lengths != [length]:
            raise ValueError(f"i{width} is not a matrix of this block")
        invariants.check_count(f"rows of i{width}", self._rows, rows)
        self._length = length
        # Of which row on, and of which part, the rows are that were read last.
        self._last_of, self._last = (-1, 0, 0), np.empty((0, length), self._dtype)

    def rows(self, rows: Array, part: slice = slice(None)) -> Array:
        """Read a part of rows, i1[row, n] to i8[row, n]; those whose chunks touch as one range."""
        wanted = rows.astype(np.int64)
        if wanted.max() >= self._rows:
            raise ValueError(f"the matrix has no row {wanted.max()}")
        low = int(wanted[0])
        if low % CHUNK_SERIES == 0 and (np.diff(wanted) == 1).all():  # As they lie: no need to pick them.
            return self._chunks(low, int(wanted[-1]) // CHUNK_SERIES * CHUNK_SERIES, part)[: len(wanted)]
        order = np.argsort(wanted, kind="stable")
        result = np.empty((len(wanted), len(range(*part.indices(self._length)))), self._dtype)
        for some in np.split(order, np.flatnonzero(np.diff(wanted[order] // CHUNK_SERIES) > 1) + 1):
            low = int(wanted[some[0]]) // CHUNK_SERIES * CHUNK_SERIES
            chunks = self._chunks(low, int(wanted[some[-1]]) // CHUNK_SERIES * CHUNK_SERIES, part)
            result[some] = chunks[wanted[some] - low]
        return result

    def _chunks(self, low: int, last: int, part: slice) -> Array:
        """A part of all rows of the chunks from that which begins at ``low`` to that at ``last``, which is held."""
        high = min(last + CHUNK_SERIES, self._rows)
        start, stop, _ = part.indices(self._length)
        rows = np.empty((high - low, stop - start), self._dtype)
        begin = low
        if (low, start, stop) == self._last_of:
            begin = min(low + CHUNK_SERIES, high)
            rows[: begin - low] = self._last
        if high > begin and stop > start:
            rows[begin - low :] = self._dataset.read((begin, start), (high, stop))
        self._last_of, self._last = (last, start, stop), rows if low == last else rows[last - low :].copy()
        return rows


class Vectors:
    """The vectors of a group, read by ranges. Who reads one in order unpacks each chunk once."""

    def __init__(self, group: h5g.GroupID, length: int) -> None:
        """``length``: that of each of them."""
        self._group = group
        self._length = length
        self._open: dict[int, Dataset] = {}
        self._last_place, self._last = (0, 0, 0), np.empty(0, np.int8)

    def read(self, width: int, row: int, low: int, high: int) -> Array:
        """The codes of a row of a width, from ``low`` to ``high``: i1[n] to i8[n].

        :raises ValueError: where there is no such row, or its length is another.
        """
        dataset = self._open[width] if width in self._open else self._opened(width)
        if row >= dataset.shape[0]:
            raise ValueError(f"i{width} has no row {row}")
        values = np.empty(high - low, f"<i{width}")
        begin = low
        if self._last_place[:2] == (width, row) and self._last_place[2] <= low < self._last_place[2] + len(self._last):
            there = self._last[low - self._last_place[2] :][: high - low]
            values[: len(there)] = there
            begin += len(there)
        if begin < high:
            start = begin - begin % VECTOR_CHUNK
            stop = min(-(-high // VECTOR_CHUNK) * VECTOR_CHUNK, self._length)
            chunks = dataset.read((row, start), (row + 1, stop))[0]
            values[begin - low :] = chunks[begin - start : high - start]
            last = (stop - start - 1) // VECTOR_CHUNK * VECTOR_CHUNK
            self._last_place, self._last = (width, row, start + last), chunks[last:].copy()
        return values

    def _opened(self, width: int) -> Dataset:
        dataset = Dataset(self._group, f"i{width}", (1, VECTOR_CHUNK))
        if dataset.dtype != np.dtype(f"<i{width}") or dataset.shape[1:] != (self._length,):
            raise ValueError(f"i{width} has no vectors of this length")
        self._open[width] = dataset
        return dataset


def one_line(error: BaseException) -> str:
    """What an error of the library says, without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
