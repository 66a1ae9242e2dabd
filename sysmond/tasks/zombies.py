# SPDX-License-Identifier: Apache-2.0
"""Zombies: processes that ended and that their parents have not waited for, until the kernel lets go of them.

A pass gives a row of a process as it becomes a zombie, and nothing once its parent has waited for it, as nothing in the
kernel tells of that. So the last row is given once more then, with the state X, dead (proc_pid_stat(5)).
Standard library only.
"""

import os
from contextlib import suppress

from sysmond.records import Records, record_bytes
from sysmond.tasks.tables import GONE, PROCESS, PROCESS_HEAD, ZOMBIE

# More at once are listed until the next reading of all processes.
FOLLOWED_MAX = 1024
_ROW_BYTES = record_bytes(PROCESS)
_STATE_AT = _ROW_BYTES - 20  # as PROCESS_HEAD has it
_ZOMBIE, _GONE = ZOMBIE.encode(), GONE.encode()


class Zombies:
    """Follows the zombies of this machine from pass to pass."""

    def __init__(self) -> None:
        """None is known yet."""
        # Of each, by start and number, its row.
        self._rows: dict[tuple[int, int], bytes] = {}

    def gone(self, processes: Records) -> bytes:
        """Give rows for those that went since the pass before this one; none where it has all processes that there are.

        ``processes``: what the pass gave of the table ``process``.
        """
        if processes.full:
            self._rows.clear()
        rows = processes.rows
        has_new = _ZOMBIE in bytes(rows[_STATE_AT::_ROW_BYTES])
        if not self._rows and not has_new:
            return b""
        came = [(head[0], head[1], head[-1]) for head in PROCESS_HEAD.iter_unpack(rows)]
        began = {pid: start_ns for start_ns, pid, _ in came}
        # Of whom this pass gave a row, only the next one asks: a reading has one row of a process.
        before = [key for key in self._rows if began.get(key[1]) != key[0]]
        last = [self._rows.pop(key) for key in before if key[1] in began or not _is_there(key[1])]
        for number, (start_ns, pid, state) in enumerate(came):
            key = start_ns, pid
            if state == _ZOMBIE and (key in self._rows or len(self._rows) < FOLLOWED_MAX):
                self._rows[key] = bytes(rows[number * _ROW_BYTES : (number + 1) * _ROW_BYTES])
        return b"".join(row[:_STATE_AT] + _GONE + row[_STATE_AT + 1 :] for row in last)


def _is_there(pid: int) -> bool:
    """Whether there is a process of that number; unlike /proc, the answer hides none of another user."""
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
