# SPDX-License-Identifier: Apache-2.0
"""Descriptors that are kept for long: how many a process may have, and where they leave room for others.

Standard library only: the real-time lane keeps some.
"""

import fcntl
import os
import resource
from contextlib import suppress

# select(2) cannot wait for descriptors from here on: those below are left to others.
DESCRIPTORS_FROM = 1024
DESCRIPTORS_TO = 32768


def allow_descriptors() -> None:
    """Let this process have as many descriptors as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_TO if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_TO, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def moved_up(descriptor: int) -> int:
    """Give the descriptor a number that select(2) does not need; -1 where there is none, and it is closed."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, DESCRIPTORS_FROM)
    except OSError:
        return -1
    finally:
        os.close(descriptor)
