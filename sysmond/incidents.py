# SPDX-License-Identifier: Apache-2.0
"""Incidents: what in a recording is worth keeping as it was: memory that ran out, work that all stood still. Pure."""

from collections.abc import Iterator

import numpy as np

from sysmond.clock import SECOND_NS
from sysmond.course import Course
from sysmond.model import ABSENT
from sysmond.pins import Pin, joined
from sysmond.recording import Key, Recording
from sysmond.result import Int64Array

BY = "sysmond"
# How much of what came before and after is kept with an incident.
AROUND_NS = 300 * SECOND_NS
# From this share of ten seconds on, in hundredths of a percent, all work stood still.
FULL_AVG10_MIN = 40_00
KILLS = Key("vm", "oom_kill", "")
STALLS = {Key("pressure", "full_avg10", resource): f"{resource} pressure" for resource in ("memory", "io")}


def pins_of(recording: Recording) -> list[Pin]:
    """The spans to pin, in order of time."""
    return joined(_found(recording))


def _found(recording: Recording) -> Iterator[Pin]:
    for block in recording.blocks:
        course = Course(recording.clocks.get(block.strand.boot, []), block.strand.interval_ns)
        for row, key in enumerate(block.keys):
            if key != KILLS and key not in STALLS:
                continue
            values = block.read([row])[0]
            there = values != ABSENT
            values, utc_ns = values[there], course.utc_ns(block.ticks[there])
            if key == KILLS:
                yield from _around(utc_ns[1:][values[1:] > values[:-1]], "out of memory")
            else:
                yield from _around(utc_ns[values >= FULL_AVG10_MIN], STALLS[key])


def _around(utc_ns: Int64Array, why: str) -> Iterator[Pin]:
    """A pin for each run of moments that are near each other."""
    for run in np.split(utc_ns, np.flatnonzero(np.diff(utc_ns) > 2 * AROUND_NS) + 1):
        if len(run):
            yield Pin(int(run[0]) - AROUND_NS, int(run[-1]) + AROUND_NS, why, BY)
