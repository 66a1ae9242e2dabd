# SPDX-License-Identifier: Apache-2.0
"""What threads are at, by /proc: children that run, that wait uninterruptibly, that sleep."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from sysmond.tasks.proc import states, text
from sysmond.tasks.proc.states import Looks
from sysmond.tasks.tables import THREAD_STATE
from tests.support.children import asleep, child
from tests.tasks.proc.test_proc import Row, rows, several

HANG_NS = 60 * 10**9  # A slow machine shall look to the end, too.


@contextmanager
def busy(does: Callable[[], object], state: str) -> Iterator[int]:
    """Fork a child that never comes back from what it does, and wait until it is in a state."""
    pid = os.fork()
    if pid == 0:
        try:
            does()
        finally:
            os._exit(1)
    try:
        asleep(pid, state)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def spin() -> NoReturn:
    while True:
        pass


def spin_beside() -> None:
    threading.Thread(target=spin, daemon=True).start()
    threading.Event().wait()


@contextmanager
def waiting(folder: Path) -> Iterator[int]:
    """Fork a child that waits uninterruptibly: for its own child, which waits for a writer, to execute a program."""
    pipe = f"{folder}/pipe"
    os.mkfifo(pipe)

    def wait() -> None:
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, pipe, os.O_RDONLY, 0)])
        threading.Event().wait()

    try:
        with busy(wait, "D") as pid:
            opener = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
            asleep(opener, "S")  # Else nobody may wait yet when it is let go of, and it would wait for ever.
            for _ in range(1000):  # It says so a moment before it is off the processor.
                if Path(f"/proc/{pid}/wchan").read_bytes() != b"0":
                    break
                os.sched_yield()
            yield pid
    finally:
        with suppress(OSError):  # Nobody waits any more.
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def looked_at(looks: Looks, *, every: bool = False) -> dict[int, Row]:
    records, _ = looks.take(full=False, every=every)
    assert (records.full, records.lost) == (True, 0)
    return rows(THREAD_STATE, records)


@pytest.fixture(params=["by clock", "by files"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    monkeypatch.setattr(states, "YOUNG_NS", 0)
    found = Looks(look_ns=HANG_NS)
    assert found._numbers.is_ours
    found._numbers.is_ours = request.param == "by clock"
    yield found
    found.close()


def test_those_that_run_are_told_of_and_those_that_sleep_where_all_are_wanted(looks: Looks) -> None:
    with busy(spin, "R") as runner, child() as sleeper:
        for _ in range(3):
            found = looked_at(looks)
            assert found[runner]["state"] == b"R"
            assert (found[runner]["syscall"], found[runner]["wchan"].rstrip(b"\0")) == (-1, b"")
            assert found[runner]["uid"] == os.getuid()
            assert sleeper not in found
        everyone = looked_at(looks, every=True)
        assert everyone[sleeper]["state"] == b"S"
        with open(f"/proc/{sleeper}/syscall", encoding="ascii") as file:
            assert everyone[sleeper]["syscall"] == int(file.read().split()[0])
    assert runner not in looked_at(looks)


def test_one_that_waits_uninterruptibly_is_told_of_for_as_long_as_it_does(looks: Looks, tmp_path: Path) -> None:
    with waiting(tmp_path) as pid:
        for _ in range(3):
            row = looked_at(looks)[pid]
            assert row["state"] == b"D"
            with open(f"/proc/{pid}/wchan", "rb") as file:
                assert row["wchan"].rstrip(b"\0") == file.read().replace(b"0", b"", 1)
            assert row["uid"] == os.getuid()
            with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
                assert row["syscall"] == int(file.read().split()[0])
        os.close(os.open(f"{tmp_path}/pipe", os.O_WRONLY))
        asleep(pid)
        looked_at(looks)
        assert pid not in looked_at(looks)


def test_threads_are_told_of_one_by_one(looks: Looks) -> None:
    with child(several) as pid:
        asleep(pid)
        ours = {tid for tid, row in looked_at(looks, every=True).items() if row["pid"] == pid}
        assert ours == {int(name) for name in os.listdir(f"/proc/{pid}/task")}
        assert len(ours) == 4


def test_a_thread_that_runs_beside_a_first_that_sleeps_is_found(looks: Looks) -> None:
    with busy(spin_beside, "RS") as pid:
        while len(os.listdir(f"/proc/{pid}/task")) < 2:
            os.sched_yield()
        [runner] = (int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)
        while (row := looked_at(looks).get(runner)) is None:
            pass  # It had not begun yet.
        assert (row["pid"], row["state"]) == (pid, b"R")


@pytest.mark.skipif(os.geteuid() != 0, reason="kernel stacks are root's to read")
def test_the_stack_of_one_that_waits_uninterruptibly_is_told_by_number(looks: Looks, tmp_path: Path) -> None:
    with waiting(tmp_path) as pid:
        records, stacks = looks.take(full=False)
        number = rows(THREAD_STATE, records)[pid]["stack"]
        with open(f"/proc/{pid}/stack", encoding="ascii") as file:
            lines = [line.split("] ")[1].split("+")[0] for line in file]
        assert stacks[number].split("\n") == lines[:16]
        records, again = looks.take(full=False)
        assert rows(THREAD_STATE, records)[pid]["stack"] == number
        assert again[number] == stacks[number]


def test_one_that_began_just_now_may_execute_a_program_and_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(states, "YOUNG_NS", 1 << 62)
    looks = Looks(look_ns=HANG_NS)
    with waiting(tmp_path) as pid:
        row = looked_at(looks)[pid]
        assert (row["state"], row["syscall"], row["stack"]) == (b"D", -1, None)
    looks.close()


def test_when_time_is_up_the_rest_is_counted_and_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_CLOCKS", 1)
    looks = Looks(look_ns=0)
    with busy(spin, "R") as runner:
        there = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        first, _ = looks.take(full=True)
        assert first.lost >= len(there) // 2
        assert first.walked == first.lost + 1
        for _ in range(1000 * len(there)):  # Others have many threads, each with a turn of its own.
            records, _ = looks.take(full=False)
            assert len(rows(THREAD_STATE, records)) <= 1  # A look a time, as far as time goes.
            if runner in rows(THREAD_STATE, records):
                break
        else:
            pytest.fail("its turn never came")
    looks.close()


def test_the_threads_of_a_process_have_their_turns_where_there_is_no_time_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = Looks(look_ns=HANG_NS)
    with child(several) as pid:
        looked_at(looks, every=True)
        monkeypatch.setattr(looks, "_look_ns", 0)
        seen: list[int] = []
        while len(seen) < 4:
            records, _ = looks.take(full=False, every=True)
            ours = [tid for tid, row in rows(THREAD_STATE, records).items() if row["pid"] == pid]
            assert len(ours) <= 1
            assert not ours or records.lost >= 3
            seen += ours
        assert {*seen} == {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    looks.close()


def test_a_process_whose_many_threads_sleep_is_left_alone_once_all_were_looked_at() -> None:
    looks = Looks(look_ns=0)
    with child(several) as pid:
        walked = 0
        while (known := looks._known.get(str(pid))) is None or known.pulse < 0 or looks._unfinished is not None:
            looks.take(full=False)
            unfinished = looks._unfinished
            walked += unfinished is not None and unfinished.process.pid == pid
        assert walked >= 3  # Readings that ended within it.
        assert not known.is_busy
    looks.close()


def test_a_stack_is_read_from_what_the_kernel_writes() -> None:
    content = b"[<0>] kernel_clone+0x1/0x2\n[<0>] " + b"x" * 40 + b"+0x9/0x9 [module]\n" + b"[<0>] one+0/1\n" * 20
    functions = text.stack(content).split("\n")
    assert functions[:3] == ["kernel_clone", "x" * 31, "one"]
    assert len(functions) == 16
    assert text.stack(b"") == ""
