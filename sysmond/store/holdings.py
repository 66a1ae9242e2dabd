# SPDX-License-Identifier: Apache-2.0
"""Holdings: what there is in rings, in RAM and on disk, listed upstream first, and which of it a range of time needs.

Data moves from a ring to RAM to the disk, so what moves while it is being looked for is seen twice, never missed.
Nothing is opened by listing it. Within a boot files are in the order of their names, so those that overlap a range
are found by looking at few; between boots what counts is what files say themselves. When a file was written may
spare a look at it only where those looked at agree with theirs: an archive may be a copy with other times.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, Cause, Sensitivity
from sysmond.base.wall_clock import Said
from sysmond.errors import CorruptError
from sysmond.machine import listing
from sysmond.machine.folders import Folders
from sysmond.ring.progress import Progress, Sealed, ring_files, stream_files
from sysmond.store import archive
from sysmond.store.archive import Name

if TYPE_CHECKING:
    from sysmond.store.alone import Alone

# A folder whose files are being merged is listed again, until a listing shows nothing new.
LISTINGS_MAX = 8
# A file is written within so much of its last reading, unless the clock was set in between.
WRITTEN_WITHIN_NS = 86_400 * SECOND_NS
# No file was written before 2001: what says so has its time from a clock that was never set, or from nobody.
WRITTEN_MIN_NS = 10**9 * SECOND_NS
# Of how many boots it is asked whether they were written when they say.
SAMPLES = 3


class Damage(NamedTuple):
    """A file that could not be read: its name where it has one of ours, its class, and why.

    ``modified_ns``: when it was written, which is after all of its rows; 0 where that is not known.
    """

    name: Name | None
    sensitivity: Sensitivity | None
    reason: str
    cause: Cause = Cause.DAMAGED_FILE
    modified_ns: int = 0


class Holdings:
    """The rings and folders of some classes. ``damages``: what cannot be read of them; ``refused``: what may not be."""

    def __init__(self, folders: Folders, classes: Collection[Sensitivity]) -> None:
        self.folders = folders
        self.classes = tuple(classes)
        self.damages: list[Damage] = []
        self.refused: list[str] = []
        # A file by itself is all there is then.
        self._alone = _look(folders.state) if os.path.isfile(folders.state) else None

    def tables(self) -> list[str]:
        """The long tables of which anything is there, sorted."""
        if self._alone is None:
            return archive.long_tables(self.folders, self.classes)
        return [self._alone.table] if self._alone.table and self._alone.sensitivity in self.classes else []

    def places(self, sensitivity: Sensitivity, tier: str, table: str = "") -> list[str]:
        """The folders where files of a class and tier may be, those of wide tables or of a long one; RAM first."""
        if self._alone is not None:
            is_there = (sensitivity, tier, table) == self._alone[:3]
            return [os.path.dirname(self.folders.state)] if is_there else []
        on_disk = archive.disk_folder(self.folders, sensitivity, tier, table)
        return [archive.ram_folder(self.folders, sensitivity, table), on_disk] if tier == FINEST_TIER else [on_disk]

    def rings(self, table: str = "") -> Iterator[tuple[str, Sealed | None]]:
        """The rings of wide tables, or of a long one, and how far each is in files."""
        sealed = Progress.read(self.folders).sealed  # Before the rings: what it says is sealed is in a file by now.
        if not table:
            paths = ring_files(self.folders, self.classes)
        else:
            paths = [path for path in stream_files(self.folders, self.classes) if table_of(path) == table]
        for path in paths:
            yield path, sealed.get(path)

    def listings(self, folder: str, sensitivity: Sensitivity | None = None) -> Iterator[list[str]]:
        """The files of a folder, sorted: all there are, then those that further listings add, until one adds none.

        One listing may miss both a merged file and its sources, where the merge ends while it is made.
        """
        seen: set[str] = set()
        for _ in range(LISTINGS_MAX):
            try:
                new = {os.path.basename(self.folders.state)} if self._alone else set(archive.files(folder))
                new -= seen
            except PermissionError:
                self.refused.append(folder)
                return
            except CorruptError as damage:
                self.damages.append(Damage(None, sensitivity, str(damage)))
                return
            if not new:
                return
            seen |= new
            yield sorted(new)

    def names(self, folder: str, sensitivity: Sensitivity | None = None) -> dict[Name, str]:
        """The files of a folder that have a name of ours, with their paths."""
        if self._alone is not None:
            return {self._alone.name: self.folders.state} if self._alone.name else {}
        files = (file for new in self.listings(folder, sensitivity) for file in new)
        return {name: f"{folder}/{file}" for file in files if (name := archive.parse_name(file))}


def _look(path: str) -> "Alone":
    from sysmond.store import alone  # noqa: PLC0415  most archives are folders

    return alone.look(path)


def table_of(ring: str) -> str:
    """The long table whose ring lies at a path."""
    return os.path.basename(os.path.dirname(ring))


def written_ns(path: str) -> int:
    """When a file was written, UTC; 0 where nobody can look at it.

    :raises FileNotFoundError: where it is gone.
    """
    try:
        return listing.look(path).written_ns
    except CorruptError:
        return 0


Look = Callable[[Name], Said | None]
"""Opens a file and gives what it says of its time; None where it cannot be read."""


class Boots:
    """The boots of some files, in order of time: as their last files were written, or as all of those say themselves.

    The former where some of them, evenly spread and the oldest among them, say that they end within a day before that.
    """

    def __init__(self, names: Mapping[Name, str], look: Look) -> None:
        self._look = look
        self._last = {name.boot: name for name in sorted(names)}
        self._first = {name.boot: name for name in sorted(names, reverse=True)}
        self._written_ns = {boot: written_ns(names[name]) for boot, name in self._last.items()}
        order = sorted(self._last, key=self._written_ns.__getitem__)
        is_as_written = all(map(self._agrees, order[:: max(1, len(order) // SAMPLES)]))
        self.order = order if is_as_written else sorted(order, key=self.end_ns)
        self._slack_ns = WRITTEN_WITHIN_NS if is_as_written else 0

    def begin_ns(self, boot: str) -> int:
        """The beginning of a boot in UTC; when it was written, where its first file cannot be read or is empty."""
        return self._span(self._first[boot])[0]

    def end_ns(self, boot: str) -> int:
        """The end of a boot in UTC, likewise."""
        return self._span(self._last[boot])[1]

    def _span(self, name: Name) -> tuple[int, int]:
        said = self._look(name)
        return (said.span_ns() if said else None) or (self._written_ns[name.boot],) * 2

    def _agrees(self, boot: str) -> bool:
        written_ns = self._written_ns[boot]
        return written_ns >= WRITTEN_MIN_NS and -SECOND_NS <= written_ns - self.end_ns(boot) <= WRITTEN_WITHIN_NS

    def reaching(self, start_ns: int, end_ns: int) -> list[str]:
        """Those that may reach into a range, the last before them, and the first behind them."""
        low = max(0, bisect_left(self.order, start_ns - self._slack_ns, key=self.end_ns) - 1)
        boots = self.order[low : low + 1]
        for boot in self.order[low + 1 :]:
            boots.append(boot)
            if self.begin_ns(boot) >= end_ns + self._slack_ns:
                break
        return boots


def overlapping(names: Sequence[Name], look: Look, start_ns: int, end_ns: int) -> range:
    """Which files of a boot, in order of their names, overlap a range, as indexes; found by looking at few of them.

    What cannot be read, or has no reading, is passed over. With them the one before, and those without a reading after
    them: they tell that a writer ended. Where the wall clock was set they may not be in order: then it is all of them.
    """
    offsets: set[int] = set()

    def span(number: int) -> tuple[int, int] | None:
        said = look(names[number])
        if said is None:
            return None
        offsets.update(relation.realtime_ns - relation.boottime_ns for relation in said.relations)
        return said.span_ns()

    def first(is_late: Callable[[int, int], bool]) -> int:
        """The first file of which that is so."""
        low, high = 0, len(names)
        while low < high:
            middle = (low + high) // 2
            at = middle
            while at < high and span(at) is None:
                at += 1
            there = span(at) if at < high else None
            if there is None or is_late(*there):
                high = middle
            else:
                low = at + 1
        return low

    for number in {0, len(names) - 1} if names else ():
        span(number)
    begin = first(lambda _first_ns, last_ns: last_ns >= start_ns)
    end = first(lambda first_ns, _last_ns: first_ns >= end_ns)
    while end < len(names) and span(end) is None:
        end += 1
    if offsets and max(offsets) - min(offsets) > SECOND_NS:
        return range(len(names))
    return range(max(0, begin - 1), max(begin, end))


class Near(NamedTuple):
    """Files near a range, in order of boots and names: those that overlap it, and their neighbours on both sides.

    ``newest``: the last file of all, which tells what names mean now. ``is_cut_before``, ``is_cut_behind``: whether
    there are others on that side.
    """

    names: list[Name]
    newest: list[Name]
    is_cut_before: bool
    is_cut_behind: bool


def nearest_files(names: Sequence[Name], paths: Mapping[Name, str], look: Look, start_ns: int, end_ns: int) -> Near:
    """Find the files near a range, of all boots. A neighbour is the next one that has a reading."""
    boots = Boots({name: paths[name] for name in names}, look)
    order = boots.order
    reaching = boots.reaching(start_ns, end_ns)
    chosen: list[Name] = []
    is_cut_before, is_cut_behind = order[:1] != reaching[:1], order[-1:] != reaching[-1:]
    for boot in reaching:
        mine = [name for name in names if name.boot == boot]
        within = overlapping(mine, look, start_ns, end_ns)
        low, high = within.start, within.stop
        while low > 0 and not _has_reading(look(mine[low])):
            low -= 1
        while high < len(mine) and not _has_reading(look(mine[high])):
            high += 1
        if low > 0:  # What is before it lies behind files that are left out.
            chosen, is_cut_before = [], True
        chosen += mine[low : high + 1]
        if high + 1 < len(mine):
            is_cut_behind = True
            break
    newest = [max(name for name in names if name.boot == order[-1])] if order else []
    for name in (*chosen, *newest):
        look(name)
    return Near(chosen, newest, is_cut_before, is_cut_behind)


def _has_reading(said: Said | None) -> bool:
    return said is not None and said.span_ns() is not None
