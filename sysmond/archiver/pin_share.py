# SPDX-License-Identifier: Apache-2.0
"""The share of pins that sysmond makes by itself: of a day so much that it takes a tenth of the pins' budget at most.

What a pinned second takes is judged by the files there are: how many bytes they have, and how much time. What is beyond
the share is not pinned, and counted.
"""

from collections.abc import Sequence

from sysmond.archiver import retention_job
from sysmond.archiver.auto_pins import AROUND_NS
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.machine import mounts
from sysmond.machine.folders import Folders
from sysmond.plan import plan as plans
from sysmond.plan import retention
from sysmond.store import pins
from sysmond.store.pins import BY_ITSELF, Pin

DAY_NS = 86_400 * SECOND_NS
PART = 10
# Less does not tell what a second takes; until then there is room for everything.
RECORDED_NS_MIN = 3600 * SECOND_NS


def collect(folders: Folders) -> tuple[int, int]:
    """Put on disk what waits in RAM, as far as the share reaches; gives how many pins it reached for, and how many not.

    :raises OSError: where the disk cannot be written. :raises Error: where pins, or the plan, cannot be read.
    """
    if not pins.read(pins.waiting(folders)):
        return 0, 0
    share_ns = _share_ns(folders)
    return pins.collect(folders, lambda there, new: within(there, new, share_ns))


def within(there: Sequence[Pin], new: Sequence[Pin], share_ns: int) -> list[Pin]:
    """Choose of new pins those that may be made beside those that are there; people's own may all.

    No 24 hours have more than ``share_ns`` of what sysmond pinned by itself. Of a long pin that is too much for it the
    beginning is tried.
    """
    chosen: list[Pin] = []
    for pin in sorted(new):
        if pin.by != BY_ITSELF:
            chosen.append(pin)
            continue
        own = [other for other in (*there, *chosen) if other.by == BY_ITSELF]
        onset = pin._replace(end_ns=min(pin.end_ns, pin.start_ns + 2 * AROUND_NS))
        chosen += [part for part in dict.fromkeys((pin, onset)) if _fits(own, part, share_ns)][:1]
    return chosen


def _fits(own: Sequence[Pin], pin: Pin, share_ns: int) -> bool:
    """Whether no day that a pin is in would have too much with it; what is pinned already takes nothing."""
    ends_ns = {other.end_ns for other in own if pin.end_ns <= other.end_ns < pin.end_ns + DAY_NS} | {pin.end_ns}
    before = [other[:2] for other in own]
    for end_ns in ends_ns:
        length_ns = _length_ns([*before, pin[:2]], end_ns - DAY_NS, end_ns)
        if length_ns > share_ns and length_ns > _length_ns(before, end_ns - DAY_NS, end_ns):
            return False
    return True


def _length_ns(spans: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """How much of the time between two moments is in any of these spans."""
    length_ns, reached_ns = 0, start_ns
    for first_ns, last_ns in sorted(spans):
        begin_ns, stop_ns = max(first_ns, reached_ns), min(last_ns, end_ns)
        if begin_ns < stop_ns:
            length_ns += stop_ns - begin_ns
            reached_ns = stop_ns
    return length_ns


def _share_ns(folders: Folders) -> int:
    """How much time of a day may be pinned, so that rows of it take a part of the pins' budget, and long ones as well.

    :raises Error: where there is no plan.
    """
    plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
    settings = retention.fitted(plan.archiver, mounts.capacity_bytes(folders.state))
    shares_ns = [DAY_NS]
    for is_long in (False, True):
        files = list(retention_job.stored(folders, FINEST_TIER, is_long=is_long))
        lasted_ns = _length_ns([(file.first_ns, file.last_ns) for file in files], 0, TIME_MAX_NS)
        if lasted_ns >= RECORDED_NS_MIN:
            size_bytes = sum(file.size_bytes for file in files)
            shares_ns.append(settings.pins_bytes * lasted_ns // (PART * size_bytes))
    return min(shares_ns)
