# SPDX-License-Identifier: Apache-2.0
"""How long a boot took, as systemd says once it is over: its phases, which units began slowly, and what it waited for.

Source: org.freedesktop.systemd1(5); systemd-analyze(1) for what the phases are. It is asked once a boot, and loaded for
that. Standard library only.
"""

from collections.abc import Iterator, Mapping, Sequence
from time import CLOCK_BOOTTIME, clock_gettime

from sysmond.sources.critical_chain import DEVICE, TARGET, BegunUnit, detail_of, unseen_devices
from sysmond.sources.sd_bus import PROPERTIES, SdBus, SdMessage
from sysmond.sources.unit_states import MANAGER, STARTUP, SYSTEMD, UNFINISHED, UNIT, UnitChange, listed

SECOND_US = 1_000_000
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
        self._asked = {bus.send((*MANAGER[:2], PROPERTIES), "GetAll", MANAGER[2]): _MANAGER}
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
                self._asked[bus.send((SYSTEMD, self._devices.pop(device), PROPERTIES), "GetAll", UNIT)] = device
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
                    self._asked[bus.send((SYSTEMD, path, PROPERTIES), "GetAll", UNIT)] = unit
                elif state == "active" and unit.endswith(DEVICE):
                    self._devices[unit] = path
            return
        starting = [unit for unit, _, state in units if state == "activating"][:SLOWEST_MAX]
        late, self._over = self._over._replace(detail=", ".join(starting)), None
        if not self._is_late_told:
            yield late
        self._is_late_told = True


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
