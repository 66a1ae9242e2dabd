# SPDX-License-Identifier: Apache-2.0
"""The pulse of the real-time lane: whether its rings still grow. Its parent checks that every few seconds.

A lane whose probe hangs in the kernel cannot say so itself. Time asleep does not count, nor does a check that the
parent itself made too late: then everybody is short of time. Standard library only.
"""

import os
from contextlib import suppress

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import Error
from sysmond.plan.plan import Plan
from sysmond.ring.frame import SUFFIX
from sysmond.ring.leftovers import READING
from sysmond.ring.progress import WRITERS
from sysmond.ring.snapshot import fill

# A lane that hangs is killed within the sum of both.
LOOK_S = 2.0
STUCK_MIN_S = 4.0
STUCK_INTERVALS = 3
# A parent that checks so much too late cannot judge others.
LATE_S = 1.0
_NS = 1e-9


class Pulse:
    """The fill of the lane's rings, and since when it has been the same."""

    def __init__(self, runtime: str) -> None:
        """Know no rings yet."""
        self._folder = f"{runtime}/{WRITERS[Lane.REALTIME]}"
        self.due_s = 0.0
        self._seen: list[tuple[str, int]] = []
        self._since_s = 0.0
        self._before: set[str] = set()

    def begin(self, now_s: float) -> None:
        """A new incarnation starts: the rings there belong to earlier ones."""
        self.due_s = now_s + LOOK_S
        self._seen = self._heads()
        self._since_s = now_s
        self._before = {path for path, _ in self._seen}

    def silent_s(self, now_s: float) -> float:
        """Look; return for how long nothing was written. It is 0 while the incarnation has no ring yet."""
        is_late = now_s - self.due_s > LATE_S
        self.due_s = now_s + LOOK_S
        if self._has_grown():
            self._since_s = now_s
            return 0.0
        heads = self._heads()
        if is_late or heads != self._seen or self._before.issuperset(path for path, _ in heads):
            self._seen, self._since_s = heads, now_s
        return now_s - self._since_s

    def _has_grown(self) -> bool:
        """Whether a ring of this incarnation that was seen before has grown: then there is no need to list any."""
        for place, (path, filled) in enumerate(self._seen):
            if path.endswith(SUFFIX) and path not in self._before:
                with suppress(OSError, Error, ValueError):
                    self._seen[place] = path, fill(path)[0]
                return self._seen[place] != (path, filled)
        return False

    def _heads(self) -> list[tuple[str, int]]:
        heads = []
        for sensitivity in Sensitivity:
            folder = f"{self._folder}/{sensitivity}"
            with suppress(OSError, Error, ValueError):
                names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
                path = f"{folder}/{max(names, key=lambda name: int(name.removesuffix(SUFFIX)))}"
                heads.append((path, fill(path)[0]))
        with suppress(OSError):  # Before it has a ring, this file names the table that it reads.
            for name in os.listdir(self._folder):
                if name.endswith(READING):
                    path = f"{self._folder}/{name}"
                    heads.append((path, os.stat(path).st_mtime_ns))
        return heads


def limit_s(plan: Plan) -> float:
    """After how long a silence the lane counts as hanging."""
    planned = [probe.interval_ns for probe in plan.probes if probe.enabled and probe.lane is Lane.REALTIME]
    return max(STUCK_MIN_S, STUCK_INTERVALS * min(planned, default=0) * _NS)
