# SPDX-License-Identifier: Apache-2.0
"""What a tick costs: processor time of the running sampler, of each probe, and of everything around it.

The daemon runs as it would anywhere, once a second, with all its probes but those of tasks, which ``tasks.py``
measures and sadc does not read. Beside it, each at another part of the second, run the real ``sadc -S XALL``
where sysstat is installed, and two loops in plain Python that show the floor: one only reads the files that the
probes read, one also turns every number in them into an int.

All are measured over the same seconds, by the processor clock of each process: caches and clock frequency
are those of a machine that does something else in between. A tight loop is measured as well, for comparison.

The archiver's jobs are too rare for those seconds: an hour of them is carried out on rings filled with what
was just recorded, and its cost is spread over the hour.
"""

import gc
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, passes
from benchmarks.measure import SECOND_NS, Figures
from sysmond.base.model import Lane
from sysmond.machine.folders import Folders
from sysmond.plan import plan as plans
from sysmond.plan.settings import Settings
from sysmond.probe import Host
from sysmond.sampler.lane import Sampler

TICKS = 60
TIGHT_TICKS = 1000
# What has to happen before counting begins: imports, the first tick, a look at every file.
WARM_UP_S = 4
# Each process has its own part of the second; the sampler's ticks lie at 0.
SADC_PHASE, FLOOR_PHASE, PARSE_PHASE, READING_PHASE = 0.2, 0.4, 0.6, 0.8
SADC = ("/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc", "/usr/lib/sa/sadc", "/usr/libexec/sysstat/sadc")


class WatchedHost(Host):
    """Remembers which files the probes ask for."""

    def __init__(self) -> None:
        """Have seen none yet."""
        super().__init__()
        self.paths: dict[str, None] = {}

    def read(self, path: str) -> bytes:
        """Read a file and remember it."""
        content = super().read(path)
        self.paths[path] = None
        return content


def files_read(plan: plans.Plan) -> list[str]:
    """The files that the probes of the real-time lane read on a tick."""
    host = WatchedHost()
    probes = [probe for probe in plan.probes if probe.lane is Lane.REALTIME and probe.enabled]
    for planned in probes:
        for probe in plans.offered_probes(plans.import_plugin(planned.plugin)):
            if probe.table.name == planned.table:
                try:
                    list(probe.read(host))
                except OSError:
                    continue  # This machine has no such source.
    host.close()
    return list(host.paths)


def read_files(descriptors: list[int]) -> list[bytes]:
    """The floor: one pread(2) a file, as large as the sampler's."""
    return [os.pread(descriptor, 65536, 0) for descriptor in descriptors]


def read_numbers(descriptors: list[int]) -> list[list[int]]:
    """The floor with parsing: every number an int, none of them understood."""
    return [[int(word) for word in content.split() if word.isdigit()] for content in read_files(descriptors)]


def every_second(work: Callable[[list[int]], object], paths: list[str], phase: float) -> None:
    """Do it once a second until killed."""
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    gc.freeze()
    gc.disable()
    while True:
        measure.sleep_until_phase(phase)
        work(descriptors)


def tight(work: Callable[[list[int]], object], paths: list[str], ticks: int) -> float:
    """Processor time of doing it again and again, in ns each."""
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    gc.disable()
    work(descriptors)
    begin_ns = time.process_time_ns()
    for _ in range(ticks):
        work(descriptors)
    return (time.process_time_ns() - begin_ns) / ticks


def tight_sampler(plan: plans.Plan, ticks: int) -> float:
    """Processor time of the sampler's own tick, again and again, in ns each."""
    with measure.workplace() as folders:
        sampler = Sampler(Settings(folders), plan, Lane.REALTIME, lambda _: None)
        gc.disable()
        for tick in range(1, 11):
            sampler.tick(tick * SECOND_NS)
        begin_ns = time.process_time_ns()
        for tick in range(11, 11 + ticks):
            sampler.tick(tick * SECOND_NS)
        spent_ns = time.process_time_ns() - begin_ns
        sampler.close()
    return spent_ns / ticks


def last_seconds(ring: str) -> Figures:
    """From the sampler's ring: values a tick, and the time of each probe, in ns a tick."""
    from sysmond.ring.snapshot import snapshot  # noqa: PLC0415  as above
    from sysmond.store.of_ring import of_snapshot  # noqa: PLC0415  numpy must not be in the children forked before

    values = 0
    durations: dict[str, float] = {}
    for block in of_snapshot(snapshot(ring)).blocks:
        if block.strand.interval_ns == SECOND_NS:
            values = len(block.keys)
        for row, key in enumerate(block.keys):
            if key.table == "self" and key.metric == "duration" and key.instance.startswith("probe:"):
                series = block.read([row])[0]
                series = series[series >= 0]
                probe = key.instance.removeprefix("probe:")
                durations[probe] = float(series[-1] - series[0]) / max(1, len(series) - 1)
    return {"values": values, "by_probe": durations}


def sadc_program() -> str | None:
    """The path of sadc, which distributions keep in different places; None where it is not installed."""
    return next((path for path in SADC if os.access(path, os.X_OK)), shutil.which("sadc"))


def side_by_side(ticks: int) -> tuple[Figures, Figures]:
    """Run everything once a second; give processor time by process, in ns a tick, and the cost of the jobs."""
    sadc = sadc_program()
    limit_s = ticks + 60
    with ExitStack() as running:
        daemon = running.enter_context(measure.daemon(limit_s, passes.configured(())))
        ring = daemon.wait_for_ring()
        paths = files_read(plans.read(f"{daemon.folders.runtime}/plan.json"))
        pids = daemon.pids()
        for name, work, phase in (
            ("floor", read_files, FLOOR_PHASE),
            ("floor_parse", read_numbers, PARSE_PHASE),
        ):
            pids[name] = running.enter_context(measure.forked(partial(every_second, work, paths, phase), limit_s))
        if sadc:
            measure.sleep_until_phase(SADC_PHASE)
            output = f"{daemon.folders.runtime}/sadc.bin"
            collecting = measure.started([sadc, "-S", "XALL", "1", str(limit_s), output])
            pids["sadc"] = running.enter_context(collecting).pid
        time.sleep(WARM_UP_S)
        spent, seconds = measured_over(pids, ticks)
        figures = last_seconds(ring)
        figures["files"] = len(paths)
        figures["spent"] = {name: ns / seconds for name, ns in spent.items()}
        figures["ticks"] = round(seconds)
        jobs = hour_of_jobs(daemon.folders)
    return figures, jobs


def measured_over(pids: dict[str, int], ticks: int) -> tuple[dict[str, int], float]:
    """Processor time of each process over so many seconds, and how many they were."""
    begin_ns = measure.sleep_until_phase(READING_PHASE)
    before = {name: measure.cpu_ns(pid) for name, pid in pids.items()}
    time.sleep(max(0.0, ticks - 0.5))
    end_ns = measure.sleep_until_phase(READING_PHASE)
    after = {name: measure.cpu_ns(pid) for name, pid in pids.items()}
    return {name: after[name] - before[name] for name in pids}, (end_ns - begin_ns) / SECOND_NS


def hour_of_jobs(recorded: Folders) -> Figures:
    """Do an hour's jobs of the archiver, at its usual intervals, on rings filled with what was just recorded."""
    from benchmarks.replay import Replay  # noqa: PLC0415  it imports numpy
    from sysmond.archiver.main import FLUSHES_PER_MERGE  # noqa: PLC0415  with it, the daemon's parts

    settings = plans.ArchiverSettings()
    hour_s = max(settings.flush_interval_s, settings.seal_interval_s) * FLUSHES_PER_MERGE
    rounds = round(hour_s / settings.seal_interval_s)
    seals, flushes = [], []
    with measure.workplace() as folders:
        replay = Replay(recorded, folders)
        for _ in range(rounds):
            replay.advance(round(settings.seal_interval_s))
            seals.append(measure.job_cpu_ns("seal", folders))
            flushes.append(measure.job_cpu_ns("flush", folders))
        replay.close()
        merge_ns = measure.job_cpu_ns("merge", folders)
    return {
        "seal_cpu_ms": measure.ms(measure.median(seals), 1),
        "flush_cpu_ms": measure.ms(measure.median(flushes), 1),
        "merge_cpu_ms": measure.ms(merge_ns, 1),
        "jobs_ms_per_s": measure.ms((sum(seals) + sum(flushes) + merge_ns) / hour_s),
    }


def measured(ticks: int, tight_ticks: int) -> Figures:
    """Measure everything."""
    plan = plans.builtin()
    plan = plan._replace(probes=tuple(probe for probe in plan.probes if probe.table not in passes.LONG))
    paths = files_read(plan)
    loops: dict[str, Callable[[], float]] = {
        "tight_cpu_ms_per_tick": partial(tight_sampler, plan, tight_ticks),
        "tight_floor_ms_per_tick": partial(tight, read_files, paths, tight_ticks),
        "tight_floor_parse_ms_per_tick": partial(tight, read_numbers, paths, tight_ticks),
    }
    tight_figures = {name: measure.ms(measure.in_child(loop, 120)) for name, loop in loops.items()}
    live, jobs = side_by_side(ticks)
    spent: dict[str, Any] = {name: measure.ms(ns) for name, ns in live["spent"].items()}
    parts = {part: spent[part] for part in ("daemon", "sampler", "background", "archiver")}
    parts["jobs"] = jobs["jobs_ms_per_s"]
    sadc = spent.get("sadc")
    all_parts = round(sum(parts.values()), 4)
    return {
        "cpu_ms_per_tick": spent["sampler"],
        "floor_ms_per_tick": spent["floor"],
        "floor_parse_ms_per_tick": spent["floor_parse"],
        "sadc_ms_per_tick": sadc,
        "values": live["values"],
        "files": live["files"],
        "ticks": live["ticks"],
        "sampler_to_sadc": None if sadc is None else round(spent["sampler"] / sadc, 3),
        "parts_to_sadc": None if sadc is None else round(all_parts / sadc, 3),
        "parts_ms_per_s": all_parts,
        "by_part": parts,
        "by_probe": {name: measure.ms(ns) for name, ns in sorted(live["by_probe"].items())},
        **jobs,
        **tight_figures,
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""

    def cost(name: str) -> str:
        return "not installed" if figures[name] is None else f"{figures[name]:.3f} ms"

    lines = [
        ("one tick of the sampler, once a second", f"{cost('cpu_ms_per_tick')} of CPU, {figures['values']} values"),
        *((f"  {name}", f"{ms:.3f} ms") for name, ms in sorted(figures["by_probe"].items(), key=lambda item: -item[1])),
        (f"only reading its {figures['files']} files", cost("floor_ms_per_tick")),
        ("reading, and every number an int", cost("floor_parse_ms_per_tick")),
        ("sadc -S XALL 1", cost("sadc_ms_per_tick")),
        ("all parts, a second", cost("parts_ms_per_s")),
        *((f"  {name}", f"{ms:.3f} ms") for name, ms in figures["by_part"].items()),
        ("sealing, each time", f"{figures['seal_cpu_ms']:.0f} ms"),
        ("flushing, each time", f"{figures['flush_cpu_ms']:.0f} ms"),
        ("merging, each time", f"{figures['merge_cpu_ms']:.0f} ms"),
        ("in a tight loop: a tick", cost("tight_cpu_ms_per_tick")),
        ("  only reading", cost("tight_floor_ms_per_tick")),
        ("  reading, and every number an int", cost("tight_floor_parse_ms_per_tick")),
    ]
    if figures["sadc_ms_per_tick"] is not None:
        lines.append(("sampler : sadc", f"{figures['sampler_to_sadc']:.2f}"))
        lines.append(("all parts : sadc", f"{figures['parts_to_sadc']:.2f}"))
    return lines


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("--ticks", type=measure.at_least_one, default=TICKS, help=f"default {TICKS}")
    parser.add_argument("--tight-ticks", type=measure.at_least_one, default=TIGHT_TICKS, help=f"default {TIGHT_TICKS}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.ticks, options.tight_ticks), rows, as_json=options.json)
