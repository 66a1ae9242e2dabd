# SPDX-License-Identifier: Apache-2.0
"""Derived columns of the tables that come with sysmond: each is offered, has its metrics, and says what it should."""

import pytest

from docs import generate
from sysmond.base import formula
from sysmond.base.derived_columns import of_table
from sysmond.probe import Table

# Of a hundred; guests are part of user and nice, and count once.
CPU_SHARES = {"user": 30, "nice": 10, "system": 20, "idle": 25, "iowait": 3, "irq": 4, "softirq": 6, "steal": 2}

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
        ("cpu/hardirq_percent", {**CPU_SHARES, "irq": 4}, 4),
        ("cpu/softirq_percent", {**CPU_SHARES, "softirq": 6}, 6),
        ("cpu/guest_percent", {**CPU_SHARES, "guest": 5}, 5),
        ("cpu/guest_nice_percent", {**CPU_SHARES, "guest_nice": 3}, 3),
        ("cpu/user_without_guest_percent", {**CPU_SHARES, "guest": 5}, 25),
        ("cpu/nice_without_guest_percent", {**CPU_SHARES, "guest_nice": 3}, 7),
        ("memory/swap_cached_percent", {"swap_cached": 1, "swap_total": 9, "swap_free": 5}, 25),
        ("memory/cache", {"cached": 7, "slab_reclaimable": 2}, 9),
        ("memory/huge_pages_used", {"huge_pages_total": 4, "huge_pages_free": 1}, 3),
        ("memory/huge_pages_used_percent", {"huge_pages_total": 4, "huge_pages_free": 1}, 75),
        ("filesystem/used_of_size_percent", {"used": 3, "size": 12}, 25),
        ("filesystem/unavailable_percent", {"size": 10, "available": 2}, 80),
        ("network/utilization", {"received_bytes": 10, "sent_bytes": 25, "link.speed@@": 1000}, 20),
        ("vm/pages_reclaimed", {"pgsteal_kswapd": 30, "pgsteal_direct": 4}, 34),
        ("temperature/headroom", {"value": 60, "max": 0, "crit": 100, "emergency": 110}, 40),
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
    found = parsed.evaluate({operand: values[str(operand)] for operand in parsed.operands}, formula.FLOATS)
    assert found == pytest.approx(right)
