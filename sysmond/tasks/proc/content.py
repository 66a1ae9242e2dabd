# SPDX-License-Identifier: Apache-2.0
"""The content of a file of /proc that is read once."""

import os


def content(path: str, size: int = 65536) -> bytes:
    """Read a file of /proc, at most so many bytes of it.

    :raises OSError: as the kernel says.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = os.read(descriptor, size)
        while read and len(read) < size and (more := os.read(descriptor, size - len(read))):
            read += more
        return read
    finally:
        os.close(descriptor)
