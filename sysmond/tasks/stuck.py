# SPDX-License-Identifier: Apache-2.0
"""Threads that wait uninterruptibly for a minute without running once, among those whose states are read anyway.

One that is in the same place whenever one looks may still run in between, as who reads a slow disk does: the kernel
counts how often each gave up a CPU. Standard library only: the real-time sampler imports it.
"""

import re
import struct
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from sysmond.probe import Host, Records
from sysmond.tasks.tables import THREAD_STATE

KIND = "stuck thread"
STUCK_S = 60.0
# So often is looked, at so many of them, and so many are asked for how often they ran.
LOOK_S = 10.0
LOOKED_AT_MAX = 4096
ASKED_MAX = 32
WAITS = b"D"
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_ROW = struct.Struct(THREAD_STATE.packing.format if THREAD_STATE.packing else "")
_Key = tuple[int, int]


class _Thread(NamedTuple):
    """What a row says of a thread."""

    start_ns: int
    pid: int
    tid: int
    uid: int
    syscall: int
    cgroup: int
    comm: bytes
    state: bytes
    wchan: bytes
    place: int


class _Waiting(NamedTuple):
    """Where a thread waits, since when, how often it had given up its CPU, and whether that was told."""

    place: int
    since_s: float
    switches: int = -1
    is_told: bool = False


class StuckThreads:
    """Remembers who waits where."""

    def __init__(self) -> None:
        """Know of nobody."""
        self._waiting: dict[_Key, _Waiting] = {}
        self._next_s = 0.0

    def look(self, host: Host, records: Records, now_s: float | None = None) -> None:
        """Look at the threads of this reading, where it is time, and tell of those that are stuck."""
        now_s = monotonic() if now_s is None else now_s
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        before, self._waiting = self._waiting, {}
        asked = 0
        for thread in _waiting(records):
            key = thread.tid, thread.start_ns
            waiting = before.get(key)
            if waiting is None or waiting.place != thread.place:
                waiting = _Waiting(thread.place, now_s)
            elif not waiting.is_told and (waiting.switches < 0 or now_s >= waiting.since_s + STUCK_S):
                asked += 1
                waiting = _judged(host, waiting, thread, now_s) if asked <= ASKED_MAX else waiting
            self._waiting[key] = waiting


def _judged(host: Host, waiting: _Waiting, thread: _Thread, now_s: float) -> _Waiting:
    """Ask how often a thread ran; where it did not in all the time, tell of it."""
    try:
        status = host.read_anew(f"/proc/{thread.pid}/task/{thread.tid}/status")
    except OSError:  # It is gone, or not ours to see: no news.
        return waiting
    switches = sum(int(count) for count in _SWITCHES.findall(status))
    if waiting.switches < 0:
        return waiting._replace(switches=switches)
    if switches != waiting.switches:
        return _Waiting(waiting.place, now_s, switches)
    function = _spelled(thread.wchan)
    where = f" in {function}" if function else ""
    said = f"thread {thread.tid} of process {thread.pid} waits{where} for {now_s - waiting.since_s:.0f} s"
    host.tell_event(KIND, _spelled(thread.comm), said)
    return waiting._replace(is_told=True)


def _waiting(records: Records) -> Iterator[_Thread]:
    """Those that wait uninterruptibly."""
    rows = memoryview(records.rows).cast("B")[: LOOKED_AT_MAX * _ROW.size]
    return (thread for thread in map(_Thread._make, _ROW.iter_unpack(rows)) if thread.state == WAITS)


def _spelled(text: bytes) -> str:
    return text.partition(b"\0")[0].decode("utf-8", "backslashreplace")
