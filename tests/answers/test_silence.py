# SPDX-License-Identifier: Apache-2.0
"""What readers are told of tables and instances that are not there any more: disabled, unplugged, or elsewhere."""

import pytest

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Semantics, Table
from sysmond.base.result import Gap, Result
from sysmond.ring.frame import Layout
from tests.support.machine import NOON_NS, TABLE, Machine, Writer

READ = "disk/read_bytes@sda"
OTHER = Table("other", (Metric("count", "1", Semantics.COUNTER, "A count."),))


def also(writer: Writer, seconds: range) -> None:
    """Another table of the same ring goes on."""
    number = writer.ring.add(Layout(OTHER, SECOND_NS))
    for second in seconds:
        writer.ring.rows(number, second * SECOND_NS, ("",), [second])


def disabled(writer: Writer, second: int) -> None:
    writer.ring.absence(0, second * SECOND_NS, Cause.DISABLED, "")


def gaps(result: Result, table: str = "disk") -> list[tuple[float, float, str]]:
    return [
        ((gap.start_ns - NOON_NS) / SECOND_NS, (gap.end_ns - NOON_NS) / SECOND_NS, str(gap.cause))
        for gap in result.gaps
        if gap.table == table and not is_before_first(gap)
    ]


def is_before_first(gap: Gap) -> bool:
    """What counters grew by before a first reading nobody knows: of one interval."""
    return gap.cause is Cause.BEFORE_RECORDING and gap.end_ns - gap.start_ns in {
        SECOND_NS,
        2 * SECOND_NS,
        60 * SECOND_NS,
    }


def within(machine: Machine, start: int, end: int, *, raw: bool = True, path: str = READ) -> Result:
    return machine.archive.select(path, start=NOON_NS + start * SECOND_NS, end=NOON_NS + end * SECOND_NS, raw=raw)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_a_disabled_table_is_silent_because_it_is_disabled_until_it_comes_back(
    machine: Machine, sealed: bool, raw: bool
) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 20))
    disabled(writer, 20)
    also(writer, range(1, 60))
    writer.tick(range(40, 60))
    if sealed:
        machine.seal()
        machine.flush()
    assert gaps(within(machine, 0, 60, raw=raw)) == [(20, 40, "disabled")]
    middle = within(machine, 25, 35, raw=raw)
    assert {cause for _, _, cause in gaps(middle)} == {"disabled"}
    assert gaps(within(machine, 0, 60, raw=raw, path="other/count"), "other") == []


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_disabled_between_two_ticks_leaves_no_row_to_the_others(machine: Machine, sealed: bool) -> None:
    """As when the recorder stops before its next tick: an answer as stored has no row then, and none is missing."""
    writer = machine.start(0.5)
    also(writer, range(1, 21))
    writer.tick(range(1, 21))
    writer.ring.absence(0, 20 * SECOND_NS + SECOND_NS // 2, Cause.DISABLED, "")
    writer.ring.close()
    also(machine.start(30.5), range(31, 40))
    if sealed:
        machine.seal()
        machine.flush()
    found = within(machine, 1, 40, path="other/count")
    assert {(time_ns - NOON_NS) % SECOND_NS for time_ns in found.times_ns.tolist()} == {0}
    assert gaps(found, "other") == [(21, 31, "clean shutdown")]
    assert gaps(within(machine, 1, 40))[0] == (20.5, 21.5, "disabled")


def test_what_is_in_quarantine_when_its_lane_starts_anew_is_silent_for_that_reason(machine: Machine) -> None:
    first = machine.start(0.5)
    first.tick(range(1, 20))
    first.ring.absence(0, 20 * SECOND_NS, Cause.QUARANTINED, "hangs")
    also(first, range(1, 21))
    second = machine.start(20.5)
    also(second, range(21, 40))
    second.tick(range(40, 45))
    also(second, range(40, 45))
    assert gaps(within(machine, 0, 45)) == [(20, 40, "quarantined")]


def test_after_it_came_back_and_went_its_own_way_the_cause_is_the_newer_one(machine: Machine) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 20))
    disabled(writer, 20)
    also(writer, range(1, 40))
    machine.seal()
    writer.tick(range(40, 50))
    also(writer, range(40, 50))
    machine.seal()
    also(writer, range(50, 70))
    writer.ring.rows(0, 70 * SECOND_NS, ("sdb",), [1, 2, writer.ring.text("x")])
    assert gaps(within(machine, 0, 70)) == [(20, 40, "disabled"), (50, 70, "no source")]


def test_a_table_that_is_alone_and_disabled_is_no_daemon_that_is_down(machine: Machine) -> None:
    """Up to now: what runs on is the rest of the same part."""
    now = clock.relation()
    boot, wall_ns = clock.boot_id(), now.realtime_ns - now.boottime_ns
    begin = now.boottime_ns // SECOND_NS - 500
    writer = machine.start(begin, boot=boot, wall_ns=wall_ns, interval_ns=2 * SECOND_NS)
    writer.tick(range(begin, begin + 100, 2))
    disabled(writer, begin + 100)
    also(writer, range(begin, begin + 505))
    result = machine.archive.select(READ, start=wall_ns + begin * SECOND_NS, end="now")
    (gap,) = [gap for gap in result.gaps if gap.table == "disk" and not is_before_first(gap)]
    assert (round((gap.start_ns - wall_ns) / SECOND_NS), gap.cause) == (begin + 100, Cause.DISABLED)
    assert gap.end_ns > wall_ns + (begin + 490) * SECOND_NS
    again = writer.ring.add(Layout(TABLE, 5 * SECOND_NS))
    writer.ring.rows(again, (begin + 400) * SECOND_NS, ("sda",), [1, 2, writer.ring.text("x")])
    result = machine.archive.select(READ, start=wall_ns + begin * SECOND_NS, end="now", raw=True)
    assert gaps(result)[0][2] == "disabled"
    assert round((result.gaps[0].end_ns - wall_ns) / SECOND_NS) == begin + 400


@pytest.mark.parametrize("sealed", [False, True])
def test_a_change_of_interval_leaves_no_gap(machine: Machine, sealed: bool) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 20))
    also(writer, range(1, 100))
    fast = writer.ring.add(Layout(TABLE, SECOND_NS // 10))
    for begin in (20, 60):
        for tick in range(begin * 10, begin * 10 + 200):
            values = [1000 + 7 * tick, tick, writer.ring.text("made by sda")]
            writer.ring.rows(fast, tick * SECOND_NS // 10, ("sda",), values)
    writer.tick(range(40, 60))
    writer.tick(range(80, 100))
    if sealed:
        machine.seal()
        machine.flush()
    for raw in (True, False):
        assert gaps(within(machine, 1, 100, raw=raw)) == []


def test_an_interval_that_comes_back_leaves_no_gap_but_the_one_there_is(machine: Machine) -> None:
    """Two other intervals had the table meanwhile, and a hole between them of everything."""
    machine.start(0.5, interval_ns=2 * SECOND_NS).tick(range(2, 21, 2))
    writer = machine.start(20.5)
    writer.tick(range(21, 40))
    machine.start(59.5).tick(range(60, 70))
    machine.start(69.5, interval_ns=5 * SECOND_NS).tick(range(70, 101, 5))
    machine.start(100.5, interval_ns=2 * SECOND_NS).tick(range(102, 121, 2))
    assert [(start, end) for start, end, _ in gaps(within(machine, 0, 121))] == [(40, 60)]


def test_a_table_that_left_its_interval_to_another_is_not_missing(machine: Machine) -> None:
    """Up to now: the other table of its old interval stops, and it goes on elsewhere."""
    now = clock.relation()
    boot, wall_ns = clock.boot_id(), now.realtime_ns - now.boottime_ns
    begin = now.boottime_ns // SECOND_NS - 500
    writer = machine.start(begin, boot=boot, wall_ns=wall_ns)
    writer.tick(range(begin, begin + 100))
    also(writer, range(begin, begin + 200))
    machine.seal()
    also(writer, range(begin + 200, begin + 300))
    machine.start(begin + 100, boot=boot, wall_ns=wall_ns, interval_ns=2 * SECOND_NS).tick(
        range(begin + 100, begin + 505, 2)
    )
    result = machine.archive.select(READ, "other/count", start=wall_ns + begin * SECOND_NS, end="now", raw=True)
    assert {gap.table for gap in result.gaps} == {"other"}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_what_moved_to_another_lane_is_missing_only_where_neither_has_it(
    machine: Machine, sealed: bool, raw: bool
) -> None:
    """Its last reading was interrupted; in the other lane one of its readings failed, and then nobody read it."""
    writer = machine.start(0.5)
    writer.tick(range(1, 5))
    writer.ring.absence(0, 5 * SECOND_NS, Cause.PROBE_FAILED, "interrupted")
    also(writer, range(1, 40))
    moved = machine.start(5.5, writer="background")
    moved.tick([*range(8, 20), *range(21, 23)])
    moved.ring.absence(0, 20 * SECOND_NS, Cause.PROBE_FAILED, "late")
    writer.ring.absence(0, 30 * SECOND_NS, Cause.PROBE_FAILED, "late")
    writer.tick(range(31, 40))
    if sealed:
        machine.seal()
        machine.flush()
    assert gaps(within(machine, 1, 40, raw=raw)) == [
        (5, 6, "probe failed"),
        (6, 8, "no source"),
        (20, 21, "probe failed"),
        (23, 30, "no source"),
        (30, 31, "probe failed"),
    ]


def test_a_late_tick_of_all_is_still_told(machine: Machine) -> None:
    writer = machine.start(0.5)
    slow = writer.ring.add(Layout(TABLE, 5 * SECOND_NS))
    for second in [*range(1, 20), *range(30, 50)]:
        writer.tick([second])
        if second % 5 == 0:
            writer.ring.rows(slow, second * SECOND_NS, ("sdb",), [1, 2, writer.ring.text("x")])
    assert (20, 30, "late tick") in gaps(within(machine, 1, 50))


@pytest.mark.parametrize("raw", [False, True])
def test_a_range_that_ends_before_recording_has_a_gap_and_no_rows(machine: Machine, raw: bool) -> None:
    machine.start(0.5).tick(range(100, 120))
    early = machine.archive.select(READ, end=NOON_NS + 20 * SECOND_NS, raw=raw)
    assert len(early.times_ns) == 0
    assert gaps(early) == [(19, 100, "before recording")]
    assert gaps(machine.archive.select(READ, end=NOON_NS + 110 * SECOND_NS, raw=raw)) == []


def test_an_instance_that_is_unplugged_is_a_gap_of_that_series(machine: Machine) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 20), ("sda", "sdb"))
    writer.tick(range(20, 40), ("sdb",))
    writer.tick(range(40, 50), ("sda", "sdb"))
    for raw in (True, False):
        assert gaps(within(machine, 1, 50, raw=raw)) == [(20, 40, "no source")]
        assert gaps(within(machine, 1, 50, raw=raw, path="disk/read_bytes@sdb")) == []


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_a_table_that_was_not_due_is_not_silent_because_another_was_read_out_of_turn(
    machine: Machine, sealed: bool, raw: bool
) -> None:
    minute_ns = 60 * SECOND_NS
    writer = machine.start(0.5)
    ring = writer.ring
    slow = ring.add(Layout(OTHER._replace(name="slow"), minute_ns))
    woken = ring.add(Layout(OTHER, minute_ns))
    for second in (60, 61, 62, 85, 120, 150, 180, 181, 240, 245, 300, 301, 360, 366):
        writer.relation(second * SECOND_NS)
        if second % 60 == 0 and second not in {240, 300}:  # Two readings are missing, and nobody says why.
            ring.rows(slow, second * SECOND_NS, ("",), [second])
        ring.rows(woken, second * SECOND_NS, ("",), [second])
    if sealed:
        machine.seal()
        machine.flush()
    told = within(machine, 60, 370, raw=raw, path="slow/count")
    assert gaps(told, "slow") == [(181, 361, "no source")]
