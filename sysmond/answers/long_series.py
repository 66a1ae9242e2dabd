# SPDX-License-Identifier: Apache-2.0
"""Long tables as series: the rows of each thing, one column a metric and statistic, over one time axis.

An instance is the key of a thing without when it started: ``process/cpu@1234``, of several numbers with a ``/`` in
between. Where several things share that, as processes whose number was used again, when each started tells them apart:
``1234/1740826907.5``, in seconds since 1970. All numbers are those of rows (``records``).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from sysmond.answers import records
from sysmond.answers.dropping import left_of_series, names_of
from sysmond.answers.rows.batch import VALUES_MAX
from sysmond.answers.rows.columns import LAST, MEAN, Of, Offer, with_known
from sysmond.answers.rows.question import Request, check_has_statistics
from sysmond.answers.series.explain import causes, concerns
from sysmond.answers.wide import SeriesQuestion
from sysmond.base import paths
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, START, Semantics, Sensitivity, series_path
from sysmond.base.paths import Pattern
from sysmond.base.result import Array, Column, Explanation, Int64Array, Result
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import TooManySeriesError, UsageError, listed, nearest
from sysmond.machine.folders import Folders
from sysmond.store import events
from sysmond.store.census import Census
from sysmond.store.coding.statistics import distinct
from sysmond.store.of_ring import SeriesKey
from sysmond.store.stretches.stretch import key_of, lasts

# So many series an answer may have; each of a process is one.
SERIES_MAX = 1000


class _Place(NamedTuple):
    """Where what is asked for lies, and what of it may be read."""

    folders: Folders
    classes: Collection[Sensitivity]


def answer(
    folders: Folders,
    classes: Collection[Sensitivity],
    patterns: Sequence[Pattern],
    asked: SeriesQuestion,
    stats: Sequence[str] | None,
    step_ns: int,
) -> Result:
    """Answer a question about series of long tables; ``step_ns``: 0 for the shortest interval of them.

    ``stats``: None where nobody says which.

    :raises UsageError: for a pattern that means nothing, and for too many series. :raises NotPermittedError: for what
        we may not read. :raises Error: where nothing is recorded.
    """
    place = _Place(folders, classes)
    if not asked.raw and not asked.is_whole:
        step_ns = step_ns or min(_interval_ns(place, pattern.table) for pattern in patterns)
    found = [_of_pattern(place, pattern, asked, stats, step_ns) for pattern in patterns]
    whole = found[0]
    for other in found[1:]:
        whole = beside(whole, other)
    return whole


def beside(one: Result, other: Result) -> Result:
    """Two answers with series as one, over the times of both."""
    times_ns, _ = distinct(np.concatenate([one.times_ns, other.times_ns]))
    columns = {(each.path, each.stat): each for each in (*_over(one, times_ns), *_over(other, times_ns))}
    return one._replace(
        times_ns=times_ns,
        columns=tuple(columns.values()),
        gaps=tuple(sorted({*one.gaps, *other.gaps})),
        events=tuple(events.among(one.events, set(other.events).difference(one.events))),
        warnings=tuple(dict.fromkeys([*one.warnings, *other.warnings])),
        notes=tuple(dict.fromkeys([*one.notes, *other.notes])),
        explanations=(*one.explanations, *other.explanations),
        sensitivity=max(one.sensitivity, other.sensitivity, key=list(Sensitivity).index),
    )


def _over(result: Result, times_ns: Int64Array) -> list[Column]:
    """Columns over more times; of a time that comes twice the first."""
    places, rows = np.unique(np.searchsorted(times_ns, result.times_ns), return_index=True)
    return [_spread(column, rows, places, len(times_ns)) for column in result.columns]


def _spread(column: Column, rows: Int64Array, places: Int64Array, length: int) -> Column:
    """Some values of a column at these places of a longer one."""

    def put(values: Array, nothing: object) -> Any:  # noqa: ANN401  an array of the same type
        made = np.full(length, nothing, values.dtype)
        made[places] = values[rows]
        return made

    if column.texts is not None:
        texts = put(np.array([*column.texts, None], object)[:-1], None)
        return column._replace(texts=tuple(texts.tolist()))
    if column.floats is not None:
        return column._replace(floats=put(column.floats, np.nan))
    integers = np.zeros(0, np.int64) if column.integers is None else column.integers
    return column._replace(integers=put(integers, ABSENT))


def _interval_ns(place: _Place, table: str) -> int:
    with closing(Census(*place)) as census:
        extent = census.extent(table)
    return extent.interval_ns if extent else SECOND_NS


def _of_pattern(
    place: _Place, pattern: Pattern, asked: SeriesQuestion, stats: Sequence[str] | None, step_ns: int
) -> Result:
    """Ask for the rows that one pattern means, and lay those of each thing below each other."""
    when, table = asked.when, records.newest(*place, pattern.table)
    offer, key = records.offer_of(table, is_raw=asked.raw), key_of(table)
    if {metric.name for metric in table.metrics if metric.is_text}.issuperset(key):  # A plugin's, called by texts.
        raise UsageError(f"path {pattern.text!r}: {paths.is_long(table.name)}")
    is_stepped = lasts(table) and not asked.raw
    if stats is not None and not lasts(table) and not asked.is_whole:
        check_has_statistics(table.name, stats)
    request = Request(
        pattern.table,
        when.start_ns if when.start_ns > -FOREVER_NS else None,
        when.end_ns if when.end_ns < FOREVER_NS else None,
        step_ns or None if is_stepped else None,
        [*key, *_labels(offer, pattern, (stats or (MEAN,)) if is_stepped else (LAST,), asked)],
        _condition(pattern, key),
        by=key[0] if is_stepped else "",
        boot=asked.boot,
        explain=asked.explain,
        raw=asked.raw,
    )
    result = records.answer(*place, request)
    if not is_stepped and step_ns:  # Records are of their own moments.
        result = result._replace(times_ns=result.times_ns // step_ns * step_ns)
    return _laid_out(result, pattern, asked, key)._replace(step_ns=0 if asked.raw else step_ns, table="")


def _labels(offer: Offer, pattern: Pattern, stats: Sequence[str], asked: SeriesQuestion) -> list[str]:
    """The columns that a path and statistics mean; derived and joined ones by their names alone, and not as stored.

    A summary has those of its statistics that there are: what follows from another table has an average only.

    :raises UsageError: where there is none.
    """
    matcher = paths.Matcher(pattern)
    known = {spec.name: spec.semantics for spec in offer.specs.values() if spec.of is Of.METRIC}
    for name in key_of(offer.table):
        known.pop(name, None)
    metrics = {name: kind for name, kind in known.items() if matcher.metric(pattern.table, name)}
    if not metrics and matcher.is_named:
        offer = with_known(offer)
        if asked.raw and pattern.metric in offer.derived:
            raise offer.derived[pattern.metric].not_stored(f"path {pattern.text!r}")
        known |= dict.fromkeys(offer.derived, Semantics.GAUGE)
        known |= {spec.name: Semantics.STATE for spec in offer.specs.values() if spec.of is Of.JOIN}
        metrics = {name: kind for name, kind in known.items() if name == pattern.metric}
    if not metrics:
        from sysmond.base import elsewhere  # noqa: PLC0415  only to speak of a mistake

        spelled = [f"{pattern.table}/{name}" for name in known]
        meant = elsewhere.suggest_column(pattern.metric, pattern.table, known, offer.answers.aliases)
        close = meant or nearest(pattern.metric, known, before=f"{pattern.table}/")
        close = close or listed(spelled, f"sysmon-extract --list {pattern.table}")
        raise UsageError(f"there is no metric {f'{pattern.table}/{pattern.metric}'!r}{close}")
    is_one = not lasts(offer.table)
    labels = [
        name if is_one or kind is Semantics.STATE else f"{name}:{stat}"
        for name, kind in metrics.items()
        for stat in stats
    ]
    if asked.is_whole:
        labels = [label for label in labels if label in offer.specs]
    return [spec.label for spec in offer.find(labels)]


def _numbers(key: Sequence[str]) -> list[str]:
    return [name for name in key if name != START]


def _condition(pattern: Pattern, key: Sequence[str]) -> str:
    """What rows of an instance have in common, as far as its name says so in numbers."""
    parts = (pattern.instance or "").split("/")
    pairs = zip(_numbers(key), parts, strict=False)
    return " and ".join(f"{name} = {part}" for name, part in pairs if part.isdecimal())


def _laid_out(result: Result, pattern: Pattern, asked: SeriesQuestion, key: Sequence[str]) -> Result:
    """Series of rows: for each thing a column of each of theirs.

    :raises UsageError: where there are too many, or none of that name.
    """
    columns = {column.path: column for column in result.columns}
    parts = [part for name in key if (part := columns.pop(name).integers) is not None]
    things, of_row = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)
    instances = _instances(things, key, pattern)
    if not instances and pattern.instance and not paths.is_wild(pattern.instance):
        raise UsageError(f"path {pattern.text!r}: no such instance in that range")
    table = pattern.table
    keys = [
        (number, column, SeriesKey(table, column.path.partition(":")[0], instance))
        for number, instance in instances.items()
        for column in columns.values()
    ]
    left, notes = left_of_series([series for _, _, series in keys], asked.drop) if keys else ([], [])
    wanted = set(left)
    chosen = [each for each in keys if each[2] in wanted]
    times_ns, _ = distinct(result.times_ns)
    _check_size(pattern, len(chosen), len(times_ns))
    made: list[Column] = []
    explained: list[Explanation] = []
    of_column = dict(zip((column.path for column in result.columns), result.explanations, strict=False))
    rows_of = np.split(np.argsort(of_row, kind="stable"), np.cumsum(np.bincount(of_row, minlength=len(things)))[:-1])
    for number, column, series in chosen:
        path = series_path(*series)
        rows = rows_of[number]
        # Of a time that comes twice the last counts.
        places, last = np.unique(np.searchsorted(times_ns, result.times_ns[rows])[::-1], return_index=True)
        stat = "raw" if asked.raw else column.stat
        made.append(_spread(column, rows[::-1][last], places, len(times_ns))._replace(path=path, stat=stat))
        if column.path in of_column:
            gaps = causes(gap for gap in result.gaps if concerns(gap, path))
            explained.append(of_column[column.path]._replace(path=path, stat=stat, gaps=gaps))
    return result._replace(
        times_ns=times_ns, columns=tuple(made), explanations=tuple(explained), notes=(*result.notes, *notes)
    )


def _instances(things: Int64Array, key: Sequence[str], pattern: Pattern) -> dict[int, str]:
    """How the things are called that a pattern means, by number; with when each started where others share its name."""
    names = [names_of(key, thing) for thing in things.tolist()]
    several = {name for name, count in Counter(name for name, _ in names).items() if count > 1}
    meant: dict[int, str] = {}
    matcher = paths.Matcher(pattern)
    for number, (name, whole) in enumerate(names):
        if any(matcher.series(pattern.table, pattern.metric, each) for each in (name, whole)):
            meant[number] = whole if name in several or not name else name
    return meant


def _check_size(pattern: Pattern, series: int, times: int) -> None:
    if series > SERIES_MAX:
        raise TooManySeriesError(
            f"path {pattern.text!r}: {series} series; expected at most {SERIES_MAX}: name instances or metrics, or ask "
            "for a shorter range"
        )
    if series * times > VALUES_MAX:
        raise UsageError(
            f"path {pattern.text!r}: {series} series of {times} times; expected at most {VALUES_MAX} values: ask for a "
            "longer step or a shorter range"
        )
