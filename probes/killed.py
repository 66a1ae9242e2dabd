# SPDX-License-Identifier: Apache-2.0
"""Who ends whom: how many processes a signal of another process ended; each is an event with who sent it.

Source: BPF programs, which ``sysmond.tasks.ends.kills`` reads. Who sent a signal is between two processes, so this is
restricted; ``exits`` has senders of the same user.
"""

from sysmond.probe import Lane, Probe, Sensitivity, Table, counter, hookimpl
from sysmond.tasks.ends.kills import KIND, TABLE, Kills

ORIGIN = "tracepoint signal_generate"

KILLED = Table(
    TABLE,
    doc="Processes killed by a signal from another process that is not one of their ancestors, since"
    " the recorder started.",
    metrics=(
        counter("processes", "1", "Processes killed by such a signal.", origin=ORIGIN),
        counter(
            "overruns",
            "1",
            "Kills that were not recorded one by one, because there were too many at once.",
            origin="bpf_ringbuf_reserve",
        ),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``killed``. While nobody is killed, nothing is read but once a minute."""
    probe = Probe(KILLED, Kills().read, 60.0, Lane.BACKGROUND, Sensitivity.RESTRICTED, told_kinds=(KIND,))
    return [probe._replace(privilege="CAP_BPF and CAP_PERFMON for the loader")]
