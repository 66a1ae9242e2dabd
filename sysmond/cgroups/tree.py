# SPDX-License-Identifier: Apache-2.0
"""Control groups: where their hierarchies are mounted, and which cgroups exist.

Version 2 may be mounted anywhere, any of its controllers may be off, and hierarchies of version 1 may stand beside it:
a cgroup is a path, which one hierarchy may have and another not.
Sources: ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/``. Standard library only.
"""

import errno
import os
import re
from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple

from sysmond.probe import Host

MOUNTINFO = "/proc/self/mountinfo"
CONTROLLERS = "/proc/cgroups"
STAT = "cgroup.stat"
COUNT_FIELD = 2

# Every so many looks a hierarchy is looked at even where the kernel counts as many cgroups as before: in version 1 it
# counts those that are gone and not yet freed, too. Hierarchies take turns.
LOOK_EVERY = 30
LOOK_APART = 4
_ESCAPE = re.compile(r"\\([0-7]{3})")
# Options of a mount of version 1 that are no controllers.
_NO_CONTROLLERS = frozenset(("rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "none"))
# Controllers that group processes in version 1, best first; the last is systemd's own tree.
_SORTING = ("memory", "pids", "cpu", "cpuacct", "name=systemd")
_LINKS_MIN = 2  # A folder's own name and its dot; file systems that do not count folders have 1.


class Hierarchy(NamedTuple):
    """A mounted hierarchy. ``controllers``: of version 1; version 2 is the one without."""

    point: str
    controllers: tuple[str, ...] = ()


def hierarchies(mountinfo: bytes) -> list[Hierarchy]:
    """Find the mounted hierarchies, version 2 first; each once, however often it is mounted.

    :raises ValueError: where a line is not one of mountinfo.
    """
    points: dict[str, tuple[str, str, Hierarchy]] = {}
    for line in mountinfo.decode("utf-8", "surrogateescape").split("\n"):
        if " - cgroup" not in line:
            continue
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, device, root, point, *_ = before.split(" ")
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
        controllers = tuple(word for word in options.rpartition(" ")[2].split(",") if word not in _NO_CONTROLLERS)
        if kind in {"cgroup", "cgroup2"}:
            points[point] = (
                device,
                root,
                Hierarchy(point, controllers if kind == "cgroup" else ()),
            )  # A later mount hides an earlier one.
    chosen: dict[str, tuple[str, Hierarchy]] = {}
    for device, root, hierarchy in points.values():
        # Of two views of one hierarchy the one from its root shows more.
        if device not in chosen or (root == "/" != chosen[device][0]):
            chosen[device] = root, hierarchy
    return sorted((hierarchy for _, hierarchy in chosen.values()), key=lambda hierarchy: bool(hierarchy.controllers))


def numbering(mounted: Sequence[Hierarchy], controllers_of_2: Sequence[str]) -> Hierarchy | None:
    """Choose the mounted hierarchy whose inodes are the numbers of cgroups."""
    version_2 = next((hierarchy for hierarchy in mounted if not hierarchy.controllers), None)
    if version_2 is not None and not set(controllers_of_2).isdisjoint(_SORTING):
        return version_2
    sorting = (hierarchy for name in _SORTING[:-1] for hierarchy in mounted if name in hierarchy.controllers)
    systemd = next((hierarchy for hierarchy in mounted if _SORTING[-1] in hierarchy.controllers), None)
    return next(sorting, None) or version_2 or systemd or next(iter(mounted), None)


def numbering_now(host: Host) -> Hierarchy:
    """Choose it for this machine, or for that below ``host.root``.

    :raises FileNotFoundError: where none is mounted.
    """
    mounted = hierarchies(host.read(MOUNTINFO))
    controllers = ""
    for hierarchy in mounted:
        if not hierarchy.controllers:
            controllers = host.read(f"{hierarchy.point}/cgroup.controllers").decode("ascii", "replace")
    chosen = numbering(mounted, controllers.split())
    if chosen is None:
        raise FileNotFoundError(errno.ENOENT, "no control groups are mounted", MOUNTINFO)
    return chosen


class Tree:
    """The cgroups of one hierarchy: path → inode, parents first. ``left_out``: how many the limit left out."""

    def __init__(self, top: str) -> None:
        """Know nothing yet of the hierarchy mounted at ``top``."""
        self.groups: dict[str, int] = {}
        self._top = top
        self._links: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._limit = 0

    @property
    def left_out(self) -> int:
        """How many cgroups the limit left out, without those below them."""
        return sum(self._left_out.values())

    def look(self, limit: int) -> bool:
        """Bring it up to date, with at most so many cgroups; return whether anything changed.

        A folder is listed again only where its number of links changed, which counts the folders in it, or where
        a known one in it is gone: the two together miss nothing.
        """
        self._limit = limit
        if "/" not in self.groups:
            self.groups.clear()
            self._add(["/"])
            return True
        lists: dict[str, None] = {}
        changed = False
        for path, inode in list(self.groups.items()):
            status = self._status(path)
            if status is None or status.st_ino != inode:
                changed = True
                del self.groups[path], self._links[path]
                self._left_out.pop(path, None)
                lists[path.rpartition("/")[0] or "/"] = None
            elif status.st_nlink != self._links[path] or status.st_nlink < _LINKS_MIN:
                self._links[path] = status.st_nlink
                lists[path] = None
        if len(self.groups) < limit:
            lists.update(dict.fromkeys(self._left_out))
        for path in lists:
            if path in self.groups:
                before = len(self.groups)
                self._add(self._children(path))
                changed = changed or len(self.groups) > before
        return changed

    def _status(self, path: str) -> os.stat_result | None:
        """None where a cgroup is gone or hidden; at the top, the error is raised."""
        try:
            return os.stat(self._top + path)
        except OSError:
            if path == "/":
                raise
            return None

    def _drop(self, path: str) -> None:
        del self.groups[path], self._links[path]
        self._left_out.pop(path, None)

    def _add(self, level: list[str]) -> None:
        """Add cgroups and all below them, level by level, so that the limit leaves out the deepest."""
        while level:
            below: list[str] = []
            for path in level:
                if len(self.groups) >= self._limit:
                    above = path.rpartition("/")[0] or "/"
                    self._left_out[above] = self._left_out.get(above, 0) + 1
                elif (status := self._status(path)) is not None:
                    self.groups[path], self._links[path] = status.st_ino, status.st_nlink
                    below += self._children(path)
            level = below

    def _children(self, path: str) -> list[str]:
        """Paths of the children that are not known yet."""
        above = "" if path == "/" else path
        self._left_out.pop(path, None)
        try:
            with os.scandir(self._top + path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []  # Gone since it was seen.
        return [child for name in names if (child := f"{above}/{name}") not in self.groups]


class Forest:
    """The cgroups of all hierarchies that have certain files: path → its inode in each hierarchy, 0 where it has none.

    ``version`` grows whenever ``groups`` changes.
    """

    def __init__(self, controllers: Collection[str]) -> None:
        """Look at the hierarchies of these controllers of version 1, and at version 2 where one of them is ``""``."""
        self.groups: dict[str, tuple[int, ...]] = {}
        self.mounted: list[Hierarchy] = []
        self.left_out = 0
        self.version = 0
        self._wanted = frozenset(controllers)
        self._host: Host | None = None
        self._trees: list[Tree] = []
        self._counts: list[bytes] = []
        self._counted: tuple[bytes, dict[bytes, bytes]] = (b"", {})  # /proc/cgroups, and the counts in it.
        self._limit = 0
        self._looks = 0

    def look(self, host: Host, limit: int, *, is_suspect: bool = False) -> None:
        """Bring it up to date, with at most so many cgroups in each hierarchy. ``is_suspect``: one is gone.

        Where the kernel counts as many cgroups as before and no known one is gone, nothing has changed.

        :raises FileNotFoundError: where no hierarchy of interest is mounted.
        """
        if self._looks % LOOK_EVERY == 0 or host is not self._host or limit != self._limit:
            self._find(host)
        self._limit = limit
        changed = False
        counts = [self._count(host, hierarchy) for hierarchy in self.mounted]
        for number, tree in enumerate(self._trees):
            is_its_turn = (self._looks + LOOK_APART * number) % LOOK_EVERY == 0
            if is_its_turn or is_suspect or not counts[number] or counts[number] != self._counts[number]:
                changed = tree.look(limit) or changed
        self._looks += 1
        self._counts = counts
        if changed:
            self._join(limit)

    def _find(self, host: Host) -> None:
        mounted = hierarchies(host.read(MOUNTINFO))
        wanted = [hierarchy for hierarchy in mounted if not self._wanted.isdisjoint(hierarchy.controllers or ("",))]
        if not wanted:
            raise FileNotFoundError(errno.ENOENT, "no control groups are mounted", MOUNTINFO)
        if wanted != self.mounted or host is not self._host:
            self._host, self.mounted = host, wanted
            self._trees = [Tree(host.root + hierarchy.point) for hierarchy in wanted]
            self._counts = [b""] * len(wanted)
            self.groups = {}
            self.version += 1

    def _join(self, limit: int) -> None:
        """Join the trees; known cgroups keep their order, so that rows keep their places."""
        every = dict.fromkeys(path for path in self.groups if any(path in tree.groups for tree in self._trees))
        every.update(dict.fromkeys(chain.from_iterable(tree.groups for tree in self._trees)))
        paths = list(every)
        self.groups = {path: tuple(tree.groups.get(path, 0) for tree in self._trees) for path in paths[:limit]}
        self.left_out = max((tree.left_out for tree in self._trees), default=0) + max(0, len(paths) - limit)
        self.version += 1

    def _count(self, host: Host, hierarchy: Hierarchy) -> bytes:
        """The kernel's count of cgroups, as text; empty where there is none."""
        try:
            if not hierarchy.controllers:
                return host.read(f"{hierarchy.point}/{STAT}").partition(b"\n")[0]
            content = host.read(CONTROLLERS)
        except OSError:
            return b""
        if content is not self._counted[0]:  # It is the same object while nothing comes or goes.
            lines = (line.split() for line in content.splitlines())
            self._counted = content, {words[0]: words[COUNT_FIELD] for words in lines if len(words) > COUNT_FIELD}
        numbers = (self._counted[1].get(os.fsencode(name)) for name in hierarchy.controllers)
        return next((number for number in numbers if number is not None), b"")
