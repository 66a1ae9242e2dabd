# SPDX-License-Identifier: Apache-2.0
"""The kernel's pass over all tasks, against what /proc tells of the same tasks."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysmond.cgroups.tree import numbering_now
from sysmond.errors import Error
from sysmond.probe import ABSENT, Host
from sysmond.tasks.bpf.loader import LoadRequest, load
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD
from tests.support.pinned import child, loaded, loaded_by, read_proc, rows, settled, stat, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")

PAGE = os.sysconf("SC_PAGESIZE")
TICKS = os.sysconf("SC_CLK_TCK")
Row = dict[str, Any]


@pytest.fixture(scope="module", params=["snapshot", "iterate"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Pins with either program; the second is there for kernels that have not the first."""
    with loaded_by(request.param, tmp_path_factory.mktemp("walk")) as pins:
        yield pins


@pytest.fixture(scope="module")
def walk(folder: str) -> Iterator[Walk]:
    opened = Walk(folder)
    yield opened
    opened.close()


def process(walk: Walk, pid: int, *, full: bool = True) -> Row | None:
    found = [row for row in rows(PROCESS, walk.take(full=full, threads=False).process) if row["pid"] == pid]
    assert len(found) <= 1
    return found[0] if found else None


def private(walk: Walk, pid: int) -> Row:
    (found,) = (row for row in rows(PROCESS_PRIVATE, walk.take(full=True, threads=False).private) if row["pid"] == pid)
    return found


def status(path: str) -> dict[bytes, bytes]:
    return dict(line.split(b":\t", 1) for line in read_proc(f"{path}/status").splitlines())


def amounts(path: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split(": ") for line in read_proc(path).decode().splitlines())}


def cgroup(pid: int) -> int:
    chosen = numbering_now(Host())
    for line in read_proc(f"{pid}/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == ",".join(chosen.controllers):
            return os.stat(chosen.point + path).st_ino
    raise AssertionError(chosen)


def of_proc(path: str) -> Row:
    """What /proc tells of a process or thread, as far as it is exact."""
    fields, words = stat(path), status(path)
    on_cpu_ns, waited_ns, _ = map(int, read_proc(f"{path}/schedstat").split())
    io = amounts(f"{path}/io")
    row: Row = {
        "ppid": int(fields[4]),
        "uid": int(words[b"Uid"].split()[0]),
        "comm": fields[2],
        "cpu": on_cpu_ns // 1000,
        "run_delay": waited_ns // 1000,
        "minor_faults": int(fields[10]),
        "major_faults": int(fields[12]),
        "voluntary_switches": int(words[b"voluntary_ctxt_switches"]),
        "involuntary_switches": int(words[b"nonvoluntary_ctxt_switches"]),
        "read_bytes": io["read_bytes"],
        "written_bytes": io["write_bytes"],
        "read_chars": io["rchar"],
        "written_chars": io["wchar"],
        "virtual": int(fields[23]),
        "threads": int(fields[20]),
        "last_cpu": int(fields[39]),
        "priority": int(fields[18]),
        "nice": int(fields[19]),
        "policy": int(fields[41]),
        "state": fields[3],
        "swap": kibibytes(words, b"VmSwap"),
    }
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 17):
        # Before, /proc leaves out what processors have not yet added.
        row |= {name: kibibytes(words, word) for name, word in RSS.items()}
    return row


RSS = {"rss_anon": b"RssAnon", "rss_file": b"RssFile", "rss_shmem": b"RssShmem"}


def kibibytes(words: dict[bytes, bytes], name: bytes) -> int:
    return int(words[name].split()[0]) * 1024


QUIET = "x = bytearray(5_000_000)\nopen('/proc/self/comm', 'wb').write(b'a\\n\\x1b[1m\\xff\\xfe')"
SHARED = "import mmap\nm = mmap.mmap(-1, 3 << 20)\nm.write(b'x' * (3 << 20))"
BUSY = "import time\nwhile time.process_time() < 0.3: pass"
OUTPUT = "import os, sys\nf = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)\nos.write(f, b'x' * 70_000)\nos.fsync(f)"


@pytest.mark.parametrize("program", [QUIET, SHARED, BUSY, OUTPUT])
def test_a_process_is_as_proc_has_it(walk: Walk, program: str, tmp_path: Path) -> None:
    with child(program, str(tmp_path / "file")) as running:
        settled(running.pid)
        before = of_proc(str(running.pid))
        row = process(walk, running.pid)
        assert row is not None
        assert before == of_proc(str(running.pid)) == {name: row[name] for name in before}
        assert row["start"] * TICKS // 10**9 == int(stat(str(running.pid))[22])
        assert row["cgroup"] == cgroup(running.pid)
        ticks = sum(map(int, stat(str(running.pid))[14:16])) / TICKS
        # ``user`` and ``system`` are what the kernel's clock happened to see: of a busy machine /proc has made it fit.
        assert row["cpu"] / 1e6 == pytest.approx(ticks, abs=0.05)


def test_what_a_child_does_is_seen_in_its_row(walk: Walk, tmp_path: Path) -> None:
    with child(BUSY) as busy, child(SHARED) as shared, child(OUTPUT, str(tmp_path / "file")) as writing:
        every = {row["pid"]: row for row in rows(PROCESS, walk.take(full=True, threads=False).process)}
    assert every[busy.pid]["cpu"] >= 300_000
    assert every[shared.pid]["rss_shmem"] >= 3 << 20
    assert every[writing.pid]["written_chars"] >= 70_000


def test_nice_and_policy_are_those_set(walk: Walk) -> None:
    program = "import os\nos.nice(7)\nos.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))"
    with child(program) as running, child("import os\nos.sched_setscheduler(0, 2, os.sched_param(5))") as urgent:
        row, other = process(walk, running.pid), process(walk, urgent.pid)
        assert row is not None
        assert other is not None
        assert (row["nice"], row["policy"], row["priority"]) == (7, 3, 27)
        assert (other["policy"], other["priority"]) == (2, -6)


def test_states_are_those_of_proc(walk: Walk) -> None:
    with child("") as stopped, child("import os\nif not os.fork(): os._exit(0)") as parent:
        os.kill(stopped.pid, signal.SIGSTOP)
        (dead,) = (int(each) for each in read_proc(f"{parent.pid}/task/{parent.pid}/children").split())
        while stat(str(stopped.pid))[3] != b"T" or stat(str(dead))[3] != b"Z":
            time.sleep(0.005)
        every = {row["pid"]: row for row in rows(PROCESS, walk.take(full=True, threads=False).process)}
        assert every[stopped.pid]["state"] == b"T"
        assert (every[dead]["state"], every[dead]["rss_anon"], every[dead]["ppid"]) == (b"Z", 0, parent.pid)
        assert every[os.getpid()]["state"] == b"R"
        os.kill(stopped.pid, signal.SIGCONT)


THREADED = """
import sys, threading, time
def work():
    end = time.thread_time() + 0.05
    while time.thread_time() < end: pass
ended = [threading.Thread(target=work) for _ in range(3)]
for each in ended: each.start()
for each in ended: each.join()
def stay():
    work()
    ready.release()
    threading.Event().wait()
ready = threading.Semaphore(0)
for _ in range(4): threading.Thread(target=stay, daemon=True).start()
for _ in range(4): ready.acquire()
"""


def test_a_process_is_all_its_threads_and_those_that_ended(walk: Walk) -> None:
    with child(THREADED) as running:
        settled(running.pid)
        row = process(walk, running.pid)
        threads = [
            each
            for each in rows(THREAD, walk.take(full=True, threads=True).thread or b"")
            if each["pid"] == running.pid
        ]
        assert row is not None
        io, faults = amounts(f"{running.pid}/io"), int(stat(str(running.pid))[10])
        live = {int(each) for each in os.listdir(f"/proc/{running.pid}/task")}
        assert {each["tid"] for each in threads} == live
        for each in threads:
            of_thread = of_proc(f"{running.pid}/task/{each['tid']}")
            assert of_thread == {name: each[name] for name in of_thread}
    assert row["threads"] == len(threads) == 5
    assert row["cpu"] - sum(each["cpu"] for each in threads) >= 140_000
    assert row["cpu"] >= 350_000
    assert (row["minor_faults"], row["read_chars"], row["written_chars"]) == (faults, io["rchar"], io["wchar"])


def test_only_what_changed_is_told(walk: Walk) -> None:
    with child("") as resting, child(THREADED) as threaded:
        settled(resting.pid)
        settled(threaded.pid)
        assert process(walk, resting.pid, full=True) is not None
        time.sleep(0.001)  # What runs has its time put down when it stops to.
        taken = walk.take(full=False, threads=True)
        pids = {row["pid"] for row in rows(PROCESS, taken.process)}
        assert not pids & {resting.pid, threaded.pid}
        assert len(pids) < taken.process.walked
        assert os.getpid() in pids  # It ran in between.
        os.setpriority(os.PRIO_PROCESS, resting.pid, 3)
        # What others change of who rests is looked at in turns.
        told = [process(walk, resting.pid, full=False) for _ in range(8)]
        (again,) = (row for row in told if row is not None)
        assert again["nice"] == 3
        assert process(walk, resting.pid, full=False) is None
        assert process(walk, resting.pid, full=True) is not None


def test_threads_are_told_as_they_change(walk: Walk) -> None:
    with child(THREADED) as running:
        settled(running.pid)
        first = walk.take(full=True, threads=True).thread
        assert first is not None
        assert running.pid in {row["pid"] for row in rows(THREAD, first)}
        second = walk.take(full=False, threads=True).thread
        assert second is not None
        assert running.pid not in {row["pid"] for row in rows(THREAD, second)}
        assert walk.take(full=False, threads=False).thread is None


def test_a_full_pass_tells_of_every_process(walk: Walk) -> None:
    walk.take(full=True, threads=False)  # All have been told once: what is told of all now is asked for.
    before = {int(each) for each in os.listdir("/proc") if each.isdigit()}
    taken = walk.take(full=True, threads=False)
    after = {int(each) for each in os.listdir("/proc") if each.isdigit()}
    pids = {row["pid"] for row in rows(PROCESS, taken.process)}
    # Where a machine hides its own first process even from root, it hides it from BPF.
    hidden = {pid for pid in before & after - pids if not os.access(f"/proc/{pid}/ns/pid", os.R_OK)}
    assert before & after - hidden <= pids
    assert taken.process.full
    assert taken.process.lost == 0
    assert taken.process.walked == len(pids) == len(rows(PROCESS_PRIVATE, taken.private))


def test_what_waits_is_known_by_name(walk: Walk) -> None:
    with child("import os\nfor _ in range(90): os.dup(1)") as running:
        settled(running.pid)
        row = private(walk, running.pid)
        assert row["wchan"].decode() == read_proc(f"{running.pid}/wchan").decode()
        assert row["syscall"] == int(read_proc(f"{running.pid}/syscall").split()[0])
        assert row["descriptors"] == len(os.listdir(f"/proc/{running.pid}/fd")) >= 93
        assert row["namespace_pid"] == running.pid
        assert row["namespace"] == os.stat(f"/proc/{running.pid}/ns/pid").st_ino


def test_a_pid_namespace_has_numbers_of_its_own(walk: Walk) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", "echo; read nothing"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as unshared:
        assert unshared.stdout is not None
        if not unshared.stdout.readline():
            pytest.skip("no pid namespace may be made here")
        (pid,) = (int(each) for each in read_proc(f"{unshared.pid}/task/{unshared.pid}/children").split())
        row = private(walk, pid)
        assert (row["namespace_pid"], row["namespace"]) == (1, os.stat(f"/proc/{pid}/ns/pid").st_ino)


def test_what_the_kernel_does_not_count_is_absent(walk: Walk) -> None:
    accounting = Path("/proc/sys/kernel/task_delayacct")
    if not accounting.exists() or accounting.read_text().strip() != "0":
        pytest.skip("delay accounting is on")
    row = process(walk, os.getpid())
    assert row is not None
    assert row["block_delay"] == ABSENT


def test_sums_never_sink_while_threads_come_and_go(walk: Walk) -> None:
    """What a thread did moves from itself to its process when it ends; no pass sees it in neither, or in both."""
    program = (
        "import threading\nwhile True:\n t = threading.Thread(target=sum, args=(range(20000),)); t.start(); t.join()"
    )
    with subprocess.Popen(["python3", "-I", "-S", "-c", program]) as running:
        seen: list[Row] = []
        while len(seen) < 300:
            row = process(walk, running.pid)
            assert row is not None
            seen.append(row)
        running.kill()
    for name in ("cpu", "user", "system", "minor_faults", "voluntary_switches", "run_delay"):
        values = [row[name] for row in seen]
        assert values == sorted(values), name
    assert seen[-1]["cpu"] > seen[0]["cpu"]


def test_arrays_that_are_too_short_lose_and_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sysmond.tasks.bpf import loader  # noqa: PLC0415
    from sysmond.tasks.bpf import walk as walks  # noqa: PLC0415

    monkeypatch.setattr(loader, "PROCESSES_MAX", 8)
    monkeypatch.setattr(walks, "PASSES_MAX", 1)
    with loaded(tmp_path) as report:
        short = Walk(report["folder"])
        taken = short.take(full=True, threads=True)
        assert len(rows(PROCESS, taken.process)) == len(rows(PROCESS_PRIVATE, taken.private)) == 8
        assert taken.process.lost == taken.process.walked - 8 > 0
        assert taken.private.lost == 0  # Of what has no row there is nothing private either.
        assert taken.thread is not None
        assert len(rows(THREAD, taken.thread)) == 1
        assert taken.thread.lost == taken.thread.walked - 1
        del taken
        short.close()


PASSES = 20
# Each of three arrays is mapped for the full pass, and less for those that follow, rarely a little more: 5 calls each.
MAPPING_CALLS_MAX = 3 * 4 * 5
TRACED = f"""
import os, sys
from sysmond.tasks.bpf.walk import Walk
walk = Walk(sys.argv[1])
os.getpgid(0)
for number in range({PASSES}): walk.take(full=number == 0, threads=True)
os.getpgid(0)
"""


def test_system_calls_do_not_grow_with_tasks(walk: Walk, folder: str, tmp_path: Path, repository: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not there")

    def counted() -> int:
        trace = tmp_path / "trace"
        python = [sys.executable, "-P", "-c", TRACED, folder]
        subprocess.run(["strace", "-o", trace, *python], check=True, env={**os.environ, "PYTHONPATH": str(repository)})
        calls = [line.partition("(")[0] for line in trace.read_text().splitlines()]
        first, last = (number for number, call in enumerate(calls) if call == "getpgid")
        return last - first - 1

    crowd = ["sh", "-c", "for i in $(seq 300); do sleep 600 & done; echo; wait"]
    with subprocess.Popen(crowd, stdout=subprocess.PIPE, start_new_session=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        many = counted()
        os.killpg(running.pid, signal.SIGKILL)
    of_passes = PASSES * {"snapshot": 1, "iterate": 3}[walk.way]
    assert 0 <= many - of_passes <= MAPPING_CALLS_MAX
    assert 0 <= counted() - of_passes <= MAPPING_CALLS_MAX


def test_without_pins_it_says_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(Error, match="missing; the BPF loader has not run"):
        Walk(str(tmp_path / "none"))
    with pytest.raises(Error, match="no BPF program that reads tasks; the loader reports why"):
        Walk(str(tmp_path))


def test_a_restart_finds_the_pins_and_reads_in_full(tmp_path: Path) -> None:
    with loaded(tmp_path):
        for _ in range(2):
            reader = Walk(str(load(LoadRequest(str(tmp_path)))["folder"]))
            taken = reader.take(full=True, threads=False)
            assert os.getpid() in {row["pid"] for row in rows(PROCESS, taken.process)}
            assert taken.process.walked == len(rows(PROCESS, taken.process))
            del taken
            reader.close()
