# SPDX-License-Identifier: Apache-2.0
"""What the files of a real daemon say of processes, and what others do: ps, /proc, exact bytes, exit codes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.children import child
from tests.support.pinned import settled, stat, why_not
from tests.support.waiting import wait_until
from tests.support.whole import Recorder, a_recorder

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")

PAGE_BYTES = os.sysconf("SC_PAGESIZE")
TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        made.start()
        made.wait_for("process", f"pid = {os.getpid()}", "pid")
        yield made


def filed(recorder: Recorder) -> None:
    """Have the rows of processes be in files, which are what is asked from then on."""
    before = recorder.pid("sampler")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: recorder.pid("sampler") != before)
    recorder.flush()


def next_tick(recorder: Recorder) -> None:
    """Wait until all that is so by now was read: what ends after it is recorded after it."""
    for _ in range(2):
        with subprocess.Popen(["true"]) as short:
            short.wait()
        recorder.wait_for("exits", f"pid = {short.pid}", "pid")


def of(recorder: Recorder, pid: int, columns: str, table: str = "process") -> dict[str, Any]:
    """What is recorded of a process last."""
    (row,) = recorder.records(table, columns, where=f"pid = {pid}")
    return row


def told_by_ps() -> dict[int, tuple[str, ...]]:
    """PPID, UID, nice, threads, name and state of each process, but of those that make and are this listing."""
    out = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,uid=,ni=,nlwp=,state=,comm:16="], capture_output=True, text=True, check=True
    ).stdout
    found: dict[int, tuple[str, ...]] = {}
    for line in out.splitlines():
        pid, ppid, uid, nice, threads, state, comm = line.split(None, 6)
        found[int(pid)] = (ppid, uid, nice, threads, state, comm.removesuffix(" <defunct>"))
    return found


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here")
def test_ps_says_the_same_of_all_processes(recorder: Recorder) -> None:
    before = told_by_ps()
    next_tick(recorder)
    told = recorder.extract(
        "process", "--from=-10min", "--columns=pid,ppid,uid,nice,threads:last,state,comm,end", "--format=csv"
    )
    after = told_by_ps()
    names = ("ppid", "uid", "nice", "threads:last", "state", "comm")
    seen = {int(row["pid"]): tuple(row[name] for name in names) for row in told.rows if not row["end"]}
    # What was the same before and after was so at the moment, too; those of the test's own family are never at rest.
    compared = {pid: words for pid, words in after.items() if before.get(pid) == words and words[4] in "SIZT"}
    # What ended, and nobody has waited for yet, is told as ended.
    ended = {int(row["pid"]) for row in told.rows if row["end"]}
    compared = {pid: words for pid, words in compared.items() if (words[4], pid in ended) != ("Z", True)}
    missing = {pid: words for pid, words in compared.items() if pid not in seen and pid != 1}
    assert missing == {}, [row for row in told.rows if int(row["pid"]) in missing]
    # ps tells no nice value of what is scheduled in real time.
    alike = {pid: (words, seen[pid]) for pid, words in compared.items() if pid in seen}
    wrong = {
        pid: (words, told)
        for pid, (words, told) in alike.items()
        if any(one not in {"-", other} for one, other in zip(words[:3], told[:3], strict=True))
    }
    assert wrong == {}
    # ps tells the long names of threads of the kernel, and escapes what does not print.
    named = {pid: (words[5], told[5]) for pid, (words, told) in alike.items() if words[5].isascii()}
    assert {pid: pair for pid, pair in named.items() if not pair[0].startswith(pair[1]) and "\\" not in pair[1]} == {}
    # A sleeper may have been met awake, or with a thread that it has now and then.
    moved = [pid for pid, (words, told) in alike.items() if words[3:5] != told[3:5]]
    assert len(moved) <= max(3, len(compared) // 4), moved
    assert len(compared) >= 5


def busy(folder: Path) -> Callable[[], object]:
    """Compute, write, fault and read: something in every column."""

    def does() -> None:
        held = bytearray(16 * MIB)
        for at in range(0, len(held), PAGE_BYTES):
            held[at] = 1
        with (folder / "written").open("wb", buffering=0) as file:
            for _ in range(64):
                file.write(bytes(65536))
            os.fsync(file.fileno())
        with (folder / "written").open("rb", buffering=0) as file:
            while file.read(65536):
                pass
        until = time.process_time() + 0.3
        while time.process_time() < until:
            sum(range(1000))
        does.held = held  # type: ignore[attr-defined]

    return does


def test_files_say_of_a_child_what_proc_says(recorder: Recorder, tmp_path: Path) -> None:
    with child(busy(tmp_path)) as pid:
        settled(pid)
        next_tick(recorder)
        filed(recorder)
        fields = stat(str(pid))
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        spent_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        counters = ("cpu", "user", "system", "minor_faults", "major_faults", "read_bytes", "written_bytes",
                    "read_chars", "written_chars", "voluntary_switches", "involuntary_switches")  # fmt: skip
        gauges = ("rss_anon", "rss_file", "rss_shmem", "swap", "virtual", "threads")
        labels = [*(f"{name}:last" for name in (*counters, *gauges)), "ppid", "uid", "nice", "priority", "policy"]
        row = of(recorder, pid, ",".join((*labels, "state", "comm", "start")))
    assert (row["ppid"], row["uid"], row["state"]) == (os.getpid(), os.getuid(), "S")
    assert row["comm"] == fields[2].decode()
    assert (row["priority"], row["nice"]) == (int(fields[18]), int(fields[19]))
    assert row["policy"] == int(fields[41])
    assert (row["minor_faults:last"], row["major_faults:last"]) == (int(fields[10]), int(fields[12]))
    assert row["cpu:last"] == pytest.approx(spent_ns / 1e9, abs=1e-5)
    # Of a processor that others have, too, the kernel sees some ticks only, and makes /proc agree with the time.
    assert 0 < row["user:last"] + row["system:last"] <= (int(fields[14]) + int(fields[15])) * TICK_US / 1e6 + 0.1
    for name, its in (("read_bytes", "read_bytes"), ("written_bytes", "write_bytes"), ("read_chars", "rchar"),
                      ("written_chars", "wchar")):  # fmt: skip
        assert row[f"{name}:last"] == int(io[its]), name
    assert row["written_chars:last"] >= 4 * MIB
    for name, its in (("rss_anon", "RssAnon"), ("rss_file", "RssFile"), ("rss_shmem", "RssShmem"), ("swap", "VmSwap")):
        assert row[f"{name}:last"] == int(status[its].split()[0]) * 1024, name
    assert row["rss_anon:last"] >= 16 * MIB
    assert row["virtual:last"] == int(fields[23])
    assert row["threads:last"] == 1
    assert row["voluntary_switches:last"] == int(status["voluntary_ctxt_switches"])
    assert row["involuntary_switches:last"] == int(status["nonvoluntary_ctxt_switches"])


def test_bytes_over_loopback_are_exact(recorder: Recorder) -> None:
    tcp_bytes, udp_bytes, datagrams = 3_000_017, 1_234, 29
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagram:
        datagram.bind(("127.0.0.1", 0))

        def sends() -> None:
            with socket.create_connection(server.getsockname()) as tcp:
                tcp.sendall(bytes(tcp_bytes))
            with socket.socket(type=socket.SOCK_DGRAM) as udp:
                for _ in range(datagrams):
                    udp.sendto(bytes(udp_bytes), datagram.getsockname())

        def receives() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(65536):
                    pass
            for _ in range(datagrams):
                datagram.recv(65536)

        reading = os.fork()
        if reading == 0:
            receives()
            signal.pause()
            os._exit(0)
        try:
            with child(sends) as sending:
                settled(reading)
                next_tick(recorder)
                filed(recorder)
                columns = "tcp_sent:last,udp_sent:last,tcp_received:last,udp_received:last"
                sent = of(recorder, sending, columns, "process_private")
                received = of(recorder, reading, columns, "process_private")
        finally:
            os.kill(reading, signal.SIGKILL)
            os.waitpid(reading, 0)
    assert [sent[name] for name in columns.split(",")] == [tcp_bytes, udp_bytes * datagrams, 0, 0]
    assert [received[name] for name in columns.split(",")] == [0, 0, tcp_bytes, udp_bytes * datagrams]


def test_exit_codes_of_200_children(recorder: Recorder) -> None:
    codes: dict[int, tuple[str, str]] = {}
    last = 0
    for number in range(200):
        ending = f"kill -{number % 9 + 1} $$" if number % 5 == 4 else f"exit {number}"
        with subprocess.Popen(["sh", "-c", ending]) as process:
            process.wait()
        codes[process.pid] = (
            ("", str(-process.returncode)) if process.returncode < 0 else (str(process.returncode), "0")
        )
        last = process.pid
    recorder.wait_for("exits", f"pid = {last}", "pid")
    recorder.flush()
    told = recorder.extract("exits", "--from=-10min", "--format=csv")
    assert told.code == 0, told.err
    found = [row for row in told.rows if int(row["pid"]) in codes]
    assert len(found) == 200
    assert {int(row["pid"]): (row["exit_code"], row["signal"]) for row in found} == codes
    assert {row["comm"] for row in found} == {"sh"}
    assert {int(row["ppid"]) for row in found} == {os.getpid()}


AFTER_THE_END_S = 0.002
BURNING = """
import os, sys, time
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    os.getppid()
"""


def test_cpu_of_all_processes_is_that_of_the_machine(recorder: Recorder) -> None:
    """By cgroup, by process, and by /proc/stat, which counts in ticks; interrupts are nobody's there."""

    def spent_s() -> float:
        words = Path("/proc/stat").read_text().splitlines()[0].split()
        return (int(words[1]) + int(words[2]) + int(words[3])) / os.sysconf("SC_CLK_TCK")

    # A reading may come late where the machine is busy: what is recorded lies between the most and the least spent.
    most_s = -spent_s()
    next_tick(recorder)
    start_ns, least_s = time.time_ns(), -spent_s()
    words = [sys.executable, "-I", "-S", "-c", BURNING, "2"]
    burning = [os.posix_spawn(words[0], words, os.environ) for _ in range(os.cpu_count() or 1)]
    used = {pid: os.wait4(pid, 0)[2] for pid in burning}
    least_s += spent_s()
    next_tick(recorder)
    end_ns = time.time_ns()
    next_tick(recorder)
    most_s += spent_s()
    window = {"start": start_ns, "end": end_ns}
    by_process = {row["pid"]: row for row in recorder.records("process", "pid,cpu:sum,end", **window)}
    by_cgroup = recorder.records("process", "cpu:sum", group_by="cgroup", **window)
    whole = sum(row["cpu:sum"] for row in recorder.records("process", "cpu:sum", **window))
    assert sum(row["cpu:sum"] for row in by_cgroup) == pytest.approx(whole, rel=1e-6)
    for pid, usage in used.items():
        assert by_process[pid]["cpu:sum"] == pytest.approx(usage.ru_utime + usage.ru_stime, rel=0.02)
    # What a process does after its end is told, giving back its memory, is in no record of it.
    ends = sum(1 for row in by_process.values() if row["end"])
    assert whole <= most_s * 1.02 + 0.1
    assert whole >= least_s * 0.98 - 0.1 - ends * AFTER_THE_END_S
