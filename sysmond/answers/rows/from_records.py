# SPDX-License-Identifier: Apache-2.0
"""Questions to long tables: from stretches to batches of rows, those of a lasting table and those of moments."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import sqrt
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sysmond.answers.rows import joins
from sysmond.answers.rows.batch import Cells, NumberColumn, Question, RowBatch, meeting
from sysmond.answers.rows.columns import MAX, MEAN, SUM, Of, Spec, share_of
from sysmond.answers.rows.joins import Joins
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, END, START, Cause, Semantics, Table, series_path
from sysmond.base.result import BoolArray, Float64Array, Gap, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.errors import UsageError
from sysmond.rollup.condition import Words
from sysmond.rollup.ended import KeyEnds, between
from sysmond.rollup.keys_in_buckets import LEFT_OVER_NS, KeysInBuckets, spans
from sysmond.rollup.portion import parts_of, summed
from sysmond.rollup.spread import Spread, percentile
from sysmond.store.census import LATE_NS, Line
from sysmond.store.stretches.chain import reported_before
from sysmond.store.stretches.exit_codes import without_killed
from sysmond.store.stretches.stretch import Stretch, StretchPart, key_of, lasts

# So many cells of a column are worked on at once.
CELLS_MAX = 1 << 21
# More than this is a wrong step or range, not a question: an answer is held in memory.
BUCKETS_MAX = 1_000_000
Since = Mapping[str, int]


class UtcBuckets(NamedTuple):
    """Buckets in UTC: ``edges_ns``, int64[bucket + 1], and how each is stamped, int64[bucket]."""

    edges_ns: Int64Array
    stamps_ns: Int64Array


class JoinedRows(NamedTuple):
    """What is joined to the rows of one boot; nothing where it is not asked for, or not there."""

    joins: Joins = Joins()
    ended: KeyEnds | None = None


def axis(start_ns: int, end_ns: int, step_ns: int) -> UtcBuckets:
    """Buckets over [start, end): one, stamped with the second that it begins in, or on multiples of a step.

    :raises UsageError: where there are too many.
    """
    if not step_ns:
        stamp_ns = start_ns // SECOND_NS * SECOND_NS
        return UtcBuckets(np.array([start_ns, end_ns], np.int64), np.array([stamp_ns], np.int64))
    first, last = start_ns // step_ns, -(-end_ns // step_ns)
    if last - first > BUCKETS_MAX:
        raise UsageError(f"{last - first} steps in that range; expected at most {BUCKETS_MAX}")
    stamps = np.arange(first, last, dtype=np.int64) * step_ns
    edges = np.append(stamps, end_ns)
    edges[0] = start_ns
    return UtcBuckets(edges, stamps)


def edges_of(line: Line, edges_ns: Int64Array) -> Int64Array:
    """The boot times at which a wall clock passed these times (UTC): int64[edge], nanoseconds.

    A clock that was set back passed some of them twice: the later time counts, where there are readings of it.
    """
    steps = [at_ns for at_ns, _ in line.course.steps()]
    until = [*steps, int(line.parts[-1].stretch.ticks[-1])]
    since = [-ALWAYS_NS, *steps]
    wall = [line.course.moment_ns(begin) - begin for begin in since]
    edges = np.clip(edges_ns - wall[0], -ALWAYS_NS, until[0] if steps else ALWAYS_NS)
    for number in range(1, len(since)):
        mine = edges_ns - wall[number]
        is_last = number == len(since) - 1
        there = (mine >= since[number]) & ((mine <= until[number]) | (edges_ns > until[number] + max(wall)))
        edges = np.where(there, np.minimum(mine, ALWAYS_NS if is_last else until[number]), edges)
    return np.maximum.accumulate(edges)


class _Stage(NamedTuple):
    """Some buckets of one boot, with what answers in them. ``low``: number of the first of them.

    ``span_s``, ``watched_s``: of each, as ``TimeCovered`` has it.
    """

    line: Line
    joined: JoinedRows
    parts: Sequence[StretchPart]
    edges: Int64Array
    stamps_ns: Int64Array
    low: int
    span_s: Float64Array
    watched_s: Float64Array


class TimeCovered(NamedTuple):
    """Of what time buckets tell: float64[bucket], seconds, over all boots.

    ``span_s``: how far apart the readings are between which increases lie. ``watched_s``: how long values are known.
    """

    span_s: Float64Array
    watched_s: Float64Array

    def plus(self, other: "TimeCovered") -> "TimeCovered":
        """Both together."""
        return TimeCovered(self.span_s + other.span_s, self.watched_s + other.watched_s)


def covered_by_rows(
    lines: Sequence[tuple[Line, JoinedRows]], buckets: UtcBuckets, since_ns: Since = MappingProxyType({})
) -> TimeCovered:
    """Of what time rows tell; ``since_ns``: from which boot time on they answer, by boot."""
    total = TimeCovered(np.zeros(len(buckets.stamps_ns)), np.zeros(len(buckets.stamps_ns)))
    for line, _ in lines:
        total = total.plus(TimeCovered(*spans(line.parts, _edges_since(line, buckets, since_ns))))
    return total


def _edges_since(line: Line, buckets: UtcBuckets, since_ns: Since) -> Int64Array:
    """The edges of buckets in boot time, of what is not before the moment from which on rows answer."""
    return np.maximum(edges_of(line, buckets.edges_ns), since_ns.get(line.boot, -ALWAYS_NS))


def lasting(
    table: Table,
    lines: Sequence[tuple[Line, JoinedRows]],
    buckets: UtcBuckets,
    covered: TimeCovered,
    since_ns: Since = MappingProxyType({}),
) -> Iterator["LastingBatch"]:
    """Rows of a table whose rows last: one a key and bucket in which it was there.

    ``covered``: of what time buckets tell, by rows and elsewhere. ``since_ns``: as of ``covered_by_rows``.
    """
    for line, joined in lines:
        mine = _edges_since(line, buckets, since_ns)
        there = np.flatnonzero(spans(line.parts, mine)[1])
        low, stop = (int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0)
        while low < stop:
            high = min(stop, low + _width(line, joined, mine[low : stop + 1]))
            parts = line.around(int(mine[low]), int(mine[high]))
            part = slice(low, high)
            at = mine[low : high + 1]
            yield LastingBatch(
                table,
                _Stage(
                    line, joined, parts, at, buckets.stamps_ns[part], low, covered.span_s[part], covered.watched_s[part]
                ),
            )
            low = high


def _width(line: Line, joined: JoinedRows, edges: Int64Array) -> int:
    """How many buckets are worked on at once: by the keys that are seen, and those that come and go in each."""
    low_ns, high_ns = int(edges[0]), int(edges[-1])
    keys = max((len(part.stretch.counts) for part in line.within(low_ns, high_ns)), default=1)
    ended = 0 if joined.ended is None else len(between(joined.ended, low_ns, high_ns).end_ns)
    ended_per_bucket = ended / (len(edges) - 1)
    # Keys times buckets are the cells of a column; with more buckets there are more keys.
    width = (
        (sqrt(keys**2 + 2 * ended_per_bucket * CELLS_MAX) - keys) / (2 * ended_per_bucket)
        if ended_per_bucket
        else CELLS_MAX / (2 * max(1, keys))
    )
    return max(1, int(width))


class LastingBatch(RowBatch):
    """Rows of a lasting table."""

    def __init__(self, table: Table, stage: _Stage) -> None:
        """Look at all keys and buckets in which they were there, where values are known."""
        ended, edges = stage.joined.ended, stage.edges
        if ended is not None and stage.parts:
            first_ns = int(stage.parts[0].stretch.ticks[0]) - LEFT_OVER_NS
            ended = between(ended, min(int(edges[0]), first_ns), int(edges[-1]))
        self._stage = stage
        self._table = table
        self._window = KeysInBuckets.of(stage.parts, edges, ended, key_of(table))
        self._metrics = frozenset(metric.name for metric in table.metrics)
        self._texts = frozenset(metric.name for metric in table.metrics if metric.is_text)
        # ``_bucket``: of those of the stage.
        self._key, self._bucket = np.nonzero(self._window.of_keys.alive & (stage.watched_s > 0))
        self._cache: dict[tuple[str, str], Cells] = {}
        self._spreads: dict[str, Spread] = {}
        super().__init__(stage.line.boot, self._bucket + stage.low, stage.stamps_ns[self._bucket])

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row], and of what was computed of others."""
        super().keep(rows)
        chosen, self._key = np.unique(self._key[rows], return_inverse=True)
        self._bucket = self._bucket[rows]
        self._window = self._window.narrow(chosen)
        self._cache.clear()
        self._spreads.clear()

    def others(self, _name: str, /) -> Int64Array:
        """What others have of a metric by which they are put together: each row is of one thing, int64[row] of 0."""
        return np.zeros(len(self.bucket), np.int64)

    def resets(self) -> Collection[Gap]:
        """Where counters that were asked for began anew, so far."""
        moment, table = self._stage.line.course.moment_ns, self._table
        return {
            Gap(
                # A clock that was set back meanwhile turns no gap round.
                min(moment(start_ns), moment(end_ns)),
                moment(end_ns),
                table.name,
                Cause.COUNTER_RESET,
                series_path(table.name, metric, instance_of(table, key)),
            )
            for metric, key, start_ns, end_ns in self._window.resets
        }

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        cells = self._cache.get((spec.name, spec.stat))
        if cells is None:
            cells = self._cache[spec.name, spec.stat] = self._cells(spec)
        return cells

    def _cells(self, spec: Spec) -> Cells:
        if spec.of is Of.JOIN:
            return self._stage.joined.joins.words(spec.name, self._stored)
        if spec.of is Of.LIFE:
            return self._life(spec)
        window, key = self._window, self._key
        if spec.of is Of.COUNT:
            return NumberColumn(np.ones(len(key), np.int64))
        if spec.of is Of.KEY:
            values = window.keys[spec.name]
            return NumberColumn(
                (self._stage.line.course.utc_ns(values) if spec.name == START else values)[key], spec.scale
            )
        return self._measured(spec)

    def _measured(self, spec: Spec) -> Cells:
        window, key, bucket = self._window, self._key, self._bucket
        if (percent := share_of(spec)) is not None:
            return self._percentile(spec, percent)
        if spec.semantics is Semantics.COUNTER and spec.stat in {SUM, MEAN}:
            grown = window.grown(spec.name)[key, bucket]
            return NumberColumn(grown, spec.scale) if spec.stat == SUM else self._rate(spec, grown)
        if spec.stat == MEAN:
            mass, time_s = (part[key, bucket] for part in window.integral(spec.name))
            with np.errstate(divide="ignore", invalid="ignore"):
                return NumberColumn(np.where(time_s > 0, mass / time_s, np.nan) / 10.0**spec.scale)
        if spec.stat == MAX:
            return NumberColumn(window.peak(spec.name)[key, bucket], spec.scale)
        values = window.at(spec.name)[key, bucket + 1]
        if spec.is_text:
            return as_texts(values, window.words.texts)
        return NumberColumn(values, spec.scale)

    def _percentile(self, spec: Spec, percent: float) -> NumberColumn:
        shape = self._window.of_keys.alive.shape
        spread = self._spreads.get(spec.name)
        if spread is None:
            spread = self._spreads[spec.name] = self._window.spread(
                spec.name, is_counter=spec.semantics is Semantics.COUNTER
            )
        found = percentile(spread, percent, shape[0] * shape[1])[self._key * shape[1] + self._bucket]
        if spec.semantics is Semantics.COUNTER:
            return NumberColumn(found * (100.0 if spec.unit == "%" else 1.0) / 10.0**spec.scale)
        absent = np.isnan(found)
        return NumberColumn(np.where(absent, ABSENT, np.where(absent, 0, found).astype(np.int64)), spec.scale)

    def _rate(self, spec: Spec, grown: Int64Array) -> NumberColumn:
        took_s = self._window.took_s(self._stage.span_s)[self._key, self._bucket]
        factor = (100.0 if spec.unit == "%" else 1.0) / 10.0**spec.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            return NumberColumn(np.where((grown == ABSENT) | (took_s <= 0), np.nan, grown * factor / took_s))

    def integral(self, spec: Spec) -> tuple[Float64Array, Float64Array]:
        """The integral of a gauge over time (as stored, times seconds), and over how long (seconds): float64[row]."""
        mass, time_s = self._window.integral(spec.name)
        return mass[self._key, self._bucket], time_s[self._key, self._bucket]

    def mass(self, spec: Spec, /) -> Float64Array:
        """The integral of a gauge over time, by the time that values are known: float64[row], in its unit."""
        mass: Float64Array = self._window.integral(spec.name)[0][self._key, self._bucket]
        return mass / self._stage.watched_s[self._bucket] / 10.0**spec.scale

    def _life(self, spec: Spec) -> NumberColumn:
        if spec.name == END:
            died, is_over = self._died()
            utc = self._stage.line.course.utc_ns(np.where(is_over, died, 0))
            return NumberColumn(np.where(is_over, utc, ABSENT), spec.scale)
        return NumberColumn(self._ended(spec.name))

    def _died(self) -> tuple[Int64Array, BoolArray]:
        """When what the rows are about was gone at the latest (boot time), and whether that is within their bucket."""
        of_keys = self._window.of_keys
        died = np.minimum(of_keys.end_ns, of_keys.died_ns)[self._key]
        return died, died < self._window.edges[self._bucket + 1]

    def _ended(self, name: str) -> Int64Array:
        """What the table of ends has of what the rows are about, int64[row]; nothing in buckets before the end."""
        ends = self._window.ended(name)
        if ends is None:
            return np.full(len(self._key), ABSENT, np.int64)
        return np.where(self._died()[1], ends[self._key], ABSENT)

    def _stored(self, name: str) -> joins.Numbers:
        """What the rows have of a metric, as stored."""
        window = self._window
        if name in window.keys:
            return np.asarray(window.keys[name][self._key], np.int64)
        if name not in self._metrics:
            return self._ended(name)
        values: Int64Array = window.at(name)[self._key, self._bucket + 1]
        return as_texts(values, window.words.texts) if name in self._texts else values


def instance_of(table: Table, key: Sequence[int]) -> str:
    """How a thing of a long table is called as an instance: by its key, without when it started."""
    return "/".join(str(number) for name, number in zip(key_of(table), key, strict=True) if name != START)


def as_texts(codes: Int64Array, texts: Sequence[str]) -> Words:
    """Codes as stored, int64[row], which are ABSENT where there is no text."""
    return Words(np.where(codes == ABSENT, -1, codes), texts)


def _of_moments(
    lines: Sequence[tuple[Line, JoinedRows]], buckets: UtcBuckets, since_ns: Since
) -> Iterator["MomentBatch"]:
    """Rows of a table whose rows are about their own moment: one a record."""
    for line, joined in lines:
        edges = edges_of(line, buckets.edges_ns[[0, -1]])
        before: Stretch | None = None
        for part in line.within(int(edges[0]), int(edges[1]) + LATE_NS):
            yield MomentBatch(part, line, joined, buckets, since_ns.get(line.boot, -ALWAYS_NS), before)
            before = part.stretch


class MomentBatch(RowBatch):
    """Records of one part, in order of time. A record that tells of an end is of that time, others of their reading."""

    def __init__(
        self,
        part: StretchPart,
        line: Line,
        joined: JoinedRows,
        buckets: UtcBuckets,
        begin_ns: int = -ALWAYS_NS,
        before: Stretch | None = None,
    ) -> None:
        """Look at all that are of the range, of readings from a boot time on, and not told of before."""
        stretch = part.stretch
        ticks = stretch.ticks[stretch.tick_index()]
        is_end = any(metric.name == END for metric in stretch.table.metrics)
        times = line.course.utc_ns(stretch.column(END) if is_end else ticks)
        inside = (times >= buckets.edges_ns[0]) & (times < buckets.edges_ns[-1])
        if is_end:
            inside &= ~reported_before(stretch, before)
        self._take(stretch, line, joined, times, inside & (ticks >= begin_ns) & (ticks < part.end_ns), buckets)

    def _take(
        self,
        stretch: Stretch,
        line: Line,
        joined: JoinedRows,
        times: Int64Array,
        inside: BoolArray,
        buckets: UtcBuckets,
    ) -> None:
        self._stretch = stretch
        self._line = line
        self._joined = joined
        rows = np.flatnonzero(inside)
        self._rows: Int64Array = rows[np.argsort(times[rows], kind="stable")]
        times_ns = times[self._rows]
        super().__init__(line.boot, np.searchsorted(buckets.edges_ns, times_ns, "right") - 1, times_ns)

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        super().keep(rows)
        self._rows = self._rows[rows]

    def _has(self, name: str) -> bool:
        return any(metric.name == name for metric in self._stretch.table.metrics)

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        if spec.of is Of.COUNT:
            return NumberColumn(np.ones(len(self._rows), np.int64))
        if spec.of is Of.JOIN:
            return self._joined.joins.words(spec.name, self._stored)
        values = self._numbers(spec.name)
        if spec.is_text:
            return as_texts(values, self._stretch.texts)
        if spec.name in {START, END}:
            return NumberColumn(np.where(values == ABSENT, ABSENT, self._line.course.utc_ns(values)), spec.scale)
        return NumberColumn(values, spec.scale)

    def mass(self, _spec: Spec, /) -> Float64Array:
        """Nothing has an average here: float64[row] of NaN."""
        return np.full(len(self._rows), np.nan)

    def _stored(self, name: str) -> joins.Numbers:
        """What the rows have of a metric, as stored."""
        values = self._numbers(name)
        is_text = any(metric.name == name and metric.is_text for metric in self._stretch.table.metrics)
        return as_texts(values, self._stretch.texts) if is_text else values

    def _numbers(self, name: str) -> Int64Array:
        columns = [self._column(part) for part in parts_of(self._stretch.table, name)]
        return summed(columns) if len(columns) > 1 else columns[0]

    def _column(self, name: str) -> Int64Array:
        """What the rows have of a metric; nothing where it came to the table later."""
        if not self._has(name):
            return np.full(len(self._rows), ABSENT, np.int64)
        return without_killed(self._stretch.table, name, self._stretch.column)[self._rows]


def batches(
    question: Question,
    lines: Sequence[tuple[Line, JoinedRows]],
    buckets: UtcBuckets,
    since_ns: Since = MappingProxyType({}),
) -> Iterator[RowBatch]:
    """All rows that meet the condition; ``since_ns`` as of ``covered_by_rows``."""
    if lasts(question.table):
        covered = covered_by_rows(lines, buckets, since_ns)
        return meeting(question, lasting(question.table, lines, buckets, covered, since_ns))
    return meeting(question, _of_moments(lines, buckets, since_ns))
