# SPDX-License-Identifier: Apache-2.0
"""How late the sampler wakes up: with a period of 10 ms and once a second, real-time and not.

Whole daemons run side by side for the same minutes, each as it always is; of the one with the short period
only the table ``self`` is due every 10 ms, all others every second. What each sampler says in ``self``
about its own lateness and its missed slots is read back from its archive. With ``--stress``, stress-ng
keeps all processors, the memory and the disks busy meanwhile.

``p99_us``, ``max_us``, ``missed`` and ``ticks`` are those of SCHED_FIFO with memory locked, at 10 ms; the
object ``loops`` has all of them. The first seconds, in which a daemon starts, do not count.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from functools import partial

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.base.model import ABSENT
from sysmond.machine.folders import Folders

TICKS = 60_000
PERIOD_S = 0.01
# Room for slots that are missed: as many ticks as asked for are to be recorded.
SPARE = 1.01
START_S = 3
# Sealing what was recorded may take long beside so much else.
FINISH_S = 150
STRESS = ("stress-ng", "--cpu", "4", "--vm", "2", "--io", "2", "--quiet")

_FAST = "archive: {seal_interval: 60s, flush_interval: 120s}\nprobes: {self: {interval: 10ms}}\n"
LOOPS = {
    "fifo_10ms": "sampler: {ring_size: 64MiB}\n" + _FAST,
    "normal_10ms": "sampler: {ring_size: 64MiB, priority: 0}\n" + _FAST,
    "fifo_1s": "",
}


def lateness(folders: Folders) -> Figures:
    """What a sampler recorded about its own lateness, its start left out."""
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not in the process that starts the daemons

    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    result = archive.select("self/lateness@sampler", "self/missed@sampler", raw=True)
    late, missed = (result.column(f"self/{name}@sampler").integers for name in ("lateness", "missed"))
    if late is None or missed is None:
        raise RuntimeError("no lateness was recorded")
    counts = (late != ABSENT) & (result.times_ns >= result.times_ns[0] + START_S * measure.SECOND_NS)
    sorted_us = sorted(late[counts].tolist())
    if not sorted_us:
        raise RuntimeError("no lateness was recorded")
    return {
        "ticks": len(sorted_us),
        "p50_us": sorted_us[len(sorted_us) // 2],
        "p99_us": sorted_us[min(len(sorted_us) - 1, len(sorted_us) * 99 // 100)],
        "max_us": sorted_us[-1],
        "missed": int(missed[counts][-1] - missed[counts][0]),
    }


def is_real_time(pid: int) -> bool:
    """Whether the kernel schedules a process as SCHED_FIFO."""
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO


def measured(ticks: int, *, stress: bool) -> Figures:
    """Run the loops for as long as the short period needs for so many ticks.

    :raises RuntimeError: where stress-ng is wanted and not installed.
    """
    duration_s = ticks * PERIOD_S * SPARE + START_S + 1
    if stress and shutil.which(STRESS[0]) is None:
        raise RuntimeError("stress-ng is not installed")
    loops: Figures = {}
    with ExitStack() as running:
        if stress:
            command = [*STRESS, "--timeout", f"{round(duration_s) + 30}"]
            running.enter_context(measure.started(command))
        limit = round(duration_s) + 60
        daemons = {
            name: running.enter_context(measure.daemon(limit if name.endswith("1s") else limit * 100, config))
            for name, config in LOOPS.items()
        }
        for daemon in daemons.values():
            daemon.wait_for_ring(60.0)
        time.sleep(duration_s)
        real_time = {name: is_real_time(daemon.pids()["sampler"]) for name, daemon in daemons.items()}
        for daemon in daemons.values():
            daemon.process.send_signal(signal.SIGTERM)
        for name, daemon in daemons.items():
            daemon.process.wait(FINISH_S)
            loops[name] = measure.in_child(partial(lateness, daemon.folders), 120)
            loops[name]["real_time"] = real_time[name]
    main = loops["fifo_10ms"]
    return {
        **{key: main[key] for key in ("p99_us", "max_us", "missed", "ticks", "real_time")},
        "p99_to_normal": round(main["p99_us"] / max(1, loops["normal_10ms"]["p99_us"]), 4),
        "max_us_1s": loops["fifo_1s"]["max_us"],
        "missed_1s": loops["fifo_1s"]["missed"],
        "ticks_1s": loops["fifo_1s"]["ticks"],
        "stress": stress,
        "loops": loops,
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [("", f"{'ticks':>8} {'p50 µs':>10} {'p99 µs':>10} {'max µs':>10} {'missed':>8}")]
    for name, loop in figures["loops"].items():
        line = " ".join(
            f"{loop[key]:>{width}}"
            for key, width in (("ticks", 8), ("p50_us", 10), ("p99_us", 10), ("max_us", 10), ("missed", 8))
        )
        refused = "" if loop["real_time"] or name.startswith("normal") else "  (the machine refused SCHED_FIFO)"
        lines.append((name, line + refused))
    load = " ".join(STRESS[:-1]) if figures["stress"] else "none of ours"
    return [*lines, ("p99, real-time : normal", f"{figures['p99_to_normal']:.3f}"), ("load", load)]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "--ticks", type=measure.at_least_one, default=TICKS, help=f"wake-ups of the 10 ms loop; default {TICKS}"
    )
    parser.add_argument("--stress", action="store_true", help=f"beside {' '.join(STRESS)}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.ticks, stress=options.stress), rows, as_json=options.json)
