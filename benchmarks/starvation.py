# SPDX-License-Identifier: Apache-2.0
"""Whether rings are sealed before they run out while 40 processes want every processor all the time.

The daemon runs with the smallest ring and short intervals, beside endless loops in Python. Every tick must
be found afterwards, in segments: nothing lost, nothing overwritten before it was sealed.
"""

import os
import signal
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import NoReturn

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.base import clock
from sysmond.base.model import Cause
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.ring.progress import Progress
from sysmond.ring.snapshot import fill

SECONDS = 100
HOGS = 40
LOOK_S = 0.25
FINISH_S = 150
CONFIG = "sampler: {ring_size: 64KiB}\narchive: {seal_interval: 10s, flush_interval: 30s}\n"


def hog() -> NoReturn:
    """Want a processor for ever."""
    while True:
        pass


def watch(folders: Folders, ring: str, seconds: float) -> Figures:
    """Look how much of the ring is not sealed, again and again."""
    worst, seals, done = 0.0, 0, -1
    end = time.monotonic() + seconds
    capacity = 0
    while time.monotonic() < end:
        time.sleep(LOOK_S)
        sealed = Progress.read(folders).sealed.get(ring)
        offset = 0 if sealed is None else sealed.offset
        try:
            head, capacity = fill(ring)
        except (OSError, Error):
            continue
        worst = max(worst, (head - offset) / capacity)
        seals += offset > done and sealed is not None
        done = max(done, offset)
    return {"seals": seals, "unsealed_max": round(worst, 3), "ring_bytes": capacity}


def recorded(folders: Folders, begin_ns: int) -> Figures:
    """What the archive has of it: ticks, and how many from ``begin_ns`` (UTC) to the last are missing."""
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not in the process that forks the hogs

    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    result = archive.select("load/*", raw=True)
    times_ns = result.times_ns[result.times_ns > begin_ns]
    if not len(times_ns):
        raise RuntimeError("the archive has none of it")
    expected = round((int(times_ns[-1]) - begin_ns) / measure.SECOND_NS)
    causes = [str(gap.cause) for gap in result.gaps if gap.table == "load"]
    return {
        "ticks": len(times_ns),
        "lost": expected - len(times_ns),
        "dropped": causes.count(Cause.DROPPED),
        "gaps": sorted(set(causes)),
        "warnings": len(result.warnings),
    }


def measured(seconds: int, hogs: int) -> Figures:
    """Record beside the hogs for so many seconds."""
    with ExitStack() as running:
        daemon = running.enter_context(measure.daemon(seconds + 60, CONFIG))
        ring = daemon.wait_for_ring()
        # Every slot after the one in which the ring appeared must be in the archive.
        now = clock.relation()
        begin_ns = now.realtime_ns - now.boottime_ns % measure.SECOND_NS + measure.SECOND_NS // 10
        for _ in range(hogs):
            running.enter_context(measure.forked(hog, seconds + FINISH_S + 30))
        figures = watch(daemon.folders, ring, seconds)
        begin_s = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        code = daemon.process.wait(FINISH_S)
        figures |= {"end_s": round(time.monotonic() - begin_s, 2), "exit_code": code}
        figures |= measure.in_child(partial(recorded, daemon.folders, begin_ns), 120)
    in_time = figures["unsealed_max"] <= 1
    figures["ok"] = in_time and not (figures["lost"] or figures["dropped"] or figures["warnings"] or code)
    return {"hogs": hogs, "seconds": seconds} | figures


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("hogs", f"{figures['hogs']}, for {figures['seconds']} s"),
        ("ring", f"{figures['ring_bytes'] / 1e3:.0f} kB, at most {figures['unsealed_max']:.0%} of it not sealed"),
        ("seals", f"{figures['seals']}"),
        ("ticks found", f"{figures['ticks']}, {figures['lost']} lost, {figures['dropped']} overwritten"),
        ("ended", f"in {figures['end_s']:.1f} s with exit code {figures['exit_code']}"),
        ("nothing lost", "yes" if figures["ok"] else f"no: {', '.join(figures['gaps']) or 'see above'}"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    parser.add_argument("--hogs", type=measure.at_least_one, default=HOGS, help=f"default {HOGS}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds, options.hogs), rows, as_json=options.json)
