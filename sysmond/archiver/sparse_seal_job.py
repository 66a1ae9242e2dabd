# SPDX-License-Identifier: Apache-2.0
"""Seals the rings of long tables: what they hold, and no file has yet, becomes files in RAM.

Of a table whose rows last it is sealed up to the last full reading, and without it: so the next file begins with one.
All of it is, where the writer is gone, or gives none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.declared_answers import within
from sysmond.base.model import Answers, Cause, Sensitivity
from sysmond.errors import CorruptError, ForeignError
from sysmond.machine.folders import FILE_MODES, Folders, create_stream
from sysmond.machine.memory import working_on
from sysmond.plan import catalogue
from sysmond.ring.leftovers import is_alive
from sysmond.ring.progress import ARCHIVER, Progress, Sealed, stream_files
from sysmond.ring.skipped_rings import Aside, keep
from sysmond.ring.snapshot import Snapshot, identify, snapshot
from sysmond.store import archive, sparse_file
from sysmond.store.archive import Name
from sysmond.store.of_ring import Hole
from sysmond.store.sparse_of_ring import LongRing, Reading
from sysmond.store.stretch import Incarnation, MemoryStretch, Readings

# What follows the last full reading waits for the next one, unless it takes this part of the ring.
WAITING_FRACTION_MAX = 0.5
# A ring of wide tables is WRITER/CLASS/RING; one of a long table lies in a folder of its own there.
_RING_DEPTH = 2


class _Cut(NamedTuple):
    """What is sealed now: the readings, up to which offset of the ring, and up to which tick, if not to the end."""

    taken: list[Reading]
    offset: int
    before_ns: int | None = None


def seal(
    folders: Folders,
    works_on: Callable[[Sequence[str]], None] = lambda _: None,
    unread: Callable[[str, str], None] = lambda _, __: None,
) -> None:
    """Turn what the rings of long tables hold into files in RAM, one a stretch of a ring, and note how far.

    ``works_on`` hears which ring a failure would be the fault of, ``unread`` what of a ring could not be read.
    """
    progress, aside = Progress.read(folders), Aside.read(folders)
    answers: dict[str, Answers] = {}
    with suppress(OSError, CorruptError):  # Files say less without it, and rows are there all the same.
        answers = catalogue.answers_in(folders.runtime)
    paths = set(stream_files(folders))
    noted = {path: sealed for path, sealed in progress.sealed.items() if path in paths or not _is_stream(folders, path)}
    for path in sorted(paths):
        works_on([path])
        before = noted.get(path, Sealed(0, 0, 0))
        try:
            with working_on(path):
                reached = _seal_ring(folders, path, before, aside.skipped.get(path, 0), unread, answers)
        except FileNotFoundError:
            noted.pop(path, None)
            continue
        except (ForeignError, CorruptError, PermissionError) as refusal:
            unread(path, str(refusal))
            continue  # It stays; readers meet it as well, and name it.
        if reached != before:
            noted[path] = reached
            Progress(noted).write(folders)
    if noted.keys() != progress.sealed.keys():
        Progress(noted).write(folders)


def empty(path: str, why: str) -> tuple[Sensitivity, bytes]:
    """The class of a file, and one that has of it all but its rows, and in their place their absence.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as opened:
        about, ticks = opened.about, opened.ticks
        holes = list(about.holes)
        if len(ticks):
            end_ns = int(ticks[-1]) + about.interval_ns
            holes.append(Hole(about.boot, about.table.name, int(ticks[0]), end_ns, Cause.DROPPED, why))
        none = np.zeros(0, np.int64)
        readings = Readings(none, none.astype(np.bool_), none, none)
        told = MemoryStretch(about._replace(holes=holes), readings, none, lambda _: none)
        return about.sensitivity, sparse_file.encode(told, CREATED_BY)


def _is_stream(folders: Folders, path: str) -> bool:
    return path.removeprefix(f"{folders.runtime}/").count("/") > _RING_DEPTH


def _seal_ring(
    folders: Folders,
    path: str,
    before: Sealed,
    skipped: int,
    unread: Callable[[str, str], None],
    answers: Mapping[str, Answers],
) -> Sealed:
    """Seal one ring; gives how far. ``answers``: what tables declare about them, by name."""
    is_skipped = skipped > before.offset
    identity, capacity = identify(path)
    is_over = not is_alive(identity.pid)  # Asked before the copy is made: what comes after it is for the next time.
    taken = snapshot(path, max(before.offset, skipped))
    ring = LongRing(taken)
    if ring.damage:
        with suppress(OSError):
            keep(folders, path)
        unread(path, ring.damage)
    cut = _cut(ring, taken.end_offset, capacity, is_over=is_over or taken.closed)
    if is_skipped and not cut.taken and not is_over and not taken.closed:
        return before  # The gap is told with the first row after it.
    last_ns = cut.taken[-1].tick_ns if cut.taken else before.last_tick_ns
    for stretch in _stretches(ring, taken, cut, before, is_skipped=is_skipped):
        sensitivity, table = stretch.sensitivity, stretch.table.name
        name = Name(stretch.boot, sequence := archive.next_sequence(stretch.boot, folders, table), sequence)
        said = within(answers[table], stretch.table) if table in answers else None
        about = stretch.about._replace(table=stretch.table._replace(answers=said))
        image = sparse_file.encode(stretch.told(about), CREATED_BY)
        create_stream(f"{folders.runtime}/{ARCHIVER}", f"{sensitivity}/{table}")
        archive.publish(archive.ram_folder(folders, sensitivity, table), name.file, image, FILE_MODES[sensitivity])
    return Sealed(cut.offset, last_ns, int(taken.closed))


def _cut(ring: LongRing, end: int, capacity: int, *, is_over: bool) -> _Cut:
    """Say what of a copy that ends at the offset ``end`` is sealed."""
    ended = [reading for reading in ring.readings if reading.ended]
    if not is_over and ring.readings and not ring.readings[-1].ended:
        end = ring.readings[-1].offset
    everything = _Cut(ended, end)
    if is_over or not ended or not ring.is_lasting:
        return everything
    fulls = [number for number, reading in enumerate(ended) if reading.full]
    last = fulls[-1] if fulls else 0
    if end - ended[last].offset > capacity * WAITING_FRACTION_MAX:
        return everything
    return _Cut(ended[:last], ended[last].offset, ended[last].tick_ns)


def _stretches(
    ring: LongRing, taken: Snapshot, cut: _Cut, before: Sealed, *, is_skipped: bool
) -> Iterator[MemoryStretch]:
    """What a copy adds to what was sealed, and that its writer ended, where that is new."""
    lost = _lost(taken, cut, before, is_skipped=is_skipped)
    found = False
    for stretch in ring.stretches(cut.taken):
        about = stretch.about
        holes = [hole for hole in about.holes if cut.before_ns is None or hole.start_ns < cut.before_ns]
        holes += [hole._replace(table=stretch.table.name) for hole in lost if len(stretch.ticks)]
        if len(stretch.ticks) or holes:
            found = True
            yield stretch.told(about._replace(holes=holes))
    if taken.closed and before.offset and not before.closed and not found and not is_skipped:
        life = Incarnation(taken.identity.started_ns, before.last_tick_ns, closed=True)
        for stretch in ring.stretches([], is_empty_too=True):
            yield stretch.told(stretch.about._replace(lives=[life], holes=()))


def _lost(taken: Snapshot, cut: _Cut, before: Sealed, *, is_skipped: bool) -> list[Hole]:
    """Say what the ring overwrote before it could be sealed, and what was set aside."""
    if not (taken.lost or is_skipped) or not cut.taken:
        return []
    detail = (
        "set aside: sealing failed on it" if is_skipped else f"{taken.lost} bytes overwritten before they were sealed"
    )
    start_ns = max(before.last_tick_ns + 1, taken.identity.started_ns)  # Perhaps no tick of it was sealed.
    return [Hole(taken.identity.boot, "", start_ns, cut.taken[0].tick_ns, Cause.DROPPED, detail)]
