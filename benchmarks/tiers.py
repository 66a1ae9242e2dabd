# SPDX-License-Identifier: Apache-2.0
"""What the tiers of processes cost: the jobs that roll files of rows up and merge what comes of it, and bytes on disk.

The processes are made up (``tasks_synthetic.py``), a file every ten minutes, a job every half an hour. Each job is a
child of its own, as the archiver's are; its peak includes Python, numpy and h5py. A megabyte is 1,000,000 bytes.
"""

import os
import resource
import shutil
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

PROCESSES = 1000
HOURS = 6
HOUR_S = 3600
DAY_S = 86400
FILE_S = 600
FILES_PER_JOB = 3
LIMIT_S = 900
# Nothing is forgotten.
BUDGET_BYTES = 10**12


def recorded(folder: str, kind: str, hours: int) -> int:
    """Write the files of rows; give how many bytes those are."""
    from benchmarks import tasks_synthetic  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.base.clock import Relation  # noqa: PLC0415
    from sysmond.store.archive import Name  # noqa: PLC0415
    from sysmond.store.files import sparse_file  # noqa: PLC0415

    load = {"quiet": tasks_synthetic.QUIET, "busy": tasks_synthetic.BUSY}[kind]
    relation = Relation(0, 1_700_000_000_000_000_000, 0)
    lived = tasks_synthetic.seconds(PROCESSES, load, hours * HOUR_S)
    size = 0
    for number in range(hours * HOUR_S // FILE_S):
        made = tasks_synthetic.of_parts([next(lived) for _ in range(FILE_S)], PROCESSES, (number + 1) * FILE_S)
        image = sparse_file.encode(made.with_about(made.about._replace(relations=[relation])), "benchmark")
        size += len(image)
        with open(f"{folder}/{Name(tasks_synthetic.BOOT, number + 1, number + 1).file}", "wb") as piece:
            piece.write(image)
    return size


def job(folders: Folders) -> Figures:
    """Make the tiers of what has come, and merge small files."""
    from benchmarks import tasks_synthetic  # noqa: PLC0415  as above
    from sysmond.archiver import merge_job, retention_job, rollup_job  # noqa: PLC0415
    from sysmond.archiver.coding import SPARSE  # noqa: PLC0415
    from sysmond.plan.retention import TIERS_NS, Limit  # noqa: PLC0415

    begin_ns = time.process_time_ns()
    rollup_job.roll_up(folders, SPARSE, lambda _tier, _bytes: None, set())
    rolled_ns = time.process_time_ns()
    left_alone: set[str] = set()
    limits = dict.fromkeys(TIERS_NS, Limit(BUDGET_BYTES))
    keep = retention_job.Keeper(folders, limits, 0, is_long=True)
    merge_job.MergeJob(folders, SPARSE, keep, left_alone, tasks_synthetic.BOOT).merge_tiers()
    assert not left_alone
    return {
        "roll_up_s": (rolled_ns - begin_ns) / 1e9,
        "merge_s": (time.process_time_ns() - rolled_ns) / 1e9,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1),
    }


def of_kind(folders: Folders, kind: str, hours: int) -> Figures:
    """Record, roll up and merge; give what a day costs."""
    from sysmond.base.model import TIERS_NS, Sensitivity  # noqa: PLC0415
    from sysmond.machine.folders import create_stream  # noqa: PLC0415
    from sysmond.store import archive  # noqa: PLC0415  as above

    waiting = f"{folders.runtime}/{kind}"
    os.mkdir(waiting)
    size = measure.in_child(lambda: recorded(waiting, kind, hours), LIMIT_S)
    table = "process"
    place = archive.disk_folder(folders, Sensitivity.PUBLIC, "1s", table)
    create_stream(folders.state, f"public/{table}")
    create_stream(folders.state, f"public/{table}/1s")
    files = sorted(os.listdir(waiting))
    jobs = []
    for first in range(0, len(files), FILES_PER_JOB):
        for name in files[first : first + FILES_PER_JOB]:
            shutil.move(f"{waiting}/{name}", f"{place}/{name}")
        jobs.append(measure.in_child(lambda: job(folders), LIMIT_S))
    days = hours * HOUR_S / DAY_S
    figures: Figures = {"1s_mb_per_day": round(size / days / 1e6, 1)}
    for tier in TIERS_NS:
        folder = archive.disk_folder(folders, Sensitivity.PUBLIC, tier, table)
        there = [f"{folder}/{name}" for name in os.listdir(folder)]
        if tier != "1s":
            figures[f"{tier}_mb_per_day"] = round(sum(map(os.path.getsize, there)) / days / 1e6, 1)
            figures[f"{tier}_files"] = len(there)
        for path in there:
            os.unlink(path)
    for name in ("roll_up_s", "merge_s"):
        figures[f"{name}_per_day"] = round(sum(cost[name] for cost in jobs) / days, 1)
    figures["peak_mb"] = max(cost["peak_mb"] for cost in jobs)
    return {f"{kind}_{name}": value for name, value in figures.items()}


def measured(hours: int) -> Figures:
    """A quiet machine, and a busy one."""
    with measure.workplace() as folders:
        return {"hours": hours, **of_kind(folders, "quiet", hours), **of_kind(folders, "busy", hours)}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = []
    for kind in ("quiet", "busy"):
        sizes = ", ".join(
            f"{tier} {figures[f'{kind}_{tier}_mb_per_day']:.1f} MB" for tier in ("1s", "10s", "1min", "5min")
        )
        lines.append((f"tiers of {PROCESSES} processes, a {kind} machine, a day", sizes))
        cost = f"{figures[f'{kind}_roll_up_s_per_day']:.0f} s and {figures[f'{kind}_merge_s_per_day']:.0f} s CPU"
        lines.append((f"rolling that up and merging it, {kind}", f"{cost}, peak {figures[f'{kind}_peak_mb']:.0f} MB"))
    return lines


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--hours", type=int, default=HOURS, help="how long is recorded")
    options = parser.parse_args()
    measure.run(lambda: measured(options.hours), rows, as_json=options.json)
