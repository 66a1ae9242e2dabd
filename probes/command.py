# SPDX-License-Identifier: Apache-2.0
"""Programs and command lines of processes; ``sysmond.tasks.command`` reads them and hides secrets."""

from sysmond.probe import Lane, Option, Probe, Sensitivity, hookimpl
from sysmond.tasks.command.commands import Commands
from sysmond.tasks.tables import COMMAND


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table; where the kernel does not report new processes, listing /proc finds them, every second."""
    return [
        Probe(
            COMMAND,
            lane=Lane.BACKGROUND,
            sensitivity=Sensitivity.RESTRICTED,
            interval_s=5.0,
            records=Commands().records,
            privilege="CAP_BPF and CAP_PERFMON for the loader, or CAP_SYS_PTRACE for programs of others",
            options=(
                Option(
                    "mask", default=True, doc="Whether what looks like a secret in a command line is replaced by ***."
                ),
            ),
        )
    ]
