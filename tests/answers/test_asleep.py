# SPDX-License-Identifier: Apache-2.0
"""What readers are told of one instance that has nothing for a reason of its own, beside others that have values."""

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Absence, Cause
from sysmond.base.result import Result
from tests.support.machine import NOON_NS, Machine, Writer, counter, gauge

AWAKE, BOTH, SLEEPER = ["disk/read_bytes@sda"], ["disk/read_bytes"], ["disk/read_bytes@sdb"]
TOLD = (20, 40, "asleep", "disk@sdb: spun down")


def sleep(writer: Writer, seconds: range) -> None:
    """The second disk sleeps, the first goes on: as the sampler writes it."""
    for second in seconds:
        tick_ns = second * SECOND_NS
        writer.relation(tick_ns)
        writer.ring.absence(0, tick_ns, *Absence(Cause.ASLEEP, "spun down").of_instance("disk", "sdb"))
        values = [counter(second), gauge(second), writer.ring.text("made by sda")]
        writer.ring.rows(0, tick_ns, ("sda", "sdb"), [*values, ABSENT, ABSENT, ABSENT])


def gaps(result: Result) -> list[tuple[float, float, str, str]]:
    return [
        ((gap.start_ns - NOON_NS) / SECOND_NS, (gap.end_ns - NOON_NS) / SECOND_NS, str(gap.cause), gap.detail)
        for gap in result.gaps
        if gap.cause is not Cause.BEFORE_RECORDING  # What counters grew by before the first reading nobody knows.
    ]


def ask(machine: Machine, paths: list[str], *, raw: bool) -> Result:
    return machine.archive.select(
        *paths, start=NOON_NS + SECOND_NS, end=NOON_NS + 60 * SECOND_NS, raw=raw, explain=True
    )


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_one_that_sleeps_is_a_gap_for_those_who_ask_for_it(machine: Machine, sealed: bool, raw: bool) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 20), ("sda", "sdb"))
    sleep(writer, range(20, 40))
    writer.tick(range(40, 60), ("sda", "sdb"))
    if sealed:
        machine.seal()
        machine.flush()
    assert gaps(ask(machine, AWAKE, raw=raw)) == []
    assert gaps(ask(machine, SLEEPER, raw=raw)) == [TOLD]
    result = ask(machine, BOTH, raw=raw)
    assert gaps(result) == [TOLD]
    asleep = {each.path: Cause.ASLEEP in [gap.cause for gap in each.gaps] for each in result.explanations}
    assert asleep == {"disk/read_bytes@sda": False, "disk/read_bytes@sdb": True}


def test_two_that_differ_by_a_number_are_two_gaps(machine: Machine) -> None:
    writer = machine.start(0.5)
    for second in range(1, 5):
        writer.relation(second * SECOND_NS)
        for name in ("card0", "card1"):
            writer.ring.absence(0, second * SECOND_NS, *Absence(Cause.ASLEEP).of_instance("disk", name))
        writer.ring.rows(0, second * SECOND_NS, ("card0", "card1"), [ABSENT] * 6)
    machine.seal()
    found = machine.archive.select("disk/queue", start=NOON_NS, end=NOON_NS + 5 * SECOND_NS, raw=True).gaps
    assert {gap.detail for gap in found if gap.cause is Cause.ASLEEP} == {"disk@card0", "disk@card1"}


def test_one_whose_sleep_is_told_does_not_excuse_another(machine: Machine) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 20), ("sda", "sdb"))
    for second in range(20, 40):
        writer.relation(second * SECOND_NS)
        writer.ring.absence(0, second * SECOND_NS, *Absence(Cause.ASLEEP).of_instance("disk", "sdb"))
        writer.ring.rows(0, second * SECOND_NS, ("sdb",), [ABSENT] * 3)
    writer.tick(range(40, 60), ("sda", "sdb"))
    assert gaps(ask(machine, AWAKE, raw=True)) == [(20, 40, "no source", "")]
