# SPDX-License-Identifier: Apache-2.0
"""Processes that ended, however shortly they lived: by BPF, else the proc connector, else taskstats.

``sysmond/tasks/ends/exits.py`` lists the ways, with what each needs and what its records lack.
"""

from errno import ENOENT
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic

from sysmond.probe import Host, Probe, Records, hookimpl
from sysmond.tasks.bpf.report import report_of
from sysmond.tasks.ends.exits import BY_BPF, Exits, last_of, open_exits, switch_to_bpf
from sysmond.tasks.hidepid import sensitivity
from sysmond.tasks.passes import passes_of
from sysmond.tasks.tables import EXITS

# How long after a refusal a way is tried again, since trying takes a moment. For BPF, whose loader is another program
# that may run later or again, trying is a look for its report.
RETRY_S = 300.0
RETRY_BPF_S = 10.0


class Ended:
    """Reads ends of processes, by a way that is opened at the first reading."""

    def __init__(self) -> None:
        """Open nothing yet. ``way``: which way it is, and why no better one, in one line."""
        self.way = ""
        self._exits: Exits | None = None
        self._refused: Exception | None = None
        self._again_s = 0.0
        self._report: tuple[int, int] | None = None
        self._read_ns = 0
        self._follows = False
        self._unread = ""
        self._rows = b""  # Of the last reading, where that was not by BPF.

    def records(self, host: Host, full: bool) -> Records:  # noqa: ARG002, FBT001  what ended is all there is
        """Give the processes that ended since the reading before.

        :raises Error: where this machine has no way to notice ends.
        :raises FileNotFoundError: where the files are those of another machine.
        """
        if host.root:
            raise FileNotFoundError(ENOENT, "only the running machine can say which processes end", host.root)
        if self._exits is None:
            self._exits = self._opened(host.runtime)
            self._follow_passes(host)
        elif monotonic() >= self._again_s:
            self._again_s = monotonic() + RETRY_BPF_S
            records = self._switched(host.runtime, self._exits)
            self._follow_passes(host)
            self._count_unread()
            if records is not None:
                return records
        host.tell_way(EXITS.name, self.way + self._unread)
        self._read_ns = clock_gettime_ns(CLOCK_BOOTTIME)
        records = self._exits.take()
        self._rows = b"" if self.way == BY_BPF else bytes(records.rows)
        return records

    def _follow_passes(self, host: Host) -> None:
        """Have the way know what processes are called, where it wants to: what it does not know itself."""
        names = None if self._exits is None else self._exits.names
        if names is not None or self._follows:
            passes_of(host).tell(names)
        self._follows = names is not None

    def _count_unread(self) -> None:
        """Say how many processes started that were not read then: their names are known if they lived on."""
        names = None if self._exits is None else self._exits.names
        self._unread = f"; not read at once: {names.unread} starts" if names is not None and names.unread else ""

    def _switched(self, runtime: str, before: Exits) -> Records | None:
        """Switch to BPF where the loader has pinned it, or pinned it anew, since the last look."""
        report = report_of(runtime)
        if report == self._report:
            return None
        switched = switch_to_bpf(before, runtime, self._read_ns, self._rows)
        self._report = report
        if switched is not None:
            self.way = BY_BPF
            self._exits, records = switched
            return records
        if self.way != BY_BPF:
            return None
        self._exits = None  # A program that is not pinned any more reports nothing; another way may.
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
    privilege = "CAP_BPF and CAP_PERFMON for the loader, or CAP_NET_ADMIN"
    return [Probe(EXITS, records=Ended().records, sensitivity=sensitivity(), privilege=privilege)]
