# SPDX-License-Identifier: Apache-2.0
"""A cut: what holds at some readings of a stretch, in memory, as a stretch that has no others.

``CutRows`` says which rows these are, and reads them some keys at a time; ``StretchCut`` is made of them. A cut answers
about its readings as the whole does. ``around`` cuts what surrounds a window of time, so that somebody who goes
from moment to moment is answered without reading the rows of hours each time; and of that the window itself, so that
each answer works on its own rows only.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from sysmond.base.result import Array, Int64Array
from sysmond.store.coding.integers import narrowest, numbers_of
from sysmond.store.stretches.stretch import About, MemoryStretch, Readings, Stretch, StretchPart, lasts

# So many rows are in memory around a window, or fewer; how many windows they go on to either side of it.
AROUND_ROWS = 64 * 1024
AROUND_WINDOWS = 16
# Of so many files columns stay in memory.
RECENT_MAX = 8


class CutRows:
    """The rows of a stretch that hold at its readings from ``begin`` to before ``end``.

    Where rows last these are also those from before that still hold at ``begin``; and what ``numbers``, keys of a table
    of one key, mean stands at one reading before those, where it was gone by then. ``at``: the reading at which each
    stands, int64[row], not before ``first``. ``seen``: of each key that has rows, the last reading at which it is known
    to be there, int64[key].
    """

    def __init__(self, stretch: Stretch, begin: int, end: int, numbers: Collection[int] = ()) -> None:
        """Look for them: a column is read when it is asked for."""
        self.stretch = stretch
        # Of some keys, the rows among theirs.
        self._pieces: list[tuple[slice, Array]] = []
        moments, seen = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for keys, rows, at, of_keys in _pieces(stretch, begin, end, list(numbers)):
            self._pieces.append((keys, narrowest(rows)))
            moments.append(at)
            seen.append(of_keys)
        self.at: Int64Array = np.concatenate(moments)
        self.seen: Int64Array = np.minimum(np.concatenate(seen), end - 1)
        self.first = min(begin, int(self.at.min(initial=begin)))
        cut = slice(self.first, end)
        full = stretch.full[cut].copy()
        full[: begin - self.first] = True
        self.readings = Readings(stretch.ticks[cut], full, stretch.lost[cut], stretch.walked[cut])
        # In the fewest bytes: codes of texts and what a process uses mostly take one or two of eight.
        self.columns: dict[str, Array] = {}

    def column(self, name: str) -> Int64Array:
        """The values of a metric, int64[row], which stay in memory; those of the key are read once."""
        if name in self.stretch.keys:
            return self.read(name)
        if name not in self.columns:
            self.columns[name] = narrowest(self.read(name))
        return numbers_of(self.columns[name])

    def read(self, name: str) -> Int64Array:
        """Read the values of a metric, int64[row]."""
        pieces = [self.stretch.column(name, keys)[rows] for keys, rows in self._pieces]
        return np.concatenate([np.zeros(0, np.int64), *pieces])


def _pieces(
    stretch: Stretch, begin: int, end: int, numbers: list[int]
) -> Iterator[tuple[slice, Int64Array, Int64Array, Int64Array]]:
    """Some keys, which of their rows hold, at which reading each stands, and until when the keys with rows are seen."""
    seen = stretch.seen()
    for keys in stretch.batches():
        at = stretch.tick_index(keys)
        is_within = (at >= begin) & (at < end)
        if lasts(stretch.table):
            begins = stretch.begins[keys] - stretch.begins[keys.start]
            before = np.add.reduceat((at <= begin).astype(np.int64), begins)
            last = begins + before - 1
            is_there = (before > 0) & (seen[keys] >= begin)
            at = np.maximum(at, begin)
            is_within[last[is_there]] = True
            if numbers:
                (column,) = stretch.keys.values()
                gone = last[(before > 0) & ~is_there & np.isin(column[keys], numbers)]
                is_within[gone], at[gone] = True, begin - 1
        rows = np.flatnonzero(is_within)
        if len(rows):
            of_rows = np.repeat(np.arange(keys.start, keys.stop), stretch.counts[keys])[rows]
            yield keys, rows, at[rows], seen[of_rows[np.diff(of_rows, prepend=-1) > 0]]


class StretchCut(MemoryStretch):
    """Some readings of a stretch, and the ``rows`` that hold at them."""

    def __init__(self, about: About, rows: CutRows, columns: Callable[[str], Int64Array], texts: Sequence[str]) -> None:
        """Sort the rows, whose ``columns``, int64[row], may have other codes of ``texts``, in the same order."""
        super().__init__(about, rows.readings, rows.at - rows.first, columns, texts)
        self.rows_of_stretch = rows
        self._seen: Int64Array = np.maximum(self.last_tick(), rows.seen - rows.first)

    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there, int64[key]."""
        return self._seen


# Those whose columns are in memory, the one used last at the end.
_recent: list[CutRows] = []


def around(parts: Sequence[StretchPart], low_ns: int, high_ns: int) -> list[StretchPart]:
    """Parts that answer as these do between two boot times, with what surrounds those in memory, of what lasts.

    What lies before a part that has all of the window's beginning is left out.
    """
    made: list[StretchPart] = []
    for part in reversed(parts):
        cut = _around(part.stretch, low_ns, high_ns)
        made.insert(0, part if cut is None else part._replace(stretch=cut))
        if cut is not None and cut.full[0] and int(cut.ticks[0]) < low_ns:
            break
    return made


def _around(stretch: Stretch, low_ns: int, high_ns: int) -> StretchCut | None:
    """A cut that has the readings of a window, one before and one behind it; None where that would be too much."""
    begin, end = np.searchsorted(stretch.ticks, (low_ns, high_ns)).tolist()
    begin, end = max(0, begin - 1), min(len(stretch.ticks), end + 1)
    # What is in memory is there for one question.
    if isinstance(stretch, MemoryStretch) or not lasts(stretch.table) or begin >= end:
        return None
    cut = stretch.surroundings
    first_ns, last_ns = stretch.ticks[[begin, end - 1]].tolist()
    if not isinstance(cut, StretchCut) or int(cut.ticks[0]) > first_ns or int(cut.ticks[-1]) < last_ns:
        readings = AROUND_ROWS * len(stretch.ticks) // max(1, stretch.rows)
        if readings < end - begin:
            return None
        more = min(AROUND_WINDOWS * (end - begin), (readings - (end - begin)) // 2)
        stretch.surroundings = cut = _cut(stretch, max(0, begin - more), min(len(stretch.ticks), end + more))
    # Who reads it now: the files of an earlier question are closed.
    cut.rows_of_stretch.stretch = stretch
    cut.table = stretch.table
    _use(cut.rows_of_stretch)
    begin, last = np.searchsorted(cut.ticks, (first_ns, last_ns)).tolist()
    window = _cut(cut, begin, last + 1)
    window.table = stretch.table
    return window


def _cut(stretch: Stretch, begin: int, end: int) -> StretchCut:
    """What holds at some readings, and since the full one before them, whose columns stay in memory with it."""
    rows = CutRows(stretch, int(np.flatnonzero(stretch.full[: begin + 1])[-1:].sum()), end)
    return StretchCut(stretch.about, rows, rows.column, stretch.texts)


def _use(rows: CutRows) -> None:
    """Have the columns of rows stay in memory, and those of others that were not used lately no more."""
    if rows in _recent:
        _recent.remove(rows)
    _recent.append(rows)
    while len(_recent) > RECENT_MAX:
        _recent.pop(0).columns.clear()
