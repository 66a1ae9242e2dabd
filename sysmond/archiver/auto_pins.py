# SPDX-License-Identifier: Apache-2.0
"""Incidents: what in a recording is worth keeping as it was, by the events that say so and by what it counted.

Counted are processes killed because memory ran out, and how long all work stood still. Finding them is pure. How far
the kernel's count of killed processes stood where a segment ended is noted in the runtime folder: what was killed
between two segments shows in neither alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import INCIDENT
from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.base.wall_clock import Course, course_of
from sysmond.errors import CorruptError, Error
from sysmond.machine import note
from sysmond.machine.folders import Folders
from sysmond.plan import plan as plans
from sysmond.plan.plan import ArchiverSettings
from sysmond.store import pins
from sysmond.store.of_ring import Recording, SeriesKey
from sysmond.store.pins import BY_ITSELF, Pin, joined

# How much of what came before and after is kept with an incident.
AROUND_NS = 300 * SECOND_NS
# Pressure is recorded in hundredths of a percent of ten seconds.
HUNDREDTHS = 100
KILLED = "oom kill"
KILLS = SeriesKey("vm", "oom_kill", "")
STALLS = {SeriesKey("pressure", "full_avg10", resource): f"{resource} pressure" for resource in ("memory", "io")}
FILE = "incidents.json"
WHY_LENGTH_MAX = 200


class Stand(NamedTuple):
    """How many processes had been killed for want of memory in a boot, at a tick."""

    boot: str = ""
    tick_ns: int = 0
    kills: int = 0


UNKNOWN = Stand()
USUAL = ArchiverSettings()


def pin(folders: Folders, recording: Recording) -> None:
    """Pin what is found; it waits in RAM, like the rows, for the disk to be written.

    :raises OSError: where there is no room. :raises Error: where the pins there are damaged.
    """
    settings = USUAL
    with suppress(OSError, Error):
        settings = plans.read(f"{folders.runtime}/plan.json").archiver
    parent = f"{folders.runtime}/archiver"
    before = _read(parent)
    if settings.pins_bytes:
        pins.add(parent, pins_of(recording, settings, before))
    if (after := stand(recording, before)) != before:
        _write(parent, after)


def pins_of(recording: Recording, settings: ArchiverSettings = USUAL, before: Stand = UNKNOWN) -> list[Pin]:
    """The spans to pin, in order of time. ``before``: where the count stood."""
    killed = _killed(recording, before) if KILLED in settings.pin_kinds else ()
    others = _by_events(recording, settings.pin_kinds)
    return joined([*killed, *_stalled(recording, settings.pin_pressure_percent), *others])


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
        yield from _around(course.utc_ns(ticks[np.diff(values, prepend=start) > 0]), KILLED)
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


def _by_events(recording: Recording, kinds: Collection[str]) -> Iterator[Pin]:
    """Around events of these kinds, each when it happened: never later than it was recorded, whatever a log says."""
    moments_ns: dict[str, list[int]] = defaultdict(list)
    for event in recording.events:
        if event.kind in kinds:
            at_ns = course_of(recording.clocks.get(event.boot, []), SECOND_NS).moment_ns(event.boottime_ns)
            happened_ns = at_ns if event.happened_ns == ABSENT else min(at_ns, event.happened_ns)
            # What a person wrote is for everybody; an event's own text may not be.
            moments_ns[event.text[:WHY_LENGTH_MAX] if event.kind == INCIDENT else event.kind].append(happened_ns)
    for why, utc_ns in moments_ns.items():
        yield from _around(np.array(sorted(utc_ns), np.int64), why)


def _around(utc_ns: Int64Array, why: str) -> Iterator[Pin]:
    """A pin for each run of moments that are near each other."""
    for run in np.split(utc_ns, np.flatnonzero(np.diff(utc_ns) > 2 * AROUND_NS) + 1):
        if len(run):
            start_ns, end_ns = int(run[0]) - AROUND_NS, int(run[-1]) + AROUND_NS
            if 0 < end_ns <= TIME_MAX_NS:  # Else the clock was far off.
                yield Pin(max(0, start_ns), end_ns, why, BY_ITSELF)


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
