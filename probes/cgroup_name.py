# SPDX-License-Identifier: Apache-2.0
"""Paths of cgroups by the numbers that the tables about tasks have. ``sysmond/tasks/cgroup_names.py`` reads them."""

from sysmond.probe import Lane, Probe, hookimpl
from sysmond.tasks.cgroup_names import CgroupNames
from sysmond.tasks.hidepid import sensitivity
from sysmond.tasks.tables import CGROUP_NAME

INTERVAL_S = 5.0


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table; without BPF a cgroup that lives for less than its interval may stay without a name."""
    return [
        Probe(
            CGROUP_NAME,
            lane=Lane.BACKGROUND,
            sensitivity=sensitivity(),
            interval_s=INTERVAL_S,
            records=CgroupNames().records,
        )
    ]
