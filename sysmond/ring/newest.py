# SPDX-License-Identifier: Apache-2.0
"""Follows the rings: the newest rows of every table, as their writers go on.

A follower keeps its place in each ring and reads only new frames: a look without any costs a read of five words a
ring, one with a tick of 831 values a tenth of a millisecond. Frames that were overwritten before they were read are
lost; the follower then begins anew with the content of the ring, explanations first.

Standard library only: what is shown live must cost less than what it shows.
"""

import os
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from math import isfinite, nan
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.counters import floor_of
from sysmond.base.formula import FLOATS, Formula, Operand
from sysmond.base.model import ABSENT, Answers, Cause, Derived, Semantics, Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.ring.frame import (
    ABSENCE,
    EVENT,
    EXPLAINING,
    I64,
    LAYOUT,
    NAMES,
    RELATION,
    ROWS,
    SUFFIX,
    TEXT,
    TEXTS_MAX,
    Identity,
    Layout,
    decode_absence,
    decode_clock,
    decode_event,
    decode_instances,
    decode_layout,
    decode_text,
)
from sysmond.ring.progress import ARCHIVER, WRITERS
from sysmond.ring.tail import Tail

# Ticks of a table in memory: the length of a curve.
TICKS_MAX = 120
# Events wait for the next call; of more than this the oldest are dropped.
EVENTS_MAX = 1024
# Texts are repeated in their ring while rows refer to them: one not repeated for so many others is forgotten.
TEXTS_REMEMBERED = 8 * TEXTS_MAX
# A folder that changed less than this ago may change again without a new time of change.
FOLDER_SETTLES_NS = 50_000_000


class TickRow:
    """One tick of a table; its values are decoded when they are read."""

    __slots__ = ("_stored", "names", "tick_ns")

    def __init__(self, tick_ns: int, names: tuple[str, ...], stored: bytes) -> None:
        """``stored``: int64, the metrics of each of ``names`` in turn."""
        self.tick_ns = tick_ns
        self.names = names
        self._stored = stored

    @property
    def values(self) -> tuple[int, ...]:
        """All values."""
        return tuple(self.stored)

    @property
    def stored(self) -> memoryview:
        """The values as stored, by place; ABSENT for none."""
        return memoryview(self._stored).cast("q")

    def at(self, place: int) -> int | None:
        """One value; None where it is absent."""
        value: int = I64.unpack_from(self._stored, place * I64.size)[0]
        return None if value == ABSENT else value


Declared = Callable[[], Mapping[str, Answers]]
"""Gives what tables declare about answers, by name: rings do not say it."""


class Recent:
    """The last ticks of one table of one writer in one class."""

    def __init__(self, identity: Identity, layout: Layout, ticks: int, declared: Declared) -> None:
        """Begin without ticks."""
        self._declared = declared
        self.writer = identity.writer
        self.sensitivity = identity.sensitivity
        self.layout = layout
        self.rows: deque[TickRow] = deque(maxlen=ticks)
        self.absence: tuple[Cause, str] | None = None
        self.lacking: dict[str, tuple[Cause, str]] = {}
        """Why instances have nothing at the newest tick, by ``TABLE@INSTANCE``."""
        self.tick_ns = 0
        """The newest tick, with rows or without."""
        self.columns = {metric.name: index for index, metric in enumerate(layout.table.metrics)}
        self.divisors = [10.0**metric.scale for metric in layout.table.metrics]
        self._width = len(layout.table.metrics)
        self._lacking_ns = 0
        self._names: tuple[str, ...] = ()
        self._first: dict[str, int] = {}

    @cached_property
    def derived_columns(self) -> Mapping[str, Derived]:
        """The derived columns of this table, by name."""
        from sysmond.base import derived_columns  # noqa: PLC0415  who only records needs none of it

        table = self.layout.table
        return derived_columns.of_table(table._replace(answers=self._declared().get(table.name)))

    @cached_property
    def derived(self) -> dict[str, Formula]:
        """The formulas of the derived columns, by name."""
        from sysmond.base import formula  # noqa: PLC0415  as above

        return {name: formula.parse(column.formula) for name, column in self.derived_columns.items()}

    def put(self, row: TickRow) -> None:
        """Add a tick."""
        self.rows.append(row)
        self.absence = None
        if row.tick_ns != self._lacking_ns:
            self.lacking = {}
        self.tick_ns = row.tick_ns

    def lack(self, tick_ns: int, cause: Cause, detail: str) -> None:
        """Note why a tick has no rows, or why one of its instances has nothing; that is told before the rows."""
        if detail.startswith(f"{self.layout.table.name}@"):
            if tick_ns != self._lacking_ns:
                self.lacking, self._lacking_ns = {}, tick_ns
            self.lacking[detail.partition(": ")[0]] = cause, detail
        else:
            self.absence = cause, detail
        self.tick_ns = tick_ns

    def places(self, row: TickRow) -> dict[str, int]:
        """Where in a row each instance begins."""
        if row.names is not self._names:
            self._names = row.names
            self._first = {name: index * self._width for index, name in enumerate(row.names)}
        return self._first

    def is_counter(self, metric: str) -> bool:
        """Whether a metric is a counter."""
        column = self.columns.get(metric)
        return column is not None and self.layout.table.metrics[column].semantics is Semantics.COUNTER

    def stored(self, row: TickRow, metric: str, instance: str) -> int | None:
        """One value of a row as stored; None where it is absent."""
        first, column = self.places(row).get(instance), self.columns.get(metric)
        return None if first is None or column is None else row.at(first + column)

    def value(self, row: TickRow, metric: str, instance: str) -> float | None:
        """One value of a row in the unit of its metric; None where it is absent."""
        stored = self.stored(row, metric, instance)
        return None if stored is None else stored / self.divisors[self.columns[metric]]

    def rate(self, before: TickRow, after: TickRow, metric: str, instance: str) -> float | None:
        """Growth a second between two rows; None where that is unknown, as after a reset."""
        start, end = self.stored(before, metric, instance), self.stored(after, metric, instance)
        if start is None or end is None or (grown := growth(start, end, after.tick_ns - before.tick_ns)) is None:
            return None
        return grown / self.divisors[self.columns[metric]]


def growth(start: int, end: int, length_ns: int) -> float | None:
    """How much a counter grew a second, as stored; None where that is unknown, as after a reset."""
    if length_ns <= 0 or end < floor_of(start):
        return None
    # A counter that falls a little was corrected by the kernel and did not grow meanwhile.
    return max(0, end - start) * SECOND_NS / length_ns


TakeRecords = Callable[[Table, int, bytes], None]
"""Receives a long table, a tick, and the payload of a frame of its records."""
NO_STREAMS: Mapping[str, TakeRecords] = {}


class Happening(NamedTuple):
    """An event as its ring has it, and the class of that ring."""

    boottime_ns: int
    kind: str
    subject: str
    text: str
    sensitivity: Sensitivity


class Now:
    """The newest rows by table; of several writers of one table the one with the newest tick first."""

    def __init__(self, tables: dict[str, list[Recent]], texts: dict[int, str], wall_offset_ns: int) -> None:
        """``wall_offset_ns``: UTC minus boot time."""
        self.tables = tables
        self._texts = texts
        self.wall_offset_ns = wall_offset_ns

    @property
    def tick_ns(self) -> int | None:
        """The newest tick of all; None before the first."""
        return max((recent.rows[-1].tick_ns for recent in self._every() if recent.rows), default=None)

    @property
    def series(self) -> int:
        """How many series have a value in the newest row of their table."""
        return sum(sum(value != ABSENT for value in recent.rows[-1].values) for recent in self._every() if recent.rows)

    @property
    def absences(self) -> list[tuple[str, Cause, str]]:
        """The tables that had no rows at their newest tick, and why."""
        return sorted((recent.layout.table.name, *recent.absence) for recent in self._every() if recent.absence)

    def _every(self) -> Iterator[Recent]:
        for recents in self.tables.values():
            yield from recents

    def instances(self, table: str) -> list[str]:
        """The instances of the newest row of a table, in its order."""
        return [name for recent in self.tables.get(table, []) if recent.rows for name in recent.rows[-1].names]

    def value(self, table: str, metric: str, instance: str = "") -> float | None:
        """The newest value of a series; None where there is none."""
        for recent in self.tables.get(table, []):
            if recent.rows and (value := recent.value(recent.rows[-1], metric, instance)) is not None:
                return value
        return None

    def text(self, table: str, metric: str, instance: str = "") -> str:
        """The newest text of a series; empty where there is none."""
        for recent in self.tables.get(table, []):
            if recent.rows and (stored := recent.stored(recent.rows[-1], metric, instance)) is not None:
                return self.text_of(stored)
        return ""

    def text_of(self, stored: int) -> str:
        """The text of a stored value; empty where it is unknown."""
        return self._texts.get(stored, "")

    def rate(self, table: str, metric: str, instance: str = "") -> float | None:
        """Growth a second of a counter between its two newest rows."""
        for recent in self.tables.get(table, []):
            if (
                len(recent.rows) > 1
                and (rate := recent.rate(recent.rows[-2], recent.rows[-1], metric, instance)) is not None
            ):
                return rate
        return None

    def derived(self, table: str, name: str, instance: str = "") -> float | None:
        """The newest value of a derived column; None where there is none. Counters in it are rates over one tick."""
        return next(reversed(self.course(table, name, instance, 1)), None)

    def course(self, table: str, name: str, instance: str, count: int) -> list[float | None]:
        """A derived column over the last ``count`` ticks, oldest first."""
        for recent in self.tables.get(table, []):
            if recent.rows and instance in recent.rows[-1].names and name in recent.derived:
                rows = list(recent.rows)[-count - 1 :]
                pairs = pairwise(rows) if len(rows) > 1 else [(rows[0], rows[0])]
                return [self._computed(recent, pair, recent.derived[name], instance) for pair in pairs]
        return []

    def _computed(self, recent: Recent, pair: tuple[TickRow, TickRow], read: Formula, instance: str) -> float | None:
        """What a formula gives for two rows; another table is as it is now."""
        values: dict[Operand, float] = {}
        for operand in read.operands:
            if not operand.table:
                is_counter = recent.is_counter(operand.metric)
                value = (
                    recent.rate(*pair, operand.metric, instance)
                    if is_counter
                    else recent.value(pair[1], operand.metric, instance)
                )
            else:
                others = self.tables.get(operand.table, [])
                is_counter = any(other.is_counter(operand.metric) for other in others)
                ask = self.rate if is_counter else self.value
                value = ask(operand.table, operand.metric, operand.at(instance))
            values[operand] = nan if value is None else value
        made = read.evaluate(values, FLOATS)
        return made if isfinite(made) else None


class _Place:
    """The folder of one writer and class, and the ring in it that is followed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ring: Tail | None = None
        self.recents: dict[int, Recent] = {}
        self.current: dict[int, int] = {}
        self._file = ""
        self._changed_ns = -1

    def find(self) -> str | None:
        """The newest ring, where it may be another than the one followed."""
        try:
            changed_ns = os.stat(self.path).st_mtime_ns
            if changed_ns == self._changed_ns:
                return None
            settled = abs(time.time_ns() - changed_ns) > FOLDER_SETTLES_NS
            rings = [file for file in os.listdir(self.path) if file.endswith(SUFFIX)]
        except OSError:
            settled, changed_ns, rings = False, -1, []
        self._changed_ns = changed_ns if settled else -1
        newest = max(rings, key=_started, default="")
        if newest == self._file:
            return None
        self._file = newest
        return newest

    def open(self, file: str) -> None:
        """Follow this ring from now on; none where it cannot be read."""
        if self.ring is not None:
            self.ring.close()
        self.recents.clear()
        self.current.clear()
        self.ring = None
        try:
            self.ring = Tail(f"{self.path}/{file}") if file else None
        except (OSError, Error):
            return  # Not ours to read, gone meanwhile, or no ring.


class Follower:
    """Reads the frames that the rings of a runtime folder got since the last time."""

    def __init__(
        self,
        folders: Folders,
        *,
        sensitivities: Iterable[Sensitivity] = tuple(Sensitivity),
        ticks: int = TICKS_MAX,
        streams: Mapping[str, TakeRecords] = NO_STREAMS,
        declared: Declared = dict,
    ) -> None:
        """Look at the rings of these classes, as far as we may read them; keep ``ticks`` of each table.

        ``streams``: long tables to follow, too, with the functions that receive their records. ``declared``: asked when
        a derived column is; without it those are there that every reader knows.
        """
        self._lanes = [
            f"{folders.runtime}/{writer}/{sensitivity}" for writer in WRITERS.values() for sensitivity in sensitivities
        ]
        ledgers = [f"{folders.runtime}/{ARCHIVER}/{sensitivity}" for sensitivity in sensitivities]
        self._places = [_Place(path) for path in (*self._lanes, *ledgers)]
        self._followed: set[str] = set()
        self._streams = streams
        self.attend(streams)
        self._ticks = ticks
        self._declared = declared
        self._recent: dict[tuple[str, Sensitivity, str], Recent] = {}
        self._texts: dict[int, str] = {}
        self._wall_offset_ns = 0
        self._now = Now({}, self._texts, 0)
        self._place = self._places[0]
        self._events: deque[Happening] = deque(maxlen=EVENTS_MAX)

    def attend(self, tables: Iterable[str]) -> None:
        """Follow the rings of these long tables, too: not for rows, but for reasons why there are none."""
        for table in tables:
            if table not in self._followed:
                self._followed.add(table)
                self._places += [_Place(f"{lane}/{table}") for lane in self._lanes]

    @property
    def marks(self) -> dict[str, str]:
        """By writer, the table that it was reading at the last look; without writers between two readings."""
        tables = {}
        for place in self._places:
            if place.ring is not None and (layout := place.ring.layouts.get(place.ring.mark - 1)) is not None:
                tables[place.ring.identity.writer] = layout.table.name
        return tables

    def events(self) -> list[Happening]:
        """Events that were read since the last call, in the order of their rings."""
        happened = list(self._events)
        self._events.clear()
        return happened

    def read(self) -> Now:
        """Look at the newest ring of every writer and class; return the same object where nothing is new."""
        is_new = False
        for place in self._places:
            is_new |= self._look(place)
            if (file := place.find()) is not None:
                is_new |= self._look(place)  # Its last frames, before its successor began.
                place.open(file)
                is_new |= self._look(place)
        if is_new:
            tables: dict[str, list[Recent]] = {}
            for (_, _, table), recent in self._recent.items():
                tables.setdefault(table, []).append(recent)
            for several in tables.values():
                if len(several) > 1:
                    several.sort(key=lambda recent: -recent.tick_ns)
            self._now = Now(tables, self._texts, self._wall_offset_ns)
        return self._now

    def close(self) -> None:
        """Close the rings."""
        for place in self._places:
            place.open("")

    def _look(self, place: _Place) -> bool:
        if place.ring is None:
            return False
        self._place = place
        try:
            return place.ring.read(self._take)
        except (OSError, ValueError, struct.error):
            place.open("")
            return False

    def _take(self, kind: int, ident: int, tick_ns: int, payload: bytes) -> None:
        ring = self._place.ring
        if ring is None:
            return
        if kind == ROWS:
            layout, names = ring.instances.get(ident, (-1, ()))
            if (recent := self._of(ring, layout)) is not None:
                recent.put(TickRow(tick_ns, names, payload))
                if (before := self._place.current.get(layout, ident)) != ident:
                    ring.instances.pop(before, None)  # No more rows refer to those.
                self._place.current[layout] = ident
        elif kind in EXPLAINING:
            self._learn(ring, kind, ident, payload)
        elif kind == EVENT:
            self._events.append(Happening(tick_ns, *decode_event(payload)[:3], ring.identity.sensitivity))
        elif (recent := self._of(ring, ident)) is not None:
            if kind == ABSENCE:
                recent.lack(tick_ns, *decode_absence(payload))
            else:
                recent.absence = None
                if (take := self._streams.get(recent.layout.table.name)) is not None:
                    take(recent.layout.table, tick_ns, payload)

    def _learn(self, ring: Tail, kind: int, ident: int, payload: bytes) -> None:
        """Note frames that explain rows; most are repeated."""
        if kind == NAMES:
            if ident not in ring.instances:
                ring.instances[ident] = decode_instances(payload)
        elif kind == LAYOUT:
            if ident not in ring.layouts:
                ring.layouts[ident] = decode_layout(payload)
        elif kind == TEXT:
            self._keep_text(*decode_text(payload))
        elif kind == RELATION:
            relation = decode_clock(payload)
            self._wall_offset_ns = relation.realtime_ns - relation.boottime_ns

    def _of(self, ring: Tail, ident: int) -> Recent | None:
        """The rows of a table; begun anew where its columns have changed."""
        if (layout := ring.layouts.get(ident)) is None:
            return None
        recent = self._place.recents.get(ident)
        if recent is None:
            key = (ring.identity.writer, ring.identity.sensitivity, layout.table.name)
            recent = self._recent.get(key)
            if recent is None or recent.layout.table.metrics != layout.table.metrics:
                recent = self._recent[key] = Recent(ring.identity, layout, self._ticks, self._declared)
            self._place.recents[ident] = recent
        recent.layout = layout  # Another interval is another layout; an earlier one may come again.
        return recent

    def _keep_text(self, ident: int, text: str) -> None:
        self._texts.pop(ident, None)
        self._texts[ident] = text
        if len(self._texts) > TEXTS_REMEMBERED:
            del self._texts[next(iter(self._texts))]


def _started(file: str) -> int:
    digits = file.removesuffix(SUFFIX)
    return int(digits) if digits.isdigit() else -1
