# SPDX-License-Identifier: Apache-2.0
"""Processes that ended, by the best way that this machine has: the records of the table ``exits``.

| way | needs | what its records lack |
|---|---|---|
| BPF | programs that the loader pinned | nothing |
| proc connector and taskstats | CAP_NET_ADMIN, initial namespaces | cgroup |
| proc connector | the same; nothing from Linux 6.6 on | all but times, code and parent, unless found in /proc |
| taskstats | CAP_NET_ADMIN, Linux 5.19 | cgroup; times are right to half a second |
"""

from typing import TYPE_CHECKING, Protocol

from sysmond.errors import Error
from sysmond.records import Records
from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.tables import EXITS, EXITS_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BY_BPF = "by BPF"
PROGRAM = "ended"


class Exits(Protocol):
    """A way to learn of ends."""

    def take(self) -> Records:
        """Give what ended since the call before; ``lost``: at most as many are missing.

        :raises OSError: as the kernel says.
        """

    def close(self) -> None:
        """Learn of no more."""


def open_exits(runtime_folder: str) -> tuple[Exits, str]:
    """Open the best way there is, and say in one line which it is, and why none that is better.

    :raises Error: where there is none, saying why of each.
    """
    refusals: list[str] = []
    for name, way in _ways(runtime_folder):
        try:
            return way(), f"by {name}" + (f"; not by {', nor by '.join(refusals)}" if refusals else "")
        except Error as problem:
            if str(problem) not in refusals:  # The pair is refused as one of both is.
                refusals.append(str(problem))
    raise Error(f"no way to learn of processes that end: {'; '.join(refusals)}")


def _ways(runtime_folder: str) -> "Iterator[tuple[str, Callable[[], Exits]]]":
    yield "BPF", lambda: PinnedExits(runtime_folder)
    from sysmond.tasks.ends import exits_netlink as by_netlink  # noqa: PLC0415  BPF does without, and without threads

    yield "proc connector and taskstats", by_netlink.Paired
    yield "proc connector", by_netlink.Heard
    yield "taskstats", by_netlink.TaskstatsExits


class PinnedExits:
    """By BPF: what the program wrote into the pinned ring buffer, also while nobody took it."""

    def __init__(self, runtime_folder: str) -> None:
        """Open the pins that the loader named.

        :raises Error: where there are none.
        """
        self._buffer = Buffer(runtime_folder, PROGRAM, EXITS.name, EXITS_RECORD.size)

    def take(self) -> Records:
        """Give what is there: the kernel writes the records as they are kept."""
        rows = self._buffer.look()
        return Records(rows, lost=self._buffer.lost(), release=self._buffer.release)

    def rest(self) -> Records:
        """Copy all that is there, however much it is."""
        rows = self._buffer.take()
        return Records(rows, lost=self._buffer.lost())

    def close(self) -> None:
        """Let go of the mappings; what is pinned stays."""
        self._buffer.close()


def gone_over(before: Exits, runtime_folder: str, since_ns: int, just_told: bytes) -> tuple[Exits, Records] | None:
    """Go over to BPF that was loaded since: the new way, and what ended. None where it is not there.

    BPF recorded from when it was loaded on, so what another way told of until ``since_ns``, when it was last taken, or
    tells now is left out; and what it told then, ``just_told``: some of that ended while it was taken. Of what was
    pinned before nothing is pinned again, unless it is the very same.
    """
    try:
        pinned = PinnedExits(runtime_folder)
    except Error:
        return None
    told, rest = last_of(before), pinned.rest()
    if isinstance(before, PinnedExits):
        return pinned, Records(bytes(told.rows) + bytes(rest.rows), lost=told.lost + rest.lost)
    pids = {row[2] for row in EXITS_RECORD.iter_unpack(just_told + told.rows)}
    kept = [
        rest.rows[at : at + EXITS_RECORD.size]
        for at in range(0, len(rest.rows), EXITS_RECORD.size)
        if (row := EXITS_RECORD.unpack_from(rest.rows, at))[1] > since_ns and row[2] not in pids
    ]
    return pinned, Records(b"".join((told.rows, *kept)), lost=told.lost)


def last_of(way: Exits) -> Records:
    """Take all that a way tells of, and close it.

    :raises OSError: as the kernel says.
    """
    if isinstance(way, PinnedExits):
        records = way.rest()
    else:
        told = way.take()
        records = Records(bytes(told.rows), lost=told.lost)
        told.release()
    way.close()
    return records
