# SPDX-License-Identifier: Apache-2.0
"""The ledger of flushes, and the events of the daemon: a small ring that the archiver writes itself.

It is read, sealed and merged like that of any sampler. Standard library only.
"""

import os
from contextlib import suppress

from sysmond import clock
from sysmond.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.flushing import Reason
from sysmond.folders import Folders
from sysmond.frame import RING_BYTES_MIN, SUFFIX, Identity, Layout
from sysmond.model import Metric, Semantics, Sensitivity, Table
from sysmond.progress import ARCHIVER
from sysmond.ring import RingWriter

INTERVAL_NS = 60 * SECOND_NS
MICROSECONDS = 1_000_000

FLUSH = Table(
    "flush",
    per="reason",
    doc="What went from RAM to disk since the archiver started, and why then.",
    metrics=(
        Metric("flushes", "1", Semantics.COUNTER, "How often the disk was written to.", 0, "archiver"),
        Metric("files", "1", Semantics.COUNTER, "Segments that were written.", 0, "archiver"),
        Metric("bytes", "B", Semantics.COUNTER, "Size of these segments.", 0, "archiver"),
        Metric("duration", "s", Semantics.COUNTER, "How long that took, fsync included.", 6, "CLOCK_MONOTONIC"),
    ),
)


class Ledger:
    """Counts flushes by reason, and writes a row of each once a minute; where there is no room, later."""

    def __init__(self, folders: Folders) -> None:
        """Open the ring."""
        self._folder = f"{folders.runtime}/{ARCHIVER}/{Sensitivity.PUBLIC}"
        self._started_ns = clock.boottime_ns()
        self._counts = {reason: [0] * len(FLUSH.metrics) for reason in Reason}
        self._next_ns = self._started_ns - self._started_ns % INTERVAL_NS + INTERVAL_NS
        self._ring: RingWriter | None = None
        self._open()

    def due_in_s(self) -> float:
        """How long until the next row."""
        return max(0.0, (self._next_ns - clock.boottime_ns()) / SECOND_NS)

    def tick(self) -> None:
        """Write the row that is due, if one is; those of a suspended machine are left out."""
        now_ns = clock.boottime_ns()
        if now_ns < self._next_ns:
            return
        tick_ns = now_ns - now_ns % INTERVAL_NS
        self._next_ns = tick_ns + INTERVAL_NS
        if (ring := self._open()) is not None:
            values = [value for counts in self._counts.values() for value in counts]
            ring.rows(0, tick_ns, tuple(self._counts), values)

    def flushed(self, reason: Reason, files: int, size_bytes: int, duration_s: float) -> None:
        """Account for a flush."""
        counts = self._counts[reason]
        for index, grown in enumerate((1, files, size_bytes, round(duration_s * MICROSECONDS))):
            counts[index] += grown
        self.event("flush", reason, f"{files} files, {size_bytes} bytes in {duration_s:.2f} s")

    def event(self, kind: str, subject: str, text: str) -> bool:
        """Write down that something happened now; whether there was room."""
        ring = self._open()
        if ring is None:
            return False
        ring.event(clock.boottime_ns(), kind, subject, text)
        return True

    def close(self) -> None:
        """Leave the ring in good order."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _open(self) -> RingWriter | None:
        """Give the ring, opened where it could not be before, with the clocks as they are."""
        if self._ring is None:
            identity = Identity(clock.boot_id(), ARCHIVER, Sensitivity.PUBLIC, os.getpid(), self._started_ns)
            path = f"{self._folder}/{self._started_ns}{SUFFIX}"
            with suppress(OSError, Error):
                self._ring = RingWriter(path, RING_BYTES_MIN, identity, [Layout(FLUSH, INTERVAL_NS)])
        if self._ring is not None:
            self._ring.clock(clock.relation())
        return self._ring
