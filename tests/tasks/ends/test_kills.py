# SPDX-License-Identifier: Apache-2.0
"""Who sent the signal by which a process ended: processes that end each other here, and what the kernel says of it."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sysmond.base.model import ABSENT
from sysmond.probe import Host, HostEvent
from sysmond.tasks.ends.exits import PinnedExits
from sysmond.tasks.ends.kills import EVENTS_AT_ONCE, KIND, KNOWN_FROM, KillRecord, Kills, events_of
from sysmond.tasks.tables import ABSENT_U32, EXITS
from tests.support.pinned import child, loaded, rows, why_not

runs_here = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")
PYTHON = (sys.executable, "-I", "-S", "-c")
NOBODY = 65534
NO_SENDER = (ABSENT, ABSENT_U32, b"")
Row = dict[str, Any]


class Witness:
    """The readers of the pins: what a process ended by, and what is told of it."""

    def __init__(self, runtime: str) -> None:
        self.host = Host()
        self.host.runtime = runtime
        self.kills = Kills()
        self.exits = PinnedExits(runtime)
        self._seen: dict[int, Row] = {}
        self.events: list[HostEvent] = []
        self.look()
        self.events.clear()

    def look(self) -> tuple[int, ...]:
        records = self.exits.take()
        self._seen |= {row["pid"]: row for row in rows(EXITS, bytes(records.rows))}
        records.release()
        ((_, counts),) = self.kills.read(self.host)
        self.events += self.host.take_events()
        return tuple(int(count) for count in counts)

    def end_of(self, process: "subprocess.Popen[bytes]") -> Row:
        """Wait for a child to end: its record, which is there by then."""
        process.wait()
        self.look()
        return self._seen[process.pid]

    def told_of(self, pid: int) -> list[HostEvent]:
        """The events that name a process."""
        self.look()
        return [event for event in self.events if event.text.startswith(f"process {pid} of user ")]

    def close(self) -> None:
        self.exits.close()
        self.host.close()


@pytest.fixture(scope="module")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kernel")
    with loaded(folder) as report:
        assert report["programs"]["signalled"] == {"ok": True}, report
        yield str(folder)


@pytest.fixture
def witness(runtime_folder: str) -> Iterator[Witness]:
    with closing(Witness(runtime_folder)) as made:
        yield made


def sender_of(row: Row) -> tuple[int, int, bytes]:
    return row["sender_start"], row["sender_pid"], row["sender_comm"]


SENDING = """
import ctypes, os, sys
open("/proc/self/comm", "w").write("assassin")
how, number, *pids = sys.argv[1:]
for pid in map(int, pids):
    if how == "tgkill":
        tid = max(map(int, os.listdir(f"/proc/{pid}/task")))
        sent = ctypes.CDLL(None).tgkill(pid, tid, int(number))
    elif how == "sigqueue":
        sent = ctypes.CDLL(None).sigqueue(pid, int(number), ctypes.c_void_p(7))
    else:
        sent = os.kill(pid, int(number))
    assert not sent, (how, sent)
"""


def sent(number: int, *pids: int, how: str = "kill") -> int:
    """Have another process send a signal, and end at once: its number."""
    sender = subprocess.Popen([*PYTHON, SENDING, how, str(number), *map(str, pids)])
    assert sender.wait() == 0
    return sender.pid


# --- Who is told


ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT)


@runs_here
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT, signal.SIGRTMIN + 3]
)
def test_a_sender_that_is_gone_at_once_is_told(witness: Witness, number: int) -> None:
    with child("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))") as victim:
        by = sent(number, victim.pid)
        row = witness.end_of(victim)
    assert row["signal"] == number
    assert (row["sender_pid"], row["sender_comm"]) == (by, b"assassin")
    assert row["start"] < row["sender_start"] < row["end"]
    (event,) = witness.told_of(victim.pid)
    name = "SIGRTMIN+3" if number > 31 else signal.Signals(number).name
    us = os.getuid()
    assert event.kind == KIND
    assert event.subject == row["comm"].decode()
    assert event.text == f"process {victim.pid} of user {us}: {name} by assassin, process {by} of user {us}"


WITH_THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
WITHOUT_QUEUE = f"import resource; resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0)); {WITH_THREAD}"


@runs_here
@pytest.mark.parametrize("program", [WITH_THREAD, WITHOUT_QUEUE], ids=["queued", "information lost"])
@pytest.mark.parametrize("how", ["kill", "tgkill", "sigqueue"])
def test_a_process_of_several_threads_has_one_sender(witness: Witness, how: str, program: str) -> None:
    with child(program) as victim:
        by = sent(signal.SIGTERM, victim.pid, how=how)
        row = witness.end_of(victim)
    assert (row["signal"], row["sender_pid"]) == (signal.SIGTERM, by)
    assert len(witness.told_of(victim.pid)) == 1


NAMED = """
import os, sys
pid, *pairs = sys.argv[1:]
for name, number in zip(pairs[::2], pairs[1::2]):
    open("/proc/self/comm", "w").write(name)
    os.kill(int(pid), int(number))
"""


@runs_here
@pytest.mark.parametrize("senders", [1, 2])
def test_a_sender_has_the_name_that_it_had_then_and_nothing_of_an_earlier_one(witness: Witness, senders: int) -> None:
    waits, ends = ("a-longer-name", str(int(signal.SIGUSR1))), ("brief", str(int(signal.SIGTERM)))
    blocked = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])"
    with child(blocked) as victim:
        for words in [(*waits, *ends)] if senders == 1 else [waits, ends]:
            subprocess.run([*PYTHON, NAMED, str(victim.pid), *words], check=True)
        row = witness.end_of(victim)
    assert (row["signal"], row["sender_comm"]) == (signal.SIGTERM, b"brief")


# Four numbers of a timer: 10 ms from now, once.
TIMER = """
import ctypes, signal
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
assert not libc.timer_create(1, None, ctypes.byref(timer))
assert not libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 10_000_000), None)
signal.pause()
"""
PIPE = """
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
reads, writes = os.pipe()
os.close(reads)
os.write(writes, b"x")
"""
BY_ITSELF = {
    "fault": ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
    "abort": ("import os; os.abort()", signal.SIGABRT),
    "alarm": ("import signal; signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()", signal.SIGALRM),
    "timer": (TIMER, signal.SIGALRM),
    "pipe": (PIPE, signal.SIGPIPE),
    "limit": ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass", signal.SIGXCPU),
}


def without_cores() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@runs_here
@pytest.mark.parametrize("name", BY_ITSELF)
def test_what_nobody_else_sent_has_no_sender(witness: Witness, name: str) -> None:
    program, number = BY_ITSELF[name]
    victim = subprocess.Popen([*PYTHON, program], preexec_fn=without_cores)  # noqa: PLW1509
    row = witness.end_of(victim)
    assert row["signal"] == number
    assert sender_of(row) == NO_SENDER
    assert witness.told_of(victim.pid) == []


@runs_here
def test_a_timer_that_ends_while_another_process_runs_has_no_sender(witness: Witness) -> None:
    cpu = min(os.sched_getaffinity(0))
    here = f"import os; os.sched_setaffinity(0, {{{cpu}}})\n"
    with child(here + "print(flush=True)\nwhile True: pass") as busy:
        victim = subprocess.Popen([*PYTHON, here + TIMER])
        row = witness.end_of(victim)
        busy.kill()
    assert row["signal"] == signal.SIGALRM
    assert sender_of(row) == NO_SENDER
    assert witness.told_of(victim.pid) == []


HANDLING = "import os, signal; signal.signal(signal.SIGTERM, lambda *_: {})"


@runs_here
@pytest.mark.parametrize(
    ("handler", "number"),
    [
        ("os._exit(15)", 0),
        ("(signal.signal(signal.SIGTERM, signal.SIG_DFL), os.kill(os.getpid(), signal.SIGTERM))", signal.SIGTERM),
    ],
    ids=["exits", "raises it again"],
)
def test_who_handles_a_signal_ends_by_itself(witness: Witness, handler: str, number: int) -> None:
    with child(HANDLING.format(handler)) as victim:
        sent(signal.SIGTERM, victim.pid)
        row = witness.end_of(victim)
    assert row["signal"] == number
    assert sender_of(row) == NO_SENDER
    assert witness.told_of(victim.pid) == []


@runs_here
def test_what_a_process_ignores_ends_nothing_later(witness: Witness) -> None:
    with child("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)") as victim:
        sent(signal.SIGTERM, victim.pid)
        victim.stdin.close()
        row = witness.end_of(victim)
    assert (row["signal"], *sender_of(row)) == (0, *NO_SENDER)


# --- Which of two


BLOCKING = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
# What it does with what is pending, as soon as it reads a line.
THEN = "\nprint(flush=True)\nimport sys\nsys.stdin.readline()\n{}\nprint(flush=True)\n"


@runs_here
def test_of_two_the_one_whose_signal_ended_it_is_told(witness: Witness) -> None:
    with child(BLOCKING) as victim:
        sent(signal.SIGTERM, victim.pid)  # It waits, blocked.
        by = sent(signal.SIGKILL, victim.pid)
        row = witness.end_of(victim)
    assert (row["signal"], row["sender_pid"]) == (signal.SIGKILL, by)


@runs_here
def test_of_two_who_sent_the_same_the_first_is_told(witness: Witness) -> None:
    with child(BLOCKING + THEN.format("signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])")) as victim:
        by = sent(signal.SIGTERM, victim.pid)
        sent(signal.SIGTERM, victim.pid)  # One is pending: the kernel drops the other.
        victim.stdin.write(b"\n")
        victim.stdin.flush()
        row = witness.end_of(victim)
    assert (row["signal"], row["sender_pid"]) == (signal.SIGTERM, by)


TAKES = "signal.sigwait([signal.SIGTERM]); signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])"


@runs_here
def test_a_signal_that_was_waited_for_ended_nothing(witness: Witness) -> None:
    with child(BLOCKING + THEN.format(TAKES)) as victim:
        sent(signal.SIGTERM, victim.pid)
        victim.stdin.write(b"\n")
        victim.stdin.flush()
        assert victim.stdout.readline()
        by = sent(signal.SIGTERM, victim.pid)
        row = witness.end_of(victim)
    assert (row["signal"], row["sender_pid"]) == (signal.SIGTERM, by)


@runs_here
def test_what_the_kernel_sends_after_one_that_was_waited_for_has_no_sender(witness: Witness) -> None:
    takes = TAKES.replace("SIGTERM", "SIGALRM") + "\nsignal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()"
    with child(BLOCKING.replace("SIGTERM", "SIGALRM") + THEN.format(takes)) as victim:
        sent(signal.SIGALRM, victim.pid)
        victim.stdin.write(b"\n")
        victim.stdin.flush()
        row = witness.end_of(victim)
    assert (row["signal"], *sender_of(row)) == (signal.SIGALRM, *NO_SENDER)


# --- Who may know, and what is ordinary


@runs_here
def test_a_sender_of_another_user_is_told_to_those_who_may_know(witness: Witness) -> None:
    program = f"import os; os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)"
    with child(program) as victim:
        by = sent(signal.SIGKILL, victim.pid)
        row = witness.end_of(victim)
    assert (row["uid"], row["signal"]) == (NOBODY, signal.SIGKILL)
    assert sender_of(row) == NO_SENDER  # The table is public.
    (event,) = witness.told_of(victim.pid)
    assert event.text.endswith(f"of user {NOBODY}: SIGKILL by assassin, process {by} of user 0")


@runs_here
def test_who_ends_what_it_started_is_in_the_table_and_no_event(witness: Witness) -> None:
    with child("") as victim:
        victim.kill()
        row = witness.end_of(victim)
    assert row["sender_pid"] == os.getpid()
    assert witness.told_of(victim.pid) == []


@runs_here
def test_so_is_who_ends_what_its_child_started(witness: Witness) -> None:
    starting = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    with subprocess.Popen([*PYTHON, starting + "\ninput()"], stdin=-1, stdout=-1) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        os.kill(pid, signal.SIGTERM)
        parent.communicate(b"\n")
    assert witness.told_of(pid) == []


# --- Many


@runs_here
def test_several_that_one_process_ends_are_one_event(witness: Witness) -> None:
    before, _ = witness.look()
    victims = [subprocess.Popen(["sleep", "600"]) for _ in range(5)]
    by = sent(signal.SIGTERM, *(victim.pid for victim in victims))
    for victim in victims:
        victim.wait()
    after, _ = witness.look()
    (event,) = [event for event in witness.events if f"process {by} of" in event.text]
    assert after - before >= 5
    assert (event.subject, event.text[:25]) == ("sleep", "5 processes: SIGTERM by a")
    assert set(event.detail.split(", ")) == {str(victim.pid) for victim in victims}


def kill(pid: int, comm: str = "worker", by: int = 9) -> KillRecord:
    return KillRecord(pid * 10, 5, pid, 1000, by, 0, comm, "pkill", 15)


def test_many_who_send_at_once_are_one_event() -> None:
    few = [kill(number, by=number + 50) for number in range(EVENTS_AT_ONCE)]
    assert len(list(events_of(few))) == EVENTS_AT_ONCE
    (told,) = events_of([*few, kill(77, "last"), kill(78, "last")])
    assert told == (HostEvent(KIND, "", f"{EVENTS_AT_ONCE + 2} processes at once", detail="worker, last"), 780)
    assert list(events_of([])) == []


@runs_here
def test_what_nobody_takes_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.bpf.loader.KILLS_BYTES", 4096)
    with loaded(tmp_path), closing(Witness(str(tmp_path))) as witness:
        before, lost_before = witness.look()
        victims = [subprocess.Popen(["sleep", "600"]) for _ in range(60)]
        sent(signal.SIGKILL, *(victim.pid for victim in victims))
        for victim in victims:
            victim.wait()
        after, lost = witness.look()
    assert after - before == 4096 // 80
    assert after - before + lost - lost_before >= 60


# --- The reader


@runs_here
def test_what_ended_while_nobody_read_has_its_own_time(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.ends.kills.LATE_NS", 0)
    begun_ns = time.time_ns()
    with child("") as victim:
        sent(signal.SIGKILL, victim.pid)
        victim.wait()
        ended_ns = time.time_ns()
    (event,) = witness.told_of(victim.pid)
    assert event.known_from == KNOWN_FROM
    assert begun_ns <= event.happened_ns <= ended_ns + 10**6


@runs_here
def test_a_kill_wakes_the_reader_and_nothing_else_does(runtime_folder: str) -> None:
    with closing(Witness(runtime_folder)) as witness:
        wakes = witness.host.wakes
        assert wakes
        wakes.poll(0)
        with child("") as victim:
            victim.kill()
        subprocess.run(["true"], check=True)
        assert wakes.poll(0) == []
        with child("") as victim:
            sent(signal.SIGKILL, victim.pid)
        assert wakes.poll(60)


def test_without_programs_it_says_so(tmp_path: Path) -> None:
    host = Host()
    host.runtime = str(tmp_path)
    with closing(host), pytest.raises(FileNotFoundError, match="not by BPF: the BPF loader has not run"):
        list(Kills().read(host))
    with closing(Host(str(tmp_path))) as other, pytest.raises(FileNotFoundError, match="only the running machine"):
        list(Kills().read(other))
