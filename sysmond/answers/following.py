# SPDX-License-Identifier: Apache-2.0
"""Following what is being recorded: each tick of a table as an answer of its own, as soon as it is in its ring.

Nothing is asked of files, so it costs little. Of a wide table a tick has the values that series of its interval have:
of counters rates since the tick before. Of a long one it has the rows as they are stored.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from sysmond.base import clock, derived_columns, paths
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import (
    ABSENT,
    END,
    EVENTS,
    START,
    Cause,
    Metric,
    Semantics,
    Sensitivity,
    Table,
    rate_unit,
    series_path,
)
from sysmond.base.result import TIME_SCALE, TIME_UNIT, Column, Event, Gap, Result
from sysmond.errors import Error, UsageError
from sysmond.machine.folders import Folders
from sysmond.plan import catalogue
from sysmond.ring.frame import MORE, RECORDS_HEAD
from sysmond.ring.newest import Follower, Now, Recent
from sysmond.store import archive
from sysmond.store.coding.statistics import GAP_FACTOR
from sysmond.store.of_ring import SeriesKey
from sysmond.store.stretches.exit_codes import without_killed
from sysmond.store.stretches.sparse_of_ring import records_of_frames

# Looking this long after a whole second finds that second's ticks; what takes longer to be read, the next look finds.
AFTER_TICK_NS = 150_000_000
RATE_DECIMALS = 6
NO_TIMES = np.zeros(0, np.int64)
# Who reads a table, and of which class it is then.
Source = tuple[str, Sensitivity, str]


def wait() -> None:
    """Wait until the next ticks are in their rings."""
    now_ns = clock.boottime_ns()
    due_ns = (now_ns - AFTER_TICK_NS) // SECOND_NS * SECOND_NS + SECOND_NS + AFTER_TICK_NS
    time.sleep((due_ns - now_ns) / SECOND_NS)


class Following:
    """What is recorded from now on."""

    def __init__(self, place: Folders, classes: Collection[Sensitivity], patterns: Sequence[str]) -> None:
        """Look at what patterns mean; a long table, and ``event``, by their names.

        :raises UsageError: for a pattern that means nothing that is being recorded. :raises Error: where nothing is.
        """
        parsed = [paths.parse(pattern, place.state) for pattern in patterns or ("*",)]
        long_tables = archive.long_tables(place)
        whole = {pattern.table for pattern in parsed if (pattern.metric, pattern.instance) == ("*", None)}
        self._long = whole.intersection(long_tables)
        self._has_events = EVENTS in whole
        wide = [pattern for pattern in parsed if pattern.table not in {*self._long, *whole.intersection({EVENTS})}]
        if series := next((pattern for pattern in wide if pattern.table in long_tables), None):
            raise UsageError(f"path {series.text!r}: of long tables, rows are followed; expected {series.table!r}")
        self._frames: list[tuple[Table, int, bytes]] = []
        self._follower = Follower(
            place,
            sensitivities=classes,
            streams=dict.fromkeys(self._long, lambda *frame: self._frames.append(frame)),
            declared=lambda: catalogue.answers_there(place.runtime),
        )
        now = self._follower.read()
        if not now.tables:
            raise Error(f"{place.runtime}: nothing is being recorded there; expected a recorder that runs")
        if wide:
            paths.select(wide, _keys(now, is_derived=False), long_tables, lambda: _keys(now, is_derived=True))
        self._matchers = [paths.Matcher(pattern) for pattern in wide]
        self._given_ns = {_source(recent): recent.tick_ns for recent in chain(*now.tables.values())}
        self._follower.events()
        self._frames.clear()

    def results(self) -> Iterator[Result]:
        """A result a tick and table, for ever."""
        while True:
            wait()
            now = self._follower.read()
            offset_ns = now.wall_offset_ns
            happened = tuple(
                Event(each.boottime_ns + offset_ns, each.kind, each.subject, each.text)
                for each in self._follower.events()
            )
            found = [*self._of_rings(now), *self._of_records(now)]
            if happened and self._has_events and not found:
                found = [Result(NO_TIMES, (), (), 0)]
            for result in sorted(found, key=lambda result: result.times_ns[:1].tolist()):
                yield result._replace(events=happened)
                happened = ()

    def _of_rings(self, now: Now) -> Iterator[Result]:
        """The ticks of wide tables; and why a table has nothing at its newest one."""
        for name, recents in now.tables.items():
            if name not in self._long and not any(matcher.table(name) for matcher in self._matchers):
                continue
            for recent in recents:
                given_ns, rows = self._given_ns.get(_source(recent), 0), [*recent.rows]
                for place, row in enumerate(rows):
                    if row.tick_ns > given_ns:
                        gaps = self._lacking(now, recent) if row is rows[-1] else ()
                        yield _result(now, recent, [row.tick_ns], self._columns(now, recent, place), gaps)
                if recent.absence and recent.tick_ns > given_ns:
                    yield _result(now, recent, [], (), [_gap(now, recent, recent.absence)])
                self._given_ns[_source(recent)] = recent.tick_ns

    def _columns(self, now: Now, recent: Recent, place: int) -> Iterator[Column]:
        """What a table has at one of its ticks."""
        table, instances = recent.layout.table, recent.rows[place].names
        named = [each for each in self._matchers if each.is_named]
        derived = map(derived_columns.as_metric, recent.derived_columns.values() if named else ())
        for metric in (*table.metrics, *derived):
            matchers = self._matchers if metric.name in recent.columns else named
            for instance in instances:
                key = SeriesKey(table.name, metric.name, instance)
                if any(matcher.series(*key) for matcher in matchers):
                    yield _column(now, recent, place, metric, key)

    def _lacking(self, now: Now, recent: Recent) -> Iterator[Gap]:
        """Why instances have nothing at the newest tick."""
        table = recent.layout.table
        for name, why in recent.lacking.items():
            instance = name.partition("@")[2]
            if any(
                each.series(table.name, metric.name, instance) for each in self._matchers for metric in table.metrics
            ):
                yield _gap(now, recent, why)

    def _of_records(self, now: Now) -> Iterator[Result]:
        """The readings of long tables whose last frame is there; of others it comes."""
        readings: dict[tuple[str, int], list[tuple[Table, int, bytes]]] = {}
        for frame in self._frames:
            readings.setdefault((frame[0].name, frame[1]), []).append(frame)
        self._frames.clear()
        for (name, tick_ns), frames in readings.items():
            _, flags, _, _ = RECORDS_HEAD.unpack_from(frames[-1][2])
            if flags & MORE:
                self._frames += frames
                continue
            payloads = [payload for _, _, payload in frames]
            rows, columns = _of_frames(frames[0][0], payloads, now.wall_offset_ns)
            yield _result(now, now.tables[name][0], [tick_ns] * rows, columns, ())._replace(table=name)


def _source(recent: Recent) -> Source:
    return recent.writer, recent.sensitivity, recent.layout.table.name


def _keys(now: Now, *, is_derived: bool) -> Iterator[SeriesKey]:
    """The series of the newest ticks."""
    for name, recents in now.tables.items():
        for recent in recents:
            names = recent.derived if is_derived else recent.columns
            for instance in recent.rows[-1].names if recent.rows else ():
                yield from (SeriesKey(name, metric, instance) for metric in names)


def _column(now: Now, recent: Recent, place: int, metric: Metric, key: SeriesKey) -> Column:
    """What a series has at a tick; ``place``: that of the tick among those that are known."""
    path, row = series_path(*key), recent.rows[place]
    if metric.name not in recent.columns:
        (value, *_) = now.course(*key, len(recent.rows) - place) or [None]
    elif metric.semantics is Semantics.COUNTER:
        before = recent.rows[max(0, place - 1)]
        is_next = row.tick_ns - before.tick_ns <= recent.layout.interval_ns * GAP_FACTOR
        value = recent.rate(before, row, metric.name, key.instance) if is_next else None
        value = value if value is None or metric.unit != "s" else 100 * value
    else:
        stored = recent.stored(row, metric.name, key.instance)
        if metric.is_text:
            texts = (None if stored is None else now.text_of(stored),)
            return Column(path, metric.unit, metric.semantics, "last", texts=texts)
        numbers = np.array([ABSENT if stored is None else stored])
        return Column(path, metric.unit, metric.semantics, "mean", integers=numbers, scale=metric.scale)
    unit = rate_unit(metric.unit) if metric.semantics is Semantics.COUNTER else metric.unit
    floats = np.array([np.nan if value is None else round(value, RATE_DECIMALS)])
    return Column(path, unit, metric.semantics, "mean", floats=floats, decimals=RATE_DECIMALS)


def _of_frames(table: Table, payloads: Sequence[bytes], offset_ns: int) -> tuple[int, list[Column]]:
    """How many rows a reading of a long table has, and its columns, as they are stored; points in time are in UTC."""
    records = records_of_frames(table, payloads)
    columns = []
    for metric in table.metrics:
        stored = without_killed(table, metric.name, records.column)
        column = Column(metric.name, metric.unit, metric.semantics, "last", integers=stored, scale=metric.scale)
        if metric.is_text:
            words = [*records.texts, None]
            texts = tuple(words[code] for code in np.where(stored == ABSENT, -1, stored).tolist())
            column = column._replace(integers=None, scale=0, texts=texts)
        elif metric.name in {START, END}:
            moments = np.where(stored == ABSENT, ABSENT, stored + offset_ns)
            column = column._replace(unit=TIME_UNIT, integers=moments, scale=TIME_SCALE)
        columns.append(column)
    return records.rows, columns


def _result(now: Now, recent: Recent, ticks: Sequence[int], columns: Iterable[Column], gaps: Iterable[Gap]) -> Result:
    """What a table has at a tick (boot time), once a row."""
    times_ns = np.array(ticks, np.int64) + now.wall_offset_ns
    return Result(times_ns, tuple(columns), tuple(gaps), recent.layout.interval_ns, sensitivity=recent.sensitivity)


def _gap(now: Now, recent: Recent, why: tuple[Cause, str]) -> Gap:
    start_ns = recent.tick_ns + now.wall_offset_ns
    return Gap(start_ns, start_ns + recent.layout.interval_ns, recent.layout.table.name, *why)
