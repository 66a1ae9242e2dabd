# SPDX-License-Identifier: Apache-2.0
"""The same file of many control groups, read in one go.

With cold caches every object that is touched costs an access to memory: so descriptors and contents are lists, and a
cgroup is touched only where its file changed. Standard library only.
"""

import errno
import os
import sys
from collections.abc import Iterable
from typing import Any

# Most files are smaller; a larger one is read again, in one piece, since two would be of different moments. With its
# header this is the largest object that Python allocates without the C library.
PIECE_BYTES = 512 - sys.getsizeof(b"")
READ_BYTES = 4096
FILE_BYTES_MAX = 1024 * 1024
FOREVER = sys.maxsize
NOT_OPEN = -1


class Group:
    """A cgroup that is read: ``parts`` of its files, None for missing ones and for those that make no sense.

    ``which``: indexes of those that exist. ``path``: from the root of its hierarchy. ``inode``: differs where it was
    made again. ``age``: readings since it was made again under a known name, 0 at the first; ``None`` where it was not.
    The rest belongs to ``CgroupFiles``.
    """

    __slots__ = ("above", "age", "files", "inodes", "is_closed", "parts", "path", "turn", "which")

    def __init__(self, path: str, files: int) -> None:
        self.path = path
        self.inodes: tuple[int, ...] = ()
        self.age: int | None = None
        self.parts: list[Any] = [None] * files
        self.which: list[int] = []
        self.above: Group | None = None
        self.files = 0  # The same as ``which``, a bit each.
        self.turn = 0
        self.is_closed = False  # None of its files stays open.

    @property
    def inode(self) -> int:
        """The inode in version 2, else in the first hierarchy that has it: the kernel's id of the cgroup."""
        return next(filter(None, self.inodes), 0)


class Batch:
    """The same file of several cgroups, each at its place.

    ``above``: their parent, if its file shows whether any of theirs can have changed, else None. ``failed``: cgroups
    whose file was gone at the last reading, with the cgroup or with a controller that was switched off. ``restless``:
    places that are always read, and up to which reading. ``turn``: differs between batches, to spread work over
    readings.
    """

    def __init__(self, above: Group | None, turn: int) -> None:
        self.above = above
        self.turn = turn
        self.groups: list[Group] = []
        self.failed: list[Group] = []
        self.restless: dict[int, int] = {}
        self._places: dict[Group, int] = {}
        self._descriptors: list[int] = []
        self._paths: list[str] = []
        self._contents: list[bytes | None] = []
        self._piece_bytes = PIECE_BYTES

    def __del__(self) -> None:
        """Close the descriptors: a source that is not read any more is dropped without a ``close``."""
        for descriptor in self._descriptors:
            if descriptor != NOT_OPEN:
                os.close(descriptor)

    def __contains__(self, group: Group) -> bool:
        """Whether a cgroup has a place."""
        return group in self._places

    def add(self, group: Group, path: str, descriptor: int) -> None:
        """Give a cgroup a place. ``descriptor``: stays open; ``NOT_OPEN``: open the file for each reading."""
        place = len(self.groups)
        self._places[group] = place
        self.restless[place] = FOREVER
        self.groups.append(group)
        self._paths.append(path if descriptor == NOT_OPEN else "")
        self._descriptors.append(descriptor)
        self._contents.append(None)

    def drop(self, group: Group) -> bool:
        """Remove a cgroup; the last one gets its place. Return whether it had a descriptor."""
        place, last = self._places.pop(group), len(self.groups) - 1
        descriptor = self._descriptors[place]
        self.restless.pop(place, None)
        if place != last:
            self._places[self.groups[last]] = place
            if last in self.restless:
                self.restless[place] = self.restless.pop(last)
        self.groups[place] = self.groups[last]
        self._paths[place] = self._paths[last]
        self._descriptors[place] = self._descriptors[last]
        self._contents[place] = self._contents[last]
        del self.groups[last], self._paths[last], self._descriptors[last], self._contents[last]
        if descriptor != NOT_OPEN:
            os.close(descriptor)
        return descriptor != NOT_OPEN

    def forget(self) -> None:
        """Treat every file as changed at the next reading."""
        self._contents = [None] * len(self.groups)
        self.restless = dict.fromkeys(range(len(self.groups)), FOREVER)

    def read(self, places: Iterable[int]) -> list[tuple[int, bytes]]:
        """Read the files at some places; return the places of those that changed, and their contents."""
        changed = []
        pread, descriptors, contents, piece_bytes = os.pread, self._descriptors, self._contents, self._piece_bytes
        for place in places:
            descriptor = descriptors[place]
            try:
                content = pread(descriptor, piece_bytes, 0) if descriptor >= 0 else self._content(place)
            except OSError:
                content = None
            if content != contents[place] or content is None:
                changed.append((place, content))
        self.failed = []
        return self._others(changed) if changed else []

    def keep(self, place: int, content: bytes) -> None:
        """Remember a content: later readings are compared with it."""
        self._contents[place] = content

    def _others(self, changed: list[tuple[int, bytes | None]]) -> list[tuple[int, bytes]]:
        others = []
        for place, begun in changed:
            content = begun
            if begun is not None and len(begun) >= self._piece_bytes and self._descriptors[place] != NOT_OPEN:
                content = self._content(place)  # There is more; from now on all of it is read at once.
                self._piece_bytes = max(self._piece_bytes, 2 * len(content or b""))
            if content is None:
                self.failed.append(self.groups[place])
            elif content != self._contents[place]:
                others.append((place, content))
        return others

    def _content(self, place: int) -> bytes | None:
        """Read a whole file, however large; None where it is gone."""
        descriptor = self._descriptors[place]
        try:
            return _read_once(self._paths[place]) if descriptor == NOT_OPEN else _read_whole(descriptor)
        except OSError:
            return None


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
