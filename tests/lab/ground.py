# SPDX-License-Identifier: Apache-2.0
"""Cgroups that the lab makes, what is recorded of them, and what is done in them."""

import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from struct import pack
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT
from sysmond.errors import Error
from sysmond.history import Archive
from tests.lab.files import Cells
from tests.support.children import child
from tests.support.waiting import wait_until
from tests.support.whole import Recorder

TOP = Path("/sys/fs/cgroup")
DISK = "/dev/vdb"
MIB = 1 << 20
# From <linux/fs.h> and <linux/mman.h>.
BLKDISCARD = 0x1277
MAP_HUGETLB = 0x40000


class Row(NamedTuple):
    """A recorded row: when, in UTC nanoseconds, and what; absent cells are None."""

    time_ns: int
    cells: Cells


class Ground:
    """The cgroup below which all is made, and a daemon that records it."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self.folder, self.recorder = folder, recorder

    def instance(self, folder: Path) -> str:
        return f"/{folder.relative_to(TOP)}"

    def make(self, name: str, **files: str) -> Path:
        """Make a cgroup, its neighbours' controllers on, and write to its files: ``cpu_max`` is cpu.max."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        for above in reversed([each for each in folder.parents if self.folder in each.parents]):
            switch_on(above)
        for file, content in files.items():
            (folder / file.replace("_", ".")).write_text(content)
        return folder

    def rows(self, table: str, instance: str, since_ns: int = 0) -> list[Row]:
        """What is recorded of one thing, lately or since some time."""
        try:
            found = Archive(self.recorder.folders).select(
                f"{table}/*@{instance}", raw=True, start=since_ns or time.time_ns() - 20 * SECOND_NS
            )
        except Error:
            return []
        columns = {each.path.removeprefix(f"{table}/").partition("@")[0]: each for each in found.columns}
        rows = []
        for number, moment in enumerate(found.times.astype(int).tolist()):
            cells: Cells = {}
            for name, column in columns.items():
                if column.texts is not None:
                    cells[name] = column.texts[number]
                else:
                    assert column.integers is not None
                    value = int(column.integers[number])
                    cells[name] = None if value == ABSENT else value
            if any(value is not None for value in cells.values()):
                rows.append(Row(moment, cells))
        return rows

    def last(self, table: str, instance: str) -> Cells:
        rows = self.rows(table, instance)
        return rows[-1].cells if rows else {}

    def comes_to(self, table: str, instance: str, wanted: Callable[[], Mapping[str, object]]) -> None:
        """Wait until the last row is what is wanted; of what is at rest it must come to that."""

        def difference() -> dict[str, object]:
            cells, want = self.last(table, instance), wanted()
            return {name: (cells.get(name), value) for name, value in want.items() if cells.get(name) != value}

        wait_until(lambda: not difference(), lambda: f"{table} of {instance}: (recorded, told): {difference()}")


def number(cell: int | str | None) -> int:
    assert isinstance(cell, int), cell
    return cell


def switch_on(folder: Path) -> None:
    """Have all controllers in the cgroups below a folder."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(folder: Path) -> None:
    """Remove a cgroup, once its last process is gone for good."""

    def gone() -> bool:
        with suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    (folder / "cgroup.kill").write_text("1")
    wait_until(gone)


@contextmanager
def inside(folder: Path, does: Callable[[], object]) -> Iterator[int]:
    """Have a child do something in a cgroup, and rest there."""

    def joins() -> None:
        (folder / "cgroup.procs").write_text("0")
        does()

    with child(joins) as pid:
        yield pid


def burns(cpu_s: float) -> Callable[[], None]:
    def does() -> None:
        until = time.process_time() + cpu_s
        while time.process_time() < until:
            os.getppid()

    return does


def holds(size: int) -> Callable[[], None]:
    """Hold memory that is no page like another, and can be compressed."""

    def does() -> None:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at in range(0, size, mmap.PAGESIZE):
            memory[at : at + 8] = pack("<Q", at + 1)
            memory[at + 2048 : at + 2056] = pack("<Q", ~at & 2**63 - 1)
        does.held = memory  # type: ignore[attr-defined]

    return does


def moves() -> None:
    """Write and read without the page cache, and discard: how much, and in how many operations, is certain."""
    page = mmap.mmap(-1, 65536)
    descriptor = os.open(DISK, os.O_RDWR | os.O_DIRECT)
    for number in range(64):
        os.pwritev(descriptor, [page], number * 65536)
    for number in range(32):
        os.preadv(descriptor, [page], number * 65536)
    ioctl(descriptor, BLKDISCARD, pack("QQ", 8 * MIB, MIB))
    os.close(descriptor)


def forks() -> None:
    """Fork until no more is allowed."""
    with suppress(BlockingIOError):
        while True:
            if os.fork() == 0:
                signal.pause()
                os._exit(0)


def maps_huge_pages() -> None:
    memory = mmap.mmap(-1, 4 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
    memory[0] = memory[2 * MIB] = 1
    maps_huge_pages.held = memory  # type: ignore[attr-defined]
