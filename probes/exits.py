# SPDX-License-Identifier: Apache-2.0
"""Processes that ended, however shortly they lived: by BPF, else the proc connector, else taskstats.

``sysmond/tasks/ends/exits.py`` has the ways, what each needs, and what its records lack.
"""

from errno import ENOENT
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic

from sysmond.probe import Host, Probe, Records, hookimpl
from sysmond.tasks.bpf.report import report_of
from sysmond.tasks.ends.exits import BY_BPF, Exits, gone_over, last_of, open_exits
from sysmond.tasks.hidepid import sensitivity
from sysmond.tasks.tables import EXITS

# How long after a way was refused it is tried again: trying takes a moment. For BPF, which is loaded by another program
# that may come later or again, that is a look for its file.
RETRY_S = 300.0
RETRY_BPF_S = 10.0


class Ended:
    """Takes what ended, by a way that is opened at the first reading."""

    def __init__(self) -> None:
        """Have no way yet. ``way``: which it is, and why none that is better, in one line."""
        self.way = ""
        self._exits: Exits | None = None
        self._refused: Exception | None = None
        self._again_s = 0.0
        self._report: tuple[int, int] | None = None
        self._taken_ns = 0
        self._told = b""  # By another way than BPF, when it was last taken.

    def records(self, host: Host, full: bool) -> Records:  # noqa: ARG002, FBT001  what ended is all there is
        """Give what ended since the reading before.

        :raises Error: where this machine has no way to learn of it.
        :raises FileNotFoundError: where the files are those of a machine that does not run here.
        """
        if host.root:
            raise FileNotFoundError(ENOENT, "only the machine that runs tells of processes that end", host.root)
        if self._exits is None:
            self._exits = self._opened(host.runtime)
        elif monotonic() >= self._again_s:
            self._again_s = monotonic() + RETRY_BPF_S
            over = self._gone_over(host.runtime, self._exits)
            if over is not None:
                return over
        host.tell_way(EXITS.name, self.way)
        self._taken_ns = clock_gettime_ns(CLOCK_BOOTTIME)
        records = self._exits.take()
        self._told = b"" if self.way == BY_BPF else bytes(records.rows)
        return records

    def _gone_over(self, runtime: str, before: Exits) -> Records | None:
        """Go over to BPF where the loader has pinned it, or pinned it anew, since it was looked for."""
        report = report_of(runtime)
        if report == self._report:
            return None
        over = gone_over(before, runtime, self._taken_ns, self._told)
        self._report = report
        if over is not None:
            self.way = BY_BPF
            self._exits, records = over
            return records
        if self.way != BY_BPF:
            return None
        self._exits = None  # What is pinned no more tells nothing from now on; another way may.
        return last_of(before)

    def _opened(self, runtime: str) -> Exits:
        if self._refused is not None and monotonic() < self._again_s:
            raise self._refused
        self._report = report_of(runtime)
        try:
            exits, self.way = open_exits(runtime)
        except Exception as problem:
            self._refused, self._again_s = problem, monotonic() + RETRY_S
            raise
        self._again_s = monotonic() + RETRY_BPF_S
        return exits


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``exits``."""
    return [Probe(EXITS, records=Ended().records, sensitivity=sensitivity())]
