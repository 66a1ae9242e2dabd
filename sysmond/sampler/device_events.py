# SPDX-License-Identifier: Apache-2.0
"""Devices that come, go and change, as the kernel announces them: ``DeviceEvents`` says of which subsystems.

Source: the kernel's ``lib/kobject_uevent.c``: datagrams of a netlink family, group 1, to which everybody may listen. So
hot-plug needs neither udev nor a bus. Events are gathered for a moment, since one device has many: a storm costs four
wake-ups a second. Standard library only.
"""

import errno
import socket
from collections.abc import Callable
from time import monotonic

from sysmond.sampler.sources import ALL

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
# From the first event of a device to the look for it, in which others come; and so many are read at a time.
GATHER_S = 0.25
EVENTS_MAX = 1024
EVENT_BYTES_MAX = 8192


class DeviceEvents:
    """Listens for as long as a lane runs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begin to listen; where that is refused, ``say`` so, and hear nothing."""
        self._look_s = 0.0
        self._socket: socket.socket | None = None
        listening = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT)
        try:
            listening.bind((0, KERNEL_GROUP))
            listening.settimeout(0)
        except OSError as refusal:
            listening.close()
            say(f"no events of devices: {refusal}; they are looked for once a minute")
        else:
            self._socket = listening

    def descriptors(self) -> list[int]:
        """What to wait on; nothing while events are gathered."""
        return [] if self._socket is None or self._look_s else [self._socket.fileno()]

    def wait_s(self, longest_s: float) -> float:
        """How long to wait at most: until it is time to look."""
        return min(longest_s, max(0.0, self._look_s - monotonic())) if self._look_s else longest_s

    def hear(self) -> None:
        """Something has come: gather what follows."""
        self._look_s = monotonic() + GATHER_S

    def changed(self) -> set[str]:
        """Of which subsystems anything changed, once it is time to look; ``ALL`` where events were lost."""
        if self._socket is None or not self._look_s or monotonic() < self._look_s:
            return set()
        self._look_s = 0.0
        subsystems: set[str] = set()
        for _ in range(EVENTS_MAX):
            try:
                message, _, _, _ = self._socket.recvmsg(EVENT_BYTES_MAX)
            except BlockingIOError:
                break
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise
                subsystems.add(ALL)
                continue
            if name := subsystem_of(message):
                subsystems.add(name)
        return subsystems

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            self._socket.close()


def subsystem_of(message: bytes) -> str:
    """The subsystem that an event of the kernel (``add@/devices/…``, then NAME=VALUE, each ended by NUL) names."""
    for field in message.split(b"\0")[1:]:
        if field.startswith(b"SUBSYSTEM="):
            return field[len(b"SUBSYSTEM=") :].decode("utf-8", "replace")
    return ""
