# SPDX-License-Identifier: Apache-2.0
"""Telling the service manager how a process fares, as sd_notify(3) specifies; without one, nothing happens.

Standard library only.
"""

import os
import socket
from contextlib import suppress

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
_VARIABLE = "NOTIFY_SOCKET"


def notify(*states: str) -> None:
    """Tell it these states, each as ``NAME=value``, if it wants to know; never waits."""
    address = os.environ.get(_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # An abstract name begins with a zero instead.
        address = f"\0{address[1:]}"
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as caller,
    ):
        caller.sendto("\n".join(states).encode(), address)


def watchdog_s() -> float:
    """How often it wants to hear ``WATCHDOG=1`` from this process at least; 0 where it does not care."""
    limit_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    is_ours = _VARIABLE in os.environ and pid in {"", str(os.getpid())}
    return int(limit_us) / 1e6 if is_ours and limit_us.isdigit() else 0.0
