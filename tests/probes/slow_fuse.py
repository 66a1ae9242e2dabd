# SPDX-License-Identifier: Apache-2.0
"""Reads ``temperature`` and ``cooling`` of a laptop whose firmware takes its time, on a clock that the program moves.

A server of FUSE answers each question to the embedded controller, to a thermal zone and to a fan after 20 ms. Prints at
which seconds each was asked, and what the doctor is told, as JSON. A program of its own: it needs root and a mount
namespace of its own. Exit code 77: this machine does not let it mount.
"""

import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path

from sysmond_probes import cooling, temperature

from sysmond.base import clock
from sysmond.probe import Host, Row
from tests.probes.hanging_fuse import CLONE_NEWNS, MS_REC_PRIVATE, NOT_PERMITTED

# linux/fuse.h: headers, operations, what an answer to each is made of.
IN_HEADER, OUT_HEADER = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
INIT, GETATTR, OPEN, READ, RELEASE, FORGET, FLUSH = 26, 3, 14, 15, 18, 2, 25
INIT_OUT = struct.pack("=IIIIHHIIHHIIIIIIII", 7, 31, 0, 0, 8, 8, 4096, 1, 1, *(0,) * 9)
ATTRIBUTES = struct.pack("=QII6Q3I7I", 0, 0, 0, 1, 4096, 8, *(0,) * 6, 0o100444, 1, 0, 0, 0, 4096, 0)
UNCACHED = struct.pack("=QII", 0, 1, 0)
ENOSYS = 38
REQUEST_BYTES_MAX = 2**16
ANSWERS_AFTER_S = 0.02
SLOW = {
    "thinkpad": ("devices/platform/thinkpad_hwmon/hwmon/hwmon5/temp3_input", b"44000\n"),
    "acpitz": ("devices/virtual/thermal/thermal_zone0/temp", b"62000\n"),
    "Fan": ("devices/virtual/thermal/cooling_device2/cur_state", b"1\n"),
}
BEGIN_S, END_S, INTERVAL_S = 600, 900, 10
PR_SET_PDEATHSIG = 1


def serve(server: int, content: bytes, asked: mmap.mmap, index: int) -> None:
    """Answer for one file, and note when its content was asked for.

    In a process of its own: one that ends waits for answers about the files that it has open.
    """
    while True:
        request = os.read(server, REQUEST_BYTES_MAX)
        _, operation, number, *_ = IN_HEADER.unpack_from(request)
        if operation == FORGET:
            continue
        answers = {INIT: INIT_OUT, GETATTR: ATTRIBUTES, OPEN: UNCACHED, RELEASE: b"", FLUSH: b"", READ: b""}
        answer = answers.get(operation, b"")
        _, offset = struct.unpack_from("=QQ", request, IN_HEADER.size) if operation == READ else (0, 1)
        if not offset:
            asked[index] = 1
            time.sleep(ANSWERS_AFTER_S)
            answer = content
        header = OUT_HEADER.pack(OUT_HEADER.size + len(answer), 0 if operation in answers else -ENOSYS, number)
        os.write(server, header + answer)


def mount(libc: ctypes.CDLL, root: str, asked: mmap.mmap) -> bool:
    """Mount a server over the file of each slow device; gives whether this machine lets it."""
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None):
        return False
    for index, (path, content) in enumerate(SLOW.values()):
        try:
            server = os.open("/dev/fuse", os.O_RDWR)
        except OSError:
            return False
        options = f"fd={server},rootmode=100444,user_id=0,group_id=0".encode()
        if libc.mount(b"slow", f"{root}/sys/{path}".encode(), b"fuse.slow", 0, options):
            return False
        if os.fork() == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            serve(server, content, asked, index)
        os.close(server)
    return True


def main(root: str) -> int:
    """Read everything for some minutes."""
    asked = mmap.mmap(-1, len(SLOW))
    if not mount(ctypes.CDLL(None, use_errno=True), root, asked):
        return NOT_PERMITTED
    host = Host(root)
    host.folder = f"{root}/run"
    os.mkdir(host.folder)
    probes = [*temperature.sysmond_probes(), *cooling.sysmond_probes()]
    asked_s: dict[str, list[int]] = {name: [] for name in SLOW}
    rows: list[Row] = []
    for now_s in range(BEGIN_S, END_S, INTERVAL_S):
        clock.boottime_ns = lambda now_s=now_s: now_s * clock.SECOND_NS  # type: ignore[misc]
        host.new_tick()
        rows = [row for probe in probes for row in probe.read(host)]
        for index, name in enumerate(SLOW):
            asked_s[name] += [now_s] * asked[index]
            asked[index] = 0
    host.close()
    ways = {name: Path(host.folder, name).read_text() for name in sorted(os.listdir(host.folder))}
    values = [dict(rows)[name][0] for name in ("thinkpad:temp3", "acpitz", "Fan")]
    print(json.dumps({"asked_s": asked_s, "ways": ways, "values": values}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
