# SPDX-License-Identifier: Apache-2.0
"""A systemd for tests, as far as it is heard on a bus: it owns names and says what it is told to say.

``python systemd.py ADDRESS NAME…`` owns the names on that bus and writes ``there``. Each line of its standard input is
a JSON list, and acknowledged by ``done``:

- ``["signal", NAME, PATH, INTERFACE, MEMBER, SIGNATURE, BODY]`` is sent; after ``["to all"]`` to every connection by
  itself: no rule of whom to listen to keeps that from it.
- ``["answer", MEMBER, SIGNATURE, BODY]`` is what calls of that method are answered with from now on; ``"MEMBER PATH"``
  are those of one object.
- ``["release", NAME]`` gives a name up; ``["called"]`` is answered with all calls so far.

In a body ``{"as": SIGNATURE, "is": VALUE}`` is a variant, ``{"of": LIST}`` a struct.
"""

import json
import select
import sys
from contextlib import suppress
from typing import Any

from jeepney import DBusAddress, HeaderFields, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection


class Speaker:
    """Names on a bus, and what is said under them."""

    def __init__(self, address: str, *names: str) -> None:
        self._connection = open_dbus_connection(bus=address)
        for name in names:
            self._connection.send_and_get_reply(message_bus.RequestName(name))
        self._answers: dict[str, tuple[str, Any]] = {}
        self._called: list[str] = []
        self._is_to_all = False

    def serve(self) -> None:
        """Say what is told, until standard input ends."""
        while True:
            ready, _, _ = select.select([self._connection.sock, 0], [], [])
            if self._connection.sock in ready:
                with suppress(TimeoutError):
                    while True:
                        self._answer(self._connection.receive(timeout=0))
            if 0 in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                self._obey(json.loads(line))

    def _obey(self, told: list[Any]) -> None:
        said = "done"
        match told:
            case ["signal", name, path, interface, member, signature, body]:
                address = DBusAddress(path, name, interface)
                self._send(new_signal(address, member, signature, tuple(_values(body))))
            case ["to all"]:
                self._is_to_all = True
            case ["answer", member, signature, body]:
                self._answers[member] = signature, tuple(_values(body))
            case ["release", name]:
                self._connection.send_and_get_reply(message_bus.ReleaseName(name))
            case _:
                said = " ".join(self._called)
        say(said)

    def _send(self, signal: Any) -> None:
        if not self._is_to_all:
            self._connection.send(signal)
            return
        (names,) = self._connection.send_and_get_reply(message_bus.ListNames()).body
        for name in names:
            signal.header.fields[HeaderFields.destination] = name
            self._connection.send(signal)

    def _answer(self, message: Any) -> None:
        if message.header.message_type is not MessageType.method_call:
            return
        member = message.header.fields.get(HeaderFields.member)
        self._called.append(member)
        of_path = f"{member} {message.header.fields.get(HeaderFields.path)}"
        answer = self._answers.get(of_path, self._answers.get(member))
        if answer is not None:
            self._connection.send(new_method_return(message, *answer))
        else:
            self._connection.send(new_error(message, "org.freedesktop.DBus.Error.UnknownMethod"))


def _values(body: Any) -> Any:
    match body:
        case {"as": signature, "is": value}:
            return signature, _values(value)
        case {"of": list(items)}:
            return tuple(_values(item) for item in items)
        case dict():
            return {key: _values(value) for key, value in body.items()}
        case list():
            return [_values(value) for value in body]
        case _:
            return body


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    speaker = Speaker(*sys.argv[1:])
    say("there")
    speaker.serve()
