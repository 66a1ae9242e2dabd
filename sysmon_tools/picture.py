# SPDX-License-Identifier: Apache-2.0
"""Asks for what a picture shows: curves by unit over a range of time, what happened in it, and what is missing.

It has no engine of its own: everything is asked of ``sysmond.history``, as anybody can.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import is_minor
from sysmond.base.model import Cause, Sensitivity
from sysmond.base.result import Column, Event, Float64Array, Gap, Int64Array, Result
from sysmond.base.timespec import format_time
from sysmond.errors import Error, UsageError
from sysmond.history import Archive

# Lengths of a bucket, in seconds, of which the shortest is taken that gives few enough of them.
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 7 * 86400)
CURVES_MAX = 24
_BAND = ("mean", "min", "max")


class Trace(NamedTuple):
    """A series: its path, and a value a bucket, float64[time], NaN where there is none.

    ``low``, ``high``: the smallest and the largest of each bucket; None where a tier does not keep them.
    """

    path: str
    values: Float64Array
    low: Float64Array | None = None
    high: Float64Array | None = None

    @property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest value; (0, 0) where there are none."""
        whole = [values for values in (self.values, self.low, self.high) if values is not None]
        known = np.concatenate(whole)
        known = known[np.isfinite(known)]
        return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


class Panel(NamedTuple):
    """Curves of one unit, which share an axis."""

    unit: str
    curves: tuple[Trace, ...]

    @property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest value of all."""
        lows, highs = zip(*(curve.extent for curve in self.curves), strict=True)
        return min(lows), max(highs)


class Picture(NamedTuple):
    """All that is drawn. ``times_ns``: int64[time], the starts of buckets, UTC; ``step_ns``: their length.

    ``warnings``: what could not be read, or is no number, a line each. ``is_restricted``: whether anything in it is.
    """

    start_ns: int
    end_ns: int
    step_ns: int
    times_ns: Int64Array
    panels: tuple[Panel, ...]
    gaps: tuple[Gap, ...] = ()
    events: tuple[Event, ...] = ()
    warnings: tuple[str, ...] = ()
    is_restricted: bool = False


def look(archive: Archive, paths: Sequence[str], start_ns: int, end_ns: int, buckets: int, step: str = "") -> Picture:
    """Ask for a picture of [start, end) with at most so many buckets, or of a ``step`` that somebody wants.

    :raises UsageError: for a wrong path, or more series than can be told apart. :raises Error: where nothing is
        recorded.
    """
    wanted = step or f"{_step_s((end_ns - start_ns) / SECOND_NS, buckets)}s"
    result = _ask(archive, paths, start_ns, end_ns, wanted)
    by_path: dict[str, dict[str, Column]] = {}
    for column in result.columns:
        by_path.setdefault(column.path, {})[column.stat] = column
    numbers = {path: stats for path, stats in by_path.items() if next(iter(stats.values())).texts is None}
    texts = [f"{path}: holds texts; a picture has numbers" for path in by_path if path not in numbers]
    if not numbers:
        raise Error("; ".join(texts) or f"{' '.join(paths)}: nothing is recorded {_range(start_ns, end_ns)}")
    if not any(np.isfinite(column.values).any() for stats in numbers.values() for column in stats.values()):
        raise Error(f"{' '.join(paths)}: nothing was recorded {_range(start_ns, end_ns)}")
    if len(numbers) > CURVES_MAX:
        raise UsageError(f"{len(numbers)} series; expected at most {CURVES_MAX}: name a metric, or an @instance")
    panels: dict[str, list[Trace]] = {}
    for path, stats in numbers.items():
        values = {stat: column.values for stat, column in stats.items()}
        first = next(iter(stats.values()))
        curve = Trace(path, values.get("mean", first.values), values.get("min"), values.get("max"))
        panels.setdefault(first.unit, []).append(curve)
    return Picture(
        start_ns,
        end_ns,
        result.step_ns,
        result.times_ns,
        tuple(Panel(unit, tuple(curves)) for unit, curves in panels.items()),
        tuple(gap for gap in result.gaps if gap.cause is not Cause.BEFORE_RECORDING),
        tuple(event for event in result.events if not is_minor(event.kind)),
        (*archive.warnings, *result.warnings, *texts),
        result.sensitivity is Sensitivity.RESTRICTED,
    )


def _range(start_ns: int, end_ns: int) -> str:
    """Spell a range, to the second."""
    first, last = (format_time(time_ns // SECOND_NS * SECOND_NS) for time_ns in (start_ns, end_ns))
    return f"from {first} to {last}"


def _ask(archive: Archive, paths: Sequence[str], start_ns: int, end_ns: int, step: str) -> Result:
    """Ask for means with the range of each bucket, or without it, where that is not kept."""
    start, end = start_ns, end_ns
    try:
        return archive.select(*paths, start=start, end=end, step=step, stat=_BAND)
    except UsageError:
        return archive.select(*paths, start=start, end=end, step=step)


def _step_s(length_s: float, buckets: int) -> int:
    return next((step_s for step_s in STEPS_S if length_s / step_s <= buckets), STEPS_S[-1])
