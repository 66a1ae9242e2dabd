# SPDX-License-Identifier: Apache-2.0
"""Processes that ended, however shortly they lived: by BPF, else the proc connector, else taskstats.

``sysmond/tasks/exits.py`` has the ways, what each needs, and what its records lack.
"""

from errno import ENOENT
from time import monotonic

from sysmond.probe import Host, Probe, Records, hookimpl
from sysmond.tasks.exits import Exits, open_exits
from sysmond.tasks.hidepid import sensitivity
from sysmond.tasks.tables import EXITS

# Where there was no way, one is looked for again after so long: trying takes a moment.
RETRY_S = 300.0


class Ended:
    """Takes what ended, by a way that is opened at the first reading."""

    def __init__(self) -> None:
        """Have no way yet. ``way``: which it is, and why none that is better, in one line."""
        self.way = ""
        self._exits: Exits | None = None
        self._refused: Exception | None = None
        self._again_s = 0.0

    def records(self, host: Host, full: bool) -> Records:  # noqa: ARG002, FBT001  what ended is all there is
        """Give what ended since the reading before.

        :raises Error: where this machine has no way to learn of it.
        :raises FileNotFoundError: where the files are those of a machine that does not run here.
        """
        if host.root:
            raise FileNotFoundError(ENOENT, "only the machine that runs tells of processes that end", host.root)
        if self._exits is None:
            self._exits = self._opened(host.runtime)
        return self._exits.take()

    def _opened(self, runtime: str) -> Exits:
        if self._refused is not None and monotonic() < self._again_s:
            raise self._refused
        try:
            exits, self.way = open_exits(runtime)
        except Exception as problem:
            self._refused, self._again_s = problem, monotonic() + RETRY_S
            raise
        return exits


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``exits``."""
    return [Probe(EXITS, records=Ended().records, sensitivity=sensitivity())]
