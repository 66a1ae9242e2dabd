# SPDX-License-Identifier: Apache-2.0
"""How many days the rows of processes and their wait states go back: by recordings of 100 and of 1,000 processes.

The daemon records as it does by default, on this machine and with all that runs here, while a load stands there: every
process of it works a little ten times a second, so that each second has a row of each. Afterwards all is flushed, and
``sysmond budget`` is asked. It goes by the files that are there, which are merged as far as a recording of that length
merges them, so that a day will take rather less; the budget is the one that this file system gets.
"""

import os
import sys
import time
from contextlib import ExitStack

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import loads, measure
from benchmarks.loads import Load
from benchmarks.measure import Daemon, Figures
from benchmarks.service import one_job
from sysmond.base.model import FINEST_TIER

SECONDS = 1800
LOADS = {
    100: Load("100 processes, all at work", ("procs", "100"), 100),
    1000: Load("1,000 processes, all at work", ("procs", "1000"), 1000),
}


def tables_mb(daemon: Daemon) -> dict[str, float]:
    """By long table, the megabytes of its rows."""
    from sysmond.archiver import retention_job  # noqa: PLC0415  not in what is forked before

    sizes: dict[str, int] = {}
    for file in retention_job.stored(daemon.folders, FINEST_TIER, is_long=True):
        table = os.path.basename(os.path.dirname(os.path.dirname(file.path)))
        sizes[table] = sizes.get(table, 0) + file.size_bytes
    return {table: round(size / 1e6, 3) for table, size in sorted(sizes.items())}


def recorded(load: Load, seconds: int) -> Figures:
    """Record under a load, and forecast."""
    from sysmond.commands.upkeep import forecasts  # noqa: PLC0415  not in what is forked before

    with ExitStack() as stack:
        program = stack.enter_context(loads.compiled())
        stack.enter_context(loads.standing(load.command(program, load.tasks)))
        daemon = stack.enter_context(measure.daemon(seconds + 240, "incidents: {bursts: none}\n"))
        daemon.wait_for_ring()
        time.sleep(seconds)
        one_job(daemon)
        return {**forecasts(daemon.folders)[f"records.{FINEST_TIER}"], "seconds": seconds, "mb": tables_mb(daemon)}


def measured(seconds: int) -> Figures:
    """Record under each load."""
    return {str(tasks): recorded(load, seconds) for tasks, load in LOADS.items()}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = []
    for tasks, of_load in figures.items():
        days = of_load["days"]
        per_day = of_load["bytes_per_day"]
        keeps = "unknown" if days is None else f"{days:.1f} days, {per_day / 1e6:.0f} MB a day"
        lines.append((LOADS[int(tasks)].what, f"{keeps}, of {of_load['budget_bytes'] / 1e6:.0f} MB"))
        lines += [(f"  {table}", f"{mb:.3f} MB") for table, mb in of_load["mb"].items()]
    return lines


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS} for each")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds), rows, as_json=options.json)
