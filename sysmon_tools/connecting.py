# SPDX-License-Identifier: Apache-2.0
"""Which recorder is meant, and the client that reaches it: on a bus or not."""

import argparse
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sysmon_tools.client import Client, DirectClient, SnapshotClient
from sysmond.bus.wire import addresses
from sysmond.bus.wire.names import BUS_NAME
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine import recorders, snapshot_file
from sysmond.machine.folders import SYSTEM_RUNTIME, Folders

_T = TypeVar("_T")


@asynccontextmanager
async def connect(where: argparse.Namespace) -> AsyncIterator[Client]:
    """Reach the recorder that options mean: ``bus`` at an address, else of a user or the machine, by a bus or without.

    Whose it is, is decided as for those who read archives (``recorders``); without a bus that has it, it is asked
    directly.

    :raises Error: where there is none. :raises UsageError: for what is no address.
    """
    client = at_hand(where) or await _on_a_bus(where)
    try:
        yield client
    finally:
        await client.close()


def at_hand(where: argparse.Namespace) -> Client | None:
    """The recorder that options mean where no bus is to be asked, nor an event loop needed; None: a bus may have it.

    :raises Error: where there is none. :raises UsageError: for what is no address.
    """
    address: str | None = where.bus
    if address is not None and ":" not in address and address not in {"system", "session"}:
        raise UsageError(f"--bus {address!r}: not an address; expected unix:path=/run/dbus/system_bus_socket")
    is_named = (where.state_dir, where.runtime_dir) != (None, None)
    if address is not None and is_named:
        raise UsageError("--bus and a folder: expected only one of them")
    if address is not None:
        return None
    if where.state_dir is not None and snapshot_file.is_one(where.state_dir):
        return SnapshotClient(where.state_dir)
    place = _place(where)
    if is_named or not addresses.may_be_there(_bus_of(place)):
        return DirectClient(place, user=where.user)
    return None


def finished(work: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine gives that waits for nothing, without an event loop.

    :raises RuntimeError: where it waits.
    """
    try:
        work.send(None)
    except StopIteration as done:
        answer: _T = done.value
        return answer
    work.close()
    raise RuntimeError("it waits; expected that it does not")


def _place(where: argparse.Namespace) -> Folders:
    return recorders.asked(
        user=where.user, system=where.system, state_dir=where.state_dir, runtime_dir=where.runtime_dir
    )


def _bus_of(place: Folders) -> str:
    return "system" if place.runtime == SYSTEM_RUNTIME else "session"


async def _on_a_bus(where: argparse.Namespace) -> Client:
    """The recorder that is meant, on the bus that may have it, or else directly.

    :raises Error: saying that none runs, and of a bus that is there, that it is not on it.
    """
    from sysmon_tools.bus_client import BusClient  # noqa: PLC0415  asyncio and the D-Bus library

    if where.bus is not None:
        client = BusClient(where.bus if ":" in where.bus else f"{where.bus} bus")
        await client.connect(where.bus)
        return client
    place = _place(where)
    address = _bus_of(place)
    try:
        client = BusClient(f"{address} bus")
        await client.connect(address)
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
