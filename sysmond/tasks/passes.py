# SPDX-License-Identifier: Apache-2.0
"""One pass over all tasks a tick, for all tables that are made of it.

A pass gives the rows of all its tables that changed since the pass before. A table that was not read at one of them,
since it has a longer interval or is new, gets all rows at its next reading.
"""

from typing import TYPE_CHECKING

from sysmond.base import clock
from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.records import Records
from sysmond.tasks.bpf.report import report_of
from sysmond.tasks.choose import BY_PROC, open_tasks, open_walk
from sysmond.tasks.tables import PROCESS, THREAD
from sysmond.tasks.zombies import Zombies

if TYPE_CHECKING:
    from collections.abc import Callable

    from sysmond.tasks.ends.names import Names
    from sysmond.tasks.pass_result import PassResult, Tasks

# How often, at most, a pass gives all that nobody asked for: where messages are lost again and again.
ALL_AGAIN_NS = 10 * clock.SECOND_NS


class Passes:
    """The passes over the tasks of one host. ``way``: how they are made, and why not by a better way, in one line."""

    def __init__(self, runtime_folder: str, root: str) -> None:
        """Open the best way there is.

        :raises OSError: where even /proc is missing.
        """
        self._runtime, self._root = runtime_folder, root
        self._tasks: Tasks | None = None
        self._result: PassResult | None = None
        self._tick = -1
        self._number = 0  # Of the last pass, and which of them each table has seen.
        self._seen: dict[str, int] = {}
        self._report = report_of(runtime_folder)
        self._names: Callable[[], Names | None] = _nobody
        self._all_again_ns = 0
        self._zombies = Zombies()
        self._tasks, self.way = open_tasks(runtime_folder, root)

    def records(self, table: str, tick: int, *, full: bool, threads: bool = False) -> Records:
        """Give the records of a table at a tick; of tables read at the same tick they are of the same pass.

        The rows hold until the next pass. ``threads``: the caller will ask for those, too.

        :raises OSError: as the kernel says.
        """
        last = self._number if tick != self._tick else self._number - 1
        full = full or self._seen.get(table, -1) < last
        # Threads cost a lot by /proc: they are read where somebody asked for them a pass ago.
        threads = threads or table == THREAD.name or self._seen.get(THREAD.name, -2) >= last
        records = None if tick != self._tick else self._of(table)
        if records is None or (full and not records.full):
            self._pass(full=full, threads=threads)
            self._tick = tick
            records = self._of(table)
        if records is None:
            raise LookupError(f"no pass gives the table {table}")
        self._seen[table] = self._number
        return records

    def tell(self, names: "Names | None") -> None:
        """Have what processes are called told with each pass, for as long as somebody wants to know it."""
        from weakref import ref  # noqa: PLC0415  BPF does without

        self._names = _nobody if names is None else ref(names)

    def close(self) -> None:
        """Close the way; the next pass opens one anew."""
        self._result = None
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    def _of(self, table: str) -> Records | None:
        if self._result is None:
            return None
        if table == THREAD.name:
            return self._result.thread
        return self._result.process if table == PROCESS.name else self._result.private

    def _pass(self, *, full: bool, threads: bool) -> None:
        if full:
            self._follow_loader()
        if self._tasks is None:
            self._report = report_of(self._runtime)
            self._tasks, self.way = open_tasks(self._runtime, self._root)
            full = True
        self._result = None
        self._number += 1
        try:
            if (names := self._names()) is not None:
                begun = clock.relation()
                self._result = self._tasks.take(full=full or self._is_full_due(names, begun), threads=threads)
                names.learn_pass(self._result.process, begun)
            else:
                self._result = self._tasks.take(full=full, threads=threads)
            # Of another root the numbers may be those of another PID namespace.
            if not self._root and (gone := self._zombies.gone(self._result.process)):
                process = self._result.process
                self._result = self._result._replace(process=process._replace(rows=bytes(process.rows) + gone))
        except BaseException:  # It may have been interrupted in the middle: what is half done is not gone on with.
            self.close()
            raise

    def _is_full_due(self, names: "Names", begun: clock.Relation) -> bool:
        """Whether names want to know all processes again: a new way to know of ends, or one that lost messages."""
        if not names.is_blank or begun.boottime_ns < self._all_again_ns:
            return False
        self._all_again_ns = begun.boottime_ns + ALL_AGAIN_NS
        return True

    def _follow_loader(self) -> None:
        """Switch to BPF where the loader has run since, or to what it has loaded anew."""
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

    :raises OSError: where even /proc is missing.
    """
    return host.shared(_made_for)


def _nobody() -> None:
    """Stand for names that nobody wants to know."""


def _made_for(host: Host) -> Passes:
    return Passes(host.runtime, host.root)
