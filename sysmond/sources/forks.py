# SPDX-License-Identifier: Apache-2.0
"""Storms of new processes and threads, by a count of them that is read anyway. Pure but for the clock.

Standard library only: the real-time sampler imports it.
"""

from collections.abc import Callable
from time import monotonic

KIND = "fork storm"
# So many a second, for each CPU and at least, over so long a time: a large build makes a fifth of that.
PER_CPU_S = 250
LEAST_S = 1000
SPAN_S = 10.0
# What goes on is told once, until there was none for so long.
QUIET_S = 60.0


class ForkStorms:
    """Looks at a count that only grows, every ``SPAN_S``."""

    def __init__(self, cpus: int, now: Callable[[], float] = monotonic) -> None:
        """``cpus``: how many there are. ``now``: the time in seconds."""
        self._bound_s = max(LEAST_S, PER_CPU_S * cpus)
        self._now = now
        self._count = 0
        self._begun_s = self._quiet_s = 0.0

    def look(self, count: int) -> str:
        """Say what there is to tell of a storm that begins; nothing else."""
        now_s = self._now()
        lasted_s = now_s - self._begun_s
        if self._begun_s and lasted_s < SPAN_S:
            return ""
        # After a gap, as of a suspend, nobody knows how many came when.
        pace_s = (count - self._count) / lasted_s if self._begun_s and lasted_s < 2 * SPAN_S else 0.0
        self._count, self._begun_s = count, now_s
        if pace_s < self._bound_s:
            return ""
        is_new, self._quiet_s = now_s >= self._quiet_s, now_s + QUIET_S
        return f"{pace_s:.0f} processes and threads a second for {lasted_s:.0f} s" if is_new else ""
