# SPDX-License-Identifier: Apache-2.0
"""A stretch: the records of one long table over some readings, whether they lie in a ring or in a file.

Its rows are sorted by key, then by time; what is asked of it is arrays. Values are absolute integers, ``ABSENT`` where
there are none; texts are codes, indexes into ``texts``.

In a table whose rows last (``Table.packing.lasting``) a row holds until the next of its key: a reading has a row only
where something changed, and what a counter grew by it grew since the reading before. A key is known to be there up to
the reading ``seen``; if it is gone, it went before the next one that is ``full``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Sensitivity, Table
from sysmond.base.result import BoolArray, Int64Array
from sysmond.store.of_ring import Hole
from sysmond.store.stretches.increments import increments

# How many rows are worked on at once: bounds memory whatever the size of the file.
BATCH_ROWS = 256 * 1024
# Distances of readings beyond this many intervals are gaps.
GAP_INTERVALS = 1.5
ALL = slice(None)
# Which metric tells a table of buckets from one of rows: how many readings a bucket has.
READINGS = "readings"


class Incarnation(NamedTuple):
    """One life of a writer: when it began (boot time), the first reading it gave, whether it ended in good order."""

    started_ns: int
    first_ns: int
    closed: bool


class About(NamedTuple):
    """What holds for all of a stretch.

    ``lives``: in order of their readings. ``relations``: of boot time and UTC, in order. ``path``: where it lies.
    ``is_by_rule``: whether counters of buckets grew by the rule of ``base.counters``; once one that fell had not.
    """

    table: Table
    boot: str
    writer: str
    sensitivity: Sensitivity
    interval_ns: int
    lives: Sequence[Incarnation] = ()
    relations: Sequence[Relation] = ()
    holes: Sequence[Hole] = ()
    path: str = ""
    is_by_rule: bool = True


class Readings(NamedTuple):
    """The readings of a stretch, in order.

    ``ticks``: int64[reading], boot time in nanoseconds, strictly increasing. ``full``: the rows are all there were.
    ``lost``: records that had to be left out. ``walked``: how many things the kernel went through.
    """

    ticks: Int64Array
    full: BoolArray
    lost: Int64Array
    walked: Int64Array


class Resets(NamedTuple):
    """Where a counter began anew: of each time the key, and the reading of the row that says so; int64[reset] each."""

    key: Int64Array
    reading: Int64Array


class Stretch(ABC):
    """The read model of long tables.

    ``keys``: a sorted array int64[key] each metric of the key, in the order of ``table.packing.key``. ``begins``,
    ``counts``: int64[key], where the rows of a key begin and how many there are, one at least. ``surroundings``:
    what was cut out of it last (``cut``), for as long as it stays open.
    """

    surroundings: "MemoryStretch | None" = None

    def __init__(self, about: About, readings: Readings, keys: Mapping[str, Int64Array], counts: Int64Array) -> None:
        self.about = about
        self.table = about.table
        self.boot = about.boot
        self.writer = about.writer
        self.sensitivity = about.sensitivity
        self.interval_ns = about.interval_ns
        self.lives = about.lives
        self.relations = about.relations
        self.holes = about.holes
        self.path = about.path
        self.ticks, self.full, self.lost, self.walked = readings
        self.keys = dict(keys)
        self.counts = counts
        self.begins: Int64Array = np.cumsum(counts) - counts
        self._resets: dict[str, Resets] = {}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.begins[-1] + self.counts[-1]) if len(self.counts) else 0

    @property
    @abstractmethod
    def texts(self) -> Sequence[str]:
        """The texts, by code."""

    @abstractmethod
    def tick_index(self, keys: slice = ALL) -> Int64Array:
        """Of each row of these keys the reading that it is of: int64[row], indexes into ``ticks``."""

    @abstractmethod
    def column(self, name: str, keys: slice = ALL) -> Int64Array:
        """The values of a metric, int64[row], of these keys."""

    @abstractmethod
    def first(self, name: str) -> Int64Array:
        """With what each key begins, int64[key]."""

    @abstractmethod
    def last(self, name: str) -> Int64Array:
        """With what each key ends, int64[key]."""

    @abstractmethod
    def peak(self, name: str) -> Int64Array:
        """The largest value of a gauge at each key, int64[key]; ABSENT where it had none."""

    @abstractmethod
    def first_tick(self) -> Int64Array:
        """The reading of each key's first row, int64[key]."""

    @abstractmethod
    def last_tick(self) -> Int64Array:
        """The reading of each key's last row, int64[key]."""

    @abstractmethod
    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there, int64[key]."""

    def resets(self, name: str) -> Resets:
        """Where a counter, whose rows last, began anew between two rows of its key here."""
        if name not in self._resets:
            self._resets[name] = self._find_resets(name)
        return self._resets[name]

    def _find_resets(self, name: str) -> Resets:
        found = Resets(np.zeros(0, np.int64), np.zeros(0, np.int64))
        for keys in self.batches():
            mine = resets_of(self, keys, self.column(name, keys))
            found = Resets(*(np.concatenate(pair) for pair in zip(found, mine, strict=True)))
        return found

    def batches(self) -> Iterator[slice]:
        """The keys, some at a time: with so many rows as are worked on at once, or one key."""
        ends = self.begins + self.counts
        start = 0
        while start < len(ends):
            stop = int(np.searchsorted(ends, self.begins[start] + BATCH_ROWS, "right"))
            stop = max(stop, start + 1)
            yield slice(start, stop)
            start = stop


class StretchPart(NamedTuple):
    """A stretch, and until when it answers (boot time, excluded): until the next one begins."""

    stretch: Stretch
    end_ns: int


class MemoryStretch(Stretch):
    """A stretch whose rows are in memory, in any order: columns are made, and sorted, when they are asked for."""

    def __init__(
        self,
        about: About,
        readings: Readings,
        at: Int64Array,
        columns: Callable[[str], Int64Array],
        texts: Sequence[str] = (),
    ) -> None:
        """Sort the rows. ``at``: the reading of each, int64[row]; ``columns``: gives a metric of all, int64[row]."""
        unsorted = {name: columns(name) for name in key_of(about.table)}
        order, begins = sorted_by_key([*unsorted.values()], at)
        keys = {name: column[order[begins]] for name, column in unsorted.items()}
        super().__init__(about, readings, keys, np.diff(begins, append=len(order)))
        self._readings = readings
        self._columns = columns
        self._ends: Int64Array = self.begins + self.counts - 1
        # Those of files lie in order already: nothing says it a second time then.
        is_sorted = bool((order[1:] > order[:-1]).all())
        self._at = at if is_sorted else at[order]
        self._order = None if is_sorted else order
        self._texts = texts

    def with_about(self, about: About) -> "MemoryStretch":
        """The same rows, of which something else holds."""
        made = copy(self)
        Stretch.__init__(made, about, self._readings, self.keys, self.counts)
        return made

    @property
    def texts(self) -> Sequence[str]:
        """The texts, by code."""
        return self._texts

    def tick_index(self, keys: slice = ALL) -> Int64Array:
        """Of each row of these keys the reading that it is of."""
        return self._at[rows_of(self, keys)]

    def column(self, name: str, keys: slice = ALL) -> Int64Array:
        """The values of a metric, of these keys."""
        if name in self.keys:
            return np.repeat(self.keys[name][keys], self.counts[keys])
        return self._of_rows(name, rows_of(self, keys))

    def first(self, name: str) -> Int64Array:
        """With what each key begins."""
        return self.keys[name] if name in self.keys else self._of_rows(name, self.begins)

    def last(self, name: str) -> Int64Array:
        """With what each key ends."""
        return self.keys[name] if name in self.keys else self._of_rows(name, self._ends)

    def _of_rows(self, name: str, rows: slice | Int64Array) -> Int64Array:
        values = self._columns(name)
        return values[rows].copy() if self._order is None else values[self._order[rows]]

    def peak(self, name: str) -> Int64Array:
        """The largest value of a gauge at each key."""
        return largest(self.column(name), self.begins)

    def first_tick(self) -> Int64Array:
        """The reading of each key's first row."""
        return self._at[self.begins]

    def last_tick(self) -> Int64Array:
        """The reading of each key's last row."""
        return self._at[self._ends]

    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there."""
        return self.last_tick()


def key_of(table: Table) -> tuple[str, ...]:
    """The metrics that say what a row of a long table is about."""
    return table.packing.key if table.packing else ()


def lasts(table: Table) -> bool:
    """Whether a row holds until the next of its key."""
    return table.packing is not None and table.packing.lasting


def is_of_buckets(table: Table) -> bool:
    """Whether the rows of a table are buckets of a tier."""
    return any(metric.name == READINGS for metric in table.metrics)


def rows_of(stretch: Stretch, keys: slice) -> slice:
    """Where the rows of these keys are."""
    start, stop, _ = keys.indices(len(stretch.counts))
    if start >= stop:
        return slice(0, 0)
    return slice(int(stretch.begins[start]), int(stretch.begins[stop - 1] + stretch.counts[stop - 1]))


def resets_of(stretch: Stretch, keys: slice, values: Int64Array) -> Resets:
    """Where a counter began anew; ``values``: int64[row], what it is at the rows of these keys."""
    begins = stretch.begins[keys]
    base = np.full(len(begins), ABSENT, np.int64)
    rows = np.flatnonzero(increments(values, begins - begins[:1], base).began_anew)
    if not len(rows):
        return Resets(rows, rows)
    return Resets(
        np.repeat(np.arange(len(stretch.counts))[keys], stretch.counts[keys])[rows], stretch.tick_index(keys)[rows]
    )


def largest(values: Int64Array, begins: Int64Array) -> Int64Array:
    """The largest value, int64[row], of each key, int64[key].

    ABSENT is the smallest integer, and so never that of a key with others.
    """
    peaks: Int64Array = np.maximum.reduceat(values, begins) if len(begins) else np.zeros(0, np.int64)
    return peaks


def sorted_by_key(keys: Sequence[Int64Array], at: Int64Array | None = None) -> tuple[Int64Array, Int64Array]:
    """How rows are sorted by key, then tick, or as they are: int64[row]; and where in that order each key begins.

    The latter: int64[key].
    """
    order: Int64Array = np.lexsort((*([] if at is None else [at]), *reversed(keys)))
    return order, begins_of(keys, order)


def begins_of(columns: Sequence[Int64Array], order: Int64Array) -> Int64Array:
    """Where rows of some columns, int64[row] each, differ in an order from the one before: int64[begin]."""
    differs: BoolArray = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for column in columns:
        in_order = column[order]
        differs[1:] |= in_order[1:] != in_order[:-1]
    return np.flatnonzero(differs)


def numbered(columns: Sequence[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """Number the distinct rows of some columns, int64[row] each, in their order.

    Gives of each row its number, int64[row], and where each stands first, int64[number].
    """
    order, begins = sorted_by_key(columns)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(order)))
    return numbers, order[begins]


class Dictionary:
    """Texts by code, joined over stretches, each of which has codes of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def codes(self, texts: Iterable[str]) -> Int64Array:
        """The code of each text, int64[text + 1]; ABSENT goes behind the last, where index -1 finds it."""
        codes = [self._codes.setdefault(text, len(self._codes)) for text in texts]
        self.texts += list(self._codes)[len(self.texts) :]
        return np.array([*codes, ABSENT], np.int64)
