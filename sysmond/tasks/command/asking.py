# SPDX-License-Identifier: Apache-2.0
"""Questions that may take long each: asked in threads, so that one that hangs keeps no other waiting.

Whoever is asked about may have made the question hang: only so many of one account's may be slow at a time, the others
of that account wait until one of those has its answer.
"""

import os
from collections import deque
from collections.abc import Callable, Container, Hashable
from collections.abc import Set as AbstractSet
from threading import Condition, Thread
from time import monotonic
from typing import Generic, TypeVar

# Who takes longer than this has another thread started beside it.
SLOW_S = 0.1
# How many may be slow at a time: of one account, and of all.
SLOW_EACH = 4
THREADS_MAX = 64

Answer = TypeVar("Answer")


class Asking(Generic[Answer]):
    """Asks one question about each of many numbers. Threads live only while there is something to ask."""

    def __init__(self, question: Callable[[int], Answer], account: Callable[[int], Hashable]) -> None:
        """Ask nothing yet; ``question`` is called in a thread. ``account``: at whose cost a question is, at once.

        Neither raises anything.
        """
        self._question = question
        self._account = account
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = Condition()
        self._queue: deque[int] = deque()
        self._waiting: set[int] = set()
        self._answers: list[tuple[int, Answer]] = []
        self._busy: dict[int, float] = {}  # Since when each is asked about.
        self._slow: dict[int, Hashable] = {}  # Which of them are slow, and at whose cost.
        self._apart: dict[Hashable, deque[int]] = {}  # Not asked about while too many of the same account are slow.

    @property
    def waiting(self) -> AbstractSet[int]:
        """Those asked about whose answers have not been given yet."""
        return self._waiting

    @property
    def in_line(self) -> int:
        """How many are to be asked about next; none of those that somebody keeps from it."""
        return len(self._queue)

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
                for number, since_s in self._busy.items():
                    if now_s - since_s > SLOW_S and number not in self._slow:
                        self._slow[number] = self._account(number)
                if len(self._busy) == len(self._slow):  # Nobody is asked but the slow.
                    following = self._next() if len(self._slow) < THREADS_MAX else None
                    if following is None:
                        break
                    self._busy[following] = monotonic()
                    Thread(target=self._go_on, args=(following,), daemon=True).start()
                self._changed.wait(min(left_s, SLOW_S))
            answers, self._answers = self._answers, []
            self._waiting.difference_update([number for number, _ in answers])
        return answers

    def give_up(self, there: Container[int]) -> int:
        """Forget those that are not there any more and were kept from being asked about; gives how many."""
        if self._process != os.getpid():
            self._reset()
        with self._changed:
            gone = [number for each in self._apart.values() for number in each if number not in there]
            for account, numbers in self._apart.items() if gone else ():
                self._apart[account] = deque(number for number in numbers if number in there)
        self._waiting.difference_update(gone)
        return len(gone)

    def _next(self) -> int | None:
        """Take the next one whose account has not too many that are slow; the others are put apart."""
        while self._queue:
            number = self._queue.popleft()
            if not self._slow:  # As nearly always: nobody need be asked at whose cost it is.
                return number
            account = self._account(number)
            if list(self._slow.values()).count(account) < SLOW_EACH:
                return number
            self._apart.setdefault(account, deque()).append(number)
        return None

    def _go_on(self, number: int) -> None:
        """Ask about a number and those behind it, in a thread, up to one that is slow."""
        while True:
            answer = self._question(number)
            with self._changed:
                del self._busy[number]
                self._answers.append((number, answer))
                following = None
                if number in self._slow:  # Another thread has the others.
                    self._queue.extend(self._apart.pop(self._slow.pop(number), ()))
                else:
                    following = self._next()
                if following is None:
                    self._changed.notify()
                    return
                number = following
                self._busy[number] = monotonic()
