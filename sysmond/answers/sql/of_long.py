# SPDX-License-Identifier: Apache-2.0
"""Long tables as relations of SQL: a row a recorded row, or a row a key and bucket of a tier.

A counter is what it grew by since the row before of its key (absent where that is not known), so that its sum is right;
``NAME_total`` is the counter itself, ``NAME_rate`` what it grew by in a second, of seconds in percent. What is joined
is there where it is named.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sysmond.answers.records import Answering
from sysmond.answers.rows.batch import NumberColumn, numbers
from sysmond.answers.rows.columns import COUNT, MAX, MEAN, SUM, FormulaColumn, Of, Offer, Spec
from sysmond.answers.rows.from_records import BUCKETS_MAX, JoinedRows, MomentBatch, UtcBuckets, axis, instance_of
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, END, START, Cause, Semantics, series_path
from sysmond.base.result import TIME_UNIT, Column, Float64Array, Gap, Int64Array, NDArray, Result
from sysmond.rollup.condition import Words
from sysmond.store.census import Line
from sysmond.store.stretches.ends import GRAIN_NS, ends_of
from sysmond.store.stretches.increments import increments
from sysmond.store.stretches.stretch import Stretch, StretchPart, key_of, lasts

TOTAL, RATE = "_total", "_rate"
PEAK = "_max"

Array = NDArray[Any]
# By key what a counter was last, and when.
Carried = dict[tuple[int, ...], tuple[int, int]]


class _Wanted(NamedTuple):
    """A column of a relation: its name, what it is of, and whether it is what a counter grew by, or how fast."""

    name: str
    spec: Spec
    is_grown: bool = False
    is_rate: bool = False


class SqlTable(NamedTuple):
    """A table of SQL: its name, and its columns by name with their types."""

    name: str
    types: Mapping[str, str]


def of_rows(name: str, offer: Offer, named: Collection[str] | None) -> SqlTable:
    """The rows of a table, as a relation with these columns: in lower case; None for all but what is joined."""
    wanted = [each for each in _of_rows(offer) if _is_named(each, named)]
    return SqlTable(name, {"time": "TIMESTAMP_NS", **{each.name: type_of(each.spec) for each in wanted}})


def rows(source: Answering, offer: Offer, relation: SqlTable) -> Iterator[Mapping[str, Array]]:
    """The rows of a table over a range, some at a time: by column an array [row] of its type."""
    wanted = [each for each in _of_rows(offer) if each.name in relation.types]
    buckets, lines = source.buckets(), source.joined(each.spec for each in wanted)
    derived, seconds = _derived(source, offer, wanted, buckets)
    for line, joined in lines:
        carried: dict[str, Carried] = {}
        of_formulas: dict[str, dict[str, Carried]] = {}
        for part, earlier in zip(line.parts, [None, *(part.stretch for part in line.parts)], strict=False):
            batch = _Batch(part, line, joined, buckets, earlier)
            made: dict[str, Array] = {"time": batch.times_ns.view("M8[ns]")}
            for name, spec, is_grown, is_rate in wanted:
                if spec.of is Of.DERIVED:
                    at = np.searchsorted(seconds.edges_ns, batch.times_ns, "right") - 1
                    made[name] = batch.derived(derived[name], of_formulas.setdefault(name, {}), at)
                elif is_grown or is_rate:
                    grown, took_s = batch.grown(spec, carried.setdefault(name, {}))
                    made[name] = _rate(grown, took_s, spec) if is_rate else grown.floats()
                else:
                    made[name] = values(batch.cells(spec), spec)
            source.resets |= {*batch.resets()}
            yield made


def _derived(
    source: Answering, offer: Offer, wanted: Sequence[_Wanted], buckets: UtcBuckets
) -> tuple[Mapping[str, FormulaColumn], UtcBuckets]:
    """The derived columns of these, and the seconds at which they have what other tables had."""
    columns = {each.name: offer.derived[each.name] for each in wanted if each.spec.of is Of.DERIVED}
    if not any(name.table for column in columns.values() for name in column.formula.operands):
        return columns, buckets
    start_ns, end_ns = int(buckets.edges_ns[0]), int(buckets.edges_ns[-1])
    step_ns = SECOND_NS * max(1, (end_ns - start_ns) // SECOND_NS // (BUCKETS_MAX // 2))
    seconds = axis(start_ns, end_ns, step_ns)
    return source.with_others(columns, seconds, step_ns), seconds


def type_of(spec: Spec) -> str:
    """What a column is in SQL."""
    if spec.is_text:
        return "VARCHAR"
    if spec.unit == TIME_UNIT:
        return "TIMESTAMP_NS"
    return "BIGINT" if spec.semantics is Semantics.STATE and not spec.scale else "DOUBLE"


def _of_rows(offer: Offer) -> Iterator[_Wanted]:
    for label, spec in offer.specs.items():
        if spec.of is Of.COUNT or ":" in label:
            continue
        is_counter = spec.semantics is Semantics.COUNTER
        yield _Wanted(label, spec, is_grown=is_counter)
        if is_counter:
            yield _Wanted(label + TOTAL, spec)
            if lasts(offer.table):
                yield _Wanted(label + RATE, spec, is_rate=True)


def buckets(offer: Offer, ask: Callable[[Sequence[str]], Result], named: Collection[str] | None) -> Mapping[str, Array]:
    """The rows of a table in buckets, [row]: a key and bucket each, and others together; ``ask`` gives columns."""
    wanted = [each for each in _of_buckets(offer) if _is_named(each, named)]
    answer = ask([each.spec.label for each in wanted] or [COUNT])
    made: dict[str, Array] = {"time": answer.times}
    if not wanted:
        return made
    for each, column in zip(wanted, answer.columns, strict=True):
        made[each.name] = as_array(column)
    return made


def columns_of_buckets(offer: Offer) -> list[str]:
    """The columns of a table in buckets, but for what is joined."""
    return ["time", *(each.name for each in _of_buckets(offer) if _is_named(each, None))]


def _of_buckets(offer: Offer) -> Iterator[_Wanted]:
    for label, spec in offer.specs.items():
        name, _, stat = label.partition(":")
        if spec.semantics is Semantics.COUNTER and stat in {SUM, MEAN}:
            yield _Wanted(name if stat == SUM else name + RATE, spec)
        elif spec.semantics is Semantics.GAUGE and stat == MAX:
            yield _Wanted(name + PEAK, spec)
        elif spec.semantics is not Semantics.COUNTER and not stat:
            yield _Wanted(name, spec)


def _is_named(wanted: _Wanted, named: Collection[str] | None) -> bool:
    if named is None:
        return wanted.spec.of not in {Of.JOIN, Of.DERIVED, Of.LIFE}
    return wanted.name.lower() in named


def as_array(column: Column) -> Array:
    """A column as DuckDB reads it, [row]: what is absent is NULL there."""
    if column.texts is not None:
        texts: Array = np.empty(len(column.texts), object)
        texts[:] = [None if text is None else valid(text) for text in column.texts]
        return texts
    if column.is_time:
        return column.times
    if column.integers is not None and column.semantics is Semantics.STATE and not column.scale:
        masked: Array = np.ma.masked_equal(column.integers, ABSENT)
        return masked
    return column.values


def _rate(grown: NumberColumn, took_s: Array, spec: Spec) -> Array:
    factor = 100.0 if spec.unit == "%" else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rate: Array = np.where(took_s > 0, grown.floats() * factor / took_s, np.nan)
    return rate


class _Batch(MomentBatch):
    """The rows of a part as they were recorded, of any table."""

    def __init__(
        self, part: StretchPart, line: Line, joined: JoinedRows, buckets: UtcBuckets, earlier: Stretch | None = None
    ) -> None:
        super().__init__(part, line, joined, buckets, before=earlier)
        self._end_ns = part.end_ns
        # Who started since then, was not there before.
        first_ns = int(part.stretch.ticks[0]) - part.stretch.interval_ns
        # The reading before the first.
        self._before_ns = first_ns if earlier is None else int(earlier.ticks[-1])
        self._since_ns = self._before_ns - GRAIN_NS
        self._resets: set[Gap] = set()

    def resets(self) -> Collection[Gap]:
        """Where counters that were asked for began anew, so far."""
        return self._resets

    def grown(self, spec: Spec, before: Carried) -> tuple[NumberColumn, Array]:
        """By how much a counter grew since the row before of its key, and how long that took: float64[row] seconds.

        ``before``: what the keys had in the part before, and when.
        """
        stretch = self._stretch
        ticks = stretch.ticks[stretch.tick_index()]
        # What the next part has as well is its.
        values = np.where(ticks < self._end_ns, stretch.column(spec.name), ABSENT)
        keys = list(zip(*(stretch.keys[name].tolist() for name in key_of(stretch.table)), strict=True))
        starts = stretch.keys[START] if START in stretch.keys else np.full(len(keys), -1)
        fresh = zip(np.where(starts >= self._since_ns, 0, ABSENT).tolist(), starts.tolist(), strict=True)
        known = [before.get(key, new) for key, new in zip(keys, fresh, strict=True)]
        base, base_ticks = np.array(known, np.int64).reshape(-1, 2).T
        made = increments(values, stretch.begins, base)
        source = made.last(values, stretch.begins)
        stands = np.where(source < 0, base, values[source]), np.where(source < 0, base_ticks, ticks[source])
        before.update(zip(keys, zip(*(column.tolist() for column in stands), strict=True), strict=True))
        since = np.where(made.source < 0, np.repeat(base_ticks, stretch.counts), ticks[made.source])
        self._note_resets(spec.name, self._rows[made.began_anew[self._rows]], keys)
        grown, took_s = made.grown, np.where(made.grown == ABSENT, 0, ticks - since) / SECOND_NS
        return NumberColumn(grown[self._rows], spec.scale), took_s[self._rows]

    def _note_resets(self, name: str, rows: Int64Array, keys: Sequence[tuple[int, ...]]) -> None:
        """Keep that a counter began anew at these rows, int64[row], after the reading before each."""
        stretch, course = self._stretch, self._line.course
        readings = np.r_[self._before_ns, stretch.ticks]
        at = stretch.tick_index()[rows]
        which = (np.searchsorted(stretch.begins, rows, "right") - 1).tolist()
        before, after = course.utc_ns(readings[at]).tolist(), course.utc_ns(readings[at + 1]).tolist()
        for key, before_ns, after_ns in zip(which, before, after, strict=True):
            path = series_path(stretch.table.name, name, instance_of(stretch.table, keys[key]))
            # A clock that was set back meanwhile turns no gap round.
            self._resets.add(Gap(min(before_ns, after_ns), after_ns, stretch.table.name, Cause.COUNTER_RESET, path))

    def _column(self, name: str) -> Int64Array:
        """What the rows have of a metric; what is none of theirs the table of ends has."""
        ended = self._joined.ended
        if self._has(name) or ended is None:
            return super()._column(name)
        values = np.full(len(self._stretch.counts), ABSENT, np.int64)
        key = key_of(self._stretch.table)
        known = np.stack([self._stretch.keys[metric] for metric in key], axis=1)
        mine = ends_of(known, ended.keys, ended.end_ns, key.index(START))
        column = ended.end_ns if name == END else ended.column(name)
        if column is not None and not isinstance(column, Words):
            values[mine[mine >= 0]] = column[mine >= 0]
        return np.repeat(values, self._stretch.counts)[self._rows]

    def derived(self, column: FormulaColumn, carried: dict[str, Carried], at: Int64Array) -> Array:
        """What a formula makes of the rows, float64[row]: of counters of their rates since the row before.

        ``carried``: by counter what the keys had in the part before, and when; of this column alone, since it is
        replaced by what they have in this one. ``at``: of each row, where other tables' values are, int64[row].
        """

        def values(spec: Spec) -> Float64Array:
            if spec.semantics is Semantics.COUNTER and spec.stat == MEAN:
                return _rate(*self.grown(spec, carried.setdefault(spec.name, {})), spec)
            return numbers(self.cells(spec))

        return column.of(values, at)


def values(cells: NumberColumn | Words, spec: Spec) -> Array:
    """A column [row] as DuckDB reads it, of the type that ``type_of`` says."""
    if isinstance(cells, Words):
        texts = np.array([*(valid(text) for text in cells.texts), None], object)
        strings: Array = texts[cells.codes]
        return strings
    if spec.unit == TIME_UNIT:
        return np.asarray(cells.values, np.int64).view("M8[ns]")
    if spec.semantics is Semantics.STATE and not cells.scale:
        masked: Array = np.ma.masked_equal(np.asarray(cells.values, np.int64), ABSENT)
        return masked
    return cells.floats()


def valid(text: str) -> str:
    """A text as UTF-8 has it: DuckDB knows no other."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
