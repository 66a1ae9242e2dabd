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
from types import FrameType

from sysmond.base.model import Absence, Cause
from sysmond.sampler.source import Pieces, Reading, Source

RING_S = 0.25
RINGS_MAX = 6
LIMIT_S = RING_S * RINGS_MAX
SIGNALS = (signal.SIGALRM, signal.SIGXCPU)

INTERRUPTED = Absence(Cause.PROBE_FAILED, f"its reading took longer than {LIMIT_S:g} s, and was interrupted")
SPINNING = Absence(Cause.PROBE_FAILED, "its reading kept the processor busy for too long, and was interrupted")


class OverrunError(BaseException):
    """A reading took too long. It is no ``Exception``: a probe that catches those does not catch this."""


class TimeLimit:
    """The limit of every reading of one lane; made in the main thread, which alone is interrupted."""

    def __init__(self) -> None:
        """Listen to the timer and to the kernel's limit."""
        self._rings = 0
        self._is_reading = self._is_spinning = False
        signal.signal(signal.SIGALRM, self._ring)
        signal.signal(signal.SIGXCPU, self._spin)

    def __enter__(self) -> None:
        """Let the timer ring: a tick begins."""
        signal.setitimer(signal.ITIMER_REAL, RING_S, RING_S)

    def __exit__(self, *_: object) -> None:
        """Silence it until the next tick."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def read(self, source: Source) -> Reading | Pieces | Absence:
        """Read a source; INTERRUPTED or SPINNING where that took too long."""
        try:
            self._rings, self._is_spinning = 0, False
            self._is_reading = True
            reading = source.read()
            self._is_reading = False
        except OverrunError as overrun:
            self._is_reading = False
            source.failed(overrun)
            return SPINNING if self._is_spinning else INTERRUPTED
        return reading

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        self._rings += 1
        if self._is_reading and self._rings >= RINGS_MAX:
            raise OverrunError

    def _spin(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_reading:
            self._is_spinning = True
            raise OverrunError
