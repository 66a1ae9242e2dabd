# SPDX-License-Identifier: Apache-2.0
"""A recorder for as long as the screen is open, on a machine where none has recorded anything yet.

It writes to RAM alone, in a folder of its own that goes with it, also when the screen is killed: a shell waits for the
end of a pipe that this process holds, and puts away what it started.
"""

import os
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Self

from sysmond.errors import Error
from sysmond.machine.folders import Folders

# Not on a disk: what is sampled for a look is not worth waking one.
_RAM = "/dev/shm"  # noqa: S108  the folder is made by mkdtemp
INTRODUCTION = (
    "no recorder has run here: sampling for as long as this is open, in RAM; 'sysmond' records, '?' shows the keys"
)
_GUARD = 'folder=$1; shift; "$@" & read -r _; kill $!; wait $!; umount "$folder/run/bpf"; rm -rf "$folder"'


class OwnRecorder:
    """Samples while it is used in a ``with``."""

    def __init__(self) -> None:
        """Start it.

        :raises Error: where there is no RAM to write to.
        """
        try:
            folder = tempfile.mkdtemp(prefix="sysmon-", dir=_RAM)
        except OSError as problem:
            raise Error(f"{_RAM}: {problem.strerror}; 'sysmond' records to where you choose") from None
        self.place = Folders(f"{folder}/state", f"{folder}/run")
        for made in self.place:
            os.mkdir(made, 0o700)
        words = ["--bus", "none", "--state-dir", self.place.state, "--runtime-dir", self.place.runtime]
        self._guard = subprocess.Popen(  # noqa: S603  our own program, by the interpreter that runs us
            ["/bin/sh", "-c", _GUARD, "sysmon", folder, sys.executable, "-P", "-m", "sysmond", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        """Use what it samples."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, and wait until its folder is gone."""
        assert self._guard.stdin is not None  # noqa: S101  it was asked for
        self._guard.stdin.close()
        self._guard.wait()
