# SPDX-License-Identifier: Apache-2.0
"""A part of an answer that was saved: the columns that are asked for, over the range that is asked for. Pure."""

from collections.abc import Collection, Sequence

import numpy as np

from sysmond.answers.dropping import Dropped, left_of_series
from sysmond.base import paths
from sysmond.base.result import Result
from sysmond.errors import UsageError, nearest
from sysmond.store.of_ring import SeriesKey


def series(result: Result, patterns: Sequence[paths.Pattern], stats: Collection[str] | None) -> Result:
    """The columns of series that patterns mean, of these statistics; of all that were saved where it is None.

    :raises UsageError: where there are none.
    """
    keys = {column.path: _key(column.path) for column in result.columns}
    meant = set(paths.select(patterns, keys.values()))
    columns = [column for column in result.columns if keys[column.path] in meant]
    if stats is not None:
        there = list(dict.fromkeys(column.stat for column in columns))
        if missing := [stat for stat in stats if stat not in there]:
            raise UsageError(f"statistic {missing[0]!r}: not saved with this answer; expected {', '.join(there)}")
        columns = [column for column in columns if column.stat in stats]
    return result._replace(columns=tuple(columns))


def without(result: Result, drop: Sequence[Dropped]) -> Result:
    """An answer of series without what patterns mean.

    :raises UsageError: where nothing is left.
    """
    left, notes = left_of_series([_key(column.path) for column in result.columns], drop)
    kept = frozenset(left)
    columns = tuple(column for column in result.columns if _key(column.path) in kept)
    return result._replace(columns=columns, notes=tuple(notes))


def columns(result: Result, labels: Sequence[str]) -> Result:
    """The columns of these names, in this order; all where there are none.

    :raises UsageError: for a column that was not saved.
    """
    known = {column.path: column for column in result.columns}
    for label in labels:
        if label not in known:
            close = nearest(label, known) or f"; expected {', '.join(known)}"
            raise UsageError(f"column {label!r}: not saved with this answer{close}")
    return result._replace(columns=tuple(known[label] for label in labels) or result.columns)


def within(result: Result, start_ns: int, end_ns: int) -> Result:
    """What lies in [start, end) of UTC nanoseconds."""
    rows = np.flatnonzero((result.times_ns >= start_ns) & (result.times_ns < end_ns))
    return result._replace(
        times_ns=result.times_ns[rows],
        columns=tuple(column.at(rows) for column in result.columns),
        gaps=tuple(gap for gap in result.gaps if gap.end_ns > start_ns and gap.start_ns < end_ns),
        events=tuple(event for event in result.events if start_ns <= event.time_ns < end_ns),
    )


def _key(path: str) -> SeriesKey:
    name, _, instance = path.partition("@")
    table, _, metric = name.partition("/")
    return SeriesKey(table, metric, instance)
