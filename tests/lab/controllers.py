# SPDX-License-Identifier: Apache-2.0
"""Control groups with all controllers on, real loads in them: what is recorded, beside what their own files say.

For the lab (``make lab``): it wants a cgroup that systemd delegated, /dev/vdb to write to, and swap.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.history import Archive
from tests.lab.files import IO_COLUMNS, SOURCES, Cells, Numbers, expected, told
from tests.lab.ground import (
    DISK,
    MIB,
    TOP,
    Ground,
    burns,
    forks,
    holds,
    inside,
    maps_huge_pages,
    moves,
    number,
    remove,
    switch_on,
)
from tests.support.waiting import wait_until
from tests.support.whole import a_recorder

TABLES = ("cgroup", "cgroup_io", "cgroup_memory", "cgroup_numa", "cgroup_limits", "cgroup_tree", "cgroup_owner")
# How much later than its tick a row may have been read, on a machine that is emulated.
LATE_NS = 4 * SECOND_NS


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
    folder = Path(f"{TOP}{own}")
    main = folder / "main"
    main.mkdir()
    while pids := (folder / "cgroup.procs").read_text().split():
        for pid in pids:
            (main / "cgroup.procs").write_text(pid)
    # systemd does not delegate those that it does not know.
    for above in (*reversed([each for each in folder.parents if TOP in (each, *each.parents)]), folder):
        switch_on(above)
    device = Path(f"/sys/block/{os.path.basename(DISK)}/dev").read_text().strip()
    (TOP / "io.cost.qos").write_text(f"{device} enable=1")
    Path("/sys/module/blk_cgroup/parameters/blkcg_debug_stats").write_text("1")
    with a_recorder() as recorder:
        tables = "".join(f"  {table}: {{enabled: true, interval: 1s}}\n" for table in TABLES)
        recorder.config.write_text(f"probes:\n{tables}")
        recorder.start()
        made = Ground(folder, recorder)
        wait_until(lambda: made.last("cgroup", "/"), recorder.said)
        yield made


@pytest.fixture(scope="module")
def groups(ground: Ground) -> Iterator[dict[str, Path]]:
    """Cgroups whose processes have done something and rest."""
    made = {
        "burnt": ground.make("cpu/burnt", cpu_weight="50"),
        "throttled": ground.make("cpu/throttled", cpu_max="20000 100000"),
        "deep": ground.make("cpu/nested/very/deep"),
        "plain": ground.make("memory/plain", memory_low=str(8 * MIB), memory_min=str(4 * MIB)),
        "high": ground.make("memory/high", memory_high=str(16 * MIB)),
        "short": ground.make("memory/short", memory_max=str(24 * MIB), memory_swap_max="0"),
        "io": ground.make("io", io_weight="default 200"),
        "pids": ground.make("pids", pids_max="5"),
        "pinned": ground.make("pinned", cpuset_cpus="1"),
        "frozen": ground.make("frozen"),
        "huge": ground.make("huge"),
    }
    loads = {
        "burnt": burns(2.0),
        "throttled": burns(0.5),
        "deep": burns(0.2),
        "plain": holds(32 * MIB),
        "high": holds(40 * MIB),
        "io": moves,
        "pids": forks,
        "pinned": burns(0.1),
        "frozen": burns(0.1),
        "huge": maps_huge_pages,
    }
    with ExitStack() as running:
        for name, does in loads.items():
            running.enter_context(inside(made[name], does))
        with pytest.raises(AssertionError, match="failed"), inside(made["short"], holds(64 * MIB)):
            pass
        (made["frozen"] / "cgroup.freeze").write_text("1")
        above = {f"{name}, above": made[name].parent for name in ("burnt", "deep", "plain")}
        yield {**made, **above}
        (made["frozen"] / "cgroup.freeze").write_text("0")
        for folder in made.values():
            (folder / "cgroup.kill").write_text("1")


LOADED = (
    *("burnt", "throttled", "deep", "plain", "high", "short", "io", "pids", "pinned", "frozen", "huge"),
    *("burnt, above", "deep, above", "plain, above"),
)


def test_all_controllers_are_on(groups: dict[str, Path]) -> None:
    on = set((groups["deep"] / "cgroup.controllers").read_text().split())
    assert on >= {"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}
    # So every column has a number here, but for limits that are not set.
    absent = {table: [name for name, value in expected(table, groups["plain"]).items() if value is None]
              for table in SOURCES}  # fmt: skip
    assert absent == {
        "cgroup": [],
        "cgroup_memory": [],
        "cgroup_limits": ["cpu_quota", "memory_max", "memory_high", "swap_max", "zswap_max", "pids_max"],
    }


@pytest.mark.parametrize("table", SOURCES)
@pytest.mark.parametrize("name", LOADED)
def test_what_is_recorded_is_what_the_files_say(ground: Ground, groups: dict[str, Path], name: str, table: str) -> None:
    folder = groups[name]
    ground.comes_to(table, ground.instance(folder), lambda: expected(table, folder))


def test_the_loads_were_those_that_were_meant(ground: Ground, groups: dict[str, Path]) -> None:
    def cells(table: str, name: str) -> dict[str, int]:
        return {key: value for key, value in ground.last(table, ground.instance(groups[name])).items()
                if isinstance(value, int)}  # fmt: skip

    assert cells("cgroup", "burnt")["cpu_usage"] >= 2_000_000
    throttled = cells("cgroup", "throttled")
    assert throttled["cpu_throttled_periods"] > 0
    assert throttled["cpu_throttled"] > 0
    assert throttled["cpu_some_total"] > 0
    assert cells("cgroup", "pids")["pids"] == 5
    assert cells("cgroup_limits", "pids")["pids_failures"] >= 1
    assert cells("cgroup_memory", "plain")["anon"] >= 32 * MIB
    high = cells("cgroup_memory", "high")
    assert min(high[name] for name in ("events_high", "swap", "zswap", "zswapped", "pgscan", "zswpout")) > 0
    assert cells("cgroup", "high")["memory_some_total"] > 0
    short = cells("cgroup_memory", "short")
    assert (short["events_oom_kill"], short["anon"]) == (1, 0)
    assert min(short["events_max"], short["events_oom"]) > 0
    assert short["peak"] == pytest.approx(24 * MIB, rel=0.05)
    limits = cells("cgroup_limits", "throttled")
    assert (limits["cpu_quota"], limits["cpu_period"]) == (20_000, 100_000)
    assert (groups["huge"] / "hugetlb.2MB.current").read_text() == f"{4 * MIB}\n"


def test_bytes_of_a_disk_are_those_that_were_moved(ground: Ground, groups: dict[str, Path]) -> None:
    disk = os.path.basename(DISK)
    device = Path(f"/sys/block/{disk}/dev").read_text().strip()

    def wanted() -> Cells:
        numbers = told(groups["io"], "io.stat")
        return {metric: numbers.get(f"{device} {key}") for metric, key in IO_COLUMNS.items()}

    instance = f"{ground.instance(groups['io'])}:{disk}"
    ground.comes_to("cgroup_io", instance, wanted)
    cells = ground.last("cgroup_io", instance)
    assert (cells["written_bytes"], cells["writes"]) == (4 * MIB, 64)
    assert (cells["read_bytes"], cells["reads"]) == (2 * MIB, 32)
    assert (cells["discarded_bytes"], cells["discards"]) == (MIB, 1)
    assert number(cells["cost_usage"]) > 0
    # Only / has the pace of the device.
    assert number(ground.last("cgroup_io", f"/:{disk}")["cost_vrate"]) > 0


def test_memory_is_told_by_node(ground: Ground, groups: dict[str, Path]) -> None:
    folder = groups["plain"]

    def wanted() -> Cells:
        numbers = told(folder, "memory.numa_stat")
        return {name: numbers[f"{name} N0"] for name in ("anon", "file", "kernel_stack", "shmem", "slab_reclaimable")}

    ground.comes_to("cgroup_numa", f"{ground.instance(folder)}:N0", wanted)


def test_while_it_works_every_row_is_of_its_moment(ground: Ground) -> None:
    """Each recorded number lies between those that the files said before its tick, and some time after."""
    folder = ground.make("moment", cpu_max="60000 100000")
    seen: list[tuple[int, Numbers]] = []
    watched = {key: value for key, value in SOURCES["cgroup"].items() if key.startswith("cpu_")}
    averages = {f"cpu_{whom}_avg10": ("cpu.pressure", f"{whom} avg10") for whom in ("some", "full")}
    begin_ns = time.time_ns()
    with inside(folder, lambda: None) as pid:
        work = os.fork()
        if work == 0:
            (folder / "cgroup.procs").write_text("0")
            for _ in range(12):
                burns(0.4)()
                time.sleep(0.3)
            os._exit(0)
        while os.waitpid(work, os.WNOHANG) == (0, 0) or time.time_ns() < seen[-1][0] + 2 * LATE_NS:
            files = {file: told(folder, file) for file in ("cpu.stat", "cpu.pressure")}
            numbers = {name: files[file][key] for name, (file, key) in {**watched, **averages}.items()}
            seen.append((time.time_ns(), numbers))
            if not Path(f"/proc/{work}").exists():
                break
            time.sleep(0.1)
        assert pid
        checked = 0
        for row in ground.rows("cgroup", ground.instance(folder), begin_ns):
            before = [numbers for at, numbers in seen if at <= row.time_ns]
            after = [numbers for at, numbers in seen if at > row.time_ns + LATE_NS]
            near = [numbers for at, numbers in seen if abs(at - row.time_ns) < 2 * LATE_NS]
            if not before or not after:
                continue
            checked += 1
            wrong = {
                name: (before[-1][name], row.cells[name], after[0][name])
                for name in watched
                if not before[-1][name] <= number(row.cells[name]) <= after[0][name]
            }
            assert wrong == {}
            assert all(row.cells[name] in {numbers[name] for numbers in near} for name in averages), row
        assert checked >= 5
    remove(folder)


def test_one_made_again_under_its_name_is_another(ground: Ground) -> None:
    folder = ground.make("again")
    instance, begin_ns = ground.instance(folder), time.time_ns()
    last: list[Cells] = []
    for cpu_s in (0.2, 0.5):  # The second uses more than the first: no number falls.
        if not folder.exists():
            folder.mkdir()
        with inside(folder, burns(cpu_s)):
            ground.comes_to("cgroup", instance, lambda: expected("cgroup", folder))
            last.append(expected("cgroup", folder))
        remove(folder)
    first, second = last
    assert first["id"] != second["id"]
    rows = [row for row in ground.rows("cgroup", instance, begin_ns) if row.cells["id"] is not None]
    ids = [row.cells["id"] for row in rows]
    assert sorted(ids, key=ids.index) == ids
    assert set(ids) == {first["id"], second["id"]}
    usage = [row.cells["cpu_usage"] for row in rows if row.cells["id"] == second["id"]]
    assert usage[:2] == [0, None]
    assert usage[-1] == second["cpu_usage"]
    found = Archive(ground.recorder.folders).select(
        f"cgroup/cpu_usage@{instance}", start=begin_ns, step=3600 * SECOND_NS, stat="sum"
    )
    began = next(row.cells["cpu_usage"] for row in rows if row.cells["cpu_usage"] is not None)
    (grown,) = found.columns
    used_us = number(first["cpu_usage"]) - number(began) + number(second["cpu_usage"])
    assert sum(grown.values) == pytest.approx(used_us / 1e6)
    assert Cause.COUNTER_RESET in {gap.cause for gap in found.gaps}


def test_one_that_was_removed_has_no_more_rows(ground: Ground) -> None:
    folder = ground.make("removed")
    ground.comes_to("cgroup", ground.instance(folder), lambda: {"id": folder.stat().st_ino})
    remove(folder)
    gone_ns = time.time_ns() + LATE_NS
    wait_until(lambda: ground.rows("cgroup", "/", gone_ns))
    assert ground.rows("cgroup", ground.instance(folder), gone_ns) == []


@pytest.mark.parametrize(
    "name", ["back\\slash", "dash\\x2din.service", "a space", "at@sign", "star*", "ümlaut", os.fsdecode(b"\xff\xfe")]
)
def test_odd_names_are_kept(ground: Ground, name: str) -> None:
    folder = ground.make(f"odd/{name}")
    instance = ground.instance(folder)
    begin_ns = time.time_ns()
    with inside(folder, burns(0.1)) as pid:
        wait_until(lambda: instance in instances(ground, begin_ns), lambda: instances(ground, begin_ns))
        if "*" not in name:
            ground.comes_to("cgroup", instance, lambda: expected("cgroup", folder))
        rows = ground.recorder.wait_for("process", f"pid = {pid}", "cgroup_path")
        wait_until(lambda: rows_of(ground, pid) == [instance], lambda: rows_of(ground, pid))
        assert rows
    remove(folder)


def instances(ground: Ground, since_ns: int) -> set[str]:
    entries = Archive(ground.recorder.folders).catalogue("cgroup/pids")
    return {each.path.partition("@")[2] for each in entries if each.end_ns > since_ns}


def rows_of(ground: Ground, pid: int) -> list[str]:
    return [row["cgroup_path"] for row in ground.recorder.records("process", "cgroup_path", where=f"pid = {pid}")]


def test_controllers_that_come_and_go_are_followed(ground: Ground) -> None:
    above = ground.make("late")
    folder = above / "below"
    folder.mkdir()
    instance = ground.instance(folder)
    with inside(folder, holds(MIB)):
        ground.comes_to("cgroup", instance, lambda: {"memory_used": None, "pids": None, "id": folder.stat().st_ino})
        (above / "cgroup.subtree_control").write_text("+memory +pids")
        ground.comes_to("cgroup", instance, lambda: expected("cgroup", folder))
        assert ground.last("cgroup", instance)["pids"] == 1
        (above / "cgroup.subtree_control").write_text("-memory -pids")
        ground.comes_to("cgroup", instance, lambda: expected("cgroup", folder))
        assert ground.last("cgroup", instance)["memory_used"] is None
    remove(folder)


def test_the_tree_is_counted(ground: Ground) -> None:
    def wanted() -> Cells:
        return {
            "cgroups": sum(1 for _ in os.walk(TOP)),
            "left_out": 0,
            "dying": told(TOP, "cgroup.stat")["nr_dying_descendants"],
            "hierarchies": "cgroup2",
        }

    ground.comes_to("cgroup_tree", "", wanted)


def test_whose_a_cgroup_is(ground: Ground) -> None:
    owner = ground.last("cgroup_owner", ground.instance(ground.folder))
    assert (owner["unit"], owner["slice"]) == (ground.folder.name, "system.slice")
