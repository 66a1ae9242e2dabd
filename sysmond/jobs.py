# SPDX-License-Identifier: Apache-2.0
"""The archiver's jobs that need numpy and h5py: seal rings into segments, merge segments of a day.

Each runs in a child of the archiver that lives for one job, so their memory and their crashes are its own.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from sysmond import __version__, archive, segment
from sysmond.archive import Candidate, Name
from sysmond.clock import SECOND_NS, Relation
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.folders import FILE_MODES, Folders
from sysmond.model import ABSENT, Cause, Sensitivity, Table
from sysmond.progress import Progress, Sealed, ring_files
from sysmond.recording import Block, Hole, Key, Recording, of_snapshot
from sysmond.result import Int64Array
from sysmond.ring import Snapshot, snapshot

CREATED_BY = f"sysmond {__version__}"
DAY_NS = 24 * 3600 * SECOND_NS


def seal(folders: Folders) -> None:
    """Turn what the rings hold and no segment has yet into one segment a class, in RAM, and note how far."""
    progress = Progress.read(folders)
    sealed: dict[str, Sealed] = {}
    found: dict[Sensitivity, list[Recording]] = {sensitivity: [] for sensitivity in Sensitivity}
    boots: dict[Sensitivity, str] = {}
    for path in ring_files(folders):
        before = progress.sealed.get(path, Sealed(0, 0, 0))
        try:
            taken = snapshot(path, before.offset)
        except (FileNotFoundError, ForeignError, CorruptError, PermissionError):
            continue
        recording = of_snapshot(taken)
        sealed[path] = Sealed(taken.end_offset, _last_tick(recording, before.last_tick_ns), int(taken.closed))
        if any(len(block.ticks) for block in recording.blocks):
            holes = [*recording.holes, *_lost(taken, before, recording)]
            found[recording.sensitivity].append(recording._replace(holes=holes))
            boots[recording.sensitivity] = max(boots.get(recording.sensitivity, ""), taken.identity.boot)
    for sensitivity, recordings in found.items():
        if recordings:
            boot = boots[sensitivity]
            name = Name(boot, sequence := archive.next_sequence(boot, folders), sequence)
            image = segment.encode(_join(recordings), CREATED_BY)
            archive.publish(archive.ram_folder(folders, sensitivity), name.file, image, FILE_MODES[sensitivity])
    Progress(sealed).write(folders)


def _last_tick(recording: Recording, before_ns: int) -> int:
    return max([before_ns, *(int(block.ticks[-1]) for block in recording.blocks if len(block.ticks))])


def _lost(taken: Snapshot, before: Sealed, recording: Recording) -> Iterator[Hole]:
    """Say what the ring overwrote before it could be sealed."""
    if not taken.lost or not before.offset:
        return
    first_ns = min(int(block.ticks[0]) for block in recording.blocks if len(block.ticks))
    for table in sorted({key.table for block in recording.blocks for key in block.keys}):
        yield Hole(
            taken.identity.boot,
            table,
            before.last_tick_ns + 1,
            first_ns,
            Cause.DROPPED,
            "overwritten before it was sealed",
        )


def _join(recordings: Sequence[Recording]) -> Recording:
    """Put recordings of one class side by side.

    :raises Error: where two of them declare a table differently.
    """
    tables: dict[str, Table] = {}
    texts: dict[int, str] = {}
    clocks: dict[str, set[Relation]] = {}
    for recording in recordings:
        for name, table in recording.tables.items():
            if tables.setdefault(name, table) != table:
                raise Error(f"table {name} is declared in two ways")
        texts.update(recording.texts)
        for boot, relations in recording.clocks.items():
            clocks.setdefault(boot, set()).update(relations)
    return Recording(
        recordings[0].sensitivity,
        tables,
        [block for recording in recordings for block in recording.blocks],
        texts,
        {boot: sorted(relations) for boot, relations in clocks.items()},
        sorted({hole for recording in recordings for hole in recording.holes}),
    )


def merge(folders: Folders) -> None:
    """Merge the small segments on disk by the plan, and remove what a merged one contains."""
    for sensitivity in Sensitivity:
        folder = archive.disk_folder(folders, sensitivity)
        for names in archive.plan_merges(list(_candidates(folder))):
            with suppress(Error):  # A damaged or differing one stays as it is; readers name it.
                merge_files(folder, names, FILE_MODES[sensitivity])
        for name in archive.superseded(folder):
            os.unlink(f"{folder}/{name.file}")


def _candidates(folder: str) -> Iterator[Candidate]:
    for name in archive.names(folder):
        path = f"{folder}/{name.file}"
        with (
            suppress(CorruptError, ForeignError, NotPermittedError, FileNotFoundError),
            segment.Segment(path) as opened,
        ):
            yield Candidate(name, os.path.getsize(path), first_day(opened.recording))


def first_day(recording: Recording) -> int:
    """The UTC day of a recording's first tick, in days since 1970."""
    starts = [
        int(block.ticks[0]) + _wall_offset_ns(recording.clocks.get(block.strand.boot, []), int(block.ticks[0]))
        for block in recording.blocks
        if len(block.ticks)
    ]
    return min(starts, default=0) // DAY_NS


def _wall_offset_ns(relations: Sequence[Relation], tick_ns: int) -> int:
    before = [relation for relation in relations if relation.boottime_ns <= tick_ns] or list(relations[:1])
    return before[-1].realtime_ns - before[-1].boottime_ns if before else 0


def merge_files(folder: str, names: Sequence[Name], mode: int) -> Name:
    """Write one segment that holds the rows of several neighbours, then remove those.

    :raises Error: where one of them is damaged or declares a table differently; nothing is changed then.
    """
    merged = Name(names[0].boot, names[0].first, names[-1].last)
    with ExitStack() as stack:
        opened = [stack.enter_context(segment.Segment(f"{folder}/{name.file}")) for name in names]
        joined = _join([each.recording for each in opened])
        plans = [_concatenation(blocks) for blocks in _by_strand(joined.blocks)]
        image = segment.encode_plans(joined, plans, CREATED_BY)
    archive.publish(folder, merged.file, image, mode)
    for name in names:
        os.unlink(f"{folder}/{name.file}")
    archive.sync_folder(folder)
    return merged


def _by_strand(blocks: Iterable[Block]) -> list[list[Block]]:
    strands: dict[Any, list[Block]] = {}
    for block in blocks:
        if len(block.ticks):
            strands.setdefault(block.strand, []).append(block)
    return [sorted(group, key=lambda block: int(block.ticks[0])) for _, group in sorted(strands.items())]


def _concatenation(blocks: Sequence[Block]) -> segment.Plan:
    """Put blocks of one strand end to end; a tick that two of them have is taken once."""
    keys = list(dict.fromkeys(key for block in blocks for key in block.keys))
    starts, until_ns = [], -1
    for block in blocks:
        start = int(np.searchsorted(block.ticks, until_ns, side="right"))
        starts.append(start)
        until_ns = max(until_ns, int(block.ticks[-1]))
    ticks = np.concatenate([block.ticks[start:] for block, start in zip(blocks, starts, strict=True)])
    return segment.Plan(blocks[0].strand, ticks, keys, blocks[-1].closed, _batches(blocks, starts, keys, len(ticks)))


def _batches(blocks: Sequence[Block], starts: Sequence[int], keys: Sequence[Key], length: int) -> Iterator[Int64Array]:
    places = [{key: row for row, key in enumerate(block.keys)} for block in blocks]
    for first in range(0, len(keys), segment.BATCH_SERIES):
        batch = keys[first : first + segment.BATCH_SERIES]
        values = np.full((len(batch), length), ABSENT, np.int64)
        at = 0
        for block, start, place in zip(blocks, starts, places, strict=True):
            until = at + len(block.ticks) - start
            mine = [row for row, key in enumerate(batch) if key in place]
            if mine:
                values[mine, at:until] = block.read([place[batch[row]] for row in mine])[:, start:]
            at = until
        yield values


def describe_failure(failure: BaseException) -> str:
    """Say in one line why a job failed, for the archiver to pass on."""
    return json.dumps(" ".join(f"{type(failure).__name__}: {failure}".split())[:500])
