# SPDX-License-Identifier: Apache-2.0
"""How much memory this process holds already: what other tests imported is not what a forked child takes."""

import resource
from pathlib import Path


def counted_bytes() -> int:
    """How much counts against RLIMIT_DATA (getrlimit(2)): data and stack of proc(5), statm."""
    return _pages(5)


def resident_bytes() -> int:
    """How much of it is in memory."""
    return _pages(1)


def _pages(field: int) -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[field]) * resource.getpagesize()
