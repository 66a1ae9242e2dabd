# SPDX-License-Identifier: Apache-2.0
"""When a recorder looked at threads: for tests of what makes it look more often."""

from pathlib import Path

from sysmond.base.clock import SECOND_NS
from sysmond.ring.snapshot import snapshot
from sysmond.store.stretches.sparse_of_ring import LongRing
from tests.support.whole import Recorder


class ThreadTicks:
    """At which boot times in ns threads were looked at, as far as it was seen."""

    def __init__(self, recorder: Recorder) -> None:
        self._rings = Path(recorder.folders.runtime, "sampler/restricted/thread_state")
        self._seen: set[int] = set()

    def seen(self) -> set[int]:
        for path in self._rings.glob("*.ring"):
            self._seen.update(reading.tick_ns for reading in LongRing(snapshot(str(path))).readings)
        return self._seen

    def between_seconds(self) -> list[int]:
        return sorted(tick for tick in self.seen() if tick % SECOND_NS)
