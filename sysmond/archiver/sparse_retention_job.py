# SPDX-License-Identifier: Apache-2.0
"""Keeping of long tables: a tier's budget is that of all of them and both classes; the oldest files go first.

What waits in RAM for the finest tier counts as well. Files are listed without opening one as long as all fits.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

from sysmond.base.clock import SECOND_NS
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing
from sysmond.machine.folders import Folders
from sysmond.plan.retention import StoredFile
from sysmond.store import archive

DAY_S = 86400


def disk_paths(folders: Folders, tier: str) -> Iterator[str]:
    """Every file of a tier, of all long tables."""
    for sensitivity, table in archive.disk_folders(folders):
        if table:
            folder = archive.disk_folder(folders, sensitivity, tier, table)
            with suppress(CorruptError):  # A folder that cannot be read is said by whoever writes to it.
                yield from (f"{folder}/{file}" for file in archive.files(folder))


def ram_paths(folders: Folders) -> Iterator[str]:
    """Every file of a long table that waits in RAM."""
    for sensitivity, table in archive.ram_folders(folders):
        if table:
            folder = archive.ram_folder(folders, sensitivity, table)
            with suppress(CorruptError):  # A folder that cannot be read is said by whoever writes to it.
                yield from (f"{folder}/{file}" for file in archive.files(folder))


def stored(folders: Folders, tier: str) -> Iterator[StoredFile]:
    """Every file of a tier, of all long tables, and when its rows are from."""
    from sysmond.archiver import sparse_merge_job  # noqa: PLC0415  numpy and h5py, which most flushes do without
    from sysmond.store import sparse_file as file  # noqa: PLC0415  numpy and h5py, which most flushes do without

    for path in disk_paths(folders, tier):
        with suppress(FileNotFoundError, CorruptError):
            status = listing.look(path)
            # One that is damaged is of no use, but its bytes count: it goes in its turn.
            first_ns = last_ns = status.written_ns
            with suppress(Error), file.open_file(path) as opened:
                first_ns, last_ns = sparse_merge_job.span_ns(opened)
            yield StoredFile(path, status.size_bytes, first_ns, last_ns, status.written_ns)


def taken(folders: Folders, tier: str, seconds_min: float) -> tuple[int, float]:
    """How many bytes all long tables take in a tier, and how many a day adds: 0 for those there are too few seconds of.

    By the files that are there: those that are not merged yet tell a little more than a day will add.
    """
    used_bytes, per_day = 0, 0.0
    tables: dict[str, list[StoredFile]] = {}
    for file in stored(folders, tier):
        used_bytes += file.size_bytes
        tables.setdefault(os.path.dirname(file.path), []).append(file)
    for files in tables.values():
        seconds = sum(file.last_ns - file.first_ns for file in files) / SECOND_NS
        if seconds >= seconds_min:
            per_day += sum(file.size_bytes for file in files) / seconds * DAY_S
    return used_bytes, per_day
