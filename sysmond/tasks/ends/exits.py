# SPDX-License-Identifier: Apache-2.0
"""Processes that ended, by the best way this machine has: the records of the table ``exits``.

| way | needs | what its records lack |
|---|---|---|
| BPF | programs that the loader pinned | nothing |
| proc connector and taskstats | CAP_NET_ADMIN, initial namespaces | cgroup, of what no pass saw |
| proc connector | the same; nothing from Linux 6.6 on | what it used, unless /proc has it; names of the short-lived |
| taskstats | CAP_NET_ADMIN, Linux 5.19 | cgroup; times are exact to half a second |
"""

from typing import TYPE_CHECKING, Protocol

from sysmond.errors import Error
from sysmond.records import Records
from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.tables import EXITS, EXITS_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sysmond.tasks.ends.names import Names

BY_BPF = "by BPF"
PROGRAM = "ended"


class Exits(Protocol):
    """A way to notice ends. ``names``: what it wants to know of each pass over all processes; None for nothing."""

    @property
    def names(self) -> "Names | None":
        """What processes are called."""

    def take(self) -> Records:
        """Give the processes that ended since the call before; ``lost``: at most so many are missing.

        :raises OSError: as the kernel says.
        """

    def close(self) -> None:
        """Stop listening."""


def open_exits(runtime_folder: str) -> tuple[Exits, str]:
    """Open the best way there is; say in one line which it is, and why no better one.

    :raises Error: where there is none, with the reason of each.
    """
    refusals: list[str] = []
    for name, way in _ways(runtime_folder):
        try:
            return way(), f"by {name}" + (f"; not by {', nor by '.join(refusals)}" if refusals else "")
        except Error as problem:
            if str(problem) not in refusals:  # The pair is refused for the reason of one of the two.
                refusals.append(str(problem))
    raise Error(f"no way to learn of processes that end: {'; '.join(refusals)}")


def _ways(runtime_folder: str) -> "Iterator[tuple[str, Callable[[], Exits]]]":
    yield "BPF", lambda: PinnedExits(runtime_folder)
    from sysmond.tasks.ends import exits_netlink as by_netlink  # noqa: PLC0415  BPF does without, and without threads

    yield "proc connector and taskstats", by_netlink.Paired
    yield "proc connector", by_netlink.Heard
    yield "taskstats", by_netlink.TaskstatsExits


class PinnedExits:
    """By BPF: what the program wrote into the pinned ring buffer, also while nobody read it."""

    names = None

    def __init__(self, runtime_folder: str) -> None:
        """Open the pins that the loader named.

        :raises Error: where there are none.
        """
        self._buffer = Buffer(runtime_folder, PROGRAM, EXITS.name, EXITS_RECORD.size)

    def take(self) -> Records:
        """Give the records there: the kernel writes them in the format of the table."""
        rows = self._buffer.look()
        return Records(rows, lost=self._buffer.lost(), release=self._buffer.release)

    def rest(self) -> Records:
        """Copy all records there, without a bound."""
        rows = self._buffer.take()
        return Records(rows, lost=self._buffer.lost())

    def close(self) -> None:
        """Unmap it; what is pinned stays."""
        self._buffer.close()


def switch_to_bpf(before: Exits, runtime_folder: str, since_ns: int, last_rows: bytes) -> tuple[Exits, Records] | None:
    """Switch to BPF that was loaded since; return the new way, and the processes that ended. None where it is missing.

    BPF has recorded since it was loaded, so ends that the other way gave are left out: those until ``since_ns``, when
    it was last read, those it gives now, and those it gave then, ``last_rows``: some ended while it was read. Where the
    way before was BPF, too, its pins are others, or unchanged ones that are read on.
    """
    try:
        pinned = PinnedExits(runtime_folder)
    except Error:
        return None
    last, rest = last_of(before), pinned.rest()
    if isinstance(before, PinnedExits):
        return pinned, Records(bytes(last.rows) + bytes(rest.rows), lost=last.lost + rest.lost)
    pids = {row[2] for row in EXITS_RECORD.iter_unpack(last_rows + last.rows)}
    missed = [
        rest.rows[at : at + EXITS_RECORD.size]
        for at in range(0, len(rest.rows), EXITS_RECORD.size)
        if (row := EXITS_RECORD.unpack_from(rest.rows, at))[1] > since_ns and row[2] not in pids
    ]
    return pinned, Records(b"".join((last.rows, *missed)), lost=last.lost)


def last_of(way: Exits) -> Records:
    """Read the last records of a way, and close it.

    :raises OSError: as the kernel says.
    """
    if isinstance(way, PinnedExits):
        records = way.rest()
    else:
        last = way.take()
        records = Records(bytes(last.rows), lost=last.lost)
        last.release()
    way.close()
    return records
