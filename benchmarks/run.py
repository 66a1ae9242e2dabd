# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks one after the other, and put what they found into docs/performance.md.

Their figures go to docs/performance.json, each with the kind of machine; a program that does not run this
time keeps those it has there. The document's table is written anew from that file.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import event_storms, service, tasks
from benchmarks.measure import KEPT, ROOT, Figures, known

DOCUMENT = os.path.join(ROOT, "docs", "performance.md")
BEGIN, END = "<!-- measured: benchmarks/run.py writes what follows -->", "<!-- end of measured -->"

PROGRAMS: dict[str, tuple[str, ...]] = {
    "tick": (),
    "memory": (),
    "query": (),
    "starvation": (),
    "hangs": (),
    "merge": (),
    "capacity": (),
    "bus": (),
    "changes": (),
    "sensing": (),
    "input": (),
    "event_storms": (),
    "signals": (),
    "records": (),
    "tiers": (),
    "files": (),
    "top": (),
    "asking": (),
    "newest": (),
    "screen": (),
    "way": (),
    "names": (),
    "jitter": ("--stress",),
}
# Just to see that everything runs; the figures mean nothing.
QUICK: dict[str, tuple[str, ...]] = {
    "tick": ("--ticks", "3", "--tight-ticks", "10"),
    "memory": ("--seconds", "3"),
    "query": ("--series", "100", "--hours", "1", "--repeats", "1"),
    "starvation": ("--seconds", "3", "--hogs", "2"),
    "hangs": (),
    "merge": (),
    "records": (),
    "tiers": ("--hours", "1"),
    "files": ("--hours", "0.5", "--boots", "1", "--boot-hours", "0.2"),
    "top": ("--processes", "50", "--hours", "1", "--repeats", "1"),
    "asking": ("--processes", "20", "--hours", "1", "--days", "1", "--repeats", "1"),
    "newest": ("--repeats", "1"),
    "screen": ("--processes", "20", "--threads", "200", "--hours", "1", "--repeats", "1", "--live", "3"),
    "capacity": ("--quick",),
    "bus": ("--seconds", "2", "--calls", "20"),
    "changes": ("--changes", "2"),
    "sensing": ("--seconds", "5", "--plugs", "1"),
    "input": ("--seconds", "3", "--period", "1"),
    "event_storms": ("--seconds", "1", "--rest", "2"),
    "signals": ("--signals", "100"),
    "way": (),
    "names": ("--programs", "10"),
    "jitter": ("--ticks", "200"),
    "idle": ("--seconds", "3"),
    "cgroups": ("--seconds", "3", "--groups", "20"),
    "tasks": ("--quick",),
    "storm": ("--seconds", "10", "--rate", "50"),
    "thrashing": ("--group", "--seconds", "3"),
    "floods": ("--seconds", "1", "--connections", "5"),
    "days": ("--seconds", "3"),
    "probes": ("--seconds", "5"),
    "service": ("--seconds", "3"),
}
# Only when asked for: they are for root, and take an hour (days, idle, storm), half of one (tasks) or minutes.
# One takes the memory of all (thrashing): nothing else should run there.
# What probes finds stands in docs/metrics.md.
SELDOM: dict[str, tuple[str, ...]] = {
    "idle": (),
    "cgroups": (),
    "tasks": (),
    "storm": (),
    "thrashing": (),
    "floods": (),
    "days": (),
    "probes": (),
    "service": ("--seconds", "600", *(word for load in service.LOADS for word in ("--load", load))),
}


class Target(NamedTuple):
    """A row of the table. ``met``: whether the figure reaches what was aimed at."""

    program: str
    what: str
    reach: str
    spell: Callable[[Figures], str]
    met: Callable[[Figures], bool]


def _snapshot(load: str, reach_ms: float) -> Target:
    """A row about a load of tasks: what a snapshot costs us, and beside it the peers of the same run."""
    what = f"{tasks.LOADS[load].what}: CPU per tick, snapshot to ring"

    def spell(figures: Figures) -> str:
        parts = [tasks.spell(tasks.snapshot_ms(figures, load))]
        if (walked := tasks.walked(figures, load)) is not None:
            parts.append(f"{walked:.0f} walked")
        if (lost := tasks.lost(figures, load)) is not None:
            parts.append(f"{lost:.0f} lost")
        return f"{', '.join(parts)} (ms of peers: {tasks.beside(figures, load)})"

    def met(figures: Figures) -> bool:
        cost = tasks.snapshot_ms(figures, load)
        return cost is not None and cost <= reach_ms and tasks.lost(figures, load) == 0

    return Target("tasks", what, f"≤ {reach_ms:g} ms", spell, met)


def _ended(name: str, what: str) -> Target:
    """A row about programs that end at once."""

    def spell(figures: Figures) -> str:
        numbers = [tasks.spell(tasks.of(figures, name, "daemon", key), "", 0) for key in ("recorded", "made", "per_s")]
        cost = tasks.spell(tasks.of(figures, name, "daemon", "exits_ms"))
        said = f"{numbers[0]} of {numbers[1]} at {numbers[2]} a second, {cost}"
        others = tasks.known_to_peers(figures, name)
        return f"{said} (peers: {others})" if others else said

    def met(figures: Figures) -> bool:
        made, recorded, cost = (tasks.of(figures, name, "daemon", key) for key in ("made", "recorded", "exits_ms"))
        return made is not None and recorded == made and cost is not None and cost <= 1

    return Target("tasks", what, "all, ≤ 1 ms", spell, met)


def _service(load: str, what: str, reach_ms: float, reach_to_sadc: float) -> Target:
    """A row about the whole service: processor time a second, jobs included, and beside it sadc in the same run."""

    def spell(figures: Figures) -> str:
        one = figures.get(load)
        if one is None:
            return "not measured"
        jobs = f"{one['ms_by_part']['jobs']:.2f} of them jobs, in {one['seconds']} s"
        ratio = _ratio(one["to_sadc"], f"of {one['sadc_ms_per_s'] or 0:.2f} ms")
        return f"{one['ms_per_s']:.2f} ms, {jobs}; {ratio}"

    def met(figures: Figures) -> bool:
        one = figures.get(load)
        if one is None or one["ms_per_s"] > reach_ms or one["seconds"] < SERVICE_S:
            return False
        return one["to_sadc"] is not None and bool(one["to_sadc"] <= reach_to_sadc)

    return Target("service", what, f"≤ {reach_ms:g} ms, {reach_to_sadc:g} × sadc", spell, met)


def _parts(load: str, what: str, reach_ms: float) -> Target:
    """A row about the parts of the service by themselves: the median of ten seconds, of processor time a second."""

    def spell(figures: Figures) -> str:
        one = figures.get(load)
        if one is None:
            return "not measured"
        beside = f"{one['sadc_ms_per_s'] or 0:.2f} ms of sadc"
        return f"{one['median_ms_per_s']:.2f} ms, in {one['seconds']} s; beside it {beside}"

    def met(figures: Figures) -> bool:
        return load in figures and bool(figures[load]["median_ms_per_s"] <= reach_ms)

    return Target("service", what, f"≤ {reach_ms:g} ms", spell, met)


# Jobs are a part of what a service costs, and come every few minutes.
SERVICE_S = 590
OF_SERVICE = (
    _service("none", "**the service as installed**, idle: CPU of all parts a second", 1.8, 1.7),
    _service("groups", "… with 100 control groups, a tenth at work", 2.2, 2.1),
    _parts("processes", "… with 1,000 processes more, without jobs", 2.3),
    _parts("threads", "… with 10,000 threads more, and these recorded, without jobs", 5.5),
    _parts("user", "… as an ordinary user's, without BPF, idle, without jobs", 3.0),
    Target(
        "service",
        "… idle: wake-ups a second; memory (PSS) without the bus part, maps of BPF programs",
        "≤ 2.5; ≤ 20, 5 MB",
        lambda f: (
            f"{f['none']['wakeups_per_s']:.1f}; {f['none']['pss_mb']:.1f}, {f['none']['kernel_mb']:.1f} MB"
            if "none" in f
            else "not measured"
        ),
        lambda f: (
            "none" in f
            and f["none"]["wakeups_per_s"] <= 2.5
            and f["none"]["pss_mb"] <= 20
            and f["none"]["kernel_mb"] <= 5
        ),
    ),
)
OF_SCREEN = (
    Target(
        "screen",
        "sysmon: all is shown with 1,000 processes, live; at a moment of yesterday",
        "≤ 0.9 s, CPU 0.5 s; ≤ 1.3 s, CPU 0.8 s",
        lambda f: f"{f['live_s']} s, {f['live_cpu_s']} s; {f['moment_s']} s, {f['moment_cpu_s']} s",
        lambda f: (
            f["processes"] >= 1000
            and f["hours"] >= 24
            and (f["live_s"] <= 0.9 and f["live_cpu_s"] <= 0.5)
            and (f["moment_s"] <= 1.3 and f["moment_cpu_s"] <= 0.8)
        ),
    ),
    Target(
        "screen",
        "… the first frame, live, then; live, processes by the second",
        "before that; ≤ 4 % of a core",
        lambda f: f"{f['live_frame_s']}, {f['moment_frame_s']} s; {f['live_percent']} %",
        lambda f: (
            f["processes"] >= 1000
            and f["live_percent"] <= 4
            and f["live_frame_s"] < f["live_s"]
            and f["moment_frame_s"] < f["moment_s"]
        ),
    ),
    Target(
        "screen",
        "… its processes at the moment before or behind; a page further of 10,000 threads",
        "≤ 50 ms; ≤ 50 ms",
        lambda f: f"{f['step_s'] * 1000:.0f} ms; {f['page_s'] * 1000:.0f} ms",
        lambda f: f["processes"] >= 1000 and f["threads"] >= 10_000 and f["step_s"] <= 0.05 and f["page_s"] <= 0.05,
    ),
    Target(
        "screen",
        "… memory (PSS), live; after all of that yesterday",
        "≤ 90 MB",
        lambda f: f"{f['live_pss_mb']:.0f}; {f['moment_pss_mb']:.0f} MB",
        lambda f: f["processes"] >= 1000 and max(f["live_pss_mb"], f["moment_pss_mb"]) <= 90,
    ),
)
OF_TASKS = (
    _snapshot("procs_100", 0.4),
    _snapshot("procs_1000", 1.2),
    _snapshot("threads_10000", 8),
    _snapshot("procs_10000", 9),
    Target(
        "tasks",
        "… by /proc, without BPF, 1,000 processes",
        "≤ 5 ms",
        lambda f: tasks.spell(tasks.of(f, tasks.FALLBACK, "proc", "cpu_ms")),
        lambda f: (tasks.of(f, tasks.FALLBACK, "proc", "cpu_ms") or 1e9) <= 5,
    ),
    Target(
        "tasks",
        "system calls of the sampler a tick, all long tables: 100, 1,000, 10,000 processes",
        "no growth",
        lambda f: ", ".join(tasks.spell(calls, "", 1) for calls in tasks.calls(f)),
        tasks.calls_stay,
    ),
    _ended("forks", "1,000 `/bin/true` in a minute: on record, CPU a tick"),
    _ended("storm", "3,000 programs a second that end at once: on record, CPU a tick"),
    Target(
        "names",
        "without BPF: programs that lived ≥ 50 ms and have their name on record; wrong names",
        "≥ 90 %, 0",
        lambda f: f"{f['named']} of {f['lived']}, {f['wrong']}",
        lambda f: f["share"] >= 0.9 and not f["wrong"] and f["lived"] >= 200,
    ),
    Target(
        "records",
        "bytes a process and second on disk, quiet, busy",
        "≤ 0.3, 2.0",
        lambda f: ", ".join(f"{f[f'{kind}_bytes_per_process_sample']:.3f}" for kind in ("quiet", "busy")),
        lambda f: f["quiet_bytes_per_process_sample"] <= 0.3 and f["busy_bytes_per_process_sample"] <= 2.0,
    ),
    Target(
        "files",
        "files on disk after a day in one boot, all tables; of a further boot of two hours",
        "≤ 100; ≤ 20",
        lambda one: f"{one['files']}; {one['files_per_boot']:.0f}",
        lambda one: one["files"] <= 100 and one["files_per_boot"] <= 20,
    ),
    Target(
        "tiers",
        "a day of 1,000 busy processes rolled up into three tiers and merged: CPU, peak",
        "≤ 120 s, 120 MB",
        lambda f: f"{f['busy_roll_up_s_per_day'] + f['busy_merge_s_per_day']:.0f} s, {f['busy_peak_mb']:.0f} MB",
        lambda f: f["busy_roll_up_s_per_day"] + f["busy_merge_s_per_day"] <= 120 and f["busy_peak_mb"] <= 120,
    ),
    Target(
        "top",
        "top ten by CPU over a day of 1,000 processes, cold command line",
        "≤ 1.5 s",
        lambda f: f"{f['wall_ms'] / 1000:.2f} s, {f['peak_mb']:.0f} MB",
        lambda f: f["wall_ms"] <= 1500 and f["processes"] >= 1000 and f["hours"] >= 24,
    ),
    Target(
        "asking",
        "top ten by CPU over five minutes, cold command line",
        "≤ 204 ms",
        lambda f: f"{f['processes_cpu_ms']:.0f} ms of CPU",
        lambda f: f["processes_cpu_ms"] <= 204,
    ),
    Target(
        "newest",
        "one series of the last five minutes of a recorder that runs, cold command line",
        "≤ 120 ms",
        lambda f: f"{f['answer_cpu_ms']:.0f} ms of CPU, {f['answer_to_start']:.2f} × of that start",
        lambda f: f["answer_cpu_ms"] <= 120,
    ),
    Target(
        "newest",
        "… the top ten by CPU of 100 processes over these minutes",
        "≤ 150 ms",
        lambda f: f"{f['top_cpu_ms']:.0f} ms of CPU, {f['top_cpu_ms'] / f['start_cpu_ms']:.2f} × of that start",
        lambda f: f["top_cpu_ms"] <= 150,
    ),
    *OF_SCREEN,
    Target(
        "asking",
        "top ten of disks over a day, against one series of that day",
        "≤ 1.2 ×",
        lambda f: f"{f['disks_to_series']:.2f} × of {f['series_cpu_ms']:.0f} ms of CPU",
        lambda f: f["disks_to_series"] <= 1.2 and f["hours"] >= 24,
    ),
    Target(
        "asking",
        "a condition on a day of 100 control groups",
        "≤ 1 s",
        lambda f: f"{f['groups_cpu_ms'] / 1000:.2f} s of CPU",
        lambda f: f["groups_cpu_ms"] <= 1000 and f["hours"] >= 24,
    ),
    Target(
        "asking",
        "SQL: a day of `process` joined with `cpu`; a month of `cpu`",
        "≤ 3 s, 400 MB; 500 MB",
        lambda f: (
            f"{f['join_wall_s']:.1f} s, {f['join_peak_mb']:.0f} MB; {f['month_peak_mb']:.0f} MB"
            if "join_wall_s" in f
            else "not measured: no DuckDB"
        ),
        lambda f: (
            "join_wall_s" in f
            and f["join_wall_s"] <= 3
            and f["join_peak_mb"] <= 400
            and f["month_peak_mb"] < 500
            and f["days"] >= 30
        ),
    ),
    Target(
        "storm",
        "an hour under a storm of programs that end at once: what grew; ended ones on record",
        "nothing, all",
        lambda f: f"{', '.join(f['grew']) or 'nothing'}; {f['recorded']} of {f['made']}, {f['rate']} a second",
        lambda f: not f["grew"] and f["recorded"] == f["made"] and f["minutes"] >= 60,
    ),
)
TARGETS = (
    *OF_SERVICE,
    Target(
        "way",
        "modules that a value goes through from the kernel to CSV: of a wide table, of a process",
        "≤ 22, 26",
        lambda f: f"{f['wide']['modules']}, {f['long']['modules']}",
        lambda f: f["wide"]["modules"] <= 22 and f["long"]["modules"] <= 26,
    ),
    Target(
        "tick",
        "CPU per tick of the sampler, all probes",
        "≤ 0.6 ms",
        lambda f: f"{f['cpu_ms_per_tick']:.2f} ms for {f['values']} values",
        lambda f: f["cpu_ms_per_tick"] <= 0.6,
    ),
    Target(
        "tick",
        "… against `sadc -S XALL 1` in the same run",
        "≤ 0.5 ×",
        lambda f: _ratio(f["sampler_to_sadc"], f"of {f['sadc_ms_per_tick'] or 0:.2f} ms"),
        lambda f: f["sampler_to_sadc"] is not None and f["sampler_to_sadc"] <= 0.5,
    ),
    Target(
        "tick",
        "all parts together, jobs included, against sadc's",
        "≤ 1 ×",
        lambda f: _ratio(f["parts_to_sadc"], f"{f['parts_ms_per_s']:.2f} ms a second"),
        lambda f: f["parts_to_sadc"] is not None and f["parts_to_sadc"] <= 1,
    ),
    Target(
        "memory",
        "sampler, resident without its ring",
        "≤ 15 MB",
        lambda f: f"{f['sampler_rss_mb']:.1f} MB",
        lambda f: f["sampler_rss_mb"] <= 15,
    ),
    Target(
        "memory",
        "all parts at rest, proportional set size",
        "≤ 25 MB",
        lambda f: f"{f['pss_mb']:.1f} MB, and {f['kernel_mb']:.1f} MB of the kernel's",
        lambda f: f["pss_mb"] <= 25,
    ),
    Target(
        "jitter",
        "lateness under `stress-ng --cpu 4 --vm 2 --io 2`, SCHED_FIFO, 10 ms period, p99",
        "≤ 2 ms",
        lambda f: f"{f['p99_us'] / 1000:.2f} ms of {f['ticks']} wake-ups",
        lambda f: f["stress"] and f["real_time"] and f["p99_us"] <= 2000,
    ),
    Target(
        "jitter",
        "… against normal scheduling in the same run",
        "≤ 0.1 ×",
        lambda f: f"{f['p99_to_normal']:.3f} × of {f['loops']['normal_10ms']['p99_us'] / 1000:.1f} ms",
        lambda f: f["p99_to_normal"] <= 0.1,
    ),
    Target(
        "jitter",
        "at 1 Hz under the same load, 10 minutes: latest, missed",
        "≤ 50 ms, 0",
        lambda f: f"{f['max_us_1s'] / 1000:.1f} ms, {f['missed_1s']} of {f['ticks_1s']}",
        lambda f: f["stress"] and f["max_us_1s"] <= 50_000 and not f["missed_1s"] and f["ticks_1s"] >= 590,
    ),
    Target(
        "thrashing",
        "at 1 Hz while the machine's memory runs out, swap on zram and kills, 10 minutes: latest, ticks lost",
        "≤ 50 ms, 0",
        lambda f: (
            f"{f['max_us'] / 1000:.0f} ms (p99 {f['p99_us'] / 1000:.1f}), {f['lost']} of {f['ticks'] + f['lost']};"
            f" {f['kills']} kills"
        ),
        lambda f: (
            f["real_time"]
            and f["max_us"] <= 50_000
            and not f["lost"]
            and f["kills"]
            and f["seconds"] >= 600
            and f["place"] == "machine"
        ),
    ),
    Target(
        "thrashing",
        "… parts of the recorder that were killed; ticks lost that had been recorded; pages the sampler waited for",
        "0, 0, 0",
        lambda f: f"{sum(f['victims'].values())}, {f['dropped']}, {f['faults']['sampler']}",
        lambda f: not (f["victims"] or f["dropped"] or f["faults"]["sampler"]) and f["seconds"] >= 600,
    ),
    Target(
        "storage",
        "bytes per sample, whole file, laptop data",
        "≤ 0.44",
        lambda f: f"{f['bytes_per_sample']:.3f}",
        lambda f: f["bytes_per_sample"] <= 0.44,
    ),
    Target(
        "storage",
        "… with 8 significant bits, totals of counters exact",
        "≤ 0.30",
        lambda f: f"{f['bytes_per_sample_short']:.3f}",
        lambda f: f["bytes_per_sample_short"] <= 0.30,
    ),
    Target(
        "query",
        "an hour of 300 series: seal and flush, against starting Python with numpy and h5py",
        "≤ 1.5 ×",
        lambda f: f"{f['seal_flush_to_start']:.2f} × of {f['start_cpu_ms']:.0f} ms CPU",
        lambda f: f["seal_flush_to_start"] <= 1.5,
    ),
    Target(
        "query",
        "one series, a day → 1 min, cold command line, against that start",
        "≤ 1.6 ×",
        lambda f: f"{f['one_series_to_start']:.2f} × CPU, {f['one_series_wall_to_start']:.2f} × wall",
        lambda f: f["one_series_to_start"] <= 1.6,
    ),
    Target(
        "query",
        "100 series, a day at 1 s, to CSV",
        "≤ 4 s",
        lambda f: f"{f['hundred_series_wall_ms'] / 1000:.1f} s, {f['hundred_series_rss_mb']:.0f} MB",
        lambda f: f["hundred_series_wall_ms"] <= 4000 and f["hundred_series_rows"] >= 86_000,
    ),
    Target(
        "starvation",
        "jobs while 40 CPU hogs run: sealed before the ring runs out",
        "nothing lost",
        lambda f: f"{f['lost']} of {f['ticks'] + f['lost']} ticks lost, at most {f['unsealed_max']:.0%} not sealed",
        lambda f: f["ok"] and f["hogs"] >= 40,
    ),
    Target(
        "hangs",
        "a probe of the real-time lane waits for ever, spins, is held by the kernel: ticks that the others lose, once",
        "≤ 2, 2, 8",
        lambda f: ", ".join(str(f["lost"][way]) for way in ("waits", "spins", "is held")),
        lambda f: f["lost"]["waits"] <= 2 and f["lost"]["spins"] <= 2 and f["lost"]["is held"] <= 8,
    ),
    Target(
        "capacity",
        "bytes per point of a series, tiers 10 s, 1 min, 5 min, each with the time of its maximum",
        "≤ 2.0, 2.3, 2.7",
        lambda f: ", ".join(f"{f[f'bytes_per_point_{tier}']:.2f}" for tier in ("10s", "1min", "5min")),
        lambda f: (
            f["bytes_per_point_10s"] <= 2.0 and f["bytes_per_point_1min"] <= 2.3 and f["bytes_per_point_5min"] <= 2.7
        ),
    ),
    Target(
        "capacity",
        "days kept of 100 mixed series in 50 MB a tier: 1 s, 10 s, 1 min, 5 min",
        "≥ 14, 30, 150, 730",
        lambda f: ", ".join(f"{f[f'days_{tier}']:.0f}" for tier in ("1s", "10s", "1min", "5min")),
        lambda f: f["days_1s"] >= 14 and f["days_10s"] >= 30 and f["days_1min"] >= 150 and f["days_5min"] >= 730,
    ),
    Target(
        "capacity",
        "a day of 300 series rolled up into three tiers: CPU, peak",
        "≤ 0.6 s, 120 MB",
        lambda f: f"{f['roll_up_cpu_s']:.2f} s, {f['roll_up_peak_mb']:.0f} MB",
        lambda f: f["roll_up_cpu_s"] <= 0.6 and f["roll_up_peak_mb"] <= 120,
    ),
    Target(
        "merge",
        "eight segments of 360 series rolled up and merged into a file of 16 MiB: peak",
        "≤ 120 MB",
        lambda f: f"{f['merge_peak_mb']:.0f} MB, {f['merge_cpu_s']:.2f} s CPU",
        lambda f: f["merge_peak_mb"] <= 120,
    ),
    Target(
        "capacity",
        "two years of one series, a month of 100 series, at 5 min, cold command line",
        "≤ 200, 400 ms",
        lambda f: f"{f['two_years_ms']:.0f} ms, {f['month_ms']:.0f} ms",
        lambda f: f["two_years_ms"] <= 200 and f["month_ms"] <= 400,
    ),
    Target(
        "bus",
        "D-Bus: the latest values of 100 series, median at the client",
        "≤ 0.8 ms",
        lambda f: f"{f['latest_median_ms']:.2f} ms, p99 {f['latest_p99_ms']:.2f} ms",
        lambda f: f["latest_median_ms"] <= 0.8 and f["series"] >= 100,
    ),
    Target(
        "bus",
        "the bus part at rest: CPU a second, wake-ups",
        "≤ 0.2 ms",
        lambda f: f"{f['idle_ms_per_s']:.3f} ms, {f['idle_wakeups']} in {f['seconds']} s",
        lambda f: f["idle_ms_per_s"] <= 0.2,
    ),
    Target(
        "bus",
        "the bus part at rest, resident; all parts, proportional set size",
        "≤ 28, 48 MB",
        lambda f: f"{f['rss_mb']:.1f}, {f['pss_mb']:.1f} MB",
        lambda f: f["rss_mb"] <= 28 and f["pss_mb"] <= 48,
    ),
    Target(
        "bus",
        "lateness of a sampler at 10 ms, p99, during 500 calls a second, against that without",
        "≤ 1.1 ×",
        lambda f: f"{f['lateness_ratio']:.2f} × of {f['lateness_p99_us']} µs, {f['calls_per_s']:.0f} calls/s",
        lambda f: f["lateness_ratio"] <= 1.1 and f["calls_per_s"] >= 495,
    ),
    Target(
        "floods",
        "D-Bus: the status for an innocent while three strangers flood the bus part, p99 of the worst flood",
        "≤ 100 ms",
        lambda f: (
            f"{f['worst_p99_ms']:.0f} ms, an echo beside it {f['worst_echo_p99_ms']:.0f} ms; without a flood "
            f"{f['none_p99_ms']:.0f} ms; on new connections at most {f['new_max_ms']:.0f} ms"
        ),
        lambda f: f["worst_p99_ms"] <= 100 and f["connections"] >= 86,
    ),
    Target(
        "floods",
        "… of 60,000 calls that want no answer: the longest wait; ticks that all floods together cost",
        "0 ticks",
        lambda f: f"{f['unanswered_max_ms'] / 1000:.1f} s, {f['missed']}",
        lambda f: not f["missed"],
    ),
    Target(
        "changes",
        "a probe switched on while all runs: first row, ticks that another table lost",
        "≤ 2 s, 0",
        lambda f: f"{f['first_sample_max_s']:.2f} s at most, {f['lost']} in {f['changes']} changes",
        lambda f: f["first_sample_max_s"] <= 2 and not f["lost"],
    ),
    Target(
        "sensing",
        "a laptop's files (12 CPUs, 2 batteries, 20 values of hwmon, 6 disks): a tick of the real-time lane, CPU",
        "≤ 1.2 ms",
        lambda f: f"{f['realtime_ms_per_tick']:.2f} ms for {f['realtime_values']} values",
        lambda f: f["realtime_ms_per_tick"] <= 1.2,
    ),
    Target(
        "sensing",
        "… its background lane: CPU a second, wake-ups a second",
        "≤ 1 ms, 1",
        lambda f: (
            f"{f['background_ms_per_s']:.2f} ms for {f['background_values']} values, "
            f"{f['background_wakeups_per_s']:.2f} at {f['background_ticks_per_s']:.2f} ticks"
        ),
        lambda f: f["background_ms_per_s"] <= 1 and f["background_wakeups_per_s"] <= 1 and f["seconds"] >= 300,
    ),
    Target(
        "sensing",
        "a virtual machine's files: both lanes with what senses hardware, against without it",
        "≤ 0.15 ms, 0.5 MB",
        lambda f: f"{f['virtual_more_ms_per_tick']:+.3f} ms a second, {f['virtual_more_mb']:+.2f} MB",
        lambda f: f["virtual_more_ms_per_tick"] <= 0.15 and f["virtual_more_mb"] <= 0.5 and f["seconds"] >= 300,
    ),
    Target(
        "sensing",
        "a chip of hwmon plugged in, and pulled out (umockdev): from the event to its row, to its gap",
        "≤ 2, 2 s",
        lambda f: f["hot_plug"].get("missing") or f"{f['came_max_s']:.2f}, {f['went_max_s']:.2f} s at most",
        lambda f: "missing" not in f["hot_plug"] and f["came_max_s"] <= 2 and f["went_max_s"] <= 2,
    ),
    Target(
        "input",
        "a mouse of 1 kHz: way of the pointer on record, CPU of a core that counting takes, wake-ups at rest",
        "all, ≤ 1.5 %, 0",
        lambda f: (
            f"{f['way_recorded']} of {f['way']} in {f['reports']} reports, {f['percent']:.2f} %, "
            f"{f['wakeups_at_rest']} in {f['seconds']} s; the mouse is {f['by']}"
        ),
        lambda f: f["way_recorded"] == f["way"] and f["percent"] <= 1.5 and not f["wakeups_at_rest"],
    ),
    *(
        Target(
            "event_storms",
            f"{what}: on record, passed over, CPU of the background lane",
            "all or counted",
            partial(event_storms.said, storm=storm),
            partial(event_storms.agrees, storm=storm),
        )
        for storm, what in (
            ("devices", "10,000 events of devices in 5 s"),
            ("messages", "10,000 messages of the kernel a second for 5 s"),
            ("units", "1,000 changes of units a second for 5 s, from a bus"),
        )
    ),
    Target(
        "event_storms",
        "… ticks missed in all of that: real-time lane, background lane",
        "0, 0",
        lambda f: f"{f['missed']['sampler']}, {f['missed']['background']}; latest {f['lateness_max_ms']:.1f} ms",
        lambda f: not any(f["missed"].values()) and f["seconds"] >= event_storms.SECONDS,
    ),
    Target(
        "event_storms",
        "… and nothing happens: what the tables that only tell of events cost the background lane more: CPU a second,"
        " wake-ups, memory without those of D-Bus; with them",
        "≤ 0.05 ms, 0, 1 MB",
        lambda f: (
            f"{f['more_ms_per_s']:+.3f} ms, {f['more_wakeups_per_s']:+.2f}, {f['more_mb_without_dbus']:+.2f} MB;"
            f" {f['more_mb']:+.2f} MB"
        ),
        lambda f: f["more_ms_per_s"] <= 0.05 and f["more_wakeups_per_s"] <= 0.05 and f["more_mb_without_dbus"] <= 1,
    ),
    Target(
        "signals",
        "100,000 signals a second, whose senders are noted: BPF, of those that sigwait(3) takes, handled, ignored",
        "≤ 2 % of a core",
        lambda f: ", ".join(f"{f['percent'][name]:.1f}" for name in ("awaited", "handled", "ignored")) + " %",
        lambda f: max(f["percent"].values()) <= 2,
    ),
    Target(
        "cgroups",
        "1,000 cgroups, a tenth at work: CPU, memory, pressure, tasks, devices of each, a tick of the lane",
        "≤ 12 ms",
        lambda f: f"{f['cpu_ms_per_tick']:.1f} ms",
        lambda f: f["groups"] >= 1000 and f["cpu_ms_per_tick"] <= 12,
    ),
    Target(
        "cgroups",
        "… none at work, against only reading five files of each in the same run",
        "≤ 12 ms, 1 ×",
        lambda f: f"{f['quiet_ms_per_tick']:.1f} ms, {f['quiet_to_floor']:.2f} × of {f['five_files_floor_ms']:.1f} ms",
        lambda f: f["groups"] >= 1000 and f["quiet_ms_per_tick"] <= 12 and f["quiet_to_floor"] <= 1,
    ),
    Target(
        "cgroups",
        "… a second, for 100 of them: all tables that are on by default, at their intervals",
        "≤ 0.4 ms",
        lambda f: f"{f['default_ms_per_s_per_100']:.2f} ms",
        lambda f: f["groups"] >= 1000 and f["default_ms_per_s_per_100"] <= 0.4,
    ),
    Target(
        "cgroups",
        "100 cgroups, a tenth at work: bytes of rows in a file, every 5 s against every second",
        "≤ 0.5 ×",
        lambda f: f"{f['kept_share']:.2f} × of {f['kept_bytes']['1s'] / f['kept_seconds']:.0f} B a second",
        lambda f: f["kept_share"] <= 0.5 and f["kept_seconds"] >= 600,
    ),
    Target(
        "days",
        "days that rows of processes and wait states go back, all processes at work: 100, 1,000",
        "≥ 7, 3",
        lambda f: ", ".join(f"{f[tasks]['days'] or 0:.0f}" for tasks in ("100", "1000")),
        lambda f: (f["100"]["days"] or 0) >= 7 and (f["1000"]["days"] or 0) >= 3,
    ),
    Target(
        "idle",
        "an hour with a disk that nobody uses: written to it, and by a part to any; seconds kept",
        "0 B, 0 B, all",
        lambda f: f"{f['written_bytes']} B, {f['part_written_bytes']} B, {f['ticks']} of {f['seconds']}",
        lambda f: not f["written_bytes"] and not f["part_written_bytes"] and f["ticks"] >= f["seconds"] >= 3600,
    ),
    Target(
        "idle",
        "RAM for an hour of 300 series beyond the ring",
        "≤ 0.6 MB",
        lambda f: f"{f['ram_bytes'] / 1e6:.2f} MB in {f['ram_segments']} segments",
        lambda f: f["ram_series"] >= 300 and f["ram_bytes"] <= 600_000,
    ),
    *OF_TASKS,
)


def _ratio(ratio: float | None, what: str) -> str:
    return "sysstat is not installed" if ratio is None else f"{ratio:.2f} × ({what})"


def machine() -> str:
    """The kind of machine this is, without its name."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        virtual = "hypervisor" in file.read()
    kind = f"{os.cpu_count()}-core {'virtual ' if virtual else ''}machine, {platform.machine()}"
    kernel = os.uname().release.partition("-")[0]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "h5py"))
    return f"{kind}, Linux {kernel}, Python {platform.python_version()}, {libraries}"


def put(path: str, content: str) -> None:
    """Write a file, whole."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def measured(program: str, extra: tuple[str, ...]) -> Figures:
    """Run one program and take its JSON object.

    :raises CalledProcessError: where it fails.
    """
    path = os.path.join(ROOT, "benchmarks", f"{program}.py")
    done = subprocess.run([sys.executable, path, "--json", *extra], stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def table(measured: dict[str, Figures]) -> str:
    """The table of the document."""
    lines = ["| what | reach | measured | | with |", "|---|---|---|---|---|"]
    for target in TARGETS:
        if target.program not in measured:
            continue  # It has a row once it was measured,
        figures = measured[target.program]["figures"]
        try:
            said, met = target.spell(figures), "reached" if target.met(figures) else "**missed**"
        except KeyError:
            continue  # by the program as it is now.
        lines.append(f"| {target.what} | {target.reach} | {said} | {met} | `benchmarks/{target.program}.py` |")
    kinds = sorted({one["machine"] for one in measured.values()})
    return "\n".join([*lines, "", *(f"Measured on a {kind}." for kind in kinds)])


def document(content: str, measured: dict[str, Figures]) -> str:
    """The document with its table written anew.

    :raises ValueError: where the marks are gone between which it stands.
    """
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT}: expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{table(measured)}\n\n{END}{after}"


def main() -> int:
    """Run the chosen programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    known_programs = {**PROGRAMS, **SELDOM, "storage": ()}
    parser.add_argument(
        "programs",
        nargs="*",
        metavar="PROGRAM",
        help=f"{', '.join(known_programs)}; default all, without {', '.join(SELDOM)}",
    )
    parser.add_argument(
        "--data", metavar="FILE.npz", help="recorded data for storage, which is left out without, capacity and idle"
    )
    parser.add_argument("--quick", action="store_true", help="tiny runs, whose figures mean nothing: see --output")
    parser.add_argument("--output", metavar="FILE.json", help="write the figures there and leave the document alone")
    options = parser.parse_args()
    chosen = options.programs or [*PROGRAMS, *(("storage",) if options.data else ())]
    for name in chosen:
        if name not in known_programs or (name == "storage" and not options.data):
            parser.error(f"{name}: expected {', '.join([*PROGRAMS, *SELDOM])}, and with --data storage")
    if options.quick and not options.output:
        parser.error("--quick: only with --output")
    arguments = {**(QUICK if options.quick else {**PROGRAMS, **SELDOM}), "storage": (options.data or "",)}
    if options.data:
        for name in ("capacity", "idle"):
            arguments[name] = (*arguments[name], "--data", options.data)
    output = options.output or KEPT
    known_figures = known(output)
    for name in chosen:
        print(f"== {name} {' '.join(arguments[name])}".rstrip(), flush=True)
        known_figures[name] = {"machine": machine(), "figures": measured(name, arguments[name])}
        put(output, json.dumps(known_figures, indent=1, sort_keys=True) + "\n")
    if not options.output:
        with open(DOCUMENT, encoding="utf-8") as file:
            content = file.read()
        put(DOCUMENT, document(content, known_figures))
    print(table(known_figures))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError, subprocess.CalledProcessError) as failed:
        sys.exit(f"benchmarks: {failed}")
