# SPDX-License-Identifier: Apache-2.0
"""The sparse coding as jobs see it: what of a ring becomes files, what these weigh, which become one.

Of a table whose rows last a ring is sealed up to the last full reading, and without it: so the next file begins with
one. All of it is, where the writer is gone, or gives none.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.declared_answers import within
from sysmond.base.model import FILE_BYTES_MAX, Answers, Cause, Semantics, Sensitivity
from sysmond.base.timespec import DAY_NS
from sysmond.base.wall_clock import course_of
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing
from sysmond.ring.leftovers import is_alive
from sysmond.ring.progress import Sealed
from sysmond.ring.snapshot import Snapshot, identify, snapshot
from sysmond.store import archive, tiers
from sysmond.store.archive import Candidate, Name
from sysmond.store.files import invariants, sparse_file
from sysmond.store.of_ring import Hole
from sysmond.store.pins import Pin
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.sparse_of_ring import LongRing, RingReading
from sysmond.store.stretches.stretch import Incarnation, MemoryStretch, Readings, Stretch
from sysmond.store.tiers import TierFile
from sysmond.store.unsealed import FilePart, Unsealed, dropped, has_ended_since

# What follows the last full reading waits for the next one, unless it takes this part of the ring.
WAITING_FRACTION_MAX = 0.5
# A file of few bytes may have many rows, keys or texts: it counts as large as if each took so many. Of rows only their
# order is kept in memory, of a key all that it begins with.
ROW_BYTES_MIN = -(-FILE_BYTES_MAX // sparse_file.ROWS_MAX)
KEY_BYTES_MIN = 40
TEXTS_PER_BYTE_MAX = 4
TEXT_BYTES_MIN = 16
READING_BYTES_MIN = FILE_BYTES_MAX // invariants.TICKS_MAX
# The same of files of tiers, of which rows and texts are in memory.
TIER_ROW_BYTES_MIN = 4


class _Cut(NamedTuple):
    """What of a ring is sealed now: the readings, up to which offset, and up to which tick, if not to the end."""

    readings: list[RingReading]
    offset: int
    before_ns: int | None = None


def unsealed(path: str, before: Sealed, skipped: int, answers: Mapping[str, Answers]) -> Unsealed:
    """What a ring has beyond what was sealed ``before`` and the offset up to which it is ``skipped``.

    ``answers``: what tables declare about them, by name.

    :raises FileNotFoundError: where it is gone. :raises PermissionError: where we may not read it.
    :raises Error: where it is no ring of ours, or so damaged that nobody can say what or when rows were.
    """
    is_skipped = skipped > before.offset
    identity, capacity = identify(path)
    is_over = not is_alive(identity.pid)  # Asked before the copy is made: what comes after it is for the next time.
    copied = snapshot(path, max(before.offset, skipped))
    is_over = is_over or copied.closed
    ring = LongRing(copied)
    cut = _cut(ring, copied.end_offset, capacity, is_over=is_over)
    if is_skipped and not cut.readings and not is_over:
        return Unsealed([], before, ring.damage)  # The gap is told with the first row after it.
    last_ns = cut.readings[-1].tick_ns if cut.readings else before.last_tick_ns
    parts = []
    for stretch in _stretches(ring, copied, cut, before, is_skipped=is_skipped):
        table = stretch.table
        said = within(answers[table.name], table) if table.name in answers else None
        content = stretch.with_about(stretch.about._replace(table=table._replace(answers=said)))
        parts.append(FilePart(stretch.boot, stretch.sensitivity, table.name, content))
    return Unsealed(parts, Sealed(cut.offset, last_ns, int(copied.closed)), ring.damage)


def _cut(ring: LongRing, end: int, capacity: int, *, is_over: bool) -> _Cut:
    """Say what of a copy that ends at the offset ``end`` is sealed."""
    ended = [reading for reading in ring.readings if reading.ended]
    if not is_over and ring.readings and not ring.readings[-1].ended:
        end = ring.readings[-1].offset
    everything = _Cut(ended, end)
    if is_over or not ended or not ring.is_lasting:
        return everything
    fulls = [number for number, reading in enumerate(ended) if reading.full]
    last = fulls[-1] if fulls else 0
    if end - ended[last].offset > capacity * WAITING_FRACTION_MAX:
        return everything
    return _Cut(ended[:last], ended[last].offset, ended[last].tick_ns)


def _stretches(
    ring: LongRing, copied: Snapshot, cut: _Cut, before: Sealed, *, is_skipped: bool
) -> Iterator[MemoryStretch]:
    """What a copy adds to what was sealed, and that its writer ended, where that is new."""
    how = f"{copied.lost} bytes overwritten before they were sealed"
    is_any = False
    for stretch in ring.stretches(cut.readings):
        about = stretch.about
        holes = [hole for hole in about.holes if cut.before_ns is None or hole.start_ns < cut.before_ns]
        if len(stretch.ticks):
            firsts_ns = {stretch.table.name: cut.readings[0].tick_ns}
            holes += dropped(copied.identity, copied.lost, before, firsts_ns, is_skipped=is_skipped, how=how)
        if len(stretch.ticks) or holes:
            is_any = True
            yield stretch.with_about(about._replace(holes=holes))
    if not is_any and has_ended_since(before, closed=copied.closed, is_skipped=is_skipped):
        life = Incarnation(copied.identity.started_ns, before.last_tick_ns, closed=True)
        for stretch in ring.stretches([], is_empty_too=True):
            yield stretch.with_about(stretch.about._replace(lives=[life], holes=()))


def encode(contents: Sequence[Stretch]) -> bytes:
    """The image of a file of one stretch: each has a file of its own.

    :raises Error: where it has more than a file may.
    """
    (content,) = contents
    return sparse_file.encode(content, CREATED_BY)


def emptied(path: str, why: str) -> tuple[Sensitivity, bytes]:
    """The class of a file, and one that has of it all but its rows, and in their place their absence.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as opened:
        about, ticks = opened.about, opened.ticks
        holes = list(about.holes)
        if len(ticks):
            end_ns = int(ticks[-1]) + about.interval_ns
            holes.append(Hole(about.boot, about.table.name, int(ticks[0]), end_ns, Cause.DROPPED, why))
        none = np.zeros(0, np.int64)
        readings = Readings(none, none.astype(np.bool_), none, none)
        empty = MemoryStretch(about._replace(holes=holes), readings, none, lambda _: none)
        return about.sensitivity, encode([empty])


def check(path: str) -> None:
    """Read all of a file.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as stretch:
        stretch.seen()
        for metric in stretch.table.metrics:
            stretch.last(metric.name)
            if metric.semantics is Semantics.GAUGE and metric.name not in stretch.keys:
                stretch.peak(metric.name)
            for keys in stretch.batches():
                stretch.column(metric.name, keys)
        for keys in stretch.batches():
            stretch.tick_index(keys)


def weighed(path: str, candidate: Candidate) -> Candidate:
    """What a merge of rows must know of a file: the day of its first, what it declares, as how many bytes it counts.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as opened:
        declared = {opened.table.name: sparse_file.declares(opened)}
        day = _span_ns(opened)[0] // DAY_NS
        return candidate._replace(day=day, tables=declared, weight_bytes=_weight(opened))


def _weight(opened: Stretch) -> int:
    """As how many bytes a file counts: no reader takes more of anything than a file may have."""
    texts = max(sum(map(len, opened.texts)) // TEXTS_PER_BYTE_MAX, len(opened.texts) * TEXT_BYTES_MIN)
    fields = opened.rows * len(opened.table.metrics) * FILE_BYTES_MAX // invariants.FIELDS_MAX
    readings = len(opened.ticks) * READING_BYTES_MIN
    return max(opened.rows * ROW_BYTES_MIN, len(opened.counts) * KEY_BYTES_MIN, texts, fields, readings)


def merged(paths: Sequence[str], _bits: int = 0, _pinned: Sequence[Pin] = ()) -> bytes:
    """What files of rows become when they are merged; of long tables no number is shortened.

    :raises Error: where one of them is damaged, or declares the table differently.
    """
    with ExitStack() as stack:
        members = [stack.enter_context(sparse_file.open_file(path)) for path in paths]
        if len({sparse_file.declares(member) for member in members}) > 1:
            raise Error(f"{paths[0]} and those after it would be of two declarations")
        return encode([Joined(members)])


def plan_tier(
    folder: str, boot: str, largest_bytes: int, unrolled: Sequence[Name], left_alone: set[str]
) -> list[list[TierFile]]:
    """Which small files of a tier become one: neighbours of a boot and declaration; of a past boot all that fit.

    One that must stay, or cannot be read, parts its neighbours: the name of what they become would claim it.
    """
    groups: list[list[TierFile]] = []
    for of_boot, names in groupby(archive.names(folder), key=lambda name: name.boot):
        plan = partial(tiers.plan_merges if of_boot == boot else tiers.plan_rest, largest_bytes=largest_bytes)
        files = [_by_size(folder, name) for name in names]
        # Most often there is nothing to do, which the sizes tell already.
        if plan(files, unrolled=unrolled):
            weighed = [_weighed_tier(folder, file, left_alone) for file in files]
            parting = [file.covers[0] for file, known in zip(files, weighed, strict=True) if not known]
            groups += plan([known for known in weighed if known], unrolled=[*unrolled, *parting])
    return groups


def _by_size(folder: str, name: Name) -> TierFile:
    """A file of a tier as the plan sees it, by its size alone."""
    size_bytes = 0
    with suppress(FileNotFoundError, CorruptError):
        size_bytes = listing.look(f"{folder}/{name.file}").size_bytes
    return TierFile(name.file, size_bytes, (name,), 0, 0, {})


def _weighed_tier(folder: str, file: TierFile, left_alone: set[str]) -> TierFile | None:
    """The same by what is in it: one of few bytes may have many rows or texts, which are in memory when it is merged.

    None where it is left alone, or cannot be read.
    """
    path = f"{folder}/{file.file}"
    if path not in left_alone:
        with suppress(Error, FileNotFoundError), sparse_file.open_file(path) as opened:
            texts = sum(map(len, opened.texts)) // TEXTS_PER_BYTE_MAX
            size_bytes = max(file.size_bytes, opened.rows * TIER_ROW_BYTES_MIN, texts)
            return file._replace(size_bytes=size_bytes, tables={opened.table.name: sparse_file.declares(opened)})
    return None


def span_ns(path: str) -> tuple[int, int]:
    """UTC of the outermost readings of a file, in nanoseconds; where it has none, of what else it says of that time.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as opened:
        return _span_ns(opened)


def _span_ns(stretch: Stretch) -> tuple[int, int]:
    times_ns = [*stretch.ticks[:1].tolist(), *stretch.ticks[-1:].tolist()]
    times_ns = times_ns or [hole.start_ns for hole in stretch.holes] or [life.first_ns for life in stretch.lives]
    if not times_ns:
        return 0, 0
    course = course_of(stretch.relations, stretch.interval_ns)
    return course.moment_ns(min(times_ns)), course.moment_ns(max(times_ns))
