# SPDX-License-Identifier: Apache-2.0
"""Ring data that is set aside, because the seal job fails on it again and again, and the other rings must go on.

The child reports which rings it works on. After a failure it works on one ring at a time; a ring that it fails on three
times is skipped up to where its writer is by then, which becomes a gap. A copy of the ring stays for a later
analysis. Standard library only.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.machine.folders import Folders
from sysmond.ring.progress import ARCHIVER
from sysmond.ring.snapshot import fill

FILE = "aside.json"
FOLDER = "aside"
TRIES = 3
# Copies lie in RAM, and a few are enough for an analysis.
COPIES_MAX = 2


class Aside(NamedTuple):
    """By path of the ring: how often the job failed on it, and the logical offset up to which it is skipped."""

    blamed: dict[str, int]
    skipped: dict[str, int]

    @classmethod
    def read(cls, folders: Folders) -> "Aside":
        """Read it; empty where it is missing or damaged."""
        try:
            return note.read(_path(folders), lambda noted: cls(*map(_numbers, note.array(noted))))
        except (OSError, CorruptError):
            return cls({}, {})

    def write(self, folders: Folders) -> None:
        """Replace the file as a whole, without rings that are gone."""
        there = [
            {path: number for path, number in numbers.items() if not path or os.path.exists(path)} for numbers in self
        ]
        with suppress(OSError):
            note.write(_path(folders), there)


def blame(folders: Folders, rings: Sequence[str]) -> str | None:
    """Note which rings the job failed on; return the ring that is set aside now, if any."""
    noted = Aside.read(folders)
    ring = rings[0] if len(rings) == 1 else ""  # With several, the next try shows which it was.
    noted.blamed[ring] = noted.blamed.get(ring, 0) + 1
    is_enough = bool(ring) and noted.blamed[ring] >= TRIES
    if is_enough:
        noted.skipped[ring] = fill(ring)[0]
        del noted.blamed[ring]
        with suppress(OSError):
            keep(folders, ring)
    noted.write(folders)
    return ring if is_enough else None


def forgive(folders: Folders) -> None:
    """The job succeeded: the next one may work on all rings again."""
    noted = Aside.read(folders)
    if noted.blamed:
        noted._replace(blamed={}).write(folders)


def keep(folders: Folders, ring: str) -> None:
    """Copy a ring to a folder where nobody removes it, unless there are enough copies.

    :raises OSError: where there is no room.
    """
    folder = f"{folders.runtime}/{ARCHIVER}/{FOLDER}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = f"{folder}/{'-'.join(ring.removeprefix(folders.runtime).strip('/').split('/'))}"
    if len(os.listdir(folder)) < COPIES_MAX and not os.path.lexists(path):
        with open(ring, "rb") as source, open(path, "wb") as copy:
            while content := source.read(1024 * 1024):
                copy.write(content)


def _numbers(of_rings: object) -> dict[str, int]:
    return {path: note.integer(number) for path, number in note.fields(of_rings).items()}


def _path(folders: Folders) -> str:
    return f"{folders.runtime}/{ARCHIVER}/{FILE}"
