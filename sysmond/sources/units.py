# SPDX-License-Identifier: Apache-2.0
"""What becomes of systemd's units, of machines, containers and this machine, and whom systemd-oomd killed, by D-Bus.

Source: org.freedesktop.systemd1(5), org.freedesktop.machine1(5), org.freedesktop.login1(5), systemd-oomd.service(8):
only signals of units and jobs are asked for, and nothing is asked between them. What failed before anybody listened
systemd remembers: that is asked for when the connection begins. Standard library only.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from errno import ENOENT
from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC, clock_gettime, clock_gettime_ns
from typing import NamedTuple, TypeVar

from sysmond.probe import Host, HostEvent, Row
from sysmond.sources.bus_signals import ServiceSignals
from sysmond.sources.critical_chain import DEVICE, TARGET, BegunUnit, detail_of, unseen_devices
from sysmond.sources.logind import NAME as LOGIND
from sysmond.sources.sd_bus import SdBus, SdMessage
from sysmond.sources.unread import printable

SYSTEMD, MACHINED, OOMD = (f"org.freedesktop.{name}1" for name in ("systemd", "machine", "oom"))
MANAGER = (SYSTEMD, "/org/freedesktop/systemd1", f"{SYSTEMD}.Manager")
UNIT, SERVICE = f"{SYSTEMD}.Unit", f"{SYSTEMD}.Service"
_PROPERTIES = "org.freedesktop.DBus.Properties"
UNIT_PATH = "/org/freedesktop/systemd1/unit/"
_CHANGED = f"interface='{_PROPERTIES}',member='PropertiesChanged',path_namespace='{UNIT_PATH.rstrip('/')}'"
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
    LOGIND: (f"interface='{LOGIND}.Manager',member='PrepareForShutdown'",),
}
NOTE, STARTUP_NOTE = "unit.seen", "startup.seen"
FAILED, RESTARTED, STARTED, STOPPED = "unit failed", "unit restarted", "unit started", "unit stopped"
MACHINE, OOM_KILL, STARTUP, SHUTDOWN = "machine", "oom kill", "startup", "shutdown"
COUNTED = {FAILED: "failed", RESTARTED: "restarted", STARTED: "started", STOPPED: "stopped"}
KINDS = (*COUNTED, MACHINE, OOM_KILL, STARTUP, SHUTDOWN)
# Of more messages in one reading nothing is heard until the next that is due: others have their turn, and PID 1, too.
# A thousand a second are heard, also where a slow source has kept the lane for three seconds.
MESSAGES_MAX = 4096
# So many units, the newest, are remembered; so many that failed earlier are asked about; more of a kind are one event.
UNITS_MAX, EARLIER_MAX, LISTED_MAX = 4096, 32, 8
# What happened so long before it is heard is told with its own time.
LATE_US = 5_000_000
SECOND_US = 1_000_000
# These come and go with the sessions of people, which are not for everybody.
_OF_SESSIONS = re.compile(r"(?:user@|user-runtime-dir@|session-|user-)")
_UNIT_PROPERTIES = {
    "ActiveState": "s",
    "SubState": "s",
    **{f"{state}EnterTimestamp{clock}": "t" for state in ("Active", "Inactive") for clock in ("", "Monotonic")},
}
_SERVICE_PROPERTIES = {"Result": "s", "NRestarts": "u", "ExecMainCode": "i", "ExecMainStatus": "i"}
# When each phase of a boot began, but the first two: how long before the kernel they did.
_MANAGER_PROPERTIES = {
    "FinishTimestamp": "t",
    **{f"{phase}TimestampMonotonic": "t" for phase in ("Firmware", "Loader", "InitRD", "Userspace", "Finish")},
}
_BEGUN_PROPERTIES = {"InactiveExitTimestampMonotonic": "t", "ActiveEnterTimestampMonotonic": "t", "After": "as"}
# What takes time to start; and what only orders it, or is waited for.
_BEGINNING = (".service", ".mount", ".swap")
_ORDERING = (TARGET, ".socket")
# What was asked; all else that is asked of a boot is the name of a unit.
_MANAGER, _LIST = "/manager", "/list"
BEGUN_MAX, SLOWEST_MAX = 2048, 30
# A boot that is not over so long after its beginning is told of as such, and once more when it is over.
LATE_BOOT_S = 600.0
UNFINISHED, UNFINISHED_NOTE = "unfinished", "startup.unfinished"
_CODES = {1: "status", 2: "signal", 3: "core dumped, signal"}  # CLD_EXITED, CLD_KILLED, CLD_DUMPED
_Values = dict[str, int | str]
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
        self._services: dict[str, _Values] = {}
        self._restarts: dict[str, _Restarts] = {}
        self._starting_again: set[str] = set()

    def service(self, unit: str, values: _Values) -> None:
        """Remember how the process of a service ended; systemd says that before it says what became of the unit."""
        self._services[unit] = values
        _bound(self._services)

    def unit(self, unit: str, values: _Values) -> Iterator[UnitChange]:
        """Give what is new in it."""
        if _OF_SESSIONS.match(unit):
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


class Startup:
    """Finds out how long a boot took, once it is over: its phases, which units began slowly, and what it waited for."""

    def __init__(self) -> None:
        """Ask nothing yet. ``is_told``: there is nothing to ask any more."""
        self.is_told = self._is_late_told = False
        self._asked: dict[int, str] = {}
        self._over: UnitChange | None = None
        self._begun: dict[str, BegunUnit] = {}
        self._devices: dict[str, str] = {}

    def ask_late(self, bus: SdBus) -> None:
        """Ask once more, a long while after the beginning."""
        if late_s() and not self._is_late_told and not self._asked:
            self.ask(bus)

    def ask(self, bus: SdBus) -> None:
        """Ask whether it is over."""
        if self.is_told:
            return
        self._asked = {bus.send((*MANAGER[:2], _PROPERTIES), "GetAll", MANAGER[2]): _MANAGER}
        self._over, self._begun, self._devices = None, {}, {}

    def answered(self, bus: SdBus, message: SdMessage) -> Iterator[UnitChange]:
        """Take an answer, and ask on; what is asked of each unit, once a boot, costs systemd a fifth of a millisecond.

        :raises OSError: where it is not as it should be.
        """
        asked = self._asked.pop(message.answers, "")
        if not asked or message.is_error():
            pass
        elif asked == _MANAGER:
            self._over = next(startup(message.properties(_MANAGER_PROPERTIES), late_s()), None)
            if self._over is not None:
                self._asked[bus.send(MANAGER, "ListUnits")] = _LIST
        elif asked == _LIST:
            yield from self._listed(bus, list(listed(message, BEGUN_MAX)))
        elif self._over is not None:
            begun = message.properties(_BEGUN_PROPERTIES)
            active_us = int(begun.get("ActiveEnterTimestampMonotonic", 0))
            begin_us = int(begun.get("InactiveExitTimestampMonotonic", 0)) or active_us
            if 0 < begin_us <= active_us <= self._over.time_us:
                self._begun[asked] = BegunUnit(begin_us, active_us, str(begun.get("After", "")).split())
        if self._over is not None and not self._asked:
            # Of hundreds of devices only those are asked about that somebody waited for.
            for device in unseen_devices(self._begun) & self._devices.keys():
                self._asked[bus.send((SYSTEMD, self._devices.pop(device), _PROPERTIES), "GetAll", UNIT)] = device
        if self._over is not None and not self._asked:
            slow = [name for name, unit in self._begun.items() if unit.length_us and name.endswith(_BEGINNING)]
            slowest = sorted(slow, key=lambda name: -self._begun[name].length_us)[:SLOWEST_MAX]
            detail = detail_of(self._begun, slowest)
            over, self._over = self._over._replace(detail=detail), None
            self._begun, self._devices = {}, {}
            self.is_told = not over.text.startswith(UNFINISHED)
            yield over

    def _listed(self, bus: SdBus, units: Sequence[tuple[str, str, str]]) -> Iterator[UnitChange]:
        """Ask about the units that there are; of a boot that is not over, tell which are still starting."""
        if self._over is None:
            return
        if not self._over.text.startswith(UNFINISHED):
            for unit, path, state in units:
                if state == "active" and unit.endswith((*_BEGINNING, *_ORDERING)):
                    self._asked[bus.send((SYSTEMD, path, _PROPERTIES), "GetAll", UNIT)] = unit
                elif state == "active" and unit.endswith(DEVICE):
                    self._devices[unit] = path
            return
        starting = [unit for unit, _, state in units if state == "activating"][:SLOWEST_MAX]
        late, self._over = self._over._replace(detail=", ".join(starting)), None
        if not self._is_late_told:
            yield late
        self._is_late_told = True


class Units:
    """Hears what becomes of units, and gives it as a row and as events."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        self._signals = ServiceSignals(RULES, self._begin)
        self._states: UnitStates | None = None
        self._bus: SdBus | None = None
        self._asked: dict[int, tuple[str, str]] = {}
        self._startup = Startup()
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
            self._startup.is_told = bool(host.folder) and os.path.exists(f"{host.folder}/{STARTUP_NOTE}")
        changes: list[UnitChange] = []
        heard = 0
        for services, message in self._signals.take(host, MESSAGES_MAX):
            heard += 1
            with suppress(OSError):  # What is not as it should be is no news.
                changes += self._change(self._states, services, message)
        if heard == MESSAGES_MAX:
            self._overruns += 1
            self._signals.let_go(host)
        if self._bus is not None:
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
            self._startup.ask(bus)

    def _change(self, states: UnitStates, services: frozenset[str], message: SdMessage) -> Iterator[UnitChange]:
        """Read a message.

        :raises OSError: where it is not as it should be.
        """
        if not services:
            yield from self._answered(states, message)
        elif SYSTEMD in services and message.is_signal(MANAGER[2], "JobRemoved"):
            message.skip("uo")
            yield UnitChange(FAILED, message.read("s"), f"not started: {_LOST_JOBS.get(message.read('s'), '')}")
        elif SYSTEMD in services and message.is_signal(MANAGER[2], "StartupFinished"):
            if self._bus is not None:
                self._startup.ask(self._bus)
        elif SYSTEMD in services and message.is_signal(_PROPERTIES, "PropertiesChanged"):
            yield from _properties(states, name_of(message.path), message.read("s"), message)
        elif MACHINED in services and (done := _DONE.get(message.member)):
            yield UnitChange(MACHINE, message.read("s"), done)
        elif LOGIND in services and message.is_signal(f"{LOGIND}.Manager", "PrepareForShutdown"):
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
            yield from self._startup.answered(self._bus, message)
            return
        if message.is_error():
            return
        if asked[0]:
            yield from _properties(states, *asked, message)
            return
        for unit, path, _ in listed(message, EARLIER_MAX):
            for interface in (SERVICE, UNIT) if unit.endswith(".service") else (UNIT,):
                self._asked[self._bus.send((SYSTEMD, path, _PROPERTIES), "GetAll", interface)] = (unit, interface)

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


def late_s() -> float:
    """How old the boot is, where it should be over; else 0."""
    age_s = clock_gettime(CLOCK_BOOTTIME)
    return age_s if age_s >= LATE_BOOT_S else 0.0


def startup(values: Mapping[str, int | str], waited_s: float = 0.0) -> Iterator[UnitChange]:
    """How long each phase of a boot took, once it is over; what there was not has no phase. As systemd-analyze(1).

    Of one that was waited for in vain, only for how long.
    """
    at = {name.removesuffix("TimestampMonotonic"): int(value) for name, value in values.items()}
    if not at.get("Finish"):
        if waited_s and "Finish" in at:
            yield UnitChange(STARTUP, "", f"{UNFINISHED} after {waited_s:.0f} s")
        return
    before_us, loader_us, initrd_us = (at.get(name, 0) for name in ("Firmware", "Loader", "InitRD"))
    userspace_us, finish_us = at.get("Userspace", 0), at["Finish"]
    phases = {
        "firmware": before_us - loader_us if before_us else 0,
        "loader": loader_us,
        "kernel": initrd_us or userspace_us,
        "initrd": userspace_us - initrd_us if initrd_us else 0,
        "userspace": finish_us - userspace_us,
    }
    lengths = ", ".join(f"{phase} {length / SECOND_US:.3f} s" for phase, length in phases.items() if length > 0)
    total_s = sum(phases.values()) / SECOND_US
    yield UnitChange(STARTUP, "", f"{total_s:.3f} s: {lengths}", finish_us, int(values.get("FinishTimestamp", 0)))


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


def _bound(remembered: dict[_K, _T]) -> None:
    if len(remembered) > UNITS_MAX:
        del remembered[next(iter(remembered))]


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
