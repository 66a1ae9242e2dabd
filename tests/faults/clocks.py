# SPDX-License-Identifier: Apache-2.0
"""Set the wall clock by a second, an hour and ten years, to and fro, and suspend the machine for an hour.

Rings are written with the clocks that a machine would have had, and sealed, flushed and merged by the real jobs,
before, at and after each change. Whatever the clocks did: every row is there once, in the order of boot time,
with its value; a question by wall-clock time finds the rows of just that time; sums over everything are exact;
and the change has its cause.

    python tests/faults/clocks.py [--rounds 1] [--json]
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.base.timespec import TIME_MAX_NS
from tests.faults.trial import Totals, main
from tests.support.machine import NOON_NS, Machine, Writer, counter

HALF = 60
HOUR_S, YEARS_S = 3600, 10 * 365 * 24 * 3600
STEPS_S = (1, -1, HOUR_S, -HOUR_S, YEARS_S, -YEARS_S)
PATH = "disk/read_bytes@sda"


class Course(NamedTuple):
    """How the clocks go: wall clock at boot, by how much it is set in the middle, how long the machine sleeps then."""

    name: str
    wall_ns: int
    step_s: int
    asleep_s: int = 0

    def seconds(self) -> list[int]:
        """The ticks in boot time."""
        return [*range(1, 1 + HALF), *range(1 + HALF + self.asleep_s, 1 + 2 * HALF + self.asleep_s)]

    def utc_ns(self, second: int) -> int:
        """The wall clock at a tick."""
        return self.wall_ns + second * SECOND_NS + (self.step_s * SECOND_NS if second > HALF else 0)


COURSES = (
    *(Course(f"set by {step_s} s", NOON_NS, step_s) for step_s in STEPS_S),
    Course("1970 until the network was there", 0, NOON_NS // SECOND_NS),
    Course("asleep for an hour", NOON_NS, 0, HOUR_S),
    Course("asleep for an hour and set back by one", NOON_NS, -HOUR_S, HOUR_S),
)
# What is done with what was recorded: before the change, and after it.
WAYS: dict[str, tuple[Callable[[Machine], object], ...]] = {
    "in the ring": (),
    "sealed": (Machine.seal,),
    "flushed": (Machine.seal, Machine.flush),
    "merged": (Machine.seal, Machine.flush, Machine.merge),
}


def recorded(root: Path, course: Course, before: str, after: str) -> Machine:
    """Record before and after the change."""
    machine = Machine(root)
    writer = machine.start(0.5, wall_ns=course.wall_ns)
    seconds = course.seconds()
    _part(machine, writer, seconds[:HALF], before)
    writer.wall_ns += course.step_s * SECOND_NS
    writer.asleep_ns = course.asleep_s * SECOND_NS
    _part(machine, writer, seconds[HALF:], after)
    return machine


def _part(machine: Machine, writer: Writer, seconds: list[int], way: str) -> None:
    writer.tick(seconds)
    for job in WAYS[way]:
        job(machine)


def look(machine: Machine, course: Course) -> Iterator[str]:
    """Whatever is wrong."""
    seconds = course.seconds()
    whole = machine.archive.select(PATH, start=0, end=TIME_MAX_NS - 1, raw=True)
    values = whole.columns[0].integers
    if values is None or values.tolist() != [counter(second) for second in seconds]:
        yield "rows are missing, twice, or in another order than that of boot time"
    elif whole.times_ns.tolist() != [course.utc_ns(second) for second in seconds]:
        yield "a row has another wall-clock time than the clock had"
    causes = {gap.cause for gap in whole.gaps}
    if course.asleep_s and Cause.SUSPENDED not in causes:
        yield f"nothing tells of the suspend: {sorted(causes)}"
    if course.step_s > 1 and not course.asleep_s and Cause.CLOCK_STEP not in causes:
        yield f"nothing tells of the step: {sorted(causes)}"
    for first, last in ((0, HALF), (HALF, 2 * HALF), (HALF - 5, HALF + 5), (HALF // 3, HALF // 2)):
        window = [course.utc_ns(second) for second in seconds[first:last]]
        start_ns, end_ns = min(window), max(window) + 1
        found = machine.archive.select(PATH, start=start_ns, end=end_ns, raw=True).columns[0].integers
        right = [counter(second) for second in seconds if start_ns <= course.utc_ns(second) < end_ns]
        if found is None or sorted(found.tolist()) != sorted(right):
            yield f"by wall-clock time {0 if found is None else len(found)} of {len(right)} rows are found"
    summed = machine.archive.select(PATH, start=0, end=TIME_MAX_NS - 1, step="1min", stat="sum").columns[0].integers
    grown = 0 if summed is None else sum(int(value) for value in summed if value >= 0)
    if grown != counter(seconds[-1]) - counter(seconds[0]):
        yield f"sums over everything give {grown}; expected {counter(seconds[-1]) - counter(seconds[0])}"


def run(rounds: int, seed: int) -> Totals:
    """Go through all changes, and all places in which what was recorded may be by then."""
    problems: list[str] = []
    tried = 0
    ways = list(product(WAYS, WAYS)) if rounds else [("in the ring", "in the ring"), ("flushed", "merged")]
    for course, (before, after) in product(COURSES, ways):
        with tempfile.TemporaryDirectory(prefix="sysmond-clocks-", dir="/dev/shm") as base:
            machine = recorded(Path(base), course, before, after)
            tried += 1
            problems += [f"{course.name}; {before}, then {after}: {problem}" for problem in look(machine, course)]
    return {"courses": len(COURSES), "tried": tried, "problems": problems}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=1))
