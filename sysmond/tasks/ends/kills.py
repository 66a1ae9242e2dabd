# SPDX-License-Identifier: Apache-2.0
"""Processes that another one ended by a signal: counted, and told as events with who sent it. By BPF alone.

The program ``signalled`` sees each signal as it is sent, and keeps who sent one that its target neither handles nor
ignores; ``ended`` puts it into the ring buffer ``kills`` when the process ends by that signal. What an ancestor sent is
not among them: shells, service managers and browsers end what they started all the time.

What one process sends to several is one event, and of many who send at once only how many processes ended.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base import clock
from sysmond.base.model import ABSENT
from sysmond.base.terminal import printable
from sysmond.errors import Error
from sysmond.probe import Host, HostEvent, Row
from sysmond.tasks import signals
from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.bpf.report import pins_with

if TYPE_CHECKING:
    import select

KIND = TABLE = "killed"
PROGRAMS = ("ended", "signalled")
# More at once are one event. Of the processes of an event so many are named.
EVENTS_AT_ONCE = 8
NAMED_MAX = 64
# What ended longer ago than this has a time of its own, and whose memory it was in.
LATE_NS = 5 * clock.SECOND_NS
KNOWN_FROM = "BPF"
# ``struct kill_record`` of bpf/records.h, behind 8 of the ring buffer.
_KILL = struct.Struct("<8x q q I I I I 16s 16s I 4x")


class KillRecord(NamedTuple):
    """A process that ended by a signal, and which process sent it."""

    end_ns: int
    sender_start_ns: int
    pid: int
    uid: int
    sender_pid: int
    sender_uid: int
    comm: str
    sender_comm: str
    signal: int


class Kills:
    """Counts kills, and tells of them."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._buffer: Buffer | None = None
        self._wakes: select.epoll | None = None
        self._killed = self._lost = 0

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row.

        :raises FileNotFoundError: where no BPF program tells of them, or the files are those of another machine.
        :raises OSError: as the kernel says.
        """
        if host.root:
            raise FileNotFoundError(ENOENT, "only the running machine can say who sends signals", host.root)
        if self._buffer is not None and not self._buffer.is_current():
            self._drain(self._buffer, host)  # Pins that were made anew are others.
            self._close()
        self._drain(self._buffer or self._open(host), host)
        yield "", (self._killed, self._lost)

    def _open(self, host: Host) -> Buffer:
        try:
            for program in PROGRAMS:
                pins_with(program, host.runtime)
            buffer = Buffer(host.runtime, PROGRAMS[0], "kills", _KILL.size)
        except Error as why:
            host.wakes = None
            absence = f"not by BPF: {str(why).removeprefix('BPF: ')}"
            host.tell_way(TABLE, absence)
            raise FileNotFoundError(ENOENT, absence) from None
        self._buffer = buffer
        self._wakes = host.wakes = buffer.wakes()
        host.at_close(self._close)
        host.tell_way(TABLE, "by BPF")
        return buffer

    def _drain(self, buffer: Buffer, host: Host) -> None:
        """Count what is there, and tell of it."""
        self._lost += buffer.lost()
        kills = [
            KillRecord._make((*numbers, _text(comm), _text(sender_comm), signal))
            for *numbers, comm, sender_comm, signal in _KILL.iter_unpack(buffer.take())
        ]
        if not kills:
            return
        self._killed += len(kills)
        now = clock.relation()
        for event, end_ns in events_of(kills):
            # While nobody read, they waited in the kernel.
            is_late = now.boottime_ns - end_ns >= LATE_NS
            happened_ns = now.realtime_ns - (now.boottime_ns - end_ns) if is_late else ABSENT
            known_from = KNOWN_FROM if is_late else ""
            host.tell_event(*event[:3], detail=event.detail, happened_ns=happened_ns, known_from=known_from)

    def _close(self) -> None:
        buffer, self._buffer = self._buffer, None
        wakes, self._wakes = self._wakes, None
        if wakes is not None:
            wakes.close()
        if buffer is not None:
            buffer.close()


def events_of(kills: Sequence[KillRecord]) -> Iterator[tuple[HostEvent, int]]:
    """Say what happened, and when (boot time): one event for all of a name that one process sent the same signal."""
    together: dict[tuple[int, int, int, str], list[KillRecord]] = defaultdict(list)
    for kill in kills:
        together[kill.sender_pid, kill.sender_start_ns, kill.signal, kill.comm].append(kill)
    if len(together) > EVENTS_AT_ONCE:
        names = dict.fromkeys(kill.comm for kill in kills)
        text = f"{len(kills)} processes at once"
        yield HostEvent(KIND, "", text, detail=", ".join(list(names)[:NAMED_MAX])), kills[-1].end_ns
        return
    for same in together.values():
        first = same[0]
        sender = f"{first.sender_comm}, process {first.sender_pid} of user {first.sender_uid}"
        by = f"{signals.name(first.signal)} by {sender}"
        if len(same) == 1:
            yield HostEvent(KIND, first.comm, f"process {first.pid} of user {first.uid}: {by}"), first.end_ns
        else:
            pids = ", ".join(str(kill.pid) for kill in same[:NAMED_MAX])
            yield HostEvent(KIND, first.comm, f"{len(same)} processes: {by}", detail=pids), same[-1].end_ns


def _text(padded: bytes) -> str:
    return printable(padded.partition(b"\0")[0].decode("utf-8", "surrogateescape"))
