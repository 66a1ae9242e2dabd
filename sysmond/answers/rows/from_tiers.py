# SPDX-License-Identifier: Apache-2.0
"""What is older than rows are kept: buckets of tiers, joined with the rows that are still there.

A bucket has by themselves only those that used most, and all others as a row a group, whose key is 0: their sums are
right, who they were is not known any more. A bucket answers where it begins, and where no row and no finer tier does.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.answers.rows import joins
from sysmond.answers.rows.batch import Cells, NumberColumn, RowBatch, Rows
from sysmond.answers.rows.columns import MAX, MEAN, SUM, Of, Spec, share_of
from sysmond.answers.rows.from_records import JoinedRows, LastingBatch, MomentBatch, TimeCovered, UtcBuckets, as_texts
from sysmond.answers.rows.grouping import joined, take
from sysmond.answers.rows.record_gaps import holes, silence, unexplained
from sysmond.base.model import ABSENT, END, START, Cause, Packing, Semantics, Table
from sysmond.base.result import BoolArray, Float64Array, Gap, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.rollup.condition import Words
from sysmond.rollup.file_edges import begin_ns
from sysmond.rollup.portion import parts_of, summed, totals_in
from sysmond.rollup.top import COUNT, LENGTH, LIVED, MOST
from sysmond.rollup.top import MAX as PEAK
from sysmond.store.census import Line
from sysmond.store.stretches.stretch import GAP_INTERVALS, READINGS, Stretch, is_of_buckets, key_of
from sysmond.store.stretches.undeclared import answers_of


class Bucketed(NamedTuple):
    """Buckets of one boot: those of a stretch that end after one boot time and before another."""

    stretch: Stretch
    line: Line
    after_ns: int
    before_ns: int

    def counts(self) -> BoolArray:
        """Which of its buckets these are: bool[bucket]."""
        ticks = self.stretch.ticks
        return (ticks > self.after_ns) & (ticks < self.before_ns)


def recorded(table: Table) -> Table:
    """The table of rows that a table of buckets was derived from."""
    names = {metric.name for metric in table.metrics}
    if not is_of_buckets(table) or table.packing is None:
        return table
    is_lasting = LIVED in names
    added = {LENGTH, READINGS, LIVED, MOST} if is_lasting else {LENGTH, READINGS, COUNT}
    peaks = [*names, *(metric.name for metric in totals_in(table))] if is_lasting else []
    added |= {name + PEAK for name in peaks}
    own = tuple(metric for metric in table.metrics if metric.name not in added)
    groups = answers_of(table).others_by
    key = tuple(name for name in table.packing.key if name not in groups) or table.packing.key
    return table._replace(metrics=own, packing=Packing(table.packing.format, key, is_lasting))


def bucketed(rows: Sequence[Line], tiers: Iterable[Sequence[Line]]) -> tuple[list[Bucketed], dict[str, int]]:
    """The buckets that answer before rows do, of tiers from the finest on; and from which boot time rows do, by boot.

    Rows, and buckets of a finer tier, begin anywhere in a bucket: that one answers still, and they from its end on.
    """
    begin = {line.boot: int(line.parts[0].stretch.ticks[0]) for line in rows}
    since: dict[str, int] = {}
    parts: list[Bucketed] = []
    for line in (line for lines in tiers for line in lines):
        boot = line.boot
        mine = [part.stretch for part in line.parts if is_of_buckets(part.stretch.table)]
        if not mine or begin_ns(mine[0]) >= begin.get(boot, ALWAYS_NS):
            continue
        # The first bucket of a file may begin before it: it replaces the part that the file before has of it.
        ends = [*(begin_ns(stretch) for stretch in mine[1:]), ALWAYS_NS]
        limit_ns = begin.get(boot, ALWAYS_NS)
        over = [
            stretch.ticks[(stretch.ticks >= limit_ns) & (stretch.ticks < end)]
            for stretch, end in zip(mine, ends, strict=True)
        ]
        if len(later := np.concatenate(over)):
            limit_ns = int(later[0]) + 1
            parts = [
                each._replace(after_ns=max(each.after_ns, limit_ns - 1)) if each.line.boot == boot else each
                for each in parts
            ]
            since[boot] = max(since.get(boot, limit_ns), limit_ns)
        parts += [Bucketed(each, line, -ALWAYS_NS, min(limit_ns, end)) for each, end in zip(mine, ends, strict=True)]
        begin[boot] = begin_ns(mine[0])
    return parts, since


class Lengths(NamedTuple):
    """Over how long buckets tell: seconds between neighbouring readings of each, and of each reading its place."""

    bucket: Int64Array
    length_ns: Int64Array
    interval_s: Float64Array
    readings: Int64Array


def lengths(part: Bucketed, buckets: UtcBuckets) -> Lengths:
    """Of each reading of a stretch of buckets: the bucket of the question it is of, -1 for none."""
    stretch = part.stretch
    at = stretch.tick_index()
    length, readings = np.zeros(len(stretch.ticks), np.int64), np.ones(len(stretch.ticks), np.int64)
    length[at], readings[at] = stretch.column(LENGTH), stretch.column(READINGS)
    times_ns = part.line.course.utc_ns(stretch.ticks - length)
    bucket = np.searchsorted(buckets.edges_ns, times_ns, "right") - 1
    outside = (bucket < 0) | (bucket >= len(buckets.stamps_ns))
    return Lengths(
        np.where(outside | ~part.counts(), -1, bucket), length, _apart_s(stretch.ticks, length, readings), readings
    )


def _apart_s(ticks: Int64Array, length_ns: Int64Array, readings: Int64Array) -> Float64Array:
    """How far apart the readings of each bucket are; of one with a single reading other buckets tell."""
    several = readings > 1
    within_s = length_ns / np.maximum(1, readings - 1) / 1e9
    known_s = within_s[several] if several.any() else np.diff(ticks) / 1e9
    return np.where(several, within_s, np.median(known_s) if len(known_s) else 1.0)


class _Sequence(NamedTuple):
    """The buckets that count, of all tiers of one boot, in order of time: first and last reading, and ``lengths``."""

    parts: Sequence[Bucketed]
    first_ns: Int64Array
    last_ns: Int64Array
    of: Lengths


def _sequences(parts: Sequence[Bucketed], buckets: UtcBuckets) -> Iterator[_Sequence]:
    for boot in dict.fromkeys(part.line.boot for part in parts):
        mine = [part for part in parts if part.line.boot == boot]
        counts = [part.counts() for part in mine]
        lasting_columns = [
            [column[count] for column in lengths(part, buckets)] for part, count in zip(mine, counts, strict=True)
        ]
        last_ns = np.concatenate([part.stretch.ticks[count] for part, count in zip(mine, counts, strict=True)])
        order = np.argsort(last_ns)
        of = Lengths(*(np.concatenate(columns)[order] for columns in zip(*lasting_columns, strict=True)))
        yield _Sequence(mine, last_ns[order] - of.length_ns, last_ns[order], of)


def covered_by_buckets(parts: Sequence[Bucketed], buckets: UtcBuckets) -> TimeCovered:
    """Of what time buckets of tiers tell, in each bucket of the question."""
    total = TimeCovered(np.zeros(len(buckets.stamps_ns)), np.zeros(len(buckets.stamps_ns)))
    for _, first_ns, last_ns, of in _sequences(parts, buckets):
        # What a bucket grew by it grew since the last reading of the one before it, over a gap as well.
        since_ns = np.append(first_ns[:1], last_ns[:-1])
        inside = of.bucket >= 0
        np.add.at(total.span_s, of.bucket[inside], ((last_ns - since_ns) / 1e9)[inside])
        np.add.at(total.watched_s, of.bucket[inside], (of.interval_s * of.readings)[inside])
    return total


def gaps(parts: Sequence[Bucketed], rows: Sequence[Line], table: str, buckets: UtcBuckets) -> Iterator[Gap]:
    """Where nothing was recorded before rows begin, and why: holes that files tell of, and what lies between buckets.

    Of what is missing within a bucket only the number of its readings tells.
    """
    reach = [(line.first_ns, line.last_ns) for line in rows]
    later = {line.boot for line in rows}
    over = []
    for mine, first_ns, last_ns, of in _sequences(parts, buckets):
        line = mine[-1].line
        known = [
            gap for of_line in {id(part.line): part.line for part in mine}.values() for gap in holes(of_line, table)
        ]
        interval_ns = round(float(np.median(of.interval_s)) * 1e9)
        lives = sorted({life for part in mine for life in part.stretch.lives}, key=lambda life: life.first_ns)
        for at in np.flatnonzero(first_ns[1:] - last_ns[:-1] > GAP_INTERVALS * interval_ns).tolist():
            between_ns = int(last_ns[at]), int(first_ns[at + 1])
            yield from unexplained(silence(line, table, between_ns, interval_ns, Cause.LATE_TICK, lives), known)
        yield from known
        reach.append((line.course.moment_ns(int(first_ns[0])), line.course.moment_ns(int(last_ns[-1]))))
        if line.boot not in later:
            over.append(reach[-1][1] + interval_ns)
    for until_ns in over:
        begins = [begin_ns for begin_ns, _ in reach if begin_ns >= until_ns]
        if begins := [*begins, *(of_line for line in rows for of_line in line.begins_after(until_ns))]:
            yield Gap(until_ns, min(begins), table, Cause.OFF)


class TierBatch(RowBatch):
    """Rows of buckets of one stretch."""

    def __init__(self, part: Bucketed, joined: JoinedRows, buckets: UtcBuckets, covered: TimeCovered) -> None:
        """Look at all that begin in the range. ``covered``: of what time buckets of the question tell."""
        self._stretch = part.stretch
        self._line = part.line
        self._joined = joined
        self._covered = covered
        of = lengths(part, buckets)
        at = part.stretch.tick_index()
        there = part.stretch.column(LIVED) > 0
        # Of what no reading saw something may be known nevertheless: what it used.
        used = next((metric.name for metric in part.stretch.table.metrics if metric.semantics is Semantics.COUNTER), "")
        there |= part.stretch.column(used) > 0 if used else False
        self._rows: Int64Array = np.flatnonzero((of.bucket[at] >= 0) & there)
        self._interval_s: Float64Array = of.interval_s[at[self._rows]]
        bucket = of.bucket[at[self._rows]]
        super().__init__(part.line.boot, bucket, buckets.stamps_ns[bucket])

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        super().keep(rows)
        self._rows, self._interval_s = self._rows[rows], self._interval_s[rows]

    def others(self, name: str, /) -> Int64Array:
        """What others have of a metric by which they are put together, int64[row]; 0 for one thing by itself."""
        groups = self._column(name) if name in self._stretch.keys else np.ones(len(self._rows), np.int64)
        own = [START] if START in self._stretch.keys else key_of(recorded(self._stretch.table))
        return np.where(np.logical_or.reduce([self._column(group) != 0 for group in own]), 0, groups)

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        if spec.of is Of.COUNT:
            return NumberColumn(self._column(MOST))
        if spec.of is Of.JOIN:
            return self._joined.joins.words(spec.name, self._stored)
        if spec.semantics is Semantics.STATE and spec.of is not Of.LIFE:
            return self._state(spec)
        return self._measured(spec)

    def _measured(self, spec: Spec) -> Cells:
        if spec.stat == SUM:
            return NumberColumn(self._sum(spec.name), spec.scale)
        if spec.stat == MEAN:
            return self._mean(spec)
        if spec.semantics is Semantics.COUNTER and share_of(spec) is not None:
            return NumberColumn(np.full(len(self._rows), np.nan))
        known = spec.stat == MAX and any(metric.name == spec.name + PEAK for metric in self._stretch.table.metrics)
        return NumberColumn(self._column(spec.name + PEAK) if known else np.full(len(self._rows), ABSENT), spec.scale)

    def _state(self, spec: Spec) -> Cells:
        values = self._column(spec.name)
        if spec.is_text:
            return as_texts(values, self._stretch.texts)
        if spec.name == START:
            return NumberColumn(np.where(values == 0, ABSENT, self._line.course.utc_ns(values)), spec.scale)
        return NumberColumn(values, spec.scale)

    def _mean(self, spec: Spec) -> NumberColumn:
        """The rate of a counter over all that is told of a bucket; the average of a gauge over what it was there."""
        if spec.semantics is Semantics.GAUGE:
            mass, time_s = self.integral(spec)
        else:
            values, time_s = self._sum(spec.name), self._covered.span_s[self.bucket]
            mass = np.where(values == ABSENT, np.nan, values) * (100.0 if spec.unit == "%" else 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return NumberColumn(np.where(time_s > 0, mass / time_s, np.nan) / 10.0**spec.scale)

    def integral(self, spec: Spec) -> tuple[Float64Array, Float64Array]:
        """The integral of a gauge over time (as stored, times seconds), and over how long (seconds): float64[row]."""
        values = self._sum(spec.name)
        absent = values == ABSENT
        mass = np.where(absent, 0, values) * self._interval_s
        return mass, np.where(absent, 0, self._column(LIVED)) * self._interval_s

    def mass(self, spec: Spec, /) -> Float64Array:
        """The integral of a gauge over time, by the time that values are known: float64[row], in its unit."""
        return self.integral(spec)[0] / self._covered.watched_s[self.bucket] / 10.0**spec.scale

    def _column(self, name: str) -> Int64Array:
        return self._stretch.column(name)[self._rows]

    def _stored(self, name: str) -> joins.Numbers:
        """What the rows have of a metric, as stored."""
        if not any(metric.name == name for metric in self._stretch.table.metrics):
            return np.full(len(self._rows), ABSENT, np.int64)  # Of its end, which no bucket tells.
        values = self._column(name)
        is_text = any(metric.name == name and metric.is_text for metric in self._stretch.table.metrics)
        return as_texts(values, self._stretch.texts) if is_text else values

    def _sum(self, name: str) -> Int64Array:
        columns = [self._column(part) for part in parts_of(self._stretch.table, name)]
        return summed(columns) if len(columns) > 1 else columns[0]


class TierMomentBatch(MomentBatch):
    """Records of buckets: some by themselves, and others together, which are of the last moment of their bucket."""

    def __init__(self, part: Bucketed, joined: JoinedRows, buckets: UtcBuckets) -> None:
        """Look at all that are of the range."""
        stretch, course = part.stretch, part.line.course
        ticks = stretch.ticks[stretch.tick_index()]
        ends = stretch.column(END) if any(metric.name == END for metric in stretch.table.metrics) else ticks
        times = course.utc_ns(np.where(ends > 0, ends, ticks))
        inside = (times >= buckets.edges_ns[0]) & (times < buckets.edges_ns[-1])
        inside &= part.counts()[stretch.tick_index()]
        self._take(stretch, part.line, joined, times, inside & (stretch.column(COUNT) > 0), buckets)

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        if spec.of is Of.COUNT:
            return NumberColumn(self._numbers(COUNT))
        return super().cells(spec)


class MergedBatch(RowBatch):
    """Rows of one boot whose parts come from several batches: those of one key and bucket are one."""

    def __init__(self, boot: str, rows: Rows, shares: Mapping[str, Float64Array], resets: Collection[Gap] = ()) -> None:
        """Take rows that are merged. ``shares``: of gauges, what they come to over all of the time, float64[row].

        ``resets``: where counters of them began anew.
        """
        super().__init__(boot, rows.bucket, rows.times_ns)
        self._resets = resets
        self._columns = rows.columns
        self._shares = shares

    def resets(self) -> Collection[Gap]:
        """Where counters that were asked for began anew."""
        return self._resets

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        return self._columns[labelled(spec)]

    def mass(self, spec: Spec, /) -> Float64Array:
        """The integral of a gauge over time, by the time that values are known: float64[row], in its unit."""
        return self._shares[labelled(spec)]

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        super().keep(rows)
        self._columns = {name: take(cells, rows) for name, cells in self._columns.items()}
        self._shares = {name: share[rows] for name, share in self._shares.items()}


def labelled(spec: Spec) -> str:
    """How a column is called among merged rows, whatever it is called in the answer."""
    return f"{spec.name}:{spec.stat}"


def merged(
    batches: Sequence[TierBatch | LastingBatch],
    specs: Sequence[Spec],
    table: Table,
    key: Sequence[Spec],
    watched_s: Float64Array,
) -> Iterator[RowBatch]:
    """Batches of each boot as one. ``watched_s``: over how long values are known, float64[bucket]."""
    groups = answers_of(table).others_by or ("",)
    unique = {labelled(spec): spec for spec in [*specs, *key]}
    for boot in dict.fromkeys(batch.boot for batch in batches):
        mine = [batch for batch in batches if batch.boot == boot]
        gathered = _gathered(mine, unique, groups)
        resets = {gap for batch in mine for gap in batch.resets()}  # As the columns were read.
        yield _merged(boot, gathered, unique, [labelled(spec) for spec in key], watched_s, resets)


class _Gathered(NamedTuple):
    """Rows of several batches, one after the other, and what merging them needs beside.

    ``integrals``: of gauges over time, and over how long (float64[row] each), by label of their averages.
    ``others``: whose others a row stands for, by each of what they are put together by: int64[row], 0 for nobody's.
    """

    rows: Rows
    integrals: Mapping[str, tuple[Float64Array, Float64Array]]
    others: Sequence[Int64Array]


def _gathered(
    batches: Sequence[TierBatch | LastingBatch], specs: Mapping[str, Spec], groups: Sequence[str]
) -> _Gathered:
    pieces = [
        Rows(
            batch.bucket,
            batch.times_ns,
            {label: batch.cells(spec) for label, spec in specs.items()},
            np.zeros(len(batch.bucket), np.int64),
        )
        for batch in batches
    ]
    integrals: dict[str, tuple[Float64Array, Float64Array]] = {}
    for label, spec in specs.items():
        if spec.stat == MEAN and spec.semantics is Semantics.GAUGE:
            masses, times_s = zip(*(batch.integral(spec) for batch in batches), strict=True)
            integrals[label] = np.concatenate(masses), np.concatenate(times_s)
    others = [np.concatenate([batch.others(name) for batch in batches]) for name in groups]
    return _Gathered(joined(pieces), integrals, others)


def _merged(
    boot: str,
    gathered: _Gathered,
    specs: Mapping[str, Spec],
    key: Sequence[str],
    watched_s: Float64Array,
    resets: Collection[Gap],
) -> MergedBatch:
    rows = gathered.rows
    identity = [rows.bucket, *(_numbers(rows.columns[name]) for name in key), *gathered.others]
    order = np.lexsort(tuple(reversed(identity)))  # Stable: the later of two stays the later.
    ordered = [column[order] for column in identity]
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in ordered])
    begins = np.flatnonzero(np.r_[True, differs]) if len(order) else np.zeros(0, np.int64)
    ends = np.append(begins[1:], len(order))[: len(begins)]
    bucket = rows.bucket[order[begins]]
    columns: dict[str, Cells] = {}
    shares: dict[str, Float64Array] = {}
    for label, spec in specs.items():
        cells = rows.columns[label]
        if label in gathered.integrals:
            mass, time_s = (_added(part[order], begins) for part in gathered.integrals[label])
            with np.errstate(divide="ignore", invalid="ignore"):
                columns[label] = NumberColumn(np.where(time_s > 0, mass / time_s, np.nan) / 10.0**spec.scale)
                shares[label] = mass / watched_s[bucket] / 10.0**spec.scale
        elif share_of(spec) is not None:  # No bucket tells it: what rows tell is all there is.
            columns[label] = _largest(cells, order, begins)
        elif isinstance(cells, Words) or spec.semantics is Semantics.STATE or spec.stat not in {MEAN, SUM, MAX}:
            largest = spec.of is Of.COUNT
            columns[label] = _largest(cells, order, begins) if largest else take(cells, order[ends - 1])
        elif spec.stat == MAX:
            columns[label] = _largest(cells, order, begins)
        else:
            columns[label] = _plus(cells, order, begins)
    merged_rows = Rows(bucket, rows.times_ns[order[begins]], columns, rows.boot[order[begins]])
    return MergedBatch(boot, merged_rows, shares, resets)


def _numbers(cells: Cells) -> Int64Array | Float64Array:
    return cells.codes if isinstance(cells, Words) else cells.values


def _added(values: Float64Array, begins: Int64Array) -> Float64Array:
    return np.add.reduceat(values, begins) if len(begins) else np.zeros(0)


def _plus(cells: Cells, order: Int64Array, begins: Int64Array) -> Cells:
    if isinstance(cells, Words) or not len(begins):
        return take(cells, order[begins])
    values = cells.values[order]
    is_float = values.dtype == np.float64
    absent = np.isnan(values) if is_float else values == ABSENT
    none = np.logical_and.reduceat(absent, begins)
    total = np.add.reduceat(np.where(absent, 0, values), begins)
    return NumberColumn(np.where(none, np.nan if is_float else ABSENT, total), cells.scale)


def _largest(cells: Cells, order: Int64Array, begins: Int64Array) -> Cells:
    if isinstance(cells, Words) or not len(begins):
        return take(cells, order[begins])
    values = cells.values[order]
    if values.dtype == np.float64:
        return NumberColumn(np.fmax.reduceat(values, begins), cells.scale)
    return NumberColumn(np.maximum.reduceat(values, begins), cells.scale)
