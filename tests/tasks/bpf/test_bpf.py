# SPDX-License-Identifier: Apache-2.0
"""What the kernel tells by itself: processes that end, programs that start, bytes that are sent; and the loader."""

import errno
import json
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sysmond.errors import Error
from sysmond.probe import ABSENT
from sysmond.records import record_bytes
from sysmond.ring.frame import VALUE_MAX
from sysmond.tasks.bpf.libbpf import BpfRefusedError, Libbpf, Object
from sysmond.tasks.bpf.loader import BTF, PROGRAMS, LoadRequest, address_of, load, unload
from sysmond.tasks.bpf.pins import Array, Drain
from sysmond.tasks.bpf.refusals import missing_capabilities, verdict
from sysmond.tasks.bpf.states import BpfStates
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.tables import EXITS, PROCESS, PROCESS_PRIVATE, THREAD, THREAD_STATE
from tests.support.order import first
from tests.support.pinned import OBJECTS, child, file_system, loaded, rows, settled, why_not

runs_here = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")
EXIT_BYTES = record_bytes(EXITS) - 8
EXEC = struct.Struct("<q I I H H 4x")
Row = dict[str, Any]


def compiled(name: str, into: Path) -> Path:
    """Build a load that needs threads of the C library; skip the test where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: neither gcc nor cc is installed")
    source = Path(__file__).parent / f"loads/{name}.c"
    subprocess.run([compiler, "-pthread", "-o", into / name, source], check=True)
    return into / name


class Events:
    """The pins of the loaded programs, as their readers have them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.exits = Drain(f"{folder}/exits", EXIT_BYTES)
        self.execs = Drain(f"{folder}/execs")
        self._lost = Array(f"{folder}/lost", 64)

    def lost(self) -> list[int]:
        return self._lost.memory.cast("Q").tolist()

    def ended(self) -> list[Row]:
        return rows(EXITS, self.exits.take())

    def end_of(self, process: "subprocess.Popen[bytes]") -> Row:
        """Wait for a child to end: its record, which is there by then."""
        process.wait()
        (row,) = (row for row in self.ended() if row["pid"] == process.pid)
        return row

    def close(self) -> None:
        self.exits.close()
        self.execs.close()
        self._lost.close()


@pytest.fixture(scope="module")
def loaded_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with loaded(tmp_path_factory.mktemp("kernel")) as report:
        assert all(each == {"ok": True} for each in report["programs"].values()), report
        yield report


@pytest.fixture
def events(loaded_programs: dict[str, Any]) -> Iterator[Events]:
    opened = Events(loaded_programs["folder"])
    while opened.exits.take():
        pass
    yield opened
    opened.close()


@pytest.fixture
def walk(loaded_programs: dict[str, Any]) -> Iterator[Walk]:
    opened = Walk(loaded_programs["folder"])
    yield opened
    opened.close()


@runs_here
@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_what_a_process_gave_to_exit_is_known(events: Events, code: int) -> None:
    row = events.end_of(subprocess.Popen(["sh", "-c", f"exit {code}"]))
    assert (row["exit_code"], row["signal"], row["core_dumped"]) == (code, 0, 0)
    assert (row["ppid"], row["uid"], row["comm"]) == (os.getpid(), os.getuid(), b"sh")


@runs_here
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_the_signal_that_ended_a_process_is_known(events: Events, number: signal.Signals) -> None:
    with child("") as running:
        running.send_signal(number)
        row = events.end_of(running)
    assert (row["exit_code"], row["signal"], row["core_dumped"]) == (0, number, 0)


@runs_here
def test_a_core_is_known(events: Events, tmp_path: Path) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
        pytest.skip("cores go to a program, which would be started")
    limit = resource.RLIM_INFINITY
    dumping = subprocess.Popen(
        [sys.executable, "-I", "-c", "import os; os.abort()"],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (limit, limit)),  # noqa: PLW1509
    )
    row = events.end_of(dumping)
    assert (row["signal"], row["core_dumped"]) == (signal.SIGABRT, os.WCOREDUMP(-dumping.returncode | 128))


@runs_here
def test_a_record_has_the_totals_of_a_life(events: Events, tmp_path: Path) -> None:
    program = (
        "import mmap, os, sys, time, threading\n"
        "def work():\n end = time.thread_time() + 0.1\n while time.thread_time() < end: pass\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
        "m = mmap.mmap(-1, 32 << 20)\nm.write(b'x' * (32 << 20))\nm.close()\n"
        "f = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)\nos.write(f, b'x' * (1 << 20))\nos.fsync(f)"
    )
    before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with child(program, str(tmp_path / "file")) as running:
        words = Path(f"/proc/{running.pid}/status").read_text()
        peak = int(words.partition("VmHWM:")[2].split()[0]) * 1024
        faults, on_cpu_ns = _faults(running.pid), int(Path(f"/proc/{running.pid}/schedstat").read_text().split()[0])
        written = int(Path(f"/proc/{running.pid}/io").read_text().partition("write_bytes: ")[2].split()[0])
    row = next(row for row in events.ended() if row["pid"] == running.pid)
    after_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before_ns - 10**7 < row["start"] < row["end"] < after_ns
    assert row["cpu"] >= 300_000 + on_cpu_ns // 1000  # The threads that ended, and the first.
    assert row["peak_rss"] >= peak - 4 * 2**20
    assert row["peak_rss"] >= 32 << 20
    assert row["minor_faults"] >= faults
    assert row["written_bytes"] >= written >= 0


def _faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[7])


@runs_here
@pytest.mark.parametrize("ending", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_threads_that_end_at_once_are_one_process_with_all_they_did(events: Events, ending: str) -> None:
    program = (
        "import os, time, threading\n"
        "ready = threading.Semaphore(0)\n"
        "def work():\n end = time.thread_time() + 0.05\n while time.thread_time() < end: pass\n"
        " ready.release(); time.sleep(60)\n"
        "for _ in range(6): threading.Thread(target=work, daemon=True).start()\n"
        f"for _ in range(6): ready.acquire()\n{ending}"
    )
    row = events.end_of(subprocess.Popen([sys.executable, "-I", "-S", "-c", program]))
    assert row["cpu"] >= 300_000
    assert (row["exit_code"], row["signal"]) in {(3, 0), (0, 9)}


@runs_here
def test_threads_that_end_side_by_side_are_told_of_once(events: Events, tmp_path: Path) -> None:
    program = compiled("together", tmp_path)
    ended: list[int] = []
    told: list[int] = []
    for _ in range(10):
        ended += map(int, subprocess.run([program, "100"], capture_output=True, check=True).stdout.split())
        # Without the one that forks them, whose only thread ends.
        told += [row["pid"] for row in events.ended() if row["comm"] == b"together" and row["ppid"] != os.getpid()]
    assert Counter(told) == Counter(ended)


@runs_here
def test_a_first_thread_that_ends_early_is_not_the_end(events: Events, tmp_path: Path) -> None:
    row = events.end_of(subprocess.Popen([compiled("early", tmp_path)]))
    assert row["exit_code"] == 5
    assert row["end"] - row["start"] >= 200_000_000


@runs_here
def test_three_thousand_that_live_a_moment_are_all_recorded(events: Events) -> None:
    lost = events.lost()[0]
    started: list[int] = []
    found: list[Row] = []
    for _ in range(30):
        children = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(100)]
        for pid in children:
            os.waitpid(pid, 0)
        started += children
        found += events.ended()
    # By parent: numbers are given again, and others run such a program, too.
    ended = [row["pid"] for row in found if row["ppid"] == os.getpid() and row["comm"] == b"true"]
    assert sorted(ended) == sorted(started)
    assert len(ended) == 3000
    assert events.lost()[0] == lost


@runs_here
def test_what_nobody_takes_is_counted_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.bpf.loader.EXITS_BYTES", 8192)
    monkeypatch.setattr("sysmond.tasks.bpf.loader.EXECS_BYTES", 8192)
    with loaded(tmp_path) as report:
        events = Events(report["folder"])
        subprocess.run(["sh", "-c", "for i in $(seq 100); do /bin/true $0; done", "x" * 200], check=True)
        kept = len(events.ended())
        assert kept == (8192 - 1) // (EXIT_BYTES + 8)  # One that fills it to the last byte would look like none.
        told = events.execs.records()
        started = sum(8 + -(-len(each) // 8) * 8 for each in told)
        assert 8192 - 8 - EXEC.size - 256 - 512 < started < 8192
        assert events.lost()[0] >= 101 - kept
        assert events.lost()[1] >= 101 - len(told)
        assert events.end_of(subprocess.Popen(["true"]))["exit_code"] == 0  # There is room again.
        events.close()


@runs_here
def test_programs_are_told_as_they_start(events: Events, tmp_path: Path) -> None:
    events.execs.records()
    long = "x" * 600
    running = subprocess.Popen(["/bin/sh", "-c", ":", "--password=secret", long], env={})
    running.wait()
    (found,) = (each for each in events.execs.records() if EXEC.unpack_from(each)[1] == running.pid)
    start, _, uid, filename_bytes, arguments_bytes = EXEC.unpack_from(found)
    assert 0 < start < time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert uid == os.getuid()
    assert found[EXEC.size :][:filename_bytes] == b"/bin/sh"
    words = b"/bin/sh\0-c\0:\0--password=secret\0" + long.encode()
    assert arguments_bytes == 512
    assert found[EXEC.size + filename_bytes :] == words[:512]


def network(walk: Walk, pid: int) -> tuple[int, ...]:
    (row,) = (row for row in rows(PROCESS_PRIVATE, walk.take(full=True, threads=False).private) if row["pid"] == pid)
    return tuple(row[name] for name in ("tcp_received", "tcp_sent", "udp_received", "udp_sent"))


TALK = """
import socket, sys
family = getattr(socket, sys.argv[2])
tcp = socket.socket(family); tcp.connect((sys.argv[3], int(sys.argv[1])))
for size in (1, 1000, 70_000): tcp.sendall(b"x" * size)
tcp.shutdown(socket.SHUT_WR)
tcp.recv(10, socket.MSG_PEEK)
while tcp.recv(4096): pass
udp = socket.socket(family, socket.SOCK_DGRAM); udp.bind((sys.argv[3], 0))
udp.sendto(b"y" * 300, udp.getsockname())
udp.recv(300)
pair = socket.socketpair(); pair[0].send(b"z" * 5000); pair[1].recv(5000)
"""


@runs_here
@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_bytes_over_the_network_are_exact(walk: Walk, family: str, address: str) -> None:
    try:
        listening = socket.create_server((address, 0), family=getattr(socket, family))
    except OSError as failure:
        pytest.skip(f"no {family} here: {failure}")
    with listening:
        program = [sys.executable, "-I", "-S", "-c"]
        command = child(TALK, str(listening.getsockname()[1]), family, address, python=program)
        before = network(walk, os.getpid())
        pid = os.fork()
        if not pid:  # The other end, in a process that counts for itself.
            connection, _ = listening.accept()
            while connection.recv(65536):
                pass
            connection.sendall(b"w" * 12_345)
            connection.close()
            signal.pause()
        with command as running:
            assert network(walk, running.pid) == (12_345, 71_001, 300, 300)
            assert network(walk, pid) == (71_001, 12_345, 0, 0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert network(walk, os.getpid()) == before


@runs_here
def test_waiting_for_a_cpu_outlives_the_threads_that_waited(walk: Walk) -> None:
    """Threads that end keep their share in the sum: on one processor half of them always waits."""
    program = (
        "import os, time, threading, subprocess\n"
        "os.sched_setaffinity(0, {0})\n"
        "spin = subprocess.Popen(['sh', '-c', 'while :; do :; done'])\n"
        "def work():\n end = time.thread_time() + 0.1\n while time.thread_time() < end: pass\n"
        "for _ in range(2):\n t = threading.Thread(target=work); t.start(); t.join()\n"
        "spin.kill(); spin.wait()"
    )
    with child(program) as running:
        (row,) = (
            row for row in rows(PROCESS, walk.take(full=True, threads=False).process) if row["pid"] == running.pid
        )
        of_first_ns = int(Path(f"/proc/{running.pid}/schedstat").read_text().split()[1])
    assert row["run_delay"] * 1000 > of_first_ns + 50_000_000


@runs_here
def test_pins_of_the_same_bytes_keep_what_they_recorded(tmp_path: Path) -> None:
    with loaded(tmp_path):
        asked = LoadRequest(str(tmp_path))
        died = subprocess.Popen(["sh", "-c", "exit 9"])
        died.wait()
        report = load(asked)
        exits = Drain(f"{report['folder']}/exits", EXIT_BYTES)
        assert [row["exit_code"] for row in rows(EXITS, exits.take()) if row["pid"] == died.pid] == [9]
        exits.close()
        died = subprocess.Popen(["sh", "-c", "exit 9"])
        died.wait()
        arrays = Array(f"{report['folder']}/thread_rows", record_bytes(THREAD))
        load(asked._replace(threads=True))  # The arrays of the passes are made anew, and nothing else.
        exits = Drain(f"{report['folder']}/exits", EXIT_BYTES)
        assert died.pid in {row["pid"] for row in rows(EXITS, exits.take())}
        exits.close()
        larger = Array(f"{report['folder']}/thread_rows", record_bytes(THREAD))
        assert larger.count > arrays.count == 1
        arrays.close()
        larger.close()


@runs_here
def test_unloading_leaves_nothing_behind(tmp_path: Path) -> None:
    load(LoadRequest(str(tmp_path)))
    assert {path.name for path in tmp_path.iterdir()} == {"bpf", "bpf.json"}
    unload(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    unload(str(tmp_path))


def started_as(user: str, repository: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of this project as another user without any capability, where others may read it."""
    without = ["--reuid", user, "--regid", user, "--clear-groups", "--bounding-set=-all"]
    command = ["setpriv", *without, sys.executable, "-P", "-c", f"import sys\n{program}", *arguments]
    environment = {"PYTHONPATH": str(repository)}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if "No module named" in ran.stderr or "execute" in ran.stderr:
        pytest.skip("other users may not read the sources here")
    return ran


@runs_here
def test_a_user_of_the_pins_needs_no_capability(runtime: Path, repository: Path) -> None:
    """Who may open the pins reads by them; everybody else does not."""
    with loaded(runtime, gid=65534) as report:
        for name in ("snapshot", "ended", "exits", "process_rows"):
            status = Path(report["folder"], name).stat()
            assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 65534, 0o660)
        runtime.chmod(0o711)
        program = "from sysmond.tasks.bpf.walk import Walk; Walk(sys.argv[1]).take(full=True, threads=False)"
        assert started_as("65534", repository, program, report["folder"]).stderr == ""
        assert "Permission denied" in started_as("65533", repository, program, report["folder"]).stderr


def refusals(report: Any) -> set[str]:
    return {each.get("refused", "") for each in report["programs"].values()}


@runs_here
@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ("+bpf", "no permission: it takes CAP_PERFMON"),
        ("+perfmon", "no permission: it takes CAP_BPF"),
        ("+sys_nice", "no permission: it takes CAP_BPF and CAP_PERFMON"),
        ("+bpf,+perfmon", ""),
    ],
)
def test_missing_capabilities_are_named(tmp_path: Path, repository: Path, kept: str, expected: str) -> None:
    with file_system(tmp_path / "bpf", "mode=0700"):  # It is used where it is there.
        names = f"-all,{kept},+dac_override"
        command = ["setpriv", "--bounding-set", names, "--inh-caps", names, sys.executable, "-P"]
        command += ["-m", "sysmond.tasks.bpf.loader", "--runtime-dir", str(tmp_path)]
        subprocess.run(command, check=True, env={"PYTHONPATH": str(repository)})
        assert refusals(json.loads((tmp_path / "bpf.json").read_bytes())) == {expected}


def test_without_objects_it_says_what_is_missing(tmp_path: Path) -> None:
    if why_not() and "built" not in why_not():
        pytest.skip(why_not())
    with loaded(tmp_path, objects=str(tmp_path)) as report:
        assert refusals(report) == {f"{tmp_path}/events.bpf.o: missing; this sysmond was built without clang"}
        assert json.loads((tmp_path / "bpf.json").read_bytes()) == report


def test_without_types_of_the_kernel_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.bpf.loader.BTF", str(tmp_path / "none"))
    (why,) = refusals(load(LoadRequest(str(tmp_path))))
    assert why == "the kernel has no BTF (/sys/kernel/btf/vmlinux); expected CONFIG_DEBUG_INFO_BTF"


def test_without_the_library_it_says_which_package_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why_not():
        pytest.skip(why_not())
    monkeypatch.setattr("sysmond.tasks.bpf.libbpf.LIBRARY", "libnone.so.1")
    with loaded(tmp_path) as report:
        (why,) = refusals(report)
    assert why.startswith("libnone.so.1 is not installed")
    assert why.endswith("it is in the package libbpf1")


@runs_here
def test_an_older_kernel_is_named_by_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sysmond.tasks.bpf import loader  # noqa: PLC0415

    older = tuple(each._replace(needs=f"no_{each.name}") if each.name == "sent" else each for each in loader.PROGRAMS)
    monkeypatch.setattr(loader, "PROGRAMS", older)
    with loaded(tmp_path) as report:
        assert report["programs"]["sent"] == {"refused": "the kernel has no no_sent; expected Linux 6.3"}
        assert report["programs"]["snapshot"] == {"ok": True}
        reader = Walk(report["folder"])
        assert network(reader, os.getpid()) == (ABSENT,) * 4
        reader.close()


@runs_here
def test_one_that_is_refused_costs_none_of_those_that_are_loaded_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = Object.load, []

    def load_without_sent(self: Object, programs: Sequence[str], *rest: Any) -> None:
        asked.append(list(programs))
        if "sent" in programs:
            raise BpfRefusedError(", ".join(programs), errno.EACCES, "R1 type=ctx expected=fp\n")
        real(self, programs, *rest)

    monkeypatch.setattr(Object, "load", load_without_sent)
    with loaded(tmp_path) as report:
        programs = report["programs"]
    assert [name for name, said in programs.items() if said != {"ok": True}] == ["sent"]
    assert "R1 type=ctx expected=fp" in programs["sent"]["refused"]
    together = ["ended", "started", "made", "signalled", "sent", "received"]
    assert asked[: len(together) + 1] == [together, *([each] for each in together)]


def test_the_address_of_a_symbol_is_that_of_its_line() -> None:
    symbols = b"ff0 T _stext\nff1 t _stext_of_another\nff2 T not_etext\nff3 T _etext\nff4 t a\t[module]\n"
    assert [address_of(symbols, name) for name in (b"_stext", b"_etext", b"__sched_text_end")] == [0xFF0, 0xFF3, 0]
    assert address_of(b"", b"_stext") == 0


@runs_here
def test_the_verifier_is_quoted(tmp_path: Path) -> None:
    """A program that reads behind its array is refused, and the others are not."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not there")
    source = tmp_path / "wrong.c"
    source.write_text(
        f'#include "{OBJECTS.parents[3]}/bpf/core.h"\nchar LICENSE[] SEC("license") = "GPL";\n'
        'SEC("syscall") int wrong(u64 *context) { return *(volatile int *)(context[0] + 5); }\n'
    )
    target = tmp_path / "wrong.bpf.o"
    command = ["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-w", "-c", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    with file_system(tmp_path / "bpf") as bpffs, Libbpf().object(target.read_bytes()) as opened:
        with pytest.raises(BpfRefusedError) as refused:
            opened.load(["wrong"], bpffs, {}, {})
        assert "invalid mem access 'scalar'" in verdict(refused.value.log)


def test_the_last_line_that_says_something_is_quoted() -> None:
    log = "0: (b7) r0 = 1\nR1 type=ctx expected=fp\nprocessed 1 insns (limit 1000000) max_states_per_insn 0\n\n"
    assert verdict(log) == "R1 type=ctx expected=fp"
    assert verdict("") == ""
    assert len(verdict("x" * 1000)) == 160


def test_capabilities_are_read_from_the_effective_set() -> None:
    assert missing_capabilities("CapEff:\t000000c000000000\n") == []
    assert missing_capabilities("CapEff:\t0000000000200000\n") == []
    assert missing_capabilities("CapEff:\t0000004000000000\n") == ["CAP_BPF"]
    assert missing_capabilities("CapPrm:\t000000c000000000\nCapEff:\t0000000000000000\n") == ["CAP_BPF", "CAP_PERFMON"]


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Error, match="none: No such file"):
        load(LoadRequest(str(tmp_path / "none")))


@runs_here
def test_what_threads_are_at_is_as_proc_has_it(loaded_programs: dict[str, Any]) -> None:
    states = BpfStates(loaded_programs["folder"])
    program = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    with child(program) as running, child("print(flush=True)\nwhile True: pass") as busy:
        settled(running.pid)
        records, stacks = states.take(full=True, every=True)
        every = {row["tid"]: row for row in rows(THREAD_STATE, records)}
        assert records.walked == len(every)
        assert records.lost == 0
        tids = [int(name) for name in os.listdir(f"/proc/{running.pid}/task")]
        assert len(tids) == 2
        for tid in tids:
            folder, row = Path(f"/proc/{running.pid}/task/{tid}"), every[tid]
            assert (row["pid"], row["uid"], row["state"]) == (running.pid, os.getuid(), b"S")
            assert row["wchan"].decode() == (folder / "wchan").read_text()
            assert row["syscall"] == int((folder / "syscall").read_text().split()[0])
            frames = [line.split()[1].partition("+")[0] for line in (folder / "stack").read_text().splitlines()]
            # Where no symbol of the scheduler is left out, a stack begins within it.
            assert _without_scheduler(stacks[row["stack"]].splitlines())[:4] == frames[:4]
        ran = {row["pid"]: row for row in rows(THREAD_STATE, states.take(full=False)[0])}
        assert ran[os.getpid()]["state"] == b"R"
        assert running.pid not in ran
        assert ran[os.getpid()]["stack"] == ABSENT
        busy.kill()
    del records
    states.close()


def _without_scheduler(names: list[str]) -> list[str]:
    return [name for name in names if "schedule" not in name]


@runs_here
def test_a_stack_is_told_once(loaded_programs: dict[str, Any]) -> None:
    states = BpfStates(loaded_programs["folder"])
    with child("") as running:
        settled(running.pid)
        (number,) = (
            row["stack"]
            for row in rows(THREAD_STATE, states.take(full=True, every=True)[0])
            if row["pid"] == running.pid
        )
        assert number not in states.take(full=False, every=True)[1]
        again = BpfStates(loaded_programs["folder"])
        assert number in again.take(full=True, every=True)[1]
        again.close()
    states.close()


@runs_here
def test_stacks_have_numbers_that_a_recording_holds(loaded_programs: dict[str, Any]) -> None:
    states = BpfStates(loaded_programs["folder"])
    numbers = {row["stack"] for row in rows(THREAD_STATE, states.take(full=True, every=True)[0])} - {ABSENT}
    assert len(numbers) > 10
    assert 0 <= min(numbers) <= max(numbers) <= VALUE_MAX
    states.close()


LACKED = ("delays", "run_delay", "rchar", "read_bytes", "stats_lock")


@runs_here
@pytest.mark.parametrize("lacked", first(2, [(), LACKED, *((each,) for each in LACKED)]))
def test_a_kernel_may_lack_what_is_read(tmp_path: Path, lacked: tuple[str, ...]) -> None:
    """The programs are fitted to types of which some have other names: as if this kernel had not these fields."""
    types = Path(BTF).read_bytes()
    for name in lacked:
        assert types.count(b"\0" + name.encode() + b"\0") == 1
        types = types.replace(b"\0" + name.encode() + b"\0", b"\0" + b"?" * len(name) + b"\0")
    (tmp_path / "types").write_bytes(types)
    constants = {"processors": os.sysconf("SC_NPROCESSORS_CONF"), "page_bytes": 4096}
    with file_system(tmp_path / "bpf") as bpffs:
        for program in PROGRAMS:
            content = (OBJECTS / f"{program.object}.bpf.o").read_bytes()
            with Libbpf().object(content, str(tmp_path / "types")) as opened:
                opened.load([program.name], bpffs, {"process_rows": 16_384}, constants)
                if program.name == "snapshot":
                    opened.pin(program.name, f"{bpffs}/{program.name}")
        reader = Walk(bpffs)
        taken = reader.take(full=True, threads=False)
        (row,) = (row for row in rows(PROCESS, taken.process) if row["pid"] == os.getpid())
        assert (row["run_delay"] == ABSENT) == ("run_delay" in lacked)
        assert (row["read_chars"] == ABSENT) == ("rchar" in lacked)
        assert (row["read_bytes"] == ABSENT) == ("read_bytes" in lacked)
        assert row["cpu"] > 0
        del taken
        reader.close()
