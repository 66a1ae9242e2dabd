# SPDX-License-Identifier: Apache-2.0
"""Keeping: carries retention out. Before anything is written to a tier, its oldest files go until all fits.

A tier's budget counts both classes, and for rows the segments that wait in RAM, or room for them; rings have a bound
of their own, and a large one must not cost what is on disk. A segment of rows goes only when every tier has its
buckets, unless these cannot be made.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sysmond.archiver import sparse_retention_job
from sysmond.base import clock
from sysmond.base.model import FINEST_TIER, Sensitivity
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing, note
from sysmond.machine.folders import Folders
from sysmond.machine.listing import FileStatus
from sysmond.plan import plan as plans
from sysmond.plan import retention
from sysmond.plan.retention import Believed, Limit, PinnedSpan, StoredFile
from sysmond.store import archive, pins

# In the state folder, where an age is set: what time is believed to be.
BELIEVED_FILE = "clock.json"


class Shelf(NamedTuple):
    """The files that share budgets.

    ``paths``: those of a tier. ``stored``: the same, with when their rows are from. ``waiting``: those in RAM.
    """

    paths: Callable[[Folders, str], Iterator[str]]
    stored: Callable[[Folders, str], Iterator[StoredFile]]
    waiting: Callable[[Folders], Iterator[str]]


LONG = Shelf(sparse_retention_job.disk_paths, sparse_retention_job.stored, sparse_retention_job.ram_paths)


def long_keeper(folders: Folders) -> "Keeper":
    """What makes room in the tiers of the long tables by the plan's limits, and rolls rows up before they go."""
    plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
    limits, pins_bytes = retention.of_records(plan.archiver), plan.archiver.pins_bytes
    kept = Keeper(folders, limits, pins_bytes, lambda: _roll_up_long(folders, kept), shelf=LONG)
    return kept


def _roll_up_long(folders: Folders, kept: "Keeper") -> None:
    from sysmond.archiver import sparse_rollup_job  # noqa: PLC0415  numpy and h5py, which most flushes do without

    sparse_rollup_job.roll_up_tables(folders, kept.make_room, set())


def keeper(folders: Folders) -> "Keeper":
    """What makes room in the tiers by the plan's limits, and rolls rows up before they go."""

    def roll_up() -> None:
        from sysmond.archiver import rollup_job  # noqa: PLC0415  as below

        # What could not be rolled up is tried once more: its disk may have failed for a moment only.
        rollup_job.roll_up_rows(folders, kept.make_room, set())

    plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
    limits, pins_bytes = retention.of_settings(plan.archiver)
    kept = Keeper(folders, limits, pins_bytes, roll_up)
    return kept


def _nothing() -> None:
    """Roll nothing up."""


class Keeper:
    """Keeps the tiers of a pair of folders within their limits."""

    def __init__(
        self,
        folders: Folders,
        limits: Mapping[str, Limit],
        pins_bytes: int,
        roll_up: Callable[[], object] = _nothing,
        relation: Callable[[], clock.Relation] = clock.relation,
        shelf: Shelf | None = None,
    ) -> None:
        """Take the limits of each tier, the budget of the pins, and what makes buckets of rows that have none yet.

        ``shelf``: which files; those of wide tables where not told.
        """
        self._shelf = shelf or Shelf(_paths, _stored, _ram_paths)
        self._relation = relation
        self._folders = folders
        self._limits = limits
        self._pins_bytes = pins_bytes
        self._roll_up = roll_up

    def file_bytes_max(self, tier: str) -> int:
        """The largest file to write in a tier."""
        return retention.file_bytes_max(self._limits[tier])

    def make_room(self, tier: str, coming_bytes: int) -> list[str]:
        """Remove what must go before so many bytes are written; gives the paths of what went."""
        limit = self._limits[tier]
        waiting = self._shelf.waiting(self._folders) if tier == FINEST_TIER else ()
        elsewhere_bytes = sum(each.disk_bytes for each in _looked_at(waiting))
        there_bytes = sum(each.size_bytes for each in _looked_at(self._shelf.paths(self._folders, tier)))
        both_bytes = there_bytes + coming_bytes + max(elsewhere_bytes, limit.ram_bytes)
        if not limit.age_ns and both_bytes <= limit.budget_bytes:
            return []
        stored = list(self._shelf.stored(self._folders, tier))
        going = retention.expired(
            stored,
            limit,
            self._now_ns(stored) if limit.age_ns else 0,
            coming_bytes=coming_bytes,
            elsewhere_bytes=elsewhere_bytes,
            pins=_pinned(self._folders) if tier == FINEST_TIER else (),
            pins_budget_bytes=self._pins_bytes,
        )
        if going and tier == FINEST_TIER:
            self._roll_up()
        for file in going:
            with suppress(FileNotFoundError):
                os.unlink(file.path)
        for folder in sorted({os.path.dirname(file.path) for file in going}):
            note.sync_folder(folder)
        return [file.path for file in going]

    def _now_ns(self, stored: Sequence[StoredFile]) -> int:
        """The time by which files are old: no later than the wall clock has it, nor than is believed."""
        now, boot, path = self._relation(), clock.boot_id(), f"{self._folders.state}/{BELIEVED_FILE}"
        # Without a note, what was recorded last is what is known.
        newest_ns = max((file.last_ns for file in stored), default=now.realtime_ns)
        before = _believed(path) or Believed(newest_ns, boot, now.boottime_ns)
        after = retention.believe(before, boot, now.boottime_ns, now.realtime_ns)
        with suppress(OSError):
            note.write(path, after._asdict())
        return min(now.realtime_ns, after.utc_ns)


def _believed(path: str) -> Believed | None:
    """What the note says; None where there is none, or it is damaged."""
    try:
        return note.read(path, _as_noted)
    except (OSError, CorruptError):
        return None


def _as_noted(noted: dict[str, Any]) -> Believed:
    utc_ns, boottime_ns, away_ns, doubted_ns = (
        note.integer(noted[name]) for name in ("utc_ns", "boottime_ns", "away_ns", "doubted_ns")
    )
    return Believed(utc_ns, note.text(noted["boot"]), boottime_ns, away_ns, doubted_ns)


def _pinned(folders: Folders) -> list[PinnedSpan]:
    """What is pinned; where that cannot be read, everything, as far as the pins' own budget reaches."""
    try:
        return [PinnedSpan(pin.start_ns, pin.end_ns) for pin in pins.read(folders.state)]
    except Error:
        return [PinnedSpan(0, TIME_MAX_NS)]


def _paths(folders: Folders, tier: str) -> Iterator[str]:
    for sensitivity in Sensitivity:
        folder = archive.disk_folder(folders, sensitivity, tier)
        with suppress(CorruptError):  # A folder that cannot be read is said by whoever writes to it.
            yield from (f"{folder}/{file}" for file in archive.files(folder))


def _stored(folders: Folders, tier: str) -> Iterator[StoredFile]:
    from sysmond.store import tiers  # noqa: PLC0415  numpy and h5py, which most flushes do without

    for sensitivity in Sensitivity:
        folder = archive.disk_folder(folders, sensitivity, tier)
        files, unreadable = tiers.listing(folder)
        for each in files:
            for found in _looked_at([f"{folder}/{each.file}"]):
                yield StoredFile(
                    f"{folder}/{each.file}", each.size_bytes, each.first_ns, each.last_ns, found.written_ns
                )
        for file in unreadable:  # Its rows are of no use, its bytes count: it goes in its turn.
            for found in _looked_at([f"{folder}/{file}"]):
                yield StoredFile(f"{folder}/{file}", found.size_bytes, found.written_ns, found.written_ns)


def _ram_paths(folders: Folders) -> Iterator[str]:
    for sensitivity in Sensitivity:
        folder = archive.ram_folder(folders, sensitivity)
        with suppress(CorruptError):  # A folder that cannot be read is said by whoever writes to it.
            yield from (f"{folder}/{file}" for file in archive.files(folder))


def _looked_at(paths: Iterable[str]) -> Iterator[FileStatus]:
    """The files that are there; one that nobody can look at takes no room, and cannot be removed."""
    for path in paths:
        with suppress(FileNotFoundError, CorruptError):
            yield listing.look(path)
