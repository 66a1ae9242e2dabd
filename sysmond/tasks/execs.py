# SPDX-License-Identifier: Apache-2.0
"""Programs that processes executed, as the kernel side recorded them at that moment: the pinned ring buffer ``execs``.

A record holds what ``struct exec_record`` of ``bpf/records.h`` does; a count of those for which there was no room is
kept beside it. Both are pinned, so nothing is lost while nobody takes them, until the buffer is full.
"""

import struct
from typing import NamedTuple, Protocol

from sysmond.errors import Error, refusal
from sysmond.tasks.masking import CUT
from sysmond.tasks.report import pins_with, report_of

PROGRAM = "started"
_PROGRAM_BYTES, _ARGUMENTS_BYTES = 256, 512
# Behind the head that each record has in the buffer: when the process started, pid, uid, and how long the texts are.
_RECORD = struct.Struct(f"<8x q I I H H 4x {_PROGRAM_BYTES}s {_ARGUMENTS_BYTES}s")
_HEAD_BYTES = 8
_CUT = CUT.encode()
# Lost of the exits, lost of these.
_LOST = struct.Struct("<Q Q")


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


class Pinned:
    """By BPF. There must be no other reader."""

    def __init__(self, runtime: str) -> None:
        """Open what the loader pinned, and said so in this runtime folder.

        :raises Error: where there is nothing, saying why.
        """
        self._runtime, self._report = runtime, report_of(runtime)
        try:
            folder = pins_with(PROGRAM, runtime)
            from sysmond.kernel.pins import Array, Drain  # noqa: PLC0415  only where there is something pinned

            self._lost = Array(f"{folder}/lost", _LOST.size)
            try:
                self._drain = Drain(f"{folder}/execs", _RECORD.size - _HEAD_BYTES)
            except OSError:
                self._lost.close()
                raise
        except OSError as failure:
            raise Error(f"BPF: {refusal(failure)}; what the loader pins is right") from None
        except Error as problem:
            raise Error(f"BPF: {problem}") from None
        self._lost_before = self._lost_now()

    def take(self) -> tuple[list[Exec], int]:
        """Give those since the call before, in their order, and how many more there were that got lost."""
        taken = records(self._drain.take())
        before, self._lost_before = self._lost_before, self._lost_now()
        return taken, self._lost_before - before

    def is_current(self) -> bool:
        """Whether the loader has not run since, which may have pinned others."""
        return report_of(self._runtime) == self._report

    def close(self) -> None:
        """Let go of the mappings; what is pinned stays."""
        self._drain.close()
        self._lost.close()

    def _lost_now(self) -> int:
        return int(_LOST.unpack(self._lost.memory[: _LOST.size])[1])


def records(content: bytes) -> list[Exec]:
    """Read records as they lie in the buffer."""
    return [
        Exec(
            pid,
            start_ns,
            uid,
            program[:length] + (_CUT if length >= _PROGRAM_BYTES - 1 else b""),
            arguments[:arguments_length],
            is_cut=arguments_length >= _ARGUMENTS_BYTES,
        )
        for start_ns, pid, uid, length, arguments_length, program, arguments in _RECORD.iter_unpack(content)
    ]
