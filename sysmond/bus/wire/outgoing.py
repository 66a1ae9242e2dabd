# SPDX-License-Identifier: Apache-2.0
"""Messages to a bus, written as fast as it reads them; what waits meanwhile is bounded, and what is dropped counted."""

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

# What waits for a bus that does not read: signals give way first, so that answers get through.
SIGNAL_QUEUE_BYTES_MAX = 1024 * 1024
QUEUE_BYTES_MAX = 8 * 1024 * 1024


class Outgoing:
    """What was sent and is not with the bus yet. Descriptors that are given belong to it, which closes them."""

    def __init__(
        self, connection: socket.socket, failed: Callable[[OSError], None], written: Callable[[], None]
    ) -> None:
        """``connection``: not blocking. ``failed``: told once it takes nothing any more.

        ``written``: told when all is with the bus that had to wait.
        """
        self._socket = connection
        self._failed = failed
        self._written = written
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[memoryview, list[int]]] = deque()
        self._is_waiting = False
        self._is_closed = False
        self.queued_bytes = 0
        self.dropped = 0

    def put(self, content: bytes | bytearray, descriptors: Iterable[int], *, is_signal: bool) -> int:
        """Send as soon as the socket takes it, and give its length; what finds no room is dropped: 0."""
        room = SIGNAL_QUEUE_BYTES_MAX if is_signal else QUEUE_BYTES_MAX
        if self._is_closed or (self.queued_bytes and self.queued_bytes + len(content) > room):
            self.dropped += 1
            close_all(descriptors)
            return 0
        self._queue.append((memoryview(content), list(descriptors)))
        self.queued_bytes += len(content)
        if not self._is_waiting:
            self._write()
        return len(content)

    def close(self) -> None:
        """Let go of what was not sent, and of whatever comes still."""
        self._is_closed = True
        for _, descriptors in self._queue:
            close_all(descriptors)
        self._queue.clear()
        self.queued_bytes = 0

    def _write(self) -> None:
        try:
            while self._queue:
                content, descriptors = self._queue[0]
                passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
                sent = self._socket.sendmsg([content], passed)
                close_all(descriptors)  # They went with the first byte.
                self.queued_bytes -= sent
                if sent == len(content):
                    self._queue.popleft()
                else:
                    self._queue[0] = content[sent:], []
        except BlockingIOError:
            self._wait(is_waiting=True)
        except OSError as failure:
            self.close()
            self._failed(failure)
        else:
            if self._is_waiting:
                self._wait(is_waiting=False)
                self._written()

    def _wait(self, *, is_waiting: bool) -> None:
        if is_waiting and not self._is_waiting:
            self._loop.add_writer(self._socket.fileno(), self._write)
        elif self._is_waiting and not is_waiting:
            self._loop.remove_writer(self._socket.fileno())
        self._is_waiting = is_waiting


def close_all(descriptors: Iterable[int]) -> None:
    """Close what belongs to us."""
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
