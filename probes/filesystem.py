# SPDX-License-Identifier: Apache-2.0
"""Mounted file systems: room and inodes, from ``/proc/self/mountinfo`` and statvfs(3).

Source: proc(5) and statvfs(3); ``sysmond.sources.statvfs`` asks, and waits for nobody that hangs.
"""

import errno
import os
from collections.abc import Iterator, Mapping

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, Tells, gauge, hookimpl, state, text
from sysmond.sources.statvfs import MACHINES_PATH, MOUNTS_MAX, PATH, MountLine, Statvfs, mountinfo, parse

INTERVAL_S = 30.0

ANSWERED, HUNG, AUTOMOUNTED, REFUSED = range(4)

FILESYSTEM = Table(
    "filesystem",
    per="mount",
    doc="File systems by mount point, counted as by df(1): those that the kernel itself provides (proc, sysfs,"
    f" cgroup …) and those without blocks are left out. The first {MOUNTS_MAX} mounts of mountinfo have rows, the table"
    " mounts counts all. One that does not answer keeps its row, with status and without numbers.",
    metrics=(
        gauge("size", "B", "Size of the file system.", origin="statvfs f_blocks × f_frsize"),
        gauge("used", "B", "Bytes in use: size minus free.", origin="statvfs (f_blocks - f_bfree) × f_frsize"),
        gauge("free", "B", "Bytes free, including those reserved for root.", origin="statvfs f_bfree × f_frsize"),
        gauge("available", "B", "Bytes free to unprivileged users.", origin="statvfs f_bavail × f_frsize"),
        gauge("inodes", "1", "Number of inodes; absent if they are created as needed.", origin="statvfs f_files"),
        gauge("inodes_used", "1", "Inodes in use.", origin="statvfs f_files - f_ffree"),
        gauge("inodes_free", "1", "Inodes free, including those reserved for root.", origin="statvfs f_ffree"),
        state(
            "read_only",
            "1 if nothing can be written: the mount or the file system is read-only. This is how the"
            " machine's first process sees it, where that may be read, regardless of what the service"
            " manager made read-only for sysmond.",
            f"{MACHINES_PATH} 6 11, else {PATH}",
        ),
        state(
            "status",
            "0 it answered; 1 it hangs: no answer within 2 s, and it is not asked again before one comes;"
            " 2 it was not asked, which would keep its automounter from unmounting it; 3 permission was"
            " refused.",
            "statvfs",
        ),
        text("type", "Type of the file system, such as ext4.", f"{PATH} 9"),
        text("device", "What is mounted: a device, server:/folder, or a name such as tmpfs.", f"{PATH} 10"),
    ),
)

MOUNTS = Table(
    "mounts",
    doc="How many mounts there are in the mount namespace of sysmond.",
    metrics=(
        gauge("mounts", "1", "Mounts of every kind.", origin=PATH),
        gauge("filesystems", "1", "Mounts of real file systems that can be reached by their path.", origin=PATH),
        gauge("filesystems_left_out", "1", "How many of these are not in the table filesystem.", origin=PATH),
    ),
)

_NO_NUMBERS = (ABSENT,) * 7
FULL_PERCENT = (90, 95, 100)
FULL_WORDS = {percent: f"{percent} % full" for percent in FULL_PERCENT}
CLEARLY_PERCENT = 2


class FileSystems:
    """Reads mountinfo, chooses the mounts anew where it changed, and asks them."""

    def __init__(self, statvfs: Statvfs | None = None) -> None:
        """``statvfs``: by default that of the kernel."""
        self._statvfs = statvfs or Statvfs()
        self._contents = b"", b""
        self._mounts: list[MountLine] = []

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for every real mount that still exists."""
        contents = mountinfo(host)
        if contents != self._contents:
            self._mounts, self._contents = parse(*contents)[:MOUNTS_MAX], contents
        asked = [mount for mount in self._mounts if not mount.automounted]
        answers = self._statvfs.answers(asked, os.fsencode(host.root))
        for mount in self._mounts:
            answer = answers.get(mount)
            if answer == errno.ENOENT or (isinstance(answer, os.statvfs_result) and not answer.f_blocks):
                continue  # Unmounted meanwhile, or without blocks.
            if isinstance(answer, os.statvfs_result):
                numbers, status = _numbers(answer), ANSWERED
            else:
                numbers = _NO_NUMBERS
                status = AUTOMOUNTED if mount.automounted else HUNG if answer is None else REFUSED
            yield _text(mount.point), (*numbers, int(mount.read_only), status, _text(mount.type), _text(mount.device))


def count(host: Host) -> Iterator[Row]:
    """Give the one row of ``mounts``."""
    content = host.read(PATH)
    chosen = len(parse(content))
    yield "", (content.count(b"\n"), chosen, max(0, chosen - MOUNTS_MAX))


def _numbers(answer: os.statvfs_result) -> tuple[int, ...]:
    block, blocks, free = answer.f_frsize, answer.f_blocks, answer.f_bfree
    inodes, inodes_free = answer.f_files, answer.f_ffree
    in_inodes = (inodes, inodes - inodes_free, inodes_free) if inodes else (ABSENT,) * 3
    return blocks * block, (blocks - free) * block, free * block, answer.f_bavail * block, *in_inodes


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def full_percent(row: Mapping[str, int | str], before: int | str) -> int:
    """Give from which of ``FULL_PERCENT`` on a file system is full, as df(1) counts; 0 below all, ABSENT if unknown.

    One that was fuller is so until it is clearly not any more.
    """
    used, available = row["used"], row["available"]
    if not isinstance(used, int) or not isinstance(available, int) or ABSENT in {used, available}:
        return ABSENT
    percent = -(-100 * used // max(1, used + available))
    level = max((each for each in FULL_PERCENT if percent >= each), default=0)
    was = before if isinstance(before, int) and before != ABSENT else 0
    return was if level < was <= percent + CLEARLY_PERCENT else level


_TELLS = (
    Tells("mounted", gone="unmounted", shows="device"),
    Tells("read-only", "read_only", {0: "writable again", 1: "read-only"}),
    Tells("disk space", value=full_percent, words={0: "less than 90 % full", **FULL_WORDS}),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``filesystem`` and ``mounts``."""
    return [
        Probe(FILESYSTEM, FileSystems().read, INTERVAL_S, Lane.BACKGROUND, tells=_TELLS),
        Probe(MOUNTS, count, INTERVAL_S, Lane.BACKGROUND, pure=True),
    ]
