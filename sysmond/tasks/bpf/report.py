# SPDX-License-Identifier: Apache-2.0
"""The report of the loader of BPF programs: what it pinned, in ``bpf.json`` of the runtime folder."""

import os
from typing import Any

from sysmond.errors import CorruptError, Error, refusal
from sysmond.machine import note

REPORT = "bpf.json"


def pins_of(runtime_folder: str, root: str = "/") -> str:
    """Name the folder of the loader's pins.

    :raises Error: where it pinned nothing, or the root is not that of the running machine.
    """
    if root.rstrip("/"):
        raise Error(f"BPF sees only the running machine, not {root}")
    folder = _report(runtime_folder).get("folder")
    if not isinstance(folder, str):
        raise Error(f"{runtime_folder}/{REPORT}: names no folder; expected what the loader writes")
    return folder


def pins_with(program: str, runtime_folder: str) -> str:
    """Name the folder of the loader's pins, if this program is among them.

    :raises Error: where it is not, with the reason.
    """
    folder = pins_of(runtime_folder)
    why = refused(runtime_folder, program)
    if why:
        raise Error(why)
    return folder


def report_of(runtime_folder: str) -> tuple[int, int] | None:
    """Identify the loader's report: with another one, the pins may be others. None without a report."""
    try:
        status = os.stat(f"{runtime_folder}/{REPORT}")
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _report(runtime_folder: str) -> dict[str, Any]:
    """Read the report.

    :raises Error: where it is missing, or cannot be read.
    """
    path = f"{runtime_folder}/{REPORT}"
    try:
        return note.read(path, note.fields)
    except FileNotFoundError:
        raise Error("the BPF loader has not run") from None
    except CorruptError as damage:
        raise Error(f"{damage}; expected what the loader writes") from None
    except OSError as failure:
        raise Error(refusal(failure)) from None


def refused(runtime_folder: str, *programs: str) -> str:
    """Why programs were not loaded, as the loader reports it; empty where it reports nothing."""
    outcomes = _report(runtime_folder).get("programs")
    reasons = []
    for name in programs:
        outcome = outcomes.get(name) if isinstance(outcomes, dict) else None
        if isinstance(outcome, dict) and (why := outcome.get("refused")):
            reasons.append(f"{name}: {' '.join(str(why).split())}")
    return "; ".join(reasons)
