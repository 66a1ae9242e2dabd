# SPDX-License-Identifier: Apache-2.0
"""Devices that come, go and change, as the kernel announces them, links and addresses: of which subsystems and devices.

Source: the kernel's ``lib/kobject_uevent.c`` and rtnetlink(7): datagrams of two netlink families, to whose groups
everybody may listen. So hot-plug needs neither udev nor a bus. Events are gathered for a moment, since one device has
many: a storm costs four wake-ups a second. What is told of them waits longer (``device_groups``). Standard library
only.
"""

import errno
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.probe import ADDRESSES, LINKS
from sysmond.sampler.device_groups import ADDED, REMOVED, Announced, DeviceChange, DeviceGroups
from sysmond.sampler.sources import ALL

NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT = 0, 15
RTMGRP_LINK, KERNEL_GROUP = 1, 1
RTMGRP_ADDRESSES = 0x10 | 0x100  # Of IPv4 and IPv6; of routes the two below.
RTMGRP_ROUTES = 0x40 | 0x400
# Length, type, flags, sequence and port of a message; of a route then family and length of its destination.
_TYPE, _DESTINATION_LENGTH = slice(4, 6), 17
RTM_NEWROUTE, RTM_DELROUTE = 24, 25
# Routes to half of all addresses are what a VPN has instead of a default one. A router may change thousands of others.
DEFAULT_LENGTH_MAX = 1
_ACTIONS = {b"add": ADDED, b"remove": REMOVED}
# From the first event of a device to the look for it, in which others come; and so many are read at a time.
GATHER_S = 0.25
EVENTS_MAX = 1024
EVENT_BYTES_MAX = 8192
# Room for as many; who may not have it has that of any socket. It is memory only while something waits there.
SO_RCVBUFFORCE, ROOM_BYTES = 33, 1024 * 1024


def device_of(message: bytes) -> Announced:
    """What an event of the kernel (``add@/devices/…``, then NAME=VALUE, each ended by NUL) is about."""
    fields = dict(field.partition(b"=")[::2] for field in message.split(b"\0")[1:])
    subsystem, path = (fields.get(field, b"").decode("utf-8", "replace") for field in (b"SUBSYSTEM", b"DEVPATH"))
    number = fields.get(b"SEQNUM", b"")
    # A slash in a name is an exclamation mark in its path.
    return Announced(
        subsystem,
        _ACTIONS.get(fields.get(b"ACTION", b""), ""),
        path.rpartition("/")[2].replace("!", "/"),
        int(number) if number.isdigit() else 0,
        path,
    )


class MulticastGroup(NamedTuple):
    """Whom to listen to: a group of a family; what a message is about, and what may be meant where some are lost."""

    family: int
    group: int
    of: str
    about: Callable[[bytes], Announced]
    lost: str


def address_of(message: bytes) -> Announced:
    """Whether a message of rtnetlink, as the kernel multicasts it alone, is about an address or a default route."""
    kind = int.from_bytes(message[_TYPE], sys.byteorder)
    is_route = kind in {RTM_NEWROUTE, RTM_DELROUTE}
    if is_route and (len(message) <= _DESTINATION_LENGTH or message[_DESTINATION_LENGTH] > DEFAULT_LENGTH_MAX):
        return Announced("")
    return Announced(ADDRESSES)


# Of a link it is not read what became of it: the probe asks that for all links, once for all events.
GROUPS = (
    MulticastGroup(NETLINK_KOBJECT_UEVENT, KERNEL_GROUP, "devices", device_of, ALL),
    MulticastGroup(NETLINK_ROUTE, RTMGRP_LINK, "links", lambda _: Announced(LINKS), LINKS),
    MulticastGroup(NETLINK_ROUTE, RTMGRP_ADDRESSES | RTMGRP_ROUTES, "addresses", address_of, ADDRESSES),
)


class DeviceEvents:
    """Listens for as long as a lane runs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begin to listen; where that is refused, ``say`` so, and hear nothing."""
        self._came_and_went: list[Announced] = []
        self._groups = DeviceGroups()
        self._losses = Losses()
        self._look_s = 0.0
        self._heard_ns = 0
        self._listening: list[tuple[socket.socket, MulticastGroup]] = []
        for group in GROUPS:
            listening = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, group.family)
            try:
                with suppress(PermissionError):
                    listening.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES)
                listening.bind((0, group.group))
                listening.settimeout(0)
            except OSError as refusal:
                listening.close()
                say(f"no events of {group.of}: {refusal}; devices are looked for once a minute")
            else:
                self._listening.append((listening, group))

    def descriptors(self) -> list[int]:
        """What to wait on; nothing while events are gathered."""
        return [] if self._look_s else [listening.fileno() for listening, _ in self._listening]

    def wait_s(self, longest_s: float) -> float:
        """How long to wait at most: until it is time to look, or to tell."""
        look_s = self._look_s - monotonic() if self._look_s else longest_s
        due_ns = self._groups.due_ns()
        tell_s = (due_ns - clock.boottime_ns()) / SECOND_NS if due_ns else longest_s
        return max(0.0, min(longest_s, look_s, tell_s))

    def hear(self) -> None:
        """Something has come: gather what follows."""
        self._look_s, self._heard_ns = monotonic() + GATHER_S, clock.boottime_ns()

    def changed(self) -> set[str]:
        """Of which subsystems anything changed, once it is time to look; ``ALL`` where events of devices were lost."""
        if not self._look_s or monotonic() < self._look_s:
            return set()
        self._look_s = 0.0
        heard = [about for listening, group in self._listening for about in _heard(listening, group)]
        self._came_and_went = [about for about in heard if about.kind and about.name]
        self._losses.look(heard)
        return {about.subsystem for about in heard if about.subsystem}

    def take_in(self, subsystems: set[str]) -> None:
        """Have the last changes of these subsystems be events, each at the time when it was first heard of."""
        self._groups.add((about for about in self._came_and_went if about.subsystem in subsystems), self._heard_ns)

    def over(self) -> list[DeviceChange]:
        """The events whose time has come; of a storm but one."""
        return self._groups.over(clock.boottime_ns(), self._losses.take())

    def rest(self) -> list[DeviceChange]:
        """The events that still wait."""
        return self._groups.rest()

    def close(self) -> None:
        """Listen no more."""
        for listening, _ in self._listening:
            listening.close()


class Losses:
    """Counts what the kernel announced and nobody could hear, by its numbers. Pure."""

    def __init__(self) -> None:
        """Know of none."""
        self._number = self._lost = 0
        self._was_lossy = False

    def look(self, heard: Iterable[Announced]) -> None:
        """Take in what was heard; that something was lost is said before what was waiting then, so before the gap.

        Only then a gap is a loss: what the kernel announces in other network namespaces has numbers, too.
        """
        about_all = list(heard)
        is_lossy = any(about.subsystem == ALL for about in about_all)
        for about in about_all:
            if about.number:
                if (is_lossy or self._was_lossy) and self._number:
                    self._lost += max(0, about.number - self._number - 1)
                self._number = about.number
        if about_all:
            self._was_lossy = is_lossy

    def take(self) -> int:
        """How many that were since this was last asked."""
        lost, self._lost = self._lost, 0
        return lost


def _heard(listening: socket.socket, group: MulticastGroup) -> Iterator[Announced]:
    """Say of what is waiting what each is about."""
    for _ in range(EVENTS_MAX):
        try:
            message, _, _, _ = listening.recvmsg(EVENT_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as problem:
            if problem.errno != errno.ENOBUFS:
                raise
            yield Announced(group.lost)
            continue
        yield group.about(message)
