# SPDX-License-Identifier: Apache-2.0
"""What a file declares of its series: tables, metrics, instances, and which of these each record means.

Neighbouring files declare the same: what was spelt once is not spelt again, which is most of the cost of opening one.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sysmond.base.model import Metric, Semantics, Table, check_table
from sysmond.base.result import Array, Int64Array
from sysmond.store.coding.dense_coding import SERIES, TIER_SERIES
from sysmond.store.coding.integers import WIDTHS
from sysmond.store.coding.statistics import Stat, distinct, stats_of
from sysmond.store.files import hdf5, invariants
from sysmond.store.of_ring import SeriesKey

# So many declarations, and so many sets of series of each, are kept: bounds the memory of who reads on and on.
DECLARATIONS_MAX = 16
SETS_MAX = 16

_STAT_BITS = 8

_T = TypeVar("_T")
# Files have thousands of series: in this way each takes a fifth of the time that calling the class takes.
_series_key: Callable[[tuple[str, str, str]], SeriesKey] = partial(tuple.__new__, SeriesKey)
_IS_WIDTH = np.isin(np.arange(256), (0, *WIDTHS))


class TierSeries(NamedTuple):
    """The series of a block of buckets, which has several records of each.

    ``heads``: the first record of each series. ``place``: int64[series, stat], the record of each statistic, -1
    where there is none. ``stats``: what a tier keeps of each series.
    """

    keys: Sequence[SeriesKey]
    stats: Sequence[tuple[Stat, ...]]
    heads: Int64Array
    place: Int64Array


class Keys:
    """Spells the series of a file, which refer to its metrics and instances by number."""

    def __init__(self, metrics: Sequence[tuple[str, Metric]], instances: Sequence[str]) -> None:
        """Take the table and metric, and the instance, of each number."""
        self._tables = [table for table, _ in metrics]
        self._metrics = [metric.name for _, metric in metrics]
        self._stats = [stats_of(metric) for _, metric in metrics]
        self._instances = instances
        self.is_counter = np.array([metric.semantics is Semantics.COUNTER for _, metric in metrics], bool)
        self._known: dict[tuple[bytes, ...], Any] = {}

    def check(self, series: Array, kind: "np.dtype[Any]" = SERIES) -> None:
        """Refuse records, a row[series] each, that lack a field, or refer to what is not there.

        :raises ValueError: naming it.
        """
        if series.dtype != kind:
            invariants.check_type("series", series.dtype, kind)
        if not len(series):
            return
        if not _IS_WIDTH[series["width"]].all():
            raise ValueError("a series has a width that does not exist")
        for field, names in (("metric", self._metrics), ("instance", self._instances)):
            if series[field].max() >= len(names):
                raise ValueError(f"a series refers to {field} {series[field].max()} of {len(names)}")
        numbers = identity(series)
        invariants.check_series(
            numbers << _STAT_BITS | series["stat"] if kind is TIER_SERIES else numbers, series["first"]
        )

    def __call__(self, series: Array) -> Sequence[SeriesKey]:
        """Give the keys of some series."""
        return self._once(series, ("metric", "instance"), self._spell)

    def tier(self, series: Array) -> TierSeries:
        """Give the series of a block of buckets, of records [series and statistic]."""
        return self._once(series, ("metric", "instance", "stat"), self._tier)

    def _once(self, series: Array, fields: Sequence[str], make: Callable[[Array], _T]) -> _T:
        content = tuple(series[field].tobytes() for field in fields)
        if content not in self._known:
            while len(self._known) >= SETS_MAX:
                del self._known[next(iter(self._known))]
            self._known[content] = make(series)
        known: _T = self._known[content]
        return known

    def _spell(self, series: Array) -> list[SeriesKey]:
        metrics, instances = series["metric"].tolist(), series["instance"].tolist()
        tables, names = map(self._tables.__getitem__, metrics), map(self._metrics.__getitem__, metrics)
        return list(map(_series_key, zip(tables, names, map(self._instances.__getitem__, instances), strict=True)))

    def _tier(self, series: Array) -> TierSeries:
        known = np.flatnonzero(series["stat"] <= max(Stat))  # A later program may keep more.
        numbers = identity(series[known])
        ordered, first = distinct(numbers)
        place = np.full((len(first), max(Stat) + 1), -1, np.int64)
        place[np.searchsorted(ordered, numbers), series["stat"][known]] = known
        heads = known[first]
        stats = [self._stats[metric] for metric in series["metric"][heads].tolist()]
        return TierSeries(self._spell(series[heads]), stats, heads, place)


class Declared(NamedTuple):
    """The tables of a file, by name, and what spells its series."""

    tables: dict[str, Table]
    keys: Keys


def read(tables: Array, metrics: Array, instances: Array) -> Declared:
    """Understand the records of the three datasets, of one dimension [row].

    :raises ValueError: where they make no sense. :raises KeyError: where a field lacks.
    """
    return _read(*((records.dtype, records.tobytes()) for records in (tables, metrics, instances)))


@lru_cache(DECLARATIONS_MAX)
def _read(
    tables: tuple["np.dtype[Any]", bytes],
    metrics: tuple["np.dtype[Any]", bytes],
    instances: tuple["np.dtype[Any]", bytes],
) -> Declared:
    of_table, of_metric, of_instance = (
        np.frombuffer(content, dtype) for dtype, content in (tables, metrics, instances)
    )
    declared = [
        (table, Metric(name, unit, Semantics(semantics), doc, scale, origin))
        for table, name, unit, semantics, doc, scale, origin in hdf5.fields(
            of_metric, table=str, name=str, unit=str, semantics=str, doc=str, scale=int, origin=str
        )
    ]
    metrics_of: dict[str, list[Metric]] = {}
    for table, metric in declared:
        metrics_of.setdefault(table, []).append(metric)
    known = {
        name: Table(name, tuple(metrics_of.pop(name, ())), per, doc)
        for name, per, doc in hdf5.fields(of_table, name=str, per=str, doc=str)
    }
    for table_declared in known.values():
        check_table(table_declared)
    if metrics_of or len(known) != len(of_table):
        raise ValueError(f"{len(of_table)} tables of {len(known)} names, and metrics of no table: {[*metrics_of][:3]}")
    names = hdf5.texts(of_instance)
    if len(set(names)) != len(names):
        raise ValueError("an instance is there twice")
    return Declared(known, Keys(declared, names))


def identity(records: Array) -> Int64Array:
    """One number for metric and instance: int64[series]."""
    number: Int64Array = (records["metric"].astype(np.int64) << 32) | records["instance"]
    return number
