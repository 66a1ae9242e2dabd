# SPDX-License-Identifier: Apache-2.0
"""The summary of a range: average, smallest, largest and 95th percentile of what has one.

Of series and of rows that last it is nothing but these statistics over the whole range. Rows of their own moment have
one value each: their summary is over the rows, in one row.
"""

from sysmond.base.model import Semantics
from sysmond.base.result import Result
from sysmond.errors import UsageError

STATISTICS = ("mean", "min", "max", "p95")


def check(**others: object) -> None:
    """Refuse what means nothing with a summary.

    :raises UsageError: naming it.
    """
    for name, value in others.items():
        if not (value is None or value is False or value in ("", (), [])):
            said = f"a summary has {', '.join(STATISTICS)} of all of the range"
            raise UsageError(f"summary and {name}: {said}; expected only one of them")


def of_series(result: Result) -> Result:
    """Without the series that have no average.

    :raises UsageError: where there are no others.
    """
    columns = tuple(column for column in result.columns if column.semantics is not Semantics.STATE)
    if not columns:
        raise UsageError("summary: none of the chosen series has an average; expected counters or gauges")
    return result._replace(columns=columns)
