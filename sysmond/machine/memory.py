# SPDX-License-Identifier: Apache-2.0
"""How much memory may go into reading files: of a check, of a job of the archiver, of a reader on the bus.

What a file may claim is bounded where it is read. This bound is for what nobody thought of: it holds whatever a
file says, ends in one line that names the file, and keeps the machine. Standard library only.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

# numpy and h5py take a tenth of it; the largest job on honest files a third.
DATA_BYTES_MAX = 512 * 1024 * 1024
# The threads of a linear algebra that nobody needs cost time to start, and each counts with its buffers.
QUIET_LIBRARIES = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
# HDF5 asks for a chunk at once, and has many words for there being no room.
_FULL_PART = 8


class BoundError(MemoryError):
    """Reading these files takes more memory than it may; no ``Error``: else they would be taken as damaged."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        others = f" and {len(paths) - 1} others" if len(paths) > 1 else ""
        super().__init__(
            f"{paths[0]}{others}: takes more memory than the {DATA_BYTES_MAX >> 20} MiB allowed; left as it is"
        )
        self.paths = paths


def bound(process: int) -> None:
    """Have a process, which has just been started, take no more memory for its data (RLIMIT_DATA, getrlimit(2))."""
    resource.prlimit(process, resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))


@contextmanager
def bounded() -> Iterator[None]:
    """Have this process take no more memory for its data than it has now, and so much; and load libraries quietly."""
    os.environ.update(QUIET_LIBRARIES)
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _used_bytes() + DATA_BYTES_MAX
    limits = [limit for limit in (most, before, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _used_bytes() -> int:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "VmData":
                return int(value.split()[0]) * 1024
    return 0


@contextmanager
def working_on(*paths: str) -> Iterator[None]:
    """Name the files where there is no more memory for what is done with them.

    :raises BoundError: in place of the ``MemoryError``, of whatever HDF5 says then, or of the damage it was taken for.
    """
    try:
        yield
    except Exception as failure:
        if isinstance(failure, MemoryError) or isinstance(failure.__cause__, MemoryError) or _is_full():
            raise BoundError(paths) from failure
        raise


def _is_full() -> bool:
    """Whether this process is near its bound: whoever raised an error still has what it took."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return limit != resource.RLIM_INFINITY and _used_bytes() + DATA_BYTES_MAX // _FULL_PART > limit
