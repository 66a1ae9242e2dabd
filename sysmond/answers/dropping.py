# SPDX-License-Identifier: Apache-2.0
"""What is left out of an answer: the series, and the columns of rows, that patterns mean.

A pattern is a path, ``METRIC[@INSTANCE]`` or ``@INSTANCE``: without a slash, its name is that of a table or of a
metric. With an instance it means series; without one it means columns of rows, too. What a condition or an order looks
at is not left out by that: it is only not shown.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sysmond.base import paths
from sysmond.errors import UsageError
from sysmond.store.of_ring import SeriesKey

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


def left_of_columns(
    question: "Question", drop: Sequence[Dropped], instances: Collection[str] = ()
) -> "tuple[Question, list[str]]":
    """A question with the columns that are left, and a line for each pattern that means none of them.

    ``instances``: of the table, for those that are dropped as if they were columns.
    :raises UsageError: where none is left, and for a pattern of instances that this table has none of.
    """
    table = question.table.name
    if question.table.packing is not None:
        for dropped in drop:
            if dropped.is_of_instances:
                raise UsageError(f"drop {dropped.text!r}: rows of {table} have no instances; expected a column")
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
