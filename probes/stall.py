# SPDX-License-Identifier: Apache-2.0
"""Stalls: how often tasks waited for memory or disks for much of two seconds, which is an event as well.

Source: triggers of ``/proc/pressure``, which ``sysmond.sources.stalls`` watches.
"""

from sysmond.probe import Lane, Probe, Table, counter, hookimpl
from sysmond.sources.stalls import FOLDER, KIND, Stalls

STALL = Table(
    "stall",
    per="resource",
    doc="Periods of two seconds in which tasks waited for memory for a fifth of the time, or for"
    " disks for half of it, since the recorder started.",
    metrics=(counter("stalls", "1", "Periods in which tasks waited that long.", origin=FOLDER),),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``stall``. While there is no stall nothing is read but once a minute."""
    privilege = "CAP_SYS_RESOURCE before Linux 6.5"
    probe = Probe(STALL, Stalls().read, 60.0, Lane.BACKGROUND, needs=(f"{FOLDER}/memory",), privilege=privilege)
    return [probe._replace(told_kinds=(KIND,))]
