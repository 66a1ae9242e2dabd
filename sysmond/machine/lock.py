# SPDX-License-Identifier: Apache-2.0
"""Locks: one process at a time in a folder; the kernel lets go of it when the process dies (flock(2)).

Whoever can open a file can lock it, so a lock file is for its owner alone. Versions before this one left files that
all could open, and what a stranger has open, no mode takes back: such a file is replaced, unless a recorder of
ours holds it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sysmond.errors import BusyError
from sysmond.machine.folders import STATE_LINK, Folders, trusted_uids

LOCK_FILE = "lock"
TRY_EVERY_S = 0.05
TEXT_BYTES = 32
MODE = 0o600

_OTHERS = 0o077
_ENDING = "ending"


@contextmanager
def only_one(folder: str, *, wait_s: float = 0.0, ending_wait_s: float = 0.0, name: str = LOCK_FILE) -> Iterator[int]:
    """Hold a folder's lock; give its descriptor, with which a child holds it too for as long as it keeps it open.

    ``wait_s``: how long to wait for whoever holds it. ``ending_wait_s``: for one that has said that it ends.
    :raises BusyError: naming the process that holds it. :raises OSError: where there can be no such file.
    """
    path = f"{folder}/{name}"
    began_s = time.monotonic()
    while (descriptor := _take(path)) is None:
        holder, is_ending = _holder(path)
        if time.monotonic() - began_s >= max(wait_s, ending_wait_s if is_ending else 0.0):
            raise BusyError(f"{folder}: held by {holder}; only one can run there")
        time.sleep(TRY_EVERY_S)
    try:
        _write(descriptor, str(os.getpid()))
        yield descriptor
    finally:
        with suppress(OSError):  # Whoever holds it may let go of it early.
            os.close(descriptor)


def is_lost(descriptor: int, folder: str, name: str = LOCK_FILE) -> bool:
    """Whether the file of a lock held is not in its folder any more: another process could hold one there."""
    try:
        return not os.path.samestat(os.fstat(descriptor), os.stat(f"{folder}/{name}"))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # It cannot be looked at now, which says nothing.
        return False


def say_ending(descriptor: int) -> None:
    """Say in a lock held that its holder is about to end: a successor may wait for that."""
    _write(descriptor, f"{os.getpid()} {_ENDING}")


def elsewhere(place: Folders) -> str:
    """What to say where nothing, or nobody, is found in folders: that a recorder there has another runtime folder.

    Empty where none writes to the state folder now, as far as the kernel shows it.
    """
    process = recorder(f"{place.state}/{LOCK_FILE}")
    if not process:
        return ""
    runtime = _runtime_of(process, place.state)
    if _is_same(runtime, place.runtime) or (not runtime and place.runtime != place.state):
        return ""
    option = f"--runtime-dir={runtime}" if runtime else "its --runtime-dir"
    return f"; process {process} records there and holds the rest in RAM: expected {option}, too"


def recorder(path: str) -> str:
    """The process that holds a lock now; empty where none is shown."""
    try:
        if process := _locker(os.stat(path)):
            return process
        noted = _holder(path)[0].removeprefix("process ")
    except OSError:
        return ""
    return noted if _is_recorder(noted, path) else ""


def _runtime_of(process: str, state: str) -> str:
    """The folder of another lock that a process holds, if it leads to this state folder; else empty."""
    opened = f"/proc/{process}/fd"
    with suppress(OSError):
        for number in os.listdir(opened):
            folder, name = os.path.split(os.readlink(f"{opened}/{number}"))
            if name == LOCK_FILE and _is_same(f"{folder}/{STATE_LINK}", state):
                return folder
    return ""


def _take(path: str) -> int | None:
    """Open and lock the file that has this name; None where another process holds it.

    :raises OSError: where there can be no such file.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        is_ours = False
        try:
            is_taken = _lock(descriptor)
            if not _has_name(descriptor, path):
                continue  # Replaced or removed while we opened it: the lock is another file now.
            if os.fstat(descriptor).st_mode & _OTHERS:
                if not is_taken and _is_recorder(_noted(descriptor)[0], path):
                    return None
                _replace(descriptor, path)
                continue
            is_ours = is_taken
            return descriptor if is_taken else None
        finally:
            if not is_ours:
                os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_name(descriptor: int, path: str) -> bool:
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _replace(descriptor: int, path: str) -> None:
    # Two that start at once may both see it; the second finds another file of that name, and leaves it alone.
    if _has_name(descriptor, path):
        with suppress(FileNotFoundError):
            os.unlink(path)


def _is_recorder(process: str, path: str) -> bool:
    """Whether a process of ours has the file open: only its owner could note its number there."""
    folder = f"/proc/{process}/fd"
    try:
        if os.stat(f"/proc/{process}").st_uid not in trusted_uids():
            return False
        return any(_is_same(f"{folder}/{number}", path) for number in os.listdir(folder))
    except (OSError, ValueError):
        return False


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:
        return False


def _holder(path: str) -> tuple[str, bool]:
    """Who holds a lock, for people, as far as the kernel shows it; and whether it has said that it ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "another process", False
    try:
        noted, stage = _noted(descriptor)
        process = _locker(os.fstat(descriptor)) or noted
    finally:
        os.close(descriptor)
    return f"process {process or 'unknown'}", stage == _ENDING and process == noted


def _noted(descriptor: int) -> tuple[str, str]:
    process, _, stage = os.pread(descriptor, TEXT_BYTES, 0).decode("ascii", "replace").strip().partition(" ")
    return (process if process.isdecimal() else ""), stage


def _locker(status: os.stat_result) -> str:
    """The process that locked a file (/proc/locks, proc(5)); empty where it is not shown."""
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            for line in locks:
                fields = line.split()
                if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == file:  # noqa: PLR2004  as in proc(5)
                    return fields[4]
    except OSError:
        return ""
    return ""


def _write(descriptor: int, text: str) -> None:
    # The lock holds without it, where there is no room even for this.
    with suppress(OSError):
        os.pwrite(descriptor, f"{text:<{TEXT_BYTES - 1}}\n".encode("ascii"), 0)  # Of one length: never half old.
