# SPDX-License-Identifier: Apache-2.0
"""Formulas of derived columns: what they give, and what is refused in one line."""

import math

import pytest

from sysmond.base import formula
from sysmond.base.derived_columns import KNOWN
from sysmond.base.formula import FLOATS, SAME, Operand
from sysmond.errors import UsageError

A, B, TOTAL = Operand("", "a"), Operand("", "b"), Operand("memory", "total")
IDLE = Operand("cpu", "idle", "total")
SPEED = Operand("link", "speed", SAME)
MAX = Operand("", "max")
VALUES = {MAX: 7.0, A: 6.0, B: 4.0, TOTAL: 100.0, IDLE: 8.0, SPEED: 12.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 6),
        ("a + b * 2", 14),
        ("(a + b) * 2", 20),
        ("a - b - 1", 1),
        ("a / b / 3", 0.5),
        ("-a + 10", 4),
        ("-(a - b)*2.5", -5),
        ("b / memory.total * 100", 4),
        ("cpu.idle@total/a*3", 4),
        ("a / link.speed@@*3", 1.5),
        (" ( ( a ) ) ", 6),
        ("min(a, b) - 1", 3),
        ("max(a, -a, b * 2) / min(2)", 4),
        ("min(b / (a - 6), max(a, b))", 6),  # What is no number does not count.
        ("max - min(max, b)", 3),
    ],
)
def test_a_formula_is_arithmetic(text: str, value: float) -> None:
    assert formula.parse(text).evaluate(VALUES, FLOATS) == pytest.approx(value)


def test_division_by_zero_is_no_number() -> None:
    assert math.isnan(formula.parse("1 + a / (b - 4)").evaluate(VALUES, FLOATS))


def test_the_names_in_it_are_told_once() -> None:
    assert formula.parse("a / (a + memory.total) * cpu.idle@total").operands == (A, TOTAL, IDLE)
    assert [str(name) for name in (A, TOTAL, IDLE, SPEED)] == ["a", "memory.total", "cpu.idle@total", "link.speed@@"]
    assert [name.at("eth0") for name in (TOTAL, IDLE, SPEED)] == ["", "total", "eth0"]


@pytest.mark.parametrize(
    ("text", "slope"),
    [
        ("a", 1),
        ("a * 100", 100),
        ("100 - a / 4", -0.25),
        ("-(a - 1) * 2", -2),
        ("1 / a", 0),
        ("1 / (a + 1)", 0),
        ("1 / (a + 9007199254740992)", 0),
        ("a / 0", 0),
        ("a * a", 0),
        ("a + b", 0),
        ("a - a", 0),
        ("memory.total * 2", 0),
        ("a / memory.total", 0),
        ("max(a, -a)", 0),
    ],
)
def test_what_is_in_proportion_to_one_metric(text: str, slope: float) -> None:
    assert formula.parse(text).slope() == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it ends"),
        ("a +", "it ends"),
        ("a b", "'b' after its end"),
        ("(a", "a parenthesis is not closed"),
        ("a)", "')' after its end"),
        ("min(a, b", "a parenthesis is not closed"),
        ("min()", "where a number or a name should be"),
        ("min(a,)", "where a number or a name should be"),
        ("sin(a)", "'(a)' after its end"),
        ("a, b", "', b' after its end"),
        ("()", "where a number or a name should be"),
        ("__import__('os')", "where a number or a name should be"),
        ("a.__class__", "after its end"),
        ("a ** 9", "where a number or a name should be"),
        ("a if b else 1", "after its end"),
        ("lambda: 1", "after its end"),
        ("a[0]", "after its end"),
        ("'a'", "where a number or a name should be"),
        ("a\nb", "'b' after its end"),
        ("a@b", "'@b' after its end"),
        ("a.b@@@", "'@' after its end"),
        ("9" * 200, "the number 9"),
        ("1e999", "'e999' after its end"),
        ("(" * 200 + "a" + ")" * 199, "nested too deeply"),
        ("-" * 300 + "a", "nested too deeply"),
        ("a+" * 5000 + "a", "formula of 10001 characters; expected at most 400"),
        ("ä", "where a number or a name should be"),
        ("\0", "where a number or a name should be"),
    ],
)
def test_what_is_no_formula_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="expected") as refused:
        formula.parse(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_each_column_that_every_reader_knows_can_be_read() -> None:
    for table, columns in KNOWN.items():
        names = [column.name for column in columns]
        assert len(set(names)) == len(names), table
        for column in columns:
            assert formula.parse(column.formula).operands, column
