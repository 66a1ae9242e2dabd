# SPDX-License-Identifier: Apache-2.0
"""Processes that start, read in /proc at once: a thread waits for the messages of the proc connector.

It sleeps in the kernel while nothing starts. After a first message it waits a moment: a process that begins, executes
its program and ends within that is one failed look instead of three readings, and a storm wakes it so many times a
second and no more. ``READS_PER_S`` bounds what it reads; the others are counted, and found by looking if they live.

A reading may hang where the owner of a process wants it to: another thread takes over then, a few times.
"""

import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic, monotonic_ns, sleep
from typing import Generic, NamedTuple, TypeVar

from sysmond.errors import Error
from sysmond.tasks.ends.connector import EXEC, FORK, WHAT, Connector
from sysmond.tasks.ends.netlink import BUFFER_BYTES

# How long messages are gathered before processes are read: what lives as long has a name.
GATHER_S = 0.01
# How many processes are read in a second, and how many of them at once after a quiet one.
READS_PER_S = 400
# How many readings wait to be asked for: those of some seconds.
WAITING_MAX = 8192
# A reading that takes longer hangs, and so many may.
HANGS_S = 0.1
HANGING_MAX = 4
BY_STARTS, BY_EXECS = FORK | EXEC, EXEC

Reading = TypeVar("Reading")


class Start(NamedTuple, Generic[Reading]):
    """What was read of a process, and when: after it began or executed a program; CLOCK_MONOTONIC."""

    pid: int
    since_ns: int
    until_ns: int
    reading: Reading


class Starts(Generic[Reading]):
    """Reads each process that starts. ``read`` gives what there is to know, in a thread; None where it is gone."""

    def __init__(
        self, read: Callable[[int], Reading | None], wanted: int = BY_STARTS, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        """Begin to listen.

        :raises Error: where the kernel sends nothing to this process.
        """
        connector = Connector(buffer_bytes, wanted)
        try:
            work = _Work(read, connector)
            work.begin()
        except (OSError, RuntimeError) as failure:
            connector.close()
            raise Error(f"{WHAT}: {failure}; expected a descriptor and a thread") from None
        self._work = work

    def take(self) -> tuple[list[Start[Reading]], int]:
        """Give what was read since the call before, in order, and of how many starts nothing was.

        :raises OSError: as the kernel said.
        """
        return self._work.take()

    def close(self) -> None:
        """Stop listening."""
        self._work.end()

    def __del__(self) -> None:
        """Stop the thread of a probe that was turned off, and dropped without a ``close``."""
        with suppress(AttributeError):  # It could not be opened.
            self._work.end()


class _Work(Generic[Reading]):
    """What the thread works on, which does not keep alive who asked for it."""

    def __init__(self, read: Callable[[int], Reading | None], connector: Connector) -> None:
        self._read, self._connector = read, connector
        self._lock = Lock()
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_over = False
        self._turn = self._hanging = 0
        self._busy_s = float("inf")
        self._room, self._filled_s = float(READS_PER_S), monotonic()
        self._made: deque[Start[Reading]] = deque(maxlen=WAITING_MAX)
        self._unread = 0
        self._failure: OSError | None = None

    def begin(self) -> None:
        """Start a thread; the one before, if any, ends when it gets on."""
        self._turn += 1
        try:
            Thread(target=self._go_on, args=(self._turn,), name="starts", daemon=True).start()
        except RuntimeError:
            if self._turn == 1:  # Nobody else closes it.
                os.close(self._ended)
            raise

    def take(self) -> tuple[list[Start[Reading]], int]:
        if self._failure is not None:
            raise self._failure
        with self._lock:
            if monotonic() - self._busy_s > HANGS_S and self._hanging < HANGING_MAX:
                self._hanging += 1
                self._busy_s = float("inf")
                self.begin()
            made, self._made = list(self._made), deque(maxlen=WAITING_MAX)
            unread, self._unread = self._unread, 0
        return made, unread

    def end(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = True
                os.eventfd_write(self._ended, 1)

    def _go_on(self, turn: int) -> None:
        poll = select.poll()
        poll.register(self._connector.fileno(), select.POLLIN | select.POLLERR)
        poll.register(self._ended, select.POLLIN)
        try:
            while self._has_come(poll):
                sleep(GATHER_S)
                for pid, since_ns in self._due():
                    self._busy_s = monotonic()
                    reading = self._read(pid)
                    with self._lock:
                        if turn != self._turn:  # It hung: another thread has gone on since.
                            self._hanging -= 1
                            return
                        self._busy_s = float("inf")
                        if reading is not None:
                            self._unread += len(self._made) == WAITING_MAX
                            self._made.append(Start(pid, since_ns, monotonic_ns(), reading))
        except OSError as failure:
            self._failure = failure
        with self._lock:
            self._is_over = True  # Whatever ended it: nobody writes into what is closed.
            self._connector.close()
            os.close(self._ended)

    def _has_come(self, poll: select.poll) -> bool:
        """Sleep until a message comes; False where it is over instead."""
        poll.poll()
        return not self._is_over

    def _due(self) -> list[tuple[int, int]]:
        """The processes to be read now, each with the time of its last message: of too many, the newest."""
        started: dict[int, int] = {}
        for pid, time_ns in self._connector.starts():
            started.pop(pid, None)  # So that the newest come last.
            started[pid] = time_ns
        now_s = monotonic()
        self._room = min(READS_PER_S, self._room + (now_s - self._filled_s) * READS_PER_S)
        self._filled_s = now_s
        due = list(started.items())
        due = due[len(due) - min(len(due), int(self._room)) :]
        self._room -= len(due)
        with self._lock:
            self._unread += len(started) - len(due) + self._connector.lost()
        return due
