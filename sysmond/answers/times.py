# SPDX-License-Identifier: Apache-2.0
"""The times of a question, as people say them, in numbers: the range, and how long a step is."""

import time
from typing import NamedTuple

from sysmond.base import clock, timespec
from sysmond.base.clock import Relation
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import UsageError


class Times(NamedTuple):
    """Now and the range that is asked for, in UTC, and the step; 0 for one bucket, or for the recorded interval."""

    now_ns: int
    start_ns: int
    end_ns: int
    step_ns: int


def read(start: str | int | None, end: str | int | None, step: str | int | None = None, *, is_open: bool) -> Times:
    """Read them: where no end is given, the range goes up to now, or on for ever where it ``is_open``.

    :raises UsageError: for a wrong time or step, and for a range that ends before it begins.
    """
    now, now_ns = clock.relation(), time.time_ns()
    start_ns = -FOREVER_NS if start is None else moment(start, now)
    latest_ns = FOREVER_NS if is_open else now_ns + 1
    end_ns = latest_ns if end is None else moment(end, now)
    if end_ns <= start_ns:
        raise UsageError(f"the range ends ({end!r}) before it begins ({start!r})")
    return Times(now_ns, start_ns, end_ns, length(step))


def moment(said: str | int, now: Relation | None = None) -> int:
    """A point in time, in UTC nanoseconds; ``now``: when it is said, where that is not now.

    :raises UsageError: for a wrong one.
    """
    return timespec.parse_moment(said, now or clock.relation()) if isinstance(said, str) else said


def length(step: str | int | None) -> int:
    """A step in nanoseconds; 0 for none.

    :raises UsageError: for a wrong one.
    """
    step_ns = timespec.parse_step(step) if isinstance(step, str) else step
    if step_ns is not None and step_ns <= 0:
        raise UsageError(f"step {step_ns} ns: not a length of time; expected more than 0")
    return step_ns or 0
