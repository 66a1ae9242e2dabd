# SPDX-License-Identifier: Apache-2.0
"""The bound of memory: whatever meets it ends in a line with the file's name, and the others' turn comes."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity, Table
from sysmond.errors import CorruptError, Error
from sysmond.machine import memory
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store import archive
from sysmond.store.stretches.stretch import About, Incarnation, Readings
from sysmond.tasks import tables
from tests.support.longarchive import BOOT, memory_stretch, put, relation
from tests.support.machine import NOON_NS, TABLE, Machine, Writer

MIB = 1024 * 1024


def honest(folders: Folders, table: Table, keys: int, readings: int, sequence: int) -> str:
    """A file of so many keys, each with a row at each reading."""
    ticks = (np.arange(readings) + sequence * readings) * SECOND_NS
    zeros = np.zeros(readings, np.int64)
    at = np.tile(np.arange(readings), keys)
    columns = {metric.name: np.repeat(np.arange(keys), readings) for metric in table.metrics}
    columns |= {metric.name: 0 * at for metric in table.metrics if metric.is_text}
    columns["id"] = np.repeat(np.arange(keys), readings)
    lives = [Incarnation(0, int(ticks[0]), closed=False)]
    about = About(table, BOOT, "sampler", Sensitivity.PUBLIC, SECOND_NS, lives, [relation()])
    made = memory_stretch(about, Readings(ticks, zeros == 0, zeros, zeros), at, columns, ["text"])
    return put(folders, made, sequence)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Not even a column of three million rows has room; the bound of other tests is what it was."""
    monkeypatch.setattr(memory, "DATA_BYTES_MAX", 32 * MIB)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    yield
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_who_meets_the_bound_names_his_files(little: None) -> None:
    with memory.bounded():
        np.zeros(MIB // 8)
        with pytest.raises(memory.BoundError, match="^/a and 1 others: takes .* 32 MiB"), memory.working_on("/a", "/b"):
            np.zeros(64 * MIB)
    with memory.working_on("/a"):
        np.zeros(64 * MIB)


def test_what_has_no_room_is_not_taken_for_damaged() -> None:
    with pytest.raises(memory.BoundError, match="^/a: ") as bound, memory.working_on("/a"):
        raise CorruptError("/a: could not read") from MemoryError()
    assert not isinstance(bound.value, Error)
    with pytest.raises(CorruptError), memory.working_on("/a"):
        raise CorruptError("/a: could not read") from ValueError()


# In a process of its own: this one has room in what it has let go of.
CHECK = """
import sys
import sysmond.commands.fsck
from sysmond import __main__
from sysmond.machine import memory
memory.DATA_BYTES_MAX = 2 << 20
sys.exit(__main__.main(sys.argv[1:]))
"""
JOB = """
import json, os, sys
from sysmond.archiver import children
from sysmond.archiver import seal_job
from sysmond.machine import memory
from sysmond.machine.folders import Folders
memory.DATA_BYTES_MAX = int(sys.argv[4])
lock = os.open(os.devnull, os.O_RDONLY)
running = children.start({getattr(children, sys.argv[1]): {}}, Folders(*sys.argv[2:4]), 60.0, idle=False, lock=lock)
while not running.listen():
    pass
print(json.dumps(running.end()))
"""


def test_a_check_names_what_it_has_no_room_for_and_goes_on(folders: Folders) -> None:
    large = honest(folders, tables.KERNEL_STACK, 64, 56_000, 1)
    behind = Path(honest(folders, tables.KERNEL_STACK, 2, 10, 2))
    behind.write_bytes(behind.read_bytes()[:1000])
    command = [sys.executable, "-c", CHECK, "fsck", "--state-dir", folders.state, "--runtime-dir", folders.runtime]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 3, done
    first, second, last = done.stdout.splitlines()
    assert last == "2 files read, 2 damaged or unreadable"
    assert first == f"{large}: refused: takes more memory than the 2 MiB allowed; left as it is"
    assert second.startswith(f"{behind}: damaged: ")
    assert (done.returncode, done.stderr) == (3, "")


def job(name: str, folders: Folders, bytes_max: int) -> dict[str, object]:
    """Have a job done by a child, as the archiver does; what it told."""
    command = [sys.executable, "-c", JOB, name, *folders, str(bytes_max)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_a_merge_that_meets_the_bound_fails_once_and_later_ones_go_on(tmp_path: Path) -> None:
    folders = Machine(tmp_path).folders
    large = [honest(folders, tables.CGROUP_NAME, 64, 56_000, sequence) for sequence in (1, 2)]
    small = [
        honest(folders, tables.KERNEL_STACK, 2, 10, sequence) for sequence in range(1, 26)
    ]  # Enough to be rolled up.
    problems = []
    for _ in range(2 * len(large) + 1):
        told = job("merge", folders, 32 * MIB)
        if "problem" not in told:
            break
        assert told["is_outside"] is False, told
        problems.append(str(told["problem"]))
    else:
        pytest.fail(f"it never goes on: {problems}")
    named = [path for path in large for problem in problems if problem.startswith(path)]
    assert len(named) == len(set(named)) == len(problems)
    assert all("takes more memory than the 32 MiB allowed" in problem for problem in problems)
    assert all(Path(path).exists() for path in large)
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, "10s", tables.KERNEL_STACK.name)
    assert list(Path(folder).iterdir())
    assert len(list(Path(small[0]).parent.iterdir())) < len(small)


def test_a_ring_that_meets_the_bound_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    path = f"{machine.folders.runtime}/sampler/public/{SECOND_NS // 2}.ring"
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, SECOND_NS // 2)
    ring = RingWriter(path, 16 * MIB, identity, [Layout(TABLE, SECOND_NS)])
    Writer(ring, NOON_NS).tick(range(1, 10_000), tuple(f"sd{number}" for number in range(20)))
    told = job("seal", machine.folders, MIB)
    assert str(told["problem"]).startswith(f"{path}: takes more memory than")
    assert (told["is_outside"], told["rings"]) == (False, [path])
