# SPDX-License-Identifier: Apache-2.0
"""Orders to the other parts, without blocking while they answer."""

import json
import socket

from sysmond.bus.wire.errors import LimitError, NotAuthorizedError, RefusedError, UnavailableError
from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.machine.control import MESSAGE_BYTES_MAX, SOCKET_NAME, Order
from sysmond.machine.folders import Folders, socket_address

ANSWER_S = 30.0
WHO_MAY = "no permission; expected root, or the user that it runs as"


async def ask(folders: Folders, part: str, order: Order, timeout_s: float = ANSWER_S) -> Order:
    """Send an order to a part and give its answer.

    :raises UnavailableError: where it does not answer. :raises RefusedError: where its answer is an error.
    :raises NotAuthorizedError: where we may not ask.
    :raises LimitError: where that is asked for too often.
    """
    import asyncio  # noqa: PLC0415  who only looks asks no other part

    loop = asyncio.get_running_loop()
    folder = f"{folders.runtime}/{part}"
    kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    try:
        async with asyncio.timeout(timeout_s):
            with socket.socket(socket.AF_UNIX, kind) as connection:
                with socket_address(folder, SOCKET_NAME) as address:
                    connection.connect(address)  # To a local socket at once, or not at all.
                await loop.sock_sendall(connection, json.dumps(order).encode())
                answer = note.parse(await loop.sock_recv(connection, MESSAGE_BYTES_MAX), note.fields)
    except TimeoutError as silence:
        raise UnavailableError(f"{part}: no answer within {timeout_s:.0f} s") from silence
    except PermissionError as prohibition:
        raise NotAuthorizedError(f"{part}: {WHO_MAY}") from prohibition
    except OSError as failure:
        raise UnavailableError(f"{part}: no answer: {failure.strerror or failure}") from failure
    except CorruptError as damage:
        raise UnavailableError(f"{part}: no answer: {damage}") from damage
    if "error" in answer:
        refusal = LimitError if answer.get("too_much") else RefusedError
        raise refusal(f"{part}: {answer['error']}")
    return answer
