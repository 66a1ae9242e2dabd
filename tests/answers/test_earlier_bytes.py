# SPDX-License-Identifier: Apache-2.0
"""Files of before bytes of a process were its own: what they count is said, and where nobody asks for it, nothing."""

from collections.abc import Callable

import pytest

from sysmond.base.model import Table
from sysmond.history import Archive
from sysmond.rollup.top import derived
from sysmond.store.stretches.undeclared import WITH_CHILDREN, with_children
from sysmond.tasks.tables import EXITS, PROCESS, THREAD
from tests.golden.asking import Asked


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("pid,read_bytes:sum,written_bytes", "read_bytes, written_bytes"),
        ("pid,cpu,written_chars:last", "written_chars"),
        ("pid,cpu,rss:last", ""),
    ],
)
def test_an_event_says_what_is_counted_by_files_of_before(
    frozen_archive: Callable[[str], Asked], columns: str, told: str
) -> None:
    """The frozen archives are declared as before."""
    answer = Archive(frozen_archive("busy").folders).records("process", columns=columns)
    meanings = [event for event in answer.events if event.kind == "meaning"]
    assert len(meanings) == bool(told)
    # It is no fault of the answer, whose exit code would be 3.
    assert not any("children" in warning for warning in answer.warnings)
    for event in meanings:
        assert event.subject == "process"
        assert event.text == f"up to here, {told} count what waited-for children did, too"


def of_before(table: Table) -> Table:
    """The table without what was added to it."""
    kept = tuple(metric for metric in table.metrics if not metric.name.endswith("_with_children"))
    assert table.answers is not None
    return table._replace(metrics=kept, answers=table.answers._replace(rows_only=()))


@pytest.mark.parametrize("table", [PROCESS, EXITS], ids=["process", "exits"])
def test_buckets_tell_too_what_their_rows_counted(table: Table) -> None:
    assert with_children(table) == with_children(derived(table)) == ()
    assert with_children(of_before(table)) == with_children(derived(of_before(table))) == WITH_CHILDREN[table.name]
    assert with_children(of_before(table)._replace(answers=None)) == WITH_CHILDREN[table.name]


def test_a_thread_never_had_children() -> None:
    assert with_children(THREAD) == ()


def test_buckets_leave_out_what_counts_twice() -> None:
    names = {metric.name for metric in derived(PROCESS).metrics}
    assert "written_bytes" in names
    assert not [name for name in names if name.endswith("_with_children")]
