# SPDX-License-Identifier: Apache-2.0
"""Times and steps as people write them, to nanoseconds and back.

Pure: now, the time of boot and the zone are given by the caller. ``zone=None`` is the local time of
the process (the environment's TZ, else /etc/localtime).

What is not obvious:

- ``10m``, ``3d2h`` and ``-1h`` all mean that long ago; ``+1h`` is in the future. A day is 24 hours
  there, as in systemd.time(7); ``yesterday`` and dates follow the calendar, whatever its days last.
- A clock time alone is today's, even where that lies in the future (as systemd.time(7) and date(1)
  have it): ``--from 9:00 --to 17:00`` means the same at any hour. ``yesterday 23:00`` is the other one.
- A weekday is the most recent such day, today included; so is a day of a month without its year (``Nov 22``), where
  date(1) has the one of this year, which may be months ahead.
- Months and years ago are the same day of those, or where they have none such, their last.
- A local time that clocks skip (02:30 when summer begins) is read with the offset before the change,
  and so names the time as long after it; of one that occurs twice, the first is meant (PEP 495, fold 0).
- A bare number is seconds since the epoch, except that eight digits which spell a date are that date.
"""

import re
from datetime import date, datetime, timedelta, tzinfo
from enum import StrEnum
from time import localtime

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.errors import UsageError, nearest

MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS

# Far beyond any record, and far enough within 64 bits of nanoseconds (1677 to 2262) to add a step to.
YEARS = range(1900, 2200)
TIME_MIN_NS = -2_208_988_800 * SECOND_NS
TIME_MAX_NS = 7_258_118_400 * SECOND_NS
STEP_MAX_NS = 36_525 * DAY_NS
# Later than any time that can be written, and the same before: a range that is open on that side.
FOREVER_NS = TIME_MAX_NS - 1

# An error stays a line, whatever was typed.
QUOTE_LENGTH_MAX = 60

TIME_FORMS = (
    "now, today, yesterday, tomorrow, boot, '5 minutes ago', 10m, 3d2h, -1h, 2025-01-31, '2025-01-31 14:30', "
    "2025-01-31T14:30:00+01:00, 14:30[:00], 2pm, monday, 'yesterday 14:30', 'Nov 22', '2 years ago' or seconds since "
    "the epoch"
)
STEP_FORMS = "100ms, 1s, 1.5s, 10s, 1min, 5m, 1h, 1h30m or 1d"

_UNITS_NS = {
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND_NS),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE_NS),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR_NS),
    **dict.fromkeys(("d", "day", "days"), DAY_NS),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY_NS),
}
# Digits are bounded so that no number is slow to convert, and ASCII: int() would accept every script.
_PART = re.compile(r"\s*([0-9]{1,20})(?:\.([0-9]{1,20}))?\s*([a-zA-Zµμ]+)(?:\s*,(?=\s*[0-9]))?")
_NUMBER = re.compile(r"@?([0-9]{1,12})(?:\.([0-9]{1,20}))?")
_EPOCH_DAY = date(1970, 1, 1)


class Notation(StrEnum):
    """How points in time are written."""

    LOCAL = "local"  # ISO 8601 with the offset of local time
    UTC = "utc"  # ISO 8601 with Z
    EPOCH = "epoch"  # seconds since 1970-01-01T00:00:00Z


def parse_time(text: str, *, now_ns: int, boot_ns: int | None = None, zone: tzinfo | None = None) -> int:
    """Read a point in time, to UTC nanoseconds.

    :raises UsageError: naming the text and the accepted forms.
    """
    wanted = " ".join(text.split())
    try:
        time_ns = _read_time(wanted, now_ns, boot_ns, zone)
    except (ValueError, OverflowError) as wrong:
        raise UsageError(f"time {_quote(text)}: {wrong}; expected {TIME_FORMS}") from None
    if time_ns is None:
        from sysmond.base import calendar_times  # noqa: PLC0415  see below

        words = ("now", "boot", *calendar_times.DAYS, *calendar_times.WEEKDAYS) if wanted.isalpha() else ()
        likely = nearest(wanted.lower()[:40], words, f"expected {TIME_FORMS}")
        raise UsageError(f"time {_quote(text)}: not understood{likely}")
    if not TIME_MIN_NS <= time_ns < TIME_MAX_NS:
        raise UsageError(f"time {_quote(text)}: outside the years {YEARS[0]} to {YEARS[-1]}; expected {TIME_FORMS}")
    return time_ns


def parse_moment(text: str, now: Relation) -> int:
    """Read a point in time as ``parse_time`` does, with the clocks as they stand.

    :raises UsageError: naming the text and the accepted forms.
    """
    return parse_time(text, now_ns=now.realtime_ns, boot_ns=now.realtime_ns - now.boottime_ns)


def reversed_range(start: object, end: object) -> str:
    """What is wrong with a range that has no length, or less, as all programs say it."""
    return f"the range ends ({end!r}) before it begins ({start!r})"


def parse_span(start: str, end: str, now: Relation) -> tuple[int, int]:
    """Read both ends of a span by one look at the clocks: from now to now is no time.

    :raises UsageError: naming what is wrong of them, also where the span has no length.
    """
    start_ns, end_ns = parse_moment(start, now), parse_moment(end, now)
    if start_ns >= end_ns:
        raise UsageError(reversed_range(start, end))
    return start_ns, end_ns


def parse_step(text: str) -> int:
    """Read a length of time, to nanoseconds; more than nothing, and at most a century.

    :raises UsageError: naming the text and the accepted forms.
    """
    wanted = " ".join(text.split())
    number = _NUMBER.fullmatch(wanted)
    if number and not wanted.startswith("@"):
        step_ns: int | None = _scaled(number[1], number[2], SECOND_NS)
    else:
        step_ns = _read_parts(wanted)
    if step_ns is None:
        raise UsageError(f"step {_quote(text)}: not understood; expected a length such as {STEP_FORMS}")
    if not 0 < step_ns <= STEP_MAX_NS:
        raise UsageError(f"step {_quote(text)}: expected 1 ns to 100 years, such as {STEP_FORMS}")
    return step_ns


def format_step(step_ns: int) -> str:
    """Write a length of time as ``parse_step`` reads it: ``100ms``, ``1s``, ``5min``, ``1h``, ``1d``."""
    for unit, unit_ns in (("d", DAY_NS), ("h", HOUR_NS), ("min", MINUTE_NS), ("s", SECOND_NS), ("ms", 1_000_000)):
        if step_ns % unit_ns == 0 and step_ns:
            return f"{step_ns // unit_ns}{unit}"
    return f"{step_ns}ns"


def format_time(time_ns: int, notation: Notation = Notation.LOCAL, zone: tzinfo | None = None) -> str:
    """Write one point in time, with as many fractional digits as it needs: 0, 3, 6 or 9."""
    places = fraction_digits(time_ns)
    if notation is Notation.EPOCH:
        return _epoch_text(time_ns, places)
    second, fraction_ns = divmod(time_ns, SECOND_NS)
    ahead_s = 0 if notation is Notation.UTC else offset_s(second, zone)
    day, rest_s = divmod(second + ahead_s, DAY_NS // SECOND_NS)
    clock = f"{rest_s // 3600:02d}:{rest_s // 60 % 60:02d}:{rest_s % 60:02d}"
    fraction = f".{fraction_ns:09d}"[: places + 1] if places else ""
    return f"{_EPOCH_DAY + timedelta(days=day)}T{clock}{fraction}{offset_text(ahead_s, notation)}"


def offset_s(epoch_s: int, zone: tzinfo | None = None) -> int:
    """By how much a zone's clocks are ahead of UTC at a time."""
    if zone is None:
        return localtime(epoch_s).tm_gmtoff
    offset = datetime.fromtimestamp(epoch_s, zone).utcoffset()
    return 0 if offset is None else offset // timedelta(seconds=1)


def offset_text(ahead_s: int, notation: Notation = Notation.LOCAL) -> str:
    """Write an offset from UTC: ``+01:00``, with seconds where it has them; ``Z`` in the notation of UTC."""
    if notation is Notation.UTC:
        return "Z"
    minutes, seconds = divmod(abs(ahead_s), 60)
    text = f"{'-' if ahead_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{text}:{seconds:02d}" if seconds else text


def fraction_digits(time_ns: int) -> int:
    """How many fractional digits of a second a time needs, in steps of three; works on a common divisor too."""
    if time_ns % SECOND_NS == 0:
        return 0
    return 3 if time_ns % 1_000_000 == 0 else 6 if time_ns % 1_000 == 0 else 9


def _quote(text: str) -> str:
    return repr(text if len(text) <= QUOTE_LENGTH_MAX else text[:QUOTE_LENGTH_MAX] + "…")


def _scaled(whole: str, fraction: str | None, unit_ns: int) -> int:
    """Multiply a decimal number by a unit, without the errors of floating point."""
    digits = fraction or ""
    return int(whole + digits) * unit_ns // int(10 ** len(digits))


def _read_parts(text: str) -> int | None:
    """Read ``3d2h``, ``1 min 30 s``, ``5 minutes``."""
    total_ns, position = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        # M is a month to many programs; better refused than taken for a minute.
        unit_ns = _UNITS_NS.get(part[3].lower()) if part[3] != "M" else None
        if unit_ns is None:
            return None
        total_ns += _scaled(part[1], part[2], unit_ns)
        position = part.end()
    return total_ns if position else None


def _read_time(text: str, now_ns: int, boot_ns: int | None, zone: tzinfo | None) -> int | None:
    word = text.lower()
    if word == "now":
        return now_ns
    if word == "boot":
        if boot_ns is None:
            raise ValueError("when this machine started is not known")
        return boot_ns
    is_date = len(text) == len("20250131") and text.isdecimal() and text[:2] in {"19", "20", "21"}
    number = None if is_date else _NUMBER.fullmatch(text)
    if number:
        return _scaled(number[1], number[2], SECOND_NS)
    relative_ns = _read_relative(text, now_ns, zone)
    if relative_ns is not None:
        return relative_ns
    # Most times are so long ago, or a number: for these the patterns of the calendar need not be compiled.
    from sysmond.base import calendar_times  # noqa: PLC0415  therefore

    return calendar_times.read(text, now_ns, zone, YEARS)


def _read_relative(text: str, now_ns: int, zone: tzinfo | None) -> int | None:
    ago = text.lower().endswith(" ago")
    length = text[: -len(" ago")] if ago else text
    sign = length[:1] if length[:1] in {"+", "-"} else ""
    if sign and ago:
        return None
    length = length[len(sign) :]
    direction = 1 if sign == "+" else -1
    length_ns = _read_parts(length)
    if length_ns is not None:
        return now_ns + direction * length_ns
    from sysmond.base import calendar_times  # noqa: PLC0415  see below

    said = calendar_times.months_said(length)
    length_ns = None if said is None else _read_parts(said.rest) if said.rest else 0
    if said is None or length_ns is None:
        return None
    begin_ns = calendar_times.months_on(now_ns, direction * said.months, zone, YEARS) if said.months else now_ns
    return begin_ns + direction * length_ns


def _epoch_text(time_ns: int, places: int) -> str:
    sign = "-" if time_ns < 0 else ""
    seconds, rest_ns = divmod(abs(time_ns), SECOND_NS)
    return f"{sign}{seconds}.{rest_ns:09d}"[: -(9 - places) or None] if places else f"{sign}{seconds}"
