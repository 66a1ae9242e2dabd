# SPDX-License-Identifier: Apache-2.0
"""Children of a test that do something known and then stay as they are, until the test is done with them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def waits() -> None:
    """Do nothing."""


@contextmanager
def child(does: Callable[[], object] = waits) -> Iterator[int]:
    """Fork a child, let it do something, and give its number once that is done; it sleeps from then on."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            does()
            os.write(writing, b".")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b".", "the child failed"
        asleep(pid)
        yield pid
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def asleep(pid: int, states: str = "STZ") -> None:
    """Wait until a process, with all its threads, has come to rest."""
    while not all(state(f"{pid}/task/{tid}") in states for tid in os.listdir(f"/proc/{pid}/task")):
        os.sched_yield()


def state(task: str) -> str:
    """Give the letter of a task's state."""
    with open(f"/proc/{task}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1].decode()
