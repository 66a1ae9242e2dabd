# SPDX-License-Identifier: Apache-2.0
"""A day that no machine recorded, of a thousand processes, for the screen to look back at.

It lies as an archiver leaves it: rolled up and merged. In it are the tables of which the curves are, all columns of
them, processes by the second, and for some seconds in its middle a crowd of threads that wait for a disk.
"""

import os
import sys
from functools import partial
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import asking, measure, top
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import Semantics, Sensitivity, Table
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.store import archive

HOUR_S = 3600
# As the archiver leaves a day: files of some hours each.
FILE_S = 8 * HOUR_S
# For so long the crowd waits.
CROWD_S = 10
LIMIT_S = 1800
# How much counters of time grow in a second, and others, on the mean.
_SLOW, _FAST = 20.0, 1e4


class Day(NamedTuple):
    """Where it begins in UTC, and for how long it lasts."""

    begin_s: int
    hours: int

    @property
    def middle_s(self) -> int:
        """The moment that is looked at."""
        return self.begin_s + self.hours * HOUR_S // 2


def write(folders: Folders, day: Day, processes: int, threads: int) -> None:
    """Write all of it, each file in a child of this process."""
    measure.in_child(partial(top.write, folders, processes, day.hours, day.begin_s), LIMIT_S)
    length_s = day.hours * HOUR_S
    for number, first_s in enumerate(range(0, length_s, FILE_S), 1):
        span = first_s, min(length_s, first_s + FILE_S)
        measure.in_child(partial(_write_wide, folders, day, span, number), LIMIT_S)
    measure.in_child(partial(asking.merge, folders), LIMIT_S)
    measure.in_child(partial(_write_crowd, folders, day, threads), LIMIT_S)


def thread_name(number: int) -> str:
    """What the kernel calls a thread of the crowd."""
    return f"crowd-{number:05}"


def _tables() -> dict[Table, tuple[str, ...]]:
    """The tables of which the curves are, and their instances."""
    from sysmond_probes.cpu import CPU  # noqa: PLC0415  for the child
    from sysmond_probes.disk import DISK  # noqa: PLC0415  as above
    from sysmond_probes.host import HOST  # noqa: PLC0415  as above
    from sysmond_probes.memory import MEMORY  # noqa: PLC0415  as above
    from sysmond_probes.network import NETWORK  # noqa: PLC0415  as above
    from sysmond_probes.pressure import PRESSURE  # noqa: PLC0415  as above

    return {
        CPU: ("total", "cpu0", "cpu1", "cpu2", "cpu3"),
        MEMORY: ("",),
        PRESSURE: ("cpu", "memory", "io"),
        DISK: ("nvme0n1", "sda"),
        NETWORK: ("eth0", "lo"),
        HOST: ("",),
    }


def _write_wide(folders: Folders, day: Day, span: tuple[int, int], number: int) -> int:
    """Write the wide tables over some seconds of the day; give the bytes."""
    import numpy as np  # noqa: PLC0415  as above

    from benchmarks.tasks_synthetic import BOOT  # noqa: PLC0415  as above
    from sysmond.store.files import dense_file  # noqa: PLC0415  as above
    from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand  # noqa: PLC0415  as above

    seconds = np.arange(*span, dtype=np.int64)
    random = np.random.default_rng(number)
    keys, values = [], []
    for table, instances in _tables().items():
        for instance in instances:
            for metric in table.metrics:
                keys.append(SeriesKey(table.name, metric.name, instance))
                if metric.is_text:
                    values.append(np.zeros_like(seconds))
                    continue
                pace = random.gamma(1.0, _SLOW if metric.unit == "s" else _FAST, len(seconds) // 60 + 1)
                grown = random.poisson(np.repeat(pace, 60)[: len(seconds)])
                values.append(np.cumsum(grown) if metric.semantics is Semantics.COUNTER else grown)
    strand = Strand(BOOT, "sampler", SECOND_NS, SECOND_NS)
    block = MemoryBlock(strand, seconds * SECOND_NS, keys, np.array(values))
    clocks = {BOOT: [Relation(0, day.begin_s * SECOND_NS, 0)]}
    tables = {table.name: table for table in _tables()}
    recording = Recording(Sensitivity.PUBLIC, tables, [block], {0: "benchmark"}, clocks, [])
    image = dense_file.encode(recording, "sysmond benchmark")
    return _put(folders, Sensitivity.PUBLIC, "", image, archive.Name(BOOT, number, number))


def _write_crowd(folders: Folders, day: Day, threads: int) -> int:
    """Write what threads of two programs wait for in the middle of the day; give the bytes."""
    import numpy as np  # noqa: PLC0415  as above

    from benchmarks import tasks_synthetic  # noqa: PLC0415  as above
    from sysmond.store.files import sparse_file  # noqa: PLC0415  as above
    from sysmond.store.stretches.sparse_of_ring import record_type  # noqa: PLC0415  as above
    from sysmond.tasks.tables import THREAD_STATE  # noqa: PLC0415  as above

    rows = np.zeros(threads, record_type(THREAD_STATE))
    rows["tid"] = np.arange(threads)
    rows["pid"] = rows["tid"] // 100 * 100
    rows["comm"] = [thread_name(number).encode() for number in range(threads)]
    rows["state"], rows["wchan"] = b"D", b"io_schedule"
    first_s = day.hours * HOUR_S // 2 - CROWD_S // 2
    made = tasks_synthetic.of_parts(
        [(second, True, rows) for second in range(CROWD_S)], threads, first_s, THREAD_STATE, Sensitivity.RESTRICTED
    )
    about = made.about._replace(relations=[Relation(0, day.begin_s * SECOND_NS, 0)])
    image = sparse_file.encode(made.with_about(about), "sysmond benchmark")
    return _put(folders, Sensitivity.RESTRICTED, THREAD_STATE.name, image, archive.Name(made.boot, 1, 1))


def _put(folders: Folders, sensitivity: Sensitivity, table: str, image: bytes, name: archive.Name) -> int:
    folder = archive.disk_folder(folders, sensitivity, table=table)
    os.makedirs(folder, exist_ok=True)
    archive.publish(folder, name.file, image, FILE_MODES[sensitivity])
    return len(image)
