# SPDX-License-Identifier: Apache-2.0
"""Follows the rings: the newest rows of every table, and exact rates between two of them.

Standard library only: what is shown live must cost less than what it shows. A look at a ring of 8 MiB
takes 10 ms, ``history.select`` over the same seconds several times that, and it opens every file on disk.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from struct import unpack_from
from typing import NamedTuple

from sysmond.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.folders import Folders
from sysmond.frame import (
    ABSENCE,
    FRAME_BYTES,
    LAYOUT,
    NAMES,
    RELATION,
    REST,
    ROWS,
    START,
    TEXT,
    Layout,
    decode_absence,
    decode_clock,
    decode_instances,
    decode_layout,
    decode_text,
)
from sysmond.model import ABSENT, Cause
from sysmond.progress import ring_files
from sysmond.snapshot import Snapshot, snapshot

# So many ticks of a table are kept: the length of a curve.
TICKS_MAX = 120


class Row(NamedTuple):
    """One tick of a table: ``values`` holds the metrics of each of ``names`` in turn."""

    tick_ns: int
    names: tuple[str, ...]
    values: tuple[int, ...]


class Recent:
    """The last ticks of one table of one writer."""

    def __init__(self, layout: Layout) -> None:
        """Begin without any."""
        self.layout = layout
        self.rows: deque[Row] = deque(maxlen=TICKS_MAX)
        self.absence: tuple[Cause, str] | None = None
        self._column = {metric.name: index for index, metric in enumerate(layout.table.metrics)}
        self._width = len(layout.table.metrics)

    def stored(self, row: Row, metric: str, instance: str) -> int | None:
        """One value of a row as it was stored; None where it is absent."""
        if metric not in self._column or instance not in row.names:
            return None
        value = row.values[row.names.index(instance) * self._width + self._column[metric]]
        return None if value == ABSENT else value

    def scaled(self, metric: str) -> float:
        """What one unit of a stored value is worth."""
        return 10.0 ** -self.layout.table.metrics[self._column[metric]].scale

    def rate(self, before: Row, after: Row, metric: str, instance: str) -> float | None:
        """Growth a second between two rows; None where that is unknown, as after a reset."""
        start, end = self.stored(before, metric, instance), self.stored(after, metric, instance)
        if start is None or end is None or after.tick_ns <= before.tick_ns or end < start // 2:
            return None
        # A counter that falls a little was corrected by the kernel and did not grow meanwhile.
        return max(0, end - start) * self.scaled(metric) * SECOND_NS / (after.tick_ns - before.tick_ns)


class Now:
    """What is known at one moment, by table."""

    def __init__(self, tables: dict[str, list[Recent]], texts: dict[int, str], wall_offset_ns: int) -> None:
        """``wall_offset_ns``: what turns a tick into UTC."""
        self._tables = tables
        self._texts = texts
        self.wall_offset_ns = wall_offset_ns

    @property
    def tick_ns(self) -> int | None:
        """The newest tick of all; None before the first."""
        return max((each.rows[-1].tick_ns for each in self._every() if each.rows), default=None)

    @property
    def series(self) -> int:
        """How many series have a value in the newest row of their table."""
        return sum(sum(value != ABSENT for value in each.rows[-1].values) for each in self._every() if each.rows)

    @property
    def absences(self) -> list[tuple[str, Cause, str]]:
        """The tables that had no rows at their newest tick, and why."""
        return sorted((each.layout.table.name, *each.absence) for each in self._every() if each.absence)

    def _every(self) -> Iterator[Recent]:
        for each in self._tables.values():
            yield from each

    def instances(self, table: str) -> list[str]:
        """The instances of the newest row of a table, in its order."""
        return [name for each in self._tables.get(table, []) if each.rows for name in each.rows[-1].names]

    def value(self, table: str, metric: str, instance: str = "") -> float | None:
        """The newest value of a series; None where there is none."""
        for each, stored in self._stored(table, metric, instance):
            return stored * each.scaled(metric)
        return None

    def text(self, table: str, metric: str, instance: str = "") -> str:
        """The newest text of a series; empty where there is none."""
        for _, stored in self._stored(table, metric, instance):
            return self._texts.get(stored, "")
        return ""

    def _stored(self, table: str, metric: str, instance: str) -> Iterator[tuple[Recent, int]]:
        for each in self._tables.get(table, []):
            if each.rows and (stored := each.stored(each.rows[-1], metric, instance)) is not None:
                yield each, stored

    def rate(self, table: str, metric: str, instance: str = "") -> float | None:
        """Growth a second of a counter between its two newest rows."""
        for each in self._tables.get(table, []):
            if len(each.rows) > 1 and (rate := each.rate(each.rows[-2], each.rows[-1], metric, instance)) is not None:
                return rate
        return None

    def rates(self, table: str, metrics: Sequence[str], instance: str, count: int) -> list[float | None]:
        """The sum of several counters' rates over the last ``count`` ticks, oldest first."""
        for each in self._tables.get(table, []):
            if each.rows and instance in each.rows[-1].names:
                rows = list(each.rows)[-count - 1 :]
                return [_sum(each, before, after, metrics, instance) for before, after in pairwise(rows)]
        return []


def _sum(each: Recent, before: Row, after: Row, metrics: Iterable[str], instance: str) -> float | None:
    known = [rate for metric in metrics if (rate := each.rate(before, after, metric, instance)) is not None]
    return sum(known) if known else None


class _Followed:
    """One ring: what explains its rows, and how far it was read."""

    def __init__(self) -> None:
        self.layouts: dict[int, Layout] = {}
        self.instances: dict[int, tuple[int, tuple[str, ...]]] = {}
        self.end_offset = 0


class _Frame(NamedTuple):
    kind: int
    ident: int
    tick_ns: int
    place: int
    end: int


class Follower:
    """Reads what the rings of a runtime folder got since the last time."""

    def __init__(self, folders: Folders) -> None:
        """Begin with what the rings hold."""
        self._folders = folders
        self._rings: dict[str, _Followed] = {}
        self._recent: dict[tuple[str, str], Recent] = {}
        self._texts: dict[int, str] = {}
        self._wall_offset_ns = 0

    def read(self) -> Now:
        """Look at the newest ring of every writer and class."""
        newest: dict[str, str] = {}
        for path in ring_files(self._folders):
            folder, name = os.path.split(path)
            if _started(name) >= _started(os.path.basename(newest.get(folder, ""))):
                newest[folder] = path
        self._rings = {path: self._rings.get(path) or _Followed() for path in newest.values()}
        for path, ring in self._rings.items():
            try:
                self._follow(path, ring)
            except (OSError, Error, ValueError):
                continue  # Not ours to read, or gone meanwhile.
        tables: dict[str, list[Recent]] = {}
        for (_, table), recent in self._recent.items():
            tables.setdefault(table, []).append(recent)
        return Now(tables, self._texts, self._wall_offset_ns)

    def _follow(self, path: str, ring: _Followed) -> None:
        taken = snapshot(path, ring.end_offset)
        ring.end_offset = taken.end_offset
        frames = list(_frames(taken))
        for kind, ident, _, place, end in frames:  # A row may stand before what explains it.
            if kind == LAYOUT and ident not in ring.layouts:
                ring.layouts[ident] = decode_layout(taken.image[place:end])
            elif kind == NAMES and ident not in ring.instances:
                ring.instances[ident] = decode_instances(taken.image[place:end])
            elif kind == TEXT:
                self._texts.update([decode_text(taken.image[place:end])])
            elif kind == RELATION:
                relation = decode_clock(taken.image[place:end])
                self._wall_offset_ns = relation.realtime_ns - relation.boottime_ns
        for each in frames:
            self._take(taken, ring, each)

    def _take(self, taken: Snapshot, ring: _Followed, found: _Frame) -> None:
        if found.kind == ROWS and found.ident in ring.instances:
            layout, names = ring.instances[found.ident]
            if (recent := self._of(taken.identity.writer, ring.layouts.get(layout))) is not None:
                values = unpack_from(f"={(found.end - found.place) // 8}q", taken.image, found.place)
                recent.rows.append(Row(found.tick_ns, names, values))
                recent.absence = None
        elif found.kind == ABSENCE and (recent := self._of(taken.identity.writer, ring.layouts.get(found.ident))):
            recent.absence = decode_absence(taken.image[found.place : found.end])

    def _of(self, writer: str, layout: Layout | None) -> Recent | None:
        """The rows of a table; begun anew where it is declared otherwise than before."""
        if layout is None:
            return None
        key = (writer, layout.table.name)
        if key not in self._recent or self._recent[key].layout != layout:
            self._recent[key] = Recent(layout)
        return self._recent[key]


def _frames(taken: Snapshot) -> Iterator[_Frame]:
    for start in taken.frames:
        length, _ = START.unpack_from(taken.image, start)
        kind, remainder, ident, _, tick_ns = REST.unpack_from(taken.image, start + START.size)
        yield _Frame(kind, ident, tick_ns, start + FRAME_BYTES, start + length - (-remainder & 7))


def _started(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isdigit() else -1
