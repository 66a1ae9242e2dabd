# SPDX-License-Identifier: Apache-2.0
"""The folder where BPF programs and maps are pinned: a BPF file system of our own, below the runtime folder.

Nobody else may enter it, so every name in it is ours. Mounting takes CAP_SYS_ADMIN; without it, the folder is made in
the BPF file system of the machine. All operations use descriptors of folders, and follow no link.
Sources: mount(2), ``kernel/bpf/inode.c``. Standard library only.
"""

import ctypes
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from sysmond.errors import Error, NotPermittedError
from sysmond.machine.mounts import mounts
from sysmond.tasks.bpf.launch import PINS, REPORT
from sysmond.tasks.bpf.report import pins_of

MACHINE = "/sys/fs/bpf"
# In a folder in the machine's file system: a link to the runtime folder whose report names it.
_OWNER = "runtime"
_PREFIX = "sysmond-"
_OF_THE_KERNEL = ("maps.debug", "progs.debug")
_TRIES = 8

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_OTHERS_WRITE = 0o022

_libc = ctypes.CDLL(None, use_errno=True)


class Pins:
    """An open folder of pins.

    ``path``: how others open it; ``here``: how this process does, whatever happens to the names above it.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        """Take over a descriptor, which ``opened`` closes."""
        self.path = path
        self.here = f"/proc/self/fd/{descriptor}"
        self._descriptor = descriptor

    def names(self) -> set[str]:
        """The names in it, without our own link and without what the kernel puts there and nobody may remove."""
        return set(os.listdir(self._descriptor)) - {_OWNER, *_OF_THE_KERNEL}

    def clear(self, spared: Iterable[str] = ()) -> None:
        """Remove all pins but the spared ones: a program without another reference goes with its pin."""
        for name in self.names() - set(spared):
            _remove(name, self._descriptor)

    def give(self, gid: int) -> None:
        """Let a group enter and use what is pinned; -1: nobody else."""
        for name in self.names() if gid >= 0 else ():
            pin = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
            try:
                if not stat.S_ISDIR(os.fstat(pin).st_mode):
                    os.chown(f"/proc/self/fd/{pin}", -1, gid)
                    os.chmod(f"/proc/self/fd/{pin}", 0o660)
            finally:
                os.close(pin)
        os.fchown(self._descriptor, -1, gid)
        os.fchmod(self._descriptor, 0o750 if gid >= 0 else 0o700)


def own(runtime: str) -> str:
    """Name the mount point of our own below a runtime folder."""
    return f"{os.path.realpath(runtime)}/{PINS}"


@contextmanager
def opened(runtime: str, machine: str = MACHINE) -> Iterator[Pins]:
    """Open the folder of pins of a runtime folder; mount or make it where it is missing.

    :raises Error: where it cannot be made, or somebody else made it.
    :raises OSError: where it cannot be opened.
    """
    path = own(runtime)
    try:
        descriptor = _mounted(path)
    except PermissionError as refused:
        path, descriptor = _made(runtime, machine, f"at {path}: {refused.strerror}")
    try:
        yield Pins(path, descriptor)
    finally:
        os.close(descriptor)


def remove(runtime: str, machine: str = MACHINE) -> None:
    """Remove the pins of a runtime folder, their folder and the report that names it.

    :raises Error: where the folder is somebody else's.
    :raises OSError: where they cannot be removed.
    """
    reported = _reported_folder(runtime, machine)
    with suppress(FileNotFoundError):
        os.unlink(f"{runtime}/{REPORT}")
    path = own(runtime)
    with suppress(FileNotFoundError):
        while _is_bpf(descriptor := _folder(path)):
            try:
                Pins(path, descriptor).clear()  # Another mount namespace may have a copy of the mount.
            finally:
                os.close(descriptor)
            try:
                _call("umount2", os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW)
            except PermissionError:  # Whoever may mount has mounted it, and keeps it: nothing is in it any more.
                return
        os.close(descriptor)
        os.rmdir(path)
    if reported:
        parent = _machine(machine, "")
        try:
            _remove_folder(reported, parent)
        finally:
            os.close(parent)


def _mounted(path: str) -> int:
    """Open the root of the file system at a path; mount one where there is none."""
    with suppress(FileExistsError):
        os.mkdir(path, stat.S_IRWXU)
    descriptor = _folder(path)
    if _is_bpf(descriptor):
        return descriptor
    try:
        # On the folder that was opened: the name may mean another one by now.
        flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _call("mount", b"bpf", f"/proc/self/fd/{descriptor}".encode(), b"bpf", ctypes.c_ulong(flags), b"mode=0700")
    except OSError:
        with suppress(OSError):
            os.rmdir(path)
        raise
    finally:
        os.close(descriptor)
    return _folder(path)


def _made(runtime: str, machine: str, why: str) -> tuple[str, int]:
    """Open the folder in the machine's file system that the report names, or make one with a free name."""
    parent = _machine(machine, why)
    try:
        name = _reported_folder(runtime, machine)
        for other in os.listdir(parent):
            if other.startswith(_PREFIX) and other != name:
                _remove_orphan(other, parent, machine)
        for _ in range(_TRIES):
            if name and (descriptor := _locked(name, parent)) is not None:
                with suppress(FileExistsError):
                    os.symlink(os.path.realpath(runtime), _OWNER, dir_fd=descriptor)
                return f"{machine}/{name}", descriptor
            name = _PREFIX + secrets.token_hex(8)
            os.mkdir(name, stat.S_IRWXU, dir_fd=parent)
        raise Error(f"{machine}: folders of pins disappear; expected one that stays")
    finally:
        os.close(parent)


def _machine(machine: str, why: str) -> int:
    """Open the machine's file system.

    :raises Error: where there is none, or others may move our folders there.
    """
    instead = f"no BPF file system may be mounted {why}; "
    try:
        descriptor = os.open(machine, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Error(f"{instead}there is no {machine} either") from None
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if not _is_bpf(descriptor):
        problem = "no BPF file system is mounted there, expected one"
    elif mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        problem = f"mode {mode:04o}, expected 1777 or 0700"
    else:
        return descriptor
    os.close(descriptor)
    raise Error(f"{instead}{machine}: {problem}")


def _reported_folder(runtime: str, machine: str) -> str:
    """The folder in the machine's file system that the report of a runtime folder names; empty for none."""
    try:
        parent, _, name = pins_of(runtime).rpartition("/")
    except Error:
        return ""
    return name if parent == machine and name.startswith(_PREFIX) else ""


def _locked(name: str, parent: int) -> int | None:
    """Open and lock a folder of ours; None where another process works in it."""
    try:
        descriptor = _folder(name, parent)
    except (OSError, Error):
        return None
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:  # It was not removed meanwhile.
            return descriptor
    os.close(descriptor)
    return None


def _remove_orphan(name: str, parent: int, machine: str) -> None:
    """Remove a folder of ours that no report names: otherwise its programs would run for ever."""
    descriptor = _locked(name, parent)
    if descriptor is None:
        return
    try:
        with suppress(OSError):
            if _reported_folder(os.readlink(_OWNER, dir_fd=descriptor), machine) == name:
                return
        with suppress(OSError):
            _remove_folder(name, parent)
    finally:
        os.close(descriptor)


def _remove_folder(name: str, parent: int) -> None:
    """Remove a folder of ours with its pins.

    :raises OSError: where it cannot be removed.
    """
    try:
        descriptor = _folder(name, parent)
    except (FileNotFoundError, Error):
        return
    try:
        Pins(name, descriptor).clear()
        with suppress(FileNotFoundError):
            os.unlink(_OWNER, dir_fd=descriptor)
        os.rmdir(name, dir_fd=parent)
    finally:
        os.close(descriptor)


def _folder(path: str, parent: int | None = None) -> int:
    """Open a folder that is ours.

    :raises NotPermittedError: where it is somebody else's, or others may write to it.
    :raises OSError: where it is no folder, or cannot be opened.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=parent)
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE:
        return descriptor
    os.close(descriptor)
    actual = f"mode {stat.S_IMODE(status.st_mode):04o} of user {status.st_uid}"
    raise NotPermittedError(f"{path}: {actual}; expected mode 0700 of user {os.geteuid()}")


def _remove(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=parent)


def _is_bpf(descriptor: int) -> bool:
    """Whether a folder lies in a BPF file system, by its mount: Python's statvfs does not give the type."""
    device = os.fstat(descriptor).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.device == number and mount.kind == "bpf" for mount in mounts())


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
