# SPDX-License-Identifier: Apache-2.0
"""Derived columns of the tables that come with sysmond: each is offered, has its metrics, and says what it should."""

import pytest

from docs import generate
from sysmond.base import formula
from sysmond.base.derived_columns import of_table
from sysmond.probe import Table

TABLES: dict[str, Table] = {probe.table.name: probe.table for probe in generate.own_probes()}


def test_every_declared_column_is_offered() -> None:
    """A reader leaves out, in silence, those for which it has not the metrics."""
    declared = {
        name: {column.name for column in table.answers.derived}
        for name, table in TABLES.items()
        if table.answers and table.answers.derived
    }
    assert {name: set(of_table(TABLES[name])) for name in declared} == declared
    assert "nfs_mount" in declared


def test_what_formulas_take_from_other_tables_is_there() -> None:
    formulas = [column.formula for table in TABLES.values() for column in of_table(table).values()]
    operands = {operand for text in formulas for operand in formula.parse(text).operands}
    of_others = {(operand.table, operand.metric) for operand in operands if operand.table}
    assert of_others <= {(name, metric.name) for name, table in TABLES.items() for metric in table.metrics}


@pytest.mark.parametrize(
    ("path", "values", "right"),
    [
        ("qdisc/drops_percent", {"packets": 30, "drops": 10}, 25),
        ("md/synced_percent", {"synced": 1, "sync_size": 4}, 25),
        ("hugepages/used_percent", {"total": 4, "free": 1}, 75),
        ("nfs_mount/request_await", {"request_time": 0.5, "requests": 10}, 0.05),
        ("nfs_mount/server_await", {"server_time": 0.5, "requests": 10}, 0.05),
        ("nfs_mount/read_await", {"read_time": 0.5, "reads": 10}, 0.05),
        ("nfs_mount/write_await", {"write_time": 0.5, "writes": 10}, 0.05),
    ],
)
def test_what_it_says(path: str, values: dict[str, float], right: float) -> None:
    table, _, name = path.partition("/")
    parsed = formula.parse(of_table(TABLES[table])[name].formula)
    assert parsed.evaluate({operand: values[str(operand)] for operand in parsed.operands}, formula.FLOATS) == right
