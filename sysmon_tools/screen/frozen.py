# SPDX-License-Identifier: Apache-2.0
"""What stands still of what the live screen shows: control groups, units and processes that are frozen, and by which.

The kernel is asked of rows that are seen, once each until the next ones come: nothing is recorded, and what
somebody froze here is marked in the recording.
"""

from collections.abc import Mapping
from contextlib import suppress

from sysmon_tools import cgroup_deeds
from sysmon_tools.screen.look import Look
from sysmon_tools.screen.subjects import SIGNAL, subject
from sysmon_tools.screen.views import CGROUPS, PROCESSES, UNITS
from sysmon_tools.targets import GroupTarget, target_of
from sysmond.cgroups.tree import Tree
from sysmond.errors import Error

VIEWS = frozenset({CGROUPS, UNITS, PROCESSES})
NOTE = " (frozen)"
GROUPS_MAX = 4096


class Frozen:
    """Tells of rows whether what they are about is frozen."""

    def __init__(self) -> None:
        """Know nothing yet; where there are no control groups of version 2, nothing is ever frozen."""
        self._root = ""
        with suppress(Error, OSError):
            self._root = cgroup_deeds.folder_of("/").rstrip("/")
        self._tree = Tree(self._root)
        self._units: dict[tuple[str, int | None], str] = {}
        self._is_listed = False
        self._known: dict[GroupTarget, str] = {}

    def forget(self) -> None:
        """Ask anew."""
        self._known.clear()
        self._is_listed = False

    def by(self, look: Look, cells: Mapping[str, str | None]) -> str:
        """The control group that is frozen, and with it what a row is about; empty where none is."""
        if not (self._root and look.is_live and look.view in VIEWS and cells):
            return ""
        with suppress(Error, OSError):  # A row of nothing that can be frozen, or of what has gone.
            target = subject(SIGNAL, look, cells, 0)
            if not isinstance(target, GroupTarget):
                target = GroupTarget("", cgroup_deeds.cgroup_of(target.pid))
            if target not in self._known:
                path = target.path or self._path(target)
                self._known[target] = cgroup_deeds.frozen_by(self._root, path) if path else ""
            return self._known[target]
        return ""

    def says(self, look: Look, cells: Mapping[str, str | None], key: str) -> str:
        """What is to be said of the row below the cursor, where it is frozen; ``key``: what thaws."""
        path = self.by(look, cells)
        if not path:
            return ""
        name = target_of(path).name
        if look.view != PROCESSES and not {name, path}.isdisjoint(cells.values()):
            return f"{name} is frozen: {key} thaws it"
        return f"frozen with {name}, in 'c' cgroups or 'u' units: {key} thaws it there"

    def _path(self, target: GroupTarget) -> str:
        """The control group of a unit, by the names of all that there are."""
        if not self._is_listed:
            self._is_listed = True
            if self._tree.look(GROUPS_MAX):
                self._units = {(one.unit, one.uid): one.path for one in map(target_of, self._tree.groups) if one.unit}
        return self._units.get((target.unit, target.uid), "")
