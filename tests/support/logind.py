# SPDX-License-Identifier: Apache-2.0
"""A logind for tests: takes delay locks as the real one does, and puts a suspend off until they are released.

``python logind.py ADDRESS`` owns the name on that bus. At a line ``suspend`` on its standard input it announces a
suspend; it writes ``asleep`` when all locks are released, and ``awake`` when it has announced the end. ``locked`` says
that a lock was taken. Further arguments are properties that it tells, as ``IdleHint b 1``.
"""

import os
import select
import sys
from contextlib import suppress
from typing import Any

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

NAME = "org.freedesktop.login1"
MANAGER = DBusAddress("/org/freedesktop/login1", NAME, f"{NAME}.Manager")
GIVE_UP_S = 60.0


class Logind:
    """The name on a bus, and the locks."""

    def __init__(self, address: str, *properties: str) -> None:
        self._connection = open_dbus_connection(bus=address, enable_fds=True)
        self._connection.send_and_get_reply(message_bus.RequestName(NAME))
        self._locks: list[int] = []
        self._properties = {
            name: (kind, bool(int(value)) if kind == "b" else int(value))
            for name, kind, value in (words.split() for words in properties)
        }

    def serve(self) -> None:
        """Answer and suspend as told, until standard input ends."""
        while True:
            ready, _, _ = select.select([self._connection.sock, 0, *self._locks], [], [])
            if self._connection.sock in ready:
                with suppress(TimeoutError):  # What was read with the last message makes nothing readable.
                    while True:
                        self._answer(self._connection.receive(timeout=0))
            for lock in set(self._locks) & set(ready):
                self._locks.remove(lock)
                os.close(lock)
            if 0 in ready:
                if not sys.stdin.readline():
                    return
                self._suspend()

    def _answer(self, message: Any) -> None:
        if message.header.message_type is MessageType.method_call:
            if message.header.fields.get(HeaderFields.member) == "Inhibit":
                reading, writing = os.pipe()
                self._locks.append(reading)
                self._connection.send(new_method_return(message, "h", (writing,)))
                os.close(writing)
                say("locked")
            elif message.header.fields.get(HeaderFields.member) == "Get":
                self._connection.send(new_method_return(message, "v", (self._properties[message.body[1]],)))
            else:
                self._connection.send(new_method_return(message))

    def _suspend(self) -> None:
        self._connection.send(new_signal(MANAGER, "PrepareForSleep", "b", (True,)))
        while self._locks:
            ready, _, _ = select.select(self._locks, [], [], GIVE_UP_S)
            for lock in ready:
                self._locks.remove(lock)
                os.close(lock)
        say("asleep")
        self._connection.send(new_signal(MANAGER, "PrepareForSleep", "b", (False,)))
        say("awake")


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logind = Logind(*sys.argv[1:])
    say("there") if sys.argv[2:] else None
    logind.serve()
