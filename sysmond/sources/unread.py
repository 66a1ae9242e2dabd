# SPDX-License-Identifier: Apache-2.0
"""Why one device of many gave no value, as a gap of its own; and names that devices give, made fit to be printed."""

import os

from sysmond.probe import Absence, absence_of

NAME_LENGTH_MAX = 64


def why(attribute: str, problem: OSError | ValueError | OverflowError) -> Absence:
    """What it means that an attribute could not be read, or is no number."""
    says = f": {os.strerror(problem.errno or 0)}" if isinstance(problem, OSError) else " is not a number"
    return absence_of(problem)._replace(detail=f"{attribute}{says}")


def printable(name: bytes, length_max: int = NAME_LENGTH_MAX) -> str:
    """A name as a device gives it, in one line, without what is not printable, and not longer than is of use."""
    line = "".join(sign if sign.isprintable() else " " for sign in name.decode("utf-8", "replace"))
    return " ".join(line.split())[:length_max].rstrip()
