# SPDX-License-Identifier: Apache-2.0
"""What is free goes back to the kernel, though something behind it is not free."""

import ctypes
import gc
import resource

import pytest

from sysmon_tools.screen import heap

PIECE_BYTES, PIECES = 1000, 50_000


def test_garbage_is_looked_for_from_the_first_answer_on() -> None:
    gc.disable()
    try:
        heap.settle(is_live=True)
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.enable()
        gc.unfreeze()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_is_free_goes_back_to_the_kernel() -> None:
    pieces = [bytes(PIECE_BYTES) for _ in range(PIECES)]
    last = pieces[-1]
    pieces.clear()
    before = resident_bytes()
    heap.trim()
    assert before - resident_bytes() > PIECES * PIECE_BYTES // 2
    assert not any(last)
