# SPDX-License-Identifier: Apache-2.0
"""Programs and command lines of processes; ``sysmond/tasks/commands.py`` reads them, ``masking.py`` hides secrets."""

from sysmond.probe import Lane, Option, Probe, Sensitivity, hookimpl
from sysmond.tasks.commands import Commands
from sysmond.tasks.tables import COMMAND


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table, every second: where the kernel does not tell of new processes, looking finds them."""
    return [
        Probe(
            COMMAND,
            lane=Lane.BACKGROUND,
            sensitivity=Sensitivity.RESTRICTED,
            records=Commands().records,
            options=(
                Option("mask", default=True, doc="Whether *** stands for what looks like a secret in a command line."),
            ),
        )
    ]
