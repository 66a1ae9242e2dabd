# SPDX-License-Identifier: Apache-2.0
"""Where the marks of an axis stand, and what is written beside them. Pure."""

from datetime import datetime, tzinfo
from itertools import pairwise
from math import ceil, floor, log10

from sysmon_tools.quantities import with_unit
from sysmond.base.clock import SECOND_NS

_KIBI = 1024.0
_ROUND = (1.0, 2.0, 5.0, 10.0)
_BINARY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_TIMES_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DAY_S = 86400
_MINUTE_S = 60
# An axis begins at nothing, unless all values are in the upper half of it.
_FROM_NOTHING = 0.5

Mark = tuple[float, str]


def value_marks(low: float, high: float, unit: str, count: int) -> list[Mark]:
    """At most ``count`` round values that enclose all, with their texts; the first and the last are the ends."""
    if low >= 0 and low < _FROM_NOTHING * high:
        low = 0.0
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / max(1, count - 1), is_binary=unit in {"B", "B/s"})
    first, last = floor(low / step), ceil(high / step - 1e-9)
    return [(number * step, with_unit(number * step, unit)) for number in range(first, last + 1)]


def _round_step(least: float, *, is_binary: bool) -> float:
    if is_binary:
        unit = 1.0
        while unit * _KIBI <= least:
            unit *= _KIBI
        return next(unit * factor for factor in _BINARY if unit * factor >= least * (1 - 1e-9))
    unit = 10.0 ** floor(log10(least))
    return next(unit * factor for factor in _ROUND if unit * factor >= least * (1 - 1e-9))


def time_marks(start_ns: int, end_ns: int, count: int, zone: tzinfo | None = None) -> list[tuple[int, str]]:
    """At most ``count`` round local times of [start, end], UTC ns, with their texts; a day's first mark names it."""
    length_s = max(1, (end_ns - start_ns) // SECOND_NS)
    days = ceil(length_s / _DAY_S / max(1, count))
    step_s = next((step for step in _TIMES_S if length_s / step <= count), days * _DAY_S)
    ahead = _local(zone, start_ns // SECOND_NS).utcoffset()
    ahead_s = 0 if ahead is None else int(ahead.total_seconds())
    first_s = -(-(start_ns // SECOND_NS + ahead_s) // step_s) * step_s - ahead_s
    times_s = list(range(first_s, end_ns // SECOND_NS + 1, step_s))
    moments = [_local(zone, time_s) for time_s in times_s]
    form = "%H:%M:%S" if step_s < _MINUTE_S else "%H:%M"
    texts = [moment.strftime("%b %d" if step_s >= _DAY_S else form) for moment in moments]
    for place, (before, now) in enumerate(pairwise(moments), 1):
        if before.date() != now.date() and step_s < _DAY_S:
            texts[place] = now.strftime("%b %d")
    return [(time_s * SECOND_NS, text) for time_s, text in zip(times_s, texts, strict=True)]


def _local(zone: tzinfo | None, time_s: int) -> datetime:
    return datetime.fromtimestamp(time_s, zone).astimezone(zone)
