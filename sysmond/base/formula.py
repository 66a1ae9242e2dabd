# SPDX-License-Identifier: Apache-2.0
"""Formulas of derived columns: ``(read_time + write_time) / (reads + writes)``.

``+ - * /``, parentheses, numbers and names; ``min(…)`` and ``max(…)`` of those arguments that are known. A name is a
metric of the table itself; ``memory.total`` is one of another table about the whole system, ``cpu.idle@total`` one of
an instance, ``link.speed@@`` one of the same instance. What a name stands for says whoever evaluates it: a number, or
an array of them. A formula may come from a stranger's file: it is bounded, and never code.
"""

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isclose, isnan
from typing import Any, NamedTuple, TypeVar

from sysmond.errors import UsageError

LENGTH_MAX = 400
# Parentheses and signs inside each other; Python's own stack is the reason.
DEPTH_MAX = 16
# Above it, integers are no longer exact in float64.
NUMBER_MAX = 2**53
FORM = "expected + - * / ( ), min( , ), max( , ), numbers, and names such as reads, memory.total or cpu.idle@total"

_NAME = r"[a-z][a-z0-9_]*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<name>{_NAME})(?:\.(?P<metric>{_NAME})(?:@(?P<instance>[\w.:]+|@))?)?"
    r"|(?P<sign>[-+*/(),]))",
    re.ASCII,
)
# Of an operand: the instance that the formula is evaluated for.
SAME = "@"
_NEGATED = "neg"
_LOWEST, _HIGHEST = "min", "max"
# A formula whose values for 0, 1 and this many lie on a line, but for so much, is in proportion.
_MANY, _STRAIGHT = 2.0**40, 1e-6
_T = TypeVar("_T")


class Numbers(NamedTuple):
    """What is computed with: numbers, or arrays of them.

    ``divide`` knows what division by zero is. ``lowest`` and ``highest`` of two give the other where one is no number.
    """

    divide: Callable[[Any, Any], Any]
    lowest: Callable[[Any, Any], Any]
    highest: Callable[[Any, Any], Any]


class Operand(NamedTuple):
    """What a name in a formula means; ``table``: empty for that of the formula itself."""

    table: str
    metric: str
    instance: str = ""

    def at(self, instance: str) -> str:
        """The instance that is meant, where the formula is evaluated for one."""
        return instance if self.instance == SAME else self.instance

    def __str__(self) -> str:
        name = f"{self.table}.{self.metric}" if self.table else self.metric
        return f"{name}@{self.instance}" if self.instance else name


class Formula(NamedTuple):
    """A formula that was read.

    ``code``: numbers, names and operators in the order in which a stack takes them. ``operands``: the names in it, each
    once.
    """

    text: str
    code: tuple[float | Operand | str, ...]
    operands: tuple[Operand, ...]

    def evaluate(self, values: Mapping[Operand, _T], numbers: Numbers) -> _T:
        """What it gives for these values, of which those that are not known are no numbers (NaN)."""
        stack: list[Any] = []
        operators = {**_OPERATORS, "/": numbers.divide, _LOWEST: numbers.lowest, _HIGHEST: numbers.highest}
        for step in self.code:
            if isinstance(step, Operand):
                stack.append(values[step])
            elif not isinstance(step, str):
                stack.append(step)
            elif step == _NEGATED:
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(operators[step](left, right))
        (result,) = stack
        return result  # type: ignore[no-any-return]

    def slope(self) -> float:
        """By how much it grows with its only name of its own table; 0 where it is not in proportion to that alone.

        In such a formula the largest value follows from the largest of the metric.
        """
        names = [step for step in self.code if isinstance(step, Operand)]
        if len(names) != 1 or names[0].table or not {_LOWEST, _HIGHEST}.isdisjoint(self.code):
            return 0.0
        none, one, many = (self.evaluate({names[0]: value}, FLOATS) for value in (0.0, 1.0, _MANY))
        return one - none if isclose(many - none, (one - none) * _MANY, rel_tol=_STRAIGHT) else 0.0


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def quotient(left: float, right: float) -> float:
    """One number divided by another; not a number where that is zero."""
    return left / right if right else float("nan")


def _lowest(left: float, right: float) -> float:
    return right if isnan(left) or right < left else left


def _highest(left: float, right: float) -> float:
    return right if isnan(left) or right > left else left


FLOATS = Numbers(quotient, _lowest, _highest)


@lru_cache(256)
def parse(text: str) -> Formula:
    """Read a formula.

    :raises UsageError: naming what is wrong in it.
    """
    if len(text) > LENGTH_MAX:
        raise UsageError(f"formula of {len(text)} characters; expected at most {LENGTH_MAX}")
    code = tuple(_Parser(text).whole())
    return Formula(text, code, tuple(dict.fromkeys(step for step in code if isinstance(step, Operand))))


class _Parser:
    """Reads from left to right; ``at`` is behind what has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.code: list[float | Operand | str] = []

    def whole(self) -> list[float | Operand | str]:
        self.sum()
        if rest := self.text[self.at :].strip():
            raise self.wrong(f"{rest[:20]!r} after its end")
        return self.code

    def sum(self) -> None:
        self.product()
        while sign := self.take("+-"):
            self.product()
            self.code.append(sign)

    def product(self) -> None:
        self.one()
        while sign := self.take("*/"):
            self.one()
            self.code.append(sign)

    def one(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.wrong("nested too deeply", f"expected at most {DEPTH_MAX} of '(' and '-' inside each other")
        if self.take("-"):
            self.one()
            self.code.append(_NEGATED)
        elif self.take("("):
            self.sum()
            if not self.take(")"):
                raise self.wrong("a parenthesis is not closed", "expected ')'")
        else:
            self.value()
        self.depth -= 1

    def value(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if not found or found["sign"]:
            rest = self.text[self.at :].strip()
            raise self.wrong(f"{rest[:20]!r} where a number or a name should be" if rest else "it ends")
        self.at = found.end()
        if found["name"] in {_LOWEST, _HIGHEST} and not found["metric"] and self.take("("):
            self.choice(found["name"])
        elif found["name"]:
            table, metric = (found["name"], found["metric"]) if found["metric"] else ("", found["name"])
            self.code.append(Operand(table, metric, found["instance"] or ""))
        elif (number := float(found["number"])) <= NUMBER_MAX:
            self.code.append(number)
        else:
            raise self.wrong(f"the number {found['number'][:20]}", f"expected at most {NUMBER_MAX}")

    def choice(self, which: str) -> None:
        self.sum()
        while self.take(","):
            self.sum()
            self.code.append(which)
        if not self.take(")"):
            raise self.wrong("a parenthesis is not closed", "expected ')'")

    def take(self, signs: str) -> str:
        found = _TOKEN.match(self.text, self.at)
        if not found or not found["sign"] or found["sign"] not in signs:
            return ""
        self.at = found.end()
        return found["sign"]

    def wrong(self, what: str, right: str = FORM) -> UsageError:
        return UsageError(f"formula {self.text!r}: {what}; {right}")
