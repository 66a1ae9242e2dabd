# SPDX-License-Identifier: Apache-2.0
"""Programs that processes executed: recorded by the kernel side at that moment, or read in /proc a moment later.

By BPF they are in the pinned ring buffer ``execs``. A record is ``struct exec_record`` of ``bpf/records.h``; beside the
buffer is the count of records that it had no room for. Both are pinned: while nobody reads them, nothing is lost until
the buffer is full.

Where there is no BPF, the proc connector reports that a process executed something, and what that was is read at once.
A program that ended by then is missing; ``lost`` counts those that were too many to be read.
"""

import select
import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from sysmond.errors import Error
from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.bpf.report import report_of
from sysmond.tasks.command.masking import CUT, RAW_BYTES_MAX
from sysmond.tasks.command.reading import RawRead, read_raw
from sysmond.tasks.ends.starts import BY_EXECS, Starts

PROGRAM = "started"
_PROGRAM_BYTES, _ARGUMENTS_BYTES = 256, 512
# Start of the process, pid, uid, and the lengths of the texts that follow.
_HEAD = struct.Struct("<q I I H H 4x")
_CUT = CUT.encode()


class Exec(NamedTuple):
    """A program that a process executed. ``program``: the path given to execve(2), empty where that is unknown.

    ``arguments``: as cmdline has them. ``is_cut``: there were more of them.
    """

    pid: int
    start_ns: int
    uid: int
    program: bytes
    arguments: bytes
    is_cut: bool


class Execs(Protocol):
    """The kernel's reports of executed programs.

    ``way``: how they come, and why not by a better way, in one line. ``wakes``: becomes readable when so many wait that
    they should be taken soon.
    """

    way: str
    wakes: select.epoll | None

    def take(self) -> tuple[list[Exec], int]:
        """Give those since the call before, in order, and how many more were lost."""

    def is_current(self) -> bool:
        """Whether this is still the newest: the loader has not run since it was opened."""

    def close(self) -> None:
        """Stop reading."""


class PinnedExecs:
    """By BPF. There must be no other reader."""

    def __init__(self, runtime: str) -> None:
        """Open what the loader pinned for this runtime folder.

        :raises Error: where it is missing, with the reason.
        """
        self._buffer = Buffer(runtime, PROGRAM, "execs")
        self.way = "by BPF"
        self.wakes: select.epoll | None = self._buffer.wakes()

    def take(self) -> tuple[list[Exec], int]:
        """Give those since the call before, in order, and how many more were lost."""
        return records(self._buffer.records()), self._buffer.lost()

    def is_current(self) -> bool:
        """Whether this is still the newest: the loader has not run since it was opened."""
        return self._buffer.is_current()

    def close(self) -> None:
        """Unmap it; what is pinned stays."""
        if self.wakes is not None:
            self.wakes.close()
        self.wakes = None
        self._buffer.close()


class HeardExecs:
    """By the proc connector, and /proc."""

    wakes: select.epoll | None = None

    def __init__(self, runtime: str, why: str) -> None:
        """Begin to listen; ``why``: no better way is to be had until the loader runs.

        :raises Error: where the kernel sends nothing to this process.
        """
        self._starts = Starts(_read, BY_EXECS)
        self._runtime, self._report = runtime, report_of(runtime)
        self.way = f"by proc connector; not by {why}"

    def take(self) -> tuple[list[Exec], int]:
        """Give those since the call before, in order, and how many more were lost."""
        started, lost = self._starts.take()
        execs = []
        for pid, _, _, (start_ns, _, uid, program, raw) in started:
            is_cut = len(raw) > RAW_BYTES_MAX
            execs.append(Exec(pid, start_ns, uid, program or b"", raw[:RAW_BYTES_MAX], is_cut))
        return execs, lost

    def is_current(self) -> bool:
        """Whether this is still the best way: the loader has not run since it was opened."""
        return report_of(self._runtime) == self._report

    def close(self) -> None:
        """Stop listening."""
        self._starts.close()


def open_execs(runtime: str) -> Execs:
    """Open the best way there is.

    :raises Error: where there is none, with the reason of each.
    """
    try:
        return PinnedExecs(runtime)
    except Error as why:
        try:
            return HeardExecs(runtime, str(why))
        except Error as neither:
            raise Error(f"{why}, nor by {neither}") from None


def _read(pid: int) -> RawRead | None:
    """Read what a process executed, in a thread; None where it is gone, or is a zombie."""
    try:
        read = read_raw("/proc", pid)
    except (OSError, ValueError):
        return None
    return read if read.raw else None


def records(contents: Iterable[bytes]) -> list[Exec]:
    """Parse the records of the buffer."""
    execs = []
    for content in contents:
        start_ns, pid, uid, length, arguments_length = _HEAD.unpack_from(content)
        behind = _HEAD.size + length
        program = content[_HEAD.size : behind] + (_CUT if length >= _PROGRAM_BYTES - 1 else b"")
        arguments = content[behind : behind + arguments_length]
        execs.append(Exec(pid, start_ns, uid, program, arguments, is_cut=arguments_length >= _ARGUMENTS_BYTES))
    return execs
