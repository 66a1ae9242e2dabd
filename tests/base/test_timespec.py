# SPDX-License-Identifier: Apache-2.0
"""Times and steps: what people write, what comes back, and where clocks change."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.timespec import Notation
from sysmond.errors import UsageError

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND_NS


NOW_NS = ns("2025-10-09T10:53:20+02:00") + 123_456_789  # a Thursday
BOOT_NS = ns("2025-10-08T07:00:00+02:00")


def parse(text: str, zone: ZoneInfo = BERLIN) -> int:
    return timespec.parse_time(text, now_ns=NOW_NS, boot_ns=BOOT_NS, zone=zone)


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("today", "2025-10-09T00:00+02:00"),
        ("Yesterday", "2025-10-08T00:00+02:00"),
        ("tomorrow", "2025-10-10T00:00+02:00"),
        ("boot", "2025-10-08T07:00+02:00"),
        ("thursday", "2025-10-09T00:00+02:00"),
        ("fri", "2025-10-03T00:00+02:00"),
        ("Monday 14:30", "2025-10-06T14:30+02:00"),
        ("yesterday 23:00:05", "2025-10-08T23:00:05+02:00"),
        ("08:15", "2025-10-09T08:15+02:00"),
        ("23:59:59", "2025-10-09T23:59:59+02:00"),  # today's, although it lies in the future
        ("24:00", "2025-10-10T00:00+02:00"),
        ("2025-01-31", "2025-01-31T00:00+01:00"),
        ("20250131", "2025-01-31T00:00+01:00"),
        ("2025-01-31 14:30", "2025-01-31T14:30+01:00"),
        ("2025-01-31T14:30:15", "2025-01-31T14:30:15+01:00"),
        ("2025-01-31T14:30:15Z", "2025-01-31T14:30:15+00:00"),
        ("2025-01-31t14:30:15z", "2025-01-31T14:30:15+00:00"),
        ("2025-01-31 14:30:15 UTC", "2025-01-31T14:30:15+00:00"),
        ("2025-01-31T14:30-0530", "2025-01-31T14:30-05:30"),
        ("2025-01-31T14:30+02", "2025-01-31T14:30+02:00"),
        ("20250131T14:30", "2025-01-31T14:30+01:00"),
        ("1700000000", "2023-11-14T22:13:20+00:00"),
        ("@1700000000", "2023-11-14T22:13:20+00:00"),
        ("0", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_a_point_in_time_is_what_it_says(text: str, expected: str) -> None:
    assert parse(text) == ns(expected)


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("now", 0),
        ("10m", -600),
        ("-10m", -600),
        ("- 10 min", -600),
        ("10 minutes ago", -600),
        ("3d2h", -(3 * 86400 + 2 * 3600)),
        ("1 hour, 5 minutes ago", -3900),
        ("-1h", -3600),
        ("+1h", 3600),
        ("1.5h", -5400),
        ("250ms", -0.25),
        ("1w", -7 * 86400),
    ],
)
def test_a_length_means_that_long_ago(text: str, length_s: float) -> None:
    assert parse(text) == NOW_NS + int(length_s * SECOND_NS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2pm", "2025-10-09T14:00+02:00"),
        ("12am", "2025-10-09T00:00+02:00"),
        ("12 PM", "2025-10-09T12:00+02:00"),
        ("yesterday 2:30pm", "2025-10-08T14:30+02:00"),
        ("2025-01-31 11:59:59 pm", "2025-01-31T23:59:59+01:00"),
        ("2pm UTC", "2025-10-09T14:00+00:00"),
        ("Nov 22", "2024-11-22T00:00+01:00"),  # the most recent one
        ("9 October", "2025-10-09T00:00+02:00"),
        ("Oct 10", "2024-10-10T00:00+02:00"),
        ("Sept 1st 14:30", "2025-09-01T14:30+02:00"),
        ("22 nov 2023 5am", "2023-11-22T05:00+01:00"),
        ("November 22, 2023", "2023-11-22T00:00+01:00"),
        ("Feb 29", "2024-02-29T00:00+01:00"),
        ("1 month ago", "2025-09-09T10:53:20+02:00"),
        ("2 years ago", "2023-10-09T10:53:20+02:00"),
        ("8 months", "2025-02-09T10:53:20+01:00"),  # the same time of the day, whatever clocks did
        ("-1y", "2024-10-09T10:53:20+02:00"),
        ("+1mo", "2025-11-09T10:53:20+01:00"),
        ("1 year 2 months 3 days ago", "2024-08-06T10:53:20+02:00"),
    ],
)
def test_times_are_read_as_people_of_other_tools_say_them(text: str, expected: str) -> None:
    assert parse(text) - parse(text) % SECOND_NS == ns(expected)


def test_a_month_that_is_shorter_ends_on_its_last_day() -> None:
    now_ns = ns("2024-02-29T12:00+01:00")
    assert timespec.parse_time("1 year ago", now_ns=now_ns, zone=BERLIN) == ns("2023-02-28T12:00+01:00")
    assert timespec.parse_time("4 years ago", now_ns=now_ns, zone=BERLIN) == ns("2020-02-29T12:00+01:00")


def test_fractions_are_exact_to_the_nanosecond() -> None:
    assert parse("1700000000.123456789") == 1_700_000_000_123_456_789
    assert parse("2025-01-31T14:30:15.000000001Z") == ns("2025-01-31T14:30:15+00:00") + 1
    assert parse("2025-01-31T14:30:15,5Z") == ns("2025-01-31T14:30:15+00:00") + SECOND_NS // 2


def test_days_are_local_to_the_zone() -> None:
    late_ns = ns("2025-10-09T23:30-04:00")  # already Friday in Berlin
    parsed = [timespec.parse_time("today", now_ns=late_ns, zone=zone) for zone in (NEW_YORK, BERLIN)]
    assert parsed == [ns("2025-10-09T00:00-04:00"), ns("2025-10-10T00:00+02:00")]


def test_midnight_lies_23_or_25_hours_apart_where_clocks_change() -> None:
    assert parse("2025-03-31") - parse("2025-03-30") == 23 * timespec.HOUR_NS
    assert parse("2025-10-27") - parse("2025-10-26") == 25 * timespec.HOUR_NS
    now_ns = ns("2025-10-27T12:00+01:00")
    assert timespec.parse_time("yesterday", now_ns=now_ns, zone=BERLIN) == ns("2025-10-26T00:00+02:00")


def test_a_skipped_local_time_is_read_with_the_offset_before(berlin: None) -> None:
    expected = ns("2025-03-30T03:30+02:00")
    assert parse("2025-03-30T02:30") == expected
    assert timespec.parse_time("2025-03-30T02:30", now_ns=NOW_NS) == expected


def test_a_repeated_local_time_is_the_first(berlin: None) -> None:
    expected = ns("2025-10-26T02:30+02:00")
    assert parse("2025-10-26T02:30") == expected
    assert timespec.parse_time("2025-10-26T02:30", now_ns=NOW_NS) == expected


WRONG_TIMES = (
    *("", " ", "tody", "nan", "inf", "-5", "--list", "1e9", "1e400", "5 M", "1 fortnight", "5 x", "1h\n2"),
    *("2025-02-30", "2025-13-01", "25:00", "12:60", "24:01", "2025-01-31T14:30+99", "2025-01-31T", "T10:00x"),
    *(
        "13pm",
        "0am",
        "2 pmx",
        "Nov 31",
        "Feb 30 2025",
        "0 Nov",
        "Novem 2",
        "Nov 22 14:30 2025",
        "-1 month ago",
        "300 years ago",
    ),
    *("1000000000-01-01", "0001-01-01", "9999-12-31", "100000000000", "99999999999999999999d"),
    *("-1h ago", "٣m", "9" * 5000, "a" * 5000),
)


@pytest.mark.parametrize("text", WRONG_TIMES)
def test_a_wrong_time_is_one_line_that_names_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("time ")
    assert "yesterday" in message
    assert "3d2h" in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_misspelt_word_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean yesterday"):
        parse("yesteday")


def test_boot_needs_to_be_known() -> None:
    with pytest.raises(UsageError, match="not known"):
        timespec.parse_time("boot", now_ns=NOW_NS)


@pytest.mark.parametrize(
    ("text", "step_ns"),
    [
        ("1s", SECOND_NS),
        ("10s", 10 * SECOND_NS),
        ("10", 10 * SECOND_NS),
        ("1min", 60 * SECOND_NS),
        ("1m", 60 * SECOND_NS),
        ("5 minutes", 300 * SECOND_NS),
        ("1h30m", 5400 * SECOND_NS),
        ("1d", 86400 * SECOND_NS),
        ("100ms", SECOND_NS // 10),
        ("1.5s", 3 * SECOND_NS // 2),
        ("0.1", SECOND_NS // 10),
        ("250us", 250_000),
        ("250µs", 250_000),
    ],
)
def test_a_step_is_what_it_says(text: str, step_ns: int) -> None:
    assert timespec.parse_step(text) == step_ns


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1s", "nan", "inf", "1e3s", "1y", "1M", "s", "0.1ns", "101 years", "40000d", "9" * 5000]
)
def test_a_wrong_step_is_one_line_that_names_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"^step .*1min.*$") as caught:
        timespec.parse_step(text)
    assert len(str(caught.value)) < 200


@given(st.integers(1, timespec.STEP_MAX_NS))
def test_a_step_is_read_as_it_was_written(step_ns: int) -> None:
    assert timespec.parse_step(timespec.format_step(step_ns)) == step_ns


@given(st.text() | st.from_regex(r"[-+@]?[0-9.:]{1,12}[ TZ+-]?[a-zµ0-9:+-]{0,12}", fullmatch=True))
def test_arbitrary_text_is_a_time_or_a_usage_error(text: str) -> None:
    for read in (parse, timespec.parse_step):
        problem = ""
        try:
            assert -(2**62) < read(text) < 2**63
        except UsageError as wrong:
            problem = str(wrong)
        assert len(problem.splitlines()) <= 1


TIMES_NS = st.integers(0, ns("2100-01-01T00:00+00:00"))
ZONES = st.sampled_from(
    [BERLIN, NEW_YORK, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Kathmandu"), ZoneInfo("Africa/Monrovia")]
)


@given(TIMES_NS, ZONES, st.sampled_from(list(Notation)), st.sampled_from([1, 1_000, 1_000_000, SECOND_NS]))
def test_a_time_is_read_as_it_was_written(time_ns: int, zone: ZoneInfo, notation: Notation, unit_ns: int) -> None:
    time_ns -= time_ns % unit_ns
    text = timespec.format_time(time_ns, notation, zone)
    assert timespec.parse_time(text, now_ns=NOW_NS, zone=zone) == time_ns or len(text) == 8  # 8 digits: a date


@given(st.integers(-2_208_988_800, 7_258_118_399), ZONES)
def test_a_whole_second_is_written_as_datetime_does(second: int, zone: ZoneInfo) -> None:
    written = timespec.format_time(second * SECOND_NS, Notation.LOCAL, zone)
    assert written == datetime.fromtimestamp(second, zone).isoformat()


def test_only_the_digits_that_are_needed() -> None:
    base_ns = 1_700_000_000 * SECOND_NS
    assert timespec.format_time(base_ns, Notation.UTC) == "2023-11-14T22:13:20Z"
    assert timespec.format_time(base_ns + 5_000_000, Notation.UTC) == "2023-11-14T22:13:20.005Z"
    assert timespec.format_time(base_ns + 5_000, Notation.UTC) == "2023-11-14T22:13:20.000005Z"
    assert timespec.format_time(base_ns + 5, Notation.EPOCH) == "1700000000.000000005"
    assert timespec.format_time(base_ns, Notation.EPOCH) == "1700000000"


def test_an_offset_with_seconds_is_written_whole() -> None:
    zone = timezone(timedelta(hours=-1, minutes=-2, seconds=-3))
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    written = timespec.format_time(int(moment.timestamp()) * SECOND_NS, zone=zone)
    assert written == moment.astimezone(zone).isoformat() == "2024-12-31T22:57:57-01:02:03"
