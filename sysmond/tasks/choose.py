# SPDX-License-Identifier: Apache-2.0
"""The best way to go over all tasks that this machine has: BPF where the loader pinned it, else /proc."""

import json
from typing import TYPE_CHECKING, Any

from sysmond.errors import Error, refusal
from sysmond.tasks.taken import Tasks

if TYPE_CHECKING:
    from sysmond.tasks.walk import Walk

REPORT = "bpf.json"
BY_PROC = "by /proc"


def open_tasks(runtime_folder: str, root: str = "/") -> tuple[Tasks, str]:
    """Open the best way there is, and say in one line which it is, and why none that is better.

    ``runtime_folder``: where the loader of BPF programs left its report; ``root``: of the machine to look at.

    :raises OSError: where there is not even /proc.
    """
    try:
        tasks = open_walk(runtime_folder, root)
    except Error as why:
        from sysmond.tasks.proc import Proc  # noqa: PLC0415  BPF does without

        return Proc(root), f"{BY_PROC}; not by BPF: {why}"
    better = _refused(runtime_folder, "snapshot") if tasks.way != "snapshot" else ""
    return tasks, f"by BPF, {tasks.way}" + (f"; not by snapshot: {better}" if better else "")


def open_walk(runtime_folder: str, root: str = "/") -> "Walk":
    """Open what the loader pinned.

    :raises Error: where that cannot be done, with the reason.
    """
    if root.rstrip("/"):
        raise Error(f"only the machine that runs is seen by it, not {root}")
    folder = _report(runtime_folder).get("folder")
    if not isinstance(folder, str):
        raise Error(f"{runtime_folder}/{REPORT}: names no folder; what the loader writes is right")
    try:
        from sysmond.tasks.walk import Walk  # noqa: PLC0415  /proc does without, and without ctypes
    except ImportError as missing:
        raise Error(str(missing)) from None
    try:
        return Walk(folder)
    except Error as why:
        raise Error(_refused(runtime_folder, "snapshot", "iterate") or str(why)) from None


def _report(runtime_folder: str) -> dict[str, Any]:
    """Read what the loader says.

    :raises Error: where it says nothing that can be read.
    """
    path = f"{runtime_folder}/{REPORT}"
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except FileNotFoundError:
        raise Error("the loader of BPF programs has not run") from None
    except OSError as failure:
        raise Error(refusal(failure)) from None
    except ValueError as wrong:
        raise Error(f"{path}: {wrong}; what the loader writes is right") from None
    if not isinstance(report, dict):
        raise Error(f"{path}: no JSON object; what the loader writes is right")
    return report


def _refused(runtime_folder: str, *programs: str) -> str:
    """Why programs were not loaded, as the loader reports it; empty where it says nothing of them."""
    told = _report(runtime_folder).get("programs")
    reasons = []
    for name in programs:
        of_one = told.get(name) if isinstance(told, dict) else None
        if isinstance(of_one, dict) and (why := of_one.get("refused")):
            reasons.append(f"{name}: {why}")
    return "; ".join(reasons)
