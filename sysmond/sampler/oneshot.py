# SPDX-License-Identifier: Apache-2.0
"""A part that reads once and ends: what needs privileges that no part should have that stays.

It is started every few minutes, by the parent or by a timer; each time it writes one tick into rings of its own,
which the archiver seals like any other. Killed at any moment it costs that tick. Standard library only.
"""

import signal
from collections.abc import Callable, Iterator

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Lane
from sysmond.errors import Error
from sysmond.plan.plan import LANE_INTERVAL_MIN_NS, Plan, PlannedProbe
from sysmond.plan.settings import Settings
from sysmond.probe import Host
from sysmond.ring.leftovers import remove_sealed
from sysmond.ring.progress import WRITERS
from sysmond.sampler.rings import Rings
from sysmond.sampler.source import Pieces, Source, load, size_of

# How long a reading may take: the probe bounds it, and who started the part kills it.
READING_S = 240.0
# Each start leaves a ring until that is sealed: an archiver that cannot seal loses nothing for some hours.
OLD_RINGS_MAX = 64
_PR_SET_PDEATHSIG = 1


def run(settings: Settings, plan: Plan, say: Callable[[str], None]) -> int:
    """Read whatever is due now, write it, and end; gives the exit code."""
    if settings.lifeline is not None:
        import ctypes  # noqa: PLC0415  the parent, which imports this module, does without

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    name, started_ns = WRITERS[Lane.ONESHOT], clock.boottime_ns()
    tick_ns = started_ns - started_ns % SECOND_NS
    host = Host(settings.root)
    host.runtime, host.folder = settings.folders.runtime, f"{settings.folders.runtime}/{name}"
    sources = []
    for planned in wanted(plan, settings.root):
        # At the first start all are due; then each at the multiples of its interval.
        if not settings.again or tick_ns % planned.interval_ns < LANE_INTERVAL_MIN_NS[Lane.ONESHOT]:
            try:
                sources.append(Source(planned, load(planned), host, READING_S))
            except Error as problem:
                say(f"probe {planned.table} is left out: {problem}")
    rings = Rings(host.folder, clock.boot_id(), name, started_ns, say)
    readings = {source: source.read() for source in sources}
    for stream in dict.fromkeys(source.stream for source in sources):
        mine = {source: reading for source, reading in readings.items() if source.stream == stream}
        sizes = {source: size_of(reading) for source, reading in mine.items()}
        if not rings.begin(stream, sizes, plan.sampler.ring_bytes, tick_ns):
            continue
        ring = rings.open[stream]
        ring.hold()  # It becomes visible whole.
        ring.clock(clock.relation())
        for source, reading in mine.items():
            if not isinstance(reading, Pieces):
                ring.drop(source.write(ring, tick_ns, reading))
        rings.close(stream)
    remove_sealed(settings.folders, name)
    rings.give_up_old(OLD_RINGS_MAX)
    return 0


def wanted(plan: Plan, root: str) -> Iterator[PlannedProbe]:
    """The probes that such a part is to read on the machine below ``root``."""
    for planned in plan.probes:
        if planned.lane is Lane.ONESHOT and planned.enabled and planned.is_possible(root):
            yield planned
