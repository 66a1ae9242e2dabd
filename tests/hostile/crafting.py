# SPDX-License-Identifier: Apache-2.0
"""Crafted HDF5 files: whole by every checksum, and not what sysmond writes.

Made from a good file of each kind with h5py and ``docs/format.md``, as somebody would who wants to hang, fill or
deceive a reader: links out of the file, few bytes that claim many elements, numbers that cannot be, other types.
Beside them raw damage: bits turned over, pieces moved, ends cut off.

    python tests/hostile/crafting.py [WORD …]      (asks about all cases whose names have these words, and tells)
"""

import json
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import h5py
import numpy as np

from sysmond.commands import tamper
from tests.hostile.asking import Answer, Truth, Verdict, asked, judge, truth
from tests.hostile.scenes import Scene, scenes

FILTERS: dict[str, Any] = {"compression": "gzip", "compression_opts": 9, "shuffle": True, "fletcher32": True}
CHUNK = 1 << 16
# As many elements of eight bytes as an array of a file may have by its bytes.
MANY = 1 << 23
ROUNDS_MIN = 4
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
SECOND_NS = 10**9
DAY_S = 86_400


Array: TypeAlias = "np.ndarray[Any, Any]"
WIDTHS = ("i1", "i2", "i4", "i8")


class Case(NamedTuple):
    """A way to craft a file out of a good one, which is open for writing."""

    name: str
    craft: Callable[[h5py.File], object]
    verdict: Verdict = Verdict.DAMAGE


def particular(scene: Scene) -> Iterator[Case]:
    """What concerns files of this kind only: what was once made up and did harm, and more of its like."""
    if scene.kind == "wide":
        yield from wide_rows()
    if scene.kind.startswith("wide"):
        yield from wide("block" if scene.kind == "wide" else "tier")
    else:
        yield from long()


def general(scene: Scene, base: str) -> list[Case]:
    """What can be tried on every member and attribute of a file; in ``base`` lies what links point to.

    A list: who holds a file open while he asks keeps the library from opening it in another way.
    """
    found: list[Case] = []
    fifo = f"{base}/fifo"
    if not os.path.exists(fifo):
        os.mkfifo(fifo)
    scene.restore()
    with h5py.File(scene.victim, "r") as file:
        datasets, groups = _members(file)
        for path in (*datasets, *groups):
            found += links(path, fifo, scene.neighbour)
        for path in datasets:
            found += storages(path, file[path])
            found += fields(path, file[path])
        for path in ("/", *groups):
            found += attributes(path, dict(file[path].attrs))
    return found


def _members(file: h5py.File) -> tuple[list[str], list[str]]:
    datasets: list[str] = []
    groups: list[str] = []
    file.visititems(lambda name, member: (datasets if isinstance(member, h5py.Dataset) else groups).append(name))
    return datasets, groups


# Links: only names of what is in the file itself are right.


def links(path: str, fifo: str, other: str) -> Iterator[Case]:
    """Have something that is elsewhere where a member was."""

    def put(link: object, file: h5py.File) -> None:
        del file[path]
        file[path] = link

    def move(file: h5py.File) -> None:
        file.move(path, "elsewhere")
        file[path] = h5py.SoftLink("/elsewhere")

    name = path.replace("/", "-")
    yield Case(f"ext-fifo-{name}", partial(put, h5py.ExternalLink(fifo, f"/{path}")))
    yield Case(f"ext-file-{name}", partial(put, h5py.ExternalLink(other, f"/{path}")))
    yield Case(f"ext-gone-{name}", partial(put, h5py.ExternalLink("/nowhere.h5", f"/{path}")))
    yield Case(f"soft-{name}", move)
    yield Case(f"soft-loop-{name}", partial(put, h5py.SoftLink(f"/{path}")))


# Storage: one-dimensional (or matrices), chunked, of fixed size, every chunk there.


def storages(path: str, was: h5py.Dataset) -> Iterator[Case]:
    """Have a dataset stored otherwise, or claim another shape."""
    whole = was[()]
    kind, shape = was.dtype, was.shape
    name = path.replace("/", "-")

    def put(file: h5py.File, **how: Any) -> h5py.Dataset:
        del file[path]
        return file.create_dataset(path, **how)

    def chunks(file: h5py.File, **how: Any) -> h5py.Dataset:
        return put(file, **{"dtype": kind, "chunks": tuple(max(1, each) for each in shape), **FILTERS, **how})

    def skipped(file: h5py.File) -> None:
        made = chunks(file, shape=shape)
        made.id.write_direct_chunk((0,) * len(shape), b"\1\2\3\4\5", 0b111)

    def repacked(count: int, file: h5py.File) -> None:
        made = chunks(file, shape=shape)
        piece = np.resize(whole.ravel(), count)
        other = file.create_dataset("other", data=piece, chunks=piece.shape, **FILTERS)
        file.flush()  # Until then the chunk is nowhere.
        _, packed = other.id.read_direct_chunk((0,))
        del file["other"]
        made.id.write_direct_chunk((0,) * len(shape), packed)

    def virtual(file: h5py.File) -> None:
        layout = h5py.VirtualLayout(shape, kind)
        layout[:] = h5py.VirtualSource(f"{file.filename}.other", path, shape)
        del file[path]
        file.create_virtual_dataset(path, layout)

    # Nothing need be read where nothing is.
    of_content = Verdict.DAMAGE if whole.size else Verdict.TRUE
    yield Case(f"gone-{name}", lambda file: file.__delitem__(path))
    yield Case(f"group-{name}", lambda file: (file.__delitem__(path), file.create_group(path)))
    yield Case(f"contiguous-{name}", partial(put, data=whole), of_content)
    yield Case(f"virtual-{name}", virtual, of_content)
    yield Case(
        f"stored-elsewhere-{name}",
        partial(put, shape=shape, dtype=kind, external=[("/etc/passwd", 0, 999)]),
        of_content,
    )
    yield Case(f"scalar-{name}", partial(put, shape=(), dtype=kind), of_content)
    yield Case(f"cube-{name}", partial(chunks, shape=(2, 2, 2), chunks=(2, 2, 2)), of_content)
    yield Case(
        f"texts-of-any-length-{name}", partial(put, shape=shape, dtype=h5py.string_dtype(), chunks=True), of_content
    )
    yield Case(f"references-{name}", partial(put, shape=shape, dtype=h5py.ref_dtype, chunks=True), of_content)
    yield Case(
        f"unchecked-{name}", partial(chunks, data=whole, fletcher32=False, maxshape=(None, *shape[1:])), Verdict.TRUE
    )
    # Of no bytes, or as many as memory has.
    claimed = (2**40, *shape[1:])
    room = {"maxshape": (None, *shape[1:]), "chunks": tuple(min(max(1, each), CHUNK) for each in shape)}
    yield Case(f"claims-2^40-{name}", partial(chunks, shape=claimed, **room))
    large = (1 << 30) // kind.itemsize
    large_chunk = (large, *(1 for _ in shape[1:]))
    yield Case(f"chunk-1GiB-{name}", partial(chunks, shape=(large, *shape[1:]), chunks=large_chunk))
    if whole.size:
        yield Case(f"no-chunks-{name}", partial(chunks, shape=shape))
        yield Case(f"short-chunk-{name}", skipped)
        # By all filters, with a checksum that is right.
        yield Case(f"long-packed-{name}", partial(repacked, 2 * whole.size))
        if whole.size > 1:
            yield Case(f"short-packed-{name}", partial(repacked, 1))
        yield Case(f"bomb-{name}-data", lambda file: constant(file, path, MANY * 8 // kind.itemsize, whole[:1]))


def constant(file: h5py.File, path: str, length: int, element: Array) -> None:
    """Have so many equal elements (or rows): one chunk again and again, in as few bytes."""
    if path in file:
        del file[path]
    chunk = min(CHUNK, length)
    rest = element.shape[1:]
    whole = (length // chunk * chunk, *rest)
    made = file.create_dataset(path, shape=whole, dtype=element.dtype, chunks=(chunk, *rest), **FILTERS)
    made[:chunk] = element
    mask, packed = made.id.read_direct_chunk((0,) * len(whole))
    for start in range(chunk, whole[0], chunk):
        made.id.write_direct_chunk((start, *(0 for _ in rest)), packed, mask)


# Fields of records, and plain numbers and texts.

_EXTREMES = {"min": INT_MIN, "max": INT_MAX, "neg": -1, "2^62": 2**62, "zero": 0}
_TEXTS = {
    "empty": b"",
    "path": b"../../../tmp/x",
    "escape": b"\x1b]0;x\x07\n# gap",
    "bytes": b"\xff\xfe\x80",
    "star": b"*@?",
}
# What a number or a text cannot be; of other places sysmond cannot know.
_IMPOSSIBLE = {
    ("series", "metric"): ("max",),
    ("series", "instance"): ("max",),
    ("series", "width"): ("max",),
    ("series", "row"): ("max",),
    ("series", "first"): ("max", "2^62"),
    ("metrics", "scale"): ("max",),
    ("metrics", "semantics"): ("empty", "path", "escape", "bytes", "star"),
    ("metrics", "table"): ("empty", "path", "escape", "bytes", "star"),
    ("metrics", "name"): ("empty", "path", "escape", "bytes", "star"),
    ("tables", "name"): ("empty", "path", "escape", "bytes", "star"),
    ("clocks", "boot"): ("min", "max", "neg", "2^62"),
    ("clocks", "boottime_ns"): ("min", "max", "2^62"),
    ("clocks", "realtime_ns"): ("min", "max", "neg", "2^62", "zero"),
    ("ticks", ""): ("min", "max", "neg", "2^62"),
    ("last", ""): ("min", "max", "neg", "2^62", "zero"),
    ("rows", ""): ("min", "max", "neg", "2^62", "zero"),
    ("boots", ""): ("empty", "path", "escape", "bytes", "star"),
    ("text_ends", ""): ("min", "max", "neg", "2^62"),
    ("lives", "first_ns"): ("min", "max", "neg", "2^62"),
    ("vectors", "role"): ("empty", "path", "escape", "bytes", "star"),
    ("vectors", "width"): ("max",),
}


def fields(path: str, was: h5py.Dataset) -> Iterator[Case]:
    """Have values that nobody expects, in the first element and in all."""
    if not was.size:
        return
    last = path.rpartition("/")[2]
    for field in was.dtype.names or ("",):
        kind = was.dtype[field] if field else was.dtype
        named = "-".join(filter(None, (path.replace("/", "-"), field)))
        values: Mapping[str, int | bytes]
        values = _TEXTS if kind.kind == "S" else {**_EXTREMES} if kind.kind in "iu" else {}
        for name, value in values.items():
            verdict = Verdict.REDEFINES if last in {"metrics", "tables"} else Verdict.LIE
            verdict = Verdict.DAMAGE if name in _IMPOSSIBLE.get((last, field), ()) else verdict
            for scope in ("", "-all") if was.shape[0] > 1 and (last, field) != ("ticks", "") else ("",):
                yield Case(f"{named}-{name}{scope}", partial(_set, path, field, value, first=not scope), verdict)
        if field:
            yield Case(f"{named}-lacks", partial(_without, path, field))
        if kind.kind in "iu":
            yield Case(f"{named}-float", partial(_retype, path, field, "<f8"))
    if was.dtype.names and was.shape[0] > 1 and last not in {"gaps", "events", "texts"}:
        yield Case(
            f"{path.replace('/', '-')}-dup",
            partial(_double, path),
            Verdict.DAMAGE if last != "clocks" else Verdict.TRUE,
        )


def _set(path: str, field: str, value: int | bytes, file: h5py.File, *, first: bool) -> None:
    array = file[path][()]
    kind = array.dtype[field] if field else array.dtype
    if isinstance(value, int):
        limits = np.iinfo(kind)
        value = min(max(value, int(limits.min)), int(limits.max))
        if value == 0 and kind.kind == "u" and limits.min == 0:
            value = 0
    else:
        array = _widened(array, field, len(value))
    place = array[field] if field else array
    place[... if not first else (slice(0, 1), ...)] = value
    replace(file, path, array)


def _widened(array: Array, field: str, length: int) -> Array:
    """The same with room for a text of this length."""
    if not field:
        return array.astype(f"S{max(length, array.dtype.itemsize)}")
    kinds = [
        (name, f"S{max(length, array.dtype[name].itemsize)}" if name == field else array.dtype[name])
        for name in array.dtype.names or ()
    ]
    return array.astype(kinds)


def _retype(path: str, field: str, kind: str, file: h5py.File) -> None:
    array = file[path][()]
    if not field:
        replace(file, path, array.astype(kind))
        return
    kinds = [(name, kind if name == field else array.dtype[name]) for name in array.dtype.names]
    replace(file, path, array.astype(kinds))


def _without(path: str, field: str, file: h5py.File) -> None:
    array = file[path][()]
    replace(file, path, array[[name for name in array.dtype.names if name != field]])


def _double(path: str, file: h5py.File) -> None:
    array = file[path][()]
    replace(file, path, np.concatenate([array, array[-1:]]))


def replace(file: h5py.File, path: str, array: Array) -> None:
    """Have another array of the same name, stored as sysmond does."""
    array = np.ascontiguousarray(array)
    if array.dtype.names:
        array = array.astype([(name, array.dtype[name]) for name in array.dtype.names])
    if path in file:
        del file[path]
    chunks = tuple(max(1, min(each, CHUNK)) for each in array.shape)
    file.create_dataset(path, data=array, chunks=chunks, maxshape=(None, *array.shape[1:]), **FILTERS)


# Attributes.

_IMPOSSIBLE_NUMBERS = {
    "version": ("neg", "zero", "max", "min"),
    "incompatible": ("neg", "max", "min"),
    "boot": ("neg", "max", "min"),
    "interval_ns": ("neg", "zero", "min", "max"),
    "step_ns": ("neg", "zero", "min", "max"),
    "started_ns": ("min", "max"),
    "length": ("neg", "max", "min"),
}
_IMPOSSIBLE_TEXTS = {"format": ("empty", "path", "escape"), "sensitivity": ("empty", "path", "escape")}
_IGNORED = frozenset({"created_by", "compatible"})
_OPTIONAL = frozenset({"answers"})


def attributes(path: str, attrs: Mapping[str, Any]) -> Iterator[Case]:
    """Have attributes of other types and values, or none."""
    where = "" if path == "/" else f"{path.replace('/', '-')}-"
    for name, value in attrs.items():
        ignored = Verdict.TRUE if name in _IGNORED else Verdict.DAMAGE

        def put(new: object, file: h5py.File, name: str = name) -> None:
            del file[path].attrs[name]
            if new is not None:
                file[path].attrs[name] = new

        named = f"attr-{where}{name}"
        yield Case(f"{named}-lacks", partial(put, None), Verdict.TRUE if name in _OPTIONAL else ignored)
        yield Case(f"{named}-list", partial(put, [1, 1]), ignored)
        yield Case(f"{named}-any-length", partial(put, "sysmond segment"), ignored)
        yield Case(f"{named}-half", partial(put, 0.5), ignored)
        if isinstance(value, np.bytes_):
            yield Case(f"{named}-number", partial(put, 1), ignored)
            for kind, text in {**_TEXTS, "long": b"x" * 60_000}.items():
                verdict = Verdict.DAMAGE if kind in _IMPOSSIBLE_TEXTS.get(name, ()) else Verdict.LIE
                yield Case(f"{named}-{kind}", partial(put, np.bytes_(text or b"\0")), verdict)
        else:
            yield Case(f"{named}-text", partial(put, np.bytes_(b"1")), ignored)
            yield Case(f"{named}-float", partial(put, float(value)), ignored)
            if not isinstance(value, np.bool_):
                yield Case(f"{named}-true", partial(put, True), ignored)
            for kind, number in (*_EXTREMES.items(), ("1", 1), ("-5", -5)):
                impossible = kind in _IMPOSSIBLE_NUMBERS.get(name, ()) or (kind == "-5" and name in _IMPOSSIBLE_NUMBERS)
                impossible = impossible and (name, kind) != ("started_ns", "-5")
                yield Case(f"{named}-{kind}", partial(put, number), Verdict.DAMAGE if impossible else Verdict.LIE)


# Wide files: of rows, and of tiers.


def wide(group: str) -> Iterator[Case]:
    """What concerns wide files of every tier; ``group``: that has their blocks."""
    yield Case("sensitivity-restricted", lambda file: file.attrs.create("sensitivity", np.bytes_("restricted")))
    yield Case("bomb-boots-64M", lambda file: replace(file, "boots", np.zeros(MANY * 8, "S1")))
    yield Case("bomb-instance-64M", lambda file: replace(file, "instances", np.zeros(1, f"S{1 << 26}")))
    yield Case("instances-4M", partial(_instances, 4_000_000))
    yield Case("blocks-twice", partial(_linked, group, 2))
    yield Case("links-100k-small", partial(_linked, group, 100_000))
    yield Case("series-million", partial(_many_series, group, 1_000_000))
    yield Case("clocks-none", lambda file: replace(file, "clocks", file["clocks"][:0]), Verdict.TRUE)
    for path in ("gaps", "events", "texts", "covers", "clocks", "tables", "metrics"):
        yield Case(f"{path}-100k", partial(_grow, path, 100_000), Verdict.LIE)
    for path in ("gaps", "events", "covers"):
        yield Case(f"{path}-boot-wrong", partial(_one_more, path, {"boot": 7}))
    for path, field in (("gaps", "start_ns"), ("gaps", "end_ns"), ("events", "boottime_ns"), ("texts", "id")):
        for name, value in (("max", INT_MAX), ("min", INT_MIN)):
            verdict = Verdict.LIE if path == "texts" else Verdict.DAMAGE
            yield Case(f"{path}-{field}-{name}", partial(_one_more, path, {field: value}), verdict)
    yield Case("gaps-backwards", partial(_one_more, "gaps", {"start_ns": 2 * SECOND_NS, "end_ns": SECOND_NS}))
    yield Case("gaps-cause-unknown", partial(_one_more, "gaps", {"cause": b"magic"}))


def _linked(group: str, count: int, file: h5py.File) -> None:
    """So many names for one block."""
    for number in range(1, count):
        file[f"{group}/{number}"] = file[f"{group}/0"]


def _instances(count: int, file: h5py.File) -> None:
    replace(file, "instances", np.array([b"%07d" % each for each in range(count)]))


def _many_series(group: str, count: int, file: h5py.File) -> None:
    """So many series that never move."""
    series = np.repeat(file[f"{group}/0/series"][:1], count)
    series["width"] = 0
    series["instance"] = np.arange(count)
    _instances(count, file)
    replace(file, f"{group}/0/series", series)


def _one_more(path: str, values: Mapping[str, int | bytes], file: h5py.File) -> None:
    """Have one record more, with these values, of such as may not be there at all."""
    array = file[path][()]
    kinds = [(name, "S16" if array.dtype[name].kind == "S" else array.dtype[name]) for name in array.dtype.names or ()]
    record = np.zeros(1, kinds)
    usual = {"boot": 0, "cause": b"dropped", "table": b"disk", "start_ns": SECOND_NS, "end_ns": 2 * SECOND_NS}
    for name, value in {**usual, "boottime_ns": SECOND_NS, **values}.items():
        if name in (record.dtype.names or ()):
            record[name] = value
    replace(file, path, np.concatenate([array.astype(kinds), record]))


def _grow(path: str, count: int, file: h5py.File) -> None:
    """Have very many records, each unlike the others where it has a number of its own."""
    _one_more(path, {}, file)
    array = np.repeat(file[path][-1:], count)
    for name in ("start_ns", "end_ns", "boottime_ns", "id", "first", "last"):
        if name in (array.dtype.names or ()):
            array[name] += np.arange(count).astype(array.dtype[name])
    replace(file, path, np.concatenate([file[path][()], array]))


def wide_rows() -> Iterator[Case]:
    """What concerns files of rows only."""
    yield Case("ticks-8M-constant", partial(_steady, MANY))
    yield Case("ticks-day", partial(_steady, DAY_S), Verdict.LIE)
    yield Case("links-100x8M", _linked_and_long)
    yield Case("blocks-200-days", partial(_days, 200))
    yield Case("series-60k-day", _many_and_long)
    yield Case("matrix-2^40-rows", partial(_claimed_rows, 2**40))
    yield Case("rows-dense-gap", partial(_apart, 8 * 1000, are_there=False))
    yield Case("rows-far-apart", partial(_apart, 1 << 30, are_there=False))
    yield Case("rows-far-and-there", partial(_apart, 1 << 30, are_there=True), Verdict.TRUE)
    end_ns, century_ns = INT_MAX - 1000 * SECOND_NS, 100 * 365 * DAY_S * SECOND_NS
    axes: Mapping[str, Callable[[Array], Array]] = {
        "u8": lambda ticks: ticks.astype("<u8") + np.uint64(2**63),
        "extreme": lambda ticks: ticks - ticks[0] + end_ns,
        "far": lambda ticks: ticks + 2 * century_ns,
        "negative": lambda ticks: ticks - ticks[-1] - SECOND_NS,
        "spread-far": lambda ticks: ticks[0] + np.arange(len(ticks)) * (century_ns // 20),
        "backwards": lambda ticks: ticks[::-1],
        "twice": lambda ticks: np.sort(np.concatenate([ticks[1:], ticks[1:2]])),
        "none": lambda ticks: ticks[:0],
        "fewer": lambda ticks: ticks[:-1],
    }
    for name, new in axes.items():
        yield Case(f"ticks-{name}", partial(_axis, new))
    spread = partial(_axis, lambda ticks: ticks[0] + (ticks - ticks[0]) * DAY_S)
    yield Case("ticks-spread", spread, Verdict.LIE)


def _linked_and_long(file: h5py.File) -> None:
    _steady(MANY, file)
    _linked("block", 100, file)


def _many_and_long(file: h5py.File) -> None:
    _steady(DAY_S, file)
    _many_series("block", 60_000, file)


def _axis(new: Callable[[Array], Array], file: h5py.File) -> None:
    replace(file, "block/0/ticks", new(file["block/0/ticks"][()]))


def _steady(count: int, file: h5py.File, number: int = 0) -> None:
    """A block of so many ticks, at which nothing moves."""
    series = file["block/0/series"][()]
    series["width"], series["row"], series["stop"] = 0, 0, count
    replace(file, f"block/{number}/series", series)
    first = int(file["block/0/ticks"][0])
    replace(file, f"block/{number}/ticks", first + SECOND_NS * np.arange(count, dtype="<i8"))
    for width in WIDTHS:
        if width in file[f"block/{number}"]:
            del file[f"block/{number}/{width}"]


def _days(count: int, file: h5py.File) -> None:
    """So many blocks of a day each."""
    for number in range(1, count):
        group = file.create_group(f"block/{number}")
        for name, value in file["block/0"].attrs.items():
            group.attrs[name] = value
        group.attrs["started_ns"] = number
        _steady(DAY_S, file, number)


def _claimed_rows(rows: int, file: h5py.File) -> None:
    """A matrix that claims so many rows, of which no chunk is there."""
    length = file["block/0/ticks"].shape[0]
    path = next(f"block/0/{each}" for each in WIDTHS if f"block/0/{each}" in file)
    kind = file[path].dtype
    del file[path]
    file.create_dataset(path, (rows, length), kind, chunks=(8, length), maxshape=(None, length), **FILTERS)


def _apart(far: int, file: h5py.File, *, are_there: bool) -> None:
    """Rows that lie far from each other, nothing between them; or the far ones are not there either."""
    path = "block/0/i1"
    codes = file[path][()]
    del file[path]
    shape = (far + len(codes), codes.shape[1])
    made = file.create_dataset(path, shape, "<i1", chunks=(8, shape[1]), maxshape=(None, None), **FILTERS)
    made[: len(codes)] = codes
    if are_there:
        made[far:] = codes
    series = file["block/0/series"][()]
    series["row"][np.flatnonzero(series["width"] == 1)[1:]] += far
    replace(file, "block/0/series", series)


# Files of long tables.


def long() -> Iterator[Case]:
    """What concerns files of long tables."""
    yield from _declarations()
    yield from _answers()
    alone = frozenset({("readings", "tick"), ("keys", "key")})
    yield Case("long-keys-4M", partial(_claims, {"keys": 1 << 22, "rows": 1 << 22}, alone))
    yield Case("long-readings-8M", partial(_claims, {"readings": MANY}, alone))
    yield Case("long-rows-8M", partial(_one_key, MANY))
    everything = dict.fromkeys(("readings", "keys", "rows"), 1 << 20)
    yield Case("long-all-1M", partial(_claims, everything, alone), Verdict.LIE)
    yield Case("long-texts-64M", partial(_long_texts, 1 << 10), Verdict.LIE)
    yield Case("long-texts-8M-ends", partial(_long_texts, MANY))
    yield Case("long-texts-empty-8M", _empty_texts)
    yield Case("lives-64M", lambda file: constant(file, "lives", (1 << 26) // 17, file["lives"][:1]))
    yield Case("vectors-many", _many_vectors)
    yield Case("counts-wrap", _wrapping)


def _declarations() -> Iterator[Case]:
    """What a table may be declared as."""
    # Of so many pieces, made when they are wanted: what is held here would count as each child's.
    texts = {
        "deep": (b"", b"[", 200_000, b""),
        "deep-whole": (b"[" * 100_000, b"", 0, b"]" * 100_000),
        "digits": (b"[", b"9", 1_000_000, b"]"),
        "list-64M": (b"[", b"0,", 1 << 24, b"0]"),
        "not-json": (b"\xff\0{", b"", 0, b""),
        "object": (b"{}", b"", 0, b""),
    }
    for name, (begin, piece, count, end) in texts.items():
        yield Case(f"declaration-{name}", partial(_repeated, begin, piece, count, end))
    long_format = "<" + "q" * 1_000_000
    values: Mapping[str, tuple[tuple[int, ...], Sequence[object]]] = {
        "interval": ((0,), (0, -5, INT_MAX, 2**70, 0.5, "1", float("inf"), float("nan"))),
        "name": ((1,), ("../../x", "disk", "", 5, "\x1b[2J")),
        "metrics": ((4,), ([], 5, [[]], [[5]])),
        "scale": ((4, 0, 4), (255, -400, 2**70, "1", None, 1.5)),
        "format": ((5, 0), ("999999999999x", "9" * 5000 + "q", "z", "", long_format, "1000000000s")),
        "key": ((5, 1), ([], ["nothing"], ["pid"] * 1000, [5], ["id", "id"])),
    }
    for name, (place, wrong) in values.items():
        for value in wrong:
            yield Case(f"declaration-{name}-{str(value)[:16]}", partial(_declared_with, place, value))
    for name, at, other in (("scale", 4, 5), ("unit", 1, "furlong"), ("semantics", 2, "gauge")):
        yield Case(f"declaration-{name}-other", partial(_declared_with, (4, -1, at), other), Verdict.REDEFINES)
    yield Case("declaration-metrics-many", _many_metrics)


def _answers() -> Iterator[Case]:
    """What a table may be said to declare about answers."""
    join = ["../../x", [["id", "id"]], [["said", "name"]], False, False]
    values: Mapping[str, object] = {
        "list": [],
        "top": {"top": [["nothing"]]},
        "top-deep": {"top": [[[["id"]]]]},
        "show-text": {"show": "id"},
        "show-many": {"show": ["id"] * 1000},
        "join-path": {"joins": [join]},
        "join-short": {"joins": [join[:2]]},
        "total": {"totals": [["all", ["id", "id"], "x"]]},
        "ended": {"ended_by": ["exits", [], []]},
    }
    for name, value in values.items():
        yield Case(f"answers-{name}", partial(_answering, json.dumps(value).encode()))
    yield Case("answers-not-json", partial(_answering, b"\xff{"))
    yield Case("answers-deep", partial(_answering, b'{"top":' + b"[" * 8000))
    yield Case("answers-60k", partial(_answering, b" " * 60_000))


def _answering(text: bytes, file: h5py.File) -> None:
    file.attrs["answers"] = np.bytes_(text)


def _repeated(begin: bytes, piece: bytes, count: int, end: bytes, file: h5py.File) -> None:
    _declared_as(begin + piece * count + end, file)


def _declared_as(text: bytes, file: h5py.File) -> None:
    replace(file, "declaration", np.frombuffer(text, np.uint8))


def _declared_with(place: Sequence[int], value: object, file: h5py.File) -> None:
    """Have another value at this place of the declaration."""
    declaration = at = json.loads(file["declaration"][()].tobytes())
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    _declared_as(json.dumps(declaration).encode(), file)


def _many_metrics(file: h5py.File) -> None:
    declaration = json.loads(file["declaration"][()].tobytes())
    declaration[4] *= 10_000
    _declared_as(json.dumps(declaration).encode(), file)


def _claims(lengths: Mapping[str, int], moving: Collection[tuple[str, str]], file: h5py.File) -> None:
    """Every vector of these lengths and constant; of those that are ``moving`` each element is larger by one."""
    for group, length in lengths.items():
        records = file[f"{group}/vectors"][()]
        for name, value in (("width", 0), ("row", 0), ("base", 0), ("summed", 0), ("factor", 1)):
            records[name] = value
        records["base"][records["role"] == b"count"] = 1
        for at, role in enumerate(records["role"].tolist()):
            if (group, role.decode()) in moving:
                records[at]["width"] = records[at]["summed"] = records[at]["base"] = 1
                if role == b"tick":
                    records[at]["base"], records[at]["factor"] = 121 * SECOND_NS, SECOND_NS
        for width in WIDTHS:
            if width in file[group]:
                del file[f"{group}/{width}"]
        how: dict[str, Any] = {"chunks": (1, min(length, CHUNK)), "maxshape": (None, length), **FILTERS}
        codes = file.create_dataset(f"{group}/i1", (1, length), "<i1", **how)
        for start in range(0, length, 1 << 20):
            codes[0, start : start + (1 << 20)] = 1
        replace(file, f"{group}/vectors", records)
        file[group].attrs["length"] = length


def _one_key(length: int, file: h5py.File) -> None:
    """One key of so many rows."""
    _claims({"keys": 1, "rows": length}, (), file)
    records = file["keys/vectors"][()]
    records["base"][records["role"] == b"count"] = length
    replace(file, "keys/vectors", records)


def _long_texts(count: int, file: h5py.File) -> None:
    """So many texts, together of 64 MiB."""
    constant(file, "texts", 1 << 26, np.full(1, ord("x"), np.uint8))
    replace(file, "text_ends", np.linspace(0, 1 << 26, count).astype("<i8"))


def _empty_texts(file: h5py.File) -> None:
    constant(file, "text_ends", MANY, np.full(1, file["texts"].shape[0], "<i8"))


def _many_vectors(file: h5py.File) -> None:
    for group in ("readings", "keys", "rows"):
        replace(file, f"{group}/vectors", np.repeat(file[f"{group}/vectors"][()], 20_000))


def _wrapping(file: h5py.File) -> None:
    """Counts of rows beyond all bounds."""
    records = file["keys/vectors"][()]
    records["factor"][records["role"] == b"count"] = INT_MAX
    records["base"][records["role"] == b"count"] = INT_MIN + 5
    replace(file, "keys/vectors", records)


# What is tried, and how.


def make(scene: Scene, case: Case) -> str:
    """Craft a file in the victim's place, in a child that leaves no memory behind; why not, or nothing."""
    scene.restore()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with h5py.File(scene.victim, "r+", libver=("v110", "v110")) as file:
                case.craft(file)
        except BaseException as failure:  # noqa: BLE001  whatever it was, the parent says so
            os.write(writing, f"{type(failure).__name__}: {failure}".encode()[:1000])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as said:
        problem = said.read().decode()
    _, status = os.waitpid(child, 0)
    return problem or (f"ended by {status}" if status else "")


def mutation(scene: Scene, chance: random.Random) -> tuple[str, bytes]:
    """A copy of the victim that is raw damage, and what was done to it."""
    content, other = scene.whole, b""
    match chance.randrange(4):
        case 0:
            bits = [chance.randrange(len(content) * 8) for _ in range(chance.choice((1, 1, 1, 8, 64)))]
            for bit in bits:
                content = tamper.Tampering(len(content), bit).apply(content)
            return f"{len(bits)} bits from {bits[0]}", content
        case 1:
            length = chance.randrange(len(content))
            return f"cut to {length}", content[:length]
        case 2:
            start, to, length = (chance.randrange(len(content)) for _ in range(3))
            piece = content[start : start + length % 4096]
            return f"{len(piece)} bytes from {start} to {to}", content[:to] + piece + content[to + len(piece) :]
        case _:
            with open(scene.neighbour, "rb") as file:
                other = file.read()
            # Before the first byte in which they differ it would be a copy of the neighbour, and whole.
            differ = next(at for at, (mine, its) in enumerate(zip(content, other, strict=False)) if mine != its)
            start = chance.randrange(differ + 1, min(len(content), len(other)))
            return f"the neighbour's from {start}", content[:start] + other[start:]


class Told(NamedTuple):
    """What came of a case: its problems, a line each, and the answers."""

    name: str
    problems: Sequence[str]
    answers: Mapping[str, Answer]


def tried(scene: Scene, expected: Truth, case: Case) -> Told:
    """Try a crafted file."""
    name = f"{scene.kind}: {case.name}"
    if problem := make(scene, case):
        return Told(name, [f"{name}: not made: {problem}"], {})
    answers = asked(scene)
    found = judge(scene, expected, answers, case.verdict)
    return Told(name, [f"{name}: {each}" for each in found], answers)


def mutated(scene: Scene, expected: Truth, chance: random.Random) -> Told:
    """Try raw damage."""
    what, content = mutation(scene, chance)
    name = f"{scene.kind}: {what}"
    scene.put(content)
    answers = asked(scene)
    found = judge(scene, expected, answers, Verdict.TRUE)
    return Told(name, [f"{name}: {each}" for each in found], answers)


def told(base: str, rounds: int, chance: random.Random, words: Sequence[str] = ()) -> Iterator[Told]:
    """Try crafted files that have all of these words in their names, and raw damage.

    ``rounds``: so many cases of each, chosen by ``chance``, of those that are of one kind of file only at least a half.
    """
    made = list(scenes(base))

    def named(scene: Scene, these: Iterable[Case]) -> list[tuple[Scene, Case]]:
        found = [case for case in these if all(word in f"{scene.kind}: {case.name}" for word in words)]
        return [(scene, case) for case in found]

    special = [each for scene in made for each in named(scene, particular(scene))]
    common = [each for scene in made for each in named(scene, general(scene, base))]
    chosen = [*special, *common]
    if len(chosen) > rounds:
        chosen = chance.sample(special, min(len(special), rounds // 2))
        chosen += chance.sample(common, min(len(common), rounds - len(chosen)))
    truths: dict[str, Truth] = {}

    def expected(scene: Scene) -> Truth:
        if scene.kind not in truths:
            truths[scene.kind] = truth(scene)
        return truths[scene.kind]

    for scene, case in chosen:
        yield tried(scene, expected(scene), case)
        scene.restore()
    for scene in chance.choices(made, k=0 if words else rounds):
        yield mutated(scene, expected(scene), chance)
        scene.restore()


def attack(base: str, rounds: int, chance: random.Random) -> tuple[dict[str, int], list[str]]:
    """Try crafted files in the empty folder ``base``, and as many that are raw damage; gives figures and problems."""
    figures = Counter({"tried": 0, "named": 0, "most MiB": 0, "most ms": 0})
    problems: list[str] = []
    for each in told(base, max(rounds, ROUNDS_MIN), chance):
        problems += each.problems
        figures["tried"] += 1
        figures["named"] += any(answer.code for answer in each.answers.values())
        for answer in each.answers.values():
            figures["most MiB"] = max(figures["most MiB"], answer.peak_bytes >> 20)
            figures["most ms"] = max(figures["most ms"], int(answer.seconds * 1000))
    return dict(figures), problems


def main(words: Sequence[str]) -> int:
    """Tell of each case what came of it; exit code 1 where any failed."""
    import tempfile  # noqa: PLC0415  of this alone

    failed = total = 0
    with tempfile.TemporaryDirectory(prefix="sysmond-crafted-", dir="/dev/shm") as base:
        for each in told(base, 10**6 if words else 3000, random.Random(1), words):
            total += 1
            failed += bool(each.problems)
            for problem in each.problems:
                print(problem, flush=True)
    print(f"{failed} of {total} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
