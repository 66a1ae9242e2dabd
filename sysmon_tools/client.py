# SPDX-License-Identifier: Apache-2.0
"""Clients of a recorder, on a bus or not: methods called by name, answers as plain values.

``bus_client`` has that of a bus, which needs an event loop and the D-Bus library; ``connecting`` says which is meant.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sysmond.base import clock
from sysmond.base.clock import Relation
from sysmond.bus.direct import Direct
from sysmond.bus.wire.errors import DBUS_ERROR, RefusedError, bus_error
from sysmond.bus.wire.names import BUS_NAME, ERROR, MANAGER, OBJECT_PATH
from sysmond.bus.wire.values import Variant
from sysmond.errors import BusyError, Error, NotPermittedError, TooMuchError, UsageError
from sysmond.machine.folders import Folders

OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
# What an error of the bus part, by its name, is here.
KINDS: dict[str, type[Error]] = {
    f"{ERROR}.InvalidArgument": UsageError,
    f"{ERROR}.NotFound": UsageError,
    f"{ERROR}.NotAuthorized": NotPermittedError,
    f"{ERROR}.Busy": BusyError,
    f"{ERROR}.TooMuch": TooMuchError,
    f"{DBUS_ERROR}.InvalidArgs": UsageError,
    f"{DBUS_ERROR}.AccessDenied": NotPermittedError,
}


class Client(ABC):
    """Speaks to one recorder."""

    is_on_bus = False

    def __init__(self, place: str) -> None:
        """``place`` says in messages where that is."""
        self._place = place

    def now(self) -> Relation:
        """Read the clocks from which relative times count."""
        return clock.relation()

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

    @abstractmethod
    async def close(self) -> None:
        """End what was begun."""

    async def has(self, name: str) -> bool:
        """Whether a name is on the bus, or would be started for whoever calls it: none where there is no bus.

        :raises Error: as ``call``.
        """
        del name
        return False

    async def lock(self, member: str, signature: str, *body: Any) -> int:  # noqa: ANN401  as ``call``
        """Call a method that gives a descriptor, which is the caller's from now on.

        :raises Error: as ``call``.
        """
        descriptor: int = await self.call(member, signature, *body)
        return descriptor

    @abstractmethod
    def signals(self, path: str, member: str) -> AsyncIterator[list[Any]]:
        """The signals of one name from one object, from now on.

        :raises Error: as ``call``, and when the recorder ends.
        """

    @abstractmethod
    async def _ask(self, where: tuple[str, str, str], member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401
        """Call a method: ``where`` is destination, path and interface."""


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
    return {name: Variant(signature, value) for name, (signature, value) in options.items()}


class DirectClient(Client):
    """Speaks to the recorder of a runtime folder without any bus, with the rights of whoever asks."""

    def __init__(self, place: Folders, *, user: bool) -> None:
        """:raises Error: where no recorder runs there."""
        super().__init__(place.runtime)
        self._recorder = Direct(place, user=user)

    async def signals(self, path: str, member: str) -> AsyncIterator[list[Any]]:
        """The events from now on; there are no other signals.

        :raises Error: when the recorder ends.
        """
        del path, member
        async for event in self._recorder.happened():
            yield event

    async def close(self) -> None:
        """End what was begun in this process."""
        await self._recorder.leave()

    async def _ask(self, where: tuple[str, str, str], member: str, signature: str = "", *body: Any) -> Any:  # noqa: ANN401
        del signature
        try:
            values = plain(await self._recorder.answer(*where[1:], member, list(body)))
        except RefusedError as refusal:
            name, text = bus_error(refusal)
            raise KINDS.get(name, Error)(text) from refusal
        return values[0] if len(values) == 1 else values


class SnapshotClient(Client):
    """Tells what happened in a snapshot; no recorder stands behind it."""

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
            raise Error(f"{self._place}: nothing new happens in a snapshot; 'sysmonctl events' shows what did happen")
        start_ns, end_ns, _ = body
        happened = self._archive.events(start_ns, end_ns)
        return [[event.time_ns, event.kind, event.subject, event.text] for event in happened]
