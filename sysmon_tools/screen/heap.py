# SPDX-License-Identifier: Apache-2.0
"""Gives free memory back to the kernel: what an answer took on its way is not needed while somebody looks at it.

glibc gives back by itself only what is free at the end of a heap, and of the heap of a thread seldom that.
"""

import gc

from sysmond.machine.heap import trim


def settle(*, is_live: bool) -> None:
    """After an answer: look for garbage from the first one on, in what comes after it, and give back what is free.

    ``is_live``: the same is taken again in a second, so it stays.
    """
    is_first = not gc.isenabled()
    if is_first:
        gc.freeze()
        gc.enable()
    if is_first or not is_live:
        trim()
