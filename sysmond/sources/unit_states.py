# SPDX-License-Identifier: Apache-2.0
"""What systemd says of units, as changes: of each state once, and how a service ended with it.

Source: org.freedesktop.systemd1(5). What is heard and asked is the business of ``sysmond.sources.units``; of a boot, of
``sysmond.sources.startup``. Standard library only.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from sysmond.sources.sd_bus import SdMessage

SYSTEMD = "org.freedesktop.systemd1"
MANAGER = (SYSTEMD, "/org/freedesktop/systemd1", f"{SYSTEMD}.Manager")
UNIT, SERVICE = f"{SYSTEMD}.Unit", f"{SYSTEMD}.Service"
FAILED, RESTARTED, STARTED, STOPPED = "unit failed", "unit restarted", "unit started", "unit stopped"
COUNTED = {FAILED: "failed", RESTARTED: "restarted", STARTED: "started", STOPPED: "stopped"}
# An event of a boot, and how its text begins where that does not come to an end.
STARTUP, UNFINISHED = "startup", "unfinished"
# So many units, the newest, are remembered.
UNITS_MAX = 4096
# These come and go with the sessions of people, which are not for everybody.
_OF_SESSIONS = ("user@", "user-runtime-dir@", "session-", "user-")
_CODES = {1: "status", 2: "signal", 3: "core dumped, signal"}  # CLD_EXITED, CLD_KILLED, CLD_DUMPED
Values = dict[str, int | str]
_K = TypeVar("_K")
_T = TypeVar("_T")


class UnitChange(NamedTuple):
    """What became of a unit: kind of event, name, words, when (µs of CLOCK_MONOTONIC, 0 for now, and UTC), and more."""

    kind: str
    unit: str
    text: str
    time_us: int = 0
    utc_us: int = 0
    detail: str = ""


class _Restarts(NamedTuple):
    """How often a service was restarted, as systemd counts it, in which state it is, and whether one more is told."""

    counted: int
    sub: str
    is_ahead: bool


class UnitStates:
    """Makes changes of what systemd says of properties: of each state once, however often it is said. Pure."""

    def __init__(self, since_us: int, failed_us: int) -> None:
        """``since_us``: what began or ended earlier is no news; ``failed_us``: what failed up to then is none."""
        self._since_us = since_us
        self.failed_us = failed_us
        self._earlier_us = failed_us
        self._seen_us: dict[tuple[str, bool], int] = {}
        self._services: dict[str, Values] = {}
        self._restarts: dict[str, _Restarts] = {}
        self._starting_again: set[str] = set()

    def service(self, unit: str, values: Values) -> None:
        """Remember how the process of a service ended; systemd says that before it says what became of the unit."""
        self._services[unit] = values
        _bound(self._services)

    def unit(self, unit: str, values: Values) -> Iterator[UnitChange]:
        """Give what is new in it."""
        if unit.startswith(_OF_SESSIONS):
            return
        state = values.get("ActiveState", "")
        yield from self._restarted(unit, str(values.get("SubState", "")))
        entered = f"{'Active' if state == 'active' else 'Inactive'}EnterTimestamp"
        time_us, utc_us = int(values.get(f"{entered}Monotonic", 0)), int(values.get(entered, 0))
        # A service that may not start again is inactive first, and has failed at the same moment.
        seen = unit, state == "failed"
        before_us = self._seen_us.get(seen, self._earlier_us if state == "failed" else self._since_us)
        if state not in {"active", "inactive", "failed"} or time_us <= before_us:
            return
        self._seen_us[seen] = time_us
        _bound(self._seen_us)
        is_again = unit in self._starting_again
        if state != "inactive":  # That is between.
            self._starting_again.discard(unit)
        if state == "failed":
            self.failed_us = max(self.failed_us, time_us)
            yield UnitChange(FAILED, unit, self._ended(unit), time_us, utc_us)
        elif unit.endswith(".service") and not is_again:
            yield UnitChange(STARTED if state == "active" else STOPPED, unit, "", time_us, utc_us)

    def _restarted(self, unit: str, sub: str) -> Iterator[UnitChange]:
        """Whether it is to be started again because it ended, and how often it was that since the last time."""
        counted = int(self._services.get(unit, {}).get("NRestarts", 0))
        before = self._restarts.get(unit, _Restarts(counted, "", is_ahead=False))
        grown = max(0, counted - before.counted)
        is_ahead = before.is_ahead and not grown
        grown -= before.is_ahead and grown > 0
        # Systemd counts a restart when it begins: one that is waited for is told, and not counted yet.
        if sub == "auto-restart" and not before.sub.startswith(sub):
            grown, is_ahead = grown + 1, True
        self._restarts[unit] = _Restarts(counted, sub, is_ahead)
        _bound(self._restarts)
        if grown:
            if len(self._starting_again) < UNITS_MAX:
                self._starting_again.add(unit)
            times = f"{grown} times; " if grown > 1 else ""
            yield UnitChange(RESTARTED, unit, f"{times}{self._ended(unit)}")

    def _ended(self, unit: str) -> str:
        values = self._services.get(unit, {})
        code = _CODES.get(int(values.get("ExecMainCode", 0)))
        ended = f"{code} {values.get('ExecMainStatus', 0)}" if code else ""
        return ", ".join(word for word in (str(values.get("Result", "")), ended) if word)


def listed(message: SdMessage, most: int) -> Iterator[tuple[str, str, str]]:
    """Name, path and state of so many units of a list.

    :raises OSError: where there are more, or it is none.
    """
    with message.within("a", "(ssssssouso)"):
        for _ in range(most):
            with message.within("r", "ssssssouso") as there:
                if not there:
                    break
                unit = message.read("s")
                message.skip("ss")
                state = message.read("s")
                message.skip("ss")
                path = message.read("o")
                message.skip("uso")
            yield unit, path, state


def _bound(remembered: dict[_K, _T]) -> None:
    if len(remembered) > UNITS_MAX:
        del remembered[next(iter(remembered))]
