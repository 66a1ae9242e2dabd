# SPDX-License-Identifier: Apache-2.0
"""The census: which stretches of a long table there are in rings, RAM and on disk, joined into one line a boot.

Sources are listed upstream first (ring, then RAM, then disk), as for wide tables: what moves meanwhile is seen twice,
never missed. What is seen twice counts once: a stretch answers until the next one of its boot begins, and one whose
readings all lie within another is left out. Of an archive of many files, those are opened that overlap the range asked
for, and as many as it takes to find them.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, TIERS_NS, Answers, Cause, Sensitivity
from sysmond.base.result import Gap, LongEntry
from sysmond.base.wall_clock import ALWAYS_NS, Course, Said, course_of, joined
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.machine.folders import Folders
from sysmond.plan import catalogue
from sysmond.ring.snapshot import snapshot
from sysmond.store import archive, pins, unread
from sysmond.store import sparse_file as long_file
from sysmond.store.archive import Name
from sysmond.store.holdings import Boots, Damage, Holdings, overlapping, table_of, written_ns
from sysmond.store.of_ring import Hole
from sysmond.store.sparse_of_ring import LongRing, Reading
from sysmond.store.stretch import GAP_INTERVALS, Incarnation, Stretch, StretchPart
from sysmond.store.timeline import Timeline

# Beyond every number that a file may have.
SEQUENCES_END = 10**8
# Until the last reading is this many intervals ago, nothing is missing yet.
TRAILING_INTERVALS = 3
# What is recorded at a moment may be about one up to so much earlier.
LATE_NS = 60 * SECOND_NS


class Line(NamedTuple):
    """The stretches of one boot, in order of time, and how its clock ran.

    ``told``: all that is said of it, by those without a reading as well: holes, and lives that ended. ``names``: the
    files there are of it, also those that were not opened; None where some between them may have been forgotten.
    ``damaged``: which of them cannot be read, and why. ``unread``: when only rings were written that cannot be
    read; of the last line also those of boots that have none. ``lost_boots``, of the last line: when files of boots of
    which nothing can be read were written, and why that is.
    """

    boot: str
    course: Course
    parts: Sequence[StretchPart]
    told: Sequence[Stretch] = ()
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
        return {life.started_ns for stretch in self.told for life in stretch.lives if life.closed}

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


class Census:
    """What there is of long tables in a pair of folders, by then.

    ``refused``: what may not be read.
    """

    def __init__(self, folders: Folders, classes: Collection[Sensitivity]) -> None:
        self._folders = folders
        self._classes = tuple(classes)
        self._holdings = Holdings(folders, classes)
        self.refused = self._holdings.refused
        self.excluded: set[str] = set()
        # Whether a boot was seen that began after the range asked for last; why there is nothing at times.
        self.is_followed = False
        self.reasons: list[str] = []
        self._unread: dict[str, Hole] = {}

    @property
    def warnings(self) -> list[str]:
        """What could not be read."""
        return [damage.reason for damage in self._holdings.damages]

    def _warn(self, said: str) -> None:
        self._holdings.damages.append(Damage(None, None, said))

    def timeline(self, highest: Sensitivity) -> Timeline:
        """The wide tables beside, of no higher class; close it after use."""
        return Timeline(
            self._folders,
            [sensitivity for sensitivity in self._classes if sensitivity in {Sensitivity.PUBLIC, highest}],
        )

    def tables(self) -> list[str]:
        """The long tables of which anything is there, sorted."""
        return self._holdings.tables()

    def answers(self, table: str) -> Answers | None:
        """What a table that is recorded now declares about answers; None where it does not, or nobody may know."""
        try:
            return catalogue.answers_in(self._folders.runtime).get(table)
        except CorruptError as damage:
            self._warn(str(damage))
        except OSError:
            pass
        return None

    def extents(self, boot: str | None = None) -> list[LongEntry]:
        """The long tables that are recorded, sorted by name: what their first and last files say; of one ``boot``."""
        return [extent for table in self.tables() if (extent := self.extent(table, boot))]

    def extent(self, table: str, boot: str | None = None) -> LongEntry | None:
        """What the first and last files of a table say; None where nothing of it is recorded."""
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
        """The first and the last stretch of every folder of a table: the rings last, of which the outer readings."""
        rings = [end for end in self._rings(table, _outer) if boot in {None, end.boot}]
        tiers = [(end, tier) for end in self._classes for tier in reversed(TIERS_NS)]
        for folder in (place for end in tiers for place in reversed(self._holdings.places(*end, table))):
            names = {name: path for name, path in self._holdings.names(folder).items() if boot in {None, name.boot}}
            opened = self._opener(names)
            order = Boots(names, lambda name, opened=opened: _said_by(opened(name))).order  # type: ignore[misc]
            for of_boot, outermost in ((order[0], min), (order[-1], max)) if order else ():
                if (stretch := opened(outermost(name for name in names if name.boot == of_boot))) is not None:
                    yield stretch
        yield from rings

    def lines(self, table: str, start_ns: int, end_ns: int, tier: str = FINEST_TIER) -> list[Line]:
        """A line a boot of a table, oldest first: all stretches that overlap a range, in UTC, and one before them.

        Of another ``tier`` than the finest, its buckets.

        :raises FileNotFoundError: where a file was merged or flushed meanwhile.
        """
        is_rows = tier == FINEST_TIER
        self.is_followed = False
        stretches = [one for one in (self._rings(table) if is_rows else ()) if one.path not in self.excluded]
        there: dict[Name, str] = {}
        for sensitivity in self._classes:
            names: dict[Name, str] = {}
            for folder in self._holdings.places(sensitivity, tier, table):
                names = self._holdings.names(folder) | names
            readable = [name for name, path in names.items() if path not in self.excluded]
            counting = {name: names[name] for name in archive.current(readable)}
            stretches += self._overlapping(counting, start_ns, end_ns)
            there |= names
        self.reasons = [f"{hole.cause}: {hole.detail}" for stretch in stretches for hole in stretch.holes]
        damaged = {name: self._why(path) for name, path in there.items() if path in self.excluded}
        unread = [hole for path, hole in self._unread.items() if is_rows and table_of(path) == table]
        lines = _lines(stretches, None if pins.are_some(self._folders.state) else there, damaged, unread)
        known = {line.boot for line in lines}
        lost_boots = [(written_ns(there[name]), why) for name, why in damaged.items() if name.boot not in known]
        return [*lines[:-1], *(line._replace(lost_boots=lost_boots) for line in lines[-1:])]

    def _rings(self, table: str, of: Callable[[Sequence[Reading]], Sequence[Reading]] = list) -> list[Stretch]:
        """The stretches of rings; ``of``: chooses of their readings."""
        stretches: list[Stretch] = []
        for path, sealed in self._holdings.rings(table):
            since = sealed.offset if sealed else 0
            with suppress(FileNotFoundError):
                self._try(path, lambda path=path, since=since: stretches.extend(self._of_ring(path, since, of)))  # type: ignore[misc]
                if path in self.excluded:
                    self._unread[path] = unread.hole(path, sealed, self._why(path))
        return stretches

    def _of_ring(self, path: str, since: int, of: Callable[[Sequence[Reading]], Sequence[Reading]]) -> list[Stretch]:
        copied = snapshot(path, since)
        ring = LongRing(copied)
        if ring.damage:
            self._warn(ring.damage)
        readings = [reading for reading in ring.readings if reading.offset >= since]
        return list(ring.stretches(list(of(readings)), is_empty_too=copied.closed))

    def _overlapping(self, names: Mapping[Name, str], start_ns: int, end_ns: int) -> list[Stretch]:
        """The files that overlap a range, and one before it, of each boot."""
        opened = self._opener(names)

        def look(name: Name) -> Said | None:
            return _said_by(opened(name))

        stretches: list[Stretch] = []
        for boot in Boots(names, look).reaching(start_ns, end_ns):
            mine = sorted(name for name in names if name.boot == boot)
            chosen = [stretch for at in overlapping(mine, look, start_ns, end_ns) if (stretch := opened(mine[at]))]
            self.is_followed = self.is_followed or not any(len(stretch.ticks) for stretch in chosen)
            stretches += chosen
        return stretches

    def _opener(self, names: Mapping[Name, str]) -> Callable[[Name], Stretch | None]:
        """Opens each of some files once."""
        opened: dict[Name, Stretch | None] = {}

        def stretch(name: Name) -> Stretch | None:
            if name not in opened:
                opened[name] = self._open(names[name])
            return opened[name]

        return stretch

    def _open(self, path: str) -> Stretch | None:
        stretches: list[Stretch] = []
        self._try(path, lambda: stretches.append(long_file.open_file(path)))
        return stretches[0] if stretches else None

    def _try(self, path: str, read: Callable[[], object]) -> None:
        """Read a source, or note why that cannot be."""
        try:
            read()
        except FileNotFoundError:
            raise
        except (NotPermittedError, PermissionError):
            self.refused.append(path)
        except (ForeignError, CorruptError, OSError, ValueError) as damage:
            said = str(damage)
            self._warn(said if path in said else f"{path}: {said}")
            self.excluded.add(path)

    def _why(self, path: str) -> str:
        return next((said for said in self.warnings if path in said), f"{path}: damaged")

    def exclude(self, damage: Error) -> bool:
        """Leave the file out that an error names; whether there was one."""
        path = str(damage).partition(": ")[0]
        if not isinstance(damage, CorruptError) or not path.startswith("/") or path in self.excluded:
            return False
        self.excluded.add(path)
        self._warn(str(damage))
        return True


def _outer(readings: Sequence[Reading]) -> list[Reading]:
    """The first and the last reading."""
    return list(dict.fromkeys([*readings[:1], *readings[-1:]]))


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


def _said_by(stretch: Stretch | None) -> Said | None:
    return None if stretch is None else _said(stretch)


def _said(stretch: Stretch) -> Said:
    first_ns, last_ns = (int(stretch.ticks[0]), int(stretch.ticks[-1])) if len(stretch.ticks) else (0, -1)
    return Said(stretch.relations, first_ns, last_ns, min(SECOND_NS, stretch.interval_ns))


def _overlaps(part: StretchPart, low_ns: int, high_ns: int) -> bool:
    return int(part.stretch.ticks[0]) < high_ns and part.end_ns > low_ns


def gaps(lines: Sequence[Line], table: str, start_ns: int, end_ns: int, *, is_followed: bool = False) -> list[Gap]:
    """Where nothing was recorded of a table within a range, and why. ``is_followed``: there is a later boot."""
    known: list[Gap] = []
    for number, line in enumerate(lines):
        known += holes(line, table)
        recorded = list(known)
        known += [left for gap in _silences(line, table) for left in untold(gap, recorded)]
        known += _damaged_start(line, table)
        if number:
            before = lines[number - 1]
            since_ns = before.last_ns + before.parts[-1].stretch.interval_ns
            if begins := line.begins_after(since_ns):
                known.append(Gap(since_ns, min(begins), table, Cause.OFF))
    if lines:
        last = lines[-1]
        interval_ns = last.parts[-1].stretch.interval_ns
        begin_ns = max([last.last_ns, *(gap.end_ns - interval_ns for gap in known)])
        if end_ns - begin_ns > (TRAILING_INTERVALS + 1) * interval_ns:
            life = next(iter(last.parts[-1].stretch.lives[-1:]), None)
            cause = Cause.OFF if is_followed else _ended(life, last.closed())
            later = (hole.detail for hole in last.unread if hole.boot != last.boot)
            detail = _lost_between(last, last.parts[-1].stretch, None) or next(later, "")
            cause = Cause.DAMAGED_FILE if detail else cause
            known.append(Gap(begin_ns + interval_ns, end_ns, table, cause, detail))
        known = _with_lost_boots(known, last.lost_boots)
    return sorted({gap for gap in known if gap.end_ns > start_ns and gap.start_ns < end_ns})


def _with_lost_boots(gaps: Sequence[Gap], lost_boots: Iterable[tuple[int, str]]) -> list[Gap]:
    """Blame files of boots of which nothing can be read: what seems off, the last time before they were written."""
    blamed = {}
    for at_ns, why in lost_boots:
        off = [gap for gap in gaps if gap.cause is Cause.OFF and gap.start_ns <= at_ns]
        if off:
            blamed[max(off)] = why
    return [gap._replace(cause=Cause.DAMAGED_FILE, detail=blamed[gap]) if gap in blamed else gap for gap in gaps]


def holes(line: Line, table: str) -> Iterator[Gap]:
    """The holes that stretches of a line tell of, and its rings that cannot be read."""
    moment = line.course.moment_ns
    unread = (hole for hole in line.unread if hole.boot == line.boot)
    for hole in chain(unread, *(stretch.holes for stretch in line.told)):
        yield Gap(moment(hole.start_ns), moment(hole.end_ns), table, hole.cause, hole.detail)


def untold(gap: Gap, known: Sequence[Gap]) -> Iterable[Gap]:
    """What is left of a gap beside those that are told."""
    at_ns = gap.start_ns
    for start_ns, end_ns in sorted((other.start_ns, other.end_ns) for other in known):
        if start_ns < gap.end_ns and end_ns > at_ns:
            if start_ns > at_ns:
                yield gap._replace(start_ns=at_ns, end_ns=start_ns)
            at_ns = end_ns
    if at_ns < gap.end_ns or at_ns == gap.start_ns:
        yield gap._replace(start_ns=at_ns)


def _silences(line: Line, table: str) -> Iterable[Gap]:
    """The holes between readings, within stretches and between them."""
    before_ns, before, closed = None, None, line.closed()
    last: Stretch | None = None
    for part in line.parts:
        stretch = part.stretch
        lost = ""
        ticks = stretch.ticks
        interval_ns = stretch.interval_ns
        pairs = [(int(ticks[at]), int(ticks[at + 1]), Cause.LATE_TICK)
                 for at in (ticks[1:] - ticks[:-1] > interval_ns * GAP_INTERVALS).nonzero()[0].tolist()]  # fmt: skip
        if before_ns is not None and int(ticks[0]) - before_ns > interval_ns * GAP_INTERVALS:
            is_within = bool(before and stretch.lives and before.started_ns == stretch.lives[0].started_ns)
            lost = _lost_between(line, last, stretch, is_within=is_within)
            why = Cause.LATE_TICK if is_within else _ended(before, closed)
            pairs.append((before_ns, int(ticks[0]), Cause.DAMAGED_FILE if lost else why))
        for low_ns, high_ns, why in pairs:
            gap = silence(line, table, (low_ns, high_ns), interval_ns, why, stretch.lives)
            yield gap._replace(detail=lost) if gap.cause is Cause.DAMAGED_FILE else gap
        last = stretch
        before_ns, before = int(ticks[-1]), next(iter(stretch.lives[-1:]), None)


def _lost_between(line: Line, before: Stretch | None, after: Stretch | None, *, is_within: bool = False) -> str:
    """Which file between two stretches cannot be read, or is missing within a life; else nothing."""
    low, high = (archive.parse_name(os.path.basename(side.path)) if side else None for side in (before, after))
    if low is None:
        return ""
    end = high.first if high else SEQUENCES_END
    for name, why in sorted(line.damaged.items()):
        if low.last < name.first and name.last < end:
            return why
    if not is_within or high is None or line.names is None:
        return ""
    between = (side for side in archive.missing_of(line.names) if low.last < side.first < end)
    return next(map(archive.spelled_missing, between), "")


def _damaged_start(line: Line, table: str) -> Iterator[Gap]:
    """The time before a line's first reading, where the file that may have had it cannot be read."""
    first = archive.parse_name(os.path.basename(line.parts[0].stretch.path))
    for name, why in sorted(line.damaged.items())[:1]:
        has_earlier = any(
            name_there not in line.damaged and name_there.last < name.first for name_there in line.names or ()
        )
        if (first is None or name.last < first.first) and not has_earlier:
            yield Gap(line.course.moment_ns(0), line.first_ns, table, Cause.DAMAGED_FILE, why)


def silence(
    line: Line, table: str, between_ns: tuple[int, int], interval_ns: int, why: Cause, lives: Sequence[Incarnation]
) -> Gap:
    """The gap between two readings, because of ``why`` where neither the end of a life nor a sleep explains it."""
    low_ns, high_ns = between_ns
    begun = {life.first_ns: index for index, life in enumerate(lives)}
    cause = why
    # Of a merged file, one life is as many as it was files.
    if (index := begun.get(high_ns)) and lives[index - 1].started_ns != lives[index].started_ns:
        cause = _ended(lives[index - 1], line.closed())
    if line.course.asleep_ns(low_ns, high_ns) * 2 > high_ns - low_ns - interval_ns:
        cause = Cause.SUSPENDED
    start_ns = line.course.moment_ns(low_ns) + interval_ns
    return Gap(start_ns, max(start_ns, line.course.moment_ns(high_ns)), table, cause)


def _ended(life: Incarnation | None, closed: Collection[int]) -> Cause:
    """How the writer ended before a gap. ``closed``: the lives that did in good order."""
    return Cause.CLEAN_SHUTDOWN if life and life.started_ns in closed else Cause.DAEMON_DOWN


def losses(lines: Sequence[Line], table: str, start_ns: int, end_ns: int) -> list[str]:
    """Say how many records had to be left out within a range."""
    lost = 0
    for line in lines:
        low_ns, high_ns = line.course.window(start_ns, end_ns)
        for part in line.parts:
            ticks = part.stretch.ticks
            inside = (ticks >= low_ns) & (ticks < min(high_ns, part.end_ns))
            lost += int(part.stretch.lost[inside].sum())
    return [f"{table}: {lost} records were lost while it was recorded"] if lost else []
