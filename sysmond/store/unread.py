# SPDX-License-Identifier: Apache-2.0
"""Rings that cannot be read at all: whatever their part recorded meanwhile is missing because of that."""

import os

from sysmond.base.clock import boot_id, boottime_ns
from sysmond.base.model import Cause
from sysmond.errors import Error
from sysmond.ring.frame import SUFFIX
from sysmond.ring.progress import Sealed, rings_in
from sysmond.ring.snapshot import identify
from sysmond.store.of_ring import ANY_TABLE, Hole


def hole(path: str, sealed: Sealed | None, why: str) -> Hole:
    """The time of which only this ring had the rows.

    It is from its beginning, which is its name, or since what is in files, until the next ring of its stream, or now.
    """
    started_ns = _started(path)
    later = [at_ns for other in rings_in(os.path.dirname(path)) if (at_ns := _started(other)) > started_ns]
    start_ns = max(started_ns, sealed.last_tick_ns if sealed else 0)
    end_ns = max(start_ns, min([boottime_ns(), *later]))
    return Hole(_boot(path), ANY_TABLE, start_ns, end_ns, Cause.DAMAGED_FILE, why)


def _started(path: str) -> int:
    digits = os.path.basename(path).removesuffix(SUFFIX)
    return int(digits) if digits.isdecimal() else 0


def _boot(path: str) -> str:
    """Of which boot a ring is; that of the machine now, where its header does not say: no ring outlives one."""
    try:
        return identify(path)[0].boot
    except (Error, OSError):
        return boot_id()
