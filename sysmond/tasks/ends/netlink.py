# SPDX-License-Identifier: Apache-2.0
"""Netlink sockets with events of the kernel: few calls read many messages, and lost messages are counted.

Sources: netlink(7), recvmmsg(2), and ``sock_get_meminfo`` in the kernel's ``net/core/sock.c``, whose last number is how
many messages did not fit the socket's buffer.
"""

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from errno import EAGAIN, EINTR, ENOBUFS
from struct import Struct

from sysmond.errors import Error, refusal
from sysmond.sources.netlink import HEADER, NLMSG_ERROR, REQUEST

# For 3,000 ends in a second, each of 1 to 2 KiB as the kernel counts them, and slow ticks after it.
BUFFER_BYTES = 16 * 1024 * 1024
# How many messages one call reads.
BATCH = 128
# How many a tick reads; the rest waits in the buffer for the next.
MESSAGES_MAX = 20_480

ACKNOWLEDGE = 0x4

_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_SOL_NETLINK = 270
_NETLINK_NO_ENOBUFS = 5
_MEMINFO = Struct("=9I")
_ERROR = Struct("=i")


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """struct msghdr."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint),
        ("vector", ctypes.POINTER(_Vector)),
        ("vectors", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (("header", _Header), ("length", ctypes.c_uint))


class Socket:
    """A socket to the kernel, to which nobody else can send."""

    def __init__(self, protocol: int, groups: int, slot_bytes: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Open it; ``groups``: bits of the multicast groups; ``slot_bytes``: how much of a message is read.

        :raises OSError: as the kernel says.
        """
        self.slot_bytes = slot_bytes
        self._slab = bytearray(slot_bytes * BATCH)
        self._view = memoryview(self._slab)
        place = ctypes.addressof((ctypes.c_char * len(self._slab)).from_buffer(self._slab))
        self._vectors = (_Vector * BATCH)(*[_Vector(place + slot_bytes * slot, slot_bytes) for slot in range(BATCH)])
        self._messages = (_Message * BATCH)()
        for message, vector in zip(self._messages, self._vectors, strict=True):
            message.header.vector, message.header.vectors = ctypes.pointer(vector), 1
        self._receive = ctypes.CDLL(None, use_errno=True).recvmmsg
        kinds = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kinds, protocol)
        try:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
            except PermissionError:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            self._socket.bind((0, groups))
            self._socket.connect((0, 0))
        except OSError:
            self._socket.close()
            raise
        self._dropped = self._drops()
        self._overruns = 0
        if self._dropped is not None:  # Then an overrun need not stop the socket until it is empty.
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)

    def send(self, kind: int, flags: int, payload: bytes) -> None:
        """Send a request.

        :raises OSError: as the kernel says.
        """
        self._socket.send(HEADER.pack(HEADER.size + len(payload), kind, flags | REQUEST, 1, 0) + payload)

    def answer(self, what: str, right: str) -> memoryview:
        """Give the kernel's answer to a request, which is there when ``send`` returns.

        :raises Error: where it refused or did not answer, with ``what`` was requested, and what to expect (``right``).
        """
        count = self._batch(1)
        if not count:
            raise Error(f"{what}: no answer; {right}")
        reply = self._view[: min(self.slot_bytes, HEADER.unpack_from(self._slab)[0])]
        if HEADER.unpack_from(reply)[1] == NLMSG_ERROR and (number := -_ERROR.unpack_from(reply, HEADER.size)[0]):
            raise Error(f"{what}: {os.strerror(number)}; {right}")
        return reply

    def receive(self) -> Iterator[memoryview]:
        """Yield the messages that wait, in batches that hold until the next: each in ``slot_bytes``, cut there.

        At most ``MESSAGES_MAX`` are read.
        """
        for _ in range(MESSAGES_MAX // BATCH):
            count = self._batch(BATCH)
            if count:
                yield self._view[: count * self.slot_bytes]
            if count < BATCH:
                return

    def lost(self) -> int:
        """How many did not fit since the last call; at least, where the kernel (before 4.12) keeps no count."""
        if self._dropped is None:
            lost, self._overruns = self._overruns, 0
            return lost
        drops = self._drops() or 0
        lost, self._dropped = (drops - self._dropped) & 0xFFFFFFFF, drops
        return lost

    def fileno(self) -> int:
        """What becomes readable with the next message."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __del__(self) -> None:
        """Close the socket of a probe that was turned off, and dropped without a ``close``."""
        with suppress(AttributeError):  # It could not be opened.
            self._socket.close()

    def _batch(self, limit: int) -> int:
        while True:
            count = int(self._receive(self._socket.fileno(), self._messages, limit, socket.MSG_DONTWAIT, None))
            if count >= 0:
                return count
            number = ctypes.get_errno()
            if number == ENOBUFS:
                self._overruns += 1
            elif number == EAGAIN:
                return 0
            elif number != EINTR:
                raise OSError(number, os.strerror(number))

    def _drops(self) -> int | None:
        with suppress(OSError):
            return int(_MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[8])
        return None


def refused(what: str, failure: OSError, right: str) -> Error:
    """An error of the operating system in one line: what, why, what was expected."""
    return Error(f"{what}: {refusal(failure)}; {right}")
