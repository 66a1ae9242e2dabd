# SPDX-License-Identifier: Apache-2.0
"""What the default service costs: all tables that are on by default, BPF, the bus part at rest, and the jobs.

As root, on a bus of its own and in folders of its own, for a minute without any option; then it says what stands in
docs/performance.json beside it, so that whoever adds a source sees its price in less than two minutes. The real
``sadc -S XALL 1`` runs over the same seconds: it knows no processes, but it tells how fast the machine is just now.

Processor time is that of each process, in ms a second. What parts start and wait for (jobs, SMART) is counted when it
has ended, in steps of 10 ms; a minute is too short for jobs, so one is ordered after it: seal and flush what there is.
BPF programs that run when something happens are not on the clock of any part: the kernel counts their time while it is
asked to (``kernel.bpf_stats_enabled``), over some seconds after all else. Programs that a part calls are on its own.
"""

import ctypes
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import bus, cgroups, loads, measure, memory, names, trees
from benchmarks.loads import Load
from benchmarks.measure import SECOND_NS, Daemon, Figures
from benchmarks.tick import SADC_PHASE, sadc_program
from sysmond.machine import control
from sysmond.tasks.bpf import pins

SECONDS = 60
# Imports, the first reading of all tables, and what the start costs once.
SETTLE_S = 10
WINDOW_S = 10
BPF_S = 10
JOB_S = 60.0
# What the parts cost by themselves, for which that is long enough.
TASKS_S = 60
GROUPS = 100
LOADS: dict[str, Load | None] = {
    "none": None,
    "user": None,
    "groups": None,
    "processes": Load("1,000 processes", ("procs", "1000"), 1000),
    "threads": Load("10,000 threads, recorded", ("threads", "10", "1000"), 10_000, threads=True),
}
# Jobs are not what these are about.
_WITHOUT_JOBS = ("user", "processes", "threads")
_THREADS = "probes: {process: {options: {threads: true}}}\n"
# These a part calls, on its own clock: the others run when something happens, on the clock of whoever does it.
_CALLED = ("snapshot", "iterate", "states")
_STATISTICS = "/proc/sys/kernel/bpf_stats_enabled"
# bpf(2): commands and the layout of bpf_prog_info up to the name, from linux/bpf.h.
_NEXT_PROGRAM, _PROGRAM = 11, 13
_ATTRIBUTES_BYTES = 128
_INFO = struct.Struct("=II8sIIQQQIIQ16s")


# --- BPF programs


def _bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    return pins.call(command, buffer, "a BPF program"), buffer.raw


def programs() -> dict[int, tuple[str, int, int]]:
    """Of each BPF program of this machine, by its number: its name, how long it ran in ns, how often."""
    found: dict[int, tuple[str, int, int]] = {}
    number = 0
    while True:
        try:
            _, answer = _bpf(_NEXT_PROGRAM, struct.pack("=II", number, 0))
        except FileNotFoundError:
            return found
        number = struct.unpack_from("=II", answer)[1]
        try:
            descriptor, _ = _bpf(_PROGRAM, struct.pack("=I", number))
        except FileNotFoundError:
            continue
        try:
            info = ctypes.create_string_buffer(_INFO.size)
            _bpf(pins.BPF_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, _INFO.size, ctypes.addressof(info)))
            name = _INFO.unpack(info.raw)[-1].rstrip(b"\0").decode("ascii", "replace")
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file if ":" in line)
            found[number] = name, int(fields.get("run_time_ns", 0)), int(fields.get("run_cnt", 0))
        finally:
            os.close(descriptor)


@contextmanager
def counted_programs() -> Iterator[None]:
    """Have the kernel count how long BPF programs run; that costs each run a few dozen nanoseconds."""
    with open(_STATISTICS, encoding="ascii") as file:
        before = file.read()
    with open(_STATISTICS, "w", encoding="ascii") as file:
        file.write("1")
    try:
        yield
    finally:
        with open(_STATISTICS, "w", encoding="ascii") as file:
            file.write(before)


def in_others(known: set[int], seconds: int) -> Figures:
    """How long programs that were not ``known`` run a second when something happens: in ms, and how often."""
    with counted_programs():
        before = programs()
        time.sleep(seconds)
        after = programs()
    runs: dict[str, list[float]] = {}
    for number, (name, spent_ns, count) in after.items():
        if number in known or number not in before or name in _CALLED:
            continue
        total = runs.setdefault(name, [0.0, 0.0])
        total[0] += (spent_ns - before[number][1]) / 1e6 / seconds
        total[1] += (count - before[number][2]) / seconds
    return {
        "bpf_ms_per_s": round(sum(spent_ms for spent_ms, _ in runs.values()), 4),
        "bpf_runs_per_s": round(sum(count for _, count in runs.values()), 1),
        "bpf_by_program": {name: round(spent_ms, 4) for name, (spent_ms, _) in sorted(runs.items())},
    }


# --- The service


@contextmanager
def under(load: str, limit_s: int) -> Iterator[None]:
    """Have a load stand there."""
    with ExitStack() as stack:
        if load == "groups":
            made = stack.enter_context(cgroups.made(GROUPS))
            stack.enter_context(cgroups.busy(made[:: cgroups.BUSY_SHARE], limit_s))
        elif (tasks := LOADS[load]) is not None:
            program = stack.enter_context(loads.compiled())
            stack.enter_context(loads.standing(tasks.command(program)))
        yield


@contextmanager
def service(load: str, limit_s: int) -> Iterator[Daemon]:
    """Run the service: every part, all that is on by default, on a bus where nobody calls; what its load is about, too.

    For ``user`` it has no privileges: no BPF, and of others' processes what anybody may see.
    """
    tasks = LOADS[load]
    # Pressure of the machine would have threads read ten times a second, and the daemon count its ticks up.
    config = "incidents: {bursts: none}\n" + (_THREADS if tasks is not None and tasks.threads else "")
    prefix = names.without(names.ALL) if load == "user" else ()
    with bus.a_bus() as address, measure.daemon(limit_s, config, "", ("--bus", address), prefix) as daemon:
        daemon.wait_for_ring()
        measure.in_child(lambda: bus.as_client(address, _nothing), limit_s)
        yield daemon


async def _nothing(_connection: object) -> None:
    """Only wait until the bus part answers."""


def windows(pids: dict[str, int], seconds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Processor time of processes in each window of ten seconds, in ms a second; of children in ns, over all."""
    parents = [pids["daemon"], pids["archiver"]]
    children = [measure.children_cpu_ns(pid) for pid in parents]
    spent: dict[str, list[float]] = {name: [] for name in pids}
    begin_ns = measure.sleep_until_phase(0.8)
    before = {name: measure.cpu_ns(pid) for name, pid in pids.items()}
    for _ in range(max(1, seconds // WINDOW_S)):
        time.sleep(min(seconds, WINDOW_S) - 0.5)
        end_ns = measure.sleep_until_phase(0.8)
        for name, pid in pids.items():
            now_ns = measure.cpu_ns(pid)
            spent[name].append((now_ns - before[name]) / 1e6 / ((end_ns - begin_ns) / SECOND_NS))
            before[name] = now_ns
        begin_ns = end_ns
    ended = [measure.children_cpu_ns(pid) - child for pid, child in zip(parents, children, strict=True)]
    return spent, {"others": ended[0], "jobs": ended[1]}


def one_job(daemon: Daemon) -> float:
    """Processor time of sealing and flushing what there is, all tables, and of the merge that it gives rise to, in ms.

    :raises RuntimeError: where the archiver refuses.
    """
    pid = daemon.pids()["archiver"]
    before_ns = measure.children_cpu_ns(pid)
    answer = control.ask(f"{daemon.folders.runtime}/archiver", {"do": "flush", "uid": os.geteuid()}, JOB_S)
    if "error" in answer:
        raise RuntimeError(f"flush: {answer['error']}")
    limit_s = time.monotonic() + JOB_S
    while time.monotonic() < limit_s and _has_child(pid):  # It is counted when it has ended.
        time.sleep(0.1)
    return measure.ms(measure.children_cpu_ns(pid) - before_ns, 1)


def _has_child(pid: int) -> bool:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return bool(file.read())


def measured_under(load: str, seconds: int) -> Figures:
    """The service under a load, beside sadc."""
    limit_s = seconds + 240
    sadc = sadc_program()
    known = set(programs())
    with ExitStack() as stack:
        stack.enter_context(under(load, limit_s))
        daemon = stack.enter_context(service(load, limit_s))
        pids = {**daemon.pids(), "bus": bus.bus_pid(daemon)}
        time.sleep(SETTLE_S)
        begun_ns = trees.spent_ns(pids.values())
        parts = list(pids)
        if sadc:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sysmond-sadc-"))
            measure.sleep_until_phase(SADC_PHASE)
            collecting = measure.started([sadc, "-S", "XALL", "1", str(limit_s), f"{folder}/sadc.bin"])
            pids["sadc"] = stack.enter_context(collecting).pid
            time.sleep(2)
        woken = {part: measure.wakeups(pids[part]) for part in parts}
        begin_s = time.monotonic()
        spent, ended_ns = windows(pids, seconds)
        took_s = time.monotonic() - begin_s
        woken_per_s = {part: round((measure.wakeups(pids[part]) - woken[part]) / took_s, 2) for part in parts}
        shares = {part: round(memory.pss_bytes(pids[part]) / 1e6, 2) for part in parts}
        in_kernel = memory.kernel_bytes(daemon.folders.runtime)
        figures = {"job_cpu_ms": one_job(daemon), **in_others(known, min(seconds, BPF_S))}
    means = {name: round(sum(each) / len(each), 4) for name, each in spent.items()}
    sadc_ms = means.pop("sadc", None)
    means |= {name: round(ns / 1e6 / took_s, 4) for name, ns in ended_ns.items()}
    total_ms = sum(means.values())
    return {
        "seconds": round(took_s),
        "ms_per_s": round(total_ms, 3),
        "median_ms_per_s": round(sum(measure.median(spent[part]) for part in parts), 3),
        "ms_by_part": means,
        "sadc_ms_per_s": sadc_ms,
        "to_sadc": None if sadc_ms is None else round(total_ms / sadc_ms, 3),
        "wakeups_per_s": round(sum(woken_per_s.values()), 2),
        "wakeups_by_part": woken_per_s,
        "pss_mb": round(sum(shares.values()) - shares["bus"], 2),
        "pss_mb_by_part": shares,
        "kernel_mb": round(in_kernel / 1e6, 2),
        "start_cpu_ms": measure.ms(begun_ns, 0),
        **figures,
    }


def measured(chosen: Sequence[str], seconds: int) -> Figures:
    """Measure the service under each load that was chosen.

    :raises RuntimeError: where somebody else than root asks.
    """
    if os.geteuid():
        raise RuntimeError("the service is root's: expected root")
    with measure.daemon(1) as first:
        first.process.wait(60)  # Whatever had to be compiled is by now.
    lengths_s = {load: min(seconds, TASKS_S) if load in _WITHOUT_JOBS else seconds for load in chosen}
    return {load: measured_under(load, length_s) for load, length_s in lengths_s.items()}


# --- For people

LINES = (
    ("ms_per_s", "all parts and what they start, CPU a second", "ms"),
    ("median_ms_per_s", "  without what they start, median of ten seconds", "ms"),
    ("sadc_ms_per_s", "sadc over the same seconds", "ms"),
    ("to_sadc", "all parts : sadc", "×"),
    ("wakeups_per_s", "wake-ups a second", ""),
    ("pss_mb", "memory of all parts without the bus part (PSS)", "MB"),
    ("kernel_mb", "maps of BPF programs in the kernel", "MB"),
    ("bpf_ms_per_s", "BPF programs in others' time, a second", "ms"),
    ("job_cpu_ms", "sealing, flushing and merging what there is, once", "ms"),
    ("start_cpu_ms", "all parts until ten seconds after the start", "ms"),
)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people, each beside what the document has."""
    lines: list[tuple[str, str]] = []
    standing = measure.known().get("service", {}).get("figures", {})
    for load, now in figures.items():
        then = standing.get(load, {})
        lines.append((f"-- {said(load)}, {now['seconds']} s", f"in docs/performance.json, {then.get('seconds', 0)} s"))
        lines += [(what, _beside(now.get(name), then.get(name), unit)) for name, what, unit in LINES]
        for part, ms in now["ms_by_part"].items():
            lines.append((f"  {part}", _beside(ms, then.get("ms_by_part", {}).get(part), "ms")))
    return lines


def said(load: str) -> str:
    """A load in words."""
    tasks = LOADS[load]
    if tasks is not None:
        return tasks.what
    others = {"user": "as an ordinary user", "groups": f"{GROUPS} control groups, a tenth at work"}
    return others.get(load, "nothing else")


def _beside(now: Any, then: Any, unit: str) -> str:  # noqa: ANN401  numbers, or None
    texts = [f"{'–' if value is None else f'{value:.2f}'} {unit}".rstrip() for value in (now, then)]
    growth = f"   {now / then - 1:+.0%}" if now is not None and then else ""
    return f"{texts[0]:>12} {texts[1]:>12}{growth}"


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    parser.add_argument("--load", action="append", choices=LOADS, help="may be given again; default none")
    options = parser.parse_args()
    measure.run(lambda: measured(options.load or ["none"], options.seconds), rows, as_json=options.json)
