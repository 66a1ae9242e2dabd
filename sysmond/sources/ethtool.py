# SPDX-License-Identifier: Apache-2.0
"""Statistics that drivers of network interfaces keep, by name, as ``ethtool -S`` asks for them.

Source: the kernel's ``include/uapi/linux/ethtool.h``: requests of SIOCETHTOOL, which need no privilege.
"""

import ctypes
import fcntl
import mmap
import socket
import sys
from errno import EINVAL, EOPNOTSUPP
from struct import Struct

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x1B, 0x1D, 0x37
ETH_SS_STATS = 1
NAME_BYTES, NUMBER_BYTES = 32, 8
# How many a driver may have; there is room for twice as many, since it may get more queues between two requests.
STATISTICS_MAX = 4096

_IFREQ = Struct("@16sP16x")  # The name, and where the request is (struct ifreq).
_SET = Struct("=IIQI")  # Request, reserved, which sets, how long the first of these is (struct ethtool_sset_info).
_NAMES = Struct("=III")  # Request, set, length; then the names (struct ethtool_gstrings).
_NUMBERS = Struct("=II")  # Request, length; then the numbers (struct ethtool_stats).


def statistics(interface: str) -> dict[str, int]:
    """Give what a driver counts, by its own names; nothing of a driver that counts nothing.

    :raises OSError: as the kernel says; ``ENODEV`` where there is no such interface.
    :raises ValueError: where a driver has more than ``STATISTICS_MAX``.
    """
    # Requests about devices are answered on a socket of any family: this one reaches no network.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as kernel:
        try:
            told = _ask(kernel, interface, _SET.pack(ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0))
        except OSError as refusal:
            if refusal.errno in (EOPNOTSUPP, EINVAL):
                return {}
            raise
        *_, sets, count = _SET.unpack_from(told)
        if count > STATISTICS_MAX:
            raise ValueError(f"{interface}: {count} statistics; expected {STATISTICS_MAX} at most")
        if not sets or not count:
            return {}
        names = _ask(kernel, interface, _NAMES.pack(ETHTOOL_GSTRINGS, ETH_SS_STATS, count), NAME_BYTES)
        numbers = _ask(kernel, interface, _NUMBERS.pack(ETHTOOL_GSTATS, count), NUMBER_BYTES)
    return parse(names, numbers)


def parse(names: bytes, numbers: bytes) -> dict[str, int]:
    """Read the answers to both requests: each has its length in its head.

    :raises ValueError: where one has not as many entries as it says, or they differ in that.
    """
    *_, named = _NAMES.unpack_from(names)
    _, counted = _NUMBERS.unpack_from(numbers)
    if named != counted or len(names) < _NAMES.size + named * NAME_BYTES:
        raise ValueError(f"ethtool: {named} names and {counted} numbers; expected as many of both")
    texts = [names[at : at + NAME_BYTES] for at in range(_NAMES.size, _NAMES.size + named * NAME_BYTES, NAME_BYTES)]
    values = Struct(f"={counted}Q").unpack_from(numbers, _NUMBERS.size)
    spelled = (text.partition(b"\0")[0].decode("utf-8", "replace").strip() for text in texts)
    return dict(zip(spelled, values, strict=True))


def _ask(kernel: socket.socket, interface: str, request: bytes, entry_bytes: int = 0) -> bytes:
    """Give the answer, which the kernel writes over the request and behind it.

    The room is address space: of 0.3 MB only those pages are ever in memory that the answer fills. Entries, where there
    are any, are counted by the last number of the head, which has the length of the request.
    """
    head_bytes = len(request)
    room_bytes = head_bytes + 2 * STATISTICS_MAX * entry_bytes
    with mmap.mmap(-1, room_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room[:head_bytes] = request
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        fcntl.ioctl(kernel, SIOCETHTOOL, _IFREQ.pack(interface.encode("utf-8", "surrogateescape")[:15], address))
        entries = int.from_bytes(room[head_bytes - 4 : head_bytes], sys.byteorder)
        return room[: head_bytes + entries * entry_bytes]
