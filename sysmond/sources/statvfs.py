# SPDX-License-Identifier: Apache-2.0
"""Mounts worth asking how full they are, and their answers, of which none is waited for longer than a moment.

Source: the kernel's ``Documentation/filesystems/proc.rst`` (3.5) and statvfs(3). What lies behind a mount may hang for
ever in the kernel, so other threads ask, and what hangs keeps its own.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from threading import Thread, current_thread
from time import monotonic
from typing import NamedTuple

from sysmond.probe import Host

PATH = "/proc/self/mountinfo"
# Of the first process: a service manager may have made everything read-only for us, and for nobody else.
MACHINES_PATH = "/proc/1/mountinfo"
DEADLINE_S = 2.0
# Mounts are asked one after the other for so long; those that are left then do not wait for one another.
IN_TURN_S = 0.05
MOUNTS_MAX = 256
# At most so many threads, stuck ones included: a mount that comes and goes may leave a stuck one each time.
THREADS_MAX = 2 * MOUNTS_MAX

# File systems that the kernel makes up and nobody can fill; parse() recognizes automounters.
_PSEUDO = frozenset(
    b"bdev binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devpts efivarfs fuse.gvfsd-fuse fuse.lxcfs"
    b" fuse.portal fusectl hugetlbfs mqueue nfsd nsfs pipefs proc pstore resctrl rootfs rpc_pipefs securityfs"
    b" selinuxfs smackfs sockfs sysfs tracefs usbfs".split()
)
_AUTOMOUNTER = b"autofs"
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class MountLine(NamedTuple):
    """One line of mountinfo. ``number``: of the device. ``automounted``: an automounter lies on the way to it."""

    id: bytes
    parent: bytes
    number: bytes
    point: bytes
    type: bytes
    device: bytes
    read_only: bool
    automounted: bool = False


def mountinfo(host: Host) -> tuple[bytes, bytes]:
    """Our mounts and those of the machine, for ``parse``; of the latter nothing where their process is hidden.

    :raises OSError: where not even ours can be read.
    """
    ours = host.read(PATH)
    try:
        return ours, host.read(MACHINES_PATH)
    except OSError:
        return ours, b""


def parse(content: bytes, machines: bytes = b"") -> list[MountLine]:
    """Choose the mounts worth asking: real, and reached by their path.

    ``machines``: the mounts of the machine, where ours are in a namespace of their own: whether one is read-only, those
    say, at the point of ours or where that lies.

    :raises ValueError: where a line is not one of mountinfo.
    """
    mounts = {mount.id: mount for mount in map(_parse_line, content.splitlines())}
    covered: dict[bytes, set[bytes]] = {}
    for mount in mounts.values():
        covered.setdefault(mount.parent, set()).add(mount.point)
    read_only: dict[bytes, dict[bytes, bool]] = {}
    for mount in map(_parse_line, machines.splitlines()):
        read_only.setdefault(mount.point, {})[mount.number] = mount.read_only
    chosen: dict[bytes, MountLine] = {}
    for mount in mounts.values():
        way = list(_way_up(mount, mounts))
        # A later mount upon this point, or upon a folder on the way to it, hides this one.
        hidden = mount.point in covered.get(mount.id, ()) or any(
            not covered[step.parent].isdisjoint(_folders_above(step.point)) for step in way
        )
        if mount.type not in _PSEUDO and mount.type != _AUTOMOUNTER and not hidden:
            # Propagation may mount twice at one point of the same parent; the later one is reached.
            chosen[mount.point] = mount._replace(
                read_only=_is_read_only(mount, read_only), automounted=any(step.type == _AUTOMOUNTER for step in way)
            )
    return list(chosen.values())


def _parse_line(line: bytes) -> MountLine:
    before, separator, after = line.partition(b" - ")
    if not separator:
        raise ValueError(f"{PATH}: {line[:80]!r}; ' - ' is missing")
    mount_id, parent, number, _, point, options, *_ = before.split(b" ")
    kind, device, superblock_options = after.split(b" ", 2)
    read_only = b"ro" in options.split(b",") or b"ro" in superblock_options.split(b",")
    return MountLine(mount_id, parent, number, _plain(point), _plain(kind), _plain(device), read_only)


def _is_read_only(mount: MountLine, machines: Mapping[bytes, Mapping[bytes, bool]]) -> bool:
    """Whether a mount is read-only for the machine, by point and device; what only we have is as we see it."""
    for point in (mount.point, *reversed(_folders_above(mount.point))):
        if point in machines:
            return machines[point].get(mount.number, mount.read_only)
    return mount.read_only


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
    """Asks many mounts, one after the other in a thread; where one takes its time, each of the others in its own.

    None is waited for longer than the deadline, which is that of all. A call that hangs keeps its thread, at most one
    for each mount, which is not asked again until it returns.
    """

    def __init__(self, ask: Callable[[bytes], os.statvfs_result] = os.statvfs, deadline_s: float = DEADLINE_S) -> None:
        """``ask``: statvfs(3), which may block for ever."""
        self._ask = ask
        self._deadline_s = deadline_s
        self._stuck: dict[tuple[bytes, bytes], Thread] = {}

    def answers(self, mounts: Collection[MountLine], root: bytes) -> dict[MountLine, os.statvfs_result | int]:
        """Give an answer or an errno for each mount; nothing for those that hang."""
        self._stuck = {key: thread for key, thread in self._stuck.items() if thread.is_alive()}
        # With its id: a later mount at the point of a stuck one is asked again.
        waiting = deque(mount for mount in mounts if (mount.id, mount.point) not in self._stuck)
        answers: dict[MountLine, os.statvfs_result | int] = {}
        asking: dict[tuple[bytes, bytes], Thread] = {}

        def ask_in_turn() -> None:
            with suppress(IndexError):  # None is left.
                while True:
                    mount = waiting.popleft()
                    asking[mount.id, mount.point] = current_thread()
                    self._answer(answers, mount, root + mount.point)
                    del asking[mount.id, mount.point]

        end = monotonic() + self._deadline_s
        room = THREADS_MAX - len(self._stuck)
        threads = _started(ask_in_turn, min(room, 1 if waiting else 0))
        for thread in threads:
            thread.join(min(IN_TURN_S, self._deadline_s))
        threads += _started(ask_in_turn, min(room - len(threads), len(waiting)))
        for thread in threads:
            thread.join(max(0.0, end - monotonic()))
        waiting.clear()
        self._stuck |= asking.copy()
        # A copy: a late thread still writes into the first one.
        return answers.copy()

    def _answer(self, answers: dict[MountLine, os.statvfs_result | int], mount: MountLine, path: bytes) -> None:
        try:
            answers[mount] = self._ask(path)
        except OSError as error:
            # Only the number: a kept exception would keep this frame in a cycle that nothing collects.
            answers[mount] = error.errno or errno.EIO


def _started(work: Callable[[], None], count: int) -> list[Thread]:
    threads = [Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads
