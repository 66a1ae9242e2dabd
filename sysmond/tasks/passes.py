# SPDX-License-Identifier: Apache-2.0
"""One pass over all tasks a tick, for all tables that are made of it.

A pass gives what changed since the pass before, of all its tables. A table that was not asked for at one of them, since
it is read more seldom or was not there yet, gets all there is at its next reading.
"""

from typing import TYPE_CHECKING

from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.records import Records
from sysmond.tasks.bpf.report import report_of
from sysmond.tasks.choose import BY_PROC, open_tasks, open_walk
from sysmond.tasks.tables import PROCESS, THREAD

if TYPE_CHECKING:
    from sysmond.tasks.pass_result import Taken, Tasks


class Passes:
    """The passes over the tasks of one host. ``way``: how they are made, and why not by a better way, in one line."""

    def __init__(self, runtime_folder: str, root: str) -> None:
        """Open the best way there is.

        :raises OSError: where there is not even /proc.
        """
        self._runtime, self._root = runtime_folder, root
        self._tasks: Tasks | None = None
        self._taken: Taken | None = None
        self._tick = -1
        self._number = 0  # Of the last pass, and which of them each table has seen.
        self._seen: dict[str, int] = {}
        self._report = report_of(runtime_folder)
        self._tasks, self.way = open_tasks(runtime_folder, root)

    def records(self, table: str, tick: int, *, full: bool, threads: bool = False) -> Records:
        """Give the records of a table at a tick; of tables read at the same tick they are of the same pass.

        The rows hold until the next pass. ``threads``: those are going to be asked for.

        :raises OSError: as the kernel says.
        """
        last = self._number if tick != self._tick else self._number - 1
        full = full or self._seen.get(table, -1) < last
        # Threads cost a lot by /proc: they are read where they were asked for a pass ago.
        threads = threads or table == THREAD.name or self._seen.get(THREAD.name, -2) >= last
        found = None if tick != self._tick else self._of(table)
        if found is None or (full and not found.full):
            self._pass(full=full, threads=threads)
            self._tick = tick
            found = self._of(table)
        if found is None:
            raise LookupError(f"no pass gives the table {table}")
        self._seen[table] = self._number
        return found

    def close(self) -> None:
        """Let go of the way; the next pass opens one anew."""
        self._taken = None
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    def _of(self, table: str) -> Records | None:
        if self._taken is None:
            return None
        if table == THREAD.name:
            return self._taken.thread
        return self._taken.process if table == PROCESS.name else self._taken.private

    def _pass(self, *, full: bool, threads: bool) -> None:
        if full:
            self._follow_loader()
        if self._tasks is None:
            self._report = report_of(self._runtime)
            self._tasks, self.way = open_tasks(self._runtime, self._root)
            full = True
        self._taken = None
        self._number += 1
        try:
            self._taken = self._tasks.take(full=full, threads=threads)
        except OSError:
            self.close()
            raise

    def _follow_loader(self) -> None:
        """Go over to BPF where the loader has run since, or to what it has loaded anew."""
        if self.way.startswith(BY_PROC):
            try:
                open_walk(self._runtime, self._root).close()
            except Error:
                return
            self.close()
        elif report_of(self._runtime) != self._report:
            self.close()


def passes_of(host: Host) -> Passes:
    """Give the passes over the tasks of a host, which all its probes share.

    :raises OSError: where it has not even /proc.
    """
    return host.shared(_made_for)


def _made_for(host: Host) -> Passes:
    return Passes(host.runtime, host.root)
