# SPDX-License-Identifier: Apache-2.0
"""Rings filled with what a daemon just recorded, over and over, its counters going on from where they stood."""

import os
from collections.abc import Sequence

import numpy as np

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Semantics, Table
from sysmond.base.result import Int64Array
from sysmond.machine.folders import Folders
from sysmond.ring.frame import HEADER_BYTES, Identity, Layout
from sysmond.ring.progress import ring_files
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store.of_ring import Block, Recording, SeriesKey, of_snapshot


class Replay:
    """One ring for each that was recorded; each has the same tables, intervals and instances."""

    def __init__(self, recorded: Folders, place: Folders) -> None:
        """Take what is in the rings of one runtime folder, to be played into another."""
        self._tracks = []
        for path in ring_files(recorded):
            recording = of_snapshot(snapshot(path))
            if recording.blocks:
                target = place.runtime + path.removeprefix(recorded.runtime)
                self._tracks.append(_Track(recording, target, os.path.getsize(path) - HEADER_BYTES))

    def advance(self, seconds: int) -> None:
        """Go on by so many seconds."""
        for track in self._tracks:
            track.advance(seconds)

    def close(self) -> None:
        """End in good order."""
        for track in self._tracks:
            track.ring.close()


class _Track:
    """One ring."""

    def __init__(self, recording: Recording, path: str, capacity: int) -> None:
        self._tables = [
            _Repeated(Layout(recording.tables[name], block.strand.interval_ns), block)
            for block in recording.blocks
            for name in dict.fromkeys(key.table for key in block.keys)
        ]
        strand = recording.blocks[0].strand
        identity = Identity(strand.boot, strand.writer, recording.sensitivity, os.getpid(), strand.started_ns)
        self.ring = RingWriter(path, capacity, identity, [table.layout for table in self._tables])
        self.ring.clock(clock.relation())
        for text in recording.texts.values():
            self.ring.text(text)
        self._now_s = 0

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self._now_s += 1
            tick_ns = self._now_s * SECOND_NS
            for index, table in enumerate(self._tables):
                if tick_ns % table.layout.interval_ns == 0:
                    self.ring.rows(index, tick_ns, table.names, table.row(tick_ns // table.layout.interval_ns))


class _Repeated:
    """The rows of a table, again and again."""

    def __init__(self, layout: Layout, block: Block) -> None:
        self.layout = layout
        mine = [key for key in block.keys if key.table == layout.table.name]
        self.names = tuple(dict.fromkeys(key.instance for key in mine))
        self._rows = _matrix(layout.table, self.names, block)
        # From the last row back to the first, a counter grows by its average.
        grown = self._rows[-1] - self._rows[0]
        counts = [metric.semantics is Semantics.COUNTER for metric in layout.table.metrics] * len(self.names)
        steady = np.array(counts) & (self._rows != ABSENT).all(axis=0)
        self._cycle = np.where(steady, grown + grown // max(1, len(self._rows) - 1), 0)

    def row(self, number: int) -> list[int]:
        cycle, place = divmod(number, len(self._rows))
        row: list[int] = (self._rows[place] + cycle * self._cycle).tolist()
        return row


def _matrix(table: Table, names: Sequence[str], block: Block) -> Int64Array:
    """Values as a writer wants them, int64[time, instance × metric]."""
    place = {key: row for row, key in enumerate(block.keys)}
    wanted = [place.get(SeriesKey(table.name, metric.name, name), -1) for name in names for metric in table.metrics]
    there = [column for column, row in enumerate(wanted) if row >= 0]
    matrix = np.full((len(block.ticks), len(wanted)), ABSENT, np.int64)
    matrix[:, there] = block.read([wanted[column] for column in there]).T
    return matrix
