# SPDX-License-Identifier: Apache-2.0
"""Which processes there are, without listing /proc every time.

The number given last is in loadavg; those up to it are new: where they are few, each is tried by itself. This
needs sysmond to live in the pid namespace that /proc shows; elsewhere, as where a container reads the /proc of the
machine around it, /proc is listed.
"""

import os
from contextlib import suppress
from time import clock_gettime_ns

from sysmond.tasks.proc.text import last_pid

# A program may choose a number (clone3 with set_tid), which leaves the counter alone.
LIST_EVERY = 30
# Trying a number that no process has costs as much as listing one process.
_ASKED_MIN = 64
_CPUCLOCK_SCHED = 2


def clock_of(pid: int) -> int:
    """Give the clock that counts the CPU time of a process, as the kernel spells it: include/linux/posix-timers.h."""
    return ~pid << 3 | _CPUCLOCK_SCHED


class NewPids:
    """Finds processes that may be new. ``is_ours``: the numbers of this /proc are those of our own namespace."""

    def __init__(self, top: int) -> None:
        """Look at the /proc that is open as ``top``."""
        self._top = top
        self._loadavg = -1
        # Those of the last two readings: a process appears a moment after its number was given.
        self._given, self._given_before = -1, -1
        self._readings = 0
        self.is_ours = False
        with suppress(OSError):
            self.is_ours = os.readlink("self", dir_fd=top) == str(os.getpid())
            self._loadavg = os.open("loadavg", os.O_RDONLY | os.O_CLOEXEC, dir_fd=top)

    def close(self) -> None:
        """Close what is open."""
        if self._loadavg >= 0:
            os.close(self._loadavg)
            self._loadavg = -1

    def candidates(self, known: int, *, is_full: bool) -> list[str]:
        """Give the names of processes that may be new.

        ``known``: how many are known; ``is_full``: there is no room for more, so more are only counted.
        """
        since, asked = self._given_before, -1
        if self.is_ours and self._loadavg >= 0:
            given = last_pid(os.pread(self._loadavg, 128, 0))
            self._given_before, self._given = self._given, given
            asked = given - since
        self._readings += 1
        turn = self._readings % LIST_EVERY == 0
        if since < 0 or turn or is_full or not 0 <= asked <= max(_ASKED_MIN, known):
            return [name for name in os.listdir(self._top) if name.isdigit()]
        names = []
        for pid in range(since + 1, since + asked + 1):
            with suppress(OSError):  # It is the number of a thread, or of a process that has ended.
                clock_gettime_ns(clock_of(pid))
                names.append(str(pid))
        return names
