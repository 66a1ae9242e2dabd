# SPDX-License-Identifier: Apache-2.0
"""Why one device of many gave no value, as a gap of its own; and names that devices give, made fit to be printed."""

import os
from errno import EBUSY, ENODATA, ENODEV, ENOENT, ENXIO, EOPNOTSUPP

from sysmond.probe import Absence, Cause

NAME_LENGTH_MAX = 64
# What a driver answers of a device that is gone, or has nothing to measure now: a Wi-Fi card that is switched off.
_NO_SOURCE = frozenset((ENOENT, ENODEV, ENXIO, EOPNOTSUPP, ENODATA))


def why(attribute: str, problem: OSError | ValueError | OverflowError) -> Absence:
    """What it means that an attribute could not be read, or is no number."""
    if not isinstance(problem, OSError):
        return Absence(Cause.PROBE_FAILED, f"{attribute} is no number")
    detail = f"{attribute}: {os.strerror(problem.errno or 0)}"
    if isinstance(problem, PermissionError):
        return Absence(Cause.NO_PERMISSION, detail)
    if problem.errno == EBUSY:
        return Absence(Cause.IN_USE, detail)
    return Absence(Cause.NO_SOURCE if problem.errno in _NO_SOURCE else Cause.PROBE_FAILED, detail)


def printable(name: bytes) -> str:
    """A name as a device gives it, in one line, without what is not printable, and not longer than is of use."""
    line = "".join(sign if sign.isprintable() else " " for sign in name.decode("utf-8", "replace"))
    return " ".join(line.split())[:NAME_LENGTH_MAX].rstrip()
