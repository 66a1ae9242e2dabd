# SPDX-License-Identifier: Apache-2.0
"""Wide tables as relations of SQL: a row an instance and reading, or a row an instance and bucket of a tier.

A counter is what it grew by since the reading before (absent where that is not known, and where it began anew), so that
its sum is right; ``NAME_total`` is the counter itself, ``NAME_rate`` what it grew by in a second, of seconds in
percent. In buckets a gauge is its mean; ``NAME_min`` and ``NAME_max`` are the least and the most, of counters as rates.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.answers.series import rates
from sysmond.answers.series.query import Query
from sysmond.answers.sql.of_long import PEAK, RATE, TOTAL, Array, SqlTable, as_array, valid
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, series_path
from sysmond.base.result import BoolArray, Column, Gap, Int64Array
from sysmond.base.timespec import FOREVER_NS, HOUR_NS
from sysmond.store.of_ring import SeriesKey
from sysmond.store.timeline import Timeline

INSTANCE = "instance"
# So much is read at a time; and so many intervals before the range, for what counters grew by at its first reading.
CHUNK_NS = 6 * HOUR_NS
INTERVALS_BEFORE = 2
# The least value.
LOWEST = "_min"


def of_rows(
    name: str, metrics: Sequence[Metric], named: Collection[str] | None, derived: Iterable[str] = ()
) -> SqlTable:
    """The rows of a table, as a relation with these columns (lower case; None for all)."""
    types = {}
    for metric in metrics:
        types[metric.name] = _type(metric)
        if metric.semantics is Semantics.COUNTER:
            types |= {metric.name + TOTAL: "DOUBLE", metric.name + RATE: "DOUBLE"}
    return _relation(name, types, named, derived)


def has_rates(metrics: Iterable[Metric], relation: SqlTable) -> bool:
    """Whether a relation has what a counter grew by since the reading before."""
    counters = [metric.name for metric in metrics if metric.semantics is Semantics.COUNTER]
    return any(name in relation.types or name + RATE in relation.types for name in counters)


def of_buckets(
    name: str, metrics: Sequence[Metric], named: Collection[str] | None, derived: Iterable[str] = ()
) -> SqlTable:
    """The buckets of a table, as a relation with these columns (lower case; None for all)."""
    types = {}
    for metric in metrics:
        types[metric.name] = _type(metric)
        more = {Semantics.COUNTER: (RATE, PEAK), Semantics.GAUGE: (LOWEST, PEAK)}.get(metric.semantics, ())
        types |= {metric.name + suffix: "DOUBLE" for suffix in more}
    return _relation(name, types, named, derived)


def _relation(name: str, types: Mapping[str, str], named: Collection[str] | None, derived: Iterable[str]) -> SqlTable:
    """``derived``: columns that are there where they are named."""
    types = {**(dict.fromkeys(derived, "DOUBLE") if named is not None else {}), **types}
    chosen = {column: kind for column, kind in types.items() if named is None or column in named}
    return SqlTable(name, {"time": "TIMESTAMP_NS", INSTANCE: "VARCHAR", **chosen})


def _type(metric: Metric) -> str:
    if metric.is_text:
        return "VARCHAR"
    return "BIGINT" if metric.semantics is Semantics.STATE and not metric.scale else "DOUBLE"


def rows(
    line: Timeline, table: str, relation: SqlTable, span: tuple[int, int], boot: str | None, gaps: list[Gap]
) -> Iterator[Mapping[str, Array]]:
    """The rows of a table over [start, end), some at a time: by column an array [row] of its type.

    ``gaps``: gaps that reading tells of are added to it: where nothing was there to be read, and counters began anew.
    """
    metrics = _metrics(line, table, relation)
    for each in [boot] if boot else line.boots():
        keys = _keys(line, table, metrics, each)
        # What each counter was last, and when: a piece goes on where the one before it ended.
        last: dict[SeriesKey, tuple[int, int]] = {}
        before_ns = INTERVALS_BEFORE * _interval_ns(line, table, each)
        for start_ns, end_ns in _chunks(line, table, span, each):
            query = Query(line, keys, start_ns - before_ns, end_ns, each)
            before_ns = 0
            result = query.raw()
            gaps += query.gaps
            columns = dict(zip(keys, result.columns, strict=True))
            axis = _Axis(result.times_ns, query.ticks, result.times_ns >= start_ns, line.course(each).utc_ns)
            for instance in sorted({key.instance for key in keys}):
                mine = {key: column for key, column in columns.items() if key.instance == instance}
                gaps += _resets(mine, metrics, axis, last)
                yield _of_instance(relation, metrics, instance, mine, axis, last)


def buckets(
    line: Timeline,
    table: str,
    relation: SqlTable,
    span: tuple[int, int],
    boot: str | None,
    gaps: list[Gap],
    step_ns: int,
) -> Iterator[Mapping[str, Array]]:
    """The buckets of a table over [start, end), an instance at a time: by column an array [row] of its type.

    ``gaps``: as of ``rows``.
    """
    metrics = _metrics(line, table, relation)
    keys = _keys(line, table, metrics, boot)
    stats = {key: _statistics(metrics[key.metric], relation) for key in keys}
    query = Query(line, keys, *span, boot)
    result = query.buckets(step_ns, {key: list(each.values()) for key, each in stats.items()})
    gaps += query.gaps
    named = {(key, name): stat for key in keys for name, stat in stats[key].items()}
    columns = dict(zip(named, result.columns, strict=True))
    for instance in sorted({key.instance for key in keys}):
        mine = {name: columns[key, name] for key, name in columns if key.instance == instance}
        there: BoolArray = np.zeros(len(result.times_ns), bool)
        for column in mine.values():
            there |= _is_there(column)
        at = np.flatnonzero(there)
        made = {"time": result.times[at], INSTANCE: _names(instance, len(at))}
        for name, kind in relation.types.items():
            if name not in made:
                made[name] = as_array(mine[name].at(at)) if name in mine else _nothing(kind, len(at))
        yield made


def _metrics(line: Timeline, table: str, relation: SqlTable) -> dict[str, Metric]:
    """The metrics that a relation needs; the first of the table where it needs none."""
    every = line.metrics(table)
    suffixes = ("", TOTAL, RATE, PEAK, LOWEST)
    needed = {name: metric for name, metric in every.items() if any(name + end in relation.types for end in suffixes)}
    made_of = {name + end for name in every for end in suffixes} | {"time", INSTANCE}
    if lacking := [name for name in relation.types if name not in made_of]:
        from sysmond.base import derived_columns, formula  # noqa: PLC0415  few ask for them

        columns = [line.derived(table)[name] for name in lacking]
        # There is a row of it wherever there is one of its metrics.
        own = {name for column in columns for name in derived_columns.own(formula.parse(column.formula))}
        needed |= {name: every[name] for name in own}
        needed |= {column.name: derived_columns.as_metric(column) for column in columns}
    return needed or dict(list(every.items())[:1])


def _keys(line: Timeline, table: str, metrics: Collection[str], boot: str | None) -> list[SeriesKey]:
    """The series of these columns, recorded in a boot or derived of those."""
    recorded = [key for key in line.keys(boot) if key.table == table]
    keys = [key for key in recorded if key.metric in metrics]
    if any(name not in line.metrics(table) for name in metrics):
        from sysmond.answers.series import derived  # noqa: PLC0415  as above

        keys += [key for key in derived.named(line, recorded) if key.metric in metrics]
    return sorted(keys)


def _statistics(metric: Metric, relation: SqlTable) -> Mapping[str, str]:
    """Which statistics of a metric a relation has, by column."""
    is_counter = metric.semantics is Semantics.COUNTER
    stats = {metric.name: "sum" if is_counter else "mean"}
    stats |= {metric.name + RATE: "mean"} if is_counter else {metric.name + LOWEST: "min"}
    stats[metric.name + PEAK] = "max"
    chosen = {name: stat for name, stat in stats.items() if name in relation.types}
    return chosen or {"": "count"}


def _interval_ns(line: Timeline, table: str, boot: str) -> int:
    """The longest interval at which a table was read in a boot."""
    tracks = [track for track in line.tracks if track.lineage.boot == boot and table in track.tables]
    return max((track.lineage.interval_ns for track in tracks), default=0)


def _chunks(line: Timeline, table: str, span: tuple[int, int], boot: str) -> Iterator[tuple[int, int]]:
    """The range in pieces, as far as a boot has anything of a table."""
    first_ns, last_ns = FOREVER_NS, -FOREVER_NS
    for track in line.tracks:
        if track.lineage.boot == boot:
            for keys, first, last, _ in track.extents():
                if any(key.table == table for key in keys):
                    first_ns = min(first_ns, line.moment_ns(boot, first))
                    last_ns = max(last_ns, line.moment_ns(boot, last))
    start_ns, end_ns = max(span[0], first_ns), min(span[1], last_ns + 1)
    while start_ns < end_ns:
        yield start_ns, min(start_ns + CHUNK_NS, end_ns)
        start_ns += CHUNK_NS


def _of_instance(
    relation: SqlTable,
    metrics: Mapping[str, Metric],
    instance: str,
    columns: Mapping[SeriesKey, Column],
    axis: "_Axis",
    last: dict[SeriesKey, tuple[int, int]],
) -> Mapping[str, Array]:
    """The rows of one instance: those in which any of its metrics is there. ``last``: as of ``_grown``, by series."""
    times_ns, ticks, inside, _ = axis
    there: BoolArray = np.zeros(len(times_ns), bool)
    for column in columns.values():
        there |= _is_there(column)
    at = np.flatnonzero(there & inside)
    made: dict[str, Array] = {"time": times_ns[at].view("M8[ns]"), INSTANCE: _names(instance, len(at))}
    for key, column in columns.items():
        name, metric = key.metric, metrics[key.metric]
        if metric.semantics is not Semantics.COUNTER:
            made[name] = as_array(column.at(at))
            continue
        stored = column.integers
        assert stored is not None  # noqa: S101  counters are integers
        grown, took_s = _grown(stored, ticks, last.get(key))
        if len(known := np.flatnonzero(stored != ABSENT)):
            last[key] = int(stored[known[-1]]), int(ticks[known[-1]])
        scale = 10.0**metric.scale
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.maximum(grown, 0.0) / scale / took_s * (100.0 if metric.unit == "s" else 1.0)
        made[name], made[name + RATE] = grown[at] / scale, rate[at]
        made[name + TOTAL] = as_array(column.at(at))
    kinds = relation.types.items()
    return {name: made[name] if name in made else _nothing(kind, len(at)) for name, kind in kinds}


class _Axis(NamedTuple):
    """Readings: UTC and boot time of each, int64[tick], and which of them are asked for, bool[tick].

    ``utc_ns``: gives UTC of boot times.
    """

    times_ns: Int64Array
    ticks: Int64Array
    inside: BoolArray
    utc_ns: Callable[[Int64Array], Int64Array]


def _resets(
    columns: Mapping[SeriesKey, Column],
    metrics: Mapping[str, Metric],
    axis: _Axis,
    last: Mapping[SeriesKey, tuple[int, int]],
) -> Iterator[Gap]:
    """Where the counters of an instance began anew. ``last``: as of ``_since``, by series."""
    for key, column in columns.items():
        if metrics[key.metric].semantics is Semantics.COUNTER and column.integers is not None:
            values, ticks = _since(column.integers, axis.ticks, last.get(key))
            for pair in rates.resets(values):
                before_ns, after_ns = axis.utc_ns(ticks[pair]).tolist()
                # A clock that was set back meanwhile turns no gap round.
                start_ns = min(before_ns, after_ns)
                yield Gap(start_ns, after_ns, key.table, Cause.COUNTER_RESET, series_path(*key))


def _since(values: Int64Array, ticks: Int64Array, last: tuple[int, int] | None) -> tuple[Int64Array, Int64Array]:
    """The readings of a counter, and before them the ``last`` one, if any: what it was, and at which tick."""
    return (values, ticks) if last is None else (np.r_[last[0], values], np.r_[last[1], ticks])


def _grown(values: Int64Array, ticks: Int64Array, last: tuple[int, int] | None) -> tuple[Array, Array]:
    """What a counter grew by since the reading before, and in how many seconds: float64[tick], NaN where unknown.

    ``last``: what it was before the first of them, and at which tick. Where it began anew, nothing is known.
    """
    readings = len(values)
    values, ticks = _since(values, ticks, last)
    grown, took_s = np.full(len(values), np.nan), np.full(len(values), np.nan)
    there = np.flatnonzero(values != ABSENT)
    grown[there[1:]] = np.diff(values[there])
    grown[rates.resets(values)[:, 1]] = np.nan
    took_s[there[1:]] = np.diff(ticks[there]) / SECOND_NS
    own = len(values) - readings
    return grown[own:], took_s[own:]


def _is_there(column: Column) -> BoolArray:
    if column.texts is not None:
        return np.array([text is not None for text in column.texts], bool)
    if column.integers is not None:
        return column.integers > 0 if column.stat == "count" else column.integers != ABSENT
    return ~np.isnan(column.values)


def _names(instance: str, length: int) -> Array:
    names: Array = np.empty(length, object)
    names[:] = valid(instance) or None
    return names


def _nothing(kind: str, length: int) -> Array:
    return np.empty(length, object) if kind == "VARCHAR" else np.full(length, np.nan)
