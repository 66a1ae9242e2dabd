# SPDX-License-Identifier: Apache-2.0
"""Cooling devices: what the kernel slows down or switches on against heat, from /sys/class/thermal.

Source: the kernel's ``Documentation/driver-api/thermal/sysfs-api.rst``.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Absence, Answers, Derived, Host, Lane, Probe, Row, Table, gauge, hookimpl
from sysmond.sources import thermal
from sysmond.sources.slots import SlowFirmware
from sysmond.sources.unread import why

COOLING = Table(
    "cooling",
    per="device",
    doc="Cooling devices, such as fans and processors that can be slowed down, by type; if several have the same type,"
    f" with the device that each belongs to. The first {thermal.DEVICES_MAX} count. One that answers slowly is read"
    " less often.",
    metrics=(
        gauge("level", "1", "How hard it cools; 0 means not at all.", origin="cooling_deviceN/cur_state"),
        gauge("max", "1", "The highest level there is.", origin="cooling_deviceN/max_state"),
    ),
    answers=Answers(
        derived=(Derived("share", "%", "level / max * 100", "How hard it cools, as a share of the highest level."),)
    ),
)


def level(host: Host, _: str, folder: str) -> Absence | tuple[int, int]:
    """Read one device; where that cannot be done, it says why."""
    try:
        level = int(host.read(f"{folder}/cur_state"))
    except (OSError, ValueError) as problem:
        return why("cur_state", problem)
    # Linux has levels of unsigned long, and a driver that knows none gives the largest.
    return level if level < -ABSENT else ABSENT, host.integer(f"{folder}/max_state")


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``cooling``. A level may be asked of an embedded controller."""
    coolers = thermal.Devices(SlowFirmware(COOLING.name), level)

    def read(host: Host) -> Iterator[Row]:
        return coolers.read(host, thermal.devices(host, thermal.COOLING))

    where = f"{thermal.FOLDER}/{thermal.COOLING}*"
    return [Probe(COOLING, read, 10.0, Lane.BACKGROUND, subsystems=("thermal",), needs=(where,))]
