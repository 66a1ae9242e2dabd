# SPDX-License-Identifier: Apache-2.0
"""Mounted file systems: room and inodes, from ``/proc/self/mountinfo`` and statvfs(3).

Source: proc(5), the kernel's ``Documentation/filesystems/proc.rst`` (3.5) and statvfs(3). What lies
behind a mount may hang for ever in the kernel, so a thread of its own asks each mount.
"""

import errno
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from threading import Thread
from time import monotonic
from typing import NamedTuple

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, gauge, hookimpl, state, text

PATH = "/proc/self/mountinfo"
INTERVAL_S = 30.0
DEADLINE_S = 2.0
MOUNTS_MAX = 256
# At most so many threads, stuck ones included: a mount that comes and goes may leave a stuck one each time.
THREADS_MAX = 2 * MOUNTS_MAX

ANSWERED, HUNG, AUTOMOUNTED, REFUSED = range(4)

FILESYSTEM = Table(
    "filesystem",
    per="mount",
    doc="File systems by mount point, as df(1) counts: those of the kernel's own making (proc, sysfs, cgroup …) and"
    f" those without blocks are left out. The first {MOUNTS_MAX} mounts of mountinfo have rows, the table mounts counts"
    " all. One that does not answer keeps its row, with status and without numbers.",
    metrics=(
        gauge("size", "B", "Size of the file system.", origin="statvfs f_blocks × f_frsize"),
        gauge("used", "B", "Bytes in use: size less free.", origin="statvfs (f_blocks - f_bfree) × f_frsize"),
        gauge("free", "B", "Bytes free, those reserved for root included.", origin="statvfs f_bfree × f_frsize"),
        gauge("available", "B", "Bytes free to unprivileged users.", origin="statvfs f_bavail × f_frsize"),
        gauge("inodes", "1", "Inodes in all; absent where they are made as needed.", origin="statvfs f_files"),
        gauge("inodes_used", "1", "Inodes in use.", origin="statvfs f_files - f_ffree"),
        gauge("inodes_free", "1", "Inodes free, those reserved for root included.", origin="statvfs f_ffree"),
        state(
            "read_only", "1 where nothing can be written: the mount or the file system is read-only.", f"{PATH} 6 11"
        ),
        state(
            "status",
            "0 answered; 1 hangs: no answer within 2 s, and not asked again before one comes;"
            " 2 not asked: asking would keep it from being unmounted by its automounter; 3 asking was refused.",
            "statvfs",
        ),
        text("type", "Type of the file system, as ext4.", f"{PATH} 9"),
        text("device", "What is mounted: a device, server:/folder, or a word.", f"{PATH} 10"),
    ),
)

MOUNTS = Table(
    "mounts",
    doc="How many mounts there are in the mount namespace of sysmond.",
    metrics=(
        gauge("mounts", "1", "Mounts of every kind.", origin=PATH),
        gauge("filesystems", "1", "Mounts of real file systems that can be reached by their path.", origin=PATH),
        gauge("filesystems_left_out", "1", "How many of these the table filesystem leaves out.", origin=PATH),
    ),
)

# File systems that the kernel makes up and nobody can fill; parse() recognizes automounters.
_PSEUDO = frozenset(
    b"bdev binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devpts efivarfs fuse.gvfsd-fuse fuse.lxcfs"
    b" fuse.portal fusectl hugetlbfs mqueue nfsd nsfs pipefs proc pstore resctrl rootfs rpc_pipefs securityfs"
    b" selinuxfs smackfs sockfs sysfs tracefs usbfs".split()
)
_AUTOMOUNTER = b"autofs"
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_NO_NUMBERS = (ABSENT,) * 7


class MountLine(NamedTuple):
    """One line of mountinfo. ``automounted``: an automounter lies on the way to it."""

    id: bytes
    parent: bytes
    point: bytes
    type: bytes
    device: bytes
    read_only: bool
    automounted: bool = False


def parse(content: bytes) -> list[MountLine]:
    """Choose the mounts worth asking: real, and reached by their path.

    :raises ValueError: where a line is not one of mountinfo.
    """
    mounts = {mount.id: mount for mount in map(_parse_line, content.splitlines())}
    covered: dict[bytes, set[bytes]] = {}
    for mount in mounts.values():
        covered.setdefault(mount.parent, set()).add(mount.point)
    chosen: dict[bytes, MountLine] = {}
    for mount in mounts.values():
        way = list(_way_up(mount, mounts))
        # A later mount upon this point, or upon a folder on the way to it, hides this one.
        hidden = mount.point in covered.get(mount.id, ()) or any(
            not covered[step.parent].isdisjoint(_folders_above(step.point)) for step in way
        )
        if mount.type not in _PSEUDO and mount.type != _AUTOMOUNTER and not hidden:
            # Propagation may mount twice at one point of the same parent; the later one is reached.
            chosen[mount.point] = mount._replace(automounted=any(step.type == _AUTOMOUNTER for step in way))
    return list(chosen.values())


def _parse_line(line: bytes) -> MountLine:
    before, separator, after = line.partition(b" - ")
    if not separator:
        raise ValueError(f"{PATH}: {line[:80]!r}; ' - ' is missing")
    number, parent, _, _, point, options, *_ = before.split(b" ")
    kind, device, superblock_options = after.split(b" ", 2)
    read_only = b"ro" in options.split(b",") or b"ro" in superblock_options.split(b",")
    return MountLine(number, parent, _plain(point), _plain(kind), _plain(device), read_only)


def _plain(field: bytes) -> bytes:
    """Undo the octal escapes of blanks, tabs, line ends and backslashes."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field) if b"\\" in field else field


def _way_up(mount: MountLine, mounts: Mapping[bytes, MountLine]) -> Iterator[MountLine]:
    """Yield a mount, the mount it lies on, and so on to the root, whose parent may be itself or unknown."""
    for _ in range(len(mounts)):
        yield mount
        if mount.parent == mount.id or mount.parent not in mounts:
            return
        mount = mounts[mount.parent]


def _folders_above(path: bytes) -> list[bytes]:
    names = path.rstrip(b"/").split(b"/")
    return [b"/".join(names[:depth]) or b"/" for depth in range(1, len(names))]


class Statvfs:
    """Asks many mounts at the same time, and waits for none of them longer than the deadline.

    A call that hangs costs its own thread, at most one for each mount, which is not asked again until it returns.
    """

    def __init__(self, ask: Callable[[bytes], os.statvfs_result] = os.statvfs, deadline_s: float = DEADLINE_S) -> None:
        """``ask``: statvfs(3), which may block for ever."""
        self._ask = ask
        self._deadline_s = deadline_s
        self._stuck: dict[tuple[bytes, bytes], Thread] = {}

    def answers(self, mounts: Collection[MountLine], root: bytes) -> dict[MountLine, os.statvfs_result | int]:
        """Give an answer or an errno for each mount; nothing for those that hang."""
        self._stuck = {key: thread for key, thread in self._stuck.items() if thread.is_alive()}
        answers: dict[MountLine, os.statvfs_result | int] = {}
        threads: dict[tuple[bytes, bytes], Thread] = {}
        for mount in mounts:
            # With its id: a later mount at the point of a stuck one is asked again.
            key = mount.id, mount.point
            if key not in self._stuck and len(self._stuck) + len(threads) < THREADS_MAX:
                threads[key] = Thread(target=self._answer, args=(answers, mount, root + mount.point), daemon=True)
                threads[key].start()
        end = monotonic() + self._deadline_s
        for thread in threads.values():
            thread.join(max(0.0, end - monotonic()))
        self._stuck |= {key: thread for key, thread in threads.items() if thread.is_alive()}
        # A copy: a late thread still writes into the first one.
        return answers.copy()

    def _answer(self, answers: dict[MountLine, os.statvfs_result | int], mount: MountLine, path: bytes) -> None:
        try:
            answers[mount] = self._ask(path)
        except OSError as error:
            # Only the number: a kept exception would keep this frame in a cycle that nothing collects.
            answers[mount] = error.errno or errno.EIO


class FileSystems:
    """Reads mountinfo, chooses the mounts anew where it changed, and asks them."""

    def __init__(self, statvfs: Statvfs | None = None) -> None:
        """``statvfs``: by default that of the kernel."""
        self._statvfs = statvfs or Statvfs()
        self._content = b""
        self._mounts: list[MountLine] = []

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for every real mount that still exists."""
        content = host.read(PATH)
        if content != self._content:
            self._mounts, self._content = parse(content)[:MOUNTS_MAX], content
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


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``filesystem`` and ``mounts``."""
    return [
        Probe(FILESYSTEM, FileSystems().read, INTERVAL_S, Lane.BACKGROUND),
        Probe(MOUNTS, count, INTERVAL_S, Lane.BACKGROUND, pure=True),
    ]
