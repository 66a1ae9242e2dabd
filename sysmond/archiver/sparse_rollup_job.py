# SPDX-License-Identifier: Apache-2.0
"""Tiers of long tables: files of rows become files of every tier, and small files of a tier larger ones.

A file of a tier is named by the files of rows that it was made from; by that alone is known what is still to be made.
It is published whole, and what a job that was killed has left undone the next one does.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.model import END, FINEST_TIER, TIERS_NS, Semantics, Sensitivity
from sysmond.base.result import Array, Int64Array
from sysmond.base.wall_clock import course_of
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing
from sysmond.machine.folders import FILE_MODES, Folders, create_stream
from sysmond.machine.memory import BoundError, working_on
from sysmond.rollup.top import roll_up
from sysmond.store import archive, sparse_file, tiers
from sysmond.store.archive import Name
from sysmond.store.chain import Chain, Ends
from sysmond.store.sparse_file import FileStretch
from sysmond.store.stretch import key_of
from sysmond.store.tiers import COARSE
from sysmond.store.undeclared import answers_of

# So much is rolled up at once: bounds memory, whatever was left undone.
RUN_BYTES = 8 * 1024 * 1024
RUN_FILES = 36
# So many files back is looked for the beginning of a bucket: more where a writer began anew again and again.
BEFORE_FILES = 64
# A row, and so many characters, count as one byte of a file at least: as merge has it, of rows that are in memory.
ROW_BYTES_MIN = 4
TEXTS_PER_BYTE_MAX = 4
# What ended may be told so much later than it did.
LATE_NS = 60_000_000_000

MakeRoom = Callable[[str, int], object]
# The folders where files of a long table are, by its name: those that are there.
Places = Callable[[str], Sequence[str]]


class Due(NamedTuple):
    """Neighbouring files of rows that some tiers do not have; ``before``: those before them, the nearest last."""

    names: list[Name]
    tiers: tuple[str, ...]
    before: list[Name]


def due(rows_folder: str, tier_folders: dict[str, str], left_alone: set[str]) -> list[Due]:
    """Find what is to be rolled up: runs of files of one boot that the same tiers lack."""
    covers = {tier: archive.names(folder) for tier, folder in tier_folders.items()}
    found: list[Due] = []
    passed: list[Name] = []
    is_next = False
    size_bytes = 0
    for name in archive.names(rows_folder):
        path = f"{rows_folder}/{name.file}"
        passed = [each for each in passed if each.boot == name.boot][-BEFORE_FILES:]
        lacking = tuple(tier for tier in covers if not tiers.hold(covers[tier], name))
        own_bytes = 0
        with suppress(FileNotFoundError, CorruptError):
            own_bytes = listing.look(path).size_bytes
        if path in left_alone:
            is_next = False  # It parts its neighbours: a range would claim it.
        elif lacking:
            last = found[-1] if is_next else None
            fits = last and len(last.names) < RUN_FILES and size_bytes + own_bytes <= RUN_BYTES
            if last and fits and last.tiers == lacking and last.names[0].boot == name.boot:
                last.names.append(name)
                size_bytes += own_bytes
            else:
                found.append(Due([name], lacking, list(passed)))
                size_bytes = own_bytes
            is_next = True
        else:
            is_next = False
        passed.append(name)
    return found


def roll_up_files(rows_folder: str, run: Due, places: Places = lambda _: ()) -> dict[str, bytes]:
    """Make the files of the tiers that lack these, by tier.

    ``places``: where files of the table are that tells what ended.

    :raises Error: where one is damaged, or they declare the table differently. :raises FileNotFoundError: where one is
        gone.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(sparse_file.open_file(f"{rows_folder}/{name.file}")) for name in run.names]
        if len({sparse_file.declares(each) for each in opened}) > 1:
            raise Error(f"{rows_folder}: {run.names[0].file} and later ones: of several declarations")
        telling = [each for each in opened if len(each.ticks)]
        before, is_whole = _before(stack, rows_folder, run, telling[0]) if telling else ([], True)
        stretches = [*before, *opened]
        chain = Chain(stretches, _ended(places, [*before, *telling]))
        steps_ns = [TIERS_NS[tier] for tier in run.tiers]
        made = roll_up(stretches, steps_ns, len(before), chain=chain, is_cut=not is_whole)
        return {tier: sparse_file.encode(each, CREATED_BY) for tier, each in zip(run.tiers, made, strict=True)}


def _before(stack: ExitStack, folder: str, run: Due, first: FileStretch) -> tuple[list[FileStretch], bool]:
    """The files before a run that have a part of its first bucket, or else the one that ends before it.

    And whether they have all of that part.
    """
    course = course_of(list(first.relations), first.interval_ns)
    longest_ns = max(TIERS_NS[tier] for tier in run.tiers)
    begin_ns = int(first.ticks[0]) - course.moment_ns(int(first.ticks[0])) % longest_ns
    found: list[FileStretch] = []
    for name in reversed(run.before):
        try:
            opened = stack.enter_context(sparse_file.open_file(f"{folder}/{name.file}"))
        except (Error, FileNotFoundError):
            return found, False
        if opened.table._replace(answers=None) != first.table._replace(answers=None):
            return found, False
        if len(opened.ticks):
            found.insert(0, opened)
            if opened.ticks[0] < begin_ns:
                return found, True
    return found, len(run.before) < BEFORE_FILES


def _ended(places: Places, stretches: Sequence[FileStretch]) -> Ends | None:
    """What is told of what ended while these were recorded; None where nothing tells that."""
    ending = answers_of(stretches[-1].table).ended_by if stretches else None
    if ending is None:
        return None
    table = stretches[-1].table
    names = [dict(ending.by)[name] for name in key_of(table)]
    low_ns, high_ns = int(stretches[0].ticks[0]), int(stretches[-1].ticks[-1]) + LATE_NS
    keys: list[Array] = []
    ends: list[Array] = []
    paths: list[str] = []
    told: set[str] = {metric.name for metric in table.metrics}
    for path in (path for folder in places(ending.table) for path in _reaching(folder, stretches[0].boot, low_ns)):
        with suppress(Error, FileNotFoundError), sparse_file.open_file(path) as opened:
            columns = {metric.name for metric in opened.table.metrics if not metric.is_text}
            if not columns.issuperset([END, *names]):
                return None
            if len(opened.ticks) and opened.ticks[0] > high_ns:
                break
            ends.append(opened.last(END))
            keys.append(np.stack([opened.last(name) for name in names], axis=1))
            paths.append(path)
            told &= columns
    if not ends:
        return None
    counters = [metric.name for metric in table.metrics if metric.semantics is Semantics.COUNTER]
    totals = {name: partial(_column, paths, name) for name in counters if name in told}
    groups = {name: partial(_column, paths, name) for name in answers_of(table).others_by if name in told}
    return Ends(np.concatenate(keys), np.concatenate(ends), totals, groups)


def _column(paths: Sequence[str], name: str) -> Int64Array:
    """What the last row of each key of some files has."""
    found = []
    for path in paths:
        with sparse_file.open_file(path) as opened:
            found.append(opened.last(name))
    return np.concatenate(found)


def _reaching(folder: str, boot: str, low_ns: int) -> Iterator[str]:
    """The files of a boot, in order, from the first one on that reaches a boot time."""
    names = [name for name in archive.names(folder) if name.boot == boot]

    def last_ns(name: Name) -> int:
        with suppress(Error, FileNotFoundError), sparse_file.open_file(f"{folder}/{name.file}") as opened:
            return int(opened.ticks[-1]) if len(opened.ticks) else low_ns
        return low_ns

    for name in names[bisect_left(names, low_ns, key=last_ns) :]:
        yield f"{folder}/{name.file}"


def roll_up_tables(folders: Folders, make_room: MakeRoom, left_alone: set[str]) -> None:
    """Make the files of the tiers of all files of rows on disk that have none yet; names those that are damaged.

    ``make_room`` is called before each, with the tier and how many bytes will come.
    """
    for sensitivity, table in archive.disk_folders(folders):
        rows = archive.disk_folder(folders, sensitivity, FINEST_TIER, table)
        if not table or not os.path.isdir(rows):
            continue
        places = {tier: archive.disk_folder(folders, sensitivity, tier, table) for tier in COARSE}
        for tier, place in places.items():
            create_stream(folders.state, f"{sensitivity}/{table}/{tier}")
            archive.remove_temporary(place)
        beside = partial(_places, folders, sensitivity)
        for run in due(rows, places, left_alone):
            for name, images in _rolled_up(rows, run, beside, left_alone):
                for tier, image in images.items():
                    make_room(tier, len(image))
                    archive.publish(places[tier], name.file, image, FILE_MODES[sensitivity])


def _places(folders: Folders, sensitivity: Sensitivity, table: str) -> list[str]:
    """Where files of rows of a table of a class are: in RAM, and on disk."""
    return [
        archive.ram_folder(folders, sensitivity, table),
        archive.disk_folder(folders, sensitivity, FINEST_TIER, table),
    ]


def _rolled_up(rows: str, run: Due, places: Places, left_alone: set[str]) -> Iterator[tuple[Name, dict[str, bytes]]]:
    """Roll up a run; where that fails without those before it as well, each file by itself, so that one is left out."""
    whole = Name(run.names[0].boot, run.names[0].first, run.names[-1].last)
    for each in (run, run._replace(before=[])) if run.before else (run,):
        try:
            with working_on(*(f"{rows}/{name.file}" for name in run.names)):
                images = roll_up_files(rows, each, places)
            yield whole, images
        except FileNotFoundError:
            return
        except BoundError:
            if each.before or len(run.names) > 1:
                continue
            left_alone.add(f"{rows}/{whole.file}")
            raise
        except Error:
            continue
        return
    if len(run.names) == 1:
        left_alone.add(f"{rows}/{whole.file}")
        return
    for number, name in enumerate(run.names):
        yield from _rolled_up(rows, Due([name], run.tiers, [*run.before, *run.names[:number]]), places, left_alone)
