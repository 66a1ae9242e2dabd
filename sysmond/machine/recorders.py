# SPDX-License-Identifier: Apache-2.0
"""Recorders: whose archive a question is about, where the caller does not say where it lies.

An ordinary user means their own recorder while it runs, else the machine's as far as they may read it, else what they
recorded themselves. Root means the machine's. ``--user`` and ``--system`` choose; a folder that is named is meant.
"""

import os

from sysmond.errors import Error, UsageError
from sysmond.machine import folders, lock
from sysmond.machine.folders import Folders


def asked(
    *, user: bool, system: bool, state_dir: str | None, runtime_dir: str | None, or_file: bool = False
) -> Folders:
    """Say where that lies which somebody wants to read; ``or_file``: a state folder may be one file.

    :raises UsageError: where both are wanted, and as ``folders.asked``. :raises Error: as that.
    """
    if user and system:
        raise UsageError("--user and --system: expected only one of them")
    if state_dir is None and runtime_dir is None and not user:
        machine = Folders(folders.SYSTEM_STATE, folders.SYSTEM_RUNTIME)
        if system or (_is_readable(machine) and not _has_recorder()):
            return machine
    return folders.asked(user=user, state_dir=state_dir, runtime_dir=runtime_dir, or_file=or_file)


def is_recording(place: Folders) -> bool:
    """Whether a recorder runs now whose folders these are.

    Parts that are units have no parent that holds the lock in RAM; the archiver holds the other.
    """
    return any(lock.recorder(f"{folder}/{lock.LOCK_FILE}") for folder in (place.runtime, place.state))


def introduction(place: Folders, *, system: bool) -> str:
    """What to tell an ordinary user who reads the machine's archive without having asked for it; else empty."""
    if system or not os.geteuid() or place != (folders.SYSTEM_STATE, folders.SYSTEM_RUNTIME):
        return ""
    return f"from the machine's archive, {place.state}; --user reads your own"


def check_own(command: str, *, may_wait: bool) -> None:
    """Refuse a command of an ordinary user that would change an archive of one's own, where only the machine has one.

    Called where no folder is named. ``may_wait``: an archive of one's own is enough; else a recorder must run there.

    :raises Error: naming the machine's recorder, and who asks it.
    """
    machine = Folders(folders.SYSTEM_STATE, folders.SYSTEM_RUNTIME)
    if not os.geteuid() or not _is_readable(machine) or _has_recorder():
        return
    own = folders.ours(user=True, state_dir=None, runtime_dir=None).state
    if may_wait and os.path.isdir(own):
        return
    absence = "you have no archive of your own" if may_wait else "no recorder of your own is running"
    raise Error(f"{own}: {absence}; the machine's recorder writes to {machine.state}: use 'sysmonctl {command}'")


def _has_recorder() -> bool:
    """Whether a recorder of this user's own runs now: root has none but the machine's."""
    if not os.geteuid():
        return False
    try:
        own = folders.ours(user=True, state_dir=None, runtime_dir=None)
    except Error:  # Without a home, or where somebody else has its place, there is none.
        return False
    return bool(lock.recorder(f"{own.runtime}/{lock.LOCK_FILE}"))


def _is_readable(place: Folders) -> bool:
    """Whether there is anything that we may read: also before the first flush, and after the recorder ended."""
    return os.access(f"{place.state}/public", os.R_OK | os.X_OK) or os.access(f"{place.runtime}/plan.json", os.R_OK)
