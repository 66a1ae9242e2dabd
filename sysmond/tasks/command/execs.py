# SPDX-License-Identifier: Apache-2.0
"""Programs that processes executed, as the kernel side recorded them at that moment: the pinned ring buffer ``execs``.

A record holds what ``struct exec_record`` of ``bpf/records.h`` does; a count of those for which there was no room is
kept beside it. Both are pinned, so nothing is lost while nobody takes them, until the buffer is full.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.command.masking import CUT

PROGRAM = "started"
_PROGRAM_BYTES, _ARGUMENTS_BYTES = 256, 512
# When the process started, pid, uid, and how long the texts are that follow.
_HEAD = struct.Struct("<q I I H H 4x")
_CUT = CUT.encode()


class Exec(NamedTuple):
    """A program that a process executed. ``program``: its path as it was asked for, empty where that is not known.

    ``arguments``: as cmdline has them. ``is_cut``: there were more of them.
    """

    pid: int
    start_ns: int
    uid: int
    program: bytes
    arguments: bytes
    is_cut: bool


class Execs(Protocol):
    """The kernel's word about programs being executed."""

    def take(self) -> tuple[list[Exec], int]:
        """Give those since the call before, in their order, and how many more there were that got lost."""

    def is_current(self) -> bool:
        """Whether the loader has not run since it was opened, which may have pinned another."""

    def close(self) -> None:
        """Hear no more."""


class PinnedExecs:
    """By BPF. There must be no other reader."""

    def __init__(self, runtime: str) -> None:
        """Open what the loader pinned, and said so in this runtime folder.

        :raises Error: where there is nothing, saying why.
        """
        self._buffer = Buffer(runtime, PROGRAM, "execs")

    def take(self) -> tuple[list[Exec], int]:
        """Give those since the call before, in their order, and how many more there were that got lost."""
        return records(self._buffer.each()), self._buffer.lost()

    def is_current(self) -> bool:
        """Whether the loader has not run since it was opened, which may have pinned another."""
        return self._buffer.is_current()

    def close(self) -> None:
        """Let go of the mappings; what is pinned stays."""
        self._buffer.close()


def records(contents: Iterable[bytes]) -> list[Exec]:
    """Read records as they lie in the buffer."""
    found = []
    for content in contents:
        start_ns, pid, uid, length, arguments_length = _HEAD.unpack_from(content)
        behind = _HEAD.size + length
        program = content[_HEAD.size : behind] + (_CUT if length >= _PROGRAM_BYTES - 1 else b"")
        arguments = content[behind : behind + arguments_length]
        found.append(Exec(pid, start_ns, uid, program, arguments, is_cut=arguments_length >= _ARGUMENTS_BYTES))
    return found
