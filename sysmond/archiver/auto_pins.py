# SPDX-License-Identifier: Apache-2.0
"""Incidents: what in a recording is worth keeping as it was: memory that ran out, work that all stood still.

Finding them is pure. How far the kernel's count of killed processes stood where a segment ended is noted in the
runtime folder: what was killed between two segments shows in neither alone.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.base.wall_clock import Course, course_of
from sysmond.errors import CorruptError, Error
from sysmond.machine import note
from sysmond.machine.folders import Folders
from sysmond.plan import plan as plans
from sysmond.plan.plan import ArchiverSettings
from sysmond.store import pins
from sysmond.store.of_ring import Recording, SeriesKey
from sysmond.store.pins import Pin, joined

BY = "sysmond"
# How much of what came before and after is kept with an incident.
AROUND_NS = 300 * SECOND_NS
# Pressure is recorded in hundredths of a percent of ten seconds.
HUNDREDTHS = 100
KILLS = SeriesKey("vm", "oom_kill", "")
STALLS = {SeriesKey("pressure", "full_avg10", resource): f"{resource} pressure" for resource in ("memory", "io")}
FILE = "incidents.json"


class Stand(NamedTuple):
    """How many processes had been killed for want of memory in a boot, at a tick."""

    boot: str = ""
    tick_ns: int = 0
    kills: int = 0


UNKNOWN = Stand()


def pin(folders: Folders, recording: Recording) -> None:
    """Pin what is found; it waits in RAM, like the rows, for the disk to be written.

    :raises OSError: where there is no room. :raises Error: where the pins there are damaged.
    """
    settings = ArchiverSettings()
    with suppress(OSError, Error):
        settings = plans.read(f"{folders.runtime}/plan.json").archiver
    parent = f"{folders.runtime}/archiver"
    before = _read(parent)
    pins.add(parent, pins_of(recording, before, settings.pin_pressure_percent))
    if (after := stand(recording, before)) != before:
        _write(parent, after)


def pins_of(recording: Recording, before: Stand = UNKNOWN, pressure_percent: int = 40) -> list[Pin]:
    """The spans to pin, in order of time. ``before``: where the count stood; no pressure matters at 0 percent."""
    return joined([*_killed(recording, before), *_stalled(recording, pressure_percent)])


def stand(recording: Recording, before: Stand = UNKNOWN) -> Stand:
    """Where the count stands at the end of a recording; as before, where it does not tell."""
    for boot, _, ticks, values in _counts(recording):
        if boot != before.boot or int(ticks[-1]) > before.tick_ns:
            before = Stand(boot, int(ticks[-1]), int(values[-1]))
    return before


def _killed(recording: Recording, before: Stand) -> Iterator[Pin]:
    for boot, course, ticks, values in _counts(recording):
        follows = boot == before.boot and int(ticks[0]) > before.tick_ns
        start = before.kills if follows else int(values[0])
        yield from _around(course.utc_ns(ticks[np.diff(values, prepend=start) > 0]), "out of memory")
        before = Stand(boot, int(ticks[-1]), int(values[-1]))


def _counts(recording: Recording) -> Iterator[tuple[str, Course, Int64Array, Int64Array]]:
    """Boot, clocks, ticks and values of what counts the killed, where there are any, in order of time."""
    for block in sorted(recording.blocks, key=lambda block: (block.strand.boot, block.ticks[:1].tolist())):
        if KILLS in block.keys:
            values = block.read([list(block.keys).index(KILLS)])[0]
            there = values != ABSENT
            if there.any():
                course = course_of(recording.clocks.get(block.strand.boot, []), block.strand.interval_ns)
                yield block.strand.boot, course, block.ticks[there], values[there]


def _stalled(recording: Recording, pressure_percent: int) -> Iterator[Pin]:
    for block in recording.blocks if pressure_percent else ():
        course = course_of(recording.clocks.get(block.strand.boot, []), block.strand.interval_ns)
        for row, key in enumerate(block.keys):
            if key in STALLS:
                is_full = block.read([row])[0] >= pressure_percent * HUNDREDTHS
                yield from _around(course.utc_ns(block.ticks[is_full]), STALLS[key])


def _around(utc_ns: Int64Array, why: str) -> Iterator[Pin]:
    """A pin for each run of moments that are near each other."""
    for run in np.split(utc_ns, np.flatnonzero(np.diff(utc_ns) > 2 * AROUND_NS) + 1):
        if len(run):
            yield Pin(int(run[0]) - AROUND_NS, int(run[-1]) + AROUND_NS, why, BY)


def _read(folder: str) -> Stand:
    try:
        return note.read(f"{folder}/{FILE}", _stand)
    except (OSError, CorruptError):
        return UNKNOWN


def _stand(noted: object) -> Stand:
    boot, tick_ns, kills = note.array(noted)
    return Stand(note.text(boot), note.integer(tick_ns), note.integer(kills))


def _write(folder: str, stand: Stand) -> None:
    note.write(f"{folder}/{FILE}", stand)
