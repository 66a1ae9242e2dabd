# SPDX-License-Identifier: Apache-2.0
"""One pass of the kernel over all tasks: what changed, as packed records in memory shared with the kernel.

Rows of ``process``, ``thread`` and ``process_private``. A pass is a fixed number of system calls, whatever it finds:
with ``snapshot`` one, with ``iterate`` three; and five for an array of which much more, or much less, is to be mapped
than before. Standard library only: the real-time sampler reads by this.
"""

import os
import struct

from sysmond.errors import Error, refusal
from sysmond.records import Records, record_bytes
from sysmond.tasks.bpf.pins import Array, Iterator, PinnedProgram
from sysmond.tasks.pass_result import Taken
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD

# The ways, best first: the names of the pins.
SNAPSHOT, ITERATE = "snapshot", "iterate"
# ``struct pass`` of bpf/tasks.bpf.c: what is asked, what was walked, and of each array how many and how many not.
_ASKED = struct.Struct("=IIII32x")
_FOUND = struct.Struct("=16x8I")
_TURN_MAX = 0xFFFFFFFF


class Walk:
    """The pinned program that passes over all tasks, and the arrays that it fills. ``way`` says which it is."""

    def __init__(self, folder: str) -> None:
        """Open what is pinned in a folder.

        :raises Error: where neither program is there or may be opened, or its arrays are not of this version.
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

    def take(self, *, full: bool, threads: bool) -> Taken:
        """Pass over all tasks once: give what changed since the last pass, with ``full`` all.

        The rows are those of the mapping: they hold until the next pass.

        :raises OSError: where the kernel does not run the program.
        """
        self._turn = (self._turn + 1) & _TURN_MAX
        _ASKED.pack_into(self._control.memory, 0, full, threads, 1, self._turn)
        self._program.run()
        walked, walked_threads, *counts = _FOUND.unpack_from(self._control.memory)
        processes, processes_lost, of_threads, threads_lost, privates, privates_lost = counts
        return Taken(
            Records(self._process.first(processes), full, processes_lost, walked),
            Records(self._thread.first(of_threads), full, threads_lost, walked_threads) if threads else None,
            Records(self._private.first(privates), full, privates_lost, walked),
        )

    def close(self) -> None:
        """Close all. Rows that were given must not be in use any more."""
        self._program.close()
        for each in (self._control, self._process, self._thread, self._private):
            each.close()


def _mapped(path: str, value_bytes: int) -> Array:
    try:
        return Array(path, value_bytes)
    except OSError as failure:
        raise Error(refusal(failure)) from None


def _opened(folder: str) -> tuple[str, PinnedProgram | Iterator]:
    """Open the best of the ways that are pinned."""
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
