# SPDX-License-Identifier: Apache-2.0
"""What sysmond itself costs: the ``self`` table.

Sources: getrusage(2) and /proc/PID/stat, /proc/PID/statm (Documentation/filesystems/proc.rst).
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from sysmond.base.model import ABSENT, Metric, Semantics, Table
from sysmond.machine import note

PARTS = ("archiver", "daemon", "bus")
"""The parts that do not sample; each leaves its process id in its runtime folder."""

PID_FILE = "pid"
_PID_LENGTH_MAX = 32
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HERTZ = os.sysconf("SC_CLK_TCK")

SELF = Table(
    "self",
    per="part",
    doc="What sysmond itself costs, by part and, as probe:NAME, by probe.",
    metrics=(
        Metric("cpu", "s", Semantics.COUNTER, "Processor time used, with that of finished children.", 6, "getrusage"),
        Metric("rss", "B", Semantics.GAUGE, "Resident memory, shared pages included.", 0, "/proc/PID/statm 2"),
        Metric("lateness", "s", Semantics.GAUGE, "How long after its slot the tick began.", 6, "CLOCK_BOOTTIME"),
        Metric("missed", "1", Semantics.COUNTER, "Slots skipped because the process was late.", 0, "CLOCK_BOOTTIME"),
        Metric("dropped", "1", Semantics.COUNTER, "Values or tables that could not be kept.", 0, "ring"),
        Metric("duration", "s", Semantics.COUNTER, "Time spent reading and storing the probe.", 9, "CLOCK_MONOTONIC"),
        Metric("failures", "1", Semantics.COUNTER, "Ticks at which the probe raised an error.", 0, "sampler"),
    ),
)


class Cost:
    """Running counts of a part or a probe."""

    __slots__ = ("dropped", "duration_ns", "failures", "lateness_ns", "missed")

    def __init__(self) -> None:
        """Begin at nothing."""
        self.lateness_ns = 0
        self.missed = 0
        self.dropped = 0
        self.duration_ns = 0
        self.failures = 0

    def row(self) -> tuple[int, ...]:
        """The row of a probe."""
        return (ABSENT, ABSENT, ABSENT, ABSENT, self.dropped, self.duration_ns, self.failures)


def open_memory() -> int:
    """Open what ``own_row`` reads at every tick. Not to be kept over a fork."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def own_row(cost: Cost, memory: int) -> tuple[int, ...]:
    """The row of the calling process; ``memory`` is what ``open_memory`` gave it."""
    return (
        time.process_time_ns() // 1000,
        int(os.pread(memory, 128, 0).split(None, 2)[1]) * _PAGE_BYTES,
        cost.lateness_ns // 1000,
        cost.missed,
        cost.dropped,
        ABSENT,
        ABSENT,
    )


def part_rows(runtime: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The rows of the other parts that are running now."""
    for part in PARTS:
        pid = read_pid(runtime, part)
        if pid is not None and (row := process_row(pid)):
            yield part, row


def process_row(pid: int | str) -> tuple[int, ...] | None:
    """The row of another process; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold anything but ends at the last parenthesis; utime is the 14th field.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = sum(map(int, fields[11:15]))
    return ticks * 1_000_000 // _HERTZ, _resident_bytes(pid), ABSENT, ABSENT, ABSENT, ABSENT, ABSENT


def _resident_bytes(pid: int | str) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read(128).split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return ABSENT


def read_pid(runtime: str, part: str) -> int | None:
    """The process id that a part left in its folder; None where it left none."""
    try:
        with open(os.path.join(runtime, part, PID_FILE), encoding="ascii") as file:
            return int(file.read(_PID_LENGTH_MAX))
    except (OSError, ValueError):
        return None


def write_pid(folder: str) -> None:
    """Leave the calling process's id in its part's runtime folder; where there is no room, do without."""
    path = os.path.join(folder, PID_FILE)
    with suppress(OSError):
        note.put(path, b"%d\n" % os.getpid())
