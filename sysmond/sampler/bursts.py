# SPDX-License-Identifier: Apache-2.0
"""Bursts: threads are looked at ten times a second for half a minute, because something happened.

When one begins and when it is over is decided here, by times that are given; when the last began is noted for the
lane's next incarnation. Times are CLOCK_BOOTTIME nanoseconds. Standard library only.
"""

from contextlib import suppress
from typing import Any

from sysmond.base.clock import SECOND_NS
from sysmond.errors import CorruptError
from sysmond.machine import note

FILE = "burst.json"
# What is read so often meanwhile. The stacks of these threads are kept for the next reading of those.
TABLE = "thread_state"
INTERVAL_NS = SECOND_NS // 10
LASTS_NS = 30 * SECOND_NS
# From the beginning of one to that of the next.
APART_NS = 300 * SECOND_NS
# Of a core, for all that this lane does meanwhile, over so long at least: one reading alone tells nothing.
CPU_PERCENT_MAX = 5
JUDGED_NS = 2 * SECOND_NS


class Bursts:
    """The burst that goes on, if one does, and when the last began."""

    def __init__(self, folder: str, boot: str) -> None:
        """None goes on: an earlier incarnation's ended with it. ``folder``: of the lane."""
        self._path = f"{folder}/{FILE}"
        self._boot = boot
        self._began_ns = -APART_NS
        self._began_cpu_ns = 0
        self.until_ns = 0
        with suppress(OSError, CorruptError):
            self._began_ns = note.read(self._path, self._shape)

    def begin(self, now_ns: int, cpu_ns: int) -> bool:
        """Begin one, where the last was long enough ago. ``cpu_ns``: the CPU time that this process has used."""
        if self._began_ns <= now_ns < self._began_ns + APART_NS:
            return False
        self._began_ns, self._began_cpu_ns, self.until_ns = now_ns, cpu_ns, now_ns + LASTS_NS
        with suppress(OSError):  # Without room for it, an incarnation that follows may begin one sooner.
            note.write(self._path, {"boot": self._boot, "began_ns": now_ns})
        return True

    def judge(self, now_ns: int, cpu_ns: int) -> str:
        """End the one that goes on where it costs too much; gives what is said of that."""
        if not self.is_on(now_ns):
            return ""
        lasted_ns, used_ns = now_ns - self._began_ns, cpu_ns - self._began_cpu_ns
        if used_ns * 100 <= max(lasted_ns, JUDGED_NS) * CPU_PERCENT_MAX:
            return ""
        self.until_ns = now_ns
        percent = used_ns * 100 / max(lasted_ns, JUDGED_NS)
        return (
            f"ended after {lasted_ns / SECOND_NS:.1f} s: the sampler used {percent:.1f} % of a core;"
            f" at most {CPU_PERCENT_MAX} % are allowed"
        )

    def is_on(self, now_ns: int) -> bool:
        """Whether one goes on."""
        return now_ns < self.until_ns

    def _shape(self, noted: dict[str, Any]) -> int:
        began_ns = note.integer(noted["began_ns"])
        return began_ns if noted["boot"] == self._boot else -APART_NS
