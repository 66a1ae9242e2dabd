# SPDX-License-Identifier: Apache-2.0
"""libsensors: labels, ignored sensors and computed values as the administrator wrote them into /etc/sensors3.conf.

Source: libsensors(3), sensors.conf(5), ``sensors/sensors.h`` of lm-sensors 3.6. An expression of ``compute`` is known
to the library alone, so it reads each value itself: then it is by definition what sensors(1) prints, for some
microseconds a value. The library has one state for the whole process, so all tables share it. Several may
read at a time; it looks anew only while nobody reads, since pointers into it end then.
"""

import ctypes
import os
from functools import cache
from threading import Condition

SONAME = "libsensors.so.5"
# Bounds of what is believed of it.
CHIPS_MAX = 256
FEATURES_MAX = 1024
ATTRIBUTES_MAX = 64
# A driver that hangs keeps its reader in the library; for others to look anew this is how long they wait for it.
READERS_S = 1.0


class _Bus(ctypes.Structure):
    _fields_ = (("type", ctypes.c_short), ("number", ctypes.c_short))


class _Chip(ctypes.Structure):
    _fields_ = (("prefix", ctypes.c_char_p), ("bus", _Bus), ("address", ctypes.c_int), ("path", ctypes.c_char_p))


class _Feature(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("number", ctypes.c_int), ("type", ctypes.c_int))


_CHIP, _FEATURE, _COUNT = ctypes.POINTER(_Chip), ctypes.POINTER(_Feature), ctypes.POINTER(ctypes.c_int)
_PROTOTYPES = {
    "sensors_init": (ctypes.c_int, (ctypes.c_void_p,)),
    "sensors_cleanup": (None, ()),
    "sensors_get_detected_chips": (_CHIP, (_CHIP, _COUNT)),
    "sensors_get_features": (_FEATURE, (_CHIP, _COUNT)),
    "sensors_get_all_subfeatures": (_FEATURE, (_CHIP, _FEATURE, _COUNT)),
    "sensors_get_label": (ctypes.c_void_p, (_CHIP, _FEATURE)),
    "sensors_get_value": (ctypes.c_int, (_CHIP, ctypes.c_int, ctypes.POINTER(ctypes.c_double))),
}
Labels = dict[str, bytes]
"""Labels by feature, as ``temp1``, of those that are not ignored."""


class Library:
    """The library, and what it knows of the chips of this machine, by name in /sys/class/hwmon."""

    def __init__(self) -> None:
        """Load it.

        :raises OSError: where it is not installed, or another one.
        """
        self._c = ctypes.CDLL(SONAME)
        self._free = ctypes.CDLL(None).free
        self._free.argtypes, self._free.restype = (ctypes.c_void_p,), None
        for name, (result, arguments) in _PROTOTYPES.items():
            try:
                function = getattr(self._c, name)
            except AttributeError as missing:
                raise OSError(f"{SONAME}: has no {name}") from missing
            function.restype, function.argtypes = result, arguments
        self._readers = 0
        self._is_to_look = False
        self._turn = Condition()
        self._seen: object = None
        self._labels: dict[str, Labels] = {}
        self._numbers: dict[str, tuple[object, dict[str, int]]] = {}

    def labels(self, seen: object) -> dict[str, Labels]:
        """Give the labels of each chip. ``seen``: which chips there are; where that is another, it looks anew."""
        with self._turn:
            self._is_to_look = seen != self._seen
            if self._is_to_look and self._turn.wait_for(lambda: not self._readers, READERS_S):
                if self._seen is not None:
                    self._c.sensors_cleanup()
                self._seen, self._labels, self._numbers = seen, {}, {}
                if self._c.sensors_init(None) == 0:
                    self._look()
            self._is_to_look = False
            self._turn.notify_all()
            return self._labels

    def value(self, hwmon: str, attribute: str) -> float | None:
        """Read one attribute, as ``temp1_input``, computed as configured; None where it is unknown.

        :raises ValueError: where it could not be read or computed.
        """
        with self._turn:
            self._turn.wait_for(lambda: not self._is_to_look, READERS_S)
            chip, numbers = self._numbers.get(hwmon, (None, {}))
            if (number := numbers.get(attribute)) is None:
                return None
            self._readers += 1
        try:
            value = ctypes.c_double()
            if self._c.sensors_get_value(chip, number, value):
                raise ValueError(f"{attribute}: not read, or not computed")
            return value.value
        finally:
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    def _look(self) -> None:
        counted = ctypes.c_int(0)
        for _ in range(CHIPS_MAX):
            chip = self._c.sensors_get_detected_chips(None, counted)
            if not chip:
                return
            labels: Labels = {}
            numbers: dict[str, int] = {}
            at = ctypes.c_int(0)
            for _ in range(FEATURES_MAX):
                feature = self._c.sensors_get_features(chip, at)
                if not feature:
                    break
                labels[feature.contents.name.decode("ascii", "replace")] = self._label(chip, feature)
                numbers |= self._attributes(chip, feature)
            # Its path is that of the chip, or of the device in there, where an old driver has its attributes.
            path = os.fsdecode(chip.contents.path or b"").removesuffix("/device")
            hwmon = os.path.basename(path)
            self._labels[hwmon], self._numbers[hwmon] = labels, (chip, numbers)

    def _attributes(self, chip: object, feature: object) -> dict[str, int]:
        """Give the numbers of the attributes of a feature, by name."""
        numbers: dict[str, int] = {}
        at = ctypes.c_int(0)
        for _ in range(ATTRIBUTES_MAX):
            attribute = self._c.sensors_get_all_subfeatures(chip, feature, at)
            if not attribute:
                break
            numbers[attribute.contents.name.decode("ascii", "replace")] = attribute.contents.number
        return numbers

    def _label(self, chip: object, feature: object) -> bytes:
        text = self._c.sensors_get_label(chip, feature)
        if not text:
            return b""
        try:
            return ctypes.string_at(text)
        finally:
            self._free(text)


@cache
def library() -> Library | None:
    """The library of this process; None where it is not installed."""
    try:
        return Library()
    except OSError:
        return None
