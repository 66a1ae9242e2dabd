# SPDX-License-Identifier: Apache-2.0
"""An answer as an HDF5 file: ``sysmon-extract --output-file=F.h5`` writes one, and it is read like an archive.

``time``, one dataset a column, ``columns`` that say what they are, ``gaps`` and ``events``. Attributes, axes and
further names are for other programs: ``xarray.open_dataset`` has a variable a column, over times. Points in time are
int64 nanoseconds, UTC; other numbers float64, NaN where there is none; an absent text is empty. ``write``, ``read``,
``FORMAT``.
"""

from collections.abc import Iterator
from itertools import starmap

import numpy as np

from sysmond.base.model import ABSENT, Cause, Semantics, Sensitivity
from sysmond.base.result import TIME_SCALE, Array, Column, Event, Gap, Result
from sysmond.base.timespec import STEP_MAX_NS, TIME_MAX_NS, TIME_MIN_NS, YEARS
from sysmond.store.files import event_records, hdf5, invariants
from sysmond.store.files.hdf5 import Format, Node, OpenFile

# No answer that is read again has more rows or columns than a segment may have.
FORMAT = Format(
    "sysmond result",
    2,
    {
        "time": invariants.ROWS_MAX,
        "columns": invariants.SERIES_MAX,
        "gaps": invariants.BREAKS_MAX,
        "events": invariants.BREAKS_MAX,
    },
    opening_bytes_max=8 * invariants.CELLS_MAX,
)
# No value has more decimals, and no scale is larger: 64 bits have 19 digits.
_DECIMALS_MAX = 18
# Times as the conventions for climate and forecast metadata (CF) have them, which xarray reads.
_CF_TIME = {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
_TIMES, _INTEGERS, _FLOATS, _TEXTS = "times", "integers", "floats", "texts"
_TYPES = {_TIMES: np.dtype("<i8"), _INTEGERS: np.dtype("<f8"), _FLOATS: np.dtype("<f8"), _TEXTS: np.dtype("S")}


def write(result: Result, path: str) -> None:
    """Write an answer to a file.

    :raises Error: where one of its columns is too large for any reader.
    """
    with hdf5.new_file(path) as file:
        hdf5.describe(
            file,
            format=FORMAT.name,
            version=FORMAT.version,
            incompatible=0,
            step_ns=result.step_ns,
            sensitivity=str(result.sensitivity),
            table=result.table,
        )
        time = hdf5.put(file, "time", result.times_ns)
        time.attrs.update({"unit": "ns since 1970-01-01T00:00:00Z", **_CF_TIME})
        for number, column in enumerate(result.columns):
            dataset = hdf5.put(file, f"column/{number}", _content(column))
            for name in ("path", "unit", "semantics", "stat"):
                dataset.attrs[name] = str(getattr(column, name))
            more = {**_CF_TIME, "_FillValue": np.int64(ABSENT)} if column.is_time else {"units": column.unit}
            dataset.attrs.update({"long_name": column.label, **more})
        hdf5.put_records(
            file,
            "columns",
            ("path", "unit", "semantics", "stat", "kind"),
            [(each.path, each.unit, str(each.semantics), each.stat, _kind(each)) for each in result.columns],
            decimals=("<i8", [each.scale if each.floats is None else each.decimals for each in result.columns]),
        )
        hdf5.put_records(
            file,
            "gaps",
            ("table", "cause", "detail"),
            [(gap.table, str(gap.cause), gap.detail) for gap in result.gaps],
            start_ns=("<i8", [gap.start_ns for gap in result.gaps]),
            end_ns=("<i8", [gap.end_ns for gap in result.gaps]),
        )
        event_records.write(file, result.events, time_ns=("<i8", [event.time_ns for event in result.events]))
        for name in ("time", "columns", "gaps", "events"):
            hdf5.make_axis(file, name)
        for number, label in enumerate(result.labels()):
            hdf5.put_along(file, "time", file[f"column/{number}"], label)


def _kind(column: Column) -> str:
    if column.texts is not None:
        return _TEXTS
    return _FLOATS if column.integers is None else _TIMES if column.is_time else _INTEGERS


def _content(column: Column) -> Array:
    if column.texts is not None:
        encoded = [(text or "").encode("utf-8", "surrogateescape") for text in column.texts]
        return np.array(encoded, f"S{max(map(len, encoded), default=1) or 1}")
    return column.integers if column.is_time and column.integers is not None else column.values


def read(path: str) -> Result:
    """Read an answer from a file.

    :raises ForeignError: where it holds none. :raises CorruptError: where it is damaged. :raises NotPermittedError:
        where we may not read it. :raises FileNotFoundError: where it is gone.
    """
    with _Saved(path, FORMAT) as saved:
        return saved.result


class _Saved(OpenFile):
    """An answer in a file that is open."""

    result: Result

    def _read(self, root: Node) -> None:
        times_ns = root.array("time", np.dtype("<i8"))
        _check_times("time", times_ns)
        step_ns = root.attribute("step_ns", int)
        invariants.check_count("ns of a step", step_ns, STEP_MAX_NS)
        columns = tuple(_columns(root, len(times_ns)))
        gaps = tuple(
            Gap(start_ns, end_ns, table, Cause(cause), detail)
            for start_ns, end_ns, table, cause, detail in root.columns(
                "gaps", start_ns=int, end_ns=int, table=str, cause=str, detail=str
            )
        )
        events = tuple(starmap(Event, event_records.read(root, "time_ns")))
        self.result = Result(
            times_ns,
            columns,
            gaps,
            step_ns,
            events=events,
            sensitivity=Sensitivity(root.attribute("sensitivity", str)),
            table=root.attribute("table", str),
        )


def _columns(root: Node, rows: int) -> Iterator[Column]:
    fields = {"path": str, "unit": str, "semantics": str, "stat": str, "kind": str, "decimals": int}
    said = list(root.columns("columns", {}, None, **fields))
    invariants.check_count("values", len(said) * rows, invariants.CELLS_MAX)
    if not said:
        return
    contents = root.member("column")
    for number, (path, unit, semantics, stat, kind, decimals) in enumerate(said):
        if kind not in _TYPES:
            raise ValueError(f"a column of {kind[:64]!r}; expected one of {', '.join(_TYPES)}")
        invariants.check_count("decimals", decimals, _DECIMALS_MAX)
        content = contents.array(str(number), _TYPES[kind], bound="time")
        if len(content) != rows:
            raise ValueError(f"a column of {len(content)} values; expected {rows}, one a time")
        yield _column(Column(path, unit, Semantics(semantics), stat), kind, decimals, content)


def _column(about: Column, kind: str, decimals: int, content: Array) -> Column:
    if kind == _TEXTS:
        return about._replace(texts=tuple(text or None for text in hdf5.texts(content)))
    if kind == _TIMES:
        _check_times(about.path, content[content != ABSENT])
        return about._replace(integers=content, scale=TIME_SCALE)
    if kind == _FLOATS:
        return about._replace(floats=content, decimals=decimals)
    scaled = np.rint(content * 10.0**decimals)
    if (np.abs(scaled) > np.float64(2**62)).any():
        raise ValueError(f"{about.path} has values beyond any that is recorded")
    return about._replace(integers=np.where(np.isnan(scaled), ABSENT, scaled).astype(np.int64), scale=decimals)


def _check_times(what: str, times_ns: Array) -> None:
    if len(times_ns) and not (times_ns.min() >= TIME_MIN_NS and times_ns.max() < TIME_MAX_NS):
        raise ValueError(f"{what} has points in time outside the years {YEARS[0]} to {YEARS[-1]}")
