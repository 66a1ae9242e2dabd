# SPDX-License-Identifier: Apache-2.0
"""The note in the state folder by which a boot knows of the one before: which it was, and its settings at the end.

It is written where a flush writes anyway, and not synced: a power cut may cost how the last setting became. Standard
library only.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from sysmond.archiver import disk_writes
from sysmond.archiver.flushing import Reason
from sysmond.base import clock
from sysmond.base.model import Lane
from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.machine.folders import Folders
from sysmond.ring.progress import ARCHIVER, WRITERS
from sysmond.sources import settings

FILE = "boot.json"
IN_ORDER = "in order", "the recorder was told to stop"
UNKNOWN = "unknown", "power loss, hang or reset: the recorder was not told to stop"


class NotedBoot(NamedTuple):
    """Which boot was recorded last, and what its settings were."""

    boot: str
    settings: Mapping[str, str]


def carry_on(folders: Folders, owed: Mapping[str, object], boot: str = "") -> tuple[str, str] | None:
    """Note this boot and its settings, and give how the boot before ended, in a word and in words.

    None where this is the boot that was noted, or none was.

    What its settings were is laid where the background lane looks. ``owed``: what the run before left to be counted:
    a shutdown is in it where that was told to stop.

    :raises OSError: where the note cannot be written.
    """
    path = f"{folders.state}/{FILE}"
    seen = settings.noted(f"{folders.runtime}/{WRITERS[Lane.BACKGROUND]}/{settings.NOTE}")
    before, now = _read(path), NotedBoot(boot or clock.boot_id(), seen)
    is_another = before.boot != now.boot
    if is_another and before.settings:
        with suppress(OSError):
            note.write(f"{folders.runtime}/{ARCHIVER}/{settings.NOTE_BEFORE}", before.settings)
    if is_another or (seen and seen != before.settings):
        note.write(path, now._replace(settings=seen or before.settings)._asdict())
    if not is_another or not before.boot:
        return None
    return IN_ORDER if Reason.SHUTDOWN in owed else UNKNOWN


def was_cut_off(state: str) -> bool:
    """Whether another boot was recorded here last, and its recorder was not told to stop."""
    return _read(f"{state}/{FILE}").boot not in {"", clock.boot_id()} and Reason.SHUTDOWN not in disk_writes.take(state)


def _read(path: str) -> NotedBoot:
    """What is noted; no boot where nothing is, or that is damaged."""
    try:
        return note.read(path, lambda noted: NotedBoot(note.text(noted["boot"]), settings.shaped(noted["settings"])))
    except (OSError, CorruptError):
        return NotedBoot("", {})
