# SPDX-License-Identifier: Apache-2.0
"""Storms of new processes: what is one, and that it is told once."""

from collections.abc import Iterable

import pytest
from sysmond_probes import cpu

from sysmond.probe import Host
from sysmond.sources.forks import LEAST_S, ForkStorms


def told(paces: Iterable[float], cpus: int = 2) -> list[tuple[int, str]]:
    """What is told of so many a second, second by second, and in which one."""
    now_s = [1000.0]
    storms = ForkStorms(cpus, lambda: now_s[0])
    count, said = 5_000_000.0, []
    for second, pace in enumerate(paces):
        if words := storms.look(int(count)):
            said.append((second, words))
        now_s[0] += 1
        count += pace
    return said


def test_a_storm_is_told_once_and_again_after_a_calm() -> None:
    paces = [100] * 15 + [5000] * 100 + [10] * 90 + [5000] * 30
    assert [second for second, _ in told(paces)] == [20, 210]
    assert told(paces)[0][1] == "2550 processes and threads a second for 10 s"


@pytest.mark.parametrize(("cpus", "pace", "count"), [(2, LEAST_S - 50, 0), (2, LEAST_S, 1), (64, 15_000, 0)])
def test_what_a_machine_can_do_is_no_storm(cpus: int, pace: int, count: int) -> None:
    assert len(told([pace] * 30, cpus)) == count


def test_a_burst_of_a_second_is_none() -> None:
    assert told([*[10] * 15, 9000, *[10] * 20]) == []


def test_what_came_in_a_gap_is_none() -> None:
    now_s = [1000.0]
    storms = ForkStorms(1, lambda: now_s[0])
    storms.look(0)
    now_s[0] = 5000.0
    assert not storms.look(10**9)


def test_the_table_is_that_of_this_machine() -> None:
    host = Host()
    [(instance, values)] = cpu.Whole().read(host)
    assert (instance, host.has_events) == ("", False)
    assert values[cpu.FORKS] > 0  # type: ignore[operator]
    assert len(values) == len(cpu.SYSTEM.metrics)
