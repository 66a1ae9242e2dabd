# SPDX-License-Identifier: Apache-2.0
"""The D-Bus library, and nothing else: one connection on which messages come and go.

dbus-fast from 2.44 on reads and writes the messages; what is an object, an interface or an error is decided in
``sysmond.bus.wire.service``. Reading and writing the socket is not left to it either. It keeps the descriptors in
strangers' messages, reads whatever length there is, and takes a socket that is full, because the bus does not read
for a moment, for the end of the connection. Here descriptors are closed, a message too long is refused unread, and
what cannot be sent waits, within bounds; what does not fit is dropped and counted. Structs arrive as lists before
version 3.0 and as tuples since.
"""

import array
import asyncio
import io
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from dbus_fast._private.unmarshaller import Unmarshaller
from dbus_fast.aio.message_bus import MessageBus
from dbus_fast.constants import MessageFlag, MessageType
from dbus_fast.message import Message
from dbus_fast.signature import Variant as LibraryVariant

from sysmond.bus.wire import addresses, incoming
from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, UnavailableError
from sysmond.bus.wire.incoming import MESSAGE_BYTES_MAX, Head, Incoming, TooLong, head
from sysmond.bus.wire.outgoing import Outgoing, close_all
from sysmond.bus.wire.values import ANSWER_BYTES_MAX, Variant

__all__ = ["Call", "Connection", "RemoteError"]

DBUS = "org.freedesktop.DBus"
DBUS_PATH = "/org/freedesktop/DBus"

READ_BYTES = 64 * 1024
# After this others get their turn: a flood comes about as fast as it is read.
READ_S = 0.005
CONNECT_S = 10.0
ANSWER_S = 25.0

_VARIANT = "v"
_DESCRIPTOR_BYTES = array.array("i").itemsize
_PASSED_BYTES = socket.CMSG_SPACE(253 * _DESCRIPTOR_BYTES)  # The kernel passes no more at once (SCM_MAX_FD).


class RemoteError(UnavailableError):
    """Somebody on the bus answered with an error: its name and its text."""

    def __init__(self, name: str, text: str, *, is_of_bus: bool = False) -> None:
        """``name``: as it came over the bus; ``is_of_bus``: the bus itself says so, and the call reached nobody."""
        super().__init__(f"{name}: {text}" if text else name)
        self.name = name
        self.text = text
        self.is_of_bus = is_of_bus


class Call:
    """A method call, or a signal, as it came, and the way back. Only its head is read before more is asked for."""

    __slots__ = ("_connection", "_content", "_message", "_serial", "sender", "size_bytes", "wants_answer")

    def __init__(self, connection: "Connection", said: Head, content: bytes) -> None:
        """``content``: the whole message, of which this is the head."""
        self._connection = connection
        self._content = content
        self._message: Message | None = None
        self._serial = said.serial
        self.sender = said.sender
        self.wants_answer = said.wants_answer
        self.size_bytes = len(content)

    def forget(self) -> None:
        """Keep no more of it than it takes to refuse it."""
        self._content, self.size_bytes = b"", 0

    @property
    def _read(self) -> Message:
        if self._message is None:
            self._message, self._content = _read(self._content), b""
        return self._message

    @property
    def path(self) -> str:
        """Of which object."""
        return self._read.path or ""

    @property
    def interface(self) -> str:
        """Of which interface; empty where the caller named none."""
        return self._read.interface or ""

    @property
    def member(self) -> str:
        """Which method or signal."""
        return "" if self._message is None and not self._content else self._read.member or ""

    @property
    def signature(self) -> str:
        """The types of its arguments."""
        return self._read.signature

    @property
    def body(self) -> list[Any]:
        """Its arguments."""
        return self._read.body

    @property
    def may_ask(self) -> bool:
        """Whether the caller allows polkit to ask a person."""
        return bool(self._read.flags.value & MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION.value)

    def reply(
        self,
        signature: str,
        body: list[Any],
        descriptors: Iterable[int] = (),
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> int:
        """Answer, and give the answer's length. Descriptors belong to the connection from now on, which closes them.

        :raises LimitError: where the answer would be longer than ``bytes_max``.
        :raises Exception: where the values are not of the signature; nothing is sent then.
        """
        given = list(descriptors)
        try:
            message = Message(
                message_type=MessageType.METHOD_RETURN,
                reply_serial=self._serial,
                destination=self.sender,
                signature=signature,
                body=body,
                unix_fds=given,
            )
        except BaseException:
            close_all(given)
            raise
        return self._send(message, bytes_max)

    def refuse(self, name: str, text: str) -> int:
        """Answer with an error, and give its length."""
        return self._send(
            Message(
                message_type=MessageType.ERROR,
                reply_serial=self._serial,
                destination=self.sender,
                error_name=name,
                signature="s",
                body=[text],
            )
        )

    def _send(self, message: Message, bytes_max: int = ANSWER_BYTES_MAX) -> int:
        if self.wants_answer:
            return self._connection.send(message, bytes_max)
        close_all(message.unix_fds)
        return 0


class _Reader:
    """In place of the library's own: descriptors are closed, what is too long is not kept, others get their turn."""

    def __init__(
        self,
        bus: MessageBus,
        received: Callable[[bytes], None],
        refuse: Callable[[TooLong], None],
        read: Callable[[], None],
        passed: Callable[[Sequence[int]], None],
    ) -> None:
        """``received``, ``refuse``: are given each message; ``read``: called when what has come has been read.

        ``passed``: is given descriptors, before the message that they came with.
        """
        self._bus = bus
        self._socket = _socket_of(bus)
        self._received = received
        self._refuse = refuse
        self._when_read = read
        self._passed = passed
        self._incoming = Incoming()
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        """Read what is there and what comes meanwhile, for a while: whose turn it is has to be found in it first."""
        until_s = time.monotonic() + READ_S
        while self._read_once() and time.monotonic() < until_s:
            pass
        self._when_read()

    def _read_once(self) -> bool:
        """Read once, whether there may be more."""
        try:
            content, passed, _, _ = self._socket.recvmsg(READ_BYTES, _PASSED_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except OSError as failure:
            _end(self._bus, failure)
            return False
        for level, kind, descriptors in passed:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(descriptors) - len(descriptors) % _DESCRIPTOR_BYTES
                self._passed(array.array("i", descriptors[:whole]))
        if not content:
            _end(self._bus, EOFError("it closed the connection"))
            return False
        for message in self._incoming.take(content):
            if isinstance(message, TooLong):
                self._refuse(message)
            else:
                self._received(message)
        return True


def _read(content: bytes) -> Message:
    """Read a whole message.

    :raises InvalidArgumentError: where it cannot be read, which the bus does not let through.
    """
    message = Unmarshaller(cast("Any", io.BytesIO(content))).unmarshall()
    if message is None:
        raise InvalidArgumentError("the message cannot be read")
    if _VARIANT in message.signature:
        message.body = _ours(message.body)
    return message


def _ours(value: Any) -> Any:  # noqa: ANN401  what D-Bus gives
    """A value with our own variants in place of the library's."""
    if isinstance(value, LibraryVariant):
        inner = value.value
        return Variant(value.signature, _ours(inner) if _VARIANT in value.signature else inner)
    return _with_members(value, _ours)


def _the_librarys(value: Any) -> Any:  # noqa: ANN401  what D-Bus takes
    """A value with the library's variants in place of ours, whose types are known to be right."""
    if isinstance(value, Variant):
        signature, inner = value
        said = _the_librarys(inner) if _VARIANT in signature else inner
        return LibraryVariant(signature, said, False)  # noqa: FBT003  so does the library spell it
    return _with_members(value, _the_librarys)


def _with_members(value: Any, made: Callable[[Any], Any]) -> Any:  # noqa: ANN401  as above
    """A value with what is made of each of its members, if it has any."""
    match value:
        case dict():
            return {key: made(member) for key, member in value.items()}
        case list():
            return [made(member) for member in value]
        case tuple():
            return tuple(made(member) for member in value)
        case _:
            return value


class Connection:
    """One connection to one bus, from ``connect`` until ``lost`` says why it ended."""

    def __init__(
        self,
        bus: MessageBus,
        called: Callable[[Call], object],
        signalled: Callable[[Call], None],
        passed: Callable[[Sequence[int]], None],
    ) -> None:
        """Nothing has come. The arguments but ``bus``: as of ``connect``."""
        self._bus = bus
        self._called = called
        self._signalled = signalled
        self._waiting: dict[int, asyncio.Future[list[Any]]] = {}
        self._is_lost = False
        self.when_moved: Callable[[], None] = _nothing
        """Called when what has come has been read, and when all is with the bus that had to wait."""
        self._outgoing = Outgoing(_socket_of(bus), partial(_end, bus), self._moved)
        _Reader(bus, self._received, self._refuse, self._moved, passed)

    @classmethod
    async def connect(
        cls,
        address: str,
        called: Callable[[Call], object],
        signalled: Callable[[Call], None],
        passed: Callable[[Sequence[int]], None] = close_all,
    ) -> "Connection":
        """Connect to ``system``, ``session``, or the bus at an address; never over a network.

        ``called``, ``signalled``: are given every method call and every signal, unread, and must not wait. ``passed``:
        is given the descriptors that come, and closes them.

        :raises UnavailableError: where there is no bus, or it does not let us in.
        """
        try:
            async with asyncio.timeout(CONNECT_S):
                bus = MessageBus(bus_address=addresses.local(address), negotiate_unix_fd=True)
                return cls(await bus.connect(), called, signalled, passed)
        except TimeoutError as silence:
            raise UnavailableError(f"{address}: no answer within {CONNECT_S:.0f} s") from silence
        except UnavailableError:
            raise
        except Exception as failure:
            reason = (failure.strerror if isinstance(failure, OSError) else None) or str(failure)
            raise UnavailableError(f"{address}: {reason or type(failure).__name__}") from failure

    @property
    def name(self) -> str:
        """The unique name of this connection."""
        return self._bus.unique_name or ""

    @property
    def dropped(self) -> int:
        """How many messages found no room."""
        return self._outgoing.dropped

    @property
    def queued_bytes(self) -> int:
        """How much waits for the bus."""
        return self._outgoing.queued_bytes

    async def lost(self) -> str:
        """Wait until the connection ends, and say why."""
        reason = "disconnected"
        try:
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        except Exception as failure:  # noqa: BLE001  whatever it died of
            reason = str(failure) or type(failure).__name__
        self._is_lost = True
        self._outgoing.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(UnavailableError(f"the bus is gone: {reason}"))
        self._waiting.clear()
        return reason

    def close(self) -> None:
        """End the connection."""
        with suppress(Exception):
            self._bus.disconnect()
        self._outgoing.close()

    async def ask(
        self,
        where: tuple[str, str, str],
        member: str,
        signature: str = "",
        body: Sequence[Any] = (),
        *,
        timeout_s: float = ANSWER_S,
        interactive: bool = False,
    ) -> list[Any]:
        """Call a method of somebody else: ``where`` is destination, path and interface.

        :raises RemoteError: where the answer is an error. :raises UnavailableError: where there is none.
        """
        if self._is_lost:
            raise UnavailableError("the bus is gone")
        flags = MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION if interactive else MessageFlag.NONE
        message = _call(where, member, signature, body, flags)
        message.serial = self._bus.next_serial()
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting[message.serial] = answer
        try:
            self._write(message)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as silence:
            raise UnavailableError(f"{where[0]}: no answer within {timeout_s:.0f} s") from silence
        finally:
            self._waiting.pop(message.serial, None)

    def tell(self, where: tuple[str, str, str], member: str, signature: str = "", body: Sequence[Any] = ()) -> None:
        """Call a method of somebody else who need not answer."""
        self.send(_call(where, member, signature, body, MessageFlag.NO_REPLY_EXPECTED))

    def signal(
        self, path: str, interface: str, member: str, signature: str, body: Sequence[Any], destination: str = ""
    ) -> int:
        """Send a signal, to one destination or to whoever listens; gives its length, 0 where it was dropped."""
        return self.send(
            Message(
                message_type=MessageType.SIGNAL,
                path=path,
                interface=interface,
                member=member,
                signature=signature,
                body=list(body),
                destination=destination or None,
            )
        )

    def send(self, message: Message, bytes_max: int = ANSWER_BYTES_MAX) -> int:
        """Number a message and have it written; gives its length, 0 where it was dropped."""
        message.serial = self._bus.next_serial()
        return self._write(message, bytes_max)

    def _write(self, message: Message, bytes_max: int = ANSWER_BYTES_MAX) -> int:
        try:
            if _VARIANT in message.signature:  # What has none is left as it is: rows of numbers are long.
                kinds = message.signature_tree.types
                message.body = [
                    _the_librarys(value) if _VARIANT in kind.signature else value
                    for kind, value in zip(kinds, message.body, strict=True)
                ]
            content = message._marshall(True)  # noqa: FBT003, SLF001  the library has no other door
            if message.message_type is MessageType.METHOD_RETURN and len(content) > bytes_max:
                raise LimitError(f"an answer of {len(content)} bytes; expected up to {bytes_max}: ask for less")
        except BaseException:
            close_all(message.unix_fds)
            raise
        return self._outgoing.put(content, message.unix_fds, is_signal=message.message_type is MessageType.SIGNAL)

    def _moved(self) -> None:
        self.when_moved()

    def _received(self, content: bytes) -> None:
        """Take every message: nothing is left to what the library would do by itself."""
        said = head(content)
        match said.kind:
            case incoming.CALL:
                self._called(Call(self, said, content))
            case incoming.SIGNAL:
                self._signalled(Call(self, said, content))
            case _:
                message = _read(content)
                answer = self._waiting.get(message.reply_serial or 0)
                if answer is not None and not answer.done():
                    if message.message_type is MessageType.ERROR:
                        text = message.body[0] if message.signature.startswith("s") else ""
                        is_of_bus = message.sender == DBUS
                        answer.set_exception(RemoteError(message.error_name or "", str(text), is_of_bus=is_of_bus))
                    else:
                        answer.set_result(message.body)

    def _refuse(self, call: TooLong) -> None:
        """Answer a call that was too long to be read."""
        if call.sender:
            text = f"a message of {call.size_bytes} bytes; expected up to {MESSAGE_BYTES_MAX}"
            self.send(
                Message(
                    message_type=MessageType.ERROR,
                    reply_serial=call.serial,
                    destination=call.sender,
                    error_name=LimitError.bus_name,
                    signature="s",
                    body=[text],
                )
            )


def _nothing() -> None:
    """Do nothing."""


def _socket_of(bus: MessageBus) -> socket.socket:
    connection = bus._sock  # noqa: SLF001  the library has no other door
    if connection is None:
        raise UnavailableError("not connected")
    return connection


def _end(bus: MessageBus, reason: Exception) -> None:
    bus._finalize(reason)  # noqa: SLF001  as above


def _call(where: tuple[str, str, str], member: str, signature: str, body: Sequence[Any], flags: MessageFlag) -> Message:
    destination, path, interface = where
    return Message(
        destination=destination,
        path=path,
        interface=interface,
        member=member,
        signature=signature,
        body=list(body),
        flags=flags,
    )
