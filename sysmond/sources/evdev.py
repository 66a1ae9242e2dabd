# SPDX-License-Identifier: Apache-2.0
"""What people do with keyboards, mice and touchpads, as counts: never which keys, never where.

Source: the kernel's ``Documentation/input/event-codes.rst``, ``include/uapi/linux/input.h``, ``drivers/input/evdev.c``.
What is not counted is masked in the kernel (EVIOCSMASK, Linux 4.4), so it neither comes nor wakes. What comes stands in
one buffer until it is counted, and zeros are written over it. A thread waits for it without a limit, and
drains at most ``DRAINS_S`` times a second: the kernel keeps 64 events of a keyboard, 128 of a mouse.
"""

import fcntl
import os
import select
from array import array
from collections.abc import Iterator
from contextlib import suppress
from math import hypot
from struct import Struct, calcsize
from threading import Lock, Thread
from time import CLOCK_MONOTONIC, sleep

from sysmond.base.clock import SECOND_NS, boottime_ns
from sysmond.probe import ABSENT, Absence, Cause, Host, Row
from sysmond.sources.unread import printable, why

FOLDER = "/sys/class/input"
NODES = "/dev/input"
DEVICES_MAX = 64
DRAINS_S = 60
EVENTS_MAX = 256
# How often a device is read in one drain at most.
READS_MAX = 16

EV_SYN, EV_KEY, EV_REL, EV_ABS = range(4)
SYN_REPORT, SYN_DROPPED = 0, 3
REL_X, REL_Y, REL_HWHEEL, REL_WHEEL = 0x00, 0x01, 0x06, 0x08
ABS_X, ABS_Y = 0x00, 0x01
BTN_LEFT, BTN_TOUCH = 0x110, 0x14A

# How many codes a type has, and of the type EV_SYN how many types there are.
_CODES_MAX = {EV_SYN: 0x20, EV_KEY: 0x300, EV_REL: 0x10, EV_ABS: 0x40}
_NAMES = {EV_KEY: "key", EV_REL: "rel", EV_ABS: "abs"}


def _bits(*ranges: range) -> int:
    return sum(1 << code for codes in ranges for code in codes)


_POINTER, _WHEELS = _bits(range(REL_X, REL_Y + 1)), _bits(range(REL_HWHEEL, REL_HWHEEL + 1), range(REL_WHEEL, 9))
_PLACE = _bits(range(ABS_X, ABS_Y + 1))
# Of mice, joysticks, game pads and styluses; those between say what touches a surface, and with how many fingers.
_BUTTONS = _bits(
    range(0x100, 0x140), range(0x149, 0x14A), range(0x14B, 0x14D), range(0x150, 0x160), range(0x220, 0x224),
    range(0x2C0, 0x300),
)  # fmt: skip
_KEYS = _bits(range(1, 0x100), range(0x160, 0x300)) & ~_BUTTONS
_IS_KEY, _IS_BUTTON = (bytes(bits >> code & 1 for code in range(1 << 10)) for bits in (_KEYS, _BUTTONS))
_COUNTED = {EV_KEY: _KEYS | _BUTTONS | 1 << BTN_TOUCH, EV_REL: _POINTER | _WHEELS, EV_ABS: _PLACE}

_LONG_BYTES = calcsize("@L")
_EVENT = Struct(f"@{2 * _LONG_BYTES}xHHi")  # When, which is skipped; type, code, value (struct input_event).
_AXIS = Struct("@6i")  # Value, least, largest, fuzz, flat, units in a millimetre (struct input_absinfo).
_MASK = Struct("@IIQ")  # Type, length, and where the bits are (struct input_mask).
EVIOCSMASK = 1 << 30 | _MASK.size << 16 | ord("E") << 8 | 0x93
_TIME, _INT = Struct("@LL"), Struct("@i")  # Seconds and microseconds; a clock.
EVIOCSCLOCKID = 1 << 30 | _INT.size << 16 | ord("E") << 8 | 0xA0
EVIOCGABS = 2 << 30 | _AXIS.size << 16 | ord("E") << 8 | 0x40

Codes = dict[int, int]
"""By the type of events their codes, as bits."""


def codes_of(host: Host, node: str) -> Codes:
    """What of a device, as ``event3``, is counted.

    :raises OSError: where it is gone.
    :raises ValueError: where the kernel does not say what it has.
    """
    folder = f"{FOLDER}/{node}/device/capabilities"
    codes = {kind: _capable(host.read_anew(f"{folder}/{name}")) & _COUNTED[kind] for kind, name in _NAMES.items()}
    is_surface = codes[EV_KEY] >> BTN_TOUCH & 1 or codes[EV_KEY] >> BTN_LEFT & 1
    if not is_surface or codes[EV_ABS] != _PLACE or codes[EV_REL] & _POINTER:
        codes[EV_ABS] = 0  # A stick has places, too, but goes nowhere.
    return codes


def _capable(content: bytes) -> int:
    """A bitmap as the kernel prints it: words of the size of a long, the most significant first."""
    bits = 0
    for word in content.split()[: 0x300 // 32]:
        bits = bits << 8 * _LONG_BYTES | int(word, 16)
    return bits


def mask(descriptor: int, codes: Codes) -> None:
    """Have the kernel keep from a descriptor all events but these.

    :raises OSError: as the kernel says; ``EINVAL`` where it cannot.
    """
    types = sum(1 << kind for kind, bits in codes.items() if bits)
    for kind, bits in ((EV_SYN, types), *codes.items()):
        words = range(0, max(_CODES_MAX[kind], 64), 8 * _LONG_BYTES)
        packed = array("L", [bits >> at & (1 << 8 * _LONG_BYTES) - 1 for at in words])
        address, length = packed.buffer_info()
        fcntl.ioctl(descriptor, EVIOCSMASK, _MASK.pack(kind, length * _LONG_BYTES, address))


class Device:
    """One device and its counts; ``row``: the last one that was given of it."""

    def __init__(self, name: str, descriptor: int, codes: Codes) -> None:
        """Count from nothing. ``codes``: what comes of it."""
        self.name = name
        self.descriptor = descriptor
        self._codes = codes
        self._has_touch = bool(codes[EV_KEY] >> BTN_TOUCH & 1)
        self._has_place = bool(codes[EV_ABS])
        self._keys = self._buttons = self._steps = self._touches = 0
        self._moved = self._stroked_m = 0.0
        self._dx = self._dy = 0
        self._x = self._y = self._from_x = self._from_y = 0
        self._units_m = self._resolution() if self._has_place else (0, 0)
        # Where a movement began is not known, because of a touch that is new, or a loss.
        self._is_new = True
        self._is_touched = not self._has_touch
        self._is_lost = self._is_stale = False
        self.row: Absence | tuple[int, ...] = self._counts()

    def take(self, events: memoryview) -> None:
        """Count whole events; a number in them is forgotten as soon as it is counted."""
        for kind, code, value in _EVENT.iter_unpack(events):
            if self._is_stale:  # What follows a loss is the end of something.
                self._is_stale = kind != EV_SYN or code != SYN_REPORT
            elif kind == EV_REL:
                self._shift(code, value)
            elif kind == EV_SYN:
                self._end_frame(code)
            elif kind == EV_KEY:
                self._press(code, value)
            elif kind == EV_ABS:
                self._place(code, value)

    def tell(self) -> None:
        """Have what is counted by now be what is told; unknown, where the kernel dropped events."""
        lost = Absence(Cause.DROPPED, "more events than the kernel keeps")
        self.row = lost if self._is_lost else self._counts()
        self._is_lost = False

    def _counts(self) -> tuple[int, ...]:
        """Keys, buttons, steps, units of the pointer, touches, micrometres of touch; ABSENT what it has none of."""
        keys, moves = self._codes[EV_KEY], self._codes[EV_REL]
        points = moves & _POINTER or (self._has_place and not self._has_touch)
        return (
            self._keys if keys & _KEYS else ABSENT,
            self._buttons if keys & _BUTTONS else ABSENT,
            self._steps if moves & _WHEELS else ABSENT,
            round(self._moved) if points else ABSENT,
            self._touches if self._has_touch else ABSENT,
            round(self._stroked_m * 1e6) if self._has_touch and all(self._units_m) else ABSENT,
        )

    def _resolution(self) -> tuple[int, int]:
        """How many units of each axis are a metre, 0 where the device does not say; and where it was touched last."""
        answers = []
        for axis in (ABS_X, ABS_Y):
            try:
                answers.append(_AXIS.unpack(fcntl.ioctl(self.descriptor, EVIOCGABS + axis, bytes(_AXIS.size))))
            except OSError:
                return 0, 0
        (self._x, *_, per_mm_x), (self._y, *_, per_mm_y) = answers
        return max(0, per_mm_x) * 1000, max(0, per_mm_y) * 1000

    def _shift(self, code: int, by: int) -> None:
        if code == REL_X:
            self._dx += by
        elif code == REL_Y:
            self._dy += by
        elif code in (REL_WHEEL, REL_HWHEEL):
            self._steps += abs(by)

    def _place(self, code: int, value: int) -> None:
        if code == ABS_X:
            self._x = value
        elif code == ABS_Y:
            self._y = value

    def _press(self, code: int, value: int) -> None:
        if code == BTN_TOUCH:
            self._is_touched = self._is_new = value == 1
        if value == 1:  # Not what is let go, nor what repeats.
            self._keys += _IS_KEY[code & 0x3FF]
            self._buttons += _IS_BUTTON[code & 0x3FF]
            self._touches += code == BTN_TOUCH

    def _end_frame(self, code: int) -> None:
        if code == SYN_DROPPED:
            self._is_lost = self._is_stale = self._is_new = True
        elif self._dx or self._dy:
            self._moved += hypot(self._dx, self._dy)
        elif self._has_place and self._is_touched:
            if not self._is_new:
                self._go(self._x - self._from_x, self._y - self._from_y)
            self._from_x, self._from_y, self._is_new = self._x, self._y, False
        self._dx = self._dy = 0

    def _go(self, dx: int, dy: int) -> None:
        if not self._has_touch:
            self._moved += hypot(dx, dy)
        elif all(self._units_m):
            self._stroked_m += hypot(dx / self._units_m[0], dy / self._units_m[1])


def _nodes(host: Host) -> list[str]:
    return [name for name in host.names(FOLDER) if name.startswith("event")]


def _opened(host: Host, node: str, codes: Codes) -> int:
    """Open a device for these codes alone.

    :raises OSError: as the kernel says.
    """
    descriptor = os.open(f"{host.root}{NODES}/{node}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mask(descriptor, codes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Counting:
    """Counts what comes of all devices, from the first reading on until the host is closed.

    What is told changes once in a period, however often it is read: short ones tell the length of a password.
    """

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._devices: dict[str, Device] = {}
        self._lock = Lock()
        self._period = -1
        self._thread: _Draining | None = None

    def read(self, host: Host, *, period_s: int = 60) -> Iterator[Row]:
        """Give a row for each device that has anything to count."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = _Draining(self._devices, self._lock)
            self._thread.start()
            host.at_close(self._thread.stop)
        lacking = self._look(host, self._thread)
        period = boottime_ns() // (period_s * SECOND_NS)
        with self._lock:
            if period != self._period:
                self._period = period
                for device in self._devices.values():
                    device.tell()
            rows = {node: (device.name, device.row) for node, device in self._devices.items()}
        yield from _distinct(host, {**rows, **lacking})

    def _look(self, host: Host, thread: "_Draining") -> dict[str, tuple[str, Absence]]:
        """Open what has come and let go what has left; gives what could not be opened, by node."""
        nodes = _nodes(host)
        thread.let_go(self._devices.keys() - set(nodes))
        lacking = {}
        for node in [node for node in nodes if node not in self._devices][: DEVICES_MAX - len(self._devices)]:
            name = node
            try:
                codes = codes_of(host, node)
                if not any(codes.values()):
                    continue
                name = printable(host.read_anew(f"{FOLDER}/{node}/device/name")) or node
                if host.is_asleep(f"{FOLDER}/{node}/device"):
                    lacking[node] = name, Absence(Cause.ASLEEP)
                else:
                    thread.add(node, Device(name, _opened(host, node, codes), codes))
            except (OSError, ValueError) as problem:
                lacking[node] = name, why(node, problem)
        return lacking


class _Draining(Thread):
    """Waits for events and has them counted; it alone reads and closes the devices."""

    def __init__(self, devices: dict[str, Device], lock: Lock) -> None:
        super().__init__(name="input", daemon=True)
        self._devices = devices
        self._lock = lock
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._is_over = False
        self._buffer = memoryview(bytearray(EVENTS_MAX * _EVENT.size))
        self._zeros = memoryview(bytes(EVENTS_MAX * _EVENT.size))

    def add(self, node: str, device: Device) -> None:
        """Drain a device from now on; what came before it was masked does not count."""
        with self._lock:
            self._drain(device, is_counted=False)
            self._devices[node] = device
            self._epoll.register(device.descriptor, select.EPOLLIN)

    def let_go(self, nodes: set[str]) -> None:
        """Close devices."""
        with self._lock:
            for node in nodes:
                if device := self._devices.pop(node, None):
                    os.close(device.descriptor)

    def stop(self) -> None:
        """Close all of them, and end."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        """Drain what is ready, and rest for a moment."""
        try:
            while not self._is_over:
                ready = {descriptor for descriptor, _ in self._epoll.poll()}
                with self._lock:
                    gone = {
                        node
                        for node, device in self._devices.items()
                        if device.descriptor in ready and not self._drain(device)
                    }
                self.let_go(gone)
                sleep(1 / DRAINS_S)
        finally:
            self.let_go(set(self._devices))
            with self._lock:
                self._is_over = True
                self._epoll.close()
                os.close(self._bell)

    def _drain(self, device: Device, *, is_counted: bool = True) -> bool:
        """Read and count what a device has; whether it is still there."""
        for _ in range(READS_MAX):
            size = 0
            try:
                size = os.readv(device.descriptor, (self._buffer,))
                if is_counted:
                    device.take(self._buffer[: size - size % _EVENT.size])
            except BlockingIOError:
                return True
            except OSError:
                return False
            finally:
                self._buffer[:size] = self._zeros[:size]
            if size < len(self._buffer):
                return size > 0
        return True


class LastInput:
    """When anything was last done with any device. The kernel keeps the newest event of each: nobody waits for it."""

    def __init__(self) -> None:
        """Nothing is open yet, and nothing known."""
        self._descriptors: dict[str, int] = {}
        self._last_us: int | None = None
        self._buffer = bytearray(EVENTS_MAX * _EVENT.size)

    def read(self, host: Host) -> int | None:
        """Give microseconds of CLOCK_MONOTONIC; None where nothing was done since the first reading."""
        if not self._descriptors:
            host.at_close(self.close)
        nodes = _nodes(host)
        for node in self._descriptors.keys() - set(nodes):
            os.close(self._descriptors.pop(node))
        for node in [node for node in nodes if node not in self._descriptors][: DEVICES_MAX - len(self._descriptors)]:
            with suppress(OSError, ValueError):
                codes = codes_of(host, node)
                if any(codes.values()) and not host.is_asleep(f"{FOLDER}/{node}/device"):
                    self._descriptors[node] = _opened(host, node, codes)
                    by_monotonic(self._descriptors[node])
        for node, descriptor in list(self._descriptors.items()):
            if not self._drain(descriptor):
                os.close(self._descriptors.pop(node))
        return self._last_us

    def close(self) -> None:
        """Close the devices."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _drain(self, descriptor: int) -> bool:
        """Note the time of the newest event; whether the device is still there."""
        for _ in range(READS_MAX):
            try:
                size = os.readv(descriptor, (self._buffer,))
            except BlockingIOError:
                return True
            except OSError:
                return False
            if size < _EVENT.size:
                return True
            seconds, microseconds = _TIME.unpack_from(self._buffer, size // _EVENT.size * _EVENT.size - _EVENT.size)
            self._last_us = max(self._last_us or 0, seconds * 1_000_000 + microseconds)
            self._buffer[:] = bytes(len(self._buffer))
        return True


def by_monotonic(descriptor: int) -> None:
    """Have the events of a descriptor dated by CLOCK_MONOTONIC; the queue is emptied with that.

    :raises OSError: as the kernel says.
    """
    fcntl.ioctl(descriptor, EVIOCSCLOCKID, _INT.pack(CLOCK_MONOTONIC))


def _distinct(host: Host, rows: dict[str, tuple[str, Absence | tuple[int, ...]]]) -> Iterator[Row]:
    """Give rows by name; those of one name with where each is connected, or with the number it has now."""
    names = [name for name, _ in rows.values()]
    known: set[str] = set()
    for node, (name, row) in sorted(rows.items()):
        called = name
        if names.count(name) > 1:
            where = b""
            with suppress(OSError):
                where = host.read_anew(f"{FOLDER}/{node}/device/phys")
            called = f"{name} ({printable(where) or node})"
        if called in known:
            called = f"{name} ({node})"
        known.add(called)
        yield called, row
