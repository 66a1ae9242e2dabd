# SPDX-License-Identifier: Apache-2.0
"""The names of statistics, as people ask for them: ``mean``, ``max``, ``p95``. Standard library only."""

import re

from sysmond.errors import UsageError, nearest

STATISTICS = ("mean", "min", "max", "tmax", "first", "last", "sum", "count")

# As one more of a list of names.
PERCENTILES = "p0 to p100"

_PERCENTILE = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,6})?|100)")


def percent_of(stat: str) -> float | None:
    """Which percentile a statistic is, as ``p95`` or ``p99.9``; None for any other."""
    spelled = _PERCENTILE.fullmatch(stat)
    return float(spelled[1]) if spelled else None


def check(stat: str) -> None:
    """Refuse what is no statistic.

    :raises UsageError: naming it, and all that there are.
    """
    if stat not in STATISTICS and percent_of(stat) is None:
        expected = f"expected {', '.join(STATISTICS)}, {PERCENTILES}"
        raise UsageError(f"statistic {stat!r}: not known{nearest(stat, STATISTICS, expected)}")
