# SPDX-License-Identifier: Apache-2.0
"""Which of a table's rows are events as well: a value that is another than before, a row that came or went. Pure.

A probe declares it (``sysmond.probe.Tells``); the background lane asks after each reading. Standard library only.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from sysmond.base.model import ABSENT
from sysmond.probe import Tells

# More of one kind in one reading are one event, which names as many as it has room for.
LISTED_MAX = 8

_Row = Mapping[str, int | str]


class _Reading(Protocol):
    """What was read: instances, and the values of each in turn."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def values(self) -> list[int | str]: ...


class RowChange(NamedTuple):
    """What happened: the kind of event, which instance, in words; ``detail``: the instances of many."""

    kind: str
    subject: str
    text: str
    detail: str = ""


class RowChanges:
    """Compares each reading of a table with the one before."""

    def __init__(self, names: Sequence[str], tells: Sequence[Tells]) -> None:
        """``names``: of the table's metrics, in order. The first reading is only remembered."""
        self._names = tuple(names)
        self._tells = tuple(tells)
        self._before: _Reading | None = None
        self._rows: dict[str, _Row] = {}
        self._values: dict[tuple[int, str], int | str] = {}
        self._grew: set[tuple[int, str]] = set()

    def of(self, reading: _Reading) -> list[RowChange]:
        """Give what is different in it, in order of what the probe declares, then of its rows."""
        if reading is self._before:
            self._grew.clear()
            return []
        rows = dict(self._read(reading))
        is_first, self._before = self._before is None, reading
        changes = [change for number in range(len(self._tells)) for change in self._by(number, rows)]
        self._rows = rows
        return [] if is_first else list(_bounded(changes))

    def _read(self, reading: _Reading) -> Iterator[tuple[str, _Row]]:
        width = len(self._names)
        for at, name in enumerate(reading.names):
            yield name, dict(zip(self._names, reading.values[at * width : (at + 1) * width], strict=True))

    def _by(self, number: int, rows: Mapping[str, _Row]) -> Iterator[RowChange]:
        tells = self._tells[number]
        if not tells.column and tells.value is None:
            for name in sorted(rows.keys() - self._rows.keys()):
                yield RowChange(tells.kind, name, tells.came(rows[name], is_there=True))
            for name in sorted(self._rows.keys() - rows.keys()) if tells.gone else ():
                yield RowChange(tells.gone, name, tells.came(self._rows[name], is_there=False))
            return
        for name, row in rows.items():
            yield from self._changed(number, name, row)
        for key in [key for key in self._values if key[0] == number and key[1] not in rows]:
            del self._values[key]
            self._grew.discard(key)

    def _changed(self, number: int, name: str, row: _Row) -> Iterator[RowChange]:
        tells, key = self._tells[number], (number, name)
        before = self._values.get(key, ABSENT)
        value = row[tells.column] if tells.value is None else tells.value(row, before)
        if value == ABSENT:  # Not to be had now: what was known before is compared with the next.
            return
        self._values[key] = value
        if before in (ABSENT, value):
            self._grew.discard(key)
            return
        if not tells.grows:
            yield RowChange(tells.kind, name, tells.spelled(before, value))
        elif isinstance(value, int) and isinstance(before, int) and value > before:
            if key not in self._grew:  # What goes on is told once.
                yield RowChange(tells.kind, name, tells.spelled(before, value))
            self._grew.add(key)
        else:
            self._grew.discard(key)


def _bounded(changes: Sequence[RowChange]) -> Iterator[RowChange]:
    """What is many of one kind becomes one event."""
    of_kind: dict[str, list[RowChange]] = defaultdict(list)
    for change in changes:
        of_kind[change.kind].append(change)
    for kind, same in of_kind.items():
        if len(same) <= LISTED_MAX:
            yield from same
            continue
        listed = ", ".join(f"{change.subject} {change.text}".strip() for change in same)
        yield RowChange(kind, "", f"{len(same)} at once", listed)
