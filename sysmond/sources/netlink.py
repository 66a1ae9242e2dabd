# SPDX-License-Identifier: Apache-2.0
"""Requests to the kernel by netlink, what answers them, the attributes in that; and what it tells everybody.

Source: netlink(7) and the kernel's ``Documentation/userspace-api/netlink/intro.rst``.
"""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct, error

HEADER = Struct("=IHHII")  # Length with this header, type, flags, sequence, port (struct nlmsghdr).
REQUEST, ACKNOWLEDGE, DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE, NLMSG_OVERRUN = 2, 3, 4
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP = 270, 1
# The kernel fills this much, where the receiver has the room; and no answer has more such pieces.
DATAGRAM_BYTES = 32768
DATAGRAMS_MAX = 1024
TIMEOUT_S = 2.0

_ATTRIBUTE = Struct("=HH")  # Length with this header, type.
_NUMBER_BYTES = 4
_TYPE_BITS = 0x3FFF  # Above these: whether it is nested, and in which byte order.


def dump(protocol: int, kind: int, request: bytes) -> Iterator[tuple[int, bytes]]:
    """Ask for all there are of something; yields the type and the content of each message.

    :raises OSError: as the kernel says; ``TimeoutError`` where it does not answer.
    :raises ValueError: where an answer is cut short, or has no end.
    """
    return _answers(protocol, kind, DUMP, request)


def ask(protocol: int, kind: int, request: bytes) -> Iterator[tuple[int, bytes]]:
    """Ask for one thing; yields the type and the content of each message about it.

    :raises OSError: as the kernel says; ``TimeoutError`` where it does not answer.
    :raises ValueError: where an answer is cut short, or has no end.
    """
    return _answers(protocol, kind, ACKNOWLEDGE, request)


def _answers(protocol: int, kind: int, flags: int, request: bytes) -> Iterator[tuple[int, bytes]]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as kernel:
        kernel.settimeout(TIMEOUT_S)
        kernel.bind((0, 0))
        kernel.connect((0, 0))  # Nobody but the kernel can send to it.
        kernel.send(HEADER.pack(HEADER.size + len(request), kind, REQUEST | flags, 1, 0) + request)
        for _ in range(DATAGRAMS_MAX):
            for answer, content in messages(kernel.recv(DATAGRAM_BYTES)):
                if answer == NLMSG_DONE:
                    return
                if answer == NLMSG_ERROR:
                    number = -int.from_bytes(content[:_NUMBER_BYTES], sys.byteorder, signed=True)
                    if not number:  # What was asked for has come.
                        return
                    raise OSError(number, os.strerror(number))
                yield answer, content
    raise ValueError(f"netlink: more than {DATAGRAMS_MAX} datagrams for one request")


class Multicast:
    """What the kernel tells a group of listeners, as it comes."""

    def __init__(self, listening: socket.socket) -> None:
        """``listening``: gives datagrams of messages; it does not wait for them from now on."""
        self._listening = listening
        listening.settimeout(0)

    @classmethod
    def join(cls, protocol: int, group: int) -> "Multicast":
        """Listen to a group, by its number.

        :raises OSError: as the kernel says.
        """
        listening = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        try:
            listening.bind((0, 0))
            listening.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        except OSError:
            listening.close()
            raise
        return cls(listening)

    def fileno(self) -> int:
        """What becomes readable when something comes."""
        return self._listening.fileno()

    def heard(self, most: int) -> Iterator[tuple[int, bytes]]:
        """Yield type and content of each message of so many datagrams; ``NLMSG_OVERRUN`` where some were lost.

        :raises ValueError: where one is cut short.
        """
        for _ in range(most):
            try:
                datagram, _, _, sender = self._listening.recvmsg(DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise
                yield NLMSG_OVERRUN, b""
                continue
            if not sender or sender[0] == 0:  # The kernel; a program has a number.
                yield from messages(datagram)

    def close(self) -> None:
        """Listen no more."""
        self._listening.close()


def interface_name(number: int) -> str:
    """The name of an interface; its number where it is gone."""
    with suppress(OSError, OverflowError):
        return socket.if_indextoname(number)
    return f"interface {number}"


def messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each message of a datagram.

    :raises ValueError: where one does not end in it.
    """
    yield from _pieces(datagram, HEADER)


def attributes(content: bytes) -> dict[int, bytes]:
    """Give attributes by type.

    :raises ValueError: where one does not end in ``content``.
    """
    return {kind & _TYPE_BITS: value for kind, value in _pieces(content, _ATTRIBUTE)}


def attribute(kind: int, value: bytes) -> bytes:
    """Spell an attribute of a request, which is padded to 4 bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _pieces(content: bytes, header: Struct) -> Iterator[tuple[int, bytes]]:
    """Split what begins with its length, its type second, and is padded to 4 bytes."""
    place = 0
    while place < len(content):
        try:
            length, kind, *_ = header.unpack_from(content, place)
        except error:
            raise ValueError(f"netlink: {len(content) - place} bytes left over") from None
        if not header.size <= length <= len(content) - place:
            raise ValueError(f"netlink: a piece of {length} bytes where {len(content) - place} are left")
        yield kind, content[place + header.size : place + length]
        place += (length + 3) & ~3
