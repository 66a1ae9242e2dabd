# SPDX-License-Identifier: Apache-2.0
"""Sessions of people: how often they log in and out, lock and unlock; each is an event that names who.

Source: logind's signals on D-Bus, which ``sysmond.sources.sessions`` hears, and wtmpdb or wtmp for what was before. Who
uses the machine when is restricted.
"""

from sysmond.probe import Lane, Probe, Sensitivity, Table, counter, hookimpl
from sysmond.sources.sessions import FOLDER, KIND, Sessions

ORIGIN = "org.freedesktop.login1"

SESSION = Table(
    "session",
    doc="User sessions since the recorder started. Those of services and login screens do not count.",
    metrics=(
        counter("logins", "1", "Sessions that began.", origin=ORIGIN),
        counter("logouts", "1", "Sessions that ended.", origin=ORIGIN),
        counter("locks", "1", "How often a screen was locked.", origin=ORIGIN),
        counter("unlocks", "1", "How often a screen was unlocked.", origin=ORIGIN),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``session``, where there is a logind. While nothing happens nothing is read but once a minute."""
    probe = Probe(SESSION, Sessions().read, 60.0, Lane.BACKGROUND, Sensitivity.RESTRICTED, needs=(FOLDER,))
    return [probe._replace(told_kinds=(KIND,))]
