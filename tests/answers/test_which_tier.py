# SPDX-License-Identifier: Apache-2.0
"""Which layer answers: nothing counts twice, nothing inside the range is missed, and the coarsest is taken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.answers.series import which_tier
from sysmond.answers.series.which_tier import ROWS_NS, Layer
from sysmond.store.coding.statistics import Axis

# In these tests a tick is every 1 ns, and boot time is UTC.
STEPS = (ROWS_NS, 10, 60, 300)


def layer(ticks: list[int], step_ns: int) -> Layer:
    """Rows, or buckets of a step, of these ticks."""
    held = np.array(sorted(ticks), np.int64)
    starts = np.flatnonzero(np.diff(held // max(1, step_ns), prepend=-1))
    ends = np.append(starts[1:], len(held)) - 1
    axis = Axis(held[starts], held[ends], ends - starts + 1)
    return Layer(axis.first, axis.last, axis)


def chosen(
    layers: dict[int, list[int]], asked_ns: int, start_ns: int, end_ns: int, *, rows_first: bool = False
) -> dict[int, list[tuple[int, int]]]:
    """What was chosen, by layer: the first and last tick of each bucket."""
    made = {step_ns: layer(ticks, step_ns) for step_ns, ticks in layers.items() if ticks}
    found = which_tier.choose(made, asked_ns, start_ns, end_ns, rows_first=rows_first)
    return {
        step_ns: [
            (int(made[step_ns].axis.first[at]), int(made[step_ns].axis.last[at])) for at in np.flatnonzero(each.mask)
        ]
        for step_ns, each in found.items()
        if each.mask.any()
    }


def ticks_of(layers: dict[int, list[int]], buckets: dict[int, list[tuple[int, int]]]) -> list[int]:
    """All ticks that chosen buckets count, in order, as often as they do."""
    return sorted(
        tick
        for step_ns, spans in buckets.items()
        for first, last in spans
        for tick in layers[step_ns]
        if first <= tick <= last
    )


def test_the_coarsest_that_divides_the_step_answers() -> None:
    everything = {key: list(range(600)) for key in STEPS}
    assert chosen(everything, 600, 0, 600).keys() == {300}
    assert chosen(everything, 120, 0, 600).keys() == {60}
    assert chosen(everything, 50, 0, 600).keys() == {10}
    assert chosen(everything, 7, 0, 600).keys() == {ROWS_NS}


def test_what_no_bucket_keeps_is_read_from_rows_where_there_are_any() -> None:
    layers = {ROWS_NS: list(range(300, 600)), 60: list(range(600))}
    found = chosen(layers, 60, 0, 600, rows_first=True)
    assert found[60] == [(first, first + 59) for first in range(0, 300, 60)]
    assert len(found[ROWS_NS]) == 300


def test_what_is_not_rolled_up_yet_comes_from_finer_ones() -> None:
    layers = {ROWS_NS: list(range(500, 640)), 10: list(range(630)), 60: list(range(480))}
    found = chosen(layers, 60, 0, 640)
    assert found[60] == [(first, first + 59) for first in range(0, 480, 60)]
    assert ticks_of(layers, found) == list(range(640))


def test_what_finer_ones_forgot_comes_from_coarser_ones() -> None:
    layers = {ROWS_NS: list(range(600, 700)), 300: list(range(600))}
    found = chosen(layers, 10, 0, 700)
    assert found[300] == [(0, 299), (300, 599)]
    assert ticks_of(layers, found) == list(range(700))


def test_of_what_is_cut_by_the_range_the_finer_one_answers() -> None:
    layers = {ROWS_NS: list(range(600)), 60: list(range(600))}
    found = chosen(layers, 60, 90, 200)
    assert ticks_of(layers, found) == list(range(90, 200))


def test_one_layer_alone_is_taken_as_it_is() -> None:
    assert chosen({60: list(range(600))}, 7, 70, 130) == {60: [(60, 119), (120, 179)]}
    assert chosen({ROWS_NS: list(range(600))}, 7, 70, 72) == {ROWS_NS: [(70, 70), (71, 71)]}


@pytest.mark.parametrize("asked_ns", [1, 7, 10, 60, 90, 300, 600])
@given(st.data())
def test_nothing_counts_twice_and_nothing_is_missed(asked_ns: int, data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, 899), max_size=20))
    ticks = [tick for tick in range(900) if tick not in lost]
    layers = {}
    for step_ns in STEPS:
        # What is kept, of a tier in whole buckets: what lies before was forgotten, what lies after is still to come.
        unit = max(1, step_ns)
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, 900 // unit)] * 2)))
        if kept := [tick for tick in ticks if begin * unit <= tick < end * unit]:
            layers[step_ns] = kept
    start_ns, end_ns = sorted(data.draw(st.tuples(*[st.integers(0, 900)] * 2)))
    found = ticks_of(layers, chosen(layers, asked_ns, start_ns, end_ns))
    assert len(found) == len(set(found))
    inside = {tick for kept in layers.values() for tick in kept if start_ns <= tick < end_ns}
    assert inside <= set(found)
    assert all(300 * (start_ns // 300) <= tick < end_ns + 300 for tick in found)
