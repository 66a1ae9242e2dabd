# SPDX-License-Identifier: Apache-2.0
"""What dpkg has done, from its log: followed where it is rotated, gathered into runs.

Source: ``/var/log/dpkg.log`` (dpkg(1), ``--log``). Its times are of the machine's time zone. Until its size changes
nothing else is looked at. Standard library only.
"""

import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sysmond.probe import ABSENT, Host, Row

PATH = "/var/log/dpkg.log"
NOTE = "package.seen"
READ_BYTES_MAX = 4 * 1024 * 1024
# What is read at once: the lane keeps the memory that the largest piece took.
PIECE_BYTES = 8 * 1024
SECOND_NS, DAY_S = 1_000_000_000, 86400
# One run of apt has dpkg unpack and configure in turns; after so long without a line it is over.
RUN_OVER_NS = 20 * SECOND_NS
# What was written so long before it is read is told with its own time.
LATE_NS = 60 * SECOND_NS
LISTED_MAX = 3
ACTIONS = {"install": "installed", "upgrade": "upgraded", "remove": "removed", "purge": "removed"}
DONE = tuple(dict.fromkeys(ACTIONS.values()))
NONE = "<none>"


class PackageAction(NamedTuple):
    """A line of the log: when (UTC ns), what was done to which package, from which version to which."""

    time_ns: int
    done: str
    package: str
    before: str
    after: str

    def __str__(self) -> str:
        """As people write it."""
        versions = " → ".join(version for version in (self.before, self.after) if version != NONE)
        return f"{self.package} {versions}"


def parse(line: str) -> PackageAction | None:
    """Read a line as ``2026-11-24 22:11:30 upgrade bash:amd64 5.2-1 5.2-2``; None for what changes no package."""
    words = line.split()
    if len(words) != 6 or words[2] not in ACTIONS:  # noqa: PLR2004  as above
        return None
    try:
        year, month, day = map(int, words[0].split("-"))
        hour, minute, second = map(int, words[1].split(":"))
        local_s = _local_s(year, month, day, hour, minute, second)
        time_s = utc_s(local_s)
    except (ValueError, OverflowError, OSError):
        return None
    return PackageAction(time_s * SECOND_NS, ACTIONS[words[2]], *words[3:])


def _local_s(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    """Seconds since 1970, as a clock without a time zone counts them.

    :raises ValueError: where there is no such day or time.
    """
    # A year begins in March, so a leap day is its last.
    years, months = year - (month < 3), (month + 9) % 12  # noqa: PLR2004
    days = 365 * years + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 719_469
    local_s = days * DAY_S + hour * 3600 + minute * 60 + second
    if time.gmtime(local_s)[:6] != (year, month, day, hour, minute, second):
        raise ValueError("no such day or time")
    return local_s


def utc_s(local_s: int) -> int:
    """What a clock of the machine's time zone means, by the rule of ``datetime.timestamp()``, which is PEP 495.

    A time that comes twice is meant the first time; one that is left out counts on from before. ``datetime`` and
    ``time.strptime()`` know it too, and would take a third and half a megabyte of the lane's memory.
    """

    def offset_s(at_s: int) -> int:
        return time.localtime(at_s).tm_gmtoff

    before_s = offset_s(local_s)
    first_s = local_s - before_s
    if first_s + offset_s(first_s) == local_s:
        earlier_s = local_s - offset_s(first_s - DAY_S)
        return earlier_s if earlier_s + offset_s(earlier_s) == local_s else first_s
    second_s = local_s - offset_s(first_s)
    if second_s + offset_s(second_s) == local_s:
        return second_s
    return max(first_s, second_s)


class PackageRuns:
    """Follows the log, also where it is rotated, from the beginning of this boot."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        # Which file, by its inode, and how far: it is read; all of it is told, and noted.
        self._file: tuple[int, int] | None = None
        self._noted: tuple[int, int] | None = None
        self._since_ns = 0
        self._rest = b""
        self._run: list[PackageAction] = []
        self._read_ns = 0
        self._counts = dict.fromkeys(DONE, 0)

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row, and tell of the run that is over.

        :raises OSError: where the log may not be read.
        """
        if self._file is None:
            self._file, self._since_ns = _seen(host)
        came = [action for action in map(parse, self._lines(host)) if action and action.time_ns >= self._since_ns]
        for action in came:
            if self._run and action.time_ns - self._run[-1].time_ns > RUN_OVER_NS:
                self._tell(host)
            self._run.append(action)
            self._counts[action.done] += 1
        if came:
            self._read_ns = time.monotonic_ns()
        if self._run and time.monotonic_ns() - self._read_ns > RUN_OVER_NS:
            self._tell(host)
        if not self._run and host.folder:
            self._note(host)
        yield "", tuple(self._counts.values())

    def _lines(self, host: Host) -> Iterator[str]:
        """What was written since the last reading; of a log that was rotated meanwhile the end of the old one, too."""
        rest = self._rest
        for piece in self._pieces(host):
            whole, _, rest = (rest + piece).rpartition(b"\n")
            yield from whole.decode("utf-8", "backslashreplace").split("\n")
        self._rest = rest  # Only now: what failed is read again from where it began.

    def _pieces(self, host: Host) -> Iterator[bytes]:
        inode, offset = self._file or (0, 0)
        status = os.stat(f"{host.root}{PATH}")
        if (status.st_ino, status.st_size) == (inode, offset):
            return
        if inode and status.st_ino != inode:
            with suppress(OSError):
                if os.stat(f"{host.root}{PATH}.1").st_ino == inode:
                    yield from _pieces_from(f"{host.root}{PATH}.1", offset)
        if status.st_ino != inode or status.st_size < offset:  # Another file, or it was emptied.
            offset = 0
        self._file = status.st_ino, (yield from _pieces_from(f"{host.root}{PATH}", offset))

    def _tell(self, host: Host) -> None:
        """Tell of a run: how many of what, and the first of them; all in the detail."""
        run, self._run = self._run, []
        same = {done: [action for action in run if action.done == done] for done in self._counts}
        said = [_listed(done, actions) for done, actions in same.items() if actions]
        detail = "; ".join(f"{done}: {', '.join(map(str, actions))}" for done, actions in same.items() if actions)
        is_late = time.time_ns() - run[-1].time_ns > LATE_NS
        happened_ns, known_from = (run[-1].time_ns, "dpkg's log") if is_late else (ABSENT, "")
        host.tell_event("packages", "", "; ".join(said), detail=detail, happened_ns=happened_ns, known_from=known_from)

    def _note(self, host: Host) -> None:
        inode, offset = self._file or (0, 0)
        seen = inode, offset - len(self._rest)
        if seen != self._noted:
            with suppress(OSError), open(f"{host.folder}/{NOTE}", "w", encoding="ascii") as file:
                file.write("{} {}\n".format(*seen))
                self._noted = seen


def _listed(done: str, actions: Iterable[PackageAction]) -> str:
    spelled = list(dict.fromkeys(map(str, actions)))
    more = f" and {len(spelled) - LISTED_MAX} more" if len(spelled) > LISTED_MAX else ""
    return f"{done} {', '.join(spelled[:LISTED_MAX])}{more}"


def _pieces_from(path: str, offset: int) -> Generator[bytes, None, int]:
    """Read a file from there on, its last part where that is too long; returns where it ends."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(offset, size - READ_BYTES_MAX))
        while piece := file.read(min(PIECE_BYTES, max(0, size - file.tell()))):
            yield piece
        return file.tell()


def _seen(host: Host) -> tuple[tuple[int, int], int]:
    """How far a reader before it in this boot was; else nothing, and since when lines count: the begin of the boot."""
    with suppress(OSError, ValueError):
        if host.folder:
            with open(f"{host.folder}/{NOTE}", encoding="ascii") as file:
                inode, offset = map(int, file.read(64).split())
            return (inode, offset), 0
    return (0, 0), time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
