# SPDX-License-Identifier: Apache-2.0
"""Exit codes. A process that a signal ended has none: the kernel says 0 then, as if all had gone well. Pure."""

from collections.abc import Callable

import numpy as np

from sysmond.base.model import ABSENT, Table
from sysmond.base.result import Int64Array
from sysmond.store.stretches.undeclared import answers_of

# By which joins a table says that it has exit codes, and signals.
_EXIT, _SIGNAL = ":exit", ":signal"


def without_killed(table: Table, name: str, stored: Callable[[str], Int64Array]) -> Int64Array:
    """What rows have of a metric, int64[row]; ``stored``: gives the numbers of a metric as they are stored."""
    values = stored(name)
    numbers = {join.table: join.by[0][0] for join in answers_of(table).joins}
    if numbers.get(_EXIT) != name or numbers.get(_SIGNAL) not in {metric.name for metric in table.metrics}:
        return values
    signals = stored(numbers[_SIGNAL])
    return np.where((signals == 0) | (signals == ABSENT), values, ABSENT)
