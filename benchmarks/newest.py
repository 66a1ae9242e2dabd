# SPDX-License-Identifier: Apache-2.0
"""What a question to the last minutes costs, asked of a recorder that runs: one series, and the first ten processes.

Beside files of hours before there are rings up to now like those of a recorder, with as many tables by the second as it
has by default, and a hundred processes. Both are asked by a cold command line. Cold means a new process; the files are
in the page cache. By turns with it only Python is started, with numpy and h5py and with numpy alone; processor time is
that of the program to its end, medians count.
"""

import os
import sys
import time
from functools import partial

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import asking, measure, query, tasks_synthetic
from benchmarks.measure import Figures
from sysmond.base import clock
from sysmond.base.model import Sensitivity
from sysmond.machine.folders import Folders, create_stream
from sysmond.records import Records
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import PROCESS

# So much the rings have, and so many tables besides disks.
RINGS_S, OTHER_TABLES, RING_BYTES, PROCESSES = 1500, 11, 8 << 20, 100
FILES, REPEATS, LIMIT_S = 4, 11, 600
NUMPY = [sys.executable, "-P", "-c", "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy"]


def write_rings(folders: Folders) -> int:
    """Write rings up to now, as a recorder's writers have them; give where they end, in seconds since 1970."""
    now = clock.relation()
    end_s = now.boottime_ns // clock.SECOND_NS
    ticks = range(max(1, end_s - RINGS_S), end_s)
    tables = [asking.table("disk"), *(asking.table(f"other_{number}") for number in range(OTHER_TABLES))]
    for part, recorded, interval_s in (("sampler", tables, 1), ("background", tables[1:2], 5), ("archiver", [], 1)):
        layouts = [Layout(each, interval_s * clock.SECOND_NS) for each in recorded]
        started_ns = ticks[0] * clock.SECOND_NS - 1
        identity = Identity(clock.boot_id(), part, Sensitivity.PUBLIC, 1, started_ns)
        ring = RingWriter(f"{folders.runtime}/{part}/public/{started_ns}.ring", RING_BYTES, identity, layouts)
        ring.clock(now)
        for tick in ticks[::interval_s]:
            for number, each in enumerate(recorded):
                names = tuple(f"thing{instance}" for instance in range(asking.DISKS if each.name == "disk" else 1))
                values = [tick * (instance + 1) for instance in range(len(names)) for _ in each.metrics]
                ring.rows(number, tick * clock.SECOND_NS, names, values)
    write_processes(folders, ticks)
    return (now.realtime_ns - now.boottime_ns) // clock.SECOND_NS + end_s


def write_processes(folders: Folders, ticks: range) -> None:
    """Write the ring of a hundred processes, over these seconds of this boot."""
    create_stream(f"{folders.runtime}/sampler", "public/process")
    started_ns = ticks[0] * clock.SECOND_NS - 1
    identity = Identity(clock.boot_id(), "sampler", Sensitivity.PUBLIC, 1, started_ns)
    path = f"{folders.runtime}/sampler/public/process/{started_ns}.ring"
    ring = RingWriter(path, RING_BYTES, identity, [Layout(PROCESS, clock.SECOND_NS)])
    ring.clock(clock.relation())
    made = tasks_synthetic.seconds(PROCESSES, tasks_synthetic.QUIET, len(ticks))
    for tick, (_, is_full, rows_now) in zip(ticks, made, strict=True):
        piece = Records(rows_now.tobytes(), is_full, 0, PROCESSES)
        ring.records(0, tick * clock.SECOND_NS, [piece], rows_now.itemsize)


def measured(repeats: int) -> Figures:
    """Write files and rings, and ask.

    :raises RuntimeError: where the answer has no rows.
    """
    with measure.workplace() as folders:
        hour_s = int(time.time()) // asking.HOUR_S * asking.HOUR_S - asking.HOUR_S
        for number in range(1, FILES + 1):
            span = hour_s - number * asking.HOUR_S, hour_s - (number - 1) * asking.HOUR_S
            measure.in_child(partial(asking.write, folders, "disk", asking.DISKS, 1, span, number), LIMIT_S)
        end_s = measure.in_child(partial(write_rings, folders), LIMIT_S)
        place = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
        span_asked = [f"--from={end_s - asking.FIVE_MINUTES_S}", f"--to={end_s}", "--format=csv"]
        program = [measure.program("sysmon-extract"), *place]
        commands = {
            "answer": [*program, "disk/first@thing1", *span_asked],
            "top": [*program, "process", "--top=10", "--by=cpu", *span_asked],
        }
        rows_there = {name: rows_of(command, f"{folders.runtime}/answer") for name, command in commands.items()}
        spent = query.by_turns({**commands, "start": measure.START, "numpy": NUMPY}, repeats)
    cpu_ms = {name: measure.ms(measure.median([one.cpu_ns for one in mine]), 1) for name, mine in spent.items()}
    return {
        "rows": rows_there["answer"],
        **{f"{name}_cpu_ms": value for name, value in cpu_ms.items()},
        "answer_to_start": round(cpu_ms["answer"] / cpu_ms["start"], 2),
    }


def rows_of(command: list[str], output: str) -> int:
    """How many rows a command gives, as CSV.

    :raises RuntimeError: where it gives none.
    """
    measure.spend(command, output)
    with open(output, "rb") as answer:
        there = sum(not line.startswith(b"#") for line in answer) - 1
    if there < 1:
        raise RuntimeError(f"{' '.join(command)}: no rows")
    return there


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("one series, the last five minutes", f"{figures['answer_cpu_ms']:.0f} ms of CPU, {figures['rows']} rows"),
        ("the first ten of 100 processes, the last five minutes", f"{figures['top_cpu_ms']:.0f} ms of CPU"),
        ("starting Python with numpy and h5py", f"{figures['start_cpu_ms']:.0f} ms of CPU"),
        ("… with numpy alone, on one thread", f"{figures['numpy_cpu_ms']:.0f} ms of CPU"),
        ("the answer : start", f"{figures['answer_to_start']:.2f}"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--repeats", type=measure.at_least_one, default=REPEATS, help=f"default {REPEATS}")
    options = parser.parse_args()
    measure.run(partial(measured, options.repeats), rows, as_json=options.json)
