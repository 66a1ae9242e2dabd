# SPDX-License-Identifier: Apache-2.0
"""What threads are at, by /proc: children that run, that wait uninterruptibly, that sleep."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from sysmond.tasks.proc import Proc
from sysmond.tasks.tables import THREAD_STATE
from tests.children import asleep, child
from tests.test_tasks_proc import Row, rows, several


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


def looked_at(tasks: Proc, *, every: bool = False) -> dict[int, Row]:
    tasks.take(full=False, threads=False)
    records = tasks.states(every=every)
    assert (records.full, records.lost) == (True, 0)
    return rows(THREAD_STATE, records)


@pytest.fixture(params=["by clock", "by files"])
def tasks(request: pytest.FixtureRequest) -> Iterator[Proc]:
    found = Proc()
    found._numbers.is_ours = request.param == "by clock"
    yield found
    found.close()


def test_those_that_run_are_told_of_and_those_that_sleep_where_all_are_wanted(tasks: Proc) -> None:
    with busy(spin, "R") as runner, child() as sleeper:
        for _ in range(3):
            found = looked_at(tasks)
            assert found[runner]["state"] == b"R"
            assert (found[runner]["syscall"], found[runner]["wait"].rstrip(b"\0")) == (-1, b"")
            assert found[runner]["uid"] == os.getuid()
            assert sleeper not in found
        everyone = looked_at(tasks, every=True)
        assert everyone[sleeper]["state"] == b"S"
        with open(f"/proc/{sleeper}/syscall", encoding="ascii") as file:
            assert everyone[sleeper]["syscall"] == int(file.read().split()[0])
    assert runner not in looked_at(tasks)


def test_one_that_waits_uninterruptibly_is_told_of_for_as_long_as_it_does(tasks: Proc, tmp_path: Path) -> None:
    pipe = f"{tmp_path}/pipe"
    os.mkfifo(pipe)

    def wait() -> None:  # For its child, which waits for somebody to write, to execute a program.
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, pipe, os.O_RDONLY, 0)])
        threading.Event().wait()

    with busy(wait, "D") as pid:
        for _ in range(3):
            row = looked_at(tasks)[pid]
            assert row["state"] == b"D"
            with open(f"/proc/{pid}/wchan", "rb") as file:
                assert row["wait"].rstrip(b"\0") == file.read().replace(b"0", b"", 1)
            assert row["stack"] is None
        os.close(os.open(pipe, os.O_WRONLY))
        asleep(pid)
        looked_at(tasks)
        assert pid not in looked_at(tasks)


def test_threads_are_told_of_one_by_one(tasks: Proc) -> None:
    with child(several) as pid:
        asleep(pid)
        ours = {tid for tid, row in looked_at(tasks, every=True).items() if row["pid"] == pid}
        assert ours == {int(name) for name in os.listdir(f"/proc/{pid}/task")}
        assert len(ours) == 4


def test_a_thread_that_runs_beside_a_first_that_sleeps_is_found(tasks: Proc) -> None:
    with busy(spin_beside, "RS") as pid:
        while len(os.listdir(f"/proc/{pid}/task")) < 2:
            os.sched_yield()
        [runner] = (int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)
        while (row := looked_at(tasks).get(runner)) is None:
            pass  # It had not begun yet.
        assert (row["pid"], row["state"]) == (pid, b"R")
