# SPDX-License-Identifier: Apache-2.0
"""What merging a day costs: the memory and the processor time of a job that fills a whole file.

Eight segments of three hours are rolled up into every tier, and become one file of about 16 MiB, the most a file
may have. The job is a child of its own, as the archiver's is; its peak includes Python, numpy and h5py. A megabyte
is 1,000,000 bytes.
"""

import os
import resource
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

SERIES = 360
PIECES = 8
PIECE_TICKS = 10_800
LIMIT_S = 300
DAY_NS = 86400 * 10**9
# With the default a file is smaller.
BUDGET_BYTES = 1_000_000_000


def written(folder: str) -> int:
    """Write the segments; give their size."""
    from benchmarks import synthetic  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.base import clock  # noqa: PLC0415
    from sysmond.store.archive import Name  # noqa: PLC0415
    from sysmond.store.files import dense_file  # noqa: PLC0415

    size = 0
    midnight = clock.Relation(0, time.time_ns() // DAY_NS * DAY_NS, 0)  # Only pieces of one day are merged.
    for number in range(1, PIECES + 1):
        start_s = 1 + (number - 1) * PIECE_TICKS
        made = synthetic.recording(SERIES, PIECE_TICKS, first_tick_s=start_s, now=midnight, seed=number)
        image = dense_file.encode(made, "benchmark")
        size += len(image)
        with open(f"{folder}/{Name(clock.boot_id(), number, number).file}", "wb") as file:
            file.write(image)
    return size


def merged(folders: Folders) -> Figures:
    """Roll them up and merge them; give what that cost, and what of it the rolling up."""
    from sysmond.archiver import merge_job, retention_job, rollup_job  # noqa: PLC0415
    from sysmond.archiver.coding import DENSE  # noqa: PLC0415
    from sysmond.base.model import Sensitivity  # noqa: PLC0415
    from sysmond.plan import plan  # noqa: PLC0415
    from sysmond.store import archive  # noqa: PLC0415

    settings = plan.ArchiverSettings(size_1s_bytes=BUDGET_BYTES)
    plan.write(plan.Plan((), archiver=settings), f"{folders.runtime}/plan.json")
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    begin_ns = time.process_time_ns()
    rollup_job.roll_up(folders, DENSE, retention_job.keeper(folders).make_room, set())
    rolled_up_ns = time.process_time_ns()
    merge_job.merge(folders)
    (name,) = archive.names(folder)
    return {
        "roll_up_cpu_s": round((rolled_up_ns - begin_ns) / 1e9, 2),
        "merge_cpu_s": round((time.process_time_ns() - begin_ns) / 1e9, 2),
        "merge_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1),
        "file_mb": round(os.path.getsize(f"{folder}/{name.file}") / 1e6, 2),
    }


def measured() -> Figures:
    """Do both, each in a child."""
    with measure.workplace() as folders:
        size = measure.in_child(lambda: written(f"{folders.state}/public/1s"), LIMIT_S)
        return {**measure.in_child(lambda: merged(folders), LIMIT_S), "pieces_mb": round(size / 1e6, 2)}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("segments merged", f"{PIECES}, {figures['pieces_mb']:.1f} MB"),
        ("file", f"{figures['file_mb']:.1f} MB"),
        ("peak of the job, resident", f"{figures['merge_peak_mb']:.0f} MB"),
        ("CPU of the job", f"{figures['merge_cpu_s']:.2f} s, of which rolling up {figures['roll_up_cpu_s']:.2f} s"),
    ]


if __name__ == "__main__":
    options = measure.arguments(__doc__ or "").parse_args()
    measure.run(measured, rows, as_json=options.json)
