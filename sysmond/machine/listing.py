# SPDX-License-Identifier: Apache-2.0
"""Listing: the one place that asks the system what files there are, how large they are and how old.

What it refuses to tell of a file (an inode that is damaged, a link to itself, a bad sector) is damage of that file,
with its name, and nobody else's business. Standard library only.
"""

import os
from typing import NamedTuple

from sysmond.errors import CorruptError

# What st_blocks counts in.
_BLOCK_BYTES = 512


class FileStatus(NamedTuple):
    """What is told of a file. ``disk_bytes``: what it takes where it lies. ``written_ns``: when, in UTC."""

    size_bytes: int
    disk_bytes: int
    written_ns: int


def files(folder: str, suffix: str) -> list[str]:
    """The files of a folder that end so, sorted; those too that nobody can look at: who opens one hears why.

    An absent folder has none.

    :raises PermissionError: where we may not look. :raises CorruptError: where the folder cannot be read.
    """
    return _claiming(folder, suffix)[0]


def strangers(folder: str, suffix: str) -> list[str]:
    """What ends so and is no file: folders, links to nowhere, pipes, on which one waits for ever; else as ``files``."""
    return _claiming(folder, suffix)[1]


def look(path: str) -> FileStatus:
    """Tell of one file.

    :raises FileNotFoundError: where it is gone. :raises PermissionError: where we may not look.
    :raises CorruptError: where nobody can.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as refusal:
        raise CorruptError(f"{path}: {refusal.strerror}") from refusal
    return FileStatus(status.st_size, status.st_blocks * _BLOCK_BYTES, status.st_mtime_ns)


def _claiming(folder: str, suffix: str) -> tuple[list[str], list[str]]:
    names: list[str] = []
    strange: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    (names if _is_file(entry) else strange).append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except PermissionError:
        raise
    except OSError as refusal:
        raise CorruptError(f"{folder}: {refusal.strerror}") from refusal
    return sorted(names), sorted(strange)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return True
