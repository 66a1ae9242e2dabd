# SPDX-License-Identifier: Apache-2.0
"""Telling the service manager how a process fares, as sd_notify(3) specifies; without one, nothing happens.

Standard library only.
"""

import os
import socket
from contextlib import suppress

READY = "READY=1"
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
