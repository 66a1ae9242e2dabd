# SPDX-License-Identifier: Apache-2.0
"""What tests share of recordings that go on until now, and that rings may answer."""

import time

import pytest

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.store import ring_reach

# So long was recorded, up to now; a ring of the sampler has about a third of it.
LONG_S = 1500


@pytest.fixture
def rings_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings are asked whatever they may well have: it is for them to refuse."""
    monkeypatch.setattr(ring_reach, "SLACK", 1e9)


@pytest.fixture
def now_ns(monkeypatch: pytest.MonkeyPatch) -> int:
    """A time and a boot time that stand still, as far apart as something was recorded."""
    now_ns, boottime_ns = time.time_ns() // SECOND_NS * SECOND_NS, LONG_S * SECOND_NS
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(clock, "boottime_ns", lambda: boottime_ns)
    return now_ns
