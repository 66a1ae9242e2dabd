# SPDX-License-Identifier: Apache-2.0
"""A connection to a bus for whoever only asks there: calls of others are refused, their signals passed over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sysmond.bus.wire.adapter import Call, Connection


@asynccontextmanager
async def asking(address: str) -> AsyncIterator[Connection]:
    """Connect to ``system``, ``session``, or the bus at an address, as long as it is needed.

    :raises UnavailableError: where there is no bus, or it does not let us in.
    """
    connection = await Connection.connect(address, _refuse, _pass_over)
    ended = asyncio.create_task(connection.lost())  # It ends all questions when the bus is gone.
    try:
        yield connection
    finally:
        connection.close()
        await ended


def _refuse(call: Call) -> None:
    call.refuse("org.freedesktop.DBus.Error.UnknownMethod", "there is no service here")


def _pass_over(signalled: Call) -> None:
    del signalled
