# SPDX-License-Identifier: Apache-2.0
"""Processes that end here, by each way there is: each once, as wait(2) has it, and what was lost counted."""

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sysmond_probes.exits import Ended

from sysmond.base.model import ABSENT
from sysmond.errors import Error
from sysmond.probe import Host, Records
from sysmond.tasks.bpf.pins import Array, Drain
from sysmond.tasks.ends import exits
from sysmond.tasks.ends.exits import Exits, open_exits
from sysmond.tasks.ends.exits_netlink import Heard, Paired, TaskstatsExits
from sysmond.tasks.ends.taskstats import READINGS_MAX
from sysmond.tasks.passes import passes_of
from sysmond.tasks.tables import ABSENT_U32, EXITS, EXITS_RECORD
from tests.support.waiting import HANG_S, wait_until

NAMES = [metric.name for metric in EXITS.metrics]
WAYS: dict[str, Callable[[], Exits]] = {"both": Paired, "connector": Heard, "taskstats": TaskstatsExits}
EXIT_THREAD = {"x86_64": 60, "aarch64": 93}
CLONE_NEWNET = 0x40000000
NOBODY = 65534

Record = dict[str, Any]


class Bench:
    """A way that is open, and what it told so far."""

    def __init__(self, name: str, way: Exits) -> None:
        self.name = name
        self.way = way
        self.told: list[Record] = []
        self.lost = 0

    def take(self) -> None:
        records = self.way.take()
        self.lost += records.lost
        self.told += [dict(zip(NAMES, row, strict=True)) for row in EXITS_RECORD.iter_unpack(records.rows)]
        records.release()

    def of(self, pids: set[int]) -> list[Record]:
        """What was told of processes, as soon as each was told of."""
        limit_s = time.monotonic() + HANG_S
        while True:
            self.take()
            found = [record for record in self.told if record["pid"] in pids]
            if {record["pid"] for record in found} == pids:
                self.take()  # What is told twice is told by now.
                return [record for record in self.told if record["pid"] in pids]
            assert time.monotonic() < limit_s, f"{len(found)} of {len(pids)}"
            time.sleep(0.01)

    def only(self, pid: int) -> Record:
        (record,) = self.of({pid})
        return record


@pytest.fixture(params=WAYS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    try:
        way = WAYS[request.param]()
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    yield Bench(request.param, way)
    way.close()


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Run Python, and give its number and what it said."""
    child = subprocess.Popen(
        [sys.executable, "-IS", "-c", program, *arguments], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    said, _ = child.communicate(timeout=HANG_S)
    return child.pid, said


def status(record: Record) -> int:
    """What wait(2) would give."""
    return int(record["exit_code"] << 8 | record["core_dumped"] << 7 | record["signal"])


FORKING = """
import json, os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
ended = {}
for way in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        if way >= 0:
            os._exit(way)
        signal.signal(-way, signal.SIG_DFL) if -way not in (9, 19) else None
        os.kill(os.getpid(), -way)
    ended[child] = os.waitpid(child, 0)[1]
print(json.dumps(ended))
"""


def test_the_code_of_each_child_is_what_its_parent_waited_for(bench: Bench, tmp_path: Path) -> None:
    signals = [1, 2, 3, 6, 8, 9, 11, 14, 15, 31]
    before = os.getcwd()
    os.chdir(tmp_path)  # Where cores go.
    try:
        parent, said = run(FORKING, json.dumps([*range(256), *(-number for number in signals)]))
    finally:
        os.chdir(before)
    waited = {int(pid): code for pid, code in json.loads(said).items()}
    assert len(waited) == 256 + len(signals)
    found = bench.of(set(waited))
    assert {record["pid"]: status(record) for record in found} == waited
    assert len(found) == len(waited)
    assert all(record["ppid"] == parent for record in found)
    assert bench.lost == 0


def test_a_child_lived_within_its_time(bench: Bench) -> None:
    begun_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    pid, _ = run("import time; time.sleep(0.05)")
    ended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    record = bench.only(pid)
    slack_ns = 500_000_000 if bench.name == "taskstats" else 0
    assert begun_ns - slack_ns <= record["start"] <= record["end"] <= ended_ns + slack_ns + 1_000_000
    assert record["end"] - record["start"] >= 50_000_000
    if bench.name != "connector":
        assert record["cgroup"] == ABSENT


def test_a_name_of_odd_bytes_is_kept(bench: Bench) -> None:
    name = b"a\n\x1b[1m\xff\xfe '\"\\)"
    program = f"open('/proc/self/comm', 'wb').write({name!r}); import os; os._exit(0)"
    child = subprocess.Popen([sys.executable, "-IS", "-c", program])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # For the connector alone: /proc still has it.
    record = bench.only(child.pid)
    child.wait()
    assert record["comm"].rstrip(b"\0") == name
    assert record["uid"] == os.getuid()


def test_what_nobody_waited_for_yet_is_found_in_proc() -> None:
    with_one = Heard_or_skip()
    child = subprocess.Popen([sys.executable, "-IS", "-c", "sum(range(3_000_000)); raise SystemExit(5)"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    record = with_one.only(child.pid)
    with_one.way.close()
    _, code, used = os.wait4(child.pid, 0)
    child.returncode = 5
    assert status(record) == code
    assert record["minor_faults"] == used.ru_minflt
    assert record["cpu"] == record["user"] + record["system"]
    assert abs(record["user"] + record["system"] - 1e6 * (used.ru_utime + used.ru_stime)) <= 20_000
    assert (record["uid"], record["ppid"]) == (os.getuid(), os.getpid())
    assert record["peak_rss"] == ABSENT


def test_of_what_was_waited_for_the_connector_alone_says_absent() -> None:
    with_one = Heard_or_skip()
    pid, _ = run("")
    record = with_one.only(pid)
    with_one.way.close()
    assert (record["cpu"], record["peak_rss"], record["ppid"]) == (ABSENT, ABSENT, os.getpid())
    assert record["uid"] in {os.getuid(), ABSENT_U32}  # It ended a moment after it began.


def Heard_or_skip() -> Bench:  # noqa: N802  named as what it makes
    try:
        return Bench("connector", Heard())
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")


THREADS = """
import json, os, resource, threading, time
from threading import Barrier, Thread
barrier, tids = Barrier(20), []
def work():
    tids.append(threading.get_native_id())
    barrier.wait()
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        pass
threads = [Thread(target=work) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
used = resource.getrusage(resource.RUSAGE_SELF)
peak_kib = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
print(json.dumps([tids, used.ru_utime + used.ru_stime, used.ru_minflt, peak_kib]), flush=True)
"""

# Resident pages are counted on each CPU and added up a batch at a time (lib/percpu_counter.c), in three kinds: what
# two readers see of one moment differs by as much.
CPUS = os.cpu_count() or 1
UNCOUNTED_BYTES = 3 * CPUS * max(32, 2 * CPUS) * os.sysconf("SC_PAGESIZE")


def test_a_process_of_twenty_threads_is_one_record_with_the_totals(bench: Bench) -> None:
    pid, said = run(THREADS)
    tids, cpu_s, faults, peak_kib = json.loads(said)
    record = bench.only(pid)
    assert len(set(tids)) == 20
    assert [each for each in bench.told if each["pid"] in tids] == []
    if bench.name != "connector":
        assert record["cpu"] >= 200_000
        assert record["cpu"] == pytest.approx(cpu_s * 1e6, rel=0.3)
        assert record["minor_faults"] >= faults
        assert record["peak_rss"] >= peak_kib * 1024 - UNCOUNTED_BYTES


LEADERLESS = """
import ctypes, os, sys, threading, time
def stay():
    sys.stdin.read()
    os._exit(3) if sys.argv[2] == "exit" else os.execv("/bin/true", ["true"])
if sys.argv[2] == "exit":
    threading.Thread(target=stay).start()
    print("begun", flush=True)
    ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)
print("begun", flush=True)
threading.Thread(target=stay).start()
time.sleep(3600)
"""


@pytest.mark.parametrize("how", ["exit", "exec"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", WAYS)
def test_a_process_that_outlives_its_first_thread_ends_once(name: str, when: str, how: str) -> None:
    number = EXIT_THREAD.get(os.uname().machine)
    if number is None:
        pytest.skip(f"the number of exit(2) is not known here for {os.uname().machine}")
    command = [sys.executable, "-IS", "-c", LEADERLESS, str(number), how]

    def begin() -> "subprocess.Popen[bytes]":
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout
        assert child.stdout.readline() == b"begun\n"
        return child

    child = begin() if when == "before" else None
    try:
        bench = Bench(name, WAYS[name]())
    except Error as problem:
        if child:
            child.kill()
            child.communicate()
        pytest.skip(f"unavailable here: {problem}")
    child = child or begin()
    if how == "exit":
        wait_until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].startswith("Z"))
    for _ in range(3):
        bench.take()
    assert [record for record in bench.told if record["pid"] == child.pid] == []
    child.communicate()
    record = bench.only(child.pid)
    bench.way.close()
    assert status(record) == child.returncode << 8 == (0x0300 if how == "exit" else 0)


SPAWNING = """
import json, os, sys
pids = []
for _ in range(int(sys.argv[1])):
    pids.append(os.posix_spawn("/bin/true", ["true"], {}))
    os.waitpid(pids[-1], 0)
print(json.dumps(pids))
"""


def test_a_thousand_that_live_for_a_moment_are_each_recorded_once(bench: Bench) -> None:
    _, said = run(SPAWNING, "1000")
    pids = json.loads(said)
    found = bench.of(set(pids))
    assert sorted(record["pid"] for record in found) == sorted(pids)
    assert {status(record) for record in found} == {0}
    assert bench.lost == 0
    if bench.name != "connector":
        assert {record["comm"].rstrip(b"\0") for record in found} == {b"true"}


@pytest.mark.parametrize("way", [Paired, Heard, TaskstatsExits])
def test_what_a_buffer_does_not_hold_is_counted(way: type[Paired | Heard | TaskstatsExits]) -> None:
    try:
        bench = Bench("", way(buffer_bytes=16384))
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    bench.take()
    before = bench.lost
    _, said = run(SPAWNING, "300")
    pids = set(json.loads(said))
    for _ in range(READINGS_MAX + 3):  # Both together wait for one another.
        bench.take()
    found = [record["pid"] for record in bench.told if record["pid"] in pids]
    assert len(set(found)) == len(found)
    assert 0 < len(pids) - len(found) <= bench.lost - before
    goes_on(bench)


def test_where_the_kernel_tells_no_number_each_overrun_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.ends.netlink._SO_MEMINFO", 9999)
    try:
        bench = Bench("", Heard(buffer_bytes=16384))
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    run(SPAWNING, "100")
    bench.take()
    assert bench.lost >= 1
    goes_on(bench)


def goes_on(bench: Bench) -> None:
    """See that an end is told of again; others on this machine may fill so small a buffer, too."""
    spawned: set[int] = set()

    def is_told() -> bool:
        bench.take()
        spawned.update(json.loads(run(SPAWNING, "1")[1]))
        bench.take()
        return any(record["pid"] in spawned for record in bench.told)

    wait_until(is_told)
    bench.way.close()


def opened_as(prepare: str) -> str:
    """Open the best way in a process that first does something, and give its line."""
    program = f"""
import ctypes, os
from sysmond.errors import Error
from sysmond.tasks.ends import exits_netlink  # Now, since it may be somebody later who may not read where Python lies.
from sysmond.tasks.ends.exits import open_exits
{prepare}
try:
    print(open_exits("/nowhere")[1])
except Error as problem:
    print("refused:", problem)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("\n") == 1
    return answer.stdout.strip()


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives its rights away")


@needs_root
def test_with_all_rights_both_are_used_and_the_line_says_why_not_bpf() -> None:
    line = opened_as("")
    if not line.startswith("by proc connector and taskstats"):
        pytest.skip(f"unavailable here: {line}")
    assert line == "by proc connector and taskstats; not by BPF: the BPF loader has not run"


@needs_root
def test_without_rights_the_connector_alone_is_left_or_nothing() -> None:
    line = opened_as(f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})")
    if "CONFIG_" in line:
        pytest.skip(f"unavailable here: {line}")
    assert line.startswith(("by proc connector; not by BPF", "refused: no way to learn of processes that end: BPF"))
    assert "taskstats: Operation not permitted; expected CAP_NET_ADMIN in the initial namespaces" in line
    assert line.startswith("by") or "proc connector: Operation not permitted; CAP_NET_ADMIN, or Linux 6.6" in line


@needs_root
def test_in_another_network_namespace_nothing_is_told_and_that_is_said() -> None:
    if ctypes.CDLL(None).unshare(0) or not os.access("/proc/self/ns/net", os.F_OK):
        pytest.skip("no namespaces here")
    line = opened_as(f"assert not ctypes.CDLL(None).unshare({CLONE_NEWNET})")
    assert line.startswith("refused: no way to learn of processes that end: BPF: ")
    right = "expected to run in the initial network namespace"
    assert f"{right}; taskstats: reports no end; {right}" in line


def test_where_the_connector_is_missing_taskstats_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.ends.connector._NETLINK_CONNECTOR", 25)  # No protocol of this number.
    try:
        way, line = open_exits("/nowhere")
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    way.close()
    assert line.startswith("by taskstats; not by BPF: ")
    assert "nor by proc connector: Protocol not supported; expected a kernel with CONFIG_PROC_EVENTS" in line


def load(runtime: str, *words: str) -> "subprocess.CompletedProcess[str]":
    loader = [sys.executable, "-m", "sysmond.tasks.bpf.loader", "--runtime-dir", runtime, *words]
    return subprocess.run(loader, capture_output=True, text=True, check=False)


@pytest.fixture
def pinned(runtime: Path) -> Iterator[str]:
    """A runtime folder for which the BPF programs are loaded."""
    if os.getuid() != 0:
        pytest.skip("only root loads BPF programs")
    loaded = load(str(runtime))
    try:
        if loaded.returncode:
            pytest.skip(f"unavailable here: {loaded.stderr.strip()}")
        refused = json.loads((runtime / "bpf.json").read_text())["programs"][exits.PROGRAM].get("refused")
        if refused:
            pytest.skip(f"unavailable here: {refused}")
        yield str(runtime)
    finally:
        load(str(runtime), "--unload")


def test_by_bpf_nothing_is_missed_while_nobody_listens(pinned: str) -> None:
    _, said = run(SPAWNING, "200")
    pids = json.loads(said)
    way, line = open_exits(pinned)
    assert line == "by BPF"
    bench = Bench("BPF", way)
    bench.take()
    way.close()  # Whoever comes next goes on where this one was.
    _, said = run(SPAWNING, "100")
    pids += json.loads(said)
    bench.way, _ = open_exits(pinned)
    found = bench.of(set(pids))
    assert sorted(record["pid"] for record in found) == sorted(pids)
    assert {(status(record), record["comm"].rstrip(b"\0")) for record in found} == {(0, b"true")}
    assert bench.lost == 0
    bench.way.close()


class Probing:
    """The probe, and what it told so far; it looks for what the loader did at every reading."""

    def __init__(self, runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sysmond_probes.exits.RETRY_BPF_S", 0.0)
        self.host = Host()
        self.host.runtime = runtime
        self.ended = Ended()
        self.told: list[int] = []

    def take(self) -> None:
        records = self.ended.records(self.host, False)
        self.told += [row[2] for row in EXITS_RECORD.iter_unpack(records.rows)]
        records.release()

    def close(self) -> None:
        assert self.ended._exits
        self.ended._exits.close()
        passes_of(self.host).close()


def test_the_probe_goes_over_to_bpf_and_tells_of_each_once(pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Path(pinned) / "bpf.json"
    report.rename(report.with_suffix(".later"))
    probing = Probing(pinned, monkeypatch)
    spawned: list[int] = []
    try:
        probing.take()
    except Error as problem:
        pytest.skip(f"no other way is to be had here: {problem}")
    for number in range(4):
        spawned += json.loads(run(SPAWNING, "50")[1])
        if number == 2:
            assert probing.ended.way.startswith("by proc connector")
            report.with_suffix(".later").rename(report)
        probing.take()
    assert probing.ended.way == "by BPF"
    probing.take()
    assert sorted(pid for pid in probing.told if pid in spawned) == sorted(spawned)
    probing.close()


def test_what_ended_as_another_way_was_taken_last_is_told_once(pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Path(pinned) / "bpf.json"
    report.rename(report.with_suffix(".later"))
    probing = Probing(pinned, monkeypatch)
    try:
        probing.take()
    except Error as problem:
        pytest.skip(f"no other way is to be had here: {problem}")
    way = probing.ended._exits
    assert way
    spawned: list[int] = []
    take = way.take

    def late() -> Records:
        spawned.extend(json.loads(run(SPAWNING, "20")[1]))
        return take()

    with monkeypatch.context() as patched:
        patched.setattr(way, "take", late)
        probing.take()
    report.with_suffix(".later").rename(report)
    probing.take()
    assert probing.ended.way == "by BPF"
    assert sorted(pid for pid in probing.told if pid in spawned) == sorted(spawned)
    probing.close()


def test_the_probe_goes_over_to_what_is_loaded_anew(pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    probing = Probing(pinned, monkeypatch)
    probing.take()
    spawned = json.loads(run(SPAWNING, "50")[1])  # Before: in the ring that nobody will find again.
    load(pinned, "--unload")
    load(pinned)
    for _ in range(3):
        spawned += json.loads(run(SPAWNING, "50")[1])
        probing.take()
    load(pinned)  # The same once more: nothing is pinned anew.
    spawned += json.loads(run(SPAWNING, "50")[1])
    probing.take()
    assert probing.ended.way == "by BPF"
    assert sorted(pid for pid in probing.told if pid in spawned) == sorted(spawned)
    probing.close()


def test_the_probe_goes_over_to_another_way_where_bpf_is_refused_later(
    pinned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probing = Probing(pinned, monkeypatch)
    probing.take()
    spawned = json.loads(run(SPAWNING, "50")[1])
    report = {"folder": "/nowhere", "programs": {"ended": {"refused": "no BTF"}}}
    (Path(pinned) / "bpf.json").write_text(json.dumps(report))
    probing.take()
    assert sorted(pid for pid in probing.told if pid in spawned) == sorted(spawned)
    try:
        probing.take()
    except Error as none:
        pytest.skip(f"no other way is to be had here: {none}")
    assert "not by BPF: ended: no BTF" in probing.ended.way
    probing.close()


def of_bpf() -> set[str]:
    """What this process has open of BPF."""
    return {each.name for each in Path("/proc/self/fd").iterdir() if "bpf" in os.path.realpath(each)}


@pytest.mark.parametrize("is_anew", [True, False])
def test_more_than_a_reading_takes_goes_over_too(pinned: str, is_anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = of_bpf()
    monkeypatch.setattr(Drain.look, "__defaults__", (20,))
    probing = Probing(pinned, monkeypatch)
    probing.take()
    spawned = json.loads(run(SPAWNING, "60")[1])
    if is_anew:
        load(pinned, "--unload")
        load(pinned)
        spawned += json.loads(run(SPAWNING, "60")[1])
    else:
        report = {"folder": "/nowhere", "programs": {"ended": {"refused": "no BTF"}}}
        (Path(pinned) / "bpf.json").write_text(json.dumps(report))
    probing.take()
    assert sorted(pid for pid in probing.told if pid in spawned) == sorted(spawned)
    if is_anew:
        probing.close()
    assert of_bpf() <= before


def test_what_bpf_had_no_room_for_is_told_once(pinned: str) -> None:
    folder = json.loads((Path(pinned) / "bpf.json").read_text())["folder"]
    counts = Array(f"{folder}/lost", 64)
    words = counts.memory.cast("Q")
    words[0] = 5  # As the kernel counts, with nobody there.
    words[1] = 3  # Of starts: not ours.
    way, _ = open_exits(pinned)
    assert [way.take().lost, way.take().lost] == [5, 0]
    words[0] += 2
    assert [way.take().lost, way.take().lost] == [2, 0]
    assert list(words) == [7, 3, 0, 0, 7, 0, 0, 0]
    way.close()
    words.release()
    counts.close()


def test_a_program_that_was_refused_is_said_why(tmp_path: Path) -> None:
    report = {"folder": "/nowhere", "programs": {"ended": {"refused": "no BTF"}}}
    (tmp_path / "bpf.json").write_text(json.dumps(report))
    with pytest.raises(Error, match="^BPF: ended: no BTF$"):
        exits.PinnedExits(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"folder": "/nowhere"}', '{"folder": "/nowhere", "programs": {"ended": {"ok": true}}}'],
)
def test_a_wrong_word_of_the_loader_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "bpf.json").write_text(content)
    with pytest.raises(Error, match=r"^BPF: .*; expected what the loader (writes|pins)$"):
        exits.PinnedExits(str(tmp_path))


def test_the_probe_gives_records_and_tries_a_refused_way_later(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Ended()
    host = Host()
    try:
        ended.records(host, True)
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    pid, _ = run("")
    found: list[int] = []

    def is_found() -> bool:
        found.extend(row[2] for row in EXITS_RECORD.iter_unpack(ended.records(host, False).rows))
        return pid in found

    wait_until(is_found)
    assert ended._exits
    ended._exits.close()
    passes_of(host).close()
    assert ended.way.startswith("by ")
    tried: list[str] = []

    def refuse(folder: str) -> tuple[Exits, str]:
        tried.append(folder)
        raise Error("none")

    monkeypatch.setattr("sysmond_probes.exits.open_exits", refuse)
    refused = Ended()
    for _ in range(3):
        with pytest.raises(Error, match="none"):
            refused.records(host, False)
    assert tried == [""]


def test_the_files_of_another_machine_tell_of_no_ends() -> None:
    with pytest.raises(FileNotFoundError):
        Ended().records(Host("/nowhere"), True)
