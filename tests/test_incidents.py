# SPDX-License-Identifier: Apache-2.0
"""Incidents are found where memory ran out or all work stood still, and nowhere else."""

import numpy as np

from sysmond import incidents
from sysmond.clock import Relation
from sysmond.incidents import AROUND_NS, KILLS, STALLS
from sysmond.model import ABSENT, Sensitivity
from sysmond.pins import Pin
from sysmond.recording import MemoryBlock, Recording, Strand

BOOT = "a" * 32
SECOND = 10**9
UTC_NS = 1_700_000_000 * SECOND


def recorded(kills: np.ndarray, stalled: np.ndarray) -> Recording:
    memory, io = STALLS
    ticks = np.arange(2000, dtype=np.int64) * SECOND
    block = MemoryBlock(
        Strand(BOOT, "sampler", 1, SECOND), ticks, (KILLS, memory, io), np.array([kills, stalled, kills])
    )
    return Recording(Sensitivity.PUBLIC, {}, [block], {}, {BOOT: [Relation(0, UTC_NS, 0)]}, [])


def test_what_is_pinned_and_what_is_not() -> None:
    kills, stalled = np.full(2000, 7), np.zeros(2000, np.int64)
    assert incidents.pins_of(recorded(kills, stalled)) == []
    kills[500:] += 1
    kills[499] = ABSENT
    stalled[100:120] = 3999
    stalled[[1000, 1010, 1800]] = 4000
    assert incidents.pins_of(recorded(kills, stalled)) == [
        Pin(UTC_NS + 500 * SECOND - AROUND_NS, UTC_NS + 500 * SECOND + AROUND_NS, "out of memory", "sysmond"),
        Pin(UTC_NS + 1000 * SECOND - AROUND_NS, UTC_NS + 1010 * SECOND + AROUND_NS, "memory pressure", "sysmond"),
        Pin(UTC_NS + 1800 * SECOND - AROUND_NS, UTC_NS + 1800 * SECOND + AROUND_NS, "memory pressure", "sysmond"),
    ]
