# SPDX-License-Identifier: Apache-2.0
"""History: what was recorded, by path, time range and step; the library for every reader.

>>> from sysmond import history
>>> result = history.open().select("cpu/user", start="yesterday", step="1min")  # doctest: +SKIP

Rates are derived here, from exact counters; every hole is a gap with its cause.
"""

import os
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from sysmond import clock, folders, paths, rates, timespec
from sysmond.errors import Error, NotPermittedError, UsageError, nearest
from sysmond.folders import Folders
from sysmond.model import ABSENT, Cause, Metric, Semantics, series_path
from sysmond.rates import STATISTICS, Rows, Statistic
from sysmond.recording import Hole, Key
from sysmond.result import Column, Entry, Gap, Int64Array, Result
from sysmond.timeline import Span, Timeline, breaks

# A run of empty buckets longer than this is cut to its first one; the gap says how long it was.
EMPTY_BUCKETS_MAX = 3600
# More than this is a wrong step or range, not a question.
BUCKETS_MAX = 100_000_000
# Until the last tick is this many intervals ago, nothing is missing yet.
TRAILING_INTERVALS = 3
# Fewer digits are a number of boots, not the beginning of an id.
BOOT_ID_DIGITS_MIN = 8
FOREVER_NS = timespec.TIME_MAX_NS - 1


def open(  # noqa: A001  the name that readers expect: history.open()
    *, state_dir: str | None = None, runtime_dir: str | None = None, user: bool = False
) -> "Archive":
    """Open the archive of this machine, or with ``user`` that of this user.

    :raises Error: where there is none.
    """
    chosen = folders.choose(
        user=user, state_dir=state_dir, runtime_dir=runtime_dir, environ=os.environ, uid=os.geteuid()
    )
    if not os.path.isdir(chosen.state) and not os.path.isdir(chosen.runtime):
        raise Error(
            f"{chosen.state}: nothing was ever recorded there; 'sysmond' records, --state-dir names another place"
        )
    return Archive(chosen)


class Archive:
    """Everything recorded in a pair of folders; each call sees what is there by then."""

    def __init__(self, place: Folders) -> None:
        """Look at these folders."""
        self._folders = place
        self.state_dir = place.state
        self.warnings: list[str] = []

    def catalogue(self, *patterns: str, boot: str | int | None = None) -> list[Entry]:
        """What has been recorded: one entry a series, sorted by path.

        :raises UsageError: for a pattern that means nothing recorded.
        """
        line = Timeline(self._folders)
        try:
            ranges: dict[Key, tuple[int, int, int]] = {}
            wanted_boot = _boot(line, boot)
            for block in line.blocks():
                strand = block.strand
                if wanted_boot not in {None, strand.boot}:
                    continue
                start_ns, end_ns = map(int, line.utc_ns(strand.boot, block.ticks[[0, -1]]))
                for key in block.keys:
                    seen = ranges.get(key, (start_ns, end_ns, strand.interval_ns))
                    ranges[key] = (min(seen[0], start_ns), max(seen[1], end_ns), min(seen[2], strand.interval_ns))
            self._note(line)
        finally:
            line.close()
        chosen = self._match(patterns, ranges) if patterns else ranges
        return [_entry(key, line.metrics[key.table, key.metric], *ranges[key]) for key in sorted(chosen)]

    def select(
        self,
        *patterns: str,
        start: str | int | None = None,
        end: str | int | None = None,
        step: str | int | None = None,
        stat: str | Sequence[str] = "mean",
        boot: str | int | None = None,
        raw: bool = False,
    ) -> Result:
        """Series by path over [start, end), a row a bucket of ``step``; with ``raw`` a row a tick, as stored.

        Times are as ``timespec`` reads them, or UTC nanoseconds. Without ``step`` the recorded interval.
        :raises UsageError: for a wrong path, time, step or statistic. :raises Error: where nothing is recorded.
        """
        stats = _statistics(stat)
        now_ns = time.time_ns()
        boot_ns = now_ns - clock.boottime_ns()
        start_ns = -FOREVER_NS if start is None else _time(start, now_ns, boot_ns)
        end_ns = now_ns + 1 if end is None else _time(end, now_ns, boot_ns)
        step_ns = _step(step)
        if end_ns <= start_ns:
            raise UsageError(f"the range ends ({end!r}) before it begins ({start!r})")
        line = Timeline(self._folders)
        try:
            wanted_boot = _boot(line, boot)
            if boot is not None and end is None:
                end_ns = FOREVER_NS
            keys = self._match(patterns or ("*",), (key for block in line.blocks() for key in block.keys))
            query = _Query(line, keys, start_ns, end_ns, wanted_boot)
            spans = query.spans()
            self._note(line)
            gaps = query.gaps(spans, now_ns)
            if raw:
                return query.raw(spans, gaps, tuple(self.warnings))
            return query.buckets(spans, step_ns, stats, gaps, tuple(self.warnings))
        finally:
            line.close()

    def _note(self, line: Timeline) -> None:
        self.warnings = [damage.reason for damage in line.damages]

    def _match(self, patterns: Iterable[str], keys: Iterable[Key]) -> list[Key]:
        known = sorted(set(keys))
        parsed = [paths.parse(pattern, self._folders.state) for pattern in patterns]
        if not known:
            raise self._nothing()
        return [Key(*found) for found in paths.select(parsed, known)]

    def _nothing(self) -> Error:
        line = Timeline(self._folders)
        line.close()
        if line.refused:
            return NotPermittedError(f"{line.refused[0]}: no permission to read it")
        damaged = f"; {line.damages[0].reason}" if line.damages else ""
        return Error(f"{self.state_dir}: nothing recorded yet{damaged}")


def _entry(key: Key, metric: Metric, start_ns: int, end_ns: int, interval_ns: int) -> Entry:
    return Entry(series_path(*key), metric.unit, metric.semantics, metric.doc, start_ns, end_ns, interval_ns)


def _statistics(stat: str | Sequence[str]) -> list[str]:
    stats = stat.split(",") if isinstance(stat, str) else list(stat)
    for name in stats:
        if name not in STATISTICS:
            raise UsageError(
                f"statistic {name!r}: not known{nearest(name, STATISTICS)}; right are {', '.join(STATISTICS)}"
            )
    return list(dict.fromkeys(stats))


def _time(moment: str | int, now_ns: int, boot_ns: int) -> int:
    return timespec.parse_time(moment, now_ns=now_ns, boot_ns=boot_ns) if isinstance(moment, str) else moment


def _step(step: str | int | None) -> int:
    """The step in nanoseconds, 0 for the recorded interval."""
    if step is None:
        return 0
    if isinstance(step, str):
        return timespec.parse_step(step)
    if step <= 0:
        raise UsageError(f"step {step} ns: not a length of time; more than 0 is right")
    return step


def _boot(line: Timeline, boot: str | int | None) -> str | None:
    """Find a boot: by id or its beginning, or counted back from the newest, which is 0."""
    if boot is None:
        return None
    known = line.boots()
    text = str(boot).replace("-", "", 0 if str(boot).startswith("-") else -1)
    if text.removeprefix("-").isdigit() and len(text) < BOOT_ID_DIGITS_MIN:
        back = -int(text)
        if 0 <= back < len(known):
            return known[-1 - back]
        raise UsageError(
            f"boot {boot!r}: only {len(known)} boots are recorded; 0 to -{max(0, len(known) - 1)} are right"
        )
    found = [one for one in known if text and one.startswith(text.lower())]
    if len(found) != 1:
        raise UsageError(f"boot {boot!r}: no such boot; recorded are {', '.join(known[-5:]) or 'none'}")
    return found[0]


class _Query:
    """One question to an open time line."""

    def __init__(self, line: Timeline, keys: list[Key], start_ns: int, end_ns: int, boot: str | None) -> None:
        self._line = line
        self._keys = keys
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._boot = boot
        self._tables = {key.table for key in keys}
        self._resets: list[Gap] = []

    def spans(self) -> list[Span]:
        """The rows to answer from: those in range, and those just before, where counters stood."""
        found = self._line.spans(self._keys, self._is_near)
        return sorted(found, key=lambda span: int(self._line.utc_ns(span.lineage.boot, span.ticks[:1])[0]))

    def _is_near(self, boot: str, ticks: Int64Array) -> bool:
        if self._boot not in {None, boot}:
            return False
        times = self._line.utc_ns(boot, ticks)
        # A counter's first increment needs the block before; a day back is enough for every interval allowed.
        return bool(times.max() >= self._start_ns - _LOOK_BACK_NS and times.min() < self._end_ns)

    def _inside(self, span: Span) -> tuple[Int64Array, Int64Array]:
        """UTC times of a span's rows, and which of them are in range."""
        times = self._line.utc_ns(span.lineage.boot, span.ticks)
        return times, np.flatnonzero((times >= self._start_ns) & (times < self._end_ns))

    def raw(self, spans: list[Span], gaps: tuple[Gap, ...], warnings: tuple[str, ...]) -> Result:
        """A row a tick, values as stored."""
        pieces = [(span, *self._inside(span)) for span in spans]
        axis = np.unique(np.concatenate([times[inside] for _, times, inside in pieces] or [_NO_TIMES]))
        columns = []
        for key in self._keys:
            values = np.full(len(axis), ABSENT, np.int64)
            for span, times, inside in pieces:
                if key in span.keys:
                    row = span.matrix[span.keys.index(key)][inside]
                    there = row != ABSENT
                    values[np.searchsorted(axis, times[inside][there])] = row[there]
            metric = self._metric(key)
            columns.append(self._column(key, "raw", Statistic(metric.unit, values, metric.scale, None, 0)))
        return Result(axis, tuple(columns), gaps, 0, warnings)

    def buckets(
        self, spans: list[Span], step_ns: int, stats: list[str], gaps: tuple[Gap, ...], warnings: tuple[str, ...]
    ) -> Result:
        """A row a bucket, one column a series and statistic."""
        step_ns = step_ns or min((span.lineage.interval_ns for span in spans), default=clock.SECOND_NS)
        numbers: list[Int64Array] = []
        for span in spans:
            times, inside = self._inside(span)
            number = np.full(len(times), -1, np.int64)
            number[inside] = times[inside] // step_ns
            numbers.append(number)
        axis = _axis(numbers)
        if len(axis) > BUCKETS_MAX:
            raise UsageError(f"{len(axis)} rows; a longer step or a shorter range is right")
        rows_of: dict[Key, list[tuple[Rows, int]]] = {}
        for span, number in zip(spans, numbers, strict=True):
            place = np.where(number < 0, -1, np.searchsorted(axis, number))
            for index, key in enumerate(span.keys):
                there = span.matrix[index] != ABSENT
                rows = Rows(span.ticks, span.matrix[index], place)
                if not there.all():
                    rows = Rows(*(array[there] for array in rows))
                rows_of.setdefault(key, []).append((rows, span.lineage.interval_ns))
                self._note_resets(key, span, rows)
        columns = [
            self._column(key, stat, self._statistic(key, stat, rows_of.get(key, []), step_ns, len(axis)))
            for key in self._keys
            for stat in stats
        ]
        every = tuple(sorted({*gaps, *self._resets}))
        return Result(axis * step_ns, tuple(columns), every, step_ns, warnings)

    def _statistic(self, key: Key, stat: str, pieces: list[tuple[Rows, int]], step_ns: int, buckets: int) -> Statistic:
        metric = self._metric(key)
        if not pieces:
            return Statistic(metric.unit, np.full(buckets, ABSENT, np.int64), metric.scale, None, 0)
        if metric.semantics is Semantics.COUNTER:
            growth = [rates.increments(rows) for rows, _ in pieces]
            return rates.of_counter(growth, metric, stat, max(i for _, i in pieces), step_ns, buckets)
        return rates.of_gauge([rows for rows, _ in pieces], metric, stat, buckets)

    def _note_resets(self, key: Key, span: Span, rows: Rows) -> None:
        if self._metric(key).semantics is not Semantics.COUNTER or not (np.diff(rows.values) < 0).any():
            return
        resets = rates.increments(rows).resets
        resets = resets[rows.bucket[resets] >= 0]
        for index in resets:
            start_ns, end_ns = map(int, self._line.utc_ns(span.lineage.boot, rows.ticks[index - 1 : index + 1]))
            self._resets.append(Gap(start_ns, end_ns, key.table, Cause.COUNTER_RESET, series_path(*key)))

    def _metric(self, key: Key) -> Metric:
        return self._line.metrics[key.table, key.metric]

    def _column(self, key: Key, stat: str, made: Statistic) -> Column:
        metric = self._metric(key)
        texts = None
        if metric.is_text and made.integers is not None and stat != "count":
            known = self._line.texts
            texts = tuple(known.get(ident) for ident in made.integers.tolist())
        return Column(
            series_path(*key),
            made.unit,
            metric.semantics,
            stat,
            None if texts is not None else made.integers,
            made.scale,
            made.floats,
            made.decimals,
            texts,
        )

    def gaps(self, spans: list[Span], now_ns: int) -> tuple[Gap, ...]:
        """Every hole in range with its cause, in order of time."""
        found = [self._gap(hole) for hole in self._line.holes(self._tables) if self._boot in {None, hole.boot}]
        for span in spans:
            tables = sorted({key.table for key in span.keys})
            for hole in breaks(span, self._line):
                found += [self._gap(hole._replace(table=table)) for table in tables]
        found += self._between_boots(spans)
        found += self._trailing(spans, now_ns)
        found = [self._blame_damage(gap) for gap in found]
        inside = {gap for gap in found if gap.end_ns > self._start_ns and gap.start_ns < self._end_ns}
        return tuple(sorted(_coalesce(inside)))

    def _gap(self, hole: Hole) -> Gap:
        start_ns, end_ns = map(int, self._line.utc_ns(hole.boot, np.array([hole.start_ns, hole.end_ns])))
        return Gap(start_ns, max(start_ns, end_ns), hole.table, hole.cause, hole.detail)

    def _edges(self, spans: list[Span]) -> dict[str, list[tuple[int, int, Span]]]:
        """By table: when each of its spans began and ended, in order."""
        edges: dict[str, list[tuple[int, int, Span]]] = {}
        for span in spans:
            first_ns, last_ns = map(int, self._line.utc_ns(span.lineage.boot, span.ticks[[0, -1]]))
            for table in {key.table for key in span.keys}:
                edges.setdefault(table, []).append((first_ns, last_ns + span.lineage.interval_ns, span))
        return {table: sorted(each, key=lambda edge: edge[:2]) for table, each in edges.items()}

    def _between_boots(self, spans: list[Span]) -> list[Gap]:
        return [
            Gap(before[1], after[0], table, Cause.OFF)
            for table, edges in self._edges(spans).items()
            for before, after in pairwise(edges)
            if before[2].lineage.boot != after[2].lineage.boot and after[0] > before[1]
        ]

    def _trailing(self, spans: list[Span], now_ns: int) -> list[Gap]:
        """What is missing between the last tick and the end asked for, as far as that is not yet to come."""
        until_ns = min(self._end_ns, now_ns)
        missing = []
        for table, edges in self._edges(spans).items():
            last_ns, span = max(((end_ns, span) for _, end_ns, span in edges), key=lambda edge: edge[0])
            if until_ns - last_ns > TRAILING_INTERVALS * span.lineage.interval_ns:
                if span.lineage.boot != clock.boot_id():
                    cause = Cause.OFF
                else:
                    clean = span.closed.get(int(span.incarnation[-1]))
                    cause = Cause.CLEAN_SHUTDOWN if clean else Cause.DAEMON_DOWN
                missing.append(Gap(last_ns, until_ns, table, cause))
        return missing

    def _blame_damage(self, gap: Gap) -> Gap:
        """A hole where an unreadable file had its rows is that file's fault."""
        for damage in self._line.damages:
            where = self._line.damaged_range(damage.name) if damage.name else None
            if where is None or gap.cause not in _UNEXPLAINED:
                continue
            boot, after, before = where
            start_ns = int(self._line.utc_ns(boot, np.array([after]))[0]) if after else gap.start_ns
            end_ns = gap.end_ns if before is None else int(self._line.utc_ns(boot, np.array([before]))[0])
            if start_ns <= gap.start_ns + clock.SECOND_NS and gap.end_ns <= end_ns + clock.SECOND_NS:
                return gap._replace(cause=Cause.DAMAGED_FILE, detail=damage.reason)
        return gap


_UNEXPLAINED = frozenset((Cause.LATE_TICK, Cause.DAEMON_DOWN, Cause.CLEAN_SHUTDOWN))
_LOOK_BACK_NS = 24 * 3600 * clock.SECOND_NS
_NO_TIMES = np.zeros(0, np.int64)


def _axis(numbers: list[Int64Array]) -> Int64Array:
    """The buckets to show: all between the first and the last that hold rows, long empty runs cut to one."""
    held = np.unique(np.concatenate([number[number >= 0] for number in numbers] or [_NO_TIMES]))
    if not len(held):
        return held
    empty = np.diff(held) - 1
    pieces = []
    begin = 0
    for index in np.flatnonzero(empty > EMPTY_BUCKETS_MAX).tolist():
        pieces += [np.arange(held[begin], held[index] + 2)]
        begin = index + 1
    pieces.append(np.arange(held[begin], held[-1] + 1))
    return np.concatenate(pieces)


def _coalesce(gaps: Iterable[Gap]) -> list[Gap]:
    """Join gaps of one table and cause that touch or overlap: two lanes may report the same silence."""
    joined: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: (gap.table, gap.cause, gap.detail, gap.start_ns)):
        last = joined[-1] if joined else None
        if last and last[2:] == gap[2:] and gap.start_ns <= last.end_ns:
            joined[-1] = last._replace(end_ns=max(last.end_ns, gap.end_ns))
        else:
            joined.append(gap)
    return joined
