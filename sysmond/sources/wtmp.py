# SPDX-License-Identifier: Apache-2.0
"""Who logged in and out while nobody recorded, as ``/var/log/wtmp`` has it.

Source: utmp(5). Anybody of the group utmp writes there, and a record may be of any content: at most the last
``RECORDS_MAX`` are read, and what is no login or logout is passed over. Standard library only.
"""

import os
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sysmond.sources.unread import printable

PATH = "/var/log/wtmp"
KNOWN_FROM = "wtmp"
RECORDS_MAX = 1000
LINES_MAX = 4096
SECOND_US = 1_000_000
LOGIN, LOGOUT, BOOT = 7, 8, 2  # USER_PROCESS, DEAD_PROCESS, BOOT_TIME
# Type, line, user, host, seconds, microseconds; where time is not the same for programs of 32 bits, it takes more.
_SHORT, _LONG = struct.Struct("=h6x32s4x32s256s8xii36x"), struct.Struct("=h6x32s4x32s256s12xqq40x")
RECORD = _LONG if os.uname().machine in {"aarch64", "loongarch64"} else _SHORT


class PastLogin(NamedTuple):
    """Somebody came, or went (UTC ns); ``place``: a terminal, or from which machine."""

    time_ns: int
    user: str
    place: str
    has_come: bool


def read(path: str, since_ns: int, until_ns: int) -> list[PastLogin]:
    """Give the logins and logouts of a span, in the order of the file; nothing where there is no such file.

    :raises OSError: where it may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return []
        # What is cut short at its end is no record.
        whole = status.st_size // RECORD.size
        file.seek(max(0, whole - RECORDS_MAX) * RECORD.size)
        content = file.read(min(whole, RECORDS_MAX) * RECORD.size)
    return [login for login in parse(content) if since_ns < login.time_ns <= until_ns]


def parse(content: bytes) -> Iterator[PastLogin]:
    """Read records. A logout names its terminal alone: whose it was, the login before it there says."""
    there: dict[bytes, str] = {}
    whole_bytes = len(content) - len(content) % RECORD.size
    for kind, line, user, host, second, microsecond in RECORD.iter_unpack(content[:whole_bytes]):
        if kind == BOOT:
            there.clear()
        if kind not in {LOGIN, LOGOUT} or second <= 0 or not 0 <= microsecond < SECOND_US:
            continue
        time_ns = (second * SECOND_US + microsecond) * 1000
        if kind == LOGOUT:
            if whose := there.pop(line, ""):
                yield PastLogin(time_ns, whose, _text(line), has_come=False)
        elif (name := _text(user)) and len(there) < LINES_MAX:
            there[line] = name
            yield PastLogin(time_ns, name, f"from {remote}" if (remote := _text(host)) else _text(line), has_come=True)


def _text(field: bytes) -> str:
    return printable(field.partition(b"\0")[0])
