# SPDX-License-Identifier: Apache-2.0
"""The pulse of the real-time lane: felt in real rings, by a clock of the test's own."""

import os
from pathlib import Path

import pytest

from sysmond.base.model import Lane, Metric, Semantics, Sensitivity, Table
from sysmond.daemon.heartbeat import LATE_S, LOOK_S, STUCK_MIN_S, Pulse, limit_s
from sysmond.machine.folders import create_classes
from sysmond.plan.plan import Plan, PlannedProbe
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter

SECOND = 1_000_000_000
TABLE = Table("thing", (Metric("count", "1", Semantics.COUNTER, "A number."),))


def ring(runtime: Path, started_ns: int, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> RingWriter:
    create_classes(f"{runtime}/sampler")
    identity = Identity("b" * 32, "sampler", sensitivity, os.getpid(), started_ns)
    return RingWriter(f"{runtime}/sampler/{sensitivity}/{started_ns}.ring", 65536, identity, [Layout(TABLE, SECOND)])


def looks(pulse: Pulse, now_s: float, count: int) -> list[float]:
    return [pulse.silent_s(now_s + LOOK_S * number) for number in range(count)]


def test_a_ring_that_grows_is_alive_and_one_that_does_not_is_silent(runtime: Path) -> None:
    pulse = Pulse(str(runtime))
    pulse.begin(100.0)
    writer = ring(runtime, 5)
    assert pulse.silent_s(102.0) == 0
    writer.rows(0, SECOND, ("",), [1])
    assert pulse.silent_s(104.0) == 0
    assert looks(pulse, 106.0, 3) == [2.0, 4.0, 6.0]
    ring(runtime, 6, Sensitivity.RESTRICTED)  # Whichever of its rings grows.
    assert pulse.silent_s(112.0) == 0


def test_the_rings_of_predecessors_say_nothing_about_a_lane_that_starts(runtime: Path) -> None:
    ring(runtime, 5).close()
    pulse = Pulse(str(runtime))
    pulse.begin(100.0)
    assert looks(pulse, 102.0, 5) == [0.0] * 5
    ring(runtime, 6)
    assert looks(pulse, 112.0, 3) == [0.0, 2.0, 4.0]
    pulse.begin(130.0)
    assert looks(pulse, 132.0, 3) == [0.0] * 3


def test_who_looks_too_late_is_no_judge(runtime: Path) -> None:
    pulse = Pulse(str(runtime))
    pulse.begin(100.0)
    ring(runtime, 5)
    assert looks(pulse, 102.0, 2) == [0.0, 2.0]
    assert pulse.silent_s(106.0 + 2 * LATE_S) == 0


@pytest.mark.parametrize("name", ["nonsense.ring", "7.ring", "7.ring.new"])
def test_what_is_no_ring_is_no_pulse(runtime: Path, name: str) -> None:
    create_classes(f"{runtime}/sampler")
    Path(runtime, "sampler/public", name).write_bytes(b"no ring")
    pulse = Pulse(str(runtime))
    pulse.begin(100.0)
    assert looks(pulse, 103.0, 3) == [0.0] * 3


def test_a_lane_may_be_as_slow_as_its_fastest_table(runtime: Path) -> None:
    def planned(interval_ns: int, lane: Lane = Lane.REALTIME, *, enabled: bool = True) -> PlannedProbe:
        return PlannedProbe("x", "p", lane, interval_ns, Sensitivity.PUBLIC, enabled)

    assert limit_s(Plan(())) == STUCK_MIN_S
    assert limit_s(Plan((planned(SECOND), planned(60 * SECOND)))) == STUCK_MIN_S
    slow = planned(60 * SECOND), planned(SECOND, Lane.BACKGROUND), planned(SECOND, enabled=False)
    assert limit_s(Plan(slow)) == 180.0
