# SPDX-License-Identifier: Apache-2.0
"""Services: how many units failed, were restarted, started or stopped; each is an event that names it.

Source: systemd's signals on D-Bus, which ``sysmond.sources.units`` hears.
"""

from sysmond.probe import Lane, Probe, Table, counter, hookimpl
from sysmond.sources.units import KINDS, Units

ORIGIN = "org.freedesktop.systemd1"

UNIT = Table(
    "unit",
    doc="What happened to systemd units since the recorder started: services, and other units that"
    " failed. Units of user sessions do not count.",
    metrics=(
        counter("failed", "1", "How often a unit failed.", origin=ORIGIN),
        counter("restarted", "1", "How often a unit was restarted because it had ended.", origin=ORIGIN),
        counter("started", "1", "How often a service was started.", origin=ORIGIN),
        counter("stopped", "1", "How often a service was stopped, or ended.", origin=ORIGIN),
        counter("overruns", "1", "How often too much changed to follow, for up to half a minute.", origin=ORIGIN),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``unit``. While nothing becomes of units, nothing is read but twice a minute."""
    needs = ("/run/systemd/system",)
    return [Probe(UNIT, Units().read, 30.0, Lane.BACKGROUND, needs=needs, told_kinds=KINDS)]
