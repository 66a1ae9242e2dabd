# SPDX-License-Identifier: Apache-2.0
"""Configurations that somebody made up are taken, or refused in one line, in time; and no tag of them is obeyed."""

import mmap

from tests.hostile import configurations

ROUNDS = 15


def test_whatever_a_configuration_says_it_is_taken_or_refused_in_one_line() -> None:
    found = configurations.run(ROUNDS, 1)
    assert found["problems"] == []
    assert found["configurations"] == ROUNDS


def test_what_tests_beside_it_hold_is_not_counted() -> None:
    with mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE):
        assert list(configurations.tried(["as many options as a file has room for"])) == []


def test_there_are_many_of_each_kind() -> None:
    assert len(configurations.cases()) >= 150
    assert {name for name, case in configurations.cases().items() if case.is_right} >= {"nothing", "only comments"}


def test_the_largest_of_each_kind_are_refused_in_time() -> None:
    """What took a quarter of a minute: many small values in one file."""
    for name in ("as many keys without a value as a file has room for", "as many sections as a file has room for"):
        assert list(configurations.tried([name])) == []
