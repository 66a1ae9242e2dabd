# SPDX-License-Identifier: Apache-2.0
"""Cut the power of a real file system at random moments, replay its journal, and look at what is left.

A writer flushes segments to an ext4 file system on a loop device and says of each when it is done; in every other
round it also rolls them up and merges them as it goes. The file system is then shut down without flushing its log
(the EXT4_IOC_SHUTDOWN ioctl), mounted again, and must hold every segment that was acknowledged, byte for byte, or
merged, row for row; of no tier may a file be broken, and the rows in steps of a minute must add up.

    python tests/faults/power_cut.py [--rounds 40] [--json]     (as root)
"""

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import numpy as np

from sysmond.archiver import merge_job
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, FINEST_TIER, TIERS_NS, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.commands import tamper
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.store import archive
from sysmond.store.archive import Name
from sysmond.store.files import dense_file
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand
from tests.faults.trial import Totals, cannot_mount, main, wait_until_released

EXT4_IOC_SHUTDOWN = 0x8004587D
SHUTDOWN_WITHOUT_LOG = 2
IMAGE_BYTES = 64 * 1024 * 1024
WRITES_S_MAX = 0.6
ROUNDS = 40
BOOT = "0123456789abcdef" * 2
UTC_NS = 10**18
TICKS = 60
FLUSHES_PER_MERGE = 2


def ticks_of(number: int) -> Int64Array:
    """The ticks of a segment, boot time."""
    return np.arange(TICKS, dtype=np.int64) * SECOND_NS + number * 100 * SECOND_NS


def values_of(number: int) -> Int64Array:
    """Its values."""
    return np.random.default_rng(number).integers(0, 1000, TICKS)


def image_of(number: int) -> bytes:
    """A small segment that only ``number`` has."""
    table = Table("cut", (Metric("value", "1", Semantics.GAUGE, "A number."),), doc="For a test.")
    strand = Strand(BOOT, "sampler", 1, SECOND_NS)
    block = MemoryBlock(strand, ticks_of(number), (SeriesKey("cut", "value", ""),), values_of(number)[None])
    clocks = {BOOT: [Relation(0, UTC_NS, 0)]}
    return dense_file.encode(Recording(Sensitivity.PUBLIC, {"cut": table}, [block], {}, clocks, []), "power_cut")


def write_until_killed(folders: Folders, images: list[bytes], acknowledge: int, *, merging: bool) -> None:
    """Seal into RAM and flush, over and over; acknowledge what the flush has let go of in RAM."""
    ram = archive.ram_folder(folders, Sensitivity.PUBLIC)
    for number, image in enumerate(images, 1):
        archive.publish(ram, Name(BOOT, number, number).file, image, 0o644)
        try:
            archive.flush(folders)
            os.write(acknowledge, struct.pack("=I", number))
            if merging and not number % FLUSHES_PER_MERGE:
                merge_job.merge(folders)
        except (OSError, Error):
            os._exit(0)  # The power is gone.
    os._exit(0)


class Cut:
    """One file system that loses its power again and again."""

    def __init__(self, base: str) -> None:
        self.image = f"{base}/disk.img"
        self.mount_point = f"{base}/mnt"
        os.mkdir(self.mount_point)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", self.image)

    def mount(self) -> None:
        """Mount it, anew: not the one that lost its power."""
        wait_until_released(self.image)
        _run("mount", "-o", "loop", self.image, self.mount_point)

    def unmount(self) -> None:
        _run("umount", self.mount_point)

    def lose_power(self) -> None:
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("=I", SHUTDOWN_WITHOUT_LOG))
        finally:
            os.close(descriptor)


def _run(*command: str) -> None:
    environment = {**os.environ, "PATH": "/sbin:/usr/sbin:/bin:/usr/bin"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def one_round(cut: Cut, runtime: str, images: list[bytes], rng: random.Random, *, merging: bool) -> dict[str, int]:
    """Write, cut, mount again, look."""
    shutil.rmtree(runtime, ignore_errors=True)
    folders = Folders(f"{cut.mount_point}/state", runtime)
    cut.mount()
    shutil.rmtree(folders.state, ignore_errors=True)
    create_classes(f"{runtime}/archiver")
    create_classes(folders.state, FINEST_TIER)
    _run("sync", "-f", cut.mount_point)  # Of this one alone: others are being watched.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_until_killed(folders, images, writing, merging=merging)
    os.close(writing)
    time.sleep(rng.uniform(0, WRITES_S_MAX))
    cut.lose_power()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    acknowledged = [number for (number,) in struct.iter_unpack("=I", said)]
    cut.unmount()
    cut.mount()
    try:
        return _look(folders, images, acknowledged)
    finally:
        cut.unmount()


def _look(folders: Folders, images: list[bytes], acknowledged: list[int]) -> dict[str, int]:
    shutil.rmtree(folders.runtime)  # It was RAM.
    broken = merged = 0
    for tier in TIERS_NS:
        folder = archive.disk_folder(folders, Sensitivity.PUBLIC, tier)
        for file in archive.files(folder):
            merged += tier != FINEST_TIER
            try:
                tamper.contents(f"{folder}/{file}")
            except Error:
                broken += 1
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    found, summed = _rows(folders) if archive.files(folder) else ({}, 0)
    lost = 0
    for number in acknowledged:
        try:
            with open(f"{folder}/{Name(BOOT, number, number).file}", "rb") as kept:
                lost += kept.read() != images[number - 1]
        except FileNotFoundError:
            right = zip((ticks_of(number) + UTC_NS).tolist(), values_of(number).tolist(), strict=True)
            lost += any(found.get(tick) != value for tick, value in right)
    return {
        "acknowledged": len(acknowledged),
        "lost": lost,
        "broken_files": broken,
        "tier_files": merged,
        "wrong_sums": int(summed != sum(found.values())),
    }


def _rows(folders: Folders) -> tuple[dict[int, int], int]:
    """Each row by its time, and what the tiers say that they sum up to."""
    history = Archive(folders)
    result = history.select("cut/value", start=0, end=TIME_MAX_NS - 1, raw=True)
    values = result.columns[0].integers
    found = {} if values is None else dict(zip(result.times_ns.tolist(), values.tolist(), strict=True))
    buckets = history.select("cut/value", start=0, end=TIME_MAX_NS - 1, step="1min", stat="sum").columns[0].integers
    return found, 0 if buckets is None else sum(value for value in buckets.tolist() if value != ABSENT)


def run(rounds: int, seed: int) -> Totals:
    """Cut the power ``rounds`` times and add up what was found."""
    rng = random.Random(seed)
    images = [image_of(number) for number in range(1, 200)]
    totals = Counter(rounds=rounds)
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as base,
        tempfile.TemporaryDirectory(dir="/dev/shm") as runtime,
    ):
        cut = Cut(base)
        for number in range(rounds):
            totals.update(one_round(cut, f"{runtime}/run", images, rng, merging=number % 2 == 1))
    problems = [f"{totals[bad]} {bad}" for bad in ("lost", "broken_files", "wrong_sums") if totals[bad]]
    wanted = ("acknowledged", "tier_files") if rounds >= ROUNDS else ("acknowledged",)
    problems += [f"no {good} at all" for good in wanted if not totals[good]]
    return {**totals, "problems": problems}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=ROUNDS, missing=lambda: cannot_mount("mkfs.ext4", "losetup")))
