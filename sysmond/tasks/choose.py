# SPDX-License-Identifier: Apache-2.0
"""The best way this machine has to go over all tasks: BPF where the loader pinned it, else /proc."""

from typing import TYPE_CHECKING

from sysmond.errors import Error
from sysmond.tasks.bpf.report import pins_of, refused

if TYPE_CHECKING:
    from sysmond.tasks.bpf.walk import OwnedWalk
    from sysmond.tasks.pass_result import Tasks

BY_PROC = "by /proc"


def open_tasks(runtime_folder: str, root: str = "/") -> "tuple[Tasks, str]":
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


def open_walk(runtime_folder: str, root: str = "/") -> "OwnedWalk":
    """Open what the loader pinned.

    :raises Error: where that fails, with the reason.
    """
    folder = pins_of(runtime_folder, root)
    from sysmond.tasks.bpf.walk import OwnedWalk  # noqa: PLC0415  /proc does without, and without ctypes

    try:
        return OwnedWalk(folder)
    except Error as why:
        raise Error(refused(runtime_folder, "snapshot", "iterate") or str(why)) from None
