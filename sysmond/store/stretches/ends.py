# SPDX-License-Identifier: Apache-2.0
"""Whose end it is: ends are told by others than those who read the processes, and not always to the digit. Pure."""

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.base.wall_clock import ALWAYS_NS

# The clock tick in which /proc tells when a process started.
GRAIN_NS = 10_000_000
# By how much others than BPF may be wrong about that.
NEARLY_NS = 1_000_000_000
# A number of a process, and so many bits for its start in clock ticks.
_GRAINS_BITS, _KEY_AND_START = 40, 2
# Odd and large, so that keys become numbers that differ (the golden ratio of 64 bits).
_FACTOR = 0x9E3779B97F4A7C15


def ends_of(known: Int64Array, keys: Int64Array, end_ns: Int64Array, start: int) -> Int64Array:
    """The row of ``known`` that each end is of, or -1: int64[end].

    ``known``, ``keys``: int64[row, metric of the key], what is known and what ended, of which ``start`` is when it
    started; ``end_ns``: int64[end].
    """
    return _nearly(known, keys, end_ns, _matched(known, keys), start)


def _matched(known: Int64Array, keys: Int64Array) -> Int64Array:
    """The row of ``known`` that each of many keys is, or -1: int64[key]. Both are int64[row, metric of the key]."""
    rows = np.full(len(keys), -1, np.int64)
    if not len(known) or not len(keys):
        return rows
    # By one number a key, then to the last digit: what shares its number with another is taken for unknown.
    factors = np.array([_FACTOR**place % 2**64 for place in range(known.shape[1])], np.uint64)
    number, wanted = (
        (keys_of_side.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64) for keys_of_side in (known, keys)
    )
    order = np.argsort(number)
    place = order[np.minimum(np.searchsorted(number[order], wanted), len(order) - 1)]
    same = (known[place] == keys).all(axis=1)
    rows[same] = place[same]
    return rows


def _nearly(known: Int64Array, keys: Int64Array, end_ns: Int64Array, row: Int64Array, start: int) -> Int64Array:
    """The rows of ``_matched``, and of those that /proc saw: it tells only in clock ticks when a process started.

    Of what ended, the other ways than BPF tell that to a second, or not at all. Each row is matched once. ``start``:
    which metric of the key that is, of two.
    """
    by_tick = known[:, start] % GRAIN_NS == 0
    by_tick[row[row >= 0]] = False
    rows, left = np.flatnonzero(by_tick), np.flatnonzero(row < 0)
    if known.shape[1] != _KEY_AND_START or not len(rows) or not len(left):
        return row
    other = 1 - start
    number, began_ns = known[rows, other], known[rows, start]
    wanted, starts_ns, ended_ns = keys[left, other], keys[left, start], end_ns[left]
    is_told = starts_ns != ABSENT
    order = np.argsort(number << _GRAINS_BITS | began_ns // GRAIN_NS)
    codes = (number << _GRAINS_BITS | began_ns // GRAIN_NS)[order]
    at = np.searchsorted(codes, wanted << _GRAINS_BITS | np.where(is_told, starts_ns, ended_ns) // GRAIN_NS, "right")
    best, off_ns = np.full(len(left), -1, np.int64), np.full(len(left), ALWAYS_NS, np.int64)
    for beside in (at - 1, at):
        place = order[beside.clip(0, len(order) - 1)]
        apart = np.where(is_told, np.abs(began_ns[place] - starts_ns), 0)
        fits = (number[place] == wanted) & (began_ns[place] <= ended_ns) & (apart <= NEARLY_NS) & (apart < off_ns)
        best[fits], off_ns[fits] = rows[place[fits]], apart[fits]
    nearest = np.argsort(off_ns, kind="stable")
    nearest = nearest[best[nearest] >= 0]
    _, once = np.unique(best[nearest], return_index=True)
    chosen = row.copy()
    chosen[left[nearest[once]]] = best[nearest[once]]
    return chosen
