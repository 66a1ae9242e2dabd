# SPDX-License-Identifier: Apache-2.0
"""Why the background lane reads more seldom than planned: a battery feeds the machine, or its firmware answers slowly.

``Easing`` knows both and says at what interval a table is read now. Standard library only.
"""

from collections.abc import Callable
from threading import Thread

from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import EASED_MAX_S, READINGS, EasedPace
from sysmond.machine import supplies
from sysmond.plan.plan import PlannedProbe


class Easing:
    """What makes intervals longer, by what was seen of the machine so far."""

    def __init__(self, root: str, when_changed: Callable[[], None]) -> None:
        """Know of no battery; another thread calls ``when_changed`` when ``ask`` finds that one feeds the machine."""
        self._folder = root.rstrip("/") + supplies.POWER_SUPPLIES
        self._when_changed = when_changed
        self._asking: Thread | None = None
        self._paces: dict[str, EasedPace] = {}
        self.is_on_battery = False

    def ask(self) -> None:
        """Find out what feeds the machine; not here, since an embedded controller may take its time, or hang."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = Thread(target=self._ask, daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        is_on_battery = supplies.is_on_battery(supplies.read_supplies(self._folder))
        if is_on_battery != self.is_on_battery:
            self.is_on_battery = is_on_battery
            self._when_changed()

    def interval_ns(self, planned: PlannedProbe, battery_factor: int) -> int:
        """At what interval a table is read now, by what feeds the machine."""
        if self.is_on_battery:
            return planned.on_battery_ns or planned.interval_ns * battery_factor
        return planned.interval_ns

    def eased_ns(self, table: str, interval_ns: int) -> int:
        """At what interval a table is read that would be read at this one, by how long its readings take."""
        pace = self._paces.get(table)
        eased_ns = interval_ns * pace.factor if pace else interval_ns
        return max(interval_ns, min(eased_ns, EASED_MAX_S * SECOND_NS))

    def judge(self, table: str, interval_ns: int, costly_s: float, took_s: float) -> str:
        """Judge how long a reading took; gives what changes by that, in words, or nothing."""
        pace = self._paces.setdefault(table, EasedPace())
        is_long = took_s > costly_s
        if not pace.judge(is_long=is_long, interval_s=interval_ns / SECOND_NS):
            return ""
        if is_long:
            return f"{READINGS} readings in a row took longer than {costly_s:g} s: read half as often from now on"
        return f"its readings take less than {costly_s:g} s again: read twice as often from now on"
