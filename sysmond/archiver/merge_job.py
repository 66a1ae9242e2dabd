# SPDX-License-Identifier: Apache-2.0
"""The job that merges: small files of every tier become larger ones, after what no tier has yet was rolled up.

It runs in a child of the archiver that lives for one job. What cannot be merged is left alone until the next boot.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from sysmond.archiver import pin_share
from sysmond.archiver.coding import DENSE, SPARSE, Coding
from sysmond.archiver.retention_job import Keeper, keeper
from sysmond.archiver.rollup_job import is_ripe, roll_up
from sysmond.archiver.weights import Weights
from sysmond.base.clock import boot_id
from sysmond.base.model import FINEST_TIER
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing, note
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.machine.memory import BoundError, working_on
from sysmond.plan import plan as plans
from sysmond.store import archive, pins, tiers
from sysmond.store.archive import Candidate, Name
from sysmond.store.pins import Pin

Pinned = Callable[[int, int], None]
"""Hears how many of the pins that waited are on the disk now, and how many their share did not reach for."""

# Which files could not be merged; not tried again before the next boot.
LEFT_ALONE_FILE = "left_alone.json"


def merge(folders: Folders, pinned: Pinned = lambda _, __: None) -> None:
    """Roll up what no tier has yet, merge small files of every tier, and remove what a merged one contains.

    Where that is wanted rows of a merged file have fewer digits: but only what every tier has, and nothing pinned. What
    is rolled up is what is worth it: see ``rollup_job.is_ripe``.
    """
    left_alone = _left_alone(folders)
    try:
        _merge_all(folders, left_alone, pinned)
    except BoundError as limit:
        left_alone.update(limit.paths)
        raise
    finally:
        _leave_alone(folders, left_alone)


def _merge_all(folders: Folders, left_alone: set[str], pinned: Pinned) -> None:
    with suppress(OSError, Error):  # What cannot be pinned now waits.
        pinned(*pin_share.collect(folders))
    boot, weights = boot_id(), Weights(folders)
    for coding in (DENSE, SPARSE):
        keep = keeper(folders, is_long=coding.is_long)
        roll_up(folders, coding, keep.make_room, left_alone, partial(is_ripe, coding, boot))
        job = MergeJob(folders, coding, keep, left_alone, boot, weights)
        job.merge_rows()
        job.merge_tiers()
        for tier in (FINEST_TIER, *coding.tiers):
            keep.make_room(tier, 0)
    weights.write()


class MergeJob:
    """Merges the files of one coding.

    ``left_alone``: paths that are not tried, to which it adds what is damaged. ``boot``: the current one. ``weights``:
    what merges before this one know of files.
    """

    def __init__(
        self,
        folders: Folders,
        coding: Coding,
        keep: Keeper,
        left_alone: set[str],
        boot: str,
        weights: Weights | None = None,
    ) -> None:
        self._folders = folders
        self._coding = coding
        self._keep = keep
        self._left_alone = left_alone
        self._boot = boot
        self._weights = weights or Weights(folders)

    def merge_rows(self) -> None:
        """Merge files of rows that have become ripe, and remove what an interrupted merge left."""
        for sensitivity, table in archive.disk_folders(self._folders, is_long=self._coding.is_long):
            folder = archive.disk_folder(self._folders, sensitivity, FINEST_TIER, table)
            archive.remove_superseded(folder, self._is_whole)
            places = [archive.disk_folder(self._folders, sensitivity, tier, table) for tier in self._coding.tiers]
            unrolled = {name for place in places for name in tiers.lacking(place, archive.names(folder))}
            rolled = (each._replace(is_rolled_up=each.name not in unrolled) for each in self.candidates(folder))
            candidates = [*rolled, *archive.parting(self._folders, table)]
            largest_bytes = self._keep.file_bytes_max(FINEST_TIER)
            # Of wide tables two files stay: from what they differ in is foretold how long a budget lasts.
            keeps_newest = not self._coding.is_long
            for names in archive.plan_merges(candidates, self._boot, largest_bytes, keeps_newest=keeps_newest):
                paths = [f"{folder}/{name.file}" for name in names]
                if not self._has_room(FINEST_TIER, paths):
                    continue
                bits, pinned = (0, []) if unrolled.intersection(names) else _shortening(self._folders)
                with self._leaving_alone(paths):
                    merge_files(self._coding, folder, names, FILE_MODES[sensitivity], bits, pinned)

    def merge_tiers(self) -> None:
        """Merge files of tiers until the plan has nothing more to do; before, remove what an interrupted merge left."""
        for sensitivity, table in archive.disk_folders(self._folders, is_long=self._coding.is_long):
            rows = archive.names(archive.disk_folder(self._folders, sensitivity, FINEST_TIER, table))
            for tier in self._coding.tiers:
                folder = archive.disk_folder(self._folders, sensitivity, tier, table)
                tiers.remove_superseded(folder, self._is_whole)
                self._merge_tier(folder, tier, FILE_MODES[sensitivity], tiers.lacking(folder, rows))

    def candidates(self, folder: str) -> Iterator[Candidate]:
        """The files of rows in a folder as the plan sees them."""
        for name in archive.names(folder):
            path = f"{folder}/{name.file}"
            candidate = Candidate(name, 0, None, {})
            with suppress(FileNotFoundError):
                with suppress(Error):
                    status = listing.look(path)
                    candidate = candidate._replace(size_bytes=status.size_bytes)
                    if path not in self._left_alone and archive.is_fresh(status.written_ns):
                        candidate = self._weights.weighed(path, status, candidate, self._coding.weighed)
                yield candidate

    def _merge_tier(self, folder: str, tier: str, mode: int, unrolled: Sequence[Name]) -> None:
        largest_bytes = self._keep.file_bytes_max(tier)
        while groups := self._coding.plan_tier(folder, self._boot, largest_bytes, unrolled, self._left_alone):
            for group in groups:
                paths = [f"{folder}/{tier_file.file}" for tier_file in group]
                if not self._has_room(tier, paths):
                    return
                with self._leaving_alone(paths):
                    image = self._coding.merged_tier(paths)
                    merged = tiers.file_name(tiers.joined(name for tier_file in group for name in tier_file.covers))
                    archive.replace(folder, [tier_file.file for tier_file in group], merged, image, mode)

    def _has_room(self, tier: str, sources: Sequence[str]) -> bool:
        """Make room for what files become beside them; False where one of themselves had to go for it."""
        with suppress(FileNotFoundError, CorruptError):
            self._keep.make_room(tier, sum(listing.look(path).size_bytes for path in sources))
        return all(map(os.path.exists, sources))

    @contextmanager
    def _leaving_alone(self, paths: Sequence[str]) -> Iterator[None]:
        """Leave them as they are where they cannot be merged, and alone from now on; readers name what is damaged."""
        try:
            with working_on(*paths):
                yield
        except Error:
            self._left_alone.update([path for path in paths if not self._is_whole(path)] or paths[-1:])

    def _is_whole(self, path: str) -> bool:
        try:
            self._coding.check(path)
        except (Error, OSError):
            return False
        return True


def merge_files(
    coding: Coding,
    folder: str,
    names: Sequence[Name],
    mode: int,
    significant_bits: int = 0,
    pinned: Sequence[Pin] = (),
) -> Name:
    """Write one file that holds the rows of several neighbours, then remove those; see ``Coding.merged``.

    :raises Error: where one of them is damaged or declares a table differently; nothing is changed then.
    """
    merged = Name(names[0].boot, names[0].first, names[-1].last)
    image = coding.merged([f"{folder}/{name.file}" for name in names], significant_bits, pinned)
    archive.replace(folder, [name.file for name in names], merged.file, image, mode)
    return merged


def _shortening(folders: Folders) -> tuple[int, list[Pin]]:
    """To how many bits rows are shortened, and which spans are not; where nobody knows these, none are."""
    plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
    try:
        return plan.archiver.significant_bits, [*pins.read(folders.state), *pins.read(pins.waiting(folders))]
    except Error:
        return 0, []


def _left_alone(folders: Folders) -> set[str]:
    try:
        paths = note.read(
            f"{folders.runtime}/archiver/{LEFT_ALONE_FILE}", lambda noted: set(map(note.text, note.array(noted)))
        )
    except (OSError, CorruptError):
        return set()
    return {path for path in map(str, paths) if os.path.exists(path)}


def _leave_alone(folders: Folders, paths: set[str]) -> None:
    path = f"{folders.runtime}/archiver/{LEFT_ALONE_FILE}"
    if paths != _left_alone(folders):
        note.write(path, sorted(paths))
