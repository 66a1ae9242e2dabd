# SPDX-License-Identifier: Apache-2.0
"""The course of the other clocks over a boot: which wall-clock time a tick had, and how long the machine slept.

Pure. Wall clock and boot time run alike (both are slewed together); their distance changes when the clock is
set. Several writers read it, each a microsecond differently: only what differs by more counts as a change.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from sysmond.clock import Relation
from sysmond.result import Int64Array

# The relation of two clocks is read to within this; finer digits would only be noise.
CLOCK_QUANTUM_NS = 1000
# Before the first and after the last tick of every boot.
ALWAYS_NS = 2**62


class Course:
    """Offsets to boot time as steps: from ``at_ns`` on they hold. Without any, boot time counts from 1970."""

    def __init__(self, relations: Iterable[Relation], grid_ns: int) -> None:
        """Keep the relations that differ from the one before.

        One was read within the tick it belongs to, and holds from that tick on: ticks lie on ``grid_ns``.
        """
        kept: list[Relation] = []
        for relation in sorted(relations):
            if not kept or relation.differs(kept[-1]):
                kept.append(relation)
        kept = kept or [Relation(0, 0, 0)]
        self._at_ns = [relation.boottime_ns // grid_ns * grid_ns for relation in kept]
        self._wall_ns = [_quantised(relation.realtime_ns - relation.boottime_ns) for relation in kept]
        self._asleep_ns = [relation.boottime_ns - relation.monotonic_ns for relation in kept]

    def utc_ns(self, ticks: Int64Array) -> Int64Array:
        """Wall-clock time of ticks, by the relation that held then; the first known one before any was recorded."""
        if len(self._at_ns) == 1:
            return ticks + self._wall_ns[0]
        at = np.searchsorted(self._at_ns, ticks, side="right") - 1
        return ticks + np.array(self._wall_ns, np.int64)[np.maximum(0, at)]

    def era(self, ticks: Int64Array) -> Int64Array:
        """Number the spans between steps and suspends in which ticks lie."""
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


def _quantised(offset_ns: int) -> int:
    return (offset_ns + CLOCK_QUANTUM_NS // 2) // CLOCK_QUANTUM_NS * CLOCK_QUANTUM_NS
