# SPDX-License-Identifier: Apache-2.0
"""The names of signals by number (signal(7))."""

import signal
from functools import cache


@cache
def name(number: int) -> str:
    """The name of a signal; the number where it has none, and nothing for 0, which is none."""
    if not number:
        return ""
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def names() -> list[str]:
    """The names of all there are."""
    return [name(number) for number in range(1, signal.NSIG)]
