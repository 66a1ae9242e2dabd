# SPDX-License-Identifier: Apache-2.0
"""Bytes from a bus become messages wherever they are cut, and what is too long is never kept."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from jeepney import DBusAddress, Endianness, HeaderFields, Message, new_method_call, new_signal

from sysmond.bus.wire.incoming import HEAD_BYTES_MAX, MESSAGE_BYTES_MAX, Incoming, TooLong

WHERE = DBusAddress("/org/example", "org.example.Service", "org.example.Interface")
SENDER = ":1.23"
BIG = "x" * MESSAGE_BYTES_MAX


def spelled(message: Message, serial: int = 5, *, big: bool = False) -> bytes:
    """A message as the bus delivers it: with its sender."""
    message.header.fields[HeaderFields.sender] = SENDER
    message.header.endianness = Endianness.big if big else Endianness.little
    content: bytes = message.serialise(serial)
    return content


def all_of(content: bytes) -> list[bytes | TooLong]:
    return list(Incoming().take(content))


texts = st.lists(st.text(max_size=40), min_size=1, max_size=6)


@given(texts, st.booleans(), st.data())
def test_messages_are_whole_wherever_the_bytes_are_cut(bodies: list[str], big: bool, data: st.DataObject) -> None:
    messages = [
        spelled(new_method_call(WHERE, "Method", "sas", (text, [text] * 3)), number + 1, big=big)
        for number, text in enumerate(bodies)
    ]
    stream = b"".join(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    incoming = Incoming()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += list(incoming.take(stream[start:end]))
    assert received == messages


def test_what_is_too_long_is_skipped_and_named() -> None:
    small = spelled(new_method_call(WHERE, "Method", "s", ("x",)), 9)
    for big in (False, True):
        long = spelled(new_method_call(WHERE, "Method", "s", (BIG,)), 7, big=big)
        assert all_of(small + long + small) == [small, TooLong(SENDER, 7, len(long)), small]


def test_of_what_is_too_long_no_more_is_kept_than_its_head() -> None:
    long = spelled(new_method_call(WHERE, "Method", "s", (BIG,)), 7)
    incoming = Incoming()
    received = []
    for at in range(0, len(long), 1000):
        received += list(incoming.take(long[at : at + 1000]))
        assert len(incoming._buffer) <= HEAD_BYTES_MAX
    assert received == [TooLong(SENDER, 7, len(long))]
    assert not incoming._buffer


def test_nobody_is_answered_who_wants_no_answer_or_cannot_be_told() -> None:
    signal = spelled(new_signal(WHERE, "Signal", "s", (BIG,)))
    assert [message.sender for message in all_of(signal) if isinstance(message, TooLong)] == [""]
    endless = struct.pack("<cBBBIII", b"l", 1, 0, 1, 0, 5, 2 * MESSAGE_BYTES_MAX)
    messages = all_of(endless + b"\xff" * 4 * MESSAGE_BYTES_MAX)
    assert isinstance(messages[0], TooLong)
    assert messages[0].sender == ""


@given(st.binary(min_size=16, max_size=400))
def test_any_bytes_are_cut_into_something(content: bytes) -> None:
    # The bus lets no such thing through; whatever came, nothing is raised and nothing kept for ever.
    incoming = Incoming()
    list(incoming.take(content))
    assert len(incoming._buffer) <= len(content)
