# SPDX-License-Identifier: Apache-2.0
"""What threads are doing at this moment, by BPF or /proc, and the kernel stacks that they were in.

A thread's row has the number of its kernel stack; the table of stacks has its text once, at the same tick or, where
that table has a longer interval, later. Its full reading, every few minutes, has all stacks since the last full reading
but one: so the stacks of threads recorded in a range of time are recorded in the same range.
"""

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, Protocol

from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.records import Records
from sysmond.tasks.bpf.report import pins_of, refused
from sysmond.tasks.choose import BY_PROC
from sysmond.tasks.pieces import pieces
from sysmond.tasks.tables import KERNEL_STACK

BY_BPF = "by BPF"
PROGRAM = "states"
# How often it is looked for: the loader is another program, and may run later.
RETRY_S = 10.0
# Stacks of one round, half a KiB each. More than these are counted as lost.
STACKS_MAX = 8192


class ThreadStates(Protocol):
    """A way to look at all threads."""

    def take(self, *, full: bool, every: bool = False) -> tuple[Records, dict[int, str]]:
        """Look: rows that hold until the next look, and stacks not given before, by number, a line a function.

        ``full``: give all stacks again; ``every``: rows of all threads, not only of those that run or wait
        uninterruptibly.

        :raises OSError: where threads cannot be seen.
        """

    def close(self) -> None:
        """Close what is open."""


class Stacks:
    """Which stacks were seen, and which of them are recorded."""

    def __init__(self, most: int = STACKS_MAX) -> None:
        """Know none. ``most``: of one round, from one full reading to the next."""
        self._most = most
        self._before: dict[int, bytes] = {}
        self._met: dict[int, bytes] = {}
        self._recorded: set[int] = set()
        self._lost = 0

    def meet(self, stacks: Mapping[int, str]) -> None:
        """Note stacks, a line a function."""
        for number, text in stacks.items():
            if number in self._met:
                continue
            if len(self._met) >= self._most:
                self._lost += 1
                continue
            self._met[number] = text.replace("\n", ";").encode("utf-8", "replace")

    def records(self, *, full: bool) -> Sequence[Records]:
        """Give those not recorded yet; with ``full`` all of this round and the one before, and begin another round."""
        if full:
            stacks = self._before | self._met
            self._recorded = set(stacks)
            self._before, self._met = self._met, {}
        else:
            stacks = {number: text for number, text in self._met.items() if number not in self._recorded}
            self._recorded.update(stacks)
        lost, self._lost = self._lost, 0
        return pieces(KERNEL_STACK, stacks.items(), full=full, lost=lost, walked=len(stacks) + lost)


class _Asked(NamedTuple):
    every: bool = False
    by_proc: bool = False


class Looking:
    """Looks at the threads of one host. ``way``: how, and why not better, in one line."""

    def __init__(self, runtime_folder: str, root: str) -> None:
        """Look at nothing yet."""
        self.way = ""
        self._runtime, self._root = runtime_folder, root
        self._states: ThreadStates | None = None
        self._is_by_bpf = False
        self._again_s = 0.0
        self._asked = _Asked()
        self._is_awaited = False  # Threads were read since stacks were.
        self._tick = -1
        self._rows = Records(b"")
        self._are_stacks_due = True  # Give all at the next look.
        self._stacks = Stacks()

    def threads(self, tick: int, *, every: bool, by_proc: bool) -> Records:
        """Give what threads are at. The rows hold until the next look.

        ``every``: also those that sleep. ``by_proc``: look at /proc where BPF is unavailable.

        :raises OSError: where neither is available.
        """
        asked = _Asked(every, by_proc)
        if tick != self._tick or asked != self._asked:
            self._look(tick, asked)
        self._is_awaited = True
        return self._rows

    def stacks(self, tick: int, *, full: bool) -> Sequence[Records]:
        """Give the stacks of threads that are not recorded yet, or with ``full`` all recent ones.

        May be called before the threads of the tick are read: it looks at them then.
        """
        if self._is_awaited and tick != self._tick:
            with suppress(OSError):  # The reading of threads reports it.
                self._look(tick, self._asked)
        self._is_awaited = False
        self._are_stacks_due = self._are_stacks_due or full
        return self._stacks.records(full=full)

    def _look(self, tick: int, asked: "_Asked") -> None:
        if asked != self._asked:
            self.close()  # The loader makes room for as many as the plan asks for.
        self._asked = asked
        if not self._is_by_bpf and monotonic() >= self._again_s:
            self._open()
        if self._states is None:
            raise FileNotFoundError(errno.ENOENT, f"{self.way}; with its option by_proc on, /proc is read")
        try:
            self._rows, stacks = self._states.take(full=self._are_stacks_due, every=asked.every)
        except BaseException:  # It may have been interrupted in the middle: what is half done is not gone on with.
            self.close()
            raise
        self._tick, self._are_stacks_due = tick, False
        self._stacks.meet(stacks)

    def close(self) -> None:
        """Close the way; the next look opens one anew."""
        self._again_s, self._is_by_bpf = 0.0, False
        self._tick, self._rows = -1, Records(b"")
        states, self._states = self._states, None
        if states is not None:
            with suppress(BufferError):  # Rows are still in use: memory is given back when those go.
                states.close()

    def _open(self) -> None:
        """Switch to the best way there is; without BPF, use /proc where the option asks for it."""
        try:
            states = _pinned(self._runtime, self._root)
        except Error as why:
            if self._states is None and self._asked.by_proc:
                from sysmond.tasks.proc.states import Looks  # noqa: PLC0415  BPF does without

                self._states = Looks(self._root)
            self.way = f"{BY_PROC}; not by BPF: {why}" if self._states else f"not by BPF: {why}"
            self._again_s = monotonic() + RETRY_S
            return
        self.close()
        self._states, self._is_by_bpf, self.way = states, True, BY_BPF


def _pinned(runtime_folder: str, root: str) -> ThreadStates:
    """Open what the loader pinned.

    :raises Error: where that fails, with the reason.
    """
    folder = pins_of(runtime_folder, root)
    from sysmond.tasks.bpf import states  # noqa: PLC0415  /proc does without, and without ctypes

    try:
        return states.BpfStates(folder)
    except Error as why:
        raise Error(refused(runtime_folder, PROGRAM) or str(why)) from None


def looking_at(host: Host) -> Looking:
    """Give what looks at the threads of a host, which both tables share."""
    return host.shared(_made_for)


def _made_for(host: Host) -> Looking:
    return Looking(host.runtime, host.root)
