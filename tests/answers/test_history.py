# SPDX-License-Identifier: Apache-2.0
"""History over real rings and files: nothing twice, nothing missed, every hole with its cause."""

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysmond.answers.series import query
from sysmond.archiver import merge_job, seal_job
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Boot, Event, Gap, Result
from sysmond.base.timespec import DAY_NS, HOUR_NS
from sysmond.errors import CorruptError, Error, NotPermittedError, UsageError
from sysmond.history import Archive
from sysmond.machine.lock import only_one
from sysmond.store import archive, holdings
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import MemoryBlock
from sysmond.store.timeline import Timeline
from sysmond.store.tracks import Member, OpenedFile
from tests.support.machine import BOOT, NOON_NS, OLDER, TABLE, Machine, Writer, counter, gauge
from tests.support.order import examples

READ = "disk/read_bytes@sda"
QUEUE = "disk/queue@sda"
YEAR_NS = 365 * DAY_NS


def seconds(result: Result, wall_ns: int = NOON_NS) -> list[float]:
    return [(time_ns - wall_ns) / SECOND_NS for time_ns in result.times_ns.tolist()]


def ints(result: Result, path: str) -> list[int | None]:
    integers = result.column(path).integers
    assert integers is not None
    return [None if value == ABSENT else value for value in integers.tolist()]


def gaps(result: Result, wall_ns: int = NOON_NS) -> list[tuple[float, float, str]]:
    """The gaps but for the one until now, and the one before a first reading, in seconds."""
    return [
        ((gap.start_ns - wall_ns) / SECOND_NS, (gap.end_ns - wall_ns) / SECOND_NS, str(gap.cause))
        for gap in result.gaps
        if not is_trailing(gap) and not is_before_first(gap)
    ]


def is_before_first(gap: Gap) -> bool:
    """What counters grew by before a first reading nobody knows: of one interval."""
    return gap.cause is Cause.BEFORE_RECORDING and gap.end_ns - gap.start_ns == SECOND_NS


def is_trailing(gap: Gap) -> bool:
    return gap.end_ns > NOON_NS + 2 * YEAR_NS


def check_whole(machine: Machine, expected: list[int]) -> None:
    """Every tick once, with its own values, however it is asked for."""
    raw = machine.archive.select(READ, QUEUE, "disk/model@sda", raw=True)
    assert raw.warnings == ()
    assert seconds(raw) == expected
    assert ints(raw, READ) == [counter(second) for second in expected]
    assert ints(raw, QUEUE) == [gauge(second) for second in expected]
    assert set(raw.column("disk/model@sda").texts or ()) == {"made by sda"}
    sums = machine.archive.select(READ, QUEUE, step="10s", stat=("sum", "count"))
    assert sum(filter(None, ints(sums, READ))) == counter(expected[-1]) - counter(expected[0])
    assert sums.column(QUEUE, "count").values.sum() == len(expected)


STAGES: dict[str, Callable[[Machine], None]] = {
    "nothing": lambda machine: None,
    "seal": lambda machine: machine.seal(),
    "seal, dying": lambda machine: machine.seal(forget_progress=True),
    "flush": lambda machine: machine.flush(),
    "flush, dying": lambda machine: machine.flush(keep_ram=True),
    "merge": lambda machine: machine.merge(),
    "merge, dying": lambda machine: machine.merge(keep_sources=True),
}


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.lists(st.sampled_from(sorted(STAGES)), max_size=3)), min_size=1, max_size=6
    )
)
def test_at_every_mixture_of_stages_the_answer_is_the_same(parts: list[tuple[int, list[str]]]) -> None:
    with tempfile.TemporaryDirectory(
        prefix="sysmond-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as folder:
        machine = Machine(Path(folder))
        writer = machine.start(99)
        second = 100
        for length, stages in parts:
            writer.tick(range(second, second + length))
            second += length
            for stage in stages:
                STAGES[stage](machine)
        check_whole(machine, list(range(100, second)))


@pytest.mark.parametrize("stages", [["seal", "flush"], ["seal, dying", "flush, dying", "seal", "flush"]])
def test_a_restart_is_a_gap_with_its_cause(machine: Machine, stages: list[str]) -> None:
    first = machine.start(99)
    first.tick(range(100, 110))
    first.ring.close()
    second = machine.start(114)
    second.tick(range(115, 120))
    for stage in stages:
        STAGES[stage](machine)
    third = machine.start(129)
    third.tick(range(130, 135))
    result = machine.archive.select(READ)
    assert gaps(result) == [(110, 115, "clean shutdown"), (120, 130, "daemon down")]
    assert seconds(result) == list(range(100, 135))


def test_what_a_counter_grew_by_in_a_gap_is_in_sums_but_in_no_maximum(machine: Machine) -> None:
    machine.start(99).tick(range(100, 110))
    machine.start(160).tick(range(161, 170))
    result = machine.archive.select(READ, step="10s", stat=("sum", "max", "mean"))
    sums = result.column(READ, "sum").integers
    assert sums is not None
    assert sums[sums != ABSENT].sum() == counter(169) - counter(100)
    assert np.nanmax(result.column(READ, "max").values) <= 8
    assert np.nanmax(result.column(READ, "mean").values) <= 8
    assert gaps(result) == [(110, 161, "daemon down")]


def test_suspend_late_ticks_and_clock_steps_ahead_are_told_apart(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 105))
    writer.tick(range(107, 110))  # Late.
    writer.asleep_ns = 100 * SECOND_NS
    writer.tick(range(210, 215))
    writer.wall_ns += 30 * SECOND_NS
    writer.tick(range(215, 220))
    expected = [(105, 107, "late tick"), (110, 210, "suspended"), (215, 245, "clock step")]
    for stage in ("nothing", "seal", "flush"):
        STAGES[stage](machine)
        result = machine.archive.select(READ, raw=True)
        assert gaps(result) == expected, stage
        assert seconds(result) == [*range(100, 105), 107, 108, 109, *range(210, 215), *range(245, 250)]


def test_recorded_absences_keep_their_cause_and_hide_no_others(machine: Machine) -> None:
    writer = machine.start(99)
    causes = (Cause.PROBE_FAILED, Cause.NO_SOURCE, Cause.NO_PERMISSION, Cause.QUARANTINED, Cause.DROPPED)
    expected = []
    for index, cause in enumerate(causes):
        start = 100 + 10 * index
        writer.tick(range(start, start + 5))
        for second in range(start + 5, start + 10):
            writer.ring.absence(0, second * SECOND_NS, cause, f"because {index}")
        expected.append((start + 5, start + 10, str(cause)))
        STAGES["seal" if index % 2 else "flush"](machine)
    writer.tick(range(150, 155))
    result = machine.archive.select("disk/*@sda")
    assert gaps(result) == expected
    assert {gap.detail for gap in result.gaps if gap.detail} == {f"because {index}" for index in range(5)}


def test_a_probe_that_fails_now_and_then_is_told_each_time(machine: Machine) -> None:
    writer = machine.start(99)
    for second in range(100, 400):
        if second % 2:
            writer.ring.absence(0, second * SECOND_NS, Cause.PROBE_FAILED, "broken")
        else:
            writer.tick([second])
    machine.seal()
    expected = [(second, second + 1, "probe failed") for second in range(101, 400, 2)]
    assert gaps(machine.archive.select("disk/*@sda")) == expected


def test_a_table_that_only_failed_says_why_and_keeps_nobody_from_the_others(machine: Machine) -> None:
    machine.start(99).tick(range(100, 110))
    smart = Table("smart", TABLE.metrics, "device")
    other = machine.start(99, writer="background", table=smart, sensitivity=Sensitivity.RESTRICTED)
    other.relation(100 * SECOND_NS)
    for second in range(100, 108):
        other.ring.absence(0, second * SECOND_NS, Cause.NO_SOURCE, "no such file")
    said = "path 'smart': nothing recorded; no source: no such file"
    failed = Gap(NOON_NS + 100 * SECOND_NS, NOON_NS + 108 * SECOND_NS, "smart", Cause.NO_SOURCE, "no such file")
    for stage in STAGES.values():
        stage(machine)
        with pytest.raises(Error, match=said) as raised:
            machine.archive.select("smart")
        assert raised.value.exit_code == 1
        # Near the range alone there may be less than is known of a table.
        for start_ns in (None, NOON_NS + 102 * SECOND_NS):
            result = machine.archive.select("smart/queue", QUEUE, start=start_ns)
            assert [column.path for column in result.columns] == [QUEUE]
            assert result.warnings == (said.replace("'smart'", "'smart/queue'"),)
            assert failed in result.gaps
            assert result.sensitivity is Sensitivity.RESTRICTED
        everything = machine.archive.select("*")
        assert failed in everything.gaps
        assert everything.warnings == ()
        assert {entry.path for entry in machine.archive.catalogue("smart", QUEUE)} == {QUEUE}


def test_devices_come_and_go_without_spikes(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 110), ("sda", "sdb"))
    machine.seal()
    writer.tick(range(110, 120))
    machine.seal()
    machine.flush()
    writer.tick(range(120, 130), ("sdc", "sdb", "sda"))
    result = machine.archive.select("disk/read_bytes", stat=("max", "sum"), step=SECOND_NS)
    assert np.nanmax(result.column("disk/read_bytes@sdb", "max").values) <= 8
    sums = result.column("disk/read_bytes@sdb", "sum").integers
    assert sums is not None
    assert sums[sums != ABSENT].sum() == counter(129) - counter(100)
    assert (sums[10:20] == ABSENT).all()
    assert gaps(result) == []
    assert gaps(machine.archive.select("disk/queue@sdb")) == [(110, 120, "no source")]
    assert seconds(machine.archive.select("disk/queue@sdc"))[0] == 120


def test_several_boots_lie_in_order_with_the_time_off_between(machine: Machine) -> None:
    # The ids sort against time, and the second boot begins in 1970.
    machine.start(9, boot=BOOT).tick(range(10, 20))
    machine.seal()
    machine.flush()
    machine.reboot()
    writer = machine.start(4, boot=OLDER, wall_ns=0)
    writer.tick(range(5, 8))
    writer.wall_ns = NOON_NS + HOUR_NS
    writer.tick(range(8, 15))
    result = machine.archive.select(READ, start=NOON_NS, stat="sum")
    (step,) = [gap for gap in result.gaps if gap.cause is Cause.CLOCK_STEP]
    assert (step.start_ns, step.end_ns) == (8 * SECOND_NS, NOON_NS + 10 * SECOND_NS)
    assert gaps(result)[1:] == [(20, 3608, "off")]
    assert sum(filter(None, ints(result, READ))) == counter(19) - counter(10) + counter(14) - counter(7)
    newest = machine.archive.select(READ, boot=0, raw=True)
    assert newest.times_ns.tolist() == [s * SECOND_NS for s in (5, 6, 7)] + [
        NOON_NS + HOUR_NS + s * SECOND_NS for s in range(8, 15)
    ]
    assert seconds(machine.archive.select(READ, boot="-1")) == list(range(10, 20))
    assert seconds(machine.archive.select(READ, boot=BOOT[:8])) == list(range(10, 20))
    with pytest.raises(UsageError, match="expected 0 to -1"):
        machine.archive.select(READ, boot=-2)
    with pytest.raises(UsageError, match="no such boot"):
        machine.archive.select(READ, boot="c" * 32)
    everything = machine.archive.select(READ, step="1s")
    assert len(everything.times_ns) < 10_000
    assert everything.times_ns[0] == 5 * SECOND_NS


def test_a_clock_that_was_set_late_is_told_after_the_time_off(machine: Machine) -> None:
    machine.start(9, boot=BOOT).tick(range(10, 20))
    machine.seal()
    machine.flush()
    machine.reboot()
    writer = machine.start(4, boot=OLDER, wall_ns=0)
    writer.tick(range(5, 700))
    writer.wall_ns = NOON_NS + HOUR_NS
    writer.tick(range(700, 710))
    result = machine.archive.select(READ, start=NOON_NS + 15 * SECOND_NS, step="1s")
    assert gaps(result) == [(20, 3600, "off"), (3600, 4300, "clock step")]


def test_the_time_between_boots_is_off_and_then_not_recorded(machine: Machine) -> None:
    machine.start(9, boot=OLDER).tick(range(10, 20))
    machine.seal()
    machine.flush()
    machine.reboot()
    machine.start(600, wall_ns=NOON_NS + HOUR_NS).tick(range(600, 610))
    assert gaps(machine.archive.select(READ)) == [(20, 3600, "off"), (3600, 4200, "daemon down")]


@pytest.mark.parametrize("by_ns", [-HOUR_NS, -2 * SECOND_NS, 10 * YEAR_NS, 500_000_000, -300_000_000])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_step_of_the_wall_clock_loses_and_reorders_nothing(machine: Machine, by_ns: int, sealed: bool) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 120))
    if sealed:
        machine.seal()
        machine.flush()
    writer.wall_ns += by_ns
    writer.tick(range(120, 140))
    end = NOON_NS + 11 * YEAR_NS
    raw = machine.archive.select(READ, raw=True, end=end)
    assert ints(raw, READ) == [counter(second) for second in range(100, 140)]
    assert raw.times_ns.tolist() == [
        NOON_NS + second * SECOND_NS + (by_ns if second >= 120 else 0) for second in range(100, 140)
    ]
    summed = machine.archive.select(READ, QUEUE, step="7s", stat=("sum", "count", "max"), end=end)
    assert summed.column(QUEUE, "count").values.sum() == 40
    sums = summed.column(READ, "sum").integers
    assert sums is not None
    assert sums[sums != ABSENT].sum() == counter(139) - counter(100)
    assert np.nanmax(summed.column(READ, "max").values) <= 8
    steps = [gap for gap in summed.gaps if gap.cause is Cause.CLOCK_STEP]
    assert [gap.end_ns - gap.start_ns for gap in steps] == ([by_ns] if by_ns > 0 else [])
    # The rows after the step are found by the time they bear.
    after = machine.archive.select(
        READ, raw=True, start=NOON_NS + 125 * SECOND_NS + by_ns, end=NOON_NS + 130 * SECOND_NS + by_ns
    )
    assert {counter(second) for second in range(125, 130)} <= set(ints(after, READ))


def test_a_step_of_the_clock_and_a_mark_are_events(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 110))
    writer.wall_ns += 30 * SECOND_NS
    writer.tick(range(110, 120))
    (event,) = machine.archive.select(READ).events
    assert event == Event(NOON_NS + 140 * SECOND_NS, "clock step", "", "+30.000000 s")
    assert machine.archive.select(READ, end=NOON_NS + 120 * SECOND_NS).events == ()


def test_daylight_saving_moves_no_bucket(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    change_ns = 1_711_846_800 * SECOND_NS  # 2024-03-31 01:00 UTC.
    machine.start(99, wall_ns=change_ns - 150 * SECOND_NS).tick(range(100, 200))
    result = machine.archive.select(READ, step="10s", stat="count")
    assert np.diff(result.times_ns).tolist() == [10 * SECOND_NS] * 9
    assert ints(result, READ) == [9] + [10] * 9


def test_start_and_end_are_half_open_and_partitions_add_up(machine: Machine) -> None:
    writer = machine.start(99)
    for begin in range(100, 160, 15):
        writer.tick(range(begin, begin + 15))
        machine.seal()
    machine.flush()
    machine.merge()
    total = 0
    for begin in range(100, 160, 4):
        result = machine.archive.select(
            READ, QUEUE, start=NOON_NS + begin * SECOND_NS, end=NOON_NS + (begin + 4) * SECOND_NS, stat=("sum", "count")
        )
        assert seconds(result) == list(range(begin, begin + 4))
        assert result.column(QUEUE, "count").values.tolist() == [1.0] * 4
        total += sum(filter(None, ints(result, READ)))
    assert total == counter(159) - counter(100)
    with pytest.raises(UsageError, match="ends .* before it begins"):
        machine.archive.select(READ, start=NOON_NS, end=NOON_NS)


def test_a_counter_stands_where_it_stood_however_long_ago(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 110), ("sda", "sdb"))
    machine.seal()
    for begin in range(110, 150, 10):
        writer.tick(range(begin, begin + 10))
        machine.seal()
    machine.flush()
    writer.tick(range(150, 160), ("sda", "sdb"))
    result = machine.archive.select("disk/read_bytes@sdb", start=NOON_NS + 145 * SECOND_NS, stat="sum", step="1min")
    assert sum(filter(None, ints(result, "disk/read_bytes@sdb"))) == counter(159) - counter(109)


@pytest.mark.parametrize(("step", "rows"), [("100ms", 91), ("1s", 10), ("1.5s", 7), ("2s", 6), ("1min", 1), ("1d", 1)])
def test_any_step_gives_all_that_was_counted(machine: Machine, step: str, rows: int) -> None:
    writer = machine.start(99, wall_ns=NOON_NS + 600_000_000)  # The phase of UTC crosses a second.
    writer.tick(range(101, 111))
    result = machine.archive.select(READ, QUEUE, step=step, stat=("sum", "count"))
    assert len(result.times_ns) == rows
    assert sum(filter(None, ints(result, READ))) == counter(110) - counter(101)
    assert result.column(QUEUE, "count").values.sum() == 10
    assert gaps(result) == []


def test_two_writers_reading_the_clocks_do_not_make_ticks_wobble(machine: Machine) -> None:
    first = machine.start(99)
    second = machine.start(99, writer="background", table=Table("slow", TABLE.metrics, "device"))
    for tick in range(100, 120):
        first.wall_ns = NOON_NS + tick % 3 * 900
        second.wall_ns = NOON_NS - 400_000 + tick % 5 * 700
        second.ring.clock(Relation(tick * SECOND_NS - 5, tick * SECOND_NS - 5 + second.wall_ns, tick * SECOND_NS - 5))
        first.tick([tick])
        second.tick([tick])
    result = machine.archive.select("disk/queue", "slow/queue", stat="count")
    assert all(column.values.tolist() == [1.0] * 20 for column in result.columns)


def test_ticks_of_a_tenth_of_a_second(machine: Machine) -> None:
    writer = machine.start(99, interval_ns=SECOND_NS // 10)
    writer.tick([100 + tick / 10 for tick in range(50) if tick not in {20, 21}])
    result = machine.archive.select(QUEUE)
    assert result.step_ns == SECOND_NS // 10
    assert len(result.times_ns) == 50
    assert gaps(result) == [(102, 102.2, "late tick")]


def test_tables_of_several_intervals_and_two_writers_in_one_table(machine: Machine) -> None:
    fast = machine.start(99)
    slow = machine.start(99, writer="background", interval_ns=10 * SECOND_NS)
    fast.tick(range(100, 140), ("sampler",))
    slow.tick(range(100, 140, 10), ("background",))
    result = machine.archive.select("disk/queue", stat="count")
    assert gaps(result) == []
    assert [column.values.sum() for column in result.columns] == [4, 40]
    sums = machine.archive.select("disk/read_bytes", stat=("sum", "mean"), step="1min")
    assert sums.column("disk/read_bytes@background", "sum").values[-1] > 0
    alone = machine.archive.select("disk/queue@background")
    assert alone.step_ns == 10 * SECOND_NS
    assert gaps(alone) == []


@pytest.mark.parametrize(
    ("kept", "begin", "end"),
    [
        (kept, *span)
        for kept in ("ring", "rows", "tiers")
        for span in ((100, 400), (250, 550), (200, 300), (400, 500))
        if (kept, span) != ("tiers", (250, 550))  # Of buckets that share a part of their ticks both count.
    ],
)
def test_two_writers_of_one_series_count_once(machine: Machine, kept: str, begin: int, end: int) -> None:
    machine.start(99).tick(range(100, 400))
    machine.start(99.5, writer="background").tick(range(begin, end))
    if kept != "ring":
        machine.seal()
        machine.flush()
    if kept == "tiers":
        merge_job.merge(machine.folders)
        shutil.rmtree(archive.disk_folder(machine.folders, Sensitivity.PUBLIC))
    last = max(400, end)
    for step in ("10s", "1min", "1h"):
        result = machine.archive.select(READ, QUEUE, step=step, stat="sum,count")
        assert result.column(QUEUE, "count").values.sum() == last - 100
        assert np.nansum(result.column(QUEUE, "sum").values) == pytest.approx(sum(map(gauge, range(100, last))) / 100)
        assert np.nansum(result.column(READ, "sum").values) == counter(last - 1) - counter(100)


def test_a_few_seconds_of_a_short_interval_make_no_answer_as_fine(machine: Machine) -> None:
    """Neither before the range nor within it; where they are most of it they do."""
    machine.start(99).tick(range(100, 111))
    machine.start(110.05, interval_ns=SECOND_NS // 10).tick(at / 10 for at in range(1101, 1120))
    machine.start(111.5).tick(range(112, 140))

    def step_ns(first_s: int, last_s: int) -> int:
        start_ns, end_ns = (NOON_NS + second * SECOND_NS for second in (first_s, last_s))
        return machine.archive.select(READ, start=start_ns, end=end_ns).step_ns

    assert [step_ns(100, 140), step_ns(120, 140), step_ns(110, 112)] == [SECOND_NS, SECOND_NS, SECOND_NS // 10]


def test_an_interval_that_was_changed_loses_no_growth(machine: Machine) -> None:
    machine.start(99).tick(range(100, 110))
    machine.start(111, interval_ns=10 * SECOND_NS).tick(range(120, 160, 10))
    result = machine.archive.select(READ, step="1min", stat="sum")
    assert sum(filter(None, ints(result, READ))) == counter(150) - counter(100)
    assert gaps(machine.archive.select(READ, step="10s", stat="max")) == []
    later = machine.archive.select(READ, step="1min", stat="sum", start=NOON_NS + 115 * SECOND_NS)
    assert sum(filter(None, ints(later, READ))) == counter(150) - counter(109)


def test_a_counter_that_was_reset_is_a_gap_and_no_spike(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 105))
    writer.ring.rows(0, 105 * SECOND_NS, ("sda",), (3, 0, ABSENT))
    writer.ring.rows(0, 106 * SECOND_NS, ("sda",), (13, 0, ABSENT))
    result = machine.archive.select(READ)
    assert result.column(READ).values.tolist()[-2:] != [0, 0]
    assert np.nanmin(result.column(READ).values) >= 0
    assert gaps(result) == [(104, 105, "counter reset")]


def test_the_end_says_whether_the_daemon_went_in_good_order(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: BOOT)
    writer = machine.start(99)
    writer.tick(range(100, 110))
    assert [gap.cause for gap in machine.archive.select(READ, raw=True).gaps] == [Cause.DAEMON_DOWN]
    writer.ring.close()
    span: dict[str, Any] = {"start": NOON_NS + 100 * SECOND_NS, "end": NOON_NS + 120 * SECOND_NS}
    (gap,) = machine.archive.select(READ, **span, raw=True).gaps
    assert (gap.cause, gap.start_ns) == (Cause.CLEAN_SHUTDOWN, NOON_NS + 110 * SECOND_NS)
    monkeypatch.setattr(clock, "boot_id", lambda: OLDER)
    assert {gap.cause for gap in machine.archive.select(READ).gaps} >= {Cause.OFF}


def test_a_slow_table_that_is_on_time_has_no_gap_at_the_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: BOOT)
    now_ns = time.time_ns()
    wall_ns = now_ns - 1000 * SECOND_NS
    machine.start(99, interval_ns=60 * SECOND_NS, wall_ns=wall_ns).tick([720, 780, 840])
    assert machine.archive.select(READ, start=wall_ns + 720 * SECOND_NS, raw=True).gaps == ()
    assert machine.archive.select(READ, start=wall_ns + 720 * SECOND_NS, end="now", raw=True).gaps == ()


@pytest.mark.parametrize("start_s", [None, 99.9, 100, 100.25])
def test_a_rate_that_has_no_reading_before_its_first_one_has_a_gap(machine: Machine, start_s: float | None) -> None:
    machine.start(99).tick(100.25 + second for second in range(10))
    span: dict[str, Any] = {} if start_s is None else {"start": NOON_NS + round(start_s * SECOND_NS)}
    span["end"] = NOON_NS + 110 * SECOND_NS
    both = machine.archive.select(READ, QUEUE, **span)
    assert np.flatnonzero(np.isnan(both.columns[0].values)).tolist() == [both.times_ns.searchsorted(NOON_NS + 10**11)]
    assert [gap for gap in both.gaps if gap.start_ns < NOON_NS + 110 * SECOND_NS] == [
        Gap(NOON_NS + 99_250_000_000, NOON_NS + 100_250_000_000, "disk", Cause.BEFORE_RECORDING)
    ]
    # Where a step has a second reading, it has a value; gauges need no reading before, and what is stored none either.
    asked: tuple[dict[str, Any], ...] = ({"step": "5s"}, {"raw": True})
    for said in asked:
        assert machine.archive.select(READ, **{**span, "start": NOON_NS + 100 * SECOND_NS}, **said).gaps == ()
    assert machine.archive.select(QUEUE, **{**span, "start": NOON_NS + 100 * SECOND_NS}).gaps == ()


def test_a_gap_around_the_whole_range_is_told_with_its_true_ends(machine: Machine) -> None:
    machine.start(99).tick(range(100, 110))
    machine.start(199).tick(range(200, 210))
    result = machine.archive.select(READ, start=NOON_NS + 150 * SECOND_NS, end=NOON_NS + 160 * SECOND_NS)
    assert len(result.times_ns) == 0
    assert gaps(result) == [(110, 200, "daemon down")]


def test_before_the_first_row_and_after_now_is_nothing_and_said(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.start(0.5).tick(range(10, 20))
    machine.start(0.5, writer="background", table=TABLE._replace(name="raid")).tick(range(15, 20))

    def asked(start_s: int, end_s: int) -> list[tuple[float, float, str, str]]:
        start_ns, end_ns = NOON_NS + start_s * SECOND_NS, NOON_NS + end_s * SECOND_NS
        found = machine.archive.select("disk/queue", "raid/queue", start=start_ns, end=end_ns)
        assert len(found.columns) == 2
        return [(*told, gap.table) for gap, told in zip(found.gaps, gaps(found), strict=True)]

    assert asked(1, 5) == [(1, 10, "before recording", "disk"), (1, 15, "before recording", "raid")]
    assert asked(12, 18) == [(12, 15, "before recording", "raid")]
    assert asked(15, 18) == []
    monkeypatch.setattr(time, "time_ns", lambda: NOON_NS + 20 * SECOND_NS)
    future = [(20, 30, "in the future", "disk"), (20, 30, "in the future", "raid")]
    assert asked(16, 30) == future
    assert asked(25, 30) == [(25, *gap[1:]) for gap in future]
    # Where no beginning and no end is asked for, nothing is outside.
    assert machine.archive.select("disk/queue").gaps == ()


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "foreign":
        content = bytearray(b"not of ours " * 100)
    path.write_bytes(content)


def three_files(machine: Machine) -> list[Path]:
    writer = machine.start(99)
    for begin in (100, 110, 120):
        writer.tick(range(begin, begin + 10))
        machine.seal()
        machine.flush()
    machine.reboot()
    return machine.files()


@pytest.mark.parametrize("how", ["truncated", "empty", "foreign"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_file_is_a_warning_and_a_gap_and_the_rest_is_read(machine: Machine, how: str, which: int) -> None:
    files = three_files(machine)
    damage(files[which], how)
    result = machine.archive.select(READ, raw=True)
    left = [second for second in range(100, 130) if second // 10 != 10 + which]
    assert seconds(result) == left
    assert len(result.warnings) == 1
    assert files[which].name in result.warnings[0]
    blamed = [gap for gap in result.gaps if gap.cause is Cause.DAMAGED_FILE]
    assert len(blamed) == 1
    assert blamed[0].start_ns <= NOON_NS + (100 + 10 * which) * SECOND_NS
    assert blamed[0].end_ns >= NOON_NS + (110 + 10 * which) * SECOND_NS


@pytest.mark.parametrize("written_s", [150, 3615])
def test_where_nothing_of_a_boot_can_be_read_its_file_is_blamed(machine: Machine, written_s: int) -> None:
    for number, boot in enumerate((OLDER, BOOT, "c" * 32)):
        machine.start(9, boot=boot, wall_ns=NOON_NS + number * HOUR_NS // 2).tick(range(10, 20))
        machine.seal()
        machine.flush()
        machine.reboot()
    (lost,) = [path for path in machine.files() if path.name.startswith(BOOT)]
    damage(lost, "truncated")
    os.utime(lost, ns=(0, NOON_NS + written_s * SECOND_NS))
    result = machine.archive.select(READ, raw=True)
    assert gaps(result) == [(20, 3610, "damaged file")]
    assert lost.name in result.gaps[0].detail


def test_a_file_that_nobody_can_look_at_is_named_and_blamed_for_no_other_time(machine: Machine) -> None:
    test_where_nothing_of_a_boot_can_be_read_its_file_is_blamed(machine, 150)
    (lost,) = [path for path in machine.files() if path.name.startswith(BOOT)]
    lost.unlink()
    lost.symlink_to(lost)
    result = machine.archive.select(READ)
    assert Cause.DAMAGED_FILE not in {gap.cause for gap in result.gaps}
    assert any(str(lost) in warning for warning in result.warnings)


def test_values_that_cannot_be_read_are_a_gap_of_that_file(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    three_files(machine)
    whole = Member.read

    def read(member: Member, rows: list[int]) -> object:
        if member.block.ticks[0] == 110 * SECOND_NS and 0 in rows:
            raise CorruptError("a chunk is damaged")
        return whole(member, rows)

    monkeypatch.setattr(Member, "read", read)
    result = machine.archive.select(READ, QUEUE, raw=True)
    assert result.warnings == ("a chunk is damaged",)
    assert ints(result, READ)[10:20] == [None] * 10
    assert ints(result, QUEUE) == [gauge(second) for second in range(100, 130)]
    assert gaps(result) == [(110, 120, "damaged file")]
    assert result.gaps[0].detail == f"{READ}: a chunk is damaged"
    alone = machine.archive.select(READ, raw=True)
    assert gaps(alone) == [(110, 120, "damaged file")]
    assert gaps(machine.archive.select(READ, QUEUE, step="5s")) == [(110, 120, "damaged file")]
    assert gaps(machine.archive.select(QUEUE, step="5s")) == []


def test_a_foreign_file_of_a_foreign_name_is_only_a_warning(machine: Machine) -> None:
    files = three_files(machine)
    files[0].with_name("notes.h5").write_text("hello")
    result = machine.archive.select(READ, raw=True)
    assert len(result.times_ns) == 30
    assert "notes.h5" in result.warnings[0]
    assert gaps(result) == []


def test_where_a_merged_file_is_damaged_its_sources_still_answer(machine: Machine) -> None:
    three_files(machine)
    machine.merge(keep_sources=True)
    (merged,) = [path for path in machine.files() if "00000001-00000003" in path.name]
    damage(merged, "truncated")
    result = machine.archive.select(READ, raw=True)
    assert seconds(result) == list(range(100, 130))
    assert len(result.warnings) == 1


def test_an_archive_of_nothing_but_damage_says_so(machine: Machine) -> None:
    for path in three_files(machine):
        damage(path, "foreign")
    with pytest.raises(Error, match="nothing recorded yet; .*not a readable HDF5 file"):
        machine.archive.select(READ)


def test_a_file_that_vanishes_is_found_where_it_went(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    files = three_files(machine)
    opened = Timeline._open
    merged: list[str] = []

    def open_file(line: Timeline, path: str, *rest: object) -> OpenedFile | None:
        if not merged and path == str(files[1]):
            merged.append(path)
            machine.merge()
        return opened(line, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Timeline, "_open", open_file)
    check_whole(machine, list(range(100, 130)))
    assert merged


def test_a_file_that_vanishes_while_it_is_opened_is_not_damaged(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = three_files(machine)
    whole = Segment

    def opened(path: str) -> Segment:
        if path == str(files[1]):
            machine.merge()
            raise CorruptError(f"{path}: can't retrieve stat info for file")
        return whole(path)

    monkeypatch.setattr("sysmond.store.files.opening.segment", opened)
    check_whole(machine, list(range(100, 130)))
    assert not files[1].exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_what_we_may_not_read_is_silent_unless_it_is_asked_for(machine: Machine) -> None:
    machine.start(99).tick(range(100, 110))
    secret = Table("process", (Metric("cpu", "s", Semantics.COUNTER, "CPU."),), "process")
    restricted = machine.start(99, sensitivity=Sensitivity.RESTRICTED, table=secret)
    restricted.relation(100 * SECOND_NS)
    restricted.ring.rows(0, 100 * SECOND_NS, ("init",), (5,))
    machine.seal()
    machine.flush()
    os.chmod(os.path.dirname(machine.folders.state), 0o755)  # noqa: S103  the test is about who may enter
    for top, folders, _ in os.walk(os.path.dirname(machine.folders.state)):
        for folder in folders:
            os.chmod(os.path.join(top, folder), 0o700 if "restricted" in (folder, os.path.basename(top)) else 0o755)
    assert as_nobody(lambda: len(machine.archive.select(READ).times_ns)) == 10
    assert as_nobody(lambda: len(machine.archive.select("*").columns)) == 3
    assert as_nobody(lambda: machine.archive.select("*").warnings) == ()
    assert as_nobody(lambda: machine.archive.select("process/cpu")) == NotPermittedError.exit_code
    assert as_nobody(lambda: machine.archive.catalogue("process")) == NotPermittedError.exit_code
    assert as_nobody(lambda: machine.archive.select("disk/nothing")) == UsageError.exit_code


def as_nobody(ask: Callable[[], object]) -> object:
    """Ask as another user; an error is told by its exit code."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            answer = ask()
        except Error as refusal:
            answer = refusal.exit_code
        sender.send(answer)

    child = context.Process(target=run)
    child.start()
    assert receiver.poll(20)
    answer = receiver.recv()
    child.join()
    return answer


def test_a_metric_that_means_something_else_now_mixes_no_numbers(machine: Machine) -> None:
    older = Table("disk", (Metric("read_bytes", "kB", Semantics.COUNTER, "Read."), *TABLE.metrics[1:]), "device")
    machine.start(99, table=older).tick(range(100, 110))
    machine.seal()
    machine.flush()
    machine.reboot()
    machine.start(114).tick(range(115, 120))
    result = machine.archive.select(READ, QUEUE, raw=True)
    assert result.column(READ).unit == "B"
    assert ints(result, READ) == [None] * 10 + [counter(second) for second in range(115, 120)]
    assert None not in ints(result, QUEUE)
    assert len(result.warnings) == 1
    said = "disk/read_bytes: once a counter in kB, now a counter in B, as "
    assert result.warnings[0].startswith(f"{said}{machine.folders.runtime}/")


def test_a_metric_of_another_scale_is_converted_exactly(machine: Machine) -> None:
    coarse = Table("disk", (TABLE.metrics[0], TABLE.metrics[1]._replace(scale=0), TABLE.metrics[2]), "device")
    machine.start(99).tick(range(100, 105))
    machine.seal()
    machine.flush()
    machine.reboot()
    machine.start(104, table=coarse).tick(range(105, 110))
    result = machine.archive.select(QUEUE, raw=True)
    expected = [gauge(second) / 100 for second in range(100, 105)] + [gauge(second) for second in range(105, 110)]
    assert result.column(QUEUE).values.tolist() == expected
    assert result.warnings == ()


def test_every_statistic_of_a_counter_a_gauge_and_a_text(machine: Machine) -> None:
    machine.start(99).tick(range(100, 110))
    result = machine.archive.select(
        "disk/*@sda", step="10s", stat=("mean", "min", "max", "tmax", "first", "last", "sum", "count")
    )
    gauges = [gauge(second) for second in range(100, 110)]

    def one(path: str, stat: str) -> float:
        return float(result.column(path, stat).values[0])

    assert one(QUEUE, "mean") == round(sum(gauges) / 10 / 100, 3)
    assert [one(QUEUE, stat) * 100 for stat in ("min", "max", "first", "last", "sum")] == pytest.approx(
        [min(gauges), max(gauges), gauges[0], gauges[-1], sum(gauges)]
    )
    assert (one(READ, "sum"), one(READ, "count"), one(QUEUE, "count")) == (63, 9, 10)
    assert (one(READ, "mean"), one(READ, "min"), one(READ, "max")) == (7, 7, 7)
    highest = result.column(QUEUE, "tmax")
    assert highest.times == np.datetime64(NOON_NS + (100 + gauges.index(max(gauges))) * SECOND_NS, "ns")
    assert result.column(READ, "tmax").integers == [NOON_NS + 101 * SECOND_NS]
    for stat in ("mean", "min", "max", "first", "last", "sum"):
        assert result.column("disk/model@sda", stat).texts == ("made by sda",)
    with pytest.raises(UsageError, match="statistic 'media'.*did you mean mean"):
        machine.archive.select(READ, stat="media")


def test_an_answer_beyond_all_measure_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.start(99).tick(range(100, 110))
    monkeypatch.setattr(query, "VALUES_MAX", 3 * 9001)
    assert len(machine.archive.select("disk", step="1ms").times_ns) == 9001
    monkeypatch.setattr(query, "VALUES_MAX", 3 * 9000)
    with pytest.raises(UsageError, match="3 columns of 9001 rows are too many values for one answer"):
        machine.archive.select("disk", step="1ms")


def test_many_files_need_few_descriptors(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.start(99).tick(range(100, 102))
    machine.seal()
    machine.flush()
    (first,) = machine.files()
    with Segment(str(first)) as opened:
        recording, block = opened.recording, opened.recording.blocks[0]
        matrix = block.read(range(3))
    for number in range(2, 81):
        grown = np.array([[counter(98 + 2 * number)], [counter(99 + 2 * number)]]).T
        rows = [grown[0] if key.metric == "read_bytes" else row for key, row in zip(block.keys, matrix, strict=True)]
        ticks = block.ticks + 2 * (number - 1) * SECOND_NS
        made = recording._replace(blocks=[MemoryBlock(block.strand, ticks, block.keys, np.array(rows))])
        (first.parent / archive.Name(BOOT, number, number).file).write_bytes(dense_file.encode(made, "test"))
    monkeypatch.setattr(holdings, "OPEN_MAX", 16)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd"))) + 1  # What the tests before this one left open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 28, limits[1]))
    try:
        result = machine.archive.select(READ, step="1h", stat="sum")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert result.warnings == ()
    assert ints(result, READ) == [counter(259) - counter(100)]


def test_the_catalogue_says_from_when_to_when(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 110))
    machine.seal()
    writer.tick(range(110, 115), ("sda", "sdb"))
    entries = {entry.path: entry for entry in machine.archive.catalogue("disk/queue")}
    assert sorted(entries) == ["disk/queue@sda", "disk/queue@sdb"]
    sda, sdb = entries["disk/queue@sda"], entries["disk/queue@sdb"]
    assert (sda.start_ns, sda.end_ns) == (NOON_NS + 100 * SECOND_NS, NOON_NS + 114 * SECOND_NS)
    assert (sdb.start_ns, sdb.interval_ns, sdb.unit) == (NOON_NS + 110 * SECOND_NS, SECOND_NS, "1")


def test_a_result_is_short_in_a_prompt_and_whole_in_pandas(machine: Machine) -> None:
    machine.start(99).tick(range(100, 103))
    result = machine.archive.select("disk/*@sda")
    assert repr(result) == (
        "<Result 3 times from 2023-11-15T00:01:40.000000000 to 2023-11-15T00:01:42.000000000, 3 columns, 3 gaps>"
    )
    assert repr(result.columns[0]) == "<Column disk/model@sda mean [text], 3 values>"
    frame = result.to_pandas()
    assert list(frame.columns) == ["disk/model@sda", "disk/queue@sda", "disk/read_bytes@sda"]
    assert frame["disk/model@sda"].tolist() == ["made by sda"] * 3
    assert frame["disk/read_bytes@sda"].tolist()[1:] == [7.0, 7.0]
    assert frame.index[0].isoformat() == "2023-11-15T00:01:40+00:00"
    assert frame.attrs["units"]["disk/read_bytes@sda"] == "B/s"
    several = machine.archive.select(READ, stat="min,max").to_pandas()
    assert list(several.columns) == [f"{READ}:min", f"{READ}:max"]


def keep_archiving(machine: Machine, writer: Writer, rounds: int) -> None:
    second = 200
    for number in range(rounds):
        writer.tick(range(second, second + 5))
        second += 5
        seal_job.seal(machine.folders)
        if number % 2:
            machine.flush()
        if number % 6 == 5:
            machine.merge()


def test_while_files_are_sealed_flushed_and_merged_every_answer_is_whole(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 200))
    archiver = multiprocessing.get_context("fork").Process(target=keep_archiving, args=(machine, writer, 60))
    archiver.start()
    last = 0
    answers = 0
    try:
        while archiver.is_alive() or not answers:
            result = machine.archive.select(READ, raw=True)
            held = seconds(result)
            assert held == list(range(100, 100 + len(held)))
            assert ints(result, READ) == [counter(int(second)) for second in held]
            assert len(held) >= last
            assert result.warnings == ()
            last = len(held)
            answers += 1
    finally:
        archiver.join()
    assert archiver.exitcode == 0
    check_whole(machine, list(range(100, 500)))
    assert answers > 5


def test_an_archive_of_public_classes_tells_nothing_of_what_is_restricted(machine: Machine) -> None:
    secret = TABLE._replace(name="input")
    machine.start(99).tick(range(100, 110))
    hidden = machine.start(99, sensitivity=Sensitivity.RESTRICTED, table=secret)
    hidden.tick(range(100, 110))
    hidden.ring.event(105 * SECOND_NS, "moved", "input", "late")
    public = Archive(machine.folders, classes=[Sensitivity.PUBLIC])
    for _ in ("ring", "RAM", "disk"):
        assert {entry.path.partition("/")[0] for entry in machine.archive.catalogue()} == {"disk", "input"}
        assert {entry.path.partition("/")[0] for entry in public.catalogue()} == {"disk"}
        with pytest.raises(UsageError) as refusal:
            public.select("inpu*")
        assert "input" not in str(refusal.value)
        assert public.events() == []
        assert {entry.sensitivity for entry in machine.archive.catalogue("input")} == {Sensitivity.RESTRICTED}
        assert machine.archive.select("*").sensitivity is Sensitivity.RESTRICTED
        assert machine.archive.select("disk").sensitivity is public.select("*").sensitivity is Sensitivity.PUBLIC
        machine.seal()
        machine.flush()


def test_boots_and_events_are_listed(machine: Machine) -> None:
    machine.start(98, boot=OLDER, wall_ns=NOON_NS - DAY_NS).tick(range(100, 110))
    machine.seal()
    writer = machine.start(99)
    writer.tick(range(100, 121))
    writer.ring.event(105 * SECOND_NS, "mark", "", "here")
    assert machine.archive.boots() == [
        Boot(OLDER, NOON_NS - DAY_NS + 100 * SECOND_NS, NOON_NS - DAY_NS + 109 * SECOND_NS),
        Boot(BOOT, NOON_NS + 100 * SECOND_NS, NOON_NS + 120 * SECOND_NS),
    ]
    at_ns = NOON_NS + 105 * SECOND_NS
    assert machine.archive.events() == [Event(at_ns, "mark", "", "here")]
    assert machine.archive.events(at_ns + 1) == []
    assert machine.archive.events(0, at_ns) == []


def test_a_span_without_times_ends_with_what_is_there_where_nobody_records(machine: Machine) -> None:
    machine.start(99).tick(range(100, 200))
    last_ns = machine.archive.last_ns()
    assert last_ns is not None
    start_ns, end_ns = machine.archive.span(None, None, "1min")
    assert (end_ns - start_ns, 0 <= end_ns - last_ns <= SECOND_NS) == (60 * SECOND_NS, True)
    with only_one(machine.folders.runtime):  # Now somebody does.
        assert machine.archive.span(None, None, "1min")[1] > last_ns + 3600 * SECOND_NS
