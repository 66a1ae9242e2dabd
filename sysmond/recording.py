# SPDX-License-Identifier: Apache-2.0
"""What a ring or a file holds, in one shape: blocks of series over a time axis, texts, clocks and gaps.

A **block** is one boot, one writer, one interval: ``ticks`` (int64[time], CLOCK_BOOTTIME nanoseconds)
and any number of series. Values are absolute integers, ``ABSENT`` where there are none.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sysmond.clock import Relation
from sysmond.model import ABSENT, Cause, Sensitivity, Table
from sysmond.result import Int64Array
from sysmond.ring import (
    Frame,
    Kind,
    Layout,
    Snapshot,
    decode_absence,
    decode_clock,
    decode_instances,
    decode_layout,
    decode_text,
)


class Key(NamedTuple):
    """Which series: table, metric and instance by name."""

    table: str
    metric: str
    instance: str


class Strand(NamedTuple):
    """Who put ticks on one time axis: boot, writing part, its start (boot time), interval."""

    boot: str
    writer: str
    started_ns: int
    interval_ns: int


class Hole(NamedTuple):
    """A recorded absence, half-open, in boot time of ``boot``."""

    boot: str
    table: str
    start_ns: int
    end_ns: int
    cause: Cause
    detail: str


class Block(Protocol):
    """Series over one time axis; where the values come from is its own affair."""

    @property
    def strand(self) -> Strand:
        """Who wrote it."""

    @property
    def ticks(self) -> Int64Array:
        """The time axis, strictly increasing."""

    @property
    def keys(self) -> Sequence[Key]:
        """The series, one a row."""

    @property
    def closed(self) -> bool:
        """Whether the writer ended in good order after the last tick."""

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""


class MemoryBlock(NamedTuple):
    """A block whose values are in memory, int64[series, time]."""

    strand: Strand
    ticks: Int64Array
    keys: Sequence[Key]
    matrix: Int64Array
    closed: bool = False

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""
        return self.matrix[list(rows)]


class Recording(NamedTuple):
    """Everything that one ring or file holds. ``clocks``: by boot, in order of time."""

    sensitivity: Sensitivity
    tables: dict[str, Table]
    blocks: Sequence[Block]
    texts: dict[int, str]
    clocks: dict[str, list[Relation]]
    holes: Sequence[Hole]


def of_snapshot(snapshot: Snapshot) -> Recording:
    """Give the contents of a ring, a block an interval."""
    layouts, instances, texts, relations = _explanations(snapshot.frames)
    rows: dict[int, list[Frame]] = defaultdict(list)
    absences: dict[int, list[Frame]] = defaultdict(list)
    for frame in snapshot.frames:
        if frame.kind == Kind.ROWS:
            rows[frame.ident].append(frame)
        elif frame.kind == Kind.ABSENCE:
            absences[frame.ident].append(frame)
    by_interval: dict[int, list[tuple[Table, tuple[str, ...], list[Frame]]]] = defaultdict(list)
    idle: dict[int, list[Frame]] = defaultdict(list)
    for ident, frames in rows.items():
        if ident not in instances or instances[ident][0] not in layouts:
            continue  # Its explanation was overwritten while the ring was copied, and its rows with it.
        table_id, names = instances[ident]
        by_interval[layouts[table_id].interval_ns].append((layouts[table_id].table, names, frames))
    absences = {table_id: frames for table_id, frames in absences.items() if table_id in layouts}
    for table_id, frames in absences.items():
        idle[layouts[table_id].interval_ns] += frames
    identity = snapshot.identity
    blocks = [
        _block(
            Strand(identity.boot, identity.writer, identity.started_ns, interval_ns),
            by_interval.get(interval_ns, []),
            idle.get(interval_ns, []),
            closed=snapshot.closed,
        )
        for interval_ns in sorted(by_interval.keys() | idle.keys())
    ]
    holes = [hole for table_id, frames in absences.items() for hole in _holes(identity.boot, layouts[table_id], frames)]
    return Recording(
        identity.sensitivity,
        {layout.table.name: layout.table for layout in layouts.values()},
        blocks,
        texts,
        {identity.boot: relations},
        holes,
    )


def _explanations(
    frames: Iterable[Frame],
) -> tuple[dict[int, Layout], dict[int, tuple[int, tuple[str, ...]]], dict[int, str], list[Relation]]:
    layouts: dict[int, Layout] = {}
    instances: dict[int, tuple[int, tuple[str, ...]]] = {}
    texts: dict[int, str] = {}
    relations: set[Relation] = set()
    for frame in frames:
        if frame.kind == Kind.LAYOUT:
            if frame.ident not in layouts:
                layouts[frame.ident] = decode_layout(frame.payload)
        elif frame.kind == Kind.INSTANCES:
            if frame.ident not in instances:
                instances[frame.ident] = decode_instances(frame.payload)
        elif frame.kind == Kind.TEXT:
            ident, string = decode_text(frame.payload)
            texts[ident] = string
        elif frame.kind == Kind.CLOCK:
            relations.add(decode_clock(frame.payload))
    return layouts, instances, texts, sorted(relations)


def _block(
    strand: Strand,
    tables: list[tuple[Table, tuple[str, ...], list[Frame]]],
    idle: list[Frame],
    *,
    closed: bool,
) -> MemoryBlock:
    """Put the rows of all tables on one time axis; a table that had none at a tick is absent there."""
    times = [np.fromiter((frame.tick_ns for frame in frames), np.int64, len(frames)) for _, _, frames in tables]
    times.append(np.fromiter((frame.tick_ns for frame in idle), np.int64, len(idle)))
    ticks = np.unique(np.concatenate(times))
    position: dict[Key, int] = {}
    placed: list[tuple[list[int], Int64Array, Int64Array]] = []
    for (table, names, frames), at in zip(tables, times, strict=False):
        keys = [Key(table.name, metric.name, name) for name in names for metric in table.metrics]
        values = np.frombuffer(b"".join([frame.payload for frame in frames]), np.int64)
        rows = [position.setdefault(key, len(position)) for key in keys]
        placed.append((rows, np.searchsorted(ticks, at), values.reshape(len(frames), len(keys)).T))
    matrix = np.full((len(position), len(ticks)), ABSENT, np.int64)
    for rows, columns, values in placed:
        if len(columns) == len(ticks) and rows == list(range(rows[0], rows[0] + len(rows)) if rows else []):
            matrix[rows[0] : rows[0] + len(rows)] = values  # The usual case, by far the fastest.
        elif rows:
            matrix[np.array(rows)[:, None], columns] = values
    return MemoryBlock(strand, ticks, tuple(position), matrix, closed)


def _holes(boot: str, layout: Layout, frames: list[Frame]) -> Iterable[Hole]:
    """Join the absences of neighbouring ticks that have one cause."""
    open_hole: Hole | None = None
    for frame in frames:
        cause, detail = decode_absence(frame.payload)
        end_ns = frame.tick_ns + layout.interval_ns
        if open_hole is not None:
            if (open_hole.cause, open_hole.detail, open_hole.end_ns) == (cause, detail, frame.tick_ns):
                open_hole = open_hole._replace(end_ns=end_ns)
                continue
            yield open_hole
        open_hole = Hole(boot, layout.table.name, frame.tick_ns, end_ns, cause, detail)
    if open_hole is not None:
        yield open_hole
