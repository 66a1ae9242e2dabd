# SPDX-License-Identifier: Apache-2.0
"""A service with callers in one process, driven into trouble: what the tests of the bus run with each library.

``python tests/support/bus_scenarios.py NAME ADDRESS PID`` plays one against the bus with this process id, and writes
what it counted as JSON.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from sysmond.bus.wire.adapter import Call, Connection, RemoteError
from sysmond.bus.wire.backlog import STATS
from sysmond.bus.wire.interface import CallContext, Interface, Signal, method
from sysmond.bus.wire.names import BUS_NAME, OBJECT_PATH
from sysmond.bus.wire.service import Service

if TYPE_CHECKING:
    from sysmond.bus.wire.caller import Caller

NAME = "org.example.Trouble"
TEXT = "x" * 1000
SIGNALS = 4000
TURN = 50
MUCH = "x" * 200_000
ASKED = 200
CROWD = 10
HANG_S = 30.0


class Trouble(Interface):
    """Sends signals to its subscribers."""

    NAME = NAME
    sent = Signal("number:u text:s")

    def __init__(self) -> None:
        """Nobody has asked."""
        self.callers: list[Caller] = []

    @method("", "")
    def begin(self, request: CallContext) -> None:
        """Be sent signals from now on."""
        if request.caller not in self.callers:
            self.callers.append(request.caller)

    @method("", "text:s")
    def much(self, request: CallContext) -> str:
        """Give a long text."""
        return MUCH


async def until(met: Callable[[], object]) -> None:
    """Wait until something is so, while the loop turns."""
    async with asyncio.timeout(HANG_S):
        while not met():  # noqa: ASYNC110  what is waited for happens elsewhere, too
            await asyncio.sleep(0.01)


class ServiceAndReader:
    """A service on the bus, and a caller that reads what it is sent."""

    def __init__(self, address: str, bus_pid: int) -> None:
        """Nothing is connected yet."""
        self.address = address
        self.bus_pid = bus_pid
        self.trouble = Trouble()
        self.service = Service(address, print, user=True)
        self.arrived = 0

    async def run(
        self, scenario: Callable[["ServiceAndReader", Connection], Awaitable[dict[str, int]]]
    ) -> dict[str, int]:
        """Connect, play, end."""
        self.service.export(OBJECT_PATH, self.trouble)
        ended = asyncio.Event()
        serving = asyncio.create_task(self.service.run(ended))
        reader = await Connection.connect(self.address, lambda call: call.reply("", []), self._count)
        await until(lambda: self.connection is not None)
        async with asyncio.timeout(HANG_S):
            while True:
                with suppress(Exception):
                    await reader.ask((BUS_NAME, OBJECT_PATH, NAME), "Begin")
                    break
        counts = await scenario(self, reader)
        ended.set()
        await serving
        reader.close()
        return counts

    @property
    def connection(self) -> Connection | None:
        """The service's own."""
        return self.service._connection

    def has_arrived(self, count: int) -> bool:
        """Whether so many signals came to the caller that reads."""
        return self.arrived >= count

    def _count(self, signal_: Call) -> None:
        self.arrived += signal_.interface == NAME


async def stopped(setup: ServiceAndReader, _reader: Connection) -> dict[str, int]:
    """The bus stops reading while signals are sent, then goes on."""
    connection = setup.connection
    assert connection is not None
    await _reader.ask(
        ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus"),
        "AddMatch",
        "s",
        [f"type='signal',interface='{NAME}'"],
    )
    os.kill(setup.bus_pid, signal.SIGSTOP)
    try:
        for number in range(SIGNALS):
            setup.service.emit(OBJECT_PATH, Trouble.sent, number, TEXT)
        counts = {"queued_bytes": connection.queued_bytes, "dropped": connection.dropped, "emitted": SIGNALS}
    finally:
        os.kill(setup.bus_pid, signal.SIGCONT)
    counts["sent"] = SIGNALS - counts["dropped"]
    await until(lambda: setup.arrived >= counts["sent"])
    return {**counts, "arrived": setup.arrived, "is_connected": int(setup.connection is connection)}


async def unread(setup: ServiceAndReader, _reader: Connection) -> dict[str, int]:
    """One caller reads nothing, another everything."""
    silent = open_dbus_connection(bus=setup.address)
    call = new_method_call(DBusAddress(OBJECT_PATH, BUS_NAME, NAME), "Begin")
    silent.send(call)
    await until(lambda: len(setup.trouble.callers) == 2)
    good, deaf = setup.trouble.callers
    account = setup.service.backlog
    assert account is not None
    most_bytes = 0
    for number in range(SIGNALS):
        for caller in (good, deaf):
            setup.service.emit(OBJECT_PATH, Trouble.sent, number, TEXT, to=caller)
        most_bytes = max(most_bytes, account.of(deaf.name))
        if number % TURN == 0:
            await until(partial(setup.has_arrived, number))
    await until(lambda: setup.arrived >= SIGNALS - good.dropped)
    counts = {"emitted": SIGNALS, "others": setup.arrived, "dropped": deaf.dropped, "sent_bytes": most_bytes}

    def is_sent_signals() -> bool:
        drain(silent)
        return setup.service.emit(OBJECT_PATH, Trouble.sent, 0, TEXT, to=deaf)

    await until(is_sent_signals)
    return counts


async def unanswered(setup: ServiceAndReader, reader: Connection) -> dict[str, int]:
    """One caller keeps asking for much and reads none of it, then everything; another asks, too."""
    account = setup.service.backlog
    assert account is not None
    deaf = open_dbus_connection(bus=setup.address)
    call = new_method_call(DBusAddress(OBJECT_PATH, BUS_NAME, NAME), "Much")
    most_bytes = others = 0
    for _ in range(ASKED):
        deaf.send(call)
        (text,) = await reader.ask((BUS_NAME, OBJECT_PATH, NAME), "Much")
        others += text == MUCH
        most_bytes = max(most_bytes, account.of(deaf.unique_name))
    kinds = Counter([(await asyncio.to_thread(deaf.receive)).header.message_type for _ in range(ASKED)])
    return {
        "others": others,
        "most_bytes": most_bytes,
        "answered": kinds[MessageType.method_return],
        "refused": kinds[MessageType.error],
    }


async def crowd(setup: ServiceAndReader, reader: Connection) -> dict[str, int]:
    """A user has many connections that ask for much and read none of it, then ends them."""
    call = new_method_call(DBusAddress(OBJECT_PATH, BUS_NAME, NAME), "Much")
    deaf = [open_dbus_connection(bus=setup.address) for _ in range(CROWD)]
    for _ in range(ASKED // CROWD):
        for connection in deaf:
            connection.send(call)
    callers = setup.service.callers
    assert callers is not None
    await until(lambda: sum(caller.calls for caller in callers.all()) >= ASKED)
    unread_bytes = 0
    for connection in deaf:
        (stats,) = await reader.ask(STATS, "GetConnectionStats", "s", [connection.unique_name])
        unread_bytes += stats["OutgoingBytes"].value
        connection.close()
    async with asyncio.timeout(HANG_S):
        while True:
            with suppress(RemoteError):
                await reader.ask((BUS_NAME, OBJECT_PATH, NAME), "Much")
                break
    return {"unread_bytes": unread_bytes}


def drain(connection: DBusConnection) -> None:
    """Read what is there, and answer nothing."""
    connection.sock.setblocking(False)
    with suppress(BlockingIOError):
        while connection.sock.recv(65536):
            pass
    connection.sock.setblocking(True)
    assert isinstance(connection.sock, socket.socket)


def main() -> int:
    """Play one."""
    name, address, pid = sys.argv[1:]
    scenarios = {"stopped": stopped, "unread": unread, "unanswered": unanswered, "crowd": crowd}
    sys.stdout.write(json.dumps(asyncio.run(ServiceAndReader(address, int(pid)).run(scenarios[name]))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
