# SPDX-License-Identifier: Apache-2.0
"""Whom the kernel kills when memory runs out: not the recorder, which is to tell of it.

The units say so of the service (OOMScoreAdjust); a recorder that is started by hand says it of itself. It takes the
rights of root to be spared; whoever has those, and was given a lower score yet, keeps that.
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
    """Have the kernel kill others before this process, where we may say so.

    ``usual``: the score that the recorder was started with, and that parts keep which others can replace.
    """
    with suppress(OSError), open(FILE, "w", encoding="ascii") as file:
        file.write(str(min(usual, SCORES.get(part, usual))))
