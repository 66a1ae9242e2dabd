# SPDX-License-Identifier: Apache-2.0
"""What processes run: children of known command lines, read from the real /proc, and programs told of by the kernel."""

import json
import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import Error
from sysmond.plan.plan import PlannedProbe, Scalar
from sysmond.probe import Host, Wakes
from sysmond.sampler.source import Pieces, Source, load
from sysmond.tasks.command import asking, commands
from sysmond.tasks.command.asking import Asking
from sysmond.tasks.command.commands import Commands, read_process
from sysmond.tasks.command.execs import Exec
from sysmond.tasks.command.masking import COMMAND_BYTES_MAX
from sysmond.tasks.proc.text import TICK_NS, stat
from tests.support.commandrows import Row, rows_in
from tests.support.waiting import HANG_S, wait_until

WAITING = "print(flush=True); input()"
NOBODY = 65534


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy a machine is, and however many run on it: a reading has all."""
    monkeypatch.setattr(commands, "WAIT_S", HANG_S)
    monkeypatch.setattr(commands, "READS_MAX", commands.PROCESSES_MAX)
    monkeypatch.setattr(asking, "SLOW_S", HANG_S)


@pytest.fixture
def nothing_told() -> Commands:
    """Without the kernel's word about programs being executed."""
    return Commands(refuse)


def refuse(_runtime: str) -> "Told":
    raise Error("BPF: the kernel has no BTF")


class Told:
    """Programs executed, as a test says."""

    def __init__(self) -> None:
        self.execs: list[Exec] = []
        self.lost = 0
        self.way = "by BPF"
        self.wakes: select.epoll | None = None

    def take(self) -> tuple[list[Exec], int]:
        execs, lost, self.execs, self.lost = self.execs, self.lost, [], 0
        return execs, lost

    def is_current(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def child(*arguments: str | bytes, code: str = WAITING) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for a line, and then ends."""
    command = [sys.executable, "-Ic", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def read_until(source: Commands, met: Callable[[dict[int, Row]], bool], host: Host | None = None) -> dict[int, Row]:
    """Read again and again, what changed only, and give all of it."""
    found: dict[int, Row] = {}

    def is_met() -> bool:
        found.update(rows_in(source.records(host or Host(), full=False)))
        return met(found)

    wait_until(is_met)
    return found


def start_of(pid: int) -> int:
    return stat(Path(f"/proc/{pid}/stat").read_bytes()).start_ns


def test_a_childs_program_and_command_line(nothing_told: Commands) -> None:
    with child("--password", "hunter2", "two words", b"\xff\xfe", "line\nbreak") as process:
        row = rows_in(nothing_told.records(Host(), full=True))[process.pid]
    assert row.program == os.path.realpath(sys.executable).encode()
    assert row.uid == os.getuid()
    assert row.start_ns % TICK_NS == 0
    assert row.command.endswith(rb"--password *** 'two words' $'\xff\xfe' $'line\nbreak'")
    assert b"hunter2" not in row.command
    assert "not by BPF: the kernel has no BTF" in nothing_told.way


def test_all_that_run_are_told_and_then_only_what_is_new(nothing_told: Commands) -> None:
    first = nothing_told.records(Host(), full=True)
    assert all(piece.full for piece in first)
    known = rows_in(first)
    assert known[os.getpid()].start_ns == start_of(os.getpid())
    assert first[0].walked >= len(known) > 0
    with child("one") as process:
        found = read_until(nothing_told, lambda found: process.pid in found)
        assert os.getpid() not in found
        assert process.pid in rows_in(nothing_told.records(Host(), full=True))
    assert process.pid not in rows_in(nothing_told.records(Host(), full=True))


def test_a_hundred_thousand_bytes_of_arguments_are_cut(nothing_told: Commands) -> None:
    with child("x" * 100_000) as process:
        row = rows_in(nothing_told.records(Host(), full=True))[process.pid]
    assert COMMAND_BYTES_MAX - 8 <= len(row.command) <= COMMAND_BYTES_MAX
    assert row.command.decode().endswith("xxx…")


def test_who_executes_another_program_is_read_again(nothing_told: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "YOUNG_NS", 0)  # Those are read once more in any case.
    monkeypatch.setattr(commands, "SETTLED_NS", 0)
    sleep = shutil.which("sleep")
    assert sleep is not None
    with child(code=f"{WAITING}; import os; os.execv({sleep!r}, ['slumber', '1000'])") as process:
        assert b"execv" in rows_in(nothing_told.records(Host(), full=True))[process.pid].command
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_bytes() == b"sleep\n")
        found = read_until(nothing_told, lambda found: process.pid in found)
        assert found[process.pid][2:] == (os.path.realpath(sleep).encode(), b"slumber 1000")
        assert found[process.pid].start_ns == start_of(process.pid)


def test_who_executes_under_its_old_name_right_after_it_began_is_read_again(nothing_told: Commands) -> None:
    again = [sys.executable, "-Ic", WAITING, "second"]
    with child(code=f"{WAITING}; import os; os.execv({sys.executable!r}, {again!r})") as process:
        assert b"execv" in rows_in(nothing_told.records(Host(), full=True))[process.pid].command
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        found = read_until(nothing_told, lambda found: process.pid in found)
        assert found[process.pid].command.endswith(b" second")


TITLE = """
import ctypes
print(flush=True); input()
words = open('/proc/self/stat').read().rpartition(')')[2].split()
begin, end = int(words[45]), int(words[46])
ctypes.memset(begin, 0, end - begin)
ctypes.memmove(begin, b'server: ready', 13)
print(flush=True); input()
"""


def test_a_title_given_later_is_seen_once_the_process_has_settled(
    nothing_told: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SETTLED_S", 0.2)
    monkeypatch.setattr(commands, "YOUNG_NS", 0)  # Or it would be read again for that.
    with child(code=TITLE) as process:
        assert b"ctypes" in rows_in(nothing_told.records(Host(), full=True))[process.pid].command
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        found = read_until(nothing_told, lambda found: process.pid in found)
        assert found[process.pid].command == b"'server: ready'"


def test_one_that_ends_keeps_what_it_ran_and_a_zombie_has_nothing(nothing_told: Commands) -> None:
    with child("kept") as process:
        assert process.pid in rows_in(nothing_told.records(Host(), full=True))
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}/cmdline").read_bytes() == b""
        nothing_told._again.appendleft((0.0, process.pid))
        reading = rows_in(nothing_told.records(Host(), full=True))
        assert reading[process.pid].command.endswith(b" kept")
        dead = rows_in(Commands(refuse).records(Host(), full=True))[process.pid]
        assert dead[1:] == (os.getuid(), None, b"")


def test_the_kernels_own_threads_have_no_command_line(nothing_told: Commands) -> None:
    try:
        if Path("/proc/2/comm").read_text(encoding="ascii") != "kthreadd\n":
            pytest.skip("process 2 is not the kernel's: a pid namespace")
    except FileNotFoundError:
        pytest.skip("there is no process 2: a pid namespace")
    row = rows_in(nothing_told.records(Host(), full=True))[2]
    assert row[1:] == (0, None, b"")


def test_a_name_of_any_bytes_does_no_harm(nothing_told: Commands) -> None:
    naming = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 \\xff\\n\\x1b[2J', 0, 0, 0)"
    with child("named", code=f"{naming}; {WAITING}") as process:
        assert b"[2J" in Path(f"/proc/{process.pid}/comm").read_bytes()
        row = rows_in(nothing_told.records(Host(), full=True))[process.pid]
        assert row.command.endswith(b" named")


def test_whoever_may_not_see_a_program_sees_the_command_line() -> None:
    if os.getuid():
        pytest.skip("only root can become somebody else")
    with child("plain") as process:
        looking, writing = os.pipe()
        other = os.fork()
        if not other:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = read_process("/proc", process.pid)
            os.write(writing, json.dumps([found.uid, found.program is None, found.command.decode()]).encode())
            os._exit(0)
        os.waitpid(other, 0)
        uid, is_hidden, command = json.loads(os.read(looking, 65536))
        os.close(looking)
        os.close(writing)
    assert (uid, is_hidden) == (0, True)
    assert command.endswith(" plain")


def test_more_processes_than_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch, nothing_told: Commands) -> None:
    monkeypatch.setattr(commands, "PROCESSES_MAX", 3)
    (piece,) = nothing_told.records(Host(), full=True)
    assert len(rows_in([piece])) <= 3  # One of them may be gone already.
    assert piece.lost == piece.walked - 3


def test_so_many_are_asked_at_once_and_the_others_later(
    monkeypatch: pytest.MonkeyPatch, nothing_told: Commands
) -> None:
    limit = 1 + len([name for name in os.listdir("/proc") if name.isdigit()]) // 3
    monkeypatch.setattr(commands, "READS_MAX", limit)
    first = nothing_told.records(Host(), full=True)
    assert len(rows_in(first)) <= limit
    assert first[0].lost > 0
    there = rows_in(first)
    read_until(nothing_told, lambda found: os.getpid() in found or os.getpid() in there)


FORKING = """
import mmap, os
block = mmap.mmap(-1, 256 << 20)
for at in range(0, len(block), mmap.PAGESIZE):
    block[at] = 1
print(flush=True)
while True:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_one_who_holds_the_lock_of_its_memory_keeps_no_other_waiting(
    nothing_told: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "SLOW_S", 0.001)
    with child("holder", code=FORKING) as holder, child("other") as other:
        found = read_until(nothing_told, lambda found: {holder.pid, other.pid} <= found.keys())
        assert found[holder.pid].command.endswith(b" holder")
        holder.kill()


def gather(asked: Asking[int], answers: dict[int, int], count: int) -> None:
    def are_all_there() -> bool:
        answers.update(asked.answers(1.0))
        return len(answers) == count

    wait_until(are_all_there)


def test_a_question_without_an_answer_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "THREADS_MAX", 3)
    monkeypatch.setattr(asking, "SLOW_S", 0.01)
    release = threading.Event()

    def question(number: int) -> int:
        if number in {3, 5}:
            release.wait(HANG_S)
        return number * number

    asked = Asking(question, hash)
    for number in [*range(10), 5]:
        asked.ask(number)
    answers: dict[int, int] = {}
    gather(asked, answers, 8)
    assert answers == {number: number * number for number in range(10) if number not in {3, 5}}
    assert asked.waiting == {3, 5}
    assert asked.answers(0.0) == []
    release.set()
    gather(asked, answers, 10)
    assert not asked.waiting


def test_when_all_threads_hang_nobody_waits_and_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "THREADS_MAX", 2)
    monkeypatch.setattr(asking, "SLOW_S", 0.01)
    release = threading.Event()

    def question(number: int) -> int:
        release.wait(HANG_S)
        return number

    asked = Asking(question, hash)
    for number in range(5):
        asked.ask(number)
    threads = threading.active_count()
    assert asked.answers(HANG_S) == []
    assert threading.active_count() <= threads + 2
    release.set()
    answers: dict[int, int] = {}
    gather(asked, answers, 5)


def test_who_has_questions_hang_keeps_others_of_his_own_waiting_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SLOW_S", 0.01)
    release = threading.Event()

    def question(number: int) -> int:
        if number < 100:
            release.wait(HANG_S)
        return number

    asked = Asking(question, lambda number: number < 150)
    for number in (*range(90), *range(100, 200)):
        asked.ask(number)
    answers: dict[int, int] = {}
    gather(asked, answers, 50)
    assert set(answers) == set(range(150, 200))
    wait_until(lambda: not asked.answers(1.0) and not asked.in_line)
    assert len(asked.waiting) == 140
    assert asked.give_up(range(5, 1000)) == 1  # Four of the first five hang; they will answer.
    assert asked.give_up(range(5, 1000)) == 0
    release.set()
    gather(asked, answers, 189)
    assert set(answers) == {*range(90), *range(100, 200)} - {4}
    assert not asked.waiting


@pytest.mark.parametrize("is_in_namespace", [False, True])
def test_a_process_is_at_the_cost_of_its_user_whatever_namespace_it_is_in(is_in_namespace: bool) -> None:
    if os.getuid():
        pytest.skip("only root becomes another")
    code = WAITING
    if is_in_namespace:
        code = f"import ctypes; ctypes.CDLL(None).unshare(0x10000000) and exit(77); {WAITING}"

    def become() -> None:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)

    python = os.path.realpath("/usr/bin/python3")
    if not os.path.exists(python):
        pytest.skip("no Python that everybody may run")
    words = [python, "-ISc", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=become) as process:  # noqa: PLW1509
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("no user namespaces here")
        if is_in_namespace:
            Path(f"/proc/{process.pid}/uid_map").write_text("0 100000 65536")
        assert commands.account("/proc", process.pid) == NOBODY
        process.kill()
    assert commands.account("/proc", process.pid) == -1


def test_who_locks_the_memory_of_his_processes_hides_no_other_users(tmp_path: Path) -> None:
    """With the lock held, reading a command line waits for whoever holds it: for ever, if he likes."""
    there = tmp_path / "file"
    there.touch()
    program = Path(__file__).parent.parent.parent / "probes/locked_arguments.py"
    finished = subprocess.run(
        [sys.executable, str(program), str(there), "6"],
        capture_output=True,
        check=False,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent.parent)},
    )
    if finished.returncode == 77:
        pytest.skip("needs root and FUSE")
    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout)
    assert told["another"], "read whatever nobody's processes do"
    assert told["while_locked"] == 1  # That one; nothing of whose processes hang.
    assert told["lost"] >= 7
    assert told["afterwards"], "they were asked about again"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def hearing(told: Told) -> Commands:
    """With the kernel's word, as the test has it."""
    return Commands(lambda _: told)


def test_a_process_that_lived_for_a_moment_has_its_command_line(told: Told, hearing: Commands) -> None:
    hearing.records(Host(), full=True)
    gone = 2**22 + 7  # Larger than any number that is given.
    told.execs = [Exec(gone, 12_345_678_901, 1000, b"/bin/true", b"true\0--token\0hunter2\0", is_cut=False)]
    told.lost = 4
    reading = hearing.records(Host(), full=False)
    assert rows_in(reading)[gone] == Row(12_340_000_000, 1000, b"/bin/true", b"true --token ***")
    assert sum(piece.lost for piece in reading) == 4
    assert hearing.way == "by BPF"
    assert gone not in rows_in(hearing.records(Host(), full=True))


def test_without_the_kernels_word_it_is_read_every_second(
    told: Told, hearing: Commands, nothing_told: Commands
) -> None:
    host = Host()

    def wakes() -> Wakes | None:
        return host.wakes

    host.wakes = select.epoll()
    nothing_told.records(host, full=True)
    assert host.is_wanted_soon
    assert wakes() is None
    told.wakes = select.epoll()
    host.is_wanted_soon = False
    hearing.records(host, full=True)
    assert not host.is_wanted_soon
    assert wakes() is told.wakes


def test_what_was_executed_is_read_whole_where_it_still_runs(
    told: Told, hearing: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(commands, "monotonic", lambda: clock[0])
    hearing.records(Host(), full=True)
    with child("x" * 600) as process:
        start_ns = start_of(process.pid)
        cut = b"python\0-Ic\0" + b"x" * 500
        told.execs = [Exec(process.pid, start_ns + 1234, os.getuid(), b"python", cut, is_cut=True)]
        first = rows_in(hearing.records(Host(), full=False))[process.pid]
        assert first.command.decode().endswith("x …")
        assert first.program == f"{Path.cwd()}/python".encode()  # It was asked for from there.
        assert rows_in(hearing.records(Host(), full=False)) == {}
        clock[0] += commands.LOOK_RARELY_S
        whole = rows_in(hearing.records(Host(), full=False))[process.pid]
        assert whole.start_ns == first.start_ns == start_ns
        assert whole.program == os.path.realpath(sys.executable).encode()
        assert whole.command.endswith(b"x" * 600)
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        told.execs = [Exec(process.pid, start_ns, os.getuid(), b"python", arguments, is_cut=False)]
        assert process.pid not in rows_in(hearing.records(Host(), full=False))  # /proc said so before.


def test_of_two_programs_in_one_reading_the_last_counts(told: Told, hearing: Commands) -> None:
    gone = 2**22 + 7
    told.execs = [Exec(gone, 5, 0, b"/bin/sh", b"sh\0", is_cut=False), Exec(gone, 5, 0, b"/x", b"x\0", is_cut=False)]
    assert rows_in(hearing.records(Host(), full=False))[gone] == Row(0, 0, b"/x", b"x")


@pytest.mark.parametrize("mask", [True, False])
def test_masking_is_an_option_of_the_plan(mask: bool) -> None:
    options: dict[str, Scalar] = {} if mask else {"mask": False}
    planned = PlannedProbe(
        "command", "sysmond_probes.command", Lane.BACKGROUND, 10**9, Sensitivity.RESTRICTED, options=options
    )
    probe = load(planned)
    assert (probe.lane, probe.sensitivity) == (Lane.BACKGROUND, Sensitivity.RESTRICTED)
    with child("--password", "hunter2") as process:
        reading = Source(planned, probe, Host(), 1.0).read()
    assert isinstance(reading, Pieces)
    assert (b"hunter2" in rows_in(reading.records)[process.pid].command) is not mask


def test_another_owner_of_a_number_is_another_process(tmp_path: Path, nothing_told: Commands) -> None:
    """On files: no kernel gives a number again on demand."""
    folder = tmp_path / "proc/77"
    folder.mkdir(parents=True)
    content = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()

    def put(start: int, command: bytes) -> None:
        content[19] = b"%d" % start
        (folder / "stat").write_bytes(b"77 (same) " + b" ".join(content))
        (folder / "status").write_bytes(b"Name:\tsame\nUid:\t5\t0\t0\t0\n")
        (folder / "cmdline").write_bytes(command)

    put(100, b"old\0")
    host = Host(str(tmp_path))
    assert rows_in(nothing_told.records(host, full=True)) == {77: Row(100 * TICK_NS, 5, None, b"old")}
    put(200, b"new\0")
    nothing_told._looked_s -= commands.ROUND_S
    assert read_until(nothing_told, bool, host) == {77: Row(200 * TICK_NS, 5, None, b"new")}


def test_a_process_gone_meanwhile_is_no_failure() -> None:
    with child() as process:
        pid = process.pid
    with pytest.raises(FileNotFoundError):
        read_process("/proc", pid)


def test_an_absurd_path_of_a_program_is_cut_at_a_character() -> None:
    long = "/ä".encode() * 600
    cut = commands._bounded(long)
    assert len(cut) <= commands.PROGRAM_BYTES_MAX
    assert cut.decode().rstrip("…") == long.decode()[: len(cut.decode()) - 1]
    assert commands._bounded(b"/short \xff") == b"/short \xff"
    assert len(commands._bounded(b"\xff" * 5000)) <= commands.PROGRAM_BYTES_MAX
