# SPDX-License-Identifier: Apache-2.0
"""Which cgroup a number means: the table ``cgroup_name``, by looking at the folders of one hierarchy.

Tasks have a cgroup in every hierarchy, and numbers tell cgroups apart in one only: ``proc_cgroups`` chooses it for all
tables. Names are as the kernel has them: systemd's escapes stay, and bytes that are not UTF-8.
"""

import errno
import os
from collections.abc import Sequence

from sysmond.cgroups import MOUNTINFO, Hierarchy, Tree, hierarchies
from sysmond.probe import Host
from sysmond.records import TEXT_BYTES_MAX, Records
from sysmond.tasks.pieces import pieces
from sysmond.tasks.proc_cgroups import choose
from sysmond.tasks.tables import CGROUP_NAME

# More than this are counted, not named. A deleted cgroup takes no part in it, though the kernel may keep it for long.
CGROUPS_MAX = 32_768


def in_use(host: Host) -> Hierarchy:
    """Choose the hierarchy whose numbers stand for cgroups.

    :raises FileNotFoundError: where none is mounted.
    """
    found = hierarchies(host.read(MOUNTINFO))
    controllers = ""
    for each in found:
        if not each.controllers:
            controllers = host.read(f"{each.point}/cgroup.controllers").decode("ascii", "replace")
    chosen = choose(found, controllers.split())
    if chosen is None:
        raise FileNotFoundError(errno.ENOENT, "no control groups are mounted", MOUNTINFO)
    return chosen


class CgroupNames:
    """Reads the table ``cgroup_name``. ``limit``: how many cgroups it names at most."""

    def __init__(self, limit: int = CGROUPS_MAX) -> None:
        """Know no cgroup yet."""
        self._limit = limit
        self._chosen: tuple[str, Hierarchy] | None = None
        self._tree = Tree("")
        self._told: dict[int, str] = {}
        self._left_out = 0

    def records(self, host: Host, full: bool) -> Sequence[Records]:  # noqa: FBT001
        """Name the cgroups that were not told yet, or all.

        A cgroup that is gone is not told of; it is missing when all are told next. What the limit leaves out is lost.

        :raises OSError: where no hierarchy is mounted, or its root cannot be looked at.
        """
        chosen = host.root, in_use(host)
        if chosen != self._chosen:
            self._chosen = chosen
            self._tree = Tree(host.root + chosen[1].point)
            self._told, full = {}, True
        self._tree.look(self._limit)
        names = {inode: path for path, inode in self._tree.groups.items()}
        rows = [(inode, os.fsencode(path)[:TEXT_BYTES_MAX]) for inode, path in names.items()]
        if not full:
            rows = [row for row in rows if self._told.get(row[0]) != names[row[0]]]
        before, self._left_out = self._left_out, self._tree.left_out
        self._told = names
        lost = self._left_out if full else max(0, self._left_out - before)
        return pieces(CGROUP_NAME, rows, full=full, lost=lost, walked=len(names) + self._left_out)
