# SPDX-License-Identifier: Apache-2.0
"""A part that ends by itself: started every few minutes where the plan has work for it, and killed where it takes long.

Whatever becomes of it, it is not started sooner again. On an installed machine a timer does this.
Standard library only.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from sysmond.base.clock import SECOND_NS, boottime_ns
from sysmond.base.model import Lane
from sysmond.plan.plan import LANE_INTERVAL_MIN_NS, Plan
from sysmond.sampler import oneshot

# A machine that starts, or a daemon, has other things to do at first.
FIRST_S = 30.0
# Longer than that it hangs: what it reads has limits of its own.
TAKES_MAX_S = 270.0
END_S = 2.0
# Woken up just before a multiple of the interval, it would take that before for its own.
_BEHIND_S = 0.02
_NONE = 0


class Oneshot:
    """One such part, as a child of this process.

    ``due_s``: when there is something to do, by the monotonic clock, but for its end, which a signal tells.
    """

    def __init__(self, root: str, fork: Callable[[bool], int]) -> None:
        """``fork``: starts it, for the first time or again, and gives its process id, or raises OSError."""
        self._root = root
        self._fork = fork
        self._child = _NONE
        self._has_run = False
        self.due_s = time.monotonic() + FIRST_S

    def turn(self, plan: Plan) -> str:
        """Do what is due; gives why it ended, where that was not in order, or could not be started."""
        said = self._reap() if self._child else ""
        if time.monotonic() < self.due_s:
            return said
        self.due_s = self._next_s()
        if self._child:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            return ""  # Its end is told when it has ended; until then no other is started.
        if any(True for _ in oneshot.wanted(plan, self._root)):
            try:
                self._child = self._fork(self._has_run)
            except OSError as refusal:
                return f"not started: {refusal.strerror}"
            self._has_run = True
            self.due_s = time.monotonic() + TAKES_MAX_S
        return said

    def end(self) -> None:
        """Kill it: what it has not written yet is one tick."""
        if self._child:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            until_s = time.monotonic() + END_S
            while self._child and time.monotonic() < until_s:
                self._reap()
                time.sleep(0.01)

    def _reap(self) -> str:
        ended, status = os.waitpid(self._child, os.WNOHANG)
        if not ended:
            return ""
        self._child = _NONE
        self.due_s = self._next_s()
        code = os.waitstatus_to_exitcode(status)
        return (signal.Signals(-code).name if code < 0 else f"exit code {code}") if code else ""

    @staticmethod
    def _next_s() -> float:
        """The next multiple of the interval in boot time."""
        interval_ns = LANE_INTERVAL_MIN_NS[Lane.ONESHOT]
        return time.monotonic() + (interval_ns - boottime_ns() % interval_ns) / SECOND_NS + _BEHIND_S
