# SPDX-License-Identifier: Apache-2.0
"""What sysmond pins by itself stays within its share of a day; what people pin is theirs."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.archiver import pin_share
from sysmond.archiver.auto_pins import AROUND_NS
from sysmond.archiver.pin_share import DAY_NS, within
from sysmond.base.clock import SECOND_NS
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create, create_classes
from sysmond.plan import plan
from sysmond.store import pins
from sysmond.store.pins import BY_ITSELF as BY
from sysmond.store.pins import Pin
from tests.archiver.test_archiver import Station, stop
from tests.archiver.test_retention_job import put
from tests.support.waiting import wait_until

MINUTE_NS = 60 * SECOND_NS
BOOT = "a" * 32
START_NS = 1_700_000_000 * SECOND_NS


def own(start_min: int, length_min: int = 10) -> Pin:
    start_ns = START_NS + start_min * MINUTE_NS
    return Pin(start_ns, start_ns + length_min * MINUTE_NS, "pressure", BY)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), max_size=20),
    st.integers(0, 200),
    st.lists(st.integers(0, 5300), max_size=5),
)
def test_no_day_has_more_than_the_share(spans: list[tuple[int, int]], share_min: int, moments_min: list[int]) -> None:
    # Some are told late: others, after them, are pinned already.
    before = within([], [own(*span) for span in spans[::2]], share_min * MINUTE_NS)
    chosen = [*before, *within(before, [own(*span) for span in spans[1::2]], share_min * MINUTE_NS)]
    for moment in [*moments_min, *(start for start, _ in spans)]:
        pinned = {
            minute
            for pin in chosen
            for minute in range((pin.start_ns - START_NS) // MINUTE_NS, (pin.end_ns - START_NS) // MINUTE_NS)
            if moment <= minute < moment + DAY_NS // MINUTE_NS
        }
        assert len(pinned) <= share_min


def test_what_is_within_the_share_is_pinned_and_no_other_is_touched() -> None:
    assert within([], [own(0), own(60)], 20 * MINUTE_NS) == [own(0), own(60)]
    assert within([own(0)], [own(60), own(90)], 20 * MINUTE_NS) == [own(60)]
    assert within([own(0)], [own(5, 5)], 10 * MINUTE_NS) == [own(5, 5)]  # Pinned already.
    assert within([own(0)], [own(24 * 60 + 10)], 10 * MINUTE_NS) == [own(24 * 60 + 10)]  # Another day.
    of_people = Pin(START_NS, START_NS + 10 * DAY_NS, "mine", "user")
    assert within([own(0)], [own(60), of_people], 10 * MINUTE_NS) == [of_people]
    assert within([of_people], [own(60)], 10 * MINUTE_NS) == [own(60)]


def test_of_a_long_one_that_is_too_much_the_beginning_is_pinned() -> None:
    assert within([], [own(0, 300)], 60 * MINUTE_NS) == [own(0, 2 * AROUND_NS // MINUTE_NS)]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    create(made, os.geteuid())
    create_classes(made.state, "1s")
    os.makedirs(f"{made.runtime}/archiver", exist_ok=True)
    return made


def settle(folders: Folders, pins_bytes: int) -> None:
    settings = plan.ArchiverSettings(pins_bytes=pins_bytes)
    plan.write(plan.Plan((), archiver=settings), f"{folders.runtime}/plan.json")


def wait_for_pins(folders: Folders, count: int) -> list[Pin]:
    """Have so many incidents, an hour apart, wait for the disk."""
    waiting = [own(60 * number) for number in range(count)]
    pins.add(pins.waiting(folders), waiting)
    return waiting


def test_the_share_is_what_a_tenth_of_the_budget_holds_at_what_a_second_takes(folders: Folders) -> None:
    size_bytes = sum(put(folders, number) for number in range(20))  # Of 200 s each.
    settle(folders, 10 * size_bytes * 30 * 60 // (20 * 199) + 10)  # A tenth of it holds half an hour.
    waiting = wait_for_pins(folders, 9)
    assert pin_share.collect(folders) == (3, 6)
    assert pins.read(folders.state) == waiting[:3]
    assert pins.read(pins.waiting(folders)) == []
    assert pin_share.collect(folders) == (0, 0)


def test_before_it_is_known_what_a_second_takes_there_is_room_for_all(folders: Folders) -> None:
    settle(folders, sum(put(folders, number) for number in range(10)))
    wait_for_pins(folders, 9)
    assert pin_share.collect(folders) == (9, 0)


@pytest.mark.long
def test_incidents_that_are_not_pinned_are_told_once_and_counted_when_others_are_again(
    runtime: Path, tmp_path: Path
) -> None:
    station = Station(runtime, tmp_path)
    places = station.folders.state, pins.waiting(station.folders)
    create(station.folders, os.geteuid())
    create_classes(station.folders.state, "1s")
    for number in range(20):
        put(station.folders, number)

    def flush(number: int) -> None:
        """Record something, have one more incident wait for the disk, and have that written."""
        station.tick()
        pins.add(pins.waiting(station.folders), [own(60 * number)])
        assert station.order("flush")

    def told() -> list[str]:
        return [event.text for event in Archive(station.folders).events() if event.kind == "not pinned"]

    process = station.start()
    try:
        flush(0)
        wait_until(lambda: pins.read(station.folders.state))
        settle(station.folders, 1)
        for number in range(1, 12):
            flush(number)
        wait_until(told)
        assert told() == ["no more incidents are pinned today: a tenth of tiers.pins.size is spent"]
        settle(station.folders, 10**9)
        for number in range(12, 18):
            flush(number)
        wait_until(lambda: len(told()) == 2)
        refused = int(told()[1].removesuffix(" were not; they are pinned again"))
        # Of each it is known what became of it.
        wait_until(lambda: refused + sum(len(pins.read(folder)) for folder in places) == 18)
    finally:
        assert stop(process) == 0
    assert station.said("no more incidents are pinned today") == 1
