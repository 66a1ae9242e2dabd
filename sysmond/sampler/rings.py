# SPDX-License-Identifier: Apache-2.0
"""The rings of a lane: opened as large as its sources ask for, one a stream, and given up when they are over.

A stream is a folder: that of a class, or of a long table in it (``public``, ``public/process``).
Standard library only.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice

from sysmond.base.clock import SECOND_NS, boottime_ns
from sysmond.base.model import Sensitivity
from sysmond.errors import Error
from sysmond.machine.folders import create_stream
from sysmond.ring.frame import (
    FRAME_BYTES,
    RING_BYTES_MIN,
    SUFFIX,
    Identity,
    encode_layout,
)
from sysmond.ring.leftovers import READING, folders_of_streams, started_ns
from sysmond.ring.writer import RingWriter
from sysmond.sampler.source import FULL_S, FULLS_HELD, RING_HOLDS_S, VALUE_BYTES, Source

# Rings of earlier incarnations that wait to be sealed; beyond it the oldest is given up, and counted.
OLD_RINGS_MAX = 8
# A tmpfs that is full now may have room later.
RING_RETRY_S = 10
# A ring takes at most half of what is free: what it is sealed into needs room, too.
FREE_PER_RING = 2
# There are several long tables.
FREE_PER_LONG_RING = 12
# For what a table that could not be read at first may need in the ring later.
UNKNOWN_BYTES = 32 * VALUE_BYTES
# Between two full readings of a long table this part of its rows comes at each reading.
CHANGING_PERCENT = 15
LASTING_BYTES_MIN = 512 * 1024
# Of what is about its own moment, nobody knows beforehand how much will come: a larger ring follows when more does.
PASSING_BYTES_MIN = 1024 * 1024
_RING = re.compile(rf"({'|'.join(Sensitivity)})/([a-z][a-z0-9_]*/)?[0-9]+\{SUFFIX}")


class Rings:
    """The rings that one incarnation of a lane writes, by stream."""

    def __init__(
        self, folder: str, boot: str, writer: str, started_ns: int, say: Callable[[str], None], *, stay: bool = False
    ) -> None:
        """Nothing is open yet. ``folder``: of the lane; ``stay``: no page of a ring is ever waited for."""
        self.folder = folder
        self._stay = stay
        self.open: dict[str, RingWriter] = {}
        self._boot = boot
        self._writer = writer
        self._started_ns = started_ns
        self._say = say
        self._retry_ns: dict[str, int] = {}
        self._wanted_bytes: dict[str, int] = {}
        self._begun: set[str] = set()
        self._reading = f"{folder}/{started_ns}{READING}"
        self._is_named = False

    def may_open(self, stream: str, tick_ns: int) -> bool:
        """Whether it is time to try."""
        return tick_ns >= self._retry_ns.get(stream, 0)

    def begin(self, stream: str, sizes: Mapping[Source, int | None], bytes_max: int, tick_ns: int) -> bool:
        """Allocate the ring of a stream, smaller where memory is short; whether there is one.

        ``sizes``: of its sources, how many bytes each has just read, None where it could not.
        """
        layouts = [source.layout for source in sizes]
        # What explains the rows is repeated four times a ring and must leave room for rows.
        size_min = RING_BYTES_MIN + 8 * sum(len(encode_layout(layout)) for layout in layouts)
        needed = sum(_bytes_needed(source, size) for source, size in sizes.items())
        needed = max(needed, 2 * self._wanted_bytes.get(stream, 0))
        size = max(size_min, min(bytes_max, size_min + needed))
        problem: OSError | None = None
        folder = f"{self.folder}/{stream}"
        create_stream(self.folder, stream)
        wanted, size = size, max(size_min, min(size, self.room_bytes(stream)))
        # One that replaces another begins a life of its own: that the other was closed says nothing of its end, nor how
        # far that was sealed. It may be gone by now.
        started_ns = boottime_ns() if stream in self._begun else self._started_ns
        identity = Identity(self._boot, self._writer, Sensitivity(stream.partition("/")[0]), os.getpid(), started_ns)
        while True:
            try:
                path = f"{folder}/{started_ns}{SUFFIX}"
                self.open[stream] = RingWriter(path, size, identity, layouts, stays=self._stay)
            except OSError as refusal:
                problem = refusal
                if size == size_min:
                    break
                size = max(size_min, size // 2)
            else:
                break
        if stream in self.open:
            self._begun.add(stream)
            is_healed = self._retry_ns.pop(stream, None) is not None
            if size < wanted:
                why = problem.strerror if problem else "as much is left for what it is sealed into"
                self._say(f"{folder}: only room for a ring of {size} bytes: {why}")
            elif is_healed:
                self._say(f"{folder}: there is room for a ring again")
            for index, (source, size_bytes) in enumerate(sizes.items()):
                source.index = index
                source.begins(size_bytes or 0)
            return True
        if stream not in self._retry_ns and problem is not None:
            lost = "ticks are dropped and counted until there is"
            self._say(f"{folder}: no room for a ring: {problem.strerror}; {lost}")
        self._retry_ns[stream] = tick_ns + RING_RETRY_S * SECOND_NS
        return False

    def add(self, stream: str, sources: Iterable[Source]) -> bool:
        """Explain these sources in the open ring of their stream; False where it has no room for them any more."""
        ring = self.open[stream]
        current = list(sources)
        for source in current:
            if source.index >= 0:
                continue
            try:
                source.index = ring.add(source.layout)
            except Error:
                ring.retire_all_but({planned.index for planned in current})
                try:
                    source.index = ring.add(source.layout)
                except Error:
                    return False
        return True

    def settle(self, stream: str, bytes_max: int) -> bool:
        """Make a tick of a stream visible; whether a larger ring has room for what found none in this one."""
        ring = self.open.get(stream)
        if ring is None:
            return False
        ring.commit()
        ring.unmark()
        wanted = min(bytes_max, ring.wanted_bytes)
        if wanted <= max(ring.capacity, self._wanted_bytes.get(stream, 0)) or self.room_bytes(stream) <= ring.capacity:
            return False
        self._wanted_bytes[stream] = wanted
        return True

    def room_bytes(self, stream: str) -> int:
        """How large a ring of a stream may be now, beside that which it replaces, which is yet to be sealed."""
        with suppress(OSError):
            return _free_bytes(f"{self.folder}/{stream}") // (FREE_PER_LONG_RING if "/" in stream else FREE_PER_RING)
        return 0  # Its folder is gone.

    def are_gone(self, first: int = 0, step: int = 1) -> bool:
        """Whether a ring that is being written was removed, alone or with its folder; looks at every ``step``th."""
        return any(ring.is_gone() for ring in islice(self.open.values(), first, None, step))

    def close(self, stream: str, *, is_over: bool = True) -> None:
        """Leave a ring for the archiver, where it was removed in a file of its own again; see ``RingWriter.close``."""
        if (ring := self.open.pop(stream, None)) is not None:
            ring.keep(self.folder, stream, self._say)
            ring.close(is_over=is_over)

    def mark(self, source: Source) -> None:
        """Say which source is being read."""
        ring = self.open.get(source.stream)
        if ring is not None and source.index >= 0:
            ring.mark(source.index)
            return
        self._is_named = True
        with suppress(OSError):
            descriptor = os.open(self._reading, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            os.write(descriptor, source.table.encode())
            os.close(descriptor)

    def unmark(self) -> None:
        """Say that nothing is being read."""
        for ring in self.open.values():
            ring.unmark()
        if self._is_named:
            self._is_named = False
            with suppress(OSError):
                os.unlink(self._reading)

    def give_up_old(self, rings_max: int = OLD_RINGS_MAX) -> int:
        """Bound how many rings of a stream wait to be sealed; gives how many were given up."""
        dropped = 0
        for folder in folders_of_streams(self.folder):
            names = os.listdir(folder)
            rings = sorted((name for name in names if name.endswith(SUFFIX)), key=started_ns)
            unfinished = [name for name in names if name.endswith(f"{SUFFIX}.new")]
            for name in [*rings[: max(0, len(rings) - rings_max)], *unfinished]:
                os.unlink(f"{folder}/{name}")
                dropped += name not in unfinished
        return dropped

    def forget(self, ring: str) -> dict[str, object]:
        """Carry out the order to forget a ring that has been sealed: ``public/5.ring``, ``public/process/5.ring``."""
        path = f"{self.folder}/{ring}"
        if not _RING.fullmatch(ring):
            return {"error": f"{ring!r} is not a ring"}
        if path in {ring.path for ring in self.open.values()}:
            return {"error": f"{ring}: is being written"}
        try:
            os.unlink(path)
        except FileNotFoundError:
            return {"ok": "already gone"}
        return {"ok": "gone"}


def _free_bytes(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _bytes_needed(source: Source, read_bytes: int | None) -> int:
    """How large a ring must be to hold ``RING_HOLDS_S`` of a source, judged by what it has read now."""
    if source.stride:
        return _bytes_of_records(source, read_bytes or 0)
    row_bytes = UNKNOWN_BYTES if read_bytes is None else read_bytes
    size_bytes = RING_HOLDS_S * SECOND_NS // source.interval_ns * (FRAME_BYTES + row_bytes)
    return size_bytes + size_bytes // 4  # Instances come and go.


def _bytes_of_records(source: Source, full_bytes: int) -> int:
    """How large the ring of a long table must be, whose rows take so many bytes when all are read."""
    readings = FULL_S * SECOND_NS // source.interval_ns
    if source.is_lasting:
        return max(
            LASTING_BYTES_MIN, source.paced_bytes, full_bytes * (FULLS_HELD + readings * CHANGING_PERCENT // 100)
        )
    return max(PASSING_BYTES_MIN, source.paced_bytes, full_bytes * FULLS_HELD)
