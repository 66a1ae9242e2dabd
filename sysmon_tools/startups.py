# SPDX-License-Identifier: Apache-2.0
"""How long boots took to start, by phase and unit, as the events tell that were recorded when each was over."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base.clock import SECOND_NS

if TYPE_CHECKING:
    from sysmond.base.result import Event

STARTUP, UNFINISHED = "startup", "unfinished"
PHASES = ("firmware", "loader", "kernel", "initrd", "userspace")
BOOTS_MAX = 400
# The same boot, told by a recorder that was started again with nothing left of the first.
SAME_NS = 5 * SECOND_NS
_UNIT = re.compile(r"([^\s,]+) ([0-9]+\.[0-9]+) s")
_PHASE = re.compile(r"([a-z]+) ([0-9]+\.[0-9]+) s")


class MeasuredBoot(NamedTuple):
    """When a boot was over (UTC ns), and how long its phases took, in seconds; 0.0 for one that it had not.

    ``units_s``: how long each of its slowest units took.
    """

    time_ns: int
    phases_s: tuple[float, ...]
    units_s: Mapping[str, float] = MappingProxyType({})

    @property
    def total_s(self) -> float:
        """How long it took in all."""
        return sum(self.phases_s)


def unfinished_ns(events: Sequence["Event"]) -> list[int]:
    """When it was told of boots that they were not over yet, long after they began (UTC ns)."""
    return [event.time_ns for event in events if event.kind == STARTUP and event.text.startswith(UNFINISHED)]


def measured(events: Sequence["Event"]) -> list[MeasuredBoot]:
    """The boots that events tell of, in order, each once."""
    boots: list[MeasuredBoot] = []
    for event in events:
        phases = dict(_PHASE.findall(event.text.partition(": ")[2])) if event.kind == STARTUP else {}
        if not phases:
            continue
        units_s = {unit: float(length) for unit, length in _UNIT.findall(event.detail)}
        boot = MeasuredBoot(event.time_ns, tuple(float(phases.get(phase, 0.0)) for phase in PHASES), units_s)
        is_new = not boots or boot.phases_s != boots[-1].phases_s or boot.time_ns - boots[-1].time_ns > SAME_NS
        if boot.total_s > 0 and is_new:
            boots.append(boot)
    return boots[-BOOTS_MAX:]
