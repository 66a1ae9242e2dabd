# SPDX-License-Identifier: Apache-2.0
"""A client of the bus part, or of a recorder that is on no bus: methods called by name, answers as plain values."""

import argparse
import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sysmond.base import clock
from sysmond.base.clock import Relation
from sysmond.bus.direct import Direct
from sysmond.bus.wire.adapter import DBUS, DBUS_PATH, Call, Connection, RemoteError, Variant, variant
from sysmond.bus.wire.errors import RefusedError, UnavailableError, bus_error
from sysmond.bus.wire.names import BUS_NAME, ERROR, MANAGER, OBJECT_PATH
from sysmond.bus.wire.outgoing import close_all
from sysmond.errors import BusyError, Error, NotPermittedError, TooMuchError, UsageError
from sysmond.machine import recorders, snapshot_file
from sysmond.machine.folders import SYSTEM_RUNTIME, Folders

# Polkit may ask somebody for a password, and a flush waits for the disk.
ANSWER_S = 150.0
SIGNALS_MAX = 1000
# Of descriptors that nobody has asked for.
DESCRIPTORS_MAX = 64
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

    is_on_bus = True

    def __init__(self, place: str) -> None:
        """``place`` says in messages which bus it is."""
        self._place = place
        self._connection: Connection | None = None
        self._signals: asyncio.Queue[Call | None] = asyncio.Queue(maxsize=SIGNALS_MAX)  # None: nothing more will come.
        self._closing: asyncio.Task[None] | None = None
        self._descriptors: deque[int] = deque()

    def now(self) -> Relation:
        """Read the clocks from which relative times count."""
        return clock.relation()

    async def connect(self, address: str) -> None:
        """Connect to ``system``, ``session``, or the bus at an address.

        :raises Error: where there is no such bus.
        """
        try:
            self._connection = await Connection.connect(address, _not_for_us, self._enqueue, self._keep)
        except UnavailableError as refusal:
            raise Error(f"{self._place}: no connection: {str(refusal).removeprefix(f'{address}: ')}") from refusal
        self._closing = asyncio.create_task(self._close_signals(self._connection))

    async def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
        close_all(self._descriptors)

    async def call(self, member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401  what D-Bus gives
        """Call a method of the Manager; one value is given as it is, several as a list.

        :raises Error: with the service's own line, of the class that its name stands for.
        """
        return await self._ask((BUS_NAME, OBJECT_PATH, MANAGER), member, signature, *body)

    async def lock(self, member: str, signature: str, *body: Any) -> int:  # noqa: ANN401  as ``call``
        """Call a method that gives a descriptor, which is the caller's from now on.

        :raises Error: as ``call``.
        """
        await self.call(member, signature, *body)
        if not self._descriptors:
            raise Error(f"{self._place}: {member}: the bus passes no descriptors")
        return self._descriptors.popleft()

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

    def _keep(self, descriptors: Sequence[int]) -> None:
        room = DESCRIPTORS_MAX - len(self._descriptors)
        self._descriptors += descriptors[:room]
        close_all(descriptors[room:])

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


class DirectClient(Client):
    """Speaks to the recorder of a runtime folder without any bus, with the rights of whoever asks."""

    is_on_bus = False

    def __init__(self, place: Folders, *, user: bool) -> None:
        """:raises Error: where no recorder runs there."""
        super().__init__(place.runtime)
        self._recorder = Direct(place, user=user)

    async def has(self, name: str) -> bool:
        """No name is on a bus that there is not."""
        del name
        return False

    async def signals(self, path: str, member: str) -> AsyncIterator[list[Any]]:
        """The events from now on; there are no other signals.

        :raises Error: when the recorder ends.
        """
        del path, member
        async for event in self._recorder.happened():
            yield event

    async def lock(self, member: str, signature: str, *body: Any) -> int:  # noqa: ANN401  as ``call``
        """Its descriptor: nothing had to be passed."""
        descriptor: int = await self.call(member, signature, *body)
        return descriptor

    async def close(self) -> None:
        """End what was begun in this process."""
        await self._recorder.leave()

    async def _ask(self, where: tuple[str, str, str], member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401
        del signature
        try:
            values = plain(await self._recorder.answer(*where[1:], member, list(body)))
        except RefusedError as refusal:
            name, text = bus_error(refusal)
            raise _KINDS.get(name, Error)(text) from refusal
        return values[0] if len(values) == 1 else values


class SnapshotClient(Client):
    """Tells what happened in a snapshot; no recorder stands behind it."""

    is_on_bus = False

    def __init__(self, file: str) -> None:
        """:raises Error: where it cannot be read."""
        from sysmond import history  # noqa: PLC0415  numpy: most ask a recorder

        super().__init__(file)
        self._archive = history.open(state_dir=file)

    def now(self) -> Relation:
        """Read the clocks: now is its end."""
        return self._archive.now()

    async def signals(self, path: str, member: str) -> AsyncIterator[list[Any]]:
        """None.

        :raises Error: always.
        """
        for signal in await self._ask(("", path, ""), member):
            yield signal

    async def close(self) -> None:
        """Nothing was begun."""

    async def _ask(self, where: tuple[str, str, str], member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401
        del where, signature
        if member != "GetEvents":
            raise Error(f"{self._place}: a snapshot, which ends; 'sysmonctl events' tells what happened in it")
        start_ns, end_ns, _ = body
        happened = self._archive.events(start_ns, end_ns)
        return [[event.time_ns, event.kind, event.subject, event.text] for event in happened]


@asynccontextmanager
async def connect(where: argparse.Namespace) -> AsyncIterator[Client]:
    """Reach the recorder that options mean: ``bus`` at an address, else of a user or the machine, by a bus or without.

    Whose it is, is decided as for those who read archives (``recorders``); without a bus that has it, it is asked
    directly.

    :raises Error: where there is none. :raises UsageError: for what is no address.
    """
    address: str | None = where.bus
    if address is not None and ":" not in address and address not in {"system", "session"}:
        raise UsageError(f"--bus {address!r}: not an address; expected unix:path=/run/dbus/system_bus_socket")
    folders = where.state_dir, where.runtime_dir
    if address is not None and folders != (None, None):
        raise UsageError("--bus and a folder: expected only one of them")
    if address is not None:
        client = await _on_bus(address)
    else:
        client = await _search(where)
    try:
        yield client
    finally:
        await client.close()


async def _on_bus(address: str) -> Client:
    client = Client(f"{address} bus" if ":" not in address else address)
    await client.connect(address)
    return client


async def _search(where: argparse.Namespace) -> Client:
    """The recorder that is meant, on its bus or directly.

    :raises Error: saying that none runs, and of a bus that is there, that it is not on it.
    """
    if where.state_dir is not None and snapshot_file.is_one(where.state_dir):
        return SnapshotClient(where.state_dir)
    is_named = (where.state_dir, where.runtime_dir) != (None, None)
    place = recorders.asked(
        user=where.user, system=where.system, state_dir=where.state_dir, runtime_dir=where.runtime_dir
    )
    if is_named:
        return DirectClient(place, user=where.user)
    address = "system" if place.runtime == SYSTEM_RUNTIME else "session"
    try:
        client = await _on_bus(address)
        if await client.has(BUS_NAME):
            return client
        await client.close()
        absence = f"{address} bus: no sysmond there ({BUS_NAME}); "
    except Error:  # Where there is no bus, a recorder runs without.
        absence = ""
    try:
        return DirectClient(place, user=where.user)
    except NotPermittedError:
        raise
    except Error as nobody:
        raise Error(f"{absence}{nobody}") from nobody
