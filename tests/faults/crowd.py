# SPDX-License-Identifier: Apache-2.0
"""Ten thousand segments, files of other programs, readers that never let go or die: all beside each other.

python tests/faults/crowd.py [--rounds 10000] [--json]      (rounds: segments in the folder)
"""

import mmap
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import h5py
import numpy as np

from sysmond.archiver import merge_job
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import Sensitivity
from sysmond.plan import plan
from sysmond.ring.progress import ring_files
from sysmond.store import archive
from sysmond.store.archive import Name
from sysmond.store.files.dense_file import Segment, encode
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand
from tests.faults.trial import Totals, main
from tests.support.machine import BOOT, NOON_NS, TABLE, Machine, counter

PATH = "disk/read_bytes@sda"
# It takes 3 ms where nobody else needs the processor; what this is to find grows with the square.
ANSWER_S_PER_SEGMENT = 0.02
ROOM_BYTES = 10**9


def _values(machine: Machine) -> list[int]:
    column = machine.archive.select(PATH, raw=True).columns[0]
    return [] if column.integers is None else column.integers.tolist()


def ten_thousand(root: Path, count: int) -> tuple[Totals, list[str]]:
    """Let a folder fill with segments of one tick that no merge ever came to; answer, and then merge them."""
    machine = Machine(root)
    # Nothing is to be forgotten: so many small files take more than the usual budget until they are merged.
    usual = plan.builtin()
    plan.write(usual._replace(archiver=usual.archiver._replace(size_1s_bytes=ROOM_BYTES)), f"{root}/run/plan.json")
    folder = archive.disk_folder(machine.folders, Sensitivity.PUBLIC)
    keys = (SeriesKey(TABLE.name, "read_bytes", "sda"), SeriesKey(TABLE.name, "queue", "sda"))
    began_s = time.monotonic()
    for number in range(1, count + 1):
        ticks = np.array([number * SECOND_NS], np.int64)
        block = MemoryBlock(Strand(BOOT, "sampler", 1, SECOND_NS), ticks, keys, np.array([[counter(number)], [number]]))
        clocks = {BOOT: [Relation(0, NOON_NS, 0)]}
        image = encode(Recording(Sensitivity.PUBLIC, {TABLE.name: TABLE}, [block], {}, clocks, []), "crowd")
        Path(folder, Name(BOOT, number, number).file).write_bytes(image)
    written_s = time.monotonic() - began_s
    problems = []
    right = [counter(second) for second in range(1, count + 1)]
    began_s = time.process_time()  # Others may need the processors as well.
    if _values(machine) != right:
        problems.append(f"{count} segments: rows are missing")
    answered_s = time.process_time() - began_s
    if answered_s > max(5.0, count * ANSWER_S_PER_SEGMENT):
        problems.append(f"{count} segments: an answer takes {answered_s:.1f} s of CPU")
    began_s = time.monotonic()
    merge_job.merge(machine.folders)
    merged_s = time.monotonic() - began_s
    if _values(machine) != right:
        problems.append(f"{count} segments: rows are missing once they are merged")
    left = len(archive.files(folder))
    if left > max(8, count // 50):
        problems.append(f"{count} segments: {left} are left by a merge")
    return {
        "segments": count,
        "write_s": round(written_s, 1),
        "answer_cpu_s": round(answered_s, 2),
        "merge_s": round(merged_s, 1),
        "left": left,
    }, problems


def strangers(root: Path) -> list[str]:
    """Files that others left in our folders are neither read as ours, nor in the way, nor removed."""
    machine = Machine(root)
    strange = []
    for sensitivity in Sensitivity:
        for folder in (
            archive.disk_folder(machine.folders, sensitivity),
            archive.ram_folder(machine.folders, sensitivity),
        ):
            with h5py.File(f"{folder}/photographs.h5", "w") as file:
                file["pixels"] = np.arange(10)
            Path(folder, "README").write_text("not ours\n")
            Path(folder, f"{Name('c' * 32, 1, 1).file}").write_bytes(b"#!/bin/sh\n")
            strange += [f"{folder}/{name}" for name in os.listdir(folder)]
    rings = f"{machine.folders.runtime}/sampler/public"
    for name, content in (("1.ring", b"a wedding ring"), ("2.ring", bytes(100_000)), ("note.txt", b"x")):
        Path(rings, name).write_bytes(content)
        strange.append(f"{rings}/{name}")
    writer = machine.start(9)
    writer.tick(range(10, 40))
    problems = []
    for job in (Machine.seal, Machine.flush, Machine.merge):
        try:
            job(machine)
        except OSError as failure:
            problems.append(f"files of others: {job.__name__}: {failure}")
    merge_job.merge(machine.folders)
    if _values(machine) != [counter(second) for second in range(10, 40)]:
        problems.append("files of others: rows are missing beside them")
    if not machine.files():
        problems.append("files of others: nothing reached the disk beside them")
    gone = [path for path in strange if not os.path.exists(path)]
    # What is called as ours are may be moved on like ours.
    return problems + [f"files of others: {path} is gone" for path in gone if "c" * 32 not in path]


def held_open(root: Path) -> list[str]:
    """A reader keeps a segment open for ever: it still reads the same, and nobody waits for it."""
    machine = Machine(root)
    writer = machine.start(0.5)
    for first in (1, 31):
        writer.tick(range(first, first + 30))
        machine.seal()
    (ram, _) = sorted(Path(archive.ram_folder(machine.folders, Sensitivity.PUBLIC)).glob("*.h5"))
    with Segment(str(ram)) as opened:
        block = opened.recording.blocks[0]
        row = [key.metric for key in block.keys].index("read_bytes")
        machine.flush()
        on_disk = [Segment(str(path)) for path in machine.files()]
        machine.merge()
        problems = [] if len(machine.files()) == 1 else ["held open: not merged"]
        if block.read([row])[0].tolist() != [counter(second) for second in range(1, 31)]:
            problems.append("held open: the reader finds other values in its file")
        for each in on_disk:
            for held in each.recording.blocks:
                held.read(range(len(held.keys)))
            each.close()
    if _values(machine) != [counter(second) for second in range(1, 61)]:
        problems.append("held open: rows are missing")
    return problems


def dying_readers(root: Path) -> list[str]:
    """Readers that are killed while they have the ring mapped leave no trace in it."""
    machine = Machine(root)
    writer = machine.start(0.5)
    writer.tick(range(1, 31))
    (path,) = ring_files(machine.folders)
    for _ in range(5):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with open(path, "r+b") as file:
                held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                os.write(writing, held[:8])
                signal.pause()
        os.read(reading, 8)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
    writer.tick(range(31, 61))
    if _values(machine) != [counter(second) for second in range(1, 61)]:
        return ["dying readers: rows are missing"]
    machine.seal()
    return []


def run(rounds: int, seed: int) -> Totals:
    """Try all of it."""
    with tempfile.TemporaryDirectory(prefix="sysmond-crowd-", dir="/dev/shm") as base:
        totals, problems = ten_thousand(Path(base, "many"), rounds)
        shutil.rmtree(f"{base}/many")
        problems += strangers(Path(base, "strangers"))
        problems += held_open(Path(base, "open"))
        problems += dying_readers(Path(base, "dying"))
    return {**totals, "problems": problems}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=10_000))
