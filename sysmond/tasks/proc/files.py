# SPDX-License-Identifier: Apache-2.0
"""The files of tasks below one /proc: read by descriptors that are kept within a bound, else opened each time.

None of them waits for the lock of a process's memory, as cmdline, exe, maps and environ do. ``io``, ``syscall`` and
``stack`` wait while the process executes a program, which takes down its old memory: who reads them leaves them alone
just then.
"""

import os
from contextlib import suppress

from sysmond.machine.descriptors import allow_descriptors, moved_up

STAT, STATUS, SCHEDSTAT, IO, WCHAN, SYSCALL, CGROUP, STACK = range(8)
_NAMES = ("stat", "status", "schedstat", "io", "wchan", "syscall", "cgroup", "stack")
_READ_BYTES = 4096
_FILE_BYTES_MAX = 1024 * 1024


class Task:
    """A process or a thread. ``folder``: below /proc. The rest belongs to ``TaskFiles``.

    ``kept``: a descriptor a file, -1 for none; empty where none is kept. ``refused``: the files, a bit each, that may
    not be read or that this kernel has not.
    """

    __slots__ = ("folder", "kept", "refused")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.kept: list[int] = []
        self.refused = 0


class TaskFiles:
    """Reads the files of tasks. ``kept``: how many descriptors are kept at present, of at most ``kept_max``."""

    def __init__(self, proc: str, kept_max: int) -> None:
        """Look at the /proc at this path.

        :raises OSError: where there is none.
        """
        self.kept = 0
        self.kept_max = kept_max
        self.top = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        allow_descriptors()
        self._are_counted = False
        with suppress(OSError):  # Since Linux 6.2 the kernel tells how many descriptors there are.
            self._are_counted = os.stat("self/fd", dir_fd=self.top).st_size > 0

    def close(self) -> None:
        """Let go of /proc itself; the tasks are shut one by one."""
        os.close(self.top)

    def read(self, task: Task, which: int, *, keep: bool = False) -> bytes:
        """Read a file that every task has; ``keep`` its descriptor where there is room.

        :raises OSError: where the task is gone, or hidden.
        """
        if task.kept and (descriptor := task.kept[which]) >= 0:
            content = os.pread(descriptor, _READ_BYTES, 0)
            return content if len(content) < _READ_BYTES else _whole(descriptor)
        descriptor = os.open(f"{task.folder}/{_NAMES[which]}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.top)
        try:
            content = _whole(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if keep and self.kept < self.kept_max:
            self._keep(task, which, moved_up(descriptor))
        else:
            os.close(descriptor)
        return content

    def read_if_allowed(self, task: Task, which: int, *, keep: bool = False) -> bytes:
        """Read a file that a task may have; empty where it has none, or hides it.

        :raises OSError: where the task is gone.
        """
        if task.refused >> which & 1:
            return b""
        try:
            return self.read(task, which, keep=keep)
        except ProcessLookupError:
            raise
        except OSError:
            os.stat(task.folder, dir_fd=self.top)
            task.refused |= 1 << which
            return b""

    def count_descriptors(self, task: Task, listed_max: int) -> int:
        """Count what a task has open; -1 where it hides that, or where there are too many to be listed.

        :raises OSError: where the task is gone.
        """
        path = f"{task.folder}/fd"
        size = os.stat(path, dir_fd=self.top).st_size
        if self._are_counted:
            return size
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.top)
        except PermissionError:
            return -1
        try:
            with os.scandir(folder) as entries:
                count = sum(1 for _ in zip(range(listed_max + 1), entries, strict=False))
        finally:
            os.close(folder)
        return count if count <= listed_max else -1

    def pid_namespace(self, task: Task) -> int:
        """Give the number of its pid namespace; -1 where it hides that."""
        try:
            return os.stat(f"{task.folder}/ns/pid", dir_fd=self.top).st_ino
        except OSError:
            return -1

    def shut(self, task: Task) -> None:
        """Let go of a task's files, and ask again for those that were refused."""
        for descriptor in task.kept:
            if descriptor >= 0:
                os.close(descriptor)
                self.kept -= 1
        task.kept = []
        task.refused = 0

    def _keep(self, task: Task, which: int, descriptor: int) -> None:
        if descriptor >= 0:
            task.kept = task.kept or [-1] * len(_NAMES)
            task.kept[which] = descriptor
            self.kept += 1


def _whole(descriptor: int) -> bytes:
    """Read in one piece, however large: parts of these files would be of different moments."""
    size = _READ_BYTES
    while len(content := os.pread(descriptor, size, 0)) == size and size < _FILE_BYTES_MAX:
        size *= 4
    return content
