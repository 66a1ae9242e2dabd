# SPDX-License-Identifier: Apache-2.0
"""Kill processes of the running daemon at random moments, and look at what is left.

Each round kills -9 the sampler, the background lane, the archiver, a job that it runs, or the parent, which
is then started anew at once. In between and at the end every visible segment must read from end to end. At
the end each second of both lanes must be there, but for the one in flight of a lane that was killed and those
between a death and the successor's first tick; whatever is missing must have a cause; and what a reader once
saw must still be there. The work is done by ``sysmond.commands.selftest``, with a tick a second as users have it.

    python tests/faults/kill_loop.py [--rounds 300] [--seed 1] [--json]
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.base.clock import SECOND_NS
from sysmond.commands import selftest
from tests.faults.trial import Totals, main

PAUSE_S = 1.5


def run(rounds: int, seed: int) -> Totals:
    """Go through the rounds and say what was found."""
    return selftest.run(rounds, seed=seed, interval_ns=SECOND_NS, pause_s=PAUSE_S, damage=False)


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=300))
