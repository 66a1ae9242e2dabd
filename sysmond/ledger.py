# SPDX-License-Identifier: Apache-2.0
"""The ledger of writes to the disk, and the events of the daemon: a small ring that the archiver writes itself.

It is read, sealed and merged like that of any sampler. Its counters go on over restarts within a boot. The last flush
cannot be in what it writes: it leaves a note on the disk, and the next archiver counts it in its own first rows.
Standard library only.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sysmond import clock, control
from sysmond.archive import sync_folder
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
# In the runtime folder: the counters as they stand. In the state folder: what no row has yet.
FILE = "ledger.json"

Counts = dict[str, list[int]]
"""By reason: a number for each metric of the table."""

FLUSH = Table(
    "flush",
    per="reason",
    doc="What was written to the disk in this boot, and at the end of the run before, and why.",
    metrics=(
        Metric("flushes", "1", Semantics.COUNTER, "How often the disk was written to.", 0, "archiver"),
        Metric("files", "1", Semantics.COUNTER, "Files of the archive that were written.", 0, "archiver"),
        Metric("bytes", "B", Semantics.COUNTER, "Size of these files.", 0, "archiver"),
        Metric("duration", "s", Semantics.COUNTER, "How long that took, fsync included.", 6, "CLOCK_MONOTONIC"),
    ),
)


class Ledger:
    """Counts flushes by reason, and writes a row of each once a minute; where there is no room, later."""

    def __init__(self, folders: Folders) -> None:
        """Open the ring, and go on where the last archiver of this boot stopped."""
        self._parent = f"{folders.runtime}/{ARCHIVER}"
        self._bus = f"{folders.runtime}/bus"
        self._folder = f"{self._parent}/{Sensitivity.PUBLIC}"
        self._started_ns = clock.boottime_ns()
        self._boot = clock.boot_id()
        self._counts = {str(reason): [0] * len(FLUSH.metrics) for reason in Reason}
        self._next_ns = self._started_ns - self._started_ns % INTERVAL_NS + INTERVAL_NS
        self._ring: RingWriter | None = None
        self._is_closed = False
        before = _read(self._parent, self._boot)
        if before is None:  # Nothing was written in this boot: a row that says so, for what comes to grow from.
            self._row(self._next_ns - INTERVAL_NS)
        _add(self._counts, before or {})
        self._in_rows = {reason: list(counts) for reason, counts in self._counts.items()}

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
        if self._row(tick_ns):
            self._in_rows = {reason: list(counts) for reason, counts in self._counts.items()}

    def flushed(self, reason: Reason, files: int, size_bytes: int, duration_s: float) -> None:
        """Account for a flush."""
        _add(self._counts, {reason: counted(files, size_bytes, duration_s)})
        self._note(self._counts)
        if reason is not Reason.MERGE:
            self.event("flush", reason, _spelled(files, size_bytes, duration_s))

    def carry(self, owed: object) -> None:
        """Account for what the run before left on the disk as being in no row of its own."""
        checked = _checked(owed)
        _add(self._counts, checked)
        self._note(self._counts)
        for reason, (_, files, size_bytes, duration) in checked.items():
            self.event("flush", reason, f"by the run before: {_spelled(files, size_bytes, duration / MICROSECONDS)}")

    def owed(self) -> Counts:
        """What no row has yet."""
        grown = {
            reason: [now - then for now, then in zip(counts, self._in_rows[reason], strict=True)]
            for reason, counts in self._counts.items()
        }
        return {reason: counts for reason, counts in grown.items() if any(counts)}

    def left(self) -> None:
        """What is owed is on the disk now: an archiver of this boot goes on from what the rows have."""
        self._note(self._in_rows)

    def event(self, kind: str, subject: str, text: str) -> bool:
        """Write down that something happened now, and tell who listens on the bus; whether there was room."""
        ring, now_ns = self._open(), clock.boottime_ns()
        if ring is not None:
            ring.event(now_ns, kind, subject, text)
        event: control.Order = {"do": "event", "boottime_ns": now_ns, "kind": kind, "subject": subject, "text": text}
        control.tell(self._bus, {**event, "sensitivity": Sensitivity.PUBLIC})
        return ring is not None

    def close(self) -> None:
        """Leave the ring in good order; what comes now is counted, and owed."""
        self._is_closed = True
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _row(self, tick_ns: int) -> bool:
        if (ring := self._open()) is None:
            return False
        ring.rows(0, tick_ns, tuple(self._counts), [value for counts in self._counts.values() for value in counts])
        self._note(self._counts)
        return True

    def _note(self, counts: Counts) -> None:
        with suppress(OSError):
            _write(self._parent, self._boot, counts)

    def _open(self) -> RingWriter | None:
        """Give the ring, opened where it could not be before, with the clocks as they are; None once it is closed."""
        if self._ring is None and not self._is_closed:
            identity = Identity(self._boot, ARCHIVER, Sensitivity.PUBLIC, os.getpid(), self._started_ns)
            path = f"{self._folder}/{self._started_ns}{SUFFIX}"
            with suppress(OSError, Error):
                self._ring = RingWriter(path, RING_BYTES_MIN, identity, [Layout(FLUSH, INTERVAL_NS)])
        if self._ring is not None:
            self._ring.clock(clock.relation())
        return self._ring


def counted(files: int, size_bytes: int, duration_s: float) -> list[int]:
    """One flush as the table has it."""
    return [1, files, size_bytes, round(duration_s * MICROSECONDS)]


def leave(state: str, *owed: Mapping[str, Sequence[int]]) -> None:
    """Note on the disk what no row has, all of it together. Synced.

    :raises OSError: where it cannot be written.
    """
    counts: Counts = {}
    for each in owed:
        _add(counts, each)
    _write(state, "", counts, is_lasting=True)


def take(state: str) -> Counts:
    """What a run before has left; nothing, where there is no such note or it is damaged."""
    return _read(state, "") or {}


def forget(state: str) -> None:
    """Remove the note: somebody counts it now."""
    with suppress(FileNotFoundError):
        os.unlink(f"{state}/{FILE}")


def _spelled(files: int, size_bytes: int, duration_s: float) -> str:
    return f"{files} files, {size_bytes} bytes in {duration_s:.2f} s"


def _add(counts: Counts, more: Mapping[str, Sequence[int]]) -> None:
    for reason, each in more.items():
        before = counts.get(reason, [0] * len(FLUSH.metrics))
        counts[reason] = [a + b for a, b in zip(before, each, strict=True)]


def _checked(counts: object) -> Counts:
    """Counts as they must be, by known reasons; what is not is left out."""
    found = counts.items() if isinstance(counts, dict) else ()
    return {
        reason: list(each)
        for reason, each in found
        if reason in set(Reason) and isinstance(each, list) and len(each) == len(FLUSH.metrics)
        if all(type(value) is int and value >= 0 for value in each)
    }


def _read(folder: str, boot: str) -> Counts | None:
    """The counts noted in a folder; None where there are none of this boot."""
    try:
        with open(f"{folder}/{FILE}", encoding="utf-8") as file:
            noted = json.load(file)
        return _checked(noted["counts"]) if noted["boot"] == boot else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(folder: str, boot: str, counts: Counts, *, is_lasting: bool = False) -> None:
    path = f"{folder}/{FILE}"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({"boot": boot, "counts": counts}, file)
        if is_lasting:
            file.flush()
            os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    if is_lasting:
        sync_folder(folder)
