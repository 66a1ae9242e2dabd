# SPDX-License-Identifier: Apache-2.0
"""Has a user hold the memory locks of processes of his own, and reads what everybody runs meanwhile; prints JSON.

A file on FUSE is mapped and written to; what is mapped over it waits for the server to store that, with the lock of the
process's memory held: whoever reads /proc/PID/cmdline waits, too. A program of its own: it needs root and a mount
namespace of its own. Whatever ends it ends the server, and that lets go of all. Exit code 77: it cannot mount here.

Arguments: an empty file to mount on, and how many processes have their memory locked.
"""

import ctypes
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.tasks.command.commands import Commands
from sysmond.tasks.command.execs import Execs
from tests.support.commandrows import rows_in

CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x4000 | 0x40000
PR_SET_PDEATHSIG = 1
NOT_PERMITTED = 77
NOBODY, ANOTHER = 65534, 65533
PAGE = 4096
PROT_READ_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 3, 1, 2, 0x10, 0x20
GETATTR, OPEN, READ, WRITE, FLUSH, INIT = 3, 14, 15, 16, 25, 26
NOT_IMPLEMENTED = -38
WAIT_S = 60.0

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def serve(server: int, pages: int) -> None:
    """Answer as a file system of one file does, but for writes: those are never answered."""
    attributes = struct.pack("<6Q10I", 1, pages * PAGE, pages, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, PAGE, 0)
    answers = {
        INIT: struct.pack("<4I2H2I2HI7I", 7, 31, PAGE, 0, 16, 12, 65536, 1, 16, 0, 0, *[0] * 7),
        GETATTR: struct.pack("<QII", 3600, 0, 0) + attributes,
        OPEN: struct.pack("<QII", 1, 0, 0),
        FLUSH: b"",
    }
    while True:
        request = os.read(server, 1 << 20)
        size, code, unique = struct.unpack_from("<IIQ", request)
        if code == WRITE:
            continue
        answer = answers.get(code, b"")
        if code == READ:
            answer = b"a" * struct.unpack_from("<I", request, size - 24)[0]
        error = 0 if code in {*answers, READ} else NOT_IMPLEMENTED
        os.write(server, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


def lock(file: int, number: int) -> None:
    """Map a page, write to it, and map something over it: that holds the lock until the page is stored."""
    place = libc.mmap(None, PAGE, PROT_READ_WRITE, MAP_SHARED, file, number * PAGE)
    ctypes.memset(place, ord("b"), 1)
    libc.mmap(place, PAGE, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)


def start(uid: int, server: int, does: Callable[[], None]) -> int:
    """Start a process of a user that does something, waits, and ends with this one; it does not hold the server."""
    child = os.fork()
    if child == 0:
        try:
            if server >= 0:
                os.close(server)
            os.setresuid(uid, uid, uid)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            does()
            signal.pause()
        finally:
            os._exit(1)
    return child


def nothing() -> None:
    """Do nothing but be there."""


def refuse(_runtime: str) -> Execs:
    """Have the kernel tell of no programs being executed: all is read from /proc."""
    raise Error("BPF: not asked")


def main(path: str, count: int) -> int:
    """Mount, lock, read, let go, read again."""
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        return NOT_PERMITTED
    options = f"fd={server},rootmode=100000,user_id=0,group_id=0,allow_other".encode()
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
        or libc.mount(b"silent", path.encode(), b"fuse.silent", 0, options)
    ):
        return NOT_PERMITTED
    serving = start(0, -1, lambda: serve(server, count))
    file = os.open(path, os.O_RDWR)  # Before they become somebody who may not come near it.
    os.fstat(file)  # Only then is it known how large the file is.
    locked = [start(NOBODY, server, lambda number=number: lock(file, number)) for number in range(count)]  # type: ignore[misc]
    os.close(server)
    until_s = time.monotonic() + WAIT_S
    while any(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "D" for pid in locked):
        assert time.monotonic() < until_s, "not locked"
        time.sleep(0.01)
    free = {"same": start(NOBODY, -1, nothing), "another": start(ANOTHER, -1, nothing)}
    source, host = Commands(refuse), Host()
    found: set[int] = set()

    def read_until(wanted: set[int]) -> bool:
        until_s = time.monotonic() + WAIT_S
        while not wanted <= found and time.monotonic() < until_s:
            found.update(rows_in(source.records(host, full=False)))
            time.sleep(0.01)
        return wanted <= found

    told = {
        "another": read_until({free["another"], os.getpid()}),
        "while_locked": len(found & {*locked, *free.values()}),
    }
    told["lost"] = source.records(host, full=True)[0].lost
    os.kill(serving, signal.SIGKILL)  # Without a server every call fails: the locks are let go of.
    told["afterwards"] = read_until({*locked, *free.values()})
    print(json.dumps(told))
    for pid in (*locked, *free.values()):
        os.kill(pid, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
