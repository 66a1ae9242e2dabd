# SPDX-License-Identifier: Apache-2.0
"""Gives free memory back to the kernel: what an answer took on its way is not needed while somebody looks at it.

glibc gives back by itself only what is free at the end of a heap, and of the heap of a thread seldom that.
"""

import ctypes


def trim() -> None:
    """Give back what is free, in less than a millisecond; other C libraries than glibc do so by themselves."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
