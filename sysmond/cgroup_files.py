# SPDX-License-Identifier: Apache-2.0
"""The files of control groups, read again and again: which a cgroup has, what changed, and which cgroup is a new one.

Opening a file of a cgroup costs three times what reading it does, so descriptors are kept, within a bound: each that
was read holds about 4.8 kB in the kernel. A kept one belongs to one incarnation of a cgroup: it fails once that is
gone. Standard library only.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from sysmond.cgroups import Forest
from sysmond.descriptors import allow_descriptors, moved_up
from sysmond.probe import Host

# A controller may be switched on later: files that were not there are asked for again once in so many readings.
ASK_AGAIN_EVERY = 30
# Nothing but CPU time tells that a follower may have changed; what else changes it is seen this much later.
FOLLOW_EVERY = 10
# Most files are far smaller; one that is not is read again, larger, since its parts would be of different moments.
READ_BYTES = 4096
FILE_BYTES_MAX = 1024 * 1024
# Names remembered so as to know one that comes back.
NAMES_MAX = 65536


class Role(Enum):
    """How often a file is read beside the others of its cgroup."""

    ALONE = "alone"
    LEADER = "leader"
    FOLLOWER = "follower"


def _always(_part: object) -> bool:
    return True


class File(NamedTuple):
    """A file that each cgroup may have.

    ``controller``: in which hierarchy of version 1; empty for version 2. ``names``: the first that is there is read.
    ``parse``: makes a part of its content. ``unless``: the index of another file; this one is not read beside it.
    ``is_at_rest``: whether a part stays the same for as long as nothing happens.
    ``is_sum``: it tells of all below as well: at rest, it is not read where that of the cgroup above did not change.
    ``role``: a follower at rest is read where a leader changed, and once in so many readings.
    """

    controller: str
    names: tuple[str, ...]
    parse: Callable[[bytes], Any]
    unless: int = -1
    is_at_rest: Callable[[Any], bool] = _always
    is_sum: bool = False
    role: Role = Role.ALONE


class Group:
    """A cgroup that is read: ``parts`` of its files, None for those it lacks.

    ``path``: from the root of its hierarchy. ``inode``: by which one that was made again is told from the one before.
    ``is_changed``: a part may be another than at the last reading. ``age``: readings since it was made again under a
    name that was there before, 0 at the first; ``None`` for one that was not. The rest is the watch's own; of sets
    of files, each is a bit.
    """

    def __init__(self, path: str, files: int) -> None:
        self.path = path
        self.inodes: tuple[int, ...] = ()
        self.age: int | None = None
        self.is_changed = self.is_new = True
        self.parts: list[Any] = [None] * files
        self.above: Group | None = None  # Never the other way round: a cycle would keep descriptors open.
        self.asked = self.read = self.turn = 0  # Numbers of readings.
        self.which: list[int] = []  # The files that are there, and of each:
        self.paths: list[str] = []
        self.contents: list[bytes] = []
        self.descriptors: list[int] = []  # -1 where it is not kept.
        self.is_unkept = False  # None of them is.
        self.is_large = False  # One of them does not fit into one reading.
        self.skipped = 0  # The files that need not be read, and of the others:
        self.places: list[int] = []
        self.held: list[bytes] = []
        self.open: list[int] = []
        self.is_kept = False  # All of these are.
        self.resting = 0  # Files at rest; those that were the same at the last reading, and the two before.
        self.same = self.same_before = self.same_long_before = 0
        self.calm = self.following = 0  # Files that need not be read for themselves; those of them that follow.

    @property
    def inode(self) -> int:
        """That of version 2, else of the first hierarchy that has it; the kernel calls it the cgroup's id."""
        return next(filter(None, self.inodes), 0)

    def __del__(self) -> None:
        """A source that is read no more is dropped without a word."""
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self.descriptors:
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptors, self.open = [], []

    def skip(self, files: int) -> None:
        """Choose which files are not read."""
        for place, content in zip(self.places, self.held, strict=True):
            self.contents[place] = content
        self.skipped = files
        self.places = [place for place, index in enumerate(self.which) if not files >> index & 1]
        self.held = [self.contents[place] for place in self.places]
        self.open = [self.descriptors[place] for place in self.places]
        self.is_kept = not self.is_large and -1 not in self.open

    def note(self, changed: int) -> None:
        """Remember which files changed at a reading."""
        self.same, self.same_before, self.same_long_before = ~changed, self.same, self.same_before
        # Averages move on for two seconds after what they are averages of.
        self.calm = self.resting & self.same & self.same_before & self.same_long_before


class Watch:
    """Reads the same files of every cgroup again and again."""

    def __init__(self, files: Sequence[File]) -> None:
        """Have read nothing yet."""
        self.forest = Forest({file.controller for file in files})
        self._files = files
        self._sums = sum(1 << index for index, file in enumerate(files) if file.is_sum)
        self._leaders, self._followers = (
            sum(1 << index for index, file in enumerate(files) if file.role is role)
            for role in (Role.LEADER, Role.FOLLOWER)
        )
        self._often = ~self._followers & (~self._sums | self._leaders)
        self._groups: dict[str, Group] = {}
        self._known: dict[str, tuple[int, ...]] = {}  # The inodes of every path so far, those that are gone included.
        self._mounted: object = None
        self._version = 0
        self._kept = self._unkept = 0  # Descriptors; cgroups without any.
        self._descriptors_max = 0
        self._is_tight = False  # There is no room for all descriptors, but for those of files that are read often.
        self._is_suspect = False
        self._readings = 0
        self._root = ""

    def read(self, host: Host, limit: int, descriptors_max: int = 0) -> list[Group]:
        """Read the files of every cgroup that is there, of at most so many cgroups.

        :raises FileNotFoundError: where no hierarchy of interest is mounted.
        """
        if descriptors_max > self._descriptors_max:
            allow_descriptors()
        self._root, self._descriptors_max = host.root, descriptors_max
        # Only a descriptor that was kept fails when its cgroup goes; for the others, looking tells.
        self.forest.look(host, limit, is_suspect=self._is_suspect or self._unkept > 0)
        self._is_suspect = False
        if self.forest.version != self._version:
            self._align()
        self._readings += 1
        return [group for group in self._groups.values() if self._refresh(group)]

    def close(self) -> None:
        """Let go of every file."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()
        self._kept = self._unkept = 0
        self._version = 0

    def _align(self) -> None:
        """Follow the forest: open what came, close what went, and take note of what was made again."""
        if self.forest.mounted is not self._mounted:  # Inodes of other hierarchies mean nothing.
            self.close()
            self._known.clear()
            self._mounted = self.forest.mounted
        for path in [path for path in self._groups if path not in self.forest.groups]:
            self._shut(self._groups.pop(path))
        for path, inodes in self.forest.groups.items():
            group = self._groups.get(path)
            if group is not None and group.inodes == inodes:
                continue
            if group is None:
                group = self._groups[path] = Group(path, len(self._files))
            group.inodes = inodes
            before = self._known.get(path, inodes)
            if any(old and new and old != new for old, new in zip(before, inodes, strict=True)):
                group.age = -1
            self._known[path] = tuple(new or old for old, new in zip(before, inodes, strict=True))
            # Not the root: the kernel makes its numbers of coarser ones.
            group.above = self._groups.get(path.rpartition("/")[0])
            self._open(group)
        if self._kept >= self._descriptors_max and not self._is_tight:
            self._tighten()
        if len(self._known) > NAMES_MAX:
            self._forget()
        self._version = self.forest.version

    def _tighten(self) -> None:
        """From now on keep open only what is read often."""
        self._is_tight = True
        for group in self._groups.values():
            self._shut(group)
        for group in self._groups.values():
            self._open(group)

    def _forget(self) -> None:
        """Forget names that are gone, the oldest first."""
        gone = (path for path in self._known if path not in self._groups)
        for path in list(islice(gone, NAMES_MAX // 2)):
            del self._known[path]

    def _shut(self, group: Group) -> None:
        self._kept -= sum(descriptor >= 0 for descriptor in group.descriptors)
        self._unkept -= group.is_unkept
        group.is_unkept = False
        group.close()

    def _open(self, group: Group) -> None:
        """Find the files that a cgroup has, and keep open those that there is room for."""
        self._shut(group)
        group.parts = [None] * len(self._files)
        group.which, group.paths, group.is_new = [], [], True
        # Not all of them at the same reading.
        group.turn = len(self._known)
        group.asked = self._readings - group.turn % ASK_AGAIN_EVERY
        group.resting = group.same = group.calm = 0
        group.places, group.held = [], []
        for index in range(len(self._files)):
            descriptor, path = self._find(group, index)
            if descriptor >= 0:
                group.which.append(index)
                group.paths.append(path)
                group.descriptors.append(self._kept_or_not(descriptor, index))
        group.contents = [b""] * len(group.which)
        files = sum(1 << index for index in group.which)
        group.following = self._followers if files & self._leaders else 0
        group.is_large, group.is_unkept = False, max(group.descriptors, default=0) < 0
        self._unkept += group.is_unkept
        group.skip(0)

    def _kept_or_not(self, descriptor: int, index: int) -> int:
        """Keep a descriptor where there is room for it; -1 where it is closed."""
        if self._kept < self._descriptors_max and (self._often >> index & 1 or not self._is_tight):
            descriptor = moved_up(descriptor)
            self._kept += descriptor >= 0
            return descriptor
        os.close(descriptor)
        return -1

    def _find(self, group: Group, index: int) -> tuple[int, str]:
        """Open a file, by the first of its names that can be read; -1 where there is none, or another instead."""
        file = self._files[index]
        if file.unless in group.which:
            return -1, ""
        for number, hierarchy in enumerate(self.forest.mounted):
            is_there = file.controller in hierarchy.controllers if file.controller else not hierarchy.controllers
            if not is_there or not group.inodes[number]:
                continue
            for name in file.names:
                path = f"{self._root}{hierarchy.point}{group.path}/{name}"
                with suppress(OSError):
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        os.pread(descriptor, READ_BYTES, 0)  # One that is switched off refuses only now.
                    except OSError:
                        os.close(descriptor)
                        raise
                    return descriptor, path
        return -1, ""

    def _ask_again(self, group: Group) -> None:
        """Open everything anew where a file is there that was not: a controller was switched on."""
        group.asked = self._readings
        for index in range(len(self._files)):
            if index not in group.which:
                descriptor, _ = self._find(group, index)
                if descriptor >= 0:
                    os.close(descriptor)
                    self._open(group)
                    return

    def _refresh(self, group: Group) -> bool:
        """Read a cgroup's files; False where it is gone."""
        if len(group.which) < len(self._files) and self._readings - group.asked >= ASK_AGAIN_EVERY:
            self._ask_again(group)
        if group.age is not None:
            group.age += 1
        readings, calm, above = self._readings, group.calm, group.above
        skip = calm & self._sums & above.same if above is not None and above.read == readings else 0
        unread = skip if (readings + group.turn) % FOLLOW_EVERY == 0 else skip | calm & group.following
        if unread != group.skipped:
            group.skip(unread)
        try:
            if group.is_kept:
                contents = [os.pread(descriptor, READ_BYTES, 0) for descriptor in group.open]
            else:
                contents = [self._content(group, place) for place in group.places]
            if contents == group.held and not group.is_new:
                group.is_changed = False
                if group.calm != group.resting:
                    group.note(0)
            else:
                group.is_changed = True
                changed = self._parse(group, contents)
                if changed & self._leaders and (late := unread & ~skip):
                    group.skip(skip)
                    changed |= self._parse(group, self._late(group, late))
                group.note(changed)
        except OSError:
            # The file went with its cgroup, or with a controller that was switched off. This is one row less, now.
            self._is_suspect = True
            self._open(group)
            return False
        group.read = readings
        return True

    def _late(self, group: Group, late: int) -> list[bytes]:
        """Read the files of a set; the others have been."""
        return [
            self._content(group, place) if late >> group.which[place] & 1 else held
            for place, held in zip(group.places, group.held, strict=True)
        ]

    def _content(self, group: Group, place: int) -> bytes:
        descriptor = group.descriptors[place]
        return _read_once(group.paths[place]) if descriptor < 0 else _read_whole(descriptor)

    def _parse(self, group: Group, contents: list[bytes]) -> int:
        """Make parts of what changed; gives which files did."""
        changed = 0
        for at, (place, before) in enumerate(zip(group.places, group.held, strict=True)):
            if contents[at] != before or group.is_new:
                index = group.which[place]
                file = self._files[index]
                if len(contents[at]) == READ_BYTES:  # There is more, and from now on it is read whole.
                    contents[at] = self._content(group, place)
                    group.is_kept, group.is_large = False, True
                group.parts[index] = part = file.parse(contents[at])
                changed |= 1 << index
                group.resting &= ~(1 << index)
                if file.is_at_rest(part):
                    group.resting |= 1 << index
        group.held, group.is_new = contents, False
        return changed


def _read_once(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_whole(descriptor)
    finally:
        os.close(descriptor)


def _read_whole(descriptor: int) -> bytes:
    """Read a file in one piece, however large.

    :raises OSError: where it is larger than any can be.
    """
    size = READ_BYTES
    while size <= FILE_BYTES_MAX:
        content = os.pread(descriptor, size, 0)
        if len(content) < size:
            return content
        size *= 4
    raise OSError(errno.EFBIG, f"larger than {FILE_BYTES_MAX} bytes")


def settled(values: Iterable[int], counters: Collection[int], age: int | None, absent: int) -> list[int]:
    """Give the values of a cgroup so that no reader takes it for the one that had its name before.

    ``counters``: which of them count. At the first reading of one made again they are 0, what they were when it was
    made: readers see the fall. At the second they are absent, so that what it did in between counts in sums and in no
    rate. From then on they are what the kernel says.
    """
    row = list(values)
    if age is not None and age <= 1:
        for index in counters:
            if row[index] != absent:
                row[index] = absent if age else 0
    return row
