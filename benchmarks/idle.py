# SPDX-License-Identifier: Apache-2.0
"""What reaches the disk of a machine that does nothing, and what an hour takes in RAM meanwhile.

A daemon, all as it is by default, records on an ext4 file system that nobody else uses: a loop device, whose own
counters (/sys/block/NAME/stat, Documentation/block/stat.rst) tell what is written to it. Once what belongs to the
start is on disk, that must be nothing for as long as it records; nor may any part have caused a write to another
disk (write_bytes of /proc/PID/io). sync(2) of whatever program sends an empty flush to every disk there is: those
are requests without bytes. Afterwards it is ended, which flushes: then every second must be on that disk.
What an hour takes in RAM is that of series with the statistics of recorded data (``--data``, as capacity.py has it), or
of a made-up mixture, sealed as the archiver does it. As root, for the mount.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders
from tests.faults import trial

SECONDS = 3600
SERIES, SEAL_S = 300, 600
IMAGE_BYTES = 512 * 1024 * 1024
SECTOR_BYTES = 512  # The kernel counts 512-byte sectors, whatever the device's own size.
# The journal commits 5 s after a write, and the write-back ends within 30 s.
QUIET_S, QUIET_WITHIN_S = 40.0, 300.0
FINISH_S = 120
PATH = "memory/total"


@contextmanager
def disk(folder: str) -> Iterator[str]:
    """A file system of its own, mounted below ``folder``, with its image in RAM; give its mount point."""
    point, image = f"{folder}/disk", f"{folder}/image"
    os.mkdir(point)
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    # Nothing is left for the kernel to initialize later.
    trial.command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
    trial.command("mount", "-o", "loop", image, point)
    try:
        yield point
    finally:
        trial.command("umount", point)


class Requests(NamedTuple):
    """What the device of a file system has completed. A flush that had nothing to write counts as a write too."""

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int

    def since(self, before: "Requests") -> "Requests":
        """What came since then."""
        return Requests(*(after - earlier for after, earlier in zip(self, before, strict=True)))


def requests(point: str) -> Requests:
    """Ask the kernel."""
    device = os.stat(point).st_dev
    with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.read().split()]
    return Requests(fields[0], fields[4], fields[2] * SECTOR_BYTES, fields[6] * SECTOR_BYTES)


def written_bytes(pids: dict[str, int]) -> dict[str, int]:
    """What each part has caused to be written to whatever disk (/proc/PID/io)."""
    written = {}
    for part, pid in pids.items():
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            written[part] = next(int(line.split()[1]) for line in file if line.startswith("write_bytes:"))
    return written


def until_quiet(point: str, file: str, quiet_s: float) -> None:
    """Wait until the first flush is over and the disk has been still for so long.

    :raises RuntimeError: where it does not come to rest.
    """
    limit = time.monotonic() + QUIET_WITHIN_S
    while not os.path.exists(file):
        time.sleep(0.1)
        if time.monotonic() > limit:
            raise RuntimeError(f"{file}: nothing was flushed within {QUIET_WITHIN_S:.0f} s")
    last, since = requests(point).written_bytes, time.monotonic()
    while time.monotonic() - since < quiet_s:
        if time.monotonic() > limit:
            raise RuntimeError(f"the disk does not come to rest within {QUIET_WITHIN_S:.0f} s")
        time.sleep(0.5)
        trial.command("sync", "-f", point)  # What a flush left to the kernel is not to come later.
        if (now := requests(point).written_bytes) != last:
            last, since = now, time.monotonic()


def segments(folders: Folders) -> tuple[int, int]:
    """How many segments wait in RAM, and their bytes."""
    folder = f"{folders.runtime}/archiver"
    paths = [f"{where}/{name}" for where, _, names in os.walk(folder) for name in names if name.endswith(".h5")]
    sizes = [os.path.getsize(path) for path in paths]
    return len(sizes), sum(sizes)


def idle(seconds: int) -> Figures:
    """Record beside a disk that nobody uses."""
    with (
        tempfile.TemporaryDirectory(prefix="sysmond-idle-", dir="/dev/shm") as base,
        disk(base) as point,
        measure.daemon(seconds + 3 * FINISH_S + int(QUIET_WITHIN_S), state=f"{point}/state") as daemon,
    ):
        daemon.wait_for_ring()
        until_quiet(point, f"{daemon.folders.state}/plan.json", min(QUIET_S, seconds))
        pids = daemon.pids()
        begin_s = time.time()
        disk_before, parts_before = requests(point), written_bytes(pids)
        time.sleep(seconds)
        disk_after, parts_after = requests(point), written_bytes(pids)
        end_s = time.time()
        waiting, waiting_bytes = segments(daemon.folders)
        daemon.process.terminate()
        code = daemon.process.wait(FINISH_S)
        at_end = requests(point).since(disk_after)
        ticks = measure.in_child(partial(_ticks, daemon.folders, begin_s, end_s), 120)
    return {
        "seconds": seconds,
        **disk_after.since(disk_before)._asdict(),
        "part_written_bytes": sum(parts_after.values()) - sum(parts_before.values()),
        "written_bytes_at_end": at_end.written_bytes,
        "ticks": ticks,
        "exit_code": code,
        "waiting_segments": waiting,
        "waiting_bytes": waiting_bytes,
    }


def _ticks(folders: Folders, begin_s: float, end_s: float) -> int:
    from sysmond.history import Archive  # noqa: PLC0415  its imports are the child's

    start_ns, end_ns = int(begin_s * measure.SECOND_NS), int(end_s * measure.SECOND_NS)
    return len(Archive(folders).select(PATH, start=start_ns, end=end_ns, raw=True).times_ns)


def in_ram(data: str | None, series: int) -> Figures:
    """Seal an hour of so many series each time the archiver would, and weigh what is in RAM then."""
    from benchmarks import capacity, synthetic  # noqa: PLC0415  as above
    from sysmond.base.model import Semantics  # noqa: PLC0415  as above

    made = capacity.recording(data, series, 0, SECONDS)
    block = made.blocks[0]
    counters = {
        (table.name, metric.name)
        for table in made.tables.values()
        for metric in table.metrics
        if metric.semantics is Semantics.COUNTER
    }
    counting = [(key.table, key.metric) in counters for key in block.keys]
    with measure.workplace() as folders:
        folder = f"{folders.runtime}/sampler/public"
        for ticks, _ in enumerate(
            synthetic.grow_ring(folder, block.read(range(series)), counting, first_tick_s=100), 1
        ):
            if ticks % SEAL_S == 0:
                measure.job_cpu_ns("seal", folders)
        count, size_bytes = segments(folders)
    if count != SECONDS // SEAL_S:
        raise RuntimeError(f"{SECONDS // SEAL_S} seals left {count} segments")
    return {"ram_series": series, "ram_segments": count, "ram_bytes": size_bytes}


def measured(seconds: int, data: str | None) -> Figures:
    """Measure both."""
    if reason := trial.cannot_mount("mkfs.ext4", "losetup"):
        raise RuntimeError(reason)
    return in_ram(data, SERIES) | idle(seconds)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        (
            "idle disk",
            f"{figures['written_bytes']} B written, {figures['read_bytes']} B read in {figures['seconds']} s",
        ),
        ("requests", f"{figures['writes']} writes and flushes, {figures['reads']} reads"),
        ("parts, to any disk", f"{figures['part_written_bytes']} B"),
        ("in RAM by then", f"{figures['waiting_segments']} segments, {figures['waiting_bytes'] / 1e3:.0f} kB"),
        ("ended", f"exit code {figures['exit_code']}, {figures['ticks']} ticks kept"),
        ("written then", f"{figures['written_bytes_at_end'] / 1e3:.0f} kB"),
        (
            f"an hour of {figures['ram_series']} series in RAM",
            f"{figures['ram_bytes'] / 1e6:.3f} MB in {figures['ram_segments']} segments",
        ),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    parser.add_argument("--data", metavar="FILE.npz", help="recorded data, as storage.py reads it; default made up")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds, options.data), rows, as_json=options.json)
