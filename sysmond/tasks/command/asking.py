# SPDX-License-Identifier: Apache-2.0
"""Questions that may hang, asked in threads, so that one that hangs delays no other.

The owner of a process may make questions about it hang: only so many of one account may be slow at a time; the others
of that account wait until one of those is answered.
"""

import os
from collections import deque
from collections.abc import Callable, Container, Hashable
from collections.abc import Set as AbstractSet
from threading import Condition, Thread
from time import monotonic
from typing import Generic, TypeVar

# A question that takes longer has another thread started beside it.
SLOW_S = 0.1
# How many may be slow at a time: of one account, and of all.
SLOW_PER_ACCOUNT = 4
THREADS_MAX = 64

Answer = TypeVar("Answer")


class Asking(Generic[Answer]):
    """Asks one question about each of many numbers. Threads live only while there is something to ask."""

    def __init__(self, question: Callable[[int], Answer], account: Callable[[int], Hashable]) -> None:
        """Ask nothing yet. ``question``: called in threads; ``account``: called at once for the account of a number.

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
        self._busy: dict[int, float] = {}  # Since when each question runs.
        self._slow: dict[int, Hashable] = {}  # The slow ones of them, with their accounts.
        self._apart: dict[Hashable, deque[int]] = {}  # Put off while too many of the same account are slow.

    @property
    def waiting(self) -> AbstractSet[int]:
        """The numbers whose answers have not been given yet."""
        return self._waiting

    @property
    def in_line(self) -> int:
        """How many are in the queue, without those put off."""
        return len(self._queue)

    def ask(self, number: int) -> None:
        """Put a number at the end of the queue, unless it is waiting already."""
        if self._process != os.getpid():  # Threads do not come along through a fork.
            self._reset()
        if number not in self._waiting:
            self._waiting.add(number)
            self._queue.append(number)

    def answers(self, wait_s: float) -> list[tuple[int, Answer]]:
        """Wait for answers for at most this long, but not for slow ones; return those that are there."""
        if self._process != os.getpid():
            self._reset()
        until_s = monotonic() + wait_s
        with self._changed:
            while (left_s := until_s - (now_s := monotonic())) > 0:
                for number, since_s in self._busy.items():
                    if now_s - since_s > SLOW_S and number not in self._slow:
                        self._slow[number] = self._account(number)
                if len(self._busy) == len(self._slow):  # Only slow questions are running.
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
        """Forget the numbers put off that are not in ``there``; return how many."""
        if self._process != os.getpid():
            self._reset()
        with self._changed:
            gone = [number for queue in self._apart.values() for number in queue if number not in there]
            for account, numbers in self._apart.items() if gone else ():
                self._apart[account] = deque(number for number in numbers if number in there)
        self._waiting.difference_update(gone)
        return len(gone)

    def _next(self) -> int | None:
        """Take the next number whose account has few slow ones; put off the others."""
        while self._queue:
            number = self._queue.popleft()
            if not self._slow:  # As nearly always: no need to look up the account.
                return number
            account = self._account(number)
            if list(self._slow.values()).count(account) < SLOW_PER_ACCOUNT:
                return number
            self._apart.setdefault(account, deque()).append(number)
        return None

    def _go_on(self, number: int) -> None:
        """Ask about a number and those after it, in a thread, until one is slow."""
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
