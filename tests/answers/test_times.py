# SPDX-License-Identifier: Apache-2.0
"""Times of a question: those of Python, numpy and pandas mean what they mean there; anything else is refused."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.answers import times
from sysmond.base.model import Semantics
from sysmond.base.result import Column, Result
from sysmond.errors import UsageError

# 2025-03-01T12:00Z
NOON_NS = 1_740_830_400 * 10**9
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    "said",
    [
        NOON_NS,
        np.int64(NOON_NS),
        "2025-03-01T12:00Z",
        datetime(2025, 3, 1, 12, tzinfo=UTC),
        datetime(2025, 3, 1, 13, tzinfo=BERLIN),
        datetime(2025, 3, 1, 6, 30, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
        datetime(2025, 3, 1, 13),  # noqa: DTZ001  local time is meant
        np.datetime64("2025-03-01T12:00"),
        np.datetime64(NOON_NS, "ns"),
        pd.Timestamp("2025-03-01T12:00Z"),
        pd.Timestamp("2025-03-01 13:00", tz="Europe/Berlin"),
        pd.Timestamp("2025-03-01 13:00"),
    ],
)
def test_a_moment_may_be_of_python_numpy_or_pandas(said: times.Moment) -> None:
    assert times.moment(said) == NOON_NS


@given(st.integers(-(2**62), 2**62))
def test_no_nanosecond_is_lost(at_ns: int) -> None:
    assert times.moment(np.datetime64(at_ns, "ns")) == at_ns
    assert times.moment(pd.Timestamp(at_ns, tz="UTC")) == at_ns
    assert times.moment(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_ns // 1000)) == at_ns // 1000 * 1000


@pytest.mark.usefixtures("in_berlin")
def test_the_hour_that_comes_twice_is_the_one_that_is_meant() -> None:
    first, second = (datetime(2025, 10, 26, 2, 30, fold=fold) for fold in (0, 1))  # noqa: DTZ001  local time is meant
    assert times.moment(second) - times.moment(first) == 3600 * 10**9
    assert times.moment(first) == times.moment(first.replace(tzinfo=BERLIN))


@pytest.mark.parametrize(
    "step",
    [
        "90s",
        90 * 10**9,
        timedelta(seconds=90),
        np.timedelta64(90, "s"),
        np.timedelta64(90 * 10**9, "ns"),
        pd.Timedelta("1min 30s"),
    ],
)
def test_a_step_may_be_of_python_numpy_or_pandas(step: times.Length) -> None:
    assert times.length(step) == 90 * 10**9


def test_a_step_of_pandas_has_nanoseconds() -> None:
    assert times.length(pd.Timedelta(1_000_000_001, "ns")) == 1_000_000_001


WRONG: list[Any] = [
    1_764_000_000,
    1.5,
    None,
    b"now",
    (2025, 3, 1),
    np.datetime64("NaT"),
    pd.NaT,
    np.datetime64("9999"),
    timedelta(1),
]


@pytest.mark.parametrize("said", WRONG, ids=repr)
def test_what_is_no_moment_is_one_line(said: Any) -> None:
    with pytest.raises(UsageError, match=r"^time .*: expected a text such as"):
        times.moment(said)


@pytest.mark.parametrize("step", [10, 1.5, b"1s", np.timedelta64("NaT"), datetime(2025, 3, 1, tzinfo=UTC)], ids=repr)
def test_what_is_no_step_is_one_line(step: Any) -> None:
    with pytest.raises(UsageError, match=r"^step .*: expected a text such as"):
        times.length(step)


@pytest.mark.parametrize("step", [0, -1, timedelta(0), np.timedelta64(-1, "s")], ids=repr)
def test_a_step_is_more_than_nothing(step: times.Length) -> None:
    with pytest.raises(UsageError, match="expected a length of time above 0"):
        times.length(step)


def test_a_column_is_had_by_its_path_and_one_that_is_missing_names_those_there_are() -> None:
    def column(path: str, stat: str) -> Column:
        return Column(path, "%", Semantics.COUNTER, stat, floats=np.array([1.0]))

    columns = column("cpu/user@total", "mean"), column("cpu/user@total", "max"), column("load/one", "mean")
    answer: Any = Result(np.array([NOON_NS]), columns, (), 0)
    assert answer["cpu/user@total"] is columns[0]
    assert answer["cpu/user@total:max"] is columns[1]
    assert answer[1] is columns  # As of any tuple.
    with pytest.raises(KeyError, match=r"cpu/usr@total: not in this result; it has cpu/user@total, load/one"):
        answer["cpu/usr@total"]
    with pytest.raises(KeyError, match=r"load/one:p95: not in this result; it has load/one"):
        answer["load/one:p95"]
    with pytest.raises(KeyError, match=r"load/one:max: not in this result; it has load/one:mean"):
        answer.column("load/one", "max")
