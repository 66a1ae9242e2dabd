# SPDX-License-Identifier: Apache-2.0
"""What it costs to sense a laptop that is described by files, lane by lane; more on a virtual machine; hot-plug.

The daemon runs once a second as anywhere, with ``--root`` on a tree in RAM: the devices of a machine of
``tests/fixtures/machines``, and the files of /proc of a Linux 6.18 with as many CPUs and disks, whose numbers a process
of the benchmark moves between two ticks. So the kernel's own work to make these files, and that of libsensors, is in no
figure here; ``tick.py`` has the former of the machine that it runs on. All probes are on but those of tasks, which
``tasks.py`` measures.

The laptop: 12 CPUs, 2 batteries, 20 values of hwmon, 6 disks. Of the virtual machine two daemons run over the same
seconds as its, one without whatever senses hardware (``BEFORE`` names the others): the difference is told.

A wake-up of the background lane is a voluntary context switch of one of its threads, those of the lane's process in
/proc/PID/task: each ends with the thread being woken. They are told a second, beside the ticks: a tick is more than
one, since the thread of the lane waits for the one that reads. What a thread that has ended had is not in it.

Hot-plug: umockdev plugs a chip of hwmon in beside one that stays, and pulls it out. It is told how long after each the
tick is at which its row is there, or not any more.
"""

import json
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import sysmond_probes

from benchmarks import measure, memory, passes, tick
from benchmarks.measure import SECOND_NS, Daemon, Figures
from sysmond.plan import plan as plans
from sysmond.probe import Probe
from tests.support import devices, sysfs

SECONDS = 300  # The longest interval: every table is read.
PLUGS = 10
WARM_UP_S = 10
MOVING_PHASE = 0.5
HOT_PLUG_S = 20.0
PROC = Path(__file__).resolve().parent.parent / "tests/fixtures/linux618/proc"
# Plugins that record no hardware which a machine may lack: what there was before anything was sensed.
BEFORE = frozenset((
    *("cgroup", "cgroup_memory", "cgroup_name", "command", "cpu", "disk", "exits", "filesystem", "host", "load"),
    *("memory", "network", "own", "pressure", "process", "snmp", "sockets", "thread_state", "vm"),
))  # fmt: skip
# What stays the same while a machine runs.
_STILL = frozenset(("cmdline", "cpuinfo", "mountinfo", "osrelease", "version", "hostname", "arch"))
_NUMBER = re.compile(rb"(?<![\w.])\d{3,17}(?![\w.])")


class Machine(NamedTuple):
    """A machine of the fixtures, and what its /proc is to have."""

    name: str
    cpus: int
    disks: tuple[str, ...]
    interfaces: tuple[str, ...]


LAPTOP = Machine("laptop", 12, ("nvme0n1", "nvme0n1p1", "nvme0n1p2", "nvme1n1", "sda", "sda1"), ("eth0", "wlan0"))
VIRTUAL = Machine("virtual", 2, ("vda",), ("eth0",))


def build(machine: Machine, root: Path) -> None:
    """Make the tree of a machine."""
    shutil.copytree(PROC, root / "proc")
    sysfs.build(root, machine.name)
    lines = (PROC / "stat").read_text().splitlines()
    one = lines[1].removeprefix("cpu0")
    each = [f"cpu{number}{one}" for number in range(machine.cpus)]
    _put(root / "proc/stat", [lines[0], *each, *(line for line in lines if not line.startswith("cpu"))])
    vda = next(line for line in (PROC / "diskstats").read_text().splitlines() if " vda " in line)
    _put(root / "proc/diskstats", [vda.replace(" vda ", f" {disk} ") for disk in machine.disks])
    lines = (PROC / "net/dev").read_text().splitlines()
    eth0 = next(line for line in lines if "eth0:" in line)
    _put(root / "proc/net/dev", [*lines[:3], *(eth0.replace("eth0", name) for name in machine.interfaces)])
    _put(root / "proc/net/softnet_stat", [f"{16:08x} " * 15] * machine.cpus)


def _put(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def move(roots: list[Path]) -> None:
    """Once a second, between two ticks, have all numbers of /proc be others, until killed."""
    files = [path for root in roots for path in root.glob("proc/**/*") if path.is_file() and path.name not in _STILL]
    begun = [(path, path.read_bytes()) for path in files]
    for second in range(1, sys.maxsize):
        measure.sleep_until_phase(MOVING_PHASE)
        for path, content in begun:
            with path.open("r+b") as file:  # In place: the lane keeps it open.
                file.write(_NUMBER.sub(partial(_moved, second), content))


def _moved(second: int, number: re.Match[bytes]) -> bytes:
    """A number as it is some seconds later, in as many digits."""
    grown = int(number[0]) + 7 * second
    return b"%0*d" % (len(number[0]), grown % 10 ** len(number[0]))


def probes_of(plugins: Iterable[str]) -> list[Probe]:
    """The probes of some plugins, by the names of these."""
    modules = [plans.import_plugin(f"{plans.BUILTIN_PACKAGE}.{plugin}") for plugin in plugins]
    return [probe for module in modules for probe in plans.offered_probes(module)]


def all_plugins() -> set[str]:
    """The names of all plugins."""
    return {module.name for module in pkgutil.iter_modules(sysmond_probes.__path__)}


def sensing_tables() -> list[str]:
    """The tables of what senses hardware."""
    return sorted(probe.table.name for probe in probes_of(all_plugins() - BEFORE))


def configured(*, senses: bool) -> str:
    """A configuration without the tables of tasks, and with or without those that sense."""
    config = json.loads(passes.configured(()))
    if not senses:
        config["probes"] |= {table: {"enabled": False} for table in sensing_tables()}
    return json.dumps(config)


def lanes(daemon: Daemon, seconds: int, begun: Figures) -> Figures:
    """What the lanes of a daemon have cost since ``begun``, a second."""
    return {name: (value - begun[name]) / seconds for name, value in counted(daemon).items()}


def counted(daemon: Daemon) -> Figures:
    """Processor time of both lanes, and how often the threads of that in the background were woken."""
    pids = daemon.pids()
    cpu_ms = {part: measure.cpu_ns(pids[part]) / 1e6 for part in ("sampler", "background")}
    return {**cpu_ms, "wakeups": measure.wakeups(pids["background"])}


@contextmanager
def running(runs: list[tuple[Machine, bool]], limit_s: int) -> Iterator[list[Daemon]]:
    """Run a daemon on each of some machines, with or without what senses."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sysmond-benchmark-", dir="/dev/shm")))
        roots = [folder / str(number) for number in range(len(runs))]
        for (machine, _), root in zip(runs, roots, strict=True):
            build(machine, root)
        stack.enter_context(measure.forked(partial(move, roots), limit_s))
        yield [
            stack.enter_context(measure.daemon(limit_s, configured(senses=senses), arguments=("--root", str(root))))
            for (_, senses), root in zip(runs, roots, strict=True)
        ]


def measured_over(runs: list[tuple[Machine, bool]], seconds: int) -> list[Figures]:
    """Run daemons over the same seconds; what each has cost a second, what it holds, and how many values."""
    with running(runs, seconds + 120) as daemons:
        rings = [daemon.wait_for_ring() for daemon in daemons]
        time.sleep(WARM_UP_S)
        measure.sleep_until_phase(tick.READING_PHASE)
        begun = [counted(daemon) for daemon in daemons]
        time.sleep(max(0.0, seconds - 0.5))
        measure.sleep_until_phase(tick.READING_PHASE)
        found = [lanes(daemon, seconds, before) for daemon, before in zip(daemons, begun, strict=True)]
        shares = [{"pss_mb": sum(map(memory.pss_bytes, daemon.pids().values())) / 1e6} for daemon in daemons]
        inside = [
            {**tick.last_seconds(ring), **in_background(daemon)} for daemon, ring in zip(daemons, rings, strict=True)
        ]
    return [{**lane, **share, **more} for lane, share, more in zip(found, shares, inside, strict=True)]


def in_background(daemon: Daemon) -> Figures:
    """How many values the background lane has of what is public, and how often it ticked, a second."""
    from sysmond.ring.snapshot import snapshot  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.store.of_ring import of_snapshot  # noqa: PLC0415

    folder = Path(daemon.folders.runtime, "background/public")
    blocks = of_snapshot(snapshot(str(max(folder.glob("*.ring"))))).blocks
    ticks = sorted({int(tick) for block in blocks for tick in block.ticks} - {0})
    lasted_s = (ticks[-1] - ticks[0]) / SECOND_NS
    return {
        "slow_values": len({key for block in blocks for key in block.keys}),
        "slow_ticks": (len(ticks) - 1) / lasted_s,
    }


# --- Hot-plug


@contextmanager
def surroundings(more: dict[str, str]) -> Iterator[None]:
    """Have programs that are started here see more variables."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def hot_plug(times: int) -> Figures:
    """Plug a chip in and pull it out, so often: seconds from the event to the row, and to the first tick without."""
    if shutil.which("umockdev-wrapper") is None:
        return {"missing": "umockdev is not installed"}
    with ExitStack() as stack:
        machine = stack.enter_context(devices.a_machine())
        # Not in /dev/shm: whatever lies below /dev is a device to umockdev.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sysmond-benchmark-"))
        machine.add("hwmon", "hwmon0", {"name": "stays", "temp1_input": "42000"})
        config = Path(folder, "benchmark.yaml")
        config.write_text(configured(senses=True))
        command = [measure.program("sysmond"), f"--state-dir={folder}/state", f"--runtime-dir={folder}/run"]
        with surroundings(machine.environ):
            stack.enter_context(measure.started([*command, "--config", str(config)], f"{folder}/log"))
        _first(lambda: _ticks(folder, "stays", 0))
        came, went = [], []
        for number in range(times):
            time.sleep(0.37)  # Each at another part of the second.
            begin_ns = time.time_ns()
            path = machine.add("hwmon", f"hwmon{number + 1}", {"name": "comes", "temp1_input": "55000"})
            came.append(round((_first(partial(_ticks, folder, "comes", begin_ns)) - begin_ns) / SECOND_NS, 3))
            time.sleep(0.53)
            begin_ns = time.time_ns()
            machine.remove(path)
            went.append(round((_first(partial(_without, folder, begin_ns)) - begin_ns) / SECOND_NS, 3))
    return {"times": times, "came_s": came, "went_s": went}


def _ticks(folder: str, chip: str, since_ns: int) -> list[int]:
    """At which times since then a chip had a temperature, in UTC nanoseconds."""
    from sysmond.errors import Error  # noqa: PLC0415  as below
    from sysmond.history import Archive  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.machine.folders import Folders  # noqa: PLC0415

    archive = Archive(Folders(f"{folder}/state", f"{folder}/run"))
    try:
        found = archive.select(
            f"temperature/value@{chip}*", raw=True, start=since_ns or time.time_ns() - 60 * SECOND_NS
        )
    except Error:  # Nothing is recorded yet.
        return []
    values = [column.integers for column in found.columns if column.integers is not None]
    moments = found.times.astype(int).tolist()
    return [
        moment for at, moment in enumerate(moments) if moment >= since_ns and any(value[at] >= 0 for value in values)
    ]


def _without(folder: str, since_ns: int) -> list[int]:
    """Ticks since then at which the chip that stays has a temperature, and the other none."""
    return sorted(set(_ticks(folder, "stays", since_ns)) - set(_ticks(folder, "comes", since_ns)))


def _first(looks: Callable[[], list[int]]) -> int:
    give_up_s = time.monotonic() + HOT_PLUG_S
    while not (found := looks()):
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"hot-plug: nothing within {HOT_PLUG_S:.0f} s")
        time.sleep(0.1)
    return found[0]


# --- All of it


def figures(seconds: int, plugs: int) -> Figures:
    """Measure everything."""
    laptop, senses, before = measured_over([(LAPTOP, True), (VIRTUAL, True), (VIRTUAL, False)], seconds)
    more_ms = senses["sampler"] + senses["background"] - before["sampler"] - before["background"]
    plugged = hot_plug(plugs)
    return {
        "seconds": seconds,
        "realtime_ms_per_tick": round(laptop["sampler"], 4),
        "realtime_values": laptop["values"],
        "by_probe": {name: measure.ms(ns) for name, ns in sorted(laptop["by_probe"].items())},
        "background_ms_per_s": round(laptop["background"], 4),
        "background_values": laptop["slow_values"],
        "background_wakeups_per_s": round(laptop["wakeups"], 3),
        "background_ticks_per_s": round(laptop["slow_ticks"], 3),
        "laptop_pss_mb": round(laptop["pss_mb"], 2),
        "virtual_more_ms_per_tick": round(more_ms, 4),
        "virtual_more_mb": round(senses["pss_mb"] - before["pss_mb"], 3),
        "virtual_tables": len(sensing_tables()),
        "virtual": {"with": _short(senses), "without": _short(before)},
        "hot_plug": plugged,
        "came_max_s": max(plugged["came_s"]) if "came_s" in plugged else None,
        "went_max_s": max(plugged["went_s"]) if "went_s" in plugged else None,
    }


def _short(found: Figures) -> Figures:
    return {name: round(found[name], 4) for name in ("sampler", "background", "wakeups", "pss_mb")}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    slow = f"{figures['background_ms_per_s']:.3f} ms of CPU a second, {figures['background_values']} values"
    woken = f"{figures['background_wakeups_per_s']:.2f} times a second"
    more = f"{figures['virtual_more_ms_per_tick']:+.3f} ms a second, {figures['virtual_more_mb']:+.2f} MB"
    lines = [
        (
            "laptop, a tick of the real-time lane",
            f"{figures['realtime_ms_per_tick']:.3f} ms of CPU, {figures['realtime_values']} values",
        ),
        *((f"  {name}", f"{ms:.3f} ms") for name, ms in sorted(figures["by_probe"].items(), key=lambda item: -item[1])),
        ("laptop, the background lane", slow),
        ("  its threads are woken", f"{woken}, it ticks {figures['background_ticks_per_s']:.2f} times"),
        ("virtual machine, with what senses against without", more),
    ]
    plugged = figures["hot_plug"]
    if "missing" in plugged:
        return [*lines, ("hot-plug", plugged["missing"])]
    times = f"{plugged['times']} times"
    return [
        *lines,
        (f"plugged in {times}: row after", f"{figures['came_max_s']:.2f} s at most"),
        ("pulled out: gap after", f"{figures['went_max_s']:.2f} s at most"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    parser.add_argument("--plugs", type=measure.at_least_one, default=PLUGS, help=f"default {PLUGS}")
    options = parser.parse_args()
    measure.run(lambda: figures(options.seconds, options.plugs), rows, as_json=options.json)
