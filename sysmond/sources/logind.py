# SPDX-License-Identifier: Apache-2.0
"""What logind knows of whether anybody uses the machine, and its suspends.

Source: org.freedesktop.login1(5), by ``sysmond.sources.sd_bus``. For a question there is a connection that lives no
longer.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref
from typing import NamedTuple

from sysmond.sources.sd_bus import BUS, LOGIND, TIMEOUT_US, SdBus, SdMessage, checked, library, opened_system

FOLDER = "/run/systemd/seats"
_RULES = (
    f"type='signal',sender='{LOGIND[0]}',interface='{LOGIND[2]}',member='PrepareForSleep'",
    f"type='signal',sender='{BUS[0]}',member='NameOwnerChanged',arg0='{LOGIND[0]}'",
)
# What, who, why and mode of org.freedesktop.login1.Manager.Inhibit().
_LOCK = ("sleep", "sysmond", "writes to the disk", "delay")
# Nobody who may hold such a lock at all: another reason is worth a word.
_NOT_THERE = ("org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner")
MESSAGES_MAX = 64
_CLOSED = -1


class Hint(NamedTuple):
    """Whether the machine counts as idle, and since when that is so: microseconds of CLOCK_MONOTONIC, 0 for unknown."""

    is_idle: bool
    since_us: int


def hint() -> Hint:
    """Ask for the hint of the whole machine: that of all sessions together, and of those who inhibit it.

    :raises OSError: as the library says; ``ENOENT`` where it is not installed.
    """
    functions = library()
    where = [name.encode() for name in LOGIND]
    bus = opened_system(functions)
    try:
        with suppress(AttributeError):  # Since systemd 240.
            functions.sd_bus_set_method_call_timeout(bus, TIMEOUT_US)
        is_idle, since_us = ctypes.c_int(), ctypes.c_uint64()
        for name, kind, value in ((b"IdleHint", b"b", is_idle), (b"IdleSinceHintMonotonic", b"t", since_us)):
            checked(functions.sd_bus_get_property_trivial(bus, *where, name, None, kind, byref(value)))
        return Hint(bool(is_idle.value), since_us.value)
    finally:
        functions.sd_bus_flush_close_unref(bus)


class SleepDelay:
    """Holds a lock of the kind *delay* while logind is on the bus: a suspend waits until it is released.

    It never waits for a bus, nor starts one, nor logind.
    """

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        """``address``: of the bus; ``system`` for that of the machine. ``say``: hears, once, why nothing is held."""
        self._address = address
        self._say = say
        self._said = ""
        self._bus: SdBus | None = None
        self._asked = 0
        self._logind = ""
        self._lock = _CLOSED
        # A lock that a child has, too, is held until that ends.
        os.register_at_fork(after_in_child=self.release)

    def connect(self) -> None:
        """Connect where that is not so and there is a bus, and ask for the lock; what comes of it is heard."""
        if self._bus is not None:
            return
        try:
            library()
        except OSError as missing:
            self._complain(str(missing.strerror))
            return
        try:
            self._bus = SdBus(self._address)
            for rule in _RULES:
                self._bus.send(BUS, "AddMatch", rule)
            self._ask(self._bus)
        except OSError:
            self.close()

    def waits_for(self) -> tuple[list[int], list[int]]:
        """The descriptors to wait on until they can be read, and written."""
        if self._bus is None:
            return [], []
        descriptor = self._bus.fileno()
        return [descriptor], [descriptor] if self._bus.wants_to_write() else []

    def hear(self) -> bool:
        """Take what has come; whether a suspend waits now for ``release``."""
        is_waited_for = False
        try:
            if (bus := self._bus) is not None:
                for message in bus.messages(MESSAGES_MAX):
                    is_waited_for = self._take(bus, message, is_waited_for=is_waited_for)
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
        bus, self._bus, self._logind = self._bus, None, ""
        if bus is not None:
            bus.close()

    def _take(self, bus: SdBus, message: SdMessage, *, is_waited_for: bool) -> bool:
        """Take one message; whether after it a suspend waits. Anybody may send a signal: of whom it is counts."""
        sender = message.sender
        if answered := message.answers:
            if answered == self._asked:
                self._answered(message, sender)
        elif sender == BUS[0] and message.is_signal(BUS[2], "NameOwnerChanged"):
            _, _, owner = (message.read("s") for _ in range(3))
            self._logind = ""
            self.release()
            if owner:
                self._ask(bus)
            return False
        elif self._logind and sender == self._logind and message.is_signal(LOGIND[2], "PrepareForSleep"):
            if message.read("b"):
                return True
            self.release()
            self._ask(bus)
            return False
        return is_waited_for

    def _answered(self, message: SdMessage, sender: str) -> None:
        """Take the lock that was asked for, or hear why there is none."""
        self._asked = 0
        if message.is_error():
            if not any(map(message.is_error, _NOT_THERE)):
                self._complain(f"logind: {message.read('s') or 'refused'}")
            return
        self.release()
        # The message closes its own.
        self._lock = os.dup(message.read("h"))
        self._logind = sender

    def _ask(self, bus: SdBus) -> None:
        self._asked = bus.send(LOGIND, "Inhibit", *_LOCK)

    def _complain(self, why: str) -> None:
        if why != self._said:
            self._say(f"a suspend does not wait for the flush before it: {why}")
        self._said = why
