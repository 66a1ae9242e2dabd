# SPDX-License-Identifier: Apache-2.0
"""Rings whose writer died, or that the archiver has sealed.

While a lane has no ring of a class yet, the file ``STARTED.reading`` names the table that is being read, as the
ring's mark does later: a lane that dies or hangs over its very first reading names its culprit, too.
Standard library only.
"""

import os
from contextlib import suppress

from sysmond.base.model import NAME_LENGTH_MAX, Sensitivity
from sysmond.errors import Error
from sysmond.machine import listing
from sysmond.machine.folders import Folders
from sysmond.ring.frame import LAYOUT, SUFFIX, decode_layout
from sysmond.ring.progress import Progress, Sealed, ring_files, stream_files, streams_in
from sysmond.ring.snapshot import fill, identify, snapshot

READING = ".reading"
# An offset behind all rows: of a dead writer's ring only the frames that explain are needed, and the last ones.
NO_ROWS = 2**62


def folders_of_streams(folder: str) -> list[str]:
    """The folders of all streams of a lane: those of the classes, and in them those of long tables."""
    classes = [f"{folder}/{sensitivity}" for sensitivity in Sensitivity]
    return [*classes, *(f"{parent}/{table}" for parent in classes for table in streams_in(parent))]


def culprits(folder: str, since_ns: int) -> set[str]:
    """The tables that were being read when incarnations of a lane that began at ``since_ns`` or later died."""
    tables: set[str] = set()
    for path in _files(folder, READING):
        with suppress(OSError):
            with open(path, encoding="utf-8", errors="replace") as file:
                tables.add(file.read(NAME_LENGTH_MAX))
            os.unlink(path)
    for stream in folders_of_streams(folder):
        for path in _files(stream, SUFFIX):
            if started_ns(os.path.basename(path)) >= since_ns:
                with suppress(OSError, Error, ValueError):
                    tables.add(_marked(path))
    return tables - {""}


def _files(folder: str, suffix: str) -> list[str]:
    """The files of a folder with this suffix."""
    return [f"{folder}/{name}" for name in listing.files(folder, suffix)]


def _marked(path: str) -> str:
    """The table that a ring's writer was reading when it died; empty for none."""
    copy = snapshot(path, NO_ROWS)
    if not copy.mark or copy.closed:
        return ""
    for kind, ident, _, payload in map(copy.frame, copy.frames):
        if kind == LAYOUT and ident == copy.mark - 1:
            return decode_layout(payload).table.name
    return ""


def started_ns(name: str) -> int:
    """When a ring began, by the name of its file, in boot time; 0 where it is not the name of a ring."""
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits.isdigit() else 0


def is_over(path: str, sealed: Sealed) -> bool:
    """Whether all of a ring is in segments, and nobody writes it any more."""
    try:
        identity, _ = identify(path)
        return fill(path)[0] == sealed.offset and (bool(sealed.closed) or not is_alive(identity.pid))
    except (OSError, Error):
        return False


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs; one that ended, and that nobody has waited for yet, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}  # proc(5)
    return True


def remove_sealed(folders: Folders, writer: str) -> None:
    """Remove a writer's rings that are over, to free their memory; only the writer or its parent may."""
    progress = Progress.read(folders)
    for path in (*ring_files(folders), *stream_files(folders)):
        sealed = progress.sealed.get(path)
        if sealed is not None and path.startswith(f"{folders.runtime}/{writer}/") and is_over(path, sealed):
            os.unlink(path)
