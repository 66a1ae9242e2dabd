# SPDX-License-Identifier: Apache-2.0
"""The job that seals: what rings hold, and no file has yet, becomes files in RAM, and how far that is is noted.

It runs in a child of the archiver that lives for one job, so its memory and its crashes are its own.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from sysmond.archiver import auto_pins
from sysmond.base.model import Answers, Sensitivity
from sysmond.errors import CorruptError, Error, ForeignError
from sysmond.machine import note
from sysmond.machine.folders import FILE_MODES, Folders, create_stream
from sysmond.machine.memory import working_on
from sysmond.plan import catalogue
from sysmond.ring.progress import ARCHIVER, Progress, Sealed, ring_files, stream_files
from sysmond.ring.skipped_rings import Aside
from sysmond.ring.skipped_rings import keep as keep_copy
from sysmond.store import archive, dense, sparse
from sysmond.store.archive import Name
from sysmond.store.of_ring import Recording
from sysmond.store.unsealed import FilePart, Unsealed

# What a hole says that was given up for want of room.
GIVEN_UP = "RAM for segments was full"
UNSEALED = Sealed(0, 0, 0)

WorksOn = Callable[[Sequence[str]], None]
"""Hears which rings a failure would be the fault of."""

Unread = Callable[[str, str], None]
"""Hears of a ring what of it could not be read."""


class RingCoding(Protocol):
    """What sealing asks a coding: the modules ``dense`` and ``sparse`` have it."""

    def unsealed(self, path: str, before: Sealed, skipped: int, answers: Mapping[str, Answers], /) -> Unsealed:
        """What a ring has that no file has yet."""

    def encode(self, contents: Sequence[Any], /) -> bytes:
        """The image of a file of several such parts."""


_Group = list[tuple[str, FilePart]]
"""What becomes one file: parts, each with the ring it is from."""


def seal(
    folders: Folders,
    works_on: WorksOn = lambda _: None,
    unread: Unread = lambda _, __: None,
    only: Collection[str] = (),
) -> None:
    """Turn what the rings hold and no file has yet into files in RAM, and note how far. ``only``: of these rings.

    Of wide tables one a class; more only where rings of several boots, or tables that are declared in two ways, meet;
    and where a seal failed before. Of long tables one a stretch of a ring, one ring after the other: they are large.
    """
    wide, long = ring_files(folders), stream_files(folders)
    job = _SealJob(folders, [*wide, *long], works_on, unread)
    job.seal(dense, [path for path in wide if path in only or not only])
    for path in long:
        if path in only or not only:
            job.seal(sparse, [path])
    job.note()


class _SealJob:
    """One run: it notes how far each of these rings is sealed."""

    def __init__(self, folders: Folders, rings: Sequence[str], works_on: WorksOn, unread: Unread) -> None:
        self._folders = folders
        self._works_on = works_on
        self._unread = unread
        self._aside = Aside.read(folders)
        self._written = Progress.read(folders).sealed
        self._noted = {path: self._written.get(path, UNSEALED) for path in rings}
        self._answers: dict[str, Answers] = {}
        with suppress(OSError, CorruptError):  # Files say less without it, and rows are there all the same.
            self._answers = catalogue.answers_in(folders.runtime)

    def seal(self, coding: RingCoding, paths: Sequence[str]) -> None:
        """Seal some rings together."""
        reached: dict[str, Sealed] = {}
        groups: list[_Group] = []
        for path in paths:
            self._works_on([path])
            if unsealed := self._unsealed(coding, path):
                reached[path] = unsealed.reached
                for part in unsealed.parts:
                    self._place(groups, path, part)
        waiting = Counter(path for group in groups for path, _ in group)
        self._noted.update((path, reached[path]) for path in reached.keys() - waiting.keys())
        try:
            for group in groups:
                self._publish(coding, group)
                waiting.subtract(path for path, _ in group)
                self._noted.update((path, reached[path]) for path, _ in group if not waiting[path])
        finally:
            self.note()

    def note(self) -> None:
        """Put in place how far the rings are sealed."""
        if self._noted != self._written:
            self._written = dict(self._noted)
            Progress(self._written).write(self._folders)

    def _unsealed(self, coding: RingCoding, path: str) -> Unsealed | None:
        """What of a ring is to be sealed; None where it is gone, or cannot be read."""
        try:
            with working_on(path):
                unsealed = coding.unsealed(path, self._noted[path], self._aside.skipped.get(path, 0), self._answers)
        except FileNotFoundError:
            del self._noted[path]
            return None
        except (ForeignError, CorruptError, PermissionError) as refusal:
            self._unread(path, str(refusal))
            return None  # It stays; readers meet it as well, and name it.
        if unsealed.damage:
            with suppress(OSError):
                keep_copy(self._folders, path)
            self._unread(path, unsealed.damage)
        return unsealed

    def _place(self, groups: list[_Group], path: str, part: FilePart) -> None:
        """Put a part to those that it may share a file with."""
        for group in groups if not self._aside.blamed else ():
            if all(other.may_join(part) for _, other in group):
                group.append((path, part))
                return
        groups.append([(path, part)])

    def _publish(self, coding: RingCoding, group: _Group) -> None:
        """Make a file of the parts of a group."""
        paths, (first, *_) = [path for path, _ in group], [part for _, part in group]
        self._works_on(paths)
        sequence = archive.next_sequence(first.boot, self._folders, first.table)
        with working_on(*paths):
            image = coding.encode([part.content for _, part in group])
        if first.table:
            create_stream(f"{self._folders.runtime}/{ARCHIVER}", f"{first.sensitivity}/{first.table}")
        folder = archive.ram_folder(self._folders, first.sensitivity, first.table)
        file = Name(first.boot, sequence, sequence).file
        archive.publish(folder, file, image, FILE_MODES[first.sensitivity])
        for content in (part.content for _, part in group if isinstance(part.content, Recording)):
            with suppress(OSError, Error):
                auto_pins.pin(self._folders, content)


def empty(paths: Iterable[str]) -> Iterator[str]:
    """Give up the rows of files in RAM: in the place of each comes one that tells of the hole; gives each that has."""
    for path in paths:
        with suppress(Error, OSError):
            folder, file = os.path.split(path)
            is_wide = os.path.basename(folder) in set(Sensitivity)
            sensitivity, image = (dense if is_wide else sparse).emptied(path, GIVEN_UP)
            if file in archive.files(folder):  # Else a flush has just saved it.
                note.put(path, image, mode=FILE_MODES[sensitivity])
                yield path
