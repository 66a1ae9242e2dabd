# SPDX-License-Identifier: Apache-2.0
"""Rows of an answer, whatever table they are of: a question, checked, and batches of rows, to be filtered.

A **batch** is some rows of one boot, whose columns are computed when they are asked for: first those of the condition,
then that by which the first are chosen, and of what is left after that all others. Batches are made one after the
other, so memory is bounded by what is kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sysmond.answers.rows.columns import FormulaColumn, Of, Spec
from sysmond.base.model import ABSENT, Table
from sysmond.base.result import TIME_UNIT, Float64Array, Gap, Int64Array
from sysmond.rollup.condition import Condition, Lookup, Values, Words

# More than this is a wrong step or range, not a question: an answer is held in memory.
VALUES_MAX = 50_000_000


class NumberColumn(NamedTuple):
    """A column of numbers: int64[row] of a scale, ABSENT where there is none; or float64[row] with NaN."""

    values: Int64Array | Float64Array
    scale: int = 0

    def floats(self) -> Float64Array:
        """The numbers in their unit."""
        numbers: Float64Array
        if self.values.dtype == np.float64:
            numbers = self.values.astype(np.float64, copy=False)
            return numbers
        numbers = self.values / 10.0**self.scale
        numbers[self.values == ABSENT] = np.nan
        return numbers


Cells = NumberColumn | Words


class Question(NamedTuple):
    """What is asked, checked. ``top``: 0 for all; ``is_ranked``: whether rows are put in order ``by`` a column."""

    table: Table
    columns: Sequence[Spec]
    where: Condition | None
    specs: Mapping[str, Spec]
    groups: Sequence[Spec]
    by: Spec
    top: int
    is_ranked: bool
    derived: Mapping[str, FormulaColumn] = MappingProxyType({})

    def parts(self, specs: Iterable[Spec]) -> list[Spec]:
        """These columns, instead of derived ones those that they are made of; each once."""
        parts: dict[Spec, None] = {}
        for spec in specs:
            made_of = self.derived.get(spec.label)
            parts.update(dict.fromkeys([spec] if made_of is None else made_of.own.values()))
        return list(parts)


class Rows(NamedTuple):
    """Rows of an answer: the number of the bucket and the time (UTC) of each, int64[row], and columns by label.

    ``boot``: number of the boot of each, int64[row], which tells apart what is called alike; 0 where none is meant.
    """

    bucket: Int64Array
    times_ns: Int64Array
    columns: Mapping[str, Cells]
    boot: Int64Array


class RowBatch(ABC):
    """Rows of one boot. ``bucket``, ``times_ns``: of each the number of its bucket, and its time in UTC: int64[row]."""

    def __init__(self, boot: str, bucket: Int64Array, times_ns: Int64Array) -> None:
        self.boot = boot
        self.bucket = bucket
        self.times_ns = times_ns

    @abstractmethod
    def cells(self, spec: Spec) -> Cells:
        """A column."""

    def resets(self) -> Collection[Gap]:
        """Where counters that were asked for began anew, so far."""
        return ()

    @abstractmethod
    def mass(self, spec: Spec, /) -> Float64Array:
        """What an average of a gauge is made of: its integral over time, float64[row]."""

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        self.bucket, self.times_ns = self.bucket[rows], self.times_ns[rows]


class DerivingBatch(RowBatch):
    """Rows of another batch, with derived columns."""

    def __init__(self, batch: RowBatch, derived: Mapping[str, FormulaColumn]) -> None:
        super().__init__(batch.boot, batch.bucket, batch.times_ns)
        self._batch = batch
        self._derived = derived

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        if spec.of is not Of.DERIVED:
            return self._batch.cells(spec)
        return NumberColumn(self._derived[spec.label].of(lambda part: numbers(self._batch.cells(part)), self.bucket))

    def resets(self) -> Collection[Gap]:
        """As of those rows."""
        return self._batch.resets()

    def mass(self, spec: Spec, /) -> Float64Array:
        """As of those rows."""
        return self._batch.mass(spec)

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        super().keep(rows)
        self._batch.keep(rows)


def numbers(cells: Cells) -> Float64Array:
    """The numbers of a column, float64[row].

    :raises TypeError: for texts.
    """
    if isinstance(cells, Words):
        raise TypeError("texts where numbers should be")
    return cells.floats()


def lookup(batch: RowBatch, specs: Mapping[str, Spec]) -> Lookup:
    """Columns of a batch, as conditions ask for them."""

    def values_of(label: str) -> Values:
        spec = specs[label]
        cells = batch.cells(spec)
        if isinstance(cells, Words):
            return cells
        return cells.values if spec.unit == TIME_UNIT else cells.floats()

    return values_of


def meeting(question: Question, batches: Iterable[RowBatch]) -> Iterator[RowBatch]:
    """The rows of batches that meet the condition."""
    for batch in batches:
        rows: RowBatch = DerivingBatch(batch, question.derived) if question.derived else batch
        if question.where is not None:
            rows.keep(np.flatnonzero(question.where.test(lookup(rows, question.specs))))
        if len(rows.bucket):
            yield rows
