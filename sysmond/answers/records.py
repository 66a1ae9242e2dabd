# SPDX-License-Identifier: Apache-2.0
"""Answers about long tables: a question in words, checked, answered from what is there, as columns and as records."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain

import numpy as np

from sysmond.answers import dropping
from sysmond.answers.rows import columns as offered
from sysmond.answers.rows import from_tiers, grouping, record_gaps, summary
from sysmond.answers.rows.batch import Question, RowBatch, Rows, meeting
from sysmond.answers.rows.columns import Of, Offer, Spec
from sysmond.answers.rows.from_records import (
    JoinedRows,
    LastingBatch,
    UtcBuckets,
    axis,
    batches,
    covered_by_rows,
    lasting,
)
from sysmond.answers.rows.joins import Joins, Texts, needed
from sysmond.answers.rows.question import Request, asked, asked_of, column, finished, times_of
from sysmond.answers.series.gaps import only_buckets, open_start_ns, outside, recorded_elsewhere
from sysmond.base import paths
from sysmond.base.declared_answers import within
from sysmond.base.model import FINEST_TIER, READERS, TIERS_NS, Answers, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Answered, Event, Explanation, Gap, Result
from sysmond.base.timespec import FOREVER_NS, MINUTE_NS, format_step
from sysmond.errors import CorruptError, Error, NotPermittedError
from sysmond.machine import snapshot_note
from sysmond.machine.folders import Folders
from sysmond.rollup.ended import ended_of
from sysmond.rollup.top import is_dictionary
from sysmond.store import events, ring_reach
from sysmond.store.census import LATE_NS, Census, Line
from sysmond.store.stretches.stretch import Stretch, key_of, lasts
from sysmond.store.stretches.undeclared import BUILT_IN, BY_COLUMNS, RESTRICTED, answers_of, declared, with_children
from sysmond.store.tiers import COARSE

# Files may be merged or flushed while an answer is made of them: so often it is begun anew.
ATTEMPTS_MAX = 5
# A refusal names so many files that cannot be read: one of a few is the reason.
WARNINGS_TOLD_MAX = 8


def answer(folders: Folders, classes: Collection[Sensitivity], request: Request) -> Result:
    """Answer a question to a long table.

    :raises UsageError: for a wrong table, column, condition, time or step. :raises NotPermittedError: where the table
        may not be read. :raises Error: where nothing is recorded.
    """
    if _may_be_in_rings(folders, classes, request):
        # Whatever is refused, all files are asked: they may know better.
        with suppress(Error, FileNotFoundError), closing(Census(folders, classes, of_rings=True)) as census:
            return Answering(census, request).answer()
    with closing(Census(folders, classes)) as census:
        for attempt in range(ATTEMPTS_MAX + 1):
            try:
                return Answering(census, request).answer()
            except FileNotFoundError:
                if attempt == ATTEMPTS_MAX:
                    raise
            except CorruptError as damage:
                if not census.exclude(damage):
                    raise
    raise Error(f"table {request.table!r}: its files change faster than they can be read")


def _may_be_in_rings(folders: Folders, classes: Collection[Sensitivity], request: Request) -> bool:
    """Whether rings seem to go back far enough to answer alone."""
    when = times_of(request, snapshot_note.now(folders.state))
    if request.boot is not None or when.start_ns == -FOREVER_NS:
        return False
    back_ns = when.now_ns - when.start_ns
    return all(ring_reach.may_have(folders, classes, back_ns, table) for table in ("", request.table))


def _quantity(metric: Metric) -> tuple[str, Semantics, int]:
    return metric.unit, metric.semantics, metric.scale


def _described(metric: Metric) -> str:
    return f"a {metric.semantics} in {metric.unit} with {metric.scale} decimals"


class Answering:
    """One attempt to answer a request: what there is of its table, checked against what is asked."""

    def __init__(self, census: Census, request: Request) -> None:
        self._census = census
        self._request = request
        self._boot: str | None = None
        self._times = times_of(request, snapshot_note.now(census.place[0].state))
        self._now_ns = self._times.now_ns
        census.refused.clear()
        self._lines, self._past, self._since_ns = self._what_there_is()
        newest = self._newest()
        if self._leave_out(newest):
            self._lines, self._past, self._since_ns = self._what_there_is()
            newest = self._newest()
        # What the answer is made of: it is restricted where any of that is.
        self._stretches = [past.stretch for past in self._past]
        self._stretches += [part.stretch for line in self._lines for part in line.parts]
        self._with_children = self._earlier()
        # Up to when columns that are asked for meant something else: known once they are.
        self.meanings: list[Event] = []
        self._said = said = self._declared()
        if said is not None:
            for stretch in self._stretches:
                stretch.table = stretch.table._replace(answers=within(said, stretch.table))
        self.table: Table = declared(from_tiers.recorded(newest.table))
        self.offer: Offer = offer_of(self.table, is_raw=request.raw)
        self._warnings: list[str] = []
        # Where counters that are asked for began anew.
        self.resets: set[Gap] = set()
        self._came_later = {} if lasts(self.table) else self._later()

    def _newest(self) -> Stretch:
        return self._lines[-1].parts[-1].stretch if self._lines else self._past[-1].stretch

    def _declared(self) -> Answers | None:
        """What the newest that says something declares about answers: all is read by that. Rings do not say it."""
        newest = self._newest().table
        if newest.answers is None and (declared_there := self._census.answers(newest.name)):
            return declared_there
        said = [stretch.table.answers for stretch in self._stretches if stretch.table.answers is not None]
        return said[-1] if said else None

    def _earlier(self) -> dict[str, int]:
        """Metrics that counted what children did, too, and until when (UTC): by what the files themselves declare."""
        lines = [(part.line, part.stretch) for part in self._past]
        lines += [(line, part.stretch) for line in self._lines for part in line.parts]
        until: dict[str, int] = {}
        for line, stretch in lines:
            for name in with_children(stretch.table) if len(stretch.ticks) else ():
                until[name] = max(until.get(name, -FOREVER_NS), line.course.moment_ns(int(stretch.ticks[-1])))
        return until

    def _later(self) -> dict[str, int]:
        """Metrics that some files do not have yet, and until when (UTC): nobody knows them of the rows in those."""
        until: dict[str, int] = {}
        lines = [(line, part.stretch) for line in self._lines for part in line.parts]
        for line, stretch in lines:
            if not len(stretch.ticks):
                continue
            there = {metric.name for metric in stretch.table.metrics}
            for name in [metric.name for metric in self.table.metrics if metric.name not in there]:
                until[name] = max(until.get(name, -FOREVER_NS), line.course.moment_ns(int(stretch.ticks[-1])))
        return until

    @property
    def has_rows(self) -> bool:
        """Whether there are rows, not only buckets."""
        return bool(self._lines)

    @property
    def has_buckets(self) -> bool:
        """Whether of a part of the range there are only buckets."""
        return bool(self._past)

    @property
    def span(self) -> tuple[int, int]:
        """The range, UTC: from the first row on where nothing else is asked for, once it is made ``buckets``."""
        return self._times.start_ns, self._times.end_ns

    @property
    def boot(self) -> str | None:
        """The id of the boot that is asked for; None for all."""
        return self._boot

    def _leave_out(self, newest: Stretch) -> bool:
        """Leave out what declares a metric as another quantity than the newest does; whether there was any.

        Its numbers would be taken for what they are not.
        """
        now = {metric.name: metric for metric in from_tiers.recorded(newest.table).metrics}
        stretches = [part.stretch for line in self._lines for part in line.parts] + [
            past.stretch for past in self._past
        ]
        others: list[bool] = []
        for stretch in stretches:
            for metric in from_tiers.recorded(stretch.table).metrics:
                if _quantity(other := now.get(metric.name, metric)) != _quantity(metric):
                    said = f"{newest.table.name}/{metric.name}: {_described(metric)}, now {_described(other)}"
                    damage = CorruptError(f"{stretch.path}: {said}, as {newest.path} says; it is left out")
                    others.append(self._census.exclude(damage))
        return any(others)

    def _what_there_is(self) -> tuple[list[Line], list[from_tiers.Bucketed], dict[str, int]]:
        """What there is of the table: rows, where they begin later than the range buckets, and since when rows answer.

        :raises Error: where there is nothing.
        """
        census, table, times = self._census, self._request.table, self._times
        ends = self._within(times.start_ns, times.end_ns)
        if times.end_ns <= _begin_ns(*ends[:2]):
            # Before what was found, which may be rings alone: what came first says when recording began, and columns.
            first = census.extent(table, self._boot)
            if first and times.end_ns <= first.start_ns:
                ends = self._within(first.start_ns, first.start_ns + 1)
        if any(ends[:2]):
            return ends
        if census.refused:
            raise NotPermittedError(f"table {table!r}: no permission to read {census.refused[0]}")
        known = census.tables()
        if table in known:
            # A table that could never be read is told why, as a gap is.
            why = "; ".join(dict.fromkeys([*census.warnings[:WARNINGS_TOLD_MAX], *self._reasons[-1:]]))
            raise Error(f"table {table!r}: nothing is recorded in that range{f': {why}' if why else ''}")
        if left_out := self._left_out(table):
            raise Error(f"table {table!r}: not in this file; {left_out}")
        from sysmond.machine.lock import elsewhere  # noqa: PLC0415  only for an error

        raise paths.no_rows(table, known, BUILT_IN, elsewhere(census.place[0]))

    def _left_out(self, table: str) -> str:
        """Why a snapshot may not have a table; empty where that is no reason."""
        return snapshot_note.left_out(self._census.place[0].state) if table in RESTRICTED else ""

    def _within(self, start_ns: int, end_ns: int) -> tuple[list[Line], list[from_tiers.Bucketed], dict[str, int]]:
        """What there is of the table in a range, as ``_what_there_is``; nothing where that is so."""
        census, table = self._census, self._request.table
        lines = census.lines(table, start_ns, end_ns + LATE_NS)
        self._is_followed, self._reasons = census.is_followed, census.reasons
        tiers: list[list[Line]] = []
        if not self._request.raw and (not lines or _earliest_ns(lines[-1]) > start_ns):
            # Of the boots before the newest one, too, rows may be gone. What begins in the range may have its first
            # reading to tell of after it.
            tiers = [census.lines(table, start_ns, end_ns + TIERS_NS[tier], tier) for tier in COARSE]
        if self._request.boot is not None:
            self._boot = paths.find_boot(self._request.boot, census.boots(table, [*lines, *chain(*tiers)]))
            lines, *tiers = (
                [line for line in lines_of_tier if line.boot == self._boot] for lines_of_tier in (lines, *tiers)
            )
        return lines, *from_tiers.bucketed(lines, tiers)

    def answer(self) -> Result:
        """Answer it."""
        drop = dropping.parse(self._request.drop)
        question, notes = dropping.left_of_columns(self._asked(), drop)
        dropped = dropping.DroppedRows(self.table, drop)
        question = question._replace(where=dropped.within(question.where))
        percent = self._request.percentile
        buckets = self.buckets()
        question = question._replace(derived=self.with_others(question.derived, buckets, self._times.step_ns))
        keys = [self.offer.specs[name] for name in key_of(self.table)] if percent is not None else []
        specs = list(dict.fromkeys([*question.columns, question.by, *keys]))
        pieces: list[Rows] = []
        boots: dict[str, int] = {}
        values = 0
        for batch in self._batches(question, buckets):
            if question.groups:
                pieces.append(grouping.grouped(batch, question))
            else:
                if question.top and percent is None:
                    batch.keep(grouping.first(batch.bucket, batch.cells(question.by), question.top))
                pieces.append(grouping.rows_of(batch, specs, boots.setdefault(batch.boot, len(boots))))
            self.resets |= {*batch.resets()}
            # As each comes: what is refused at the end has cost all of it by then.
            values += grouping.size(pieces[-1])
            grouping.check_size(values)
        rows = finished(question, pieces, key_of(self.table), percent, buckets.stamps_ns) if pieces else None
        if self._request.summary and not lasts(self.table):
            notes = [*notes, *summary.left_out(grouping.without_average(question))]
            question, rows = grouping.summary_of(question, rows)
        return self._result(question, rows, buckets)._replace(notes=(*notes, *dropped.idle()))

    def whole_offer(self) -> Offer:
        """The columns, and those that are derived: of what is stored nothing is."""
        return self.offer if self._request.raw else offered.with_known(self.offer)

    def with_others(
        self, columns: Mapping[str, offered.FormulaColumn], buckets: UtcBuckets, step_ns: int
    ) -> Mapping[str, offered.FormulaColumn]:
        """Give derived columns what they need of other tables, in buckets of a step; 0 for one."""
        columns = self._with_beside(columns, buckets, step_ns)
        named = ((derived, name) for derived in columns.values() for name in derived.formula.operands)
        if not any(name.table and name not in derived.beside for derived, name in named):
            return columns
        from sysmond.answers import other_tables, wide  # noqa: PLC0415  few ask for them

        span = int(buckets.edges_ns[0]), int(buckets.edges_ns[-1])
        when = self._times._replace(start_ns=span[0], end_ns=span[1], step_ns=step_ns)
        return wide.opened(
            *self._census.place,
            when,
            self._boot,
            lambda line: other_tables.with_others(line, columns, span, self._boot, buckets.stamps_ns, step_ns),
        )

    def _with_beside(
        self, columns: Mapping[str, offered.FormulaColumn], buckets: UtcBuckets, step_ns: int
    ) -> Mapping[str, offered.FormulaColumn]:
        """Give derived columns what they need of other long tables: what these answer to the same question."""
        if not columns:
            return columns
        from sysmond.base.formula import SAME, Operand  # noqa: PLC0415  few ask for them

        labels: dict[str, list[str]] = {}
        operands: dict[str, dict[Operand, None]] = {}
        for label, derived in columns.items():
            for name in (name for name in derived.formula.operands if name.instance == SAME):
                labels.setdefault(name.table, []).append(label)
                operands.setdefault(name.table, {})[name] = None
        if not operands:
            return columns
        from sysmond.answers.rows import beside  # noqa: PLC0415  as above

        key = {name: self.offer.specs[name] for name in key_of(self.table)}
        by_operand: dict[Operand, beside.Beside] = {}
        for table, names in operands.items():
            asked_for = [*key, *(name.metric for name in names)]
            span = int(buckets.edges_ns[0]), int(buckets.edges_ns[-1])
            answer = self._answer_beside(
                Request(table, *span, step_ns or None, asked_for, boot=self._boot), labels[table]
            )
            by_operand |= beside.beside(key, [*names], answer, buckets.stamps_ns)
        return {
            label: derived._replace(
                beside={name: by_operand[name] for name in derived.formula.operands if name in by_operand}
            )
            for label, derived in columns.items()
        }

    def _answer_beside(self, request: Request, labels: Collection[str]) -> Result | None:
        """What another table answers; None, and a warning, where it cannot."""
        try:
            other = Answering(self._census, request)
            answer = other.answer()
        except FileNotFoundError:
            raise
        except Error as lacking:
            self._warnings.append(f"{lacking}; {', '.join(dict.fromkeys(labels))} is left empty")
            return None
        self._stretches += other._stretches
        return answer

    def _batches(self, question: Question, buckets: UtcBuckets) -> Iterator[RowBatch]:
        labels = question.where.columns if question.where else ()
        conditions = [question.specs[label] for label in labels]
        specs = question.parts([*question.columns, *question.groups, question.by, *conditions])
        lines = self.joined(specs)
        if not self._past:
            return batches(question, lines, buckets)
        if unknown := list(dict.fromkeys(spec.stat for spec in specs if offered.share_of(spec) is not None)):
            self._warnings.append(only_buckets(self.table.name, unknown))
        names = {spec.name for spec in specs if spec.of is Of.JOIN}
        of_boot = {part.line.boot: self._joined(part.line, names) for part in self._past}
        if not lasts(self.table):
            if self._request.summary:  # A row of a bucket stands for several: it has no smallest, and no average.
                self._warnings.append(only_buckets(self.table.name, summary.STATISTICS))
                return batches(question, lines, buckets, self._since_ns)
            moments: list[RowBatch] = [
                from_tiers.TierMomentBatch(part, of_boot[part.line.boot], buckets) for part in self._past
            ]
            return chain(meeting(question, moments), batches(question, lines, buckets, self._since_ns))
        covered = from_tiers.covered_by_buckets(self._past, buckets).plus(
            covered_by_rows(lines, buckets, self._since_ns)
        )
        batches_made: list[from_tiers.TierBatch | LastingBatch] = [
            from_tiers.TierBatch(part, of_boot[part.line.boot], buckets, covered) for part in self._past
        ]
        batches_made += lasting(self.table, lines, buckets, covered, self._since_ns)
        keys = [self.offer.specs[name] for name in key_of(self.table)]
        return meeting(question, from_tiers.merged(batches_made, specs, self.table, keys, covered.watched_s))

    def buckets(self) -> UtcBuckets:
        """The range as buckets.

        :raises UsageError: where there are too many.
        """
        _, start_ns, end_ns, step_ns = self._times
        lines = [*self._lines, *(part.line for part in self._past)]
        if start_ns == -FOREVER_NS:
            start_ns = open_start_ns(_begin_ns(self._lines, self._past), end_ns)
        if end_ns == FOREVER_NS:
            end_ns = max(line.last_ns for line in lines) + 1
        self._times = self._times._replace(start_ns=start_ns, end_ns=max(end_ns, start_ns + 1))
        # Behind the last reading there is nothing: an archive may be old, or its range far in the future.
        last_ns = max(line.latest_ns for line in lines) + LATE_NS + step_ns
        return axis(start_ns, max(start_ns + 1, min(self._times.end_ns, last_ns)), step_ns)

    def joined(self, specs: Iterable[Spec]) -> list[tuple[Line, JoinedRows]]:
        """The boots, and what these columns need beside the table."""
        specs = [*specs]
        names = {spec.name for spec in specs if spec.of is Of.JOIN}
        earlier = [name for name in dict.fromkeys(spec.name for spec in specs) if name in self._with_children]
        if earlier:
            text = f"up to here, {', '.join(earlier)} count what waited-for children did, too"
            until_ns = max(self._with_children[name] for name in earlier)
            self.meanings.append(Event(until_ns, "meaning", self.table.name, text))
        later = [name for name in dict.fromkeys(spec.name for spec in specs) if name in self._came_later]
        if later:
            text = f"up to here, {', '.join(later)} of some rows {'are' if len(later) > 1 else 'is'} not recorded"
            until_ns = max(self._came_later[name] for name in later)
            self.meanings.append(Event(until_ns, "meaning", self.table.name, text))
        return [(line, self._joined(line, names)) for line in self._lines]

    def _joined(self, line: Line, names: Collection[str]) -> JoinedRows:
        answers = answers_of(self.table)
        texts = {
            join: Texts(join, stretches)
            for join, labels in needed(answers.joins, names).items()
            if join.table not in READERS and (stretches := self._stretches_of(join.table, line, ", ".join(labels)))
        }
        ended, ending = None, answers.ended_by
        # A dictionary has what belongs to keys, whether they are there or not.
        is_alive = lasts(self.table) and not is_dictionary(self.table)
        if ending is not None and is_alive and (ends := self._of_line(ending.table, line)):
            ended = ended_of(ends, [dict(ending.by)[name] for name in key_of(self.table)])
        snapshot = snapshot_note.of(self._census.place[0].state)
        return JoinedRows(Joins(answers.joins, texts, bool(snapshot and snapshot.is_anonymous)), ended)

    def _stretches_of(self, table: str, line: Line, lacking: str = "") -> list[Stretch]:
        """The stretches of another table, whose rows belong to numbers; those of tiers, too, where they are asked."""
        tiers = [*reversed(COARSE), FINEST_TIER] if self._past else [FINEST_TIER]
        lines = [self._of_line(table, line, lacking, tier) for tier in tiers]
        return [part.stretch for other in lines if other for part in other.parts]

    def _of_line(self, table: str, line: Line, lacking: str = "", tier: str = FINEST_TIER) -> Line | None:
        """Another table over the same range and boot. ``lacking``: what is left out without it, to be said."""
        census = self._census
        census.refused.clear()
        start_ns = max(self._times.start_ns, line.first_ns - LATE_NS)
        end_ns = min(self._times.end_ns, line.last_ns + LATE_NS) + LATE_NS
        lines = [other for other in census.lines(table, start_ns, end_ns, tier) if other.boot == line.boot]
        if not lines and census.refused and lacking:
            self._warnings.append(f"{census.refused[0]}: no permission to read it; {lacking} is left empty")
        elif not lines and lacking and (left_out := self._left_out(table)):
            self._warnings.append(f"{lacking} is left empty: {left_out}")
        self._stretches += [part.stretch for at_tick in lines for part in at_tick.parts]
        return lines[0] if lines else None

    def _result(self, question: Question, rows: Rows | None, buckets: UtcBuckets) -> Result:
        times = np.zeros(0, np.int64) if rows is None else rows.times_ns
        columns = [column(spec, None if rows is None else rows.columns[spec.label]) for spec in question.columns]
        known_gaps = self.gaps(buckets)
        _, start_ns, end_ns, _ = self._times
        happened = self._census.happened(self._sensitivity(), start_ns, end_ns, self._boot)
        listed = events.among(happened, self.own_events())
        made = Result(
            times,
            tuple(columns),
            tuple(known_gaps),
            self._times.step_ns,
            tuple(dict.fromkeys(self.warnings())),
            tuple(listed),
            sensitivity=self._sensitivity(),
            table=self.table.name,
        )
        return made._replace(explanations=self._explained(question, made, buckets)) if self._request.explain else made

    def _asked(self) -> Question:
        """What is asked, checked; what is stored has no derived columns."""
        if self._request.raw:
            return asked_of(self._request, self.offer, self._refused_derived)
        return asked_of(self._request, self.offer, self.whole_offer)

    def _refused_derived(self) -> Offer:
        """The columns of what is stored, where nothing that is derived is asked for.

        :raises UsageError: where it is, or where a column is none at all.
        """
        offer = offered.with_known(self.offer)
        question = asked(self._request, offer)
        labels = [*(spec.label for spec in question.columns), *(question.where.columns if question.where else ())]
        for label in labels:
            if label in offer.derived:
                raise offer.derived[label].not_stored(f"column {label!r}")
        return self.offer

    def _explained(self, question: Question, made: Result, buckets: UtcBuckets) -> tuple[Explanation, ...]:
        """How each column came about."""
        from sysmond.answers import explain_rows  # noqa: PLC0415  few ask for it

        old = dict.fromkeys(
            format_step(past.stretch.interval_ns) for past in self._past if not past.stretch.about.is_by_rule
        )
        percent, is_raw = self._request.percentile, self._request.raw
        parts = self._answered(buckets)
        return explain_rows.of_long(question, parts, made.step_ns, made.gaps, percent, is_raw=is_raw, old=[*old])

    def _answered(self, buckets: UtcBuckets) -> Iterator[Answered]:
        """What answered: rows, and buckets of tiers, each with the times of its readings in the range."""
        low_ns, high_ns = int(buckets.edges_ns[0]), int(buckets.edges_ns[-1])
        for line in self._lines:
            since_ns = self._since_ns.get(line.boot, -FOREVER_NS)
            for stretch, end_ns in line.parts:
                ticks = stretch.ticks[(stretch.ticks >= since_ns) & (stretch.ticks < end_ns)]
                times = line.course.utc_ns(ticks)
                times = times[(times >= low_ns) & (times < high_ns)]
                if len(times):
                    last_ns = int(times.max()) + stretch.interval_ns
                    yield Answered("rows", stretch.interval_ns, int(times.min()), last_ns)
        for past in self._past:
            lengths = from_tiers.lengths(past, buckets)
            inside = lengths.bucket >= 0
            if inside.any():
                step_ns = past.stretch.interval_ns
                times = past.line.course.utc_ns(past.stretch.ticks[inside])
                first_ns = int((times - lengths.length_ns[inside]).min())
                yield Answered(format_step(step_ns), step_ns, first_ns, int(times.max()))

    def gaps(self, buckets: UtcBuckets) -> list[Gap]:
        """Why there is nothing in the range where there is nothing, as far as that was read."""
        _, start_ns, end_ns, _ = self._times
        table = self.table.name
        until_ns = min(end_ns, self._now_ns)
        silences = record_gaps.find(self._lines, table, start_ns, until_ns, is_followed=self._is_followed)
        known = set(recorded_elsewhere(silences, until_ns, self._census.place[0]))
        known.update(from_tiers.gaps(self._past, self._lines, table, buckets))
        known.update(record_gaps.resets_within(self.resets, start_ns, end_ns))
        known.update(self._outside(known))
        return sorted(gap for gap in known if gap.end_ns > start_ns and gap.start_ns < end_ns)

    def _outside(self, known: Iterable[Gap]) -> Iterator[Gap]:
        """The parts of the range before anything is ``known``, and from now on, once it is made ``buckets``."""
        begin_ns = min([_begin_ns(self._lines, self._past), *(gap.start_ns for gap in known)])
        start_ns = -FOREVER_NS if self._boot else self._times.start_ns
        return outside({self.table.name: begin_ns}, start_ns, self._times.end_ns, self._now_ns)

    def own_events(self) -> list[Event]:
        """Since when what is asked for means what it does, and is there of everything: as events, once it is read."""
        return [*self._events_of_tiers(), *dict.fromkeys(self.meanings)]

    def _events_of_tiers(self) -> Iterator[Event]:
        """Up to when only buckets are there, as an event, where that is in the range."""
        ends = [part.line.course.moment_ns(int(part.stretch.ticks[-1])) for part in self._past]
        if ends and max(ends) >= self._times.start_ns:
            names = BY_COLUMNS["others_by"] if self._said is None else self._said.others_by
            groups = "".join(f" by {name}" for name in names[:1])
            text = f"up to here, only the largest users have rows of their own, the others{groups} are added up"
            yield Event(max(ends), "tier", self.table.name, text)

    def warnings(self) -> list[str]:
        """What could not be read, or was lost."""
        lost = record_gaps.losses(self._lines, self.table.name, self._times.start_ns, self._times.end_ns)
        return [*self._census.warnings, *self._warnings, *lost]

    def _sensitivity(self) -> Sensitivity:
        return Sensitivity.RESTRICTED if self.is_restricted() else Sensitivity.PUBLIC

    def is_restricted(self) -> bool:
        """Whether anything that was read is."""
        return any(stretch.sensitivity is Sensitivity.RESTRICTED for stretch in self._stretches)


def _earliest_ns(line: Line) -> int:
    """When the rows of a boot begin: by its clock as it was last, where that says later, since it may have been set."""
    first_ns, last_ns = int(line.parts[0].stretch.ticks[0]), int(line.parts[-1].stretch.ticks[-1])
    return max(line.first_ns, line.last_ns - (last_ns - first_ns))


def _begin_ns(lines: Sequence[Line], past: Sequence[from_tiers.Bucketed]) -> int:
    """When what was found begins to tell of anything, UTC; never where that is nothing."""
    there = [*lines, *(part.line for part in past)]
    return min((line.first_ns - _longest_ns(line) for line in there), default=FOREVER_NS)


def _longest_ns(line: Line) -> int:
    """How long before its reading what the first row of a line tells of may begin: the length of a bucket."""
    return line.parts[0].stretch.interval_ns if not lasts(line.parts[0].stretch.table) else 0


def offer_of(table: Table, *, is_raw: bool) -> Offer:
    """The columns that rows of a table may have; ``is_raw``: as they are stored, one a record."""
    if is_raw and table.packing is not None:
        table = table._replace(packing=table.packing._replace(lasting=False))
    return offered.offer(table)


def newest(folders: Folders, classes: Collection[Sensitivity], table: str) -> Table:
    """A long table as it was declared when it was recorded last.

    :raises Error: where it may not be read, or nothing of it is there.
    """
    # The last minute is in rings, or in the last file before it; only where neither can be read all are asked.
    lately = Request(table, snapshot_note.now(folders.state).realtime_ns - MINUTE_NS)
    if _may_be_in_rings(folders, classes, lately):
        with suppress(Error, FileNotFoundError), closing(Census(folders, classes, of_rings=True)) as census:
            return Answering(census, lately).table
    with closing(Census(folders, classes)) as census:
        with suppress(Error):
            return Answering(census, lately).table
        return Answering(census, Request(table)).table


def described(table: Table) -> Iterator[tuple[str, str, str]]:
    """The columns that answers about a table may have: name, unit, what it is; of derived ones the formula, too."""
    from sysmond.base import derived_columns  # noqa: PLC0415  as above

    docs = {metric.name: metric.doc for metric in table.metrics}
    docs |= {name: column.described for name, column in derived_columns.of_table(table).items()}
    for label, spec in offered.with_known(offered.offer(table)).specs.items():
        yield label, spec.unit, docs.get(spec.name, "")
