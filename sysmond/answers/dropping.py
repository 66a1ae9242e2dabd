# SPDX-License-Identifier: Apache-2.0
"""What is left out of an answer: the series, and the columns of rows, that patterns mean.

A pattern is a path, ``METRIC[@INSTANCE]`` or ``@INSTANCE``: without a slash, its name is that of a table or of a
metric. With an instance it means series; without one it means columns of rows, too. What a condition or an order looks
at is not left out by that: it is only not shown.
"""

from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from sysmond.base import paths
from sysmond.base.model import START, Table
from sysmond.base.result import TIME_SCALE, BoolArray
from sysmond.errors import UsageError
from sysmond.rollup.condition import Condition, Lookup
from sysmond.store.of_ring import SeriesKey
from sysmond.store.stretches.stretch import key_of

if TYPE_CHECKING:
    from sysmond.answers.rows.batch import Question

_T = TypeVar("_T")


class Dropped(NamedTuple):
    """A pattern of what is left out. ``is_of_instances``: whether it says of which instances."""

    text: str
    matchers: Sequence[paths.Matcher]
    is_of_instances: bool

    def series(self, key: SeriesKey) -> bool:
        """Whether it means a series."""
        return any(matcher.series(*key) for matcher in self.matchers)

    def column(self, table: str, name: str) -> bool:
        """Whether it means a column of rows."""
        return any(matcher.metric(table, name) for matcher in self.matchers)


def parse(texts: str | Sequence[str], state_dir: str | None = None) -> list[Dropped]:
    """Read patterns.

    :raises UsageError: for one that is none.
    """
    return [_parsed(text, state_dir) for text in ([texts] if isinstance(texts, str) else texts)]


def _parsed(text: str, state_dir: str | None) -> Dropped:
    pattern = paths.parse(f"*{text}" if text.startswith("@") else text, state_dir)
    patterns = [pattern]
    if "/" not in text.partition("@")[0]:
        patterns.append(pattern._replace(table="*", metric=pattern.table))
    return Dropped(text, [paths.Matcher(each) for each in patterns], pattern.instance is not None)


def left_of_series(keys: list[SeriesKey], drop: Sequence[Dropped]) -> tuple[list[SeriesKey], list[str]]:
    """The series that are left, and a line for each pattern that means none of them.

    :raises UsageError: where none is left.
    """
    left = [key for key in keys if not any(dropped.series(key) for dropped in drop)] if drop else keys
    return _checked(left, drop), _idle(
        (dropped.text for dropped in drop if not any(map(dropped.series, keys))), {key.instance for key in keys}
    )


class DroppedRows:
    """Which rows of a long table patterns of instances mean: as a condition, and whether there were any of each.

    A row is called as a series of it is: by its key without when it started, or with that.
    """

    def __init__(self, table: Table, drop: Sequence[Dropped]) -> None:
        """Take the patterns that say of which instances they are.

        :raises UsageError: for one that means only some columns of a row.
        """
        self._key = key_of(table)
        self._table = table.name
        names = [metric.name for metric in table.metrics]
        self._drop = [dropped for dropped in drop if dropped.is_of_instances]
        self._left = {dropped.text for dropped in self._drop}
        for dropped in self._drop:
            meant = sum(dropped.column(table.name, name) for name in names)
            if 0 < meant < len(names):
                instance = dropped.text.partition("@")[2]
                raise UsageError(f"drop {dropped.text!r}: means a part of a row; expected '@{instance}', or a column")

    def within(self, where: Condition | None) -> Condition | None:
        """A condition that these rows do not meet either."""
        if not self._drop:
            return where
        columns = frozenset(self._key) | (where.columns if where else frozenset())

        def test(lookup: Lookup) -> BoolArray:
            left = ~self._meant(lookup)
            return left if where is None else left & where.test(lookup)

        return Condition(columns, test)

    def _meant(self, lookup: Lookup) -> BoolArray:
        columns = [np.asarray(lookup(name), np.int64) for name in self._key]
        things, of_row = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        verdicts = np.array([self._is_meant(thing) for thing in things.tolist()], np.bool_)
        return verdicts[of_row.reshape(-1)]

    def _is_meant(self, thing: Sequence[int]) -> bool:
        metric = self._key[0]
        meant = {
            dropped.text
            for dropped in self._drop
            if any(dropped.series(SeriesKey(self._table, metric, name)) for name in names_of(self._key, thing))
        }
        self._left -= meant
        return bool(meant)

    def idle(self) -> list[str]:
        """A line for each pattern that meant none of the rows."""
        return _idle((dropped.text for dropped in self._drop if dropped.text in self._left), ())


def names_of(key: Sequence[str], thing: Sequence[int]) -> tuple[str, str]:
    """How a thing of a long table is called: by its key without when it started, and with that, in seconds."""
    name = "/".join(str(number) for part, number in zip(key, thing, strict=True) if part != START)
    if START not in key:
        return name, name
    started = str(Decimal(thing[key.index(START)]).scaleb(-TIME_SCALE).normalize())
    return name, f"{name}/{started}" if name else started


def left_of_columns(
    question: "Question", drop: Sequence[Dropped], instances: Collection[str] = ()
) -> "tuple[Question, list[str]]":
    """A question with the columns that are left, and a line for each pattern that means none of them.

    ``instances``: of the table, for those that are dropped as if they were columns.
    :raises UsageError: where none is left.
    """
    table = question.table.name
    mine = [dropped for dropped in drop if not dropped.is_of_instances]
    left = [spec for spec in question.columns if not any(dropped.column(table, spec.name) for dropped in mine)]
    idle = [each for each in mine if not any(each.column(table, spec.name) for spec in question.columns)]
    return question._replace(columns=_checked(left, mine)), _idle((dropped.text for dropped in idle), instances)


def _checked(left: list[_T], drop: Sequence[Dropped]) -> list[_T]:
    if drop and not left:
        said = ", ".join(repr(dropped.text) for dropped in drop)
        raise UsageError(f"drop {said}: drops the whole answer; expected patterns that leave something")
    return left


def _idle(texts: Iterable[str], instances: Collection[str]) -> list[str]:
    return [
        f"drop {text!r}: nothing in the answer has that name" + f"; expected '*@{text}'" * (text in instances)
        for text in texts
    ]
