# SPDX-License-Identifier: Apache-2.0
"""How far each ring has been sealed: the archiver's only memory, a small file in its runtime folder.

It is written after the segment: an archiver that dies in between seals the same rows once more, and
readers, which join by tick, see them once. Standard library only.
"""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import CorruptError
from sysmond.machine import listing, note
from sysmond.machine.folders import Folders
from sysmond.ring.frame import SUFFIX

FILE = "progress.json"
WRITERS = {Lane.REALTIME: "sampler", Lane.BACKGROUND: "background", Lane.ONESHOT: "smart"}
LANES = (Lane.REALTIME, Lane.BACKGROUND)
"""Those that stay, and listen: to the other nobody can say anything, since it runs for a moment only."""

ARCHIVER = "archiver"
"""It has a small ring of its own: the ledger of its flushes."""


class Sealed(NamedTuple):
    """Up to which logical offset and tick a ring is in segments; ``closed``: it was complete by then."""

    offset: int
    last_tick_ns: int
    closed: int


class Progress(NamedTuple):
    """By path of the ring."""

    sealed: dict[str, Sealed]

    @classmethod
    def read(cls, folders: Folders) -> "Progress":
        """Read it; empty where it is missing or damaged: then all rings are sealed again."""
        try:
            return cls(note.read(_path(folders), _sealed))
        except (OSError, CorruptError):
            return cls({})

    def write(self, folders: Folders) -> None:
        """Replace the file as a whole."""
        # One bit turned over in an offset would leave rows that nobody seals.
        note.write(_path(folders), {**self.sealed, note.CHECKSUM: note.checksum(self.sealed)})


def _sealed(noted: dict[str, Any]) -> dict[str, Sealed]:
    said = noted.pop(note.CHECKSUM)  # No path of a ring has this name.
    note.check(noted, said)
    return {path: Sealed(*map(note.integer, note.array(numbers))) for path, numbers in noted.items()}


def _path(folders: Folders) -> str:
    return f"{folders.runtime}/archiver/{FILE}"


def ring_files(folders: Folders, classes: Iterable[Sensitivity] = tuple(Sensitivity), table: str = "") -> list[str]:
    """The rings of every writer and these classes that we may list, oldest first within each.

    Those of wide tables, or of one long ``table``: see ``stream_files``.
    """
    places = [
        f"{folders.runtime}/{writer}/{sensitivity}{table and '/'}{table}"
        for writer in (*WRITERS.values(), ARCHIVER)
        for sensitivity in classes
    ]
    return [path for folder in places for path in rings_in(folder)]


def stream_files(folders: Folders, classes: Iterable[Sensitivity] = tuple(Sensitivity)) -> list[str]:
    """The rings of long tables, ``WRITER/CLASS/TABLE/STARTED.ring``, oldest first within each stream."""
    places = [f"{folders.runtime}/{writer}/{sensitivity}" for writer in WRITERS.values() for sensitivity in classes]
    return [path for folder in places for stream in streams_in(folder) for path in rings_in(f"{folder}/{stream}")]


def streams_in(folder: str) -> list[str]:
    """The long tables with a folder in that of a class, sorted; none where we may not list it."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def rings_in(folder: str) -> list[str]:
    """The rings of one folder, oldest first; none where we may not list it."""
    try:
        rings = listing.files(folder, SUFFIX)
    except (PermissionError, CorruptError):
        return []
    # Names are numbers: the longer one is the later one.
    return [f"{folder}/{name}" for name in sorted(rings, key=lambda name: (len(name), name))]
