# SPDX-License-Identifier: Apache-2.0
"""What two years of events cost: their bytes on disk, and the processor time of asking for all of them or the newest.

A boot every other day, each with 400 events, rolled up and merged as the archiver does it, at the default budget.
"""

import os
import random
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

BOOTS, EVENTS_PER_BOOT = 365, 400
DAY_NS = 86400 * 10**9
SECOND_NS = 10**9
LIMIT_S = 600
FILES_PER_MERGE = 8
KINDS = ("flush", "mark", "device added", "device removed", "stuck", "released")


def written(folders: Folders, boots: int) -> int:
    """Make the tier as it grows; how many files it is in the end."""
    from sysmond.archiver import merge_job, retention_job  # noqa: PLC0415  as in every benchmark
    from sysmond.archiver.coding import DENSE  # noqa: PLC0415
    from sysmond.base.clock import Relation  # noqa: PLC0415
    from sysmond.base.model import EVENTS, Sensitivity  # noqa: PLC0415
    from sysmond.store import archive, events  # noqa: PLC0415
    from sysmond.store.archive import Name  # noqa: PLC0415
    from sysmond.store.of_ring import BootEvent, Recording  # noqa: PLC0415

    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, EVENTS)
    os.makedirs(folder)
    chance, now_ns = random.Random(1), time.time_ns()
    for number in range(boots):
        boot = f"{number:032x}"
        begin_ns = now_ns - (boots - number) * 2 * DAY_NS
        told = [
            BootEvent(
                boot,
                at * 400 * SECOND_NS + chance.randrange(SECOND_NS),
                chance.choice(KINDS),
                f"sd{at % 7}",
                f"{at} files",
            )
            for at in range(EVENTS_PER_BOOT)
        ]
        clocks = {boot: [Relation(0, begin_ns, 0), Relation(2 * DAY_NS - 1, begin_ns + 2 * DAY_NS - 1, 2 * DAY_NS - 1)]}
        name = Name(boot, 1, 1)
        image = events.of_rows(Recording(Sensitivity.PUBLIC, {}, (), {}, clocks, (), told), [name])
        archive.publish(folder, name.file, image, 0o644)
        if number % FILES_PER_MERGE == 0:
            keep = retention_job.keeper(folders)
            merge_job.MergeJob(folders, DENSE, keep, set(), boot).merge_tiers()
    return len(archive.files(folder))


def asked(folders: Folders) -> Figures:
    """Ask for all of them, and for those of the last five minutes."""
    from sysmond.base.model import EVENTS, Sensitivity  # noqa: PLC0415  as above
    from sysmond.store import archive, events  # noqa: PLC0415

    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, EVENTS)
    classes = tuple(Sensitivity)
    begin_ns = time.process_time_ns()
    found = events.read(folders, classes)
    all_ns = time.process_time_ns()
    events.read(folders, classes, time.time_ns() - 300 * SECOND_NS)
    return {
        "events": len(found.events),
        "all_ms": round((all_ns - begin_ns) / 1e6, 1),
        "newest_ms": round((time.process_time_ns() - all_ns) / 1e6, 1),
        "mb": round(sum(os.path.getsize(f"{folder}/{file}") for file in archive.files(folder)) / 1e6, 2),
    }


def measured(boots: int) -> Figures:
    """Do both, each in a child."""
    with measure.workplace() as folders:
        files = measure.in_child(lambda: written(folders, boots), LIMIT_S)
        return {**measure.in_child(lambda: asked(folders), LIMIT_S), "files": files}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("events of two years", f"{figures['events']} in {figures['files']} files, {figures['mb']:.2f} MB"),
        ("CPU to ask for all", f"{figures['all_ms']:.0f} ms"),
        ("CPU to ask for the last five minutes", f"{figures['newest_ms']:.1f} ms"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--boots", type=int, default=BOOTS)
    options = parser.parse_args()
    measure.run(lambda: measured(options.boots), rows, as_json=options.json)
