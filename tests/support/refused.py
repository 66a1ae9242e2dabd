# SPDX-License-Identifier: Apache-2.0
"""Files that the kernel refuses to read, as a driver does that has nothing to tell now (-ENODATA), or fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def refused(errno: int, is_one: Callable[[str], bool]) -> Iterator[list[str]]:
    """Have each read of a file, that is open or not, say so; gives the paths of those that did."""
    pread, said = os.pread, list[str]()

    def refusing(descriptor: int, length: int, offset: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if is_one(path):
            said.append(path)
            raise OSError(errno, os.strerror(errno))
        return pread(descriptor, length, offset)

    with patch.object(os, "pread", refusing):
        yield said
