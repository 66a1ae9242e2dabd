# SPDX-License-Identifier: Apache-2.0
"""Cut the power of a real file system at random moments, replay its journal, and look at what is left.

A writer flushes segments to an ext4 file system on a loop device and says of each when it is done. The file
system is then shut down without flushing its log (the EXT4_IOC_SHUTDOWN ioctl), mounted again, and must
hold every segment that was acknowledged, byte for byte, and no broken one.

    python tests/faults/power_cut.py [--rounds 20] [--json]     (as root)
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

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import numpy as np

from sysmond import archive, segment
from sysmond.archive import Name
from sysmond.clock import Relation
from sysmond.errors import Error
from sysmond.folders import Folders, create_classes
from sysmond.model import Metric, Semantics, Sensitivity, Table
from sysmond.recording import Key, MemoryBlock, Recording, Strand
from tests.faults.trial import Totals, cannot_mount, main

EXT4_IOC_SHUTDOWN = 0x8004587D
SHUTDOWN_WITHOUT_LOG = 2
IMAGE_BYTES = 64 * 1024 * 1024
WRITES_S_MAX = 0.6
BOOT = "0123456789abcdef" * 2


def image_of(number: int) -> bytes:
    """A small segment that only ``number`` has."""
    table = Table("cut", (Metric("value", "1", Semantics.GAUGE, "A number."),), doc="For a test.")
    ticks = np.arange(60, dtype=np.int64) * 10**9 + number * 10**11
    values = np.random.default_rng(number).integers(0, 1000, (1, 60))
    block = MemoryBlock(Strand(BOOT, "sampler", 1, 10**9), ticks, (Key("cut", "value", ""),), values)
    clocks = {BOOT: [Relation(0, 10**18, 0)]}
    return segment.encode(Recording(Sensitivity.PUBLIC, {"cut": table}, [block], {}, clocks, []), "power_cut")


def write_until_killed(folders: Folders, images: list[bytes], acknowledge: int) -> None:
    """Seal into RAM and flush, over and over; acknowledge what the flush has let go of in RAM."""
    ram = archive.ram_folder(folders, Sensitivity.PUBLIC)
    for number, image in enumerate(images, 1):
        archive.publish(ram, Name(BOOT, number, number).file, image, 0o644)
        try:
            archive.flush(folders)
        except OSError:
            os._exit(0)  # The power is gone.
        os.write(acknowledge, struct.pack("=I", number))
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


def one_round(cut: Cut, runtime: str, images: list[bytes], rng: random.Random) -> dict[str, int]:
    """Write, cut, mount again, look."""
    shutil.rmtree(runtime, ignore_errors=True)
    folders = Folders(f"{cut.mount_point}/state", runtime)
    cut.mount()
    shutil.rmtree(folders.state, ignore_errors=True)
    create_classes(f"{runtime}/archiver")
    create_classes(folders.state, archive.FINEST_TIER)
    _run("sync", "-f", cut.mount_point)  # Of this one alone: others are being watched.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_until_killed(folders, images, writing)
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
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    broken = 0
    for file in archive.files(folder):
        try:
            with segment.Segment(f"{folder}/{file}") as opened:
                for block in opened.recording.blocks:
                    block.read(range(len(block.keys)))
        except Error:
            broken += 1
    lost = 0
    for number in acknowledged:
        try:
            with open(f"{folder}/{Name(BOOT, number, number).file}", "rb") as kept:
                lost += kept.read() != images[number - 1]
        except FileNotFoundError:
            lost += 1
    return {"acknowledged": len(acknowledged), "lost": lost, "broken_files": broken}


def run(rounds: int, seed: int) -> Totals:
    """Cut the power ``rounds`` times and add up what was found."""
    rng = random.Random(seed)
    images = [image_of(number) for number in range(1, 200)]
    totals = {"rounds": rounds, "acknowledged": 0, "lost": 0, "broken_files": 0}
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as base,
        tempfile.TemporaryDirectory(dir="/dev/shm") as runtime,
    ):
        cut = Cut(base)
        for _ in range(rounds):
            for key, value in one_round(cut, f"{runtime}/run", images, rng).items():
                totals[key] += value
    problems = [f"{totals[bad]} {bad}" for bad in ("lost", "broken_files") if totals[bad]]
    return {**totals, "problems": problems if totals["acknowledged"] else [*problems, "nothing was ever acknowledged"]}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=20, missing=lambda: cannot_mount("mkfs.ext4", "losetup")))
