# SPDX-License-Identifier: Apache-2.0
"""Keep a process on time: real-time scheduling, locked memory, no garbage collections.

Each step that the machine refuses is named, and the process goes on without it.
Sources: sched(7), mlockall(2), mallopt(3), getrlimit(2).
"""

import ctypes
import gc
import os
import resource
from collections.abc import Iterator

MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
TRIM_THRESHOLD_BYTES = 64 * 1024 * 1024

# A real-time process that never sleeps would own a processor: SIGXCPU, then SIGKILL. The second is for what spins in C,
# and comes when the daemon would kill it anyway: who looks for memory while there is none is as busy, for a second or
# two, and neither hears the first nor is at fault.
RTTIME_SOFT_US = 500_000
RTTIME_HARD_US = 5_000_000


def enter(priority: int) -> Iterator[str]:
    """Become real-time with SCHED_FIFO at ``priority``; yield a line for each thing that was refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Memory once had is kept: giving it back and faulting it in again would cost time on a later tick.
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        yield f"memory is not locked: {os.strerror(ctypes.get_errno())}; ticks may be late while memory is short"
    yield from schedule(priority)


def schedule(priority: int) -> Iterator[str]:
    """Be scheduled with SCHED_FIFO at ``priority``, normally where that is 0; yield a line where it was refused."""
    try:
        if priority:
            resource.setrlimit(resource.RLIMIT_RTTIME, (RTTIME_SOFT_US, RTTIME_HARD_US))
            if _is_scheduled(priority):  # By process 1, who may do it where we may not even ask.
                return
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
        else:
            os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    except (OSError, ValueError) as refusal:
        why = (refusal.strerror if isinstance(refusal, OSError) else None) or str(refusal)
        yield f"scheduling at priority {priority} is refused: {why}; ticks may be late under load"


def _is_scheduled(priority: int) -> bool:
    """Whether this process has that priority, and would not pass it on."""
    wanted = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    return os.sched_getscheduler(0) == wanted and os.sched_getparam(0).sched_priority == priority


def freeze() -> None:
    """Stop collecting garbage for good: what exists now stays, and a tick leaves no cycles behind."""
    gc.collect()
    gc.freeze()
    gc.disable()
