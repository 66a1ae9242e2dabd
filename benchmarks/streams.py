# SPDX-License-Identifier: Apache-2.0
"""What a running daemon writes into the rings of its long tables, watched from beside it without losing a reading."""

import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from sysmond.base.model import Table
from sysmond.machine.folders import Folders
from sysmond.records import codes, record_bytes
from sysmond.ring.frame import FULL, MORE, RECORDS, RECORDS_HEAD, frame_bytes
from sysmond.ring.progress import stream_files
from sysmond.ring.snapshot import Snapshot, snapshot

LOOK_S = 1.0


class Reading(NamedTuple):
    """One reading of a table, all its frames together."""

    tick_ns: int
    full: bool
    records: int
    frame_bytes: int
    lost: int
    walked: int


class Watch:
    """Follows one table. ``readings``: those seen so far; ``overwritten``: bytes that were gone before we looked."""

    def __init__(self, folders: Folders, table: Table, metric: str = "") -> None:
        """``metric``: a text of the records by which they are counted in ``counted``."""
        self.readings: list[Reading] = []
        self.counted: Counter[bytes] = Counter()
        self.overwritten = 0
        self._folders = folders
        self._table = table
        self._stride = record_bytes(table)
        self._place = [column.name for column in table.metrics].index(metric) if metric else -1
        self._seen: dict[str, int] = {}
        self._begun: Reading | None = None
        assert len(codes(table)) == len(table.metrics)

    def look(self) -> None:
        """Read what has come since the last look."""
        for path in stream_files(self._folders):
            if path.split("/")[-2] != self._table.name:
                continue
            since = self._seen.get(path, 0)
            copy = snapshot(path, since)
            self.overwritten += copy.lost
            for place in copy.frames:
                if place + copy.begin_offset >= since:
                    self._frame(copy, place)
            self._seen[path] = copy.end_offset

    def watch(self, seconds: float) -> None:
        """Look again and again, for so long."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))
            self.look()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again beside what the block does: a ring does not hold all that comes in it."""
        is_over = Event()

        def look() -> None:
            while not is_over.wait(LOOK_S):
                self.look()

        beside = Thread(target=look)
        beside.start()
        try:
            yield
        finally:
            is_over.set()
            beside.join()

    def _frame(self, copy: Snapshot, place: int) -> None:
        kind, _, tick_ns, payload = copy.frame(place)
        if kind != RECORDS:
            return
        count, flags, lost, walked = RECORDS_HEAD.unpack_from(payload)
        length = frame_bytes(len(payload))
        this = Reading(tick_ns, bool(flags & FULL), count, length, lost, walked)
        if (begun := self._begun) is not None and begun.tick_ns == tick_ns:
            this = this._replace(records=begun.records + count, frame_bytes=begun.frame_bytes + length)
        self._begun = this if flags & MORE else None
        if not flags & MORE:
            self.readings.append(this)
        if self._place >= 0 and self._table.packing is not None:
            rows = memoryview(payload)[RECORDS_HEAD.size :][: count * self._stride]
            for row in struct.iter_unpack(self._table.packing.format, rows):
                self.counted[row[self._place].rstrip(b"\0")] += 1

    def since(self, tick_ns: int) -> list[Reading]:
        """The readings from a moment on."""
        return [reading for reading in self.readings if reading.tick_ns >= tick_ns]


def until(watched: Callable[[], bool], limit_s: float, what: str) -> None:
    """Wait for something.

    :raises RuntimeError: where it does not come.
    """
    end_s = time.monotonic() + limit_s
    while not watched():
        if time.monotonic() > end_s:
            raise RuntimeError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.1)
