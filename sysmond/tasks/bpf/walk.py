# SPDX-License-Identifier: Apache-2.0
"""One pass of the kernel over all tasks: what changed, as packed records in memory shared with the kernel.

Rows of ``process``, ``thread`` and ``process_private``. A pass takes a fixed number of system calls for any number
of tasks: with ``snapshot`` one, with ``iterate`` three; and five for each array whose mapping has to grow or shrink
much. The arrays have room for several times what ran when they were made; where thousands come at once, a reading
takes several passes, each of which tells what those before it had no room for. Standard library only: the real-time
sampler reads by this.
"""

import fcntl
import os
import struct
from contextlib import suppress
from typing import NamedTuple

from sysmond.base import clock
from sysmond.errors import Error, refusal
from sysmond.records import Records, record_bytes
from sysmond.tasks.bpf.pins import Array, Iterator, PinnedProgram
from sysmond.tasks.pass_result import PassResult
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD

# The ways, best first: the names of the pins.
SNAPSHOT, ITERATE = "snapshot", "iterate"
# Passes of one reading: so many of the shortest arrays that the loader makes have as many rows as the longest.
PASSES_MAX = 16
# ``struct pass`` of bpf/tasks.bpf.c: the request, how many tasks there were, and for each array how many rows
# it has, and how many had no room.
_ASKED = struct.Struct("=QIIIII36x")
_COUNTS = struct.Struct("=32x8I")
_TURN_MAX = 0xFFFFFFFF


class _Counts(NamedTuple):
    """What one pass says of itself: tasks, and for each array rows, and tasks that found no room."""

    walked: int
    walked_threads: int
    processes: int
    processes_lost: int
    threads: int
    threads_lost: int
    privates: int
    privates_lost: int

    @property
    def has_lost(self) -> bool:
        """Whether a further pass would tell more."""
        return self.processes_lost + self.threads_lost > 0 and self.processes + self.threads > 0


class Walk:
    """The pinned program that passes over all tasks, and the arrays that it fills. ``way`` says which it is."""

    def __init__(self, folder: str) -> None:
        """Open what is pinned in a folder.

        :raises Error: where neither program is there and may be opened, or its arrays are of another version.
        """
        self.way, self._program = _opened(folder)
        self._turn = 0
        self._control, self._process, self._thread, self._private = (
            _mapped(f"{folder}/{pin}", value_bytes)
            for pin, value_bytes in (
                ("control", _ASKED.size),
                ("process_rows", record_bytes(PROCESS)),
                ("thread_rows", record_bytes(THREAD)),
                ("private_rows", record_bytes(PROCESS_PRIVATE)),
            )
        )

    def take(self, *, full: bool, threads: bool) -> PassResult:
        """Read all tasks: give what changed since the last reading, with ``full`` all.

        The rows are the mapped memory itself, where one pass has all of them: they hold until the next one.

        :raises OSError: where the kernel does not run the program.
        """
        self._turn = (self._turn + 1) & _TURN_MAX
        asked = clock.boottime_ns(), full, threads, 1, self._turn
        counts = self._pass(*asked, 0)
        of_process, of_thread, of_private = self._rows(counts)
        if counts.has_lost:
            pieces = [[bytes(rows)] for rows in (of_process, of_thread, of_private)]
            for _ in range(PASSES_MAX - 1):
                del of_process, of_thread, of_private
                counts = self._pass(*asked, 1)
                of_process, of_thread, of_private = self._rows(counts)
                for piece, rows in zip(pieces, (of_process, of_thread, of_private), strict=True):
                    piece.append(bytes(rows))
                if not counts.has_lost:
                    break
            of_process, of_thread, of_private = (memoryview(b"".join(piece)) for piece in pieces)
        return PassResult(
            Records(of_process, full, counts.processes_lost, counts.walked),
            Records(of_thread, full, counts.threads_lost, counts.walked_threads) if threads else None,
            Records(of_private, full, counts.privates_lost, counts.walked),
        )

    def _pass(self, *asked: int) -> _Counts:
        _ASKED.pack_into(self._control.memory, 0, *asked)
        self._program.run()
        return _Counts(*_COUNTS.unpack_from(self._control.memory))

    def _rows(self, counts: _Counts) -> tuple[memoryview, memoryview, memoryview]:
        """The rows of a pass, in mapped memory."""
        return (
            self._process.first(counts.processes),
            self._thread.first(counts.threads),
            self._private.first(counts.privates),
        )

    def close(self) -> None:
        """Close all. Rows that were given must not be in use any more."""
        self._program.close()
        for array in (self._control, self._process, self._thread, self._private):
            array.close()


class OwnedWalk(Walk):
    """The same with one reader on a machine: each change is reported once."""

    def __init__(self, folder: str) -> None:
        """Open what is pinned in a folder.

        :raises Error: where that fails, or another process reads it.
        """
        try:
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as failure:
            raise Error(refusal(failure)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            super().__init__(folder)
        except OSError:
            os.close(self._lock)
            raise Error(f"{folder}: another part of sysmond reads it") from None
        except Error:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Let another process read it."""
        os.close(self._lock)
        with suppress(BufferError):  # Rows are still in use: memory is given back when those go.
            super().close()


def _mapped(path: str, value_bytes: int) -> Array:
    try:
        return Array(path, value_bytes)
    except OSError as failure:
        raise Error(refusal(failure)) from None


def _opened(folder: str) -> tuple[str, PinnedProgram | Iterator]:
    """Open the best way that is pinned."""
    for way, kind in ((SNAPSHOT, PinnedProgram), (ITERATE, Iterator)):
        try:
            return way, kind(f"{folder}/{way}")
        except FileNotFoundError:
            continue
        except OSError as failure:
            raise Error(refusal(failure)) from None
    if os.path.isdir(folder):
        raise Error(f"{folder}: no BPF program that reads tasks; the loader reports why")
    raise Error(f"{folder}: missing; the BPF loader has not run")
