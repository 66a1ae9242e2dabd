# SPDX-License-Identifier: Apache-2.0
"""Which cgroup a number means: the table ``cgroup_name``, by listing the folders of one hierarchy, and by BPF.

A listing has the cgroups that exist; BPF reports each cgroup as it is made, also those gone before the next listing.

Tasks have a cgroup in every hierarchy, and numbers tell cgroups apart in one only: ``numbering`` chooses it for all
tables. Names are as the kernel has them: systemd's escapes stay, and bytes that are not UTF-8.
"""

import os
import struct
from collections.abc import Sequence
from time import monotonic

from sysmond.cgroups.tree import Hierarchy, Tree, numbering_now
from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.records import TEXT_BYTES_MAX, Records
from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.pieces import pieces
from sysmond.tasks.tables import CGROUP_NAME

# More cgroups than this are counted, not named. Deleted ones do not count, though the kernel may keep them for long.
CGROUPS_MAX = 32_768
# The loader is another program, and may come later or again.
RETRY_S = 30.0
PROGRAM = "made"
_ROOT = 1  # The number of every hierarchy's root.
_PATH_BYTES = 512
# ``struct cgroup_record`` of bpf/records.h: the number, behind which is the path with its NUL.
_NUMBER = struct.Struct("<Q")


class CgroupNames:
    """Reads the table ``cgroup_name``. ``limit``: how many cgroups it names at most."""

    def __init__(self, limit: int = CGROUPS_MAX) -> None:
        """Know no cgroup yet. ``way``: how new cgroups are noticed, and why not by a better way, in one line."""
        self._limit = limit
        self._chosen: tuple[str, Hierarchy] | None = None
        self._tree = Tree("")
        self._named: dict[int, str] = {}
        self._left_out = 0
        self._made: Buffer | None = None
        self._tried_s = float("-inf")
        self.way = ""

    def records(self, host: Host, full: bool) -> Sequence[Records]:  # noqa: FBT001
        """Name the cgroups that are new since the reading before; with ``full`` all.

        A cgroup that is gone is named if it was made since the reading before; the next full reading leaves it out.
        What the limit leaves out counts as lost.

        :raises OSError: where no hierarchy is mounted, or its root cannot be looked at.
        """
        chosen = host.root, numbering_now(host)
        if chosen != self._chosen:
            self._chosen = chosen
            self._tree = Tree(host.root + chosen[1].point)
            self._named, full = {}, True
        passing, lost = self._made_since(host.runtime) if not host.root else ({}, 0)
        self._tree.look(self._limit)
        names = {inode: path for path, inode in self._tree.groups.items()}
        # The kernel names it from its own root, which a container does not see.
        is_whole = names.get(_ROOT) == "/"
        rows = [(inode, path) for inode, path in passing.items() if is_whole and inode not in names]
        rows += [
            (inode, os.fsencode(path)[:TEXT_BYTES_MAX])
            for inode, path in names.items()
            if full or self._named.get(inode) != path
        ]
        before, self._left_out = self._left_out, self._tree.left_out
        self._named = names
        lost += self._left_out if full else max(0, self._left_out - before)
        host.tell_way(CGROUP_NAME.name, self.way)
        return pieces(CGROUP_NAME, rows, full=full, lost=lost, walked=len(names) + self._left_out)

    def _made_since(self, runtime: str) -> tuple[dict[int, bytes], int]:
        """Paths of the cgroups made since the call before, by number, and how many more there were."""
        records, lost = (self._made.records(), self._made.lost()) if self._made else ([], 0)
        if monotonic() - self._tried_s >= RETRY_S and not (self._made and self._made.is_current()):
            self._tried_s = monotonic()
            if self._made:
                self._made.close()
            try:
                self._made = Buffer(runtime, PROGRAM, "cgroups")
                self.way = "by looking, and by BPF"
                records, lost = records + self._made.records(), lost + self._made.lost()
            except Error as why:
                self._made, self.way = None, f"by looking; not by {why}"
        # A path that was cut is left out.
        made = {
            number: record[_NUMBER.size : -1]
            for record in records
            for (number,) in [_NUMBER.unpack_from(record)]
            if _NUMBER.size < len(record) < _NUMBER.size + _PATH_BYTES
        }
        return made, lost
