# SPDX-License-Identifier: Apache-2.0
"""Processes and threads by the real /proc: known children, against this file's own reading of it and ps."""

import ctypes
import json
import mmap
import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sysmond.base.model import ABSENT, Table
from sysmond.records import Records
from sysmond.tasks.proc import walk
from sysmond.tasks.proc.walk import Proc
from sysmond.tasks.tables import ABSENT_U32, PROCESS, PROCESS_PRIVATE, THREAD
from tests.support.children import asleep, child
from tests.support.leftovers import present

HZ = os.sysconf("SC_CLK_TCK")
PR_SET_NAME = 15
SCHED_BATCH = 3
Row = dict[str, Any]


def rows(table: Table, records: Records | None) -> dict[int, Row]:
    """Records by pid, or by tid; what is absent is None."""
    assert records is not None
    assert table.packing is not None
    names = [metric.name for metric in table.metrics]
    absent = {name: ABSENT_U32 if name.startswith("namespace") else ABSENT for name in names}
    found = {}
    for values in struct.iter_unpack(table.packing.format, records.rows):
        row = dict(zip(names, values, strict=True))
        key = row[table.packing.key[0]]
        assert key not in found, "a task comes twice"
        found[key] = {name: None if value == absent[name] else value for name, value in row.items()}
    return found


@pytest.fixture(params=["by clock", "by files", "without descriptors"])
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proc]:
    """All processes, read in each way there is."""
    monkeypatch.setattr(walk, "YOUNG_NS", 0)
    found = Proc(descriptors=0 if request.param == "without descriptors" else 256)
    assert found._numbers.is_ours
    found._numbers.is_ours = request.param == "by clock"
    yield found
    found.close()


def taken(tasks: Proc, *, full: bool = False) -> dict[int, Row]:
    return rows(PROCESS, tasks.take(full=full, threads=False).process)


def lines(path: str) -> dict[str, str]:
    """A file of lines ``name: value``."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def told(pid: int) -> Row:
    """What /proc says of a process, read the simple way."""
    status, io = lines(f"/proc/{pid}/status"), lines(f"/proc/{pid}/io")
    with open(f"/proc/{pid}/stat", "rb") as file:
        stat = [b"", b"", b"", *file.read().rpartition(b") ")[2].split()]  # So that numbers are those of proc(5).
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        run_ns, delay_ns, _ = map(int, file.read().split())
    with open(f"/proc/{pid}/comm", "rb") as file:
        comm = file.read()[:-1]
    return {
        "start": int(stat[22]) * 10**9 // HZ,
        "pid": pid,
        "ppid": os.getpid(),
        "uid": int(status["Uid"].split()[0]),
        "comm": comm.ljust(16, b"\0"),
        "cpu": run_ns // 1000,
        "user": int(stat[14]) * 10**6 // HZ,
        "system": int(stat[15]) * 10**6 // HZ,
        "run_delay": delay_ns // 1000,
        "voluntary_switches": int(status["voluntary_ctxt_switches"]),
        "involuntary_switches": int(status["nonvoluntary_ctxt_switches"]),
        "minor_faults": int(stat[10]),
        "major_faults": int(stat[12]),
        "read_bytes": int(io["read_bytes"]),
        "written_bytes": int(io["write_bytes"]),
        "read_chars": int(io["rchar"]),
        "written_chars": int(io["wchar"]),
        **{
            name: int(status.get(key, "0 kB").split()[0]) * 1024
            for name, key in (
                ("rss_anon", "RssAnon"),
                ("rss_file", "RssFile"),
                ("rss_shmem", "RssShmem"),
                ("swap", "VmSwap"),
            )
        },
        "virtual": int(stat[23]),
        "threads": int(stat[20]),
        "last_cpu": int(stat[39]),
        "priority": int(stat[18]),
        "nice": int(stat[19]),
        "policy": int(stat[41]),
        "state": stat[3],
    }


def check(row: Row) -> None:
    """Compare a row with what /proc says; the process has to be at rest."""
    assert {name: row[name] for name in told(row["pid"])} == told(row["pid"])


def burn() -> None:
    while time.process_time() < 0.05:
        pass


def test_a_process_is_recorded_as_proc_tells_of_it(tasks: Proc) -> None:
    with child(burn) as busy, child() as idle:
        found = taken(tasks)
        check(found[busy])
        check(found[idle])
        assert found[busy]["cpu"] >= 50_000 > found[idle]["cpu"]
        said = subprocess.run(
            ["ps", "-o", "pid=,ppid=,uid=,ni=,vsz=,nlwp=", "-p", f"{busy}"], capture_output=True, text=True, check=True
        ).stdout
        row = found[busy]
        assert list(map(int, said.split())) == [
            *(busy, row["ppid"], row["uid"], row["nice"], row["virtual"] // 1024, row["threads"])
        ]


def test_only_what_changed_is_given_until_all_is_asked_for(tasks: Proc) -> None:
    with child() as mover, child() as sleeper:
        first = tasks.take(full=False, threads=False)
        assert first.process.full
        assert first.private.full
        assert {mover, sleeper, os.getpid(), 1} <= rows(PROCESS, first.process).keys()
        assert first.process.walked == len(rows(PROCESS, first.process))
        os.kill(mover, signal.SIGSTOP)
        os.waitpid(mover, os.WUNTRACED)
        second = tasks.take(full=False, threads=False)
        assert not second.process.full
        changed = rows(PROCESS, second.process)
        assert mover in changed
        assert sleeper not in changed
        assert changed[mover]["state"] == b"T"
        check(changed[mover])
        assert {mover, sleeper, 1} <= taken(tasks, full=True).keys()


def test_one_that_came_is_there_and_one_that_ended_is_not(tasks: Proc) -> None:
    taken(tasks)
    with child() as came:
        check(taken(tasks)[came])
    assert came not in taken(tasks, full=True)


def test_one_that_is_dead_and_not_yet_buried(tasks: Proc) -> None:
    with child(burn) as pid:
        before = taken(tasks)[pid]
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        after = taken(tasks)[pid]
        assert after["state"] == b"Z"
        assert after["cpu"] >= before["cpu"]
        assert [after[name] for name in ("rss_anon", "rss_file", "rss_shmem", "virtual")] == [0, 0, 0, 0]


def rename() -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"a) R 1\n\x1b[31m\xff", 0, 0, 0)


def lower() -> None:
    os.nice(7)


def batch() -> None:
    os.sched_setscheduler(0, SCHED_BATCH, os.sched_param(0))


@pytest.mark.parametrize("does", [rename, lower, batch])
def test_what_a_process_makes_of_itself(tasks: Proc, does: Any) -> None:
    with child(does) as pid:
        row = taken(tasks)[pid]
        check(row)
        assert (row["comm"].rstrip(b"\0") == b"a) R 1\n\x1b[31m\xff") is (does is rename)
        assert (row["nice"], row["priority"]) == ((7, 27) if does is lower else (0, 20))
        assert row["policy"] == (SCHED_BATCH if does is batch else 0)


KEPT: list[mmap.mmap] = []


def touch() -> None:
    KEPT.append(mmap.mmap(-1, 1 << 25, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    KEPT.append(mmap.mmap(-1, 1 << 24))
    for kept in KEPT:
        for at in range(0, len(kept), mmap.PAGESIZE):
            kept[at] = 1


def test_memory_is_told_by_kind(tasks: Proc) -> None:
    with child(touch) as pid:
        row = taken(tasks)[pid]
        check(row)
        assert row["rss_anon"] >= 1 << 25
        assert row["rss_shmem"] >= 1 << 24


def test_bytes_are_those_that_were_written(tasks: Proc, tmp_path: Path) -> None:
    def write() -> None:
        with open(tmp_path / "file", "wb", buffering=0) as file:
            file.write(bytes(1 << 20))
            os.fsync(file)

    with child(write) as pid:
        row = taken(tasks)[pid]
        check(row)
        assert row["written_chars"] == (1 << 20) + 1  # And the byte that says it is done.
        assert row["written_bytes"] in {0, *range(1 << 20, 1 << 21)}  # None where the folder is in RAM.


def test_the_cgroup_is_the_number_of_a_folder(tasks: Proc) -> None:
    number = taken(tasks)[os.getpid()]["cgroup"]
    if number is None:
        pytest.skip("no cgroups here, or not in our view")
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4] for line in file if " - cgroup" in line]
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = {line.rstrip("\n").split(":", 2)[2] for line in file}
    folders = [point + path for point in points for path in paths if os.path.isdir(point + path)]
    assert number in {os.stat(folder).st_ino for folder in folders}


def several() -> None:
    def work() -> None:
        burn()
        ready.release()
        threading.Event().wait()

    ready = threading.Semaphore(0)
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(3):
        ready.acquire()


def thread_cpu_us(pid: int) -> dict[int, int]:
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
            found[int(tid)] = int(file.read().split()[0]) // 1000
    return found


def test_threads_are_recorded_each_by_itself(tasks: Proc) -> None:
    with child(several) as pid, child() as alone:
        asleep(pid)
        both = tasks.take(full=False, threads=True)
        process, found = rows(PROCESS, both.process)[pid], rows(THREAD, both.thread)
        ours = {tid: row for tid, row in found.items() if row["pid"] == pid}
        assert {tid: row["cpu"] for tid, row in ours.items()} == thread_cpu_us(pid)
        assert len(ours) == process["threads"] == 4
        for name in ("run_delay", "voluntary_switches", "involuntary_switches"):
            assert process[name] == sum(row[name] for row in ours.values())
        total_us = sum(thread_cpu_us(pid).values())
        ticks_us = process["user"] + process["system"]
        assert process["cpu"] - total_us in range(4) or process["cpu"] == ticks_us
        assert {row["rss_anon"] for row in ours.values()} == {process["rss_anon"]}
        single = rows(PROCESS, both.process)[alone]
        own = {name: value for name, value in single.items() if name in found[alone]}
        assert found[alone] == {**own, "tid": alone}
        again = tasks.take(full=False, threads=True)
        assert ours.keys().isdisjoint(rows(THREAD, again.thread))
        assert ours.keys() <= rows(THREAD, tasks.take(full=True, threads=True).thread).keys()


def test_what_is_counted_by_thread_alone_is_absent_where_threads_are_not_read(tasks: Proc) -> None:
    with child(several) as pid:
        both = tasks.take(full=False, threads=False)
        assert both.thread is None
        row = rows(PROCESS, both.process)[pid]
        assert row["run_delay"] is row["voluntary_switches"] is None
        assert row["cpu"] <= sum(thread_cpu_us(pid).values()) + 4
        with_threads = tasks.take(full=False, threads=True)
        assert with_threads.thread is not None
        assert rows(PROCESS, with_threads.process)[pid]["run_delay"] is not None
        without = tasks.take(full=True, threads=False)
        assert without.thread is None
        assert rows(PROCESS, without.process)[pid]["run_delay"] is None
        assert rows(PROCESS, without.process)[pid]["cpu"] >= row["cpu"]


def ending() -> None:
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()


def test_time_of_threads_that_ended_before_anybody_looked_is_counted() -> None:
    with child(ending) as pid:
        tasks = Proc()
        row = taken(tasks)[pid]
        assert row["cpu"] >= 50_000 > sum(thread_cpu_us(pid).values())
        assert row["voluntary_switches"] is None  # Its one thread does not know those of the other.
        tasks.close()


def test_what_only_the_owner_may_know_is_absent_for_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with child() as pid:
        reading, writing = os.pipe()
        asker = os.fork()
        if asker == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                walk.YOUNG_NS = 0
                tasks = Proc()
                both = tasks.take(full=True, threads=True)
                row, private = rows(PROCESS, both.process)[pid], rows(PROCESS_PRIVATE, both.private)[pid]
                own = rows(PROCESS, both.process)[os.getpid()]
                thread = rows(THREAD, both.thread)[pid]
                for each in (row, private, own, thread):
                    each.update({name: each[name].hex() for name in each if type(each[name]) is bytes})
                os.write(writing, json.dumps([row, private, own, thread]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            row, private, own, thread = json.load(pipe)
        os.waitpid(asker, 0)
        right = told(pid)
        assert {name: row[name] for name in right if type(right[name]) is int} == {
            name: None if name.endswith(("_bytes", "_chars")) else value
            for name, value in right.items()
            if type(value) is int
        }
        assert private["namespace"] is None
        assert private["syscall"] == -1
        assert private["wchan"] == "00" * 32
        assert own["uid"] == 65534
        assert thread["read_bytes"] is None


def test_what_is_private_is_there_for_whoever_may_know_it(tasks: Proc) -> None:
    with child() as pid:
        row = rows(PROCESS_PRIVATE, tasks.take(full=True, threads=False).private)[pid]
        assert row["namespace"] == os.stat("/proc/self/ns/pid").st_ino
        assert row["descriptors"] == len(os.listdir(f"/proc/{pid}/fd"))
        assert row["namespace_pid"] == int(lines(f"/proc/{pid}/status")["NSpid"].split()[-1])
        assert row["tcp_sent"] is None
        with open(f"/proc/{pid}/wchan", "rb") as file:
            assert row["wchan"].rstrip(b"\0") == file.read().replace(b"0", b"", 1)
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            assert row["syscall"] == int(file.read().split()[0])


def test_a_long_reading_rests_after_a_time_whatever_the_number(tasks: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    moments = count(step=walk.NAP_AFTER_NS)
    monkeypatch.setattr(walk, "sleep", naps.append)
    monkeypatch.setattr(walk, "monotonic_ns", lambda: 0)
    tasks.take(full=True, threads=False)
    assert naps == []
    monkeypatch.setattr(walk, "monotonic_ns", lambda: next(moments))
    found = tasks.take(full=True, threads=True)  # Reads every process anew.
    assert len(naps) >= len(rows(PROCESS, found.process)) > 1


def test_nothing_stays_open(tasks: Proc) -> None:
    before = present()
    own = Proc()
    with child(several):
        for _ in range(3):
            own.take(full=False, threads=True)
    own.close()
    # What tests before left may be closed meanwhile, whenever the collector comes to it.
    assert not present() - before
