# SPDX-License-Identifier: Apache-2.0
"""What threads are doing at this moment, by one pass of the kernel: rows of ``thread_state``, and stacks by number.

A pass is one system call. Standard library only: the real-time sampler reads by this.
"""

import struct

from sysmond.errors import Error, refusal
from sysmond.records import Records, record_bytes
from sysmond.tasks.bpf.pins import Array, PinnedProgram
from sysmond.tasks.tables import THREAD_STATE

# ``struct states_pass`` and ``struct stack_record`` of bpf/.
_ASKED = struct.Struct("=II24x")
_COUNTS = struct.Struct("=8x5I4x")
FRAMES = 16
NAME_BYTES = 32
_STACK = struct.Struct(f"=q{FRAMES * NAME_BYTES}s")
_ROUNDS = 1 << 32


class BpfStates:
    """The pinned program that looks at all threads, and the arrays that it fills."""

    def __init__(self, folder: str) -> None:
        """Open what is pinned in a folder.

        :raises Error: where it is missing, may not be opened, or is of another version.
        """
        try:
            self._program = PinnedProgram(f"{folder}/states")
            self._control = Array(f"{folder}/states_control", _ASKED.size)
            self._rows = Array(f"{folder}/state_rows", record_bytes(THREAD_STATE))
            self._stacks = Array(f"{folder}/stack_rows", _STACK.size)
        except OSError as failure:
            raise Error(refusal(failure)) from None
        _, self._round = struct.unpack_from("=II", self._control.memory)

    def take(self, *, full: bool, every: bool = False) -> tuple[Records, dict[int, str]]:
        """Look at all threads: rows of those that run or wait uninterruptibly, or of ``every``; and stacks.

        A stack is given once: its functions, innermost first, a line each; with ``full`` all are given again. A stack
        for which there was no room is given by the next pass. The rows are the mapped memory itself: they hold
        until the next pass.

        :raises OSError: where the kernel does not run the program.
        """
        if full:
            self._round = (self._round + 1) % _ROUNDS
        _ASKED.pack_into(self._control.memory, 0, every, self._round)
        self._program.run()
        walked, count, lost, stacks, _ = _COUNTS.unpack_from(self._control.memory)
        texts = {number: _joined(names) for number, names in _STACK.iter_unpack(self._stacks.first(stacks))}
        return Records(self._rows.first(count), full=True, lost=lost, walked=walked), texts

    def close(self) -> None:
        """Close all. Rows that were given must not be in use any more."""
        self._program.close()
        for array in (self._control, self._rows, self._stacks):
            array.close()


def _joined(names: bytes) -> str:
    """The functions of a record, 32 bytes each, as one line each."""
    functions = (names[at : at + NAME_BYTES].partition(b"\0")[0] for at in range(0, len(names), NAME_BYTES))
    return "\n".join(name.decode("utf-8", "replace") for name in functions if name)
