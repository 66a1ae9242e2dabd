# SPDX-License-Identifier: Apache-2.0
"""What threads are at, at this moment, by /proc: the table ``thread_state`` where BPF is not to be had.

Only those are looked at whose process used a CPU since the reading before, or was at something then: a thread that
neither ran meanwhile nor waited uninterruptibly before does so now only if it has been woken and waits for a CPU.
Kernel stacks are not read: ``/proc/PID/task/TID/stack`` stops the thread to walk them.
"""

import os
from contextlib import suppress
from struct import Struct

from sysmond.model import ABSENT
from sysmond.tasks import proc_text
from sysmond.tasks.proc_files import STAT, SYSCALL, WCHAN, Files, Task
from sysmond.tasks.tables import THREAD_STATE

_RECORD = Struct(THREAD_STATE.packing.format if THREAD_STATE.packing else "")
# Running, or waiting uninterruptibly; the rest only where all are wanted.
AT_SOMETHING = frozenset((b"R", b"D"))


def thread_folders(files: Files, process: Task, *, several: bool) -> list[str]:
    """Name the folders of the threads of a process, below /proc.

    :raises OSError: where it is gone.
    """
    if not several:
        return [process.folder]
    folder = os.open(f"{process.folder}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=files.top)
    try:
        return [f"{process.folder}/task/{name}" for name in os.listdir(folder)]
    finally:
        os.close(folder)


def states(files: Files, process: Task, uid: int, cgroup: int, *, several: bool, every: bool) -> list[bytes]:
    """Give a record of each thread of a process that is at something, or of every one; none where it is gone."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for folder in thread_folders(files, process, several=several):
            with suppress(FileNotFoundError, ProcessLookupError):
                thread = Task(folder) if several else process
                told = proc_text.stat(files.read(thread, STAT))
                if every or told.state in AT_SOMETHING:
                    found.append(_record(files, thread, int(process.folder), told, uid, cgroup))
    return found


def _record(files: Files, thread: Task, pid: int, told: proc_text.Stat, uid: int, cgroup: int) -> bytes:
    syscall, wait = -1, b""
    if told.state != b"R":
        wait = proc_text.wait(files.read_if_allowed(thread, WCHAN))
        if told.virtual:
            syscall = proc_text.syscall(files.read_if_allowed(thread, SYSCALL))
    tid = int(thread.folder.rpartition("/")[2])
    return _RECORD.pack(told.start_ns, pid, tid, uid, syscall, cgroup, told.comm, told.state, wait, ABSENT)
