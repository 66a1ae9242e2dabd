# SPDX-License-Identifier: Apache-2.0
"""Bytes from a bus, cut into messages, and what their heads say; one that is too long is never kept, only who sent it.

A message is read as a whole when its turn has come, or never: its head says whose it is. The bus lets messages of
32 MiB through, and whoever reads them whole has several times that in memory.
Source: D-Bus specification, "Message Format".
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

MESSAGE_BYTES_MAX = 1024 * 1024
# The part of a message that says what it is; longer than that, nobody looks at it.
HEAD_BYTES_MAX = 16 * 1024

CALL, RETURN, ERROR, SIGNAL = range(1, 5)

_FIXED_BYTES = 16
_NO_REPLY_EXPECTED = 1
_SENDER = 7
_ALIGNMENT = 8
_TEXT_OF_SIGNATURE, _NUMBER = ord("g"), ord("u")
_LENGTHS = {order: struct.Struct(f"{order}I") for order in "<>"}


class TooLong(NamedTuple):
    """A call that was not kept. ``sender`` is empty where it wants no answer, or nobody can tell whose it is."""

    sender: str
    serial: int
    size_bytes: int


class Head(NamedTuple):
    """What is known of a message before it is read. ``sender``: empty where it does not say."""

    kind: int
    wants_answer: bool
    serial: int
    sender: str


class Incoming:
    """What came from the socket and is no whole message yet."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._buffer = bytearray()
        self._skipped_bytes = 0

    def take(self, content: bytes) -> Iterator[bytes | TooLong]:
        """Give the messages that are complete with these bytes, in order."""
        self._buffer += content
        while True:
            if self._skipped_bytes:
                gone = min(self._skipped_bytes, len(self._buffer))
                del self._buffer[:gone]
                self._skipped_bytes -= gone
            if len(self._buffer) < _FIXED_BYTES:
                return
            order = "<" if self._buffer[0] == ord("l") else ">"
            body_bytes, serial, fields_bytes = struct.unpack_from(f"{order}III", self._buffer, 4)
            head_bytes = _FIXED_BYTES + fields_bytes + -fields_bytes % _ALIGNMENT
            size_bytes = head_bytes + body_bytes
            if size_bytes > MESSAGE_BYTES_MAX:
                if len(self._buffer) < min(head_bytes, HEAD_BYTES_MAX):
                    return
                wants_answer = self._buffer[1] == CALL and not self._buffer[2] & _NO_REPLY_EXPECTED
                sender = _sender(self._buffer, order, head_bytes) if wants_answer else ""
                yield TooLong(sender, serial, size_bytes)
                self._skipped_bytes = size_bytes
            elif len(self._buffer) < size_bytes:
                return
            else:
                message = bytes(self._buffer[:size_bytes])
                del self._buffer[:size_bytes]
                yield message


def head(message: bytes) -> Head:
    """What the head of a whole message says."""
    order = "<" if message[0] == ord("l") else ">"
    _, serial, fields_bytes = struct.unpack_from(f"{order}III", message, 4)
    sender = _sender(message, order, _FIXED_BYTES + fields_bytes)
    return Head(message[1], message[1] == CALL and not message[2] & _NO_REPLY_EXPECTED, serial, sender)


def _sender(content: bytes | bytearray, order: str, head_bytes: int) -> str:
    """Look for the sender among the fields of a head, which are an array of (code, variant)."""
    if head_bytes > HEAD_BYTES_MAX:
        return ""
    length_of = _LENGTHS[order].unpack_from
    at = _FIXED_BYTES
    try:
        while at < head_bytes:
            at += -at % _ALIGNMENT
            code, kind = content[at], content[at + 2]
            at += 4  # The code, and a signature of one letter with its length and closing zero.
            if kind == _TEXT_OF_SIGNATURE:
                length, at = content[at], at + 1
            else:
                (length,) = length_of(content, at)
                at += 4
            if kind == _NUMBER:
                continue
            if code == _SENDER:
                return content[at : at + length].decode("ascii", "replace")
            at += length + 1
    except (IndexError, struct.error):
        pass
    return ""
