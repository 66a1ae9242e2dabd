# SPDX-License-Identifier: Apache-2.0
"""The files of control groups, read again and again: which a cgroup has, what changed, and which cgroup is new.

Opening a file of a cgroup costs three times as much as reading it, so descriptors stay open, within a bound: each takes
about 4.8 kB in the kernel once it was read. An open one belongs to one incarnation of a cgroup: reading it fails once
that is gone. Standard library only.
"""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from sysmond.cgroups.batch import FOREVER, NOT_OPEN, READ_BYTES, Batch, Group
from sysmond.cgroups.tree import Forest
from sysmond.machine.descriptors import allow_descriptors, moved_up
from sysmond.probe import Host

# A controller may be switched on later: missing files are looked for again once in so many readings, of 5 s as a rule.
ASK_AGAIN_EVERY = 12
# Those that the parent lacks as well are looked for so many times less often.
ASK_ALL_EVERY = 10
# Only CPU time shows that a follower may have changed; other changes are seen after so many readings.
FOLLOW_EVERY = 12
# A file that changed is read at so many more readings in any case: averages move for two more seconds.
READ_ON = 3
# Names remembered, to know one that comes back.
NAMES_MAX = 65536


class Role(Enum):
    """How often a file is read compared with the others of its cgroup."""

    ALONE = "alone"
    LEADER = "leader"
    FOLLOWER = "follower"


def _always(_part: object) -> bool:
    return True


class File(NamedTuple):
    """A file that each cgroup may have.

    ``controller``: of its hierarchy of version 1; empty for version 2. ``names``: the first that exists is read.
    ``parse``: turns its content into a part, or raises ValueError or LookupError.
    ``unless``: the index of another file; this one is not read beside it.
    ``is_at_rest``: whether a part stays the same while nothing happens.
    ``is_sum``: it includes all cgroups below: at rest, it is not read where that of the parent did not change.
    ``role``: a follower at rest is read where a leader changed, and once in so many readings.
    """

    controller: str
    names: tuple[str, ...]
    parse: Callable[[bytes], Any]
    unless: int = -1
    is_at_rest: Callable[[Any], bool] = _always
    is_sum: bool = False
    role: Role = Role.ALONE


class CgroupFiles:
    """Reads the same files of every cgroup again and again.

    ``changed``: the cgroups of which a part may have changed at the last reading. ``young``: those whose ``age`` is
    known.
    """

    def __init__(self, files: Sequence[File]) -> None:
        """Read nothing yet."""
        self.forest = Forest({file.controller for file in files})
        self.changed: set[Group] = set()
        self.young: set[Group] = set()
        self._files = files
        sums = sum(1 << index for index, file in enumerate(files) if file.is_sum)
        self._leaders, followers = (
            sum(1 << index for index, file in enumerate(files) if file.role is role)
            for role in (Role.LEADER, Role.FOLLOWER)
        )
        self._often = ~followers & (~sums | self._leaders)
        # Followers last.
        self._order = sorted(range(len(files)), key=lambda index: files[index].role is Role.FOLLOWER)
        # Batches of each file, by the parent: that of a cgroup stands before those below it.
        self._batches: list[dict[Group | None, Batch]] = [{} for _ in files]
        self._groups: dict[str, Group] = {}
        self._there: list[Group] | None = None
        self._asking: list[set[Group]] = [set() for _ in range(ASK_AGAIN_EVERY)]
        self._opened: set[Group] = set()
        self._failed: set[Group] = set()
        # By file: the cgroups whose content makes no sense, with the reason.
        self._malformed: list[dict[Group, str]] = [{} for _ in files]
        self._has_complained = False
        self._known: dict[str, tuple[int, ...]] = {}  # The inodes of every path so far, also of cgroups that are gone.
        self._mounted: object = None
        self._version = 0
        self._open_count = self._closed_count = 0  # Open descriptors; cgroups without any.
        self._descriptors_max = 0
        self._is_tight = False  # There is room only for descriptors of files that are read often.
        self._is_suspect = False
        self._readings = 0
        self._root = ""

    def read(self, host: Host, limit: int, descriptors_max: int = 0) -> list[Group]:
        """Read the files of every cgroup, of at most ``limit`` cgroups.

        Returns the same list object while the cgroups are the same. A file that is not of the form that the kernel
        documents is a part without a value, None, of that cgroup; ``complain`` says so.

        :raises FileNotFoundError: where no hierarchy of interest is mounted.
        """
        if descriptors_max > self._descriptors_max:
            allow_descriptors()
        self._root, self._descriptors_max = host.root, descriptors_max
        # An open descriptor fails when its cgroup goes; cgroups without one have to be looked for.
        self.forest.look(host, limit, is_suspect=self._is_suspect or self._closed_count > 0)
        if self.forest.version != self._version:
            self._align()
        self._readings += 1
        self._ask_again(self._asking[self._readings % ASK_AGAIN_EVERY])
        if self._failed:
            self._there = None
        self._failed, self.changed, self._opened = set(), self._opened, set()
        self._read_files()
        self._is_suspect = bool(self._failed)
        return self._settle()

    def complain(self, host: Host, table: str) -> None:
        """Say for the doctor which files make no sense, and once again when all do."""
        bad = [(group.path, self._files[index].names[0], why) for index, group, why in self._nonsense()]
        if bad:
            path, name, why = bad[0]
            others = f"; {len(bad) - 1} more like it" if len(bad) > 1 else ""
            host.tell_way(table, f"{path.rstrip('/')}/{name} cannot be understood: {why}{others}")
        elif self._has_complained:
            host.tell_way(table, "every file is as the kernel documents it")
        self._has_complained = bool(bad)

    def _nonsense(self) -> list[tuple[int, Group, str]]:
        return [(index, group, why) for index, bad in enumerate(self._malformed) for group, why in bad.items()]

    def close(self) -> None:
        """Close every file."""
        for bad in self._malformed:
            bad.clear()
        self._batches = [{} for _ in self._files]
        self._asking = [set() for _ in range(ASK_AGAIN_EVERY)]
        self._groups.clear()
        self.young.clear()
        self._opened.clear()
        self._there = None
        self._open_count = self._closed_count = 0
        self._version = 0

    def forget(self) -> None:
        """Treat everything as new at the next reading."""
        for batches in self._batches:
            for batch in batches.values():
                batch.forget()

    def _align(self) -> None:
        """Follow the forest: open new cgroups, close those that are gone, and note those made again."""
        if self.forest.mounted is not self._mounted:  # Inodes of other hierarchies mean nothing.
            self.close()
            self._known.clear()
            self._mounted = self.forest.mounted
        self._there = None
        self._lose([group for path, group in self._groups.items() if path not in self.forest.groups])
        others = []
        for path, inodes in self.forest.groups.items():
            group = self._groups.get(path)
            if group is not None and group.inodes == inodes:
                continue
            if group is None:
                group = self._groups[path] = Group(path, len(self._files))
                # Not all of them at the same reading.
                group.turn = len(self._known) % ASK_AGAIN_EVERY
                self._asking[group.turn].add(group)
                # Not the root: the kernel derives its numbers from coarser ones.
                group.above = self._groups.get(path.rpartition("/")[0])
            group.inodes = inodes
            before = self._known.get(path, inodes)
            if any(old and new and old != new for old, new in zip(before, inodes, strict=True)):
                group.age = -1
                self.young.add(group)
            self._known[path] = tuple(new or old for old, new in zip(before, inodes, strict=True))
            others.append(group)
        self._open(others)
        if self._open_count >= self._descriptors_max and not self._is_tight:
            self._tighten()
        if len(self._known) > NAMES_MAX:
            self._forget_names()
        self._version = self.forest.version

    def _lose(self, groups: Collection[Group]) -> None:
        """Forget cgroups that are gone."""
        for group in groups:
            self._shut(group)
            self._asking[group.turn].discard(group)
            self.young.discard(group)
            self._opened.discard(group)
            del self._groups[group.path]
        # Their descendants went with them, but not before.
        for group in groups:
            for batches in self._batches:
                if group in batches and not batches[group].groups:
                    del batches[group]

    def _tighten(self) -> None:
        """From now on keep only those files open that are read often."""
        self._is_tight = True
        self._open(self._groups.values())

    def _forget_names(self) -> None:
        """Forget names that are gone, the oldest first."""
        gone = (path for path in self._known if path not in self._groups)
        for path in list(islice(gone, NAMES_MAX // 2)):
            del self._known[path]

    def _shut(self, group: Group) -> None:
        for index in group.which:
            self._malformed[index].pop(group, None)
            for batch in self._batches[index].get(group.above), self._batches[index].get(None):
                if batch is not None and group in batch:
                    self._open_count -= batch.drop(group)
                    break
        self._closed_count -= group.is_closed
        group.which, group.files, group.is_closed = [], 0, False

    def _open(self, groups: Collection[Group]) -> None:
        """Find the files that cgroups have, and keep open as many as there is room for.

        One kind after the other, as they are read: objects side by side in the kernel's memory are read faster.
        """
        for group in groups:
            self._shut(group)
            group.parts = [None] * len(self._files)
            group.is_closed = True
        for index, file in enumerate(self._files):
            batches = self._batches[index]
            for group in groups:
                descriptor, path = self._find(group, index)
                if descriptor < 0:
                    continue
                group.which.append(index)
                group.files |= 1 << index
                descriptor = self._keep_if_room(descriptor, index)
                group.is_closed = group.is_closed and descriptor < 0
                above = group.above if file.is_sum and group.above and group.above.files >> index & 1 else None
                if above not in batches:
                    # Else it would stand behind its descendants.
                    above = None if group in batches else above
                    batches.setdefault(above, Batch(above, group.turn))
                batches[above].add(group, path, descriptor)
        self._closed_count += sum(group.is_closed for group in groups)
        self._opened.update(groups)

    def _keep_if_room(self, descriptor: int, index: int) -> int:
        """Keep a descriptor open where there is room for it; -1 where it was closed."""
        if self._open_count < self._descriptors_max and (self._often >> index & 1 or not self._is_tight):
            descriptor = moved_up(descriptor)
            self._open_count += descriptor >= 0
            return descriptor
        os.close(descriptor)
        return NOT_OPEN

    def _find(self, group: Group, index: int) -> tuple[int, str]:
        """Open a file, by the first of its names that can be read; -1 where there is none, or its ``unless`` exists."""
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
                        os.pread(descriptor, READ_BYTES, 0)  # A file of a controller that is off refuses only now.
                    except OSError:
                        os.close(descriptor)
                        raise
                    return descriptor, path
        return -1, ""

    def _ask_again(self, groups: Collection[Group]) -> None:
        """Open all files anew where one has appeared: a controller was switched on, perhaps below as well."""
        while groups:
            gained = {group for group in groups if self._has_gained(group)}
            self._open(gained)
            groups = [group for group in self._groups.values() if group.above in gained] if gained else ()

    def _has_gained(self, group: Group) -> bool:
        # A controller is never on below a cgroup where it is off; a thorough look does not rely on that.
        is_thorough = (self._readings // ASK_AGAIN_EVERY + group.turn) % ASK_ALL_EVERY == 0
        possible = -1 if group.above is None or is_thorough else group.above.files
        for index in range(len(self._files)):
            if (possible & ~group.files) >> index & 1:
                descriptor, _ = self._find(group, index)
                if descriptor >= 0:
                    os.close(descriptor)
                    return True
        return False

    def _read_files(self) -> None:
        """Read the files that may have changed."""
        led: set[Group] = set()
        for index in self._order:
            is_follower = self._files[index].role is Role.FOLLOWER
            moved: set[Group] = set()
            mute = self._malformed[index]
            for batch in self._batches[index].values():
                above = batch.above
                tells = above is not None and above not in self._failed and above not in mute
                if above is not None and tells and above not in moved and above.files >> index & 1:
                    changed = batch.read(batch.restless)
                elif is_follower:
                    changed = batch.read(self._following(batch, led))
                else:
                    changed = batch.read(range(len(batch.groups)))
                if changed:
                    self._take(index, batch, changed)
                    moved.update([batch.groups[place] for place, _ in changed])
                self._failed.update(batch.failed)
                for place in [place for place, until in batch.restless.items() if until <= self._readings]:
                    del batch.restless[place]
            if self._files[index].role is Role.LEADER:
                led |= moved | mute.keys()
            self.changed |= moved

    def _following(self, batch: Batch, led: set[Group]) -> set[int]:
        """The places of followers to read: those of led cgroups, those whose turn it is, and the restless."""
        turns = range(-(self._readings + batch.turn) % FOLLOW_EVERY, len(batch.groups), FOLLOW_EVERY)
        return {*batch.restless, *turns, *[place for place, group in enumerate(batch.groups) if group in led]}

    def _take(self, index: int, batch: Batch, changed: list[tuple[int, bytes]]) -> None:
        """Parse the contents that changed."""
        file = self._files[index]
        for place, content in changed:
            group = batch.groups[place]
            group.parts[index] = part = self._parsed(index, group, content)
            batch.keep(place, content)
            is_led = file.role is not Role.FOLLOWER or group.files & self._leaders
            is_calm = is_led and part is not None and file.is_at_rest(part)
            batch.restless[place] = self._readings + READ_ON if is_calm else FOREVER

    def _parsed(self, index: int, group: Group, content: bytes) -> object:
        """Parse a content; None, and a note of it, where it makes no sense: the others of the cgroup still do."""
        try:
            part = self._files[index].parse(content)
        except (ValueError, LookupError) as nonsense:
            self._malformed[index][group] = f"{type(nonsense).__name__}: {nonsense}"
            return None
        self._malformed[index].pop(group, None)
        return part

    def _settle(self) -> list[Group]:
        """Give the cgroups that exist, without those that lost a file: they went, or a controller was switched off."""
        for group in self.young - self._failed:
            group.age = (group.age or 0) + 1
        if self._failed:
            self.changed -= self._failed
            self._there = None
            self._open(self._failed)
        if self._there is None:
            self._there = [group for group in self._groups.values() if group not in self._failed]
        return self._there


def settled(values: Iterable[int], counters: Collection[int], age: int | None, absent: int) -> list[int]:
    """Give the values of a cgroup so that readers tell it from an earlier one of the same name.

    ``counters``: indexes of counters. At the first reading of a cgroup made again they are 0, as when it was made:
    readers see the fall. At the second they are absent, so that what it did in between counts in sums and in no rate.
    From then on they are what the kernel says.
    """
    row = list(values)
    if age is not None and age <= 1:
        for index in counters:
            if row[index] != absent:
                row[index] = absent if age else 0
    return row
