# SPDX-License-Identifier: Apache-2.0
"""Requests to the kernel by netlink, what answers them, and the attributes in that.

Source: netlink(7) and the kernel's ``Documentation/userspace-api/netlink/intro.rst``.
"""

import os
import socket
import sys
from collections.abc import Iterator
from struct import Struct, error

HEADER = Struct("=IHHII")  # Length with this header, type, flags, sequence, port (struct nlmsghdr).
REQUEST, ACKNOWLEDGE, DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
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
