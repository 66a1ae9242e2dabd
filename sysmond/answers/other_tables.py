# SPDX-License-Identifier: Apache-2.0
"""What formulas of derived columns of rows need of other tables: ``memory.total`` beside each process."""

from collections.abc import Mapping

import numpy as np

from sysmond.answers.rows.columns import MEAN, FormulaColumn
from sysmond.answers.series.derived import Computing
from sysmond.answers.series.query import Query
from sysmond.base.result import Int64Array
from sysmond.store.of_ring import SeriesKey
from sysmond.store.timeline import Timeline


def with_others(
    line: Timeline,
    columns: Mapping[str, FormulaColumn],
    span: tuple[int, int],
    boot: str | None,
    stamps_ns: Int64Array,
    step_ns: int,
) -> dict[str, FormulaColumn]:
    """Give columns of rows what other tables have over a range: a mean a bucket; ``stamps_ns``: int64[bucket].

    :raises TooLittleError: where what was left out of the time line may matter.
    """
    operands = {
        name
        for column in columns.values()
        for name in column.formula.operands
        if name.table and name not in column.beside
    }
    line.demand({name.table for name in operands}, ())
    computing = Computing(Query(line, [], *span, boot), line, span)
    axis = stamps_ns // step_ns if step_ns else np.zeros(len(stamps_ns), np.int64)
    values = {name: computing.other(SeriesKey(*name), MEAN, axis, step_ns) for name in operands}
    return {
        label: column._replace(others={name: values[name] for name in column.formula.operands if name in values})
        for label, column in columns.items()
    }
