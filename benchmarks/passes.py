# SPDX-License-Identifier: Apache-2.0
"""What sysmond costs where many tasks are: a pass over them by itself, and the daemon with its long tables on and off.

The pass by itself is what the probe does: ask the kernel (or /proc) and put the records into rings, once a second, so
that other programs have the caches in between; processor time is that of the process that does it. Of the daemon,
processor time is the sampler's; a snapshot's is what it takes more with the long tables than without, in one process.
"""

import gc
import json
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import sysmond_probes

from benchmarks import measure, streams, tick, trees
from benchmarks.measure import SECOND_NS, Daemon, Figures
from sysmond.base import clock
from sysmond.base.model import Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine import control
from sysmond.plan import plan as plans
from sysmond.probe import WAY_SUFFIX
from sysmond.records import record_bytes
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks import tables
from sysmond.tasks.bpf import loader
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.pass_result import Tasks
from sysmond.tasks.proc.walk import Proc

RING_BYTES = 16 * 1024 * 1024
# A new probe's first tick, its first reading in full, and what a reload leaves behind.
SETTLE_S = 4
WARM_UP_TICKS = 3
READING_PHASE = 0.8
RELOAD_S = 60.0
LONG = {table.name: table for table in vars(tables).values() if isinstance(table, Table)}
# One pass of the kernel gives these.
SNAPSHOT = ("process", "thread", "process_private")


# --- A pass by itself


def by_itself(way: str, seconds: int, *, threads: bool) -> Figures:
    """Do a pass a second; give processor time a pass, in ms, and what the passes found.

    :raises Error: where there is no such way here.
    """
    with measure.workplace() as folders:
        try:
            work = partial(_passes, way, folders.runtime, seconds, threads=threads)
            figures: Figures = measure.in_child(work, seconds + 60)
        finally:
            with suppress(Error):
                loader.unload(folders.runtime)
    if "refused" in figures:
        raise Error(figures["refused"])
    return figures


def _passes(way: str, runtime: str, seconds: int, *, threads: bool) -> Figures:
    try:
        tasks, name = _opened(way, runtime, threads=threads)
    except Error as refusal:
        return {"refused": str(refusal)}
    wanted = [tables.PROCESS, *([tables.THREAD] if threads else []), tables.PROCESS_PRIVATE]
    rings = {table.name: _ring(runtime, table) for table in wanted}
    gc.freeze()
    gc.disable()
    spent, count = [], dict.fromkeys(rings, 0)
    lost, walked = 0, 0
    warm_up = min(seconds, WARM_UP_TICKS)
    for number in range(seconds + warm_up):
        measure.sleep_until_phase(0.0)
        at_ns = clock.boottime_ns()
        begin_ns = time.process_time_ns()
        result = tasks.take(full=not number, threads=threads)
        given = [result.process, *([result.thread] if result.thread is not None else []), result.private]
        for table, records in zip(wanted, given, strict=True):
            lost += records.lost + rings[table.name].records(0, at_ns, [records], record_bytes(table))
        spent.append(time.process_time_ns() - begin_ns)
        walked = given[1].walked if threads else result.process.walked
        if number >= warm_up:
            for table, records in zip(wanted, given, strict=True):
                count[table.name] += len(memoryview(records.rows).cast("B")) // record_bytes(table)
        del result, given, records
    measured = spent[warm_up:]
    return {
        "way": name,
        "cpu_ms": measure.ms(sum(measured) / len(measured), 3),
        "median_ms": measure.ms(measure.median(measured), 3),
        "full_ms": measure.ms(spent[0], 3),
        "walked": walked,
        "lost": lost,
        "records_per_tick": {table: round(rows / len(measured), 1) for table, rows in count.items()},
    }


def _opened(way: str, runtime: str, *, threads: bool) -> tuple[Tasks, str]:
    if way == "proc":
        return Proc(), "/proc"
    report = loader.load(loader.LoadRequest(runtime, threads=threads))
    walk = Walk(str(report["folder"]))
    return walk, walk.way


def _ring(runtime: str, table: Table) -> RingWriter:
    identity = Identity(clock.boot_id(), "benchmark", Sensitivity.PUBLIC, os.getpid(), clock.boottime_ns())
    return RingWriter(f"{runtime}/{table.name}.ring", RING_BYTES, identity, [Layout(table, SECOND_NS)])


# --- The daemon


def offered() -> list[str]:
    """The long tables that the probes of this version offer."""
    plugins = [f"{plans.BUILTIN_PACKAGE}.{name.name}" for name in pkgutil.iter_modules(sysmond_probes.__path__)]
    names = {probe.table.name for name in plugins for probe in plans.offered_probes(plans.import_plugin(name))}
    return sorted(names & LONG.keys())


def configured(enabled: Sequence[str], *, threads: bool = False) -> str:
    """A configuration with these of the long tables, and all that is not long as it is by default.

    ``threads``: with the table of threads, where processes are recorded; else never.
    """
    probes: dict[str, Figures] = {table: {"enabled": table in enabled} for table in offered()}
    probes.pop("thread", None)  # It is off, but for an option of the probe of processes.
    if threads and "process" in enabled:
        probes["process"]["options"] = {"threads": True}
    return json.dumps({"probes": probes})  # JSON is YAML.


@contextmanager
def daemon(limit_s: int, config: str, *, threads: bool = False) -> Iterator[Daemon]:
    """Run the daemon with its BPF programs loaded, as where it is installed.

    :raises RuntimeError: where it does not record.
    """
    with measure.daemon(limit_s, config) as running:
        try:
            running.wait_for_ring()
            if not os.path.exists(f"{running.folders.runtime}/bpf.json"):
                command = [sys.executable, "-m", "sysmond.tasks.bpf.loader", "--runtime-dir", running.folders.runtime]
                subprocess.run([*command, "--threads"] if threads else command, check=True)
            yield running
        finally:
            with suppress(Error):
                loader.unload(running.folders.runtime)


def configure(running: Daemon, config: str, settle_s: float = SETTLE_S) -> None:
    """Have the daemon follow another configuration, and wait until it has and what that costs is over.

    :raises RuntimeError: where it refuses.
    """
    with open(f"{running.folders.state}/benchmark.yaml", "w", encoding="utf-8") as file:
        file.write(config)
    answer = control.ask(f"{running.folders.runtime}/daemon", {"do": "reload"}, RELOAD_S)
    if answer != {"ok": True}:
        raise RuntimeError(f"reload: {answer}")
    time.sleep(settle_s)


def cpu_by_tick(running: Daemon, seconds: int) -> dict[str, list[int]]:
    """Processor time of each part, of every second, in ns."""
    pids = running.pids()
    spent: dict[str, list[int]] = {part: [] for part in pids}
    measure.sleep_until_phase(READING_PHASE)
    before = {part: measure.cpu_ns(pid) for part, pid in pids.items()}
    for _ in range(seconds):
        measure.sleep_until_phase(READING_PHASE)
        for part, pid in pids.items():
            now = measure.cpu_ns(pid)
            spent[part].append(now - before[part])
            before[part] = now
    return spent


def phase(running: Daemon, seconds: int) -> Figures:
    """A while of the daemon: processor time a tick, in ms, and system calls a second of the sampler."""
    spent = cpu_by_tick(running, seconds)
    sampler = spent["sampler"]
    return {
        "sampler_ms": measure.ms(sum(sampler) / len(sampler), 3),
        "sampler_median_ms": measure.ms(measure.median(sampler), 3),
        "parts_ms": {part: measure.ms(sum(ticks) / len(ticks), 3) for part, ticks in spent.items()},
        "system_calls": trees.system_calls([running.pids()["sampler"]], min(seconds, 10)),
        "pss_mb": trees.pss_mb(running.pids().values()),
    }


def whole(seconds: int, *, threads: bool) -> Figures:
    """The daemon with none of its long tables, with those of a snapshot, and with all.

    :raises Error: where it has none to be measured. :raises RuntimeError: as ``daemon`` and ``configure``.
    """
    names = offered()
    if "process" not in names:
        raise Error("no probe offers the table process")
    settle_s = min(seconds, SETTLE_S)
    with daemon(6 * seconds + 180, configured(()), threads=threads) as running:
        time.sleep(settle_s)
        off = phase(running, seconds)
        configure(running, configured(SNAPSHOT, threads=threads), settle_s)
        snapshot = _snapshot_phase(running, seconds, tables.THREAD if threads else tables.PROCESS)
        configure(running, configured(names, threads=threads), settle_s)
        watches = [streams.Watch(running.folders, LONG[name]) for name in (*SNAPSHOT, "exits")]
        on = phase(running, seconds)
        for watch in watches:
            watch.look()
        durations = measure.in_child(partial(tick.last_seconds, running.wait_for_ring()), 60)["by_probe"]
        return {
            "on": on,
            "off": off,
            "snapshot": snapshot,
            "snapshot_ms": round(snapshot["sampler_ms"] - off["sampler_ms"], 3),
            "snapshot_median_ms": round(snapshot["sampler_median_ms"] - off["sampler_median_ms"], 3),
            "duration_ms": {name: measure.ms(ns, 3) for name, ns in durations.items() if name in LONG},
            "tables": {name: _readings(watch) for name, watch in zip((*SNAPSHOT, "exits"), watches, strict=True)},
        }


def _snapshot_phase(running: Daemon, seconds: int, table: Table) -> Figures:
    """A while with the tables of a snapshot, and what there was to be seen meanwhile.

    ``way``: as the daemon says it; ``walked_min``, ``walked_max``: of ``table``, by a pass; ``full``: how many passes
    gave all rows. A pass sees the whole machine, so what others start meanwhile is in what it costs.
    """
    watch = streams.Watch(running.folders, table)
    begin_ns = clock.boottime_ns()
    figures = phase(running, seconds)
    watch.look()
    seen = watch.since(begin_ns)
    if not seen:
        raise RuntimeError(f"no reading of the table {table.name} within {seconds} s")
    with open(f"{running.folders.runtime}/sampler/{tables.PROCESS.name}{WAY_SUFFIX}", encoding="utf-8") as file:
        figures["way"] = file.read().strip()
    walked = [reading.walked for reading in seen]
    return figures | {
        "walked_min": min(walked),
        "walked_max": max(walked),
        "full": sum(reading.full for reading in seen),
    }


def _readings(watch: streams.Watch) -> Figures | None:
    """What a table's readings held; the first, which is full, does not count."""
    seen = watch.readings[1:]
    if not seen:
        return None
    return {
        "walked": seen[-1].walked,
        "lost": sum(reading.lost for reading in watch.readings),
        "records_per_tick": round(sum(reading.records for reading in seen) / len(seen), 1),
        "bytes_per_tick": round(sum(reading.frame_bytes for reading in seen) / len(seen)),
    }


def either(work: Callable[[], Figures]) -> Figures:
    """Give what some work found, or why there is nothing to be found here."""
    try:
        return work()
    except (Error, OSError, RuntimeError) as refusal:
        return {"missing": str(refusal)}
