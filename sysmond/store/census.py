# SPDX-License-Identifier: Apache-2.0
"""The census: which stretches of a long table there are, joined into one line a boot.

What there is ``holdings`` lists. What is seen twice, as it moves on, counts once: a stretch answers until the next one
of its boot begins, and one whose readings all lie within another is left out.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain, dropwhile, product
from operator import itemgetter
from typing import NamedTuple

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, TIERS_NS, Answers, Sensitivity
from sysmond.base.result import Event, LongEntry
from sysmond.base.wall_clock import ALWAYS_NS, Course, Said, course_of, joined
from sysmond.errors import CorruptError, Error, UsageError
from sysmond.machine.folders import Folders
from sysmond.ring.snapshot import Snapshot
from sysmond.store import events, pins
from sysmond.store.archive import Name
from sysmond.store.files import opening
from sysmond.store.holdings import Damage, Files, Holdings, Place, Shelf, table_of, written_ns
from sysmond.store.of_ring import Hole
from sysmond.store.ring_reach import RingBegin, TooLittleError, complete_since, was_set
from sysmond.store.stretches import cut
from sysmond.store.stretches.sparse_of_ring import LongRing, RingReading
from sysmond.store.stretches.stretch import Stretch, StretchPart

# Beyond every number that a file may have.
SEQUENCES_END = 10**8
# What is recorded at a moment may be about one up to so much earlier.
LATE_NS = 60 * SECOND_NS


class Line(NamedTuple):
    """The stretches of one boot, in order of time, and how its clock ran.

    ``all_stretches``: those without a reading, too, which have holes and lives that ended. ``names``: the
    files there are of it, also those that were not opened; None where some between them may have been forgotten.
    ``damaged``: which of them cannot be read, and why. ``unread``: when only rings were written that cannot be
    read; of the last line also those of boots that have none. ``lost_boots``, of the last line: when files of boots of
    which nothing can be read were written, and why that is.
    """

    boot: str
    course: Course
    parts: Sequence[StretchPart]
    all_stretches: Sequence[Stretch] = ()
    names: Collection[Name] | None = None
    damaged: Mapping[Name, str] = {}
    unread: Sequence[Hole] = ()
    lost_boots: Sequence[tuple[int, str]] = ()

    @property
    def first_ns(self) -> int:
        """Wall-clock time of the first reading."""
        return self.course.moment_ns(int(self.parts[0].stretch.ticks[0]))

    @property
    def last_ns(self) -> int:
        """Wall-clock time of the last reading."""
        return self.course.moment_ns(int(self.parts[-1].stretch.ticks[-1]))

    def begins_after(self, since_ns: int) -> list[int]:
        """The moments after one at which its readings begin, or begin anew, since its clock was set."""
        begins = [self.first_ns, *(self.course.moment_ns(at_ns) for at_ns, _ in self.course.steps())]
        return [begin_ns for begin_ns in begins if begin_ns > since_ns]

    def closed(self) -> set[int]:
        """The lives that ended in good order, by when they began."""
        return {life.started_ns for stretch in self.all_stretches for life in stretch.lives if life.closed}

    @property
    def latest_ns(self) -> int:
        """The latest wall-clock time of its readings: that of the last one, but where the clock was set back."""
        return max([self.last_ns, *(self.course.moment_ns(at_ns - 1) for at_ns, _ in self.course.steps())])

    def within(self, low_ns: int, high_ns: int) -> list[StretchPart]:
        """The parts that answer between two boot times, and the one before them."""
        numbers = [number for number, part in enumerate(self.parts) if _overlaps(part, low_ns, high_ns)]
        if not numbers:
            numbers = [number for number, part in enumerate(self.parts) if part.end_ns <= low_ns][-1:]
            return [self.parts[number] for number in numbers]
        return list(self.parts[max(0, numbers[0] - 1) : numbers[-1] + 1])

    def around(self, low_ns: int, high_ns: int) -> list[StretchPart]:
        """Parts that answer as ``within``: of files that stay open what surrounds a question stays in memory."""
        parts = self.within(low_ns, high_ns)
        return cut.around(parts, low_ns, high_ns) if Files.idle_max else parts


class Census:
    """What there is of long tables in a pair of folders, by then.

    ``refused``: what may not be read. ``of_rings``: rings alone, with what files have of them, too.
    """

    def __init__(self, folders: Folders, classes: Collection[Sensitivity], *, of_rings: bool = False) -> None:
        self._folders = folders
        self._is_of_rings = of_rings
        self._holdings = Holdings(folders, classes)
        self._files = Files(opening.stretch)
        self.refused = self._holdings.refused
        # Whether a boot was seen that began after the range asked for last; why there is nothing at times.
        self.is_followed = False
        self.reasons: list[str] = []

    def close(self) -> None:
        """Close the files: what describes them stays, and one whose values are asked for is opened again."""
        self._files.close()

    @property
    def warnings(self) -> list[str]:
        """What could not be read."""
        return [damage.reason for damage in self._holdings.damages]

    def _warn(self, said: str) -> None:
        self._holdings.damages.append(Damage(None, None, said))

    @property
    def place(self) -> tuple[Folders, Sequence[Sensitivity]]:
        """Where it looks, and of which classes that is at which it looks."""
        return self._folders, tuple(self._holdings.classes)

    def happened(self, highest: Sensitivity, start_ns: int, end_ns: int, boot: str | None) -> list[Event]:
        """What happened in a range (UTC), as far as sources of no higher class tell; what cannot be read is damage."""
        classes = [each for each in self._holdings.classes if each in {Sensitivity.PUBLIC, highest}]
        if self._is_of_rings:
            return events.read_rings(self._folders, classes, start_ns, end_ns).events
        with suppress(UsageError):  # Of a boot of which there is nothing but this table.
            happened = events.read(self._folders, classes, start_ns, end_ns, boot)
            for said in happened.warnings:
                self._warn(said)
            return happened.events
        return []

    def tables(self) -> list[str]:
        """The long tables of which anything is there, sorted."""
        return self._holdings.tables()

    def answers(self, table: str) -> Answers | None:
        """What a table that is recorded now declares about answers; None where it does not, or nobody may know."""
        from sysmond.plan import catalogue  # noqa: PLC0415  files say it themselves

        try:
            return catalogue.answers_in(self._folders.runtime).get(table)
        except CorruptError as damage:
            self._warn(str(damage))
        except OSError:
            pass
        return None

    def extents(self, is_meant: Callable[[str], bool], boot: str | None = None) -> list[LongEntry]:
        """The long tables that are recorded, sorted by name: what their first and last files say; of one ``boot``.

        ``is_meant``: chooses by name.
        """
        meant = filter(is_meant, self.tables())
        return [extent for table in meant if (extent := self.extent(table, boot))]

    def extent(self, table: str, boot: str | None = None) -> LongEntry | None:
        """What the first and last files of a table say; None where nothing is recorded."""
        ends = [stretch for stretch in self._ends(table, boot) if len(stretch.ticks)]
        moments = [
            course.moment_ns(int(tick))
            for stretch in ends
            for course in [course_of(stretch.relations, stretch.interval_ns)]
            for tick in (stretch.ticks[0], stretch.ticks[-1])
        ]
        if not moments:
            return None
        newest, interval_ns = ends[-1], min(stretch.interval_ns for stretch in ends)
        per, doc = newest.table.per, newest.table.doc
        return LongEntry(table, per, doc, min(moments), max(moments), interval_ns, newest.sensitivity)

    def _ends(self, table: str, boot: str | None) -> Iterator[Stretch]:
        """The first and the last stretch of a table in each class and tier; the outer readings of rings last."""
        rings = [end for end in self._rings(table, _outer) if boot in {None, end.boot}]
        for sensitivity in self._holdings.classes:
            for tier in reversed(TIERS_NS):
                yield from self._shelf(sensitivity, tier, table).ends(boot)
        yield from rings

    def lines(self, table: str, start_ns: int, end_ns: int, tier: str = FINEST_TIER) -> list[Line]:
        """A line a boot of a table, oldest first: all stretches that overlap a range, in UTC, and one before them.

        Of another ``tier`` than the finest, its buckets.

        :raises FileNotFoundError: where a file was merged or flushed meanwhile.
        :raises TooLittleError: where rings alone do not have all of the range.
        """
        is_rows = tier == FINEST_TIER
        self.is_followed = False
        if self._is_of_rings:
            return self._lines_of_rings(table, start_ns)
        stretches = self._rings(table) if is_rows else []
        there: dict[Name, str] = {}
        for sensitivity in self._holdings.classes:
            shelf = self._shelf(sensitivity, tier, table)
            for of_boot in shelf.reaching(start_ns, end_ns):
                self.is_followed = self.is_followed or not any(len(stretch.ticks) for stretch in of_boot)
                stretches += of_boot
            there |= shelf.paths
        self.reasons = _reasons(stretches)
        damaged = {name: why for name, path in there.items() if (why := self._holdings.why(path))}
        unread = [hole for path, hole in self._holdings.unread.items() if is_rows and table_of(path) == table]
        lines = _lines(stretches, None if pins.are_some(self._folders.state) else there, damaged, unread)
        known = {line.boot for line in lines}
        lost_boots = [(written_ns(there[name]), why) for name, why in damaged.items() if name.boot not in known]
        return [*lines[:-1], *(line._replace(lost_boots=lost_boots) for line in lines[-1:])]

    def _lines_of_rings(self, table: str, start_ns: int) -> list[Line]:
        """The line of a table since a moment (UTC), by rings alone; none of what is not recorded.

        A row lasts until the next of its key, so rings have all of it since their first reading of all rows.

        :raises TooLittleError: where files may have something of that time that rings do not.
        """

        def read(copied: Snapshot, _: int) -> tuple[RingBegin, list[Stretch]]:
            ring, who, went_round = self._long_ring(copied, start_ns), copied.identity, bool(copied.lost)
            readings, since_ns = ring.readings, copied.begins_ns
            if ring.is_lasting:
                complete = list(dropwhile(lambda one: not one.full, readings))
                since_ns = complete[0].tick_ns if complete else ALWAYS_NS
                readings = complete if went_round else readings
            begin = RingBegin(who.writer, who.sensitivity, who.boot, since_ns, went_round)
            return begin, list(ring.stretches(readings, is_empty_too=copied.closed))

        begins: list[RingBegin] = []
        of_writer: dict[tuple[str, Sensitivity], list[Stretch]] = {}
        for begin, made in self._holdings.rings(table, read, start_ns):
            begins.append(begin)
            mine = of_writer.setdefault((begin.writer, begin.sensitivity), [])
            if begin.went_round:  # What rings before it have ends before it begins.
                mine.clear()
            mine += made
        stretches = list(chain.from_iterable(of_writer.values()))
        places = [Place(sensitivity, FINEST_TIER, table) for sensitivity in self._holdings.classes]
        if not stretches and not any(any(self._holdings.files(place)) for place in places):
            return []
        boot, since_ns = complete_since(begins)
        lines = _lines(stretches)
        self.reasons = _reasons(stretches)
        if (
            self._holdings.damages
            or boot != clock.boot_id()
            or [line.boot for line in lines] != [boot]
            or lines[0].course.moment_ns(since_ns) > start_ns
            or was_set(lines[0].course)
            or any(self._holdings.is_elsewhere(place, boot, start_ns) for place in places)
        ):
            raise TooLittleError("rings do not have all of the range")
        return lines

    def boots(self, table: str, lines: Iterable[Line]) -> list[str]:
        """Every boot of the archive, oldest first: of a long table, whose rings have ``lines``, and of wide ones."""
        from sysmond.store.timeline import Timeline  # noqa: PLC0415  few ask for a boot

        ends = [(line.boot, line.last_ns) for line in lines]
        for sensitivity, tier in product(self._holdings.classes, TIERS_NS):
            ends += self._shelf(sensitivity, tier, table).boots().items()
        with closing(Timeline(self._folders, self._holdings.classes)) as wide:
            ends += [(track.lineage.boot, wide.moment_ns(track.lineage.boot, track.last_ns)) for track in wide.tracks]
        last_ns = dict(sorted(ends, key=itemgetter(1)))  # Of several of one boot the latest counts.
        return sorted(last_ns, key=lambda boot: (last_ns[boot], boot))

    def _rings(self, table: str, of: Callable[[Sequence[RingReading]], Sequence[RingReading]] = list) -> list[Stretch]:
        """The stretches of rings; ``of``: chooses of their readings."""

        def read(copied: Snapshot, since: int) -> list[Stretch]:
            ring = self._long_ring(copied)
            readings = [reading for reading in ring.readings if reading.offset >= since]
            return list(ring.stretches(list(of(readings)), is_empty_too=copied.closed))

        return list(chain.from_iterable(self._holdings.rings(table, read)))

    def _long_ring(self, copied: Snapshot, since_ns: int = -ALWAYS_NS) -> LongRing:
        ring = LongRing(copied, since_ns)
        if ring.damage:
            self._warn(ring.damage)
        return ring

    def _shelf(self, sensitivity: Sensitivity, tier: str, table: str) -> Shelf[Stretch]:
        return Shelf(self._holdings, Place(sensitivity, tier, table), self._open, lambda stretch, _: _said(stretch))

    def _open(self, path: str, _: Name | None) -> Stretch:
        return opening.reopened(lambda: self._files.open(path))

    def exclude(self, damage: Error) -> bool:
        """Leave the file out that an error names; whether there was one."""
        path = str(damage).partition(": ")[0]
        if not isinstance(damage, CorruptError) or not path.startswith("/") or path in self._holdings.excluded:
            return False
        self._holdings.exclude(Damage(None, None, str(damage), path=path))
        return True


def _outer(readings: Sequence[RingReading]) -> list[RingReading]:
    """The first and the last reading."""
    return list(dict.fromkeys([*readings[:1], *readings[-1:]]))


def _reasons(stretches: Iterable[Stretch]) -> list[str]:
    return [f"{hole.cause}: {hole.detail}" for stretch in stretches for hole in stretch.holes]


def _lines(
    stretches: Iterable[Stretch],
    names: Collection[Name] | None = None,
    damaged: Mapping[Name, str] | None = None,
    unread: Sequence[Hole] = (),
) -> list[Line]:
    boots: dict[str, list[Stretch]] = {}
    for stretch in stretches:
        boots.setdefault(stretch.boot, []).append(stretch)
    lines = []
    for boot, mine in boots.items():
        course = joined([_said(stretch) for stretch in mine])
        staying: list[Stretch] = []
        # The longest of those that begin together first: the others lie within it.
        telling = [one for one in mine if len(one.ticks)]
        for stretch in sorted(telling, key=lambda one: (int(one.ticks[0]), -int(one.ticks[-1]))):
            if not (staying and int(stretch.ticks[-1]) <= int(staying[-1].ticks[-1])):
                staying.append(stretch)
        if not staying:
            continue
        ends = [*(int(one.ticks[0]) for one in staying[1:]), ALWAYS_NS]
        of_boot = None if names is None else [name for name in names if name.boot == boot]
        lost = {name: why for name, why in (damaged or {}).items() if name.boot == boot}
        parts = [StretchPart(one, end) for one, end in zip(staying, ends, strict=True)]
        lines.append(Line(boot, course, parts, mine, of_boot, lost, [hole for hole in unread if hole.boot == boot]))
    lines.sort(key=lambda line: (line.last_ns, line.boot))
    alone = [hole for hole in unread if hole.boot not in {line.boot for line in lines}]
    return [*lines[:-1], *(line._replace(unread=[*line.unread, *alone]) for line in lines[-1:])]


def _said(stretch: Stretch) -> Said:
    first_ns, last_ns = (int(stretch.ticks[0]), int(stretch.ticks[-1])) if len(stretch.ticks) else (0, -1)
    return Said(stretch.relations, first_ns, last_ns, min(SECOND_NS, stretch.interval_ns))


def _overlaps(part: StretchPart, low_ns: int, high_ns: int) -> bool:
    return int(part.stretch.ticks[0]) < high_ns and part.end_ns > low_ns
