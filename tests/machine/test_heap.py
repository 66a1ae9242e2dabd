# SPDX-License-Identifier: Apache-2.0
"""What is free goes back to the kernel, though something behind it is not free."""

import ctypes
import gc
import resource
import subprocess
import sys

import pytest

from sysmond.machine import heap

PIECE_BYTES, PIECES = 1000, 50_000
NEEDS_GLIBC = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")

# Where a thread's pieces lie: how much the one heap grows by them.
IN_A_THREAD = """
import sys
from threading import Thread
from sysmond.machine import heap

def heap_kib():
    with open("/proc/self/smaps", encoding="utf-8") as file:
        lines = iter(file)
        return sum(int(next(line for line in lines if line.startswith("Rss:")).split()[1]) for line in lines
                   if line.rstrip().endswith("[heap]"))

if sys.argv[1] == "share":
    heap.share()
pieces = []
before = heap_kib()
thread = Thread(target=lambda: pieces.extend([bytes(1000) for _ in range(5000)]))
thread.start()
thread.join()
print(heap_kib() - before)
"""


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@NEEDS_GLIBC
def test_what_is_free_goes_back_to_the_kernel() -> None:
    pieces = [bytes(PIECE_BYTES) for _ in range(PIECES)]
    last = pieces[-1]
    pieces.clear()
    before = resident_bytes()
    heap.trim()
    assert before - resident_bytes() > PIECES * PIECE_BYTES // 2
    assert not any(last)


def test_what_there_is_when_a_part_works_is_not_looked_at_for_garbage_again() -> None:
    try:
        heap.settle()
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


@NEEDS_GLIBC
def test_threads_share_the_one_heap() -> None:
    grown_kib = {
        how: int(subprocess.check_output([sys.executable, "-P", "-c", IN_A_THREAD, how], text=True, timeout=30))
        for how in ("share", "apart")
    }
    assert grown_kib["share"] > 4000 > grown_kib["apart"]
