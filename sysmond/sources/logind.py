# SPDX-License-Identifier: Apache-2.0
"""What logind knows of whether anybody uses the machine, and its suspends, by the D-Bus library that comes with it.

Source: org.freedesktop.login1(5), sd-bus(3). For a question there is a connection that lives no longer; who delays
suspends has one that calls nothing back, so that no code is made at run time.
"""

import ctypes
import os
import select
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref
from functools import cache
from typing import Any, NamedTuple

FOLDER = "/run/systemd/seats"
SONAMES = ("libsystemd.so.0", "libelogind.so.0")
TIMEOUT_US = 2_000_000
_NAME = "org.freedesktop.login1"
_WHERE = (b"org.freedesktop.login1", b"/org/freedesktop/login1", b"org.freedesktop.login1.Manager")
_BUS = (b"org.freedesktop.DBus", b"/org/freedesktop/DBus", b"org.freedesktop.DBus")
_RULES = (
    f"type='signal',sender='{_NAME}',interface='{_NAME}.Manager',member='PrepareForSleep'",
    f"type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{_NAME}'",
)
# What, who, why and mode of org.freedesktop.login1.Manager.Inhibit().
_LOCK = ("sleep", "sysmond", "writes to the disk", "delay")
# Nobody who may hold such a lock at all: another reason is worth a word.
_NOT_THERE = (b"org.freedesktop.DBus.Error.ServiceUnknown", b"org.freedesktop.DBus.Error.NameHasNoOwner")
MESSAGES_MAX = 64
_CLOSED = -1
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
    "sd_bus_message_new_method_call": (_HANDLE, _GIVEN, _TEXT, _TEXT, _TEXT, _TEXT),
    "sd_bus_message_set_auto_start": (_HANDLE, _INTEGER),
    "sd_bus_message_append_basic": (_HANDLE, _CHAR, _TEXT),
    "sd_bus_message_read_basic": (_HANDLE, _CHAR, _HANDLE),
    "sd_bus_message_get_reply_cookie": (_HANDLE, _COOKIE),
    "sd_bus_message_is_signal": (_HANDLE, _TEXT, _TEXT),
    "sd_bus_message_is_method_error": (_HANDLE, _TEXT),
    "sd_bus_message_get_sender": (_HANDLE,),
    "sd_bus_message_unref": (_HANDLE,),
    "sd_bus_flush_close_unref": (_HANDLE,),
    "sd_bus_close_unref": (_HANDLE,),
}
_RESULTS: dict[str, Any] = {
    "sd_bus_message_get_sender": _TEXT,
    **dict.fromkeys(("sd_bus_message_unref", "sd_bus_flush_close_unref", "sd_bus_close_unref"), _HANDLE),
}


class Hint(NamedTuple):
    """Whether the machine counts as idle, and since when that is so: microseconds of CLOCK_MONOTONIC, 0 for unknown."""

    is_idle: bool
    since_us: int


def hint() -> Hint:
    """Ask for the hint of the whole machine: that of all sessions together, and of those who inhibit it.

    :raises OSError: as the library says; ``ENOENT`` where it is not installed.
    """
    library = _library()
    bus = _HANDLE()
    _checked(library.sd_bus_open_system(byref(bus)))
    try:
        with suppress(AttributeError):  # Since systemd 240.
            library.sd_bus_set_method_call_timeout(bus, TIMEOUT_US)
        is_idle, since_us = ctypes.c_int(), ctypes.c_uint64()
        for name, kind, value in ((b"IdleHint", b"b", is_idle), (b"IdleSinceHintMonotonic", b"t", since_us)):
            _checked(library.sd_bus_get_property_trivial(bus, *_WHERE, name, None, kind, byref(value)))
        return Hint(bool(is_idle.value), since_us.value)
    finally:
        library.sd_bus_flush_close_unref(bus)


class SleepDelay:
    """Holds a lock of the kind *delay* while logind is on the bus: a suspend waits until it is released.

    It never waits for a bus, nor starts one, nor logind.
    """

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        """``address``: of the bus; ``system`` for that of the machine. ``say``: hears, once, why nothing is held."""
        self._address = address
        self._say = say
        self._said = ""
        self._bus = _HANDLE()
        self._asked = ctypes.c_uint64()
        self._logind = b""
        self._lock = _CLOSED
        # A lock that a child has, too, is held until that ends.
        os.register_at_fork(after_in_child=self.release)

    def connect(self) -> None:
        """Connect where that is not so and there is a bus, and ask for the lock; what comes of it is heard."""
        if self._bus.value:
            return
        try:
            library = _library()
        except OSError as missing:
            self._complain(str(missing.strerror))
            return
        bus = _HANDLE()
        try:
            if self._address == "system":
                _checked(library.sd_bus_open_system(byref(bus)))
            else:
                _checked(library.sd_bus_new(byref(bus)))
                _checked(library.sd_bus_set_address(bus, self._address.encode()))
                _checked(library.sd_bus_set_bus_client(bus, 1))
                _checked(library.sd_bus_start(bus))
            self._bus = bus
            for rule in _RULES:
                self._call(_BUS, b"AddMatch", rule)
            self._ask()
        except OSError:
            library.sd_bus_close_unref(bus)
            self._bus = _HANDLE()

    def waits_for(self) -> tuple[list[int], list[int]]:
        """The descriptors to wait on until they can be read, and written."""
        if not self._bus.value:
            return [], []
        descriptor, events = _library().sd_bus_get_fd(self._bus), _library().sd_bus_get_events(self._bus)
        return [descriptor], [descriptor] if events > 0 and events & select.POLLOUT else []

    def hear(self) -> bool:
        """Take what has come; whether a suspend waits now for ``release``."""
        is_waited_for = False
        message = _HANDLE()
        try:
            for _ in range(MESSAGES_MAX):
                if not self._bus.value or not _checked(_library().sd_bus_process(self._bus, byref(message))):
                    break
                if message.value:
                    try:
                        is_waited_for = self._take(message, is_waited_for=is_waited_for)
                    finally:
                        _library().sd_bus_message_unref(message)
        except OSError:  # The bus is gone, and whoever held a lock by it with it; it is tried again.
            self.close()
        return is_waited_for

    def release(self) -> None:
        """Let the machine sleep."""
        if self._lock != _CLOSED:
            os.close(self._lock)
            self._lock = _CLOSED

    def close(self) -> None:
        """Hold nothing and hear nothing any more."""
        self.release()
        if self._bus.value:
            _library().sd_bus_close_unref(self._bus)
        self._bus, self._logind = _HANDLE(), b""

    def _take(self, message: ctypes.c_void_p, *, is_waited_for: bool) -> bool:
        """Take one message; whether after it a suspend waits. Anybody may send a signal: of whom it is counts."""
        library = _library()
        answered = ctypes.c_uint64()
        sender = library.sd_bus_message_get_sender(message) or b""
        if library.sd_bus_message_get_reply_cookie(message, byref(answered)) >= 0:
            if self._asked.value and answered.value == self._asked.value:
                self._answered(message, sender)
        elif sender == _BUS[0] and library.sd_bus_message_is_signal(message, _BUS[2], b"NameOwnerChanged") > 0:
            _, _, owner = (_read(message, b"s", _TEXT()) for _ in range(3))
            self._logind = b""
            self.release()
            if owner:
                self._ask()
            return False
        elif (
            self._logind
            and sender == self._logind
            and library.sd_bus_message_is_signal(message, _WHERE[2], b"PrepareForSleep") > 0
        ):
            if _read(message, b"b", ctypes.c_int()):
                return True
            self.release()
            self._ask()
            return False
        return is_waited_for

    def _answered(self, message: ctypes.c_void_p, sender: bytes) -> None:
        """Take the lock that was asked for, or hear why there is none."""
        self._asked.value = 0
        if _library().sd_bus_message_is_method_error(message, None) > 0:
            if not any(_library().sd_bus_message_is_method_error(message, name) > 0 for name in _NOT_THERE):
                self._complain(f"logind: {os.fsdecode(_read(message, b's', _TEXT()) or b'refused')}")
            return
        self.release()
        # The message closes its own.
        self._lock = os.dup(_read(message, b"h", ctypes.c_int()))
        self._logind = sender

    def _ask(self) -> None:
        self._asked.value = self._call(_WHERE, b"Inhibit", *_LOCK)

    def _call(self, where: tuple[bytes, bytes, bytes], member: bytes, *texts: str) -> int:
        """Send a call, and give the number by which its answer is known."""
        library, message, cookie = _library(), _HANDLE(), ctypes.c_uint64()
        _checked(library.sd_bus_message_new_method_call(self._bus, byref(message), *where, member))
        try:
            _checked(library.sd_bus_message_set_auto_start(message, 0))
            for text in texts:
                _checked(library.sd_bus_message_append_basic(message, b"s", text.encode()))
            _checked(library.sd_bus_send(self._bus, message, byref(cookie)))
        finally:
            library.sd_bus_message_unref(message)
        return cookie.value

    def _complain(self, why: str) -> None:
        if why != self._said:
            self._say(f"a suspend does not wait for the flush before it: {why}")
        self._said = why


def _read(message: ctypes.c_void_p, kind: bytes, into: Any) -> Any:  # noqa: ANN401  what the kind is in C
    """Read the next argument of a message."""
    _checked(_library().sd_bus_message_read_basic(message, kind, byref(into)))
    return into.value


@cache
def _library() -> ctypes.CDLL:
    for soname in SONAMES:
        with suppress(OSError):
            library = ctypes.CDLL(soname)
            for name, arguments in _PROTOTYPES.items():
                with suppress(AttributeError):  # An old one has not all.
                    function = getattr(library, name)
                    function.argtypes, function.restype = arguments, _RESULTS.get(name, _INTEGER)
            return library
    raise FileNotFoundError(2, f"no {' or '.join(SONAMES)}")


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, f"logind: {os.strerror(-result)}")
    return result
