# SPDX-License-Identifier: Apache-2.0
"""History: what was recorded, by path, time range and step; the library for every reader.

>>> from sysmond import history
>>> result = history.open().select("cpu/user", start="yesterday", step="1min")  # doctest: +SKIP

Rates are derived here, from exact counters; every hole is a gap with its cause.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise

import numpy as np

from sysmond import clock, folders, gaps, paths, rates, timespec
from sysmond.errors import Error, NotPermittedError, UsageError, nearest
from sysmond.folders import Folders
from sysmond.model import ABSENT, Cause, Metric, Semantics, Sensitivity, series_path
from sysmond.rates import STATISTICS, BoolArray, Rows, Statistic
from sysmond.recording import Key
from sysmond.result import Column, Entry, Gap, Int64Array, Result
from sysmond.timeline import Span, Timeline
from sysmond.tracks import Track, distinct

# A run of empty buckets longer than this is cut to its first one; the gap says how long it was.
EMPTY_BUCKETS_MAX = 3600
# More than this is a wrong step or range, not a question: an answer is held in memory, 8 bytes a value.
VALUES_MAX = 100_000_000
# Fewer digits are a number of boots, not the beginning of an id.
BOOT_ID_DIGITS_MIN = 8
# Files may be merged while an answer is made of them: so often it is begun anew.
ATTEMPTS_MAX = 5
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

    def __repr__(self) -> str:
        return f"<Archive {self.state_dir}>"

    def catalogue(self, *patterns: str, boot: str | int | None = None) -> list[Entry]:
        """What has been recorded: one entry a series, sorted by path.

        :raises UsageError: for a pattern that means nothing recorded. :raises NotPermittedError: for one that
            means what we may not read.
        """
        with closing(Timeline(self._folders)) as line:
            wanted_boot = _boot(line, boot)
            ranges: dict[Key, tuple[int, int, int]] = {}
            for track in line.tracks:
                if wanted_boot in {None, track.lineage.boot}:
                    _extend(ranges, track, line)
            chosen = self._match(patterns, ranges, line) if patterns else ranges
            self.warnings = [damage.reason for damage in line.damages]
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

        Times are as ``timespec`` reads them (``"yesterday"``, ``"-1h"``, ``"2025-01-31 14:30"``), or UTC
        nanoseconds; ``start`` is the first sample where it is not given, ``end`` now. ``step`` is a length
        (``"10s"``, ``"1min"``) or nanoseconds, the recorded interval where it is not given. ``stat``: one or
        several of mean, min, max, first, last, sum and count. ``boot``: 0 for the newest, -1 for the one
        before, or an id.

        A column has a row a time: of counters rates per second (of seconds: percent), and sums in the unit
        recorded. Gaps are told with their true ends, which may lie outside the range.

        :raises UsageError: for a wrong path, time, step or statistic, and for an answer beyond all measure.
        :raises NotPermittedError: for what we may not read. :raises Error: where nothing is recorded.
        """
        stats = _statistics(stat)
        now_ns = time.time_ns()
        boot_ns = now_ns - clock.boottime_ns()
        start_ns = -FOREVER_NS if start is None else _time(start, now_ns, boot_ns)
        end_ns = now_ns + 1 if end is None else _time(end, now_ns, boot_ns)
        step_ns = _step(step)
        if boot is not None and end is None:
            end_ns = FOREVER_NS
        if end_ns <= start_ns:
            raise UsageError(f"the range ends ({end!r}) before it begins ({start!r})")
        asked = partial(self._answer, patterns or ("*",), (start_ns, end_ns), now_ns, boot)
        for _ in range(ATTEMPTS_MAX - 1):
            with suppress(FileNotFoundError):
                return asked(step_ns, stats, raw=raw)
        return asked(step_ns, stats, raw=raw)

    def _answer(
        self,
        patterns: Sequence[str],
        asked: tuple[int, int],
        now_ns: int,
        boot: str | int | None,
        step_ns: int,
        stats: list[str],
        *,
        raw: bool,
    ) -> Result:
        """Answer from what is there now.

        :raises FileNotFoundError: where a file was merged or flushed meanwhile.
        """
        start_ns, end_ns = asked
        with closing(Timeline(self._folders)) as line:
            wanted_boot = _boot(line, boot)
            keys = self._match(patterns, line.keys(), line)
            query = _Query(line, keys, start_ns, end_ns, wanted_boot)
            query.read()
            result = query.raw() if raw else query.buckets(step_ns, stats)
            found = gaps.find(line, {key.table for key in keys}, wanted_boot, now_ns)
            self.warnings = [damage.reason for damage in line.damages]
            self.warnings += line.redefinitions({(key.table, key.metric) for key in keys})
            inside = [
                gap for gap in gaps.coalesce([*found, *query.gaps]) if gap.end_ns > start_ns and gap.start_ns < end_ns
            ]
            return result._replace(gaps=tuple(inside), warnings=tuple(self.warnings))

    def _match(self, patterns: Iterable[str], keys: Iterable[Key], line: Timeline) -> list[Key]:
        known = sorted(keys)
        parsed = [paths.parse(pattern, self._folders.state) for pattern in patterns]
        if not known:
            raise self._nothing(line)
        try:
            return [Key(*found) for found in paths.select(parsed, known)]
        except UsageError as unknown:
            raise self._unknown(parsed, known, line) or unknown from None

    def _unknown(self, patterns: Sequence[paths.Pattern], known: Sequence[Key], line: Timeline) -> Error | None:
        """Why a path means nothing, where that is not the fault of who wrote it: forbidden, or never there."""
        tables = {key.table for key in known}
        for pattern in patterns:
            matcher = paths.Matcher(pattern)
            if any(matcher.table(table) for table in tables):
                continue
            if line.refused and self._is_restricted(matcher):
                return NotPermittedError(f"path {pattern.text!r}: no permission to read {line.refused[0]}")
            for hole in sorted(line.holes(line.tables - tables), key=lambda hole: hole.table):
                if matcher.table(hole.table):
                    return Error(f"path {pattern.text!r}: nothing recorded; {hole.cause}: {hole.detail}")
        return None

    def _is_restricted(self, matcher: paths.Matcher) -> bool:
        """Whether the plan has a restricted table of that name; without one to read, it may be so."""
        from sysmond import plan  # noqa: PLC0415  only for an error

        for place in (self._folders.runtime, self.state_dir):
            try:
                planned = plan.read(f"{place}/plan.json").probes
            except (Error, OSError):
                continue
            return any(matcher.table(each.table) for each in planned if each.sensitivity is Sensitivity.RESTRICTED)
        return True

    def _nothing(self, line: Timeline) -> Error:
        if line.refused:
            return NotPermittedError(f"{line.refused[0]}: no permission to read it")
        damaged = f"; {line.damages[0].reason}" if line.damages else ""
        return Error(f"{self.state_dir}: nothing recorded yet{damaged}")


def _extend(ranges: dict[Key, tuple[int, int, int]], track: Track, line: Timeline) -> None:
    """Take a track into the ranges of its series: from, to, interval."""
    boot, interval_ns = track.lineage.boot, track.lineage.interval_ns
    for run in track.runs:
        for member in run.members:
            ticks = member.block.ticks
            start_ns, end_ns = line.moment_ns(boot, int(ticks[0])), line.moment_ns(boot, int(ticks[-1]))
            for key in member.block.keys:
                seen = ranges.get(key, (start_ns, end_ns, interval_ns))
                ranges[key] = (min(seen[0], start_ns), max(seen[1], end_ns), min(seen[2], interval_ns))


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
        self._tracks = [track for track in line.tracks if boot in {None, track.lineage.boot}]
        self._spans: list[tuple[Span, BoolArray]] = []
        self.gaps: list[Gap] = []

    def read(self) -> None:
        """Read the rows to answer from: those in range, and those just before, where counters stood."""
        wanted = set(self._keys)
        tables = {key.table for key in wanted}
        of_boot: dict[str, set[Key]] = {}
        for track in self._tracks:
            of_boot.setdefault(track.lineage.boot, set()).update(track.keys & wanted)
        for track in self._tracks:
            # A series that a boot does not have at all is missing wherever its table is.
            elsewhere = wanted - of_boot[track.lineage.boot] if track.tables & tables else set()
            mine = (track.keys & wanted) | {key for key in elsewhere if key.table in track.tables}
            if mine and (span := self._line.span(track, mine, self._start_ns, self._end_ns)):
                inside = (span.times_ns >= self._start_ns) & (span.times_ns < self._end_ns)
                self._spans.append((span, inside))
        if self._start_ns == -FOREVER_NS:
            self._begin_with_first_sample()
        for span, inside in self._spans:
            self.gaps += gaps.silent(span, self._line, inside)

    def _begin_with_first_sample(self) -> None:
        """Leave out the rows before any series asked for has a value."""
        firsts = []
        for span, inside in self._spans:
            present = np.zeros(len(inside), bool)
            for row in span.matrix:
                present |= row != ABSENT
                if present.all():
                    break
            times_ns = span.times_ns[present & inside]
            firsts += [int(times_ns.min())] if len(times_ns) else []
        first_ns = min(firsts, default=FOREVER_NS)
        self._spans = [(span, inside & (span.times_ns >= first_ns)) for span, inside in self._spans]

    def raw(self) -> Result:
        """A row a tick, values as stored; in the order of boots and boot time, whatever the wall clock did."""
        order = {boot: index for index, boot in enumerate(self._line.boots())}
        ticks = {}
        for boot in order:
            mine = [span.ticks[inside] for span, inside in self._spans if span.lineage.boot == boot]
            ticks[boot] = mine[0] if len(mine) == 1 else distinct(np.concatenate([_NO_TIMES, *mine]))[0]
        starts = dict(zip(order, np.cumsum([0, *(len(each) for each in ticks.values())]).tolist(), strict=False))
        axis = np.concatenate([_NO_TIMES, *(self._line.course(boot).utc_ns(each) for boot, each in ticks.items())])
        self._check_size(len(axis), len(self._keys))
        matrix = {key: np.full(len(axis), ABSENT, np.int64) for key in self._keys}
        for span, inside in self._spans:
            boot = span.lineage.boot
            at = starts[boot] + np.searchsorted(ticks[boot], span.ticks[inside])
            for index, key in enumerate(span.keys):
                row = span.matrix[index][inside]
                there = row != ABSENT
                matrix[key][at[there]] = row[there]
        columns = []
        for key, values in matrix.items():
            metric = self._metric(key)
            columns.append(self._column(key, "raw", Statistic(metric.unit, values, metric.scale, None, 0)))
        return Result(axis, tuple(columns), (), 0)

    def buckets(self, step_ns: int, stats: list[str]) -> Result:
        """A row a bucket, one column a series and statistic."""
        step_ns = step_ns or min((span.lineage.interval_ns for span, _ in self._spans), default=clock.SECOND_NS)
        numbers = [np.where(inside, span.times_ns // step_ns, _OUTSIDE) for span, inside in self._spans]
        axis = self._axis(numbers, len(self._keys) * len(stats))
        rows_of: dict[Key, dict[str, list[Rows]]] = {}
        for (span, inside), number in zip(self._spans, numbers, strict=True):
            place = np.where(inside, _places(axis, number), -1)
            for index, key in enumerate(span.keys):
                rows = _present(Rows(span.ticks, span.matrix[index], place, span.lineage.interval_ns))
                if len(rows.ticks):
                    rows_of.setdefault(key, {}).setdefault(span.lineage.boot, []).append(rows)
        pieces = {key: {boot: _sequence(rows) for boot, rows in by_boot.items()} for key, by_boot in rows_of.items()}
        self._look_back(pieces)
        columns = []
        for key in self._keys:
            made = self._statistics(key, list(pieces.get(key, {}).items()), stats, step_ns, len(axis))
            columns += [self._column(key, stat, each) for stat, each in zip(stats, made, strict=True)]
        return Result(axis * step_ns, tuple(columns), (), step_ns)

    def _look_back(self, pieces: dict[Key, dict[str, Rows]]) -> None:
        """Give counters that begin within the range the value they had before it, wherever that is."""
        needy: dict[str, list[Key]] = {}
        for key, by_boot in pieces.items():
            if self._metric(key).semantics is Semantics.COUNTER:
                for boot, rows in by_boot.items():
                    if rows.bucket[0] >= 0:
                        needy.setdefault(boot, []).append(key)
        for track in self._tracks:
            boot = track.lineage.boot
            low_ns, _ = self._line.course(boot).window(self._start_ns, self._end_ns)
            mine = [key for key in needy.get(boot, ()) if key in track.keys]
            for key, (tick_ns, value) in self._line.stands_before(track, mine, low_ns).items():
                rows = pieces[key][boot]
                before = Rows(*(np.array([each], np.int64) for each in (tick_ns, value, -1, track.lineage.interval_ns)))
                pieces[key][boot] = _sequence([before, rows])

    def _statistics(
        self, key: Key, pieces: list[tuple[str, Rows]], stats: list[str], step_ns: int, buckets: int
    ) -> list[Statistic]:
        metric = self._metric(key)
        if not pieces:
            return [Statistic(metric.unit, np.full(buckets, ABSENT, np.int64), metric.scale, None, 0) for _ in stats]
        if metric.semantics is not Semantics.COUNTER:
            return [rates.of_gauge([rows for _, rows in pieces], metric, stat, buckets) for stat in stats]
        growth = []
        for boot, rows in pieces:
            growth.append(rates.increments(rows))
            self._note_resets(key, boot, rows, growth[-1].resets)
        return [rates.of_counter(growth, metric, stat, step_ns, buckets) for stat in stats]

    def _note_resets(self, key: Key, boot: str, rows: Rows, resets: Int64Array) -> None:
        for index in resets[rows.bucket[resets] >= 0].tolist():
            start_ns, end_ns = (self._line.moment_ns(boot, int(rows.ticks[at])) for at in (index - 1, index))
            self.gaps.append(Gap(start_ns, end_ns, key.table, Cause.COUNTER_RESET, series_path(*key)))

    def _axis(self, numbers: list[Int64Array], columns: int) -> Int64Array:
        """The buckets to show: all between the first and the last that hold rows, long empty runs cut to one."""
        held = np.concatenate([_NO_TIMES, *(number[number != _OUTSIDE] for number in numbers)])
        if not len(held):
            return held
        if (np.diff(held) <= 0).any():
            held = distinct(held)[0]
        empty = np.diff(held) - 1
        long = np.flatnonzero(empty > EMPTY_BUCKETS_MAX)
        self._check_size(len(held) + int(empty.sum()) - int(empty[long].sum()) + len(long), columns)
        edges = [0, *(long + 1).tolist(), len(held)]
        return np.concatenate([np.arange(held[a], held[b - 1] + 1 + (b < len(held))) for a, b in pairwise(edges)])

    @staticmethod
    def _check_size(rows: int, columns: int) -> None:
        if rows * columns > VALUES_MAX:
            raise UsageError(
                f"{columns} columns of {rows} rows are too many at once, {VALUES_MAX} values are the most; "
                "a longer step, fewer paths or a shorter range are right"
            )

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


_NO_TIMES = np.zeros(0, np.int64)
# The number of no bucket.
_OUTSIDE = -(2**63)


def _places(axis: Int64Array, number: Int64Array) -> Int64Array:
    """Where on the axis each bucket is."""
    if len(axis) and axis[-1] - axis[0] + 1 == len(axis):
        return number - int(axis[0])
    return np.searchsorted(axis, number).astype(np.int64)


def _present(rows: Rows) -> Rows:
    there = rows.values != ABSENT
    return rows if there.all() else Rows(rows.ticks[there], rows.values[there], rows.bucket[there], rows.interval_ns)


def _sequence(pieces: Sequence[Rows]) -> Rows:
    """Put the rows of one series in one boot in order of time, each tick once."""
    if len(pieces) == 1:
        return pieces[0]
    ticks, first = distinct(np.concatenate([rows.ticks for rows in pieces]))
    interval_ns = np.concatenate([np.broadcast_to(rows.interval_ns, len(rows.ticks)) for rows in pieces])
    values, bucket = (np.concatenate([getattr(rows, name) for rows in pieces]) for name in ("values", "bucket"))
    return Rows(ticks, values[first], bucket[first], interval_ns[first])
