# SPDX-License-Identifier: Apache-2.0
"""Answers of nl80211 as the kernel writes them, by ``include/uapi/linux/nl80211.h``, and a kernel that gives them."""

import struct
from collections.abc import Callable, Iterator, Sequence

from sysmond.probe import Host
from sysmond.sources.nl80211 import GET_INTERFACE, GET_STATION, GET_SURVEY, Wireless

Answer = Sequence[bytes] | OSError


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute: its length, its type, its value, and what fills it up to 4 bytes."""
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def u8(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack("=B", number & 0xFF))


def u16(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack("=H", number))


def u32(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack("=I", number))


def u64(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack("=Q", number))


def nested(kind: int, *inner: bytes) -> bytes:
    """An attribute of attributes: NLA_F_NESTED is set."""
    return attribute(kind | 0x8000, b"".join(inner))


def message(command: int, *inner: bytes) -> bytes:
    """What follows the head of a message: struct genlmsghdr, and attributes."""
    return struct.pack("=BBH", command, 1, 0) + b"".join(inner)


SSID = attribute(52, b"a name of a network")
PLACE = u32(38, 5180), u32(159, 3), u32(160, 5210)  # WIPHY_FREQ; CHANNEL_WIDTH 80 MHz; CENTER_FREQ1.
CLIENT = message(7, u32(3, 3), attribute(4, b"wlan0\0"), u32(5, 2), attribute(6, bytes(6)), *PLACE, SSID)
HOTSPOT = message(7, u32(3, 3), attribute(4, b"wlan0\0"), u32(5, 3), u32(38, 2437), u32(159, 0))
IDLE = message(7, u32(3, 3), attribute(4, b"wlan0\0"), u32(5, 2))

RECEIVE = nested(14, u16(1, 6500), u32(5, 6500), u8(6, 7), u8(7, 2), attribute(8, b""))
SEND = nested(8, u32(5, 120_102), u8(13, 11), u8(14, 4))  # Too fast for the attribute of 16 bits.
STATION = nested(
    21,
    *(u32(1, 40), u32(2, 5_000_000), u32(3, 700_000), u8(7, -52), RECEIVE, u32(9, 70_001), SEND, u32(10, 30_002)),
    *(u32(11, 4_003), u32(12, 17), u8(13, -54), u32(16, 86_400), u32(18, 2), u64(28, 345), u64(29, 860_000)),
    u8(30, -55),
)
ACCESS_POINT = message(19, u32(3, 3), attribute(6, bytes.fromhex("02004c4f4f50")), u32(46, 8), STATION)
GUEST = message(19, u32(3, 3), attribute(6, bytes.fromhex("020047554553")), STATION)


def survey(mhz: int, *told: bytes, in_use: bool = True) -> bytes:
    """What a driver knows of a channel."""
    return message(51, u32(3, 3), nested(84, u32(1, mhz), *([attribute(3, b"")] if in_use else []), *told))


TIMES = u64(4, 90_000), u64(5, 30_500), u64(6, 10), u64(7, 20_250), u64(8, 4_125), u64(9, 600)
SURVEYS = (survey(5180, u8(2, -92), *TIMES), survey(5200, u8(2, -90), *TIMES, in_use=False))


class Stand:
    """A stand-in for the kernel: what it answers to each command about an interface, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[int, int], Answer] = {
            (GET_INTERFACE, 3): [CLIENT], (GET_STATION, 3): [ACCESS_POINT], (GET_SURVEY, 3): SURVEYS,
        }  # fmt: skip
        self.asked: list[tuple[int, int]] = []

    def wireless(self, host: Host) -> Wireless:
        """Take the place of ``Wireless``."""
        del host
        kernel = Wireless.__new__(Recorded)
        kernel.stand = self
        return kernel


class Recorded(Wireless):
    """Reads the answers of a stand-in as it does those of the kernel."""

    stand: Stand

    def _asked(self, way: Callable[..., object], command: int, index: int) -> Iterator[bytes]:
        del way
        self.stand.asked.append((command, index))
        answer = self.stand.answers.get((command, index), ())
        if isinstance(answer, OSError):
            raise answer
        return iter(answer)
