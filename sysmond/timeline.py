# SPDX-License-Identifier: Apache-2.0
"""The time line: rings, segments in RAM and segments on disk as one sequence of rows a table.

Sources are taken upstream first (ring, then RAM, then disk): data moves that way, so what moves while it is
being looked for is seen twice, never missed. They are joined by tick: twice is once.
"""

import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmond import archive
from sysmond.archive import Name
from sysmond.clock import SECOND_NS, Relation
from sysmond.course import ALWAYS_NS, Course
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.folders import Folders
from sysmond.model import ABSENT, Cause, Metric, Sensitivity
from sysmond.progress import Progress, ring_files
from sysmond.recording import Block, Hole, Key, Recording, of_snapshot
from sysmond.result import Int64Array
from sysmond.segment import Segment
from sysmond.snapshot import snapshot
from sysmond.tracks import Lineage, Member, Run, Source, Track, chosen_rows, join

# A folder whose files are being merged is listed again, until a listing shows nothing new.
LISTINGS_MAX = 8
# So many rows of a block are decoded at once: memory is bounded by what is asked for, not by the block.
BATCH_SERIES = 64
# So many segments are kept open; what describes the others is kept, they are opened again for their values.
OPEN_MAX = 128


class Damage(NamedTuple):
    """A file that could not be read: its name where it has one of ours, its class, and why."""

    name: Name | None
    sensitivity: Sensitivity | None
    reason: str
    cause: Cause = Cause.DAMAGED_FILE


class Span(NamedTuple):
    """The rows of one lineage that answer a question: values of the chosen series, int64[series, tick].

    ``times_ns``: UTC of each tick. The first ticks may lie before the range asked for: there counters stood.
    """

    lineage: Lineage
    ticks: Int64Array
    times_ns: Int64Array
    keys: Sequence[Key]
    matrix: Int64Array


class _Files:
    """The segments that are open, the one used last at the end: never more than ``OPEN_MAX``."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Segment] = OrderedDict()

    def open(self, path: str) -> Segment:
        """Open a segment, or find it open.

        :raises Error: as ``Segment`` does. :raises FileNotFoundError: where it is gone.
        """
        if path in self._open:
            self._open.move_to_end(path)
        else:
            self._open[path] = Segment(path)
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        return self._open[path]

    def close(self) -> None:
        for opened in self._open.values():
            opened.close()


class _FiledBlock:
    """A block of a segment that may have been closed meanwhile."""

    def __init__(self, files: _Files, path: str, number: int, block: Block) -> None:
        self.strand = block.strand
        self.ticks = block.ticks
        self.closed = block.closed
        self._files = files
        self._path = path
        self._number = number
        self._block = block

    @property
    def keys(self) -> Sequence[Key]:
        """The series, one a row."""
        return self._block.keys

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time].

        :raises FileNotFoundError: where the file is gone: what holds its rows now, a new time line finds.
        """
        return self._files.open(self._path).recording.blocks[self._number].read(rows)


class Timeline:
    """Everything recorded, opened for reading; close it after use."""

    def __init__(self, folders: Folders) -> None:
        """Open every source; what is unreadable is kept in ``damages``, what we may not read in ``refused``.

        ``unread`` tells where a readable file has values that are not.
        """
        self.damages: list[Damage] = []
        self.refused: list[str] = []
        self.unread: set[Hole] = set()
        self._files = _Files()
        self._sources: list[Source] = []
        self._read_rings(folders)
        for place in (archive.ram_folder, archive.disk_folder):
            for sensitivity in Sensitivity:
                self._read_folder(place(folders, sensitivity), sensitivity)
        self._courses = self._join_clocks()
        self.texts = {ident: text for source in self._sources for ident, text in source.recording.texts.items()}
        self.metrics = self._join_metrics()
        self.tracks = self._join_blocks()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _read_rings(self, folders: Folders) -> None:
        sealed = Progress.read(folders).sealed  # Before the rings: what it says is sealed is in a segment by now.
        for path in ring_files(folders):
            try:
                since = sealed[path].offset if path in sealed else 0
                self._sources.append(Source(None, of_snapshot(snapshot(path, since))))
            except FileNotFoundError:
                continue
            except PermissionError:
                self.refused.append(path)
            except (ForeignError, CorruptError, OSError, ValueError) as damage:
                self.damages.append(Damage(None, None, str(damage)))

    def _read_folder(self, folder: str, sensitivity: Sensitivity) -> None:
        """Open the segments of a folder, until a listing shows nothing that was not seen before.

        One listing may miss both a merged file and its sources, where the merge ends while it is made.
        """
        done: set[str] = set()
        for _ in range(LISTINGS_MAX):
            try:
                files = set(archive.files(folder)) - done
            except PermissionError:
                self.refused.append(folder)
                return
            if not files:
                return
            done |= files
            named = sorted((name for file in files if (name := archive.parse_name(file))), key=_widest_first)
            whole: Name | None = None
            for name in named:
                # What a merged file contains is left out, unless that one cannot be read.
                contained = whole is not None and whole.contains(name)
                if not contained and self._read_file(f"{folder}/{name.file}", name, sensitivity):
                    whole = name
            for file in sorted(files):
                if archive.parse_name(file) is None:
                    self._read_file(f"{folder}/{file}", None, sensitivity)

    def _read_file(self, path: str, name: Name | None, sensitivity: Sensitivity) -> bool:
        try:
            recording = self._files.open(path).recording
        except FileNotFoundError:
            return False  # Flushed or merged meanwhile: what holds its rows now is listed after it.
        except NotPermittedError as refusal:
            self.refused.append(str(refusal))
            if sensitivity is Sensitivity.PUBLIC:
                self.damages.append(Damage(name, sensitivity, str(refusal), Cause.NO_PERMISSION))
        except Error as damage:
            # The library looks before it opens; a file that vanishes in between is no longer there, not damaged.
            if os.path.lexists(path):
                self.damages.append(Damage(name, sensitivity, str(damage)))
        else:
            blocks = [_FiledBlock(self._files, path, number, each) for number, each in enumerate(recording.blocks)]
            self._sources.append(Source(name, recording._replace(blocks=blocks)))
            return True
        return False

    def _join_clocks(self) -> dict[str, Course]:
        relations: dict[str, set[Relation]] = {}
        grid_ns: dict[str, int] = {}
        for _, recording in self._sources:
            for boot, said in recording.clocks.items():
                relations.setdefault(boot, set()).update(said)
            for block in recording.blocks:
                boot, interval_ns = block.strand.boot, block.strand.interval_ns
                grid_ns[boot] = min(grid_ns.get(boot, SECOND_NS), interval_ns)
        return {boot: Course(said, grid_ns.get(boot, SECOND_NS)) for boot, said in relations.items()}

    def _join_metrics(self) -> dict[tuple[str, str], Metric]:
        """Every metric as its newest source declares it; of several scales the finest, to which others convert."""
        metrics: dict[tuple[str, str], Metric] = {}
        for _, recording in sorted(self._sources, key=lambda source: self._newest_ns(source.recording), reverse=True):
            for table in recording.tables.values():
                for metric in table.metrics:
                    newest = metrics.setdefault((table.name, metric.name), metric)
                    if metric.scale > newest.scale and _same_quantity(metric, newest):
                        metrics[table.name, metric.name] = newest._replace(scale=metric.scale)
        return metrics

    def _newest_ns(self, recording: Recording) -> int:
        return max(
            (self.moment_ns(each.strand.boot, int(each.ticks[-1])) for each in recording.blocks if len(each.ticks)),
            default=-ALWAYS_NS,
        )

    def _join_blocks(self) -> list[Track]:
        members: dict[Lineage, list[Member]] = {}
        for source in self._sources:
            for block in source.recording.blocks:
                if len(block.ticks):
                    strand = block.strand
                    lineage = Lineage(strand.boot, strand.writer, source.recording.sensitivity, strand.interval_ns)
                    members.setdefault(lineage, []).append(Member(source, block))
        tracks = [join(lineage, group) for lineage, group in members.items()]
        order = {boot: index for index, boot in enumerate(self._in_order(tracks))}
        return sorted(tracks, key=lambda track: (order[track.lineage.boot], track.first_ns, track.lineage))

    def keys(self, boot: str | None = None) -> set[Key]:
        """Every series, or those of one boot."""
        return set().union(*(track.keys for track in self.tracks if boot in {None, track.lineage.boot}))

    @property
    def tables(self) -> set[str]:
        """Every table that was declared, with rows or without."""
        return {table for _, recording in self._sources for table in recording.tables}

    def holes(self, tables: Collection[str]) -> Iterator[Hole]:
        """The recorded absences of tables."""
        for _, recording in self._sources:
            for hole in recording.holes:
                if hole.table in tables:
                    yield hole

    def course(self, boot: str) -> Course:
        """How the other clocks stood to a boot's."""
        return self._courses.get(boot, _UNKNOWN)

    def moment_ns(self, boot: str, tick_ns: int) -> int:
        """Wall-clock time of one tick."""
        return self.course(boot).moment_ns(tick_ns)

    def boots(self) -> list[str]:
        """Every boot with rows, oldest first."""
        return list(dict.fromkeys(track.lineage.boot for track in self.tracks))

    def _in_order(self, tracks: Sequence[Track]) -> list[str]:
        """Order boots by their ends: many a boot begins in 1970."""
        last: dict[str, int] = {}
        for track in tracks:
            boot = track.lineage.boot
            last[boot] = max(last.get(boot, -ALWAYS_NS), self.moment_ns(boot, track.last_ns))
        return sorted(last, key=lambda boot: (last[boot], boot))

    def span(self, track: Track, wanted: Collection[Key], start_ns: int, end_ns: int) -> Span | None:
        """Read the wanted series of a track over a range of wall-clock time, with the row before it.

        None where it has no ticks there. A row whose values are damaged is left out and kept in ``unread``.
        """
        low_ns, high_ns = self.course(track.lineage.boot).window(start_ns, end_ns)
        pieces: list[tuple[Run, int, int]] = []
        for run in track.runs:
            low, high = map(int, np.searchsorted(run.ticks, (low_ns, high_ns)))
            if low < high:
                pieces.append((run, low, high))
        if not pieces:
            return None
        run, low, high = pieces[0]
        pieces[0] = run, max(0, low - 1), high
        keys = sorted(wanted)
        chosen = chosen_rows([member for run, _, _ in pieces for member in run.members], wanted)
        ticks = np.concatenate([run.ticks[low:high] for run, low, high in pieces])
        matrix = np.full((len(keys), len(ticks)), ABSENT, np.int64)
        place = {key: index for index, key in enumerate(keys)}
        start = 0
        for run, low, high in pieces:
            part = matrix[:, start : start + high - low]
            start += high - low
            if len(run.members) == 1:
                self._fill_alone(part, low, run.members[0], place, chosen[id(run.members[0].block)])
                continue
            for member in run.members:
                self._fill(part, run.ticks[low:high], member, place, chosen[id(member.block)])
        return Span(track.lineage, ticks, self.course(track.lineage.boot).utc_ns(ticks), keys, matrix)

    def _rows(self, member: Member, rows: dict[Key, int]) -> Iterator[tuple[Key, Int64Array]]:
        """The values of a block's rows in the scale of the newest; a few rows are decoded at a time."""
        wanted = [(key, row, factor) for key, row in rows.items() if (factor := self._factor(member.source, key))]
        for start in range(0, len(wanted), BATCH_SERIES):
            batch = wanted[start : start + BATCH_SERIES]
            for (key, _, factor), values in zip(batch, self._values(member, [row for _, row, _ in batch]), strict=True):
                yield key, values if factor == 1 else np.where(values == ABSENT, ABSENT, values * factor)

    def _fill_alone(
        self, part: Int64Array, low: int, member: Member, place: dict[Key, int], rows: dict[Key, int]
    ) -> None:
        """Put the values of the only block of a run where its ticks are, from its tick ``low`` on."""
        for key, values in self._rows(member, rows):
            part[place[key]] = values[low : low + part.shape[1]]

    def _fill(
        self, part: Int64Array, ticks: Int64Array, member: Member, place: dict[Key, int], rows: dict[Key, int]
    ) -> None:
        """Put a block's values where its ticks are; what another block gave already stays where this one has none."""
        block = member.block
        low, high = map(int, np.searchsorted(block.ticks, (ticks[0], ticks[-1] + 1)))
        columns = np.searchsorted(ticks, block.ticks[low:high])
        for key, values in self._rows(member, rows if low < high else {}):
            there = values[low:high] != ABSENT
            part[place[key], columns[there]] = values[low:high][there]

    def _values(self, member: Member, rows: list[int]) -> Int64Array:
        """Read rows of a block; where one is damaged, the others each by itself."""
        try:
            return member.block.read(rows)
        except CorruptError as damage:
            if len(rows) == 1:
                self._note_unread(member, member.block.keys[rows[0]], str(damage))
                return np.full((1, len(member.block.ticks)), ABSENT, np.int64)
        return np.concatenate([self._values(member, [row]) for row in rows])

    def _note_unread(self, member: Member, key: Key, reason: str) -> None:
        noted = Damage(member.source.name, member.source.recording.sensitivity, reason)
        if noted not in self.damages:
            self.damages.append(noted)
        ticks, strand = member.block.ticks, member.block.strand
        end_ns = int(ticks[-1]) + strand.interval_ns
        self.unread.add(Hole(strand.boot, key.table, int(ticks[0]), end_ns, Cause.DAMAGED_FILE, reason))

    def stands_before(self, track: Track, keys: Collection[Key], before_ns: int) -> dict[Key, tuple[int, int]]:
        """The last value that each series had before a tick, as that value's tick and the value."""
        found: dict[Key, tuple[int, int]] = {}
        for run in reversed(track.runs):
            missing = [key for key in keys if key not in found]
            if not missing:
                break
            if run.ticks[0] < before_ns:
                for member in run.members:
                    for key, stand in self._stands(member, missing, before_ns):
                        found[key] = max(stand, found.get(key, stand))
        return found

    def _stands(self, member: Member, keys: Collection[Key], before_ns: int) -> Iterator[tuple[Key, tuple[int, int]]]:
        ticks = member.block.ticks
        stop = int(np.searchsorted(ticks, before_ns))
        for key, values in self._rows(member, chosen_rows([member], keys)[id(member.block)] if stop else {}):
            there = np.flatnonzero(values[:stop] != ABSENT)
            if len(there):
                yield key, (int(ticks[there[-1]]), int(values[there[-1]]))

    def _factor(self, source: Source, key: Key) -> int:
        """By what a source's integers are multiplied; 0 where it means another quantity by that name."""
        newest = self.metrics[key.table, key.metric]
        for metric in source.recording.tables[key.table].metrics:
            if metric.name == key.metric:
                return int(10 ** (newest.scale - metric.scale)) if _same_quantity(metric, newest) else 0
        return 0

    def redefinitions(self, columns: Collection[tuple[str, str]]) -> list[str]:
        """Say which metrics once meant another quantity; what was recorded as that is left out."""
        said = set()
        for _, recording in self._sources:
            for table in recording.tables.values():
                for metric in table.metrics:
                    newest = self.metrics[table.name, metric.name]
                    if (table.name, metric.name) in columns and not _same_quantity(metric, newest):
                        said.add(
                            f"{table.name}/{metric.name}: once a {metric.semantics} in {metric.unit}, now a "
                            f"{newest.semantics} in {newest.unit}; the older values are left out"
                        )
        return sorted(said)

    def damaged_ticks(self, damage: Damage) -> tuple[int, int] | None:
        """Between which ticks of its boot the rows of an unreadable segment lay, by its neighbours."""
        if damage.name is None:
            return None
        after_ns, before_ns = 0, ALWAYS_NS
        for name, recording in self._sources:
            mine = [block for block in recording.blocks if len(block.ticks) and block.strand.boot == damage.name.boot]
            if not mine or recording.sensitivity is not damage.sensitivity:
                continue
            if name is None or damage.name.last < name.first:
                before_ns = min(before_ns, *(int(block.ticks[0]) for block in mine), ALWAYS_NS)
            elif name.last < damage.name.first:
                after_ns = max(after_ns, *(int(block.ticks[-1]) for block in mine), 0)
        return after_ns, before_ns


def _widest_first(name: Name) -> tuple[str, int, int]:
    return name.boot, name.first, -name.last


def _same_quantity(one: Metric, other: Metric) -> bool:
    return (one.unit, one.semantics) == (other.unit, other.semantics)


_UNKNOWN = Course((), SECOND_NS)
