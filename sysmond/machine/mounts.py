# SPDX-License-Identifier: Apache-2.0
"""Mounts and disks: where a folder lies, whether its file system is there, which disks a write to it would wake.

Sources: /proc/self/mountinfo (Documentation/filesystems/proc.rst), /etc/fstab, /sys/dev/block, /sys/fs/btrfs.
Nothing here touches the disk of the folder, but for ``place`` and ``capacity_bytes``,
which look at the folder itself.
"""

import os
import re
import stat
from typing import NamedTuple

MOUNTINFO = "/proc/self/mountinfo"
FSTAB = "/etc/fstab"

_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of the mount table."""

    point: str
    device: str
    kind: str
    source: str


class Location(NamedTuple):
    """Where a folder lies: on which mount point, on which disks. Without disks: on any of them."""

    point: str = "/"
    disks: tuple[str, ...] = ()


def mounts(path: str = MOUNTINFO) -> list[Mount]:
    """Read the mount table, in the order of mounting: a later one hides an earlier one."""
    lines = []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            fields, kind_and_source = left.split(), right.split()
            lines.append(Mount(_spelled(fields[4]), fields[2], kind_and_source[0], _spelled(kind_and_source[1])))
    return lines


def mount_of(folder: str, table: list[Mount]) -> Mount | None:
    """The mount that a folder lies on: the longest path, and of several on it the last."""
    above = [mount for mount in table if _contains(mount.point, folder)]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def awaited(folder: str, known_point: str = "", *, mountinfo: str = MOUNTINFO, fstab: str = "") -> str:
    """The mount point that must be mounted before ``folder`` is the right one; empty where nothing is missing.

    ``known_point``: where it lay before. /etc/fstab says so as well, in a boot that is just beginning. What is
    written below an empty mount point would be hidden later.
    """
    points = {mount.point for mount in mounts(mountinfo)}
    wanted = {known_point} if known_point else set()
    try:
        with open(fstab or FSTAB, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.split()
                if len(fields) > 3 and not line.startswith("#") and "noauto" not in fields[3].split(","):  # noqa: PLR2004
                    wanted.add(_spelled(fields[1]).rstrip("/") or "/")
    except OSError:
        pass  # A machine may do without.
    missing = [point for point in wanted - points if _contains(point, os.path.abspath(folder))]
    return min(missing, default="")


def place(folder: str, *, mountinfo: str = MOUNTINFO, sysfs: str = "/sys") -> Location:
    """Find mount point and disks of a folder.

    A file system without a block device of its own (overlay, zfs, tmpfs) has no disks that could be named.

    :raises OSError: where there is no such folder.
    """
    folder = os.path.realpath(folder, strict=True)
    mount = mount_of(folder, mounts(mountinfo))
    if mount is None:
        return Location()
    device = os.stat(folder).st_dev
    devices = {f"{os.major(device)}:{os.minor(device)}"}
    if os.major(device) == 0:
        devices = _btrfs_devices(mount.source, sysfs) if mount.kind == "btrfs" else set()
    disks = sorted({disk for number in devices for disk in _whole_disks(f"{sysfs}/dev/block/{number}")})
    return Location(mount.point, tuple(disks))


def _whole_disks(path: str) -> set[str]:
    """The disks below a block device: what maps it (LVM, RAID, encryption), and the whole of a partition."""
    folder = os.path.realpath(path)
    if os.path.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    try:
        below = os.listdir(f"{folder}/slaves")
    except OSError:
        below = []
    if below:
        return {disk for slave in below for disk in _whole_disks(f"{folder}/slaves/{slave}")}
    return {os.path.basename(folder).replace("!", "/")}


def _btrfs_devices(source: str, sysfs: str) -> set[str]:
    """All devices of the btrfs that one of them names."""
    try:
        status = os.stat(source)
    except OSError:
        return set()
    if not stat.S_ISBLK(status.st_mode):
        return set()
    mine = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    name = os.path.basename(os.path.realpath(f"{sysfs}/dev/block/{mine}"))
    for uuid in _names(f"{sysfs}/fs/btrfs"):
        folder = f"{sysfs}/fs/btrfs/{uuid}/devices"
        if name in _names(folder):
            return {_read(f"{folder}/{device}/dev") for device in _names(folder)}
    return {mine}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _contains(point: str, folder: str) -> bool:
    return point in {"/", folder} or folder.startswith(f"{point}/")


def _spelled(field: str) -> str:
    """Undo how spaces and the like are written in the two tables."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def capacity_bytes(folder: str) -> int:
    """How large the file system of a folder is; 0 where the folder is not there."""
    try:
        there = os.statvfs(folder)
    except OSError:
        return 0
    return there.f_blocks * there.f_frsize
