# SPDX-License-Identifier: Apache-2.0
"""The files of the coarser tiers: what they are called, which segments of rows each stands for, which count.

A file made from one boot has that boot's range as its name, like a segment of rows; one of several boots is
named by its first and its last, and has all ranges in itself. A tier's file counts unless another covers all that it
does: a merge that was interrupted leaves such.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, TIERS_NS
from sysmond.base.wall_clock import course_of
from sysmond.errors import CorruptError, ForeignError, NotPermittedError
from sysmond.machine.listing import look
from sysmond.store import archive
from sysmond.store.archive import Name, parse_name
from sysmond.store.files import opening
from sysmond.store.of_ring import Recording

COARSE = tuple(tier for tier, step_ns in TIERS_NS.items() if step_ns)
"""The tiers that are rolled up, finest first."""

# So many files back is looked for the beginning of a bucket: more where a writer began anew again and again.
BEFORE_FILES = 64

Beside = Callable[[str], Sequence[str]]
"""Gives the folders where rows of a table are that lies beside the one that is rolled up."""

_NAME_OF_SEVERAL = re.compile(r"([0-9a-f]{32})-(\d{8})-([0-9a-f]{32})-(\d{8})\.h5")


def nothing_beside(_: str) -> Sequence[str]:
    """There is no other table."""
    return ()


class TierFile(NamedTuple):
    """A file of a tier. ``first_ns``, ``last_ns``: UTC of its outermost rows; ``tables``: what it declares."""

    file: str
    size_bytes: int
    covers: tuple[Name, ...]
    first_ns: int
    last_ns: int
    tables: Mapping[str, object]


def is_name(file: str) -> bool:
    """Whether a file has a name that one of a tier may have."""
    return parse_name(file) is not None or _NAME_OF_SEVERAL.fullmatch(file) is not None


def file_name(covers: Sequence[Name]) -> str:
    """What a file that covers these ranges, in order of time, is called."""
    first, last = covers[0], covers[-1]
    if {name.boot for name in covers} == {first.boot}:
        return Name(first.boot, min(name.first for name in covers), max(name.last for name in covers)).file
    return f"{first.boot}-{first.first:08d}-{last.boot}-{last.last:08d}{archive.SUFFIX}"


def joined(covers: Iterable[Name]) -> tuple[Name, ...]:
    """Make one of neighbouring ranges of a boot; the order of time stays."""
    merged: list[Name] = []
    for name in covers:
        if merged and merged[-1].boot == name.boot:
            merged[-1] = Name(name.boot, min(merged[-1].first, name.first), max(merged[-1].last, name.last))
        else:
            merged.append(name)
    return tuple(merged)


def counting(files: Sequence[TierFile]) -> list[TierFile]:
    """Which of some files of a tier count: those of which no other covers all."""
    return [file for file in files if not any(_replaces(other, file) for other in files)]


def _replaces(one: TierFile, other: TierFile) -> bool:
    """Whether a file covers all of another one; of two that cover the same (which nothing writes) one does."""
    if one is other or _covers_more(other.covers, one.covers):
        return False
    return _covers_more(one.covers, other.covers) or one.file < other.file


def _covers_more(these: Sequence[Name], than: Sequence[Name]) -> bool:
    return not all(any(cover.contains(name) for cover in than) for name in these)


def covered(folder: str) -> list[Name]:
    """Of which segments of rows a tier has the buckets; read off the names, as far as they say."""
    ranges: list[Name] = []
    for file in archive.files(folder):
        if name := parse_name(file):
            ranges.append(name)
        elif _NAME_OF_SEVERAL.fullmatch(file):
            unreadable = suppress(CorruptError, ForeignError, NotPermittedError, FileNotFoundError)
            with unreadable, opening.segment(f"{folder}/{file}") as opened:
                ranges += opened.recording.covers
    return ranges


def hold(covers: Iterable[Name], name: Name) -> bool:
    """Whether a tier has the rows of a segment.

    A merged one was made of segments that the tier had: where it has the first and the last, it has all.
    """
    of_boot = [cover for cover in covers if cover.boot == name.boot]
    return all(any(cover.first <= end <= cover.last for cover in of_boot) for end in (name.first, name.last))


def lacking(folder: str, names: Iterable[Name]) -> list[Name]:
    """Which of these segments of rows a tier has no buckets of."""
    covers = covered(folder)
    return [name for name in names if not hold(covers, name)]


def remove_superseded(folder: str, is_whole: Callable[[str], bool]) -> None:
    """Remove what an interrupted merge left behind, once the files that count prove whole."""
    archive.remove_superseded(folder, is_whole)
    if all(map(parse_name, archive.files(folder))):
        return  # Of one boot each: their names said it all.
    files, _ = listing(folder)
    larger = counting(files)
    for file in files:
        if file not in larger and all(is_whole(f"{folder}/{other.file}") for other in larger):
            os.unlink(f"{folder}/{file.file}")


class Due(NamedTuple):
    """Neighbouring files of rows that some tiers do not have; ``before``: those before them, the nearest last."""

    names: list[Name]
    tiers: tuple[str, ...]
    before: list[Name]


def due(
    rows_folder: str,
    tier_folders: Mapping[str, str],
    left_alone: Collection[str],
    seals_at_once: int,
    bytes_at_once: int,
) -> list[Due]:
    """Find what is to be rolled up: runs of files of one boot that the same tiers lack.

    A run has so many sealed files, however they are merged, and so many bytes, or is one file. What is left alone parts
    its neighbours: a range would claim it.
    """
    covers = {tier: covered(folder) for tier, folder in tier_folders.items()}
    runs: list[Due] = []
    passed: list[Name] = []
    is_next = False
    run_bytes = 0
    for name in archive.names(rows_folder):
        path = f"{rows_folder}/{name.file}"
        passed = [file_name for file_name in passed if file_name.boot == name.boot][-BEFORE_FILES:]
        lacking = () if path in left_alone else tuple(tier for tier in covers if not hold(covers[tier], name))
        if lacking:
            run_bytes += (own_bytes := _size_bytes(path))
            last = runs[-1] if is_next else Due([], (), [])
            is_alike = last.tiers == lacking and last.names[0].boot == name.boot
            if is_alike and name.last - last.names[0].first < seals_at_once and run_bytes <= bytes_at_once:
                last.names.append(name)
            else:
                runs.append(Due([name], lacking, list(passed)))
                run_bytes = own_bytes
        is_next = bool(lacking)
        passed.append(name)
    return runs


def size_bytes(folder: str, names: Iterable[Name]) -> int:
    """How large some files are together."""
    return sum(_size_bytes(f"{folder}/{name.file}") for name in names)


def _size_bytes(path: str) -> int:
    with suppress(FileNotFoundError, CorruptError):
        return look(path).size_bytes
    return 0


def listing(folder: str) -> tuple[list[TierFile], list[str]]:
    """The files of a tier in order of time; and those that are no whole files of ours."""
    files, unreadable = [], []
    for file in archive.files(folder):
        try:
            size = look(f"{folder}/{file}").size_bytes
            with opening.segment(f"{folder}/{file}") as opened:
                recording = opened.recording
                first_ns, last_ns = span_ns(recording)
                name = parse_name(file)
                covers = tuple(recording.covers) or ((name,) if name else ())
                files.append(TierFile(file, size, covers, first_ns, last_ns, recording.tables))
        except FileNotFoundError:
            continue
        except (CorruptError, ForeignError, NotPermittedError):
            unreadable.append(file)
    return sorted(files, key=lambda of_name: (of_name.first_ns, of_name.last_ns, of_name.file)), unreadable


def span_ns(recording: Recording) -> tuple[int, int]:
    """UTC of the outermost rows of a recording, in nanoseconds; where it has none, of its holes; else of its events.

    A recording of events alone reaches up to where its clocks were last told; 0 where there is nothing of all this.
    """
    ends = []
    for strand, first, last in [
        *((block.strand, block.ticks, block.ticks) for block in recording.blocks),
        *((tier.strand, tier.axis.first, tier.axis.last) for tier in recording.tiers),
    ]:
        if len(first):
            course = course_of(recording.clocks.get(strand.boot, []), strand.interval_ns)
            ends += [course.moment_ns(int(first[0])), course.moment_ns(int(last[-1]))]
    # Whatever the interval: only the relation of the clocks matters.
    ends = ends or [
        course_of(recording.clocks.get(hole.boot, []), SECOND_NS).moment_ns(hole.start_ns) for hole in recording.holes
    ]
    if not ends:
        moments = [(event.boot, event.boottime_ns) for event in recording.events]
        moments += [(boot, relations[-1].boottime_ns) for boot, relations in recording.clocks.items() if relations]
        courses = {boot: course_of(relations, SECOND_NS) for boot, relations in recording.clocks.items()}
        ends = [courses[boot].moment_ns(at_ns) for boot, at_ns in moments if boot in courses]
        ends += [event.happened_ns for event in recording.events if event.happened_ns != ABSENT]
    return (min(ends), max(ends)) if ends else (0, 0)


def plan_merges(files: Sequence[TierFile], largest_bytes: int, unrolled: Sequence[Name] = ()) -> list[list[TierFile]]:
    """Choose which neighbours become one file: see ``archive.grown``.

    Across days and boots, so that few files hold much. Not across a segment of rows that is not rolled up yet:
    the range of the merged file would claim it.
    """

    def fits(group: Sequence[TierFile], before: TierFile) -> bool:
        return _size(group) + before.size_bytes <= largest_bytes and _may_follow(before, group[0], unrolled)

    return archive.grown(files, fits)


def plan_rest(files: Sequence[TierFile], largest_bytes: int, unrolled: Sequence[Name] = ()) -> list[list[TierFile]]:
    """Choose of files to which nothing is added any more: all neighbours that fit into one; not across as above."""
    groups: list[list[TierFile]] = []
    for file in files:
        last = groups[-1] if groups else []
        fits = last and _size(last) + file.size_bytes <= largest_bytes
        if fits and _may_follow(last[-1], file, unrolled):
            last.append(file)
        else:
            groups.append([file])
    return [group for group in groups if len(group) > 1]


def _may_follow(before: TierFile, after: TierFile, unrolled: Sequence[Name]) -> bool:
    if any(before.tables.get(name, table) != table for name, table in after.tables.items()):
        return False
    one, other = before.covers[-1], after.covers[0]
    gap = Name(one.boot, one.last, other.first)
    return one.boot != other.boot or not any(gap.contains(name) for name in unrolled)


def _size(group: Sequence[TierFile]) -> int:
    return sum(file.size_bytes for file in group)
