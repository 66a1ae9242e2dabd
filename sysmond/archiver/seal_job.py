# SPDX-License-Identifier: Apache-2.0
"""The archiver's jobs that need numpy and h5py: seal rings into segments, merge segments of a day.

Each runs in a child of the archiver that lives for one job, so their memory and their crashes are its own.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from sysmond import CREATED_BY
from sysmond.archiver import auto_pins
from sysmond.archiver.sparse_seal_job import empty as empty_long
from sysmond.archiver.sparse_seal_job import seal as seal_long
from sysmond.base.model import Cause, Sensitivity, Table
from sysmond.errors import CorruptError, Error, ForeignError
from sysmond.machine import note
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.machine.memory import working_on
from sysmond.ring.progress import Progress, Sealed, ring_files, stream_files
from sysmond.ring.skipped_rings import Aside
from sysmond.ring.skipped_rings import keep as keep_copy
from sysmond.ring.snapshot import Snapshot, snapshot
from sysmond.store import archive, dense_file
from sysmond.store.archive import Name
from sysmond.store.of_ring import (
    Block,
    Hole,
    MemoryBlock,
    Recording,
    coalesce,
    join,
    of_snapshot,
)

# What a hole says that was given up for want of room.
GIVEN_UP = "RAM for segments was full"

# Of one file: the tables of all of them agree. With each recording the ring it is from.
_Group = list[tuple[str, Recording]]


def seal(
    folders: Folders,
    works_on: Callable[[Sequence[str]], None] = lambda _: None,
    unread: Callable[[str, str], None] = lambda _, __: None,
) -> None:
    """Turn what the rings hold and no segment has yet into segments in RAM, and note how far.

    One a class; more only where rings of several boots, or tables that are declared in two ways, meet; and where
    a seal failed before. ``works_on`` hears which rings that would be the fault of, ``unread`` of a ring what of it
    could not be read.
    """
    progress, aside = Progress.read(folders), Aside.read(folders)
    noted = {path: progress.sealed[path] for path in stream_files(folders) if path in progress.sealed}
    reached: dict[str, Sealed] = {}
    found: dict[tuple[Sensitivity, str], list[_Group]] = {}
    for path in ring_files(folders):
        before = progress.sealed.get(path, Sealed(0, 0, 0))
        noted[path] = before
        works_on([path])
        skipped = aside.skipped.get(path, 0)
        try:
            is_skipped = skipped > before.offset
            with working_on(path):
                taken = snapshot(path, max(before.offset, skipped))
                recording = _unsealed(path, taken, before, is_skipped=is_skipped)
        except FileNotFoundError:
            del noted[path]
            continue
        except (ForeignError, CorruptError, PermissionError) as refusal:
            unread(path, str(refusal))
            continue  # It stays; readers meet it as well, and name it.
        if recording.damage:
            with suppress(OSError):
                keep_copy(folders, path)
            unread(path, recording.damage)
        reached[path] = Sealed(taken.end_offset, _last_tick(recording, before.last_tick_ns), int(taken.closed))
        if recording.events or any(len(block.ticks) for block in recording.blocks):
            groups = found.setdefault((recording.sensitivity, taken.identity.boot), [])
            if aside.blamed:
                groups.append([(path, recording)])
            else:
                _place(groups, path, recording)
        elif taken.closed or not is_skipped:  # Else the gap is told with the first row after it.
            noted[path] = reached[path]
    try:
        for (sensitivity, boot), groups in found.items():
            for group in groups:
                works_on([path for path, _ in group])
                name = Name(boot, sequence := archive.next_sequence(boot, folders), sequence)
                joined = join([recording for _, recording in group])
                with working_on(*(path for path, _ in group)):
                    image = dense_file.encode(joined, CREATED_BY)
                archive.publish(archive.ram_folder(folders, sensitivity), name.file, image, FILE_MODES[sensitivity])
                noted.update((path, reached[path]) for path, _ in group)
                with suppress(OSError, Error):
                    auto_pins.pin(folders, joined)
    finally:
        Progress(noted).write(folders)
    seal_long(folders, works_on, unread)


def _unsealed(path: str, taken: Snapshot, before: Sealed, *, is_skipped: bool) -> Recording:
    """What a snapshot adds to what was sealed, and that its writer ended, where that is new."""
    recording = of_snapshot(taken)
    blocks = [block for block in recording.blocks if len(block.ticks)]
    holes = [*recording.holes, *_lost(taken, before, blocks, is_skipped=is_skipped)]
    if taken.closed and before.offset and not before.closed and not is_skipped:
        there = {block.strand for block in blocks}
        blocks += [block for block in _last_ticks(of_snapshot(snapshot(path))) if block.strand not in there]
    return recording._replace(blocks=blocks, holes=holes)


def _last_ticks(recording: Recording) -> Iterator[Block]:
    """The last tick of each block once more: a place for the news that it was the last."""
    for block in recording.blocks:
        if len(block.ticks):
            values = block.read(range(len(block.keys)))[:, -1:]
            yield MemoryBlock(block.strand, block.ticks[-1:], block.keys, values, block.closed)


def _place(groups: list[_Group], path: str, recording: Recording) -> None:
    """Put a recording to those that declare their tables alike: after an upgrade two declarations may meet."""
    for group in groups:
        if all(_agree(each.tables, recording.tables) for _, each in group):
            group.append((path, recording))
            return
    groups.append([(path, recording)])


def _agree(one: dict[str, Table], other: dict[str, Table]) -> bool:
    return all(one.get(name, table) == table for name, table in other.items())


def _last_tick(recording: Recording, before_ns: int) -> int:
    return max([before_ns, *(int(block.ticks[-1]) for block in recording.blocks)])


def _lost(taken: Snapshot, before: Sealed, blocks: Sequence[Block], *, is_skipped: bool) -> Iterator[Hole]:
    """Say what the ring overwrote before it could be sealed, and what was set aside."""
    if not (taken.lost or is_skipped) or not blocks:
        return
    detail = "set aside: sealing failed on it" if is_skipped else "overwritten before it was sealed"
    start_ns = max(before.last_tick_ns + 1, taken.identity.started_ns)  # Perhaps no tick of it was sealed.
    ends_ns: dict[str, int] = {}  # Blocks of other intervals begin again at other ticks.
    for block in blocks:
        for table in {key.table for key in block.keys}:
            ends_ns[table] = min(ends_ns.get(table, int(block.ticks[0])), int(block.ticks[0]))
    for table, end_ns in sorted(ends_ns.items()):
        yield Hole(taken.identity.boot, table, start_ns, end_ns, Cause.DROPPED, detail)


def empty(paths: Iterable[str]) -> Iterator[str]:
    """Give up the rows of files in RAM: in the place of each comes one that tells of the hole; gives each that has."""
    for path in paths:
        with suppress(Error, OSError):
            folder, file = os.path.split(path)
            is_wide = os.path.basename(folder) in set(Sensitivity)
            sensitivity, image = _emptied(path) if is_wide else empty_long(path, GIVEN_UP)
            if file in archive.files(folder):  # Else a flush has just saved it.
                note.put(path, image, mode=FILE_MODES[sensitivity])
                yield path


def _emptied(path: str) -> tuple[Sensitivity, bytes]:
    """A segment that has of another one all but its rows, and in their place their absence."""
    with dense_file.Segment(path) as opened:
        recording = opened.recording
        holes = [
            Hole(boot, table, int(block.ticks[0]), int(block.ticks[-1]) + interval_ns, Cause.DROPPED, GIVEN_UP)
            for block in recording.blocks
            if len(block.ticks)
            for boot, interval_ns in [(block.strand.boot, block.strand.interval_ns)]
            for table in sorted({key.table for key in block.keys})
        ]
        told = recording._replace(blocks=(), texts={}, holes=coalesce([*recording.holes, *holes]))
        return recording.sensitivity, dense_file.encode(told, CREATED_BY)
