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
# How long a unit took, and when it began; of the chain that is the other way round, and most took no time.
_UNIT = re.compile(r"([^\s,]+) ([0-9]+\.[0-9]+) s(?: @([0-9]+\.[0-9]+) s)?")
_CHAINED = re.compile(r"([^\s,]+) @([0-9]+\.[0-9]+) s(?: \+([0-9]+\.[0-9]+) s)?")
_CHAIN = "; chain: "
_PHASE = re.compile(r"([a-z]+) ([0-9]+\.[0-9]+) s")


class ChainedUnit(NamedTuple):
    """A unit of the critical chain of a boot: when it began, in seconds since the kernel did, and how long it took."""

    unit: str
    begin_s: float
    length_s: float


class MeasuredBoot(NamedTuple):
    """When a boot was over (UTC ns), and how long its phases took, in seconds; 0.0 for one that it had not.

    ``units_s``: how long each of its slowest units took; ``begins_s``: when they began, since the kernel did.
    ``chain``: what it waited for, the last first. Earlier records have neither.
    """

    time_ns: int
    phases_s: tuple[float, ...]
    units_s: Mapping[str, float] = MappingProxyType({})
    begins_s: Mapping[str, float] = MappingProxyType({})
    chain: tuple[ChainedUnit, ...] = ()

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
        slowest, _, chain = event.detail.partition(_CHAIN)
        units = _UNIT.findall(slowest)
        boot = MeasuredBoot(
            event.time_ns,
            tuple(float(phases.get(phase, 0.0)) for phase in PHASES),
            {unit: float(length) for unit, length, _ in units},
            {unit: float(begin) for unit, _, begin in units if begin},
            tuple(
                ChainedUnit(unit, float(begin), float(length or 0)) for unit, begin, length in _CHAINED.findall(chain)
            ),
        )
        is_new = not boots or boot.phases_s != boots[-1].phases_s or boot.time_ns - boots[-1].time_ns > SAME_NS
        if boot.total_s > 0 and is_new:
            boots.append(boot)
    return boots[-BOOTS_MAX:]
