# SPDX-License-Identifier: Apache-2.0
"""The course of the other clocks over a boot: which wall-clock time a tick had, and how long the machine slept.

Pure. Wall clock and boot time run alike (both are slewed together); their distance changes when the clock is
set. Several writers read it, each a microsecond differently: only what differs by more counts as a change.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import RELATION_TOLERANCE_NS, SECOND_NS, Relation
from sysmond.base.result import Int64Array

# The relation of two clocks is read to within this; finer digits would only be noise.
CLOCK_QUANTUM_NS = 1000
# Two files of one time are sealed together: what is asked least often has its first tick so much later.
BESIDE_NS = 120 * SECOND_NS
# Before the first and after the last tick of every boot.
ALWAYS_NS = 2**62


class Said(NamedTuple):
    """What one file says of the clocks of a boot: its relations, its first and last tick, and the grid of its ticks."""

    relations: Sequence[Relation]
    first_ns: int
    last_ns: int
    grid_ns: int

    def is_beside(self, other: "Said") -> bool:
        """Whether another file is of the same time: it overlaps, and is not of much more than that."""
        length_ns, its_ns = self.last_ns - self.first_ns, other.last_ns - other.first_ns
        overlaps = other.first_ns <= self.last_ns and self.first_ns <= other.last_ns
        return overlaps and its_ns <= 2 * length_ns + BESIDE_NS

    def span_ns(self) -> tuple[int, int] | None:
        """Its first and last tick in UTC by its own relations; None where it has none."""
        if self.first_ns > self.last_ns:
            return None
        course = course_of(self.relations, self.grid_ns)
        return course.moment_ns(self.first_ns), course.moment_ns(self.last_ns)


class Piece(NamedTuple):
    """From when on (boot time) the wall clock was so much ahead of boot time, and so long had been slept."""

    at_ns: int
    wall_ns: int
    asleep_ns: int

    def differs(self, other: "Piece") -> bool:
        """Say whether the wall clock or the suspended time is another."""
        apart_ns = abs(self.wall_ns - other.wall_ns), abs(self.asleep_ns - other.asleep_ns)
        return max(apart_ns) > RELATION_TOLERANCE_NS


class Course:
    """Offsets to boot time as steps: from ``at_ns`` on they hold. Without any, boot time counts from 1970."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """Follow pieces in order, at least one; see ``course_of``."""
        self._at_ns = [piece.at_ns for piece in pieces]
        self._wall_ns = [piece.wall_ns for piece in pieces]
        self._asleep_ns = [piece.asleep_ns for piece in pieces]

    def utc_ns(self, ticks: Int64Array) -> Int64Array:
        """Wall-clock time of ticks, int64[tick] nanoseconds, by the relation that held then.

        Before any was recorded it is the first known one.
        """
        if len(self._at_ns) == 1:
            return ticks + self._wall_ns[0]
        at = np.searchsorted(self._at_ns, ticks, side="right") - 1
        return ticks + np.array(self._wall_ns, np.int64)[np.maximum(0, at)]

    def era(self, ticks: Int64Array) -> Int64Array:
        """Number the spans between steps and suspends in which ticks lie: int64[tick]."""
        number: Int64Array = np.searchsorted(self._at_ns[1:], ticks, side="right")
        return number

    def moment_ns(self, tick_ns: int) -> int:
        """Wall-clock time of one tick."""
        return tick_ns + self._wall_ns[self._index(tick_ns)]

    def window(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Between which boot times all ticks lie whose wall-clock time is in [start, end); a step widens it."""
        low_ns, high_ns = ALWAYS_NS, -ALWAYS_NS
        for index, wall_ns in enumerate(self._wall_ns):
            held_from = self._at_ns[index] if index else -ALWAYS_NS
            held_until = self._at_ns[index + 1] if index + 1 < len(self._at_ns) else ALWAYS_NS
            begin_ns, stop_ns = max(held_from, start_ns - wall_ns), min(held_until, end_ns - wall_ns)
            if begin_ns < stop_ns:
                low_ns, high_ns = min(low_ns, begin_ns), max(high_ns, stop_ns)
        return low_ns, high_ns

    def steps(self) -> Iterator[tuple[int, int]]:
        """When the wall clock was set, as boot time, and by how much."""
        for index in range(1, len(self._at_ns)):
            if by_ns := self._wall_ns[index] - self._wall_ns[index - 1]:
                yield self._at_ns[index], by_ns

    def asleep_ns(self, start_ns: int, end_ns: int) -> int:
        """How long the machine slept between two ticks."""
        return self._asleep_ns[self._index(end_ns)] - self._asleep_ns[self._index(start_ns)]

    def _index(self, tick_ns: int) -> int:
        return max(0, bisect_right(self._at_ns, tick_ns) - 1)


def course_of(relations: Iterable[Relation], grid_ns: int) -> Course:
    """The course that some relations tell of."""
    return Course(_pieces(relations, grid_ns))


def joined(files: Sequence[Said]) -> Course:
    """The course that several files tell of a boot together.

    Whoever makes a file up may set the clock of its own rows, but not of its neighbours': a tick follows the relations
    of its own file where one lies at or before it, those of others only where it has none. Of files of the same time,
    one that noticed a step later than the others is led by them.
    """
    relations = {relation for file in files for relation in file.relations}
    pieces = base = _pieces(relations, min([SECOND_NS, *(file.grid_ns for file in files)]))
    if len(base) == 1:
        return Course(base)
    differing = [(file, own) for file in files if (own := _own(file, base))]
    apart = {id(file) for file, _ in differing}
    agreeing = [file for file in files if file.relations and id(file) not in apart]
    for file, own in sorted(differing, key=lambda pair: pair[0].first_ns - pair[0].last_ns):
        if not any(map(file.is_beside, agreeing)):
            end_ns = file.last_ns + file.grid_ns  # A tick stands for the time until the next.
            low, high = bisect_left(pieces, own[0][:1]), bisect_left(pieces, (end_ns + 1,))
            after = _piece_at(pieces, end_ns)._replace(at_ns=end_ns)
            pieces = [*pieces[:low], *own, after, *pieces[high:]]
    return Course(pieces)


def _own(file: Said, base: Sequence[Piece]) -> list[Piece]:
    """What holds at the ticks of a file by its own relations, where that differs from what holds by all."""
    if not file.relations or file.first_ns > file.last_ns:
        return []
    own = _pieces(file.relations, file.grid_ns)
    begin_ns = max(file.first_ns, own[0].at_ns)
    pieces = [_piece_at(own, begin_ns)._replace(at_ns=begin_ns)]
    pieces += [piece for piece in own if begin_ns < piece.at_ns <= file.last_ns]
    cuts = [piece.at_ns for piece in (*pieces, *base) if begin_ns <= piece.at_ns <= file.last_ns]
    differ = any(_piece_at(pieces, at_ns).differs(_piece_at(base, at_ns)) for at_ns in cuts)
    return pieces if differ and begin_ns <= file.last_ns else []


def _piece_at(pieces: Sequence[Piece], tick_ns: int) -> Piece:
    return pieces[max(0, bisect_left(pieces, (tick_ns + 1,)) - 1)]


def _pieces(relations: Iterable[Relation], grid_ns: int) -> list[Piece]:
    """The relations that differ from the one before, at least one.

    One was read within the tick it belongs to, and holds from that tick on: ticks lie on ``grid_ns``.
    """
    relations_kept: list[Relation] = []
    for relation in sorted(relations):
        if not relations_kept or relation.differs(relations_kept[-1]):
            relations_kept.append(relation)
    return [
        Piece(at_ns // grid_ns * grid_ns, _quantised(realtime_ns - at_ns), at_ns - monotonic_ns)
        for at_ns, realtime_ns, monotonic_ns in relations_kept or [Relation(0, 0, 0)]
    ]


def _quantised(offset_ns: int) -> int:
    return (offset_ns + CLOCK_QUANTUM_NS // 2) // CLOCK_QUANTUM_NS * CLOCK_QUANTUM_NS
