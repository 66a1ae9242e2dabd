# SPDX-License-Identifier: Apache-2.0
"""Keeping: carries retention out. Before anything is written to a tier, its oldest files go until all fits.

Wide tables have a budget for each tier, long ones another. It counts both classes, all its tables, and for rows the
files that wait in RAM, or room for them; rings have a bound of their own, and a large one must not cost what is on
disk. A file of rows goes only when every tier has its buckets, unless these cannot be made. Files are listed without
opening one as long as all fits.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sysmond.base import clock
from sysmond.base.model import EVENTS, FINEST_TIER
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing, mounts, note
from sysmond.machine.folders import Folders
from sysmond.machine.listing import FileStatus
from sysmond.plan import plan as plans
from sysmond.plan import retention
from sysmond.plan.retention import Believed, Limit, PinnedSpan, StoredFile
from sysmond.store import archive, pins

# Of a tier of which nobody has said anything.
NO_LIMIT = Limit()
# In the state folder, where an age is set: what time is believed to be.
BELIEVED_FILE = "clock.json"


def keeper(folders: Folders, *, is_long: bool = False) -> "Keeper":
    """What makes room in the tiers by the plan's limits, and rolls rows up before they go."""

    def roll_up(going: Sequence[StoredFile]) -> None:
        from sysmond.archiver import coding, rollup_job  # noqa: PLC0415  numpy and h5py, which most flushes do without

        # What could not be rolled up is tried once more: its disk may have failed for a moment only.
        names = {archive.parse_name(os.path.basename(file.path)) for file in going}
        boots = {name.boot for name in names if name}
        rollup_job.roll_up(
            folders,
            coding.coding_of(is_long=is_long),
            budgets.make_room,
            set(),
            lambda _, run: run.names[0].boot in boots,
        )

    plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
    settings = retention.fitted(plan.archiver, mounts.capacity_bytes(folders.state))
    limits, pins_bytes = retention.of_settings(settings)
    chosen = retention.of_records(settings) if is_long else limits
    budgets = Keeper(folders, chosen, pins_bytes, roll_up, is_long=is_long, free_percent=settings.free_percent)
    return budgets


def _nothing(_going: Sequence[StoredFile]) -> None:
    """Roll nothing up."""


class Keeper:
    """Keeps the tiers of a pair of folders within their limits."""

    def __init__(
        self,
        folders: Folders,
        limits: Mapping[str, Limit],
        pins_bytes: int,
        roll_up: Callable[[Sequence[StoredFile]], object] = _nothing,
        relation: Callable[[], clock.Relation] = clock.relation,
        *,
        is_long: bool = False,
        free_percent: int = 0,
    ) -> None:
        """Take the limits of each tier, the budget of the pins, and what makes buckets of files of rows that go.

        ``is_long``: whether the files of long tables are kept, or those of wide ones. ``free_percent``: how much of the
        file system stays free.
        """
        self._is_long = is_long
        self._free_percent = free_percent
        self._relation = relation
        self._folders = folders
        self._limits = limits
        self._pins_bytes = pins_bytes
        self._roll_up = roll_up

    def file_bytes_max(self, tier: str) -> int:
        """The largest file to write in a tier."""
        return retention.file_bytes_max(self._limits.get(tier, NO_LIMIT))

    def make_room(self, tier: str, coming_bytes: int) -> list[str]:
        """Remove what must go before so many bytes are written; gives the paths of what went."""
        limit = self._limits.get(tier, NO_LIMIT)
        waiting = _waiting(self._folders, is_long=self._is_long) if tier == FINEST_TIER else ()
        elsewhere_bytes = sum(looked_at.disk_bytes for looked_at in _looked_at(waiting))
        there_bytes = sum(
            looked_at.size_bytes for looked_at in _looked_at(paths(self._folders, tier, is_long=self._is_long))
        )
        taken_bytes = there_bytes + max(elsewhere_bytes, limit.ram_bytes)
        limit = limit._replace(budget_bytes=min(limit.budget_bytes, taken_bytes + self._left_bytes()))
        both_bytes = taken_bytes + coming_bytes
        if both_bytes <= limit.budget_bytes and not self._has_old(tier, limit.age_ns):
            return []
        files = list(stored(self._folders, tier, is_long=self._is_long))
        going = retention.expired(
            files,
            limit,
            self._now_ns(files) if limit.age_ns else 0,
            coming_bytes=coming_bytes,
            elsewhere_bytes=elsewhere_bytes,
            pins=_pinned(self._folders) if tier in {FINEST_TIER, EVENTS} else (),
            pins_budget_bytes=self._pins_bytes,
        )
        if going and tier == FINEST_TIER:
            self._roll_up(going)
        for file in going:
            with suppress(FileNotFoundError):
                os.unlink(file.path)
        for folder in sorted({os.path.dirname(file.path) for file in going}):
            note.sync_folder(folder)
        return [file.path for file in going]

    def _has_old(self, tier: str, age_ns: int) -> bool:
        """Whether any file was written so long ago that it may be too old: what is in it is no younger."""
        written = (looked_at.written_ns for looked_at in _looked_at(paths(self._folders, tier, is_long=self._is_long)))
        return bool(age_ns) and (tier != EVENTS or any(at_ns < time.time_ns() - age_ns for at_ns in written))

    def _left_bytes(self) -> int:
        """How much may still be added to the file system, of which a part stays free."""
        there = os.statvfs(self._folders.state)
        kept_blocks = there.f_blocks * self._free_percent // retention.PERCENT
        return max(0, there.f_bavail - kept_blocks) * there.f_frsize

    def _now_ns(self, files: Sequence[StoredFile]) -> int:
        """The time by which files are old: no later than the wall clock has it, nor than is believed."""
        now, boot, path = self._relation(), clock.boot_id(), f"{self._folders.state}/{BELIEVED_FILE}"
        # Without a note, what was recorded last is what is known.
        newest_ns = max((file.last_ns for file in files), default=now.realtime_ns)
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
        return [PinnedSpan(pin.start_ns, pin.end_ns, pin.by != pins.BY_ITSELF) for pin in pins.read(folders.state)]
    except Error:
        return [PinnedSpan(0, TIME_MAX_NS)]


def paths(folders: Folders, tier: str, *, is_long: bool) -> Iterator[str]:
    """Every file of a tier, of all wide tables or of all long ones."""
    places = archive.disk_folders(folders, is_long=is_long)
    return _files(archive.disk_folder(folders, sensitivity, tier, table) for sensitivity, table in places)


def stored(folders: Folders, tier: str, *, is_long: bool) -> Iterator[StoredFile]:
    """The same, and when the rows of each file are from."""
    from sysmond.archiver.coding import coding_of  # noqa: PLC0415  as above

    span_ns = coding_of(is_long=is_long).span_ns
    for path in paths(folders, tier, is_long=is_long):
        for status in _looked_at([path]):
            # The rows of one that is damaged are of no use, its bytes count: it goes in its turn.
            first_ns = last_ns = status.written_ns
            with suppress(Error):
                first_ns, last_ns = span_ns(path)
            yield StoredFile(path, status.size_bytes, first_ns, last_ns, status.written_ns)


def _waiting(folders: Folders, *, is_long: bool) -> Iterator[str]:
    places = [folder for folder in archive.ram_folders(folders) if bool(folder[1]) == is_long]
    return _files(archive.ram_folder(folders, *place) for place in places)


def _files(places: Iterable[str]) -> Iterator[str]:
    for folder in places:
        with suppress(CorruptError):  # A folder that cannot be read is said by whoever writes to it.
            yield from (f"{folder}/{file}" for file in archive.files(folder))


def _looked_at(paths: Iterable[str]) -> Iterator[FileStatus]:
    """The files that are there; one that nobody can look at takes no room, and cannot be removed."""
    for path in paths:
        with suppress(FileNotFoundError, CorruptError):
            yield listing.look(path)
