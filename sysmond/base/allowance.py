# SPDX-License-Identifier: Apache-2.0
"""How often in a minute somebody may have something done: who asks too often is refused, nobody waits for him.

What the recorder's own parts and root ask for is bounded by its kind, what anybody else asks for by his uid as well.
Pure. Standard library only.
"""

from collections import deque

from sysmond.errors import TooMuchError

SPAN_S = 60.0
PER_USER_MAX = 10
PER_KIND_MAX = 120
# Kinds and users that are kept apart; what comes beyond shares one allowance.
KEYS_MAX = 256
_OTHERS = ("others", -1)


class Allowance:
    """Counts by kind and uid over the last minute."""

    def __init__(self) -> None:
        """Nobody has asked for anything."""
        self._times: dict[tuple[str, int], deque[float]] = {}

    def take(self, kind: str, uid: int, now_s: float) -> None:
        """Take one; ``uid``: on whose behalf, 0 for root and for our own parts.

        :raises TooMuchError: where there is none left.
        """
        key = (kind, uid)
        if key not in self._times and len(self._times) >= KEYS_MAX:
            self._times = {who: times for who, times in self._times.items() if now_s - times[-1] < SPAN_S}
            key = key if len(self._times) < KEYS_MAX else _OTHERS
        most = PER_USER_MAX if uid else PER_KIND_MAX
        times = self._times.setdefault(key, deque())
        while times and now_s - times[0] >= SPAN_S:
            times.popleft()
        if len(times) >= most:
            whose = f" of uid {uid}" if uid else ""
            raise TooMuchError(f"{kind}: {most}{whose} within a minute; try again later")
        times.append(now_s)
