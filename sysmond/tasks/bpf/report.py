# SPDX-License-Identifier: Apache-2.0
"""What the loader of BPF programs says of what it pinned, in ``bpf.json`` of the runtime folder."""

import os
from typing import Any

from sysmond.errors import CorruptError, Error, refusal
from sysmond.machine import note

REPORT = "bpf.json"


def pins_of(runtime_folder: str, root: str = "/") -> str:
    """Name the folder of what the loader pinned.

    :raises Error: where it pinned nothing, or it is of another machine than that below the root.
    """
    if root.rstrip("/"):
        raise Error(f"only the machine that runs is seen by it, not {root}")
    folder = _report(runtime_folder).get("folder")
    if not isinstance(folder, str):
        raise Error(f"{runtime_folder}/{REPORT}: names no folder; expected what the loader writes")
    return folder


def pins_with(program: str, runtime_folder: str) -> str:
    """Name the folder of what the loader pinned, a program among it.

    :raises Error: where it is not there, with the reason.
    """
    folder = pins_of(runtime_folder)
    why = refused(runtime_folder, program)
    if why:
        raise Error(why)
    return folder


def report_of(runtime_folder: str) -> tuple[int, int] | None:
    """What tells one report of the loader from the next: after another, pins may be others. None without one."""
    try:
        status = os.stat(f"{runtime_folder}/{REPORT}")
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _report(runtime_folder: str) -> dict[str, Any]:
    """Read what the loader says.

    :raises Error: where it says nothing that can be read.
    """
    path = f"{runtime_folder}/{REPORT}"
    try:
        return note.read(path, note.fields)
    except FileNotFoundError:
        raise Error("the loader of BPF programs has not run") from None
    except CorruptError as damage:
        raise Error(f"{damage}; expected what the loader writes") from None
    except OSError as failure:
        raise Error(refusal(failure)) from None


def refused(runtime_folder: str, *programs: str) -> str:
    """Why programs were not loaded, as the loader reports it; empty where it says nothing of them."""
    told = _report(runtime_folder).get("programs")
    reasons = []
    for name in programs:
        of_one = told.get(name) if isinstance(told, dict) else None
        if isinstance(of_one, dict) and (why := of_one.get("refused")):
            reasons.append(f"{name}: {' '.join(str(why).split())}")
    return "; ".join(reasons)
