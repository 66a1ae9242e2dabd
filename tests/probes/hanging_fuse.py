# SPDX-License-Identifier: Apache-2.0
"""Reads the table ``filesystem`` beside a FUSE mount whose server never answers; prints what came out as JSON.

A program of its own: it needs root and a mount namespace of its own, and it is killed if it should hang.
Exit code 77: this machine does not let it mount.
"""

import ctypes
import json
import os
import sys
import time

from sysmond_probes.filesystem import FileSystems

from sysmond.probe import Host
from sysmond.sources.statvfs import Statvfs

CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x4000 | 0x40000
DEADLINE_S = 1.0
NOT_PERMITTED = 77


def main(folder: str) -> int:
    """Mount, read twice, let the mount fail, read again."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        return NOT_PERMITTED
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
        or libc.mount(b"silent", folder.encode(), b"fuse.silent", 0, options)
    ):
        return NOT_PERMITTED
    file_systems, host = FileSystems(Statvfs(deadline_s=DEADLINE_S)), Host()
    readings = []
    for act in (None, None, lambda: os.close(server)):
        if act is not None:
            act()  # Without a server every call fails, those that hang included.
            time.sleep(DEADLINE_S)
        rows = dict(file_systems.read(host))
        host.new_tick()
        readings.append({"silent": rows[folder], "root": rows["/"]})
    print(json.dumps(readings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
