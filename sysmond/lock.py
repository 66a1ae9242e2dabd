# SPDX-License-Identifier: Apache-2.0
"""Locks: one process at a time in a folder; the kernel lets go of it when the process dies (flock(2))."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sysmond.errors import BusyError

LOCK_FILE = "lock"
TRY_EVERY_S = 0.05


@contextmanager
def only_one(folder: str, wait_s: float) -> Iterator[None]:
    """Hold a folder's lock, having waited for a predecessor that is just finishing.

    :raises BusyError: naming the process that holds it.
    """
    path = f"{folder}/{LOCK_FILE}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        limit_s = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= limit_s:
                    holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                    raise BusyError(f"{folder}: held by process {holder}; only one can run there") from None
                time.sleep(TRY_EVERY_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
