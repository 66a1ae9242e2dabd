# SPDX-License-Identifier: Apache-2.0
"""The bus part alone, over folders of a test's own, and a client that shares no code with it (jeepney)."""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, Message, MessageType, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from jeepney.wrappers import HeaderFields

from sysmond.bus.wire.names import BUS_NAME, MANAGER, OBJECT_PATH
from sysmond.machine.folders import Folders
from sysmond.plan import plan
from tests.support.onbus import Bus, busctl
from tests.support.waiting import wait_until

ANSWER_S = 60.0


class RefusedError(Exception):
    """An error over the bus: ``name`` is its last element."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name.rpartition(".")[2]
        self.text = text


class Client:
    """One connection; its signals wait until they are asked for."""

    def __init__(self, bus: Bus) -> None:
        self.connection: DBusConnection = open_dbus_connection(bus=bus.address, enable_fds=True)
        self._waiting: deque[Message] = deque()

    def call(
        self, member: str, signature: str = "", *body: Any, path: str = OBJECT_PATH, interface: str = MANAGER
    ) -> Any:
        """The answer: None, one value, or a tuple.

        :raises RefusedError: where it is an error.
        """
        where = DBusAddress(path, bus_name=BUS_NAME, interface=interface)
        message = new_method_call(where, member, signature or None, body)
        answer = self._answer(message)
        if answer.header.message_type is MessageType.error:
            raise RefusedError(answer.header.fields[HeaderFields.error_name], answer.body[0])
        return None if not answer.body else answer.body[0] if len(answer.body) == 1 else answer.body

    def send(self, member: str, signature: str = "", *body: Any) -> int:
        """Call a method of the manager without waiting for its answer; gives the number of the call."""
        where = DBusAddress(OBJECT_PATH, bus_name=BUS_NAME, interface=MANAGER)
        serial: int = next(self.connection.outgoing_serial)
        self.connection.send(new_method_call(where, member, signature or None, body), serial=serial)
        return serial

    def answer_serial(self, serial: int) -> int:
        """The number that the answer to a call has among all that its sender sent."""
        answer = self._answer_to(serial)
        assert answer.header.message_type is MessageType.method_return, answer.body
        return int(answer.header.serial)

    def _answer(self, message: Message) -> Message:
        """The answer to a call; what comes before it waits."""
        serial = next(self.connection.outgoing_serial)
        self.connection.send(message, serial=serial)
        return self._answer_to(serial)

    def _answer_to(self, serial: int) -> Message:
        while True:
            answer = self.connection.receive(timeout=ANSWER_S)
            if answer.header.fields.get(HeaderFields.reply_serial) == serial:
                return answer
            self._waiting.append(answer)

    def property(self, name: str) -> Any:
        """A property of the manager."""
        signature_and_value = self.call("Get", "ss", MANAGER, name, interface="org.freedesktop.DBus.Properties")
        return signature_and_value[1]

    def call_bus(self, member: str, signature: str, *body: Any) -> None:
        """Call a method of the bus itself."""
        where = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        answer = self._answer(new_method_call(where, member, signature, body))
        assert answer.header.message_type is MessageType.method_return

    def signal(self, path: str, timeout_s: float = ANSWER_S) -> tuple[str, tuple[Any, ...]]:
        """The next signal from an object: its name and body."""
        while True:
            message = self._waiting.popleft() if self._waiting else self.connection.receive(timeout=timeout_s)
            fields = message.header.fields
            if message.header.message_type is MessageType.signal and fields[HeaderFields.path] == path:
                return fields[HeaderFields.member], message.body

    def close(self) -> None:
        """Go."""
        self.connection.close()


# Who is not the bus's own user may connect, too.
ANYBODY = '<policy context="default"><allow user="*"/></policy>'
STRANGER = "daemon"


@contextmanager
def a_client(bus: Bus) -> Iterator[Client]:
    """Give a connection, and end it."""
    client = Client(bus)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def a_part(bus: Bus, folders: Folders, planned: plan.Plan | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run the bus part over these folders, as that of a user; no other part."""
    Path(f"{folders.runtime}/bus").mkdir(parents=True, exist_ok=True)
    plan.write(planned or plan.builtin(), f"{folders.runtime}/plan.json")
    command = [sys.executable, "-P", "-m", "sysmond", "--part", "bus", "--bus", bus.address, "--user"]
    part = subprocess.Popen([*command, "--state-dir", folders.state, "--runtime-dir", folders.runtime])
    try:
        wait_until(lambda: busctl(bus, "status", BUS_NAME).returncode == 0 or part.poll() is not None)
        assert part.poll() is None, "the bus part ended"
        yield part
    finally:
        part.terminate()
        part.wait(ANSWER_S)
