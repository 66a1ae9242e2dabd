# SPDX-License-Identifier: Apache-2.0
"""The time line: rings, segments in RAM and segments on disk as one sequence of rows a table.

What there is ``holdings`` lists; it is joined by tick, so what is seen twice, as it moves on, is there once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, product
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import TIERS_NS, Answers, Cause, Derived, Metric, Sensitivity, Table
from sysmond.base.result import Event, Gap
from sysmond.base.wall_clock import ALWAYS_NS, Course, Said, course_of, joined
from sysmond.errors import CorruptError
from sysmond.machine.folders import Folders
from sysmond.ring.snapshot import Snapshot
from sysmond.store import archive, events, pins
from sysmond.store.archive import Name
from sysmond.store.files import opening
from sysmond.store.holdings import Damage, Files, Holdings, Place, Shelf, anew
from sysmond.store.of_ring import ANY_TABLE, Hole, Recording, SeriesKey, Strand, of_snapshot
from sysmond.store.ring_copies import RingCopies
from sysmond.store.ring_reach import STAYING, OnlyAllError, RingBegin, TooLittleError, complete_since, was_set
from sysmond.store.tracks import Lineage, Member, OpenedFile, Track, join


class Reach(NamedTuple):
    """How far the files of a class and tier go of which only those near a range are open.

    ``begin_ns``, ``end_ns``: UTC of the first and the last reading of these; endless where none were left out on that
    side. ``tables``: of which they have series; ``always``: of which the outer ones, too.
    """

    begin_ns: int
    end_ns: int
    tables: set[str]
    always: set[str]

    def may_go_on(self, gap: Gap) -> bool:
        """Whether a gap may be another one by files that were left out, whatever table it is of.

        A table may have changed its class: then none of these has it, and those that were left out do.
        """
        if gap.cause is Cause.BEFORE_RECORDING and self.begin_ns != -ALWAYS_NS:
            return True
        return gap.start_ns <= self.begin_ns or gap.end_ns >= self.end_ns


class Declaration(NamedTuple):
    """How a source, by its path, declares a table."""

    path: str
    table: Table


class Timeline:
    """What was recorded, opened for reading; close it after use."""

    def __init__(
        self,
        folders: Folders,
        classes: Collection[Sensitivity] = tuple(Sensitivity),
        span: tuple[int, int] | None = None,
        *,
        of_rings: bool = False,
    ) -> None:
        """Open every source of these classes; with a ``span`` in UTC the rings, and the files in it and beside it.

        ``of_rings``: rings alone, with what files have of them, too. What is unreadable is kept in ``damages``, what we
        may not read in ``refused``; ``unread`` tells where a readable file has values that are not.

        :raises FileNotFoundError: where files were merged or flushed while they were opened, again and again.
        :raises TooLittleError: where rings alone do not have all of the span.
        """
        self.folders = folders
        self._span = span
        self._start_ns = span[0] if span else -ALWAYS_NS
        self._files = Files(opening.segment)
        self.unread: dict[Hole, set[SeriesKey]] = {}
        self._derived: dict[str, Mapping[str, Derived]] = {}
        self._metrics: dict[str, dict[str, Metric]] = {}
        anew(lambda: self._open_sources(Holdings(folders, classes), of_rings=of_rings))
        self._courses = self._join_clocks()
        self.texts = {ident: text for recording in self._recordings for ident, text in recording.texts.items()}
        self.declared = self._declarations()
        """What declares each table, the newest source first."""
        self.tracks = self._join_blocks()
        if of_rings:
            self._reaches.append(self._reach_of_rings())

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _open_sources(self, holdings: Holdings, *, of_rings: bool) -> None:
        self._holdings = holdings
        self.damages, self.refused = holdings.damages, holdings.refused
        self._begins: list[RingBegin] = []
        self._newest: list[OpenedFile] = []
        self._reaches: list[Reach] = []
        if of_rings:
            self._sources = list(holdings.rings("", self._of_whole_ring, self._start_ns))
            return
        self._sources = list(holdings.rings("", self._of_ring))
        for tier, sensitivity in product(TIERS_NS, holdings.classes):
            shelf = Shelf(holdings, Place(sensitivity, tier), self._open, _said_by)
            self._sources += shelf.others()
            if self._span is None:
                self._sources += shelf.everything()
            else:
                self._open_near(shelf, *self._span)

    def _of_ring(self, copied: Snapshot, _: int) -> OpenedFile:
        return self._opened_ring(copied, of_snapshot(copied))

    def _opened_ring(self, copied: Snapshot, ring: Recording) -> OpenedFile:
        if ring.damage:
            self.damages.append(Damage(None, None, ring.damage))
        return OpenedFile(None, ring, copied.path, lambda: ring)

    def _of_whole_ring(self, copied: Snapshot, _: int) -> OpenedFile:
        """As ``_of_ring``, and note since when it has all."""
        who = copied.identity
        if who.writer in STAYING:  # Who runs for a moment only tells of no events.
            begins_ns, went_round = copied.begins_ns, bool(copied.lost)
            self._begins.append(RingBegin(who.writer, who.sensitivity, who.boot, begins_ns, went_round))
        return self._opened_ring(copied, RingCopies.recording(copied, self._start_ns))

    def _open(self, path: str, name: Name | None) -> OpenedFile:
        return OpenedFile(name, self._files.open(path).recording, path, lambda: self._files.open(path).recording)

    def _open_near(self, shelf: Shelf[OpenedFile], start_ns: int, end_ns: int) -> None:
        """Open the segments of a class and tier that overlap a span, and their neighbours on both sides."""
        near = shelf.near(start_ns, end_ns)
        sources = shelf.opened(near.names)
        self._sources += sources
        self._newest += shelf.opened(name for name in near.newest if name not in near.names)
        if sources:
            tables = [{key.table for key in _keys(source.recording)} for source in sources]
            outer = [*tables[:1] * near.is_cut_before, *tables[-1:] * near.is_cut_behind]
            every = set().union(*tables)
            spans = [span for name in near.names if (said := shelf.look(name)) and (span := said.span_ns())]
            self._reaches.append(
                Reach(
                    min(first for first, _ in spans) if near.is_cut_before and spans else -ALWAYS_NS,
                    max(last for _, last in spans) if near.is_cut_behind and spans else ALWAYS_NS,
                    every,
                    every.intersection(*outer),
                )
            )

    def _reach_of_rings(self) -> Reach:
        """How far the rings go, which have all that was recorded since: all of the span, and what is just before it.

        Events may be in those of each writer that stays.

        :raises TooLittleError: where files may have something in the span that rings do not: where a writer began anew,
            the clock was set, or files of another boot were written since the span began.
        """
        start_ns = self._start_ns
        boot, since_ns = complete_since(self._begins, STAYING)
        begin_ns = self.moment_ns(boot, since_ns)
        if begin_ns > start_ns or was_set(self.course(boot)) or self._is_elsewhere(boot, start_ns):
            raise TooLittleError("files may have what is of the span, too")
        every = set().union(*(track.tables for track in self.tracks))
        late = (track.tables for track in self.tracks if self.moment_ns(boot, track.first_ns) > start_ns)
        return Reach(begin_ns, ALWAYS_NS, self.tables, every.difference(*late))

    def _is_elsewhere(self, boot: str, since_ns: int) -> bool:
        places = map(Place, self._holdings.classes)
        return any(self._holdings.is_elsewhere(place, boot, since_ns) for place in places)

    def demand(self, tables: Collection[str], gaps: Iterable[Gap], *, is_empty: bool = False) -> None:
        """Refuse where files that were left out may matter to an answer about these tables, with these gaps.

        They may where anything is damaged, where a table is not in the outermost files that are open, where a gap
        may go on in those that are not, and where there are no rows of a table (``is_empty``).

        :raises OnlyAllError: where there are no rows of a table. :raises TooLittleError: where they may.
        """
        if self._span is not None and is_empty:
            raise OnlyAllError("files that are not open may have rows of a table")
        if self._span is not None and not self._suffices(tables, gaps):
            raise TooLittleError("files that are not open may matter")

    def _suffices(self, tables: Collection[str], gaps: Iterable[Gap]) -> bool:
        if self.damages or self.unread:
            return False
        known = list(gaps)
        return all(
            reach.tables.intersection(tables) <= reach.always and not any(map(reach.may_go_on, known))
            for reach in self._reaches
        )

    @property
    def recordings(self) -> Iterator[Recording]:
        """What each ring and file has, their values while it is open."""
        return (source.again() for source in self._sources)

    @property
    def _recordings(self) -> Iterator[Recording]:
        return (source.recording for source in self._sources)

    def _join_clocks(self) -> dict[str, Course]:
        said: dict[str, list[Said]] = {}
        for recording in self._recordings:
            boots = {
                *(block.strand.boot for block in recording.blocks),
                *(block.strand.boot for block in recording.tiers),
            }
            for boot in boots | recording.clocks.keys():
                said.setdefault(boot, []).append(_said(recording, boot))
        return {boot: joined(files) for boot, files in said.items()}

    def _declarations(self) -> dict[str, list[Declaration]]:
        declared: dict[str, list[Declaration]] = {}
        sources = [*self._sources, *self._newest]
        for source in sorted(sources, key=lambda source: self._newest_ns(source.recording), reverse=True):
            for table in source.recording.tables.values():
                declared.setdefault(table.name, []).append(Declaration(source.path, table))
        return declared

    def metrics(self, table: str) -> Mapping[str, Metric]:
        """The metrics of a table as its newest source declares each; of several scales the finest.

        Others convert to that. Of a table that there is not there are none.
        """
        if table not in self._metrics:
            metrics = self._metrics[table] = {}
            for metric in chain.from_iterable(each.table.metrics for each in self.declared.get(table, ())):
                newest = metrics.setdefault(metric.name, metric)
                if metric.scale > newest.scale and _same_quantity(metric, newest):
                    metrics[metric.name] = newest._replace(scale=metric.scale)
        return self._metrics[table]

    def _newest_ns(self, recording: Recording) -> int:
        ends = [(block.strand.boot, block.ticks) for block in recording.blocks]
        ends += [(block.strand.boot, block.axis.last) for block in recording.tiers]
        return max((self.moment_ns(boot, int(last[-1])) for boot, last in ends if len(last)), default=-ALWAYS_NS)

    def _join_blocks(self) -> list[Track]:
        members: dict[Lineage, list[Member]] = {}
        tiers: dict[Lineage, dict[int, list[tuple[OpenedFile, int]]]] = {}
        for source in self._sources:
            for number, block in enumerate(source.recording.blocks):
                if len(block.ticks):
                    members.setdefault(_lineage(source, block.strand), []).append(Member(source, block, number))
            for number, buckets in enumerate(source.recording.tiers):
                if len(buckets.axis.first):
                    of_lineage = tiers.setdefault(_lineage(source, buckets.strand), {})
                    of_lineage.setdefault(buckets.strand.step_ns, []).append((source, number))
        tracks = [
            join(lineage, members.get(lineage, []), tiers.get(lineage, {}))
            for lineage in dict.fromkeys([*members, *tiers])
        ]
        order = {boot: index for index, boot in enumerate(self._in_order(tracks))}
        return sorted(tracks, key=lambda track: (order[track.lineage.boot], track.first_ns, track.lineage))

    def keys(self, boot: str | None = None) -> set[SeriesKey]:
        """Every series, or those of one boot."""
        return set().union(*(track.keys for track in self.tracks if boot in {None, track.lineage.boot}))

    def derived(self, table: str) -> Mapping[str, Derived]:
        """The derived columns of a wide table, by name, as it declares them now, or its newest file does."""
        if table not in self._derived:
            from sysmond.base import derived_columns  # noqa: PLC0415  few ask for them

            said = (self._said if table in derived_columns.KNOWN else self.answers).get(table)
            self._derived[table] = derived_columns.of(table, self.metrics(table), said.derived if said else ())
        return self._derived[table]

    @cached_property
    def _said(self) -> dict[str, Answers]:
        """What the newest source that says something about answers says of each table."""
        answers = (
            (name, next((each.table.answers for each in declared if each.table.answers is not None), None))
            for name, declared in self.declared.items()
        )
        return {name: said for name, said in answers if said is not None}

    @cached_property
    def answers(self) -> dict[str, Answers]:
        """What tables declare about answers, by name: now, or in their newest files."""
        from sysmond.plan import catalogue  # noqa: PLC0415  few ask for it; rings do not say it

        with suppress(OSError, CorruptError):
            return self._said | catalogue.answers_in(self.folders.runtime)
        return self._said

    def aliases(self) -> list[tuple[str, str]]:
        """What tables say that other programs call their metrics: pairs of a name and a path."""
        declared = self.answers.items()
        return [(name, f"{table}/{column}") for table, answers in declared for name, column in answers.aliases]

    def long_tables(self) -> list[str]:
        """The long tables of which anything is there, sorted."""
        return self._holdings.tables()

    @property
    def tables(self) -> set[str]:
        """Every table that was declared, with rows or without."""
        return {table for recording in self._recordings for table in recording.tables}

    @cached_property
    def restricted(self) -> set[str]:
        """The tables of which anything was recorded as restricted."""
        return {table for one in self._recordings if one.sensitivity is Sensitivity.RESTRICTED for table in one.tables}

    def holes(self, tables: Collection[str]) -> Iterator[Hole]:
        """The recorded absences of tables, and of any table, which are absences of each."""
        for hole in chain(self._holdings.unread.values(), *(recording.holes for recording in self._recordings)):
            if hole.table in tables:
                yield hole
            elif hole.table == ANY_TABLE:
                yield from (hole._replace(table=table) for table in tables)

    def events(self, boot: str | None, start_ns: int, end_ns: int, sensitivity: Sensitivity) -> list[Event]:
        """What happened in a range of wall-clock time; that the wall clock was set is an event too.

        ``sensitivity``: that of the answer; one that is public has only what happened in public.
        """
        recorded = {
            event
            for recording in self._recordings
            if sensitivity is Sensitivity.RESTRICTED or recording.sensitivity is Sensitivity.PUBLIC
            for event in recording.events
        }
        mine = [event for event in recorded if boot in {None, event.boot}]
        courses = {of_boot: course for of_boot, course in self._courses.items() if boot in {None, of_boot}}
        told = (event for _, event in events.in_order(mine, courses, self.boots()))
        return [event for event in told if start_ns <= event.time_ns < end_ns]

    def course(self, boot: str) -> Course:
        """How the other clocks stood to a boot's."""
        return self._courses.get(boot, _UNKNOWN)

    def moment_ns(self, boot: str, tick_ns: int) -> int:
        """Wall-clock time of one tick."""
        return self.course(boot).moment_ns(tick_ns)

    def boots(self) -> list[str]:
        """Every boot with rows, oldest first."""
        return list(dict.fromkeys(track.lineage.boot for track in self.tracks))

    def _in_order(self, tracks: Sequence[Track]) -> list[str]:
        """Order boots by their ends: many a boot begins in 1970."""
        last: dict[str, int] = {}
        for track in tracks:
            boot = track.lineage.boot
            last[boot] = max(last.get(boot, -ALWAYS_NS), self.moment_ns(boot, track.last_ns))
        return sorted(last, key=lambda boot: (last[boot], boot))

    def factor(self, source: OpenedFile, key: SeriesKey) -> int:
        """By what a source's integers are multiplied; 0 where it means another quantity by that name."""
        newest = self.metrics(key.table)[key.metric]
        for metric in source.recording.tables[key.table].metrics:
            if metric.name == key.metric:
                return int(10 ** (newest.scale - metric.scale)) if _same_quantity(metric, newest) else 0
        return 0

    def redefinitions(self, columns: Collection[tuple[str, str]]) -> list[str]:
        """Say which metrics once meant another quantity, and by which file they no longer do.

        What was recorded as that is left out.
        """
        said = set()
        for name in {table for table, _ in columns}:
            newest = self.metrics(name)
            declared = [(path, metric) for path, table in self.declared[name] for metric in table.metrics]
            for _, metric in declared:
                now = newest[metric.name]
                if (name, metric.name) in columns and not _same_quantity(metric, now):
                    path = next(path for path, other in declared if other.name == metric.name)
                    said.add(
                        f"{name}/{metric.name}: once a {metric.semantics} in {metric.unit}, now a {now.semantics} in "
                        f"{now.unit}, as {path} says; the older values are left out"
                    )
        return sorted(said)

    @cached_property
    def missing(self) -> Sequence[Name]:
        """The files between others that are gone, by their numbers; none where that may be in order, or not be seen."""
        with suppress(PermissionError, CorruptError):
            return () if pins.are_some(self.folders.state) else archive.missing(self.folders)
        return ()

    def damaged_ticks(self, damage: Damage) -> tuple[int, int] | None:
        """Between which ticks of its boot the rows of an unreadable segment lay, by its neighbours."""
        if damage.name is None:
            return None
        after_ns, before_ns = 0, ALWAYS_NS
        for name, recording, *_ in self._sources:
            mine = [block for block in recording.blocks if len(block.ticks) and block.strand.boot == damage.name.boot]
            if not mine or recording.sensitivity is not damage.sensitivity:
                continue
            if name is None or damage.name.last < name.first:
                before_ns = min(before_ns, *(int(block.ticks[0]) for block in mine), ALWAYS_NS)
            elif name.last < damage.name.first:
                after_ns = max(after_ns, *(int(block.ticks[-1]) for block in mine), 0)
        return after_ns, before_ns


def _said_by(source: OpenedFile, boot: str) -> Said:
    return _said(source.recording, boot)


def _said(recording: Recording, boot: str) -> Said:
    """What a source says of the clocks of a boot, and of which of its ticks."""
    rows = [block for block in recording.blocks if block.strand.boot == boot]
    buckets = [block for block in recording.tiers if block.strand.boot == boot]
    intervals_ns = [*(block.strand.interval_ns for block in rows), *(block.strand.interval_ns for block in buckets)]
    ends = [(int(block.ticks[0]), int(block.ticks[-1])) for block in rows if len(block.ticks)]
    ends += [(int(block.axis.first[0]), int(block.axis.last[-1])) for block in buckets if len(block.axis.first)]
    return Said(
        recording.clocks.get(boot, ()),
        min((first for first, _ in ends), default=0),
        max((last for _, last in ends), default=-1),
        min([SECOND_NS, *intervals_ns]),
    )


def _keys(recording: Recording) -> Iterator[SeriesKey]:
    yield from chain.from_iterable(block.keys for block in recording.blocks)
    yield from chain.from_iterable(tier.keys for tier in recording.tiers)


def _lineage(source: OpenedFile, strand: Strand) -> Lineage:
    return Lineage(strand.boot, strand.writer, source.recording.sensitivity, strand.interval_ns)


def _same_quantity(one: Metric, other: Metric) -> bool:
    return (one.unit, one.semantics) == (other.unit, other.semantics)


_UNKNOWN = course_of((), SECOND_NS)
