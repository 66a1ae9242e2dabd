# SPDX-License-Identifier: Apache-2.0
"""A flush waits for somebody else to wake the disk, or for a reason that cannot wait."""

from typing import Any

import pytest

from sysmond.archiver.flushing import (
    FLUSHES_APART_S,
    QUIET_AFTER_OWN_WRITE_S,
    SEEN_S,
    Reason,
    SectorCounts,
    Situation,
    Watch,
    decide,
    read_disks,
)

START = Situation(now_s=10_000.0, waiting_bytes=100, budget_bytes=1000, disk=SectorCounts(5, 5))


def after(seconds: float, **changes: Any) -> Situation:
    return START._replace(now_s=START.now_s + seconds, **changes)


def test_an_idle_disk_is_left_alone_for_ever() -> None:
    _, watch = decide(Watch(), START)
    for minute in range(600):
        reason, watch = decide(watch, after(60.0 * minute))
        assert reason is None


@pytest.mark.parametrize("disk", [SectorCounts(6, 5), SectorCounts(5, 6)])
def test_a_disk_that_somebody_used_is_used_too(disk: SectorCounts) -> None:
    _, watch = decide(Watch(), START)
    assert decide(watch, after(5, disk=disk))[0] is Reason.DISK_IN_USE


def test_nothing_waiting_is_nothing_to_flush() -> None:
    _, watch = decide(Watch(), START)
    assert decide(watch, after(5, disk=SectorCounts(9, 9), waiting_bytes=0))[0] is None


def test_our_own_write_and_its_journal_commit_trigger_nothing() -> None:
    watch = Watch().flushed(START.now_s)
    reason, watch = decide(watch, after(5, disk=SectorCounts(5, 50)))
    assert reason is None
    reason, watch = decide(watch, after(QUIET_AFTER_OWN_WRITE_S + 1, disk=SectorCounts(5, 60)))
    assert reason is None, "what happened in the quiet period is not looked at"
    reason, watch = decide(watch, after(FLUSHES_APART_S + 1, disk=SectorCounts(5, 60)))
    assert reason is None
    assert decide(watch, after(FLUSHES_APART_S + 2, disk=SectorCounts(5, 61)))[0] is Reason.DISK_IN_USE


def test_a_busy_disk_is_not_flushed_to_all_the_time() -> None:
    watch = Watch().flushed(START.now_s)
    flushes = []
    for second in range(0, 3600, 5):
        reason, watch = decide(watch, after(second, disk=SectorCounts(second, second)))
        if reason:
            flushes.append(second)
            watch = watch.flushed(START.now_s + second)
    assert 10 <= len(flushes) <= 3600 / FLUSHES_APART_S


def test_a_full_ram_budget_cannot_wait() -> None:
    assert decide(Watch().flushed(START.now_s), after(1, waiting_bytes=1001))[0] is Reason.RAM_FULL
    refused = after(1, waiting_bytes=1001, refused_until_s=START.now_s + 60)
    assert decide(Watch(), refused)[0] is None


def test_what_is_not_sealed_yet_waits_as_well() -> None:
    _, watch = decide(Watch(), START)
    waits = after(5, disk=SectorCounts(9, 9), waiting_bytes=0, unsealed=True)
    assert decide(watch, waits)[0] is Reason.DISK_IN_USE


def test_what_a_disk_did_long_ago_does_not_say_that_it_is_awake() -> None:
    _, watch = decide(Watch(), START)
    reason, watch = decide(watch, after(SEEN_S + 1, disk=SectorCounts(9, 9)))
    assert reason is None
    assert decide(watch, after(SEEN_S + 6, disk=SectorCounts(9, 10)))[0] is Reason.DISK_IN_USE


def test_a_resume_is_a_moment_to_write_but_on_battery_only_memory_and_the_disk_in_use_are() -> None:
    watch = Watch().flushed(START.now_s)
    resumed = after(1, is_resumed=True)
    assert decide(watch, resumed)[0] is Reason.SUSPEND
    resumed = resumed._replace(is_on_battery=True)
    assert decide(watch, resumed)[0] is None
    assert decide(watch, resumed._replace(waiting_bytes=1001))[0] is Reason.RAM_FULL
    _, watch = decide(Watch(), START)
    assert (
        decide(watch, after(5, disk=SectorCounts(6, 5), is_resumed=True, is_on_battery=True))[0] is Reason.DISK_IN_USE
    )


DISKSTATS = b"""\
 254 0 vda 27048 5190 1899554 10758 5092 5734 315480 1549 0 5884 12512 3159 44 141032 194 238 9
 254 1 vda1 27000 5190 1899000 10758 5000 5734 315000 1549 0 5884 12512
   7 0 loop0 100 0 800 0 100 0 900 0 0 0 0
   8 1 sda1 1 2 3 4
   8 16 sdb 1 0 8 0 2 0 16 0 0 0 0
"""


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["vda"], SectorCounts(1899554, 315480)),
        (["vda", "sdb"], SectorCounts(1899562, 315496)),
        (["loop0"], SectorCounts(800, 900)),
        ([], SectorCounts(1899554 + 1899000 + 8, 315480 + 315000 + 16)),
        (["sda1"], None),
        (["sdc"], None),
    ],
)
def test_disks_are_found_by_name_or_all_of_them_together(names: list[str], found: SectorCounts | None) -> None:
    assert read_disks(DISKSTATS, names) == found
    assert read_disks(b"", names) is None
