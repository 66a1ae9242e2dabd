# SPDX-License-Identifier: Apache-2.0
"""The columns that answers about a long table may have: metrics with a statistic, and what follows from them.

A column is spelled ``METRIC`` or ``METRIC:STATISTIC``. Of a counter there are ``mean`` (its rate), ``min`` and ``max``
(of its rates between readings), ``sum`` (what it grew by) and ``last`` (as stored), of a gauge ``mean`` (over the
time that it was known), ``min``, ``max`` and ``last``; the first is meant where none is said. Of both there are
percentiles (``p95``), by time. A state is what it was last.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sysmond.answers.rows.joins import FEW_NAMES, STATES, names_of
from sysmond.base import column_groups
from sysmond.base.model import END, START, Answers, Derived, Join, Metric, Semantics, Table, rate_unit
from sysmond.base.result import TIME_SCALE, TIME_UNIT, Float64Array, Int64Array
from sysmond.base.statistic import percent_of
from sysmond.errors import UsageError, listed, nearest
from sysmond.rollup.condition import TEXT, ColumnKind
from sysmond.rollup.portion import parts_of, totals_in
from sysmond.rollup.top import is_dictionary
from sysmond.store.stretches.stretch import key_of, lasts
from sysmond.store.stretches.undeclared import BUILT_IN, answers_of

if TYPE_CHECKING:
    from sysmond.base.formula import Formula, Operand

MEAN, SUM, MIN, MAX, LAST = "mean", "sum", "min", "max", "last"
_STATS = {
    Semantics.COUNTER: (MEAN, MIN, MAX, SUM, LAST),
    Semantics.GAUGE: (MEAN, MIN, MAX, LAST),
    Semantics.STATE: (LAST,),
}
# Of points in time, in boot time as stored.
_MOMENTS = frozenset({START, END})

COUNT = "count"


class Of(StrEnum):
    """Where a column comes from."""

    METRIC = "metric"
    DERIVED = "derived"  # By a formula of metrics.
    KEY = "key"
    JOIN = "join"  # Texts that belong to numbers: of another table, or known to every reader.
    LIFE = "life"  # When and how it ended.
    COUNT = "count"  # How many were counted together.


# What says of a row whose it is: of long tables a group, of others a column.
_WHO, _INSTANCE = "who", "instance"
# Of every row, and no column of the table.
TIME = "time"


class Spec(NamedTuple):
    """A column: how it is called, the metric and statistic it is of, its unit as shown, decimals of its integers."""

    label: str
    name: str
    stat: str
    unit: str
    scale: int
    semantics: Semantics
    of: Of

    @property
    def is_text(self) -> bool:
        """Whether it holds texts."""
        return self.unit == TEXT

    @property
    def decimals(self) -> int:
        """How many decimal places its averages carry."""
        return {"B": 0, "s": 6 if self.of is Of.DERIVED else 3}.get(self.unit, 3)


OfRows = Callable[[Callable[[Spec], Float64Array], Int64Array], Float64Array]
"""What rows have, float64[row]: made of columns of theirs, and the bucket of each."""


class FormulaColumn(NamedTuple):
    """What a derived column of rows is made of: columns of the same rows, and values of other tables by bucket.

    ``others``: float64[bucket] each, once they have been looked up. ``beside``: of the same things in long tables.
    """

    formula: "Formula"
    own: Mapping["Operand", Spec]
    others: "Mapping[Operand, Float64Array]" = MappingProxyType({})
    beside: "Mapping[Operand, OfRows]" = MappingProxyType({})

    @property
    def is_of_instances(self) -> bool:
        """Whether only single instances have it, so that no group has."""
        return any(name.instance == "@" for name in self.formula.operands)

    def of(self, cells: "Callable[[Spec], Float64Array]", bucket: Int64Array) -> "Float64Array":
        """What the formula gives, float64[row]; ``cells``: the numbers of a column; ``bucket``: int64[row]."""
        from sysmond.answers.rows.formulas import computed  # noqa: PLC0415  few ask for them

        # What is shown as percent is a share in formulas.
        values = {
            name: cells(spec) * (0.01 if spec.semantics is Semantics.COUNTER and spec.unit == "%" else 1.0)
            for name, spec in self.own.items()
        }
        values |= {name: of[bucket] for name, of in self.others.items()}
        values |= {name: of_rows(cells, bucket) for name, of_rows in self.beside.items()}
        return computed(self.formula, values, len(bucket))

    def not_stored(self, said: str) -> UsageError:
        """That rows as they are stored have it not: how much a counter grew no single row knows."""
        names = ", ".join(map(str, self.formula.operands))
        return UsageError(
            f"{said}: is derived, so rows as stored do not have it; expected what it is computed from: {names}"
        )


class Specs(dict[str, Spec]):
    """Columns by label, in order; percentiles are there where they are asked for, and listed nowhere."""

    def __missing__(self, label: str) -> Spec:
        """A percentile of a column that has averages."""
        name, _, stat = label.partition(":")
        mean = self.get(f"{name}:{MEAN}")
        if mean is None or percent_of(stat) is None or (mean.of is Of.DERIVED and f"{name}:{MAX}" not in self.keys()):
            raise KeyError(label)
        return mean._replace(label=label, stat=stat)

    def __contains__(self, label: object) -> bool:
        """Whether there is such a column."""
        try:
            return isinstance(label, str) and bool(self[label])
        except KeyError:
            return False


class _Kinds(Mapping[str, ColumnKind]):
    """Columns as conditions see them."""

    def __init__(self, specs: Mapping[str, Spec], meant: Mapping[str, str], joins: Sequence[Join], table: str) -> None:
        self._specs = specs
        self._meant = meant
        self._joins = joins
        self._table = table

    def __getitem__(self, label: str) -> ColumnKind:
        spec = self._specs[label]
        grown = self._specs.get(f"{spec.name}:{SUM}") if spec.stat == MEAN else None
        table = next((join.table for join in self._joins if label in dict(join.columns)), "")
        by_number = next((join.table for join in self._joins if label in dict(join.by)), "")
        is_state = spec.name == "state" and spec.is_text and self._table in BUILT_IN
        words = STATES if is_state else FEW_NAMES.get(by_number, {})
        grows = (grown.label, grown.unit) if grown else None
        return ColumnKind(spec.unit, grows, self._meant.get(label, ""), names_of(table), words)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


class Offer(NamedTuple):
    """The columns of a table, by label, in order; ``derived``: those that follow from others by formulas.

    ``is_part``: there is an offer of more, which is asked for what this one lacks; so nobody reads what comes near.
    """

    table: Table
    specs: Mapping[str, Spec]
    answers: Answers
    meant: Mapping[str, str]
    derived: Mapping[str, FormulaColumn] = MappingProxyType({})
    is_part: bool = False

    def made_of(self, spec: Spec) -> FormulaColumn | None:
        """What a column is made of, where rows make it: all but statistics that series have."""
        column = self.derived.get(spec.name)
        if column is None or spec.stat == MEAN or spec.of is not Of.DERIVED:
            return column if spec.stat == MEAN else None
        return column._replace(own={name: self.specs[f"{part.name}:{spec.stat}"] for name, part in column.own.items()})

    def find(self, labels: Iterable[str], groups: Collection[str] = ()) -> list[Spec]:
        """The columns called so. ``groups``: what else could have been meant.

        :raises UsageError: for one that there is not, naming those that come nearest.
        """
        specs = []
        for label in labels:
            if label not in self.specs:
                raise UsageError(f"table {self.table.name!r} has no column {label!r}{self.near(label, groups)}")
            specs.append(self.specs[label])
        return list(dict.fromkeys(specs))

    def choose(self, labels: Iterable[str], *, grouped: bool = False) -> list[Spec]:
        """The columns called so, and of each group those that it has: ``io``, and ``io:sum`` for sums of all.

        A group says nothing of whose its numbers are: where no column that is named does, that stands first, unless
        rows are ``grouped``.

        :raises UsageError: as ``find``.
        """
        groups = column_groups.groups_of(self.table.name)
        chosen: list[str] = []
        has_group = False
        for label in labels:
            name, _, stat = label.partition(":")
            if label in self.specs or name not in groups:
                chosen.append(label)
                continue
            members: list[str] = []
            for member in groups[name]:
                plain = member.partition(":")[0]
                meant = [f"{plain}:{stat}"] if stat else [member, plain]  # As they are stored they have no statistic.
                members += [there for there in meant if there in self.specs][:1]
            chosen += members or [label]
            has_group = True
        if has_group and not grouped:
            own = groups[_WHO][:2] if _WHO in groups else (_INSTANCE,) if self.table.per else ()
            if set(own).isdisjoint(chosen):
                chosen = [*(name for name in own if name in self.specs), *chosen]
        return self.find(chosen, groups)

    def near(self, label: str, groups: Collection[str] = ()) -> str:
        """Say what comes near to what is no column: by other programs' names, other tables, spelling, or all."""
        if self.is_part:
            return ""
        from sysmond.base import elsewhere  # noqa: PLC0415  only to speak of a mistake

        meant = elsewhere.suggest_column(label, self.table.name, self._plain(), self.answers.aliases)
        also = f"; groups {', '.join(groups)}" if groups else ""
        spelled = [*self.specs] if ":" in label else self._plain()
        there = listed(self._plain(), f"sysmon-extract {self.table.name} --records --list")
        return meant or self._beside(label) or nearest(label, [*spelled, *groups]) or there + also

    def _beside(self, label: str) -> str:
        """Say which other table of tasks has a column, where this one is of tasks."""
        from sysmond.tasks import tables  # noqa: PLC0415  as above

        every = {table.name: table for table in vars(tables).values() if isinstance(table, Table)}
        if every.pop(self.table.name, None) is None:
            return ""
        others = [name for name, other in every.items() if label in offer(other).specs]
        return f"; {', '.join(others)} {'have' if len(others) > 1 else 'has'} it" if others else ""

    def groups(self, labels: Iterable[str]) -> list[Spec]:
        """The columns by which rows are put together.

        :raises UsageError: for one that there is not, and for one that is no condition of a row.
        """
        groups = []
        for label in labels:
            (spec,) = self.find([self.meant.get(label, label)])
            if spec.semantics is not Semantics.STATE:
                states = [name for name in self._plain() if self.specs[name].semantics is Semantics.STATE]
                raise UsageError(f"group by {label!r}: its values change all the time; expected {', '.join(states)}")
            groups.append(spec._replace(label=label))
        return list(dict.fromkeys(groups))

    def kinds(self) -> Mapping[str, ColumnKind]:
        """The columns as conditions see them."""
        return _Kinds(self.specs, self.meant, self.answers.joins, self.table.name)

    def defaults(self, *, grouped: bool) -> list[Spec]:
        """The columns where nobody says which."""
        known = self.answers.show_groups if grouped else self.answers.show
        labels = [label for label in known if label in self.specs]
        if not labels and not grouped:
            labels = [label for label in self._plain() if self.specs[label].of is not Of.COUNT]
        return self.find(labels)

    def by(self, *, grouped: bool) -> Spec:
        """The column by which the first are chosen where nobody says."""
        label = self.answers.by or next(chain(*(self.answers.top or ())), "")
        first = next((name for name, spec in self.specs.items() if spec.semantics is Semantics.COUNTER), COUNT)
        return self.specs[label if label in self.specs else first if not grouped else COUNT]

    def _plain(self) -> list[str]:
        return [label for label in self.specs if ":" not in label]


def offer(table: Table) -> Offer:
    """The columns that answers about a table may have."""
    key = key_of(table)
    specs = Specs()
    for metric in _in_order(table):
        for number, stat in enumerate(_STATS[metric.semantics] if lasts(table) else (LAST,)):
            made = _spec(metric, stat, Of.KEY if metric.name in key and lasts(table) else Of.METRIC)
            specs[f"{metric.name}:{stat}"] = made._replace(label=f"{metric.name}:{stat}")
            if number == 0:
                specs[metric.name] = made
        if len(_STATS[metric.semantics]) == 1 or not lasts(table):
            del specs[f"{metric.name}:{LAST}"]
    answers = answers_of(table)
    ends: dict[str, Spec] = {}
    if lasts(table) and START in key and not is_dictionary(table):  # Which has what is there no more, too.
        ends[END] = Spec(END, END, LAST, TIME_UNIT, TIME_SCALE, Semantics.STATE, Of.LIFE)
        for label in answers.ended_by.columns if answers.ended_by else ():
            ends[label] = Spec(label, label, LAST, "1", 0, Semantics.STATE, Of.LIFE)
    for join in answers.joins:
        if all(name in specs or name in ends for name, _ in join.by):
            for label, _ in join.columns:
                specs.setdefault(label, Spec(label, label, LAST, TEXT, 0, Semantics.STATE, Of.JOIN))
    specs |= ends
    specs[COUNT] = Spec(COUNT, COUNT, LAST, "1", 0, Semantics.GAUGE, Of.COUNT)
    few = {label for join in answers.joins if join.table in FEW_NAMES for label, _ in join.columns}
    meant = {name: label for name, label in answers.meant if label in specs and label not in few}
    return Offer(table, specs, answers, meant)


def with_derived(
    plain: Offer, columns: Mapping[str, Derived], make: "Callable[[Metric, str], Spec]", stats: Sequence[str] = ()
) -> Offer:
    """The same, with derived columns; what a name means already it means still.

    ``make``: gives the column of a metric and a statistic. ``stats``: the statistics that each has; where there are
    none, those that follow from its metrics: the mean, and of what is in proportion to one metric those of that.
    """
    from sysmond.base import derived_columns, formula  # noqa: PLC0415  few ask for them

    specs, derived = Specs(plain.specs), {}
    for name, column in columns.items():
        if name in plain.specs:
            continue
        read, metric = formula.parse(column.formula), derived_columns.as_metric(column)
        own = {operand: plain.specs[operand.metric] for operand in read.operands if not operand.table}
        derived[name] = FormulaColumn(read, own)
        specs[name] = make(metric, MEAN)
        known = stats or [MEAN, *(stat for stat in (MIN, MAX) if read.slope() > 0)]
        for stat in known if stats or all(f"{spec.name}:{MEAN}" in plain.specs for spec in own.values()) else ():
            specs[f"{name}:{stat}"] = make(metric, stat)._replace(label=f"{name}:{stat}")
    return plain._replace(specs=specs, derived=derived)


def with_known(plain: Offer) -> Offer:
    """The same of a long table, with its derived columns."""
    from sysmond.base import derived_columns  # noqa: PLC0415  few ask for them

    columns = derived_columns.of_table(plain.table)
    return with_derived(plain, columns, lambda metric, stat: _spec(metric, stat, Of.DERIVED))


def _in_order(table: Table) -> Sequence[Metric]:
    """The metrics, and sums of them after what they are made of."""
    totals = [(parts_of(table, metric.name)[-1], metric) for metric in totals_in(table)]
    return [
        column
        for metric in table.metrics
        for column in [metric, *(total for last, total in totals if last == metric.name)]
    ]


def _spec(metric: Metric, stat: str, of: Of) -> Spec:
    unit, scale = metric.unit, metric.scale
    if metric.semantics is Semantics.COUNTER and stat in {MEAN, MIN, MAX}:
        unit = rate_unit(unit)
    if metric.name in _MOMENTS and metric.semantics is Semantics.STATE:
        unit, scale = TIME_UNIT, TIME_SCALE
    return Spec(metric.name, metric.name, stat, unit, scale, metric.semantics, of)


def share_of(spec: Spec) -> float | None:
    """Of which percent of the time a value of a long table is the largest; None for other statistics."""
    if spec.semantics is Semantics.STATE or spec.of is not Of.METRIC:
        return None
    if spec.stat == MAX and spec.semantics is Semantics.COUNTER:
        return 100.0
    return 0.0 if spec.stat == MIN else percent_of(spec.stat)


def is_amount(table: Table, spec: Spec) -> bool:
    """Whether a number of a record that is about its own moment can be summed: seconds, bytes, what is declared so."""
    return spec.unit in {"s", "B"} or spec.name in (answers_of(table).sums or ())
