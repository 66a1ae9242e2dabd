# SPDX-License-Identifier: Apache-2.0
"""Waiting for what must come to be: for a condition, and never for a length of time."""

import time
from collections.abc import Callable

from sysmond.base.clock import SECOND_NS

HANG_S = 300.0
"""Only against hanging for ever: nothing that is right takes as long, however busy the machine is."""

_PAUSE_S = 0.02


def wait_until(met: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so. ``why``: what there is to say where it never is."""
    limit_s = time.monotonic() + HANG_S
    while not met():
        assert time.monotonic() < limit_s, why()
        time.sleep(_PAUSE_S)


def let_ticks_pass(ticks: int) -> None:
    """Wait until so many whole ticks of a second have gone by in which nobody recorded: the gap is as long."""
    next_ns = -time.clock_gettime_ns(time.CLOCK_BOOTTIME) // SECOND_NS * -SECOND_NS
    wait_until(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) > next_ns + ticks * SECOND_NS)
