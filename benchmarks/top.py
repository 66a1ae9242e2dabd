# SPDX-License-Identifier: Apache-2.0
"""How long "the top ten by CPU over yesterday" takes, asked of a day of a thousand processes by a cold command line.

The processes are made up (``tasks_synthetic.py``), a file an hour, each with rows by the second: as an archive lies
before anything of it is merged or rolled up. Cold means a new process; the files are in the page cache.
"""

import os
import sys
import time
from functools import partial
from itertools import islice

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

PROCESSES, HOURS, REPEATS = 1000, 24, 5
HOUR_S, DAY_S = 3600, 86_400
LIMIT_S = 1800


def write(folders: Folders, processes: int, hours: int, begin_s: int) -> int:
    """Write the files of so many hours from a moment of UTC on; give their bytes."""
    from benchmarks import tasks_synthetic  # noqa: PLC0415  numpy is for the child
    from sysmond.base import clock  # noqa: PLC0415  as above
    from sysmond.base.model import Sensitivity  # noqa: PLC0415  as above
    from sysmond.machine.folders import FILE_MODES  # noqa: PLC0415  as above
    from sysmond.store import archive  # noqa: PLC0415  as above
    from sysmond.store.files import sparse_file  # noqa: PLC0415  as above

    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, table="process")
    os.makedirs(folder, exist_ok=True)
    relation = clock.Relation(0, begin_s * clock.SECOND_NS, 0)
    lived = tasks_synthetic.seconds(processes, tasks_synthetic.QUIET, hours * HOUR_S)
    size = 0
    for hour in range(hours):
        made = tasks_synthetic.of_parts(list(islice(lived, HOUR_S)), processes, hour * HOUR_S)
        image = sparse_file.encode(made.with_about(made.about._replace(relations=[relation])), "sysmond benchmark")
        name = archive.Name(made.boot, hour + 1, hour + 1)
        archive.publish(folder, name.file, image, FILE_MODES[Sensitivity.PUBLIC])
        size += len(image)
    return size


def measured(processes: int, hours: int, repeats: int) -> Figures:
    """Write the archive and ask.

    :raises RuntimeError: where the answer is not whole.
    """
    begin_s = int(time.time()) // HOUR_S * HOUR_S - DAY_S
    with measure.workplace() as folders:
        size = measure.in_child(partial(write, folders, processes, hours, begin_s), LIMIT_S)
        command = [measure.program("sysmon-extract"), "--state-dir", folders.state, "--runtime-dir", folders.runtime]
        command += ["process", f"--from={begin_s}", f"--to={begin_s + hours * HOUR_S}"]
        command += ["--top=10", "--by=cpu", "--format=csv"]
        output = f"{folders.runtime}/answer"
        spent = [measure.spend(command, output) for _ in range(repeats + 1)][1:]
        with open(output, "rb") as answer:
            lines = [line for line in answer if not line.startswith(b"#")]
    if len(lines) != 11:
        raise RuntimeError(f"{len(lines) - 1} rows; expected 10")
    return {
        "processes": processes,
        "hours": hours,
        "archive_mb": round(size / 1e6, 2),
        "bytes_per_process_sample": round(size / (processes * hours * HOUR_S), 4),
        "wall_ms": measure.ms(measure.median([one.wall_ns for one in spent]), 1),
        "cpu_ms": measure.ms(measure.median([one.cpu_ns for one in spent]), 1),
        "peak_mb": round(max(one.rss_max_bytes for one in spent) / 1e6, 1),
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    stored = f"{figures['archive_mb']:.1f} MB, {figures['bytes_per_process_sample']:.3f} B a process and second"
    took = f"{figures['wall_ms']:.0f} ms, {figures['cpu_ms']:.0f} ms of CPU, {figures['peak_mb']:.0f} MB"
    return [
        (f"{figures['processes']} processes, {figures['hours']} hours", stored),
        ("top ten by CPU over all of it", took),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--processes", type=measure.at_least_one, default=PROCESSES, help=f"default {PROCESSES}")
    parser.add_argument("--hours", type=measure.at_least_one, default=HOURS, help=f"default {HOURS}")
    parser.add_argument("--repeats", type=measure.at_least_one, default=REPEATS, help=f"default {REPEATS}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.processes, options.hours, options.repeats), rows, as_json=options.json)
