# SPDX-License-Identifier: Apache-2.0
"""What becomes of systemd's units, of machines, containers and this machine, and whom systemd-oomd killed, by D-Bus.

Source: org.freedesktop.systemd1(5), org.freedesktop.machine1(5), org.freedesktop.login1(5), systemd-oomd.service(8):
only signals of units and jobs are asked for, and nothing is asked between them. What failed before anybody listened
systemd remembers: that is asked for when the connection begins. Standard library only.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from errno import ENOENT
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import TYPE_CHECKING

from sysmond.probe import Host, HostEvent, Row
from sysmond.sources.bus_signals import ServiceSignals
from sysmond.sources.sd_bus import LOGIND, PROPERTIES, SdBus, SdMessage
from sysmond.sources.unit_states import (
    COUNTED,
    FAILED,
    MANAGER,
    RESTARTED,
    SERVICE,
    STARTUP,
    SYSTEMD,
    UNFINISHED,
    UNIT,
    UnitChange,
    UnitStates,
    listed,
)
from sysmond.sources.unread import printable

if TYPE_CHECKING:
    from sysmond.sources.startup import Startup

MACHINED, OOMD = "org.freedesktop.machine1", "org.freedesktop.oom1"
UNIT_PATH = "/org/freedesktop/systemd1/unit/"
_CHANGED = f"interface='{PROPERTIES}',member='PropertiesChanged',path_namespace='{UNIT_PATH.rstrip('/')}'"
_JOB = f"interface='{MANAGER[2]}',member='JobRemoved'"
# Jobs that came to nothing, so that their unit did not change; all others are seen by their units.
_LOST_JOBS = {"dependency": "a unit that it needs was not started", "timeout": "its job took too long"}
_DONE = {"MachineNew": "started", "MachineRemoved": "ended"}
RULES = {
    SYSTEMD: (
        f"{_CHANGED},arg0='{UNIT}'",
        f"{_CHANGED},arg0='{SERVICE}'",
        *(f"{_JOB},arg3='{result}'" for result in _LOST_JOBS),
        f"interface='{MANAGER[2]}',member='StartupFinished'",
    ),
    MACHINED: tuple(f"interface='{MACHINED}.Manager',member='{member}'" for member in _DONE),
    OOMD: (f"interface='{OOMD}.Manager',member='Killed'",),
    LOGIND[0]: (f"interface='{LOGIND[2]}',member='PrepareForShutdown'",),
}
NOTE, STARTUP_NOTE, UNFINISHED_NOTE = "unit.seen", "startup.seen", "startup.unfinished"
MACHINE, OOM_KILL, SHUTDOWN = "machine", "oom kill", "shutdown"
KINDS = (*COUNTED, MACHINE, OOM_KILL, STARTUP, SHUTDOWN)
# Of more messages in one reading nothing is heard until the next that is due: others have their turn, and PID 1, too.
# A thousand a second are heard, also where a slow source has kept the lane for three seconds.
MESSAGES_MAX = 4096
# So many that failed earlier are asked about; more of a kind are one event.
EARLIER_MAX, LISTED_MAX = 32, 8
# What happened so long before it is heard is told with its own time.
LATE_US = 5_000_000
_UNIT_PROPERTIES = {
    "ActiveState": "s",
    "SubState": "s",
    **{f"{state}EnterTimestamp{clock}": "t" for state in ("Active", "Inactive") for clock in ("", "Monotonic")},
}
_SERVICE_PROPERTIES = {"Result": "s", "NRestarts": "u", "ExecMainCode": "i", "ExecMainStatus": "i"}


class Units:
    """Hears what becomes of units, and gives it as a row and as events."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        self._signals = ServiceSignals(RULES, self._begin)
        self._states: UnitStates | None = None
        self._bus: SdBus | None = None
        self._asked: dict[int, tuple[str, str]] = {}
        self._startup: Startup | None = None
        self._is_boot_told = False
        self._counts = dict.fromkeys(COUNTED, 0)
        self._overruns = 0

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row, and tell what happened.

        :raises OSError: where there is no bus; never of another machine.
        """
        if host.root:
            raise OSError(ENOENT, "only the running machine can be heard")
        if self._states is None:
            self._states = UnitStates(clock_gettime_ns(CLOCK_MONOTONIC) // 1000, _noted(host))
            self._is_boot_told = bool(host.folder) and os.path.exists(f"{host.folder}/{STARTUP_NOTE}")
        changes: list[UnitChange] = []
        heard = 0
        for services, message in self._signals.take(host, MESSAGES_MAX):
            heard += 1
            with suppress(OSError):  # What is not as it should be is no news.
                changes += self._change(self._states, services, message)
        if heard >= MESSAGES_MAX:
            self._overruns += 1
            self._signals.let_go(host)
        if self._bus is not None and self._startup is not None:
            with suppress(OSError):  # The bus may be gone.
                self._startup.ask_late(self._bus)
        self._tell(host, list(_once(host, changes)))
        if any(change.kind == FAILED for change in changes):
            _note(host, self._states.failed_us)
        yield "", (*self._counts.values(), self._overruns)

    def _begin(self, bus: SdBus, service: str) -> None:
        """Systemd is there: have it say what becomes of units, and what failed before."""
        if service == SYSTEMD:
            bus.send(MANAGER, "Subscribe")
            self._bus, self._asked = bus, {bus.send(MANAGER, "ListUnitsFiltered", ["failed"]): ("", "")}
            self._ask_of_boot(bus)

    def _ask_of_boot(self, bus: SdBus) -> None:
        """Ask how long the boot took, unless that was told."""
        if self._startup is None and not self._is_boot_told:
            from sysmond.sources.startup import Startup  # noqa: PLC0415  who begins later in a boot does without

            self._startup = Startup()
        if self._startup is not None:
            self._startup.ask(bus)

    def _change(self, states: UnitStates, services: frozenset[str], message: SdMessage) -> Iterator[UnitChange]:
        """Read a message.

        :raises OSError: where it is not as it should be.
        """
        if not services:
            yield from self._answered(states, message)
        elif SYSTEMD in services and message.is_signal(MANAGER[2], "JobRemoved"):
            message.skip("uo")
            unit, result = message.read("s"), message.read("s")
            yield UnitChange(FAILED, unit, f"not started: {_LOST_JOBS.get(result, '')}")
        elif SYSTEMD in services and message.is_signal(MANAGER[2], "StartupFinished"):
            if self._bus is not None:
                self._ask_of_boot(self._bus)
        elif SYSTEMD in services and message.is_signal(PROPERTIES, "PropertiesChanged"):
            yield from _properties(states, name_of(message.path), message.read("s"), message)
        elif MACHINED in services and (done := _DONE.get(message.member)):
            yield UnitChange(MACHINE, message.read("s"), done)
        elif LOGIND[0] in services and message.is_signal(LOGIND[2], "PrepareForShutdown"):
            if message.read("b"):
                yield UnitChange(SHUTDOWN, "", "requested")
        elif OOMD in services and message.is_signal(f"{OOMD}.Manager", "Killed"):
            cgroup, reason = message.read("s"), message.read("s")
            where = printable(cgroup.encode())
            yield UnitChange(OOM_KILL, where.rpartition("/")[2], f"by systemd-oomd, of {where}: {reason}")

    def _answered(self, states: UnitStates, message: SdMessage) -> Iterator[UnitChange]:
        """What failed before is there, or how a unit of these did, or something of a boot."""
        if self._bus is None:
            return
        asked = self._asked.pop(message.answers, None)
        if asked is None:
            if self._startup is not None:
                yield from self._startup.answered(self._bus, message)
            return
        if message.is_error():
            return
        if asked[0]:
            yield from _properties(states, *asked, message)
            return
        for unit, path, _ in listed(message, EARLIER_MAX):
            for interface in (SERVICE, UNIT) if unit.endswith(".service") else (UNIT,):
                self._asked[self._bus.send((SYSTEMD, path, PROPERTIES), "GetAll", interface)] = (unit, interface)

    def _tell(self, host: Host, changes: list[UnitChange]) -> None:
        """Tell of each kind, the worst first; of many only how many they are, and which."""
        by_kind: dict[str, list[UnitChange]] = defaultdict(list)
        for change in _without_restarted(changes):
            by_kind[change.kind].append(change)
        for kind in KINDS:
            if kind in COUNTED:
                self._counts[kind] += len(by_kind[kind])
            of_unit: dict[str, list[UnitChange]] = defaultdict(list)
            for change in by_kind[kind]:
                of_unit[change.unit].append(change)
            if len(of_unit) > LISTED_MAX:
                total = f"{len(by_kind[kind])} at once"
                host.tell_event(kind, "", total, detail=", ".join(of_unit))
                continue
            for event in (_event(same) for same in of_unit.values()):
                host.tell_event(
                    *event[:3], detail=event.detail, happened_ns=event.happened_ns, known_from=event.known_from
                )


def _properties(states: UnitStates, unit: str, interface: str, message: SdMessage) -> Iterator[UnitChange]:
    if interface == SERVICE:
        states.service(unit, message.properties(_SERVICE_PROPERTIES))
    elif interface == UNIT:
        yield from states.unit(unit, message.properties(_UNIT_PROPERTIES))


def _once(host: Host, changes: Iterable[UnitChange]) -> Iterator[UnitChange]:
    """All but a boot that was told before: the folder of the lane lasts as long as it does."""
    for change in changes:
        if change.kind == STARTUP and host.folder:
            noted = UNFINISHED_NOTE if change.text.startswith(UNFINISHED) else STARTUP_NOTE
            with suppress(OSError), open(f"{host.folder}/{noted}", "x", encoding="ascii"):
                yield change
        else:
            yield change


def name_of(path: str) -> str:
    """The name of the unit at a path: what is no letter or digit stands there as ``_`` and two hexadecimal digits."""
    escaped = path.removeprefix(UNIT_PATH).encode()
    return re.sub(rb"_([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), escaped).decode(
        "utf-8", "backslashreplace"
    )


def _without_restarted(changes: list[UnitChange]) -> Iterator[UnitChange]:
    """All but the failures of what was started again at once: systemd says that it failed, and then that it waits."""
    following: dict[str, str] = {}
    others = []
    for change in reversed(changes):
        if not (change.kind == FAILED and following.get(change.unit) == RESTARTED):
            others.append(change)
        following[change.unit] = change.kind
    return reversed(others)


def _event(same: list[UnitChange]) -> HostEvent:
    """One event of what became of one unit: the last of it, and how often."""
    kind, unit, text, time_us, utc_us, detail = same[-1]
    if len(same) > 1:
        text = f"{len(same)} times; {text}".removesuffix("; ")
    if not time_us or clock_gettime_ns(CLOCK_MONOTONIC) // 1000 - time_us < LATE_US:
        return HostEvent(kind, unit, text, detail)
    return HostEvent(kind, unit, text, detail, utc_us * 1000, "systemd")


def _noted(host: Host) -> int:
    """Up to when failures were told in this boot; 0 for none. The folder is in RAM."""
    with suppress(OSError, ValueError):
        if host.folder:
            with open(f"{host.folder}/{NOTE}", encoding="ascii") as file:
                return int(file.read(32))
    return 0


def _note(host: Host, failed_us: int) -> None:
    if host.folder:
        with suppress(OSError), open(f"{host.folder}/{NOTE}", "w", encoding="ascii") as file:
            file.write(f"{failed_us}\n")
