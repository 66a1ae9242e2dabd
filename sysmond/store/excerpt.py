# SPDX-License-Identifier: Apache-2.0
"""An excerpt: what was recorded in a span of time, as files of an archive that has no more than that.

Comes in: folders, classes, a span in UTC. Goes out: ``ExcerptFile``, images of files and where each would lie in a
state folder. Rows and events, from rings and files alike, with the reading before the span, from which counters grew.
What is not of the span is in no file: no series, process, text or event. Buckets are left out: where only those are
left, the excerpt has nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.declared_answers import within
from sysmond.base.model import ABSENT, FINEST_TIER, Answers, Cause, Join, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.base.wall_clock import Course
from sysmond.errors import CorruptError
from sysmond.machine.folders import Folders
from sysmond.store import dense, of_ring
from sysmond.store.anonymous import Anonymity
from sysmond.store.archive import Name
from sysmond.store.census import LATE_NS, Census, Line
from sysmond.store.files import dense_file, sparse_file
from sysmond.store.of_ring import BATCH_SERIES, Block, BootEvent, Hole, Recording, SeriesKey, Strand
from sysmond.store.stretches.chain import remembering
from sysmond.store.stretches.cut import CutRows, StretchCut
from sysmond.store.stretches.stretch import About, Stretch, StretchPart, key_of, lasts
from sysmond.store.stretches.undeclared import answers_of
from sysmond.store.timeline import Timeline
from sysmond.store.unsealed import FilePart


class ExcerptFile(NamedTuple):
    """A file: where it lies in a state folder, its bytes, and of which long ``table`` it is, empty for wide ones."""

    path: str
    image: bytes
    table: str


class ExcerptSpan(NamedTuple):
    """[start, end) in UTC nanoseconds."""

    start_ns: int
    end_ns: int

    def of_hole(self, hole: Hole, course: Course) -> Hole | None:
        """What of a hole lies within; None for nothing."""
        low_ns, high_ns = course.window(self.start_ns, self.end_ns)
        begin_ns, end_ns = max(hole.start_ns, low_ns), min(hole.end_ns, high_ns)
        return hole._replace(start_ns=begin_ns, end_ns=end_ns) if begin_ns < end_ns else None

    def has(self, event: BootEvent, course: Course) -> bool:
        """Whether an event happened within."""
        at_ns = course.moment_ns(event.boottime_ns) if event.happened_ns == ABSENT else event.happened_ns
        return self.start_ns <= at_ns < self.end_ns


def files(
    folders: Folders,
    classes: Collection[Sensitivity],
    span: ExcerptSpan,
    warnings: list[str],
    anonymity: Anonymity | None = None,
) -> Iterator[ExcerptFile]:
    """Give the files of a span; what cannot be read is added to ``warnings``. ``anonymity``: what names become.

    :raises Error: where it is more than one file may have, or what is needed is damaged. :raises FileNotFoundError:
        where files are merged or flushed faster than they can be read.
    """
    numbers: Counter[tuple[Sensitivity, str, str]] = Counter()

    def file(sensitivity: Sensitivity, boot: str, table: str, image: bytes) -> ExcerptFile:
        numbers[sensitivity, boot, table] += 1
        number = numbers[sensitivity, boot, table]
        folder = "/".join(filter(None, (sensitivity, table, FINEST_TIER)))
        return ExcerptFile(f"{folder}/{Name(boot, number, number).file}", image, table)

    with closing(Timeline(folders, classes, span)) as line:
        for parts in _wide_parts(line, span, warnings):
            joined = of_ring.join([part.content for part in parts])
            joined = anonymity.recording(joined) if anonymity else joined
            plans = [of_ring.plan_of(members) for members in of_ring.strands(joined.blocks)]
            boot = next(iter(joined.clocks))
            yield file(joined.sensitivity, boot, "", dense_file.encode_plans(joined, plans, CREATED_BY))
        warnings += [damage.reason for damage in line.damages]
    with closing(Census(folders, classes)) as census:
        for stretch in _long_parts(census, span, warnings, anonymity):
            yield file(stretch.sensitivity, stretch.boot, stretch.table.name, sparse_file.encode(stretch, CREATED_BY))
        warnings += census.warnings


# --- Wide tables


def _wide_parts(line: Timeline, span: ExcerptSpan, warnings: list[str]) -> Iterator[list[FilePart]]:
    """What becomes one file each, in order of time: the parts of a boot and class whose declarations agree."""
    groups: list[list[FilePart]] = []
    recordings = [cut for recording in line.recordings for cut in _of_recording(recording, line, span, warnings)]
    for recording in sorted(recordings, key=_first_ns):
        boot = next(iter(recording.clocks), "")
        part = FilePart(boot, recording.sensitivity, "", recording, recording.tables)
        for group in groups:
            if all(other.may_join(part) for other in group):
                group.append(part)
                break
        else:
            groups.append([part])
    yield from groups


def _first_ns(recording: Recording) -> int:
    moments = [int(block.ticks[0]) for block in recording.blocks]
    return min([*moments, *(event.boottime_ns for event in recording.events), *(h.start_ns for h in recording.holes)])


def _of_recording(recording: Recording, line: Timeline, span: ExcerptSpan, warnings: list[str]) -> Iterator[Recording]:
    """What of a ring or a file lies within, a boot at a time."""
    boots = {*recording.clocks, *(block.strand.boot for block in recording.blocks)}
    for boot in sorted(boots):
        course = line.course(boot)
        mine = [block for block in recording.blocks if block.strand.boot == boot]
        blocks, damaged = _parts_of(mine, course, span, warnings)
        holes = [*damaged, *(hole for hole in recording.holes if hole.boot == boot)]
        holes = [cut for hole in holes if (cut := span.of_hole(hole, course))]
        events = [event for event in recording.events if event.boot == boot and span.has(event, course)]
        if not blocks and not holes and not events:
            continue
        tables = {name: dense.declared(table, line.answers) for name, table in recording.tables.items()}
        texts = {ident: recording.texts[ident] for ident in _text_ids(blocks, tables.values()) & recording.texts.keys()}
        clocks = {boot: recording.clocks.get(boot, [])}
        yield Recording(recording.sensitivity, tables, blocks, texts, clocks, holes, events)


def _parts_of(
    blocks: Sequence[Block], course: Course, span: ExcerptSpan, warnings: list[str]
) -> tuple[list["_BlockPart"], list[Hole]]:
    """What of blocks lies within; and as holes those that cannot be read."""
    parts: list[_BlockPart] = []
    holes: list[Hole] = []
    for block in blocks:
        try:
            if part := _BlockPart.of(block, course, span):
                parts.append(part)
        except CorruptError as damage:
            warnings.append(str(damage))
            boot, interval_ns = block.strand.boot, block.strand.interval_ns
            ends_ns = int(block.ticks[0]), int(block.ticks[-1]) + interval_ns
            tables = sorted({key.table for key in block.keys})
            holes += [Hole(boot, table, *ends_ns, Cause.DAMAGED_FILE, str(damage)) for table in tables]
    return parts, holes


class _BlockPart:
    """The ticks of a block that lie in a span, with the one before, and the series that have a value there."""

    def __init__(self, block: Block, ticks: slice) -> None:
        self._block = block
        self._ticks = ticks
        self.strand: Strand = block.strand
        self.ticks: Int64Array = block.ticks[ticks]
        self.closed = block.closed and ticks.stop == len(block.ticks)
        self.significant_bits = block.significant_bits
        self._rows = [
            first + row
            for first in range(0, len(block.keys), BATCH_SERIES)
            for row in np.flatnonzero((self._values(range(first, first + BATCH_SERIES)) != ABSENT).any(axis=1)).tolist()
        ]
        self.keys: Sequence[SeriesKey] = [block.keys[row] for row in self._rows]

    @classmethod
    def of(cls, block: Block, course: Course, span: ExcerptSpan) -> "_BlockPart | None":
        """The part of a block; None where no tick of it lies within."""
        low_ns, high_ns = course.window(*span)
        interval_ns = block.strand.interval_ns
        begin, end = np.searchsorted(block.ticks, (low_ns - interval_ns, high_ns)).tolist()
        return cls(block, slice(begin, end)) if begin < end else None

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""
        return self._values([self._rows[row] for row in rows])

    def _values(self, rows: Sequence[int]) -> Int64Array:
        return self._block.read([row for row in rows if row < len(self._block.keys)])[:, self._ticks]


def _text_ids(blocks: Sequence[Block], tables: Collection[Table]) -> set[int]:
    """Which texts are values of blocks."""
    texts = {(table.name, metric.name) for table in tables for metric in table.metrics if metric.is_text}
    used: set[int] = set()
    for block in blocks:
        rows = [row for row, key in enumerate(block.keys) if key[:2] in texts]
        used.update(np.unique(block.read(rows)).tolist() if rows else ())
    return used


# --- Long tables


def _long_parts(
    census: Census, span: ExcerptSpan, warnings: list[str], anonymity: Anonymity | None
) -> Iterator[Stretch]:
    """What becomes one file each, those first that refer to others by number: kernel stacks, control groups."""
    answers = {table: census.answers(table) for table in census.tables()}
    lines = {table: census.lines(table, *span) for table in answers}
    joins = {table: _joins(lines[table], answers[table]) for table in answers}
    named = {join.table for mine in joins.values() for join in mine}
    numbers: dict[str, set[int]] = {table: set() for table in named}
    for table in sorted(answers, key=lambda table: (table in named, table)):
        for line in lines[table]:
            for part in line.parts:
                try:
                    read = _cut_of(part, line, span, answers[table])
                    if read is None or (anonymity and _is_by_text(part.stretch.table)):
                        continue
                    cut = _cut(part.stretch, *read, numbers.get(table, ()), anonymity)
                    for join in joins[table]:
                        numbers[join.table].update(np.unique(cut.column(join.by[0][0])).tolist())
                except CorruptError as damage:
                    warnings.append(str(damage))
                else:
                    yield cut


def _joins(lines: Sequence[Line], answers: Answers | None) -> list[Join]:
    """By which columns a table refers to the one column that keys of another have."""
    stretches = [part.stretch for line in lines for part in line.parts]
    if not stretches:
        return []
    table = stretches[-1].table
    said = answers or answers_of(table)
    metrics = {metric.name for metric in table.metrics}
    return [join for join in said.joins if len(join.by) == 1 and join.by[0][0] in metrics]


def _is_by_text(table: Table) -> bool:
    """Whether keys of a table are texts."""
    texts = {metric.name for metric in table.metrics if metric.is_text}
    return not texts.isdisjoint(key_of(table))


def _cut_of(part: StretchPart, line: Line, span: ExcerptSpan, answers: Answers | None) -> tuple[About, int, int] | None:
    """What holds of what lies within of a stretch, and which readings these are; None where no reading is.

    Where rows last it begins with the last full reading before, at which all that was there has a row, and early enough
    for what others are about that are recorded late.
    """
    stretch = part.stretch
    low_ns, high_ns = line.course.window(*span)
    before_ns = max(stretch.interval_ns, LATE_NS if lasts(stretch.table) else 0)
    # What ended just before the end of the span is told by the reading after it.
    edges_ns = low_ns - before_ns, min(high_ns + stretch.interval_ns, part.end_ns)
    begin, end = np.searchsorted(stretch.ticks, edges_ns).tolist()
    if begin >= end:
        return None
    if lasts(stretch.table):
        begin = int(np.flatnonzero(stretch.full[: begin + 1])[-1:].sum())
    holes = [cut for hole in stretch.holes if (cut := span.of_hole(hole, line.course))]
    lives = [life for life in stretch.lives if life.first_ns <= int(stretch.ticks[end - 1])]
    if lives and end < len(stretch.ticks):  # How the last one ended is not known then.
        lives[-1] = lives[-1]._replace(closed=False)
    table = stretch.table
    if table.answers is None and answers is not None:  # A ring does not say it.
        table = table._replace(answers=within(answers, table))
    return stretch.about._replace(table=table, lives=lives, holes=holes, path=""), begin, end


def _cut(
    stretch: Stretch, about: About, begin: int, end: int, numbers: Collection[int], anonymity: Anonymity | None
) -> StretchCut:
    """Some readings of a stretch, with what ``numbers`` mean, and the texts that are there."""
    rows = CutRows(stretch, begin, end, numbers)
    words = _Words(rows, anonymity)
    if anonymity:
        holes = list(anonymity.holes(about.holes))
        about = about._replace(boot=anonymity.boot(about.boot), holes=holes)
    return StretchCut(about, rows, remembering(words.column), words.texts)


class _Words:
    """Rows of a stretch by the texts that they have, in the order that those had, or what they become."""

    def __init__(self, rows: CutRows, anonymity: Anonymity | None) -> None:
        self._rows = rows
        table, texts = rows.stretch.table, rows.stretch.texts
        self._used: dict[str, Int64Array] = {}
        become: dict[str, list[str | None]] = {}
        for name in (metric.name for metric in table.metrics if metric.is_text):
            used = np.unique(rows.read(name))
            self._used[name] = used = used[used != ABSENT]
            said = [texts[code] for code in used.tolist()]
            become[name] = [anonymity.text(table.name, name, text) if anonymity else text for text in said]
        pairs = [pair for name, used in self._used.items() for pair in zip(used.tolist(), become[name], strict=True)]
        in_order = sorted((code, text) for code, text in pairs if text is not None)
        self.texts = list(dict.fromkeys(text for _, text in in_order))
        places = {text: code for code, text in enumerate(self.texts)}
        self._codes = {
            name: np.array([ABSENT if text is None else places[text] for text in spelled], np.int64)
            for name, spelled in become.items()
        }

    def column(self, name: str) -> Int64Array:
        """The values of a metric, int64[row]: the codes of texts are others."""
        values = self._rows.read(name)
        if name not in self._codes or not len(self._codes[name]):
            return values
        at = np.minimum(np.searchsorted(self._used[name], values), len(self._used[name]) - 1)
        return np.where(values == ABSENT, ABSENT, self._codes[name][at])
