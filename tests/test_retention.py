# SPDX-License-Identifier: Apache-2.0
"""Retention keeps every tier within its bytes and its age, and takes no more than it must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond import retention
from sysmond.errors import UsageError
from sysmond.retention import Limit, Stored, Window

DAY_NS = 86_400_000_000_000


def stored(sizes: list[int]) -> list[Stored]:
    return [Stored(f"{day:03}.h5", size, day * DAY_NS, (day + 1) * DAY_NS - 1) for day, size in enumerate(sizes)]


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


def test_pinned_files_stay_until_their_own_budget_is_full() -> None:
    files = stored([100] * 10)
    pins = [Window(2 * DAY_NS, 4 * DAY_NS)]
    kept = {"002.h5", "003.h5"}
    going = {file.path for file in retention.expired(files, Limit(300), 0, pins=pins, pins_budget_bytes=200)}
    assert not going & kept
    assert len(going) == 5
    going = {file.path for file in retention.expired(files, Limit(300), 0, pins=pins, pins_budget_bytes=100)}
    assert going & kept == {"002.h5"}


@pytest.mark.parametrize(
    ("tier", "limit", "right"),
    [
        ("1s", Limit(1000), str(retention.BUDGET_BYTES_MIN)),
        ("10s", Limit(age_ns=-1), "0 for any age"),
        ("5min", Limit(age_ns=1), "5min"),
    ],
)
def test_a_limit_that_cannot_hold_names_the_smallest_that_works(tier: str, limit: Limit, right: str) -> None:
    with pytest.raises(UsageError, match=right):
        retention.check_limit(tier, limit)


def test_limits_that_hold_are_accepted() -> None:
    for tier in retention.TIERS_NS:
        retention.check_limit(tier, Limit())
        retention.check_limit(tier, Limit(retention.BUDGET_BYTES_MIN, 10 * DAY_NS))


def test_the_forecast_is_what_a_filling_tier_arrives_at() -> None:
    limit = Limit(5_000_000)
    said = retention.forecast("1s", limit, points_per_day=100 * 86_400, bytes_per_point=0.03)
    size = retention.file_bytes_max(limit)
    days_per_file = size / said.bytes_per_day
    files: list[Stored] = []
    for number in range(100):
        begin = int(number * days_per_file * DAY_NS)
        going = retention.expired(files, limit, begin, coming_bytes=size)
        files = [file for file in files if file not in going]
        files.append(Stored(f"{number:03}", size, begin, int(begin + days_per_file * DAY_NS) - 1))
    held_days = (files[-1].last_ns - files[0].first_ns) / DAY_NS
    assert held_days == pytest.approx(said.days, rel=0.15)
    assert retention.forecast("1s", Limit(5_000_000, 2 * DAY_NS), 100 * 86_400, 0.03).days == 2
