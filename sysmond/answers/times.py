# SPDX-License-Identifier: Apache-2.0
"""The times of a question, as people and programs say them, in numbers: the range, and how long a step is."""

import operator
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, SupportsIndex

import numpy as np

from sysmond.base import clock, timespec
from sysmond.base.clock import Relation
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import UsageError

# Those of pandas are datetime and timedelta, too.
Moment = str | SupportsIndex | datetime | np.datetime64
"""A time as ``timespec`` reads it, UTC nanoseconds, or one of Python, numpy or pandas.

A ``datetime`` without a zone is local time, as a text without one is; ``numpy.datetime64`` is UTC, as in answers.
"""

Length = str | SupportsIndex | timedelta | np.timedelta64
"""A length of time as ``timespec`` reads it, nanoseconds, or one of Python, numpy or pandas."""

# Of dates from 2014 to 2096.
_LIKELY_SECONDS = range(1_400_000_000, 4_000_000_000)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Times(NamedTuple):
    """Now and the range that is asked for, in UTC, and the step; 0 for one bucket, or for the recorded interval."""

    now_ns: int
    start_ns: int
    end_ns: int
    step_ns: int


def read(
    start: Moment | None, end: Moment | None, step: Length | None = None, *, is_open: bool, now: Relation | None = None
) -> Times:
    """Read them: where no end is given, the range goes up to now, or on for ever where it ``is_open``.

    ``now``: the clocks, as whoever asks means them; see ``snapshot_note.now``.

    :raises UsageError: for a wrong time or step, and for a range that ends before it begins.
    """
    now = now or clock.relation()
    now_ns = min(time.time_ns(), now.realtime_ns)
    start_ns = -FOREVER_NS if start is None else moment(start, now)
    latest_ns = FOREVER_NS if is_open else now_ns + 1
    end_ns = latest_ns if end is None else moment(end, now)
    if end_ns <= start_ns:
        if end is None:
            raise UsageError(f"the range begins in the future ({start!r}); expected a time before now, or an end")
        raise UsageError(timespec.reversed_range(start, end))
    return Times(now_ns, start_ns, end_ns, length(step))


# Shorter than the shortest interval.
_STEP_NS_MIN = 1_000_000


def moment(said: Moment, now: Relation | None = None) -> int:
    """A point in time, in UTC nanoseconds; ``now``: when it is said, where that is not now.

    :raises UsageError: for a wrong one.
    """
    if isinstance(said, str):
        return timespec.parse_moment(said, now or clock.relation())
    try:
        if isinstance(said, np.datetime64):
            return _in_ns(said)
        if isinstance(said, datetime):
            return _since_epoch_ns(said)
        return _not_seconds(operator.index(said))
    except (TypeError, ValueError, OverflowError) as problem:
        raise UsageError(
            f"time {said!r}: expected a text such as '-1h', a datetime, a numpy.datetime64, or UTC nanoseconds"
        ) from problem


def _not_seconds(time_ns: int) -> int:
    """Refuse what must be seconds since the epoch: as nanoseconds it would be a moment of 1970.

    :raises ValueError: for those.
    """
    if time_ns in _LIKELY_SECONDS:
        raise ValueError(time_ns)
    return time_ns


def _since_epoch_ns(said: datetime) -> int:
    """Those of pandas have nanoseconds beside."""
    fields = said.year, said.month, said.day, said.hour, said.minute, said.second, said.microsecond
    aware = datetime(*fields, fold=said.fold).astimezone() if said.tzinfo is None else said
    whole_us = (datetime(*fields, tzinfo=aware.tzinfo, fold=said.fold) - _EPOCH) // _MICROSECOND
    return whole_us * 1000 + int(getattr(said, "nanosecond", 0))


def _in_ns(said: np.datetime64 | np.timedelta64) -> int:
    """In nanoseconds, exactly.

    :raises ValueError: for none at all (NaT), and for what int64 cannot hold.
    """
    kind = "datetime64[ns]" if isinstance(said, np.datetime64) else "timedelta64[ns]"
    whole = said.astype(kind)
    if np.isnat(said) or whole.astype(said.dtype) != said:
        raise ValueError(said)
    return int(whole.astype(np.int64))


def length(step: Length | None) -> int:
    """A step in nanoseconds; 0 for none.

    :raises UsageError: for a wrong one.
    """
    if step is None:
        return 0
    step_ns = timespec.parse_step(step) if isinstance(step, str) else _length_ns(step)
    if step_ns <= 0:
        raise UsageError(f"step {step_ns} ns: expected a length of time above 0")
    return step_ns


def _length_ns(step: SupportsIndex | timedelta | np.timedelta64) -> int:
    try:
        if isinstance(step, np.timedelta64):
            return _in_ns(step)
        if isinstance(step, timedelta):
            return step // _MICROSECOND * 1000 + int(getattr(step, "nanoseconds", 0))
        return _long_enough(operator.index(step))
    except (TypeError, ValueError, OverflowError) as problem:
        raise UsageError(
            f"step {step!r}: expected a text such as '10s', a timedelta, a numpy.timedelta64, or nanoseconds"
        ) from problem


def _long_enough(step_ns: int) -> int:
    """Refuse what must be seconds, or their parts: nothing is read so often.

    :raises ValueError: for those.
    """
    if 0 < step_ns < _STEP_NS_MIN:
        raise ValueError(step_ns)
    return step_ns
