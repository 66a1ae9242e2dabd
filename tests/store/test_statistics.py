# SPDX-License-Identifier: Apache-2.0
"""Rolling up loses nothing: every way from rows to long buckets gives the same numbers as plain counting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Buckets, Stat

INTERVAL_NS = 10
STEP_NS = 100


@st.composite
def rows(draw: st.DrawFn) -> tuple[Int64Array, Int64Array, Int64Array, np.ndarray]:
    """Values of three series over ticks with holes, wall-clock times that step, and where buckets are cut."""
    length = draw(st.integers(1, 40))
    gaps = draw(st.lists(st.sampled_from([10, 10, 10, 10, 20, 130]), min_size=length, max_size=length))
    ticks = np.cumsum(np.array(gaps, np.int64))
    steps = draw(st.lists(st.sampled_from([0, 0, 0, 0, 0, 500, -70]), min_size=length, max_size=length))
    utc = ticks + np.cumsum(np.array(steps, np.int64)) + 10**6
    breaks = np.array([step != 0 for step in steps])
    cell = st.one_of(st.integers(0, 60), st.just(ABSENT), st.integers(-(2**50), 2**50))
    kinds = draw(st.sampled_from([st.integers(0, 60), cell]))
    values = np.array([draw(st.lists(kinds, min_size=length, max_size=length)) for _ in range(3)], np.int64)
    if draw(st.booleans()):
        values = np.cumsum(np.abs(np.where(values == ABSENT, 1, values)), axis=1)
    return values, ticks, utc, breaks


def plainly(  # noqa: C901  an oracle is plain, not short
    values: Int64Array, ticks: Int64Array, starts: Int64Array, *, counter: bool
) -> list[list[dict[Stat, int]]]:
    """The same by loops over Python integers."""
    out = []
    ends = [*starts[1:].tolist(), len(ticks)]
    for row in values.tolist():
        buckets = []
        before: tuple[int, int] | None = None
        for start, end in zip(starts.tolist(), ends, strict=True):
            found = {Stat.COUNT: 0, Stat.SUM: 0, Stat.MAX: ABSENT, Stat.TMAX: ABSENT}
            found |= {Stat.LEAP: 0, Stat.LEAP_NS: 0} if counter else {Stat.MIN: ABSENT, Stat.LAST: ABSENT}
            for value, tick in zip(row[start:end], ticks.tolist()[start:end], strict=True):
                if value == ABSENT:
                    continue
                number, whole = value, True
                if counter:
                    previous, before = before, (value, tick)
                    if previous is None or value < previous[0] // 2:
                        continue
                    number, length = value - previous[0], tick - previous[1]
                    whole = length <= 1.5 * INTERVAL_NS
                    if not whole:
                        found[Stat.LEAP] += number
                        found[Stat.LEAP_NS] += length
                found[Stat.SUM] += number
                if not whole:
                    continue
                found[Stat.COUNT] += 1
                if found[Stat.MAX] == ABSENT or number > found[Stat.MAX]:
                    found[Stat.MAX], found[Stat.TMAX] = number, tick
                if not counter:
                    found[Stat.LAST] = number
                    found[Stat.MIN] = number if found[Stat.MIN] == ABSENT else min(found[Stat.MIN], number)
            buckets.append(found)
        out.append(buckets)
    return out


def listed(buckets: Buckets) -> list[list[dict[Stat, int]]]:
    series, length = buckets.stats[Stat.COUNT].shape
    return [
        [{stat: int(array[row, at]) for stat, array in buckets.stats.items()} for at in range(length)]
        for row in range(series)
    ]


def make(values: Int64Array, ticks: Int64Array, starts: Int64Array, *, counter: bool) -> Buckets:
    if counter:
        return statistics.of_counters(values, ticks, starts, INTERVAL_NS)
    return statistics.of_gauges(values, ticks, starts)


@given(rows(), st.booleans())
def test_buckets_of_rows_hold_what_plain_counting_finds(drawn: tuple[np.ndarray, ...], counter: bool) -> None:
    values, ticks, utc, breaks = drawn
    starts = statistics.cut(utc, STEP_NS, breaks)
    made = make(values, ticks, starts, counter=counter)
    assert listed(made) == plainly(values, ticks, starts, counter=counter)
    assert made.axis.rows.sum() == len(ticks)


@given(rows(), st.booleans(), st.sampled_from([2, 3, 10]))
def test_a_tier_made_from_a_tier_equals_one_made_from_rows(
    drawn: tuple[np.ndarray, ...],
    counter: bool,
    factor: int,
) -> None:
    values, ticks, utc, breaks = drawn
    fine = statistics.cut(utc, STEP_NS, breaks)
    coarse = statistics.cut(utc, STEP_NS * factor, breaks)
    direct = make(values, ticks, coarse, counter=counter)
    over_fine = make(values, ticks, fine, counter=counter)
    stepped = statistics.coarsen(over_fine, statistics.cut(utc[fine], STEP_NS * factor, breaks[fine]))
    assert listed(stepped) == listed(direct)
    assert all(np.array_equal(a, b) for a, b in zip(stepped.axis, direct.axis, strict=True))


@given(rows(), st.booleans(), st.integers(1, 39))
def test_neighbours_join_to_what_they_were_before_they_were_cut(
    drawn: tuple[np.ndarray, ...],
    counter: bool,
    seam: int,
) -> None:
    values, ticks, utc, breaks = drawn
    seam = min(seam, len(ticks) - 1)
    if seam == 0:
        return
    parts = []
    for part in (slice(0, seam), slice(seam, None)):
        starts = statistics.cut(utc[part], STEP_NS, breaks[part])
        parts.append(make(values[:, part], ticks[part], starts, counter=counter))
    before, after = parts
    joined = statistics.concatenate(before, after, INTERVAL_NS)
    firsts = np.searchsorted(ticks, joined.axis.first)
    again = statistics.coarsen(joined, statistics.cut(utc[firsts], STEP_NS, breaks[firsts]))
    whole = make(values, ticks, statistics.cut(utc, STEP_NS, breaks), counter=counter)
    assert listed(again) == listed(whole)
    if counter and again.edges and whole.edges:
        present = whole.edges.first_tick != ABSENT
        for mine, right in zip(again.edges, whole.edges, strict=True):
            assert np.array_equal(mine[present], right[present])


@given(rows())
def test_what_never_moves_is_told_from_what_does(drawn: tuple[np.ndarray, ...]) -> None:
    values, _, _, _ = drawn
    found = statistics.steady(values)
    assert found.tolist() == [len(set(row)) == 1 and row[0] != ABSENT for row in values.tolist()]


def test_one_step_aside_is_no_rest() -> None:
    values = np.full((3, 5000), 7, np.int64)
    values[1, 4321] = 8
    values[2, 1] = ABSENT
    assert statistics.steady(values).tolist() == [True, False, False]
