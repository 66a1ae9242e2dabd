# SPDX-License-Identifier: Apache-2.0
"""What /proc has of the program of one process: its path, and its arguments as they are."""

import os
from typing import NamedTuple

from sysmond.tasks.command.masking import RAW_BYTES_MAX
from sysmond.tasks.proc.content import content
from sysmond.tasks.proc.text import ENDED, stat, status

# How often a process is read again that changes while it is read.
TRIES_MAX = 3


class RawRead(NamedTuple):
    """A process as /proc has it. ``program``: None where it has none, or hides it; ``raw``: with its secrets."""

    start_ns: int
    comm: bytes
    uid: int
    program: bytes | None
    raw: bytes


def read_raw(proc: str, pid: int) -> RawRead:
    """Read what a process runs; this waits while another task holds the lock of its memory.

    :raises OSError: where it is gone.
    :raises ValueError: where a file of /proc cannot be parsed.
    """
    folder = f"{proc}/{pid}"
    before = stat(content(f"{folder}/stat"))
    tries = 0
    while True:
        tries += 1
        program, raw = None, b""
        if before.state not in ENDED:
            try:
                program = os.readlink(f"{folder}/exe".encode())
            except OSError:
                program = None  # Kernel threads have none, and not everybody may see it.
            raw = content(f"{folder}/cmdline", RAW_BYTES_MAX + 1)
        uid = status(content(f"{folder}/status")).uid
        after = stat(content(f"{folder}/stat"))
        if tries == TRIES_MAX or (after.start_ns, after.comm) == (before.start_ns, before.comm):
            return RawRead(after.start_ns, after.comm, uid, program, raw)
        before = after  # It executed a program meanwhile, its number was reused, or it keeps renaming itself.
