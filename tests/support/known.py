# SPDX-License-Identifier: Apache-2.0
"""Machines of which everything is known, for tests that work out answers by themselves: each kind of table.

``disk`` is wide, of ``process`` rows last, ``exits`` and ``thread_state`` are of moments, and ``event`` has marks.
"""

import random
from pathlib import Path
from typing import Any, NamedTuple

from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE, SPARSE
from sysmond.base.clock import SECOND_NS
from sysmond.history import Archive
from sysmond.tasks.tables import EXITS, PROCESS, THREAD_STATE
from tests.support.longarchive import Row, put, relation, stretch
from tests.support.machine import BOOT, NOON_NS, Machine

US = 1_000_000
# The range that is asked for, in seconds of boot time: recording begins before it.
START_S, END_S = 180, 600
DISKS, PIDS = ("nvme0n1", "sda", "sdb"), (1, 2, 3, 4)
BORN = {"nvme0n1": 300, 3: 400}


def recorded(seed: int) -> dict[str, dict[Any, dict[int, tuple[int, int]]]]:
    """What each thing of each table had at each second: a counter and a gauge."""
    chance = random.Random(seed)
    made: dict[str, dict[Any, dict[int, tuple[int, int]]]] = {"disk": {}, "process": {}}
    for table, names in (("disk", DISKS), ("process", PIDS)):
        for name in names:
            counter, gauge = chance.randrange(1000), chance.randrange(100)
            readings = made[table][name] = {}
            for second in range(BORN.get(name, 1), END_S):
                counter += chance.choice([0, 0, chance.randrange(5000 if table == "disk" else 50)])
                gauge = chance.choice([gauge, gauge, chance.randrange(100)])
                readings[second] = counter, gauge
    return made


RAW = recorded(7)
# Of what ended: the second, the name, the processor time.
ENDED = [(second, 100 + second, f"p{second % 3}", second % 7) for second in range(5, END_S, 11)]
# What threads were at: the second, the number, the state, the function.
AT = [
    (second, tid, "RSD"[(second + tid) % 3], f"wait_{second % 2}")
    for second in range(3, END_S, 7)
    for tid in range(1, 2 + second % 4)
]
MARKS = [(second, "abc"[second % 3]) for second in range(100, END_S, 37)]


def changes() -> list[tuple[int, Row]]:
    """The rows of processes, as they are stored: the number of the reading, and what changed."""
    rows: list[tuple[int, Row]] = []
    for pid, readings in RAW["process"].items():
        before = None
        for second, (cpu, rss) in readings.items():
            if (cpu, rss) != before or second == 1:
                values_of: Row = {"comm": f"p{pid % 2}", "cpu": cpu * US, "rss_anon": rss}
                start_ns = BORN[pid] * SECOND_NS - SECOND_NS // 2 if pid in BORN else 1
                rows.append((second - 1, {"pid": pid, "start": start_ns, **values_of}))
            before = cpu, rss
    return rows


def of_rows(root: Path) -> Machine:
    """Record disks, processes and marks."""
    made = Machine(root)
    writer = made.start(0.5)
    marks = dict(MARKS)
    for second in range(1, END_S):
        there = tuple(name for name in DISKS if second in RAW["disk"][name])
        values = [
            value for name in there for value in (*RAW["disk"][name][second], writer.ring.text(f"made by {name}"))
        ]
        writer.relation(second * SECOND_NS)
        if second in marks:
            writer.ring.event(second * SECOND_NS, "mark", marks[second], f"at {second}")
        writer.ring.rows(0, second * SECOND_NS, there, values)
    clocks = [relation(0, NOON_NS)]
    put(made.folders, stretch(PROCESS, range(1, END_S), changes(), boot=BOOT, relations=clocks), 1)
    return made


def of_buckets(root: Path) -> Machine:
    """The same, of which only buckets are left."""
    made = of_rows(root)
    made.seal()
    made.flush()
    for coding in (DENSE, SPARSE):
        rollup_job.roll_up(made.folders, coding, retention_job.keeper(made.folders).make_room, set())
    made.reboot()
    for path in [*made.files(), *Path(made.folders.state).glob("public/*/1s/*.h5")]:
        path.unlink()
    return made


def of_ends(root: Path) -> Machine:
    """Record what ended, and what threads were at, by themselves: rows of processes would have ends, too."""
    made = Machine(root)
    clocks = [relation(0, NOON_NS)]
    ends: list[tuple[int, Row]] = [
        (second - 1, {"pid": pid, "start": 1, "comm": comm, "cpu": cpu * US, "end": second * SECOND_NS})
        for second, pid, comm, cpu in ENDED
    ]
    put(made.folders, stretch(EXITS, range(1, END_S), ends, full=(), boot=BOOT, relations=clocks), 1)
    states: list[tuple[int, Row]] = [
        (second - 1, {"pid": 1, "tid": tid, "start": 1, "state": state, "wchan": wchan})
        for second, tid, state, wchan in AT
    ]
    put(made.folders, stretch(THREAD_STATE, range(1, END_S), states, full=(), boot=BOOT, relations=clocks), 1)
    return made


class Archives(NamedTuple):
    """What was recorded: as rows, as buckets alone, and what is of moments."""

    rows: Archive
    buckets: Archive
    ends: Archive

    def of(self, table: str) -> Archive:
        """The one with rows of a table."""
        return self.ends if table in {"exits", "thread_state"} else self.rows
