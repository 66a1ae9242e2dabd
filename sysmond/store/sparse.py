# SPDX-License-Identifier: Apache-2.0
"""The sparse coding as jobs see it: what of a ring becomes files, and when the rows of one are from.

Of a table whose rows last a ring is sealed up to the last full reading, and without it: so the next file begins with
one. All of it is, where the writer is gone, or gives none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.declared_answers import within
from sysmond.base.model import Answers, Cause, Sensitivity
from sysmond.base.wall_clock import course_of
from sysmond.ring.leftovers import is_alive
from sysmond.ring.progress import Sealed
from sysmond.ring.snapshot import Snapshot, identify, snapshot
from sysmond.store import sparse_file
from sysmond.store.of_ring import Hole
from sysmond.store.sparse_of_ring import LongRing, Reading
from sysmond.store.stretch import Incarnation, MemoryStretch, Readings, Stretch
from sysmond.store.unsealed import FilePart, Unsealed, dropped, has_ended_since

# What follows the last full reading waits for the next one, unless it takes this part of the ring.
WAITING_FRACTION_MAX = 0.5


class _Cut(NamedTuple):
    """What of a ring is sealed now: the readings, up to which offset, and up to which tick, if not to the end."""

    taken: list[Reading]
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
    taken = snapshot(path, max(before.offset, skipped))
    is_over = is_over or taken.closed
    ring = LongRing(taken)
    cut = _cut(ring, taken.end_offset, capacity, is_over=is_over)
    if is_skipped and not cut.taken and not is_over:
        return Unsealed([], before, ring.damage)  # The gap is told with the first row after it.
    last_ns = cut.taken[-1].tick_ns if cut.taken else before.last_tick_ns
    parts = []
    for stretch in _stretches(ring, taken, cut, before, is_skipped=is_skipped):
        table = stretch.table
        said = within(answers[table.name], table) if table.name in answers else None
        content = stretch.told(stretch.about._replace(table=table._replace(answers=said)))
        parts.append(FilePart(stretch.boot, stretch.sensitivity, table.name, content))
    return Unsealed(parts, Sealed(cut.offset, last_ns, int(taken.closed)), ring.damage)


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
    ring: LongRing, taken: Snapshot, cut: _Cut, before: Sealed, *, is_skipped: bool
) -> Iterator[MemoryStretch]:
    """What a copy adds to what was sealed, and that its writer ended, where that is new."""
    how = f"{taken.lost} bytes overwritten before they were sealed"
    found = False
    for stretch in ring.stretches(cut.taken):
        about = stretch.about
        holes = [hole for hole in about.holes if cut.before_ns is None or hole.start_ns < cut.before_ns]
        if len(stretch.ticks):
            holes += dropped(taken, before, {stretch.table.name: cut.taken[0].tick_ns}, is_skipped=is_skipped, how=how)
        if len(stretch.ticks) or holes:
            found = True
            yield stretch.told(about._replace(holes=holes))
    if not found and has_ended_since(taken, before, is_skipped=is_skipped):
        life = Incarnation(taken.identity.started_ns, before.last_tick_ns, closed=True)
        for stretch in ring.stretches([], is_empty_too=True):
            yield stretch.told(stretch.about._replace(lives=[life], holes=()))


def join(contents: Sequence[Stretch]) -> Stretch:
    """What becomes a file: a stretch of a ring has one of its own."""
    (content,) = contents
    return content


def encode(content: Stretch) -> bytes:
    """The image of a file.

    :raises Error: where it has more than a file may.
    """
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
        told = MemoryStretch(about._replace(holes=holes), readings, none, lambda _: none)
        return about.sensitivity, encode(told)


def span_ns(path: str) -> tuple[int, int]:
    """UTC of the outermost readings of a file, in nanoseconds; where it has none, of what else it says of that time.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as opened:
        told = [*opened.ticks[:1].tolist(), *opened.ticks[-1:].tolist()]
        told = told or [each.start_ns for each in opened.holes] or [life.first_ns for life in opened.lives]
        if not told:
            return 0, 0
        course = course_of(opened.relations, opened.interval_ns)
        return course.moment_ns(min(told)), course.moment_ns(max(told))
