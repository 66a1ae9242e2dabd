# SPDX-License-Identifier: Apache-2.0
"""What keeping every process costs: bytes in a file, and the jobs that make files of rings and large ones of small.

The processes are made up (``tasks_synthetic.py``). A process-sample is a process times a second. Each job is a child of
its own, as the archiver's are; its peak includes Python, numpy and h5py. A megabyte is 1,000,000 bytes.
"""

import os
import resource
import struct
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

PROCESSES = 1000
HOUR_S = 3600
SEALED_S = 300
SEALED_CHANGING = 0.10
RING_BYTES = 16 * 1024 * 1024
MERGED_BYTES = 15_000_000
MERGED_S = 900
LIMIT_S = 300


def sizes() -> Figures:
    """Bytes that an hour takes, on a quiet machine and on a busy one."""
    from benchmarks import tasks_synthetic  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.store.files import sparse_file  # noqa: PLC0415

    figures: Figures = {}
    for name, load in (("quiet", tasks_synthetic.QUIET), ("busy", tasks_synthetic.BUSY)):
        made = tasks_synthetic.stretch(PROCESSES, load, HOUR_S)
        size = len(sparse_file.encode(made, "benchmark"))
        figures[f"{name}_bytes_per_process_sample"] = round(size / (PROCESSES * HOUR_S), 3)
        figures[f"{name}_bytes_per_row"] = round(size / made.rows, 2)
        figures[f"{name}_changing_percent"] = round(100 * made.rows / (PROCESSES * HOUR_S), 1)
    return figures


def written(folders: Folders) -> int:
    """Write the ring of a lane, from one full reading to the next; give how many bytes that were."""
    from benchmarks import tasks_synthetic  # noqa: PLC0415  as above
    from sysmond.base import clock  # noqa: PLC0415
    from sysmond.base.model import Sensitivity  # noqa: PLC0415
    from sysmond.machine.folders import create_stream  # noqa: PLC0415
    from sysmond.records import Records  # noqa: PLC0415
    from sysmond.ring.frame import Identity, Layout  # noqa: PLC0415
    from sysmond.ring.writer import RingWriter  # noqa: PLC0415
    from sysmond.tasks.tables import PROCESS  # noqa: PLC0415

    create_stream(f"{folders.runtime}/sampler", "public/process")
    # As this process is alive when the ring is sealed, it is sealed up to its last full reading.
    identity = Identity(clock.boot_id(), "sampler", Sensitivity.PUBLIC, os.getppid(), 1)
    path = f"{folders.runtime}/sampler/public/process/1.ring"
    ring = RingWriter(path, RING_BYTES, identity, [Layout(PROCESS, clock.SECOND_NS)])
    ring.clock(clock.Relation(0, time.time_ns(), 0))
    stride = struct.calcsize(PROCESS.packing.format) if PROCESS.packing else 0
    load = tasks_synthetic.QUIET._replace(changing=SEALED_CHANGING)
    for second, is_full, rows in tasks_synthetic.seconds(PROCESSES, load, SEALED_S + 1):
        records = Records(rows.tobytes(), is_full, 0, PROCESSES)
        ring.records(0, (second + 1) * clock.SECOND_NS, [records], stride)
    return ring.written


def sealed(folders: Folders) -> Figures:
    """Seal it."""
    from sysmond.archiver import seal_job as seal  # noqa: PLC0415
    from sysmond.base.model import Sensitivity  # noqa: PLC0415
    from sysmond.store import archive  # noqa: PLC0415  as above
    from sysmond.store.files import sparse_file  # noqa: PLC0415  as above

    begin_ns = time.process_time_ns()
    seal.seal(folders)
    cost_ns = time.process_time_ns() - begin_ns
    folder = archive.ram_folder(folders, Sensitivity.PUBLIC, "process")
    (name,) = archive.names(folder)
    with sparse_file.open_file(f"{folder}/{name.file}") as opened:
        assert len(opened.ticks) == SEALED_S
    return {
        "seal_cpu_ms": round(cost_ns / 1e6, 1),
        "seal_peak_mb": _peak_mb(),
        "seal_file_mb": round(os.path.getsize(f"{folder}/{name.file}") / 1e6, 3),
    }


def pieces(folder: str) -> int:
    """Write files of a busy machine, as many as become one; give how many."""
    from benchmarks import tasks_synthetic  # noqa: PLC0415  as above
    from sysmond.store.archive import Name  # noqa: PLC0415
    from sysmond.store.files import sparse_file  # noqa: PLC0415

    size = number = 0
    while size < MERGED_BYTES:
        made = tasks_synthetic.stretch(2 * PROCESSES, tasks_synthetic.BUSY, MERGED_S, number, number * MERGED_S)
        image = sparse_file.encode(made, "benchmark")
        size, number = size + len(image), number + 1
        with open(f"{folder}/{Name(tasks_synthetic.BOOT, number, number).file}", "wb") as piece:
            piece.write(image)
    return number


def merged(folder: str) -> Figures:
    """Merge them."""
    from sysmond.archiver import merge_job  # noqa: PLC0415
    from sysmond.archiver.coding import SPARSE  # noqa: PLC0415
    from sysmond.store import archive  # noqa: PLC0415  as above
    from sysmond.store.files import sparse_file  # noqa: PLC0415  as above

    begin_ns = time.process_time_ns()
    name = merge_job.merge_files(SPARSE, folder, archive.names(folder), 0o644)
    figures = {
        "merge_cpu_s": round((time.process_time_ns() - begin_ns) / 1e9, 2),
        "merge_peak_mb": _peak_mb(),
        "merge_file_mb": round(os.path.getsize(f"{folder}/{name.file}") / 1e6, 2),
    }
    with sparse_file.open_file(f"{folder}/{name.file}") as opened:
        return {**figures, "merge_rows": opened.rows}


def _peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


def measured() -> Figures:
    """Do all of it, each in a child."""
    with measure.workplace() as folders:
        figures = measure.in_child(sizes, LIMIT_S)
        ring_bytes = measure.in_child(lambda: written(folders), LIMIT_S)
        figures |= measure.in_child(lambda: sealed(folders), LIMIT_S)
        folder = f"{folders.runtime}/pieces"
        os.mkdir(folder)
        number = measure.in_child(lambda: pieces(folder), LIMIT_S)
        figures |= measure.in_child(lambda: merged(folder), LIMIT_S)
        return {**figures, "ring_mb": round(ring_bytes / 1e6, 2), "pieces": number}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = []
    for name in ("quiet", "busy"):
        changing, sample, row = (
            figures[f"{name}_{what}"] for what in ("changing_percent", "bytes_per_process_sample", "bytes_per_row")
        )
        said = f"a {name} machine, {changing:.0f} % of processes change a second"
        lines.append((said, f"{sample:.2f} B a process-sample, {row:.1f} B a row"))
    seal = f"{figures['ring_mb']:.1f} MB become {figures['seal_file_mb']:.2f} MB"
    cost = f"{figures['seal_cpu_ms']:.0f} ms CPU, peak {figures['seal_peak_mb']:.0f} MB"
    lines.append(
        (f"sealing {SEALED_S // 60} min of {PROCESSES} processes, {SEALED_CHANGING:.0%} changing", f"{seal}: {cost}")
    )
    what = f"merging {figures['pieces']} files, {figures['merge_rows'] / 1e6:.1f} million rows"
    cost = f"{figures['merge_cpu_s']:.1f} s CPU, peak {figures['merge_peak_mb']:.0f} MB"
    return [*lines, (what, f"{figures['merge_file_mb']:.1f} MB: {cost}")]


if __name__ == "__main__":
    options = measure.arguments(__doc__ or "").parse_args()
    measure.run(measured, rows, as_json=options.json)
