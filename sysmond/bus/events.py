# SPDX-License-Identifier: Apache-2.0
"""Events on the bus: what was recorded as one is a signal to whoever listens, but for what not all may know.

A storm of them would wake every listener again and again: beyond a rate they are counted, and the count is told.
"""

from collections.abc import Callable

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.bus.wire.interface import Changes, Interface, Signal, prop
from sysmond.bus.wire.names import MANAGER
from sysmond.bus.wire.values import clean
from sysmond.ring.frame import DETAIL_BYTES_MAX, EVENT_BYTES_MAX

BURST = 32
PER_SECOND = 4
DROPPED = "dropped"


class Events(Interface):
    """What happens, as it happens."""

    NAME = MANAGER
    event = Signal("time_ns:x kind:s subject:s text:s")

    def __init__(self, emit: Callable[[int, str, str, str], object], is_restricted: Callable[[str], bool]) -> None:
        """``emit``: sends the signal to all. ``is_restricted``: whether not all may know of a table."""
        self._emit = emit
        self._is_restricted = is_restricted
        self._allowance = float(BURST)
        self._last_ns = 0
        self._dropped = 0
        self._dropped_in_all = 0
        self._withheld = 0

    @prop("t", changes=Changes.SILENT)
    def events_dropped(self) -> int:
        """How many events were not told because there were too many."""
        return self._dropped_in_all

    @prop("t", changes=Changes.SILENT)
    def events_withheld(self) -> int:
        """How many events were not told because they are about what not all may know; history has them."""
        return self._withheld

    def receive(self, boottime_ns: int, kind: str, subject: str, text: str, is_restricted: bool) -> None:  # noqa: FBT001
        """Tell of an event: now, later as one of a number, or not at all."""
        if is_restricted or self._is_restricted(subject.partition("@")[0].partition("/")[0]):
            self._withheld += 1
            return
        relation = clock.relation()
        passed_ns = relation.boottime_ns - self._last_ns
        self._last_ns = relation.boottime_ns
        self._allowance = min(float(BURST), self._allowance + passed_ns * PER_SECOND / SECOND_NS)
        if self._allowance < 1.0:
            self._dropped += 1
            self._dropped_in_all += 1
            return
        self._allowance -= 1.0
        if self._dropped:
            self._emit(relation.realtime_ns, DROPPED, "", f"{self._dropped} events were not told")
            self._dropped = 0
        time_ns = relation.realtime_ns - relation.boottime_ns + boottime_ns
        self._emit(
            time_ns,
            clean(kind)[:DETAIL_BYTES_MAX],
            clean(subject)[:DETAIL_BYTES_MAX],
            clean(text)[:EVENT_BYTES_MAX],
        )
