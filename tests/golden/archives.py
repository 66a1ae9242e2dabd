# SPDX-License-Identifier: Apache-2.0
"""Three archives of fixed inputs: recorded, sealed, flushed, rolled up and merged by the project's own jobs.

``quiet``: a machine at rest over a day on which summer time begins, still recording. ``busy``: one under load for an
hour, with disks that come and go, all long tables, two of a stranger, and restricted ones. ``troubled``: a clock that
is set forth and back, sleep, crashes, quarantine, a boot that began in 1970, pins, rows of fewer digits, damage.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import h5py
import numpy as np

from sysmond.archiver import merge_job, retention_job, rollup_job
from sysmond.archiver.coding import DENSE, SPARSE
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.plan import plan
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store import archive, pins
from sysmond.store.of_ring import SeriesKey
from sysmond.store.pins import Pin
from tests.golden.inputs import DISK, HOST, declared, lasting, mixed, moments, write
from tests.support.machine import Machine

C, G, S = Semantics.COUNTER, Semantics.GAUGE, Semantics.STATE
PUBLIC, RESTRICTED = Sensitivity.PUBLIC, Sensitivity.RESTRICTED
# No process has this number: the writers of these rings are gone.
NOBODY = 2**22 + 1
RING_BYTES = 1 << 22
FULL_S = 300

CPU = Table(
    "cpu",
    (
        Metric("user", "s", C, "Time in user mode.", 2, "/proc/stat cpu 1"),
        Metric("system", "s", C, "Time in the kernel.", 2, "/proc/stat cpu 3"),
    ),
    "cpu",
    "Processors.",
)
MEMORY = Table(
    "memory",
    (
        Metric("available", "B", G, "What programs can still get.", 0, "/proc/meminfo MemAvailable"),
        Metric("oom_kills", "1", C, "Processes killed for want of memory.", 0, "/proc/vmstat oom_kill"),
    ),
    "",
    "Memory.",
)
LOAD = Table("load", (Metric("avg1", "1", G, "Over a minute.", 2, "/proc/loadavg 1"),), "", "Load.")
FILESYSTEM = Table(
    "filesystem",
    (Metric("used", "B", G, "Used.", 0, "statvfs"), Metric("kind", "text", S, "Its type.", 0, "mountinfo 9")),
    "mount",
    "File systems.",
)
INPUT = Table("input", (Metric("keys", "1", C, "Keys pressed."),), "device", "Input devices.")
WORDS = {"model": ("ACME 4 TB", "Köln\x1b[1m"), "kind": ("ext4", "tmpfs"), "kernel": ("6.12.0", "6.12.1")}


class Now(NamedTuple):
    """When an archive is asked: the clocks then, and the boot of who asks."""

    boot: str
    relation: Relation


def values(key: SeriesKey, metric: Metric, ticks_s: Int64Array) -> Int64Array:
    """What a series says at these seconds."""
    salt = crc32("/".join(key).encode()) % 1000
    chance = mixed(ticks_s, salt)
    if metric.name in WORDS:
        return np.full_like(ticks_s, salt % 2)
    if metric.semantics is C:
        rate = 5 + salt % 50 if metric.unit != "B" else 4096 * (1 + salt % 90)
        return ticks_s * rate + chance % rate
    if metric.semantics is G:
        return np.asarray(10 ** (2 + salt % 6) + mixed(ticks_s // 7, salt) % 900)
    return ticks_s // 600 % 2


class Boot:
    """A boot of a machine, and how its clocks run."""

    def __init__(self, machine: Machine, boot: str, booted_ns: int) -> None:
        self.machine = machine
        self.boot = boot  # Tasks come and go from ``begin_s`` on.
        self.wall_ns = booted_ns
        self.asleep_ns = 0
        self.begin_s = 100

    def relation(self, second: int) -> Relation:
        """The clocks at a second of boot time."""
        at_ns = second * SECOND_NS
        return Relation(at_ns, at_ns + self.wall_ns, at_ns - self.asleep_ns)

    def utc_ns(self, second: int) -> int:
        """UTC at a second of boot time."""
        return self.relation(second).realtime_ns

    def wide(self, at_s: int, *layouts: Layout, writer: str = "sampler", sensitivity: Sensitivity = PUBLIC) -> "Wide":
        """Start a part that records wide tables."""
        path = f"{self.machine.folders.runtime}/{writer}/{sensitivity}"
        return Wide(self, self._ring(path, at_s, layouts, writer, sensitivity), layouts)

    def long(self, at_s: int, name: str, interval_s: int, count: int, sensitivity: Sensitivity = PUBLIC) -> "Long":
        """Start to record a long table of so many tasks."""
        layout = Layout(declared()[name], interval_s * SECOND_NS)
        path = f"{self.machine.folders.runtime}/sampler/{sensitivity}/{name}"
        return Long(self, self._ring(path, at_s, [layout], "sampler", sensitivity), layout, count)

    def _ring(
        self, folder: str, at_s: int, layouts: Sequence[Layout], writer: str, sensitivity: Sensitivity
    ) -> RingWriter:
        os.makedirs(folder, exist_ok=True)
        started_ns = at_s * SECOND_NS
        identity = Identity(self.boot, writer, sensitivity, NOBODY, started_ns)
        return RingWriter(f"{folder}/{started_ns}.ring", RING_BYTES, identity, layouts)


class Wide:
    """A life of a part that records wide tables.

    ``absent``: which of them is not there, and why. ``reset_s``: when counters began at 0.
    """

    def __init__(self, boot: Boot, ring: RingWriter, layouts: Sequence[Layout]) -> None:
        self.boot = boot
        self.ring = ring
        self.layouts = layouts
        self.absent: dict[str, tuple[Cause, str]] = {}
        self.reset_s = 0

    def run(self, ticks_s: Iterable[int], instances: Mapping[str, Sequence[str]]) -> None:
        """Record these seconds, of each table these instances; of one that is not named the whole system."""
        ticks = np.array(list(ticks_s), np.int64)
        made = []
        for layout in self.layouts:
            table, names = layout.table, tuple(instances.get(layout.table.name, ("",)))
            keys = [
                (SeriesKey(table.name, metric.name, name), metric) for name, metric in product(names, table.metrics)
            ]
            made.append((layout, names, np.array([values(*key, ticks - self.reset_s) for key in keys]).T.tolist(),
                         [metric.name for _, metric in keys]))  # fmt: skip
        for at, second in enumerate(ticks.tolist()):
            self.ring.clock(self.boot.relation(second))
            for number, (layout, names, rows, columns) in enumerate(made):
                if second * SECOND_NS % layout.interval_ns:
                    continue
                if why := self.absent.get(layout.table.name):
                    self.ring.absence(number, second * SECOND_NS, *why)
                    continue
                row = [self.ring.text(WORDS[name][value]) if name in WORDS else value
                       for name, value in zip(columns, rows[at], strict=True)]  # fmt: skip
                self.ring.rows(number, second * SECOND_NS, names, row)

    def event(self, second: int, kind: str, subject: str, text: str) -> None:
        """Note that something happened."""
        self.ring.event(second * SECOND_NS, kind, subject, text)

    def end(self, *, well: bool = True) -> None:
        """End, in good order or not."""
        self.ring.close(is_over=well)


class Long:
    """A life of a part that records a long table."""

    def __init__(self, boot: Boot, ring: RingWriter, layout: Layout, count: int) -> None:
        self.boot = boot
        self.ring = ring
        self.table = layout.table
        self.step_s = layout.interval_ns // SECOND_NS
        self.count = count
        self.is_first = True

    def run(self, ticks_s: Iterable[int]) -> None:
        """Record what is due in these seconds; the first reading, and one every so often, has all."""
        assert self.table.packing
        for second in ticks_s:
            if second % self.step_s:
                continue
            self.ring.clock(self.boot.relation(second))
            is_full = self.table.packing.lasting and (self.is_first or second % FULL_S == 0)
            rows = (
                lasting(self.table, second, self.boot.begin_s, self.count, is_full=is_full)
                if self.table.packing.lasting
                else moments(self.table, second, self.boot.begin_s, self.count)
            )
            write(self.ring, self.table, second, rows, is_full=is_full)
            self.is_first = False

    def end(self, *, well: bool = True) -> None:
        """End, in good order or not."""
        self.ring.close(is_over=well)


def every(table: Table, interval_s: int = 1) -> Layout:
    """A table with its interval."""
    return Layout(table, interval_s * SECOND_NS)


def settle(machine: Machine, written_ns: Mapping[str, int]) -> None:
    """Have every file be written when its boot says, not when the test ran."""
    for folder in (machine.folders.state, machine.folders.runtime):
        for top, _, files in os.walk(folder):
            for each in files:
                name = archive.parse_name(each)
                at_ns = max(written_ns.values()) if name is None else written_ns[name.boot] + name.first * SECOND_NS
                os.utime(os.path.join(top, each), ns=(at_ns, at_ns))


def forget(machine: Machine, tier: str, count: int, *tables: str) -> None:
    """Take away the oldest files of a tier, so many of wide tables, or of each of these long ones."""
    for table, sensitivity in product(tables or ("",), Sensitivity):
        folder = archive.disk_folder(machine.folders, sensitivity, tier, table)
        for name in archive.names(folder)[:count] if os.path.isdir(folder) else ():
            os.unlink(f"{folder}/{name.file}")


def keep(machine: Machine, *, rolls_up: bool = True) -> None:
    """Seal and flush what there is, a file more of rows; and roll up what was not yet, a file more of each tier."""
    machine.seal()
    machine.flush()
    if not rolls_up:
        return
    rollup_job.roll_up(machine.folders, DENSE, retention_job.keeper(machine.folders).make_room, set())
    rollup_job.roll_up(machine.folders, SPARSE, lambda _tier, _bytes: None, set())


def run(parts: Sequence[Wide | Long], low_s: int, high_s: int, **instances: Sequence[str]) -> None:
    """Record some seconds with all parts."""
    for part in parts:
        if isinstance(part, Wide):
            part.run(range(low_s, high_s), instances)
        else:
            part.run(range(low_s, high_s))


def quiet(root: Path) -> Now:
    """Record a machine at rest: what is old is there in tiers only, what is new in RAM and in rings."""
    machine = Machine(root)
    boot = Boot(machine, "1a" * 16, 1_743_271_200 * SECOND_NS)  # 2025-03-29T18:00Z
    layouts = [every(CPU, 10), every(MEMORY, 10), every(LOAD, 10), every(HOST, 60)]
    names = {"cpu": ("total",), "filesystem": ("/", "/home")}
    wide = boot.wide(30, *layouts)
    long = [boot.long(30, "process", 60, 9), boot.long(30, "cgroup_name", 300, 4)]
    parts: list[Wide | Long] = [wide, boot.wide(31, every(FILESYSTEM, 60), writer="background"), *long]
    parts.append(boot.long(32, "command", 300, 9, RESTRICTED))
    step_s = 7200
    for begin_s in range(0, 12 * step_s, step_s):
        run(parts, max(60, begin_s), begin_s + step_s, **names)
        keep(machine, rolls_up=begin_s in {3 * step_s, 11 * step_s})
    long_tables = ("process", "cgroup_name", "command")
    for tier, count in (("1s", 8), ("10s", 1)):
        forget(machine, tier, count)
        forget(machine, tier, count, *long_tables)
    merge_job.merge(machine.folders)
    run(parts, 12 * step_s, 13 * step_s, **names)
    wide.event(13 * step_s - 60, "mark", "", "backup done")
    machine.seal()
    machine.flush()
    run(parts, 13 * step_s, 13 * step_s + 3600, **names)
    machine.seal()
    last_s = 13 * step_s + 6000
    run(parts, 13 * step_s + 3600, last_s + 1, **names)
    _end(parts, well=False)
    settle(machine, {boot.boot: boot.utc_ns(last_s)})
    return Now(boot.boot, boot.relation(last_s + 1))


def busy(root: Path) -> Now:
    """Record a machine under load, until its recorder is killed."""
    machine = Machine(root)
    boot = Boot(machine, "b0" * 16, 1_749_632_400 * SECOND_NS)  # 2025-06-11T09:00Z
    wide = boot.wide(90, every(CPU), every(DISK), every(MEMORY), every(LOAD, 5))
    parts: list[Wide | Long] = [
        wide,
        boot.wide(91, every(FILESYSTEM, 30), writer="background"),
        boot.wide(92, every(INPUT), sensitivity=RESTRICTED),
        *(boot.long(90, name, interval_s, count) for name, interval_s, count in (
            ("process", 5, 45), ("thread", 5, 12), ("exits", 1, 9), ("thread_state", 10, 20), ("cgroup_name", 60, 4),
            ("kernel_stack", 60, 5), ("session", 5, 25), ("request", 1, 6),
        )),
        boot.long(93, "command", 60, 45, RESTRICTED),
        boot.long(93, "process_private", 30, 10, RESTRICTED),
    ]  # fmt: skip
    names = {"cpu": ("total", "cpu0", "cpu1"), "input": ("kbd0",), "filesystem": ("/", "/var/lib/a b")}
    step_s, plugged = 600, {"disk": ("nvme0", "sda")}
    for begin_s in range(0, 5 * step_s, step_s):
        disks = plugged if 2 * step_s <= begin_s < 4 * step_s else {"disk": ("nvme0",)}
        run(parts, max(100, begin_s), begin_s + step_s, **names, **disks)
        keep(machine, rolls_up=begin_s in {0, 4 * step_s})
    moving = ("process", "thread", "exits", "thread_state", "session", "request")
    forget(machine, "1s", 2)
    forget(machine, "10s", 1)
    forget(machine, "1s", 3, *moving)
    forget(machine, "10s", 1, *moving)
    merge_job.merge(machine.folders)
    wide.event(5 * step_s, "mark", "", "load\x1b[31m begins")
    run(parts, 5 * step_s, 6 * step_s, **names, disk=("nvme0",))
    machine.seal()
    last_s = 6 * step_s + 100
    run(parts, 6 * step_s, last_s, **names, disk=("nvme0",))
    for part in parts:
        part.end(well=False)
    settle(machine, {boot.boot: boot.utc_ns(last_s)})
    return Now(boot.boot, boot.relation(last_s + 7200))


def troubled(root: Path) -> Now:
    """Record a machine that has all kinds of trouble, over three boots."""
    machine = Machine(root)
    bits = plan.ArchiverSettings(significant_bits=8)
    plan.write(plan.Plan((), archiver=bits), f"{machine.folders.state}/plan.json")
    first = _first_boot(machine)
    machine.reboot()
    second = Boot(machine, "b1" * 16, 20 * SECOND_NS)  # Its clock has no battery.
    parts, names = _troubled(second, 90)
    run(parts, 100, 600, **names)
    keep(machine)
    second.wall_ns = 1_756_799_400 * SECOND_NS  # 2025-09-02T07:50Z
    for begin_s in (600, 900):
        run(parts, begin_s, begin_s + 300, **names)
        keep(machine, rolls_up=begin_s > 600)
    _end(parts, well=True)
    machine.seal()
    machine.flush()
    written = {first.boot: first.utc_ns(2700), second.boot: second.utc_ns(1300)}
    machine.reboot()
    third = Boot(machine, "c2" * 16, 1_756_807_200 * SECOND_NS)  # 2025-09-02T10:00Z
    parts, names = _troubled(third, 90)
    for low_s, high_s in ((100, 600), (600, 1200), (1200, 1500)):
        run(parts, low_s, high_s, **names)
        keep(machine, rolls_up=low_s > 100)
    run(parts, 1500, 1800, **names)
    machine.seal()
    run(parts, 1800, 1850, **names)
    _end(parts, well=False)
    _damage(machine, first, second, third)
    settle(machine, written | {third.boot: third.utc_ns(1850)})
    return Now("dd" * 16, Relation(600 * SECOND_NS, third.utc_ns(12_600), 600 * SECOND_NS))


def _troubled(boot: Boot, at_s: int) -> tuple[list[Wide | Long], dict[str, Sequence[str]]]:
    wide = boot.wide(at_s, every(CPU), every(DISK), every(MEMORY))
    names: dict[str, Sequence[str]] = {"cpu": ("total",), "disk": ("sda", "sdb")}
    return [wide, *(boot.long(at_s, name, step_s, count) for name, step_s, count in (
        ("process", 5, 13), ("exits", 1, 3), ("cgroup_name", 60, 4)))], names  # fmt: skip


def _end(parts: Iterable[Wide | Long], *, well: bool) -> None:
    for part in parts:
        part.end(well=well)


def _first_boot(machine: Machine) -> Boot:
    """The clock is set forth and back, the machine sleeps, its recorder is killed, ended, and stopped by power."""
    boot = Boot(machine, "a0" * 16, 1_756_765_800 * SECOND_NS)  # 2025-09-01T22:30Z
    parts, names = _troubled(boot, 90)
    run(parts, 100, 300, **names)
    run(parts, 305, 500, **names)
    boot.wall_ns += 37 * SECOND_NS
    run(parts, 500, 600, **names)
    keep(machine, rolls_up=False)
    run(parts, 600, 700, **names)
    _without(parts, "disk", (Cause.PROBE_FAILED, "OSError: /proc/diskstats"), lambda: run(parts, 700, 710, **names))
    run(parts, 710, 900, **names)
    boot.wall_ns -= 61 * SECOND_NS
    run(parts, 900, 1100, **names)
    keep(machine)
    boot.asleep_ns += 690 * SECOND_NS
    run(parts, 1800, 2000, **names)
    _end(parts, well=False)
    keep(machine, rolls_up=False)
    parts, names = _troubled(boot, 2028)
    run(parts, 2030, 2200, **names)
    _end(parts, well=True)
    parts, names = _troubled(boot, 2258)
    run(parts, 2260, 2300, **names)
    for low_s, why in ((2300, (Cause.QUARANTINED, "hung three times")), (2350, (Cause.DISABLED, "by root"))):
        _without(parts, "disk", why, lambda low_s=low_s: run(parts, low_s, low_s + 50, **names))  # type: ignore[misc]
    for part in parts:
        if isinstance(part, Wide):
            part.reset_s = 2390
            part.event(2400, "quarantine", "disk", "hung three times")
            part.event(2410, "mark", "", "deploy 12")
    run(parts, 2400, 2600, **names)
    _end(parts, well=False)
    keep(machine)
    pinned_ns = boot.utc_ns(700)
    pins.add(machine.folders.state, [Pin(pinned_ns, pinned_ns + 120 * SECOND_NS, "an incident", "golden")])
    merge_job.merge(machine.folders)
    return boot


def _damage(machine: Machine, first: Boot, second: Boot, third: Boot) -> None:
    """Two files that end too early, two with a chunk of other bytes, one that is none of ours."""
    rows = f"{machine.folders.state}/public/1s"
    long = f"{machine.folders.state}/public/{{}}/1s".format
    for folder in (rows, long("process")):
        path = Path(folder, archive.Name(third.boot, 2, 2).file)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for path, where in (
        (Path(rows, archive.Name(second.boot, 3, 3).file), "block/0"),
        (Path(long("exits"), archive.Name(first.boot, 1, 5).file), "keys"),
    ):
        with h5py.File(path) as file:
            matrix = next(file[where][width] for width in ("i2", "i4", "i1") if width in file[where])
            place = matrix.id.get_chunk_info(0).byte_offset
        image = bytearray(path.read_bytes())
        image[place : place + 8] = b"\xa5" * 8
        path.write_bytes(image)
    Path(rows, "notes.h5").write_text("not ours", encoding="utf-8")


def _without(parts: Iterable[Wide | Long], table: str, why: tuple[Cause, str], does: Callable[[], None]) -> None:
    """Record while a wide table is not there."""
    wide = [part for part in parts if isinstance(part, Wide)]
    for part in wide:
        part.absent[table] = why
    does()
    for part in wide:
        del part.absent[table]


ARCHIVES: Mapping[str, Callable[[Path], Now]] = {"quiet": quiet, "busy": busy, "troubled": troubled}
