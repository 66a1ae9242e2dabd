# SPDX-License-Identifier: Apache-2.0
"""The best way this machine has to go over all tasks: BPF where the loader pinned it, else /proc."""

import fcntl
import os
from contextlib import suppress

from sysmond.errors import Error, refusal
from sysmond.tasks.bpf.report import pins_of, refused
from sysmond.tasks.pass_result import PassResult, Tasks

BY_PROC = "by /proc"


def open_tasks(runtime_folder: str, root: str = "/") -> tuple[Tasks, str]:
    """Open the best way there is; say in one line which it is, and why no better one.

    ``runtime_folder``: where the loader of BPF programs left its report; ``root``: of the machine to look at.

    :raises OSError: where even /proc is missing.
    """
    try:
        tasks = open_walk(runtime_folder, root)
    except Error as why:
        from sysmond.tasks.proc.walk import Proc  # noqa: PLC0415  BPF does without

        return Proc(root), f"{BY_PROC}; not by BPF: {why}"
    better = refused(runtime_folder, "snapshot") if tasks.way != "snapshot" else ""
    return tasks, f"by BPF, {tasks.way}" + (f"; not by snapshot: {better}" if better else "")


class Owned:
    """The pass by BPF. It reports each change once, so it has one reader on a machine. ``way``: which program it is."""

    def __init__(self, folder: str) -> None:
        """Open what is pinned in a folder.

        :raises Error: where that fails, or another process reads it.
        """
        from sysmond.tasks.bpf.walk import Walk  # noqa: PLC0415  /proc does without, and without ctypes

        try:
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as failure:
            raise Error(refusal(failure)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._walk = Walk(folder)
        except OSError:
            os.close(self._lock)
            raise Error(f"{folder}: another part of sysmond reads it") from None
        except Error:
            os.close(self._lock)
            raise
        self.way = self._walk.way

    def take(self, *, full: bool, threads: bool) -> PassResult:
        """Pass over all tasks once."""
        return self._walk.take(full=full, threads=threads)

    def close(self) -> None:
        """Let another process read it."""
        os.close(self._lock)
        with suppress(BufferError):  # Rows are still in use: memory is given back when those go.
            self._walk.close()


def open_walk(runtime_folder: str, root: str = "/") -> Owned:
    """Open what the loader pinned.

    :raises Error: where that fails, with the reason.
    """
    folder = pins_of(runtime_folder, root)
    try:
        return Owned(folder)
    except Error as why:
        raise Error(refused(runtime_folder, "snapshot", "iterate") or str(why)) from None
