# SPDX-License-Identifier: Apache-2.0
"""Give readers what somebody made up to hang, fill, crash or deceive them: files of every format that sysmond reads.

Each corpus is made by a module of ``tests/hostile``, from good files of its format: crafted ones, whole by their
checksums, and raw damage. Whoever reads them names them as damaged or says what is true, and gives all that good
neighbours have, within 10 s of a processor and 300 MiB.

    python tests/faults/hostile.py [--rounds 1000] [--json]      (rounds: cases of each corpus)
"""

import os
import random
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tests.faults.trial import Totals, main
from tests.hostile import configurations, crafting, notes, rings


def segments(rounds: int, seed: int) -> Totals:
    """HDF5 files of every kind."""
    with tempfile.TemporaryDirectory(prefix="sysmond-hostile-", dir="/dev/shm") as base:
        figures, problems = crafting.attack(base, rounds, random.Random(seed))
    return {**figures, "problems": problems}


CORPORA = {"hdf5": segments, "rings": rings.run, "notes": notes.run, "configurations": configurations.run}


def run(rounds: int, seed: int) -> Totals:
    """Try some of every corpus."""
    totals: Totals = {"problems": [], "skipped": []}
    for name, attack in CORPORA.items():
        found = attack(rounds, seed)
        totals["problems"] += [f"{name}: {problem}" for problem in found.pop("problems")]
        totals["skipped"] += found.pop("skipped", [])
        totals[name] = found
    return totals


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=1000))
