# SPDX-License-Identifier: Apache-2.0
"""In which control groups processes were killed for lack of memory, by how their counters grew. Pure.

A control group whose processes were killed is often gone a moment later, with its counters. In version 2 those above it
counted, too: what is more than all that are there account for was killed in one that is gone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sysmond.probe import ABSENT


class KillCounts(NamedTuple):
    """Of a cgroup, by its inode: kills in it and all below, and in itself; without the latter the first is that."""

    inode: int
    kills: int
    own: int = ABSENT


class OomKills:
    """Compares each reading with the one before."""

    def __init__(self) -> None:
        """The first reading is only remembered."""
        # Of those with none nothing is kept: most never have one.
        self._before: dict[str, KillCounts] | None = None

    def of(self, counts: Mapping[str, KillCounts]) -> Iterator[tuple[str, str]]:
        """Give each cgroup in which any were killed since, and how many, in words."""
        before = self._before
        self._before = {path: count for path, count in counts.items() if count.kills > 0}
        if before is None:
            return
        grown = {path: _grown(before.get(path), count) for path, count in self._before.items()}
        below = Counter[str]()
        for path, (kills, _) in grown.items():
            below[path.rpartition("/")[0] or "/"] += kills
        for path, (kills, own) in grown.items():
            gone = max(0, kills - below[path] - own) if counts[path].own != ABSENT else 0
            said = [_spelled(own, "")] if own else []
            said += [_spelled(gone, " in control groups below it that are gone")] if gone else []
            if said:
                yield path, ", ".join(said)


def _grown(before: KillCounts | None, count: KillCounts) -> tuple[int, int]:
    """How many more there were, below included, and in itself; in one made again, all that it has."""
    kills, own = count.kills, count.kills if count.own == ABSENT else count.own
    if before is None or before.inode != count.inode:
        return kills, own
    return max(0, kills - before.kills), max(0, own - (before.kills if before.own == ABSENT else before.own))


def _spelled(number: int, where: str) -> str:
    return f"{number} process{'es' if number > 1 else ''} killed{where}"
