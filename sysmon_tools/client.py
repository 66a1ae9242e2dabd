# SPDX-License-Identifier: Apache-2.0
"""A client of the bus part: methods called by name, answers as plain values, errors as those of the project."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from sysmond.bus.wire.adapter import DBUS, DBUS_PATH, Call, Connection, RemoteError, Variant, variant
from sysmond.bus.wire.errors import UnavailableError
from sysmond.bus.wire.names import BUS_NAME, ERROR, MANAGER, OBJECT_PATH
from sysmond.errors import BusyError, Error, NotPermittedError, TooMuchError, UsageError

# Polkit may ask somebody for a password, and a flush waits for the disk.
ANSWER_S = 150.0
SIGNALS_MAX = 1000
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"

_BUS = (DBUS, DBUS_PATH, DBUS)
_KINDS: dict[str, type[Error]] = {
    f"{ERROR}.InvalidArgument": UsageError,
    f"{ERROR}.NotFound": UsageError,
    f"{ERROR}.NotAuthorized": NotPermittedError,
    f"{ERROR}.Busy": BusyError,
    f"{ERROR}.TooMuch": TooMuchError,
    f"{DBUS}.Error.InvalidArgs": UsageError,
    f"{DBUS}.Error.AccessDenied": NotPermittedError,
}
_NO_SERVICE = {f"{DBUS}.Error.ServiceUnknown", f"{DBUS}.Error.NameHasNoOwner", f"{DBUS}.Error.NoReply"}


class Client:
    """Speaks to one sysmond on a bus."""

    def __init__(self, place: str) -> None:
        """``place`` says in messages which bus it is."""
        self._place = place
        self._connection: Connection | None = None
        self._signals: asyncio.Queue[Call | None] = asyncio.Queue(maxsize=SIGNALS_MAX)  # None: nothing more will come.
        self._closing: asyncio.Task[None] | None = None

    async def connect(self, address: str) -> None:
        """Connect to ``system``, ``session``, or the bus at an address.

        :raises Error: where there is no such bus.
        """
        try:
            self._connection = await Connection.connect(address, _not_for_us, self._enqueue)
        except UnavailableError as refusal:
            raise Error(f"{self._place}: no connection: {str(refusal).removeprefix(f'{address}: ')}") from refusal
        self._closing = asyncio.create_task(self._close_signals(self._connection))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()

    async def call(self, member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401  what D-Bus gives
        """Call a method of the Manager; one value is given as it is, several as a list.

        :raises Error: with the service's own line, of the class that its name stands for.
        """
        return await self._ask((BUS_NAME, OBJECT_PATH, MANAGER), member, signature, *body)

    async def objects(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Every object of the service with its interfaces and their properties.

        :raises Error: as ``call``.
        """
        objects: dict[str, dict[str, dict[str, Any]]] = await self._ask(
            (BUS_NAME, OBJECT_PATH, OBJECT_MANAGER), "GetManagedObjects"
        )
        return objects

    async def has(self, name: str) -> bool:
        """Whether a name is on the bus, or would be started for whoever calls it.

        :raises Error: as ``call``.
        """
        activatable: list[str] = await self._ask(_BUS, "ListActivatableNames")
        return name in activatable or bool(await self._ask(_BUS, "NameHasOwner", "s", name))

    async def signals(self, path: str, member: str) -> AsyncIterator[list[Any]]:
        """The signals of one name from one object, from now on.

        :raises Error: as ``call``, and when the service or the bus is gone.
        """
        for rule in (
            f"type='signal',sender='{BUS_NAME}',path='{path}',member='{member}'",
            f"type='signal',sender='{DBUS}',member='NameOwnerChanged',arg0='{BUS_NAME}'",
        ):
            await self._ask(_BUS, "AddMatch", "s", rule)
        while True:
            signal = await self._signals.get()
            if signal is None:
                raise Error(f"{self._place}: the bus is gone")
            if (signal.path, signal.member) == (path, member):
                yield [plain(value) for value in signal.body]
            elif signal.member == "NameOwnerChanged" and signal.body[0] == BUS_NAME and not signal.body[2]:
                raise Error(f"{self._place}: sysmond is gone")

    def _enqueue(self, signal: Call) -> None:
        with suppress(asyncio.QueueFull):
            self._signals.put_nowait(signal)

    async def _close_signals(self, connection: Connection) -> None:
        """Wait for the end of the connection, which answers all calls under way, and end the signals."""
        await connection.lost()
        await self._signals.put(None)

    async def _ask(self, where: tuple[str, str, str], member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401
        if self._connection is None:
            raise Error(f"{self._place}: not connected")
        try:
            answer = await self._connection.ask(
                where, member, signature, body, timeout_s=ANSWER_S, interactive=where[0] == BUS_NAME
            )
        except RemoteError as refusal:
            if refusal.name in _NO_SERVICE:
                raise Error(f"{self._place}: no sysmond there ({BUS_NAME}); 'sysmond --bus …' would be") from refusal
            said = str(refusal).removeprefix(f"{refusal.name}: ")
            raise _KINDS.get(refusal.name, Error)(" ".join(said.split())) from refusal
        except UnavailableError as refusal:
            raise Error(f"{self._place}: {refusal}") from refusal
        values = [plain(value) for value in answer]
        return values[0] if len(values) == 1 else values


def _not_for_us(call: Call) -> None:
    call.refuse(f"{DBUS}.Error.UnknownMethod", "there is no service here")


def plain(value: Any) -> Any:  # noqa: ANN401  what D-Bus gives
    """A value without the variants in it; structs are lists."""
    match value:
        case Variant():
            return plain(value.value)
        case dict():
            return {key: plain(member) for key, member in value.items()}
        case list() | tuple():
            return [plain(member) for member in value]
        case _:
            return value


def variants(options: Mapping[str, tuple[str, Any]]) -> dict[str, Variant]:
    """Options as D-Bus wants them: of each its signature and value."""
    return {name: variant(signature, value) for name, (signature, value) in options.items()}


@asynccontextmanager
async def connect(address: str | None, *, user: bool) -> AsyncIterator[Client]:
    """Connect to the bus at an address, the user's session bus, or the system bus.

    :raises Error: where there is no such bus. :raises UsageError: for what is no address.
    """
    if address is not None and ":" not in address and address not in {"system", "session"}:
        raise UsageError(f"--bus {address!r}: not an address; expected unix:path=/run/dbus/system_bus_socket")
    chosen = address or ("session" if user else "system")
    client = Client(f"{chosen} bus" if ":" not in chosen else chosen)
    await client.connect(chosen)
    try:
        yield client
    finally:
        client.close()
