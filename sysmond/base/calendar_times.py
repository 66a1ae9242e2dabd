# SPDX-License-Identifier: Apache-2.0
"""Times that a calendar says: days by name or date, times of day, months and years ago; for ``timespec``, which see.

Apart from the others, since its patterns take longer to compile than most times to be read.
"""

import calendar
import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS

HOURS_PER_DAY = 24
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
# Of what is as long as the calendar says, in months.
_UNITS = {
    **dict.fromkeys(("mo", "month", "months"), 1),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), 12),
}
DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}

# Digits are bounded and ASCII, as in ``timespec``.
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})|([0-9]{4})([0-9]{2})([0-9]{2})")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?")
_TWELVE_HOURS = re.compile(
    r"(?<![0-9:])([0-9]{1,2})((?::[0-9]{2}){0,2}(?:[.,][0-9]{1,9})?) ?([ap])m(?![a-z])", re.IGNORECASE
)
_DAY_OF_MONTH = re.compile(
    r"(?:([0-9]{1,2})(?:st|nd|rd|th)? ([a-z]{3,9})|([a-z]{3,9}) ([0-9]{1,2})(?:st|nd|rd|th)?)\.?(?:,? ([0-9]{4}))?",
    re.IGNORECASE,
)
_PARTS = re.compile(r"((?: ?[0-9]{1,4} ?(?:mo|months?|y|yrs?|years?)(?![a-z]))+),? ?", re.IGNORECASE)
_PART = re.compile(r"([0-9]+) ?([a-z]+)", re.IGNORECASE)
_OFFSET = re.compile(r"(?<=[0-9])\s*(?:(Z|UTC|GMT)|([+-])([0-9]{2}):?([0-9]{2})?(?::([0-9]{2}))?)$", re.IGNORECASE)


class MonthsSaid(NamedTuple):
    """How many months a length begins with, and what it goes on with."""

    months: int
    rest: str


def months_said(length: str) -> MonthsSaid | None:
    """Read the months and years that a length of time begins with; None where it does not."""
    said = _PARTS.match(length)
    if said is None:
        return None
    months = sum(int(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(said[1]))
    return MonthsSaid(months, length[said.end() :])


def months_on(time_ns: int, months: int, zone: tzinfo | None, years: range) -> int:
    """The same day and time so many months on, or the last day of a month that is shorter.

    :raises ValueError: where that is in none of the years.
    """
    local = datetime.fromtimestamp(time_ns // SECOND_NS, zone)
    year, month = divmod(local.year * 12 + local.month - 1 + months, 12)
    _check(year, years)
    day = min(local.day, calendar.monthrange(year, month + 1)[1])
    return _epoch_s(local.replace(year=year, month=month + 1, day=day)) * SECOND_NS + time_ns % SECOND_NS


def read(text: str, now_ns: int, zone: tzinfo | None, years: range) -> int | None:
    """Read a day, a clock time, or both, with or without an offset from UTC; None where that is no such text.

    :raises ValueError: where there is no such day, or hour, or not in these years.
    """
    text = _TWELVE_HOURS.sub(_in_24_hours, text)
    offset = _OFFSET.search(text) if ":" in text else None
    if offset:
        text = text[: offset.start()]
        zone = UTC if offset[1] else _fixed_zone(offset)
    day_text, clock_text = _split(text)
    if not day_text and not clock_text:
        return None
    today = datetime.fromtimestamp(now_ns // SECOND_NS, zone).date()
    day = today if not day_text else _read_day(day_text, today)
    if day is None:
        return None
    _check(day.year, years)
    clock = _CLOCK.fullmatch(clock_text) if clock_text else None
    if clock_text and clock is None:
        return None
    hour, minute, second = (int(clock[n] or 0) for n in (1, 2, 3)) if clock else (0, 0, 0)
    fraction_ns = int((clock[4] or "0").ljust(9, "0")) if clock else 0
    if (hour, minute, second, fraction_ns) == (HOURS_PER_DAY, 0, 0, 0):  # ISO 8601: the end of the day
        day, hour = day + timedelta(days=1), 0
    moment = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone)
    return _epoch_s(moment) * SECOND_NS + fraction_ns


def _check(year: int, years: range) -> None:
    if year not in years:
        raise ValueError(f"outside the years {years[0]} to {years[-1]}")


def _in_24_hours(said: re.Match[str]) -> str:
    hour = int(said[1])
    if not 1 <= hour <= HOURS_PER_DAY // 2:
        raise ValueError(f"{said[0]!r} has no hour from 1 to 12")
    return f"{hour % 12 + (12 if said[3] in 'pP' else 0):02}{said[2] or ':00'}"


def _epoch_s(moment: datetime) -> int:
    """Whole seconds since the epoch; without a zone it is local time."""
    if moment.tzinfo is None:
        return int(moment.timestamp())
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def _split(text: str) -> tuple[str, str]:
    """Split ``monday 14:30``, ``2025-01-31T14:30`` into a day and a clock time; either may be empty."""
    if ":" not in text:
        return text, ""
    position = max(text.rfind(" "), text.rfind("T"), text.rfind("t")) if text[:1].isdigit() else text.rfind(" ")
    return text[: max(position, 0)], text[position + 1 :]


def _read_day(text: str, today: date) -> date | None:
    word = text.lower()
    if word in DAYS:
        return today + timedelta(days=DAYS[word])
    for number, name in enumerate(WEEKDAYS):
        if word in {name, name[:3]}:
            return today - timedelta(days=(today.weekday() - number) % 7)
    if of_month := _DAY_OF_MONTH.fullmatch(text):
        return _read_day_of_month(of_month, today)
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = match.groups()[:3] if match[1] else match.groups()[3:]
    return date(int(year), int(month), int(day))


def _read_day_of_month(said: re.Match[str], today: date) -> date | None:
    name = (said[2] or said[3]).lower()
    months = [
        number
        for number, month in enumerate(_MONTHS, 1)
        if name in {month, month[:3], "sept" if month == "september" else ""}
    ]
    if not months:
        return None
    day = int(said[1] or said[4])
    if said[5]:
        return date(int(said[5]), months[0], day)
    # February 29 was at most eight years ago (1896 to 1904).
    years = (year for year in range(today.year, today.year - 9, -1) if day <= calendar.monthrange(year, months[0])[1])
    days = (date(year, months[0], day) for year in years)
    latest = next((one for one in days if one <= today), None)
    if latest is None or day < 1:
        raise ValueError(f"{_MONTHS[months[0] - 1].capitalize()} has no day {day}")
    return latest


def _fixed_zone(offset: re.Match[str]) -> tzinfo:
    if int(offset[3]) >= HOURS_PER_DAY:
        raise ValueError("an offset of a day or more")
    length = timedelta(hours=int(offset[3]), minutes=int(offset[4] or 0), seconds=int(offset[5] or 0))
    return timezone(-length if offset[2] == "-" else length)
