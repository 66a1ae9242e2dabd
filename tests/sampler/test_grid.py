# SPDX-License-Identifier: Apache-2.0
"""The grid of ticks: every slot is a multiple, none is served twice, late ones are counted."""

from hypothesis import given
from hypothesis import strategies as st

from sysmond.sampler.grid import Slot, next_slot_ns, slot_at

SECOND = 1_000_000_000
INTERVALS = st.sets(st.integers(1, 10 * SECOND), min_size=1, max_size=4)


def test_a_tick_lies_on_the_next_whole_second() -> None:
    assert next_slot_ns(5 * SECOND + 1, {SECOND}) == 6 * SECOND
    assert next_slot_ns(5 * SECOND, {SECOND}) == 6 * SECOND


def test_the_shortest_wait_decides() -> None:
    assert next_slot_ns(2_100_000_000, {SECOND, 700_000_000}) == 2_800_000_000
    assert next_slot_ns(2_800_000_000, {SECOND, 700_000_000}) == 3_000_000_000


def test_a_missed_slot_is_skipped_and_counted() -> None:
    assert slot_at(6 * SECOND + 5, 6 * SECOND, {SECOND}) == Slot(6 * SECOND, 5, 0)
    assert slot_at(9 * SECOND + 5, 6 * SECOND, {SECOND}) == Slot(9 * SECOND, 5, 3)


def test_a_first_slot_off_the_grid_of_long_intervals_is_served_all_the_same() -> None:
    assert slot_at(12 * SECOND + 1, 12 * SECOND, {10 * SECOND}) == Slot(12 * SECOND, 1, 0)


@given(INTERVALS, st.integers(0, 100 * SECOND), st.integers(0, 20 * SECOND))
def test_slots_are_multiples_and_never_in_the_future(intervals: set[int], now: int, late: int) -> None:
    deadline = next_slot_ns(now, intervals)
    assert now < deadline <= now + min(intervals)
    slot = slot_at(deadline + late, deadline, intervals)
    assert any(slot.tick_ns % interval == 0 for interval in intervals)
    assert deadline <= slot.tick_ns <= deadline + late
    assert slot.lateness_ns == deadline + late - slot.tick_ns
    assert next_slot_ns(slot.tick_ns, intervals) > deadline + late


@given(st.integers(1, SECOND), st.lists(st.integers(0, 5 * SECOND), min_size=1, max_size=20))
def test_served_and_missed_slots_are_all_there_are(interval: int, delays: list[int]) -> None:
    deadline = next_slot_ns(0, {interval})
    served = missed = 0
    last = 0
    for delay in delays:
        slot = slot_at(deadline + delay, deadline, {interval})
        served += 1
        missed += slot.missed
        last = slot.tick_ns
        deadline = next_slot_ns(slot.tick_ns, {interval})
    assert served + missed == last // interval
