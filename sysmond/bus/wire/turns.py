# SPDX-License-Identifier: Apache-2.0
"""Turns: whose call is next. Each user has a line, and whoever has had the least processor time is served first.

So it costs one user's calls nothing how many another one makes: who comes for the first time, or seldom, is served
before the rest of a flood. Work is cut into pieces where it is long; after each the loop does all else, so that the
next one is chosen from what has come meanwhile, too. Nothing is made while something waits to be sent, where turns mean
nothing any more. What a line may hold is bounded; what is beyond is the caller's affair.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator

# Users who are idle and whom nothing is held against need not be remembered; beyond this not even the others are.
LINES_MAX = 256

Work = Iterator[object]
"""Does a piece each time it is asked for the next."""


class _Line:
    """What waits for one user. ``used_s``: processor time, as it counts against that user."""

    __slots__ = ("size_bytes", "used_s", "works")

    def __init__(self, used_s: float) -> None:
        self.works: deque[tuple[Work, int]] = deque()
        self.size_bytes = 0
        self.used_s = used_s


class Turns:
    """All lines."""

    def __init__(
        self,
        later: Callable[[Callable[[], None]], object],
        is_blocked: Callable[[], bool],
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``later``: has the loop call something soon. ``is_blocked``: whether what was made is not sent yet.

        ``spent_s``: the processor time that was spent so far.
        """
        self._later = later
        self._is_blocked = is_blocked
        self._spent_s = spent_s
        self._lines: dict[int, _Line] = {}
        self._active: dict[int, _Line] = {}  # Those for whom something waits.
        self._floor_s = 0.0
        self._is_due = False

    def waiting(self, uid: int) -> int:
        """How much waits for a user."""
        line = self._lines.get(uid)
        return 0 if line is None else len(line.works)

    def waiting_bytes(self, uid: int) -> int:
        """How large that is, as was said when it came."""
        line = self._lines.get(uid)
        return 0 if line is None else line.size_bytes

    def put(self, uid: int, work: Work, size_bytes: int = 0) -> None:
        """Have something done in the turn of a user, behind what that user waits for; ``take`` or ``soon`` begins."""
        line = self._lines.get(uid)
        if line is None:
            self._forget_idle()
            line = self._lines[uid] = _Line(self._floor_s)
        if not line.works:  # A user who wanted nothing is not owed what others had meanwhile.
            line.used_s = max(line.used_s, self._floor_s)
            self._active[uid] = line
        line.works.append((work, size_bytes))
        line.size_bytes += size_bytes

    def soon(self) -> None:
        """Have the loop do what is due, piece by piece."""
        if not self._is_due:
            self._is_due = True
            self._later(self._due)

    def _due(self) -> None:
        self._is_due = False
        self.take()

    def charge(self, uid: int, spent_s: float) -> None:
        """Count processor time against a user that was spent for that user outside of a turn."""
        if (line := self._lines.get(uid)) is not None:
            line.used_s += spent_s

    def take(self) -> None:
        """Do the next piece, unless the loop is about to; it does the rest. To be called when all was sent, too."""
        if self._is_due or not self._active or self._is_blocked():
            return
        uid = min(self._active, key=self._used_s) if len(self._active) > 1 else next(iter(self._active))
        line = self._active[uid]
        self._floor_s = line.used_s
        work, size_bytes = line.works[0]
        before_s = self._spent_s()
        try:
            next(work)
        except StopIteration:
            line.works.popleft()
            line.size_bytes -= size_bytes
            if not line.works:
                self._active.pop(uid, None)
        line.used_s += self._spent_s() - before_s
        if self._active:
            self.soon()

    def _used_s(self, uid: int) -> float:
        return self._active[uid].used_s

    def clear(self) -> None:
        """Forget everything."""
        for line in self._lines.values():
            for work, _ in line.works:
                close = getattr(work, "close", None)
                if close is not None:
                    close()
        self._lines.clear()
        self._active.clear()

    def _forget_idle(self) -> None:
        if len(self._lines) >= LINES_MAX:
            idle = {uid: line for uid, line in self._lines.items() if not line.works}
            owing = sorted((uid for uid in idle if idle[uid].used_s > self._floor_s), key=lambda uid: idle[uid].used_s)
            for uid in idle.keys() - set(owing[LINES_MAX // 2 :]):
                del self._lines[uid]
