# SPDX-License-Identifier: Apache-2.0
"""The ledger of writes to the disk, and the events of the daemon: a small ring that the archiver writes itself.

It is read, sealed and merged like that of any sampler. Nothing in it is overtaken before it is sealed. What would be
is refused where somebody waits for an answer, put off where it is a row, whose counters lose nothing by that, or lost,
but counted, told as an event, and a gap. Its counters go on over restarts within a boot. The last flush
cannot be in what it writes: it leaves a note on the disk, and the next archiver counts it in its own first rows.
Standard library only.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sysmond.archiver.flushing import Reason
from sysmond.base import clock, event_kinds
from sysmond.base.allowance import Allowance
from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import MARK
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.errors import CorruptError, Error, TooMuchError
from sysmond.machine import control, note
from sysmond.machine.folders import Folders
from sysmond.ring.frame import RING_BYTES_MIN, SUFFIX, Identity, Layout
from sysmond.ring.progress import ARCHIVER, Sealed
from sysmond.ring.writer import RingWriter

INTERVAL_NS = 60 * SECOND_NS
MICROSECONDS = 1_000_000
# In the runtime folder: the counters as they stand. In the state folder: what no row has yet.
FILE = "ledger.json"

DROPPED = "dropped"
# Of the ring so much may wait to be sealed before that is done at once, before strangers are refused, and before we
# are: what is left holds the longest event and all that explains the ring.
SOON_PART = 1 / 4
STRANGERS_PART = 1 / 2
OWN_PART = 7 / 8

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

    def __init__(self, folders: Folders, say: Callable[[str], None]) -> None:
        """Open the ring, and go on where the last archiver of this boot stopped. ``say``: speak for the archiver."""
        self._say = say
        self._parent = f"{folders.runtime}/{ARCHIVER}"
        self._bus = f"{folders.runtime}/bus"
        self._folder = f"{self._parent}/{Sensitivity.PUBLIC}"
        self._started_ns = clock.boottime_ns()
        self._boot = clock.boot_id()
        self._counts = {str(reason): [0] * len(FLUSH.metrics) for reason in Reason}
        self._next_ns = self._started_ns - self._started_ns % INTERVAL_NS + INTERVAL_NS
        self._ring: RingWriter | None = None
        self._is_closed = False
        self._sealed_to = 0
        self._allowance = Allowance()
        self._lost = 0
        before = _read(self._parent, self._boot)
        if before is None:  # Nothing was written in this boot: a row that says so, for what comes to grow from.
            self._row(self._started_ns - self._started_ns % SECOND_NS)
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
        if self._lost:
            self._tell_lost(tick_ns)
        elif self._row(tick_ns):
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

    @property
    def is_filling(self) -> bool:
        """Whether it is to be sealed now."""
        return self._ring is not None and self._is_beyond(SOON_PART)

    def sealed(self, progress: Mapping[str, Sealed]) -> None:
        """Go on with the room that was made."""
        there = None if self._ring is None else progress.get(self._ring.path)
        self._sealed_to = 0 if there is None else there.offset

    def mark(self, kind: str, subject: str, text: str, uid: int) -> bool:
        """Write down a mark, or an incident, on behalf of a user; whether there is a ring to write it into.

        :raises TooMuchError: where he makes too many, or what is there has to be sealed first.
        """
        self._allowance.take(MARK, uid, clock.boottime_ns() / SECOND_NS)
        return self._write_event(kind, subject, text, STRANGERS_PART if uid else OWN_PART)

    def event(self, kind: str, subject: str, text: str, *, by: str = event_kinds.ARCHIVER) -> bool:
        """Write down that something happened now, and tell who listens on the bus; whether there was room.

        What finds none is counted.

        :raises UsageError: where that is not for this part to say.
        """
        event_kinds.check(kind, by)
        is_written = False
        with suppress(TooMuchError):
            self._allowance.take(kind, 0, clock.boottime_ns() / SECOND_NS)
            is_written = self._write_event(kind, subject, text, OWN_PART)
        self._lost += not is_written
        return is_written

    def _write_event(self, kind: str, subject: str, text: str, part: float) -> bool:
        ring, now_ns = self._open(), clock.boottime_ns()
        if ring is not None:
            if self._is_beyond(part):
                raise TooMuchError(f"{kind}: earlier records are being sealed; try again later")
            ring.event(now_ns, kind, subject, text)
        event: control.Order = {"do": "event", "boottime_ns": now_ns, "kind": kind, "subject": subject, "text": text}
        control.tell(self._bus, {**event, "sensitivity": Sensitivity.PUBLIC})
        return ring is not None

    def _is_beyond(self, part: float) -> bool:
        """Whether more than this part of the ring waits to be sealed."""
        return self._ring is not None and self._ring.room(self._sealed_to) < (1 - part) * self._ring.capacity

    def _tell_lost(self, tick_ns: int = 0) -> None:
        """Write down how many events were lost, where there is room for that now.

        ``tick_ns``: of the row that a gap replaces; its counters lose nothing by that.
        """
        said = f"{self._lost} events found no room"
        with suppress(TooMuchError):
            if self._write_event(DROPPED, "", said, OWN_PART) and self._ring is not None:
                self._ring.drop(self._lost)
                self._lost = 0
                if tick_ns:
                    self._ring.absence(0, tick_ns, Cause.DROPPED, said)

    def is_gone(self) -> bool:
        """Whether its ring was removed, or the folder for it."""
        return not os.path.isdir(self._folder) if self._ring is None else self._ring.is_gone()

    def close(self, *, is_over: bool = True) -> None:
        """Leave the ring, where it ``is_over`` in good order; what comes now is counted, and owed."""
        if self._lost:
            self._tell_lost()
        self._is_closed = True
        if self._ring is not None:
            self._ring.keep(self._parent, Sensitivity.PUBLIC, self._say)
            self._ring.close(is_over=is_over)
            self._ring = None

    def _row(self, tick_ns: int) -> bool:
        if (ring := self._open()) is None or self._is_beyond(OWN_PART):
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
    for counts_of_run in owed:
        _add(counts, counts_of_run)
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
    for reason, grown in more.items():
        before = counts.get(reason, [0] * len(FLUSH.metrics))
        counts[reason] = [a + b for a, b in zip(before, grown, strict=True)]


def _checked(counts: object) -> Counts:
    """Counts as they must be, by known reasons; what is not is left out."""
    items = counts.items() if isinstance(counts, dict) else ()
    return {
        reason: list(numbers)
        for reason, numbers in items
        if reason in set(Reason) and isinstance(numbers, list) and len(numbers) == len(FLUSH.metrics)
        if all(type(value) is int and value >= 0 for value in numbers)
    }


def _read(folder: str, boot: str) -> Counts | None:
    """The counts noted in a folder; None where there are none of this boot."""
    try:
        noted_boot, counts = note.read(f"{folder}/{FILE}", lambda noted: (noted["boot"], _checked(noted["counts"])))
    except (OSError, CorruptError):
        return None
    return counts if noted_boot == boot else None


def _write(folder: str, boot: str, counts: Counts, *, is_lasting: bool = False) -> None:
    note.write(f"{folder}/{FILE}", {"boot": boot, "counts": counts}, lasting=is_lasting)
