# SPDX-License-Identifier: Apache-2.0
"""Whom the kernel kills when memory runs out: not the recorder, which is to tell of it.

The units of the service set this (OOMScoreAdjust); a recorder that is started by hand sets it for itself. Lowering a
score takes CAP_SYS_RESOURCE. A score that is lower already stays.
Sources: proc_pid_oom_score_adj(5). Standard library only.
"""

from contextlib import suppress

FILE = "/proc/self/oom_score_adj"
# As the units in etc/systemd say it. Without their parent no part goes on.
PARENT = "daemon"
SCORES = {PARENT: -900, "sampler": -900, "background": -500, "archiver": -500}


def read() -> int:
    """The score of this process; 0 where it cannot be read."""
    with suppress(OSError, ValueError), open(FILE, encoding="ascii") as file:
        return int(file.read())
    return 0


def spare(part: str, usual: int) -> None:
    """Have the kernel kill others before this process, where we have the right to.

    ``usual``: the score that the recorder was started with; parts that are not in ``SCORES`` keep it.
    """
    with suppress(OSError), open(FILE, "w", encoding="ascii") as file:
        file.write(str(min(usual, SCORES.get(part, usual))))
