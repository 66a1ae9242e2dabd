# SPDX-License-Identifier: Apache-2.0
"""Retention keeps every tier within its bytes and its age, and takes no more than it must."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import EVENTS
from sysmond.plan import config, retention
from sysmond.plan.plan import ArchiverSettings
from sysmond.plan.retention import Believed, Limit, PinnedSpan, StoredFile, believe

DAY_NS = 86_400_000_000_000


def stored(sizes: list[int]) -> list[StoredFile]:
    return [StoredFile(f"{day:03}.h5", size, day * DAY_NS, (day + 1) * DAY_NS - 1) for day, size in enumerate(sizes)]


@given(
    st.lists(st.integers(1, 10_000), max_size=30),
    st.integers(0, 100_000),
    st.integers(0, 5_000),
    st.integers(0, 5_000),
)
def test_what_stays_fits_and_the_newest_of_what_goes_was_needed(
    sizes: list[int], budget: int, coming: int, elsewhere: int
) -> None:
    files = stored(sizes)
    going = retention.expired(files, Limit(budget), 0, coming_bytes=coming, elsewhere_bytes=elsewhere)
    staying = files[len(going) :]
    assert going == files[: len(going)]
    assert not staying or sum(file.size_bytes for file in staying) + coming + elsewhere <= budget
    if going:
        kept_one_more = sum(file.size_bytes for file in [going[-1], *staying])
        assert kept_one_more + coming + elsewhere > budget


def test_age_takes_what_ended_too_long_ago() -> None:
    files = stored([1] * 10)
    going = retention.expired(files, Limit(10**6, 3 * DAY_NS), now_ns=10 * DAY_NS)
    assert [file.path for file in going] == [f"{day:03}.h5" for day in range(7)]


def test_what_was_recorded_with_a_clock_far_behind_is_as_old_as_its_writing() -> None:
    file = StoredFile("a.h5", 1, 0, 1000, written_ns=9 * DAY_NS)
    assert retention.expired([file], Limit(10**6, 3 * DAY_NS), now_ns=10 * DAY_NS) == []
    assert retention.expired([file], Limit(10**6, 3 * DAY_NS), now_ns=13 * DAY_NS) == [file]


HOUR_NS = DAY_NS // 24
YEARS_NS = 3650 * DAY_NS
START = Believed(20_000 * DAY_NS, "a", DAY_NS)


def believed(wall_ahead: dict[float, int], boot: str = "a", off_ns: int = 0) -> list[float]:
    """By how many hours what is believed differs from the true time, at hours after the start."""
    state, found = START, []
    for hour, ahead_ns in wall_ahead.items():
        passed_ns = round(hour * HOUR_NS)
        true_ns = START.utc_ns + passed_ns + off_ns
        boottime_ns = passed_ns + (START.boottime_ns if boot == START.boot else 0)
        state = believe(state, boot, boottime_ns, true_ns + ahead_ns)
        found.append((state.utc_ns - true_ns) / HOUR_NS)
    return found


def test_a_clock_that_is_years_ahead_for_less_than_a_day_is_not_believed() -> None:
    assert believed({1: 0, 2: YEARS_NS, 3: YEARS_NS, 20: YEARS_NS, 25: YEARS_NS, 25.5: 0, 26: 0}) == [0] * 7
    assert believed({1: YEARS_NS, 24: YEARS_NS, 25: YEARS_NS})[-1] == YEARS_NS / HOUR_NS
    # Each time anew: what is seen twice in between at its right time was not ahead for long.
    assert believed({hour / 2: YEARS_NS * (hour % 2) for hour in range(200)}) == [0] * 200


def test_one_that_is_set_right_is_believed_in_time() -> None:
    assert believed({1: 30 * 10**9}) == [30 / 3600]
    assert believed({1: -HOUR_NS, 1.1: -HOUR_NS, 1.2: -HOUR_NS}) == [0, 0, -1]
    # A night off; ten weeks off.
    assert believed({0.1: 0, 1: 0, 2.2: 0}, "b", 16 * HOUR_NS) == [-16, -16, 0]
    assert believed({0.1: 0, 12: 0, 23: 0, 24.2: 0}, "b", 70 * DAY_NS) == [-1680, -1680, -1680, 0]


def test_a_machine_that_runs_for_some_hours_a_day_comes_to_the_right_time() -> None:
    state = START
    for day in range(1, 15):
        morning_ns = START.utc_ns + day * DAY_NS
        for hour in range(9):
            state = believe(state, str(day), hour * HOUR_NS, morning_ns + hour * HOUR_NS)
        assert state.utc_ns == morning_ns + 8 * HOUR_NS


@given(st.lists(st.tuples(st.integers(1, 10 * DAY_NS), st.integers(0, 30_000 * DAY_NS)), max_size=20))
def test_what_is_believed_is_the_wall_clock_or_goes_on_as_boot_time_does(looks: list[tuple[int, int]]) -> None:
    state = START
    for passed_ns, wall_ns in looks:
        after = believe(state, state.boot, state.boottime_ns + passed_ns, wall_ns)
        assert after.utc_ns in {wall_ns, state.utc_ns + passed_ns}
        assert after.doubted_ns < retention.DOUBT_NS_MAX
        state = after


def test_pinned_files_stay_until_their_own_budget_is_full() -> None:
    files = stored([100] * 10)
    pins = [PinnedSpan(2 * DAY_NS, 4 * DAY_NS)]
    kept = {"002.h5", "003.h5"}
    going = {file.path for file in retention.expired(files, Limit(300), 0, pins=pins, pins_budget_bytes=200)}
    assert not going & kept
    assert len(going) == 5
    going = {file.path for file in retention.expired(files, Limit(300), 0, pins=pins, pins_budget_bytes=100)}
    assert going & kept == {"002.h5"}


def test_what_people_pinned_stays_however_much_is_pinned_by_itself_later() -> None:
    files = stored([100] * 10)
    by_people = PinnedSpan(2 * DAY_NS, 4 * DAY_NS)
    pins = [by_people, PinnedSpan(3 * DAY_NS, 7 * DAY_NS, by_people=False)]
    going = {file.path for file in retention.expired(files, Limit(300), 0, pins=pins, pins_budget_bytes=300)}
    assert {file.path for file in files} - going == {"002.h5", "003.h5", "006.h5", "007.h5", "008.h5", "009.h5"}


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("tiers.1s.size", f"{retention.BUDGET_BYTES_MIN - 1}B", "expected 512KiB to 1TiB"),
        ("tiers.5min.size", "0B", "expected 512KiB to 1TiB"),
        ("tiers.10s.age", "-1d", "expected 0 for any age, or a duration of 10s or more"),
        ("tiers.5min.age", "1min", "expected 0 for any age, or a duration of 5min or more"),
        ("tiers.2min", "{size: 50MB}", "no such key; did you mean 1min or 5min?"),
        ("tiers.pins.size", "-1B", "expected a size such as 512KiB, 16MiB or 1GiB"),
        ("archive.ram_size", "1kB", "expected 1MiB to 64GiB"),
        ("archive.pin_pressure_percent", "101", "expected 0 to 100"),
    ],
)
def test_a_limit_that_cannot_hold_is_refused_at_the_start(tmp_path: Path, key: str, value: str, right: str) -> None:
    file = tmp_path / "sysmond.yaml"
    section, *inner = key.split(".")
    file.write_text(f"{section}: " + "".join(f"{{{name}: " for name in inner) + value + "}" * len(inner))
    command = [sys.executable, "-P", "-m", "sysmond", "--config", str(file), "--ticks", "1"]
    command += ["--state-dir", f"{tmp_path}/state", "--runtime-dir", f"{tmp_path}/run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"sysmond: {file}:1: {key}: ")
    assert line.endswith(right)
    assert not os.path.exists(f"{tmp_path}/run/plan.json")


def test_the_smallest_limits_that_hold_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "sysmond.yaml"
    tiers = ", ".join(f"{tier}: {{size: {retention.BUDGET_BYTES_MIN}B, age: {tier}}}" for tier in retention.TIERS_NS)
    file.write_text(f"tiers: {{{tiers}}}")
    limits, _ = retention.of_settings(config.read([str(file)]).archiver)
    assert limits.pop(EVENTS) == Limit(4_000_000, 730 * 86_400 * 10**9)
    assert {limit.budget_bytes for limit in limits.values()} == {retention.BUDGET_BYTES_MIN}
    assert [limit.age_ns for limit in limits.values()] == [10**9, *list(retention.TIERS_NS.values())[1:]]
    assert all(retention.file_bytes_max(limit) == retention.FILE_BYTES_MIN for limit in limits.values())


def test_the_forecast_is_what_a_filling_tier_arrives_at() -> None:
    limit = Limit(5_000_000)
    said = retention.forecast("1s", limit, points_per_day=100 * 86_400, bytes_per_point=0.03)
    size = retention.file_bytes_max(limit)
    days_per_file = size / said.bytes_per_day
    files: list[StoredFile] = []
    for number in range(100):
        begin = int(number * days_per_file * DAY_NS)
        going = retention.expired(files, limit, begin, coming_bytes=size)
        files = [file for file in files if file not in going]
        files.append(StoredFile(f"{number:03}", size, begin, int(begin + days_per_file * DAY_NS) - 1))
    held_days = (files[-1].last_ns - files[0].first_ns) / DAY_NS
    assert held_days == pytest.approx(said.days, rel=0.15)
    assert retention.forecast("1s", Limit(5_000_000, 2 * DAY_NS), 100 * 86_400, 0.03).days == 2


def test_sizes_take_their_share_of_a_small_file_system_in_proportion() -> None:
    usual = ArchiverSettings()
    assert retention.fitted(usual, 10**12) == usual
    total = total_of(usual)
    assert retention.fitted(usual, total * 10) == usual
    half = retention.fitted(usual, total * 5)
    assert total * 0.49 < total_of(half) <= total / 2
    assert half.size_1s_bytes == usual.size_1s_bytes // 2
    assert half.records_size_1s_bytes == usual.records_size_1s_bytes // 2
    assert (half.ram_bytes, half.seal_interval_s) == (usual.ram_bytes, usual.seal_interval_s)
    whole = usual._replace(share_percent=100)
    assert retention.fitted(whole, total) == whole
    # Whoever wants no pins has none, and each tier can hold what it is made of.
    tiny = retention.fitted(usual._replace(pins_bytes=0), 1_000_000)
    assert tiny.pins_bytes == 0
    assert tiny.size_5min_bytes == retention.BUDGET_BYTES_MIN


@given(st.integers(10**8, 10**12), st.integers(1, 100))
def test_the_share_is_never_more(capacity: int, percent: int) -> None:
    settings = retention.fitted(ArchiverSettings(share_percent=percent), capacity)
    assert total_of(settings) <= capacity * percent // 100 + 9 * retention.BUDGET_BYTES_MIN
    limits, pins_bytes = retention.of_settings(settings)
    assert pins_bytes >= retention.file_bytes_max(limits["1s"])


def total_of(settings: ArchiverSettings) -> int:
    """What all tiers and the pins may take together."""
    limits, pins_bytes = retention.of_settings(settings)
    return (
        sum(limit.budget_bytes for limit in [*limits.values(), *retention.of_records(settings).values()]) + pins_bytes
    )


@pytest.mark.parametrize(("processes", "days"), [(100, 7), (1000, 3)])
def test_rows_of_processes_reach_back_as_the_readme_says(repository: Path, processes: int, days: int) -> None:
    measured = json.loads((repository / "docs/performance.json").read_text(encoding="utf-8"))["records"]["figures"]
    # Wait states, ends and command lines are as much again.
    per_day = 2 * processes * 86_400 * measured["busy_bytes_per_process_sample"]
    assert retention.forecast("1s", retention.of_records(ArchiverSettings())["1s"], per_day, 1).days >= days
