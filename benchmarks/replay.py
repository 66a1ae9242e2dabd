# SPDX-License-Identifier: Apache-2.0
"""Rings filled with what a daemon just recorded, over and over, its counters going on from where they stood."""

import os
from collections import defaultdict

import numpy as np

from sysmond.clock import SECOND_NS
from sysmond.folders import Folders
from sysmond.model import ABSENT, Semantics
from sysmond.progress import ring_files
from sysmond.result import Int64Array
from sysmond.ring import (
    HEADER_BYTES,
    Kind,
    Layout,
    RingWriter,
    Snapshot,
    decode_instances,
    decode_layout,
    decode_text,
    snapshot,
)


class Replay:
    """One ring for each that was recorded; each has the same tables, intervals and instances."""

    def __init__(self, recorded: Folders, place: Folders) -> None:
        """Take what is in the rings of one runtime folder, to be played into another."""
        self._tracks = []
        for path in ring_files(recorded):
            target = place.runtime + path.removeprefix(recorded.runtime)
            self._tracks.append(_Track(snapshot(path), target, os.path.getsize(path) - HEADER_BYTES))

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

    def __init__(self, taken: Snapshot, path: str, capacity: int) -> None:
        layouts: dict[int, Layout] = {}
        instances: dict[int, tuple[int, tuple[str, ...]]] = {}
        payloads: dict[int, dict[int, memoryview]] = defaultdict(dict)
        texts: list[str] = []
        for frame in taken.frames:
            match frame.kind:
                case Kind.LAYOUT:
                    layouts[frame.ident] = decode_layout(frame.payload)
                case Kind.INSTANCES:
                    instances[frame.ident] = decode_instances(frame.payload)
                case Kind.TEXT:
                    texts.append(decode_text(frame.payload)[1])
                case Kind.ROWS:
                    payloads[frame.ident][frame.tick_ns] = frame.payload
                case _:
                    pass  # Clocks and absences cost next to nothing.
        self._tables = [
            _Repeated(table, instances[ident][1], layouts[table], np.array([np.frombuffer(p, np.int64) for p in rows]))
            for ident, table, rows in (
                (ident, instances[ident][0], [by_tick[tick] for tick in sorted(by_tick)])
                for ident, by_tick in _newest(payloads, instances).items()
            )
        ]
        self._now_s = 0
        self.ring = RingWriter(path, capacity, taken.identity, [layouts[index] for index in sorted(layouts)])
        for text in dict.fromkeys(texts):
            self.ring.text(text)

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self._now_s += 1
            tick_ns = self._now_s * SECOND_NS
            for table in self._tables:
                if tick_ns % table.interval_ns == 0:
                    self.ring.rows(table.index, tick_ns, table.names, table.row(tick_ns // table.interval_ns))


def _newest(
    payloads: dict[int, dict[int, memoryview]], instances: dict[int, tuple[int, tuple[str, ...]]]
) -> dict[int, dict[int, memoryview]]:
    """Of every table only the instances that it has had for longest."""
    chosen: dict[int, int] = {}
    for ident, by_tick in payloads.items():
        table = instances[ident][0]
        if table not in chosen or len(by_tick) > len(payloads[chosen[table]]):
            chosen[table] = ident
    return {ident: payloads[ident] for ident in chosen.values()}


class _Repeated:
    """The rows of a table, again and again."""

    def __init__(self, index: int, names: tuple[str, ...], layout: Layout, rows: Int64Array) -> None:
        self.index = index
        self.names = names
        self.interval_ns = layout.interval_ns
        counts = [metric.semantics is Semantics.COUNTER for metric in layout.table.metrics] * len(names)
        self._rows = rows
        # From the last row back to the first, a counter grows by its average.
        grown = rows[-1] - rows[0]
        self._cycle = np.where(counts & (rows != ABSENT).all(axis=0), grown + grown // max(1, len(rows) - 1), 0)

    def row(self, number: int) -> list[int]:
        cycle, place = divmod(number, len(self._rows))
        row: list[int] = (self._rows[place] + cycle * self._cycle).tolist()
        return row
