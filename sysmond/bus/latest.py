# SPDX-License-Identifier: Apache-2.0
"""The newest values on the bus: which series there are, under which numbers, and what they say now.

Numbers are given once and mean the same series for as long as the service lives. Whoever may not see
restricted tables is not told that they are there.
"""

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from sysmond import clock, paths
from sysmond.bus.adapter import Variant, clean, variant
from sysmond.bus.errors import NotFoundError, TooMuchError
from sysmond.bus.interface import Interface, Options, Request, method, read_options
from sysmond.bus.names import MANAGER
from sysmond.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.follow import Follower, Now, Recent
from sysmond.model import Metric, Semantics, Sensitivity, rate_unit, series_path

# An answer of a greater size is asked for in parts.
REPLY_BYTES_MAX = 256 * 1024
# Instances come and go: numbers of series that are gone are forgotten, oldest first, beyond this.
NUMBERS_MAX = 65_536
# A value is stale when its table should have had a tick so many intervals ago, and a moment more.
STALE_INTERVALS = 3
STALE_MARGIN_NS = SECOND_NS

CLASSES = {Sensitivity.PUBLIC: 1, Sensitivity.RESTRICTED: 2}
# What a series takes of an answer beside its path and units.
_LISTED_BYTES = 72
_SECONDS_TO_PERCENT = 100.0


class Quality(IntEnum):
    """What a value is worth."""

    GOOD = 0
    ABSENT = 1
    STALE = 2
    NO_PERMISSION = 3
    UNKNOWN_ID = 4
    TEXT = 5


class Series(NamedTuple):
    """One series under its number."""

    ident: int
    table: str
    metric: str
    instance: str

    @property
    def path(self) -> str:
        """How it is spelt."""
        return series_path(self.table, self.metric, self.instance)


class Listed(NamedTuple):
    """A series as ``ListMetrics`` tells of it; ``text``: what a series of texts says now."""

    series: Series
    metric: Metric
    sensitivity: Sensitivity
    interval_ns: int
    text: str


class Latest:
    """What the rings say now."""

    def __init__(self, follower: Follower) -> None:
        """Look through this follower, which follows rings of both classes."""
        self._follower = follower
        self._now = follower.read()
        self._numbers: dict[paths.Series, int] = {}
        self._series: dict[int, Series] = {}
        self._next = 1
        self.serial = 1
        """Grows whenever the rings got something new."""

    def look(self) -> Now:
        """See what is new."""
        now = self._follower.read()
        if now is not self._now:
            self._now = now
            self.serial += 1
        return now

    def is_restricted(self, table: str) -> bool:
        """Whether a table lies in restricted rings alone."""
        there = self.look().tables.get(table, [])
        return bool(there) and all(each.sensitivity is Sensitivity.RESTRICTED for each in there)

    def find(self, patterns: Sequence[str], sensitivities: Iterable[Sensitivity]) -> list[Listed]:
        """The series that patterns mean, all where there are none; of those classes alone.

        :raises UsageError: for what is no path. :raises NotFoundError: for one that means nothing.
        """
        parsed = [paths.parse(pattern) for pattern in patterns]
        now, allowed = self.look(), frozenset(sensitivities)
        there: dict[paths.Series, tuple[Recent, Metric]] = {}
        for table, several in now.tables.items():
            for recent in (each for each in several if each.sensitivity in allowed and each.rows):
                for name in recent.rows[-1].names:
                    for metric in recent.layout.table.metrics:
                        there.setdefault((table, metric.name, name), (recent, metric))
        try:
            chosen = paths.select(parsed, there) if parsed else list(there)
        except UsageError as unknown:
            raise NotFoundError(str(unknown)) from unknown
        return [self._listed(key, *there[key], now) for key in chosen]

    def _listed(self, key: paths.Series, recent: Recent, metric: Metric, now: Now) -> Listed:
        text = ""
        if metric.is_text and (stored := recent.stored(recent.rows[-1], metric.name, key[2])) is not None:
            text = now.text_of(stored)
        return Listed(self._numbered(key), metric, recent.sensitivity, recent.layout.interval_ns, text)

    def _numbered(self, key: paths.Series) -> Series:
        if key not in self._numbers:
            if len(self._numbers) >= NUMBERS_MAX:
                oldest = next(iter(self._numbers))
                del self._series[self._numbers.pop(oldest)]
            self._numbers[key] = self._next
            self._series[self._next] = Series(self._next, *key)
            self._next += 1
        return self._series[self._numbers[key]]

    def values(
        self, idents: Iterable[int], sensitivities: Iterable[Sensitivity], *, rate: bool
    ) -> tuple[int, list[float], bytes]:
        """The newest tick in boot time, and values with their qualities; ``rate``: counters as growth a second."""
        now, allowed, now_ns = self.look(), frozenset(sensitivities), clock.boottime_ns()
        values, qualities = [], bytearray()
        for ident in idents:
            series = self._series.get(ident)
            value, quality = (
                (math.nan, Quality.UNKNOWN_ID) if series is None else newest(now, series, allowed, now_ns, rate=rate)
            )
            values.append(value)
            qualities.append(quality)
        ticks = (each.tick_ns for several in now.tables.values() for each in several if each.sensitivity in allowed)
        return max(ticks, default=0), values, bytes(qualities)


def newest(
    now: Now, series: Series, allowed: frozenset[Sensitivity], now_ns: int, *, rate: bool
) -> tuple[float, Quality]:
    """The newest value of a series, NaN where there is none, and what it is worth."""
    _, table, metric, instance = series
    quality = Quality.ABSENT
    for recent in now.tables.get(table, ()):
        if recent.sensitivity not in allowed:
            quality = Quality.NO_PERMISSION
            continue
        if recent.absence is not None or not recent.rows:
            return math.nan, Quality.ABSENT
        return _of(recent, metric, instance, now_ns, rate=rate)
    return math.nan, quality


def _of(recent: Recent, metric: str, instance: str, now_ns: int, *, rate: bool) -> tuple[float, Quality]:
    declared = recent.declared(metric)
    value = None
    if declared is not None and declared.is_text:
        return math.nan, Quality.TEXT
    if declared is not None and rate and declared.semantics is Semantics.COUNTER:
        if len(recent.rows) > 1 and (value := recent.rate(recent.rows[-2], recent.rows[-1], metric, instance)):
            value *= _SECONDS_TO_PERCENT if declared.unit == "s" else 1.0
    elif declared is not None:
        value = recent.value(recent.rows[-1], metric, instance)
    if value is None:
        return math.nan, Quality.ABSENT
    late_ns = now_ns - recent.tick_ns - STALE_INTERVALS * recent.layout.interval_ns
    return value, Quality.STALE if late_ns > STALE_MARGIN_NS else Quality.GOOD


class Values(Interface):
    """The newest values, for whoever asks."""

    NAME = MANAGER

    def __init__(self, latest: Latest) -> None:
        """``latest``: shared with whoever else looks at the rings."""
        self._latest = latest

    @method("patterns:as options:a{sv}", "metrics:a(usssuda{sv})")
    def list_metrics(self, request: Request, patterns: list[str], options: Options) -> list[tuple[object, ...]]:
        """The series that patterns mean: number, path, unit, semantics, class, interval in seconds, further."""
        read_options(options, {})
        found = self._latest.find(patterns, request.caller.sensitivities)
        if sum(_LISTED_BYTES + len(each.series.path) + len(each.text) for each in found) > REPLY_BYTES_MAX:
            raise TooMuchError(f"{len(found)} series are too many for one answer; narrower patterns are right")
        return [_told(each) for each in found]

    @method("ids:au options:a{sv}", "boottime_ns:t serial:t values:ad quality:ay")
    def get_latest(self, request: Request, ids: list[int], options: Options) -> tuple[int, int, list[float], bytes]:
        """The newest values of series, and what each is worth; with the option ``rate`` counters as rates."""
        rate = bool(read_options(options, {"rate": "b"}).get("rate", False)) if options else False
        tick_ns, values, qualities = self._latest.values(ids, request.caller.sensitivities, rate=rate)
        return tick_ns, self._latest.serial, values, qualities


def _told(listed: Listed) -> tuple[object, ...]:
    series, metric, sensitivity, interval_ns, text = listed
    further: dict[str, Variant] = {}
    if metric.semantics is Semantics.COUNTER:
        further["rate_unit"] = variant("s", rate_unit(metric.unit))
    if text:
        further["text"] = variant("s", clean(text))
    return (
        series.ident,
        clean(series.path),
        metric.unit,
        str(metric.semantics),
        CLASSES[sensitivity],
        interval_ns / SECOND_NS,
        further,
    )
