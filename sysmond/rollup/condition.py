# SPDX-License-Identifier: Apache-2.0
"""Conditions on the rows of an answer: ``comm ~ '^post' and (rss_anon > 100MB or not cpu < 5%)``.

``and``, ``or``, ``not`` and parentheses join comparisons of a column with a value, by ``= != < <= > >=`` or, for texts,
``~`` and ``!~``, which look for a regular expression. A value has a space or a quote only where it is quoted. What is
absent meets no comparison. A number may have a unit; by it, a counter's rate (``50%``, ``10MB/s``) and what it grew by
(``2s``, ``10MB``) are told apart, while a bare number is in the unit in which the column is shown. A point in time is
compared with a point in time, to the nanosecond.
"""

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import TIME_UNIT, BoolArray, NDArray
from sysmond.base.timespec import parse_step
from sysmond.errors import UsageError, listed, nearest

TEXT = "text"
CONDITION_LENGTH_MAX = 10_000
# ``not`` and ``(`` inside each other; Python's own stack is the reason.
DEPTH_MAX = 100

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_TEXTS = ("=", "!=", "~", "!~")
_WORD = re.compile(r"\s*(!=|!~|<=|>=|==|[=<>~()]|[^\s=<>~()!]+)")
_NUMBER = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(\S*)")
# What may be meant as one.
_UNIT = re.compile(r"%|[A-Za-zµ]{1,4}(/s)?")
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_JOINING = frozenset({"and", "or", "not", "(", ")"})


class Words(NamedTuple):
    """A column of texts: which of ``texts`` each row has, int64[row]; -1 for none."""

    codes: NDArray[np.int64]
    texts: Sequence[str]


Values = NDArray[np.float64] | NDArray[np.int64] | Words
"""A column: numbers in the unit as shown, points in time as UTC nanoseconds (``ABSENT`` for none), or texts."""
Lookup = Callable[[str], Values]


class ColumnKind(NamedTuple):
    """What a column holds: its unit as shown. ``grown``: the column of what a counter grew by, and its unit.

    ``named``: a column of texts that is meant where the value is no number. ``names``: gives all texts that there are.
    ``words``: what else values may be called, and what each is then; other words are refused.
    """

    unit: str
    grown: tuple[str, str] | None = None
    named: str = ""
    names: Callable[[], Collection[str]] | None = None
    words: Mapping[str, str] = MappingProxyType({})


class Condition(NamedTuple):
    """What rows must be. ``columns``: those it looks at. ``test``: which rows are so, bool[row], by their columns."""

    columns: frozenset[str]
    test: Callable[[Lookup], BoolArray]


def parse(
    text: str,
    kinds: Mapping[str, ColumnKind],
    moment: Callable[[str], int],
    near: Callable[[str], str] | None = None,
) -> Condition:
    """Read a condition on columns of these kinds; ``moment`` reads a point in time, to UTC nanoseconds.

    ``near``: says of what is no column what comes near it.

    :raises UsageError: naming what is wrong, and what would be right.
    """
    if len(text) > CONDITION_LENGTH_MAX:
        raise UsageError(f"condition of {len(text)} characters; expected at most {CONDITION_LENGTH_MAX}")
    return _Parser(text, kinds, moment, near).whole()


class _Parser:
    """Reads from left to right; ``at`` is behind what has been read."""

    def __init__(
        self,
        text: str,
        kinds: Mapping[str, ColumnKind],
        moment: Callable[[str], int],
        near: Callable[[str], str] | None,
    ) -> None:
        self.text = text
        self.kinds = kinds
        self.moment = moment
        self.near = near or self.spelled
        self.at = 0
        self.depth = 0

    def whole(self) -> Condition:
        condition = self.either()
        if word := self.peek():
            raise self.wrong(f"{word!r} after a whole condition", "expected 'and' or 'or' in between")
        return condition

    def either(self) -> Condition:
        condition = self.both()
        while self.peek() == "or":
            self.take()
            condition = _joined(condition, self.both(), np.logical_or)
        return condition

    def both(self) -> Condition:
        condition = self.one()
        while self.peek() == "and":
            self.take()
            condition = _joined(condition, self.one(), np.logical_and)
        return condition

    def one(self) -> Condition:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.wrong("nested too deeply", f"expected at most {DEPTH_MAX} of '(' and 'not' inside each other")
        try:
            if self.peek() == "not":
                self.take()
                inner = self.one()
                return Condition(inner.columns, lambda lookup: ~inner.test(lookup))
            if self.peek() == "(":
                self.take()
                condition = self.either()
                if self.take() != ")":
                    raise self.wrong("a parenthesis is not closed", "expected ')'")
                return condition
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> Condition:
        column = self.take()
        if not column or column in _JOINING or column in _OPERATORS:
            raise self.wrong(f"{column!r} where a column should be" if column else "it ends", "expected COLUMN > VALUE")
        if column not in self.kinds:
            raise UsageError(f"condition {self.text!r}: there is no column {column!r}{self.near(column)}")
        sign = self.take().replace("==", "=")
        if sign not in _OPERATORS and sign not in _OF_TEXTS:
            raise self.wrong(f"{sign!r} after {column!r}", f"expected one of {' '.join([*_OPERATORS, '~', '!~'])}")
        value = self.value()
        kind = self.kinds[column]
        if kind.words and sign in _OPERATORS:
            value = self.meant(column, value, kind.words)
        if kind.named and (sign not in _OPERATORS or not _NUMBER.fullmatch(value)):
            return _of_text(kind.named, sign, value, self, column)
        if kind.unit == TEXT:
            return _of_text(column, sign, value, self, column)
        if sign not in _OPERATORS:
            raise self.wrong(f"{sign!r} with {column!r}, which is a number", f"expected one of {' '.join(_OPERATORS)}")
        return self.of_number(column, kind, sign, value)

    def spelled(self, column: str) -> str:
        """The columns whose names come near to what is none, else all."""
        names = [name for name in self.kinds if ":" not in name]
        return nearest(column, self.kinds) or listed(names, "sysmon-extract TABLE --records --list")

    def of_number(self, column: str, kind: ColumnKind, sign: str, value: str) -> Condition:
        if kind.unit == TIME_UNIT:
            return _of_time(column, sign, self.moment(value))
        units = [kind.unit, *([kind.grown[1]] if kind.grown else [])]
        value = self.with_unit(column, value, units)
        number = _read(value, kind.unit)
        if number is None and kind.grown is not None:
            number = _read(value, kind.grown[1])
            column = kind.grown[0]
        if number is None:
            raise self.wrong_number(column, value, units)
        return _of_number(column, sign, number)

    def with_unit(self, column: str, value: str, units: Sequence[str]) -> str:
        """A number with the unit that stands behind it, after a space."""
        begin, word = self.at, self.peek()
        if value[-1:].isdigit() and word and word not in _JOINING:
            unit = self.value() if not word[0].isdigit() else ""
            if any(_read(f"{value}{unit}", known) is not None for known in units):
                return f"{value}{unit}"
            if _UNIT.fullmatch(unit) and unit not in self.kinds:
                raise self.wrong_number(column, f"{value} {unit}", units)
            self.at = begin
        return value

    def wrong_number(self, column: str, value: str, units: Sequence[str]) -> UsageError:
        """Refuse a value of another unit than those that a column has."""
        right = ", ".join(example for unit in units for example in _examples(unit))
        named = " or ".join(unit for unit in units if unit != "1")
        shown = " or ".join([*(["a number"] if "1" in units else []), *([f"a value in {named}"] if named else [])])
        return self.wrong(f"{column.partition(':')[0]!r} cannot be {value!r}", f"expected {shown}, such as {right}")

    def check_name(self, column: str, value: str, written: str) -> None:
        """Refuse a name that nothing has; what has no name is called by its number."""
        names = self.kinds[column].names
        if names is not None and not value.removeprefix("#").isdecimal() and value not in names():
            known = names()
            close = nearest(value, known) or f"; expected a name such as {next(iter(known), '')}, or a number"
            raise UsageError(f"condition {self.text!r}: {written!r} is never {value!r}{close}")

    def meant(self, column: str, value: str, words: Mapping[str, str]) -> str:
        """What a word is a name of; what is meant by itself stays."""
        are_numbers = all(meaning.isdecimal() for meaning in words.values())
        if value in words or value in words.values() or (are_numbers and _NUMBER.fullmatch(value)):
            return words.get(value, value)
        spelled = {f"'{word}'" if " " in word else word: word for word in words}
        others = "a number" if are_numbers else ", ".join(words.values())
        close = nearest(value, spelled)
        close = f"{close} (or {others})" if close else f"; expected {', '.join(spelled)}, or {others}"
        raise UsageError(f"condition {self.text!r}: {column!r} is never {value!r}{close}")

    def peek(self) -> str:
        match = _WORD.match(self.text, self.at)
        return match[1] if match else self.text[self.at :].strip()[:1]

    def take(self) -> str:
        word = self.peek()
        match = _WORD.match(self.text, self.at)
        self.at = match.end() if match else len(self.text)
        return word

    def value(self) -> str:
        """Take what a column is compared with: quoted, or up to a space or a parenthesis that was not opened in it."""
        rest = self.text[self.at :]
        begin = self.at + len(rest) - len(rest.lstrip())
        if self.text[begin : begin + 1] in {"'", '"'}:
            end = self.text.find(self.text[begin], begin + 1)
            if end < 0:
                raise self.wrong("a quotation is not closed", f"expected {self.text[begin]} at its end")
            self.at = end + 1
            return self.text[begin + 1 : end]
        self.at = _word_end(self.text, begin)
        if self.at == begin:
            raise self.wrong("there is no value", "expected one after the operator, quoted where it is empty")
        return self.text[begin : self.at]

    def wrong(self, what: str, right: str) -> UsageError:
        return UsageError(f"condition {self.text!r}: {what}; {right}")


def _word_end(text: str, begin: int) -> int:
    opened = 0
    for at in range(begin, len(text)):
        if text[at].isspace() or (text[at] == ")" and not opened):
            return at
        opened += (text[at] == "(") - (text[at] == ")")
    return len(text)


def _joined(one: Condition, other: Condition, join: Callable[[BoolArray, BoolArray], Any]) -> Condition:
    def test(lookup: Lookup) -> BoolArray:
        return np.asarray(join(one.test(lookup), other.test(lookup)), np.bool_)

    return Condition(one.columns | other.columns, test)


def _of_number(column: str, sign: str, number: float) -> Condition:
    def test(lookup: Lookup) -> BoolArray:
        values = lookup(column)
        if isinstance(values, Words):
            raise TypeError(f"{column} holds texts")
        with np.errstate(invalid="ignore"):
            return np.asarray(_OPERATORS[sign](values, number) & ~np.isnan(values), np.bool_)

    return Condition(frozenset({column}), test)


def _of_time(column: str, sign: str, time_ns: int) -> Condition:
    def test(lookup: Lookup) -> BoolArray:
        values = lookup(column)
        if isinstance(values, Words) or values.dtype != np.int64:
            raise TypeError(f"{column} holds no points in time")
        return np.asarray(_OPERATORS[sign](values, time_ns) & (values != ABSENT), np.bool_)

    return Condition(frozenset({column}), test)


def _of_text(column: str, sign: str, value: str, parser: _Parser, written: str) -> Condition:
    """Compare texts of a column; ``written``: how the condition calls it."""
    if sign not in _OF_TEXTS:
        raise parser.wrong(f"{sign!r} with {column!r}, which is text", f"expected one of {' '.join(_OF_TEXTS)}")
    if sign.endswith("~"):
        try:
            search = re.compile(value).search
        except (re.error, OverflowError, RecursionError) as problem:
            raise parser.wrong(f"{value!r} is not a regular expression: {problem}", "expected another one") from None

        def meets(text: str) -> bool:
            return search(text) is not None
    else:
        parser.check_name(column, value, written)

        def meets(text: str) -> bool:
            return text == value

    wanted = not sign.startswith("!")

    def test(lookup: Lookup) -> BoolArray:
        words = lookup(column)
        if not isinstance(words, Words):
            raise TypeError(f"{column} holds numbers")
        # One more, for what is absent: its code is -1.
        verdicts = np.array([*(meets(text) is wanted for text in words.texts), False], np.bool_)
        return verdicts[words.codes]

    return Condition(frozenset({column}), test)


def _read(value: str, unit: str) -> float | None:
    """A number in this unit; None where it is none, or of another."""
    if unit == "s" and value[-1:].isalpha():
        try:
            return parse_step(value) / 1e9
        except UsageError:
            return None
    match = _NUMBER.fullmatch(value)
    if not match:
        return None
    factor = _factor(match[2], unit)
    return None if factor is None else float(match[1]) * factor


def _factor(said: str, unit: str) -> int | None:
    base = "" if unit == "1" else unit.removeprefix("1")
    for prefix, factor in (*_PREFIXES.items(), *_BINARY.items()):
        if said in {prefix, prefix + base} and not (prefix and unit in {"%", "s"}):
            # ``10M`` of what is a rate would be taken for what it grew by.
            return factor if said == prefix + base or not base.endswith("/s") or not prefix else None
    return None


def _examples(unit: str) -> Iterator[str]:
    yield {"1": "10", "1/s": "10/s", "%": "50%", "s": "2.5s", "B": "100MB", "B/s": "10MB/s"}.get(unit, f"10{unit}")
