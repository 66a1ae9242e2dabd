# SPDX-License-Identifier: Apache-2.0
"""Questions that may take long each: asked in threads, so that one that hangs keeps no other waiting."""

import os
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from threading import Condition, Thread
from time import monotonic
from typing import Generic, TypeVar

# Who takes longer than this has another thread started beside it.
SLOW_S = 0.1
THREADS_MAX = 4

Answer = TypeVar("Answer")


class Asking(Generic[Answer]):
    """Asks one question about each of many numbers. Threads live only while there is something to ask."""

    def __init__(self, question: Callable[[int], Answer]) -> None:
        """Ask nothing yet; ``question`` is called in a thread, and raises nothing."""
        self._question = question
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = Condition()
        self._queue: deque[int] = deque()
        self._waiting: set[int] = set()
        self._answers: list[tuple[int, Answer]] = []
        self._busy: dict[int, float] = {}  # Since when each is asked about.

    @property
    def waiting(self) -> AbstractSet[int]:
        """Those asked about whose answers have not been given yet."""
        return self._waiting

    def ask(self, number: int) -> None:
        """Put a number at the end of the queue, unless it is waiting already."""
        if self._process != os.getpid():  # Threads do not come along through a fork.
            self._reset()
        if number not in self._waiting:
            self._waiting.add(number)
            self._queue.append(number)

    def answers(self, wait_s: float) -> list[tuple[int, Answer]]:
        """Give the answers that are there, after waiting for the others, but not for longer than this.

        It does not wait for those that have been slow already, either.
        """
        if self._process != os.getpid():
            self._reset()
        until_s = monotonic() + wait_s
        with self._changed:
            while (left_s := until_s - (now_s := monotonic())) > 0:
                slow = sum(now_s - since_s > SLOW_S for since_s in self._busy.values())
                if self._queue and len(self._busy) == slow < THREADS_MAX:
                    self._start()
                elif len(self._busy) == slow:
                    break  # Nobody is asked but the slow, and nobody else can be.
                self._changed.wait(min(left_s, SLOW_S))
            answers, self._answers = self._answers, []
            self._waiting.difference_update([number for number, _ in answers])
        return answers

    def _start(self) -> None:
        """Have a thread ask the next one, and those behind it."""
        number = self._queue.popleft()
        self._busy[number] = monotonic()
        Thread(target=self._go_on, args=(number,), daemon=True).start()

    def _go_on(self, number: int) -> None:
        while True:
            answer = self._question(number)
            with self._changed:
                was_slow = monotonic() - self._busy.pop(number) > SLOW_S
                self._answers.append((number, answer))
                if was_slow or not self._queue:  # After a slow one, another thread has the others.
                    self._changed.notify()
                    return
                number = self._queue.popleft()
                self._busy[number] = monotonic()
