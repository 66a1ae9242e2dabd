# SPDX-License-Identifier: Apache-2.0
"""Rolling up long tables: of each bucket what used most, exactly, and all others as few rows. Pure.

A **bucket** is a run of neighbouring readings between two multiples of the step in UTC; a step of the clock or a
suspend cuts it short. The rows of a bucket add up to what all rows of its readings do, whatever the tier:

- of a table whose rows last, and that measures: the first of each rank by themselves, all others added up, a row a
  group. An increment belongs to the reading that ends it, by the rule of ``base.counters``; new is what started since
  the chain began. A gauge is summed over the readings at which its key was there.
- of a table of moments: the same, where there are ranks; others are counted, and what adds up is added up.
- of a table that lasts and measures nothing, a dictionary: the last row of each key.

What is ranked, grouped and added up, tables declare (``base.model.Answers``); ``derived`` declares what comes of one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.declared_answers import within
from sysmond.base.model import ABSENT, Metric, Packing, Semantics, Table
from sysmond.base.result import Array, BoolArray, Int64Array
from sysmond.base.wall_clock import Course, course_of
from sysmond.rollup.buckets import Pairs, peaks_of_sums, sums_of
from sysmond.rollup.portion import parts_of, summed, totals_in
from sysmond.store.coding import statistics
from sysmond.store.coding.integers import filled, is_absent, narrowest, numbers_of
from sysmond.store.stretches.chain import Chain, Late, Slab, remembering
from sysmond.store.stretches.increments import increments
from sysmond.store.stretches.stretch import READINGS, About, MemoryStretch, Readings, Stretch, key_of, lasts, numbered
from sysmond.store.stretches.undeclared import answers_of

# So many of a bucket are kept by themselves of each rank.
FIRST = 20
LENGTH, LIVED, MOST, COUNT, MAX = "length", "lived", "most", "count", "_max"
# Rows and pairs of a key and a bucket that are worked on at once: bounds memory, whatever is rolled up.
CELLS_AT_ONCE = 250_000

_ABOUT_BUCKETS = (
    Metric(LENGTH, "s", Semantics.STATE, "From the first to the last reading of the bucket, whose moment that is.", 9),
    Metric(READINGS, "1", Semantics.STATE, "Readings in the bucket."),
)
_LIVED = Metric(LIVED, "1", Semantics.GAUGE, "At how many readings it was there; of others together the sum.")
_MOST = Metric(MOST, "1", Semantics.GAUGE, "How many there were at most at one reading.")
_COUNT = Metric(COUNT, "1", Semantics.COUNTER, "How many rows it stands for.")


class Selection(NamedTuple):
    """What of a table buckets keep.

    ``ranks``: sums of columns by which the first are found. ``by``: of moments, the columns by which others are put
    together. ``sums``, ``peaks``: of moments, what is added up, and of what the largest is kept.
    """

    ranks: Sequence[Sequence[str]]
    by: Sequence[str]
    sums: Sequence[str]
    peaks: Sequence[str]


def selection(table: Table) -> Selection:
    """What buckets keep of a table; where it does not say so, the first by each number, and the sum of each."""
    answers = answers_of(table)
    numbers = [metric.name for metric in _bucket_metrics(table) if metric.semantics is not Semantics.STATE]
    ranks = [(name,) for name in numbers] if answers.top is None else answers.top
    return Selection(ranks, answers.others_by, numbers if answers.sums is None else answers.sums, answers.peaks)


def _bucket_metrics(table: Table) -> list[Metric]:
    """The metrics of which buckets have anything."""
    left_out = answers_of(table).rows_only
    return [metric for metric in table.metrics if metric.name not in left_out]


def is_dictionary(table: Table) -> bool:
    """Whether a table only tells what belongs to keys."""
    return lasts(table) and all(metric.semantics is Semantics.STATE for metric in table.metrics)


def derived(table: Table) -> Table:
    """Declare the table of the buckets of a long table: it has the same name, and its rows do not last."""
    if is_dictionary(table):
        return table
    how, key = selection(table), key_of(table)
    metrics: list[Metric] = []
    if lasts(table):
        for metric in _bucket_metrics(table):
            doc = {
                Semantics.COUNTER: f"{metric.doc} By how much it grew in the bucket.",
                Semantics.GAUGE: f"{metric.doc} The sum over the readings.",
                Semantics.STATE: metric.doc,
            }[metric.semantics]
            metrics.append(metric._replace(doc=doc))
            if metric.semantics is Semantics.GAUGE:
                metrics.append(metric._replace(name=metric.name + MAX, doc=f"{metric.doc} The most at one reading."))
        metrics += [
            total._replace(name=total.name + MAX, doc=f"{total.doc} The most at one reading.")
            for total in totals_in(table)
        ]
        metrics += [_LIVED, _MOST]
        key = (*key, *how.by)
    else:
        alone = [metric.name for metric in table.metrics] if how.ranks else [*how.by, *how.sums, *how.peaks]
        metrics += [metric for metric in table.metrics if metric.name in alone]
        numbers = [metric.name for metric in metrics if metric.name in how.by and not metric.is_text]
        key = tuple(dict.fromkeys([*key, *numbers])) if how.ranks else tuple(numbers)
        metrics.append(_COUNT)
    metrics += _ABOUT_BUCKETS
    form = "<" + " ".join("Q" if metric.is_text else "q" for metric in metrics)
    made = table._replace(metrics=tuple(metrics), packing=Packing(form, key or (READINGS,), lasting=False))
    return made if table.answers is None else made._replace(answers=within(table.answers, made))


class _Axis(NamedTuple):
    """The buckets of a step: which reading begins each, int64[bucket], and of them the first that is asked for."""

    step_ns: int
    starts: Int64Array
    asked: int


def roll_up(
    stretches: Sequence[Stretch],
    steps_ns: Sequence[int],
    since: int = 0,
    *,
    chain: Chain | None = None,
    is_cut: bool = False,
) -> list[MemoryStretch]:
    """Make a stretch of each step, of the buckets that have readings of ``stretches[since:]``.

    Those before them are of the same boot and table; they are there for what a bucket has of them, and for what was
    before. ``chain``: of all of them, where more is known than they say. ``is_cut``: no bucket reaches back to those
    before, since they do not reach back to where it begins.
    """
    chain = chain or Chain(stretches)
    table = chain.table
    about = about_all(stretches[since:])
    begin = len(chain.ticks)
    for place in chain.places[since:]:
        begin = min([begin, *place[place >= 0][:1].tolist()])
    if is_dictionary(table):
        return [last_rows(chain, about._replace(interval_ns=step_ns), begin) for step_ns in steps_ns]
    relations = {relation for stretch in stretches for relation in stretch.relations}
    course = course_of(relations, min(stretch.interval_ns for stretch in stretches))
    axes = [_axis(chain, course, step_ns, begin, is_cut=is_cut) for step_ns in steps_ns]
    made = [_Table(chain, axis) for axis in axes]
    counters = _Counters()
    for low, high in _windows(chain, axes, begin):
        slab = Slab(chain, low, high, lasting=lasts(table))
        edges = [np.append(axis.starts[(axis.starts >= low) & (axis.starts < high)], high) - low for axis in axes]
        rows_of_steps = _measured(slab, edges, counters) if lasts(table) else _moments(slab, edges)
        for axis, pieces, rows in zip(axes, made, rows_of_steps, strict=True):
            pieces.add(rows, int(np.searchsorted(axis.starts, low)) - axis.asked)
    return [
        pieces.stretch(about._replace(table=derived(table), interval_ns=axis.step_ns, is_by_rule=True))
        for axis, pieces in zip(axes, made, strict=True)
    ]


def about_all(stretches: Sequence[Stretch]) -> About:
    """What holds for all of some stretches."""
    return stretches[0].about._replace(
        table=stretches[-1].table,
        lives=list(dict.fromkeys(life for stretch in stretches for life in stretch.lives)),
        relations=sorted({relation for stretch in stretches for relation in stretch.relations}),
        holes=list(dict.fromkeys(hole for stretch in stretches for hole in stretch.holes)),
        is_by_rule=all(stretch.about.is_by_rule for stretch in stretches),
        path="",
    )


def _axis(chain: Chain, course: Course, step_ns: int, begin: int, *, is_cut: bool) -> _Axis:
    starts = statistics.cut_axis(statistics.axis_of_rows(chain.ticks), course, step_ns)
    if is_cut and begin < len(chain.ticks):
        starts, _ = statistics.distinct(np.append(starts, begin))
    return _Axis(step_ns, starts, max(0, int(np.searchsorted(starts, begin, "right")) - 1))


def _windows(chain: Chain, axes: Sequence[_Axis], begin: int) -> Iterator[tuple[int, int]]:
    """Parts of the readings in which no bucket is cut, each with so much in it as is worked on at once."""
    if begin == len(chain.ticks):
        return
    longest = max(axes, key=lambda axis: axis.step_ns)
    finest = min(axes, key=lambda axis: axis.step_ns)
    edges = longest.starts[longest.asked :]
    weight = chain.rows_per_reading()
    changes = np.bincount(chain.first, minlength=len(weight) + 1) - np.bincount(chain.gone, minlength=len(weight) + 1)
    there = np.cumsum(changes)[: len(weight)]
    weight[finest.starts] += there[finest.starts]
    total = np.append(np.add.reduceat(weight, edges), 0)
    low, cells = int(edges[0]), 0
    for edge, more in zip([*edges[1:].tolist(), len(weight)], total[1:].tolist(), strict=True):
        cells += int(total[np.searchsorted(edges, edge) - 1])
        if cells + more > CELLS_AT_ONCE or edge == len(weight):
            yield low, edge
            low, cells = edge, 0


class _BucketRows(NamedTuple):
    """Rows of some buckets: of each its bucket, int64[row], and columns, texts by their codes in the chain."""

    bucket: Int64Array
    columns: dict[str, Int64Array]


class _Table:
    """The rows of the buckets of a step, as they come; they wait in as few bytes as hold them."""

    def __init__(self, chain: Chain, axis: _Axis) -> None:
        self._chain = chain
        self._axis = axis
        starts = axis.starts[axis.asked :]
        ends = np.append(starts[1:], len(chain.ticks))[: len(starts)]
        self._last: Int64Array = chain.ticks[ends - 1]
        self._length: Int64Array = self._last - chain.ticks[starts]
        self._readings: Int64Array = ends - starts
        self._lost = np.add.reduceat(chain.lost, starts) if len(starts) else starts
        self._walked = np.maximum.reduceat(chain.walked, starts) if len(starts) else starts
        self._pieces: dict[str, list[Array]] = {}
        self._bucket: list[Int64Array] = [np.zeros(0, np.int64)]

    def add(self, rows: _BucketRows, first: int) -> None:
        """Take the rows of neighbouring buckets, of which the first has this number; below 0 it is not asked for."""
        asked = np.flatnonzero(rows.bucket + first >= 0)
        self._bucket.append(rows.bucket[asked] + first)
        for name, values in rows.columns.items():
            self._pieces.setdefault(name, []).append(narrowest(values[asked]))

    def stretch(self, about: About) -> MemoryStretch:
        """All of them. A bucket of nothing has one row that says so."""
        table, at = about.table, np.concatenate(self._bucket)
        empty = np.setdiff1d(np.arange(len(self._last)), at)
        at = np.concatenate([at, empty])
        of_nothing = {metric.name: ABSENT if metric.semantics is Semantics.STATE else 0 for metric in table.metrics}
        # Of the key all but the first group is 0.
        of_nothing.update((name, 0) for name in key_of(table) if name not in answers_of(table).others_by[:1])
        texts = [metric.name for metric in table.metrics if metric.is_text]
        used = np.zeros(len(self._chain.texts), np.bool_)
        for piece in (piece for name in texts for piece in self._pieces.get(name, ())):
            codes = numbers_of(piece)
            used[codes[~is_absent(codes)]] = True
        recoded = np.append(np.cumsum(used) - 1, ABSENT)

        def column(name: str) -> Int64Array:
            if name == LENGTH:
                return self._length[at]
            if name == READINGS:
                return self._readings[at]
            parts = [numbers_of(piece) for piece in self._pieces.get(name, ())]
            values = np.concatenate([*parts, np.full(len(empty), of_nothing[name], np.int64)])
            return recoded[filled(values, -1)] if name in texts else values

        ones = np.ones(len(self._last), np.bool_)
        readings = Readings(self._last, ones, self._lost, self._walked)
        said = [text for text, is_used in zip(self._chain.texts, used.tolist(), strict=True) if is_used]
        return MemoryStretch(about, readings, at, remembering(column), said)


def _leading(bucket: Int64Array, values: Iterable[Int64Array], ties: Int64Array) -> BoolArray:
    """Which are among the first of their bucket by one of some values; what used nothing is not."""
    leads = np.zeros(len(bucket), np.bool_)
    for value in values:
        mine = np.flatnonzero(value > 0)
        order = mine[np.lexsort((ties[mine], -value[mine], bucket[mine]))]
        of = bucket[order]
        if len(of):
            place = np.arange(len(of)) - np.searchsorted(of, of)
            leads[order[place < FIRST]] = True
    return leads


def _plus(total: Int64Array, more: Int64Array) -> Int64Array:
    """Add up; what is absent counts as nothing."""
    return total + filled(more)


def _joined(alone: Int64Array, others: Int64Array) -> Int64Array:
    return np.concatenate([alone, others])


class _Column(NamedTuple):
    """A metric at the rows of a slab, int64[row]; ``increments``: of a counter, what it grew by up to each."""

    metric: Metric
    values: Int64Array
    increments: Int64Array | None = None


class _Counters:
    """The increments of counters, a slab after the other.

    What a counter was before it was absent stands here until it is there again: what it grew by meanwhile counts once.
    """

    def __init__(self) -> None:
        # By metric: keys of the chain, in order, and what their counters last were; None before the first slab.
        self._stood: dict[str, tuple[Int64Array, Int64Array]] | None = None
        self._stands: dict[str, tuple[Int64Array, Int64Array]] = {}

    def next(self) -> None:
        """Go on to the slab after this one."""
        self._stood, self._stands = self._stands, {}

    def column(self, slab: Slab, metric: Metric) -> _Column:
        """A metric at the rows of a slab."""
        values = slab.values(metric.name)
        if metric.semantics is not Semantics.COUNTER:
            return _Column(metric, values)
        base = np.where(slab.chain.newborn[slab.keys], 0, ABSENT)
        unknown = np.flatnonzero(slab.has_base & is_absent(values[slab.begins]))
        if len(unknown):
            stood = self._before(slab, metric.name, slab.keys[unknown])
            base[unknown] = np.where(is_absent(stood), base[unknown], stood)
        made = increments(values, slab.begins, base)
        hollow = np.flatnonzero(is_absent(values[slab.ends - 1]))
        source = made.last(values, slab.begins)[hollow]
        stands = np.where(source < 0, base[hollow], values[source])
        if (known := ~is_absent(stands)).any():
            self._stands[metric.name] = slab.keys[hollow][known], stands[known]
        return _Column(metric, values, made.grown)

    def _before(self, slab: Slab, name: str, keys: Int64Array) -> Int64Array:
        """What a counter of these keys was when it was last there, before the slab."""
        if self._stood is None:
            return slab.chain.stood(name, keys, slab.low)
        there, stood = self._stood.get(name, (keys[:0], keys[:0]))
        at = np.searchsorted(there, keys)
        return np.where(np.append(there, ABSENT)[at] == keys, np.append(stood, ABSENT)[at], ABSENT)


class _Measured:
    """The buckets of one step of a slab of a table that lasts, in the making."""

    def __init__(self, slab: Slab, edges: Int64Array, ranks: int, late: Late) -> None:
        self._pairs = Pairs(slab, edges)
        self._late = late
        self._late_bucket: Int64Array = np.searchsorted(edges, late.reading, "right") - 1
        self._totals = [np.zeros(len(self._pairs.key), np.int64) for _ in range(ranks)]
        self._columns: dict[str, Int64Array] = {}

    def rank(self, number: int, column: _Column) -> None:
        """Add a column to one of the sums by which the first are found."""
        self._totals[number] = _plus(self._totals[number], self._sums(column))

    def choose(self, groups: Mapping[str, Int64Array]) -> None:
        """Find who is kept alone; the others are put together by ``groups``, columns by name."""
        pairs = self._pairs
        leads = _leading(pairs.bucket, self._totals, pairs.key)
        self._totals = []
        self._alone, self._others = np.flatnonzero(leads), np.flatnonzero(~leads)
        # What ended without a reading, or after its last one, is of the others.
        buckets = _joined(pairs.bucket[self._others], self._late_bucket)
        last = {name: pairs.last(values) for name, values in groups.items()}
        by = {name: _joined(values[self._others], self._late_of(name)) for name, values in last.items()}
        self._cell, where = numbered([buckets, *by.values()])
        self._rest, self._rest_bucket = len(where), buckets[where]
        there = self._cell[: len(self._others)]
        self._seen, self._most = statistics.distinct(there)[0], peaks_of_sums(pairs, self._others, there)
        for name, values in last.items():
            self._columns[name] = _joined(values[self._alone], by[name][where])
        self._columns[LIVED] = self._both(pairs.lived, np.zeros(len(self._late_bucket), np.int64))
        self._columns[MOST] = _joined(np.ones(len(self._alone), np.int64), self._peaks(None))

    def take(self, column: _Column, *, is_key: bool) -> None:
        """Make the columns of a metric."""
        metric, values, _ = column
        pairs, name = self._pairs, metric.name
        if metric.semantics is Semantics.STATE:
            if name not in self._columns:
                rest = np.full(self._rest, 0 if is_key else ABSENT, np.int64)
                self._columns[name] = _joined(pairs.last(values)[self._alone], rest)
            return
        self._columns[name] = self._both(self._sums(column), self._late_of(name))
        if metric.semantics is Semantics.GAUGE:
            self.take_peak(metric, values)

    def take_peak(self, metric: Metric, values: Int64Array) -> None:
        """Make the column of what a gauge was at most."""
        self._columns[metric.name + MAX] = _joined(self._pairs.peak(values)[self._alone], self._peaks(values))

    def rows(self) -> _BucketRows:
        """All of it."""
        bucket = self._pairs.bucket
        return _BucketRows(_joined(bucket[self._alone], self._rest_bucket), self._columns)

    def _late_of(self, name: str) -> Int64Array:
        return self._late.columns.get(name, np.full(len(self._late_bucket), ABSENT, np.int64))

    def _peaks(self, values: Int64Array | None) -> Int64Array:
        """The most of others together; 0 where no reading saw any."""
        peaks = np.zeros(self._rest, np.int64)
        peaks[self._seen] = self._most(values)
        return peaks

    def _sums(self, column: _Column) -> Int64Array:
        if column.increments is None:
            return self._pairs.summed(column.values)
        return self._pairs.grown(column.values, column.increments)

    def _both(self, values: Int64Array, late: Int64Array) -> Int64Array:
        return _joined(values[self._alone], sums_of(self._cell, _joined(values[self._others], late)))


def _measured(slab: Slab, edges: Sequence[Int64Array], counters: _Counters) -> list[_BucketRows]:
    """The rows of buckets between ``edges``, readings of a slab of a table that lasts; a step each."""
    table = slab.chain.table
    metrics = {metric.name: metric for metric in table.metrics}
    how = selection(table)
    steps = [_Measured(slab, edges_of_step, len(how.ranks), slab.late()) for edges_of_step in edges]
    for number, name in ((number, name) for number, rank in enumerate(how.ranks) for name in rank):
        column = counters.column(slab, metrics[name])
        for step in steps:
            step.rank(number, column)
    groups = {name: slab.values(name) for name in how.by}
    for step in steps:
        step.choose(groups)
    for metric in _bucket_metrics(table):
        column = counters.column(slab, metric)
        for step in steps:
            step.take(column, is_key=metric.name in key_of(table))
    counters.next()
    for metric in totals_in(table):
        values = summed([slab.values(name) for name in parts_of(table, metric.name)])
        for step in steps:
            step.take_peak(metric, values)
    return [step.rows() for step in steps]


class _Moments:
    """The buckets of one step of a slab of a table of moments, in the making."""

    def __init__(self, slab: Slab, edges: Int64Array, ranks: Sequence[Int64Array], by: dict[str, Int64Array]) -> None:
        self._bucket: Int64Array = np.searchsorted(edges, slab.at, "right") - 1
        leads = _leading(self._bucket, ranks, slab.key)
        self._alone, self._others = np.flatnonzero(leads), np.flatnonzero(~leads)
        mine = [values[self._others] for values in by.values()]
        self._cell, self._where = numbered([self._bucket[self._others], *mine])
        ones = np.ones(len(self._bucket), np.int64)
        self._columns = {COUNT: _joined(ones[self._alone], sums_of(self._cell, ones[self._others]))}
        self._by = by.keys()

    def take(self, name: str, values: Int64Array, how: Selection, *, is_key: bool) -> None:
        """Make the column of a metric."""
        others = values[self._others]
        if name in self._by:
            rest = others[self._where]
        elif name in how.sums:
            rest = sums_of(self._cell, others)
        else:
            rest = np.full(len(self._where), 0 if is_key else ABSENT, np.int64)
            if name in how.peaks:
                np.maximum.at(rest, self._cell, others)
        self._columns[name] = _joined(values[self._alone], rest)

    def rows(self) -> _BucketRows:
        """All of it."""
        return _BucketRows(_joined(self._bucket[self._alone], self._bucket[self._others][self._where]), self._columns)


def _moments(slab: Slab, edges: Sequence[Int64Array]) -> list[_BucketRows]:
    """The rows of buckets between ``edges``, readings of a slab of a table of moments; a step each."""
    table = slab.chain.table
    how = selection(table)
    names = {metric.name for metric in table.metrics}
    none = np.zeros(len(slab.at), np.int64)
    ranks = []
    for rank in how.ranks:
        total = none
        for name in rank:
            total = _plus(total, slab.values(name))
        ranks.append(total)
    by = {name: slab.values(name) for name in how.by}
    steps = [_Moments(slab, edges_of_step, ranks, by) for edges_of_step in edges]
    for metric in derived(table).metrics:
        if metric.name in names:
            values = slab.values(metric.name)
            for step in steps:
                step.take(metric.name, values, how, is_key=metric.name in key_of(table))
    return [step.rows() for step in steps]


def last_rows(chain: Chain, about: About, begin: int) -> MemoryStretch:
    """What each key was last: one row, at the first reading, as if it had been so all the time.

    Of all keys that were there at reading ``begin`` or later; the readings are that and the last one.
    """
    keys = np.flatnonzero(chain.gone > begin)
    ends = list(dict.fromkeys([begin, len(chain.ticks) - 1])) if begin < len(chain.ticks) else []
    readings = Readings(
        chain.ticks[ends],
        np.array([True, False][: len(ends)], np.bool_),
        np.array([chain.lost[begin:].sum(), 0][: len(ends)], np.int64),
        chain.walked[ends],
    )

    def column(name: str) -> Int64Array:
        return chain.last(name)[keys]

    return MemoryStretch(about, readings, np.zeros(len(keys), np.int64), remembering(column), chain.texts)
