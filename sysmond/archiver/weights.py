# SPDX-License-Identifier: Apache-2.0
"""What merges know of files of rows, noted in RAM from one to the next: a file never changes, and to open it is dear.

A note that is gone, damaged or of another file of that name costs a look at the file, nothing else. Of declarations it
has checksums: where two are alike by accident, the merge itself finds out and leaves the files as they are.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from zlib import crc32

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.machine.folders import Folders
from sysmond.machine.listing import FileStatus
from sysmond.store.archive import Candidate

FILE = "weights.json"

Weigh = Callable[[str, Candidate], Candidate]
"""What opens a file, and says what a merge must know of it; see ``Coding.weighed``."""


class _Weight(NamedTuple):
    """What is noted of a file: which one it is, and what a candidate has of it."""

    file_bytes: int
    written_ns: int
    day: int | None
    size_bytes: int
    weight_bytes: int
    tables: dict[str, int]


class Weights:
    """What is known of files, by path. Of those that nobody asks for nothing is noted again."""

    def __init__(self, folders: Folders) -> None:
        """Take what is noted."""
        self._path = f"{folders.runtime}/archiver/{FILE}"
        self._asked: dict[str, _Weight] = {}
        self._noted: dict[str, _Weight] = {}
        with suppress(OSError, CorruptError):
            self._noted = note.read(self._path, _as_noted)

    def weighed(self, path: str, status: FileStatus, candidate: Candidate, weigh: Weigh) -> Candidate:
        """The candidate with all that a merge must know of it; ``weigh`` is asked where nobody knows.

        :raises Error: as ``weigh`` does.
        """
        known = self._noted.get(path)
        if known is None or (known.file_bytes, known.written_ns) != (status.size_bytes, status.written_ns):
            full = weigh(path, candidate)
            tables = {name: crc32(repr(declared).encode()) for name, declared in full.tables.items()}
            known = _Weight(status.size_bytes, status.written_ns, full.day, full.size_bytes, full.weight_bytes, tables)
        self._asked[path] = known
        return candidate._replace(
            day=known.day, size_bytes=known.size_bytes, weight_bytes=known.weight_bytes, tables=known.tables
        )

    def write(self) -> None:
        """Note what is known now, of files that are there."""
        now = {path: known for path, known in self._asked.items() if os.path.exists(path)}
        if now != self._noted:
            with suppress(OSError):  # Then the next merge looks at the files.
                note.write(self._path, now)


def _as_noted(noted: Any) -> dict[str, _Weight]:  # noqa: ANN401  whatever JSON may have
    return {path: _weight(*note.array(entry)) for path, entry in note.fields(noted).items()}


def _weight(file: Any, written: Any, day: Any, size: Any, weight: Any, tables: Any) -> _Weight:  # noqa: ANN401
    return _Weight(
        note.integer(file),
        note.integer(written),
        None if day is None else note.integer(day),
        note.integer(size),
        note.integer(weight),
        {name: note.integer(declared) for name, declared in note.fields(tables).items()},
    )
