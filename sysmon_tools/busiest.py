# SPDX-License-Identifier: Apache-2.0
"""Who uses most CPU now: the newest readings of the table of processes, as its ring gets them.

Standard library only: of each record four fields are read, and of the other bytes none.
"""

import re
import struct
from collections.abc import Iterator
from heapq import nlargest
from typing import NamedTuple

from sysmond.base.model import ABSENT, Table
from sysmond.ring.frame import FULL, RECORDS_HEAD

PROCESS = "process"
# In the order of a record.
_FIELDS = ("start", "pid", "comm", "cpu")
_TOKEN = re.compile(r"(\d*)([a-zA-Z])")


class Busy(NamedTuple):
    """A process, and how many CPUs it kept busy between the two newest readings."""

    comm: str
    pid: int
    cpus: float


class Busiest:
    """What the processes have used, by key, and what they used since the reading before."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._tick_ns = 0
        self._before_ns = 0
        self._used: dict[tuple[int, int], int] = {}
        self._old: dict[tuple[int, int], int] = {}
        self._grown: list[tuple[float, int, bytes]] = []
        self._table: Table | None = None
        self._row = struct.Struct("")

    def take(self, table: Table, tick_ns: int, payload: bytes) -> None:
        """Take a frame of records, as a follower gives it."""
        if table != self._table:
            self._table, self._row = table, _row_of(table)
            self._scale = next(metric.scale for metric in table.metrics if metric.name == "cpu")
            self._tick_ns = 0
        count, flags, _, _ = RECORDS_HEAD.unpack_from(payload)
        if tick_ns != self._tick_ns:
            self._before_ns, self._tick_ns = self._tick_ns, tick_ns
            self._grown.clear()
            # Of what is not in a full reading nothing has to be remembered.
            self._old = self._used
            self._used = {} if flags & FULL else self._used
        records = memoryview(payload)[RECORDS_HEAD.size : RECORDS_HEAD.size + count * self._row.size]
        for start, pid, comm, used in self._row.iter_unpack(records):
            if used == ABSENT:
                continue
            key = pid, start
            before = self._old.get(key)
            if before is None:
                before = 0 if start >= self._before_ns else used
            if used > before:
                self._grown.append((used - before, pid, comm))
            self._used[key] = used

    def first(self, count: int) -> Iterator[Busy]:
        """Those that used most, the first of them first; nobody before the second reading."""
        length_ns = self._tick_ns - self._before_ns
        if not self._before_ns or length_ns <= 0:
            return
        for grown, pid, comm in nlargest(count, self._grown):
            name = comm.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            yield Busy(name, pid, grown * 10 ** (9 - self._scale) / length_ns)


def _row_of(table: Table) -> struct.Struct:
    """A record of a table, in which only the wanted fields are read."""
    names = iter(metric.name for metric in table.metrics)
    made = "<"
    for count, code in _TOKEN.findall(table.packing.format if table.packing else ""):
        for one in [f"{count}{code}"] if code in "xs" else [code] * int(count or 1):
            wanted = code != "x" and next(names) in _FIELDS
            made += one if wanted else f"{struct.calcsize('<' + one)}x"
    return struct.Struct(made)
