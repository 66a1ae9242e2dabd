# SPDX-License-Identifier: Apache-2.0
"""The files of tasks below one /proc: read by descriptors that stay open within a bound, else opened each time.

None of them waits for the lock of a process's memory, as cmdline, exe, maps and environ do. ``io``, ``syscall`` and
``stack`` wait while the process executes a program, which takes down its old memory: readers leave them alone
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

    ``open_files``: a descriptor for each file, -1 for none; empty where none is open. ``refused``: a bit for each file
    that may not be read or that this kernel lacks.
    """

    __slots__ = ("folder", "open_files", "refused")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.open_files: list[int] = []
        self.refused = 0


class TaskFiles:
    """Reads the files of tasks. ``open_count``: how many descriptors are open now, of at most ``open_max``."""

    def __init__(self, proc: str, open_max: int) -> None:
        """Look at the /proc at this path.

        :raises OSError: where there is none.
        """
        self.open_count = 0
        self.open_max = open_max
        self.top = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        allow_descriptors()
        self._are_counted = False
        with suppress(OSError):  # Since Linux 6.2 the size of the folder is the number of descriptors.
            self._are_counted = os.stat("self/fd", dir_fd=self.top).st_size > 0

    def close(self) -> None:
        """Close /proc itself; the tasks are closed one by one."""
        os.close(self.top)

    def read(self, task: Task, which: int, *, keep: bool = False) -> bytes:
        """Read a file that every task has; ``keep``: leave it open where there is room.

        :raises OSError: where the task is gone, or hidden.
        """
        if task.open_files and (descriptor := task.open_files[which]) >= 0:
            content = os.pread(descriptor, _READ_BYTES, 0)
            return content if len(content) < _READ_BYTES else _whole(descriptor)
        descriptor = os.open(f"{task.folder}/{_NAMES[which]}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.top)
        try:
            content = _whole(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if keep and self.open_count < self.open_max:
            self._keep(task, which, moved_up(descriptor))
        else:
            os.close(descriptor)
        return content

    def read_if_allowed(self, task: Task, which: int, *, keep: bool = False) -> bytes:
        """Read a file that a task may have; empty where it is missing or hidden.

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
        """Count the descriptors of a task; -1 where they are hidden, or too many to list.

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

    def threads_of(self, task: Task) -> list[str]:
        """List the numbers of the threads of a process; empty where it is gone."""
        try:
            folder = os.open(f"{task.folder}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.top)
        except (FileNotFoundError, ProcessLookupError):
            return []
        try:
            return os.listdir(folder)
        except (FileNotFoundError, ProcessLookupError):
            return []
        finally:
            os.close(folder)

    def pid_namespace(self, task: Task) -> int:
        """Give the number of its pid namespace; -1 where that is hidden."""
        try:
            return os.stat(f"{task.folder}/ns/pid", dir_fd=self.top).st_ino
        except OSError:
            return -1

    def shut(self, task: Task) -> None:
        """Close a task's files, and try those again that were refused."""
        for descriptor in task.open_files:
            if descriptor >= 0:
                os.close(descriptor)
                self.open_count -= 1
        task.open_files = []
        task.refused = 0

    def _keep(self, task: Task, which: int, descriptor: int) -> None:
        if descriptor >= 0:
            task.open_files = task.open_files or [-1] * len(_NAMES)
            task.open_files[which] = descriptor
            self.open_count += 1


def _whole(descriptor: int) -> bytes:
    """Read a file in one piece, however large: parts would be of different moments."""
    size = _READ_BYTES
    while len(content := os.pread(descriptor, size, 0)) == size and size < _FILE_BYTES_MAX:
        size *= 4
    return content
