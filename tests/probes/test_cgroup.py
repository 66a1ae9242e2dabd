# SPDX-License-Identifier: Apache-2.0
"""The tables about control groups: exact values of version 2, version 1 and both, what is missing, and garbage."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sysmond_probes import cgroup, cgroup_memory

from sysmond.base.model import Table, check_table
from sysmond.cgroups import files
from sysmond.cgroups.tree import MOUNTINFO, hierarchies
from sysmond.probe import ABSENT, Host, HostEvent, Probe, Row
from tests.support.cgrouptree import BARE, SERVICE, V1_LINE, V2_LINE, mount, put, v2

HZ = os.sysconf("SC_CLK_TCK")
UNLIMITED_V1 = "9223372036854771712\n"


def named(table: Table, rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Rows by instance, what is absent left out, without the id."""
    names = [metric.name for metric in table.metrics]
    return {
        instance: {name: value for name, value in zip(names, values, strict=True) if value != ABSENT and name != "id"}
        for instance, values in rows
    }


def once(root: Path | Host, table: Table, reader: Any, **options: Any) -> dict[str, dict[str, Any]]:
    host = root if isinstance(root, Host) else Host(str(root))
    host.new_tick()
    rows = named(table, [(name, list(values)) for name, values in reader.read(host, **options)])
    host.close()
    return rows


def probes() -> list[Probe]:
    return [*cgroup.sysmond_probes(), *cgroup_memory.sysmond_probes()]


def test_the_tables_are_well_formed() -> None:
    for probe in probes():
        check_table(probe.table)
        assert all(option.accepts(option.default) for option in probe.options)
    assert [probe.table.name for probe in probes()] == [
        *("cgroup", "cgroup_io", "cgroup_tree", "cgroup_owner"),
        *("cgroup_memory", "cgroup_numa", "cgroup_limits"),
    ]


def test_all_but_nodes_are_on_and_the_moving_ones_every_5_seconds() -> None:
    assert [probe.table.name for probe in probes() if not probe.enabled] == ["cgroup_numa"]
    assert [probe.table.name for probe in probes() if probe.interval_s == 5.0] == ["cgroup", "cgroup_io"]


def test_version_2_has_everything(tmp_path: Path) -> None:
    v2(tmp_path, "/somewhere/else")
    put(tmp_path, "/somewhere/else/system.slice/ssh.service", SERVICE)
    rows = once(tmp_path, cgroup.CGROUP, cgroup.Cgroups())
    assert rows == {
        "/": {"cpu_usage": 10, "cpu_user": 6, "cpu_system": 4},
        "/system.slice": {},
        "/system.slice/ssh.service": {
            "cpu_usage": 7250000,
            "cpu_user": 5000000,
            "cpu_system": 2250000,
            "cpu_periods": 120,
            "cpu_throttled_periods": 7,
            "cpu_throttled": 350000,
            "memory_used": 52428800,
            "pids": 17,
            "cpu_some_total": 3653689,
            "cpu_some_avg10": 225,
            "cpu_full_total": 9,
            "cpu_full_avg10": 105,
            "memory_some_total": 12,
            "memory_some_avg10": 0,
            "memory_full_total": 0,
            "memory_full_avg10": 0,
            "io_some_total": 42,
            "io_some_avg10": 1250,
            "io_full_total": 41,
            "io_full_avg10": 10000,
        },
    }


def v1(root: Path) -> None:
    """Version 1 as systemd mounts it, with what Linux 6.18 writes."""
    mount(
        root,
        V1_LINE.format(31, 27, "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
        V1_LINE.format(32, 28, "/sys/fs/cgroup/memory", "memory"),
        V1_LINE.format(33, 29, "/sys/fs/cgroup/pids", "pids"),
        V1_LINE.format(34, 30, "/sys/fs/cgroup/blkio", "blkio"),
        V1_LINE.format(35, 31, "/sys/fs/cgroup/net_cls,net_prio", "net_cls,net_prio"),
        V1_LINE.format(36, 32, "/sys/fs/cgroup/systemd", "xattr,name=systemd"),
        V1_LINE.format(37, 33, "/sys/fs/cgroup/cpuset", "cpuset"),
    )
    top = "/sys/fs/cgroup"
    put(
        root,
        f"{top}/cpu,cpuacct/app",
        {
            "cpuacct.usage": "1500000999\n",
            "cpuacct.stat": "user 100\nsystem 50\n",
            "cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 70999\nnr_bursts 0\nburst_time 0\n",
            "cpu.cfs_quota_us": "-1\n",
            "cpu.cfs_period_us": "100000\n",
            "cpu.shares": "1024\n",
        },
    )
    put(
        root,
        f"{top}/memory/app",
        {
            "memory.usage_in_bytes": "49422336\n",
            "memory.max_usage_in_bytes": "50000000\n",
            "memory.failcnt": "3\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "memory.limit_in_bytes": "104857600\n",
            "memory.soft_limit_in_bytes": UNLIMITED_V1,
            "memory.memsw.limit_in_bytes": UNLIMITED_V1,
            "memory.stat": "cache 1\nrss 2\ntotal_cache 1780330496\ntotal_rss 538611712\ntotal_swap 4096\n"
            "total_mapped_file 89264128\ntotal_pgfault 274540181\n",
            "memory.numa_stat": "total=5823 N0=5823\nfile=165 N0=165\nhierarchical_file=384697 N0=384690 N1=7\n",
        },
    )
    put(root, f"{top}/pids/app", {"pids.current": "5\n", "pids.max": "max\n", "pids.events": "max 4\n"})
    put(
        root,
        f"{top}/blkio/app",
        {
            "blkio.throttle.io_service_bytes_recursive": (
                "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 12288\n8:0 Async 0\n8:0 Discard 5\n8:0 Total 12293\n"
                "Total 12293\n"
            ),
            "blkio.throttle.io_service_bytes": "Total 0\n",
            "blkio.throttle.io_serviced_recursive": "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
        },
    )
    put(root, f"{top}/cpuset/app", {"cpuset.effective_cpus": "0-1\n", "cpuset.effective_mems": "0\n"})
    put(root, f"{top}/net_cls,net_prio/other")
    put(root, f"{top}/systemd/system.slice")


def test_version_1_fills_the_same_columns(tmp_path: Path) -> None:
    v1(tmp_path)
    assert once(tmp_path, cgroup.CGROUP, cgroup.Cgroups()) == {
        "/": {},
        "/app": {
            "cpu_usage": 1500000,
            "cpu_user": 100 * 1_000_000 // HZ,
            "cpu_system": 50 * 1_000_000 // HZ,
            "cpu_periods": 9,
            "cpu_throttled_periods": 2,
            "cpu_throttled": 70,
            "memory_used": 49422336,
            "pids": 5,
        },
    }
    assert once(tmp_path, cgroup.IO, cgroup.CgroupIo()) == {
        "/app:8:0": {"read_bytes": 4096, "written_bytes": 8192, "discarded_bytes": 5, "reads": 1, "writes": 2}
    }
    memory = cgroup_memory.Columns(cgroup_memory.MEMORY, cgroup_memory._MEMORY_FILES)
    assert once(tmp_path, cgroup_memory.MEMORY, memory) == {
        "/app": {
            "peak": 50000000,
            "swap": 4096,
            "events_max": 3,
            "events_oom_kill": 1,
            "anon": 538611712,
            "file": 1780330496,
            "file_mapped": 89264128,
            "pgfault": 274540181,
        }
    }
    page = os.sysconf("SC_PAGE_SIZE")
    assert once(tmp_path, cgroup_memory.NUMA, cgroup_memory.Numa()) == {
        "/app:N0": {"file": 384690 * page},
        "/app:N1": {"file": 7 * page},
    }
    limits = cgroup_memory.Columns(cgroup_memory.LIMITS, cgroup_memory._LIMIT_FILES)
    assert once(tmp_path, cgroup_memory.LIMITS, limits) == {
        "/app": {
            "cpu_period": 100000,
            "cpu_shares": 1024,
            "memory_max": 104857600,
            "pids_failures": 4,
            "cpus": "0-1",
            "nodes": "0",
        }
    }


def test_beside_version_2_version_1_fills_in_what_it_has(tmp_path: Path) -> None:
    mount(tmp_path, V2_LINE.format("/u"), *(V1_LINE.format(n, n, f"/{n}", n) for n in ("cpu", "cpuacct", "memory")))
    put(tmp_path, "/u/a", BARE)
    put(tmp_path, "/cpu/a", {"cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 70000\n"})
    put(tmp_path, "/cpuacct/a", {"cpuacct.usage": "99999\n", "cpuacct.stat": "user 1\nsystem 1\n"})
    put(tmp_path, "/memory/a", {"memory.usage_in_bytes": "4096\n"})
    put(tmp_path, "/cpuacct/b", {"cpuacct.usage": "99999\n", "cpuacct.stat": "user 1\nsystem 1\n"})
    rows = once(tmp_path, cgroup.CGROUP, cgroup.Cgroups())
    assert rows["/a"] == {
        "cpu_usage": 10,
        "cpu_user": 6,
        "cpu_system": 4,
        "memory_used": 4096,
        "cpu_periods": 9,
        "cpu_throttled_periods": 2,
        "cpu_throttled": 70,
    }
    assert rows["/b"]["cpu_usage"] == 99


def test_pressure_is_read_where_processor_time_moved_or_until_it_is_over(tmp_path: Path) -> None:
    v2(tmp_path)
    host, reader = Host(str(tmp_path)), cgroup.Cgroups()
    column = [metric.name for metric in cgroup.CGROUP.metrics].index("io_some_total")
    line = "some avg10={} avg60=0.00 avg300=0.00 total={}\n"

    def recorded(total: int, avg10: str = "0.00", usage: int = 0) -> bool:
        files = {"cpu.stat": f"usage_usec {usage}\nuser_usec 0\nsystem_usec 0\n"}
        files |= {f"{of}.pressure": line.format(avg10, total) for of in ("cpu", "memory", "io")}
        put(tmp_path, "/sys/fs/cgroup/a", files)
        host.new_tick()
        row = dict(reader.read(host))["/a"]
        assert row[column] == row[column - 4] == row[column - 8], "the three are read alike"
        return row[column] == total

    def readings_until_recorded(total: int) -> int:
        return next(count for count in range(1, 100) if recorded(total))

    recorded(1)
    readings_until_recorded(1)
    for _ in range(files.READ_ON + files.FOLLOW_EVERY + files.READ_ON):
        recorded(1)  # Nothing happens, and it is looked at now and then.
    assert 1 < max(readings_until_recorded(total) for total in range(2, 4)) <= files.FOLLOW_EVERY
    assert recorded(5, usage=1), "where processor time moved, at once"
    for _ in range(files.READ_ON + files.FOLLOW_EVERY):
        recorded(6, "0.10", usage=1)
    assert recorded(7, "0.10", usage=1), "a wait that goes on is followed, without any processor time"
    assert recorded(8, "0.00", usage=1)


def test_devices_have_the_names_that_they_have_at_present(tmp_path: Path) -> None:
    top = v2(tmp_path)
    put(tmp_path, "/sys/fs/cgroup/a", SERVICE)
    blocks = put(tmp_path, "/sys/dev/block")
    (blocks / "8:0").symlink_to("../../devices/pci/block/sda")
    (blocks / "253:1").symlink_to("../../devices/virtual/block/cciss!c0d0")
    reader = cgroup.CgroupIo()
    rows = once(tmp_path, cgroup.IO, reader)
    moved = {"read_bytes": 1459200, "written_bytes": 314773504, "discarded_bytes": 4096}
    assert rows["/a:sda"] == {**moved, "reads": 192, "writes": 353, "discards": 1}
    assert rows["/a:cciss/c0d0"] == {
        "read_bytes": 4096,
        "written_bytes": 0,
        "discarded_bytes": 0,
        "reads": 1,
        "writes": 0,
        "discards": 0,
        "cost_usage": 77,
        "cost_wait": 3,
        "cost_indebt": 2,
        "cost_indelay": 1,
        "cost_vrate": 10025,
    }
    assert len(rows) == 2, "a device without numbers has no row"
    (blocks / "8:0").unlink()
    assert set(once(tmp_path, cgroup.IO, reader)) == {"/a:8:0", "/a:cciss/c0d0"}
    (top / "a/io.stat").write_text("")
    assert once(tmp_path, cgroup.IO, reader) == {}


def test_a_device_that_a_cgroup_made_again_uses_late_begins_at_nothing(tmp_path: Path) -> None:
    top = v2(tmp_path)
    put(tmp_path, "/sys/fs/cgroup/a", {"io.stat": "8:0 rbytes=100\n"})
    reader, host = cgroup.CgroupIo(), Host(str(tmp_path))
    assert once(host, cgroup.IO, reader) == {"/a:8:0": {"read_bytes": 100}}
    (top / "a").rename(tmp_path / "gone")
    put(tmp_path, "/sys/fs/cgroup/a", {"io.stat": ""})
    for _ in range(3):
        assert once(host, cgroup.IO, reader) == {}
    (top / "a/io.stat").write_text("8:0 rbytes=150\n")
    assert [once(host, cgroup.IO, reader)["/a:8:0"] for _ in range(3)] == [
        {"read_bytes": 0},
        {},
        {"read_bytes": 150},
    ]


def test_counters_of_a_cgroup_made_again_are_no_rate_of_the_one_before(tmp_path: Path) -> None:
    top = v2(tmp_path)
    put(tmp_path, "/sys/fs/cgroup/a", {**BARE, "pids.current": "3\n"})
    reader = cgroup.Cgroups()
    host = Host(str(tmp_path))
    names = [metric.name for metric in cgroup.CGROUP.metrics]

    def row() -> dict[str, Any]:
        host.new_tick()
        rows = dict(reader.read(host))
        return dict(zip(names, rows["/a"], strict=True))

    first = row()
    (top / "a").rename(tmp_path / "gone")
    # More than before: without its inode nobody could tell.
    put(
        tmp_path, "/sys/fs/cgroup/a", {"cpu.stat": "usage_usec 15\nuser_usec 9\nsystem_usec 6\n", "pids.current": "4\n"}
    )
    again = [row() for _ in range(3)]
    assert [each["cpu_usage"] for each in (first, *again)] == [10, 0, ABSENT, 15]
    assert [each["pids"] for each in (first, *again)] == [3, 4, 4, 4]
    assert first["id"] != again[0]["id"] == again[2]["id"]
    host.close()


def test_limits_of_version_2(tmp_path: Path) -> None:
    v2(tmp_path)
    free = {"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.high": "max\n", "pids.max": "max\n"}
    tight = {
        "cpu.max": "50000 100000\n",
        "cpu.weight": "39\n",
        "memory.max": "104857600\n",
        "memory.high": "94371840\n",
        "memory.low": "4096\n",
        "memory.min": "0\n",
        "memory.swap.max": "0\n",
        "memory.zswap.max": "max\n",
        "pids.max": "64\n",
        "pids.peak": "20\n",
        "pids.events": "max 2\n",
        "io.weight": "default 200\n8:0 100\n",
        "cgroup.freeze": "1\n",
        "cpuset.cpus.effective": "0-3,7\n",
        "cpuset.mems.effective": "\n",
        "cgroup.controllers": "cpuset cpu io memory pids\n",
        "memory.oom.group": "1\n",
        "memory.zswap.writeback": "0\n",
    }
    put(tmp_path, "/sys/fs/cgroup/free", {**free, "cgroup.controllers": "\n"})
    put(tmp_path, "/sys/fs/cgroup/tight", tight)
    limits = cgroup_memory.Columns(cgroup_memory.LIMITS, cgroup_memory._LIMIT_FILES)
    assert once(tmp_path, cgroup_memory.LIMITS, limits) == {
        "/free": {"cpu_period": 100000},
        "/tight": {
            "cpu_quota": 50000,
            "cpu_period": 100000,
            "cpu_weight": 39,
            "memory_max": 104857600,
            "memory_high": 94371840,
            "memory_low": 4096,
            "memory_min": 0,
            "swap_max": 0,
            "pids_max": 64,
            "pids_peak": 20,
            "pids_failures": 2,
            "io_weight": 200,
            "frozen": 1,
            "cpus": "0-3,7",
            "controllers": "cpuset cpu io memory pids",
            "oom_group": 1,
            "zswap_writeback": 0,
        },
    }
    assert cgroup_memory.io_weight(b"500\n") == (500,)


def test_memory_of_version_2_with_numa_on_demand(tmp_path: Path) -> None:
    v2(tmp_path)
    files = {
        "memory.peak": "9\n",
        "memory.swap.current": "1\n",
        "memory.swap.peak": "2\n",
        "memory.zswap.current": "3\n",
        "memory.events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\nsock_throttled 0\n",
        "memory.events.local": "low 1\nhigh 0\nmax 2\noom 0\noom_kill 3\noom_group_kill 0\n",
        "memory.stat": "anon 10\nfile 20\nkernel 30\nslab 99\npgfault 40\nnew_in_kernels_to_come 1\n",
        "memory.numa_stat": "anon N0=7 N1=8\nfile N0=1 N1=2\nworkingset_nodes N0=0 N1=0\n",
    }
    put(tmp_path, "/sys/fs/cgroup/a", files)
    memory = cgroup_memory.Columns(cgroup_memory.MEMORY, cgroup_memory._MEMORY_FILES)
    assert once(tmp_path, cgroup_memory.MEMORY, memory) == {
        "/a": {
            "peak": 9,
            "swap": 1,
            "swap_peak": 2,
            "zswap": 3,
            "anon": 10,
            "file": 20,
            "kernel": 30,
            "pgfault": 40,
            "events_low": 1,
            "events_high": 2,
            "events_max": 3,
            "events_oom": 4,
            "events_oom_kill": 5,
            "events_oom_group_kill": 6,
            "local_events_low": 1,
            "local_events_high": 0,
            "local_events_max": 2,
            "local_events_oom": 0,
            "local_events_oom_kill": 3,
            "local_events_oom_group_kill": 0,
        }
    }
    numa = cgroup_memory.Numa()
    assert once(tmp_path, cgroup_memory.NUMA, numa) == {
        "/a:N0": {"anon": 7, "file": 1},
        "/a:N1": {"anon": 8, "file": 2},
    }


def test_kills_are_told_where_nobody_else_does(tmp_path: Path) -> None:
    top = v2(tmp_path)
    host, reader = Host(str(tmp_path)), cgroup_memory.Memory()

    def killed(kills: int) -> list[HostEvent]:
        for name in ("memory.events", "memory.events.local"):
            put(tmp_path, "/sys/fs/cgroup/a", {name: f"low 0\nhigh 0\nmax 0\noom 0\noom_kill {kills}\n"})
        host.new_tick()
        assert dict(reader.read(host))["/a"]
        return host.take_events()

    put(tmp_path, f"/{top.relative_to(tmp_path)}/a", {"memory.stat": "anon 1\n"})
    assert killed(3) == []
    assert killed(4) == [HostEvent("oom kill", "/a", "1 process killed")]
    assert killed(4) == []
    host.is_read = {"kernel_message"}.__contains__
    assert killed(5) == []
    host.is_read = set[str]().__contains__
    assert killed(5) == [], "it was told by the kernel's messages"
    host.close()


@pytest.fixture
def confined() -> Iterator[Path]:
    """A real cgroup that may use 16 MB."""
    with open(MOUNTINFO, "rb") as file:
        mounted = hierarchies(file.read())
    name, limit, swap = f"sysmond-test-{os.getpid()}", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    point = next((one.point for one in mounted if "memory" in one.controllers), "")
    if not point and mounted and not mounted[0].controllers:
        point, limit, swap = mounted[0].point, "memory.max", "memory.swap.max"
    folder = Path(point, name)
    if os.geteuid() or not point:
        pytest.skip("no cgroup with a limit of memory can be made here")
    folder.mkdir()
    try:
        if not (folder / limit).exists():
            pytest.skip("the memory controller is off")
        (folder / limit).write_text(str(16 << 20))
        if (folder / swap).exists():
            (folder / swap).write_text("0" if swap.endswith("swap.max") else str(16 << 20))
        yield folder
    finally:
        folder.rmdir()


def test_a_real_kill_is_told_of_its_cgroup(confined: Path) -> None:
    host, reader = Host(), cgroup_memory.Memory()
    list(reader.read(host))
    script = "import os, sys\nopen(sys.argv[1], 'w').write(str(os.getpid()))\nfull = bytearray(os.urandom(64 << 20))"
    done = subprocess.run([sys.executable, "-c", script, str(confined / "cgroup.procs")], check=False)
    assert done.returncode == -signal.SIGKILL
    host.new_tick()
    list(reader.read(host))
    mine = [event for event in host.take_events() if event.subject == f"/{confined.name}"]
    assert mine == [HostEvent("oom kill", f"/{confined.name}", "1 process killed")]
    reader.watch.close()
    host.close()


def test_the_tree_says_what_is_mounted_and_what_is_left_out(tmp_path: Path) -> None:
    v1(tmp_path)
    host = Host(str(tmp_path))
    [(_, values)] = cgroup.CgroupTree().read(host, limit=1)
    assert values == (1, 1, ABSENT, "cpu,cpuacct memory pids blkio")
    v2(tmp_path)
    put(tmp_path, "/sys/fs/cgroup", {"cgroup.stat": "nr_descendants 5\nnr_dying_descendants 3\n"})
    [(_, values)] = cgroup.CgroupTree().read(Host(str(tmp_path)))
    assert values[2:] == (3, "cgroup2")


def test_owners_are_told_once_and_within_bounds(tmp_path: Path) -> None:
    v2(tmp_path)
    ident = "0123456789abcdef" * 4
    for path in ("system.slice/ssh.service/inner", f"system.slice/docker-{ident}.scope", "foreign"):
        put(tmp_path, f"/sys/fs/cgroup/{path}")
    rows = once(tmp_path, cgroup.OWNER, cgroup.Owners())
    assert rows == {
        "/system.slice": {"slice": "system.slice"},
        "/system.slice/ssh.service": {"unit": "ssh.service", "slice": "system.slice"},
        f"/system.slice/docker-{ident}.scope": {
            "runtime": "docker",
            "container": ident,
            "unit": f"docker-{ident}.scope",
            "slice": "system.slice",
        },
    }
    assert len(once(tmp_path, cgroup.OWNER, cgroup.Owners(), limit=2)) == 2


@pytest.mark.parametrize(
    ("parse", "content"),
    [
        (cgroup.number, b"many\n"),
        (cgroup.cpu_stat, b"usage_usec\n"),
        (cgroup.cpu_stat, b"usage_usec x\n"),
        (cgroup.cpuacct_stat, b"user 1 system\n"),
        (cgroup.pressure, b"some avg10=225 avg60=0.85 avg300=0.24 total=3653689\n"),
        (cgroup.pressure, b"some avg10=2.25 avg60=0.85 avg300=0.24 sum=3653689\n"),
        (cgroup.pressure, b"some\n"),
        (cgroup.io_stat, b"8:0 rbytes\n"),
        (cgroup.io_stat, b"8:0 rbytes=x\n"),
        (cgroup.io_stat, b"some avg10=0.00\n"),
        (cgroup.blkio, b"sda Read 1\n"),
        (cgroup.blkio, b"8:0 Read many\n"),
        (cgroup_memory.number, b"\n"),
        (cgroup_memory.cpu_max, b"1\n"),
        (cgroup_memory.numa_stat, b"anon N0=x\n"),
    ],
)
def test_garbage_is_refused(parse: Any, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(content)


# Sound content of every file that has more than a number.
FILES = {
    **SERVICE,
    **{f"memory.{name}": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\n" for name in ("events", "events.local")},
    "memory.stat": "anon 10\nfile 20\n",
    "memory.numa_stat": "anon N0=7 N1=8\n",
    "cpu.max": "max 100000\n",
    "pids.events": "max 2\n",
    "io.weight": "default 200\n",
    "cgroup.controllers": "cpu io\n",
}
READERS: dict[str, Any] = {
    "cgroup": cgroup.Cgroups,
    "cgroup_io": cgroup.CgroupIo,
    "cgroup_memory": lambda: cgroup_memory.Columns(cgroup_memory.MEMORY, cgroup_memory._MEMORY_FILES),
    "cgroup_numa": cgroup_memory.Numa,
    "cgroup_limits": lambda: cgroup_memory.Columns(cgroup_memory.LIMITS, cgroup_memory._LIMIT_FILES),
}
GARBAGE = ("", "garbage\n", "\0\n", "1 2 3\n", "8:0 rbytes=x\n", "some avg10=x\n", "anon N0=x\n", "\n" * 5000)


@pytest.mark.parametrize("table", READERS)
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_one_malformed_file_costs_that_file_of_that_cgroup_only(tmp_path: Path, table: str, garbage: str) -> None:
    v2(tmp_path)
    declared = next(probe.table for probe in probes() if probe.table.name == table)
    reader: Any = READERS[table]()
    names = sorted({name for file in reader.watch._files if not file.controller for name in file.names[:1]})
    for group in ("spoilt", "sound"):
        put(tmp_path, f"/sys/fs/cgroup/{group}", {**dict.fromkeys(names, "1\n"), **FILES})
    whole = once(tmp_path, declared, reader)
    for name in names:
        sound = {key: value for key, value in whole.items() if key.startswith("/sound")}
        before = (tmp_path / "sys/fs/cgroup/spoilt" / name).read_text()
        put(tmp_path, "/sys/fs/cgroup/spoilt", {name: garbage})
        rows = once(tmp_path, declared, reader)
        assert {key: value for key, value in rows.items() if key.startswith("/sound")} == sound
        for key in rows.keys() - sound.keys():
            beside = {cell for cell in rows[key].items() if cell[0] not in of_file(declared, name)}
            assert beside == {cell for cell in whole[key].items() if cell[0] not in of_file(declared, name)}
        put(tmp_path, "/sys/fs/cgroup/spoilt", {name: before})
        assert once(tmp_path, declared, reader) == whole, "and it comes back with the file"


def of_file(table: Table, name: str) -> set[str]:
    """The columns that come from a file."""
    return {metric.name for metric in table.metrics if re.match(rf"{re.escape(name)}( |;|$)", metric.origin)}


def test_the_kernel_without_full_pressure_of_cpu_has_some_alone() -> None:
    line = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    assert cgroup.pressure(line) == (7, 0, ABSENT, ABSENT)


def test_this_machine_can_be_read_by_every_table() -> None:
    host = Host()
    for probe in probes():
        options = {option.name: option.default for option in probe.options}
        try:
            rows = list(probe.read(host, **options))
        except FileNotFoundError as nothing:
            pytest.skip(str(nothing))
        assert all(len(values) == len(probe.table.metrics) for _, values in rows)
        assert len({name for name, _ in rows}) == len(rows)
    host.close()
