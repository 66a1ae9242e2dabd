# SPDX-License-Identifier: Apache-2.0
"""Clocks: how they are read, and what a boot's readings say about the wall-clock time of ticks."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.wall_clock import Course, Said, course_of, joined

NOON_NS = 1_700_006_400 * SECOND_NS


def read(at_s: float, wall_ns: int, asleep_ns: int = 0) -> Relation:
    at_ns = round(at_s * SECOND_NS)
    return Relation(at_ns, at_ns + wall_ns, at_ns - asleep_ns)


def test_clocks_are_read_again_when_the_reader_was_preempted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    def clocks() -> Iterator[int]:
        # Preempted for 5 ms after the first reading of boot time, and then no more.
        yield from (5_000_000, 300, 300, 300)
        while True:
            yield 300

    steps = clocks()

    def clock_gettime_ns(which: int) -> int:
        nonlocal now_ns
        here_ns = now_ns
        now_ns += next(steps)
        return here_ns + (NOON_NS if which == clock.CLOCK_REALTIME else 0)

    monkeypatch.setattr(time, "clock_gettime_ns", clock_gettime_ns)
    found = clock.relation()
    assert abs(found.realtime_ns - found.boottime_ns - NOON_NS) < 1000
    assert found.boottime_ns > 5_000_000


def test_readings_of_this_machine_agree() -> None:
    readings = [clock.relation() for _ in range(50)]
    offsets = sorted(reading.realtime_ns - reading.boottime_ns for reading in readings)
    assert offsets[40] - offsets[10] < 100_000  # A few may have been preempted five times in a row.


def test_readings_a_little_apart_move_no_tick() -> None:
    course = course_of([read(100 + n, NOON_NS + n * 977 % 5000) for n in range(50)], SECOND_NS)
    assert list(course.steps()) == []
    ticks = np.arange(90, 200) * SECOND_NS
    assert (np.diff(course.utc_ns(ticks)) == SECOND_NS).all()


def test_a_step_holds_from_the_tick_that_found_it() -> None:
    course = course_of([read(100.0003, NOON_NS), read(110.4, NOON_NS + 3 * SECOND_NS, SECOND_NS)], SECOND_NS)
    assert list(course.steps()) == [(110 * SECOND_NS, 3 * SECOND_NS)]
    assert course.moment_ns(50 * SECOND_NS) == NOON_NS + 50 * SECOND_NS
    assert course.moment_ns(109 * SECOND_NS) == NOON_NS + 109 * SECOND_NS
    assert course.moment_ns(110 * SECOND_NS) == NOON_NS + 113 * SECOND_NS
    assert course.asleep_ns(109 * SECOND_NS, 110 * SECOND_NS) == SECOND_NS


def test_without_readings_boot_time_counts_from_1970() -> None:
    course = course_of([], SECOND_NS)
    assert course.moment_ns(5) == 5
    assert course.window(3, 7) == (3, 7)


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=5), st.integers(-150, 250), st.integers(1, 100))
def test_a_window_has_every_tick_of_a_range(offsets: list[int], start: int, length: int) -> None:
    readings = [read(20 * index, offset * SECOND_NS) for index, offset in enumerate(offsets)]
    course = course_of(readings, SECOND_NS)
    ticks = np.arange(-10, 150) * SECOND_NS
    low_ns, high_ns = course.window(start * SECOND_NS, (start + length) * SECOND_NS)
    times = course.utc_ns(ticks)
    assert times.tolist() == [course.moment_ns(int(tick)) for tick in ticks]
    inside = ticks[(times >= start * SECOND_NS) & (times < (start + length) * SECOND_NS)]
    assert ((inside >= low_ns) & (inside < high_ns)).all()
    if len(set(offsets)) == 1:
        assert ((ticks >= low_ns) & (ticks < high_ns)).sum() == len(inside)


def said(first_s: int, last_s: int, *relations: Relation) -> Said:
    return Said(relations, first_s * SECOND_NS, last_s * SECOND_NS, SECOND_NS)


def wall_ns(course: Course, *ticks_s: int) -> list[int]:
    return [course.moment_ns(tick * SECOND_NS) - tick * SECOND_NS for tick in ticks_s]


def test_a_file_sets_the_clock_of_its_own_ticks_only() -> None:
    """What a file between two others makes up moves neither of them, nor what comes after."""
    far_ns = NOON_NS + 90 * 365 * 86400 * SECOND_NS
    files = [
        said(1, 60, read(0.5, NOON_NS)),
        said(61, 120, read(30.0, far_ns)),
        said(121, 180, read(0.5, NOON_NS)),
        said(181, 240, read(0.5, NOON_NS)),
    ]
    course = joined(files)
    assert wall_ns(course, 1, 30, 60, 121, 150, 180, 181, 240) == [NOON_NS] * 8
    assert wall_ns(course, 61, 120) == [far_ns] * 2


def test_files_that_agree_are_one_course() -> None:
    """A step that one of them has, and the next repeats."""
    later_ns = NOON_NS + 3 * SECOND_NS
    step = read(120.4, later_ns)
    first, second, third = read(0.5, NOON_NS), read(60.2, NOON_NS + 2000), read(200.0, later_ns - 2000)
    files = [
        said(1, 60, first),
        said(61, 120, first, second, step),
        said(121, 180, first, step),
        said(181, 240, step, third),
        said(0, -1, read(5.0, NOON_NS)),
    ]
    told = {relation for each in files for relation in each.relations}
    course, expected = joined(files), course_of(told, SECOND_NS)
    ticks = np.arange(0, 300) * SECOND_NS
    assert (course.utc_ns(ticks) == expected.utc_ns(ticks)).all()
    assert list(course.steps()) == list(expected.steps()) == [(120 * SECOND_NS, 3 * SECOND_NS)]


def test_a_file_that_noticed_a_step_late_is_led_by_that_beside_it() -> None:
    later_ns = NOON_NS + 3 * SECOND_NS
    course = joined([said(1, 600, read(0.5, NOON_NS), read(300.4, later_ns)),
                     said(60, 600, read(0.5, NOON_NS), read(330.1, later_ns))])  # fmt: skip
    assert list(course.steps()) == [(300 * SECOND_NS, 3 * SECOND_NS)]


def test_ticks_before_all_relations_of_their_file_follow_others() -> None:
    course = joined([said(1, 60, read(0.5, NOON_NS)), said(61, 120, read(100.0, NOON_NS + 5 * SECOND_NS))])
    assert wall_ns(course, 61, 99, 100) == [NOON_NS, NOON_NS, NOON_NS + 5 * SECOND_NS]
