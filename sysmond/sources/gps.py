# SPDX-License-Identifier: Apache-2.0
"""Where a receiver says that it is: gpsd by its JSON, or a serial device by sentences of NMEA 0183.

Source: gpsd_json(5); NMEA 0183 as Eric S. Raymond's "NMEA Revealed" describes it. What either says is
believed within bounds: of its length, of the time it takes, of each number.
"""

import json
import os
import re
import socket
import stat
import termios
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from errno import ECONNRESET, ENODEV
from functools import reduce
from operator import xor
from time import monotonic
from typing import Any, NamedTuple

from sysmond.probe import ABSENT
from sysmond.sources.unread import printable

GPSD_PORT = 2947
ANSWER_BYTES_MAX = 256 * 1024
RECEIVERS_MAX = 16
LOCALHOST = "127.0.0.1"
WAIT_S = 2.0
READ_BYTES = 4096
# What a serial device has said waits in the kernel, which keeps 64 KiB; the newest of it is enough.
READS_MAX, SAID_BYTES_MAX = 64, 8192
# The standard has 82 characters; some receivers say more.
SENTENCE_BYTES_MAX = 256
NO_FIX, FIX_2D, FIX_3D = 1, 2, 3
_WATCH, _ASK = b'?WATCH={"enable":true,"json":false};\n', b"?DEVICES;\n?POLL;\n"
_KNOT = Decimal(1852) / 3600
_SPEEDS = {int(name[1:]): getattr(termios, name) for name in dir(termios) if re.fullmatch(r"B[1-9]\d*", name)}


class Fix(NamedTuple):
    """What a receiver knows, ABSENT what it does not.

    ``mode``: 0 nothing yet, 1 no fix, 2 a position, 3 with its altitude. Degrees have 7 decimals, metres and metres a
    second 3, the error of the time 9 decimals of a second.
    """

    mode: int = 0
    latitude: int = ABSENT
    longitude: int = ABSENT
    altitude: int = ABSENT
    speed: int = ABSENT
    used: int = ABSENT
    seen: int = ABSENT
    time_error: int = ABSENT


def _number(value: object, digits: int, low: int, high: int) -> int:
    """A number in whole units of so many decimals; ABSENT where it is none, or lies outside the bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not low <= value <= high:
        return ABSENT
    return int((Decimal(value) * 10**digits).to_integral_value())


def _fix(mode: int, place: tuple[object, object, object, object], used: object, seen: object, error: object) -> Fix:
    """Put together what was told; without a fix there is no position, whatever else is said."""
    latitude, longitude, altitude, speed = place
    has_place = mode in (FIX_2D, FIX_3D)
    return Fix(
        mode,
        _number(latitude, 7, -90, 90) if has_place else ABSENT,
        _number(longitude, 7, -180, 180) if has_place else ABSENT,
        _number(altitude, 3, -100_000, 100_000_000) if mode == FIX_3D else ABSENT,
        _number(speed, 3, 0, 100_000) if has_place else ABSENT,
        _number(used, 0, 0, 1000),
        _number(seen, 0, 0, 1000),
        _number(error, 9, 0, 1000),
    )


# --- gpsd


class Gpsd:
    """The gpsd of this machine, held while somebody reads: it keeps the receivers on for that long."""

    def __init__(self) -> None:
        """Ask nobody yet."""
        self._socket: socket.socket | None = None
        self._heard = b""

    def fixes(self, port: int) -> dict[str, Fix]:
        """Ask for all receivers, by their devices.

        :raises OSError: as the kernel says; ``ECONNREFUSED`` where there is none, ``TimeoutError`` where it is silent.
        :raises ValueError: where it says what is no answer, or too much.
        """
        try:
            if self._socket is None:
                self._socket = socket.create_connection((LOCALHOST, port), WAIT_S)
                self._socket.sendall(_WATCH)
            self._socket.sendall(_ASK)
            known: dict[str, Fix] = {}
            for answer in self._answers(self._socket, monotonic() + WAIT_S):
                if answer.get("class") == "DEVICES":
                    known = dict.fromkeys((_device(each) for each in _objects(answer, "devices")), Fix())
                elif answer.get("class") == "POLL":
                    known |= _polled(answer)
                    break
        except (OSError, ValueError):
            self.close()
            raise
        return dict(list(known.items())[:RECEIVERS_MAX])

    def close(self) -> None:
        """Let it go."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._heard = None, b""

    def _answers(self, gpsd: socket.socket, until_s: float) -> Iterator[dict[str, Any]]:
        """What it says, line by line, for as long as it may take and as much as it may be."""
        total = 0
        while True:
            while b"\n" in self._heard:
                line, _, self._heard = self._heard.partition(b"\n")
                yield _parsed(line)
            gpsd.settimeout(max(0.001, until_s - monotonic()))
            received = gpsd.recv(READ_BYTES)
            if not received:
                raise ConnectionResetError(ECONNRESET, "gpsd: it ended the connection")
            self._heard += received
            total += len(received)
            if total > ANSWER_BYTES_MAX:
                raise ValueError(f"gpsd: more than {ANSWER_BYTES_MAX} bytes")


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, InvalidOperation):
        answer = None
    if isinstance(answer, dict):
        return answer
    raise ValueError(f"gpsd: {line[:40]!r}; expected an object of JSON")


def _refuse(word: str) -> None:
    raise ValueError(word)


def _objects(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list, as far as they are any."""
    items = answer.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _device(report: dict[str, Any]) -> str:
    name = report.get("path", report.get("device"))
    return (printable(name.encode("utf-8", "replace")) if isinstance(name, str) else "") or "gpsd"


def _polled(answer: dict[str, Any]) -> dict[str, Fix]:
    """What the answer to a poll has, by device."""
    skies: dict[str, tuple[object, object]] = {}
    for sky in _objects(answer, "sky"):
        satellites = _objects(sky, "satellites")
        if satellites or "uSat" in sky:
            used = sky.get("uSat", sum(each.get("used") is True for each in satellites))
            skies[_device(sky)] = used, sky.get("nSat", len(satellites))
    fixes = {}
    for report in _objects(answer, "tpv"):
        mode = _number(report.get("mode"), 0, 0, FIX_3D)
        used, seen = skies.get(_device(report), (None, None))
        altitude = report.get("altMSL", report.get("alt"))
        place = report.get("lat"), report.get("lon"), altitude, report.get("speed")
        fixes[_device(report)] = _fix(max(mode, 0), place, used, seen, report.get("ept"))
    return fixes


# --- NMEA


class Serial:
    """A serial device that says sentences, held while somebody reads: what it says meanwhile waits in the kernel."""

    def __init__(self) -> None:
        """Listen to nothing yet."""
        self._descriptor = -1

    @property
    def is_open(self) -> bool:
        """Whether it is listened to."""
        return self._descriptor >= 0

    def fix(self, path: str, speed: int) -> Fix:
        """Give what has been said since the reading before. ``speed``: bits a second, 0 as it is.

        :raises OSError: as the kernel says, at the latest when the device is gone.
        :raises ValueError: where it is no serial device, has no such speed, or says nothing that is NMEA.
        """
        try:
            if not self.is_open:
                self._descriptor = _opened(path, speed)
                return Fix()
            said = Sentences()
            for line in self._said().split(b"\n"):
                said.take(line)
            return said.fix()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let it go."""
        if self.is_open:
            os.close(self._descriptor)
        self._descriptor = -1

    def _said(self) -> bytes:
        """What waits, and of much the end."""
        said = b""
        for _ in range(READS_MAX):
            try:
                received = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not received:
                raise OSError(ENODEV, "it hung up")
            said = (said + received)[-SAID_BYTES_MAX:]
        return said


def _opened(path: str, speed: int) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _prepare(descriptor, path, speed)
    except ValueError:
        os.close(descriptor)
        raise
    return descriptor


def _prepare(descriptor: int, path: str, speed: int) -> None:
    """Make a serial device pass on what comes, unchanged and without an echo; of what has come before, nothing."""
    if not stat.S_ISCHR(os.fstat(descriptor).st_mode) or not os.isatty(descriptor):
        raise ValueError(f"{path}: expected a serial device")
    if speed and speed not in _SPEEDS:
        raise ValueError(f"{path}: a speed of {speed}; expected one such as 4800, 9600 or 115200")
    with suppress(termios.error):  # What cannot be set is not needed by all.
        _, _, control, _, coming, going, marks = termios.tcgetattr(descriptor)
        control = control & ~(termios.CSIZE | termios.PARENB | termios.HUPCL)
        control |= termios.CS8 | termios.CREAD | termios.CLOCAL
        coming = _SPEEDS.get(speed, coming)
        going = _SPEEDS.get(speed, going)
        termios.tcsetattr(descriptor, termios.TCSANOW, [0, 0, control, 0, coming, going, marks])
        termios.tcflush(descriptor, termios.TCIFLUSH)


class Sentences:
    """What sentences have said so far."""

    def __init__(self) -> None:
        """Nothing was said."""
        self._said: dict[str, list[str]] = {}
        self._seen: dict[str, int] = {}
        self._time, self._is_later = "", True

    def take(self, line: bytes) -> None:
        """Take a line in; one that was garbled on its way, or is no sentence, says nothing."""
        fields = fields_of(line)
        if fields is None:
            return
        talker, kind = fields[0][:-3], fields[0][-3:]
        if kind in ("GGA", "RMC"):
            self._is_later = self._is_later or _field(fields, 1) != self._time
            self._time = _field(fields, 1)
            self._said[kind] = fields
        elif kind == "GSA" and (self._is_later or _field(fields, 2) > _field(self._said.get(kind, []), 2)):
            self._said[kind], self._is_later = fields, False  # The best, of one for each constellation.
        elif kind == "GSV" and _field(fields, 3).isdecimal():
            self._seen[talker] = int(_field(fields, 3)[:4])

    def fix(self) -> Fix:
        """What they say together.

        :raises ValueError: where there was none.
        """
        if not self._said:
            raise ValueError("no sentence of NMEA since the reading before")
        gga, rmc, gsa = (self._said.get(kind, []) for kind in ("GGA", "RMC", "GSA"))
        place = gga[2:6] if gga else rmc[3:7]
        altitude, knots = _decimal(_field(gga, 9)), _decimal(_field(rmc, 7))
        is_fixed = _field(gga, 6) not in ("", "0") if gga else _field(rmc, 2) == "A"
        mode = {"1": NO_FIX, "2": FIX_2D, "3": FIX_3D}.get(_field(gsa, 2), FIX_2D if altitude is None else FIX_3D)
        used = _field(gga, 7)
        return _fix(
            mode if is_fixed and _field(rmc, 2) != "V" else NO_FIX,
            (_degrees(place[:2]), _degrees(place[2:]), altitude, None if knots is None else knots * _KNOT),
            int(used) if re.fullmatch(r"\d{1,4}", used) else None,
            sum(self._seen.values()) if self._seen else None,
            None,
        )


def fields_of(line: bytes) -> list[str] | None:
    """The fields of a sentence (``$GPGGA,…*hh``); None of what is none, or does not have the checksum it says."""
    match = re.fullmatch(rb"\$([A-Z]{1,3}[A-Z]{3},[ -)+-~]*)\*([0-9A-Fa-f]{2})", line.strip()[-SENTENCE_BYTES_MAX:])
    if match is None or reduce(xor, match[1]) != int(match[2], 16):
        return None
    return match[1].decode("ascii").split(",")


def _field(fields: list[str], at: int) -> str:
    return fields[at] if at < len(fields) else ""


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(r"-?\d{1,12}(\.\d{0,12})?", text) else None


def _degrees(fields: list[str]) -> Decimal | None:
    """Degrees of ``ddmm.mmmm`` and a quarter of the compass; minutes are the last two digits before the point."""
    match = re.fullmatch(r"(\d{1,3})([0-5]\d(?:\.\d{0,10})?),([NSEW])", ",".join(fields))
    if match is None:
        return None
    degrees = int(match[1]) + Decimal(match[2]) / 60
    return -degrees if match[3] in "SW" else degrees
