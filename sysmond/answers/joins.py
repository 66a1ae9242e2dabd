# SPDX-License-Identifier: Apache-2.0
"""Joins: texts that belong to the numbers of a row: users, cgroups and what they tell, programs, calls, stacks."""

import pwd
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from sysmond.answers.columns import COMMAND, EXE, PATH
from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.cgroups.owner import Owner, owner
from sysmond.rollup.condition import Words
from sysmond.store.ends import GRAIN_NS
from sysmond.store.stretch import Stretch
from sysmond.tasks import syscalls

CGROUP_TABLE, CGROUP_KEY, COMMAND_TABLE, STACK_TABLE = "cgroup_name", "id", "command", "kernel_stack"


@cache
def username(uid: int) -> str:
    """The name of a user; the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _distinct(numbers: Int64Array, text: Callable[[int], str | None]) -> Words:
    """Texts of numbers, each distinct one looked up once."""
    values, where = np.unique(numbers, return_inverse=True)
    texts: dict[str, int] = {}
    codes = []
    for value in values.tolist():
        found = None if value == ABSENT else text(value)
        codes.append(-1 if found is None else texts.setdefault(found, len(texts)))
    return Words(np.array(codes, np.int64)[where] if len(values) else np.zeros(0, np.int64), list(texts))


def usernames(uids: Int64Array) -> Words:
    """The names of users."""
    return _distinct(uids, username)


def syscall_names(numbers: Int64Array) -> Words:
    """The names of system calls; nothing where a thread is in none."""
    return _distinct(numbers, lambda number: syscalls.name(number) or None)


class Stacks:
    """Kernel stacks of one boot: their functions, innermost first."""

    def __init__(self, stretches: Sequence[Stretch] = ()) -> None:
        self._functions: dict[int, str] = {}
        for stretch in stretches:
            texts = stretch.texts
            numbers = zip(stretch.keys["id"].tolist(), stretch.last("functions").tolist(), strict=True)
            self._functions.update({number: texts[code] for number, code in numbers if code != ABSENT})

    def texts(self, numbers: Int64Array) -> Words:
        """The functions of stacks; the number of one that was lost."""
        return _distinct(numbers, lambda number: self._functions.get(number, f"#{number}"))


class Cgroups:
    """Paths of the cgroups of one boot, by number."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._paths: dict[int, str] = {}
        for stretch in stretches:
            texts = stretch.texts
            numbers = zip(stretch.keys[CGROUP_KEY].tolist(), stretch.last("path").tolist(), strict=True)
            self._paths.update({ident: texts[code] for ident, code in numbers if code != ABSENT})
        self._owners: dict[int, Owner | None] = {}

    def texts(self, ids: Int64Array, name: str) -> Words:
        """Paths of cgroups, or what they tell by the name of that."""
        if name == PATH:
            return _distinct(ids, self._paths.get)
        return _distinct(ids, lambda ident: getattr(self._owner(ident), name, None))

    def _owner(self, ident: int) -> Owner | None:
        if ident not in self._owners:
            path = self._paths.get(ident)
            self._owners[ident] = None if path is None else owner(path)
        return self._owners[ident]


class Commands:
    """Programs and command lines of the processes of one boot."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._texts: dict[str, list[str]] = {EXE: [], COMMAND: []}
        self._known: dict[tuple[int, int], tuple[str, str]] = {}
        for stretch in stretches:
            texts = [*stretch.texts, ""]
            columns = [stretch.keys["pid"], stretch.keys["start"]]
            columns += [np.where((last := stretch.last(name)) == ABSENT, -1, last) for name in (EXE, COMMAND)]
            for pid, start_ns, exe, command in zip(*(column.tolist() for column in columns), strict=True):
                self._known[pid, start_ns] = texts[exe], texts[command]
        self._sorted = sorted(self._known)
        self._pids = np.array([pid for pid, _ in self._sorted], np.int64)
        self._starts = np.array([start for _, start in self._sorted], np.int64)

    def texts(self, pids: Int64Array, starts: Int64Array, name: str, *, of_threads: bool) -> Words:
        """Programs (``exe``) or command lines of processes, or of those that threads belong to.

        A thread began when its process did, or later. Clocks of /proc are coarse: starts may differ by a tick of it.
        """
        order = np.lexsort((self._starts, self._pids))
        texts: dict[str, int] = {}
        codes = np.full(len(pids), -1, np.int64)
        if len(order):
            low = np.searchsorted(self._pids, pids, "left")
            high = np.searchsorted(self._pids, pids, "right")
            place = 0 if name == EXE else 1
            for row in np.flatnonzero(high > low).tolist():
                mine = self._starts[low[row] : high[row]]
                at = int(np.searchsorted(mine, starts[row] + GRAIN_NS, "left")) - 1
                if at >= 0 and (of_threads or mine[at] > starts[row] - GRAIN_NS):
                    text = self._known[self._sorted[int(low[row]) + at]][place]
                    codes[row] = texts.setdefault(text, len(texts))
        return Words(codes, list(texts))
