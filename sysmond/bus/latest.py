# SPDX-License-Identifier: Apache-2.0
"""The newest values on the bus: which series there are, under which numbers, and what they say now.

Numbers are given once and mean the same series for as long as the service lives. Whoever names a restricted table
without being allowed to see it is refused.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base import clock, derived_columns, formula, paths
from sysmond.base.clock import SECOND_NS
from sysmond.base.derived_columns import KNOWN, as_metric
from sysmond.base.model import ABSENT, Cause, Derived, Metric, Semantics, Sensitivity, Table, rate_unit, series_path
from sysmond.base.paths import Matcher
from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, NotAuthorizedError, NotFoundError, RefusedError
from sysmond.bus.wire.interface import CallContext, Interface, Options, Pieces, method, read_options
from sysmond.bus.wire.names import MANAGER
from sysmond.bus.wire.values import Variant, clean
from sysmond.errors import UsageError
from sysmond.machine.folders import GROUP
from sysmond.ring.newest import Follower, Now, Recent, growth

if TYPE_CHECKING:
    from sysmond.base.formula import Operand

# An answer of a greater size is asked for in parts.
REPLY_BYTES_MAX = 256 * 1024
# Each is compared with all series that there are.
PATTERNS_MAX = 100
# Who lists more gives way to others so often.
PIECE_SERIES = 100
# Instances come and go: numbers of series that are gone are forgotten, oldest first, beyond this.
NUMBERS_MAX = 65_536
# A value is stale when its table should have had a tick so many intervals ago, and a moment more.
STALE_INTERVALS = 3
STALE_MARGIN_NS = SECOND_NS

CLASSES = {Sensitivity.PUBLIC: 1, Sensitivity.RESTRICTED: 2}
# What a series takes of an answer beside its path and units.
_LISTED_BYTES = 112
_SECONDS_TO_PERCENT = 100.0
_SHARE = 1 / _SECONDS_TO_PERCENT


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
    """A series as ``ListMetrics`` tells of it.

    ``text``: what a series of texts says now. ``formula``: of one that is derived.
    """

    series: Series
    metric: Metric
    sensitivity: Sensitivity
    interval_ns: int
    text: str
    formula: str = ""


class Latest:
    """What the rings say now."""

    def __init__(
        self,
        follower: Follower,
        planned: Callable[[], Mapping[str, Sensitivity]] = dict,
        long_tables: Callable[[], Sequence[str]] = tuple,
        declared: Callable[[str], Table] = lambda name: Table(name, ()),
    ) -> None:
        """Look through this follower, which follows rings of both classes.

        ``planned``: gives the tables there are, and their classes. ``long_tables``: those of them that have no series.
        ``declared``: what a table declares, which rings do not say.
        """
        self._follower = follower
        self._planned = planned
        self._long_tables = long_tables
        self._declared = declared
        self._derived: dict[str, dict[str, Derived]] = {}
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

    def forget(self) -> None:
        """Look anew at what tables declare: another plan is in force."""
        self._derived.clear()

    def derived(self, table: str) -> dict[str, Derived]:
        """The derived columns of a table that has rows, by name."""
        if table not in self._derived:
            metrics = {
                each.name: each for recent in self._now.tables.get(table, ()) for each in recent.layout.table.metrics
            }
            answers = None if table in KNOWN else self._declared(table).answers
            self._derived[table] = derived_columns.of(table, metrics, answers.derived if answers else ())
        return self._derived[table]

    def moment(self, sensitivities: Iterable[Sensitivity]) -> "Moment":
        """What the rings say at the last look to whoever may see these classes."""
        return Moment(self._now, sensitivities, self.derived)

    def is_restricted(self, table: str) -> bool:
        """Whether a table lies in restricted rings alone."""
        there = self.look().tables.get(table, [])
        return bool(there) and all(recent.sensitivity is Sensitivity.RESTRICTED for recent in there)

    def find(self, patterns: Sequence[str], sensitivities: Iterable[Sensitivity]) -> Pieces[list[Listed]]:
        """The series that patterns mean, all where there are none; of those classes alone.

        It gives way after each pattern, and after so many series.

        :raises UsageError: for what is no path. :raises NotFoundError: for one that means nothing.
        :raises NotAuthorizedError: for one that means what is of other classes alone.
        """
        now = self.look()
        allowed = frozenset(sensitivities)
        chosen: dict[Series, Listed] = {}
        for text in dict.fromkeys(patterns or ["*"]):
            pattern = paths.parse(text)
            matching: dict[Series, Listed] = {}
            for listed in self.meant(Matcher(pattern), allowed, now):
                matching[listed.series] = listed
                if len(matching) % PIECE_SERIES == 0:
                    yield
            if not matching and patterns:
                raise self._unknown(pattern, allowed)
            chosen |= matching
            yield
        return list(chosen.values())

    def meant(self, matcher: Matcher, allowed: Container[Sensitivity], now: Now | None = None) -> Iterator[Listed]:
        """The series that one pattern means, as of a look, the last one; one that two writers have may come twice."""
        now = self._now if now is None else now
        for table, several in now.tables.items():
            if not matcher.table(table):
                continue
            for recent in several:
                is_gone = recent.absence is not None and recent.absence[0] is Cause.DISABLED
                if is_gone or not recent.rows or recent.sensitivity not in allowed:
                    continue
                metrics = [metric for metric in recent.layout.table.metrics if matcher.metric(table, metric.name)]
                for name in recent.rows[-1].names if metrics else ():
                    if matcher.series(table, metrics[0].name, name):
                        for metric in metrics:
                            yield self._listed((table, metric.name, name), recent, metric, now)
                if not metrics and matcher.is_named:
                    yield from self._derived_series(table, recent, matcher, now)

    def _derived_series(self, table: str, recent: Recent, matcher: Matcher, now: Now) -> Iterator[Listed]:
        """The derived series of a table that a pattern names."""
        for column in self.derived(table).values():
            metric = as_metric(column)
            own = derived_columns.own(formula.parse(column.formula))
            for name in recent.rows[-1].names:
                if matcher.series(table, column.name, name) and recent.columns.keys() >= set(own):
                    yield self._listed((table, column.name, name), recent, metric, now, column.formula)

    def refusal(self, text: str, allowed: Container[Sensitivity]) -> NotAuthorizedError | None:
        """Why a pattern may not be followed: it means tables of other classes alone; None where that is not so."""
        matcher = Matcher(paths.parse(text))
        meant = [
            recent.sensitivity
            for table, several in self._now.tables.items()
            if matcher.table(table)
            for recent in several
        ]
        if not meant:
            long_tables, planned = self._long_tables(), self._planned()
            meant = [planned[table] for table in long_tables if matcher.table(table) and table in planned]
        if not meant or any(sensitivity in allowed for sensitivity in meant):
            return None
        may = f"root, the service's own user and members of the group {GROUP} may read it"
        return NotAuthorizedError(f"path {text!r}: restricted; {may}")

    def of_rows(self, text: str) -> NotFoundError | None:
        """Why a path has no newest value: it is of a table of rows, and who asks for these; None where it is not."""
        if not self.is_long(text):
            return None
        said = paths.is_long(text.partition("@")[0].partition("/")[0])
        return NotFoundError(f"path {text!r}: {said}, or on D-Bus GetRows, with last_ns for the newest")

    def is_long(self, text: str) -> bool:
        """Whether a path names a table that has rows, and no series in rings."""
        return text.partition("@")[0].partition("/")[0] in self._long_tables()

    def _unknown(self, pattern: paths.Pattern, allowed: Container[Sensitivity]) -> RefusedError:
        """Why a pattern means nothing, and what comes near."""
        if refusal := self.refusal(pattern.text, allowed):
            return refusal
        if rows := self.of_rows(pattern.text):
            return rows
        long_tables = self._long_tables()
        if pattern.table in self._planned() and not any(self.meant(Matcher(paths.parse(pattern.table)), allowed)):
            return NotFoundError(f"path {pattern.text!r}: has no rows now")
        try:
            known = [listed.series[1:] for listed in self.meant(Matcher(paths.parse("*")), allowed)]
            derived = [(each, name, "") for each in {key[0] for key in known} for name in self.derived(each)]
            paths.select([pattern], known, long_tables, lambda: derived, self._aliases)
        except UsageError as unknown:
            return NotFoundError(str(unknown))
        return NotFoundError(f"path {pattern.text!r}: nothing is recorded")

    def _aliases(self) -> list[tuple[str, str]]:
        """What tables say that other programs call their metrics: pairs of a name and a path."""
        answers = [(table, self._declared(table).answers) for table in self._planned()]
        return [(name, f"{table}/{column}") for table, said in answers if said for name, column in said.aliases]

    def _listed(self, key: paths.Series, recent: Recent, metric: Metric, now: Now, made_of: str = "") -> Listed:
        text = ""
        if metric.is_text and (stored := recent.stored(recent.rows[-1], metric.name, key[2])) is not None:
            text = now.text_of(stored)
        return Listed(self._numbered(key), metric, recent.sensitivity, recent.layout.interval_ns, text, made_of)

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
        self.look()
        moment = self.moment(sensitivities)
        values: list[float] = []
        qualities = bytearray()
        for ident in idents:
            series = self._series.get(ident)
            value, quality = _UNKNOWN if series is None else moment.value(series, rate=rate)
            values.append(value)
            qualities.append(quality)
        return moment.tick_ns, values, bytes(qualities)


class _NewestRows:
    """The newest rows of one table: where its values are, and what they are worth."""

    __slots__ = ("before", "columns", "factors", "first", "first_before", "length_ns", "quality", "row")

    def __init__(self, recent: Recent, now_ns: int) -> None:
        """``recent`` has a row."""
        newest = recent.rows[-1]
        self.row = newest.stored
        self.first = recent.places(newest)
        self.columns = recent.columns
        self.factors = [_factors(metric) for metric in recent.layout.table.metrics]
        late_ns = now_ns - recent.tick_ns - STALE_INTERVALS * recent.layout.interval_ns
        self.quality = Quality.STALE if late_ns > STALE_MARGIN_NS else Quality.GOOD
        self.before: memoryview | None = None
        self.length_ns = 0
        self.first_before = self.first
        if len(recent.rows) > 1:
            before = recent.rows[-2]
            self.before = before.stored
            self.length_ns = newest.tick_ns - before.tick_ns
            if before.names is not newest.names:
                width = len(self.factors)
                self.first_before = {name: index * width for index, name in enumerate(before.names)}

    def growth(self, stored: int, instance: str, column: int) -> float | None:
        """How much a counter grew a second since the row before; None where that is unknown."""
        first = self.first_before.get(instance)
        if self.before is None or first is None or (before := self.before[first + column]) == ABSENT:
            return None
        return growth(before, stored, self.length_ns)


class Moment:
    """What the rings say at one moment to whoever may see these classes."""

    def __init__(
        self,
        now: Now,
        sensitivities: Iterable[Sensitivity],
        derived: Callable[[str], Mapping[str, Derived]] = lambda _: MappingProxyType({}),
    ) -> None:
        """Nothing is looked up before it is asked for. ``derived``: gives the derived columns of a table."""
        self._now = now
        self._derived = derived
        self._allowed = frozenset(sensitivities)
        self._now_ns = clock.boottime_ns()
        self._tables: dict[str, _NewestRows | Quality] = {}

    @property
    def tick_ns(self) -> int:
        """The newest tick in boot time; 0 before the first."""
        newest = (recent for several in self._now.tables.values() for recent in several)
        return max((recent.tick_ns for recent in newest if recent.sensitivity in self._allowed), default=0)

    def value(self, series: Series, *, rate: bool) -> tuple[float, Quality]:
        """The newest value of a series, NaN where there is none, and what it is worth; ``rate``: of counters."""
        _, table, metric, instance = series
        newest = self._tables.get(table)
        if newest is None:
            newest = self._tables[table] = self._newest_rows(table)
        if isinstance(newest, Quality):
            return math.nan, newest
        first, column = newest.first.get(instance), newest.columns.get(metric)
        if first is None or column is None:
            made_of = self._derived(table).get(metric) if column is None else None
            return _ABSENT if made_of is None else self._computed(table, instance, made_of)
        divisor, percent = newest.factors[column]
        if not divisor:
            return math.nan, Quality.TEXT
        stored = newest.row[first + column]
        if stored == ABSENT:
            return _ABSENT
        if not rate or not percent:
            return stored / divisor, newest.quality
        grown = newest.growth(stored, instance, column)
        return _ABSENT if grown is None else (grown * percent / divisor, newest.quality)

    def _computed(self, table: str, instance: str, column: Derived) -> tuple[float, Quality]:
        """What a formula makes of the newest values, counters as rates; it is worth what the least of them is."""
        read = formula.parse(column.formula)
        values: dict[Operand, float] = {}
        quality = Quality.GOOD
        lacking: Quality | None = None
        for name in read.operands:
            of, at = (name.table, name.at(instance)) if name.table else (table, instance)
            value, worth = self.value(Series(0, of, name.metric, at), rate=True)
            if worth not in {Quality.GOOD, Quality.STALE}:
                values[name], lacking = math.nan, lacking or worth
                continue
            values[name] = value * (_SHARE if self._counts_seconds(of, name.metric) else 1.0)
            quality = max(quality, worth)
        made = read.evaluate(values, formula.FLOATS)
        return (made, quality) if math.isfinite(made) else (math.nan, lacking or Quality.ABSENT)

    def _counts_seconds(self, table: str, metric: str) -> bool:
        """Whether the rate of a metric is told in percent."""
        newest = self._tables.get(table)
        return isinstance(newest, _NewestRows) and newest.factors[newest.columns[metric]][1] == _SECONDS_TO_PERCENT

    def _newest_rows(self, table: str) -> _NewestRows | Quality:
        quality = Quality.ABSENT
        for recent in self._now.tables.get(table, ()):
            if recent.sensitivity in self._allowed:
                is_there = recent.absence is None and recent.rows
                return _NewestRows(recent, self._now_ns) if is_there else Quality.ABSENT
            quality = Quality.NO_PERMISSION
        return quality


_UNKNOWN = math.nan, Quality.UNKNOWN_ID
_ABSENT = math.nan, Quality.ABSENT


def _size(listed: Listed) -> int:
    """About how many bytes a series takes of an answer."""
    return _LISTED_BYTES + len(listed.series.path) + len(listed.text)


def _page(listed: Iterable[Listed], after: str, limit: int) -> list[Listed]:
    """The first series behind a path, in order of paths: so many, or as many as one answer has room for."""
    later = sorted((each for each in listed if each.series.path > after), key=lambda entry: entry.series.path)
    left_bytes, stop = REPLY_BYTES_MAX, 0
    while stop < min(limit, len(later)) and (left_bytes := left_bytes - _size(later[stop])) >= 0:
        stop += 1
    return later[:stop]


def _factors(metric: Metric) -> tuple[float, float]:
    """What a stored value is divided by, 0 for a text; what a rate is multiplied with, 0 for what has none."""
    if metric.is_text:
        return 0.0, 0.0
    percent = _SECONDS_TO_PERCENT if metric.unit == "s" else 1.0
    return 10.0**metric.scale, percent if metric.semantics is Semantics.COUNTER else 0.0


class Values(Interface):
    """The newest values, for whoever asks."""

    NAME = MANAGER

    def __init__(self, latest: Latest) -> None:
        """``latest``: shared with whoever else looks at the rings."""
        self._latest = latest

    @method("patterns:as options:a{sv}", "metrics:a(usssuda{sv})")
    def list_metrics(
        self, request: CallContext, patterns: list[str], options: Options
    ) -> Pieces[list[tuple[object, ...]]]:
        """The series that patterns mean: number, path, unit, semantics, class, interval in seconds, further."""
        page = read_options(options, {"after": "s", "limit": "u"})
        if len(patterns) > PATTERNS_MAX:
            raise LimitError(f"{len(patterns)} patterns; expected up to {PATTERNS_MAX}")
        matching = yield from self._latest.find(patterns, request.caller.sensitivities)
        if page:
            limit = int(page.get("limit", len(matching)))
            if limit < 1 and matching:
                raise InvalidArgumentError(f"limit {limit}: expected 1 or more series")
            matching = _page(matching, str(page.get("after", "")), limit)
        elif sum(map(_size, matching)) > REPLY_BYTES_MAX:
            raise LimitError(
                f"{len(matching)} series are too many for one answer; use narrower patterns, or the option limit"
            )
        rows = []
        for listed in matching:
            rows.append(_row(listed))
            if len(rows) % PIECE_SERIES == 0:
                yield
        return rows

    @method("ids:au options:a{sv}", "boottime_ns:t serial:t values:ad quality:ay")
    def get_latest(self, request: CallContext, ids: list[int], options: Options) -> tuple[int, int, list[float], bytes]:
        """The newest values of series, and what each is worth; with the option ``rate`` counters as rates."""
        rate = bool(read_options(options, {"rate": "b"}).get("rate", False)) if options else False
        tick_ns, values, qualities = self._latest.values(ids, request.caller.sensitivities, rate=rate)
        return tick_ns, self._latest.serial, values, qualities


def _row(listed: Listed) -> tuple[object, ...]:
    series, metric, sensitivity, interval_ns, text, made_of = listed
    further: dict[str, Variant] = {}
    if metric.semantics is Semantics.COUNTER:
        further["rate_unit"] = Variant("s", rate_unit(metric.unit))
    if made_of:
        further["formula"] = Variant("s", clean(made_of))
    if text:
        further["text"] = Variant("s", clean(text))
    return (
        series.ident,
        clean(series.path),
        metric.unit,
        str(metric.semantics),
        CLASSES[sensitivity],
        interval_ns / SECOND_NS,
        further,
    )
