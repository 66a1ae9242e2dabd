# SPDX-License-Identifier: Apache-2.0
"""Conduct: what a lane holds against its probes, and what follows from it.

The judgement is pure; ``Conduct`` keeps it by table, and in a small file for the lane's next incarnation and for
the other lane. ``docs/design/0003-control.md`` has the rules. Times are CLOCK_BOOTTIME nanoseconds.
Standard library only.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Absence, Cause
from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.plan.plan import PlannedProbe
from sysmond.sampler.source import Source

FILE = "conduct.json"

# Once may be chance; twice within this is not.
CHANCE_NS = 600 * SECOND_NS
QUARANTINE_FIRST_NS = 10 * SECOND_NS
LEVEL_MAX = 32  # Long after the quarantine has its longest.
QUARANTINE_GROWTH = 6
QUARANTINE_MAX_NS = 24 * 3600 * SECOND_NS
# So long a table is read in a process of its own; the machine may have been starved, and nothing be wrong with it.
APART_FIRST_NS = 3600 * SECOND_NS
# So long without offence after a quarantine, and what was is forgotten.
FORGET_NS = 3600 * SECOND_NS
# A reading of the real-time lane that is late so often in a row moves its table away.
OVERRUNS_MAX = 3

NEVER_NS = 2**63 - 1


class Judge(Protocol):
    """Who is told what became of a reading, and makes something of it: a lane."""

    def hangs(self, source: Source, reason: str) -> None:
        """A source does not answer, and is read in a process of its own for a while."""

    def offends(self, source: Source, reason: str) -> None:
        """A source killed or wedged its process; it may be barred now."""

    def fails_to_load(self, planned: PlannedProbe, reason: str) -> None:
        """A probe killed or wedged its process while it was loaded; it may be barred now."""


class Record(NamedTuple):
    """What is held against a table.

    ``last_ns``: its latest offence. ``level``: how often it was quarantined. ``until_ns``: end of the latest
    quarantine, 0 where there was none. ``moved``: to the background lane. ``apart_until_ns``: until then it is read in
    a process of its own; ``apart_level``: how often that began. ``reason``: of the latest of all.
    """

    last_ns: int = 0
    level: int = 0
    until_ns: int = 0
    moved: bool = False
    apart_until_ns: int = 0
    apart_level: int = 0
    reason: str = ""


def offended(record: Record, now_ns: int, reason: str, *, at_once: bool = False) -> Record:
    """Judge an offence: a reading that killed or wedged its process. ``at_once``: it was no chance."""
    record = aged(record, now_ns)
    if record.apart_until_ns > now_ns:  # It gets no better there.
        record = record._replace(apart_until_ns=max(record.apart_until_ns, now_ns + _apart_ns(record.apart_level)))
    is_again = record.last_ns > 0 and now_ns - record.last_ns < CHANCE_NS
    if not (at_once or is_again or record.level):
        return record._replace(last_ns=now_ns, reason=reason)
    length_ns = _grown(QUARANTINE_FIRST_NS, record.level)
    return record._replace(
        last_ns=now_ns, level=min(record.level + 1, LEVEL_MAX), until_ns=now_ns + length_ns, reason=reason
    )


def set_apart(record: Record, now_ns: int, reason: str) -> Record:
    """Judge a reading that did not come back: it is read in a process of its own for a while, each time longer."""
    level = min(record.apart_level + 1, LEVEL_MAX)
    return record._replace(apart_until_ns=now_ns + _apart_ns(level), apart_level=level, reason=reason)


def _apart_ns(level: int) -> int:
    return _grown(APART_FIRST_NS, level - 1)


def _grown(first_ns: int, times: int) -> int:
    longer_ns: int = first_ns * QUARANTINE_GROWTH**times
    return min(QUARANTINE_MAX_NS, longer_ns)


def aged(record: Record, now_ns: int) -> Record:
    """Forget the count where it is long ago."""
    if record.level and now_ns - max(record.until_ns, record.last_ns) > FORGET_NS:
        return record._replace(level=0, last_ns=0, until_ns=0)
    return record


def duration(length_ns: int) -> str:
    """Spell a length of time for people: ``10 s``, ``6 min``, ``1.0 h``."""
    seconds = length_ns / SECOND_NS
    if seconds < 120:  # noqa: PLR2004  two minutes
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004  two hours


class Conduct:
    """What is held against the tables of one lane, by table."""

    def __init__(self, folder: str, boot: str) -> None:
        """Begin with nothing; ``folder``: of the lane."""
        self._path = f"{folder}/{FILE}"
        self._boot = boot
        self.records: dict[str, Record] = {}
        self.judged_ns = 0

    def read(self) -> None:
        """Take over what an incarnation before left; nothing, where that is of another boot, or damaged."""
        with suppress(OSError, CorruptError):
            self.records, self.judged_ns = note.read(self._path, self._shape)

    def _shape(self, noted: dict[str, Any]) -> tuple[dict[str, Record], int]:
        if noted["boot"] != self._boot:
            return {}, 0
        records = {table: _record_of(fields) for table, fields in note.fields(noted["tables"]).items()}
        return records, note.integer(noted["judged_ns"])

    def write(self) -> None:
        """Leave it for whoever comes next; where there is no room, do without."""
        noted = {
            "boot": self._boot,
            "judged_ns": self.judged_ns,
            "tables": {table: record._asdict() for table, record in self.records.items()},
        }
        with suppress(OSError):
            note.write(self._path, noted)

    def offend(self, table: str, now_ns: int, reason: str, *, at_once: bool = False) -> bool:
        """Note an offence; whether the table is in quarantine now."""
        record = self.records[table] = offended(self.records.get(table, Record()), now_ns, reason, at_once=at_once)
        self.write()
        return record.until_ns > now_ns

    def move(self, table: str, reason: str) -> None:
        """Note that a table belongs to the background lane now."""
        self.records[table] = self.records.get(table, Record())._replace(moved=True, reason=reason)
        self.write()

    def set_apart(self, table: str, now_ns: int, reason: str) -> None:
        """Note that a table is to be read in a process of its own for a while."""
        self.records[table] = set_apart(self.records.get(table, Record()), now_ns, reason)
        self.write()

    def forgive(self, table: str) -> bool:
        """Hold nothing against a table any more; whether anything was."""
        had_any = self.records.pop(table, None) is not None
        if had_any:
            self.write()
        return had_any

    def moved(self) -> set[str]:
        """The tables that were moved to the background lane."""
        return {table for table, record in self.records.items() if record.moved}

    def is_moved(self, table: str) -> bool:
        """Whether a table belongs to the background lane now."""
        return table in self.records and self.records[table].moved

    def is_apart(self, table: str, now_ns: int) -> bool:
        """Whether a table is to be read in a process of its own now."""
        return table in self.records and now_ns < self.records[table].apart_until_ns

    def barred(self, table: str, now_ns: int) -> Absence | None:
        """Why a table is not to be read now, and for how long."""
        record = self.records.get(table)
        if record is None or now_ns >= record.until_ns:
            return None
        return Absence(Cause.QUARANTINED, f"{record.reason}; not read for {duration(record.until_ns - record.last_ns)}")

    def ends_ns(self, tables: Iterable[str], now_ns: int) -> int:
        """When the next of what is held against these tables ends by itself."""
        records = [self.records[table] for table in tables if table in self.records]
        ends = [end_ns for record in records for end_ns in (record.until_ns, record.apart_until_ns)]
        return min((end_ns for end_ns in ends if end_ns > now_ns), default=NEVER_NS)


def _record_of(fields: dict[str, Any]) -> Record:
    right = {name: type(default) for name, default in Record._field_defaults.items()}
    if fields.keys() != right.keys() or any(type(fields[name]) is not kind for name, kind in right.items()):
        raise ValueError(f"not what is held against a table: {fields!r}")
    if not (
        all(0 <= fields[name] <= LEVEL_MAX for name in ("level", "apart_level"))
        and all(note.integer(fields[name]) >= 0 for name in ("last_ns", "until_ns", "apart_until_ns"))
    ):
        raise ValueError(f"no level, or no time: {fields!r}")
    return Record(**fields)
