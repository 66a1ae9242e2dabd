# SPDX-License-Identifier: Apache-2.0
"""What a snapshot says of itself, by the manifest that lies beside what was unpacked; see ``snapshot_file``.

Every question asks: of what came after a snapshot nothing is known, so that its end is the now of whoever looks at it.
Standard library only.
"""

import os
from datetime import UTC
from functools import cache
from typing import Any, NamedTuple

from sysmond.base import clock, timespec
from sysmond.errors import Error

FORMAT = "sysmond snapshot"
MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 4 * 1024 * 1024
# Which file was unpacked into which folder of this process.
FILES: dict[str, str] = {}


class SnapshotNote(NamedTuple):
    """Up to when a snapshot has anything (UTC ns), whether it names nobody, and has what is restricted."""

    end_ns: int
    is_anonymous: bool
    is_restricted: bool


def of(folder: str) -> SnapshotNote | None:
    """What the snapshot says that was unpacked into a folder; None for any other archive."""
    try:
        status = os.stat(f"{folder}/{MANIFEST}")
    except OSError:
        return None
    return _of(folder, status.st_mtime_ns)


def now(folder: str) -> clock.Relation:
    """Read the clocks as whoever asks an archive means them: in a snapshot, now is its end."""
    relation, snapshot = clock.relation(), of(folder)
    past_ns = max(0, relation.realtime_ns - snapshot.end_ns) if snapshot else 0
    return clock.Relation(*(time_ns - past_ns for time_ns in relation))


def left_out(folder: str) -> str:
    """Why there may be nothing of what not everybody may read; empty where an archive has that."""
    snapshot = of(folder)
    if snapshot is None or snapshot.is_restricted:
        return ""
    return "this snapshot has only what everybody may read; 'sysmon snapshot --restricted' makes one with the rest"


def named(place: str) -> str:
    """How people call an archive: a snapshot by the file that they gave, not by where it was unpacked."""
    return FILES.get(place, place)


@cache
def _of(folder: str, _modified_ns: int) -> SnapshotNote | None:
    from sysmond.machine import note  # noqa: PLC0415  most archives are no snapshots

    try:
        return note.read(f"{folder}/{MANIFEST}", _shape, MANIFEST_BYTES_MAX)
    except (OSError, Error):
        return None


def _shape(said: Any) -> SnapshotNote:  # noqa: ANN401  what JSON gives
    from sysmond.machine import note  # noqa: PLC0415  as above

    fields = note.fields(said)
    if fields.get("format") != FORMAT:
        raise ValueError("no manifest of a snapshot")
    end = fields.get("to")
    end_ns = timespec.FOREVER_NS if end is None else timespec.parse_time(note.text(end), now_ns=0, zone=UTC)
    return SnapshotNote(end_ns, fields.get("anonymous") is True, "restricted" in (fields.get("classes") or ()))
