# SPDX-License-Identifier: Apache-2.0
"""What tests of long tables share: a table, a writer of its rings as the lanes are, and what it wrote."""

import os
import random
import struct
from collections.abc import Iterable
from typing import Any

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.machine.folders import Folders, create_stream
from sysmond.records import Records, reference
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store.stretches.stretch import Stretch

SECOND = 10**9
BOOT = "a" * 32
UTC_NS = 20_000 * 86400 * SECOND
RING_BYTES = 256 * 1024

TASK = Table(
    "task",
    (
        Metric("start", "s", Semantics.STATE, "When it started.", 9),
        Metric("pid", "1", Semantics.STATE, "Its number."),
        Metric("cpu", "s", Semantics.COUNTER, "CPU time.", 6),
        Metric("rss", "B", Semantics.GAUGE, "Memory."),
        Metric("comm", "text", Semantics.STATE, "Its name."),
        Metric("line", "text", Semantics.STATE, "Its command line."),
    ),
    "task",
    "Tasks.",
    Packing("<q I 4x q q 16s Q", ("pid", "start")),
)
MOMENT = TASK._replace(name="moment", packing=Packing("<q I 4x q q 16s Q", ("pid", "start"), lasting=False))

Row = tuple[int, int, int | None, int | None, str | None, str | None]
"""start, pid, cpu, rss, comm, line"""

RowsByKey = dict[tuple[int, int, int], Row]
"""By tick, pid and start."""


def packed(rows: Iterable[Row], *, full: bool, lost: int = 0, walked: int = 0) -> Records:
    """Rows as a probe gives them."""
    blob, lines = b"", []
    for start, pid, cpu, rss, comm, line in rows:
        said = None if line is None else line.encode("utf-8", "surrogateescape")
        place = 2**64 - 1 if said is None else reference(len(blob), len(said))
        blob += said or b""
        numbers = [ABSENT if value is None else value for value in (cpu, rss)]
        name = (comm or "").encode("utf-8", "surrogateescape")
        lines.append(struct.pack("<qI4xqq16sQ", start, pid, *numbers, name, place))
    return Records(b"".join(lines), full, lost, walked, blob)


class Tasks:
    """A machine's tasks: they work, come and go; and what there is to say of them at each tick."""

    def __init__(self, count: int, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.rows: dict[int, Row] = {}
        self._next = 1
        for _ in range(count):
            self._begin(0)

    def _begin(self, tick: int) -> None:
        line = None if self._next % 9 == 0 else f"run --number={self._next} caf\udce9" + "x" * (self._next % 40)
        self.rows[self._next] = (10**12 + tick, self._next, self._next**4, 4096, f"task-{self._next % 7}", line)
        self._next += 1

    def tick(self, tick: int) -> list[Row]:
        """Let a second pass; gives the rows that changed."""
        changed = []
        for pid in self.random.sample(sorted(self.rows), max(1, len(self.rows) // 5)):
            start, _, cpu, _, comm, line = self.rows[pid]
            rss = None if self.random.random() < 0.1 else 4096 * self.random.randrange(9)
            self.rows[pid] = (start, pid, (cpu or 0) + self.random.randrange(1000), rss, comm, line)
            changed.append(pid)
        if tick % 7 == 3:
            self.rows.pop(min(self.rows))
            self._begin(tick)
            changed.append(self._next - 1)
        return [self.rows[pid] for pid in changed if pid in self.rows]


class Stream:
    """A writer of the ring of a long table, and what it wrote."""

    def __init__(self, folders: Folders, started: int = 5, **how: Any) -> None:
        writer, self.sensitivity = how.get("writer", "sampler"), how.get("sensitivity", Sensitivity.PUBLIC)
        self.layouts = how.get("layouts", [Layout(TASK, SECOND)])
        identity = Identity(how.get("boot", BOOT), writer, self.sensitivity, how.get("pid", os.getpid()), started)
        stream = f"{self.sensitivity}/{self.layouts[0].table.name}"
        create_stream(f"{folders.runtime}/{writer}", stream)
        self.path = f"{folders.runtime}/{writer}/{stream}/{started}.ring"
        self.ring = RingWriter(self.path, how.get("size", RING_BYTES), identity, self.layouts)
        self.ring.clock(Relation(1, how.get("utc_ns", UTC_NS), 1))
        self.written: RowsByKey = {}
        self.stride = struct.calcsize(self.layouts[0].table.packing.format)

    def write(self, tick: int, rows: list[Row], *, full: bool = False, layout: int = 0) -> None:
        """Write a reading."""
        at_once = self.ring.capacity // 8 // 200 or 1  # A row and its text take less than 200 bytes.
        pieces = [
            packed(rows[at : at + at_once], full=full, walked=len(rows)) for at in range(0, len(rows), at_once)
        ] or [packed([], full=full)]
        assert self.ring.records(layout, tick * SECOND, pieces, self.stride) == 0
        self.written |= {(tick * SECOND, row[1], row[0]): row for row in rows}

    def run(self, tasks: Tasks, ticks: Iterable[int], full_every: int = 10) -> None:
        """Write readings of tasks; every so many a full one, the first in any case."""
        for number, tick in enumerate(ticks):
            changed = tasks.tick(tick)
            is_full = number % full_every == 0
            self.write(tick, list(tasks.rows.values()) if is_full else changed, full=is_full)


def rows_of(stretch: Stretch) -> RowsByKey:
    """The rows of a stretch, as they were written."""
    columns = {metric.name: stretch.column(metric.name).tolist() for metric in stretch.table.metrics}
    ticks = stretch.ticks[stretch.tick_index()].tolist()
    texts = stretch.texts

    def said(code: int) -> str | None:
        return None if code == ABSENT else texts[code]

    def number(value: int) -> int | None:
        return None if value == ABSENT else value

    rows: RowsByKey = {}
    for row, tick in enumerate(ticks):
        start, pid = columns["start"][row], columns["pid"][row]
        rows[tick, pid, start] = (
            start,
            pid,
            number(columns["cpu"][row]),
            number(columns["rss"][row]),
            said(columns["comm"][row]),
            said(columns["line"][row]),
        )
    assert len(rows) == len(ticks)
    return rows
