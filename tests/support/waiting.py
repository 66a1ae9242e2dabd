# SPDX-License-Identifier: Apache-2.0
"""Waiting for what must come to be: for a condition, and never for a length of time."""

import time
from collections.abc import Callable

from sysmond.base.clock import SECOND_NS

HANG_S = 300.0
"""Only against hanging for ever: nothing that is right takes as long, however busy the machine is."""

_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.5
# A look at all that is recorded, or one by another program, would else keep a processor busy from which others wait.
_PAUSE_PER_LOOK = 4


def wait_until(met: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so. ``why``: what there is to say where it never is."""
    looked_s = time.monotonic()
    limit_s = looked_s + HANG_S
    while not met():
        now_s = time.monotonic()
        assert now_s < limit_s, why()
        time.sleep(min(_PAUSE_MAX_S, max(_PAUSE_S, _PAUSE_PER_LOOK * (now_s - looked_s))))
        looked_s = time.monotonic()


def let_ticks_pass(ticks: int) -> None:
    """Wait until so many whole ticks of a second have gone by in which nobody recorded: the gap is as long."""
    next_ns = -time.clock_gettime_ns(time.CLOCK_BOOTTIME) // SECOND_NS * -SECOND_NS
    wait_until(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) > next_ns + ticks * SECOND_NS)
