# SPDX-License-Identifier: Apache-2.0
"""sysmond itself: processor time, memory, lateness, losses, and the cost of every probe.

Each part of sysmond counts for itself: the numbers are those of the process that reads this table.
"""

from collections.abc import Iterable

from sysmond.probe import Host, Probe, Row, hookimpl
from sysmond.sampler.self_cost import SELF


def read(host: Host) -> Iterable[Row]:
    """One row for each part and each probe, from the sampler that runs this."""
    return host.costs()


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``self``; every lane fills its own rows of it."""
    return [Probe(SELF, read)]
