# SPDX-License-Identifier: Apache-2.0
"""One question to an open time line: which rows and tiers answer it, and the columns made of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sysmond.answers.series import gaps, rates, which_tier
from sysmond.answers.series.rates import BucketStats, LineagePart, Statistic
from sysmond.answers.series.reading import EMPTY, AnswerSource, TimelineReader, TrackView
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, series_path
from sysmond.base.result import BoolArray, Column, Float64Array, Gap, Int64Array, Result
from sysmond.base.statistic import percent_of
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import UsageError
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Axis, Buckets, Edges, Stat, distinct
from sysmond.store.of_ring import SeriesKey
from sysmond.store.timeline import Timeline
from sysmond.store.tracks import Track

if TYPE_CHECKING:
    from sysmond.answers.series.derived import DerivedSeries

# A run of empty buckets longer than this is cut to its first one; the gap says how long it was.
EMPTY_BUCKETS_MAX = 3600
# More than this is a wrong step or range, not a question: an answer is held in memory, 8 bytes a value.
VALUES_MAX = 100_000_000
# A few series are read and rolled up at a time: so many values of each, but at least so many series.
BATCH_VALUES = 1024 * 1024
BATCH_SERIES_MIN = 8


class Query:
    """One question to an open time line."""

    def __init__(self, line: Timeline, keys: list[SeriesKey], start_ns: int, end_ns: int, boot: str | None) -> None:
        self.line = line
        self.reader = TimelineReader(line)
        # What is asked for; what is read: of derived series those that their formulas name.
        self.asked = keys
        self.keys = keys
        self.derived: dict[SeriesKey, DerivedSeries] = {}
        if any(key.metric not in line.metrics(key.table) for key in keys):
            from sysmond.answers.series import derived  # noqa: PLC0415  few ask for them

            self.derived = derived.find(line, keys)
            self.keys = list(derived.wanted(self.derived, dict.fromkeys(keys, ("count",))))
            self._computing = derived.Computing(self, line, (start_ns, end_ns))
        self._boot = boot
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._tracks = [track for track in line.tracks if boot in {None, track.lineage.boot}]
        # By table, where no series of it that is asked for has a value.
        self._missing: list[tuple[TrackView, dict[str, BoolArray]]] = []
        self.gaps: list[Gap] = []
        self.sources: list[AnswerSource] = []
        # What answered, and for which series.
        self.answered: list[tuple[TrackView, list[SeriesKey]]] = []
        # What percentiles are made of; and by table, of which statistics there are only buckets, which keep none.
        self._samples: dict[SeriesKey, list[rates.Samples]] = {}
        self.without_rows: dict[str, dict[str, None]] = {}
        # Of rows: their boot times, int64[row].
        self.ticks = _NO_TIMES
        # Series that several writers of a boot have, and where the values are that were read of them.
        self._shared: dict[tuple[str, SeriesKey], list[tuple[Track, Axis]]] = {}

    def rates(self) -> list[SeriesKey]:
        """The series asked for that have no value without two readings: counters, and what is derived of them."""
        return [
            key
            for key in self.asked
            if any(
                self.metric(own).semantics is Semantics.COUNTER
                for own in (self.derived[key].own.values() if key in self.derived else (key,))
            )
        ]

    def beside(self, keys: list[SeriesKey], start_ns: int, end_ns: int) -> "Query":
        """The same question about other series and another range."""
        return Query(self.line, keys, start_ns, end_ns, self._boot)

    def _with_keys(self) -> Iterator[tuple[Track, list[SeriesKey], set[str]]]:
        """The tracks with what is asked for: the series of each, and the tables."""
        wanted = set(self.keys)
        tables = {key.table for key in wanted}
        of_boot: dict[str, set[SeriesKey]] = {}
        for track in self._tracks:
            of_boot.setdefault(track.lineage.boot, set()).update(track.keys & wanted)
        for track in self._tracks:
            mine = sorted(track.keys & wanted)
            # A series that a boot does not have at all is missing wherever its table is.
            here = track.tables & tables
            elsewhere = {key.table for key in wanted - of_boot[track.lineage.boot] if key.table in here}
            if mine or elsewhere:
                yield track, mine, {key.table for key in mine} | elsewhere

    def _missing_of(self, view: TrackView, tables: Iterable[str]) -> dict[str, BoolArray]:
        """Begin to look where values are missing."""
        missing = {table: np.ones(len(view.inside), bool) for table in tables}
        self._missing.append((view, missing))
        return missing

    def _begin(self) -> None:
        """Leave out what is before any series asked for has its first value, where no start was given."""
        if self._start_ns == -FOREVER_NS:
            firsts = []
            for view, missing in self._missing:
                there = view.inside & ~np.logical_and.reduce(list(missing.values()))
                firsts += [int(view.times_ns[there].min())] if there.any() else []
            self._start_ns = min(firsts, default=FOREVER_NS)

    def _tell_silence(self) -> None:
        for view, missing in self._missing:
            seen = view._replace(inside=view.inside & (view.times_ns >= self._start_ns))
            self.gaps += gaps.silent(seen, missing, self.line, self.keys)

    def raw(self) -> Result:
        """A row a tick, values as stored; in the order of boots and boot time, whatever the wall clock did."""
        order = {boot: index for index, boot in enumerate(self.line.boots())}
        views: list[tuple[TrackView, list[SeriesKey]]] = []
        for track, mine, tables in self._with_keys():
            if track.runs and (view := self.reader.view(track, 0, self._start_ns, self._end_ns)):
                self._check_size(len(view.times_ns), len(mine))
                views.append((view, mine))
                self._missing_of(view, tables)
        spans = [(view, keys, self.reader.rows(view, keys)) for view, keys in views]
        self.answered = views
        for (_, missing), (_, keys, matrix) in zip(self._missing, spans, strict=True):
            for key, row in zip(keys, matrix, strict=True):
                missing[key.table] &= row == ABSENT
        self._begin()
        self._tell_silence()
        inside = [view.inside & (view.times_ns >= self._start_ns) for view, _, _ in spans]
        ticks = {}
        for boot in order:
            mine_of = [
                view.axis.first[there]
                for (view, _, _), there in zip(spans, inside, strict=True)
                if view.track.lineage.boot == boot
            ]
            ticks[boot] = mine_of[0] if len(mine_of) == 1 else distinct(np.concatenate([_NO_TIMES, *mine_of]))[0]
        starts = dict(
            zip(order, np.cumsum([0, *(len(axis_ticks) for axis_ticks in ticks.values())]).tolist(), strict=False)
        )
        axis = np.concatenate(
            [_NO_TIMES, *(self.line.course(boot).utc_ns(axis_ticks) for boot, axis_ticks in ticks.items())]
        )
        self._check_size(len(axis), len(self.keys))
        values = {key: np.full(len(axis), ABSENT, np.int64) for key in self.keys}
        derived = {key: np.full(len(axis), np.nan) for key in self.derived}
        for (view, keys, matrix), there in zip(spans, inside, strict=True):
            boot = view.track.lineage.boot
            at = starts[boot] + np.searchsorted(ticks[boot], view.axis.first[there])
            for key, row in zip(keys, matrix[:, there], strict=True):
                known = row != ABSENT
                values[key][at[known]] = row[known]
            self._fill_derived(derived, view, there, at)
        columns = []
        for key in self.asked:
            if key in derived:
                stored = self._computing.shown(self.derived[key], derived[key])
            else:
                stored = Statistic(self.metric(key).unit, values[key], self.metric(key).scale, None, 0)
            columns.append(self._column(key, "raw", stored))
        self.ticks = np.concatenate([_NO_TIMES, *ticks.values()])
        return Result(axis, tuple(columns), (), 0)

    def _fill_derived(
        self, values: Mapping[SeriesKey, Float64Array], view: TrackView, inside: BoolArray, at: Int64Array
    ) -> None:
        """Put what derived series have in a view of rows where it belongs; ``at``: the place of each that is inside."""
        for key, series in self.derived.items():
            if not view.track.keys.isdisjoint(series.own.values()):
                made = self._computing.raw(series, view)[inside]
                known = ~np.isnan(made)
                values[key][at[known]] = made[known]

    def buckets(self, step_ns: int, stats: Mapping[SeriesKey, Sequence[str]]) -> Result:
        """A row a bucket, one column a series and statistic of it; ``step_ns``: 0 for the recorded interval."""
        step_ns = step_ns or self._own_step_ns()
        axis, columns = self._bucketed(step_ns, step_ns, stats)
        return Result(axis * step_ns, columns, (), step_ns)

    def _own_step_ns(self) -> int:
        """How often was recorded what is asked for: of each table as in most of the range, of several the shortest.

        A few seconds of a short interval, before the range or within it, do not make all of it as fine.
        """
        lasted_ns: dict[str, Counter[int]] = {}
        for track, _, tables in self._with_keys():
            interval_ns, course = track.lineage.interval_ns, self.line.course(track.lineage.boot)
            inside_ns = sum(
                max(0, min(self._end_ns, last_ns + interval_ns) - max(self._start_ns, first_ns))
                for first_ns, last_ns in (
                    (course.moment_ns(run.first_ns), course.moment_ns(run.last_ns)) for run in track.stretches
                )
            )
            for table in tables:
                lasted_ns.setdefault(table, Counter())[interval_ns] += inside_ns
        return min((max(of, key=lambda ns: (of[ns], -ns)) for of in lasted_ns.values()), default=SECOND_NS)

    def whole(self, stats: Mapping[SeriesKey, Sequence[str]]) -> Result:
        """One row for the whole range, stamped with the second that it begins in; none where nothing is known."""
        axis, columns = self._bucketed(which_tier.WHOLE_NS, FOREVER_NS, stats)
        return Result(axis + self._start_ns // SECOND_NS * SECOND_NS, columns, (), 0)

    def _bucketed(
        self, asked_ns: int, length_ns: int, stats: Mapping[SeriesKey, Sequence[str]]
    ) -> tuple[Int64Array, tuple[Column, ...]]:
        """The numbers of buckets, int64[bucket], and the columns. ``length_ns``: gaps up to it fit into a bucket."""
        axis, made = self.statistics(asked_ns, length_ns, stats)
        begin = self._first_place(axis)
        columns = [self._column(key, stat, _from(made[key][stat], begin)) for key in self.asked for stat in stats[key]]
        return axis[begin:], tuple(columns)

    def statistics(
        self, asked_ns: int, length_ns: int, stats: Mapping[SeriesKey, Sequence[str]]
    ) -> tuple[Int64Array, dict[SeriesKey, dict[str, Statistic]]]:
        """The numbers of buckets, int64[bucket], and by series and statistic what they have; as ``_bucketed``."""
        wanted, rows_first = stats, False
        if self.derived:
            from sysmond.answers.series import derived  # noqa: PLC0415  as above

            wanted = derived.wanted(self.derived, stats)
            rows_first = any(series.needed(stat) is None for key, series in self.derived.items() for stat in stats[key])
        rows_first |= any(rates.needs_rows(self.metric(key), stat) for key in self.keys for stat in wanted[key])
        self.sources = [
            source
            for track, mine, tables in self._with_keys()
            for source in self._sources(track, mine, tables, asked_ns, rows_first=rows_first)
        ]
        self.answered = [(source.view, source.keys) for source in self.sources]
        self._find_shared()
        axis = self._axis(
            [source.number[source.view.inside] for source in self.sources], sum(map(len, wanted.values()))
        )
        made: dict[SeriesKey, dict[str, Statistic]] = {}
        for keys in self._batches():
            parts: dict[SeriesKey, list[LineagePart]] = {}
            for source in self.sources:
                self._read(source, keys, wanted, axis, parts)
            for key in keys:
                of_key = self._statistics(key, parts.get(key, []), wanted[key], length_ns, len(axis))
                made[key] = dict(zip(wanted[key], of_key, strict=True))
        for key, series in self.derived.items():
            made[key] = {
                stat: self._computing.statistic(key, series, stat, made, axis, asked_ns) for stat in stats[key]
            }
        return axis, made

    def _first_place(self, axis: Int64Array) -> int:
        """Where the answer begins: where no start was given, with the first value."""
        whole = self._start_ns != -FOREVER_NS
        self._begin()
        self._tell_silence()
        if whole:
            return 0
        places = [
            source.number[source.view.inside & (source.view.times_ns >= self._start_ns)] for source in self.sources
        ]
        return int(np.searchsorted(axis, min((int(place.min()) for place in places if len(place)), default=0)))

    def _sources(
        self, track: Track, mine: list[SeriesKey], tables: set[str], step_ns: int, *, rows_first: bool
    ) -> Iterator[AnswerSource]:
        """Choose which rows and tiers of a track answer."""
        margin_ns = max(step_ns, *track.tiers, 0) if track.tiers else 0
        start_ns, end_ns = self._start_ns - margin_ns, self._end_ns + margin_ns
        steps = [*([which_tier.ROWS_NS] if track.runs else []), *track.tiers]
        views = {tier_ns: view for tier_ns in steps if (view := self.reader.view(track, tier_ns, start_ns, end_ns))}
        course = self.line.course(track.lineage.boot)
        layers = {
            tier_ns: which_tier.Layer(
                view.times_ns, course.utc_ns(view.axis.last) if tier_ns else view.times_ns, view.axis
            )
            for tier_ns, view in views.items()
        }
        if layers:
            for tier_ns, (mask, number) in which_tier.choose(
                layers, step_ns, self._start_ns, self._end_ns, rows_first=rows_first
            ).items():
                if chosen := views[tier_ns].chosen(mask):
                    low = max(0, int(np.flatnonzero(mask)[0]) - 1)
                    missing = self._missing_of(chosen, tables)
                    yield AnswerSource(chosen, number[low : low + len(chosen.inside)], mine, missing)

    def _find_shared(self) -> None:
        seen: dict[tuple[str, SeriesKey], Track] = {}
        tracks = {id(view.track): (view.track, keys) for view, keys in self.answered}
        boots = [track.lineage.boot for track, _ in tracks.values()]
        for track, keys in tracks.values():
            if boots.count(track.lineage.boot) > 1:
                for key in keys:
                    if seen.setdefault((track.lineage.boot, key), track) is not track:
                        self._shared[track.lineage.boot, key] = []

    def _reported_before(self, view: TrackView, key: SeriesKey, known: Int64Array) -> BoolArray | None:
        """Where another writer told all that a bucket (or row) has of a series; None where none did.

        ``known``: how many values each has. Of two that share a part of their ticks both count: nothing is lost.
        """
        shared = self._shared.get((view.track.lineage.boot, key))
        if shared is None:
            return None
        twice = np.zeros(len(known), bool)
        for track, axis in shared:
            if track is not view.track and len(axis.first):
                at = np.searchsorted(axis.last, view.axis.last)
                there = np.minimum(at, len(axis.last) - 1)
                twice |= (at < len(axis.last)) & (axis.first[there] <= view.axis.first) & (axis.rows[there] >= known)
        chosen = (known > 0) & ~twice
        shared.append((view.track, Axis(view.axis.first[chosen], view.axis.last[chosen], known[chosen])))
        return twice if twice.any() else None

    def _batches(self) -> Iterator[list[SeriesKey]]:
        """A few series at a time: memory is bounded whatever is asked for."""
        longest = max((len(source.number) for source in self.sources), default=1)
        size = max(BATCH_SERIES_MIN, BATCH_VALUES // max(1, longest))
        return (self.keys[first : first + size] for first in range(0, len(self.keys), size))

    def _read(
        self,
        source: AnswerSource,
        keys: Sequence[SeriesKey],
        stats: Mapping[SeriesKey, Sequence[str]],
        axis: Int64Array,
        parts: dict[SeriesKey, list[LineagePart]],
    ) -> None:
        """Read what a source has of some series, rolled up to the buckets asked for."""
        kinds: dict[tuple[tuple[Stat, ...], tuple[str, ...]], list[SeriesKey]] = {}
        mine = set(source.keys)
        for key in keys:
            if key in mine:
                kinds.setdefault((statistics.stats_of(self.metric(key)), tuple(stats[key])), []).append(key)
        view = source.view
        number = np.where(view.inside, source.number, rates.OUTSIDE)
        if not len(number):
            return
        starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        for (kind, asked), chosen in kinds.items():
            if view.step_ns:
                joined, more = self._from_tier(source, kind, chosen, asked, starts)
                self._note_without_rows(chosen, asked)
            else:
                rows = self._rows(source, kind, chosen)
                joined, more = self._from_rows(rows, source, kind, chosen, asked, starts)
                if any(percent_of(stat) is not None for stat in asked):
                    self._note_samples(rows, view, kind, chosen, _places_or_none(axis, number))
            stats_read = {**rates.statistics_of(joined), **more}
            if Stat.TMAX in stats_read:
                ticks = stats_read[Stat.TMAX]
                utc_ns = self.line.course(view.track.lineage.boot).utc_ns(np.maximum(ticks, 0))
                stats_read[Stat.TMAX] = np.where(ticks == ABSENT, ABSENT, utc_ns)
            numbers, stats_read = rates.once(number[starts], stats_read)
            place = _places(axis, numbers)
            for index, key in enumerate(chosen):
                own: BucketStats = {stat: values[index] for stat, values in stats_read.items()}
                parts.setdefault(key, []).append(LineagePart(place, own, view.track.lineage.interval_ns))

    def _rows(self, source: AnswerSource, kind: tuple[Stat, ...], keys: list[SeriesKey]) -> Int64Array:
        """What rows have of some series, int64[series, tick], without what another writer has told."""
        view = source.view
        matrix = self.reader.rows(view, keys)
        for key, row in zip(keys, matrix, strict=True):
            source.missing[key.table] &= row == ABSENT
            if Stat.LEAP in kind:
                self._note_resets(key, view, row)
            if (twice := self._reported_before(view, key, (row != ABSENT).astype(np.int64))) is not None:
                row[twice] = ABSENT
        return matrix

    def _from_rows(
        self,
        matrix: Int64Array,
        source: AnswerSource,
        kind: tuple[Stat, ...],
        keys: list[SeriesKey],
        stats: Sequence[str],
        starts: Int64Array,
    ) -> tuple[Buckets, BucketStats]:
        view = source.view
        in_full = any(rates.needs_rows(self.metric(keys[0]), stat) for stat in stats)
        interval_ns = view.track.lineage.interval_ns
        joined, more = rates.of_rows(kind, matrix, view.axis.first, starts, interval_ns, in_full=in_full)
        return self._after_what_stood(joined, view, keys), more

    def _note_samples(
        self,
        matrix: Int64Array,
        view: TrackView,
        kind: tuple[Stat, ...],
        keys: list[SeriesKey],
        place: Int64Array,
    ) -> None:
        """Keep what percentiles are made of; ``place``: of each row on the axis, -1 where it is not asked for."""
        interval_ns = view.track.lineage.interval_ns
        for key, row in zip(keys, rates.samples(kind, matrix, view.axis.first, interval_ns), strict=True):
            there = (row != ABSENT) & (place >= 0)
            self._samples.setdefault(key, []).append(rates.Samples(place[there], row[there], interval_ns))

    def _note_without_rows(self, keys: Sequence[SeriesKey], stats: Sequence[str]) -> None:
        for key in keys:
            if unknown := [stat for stat in stats if rates.needs_rows(self.metric(key), stat)]:
                self.without_rows.setdefault(key.table, {}).update(dict.fromkeys(unknown))

    def _from_tier(
        self,
        source: AnswerSource,
        kind: tuple[Stat, ...],
        keys: list[SeriesKey],
        stats: Sequence[str],
        starts: Int64Array,
    ) -> tuple[Buckets, BucketStats]:
        view = source.view
        needed = {part for stat in stats for key in keys for part in rates.parts_needed(self.metric(key), stat)}
        if Stat.LEAP in kind:  # What counters grew by between two files is added to all of these.
            needed |= {Stat.COUNT, Stat.SUM, Stat.LEAP, Stat.LEAP_NS}
        wanted = [stat for stat in kind if stat in needed]
        buckets = self.reader.buckets(view, keys, kind, wanted)
        buckets = self._after_what_stood(buckets, view, keys)
        if Stat.LEAP in kind:
            self._note_resets_within(keys, view, buckets)
        for index, key in enumerate(keys):
            known = buckets.stats[Stat.COUNT][index]
            if Stat.LEAP in kind:  # The first row of a counter has no increment.
                known = np.maximum(known, (buckets.stats[Stat.LEAP_NS][index] > 0) | (view.axis.rows == 1))
            source.missing[key.table] &= known == 0
            if (twice := self._reported_before(view, key, known)) is not None:
                for stat, values in buckets.stats.items():
                    values[index, twice] = EMPTY.get(stat, ABSENT)
        return (buckets if len(starts) == len(view.inside) else statistics.coarsen(buckets, starts)), {}

    def _after_what_stood(self, buckets: Buckets, view: TrackView, keys: Sequence[SeriesKey]) -> Buckets:
        """Give counters that begin within the range what they grew by since the value before it, wherever that is."""
        edges = buckets.edges
        if edges is None:
            return buckets
        stood = Edges(*(np.full(len(keys), ABSENT, np.int64) for _ in Edges._fields))
        inside = view.axis.first[np.flatnonzero(view.inside)[0]]
        by_tick: dict[int, list[int]] = {}
        for index in np.flatnonzero(edges.first_tick >= inside).tolist():
            by_tick.setdefault(int(edges.first_tick[index]), []).append(index)
        for tick_ns, indexes in by_tick.items():
            for track in self._tracks:
                if track.lineage.boot == view.track.lineage.boot:
                    sought = {keys[index]: index for index in indexes if keys[index] in track.keys}
                    for key, stand in self.reader.stands_before(track, list(sought), tick_ns).items():
                        index = sought[key]
                        if stand > (int(stood.last_tick[index]), 0):
                            stood.last_tick[index], stood.last_value[index] = stand
        if (stood.last_tick == ABSENT).all():
            return buckets
        stats = {stat: values[:, :0] for stat, values in buckets.stats.items()}
        nothing = Buckets(Axis(_NO_TIMES, _NO_TIMES, _NO_TIMES), stats, stood)
        return statistics.concatenate(nothing, buckets, view.track.lineage.interval_ns)

    def _statistics(
        self, key: SeriesKey, parts: list[LineagePart], stats: Sequence[str], step_ns: int, buckets: int
    ) -> list[Statistic]:
        metric, samples = self.metric(key), self._samples.pop(key, [])
        if not parts:
            return [Statistic(metric.unit, np.full(buckets, ABSENT, np.int64), metric.scale, None, 0) for _ in stats]
        made = []
        for stat in stats:
            percent = percent_of(stat)
            if percent is not None and metric.semantics is not Semantics.STATE:
                made.append(rates.of_samples(samples, metric, percent, buckets))
            elif metric.semantics is not Semantics.COUNTER:
                made.append(rates.of_gauge(parts, metric, stat, buckets))
            else:
                made.append(rates.of_counter(parts, metric, stat, step_ns, buckets))
        return made

    def _note_resets(self, key: SeriesKey, view: TrackView, row: Int64Array) -> None:
        if (row[1:] < row[:-1]).any():
            for before, after in rates.resets(row).tolist():
                if view.inside[after]:
                    end_ns = int(view.times_ns[after])
                    # A clock that was set back meanwhile turns no gap round.
                    start_ns = min(int(view.times_ns[before]), end_ns)
                    self.gaps.append(Gap(start_ns, end_ns, key.table, Cause.COUNTER_RESET, series_path(*key)))

    def _note_resets_within(self, keys: Sequence[SeriesKey], view: TrackView, buckets: Buckets) -> None:
        """Where a bucket of a tier lacks one increment and none is over a gap, a counter began anew in it."""
        count, leap_ns = buckets.stats[Stat.COUNT], buckets.stats[Stat.LEAP_NS]
        calm = (count > 0) & (leap_ns == 0)
        lacks = calm[:, 1:-1] & (view.axis.rows[1:-1] - count[:, 1:-1] == 1) & calm[:, :-2] & calm[:, 2:]
        for index, at in zip(*(places.tolist() for places in np.nonzero(lacks)), strict=True):
            if view.inside[at + 1]:
                start_ns = int(view.times_ns[at + 1])
                end_ns = start_ns + int(view.axis.last[at + 1] - view.axis.first[at + 1])
                key = keys[index]
                self.gaps.append(Gap(start_ns, end_ns, key.table, Cause.COUNTER_RESET, series_path(*key)))

    def _axis(self, numbers: list[Int64Array], columns: int) -> Int64Array:
        """The buckets to show: all between the first and the last that hold rows, long empty runs cut to one."""
        places = np.concatenate([_NO_TIMES, *(number[number != rates.OUTSIDE] for number in numbers)])
        if not len(places):
            return places
        steps = np.diff(places)
        if (steps < 0).any():
            places = distinct(places)[0]
        elif not steps.all():  # In order already, but a bucket in which one boot ended and another began.
            places = places[np.append(True, steps > 0)]
        self._check_size(len(places), columns)
        if places[-1] - places[0] + 1 == len(places):
            return places
        empty = np.diff(places) - 1
        long = np.flatnonzero(empty > EMPTY_BUCKETS_MAX)
        self._check_size(len(places) + int(empty.sum()) - int(empty[long].sum()) + len(long), columns)
        edges = [0, *(long + 1).tolist(), len(places)]
        return np.concatenate([np.arange(places[a], places[b - 1] + 1 + (b < len(places))) for a, b in pairwise(edges)])

    @staticmethod
    def _check_size(rows: int, columns: int) -> None:
        if rows * columns > VALUES_MAX:
            raise UsageError(
                f"{columns} columns of {rows} rows are too many values for one answer, which has at most {VALUES_MAX}; "
                "ask for a longer step, fewer paths or a shorter range"
            )

    @property
    def tables(self) -> set[str]:
        """The tables that an answer is made of."""
        others = {key.table for series in self.derived.values() for key in series.others.values()}
        return {key.table for key in self.keys} | others

    def metric(self, key: SeriesKey) -> Metric:
        """What a series is of."""
        return self.derived[key].metric if key in self.derived else self.line.metrics(key.table)[key.metric]

    def _column(self, key: SeriesKey, stat: str, made: Statistic) -> Column:
        metric = self.metric(key)
        texts = None
        if metric.is_text and made.integers is not None and made.unit == metric.unit:
            known = self.line.texts
            texts = tuple(known.get(ident) for ident in made.integers.tolist())
        return Column(
            series_path(*key),
            made.unit,
            metric.semantics,
            stat,
            None if texts is not None else made.integers,
            made.scale,
            None if made.floats is None else np.round(made.floats, made.decimals),
            made.decimals,
            texts,
        )


_NO_TIMES = np.zeros(0, np.int64)


def _places_or_none(axis: Int64Array, number: Int64Array) -> Int64Array:
    """Where on the axis the bucket of each row is; -1 where it is in none."""
    outside = number == rates.OUTSIDE
    return np.where(outside, -1, _places(axis, np.where(outside, axis[0] if len(axis) else 0, number)))


def _places(axis: Int64Array, number: Int64Array) -> Int64Array:
    """Where on the axis each bucket is."""
    if len(axis) and axis[-1] - axis[0] + 1 == len(axis):
        return number - int(axis[0])
    return np.searchsorted(axis, number).astype(np.int64)


def _from(made: Statistic, begin: int) -> Statistic:
    """A statistic without its first so many buckets."""
    if not begin:
        return made
    integers, floats = made.integers, made.floats
    return made._replace(
        integers=None if integers is None else integers[begin:], floats=None if floats is None else floats[begin:]
    )
