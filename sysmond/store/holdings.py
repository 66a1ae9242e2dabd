# SPDX-License-Identifier: Apache-2.0
"""Holdings: what there is in rings, in RAM and on disk, of wide tables and of long ones, and which of it a range needs.

Rings are listed first, then RAM, then the disk: data moves that way, so what moves while it is being looked for is
seen twice, never missed. A file is opened when it is asked for. Within a boot files are in the order of their names,
so those that overlap a range are found by looking at few; between boots what counts is what files say themselves.
When a file was written may spare a look at it only where those looked at agree with theirs: an archive may be a copy
with other times. What cannot be read, or may not, is noted here, whoever asks; nobody asks for it again.
"""

import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, Cause, Sensitivity
from sysmond.base.wall_clock import Said
from sysmond.errors import CorruptError, Error, NotPermittedError
from sysmond.machine import listing
from sysmond.machine.folders import Folders
from sysmond.ring.progress import Progress, ring_files
from sysmond.ring.snapshot import Snapshot, snapshot
from sysmond.store import archive, unread
from sysmond.store.archive import Name
from sysmond.store.ring_copies import RingCopies

if TYPE_CHECKING:
    from sysmond.store.alone import SingleFile
    from sysmond.store.of_ring import Hole

# A folder whose files are being merged is listed again, until a listing shows nothing new.
LISTINGS_MAX = 8
# So many files are kept open: each takes half a megabyte of the library's, and a process may often have 1,024.
OPEN_MAX = 256
IDLE_MAX = 32
# Files may be merged or flushed while they are read: so often it is begun anew.
ATTEMPTS_MAX = 5
# A file is written within so much of its last reading, unless the clock was set in between.
WRITTEN_WITHIN_NS = 86_400 * SECOND_NS
# No file was written before 2001: what says so has its time from a clock that was never set, or from nobody.
WRITTEN_MIN_NS = 10**9 * SECOND_NS
# Of how many boots it is asked whether they were written when they say.
SAMPLES = 3

_T = TypeVar("_T")
_C = TypeVar("_C", bound="Closable")
_Chosen = TypeVar("_Chosen")


class Closable(Protocol):
    """An open file."""

    def close(self) -> None:
        """Close it: nothing can be read of it any more."""


class Damage(NamedTuple):
    """A file that could not be read: its name where it has one of ours, its class, why, and where it lies.

    ``modified_ns``: when it was written, which is after all of its rows; 0 where that is not known.
    """

    name: Name | None
    sensitivity: Sensitivity | None
    reason: str
    cause: Cause = Cause.DAMAGED_FILE
    modified_ns: int = 0
    path: str = ""


class Place(NamedTuple):
    """Which files: of a class and tier, of wide tables or of a long ``table``."""

    sensitivity: Sensitivity
    tier: str = FINEST_TIER
    table: str = ""


class Holdings:
    """The rings and folders of some classes.

    ``damages``: what cannot be read of them; ``refused``: what may not be; ``excluded``: the paths of what is damaged,
    and of what an answer leaves out. ``unread``: by path the rings that cannot be read, as holes.
    """

    def __init__(self, folders: Folders, classes: Collection[Sensitivity]) -> None:
        self.folders = folders
        self.classes = tuple(classes)
        self.damages: list[Damage] = []
        self.refused: list[str] = []
        self.excluded: set[str] = set()
        self.unread: dict[str, Hole] = {}
        # A file by itself is all there is then.
        self._alone = _look(folders.state) if os.path.isfile(folders.state) else None

    def tables(self) -> list[str]:
        """The long tables of which anything is there, sorted."""
        if self._alone is None:
            return archive.long_tables(self.folders, self.classes)
        return [self._alone.table] if self._alone.table and self._alone.sensitivity in self.classes else []

    def rings(self, table: str, read: Callable[[Snapshot, int], _T], all_since_ns: int | None = None) -> Iterator[_T]:
        """What rings of wide tables, or of a long one, are read as, of what no file has: from an offset on.

        ``all_since_ns``: also of what files have, from that moment (UTC) on.
        """
        sealed = Progress.read(self.folders).sealed  # Before the rings: what it says is sealed is in a file by now.
        for path in ring_files(self.folders, self.classes, table):
            known = sealed.get(path)
            since = known.offset if known and all_since_ns is None else 0
            if path in self.excluded:
                continue
            copy = (
                partial(snapshot, path, since) if all_since_ns is None else partial(RingCopies.copy, path, all_since_ns)
            )
            with suppress(FileNotFoundError):
                ring = self.attempt(path, lambda copy=copy, since=since: read(copy(), since))  # type: ignore[misc]
                if ring is not None:
                    yield ring
                elif why := self.why(path):
                    self.unread[path] = unread.hole(path, known, why)

    def files(self, place: Place) -> tuple[dict[Name, str], list[str]]:
        """Paths of files by name, those in RAM first; and those without a name of ours, or of several boots."""
        if self._alone is not None:
            if place != self._alone[:3]:
                return {}, []
            return ({self._alone.name: self.folders.state}, []) if self._alone.name else ({}, [self.folders.state])
        named: dict[Name, str] = {}
        others: list[str] = []
        folders = [archive.disk_folder(self.folders, *place)]
        if place.tier == FINEST_TIER:
            folders.insert(0, archive.ram_folder(self.folders, place.sensitivity, place.table))
        for folder in folders:
            for file in self._listed(folder, place.sensitivity):
                if name := archive.parse_name(file):
                    named.setdefault(name, f"{folder}/{file}")
                else:
                    others.append(f"{folder}/{file}")
        return named, others

    def is_elsewhere(self, place: Place, boot: str, since_ns: int) -> bool:
        """Whether there are files of other boots, or of nobody knows which, that were written since a moment (UTC)."""
        named, others = self.files(place)
        last = {name.boot: path for name, path in sorted(named.items()) if name.boot != boot}
        return bool(others) or any(written_ns(path) >= since_ns for path in last.values())

    def _listed(self, folder: str, sensitivity: Sensitivity) -> list[str]:
        """The files of a folder, listed until a listing adds none.

        One listing may miss both a merged file and its sources, where the merge ends while it is made.
        """
        seen: set[str] = set()
        try:
            for _ in range(LISTINGS_MAX):
                new = set(archive.files(folder)) - seen
                seen |= new
                if not new:
                    break
        except PermissionError:
            self.refused.append(folder)
        except CorruptError as damage:
            self.damages.append(Damage(None, sensitivity, str(damage)))
        return sorted(seen)

    def attempt(
        self, path: str, read: Callable[[], _T], name: Name | None = None, sensitivity: Sensitivity | None = None
    ) -> _T | None:
        """Read a source; None where that cannot be, which is noted.

        :raises FileNotFoundError: where it is gone: what has its rows now, a new listing shows.
        """
        try:
            return read()
        except FileNotFoundError:
            raise
        except (NotPermittedError, PermissionError) as refusal:
            self.refused.append(path)
            if sensitivity is Sensitivity.PUBLIC and not self.why(path):
                self.damages.append(Damage(name, sensitivity, str(refusal), Cause.NO_PERMISSION, path=path))
        except (Error, OSError, ValueError) as damage:
            # The library looks before it opens: a file that vanishes in between is no longer there, not damaged.
            modified_ns = written_ns(path)
            reason = str(damage) if path in str(damage) else f"{path}: {damage}"
            self.exclude(Damage(name, sensitivity, reason, modified_ns=modified_ns, path=path))
        return None

    def exclude(self, damage: Damage) -> None:
        """Leave a file out from now on."""
        self.excluded.add(damage.path)
        self.damages.append(damage)

    def left_out(self) -> set[str]:
        """The paths of what is not read, for whatever reason."""
        return self.excluded.union(self.refused)

    def why(self, path: str) -> str:
        """Why a file cannot be read; empty where it can, or is not for everybody."""
        return next((damage.reason for damage in self.damages if damage.path == path), "")


def anew(use: Callable[[], _T]) -> _T:
    """What is made of files: from the beginning where one of them was merged or flushed meanwhile.

    :raises FileNotFoundError: where that happens again and again.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(FileNotFoundError):
            return use()
    return use()


def _look(path: str) -> "SingleFile":
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
    except (CorruptError, PermissionError):
        return 0


Look = Callable[[Name], Said | None]
"""Opens a file and gives what it says of its time; None where it cannot be read."""


class Files(Generic[_C]):
    """The files that are open, the one used last at the end: never more than ``OPEN_MAX``.

    What describes one that was closed meanwhile is kept by whoever asked for it; for its values it is opened again.
    A file never changes; so within ``staying_open`` the last ``IDLE_MAX`` stay open for the next question, unless they
    are gone.
    """

    idle_max: ClassVar[int] = 0
    _idle: ClassVar[OrderedDict[tuple[Callable[[str], Any], str], tuple[tuple[int, ...], Any]]] = OrderedDict()

    def __init__(self, open_file: Callable[[str], _C]) -> None:
        self._open_file = open_file
        self._open: OrderedDict[str, _C] = OrderedDict()
        self._identities: dict[str, tuple[int, ...]] = {}

    def open(self, path: str) -> _C:
        """Open a file, or find it open.

        :raises Error: as what opens it does. :raises FileNotFoundError: where it is gone: what has its rows now, a
            new listing shows.
        """
        if path in self._open:
            self._open.move_to_end(path)
        else:
            # Looked at before it is opened: who replaces it meanwhile is noticed by the next question.
            identity = _identity(path)
            known, idle = self._idle.pop((self._open_file, path), ((), None))
            if idle is not None and known != identity:
                idle.close()
                idle = None
            self._open[path] = self._open_file(path) if idle is None else idle
            self._identities[path] = identity
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        return self._open[path]

    def close(self) -> None:
        """Be done with them all."""
        for path, opened in self._open.items():
            self._idle[self._open_file, path] = self._identities[path], opened
        self._open.clear()
        self.close_idle()

    @classmethod
    def close_idle(cls) -> None:
        """Close those that nobody uses, but for the last ``idle_max`` that are still there."""
        for (opener, path), (identity, opened) in list(cls._idle.items()):
            if len(cls._idle) > cls.idle_max or identity != _identity(path):
                del cls._idle[opener, path]
                opened.close()


@contextmanager
def staying_open() -> Iterator[None]:
    """Leave files open, and copies of rings, from one question to the next, in a program that asks again and again."""
    Files.idle_max = IDLE_MAX
    try:
        with RingCopies.staying():
            yield
    finally:
        Files.idle_max = 0
        Files.close_idle()


def _identity(path: str) -> tuple[int, ...]:
    """What tells a file from another of the same name; nothing where there is none."""
    try:
        there = os.stat(path)
    except OSError:
        return ()
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns


class Boots:
    """The boots of some files, in order of time: as their last files were written, or as all of those say themselves.

    The former where some of them, evenly spread and the oldest among them, say that they end within a day before that.
    ``names``: the files of each, in order.
    """

    def __init__(self, names: Iterable[Name], paths: Mapping[Name, str], look: Look) -> None:
        self._look = look
        self.names: dict[str, list[Name]] = {}
        for name in sorted(names):
            self.names.setdefault(name.boot, []).append(name)
        self._written_ns = {boot: written_ns(paths[mine[-1]]) for boot, mine in self.names.items()}
        order = sorted(self.names, key=self._written_ns.__getitem__)
        is_as_written = all(map(self._agrees, order[:: max(1, len(order) // SAMPLES)]))
        self.order = order if is_as_written else sorted(order, key=self.end_ns)
        self._slack_ns = WRITTEN_WITHIN_NS if is_as_written else 0

    def begin_ns(self, boot: str) -> int:
        """The beginning of a boot in UTC; when it was written, where its first file cannot be read or is empty."""
        return self._span(self.names[boot][0])[0]

    def end_ns(self, boot: str) -> int:
        """The end of a boot in UTC, likewise."""
        return self._span(self.names[boot][-1])[1]

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


def _overlapping(names: Sequence[Name], look: Look, start_ns: int, end_ns: int) -> range:
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


class Shelf(Generic[_T]):
    """The files of one place, each opened once, when it is asked for.

    What another one contains counts only where that one cannot be read. ``paths``: by name, those too that do not
    count.
    """

    def __init__(
        self,
        holdings: Holdings,
        place: Place,
        open_file: Callable[[str, Name | None], _T],
        said: Callable[[_T, str], Said],
    ) -> None:
        """List them. ``open_file``: opens a path; ``said``: what an open file says of the time of a boot."""
        self.paths, self._others = holdings.files(place)
        self._holdings = holdings
        self._sensitivity = place.sensitivity
        self._open_file = open_file
        self._said = said
        self._opened: dict[str, _T | None] = {}

    def _open(self, path: str, name: Name | None) -> _T | None:
        if path not in self._opened:
            self._opened[path] = self._holdings.attempt(
                path, lambda: self._open_file(path, name), name, self._sensitivity
            )
        return self._opened[path]

    def opened(self, names: Iterable[Name]) -> list[_T]:
        """Those of some files that can be read.

        :raises FileNotFoundError: where one is gone; so does whatever opens one.
        """
        return [there for name in names if (there := self._open(self.paths[name], name)) is not None]

    def others(self) -> list[_T]:
        """Those without a name of ours, or of several boots: who knows what they have."""
        return [there for path in self._others if (there := self._open(path, None)) is not None]

    def look(self, name: Name) -> Said | None:
        """What a file says of its time; None where it cannot be read."""
        there = self._open(self.paths[name], name)
        return None if there is None else self._said(there, name.boot)

    def everything(self) -> list[_T]:
        """All that count."""
        return self._settled(self.opened)

    def ends(self, boot: str | None) -> list[_T]:
        """The first and the last file of all, or of a boot."""
        boots = self._boots(name for name in self._counting() if boot in {None, name.boot})
        names = [boots.names[boots.order[0]][0], boots.names[boots.order[-1]][-1]] if boots.order else []
        return self.opened(dict.fromkeys(names))

    def boots(self) -> dict[str, int]:
        """Every boot, and its end in UTC."""
        boots = self._boots(self._counting())
        return {boot: boots.end_ns(boot) for boot in boots.order}

    def reaching(self, start_ns: int, end_ns: int) -> list[list[_T]]:
        """Of each boot that may reach into a range, and of one before and one behind, the files that overlap it.

        With those the one before them.
        """

        def find(names: Sequence[Name]) -> list[list[_T]]:
            boots = self._boots(names)
            of_boots = [boots.names[boot] for boot in boots.reaching(start_ns, end_ns)]
            return [
                self.opened(mine[at] for at in _overlapping(mine, self.look, start_ns, end_ns)) for mine in of_boots
            ]

        return self._settled(find)

    def near(self, start_ns: int, end_ns: int) -> Near:
        """The files near a range, of all boots. A neighbour is the next one that has a reading."""
        return self._settled(lambda names: self._near(names, start_ns, end_ns))

    def _near(self, names: Sequence[Name], start_ns: int, end_ns: int) -> Near:
        boots = self._boots(names)
        reaching = boots.reaching(start_ns, end_ns)
        chosen: list[Name] = []
        is_cut_before, is_cut_behind = boots.order[:1] != reaching[:1], boots.order[-1:] != reaching[-1:]
        for mine in map(boots.names.__getitem__, reaching):
            within = _overlapping(mine, self.look, start_ns, end_ns)
            low, high = within.start, within.stop
            while low > 0 and not self._has_reading(mine[low]):
                low -= 1
            while high < len(mine) and not self._has_reading(mine[high]):
                high += 1
            if low > 0:  # What is before it lies behind files that are left out.
                chosen, is_cut_before = [], True
            chosen += mine[low : high + 1]
            if high + 1 < len(mine):
                is_cut_behind = True
                break
        newest = [boots.names[boot][-1] for boot in boots.order[-1:]]
        self.opened([*chosen, *newest])
        return Near(chosen, newest, is_cut_before, is_cut_behind)

    def _has_reading(self, name: Name) -> bool:
        said = self.look(name)
        return said is not None and said.span_ns() is not None

    def _boots(self, names: Iterable[Name]) -> Boots:
        return Boots(names, self.paths, self.look)

    def _counting(self) -> list[Name]:
        left_out = self._holdings.left_out()
        return archive.current(name for name, path in self.paths.items() if path not in left_out)

    def _settled(self, find: Callable[[Sequence[Name]], _Chosen]) -> _Chosen:
        """What is found among the files that count: anew where others do since one could not be read."""
        while True:
            names, left_out = self._counting(), self._holdings.left_out()
            chosen = find(names)
            if self._holdings.left_out() == left_out or set(self._counting()) <= set(names):
                return chosen
