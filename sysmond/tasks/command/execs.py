# SPDX-License-Identifier: Apache-2.0
"""Programs that processes executed, as the kernel side recorded them at that moment: the pinned ring buffer ``execs``.

A record is ``struct exec_record`` of ``bpf/records.h``; beside the buffer is the count of records that it had no room
for. Both are pinned: while nobody reads them, nothing is lost until the buffer is full.
"""

import select
import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.command.masking import CUT

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

    ``wakes``: becomes readable when so many wait that they should be taken soon.
    """

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
