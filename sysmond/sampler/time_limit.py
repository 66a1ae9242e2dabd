# SPDX-License-Identifier: Apache-2.0
"""The time limit of a reading on the real-time lane: one that takes longer is interrupted, where that is possible.

While a tick is read, a timer rings (setitimer(2)); a reading that hears it ``RINGS_MAX`` times is interrupted by an
exception. Rings are counted, not time: a process that was stopped or starved, or whose machine stood still, hears one
ring afterwards however long that took, and no probe is to blame for it. A reading that spins under real-time
scheduling meets the kernel's own limit first (SIGXCPU; RLIMIT_RTTIME, getrlimit(2)).

What does not return from C or from the kernel hears nothing: the daemon kills its lane (``daemon.heartbeat``).
Standard library only.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sysmond.base.model import Absence, Cause

RING_S = 0.25
RINGS_MAX = 6
LIMIT_S = RING_S * RINGS_MAX
SIGNALS = (signal.SIGALRM, signal.SIGXCPU)

INTERRUPTED = Absence(Cause.PROBE_FAILED, f"reading it took longer than {LIMIT_S:g} s and was interrupted")
SPINNING = Absence(Cause.PROBE_FAILED, "reading it kept the processor busy for too long and was interrupted")


class OverrunError(BaseException):
    """A reading took too long. It is no ``Exception``: a probe that catches those does not catch this.

    ``absence``: what its table has instead.
    """

    def __init__(self, absence: Absence) -> None:
        super().__init__(absence.detail)
        self.absence = absence


class TimeLimit:
    """The limit of every reading of one lane; made in the main thread, which alone is interrupted."""

    def __init__(self) -> None:
        """Listen to the timer and to the kernel's limit."""
        self._rings = 0
        self._is_reading = False
        signal.signal(signal.SIGALRM, self._ring)
        signal.signal(signal.SIGXCPU, self._spin)

    def __enter__(self) -> None:
        """Let the timer ring: a tick begins."""
        signal.setitimer(signal.ITIMER_REAL, RING_S, RING_S)

    def __exit__(self, *_: object) -> None:
        """Silence it until the next tick."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Limit one reading, which happens in here.

        :raises OverrunError: where it took too long.
        """
        try:
            self._rings = 0
            self._is_reading = True
            yield
            self._is_reading = False  # Below alone, an interruption that comes just before it would leave this set.
        finally:
            self._is_reading = False

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        self._rings += 1
        if self._is_reading and self._rings >= RINGS_MAX:
            raise OverrunError(INTERRUPTED)

    def _spin(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_reading:
            raise OverrunError(SPINNING)
