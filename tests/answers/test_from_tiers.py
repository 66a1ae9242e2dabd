# SPDX-License-Identifier: Apache-2.0
"""Questions that reach further back than rows are kept: buckets of tiers answer as the rows would have."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.answers.records import answer
from sysmond.answers.rows.question import Request
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import TIERS_NS, Cause, Sensitivity
from sysmond.base.result import Result
from sysmond.machine.folders import Folders
from sysmond.rollup.top import roll_up
from sysmond.store.archive import Name
from sysmond.store.files.sparse_file import encode
from sysmond.store.stretches.stretch import MemoryStretch
from sysmond.tasks.tables import CGROUP_NAME, EXITS, PROCESS, THREAD_STATE
from tests.support.longarchive import BOOTED_NS, Row, put, relation, stretch

US = 1_000_000
# 11:10 of the clock on the wall: buckets of all tiers begin there.
BEGIN_S = 600
HALF_S = 600
MANY = 30  # More than are kept by themselves.


def process(pid: int, start_s: float = 1, **values: int | str | None) -> Row:
    return {"pid": pid, "start": round(start_s * SECOND_NS), "state": "S", **values}


def recorded(begin_s: int, length_s: int) -> MemoryStretch:
    """Processes that use the more the larger their number is; one begins and ends."""
    seen = []
    for second in range(length_s):
        at_s = begin_s + second
        for pid in range(1, MANY + 1):
            if (at_s + pid) % 7 == 0 or second == 0:
                used = (at_s - BEGIN_S) * pid * 1000
                # Both together are as much all the time.
                held = {"rss_anon": pid * 100 + at_s % 5, "rss_file": 4 - at_s % 5}
                seen.append((second, process(pid, comm=f"p{pid}", cpu=used, cgroup=pid % 2, **held)))
        if BEGIN_S + 100 <= at_s < BEGIN_S + 200:
            seen.append(
                (second, process(99, BEGIN_S + 99.5, comm="guest", cpu=(at_s - BEGIN_S - 99) * US // 2, cgroup=1))
            )
    full = [second for second in range(length_s) if second % 300 == 0]
    seen += [
        (
            second,
            process(
                pid, comm=f"p{pid}", cpu=(begin_s + second - BEGIN_S) * pid * 1000, rss_anon=pid * 100, cgroup=pid % 2
            ),
        )
        for second in full[1:]
        for pid in range(1, MANY + 1)
    ]
    last = {(second, row["pid"]): row for second, row in seen}
    return stretch(PROCESS, range(begin_s, begin_s + length_s), [(at, row) for (at, _), row in last.items()], full=full)


@pytest.fixture
def whole(tmp_path: Path) -> Folders:
    """All of it as rows."""
    folders = Folders(str(tmp_path / "whole"), str(tmp_path / "runtime"))
    put(folders, recorded(BEGIN_S, HALF_S), 1)
    put(folders, recorded(BEGIN_S + HALF_S, HALF_S), 2)
    return folders


def put_tier(folders: Folders, made: MemoryStretch, tier: str, sequence: int) -> None:
    folder = Path(f"{folders.state}/public/{made.table.name}/{tier}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / Name(made.boot, sequence, sequence).file).write_bytes(encode(made, "test"))


@pytest.fixture(params=["10s", "1min", "5min"])
def aged(tmp_path: Path, request: pytest.FixtureRequest) -> Folders:
    """The first half as buckets of a tier."""
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    (made,) = roll_up([recorded(BEGIN_S, HALF_S)], [TIERS_NS[request.param]])
    put_tier(folders, made, request.param, 1)
    put(folders, recorded(BEGIN_S + HALF_S, HALF_S), 2)
    return folders


def ask(folders: Folders, start_s: int = 0, end_s: int = 2 * HALF_S, **said: Any) -> Result:
    start, end = (BOOTED_NS + (BEGIN_S + second) * SECOND_NS for second in (start_s, end_s))
    return answer(folders, tuple(Sensitivity), Request("process", start=start, end=end)._replace(**said))


def rows(found: Result, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.records[list(names)].tolist()]


def test_who_used_most_is_told_as_by_rows(whole: Folders, aged: Folders) -> None:
    names = ("pid", "comm", "cpu:sum", "rss_anon", "rss_anon:max")
    asked: dict[str, Any] = {"columns": ",".join((*names, "cpu")), "top": 10}
    exact, found = ask(whole, **asked), ask(aged, **asked)
    # The reading at which the rows begin does not tell what was used since the one before it.
    for right, told in zip(rows(exact, *names), rows(found, *names), strict=True):
        assert told[:2] == right[:2]
        assert told[2] == pytest.approx(right[2], abs=0.2)
        assert told[3:] == pytest.approx(right[3:], abs=1)
    np.testing.assert_allclose(found.records["cpu"], exact.records["cpu"], rtol=0.01)
    assert [event.kind for event in found.events] == ["tier"]
    assert exact.events == ()


def test_derived_columns_are_those_of_their_metrics(aged: Folders) -> None:
    """Of rows, of buckets, and of both together; where they are a condition, and of groups."""
    found = ask(aged, columns="pid,cpu_percent,cpu", where="cpu_percent > 2%", by="cpu_percent")
    values = found.records
    assert len(values) > 10
    np.testing.assert_allclose(values["cpu_percent"], values["cpu"])
    assert min(values["cpu_percent"]) > 2
    groups = ask(aged, columns="cpu_percent,cpu", group_by="cgroup").records
    np.testing.assert_allclose(groups["cpu_percent"], groups["cpu"])
    # Of what only rows tell, buckets pretend nothing.
    (said,) = [each for each in ask(aged, columns="pid,cpu_percent:p95").warnings if "only buckets" in each]
    assert said.endswith("which keep no p95")


def test_the_most_memory_of_each_and_of_others_together_is_known(whole: Folders, aged: Folders) -> None:
    asked: dict[str, Any] = {"columns": "pid,rss:max", "where": "pid > 25"}
    right = {**{pid: pid * 100 + 4 for pid in range(26, MANY + 1)}, 99: 0}
    assert dict(rows(ask(whole, **asked), "pid", "rss:max")) == right
    assert dict(rows(ask(aged, **asked), "pid", "rss:max")) == right
    asked["where"] = "pid = 0"
    others = rows(ask(aged, end_s=HALF_S, **asked), "rss:max")
    # Of each cgroup those that are not among the first.
    assert sorted(most for (most,) in others) == [2500 + 20, 3000 + 20]


def test_totals_are_those_of_the_rows(whole: Folders, aged: Folders) -> None:
    for end_s in (HALF_S, 2 * HALF_S):
        asked: dict[str, Any] = {"group_by": "policy", "columns": "cpu:sum,rss_anon,cpu", "end_s": end_s}
        # Of the others no policy is known: they are a group of their own.
        right, told = (np.sum(rows(ask(each, **asked), "cpu:sum", "rss_anon", "cpu"), axis=0) for each in (whole, aged))
        # An average of readings and one over time differ by where a second is counted.
        assert told.tolist() == pytest.approx(right.tolist(), rel=0.01)


def test_others_are_together_by_cgroup(aged: Folders) -> None:
    folders = aged
    put(
        folders,
        stretch(
            CGROUP_NAME,
            range(0, 1300, 300),
            [(0, {"id": 0, "path": "/a.service"}), (0, {"id": 1, "path": "/b.service"})],
        ),
        1,
    )
    found = ask(aged, end_s=HALF_S, columns="pid,comm,unit,count,cpu:sum", by="count", top=2)
    assert {(pid, comm) for pid, comm, _ in rows(found, "pid", "comm", "count")} == {(0, None)}
    assert {unit for (unit,) in rows(found, "unit")} == {"a.service", "b.service"}
    units = ask(aged, end_s=HALF_S, group_by="unit", columns="unit,cpu:sum")
    total = sum(used for (used,) in rows(units, "cpu:sum"))
    assert total == pytest.approx(sum(range(MANY + 1)) * (HALF_S - 1) / 1000 + 50, rel=0.01)


def test_conditions_are_about_the_whole_range(whole: Folders, aged: Folders) -> None:
    asked: dict[str, Any] = {"columns": "pid", "where": "cpu:sum > 30s"}
    assert sorted(rows(ask(aged, **asked), "pid")) == sorted(rows(ask(whole, **asked), "pid"))


@pytest.mark.parametrize("tier", ["10s", "1min", "5min"])
def test_what_grew_over_a_gap_is_no_spike(tmp_path: Path, tier: str) -> None:
    parts = [recorded(BEGIN_S, 300), recorded(BEGIN_S + 900, 300)]
    whole, aged = (Folders(str(tmp_path / name), str(tmp_path / "runtime")) for name in ("whole", "aged"))
    for number, part in enumerate(parts, 1):
        put(whole, part, number)
    (made,) = roll_up(parts, [TIERS_NS[tier]])
    put_tier(aged, made, tier, 1)
    asked: dict[str, Any] = {"columns": "cpu,cpu:sum", "where": "pid = 30"}
    for step in (None, "5min"):
        exact, found = ask(whole, **asked, step=step), ask(aged, **asked, step=step)
        assert rows(found, "cpu", "cpu:sum") == [pytest.approx(row) for row in rows(exact, "cpu", "cpu:sum")]
        assert found.gaps == exact.gaps
        assert found.records["cpu"] == pytest.approx([3.0] * len(found.records), rel=0.02)


@pytest.mark.parametrize("tier", ["10s", "1min"])
def test_readings_further_apart_than_a_bucket_is_long_are_no_gaps_and_weigh_as_much(tmp_path: Path, tier: str) -> None:
    parts = [
        stretch(PROCESS, range(begin_s, begin_s + 600, 60), [(0, process(7, comm="pg", rss_anon=held))], interval_s=60)
        for begin_s, held in ((BEGIN_S, 100), (BEGIN_S + 600, 400))
    ]
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    for number, (part, of) in enumerate(zip(parts, ("5min", tier), strict=True), 1):
        (made,) = roll_up([part], [TIERS_NS[of]])
        put_tier(folders, made, of, number)
    found = ask(folders, columns="rss_anon", where="pid = 7")
    assert found.gaps == ()
    assert rows(found, "rss_anon") == [(250,)]


@pytest.mark.parametrize("booted_ns", [20 * SECOND_NS, BOOTED_NS - 86_400 * SECOND_NS])
def test_buckets_answer_beside_rows_of_a_boot_that_began_earlier_by_its_clock(tmp_path: Path, booted_ns: int) -> None:
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    (made,) = roll_up([recorded(BEGIN_S, 300)], [TIERS_NS["5min"]])
    put_tier(folders, made, "5min", 1)
    corrected = Relation(15 * SECOND_NS, BOOTED_NS + 7200 * SECOND_NS, 15 * SECOND_NS)
    clocks = [relation(0, booted_ns), corrected]
    put(folders, stretch(PROCESS, range(10, 20), [(0, process(5, cpu=0))], boot="c" * 32, relations=clocks), 1)
    found = ask(folders, end_s=300, columns="pid,cpu:sum", where="pid = 30")
    assert rows(found, "pid", "cpu:sum") == [(30, pytest.approx(9, abs=0.3))]


def test_a_machine_that_was_off_between_two_boots_of_buckets_says_so(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    after = [relation(0, BOOTED_NS + 3600 * SECOND_NS)]
    other = stretch(PROCESS, range(10, 70), [(0, process(1))], boot="c" * 32, relations=after)
    for made in (recorded(BEGIN_S, 300), other):
        (buckets,) = roll_up([made], [TIERS_NS["1min"]])
        put_tier(folders, buckets, "1min", 1)
    (gap,) = ask(folders, end_s=3600).gaps
    at_s = [(at_ns - BOOTED_NS) // SECOND_NS for at_ns in (gap.start_ns, gap.end_ns)]
    assert (*at_s, gap.cause) == (BEGIN_S + 300, 3610, Cause.OFF)


def test_a_range_that_ends_within_the_first_bucket_of_a_file_is_answered(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    for number in (0, 1):
        (made,) = roll_up([recorded(BEGIN_S + number * 300, 300)], [TIERS_NS["5min"]])
        put_tier(folders, made, "5min", 1 + number)
    found = ask(folders, start_s=290, end_s=580, columns="pid,cpu:sum", where="pid = 30")
    assert rows(found, "pid", "cpu:sum") == [(30, pytest.approx(30 * 299 / 1000, rel=0.02))]


def test_steps_that_a_tier_has_are_answered(whole: Folders, aged: Folders) -> None:
    asked: dict[str, Any] = {"columns": "pid,cpu:sum", "step": "5min", "top": 1}
    exact, found = ask(whole, **asked), ask(aged, **asked)
    assert found.times.tolist() == exact.times.tolist()
    np.testing.assert_allclose(found.records["cpu:sum"], exact.records["cpu:sum"], rtol=0.02)


def test_processes_that_ended_long_ago_are_told_or_counted(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))

    def ended(second: int, pid: int, cpu: int) -> tuple[int, Row]:
        end_ns = (BEGIN_S + second) * SECOND_NS - SECOND_NS // 2
        return second, {**process(pid, BEGIN_S - 1, comm="job", cpu=cpu, peak_rss=cpu), "end": end_ns}

    exits = [ended(5 + pid % 50, pid, pid * 1000) for pid in range(1, 61)]
    (made,) = roll_up([stretch(EXITS, range(BEGIN_S, BEGIN_S + 60), exits, full=())], [TIERS_NS["1min"]])
    put_tier(folders, made, "1min", 1)
    put(folders, stretch(EXITS, range(BEGIN_S + 60, BEGIN_S + 120), [ended(10, 99, 5000)], full=()), 2)
    found = answer(folders, tuple(Sensitivity), Request("exits", columns="pid,comm,count,cpu,end"))
    told = rows(found, "pid", "comm", "count")
    assert sum(count for _, _, count in told) == 61
    assert (60, "job", 1) in told
    assert (0, "job", 40) in told
    grouped = answer(folders, tuple(Sensitivity), Request("exits", group_by="comm", columns="count,cpu"))
    assert rows(grouped, "count", "cpu") == [(61, pytest.approx(sum(range(61)) / 1000 + 0.005))]


def test_what_threads_waited_for_long_ago_is_counted(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    seen = [(second, {**process(7), "tid": 7, "state": "D", "wchan": f"f{second % 2}"}) for second in range(60)]
    made = stretch(THREAD_STATE, range(BEGIN_S, BEGIN_S + 60), seen, full=range(60))
    (buckets,) = roll_up([made], [TIERS_NS["1min"]])
    put_tier(folders, buckets, "1min", 1)
    found = answer(folders, tuple(Sensitivity), Request("thread_state", group_by="state,wchan", columns="count"))
    assert rows(found, "state", "wchan", "count") == [("D", "f0", 30), ("D", "f1", 30)]


@pytest.mark.skipif(find_spec("duckdb") is None, reason="DuckDB is optional")
def test_sql_asks_rows_alone(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "aged"), str(tmp_path / "runtime"))
    (made,) = roll_up([recorded(BEGIN_S, HALF_S)], [TIERS_NS["1min"]])
    put_tier(folders, made, "1min", 1)
    assert len(answer(folders, tuple(Sensitivity), Request("process", top=3)).records) == 3
    program = "import sys; from sysmon_tools.extract import main; sys.exit(main(sys.argv[1:]))"
    words = ["--sql=select count(*) from process", f"--state-dir={folders.state}", f"--runtime-dir={folders.runtime}"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "rows of that range are no longer kept" in done.stderr
