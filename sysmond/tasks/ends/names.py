# SPDX-License-Identifier: Apache-2.0
"""What a process that ended was called, by readings of /proc while it lived and by the kernel's messages. No I/O.

A reading is about the process that ended, and about the program that this ran last, where it was begun after the last
message that the process began or executed something, and done before that of its end: so neither a number that was
given anew nor a name from before an exec becomes a wrong name. What a process changes later itself, its name and its
user, is in messages. Where messages were lost, all readings so far are forgotten.

Times are those of the messages: CLOCK_MONOTONIC, in nanoseconds. Only a start is one since boot.
"""

from typing import NamedTuple

from sysmond.base.clock import Relation
from sysmond.records import Records
from sysmond.tasks.proc.text import ENDED, TICK_NS
from sysmond.tasks.tables import PROCESS_HEAD

# Of how many processes a name is remembered: the one learned first is forgotten.
KNOWN_MAX = 131_072


class ProcessName(NamedTuple):
    """What a process is called and where it belongs, as it was at some time from ``since_ns`` to ``until_ns``."""

    since_ns: int
    until_ns: int
    start_ns: int
    ppid: int
    uid: int
    cgroup: int
    comm: bytes

    def changed(self, time_ns: int, comm: bytes | None, uid: int) -> "ProcessName":
        """Give the name after a message: of another name, or, where that is None, of another user."""
        since_ns, until_ns = max(self.since_ns, time_ns), max(self.until_ns, time_ns)
        if comm is None:
            return self._replace(since_ns=since_ns, until_ns=until_ns, uid=uid)
        return self._replace(since_ns=since_ns, until_ns=until_ns, comm=comm)


class Names:
    """What the processes are called that run."""

    def __init__(self) -> None:
        """Know nothing yet.

        ``is_blank``: whether nothing is known of processes that ran before. ``unread``: how many starts were to be read
        and were not.
        """
        self.is_blank = True
        self.unread = 0
        self._began: dict[int, int] = {}  # When a process last began, or executed a program.
        self._known: dict[int, ProcessName] = {}
        self._not_before_ns = 0
        # A reading may be learned only after messages that are later: changes that wait for one, and what has ended.
        # Those of this reading of messages, and of the one before.
        self._changes: list[dict[int, list[tuple[int, bytes | None, int]]]] = [{}, {}]
        self._over: list[dict[int, int]] = [{}, {}]

    def __len__(self) -> int:
        """Of how many processes something is remembered."""
        return len(self._known) + len(self._began)

    def began(self, pid: int, time_ns: int) -> None:
        """A process began, or executed a program: what was read before is about another."""
        if len(self._began) >= KNOWN_MAX and pid not in self._began:
            self.doubt(time_ns)
        self._began[pid] = time_ns

    def changed(self, pid: int, time_ns: int, comm: bytes | None = None, uid: int = 0) -> None:
        """A process gave itself another name, or got another user."""
        name = self._known.get(pid)
        if name is not None and name.since_ns >= self._began.get(pid, 0):
            self._known[pid] = name.changed(time_ns, comm, uid)
        else:
            self._changes[0].setdefault(pid, []).append((time_ns, comm, uid))

    def doubt(self, now_ns: int) -> None:
        """Messages were lost: what was read before now may be about others."""
        self.is_blank = True
        self._not_before_ns = now_ns
        self._began.clear()
        self._known.clear()

    def learn(self, pid: int, name: ProcessName) -> None:
        """A process was read."""
        if name.since_ns < self._not_before_ns or any(name.since_ns <= over.get(pid, -1) for over in self._over):
            return
        before = self._known.get(pid)
        if before is not None and before.since_ns > name.since_ns:
            return
        if before is None and len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        for changes in reversed(self._changes):
            for change in changes.get(pid, ()):
                if change[0] > name.since_ns:
                    name = name.changed(*change)
        self._known[pid] = name

    def learn_pass(self, processes: Records, begun: Relation) -> None:
        """All processes were gone over, from that time on: the records are of those that changed, or of all.

        Of each that had begun by then: so its record is about who had its number at that moment.
        """
        begun_ns = begun.monotonic_ns
        if begun_ns < self._not_before_ns:
            return
        self.is_blank = self.is_blank and not processes.full
        for start_ns, pid, ppid, uid, cgroup, comm, state in PROCESS_HEAD.iter_unpack(processes.rows):
            if start_ns + TICK_NS <= begun.boottime_ns and state not in ENDED:
                self.learn(pid, ProcessName(begun_ns, begun_ns, start_ns, ppid, uid, cgroup, comm))

    def pop(self, pid: int, end_ns: int) -> ProcessName | None:
        """Give what a process was called that ended; None where that is not known for sure."""
        began_ns = self._began.get(pid, 0)
        if began_ns > end_ns:
            return None  # Another has the number by now, and what is known is about that.
        self._began.pop(pid, None)
        self._over[0][pid] = end_ns
        name = self._known.get(pid)
        if name is None or name.until_ns > end_ns:
            return None
        del self._known[pid]
        return name if name.since_ns >= began_ns else None

    def end_reading(self) -> None:
        """All that ended by now was asked for."""
        self._over = [{}, self._over[0]]
        self._changes = [{}, self._changes[0]]
