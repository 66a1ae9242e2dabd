# SPDX-License-Identifier: Apache-2.0
"""A part of the time of a lasting table, with those of its keys that are asked for: what is read of one stretch."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, Metric, Table
from sysmond.base.result import BoolArray, Float64Array, Int64Array, NDArray
from sysmond.base.wall_clock import ALWAYS_NS
from sysmond.store.stretches.stretch import ALL, GAP_INTERVALS, StretchPart
from sysmond.store.stretches.undeclared import answers_of

# The rows of so many keys are read one key after the other.
FEW_KEYS = 64
# Of keys that have so many rows each it is quicker to look at one after the other than at all rows at once.
LONG_ROWS = 500
# What was read of a portion is kept up to so much: several statistics of a column are made of the same rows.
KEPT_BYTES_MAX = 8 << 20


def owned_edges(part: StretchPart, edges: Int64Array) -> slice:
    """Which of the edges, int64[edge] in boot time, are those at which a part answers."""
    low = int(np.searchsorted(edges, part.stretch.ticks[0], "right"))
    return slice(low, max(low, int(np.searchsorted(edges, part.end_ns, "right"))))


class KnownFor:
    """For how long values of a part are known: a reading holds until the next one, and over a gap for one interval."""

    def __init__(self, part: StretchPart) -> None:
        stretch = part.stretch
        self._ticks = stretch.ticks
        apart_ns = np.diff(self._ticks, append=self._ticks[-1:] + stretch.interval_ns)
        is_gap = apart_ns > GAP_INTERVALS * stretch.interval_ns
        lasts_ns = np.where(is_gap, stretch.interval_ns, apart_ns)
        self._valid_ns: Int64Array = np.clip(part.end_ns - self._ticks, 0, lasts_ns)
        self._before_ns = np.cumsum(self._valid_ns) - self._valid_ns

    def since_ns(self, times_ns: Int64Array) -> Int64Array:
        """For how long they are known from the first reading up to each of some boot times: int64[...]."""
        place = np.maximum(np.searchsorted(self._ticks, times_ns, "right") - 1, 0)
        since_ns: Int64Array = self._before_ns[place] + np.clip(times_ns - self._ticks[place], 0, self._valid_ns[place])
        return since_ns


def totals_in(table: Table) -> Iterator[Metric]:
    """The columns of a table that are the sum of others, as metrics."""
    metrics = {metric.name: metric for metric in table.metrics}
    for name, parts, doc in answers_of(table).totals:
        yield metrics[parts[-1]]._replace(name=name, doc=doc)


def parts_of(table: Table, name: str) -> tuple[str, ...]:
    """The metrics whose sum a column is; of a metric itself."""
    return next((total.parts for total in answers_of(table).totals if total.name == name), (name,))


def summed(columns: Sequence[Int64Array]) -> Int64Array:
    """The sum of columns, int64[row] each, row by row; ABSENT where one of them is."""
    absent = np.logical_or.reduce([column == ABSENT for column in columns])
    return np.where(absent, ABSENT, np.sum(columns, axis=0))


class _RowWeights(NamedTuple):
    """For how long rows of keys count between cuts.

    ``begins``: where each key begins, int64[key]. ``step_s``: from each row to the next one of its key, float64[row].
    Of each key and cut ([key, cut]): whether it is before the first row, the row that holds then, how long what is
    carried from before counts up to it, and how long that row does.
    """

    begins: Int64Array
    step_s: Float64Array
    is_before: BoolArray
    place: Int64Array
    lead_s: Float64Array
    tail_s: Float64Array


class Portion:
    """A part with those of its keys that are asked for.

    ``local``: their numbers in it; ``where``: among all keys; int64[key] each. ``codes``: of each text of the part,
    int64[text + 1].
    """

    def __init__(self, part: StretchPart, local: Int64Array, where: Int64Array, codes: Int64Array) -> None:
        self.stretch = part.stretch
        self.part = part
        self.local = local
        self.where = where
        self.codes = codes
        self.ticks = part.stretch.ticks
        self.begin_ns = int(self.ticks[0])
        self.end_ns = part.end_ns
        self.valid_until_ns = min(part.end_ns, int(self.ticks[-1]) + part.stretch.interval_ns)
        self.watch = KnownFor(part)
        self._rows: tuple[Int64Array, Int64Array] | None = None
        self._columns: dict[str, Int64Array] = {}
        self._kept_bytes = 0
        # Readings, and which rows hold after so many of them.
        self._indexed: tuple[Int64Array, Int64Array] | None = None
        self._weights: tuple[Int64Array, Int64Array, _RowWeights] | None = None

    def narrowed(self, new: Int64Array) -> "Portion":
        """Only the keys that ``new`` gives a number, int64[key of the window]; -1 for the others."""
        is_chosen = new[self.where] >= 0
        return Portion(self.part, self.local[is_chosen], new[self.where[is_chosen]], self.codes)

    def rows(self) -> tuple[Int64Array, Int64Array]:
        """The rows of these keys: the reading of each, int64[row]; and where each key begins, int64[key]."""
        if self._rows is None:
            counts = self.stretch.counts[self.local]
            self._rows = self._gathered(self.stretch.tick_index), np.cumsum(counts) - counts
        return self._rows

    def _gathered(self, read: Callable[[slice], Int64Array]) -> Int64Array:
        """What ``read`` gives of the rows of some keys, for these: of a few each by itself, else of all."""
        if len(self.local) == len(self.stretch.counts):
            return read(ALL)
        if len(self.local) <= FEW_KEYS:
            pieces = [read(slice(key, key + 1)) for key in self.local.tolist()]
            return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        counts = self.stretch.counts[self.local]
        offsets = self.stretch.begins[self.local] - (np.cumsum(counts) - counts)
        return read(ALL)[np.repeat(offsets, counts) + np.arange(int(counts.sum()))]

    def index(self, readings: Int64Array) -> Int64Array:
        """Which of ``rows`` holds after so many readings: int64[key, edge], -1 before the first of its key."""
        if self._indexed is not None and np.array_equal(self._indexed[0], readings):
            return self._indexed[1]
        reading, begins = self.rows()
        if len(begins) * LONG_ROWS <= len(reading):
            ends = np.append(begins[1:], len(reading))[: len(begins)]
            rows = np.empty((len(begins), len(readings)), np.int64)
            for key, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
                rows[key] = begin + np.searchsorted(reading[begin:end], readings, "left") - 1
        else:
            span = len(self.ticks) + 1
            order = np.repeat(np.arange(len(self.local)), self.stretch.counts[self.local]) * span + reading
            at = np.arange(len(self.local))[:, None] * span + readings[None, :]
            rows = np.searchsorted(order, at, "left") - 1
        rows[rows < begins[:, None]] = -1
        if rows.nbytes <= KEPT_BYTES_MAX:
            self._indexed = readings, rows
        return rows

    def weights(self, cuts: Int64Array, died_ns: Int64Array) -> _RowWeights:
        """For how long rows count between cuts, of keys that died then: the same for every gauge."""
        if self._weights is not None:
            of_cuts, of_died_ns, known = self._weights
            if np.array_equal(of_cuts, cuts) and np.array_equal(of_died_ns, died_ns):
                return known
        reading, begins = self.rows()
        ticks = self.watch.since_ns(self.ticks)[reading]
        step_s = np.append(np.diff(ticks), 0) / 1e9
        counts = np.diff(np.append(begins, len(reading)))
        step_s[(begins + counts - 1)[counts > 0]] = 0
        index = self.index(np.searchsorted(self.ticks, cuts, "right"))
        until = self.watch.since_ns(np.minimum(cuts[None, :], died_ns[:, None]))
        lead_s = np.minimum(until, ticks[begins][:, None]) / 1e9
        place = np.maximum(index, 0)
        tail_s = np.where(index < 0, 0, np.maximum(0, until - ticks[place]) / 1e9)
        made = _RowWeights(begins, step_s, index < 0, place, lead_s, tail_s)
        if sum(each.nbytes for each in made) <= KEPT_BYTES_MAX:
            self._weights = cuts, died_ns, made
        return made

    def seen(self, edges: Int64Array) -> BoolArray:
        """Whether there is a row before each edge: bool[key, edge]."""
        readings = np.searchsorted(self.ticks, edges, "left")
        seen = np.zeros((len(self.local), len(edges)), bool)
        seen[:, readings == len(self.ticks)] = True
        inside = (readings < len(self.ticks)) & (readings > 0)
        if inside.any():
            seen[:, inside] = self.index(readings[inside]) >= 0
        return seen

    def at(self, name: str, edges: Int64Array) -> Int64Array:
        """What each key had before each edge: int64[key, edge], ABSENT before its first row."""
        readings = np.searchsorted(self.ticks, edges, "left")
        values = np.full((len(self.local), len(edges)), ABSENT, np.int64)
        over = readings == len(self.ticks)
        if over.any():
            values[:, over] = self.summary("last", name)[:, None]
        inside = ~over & (readings > 0)
        if inside.any():
            index = self.index(readings[inside])
            values[:, inside] = np.where(index < 0, ABSENT, self.column(name)[index]) if len(self.local) else ABSENT
        return values

    def column(self, name: str) -> Int64Array:
        """A column at ``rows``: int64[row], as stored; texts by their codes."""
        parts = parts_of(self.stretch.table, name)
        return self._joined(name, [self._stored(part) for part in parts])

    def _stored(self, name: str) -> Int64Array:
        """A metric at ``rows``: int64[row], as stored."""
        column = self._columns.get(name)
        if column is None:
            column = self._gathered(partial(self.stretch.column, name))
            if self._kept_bytes + column.nbytes <= KEPT_BYTES_MAX:
                self._columns[name] = column
                self._kept_bytes += column.nbytes
        return column

    def summary(self, kind: str, name: str) -> Int64Array:
        """What each key began or ended with, or its largest: int64[key]."""
        of_kind = {"first": self.stretch.first, "last": self.stretch.last, "peak": self.stretch.peak}[kind]
        return self._joined(name, [of_kind(part)[self.local] for part in parts_of(self.stretch.table, name)])

    def began_anew(self, name: str) -> Int64Array:
        """Which of these keys have a counter that began anew here: int64[key]."""
        is_one = np.zeros(len(self.stretch.counts), np.bool_)
        is_one[self.stretch.resets(name).key] = True
        return np.flatnonzero(is_one[self.local])

    def gone_ns(self) -> Int64Array:
        """By when each key was gone, int64[key], boot time: at the full reading that comes after it was there last."""
        full = np.append(self.ticks[self.stretch.full], ALWAYS_NS)
        return full[np.searchsorted(full, self.ticks[self.stretch.seen()[self.local]], "right")]

    def _joined(self, name: str, columns: Sequence[Int64Array]) -> Int64Array:
        if len(columns) > 1:
            return summed(columns)
        (column,) = columns
        if any(metric.name == name and metric.is_text for metric in self.stretch.table.metrics):
            return self.codes[np.where(column == ABSENT, -1, column)]
        return column


def integrals(
    portion: Portion, name: str, cuts: Int64Array, carried: Int64Array, died_ns: Int64Array
) -> tuple[Float64Array, Float64Array]:
    """The integrals of a gauge between neighbouring cuts, and over how long: float64[key, cut - 1].

    Time is that for which values are known.
    """
    begins, step_s, is_before, place, lead_s, tail_s = portion.weights(cuts, died_ns)
    values = portion.column(name)
    absent = values == ABSENT
    weight = np.where(absent, 0.0, 1.0)
    heights = np.where(absent, 0, values).astype(np.float64)
    # Before its first row here, a key has what it had at the end of the stretch before.
    known = carried != ABSENT
    integrals: list[NDArray[np.float64]] = []
    for series, lead in ((heights, np.where(known, carried, 0).astype(np.float64)), (weight, known.astype(np.float64))):
        total = np.cumsum(series * step_s) - series * step_s
        inner = np.where(is_before, 0.0, total[place] - total[begins][:, None] + series[place] * tail_s)
        integrals.append(np.diff(inner + lead[:, None] * lead_s, axis=1))
    return integrals[0], integrals[1]
