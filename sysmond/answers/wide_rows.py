# SPDX-License-Identifier: Apache-2.0
"""Answers about wide tables as rows: one an instance (``sda``, ``cpu3``) and step, a column a metric and statistic.

The values are those of the series (``wide``): what answers, from which tier, and why there are gaps is decided there.
Here they are laid beside each other, and filtered, grouped and cut to the first like the rows of every table.
A column is spelled ``METRIC`` or ``METRIC:STATISTIC``; ``METRIC`` alone is the mean, of states what it was last.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from sysmond.answers import dropping, wide
from sysmond.answers.rows import grouping
from sysmond.answers.rows.batch import Cells, NumberColumn, Question, RowBatch, meeting
from sysmond.answers.rows.columns import COUNT, LAST, MEAN, SUM, Of, Offer, Spec, Specs, with_derived
from sysmond.answers.rows.question import Request, asked_of, column, finished, times_of
from sysmond.answers.times import Times
from sysmond.base import paths
from sysmond.base.model import ABSENT, Answers, Derived, Metric, Semantics, Sensitivity, Table, rate_unit
from sysmond.base.result import TIME_SCALE, TIME_UNIT, BoolArray, Column, Float64Array, Int64Array, Result
from sysmond.base.statistic import STATISTICS
from sysmond.errors import Error, NotPermittedError
from sysmond.machine import snapshot_note
from sysmond.machine.folders import Folders
from sysmond.rollup.condition import TEXT, Words
from sysmond.store.timeline import Timeline

# What a row is about; absent where a table is about the whole system.
INSTANCE = "instance"
_COUNTED = "count"
# Statistics of derived columns.
_OF_DERIVED = tuple(stat for stat in STATISTICS if stat != SUM)
_INSTANCE = Spec(INSTANCE, INSTANCE, LAST, TEXT, 0, Semantics.STATE, Of.KEY)
_COUNT = Spec(COUNT, COUNT, LAST, "1", 0, Semantics.GAUGE, Of.COUNT)


def answer(place: Folders, classes: Collection[Sensitivity], request: Request) -> Result:
    """Answer a question to a wide table with rows.

    :raises UsageError: for a wrong column, condition, time or step. :raises NotPermittedError: where the table may not
        be read. :raises Error: where nothing is recorded.
    """
    when = times_of(request, snapshot_note.now(place.state))
    return wide.opened(place, classes, when, request.boot, lambda line: _from_line(line, place, request, when))


def _from_line(line: Timeline, place: Folders, request: Request, when: Times) -> Result:
    table = declared(line, request.table)
    drop = dropping.parse(request.drop, place.state)
    recorded = line.keys() if drop else ()
    instances = {key.instance for key in recorded if key.table == table.name}
    question, notes = dropping.left_of_columns(_asked(request, line, table), drop, instances)
    wanted = _wanted(question)
    patterns = [f"{table.name}/{metric}" for metric in wanted]
    of_instances = [dropped for dropped in drop if dropped.is_of_instances]
    series = wide.SeriesQuestion(
        patterns,
        when,
        request.boot,
        lambda key: wanted[key.metric],
        raw=request.raw,
        explain=request.explain,
        is_whole=not when.step_ns,
        drop=of_instances,
    )
    result = wide.answer_from(line, place, series)
    grid = _Grid(table, result)
    batch = grid.batch(_specs(question))
    if question.derived:
        from sysmond.answers import other_tables  # noqa: PLC0415  few ask for them

        span, boot = (when.start_ns, when.end_ns), wide.find_boot(line, request.boot)
        made_of = other_tables.with_others(line, question.derived, span, boot, result.times_ns, result.step_ns)
        question = question._replace(derived=made_of)
    pieces = []
    for rows in meeting(question, [batch]):
        specs = dict.fromkeys([*question.columns, *_ranked(question), _INSTANCE])
        pieces.append(grouping.grouped(rows, question) if question.groups else grouping.rows_of(rows, specs, 0))
        grouping.check_size(grouping.size(pieces[-1]))
    made = finished(question, pieces, [INSTANCE], request.percentile, result.times_ns) if pieces else None
    if request.explain:
        from sysmond.answers.explain_rows import of_series  # noqa: PLC0415  few ask for it

        is_whole = not when.step_ns and not request.raw
        explained = of_series(question, result.explanations, result.gaps, request.percentile, is_whole=is_whole)
        result = result._replace(explanations=explained)
    return result._replace(
        times_ns=np.zeros(0, np.int64) if made is None else made.times_ns,
        columns=tuple(
            column(spec, None if made is None else made.columns[spec.label], grid.decimals.get(_key(spec)))
            for spec in question.columns
        ),
        table=table.name,
        notes=(*notes, *result.notes),
    )


def offer(table: Table) -> Offer:
    """The columns that rows of a wide table may have."""
    specs = Specs({INSTANCE: _INSTANCE})
    for metric in table.metrics:
        first = LAST if metric.semantics is Semantics.STATE else MEAN
        specs[metric.name] = _spec(metric, first)
        for stat in STATISTICS:
            spec = _spec(metric, stat)
            specs[f"{metric.name}:{stat}"] = spec._replace(label=f"{metric.name}:{stat}")
    specs[COUNT] = _COUNT
    shown = [metric.name for metric in table.metrics]
    by = next(
        (metric.name for kind in (Semantics.COUNTER, Semantics.GAUGE) for metric in table.metrics
         if metric.semantics is kind),
        COUNT,
    )  # fmt: skip
    summed = [metric.name for metric in table.metrics if metric.semantics is not Semantics.STATE]
    answers = Answers(by=by, show=((INSTANCE,) if table.per else ()) + tuple(shown), show_groups=tuple(summed))
    return Offer(table, specs, answers, {})


def _asked(request: Request, line: Timeline, table: Table) -> Question:
    if request.raw:
        return asked_of(request, raw := _offer_raw(table), lambda: _raw_with_derived(raw, line.derived(table.name)))
    return asked_of(request, offer(table), lambda: _with_derived(table, line.derived(table.name)))


def _with_derived(table: Table, derived: Mapping[str, Derived]) -> Offer:
    return with_derived(offer(table), derived, _spec, _OF_DERIVED)


def _offer_raw(table: Table) -> Offer:
    """The same of values as they are stored."""
    specs = Specs({INSTANCE: _INSTANCE})
    for metric in table.metrics:
        specs[metric.name] = _spec_raw(metric)
    specs[COUNT] = _COUNT
    return offer(table)._replace(specs=specs)


def _raw_with_derived(raw: Offer, derived: Mapping[str, Derived]) -> Offer:
    """The same with derived columns, which series have for each reading."""
    return with_derived(raw, derived, lambda metric, _: _spec_raw(metric))


def _spec_raw(metric: Metric) -> Spec:
    return Spec(metric.name, metric.name, "raw", metric.unit, metric.scale, metric.semantics, Of.METRIC)


def described(table: Table, derived: Mapping[str, Derived]) -> Iterator[tuple[str, str, str]]:
    """The columns that rows of a table may have: name, unit, what it is; of those that are derived the formula, too."""
    docs = {metric.name: metric.doc for metric in table.metrics}
    docs |= {name: column.described for name, column in derived.items()}
    for label, spec in _with_derived(table, derived).specs.items():
        yield label, spec.unit, docs.get(spec.name, "")


def _spec(metric: Metric, stat: str) -> Spec:
    unit, scale, semantics = metric.unit, metric.scale, metric.semantics
    if stat == _COUNTED:
        unit, scale, semantics = "1", 0, Semantics.GAUGE
    elif stat == "tmax":
        unit, scale, semantics = TIME_UNIT, TIME_SCALE, Semantics.STATE
    elif metric.semantics is Semantics.COUNTER and stat != SUM:
        unit = rate_unit(unit)
    return Spec(metric.name, metric.name, stat, unit, scale, semantics, Of.METRIC)


def declared(line: Timeline, name: str) -> Table:
    """A table as it is declared by what is recorded of it.

    :raises Error: where there is none, or it may not be read.
    """
    if metrics := tuple(line.metrics(name).values()):
        recorded = line.keys()
        has_instances = any(key.instance for key in recorded if key.table == name)
        return Table(name, metrics, per=(line.declared[name][0].table.per or INSTANCE) if has_instances else "")
    line.demand((), (), is_empty=True)
    if line.refused:
        raise NotPermittedError(f"table {name!r}: no permission to read {line.refused[0]}")
    known = {*line.declared, *line.long_tables()}
    if known and wide.is_planned(name, line.folders):
        raise Error(paths.not_recorded(name))
    from sysmond.machine.lock import elsewhere  # noqa: PLC0415  only for an error

    raise paths.no_rows(name, known, hint=elsewhere(line.folders), declared=wide.planned_tables(line.folders))


def _specs(question: Question) -> list[Spec]:
    """Every column that an answer looks at."""
    labels = sorted(question.where.columns) if question.where else ()
    conditions = [question.specs[label] for label in labels]
    shown = [*question.columns, *question.groups, *_ranked(question)]
    return list(dict.fromkeys([*(question.parts(shown) if question.groups else shown), *conditions]))


def _ranked(question: Question) -> list[Spec]:
    """The column that rows are put in order by, if they are."""
    return [question.by] if question.is_ranked else []


def _wanted(question: Question) -> Mapping[str, Sequence[str]]:
    """Which statistics of which metrics are read: of the first metric, how often it was there, where none is asked."""
    wanted: dict[str, dict[str, None]] = {}
    for spec in _specs(question):
        if spec.of is Of.METRIC:
            wanted.setdefault(spec.name, {})[spec.stat] = None
            if question.groups and spec.stat == MEAN:
                wanted[spec.name][_COUNTED] = None
    if not wanted:
        wanted[question.table.metrics[0].name] = {_COUNTED: None}
    return {metric: tuple(stats) for metric, stats in wanted.items()}


def _key(spec: Spec) -> tuple[str, str]:
    return spec.name, spec.stat


class _Grid:
    """Series beside each other: by metric and statistic a matrix [bucket, instance]."""

    def __init__(self, table: Table, result: Result) -> None:
        self.decimals: dict[tuple[str, str], int] = {}
        self._times_ns = result.times_ns
        self._columns: dict[tuple[str, str], dict[str, Column]] = {}
        for series in result.columns:
            metric, _, instance = series.path.removeprefix(f"{table.name}/").partition("@")
            key = metric, series.stat
            self._columns.setdefault(key, {})[instance] = series
            decimals = series.decimals if series.integers is None else series.scale
            self.decimals[key] = max(self.decimals.get(key, 0), decimals)
        self._instances = sorted({instance for each in self._columns.values() for instance in each})

    def batch(self, specs: Iterable[Spec]) -> "_WideBatch":
        """Rows in which anything that is asked for is there, in order of time and instance."""
        buckets, instances = len(self._times_ns), len(self._instances)
        cells: dict[str, Cells] = {}
        every = {key: self._cells(columns) for key, columns in self._columns.items()}
        known = np.zeros(buckets * instances, bool)
        for key, each in every.items():
            known |= _is_there(each, is_count=key[1] == _COUNTED)
        rows = np.flatnonzero(known)
        for spec in specs:
            if spec.of is Of.METRIC:
                cells[spec.label] = grouping.take(every.get(_key(spec)) or self._cells({}), rows)
        names = [instance or None for instance in self._instances]
        codes = np.array([-1 if name is None else code for code, name in enumerate(names)], np.int64)
        cells[INSTANCE] = Words(codes[rows % max(1, instances)], self._instances)
        cells[COUNT] = NumberColumn(np.ones(len(rows), np.int64))
        counts = {metric: grouping.take(each, rows) for (metric, stat), each in every.items() if stat == _COUNTED}
        bucket = rows // max(1, instances)
        return _WideBatch(bucket, self._times_ns[bucket], cells, counts)

    def _cells(self, columns: Mapping[str, Column]) -> Cells:
        """The values of a metric and statistic, by instance: a cell a bucket and instance."""
        shape = len(self._times_ns), len(self._instances)
        if any(each.texts is not None for each in columns.values()):
            return self._words(columns)
        if any(each.floats is not None for each in columns.values()):
            floats = np.full(shape, np.nan)
            for place, instance in enumerate(self._instances):
                if instance in columns:
                    floats[:, place] = columns[instance].values
            return NumberColumn(floats.ravel())
        integers = np.full(shape, ABSENT, np.int64)
        scale = max((each.scale for each in columns.values()), default=0)
        for place, instance in enumerate(self._instances):
            if instance in columns and (values := columns[instance].integers) is not None:
                integers[:, place] = values
        return NumberColumn(integers.ravel(), scale)

    def _words(self, columns: Mapping[str, Column]) -> Words:
        codes: dict[str, int] = {}
        cells = np.full((len(self._times_ns), len(self._instances)), -1, np.int64)
        for place, instance in enumerate(self._instances):
            if instance in columns:
                texts = columns[instance].texts or ()
                cells[:, place] = [-1 if text is None else codes.setdefault(text, len(codes)) for text in texts]
        return Words(cells.ravel(), list(codes))


def _is_there(cells: Cells, *, is_count: bool) -> BoolArray:
    """Which cells have a value, bool[row]; of counts those that are above 0."""
    if isinstance(cells, Words):
        return cells.codes >= 0
    if is_count:
        return cells.values > 0
    return ~np.isnan(cells.values) if cells.values.dtype == np.float64 else cells.values != ABSENT


class _WideBatch(RowBatch):
    """Rows of a wide table, of all boots together: a series goes on from one to the next."""

    def __init__(
        self, bucket: Int64Array, times_ns: Int64Array, cells: Mapping[str, Cells], counts: Mapping[str, Cells]
    ) -> None:
        """``counts``: how many values the metrics of averages had in each row."""
        super().__init__("", bucket, times_ns)
        self._cells = cells
        self._counts = counts

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        return self._cells[spec.label]

    def mass(self, spec: Spec, /) -> Float64Array:
        """The average of a gauge, by the share of the bucket in which it was there: float64[row]."""
        values, counts = self._cells[spec.label], self._counts[spec.name]
        if isinstance(values, Words) or isinstance(counts, Words):
            raise TypeError(spec.label)
        number = np.maximum(counts.values, 0).astype(np.float64)
        most = np.zeros(int(self.bucket.max(initial=-1)) + 1)
        np.maximum.at(most, self.bucket, number)
        return values.floats() * number / np.maximum(most[self.bucket], 1.0)

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        super().keep(rows)
        self._cells = {label: grouping.take(each, rows) for label, each in self._cells.items()}
        self._counts = {metric: grouping.take(each, rows) for metric, each in self._counts.items()}
