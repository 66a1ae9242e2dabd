# SPDX-License-Identifier: Apache-2.0
"""The archive: where segments lie, what they are called, and how one becomes visible.

A segment is named by boot and sequence, never by wall clock: ``BOOT-FIRST-LAST.h5``. A fresh one has one
number; a merged one the range of those it replaces. It appears closed, synced and renamed, or not at all.
Standard library only.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, zip_longest
from typing import NamedTuple, Protocol, TypeVar

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import EVENTS, FILE_BYTES_MAX, FINEST_TIER, NAME_LENGTH_MAX, TIERS_NS, Sensitivity
from sysmond.errors import CorruptError, Error
from sysmond.machine import listing, note
from sysmond.machine.folders import FILE_MODES, Folders, create_stream
from sysmond.machine.note import TEMPORARY_SUFFIX, sync_folder
from sysmond.ring.progress import ARCHIVER, WRITERS

SUFFIX = ".h5"
# The last sequence number given, by boot.
SEQUENCES_FILE = "sequences.json"

# A file so small is merged with its neighbours whatever their size.
SMALL_BYTES = 96 * 1024
# Files that were written longer ago were looked at often enough: opening all of an archive would take seconds.
MERGE_AGE_NS = 2 * 24 * 3600 * SECOND_NS

_NAME = re.compile(r"([0-9a-f]{32})-(\d{8})-(\d{8})\.h5")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")
# A file of a tier may be of several boots: then the name has two of them.
_LAST = re.compile(r"-(\d{8})\.h5$")
_LAST_BOOT = re.compile(r"([0-9a-f]{32})-(?:\d{8}-)?\d{8}\.h5$")


class Name(NamedTuple):
    """The name of a segment: sequences ``first`` to ``last`` of ``boot``."""

    boot: str
    first: int
    last: int

    @property
    def file(self) -> str:
        """How it is spelt."""
        return f"{self.boot}-{self.first:08d}-{self.last:08d}{SUFFIX}"

    def contains(self, other: "Name") -> bool:
        """Whether all of the other's rows are in this one too."""
        return self.boot == other.boot and self.first <= other.first and other.last <= self.last


def parse_name(file: str) -> Name | None:
    """Read a segment's name; None where it is not one of ours."""
    match = _NAME.fullmatch(file)
    return Name(match[1], int(match[2]), int(match[3])) if match else None


def ram_folder(folders: Folders, sensitivity: Sensitivity, table: str = "") -> str:
    """Where sealed segments wait to be flushed, or the files of a long table."""
    return f"{folders.runtime}/archiver/{sensitivity}{table and '/'}{table}"


def disk_folder(folders: Folders, sensitivity: Sensitivity, tier: str = FINEST_TIER, table: str = "") -> str:
    """Where flushed segments of a tier lie, or the files of a long table."""
    return f"{folders.state}/{sensitivity}/{table}{table and '/'}{tier}"


def ram_folders(folders: Folders) -> list[tuple[Sensitivity, str]]:
    """Class and table of every folder in RAM; no table where wide ones lie together."""
    return [
        (sensitivity, table)
        for sensitivity in Sensitivity
        for table in ("", *_long_tables(ram_folder(folders, sensitivity)))
    ]


def disk_folders(folders: Folders, *, is_long: bool | None = None) -> list[tuple[Sensitivity, str]]:
    """Class and table of every folder on disk that holds tiers; no table where wide ones lie together.

    ``is_long``: only those of long tables, or only that of wide ones.
    """
    return [
        (sensitivity, table)
        for sensitivity in Sensitivity
        for table in ("", *_long_tables(f"{folders.state}/{sensitivity}", *TIERS_NS))
        if is_long is None or is_long == bool(table)
    ]


def long_tables(folders: Folders, classes: Collection[Sensitivity] = tuple(Sensitivity)) -> list[str]:
    """The long tables of these classes of which anything is there, in a ring, in RAM or on disk; sorted."""
    places = [(writer, sensitivity) for writer in (*WRITERS.values(), ARCHIVER) for sensitivity in classes]
    tables = {
        table for writer, sensitivity in places for table in _long_tables(f"{folders.runtime}/{writer}/{sensitivity}")
    }
    return sorted(
        tables.union(table for sensitivity, table in disk_folders(folders) if table and sensitivity in classes)
    )


def _long_tables(folder: str, *within: str) -> list[str]:
    """The long tables that have a folder of their own in that of a class, with one of these folders within."""
    with suppress(OSError), os.scandir(folder) as entries:
        names = [
            entry.name for entry in entries if _TABLE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
        return sorted(
            name
            for name in names
            if len(name) <= NAME_LENGTH_MAX
            and (not within or any(os.path.isdir(f"{folder}/{name}/{below}") for below in within))
        )
    return []


def names(folder: str) -> list[Name]:
    """The segments of a folder that count, in order: those contained in a merged one are left out."""
    names_there = sorted(name for file in files(folder) if (name := parse_name(file)))
    return current(names_there)


def files(folder: str) -> list[str]:
    """Every file of a folder that claims to be a segment, whatever its name. An absent folder has none.

    :raises PermissionError: where we may not look. :raises CorruptError: where the folder cannot be read.
    """
    return listing.files(folder, SUFFIX)


def strangers(folder: str) -> list[str]:
    """What is called like a segment and is no file: folders, pipes, links to nowhere. Nobody reads or removes them.

    :raises PermissionError: as ``files``. :raises CorruptError: as ``files``.
    """
    return listing.strangers(folder, SUFFIX)


def current(names: Iterable[Name]) -> list[Name]:
    """Leave out the names that another one contains."""
    outermost: list[Name] = []
    for name in sorted(names, key=lambda name: (name.boot, name.first, -name.last)):
        if not (outermost and outermost[-1].contains(name)):
            outermost.append(name)
    return outermost


def missing(folders: Folders, table: str = "") -> list[Name]:
    """The numbers that no segment has, or no file of a long table, of whatever class: see ``missing_of``.

    :raises PermissionError: where we may not look. :raises CorruptError: where a folder cannot be read.
    """
    places = [
        place(folders, sensitivity, table=table) for sensitivity in Sensitivity for place in (ram_folder, disk_folder)
    ]
    return list(missing_of(name for folder in places for file in files(folder) if (name := parse_name(file))))


def missing_of(names: Iterable[Name]) -> Iterator[Name]:
    """The numbers between the files of a boot that none has, those that follow each other as one name.

    Each file is given the next number. One is passed over where a job died, which costs no row.
    """
    last: Name | None = None
    for name in sorted(names):
        if last and last.boot == name.boot and name.first > last.last + 1:
            yield Name(name.boot, last.last + 1, name.first - 1)
        if last is None or last.boot != name.boot or name.last > last.last:
            last = name


def spelled_missing(missing: Name) -> str:
    """Say it as a reason."""
    first = missing._replace(last=missing.first)
    return f"{missing.last - missing.first + 1} of its files missing, the first {first.file}"


def superseded(folder: str) -> list[Name]:
    """The segments whose rows a merged one holds too: what a merge that was interrupted left behind."""
    names_there = {name for file in files(folder) if (name := parse_name(file))}
    return sorted(names_there - set(current(names_there)))


def remove_superseded(folder: str, is_whole: Callable[[str], bool]) -> None:
    """Remove what an interrupted merge left behind, once the merged file proves whole."""
    there = names(folder)
    proven: dict[Name, bool] = {}
    for name in superseded(folder):
        larger = next(other for other in there if other.contains(name))
        if larger not in proven:
            proven[larger] = is_whole(f"{folder}/{larger.file}")
        path = f"{folder}/{name.file}"
        if proven[larger] and not is_refused(path):
            os.unlink(path)


def next_sequence(boot: str, folders: Folders, table: str = "") -> int:
    """Give a sequence number of a boot that no segment has, in RAM or on disk; each is given once.

    The files of each long ``table`` have numbers of their own. The disk is looked at for the first of them only: even
    listing a folder may wake it, and write to it.
    """
    path = f"{folders.runtime}/archiver/{SEQUENCES_FILE}"
    given: dict[str, int] = {}
    with suppress(OSError, CorruptError):
        given = note.read(path, lambda noted: {name: note.integer(last) for name, last in note.fields(noted).items()})
    of = f"{boot} {table}".rstrip()
    given[of] = given[of] + 1 if of in given else free_sequence(boot, folders, table)
    with suppress(OSError):
        note.write(path, given)
    return given[of]


def free_sequence(boot: str, folders: Folders, table: str = "") -> int:
    """The first sequence number of a boot that no segment has or had, in RAM or on disk.

    A tier tells by these numbers which rows it has: those of segments that are gone are not given again.
    """
    used = [0]
    for sensitivity in Sensitivity:
        places = [disk_folder(folders, sensitivity, tier, table) for tier in (*TIERS_NS, EVENTS)]
        for folder in (ram_folder(folders, sensitivity, table), *places):
            with suppress(PermissionError, CorruptError):
                claiming = [*files(folder), *strangers(folder)]
                used += [int(last) for file in claiming for last in _LAST.findall(file) if _is_of(boot, file)]
    return max(used) + 1


def _is_of(boot: str, file: str) -> bool:
    """Whether the last rows that a file's name tells of are of this boot."""
    match = _LAST_BOOT.search(file)
    return match is not None and match[1] == boot


def publish(folder: str, file: str, content: bytes, mode: int) -> None:
    """Make a file visible, whole, synced, under its name; nothing is overwritten.

    :raises FileExistsError: where there is another thing of this name. :raises OSError: as the disk says.
    """
    path = f"{folder}/{file}"
    if os.path.lexists(path):
        if not os.path.isfile(path):
            raise FileExistsError(errno.EEXIST, "what has this name is not a file", path)
        if _read(path) != content:
            raise FileExistsError(errno.EEXIST, "another segment has this name", path)
        sync_folder(folder)  # Published before, but perhaps not durably.
        return
    note.put(path, content, mode=mode, lasting=True)


def replace(folder: str, files: Iterable[str], file: str, content: bytes, mode: int) -> None:
    """Put one file in the place of several: they go when it is there.

    :raises OSError: as ``publish``.
    """
    publish(folder, file, content, mode)
    for old in files:
        if old != file:
            os.unlink(f"{folder}/{old}")
    sync_folder(folder)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class Flushed(NamedTuple):
    """What a flush did: files and bytes that are on disk now."""

    files: int
    bytes: int


def flush(
    folders: Folders,
    make_room: Callable[[str, int], object] = lambda _tier, _bytes: None,
    make_long_room: Callable[[str, int], object] = lambda _tier, _bytes: None,
) -> Flushed:
    """Copy every sealed segment from RAM to disk, oldest first, and only then let go of the copy in RAM.

    ``make_room``, and for files of long tables ``make_long_room``, is called before each, with the tier and how many
    bytes will come.

    :raises OSError: where the disk refuses; what was not copied stays in RAM. :raises Error: where something else is in
        the place of a folder, or nobody can read it; all others are copied first.
    """
    count = size = 0
    problem: Error | None = None
    for sensitivity, table in ram_folders(folders):
        try:
            for copied in _flush_folder(folders, sensitivity, table, make_long_room if table else make_room):
                count += 1
                size += copied
        except Error as refusal:
            problem = refusal
    if problem is not None:
        raise problem
    return Flushed(count, size)


def _flush_folder(
    folders: Folders, sensitivity: Sensitivity, table: str, make_room: Callable[[str, int], object]
) -> Iterator[int]:
    """Copy what waits of one class, or of a long table; gives the bytes of each file that is on disk now."""
    source, target = ram_folder(folders, sensitivity, table), disk_folder(folders, sensitivity, FINEST_TIER, table)
    for name in names(source):
        path = f"{source}/{name.file}"
        if is_refused(path):
            continue
        content = _read(path)
        if table:
            create_stream(folders.state, f"{sensitivity}/{table}")
            create_stream(folders.state, f"{sensitivity}/{table}/{FINEST_TIER}")
        make_room(FINEST_TIER, len(content))
        _publish_flushed(folders, target, name, content, FILE_MODES[sensitivity], table)
        os.unlink(path)
        yield len(content)


def is_refused(path: str) -> bool:
    """Whether a file is there at which nobody can look: then nobody reads, replaces or removes it either."""
    try:
        listing.look(path)
    except FileNotFoundError:
        return False
    except CorruptError:
        return True
    return False


def _publish_flushed(folders: Folders, target: str, name: Name, content: bytes, mode: int, table: str = "") -> None:
    """Publish under its name, or under a free one where the disk was not there when the sequence was chosen.

    An earlier run had used that sequence then; a merged file that seems to contain it does not.
    """
    there = {other for file in files(target) if (other := parse_name(file))}
    with suppress(FileExistsError):
        is_again = name in there and not is_refused(f"{target}/{name.file}")
        if is_again or not any(other.contains(name) for other in there):
            publish(target, name.file, content, mode)
            return
    free = Name(name.boot, sequence := free_sequence(name.boot, folders, table), sequence)
    publish(target, free.file, content, mode)


def remove_temporary(folder: str) -> None:
    """Remove what an interrupted writer left unfinished; call it only as the folder's one writer."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for file in os.listdir(folder):
            if file.endswith(SUFFIX + TEMPORARY_SUFFIX):
                with suppress(OSError):
                    os.unlink(f"{folder}/{file}")


def is_fresh(written_ns: int) -> bool:
    """Whether a file was written so lately that it may still be merged."""
    return abs(time.time_ns() - written_ns) < MERGE_AGE_NS


class Candidate(NamedTuple):
    """A segment on disk as the merge plan sees it.

    ``day``: UTC day of its first tick, since 1970; None for one that must stay as it is. ``tables``: what it
    declares, by name. ``is_rolled_up``: whether all tiers have its rows. ``weight_bytes``: as how many bytes it counts
    in a file, where these are more.
    """

    name: Name
    size_bytes: int
    day: int | None
    tables: Mapping[str, object]
    is_rolled_up: bool = True
    weight_bytes: int = 0


class _Measured(Protocol):
    """What has a size."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""


_Sized = TypeVar("_Sized", bound=_Measured)


def parting(folders: Folders, table: str = "") -> list[Candidate]:
    """A candidate that must stay for every number that no file has.

    A merged one would hide that it is missing, and have it removed as its own, if it came back.
    """
    with suppress(PermissionError, CorruptError):
        return [Candidate(name, 0, None, {}) for name in missing(folders, table)]
    return []


def plan_merges(
    candidates: Iterable[Candidate], boot: str, largest_bytes: int = FILE_BYTES_MAX, *, keeps_newest: bool = False
) -> list[list[Name]]:
    """Choose which neighbouring segments become one file: of one boot and one day, within the size of a file.

    Of today as ``grown`` says; all that is left of a day when a later one has begun, or another ``boot``. A segment
    that must stay separates its neighbours: the name of a merged file says that it replaces all between its first and
    its last. ``keeps_newest``: of today the newest stays by itself.
    """
    ordered = sorted(candidates, key=lambda candidate: candidate.name)
    runs = [list(run) for _, run in groupby(ordered, key=lambda candidate: (candidate.name.boot, candidate.day))]
    merges: list[list[Candidate]] = []
    for run, following in zip_longest(runs, runs[1:]):
        if run[0].day is None:
            continue
        if run[0].name.boot != boot or (following is not None and following[0].name.boot == boot):
            merges += _of_a_past_day(run, largest_bytes)
        else:
            merges += grown(run[:-1] if keeps_newest else run, partial(_fits, largest_bytes=largest_bytes))
    return [[member.name for member in group] for group in merges if len(group) > 1]


def grown(run: Sequence[_Sized], fits: Callable[[Sequence[_Sized], _Sized], bool]) -> list[list[_Sized]]:
    """Which neighbours of a run, to which newer ones will be added, become one file: groups of several, in order.

    From the newest on, whatever is no larger than all after it together: so there are as many files as their number has
    binary digits, and a row is rewritten as often. What is small anyway is always joined: most of it explains the rest.
    ``fits``: whether one may go before a group.
    """
    groups: list[list[_Sized]] = []
    size_bytes = 0
    for candidate in reversed(run):
        is_small = candidate.size_bytes <= max(size_bytes, SMALL_BYTES)
        if groups and is_small and fits(groups[-1], candidate):
            groups[-1].insert(0, candidate)
            size_bytes += candidate.size_bytes
        else:
            groups.append([candidate])
            size_bytes = candidate.size_bytes
    return [group for group in reversed(groups) if len(group) > 1]


def _of_a_past_day(run: Sequence[Candidate], largest_bytes: int) -> list[list[Candidate]]:
    groups: list[list[Candidate]] = []
    for candidate in run:
        if groups and _fits(groups[-1], candidate, largest_bytes):
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
    return groups


def _fits(group: Sequence[Candidate], candidate: Candidate, largest_bytes: int) -> bool:
    if candidate.is_rolled_up != group[0].is_rolled_up:
        return False  # What they become would have to be rolled up once more.
    if sum(max(member.size_bytes, member.weight_bytes) for member in (*group, candidate)) > largest_bytes:
        return False
    return all(member.tables.get(name, table) == table for member in group for name, table in candidate.tables.items())
