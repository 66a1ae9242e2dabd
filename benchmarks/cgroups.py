# SPDX-License-Identifier: Apache-2.0
"""What a tick over a thousand control groups costs: CPU, memory, tasks, pressure, and devices, of every one.

Real cgroups are made (as root) in every hierarchy that has such files, and removed afterwards; in each tenth of them a
process works a little. The background lane reads the tables ``cgroup`` and ``cgroup_io`` once a second into its ring;
processor time is that of the whole lane, less what it costs without any table. Told as well: a tick in which every
file is parsed anew, one without kept descriptors, and the slow tables, each reading.
"""

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from sysmond_probes import cgroup, cgroup_memory

from benchmarks import measure
from benchmarks.confined import remove
from benchmarks.measure import SECOND_NS, Figures
from sysmond.base.model import Lane, Sensitivity
from sysmond.cgroups.batch import READ_BYTES
from sysmond.cgroups.tree import MOUNTINFO, hierarchies
from sysmond.plan.plan import Plan, PlannedProbe, Scalar
from sysmond.plan.settings import Settings
from sysmond.probe import Host, Probe
from sysmond.ring.progress import ring_files
from sysmond.sampler.lane import Sampler

GROUPS = 1000
SECONDS = 20
BUSY_SHARE = 10
FLOOR_FILES = 5
FOLDER = f"sysmond-benchmark-{os.getpid()}"
CONTROLLERS = frozenset(("", "cpu", "cpuacct", "memory", "pids", "blkio"))
FAST = ("cgroup", "cgroup_io")
SLOW = ("cgroup_memory", "cgroup_limits", "cgroup_tree", "cgroup_owner")
# How often the fast tables are read by default; how many cgroups are meant by "a hundred of them".
FAST_S = 5
HUNDRED = 100


@contextmanager
def made(groups: int) -> Iterator[list[list[str]]]:
    """Make cgroups in every hierarchy of interest: of each its folders."""
    with open(MOUNTINFO, "rb") as file:
        mounted = hierarchies(file.read())
    tops = [
        f"{hierarchy.point}/{FOLDER}"
        for hierarchy in mounted
        if not CONTROLLERS.isdisjoint(hierarchy.controllers or ("",))
    ]
    try:
        for top in tops:
            os.mkdir(top)
            for number in range(groups):
                os.mkdir(f"{top}/{number}.service")
        yield [[f"{top}/{number}.service" for top in tops] for number in range(groups)]
    finally:
        for top in tops:
            for number in range(groups):
                remove(f"{top}/{number}.service")
            remove(top)


@contextmanager
def busy(groups: list[list[str]], limit_s: float) -> Iterator[None]:
    """Have a process work a little in each of some cgroups; each ends by itself after a while."""
    children = []
    try:
        for folders in groups:
            child = os.fork()
            if child == 0:
                try:
                    _work(folders, limit_s)
                finally:
                    os._exit(0)
            children.append(child)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _work(folders: list[str], limit_s: float) -> None:
    for folder in folders:
        with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
    gc.disable()
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        sum(bytearray(20_000))
        time.sleep(0.25)


def offered() -> dict[str, Probe]:
    """The probes of the two plugins, by table."""
    return {probe.table.name: probe for module in (cgroup, cgroup_memory) for probe in module.sysmond_probes()}


def planned(tables: Sequence[str], every_s: float, options: dict[str, Scalar]) -> Plan:
    """A plan of some tables of the two plugins, all at one interval."""
    plugins = {probe.table.name: module for module in (cgroup, cgroup_memory) for probe in module.sysmond_probes()}
    lane, class_, interval_ns = Lane.BACKGROUND, Sensitivity.PUBLIC, round(every_s * SECOND_NS)
    return Plan(
        tuple(
            PlannedProbe(table, plugins[table].__name__, lane, interval_ns, class_, options=dict(options))
            for table in tables
        )
    )


def lane_ns(tables: Sequence[str], ticks: int, options: dict[str, Scalar] | None = None, every_s: int = 1) -> list[int]:
    """Processor time of each tick of a background lane that reads these tables once in so many seconds."""
    spent = []
    with measure.workplace() as folders:
        sampler = Sampler(Settings(folders), planned(tables, every_s, options or {}), Lane.BACKGROUND, print)
        apart_ns = every_s * SECOND_NS
        tick_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // apart_ns * apart_ns
        for number in range(ticks + 2):
            for _ in range(every_s):
                measure.sleep_until_phase(0.0)
            tick_ns += apart_ns
            begin_ns = time.process_time_ns()
            sampler.tick(tick_ns)
            if number >= 2:  # The first finds and opens everything.
                spent.append(time.process_time_ns() - begin_ns)
        if sampler.own.dropped:
            raise RuntimeError(f"{sampler.own.dropped} values were dropped")
        sampler.close()
    return spent


def default_ms(slow_ms: dict[str, float], ticks: int, idle_ns: float, groups: int) -> dict[str, float]:
    """Processor time a second of each table that is on by default, at its interval, for a hundred cgroups, in ms."""
    probes = offered()
    fast_ns = lane_ns(FAST, ticks, every_s=FAST_S)
    mean_ms = {"+".join(FAST): measure.ms(sum(fast_ns) / len(fast_ns) - idle_ns), **slow_ms}
    every_s = {name: probes[name.partition("+")[0]].interval_s for name in mean_ms}
    return {name: round(ms * HUNDRED / groups / every_s[name], 4) for name, ms in mean_ms.items()}


def bytes_kept(seconds: int) -> dict[str, int]:
    """What the fast tables take in a file of so many seconds, read once a second and once in five, side by side."""
    kept = {}
    with ExitStack() as stack:
        begun = {}
        for every_s in (1, FAST_S):
            folders = stack.enter_context(measure.workplace())
            plan = planned(FAST, every_s, {})
            begun[every_s] = folders, Sampler(Settings(folders), plan, Lane.BACKGROUND, print)
        tick_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // (FAST_S * SECOND_NS) * FAST_S * SECOND_NS
        for _ in range(seconds + 1):
            measure.sleep_until_phase(0.0)
            for _, sampler in begun.values():
                sampler.tick(tick_ns)
            tick_ns += SECOND_NS
        for every_s, (folders, sampler) in begun.items():
            sampler.close()
            kept[f"{every_s}s"] = sum(map(_file_bytes, ring_files(folders)))
    return kept


def _file_bytes(ring: str) -> int:
    """How large the rows of a ring are in a file, without what every file says once."""
    from sysmond.ring.snapshot import snapshot  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.store.files import dense_file  # noqa: PLC0415
    from sysmond.store.of_ring import of_snapshot  # noqa: PLC0415

    recording = of_snapshot(snapshot(ring))
    if not recording.blocks:
        return 0
    return len(dense_file.encode(recording, "")) - len(dense_file.encode(recording._replace(blocks=()), ""))


def parsed_ns(seconds: int) -> float:
    """Processor time of reading both tables where every content is another than before."""
    readers = (cgroup.Cgroups(), cgroup.CgroupIo())
    host = Host()
    spent = []
    for _ in range(seconds + 2):
        time.sleep(0.3)
        begin_ns = time.process_time_ns()
        host.new_tick()
        for reader in readers:
            reader.watch.forget()
            for _row in reader.read(host):
                pass
        spent.append(time.process_time_ns() - begin_ns)
    for reader in readers:
        reader.watch.close()
    host.close()
    return measure.median(spent[2:])


def plain_ns(groups: list[list[str]], seconds: int) -> float:
    """The floor: a kept descriptor and one pread(2) for each of five files a cgroup, and nothing else."""
    names = ("cpu.stat", "memory.current", "memory.usage_in_bytes", "io.stat", "blkio.throttle.io_service_bytes")
    paths = []
    for folders in groups:
        there = [f"{folder}/{name}" for folder in folders for name in (*names, "cpu.pressure", "pids.current")]
        paths += [path for path in there if os.access(path, os.R_OK)][:FLOOR_FILES]
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    spent = []
    for _ in range(seconds):
        time.sleep(0.3)
        begin_ns = time.process_time_ns()
        for descriptor in descriptors:
            os.pread(descriptor, READ_BYTES, 0)
        spent.append(time.process_time_ns() - begin_ns)
    for descriptor in descriptors:
        os.close(descriptor)
    return measure.median(spent)


def figures(groups: int, seconds: int) -> Figures:
    """Measure everything."""
    with made(groups) as folders:
        quiet = lane_ns(FAST, seconds)
        # The children are forked before anything is large.
        with busy(folders[::BUSY_SHARE], 10 * seconds + 120):
            worked = lane_ns(FAST, seconds)
            parsed = parsed_ns(seconds)
            opened = lane_ns(FAST, max(3, seconds // 4), {"descriptors": 0})
            floor = plain_ns(folders, seconds)
            idle_ns = measure.median(lane_ns((), seconds))
            slow = {
                table: measure.ms(measure.median(lane_ns((table,), min(3, seconds))) - idle_ns, 1) for table in SLOW
            }
            defaults = default_ms(slow, max(1, seconds // 2), idle_ns, groups)
    with made(min(groups, HUNDRED)) as folders, busy(folders[::BUSY_SHARE], 30 * seconds + 120):
        kept = bytes_kept(30 * seconds)
    return {
        "folder": FOLDER,
        "groups": groups,
        "seconds": seconds,
        "cpu_ms_per_tick": measure.ms(measure.median(worked) - idle_ns, 2),
        "cpu_ms_per_tick_mean": measure.ms(sum(worked) / len(worked) - idle_ns, 2),
        "quiet_ms_per_tick": measure.ms(measure.median(quiet) - idle_ns, 2),
        "all_parsed_ms_per_tick": measure.ms(parsed, 2),
        "opened_ms_per_tick": measure.ms(measure.median(opened) - idle_ns, 2),
        "five_files_floor_ms": measure.ms(floor, 2),
        "quiet_to_floor": round((measure.median(quiet) - idle_ns) / floor, 3),
        "slow_tables_ms_per_reading": slow,
        "default_ms_per_s_per_100": round(sum(defaults.values()), 3),
        "default_by_table": defaults,
        "kept_seconds": 30 * seconds,
        "kept_bytes": kept,
        "kept_share": round(kept[f"{FAST_S}s"] / kept["1s"], 3),
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """What is printed for people."""
    slow = ", ".join(f"{table} {ms:.1f} ms" for table, ms in figures["slow_tables_ms_per_reading"].items())
    return [
        (
            f"{figures['groups']} cgroups, a tenth of them at work",
            f"{figures['cpu_ms_per_tick']:.2f} ms a tick, median",
        ),
        ("… mean", f"{figures['cpu_ms_per_tick_mean']:.2f} ms"),
        ("… none at work", f"{figures['quiet_ms_per_tick']:.2f} ms"),
        ("… every file parsed anew, without the ring", f"{figures['all_parsed_ms_per_tick']:.2f} ms"),
        ("… opening every file every time", f"{figures['opened_ms_per_tick']:.2f} ms"),
        ("only reading five files of each", f"{figures['five_files_floor_ms']:.2f} ms"),
        ("slow tables, a reading", slow),
        ("what is on by default, a second, for 100 cgroups", f"{figures['default_ms_per_s_per_100']:.2f} ms"),
        (f"bytes kept at {FAST_S} s, of those at 1 s", f"{figures['kept_share']:.2f}"),
    ]


def main() -> None:
    """Measure and tell."""
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--groups", type=_groups, default=GROUPS, metavar="N", help="how many cgroups; default 1000")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, metavar="S", help="default 20")
    options = parser.parse_args()
    work: Callable[[], Figures] = lambda: figures(options.groups, options.seconds)  # noqa: E731
    measure.run(work, rows, as_json=options.json)


def _groups(written: str) -> int:
    number = int(written)
    if not BUSY_SHARE <= number <= 3000:
        raise argparse.ArgumentTypeError(f"{written!r}: expected {BUSY_SHARE} to 3000")
    return number


if __name__ == "__main__":
    main()
