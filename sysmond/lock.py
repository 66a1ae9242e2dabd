# SPDX-License-Identifier: Apache-2.0
"""Locks: one process at a time in a folder; the kernel lets go of it when the process dies (flock(2))."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sysmond.errors import BusyError

LOCK_FILE = "lock"
TRY_EVERY_S = 0.05
TEXT_BYTES = 32

_ENDING = "ending"


@contextmanager
def only_one(folder: str, *, wait_s: float = 0.0, ending_wait_s: float = 0.0, name: str = LOCK_FILE) -> Iterator[int]:
    """Hold a folder's lock; give its descriptor, with which a child holds it too for as long as it keeps it open.

    ``wait_s``: how long to wait for whoever holds it. ``ending_wait_s``: for one that has said that it ends.
    :raises BusyError: naming the process that holds it. :raises OSError: where there can be no such file.
    """
    descriptor = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        began_s = time.monotonic()
        while not _is_taken(descriptor):
            holder, _, stage = os.pread(descriptor, TEXT_BYTES, 0).decode("ascii", "replace").strip().partition(" ")
            if time.monotonic() - began_s >= max(wait_s, ending_wait_s if stage == _ENDING else 0.0):
                raise BusyError(f"{folder}: held by process {holder or 'unknown'}; only one can run there")
            time.sleep(TRY_EVERY_S)
        _write(descriptor, str(os.getpid()))
        yield descriptor
    finally:
        os.close(descriptor)


def say_ending(descriptor: int) -> None:
    """Say in a lock held that its holder is about to end: a successor may wait for that."""
    _write(descriptor, f"{os.getpid()} {_ENDING}")


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, text: str) -> None:
    # The lock holds without it, where there is no room even for this.
    with suppress(OSError):
        os.pwrite(descriptor, f"{text:<{TEXT_BYTES - 1}}\n".encode("ascii"), 0)  # Of one length: never half old.
