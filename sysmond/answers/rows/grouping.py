# SPDX-License-Identifier: Apache-2.0
"""Rows put together, and the first of them: groups with their sums, percentiles over steps, the top of each bucket."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sysmond.answers.rows.batch import VALUES_MAX, Cells, NumberColumn, Question, RowBatch, Rows
from sysmond.answers.rows.columns import LAST, MAX, MEAN, MIN, SUM, Of, Spec, is_amount
from sysmond.answers.rows.summary import STATISTICS as SUMMARY
from sysmond.base.model import ABSENT, Semantics
from sysmond.base.result import Array, Float64Array, Int64Array
from sysmond.errors import UsageError
from sysmond.rollup.condition import Words
from sysmond.rollup.spread import Spread, percentile
from sysmond.store.coding.integers import narrowest, numbers_of
from sysmond.store.stretches.stretch import begins_of

# Statistics that groups have: of others, no sum means anything.
OF_GROUPS = (MEAN, SUM, MAX, LAST, "count")


def rows_of(batch: RowBatch, specs: Iterable[Spec], boot: int) -> Rows:
    """Rows of a batch, which is of a boot of this number, with these columns."""
    columns = {spec.label: batch.cells(spec) for spec in specs}
    return Rows(batch.bucket, batch.times_ns, columns, np.full(len(batch.bucket), boot, np.int64))


def first(bucket: Int64Array, by: Cells, top: int) -> Int64Array:
    """Which rows are the first of their bucket by a column, largest first: int64[kept], in order; all for a top of 0.

    What has no value comes last. Texts are in alphabetical order.
    """
    weight = -rank(by)
    weight[np.isnan(weight)] = np.inf
    order = np.lexsort((weight, bucket))
    if not top:
        return order
    ordered = bucket[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, ordered, "left")
    return order[place < top]


def rank(cells: Cells) -> Float64Array:
    """Numbers by which rows are put in order, float64[row]; of texts, those that come first are larger."""
    if isinstance(cells, NumberColumn):
        return cells.floats().copy()
    places = np.empty(len(cells.texts) + 1)
    places[np.argsort(np.array([*cells.texts], object), kind="stable")] = -np.arange(len(cells.texts))
    places[-1] = np.nan
    return places[cells.codes]


def grouped(batch: RowBatch, question: Question) -> Rows:
    """The groups of a batch, with the sums of their rows; of the largest, the largest. They are of no boot."""
    specs = [spec for spec in question.parts([*question.columns, question.by]) if spec not in question.groups]
    own = {spec.label: _narrowed(_without_empty(batch.cells(spec))) for spec in question.groups}
    keys = [_codes(cells) for cells in own.values()]
    order = np.lexsort((*reversed(keys), batch.bucket))
    begins = begins_of([batch.bucket, *keys], order)
    columns: dict[str, Cells] = {}
    for label, cells in own.items():
        columns[label] = _widened(take(cells, order[begins]))
    for spec in specs:
        columns[spec.label] = _summed(_addends(batch, spec), order, begins, largest=spec.stat == MAX)
    times = batch.times_ns[order[begins]]
    return Rows(batch.bucket[order[begins]], times, columns, np.zeros(len(begins), np.int64))


def check_summable(spec: Spec, groups: Sequence[Spec], *, lasting: bool, amount: bool) -> None:
    """Refuse a column that means nothing of a group.

    :raises UsageError: naming it.
    """
    if spec.label in {group.label for group in groups} or spec.of is Of.COUNT:
        return
    if spec.stat not in OF_GROUPS:
        raise UsageError(f"column {spec.label!r}: groups have no {spec.stat}; expected {', '.join(OF_GROUPS)}")
    if spec.is_text or (spec.semantics is Semantics.STATE and (lasting or not amount)):
        labels = ",".join(group.label for group in groups)
        raise UsageError(
            f"column {spec.label!r}: differs within a group by {labels}; expected a column that can be summed"
        )


def _without_empty(cells: Cells) -> Cells:
    """An empty text is none: who is in no unit is in the same group as who is in no control group at all."""
    if isinstance(cells, Words) and "" in cells.texts:
        empty = [code for code, text in enumerate(cells.texts) if not text]
        return cells._replace(codes=np.where(np.isin(cells.codes, empty), -1, cells.codes))
    return cells


def _narrowed(cells: Cells) -> Cells:
    """The same with integers in the fewest bytes, in the same order: those by which rows are put together are many."""
    if isinstance(cells, Words):
        return cells._replace(codes=narrowest(cells.codes))
    if cells.values.dtype == np.float64:
        return cells
    return cells._replace(values=narrowest(cells.values.astype(np.int64, copy=False)))


def _widened(cells: Cells) -> Cells:
    """The way back."""
    if isinstance(cells, Words):
        return cells._replace(codes=numbers_of(cells.codes))
    return cells if cells.values.dtype == np.float64 else cells._replace(values=numbers_of(cells.values))


def _codes(cells: Cells) -> Array:
    """By what rows are told apart: integers."""
    if isinstance(cells, Words):
        return cells.codes
    return cells.values.astype(np.int64) if cells.values.dtype == np.float64 else cells.values


def _addends(batch: RowBatch, spec: Spec) -> NumberColumn:
    """What the rows of a group add: of averages of gauges, what they come to over all of the time."""
    if spec.stat == MEAN and spec.semantics is Semantics.GAUGE:
        return NumberColumn(batch.mass(spec))
    cells = batch.cells(spec)
    if isinstance(cells, Words):
        raise TypeError(spec.label)
    return cells


def _summed(addends: NumberColumn, order: Int64Array, begins: Int64Array, *, largest: bool) -> NumberColumn:
    values = addends.values[order]
    absent = np.isnan(values) if values.dtype == np.float64 else values == ABSENT
    none = np.logical_and.reduceat(absent, begins) if len(begins) else np.zeros(0, bool)
    if largest:
        peaks = np.maximum.reduceat(np.where(absent, np.iinfo(np.int64).min, values), begins)
    else:
        peaks = np.add.reduceat(np.where(absent, 0, values), begins)
    return NumberColumn(np.where(none, np.nan if values.dtype == np.float64 else ABSENT, peaks), addends.scale)


def take(cells: Cells, rows: Int64Array) -> Cells:
    """Some rows of a column, int64[row]."""
    if isinstance(cells, Words):
        return cells._replace(codes=cells.codes[rows])
    return cells._replace(values=cells.values[rows])


def only(rows: Rows, chosen: Int64Array) -> Rows:
    """Some rows, int64[row]."""
    columns = {name: take(cells, chosen) for name, cells in rows.columns.items()}
    return Rows(rows.bucket[chosen], rows.times_ns[chosen], columns, rows.boot[chosen])


def size(piece: Rows) -> int:
    """How many values that are."""
    return len(piece.bucket) * len(piece.columns)


def check_size(values: int) -> None:
    """Refuse an answer of too many values.

    :raises UsageError: where they are.
    """
    if values > VALUES_MAX:
        raise UsageError(f"more than {VALUES_MAX} values; ask for fewer columns, --top or a longer --sample")


def joined(pieces: Sequence[Rows]) -> Rows:
    """All rows, one piece after the other.

    :raises UsageError: where they are too many.
    """
    check_size(sum(map(size, pieces)))
    names = pieces[0].columns
    return Rows(
        np.concatenate([piece.bucket for piece in pieces]),
        np.concatenate([piece.times_ns for piece in pieces]),
        {name: _joined([piece.columns[name] for piece in pieces]) for name in names},
        np.concatenate([piece.boot for piece in pieces]),
    )


def _joined(pieces: Sequence[Cells]) -> Cells:
    codes: dict[str, int] = {}
    words: list[Int64Array] = []
    numbers: list[NumberColumn] = []
    for piece in pieces:
        if isinstance(piece, Words):
            of_piece = np.array([*(codes.setdefault(text, len(codes)) for text in piece.texts), -1], np.int64)
            words.append(of_piece[piece.codes])
        else:
            numbers.append(piece)
    if words:
        return Words(np.concatenate(words), list(codes))
    scale = max(piece.scale for piece in numbers)
    return NumberColumn(np.concatenate([_scaled(piece, scale) for piece in numbers]), scale)


def _scaled(piece: NumberColumn, scale: int) -> Int64Array | Float64Array:
    if piece.values.dtype == np.float64 or piece.scale == scale:
        return piece.values
    return np.where(piece.values == ABSENT, ABSENT, piece.values * 10 ** (scale - piece.scale))


def regrouped(rows: Rows, labels: Sequence[str], largest: frozenset[str]) -> Rows:
    """Put groups of several boots together, which share buckets and names."""
    return _merged(rows, [rows.bucket, *(_codes(rows.columns[label]) for label in labels)], labels, largest)


def _merged(rows: Rows, keys: Sequence[Int64Array], labels: Sequence[str], largest: frozenset[str]) -> Rows:
    order = np.lexsort(tuple(reversed(keys)))
    begins = begins_of(keys, order)
    columns: dict[str, Cells] = {}
    for name, cells in rows.columns.items():
        if name in labels or isinstance(cells, Words):
            columns[name] = take(cells, order[begins])
        else:
            columns[name] = _summed(cells, order, begins, largest=name in largest)
    return Rows(rows.bucket[order[begins]], rows.times_ns[order[begins]], columns, rows.boot[order[begins]])


def percentiles(rows: Rows, identity: Sequence[str], percent: float, specs: Mapping[str, Spec]) -> Rows:
    """One row for all steps of a key or group: percentiles of its numbers, and the last of what is no amount."""
    keys = [rows.boot, *(_codes(rows.columns[name]) for name in identity)]
    order = np.lexsort((rows.times_ns, *reversed(keys)))
    begins = begins_of(keys, order)
    ends = np.append(begins[1:], len(order))
    columns: dict[str, Cells] = {}
    for name, cells in rows.columns.items():
        spec = specs.get(name)
        if isinstance(cells, Words) or name in identity or spec is None or spec.semantics is Semantics.STATE:
            columns[name] = take(cells, order[ends - 1])
            continue
        values = cells.floats()[order]
        parts = [values[low:high] for low, high in zip(begins.tolist(), ends.tolist(), strict=True)]
        columns[name] = NumberColumn(np.array([_percentile(part, percent) for part in parts]))
    times = np.full(len(begins), rows.times_ns.min() if len(rows.times_ns) else 0)
    return Rows(np.zeros(len(begins), np.int64), times, columns, rows.boot[order[begins]])


def _percentile(values: Float64Array, percent: float) -> float:
    present = values[~np.isnan(values)]
    return float(np.percentile(present, percent)) if len(present) else float("nan")


def without_average(question: Question) -> list[str]:
    """The columns that have none, by what they are called."""
    return [spec.label for spec in question.columns if spec.is_text or not is_amount(question.table, spec)]


def summary_of(question: Question, rows: Rows | None) -> tuple[Question, Rows | None]:
    """One row for all rows, and the question that asks for it.

    :raises UsageError: where no column has an average.
    """
    states = without_average(question)
    specs = [spec for spec in question.columns if spec.label not in states]
    if not specs:
        raise UsageError(f"summary: none of the chosen columns of {question.table.name!r} has an average")
    made: dict[str, Cells] = {}
    wanted: list[Spec] = []
    for spec in specs:
        for stat in SUMMARY:
            wanted.append(spec._replace(label=f"{spec.label}:{stat}", stat=stat))
            if rows is not None and not isinstance(cells := rows.columns[spec.label], Words):
                made[wanted[-1].label] = NumberColumn(np.array([_statistic(cells.floats(), stat)]))
    asked = question._replace(columns=wanted)
    if rows is None or not len(rows.times_ns):
        return asked, None
    none = np.zeros(1, np.int64)
    return asked, Rows(none, rows.times_ns.min(keepdims=True), made, none)


def _statistic(values: Float64Array, stat: str) -> float:
    """One statistic of values, float64[row]; NaN where there is none."""
    known = values[~np.isnan(values)]
    if stat == MEAN:
        return float(known.mean()) if len(known) else float("nan")
    percent = {MIN: 0.0, MAX: 100.0}.get(stat, 95.0)
    each = Spread(np.zeros(len(known), np.int64), known, np.ones(len(known), np.int64))
    return float(percentile(each, percent, 1)[0])
