# SPDX-License-Identifier: Apache-2.0
"""A client of the bus part: a connection to a bus, on which calls, signals and descriptors go."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from sysmon_tools.client import KINDS, Client, plain
from sysmond.bus.wire.adapter import DBUS, DBUS_PATH, Call, Connection, RemoteError
from sysmond.bus.wire.errors import UnavailableError
from sysmond.bus.wire.names import BUS_NAME
from sysmond.bus.wire.outgoing import close_all
from sysmond.errors import Error

# Polkit may ask somebody for a password, and a flush waits for the disk.
ANSWER_S = 150.0
SIGNALS_MAX = 1000
# Of descriptors that nobody has asked for.
DESCRIPTORS_MAX = 64

_BUS = (DBUS, DBUS_PATH, DBUS)
_NO_SERVICE = {f"{DBUS}.Error.ServiceUnknown", f"{DBUS}.Error.NameHasNoOwner", f"{DBUS}.Error.NoReply"}


class BusClient(Client):
    """Speaks to one sysmond on a bus. Made inside a running event loop."""

    is_on_bus = True

    def __init__(self, place: str) -> None:
        """``place`` says in messages which bus it is."""
        super().__init__(place)
        self._connection: Connection | None = None
        self._signals: asyncio.Queue[Call | None] = asyncio.Queue(maxsize=SIGNALS_MAX)  # None: nothing more will come.
        self._closing: asyncio.Task[None] | None = None
        self._descriptors: deque[int] = deque()

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

    async def lock(self, member: str, signature: str, *body: Any) -> int:  # noqa: ANN401  as ``call``
        """Call a method that gives a descriptor, which is the caller's from now on.

        :raises Error: as ``call``.
        """
        await self.call(member, signature, *body)
        if not self._descriptors:
            raise Error(f"{self._place}: {member}: the bus passes no descriptors")
        return self._descriptors.popleft()

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
                raise Error(f"{self._place}: the bus has closed the connection")
            if (signal.path, signal.member) == (path, member):
                yield [plain(value) for value in signal.body]
            elif signal.member == "NameOwnerChanged" and signal.body[0] == BUS_NAME and not signal.body[2]:
                raise Error(f"{self._place}: sysmond has left the bus")

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
                raise Error(f"{self._place}: no sysmond there ({BUS_NAME}); 'sysmond --bus …' starts one") from refusal
            said = str(refusal).removeprefix(f"{refusal.name}: ")
            raise KINDS.get(refusal.name, Error)(" ".join(said.split())) from refusal
        except UnavailableError as refusal:
            raise Error(f"{self._place}: {refusal}") from refusal
        values = [plain(value) for value in answer]
        return values[0] if len(values) == 1 else values


def _not_for_us(call: Call) -> None:
    call.refuse(f"{DBUS}.Error.UnknownMethod", "there is no service here")
