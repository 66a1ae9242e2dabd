# SPDX-License-Identifier: Apache-2.0
"""Packages that were installed, upgraded and removed: numbers, and each run as an event.

Source: dpkg's log, which ``sysmond.sources.dpkg_log`` follows.
"""

from sysmond.probe import Lane, Probe, Table, counter, hookimpl
from sysmond.sources.dpkg_log import DONE, PATH, PackageRuns

INTERVAL_S = 10.0

PACKAGE = Table(
    "package",
    doc="Packages that dpkg has changed since the recorder started. Each dpkg run is an event that names them.",
    metrics=tuple(counter(done, "1", f"Packages that were {done}.", origin=PATH) for done in DONE),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``package``, where there is a dpkg."""
    return [Probe(PACKAGE, PackageRuns().read, INTERVAL_S, Lane.BACKGROUND, needs=(PATH,), told_kinds=("packages",))]
