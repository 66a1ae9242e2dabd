# SPDX-License-Identifier: Apache-2.0
"""sysmond itself: processor time, memory, lateness, losses, and the cost of every probe.

Each part of sysmond counts for itself; the numbers come from the process that asks.
"""

from collections.abc import Iterable

from sysmond.probe import Host, Probe, Row, hookimpl
from sysmond.sampler.self_cost import SELF


def read(host: Host) -> Iterable[Row]:
    """One row a part and one a probe, as the sampler that runs this keeps them."""
    return host.costs()


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``self``; every lane fills its own rows of it."""
    return [Probe(SELF, read)]
