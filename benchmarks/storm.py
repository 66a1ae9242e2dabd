# SPDX-License-Identifier: Apache-2.0
"""An hour under a storm of programs that end at once: nothing may grow, and every one of them must be on record.

The daemon runs with all long tables; 500 programs a second are started beside it and end. Each minute the descriptors
and the proportional set size, rings left out, of every part are looked at, and what rings and segments take in RAM.
After a warm-up (a sixth of the time) the most of the last third may exceed the most of the third before by so much:
10 % and 1 MB of memory, 4 descriptors, 50 % and 1 MB of segments in RAM, which come and go, and rings not at all. The
state folder grows by its budget.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import loads, measure, passes, streams, trees
from benchmarks.measure import Daemon, Figures
from sysmond.errors import Error
from sysmond.ring.progress import ring_files, stream_files
from sysmond.tasks.tables import EXITS

MINUTES, RATE = 60, 500
SAMPLES = 60
WARM_UP_PART = 6
SETTLE_S, FINISH_S = 5, 5
# By how much the last third may exceed the one before: a factor, and an amount in the figure's own unit.
BOUNDS = {"pss_mb": (1.1, 1.0), "descriptors": (1.0, 4.0), "rings_mb": (1.0, 0.1), "segments_mb": (1.5, 1.0)}
# In less than an hour nothing would be sealed or flushed often enough to be seen growing.
HURRIED = {"seal_interval": "10s", "flush_interval": "30s"}


def look(running: Daemon) -> dict[str, dict[str, float]]:
    """What the daemon holds now: of each kind, by part or place."""
    pids = running.pids()
    runtime = running.folders.runtime
    rings = [os.path.getsize(path) for path in (*ring_files(running.folders), *stream_files(running.folders))]
    return {
        "pss_mb": {part: _pss_mb(pid) for part, pid in pids.items()},
        "descriptors": {part: len(os.listdir(f"/proc/{pid}/fd")) for part, pid in pids.items()},
        "rings_mb": {"all": sum(rings) / 1e6},
        "segments_mb": {"all": _bytes(f"{runtime}/archiver", ".h5") / 1e6},
    }


def _pss_mb(pid: int) -> float:
    """Proportional set size without the rings, which fill up and are counted by themselves (/proc/PID/smaps)."""
    total, in_ring = 0, False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            first, _, rest = line.partition(" ")
            if not first.endswith(":"):  # A mapping; the lines after it are about it.
                in_ring = line.rstrip().removesuffix(" (deleted)").endswith((".ring", ".ring.new"))
            elif first == "Pss:" and not in_ring:
                total += int(rest.split()[0]) * 1024
    return total / 1e6


def _bytes(folder: str, suffix: str = "") -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(suffix):
                try:
                    total += os.path.getsize(f"{where}/{name}")
                except FileNotFoundError:
                    continue  # It was flushed, merged or forgotten meanwhile.
    return total


def grown(samples: Sequence[dict[str, dict[str, float]]]) -> list[str]:
    """What has grown beyond its bound, in words: the most of the last third after the warm-up, against that before."""
    warm = samples[len(samples) // WARM_UP_PART :]
    third = max(1, len(warm) // 3)
    before, after = warm[-2 * third : -third], warm[-third:]
    lines = []
    for kind, (factor, amount) in BOUNDS.items():
        for name in after[-1][kind]:
            most_before, most_after = (max(sample[kind].get(name, 0.0) for sample in part) for part in (before, after))
            if most_after > most_before * factor + amount:
                lines.append(f"{kind} of {name}: {most_before:.1f} → {most_after:.1f}")
    return lines


def measured(seconds: int, rate: int) -> Figures:
    """Run the storm.

    :raises Error: where no probe offers the table of processes that ended.
    :raises RuntimeError: where a part was started again, or the load fails.
    """
    if "exits" not in passes.offered():
        raise Error("no probe offers the table exits")
    config = json.loads(passes.configured(passes.offered()))
    if seconds < MINUTES * 60:
        config["archive"] = HURRIED
    samples = []
    with loads.compiled() as program, passes.daemon(seconds + 600, json.dumps(config)) as running:
        time.sleep(min(seconds, SETTLE_S))
        watch = streams.Watch(running.folders, EXITS, "comm")
        watch.look()
        pids, spent_ns = running.pids(), trees.spent_ns(running.pids().values())
        with loads.standing([program, "storm", str(rate), str(seconds)]) as load:
            for _ in range(SAMPLES):
                watch.watch(seconds / SAMPLES)
                samples.append(look(running))
            made = loads.made(load, seconds + 60)
        watch.watch(FINISH_S)
        spent_ns = trees.spent_ns(pids.values()) - spent_ns
        if running.pids() != pids:
            raise RuntimeError("a part was started again")
        state_mb = _bytes(running.folders.state) / 1e6
    return {
        "minutes": round(seconds / 60, 1),
        "rate": rate,
        "made": made,
        "recorded": watch.counted[os.path.basename(program).encode()],
        "lost": sum(reading.lost for reading in watch.readings),
        "overwritten_bytes": watch.overwritten,
        "cpu_ms_per_s": measure.ms(spent_ns / seconds, 2),
        "grew": grown(samples),
        "first": samples[len(samples) // WARM_UP_PART],
        "last": samples[-1],
        "state_mb": round(state_mb, 2),
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [
        ("ended programs on record", f"{figures['recorded']} of {figures['made']}, {figures['lost']} said to be lost"),
        ("all parts, jobs included", f"{figures['cpu_ms_per_s']:.1f} ms of CPU a second"),
    ]
    for kind in BOUNDS:
        for name, last in figures["last"][kind].items():
            lines.append((f"{kind} of {name}", f"{figures['first'][kind].get(name, 0):.1f} → {last:.1f}"))
    lines.append(("state folder", f"{figures['state_mb']:.1f} MB"))
    lines.append(("grew", "; ".join(figures["grew"]) or "nothing"))
    return lines


def _seconds(minutes: str) -> int:
    number = round(float(minutes) * 60)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{minutes!r}: expected more than 0")
    return number


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=_seconds, dest="seconds", metavar="N", help=f"default {MINUTES}")
    length.add_argument("--seconds", type=measure.at_least_one, metavar="N", help="the same in seconds")
    parser.add_argument("--rate", type=measure.at_least_one, default=RATE, metavar="N", help=f"default {RATE} a second")
    parser.set_defaults(seconds=MINUTES * 60)
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds, options.rate), rows, as_json=options.json)
