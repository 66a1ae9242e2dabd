# SPDX-License-Identifier: Apache-2.0
"""What sysmond pins by itself stays within its share of a day; what people pin is theirs."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.archiver import pin_share
from sysmond.archiver.auto_pins import AROUND_NS, BY
from sysmond.archiver.pin_share import DAY_NS, within
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create, create_classes
from sysmond.plan import plan
from sysmond.store import archive, pins
from sysmond.store.archive import Name
from sysmond.store.pins import Pin
from tests.archiver.test_archiver import Station, stop
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
    chosen = within([], [own(*span) for span in spans], share_min * MINUTE_NS)
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


def file(folders: Folders, number: int, hours_ago: int, size: int) -> None:
    """A file of rows that came to the disk so long ago."""
    path = f"{archive.disk_folder(folders, Sensitivity.PUBLIC)}/{Name(BOOT, number, number).file}"
    Path(path).write_bytes(b"x" * size)
    at_s = time.time() - hours_ago * 3600
    os.utime(path, (at_s, at_s))


def settle(folders: Folders, pins_bytes: int) -> None:
    settings = plan.ArchiverSettings(pins_bytes=pins_bytes)
    plan.write(plan.Plan((), archiver=settings), f"{folders.runtime}/plan.json")


def test_the_share_is_what_a_tenth_of_the_budget_holds_as_fast_as_files_grow(folders: Folders) -> None:
    # An hour takes 6 kB, so of 60 kB a tenth is an hour.
    settle(folders, 60_000)
    file(folders, 1, 10, 99_000)
    file(folders, 2, 5, 30_000)
    file(folders, 3, 0, 30_000)
    pins.add(f"{folders.runtime}/archiver", [own(60 * number) for number in range(9)])
    assert pin_share.collect(folders) == (6, 3)
    assert pins.read(folders.state) == [own(60 * number) for number in range(6)]
    assert pins.read(f"{folders.runtime}/archiver") == []
    assert pin_share.collect(folders) == (0, 0)


def test_a_young_archive_has_room_for_all(folders: Folders) -> None:
    settle(folders, 60_000)
    file(folders, 1, 0, 50_000)
    file(folders, 2, 0, 50_000)
    pins.add(f"{folders.runtime}/archiver", [own(60 * number) for number in range(9)])
    assert pin_share.collect(folders) == (9, 0)


def test_incidents_that_are_not_pinned_are_told_once_and_counted_when_others_are_again(
    runtime: Path, tmp_path: Path
) -> None:
    station = Station(runtime, tmp_path)
    places = station.folders.state, pins.waiting(station.folders)

    def flush(number: int) -> None:
        """Record something, and have one more incident wait for the disk, which grew for hours."""
        station.tick()
        pins.add(pins.waiting(station.folders), [own(60 * number)])
        assert station.order("flush")
        if number == 0:
            for path in Path(archive.disk_folder(station.folders, Sensitivity.PUBLIC)).glob("*.h5"):
                os.utime(path, (0, time.time() - 36_000))

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
