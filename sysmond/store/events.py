# SPDX-License-Identifier: Apache-2.0
"""What happened: the table ``event``, from rings, from files that its tier does not have yet, and from that tier.

docs/design/0011-events.md says what is stored where. Of each file only that is read which tells of events, and of files
only those that may reach into a range: an event is recorded before its file is written. One that several sources have
is one event. ``in_order`` puts events in the order of all answers.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from sysmond import CREATED_BY
from sysmond.base import paths
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, EVENTS, FINEST_TIER, Sensitivity
from sysmond.base.result import BoolArray, Event, Int64Array
from sysmond.base.wall_clock import ALWAYS_NS, Course, Said, course_of, joined
from sysmond.errors import Error
from sysmond.machine import snapshot_note
from sysmond.machine.folders import Folders
from sysmond.ring.progress import Progress, ring_files
from sysmond.store import of_ring, ring_events, ring_reach, tiers
from sysmond.store.archive import Name
from sysmond.store.files import opening
from sysmond.store.holdings import WRITTEN_MIN_NS, WRITTEN_WITHIN_NS, Damage, Holdings, Place, anew, written_ns
from sysmond.store.of_ring import BootEvent, Recording
from sysmond.store.ring_copies import RingCopies
from sysmond.store.ring_reach import STAYING, TooLittleError, complete_since, was_set

if TYPE_CHECKING:
    from sysmond.store.files.dense_file import EventsOfFile

CLOCK_STEP = "clock step"
BOOT_ID_DIGITS = 32

Ordered = list[tuple[BootEvent | None, Event]]
"""Events as they were recorded, and as answers have them; that the clock was set was not recorded as one."""


def in_order(events: Iterable[BootEvent], courses: Mapping[str, Course], boots: Sequence[str]) -> Ordered:
    """Events in order of ``boots`` and boot time, with the steps of the wall clock, which are events as well.

    What was recorded later than it happened comes where its own time is.
    """
    of_boot: dict[str, list[tuple[int, Event, BootEvent | None]]] = {boot: [] for boot in boots}
    earlier: Ordered = []
    for recorded in events:
        boot, at_ns = recorded[:2]
        happened_ns = recorded.happened_ns
        time_ns = courses.get(boot, _UNKNOWN).moment_ns(at_ns) if happened_ns == ABSENT else happened_ns
        event = Event(time_ns, *recorded[2:])
        if happened_ns == ABSENT:
            of_boot.setdefault(boot, []).append((at_ns, event, recorded))
        else:
            earlier.append((recorded, event))
    for boot, course in courses.items():
        for at_ns, by_ns in course.steps():
            step = Event(course.moment_ns(at_ns), CLOCK_STEP, "", f"{by_ns / SECOND_NS:+.6f} s")
            of_boot.setdefault(boot, []).append((at_ns, step, None))
    ordered = [
        (recorded, event)
        for mine in of_boot.values()
        for _, event, recorded in sorted(mine, key=lambda entry: entry[:2])
    ]
    return _with(ordered, earlier)


def among(events: Sequence[Event], others: Iterable[Event]) -> list[Event]:
    """Events in order, and others, each before the first that is later than it."""
    return [event for _, event in _with([(None, event) for event in events], [(None, other) for other in others])]


def _with(ordered: Ordered, others: Ordered) -> Ordered:
    # The latest up to each: by that the first that is later is found.
    latest = list(accumulate((event.time_ns for _, event in ordered), max))
    made: Ordered = []
    at = 0
    for pair in sorted(others, key=lambda pair: pair[1]):
        place = bisect_right(latest, pair[1].time_ns)
        made += [*ordered[at:place], pair]
        at = place
    return [*made, *ordered[at:]]


class Happened(NamedTuple):
    """What happened in a range: ``events`` in order, whether any of it is restricted, and what could not be read."""

    events: list[Event]
    is_restricted: bool
    warnings: list[str]

    @property
    def sensitivity(self) -> Sensitivity:
        """Who may read it."""
        return Sensitivity.RESTRICTED if self.is_restricted else Sensitivity.PUBLIC


def read(
    folders: Folders,
    classes: Collection[Sensitivity],
    start_ns: int = -ALWAYS_NS,
    end_ns: int = ALWAYS_NS,
    boot: str | int | None = None,
) -> Happened:
    """What happened in [start, end), in UTC nanoseconds, and of one ``boot``, where that is given.

    :raises UsageError: for a boot of which nothing is known. :raises FileNotFoundError: where files are merged faster
        than they can be read.
    """
    if boot is None and start_ns != -ALWAYS_NS:
        back_ns = snapshot_note.now(folders.state).realtime_ns - start_ns
        if ring_reach.may_have(folders, classes, back_ns):
            with suppress(TooLittleError):
                return read_rings(folders, classes, start_ns, end_ns)
    return anew(lambda: _read(folders, classes, start_ns, end_ns, boot))


def read_rings(folders: Folders, classes: Collection[Sensitivity], start_ns: int, end_ns: int) -> Happened:
    """The same by rings alone, of any boot.

    :raises TooLittleError: where files may tell of more.
    """
    holdings = Holdings(folders, classes)
    rings = [*_rings(holdings, partial(_read_whole_ring, start_ns))]
    boot, since_ns = complete_since((ring.begin for ring in rings if ring.begin.writer in STAYING), STAYING)
    sources = [_of_ring(ring) for ring in rings]
    course = _courses(sources).get(boot, _UNKNOWN)
    is_elsewhere = any(holdings.is_elsewhere(Place(sensitivity), boot, start_ns) for sensitivity in classes)
    if is_elsewhere or course.moment_ns(since_ns) > start_ns or was_set(course):
        raise TooLittleError("files may tell of what happened, too")
    return _happened_in(sources, [damage.reason for damage in holdings.damages], (start_ns, end_ns), None)


def outermost(folders: Folders, classes: Collection[Sensitivity]) -> Happened:
    """Of what happened the first and the last, and some others: when that was, and who may read it."""

    def look() -> Happened:
        sources = _Sources(Holdings(folders, classes), -ALWAYS_NS, _is_outer)
        return _happened_in(sources.read, sources.damaged, (-ALWAYS_NS, ALWAYS_NS), None)

    return anew(look)


def _is_outer(times_ns: Int64Array) -> BoolArray:
    chosen: BoolArray = (times_ns == times_ns.min(initial=ALWAYS_NS)) | (times_ns == times_ns.max(initial=-ALWAYS_NS))
    return chosen


def _read(
    folders: Folders, classes: Collection[Sensitivity], start_ns: int, end_ns: int, boot: str | int | None
) -> Happened:
    def is_near(times_ns: Int64Array) -> BoolArray:
        """Whether events may be in the range, by what one file knows of the clock: another may know better."""
        return (times_ns >= start_ns - WRITTEN_WITHIN_NS) & (times_ns < end_ns + WRITTEN_WITHIN_NS)

    # Which boot is meant is told by all there are, unless its whole id says it.
    since_ns = start_ns if boot is None or _is_id(boot) else -ALWAYS_NS
    sources = _Sources(Holdings(folders, classes), since_ns, is_near)
    return _happened_in(sources.read, sources.damaged, (start_ns, end_ns), boot)


def _is_id(boot: str | int) -> bool:
    return len(str(boot)) == BOOT_ID_DIGITS


def _happened_in(
    sources: Sequence["_Source"], damaged: list[str], span_ns: tuple[int, int], boot: str | int | None
) -> Happened:
    start_ns, end_ns = span_ns
    public, restricted = (
        {event for source in sources if source.sensitivity is one for event in source.events}
        for one in (Sensitivity.PUBLIC, Sensitivity.RESTRICTED)
    )
    courses = _courses(sources)
    boots = _in_time(sources, courses)
    if boot is not None:
        is_elsewhere = _is_id(boot) and boot not in boots and start_ns > -ALWAYS_NS
        boots = [] if is_elsewhere else [paths.find_boot(boot, boots)]
        courses = {name: course for name, course in courses.items() if name in boots}
    mine = {event for event in public | restricted if event.boot in courses}
    pairs = [pair for pair in in_order(mine, courses, boots) if start_ns <= pair[1].time_ns < end_ns]
    is_restricted = any(recorded in restricted for recorded, _ in pairs)
    return Happened([event for _, event in pairs], is_restricted, damaged)


class _Source(NamedTuple):
    """What one ring or file tells."""

    sensitivity: Sensitivity
    events: Sequence[BootEvent]
    clocks: Mapping[str, Sequence[Relation]]


class _Sources:
    """The rings and files that may tell of what happened since a moment (UTC).

    ``read``: what they tell; ``damaged``: which cannot be read, and why.
    """

    def __init__(
        self, holdings: Holdings, since_ns: int, choose: Callable[[Int64Array], BoolArray] | None = None
    ) -> None:
        """Read them; of files only events that ``choose`` says, as of ``EventsOfFile``.

        :raises FileNotFoundError: where a file was merged or flushed meanwhile.
        """
        self._holdings = holdings
        self._since_ns = since_ns
        self._choose = choose
        self.read: list[_Source] = []
        sealed = Progress.read(holdings.folders).sealed  # Before the rings: what it says is sealed is in a file by now.

        def read_ring(path: str) -> ring_events.RingEvents:
            """What no file has."""
            return ring_events.read(path, sealed[path].offset if path in sealed else 0)

        self.read += map(_of_ring, _rings(holdings, read_ring))
        for sensitivity in holdings.classes:
            self._read_files(sensitivity)
        self.damaged = [damage.reason for damage in holdings.damages]

    def _read_files(self, sensitivity: Sensitivity) -> None:
        """Read the files of a class: listed upstream first, so that none is missed that moves on meanwhile."""
        rows = self._paths(sensitivity, FINEST_TIER)
        tier = self._paths(sensitivity, EVENTS)
        covers: list[Name] = []
        for path, name in tier:
            if opened := self._open(path, name, sensitivity):
                covers += opened.covers or ([name] if name else [])
        if not tier:  # Written before there was one.
            rows += [entry for coarse in tiers.COARSE for entry in self._paths(sensitivity, coarse)]
        for path, name in rows:
            if name is None or not tiers.hold(covers, name):
                self._open(path, name, sensitivity)

    def _paths(self, sensitivity: Sensitivity, tier: str) -> list[tuple[str, Name | None]]:
        """The files of a tier that may have what is asked for, and which rows they are of, where their name says so."""
        named, others = self._holdings.files(Place(sensitivity, tier))
        listed = [*((path, name) for name, path in named.items()), *((path, None) for path in others)]
        latest_ns = self._since_ns - WRITTEN_WITHIN_NS
        return [entry for entry in listed if not WRITTEN_MIN_NS <= written_ns(entry[0]) < latest_ns]

    def _open(self, path: str, name: Name | None, sensitivity: Sensitivity) -> "EventsOfFile | None":
        opened = self._holdings.attempt(path, partial(opening.events, path, self._choose), name, sensitivity)
        if opened is not None:
            opened.close()
            self.read.append(_Source(opened.sensitivity, opened.events, opened.clocks))
        return opened


def _rings(holdings: Holdings, read_ring: Callable[[str], ring_events.RingEvents]) -> Iterator[ring_events.RingEvents]:
    """What rings of wide tables tell."""
    for path in ring_files(holdings.folders, holdings.classes):
        with suppress(FileNotFoundError):
            ring = holdings.attempt(path, partial(read_ring, path))
            if ring is not None:
                holdings.damages += [Damage(None, None, ring.damage)] * bool(ring.damage)
                yield ring


def _read_whole_ring(since_ns: int, path: str) -> ring_events.RingEvents:
    """All that a ring tells; by its copy where one is kept."""
    if not RingCopies.stay:
        return ring_events.read(path)
    copied = RingCopies.copy(path, since_ns)
    return ring_events.of_copy(copied, RingCopies.recording(copied, since_ns))


def _of_ring(ring: ring_events.RingEvents) -> _Source:
    return _Source(ring.begin.sensitivity, ring.events, {ring.begin.boot: ring.relations})


def _courses(sources: Iterable[_Source]) -> dict[str, Course]:
    """How the wall clock of each boot ran, by all that is told of it."""
    said: dict[str, list[Said]] = {}
    for source in sources:
        for boot in {*source.clocks, *(event.boot for event in source.events)}:
            said.setdefault(boot, []).append(Said(source.clocks.get(boot, ()), 0, -1, SECOND_NS))
    return {boot: joined(files) for boot, files in said.items()}


def _in_time(sources: Iterable[_Source], courses: Mapping[str, Course]) -> list[str]:
    """Boots in order of their ends: many a boot begins in 1970."""
    last_ns = dict.fromkeys(courses, -ALWAYS_NS)
    for source in sources:
        moments = [(event.boot, event.boottime_ns) for event in source.events]
        moments += [(boot, relation.boottime_ns) for boot, relations in source.clocks.items() for relation in relations]
        for boot, at_ns in moments:
            last_ns[boot] = max(last_ns[boot], courses[boot].moment_ns(at_ns))
    return sorted(last_ns, key=lambda boot: (last_ns[boot], boot))


_UNKNOWN = course_of((), SECOND_NS)


def of_rows(recording: Recording, covers: Sequence[Name]) -> bytes:
    """The image of the file of the tier of events that files of rows become, which are given as one recording.

    :raises Error: where there is more than a file may have.
    """
    clocks = {boot: [*relations, *_ends(recording, boot)] for boot, relations in recording.clocks.items()}
    return _encoded(recording._replace(clocks=clocks, covers=covers))


def merged(paths: Sequence[str]) -> bytes:
    """The image of a file that has all events of several, in order of time, and stands for all rows that they do.

    :raises Error: where one is damaged, or there is more than a file may have.
    """
    recordings = [_whole(path) for path in paths]
    covers = tiers.joined(name for each in recordings for name in each.covers)
    return _encoded(of_ring.join(recordings)._replace(covers=covers))


def gathered(folders: Sequence[str]) -> tuple[str, bytes] | None:
    """What tiers have of events in these folders, as the first file of the tier of events: its name, and image.

    None where they have nothing. So events are kept whose rows were forgotten before there was a tier of them.

    :raises Error: where there is more than a file may have.
    """
    recordings: list[Recording] = []
    for folder in folders:
        files, _ = tiers.listing(folder)
        for file in files:
            with suppress(Error, FileNotFoundError):
                recordings.append(_whole(f"{folder}/{file.file}")._replace(covers=file.covers))
    covers = tiers.joined(sorted({name for each in recordings for name in each.covers}))
    if not covers:
        return None
    return tiers.file_name(covers), _encoded(of_ring.join(recordings)._replace(covers=covers))


def _whole(path: str) -> Recording:
    with opening.events(path) as opened:
        clocks = {boot: list(relations) for boot, relations in opened.clocks.items()}
        return Recording(opened.sensitivity, {}, (), {}, clocks, (), opened.events, (), opened.covers)


def _ends(recording: Recording, boot: str) -> Iterator[Relation]:
    """How the clocks stood at the last row of a boot: by that is known up to when a file without events is."""
    ends = [int(block.ticks[-1]) for block in recording.blocks if block.strand.boot == boot and len(block.ticks)]
    known = sorted(recording.clocks[boot])
    if ends and known:
        at = [relation for relation in known if relation.boottime_ns <= max(ends)] or known[:1]
        later_ns = max(ends) - at[-1].boottime_ns
        yield Relation(*(stood_ns + later_ns for stood_ns in at[-1]))


def _encoded(recording: Recording) -> bytes:
    """A file of nothing but events, and the clocks by which they have a time."""
    clocks: dict[str, list[Relation]] = {}
    for boot, relations in recording.clocks.items():
        changes: list[Relation] = []
        ordered = sorted(set(relations))
        for relation in ordered:
            if not changes or relation.differs(changes[-1]) or relation == ordered[-1]:
                changes.append(relation)
        clocks[boot] = changes
    events = Recording(
        recording.sensitivity, {}, (), {}, clocks, (), sorted(set(recording.events)), (), recording.covers
    )
    from sysmond.store.files import dense_file  # noqa: PLC0415  only jobs write

    with dense_file.Writer(events, (), (), CREATED_BY) as writer:
        return writer.image()
