# SPDX-License-Identifier: Apache-2.0
"""The time line: rings, segments in RAM and segments on disk as one sequence of rows a table.

Sources are taken upstream first (ring, then RAM, then disk): data moves that way, so what moves while it is
being looked for is seen twice, never missed. They are joined by tick: twice is once.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sysmond import archive
from sysmond.archive import Name
from sysmond.clock import Relation
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.folders import Folders
from sysmond.model import ABSENT, Cause, Metric, Sensitivity
from sysmond.progress import Progress, ring_files
from sysmond.recording import Block, Hole, Key, Recording, of_snapshot
from sysmond.result import Int64Array
from sysmond.ring import snapshot
from sysmond.segment import Segment

# A folder whose files are being merged is listed again.
LISTINGS_MAX = 5
# The relation of two clocks is read to within this; finer digits would only be noise.
CLOCK_QUANTUM_NS = 1000


class Lineage(NamedTuple):
    """What shares a sequence of ticks: boot, writing part and interval, over restarts of the part."""

    boot: str
    writer: str
    interval_ns: int


class Damage(NamedTuple):
    """A file that could not be read: its name where it has one of ours, and why."""

    name: Name | None
    reason: str


class Span(NamedTuple):
    """Ticks of one lineage with the values of chosen series, int64[series, tick].

    ``incarnation``: int64[tick], the start of the writer that put it there; ``ends``: for each incarnation,
    whether it ended in good order.
    """

    lineage: Lineage
    ticks: Int64Array
    incarnation: Int64Array
    closed: dict[int, bool]
    keys: Sequence[Key]
    matrix: Int64Array


class Timeline:
    """Everything recorded, opened for reading; close it after use."""

    def __init__(self, folders: Folders) -> None:
        """Open every source; what is unreadable is kept in ``damages``, what we may not read in ``refused``."""
        self.damages: list[Damage] = []
        self.refused: list[str] = []
        self._open: list[Segment] = []
        self._origins: list[tuple[Name | None, Recording]] = []
        self._read_rings(folders)
        for sensitivity in Sensitivity:
            self._read_folder(archive.ram_folder(folders, sensitivity))
        for sensitivity in Sensitivity:
            self._read_folder(archive.disk_folder(folders, sensitivity))
        self.clocks = self._join_clocks()
        self.texts = {ident: text for _, each in self._origins for ident, text in each.texts.items()}
        self.metrics = self._join_metrics()

    def close(self) -> None:
        """Close the files."""
        for opened in self._open:
            opened.close()

    def _read_rings(self, folders: Folders) -> None:
        sealed = Progress.read(folders).sealed  # Before the rings: what it says is sealed is in a segment by now.
        for path in ring_files(folders):
            try:
                since = sealed[path].offset if path in sealed else 0
                self._origins.append((None, of_snapshot(snapshot(path, since))))
            except FileNotFoundError:
                continue
            except PermissionError:
                self.refused.append(path)
            except (ForeignError, CorruptError, OSError) as damage:
                self.damages.append(Damage(None, str(damage)))

    def _read_folder(self, folder: str) -> None:
        done: set[str] = set()
        for _ in range(LISTINGS_MAX):
            try:
                files = set(archive.files(folder)) - done
            except PermissionError:
                self.refused.append(folder)
                return
            vanished = False
            names = [name for file in files if (name := archive.parse_name(file))]
            wanted = {name.file for name in archive.current(names)} | {f for f in files if not archive.parse_name(f)}
            for file in sorted(wanted):
                try:
                    self._read_file(folder, file)
                except FileNotFoundError:
                    vanished = True  # Merged into another meanwhile: look again.
                    continue
                done.add(file)
            if not vanished:
                return

    def _read_file(self, folder: str, file: str) -> None:
        name = archive.parse_name(file)
        try:
            segment = Segment(f"{folder}/{file}")
        except NotPermittedError as refusal:
            self.refused.append(str(refusal))
        except Error as damage:
            self.damages.append(Damage(name, str(damage)))
        else:
            self._open.append(segment)
            self._origins.append((name, segment.recording))

    def _join_clocks(self) -> dict[str, list[Relation]]:
        joined: dict[str, set[Relation]] = {}
        for _, recording in self._origins:
            for boot, relations in recording.clocks.items():
                joined.setdefault(boot, set()).update(relations)
        return {boot: sorted(relations) for boot, relations in joined.items()}

    def _join_metrics(self) -> dict[tuple[str, str], Metric]:
        """Every metric as its newest source declares it."""
        metrics: dict[tuple[str, str], Metric] = {}
        for _, recording in self._origins:
            for table in recording.tables.values():
                for metric in table.metrics:
                    metrics.setdefault((table.name, metric.name), metric)
        return metrics

    def blocks(self) -> Iterator[Block]:
        """Every block that has ticks."""
        for _, recording in self._origins:
            for block in recording.blocks:
                if len(block.ticks):
                    yield block

    def holes(self, tables: Collection[str]) -> Iterator[Hole]:
        """The recorded absences of tables."""
        for _, recording in self._origins:
            for hole in recording.holes:
                if hole.table in tables:
                    yield hole

    def metric_differs(self, key: Key, recording: Recording) -> bool:
        """Whether a source declares a series in another unit or scale than the newest one does."""
        for metric in recording.tables[key.table].metrics:
            if metric.name == key.metric:
                newest = self.metrics[key.table, key.metric]
                return (metric.unit, metric.scale, metric.semantics) != (
                    newest.unit,
                    newest.scale,
                    newest.semantics,
                )
        return True

    def utc_ns(self, boot: str, ticks: Int64Array) -> Int64Array:
        """Wall-clock time of ticks, by the relation that held then; the first known one before any was recorded."""
        relations = self.clocks.get(boot)
        if not relations:
            return ticks
        at = np.array([relation.boottime_ns for relation in relations], np.int64)
        offsets = np.array([relation.realtime_ns - relation.boottime_ns for relation in relations], np.int64)
        offsets = (offsets + CLOCK_QUANTUM_NS // 2) // CLOCK_QUANTUM_NS * CLOCK_QUANTUM_NS
        return ticks + offsets[np.maximum(0, np.searchsorted(at, ticks, side="right") - 1)]

    def suspended_ns(self, boot: str, start_ns: int, end_ns: int) -> int:
        """How long the machine slept between two moments of a boot."""
        relations = self.clocks.get(boot, [])
        if not relations:
            return 0
        at = [relation.boottime_ns for relation in relations]
        first, last = (max(0, int(np.searchsorted(at, moment, side="right")) - 1) for moment in (start_ns, end_ns))
        asleep = [relation.boottime_ns - relation.monotonic_ns for relation in (relations[first], relations[last])]
        return asleep[1] - asleep[0]

    def boots(self) -> list[str]:
        """Every boot with rows, oldest first."""
        first: dict[str, int] = {}
        for block in self.blocks():
            boot = block.strand.boot
            start_ns = int(self.utc_ns(boot, block.ticks[:1])[0])
            first[boot] = min(first.get(boot, start_ns), start_ns)
        return sorted(first, key=lambda boot: first[boot])

    def spans(self, wanted: Sequence[Key], near: Callable[[str, Int64Array], bool]) -> list[Span]:
        """The chosen series, a span a lineage; blocks that are not ``near`` in time are not read.

        :raises CorruptError: never: a block whose values are damaged is left out and kept in ``damages``.
        """
        chosen = set(wanted)
        lineages: dict[Lineage, list[tuple[Name | None, Block, list[int]]]] = {}
        for name, recording in self._origins:
            for block in recording.blocks:
                rows = [row for row, key in enumerate(block.keys) if key in chosen]
                rows = [row for row in rows if not self.metric_differs(block.keys[row], recording)]
                if rows and len(block.ticks) and near(block.strand.boot, block.ticks):
                    strand = block.strand
                    lineage = Lineage(strand.boot, strand.writer, strand.interval_ns)
                    lineages.setdefault(lineage, []).append((name, block, rows))
        return [self._span(lineage, members) for lineage, members in sorted(lineages.items())]

    def _span(self, lineage: Lineage, members: list[tuple[Name | None, Block, list[int]]]) -> Span:
        keys = list(dict.fromkeys(block.keys[row] for _, block, rows in members for row in rows))
        place = {key: index for index, key in enumerate(keys)}
        ticks, first = np.unique(np.concatenate([block.ticks for _, block, _ in members]), return_index=True)
        started = np.concatenate([np.full(len(block.ticks), block.strand.started_ns) for _, block, _ in members])
        matrix = np.full((len(keys), len(ticks)), ABSENT, np.int64)
        closed: dict[int, bool] = {}
        for name, block, rows in members:
            incarnation = block.strand.started_ns
            closed[incarnation] = closed.get(incarnation, False) or block.closed
            try:
                values = block.read(rows)
            except CorruptError as damage:
                self.damages.append(Damage(name, str(damage)))
                continue
            columns = np.searchsorted(ticks, block.ticks)
            targets = [place[block.keys[row]] for row in rows]
            if len(columns) == columns[-1] - columns[0] + 1:
                region = matrix[targets, columns[0] : columns[-1] + 1]
                matrix[targets, columns[0] : columns[-1] + 1] = np.where(values == ABSENT, region, values)
            else:
                where = (np.array(targets)[:, None], columns)
                matrix[where] = np.where(values == ABSENT, matrix[where], values)
        return Span(lineage, ticks, started[first], closed, keys, matrix)

    def damaged_range(self, name: Name) -> tuple[str, int, int | None] | None:
        """Between which ticks the rows of an unreadable segment lay, by its neighbours: boot, after, before."""
        before = [self._last_tick(each) for other, each in self._origins if other and _precedes(other, name)]
        after = [self._first_tick(each) for other, each in self._origins if other and _precedes(name, other)]
        rings = [self._first_tick(each) for other, each in self._origins if other is None]
        return name.boot, max(before, default=0), min([*after, *rings], default=None)

    @staticmethod
    def _last_tick(recording: Recording) -> int:
        return max((int(block.ticks[-1]) for block in recording.blocks if len(block.ticks)), default=0)

    @staticmethod
    def _first_tick(recording: Recording) -> int:
        return min((int(block.ticks[0]) for block in recording.blocks if len(block.ticks)), default=2**62)


def _precedes(one: Name, other: Name) -> bool:
    return one.boot == other.boot and one.last < other.first


def breaks(span: Span, timeline: Timeline) -> Iterable[Hole]:
    """The holes in a span's ticks, each with its cause; ``table`` is left empty: they hold for all of them."""
    interval_ns = span.lineage.interval_ns
    for index in np.flatnonzero(np.diff(span.ticks) > interval_ns * 3 // 2):
        start_ns = int(span.ticks[index]) + interval_ns
        end_ns = int(span.ticks[index + 1])
        before, after = int(span.incarnation[index]), int(span.incarnation[index + 1])
        asleep_ns = timeline.suspended_ns(span.lineage.boot, int(span.ticks[index]), end_ns)
        if asleep_ns * 2 > end_ns - start_ns:
            cause = Cause.SUSPENDED
        elif before == after:
            cause = Cause.LATE_TICK
        else:
            cause = Cause.CLEAN_SHUTDOWN if span.closed.get(before) else Cause.DAEMON_DOWN
        yield Hole(span.lineage.boot, "", start_ns, end_ns, cause, "")


def exists(folders: Folders) -> bool:
    """Whether there is anything to open at all."""
    return os.path.isdir(folders.state) or os.path.isdir(folders.runtime)
