# SPDX-License-Identifier: Apache-2.0
"""Numbers in the fewest bytes: they come back, and so do those that are absent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import ABSENT
from sysmond.ring.frame import VALUE_MAX
from sysmond.store.coding import integers

EDGES = [sign * (2**bits + more) for bits in (7, 15, 31, 61) for more in (-1, 0, 1) for sign in (1, -1)]
NUMBERS = st.lists(st.sampled_from([ABSENT, 0, VALUE_MAX, -VALUE_MAX, *EDGES]), max_size=20)


@given(NUMBERS)
def test_numbers_come_back_from_the_fewest_bytes(numbers: list[int]) -> None:
    codes = integers.narrowest(np.array(numbers, np.int64))
    assert integers.numbers_of(codes).tolist() == numbers
    widened, absent = integers.widen(codes)
    assert widened.tolist() == [0 if number == ABSENT else number for number in numbers]
    assert (absent is None) == (ABSENT not in numbers)
    assert absent is None or absent.tolist() == [number == ABSENT for number in numbers]
    there = [number for number in numbers if number != ABSENT]
    needed = [width for width in integers.WIDTHS if all(abs(number) < 2 ** (8 * width - 1) for number in there)]
    assert codes.itemsize == needed[0]


@pytest.mark.parametrize("edge", EDGES)
def test_many_ranges_take_as_many_bytes_as_each_by_itself(edge: int) -> None:
    low, high = np.array([min(edge, 0), edge]), np.array([max(edge, 0), edge])
    one_by_one = [integers.width(*each) for each in zip(low.tolist(), high.tolist(), strict=True)]
    assert integers.widths(low, high).tolist() == one_by_one


def test_the_last_number_that_is_there_is_found_along_the_last_axis() -> None:
    absent = np.array([[True, False, True, True], [False, True, False, True]])
    assert integers.last_there(absent).tolist() == [[-1, 1, 1, 1], [0, 0, 2, 2]]


def test_numbers_differ_from_the_last_that_was_there_of_their_key() -> None:
    numbers = np.array([5, ABSENT, 8, ABSENT, ABSENT, 3, 4], np.int64)
    assert integers.grown(numbers, np.array([0, 3])).tolist() == [0, ABSENT, 3, ABSENT, ABSENT, 3, 1]


@given(st.lists(NUMBERS.filter(bool), max_size=5))
def test_differences_sum_up_to_what_they_were_made_of(keys: list[list[int]]) -> None:
    numbers = np.array([number for key in keys for number in key], np.int64)
    counts = np.array([len(key) for key in keys], np.int64)
    begins = np.cumsum(counts) - counts
    differences = integers.grown(numbers, begins)
    assert integers.summed(differences, numbers[begins], begins).tolist() == numbers.tolist()
