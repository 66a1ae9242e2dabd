# SPDX-License-Identifier: Apache-2.0
"""What logind knows of whether anybody uses the machine, asked over D-Bus by the library that comes with it.

Source: org.freedesktop.login1(5), sd_bus_open_system(3), sd_bus_get_property(3). A connection lives for one question.
"""

import ctypes
from contextlib import suppress
from functools import cache
from os import strerror
from typing import NamedTuple

FOLDER = "/run/systemd/seats"
SONAMES = ("libsystemd.so.0", "libelogind.so.0")
TIMEOUT_US = 2_000_000
_WHERE = (b"org.freedesktop.login1", b"/org/freedesktop/login1", b"org.freedesktop.login1.Manager")
_TEXT, _HANDLE = ctypes.c_char_p, ctypes.c_void_p
_PROTOTYPES = {
    "sd_bus_open_system": (ctypes.POINTER(_HANDLE),),
    "sd_bus_get_property_trivial": (_HANDLE, _TEXT, _TEXT, _TEXT, _TEXT, _HANDLE, ctypes.c_char, _HANDLE),
    "sd_bus_set_method_call_timeout": (_HANDLE, ctypes.c_uint64),
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
    _checked(library.sd_bus_open_system(ctypes.byref(bus)))
    try:
        with suppress(AttributeError):  # Since systemd 240.
            library.sd_bus_set_method_call_timeout(bus, TIMEOUT_US)
        is_idle, since_us = ctypes.c_int(), ctypes.c_uint64()
        for name, kind, value in ((b"IdleHint", b"b", is_idle), (b"IdleSinceHintMonotonic", b"t", since_us)):
            _checked(library.sd_bus_get_property_trivial(bus, *_WHERE, name, None, kind, ctypes.byref(value)))
        return Hint(bool(is_idle.value), since_us.value)
    finally:
        library.sd_bus_flush_close_unref(bus)


@cache
def _library() -> ctypes.CDLL:
    for soname in SONAMES:
        with suppress(OSError):
            library = ctypes.CDLL(soname)
            for name, arguments in _PROTOTYPES.items():
                with suppress(AttributeError):
                    getattr(library, name).argtypes = arguments
            library.sd_bus_flush_close_unref.argtypes = (_HANDLE,)
            library.sd_bus_flush_close_unref.restype = _HANDLE
            return library
    raise FileNotFoundError(2, f"no {' or '.join(SONAMES)}")


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(-result, f"logind: {strerror(-result)}")
