# SPDX-License-Identifier: Apache-2.0
"""What history answers with: columns over one time axis, gaps with causes, and the catalogue."""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from sysmond.base.model import ABSENT, Cause, Semantics, Sensitivity
from sysmond.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import xarray as xr

# What is a point in time: integers are UTC nanoseconds.
TIME_UNIT, TIME_SCALE = "time", 9
# Who asks a result for what it lacks is told the nearest of what it has.
_NAMED_MAX = 5

_Kind = TypeVar("_Kind", bound=np.generic)

Array = np.ndarray[Any, Any]
# As ``numpy.typing`` has it, which takes a millisecond to import.
NDArray = np.ndarray[tuple[Any, ...], np.dtype[_Kind]]
BoolArray = NDArray[np.bool_]
Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]


class Gap(NamedTuple):
    """A reasoned absence: half-open, in UTC nanoseconds.

    Its ends are where rows end and begin again, also where that is outside the range asked for.
    """

    start_ns: int
    end_ns: int
    table: str
    cause: Cause
    detail: str = ""


class Event(NamedTuple):
    """Something that happened, in UTC nanoseconds: a kind (``mark``, ``clock step``), what about, and a text.

    ``detail``: more of it than a line. ``happened_ns``: ABSENT where it was recorded as it happened; else when that
    was, in UTC as some log says, which ``known_from`` names.
    """

    time_ns: int
    kind: str
    subject: str
    text: str
    detail: str = ""
    happened_ns: int = ABSENT
    known_from: str = ""


class Column(NamedTuple):
    """One series, one statistic, over the time axis of its ``Result``.

    Either ``integers`` is there (int64[time]: the value is the integer divided by 10**scale, ABSENT
    where there is none) or ``floats`` is (float64[time], NaN where there is none; ``decimals`` says
    how many decimal places they carry), or ``texts`` is (one ``str`` or None a time).
    Of the unit ``time`` are points in time (of ``tmax``): their integers are UTC nanoseconds, of scale 9.
    """

    path: str
    unit: str
    semantics: Semantics
    stat: str
    integers: Int64Array | None = None
    scale: int = 0
    floats: Float64Array | None = None
    decimals: int = 0
    texts: tuple[str | None, ...] | None = None

    def __repr__(self) -> str:
        return f"<Column {self.path} {self.stat} [{self.unit}], {self._length} values>"

    @property
    def label(self) -> str:
        """Path and statistic."""
        return f"{self.path}:{self.stat}"

    @property
    def _length(self) -> int:
        return max(len(values) for values in (self.integers, self.floats, self.texts, ()) if values is not None)

    @property
    def values(self) -> Float64Array:
        """The numbers as float64[time], NaN where absent.

        :raises Error: for a series of texts.
        """
        if self.floats is not None:
            return self.floats
        if self.integers is None:
            raise Error(f"{self.path}: holds texts, not numbers; .texts has them")
        numbers = self.integers / 10.0**self.scale
        numbers[self.integers == ABSENT] = np.nan
        return numbers

    @property
    def tells_apart(self) -> bool:
        """Whether the values are whole numbers that tell things apart, as ``pid``: no amounts, no times."""
        is_whole = self.integers is not None and not self.scale and not self.is_time
        return is_whole and self.semantics is Semantics.STATE

    def at(self, rows: NDArray[np.intp]) -> "Column":
        """The same with only these of its values, in this order; ``rows``: intp[value], where they are."""
        return self._replace(
            integers=None if self.integers is None else self.integers[rows],
            floats=None if self.floats is None else self.floats[rows],
            texts=None if self.texts is None else tuple(self.texts[row] for row in rows.tolist()),
        )

    @property
    def is_time(self) -> bool:
        """Whether the values are points in time."""
        return self.unit == TIME_UNIT

    @property
    def times(self) -> NDArray[np.datetime64]:
        """Points in time as datetime64[ns], UTC; NaT where there is none.

        :raises Error: for anything else.
        """
        if not self.is_time or self.integers is None:
            raise Error(f"{self.path}: {self.stat} holds no times; .values has numbers")
        return self.integers.view("datetime64[ns]")


class Answered(NamedTuple):
    """What answered over a range of UTC nanoseconds: a tier, or ``rows``; and how far apart its values are.

    ``step_ns``: 0 of what comes at moments of its own.
    ``significant_bits``: to how many some of its rows were shortened; 0 where none were.
    """

    tier: str
    step_ns: int
    start_ns: int
    end_ns: int
    significant_bits: int = 0


class Lacking(NamedTuple):
    """Gaps of one cause: how many, and how long together."""

    cause: Cause
    number: int
    total_ns: int


class Explanation(NamedTuple):
    """How a column came about.

    ``origin``: which field of which kernel file was read. ``formula``: what was made of it. ``answered``: from which
    tiers, in order of time. ``step_ns``: length of a bucket, 0 when raw. ``gaps``: those of its table, by cause.
    """

    path: str
    stat: str
    unit: str
    origin: str
    formula: str
    answered: tuple[Answered, ...]
    step_ns: int
    resampling: str
    gaps: tuple[Lacking, ...]


class _Parts(NamedTuple):
    """What a result is made of; ``Result`` says what each means."""

    times_ns: Int64Array
    columns: tuple[Column, ...]
    gaps: tuple[Gap, ...]
    step_ns: int
    warnings: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    sensitivity: Sensitivity = Sensitivity.PUBLIC
    table: str = ""
    notes: tuple[str, ...] = ()


class Result(_Parts):
    """Columns over one time axis; as a DataFrame has them, by name: ``result[name]``, ``for name in result``.

    ``times_ns``: int64[time], UTC nanoseconds: the starts of buckets, in order; or ticks when raw, in the
    order of boots and boot time, so that a wall clock that was set back is seen. A run of more than 3600
    empty buckets is cut to its first one. ``gaps``: why there is nothing where there is nothing.
    ``step_ns``: length of a bucket, 0 when raw. ``warnings``: what could not be read, a line each.
    ``events``: what happened within the range, in order of boots and boot time. ``explanations``: one a column, where
    asked for.
    ``sensitivity``: restricted where anything in it is. ``table``: the long table that these are rows of; empty where
    they are series. ``notes``: what is worth a word though nothing is missing, a line each.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        rows = len(self.times_ns)
        span = f" from {self.times[0]} to {self.times[-1]}" if rows else ""
        return f"<Result {rows} times{span}, {len(self.columns)} columns, {len(self.gaps)} gaps>"

    @property
    def times(self) -> NDArray[np.datetime64]:
        """The time axis as datetime64[ns], UTC."""
        return self.times_ns.view("datetime64[ns]")

    def column(self, path: str, stat: str | None = None) -> Column:
        """The column of that path, and of that statistic where several were asked for.

        :raises KeyError: where the result has no such series; it names some that it has.
        """
        for column in self.columns:
            if column.path == path and stat in {None, column.stat}:
                return column
        import difflib  # noqa: PLC0415  nothing is missing as a rule

        asked = path if stat is None else f"{path}:{stat}"
        known = list(dict.fromkeys(column.path if stat is None else column.label for column in self.columns))
        near = difflib.get_close_matches(asked, known, _NAMED_MAX, cutoff=0)
        raise KeyError(f"{asked}: not in this result; it has {', '.join(near) or 'no columns'}")

    def __iter__(self) -> "Iterator[str]":
        """The names of the columns, as ``labels`` has them; ``result[name]`` is each."""
        return iter(self.labels())

    def __len__(self) -> int:
        """How many columns there are; ``len(result.times)`` is how many rows."""
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        """Whether ``result[name]`` is a column."""
        return any(name in {column.path, column.label} for column in self.columns)

    if not TYPE_CHECKING:  # What a named tuple does by being one goes through its length.

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, tuple.__iter__(self), strict=True))

        def _replace(self, **changes: Any) -> "Result":  # noqa: ANN401
            return Result(**{**self._asdict(), **changes})

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(tuple.__iter__(self))

        __replace__ = _replace

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401  a tuple's own, too
        """The column of a path (``result["cpu/user@total"]``), or of a path and statistic (``"cpu/user@total:max"``).

        Type checkers see a tuple here; ``column`` is typed.

        :raises KeyError: where the result has no such series.
        """
        if not isinstance(key, str):
            return tuple.__getitem__(self, key)
        path, _, stat = key.rpartition(":")
        is_stat = any(column.path == path and column.stat == stat for column in self.columns)
        return self.column(path, stat) if is_stat else self.column(key)

    @property
    def records(self) -> NDArray[np.void]:
        """The rows as a structured array, a field a column, ``time`` first.

        Points in time are datetime64[ns] (NaT where there is none), texts are ``str`` objects (None where there is
        none), numbers that tell apart (``pid``, ``signal`` …) are int64 (-2**63 where there is none), quantities are
        float64 in the unit of their column (NaN where there is none).
        """
        fields: list[tuple[str, NDArray[Any]]] = [("time", self.times)]
        for column in self.columns:
            if column.texts is not None:
                values: NDArray[Any] = np.empty(len(column.texts), object)
                values[:] = column.texts
            elif column.is_time:
                values = column.times
            elif column.integers is not None and column.tells_apart:
                values = column.integers
            else:
                values = column.values
            fields.append((column.path, values))
        made = np.empty(len(self.times_ns), [(name, values.dtype) for name, values in fields])
        for name, values in fields:
            made[name] = values
        return made

    def to_pandas(self) -> "pd.DataFrame":
        """The result as a DataFrame with a UTC time index; one column a series (``path:stat`` for several statistics).

        Quantities are float64, NaN where absent; numbers that tell apart (``pid``, ``signal`` …) are Int64, NA where
        absent; texts are str, None where absent. ``.attrs`` has the units by column, and the gaps.
        :raises Error: where pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415  pandas is optional, and 300 ms to import
        except ImportError as missing:
            raise not_installed("pandas") from missing
        labels = self.labels()

        def series(column: Column) -> "pd.Series[Any]":
            if column.texts is not None:
                return pd.Series(list(column.texts), dtype=object)
            if column.integers is not None and column.tells_apart:
                return pd.Series(pd.arrays.IntegerArray(column.integers.copy(), column.integers == ABSENT))
            return pd.Series(column.times if column.is_time else column.values)

        frame = pd.DataFrame({label: series(column) for label, column in zip(labels, self.columns, strict=True)})
        frame.index = pd.DatetimeIndex(self.times, tz="UTC", name="time")
        frame.attrs["units"] = {label: column.unit for label, column in zip(labels, self.columns, strict=True)}
        frame.attrs["gaps"] = [(gap.start_ns, gap.end_ns, gap.table, str(gap.cause), gap.detail) for gap in self.gaps]
        return frame

    def to_arrow(self) -> "pa.Table":
        """The result as an Arrow table: the column ``time``, then one a series, named as in ``to_pandas``.

        Times are timestamps of nanoseconds in UTC, quantities float64, numbers that tell apart int64, texts strings;
        what is absent is null. The unit of a column is in the metadata of its field; gaps and events, as JSON, in that
        of the table.
        :raises Error: where pyarrow is not installed.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415  pyarrow is optional, and 100 ms to import
        except ImportError as missing:
            raise not_installed("pyarrow") from missing
        import json  # noqa: PLC0415  as above

        moment = pa.timestamp("ns", "UTC")

        def array(column: Column) -> Any:  # noqa: ANN401  an array of a library without types
            if column.texts is not None:
                return pa.array([None if text is None else unicode(text) for text in column.texts], pa.string())
            if column.integers is not None and column.tells_apart:
                return pa.array(column.integers, mask=column.integers == ABSENT)
            if column.is_time:
                return pa.array(column.times).cast(moment)
            return pa.array(column.values, from_pandas=True)

        arrays = [pa.array(self.times).cast(moment), *map(array, self.columns)]
        units = ["time", *(column.unit for column in self.columns)]
        fields = [
            pa.field(unicode(name), values.type, metadata={"unit": unit})
            for name, values, unit in zip(["time", *self.labels()], arrays, units, strict=True)
        ]
        remarks = {
            "gaps": [[gap.start_ns, gap.end_ns, gap.table, str(gap.cause), gap.detail] for gap in self.gaps],
            "events": [[event.time_ns, event.kind, event.subject, event.text] for event in self.events],
        }
        schema = pa.schema(fields, {name: json.dumps(rows) for name, rows in remarks.items()})
        return pa.Table.from_arrays(arrays, schema=schema)

    def to_polars(self) -> "pl.DataFrame":
        """The result as a polars DataFrame: the columns of ``to_arrow``, null where absent.

        :raises Error: where polars or pyarrow is not installed.
        """
        return polars_of(self.to_arrow)

    def to_xarray(self) -> "xr.Dataset":
        """The result as a Dataset over ``time`` (datetime64[ns], UTC): a variable a column, named as in ``to_pandas``.

        Numbers are float64, texts ``str``, points in time datetime64[ns]; what is absent ``isnull()``. The attributes
        of each have unit, semantics, path and statistic; those of the whole the gaps.
        :raises Error: where xarray is not installed.
        """
        try:
            import xarray as xr  # noqa: PLC0415  xarray is optional, and 500 ms to import
        except ImportError as missing:
            raise not_installed("xarray") from missing

        def values(column: Column) -> NDArray[Any]:
            if column.texts is not None:
                return np.array([*(text and unicode(text) for text in column.texts), None], object)[:-1]
            return column.times if column.is_time else column.values

        def about(column: Column) -> dict[str, str]:
            return {name: str(getattr(column, name)) for name in ("unit", "semantics", "path", "stat")}

        named = zip(self.labels(), self.columns, strict=True)
        variables = {label: ("time", values(column), about(column)) for label, column in named}
        gaps = [(gap.start_ns, gap.end_ns, gap.table, str(gap.cause), gap.detail) for gap in self.gaps]
        return xr.Dataset(variables, {"time": self.times}, {"gaps": gaps})

    def labels(self) -> list[str]:
        """The columns by path, and by ``path:stat`` where several statistics of a path stand side by side."""
        several = len({column.path for column in self.columns}) < len(self.columns)
        return [column.label if several else column.path for column in self.columns]


def not_installed(library: str) -> Error:
    """Say that a library is missing which only some answers need, and how to get it, wherever sysmond came from."""
    return Error(f"{library} is not installed; 'pip install {library.lower()}' in sysmond's environment adds it")


def polars_of(to_arrow: "Callable[[], pa.Table]") -> "pl.DataFrame":
    """Make an Arrow table a polars DataFrame.

    :raises Error: where polars is not installed.
    """
    try:
        import polars as pl  # noqa: PLC0415  polars is optional, and 100 ms to import
    except ImportError as missing:
        raise not_installed("polars") from missing
    frame = pl.from_arrow(to_arrow())
    assert isinstance(frame, pl.DataFrame)  # noqa: S101  of a table it makes nothing else
    return frame


def unicode(text: str) -> str:
    """Have bytes that were no UTF-8 be escapes: Arrow has only Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


class Boot(NamedTuple):
    """A boot with anything recorded: its id, and its first and last tick in UTC nanoseconds."""

    boot: str
    start_ns: int
    end_ns: int


class Entry(NamedTuple):
    """A recorded series: what it is, from when to when (UTC nanoseconds), how often.

    ``formula``: of a series that is not recorded, but follows from others. ``per``: what its table has a row for, such
    as ``cpu``, or ``cache`` and ``cpu`` as ``cache:cpu``; empty where that is the whole system, or unknown.
    """

    path: str
    unit: str
    semantics: Semantics
    doc: str
    start_ns: int
    end_ns: int
    interval_ns: int
    sensitivity: Sensitivity = Sensitivity.PUBLIC
    formula: str = ""
    per: str = ""


class LongEntry(NamedTuple):
    """A recorded long table: what its rows are about, from when to when (UTC nanoseconds), how often it is read."""

    path: str
    per: str
    doc: str
    start_ns: int
    end_ns: int
    interval_ns: int
    sensitivity: Sensitivity
