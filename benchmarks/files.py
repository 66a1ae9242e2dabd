# SPDX-License-Identifier: Apache-2.0
"""How many files a day leaves on the disk: the archiver's own jobs, with a clock that the benchmark turns.

Rings as the parts write them, of wide tables and of all long ones that are on by default, are sealed and flushed every
ten minutes, and merged as often as the archiver does. Each boot has one of every job's kind more: a ring that filled
before its turn. A day in one boot comes first, then some short ones; what is made up is small, so that a day takes two
minutes: how much rows take is for other benchmarks, how many files there are hangs on how many seals, tables, tiers
and boots there were.
"""

import os
import sys
import time
from collections import Counter
from typing import Any, NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import SECOND_NS, Figures
from sysmond.machine.folders import Folders, create_stream

HOURS = 24
BOOTS = 4
BOOT_HOURS = 2
SEAL_S = 600
STEP_S = 10
FULL_S = 300
RING_BYTES = 4 * 1024 * 1024
LIMIT_S = 1800
# The seventh of November 2023, 22:13 UTC: a day of 24 hours is two days of UTC.
BEGIN_NS = 1_699_395_180 * SECOND_NS
# Of how many rows a long table is, and how many of them change or come in a step.
ROWS = {
    "process": (100, 30),
    "process_private": (100, 10),
    "exits": (2, 2),
    "command": (100, 1),
    "cgroup_name": (40, 0),
    "thread_state": (5, 5),
    "kernel_stack": (30, 0),
}
RESTRICTED = ("command", "process_private", "thread_state", "kernel_stack")
# So many columns of such a row change.
MOVING = 4
# A ring that is half full is sealed alone, this often between two seals of all.
SHORT = ("process", "process_private")


class Clock:
    """The clocks of a machine that has its boots one after the other, an hour apart."""

    def __init__(self) -> None:
        self.boot = ""
        self.boots = 0
        self.boottime_ns = 0
        self.began_ns = BEGIN_NS

    def begin(self) -> None:
        """Boot."""
        self.boots += 1
        self.boot = f"{self.boots:032x}"
        self.began_ns += self.boottime_ns + 3600 * SECOND_NS
        self.boottime_ns = 30 * SECOND_NS

    def install(self) -> None:
        """Be the clock of this process, for whatever is imported from now on."""
        from sysmond.base import clock  # noqa: PLC0415

        clock.boot_id = lambda: self.boot
        clock.boottime_ns = lambda: self.boottime_ns
        clock.relation = lambda: clock.Relation(self.boottime_ns, self.began_ns + self.boottime_ns, self.boottime_ns)


class LongRing:
    """The ring of a long table, and the rows that it has."""

    def __init__(self, folders: Folders, name: str, clock: Clock) -> None:
        import numpy as np  # noqa: PLC0415  not before the clock is installed

        from sysmond.base.model import Sensitivity  # noqa: PLC0415
        from sysmond.ring.frame import Identity, Layout  # noqa: PLC0415
        from sysmond.ring.writer import RingWriter  # noqa: PLC0415
        from sysmond.store.stretches.sparse_of_ring import record_type  # noqa: PLC0415
        from sysmond.tasks import tables  # noqa: PLC0415

        self._table = getattr(tables, name.upper())
        self._clock = clock
        self._random = np.random.default_rng(len(name))
        count, self._changing = ROWS[name]
        self._rows = np.zeros(count, record_type(self._table))
        for metric in self._table.metrics:
            column = self._rows[metric.name]
            if metric.is_text and column.dtype.kind == "u":
                column[:] = np.iinfo(column.dtype).max  # No text.
            elif metric.name in self._table.packing.key:
                column[:] = np.arange(1, count + 1)
        numbers = [metric.name for metric in self._table.metrics if not metric.is_text]
        self._moving = [each for each in numbers if each not in self._table.packing.key][-MOVING:]
        sensitivity = Sensitivity.RESTRICTED if name in RESTRICTED else Sensitivity.PUBLIC
        create_stream(f"{folders.runtime}/sampler", f"{sensitivity}/{name}")
        self.path = f"{folders.runtime}/sampler/{sensitivity}/{name}/{clock.boottime_ns}.ring"
        identity = Identity(clock.boot, "sampler", sensitivity, os.getpid(), clock.boottime_ns)
        self._ring = RingWriter(self.path, RING_BYTES, identity, [Layout(self._table, STEP_S * SECOND_NS)])

    def tick(self, relation: Any) -> None:  # noqa: ANN401  its class is imported late
        """Write what changed, now and then all."""
        from sysmond.records import Records  # noqa: PLC0415

        packing, count = self._table.packing, len(self._rows)
        is_full = packing.lasting and self._clock.boottime_ns // SECOND_NS % FULL_S < STEP_S
        who = self._random.choice(count, self._changing, replace=False)
        for name in self._moving:
            self._rows[name][who] += self._random.integers(0, 100, len(who)).astype(self._rows[name].dtype)
        if not packing.lasting:
            self._rows[packing.key[0]][who] += count
        rows = (self._rows if is_full else self._rows[who]).tobytes()
        self._ring.clock(relation)
        self._ring.records(0, self._clock.boottime_ns, [Records(rows, is_full, 0, count)], self._rows.itemsize)
        self._ring.commit()

    def close(self) -> None:
        """End in good order."""
        self._ring.close()


class WideRing:
    """The ring of wide tables of a class."""

    def __init__(self, folders: Folders, sensitivity: str, clock: Clock) -> None:
        from benchmarks import synthetic  # noqa: PLC0415
        from sysmond.base.model import Sensitivity  # noqa: PLC0415
        from sysmond.ring.frame import Identity, Layout  # noqa: PLC0415
        from sysmond.ring.writer import RingWriter  # noqa: PLC0415

        self._clock = clock
        counting = synthetic.counters(50)
        self._tables = synthetic.tables(counting)
        self._values = [0] * len(counting)
        identity = Identity(clock.boot, "sampler", Sensitivity(sensitivity), os.getpid(), clock.boottime_ns)
        self.path = f"{folders.runtime}/sampler/{sensitivity}/{clock.boottime_ns}.ring"
        layouts = [Layout(table, STEP_S * SECOND_NS) for table in self._tables]
        self._ring = RingWriter(self.path, RING_BYTES, identity, layouts)

    def tick(self, relation: Any) -> None:  # noqa: ANN401  as above
        """Write a row of each table."""
        self._values = [value + number for number, value in enumerate(self._values)]
        self._ring.clock(relation)
        at = 0
        for number, table in enumerate(self._tables):
            width = len(table.metrics)
            self._ring.rows(number, self._clock.boottime_ns, ("",), self._values[at : at + width])
            at += width
        if self._clock.boottime_ns // SECOND_NS % 3600 < STEP_S:
            self._ring.event(self._clock.boottime_ns, "mark", "", "an hour")
        self._ring.commit()

    def close(self) -> None:
        """End in good order."""
        self._ring.close()


class Machine:
    """A machine that records."""

    def __init__(self, folders: Folders) -> None:
        self.clock = Clock()
        self.clock.install()
        self._folders = folders
        self._rings: list[LongRing | WideRing] = []
        self._flushes = 0
        self.most = 0

    def boot(self, hours: float) -> None:
        """Run for so long, and shut down."""
        from sysmond.archiver import children  # noqa: PLC0415  as above
        from sysmond.archiver.main import FLUSHES_PER_MERGE  # noqa: PLC0415

        self.clock.begin()
        self._flushes = 0
        wide = [WideRing(self._folders, sensitivity, self.clock) for sensitivity in ("public", "restricted")]
        long = [LongRing(self._folders, name, self.clock) for name in ROWS]
        self._rings = [*wide, *long]
        short = [ring.path for name, ring in zip(ROWS, long, strict=True) if name in SHORT]
        for _ in range(max(1, round(hours * 3600 / SEAL_S))):
            self._run(SEAL_S // 2)
            children.seal(self._folders, only=short)
            self._run(SEAL_S // 2)
            children.seal(self._folders)
            if children.flush(self._folders) and self._flushes % FLUSHES_PER_MERGE == 0:
                children.merge(self._folders)
            self._flushes += 1
            self.most = max(self.most, len(on_disk(self._folders)))
        for ring in self._rings:
            ring.close()
        children.seal(self._folders)
        children.flush(self._folders)
        for ring in self._rings:
            os.unlink(ring.path)

    def _run(self, seconds: int) -> None:
        from sysmond.base import clock  # noqa: PLC0415

        for _ in range(seconds // STEP_S):
            self.clock.boottime_ns += STEP_S * SECOND_NS
            relation = clock.relation()
            for ring in self._rings:
                ring.tick(relation)


class Stored(NamedTuple):
    """A file of the archive: where it lies below the state folder, and its size."""

    folder: str
    name: str
    size_bytes: int


def on_disk(folders: Folders) -> list[Stored]:
    """Every file of the archive."""
    return [
        Stored(os.path.relpath(folder, folders.state), name, os.path.getsize(f"{folder}/{name}"))
        for folder, _, names in os.walk(folders.state)
        for name in names
        if name.endswith(".h5")
    ]


def played(folders: Folders, hours: float, boots: int, boot_hours: float) -> Figures:
    """A day in one boot, then short boots."""
    machine = Machine(folders)
    machine.boot(hours)
    of_day = on_disk(folders)
    most = machine.most
    for _ in range(boots + 1):
        machine.boot(boot_hours)
    # Those of the last boot have not had their turn yet.
    after = [stored for stored in on_disk(folders) if machine.clock.boot not in stored.name]
    past = [stored for stored in after if f"{1:032x}" not in stored.name]
    by_folder = Counter(stored.folder for stored in of_day)
    return {
        "hours": hours,
        "files": len(of_day),
        "most_files": most,
        "files_of_it_later": len(after) - len(past),
        "files_per_boot": round(len(past) / boots, 1),
        "mb": round(sum(stored.size_bytes for stored in of_day) / 1e6, 2),
        "files_by_folder": dict(sorted(by_folder.items())),
        "later_by_folder": dict(sorted(Counter(stored.folder for stored in past).items())),
    }


def measured(hours: float, boots: int, boot_hours: float) -> Figures:
    """Play it, in a child that has the clock."""
    with measure.workplace() as folders:

        def work() -> Figures:
            begin_ns = time.process_time_ns()
            figures = played(folders, hours, boots, boot_hours)
            return {**figures, "cpu_s": round((time.process_time_ns() - begin_ns) / 1e9, 1)}

        return measure.in_child(work, LIMIT_S)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        (
            f"files after {figures['hours']:.0f} hours in one boot",
            f"{figures['files']}, at most {figures['most_files']}",
        ),
        ("what is left of these when that boot is over", f"{figures['files_of_it_later']}"),
        ("of a shorter boot, when it is over", f"{figures['files_per_boot']:.1f}"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--hours", type=float, default=HOURS, help="how long the first boot is")
    parser.add_argument("--boots", type=measure.at_least_one, default=BOOTS, help="how many follow it")
    parser.add_argument("--boot-hours", type=float, default=BOOT_HOURS, help="how long each of these is")
    options = parser.parse_args()
    measure.run(lambda: measured(options.hours, options.boots, options.boot_hours), rows, as_json=options.json)
