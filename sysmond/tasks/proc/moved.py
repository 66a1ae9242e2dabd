# SPDX-License-Identifier: Apache-2.0
"""What a process read and wrote by itself, by /proc: ``io`` of a process has in it what waited-for children did.

| the process | its own bytes |
|---|---|
| never had a second thread | ``io``, and from the first child it has waited for ``task/PID/io`` |
| had one, and waited for no child since the reading before | what ``io`` grew by |
| had one, and waited for a child since | what ``task/*/io`` grew by, at most what ``io`` did |

Whether it waited for a child ``stat`` says: page faults and times of those grow then. What a thread did between the
last reading and its end is lost where both come together, so the result is a lower bound and marked. ``task`` is listed
for the third case alone: of processes with several threads that have ever waited for a child, and where ``io`` changed.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from sysmond.base.model import ABSENT
from sysmond.tasks.proc import text
from sysmond.tasks.proc.files import IO, STAT, Task, TaskFiles
from sysmond.tasks.proc.text import NO_IO, Io, TaskStat

# How many threads are looked at in a pass, but the first: 3 ms at most.
THREADS_PER_PASS_MAX = 128
_NOTHING = Io(0, 0, 0, 0)


class Moved(NamedTuple):
    """``own``: by itself; ``all``: with waited-for children; ``unseen``: whether ``own`` may lack what threads did."""

    own: Io
    all: Io
    unseen: bool


class IoContext(NamedTuple):
    """``several``: the process has, or had, threads, or nobody knows. ``before``: its ``io``, read before ``stat``.

    ``has_run``: whether it ran since ``stat`` was read, or nobody knows.
    """

    several: bool
    keep: bool = False
    before: Io | None = None
    has_run: Callable[[], bool] = lambda: True


UNKNOWN_MOVES = Moved(NO_IO, NO_IO, unseen=False)


class ThreadBudget:
    """How many files of threads may still be read in this pass."""

    def __init__(self) -> None:
        """Let the first pass read all."""
        self.left = 1 << 30

    def new_pass(self) -> None:
        """Begin another one."""
        self.left = THREADS_PER_PASS_MAX


class OwnBytes:
    """The bytes of one process, as last read."""

    __slots__ = ("_all", "_alone", "_own", "_threads", "_unseen", "_waited")

    def __init__(self, folder: str) -> None:
        """Know nothing yet. ``folder``: of the process, its number."""
        self._alone = Task(f"{folder}/task/{folder}")
        self._own = self._all = NO_IO
        self._waited = 0
        self._threads: dict[str, Io] | None = None
        self._unseen = False

    def read(self, process: Task, stat: TaskStat, files: TaskFiles, budget: ThreadBudget, context: IoContext) -> Moved:
        """Bring it up to date.

        :raises OSError: where it is gone. :raises ValueError: where a file cannot be parsed.
        """
        several, keep, before = context[:3]
        if several:
            total = text.io(files.read_if_allowed(process, IO, keep=keep))
            if total not in {NO_IO, self._all} or (self._own == NO_IO != total):
                self._add(process, stat, files, budget, total)
        else:
            total = own = text.io(files.read_if_allowed(process, IO, keep=keep)) if before is None else before
            waited = stat.waited
            if before is None and not waited and context.has_run():  # It may have waited for its first child since.
                waited = text.stat(files.read(process, STAT, keep=keep)).waited
            if waited:
                own = text.io(files.read_if_allowed(self._alone, IO, keep=keep))
            self._own, self._threads = _at_least(own, self._own), {process.folder: own}
        self._all, self._waited = _at_least(total, self._own), stat.waited
        return Moved(self._own, self._all, self._unseen)

    def close(self, files: TaskFiles) -> None:
        """Close its files."""
        files.shut(self._alone)

    def _add(self, process: Task, stat: TaskStat, files: TaskFiles, budget: ThreadBudget, total: Io) -> None:
        """Add what it did by itself of what the sum grew by."""
        # A child that was waited for since stat was read may be in the sum already.
        waited = text.stat(files.read(process, STAT)).waited
        is_first = self._own == NO_IO
        has_waited = waited != stat.waited or waited != (0 if is_first else self._waited)
        threads = self._listed(process, files, budget) if waited else None
        if is_first and has_waited:
            self._own = NO_IO if threads is None else _sum(threads.values())
            self._unseen = self._own not in {NO_IO, total} and _have_ended(process, threads, files)
        elif not has_waited:
            self._own = total if is_first else _plus(self._own, _minus(total, self._all))
        else:
            before = self._threads
            if threads is None:
                grown = _NOTHING
            elif before is None:
                grown = _minus(_at_least(_sum(threads.values()), self._own), self._own)
            else:
                grown = _sum(_minus(now, before.get(name, _NOTHING)) for name, now in threads.items())
            most = _minus(total, self._all)
            grown = Io(*map(min, grown, most))
            if not self._unseen and grown != most and before is not None and threads is not None:
                self._unseen = not before.keys() <= threads.keys()
            elif not self._unseen and grown != most:
                self._unseen = _have_ended(process, threads, files)
            self._own = _plus(self._own, grown)
        self._threads = threads

    def _listed(self, process: Task, files: TaskFiles, budget: ThreadBudget) -> dict[str, Io] | None:
        """What each thread did that there is; None where too many were read in this pass."""
        names = files.threads_of(process)
        if len(names) > budget.left:
            return None
        budget.left -= len(names)
        by_thread: dict[str, Io] = {}
        for name in names:
            with suppress(FileNotFoundError, ProcessLookupError):
                by_thread[name] = text.io(files.read_if_allowed(Task(f"{process.folder}/task/{name}"), IO))
        return by_thread


def _have_ended(process: Task, threads: dict[str, Io] | None, files: TaskFiles) -> bool:
    """Whether a process ever had other threads: of each the page faults stay in the sum. True where it is not sure."""
    if threads is None:
        return True
    stat = text.stat(files.read(process, STAT))
    faults = stat.minor + stat.major
    for name in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            of_thread = text.stat(files.read(Task(f"{process.folder}/task/{name}"), STAT))
            faults -= of_thread.minor + of_thread.major
    return faults != 0


def _sum(parts: Iterable[Io]) -> Io:
    total = _NOTHING
    for part in parts:
        total = _plus(total, part)
    return total


def _plus(one: Io, other: Io) -> Io:
    return Io(*[ABSENT if ABSENT in pair else sum(pair) for pair in zip(one, other, strict=True)])


def _minus(now: Io, before: Io) -> Io:
    """What it grew by: nothing where it fell."""
    pairs = zip(now, before, strict=True)
    return Io(*[ABSENT if ABSENT in pair else max(0, pair[0] - pair[1]) for pair in pairs])


def _at_least(now: Io, before: Io) -> Io:
    """A counter stands still, and never sinks; ABSENT is less than any, and stays what it is."""
    return Io(*[new if new == ABSENT else max(new, old) for new, old in zip(now, before, strict=True)])
