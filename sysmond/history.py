# SPDX-License-Identifier: Apache-2.0
"""History: what was recorded, by path, time range and step; the library for every reader.

>>> from sysmond import history
>>> result = history.open().select("cpu/user", start="yesterday", step="1min")  # doctest: +SKIP

Rates are derived here, from exact counters; every hole is a gap with its cause.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from sysmond.answers import dropping, times
from sysmond.answers.rows import summary as summaries
from sysmond.answers.times import Length, Moment
from sysmond.base import arguments, paths, statistic, timespec
from sysmond.base.clock import Relation
from sysmond.base.model import EVENTS, Metric, Sensitivity, series_path
from sysmond.base.result import Boot, Entry, Event, LongEntry, Result
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import Error, UsageError
from sysmond.machine import recorders, snapshot_note
from sysmond.machine.folders import Folders
from sysmond.store import archive
from sysmond.store.holdings import Holdings
from sysmond.store.of_ring import SeriesKey
from sysmond.store.stretches.undeclared import BUILT_IN

if TYPE_CHECKING:
    from sysmond.answers.rows.question import Request
    from sysmond.answers.sql.run import SqlAnswer
    from sysmond.store.excerpt import ExcerptFile
    from sysmond.store.timeline import Timeline
    from sysmond.store.tracks import Track


@arguments.refused
def open(  # noqa: A001  the name that readers expect: history.open()
    state_dir: str | os.PathLike[str] | None = None,
    *,
    runtime_dir: str | os.PathLike[str] | None = None,
    user: bool = False,
    system: bool = False,
) -> "Archive":
    """Open the archive of this machine, or with ``user`` that of this user.

    Without either an ordinary user's own recorder is meant while it runs, else the machine's as far as they may read
    it, else what they recorded themselves.

    A ``state_dir`` that is named alone is read alone, unless it is the one that a recorder of this machine writes to.
    It may be one segment, or an answer that ``sysmon-extract`` saved as HDF5: that file answers alone.

    :raises Error: where there is none. :raises NotPermittedError: where we may not look.
    """
    state, runtime = arguments.path("state_dir", state_dir), arguments.path("runtime_dir", runtime_dir)
    chosen = recorders.asked(user=user, system=system, state_dir=state, runtime_dir=runtime, or_file=True)
    if not any(map(os.path.exists, chosen)):
        raise Error(
            f"{chosen.state}: nothing has been recorded there; 'sysmond' records, --state-dir names another folder"
        )
    if os.path.isfile(chosen.state):
        from sysmond.store import alone  # noqa: PLC0415  most archives are folders

        if (answer := alone.look(chosen.state).answer) is not None:
            return SavedAnswer(chosen, answer)
    return Archive(chosen)


# What is expected where something else was given.
_PATH, _STATISTIC = "cpu/busy", "p95"


class SeriesRequest(NamedTuple):
    """What is asked of series, as people say it; see ``Archive.select``."""

    patterns: Sequence[str] = ()
    start: Moment | None = None
    end: Moment | None = None
    step: Length | None = None
    stat: str | Sequence[str] | None = None
    boot: str | int | None = None
    raw: bool = False
    explain: bool = False
    drop: str | Sequence[str] = ()
    summary: bool = False


class Archive:
    """Everything recorded in a pair of folders; each call sees what is there by then."""

    def __init__(self, place: Folders, *, classes: Collection[Sensitivity] = tuple(Sensitivity)) -> None:
        """Look at these folders, and in them at what is of these classes: of others nothing is told."""
        self._classes = tuple(classes)
        self.place = place
        """Where it lies."""
        self.state_dir = snapshot_note.named(place.state)
        """How people call it: a snapshot by its file."""
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<Archive {self.state_dir}>"

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a part of another archive: nothing is known of what came after it."""
        return snapshot_note.of(self.place.state) is not None

    @property
    def is_anonymous(self) -> bool:
        """Whether names became numbers in it."""
        said = snapshot_note.of(self.place.state)
        return said is not None and said.is_anonymous

    def now(self) -> Relation:
        """The clocks from which relative times count: in a snapshot, now is its end."""
        return snapshot_note.now(self.place.state)

    def last_ns(self) -> int | None:
        """When anything was recorded last; None where nothing is."""
        return max((boot.end_ns for boot in self.boots()), default=None)

    def span(self, start: str | None, end: str | None, length: str) -> tuple[int, int]:
        """Read a range in which something is to be seen, [start, end) in UTC ns: without a start, its last ``length``.

        Where neither is given it ends now, and in an archive into which nobody records, with the last that is there.

        :raises UsageError: for a wrong time, and for a range that ends before it begins.
        """
        now = self.now()
        is_open = start is end is None
        if is_open and not recorders.is_recording(self.place) and (last_ns := self.last_ns()) is not None:
            past_ns = max(0, now.realtime_ns - last_ns - 1)
            now = Relation(*(time_ns - past_ns for time_ns in now))
        return timespec.parse_span(start or f"-{length}", end or "now", now)

    @arguments.refused
    def catalogue(self, *patterns: str, boot: str | int | None = None, derived: bool = False) -> list[Entry]:
        """What has been recorded: one entry a series, sorted by path; with ``derived`` what follows from it, too.

        :raises UsageError: for a pattern that means nothing recorded. :raises NotPermittedError: for one that
            means what we may not read.
        """
        from sysmond.answers import wide  # noqa: PLC0415  who asks for long tables needs none of it
        from sysmond.store.timeline import Timeline  # noqa: PLC0415  as above

        with closing(Timeline(self.place, self._classes)) as line:
            wanted_boot = wide.find_boot(line, boot)
            ranges: dict[SeriesKey, tuple[int, int, int]] = {}
            for track in line.tracks:
                if wanted_boot in {None, track.lineage.boot}:
                    _extend(ranges, track, line)
            parsed = [paths.parse(pattern, self.place.state) for pattern in patterns]
            keys = [*ranges, *(_derived_keys(line, ranges) if derived else ())]
            chosen, empty = wide.match(parsed, keys, line, self.place) if patterns else (keys, {})
            derived_of = _derived(line, ranges, [key for key in chosen if key not in ranges])
            self.warnings = list(dict.fromkeys([*empty.values(), *(damage.reason for damage in line.damages)]))
            return [
                _entry(
                    key,
                    derived_of[key][0] if key in derived_of else line.metrics(key.table)[key.metric],
                    wide.sensitivity(line.restricted & {key.table}),
                    *(derived_of[key][1] if key in derived_of else ranges[key]),
                    is_derived=key in derived_of,
                )._replace(per=line.declared[key.table][0].table.per)
                for key in sorted(chosen)
            ]

    def long_tables(self, *patterns: str, boot: str | int | None = None) -> list[LongEntry]:
        """The tables of processes and the like of which anything has been recorded, sorted; ``records`` asks them.

        With ``patterns`` those so called, and no file of others is opened. Among them is ``event``, where anything
        happened.
        """
        from sysmond.answers import event_rows  # noqa: PLC0415  who asks for wide tables needs none of it
        from sysmond.store import events  # noqa: PLC0415  as above
        from sysmond.store.census import Census  # noqa: PLC0415  as above

        names = [paths.naming(pattern) for pattern in patterns or ("*",)]

        def is_meant(table: str) -> bool:
            return any(is_called(table) for is_called in names)

        with closing(Census(self.place, self._classes)) as census:
            if boot is None:
                extents = census.extents(is_meant)
            else:
                from sysmond.answers import wide  # noqa: PLC0415  as above
                from sysmond.store.timeline import Timeline  # noqa: PLC0415  as above

                with closing(Timeline(self.place, self._classes)) as line:
                    extents = census.extents(is_meant, wide.find_boot(line, boot))
        if is_meant(EVENTS):
            with suppress(UsageError):  # Of a boot of which there are only rows of long tables.
                where = self.place, self._classes
                happened = events.outermost(*where) if boot is None else events.read(*where, boot=boot)
                extents += event_rows.entries(happened)
        self.warnings = census.warnings
        return sorted(extents)

    def recent_tables(self, since_ns: int) -> frozenset[str] | None:
        """The wide tables of which the recorder's rings have rows; no file is opened.

        None where rings do not go back to a moment, UTC ns.
        """
        from sysmond.answers import wide  # noqa: PLC0415  who asks for long tables needs none of it

        return wide.recent_tables(self.place, self._classes, since_ns, self.now().realtime_ns)

    def columns(self, table: str) -> list[tuple[str, str, str]]:
        """The columns that rows of a table may have: name, unit, what it is.

        :raises Error: where nothing is recorded. :raises NotPermittedError: where it may not be read.
        """
        where = self.place, self._classes
        if table == EVENTS:
            from sysmond.answers import event_rows  # noqa: PLC0415  most ask for values

            return list(event_rows.described())
        if self._is_long(table):
            from sysmond.answers import records  # noqa: PLC0415  as above

            return list(records.described(records.newest(*where, table)))
        from sysmond.answers import wide_rows  # noqa: PLC0415  as above
        from sysmond.store.timeline import Timeline  # noqa: PLC0415  as above

        with closing(Timeline(*where)) as line:
            return list(wide_rows.described(wide_rows.declared(line, table), line.derived(table)))

    def boots(self) -> list[Boot]:
        """Every boot with anything recorded, oldest first."""
        from sysmond.store.timeline import Timeline  # noqa: PLC0415  as above

        with closing(Timeline(self.place, self._classes)) as line:
            ranges: dict[str, tuple[int, int]] = {}
            for track in line.tracks:
                boot = track.lineage.boot
                start_ns, end_ns = line.moment_ns(boot, track.first_ns), line.moment_ns(boot, track.last_ns)
                seen = ranges.get(boot, (start_ns, end_ns))
                ranges[boot] = (min(seen[0], start_ns), max(seen[1], end_ns))
            return [Boot(boot, *ranges[boot]) for boot in line.boots()]

    @arguments.refused
    def events(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        boot: str | int | None = None,
        kind: str = "*",
        subject: str = "*",
    ) -> list[Event]:
        """What happened in [start, end), in order of boots and boot time.

        Times are as for ``select``, without an end up to now and what is known of later. ``kind``, ``subject``: only
        those so called; ``*`` and ``?`` are wildcards.

        :raises UsageError: for a wrong time, and for a boot that was not recorded.
        """
        when = times.read(start, FOREVER_NS if end is None else end, is_open=True, now=self.now())
        return _chosen(self._events(when.start_ns, when.end_ns, boot), kind, subject)

    def _events(self, start_ns: int, end_ns: int, boot: str | int | None) -> Sequence[Event]:
        from sysmond.store import events  # noqa: PLC0415  as above

        happened = events.read(self.place, self._classes, start_ns, end_ns, boot)
        self.warnings = happened.warnings
        return happened.events

    @arguments.refused
    def select(  # noqa: PLR0913  each is one word of a question
        self,
        *patterns: str,
        start: Moment | None = None,
        end: Moment | None = None,
        step: Length | None = None,
        stat: str | Sequence[str] | None = None,
        boot: str | int | None = None,
        raw: bool = False,
        explain: bool = False,
        drop: str | Sequence[str] = (),
        summary: bool = False,
    ) -> Result:
        """Series by path over [start, end), a row a bucket of ``step``; with ``raw`` a row a tick, as stored.

        Times are as ``timespec`` reads them (``"yesterday"``, ``"-1h"``, ``"2025-01-31 14:30"``), UTC nanoseconds, or
        times of Python, numpy or pandas: see ``Moment``; ``start`` is the first sample where it is not given, ``end``
        now. ``step`` is a length (``"10s"``, ``"1min"``, a ``timedelta``) or nanoseconds; where it is not given,
        as often as most of the range was recorded. ``stat``: one or several of mean (where none is given), min, max,
        tmax, first, last, sum, count, and percentiles (``p95``).
        ``boot``: 0 for the newest, -1 for the one before, or an id. ``explain``: tell how each column came about, too.
        ``drop``: patterns of what is left out: paths, or ``METRIC[@INSTANCE]``. ``summary``: one time for all of the
        range, with mean, min, max and p95 of each series that has an average. Of a long table the instances are what
        its rows are about: ``process/cpu@1234``; where a number was used again, ``@1234/START`` in seconds since 1970.

        A column has a row a time: of counters rates per second (of seconds: percent), and sums in the unit
        recorded. Gaps are told with their true ends, which may lie outside the range.

        :raises UsageError: for a wrong path, time, step or statistic, and for an answer beyond all measure.
        :raises NotPermittedError: for what we may not read. :raises Error: where nothing is recorded.
        """
        wanted = arguments.texts("path", patterns, _PATH)
        stats = None if stat is None else arguments.texts("stat", stat, _STATISTIC)
        left_out = arguments.texts("drop", drop, _PATH)
        result = self._select(SeriesRequest(wanted, start, end, step, stats, boot, raw, explain, left_out, summary))
        self.warnings = list(result.warnings)
        return result

    def _select(self, request: SeriesRequest) -> Result:
        from sysmond.answers import wide  # noqa: PLC0415  as above

        if request.summary:
            summaries.check(step=request.step, stat=request.stat, raw=request.raw, explain=request.explain)
            request = request._replace(stat=summaries.STATISTICS)
        stats = _statistics("mean" if request.stat is None else request.stat)
        when = times.read(request.start, request.end, request.step, is_open=request.boot is not None, now=self.now())
        of_wide, of_long = self._by_kind(request.patterns or ("*",))
        asked = wide.SeriesQuestion(
            of_wide,
            when,
            request.boot,
            lambda _: stats,
            request.raw,
            request.explain,
            is_whole=request.summary,
            drop=dropping.parse(request.drop, self.place.state),
        )
        where = self.place, self._classes
        result = wide.answer(*where, asked) if of_wide else None
        if of_long:
            from sysmond.answers import long_series  # noqa: PLC0415  as above

            said = None if request.stat is None else stats
            beside = long_series.answer(
                *where, of_long, asked, said, when.step_ns if result is None else result.step_ns
            )
            result = beside if result is None else long_series.beside(result, beside)
        assert result is not None  # noqa: S101  there is a pattern of one kind
        return summaries.of_series(result) if request.summary else result

    def _by_kind(self, patterns: Sequence[str]) -> tuple[list[str], list[paths.Pattern]]:
        """Patterns that mean wide tables, and those that name a long one."""
        parsed = [paths.parse(text, self.place.state) for text in patterns]
        for pattern in parsed:
            if pattern.table == EVENTS:
                expected = f"expected rows: table {EVENTS!r}" + f", column {pattern.metric!r}" * (pattern.metric != "*")
                raise UsageError(f"path {pattern.text!r}: events are not series; {expected}")
        named = {pattern.table for pattern in parsed if not paths.is_wild(pattern.table)}
        known = BUILT_IN.keys() & named
        if named - known:
            known |= named.intersection(archive.long_tables(self.place))
        of_wide = [pattern.text for pattern in parsed if pattern.table not in known]
        return of_wide, [pattern for pattern in parsed if pattern.table in known]

    @arguments.refused
    def records(  # noqa: PLR0913  each is one word of a question
        self,
        table: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        step: Length | None = None,
        columns: str | Sequence[str] = (),
        where: str | None = None,
        group_by: str | Sequence[str] = (),
        by: str | None = None,
        top: int = 0,
        percentile: float | None = None,
        boot: str | int | None = None,
        stat: str | Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
        summary: bool = False,
        raw: bool = False,
        explain: bool = False,
    ) -> Result:
        """A row each instance, process, thread or record of a table over [start, end); with ``step`` one a step.

        ``columns``: ``METRIC[:STATISTIC]``, and what follows from metrics (``username``, ``unit``, ``exe`` …). Of a
        wide table ``instance`` says what a row is about, and the statistics are those of ``select``.
        ``where``: a condition on rows (``"comm ~ ^post and cpu > 5%"``). ``group_by``: columns whose rows are put
        together. ``stat``: of columns that name none, one or several. ``top``: only the first of each step ``by`` a
        column. ``percentile``: over the steps, one row for all. ``drop``: patterns of what is left out: columns, and of
        wide tables instances. ``summary``: of counters and gauges mean, min, max and p95; of tables whose rows are of
        their own moment one row for all. ``raw``: a row each that is stored, counters as they are: of wide tables an
        instance and reading, of long ones a record. ``explain``: tell how each column came about, too.
        Times and steps are as for ``select``. The answer is a result as that of ``select``, a row an element of its
        columns; ``records`` of it is a structured array.

        :raises UsageError: for a wrong column, condition, time or step. :raises NotPermittedError: where the table
            may not be read. :raises Error: where nothing is recorded.
        """
        from sysmond.answers.rows.question import Request  # noqa: PLC0415  as above

        request = Request(
            arguments.text("table", table, "process"),
            start,
            end,
            step,
            arguments.texts("columns", columns, "pid,comm,cpu"),
            arguments.text("where", where, "cpu > 5%"),
            arguments.texts("group_by", group_by, "comm"),
            arguments.text("by", by, "cpu"),
            arguments.whole_number("top", top),
            arguments.number("percentile", percentile),
            boot,
            None if stat is None else arguments.texts("stat", stat, _STATISTIC),
            arguments.texts("drop", drop, "uid"),
            summary,
            raw,
            explain,
        )
        return self._records(request)

    def _records(self, request: "Request") -> Result:
        if request.table == EVENTS:
            from sysmond.answers import event_rows  # noqa: PLC0415  as above

            return event_rows.answer(self.place, self._classes, request)
        if not self._is_long(request.table):
            from sysmond.answers import wide_rows  # noqa: PLC0415  as above

            return wide_rows.answer(self.place, self._classes, request)
        from sysmond.answers.records import answer  # noqa: PLC0415  as above

        return answer(self.place, self._classes, request)

    def _is_long(self, table: str) -> bool:
        """Whether a table is a long one: one of sysmond's, or another that is recorded."""
        return table in BUILT_IN or table in Holdings(self.place, self._classes).tables()

    def follow(self, *patterns: str) -> Iterator[Result]:
        """What is recorded from now on, for ever: a result a tick and table, as soon as it is there.

        ``patterns``: series of wide tables as for ``select``, long tables and ``event`` by their names; without any,
        all wide tables. Of a wide table a result has one time and what its series have then, counters as rates since
        the tick before; of a long one the rows that are recorded of that tick, as they are stored (``raw``). ``gaps``
        say why a tick, or an instance at it, has nothing; ``events`` what happened since the result before.

        :raises UsageError: for a pattern that means nothing that is being recorded. :raises Error: where nothing is.
        """
        from sysmond.answers.following import Following  # noqa: PLC0415  as above

        return Following(self.place, self._classes, patterns).results()

    @arguments.refused
    def sql(
        self, query: str, *, start: Moment | None = None, end: Moment | None = None, boot: str | int | None = None
    ) -> "SqlAnswer":
        """What DuckDB finds in the tables that a query names, over [start, end); see ``sysmond.answers.sql.run``.

        :raises UsageError: for a wrong query or time. :raises Error: where DuckDB is not installed, or nothing is
            recorded.
        """
        from sysmond.answers.rows.question import Request  # noqa: PLC0415  as above
        from sysmond.answers.sql import run  # noqa: PLC0415  as above

        asked = arguments.text("query", query, "select * from cpu")
        return run.ask(self.place, self._classes, asked, Request("", start, end, boot=boot))

    @arguments.refused
    def excerpt(
        self, start: Moment | None = None, end: Moment | None = None, *, anonymous: bool = False
    ) -> "list[ExcerptFile]":
        """Give what was recorded over [start, end) as files of an archive.

        That archive has nothing else: no series, process, text or event of another time, but for the reading before
        from which counters grew; of tables whose rows last that may be one a minute before. ``sysmon snapshot`` writes
        them into one file. ``anonymous``: names become numbers, and other texts go.

        :raises UsageError: for a wrong time. :raises Error: where nothing is recorded then, or so much that files
            would be larger than any reader accepts.
        """
        from sysmond.store import excerpt, holdings  # noqa: PLC0415  as above
        from sysmond.store.anonymous import Anonymity  # noqa: PLC0415  as above

        asked = times.read(start, end, is_open=False, now=self.now())
        span = excerpt.ExcerptSpan(asked.start_ns, asked.end_ns)
        warnings: list[str] = []
        files = holdings.anew(
            lambda: list(excerpt.files(self.place, self._classes, span, warnings, Anonymity() if anonymous else None))
        )
        self.warnings = list(dict.fromkeys(warnings))
        if not files:
            raise Error(
                f"{self.state_dir}: no rows or events in that range; 'sysmon-extract --list' shows what there is"
            )
        return files


class SavedAnswer(Archive):
    """An answer that was saved as HDF5: it gives back itself, or a part of it, and has nothing else to answer from."""

    def __init__(self, place: Folders, answer: Result) -> None:
        super().__init__(place)
        self._saved = answer

    def catalogue(self, *patterns: str, boot: str | int | None = None, derived: bool = False) -> list[Entry]:
        """As of an archive: one entry a series that was saved, derived or not."""
        del derived
        self._refuse(SeriesRequest(boot=boot))
        times_ns, saved = self._saved.times_ns, self._saved
        if saved.table or not len(times_ns):
            return []
        chosen = {column.path: column for column in self._series(patterns).columns}
        span = int(times_ns.min()), int(times_ns.max())
        return [
            Entry(path, chosen[path].unit, chosen[path].semantics, "", *span, saved.step_ns, saved.sensitivity)
            for path in sorted(chosen)
        ]

    def long_tables(self, *patterns: str, boot: str | int | None = None) -> list[LongEntry]:
        """As of an archive: the table whose rows were saved, if it is a long one."""
        self._refuse(SeriesRequest(boot=boot))
        times_ns, saved = self._saved.times_ns, self._saved
        is_meant = not patterns or any(paths.naming(pattern)(saved.table) for pattern in patterns)
        if not saved.table or not len(times_ns) or not is_meant:
            return []
        span = int(times_ns.min()), int(times_ns.max())
        return [LongEntry(saved.table, "row", "", *span, saved.step_ns, saved.sensitivity)]

    def follow(self, *patterns: str) -> Iterator[Result]:
        """Nothing of it goes on.

        :raises UsageError: always.
        """
        del patterns
        raise self._refusal("follow")

    def boots(self) -> list[Boot]:
        """None: which boots its rows are of was not saved."""
        return []

    def _events(self, start_ns: int, end_ns: int, boot: str | int | None) -> Sequence[Event]:
        """Those that were saved with it."""
        self._refuse(SeriesRequest(boot=boot))
        return [event for event in self._saved.events if start_ns <= event.time_ns < end_ns]

    def _select(self, request: SeriesRequest) -> Result:
        """All statistics of it where none is given; rows of a table by its name.

        :raises UsageError: for what was not saved, another step among it.
        """
        from sysmond.answers import saved_answer  # noqa: PLC0415  as in the archive

        is_other = request.raw and bool(self._saved.step_ns)
        self._refuse(request._replace(raw=is_other), "patterns", "stat", "drop")
        stats = None if request.stat is None else _statistics(request.stat)
        part = self._series(request.patterns, stats)
        return self._within(saved_answer.without(part, dropping.parse(request.drop, self.state_dir)), request)

    def _records(self, request: "Request") -> Result:
        """Rows as they were saved: they are neither chosen nor put together anew.

        :raises UsageError: for what was not saved, and for another table.
        """
        from sysmond.answers import saved_answer  # noqa: PLC0415  as in the archive

        self._refuse(request, "table", "columns")
        if request.table != self._saved.table:
            raise UsageError(
                f"table {request.table!r}: not saved with this answer; expected {self._saved.table or 'series'}"
            )
        labels = request.columns.split(",") if isinstance(request.columns, str) else request.columns
        wanted = [label.strip() for label in labels if label.strip()]
        return self._within(saved_answer.columns(self._saved, wanted), request)

    def sql(
        self, query: str, *, start: Moment | None = None, end: Moment | None = None, boot: str | int | None = None
    ) -> "SqlAnswer":
        """Refused: a query needs the tables that an archive has."""
        del query, start, end, boot
        raise self._refusal("sql")

    def _series(self, patterns: Sequence[str], stats: Sequence[str] | None = None) -> Result:
        from sysmond.answers import saved_answer  # noqa: PLC0415  as in the archive

        parsed = [paths.parse(pattern, self.state_dir) for pattern in patterns]
        if self._saved.table:
            if all(paths.Matcher(pattern).table(self._saved.table) and pattern.metric == "*" for pattern in parsed):
                return self._saved
            raise UsageError(f"{' '.join(patterns)}: not saved with this answer; expected {self._saved.table}")
        return saved_answer.series(self._saved, parsed or [paths.parse("*")], stats)

    def _within(self, part: Result, request: "SeriesRequest | Request") -> Result:
        from sysmond.answers import saved_answer  # noqa: PLC0415  as in the archive

        when = times.read(request.start, request.end, is_open=True)
        return saved_answer.within(part, when.start_ns, when.end_ns)

    def _refuse(self, request: "SeriesRequest | Request", *answered: str) -> None:
        """Refuse what only an archive can answer: all but a range, the step of the answer, and what is named.

        :raises UsageError: naming it.
        """
        for name, value in request._asdict().items():
            is_asked = value is not None and (bool(value) or name == "boot")
            if name == "step":
                is_asked = is_asked and times.length(value) != self._saved.step_ns
            if is_asked and name not in {"start", "end", *answered}:
                raise self._refusal(name)

    def _refusal(self, name: str) -> UsageError:
        step = timespec.format_step(self._saved.step_ns) if self._saved.step_ns else "none: as recorded"
        expected = f"the step that it was saved with, {step}" if name == "step" else "an archive"
        return UsageError(f"{self.state_dir}: a saved answer, which cannot be used for {name!r}; expected {expected}")


def _extend(ranges: dict[SeriesKey, tuple[int, int, int]], track: "Track", line: "Timeline") -> None:
    """Take a track into the ranges of its series: from, to, finest resolution."""
    boot = track.lineage.boot
    for keys, first_ns, last_ns, step_ns in track.extents():
        start_ns, end_ns = line.moment_ns(boot, first_ns), line.moment_ns(boot, last_ns)
        for key in keys:
            seen = ranges.get(key, (start_ns, end_ns, step_ns))
            ranges[key] = (min(seen[0], start_ns), max(seen[1], end_ns), min(seen[2], step_ns))


def _derived_keys(line: "Timeline", keys: Iterable[SeriesKey]) -> list[SeriesKey]:
    from sysmond.answers.series import derived  # noqa: PLC0415  few ask for them

    return derived.named(line, keys)


def _derived(
    line: "Timeline", ranges: Mapping[SeriesKey, tuple[int, int, int]], keys: Sequence[SeriesKey]
) -> dict[SeriesKey, tuple[Metric, tuple[int, int, int]]]:
    """Of derived series what they are, and their range: that of all their metrics."""
    if not keys:
        return {}
    from sysmond.answers.series import derived  # noqa: PLC0415  as above

    made = {}
    for key, series in derived.find(line, keys).items():
        start_ns, end_ns, interval_ns = zip(*(ranges[own] for own in series.own.values()), strict=True)
        made[key] = series.metric, (max(start_ns), min(end_ns), max(interval_ns))
    return made


def _entry(
    key: SeriesKey,
    metric: Metric,
    sensitivity: Sensitivity,
    start_ns: int,
    end_ns: int,
    interval_ns: int,
    *,
    is_derived: bool = False,
) -> Entry:
    path, formula = series_path(*key), metric.origin if is_derived else ""
    return Entry(path, metric.unit, metric.semantics, metric.doc, start_ns, end_ns, interval_ns, sensitivity, formula)


def _chosen(happened: Sequence[Event], kind: str, subject: str) -> list[Event]:
    """Those of a kind and about a subject, as patterns."""
    is_kind, is_subject = paths.naming(kind), paths.naming(subject)
    return [event for event in happened if is_kind(event.kind) and is_subject(event.subject)]


def _statistics(stat: str | Sequence[str]) -> list[str]:
    stats = stat.split(",") if isinstance(stat, str) else list(stat)
    for name in stats:
        statistic.check(name)
    return list(dict.fromkeys(stats))
