# SPDX-License-Identifier: Apache-2.0
"""Compares what is frozen with what is made now: a line each difference, and none where there is none."""

import importlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from ctypes import CDLL, c_char_p
from itertools import zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import numpy as np
import numpy.typing as npt

from sysmond.store.files.dense_file import Segment
from sysmond.store.files.sparse_file import open_file

# So long a value is told of in a difference, and so many differences of one thing.
SHOWN_MAX = 160
DIFFERENCES_MAX = 20
# A list of more text than this is a line an element.
TEXT_LINE_MAX = 300
# Attributes of a later version that readers may ignore.
IGNORED = frozenset({"answers"})
# What a file or a cell holds; how it is called in a difference.
Arrays = Mapping[str, npt.NDArray[Any]]


def libraries() -> dict[str, str]:
    """The versions on which the bytes of a file depend: of HDF5, and of the zlib that it has in this process."""
    importlib.import_module("h5py")
    loaded = dict.fromkeys(
        re.findall(r"/\S+/libz[-.][^/\s]*so[^/\s]*", Path("/proc/self/maps").read_text(encoding="utf-8"))
    )
    own = [path for path in loaded if "h5py" in path] or list(loaded)
    version = ""
    if own:
        of_zlib = CDLL(own[0]).zlibVersion
        of_zlib.restype = c_char_p
        version = of_zlib().decode()
    return {"hdf5": h5py.version.hdf5_version, "zlib": version}


def spelled(value: Any, space: str = "") -> str:
    """JSON in which a change is a line: a row, a column, a gap or a line of text each."""
    if _is_a_line(value):
        return json.dumps(value, ensure_ascii=True)
    is_object, inner = isinstance(value, dict), f"{space} "
    lines = [
        inner + (f"{json.dumps(each[0])}: {spelled(each[1], inner)}" if is_object else spelled(each, inner))
        for each in (value.items() if is_object else value)
    ]
    begin, end = "{}" if is_object else "[]"
    return f"{begin}\n" + ",\n".join(lines) + f"\n{space}{end}"


def _is_a_line(value: Any) -> bool:
    """Whether it is a cell, a list of cells, or an object of cells and one list of them at most."""
    if isinstance(value, dict):
        lists = [each for each in value.values() if isinstance(each, dict | list)]
        return not lists or (len(lists) == 1 and isinstance(lists[0], list) and _is_a_line(lists[0]))
    if not isinstance(value, list):
        return True
    if any(isinstance(each, dict | list) for each in value):
        return False
    return sum(len(each) for each in value if isinstance(each, str)) <= TEXT_LINE_MAX


def differences(expected: Any, found: Any, where: str = "") -> Iterator[str]:
    """What differs between two values as JSON has them."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*expected, *found]):
            place = f"{where}.{key}" if where else str(key)
            if key not in found:
                yield f"{place}: is not there any more"
            elif key not in expected:
                yield f"{place}: is new"
            else:
                yield from differences(expected[key], found[key], place)
    elif isinstance(expected, list) and isinstance(found, list) and not _are_cells(expected, found):
        for number, (one, other) in enumerate(zip_longest(expected, found, fillvalue="nothing")):
            yield from differences(one, other, f"{where}[{number}]")
    elif expected != found or type(expected) is not type(found):
        yield f"{where}: {_unlike(expected, found)}"


def _are_cells(*lists: list[Any]) -> bool:
    return all(not isinstance(cell, dict | list) for cells in lists for cell in cells)


def _unlike(expected: Any, found: Any) -> str:
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{len(found)} values, expected {len(expected)}"
        unlike = [at for at, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
        at = unlike[0]
        return f"{len(unlike)} of {len(expected)} values differ; [{at}] is {found[at]!r}, expected {expected[at]!r}"
    return f"{_short(found)}, expected {_short(expected)}"


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= SHOWN_MAX else f"{said[:SHOWN_MAX]}… ({len(said)} characters)"


# --- files ----------------------------------------------------------------------------------------


def file_differences(expected: bytes, found: bytes) -> Iterator[str]:
    """What differs between two files of HDF5: members, attributes, and the type, layout and values of datasets."""
    with h5py.File(io.BytesIO(expected)) as one, h5py.File(io.BytesIO(found)) as other:
        yield from differences(_told(one), _told(other))


def _told(file: h5py.File) -> dict[str, Any]:
    told = {"/": _attributes(file)}

    def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
        told[name] = _attributes(item)
        if isinstance(item, h5py.Dataset):
            filters = [
                str(item.compression),
                int(item.compression_opts or 0),
                bool(item.shuffle),
                bool(item.fletcher32),
            ]
            told[name] |= {
                "type": str(item.dtype),
                "shape": list(item.shape),
                "chunks": list(item.chunks or ()),
                "filters": filters,
                "values": item[()].tolist(),
            }

    file.visititems(take)
    return told


def _attributes(item: h5py.Dataset | h5py.Group) -> dict[str, Any]:
    return {
        f"attribute {name}": [str(value.dtype), value.tolist()]
        for name, value in item.attrs.items()
        if name not in IGNORED
    }


def decoded(path: Path) -> dict[str, list[int]]:
    """What the readers make of a file: of each column, how many values, how many of these are there, and a checksum."""
    kind = {"segment": _of_segment, "long": _of_long}[path.parent.name]
    return {name: _digest(values) for name, values in sorted(kind(path))}


def _digest(values: npt.NDArray[np.int64]) -> list[int]:
    there = int((values != -(2**63)).sum())
    return [int(values.size), there, crc32(np.ascontiguousarray(values, "<i8").tobytes())]


def _texts(values: npt.NDArray[np.int64], texts: Mapping[int, str]) -> npt.NDArray[np.int64]:
    """Texts by what they say, not by the numbers that a file has for them."""
    said = [crc32(texts[code].encode("utf-8", "surrogateescape")) if code in texts else code
            for code in values.ravel().tolist()]  # fmt: skip
    return np.array(said, np.int64).reshape(values.shape)


def _of_segment(path: Path) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    with Segment(str(path)) as opened:
        told = opened.recording
        is_text = {
            (table.name, metric.name): metric.is_text for table in told.tables.values() for metric in table.metrics
        }
        for number, block in enumerate(told.blocks):
            yield f"block/{number} ticks", block.ticks
            for row, key in enumerate(block.keys):
                values = block.read([row])[0]
                yield f"block/{number} {'/'.join(key)}", _texts(values, told.texts) if is_text[key[:2]] else values
        for number, tier in enumerate(told.tiers):
            for name, values in tier.axis._asdict().items():
                yield f"tier/{number} {name}", np.asarray(values)
            for row, key in enumerate(tier.keys):
                buckets = tier.buckets([row])
                for stat, values in buckets.stats.items():
                    known = _texts(values, told.texts) if is_text[key[:2]] and stat.name == "LAST" else values
                    yield f"tier/{number} {'/'.join(key)} {stat.name.lower()}", known
                for name, values in buckets.edges._asdict().items() if buckets.edges else ():
                    yield f"tier/{number} {'/'.join(key)} edge {name}", values


def _of_long(path: Path) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    with open_file(str(path)) as opened:
        texts = dict(enumerate(opened.texts))
        for name in ("ticks", "full", "lost", "walked", "counts"):
            yield name, np.asarray(getattr(opened, name), np.int64)
        for name in ("first_tick", "last_tick", "seen", "tick_index"):
            yield name, getattr(opened, name)()
        for metric in opened.table.metrics:
            kinds = ["column", "first", "last", *(["peak"] if metric.semantics == "gauge" else [])]
            for kind in kinds:
                values = getattr(opened, kind)(metric.name)
                yield f"{metric.name} {kind}", _texts(values, texts) if metric.is_text else values


def some(lines: Iterator[str], where: str) -> list[str]:
    """The first differences of one thing, a line each, and how many more there are."""
    found = [f"{where}: {line}" for line in lines]
    more = len(found) - DIFFERENCES_MAX
    return [*found[:DIFFERENCES_MAX], *([f"{where}: and {more} more"] if more > 0 else [])]


def names(folder: Path, suffixes: Sequence[str]) -> set[str]:
    """The files that are frozen below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in suffixes}
