# SPDX-License-Identifier: Apache-2.0
"""Recordings that no machine made: a realistic mixture of counters and gauges, many of which never move."""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from sysmond.base import clock
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand

METRICS_PER_TABLE = 25
# Of ten series: three never move, four are counters (one of them mostly idle), three are gauges.
_CONSTANT, _IDLE_COUNTER, _COUNTER, _SLOW_GAUGE, _GAUGE = range(5)
_MIXTURE = (_CONSTANT, _COUNTER, _GAUGE, _CONSTANT, _COUNTER, _SLOW_GAUGE, _IDLE_COUNTER, _CONSTANT, _COUNTER, _GAUGE)
_COUNTERS = (_IDLE_COUNTER, _COUNTER)
_DOC = "A number that stands for one of a real machine, described at the length at which real ones are."


def counters(series: int) -> list[bool]:
    """Which of so many series are counters."""
    return [_MIXTURE[number % 10] in _COUNTERS for number in range(series)]


def tables(counting: Sequence[bool]) -> list[Table]:
    """The tables that such series are in, each of one row for the whole system."""
    metrics = [
        Metric(
            f"metric_{number}",
            "B" if number % 3 else "1",
            Semantics.COUNTER if counts else Semantics.GAUGE,
            _DOC,
            0,
            f"/proc/made_up field {number}",
        )
        for number, counts in enumerate(counting)
    ]
    return [
        Table(f"table_{start // METRICS_PER_TABLE}", tuple(metrics[start : start + METRICS_PER_TABLE]), "", _DOC)
        for start in range(0, len(metrics), METRICS_PER_TABLE)
    ]


def keys(made: list[Table]) -> tuple[SeriesKey, ...]:
    """The series of these tables."""
    return tuple(SeriesKey(table.name, metric.name, "") for table in made for metric in table.metrics)


def values(series: int, ticks: int, seed: int = 1) -> Int64Array:
    """Absolute values, int64[series, time]."""
    random = np.random.default_rng(seed)
    matrix = np.empty((series, ticks), np.int64)
    for row in range(series):
        scale = 10.0 ** random.uniform(0.0, 6.0)
        match _MIXTURE[row % 10]:
            case 0:
                matrix[row] = round(scale)
            case 1:
                busy = random.random(ticks) < 0.02
                matrix[row] = np.cumsum(busy * random.poisson(min(scale, 1e3), ticks))
            case 2:
                # Work comes in bursts: the rate itself wanders over a minute or so.
                steps = random.gamma(2.0, scale / 20, ticks // 60 + 1)
                matrix[row] = np.cumsum(random.poisson(np.repeat(steps, 60)[:ticks]))
            case 3:
                matrix[row] = np.round(scale * 100 + np.cumsum(random.random(ticks) < 0.05))
            case _:
                matrix[row] = np.round(scale * 10 + np.cumsum(random.normal(0.0, scale / 100, ticks)))
    return matrix


def recording(series: int, ticks: int, *, first_tick_s: int, now: clock.Relation, seed: int = 1) -> Recording:
    """A recording of a sampler that began at ``first_tick_s`` of boot time."""
    made = tables(counters(series))
    axis = (first_tick_s + np.arange(ticks, dtype=np.int64)) * clock.SECOND_NS
    boot = clock.boot_id()
    block = MemoryBlock(
        Strand(boot, "sampler", clock.SECOND_NS, clock.SECOND_NS), axis, keys(made), values(series, ticks, seed)
    )
    return Recording(Sensitivity.PUBLIC, {table.name: table for table in made}, [block], {}, {boot: [now]}, [])


def write_ring(folder: str, series: int, ticks: int, *, first_tick_s: int) -> str:
    """Write a ring as the sampler would, a row a table and tick; give its path."""
    growing = grow_ring(folder, values(series, ticks), counters(series), first_tick_s=first_tick_s)
    (path,) = deque(growing, maxlen=1)
    return path


def grow_ring(folder: str, matrix: Int64Array, counting: Sequence[bool], *, first_tick_s: int) -> Iterator[str]:
    """Write such a ring of the values int64[series, time], and give its path after each tick."""
    series, ticks = matrix.shape
    made = tables(counting)
    layouts = [Layout(table, clock.SECOND_NS) for table in made]
    identity = Identity(clock.boot_id(), "sampler", Sensitivity.PUBLIC, 1, clock.SECOND_NS)
    path = f"{folder}/{clock.SECOND_NS}.ring"
    room_bytes = int(ticks * (series * 8 + len(made) * 48) * 1.1) + 1024 * 1024
    ring = RingWriter(path, room_bytes, identity, layouts)
    ring.clock(clock.relation())
    for tick, row in enumerate(_rows(matrix)):
        start = 0
        for table, layout in enumerate(layouts):
            stop = start + len(layout.table.metrics)
            ring.rows(table, (first_tick_s + tick) * clock.SECOND_NS, ("",), row[start:stop])
            start = stop
        yield path
    ring.close()


def _rows(matrix: Int64Array) -> Iterator[list[int]]:
    for column in matrix.T:
        yield column.tolist()
