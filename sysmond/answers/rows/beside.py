# SPDX-License-Identifier: Apache-2.0
"""What another long table has of the same things: ``gpu_process.gpu_memory@@`` beside each process, by its key.

The other table is asked the same: over the same range, in the same steps. Rows are of one thing where all of their keys
are equal, and their starts within a tick of the kernel's clock.
"""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from sysmond.answers.rows.columns import Spec
from sysmond.base.clock import SECOND_NS
from sysmond.base.formula import Operand
from sysmond.base.model import START, Semantics
from sysmond.base.result import Float64Array, Int64Array, Result
from sysmond.store.stretches.ends import GRAIN_NS


class Beside:
    """One metric of another table, by bucket and key."""

    def __init__(self, key: Mapping[str, Spec], values: Mapping[tuple[float, ...], list[tuple[float, float]]]) -> None:
        """``key``: columns that say what a row is about. ``values``: starts and values, by bucket and the others."""
        self._key = key
        self._values = values
        self._known = sorted({key[1] for key in values})

    def __call__(self, cells: Callable[[Spec], Float64Array], bucket: Int64Array) -> Float64Array:
        """What rows have, float64[row], NaN where there is nothing; ``cells``: the numbers of a column of theirs."""
        numbers = np.full(len(bucket), np.nan)
        if not self._values:
            return numbers
        others = [cells(spec) for name, spec in self._key.items() if name != START]
        starts = cells(self._key[START])
        for row in np.flatnonzero(np.isin(others[0], self._known)).tolist():
            for start_s, value in self._values.get((float(bucket[row]), *(float(of[row]) for of in others)), ()):
                if abs(start_s - starts[row]) < GRAIN_NS / SECOND_NS:
                    numbers[row] = value
        return numbers


def beside(
    key: Mapping[str, Spec], operands: Collection[Operand], answer: Result | None, stamps_ns: Int64Array
) -> dict[Operand, Beside]:
    """Values by operand; ``answer``: what the other table answered, columns of the key and then of the operands.

    ``stamps_ns``: of the buckets, int64[bucket].
    """
    if answer is None or not len(answer.times_ns):
        return {operand: Beside(key, {}) for operand in operands}
    columns = [_numbers(answer, place) for place in range(len(answer.columns))]
    bucket = np.searchsorted(stamps_ns, answer.times_ns, "right") - 1
    start = [*key].index(START)
    by_operand = {}
    for place, operand in enumerate(operands, len(key)):
        values: dict[tuple[float, ...], list[tuple[float, float]]] = {}
        for row in np.flatnonzero(~np.isnan(columns[place])).tolist():
            others = (float(columns[at][row]) for at in range(len(key)) if at != start)
            start_and_value = float(columns[start][row]), float(columns[place][row])
            values.setdefault((float(bucket[row]), *others), []).append(start_and_value)
        by_operand[operand] = Beside(key, values)
    return by_operand


def _numbers(answer: Result, place: int) -> Float64Array:
    """A column, in its unit; what is shown as percent of a counter is a share in formulas."""
    column = answer.columns[place]
    if column.is_time and column.integers is not None:
        return np.asarray(column.integers / 10.0**column.scale, np.float64)
    factor = 0.01 if column.semantics is Semantics.COUNTER and column.unit == "%" else 1.0
    return np.asarray(column.values * factor, np.float64)
