# SPDX-License-Identifier: Apache-2.0
"""One pass of the kernel over all tasks: what changed, as packed records in memory shared with the kernel.

Rows of ``process``, ``thread`` and ``process_private``. A pass takes a fixed number of system calls for any number
of tasks: with ``snapshot`` one, with ``iterate`` three; and five for each array whose mapping has to grow or shrink
much. Standard library only: the real-time sampler reads by this.
"""

import fcntl
import os
import struct
from contextlib import suppress

from sysmond.errors import Error, refusal
from sysmond.records import Records, record_bytes
from sysmond.tasks.bpf.pins import Array, Iterator, PinnedProgram
from sysmond.tasks.pass_result import PassResult
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD

# The ways, best first: the names of the pins.
SNAPSHOT, ITERATE = "snapshot", "iterate"
# ``struct pass`` of bpf/tasks.bpf.c: the request, how many tasks there were, and for each array how many rows
# it has, and how many had no room.
_ASKED = struct.Struct("=IIII32x")
_COUNTS = struct.Struct("=16x8I")
_TURN_MAX = 0xFFFFFFFF


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
        """Pass over all tasks once: give what changed since the last pass, with ``full`` all.

        The rows are the mapped memory itself: they hold until the next pass.

        :raises OSError: where the kernel does not run the program.
        """
        self._turn = (self._turn + 1) & _TURN_MAX
        _ASKED.pack_into(self._control.memory, 0, full, threads, 1, self._turn)
        self._program.run()
        walked, walked_threads, *counts = _COUNTS.unpack_from(self._control.memory)
        processes, processes_lost, of_threads, threads_lost, privates, privates_lost = counts
        return PassResult(
            Records(self._process.first(processes), full, processes_lost, walked),
            Records(self._thread.first(of_threads), full, threads_lost, walked_threads) if threads else None,
            Records(self._private.first(privates), full, privates_lost, walked),
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
        raise Error(f"{folder}: no program that reads tasks; the loader says why")
    raise Error(f"{folder}: not there; the loader of BPF programs must have run")
