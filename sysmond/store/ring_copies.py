# SPDX-License-Identifier: Apache-2.0
"""Copies of rings that a program keeps which asks again and again: only what was written since is read.

A copy begins with all that a ring has, and goes on for as long as it is asked for. When it has grown, what is older
than anything that was asked for lately is let go of.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.ring.snapshot import Snapshot, fill, snapshot
from sysmond.store.of_ring import ExplainedRing, Recording, of_snapshot, sense_of

# Smaller copies stay as they are.
SMALL_BYTES = 256 * 1024


class _RingCopy(NamedTuple):
    """``since_ns``: from which moment (UTC) on it has all rows; ``asked_ns``: the earliest that was asked for lately.

    ``begun_bytes``: how large it was when it was made, or made smaller. ``recording``: what it means, once asked for.
    """

    copied: Snapshot
    since_ns: int
    asked_ns: int
    begun_bytes: int
    recording: Recording | None = None


class RingCopies:
    """The copies of this program, which ``stay`` within ``staying``."""

    stay: ClassVar[bool] = False
    _copies: ClassVar[dict[str, _RingCopy]] = {}

    @classmethod
    @contextmanager
    def staying(cls) -> Iterator[None]:
        """Keep copies from one question to the next."""
        cls.stay = True
        try:
            yield
        finally:
            cls.stay = False
            cls._copies.clear()

    @classmethod
    def copy(cls, path: str, since_ns: int) -> Snapshot:
        """Copy a ring with all its rows from a moment (UTC) on, and with whatever else it has.

        :raises FileNotFoundError: where it is gone. :raises Error, PermissionError: as ``snapshot``.
        """
        if not cls.stay:
            return snapshot(path)
        known = cls._copies.pop(path, None)
        if known is None or known.since_ns > since_ns:
            for gone in [other for other in cls._copies if not os.path.exists(other)]:
                del cls._copies[gone]
            known = _RingCopy(snapshot(path), -ALWAYS_NS, since_ns, 0)
        else:
            copied = snapshot(path, known=known.copied)
            recording = known.recording if copied is known.copied else None
            known = known._replace(copied=copied, asked_ns=min(known.asked_ns, since_ns), recording=recording)
        if not known.copied.damages:
            cls._copies[path] = _smaller(known) if len(known.copied.image) > 2 * known.begun_bytes else known
        return known.copied

    @classmethod
    def recording(cls, copied: Snapshot, since_ns: int) -> Recording:
        """What a copy of a ring of wide tables has from a moment (UTC) on, or since earlier.

        :raises CorruptError: as ``of_snapshot``.
        """
        known = cls._copies.get(copied.path)
        if known is None or known.copied is not copied:
            return of_snapshot(copied, since_ns)
        if known.recording is not None:
            return known.recording
        recording = of_snapshot(copied, known.since_ns)
        cls._copies[copied.path] = known._replace(recording=recording)
        return recording


def _smaller(known: _RingCopy) -> _RingCopy:
    """Let go of what was not asked for lately, and of what the ring has no more."""
    copied = known.copied
    if len(copied.image) <= SMALL_BYTES:
        return known
    written, capacity = fill(copied.path)
    tail = max(copied.lost, written - capacity)
    with sense_of(copied):
        wanted = ExplainedRing(copied._replace(lost=tail), known.asked_ns).wanted(tail)
    return _RingCopy(wanted, known.asked_ns, ALWAYS_NS, max(SMALL_BYTES, len(wanted.image)))
