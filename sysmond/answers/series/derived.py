# SPDX-License-Identifier: Apache-2.0
"""Derived series: what a formula makes of the series that it names, statistic by statistic.

A mean, a first and a last value are the formula of the means, first and last values of its metrics, whichever rows or
tiers have these: so the wait of a disk over a minute is its time by its requests in that minute. A minimum, a maximum
and a percentile are over readings, so rows alone have them; but a formula in proportion to one metric has them wherever
that has. Another table's value holds until its next one. What is divided by zero is absent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sysmond.answers.rows.formulas import computed
from sysmond.answers.series import rates
from sysmond.answers.series.rates import Samples, Statistic
from sysmond.answers.series.reading import AnswerSource, TimelineReader, TrackView
from sysmond.base import derived_columns, formula, statistic
from sysmond.base.clock import SECOND_NS
from sysmond.base.formula import Formula, Operand
from sysmond.base.model import ABSENT, Metric, Semantics
from sysmond.base.result import TIME_SCALE, TIME_UNIT, Float64Array, Gap, Int64Array
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import UsageError
from sysmond.store.coding.statistics import COUNTER_STATS, distinct
from sysmond.store.of_ring import SeriesKey
from sysmond.store.timeline import Timeline

# A value of another table holds for so many of its intervals.
HOLD_INTERVALS = 3
STATISTICS = tuple(stat for stat in statistic.STATISTICS if stat != "sum")
# Made of the same statistic of each metric.
_OF_METRICS = frozenset({"mean", "first", "last"})
# Of readings in order, how many percent are at most this.
_PERCENT = {"min": 0.0, "max": 100.0}
_MIRRORED = {"min": "max", "max": "min"}

Values = Mapping[SeriesKey, Mapping[str, Statistic]]
"""What was made of series, by statistic."""


class SeriesQuery(Protocol):
    """A question about recorded series, as ``series.Query`` asks it."""

    reader: TimelineReader
    keys: list[SeriesKey]
    sources: list[AnswerSource]
    gaps: list[Gap]
    without_rows: dict[str, dict[str, None]]

    def metric(self, key: SeriesKey) -> Metric:
        """What a series is of."""

    def beside(self, keys: list[SeriesKey], start_ns: int, end_ns: int) -> "SeriesQuery":
        """The same question about other series and another range."""

    def statistics(
        self, asked_ns: int, length_ns: int, stats: Mapping[SeriesKey, Sequence[str]]
    ) -> tuple[Int64Array, Values]:
        """The numbers of buckets, int64[bucket], and by series and statistic what they have."""


class DerivedSeries(NamedTuple):
    """A derived series: its column as a metric, and the series that each name in its formula means.

    ``slope``: as of ``Formula.slope``.
    """

    metric: Metric
    formula: Formula
    own: Mapping[Operand, SeriesKey]
    others: Mapping[Operand, SeriesKey]
    slope: float

    def needed(self, stat: str) -> str | None:
        """Which statistic of its metrics one is made of; None where it is one over readings.

        :raises UsageError: for one that means nothing.
        """
        if stat == "sum":
            expected = f"expected {', '.join(STATISTICS)}, {statistic.PERCENTILES}"
            raise UsageError(f"column {self.metric.name!r}: is derived, so it has no sum; {expected}")
        if stat in _OF_METRICS or stat == "count":
            return stat
        if self.slope > 0:
            return stat
        if self.slope < 0 and stat in _MIRRORED:
            return _MIRRORED[stat]
        return None


def named(line: Timeline, keys: Iterable[SeriesKey]) -> list[SeriesKey]:
    """Every derived series that follows from some series, sorted."""
    instances: dict[tuple[str, str], set[str]] = {}
    for table, metric, instance in keys:
        instances.setdefault((table, metric), set()).add(instance)
    series = []
    for table in sorted({table for table, _ in instances}):
        for name, column in line.derived(table).items():
            parts = [
                instances.get((table, metric), set()) for metric in derived_columns.own(formula.parse(column.formula))
            ]
            series += [SeriesKey(table, name, instance) for instance in set.intersection(*parts)]
    return sorted(series)


def find(line: Timeline, keys: Iterable[SeriesKey]) -> dict[SeriesKey, DerivedSeries]:
    """Those of some series that are derived."""
    series = {}
    for key in keys:
        if key.metric not in line.metrics(key.table):
            column = line.derived(key.table)[key.metric]
            read = formula.parse(column.formula)
            own = {name: SeriesKey(key.table, name.metric, key.instance) for name in read.operands if not name.table}
            others = {
                name: SeriesKey(name.table, name.metric, name.at(key.instance)) for name in read.operands if name.table
            }
            series[key] = DerivedSeries(derived_columns.as_metric(column), read, own, others, read.slope())
    return series


def wanted(
    series: Mapping[SeriesKey, DerivedSeries], stats: Mapping[SeriesKey, Sequence[str]]
) -> dict[SeriesKey, list[str]]:
    """The statistics of recorded series that are asked for, and those that derived ones need.

    :raises UsageError: for a statistic that a derived one has not.
    """
    asked: dict[SeriesKey, dict[str, None]] = {}
    for key, of_key in stats.items():
        if key not in series:
            asked.setdefault(key, {}).update(dict.fromkeys(of_key))
            continue
        needed = [series[key].needed(stat) or "count" for stat in of_key]
        for own in series[key].own.values():
            asked.setdefault(own, {}).update(dict.fromkeys(needed))
    return {key: list(of_key) for key, of_key in asked.items()}


class Computing:
    """Makes derived series of one question whose recorded ones have been made."""

    def __init__(self, query: SeriesQuery, line: Timeline, span: tuple[int, int]) -> None:
        """``span``: of the question, in UTC."""
        self._query = query
        self._line = line
        self._span = span
        self._others: dict[tuple[SeriesKey, str], Float64Array] = {}

    def statistic(
        self, key: SeriesKey, series: DerivedSeries, stat: str, made: Values, axis: Int64Array, asked_ns: int
    ) -> Statistic:
        """One statistic of a derived series; ``axis``: numbers of buckets, int64[bucket], of length ``asked_ns``."""
        needed = series.needed(stat)
        if needed is None:
            return self._of_readings(key, series, stat, axis)
        parts = {name: made[own][needed] for name, own in series.own.items()}
        if needed == "tmax":
            return next(iter(parts.values()))
        if needed == "count":
            counts = [part.integers for part in parts.values() if part.integers is not None]
            return Statistic("1", np.minimum.reduce(counts), 0, None, 0)
        values = {name: _numbers(part) * self._factor(series.own[name]) for name, part in parts.items()}
        values |= {name: self.other(other, needed, axis, asked_ns) for name, other in series.others.items()}
        return _statistic(series, computed(series.formula, values, len(axis)))

    def raw(self, series: DerivedSeries, view: TrackView) -> Float64Array:
        """The value for each reading of a view of rows, float64[tick]: of counters over the one interval before it."""
        values = {name: self._at_readings(own, view) for name, own in series.own.items()}
        values |= {name: self._last_values(other, view) for name, other in series.others.items()}
        return computed(series.formula, values, len(view.axis.first))

    @staticmethod
    def shown(series: DerivedSeries, values: Float64Array) -> Statistic:
        """Values of a derived series, float64[tick], as they are shown."""
        return _statistic(series, values)

    def _of_readings(self, key: SeriesKey, series: DerivedSeries, stat: str, axis: Int64Array) -> Statistic:
        own = set(series.own.values())
        places, numbers, times = ([np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0, np.int64)])
        seen: dict[str, Int64Array] = {}
        for source in self._query.sources:
            if own.isdisjoint(source.keys):
                continue
            if source.view.step_ns:
                self._query.without_rows.setdefault(key.table, {})[f"{stat} of {key.metric}"] = None
                continue
            view, boot = source.view, source.view.track.lineage.boot
            values = self.raw(series, view)
            # What two writers read at one tick is one reading.
            before = seen.get(boot, np.zeros(0, np.int64))
            there = view.inside & ~np.isnan(values) & (np.searchsorted(before, view.axis.first, "right")
                                                       == np.searchsorted(before, view.axis.first))  # fmt: skip
            seen[boot] = distinct(np.concatenate([before, view.axis.first[there]]))[0]
            places.append(np.searchsorted(axis, source.number[there]).astype(np.int64))
            numbers.append(values[there])
            times.append(view.times_ns[there])
        place, number, time_ns = np.concatenate(places), np.concatenate(numbers), np.concatenate(times)
        if stat == "tmax":
            return _times_of_maxima(place, number, time_ns, len(axis))
        percent = statistic.percent_of(stat)
        samples = [Samples(place, number, SECOND_NS)]
        made = rates.of_samples(samples, series.metric, _PERCENT[stat] if percent is None else percent, len(axis))
        return _statistic(series, made.floats)

    def _factor(self, key: SeriesKey) -> float:
        return derived_columns.factor(self._query.metric(key))

    def _at_readings(self, key: SeriesKey, view: TrackView) -> Float64Array:
        """What a recorded series has at each reading, as formulas have it: float64[tick]."""
        metric, interval_ns = self._line.metrics(key.table).get(key.metric), view.track.lineage.interval_ns
        stored = self._query.reader.rows(view, [key])
        if metric is None or metric.is_text:
            return np.full(len(view.axis.first), np.nan)
        if metric.semantics is Semantics.COUNTER:
            stored = rates.samples(COUNTER_STATS, stored, view.axis.first, interval_ns)
        values = np.where(stored[0] == ABSENT, np.nan, stored[0] / 10.0**metric.scale)
        if metric.semantics is Semantics.COUNTER:
            values = np.maximum(values, 0.0) * (SECOND_NS / interval_ns)
        return values

    def _hold_ns(self, key: SeriesKey) -> int:
        tracks = [track for track in self._line.tracks if key in track.keys]
        return HOLD_INTERVALS * max((track.lineage.interval_ns for track in tracks), default=0)

    def _last_values(self, key: SeriesKey, view: TrackView) -> Float64Array:
        """What a series of another table had last at each reading, float64[tick]."""
        hold_ns, boot = self._hold_ns(key), view.track.lineage.boot
        ticks, values = [np.zeros(0, np.int64)], [np.zeros(0)]
        for track in self._line.tracks:
            if track.lineage.boot == boot and key in track.keys and track.runs:
                there = self._query.reader.view(track, 0, max(-FOREVER_NS, self._span[0] - hold_ns), self._span[1])
                if there is not None:
                    ticks.append(there.axis.first)
                    values.append(self._at_readings(key, there))
        return _last_before(np.concatenate(ticks), np.concatenate(values), view.axis.first, hold_ns)

    def other(self, key: SeriesKey, stat: str, axis: Int64Array, asked_ns: int) -> Float64Array:
        """A statistic of a series of another table in each bucket, or the last one before: float64[bucket]."""
        if (key, stat) not in self._others:
            hold_ns = self._hold_ns(key)
            start_ns, end_ns = self._span
            if asked_ns and start_ns != -FOREVER_NS:
                start_ns -= hold_ns
            query = self._query.beside([key] if key.metric in self._line.metrics(key.table) else [], start_ns, end_ns)
            numbers, made = query.statistics(asked_ns, asked_ns or FOREVER_NS, {other: [stat] for other in query.keys})
            values = _numbers(made[key][stat]) * self._factor(key) if key in made else np.full(len(numbers), np.nan)
            self._query.gaps += query.gaps
            hold = -(-hold_ns // asked_ns) if asked_ns else 0
            self._others[key, stat] = _last_before(numbers, values, axis, hold)
        return self._others[key, stat]


def _numbers(made: Statistic) -> Float64Array:
    if made.floats is not None:
        return made.floats
    if made.integers is None:
        raise TypeError("no numbers")
    return np.where(made.integers == ABSENT, np.nan, made.integers / 10.0**made.scale)


def _statistic(series: DerivedSeries, values: Float64Array | None) -> Statistic:
    unit = series.metric.unit
    return Statistic(unit, None, 0, values, derived_columns.DECIMALS.get(unit, 3))


def _last_before(at: Int64Array, values: Float64Array, where: Int64Array, hold: int) -> Float64Array:
    """The last value at or before each place, no older than ``hold``: float64[where]."""
    known = ~np.isnan(values)
    at, values = at[known], values[known]
    order = np.argsort(at, kind="stable")
    at, values = np.append(at[order], 0), np.append(values[order], np.nan)
    place = np.searchsorted(at[:-1], where, "right") - 1
    return np.where((place >= 0) & (where - at[place] <= hold), values[place], np.nan)


def _times_of_maxima(place: Int64Array, values: Float64Array, times_ns: Int64Array, buckets: int) -> Statistic:
    order = np.lexsort((times_ns, -values, place))
    first = order[np.flatnonzero(np.append(True, place[order][1:] != place[order][:-1]))] if len(order) else order
    times = np.full(buckets, ABSENT, np.int64)
    times[place[first]] = times_ns[first]
    return Statistic(TIME_UNIT, times, TIME_SCALE, None, 0)


def origin(series: DerivedSeries, line: Timeline) -> str:
    """Which fields of which kernel files a derived series follows from."""
    operands = [*series.own.items(), *series.others.items()]
    metrics = {str(name): line.metrics(key.table).get(key.metric) for name, key in operands}
    return "; ".join(
        f"{name}: {(metric.origin or 'not declared') if metric else 'not recorded'}" for name, metric in metrics.items()
    )


def explained(series: DerivedSeries, stat: str) -> str:
    """Say how a statistic of a derived series is made."""
    needed = series.needed(stat) if stat != "raw" else None
    if needed == "count":
        return "fewest values of a metric in it"
    if needed is None:
        return (
            f"{stat} of {series.formula.text}, of each reading"
            if stat != "raw"
            else f"{series.formula.text}, of each reading"
        )
    return f"{series.formula.text}, of their {needed}"
