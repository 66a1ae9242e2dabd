# SPDX-License-Identifier: Apache-2.0
"""Waiting for what must come to be: for a condition, and never for a length of time."""

import time
from collections.abc import Callable

HANG_S = 120.0
"""Only against hanging for ever: nothing that is right takes as long, however busy the machine is."""

_PAUSE_S = 0.02


def wait_until(met: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so. ``why``: what there is to say where it never is."""
    limit_s = time.monotonic() + HANG_S
    while not met():
        assert time.monotonic() < limit_s, why()
        time.sleep(_PAUSE_S)
