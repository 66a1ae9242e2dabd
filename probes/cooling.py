# SPDX-License-Identifier: Apache-2.0
"""Cooling devices: what the kernel slows down or switches on against heat, from /sys/class/thermal.

Source: the kernel's ``Documentation/driver-api/thermal/sysfs-api.rst``.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Absence, Answers, Cause, Derived, Host, Lane, Probe, Row, Table, gauge, hookimpl
from sysmond.sources import thermal
from sysmond.sources.unread import why

COOLING = Table(
    "cooling",
    per="device",
    doc="Cooling devices, as fans and processors that can be slowed down, by type; where several have one type, with"
    f" the device that each belongs to. The first {thermal.DEVICES_MAX} count.",
    metrics=(
        gauge("level", "1", "How hard it cools: 0 is not at all.", origin="cooling_deviceN/cur_state"),
        gauge("max", "1", "The highest level there is.", origin="cooling_deviceN/max_state"),
    ),
    answers=Answers(derived=(Derived("share", "%", "level / max * 100", "How hard it cools, of what it can."),)),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each; one that cannot be read says why."""
    for instance, folder in thermal.devices(host, thermal.COOLING).items():
        if host.is_asleep(f"{folder}/device"):
            yield instance, Absence(Cause.ASLEEP)
            continue
        try:
            level = int(host.read(f"{folder}/cur_state"))
        except (OSError, ValueError) as problem:
            yield instance, why("cur_state", problem)
            continue
        # Linux has levels of unsigned long, and a driver that knows none gives the largest.
        yield instance, (level if level < -ABSENT else ABSENT, host.integer(f"{folder}/max_state"))


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``cooling``. A level may be asked of an embedded controller."""
    where = f"{thermal.FOLDER}/{thermal.COOLING}*"
    return [Probe(COOLING, read, 10.0, Lane.BACKGROUND, subsystems=("thermal",), needs=(where,))]
