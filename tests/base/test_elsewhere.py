# SPDX-License-Identifier: Apache-2.0
"""Names of other programs: what they mean here, and what is asked of somebody who uses them."""

import pytest

from sysmond.base import elsewhere, paths
from sysmond.errors import UsageError

SERIES = [("disk", "read_bytes", "sda"), ("memory", "free", ""), ("ink", "left", "black")]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("node_disk_read_bytes_total", {"disk/read_bytes"}),
        ("NODE_DISK_READ_BYTES_TOTAL", {"disk/read_bytes"}),
        ('node_cpu_seconds_total{mode="idle"}', {"cpu/idle"}),
        ("node_cpu_seconds_total{mode=idle}", {"cpu/idle"}),
        ("system.disk.io", {"disk/read_bytes", "disk/written_bytes"}),
        ("node_vmstat_pgfault", {"vm/pgfault"}),
        ("node_vmstat_", set()),
        ("temp12_crit", {"temperature/crit"}),
        ("temp_crit", set()),
        ("node_rapl_core_joules_total", {"rapl/energy@package-*:core"}),
        ("SI", {"cpu/softirq_percent", "vm/pswpin"}),
        ("", set()),
        ("disk/read_bytes", set()),
        ("*", set()),
    ],
)
def test_a_word_means_these(word: str, meant: set[str]) -> None:
    assert {path for name in elsewhere.of(word) for path in name.paths} == meant


def test_a_name_of_the_same_case_comes_before_others() -> None:
    """``RSS`` of pidstat and ``rss`` of ps, ``S`` of top and ``s``, which is none."""
    assert [name.program for name in elsewhere.of("RSS")] == ["pidstat"]
    assert [name.program for name in elsewhere.of("rss")] == ["ps"]
    assert [name.name for name in elsewhere.of("s")] == ["S"]


def test_how_a_meaning_is_spelled() -> None:
    (name,) = elsewhere.of("kbmemused")
    assert (name.paths, name.unit, name.is_about, name.is_sum) == (("memory/used",), "KiB", True, False)
    (name,) = [name for name in elsewhere.of("us") if name.program == "vmstat"]
    assert (name.meanings, name.is_sum) == (("cpu/user_percent + cpu/nice_percent",), True)
    (name,) = [name for name in elsewhere.of("used") if name.program == "free"]
    assert (name.meanings, name.is_sum) == (("memory/used", "memory/swap_used"), False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "node_disk_read_bytes_total",
            "did you mean disk/read_bytes (node_disk_read_bytes_total in",
        ),
        ("rkB/s@sda", "there is no table or metric 'rkB/s@sda'; did you mean disk/read_bytes (rkB/s in sar, iostat)?"),
        ("memory/kbmemfree", "there is no metric 'memory/kbmemfree'; did you mean free (kbmemfree in sar)?"),
        ("node_cpu_seconds_total", "did you mean cpu/user or cpu/nice or cpu/system or cpu/idle or 4 more (node_cpu"),
        ("Toner", "there is no table or metric 'Toner'; did you mean ink/left?"),
        ("ink/toner", "there is no metric 'ink/toner'; did you mean left?"),
        ("memory/toner", "there is no metric 'memory/toner'; there are memory/"),
        ("dusk", "there is no table 'dusk'; did you mean disk"),
    ],
)
def test_who_asks_by_it_is_told_ours(text: str, said: str) -> None:
    """``toner`` is what a table declares itself."""
    with pytest.raises(UsageError) as refused:
        paths.select([paths.parse(text)], SERIES, aliases=lambda: [("toner", "ink/left")])
    assert said in str(refused.value)


def test_a_column_of_one_table_is_never_answered_with_one_that_it_has_not() -> None:
    columns = ("rss", "cpu_percent", "read_bytes")
    assert elsewhere.suggest_column("RES", "process", columns) == "; did you mean rss (RES in top, htop)?"
    assert elsewhere.suggest_column("RES", "thread", columns) == "; did you mean rss (RES in top, htop)?", "as there"
    assert elsewhere.suggest_column("RES", "disk", ("read_bytes",)) == ""
    shared = elsewhere.suggest_column("%usr", "cpu", ("user_without_guest_percent",))
    assert shared == "; did you mean user_without_guest_percent (%usr in sar, mpstat)?", "pidstat has it of processes"
    assert elsewhere.suggest_column("sheets", "job", ("pages",), [("Sheets", "pages")]) == "; did you mean pages?"
