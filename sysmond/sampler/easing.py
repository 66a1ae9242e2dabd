# SPDX-License-Identifier: Apache-2.0
"""Why the background lane reads more seldom than planned: a battery feeds the machine, or its firmware answers slowly.

``Easing`` knows both and says at what interval a table is read now. Standard library only.
"""

from collections.abc import Callable
from threading import Thread

from sysmond.base.clock import SECOND_NS
from sysmond.machine import supplies
from sysmond.plan.plan import PlannedProbe

# A probe whose readings cost too much is read half as often, again and again, but never more seldom than this.
EASED_MAX_NS = 300 * SECOND_NS
# So many readings in a row decide: one alone may have waited for a processor.
READINGS = 3


class Easing:
    """What makes intervals longer, by what was seen of the machine so far."""

    def __init__(self, root: str, when_changed: Callable[[], None]) -> None:
        """Know of no battery; another thread calls ``when_changed`` when ``ask`` finds that one feeds the machine."""
        self._folder = root.rstrip("/") + supplies.POWER_SUPPLIES
        self._when_changed = when_changed
        self._asking: Thread | None = None
        self._factors: dict[str, int] = {}
        # How many readings in a row were too long, or, below 0, were not.
        self._runs: dict[str, int] = {}
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
        """At what interval a table is read now."""
        interval_ns = planned.interval_ns
        if self.is_on_battery:
            interval_ns = planned.on_battery_ns or interval_ns * battery_factor
        eased_ns = interval_ns * self._factors.get(planned.table, 1)
        return max(interval_ns, min(eased_ns, EASED_MAX_NS))

    def judge(self, table: str, interval_ns: int, costly_s: float, took_s: float) -> str:
        """Judge how long a reading took; gives what changes by that, in words, or nothing."""
        is_long = took_s > costly_s
        run = self._runs.get(table, 0)
        self._runs[table] = run = (max(run, 0) + 1) if is_long else (min(run, 0) - 1)
        factor = self._factors.get(table, 1)
        if run >= READINGS and interval_ns < EASED_MAX_NS:
            self._factors[table], self._runs[table] = factor * 2, 0
            return f"{READINGS} readings in a row took longer than {costly_s:g} s: read half as often from now on"
        if run <= -READINGS * factor and factor > 1:
            self._factors[table], self._runs[table] = factor // 2, 0
            return f"its readings take less than {costly_s:g} s again: read twice as often from now on"
        return ""
