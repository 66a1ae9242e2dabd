# SPDX-License-Identifier: Apache-2.0
"""Processes by /proc as other kernels, other namespaces and bad moments show it: trees of files, and texts."""

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import ABSENT
from sysmond.cgroups.tree import Hierarchy, numbering
from sysmond.tasks.pass_result import PassResult
from sysmond.tasks.proc import text as proc_text
from sysmond.tasks.proc import walk
from sysmond.tasks.proc.cgroups import CgroupNumbers
from sysmond.tasks.proc.ids import NewPids, clock_of
from sysmond.tasks.proc.walk import Proc
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD
from tests.support.cgrouptree import V1_LINE, V2_LINE, mount
from tests.support.children import child
from tests.tasks.proc.test_proc import Row, rows

HZ = os.sysconf("SC_CLK_TCK")
STAT = "{pid} ({comm}) {state} {ppid} 1 1 0 -1 4194560 {minor} 0 2 0 {user} 3 0 0 20 0 {threads} 0 {start} 4096000 500 "
STAT += "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 9 0 0 0 0 0 0 0 0 0 0\n"
STATUS = (
    "Name:\tname\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGroups:\t{groups}\nNSpid:\t77\t5\nVmSize:\t    4000 kB\n"
    "RssAnon:\t     {anon} kB\nRssFile:\t      20 kB\nRssShmem:\t       3 kB\nVmSwap:\t       4 kB\n"
    "voluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t12\nx86_Thread_features:\t\n"
)
IO = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 0\n"


class Machine:
    """A tree of files below a folder, and what reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        self.tasks = Proc(str(root), descriptors=0)  # A kept one of these files would go on when it is removed.

    def put(self, pid: int, folder: str = "", *, schedstat: str = "1000000 2000000 3\n", **fields: Any) -> None:
        """Put a process there, or change it; a thread where the folder is ``task/TID``."""
        wanted = {
            "pid": pid,
            "comm": "name",
            "state": "S",
            "ppid": 1,
            "minor": 7,
            "user": 5,
            "threads": 1,
            "start": 100,
        }
        wanted |= {"groups": "", "anon": 100} | fields
        where = self.root / "proc" / str(pid) / folder
        (where / "fd").mkdir(parents=True, exist_ok=True)
        contents = {"stat": STAT, "status": STATUS, "io": IO, "schedstat": schedstat, "cgroup": "0::/a\n"}
        for name, content in contents.items():
            if content:
                (where / name).write_bytes(os.fsencode(content.format(**wanted)))

    def remove(self, pid: int, folder: str = "") -> None:
        shutil.rmtree(self.root / "proc" / str(pid) / folder)

    def take(self, *, full: bool = False, threads: bool = False) -> PassResult:
        return self.tasks.take(full=full, threads=threads)

    def taken(self, *, full: bool = False) -> dict[int, Row]:
        return rows(PROCESS, self.take(full=full).process)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_process_is_read_from_its_files(machine: Machine) -> None:
    machine.put(10, comm="a) R 1 (b", ppid=4)
    (machine.root / "proc/10/fd/0").touch()
    (machine.root / "proc/sys").mkdir()
    both = machine.take()
    row = rows(PROCESS, both.process)[10]
    assert {name: value for name, value in row.items() if value is not None} == {
        "start": 10**9,
        "pid": 10,
        "ppid": 4,
        "uid": 1000,
        "comm": b"a) R 1 (b".ljust(16, b"\0"),
        "state": b"S",
        "threads": 1,
        "cpu": 1000,
        "run_delay": 2000,
        "user": 5 * 10**6 // HZ,
        "system": 3 * 10**6 // HZ,
        "block_delay": 9 * 10**6 // HZ,
        "voluntary_switches": 11,
        "involuntary_switches": 12,
        "minor_faults": 7,
        "major_faults": 2,
        "read_chars": 1,
        "written_chars": 2,
        "read_bytes": 5,
        "written_bytes": 6,
        "bytes_unseen": 0,
        "read_bytes_with_children": 5,
        "written_bytes_with_children": 6,
        "rss_anon": 102400,
        "rss_file": 20480,
        "rss_shmem": 3072,
        "swap": 4096,
        "virtual": 4096000,
        "last_cpu": 1,
        "priority": 20,
        "nice": 0,
        "policy": 0,
    }
    private = rows(PROCESS_PRIVATE, both.private)[10]
    assert (private["namespace_pid"], private["namespace"], private["descriptors"]) == (5, None, 1)


def test_what_did_not_use_a_cpu_is_read_in_its_turn(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.put(10)
    assert machine.taken()[10]["rss_anon"] == 102400
    machine.put(10, anon=50)
    assert machine.taken() == {}
    assert machine.taken(full=True)[10]["rss_anon"] == 102400
    monkeypatch.setattr(walk, "REFRESH_EVERY", 1)
    machine.tasks._known["10"].turn = 0  # type: ignore[misc]
    assert machine.taken()[10]["rss_anon"] == 51200


def test_another_process_with_the_same_number_is_another(machine: Machine) -> None:
    machine.put(10, comm="old", schedstat="9000000 0 1\n")
    assert machine.taken()[10]["cpu"] == 9000
    machine.put(10, comm="new", start=200, schedstat="5000000 0 1\n")
    row = machine.taken()[10]
    assert (row["start"], row["cpu"], row["comm"][:3]) == (2 * 10**9, 5000, b"new")
    assert machine.taken(full=True).keys() == {10}


def test_children_of_one_that_ended_have_another_parent(machine: Machine) -> None:
    machine.put(10)
    machine.put(11, ppid=10)
    machine.taken()
    machine.remove(10)
    machine.put(11, ppid=1)
    assert machine.taken()[11]["ppid"] == 1


@pytest.mark.parametrize("schedstat", ["", "0 0 0\n"])
def test_where_the_scheduler_counts_nothing_ticks_are_taken(machine: Machine, schedstat: str) -> None:
    machine.put(10, schedstat=schedstat)
    row = machine.taken()[10]
    assert (row["cpu"], row["run_delay"]) == (8 * 10**6 // HZ, None)
    assert machine.taken() == {}
    machine.put(10, schedstat=schedstat, user=6)
    assert machine.taken()[10]["cpu"] == 9 * 10**6 // HZ


def test_of_several_threads_the_ticks_of_all_are_taken_and_time_never_falls(machine: Machine) -> None:
    machine.put(10, schedstat="90000000 1 1\n")
    assert machine.taken()[10]["cpu"] == 90_000
    machine.put(10, schedstat="91000000 1 1\n", threads=2)
    row = machine.taken()[10]
    assert (row["cpu"], row["run_delay"], row["voluntary_switches"]) == (90_000, None, None)
    # Its first thread slept; ticks alone tell that the other worked.
    machine.put(10, schedstat="91000000 1 1\n", threads=2, user=50)
    assert machine.taken()[10]["cpu"] == 53 * 10**6 // HZ


def test_what_a_thread_counted_stays_with_its_process_when_it_ends(machine: Machine) -> None:
    machine.put(10, threads=3)
    for tid, delay in ((10, 1), (11, 2), (12, 3)):
        machine.put(10, f"task/{tid}", threads=3, schedstat=f"{tid} {delay}000 1\n")
    both = machine.take(threads=True)
    assert rows(PROCESS, both.process)[10]["run_delay"] == 6
    assert {tid: row["run_delay"] for tid, row in rows(THREAD, both.thread).items()} == {10: 1, 11: 2, 12: 3}
    machine.remove(10, "task/12")
    machine.put(10, threads=2, user=6)
    machine.put(10, "task/11", threads=2, schedstat="11 7000 1\n")
    both = machine.take(threads=True)
    row = rows(PROCESS, both.process)[10]
    assert (row["run_delay"], row["voluntary_switches"], row["threads"]) == (11, 33, 2)
    assert rows(THREAD, both.thread).keys() == {11}
    assert rows(THREAD, machine.take(full=True, threads=True).thread).keys() == {10, 11}


def test_more_tasks_than_are_recorded_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in range(1, 151):
        machine.put(pid)
    monkeypatch.setattr(walk, "TASKS_MAX", 100)
    for full in (False, True):
        process = machine.take(full=full).process
        assert (len(rows(PROCESS, process)), process.lost, process.walked) == (100, 50, 150)
    for pid in range(1, 51):
        machine.remove(pid)
    both = machine.take(full=True)
    assert (len(rows(PROCESS, both.process)), both.process.lost, both.private.lost) == (100, 0, 0)


def test_more_threads_than_are_recorded_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.put(10, threads=30)
    for tid in range(10, 40):
        machine.put(10, f"task/{tid}", threads=30)
    monkeypatch.setattr(walk, "TASKS_MAX", 20)
    thread = machine.take(threads=True).thread
    assert thread is not None
    assert (len(rows(THREAD, thread)), thread.lost, thread.walked) == (20, 10, 30)


def test_a_hundred_thousand_names_are_gone_through_in_one_listing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put(10)
    names = [str(pid) for pid in range(10, 100_010)]
    monkeypatch.setattr("sysmond.tasks.proc.ids.os.listdir", lambda _top: names)
    process = machine.take().process
    assert (set(rows(PROCESS, process)), process.lost) == ({10}, 0)


def test_where_no_more_files_may_be_opened_it_is_said_how_many_are_missing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put(10)
    machine.put(11)
    real = os.open

    def refuse(path: str, flags: int, **options: Any) -> int:
        if path.startswith("11/"):
            raise OSError(errno.EMFILE, "too many")
        return real(path, flags, **options)

    monkeypatch.setattr("sysmond.tasks.proc.files.os.open", refuse)
    process = machine.take().process
    assert (set(rows(PROCESS, process)), process.lost, process.walked) == ({10}, 1, 2)


def test_what_is_no_stat_costs_its_process_alone(machine: Machine) -> None:
    machine.put(10)
    machine.put(11)
    (machine.root / "proc/11/stat").write_bytes(b"")
    process = machine.take().process
    assert (set(rows(PROCESS, process)), process.lost) == ({10}, 1)


def test_one_that_vanishes_half_way_is_not_there(machine: Machine) -> None:
    machine.put(10)
    machine.put(11)
    (machine.root / "proc/11/status").unlink()
    process = machine.take().process
    assert (set(rows(PROCESS, process)), process.lost, process.walked) == ({10}, 0, 1)


def test_io_is_left_alone_in_the_first_second(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 10**9 + 999_999_999
    monkeypatch.setattr(walk, "clock_gettime_ns", lambda _clock: now_ns)
    machine.put(10, start=HZ)
    row = machine.taken()[10]
    assert row["read_bytes"] is row["written_chars"] is None
    assert machine.taken() == {}
    now_ns += 1
    assert machine.taken()[10]["read_bytes"] == 5


def test_a_long_list_of_groups_is_read_to_its_end(machine: Machine) -> None:
    machine.put(10, groups=" ".join(map(str, range(100_000, 165_536))))
    assert machine.taken()[10]["involuntary_switches"] == 12


def test_waits_for_devices_are_absent_where_they_are_not_counted(machine: Machine) -> None:
    (machine.root / "proc/sys/kernel").mkdir(parents=True)
    (machine.root / "proc/sys/kernel/task_delayacct").write_text("0\n")
    machine.put(10)
    assert machine.taken()[10]["block_delay"] is None


def test_descriptors_are_listed_up_to_a_bound(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "DESCRIPTORS_LISTED_MAX", 3)
    for pid, count in ((10, 3), (11, 4)):
        machine.put(pid)
        for number in range(count):
            (machine.root / f"proc/{pid}/fd/{number}").touch()
    found = rows(PROCESS_PRIVATE, machine.take().private)
    assert (found[10]["descriptors"], found[11]["descriptors"]) == (3, -1)


def test_a_machine_without_proc_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="proc"):
        Proc(str(tmp_path))


# --- Texts


@given(st.binary(max_size=15).filter(lambda name: b"\0" not in name))
def test_a_name_may_be_any_bytes(name: bytes) -> None:
    line = STAT.format(pid=1, comm="@", state="R", ppid=3, minor=7, user=5, threads=2, start=100).encode()
    told = proc_text.stat(line.replace(b"@", name))
    assert (told.comm, told.state, told.ppid, told.threads, told.last_cpu) == (name, b"R", 3, 2, 1)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        (b"kworker/0:1-events", b"kworker/0:1"),
        (b"kworker/u8:0+flush-8:0", b"kworker/u8:0"),
        (b"kworker/R-rcu_gp-rcu", b"kworker/R-rcu_g"),
        (b"pool_workqueue_release", b"pool_workqueue_"),
    ],
)
def test_what_the_kernel_adds_to_names_of_its_own_is_left_out(name: bytes, right: bytes) -> None:
    line = STAT.format(pid=1, comm="@", state="R", ppid=2, minor=7, user=5, threads=2, start=100).encode()
    assert proc_text.stat(line.replace(b"@", name)).comm == right


@pytest.mark.parametrize("line", [b"", b"1 (name) R 1", b"no stat"])
def test_what_is_no_stat_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="expected a name in parentheses and 40 fields"):
        proc_text.stat(line)


def test_what_has_no_memory_has_none_and_an_old_kernel_does_not_say() -> None:
    text = STATUS.format(groups="", anon=1)
    old = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("Rss", "NSpid")))
    assert proc_text.status(old.encode())[:6] == (1000, 0xFFFFFFFF, *[ABSENT] * 4)
    without = "".join(line for line in old.splitlines(keepends=True) if not line.startswith("Vm"))
    assert proc_text.status(without.encode())[2:] == (0, 0, 0, 0, 11, 12)
    assert proc_text.status(b"Name:\tx\n") == (0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 0, ABSENT, ABSENT)


def test_characters_are_told_where_storage_is_not_counted() -> None:
    assert proc_text.io(b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n") == (ABSENT, ABSENT, 1, 2)
    assert proc_text.io(b"") == (ABSENT,) * 4


def test_what_a_task_waits_in() -> None:
    assert [proc_text.wait(content) for content in (b"0", b"", b"pipe_read", b"x" * 64)] == [
        *(b"", b"", b"pipe_read", b"x" * 31)
    ]
    assert [proc_text.syscall(content) for content in (b"running\n", b"-1 0x0 0x0\n", b"7 0x1 0x2\n", b"")] == [
        *(-1, -1, 7, -1)
    ]


# --- Cgroups


def test_the_hierarchy_that_numbers_cgroups() -> None:
    two, memory = Hierarchy("/2"), Hierarchy("/1", ("memory",))
    cpu, systemd = Hierarchy("/c", ("cpu", "cpuacct")), Hierarchy("/s", ("name=systemd",))
    freezer = Hierarchy("/f", ("freezer",))
    assert numbering([two], []) == two
    assert numbering([two, memory], ["pids"]) == two
    assert numbering([two, cpu, memory], ["hugetlb"]) == memory
    assert numbering([two, systemd, freezer], []) == two
    assert numbering([freezer, systemd], []) == systemd
    assert numbering([freezer], []) == freezer
    assert numbering([], []) is None


def test_a_cgroup_is_told_by_the_number_of_its_folder(tmp_path: Path) -> None:
    mount(tmp_path, V2_LINE.format("/sys/fs/cgroup"), V1_LINE.format(31, 27, "/v1", "freezer"))
    top = tmp_path / "sys/fs/cgroup"
    (top / "a b/c").mkdir(parents=True)
    numbers = CgroupNumbers(str(tmp_path))
    inode = (top / "a b/c").stat().st_ino
    assert numbers.number(b"3:freezer:/a b\n0::/a b/c\n", ABSENT) == inode
    (top / "a b/c").rename(top / "kept")
    assert numbers.number(b"0::/a b/c\n", ABSENT) == inode
    numbers.new_reading()
    assert numbers.number(b"0::/a b/c\n", ABSENT) == ABSENT
    assert numbers.number(b"0::/a b/c (deleted)\n", 5) == 5
    assert numbers.number(b"0::/../..\n", ABSENT) == ABSENT
    assert numbers.number(b"", 5) == ABSENT


def test_where_no_cgroups_are_mounted_there_is_no_number(tmp_path: Path) -> None:
    assert CgroupNumbers(str(tmp_path)).number(b"0::/\n", 5) == ABSENT


# --- Numbers of processes


@pytest.fixture
def numbers(tmp_path: Path) -> Any:
    """Our own numbers, read in a folder whose loadavg is written by the test."""
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / "loadavg").write_text("0.10 0.20 0.30 1/123 100\n")
    top = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    found = NewPids(top)
    assert found.is_ours
    yield found
    found.close()
    os.close(top)


def test_numbers_given_since_are_asked_for_one_by_one(numbers: NewPids, tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    assert numbers.candidates(1000, is_full=False) == ["77"]
    (tmp_path / "77").rename(tmp_path / "78")
    with child() as pid:
        (tmp_path / "loadavg").write_text(f"0.10 0.20 0.30 1/123 {pid - 1}\n")
        assert numbers.candidates(1000, is_full=False) == ["78"]  # Two readings are needed.
        (tmp_path / "loadavg").write_text(f"0.10 0.20 0.30 1/123 {pid + 1}\n")
        for _ in range(2):  # It could have been made a moment after its number was given.
            asked = numbers.candidates(10**6, is_full=False)
            assert str(pid) in asked
            assert "78" not in asked
        assert numbers.candidates(1000, is_full=False) == []


@pytest.mark.parametrize(("last", "known", "is_full"), [(99, 1000, False), (5000, 1000, False), (100, 1000, True)])
def test_all_are_listed_where_that_is_cheaper_or_needed(
    numbers: NewPids, tmp_path: Path, last: int, known: int, is_full: bool
) -> None:
    for _ in range(2):
        numbers.candidates(known, is_full=False)
    assert numbers.candidates(known, is_full=False) == []
    (tmp_path / "loadavg").write_text(f"0.10 0.20 0.30 1/123 {last}\n")
    (tmp_path / "77").mkdir()
    assert numbers.candidates(known, is_full=is_full) == ["77"]


def test_numbers_of_another_namespace_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to(str(os.getpid() + 1))
    top = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    assert not NewPids(top).is_ours
    os.close(top)


def test_the_clock_of_a_process_is_spelled_as_the_kernel_spells_it() -> None:
    assert time.clock_gettime_ns(clock_of(os.getpid())) <= time.process_time_ns() + 10**6
    assert clock_of(1) == -14
