# SPDX-License-Identifier: Apache-2.0
"""Joins: texts that belong to the numbers of a row, from other tables, or known to every reader."""

import os
import pwd
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, START, Join
from sysmond.base.result import Int64Array
from sysmond.cgroups.owner import owner
from sysmond.rollup.condition import Words
from sysmond.store.stretches.ends import GRAIN_NS
from sysmond.store.stretches.stretch import Stretch, numbered
from sysmond.tasks import signals, syscalls

Numbers = Int64Array | Words
"""What rows have of a metric: as stored, int64[row], or texts."""


@cache
def username(uid: int) -> str:
    """The name of a user; the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


@cache
def exit_name(code: int) -> str:
    """The name of an exit code (sysexits.h); the number where it has none, as 1."""
    return _EXIT_NAMES.get(code, str(code))


_EXIT_NAMES = {code: name for name, code in vars(os).items() if name.startswith("EX_")}
_owner = cache(owner)


def _of_number(text: Callable[[int], str | None]) -> Callable[[int | str, str], str | None]:
    return lambda value, _: text(value) if isinstance(value, int) else None


_USER, _SIGNAL, _EXIT = ":user", ":signal", ":exit"
_READERS: Mapping[str, Callable[[int | str, str], str | None]] = {
    _USER: _of_number(username),
    # Nothing where a thread is in none, and a process ended by none.
    ":syscall": _of_number(lambda number: syscalls.name(number) or None),
    _SIGNAL: _of_number(lambda number: signals.name(number) or None),
    _EXIT: _of_number(exit_name),
    ":cgroup": lambda path, name: getattr(_owner(path), name, None) if isinstance(path, str) else None,
}

# Of which all names are known.
_NAMES: Mapping[str, Callable[[], Collection[str]]] = {
    ":syscall": syscalls.names,
    ":signal": signals.names,
    ":exit": _EXIT_NAMES.values,
}

# Of which few numbers have a name: rows are put together by number, and a name in a condition is its number.
FEW_NAMES: Mapping[str, Mapping[str, str]] = {":exit": {name: str(code) for code, name in _EXIT_NAMES.items()}}
# What the kernel says of the letters in which it tells the state of a thread: task_state_array in fs/proc/array.c.
STATES: Mapping[str, str] = {
    "running": "R",
    "sleeping": "S",
    "disk sleep": "D",
    "stopped": "T",
    "tracing stop": "t",
    "zombie": "Z",
    "dead": "X",
    "parked": "P",
    "idle": "I",
}


def names_of(table: str) -> Callable[[], Collection[str]] | None:
    """What gives all names that a relation known to every reader has; None where nobody knows all."""
    return _NAMES.get(table)


def _coded(texts: Iterable[str | None], where: Int64Array) -> Words:
    """Texts of distinct things; ``where``: which of them each row has, -1 for none."""
    codes: dict[str, int] = {}
    coded = [-1 if text is None else codes.setdefault(text, len(codes)) for text in texts]
    return Words(np.array([*coded, -1], np.int64)[where], list(codes))


# Of what is asked for: that there is no key, and what stands for its code.
_NOWHERE, _NO_CODE = -1, -2


class _StretchTexts(NamedTuple):
    """What the keys of a stretch have last: the numbers that say which it is and codes by name, int64[key]; texts."""

    numbers: list[Int64Array]
    codes: dict[str, Int64Array]
    texts: Sequence[str]


class _KeyTexts(NamedTuple):
    """What keys of several stretches have of one name: as ``_StretchTexts``."""

    numbers: list[Int64Array]
    codes: Int64Array
    texts: Sequence[str]


class Texts:
    """Texts that another table of one boot has, by the numbers that they belong to."""

    def __init__(self, join: Join, stretches: Iterable[Stretch]) -> None:
        """Read what each key has last; a stretch that lacks one of the metrics has nothing to tell."""
        self._join = join
        numbers, names = [there for _, there in join.by], [there for _, there in join.columns]
        self._start = numbers.index(START) if START in numbers else None
        self._stretches: list[_StretchTexts] = []
        for stretch in stretches:
            is_text = {metric.name: metric.is_text for metric in stretch.table.metrics}
            if all(is_text.get(name) is False for name in numbers) and all(map(is_text.get, names)):
                codes = {name: stretch.last(name) for name in names}
                self._stretches.append(_StretchTexts([stretch.last(name) for name in numbers], codes, stretch.texts))

    def words(self, columns: Sequence[Int64Array], name: str) -> Words:
        """The texts of a name that belong to some rows, by their numbers, int64[row] each."""
        where, first = numbered(columns)
        asked = [column[first] for column in columns]
        numbers, codes, texts = self._there(asked, name)
        last = self._last(asked, numbers)
        is_absent = np.any([column == ABSENT for column in asked], axis=0)
        last[is_absent] = _NOWHERE
        without = None if self._join.is_numbered else ""
        distinct, which = np.unique(np.append(codes, _NO_CODE)[last], return_inverse=True)
        said = [None if code == _NO_CODE else without if code == ABSENT else texts[code] for code in distinct.tolist()]
        if not self._join.is_numbered:
            return _coded(said, which[where])
        numbers_asked = np.where(is_absent, ABSENT, asked[0]).tolist()
        spelled = (
            f"#{number}" if said[at] is None and number != ABSENT else said[at]
            for number, at in zip(numbers_asked, which.tolist(), strict=True)
        )
        return _coded(spelled, where)

    def _there(self, asked: Sequence[Int64Array], name: str) -> _KeyTexts:
        """What keys with these numbers have of a name, whenever they started: of all that there are these are few."""
        numbers: list[list[Int64Array]] = []
        codes: list[Int64Array] = []
        texts: list[str] = []
        for stretch in self._stretches:
            is_asked = np.ones(len(stretch.codes[name]), np.bool_)
            for place, (column, wanted) in enumerate(zip(stretch.numbers, asked, strict=True)):
                if place != self._start:
                    is_asked &= np.isin(column, wanted)
            mine = stretch.codes[name][is_asked]
            numbers.append([column[is_asked] for column in stretch.numbers])
            known = np.unique(mine[mine != ABSENT])
            codes.append(np.where(mine == ABSENT, ABSENT, np.searchsorted(known, mine) + len(texts)))
            texts += [stretch.texts[code] for code in known.tolist()]
        nothing = np.zeros(0, np.int64)
        joined = [np.concatenate([nothing, *parts]) for parts in zip(*numbers, strict=True)] or [nothing] * len(asked)
        return _KeyTexts(joined, np.concatenate([nothing, *codes]), texts)

    def _last(self, asked: Sequence[Int64Array], there: Sequence[Int64Array]) -> Int64Array:
        """Which of some keys is meant by each that is asked for: int64[asked], ``_NOWHERE`` for none.

        Of those with the same numbers the last. Where one of them says when it started: clocks of /proc are coarse, so
        starts may differ by a tick of it; and what is within another thing began when that did, or later.
        """
        both = [np.concatenate(pair) for pair in zip(there, asked, strict=True)]
        start_ns = both.pop(self._start) if self._start is not None else np.zeros(len(both[0]), np.int64)
        of = numbered(both)[0] if both else np.zeros(len(start_ns), np.int64)
        is_asked = np.arange(len(of)) >= len(there[0])
        until_ns = np.where(is_asked, start_ns + GRAIN_NS, start_ns)
        order = np.lexsort((~is_asked, until_ns, of))  # What starts a whole tick later is another one.
        last = np.maximum.accumulate(np.where(is_asked[order], _NOWHERE, np.arange(len(order))))
        before = np.where(last < 0, _NOWHERE, order[last])
        is_meant = (last >= 0) & (of[before] == of[order])
        if not self._join.is_within:
            is_meant &= start_ns[before] > start_ns[order] - GRAIN_NS
        meant = np.empty(len(order), np.int64)
        meant[order] = np.where(is_meant, before, _NOWHERE)
        return meant[len(there[0]) :]


class Joins(NamedTuple):
    """The joins of a table, and the texts of those tables that are asked for and there, in one boot.

    ``is_nameless``: users have no names, as in a recording for strangers: those of this machine are none of theirs, or
    tell whose it is.
    """

    joins: Sequence[Join] = ()
    texts: Mapping[Join, Texts] = {}
    is_nameless: bool = False

    def words(self, label: str, numbers: Callable[[str], Numbers]) -> Words:
        """A column of texts; ``numbers``: gives those of a metric of all rows."""
        join, there = next((join, there) for join in self.joins for name, there in join.columns if name == label)
        joined = {name for declared in self.joins for name, _ in declared.columns}
        columns = [self.words(name, numbers) if name in joined else numbers(name) for name, _ in join.by]
        if read := _READERS.get(join.table):
            if self.is_nameless and join.table == _USER:
                read = _of_number(str)
            return _read_by(read, columns[0], there)
        if (texts := self.texts.get(join)) is None and join.is_numbered:
            texts = Texts(join, ())
        if texts is None or any(isinstance(column, Words) for column in columns):
            return _coded((), np.full(_rows(columns[0]), -1, np.int64))
        return texts.words([column for column in columns if not isinstance(column, Words)], there)


def needed(joins: Sequence[Join], labels: Iterable[str]) -> dict[Join, list[str]]:
    """The joins that some columns need, and which of the columns for the sake of each, sorted."""
    names: dict[Join, list[str]] = {}
    wanted = {label: {label} for label in labels}
    for join in reversed(joins):
        mine = set().union(*(wanted.get(name, ()) for name, _ in join.columns))
        if mine:
            names[join] = sorted(mine)
            for name, _ in join.by:
                wanted[name] = wanted.get(name, set()) | mine
    return names


def _rows(column: Numbers) -> int:
    return len(column.codes if isinstance(column, Words) else column)


def _read_by(read: Callable[[int | str, str], str | None], column: Numbers, name: str) -> Words:
    """What a reader knows by itself of numbers or texts, each distinct one looked up once."""
    values, where = np.unique(column.codes if isinstance(column, Words) else column, return_inverse=True)
    if isinstance(column, Words):
        return _coded((None if code < 0 else read(column.texts[code], name) for code in values.tolist()), where)
    return _coded((None if value == ABSENT else read(value, name) for value in values.tolist()), where)
