# SPDX-License-Identifier: Apache-2.0
"""Gives free memory back to the kernel: what a process took on its way to work is not needed any more once it works.

Reading the byte code of modules leaves a megabyte and a half of holes. glibc gives back by itself only what is free at
the end of a heap: whether anything is, depends on what happens to lie there.
Sources: malloc_trim(3), mallopt(3), gc.freeze.
"""

import ctypes
import gc

M_ARENA_MAX = -8


def settle() -> None:
    """Whatever exists now stays: look for garbage only in what comes after it, and give back what is free."""
    gc.collect()
    gc.freeze()
    trim()


def trim() -> None:
    """Give back what is free, in less than a millisecond; other C libraries than glibc do so by themselves.

    Memory that is locked stays: the kernel takes none of it back.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def share() -> None:
    """Have threads that begin from now on share the one heap: one of its own keeps up to a megabyte of holes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
