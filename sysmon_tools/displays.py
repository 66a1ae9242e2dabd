# SPDX-License-Identifier: Apache-2.0
"""Which processes people see the machine through, whatever these are called: those that have a display.

logind knows to whom it gave the devices of a session, its display among them (``TakeControl``), and who leads a
session with a display. A server of Wayland answers at a socket, and the kernel says who that is. Anybody may ask both.
X servers that nobody started by logind are known by name only (``vital``): to connect to one may start another.

Source: org.freedesktop.login1(5), sd-login(3), unix(7) on SO_PEERCRED.
"""

import os
import re
import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from glob import glob

from sysmon_tools.asking_bus import asking
from sysmond.bus.wire.adapter import RemoteError
from sysmond.bus.wire.errors import UnavailableError
from sysmond.sources.sessions import FOLDER

RUNTIMES = "/run/user"
_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
_WITH_DISPLAY = frozenset({"x11", "wayland", "mir"})
_SESSION = re.compile(r"[A-Za-z0-9]+")
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group.


async def holders(sessions: str = FOLDER, runtimes: str = RUNTIMES) -> set[int]:
    """The processes that have a display, or lead a session that has one, as far as that can be learnt."""
    leaders, controllers = _of_sessions(sessions)
    of_sessions = {*leaders, *(await _on_bus(controllers) if controllers else ())}
    return {*of_sessions, *_listening(runtimes)} - {0}  # 0 is one outside of where we see processes.


def _of_sessions(folder: str) -> tuple[set[int], set[str]]:
    """Who leads a session with a display, and the names on the bus of those who have the devices of a session."""
    leaders: set[int] = set()
    controllers: set[str] = set()
    with suppress(OSError):
        for name in filter(_SESSION.fullmatch, os.listdir(folder)):
            with suppress(OSError), open(f"{folder}/{name}", encoding="utf-8", errors="replace") as file:
                says = dict(line.rstrip("\n").partition("=")[::2] for line in file)
                if says.get("TYPE") in _WITH_DISPLAY and says.get("LEADER", "").isdecimal():
                    leaders.add(int(says["LEADER"]))
                if controller := says.get("CONTROLLER"):
                    controllers.add(controller)
    return leaders, controllers


def _listening(runtimes: str) -> Iterator[int]:
    """Who answers at the sockets of Wayland that we may connect to, as the kernel says; nothing is said to them."""
    for path in glob(f"{runtimes}/*/wayland-*[0-9]"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
            client.connect(path)
            pid, _, _ = _CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            yield pid


async def _on_bus(names: Collection[str]) -> set[int]:
    """The processes that have these names on the system bus; those that have gone meanwhile have none."""
    pids: set[int] = set()
    with suppress(UnavailableError):
        async with asking("system") as bus:
            for name in names:
                with suppress(RemoteError):
                    (pid,) = await bus.ask(_BUS, "GetConnectionUnixProcessID", "s", [name])
                    pids.add(int(pid))
    return pids
