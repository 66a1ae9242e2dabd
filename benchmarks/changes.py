# SPDX-License-Identifier: Apache-2.0
"""What it takes to change the configuration of a running daemon.

A table is switched off and on again through the control socket of the daemon, each time at another phase of the
second: how long the answer takes, when the table's first row is recorded after the order to switch it on, what
processor time a change costs, and whether another table lost a tick meanwhile.
"""

import os
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import SECOND_NS, Daemon, Figures
from sysmond.base import clock
from sysmond.base.model import ABSENT
from sysmond.history import Archive
from sysmond.machine import control
from sysmond.machine.folders import Folders

CHANGES = 10
SETTLE_S = 4.0
ANSWER_S = 60.0
# Off and on again takes less than so many seconds.
SECONDS_A_CHANGE = 8
TABLE, OTHER = "load/tasks", "memory/total"


def work(changes: int) -> Figures:
    """Measure so many of them."""
    with measure.daemon(int(SETTLE_S) + SECONDS_A_CHANGE * changes + 30) as daemon:
        daemon.wait_for_ring()
        time.sleep(SETTLE_S)
        before, cpu_ns = daemon.pids(), measure.children_cpu_ns(daemon.pids()["daemon"])
        took = [change(daemon, number / changes) for number in range(changes)]
        cpu_ns = measure.children_cpu_ns(before["daemon"]) - cpu_ns
        if daemon.pids() != before:
            raise RuntimeError("a part was started again")
        ticks = list(recorded(daemon.folders, OTHER))
    return {
        "changes": 2 * changes,
        "answer_median_ms": measure.ms(measure.median([answer_ns for answer_ns, _ in took]), 0),
        "answer_max_ms": measure.ms(max(answer_ns for answer_ns, _ in took), 0),
        "first_sample_max_s": round(max(first_ns for _, first_ns in took) / SECOND_NS, 2),
        "cpu_ms": measure.ms(cpu_ns / (2 * changes), 0),
        "ticks": len(ticks),
        "lost": sum((after - before) // SECOND_NS - 1 for before, after in pairwise(ticks)),
    }


def change(daemon: Daemon, phase: float) -> tuple[int, int]:
    """Switch the table off, and on at a phase of the second: time to the answer, and from the order to a row."""
    order(daemon, enabled=False)
    measure.sleep_until_phase(phase)
    begin_ns, wall_ns = clock.boottime_ns(), time.time_ns()
    order(daemon, enabled=True)
    answer_ns = clock.boottime_ns() - begin_ns
    limit_s = time.monotonic() + SECONDS_A_CHANGE
    while time.monotonic() < limit_s:
        if later := [at_ns for at_ns in recorded(daemon.folders, TABLE) if at_ns > wall_ns]:
            return answer_ns, later[0] - wall_ns
        time.sleep(0.05)
    raise RuntimeError(f"{TABLE}: no row within {SECONDS_A_CHANGE} s")


def order(daemon: Daemon, *, enabled: bool) -> None:
    """Have the probe switched on or off, and all parts follow."""
    wish: control.Order = {"do": "set", "key": f"probes.{TABLE.partition('/')[0]}.enabled", "value": enabled}
    answer = control.ask(f"{daemon.folders.runtime}/daemon", wish, ANSWER_S)
    if answer != {"ok": True}:
        raise RuntimeError(f"{wish}: {answer}")


def recorded(folders: Folders, path: str) -> Iterator[int]:
    """When a series has values, in nanoseconds of UTC."""
    result = Archive(folders).select(path, raw=True)
    values = result.columns[0].integers
    if values is not None:
        yield from (
            at_ns for at_ns, value in zip(result.times_ns.tolist(), values.tolist(), strict=True) if value != ABSENT
        )


def rows(figures: Figures) -> list[tuple[str, str]]:
    """The figures for people."""
    return [
        ("changes", str(figures["changes"])),
        ("answer", f"{figures['answer_median_ms']:.0f} ms, at most {figures['answer_max_ms']:.0f} ms"),
        ("first row after switching on", f"{figures['first_sample_max_s']:.2f} s at most"),
        ("processor time a change", f"{figures['cpu_ms']:.0f} ms"),
        ("ticks lost", f"{figures['lost']} of {figures['ticks'] + figures['lost']}"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--changes", type=measure.at_least_one, default=CHANGES, metavar="N")
    options = parser.parse_args()
    measure.run(lambda: work(options.changes), rows, as_json=options.json)
