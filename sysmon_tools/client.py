# SPDX-License-Identifier: Apache-2.0
"""A client of the bus part: methods called by name, answers as plain values, errors as those of the project."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.unpack import unpack_variants

from sysmond.bus.names import BUS_NAME, ERROR, MANAGER, OBJECT_PATH
from sysmond.errors import BusyError, Error, NotPermittedError, UsageError

# Polkit may ask somebody for a password, and a flush waits for the disk.
ANSWER_S = 150.0
CONNECT_S = 10.0
PROPERTIES = "org.freedesktop.DBus.Properties"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
_ALLOW_INTERACTIVE = 0x4

_KINDS: dict[str, type[Error]] = {
    f"{ERROR}.InvalidArgument": UsageError,
    f"{ERROR}.NotFound": UsageError,
    f"{ERROR}.NotAuthorized": NotPermittedError,
    f"{ERROR}.Busy": BusyError,
    "org.freedesktop.DBus.Error.InvalidArgs": UsageError,
    "org.freedesktop.DBus.Error.AccessDenied": NotPermittedError,
}
_NOBODY = {
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.NoReply",
}


class Client:
    """Speaks to one sysmond on a bus."""

    def __init__(self, bus: MessageBus, place: str) -> None:
        """Use a connection; ``place`` says in messages which bus it is."""
        self._bus = bus
        self._place = place

    async def call(self, member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401  what D-Bus gives
        """Call a method of the Manager; one value is given as it is, several as a list.

        :raises Error: with the service's own line, of the class that its name stands for.
        """
        return await self.call_at(OBJECT_PATH, MANAGER, member, signature, *body)

    async def call_at(self, path: str, interface: str, member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401
        """Call a method of any object of the service.

        :raises Error: as ``call``.
        """
        reply = await self._send(BUS_NAME, path, interface, member, signature, body)
        values = [unpack_variants(value) for value in reply.body]
        return values[0] if len(values) == 1 else values

    async def objects(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Every object of the service with its interfaces and their properties."""
        found: dict[str, dict[str, dict[str, Any]]] = await self.call_at(
            OBJECT_PATH, OBJECT_MANAGER, "GetManagedObjects"
        )
        return found

    async def signals(self, path: str, member: str) -> AsyncIterator[list[Any]]:
        """The signals of one name from one object, from now on, until the service or the bus is gone."""
        arrived: asyncio.Queue[list[Any] | None] = asyncio.Queue(maxsize=1000)

        def hear(message: Message) -> None:
            with suppress(asyncio.QueueFull):
                if message.message_type is MessageType.SIGNAL and (message.path, message.member) == (path, member):
                    arrived.put_nowait([unpack_variants(value) for value in message.body])
                elif message.member == "NameOwnerChanged" and message.body[0] == BUS_NAME and not message.body[2]:
                    arrived.put_nowait(None)

        rules = (
            f"type='signal',sender='{BUS_NAME}',path='{path}',member='{member}'",
            f"type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{BUS_NAME}'",
        )
        self._bus.add_message_handler(hear)
        for rule in rules:
            await self._send(_BUS, "/org/freedesktop/DBus", _BUS, "AddMatch", "s", (rule,))
        while (body := await arrived.get()) is not None:
            yield body

    async def _send(
        self, destination: str, path: str, interface: str, member: str, signature: str, body: Sequence[Any]
    ) -> Message:
        message = Message(
            destination=destination, path=path, interface=interface, member=member, signature=signature, body=list(body)
        )
        message.flags |= _ALLOW_INTERACTIVE
        try:
            reply = await asyncio.wait_for(self._bus.call(message), ANSWER_S)
        except TimeoutError as late:
            raise Error(f"{self._place}: no answer within {ANSWER_S:g} s") from late
        except (OSError, EOFError) as gone:
            raise Error(f"{self._place}: the connection is gone: {gone}") from gone
        if reply is None:
            raise Error(f"{self._place}: no answer")
        if reply.message_type is MessageType.ERROR:
            raise self._refusal(reply)
        return reply

    def _refusal(self, reply: Message) -> Error:
        name = str(reply.error_name)
        said = " ".join(str(reply.body[0]).split()) if reply.body else name
        if name in _NOBODY:
            return Error(f"{self._place}: no sysmond there ({BUS_NAME}); 'sysmond --bus …' would be")
        return _KINDS.get(name, Error)(said)


_BUS = "org.freedesktop.DBus"


def variants(**options: tuple[str, Any]) -> dict[str, Variant]:
    """Options as D-Bus wants them: name to signature and value."""
    return {name: Variant(signature, value) for name, (signature, value) in options.items()}


@asynccontextmanager
async def connect(address: str | None, *, user: bool) -> AsyncIterator[Client]:
    """Connect to the bus at an address, the user's session bus, or the system bus.

    :raises Error: where there is no such bus. :raises UsageError: for what is no address.
    """
    place = address or ("session bus" if user else "system bus")
    try:
        bus = MessageBus(bus_address=address, bus_type=BusType.SESSION if user else BusType.SYSTEM)
    except Exception as wrong:
        raise UsageError(f"--bus {place!r}: not an address; unix:path=/run/dbus/system_bus_socket is right") from wrong
    try:
        await asyncio.wait_for(bus.connect(), CONNECT_S)
    except Exception as refusal:
        raise Error(f"{place}: no connection: {' '.join(str(refusal).split()) or type(refusal).__name__}") from refusal
    try:
        yield Client(bus, place)
    finally:
        bus.disconnect()
