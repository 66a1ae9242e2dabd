# SPDX-License-Identifier: Apache-2.0
"""The plan of an earlier start, used again where all that it was made of is as it was: then no resolver runs.

Beside the copies, in a folder of root's, stand the files and folders that were read and what the kernel said of each
(inode, size, time of its last change, stat(2)), with the version of sysmond, of Python and of the kernel. Standard
library only.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sysmond import __version__
from sysmond.base.model import Sensitivity
from sysmond.errors import CorruptError, Error
from sysmond.machine import note
from sysmond.machine.folders import check_trusted
from sysmond.machine.lacking import LackingReport
from sysmond.plan import catalogue, plan

MADE_OF = "made-of.json"
PATHS_MAX = 10_000
# The kernel notes times of changes by a clock that goes on with each of its ticks only (CONFIG_HZ is 100 or more).
CLOCK_TICK_NS = 20_000_000
_PLAN = "plan.json"
# In this order: who reads the plan finds the others.
_BESIDE = (
    (catalogue.FILE, Sensitivity.RESTRICTED),
    (catalogue.ANSWERS_FILE, Sensitivity.PUBLIC),
    (os.path.basename(plan.options_file(_PLAN)), Sensitivity.RESTRICTED),
)

Stamp = list[int] | None
"""What the kernel says of a file or folder; None where there is none."""


def store(runtime: str, folder: str, paths: Iterable[str], began_ns: int) -> None:
    """Keep the plan of a runtime folder, made since ``began_ns`` (UTC) of what lies at these paths.

    What was changed since then was perhaps read as it was before: then nothing is kept.

    :raises OSError: where it cannot be written.
    :raises Error: where others could lead it elsewhere, or there is no plan.
    """
    check_trusted(folder)
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/{MADE_OF}")
    made_of = _made_of(paths)
    if any(stamp is not None and stamp[-1] >= began_ns - CLOCK_TICK_NS for stamp in made_of["paths"].values()):
        return
    _copy(runtime, folder)
    note.write(f"{folder}/{MADE_OF}", made_of, lasting=True)


def reuse(runtime: str, folder: str) -> bool:
    """Have the kept plan in a runtime folder where it would be made the same again; whether that is so."""
    try:
        check_trusted(folder)
        noted = note.read(f"{folder}/{MADE_OF}", _noted)
        if _made_of(noted["paths"]) != noted:
            return False
        _copy(folder, runtime)
        LackingReport(runtime)  # What this is the plan of lacked nothing.
    except (OSError, Error):
        return False
    return True


def _copy(source: str, target: str) -> None:
    plan.read(f"{source}/{_PLAN}")  # A damaged one is not handed on.
    for name, sensitivity in _BESIDE:
        try:
            content = note.read_bytes(f"{source}/{name}", catalogue.CATALOGUE_BYTES_MAX)
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                os.unlink(f"{target}/{name}")
            continue
        plan.put(content, f"{target}/{name}", sensitivity)
    plan.put(note.read_bytes(f"{source}/{_PLAN}", plan.PLAN_BYTES_MAX), f"{target}/{_PLAN}")


def _made_of(paths: Iterable[str]) -> dict[str, Any]:
    return {
        "sysmond": __version__,
        "python": sys.version,
        "kernel": os.uname().release,
        "paths": {path: _stamp(path) for path in sorted(paths)},
    }


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_ctime_ns]


def _noted(fields: dict[str, Any]) -> dict[str, Any]:
    paths = note.fields(fields["paths"])
    if len(paths) > PATHS_MAX:
        raise CorruptError(f"{MADE_OF}: {len(paths)} paths; expected at most {PATHS_MAX}")
    return note.fields(fields)
