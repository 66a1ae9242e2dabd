# SPDX-License-Identifier: Apache-2.0
"""D-Bus by the library that comes with systemd: a connection that calls nothing back, and its messages.

Source: sd-bus(3). No code is made at run time, nothing is waited for but the bus itself, and that for a bounded time.
Standard library only.
"""

import ctypes
import os
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref
from errno import ECONNREFUSED, ENOENT
from functools import cache
from typing import Any

SONAMES = ("libsystemd.so.0", "libelogind.so.0")
TIMEOUT_US = 2_000_000
SYSTEM = "system"
# Where the bus of the machine listens, unless the environment says otherwise.
SYSTEM_SOCKET = "/run/dbus/system_bus_socket"
# An array with more texts is refused.
TEXTS_MAX = 8192
BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
PROPERTIES = "org.freedesktop.DBus.Properties"
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
"""Whom several ask."""
_TEXT, _HANDLE, _INTEGER, _CHAR = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_char
_GIVEN, _COOKIE = ctypes.POINTER(_HANDLE), ctypes.POINTER(ctypes.c_uint64)
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "sd_bus_open_system": (_GIVEN,),
    "sd_bus_get_property_trivial": (_HANDLE, _TEXT, _TEXT, _TEXT, _TEXT, _HANDLE, _CHAR, _HANDLE),
    "sd_bus_set_method_call_timeout": (_HANDLE, ctypes.c_uint64),
    "sd_bus_new": (_GIVEN,),
    "sd_bus_set_address": (_HANDLE, _TEXT),
    "sd_bus_set_bus_client": (_HANDLE, _INTEGER),
    "sd_bus_start": (_HANDLE,),
    "sd_bus_get_fd": (_HANDLE,),
    "sd_bus_get_events": (_HANDLE,),
    "sd_bus_process": (_HANDLE, _GIVEN),
    "sd_bus_send": (_HANDLE, _HANDLE, _COOKIE),
    "sd_bus_call": (_HANDLE, _HANDLE, ctypes.c_uint64, _HANDLE, _GIVEN),
    "sd_bus_message_new_method_call": (_HANDLE, _GIVEN, _TEXT, _TEXT, _TEXT, _TEXT),
    "sd_bus_message_set_auto_start": (_HANDLE, _INTEGER),
    "sd_bus_message_append_basic": (_HANDLE, _CHAR, _TEXT),
    "sd_bus_message_open_container": (_HANDLE, _CHAR, _TEXT),
    "sd_bus_message_close_container": (_HANDLE,),
    "sd_bus_message_read_basic": (_HANDLE, _CHAR, _HANDLE),
    "sd_bus_message_enter_container": (_HANDLE, _CHAR, _TEXT),
    "sd_bus_message_exit_container": (_HANDLE,),
    "sd_bus_message_skip": (_HANDLE, _TEXT),
    "sd_bus_message_get_reply_cookie": (_HANDLE, _COOKIE),
    "sd_bus_message_is_signal": (_HANDLE, _TEXT, _TEXT),
    "sd_bus_message_is_method_error": (_HANDLE, _TEXT),
    "sd_bus_message_get_sender": (_HANDLE,),
    "sd_bus_message_get_path": (_HANDLE,),
    "sd_bus_message_get_member": (_HANDLE,),
    "sd_bus_message_unref": (_HANDLE,),
    "sd_bus_flush_close_unref": (_HANDLE,),
    "sd_bus_close_unref": (_HANDLE,),
}
_RESULTS: dict[str, Any] = {
    **dict.fromkeys((f"sd_bus_message_get_{what}" for what in ("sender", "path", "member")), _TEXT),
    **dict.fromkeys(("sd_bus_message_unref", "sd_bus_flush_close_unref", "sd_bus_close_unref"), _HANDLE),
}
# How basic types lie in memory: a text is a pointer to it.
_BASIC: dict[str, Any] = {
    **dict.fromkeys("sog", _TEXT),
    **dict.fromkeys("bih", _INTEGER),
    "u": ctypes.c_uint32,
    "t": ctypes.c_uint64,
    "x": ctypes.c_int64,
}
Where = tuple[str, str, str]
"""Destination, path and interface."""


class SdMessage:
    """A message that came; it lasts until the next one is taken."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        """``handle``: of the library."""
        self._handle = handle

    @property
    def sender(self) -> str:
        """The unique name of who sent it; empty where nobody says."""
        return _text(library().sd_bus_message_get_sender(self._handle))

    @property
    def path(self) -> str:
        """Of which object; empty for an answer."""
        return _text(library().sd_bus_message_get_path(self._handle))

    @property
    def member(self) -> str:
        """Which signal; empty for an answer."""
        return _text(library().sd_bus_message_get_member(self._handle))

    @property
    def answers(self) -> int:
        """To which call it is the answer, by the number that ``SdBus.send`` gave; 0 where it is none."""
        cookie = ctypes.c_uint64()
        return cookie.value if library().sd_bus_message_get_reply_cookie(self._handle, byref(cookie)) >= 0 else 0

    def is_signal(self, interface: str, member: str) -> bool:
        """Whether it is this signal."""
        return bool(library().sd_bus_message_is_signal(self._handle, interface.encode(), member.encode()) > 0)

    def is_error(self, name: str = "") -> bool:
        """Whether it is an error, of this name where one is given."""
        return bool(library().sd_bus_message_is_method_error(self._handle, name.encode() or None) > 0)

    def read(self, kind: str) -> Any:  # noqa: ANN401  what the type is in C
        """Read the next value, of a basic type: ``str`` for a text, else ``int``.

        :raises OSError: where it is of another type, or there is none.
        """
        value = _BASIC[kind]()
        checked(library().sd_bus_message_read_basic(self._handle, kind.encode(), byref(value)))
        return _text(value.value) if kind in "sog" else value.value

    def skip(self, signature: str) -> None:
        """Pass over values."""
        checked(library().sd_bus_message_skip(self._handle, signature.encode()))

    @contextmanager
    def within(self, kind: str, content: str) -> Iterator[bool]:
        """Enter a container (``a``, ``r``, ``e``, ``v``); whether there is another one.

        :raises OSError: where there is something else.
        """
        there = checked(library().sd_bus_message_enter_container(self._handle, kind.encode(), content.encode())) > 0
        yield there
        if there:
            checked(library().sd_bus_message_exit_container(self._handle))

    def properties(self, wanted: Mapping[str, str]) -> dict[str, int | str]:
        """Read ``a{sv}``: of it what is wanted, by the name the type that it must have.

        That is a basic type, or ``as``, of which the texts are given with spaces between.

        :raises OSError: where it is something else.
        """
        values: dict[str, int | str] = {}
        with self.within("a", "{sv}"):
            while True:
                with self.within("e", "sv") as there:
                    if not there:
                        return values
                    kind = wanted.get(name := self.read("s"))
                    if kind is None:
                        self.skip("v")
                    else:
                        with self.within("v", kind):
                            values[name] = " ".join(self._texts()) if kind == "as" else self.read(kind)

    def _texts(self) -> Iterator[str]:
        """Read an array of texts, which are not empty."""
        with self.within("a", "s"):
            for _ in range(TEXTS_MAX):
                if not (text := self.read("s")):
                    break
                yield text


class SdBus:
    """One connection to a bus. It never starts one, nor a service."""

    def __init__(self, address: str = SYSTEM) -> None:
        """``address``: of the bus; ``system`` for that of the machine.

        :raises OSError: where there is no bus; ``ENOENT`` where the library is not installed.
        """
        bus = _HANDLE()
        if address == SYSTEM:
            bus = opened_system(library())
        else:
            checked(library().sd_bus_new(byref(bus)))
            try:
                checked(library().sd_bus_set_address(bus, address.encode()))
                checked(library().sd_bus_set_bus_client(bus, 1))
                checked(library().sd_bus_start(bus))
            except OSError:
                library().sd_bus_close_unref(bus)
                raise
        self._bus = bus

    def fileno(self) -> int:
        """What becomes readable when something comes."""
        return checked(library().sd_bus_get_fd(self._bus))

    def wants_to_write(self) -> bool:
        """Whether something waits until it can be written."""
        events = library().sd_bus_get_events(self._bus)
        return bool(events > 0 and events & select.POLLOUT)

    def messages(self, most: int) -> Iterator[SdMessage]:
        """Give what has come, so much of it.

        :raises OSError: where the bus is gone.
        """
        message = _HANDLE()
        while most and self._bus.value and checked(library().sd_bus_process(self._bus, byref(message))):
            if message.value:
                most -= 1
                try:
                    yield SdMessage(message)
                finally:
                    library().sd_bus_message_unref(message)

    def send(self, where: Where, member: str, *texts: str | Sequence[str]) -> int:
        """Send a call whose arguments are texts, or lists of them; gives the number by which its answer is known.

        :raises OSError: where it cannot be sent.
        """
        cookie = ctypes.c_uint64()
        with self._call(where, member, texts) as message:
            checked(library().sd_bus_send(self._bus, message, byref(cookie)))
        return cookie.value

    @contextmanager
    def ask(self, where: Where, member: str, *texts: str) -> Iterator[SdMessage]:
        """Call and wait for the answer: of the bus itself, which answers at once.

        :raises OSError: where that is an error, or does not come in time.
        """
        reply = _HANDLE()
        with self._call(where, member, texts) as message:
            checked(library().sd_bus_call(self._bus, message, TIMEOUT_US, None, byref(reply)))
        try:
            yield SdMessage(reply)
        finally:
            library().sd_bus_message_unref(reply)

    def close(self) -> None:
        """End it, whatever waits to be sent."""
        if self._bus.value:
            library().sd_bus_close_unref(self._bus)
        self._bus = _HANDLE()

    @contextmanager
    def _call(self, where: Where, member: str, texts: Sequence[str | Sequence[str]]) -> Iterator[ctypes.c_void_p]:
        message = _HANDLE()
        names = [name.encode() for name in (*where, member)]
        checked(library().sd_bus_message_new_method_call(self._bus, byref(message), *names))
        try:
            checked(library().sd_bus_message_set_auto_start(message, 0))
            for text in texts:
                if isinstance(text, str):
                    checked(library().sd_bus_message_append_basic(message, b"s", text.encode()))
                    continue
                checked(library().sd_bus_message_open_container(message, b"a", b"s"))
                for item in text:
                    checked(library().sd_bus_message_append_basic(message, b"s", item.encode()))
                checked(library().sd_bus_message_close_container(message))
            yield message
        finally:
            library().sd_bus_message_unref(message)


@cache
def library() -> ctypes.CDLL:
    """The library.

    :raises FileNotFoundError: where it is not installed.
    """
    for soname in SONAMES:
        with suppress(OSError):
            found = ctypes.CDLL(soname)
            for name, arguments in _PROTOTYPES.items():
                with suppress(AttributeError):  # An old one has not all.
                    function = getattr(found, name)
                    function.argtypes, function.restype = arguments, _RESULTS.get(name, _INTEGER)
            return found
    raise FileNotFoundError(ENOENT, f"no {' or '.join(SONAMES)}")


def checked(result: int) -> int:
    """Give what a function of the library gave.

    :raises OSError: where that is an error.
    """
    if result < 0:
        raise OSError(-result, f"D-Bus: {os.strerror(-result)}")
    return result


def opened_system(functions: ctypes.CDLL) -> ctypes.c_void_p:
    """Connect to the system bus.

    :raises OSError: saying that it does not run, where that is so, or what the library says.
    """
    bus = ctypes.c_void_p()
    result = functions.sd_bus_open_system(byref(bus))
    if -result in {ENOENT, ECONNREFUSED}:
        raise FileNotFoundError(ENOENT, "D-Bus is not running", SYSTEM_SOCKET)
    checked(result)
    return bus


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", "backslashreplace")
