# SPDX-License-Identifier: Apache-2.0
"""Where processes were killed: told of the cgroup that is there, or of the one above that which is gone, and once."""

from collections.abc import Mapping

from sysmond.cgroups.oom_kills import KillCounts, OomKills

Counts = Mapping[str, tuple[int, ...]]


def found(*readings: Counts) -> list[dict[str, str]]:
    kills = OomKills()
    return [dict(kills.of({path: KillCounts(*count) for path, count in counts.items()})) for counts in readings]


def test_what_was_there_is_no_news_and_each_kill_is_told_once() -> None:
    readings = [{"/a": (1, kills, kills)} for kills in (5, 5, 6, 8, 8)]
    assert found(*readings) == [{}, {}, {"/a": "1 process killed"}, {"/a": "2 processes killed"}, {}]


def test_a_kill_is_of_the_cgroup_in_which_it_was_and_not_of_those_above() -> None:
    before = {"/a": (1, 0, 0), "/a/b": (2, 0, 0), "/a/b/c": (3, 0, 0)}
    after = {"/a": (1, 4, 1), "/a/b": (2, 3, 0), "/a/b/c": (3, 3, 3)}
    assert found(before, after)[1] == {"/a": "1 process killed", "/a/b/c": "3 processes killed"}


def test_what_nobody_who_is_there_accounts_for_was_killed_in_one_that_is_gone() -> None:
    before = {"/s": (1, 7, 0), "/s/old": (2, 7, 7), "/s/stays": (3, 0, 0)}
    after = {"/s": (1, 10, 0), "/s/stays": (3, 1, 1)}
    assert found(before, after)[1] == {
        "/s": "2 processes killed in control groups below it that are gone",
        "/s/stays": "1 process killed",
    }


def test_one_made_again_has_only_its_own() -> None:
    before = {"/s": (1, 7, 0), "/s/again": (2, 7, 7)}
    after = {"/s": (1, 8, 0), "/s/again": (9, 1, 1)}
    assert found(before, after)[1] == {"/s/again": "1 process killed"}


def test_where_each_counts_by_itself_nothing_is_taken_from_those_above() -> None:
    assert found({"/a": (1, 0), "/a/b": (2, 0)}, {"/a": (1, 1), "/a/b": (2, 1)})[1] == {
        "/a": "1 process killed",
        "/a/b": "1 process killed",
    }


def test_a_counter_that_fell_and_one_that_is_absent_are_no_kill() -> None:
    assert found({"/a": (1, 5, 5)}, {"/a": (1, 4, 4)}, {}, {"/a": (1, -(2**63), -(2**63))})[1:] == [{}, {}, {}]
