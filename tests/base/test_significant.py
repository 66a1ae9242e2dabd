# SPDX-License-Identifier: Apache-2.0
"""Fewer digits: never off by more than is said, totals exact, and nothing that is no number is touched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.base.significant import BITS_MAX, BITS_MIN, counters, gauges, shorten

BITS = st.integers(BITS_MIN, BITS_MAX)
SIZES = st.integers(0, 62).flatmap(lambda length: st.integers(0, (1 << length) - 1))
GAUGES = st.lists(st.one_of(SIZES, SIZES.map(lambda size: -size), st.just(ABSENT)), min_size=1, max_size=30)
STEPS = st.one_of(st.just(0), st.integers(0, 40).flatmap(lambda length: st.integers(0, (1 << length) - 1)))


@st.composite
def counted(draw: st.DrawFn) -> Int64Array:
    """A counter as it may have been read: growing by much and by little, reset, corrected, absent."""
    value, row = draw(STEPS), []
    for step in draw(st.lists(STEPS, min_size=1, max_size=60)):
        luck = draw(st.integers(0, 19))
        value = value // 3 if luck == 0 else max(0, value - 3) if luck == 1 else value + step
        row.append(ABSENT if luck == 2 else value)
    return np.array([row], np.int64)


def of(row: Int64Array) -> list[int]:
    """The values that are there."""
    return [value for value in row.tolist() if value != ABSENT]


@given(GAUGES, BITS)
def test_a_gauge_is_as_near_as_its_bits_allow(row: list[int], bits: int) -> None:
    [rounded] = gauges(np.array([row], np.int64), bits).tolist()
    for value, kept in zip(row, rounded, strict=True):
        if value == ABSENT or abs(value) >= 2**61:
            assert kept == value
        else:
            assert abs(kept - value) << bits <= abs(value)
            assert kept == 0 or (abs(kept) >> max(0, abs(kept).bit_length() - bits - 1)) & 1 == 0 or abs(kept) < 2**bits
            assert gauges(np.array([[kept]]), bits).tolist() == [[kept]]


@given(counted(), BITS)
def test_a_counter_keeps_its_totals_its_rests_and_its_resets(values: Int64Array, bits: int) -> None:
    rounded = counters(values, bits)
    assert ((rounded == ABSENT) == (values == ABSENT)).all()
    was, now = of(values[0]), of(rounded[0])
    if not was:
        return
    assert (now[0], now[-1]) == (was[0], was[-1])
    largest = 0
    for before, after, rounded_before, rounded_after in zip(was, was[1:], now, now[1:], strict=False):
        grown, grows = after - before, rounded_after - rounded_before
        if grown < 0:
            assert (rounded_before, rounded_after) == (before, after)
            largest = 0
            continue
        assert grows >= 0
        assert abs(grows - grown) << (bits - 1) <= grown
        largest = max(largest, grown)
        assert abs(rounded_after - after) < max(1, 1 << largest.bit_length() >> bits)


@given(st.lists(counted(), min_size=1, max_size=4), BITS, st.lists(st.booleans(), min_size=60, max_size=60))
def test_only_what_is_free_is_shortened(rows: list[Int64Array], bits: int, chances: list[bool]) -> None:
    length = min(row.shape[1] for row in rows)
    values = np.concatenate([row[:, :length] for row in rows] * 3)
    kind = np.arange(len(values)) % 3
    free = np.array(chances[:length])
    kept = values.copy()
    shorten(kept, bits, is_gauge=kind == 1, is_counter=kind == 2, free=free)
    assert np.array_equal(kept[:, ~free], values[:, ~free])
    assert np.array_equal(kept[kind == 0], values[kind == 0])
    assert np.array_equal(kept[kind == 1][:, free], gauges(values[kind == 1][:, free], bits))
    edges = np.diff(np.concatenate([[0], free.astype(int), [0]]))
    ends = np.concatenate([np.flatnonzero(edges[:-1] == 1), np.flatnonzero(edges[1:] == -1)])
    present = values[:, ends] != ABSENT
    exact = (kept[:, ends] == values[:, ends]) | ~present
    assert exact[kind == 2].all()


@pytest.mark.parametrize("bits", [BITS_MIN, 8, BITS_MAX])
def test_values_at_the_edge_of_what_is_stored_do_not_overflow(bits: int) -> None:
    values = np.array([[0, 2**62 - 1, 2**61, 2**61 - 1, -(2**62) + 1, ABSENT, 1]], np.int64)
    assert np.abs(gauges(values, bits)[values != ABSENT]).max() < 2**62
    assert counters(values, bits).tolist() == values.tolist()


def test_a_steady_rate_costs_one_size_of_increment() -> None:
    values = np.arange(0, 1001 * 500, 1001, dtype=np.int64)[None]
    grown = np.diff(counters(values, 8))
    assert set(grown[0, :-1].tolist()) == {1000, 1004}
    assert grown.sum() == 1001 * 499
