# SPDX-License-Identifier: Apache-2.0
"""Sources that are read in turn by one thread: the one that is late keeps it, and another thread reads the others.

So a tick of the background lane costs one wake-up of one thread, however many tables are due. Standard library only.
"""

from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Absence
from sysmond.sampler.source import Pieces, Reading, Source

Mark = Callable[[Source], None]


class TimedReading(NamedTuple):
    """A reading, and how long it took."""

    reading: Reading | Pieces | Absence
    took_s: float


class InThread:
    """Reads a source in a thread, one at a time; what hangs there stays there."""

    def __init__(self, source: Source) -> None:
        """Nothing is being read yet."""
        self.source = source
        self._is_asked = False
        self._answers: list[TimedReading] = []

    @property
    def deadline_s(self) -> float:
        """How long its reading is waited for."""
        return self.source.deadline_ns / SECOND_NS

    def ask(self) -> None:
        """Ask for a reading, whose turn comes."""
        self._is_asked, self._answers = True, []

    def read(self, mark: Mark) -> None:
        """Read it now, in the thread that calls this. ``mark`` notes which source is being read."""
        source, answers = self.source, self._answers  # Its own: the answer of one left alone is nobody's.
        begin_s = monotonic()
        try:
            mark(source)
            reading = source.read()
        except BaseException as problem:  # noqa: BLE001  the turn of the others comes, whatever a probe raises
            reading = source.failed(problem)
        answers.append(TimedReading(reading, monotonic() - begin_s))

    def reads_alone(self) -> None:
        """Read what was asked for in a thread that is nobody else's: it was late before, and is not waited for."""
        try:
            Thread(target=self.read, args=(_unmarked,), daemon=True).start()
        except RuntimeError as problem:
            self.fails(problem)

    def fails(self, problem: RuntimeError) -> None:
        """There is no thread for it: that is its answer."""
        self._answers.append(TimedReading(self.source.failed(problem), 0.0))

    def is_busy(self) -> bool:
        """Whether it is still reading."""
        return self._is_asked and not self._answers

    def answer(self) -> TimedReading | None:
        """Give what has been read, once."""
        if not self._answers:
            return None
        self._is_asked = False
        answer = self._answers.pop()
        self.source.cost.duration_ns += round(answer.took_s * SECOND_NS)
        return answer


def _unmarked(_: Source) -> None:
    """Another one may be marked as that which is read: of what goes on by itself a lane dies seldom."""


class ReadingTurns:
    """The thread in which sources are read in turn; made when one is asked for."""

    def __init__(self) -> None:
        """Have none yet."""
        self._thread: _ReadingThread | None = None

    def read(self, asked: Iterable[InThread], mark: Mark) -> None:
        """Read all that were asked, each in the order in which it comes, and wait for each until its deadline."""
        waiting = deque(asked)
        while waiting:
            if self._thread is None:
                try:
                    self._thread = _ReadingThread()
                except RuntimeError as problem:  # The machine has no more of them; the next tick may have one.
                    for one in waiting:
                        one.fails(problem)
                    return
            if not self._thread.reads(waiting, mark):
                self._thread = None  # It belongs to the one that is late, and ends with its reading.

    def close(self) -> None:
        """Have the thread end."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None


class _Turn(NamedTuple):
    """What is to be read; ``over`` is released behind the last."""

    waiting: deque[InThread]
    mark: Mark
    over: Lock


class _ReadingThread:
    """A thread that reads whatever it is given, until it is left alone with one that is late."""

    def __init__(self) -> None:
        """Start it.

        :raises RuntimeError: where the machine has no more threads.
        """
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        # Held by who decides what is read next, or that this thread reads nothing more.
        self._deciding = Lock()
        self._current: InThread | None = None
        self._begun_s = 0.0
        self._is_left = False
        Thread(target=self._run, daemon=True).start()

    def reads(self, waiting: deque[InThread], mark: Mark) -> bool:
        """Read what is waiting, and take it from there; False where it is left alone with one that is late."""
        shortest_s = wait_s = min(one.deadline_s for one in waiting)
        turn = _Turn(waiting, mark, Lock())
        turn.over.acquire()
        self._turns.put(turn)
        while not turn.over.acquire(timeout=wait_s):
            with self._deciding:
                if self._current is None:
                    continue  # It has just finished, or has not begun.
                left_s = self._begun_s + self._current.deadline_s - monotonic()
                if left_s <= 0 and self._current.is_busy():
                    self._is_left = True
                    return False
                wait_s = min(left_s, shortest_s) if left_s > 0 else shortest_s
        return True

    def end(self) -> None:
        """Have it end once it is done."""
        self._turns.put(None)

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            while (asked := self._next(turn.waiting)) is not None:
                asked.read(turn.mark)
            if self._is_left:
                return
            turn.over.release()

    def _next(self, waiting: deque[InThread]) -> InThread | None:
        with self._deciding:
            self._current = None if self._is_left or not waiting else waiting.popleft()
            self._begun_s = monotonic()
            return self._current
